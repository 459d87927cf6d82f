//! Clients of memcached whose users were removed (ACL DELUSER, ACL LOAD): each worker closes its own.
//!
//! Redis clients are in a list, and the worker that removes a user has those closed that were that user. memcached's
//! clients are in no list: their workers are woken, and go through their connections, some in each turn. A client that logs in
//! meanwhile has looked at the users either before they were removed, in a turn that ends before its worker looks, or behind
//! that. The users are read once in a turn, since that waits for changes that go on.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use larder_eventloop::{Backend, Closed, EventLoop};

use crate::worker::{Connection, Service};

/// Places of connections that are looked at in one turn: some 100 ns each.
pub(crate) const LOOKS_MAX: usize = 2_048;
/// Connections that are closed in one turn: some 20 µs each.
const CLOSED_MAX: usize = 32;

/// How far a worker has gone round its connections. Removals that come meanwhile make the round longer and do not begin it anew,
/// so each connection is looked at however many come.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The place that is looked at next.
    next: usize,
    /// Places there were when users were removed last: connections beyond them came later.
    places: usize,
    /// Places that are still to be looked at.
    left: usize,
    /// Connections that were closed since the round began.
    closed: usize,
}

impl Service {
    /// Closes some of the clients whose users were removed; the rest after the next turns.
    pub(crate) fn close_removed<B: Backend>(&mut self, events: &mut EventLoop<B, Connection>) {
        let hub = Arc::clone(self.hub());
        let handle = &hub.handles[self.index()];
        // The flag is seldom set, so it is read before it is written.
        if handle.users_removed.load(SeqCst) && handle.users_removed.swap(false, SeqCst) {
            // All of them once more: those that were passed already may be of a user that was removed just now.
            self.removed.places = events.places();
            self.removed.left = events.places();
        }
        if self.removed.left == 0 {
            return;
        }
        // Behind the flag: the worker that set it had removed the users.
        let users = hub.shared.users_now();
        let (mut looks, mut closed) = (0, 0);
        while self.removed.left > 0 && looks < LOOKS_MAX && closed < CLOSED_MAX {
            let place = if self.removed.next < self.removed.places { self.removed.next } else { 0 };
            self.removed.next = place + 1;
            self.removed.left -= 1;
            looks += 1;
            if let Some(id) = events.id_at(place)
                && events.state(id).is_some_and(|at| at.session.turn_out(&users, &hub.shared))
            {
                events.close(self, id, Closed::Handler);
                closed += 1;
            }
        }
        self.removed.closed += closed;
        if self.removed.left > 0 {
            handle.waker.wake();
            return;
        }
        let connections = std::mem::take(&mut self.removed.closed);
        if connections > 0 {
            tracing::info!(connections, "memcached's clients of removed users were closed");
        }
    }
}
