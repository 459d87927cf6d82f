//! A network in memory, for tests: one thread, one clock, everything decided by a seed.
//!
//! A [`Sim`] is a backend; [`Sim::connect`] makes a connection and gives its other end, a [`Peer`].
//! What a peer sends arrives in pieces of arbitrary size, what a peer has not read fills a window
//! of limited size, so that sends are partial or would block; peers can end their stream or reset
//! the connection. Each wait reports an arbitrary part of the events that are due.
//!
//! A loop alone has the network to itself ([`Sim::new`]): the clock moves only when nothing is due, by the timeout of the wait.
//! With several loops at one [`Network`], a wait never moves the clock: the test asks which loop has to take a turn
//! ([`Network::due`]), and moves [`Time`] itself.

mod stream;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::poll::{Event, Interest, Waker};
use crate::{Backend, Millis, Stream};
pub use stream::{Peer, SimStream};
pub use wire::Weather;
use wire::{Random, Wire};

/// A loop spins if it is told this often that a connection has room, and neither sends nor waits for something else.
const IDLE_TELLS_MAX: u32 = 2;

/// A clock that moves forward when a test says so.
#[derive(Clone, Debug, Default)]
pub struct Time(Arc<AtomicU64>);

impl Time {
    /// Microseconds since the clock was made.
    pub fn now_us(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Milliseconds since the clock was made.
    pub fn now(&self) -> Millis {
        self.now_us() / 1000
    }

    /// Moves the clock forward.
    pub fn pass_us(&self, us: u64) {
        self.0.fetch_add(us, Relaxed);
    }
}

/// A loop at a network.
#[derive(Debug)]
struct Watcher {
    /// What wakes it from outside, if anything does.
    waker: Option<Arc<Waker>>,
    /// It was woken, and no wait has reported that yet.
    woken: bool,
    /// When its last wait would have ended by itself, if ever.
    until: Option<Millis>,
    /// Bytes that its connections have received and sent.
    moved: u64,
}

impl Watcher {
    fn is_woken(&mut self) -> bool {
        self.woken |= self.waker.as_ref().is_some_and(|waker| waker.drain());
        self.woken
    }
}

#[derive(Debug)]
struct Net {
    random: Random,
    weather: Weather,
    wires: BTreeMap<u64, Wire>,
    made: u64,
    time: Time,
    watchers: Vec<Watcher>,
    waits: u64,
    asked: u64,
}

impl Net {
    fn size(&mut self, bound: usize, available: usize) -> usize {
        let most = bound.min(available);
        // One in four takes all there is, since filling a buffer to the last byte is a case of its own.
        if self.weather.arbitrary && most > 0 && !self.random.draw().is_multiple_of(4) {
            self.random.up_to(most)
        } else {
            most
        }
    }

    /// Counts bytes of a connection that were received or sent.
    fn moved(&mut self, id: u64, bytes: usize) {
        if let Some((watcher, ..)) = self.wires[&id].watched {
            self.watchers[watcher].moved += bytes as u64;
        }
    }

    /// Removes a connection of which both ends were dropped.
    fn forget(&mut self, id: u64) {
        if self.wires.get(&id).is_some_and(|wire| wire.server_closed && wire.left) {
            self.wires.remove(&id);
        }
    }
}

/// The network that all loops and peers share.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Net>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Net> {
        // A failing test drops its streams while the lock is poisoned.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a loop has to take its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Now: its wait would report something, or its timeout is over.
    Now,
    /// At this time, unless something happens before.
    At(Millis),
    /// When something happens.
    Never,
}

/// A network of several loops.
#[derive(Clone, Debug)]
pub struct Network(Shared);

impl Network {
    /// A network without connections. The same seed and the same calls give the same run.
    pub fn new(seed: u64, weather: Weather, time: Time) -> Network {
        let net = Net {
            random: Random(seed),
            weather,
            wires: BTreeMap::new(),
            made: 0,
            time,
            watchers: Vec::new(),
            waits: 0,
            asked: 0,
        };
        Network(Shared(Arc::new(Mutex::new(net))))
    }

    /// A new loop's backend, with the waker of the loop. Loops are numbered from 0 in order.
    pub fn backend<S>(&self, waker: Arc<Waker>) -> Sim<S> {
        self.watcher(Some(waker))
    }

    fn watcher<S>(&self, waker: Option<Arc<Waker>>) -> Sim<S> {
        let mut net = self.0.lock();
        let number = net.watchers.len();
        let alone = waker.is_none();
        net.watchers.push(Watcher { waker, woken: false, until: Some(0), moved: 0 });
        Sim { net: self.0.clone(), number, alone, events: Vec::new(), worked_us: 0, streams: PhantomData }
    }

