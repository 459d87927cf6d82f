//! What a worker does with a connection's bytes: gives them to its session, offers what the session leaves,
//! and keeps account of what a socket did not take.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_commands::{Context, Counter, Ending, Next, Output, Peer};
use larder_eventloop::{Between, Closed, Destination, Handler, Id, Millis, Outgoing, Taken, Wait};

use super::replies::Replies;
use super::service::{CLOCK_MS, CONNECTION_BYTES, Connection, SEND_AT_BYTES, Service};
use crate::hub::Hub;
use crate::listener::ip_and_port;
use crate::table::ConnectionFacts;

/// Replies of a connection that may be deferred for a common send: what a socket surely takes at once.
const DEFERRED_REPLIES_MAX: u64 = 32 << 10;

/// Time to write replies up to [`SEND_AT_BYTES`] and to send them.
const FLUSH_NS: u64 = 100_000;

/// Time to open a record of TLS, beside its bytes. A KeyUpdate takes ten times that, and few come in a turn.
const RECORD_NS: u64 = 500;

/// The store is told of a change of input's memory from this many bytes on, and when input takes none any more.
const KEPT_TOLD_BYTES: usize = 16 << 10;

/// A connection as its session sees it.
pub(super) struct At<'h> {
    pub(super) facts: &'h ConnectionFacts,
    pub(super) hub: &'h Hub,
}

impl Peer for At<'_> {
    fn address(&self) -> String {
        ip_and_port(&self.facts.peer)
    }
    fn is_local(&self) -> bool {
        self.facts.peer.is_local()
    }

    fn listen_address(&self) -> Arc<str> {
        Arc::clone(&self.hub.listeners[self.facts.listener].told)
    }
    fn speaks_tls(&self) -> bool {
        self.hub.listeners[self.facts.listener].tls.is_some()
    }
    fn place(&self) -> u64 {
        self.facts.place()
    }
    fn number(&self) -> u64 {
        self.hub.number(self.facts.place())
    }
}

/// Why a connection was closed, in memcached's words. `ending`: why its conversation has closed it, if it has. A client that has
/// sent `quit` ends normally also where the rest of its replies does not reach it.
fn told_as(why: Closed, ending: Option<Ending>) -> &'static str {
    match why {
        Closed::Peer => "normal",
        Closed::Idle => "idle_timeout",
        Closed::Drained => "shutdown",
        Closed::Handler
        | Closed::Error
        | Closed::Stalled
        | Closed::Unfinished
        | Closed::Unauthenticated
        | Closed::Shed
        | Closed::Crowded
        | Closed::Input => match ending {
            Some(Ending::Quit) => "normal",
            Some(Ending::Shutdown) => "shutdown",
            Some(Ending::Error) | None => "error",
        },
    }
}

impl Service {
    /// Takes note of what a connection's replies hold, which charge themselves; items give way if it is more.
    pub(crate) fn count_held(&mut self, connection: &mut Connection) {
        let held = connection.replies.rest().map_or(0, |rest| rest.capacity_bytes().max(1));
        let before = std::mem::replace(&mut connection.held, held);
        if held > before {
            // Many connections may have their replies in one turn.
            let store = &self.hub.store;
            let short = store.held_bytes() >= store.held_bytes_max();
            self.set_short(short);
            self.give_way();
        }
    }

    /// Counts what the input of an unauthenticated connection holds.
    #[cold]
    fn count_unauthenticated(&mut self, connection: &mut Connection, kept: usize) {
        let unauthenticated = connection.session.is_unauthenticated();
        let bytes = if unauthenticated { kept } else { 0 };
        let before = std::mem::replace(&mut connection.unauthenticated_bytes, bytes);
        self.hub.shared.common.unauthenticated.hold(bytes as i64 - before as i64);
        connection.facts.set_unauthenticated(unauthenticated);
    }

    /// Tells the store and the table what a connection's replies hold after a send.
    #[inline(never)]
    fn keep_account(&mut self, connection: &mut Connection, moved: bool) {
        self.count_held(connection);
        let unsent = connection.replies.rest().map_or(0, Output::len) + u64::from(connection.unsent_below);
        if unsent == 0 {
            connection.facts.moves();
        } else {
            // Room beside them, and what it has still to reply, is given back with them.
            let holds = unsent.max(connection.held as u64) + connection.session.held_bytes();
            connection.facts.stands(moved, self.now, holds);
        }
        connection.session.show_output(connection.held as u64);
        if let Some(limit) = connection.session.output_limit(&self.hub.shared) {
            let waits = unsent + connection.session.late_bytes();
            self.overflow.left_behind(&connection.facts, waits, limit, self.now);
        }
    }
}

impl Handler for Service {
    type Connection = Connection;

