//! The servers and their connections: each has lanes for most requests, of which a key always has the same, and one for large
//! values, made when first needed. A caller that needs a connection that does not exist makes it for all callers: by `dial.rs`,
//! or by `tokio/dial.rs`. The breaker of a server (`breaker.rs`) is told how requests and dials ended.
//!
//! A key's requests go to the server that the placement says (`place.rs`). While it is down they fail, or go to a server that
//! stands in for it, as `failure.rs` says.
//!
//! The list of servers may change. A call keeps the list of the moment in which it began. Requests under way at a server that
//! goes are still answered; its connections end with the last caller that waits on them.

mod server;
#[cfg(test)]
mod tests;

pub use server::{Server, State, Step};

use crate::config::Config;
#[cfg(feature = "discovery")]
use crate::discovery::Watch;
use crate::error::{Error, Outcome, Reason};
use crate::failure::Failure;
use crate::hashes::fnv1a;
use crate::line::Line;
use crate::loads::Loads;
use crate::op::Counters;
use crate::pipe::Limits;
use crate::place::Placement;
use crate::server::Server as Configured;
use crate::socket::OpenSocket;
use server::add;
use std::fmt::Debug;
use std::hash::RandomState;
#[cfg(feature = "discovery")]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// How long no connection is tried after user and password were refused.
const AUTH_PAUSE: Duration = Duration::from_secs(5);
/// Why a connection could not be made.
pub const SLOW: Reason = Reason::said("it does not greet in time");
const GONE: Reason = Reason::said("it is no longer one of the servers");
/// The error of calls whose requests were not sent; [`Error::with`] gives it the outcome of those that were.
const CLOSED: Error = Error::Closed(Outcome::NotSent);

/// State that all clones of a client share.
#[derive(Debug)]
pub struct Shared<L: Line> {
    pub fleet: Fleet<L>,
    pub unreported: AtomicU64,
    pub loads: Loads<L>,
    /// The thread that asks for the list of servers; it ends with this.
    #[cfg(feature = "discovery")]
    watch: OnceLock<Watch>,
}

impl<L: Line> Shared<L> {
    /// # Errors
    /// [`Error::Config`].
    #[cfg(not(feature = "discovery"))]
    pub fn new(config: Config) -> Result<Arc<Shared<L>>, Error> {
        let (fleet, unreported, loads) = (Fleet::new(config)?, AtomicU64::new(0), Loads::default());
        Ok(Arc::new(Shared { fleet, unreported, loads }))
    }

    /// # Errors
    /// [`Error::Config`].
    #[cfg(feature = "discovery")]
    pub fn new(mut config: Config) -> Result<Arc<Shared<L>>, Error> {
        let discovery = config.discovery.clone();
        if let Some(discovery) = &discovery
            && config.servers.is_empty()
        {
            config.servers = discovery.ask().map_err(|error| Error::Config(error.to_string()))?;
        }
        let (fleet, unreported) = (Fleet::new(config)?, AtomicU64::new(0));
        let loads = Loads::default();
        let shared = Arc::new(Shared { fleet, unreported, loads, watch: OnceLock::new() });
        if let Some(discovery) = discovery {
            let weak = Arc::downgrade(&shared);
            let watch = discovery.watch(&shared.fleet.config.servers, move |servers| match weak.upgrade() {
                Some(shared) => shared.fleet.change(servers),
                None => Err(CLOSED),
            });
            let watch = watch.map_err(|error| Error::Config(error.to_string()))?;
            shared.watch.set(watch).expect("only one is begun");
        }
        Ok(shared)
    }
}

/// A client, blocking or async.
pub trait Front: Clone + Debug {
    /// Its connections.
    type Line: Line;

    /// The state that its clones share.
    fn shared(&self) -> &Arc<Shared<Self::Line>>;

    /// Its servers.
    fn fleet(&self) -> &Fleet<Self::Line> {
        &self.shared().fleet
    }