    /// A connection: the server's end and the peer's.
    pub fn connect(&self) -> (SimStream, Peer) {
        let mut net = self.0.lock();
        let id = net.made;
        net.made += 1;
        net.wires.insert(id, Wire::default());
        (SimStream { net: self.0.clone(), id }, Peer { net: self.0.clone(), id })
    }

    /// Changes the weather from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.0.lock().weather = weather;
    }

    /// When loop `number` has to take its next turn.
    pub fn due(&self, number: usize) -> Due {
        let net = &mut *self.0.lock();
        let now = net.time.now();
        let watcher = &mut net.watchers[number];
        let woken = watcher.is_woken();
        let events = || net.wires.values().any(|wire| wire.event(number, &net.weather).is_some());
        match watcher.until {
            Some(until) if until <= now => Due::Now,
            _ if woken || events() => Due::Now,
            Some(until) => Due::At(until),
            None => Due::Never,
        }
    }

    /// Bytes that the connections of loop `number` have received and sent.
    pub fn moved(&self, number: usize) -> u64 {
        self.0.lock().watchers[number].moved
    }
}

/// The backend, for streams over the network's.
#[derive(Debug)]
pub struct Sim<S = SimStream> {
    net: Shared,
    /// The loop's number at its network.
    number: usize,
    /// The loop has its network, and the network's time, to itself.
    alone: bool,
    events: Vec<Event>,
    /// The part of the time since its last wait that was work ([`Sim::work_us`]).
    worked_us: u64,
    streams: PhantomData<fn(&S)>,
}

impl Sim {
    /// The backend of a loop that is alone at its network. The same seed and the same calls give the same run.
    pub fn new(seed: u64, weather: Weather) -> Sim {
        Sim::over(seed, weather)
    }
}

impl<S> Sim<S> {
    /// The backend of a loop that is alone at its network, for streams over the network's.
    pub fn over(seed: u64, weather: Weather) -> Sim<S> {
        Network::new(seed, weather, Time::default()).watcher(None)
    }

    /// A connection: the server's end and the peer's.
    pub fn connect(&mut self) -> (SimStream, Peer) {
        Network(self.net.clone()).connect()
    }

    /// The time of its network.
    pub fn time(&self) -> Time {
        self.net.lock().time.clone()
    }

    /// Makes the next wait report the waker.
    pub fn wake(&mut self) {
        self.net.lock().watchers[self.number].woken = true;
    }

    /// How often streams were asked for their room.
    pub fn asked(&self) -> u64 {
        self.net.lock().asked
    }

    /// Moves the clock by `us`, as the work of the turn that began with the loop's last wait.
    pub fn work_us(&mut self, us: u64) {
        self.net.lock().time.pass_us(us);
        self.worked_us += us;
    }

    /// How often the loop has waited.
    pub fn waits(&self) -> u64 {
        self.net.lock().waits
    }

    /// Something is due: the next wait will report it.
    pub fn busy(&self) -> bool {
        let net = &mut *self.net.lock();
        let mut wires = net.wires.values();
        net.watchers[self.number].is_woken()
            || wires.any(|wire| wire.event(self.number, &net.weather).is_some())
    }
}

impl<S: Stream + AsRef<SimStream>> Backend for Sim<S> {
    type Stream = S;

    fn add(&mut self, stream: &S, token: u64, interest: Interest) -> io::Result<()> {
        stream.as_ref().wire(|wire| {
            wire.watched = Some((self.number, token, interest));
            wire.idle_tells = 0;
        });
        Ok(())
    }

