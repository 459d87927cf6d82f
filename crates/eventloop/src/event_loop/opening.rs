//! Streams that have to agree with their peers before they carry bytes.
//!
//! ```text
//! bytes come ─► waiting, in order ─► one step in a turn, if nobody else waits or the last step's rest is over
//! ```
//!
//! A step is arithmetic that takes up to some milliseconds and cannot be cut. While connections wait that are served
//! already, a step is followed by a rest of [`REST_SHARE`] times what it took, so that they have three quarters of the time.

use std::collections::VecDeque;

use super::EventLoop;
use crate::Millis;
use crate::backend::Backend;
use crate::connections::Id;
use crate::handler::{Closed, Handler};

/// A step is followed by a rest of so many times what it took while others wait.
const REST_SHARE: u64 = 3;

/// Entries of ended ones that are kept in the order of arrival, beside as many again as there are of live ones.
const ENDED_MAX: usize = 64;

/// Connections whose streams and peers have not agreed yet.
#[derive(Debug, Default)]
pub(super) struct Openings {
    count: usize,
    /// Those that have something to go on with, in order.
    waiting: VecDeque<Id>,
    /// All of them by their arrival, and some that have ended since.
    arrived: VecDeque<Id>,
    /// Events of this turn that were theirs.
    events: usize,
    /// While others wait there is no step before.
    rests_until_ns: u64,
}

impl Openings {
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn end(&mut self) {
        self.count -= 1;
    }

    /// It has something to go on with.
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
    /// Connections whose streams have not agreed with their peers.
    #[inline]
    pub fn opening(&self) -> usize {
        self.openings.count
    }

    /// The step of a turn in which there were so many events, of all connections, and so many were queued.
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
            self.send_held(handler);
            return;
        }
    }

    /// Closes the connection that came first of those whose streams are agreeing with peers that have said nothing for
    /// `silent_ms`; false if there is none.
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
            self.close(handler, id, Closed::Stranger);
        }
        id.is_some()
    }

    /// A connection comes whose stream has to agree with its peer.
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
