//! The servers, each with its connections: one for most requests, and one for large values, made when it is first
//! needed. Who needs one that is not there makes it, for all who need it: by `dial.rs`, or by `tokio/dial.rs`.

use crate::breaker::Breaker;
use crate::config::Config;
use crate::error::{Error, Outcome, Reason};
use crate::op::Counters;
use crate::pipe::Limits;
use crate::place::Placement;
use crate::socket::{OpenFd, OpenSocket};
use crate::stream::Stream;
use larder_protocol::client::Dialect;
use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lanes of a server: for most requests, and for large values.
const LANES: usize = 2;
/// After a refusal of user and password there is no new try for so long.
const AUTH_PAUSE: Duration = Duration::from_secs(5);
/// Why a server is not asked that does answer.
const LATE: Reason = Reason::said("half of its answers came too late");
/// Why there is no connection.
pub const SLOW: Reason = Reason::said("it does not greet in time");

/// A connection that callers share.
pub trait Line: Debug {
    /// How those wait who need a connection that another makes.
    type Dialed: Debug + Default;
    /// A caller's place on it.
    type Ticket: Debug;

    /// It takes requests.
    fn is_alive(&self) -> bool;
    /// What is spoken.
    fn dialect(&self) -> Dialect;
    /// What was done until now.
    fn counters(&self) -> Counters;
    /// Fails what waits.
    fn close(&self, error: Error);
    /// Those who wait look again.
    fn tell(dialed: &Self::Dialed);
    /// The time, as its callers have it.
    fn now() -> Instant;
}

/// What all clones of a client share.
#[derive(Debug)]
pub struct Shared<L: Line> {
    pub fleet: Fleet<L>,
    pub unreported: AtomicU64,
}

impl<L: Line> Shared<L> {
    /// # Errors
    /// [`Error::Config`].
    pub fn new(config: Config) -> Result<Arc<Shared<L>>, Error> {
        Ok(Arc::new(Shared { fleet: Fleet::new(config)?, unreported: AtomicU64::new(0) }))
    }
}

/// A client, whether its calls wait or are awaited.
pub trait Front: Clone + Debug {
    /// Its connections.
    type Line: Line;

    /// What its clones share.
    fn shared(&self) -> &Arc<Shared<Self::Line>>;

    /// Its servers.
    fn fleet(&self) -> &Fleet<Self::Line> {
        &self.shared().fleet
    }

    /// Sends what a stream has that is dropped, and counts what became of it where nobody is told.
    fn leave(stream: &mut Stream<Self>);

    /// When a call that begins now is to end.
    fn deadline(&self) -> Instant {
        Self::Line::now() + self.fleet().config.timeout
    }
}

/// All servers.
#[derive(Debug)]
pub struct Fleet<L: Line> {
    pub config: Config,
    placement: Placement,
    servers: Vec<Server<L>>,
    closed: AtomicBool,
}

/// One of them.
#[derive(Debug)]
pub struct Server<L: Line> {
    pub name: Arc<str>,
    pub address: String,
    pub sockets: [Arc<OpenFd>; LANES],
    state: Mutex<State<L>>,
    pub dialed: L::Dialed,
}

/// What who needs a connection is to do.
#[derive(Debug)]
pub enum Step<L> {
    /// It is there.
    Use(Arc<L>),
    /// Make it: nobody else does, until [`Fleet::dialed`] is told.
    Dial,
    /// Another makes it.
    Wait,
}

/// Connections of a server, and what is known of it.
#[derive(Debug)]
pub struct State<L> {
    lanes: [Option<Arc<L>>; LANES],
    dialing: [bool; LANES],
    breaker: Breaker,
    /// What the breaker was told last.
    reason: Reason,
    refused: Option<Instant>,
    /// Of lanes that are gone.
    counters: Counters,
    dials: u64,
}

impl<L: Line> Fleet<L> {
    /// The servers of a configuration; nothing is dialed.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn new(config: Config) -> Result<Fleet<L>, Error> {
        let placement = Placement::new(config.preset, &config.servers).map_err(Error::Config)?;
        let random = RandomState::new();
        let servers = config.servers.iter().enumerate().map(|(at, server)| Server {
            name: server.name().into(),
            address: server.address.clone(),
            sockets: Default::default(),
            state: Mutex::new(State {
                lanes: [None, None],
                dialing: [false; LANES],
                breaker: Breaker::new(random.hash_one(at)),
                reason: LATE,
                refused: None,
                counters: Counters::default(),
                dials: 0,
            }),
            dialed: L::Dialed::default(),
        });
        Ok(Fleet { servers: servers.collect(), placement, config, closed: AtomicBool::new(false) })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Which has a key.
    pub fn pick(&self, key: &[u8]) -> usize {
        self.placement.pick(key)
    }

    /// The name of one.
    pub fn name(&self, server: usize) -> &Arc<str> {
        &self.servers[server].name
    }

    /// One of them.
    pub fn server(&self, server: usize) -> &Server<L> {
        &self.servers[server]
    }

