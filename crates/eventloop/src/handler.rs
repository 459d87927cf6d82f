//! The other side of the loop: what bytes mean and where they go.

use std::io::{self, IoSlice, IoSliceMut};

use crate::{Between, Id, Millis, Stream};

/// What a connection waits for after its bytes were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// More bytes.
    Input,
    /// Room for replies: there are bytes it could take once those it has left are out.
    Room,
    /// Its next turn: others are to have their share first, those too who say something only now.
    Turn,
    /// So many milliseconds to pass: nothing is received or taken until then.
    Time(Millis),
    /// To be woken ([`crate::EventLoop::wake`]), or so many milliseconds to pass if that is said. Nothing is received or
    /// taken until then; that the peer sends no more ends the connection.
    Wake(Option<Millis>),
    /// Its end, once the replies are sent.
    End,
}

/// What [`Handler::received`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of the input that are done with. The others are kept and come again, in front of what
    /// is received next.
    pub bytes: usize,
    /// What the connection waits for.
    pub wait: Wait,
}

/// Slices of one receive: as many as Linux takes without allocating room for their list.
const RECEIVE_SLICES_MAX: usize = 8;

/// A place of the handler's own for bytes to come, in one or several slices of memory.
#[derive(Debug)]
pub struct Place<'p> {
    slices: [IoSliceMut<'p>; RECEIVE_SLICES_MAX],
    count: usize,
    bytes: usize,
    last: bool,
}

impl<'p> Place<'p> {
    /// The first slices of `slices`, as many as one receive takes. There is at least one, and none
    /// is empty. `missing` bytes belong to places of the handler's in all: when this place has room
    /// for them, what follows belongs to the receive buffer again, and is received by the same
    /// system call.
    pub fn new(slices: impl IntoIterator<Item = &'p mut [u8]>, missing: u64) -> Place<'p> {
        let mut place = Place {
            slices: std::array::from_fn(|_| IoSliceMut::new(&mut [])),
            count: 0,
            bytes: 0,
            last: false,
        };
        // One is for the receive buffer.
        for slice in slices.into_iter().take(RECEIVE_SLICES_MAX - 1) {
            debug_assert!(!slice.is_empty(), "a place has room");
            place.bytes += slice.len();
            place.slices[place.count] = IoSliceMut::new(slice);
            place.count += 1;
        }
        debug_assert!(place.count > 0 && place.bytes as u64 <= missing, "a place is for what is missing");
        place.last = place.bytes as u64 == missing;
        place
    }

    /// Bytes that it has room for.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// One receive into it and, if it is the last, into `rest` behind it.
    pub(crate) fn receive<S: Stream>(self, stream: &mut S, rest: &'p mut [u8]) -> io::Result<usize> {
        let Place { mut slices, mut count, .. } = self;
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
    /// They lie in several, which [`Handler::slices`] says.
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
    /// A request had come in part, and nothing more of it for the request timeout.
    Unfinished,
    /// It had not said who it is when the time for that was over.
    Stranger,
    /// Somebody else needs the memory that its replies hold.
    Shed,
    /// Somebody else needs the memory that its request holds, which has come in part.
    Crowded,
    /// The receive buffer is full of bytes of which the handler takes none.
    Input,
    /// The loop was drained.
    Drained,
}

/// Owns the meaning of the bytes. One for all connections of a loop; called by the loop's thread.
pub trait Handler {
    /// What it keeps per connection. Small: an idle connection costs little more than this.
    type Connection;

    /// The loop woke up, at this time of its clock in nanoseconds. Called once per wake-up, before anything else of it.
    fn woke(&mut self, now_ns: u64);

    /// `input` has come: what was kept of earlier bytes, and new ones behind. Replies are kept by
    /// the handler until [`Handler::sent`].
    fn received(&mut self, connection: &mut Self::Connection, input: &[u8]) -> Taken;

    /// Where the connection's next bytes should go directly, in place of the receive buffer; only
    /// asked when none are kept. `None` (the usual) is the receive buffer.
    fn destination<'d>(&'d mut self, connection: &'d mut Self::Connection) -> Option<Place<'d>> {
        let _ = connection;
        None
    }

    /// `bytes` bytes have come into the start of [`Handler::destination`]. When that leaves no
    /// destination, [`Handler::received`] is called next, with what came behind or with nothing.
    fn filled(&mut self, connection: &mut Self::Connection, bytes: usize) -> Wait {
        let _ = (connection, bytes);
        Wait::Input
    }

    /// Connections keep input now that takes `all` bytes of memory, `own` of them this one. True if that is more
    /// than may be: then [`Handler::crowded_out`] is asked who is to go.
    #[inline]
    fn keeps(&mut self, connection: &mut Self::Connection, own: usize, all: usize) -> bool {
        let _ = (connection, own, all);
        false
    }

    /// As much was done since [`Handler::woke`] as should be before the loop looks who else has something to
    /// say: connections that only go on wait until it has.
    fn is_tired(&self) -> bool {
        false
    }

    /// What was done since [`Handler::woke`] takes so many nanoseconds about: others come before a connection that
    /// took much of it.
    #[inline]
    fn spent_ns(&self) -> u64 {
        0
    }

    /// So much was done since [`Handler::woke`], for however many connections, that of those left of a wait little is
    /// received: a short request of one is answered all the same, a long one goes on in the next turn.
    #[inline]
    fn is_weary(&self) -> bool {
        false
    }

    /// Connections keep input that takes no more than `all` bytes now: one has ended.
    #[inline]
    fn lets_go(&mut self, all: usize) {
        let _ = all;
    }

    /// The [`Id::index`] of a connection, not of `except`, that is to be closed for the memory of its input; none
    /// when it is enough.
    fn crowded_out(&mut self, except: Id) -> Option<usize> {
        let _ = except;
        None
    }

    /// The connection has sent a part of a request, which the handler has taken: such a connection is closed
    /// when it stands still.
    fn awaits_rest(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        false
    }

    /// Other connections wait for what this one is at. It goes on while memory for replies is short, and when its stream has
    /// no room: it makes no reply before it has let others go on.
    fn holds_up_others(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        false
    }

    /// What the connection is at comes to its end whether the connection stays or not. While the loop is drained it stays for
    /// that, also where it waits to be woken, and has its reply.
    fn must_end(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        false
    }

    /// There may be connections of whom [`Handler::stranger_since`] says a time.
    fn has_strangers(&self) -> bool {
        false
    }

    /// Since when the connection is one that has to say who it is, and did not.
    fn stranger_since(&self, connection: &Self::Connection) -> Option<Millis> {
        let _ = connection;
        None
    }

    /// The connection's replies that are not sent, and nothing else. They stay where they are until
    /// [`Handler::sent`], which is called next unless there are none or the stream has failed.
    fn replies<'r>(&'r mut self, connection: &'r mut Self::Connection) -> Outgoing<'r>;

    /// The first of [`Outgoing::Slices`], as many as `into` has room for; how many.
    fn slices<'r>(&'r mut self, connection: &'r mut Self::Connection, into: &mut [IoSlice<'r>]) -> usize {
        let _ = (connection, into);
        0
    }

