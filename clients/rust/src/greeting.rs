//! The greeting of a connection, before its first request: authentication, and which dialect the server speaks. No I/O.
//!
//! ```text
//! [set auth ──► STORED] ──► [version ──► VERSION …] ──► [mn ──► MN]
//! ```
//!
//! User and password are sent if there are some. `version` is sent unless the configuration says that the server speaks meta
//! text. `mn` checks meta text, since a server may report any version.

use crate::config::Config;
use crate::error::{Error, Reason};
use larder_protocol::client::Dialect;
use std::borrow::Cow;
use std::sync::Arc;

/// The oldest server that speaks meta text as it is today.
const META_SINCE: [u32; 3] = [1, 6, 10];

const ODD: Reason = Reason::said("it does not greet as a cache does");

/// The answer that is awaited.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Auth,
    Version,
    Barrier,
}

/// The greeting of one connection.
#[derive(Debug)]
pub struct Greeting {
    protocol: Option<Dialect>,
    stage: Stage,
}

/// The next step of a greeting.
#[derive(Debug)]
pub enum GreetingStep {
    /// Send this; the answer is a line.
    Say(Cow<'static, [u8]>),
    /// The greeting is over, and this dialect is spoken.
    Speaks(Dialect),
}

impl Greeting {
    /// A greeting, and the first bytes to send.
    pub fn new(config: &Config) -> (Greeting, Cow<'static, [u8]>) {
        let mut greeting = Greeting { protocol: config.protocol, stage: Stage::Auth };
        let first = match &config.auth {
            Some((user, password)) => {
                let value = format!("{user} {password}");
                format!("set auth 0 0 {}\r\n{value}\r\n", value.len()).into_bytes().into()
            }
            None => greeting.ask(),
        };
        (greeting, first)
    }

    fn ask(&mut self) -> Cow<'static, [u8]> {
        let (stage, text) = match self.protocol {
            Some(Dialect::Meta) => (Stage::Barrier, b"mn\r\n".as_slice()),
            Some(Dialect::Classic) | None => (Stage::Version, b"version\r\n".as_slice()),
        };
        self.stage = stage;
        text.into()
    }

    /// Takes the answer: a line with its end, and nothing behind it.
    ///
    /// # Errors
    /// [`Error::Auth`]; [`Error::Down`] if a cache would not answer so.
    pub fn heard(&mut self, server: &Arc<str>, line: &[u8]) -> Result<GreetingStep, Error> {
        let odd = || Error::Down(Arc::clone(server), ODD);
        if line.iter().position(|&byte| byte == b'\n') != line.len().checked_sub(1) {
            return Err(odd());
        }
        match self.stage {
            Stage::Auth if line == b"STORED\r\n" => Ok(GreetingStep::Say(self.ask())),
            Stage::Auth => Err(Error::Auth(Arc::clone(server))),
            Stage::Version | Stage::Barrier if line.starts_with(b"CLIENT_ERROR unauthenticated") => {
                Err(Error::Auth(Arc::clone(server)))
            }
            Stage::Version => {
                let version = line.strip_prefix(b"VERSION ").ok_or_else(odd)?;
                if self.protocol.is_some() || !is_since(version, META_SINCE) {
                    return Ok(GreetingStep::Speaks(Dialect::Classic));
                }
                self.stage = Stage::Barrier;
                Ok(GreetingStep::Say(b"mn\r\n".as_slice().into()))
            }
            Stage::Barrier if line == b"MN\r\n" => Ok(GreetingStep::Speaks(Dialect::Meta)),
            Stage::Barrier => Err(odd()),
        }
    }
}

/// "1.6.45…" is this version or a later one.
fn is_since(version: &[u8], since: [u32; 3]) -> bool {
    let number = |digits: &[u8]| {
        digits.iter().fold(0_u32, |n, digit| n.saturating_mul(10).saturating_add(u32::from(digit - b'0')))
    };
    let mut parts = version.split(|byte| !byte.is_ascii_digit()).map(number);
    let version: [u32; 3] = std::array::from_fn(|_| parts.next().unwrap_or(0));
    version >= since
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_part_by_part() {
        for (text, meta) in [
            ("1.6.10\r\n", true),
            ("1.6.45-larder-0.1\r\n", true),
            ("1.6.9\r\n", false),
            ("1.5.22\r\n", false),
            ("2.0\r\n", true),
            ("1.6.21_6-gd0a2d4b\r\n", true),
            ("99999999999.1\r\n", true),
            ("unknown\r\n", false),
        ] {
            assert_eq!(is_since(text.as_bytes(), META_SINCE), meta, "{text:?}");
        }
    }
}