    // Always, since the loop is compiled for two kinds of streams, and a function with two callers is left apart.
    #[inline(always)]
    fn woke(&mut self, now_ns: u64) {
        debug_assert!(self.turn_replies.is_empty(), "what a turn has left of replies went out with it");
        self.now = now_ns / 1_000_000;
        if self.now >= self.wall_read_at + CLOCK_MS {
            self.read_wall_clock();
        }
        let wall_us = self.hub.shared.now_us(self.wall_base.at(now_ns) / 1000);
        self.wall = wall_us / 1000;
        self.room.set_micros(wall_us % 1000);
        self.room.work().begin_slice();
    }

    fn budget_spent(&self) -> bool {
        self.room.work().is_used_up()
    }

    #[inline]
    fn spent_ns(&self) -> u64 {
        self.room.work().spent_ns()
    }

    #[inline]
    fn budget_nearly_spent(&self) -> bool {
        self.room.work().budget_nearly_spent()
    }

    fn received(&mut self, connection: &mut Connection, input: &[u8]) -> Taken {
        self.room.work().note_received(input.len());
        if let Replies::Rest(rest) = &mut connection.replies {
            let most = self.hub.config.reply_bytes_max();
            rest.set_limit((rest.len() + self.room(SEND_AT_BYTES)).min(most));
        }
        let hub = &*self.hub;
        let counters = &hub.handles[self.index].counters;
        let guard = self.store.enter(self.wall);
        let peer = At { facts: &connection.facts, hub };
        let mut context = Context::new(guard, counters, &hub.shared, hub, &peer, &self.room);
        let session = &mut connection.session;
        let progress =
            self.turn_replies.write(&mut connection.replies, |out| session.receive(&mut context, input, out));
        counters.add(Counter::BytesRead, progress.consumed as u64);
        let kept = (input.len() - progress.consumed) as u64;
        connection.facts.received(self.now, kept + connection.session.input_bytes());
        let wait = match progress.next {
            Next::Receive => Wait::Input,
            Next::Flush => {
                self.room.work().spend(FLUSH_NS);
                Wait::Room
            }
            Next::Yield => Wait::Turn,
            Next::Sleep(ms) => Wait::Time(ms),
            Next::Await(ms) => Wait::Wake(ms),
            Next::Close => Wait::End,
        };
        Taken { bytes: progress.consumed, wait }
    }

    fn destination<'d>(&'d mut self, connection: &'d mut Connection) -> Option<Destination<'d>> {
        if connection.session.is_idle() {
            return None;
        }
        let hub = &*self.hub;
        let counters = &hub.handles[self.index].counters;
        let guard = self.store.enter(self.wall);
        let peer = At { facts: &connection.facts, hub };
        let mut context = Context::new(guard, counters, &hub.shared, hub, &peer, &self.room);
        let missing = connection.session.upload_missing();
        Some(Destination::new(connection.session.upload_spaces(&mut context)?, missing))
    }

    fn filled(&mut self, connection: &mut Connection, bytes: usize) -> Wait {
        connection.session.upload_filled(bytes);
        connection.facts.received(self.now, connection.session.input_bytes());
        self.counters().add(Counter::BytesRead, bytes as u64);
        // The system copies them.
        self.room.work().spend(bytes as u64 / 4);
        Wait::Input
    }

    #[inline]
    fn keeps(&mut self, connection: &mut Connection, own: usize, all: usize) -> bool {
        let unauthenticated = connection.session.is_unauthenticated() || connection.unauthenticated_bytes > 0;
        if unauthenticated {
            self.count_unauthenticated(connection, own);
        }
        // That none is kept any more is told however little it was.
        let is_told = all.abs_diff(self.kept) < KEPT_TOLD_BYTES && (all > 0 || self.kept == 0);
        if is_told && !unauthenticated {
            return false;
        }
        self.lets_go(all);
        self.give_way();
        self.is_crowded()
    }

    #[inline]
    fn lets_go(&mut self, all: usize) {
        if all.abs_diff(self.kept) >= KEPT_TOLD_BYTES || all == 0 {
            let more = all as i64 - self.kept as i64;
            self.hub.store.set_aside(more);
            self.hub.store.note_input(more);
            self.kept = all;
        }
    }

    fn crowded_out(&mut self, except: Id) -> Option<usize> {
        self.next_crowded_out(except.index())
    }

    #[inline]
    fn awaits_rest(&self, connection: &Connection) -> bool {
        connection.session.awaits_rest()
    }

    fn holds_up_others(&self, connection: &Connection) -> bool {
        connection.session.holds()
    }

    fn must_end(&self, connection: &Connection) -> bool {
        connection.session.must_end()
    }

    fn has_unauthenticated(&self) -> bool {
        self.hub.shared.common.unauthenticated.any()
    }

    fn unauthenticated_since(&self, connection: &Connection) -> Option<Millis> {
        connection.session.unauthenticated_since()
    }

    #[inline]
    fn replies<'r>(&'r mut self, connection: &'r mut Connection) -> Outgoing<'r> {
        self.turn_replies.offer(&mut connection.replies)
    }

