//! The first thread: takes connections in, hands each to the worker that has the fewest, and handles
//! signals.
//!
//! It waits in one place only, for connections and signals alike. It pauses when it cannot take a connection in: until one ends,
//! if the server has as many as it may; for [`PAUSE_MS`], if the system refuses one, or no worker has room for it. The listeners
//! are not watched meanwhile, so that clients that wait there cost nothing. A connection whose address has as many as it may
//! ([`Addresses`]) is refused, and others are taken in.
//!
//! Listeners that speak TLS rest by themselves while as many handshakes are under way as may be: clients wait in the
//! system's backlog, and workers close handshakes that stand still ([`Certificates::want_room`]). Nothing of a handshake
//! is done here.
//!
//! [`Addresses`]: crate::addresses::Addresses
//! [`Certificates::want_room`]: crate::certificates::Certificates::want_room

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use larder_eventloop::poll::{Events, Interest, Poller};
use larder_eventloop::socket::{Address, Socket};
use larder_eventloop::{Millis, Stream};

use crate::Signals;
use crate::hub::Hub;
use crate::listen::Bound;
use crate::log::Rarely;
use crate::mailbox::{Arrival, Mailbox};

/// Connections taken from one listener before others have their turn.
const ACCEPTS_PER_EVENT: usize = 64;

/// The pause after a connection that could not be taken in, since the next may fail, too. Nothing ends it early. It is as long as
/// others may be kept waiting.
const PAUSE_MS: Millis = 10;

/// While TLS listeners rest, workers are asked this often for the room of handshakes that stand still.
const REST_LOOK_MS: Millis = 100;

/// An event that the acceptor waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Connections wait at the listener of this index.
    Connections(usize),
    /// It was woken ([`Hub::waker`]).
    Woken,
    /// The server is to stop.
    Signal,
    /// The server is to read its files again.
    Reload,
}

/// The system as the acceptor sees it: listeners, what wakes it, and a wait for all of them.
pub trait Entrance {
    /// A connection as the system accepts it.
    type Incoming: Stream;

    /// A connection as workers take it over.
    type Stream: Stream;

    /// Waits for events, `timeout` at most; returns how many there are.
    ///
    /// # Errors
    /// When the system refuses, which it does not in correct use.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize>;

    /// Event `index` of the last wait.
    fn heard(&self, index: usize) -> Heard;

    /// The time.
    fn now(&self) -> Millis;

    /// Sets whether a wait reports connections at a listener.
    ///
    /// # Errors
    /// When the system refuses, which it does not in correct use.
    fn watch(&mut self, listener: usize, connections: bool) -> io::Result<()>;

    /// Takes the next connection in.
    ///
    /// # Errors
    /// `WouldBlock` when none waits, `ConnectionAborted` when it has gone; otherwise what the system says (too
    /// many open files).
    fn accept(&mut self, listener: usize) -> io::Result<(Self::Incoming, Address)>;

    /// Makes a connection of a listener into what workers take over.
    ///
    /// # Errors
    /// When the system has no random numbers for TLS.
    fn begin(&mut self, listener: usize, incoming: Self::Incoming) -> io::Result<Self::Stream>;
}

/// The mailboxes that connections go to, one for each worker.
pub type Arrivals<S> = Box<[Arc<Mailbox<Arrival<S>>>]>;

/// A time in which no connections are taken in.
#[derive(Clone, Copy, Debug)]
struct Pause {
    since: Millis,
    /// When it ends; `None`: when there are fewer connections than there may be.
    until: Option<Millis>,
}

/// Why a listener was left before it was empty.
enum Full {
    /// There are as many connections as there may be.
    Server,
    /// One could not be taken in now.
    ForNow,
    /// It speaks TLS, and as many handshakes are under way as may be.
    Handshakes,
}

/// Why a connection was not taken in.
#[derive(Clone, Copy, Debug)]
enum Refused {
    /// There are as many connections as there may be.
    Server,
    /// Its address has as many as it may.
    Address,
}

