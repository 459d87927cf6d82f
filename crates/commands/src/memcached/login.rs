//! Login of memcached's text clients, where passwords are asked for: as memcached has it with `-Y`.
//!
//! ```text
//! set <any key> <any flags> <any exptime> <bytes>\r\n
//! <user> <password>\r\n
//! ```
//!
//! | what comes | reply |
//! |---|---|
//! | the right pair | `STORED`, and the connection is one like any other |
//! | a wrong pair | `CLIENT_ERROR authentication failure`; a later try waits (`core/guesses.rs`) |
//! | another line | `CLIENT_ERROR unauthenticated` |
//! | a block without a space | `CLIENT_ERROR bad authentication token format` |
//! | a block without `\r\n` behind it | `CLIENT_ERROR bad command line termination` |
//! | a block of more than 16,384 bytes | `CLIENT_ERROR auth token too long`; the block is passed over |
//! | a line of up to 6 bytes, `quit` among them; one of more than 2,048 | none, and the connection is closed |
//!
//! With `--strict-framing` the connection is closed behind a line that is no login, and behind a block that does not end where
//! its line says.
//!
//! It is known when a connection is made whether its client must log in. Until it has, the connection has this conversation of
//! its own, so that others do no step more for it.

use larder_protocol::scan::line_feed;
use larder_protocol::{Tokens, last_token};
use larder_store::Millis;

use super::rules;
use super::session::may_end;
use super::text::TOO_MANY_CONNECTIONS;
use crate::core::access::{SECRET_BYTES_MAX, Standing, Users};
use crate::core::arrival::unauthenticated;
use crate::core::context::Context;
use crate::core::conversation::Converse;
use crate::core::output::Output;
use crate::core::progress::{Ending, Next, Progress};
use crate::core::shared::Shared;
use crate::core::tries::Tries;
use crate::core::unauthenticated::UnauthenticatedClient;
use crate::core::work::COMMAND_NS;

/// Most bytes of a line, with its end, that is too short for a login: the connection is closed, as in memcached.
const SHORT_BYTES: usize = 6;
/// Most bytes of a line, its end not counted.
const LINE_BYTES_MAX: usize = 2048;

const STORED: &[u8] = b"STORED\r\n";
const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
const FAILED: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
const NO_SPACE: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
const NO_END: &[u8] = b"CLIENT_ERROR bad command line termination\r\n";
const TOO_LONG: &[u8] = b"CLIENT_ERROR auth token too long\r\n";

/// A connection that must log in.
#[derive(Debug)]
pub(crate) struct Login {
    /// Its place among the unauthenticated clients; `None`: there are too many.
    unauthenticated: Option<UnauthenticatedClient>,
    tries: Tries,
    /// Bytes of a block that are still to be skipped.
    skips: u64,
    /// Whether some of what it has sent was taken.
    begun: bool,
    /// Its user, once it has logged in, or need not any more: [`Login::take_standing`].
    standing: Option<Standing>,
}

/// The next step of the connection.
#[derive(Debug)]
enum Step {
    /// It has not logged in.
    Waits(Next),
    /// It has, or need not any more: it goes on as this user.
    In(Standing),
}

impl Login {
    /// The conversation that a connection of text clients begins with; `None` where it need not log in.
    pub fn asked(cx: &Context<'_, '_>) -> Option<Login> {
        let settings = &cx.shared.settings;
        let asks = settings.text_auth && cx.shared.access.asks();
        asks.then(|| Login {
            unauthenticated: unauthenticated(cx, settings.unauthenticated_max),
            tries: Tries::default(),
            skips: 0,
            begun: false,
            standing: None,
        })
    }

    /// Its place among the unauthenticated clients, for the conversation of another protocol that it speaks.
    pub fn into_unauthenticated(self) -> Option<UnauthenticatedClient> {
        self.unauthenticated
    }

    /// Returns whether nothing of it was taken yet: its first byte may say that it speaks another protocol.
    pub fn is_new(&self) -> bool {
        !self.begun
    }

    /// Takes, once, the user that the client goes on as, when it has logged in, or need not any more. What it sends behind the
    /// login is for another conversation.
    pub fn take_standing(&mut self) -> Option<Standing> {
        self.standing.take()
    }

