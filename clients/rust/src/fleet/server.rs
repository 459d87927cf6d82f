//! One server: its connections, and what is known of it.

use crate::breaker::Breaker;
use crate::error::{Error, Reason};
use crate::event::Change;
use crate::line::Line;
use crate::op::Counters;
use crate::server::Server as Configured;
use crate::socket::OpenFd;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Why a server that answers is not asked.
const LATE: Reason = Reason::said("half of its answers came too late");

/// One of the servers.
#[derive(Debug)]
pub struct Server<L: Line> {
    pub name: Arc<str>,
    pub address: String,
    /// The sockets of its lanes, in the same order.
    pub sockets: Vec<Arc<OpenFd>>,
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

/// A lane, or what is known of making its connection.
#[derive(Debug)]
pub(super) struct LaneState<L> {
    pub(super) lane: Option<Arc<L>>,
    /// Since when a caller makes the connection, if one does.
    pub(super) dialing: Option<Instant>,
    /// The server's failures when the last dial for this lane began, or when the server last answered a dial beside its lane.
    pub(super) failures: u64,
}

/// A server's connections, and what is known of the server.
#[derive(Debug)]
pub struct State<L> {
    /// The lanes for most requests, and behind them the one for large values.
    pub(super) lane_states: Vec<LaneState<L>>,
    /// Failed dials and lost connections that the breaker was told of. A dial that began before the last of them tells nothing
    /// new by failing, nor does a lost connection, unless the server has answered a dial since: a server that ends fails on all
    /// its lanes at once.
    pub(super) failures: u64,
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
    /// A server with this many lanes.
    pub(super) fn new(server: &Configured, lanes: usize, random: &RandomState) -> Server<L> {
        Server {
            name: server.name().into(),
            address: server.address.clone(),
            sockets: (0..lanes).map(|_| Arc::default()).collect(),
            state: Mutex::new(State {
                lane_states: (0..lanes)
                    .map(|_| LaneState { lane: None, dialing: None, failures: 0 })
                    .collect(),
                failures: 0,
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

    /// Whether the server is down: it did not answer, and its pause is not over, or another caller tries it.
    pub(super) fn is_down(&self) -> bool {
        let state = self.lock();
        state.breaker.is_open(L::now()) || state.breaker.is_tried() && state.is_dialed()
    }

    /// Notes that a request was late. Returns what became of the server by it.
    pub(super) fn was_late(&self) -> Option<Change> {
        let mut state = self.lock();
        let was_down = state.breaker.is_tried();
        let requests = state.counted().requests;
        state.breaker.late(L::now(), requests);
        state.reason = LATE;
        state.turn(was_down)
    }

    /// Notes that a connection was lost or given up. Returns what became of the server by it.
    pub(super) fn was_lost(&self, error: &Error) -> Option<Change> {
        let mut state = self.lock();
        let was_down = state.breaker.is_tried();
        // A lost connection fails for all its callers: it counts once.
        let is_news = state.lane_states.iter().any(|lane| lane.is_over() && lane.failures == state.failures);
        (0..state.lane_states.len()).for_each(|at| state.retire(at));
        if is_news {
            state.failed(error, L::now());
        }
        state.turn(was_down)
    }
}

impl<L: Line> LaneState<L> {
    /// Whether its connection has ended.
    fn is_over(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| !lane.is_alive())
    }
}

impl<L: Line> State<L> {
    /// The lanes that there are.
    pub(super) fn lanes(&self) -> impl Iterator<Item = &Arc<L>> {
        self.lane_states.iter().filter_map(|lane| lane.lane.as_ref())
    }

    /// Whether a caller makes a connection, for whichever lane.
    pub(super) fn is_dialed(&self) -> bool {
        self.lane_states.iter().any(|lane| lane.dialing.is_some())
    }

    /// What all connections have done, those that have ended among them.
    pub(super) fn counted(&self) -> Counters {
        self.lanes().map(|lane| lane.counters()).fold(self.counters, add)
    }

    /// Notes that the server has answered a dial: the next lane that is lost is news, however old it is.
    pub(super) fn answered(&mut self) {
        self.breaker.answered();
        for lane in &mut self.lane_states {
            if lane.lane.as_ref().is_some_and(|lane| lane.is_alive()) {
                lane.failures = self.failures;
            }
        }
    }

    /// Notes why a connection could not be made. The breaker is told of it if it is news.
    pub(super) fn refused(&mut self, error: &Error, is_news: bool, now: Instant) {
        match error {
            Error::Auth(_) => self.refused = Some(now),
            error if is_news => self.failed(error, now),
            _ => {}
        }
    }

    /// Tells the breaker why a connection could not be made, or why it ended.
    fn failed(&mut self, error: &Error, now: Instant) {
        self.failures += 1;
        self.breaker.failed(now);
        self.reason = match error {
            Error::Down(_, reason) | Error::Lost(_, reason, _) => reason.clone(),
            _ => Reason::said("what it answered was not understood"),
        };
    }

    /// The change since `was_down`: the server is down now, is back, or neither.
    pub(super) fn turn(&self, was_down: bool) -> Option<Change> {
        match (was_down, self.breaker.is_tried()) {
            (false, true) => Some(Change::Down(self.reason.clone())),
            (true, false) => Some(Change::Back),
            _ => None,
        }
    }

    /// Removes a lane that has ended.
    pub(super) fn retire(&mut self, at: usize) {
        if let Some(lane) = self.lane_states[at].lane.take_if(|lane| !lane.is_alive()) {
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
