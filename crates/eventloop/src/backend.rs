//! What the loop needs of the system: streams that never block, a wait for many of them, a clock.

use std::io::{self, IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::Millis;
use crate::poll::{Event, Events, Interest, Poller, Waker};
use crate::socket::Socket;

/// One connection's bytes, both ways, never blocking.
pub trait Stream {
    /// Receives into `buffer` and returns the number of bytes. 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has come; anything else ends the connection.
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Receives into several slices in order, filling each before the next, and returns the number of bytes.
    ///
    /// # Errors
    /// As [`Stream::recv`].
    fn recv_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Sends what fits now and returns the number of bytes, which is 0 only if `bytes` is empty.
    ///
    /// # Errors
    /// `WouldBlock` when nothing fits; anything else ends the connection.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Sends what fits now from several slices in order, and returns the number of bytes.
    ///
    /// # Errors
    /// As [`Stream::send`].
    fn send_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Bytes that sends surely take now, if each send also gets 2 KiB for itself. 0 while [`Interest::Write`] would have to wait.
    /// Costs a system call.
    fn room(&self) -> usize;

    /// Bytes that have arrived and are not received yet. A stream that does not know the number returns too many, but 0 where a
    /// receive would bring none. Costs a system call.
    fn pending(&self) -> usize;

    /// What the stream buffers between the system and the loop. A stream without a buffer always returns `None`.
    #[inline]
    fn between(&self) -> Option<Between> {
        None
    }

    /// Returns how many records the stream has opened since the last call. Opening is work that the bytes given to the loop do
    /// not show. A stream without records always returns 0.
    #[inline]
    fn take_records(&mut self) -> u32 {
        0
    }

    /// Returns, once, the user that the peer has proven to be in the stream's handshake. The loop asks after the receive that
    /// ends the handshake, and before it gives the handler the bytes that came with it. Such a receive has opened records
    /// ([`Stream::take_records`]).
    fn take_peer_name(&mut self) -> Option<Box<str>> {
        None
    }

    /// Returns, once, why the peer has broken the stream's protocol. The loop asks before it closes the connection for an error.
    fn take_failure(&mut self) -> Option<Box<str>> {
        None
    }

    /// Sends what fits now of [`Between::unsent`].
    ///
    /// # Errors
    /// Any error ends the connection. That nothing fits is no error.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Tells the peer that the connection ends after what was sent, if streams of this kind do that and as far as it fits now.
    /// Bytes that a receive brings afterwards are garbage: the loop drops them.
    fn finish(&mut self) {}
}

/// What a stream buffers between the system and the loop. The system's readiness does not cover it, so the loop asks for it
/// whenever it decides what a connection waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Between {
    /// Bytes that a receive brings though the system may have none.
    pub received: usize,
    /// Bytes that wait for room: those that the stream took from the loop, and those that it sends by itself.
    pub unsent: usize,
    /// Bytes of an incomplete record, which only the peer can complete.
    pub partial: usize,
    /// Memory that the stream takes: its buffers and itself.
    pub memory: usize,
    /// The handshake is not finished: the stream carries no bytes yet.
    pub opening: bool,
    /// The stream can carry only few more bytes: the connection has to end between two requests.
    pub worn: bool,
}

/// The system reports that a socket has room when a third of its buffer is free, and no buffer is smaller than 46 KB.
const SOCKET_ROOM_BYTES: usize = 12 << 10;

/// Room that one send takes of a stream beside its bytes, at most: the head of a packet that is not full.
pub const SEND_ROOM_BYTES: usize = 2 << 10;

impl Stream for Socket {
    #[inline]
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Socket::recv(self, buffer)
    }
    #[inline]
    fn recv_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Socket::recv_vectored(self, slices)
    }
    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Socket::send(self, bytes)
    }
    #[inline]
    fn send_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Socket::send_vectored(self, slices)
    }
    fn room(&self) -> usize {
        if Socket::has_room(self) { SOCKET_ROOM_BYTES } else { 0 }
    }
    fn pending(&self) -> usize {
        Socket::pending(self)
    }
}

