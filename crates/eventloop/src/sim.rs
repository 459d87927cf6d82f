//! A network in memory, for tests: one thread, one clock, everything decided by a seed.
//!
//! A [`Sim`] is a backend; [`Sim::connect`] makes a connection and gives its other end, a [`Peer`].
//! What a peer sends arrives in pieces of arbitrary size, what a peer has not read fills a window
//! of limited size, so that sends are partial or would block; peers can end their stream or reset
//! the connection. Each wait reports an arbitrary part of the events that are due. The clock only
//! moves when nothing is due, by the timeout of the wait.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::poll::{Event, Interest};
use crate::{Backend, Millis, Stream};

/// How the network treats bytes.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Most bytes that one receive brings; 1 is delivery byte by byte.
    pub receive_max: usize,
    /// Most bytes that one send takes.
    pub send_max: usize,
    /// Bytes sent to a peer that it has not read yet; beyond, sends would block.
    pub window: usize,
    /// Sizes are drawn up to these bounds; otherwise they are just them.
    pub arbitrary: bool,
}

impl Weather {
    /// Everything arrives in one piece.
    pub const FAIR: Weather =
        Weather { receive_max: usize::MAX, send_max: usize::MAX, window: 256 << 10, arbitrary: false };
    /// Everything arrives byte by byte.
    pub const DRIP: Weather = Weather { receive_max: 1, send_max: 1, window: 256 << 10, arbitrary: false };
    /// Pieces of all sizes, and little room.
    pub const STORM: Weather = Weather { receive_max: 4096, send_max: 1024, window: 8192, arbitrary: true };
}

/// splitmix64: small, and any seed will do.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn up_to(&mut self, max: usize) -> usize {
        1 + (self.draw() % max as u64) as usize
    }
}

#[derive(Debug, Default)]
struct Wire {
    to_server: VecDeque<u8>,
    to_peer: VecDeque<u8>,
    /// The peer sends no more.
    peer_ended: bool,
    peer_reset: bool,
    /// The peer resets the connection when so many bytes have been sent to it.
    reset_at: Option<u64>,
    /// Bytes sent to the peer.
    sent: u64,
    /// Bytes that wait for the peer at most, in place of the weather's.
    window: Option<usize>,
    /// The server has dropped its stream.
    server_closed: bool,
    watched: Option<(u64, Interest)>,
}

impl Wire {
    /// Bytes that a send takes now, if it takes all that there is room for.
    fn room(&self, weather: &Weather) -> usize {
        let room = self.window.unwrap_or(weather.window).saturating_sub(self.to_peer.len());
        self.reset_at.map_or(room, |at| room.min((at - self.sent) as usize))
    }

    /// What was sent to the peer is lost. What has come from it can be received, as from a real socket.
    fn reset(&mut self) {
        self.peer_reset = true;
        self.to_peer.clear();
    }

    fn event(&self, weather: &Weather) -> Option<Event> {
        let (token, interest) = self.watched?;
        if self.server_closed {
            return None;
        }
        let read = matches!(interest, Interest::Read | Interest::Both);
        let write = matches!(interest, Interest::Write | Interest::Both);
        let ended = self.peer_ended || self.peer_reset;
        let event = Event {
            token,
            readable: read && (!self.to_server.is_empty() || ended),
            writable: write && (self.room(weather) > 0 || self.peer_reset),
            hangup: self.peer_reset,
        };
        (event.readable || event.writable || event.hangup).then_some(event)
    }
}

#[derive(Debug)]
struct Net {
    random: Random,
    weather: Weather,
    wires: BTreeMap<u64, Wire>,
    made: u64,
    now: Millis,
    waits: u64,
    asked: u64,
}

impl Net {
    fn size(&mut self, bound: usize, available: usize) -> usize {
        let most = bound.min(available);
        // One in four takes all there is: what is filled to the last byte is a case of its own.
        if self.weather.arbitrary && most > 0 && !self.random.draw().is_multiple_of(4) {
            self.random.up_to(most)
        } else {
            most
        }
    }
}

/// The one network of all its ends.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Net>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Net> {
        // A test that fails in here drops its streams on the way out.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The backend.
#[derive(Debug)]
pub struct Sim {
    net: Shared,
    events: Vec<Event>,
    woken: bool,
}

impl Sim {
    /// A network without connections. The same seed and the same calls give the same run.
    pub fn new(seed: u64, weather: Weather) -> Sim {
        let net = Net {
            random: Random(seed),
            weather,
            wires: BTreeMap::new(),
            made: 0,
            now: 0,
            waits: 0,
            asked: 0,
        };
        Sim { net: Shared(Arc::new(Mutex::new(net))), events: Vec::new(), woken: false }
    }

    /// A connection: the server's end and the peer's.
    pub fn connect(&mut self) -> (SimStream, Peer) {
        let mut net = self.net.lock();
        let id = net.made;
        net.made += 1;
        net.wires.insert(id, Wire::default());
        (SimStream { net: self.net.clone(), id }, Peer { net: self.net.clone(), id })
    }

    /// Makes the next wait report the waker.
    pub fn wake(&mut self) {
        self.woken = true;
    }

    /// How often streams were asked for their room.
    pub fn asked(&self) -> u64 {
        self.net.lock().asked
    }

    /// How often the loop has waited.
    pub fn waits(&self) -> u64 {
        self.net.lock().waits
    }

    /// Something is due: the next wait will report it.
    pub fn busy(&self) -> bool {
        let net = self.net.lock();
        self.woken || net.wires.values().any(|wire| wire.event(&net.weather).is_some())
    }
}