/// Takes connections in.
#[derive(Debug)]
pub struct Acceptor<E: Entrance> {
    hub: Arc<Hub>,
    entrance: E,
    arrivals: Arrivals<E::Stream>,
    pause: Option<Pause>,
    /// When workers are next asked for room, while listeners that speak TLS rest.
    rest: Option<Millis>,
    failures: Rarely,
    refusals: Rarely,
    address_refusals: Rarely,
    rests: Rarely,
}

impl<E: Entrance> Acceptor<E> {
    /// The acceptor of a server.
    pub fn new(hub: Arc<Hub>, entrance: E, arrivals: Arrivals<E::Stream>) -> Acceptor<E> {
        let (failures, refusals, address_refusals, rests) = Default::default();
        let (pause, rest) = (None, None);
        Acceptor { hub, entrance, arrivals, pause, rest, failures, refusals, address_refusals, rests }
    }

    /// Accepts until a signal or a client stops the server.
    ///
    /// # Errors
    /// When the system refuses to watch the listeners.
    pub fn run(mut self) -> io::Result<()> {
        while self.turn()? {}
        Ok(())
    }

    /// Waits for something to do, and does it; false when the server is to stop.
    ///
    /// # Errors
    /// As [`Acceptor::run`].
    pub fn turn(&mut self) -> io::Result<bool> {
        let until = self.pause.and_then(|pause| pause.until);
        let until = until.into_iter().chain(self.rest).min();
        let timeout = until.map(|until| Duration::from_millis(until.saturating_sub(self.entrance.now())));
        for index in 0..self.entrance.wait(timeout)? {
            match self.entrance.heard(index) {
                Heard::Woken => drop(self.hub.waker.drain()),
                Heard::Signal => return Ok(false),
                Heard::Reload => self.hub.reload(),
                Heard::Connections(listener) if self.is_watched(listener) => match self.accept(listener) {
                    Ok(()) => {}
                    Err(Full::Server) => self.begin_pause(None)?,
                    Err(Full::ForNow) => self.begin_pause(Some(self.entrance.now() + PAUSE_MS))?,
                    Err(Full::Handshakes) => self.begin_rest()?,
                },
                // The same wait has reported what it pauses for.
                Heard::Connections(_) => {}
            }
        }
        if self.hub.stop.load(SeqCst) {
            return Ok(false);
        }
        self.end_pause()?;
        self.go_on_resting()?;
        Ok(true)
    }

    fn begin_pause(&mut self, until: Option<Millis>) -> io::Result<()> {
        self.pause = Some(Pause { since: self.entrance.now(), until });
        self.hub.tally.paused.store(true, SeqCst);
        self.hub.tally.pauses.fetch_add(1, Relaxed);
        self.watch_all()
    }

    fn speaks_tls(&self, listener: usize) -> bool {
        self.hub.listeners[listener].tls.is_some()
    }

    /// True if connections are taken in at a listener now.
    fn is_watched(&self, listener: usize) -> bool {
        self.pause.is_none() && (self.rest.is_none() || !self.speaks_tls(listener))
    }

    fn watch_all(&mut self) -> io::Result<()> {
        (0..self.hub.listeners.len())
            .try_for_each(|listener| self.entrance.watch(listener, self.is_watched(listener)))
    }

    #[cold]
    fn begin_rest(&mut self) -> io::Result<()> {
        let now = self.entrance.now();
        // Announced before handshakes are counted again: one that ends from now on wakes this thread.
        self.hub.certificates.want_room();
        self.rest = Some(now);
        if let Some(times) = self.rests.due(now) {
            tracing::info!(times, "TLS connections wait: their share of -c is in handshakes");
        }
        self.watch_all()
    }