    fn slices<'r>(&'r mut self, connection: &'r mut Connection, into: &mut [IoSlice<'r>]) -> usize {
        self.turn_replies.slices(&connection.replies, into)
    }

    #[inline]
    fn sent(&mut self, connection: &mut Connection, bytes: u64) -> u64 {
        let waited = connection.replies.rest().is_some();
        let unsent = self.turn_replies.sent(&mut connection.replies, bytes);
        self.hub.handles[self.index].counters.add(Counter::BytesWritten, bytes);
        if waited || unsent > 0 {
            self.keep_account(connection, bytes > 0);
        }
        unsent
    }

    #[cold]
    fn stream_holds(&mut self, connection: &mut Connection, before: Between, between: Between) {
        if before.opening && !between.opening {
            self.hub.handshake_ended();
        }
        connection.unsent_below = u32::try_from(between.unsent).unwrap_or(u32::MAX);
        // What waits for the client is held, as replies are. The rest is the connection's, and input of that is counted
        // as such, so that a client that does not go on with it makes room for others.
        let more = |now: usize, before: usize| now as i64 - before as i64;
        let store = &self.hub.store;
        store.hold(more(between.unsent, before.unsent));
        store.set_aside(more(between.memory - between.unsent, before.memory - before.unsent));
        store.note_input(more(between.partial, before.partial));
        if between.partial != before.partial {
            connection.facts.stream_keeps(self.now, between.partial as u64);
        }
        if between.unsent != before.unsent {
            self.keep_account(connection, between.unsent < before.unsent);
        }
        self.give_way();
    }

    #[cold]
    fn stream_named(&mut self, connection: &mut Connection, name: &str) {
        let hub = &*self.hub;
        let counters = &hub.handles[self.index].counters;
        let guard = self.store.enter(self.wall);
        let peer = At { facts: &connection.facts, hub };
        let context = Context::new(guard, counters, &hub.shared, hub, &peer, &self.room);
        connection.session.log_in_by_certificate(&context, name);
    }

    #[cold]
    fn stream_failed(&mut self, connection: &mut Connection, why: &str) {
        tracing::info!(peer = %connection.facts.peer, why, "TLS failed");
        if self.hub.shared.watches_connections() {
            let peer = At { facts: &connection.facts, hub: &self.hub };
            self.hub.shared.watch_failure(&*self.hub, &self.hub.store, self.wall, &peer, why);
        }
    }

    fn stream_opened(&mut self, took_ns: u64) {
        self.room.work().spend(took_ns);
    }

    fn stream_worked(&mut self, records: u32) {
        self.room.work().spend(u64::from(records) * RECORD_NS);
    }

    #[inline]
    fn deferrable(&self, connection: &Connection) -> Option<u64> {
        // Large values go out on their own; what waits for room goes on waiting.
        connection.replies.plain_bytes().filter(|&bytes| bytes <= DEFERRED_REPLIES_MAX && !self.short)
    }

    fn closed(&mut self, id: Id, mut connection: Connection, why: Closed) {
        let hub = Arc::clone(&self.hub);
        if hub.shared.watches_connections() {
            let peer = At { facts: &connection.facts, hub: &hub };
            let reason = told_as(why, connection.session.ending());
            hub.shared.watch_connection(&*hub, &hub.store, self.wall, &peer, Some(reason));
        }
        self.turn_replies.forget(std::mem::take(&mut connection.replies));
        self.count_unauthenticated(&mut connection, 0);
        self.hub.table.strike(self.index, id.index());
        self.keep_account(&mut connection, true);
        self.hub.store.set_aside(-CONNECTION_BYTES);
        match why {
            Closed::Idle => self.counters().add(Counter::IdleKicks, 1),
            Closed::Shed => {
                self.counters().add(Counter::Shed, 1);
                tracing::info!(peer = %connection.facts.peer, ?why, "connection closed");
            }
            Closed::Crowded => {
                self.counters().add(Counter::Crowded, 1);
                self.note_crowded_out(&connection.facts.peer);
            }
            Closed::Unfinished | Closed::Unauthenticated => {
                self.counters().add(Counter::Unfinished, 1);
                tracing::info!(peer = %connection.facts.peer, ?why, "connection closed");
            }
            Closed::Stalled | Closed::Input => {
                tracing::info!(peer = %connection.facts.peer, ?why, "connection closed");
            }
            Closed::Handler | Closed::Peer | Closed::Error | Closed::Drained => {}
        }
        tracing::debug!(peer = %connection.facts.peer, ?why, "connection closed");
        let facts = Arc::clone(&connection.facts);
        if !connection.session.must_end() {
            // Keys that it holds are free then.
            drop(connection);
        } else if connection.session.holds() {
            self.unfinished.push_front(connection);
        } else {
            self.unfinished.push_back(connection);
        }
        self.serve_left();
        self.hub.ended(self.index, &facts.peer);
        let left = self.hub.handles[self.index].connections.load(Relaxed);
        self.store.set_patient(left <= 1);
    }
}
