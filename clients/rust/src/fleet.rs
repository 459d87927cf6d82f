//! The servers, each with its connections: one for most requests, and one for large values, made when it is first
//! needed. Who needs one that is not there makes it, for all who need it.

use crate::breaker::Breaker;
use crate::config::Config;
use crate::error::{Error, Outcome};
use crate::lane::{Counters, Lane, step};
use crate::pipe::Limits;
use crate::place::Placement;
use crate::socket::{Moved, Socket};
use larder_protocol::client::{Dialect, LINE_BYTES_MAX};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lanes of a server: for most requests, and for large values.
const LANES: usize = 2;
/// After a refusal of user and password there is no new try for so long.
const AUTH_PAUSE: Duration = Duration::from_secs(5);
/// The oldest server that speaks meta text as it is today.
const META_SINCE: [u32; 3] = [1, 6, 10];

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
    state: Mutex<State>,
    dialed: Condvar,
}

#[derive(Debug)]
struct State {
    lanes: [Option<Arc<Lane>>; LANES],
    dialing: [bool; LANES],
    breaker: Breaker,
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
            state: Mutex::new(State {
                lanes: [None, None],
                dialing: [false; LANES],
                breaker: Breaker::new(random.hash_one(at)),
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
                return Err(Error::Down(Arc::clone(&server.name)));
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
        let dialed = self.dial(server, limit);
        let mut state = server.lock();
        state.dialing[at] = false;
        let result = match dialed {
            Ok(lane) if self.closed.load(Ordering::Acquire) => {
                lane.close(Error::Closed);
                Err(Error::Closed)
            }
            Ok(lane) => {
                state.breaker.answered();
                let lane = Arc::new(lane);
                state.lanes[at] = Some(Arc::clone(&lane));
                Ok(lane)
            }
            Err(error) => {
                match error {
                    Error::Auth(_) => state.refused = Some(Instant::now()),
                    _ => state.breaker.failed(Instant::now()),
                }
                Err(error)
            }
        };
        drop(state);
        server.dialed.notify_all();
        result
    }

    fn dial(&self, server: &Server, limit: Duration) -> Result<Lane, Error> {
        let down = |_| Error::Down(Arc::clone(&server.name));
        let step = step(self.config.timeout);
        let until = Instant::now() + limit;
        let socket = Socket::connect(&server.address, limit, step).map_err(down)?;
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
        let lines = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == b'\n').count();
        if let Some((user, password)) = &self.config.auth {
            let value = format!("{user} {password}");
            let request = format!("set auth 0 0 {}\r\n{value}\r\n", value.len());
            let reply = ask(server, socket, request.as_bytes(), until, |reply| lines(reply) == 1)?;
            if reply != b"STORED\r\n" {
                return Err(Error::Auth(Arc::clone(&server.name)));
            }
        }
        let line = |request| -> Result<String, Error> {
            let reply = ask(server, socket, request, until, |reply| lines(reply) == 1)?;
            let text = String::from_utf8_lossy(&reply);
            if text.starts_with("CLIENT_ERROR unauthenticated") {
                return Err(Error::Auth(Arc::clone(&server.name)));
            }
            Ok(text.into_owned())
        };
        let down = || Error::Down(Arc::clone(&server.name));
        let speaks = match self.config.protocol {
            Some(Dialect::Meta) => Dialect::Meta,
            Some(Dialect::Classic) => {
                line(b"version\r\n")?.starts_with("VERSION ").then_some(Dialect::Classic).ok_or_else(down)?
            }
            None => {
                let text = line(b"version\r\n")?;
                if !text.starts_with("VERSION ") {
                    return Err(down());
                }
                if is_since(&text, META_SINCE) { Dialect::Meta } else { Dialect::Classic }
            }
        };
        // It may say what it likes about its version.
        if speaks == Dialect::Meta && line(b"mn\r\n")? != "MN\r\n" {
            return Err(down());
        }
        Ok(speaks)
    }

    /// A request to this server was late, of a lane that has made so many.
    pub fn was_late(&self, server: usize, lane: &Lane) {
        let requests = lane.counters().requests;
        self.servers[server].lock().breaker.late(Instant::now(), requests);
    }

    /// A connection to this server was lost or given up.
    pub fn was_lost(&self, server: usize) {
        let server = &self.servers[server];
        let mut state = server.lock();
        // A connection fails for all who used it: it counts once.
        if (0..LANES).any(|at| state.lanes[at].as_ref().is_some_and(|lane| !lane.is_alive())) {
            (0..LANES).for_each(|at| state.retire(at));
            state.breaker.failed(Instant::now());
        }
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

/// A question and its answer, on a connection on which nothing else is under way.
fn ask(
    server: &Server,
    socket: &Socket,
    request: &[u8],
    until: Instant,
    is_whole: impl Fn(&[u8]) -> bool,
) -> Result<Vec<u8>, Error> {
    let down = || Error::Down(Arc::clone(&server.name));
    if !matches!(socket.send(request), Moved::Bytes(sent) if sent == request.len()) {
        return Err(down());
    }
    let mut reply = vec![0; 2 * LINE_BYTES_MAX];
    let mut bytes = 0;
    while Instant::now() < until && bytes < reply.len() {
        match socket.receive(&mut reply[bytes..]) {
            Moved::Bytes(0) | Moved::Failed(_) => return Err(down()),
            Moved::Nothing => {}
            Moved::Bytes(more) => {
                bytes += more;
                if is_whole(&reply[..bytes]) {
                    reply.truncate(bytes);
                    return Ok(reply);
                }
            }
        }
    }
    Err(down())
}

/// "VERSION 1.6.45…" is this version or a later one.
fn is_since(text: &str, since: [u32; 3]) -> bool {
    let Some(version) = text.strip_prefix("VERSION ") else { return false };
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let version: [u32; 3] = std::array::from_fn(|_| parts.next().unwrap_or(0));
    version >= since
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_part_by_part() {
        for (text, meta) in [
            ("VERSION 1.6.10\r\n", true),
            ("VERSION 1.6.45-larder-0.1\r\n", true),
            ("VERSION 1.6.9\r\n", false),
            ("VERSION 1.5.22\r\n", false),
            ("VERSION 2.0\r\n", true),
            ("VERSION 1.6.21_6-gd0a2d4b\r\n", true),
            ("ERROR\r\n", false),
        ] {
            assert_eq!(is_since(text, META_SINCE), meta, "{text:?}");
        }
    }
}
