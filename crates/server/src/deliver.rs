//! Deliveries from other connections: messages that a worker's clients have subscribed to.
//!
//! They are written behind what the connection's replies already hold, and sent at once. A subscriber
//! that reads more slowly than others publish is closed when too much waits for it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_eventloop::{Backend, Closed, EventLoop, Id};

use crate::pending_closes::PendingClose;
use crate::worker::{Connection, Service};

/// One listener may hold one part in this many of what all connections may hold.
const LISTENER_SHARE: u64 = 4;
/// While memory is short a subscriber for which more waits is closed.
const SHORT_BYTES: u64 = 4 << 10;
/// What waits for a listener is sent when it is so much, before more is added.
const PUSH_AT_BYTES: u64 = 256 << 10;
/// Most work of delivering in one turn. With all 16 MiB that may wait in one, others of the worker waited for 11 ms and more.
const DELIVERING_NS_MAX: u64 = 2_000_000;
/// Connections that are closed in one turn because others want it: some 20 µs each.
const CLOSED_MAX: usize = 32;
/// Work of a delivery beside its bytes, and of the send to each listener.
const DELIVERY_NS: u64 = 150;
const SEND_NS: u64 = 3000;

/// Work of writing and sending so many bytes: a megabyte is a turn's. It takes half a millisecond, but 9 where the system has no
/// memory at hand for what its sockets hold: with four in a turn others of the worker waited for 40.
fn bytes_ns(bytes: usize) -> u64 {
    bytes as u64 * 2
}

impl Service {
    /// Delivers some of what waits in this worker's outbox; true if there is more, which is delivered after the next turn.
    pub(crate) fn deliver<B: Backend>(&mut self, events: &mut EventLoop<B, Connection>) -> bool {
        let hub = Arc::clone(self.hub());
        let handle = &hub.handles[self.index()];
        let (mut listeners, mut ns, mut copies) = (HashSet::new(), 0, 0);
        let (deliveries, waited, more) = handle.outbox.take_until(|delivery| {
            copies += delivery.copy_bytes();
            ns += DELIVERY_NS + bytes_ns(delivery.copy_bytes());
            ns += if listeners.insert(delivery.target.place) { SEND_NS } else { 0 };
            ns >= DELIVERING_NS_MAX
        });
        if more {
            // After the next turn of the others.
            handle.waker.wake();
        }
        // Behind the deliveries: a subscriber that has missed one is not sent those that came after it.
        let missed = self.close_pending(events);
        self.wake_waiting(events);
        if deliveries.is_empty() {
            return more;
        }
        // All copies are charged before they are made: items give way to them first.
        hub.store.hold(copies as i64);
        self.give_way();
        // This limit holds beside that of `client-output-buffer-limit`.
        let bytes_max = hub.store.held_bytes_max() / LISTENER_SHARE;
        let mut told: Vec<Id> = Vec::new();
        // What was charged for copies that are written.
        let mut copied = 0;
        for delivery in deliveries {
            copied += delivery.copy_bytes();
            let Some(id) = events.id_at(delivery.target.index()) else { continue };
            let Some(connection) = events.state(id) else { continue };
            let client = delivery.target.client;
            if connection.session.redis_client() != Some(client)
                || missed && handle.pending_closes.has_missed(client)
            {
                continue;
            }
            let rest = self.turn_replies.own(&mut connection.replies);
            let before = rest.capacity_bytes();
            rest.set_limit(hub.config.reply_bytes_max());
            connection.session.deliver(&delivery, rest);
            let (waits, grown) =
                (rest.len() + connection.session.late_bytes(), rest.capacity_bytes() > before);
            drop(delivery);
            if grown {
                // The connection is charged for them from here on.
                self.count_held(connection);
                copies -= copied;
                hub.store.hold(-(std::mem::take(&mut copied) as i64));
            }
            if waits < PUSH_AT_BYTES {
                told.push(id);
                continue;
            }
            self.push_deliveries(events, id, bytes_max);
        }
        hub.store.hold(-((waited + copies) as i64));
        told.sort_unstable();
        told.dedup();
        for id in told {
            self.push_deliveries(events, id, bytes_max);
        }
        more
    }

    /// Closes some of the connections that others want closed; the rest after the next turn, if this returns true.
    fn close_pending<B: Backend>(&mut self, events: &mut EventLoop<B, Connection>) -> bool {
        let handle = &self.hub().handles[self.index()];
        let (pending_closes, more) = handle.pending_closes.take(CLOSED_MAX);
        if more {
            handle.waker.wake();
        }
        for (client, PendingClose { index, missed }) in pending_closes {
            if let Some(id) = events.id_at(index)
                && events.state(id).is_some_and(|at| at.session.redis_client() == Some(client))
            {
                self.hub().tally.listeners_cut.fetch_add(u64::from(missed), Relaxed);
                events.close(self, id, Closed::Handler);
            }
        }
        more
    }

    /// Has the connections that wait, and were given something, processed in the next turn.
    fn wake_waiting<B: Backend>(&mut self, events: &mut EventLoop<B, Connection>) {
        for (index, client) in self.hub().handles[self.index()].awake.take() {
            if let Some(id) = events.id_at(index)
                && events.state(id).is_some_and(|at| at.session.waiter() == Some(client))
            {
                events.wake(id);
            }
        }
    }

    /// Sends what waits for a subscriber. It is closed if more than `bytes_max` waits then, or more than a little while
    /// connections hold all the memory they may: publishers do not wait for it.
    fn push_deliveries<B: Backend>(&mut self, events: &mut EventLoop<B, Connection>, id: Id, bytes_max: u64) {
        events.push(self, id);
        let store = &self.hub().store;
        let most =
            if store.held_bytes() < store.held_bytes_max() { bytes_max } else { bytes_max.min(SHORT_BYTES) };
        let waits = events
            .state(id)
            .map_or(0, |at| at.replies.rest().map_or(0, |rest| rest.len()) + at.session.late_bytes());
        if waits > most {
            self.hub().tally.listeners_cut.fetch_add(1, Relaxed);
            events.close(self, id, Closed::Shed);
        }
    }
}