    /// Takes as many lines as there are. Returns how many bytes they have, and the connection's next step.
    fn lines(&mut self, cx: &Context<'_, '_>, input: &[u8], out: &mut Output) -> (usize, Step) {
        if self.is_turned_away() {
            out.put(TOO_MANY_CONNECTIONS);
            return (0, Step::Waits(Next::Close));
        }
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let skipped = self.skips.min(rest.len() as u64);
            let ends = may_end(&rest[..skipped as usize], self.skips);
            self.skips -= skipped;
            at += skipped as usize;
            if !ends && cx.shared.settings.strict_framing {
                return (at, Step::Waits(Next::Close));
            }
            if self.skips > 0 {
                return (at, Step::Waits(Next::Receive));
            }
            if !cx.shared.access.asks() {
                // The password was taken away since.
                return (at, Step::In(Standing::unasked(&cx.shared.access)));
            }
            if out.is_full() {
                return (at, Step::Waits(Next::Flush));
            }
            match self.line(cx, &input[at..], out) {
                Ok(taken) => (at, self.begun) = (at + taken, true),
                Err((taken, step)) => return (at + taken, step),
            }
        }
    }

    /// Takes a line and its block. Returns how many bytes they have.
    ///
    /// # Errors
    /// The connection does not go on with the next line: how many bytes were taken, and its next step.
    fn line(&mut self, cx: &Context<'_, '_>, input: &[u8], out: &mut Output) -> Result<usize, (usize, Step)> {
        let waits = |next| (0, Step::Waits(next));
        let Some(feed) = line_feed(input) else {
            let is_long = input.len() > LINE_BYTES_MAX + 1;
            return Err(waits(if is_long { Next::Close } else { Next::Receive }));
        };
        let line = input[..feed].strip_suffix(b"\r").unwrap_or(&input[..feed]);
        let behind = feed + 1;
        if behind <= SHORT_BYTES || line.len() > LINE_BYTES_MAX {
            return Err(waits(Next::Close));
        }
        cx.spend(out, COMMAND_NS);
        let Some(bytes) = announced(line) else {
            // A request that a browser was made to send ends with its first line.
            if last_token(line).is_some_and(|token| token.starts_with(b"HTTP/")) {
                return Err((behind, Step::Waits(Next::Close)));
            }
            out.put(UNAUTHENTICATED);
            return after_unsure(cx, behind);
        };
        if bytes as usize > SECRET_BYTES_MAX {
            self.skips = u64::from(bytes) + 2;
            out.put(TOO_LONG);
            return Ok(behind);
        }
        let all = behind + bytes as usize + 2;
        let Some(block) = input.get(behind..all) else { return Err(waits(Next::Receive)) };
        let Some(token) = block.strip_suffix(b"\r\n") else {
            out.put(NO_END);
            return after_unsure(cx, all);
        };
        let Some(space) = memchr::memchr(b' ', token) else {
            out.put(NO_SPACE);
            return Ok(all);
        };
        if let Some(ms) = self.tries.wait_ms(cx) {
            return Err(waits(Next::Sleep(ms)));
        }
        let (user, password) = (&token[..space], &token[space + 1..]);
        cx.spend(out, cx.shared.access.look_ns(token.len()));
        let found = cx.shared.access.log_in(user, password);
        self.tries.record_attempt(cx, found.is_some());
        self.begun = true;
        if let Some((user, epoch)) = found {
            let mut standing = Standing::unasked(&cx.shared.access);
            standing.admit(user, epoch);
            out.put(STORED);
            return Err((all, Step::In(standing)));
        }
        rules::note_login(cx, out, "set", user);
        out.put(FAILED);
        Ok(all)
    }
}

impl Converse for Login {
    type Shared = Shared;

    /// Takes lines until the client has logged in. Then [`Login::take_standing`] has its user.
    fn receive<'c>(
        &mut self,
        shared: &'c Shared,
        cx: &mut Context<'c, '_>,
        input: &[u8],
        out: &mut Output,
    ) -> Progress {
        shared.flush_if_due(&mut cx.guard);
        let (consumed, step) = self.lines(cx, input, out);
        let ended = out.take_end();
        let next = match step {
            Step::Waits(Next::Flush) if ended => Next::Yield,
            Step::Waits(next) => next,
            Step::In(standing) => {
                self.standing = Some(standing);
                Next::Yield
            }
        };
        Progress { consumed, next }
    }

    fn is_idle(&self) -> bool {
        !self.awaits_rest()
    }

    fn awaits_rest(&self) -> bool {
        self.skips > 0
    }

    fn input_bytes(&self) -> u64 {
        u64::from(self.awaits_rest())
    }

    fn unauthenticated_since(&self) -> Option<Millis> {
        self.unauthenticated.as_ref().map(UnauthenticatedClient::since)
    }

    /// Returns false: it has no user.
    fn has_lost_user(&self, _users: &Users) -> bool {
        false
    }

    /// Returns `None`: a login that is over is `Closed` instead.
    fn ending(&self) -> Option<Ending> {
        None
    }

    /// Returns whether there are too many unauthenticated clients.
    fn is_turned_away(&self) -> bool {
        self.unauthenticated.is_none()
    }
}

/// Goes on behind so many bytes, after an error that leaves it unsure where the next request begins.
///
/// # Errors
/// Framing is strict: the connection is closed.
fn after_unsure(cx: &Context<'_, '_>, taken: usize) -> Result<usize, (usize, Step)> {
    if cx.shared.settings.strict_framing { Err((taken, Step::Waits(Next::Close))) } else { Ok(taken) }
}

/// The bytes of the block that a login announces; `None` if the line is no login.
fn announced(line: &[u8]) -> Option<u32> {
    let mut tokens = Tokens::new(line);
    if tokens.next()? != b"set" {
        return None;
    }
    let bytes = tokens.nth(3)?;
    let is_number = bytes.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(bytes).ok().filter(|_| is_number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_said_by_a_set_of_any_key() {
        for line in
            ["set k 0 0 7", "set k a b 7", "set  k  0 0 07  ", "set k 0 0 7 noreply", "set k 0 0 7 a b c d"]
        {
            assert_eq!(announced(line.as_bytes()), Some(7), "{line}");
        }
        for line in
            ["", "set", "set k 0 0", "set k 0 0 -7", "set k 0 0 +7", "set k 0 0 7x", "add k 0 0 7", "get k"]
        {
            assert_eq!(announced(line.as_bytes()), None, "{line}");
        }
        assert_eq!(announced(b"set k 0 0 4294967295"), Some(u32::MAX));
        assert_eq!(announced(b"set k 0 0 4294967296"), None);
    }
}