/// The system as one loop sees it.
pub trait Backend {
    /// Its connections.
    type Stream: Stream;

    /// Starts to watch a stream.
    ///
    /// # Errors
    /// When the system has no room for it.
    fn add(&mut self, stream: &Self::Stream, token: u64, interest: Interest) -> io::Result<()>;

    /// Changes what a watched stream is watched for.
    ///
    /// # Errors
    /// When the system refuses, which it does not in correct use.
    fn modify(&mut self, stream: &Self::Stream, token: u64, interest: Interest) -> io::Result<()>;

    /// Waits for events, `timeout` at most, and reads the clock. Returns how many events there are.
    ///
    /// # Errors
    /// When the system refuses, which it does not in correct use.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize>;

    /// Event `index` of the last wait.
    fn event(&self, index: usize) -> Event;

    /// The time at the end of the last wait.
    fn now(&self) -> Millis;

    /// The time at the end of the last wait, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// The time now, in nanoseconds. The clock is exact, and a call costs some 30 ns.
    fn exact_ns(&self) -> u64;

    /// Nanoseconds since the end of the last wait, by a clock that costs next to nothing and lags by some milliseconds: the
    /// result may be too small, never too large.
    fn worked_ns(&self) -> u64;
}

/// Token of the waker; no connection has it.
pub(crate) const WAKER_TOKEN: u64 = u64::MAX;

/// Events taken from one wait: enough that a wait is cheap per event, few enough that the
/// connections of one wait fit a processor's first cache.
const EVENTS_MAX: usize = 256;

/// epoll, level-triggered, for streams over descriptors.
#[derive(Debug)]
pub struct Epoll<S> {
    poller: Poller,
    events: Events,
    started: std::time::Instant,
    now: Millis,
    now_ns: u64,
    /// The system's clock when this clock was 0.
    origin_ns: u64,
    streams: PhantomData<fn(&S)>,
}

impl<S: Stream + AsFd> Epoll<S> {
    /// A backend woken by `waker`, with its clock counted from `started`.
    ///
    /// # Errors
    /// What epoll_create1(2) and epoll_ctl(2) say (too many open files).
    pub fn new(waker: &Waker, started: std::time::Instant) -> io::Result<Epoll<S>> {
        let poller = Poller::new()?;
        poller.add(waker, WAKER_TOKEN, Interest::Read)?;
        let events = Events::with_capacity(EVENTS_MAX);
        // The system's clock is read second, so the origin is not too early.
        let since = started.elapsed().as_nanos() as u64;
        let origin_ns = clock_ns(ClockId::Monotonic).saturating_sub(since);
        let mut epoll = Epoll { poller, events, started, now: 0, now_ns: 0, origin_ns, streams: PhantomData };
        epoll.take_time();
        Ok(epoll)
    }
}

impl<S> Epoll<S> {
    #[inline]
    fn take_time(&mut self) {
        self.now_ns = self.started.elapsed().as_nanos() as u64;
        self.now = self.now_ns / 1_000_000;
    }
}

impl<S: Stream + AsFd> Backend for Epoll<S> {
    type Stream = S;

    fn add(&mut self, stream: &S, token: u64, interest: Interest) -> io::Result<()> {
        self.poller.add(stream, token, interest)
    }

    fn modify(&mut self, stream: &S, token: u64, interest: Interest) -> io::Result<()> {
        self.poller.modify(stream, token, interest)
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.poller.wait(&mut self.events, timeout)?;
        self.take_time();
        Ok(self.events.len())
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.events.at(index)
    }

    #[inline]
    fn now(&self) -> Millis {
        self.now
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn exact_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    #[inline]
    fn worked_ns(&self) -> u64 {
        clock_ns(ClockId::MonotonicCoarse).saturating_sub(self.origin_ns + self.now_ns)
    }
}

#[inline]
fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
