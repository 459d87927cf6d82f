//! One server: its connections, and what is known of it.

use super::Line;
use crate::breaker::Breaker;
use crate::config;
use crate::error::{Error, Reason};
use crate::observe::Turn;
use crate::op::Counters;
use crate::socket::OpenFd;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Connections of a server: for most requests, and for large values.
pub const LANES: usize = 2;
/// Why a server that answers is not asked.
const LATE: Reason = Reason::said("half of its answers came too late");

/// One of the servers.
#[derive(Debug)]
pub struct Server<L: Line> {
    pub name: Arc<str>,
    pub address: String,
    pub sockets: [Arc<OpenFd>; LANES],
    state: Mutex<State<L>>,
    pub dialed: L::Dialed,
    pub alone: L::Alone,
}

/// How a caller gets a connection.
#[derive(Debug)]
pub enum Step<L> {
    /// The connection exists.
    Use(Arc<L>),
    /// The caller has to make it. No other caller does, until [`super::Fleet::dialed`] is called.
    Dial,
    /// Another caller is making it.
    Wait,
}

/// A server's connections, and what is known of the server.
#[derive(Debug)]
pub struct State<L> {
    pub(super) lanes: [Option<Arc<L>>; LANES],
    /// Since when a caller makes a connection for each lane, if one does.
    pub(super) dialing: [Option<Instant>; LANES],
    pub(super) breaker: Breaker,
    /// The last reason that was given to the breaker.
    pub(super) reason: Reason,
    pub(super) refused: Option<Instant>,
    /// The server was taken off the list.
    pub(super) is_gone: bool,
    /// Counters of connections that have ended.
    pub(super) counters: Counters,
    pub(super) dials: u64,
}

impl<L: Line> Server<L> {
    pub(super) fn new(server: &config::Server, random: &RandomState) -> Server<L> {
        Server {
            name: server.name().into(),
            address: server.address.clone(),
            sockets: Default::default(),
            state: Mutex::new(State {
                lanes: [None, None],
                dialing: [None; LANES],
                breaker: Breaker::new(random.hash_one(server.name())),
                reason: LATE,
                refused: None,
                is_gone: false,
                counters: Counters::default(),
                dials: 0,
            }),
            dialed: L::Dialed::default(),
            alone: L::Alone::default(),
        }
    }

    /// Locks the server's state.
    pub fn lock(&self) -> MutexGuard<'_, State<L>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server is down: it did not answer, and its pause is not over, or another caller tries it.
    pub(super) fn is_down(&self) -> bool {
        let state = self.lock();
        let is_dialed = state.dialing.iter().any(Option::is_some);
        state.breaker.is_open(L::now()) || state.breaker.is_tried() && is_dialed
    }

    /// Notes that a request on this lane was late. Returns what became of the server by it.
    pub(super) fn was_late(&self, lane: &L) -> Option<Turn> {
        let requests = lane.counters().requests;
        let mut state = self.lock();
        let was_down = state.breaker.is_tried();
        state.breaker.late(L::now(), requests);
        state.reason = LATE;
        state.turn(was_down)
    }

    /// Notes that a connection was lost or given up. Returns what became of the server by it.
    pub(super) fn was_lost(&self, error: &Error) -> Option<Turn> {
        let mut state = self.lock();
        let was_down = state.breaker.is_tried();
        // A lost connection fails for all its callers: it counts once.
        if (0..LANES).any(|at| state.lanes[at].as_ref().is_some_and(|lane| !lane.is_alive())) {
            (0..LANES).for_each(|at| state.retire(at));
            state.failed(error, L::now());
        }
        state.turn(was_down)
    }
}

impl<L: Line> State<L> {
    /// Notes why a connection could not be made.
    pub(super) fn refused(&mut self, error: &Error, now: Instant) {
        match error {
            Error::Auth(_) => self.refused = Some(now),
            error => self.failed(error, now),
        }
    }

    /// Tells the breaker why a connection could not be made, or why it ended.
    fn failed(&mut self, error: &Error, now: Instant) {
        self.breaker.failed(now);
        self.reason = match error {
            Error::Down(_, reason) | Error::Lost(_, reason, _) => reason.clone(),
            _ => Reason::said("what it answered was not understood"),
        };
    }

    /// The change since `was_down`: the server is down now, is back, or neither.
    pub(super) fn turn(&self, was_down: bool) -> Option<Turn> {
        match (was_down, self.breaker.is_tried()) {
            (false, true) => Some(Turn::Down(self.reason.clone())),
            (true, false) => Some(Turn::Back),
            _ => None,
        }
    }

    /// Removes a lane that has ended.
    pub(super) fn retire(&mut self, at: usize) {
        if let Some(lane) = self.lanes[at].take_if(|lane| !lane.is_alive()) {
            self.counters = add(self.counters, lane.counters());
        }
    }
}

/// The sum of both.
pub(super) fn add(a: Counters, b: Counters) -> Counters {
    Counters {
        requests: a.requests + b.requests,
        writes: a.writes + b.writes,
        reads: a.reads + b.reads,
        overdue: a.overdue + b.overdue,
    }
}