    /// Ends the rest of TLS listeners when there is room for a handshake; until then workers are asked for it.
    fn go_on_resting(&mut self) -> io::Result<()> {
        let Some(look_at) = self.rest else { return Ok(()) };
        let now = self.entrance.now();
        if self.hub.certificates.opening() < self.hub.handshakes_max() {
            self.hub.certificates.have_room();
            self.rest = None;
            return self.watch_all();
        }
        if now >= look_at {
            self.rest = Some(now + REST_LOOK_MS);
            self.hub.certificates.want_room();
            self.hub.handles.iter().for_each(|handle| handle.waker.wake());
        }
        Ok(())
    }

    /// Ends a pause that is over.
    fn end_pause(&mut self) -> io::Result<()> {
        let Some(Pause { since, until }) = self.pause else { return Ok(()) };
        let now = self.entrance.now();
        let over = match until {
            Some(until) => now >= until,
            // Counted after the pause was announced: a connection that ended in between is seen here.
            None => self.hub.connections() < self.hub.connections_max(),
        };
        if !over {
            return Ok(());
        }
        self.pause = None;
        self.hub.tally.paused.store(false, SeqCst);
        self.hub.tally.paused_us.fetch_add((now - since) * 1000, Relaxed);
        self.watch_all()
    }

    /// Takes waiting connections in.
    fn accept(&mut self, listener: usize) -> Result<(), Full> {
        for nth in 0..ACCEPTS_PER_EVENT {
            let full = self.hub.connections() >= self.hub.connections_max();
            if full && !self.hub.config.refuse_fast {
                return Err(Full::Server);
            }
            let worker = self.fewest();
            if worker.is_none() && !full {
                self.complain(&"no worker takes them over");
                return Err(Full::ForNow);
            }
            let begins = self.speaks_tls(listener) && !full;
            if begins && !self.hub.certificates.begin(self.hub.handshakes_max()) {
                // The next wait tells whether one more waits.
                return if nth == 0 { Err(Full::Handshakes) } else { Ok(()) };
            }
            let result = match self.entrance.accept(listener) {
                Ok((incoming, peer)) => {
                    match worker.filter(|_| !full) {
                        Some(worker) if self.hub.addresses.enter(&peer, &self.hub.store) => {
                            self.hand_over(worker, incoming, peer, listener);
                        }
                        Some(_) => {
                            self.hub.handshake_not_begun(begins);
                            self.refuse(incoming, &peer, listener, Refused::Address);
                        }
                        None => self.refuse(incoming, &peer, listener, Refused::Server),
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                    self.hub.handshake_not_begun(begins);
                    continue;
                }
                Err(error) => {
                    self.complain(&error);
                    Err(Full::ForNow)
                }
            };
            self.hub.handshake_not_begun(begins);
            return result;
        }
        Ok(())
    }

    fn complain(&mut self, error: &dyn std::fmt::Display) {
        if let Some(times) = self.failures.due(self.entrance.now()) {
            tracing::warn!(%error, times, "cannot accept");
        }
    }

    /// Refuses a connection. One that speaks TLS is told nothing, since that would cost a handshake.
    fn refuse(&mut self, mut incoming: E::Incoming, peer: &Address, listener: usize, why: Refused) {
        let refused = match why {
            Refused::Server => &self.hub.tally.rejected,
            Refused::Address => &self.hub.tally.rejected_per_address,
        };
        refused.fetch_add(1, Relaxed);
        if !self.speaks_tls(listener) {
            let _ = incoming.send(self.hub.listeners[listener].speaks.refusal());
        }
        // With bytes left unread, the close would reset the connection, and the refusal be lost.
        let _ = incoming.recv(&mut [0; 4096]);
        let now = self.entrance.now();
        match why {
            Refused::Server => {
                if let Some(times) = self.refusals.due(now) {
                    tracing::info!(times, "connection refused: -c is reached");
                }
            }
            Refused::Address => {
                if let Some(times) = self.address_refusals.due(now) {
                    tracing::info!(%peer, times, "connection refused: --connections-per-address");
                }
            }
        }
    }

    /// The worker with the fewest connections, of those that have room for one more to take over.
    fn fewest(&self) -> Option<usize> {
        let load = |worker: &usize| self.hub.handles[*worker].connections.load(Relaxed);
        (0..self.hub.handles.len()).filter(|&worker| self.arrivals[worker].has_room()).min_by_key(load)
    }

    /// Gives a connection, which its address counts, to a worker.
    fn hand_over(&mut self, worker: usize, incoming: E::Incoming, peer: Address, listener: usize) {
        let begins = self.speaks_tls(listener);
        let stream = match self.entrance.begin(listener, incoming) {
            Ok(stream) => stream,
            Err(error) => {
                self.complain(&error);
                self.hub.addresses.leave(&peer, &self.hub.store);
                return self.hub.handshake_not_begun(begins);
            }
        };
        self.hub.tally.accepted.fetch_add(1, Relaxed);
        self.hub.handles[worker].connections.fetch_add(1, SeqCst);
        if let Err(Arrival { peer, .. }) = self.arrivals[worker].send(Arrival { stream, peer, listener }) {
            // It had room, and no other thread sends.
            debug_assert!(false, "a mailbox with room takes a connection");
            self.hub.handshake_not_begun(begins);
            self.hub.ended(worker, &peer);
        }
    }
}

const WAKER: u64 = u64::MAX;
const SIGNAL: u64 = u64::MAX - 1;
const RELOAD: u64 = u64::MAX - 2;

/// The listeners of a server, its signals, and epoll.
#[derive(Debug)]
pub struct Listeners<'a, F> {
    poller: Poller,
    bound: &'a [Bound],
    signals: &'a Signals,
    /// Makes a connection of a socket.
    stream: F,
    events: Events,
    started: Instant,
}

