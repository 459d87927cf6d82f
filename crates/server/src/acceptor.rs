//! The first thread: takes connections in, hands each to the worker that has the fewest, and hears
//! the signals.
//!
//! It waits in one place only, and there it hears everything. Where it cannot take a connection in it pauses:
//! while the server has as many as it may, until one ends; when the system refuses one, or no worker has room
//! for it, for [`PAUSE_MS`]. The listeners are not watched meanwhile, so that clients that wait there cost nothing.

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

/// The pause after a connection that could not be taken in, whatever happens meanwhile: the next may fail
/// alike. As long as others may be kept waiting.
const PAUSE_MS: Millis = 10;

/// What the acceptor hears of.
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
    /// A connection.
    type Stream: Stream;

    /// Waits for something to hear, `timeout` at most; of how many things.
    ///
    /// # Errors
    /// When the system refuses, which it does not in correct use.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize>;

    /// Thing `index` of the last wait.
    fn heard(&self, index: usize) -> Heard;

    /// The time.
    fn now(&self) -> Millis;

    /// Hears of waiting connections, or does not.
    ///
    /// # Errors
    /// When the system refuses, which it does not in correct use.
    fn watch(&mut self, connections: bool) -> io::Result<()>;

    /// Takes the next connection in.
    ///
    /// # Errors
    /// `WouldBlock` when none waits, `ConnectionAborted` when it has gone; otherwise what the system says (too
    /// many open files).
    fn accept(&mut self, listener: usize) -> io::Result<(Self::Stream, Address)>;
}

/// The mailboxes that connections go to, one for each worker.
pub type Arrivals<S> = Box<[Arc<Mailbox<Arrival<S>>>]>;

/// Why no connections are taken in.
#[derive(Clone, Copy, Debug)]
struct Pause {
    since: Millis,
    /// Until then; none is until there are fewer connections than there may be.
    until: Option<Millis>,
}

/// Why a listener was left before it was empty.
enum Full {
    /// There are as many connections as there may be.
    Server,
    /// One could not be taken in now.
    ForNow,
}

/// Takes connections in.
#[derive(Debug)]
pub struct Acceptor<E: Entrance> {
    hub: Arc<Hub>,
    entrance: E,
    arrivals: Arrivals<E::Stream>,
    pause: Option<Pause>,
    failures: Rarely,
    refusals: Rarely,
}

impl<E: Entrance> Acceptor<E> {
    /// The acceptor of a server.
    pub fn new(hub: Arc<Hub>, entrance: E, arrivals: Arrivals<E::Stream>) -> Acceptor<E> {
        let (failures, refusals) = (Rarely::default(), Rarely::default());
        Acceptor { hub, entrance, arrivals, pause: None, failures, refusals }
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
        let timeout = until.map(|until| Duration::from_millis(until.saturating_sub(self.entrance.now())));
        for index in 0..self.entrance.wait(timeout)? {
            match self.entrance.heard(index) {
                Heard::Woken => drop(self.hub.waker.drain()),
                Heard::Signal => return Ok(false),
                Heard::Reload => self.hub.reload(),
                Heard::Connections(listener) if self.pause.is_none() => {
                    if let Err(full) = self.accept(listener) {
                        self.begin_pause(full)?;
                    }
                }
                // Of the same wait as what it pauses for.
                Heard::Connections(_) => {}
            }
        }
        if self.hub.stop.load(SeqCst) {
            return Ok(false);
        }
        self.end_pause()?;
        Ok(true)
    }

    fn begin_pause(&mut self, full: Full) -> io::Result<()> {
        let since = self.entrance.now();
        let until = match full {
            Full::Server => None,
            Full::ForNow => Some(since + PAUSE_MS),
        };
        self.pause = Some(Pause { since, until });
        self.hub.tally.paused.store(true, SeqCst);
        self.hub.tally.pauses.fetch_add(1, Relaxed);
        self.entrance.watch(false)
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
        self.entrance.watch(true)
    }

    /// Takes waiting connections in.
    fn accept(&mut self, listener: usize) -> Result<(), Full> {
        for _ in 0..ACCEPTS_PER_EVENT {
            let full = self.hub.connections() >= self.hub.connections_max();
            if full && !self.hub.config.refuse_fast {
                return Err(Full::Server);
            }
            let worker = self.fewest();
            if worker.is_none() && !full {
                self.complain(&"no worker takes them over");
                return Err(Full::ForNow);
            }
            match self.entrance.accept(listener) {
                Ok((stream, peer)) => match worker.filter(|_| !full) {
                    Some(worker) if self.begins(listener) => {
                        self.hand_over(worker, Arrival { stream, peer, listener });
                    }
                    Some(_) | None => self.refuse(stream, listener),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.complain(&error);
                    return Err(Full::ForNow);
                }
            }
        }
        Ok(())
    }

    fn complain(&mut self, error: &dyn std::fmt::Display) {
        if let Some(times) = self.failures.due(self.entrance.now()) {
            tracing::warn!(%error, times, "cannot accept");
        }
    }

