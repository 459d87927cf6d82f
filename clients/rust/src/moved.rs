//! What became of bytes that were to be moved, by a socket or by TLS above one.

use crate::error::Reason;

/// The result of a system call.
#[derive(Debug)]
pub enum Moved {
    /// This many bytes; 0 at the peer's end.
    Bytes(usize),
    /// Nothing can be moved now, or nothing came in time.
    Nothing,
    /// The connection is over.
    Failed(Reason),
}
