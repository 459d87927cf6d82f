//! What a server says of itself: `stats`, whose answer has as many lines as it likes.

use super::Direct;
use crate::client::Client;
use crate::error::{Error, Outcome};
use crate::fleet::Front;
use crate::lane::CLOSED;
use crate::socket::{Moved, lost};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of an answer at most: what a server says of itself is far less.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// What is received at once.
const PIECE_BYTES: usize = 16 << 10;

/// What a line of an answer is.
#[derive(Debug, PartialEq, Eq)]
enum Said<'l> {
    /// A name and its value.
    Figure(&'l str, &'l str),
    /// The answer is whole.
    End,
    /// The server has no such group, or may not tell it.
    Refused,
    /// None of what may stand there.
    Strange,
}

impl Said<'_> {
    fn of(line: &str) -> Said<'_> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("STAT", figure) => {
                let (name, value) = figure.split_once(' ').unwrap_or((figure, ""));
                Said::Figure(name, value)
            }
            // The latter two behind what resets something.
            ("END" | "RESET" | "OK", "") => Said::End,
            ("ERROR" | "CLIENT_ERROR" | "SERVER_ERROR", _) => Said::Refused,
            _ => Said::Strange,
        }
    }
}

impl Direct {
    /// Asks, and reads lines until one ends the answer.
    fn stats(
        &mut self,
        server: &Arc<str>,
        question: &[u8],
        stall: Duration,
        until: Instant,
    ) -> Result<Vec<(String, String)>, Error> {
        let unknown = |error: Error| error.with(Outcome::Unknown);
        self.send(server, question, stall).map_err(unknown)?;
        let (mut answer, mut read, mut found) = (Vec::new(), 0, Vec::new());
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match self.socket.receive(&mut piece) {
                Moved::Bytes(0) => return Err(unknown(lost(server, CLOSED))),
                Moved::Failed(why) => return Err(unknown(lost(server, why))),
                Moved::Nothing => {}
                Moved::Bytes(bytes) => answer.extend_from_slice(&piece[..bytes]),
            }
            while let Some(bytes) = answer[read..].iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&answer[read..read + bytes]);
                let line = line.trim_end_matches('\r');
                match Said::of(line) {
                    Said::Figure(name, value) => found.push((name.to_owned(), value.to_owned())),
                    Said::End => return Ok(found),
                    Said::Refused => return Err(Error::Server(Arc::clone(server), line.to_owned())),
                    Said::Strange => {
                        let why = line.chars().take(100).collect();
                        return Err(Error::Protocol(Arc::clone(server), why, Outcome::Unknown));
                    }
                }
                read += bytes + 1;
            }
            if answer.len() > ANSWER_BYTES_MAX {
                let why = "what it says of itself does not end".to_owned();
                return Err(Error::Protocol(Arc::clone(server), why, Outcome::Unknown));
            }
            if Instant::now() >= until {
                return Err(Error::Timeout(Arc::clone(server), Outcome::Unknown));
            }
        }
    }
}

impl Client {
    /// What one of [`Client::servers`] says of itself, names and values as it says them: `stats`, with the name of a group behind
    /// it, as `items` or `settings`, or with nothing. It is asked on a connection that this call has for itself, within
    /// [`crate::Builder::timeout`].
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::BadKey`] where `what` has a control character; [`Error::Server`] where the server has no such
    /// group.
    ///
    /// # Panics
    /// If there are fewer servers.
    pub fn stats(&self, server: usize, what: &str) -> Result<Vec<(String, String)>, Error> {
        if what.contains(|letter: char| letter.is_ascii_control()) {
            return Err(Error::BadKey);
        }
        let question = format!("stats {what}").trim_end().to_owned() + "\r\n";
        let (fleet, deadline) = (self.fleet(), self.deadline());
        let (list, stall) = (fleet.list(), fleet.config.stall_timeout);
        let server = &list.all()[..list.len()][server];
        let ask = |direct: &mut Direct| direct.stats(&server.name, question.as_bytes(), stall, deadline);
        fleet.alone(server, deadline, ask)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_figures_an_end_or_a_refusal() {
        for (line, said) in [
            ("STAT pid 7", Said::Figure("pid", "7")),
            ("STAT version 1.6.45 larder", Said::Figure("version", "1.6.45 larder")),
            ("STAT items:1:number 0", Said::Figure("items:1:number", "0")),
            ("STAT auth_enabled_ascii ", Said::Figure("auth_enabled_ascii", "")),
            ("STAT empty", Said::Figure("empty", "")),
            ("END", Said::End),
            ("RESET", Said::End),
            ("ERROR", Said::Refused),
            ("CLIENT_ERROR bad command line format", Said::Refused),
            ("SERVER_ERROR out of memory", Said::Refused),
            ("", Said::Strange),
            ("END 1", Said::Strange),
            ("STATS pid 7", Said::Strange),
            ("VALUE k 0 1", Said::Strange),
        ] {
            assert_eq!(Said::of(line), said, "{line:?}");
        }
    }
}