impl<'a, F> Listeners<'a, F> {
    /// Listeners that are watched, beside signals and the hub's waker, with a clock counted from `started`. `stream` makes
    /// a connection of a socket of the listener of an index.
    ///
    /// # Errors
    /// When the system refuses to watch them.
    pub fn new(
        hub: &Hub,
        bound: &'a [Bound],
        signals: &'a Signals,
        started: Instant,
        stream: F,
    ) -> io::Result<Listeners<'a, F>> {
        let poller = Poller::new()?;
        poller.add(&hub.waker, WAKER, Interest::Read)?;
        poller.add(&signals.stop, SIGNAL, Interest::Read)?;
        poller.add(&signals.reload, RELOAD, Interest::Read)?;
        for (index, Bound { listener, .. }) in bound.iter().enumerate() {
            poller.add(listener, index as u64, Interest::Read)?;
        }
        let events = Events::with_capacity(bound.len() + 3);
        Ok(Listeners { poller, bound, signals, stream, events, started })
    }
}

impl<F: Fn(usize, Socket) -> io::Result<S>, S: Stream> Entrance for Listeners<'_, F> {
    type Incoming = Socket;
    type Stream = S;

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.poller.wait(&mut self.events, timeout)?;
        Ok(self.events.len())
    }

    fn heard(&self, index: usize) -> Heard {
        match self.events.at(index).token {
            WAKER => Heard::Woken,
            SIGNAL => Heard::Signal,
            RELOAD => {
                // All signals that came meanwhile are one.
                while matches!((&self.signals.reload).read(&mut [0; 64]), Ok(1..)) {}
                Heard::Reload
            }
            listener => Heard::Connections(listener as usize),
        }
    }

    fn now(&self) -> Millis {
        self.started.elapsed().as_millis() as Millis
    }

    fn watch(&mut self, listener: usize, connections: bool) -> io::Result<()> {
        let interest = if connections { Interest::Read } else { Interest::None };
        self.poller.modify(&self.bound[listener].listener, listener as u64, interest)
    }

    fn accept(&mut self, listener: usize) -> io::Result<(Socket, Address)> {
        let socket = self.bound[listener].listener.accept()?;
        // A connection that has gone since has no peer.
        let peer = socket.peer_address().map_err(|_| io::ErrorKind::ConnectionAborted)?;
        Ok((socket, peer))
    }

    fn begin(&mut self, listener: usize, socket: Socket) -> io::Result<S> {
        (self.stream)(listener, socket)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use larder_eventloop::sim::{Peer, Sim, SimStream, Weather};
    use larder_store::Store;

    use super::*;
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::listener::Listener;
    use crate::log::Log;
    use crate::mailbox::MAIL_MAX;
    use larder_commands::Speaks;

    /// A listener where connections wait without end, in a time of its own.
    struct Crowd {
        sim: Sim,
        now: Millis,
        /// Whether each listener is watched.
        watched: Vec<bool>,
        peers: Vec<Peer>,
        /// Streams that were made for workers.
        begun: u64,
        /// It is woken by each connection that ends.
        woken: bool,
        /// A signal has come.
        signal: bool,
        /// What the system says to an accept.
        error: Option<io::ErrorKind>,
        /// No stream can be made for a worker.
        begin_error: bool,
        /// The address of the nth connection that is accepted, from 1 on.
        from: fn(u64) -> Address,
        heard: Vec<Heard>,
        accepts: u64,
        waits: u64,
    }

    impl Entrance for Crowd {
        type Incoming = SimStream;
        type Stream = SimStream;

        fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
            self.waits += 1;
            self.heard.clear();
            let waits = |listener: &usize| self.watched[*listener];
            self.heard.extend((0..self.watched.len()).filter(waits).map(Heard::Connections));
            self.heard.extend(self.woken.then_some(Heard::Woken));
            self.heard.extend(self.signal.then_some(Heard::Signal));
            if self.heard.is_empty() {
                self.now += timeout.map_or(0, |timeout| timeout.as_millis() as Millis);
            }
            Ok(self.heard.len())
        }
        fn heard(&self, index: usize) -> Heard {
            self.heard[index]
        }
        fn now(&self) -> Millis {
            self.now
        }
        fn watch(&mut self, listener: usize, connections: bool) -> io::Result<()> {
            self.watched[listener] = connections;
            Ok(())
        }
        fn accept(&mut self, _: usize) -> io::Result<(SimStream, Address)> {
            self.accepts += 1;
            if let Some(error) = self.error {
                return Err(error.into());
            }
            let (stream, peer) = self.sim.connect();
            peer.send(b"hello");
            self.peers.push(peer);
            Ok((stream, (self.from)(self.accepts)))
        }
        fn begin(&mut self, _: usize, stream: SimStream) -> io::Result<SimStream> {
            if self.begin_error {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.begun += 1;
            Ok(stream)
        }
    }

    fn acceptor(config: Config) -> Acceptor<Crowd> {
        acceptor_of(config, &[None])
    }

    /// With listeners of which these speak TLS.
    fn acceptor_of(config: Config, tls: &[Option<usize>]) -> Acceptor<Crowd> {
        let store = Store::new(crate::store_config(&config)).expect("a store");
        let plain = || Listener::new(Address::Unix("/crowd".into()), Speaks::Any);
        let listeners = tls.iter().map(|&tls| Listener { tls, ..plain() }).collect();
        let clock = Clock::Machine { started: Instant::now() };
        let hub = Arc::new(Hub::new(config, store, listeners, Log::default(), clock).expect("wakers"));
        let arrivals = hub.handles.iter().map(|handle| Arc::new(Mailbox::new(&handle.waker))).collect();
        let (sim, heard) = (Sim::new(1, Weather::FAIR), Vec::new());
        let crowd = Crowd {
            sim,
            now: 0,
            watched: vec![true; tls.len()],
            peers: Vec::new(),
            begun: 0,
            woken: false,
            signal: false,
            error: None,
            begin_error: false,
            from: |_| Address::Unix("/crowd".into()),
            heard,
            accepts: 0,
            waits: 0,
        };
        Acceptor::new(hub, crowd, arrivals)
    }

    /// Turns until so much time has passed, of which there are few while it pauses.
    fn pass(acceptor: &mut Acceptor<Crowd>, ms: Millis) {
        let until = acceptor.entrance.now + ms;
        for _ in 0..1000 {
            if acceptor.entrance.now >= until {
                return;
            }
            assert!(acceptor.turn().expect("a turn"));
        }
        panic!("it does not sleep");
    }

    #[test]
    fn a_refusal_of_the_system_is_a_pause_that_nothing_ends_early() {
        let mut acceptor = acceptor(Config { threads: 1, ..Config::default() });
        acceptor.entrance.error = Some(io::ErrorKind::Other);
        acceptor.entrance.woken = true;
        for _ in 0..1000 {
            assert!(acceptor.turn().expect("a turn"));
            acceptor.entrance.now += 1;
        }
        // The turn that ends a pause does not yet learn of the connections that wait.
        let pauses = 1000 / PAUSE_MS;
        assert_eq!(acceptor.entrance.accepts, 1000_u64.div_ceil(PAUSE_MS + 1));
        assert_eq!(acceptor.hub.tally.pauses.load(SeqCst), acceptor.entrance.accepts);
        acceptor.entrance.woken = false;
        let (waits, accepts) = (acceptor.entrance.waits, acceptor.entrance.accepts);
        pass(&mut acceptor, 1000);
        assert!(acceptor.entrance.waits - waits <= 2 * pauses + 1, "it sleeps until a pause is over");
        assert!(acceptor.entrance.accepts - accepts <= pauses);
        acceptor.entrance.error = None;
        for _ in 0..2 {
            assert!(acceptor.turn().expect("a turn"));
        }
        assert!(acceptor.hub.tally.accepted.load(SeqCst) > 0, "and tries again");
        acceptor.entrance.signal = true;
        assert!(!acceptor.turn().expect("a turn"), "a signal is heard");
    }

    #[test]
    fn workers_that_take_nothing_over_keep_no_signal_from_being_heard() {
        let mut acceptor = acceptor(Config { threads: 2, connections_max: 1 << 20, ..Config::default() });
        pass(&mut acceptor, 500);
        assert_eq!(acceptor.hub.tally.accepted.load(SeqCst), 2 * MAIL_MAX as u64);
        assert!((1..=50).contains(&acceptor.hub.tally.pauses.load(SeqCst)));
        assert_eq!(acceptor.arrivals[0].take().len(), MAIL_MAX);
        pass(&mut acceptor, 500);
        assert_eq!(acceptor.hub.tally.accepted.load(SeqCst), 3 * MAIL_MAX as u64, "by the one that does");
        acceptor.entrance.signal = true;
        assert!(!acceptor.turn().expect("a turn"));
        acceptor.hub.stop_workers();
        assert!(acceptor.hub.handles.iter().all(|handle| handle.stop.load(SeqCst) && handle.waker.drain()));
    }

    #[test]
    fn with_as_many_connections_as_there_may_be_it_pauses_until_one_ends() {
        let mut acceptor =
            acceptor(Config { threads: 1, connections_max: 5, refuse_fast: false, ..Config::default() });
        for _ in 0..100 {
            assert!(acceptor.turn().expect("a turn"));
        }
        assert_eq!((acceptor.entrance.accepts, acceptor.entrance.watched[0]), (5, false));
        assert_eq!(acceptor.hub.tally.pauses.load(SeqCst), 1);
        acceptor.hub.ended(0, &(acceptor.entrance.from)(1));
        assert!(acceptor.hub.waker.drain(), "the acceptor is woken");
        for _ in 0..100 {
            assert!(acceptor.turn().expect("a turn"));
        }
        assert_eq!((acceptor.entrance.accepts, acceptor.entrance.watched[0]), (6, false));
    }

    #[test]
    fn handshakes_have_a_quarter_of_the_connections_and_others_wait_for_their_ends() {
        let config = || Config { threads: 2, connections_max: 40, refuse_fast: false, ..Config::default() };
        let mut acceptor = acceptor_of(config(), &[Some(0)]);
        let max = acceptor.hub.handshakes_max();
        assert_eq!(max, 10);
        for _ in 0..100 {
            assert!(acceptor.turn().expect("a turn"));
        }
        let Crowd { accepts, watched, begun, peers, .. } = &acceptor.entrance;
        assert_eq!((*accepts, watched[0], *begun), (10, false, 10), "the eleventh waits");
        assert!(peers.iter().all(|peer| !peer.closed()), "none is refused");
        assert_eq!(acceptor.hub.tally.pauses.load(SeqCst), 0, "plain listeners accept");
        // Workers are asked for those that stand still, again and again, and not in each turn.
        assert!(acceptor.hub.handles.iter().all(|handle| handle.waker.drain()));
        assert!(acceptor.hub.certificates.take_wanted());
        let waits = acceptor.entrance.waits;
        pass(&mut acceptor, 1000);
        assert!(acceptor.entrance.waits - waits <= 12, "it sleeps");
        assert!(acceptor.hub.handles.iter().all(|handle| handle.waker.drain()));
        acceptor.hub.handshake_ended();
        assert!(acceptor.hub.waker.drain(), "the acceptor is woken");
        for _ in 0..100 {
            assert!(acceptor.turn().expect("a turn"));
        }
        assert_eq!((acceptor.entrance.accepts, acceptor.entrance.watched[0]), (11, false));
        assert_eq!(acceptor.hub.certificates.opening(), max);
    }

    #[test]
    fn a_listener_without_tls_accepts_while_handshakes_are_waited_for() {
        let config = Config { threads: 1, connections_max: 40, refuse_fast: false, ..Config::default() };
        let mut acceptor = acceptor_of(config, &[Some(0), None]);
        for _ in 0..100 {
            assert!(acceptor.turn().expect("a turn"));
        }
        assert_eq!(acceptor.entrance.accepts, 40);
        assert_eq!(acceptor.hub.certificates.opening(), 10);
        // Each of the two reasons ends by itself.
        acceptor.hub.ended(0, &(acceptor.entrance.from)(1));
        for _ in 0..10 {
            assert!(acceptor.turn().expect("a turn"));
        }
        assert_eq!(acceptor.entrance.accepts, 41);
        assert_eq!(acceptor.hub.certificates.opening(), 10);
    }

    #[test]
    fn a_tls_connection_is_refused_below_tls_and_leaves_the_share_as_it_was() {
        let config = Config { threads: 1, connections_max: 2, refuse_fast: true, ..Config::default() };
        for tls in [Some(0), None] {
            let mut acceptor = acceptor_of(config.clone(), &[tls]);
            acceptor.hub.handles[0].connections.store(2, SeqCst);
            assert!(acceptor.turn().expect("a turn"));
            let Crowd { peers, begun, .. } = &acceptor.entrance;
            assert_eq!((peers.len(), *begun), (ACCEPTS_PER_EVENT, 0), "nothing is begun");
            for peer in peers {
                assert!(peer.closed() && peer.untaken() == 0);
                assert_eq!(
                    peer.read(100).is_empty(),
                    tls.is_some(),
                    "no plain text goes where TLS is spoken"
                );
            }
            assert_eq!(acceptor.hub.certificates.opening(), 0);
        }
        // What is counted before an accept that brings none is given back.
        let mut acceptor = acceptor_of(Config { threads: 1, ..Config::default() }, &[Some(0)]);
        for error in [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionAborted, io::ErrorKind::Other] {
            acceptor.entrance.error = Some(error);
            assert!(acceptor.turn().expect("a turn"));
            assert_eq!(acceptor.hub.certificates.opening(), 0, "{error}");
        }
    }

    /// One connection of two comes from 10.0.0.1, each of the others from an address of its own.
    fn half_from_one(nth: u64) -> Address {
        let host = if nth.is_multiple_of(2) { 1 } else { 1 << 16 | nth as u32 };
        Address::Tcp((Ipv4Addr::from_bits(10 << 24 | host), 1000).into())
    }

    #[test]
    fn an_address_has_as_many_connections_as_it_may_and_others_are_taken_in() {
        let limits = Config { connections_per_address: 3, connections_max: 4096, ..Config::default() };
        let mut acceptor = acceptor(Config { threads: 2, ..limits });
        acceptor.entrance.from = half_from_one;
        let counts = |acceptor: &Acceptor<Crowd>| {
            let tally = &acceptor.hub.tally;
            [&tally.accepted, &tally.rejected, &tally.rejected_per_address].map(|count| count.load(SeqCst))
        };
        assert!(acceptor.turn().expect("a turn"));
        assert_eq!(acceptor.entrance.accepts, ACCEPTS_PER_EVENT as u64, "it does not pause");
        assert_eq!(counts(&acceptor), [32 + 3, 0, 29]);
        for (nth, peer) in (1..).zip(&acceptor.entrance.peers) {
            let is_refused = nth % 2 == 0 && nth > 6;
            assert_eq!(peer.closed(), is_refused, "{nth}");
            let told: &[u8] = if is_refused { b"ERROR Too many open connections\r\n" } else { b"" };
            assert_eq!(peer.read(100), told, "{nth}");
        }
        acceptor.hub.ended(0, &half_from_one(2));
        assert!(acceptor.turn().expect("a turn"));
        assert_eq!(counts(&acceptor), [2 * 32 + 3 + 1, 0, 29 + 31]);
        assert_eq!(acceptor.hub.tally.pauses.load(SeqCst), 0);
    }

    #[test]
    fn a_connection_that_cannot_be_begun_gives_back_its_place_at_its_address_and_among_handshakes() {
        let limits = Config { connections_per_address: 1, connections_max: 4096, ..Config::default() };
        let mut acceptor = acceptor_of(Config { threads: 1, ..limits }, &[Some(0)]);
        acceptor.entrance.from = |_| half_from_one(2);
        acceptor.entrance.begin_error = true;
        for _ in 0..3 {
            assert!(acceptor.turn().expect("a turn"));
        }
        let tried = 3 * ACCEPTS_PER_EVENT as u64;
        let Crowd { accepts, peers, .. } = &acceptor.entrance;
        assert_eq!((*accepts, acceptor.hub.certificates.opening()), (tried, 0));
        assert!(peers.iter().all(Peer::closed));
        acceptor.entrance.begin_error = false;
        assert!(acceptor.turn().expect("a turn"));
        let tally = &acceptor.hub.tally;
        let counts = [&tally.accepted, &tally.rejected_per_address].map(|count| count.load(SeqCst));
        assert_eq!(counts, [1, ACCEPTS_PER_EVENT as u64 - 1], "it has room for one, as before");
        assert_eq!((acceptor.entrance.begun, acceptor.hub.certificates.opening()), (1, 1));
    }

    #[test]
    fn a_connection_of_a_tls_port_that_is_refused_for_its_address_is_told_nothing_and_begins_no_handshake() {
        let limits = Config { connections_per_address: 1, connections_max: 4096, ..Config::default() };
        let mut acceptor = acceptor_of(Config { threads: 1, ..limits }, &[Some(0)]);
        acceptor.entrance.from = |_| half_from_one(2);
        assert!(acceptor.turn().expect("a turn"));
        let Crowd { peers, begun, .. } = &acceptor.entrance;
        assert_eq!((peers.len(), *begun, acceptor.hub.certificates.opening()), (ACCEPTS_PER_EVENT, 1, 1));
        assert!(!peers[0].closed());
        assert!(peers[1..].iter().all(|peer| peer.closed() && peer.read(100).is_empty()));
        assert_eq!(acceptor.hub.tally.rejected_per_address.load(SeqCst), ACCEPTS_PER_EVENT as u64 - 1);
    }
}
