//! Errors, by whose fault they are, and what is known about the request.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;

/// What is known about a request that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has answered. The result says what it did.
    Answered,
    /// Nothing was sent, so nothing was applied.
    NotSent,
    /// The request was on its way, and no answer came: it may have been applied.
    Unknown,
}

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None: the server answered that a condition does not hold.
    Answer,
    /// The caller's.
    Caller,
    /// The server's.
    Server,
    /// The network's.
    Network,
}

/// Why there is no connection, or why it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    text: Cow<'static, str>,
    os_error: Option<i32>,
}

impl Reason {
    /// A reason that is not an error of the system.
    pub(crate) const fn said(text: &'static str) -> Reason {
        Reason { text: Cow::Borrowed(text), os_error: None }
    }

    /// The system's error number, if the reason is an error of the system.
    pub fn os_error(&self) -> Option<i32> {
        self.os_error
    }
}

impl From<io::Error> for Reason {
    fn from(error: io::Error) -> Reason {
        Reason { os_error: error.raw_os_error(), text: Cow::Owned(error.to_string()) }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// There is no such item to replace, append to, or compare with.
    Absent,
    /// The item has another token than expected.
    Conflict,
    /// There is such an item, and the request was an add; or there is none, and it was a replace or append.
    NotStored,

    /// A key has 1 to 250 bytes, none of them a space or a control character.
    BadKey,
    /// The value is too large for the server. A set that is too large deletes the value that was there.
    TooLarge,
    /// The value is not a number.
    NotNumber,
    /// The server did not accept user and password, or requires them.
    Auth(Arc<str>),
    /// The server speaks classic text only, which cannot express this request.
    Unsupported,
    /// The client was closed, before the call or while it was under way.
    Closed(Outcome),
    /// The configuration cannot be used.
    Config(String),
    /// The caller's reader or writer failed: the value to store could not be read, or the received value could not be written. A
    /// value that could not be read to its end is not stored.
    Local(Reason),

    /// The server is out of memory.
    ServerMemory(Arc<str>),
    /// The server refused the request, with its line.
    Server(Arc<str>, String),
    /// The server's reply is not understood. The connection was given up.
    Protocol(Arc<str>, String, Outcome),

    /// No answer came in time.
    Timeout(Arc<str>, Outcome),
    /// The server could not be reached, now or a moment ago, and nothing was sent.
    Down(Arc<str>, Reason),
    /// The connection ended before the answer came.
    Lost(Arc<str>, Reason, Outcome),
}

impl Error {
    /// Whose fault the error is.
    pub fn fault(&self) -> Fault {
        match self {
            Error::Absent | Error::Conflict | Error::NotStored => Fault::Answer,
            Error::BadKey
            | Error::TooLarge
            | Error::NotNumber
            | Error::Auth(_)
            | Error::Unsupported
            | Error::Closed(_)
            | Error::Config(_)
            | Error::Local(_) => Fault::Caller,
            Error::ServerMemory(_) | Error::Server(..) | Error::Protocol(..) => Fault::Server,
            Error::Timeout(..) | Error::Down(..) | Error::Lost(..) => Fault::Network,
        }
    }

    /// Whether the request may have been applied.
    pub fn outcome(&self) -> Outcome {
        match self {
            Error::Timeout(_, outcome)
            | Error::Lost(_, _, outcome)
            | Error::Protocol(_, _, outcome)
            | Error::Closed(outcome) => *outcome,
            Error::BadKey
            | Error::Auth(_)
            | Error::Unsupported
            | Error::Config(_)
            | Error::Local(_)
            | Error::Down(..) => Outcome::NotSent,
            Error::Absent
            | Error::Conflict
            | Error::NotStored
            | Error::TooLarge
            | Error::NotNumber
            | Error::ServerMemory(_)
            | Error::Server(..) => Outcome::Answered,
        }
    }

    /// The name of the server that the error is about, if it is about one.
    pub fn server(&self) -> Option<&str> {
        match self {
            Error::Auth(server)
            | Error::ServerMemory(server)
            | Error::Server(server, _)
            | Error::Protocol(server, ..)
            | Error::Timeout(server, _)
            | Error::Down(server, _)
            | Error::Lost(server, ..) => Some(server),
            Error::Absent
            | Error::Conflict
            | Error::NotStored
            | Error::BadKey
            | Error::TooLarge
            | Error::NotNumber
            | Error::Unsupported
            | Error::Closed(_)
            | Error::Config(_)
            | Error::Local(_) => None,
        }
    }

    /// The system's error number of what ended a connection, or prevented it, if there is one.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Error::Local(reason) | Error::Down(_, reason) | Error::Lost(_, reason, _) => reason.os_error,
            _ => None,
        }
    }

    /// The same error for another request, of which `outcome` is known.
    pub(crate) fn with(&self, outcome: Outcome) -> Error {
        match self.clone() {
            Error::Timeout(server, _) => Error::Timeout(server, outcome),
            Error::Lost(server, reason, _) => Error::Lost(server, reason, outcome),
            Error::Protocol(server, why, _) => Error::Protocol(server, why, outcome),
            Error::Closed(_) => Error::Closed(outcome),
            other => other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Absent => f.write_str("no such key"),
            Error::Conflict => f.write_str("the item has changed since it was read"),
            Error::NotStored => f.write_str("not stored"),
            Error::BadKey => {
                f.write_str("a key has 1 to 250 bytes, none of them a space or a control character")
            }
            Error::TooLarge => f.write_str("the value is too large for the server"),
            Error::NotNumber => f.write_str("the value is not a number"),
            Error::Auth(server) => write!(f, "{server} does not accept user and password"),
            Error::Unsupported => f.write_str("the server speaks classic text only, which cannot say this"),
            Error::Closed(_) => f.write_str("the client is closed"),
            Error::Config(why) => write!(f, "configuration: {why}"),
            Error::Local(why) => write!(f, "the caller's own reader or writer: {why}"),
            Error::ServerMemory(server) => write!(f, "{server} is out of memory"),
            Error::Server(server, line) => write!(f, "{server} refused the request: {line}"),
            Error::Protocol(server, what, _) => write!(f, "the reply of {server} is not understood: {what}"),
            Error::Timeout(server, _) => write!(f, "no answer of {server} in time"),
            Error::Down(server, reason) => write!(f, "{server} is down: {reason}"),
            Error::Lost(server, reason, _) => write!(f, "the connection to {server} was lost: {reason}"),
        }?;
        if self.outcome() == Outcome::Unknown { f.write_str(" (may have been applied)") } else { Ok(()) }
    }
}

impl std::error::Error for Error {}
