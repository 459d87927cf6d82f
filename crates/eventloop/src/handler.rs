//! The other side of the loop: what bytes mean and where they go.

use std::io::{self, IoSlice, IoSliceMut};

use crate::{Between, Id, Millis, Stream};

/// What a connection waits for after its bytes were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// More bytes.
    Input,
    /// Room for replies: the handler could take more bytes once its replies are out.
    Room,
    /// Its next turn: other connections come first, also those whose bytes arrive only now.
    Turn,
    /// This many milliseconds to pass. The loop receives and takes nothing until then.
    Time(Millis),
    /// To be woken ([`crate::EventLoop::wake`]), or this many milliseconds to pass, if there is a number. The loop receives and
    /// takes nothing until then. If the peer ends its stream, the connection ends, unless [`Handler::must_end`] is true.
    Wake(Option<Millis>),
    /// Its end, once the replies are sent.
    End,
}

/// What [`Handler::received`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of the input that are finished. The loop keeps the others and passes them again, in front of what it receives next.
    pub bytes: usize,
    /// What the connection waits for.
    pub wait: Wait,
}

/// How a connection is read later ([`Handler::put_off`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutOff {
    /// After so many milliseconds the loop asks again.
    pub ms: Millis,
    /// Bytes that a value on its way in misses. They are received all the same, and two behind them, which end its request in
    /// most protocols; 0: there is no such value, and nothing is received.
    pub rest: u64,
}

/// Slices of one receive: as many as Linux takes without allocating a list for them.
const RECEIVE_SLICES_MAX: usize = 8;

/// The handler's own memory for the next bytes, in one or several slices.
#[derive(Debug)]
pub struct Destination<'p> {
    slices: [IoSliceMut<'p>; RECEIVE_SLICES_MAX],
    count: usize,
    bytes: usize,
    last: bool,
}

impl<'p> Destination<'p> {
    /// Takes the first of `slices`, as many as one receive fills. There must be at least one, and none may be empty. `missing`
    /// bytes in all belong to the handler's own memory. A destination with room for all of them is the last: what follows
    /// belongs to the receive buffer again, and the same system call receives it.
    pub fn new(slices: impl IntoIterator<Item = &'p mut [u8]>, missing: u64) -> Destination<'p> {
        let mut target = Destination {
            slices: std::array::from_fn(|_| IoSliceMut::new(&mut [])),
            count: 0,
            bytes: 0,
            last: false,
        };
        // One is for the receive buffer.
        for slice in slices.into_iter().take(RECEIVE_SLICES_MAX - 1) {
            debug_assert!(!slice.is_empty(), "a slice has room");
            target.bytes += slice.len();
            target.slices[target.count] = IoSliceMut::new(slice);
            target.count += 1;
        }
        debug_assert!(target.count > 0 && target.bytes as u64 <= missing, "it is for what is missing");
        target.last = target.bytes as u64 == missing;
        target
    }

    /// Bytes that the destination has room for.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// One receive into the destination and, if it is the last, into `rest` behind it.
    pub(crate) fn receive<S: Stream>(self, stream: &mut S, rest: &'p mut [u8]) -> io::Result<usize> {
        let Destination { mut slices, mut count, .. } = self;
        if self.last {
            slices[count] = IoSliceMut::new(rest);
            count += 1;
        }
        stream.recv_vectored(&mut slices[..count])
    }
}

/// A connection's replies, as its handler offers them ([`Handler::replies`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outgoing<'r> {
    /// There are none.
    None,
    /// They lie in one piece, which is not empty.
    Bytes(&'r [u8]),
    /// They lie in several pieces, which [`Handler::slices`] returns.
    Slices,
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
    /// A part of a request had arrived, and nothing more of it for the request timeout.
    Unfinished,
    /// The client did not authenticate, or its handshake did not finish, in time.
    Unauthenticated,
    /// Other connections need the memory that its replies hold.
    Shed,
    /// Other connections need the memory that its incomplete request holds.
    Crowded,
    /// The receive buffer is full of bytes, and the handler takes none of them.
    Input,
    /// The loop was drained.
    Drained,
}

/// Gives the bytes their meaning. One handler serves all connections of a loop, on the loop's thread.
pub trait Handler {
    /// The handler's state of one connection. It should be small: an idle connection costs little more than this.
    type Connection;

    /// The loop woke up at this time of its clock, in nanoseconds. Called once per wake-up, before any other method.
    fn woke(&mut self, now_ns: u64);

    /// Whether the connection is read later. `None`, the usual answer: it is received from now. Asked before each receive, but
    /// not in handshakes, nor while the loop drains. A part of a request that the loop keeps waits for its rest, and neither the
    /// idle timeout nor the request timeout counts that time.
    #[inline]
    fn put_off(&mut self, connection: &Self::Connection) -> Option<PutOff> {
        let _ = connection;
        None
    }

    /// Takes requests from `input`: kept bytes, and new ones behind them. The handler keeps the replies until [`Handler::sent`].
    fn received(&mut self, connection: &mut Self::Connection, input: &[u8]) -> Taken;

    /// Where the connection's next bytes go in place of the receive buffer. The loop asks only when it keeps none. `None`, the
    /// usual answer, is the receive buffer.
    fn destination<'d>(&'d mut self, connection: &'d mut Self::Connection) -> Option<Destination<'d>> {
        let _ = connection;
        None
    }

