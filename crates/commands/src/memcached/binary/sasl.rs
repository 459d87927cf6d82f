//! How clients of the binary protocol log in: SASL's mechanism PLAIN (RFC 4616), with the users of every protocol.
//!
//! | frame | reply |
//! |---|---|
//! | list mechs | `PLAIN` |
//! | auth `PLAIN`, with `[user]\0user\0password` | `Authenticated`, or status 0x20; a later try waits (`core/guesses.rs`) |
//! | auth `PLAIN` without a value | status 0x21; the value comes with a step |
//! | a step before that; another mechanism | status 0x20 |
//! | a mechanism of more than 32 bytes | status 4 |
//! | a value of more than 32 KiB | status 0x20; it is passed over |
//! | the version | as ever |
//! | anything else, of a client that must log in | status 0x20, and the connection is closed |
//!
//! Where no password is asked for, and the default user may do everything, the three opcodes are unknown. After a try that fails
//! the client is the user that it was before.

use larder_protocol::binary::{Frame, Request, Status};
use larder_store::Millis;

use crate::core::access::{SECRET_BYTES_MAX, Standing};
use crate::core::context::Context;
use crate::core::output::Output;
use crate::core::progress::Next;
use crate::core::tries::Tries;
use crate::core::unauthenticated::UnauthenticatedClient;
use crate::memcached::frames::{put_status, put_text};
use crate::memcached::rules::note_login;

/// The one mechanism.
const PLAIN: &[u8] = b"PLAIN";
/// Most bytes of a mechanism's name.
const MECHANISM_BYTES_MAX: usize = 32;
/// Most bytes of a value: a user, which may be named twice, and a password of the longest; together no more than is kept of a
/// request.
pub(super) const SASL_BYTES_MAX: usize = 2 * SECRET_BYTES_MAX;
/// Opcodes that a client may send which must log in: 0x0b, and 0x20 to 0x22.
const VERSION: u8 = 0x0b;
const SASL_LIST: u8 = 0x20;
const SASL_STEP: u8 = 0x22;

/// Returns whether a client that must log in may send this opcode.
pub(super) fn is_for_unauthenticated(code: u8) -> bool {
    code == VERSION || (SASL_LIST..=SASL_STEP).contains(&code)
}

/// Whether the client has logged in.
#[derive(Debug, Default)]
pub(super) struct Sasl {
    /// Its place among the unauthenticated clients, while it must log in and has not.
    unauthenticated: Option<UnauthenticatedClient>,
    /// Its user; `None`: it has not logged in, or its user does not matter, since it need not.
    standing: Option<Standing>,
    tries: Tries,
    /// Whether PLAIN was begun without a value.
    begun: bool,
}

impl Sasl {
    /// The state of a client that must log in.
    pub fn of_unauthenticated(unauthenticated: UnauthenticatedClient) -> Sasl {
        Sasl { unauthenticated: Some(unauthenticated), ..Sasl::default() }
    }

    /// The state of a client that need not log in.
    pub fn unasked(cx: &Context<'_, '_>) -> Sasl {
        let standing = cx.shared.settings.text_auth.then(|| Standing::unasked(&cx.shared.access));
        Sasl { standing, ..Sasl::default() }
    }

    /// Takes the client's user out, to be looked up again where users were changed.
    pub fn take_standing(&mut self) -> Option<Standing> {
        self.standing.take()
    }

    /// The client's user, whose rules its requests are checked against.
    pub fn standing(&self) -> Option<&Standing> {
        self.standing.as_ref()
    }

    pub fn set_standing(&mut self, standing: Option<Standing>) {
        self.standing = standing;
    }

    /// Returns whether the client has logged in, or need not.
    #[inline]
    pub fn is_admitted(&mut self, cx: &Context<'_, '_>) -> bool {
        if self.unauthenticated.is_some() && !cx.shared.access.asks() {
            // The password was taken away since.
            *self = Sasl::unasked(cx);
        }
        self.unauthenticated.is_none()
    }

    /// When the client became unauthenticated; `None`: it has logged in, or need not.
    pub fn since(&self) -> Option<Millis> {
        self.unauthenticated.as_ref().map(UnauthenticatedClient::since)
    }

    /// Takes a frame. If its login must wait, returns for how long: then the frame is to be presented again.
    pub fn take(
        &mut self,
        cx: &Context<'_, '_>,
        out: &mut Output,
        frame: &Frame<'_>,
        value: &[u8],
    ) -> Option<Next> {
        let head = frame.head;
        if !cx.shared.access.asks() && !cx.shared.access.restricts() {
            put_status(out, head, Status::Unknown);
            return None;
        }
        let step = match frame.request {
            Request::Sasl { step } => step,
            _ => {
                put_text(out, head, Status::Ok, "PLAIN");
                return None;
            }
        };
        if frame.key.len() > MECHANISM_BYTES_MAX {
            put_status(out, head, Status::Invalid);
            return None;
        }
        let is_known = frame.key.eq_ignore_ascii_case(PLAIN);
        if is_known && !step && value.is_empty() {
            self.begun = true;
            put_status(out, head, Status::AuthContinue);
            return None;
        }
        if let Some(ms) = self.tries.wait_ms(cx) {
            return Some(Next::Sleep(ms));
        }
        let begun = std::mem::take(&mut self.begun);
        let pair = plain(value).filter(|_| is_known && (begun || !step));
        let found = pair.and_then(|(user, password)| {
            cx.spend(out, cx.shared.access.look_ns(value.len()));
            cx.shared.access.log_in(user, password)
        });
        self.tries.record_attempt(cx, found.is_some());
        if let Some((user, epoch)) = found {
            let mut standing = Standing::unasked(&cx.shared.access);
            standing.admit(user, epoch);
            self.standing = Some(standing);
            self.unauthenticated = None;
            put_text(out, head, Status::Ok, "Authenticated");
        } else {
            note_login(cx, out, "sasl", pair.map_or(b"", |(user, _)| user));
            put_status(out, head, Status::Auth);
        }
        None
    }
}

/// User and password of a value; `None` if it is not of this form, or names another user to act for.
fn plain(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = value.splitn(3, |&byte| byte == 0);
    let (acts_for, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    (acts_for.is_empty() || acts_for == user).then_some((user, password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_says_its_own_name_and_password() {
        let pair = Some((&b"app"[..], &b"secret"[..]));
        assert_eq!(plain(b"\0app\0secret"), pair);
        assert_eq!(plain(b"app\0app\0secret"), pair);
        assert_eq!(plain(b"\0app\0a\0b"), Some((&b"app"[..], &b"a\0b"[..])));
        assert_eq!(plain(b"\0\0"), Some((&b""[..], &b""[..])));
        for bad in [&b""[..], b"app", b"app\0secret", b"other\0app\0secret", b"\0"] {
            assert_eq!(plain(bad), None);
        }
    }

    #[test]
    fn unauthenticated_clients_may_ask_for_the_version_and_log_in() {
        let codes: Vec<u8> = (0..=u8::MAX).filter(|&code| is_for_unauthenticated(code)).collect();
        assert_eq!(codes, [0x0b, 0x20, 0x21, 0x22]);
    }
}