    /// What who needs a connection to a server until then is to do.
    ///
    /// # Errors
    /// It is down, or does not let this client in; the time is over; or the client is closed.
    pub fn step(
        &self,
        server: &Server<L>,
        state: &mut State<L>,
        at: usize,
        deadline: Instant,
    ) -> Result<Step<L>, Error> {
        if let Some(lane) = &state.lanes[at] {
            if lane.is_alive() {
                return Ok(Step::Use(Arc::clone(lane)));
            }
            state.retire(at);
        }
        let now = L::now();
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        if state.refused.is_some_and(|refused| now.saturating_duration_since(refused) < AUTH_PAUSE) {
            return Err(Error::Auth(Arc::clone(&server.name)));
        }
        if state.breaker.is_open(now) {
            return Err(Error::Down(Arc::clone(&server.name), state.reason.clone()));
        }
        if now >= deadline {
            return Err(Error::Timeout(Arc::clone(&server.name), Outcome::NotSent));
        }
        if state.dialing[at] {
            return Ok(Step::Wait);
        }
        state.dialing[at] = true;
        state.dials += 1;
        Ok(Step::Dial)
    }

    /// What came of a dial: the connection is everybody's from here on.
    ///
    /// # Errors
    /// The dial's own; or the client was closed meanwhile.
    pub fn dialed(&self, server: usize, at: usize, dialed: Result<Arc<L>, Error>) -> Result<Arc<L>, Error> {
        let server = &self.servers[server];
        let mut state = server.lock();
        state.dialing[at] = false;
        let closed = self.closed.load(Ordering::Acquire);
        let result = match dialed {
            Ok(lane) if closed => {
                lane.close(Error::Closed);
                Err(Error::Closed)
            }
            Err(_) if closed => Err(Error::Closed),
            Ok(lane) => {
                state.breaker.answered();
                state.lanes[at] = Some(Arc::clone(&lane));
                Ok(lane)
            }
            Err(error) => {
                match &error {
                    Error::Auth(_) => state.refused = Some(L::now()),
                    error => state.failed(error, L::now()),
                }
                Err(error)
            }
        };
        drop(state);
        L::tell(&server.dialed);
        result
    }

    /// What a new connection is to keep to.
    pub fn limits(&self) -> Limits {
        Limits {
            in_flight: self.config.in_flight,
            stall: self.config.stall_timeout,
            verify: self.config.verify,
        }
    }

    /// Tells the breaker of a server what an error of a request on this lane says about it.
    pub fn note(&self, server: usize, lane: &L, error: &Error) {
        match error {
            Error::Timeout(..) => self.was_late(server, lane),
            Error::Lost(..) | Error::Protocol(..) => self.was_lost(server, error),
            _ => {}
        }
    }

    /// A request to this server was late, of a lane that has made so many.
    fn was_late(&self, server: usize, lane: &L) {
        let requests = lane.counters().requests;
        let mut state = self.servers[server].lock();
        state.breaker.late(L::now(), requests);
        state.reason = LATE;
    }

    /// A connection to this server was lost or given up.
    fn was_lost(&self, server: usize, error: &Error) {
        let server = &self.servers[server];
        let mut state = server.lock();
        // A connection fails for all who used it: it counts once.
        if (0..LANES).any(|at| state.lanes[at].as_ref().is_some_and(|lane| !lane.is_alive())) {
            (0..LANES).for_each(|at| state.retire(at));
            state.failed(error, L::now());
        }
    }

    /// The sockets that are open, at most two a server; takes no lock.
    pub fn sockets(&self) -> impl Iterator<Item = OpenSocket> {
        self.servers.iter().flat_map(|server| &server.sockets).filter_map(|open| open.socket())
    }

    /// What all connections did, and how many were made.
    pub fn counters(&self) -> (Counters, u64) {
        let mut sum = Counters::default();
        let mut dials = 0;
        for server in &self.servers {
            let state = server.lock();
            dials += state.dials;
            sum = add(sum, state.counters);
            sum = state.lanes.iter().flatten().map(|lane| lane.counters()).fold(sum, add);
        }
        (sum, dials)
    }

    /// Fails what waits, and what comes.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for server in &self.servers {
            let lanes: Vec<_> = server.lock().lanes.iter().flatten().cloned().collect();
            lanes.iter().for_each(|lane| lane.close(Error::Closed));
            // The last caller under way closes the socket.
            let mut state = server.lock();
            (0..LANES).for_each(|at| state.retire(at));
            drop(state);
            L::tell(&server.dialed);
        }
    }
}

impl<L: Line> Drop for Fleet<L> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<L: Line> Server<L> {
    /// Its connections.
    pub fn lock(&self) -> MutexGuard<'_, State<L>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Line> State<L> {
    /// Tells the breaker why a connection could not be made, or ended.
    fn failed(&mut self, error: &Error, now: Instant) {
        self.breaker.failed(now);
        self.reason = match error {
            Error::Down(_, reason) | Error::Lost(_, reason, _) => reason.clone(),
            _ => Reason::said("what it answered was not understood"),
        };
    }

    /// Forgets a lane that is gone.
    fn retire(&mut self, at: usize) {
        if let Some(lane) = self.lanes[at].take_if(|lane| !lane.is_alive()) {
            self.counters = add(self.counters, lane.counters());
        }
    }
}

fn add(a: Counters, b: Counters) -> Counters {
    Counters {
        requests: a.requests + b.requests,
        writes: a.writes + b.writes,
        reads: a.reads + b.reads,
        overdue: a.overdue + b.overdue,
    }
}