    /// Counts a connection that begins a TLS handshake; false when too many are in theirs.
    fn begins(&self, listener: usize) -> bool {
        let max = self.hub.config.strangers_max();
        self.hub.listeners[listener].tls.is_none() || self.hub.certificates.begin(max)
    }

    fn refuse(&mut self, mut stream: E::Stream, listener: usize) {
        self.hub.tally.rejected.fetch_add(1, Relaxed);
        let _ = stream.send(self.hub.listeners[listener].speaks.refusal());
        // Bytes that nobody took would have the close reset the connection, and the refusal be lost.
        let _ = stream.recv(&mut [0; 4096]);
        if let Some(times) = self.refusals.due(self.entrance.now()) {
            tracing::info!(times, "connection refused: -c, or its share of TLS handshakes, is reached");
        }
    }

    /// The worker with the fewest connections, of those that have room for one more to take over.
    fn fewest(&self) -> Option<usize> {
        let load = |worker: &usize| self.hub.handles[*worker].connections.load(Relaxed);
        (0..self.hub.handles.len()).filter(|&worker| self.arrivals[worker].has_room()).min_by_key(load)
    }

    fn hand_over(&mut self, worker: usize, arrival: Arrival<E::Stream>) {
        self.hub.tally.accepted.fetch_add(1, Relaxed);
        self.hub.handles[worker].connections.fetch_add(1, SeqCst);
        if self.arrivals[worker].send(arrival).is_err() {
            // It had room, and nobody else sends.
            debug_assert!(false, "a mailbox with room takes a connection");
            self.hub.ended(worker);
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
                // All that came meanwhile are one.
                while matches!((&self.signals.reload).read(&mut [0; 64]), Ok(1..)) {}
                Heard::Reload
            }
            listener => Heard::Connections(listener as usize),
        }
    }

    fn now(&self) -> Millis {
        self.started.elapsed().as_millis() as Millis
    }

    fn watch(&mut self, connections: bool) -> io::Result<()> {
        let interest = if connections { Interest::Read } else { Interest::None };
        let mut bound = self.bound.iter().enumerate();
        bound.try_for_each(|(index, at)| self.poller.modify(&at.listener, index as u64, interest))
    }

    fn accept(&mut self, listener: usize) -> io::Result<(S, Address)> {
        let socket = self.bound[listener].listener.accept()?;
        // One that has gone since has no other end.
        let peer = socket.peer_address().map_err(|_| io::ErrorKind::ConnectionAborted)?;
        Ok(((self.stream)(listener, socket)?, peer))
    }
}

#[cfg(test)]
mod tests {
    use larder_eventloop::sim::{Sim, SimStream, Weather};
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
        watched: bool,
        /// It is woken by each connection that ends.
        woken: bool,
        /// A signal has come.
        signal: bool,
        /// What the system says to an accept.
        error: Option<io::ErrorKind>,
        heard: Vec<Heard>,
        accepts: u64,
        waits: u64,
    }

    impl Entrance for Crowd {
        type Stream = SimStream;

        fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
            self.waits += 1;
            self.heard.clear();
            self.heard.extend(self.watched.then_some(Heard::Connections(0)));
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
        fn watch(&mut self, connections: bool) -> io::Result<()> {
            self.watched = connections;
            Ok(())
        }
        fn accept(&mut self, _: usize) -> io::Result<(SimStream, Address)> {
            self.accepts += 1;
            match self.error {
                Some(error) => Err(error.into()),
                None => Ok((self.sim.connect().0, Address::Unix("/crowd".into()))),
            }
        }
    }

    fn acceptor(config: Config) -> Acceptor<Crowd> {
        let store = Store::new(crate::store_config(&config)).expect("a store");
        let listeners = vec![Listener::new(Address::Unix("/crowd".into()), Speaks::Any)];
        let clock = Clock::Machine { started: Instant::now() };
        let hub = Arc::new(Hub::new(config, store, listeners, Log::default(), clock).expect("wakers"));
        let arrivals = hub.handles.iter().map(|handle| Arc::new(Mailbox::new(&handle.waker))).collect();
        let (sim, heard) = (Sim::new(1, Weather::FAIR), Vec::new());
        let (watched, woken, signal) = (true, false, false);
        let crowd = Crowd { sim, now: 0, watched, woken, signal, error: None, heard, accepts: 0, waits: 0 };
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
        // The turn that ends a pause does not yet hear who waits.
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
        assert_eq!((acceptor.entrance.accepts, acceptor.entrance.watched), (5, false));
        assert_eq!(acceptor.hub.tally.pauses.load(SeqCst), 1);
        acceptor.hub.ended(0);
        assert!(acceptor.hub.waker.drain(), "the acceptor is woken");
        for _ in 0..100 {
            assert!(acceptor.turn().expect("a turn"));
        }
        assert_eq!((acceptor.entrance.accepts, acceptor.entrance.watched), (6, false));
    }
}
