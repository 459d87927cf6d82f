//! How connections end: at once, after their replies, by a timeout, or all together when the loop is drained.

use super::{EventLoop, Limits};
use crate::Millis;
use crate::backend::{Backend, Between, Stream};
use crate::connections::Id;
use crate::handler::{Closed, Handler};

/// Interval of the sweep for timeouts, while any can be due.
const SWEEP_MS: Millis = 1000;

/// Most connections that one turn checks in a sweep.
const SWEEP_LOOKS_MAX: usize = 4096;
/// Most connections that one turn closes in a sweep, at some 20 µs each: thousands may be due at once.
const SWEEP_CLOSES_MAX: usize = 32;

/// Receives by which the loop takes the late bytes of a drained connection, to drop them.
const LATE_RECEIVES_MAX: usize = 64;

impl<B: Backend, C> EventLoop<B, C> {
    /// Starts to drain the loop: connections end as soon as they have the replies to all requests that have arrived, kept ones
    /// and those that wait in the system. Bytes that arrive later are not received. A connection that takes none of its replies
    /// for `stall_ms` is closed. Call [`EventLoop::turn`] until [`EventLoop::is_empty`] or patience ends.
    pub fn drain<H: Handler<Connection = C>>(&mut self, handler: &mut H, stall_ms: Millis) {
        self.draining = true;
        (self.limits.stall_ms, self.limits.request_ms) = (stall_ms, stall_ms);
        self.sweep_at = self.sweep_at.min(self.backend.now() + SWEEP_MS);
        for index in 0..self.connections.entries() {
            let Some((id, _)) = self.connections.at(index) else { continue };
            if let Some(connection) = self.connections.find(id) {
                connection.owed = connection.stream.pending();
            }
            self.send_and_arrange(handler, id, None);
        }
    }

    /// Ends a connection of a drained loop for which no more replies are made, at once or when the last is sent. True if it has
    /// ended.
    #[cold]
    pub(super) fn had_all<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id) -> bool {
        let Some(connection) = self.connections.find(id) else { return true };
        if connection.stream.between().is_some() {
            // The stream has turned the system's bytes into a different number of bytes, or into none that are complete.
            connection.owed = connection.owed.min(connection.stream.pending());
        }
        // A connection that waits to be woken may never be. One whose time has come continues in the next turn, and so does one
        // whose reply is to come.
        let now = self.backend.now();
        let sleeps_on = connection.sleeps.is_none_or(|at| at > now);
        let awaits = connection.awaits && sleeps_on && !handler.must_end(&connection.state);
        if connection.owed == 0 && !connection.again || awaits {
            let why = *connection.closing.get_or_insert(Closed::Drained);
            if connection.unsent == 0 {
                self.close(handler, id, why);
                return true;
            }
        }
        false
    }

    /// Ends a connection at once, whatever it waits for.
    pub fn close<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id, why: Closed) {
        self.send_deferred(handler);
        if let Some(mut connection) = self.connections.remove(id) {
            self.waiting -= usize::from(connection.unsent > 0);
            self.receiving -= usize::from(connection.receiving);
            if connection.opening.is_some() {
                self.openings.end();
            }
            if let Some(at) = connection.sleeps {
                self.asleep.remove(&(at, id));
            }
            if connection.kept.capacity() > 0 {
                self.kept_bytes -= connection.kept.capacity();
                handler.lets_go(self.kept_bytes);
            }
            if why != Closed::Error {
                connection.stream.finish();
            } else if let Some(failure) = connection.stream.take_failure() {
                handler.stream_failed(&mut connection.state, &failure);
            }
            if why == Closed::Drained || connection.between.worn {
                // A socket that is closed with unread bytes is reset, and replies under way are lost.
                let late = |_: &usize| matches!(connection.stream.recv(&mut self.buffer), Ok(1..));
                (0..LATE_RECEIVES_MAX).take_while(late).for_each(drop);
            }
            if connection.between != Between::default() {
                handler.stream_holds(&mut connection.state, connection.between, Between::default());
            }
            handler.closed(id, connection.state, why);
        }
    }

    /// Ends all connections at once.
    pub fn close_all<H: Handler<Connection = C>>(&mut self, handler: &mut H, why: Closed) {
        for index in 0..self.connections.entries() {
            if let Some(id) = self.id_at(index) {
                self.close(handler, id, why);
            }
        }
    }

    /// Receives no more from a connection, and ends it when its replies are out.
    pub(super) fn finish<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id, why: Closed) {
        self.send_and_arrange(handler, id, Some(why));
    }

    /// Closes connections whose timeout is over, some in each turn.
    #[cold]
    pub(super) fn sweep<H: Handler<Connection = C>>(&mut self, handler: &mut H, now: Millis) {
        if self.sweep_from == 0 {
            if !self.times(handler) {
                self.sweep_at = now + SWEEP_MS;
                return;
            }
            self.keeping = false;
        }
        let Limits { idle_ms, stall_ms, request_ms, unauthenticated_ms, .. } = self.limits;
        let is_due = |since: Millis, ms: Millis| ms > 0 && now.saturating_sub(since) >= ms;
        let (from, mut closed) = (std::mem::take(&mut self.sweep_from), 0);
        for index in from..self.connections.entries() {
            if index - from == SWEEP_LOOKS_MAX || closed == SWEEP_CLOSES_MAX {
                (self.sweep_from, self.sweep_at) = (index, now);
                return;
            }
            let Some((id, connection)) = self.connections.at(index) else { continue };
            self.keeping |= connection.keeps_part();
            let since = connection.opening.or_else(|| handler.unauthenticated_since(&connection.state));
            let why = if connection.unsent > 0 {
                is_due(connection.sent_at, stall_ms).then_some(Closed::Stalled)
            } else if connection.is_half_open() && is_due(connection.received_at, request_ms) {
                Some(Closed::Unfinished)
            } else {
                // A connection that is put off has sent something that is not received yet.
                let is_idle = !connection.is_under_way() && connection.put_off.is_none();
                (is_idle && is_due(connection.received_at, idle_ms)).then_some(Closed::Idle)
            };
            let unauthenticated = since.is_some_and(|since| is_due(since, unauthenticated_ms));
            if let Some(why) = why.or(unauthenticated.then_some(Closed::Unauthenticated)) {
                self.close(handler, id, why);
                closed += 1;
            }
        }
        self.sweep_at = now + SWEEP_MS;
    }

    /// Closes connections whose input holds memory that others need; never `id`, which is being processed.
    #[cold]
    pub(super) fn relieve<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id) {
        while let Some(index) = handler.crowded_out(id) {
            if let Some(other) = self.id_at(index) {
                debug_assert!(other != id, "it is not among those that go");
                self.close(handler, other, Closed::Crowded);
            }
        }
    }
}