impl Backend for Sim {
    type Stream = SimStream;

    fn add(&mut self, stream: &SimStream, token: u64, interest: Interest) -> io::Result<()> {
        stream.wire(|wire| wire.watched = Some((token, interest)));
        Ok(())
    }

    fn modify(&mut self, stream: &SimStream, token: u64, interest: Interest) -> io::Result<()> {
        self.add(stream, token, interest)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let net = &mut *self.net.lock();
        net.waits += 1;
        self.events.clear();
        let mut due: Vec<Event> = net.wires.values().filter_map(|wire| wire.event(&net.weather)).collect();
        if due.is_empty() && !self.woken {
            let timeout = timeout.expect("nothing is due and nothing would ever end this wait");
            net.now += timeout.as_millis() as Millis;
            return Ok(0);
        }
        // An arbitrary part of them in arbitrary order, at least one.
        while !due.is_empty() {
            let pick = net.random.draw() as usize % due.len();
            self.events.push(due.swap_remove(pick));
            if net.weather.arbitrary && net.random.draw().is_multiple_of(4) {
                break;
            }
        }
        if std::mem::take(&mut self.woken) {
            let token = crate::backend::WAKER_TOKEN;
            self.events.push(Event { token, readable: true, writable: false, hangup: false });
        }
        Ok(self.events.len())
    }

    fn event(&self, index: usize) -> Event {
        self.events[index]
    }

    fn now(&self) -> Millis {
        self.net.lock().now
    }
}

/// The server's end of a connection.
#[derive(Debug)]
pub struct SimStream {
    net: Shared,
    id: u64,
}

impl SimStream {
    fn wire<T>(&self, with: impl FnOnce(&mut Wire) -> T) -> T {
        let mut net = self.net.lock();
        with(net.wires.get_mut(&self.id).expect("a wire lives as long as the network"))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.wire(|wire| wire.server_closed = true);
    }
}

impl Stream for SimStream {
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_vectored(&mut [IoSliceMut::new(buffer)])
    }

    fn recv_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let net = &mut *self.net.lock();
        let wire = &net.wires[&self.id];
        let room: usize = slices.iter().map(|slice| slice.len()).sum();
        let available = wire.to_server.len().min(room);
        if available == 0 {
            return match (wire.peer_reset, wire.peer_ended) {
                (true, _) => Err(io::ErrorKind::ConnectionReset.into()),
                (false, true) => Ok(0),
                (false, false) => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        let size = net.size(net.weather.receive_max, available);
        let wire = net.wires.get_mut(&self.id).expect("found above");
        let mut left = size;
        for slice in slices {
            let bytes = left.min(slice.len());
            // A deque is read in order, and all of it that is asked for.
            wire.to_server.read_exact(&mut slice[..bytes])?;
            left -= bytes;
        }
        Ok(size)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let net = &mut *self.net.lock();
        let wire = &net.wires[&self.id];
        if wire.peer_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let room = wire.room(&net.weather).min(bytes.len());
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let size = net.size(net.weather.send_max, room);
        let wire = net.wires.get_mut(&self.id).expect("found above");
        wire.to_peer.extend(&bytes[..size]);
        wire.sent += size as u64;
        if wire.reset_at == Some(wire.sent) {
            wire.reset();
        }
        Ok(size)
    }

    fn send_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.send(&all)
    }

    fn room(&self) -> usize {
        let net = &mut *self.net.lock();
        net.asked += 1;
        let wire = &net.wires[&self.id];
        let room = wire.room(&net.weather);
        if wire.peer_reset { room.max(1) } else { room }
    }

    fn pending(&self) -> usize {
        self.wire(|wire| wire.to_server.len())
    }
}

/// The other end of a connection, in the hands of the test.
#[derive(Debug)]
pub struct Peer {
    net: Shared,
    id: u64,
}

impl Peer {
    fn wire<T>(&self, with: impl FnOnce(&mut Wire) -> T) -> T {
        let mut net = self.net.lock();
        with(net.wires.get_mut(&self.id).expect("a wire lives as long as the network"))
    }

    /// Sends; never short.
    pub fn send(&self, bytes: &[u8]) {
        self.wire(|wire| wire.to_server.extend(bytes));
    }

    /// Takes at most `bytes_max` of what the server has sent.
    pub fn read(&self, bytes_max: usize) -> Vec<u8> {
        self.wire(|wire| {
            let bytes = bytes_max.min(wire.to_peer.len());
            wire.to_peer.drain(..bytes).collect()
        })
    }

    /// Bytes sent and not yet received by the server.
    pub fn untaken(&self) -> usize {
        self.wire(|wire| wire.to_server.len())
    }

    /// Ends the stream to the server.
    pub fn end(&self) {
        self.wire(|wire| wire.peer_ended = true);
    }

    /// Resets the connection: what it was sent is lost, and sends fail from now on.
    pub fn reset(&self) {
        self.wire(Wire::reset);
    }

    /// Resets the connection when `bytes` more bytes have been sent to the peer.
    pub fn reset_after(&self, bytes: u64) {
        if bytes == 0 {
            return self.reset();
        }
        self.wire(|wire| wire.reset_at = Some(wire.sent + bytes));
    }

    /// Has `bytes` wait for the peer at most, whatever the weather.
    pub fn narrow(&self, bytes: usize) {
        self.wire(|wire| wire.window = Some(bytes));
    }

    /// The server has closed the connection.
    pub fn closed(&self) -> bool {
        self.wire(|wire| wire.server_closed)
    }
}
