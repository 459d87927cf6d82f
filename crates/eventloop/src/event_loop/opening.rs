//! Handshakes: streams that carry no bytes before stream and peer have agreed.
//!
//! ```text
//! bytes come ─► waiting, in order ─► one step in a turn, if no other connection waits or the last step's rest is over
//! ```
//!
//! A step is arithmetic that takes up to some milliseconds and cannot be divided. While connections that are past their handshake
//! wait, each step is followed by a rest of [`REST_SHARE`] times its duration, so that these connections have three quarters of
//! the time.

use std::collections::VecDeque;

use super::EventLoop;
use crate::Millis;
use crate::backend::Backend;
use crate::connections::Id;
use crate::handler::{Closed, Handler};

/// While others wait, a step is followed by a rest of so many times its duration.
const REST_SHARE: u64 = 3;

/// Entries of ended connections that the order of arrival may hold, beyond twice the number of live ones.
const ENDED_MAX: usize = 64;

/// Connections whose handshakes are under way.
#[derive(Debug, Default)]
pub(super) struct Openings {
    count: usize,
    /// Those that can take their next step, in order.
    waiting: VecDeque<Id>,
    /// All of them in order of arrival, and some that have ended since.
    arrived: VecDeque<Id>,
    /// Events of this turn that belong to handshakes.
    events: usize,
    /// While others wait, no step is taken before this time.
    rests_until_ns: u64,
}

impl Openings {
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn end(&mut self) {
        self.count -= 1;
    }

    /// Queues a connection that can take its next step.
    pub fn wait(&mut self, id: Id) {
        self.waiting.push_back(id);
    }

    #[inline]
    pub fn any_wait(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn note_event(&mut self) {
        self.events += 1;
    }
}

impl<B: Backend, C> EventLoop<B, C> {
    /// Number of connections in their handshakes.
    #[inline]
    pub fn opening(&self) -> usize {
        self.openings.count
    }

    /// Takes the next handshake step of one connection, unless others wait and a rest is under way. `events` and `queued` count
    /// what the turn had of all connections.
    #[cold]
    pub(super) fn open_next<H: Handler<Connection = C>>(
        &mut self,
        handler: &mut H,
        events: usize,
        queued: usize,
    ) {
        let others_wait = events > std::mem::take(&mut self.openings.events) || queued > 0;
        let begun_ns = self.backend.exact_ns();
        if others_wait && begun_ns < self.openings.rests_until_ns {
            return;
        }
        while let Some(id) = self.openings.waiting.pop_front() {
            let Some(connection) = self.connections.find(id) else { continue };
            connection.queued = false;
            self.receive_rest(handler, id);
            let took_ns = self.backend.exact_ns().saturating_sub(begun_ns);
            self.openings.rests_until_ns = begun_ns + took_ns * (1 + REST_SHARE);
            handler.stream_opened(took_ns);
            self.send_deferred(handler);
            return;
        }
    }

    /// Closes the oldest connection whose handshake is under way and whose peer has sent nothing for `silent_ms`; false if there
    /// is none.
    pub fn close_silent_opening<H: Handler<Connection = C>>(
        &mut self,
        handler: &mut H,
        silent_ms: Millis,
    ) -> bool {
        let now = self.backend.now();
        let mut arrived = std::mem::take(&mut self.openings.arrived);
        let is_silent = |connections: &mut EventLoop<B, C>, id: Id| {
            let connection = connections.connections.find(id);
            connection.is_some_and(|connection| {
                let silent = now.saturating_sub(connection.received_at) >= silent_ms;
                connection.opening.is_some() && !connection.queued && silent
            })
        };
        let found = arrived.iter().position(|&id| is_silent(self, id));
        let id = found.and_then(|at| arrived.remove(at));
        self.openings.arrived = arrived;
        if let Some(id) = id {
            self.close(handler, id, Closed::Unauthenticated);
        }
        id.is_some()
    }

    /// Counts a new connection whose handshake begins.
    pub(super) fn begin_opening(&mut self, id: Id) {
        let Openings { count, arrived, .. } = &mut self.openings;
        if arrived.len() > 2 * *count + ENDED_MAX {
            let connections = &mut self.connections;
            arrived.retain(|&id| connections.find(id).is_some_and(|connection| connection.opening.is_some()));
        }
        *count += 1;
        arrived.push_back(id);
    }
}