    /// When a call that begins now has to end.
    fn deadline(&self) -> Instant {
        Self::Line::now() + self.fleet().config.timeout
    }
}

/// All servers of a client.
#[derive(Debug)]
pub struct Fleet<L: Line> {
    pub config: Config,
    list: RwLock<Arc<List<L>>>,
    /// Grows with each new list.
    version: AtomicU64,
    gone: Mutex<Gone<L>>,
    closed: AtomicBool,
    random: RandomState,
}

/// A list of servers. It never changes.
#[derive(Debug)]
pub struct List<L: Line> {
    /// The servers that keys belong to, and the placement of keys. Servers that stand in for others follow in `servers`.
    configured: Vec<Configured>,
    placement: Placement,
    gutter: Option<Arc<Placement>>,
    servers: Vec<Arc<Server<L>>>,
}

/// Connections of servers that are no longer on the list.
#[derive(Debug)]
struct Gone<L: Line> {
    /// Callers may still wait on these.
    lanes: Vec<Weak<L>>,
    /// Callers may still have connections for one caller of these.
    servers: Vec<Weak<Server<L>>>,
    counters: Counters,
    dials: u64,
}

/// The server that gets a key's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its index in the list.
    pub server: usize,
    /// The server stands in for the key's own: what is stored there lives for this many seconds at most.
    pub ttl_max: Option<i64>,
}

/// The target of a call's requests.
#[derive(Debug)]
pub struct Aim<L: Line> {
    list: Arc<List<L>>,
    pub target: Target,
}

impl<L: Line> Aim<L> {
    /// The target of a key's requests at this moment.
    pub fn new(fleet: &Fleet<L>, key: &[u8]) -> Aim<L> {
        let list = fleet.list();
        Aim { target: fleet.target(&list, key), list }
    }

    /// The server to ask.
    pub fn server(&self) -> &Arc<Server<L>> {
        self.list.server(self.target.server)
    }

    /// The server was found to be down: moves on to the one that stands in for it; false if there is none.
    pub fn moves_on(&mut self, fleet: &Fleet<L>, key: &[u8]) -> bool {
        let list = fleet.list();
        if !Arc::ptr_eq(&list, &self.list) {
            *self = Aim { target: fleet.target(&list, key), list };
            return true;
        }
        let stood_in = self.target.ttl_max.is_some();
        match fleet.instead(&self.list, key) {
            Some(other) if !stood_in && other.server != self.target.server => {
                self.target = other;
                true
            }
            _ => false,
        }
    }
}

impl<L: Line> List<L> {
    /// Number of servers that keys belong to.
    pub fn len(&self) -> usize {
        self.configured.len()
    }

    /// All servers, including those that stand in for others.
    pub fn all(&self) -> &[Arc<Server<L>>] {
        &self.servers
    }

    /// The index of the server for a key.
    pub fn pick(&self, key: &[u8]) -> usize {
        self.placement.pick(key)
    }

    /// The server with this index.
    pub fn server(&self, server: usize) -> &Arc<Server<L>> {
        &self.servers[server]
    }
}

