//! Letters from other connections: messages that a worker's clients have subscribed to.
//!
//! They are written behind what the connection's replies already hold, and sent at once. A subscriber
//! that reads more slowly than others publish is closed when too much waits for it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_eventloop::{Closed, Epoll, EventLoop, Id};

use crate::worker::Service;

/// Part of what all connections may hold that one listener may.
const LISTENER_SHARE: u64 = 4;
/// While memory is short a listener for whom more waits is closed.
const SHORT_BYTES: u64 = 4 << 10;
/// What waits for a listener is sent when it is so much, before more is added.
const PUSH_AT_BYTES: u64 = 256 << 10;

impl Service {
    /// Delivers what waits in this worker's post.
    pub(crate) fn deliver(&mut self, events: &mut EventLoop<Epoll, Service>) {
        let hub = Arc::clone(self.hub());
        let (letters, held) = hub.desks[self.index()].post.take();
        if letters.is_empty() {
            return;
        }
        // Beside what `client-output-buffer-limit` says.
        let bytes_max = hub.store.held_bytes_max() / LISTENER_SHARE;
        let mut told: Vec<Id> = Vec::new();
        for letter in &letters {
            let Some(id) = events.id_at(letter.target.index()) else { continue };
            let Some(connection) = events.state(id) else { continue };
            if connection.session.redis_client() != Some(letter.target.client) {
                continue;
            }
            let rest = connection.rest.get_or_insert_default();
            rest.set_limit(hub.config.reply_bytes_max());
            connection.session.deliver(letter, rest);
            if rest.len() < PUSH_AT_BYTES {
                told.push(id);
                continue;
            }
            self.push_letters(events, id, bytes_max);
        }
        drop(letters);
        hub.store.hold(-(held as i64));
        told.sort_unstable();
        told.dedup();
        for id in told {
            self.push_letters(events, id, bytes_max);
        }
    }

    /// Sends what a listener was told. It is closed if more than `bytes_max` waits then, or anything to
    /// speak of while connections hold all the memory they may: who publishes does not wait for it.
    fn push_letters(&mut self, events: &mut EventLoop<Epoll, Service>, id: Id, bytes_max: u64) {
        events.push(self, id);
        let store = &self.hub().store;
        let most =
            if store.held_bytes() < store.held_bytes_max() { bytes_max } else { bytes_max.min(SHORT_BYTES) };
        let waits = events.state(id).and_then(|at| at.rest.as_ref()).map_or(0, |rest| rest.len());
        if waits > most {
            self.hub().tally.listeners_cut.fetch_add(1, Relaxed);
            events.close(self, id, Closed::Shed);
        }
    }
}