    /// `bytes` bytes have come into the start of [`Handler::destination`]. If no destination is left then, [`Handler::received`]
    /// is called next, with the bytes that followed or with none.
    fn filled(&mut self, connection: &mut Self::Connection, bytes: usize) -> Wait {
        let _ = (connection, bytes);
        Wait::Input
    }

    /// Connections keep input that takes `all` bytes of memory now, `own` of them this connection. Returns true if that is more
    /// than allowed: then [`Handler::crowded_out`] chooses a connection to close.
    #[inline]
    fn keeps(&mut self, connection: &mut Self::Connection, own: usize, all: usize) -> bool {
        let _ = (connection, own, all);
        false
    }

    /// The budget of this wake-up is spent: the loop looks for new events before it goes on with queued connections.
    fn budget_spent(&self) -> bool {
        false
    }

    /// About how many nanoseconds the work since [`Handler::woke`] takes. Others come before a connection that took much of it.
    #[inline]
    fn spent_ns(&self) -> u64 {
        0
    }

    /// The budget of this wake-up is nearly spent. The loop receives little from the connections that are left: it still answers
    /// a short request, and a long one goes on in the next turn.
    #[inline]
    fn budget_nearly_spent(&self) -> bool {
        false
    }

    /// A connection has ended, and the input of all others takes at most `all` bytes of memory now.
    #[inline]
    fn lets_go(&mut self, all: usize) {
        let _ = all;
    }

    /// The [`Id::index`] of a connection to close for the memory of its input, other than `except`; `None` when there is enough
    /// memory.
    fn crowded_out(&mut self, except: Id) -> Option<usize> {
        let _ = except;
        None
    }

    /// The handler has taken a part of a request and waits for the rest. The loop closes such a connection when it makes no
    /// progress.
    fn awaits_rest(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        false
    }

    /// Whether other connections wait for what this one does. It continues while memory for replies is short, and when its
    /// stream has no room: it makes no reply before it has let the others continue.
    fn holds_up_others(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        false
    }

    /// Whether the connection's request is under way and has a reply to come, also where the connection waits to be woken. It
    /// stays open for that while the loop drains, and when its peer sends no more.
    fn must_end(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        false
    }

    /// [`Handler::unauthenticated_since`] may return a time for some connection.
    fn has_unauthenticated(&self) -> bool {
        false
    }

    /// Since when the connection has to authenticate and has not; `None` if it has, or need not.
    fn unauthenticated_since(&self, connection: &Self::Connection) -> Option<Millis> {
        let _ = connection;
        None
    }

    /// The connection's unsent replies, and nothing else. They stay where they are until [`Handler::sent`], which the loop calls
    /// next unless there are none or the stream has failed.
    fn replies<'r>(&'r mut self, connection: &'r mut Self::Connection) -> Outgoing<'r>;

    /// Fills `into` with the first of [`Outgoing::Slices`], as many as fit, and returns their number.
    fn slices<'r>(&'r mut self, connection: &'r mut Self::Connection, into: &mut [IoSlice<'r>]) -> usize {
        let _ = (connection, into);
        0
    }

    /// The stream took `bytes` bytes of the replies, 0 if it had no room. Returns how many bytes are left.
    fn sent(&mut self, connection: &mut Self::Connection, bytes: u64) -> u64;

    /// What the connection's stream buffers has changed from `before` to `now`. A connection that ends buffers nothing.
    fn stream_holds(&mut self, connection: &mut Self::Connection, before: Between, now: Between) {
        let _ = (connection, before, now);
    }

    /// The connection's peer has proven in the handshake that it is this user ([`crate::Stream::take_peer_name`]). Called before
    /// the connection's first bytes are received.
    fn stream_named(&mut self, connection: &mut Self::Connection, name: &str) {
        let _ = (connection, name);
    }

    /// The connection's peer has broken the stream's protocol ([`crate::Stream::take_failure`]), and is about to be closed.
    fn stream_failed(&mut self, connection: &mut Self::Connection, why: &str) {
        let _ = (connection, why);
    }

    /// A stream has taken a step of its handshake, which took so many nanoseconds.
    fn stream_opened(&mut self, took_ns: u64) {
        let _ = took_ns;
    }

    /// A stream has opened so many records ([`Stream::take_records`]).
    fn stream_worked(&mut self, records: u32) {
        let _ = records;
    }

    /// Bytes of the connection's replies, if they may go out a little later, together with those of other connections. `None` if
    /// there are none, or they have to be sent at once. Asked after [`Handler::received`]. The replies stay this connection's,
    /// whatever the loop does meanwhile.
    #[inline]
    fn deferrable(&self, connection: &Self::Connection) -> Option<u64> {
        let _ = connection;
        None
    }

    /// The connection has ended and is forgotten.
    fn closed(&mut self, id: Id, connection: Self::Connection, why: Closed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_last_if_one_receive_takes_all_slices_and_the_buffer() {
        let mut memory = [0; 10 * RECEIVE_SLICES_MAX];
        for (slices, taken, last) in [(6, 6, true), (7, 7, true), (8, 7, false)] {
            let bytes = 10 * slices;
            let target = Destination::new(memory[..bytes].chunks_mut(10), bytes as u64);
            assert_eq!((target.count, target.bytes, target.last), (taken, 10 * taken, last), "{slices}");
            let target = Destination::new(memory[..bytes].chunks_mut(10), bytes as u64 + 1);
            assert!(!target.last, "{slices}");
        }
    }
}