impl<L: Line> Fleet<L> {
    /// Makes the servers of a configuration. Nothing is dialed.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn new(config: Config) -> Result<Fleet<L>, Error> {
        let place = |servers| Placement::new(config.preset, servers).map_err(Error::Config);
        let (placement, random) = (place(&config.servers)?, RandomState::new());
        let others = config.failure.gutter();
        let gutter = others.map(|others| place(others).map(Arc::new)).transpose()?;
        let fresh = |server| Arc::new(Server::new(server, config.lanes + 1, &random));
        let servers = config.servers.iter().chain(others.unwrap_or_default()).map(fresh).collect();
        let list = List { configured: config.servers.clone(), placement, gutter, servers };
        Ok(Fleet {
            list: RwLock::new(Arc::new(list)),
            version: AtomicU64::new(0),
            gone: Mutex::new(Gone {
                lanes: Vec::new(),
                servers: Vec::new(),
                counters: Counters::default(),
                dials: 0,
            }),
            closed: AtomicBool::new(false),
            config,
            random,
        })
    }

    /// Lanes of each server: those for most requests, and behind them one for large values.
    pub fn lanes(&self) -> usize {
        self.config.lanes + 1
    }

    /// The index of the lane for a request with this key and, if it stores, this value. Requests without a key have the first.
    pub fn lane_of(&self, key: &[u8], value: Option<&[u8]>) -> usize {
        let lanes = self.config.lanes;
        if value.is_some_and(|value| value.len() >= self.config.large_bytes) {
            lanes
        } else if lanes == 1 || key.is_empty() {
            0
        } else {
            fnv1a(key) as usize % lanes
        }
    }

    /// The present list.
    pub fn list(&self) -> Arc<List<L>> {
        Arc::clone(&self.list.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of the present list. Each list has its own.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Replaces the list of servers. Servers that stay keep their connections.
    ///
    /// # Errors
    /// [`Error::Config`], and the list stays as it was; or the client is closed.
    pub fn change(&self, configured: Vec<Configured>) -> Result<(), Error> {
        let placement = Placement::new(self.config.preset, &configured).map_err(Error::Config)?;
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if self.closed.load(Ordering::Acquire) {
            return Err(CLOSED);
        }
        let before = Arc::clone(&list);
        let (own, others) = before.servers.split_at(before.len());
        let mut stays = vec![false; own.len()];
        let mut servers = Vec::new();
        for server in &configured {
            let is_same = |at: &usize| {
                let old = &before.configured[*at];
                !stays[*at] && (&old.address, &old.name) == (&server.address, &server.name)
            };
            servers.push(match (0..own.len()).find(is_same) {
                Some(at) => {
                    stays[at] = true;
                    Arc::clone(&own[at])
                }
                None => Arc::new(Server::new(server, self.lanes(), &self.random)),
            });
        }
        servers.extend_from_slice(others);
        *list = Arc::new(List { configured, placement, gutter: before.gutter.clone(), servers });
        self.version.fetch_add(1, Ordering::Release);
        let gone = own.iter().zip(stays).filter(|(_, stays)| !stays);
        gone.for_each(|(server, _)| self.dismiss(server));
        Ok(())
    }

    /// Takes a server off the list: its connections end when their owed replies have arrived.
    fn dismiss(&self, server: &Arc<Server<L>>) {
        let mut state = server.lock();
        state.is_gone = true;
        let lanes: Vec<Arc<L>> = state.lane_states.iter_mut().filter_map(|lane| lane.lane.take()).collect();
        let counters = lanes.iter().map(|lane| lane.counters()).fold(state.counters, add);
        let dials = state.dials;
        drop(state);
        L::tell(&server.dialed);
        lanes.iter().for_each(|lane| lane.retire());
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.lanes.retain(|lane| lane.strong_count() > 0);
        gone.lanes.extend(lanes.iter().map(Arc::downgrade));
        gone.servers.retain(|server| server.strong_count() > 0);
        gone.servers.push(Arc::downgrade(server));
        gone.counters = add(gone.counters, counters);
        gone.dials += dials;
    }

    /// The target of a key's requests: its own server, or while that is down another, as the configuration says.
    pub fn target(&self, list: &List<L>, key: &[u8]) -> Target {
        let own = Target { server: list.pick(key), ttl_max: None };
        match self.config.failure {
            Failure::FailFast => own,
            _ if !list.server(own.server).is_down() => own,
            _ => self.instead(list, key).unwrap_or(own),
        }
    }

    /// The target in place of the key's own server, which does not answer; `None` if no server stands in for it.
    pub fn instead(&self, list: &List<L>, key: &[u8]) -> Option<Target> {
        let server = match &self.config.failure {
            Failure::FailFast => return None,
            Failure::Gutter { .. } => list.len() + list.gutter.as_ref()?.pick(key),
            Failure::Rehash { .. } => {
                let is_up = |at: &usize| !list.server(*at).is_down();
                // All clients that know the same servers to be down choose the same server.
                let again = |attempt: usize| list.pick(&[attempt.to_string().as_bytes(), key].concat());
                let own = list.pick(key);
                let mut others = (0..2 * list.len()).map(again).chain(0..list.len()).filter(|&at| at != own);
                others.find(is_up)?
            }
        };
        Some(Target { server, ttl_max: Some(self.config.failure.ttl_max()) })
    }

    /// What a caller that needs a connection to a server has to do.
    ///
    /// # Errors
    /// The server is down, or refuses this client; the time is over; or the client is closed.
    pub fn step(
        &self,
        server: &Server<L>,
        state: &mut State<L>,
        at: usize,
        deadline: Instant,
    ) -> Result<Step<L>, Error> {
        // Requests under way may still use its lanes.
        if self.is_closed() {
            return Err(CLOSED);
        }
        if let Some(lane) = &state.lane_states[at].lane {
            if lane.is_alive() {
                return Ok(Step::Use(Arc::clone(lane)));
            }
            state.retire(at);
        }
        let now = L::now();
        self.admitted(server, state, now)?;
        if now >= deadline {
            return Err(Error::Timeout(Arc::clone(&server.name), Outcome::NotSent));
        }
        // A server that was down is tried by one caller, for all lanes.
        if state.lane_states[at].dialing.is_some() || state.breaker.is_tried() && state.is_dialed() {
            return Ok(Step::Wait);
        }
        state.lane_states[at].dialing = Some(now);
        state.lane_states[at].failures = state.failures;
        state.dials += 1;
        Ok(Step::Dial)
    }

    /// Checks that the server may be dialed.
    fn admitted(&self, server: &Server<L>, state: &State<L>, now: Instant) -> Result<(), Error> {
        if self.is_closed() {
            return Err(CLOSED);
        }
        if state.is_gone {
            return Err(Error::Down(Arc::clone(&server.name), GONE));
        }
        if state.refused.is_some_and(|refused| now.saturating_duration_since(refused) < AUTH_PAUSE) {
            return Err(Error::Auth(Arc::clone(&server.name)));
        }
        if state.breaker.is_open(now) {
            return Err(Error::Down(Arc::clone(&server.name), state.reason.clone()));
        }
        Ok(())
    }

    /// Checks that the server may be dialed.
    ///
    /// # Errors
    /// The server is down, or refuses this client; or the client is closed.
    pub fn admit(&self, server: &Server<L>) -> Result<(), Error> {
        self.admitted(server, &server.lock(), L::now())
    }

    /// Notes the result of a dial for one caller that began then: `error`, or success.
    pub fn tried(&self, server: &Server<L>, began: Option<Instant>, error: Option<&Error>) {
        let mut state = server.lock();
        state.dials += 1;
        let was_down = state.breaker.is_tried();
        match error {
            None => state.answered(),
            Some(error) => state.refused(error, true, L::now()),
        }
        let turn = state.turn(was_down);
        drop(state);
        // A dial that ends after the client was closed is no event, as with other dials.
        if !self.is_closed() {
            self.connects(&server.name, began, error);
        }
        self.turns(&server.name, turn.as_ref());
    }

    /// Whether the client is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Notes the result of a dial, and shares the new connection with all callers.
    ///
    /// # Errors
    /// The error of the dial; or the client was closed meanwhile.
    pub fn dialed(
        &self,
        server: &Server<L>,
        at: usize,
        dialed: Result<Arc<L>, Error>,
    ) -> Result<Arc<L>, Error> {
        let mut state = server.lock();
        let began = state.lane_states[at].dialing.take();
        let is_news = state.lane_states[at].failures == state.failures;
        let was_down = state.breaker.is_tried();
        let (closed, is_made) = (self.closed.load(Ordering::Acquire), dialed.is_ok());
        let result = match dialed {
            Ok(lane) if closed => {
                lane.close(CLOSED);
                Err(CLOSED)
            }
            Err(_) if closed => Err(CLOSED),
            Ok(lane) if state.is_gone => {
                lane.retire();
                Err(Error::Down(Arc::clone(&server.name), GONE))
            }
            Ok(lane) => {
                state.lane_states[at].lane = Some(Arc::clone(&lane));
                state.answered();
                Ok(lane)
            }
            Err(error) => {
                state.refused(&error, is_news, L::now());
                Err(error)
            }
        };
        let turn = state.turn(was_down);
        drop(state);
        L::tell(&server.dialed);
        if !matches!(result, Err(Error::Closed(_))) {
            // A connection to a server that was removed meanwhile was made, too.
            let error = result.as_ref().err().filter(|_| !is_made);
            self.connects(&server.name, began, error);
        }
        self.turns(&server.name, turn.as_ref());
        result
    }

    /// The limits of a new connection.
    pub fn limits(&self) -> Limits {
        Limits {
            in_flight: self.config.in_flight,
            stall: self.config.stall_timeout,
            verify: self.config.verify,
        }
    }

    /// Tells the breaker of a server what an error of a request says about it.
    pub fn note(&self, server: &Server<L>, error: &Error) {
        let turn = match error {
            Error::Timeout(..) => server.was_late(),
            Error::Lost(..) | Error::Protocol(..) => server.was_lost(error),
            _ => None,
        };
        self.turns(&server.name, turn.as_ref());
    }

    /// The open sockets, at most one for each lane of a server. Takes no lock; returns none while the list changes.
    pub fn sockets(&self) -> Vec<OpenSocket> {
        let list = self.list.try_read();
        let servers = list.iter().flat_map(|list| &list.servers);
        servers.flat_map(|server| &server.sockets).filter_map(|open| open.socket()).collect()
    }

    /// The counters of all connections, and the number of connections made.
    pub fn counters(&self) -> (Counters, u64) {
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut sum, mut dials) = (gone.counters, gone.dials);
        drop(gone);
        for server in self.list().all() {
            let state = server.lock();
            dials += state.dials;
            sum = add(sum, state.counted());
        }
        (sum, dials)
    }

    /// Fails all calls to come.
    pub fn refuse(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether no call waits for a reply.
    pub fn is_idle(&self) -> bool {
        let mut lanes: Vec<Arc<L>> = Vec::new();
        let list = self.list();
        for server in list.all() {
            lanes.extend(server.lock().lanes().cloned());
        }
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.extend(gone.lanes.iter().filter_map(Weak::upgrade));
        let left: Vec<Arc<Server<L>>> = gone.servers.iter().filter_map(Weak::upgrade).collect();
        drop(gone);
        let mut servers = list.all().iter().chain(&left);
        lanes.iter().all(|lane| lane.is_idle()) && servers.all(|server| L::is_free(&server.alone))
    }

    /// Fails all calls, present and future.
    pub fn close(&self) {
        self.refuse();
        for server in self.list().all() {
            let lanes: Vec<_> = server.lock().lanes().cloned().collect();
            lanes.iter().for_each(|lane| lane.close(CLOSED));
            // The last caller under way closes the socket.
            let mut state = server.lock();
            (0..state.lane_states.len()).for_each(|at| state.retire(at));
            drop(state);
            L::tell(&server.dialed);
            L::end(&server.alone);
        }
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let (lanes, servers) = (std::mem::take(&mut gone.lanes), std::mem::take(&mut gone.servers));
        drop(gone);
        lanes.iter().filter_map(Weak::upgrade).for_each(|lane| lane.close(CLOSED));
        servers.iter().filter_map(Weak::upgrade).for_each(|server| L::end(&server.alone));
    }
}

impl<L: Line> Drop for Fleet<L> {
    fn drop(&mut self) {
        self.close();
    }
}
