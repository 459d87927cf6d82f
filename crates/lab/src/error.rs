//! Errors that end a run.

use std::fmt;
use std::io;

/// Why a run has no result.
#[derive(Debug)]
pub enum Error {
    /// The server cannot be reached.
    Connect(String, io::Error),
    /// The server closed a connection in the middle of a run.
    Closed,
    /// No bytes came for [`crate::generator::STALL`].
    Stalled {
        /// Bytes of replies that were expected and did not come, over all connections.
        missing_bytes: usize,
    },
    /// The server's reply does not fit the request; the text shows it.
    Reply(String),
    /// A server program could not be started, or does not work as it should.
    Peer(String),
    /// The command line cannot be carried out.
    Usage(String),
    /// The measured server holds data, and would be written to.
    NotEmpty(String),
    /// A check of the run failed: its output is not a result.
    NotValid(String),
    /// The run is valid, and this many figures miss their targets.
    Missed(usize),
    /// A file of results cannot be read or written.
    File(std::path::PathBuf, String),
    /// A call of the system failed.
    System(&'static str, io::Error),
    /// An error, and where it happened.
    In(String, Box<Error>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Connect(whom, error) => write!(f, "cannot connect to {whom}: {error}"),
            Error::Closed => write!(f, "the server closed a connection in the middle of the run"),
            Error::Stalled { missing_bytes } => {
                write!(f, "no reply for {} s, {missing_bytes} bytes short", crate::generator::STALL.as_secs())
            }
            Error::Reply(what) => write!(f, "{what}"),
            Error::Peer(what) | Error::NotEmpty(what) | Error::Usage(what) => write!(f, "{what}"),
            Error::NotValid(why) => write!(f, "result not valid: {why}"),
            Error::Missed(count) => write!(f, "{count} target(s) missed"),
            Error::File(path, why) => write!(f, "{}: {why}", path.display()),
            Error::System(what, error) => write!(f, "{what}: {error}"),
            Error::In(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

/// The part of `bytes` that a message shows.
fn excerpt(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(64)].escape_ascii().to_string()
}

impl Error {
    /// The error for `bytes` that are no reply to the request.
    #[cold]
    pub(crate) fn malformed(bytes: &[u8]) -> Error {
        Error::Reply(format!("no reply to the request: \"{}\"", excerpt(bytes)))
    }

    /// The error for `bytes` that are longer than any reply and still not one.
    #[cold]
    pub(crate) fn endless(bytes_max: usize, bytes: &[u8]) -> Error {
        Error::Reply(format!("a reply of more than {bytes_max} bytes: \"{}\"", excerpt(bytes)))
    }

    /// The error for `bytes` that came behind the last reply.
    #[cold]
    pub(crate) fn surplus(bytes: &[u8]) -> Error {
        Error::Reply(format!("more bytes than the replies have: \"{}\"", excerpt(bytes)))
    }

    /// Adds the place to an error, if the error itself names no server.
    pub(crate) fn within(self, what: impl FnOnce() -> String) -> Error {
        match self {
            Error::Closed
            | Error::Connect(..)
            | Error::Stalled { .. }
            | Error::Reply(_)
            | Error::System(..) => Error::In(what(), Box::new(self)),
            Error::Usage(_)
            | Error::NotEmpty(_)
            | Error::Peer(_)
            | Error::NotValid(_)
            | Error::Missed(_)
            | Error::File(..)
            | Error::In(..) => self,
        }
    }

    /// The error of a send or receive on a load's connection.
    pub(crate) fn lost(error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Error::Closed,
            _ => Error::System("a connection", error),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Connect(_, error) | Error::System(_, error) => Some(error),
            Error::In(_, error) => Some(error),
            Error::Closed
            | Error::Stalled { .. }
            | Error::Reply(_)
            | Error::Peer(_)
            | Error::Usage(_)
            | Error::NotEmpty(_)
            | Error::NotValid(_)
            | Error::File(..)
            | Error::Missed(_) => None,
        }
    }
}