    /// The stream took `bytes` bytes of the replies, 0 if there was no room; how many are left.
    fn sent(&mut self, connection: &mut Self::Connection, bytes: u64) -> u64;

    /// The connection's stream has this between the system and the loop now, and had that `before`. A connection that
    /// ends has nothing there.
    fn stream_holds(&mut self, connection: &mut Self::Connection, before: Between, now: Between) {
        let _ = (connection, before, now);
    }

    /// A stream has taken a step of agreeing with its peer, in so many nanoseconds.
    fn stream_opened(&mut self, took_ns: u64) {
        let _ = took_ns;
    }

    /// A stream has opened so many records ([`Stream::take_records`]).
    fn stream_worked(&mut self, records: u32) {
        let _ = records;
    }

    /// Bytes of the connection's replies, if they may go out a little later, together with those of other
    /// connections; asked when [`Handler::received`] has left them. None if there are none, or they are
    /// to be sent at once. Whatever the loop does meanwhile, they stay this connection's.
    #[inline]
    fn held(&self, connection: &Self::Connection) -> Option<u64> {
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
            let place = Place::new(memory[..bytes].chunks_mut(10), bytes as u64);
            assert_eq!((place.count, place.bytes, place.last), (taken, 10 * taken, last), "{slices}");
            let place = Place::new(memory[..bytes].chunks_mut(10), bytes as u64 + 1);
            assert!(!place.last, "{slices}");
        }
    }
}
