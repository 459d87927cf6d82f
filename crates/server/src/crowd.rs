//! Decides which connections are closed when requests on their way in hold more memory than they may.
//!
//! ```text
//! received bytes that are kept   ─┐  Store::input_bytes ≤ 1/8 of the limit and a sixteenth of that
//! requests that are gathered      ├─ (9/64 of the limit while another worker sleeps that has yet to close some of its own);
//! values that are uploaded       ─┘  those of unauthenticated clients ≤ 1/4 of that
//! ```
//!
//! Kept bytes are there already: beyond the share, the connection that has waited longest for the rest of its request is closed
//! at once, and its memory is back before the next is received. A request that is gathered or uploaded waits a little instead,
//! and is refused then; for it only connections are closed whose requests have stood still for [`STANDS_MS`]. Short requests stay
//! while they hold little together: then long ones hold what is missing, and those that stand still go. One request may be larger
//! than the share while the others hold no more than half of it; it does not count then.

use std::sync::Arc;

use larder_commands::UNAUTHENTICATED_SHARE;
use larder_eventloop::{Backend, Closed, EventLoop, Millis};

use crate::hub::Shed;
use crate::table::HalfOpen;
use crate::worker::{Connection, Service};

/// A request that has not gone on for so long has to make room for one that does: longer than any round trip.
const STANDS_MS: Millis = 250;

/// Most connections that one look chooses.
const CHOSEN_MAX: usize = 16;

/// A look makes room for one part in this many of the share, so that not every receive needs a look. Short requests stay up to as
/// much above the share.
const ROOM_SHARE: u64 = 16;

/// Connections that were chosen of another worker's are closed when it wakes. If input is above the share by one part in this
/// many before that, a worker closes its own.
const ABOVE_SHARE: u64 = 8;

/// A request that holds less is no reason to close a connection: a user types, or a packet is late. All that are passed over hold
/// at most one part in [`REST_SHARE`] of the share together.
const BYTES_MIN: u64 = 1 << 10;
/// A request that holds less than this stays, too, while all such hold no more than that part, and all requests no more than one
/// part in [`ROOM_SHARE`] above the share: longer ones hold what is missing, and go when they have stood still for [`STANDS_MS`].
const BYTES_SMALL: u64 = 64 << 10;
const REST_SHARE: u64 = 4;

/// What a worker knows of connections that have to go.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// Its own connections that were chosen, the last first.
    going: Vec<usize>,
    /// Up to so many bytes of all input there is no connection to choose.
    calm_to: u64,
}

impl Service {
    /// True if requests on their way in hold more than they may, and a connection has to go.
    pub(crate) fn is_crowded(&mut self) -> bool {
        let store = &self.hub().store;
        let (all, max) = (store.input_bytes(), store.input_bytes_max());
        let unauthenticated = self.hub().shared.common.unauthenticated.bytes() > max / UNAUTHENTICATED_SHARE;
        if all <= max && !unauthenticated {
            // Long requests take what short ones leave, and come to the share again: that alone is no reason to look anew.
            let room = max / ROOM_SHARE;
            self.crowd.calm_to = if all + room > max { self.crowd.calm_to.min(max + room) } else { 0 };
            return false;
        }
        unauthenticated || all > self.crowd.calm_to
    }

    /// Takes the next of this worker's connections that is to go, not the one at `except`.
    pub(crate) fn next_crowded_out(&mut self, except: usize) -> Option<usize> {
        if self.crowd.going.is_empty() && self.is_crowded() {
            self.choose(0, Some(except));
        }
        self.crowd.going.pop()
    }

    /// Closes, after a turn, connections that are to go. `wanted`: a request waits for room.
    pub(crate) fn thin_out<B: Backend>(&mut self, events: &mut EventLoop<B, Connection>, wanted: bool) {
        if self.is_crowded() {
            self.choose(0, None);
        } else if wanted {
            self.choose(STANDS_MS, None);
        }
        while let Some(index) = self.crowd.going.pop() {
            if let Some(id) = events.id_at(index) {
                events.close(self, id, Closed::Crowded);
            }
        }
    }

    /// Chooses the connections that have waited longest for the rest of their requests, and for `stands_ms` at least. Where short
    /// requests stay, it chooses long ones that have stood still for [`STANDS_MS`].
    fn choose(&mut self, stands_ms: Millis, except: Option<usize>) {
        let hub = Arc::clone(self.hub());
        let (all, max) = (hub.store.input_bytes(), hub.store.input_bytes_max());
        let room = max / ROOM_SHARE;
        let unauthenticated = hub.shared.common.unauthenticated.bytes();
        let (of_unauthenticated, mut over) = match all.checked_sub(max) {
            None if unauthenticated > max / UNAUTHENTICATED_SHARE => {
                (true, unauthenticated - max / UNAUTHENTICATED_SHARE)
            }
            over => (false, over.unwrap_or(0) + room),
        };
        let worker = self.index();
        let only = (all > max + max / ABOVE_SHARE).then_some(worker);
        let (rest, at_once) = (max / REST_SHARE, stands_ms == 0);
        let small_stay = unauthenticated <= max / UNAUTHENTICATED_SHARE
            && all <= max + room
            && hub.table.half_open_bytes(BYTES_SMALL) <= rest;
        let (bytes_min, stands_ms) = if small_stay {
            (BYTES_SMALL, STANDS_MS)
        } else {
            ((rest / hub.connections().max(1) as u64).min(BYTES_MIN), stands_ms)
        };
        let (mut chosen, largest) = hub.table.half_open(of_unauthenticated, only, bytes_min, CHOSEN_MAX);
        // One that may be larger than the share is no reason to close the others, nor to pass unauthenticated clients over.
        let alone = 2 * (all - largest.min(all)) <= max;
        if at_once && !of_unauthenticated && alone {
            self.crowd.calm_to = all + room;
            over = unauthenticated.saturating_sub(max / UNAUTHENTICATED_SHARE);
            if over == 0 {
                return;
            }
            chosen = hub.table.half_open(true, None, bytes_min, CHOSEN_MAX).0;
        }
        let now = self.now();
        for HalfOpen { worker: of, index, since, bytes } in chosen {
            if over == 0 || now < since + stands_ms {
                break;
            }
            if of == worker && Some(index) == except {
                continue;
            }
            over = over.saturating_sub(bytes);
            if of == worker {
                self.crowd.going.insert(0, index);
            } else {
                // A mailbox that is full is read soon, and this comes again.
                let _ = hub.handles[of].mailbox.send(Shed { index, since, input: true });
                self.crowd.calm_to = all + room;
            }
        }
        if small_stay && at_once && over > 0 {
            // Long requests that go on hold the rest.
            self.crowd.calm_to = max + room;
        }
    }

    /// Logs that a connection was closed for this: one line a second.
    pub(crate) fn note_crowded_out(&mut self, peer: &dyn std::fmt::Display) {
        let now = self.now();
        let due = self.hub().crowded_out.lock().expect("no holder panics").due(now);
        if let Some(times) = due {
            tracing::warn!(%peer, times, "connections closed: requests on their way in hold all the memory they may");
        }
    }
}