    fn modify(&mut self, stream: &S, token: u64, interest: Interest) -> io::Result<()> {
        self.add(stream, token, interest)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let net = &mut *self.net.lock();
        net.waits += 1;
        self.events.clear();
        self.worked_us = 0;
        let events = net.wires.values().filter_map(|wire| wire.event(self.number, &net.weather));
        let mut due: Vec<Event> = events.collect();
        let watcher = &mut net.watchers[self.number];
        let woken = watcher.is_woken();
        watcher.woken = false;
        let now = net.time.now();
        watcher.until = Some(now);
        if due.is_empty() && !woken {
            watcher.until = timeout.map(|timeout| now + timeout.as_millis() as Millis);
            if self.alone {
                let timeout = timeout.expect("nothing is due and nothing would ever end this wait");
                net.time.pass_us(timeout.as_millis() as u64 * 1000);
            }
            return Ok(0);
        }
        // An arbitrary part of them in arbitrary order, at least one.
        while !due.is_empty() {
            let pick = net.random.draw() as usize % due.len();
            let event = due.swap_remove(pick);
            if event.writable && !event.readable && !event.hangup {
                let reported = |wire: &&mut Wire| {
                    wire.watched.is_some_and(|(by, token, _)| (by, token) == (self.number, event.token))
                };
                let wire = net.wires.values_mut().find(reported).expect("its event was found");
                wire.idle_tells += 1;
                assert!(
                    wire.idle_tells <= IDLE_TELLS_MAX,
                    "a loop asks for room again and again, and sends nothing"
                );
            }
            self.events.push(event);
            if net.weather.arbitrary && net.random.draw().is_multiple_of(4) {
                break;
            }
        }
        if woken {
            let token = crate::backend::WAKER_TOKEN;
            self.events.push(Event { token, readable: true, writable: false, hangup: false });
        }
        Ok(self.events.len())
    }

    fn event(&self, index: usize) -> Event {
        self.events[index]
    }

    fn now(&self) -> Millis {
        self.net.lock().time.now()
    }

    fn now_ns(&self) -> u64 {
        self.net.lock().time.now_us() * 1000
    }

    fn exact_ns(&self) -> u64 {
        self.net.lock().time.now_us() * 1000
    }

    fn worked_ns(&self) -> u64 {
        self.worked_us * 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_at_one_network_hear_of_their_own_and_never_move_its_time() {
        let time = Time::default();
        let network = Network::new(1, Weather::FAIR, time.clone());
        let wakers = [(); 2].map(|()| Arc::new(Waker::new().expect("a waker")));
        let [mut one, mut other]: [Sim; 2] = wakers.clone().map(|waker| network.backend(waker));
        assert_eq!(network.due(0), Due::Now, "how long it will wait is not known");
        assert_eq!(one.wait(Some(Duration::from_millis(7))).expect("a wait"), 0);
        assert_eq!(other.wait(None).expect("a wait"), 0);
        assert_eq!((network.due(0), network.due(1), time.now()), (Due::At(7), Due::Never, 0));
        let (mut stream, peer) = network.connect();
        other.add(&stream, 5, Interest::Read).expect("watched");
        peer.send(b"ab");
        assert_eq!((network.due(0), network.due(1)), (Due::At(7), Due::Now));
        assert_eq!(other.wait(None).expect("a wait"), 1);
        assert_eq!(other.event(0).token, 5);
        assert_eq!(stream.recv(&mut [0; 8]).expect("two bytes"), 2);
        assert_eq!((network.moved(0), network.moved(1)), (0, 2));
        assert_eq!(other.wait(None).expect("a wait"), 0);
        wakers[1].wake();
        assert_eq!(network.due(1), Due::Now);
        assert_eq!(other.wait(None).expect("a wait"), 1);
        time.pass_us(7_000);
        assert_eq!((network.due(0), one.now()), (Due::Now, 7));
    }

    #[test]
    fn a_dropped_stream_reports_nothing_and_leaves_its_token_to_the_next() {
        let mut sim = Sim::new(1, Weather::FAIR);
        let (first, first_peer) = sim.connect();
        sim.add(&first, 5, Interest::Both).expect("watched");
        first_peer.send(b"ab");
        assert!(sim.busy());
        drop(first);
        assert!(!sim.busy());
        let (mut second, _peer) = sim.connect();
        sim.add(&second, 5, Interest::Write).expect("watched");
        // More tells than the first connection could have had without a send.
        for _ in 0..=IDLE_TELLS_MAX {
            assert_eq!(sim.wait(None).expect("a wait"), 1);
            assert_eq!(sim.event(0), Event { token: 5, readable: false, writable: true, hangup: false });
            assert_eq!(second.send(b"c").expect("sent"), 1);
        }
    }

    #[test]
    fn a_stream_that_has_ended_sends_no_more_and_still_receives() {
        let network = Network::new(1, Weather::FAIR, Time::default());
        let (mut stream, peer) = network.connect();
        assert_eq!(stream.send(b"ab").expect("sent"), 2);
        assert!(!peer.ended());
        stream.end();
        assert_eq!(stream.send(b"c").expect_err("it has ended").kind(), io::ErrorKind::BrokenPipe);
        assert_eq!((peer.ended(), peer.closed(), peer.read(9)), (true, false, b"ab".to_vec()));
        peer.send(b"d");
        assert_eq!(stream.recv(&mut [0; 8]).expect("a byte"), 1);
        drop(stream);
        assert!(peer.ended() && peer.closed());
    }
}
