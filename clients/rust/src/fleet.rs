//! The servers, each with its connections: one for most requests, and one for large values, made when it is first
//! needed. Who needs one that is not there makes it, for all who need it.

use crate::breaker::Breaker;
use crate::config::Config;
use crate::error::{Error, Outcome, Reason};
use crate::greeting::{Greeting, Next};
use crate::lane::{CLOSED, Counters, Lane, step};
use crate::pipe::Limits;
use crate::place::Placement;
use crate::socket::{Moved, OpenFd, OpenSocket, Socket};
use larder_protocol::client::{Dialect, LINE_BYTES_MAX};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lanes of a server: for most requests, and for large values.
const LANES: usize = 2;
/// After a refusal of user and password there is no new try for so long.
const AUTH_PAUSE: Duration = Duration::from_secs(5);
/// Why a server is not asked that does answer.
const LATE: Reason = Reason::said("half of its answers came too late");
/// Why there is no connection.
const SLOW: Reason = Reason::said("it does not greet in time");

/// All servers.
#[derive(Debug)]
pub struct Fleet {
    pub config: Config,
    placement: Placement,
    servers: Vec<Server>,
    closed: AtomicBool,
}

#[derive(Debug)]
struct Server {
    name: Arc<str>,
    address: String,
    sockets: [Arc<OpenFd>; LANES],
    state: Mutex<State>,
    dialed: Condvar,
}

#[derive(Debug)]
struct State {
    lanes: [Option<Arc<Lane>>; LANES],
    dialing: [bool; LANES],
    breaker: Breaker,
    /// What the breaker was told last.
    reason: Reason,
    refused: Option<Instant>,
    /// Of lanes that are gone.
    counters: Counters,
    dials: u64,
}

impl Fleet {
    /// The servers of a configuration; nothing is dialed.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn new(config: Config) -> Result<Fleet, Error> {
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
            dialed: Condvar::new(),
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

    /// A connection to a server, made by now if there was none.
    ///
    /// # Errors
    /// It is down, does not let this client in, or could not be reached in time; or the client is closed.
    pub fn lane(&self, server: usize, large: bool, deadline: Instant) -> Result<Arc<Lane>, Error> {
        let (server, at) = (&self.servers[server], usize::from(large));
        let mut state = server.lock();
        loop {
            if let Some(lane) = &state.lanes[at] {
                if lane.is_alive() {
                    return Ok(Arc::clone(lane));
                }
                state.retire(at);
            }
            let now = Instant::now();
            if self.closed.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            if state.refused.is_some_and(|refused| now.duration_since(refused) < AUTH_PAUSE) {
                return Err(Error::Auth(Arc::clone(&server.name)));
            }
            if state.breaker.is_open(now) {
                return Err(Error::Down(Arc::clone(&server.name), state.reason.clone()));
            }
            if now >= deadline {
                return Err(Error::Timeout(Arc::clone(&server.name), Outcome::NotSent));
            }
            if !state.dialing[at] {
                break;
            }
            let waited = server.dialed.wait_timeout(state, deadline - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.dialing[at] = true;
        state.dials += 1;
        drop(state);
        let limit = self.config.dial_timeout.min(deadline.saturating_duration_since(Instant::now()));
        let dialed = self.dial(server, at, limit);
        let mut state = server.lock();
        state.dialing[at] = false;
        let result = match dialed {
            _ if self.closed.load(Ordering::Acquire) => Err(Error::Closed),
            Ok(lane) => {
                state.breaker.answered();
                let lane = Arc::new(lane);
                state.lanes[at] = Some(Arc::clone(&lane));
                Ok(lane)
            }
            Err(error) => {
                match &error {
                    Error::Auth(_) => state.refused = Some(Instant::now()),
                    error => state.failed(error),
                }
                Err(error)
            }
        };
        drop(state);
        server.dialed.notify_all();
        result
    }

    fn dial(&self, server: &Server, at: usize, limit: Duration) -> Result<Lane, Error> {
        let down = |error: io::Error| Error::Down(Arc::clone(&server.name), error.into());
        let step = step(self.config.timeout);
        let until = Instant::now() + limit;
        let socket = Socket::connect(&server.address, limit, step, &server.sockets[at]).map_err(down)?;
        let dialect = self.greet(server, &socket, until)?;
        let limits = Limits {
            in_flight: self.config.in_flight,
            stall: self.config.stall_timeout,
            verify: self.config.verify,
        };
        Ok(Lane::new(Arc::clone(&server.name), socket, dialect, limits, step))
    }

    /// Shows who this is, and asks what the server speaks.
    fn greet(&self, server: &Server, socket: &Socket, until: Instant) -> Result<Dialect, Error> {
        let (mut greeting, mut text) = Greeting::new(&self.config);
        loop {
            let line = ask(server, socket, &text, until)?;
            match greeting.heard(&server.name, &line)? {
                Next::Say(next) => text = next,
                Next::Speaks(dialect) => return Ok(dialect),
            }
        }
    }

    /// A request to this server was late, of a lane that has made so many.
    pub fn was_late(&self, server: usize, lane: &Lane) {
        let requests = lane.counters().requests;
        let mut state = self.servers[server].lock();
        state.breaker.late(Instant::now(), requests);
        state.reason = LATE;
    }

    /// A connection to this server was lost or given up.
    pub fn was_lost(&self, server: usize, error: &Error) {
        let server = &self.servers[server];
        let mut state = server.lock();
        // A connection fails for all who used it: it counts once.
        if (0..LANES).any(|at| state.lanes[at].as_ref().is_some_and(|lane| !lane.is_alive())) {
            (0..LANES).for_each(|at| state.retire(at));
            state.failed(error);
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
            server.dialed.notify_all();
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.close();
    }
}

impl Server {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Tells the breaker why a connection could not be made, or ended.
    fn failed(&mut self, error: &Error) {
        self.breaker.failed(Instant::now());
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

/// A question and the line that answers it, on a connection on which nothing else is under way.
fn ask(server: &Server, socket: &Socket, text: &[u8], until: Instant) -> Result<Vec<u8>, Error> {
    let down = |reason| Error::Down(Arc::clone(&server.name), reason);
    match socket.send(text) {
        Moved::Bytes(sent) if sent == text.len() => {}
        Moved::Failed(reason) => return Err(down(reason)),
        Moved::Bytes(_) | Moved::Nothing => return Err(down(SLOW)),
    }
    let mut reply = vec![0; 2 * LINE_BYTES_MAX];
    let mut bytes = 0;
    while Instant::now() < until && bytes < reply.len() {
        match socket.receive(&mut reply[bytes..]) {
            Moved::Bytes(0) => return Err(down(CLOSED)),
            Moved::Failed(reason) => return Err(down(reason)),
            Moved::Nothing => {}
            Moved::Bytes(more) => {
                bytes += more;
                if reply[..bytes].contains(&b'\n') {
                    reply.truncate(bytes);
                    return Ok(reply);
                }
            }
        }
    }
    Err(down(SLOW))
}
