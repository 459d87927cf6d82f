//! Failed calls: a status by fault, what is known of the request, and a message.

use crate::shapes::{self, Status};
use larder_client::{Error, Outcome};
use std::borrow::Cow;

/// Why a call failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// An error of the Rust client.
    Client(Error),
    /// An argument is invalid.
    Argument(Cow<'static, str>),
    /// A time below 0.
    BadTtl,
    /// There is no room now.
    Full,
    /// A panic, with its message.
    Bug(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Client(error)
    }
}

/// The failure of an invalid argument.
pub fn wrong<T>(what: &'static str) -> Result<T, Failure> {
    Err(Failure::Argument(Cow::Borrowed(what)))
}

impl Failure {
    /// Its status.
    pub fn status(&self) -> Status {
        match self {
            Failure::Argument(_) => Status::BAD_ARGUMENT,
            Failure::BadTtl => Status::BAD_TTL,
            Failure::Full => Status::WOULD_BLOCK,
            Failure::Bug(_) => Status::BUG,
            Failure::Client(error) => match error {
                Error::Absent => Status::MISS,
                Error::Conflict => Status::CONFLICT,
                Error::NotStored => Status::NOT_STORED,
                Error::BadKey => Status::BAD_KEY,
                Error::TooLarge => Status::TOO_LARGE,
                Error::NotNumber => Status::NOT_NUMBER,
                Error::Auth(_) => Status::AUTH,
                Error::Unsupported => Status::UNSUPPORTED,
                Error::Closed(_) => Status::CLOSED,
                // C code passes no readers or writers, so these errors are about its arguments.
                Error::Config(_) | Error::Local(_) => Status::BAD_ARGUMENT,
                Error::ServerMemory(_) => Status::SERVER_MEMORY,
                Error::Server(..) => Status::SERVER,
                Error::Protocol(..) => Status::PROTOCOL,
                Error::Timeout(..) => Status::TIMEOUT,
                Error::Down(..) => Status::DOWN,
                Error::Lost(..) => Status::LOST,
                // The enum may grow; a test checks that all present variants are handled.
                _ => Status::BUG,
            },
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Failure::Client(error) => error.outcome(),
            Failure::Argument(_) | Failure::BadTtl | Failure::Full => Outcome::NotSent,
            Failure::Bug(_) => Outcome::Unknown,
        }
    }

    /// The failure as a `larder_error`, whose size the caller sets.
    pub fn told(&self) -> shapes::Error {
        let (server, os_error, words): (_, _, Cow<'_, str>) = match self {
            Failure::Client(error) => {
                (error.server().unwrap_or_default(), error.os_error(), error.to_string().into())
            }
            Failure::Argument(what) => ("", None, what.as_ref().into()),
            Failure::BadTtl => ("", None, "a time that cannot be".into()),
            Failure::Full => ("", None, "no more may be under way".into()),
            Failure::Bug(what) => ("", None, what.as_str().into()),
        };
        let mut told = shapes::Error {
            status: self.status(),
            outcome: outcome_number(self.outcome()),
            os_error: os_error.unwrap_or(0),
            ..well(Status::OK)
        };
        put_text(&mut told.server, server);
        put_text(&mut told.message, &words);
        told
    }
}

/// The `larder_error` of a call that did not fail.
pub fn well(status: Status) -> shapes::Error {
    shapes::Error {
        size: 0,
        status,
        outcome: outcome_number(Outcome::Answered),
        os_error: 0,
        server: [0; 64],
        message: [0; 128],
    }
}

fn outcome_number(outcome: Outcome) -> u32 {
    match outcome {
        Outcome::NotSent => 0,
        Outcome::Unknown => 1,
        Outcome::Answered => 2,
    }
}

/// Copies as many whole characters as fit in front of a 0.
fn put_text(room: &mut [u8], text: &str) {
    let mut bytes = text.len().min(room.len() - 1);
    while !text.is_char_boundary(bytes) {
        bytes -= 1;
    }
    room[..bytes].copy_from_slice(&text.as_bytes()[..bytes]);
    room[bytes] = 0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn each_error_has_a_status_that_says_whose_fault_it_is() {
        let server: Arc<str> = "s".into();
        let text = || "text".to_owned();
        for (error, status) in [
            (Error::Absent, 1),
            (Error::Conflict, 2),
            (Error::NotStored, 3),
            (Error::BadKey, 16),
            (Error::TooLarge, 17),
            (Error::NotNumber, 19),
            (Error::Closed(Outcome::NotSent), 20),
            (Error::Config(text()), 21),
            (Error::Auth(Arc::clone(&server)), 22),
            (Error::Unsupported, 23),
            (Error::ServerMemory(Arc::clone(&server)), 32),
            (Error::Server(Arc::clone(&server), text()), 33),
            (Error::Protocol(Arc::clone(&server), text(), Outcome::Unknown), 34),
            (Error::Timeout(Arc::clone(&server), Outcome::Unknown), 48),
            (Error::Down(Arc::clone(&server), std::io::Error::other("x").into()), 49),
            (Error::Lost(server, std::io::Error::from_raw_os_error(104).into(), Outcome::NotSent), 50),
        ] {
            let os_error = error.os_error().unwrap_or(0);
            let group = match error.fault() {
                larder_client::Fault::Answer => 0,
                larder_client::Fault::Caller => 1,
                larder_client::Fault::Server => 2,
                larder_client::Fault::Network => 3,
            };
            let told = Failure::from(error).told();
            assert_eq!((told.status.0, told.status.0 / 16, told.os_error), (status, group, os_error));
            assert_ne!(told.status.text(), c"unknown status");
        }
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut room = [1; 4];
        put_text(&mut room, "aüü");
        assert_eq!(&room[..4], [b'a', 0xc3, 0xbc, 0]);
        put_text(&mut room, "abü");
        assert_eq!(&room[..3], b"ab\0");
        put_text(&mut room, "");
        assert_eq!(room[0], 0);
    }
}
