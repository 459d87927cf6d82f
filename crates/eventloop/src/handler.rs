//! The other side of the loop: what bytes mean and where they go.

use std::io;

use crate::{Id, Millis, Stream};

/// What a connection waits for after its bytes were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More bytes.
    Receive,
    /// Room for replies: there are bytes it could take once those it has left are out.
    Again,
    /// Its next turn: others are to have their share first.
    Yield,
    /// The end: send the replies, then close.
    Close,
}

/// What [`Handler::received`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of the input that are done with. The others are kept and come again, in front of what
    /// is received next.
    pub bytes: usize,
    /// What the connection waits for.
    pub next: Next,
}

/// A place of the handler's own for bytes to come.
#[derive(Debug)]
pub struct Place<'p> {
    /// Where they go; not empty.
    pub bytes: &'p mut [u8],
    /// When it is full, what follows belongs to the receive buffer again (and is received by the
    /// same system call). False: another place follows.
    pub last: bool,
}

/// What [`Handler::send`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes the stream took.
    pub bytes: u64,
    /// Bytes still to be sent.
    pub unsent: u64,
}

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The handler asked for it.
    Handler,
    /// The peer has ended its stream.
    Peer,
    /// The peer has reset the connection, or it failed otherwise.
    Error,
    /// Nothing was received for the idle timeout.
    Idle,
    /// Replies were waiting, and the peer took none of them for the stall timeout.
    Stalled,
    /// The receive buffer is full of bytes of which the handler takes none.
    Input,
    /// The loop was drained.
    Drained,
}

/// Owns the meaning of the bytes. One for all connections of a loop; called by the loop's thread.
pub trait Handler {
    /// What it keeps per connection. Small: an idle connection costs little more than this.
    type Connection;

    /// The loop woke up. Called once per wake-up, before anything else of it.
    fn woke(&mut self, now: Millis);

    /// `input` has come: what was kept of earlier bytes, and new ones behind. Replies are kept by
    /// the handler until [`Handler::send`].
    fn received(&mut self, connection: &mut Self::Connection, input: &[u8]) -> Taken;

    /// Where the connection's next bytes should go directly, in place of the receive buffer; only
    /// asked when none are kept. `None` (the usual) is the receive buffer.
    fn destination<'d>(&'d mut self, connection: &'d mut Self::Connection) -> Option<Place<'d>> {
        let _ = connection;
        None
    }

    /// `bytes` bytes have come into the start of [`Handler::destination`]. When that leaves no
    /// destination, [`Handler::received`] is called next, with what came behind or with nothing.
    fn filled(&mut self, connection: &mut Self::Connection, bytes: usize) -> Next {
        let _ = (connection, bytes);
        Next::Receive
    }

    /// Sends the connection's replies by one call of `stream`, none if there are none, and keeps
    /// what does not fit (also after `WouldBlock`).
    ///
    /// # Errors
    /// What the stream said, other than `WouldBlock`; the connection is closed.
    fn send<S: Stream>(&mut self, connection: &mut Self::Connection, stream: &mut S) -> io::Result<Sent>;

    /// The connection has ended and is forgotten.
    fn closed(&mut self, id: Id, connection: Self::Connection, why: Closed);
}
