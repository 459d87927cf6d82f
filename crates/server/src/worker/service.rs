//! What a worker's connections have in common: the loop's handler, its store, and the memory that replies hold.

use std::collections::VecDeque;
use std::sync::Arc;

use larder_commands::{Context, Counter, Counters, Host, Next, Room, Session, Speaks};
use larder_eventloop::socket::Address;
use larder_eventloop::{Backend, Closed, EventLoop, Millis};
use larder_store::Millis as WallMillis;

use super::handling::At;
use super::replies::{Replies, TurnReplies};
use crate::clock::WallBase;
use crate::crowd::Crowd;
use crate::hub::{Hub, Shed};
use crate::log::Rarely;
use crate::overflow::Overflow;
use crate::removed::Round;
use crate::table::{ConnectionFacts, Standing, Stood};

/// A session stops and its replies are sent when so many bytes of them wait: what a socket takes at
/// once, and what a processor's second cache holds.
pub(super) const SEND_AT_BYTES: u64 = 256 << 10;

/// Output memory that a worker keeps between bursts.
const OUTPUT_KEPT_BYTES: usize = 64 << 10;

/// A connection whose replies wait, or whose value is half there, without progress is closed after
/// this: what it holds is memory that others need.
pub(super) const STALL_MS: Millis = 60_000;

/// In place of [`SEND_AT_BYTES`] when connections hold all the memory they may, or nearly: what a reader that stops just then
/// adds.
const SEND_AT_BYTES_SHORT: u64 = 8 << 10;

/// A worker fills one part in this many of what connections may still hold before it looks again.
const ROOM_SHARE: u64 = 4;

/// When others need its memory, a connection is closed if its replies have not moved for this long:
/// longer than any round trip that progress is made in.
const SHED_AFTER_MS: Millis = 250;

/// Replies of fewer bytes are no reason to close a connection, unless those of many connections are all short: all that are
/// passed over hold at most one part in [`SHED_REST_SHARE`] of what all may.
const SHED_BYTES_MIN: u64 = 16 << 10;
const SHED_REST_SHARE: u64 = 4;

/// Replies that one turn leaves behind are no reason either, as long as all that have stood hold no more than that part: a client
/// that reads, and was kept from it on a busy machine, has no more of them.
const SHED_BYTES_SMALL: u64 = SEND_AT_BYTES;

/// Connections that are closed at a time while connections hold more memory than they may.
const SHED_MAX: usize = 16;
/// Connections are closed until the memory held is one part in this many below the limit.
const SHED_ROOM_SHARE: u64 = 8;

/// How long after a value was refused for want of memory a connection may be closed for it.
const SHED_WITHIN_MS: Millis = 1000;

/// Milliseconds between two looks at connections that have ended and wait for what others hold.
const LOOK_MS: Millis = 2;
/// The work that such a look counts as, though it does little.
const LOOK_NS: u64 = 20_000;

/// Memory counted for a worker: its receive buffer, replies, stack, and free chunks in its hands.
pub(crate) const WORKER_BYTES: u64 = 256 << 10;

/// Memory counted for a connection that does nothing.
pub(super) const CONNECTION_BYTES: i64 = 1280;

/// The heap's free pages are given back when what is on it has shrunk by one part in this many of the
/// memory limit.
const TRIM_SHARE: u64 = 64;
/// Steps of upkeep in one round, each bounded by the store.
const STEPS_MAX: usize = 16;
/// No step is begun in a round after this time.
const STEPS_US_MAX: u64 = 300;
/// No step is begun after this time, if requests wait meanwhile.
const STEPS_US_BESIDE_MAX: u64 = 100;
/// The wall clock is read anew this often; in between it moves with the loop's clock.
pub(super) const CLOCK_MS: Millis = 1000;

/// Readings of the wall clock each time: a thread that is interrupted in one is hardly interrupted in the next.
const WALL_READS: usize = 3;

/// A handshake whose client has said nothing for this long may make room for others.
const SILENT_MS: Millis = 1000;

/// What a worker keeps of a connection.
#[derive(Debug)]
pub struct Connection {
    pub(crate) session: Session,
    /// Its replies that are not sent.
    pub(crate) replies: Replies,
    /// Bytes of its memory, as the store was told.
    pub(super) held: usize,
    /// Bytes of its replies that its stream has taken and the system has not.
    pub(super) unsent_below: u32,
    /// Bytes of its input, as they were counted while it was unauthenticated.
    pub(super) unauthenticated_bytes: usize,
    pub(crate) facts: Arc<ConnectionFacts>,
}

/// The handler of a worker's loop.
#[derive(Debug)]
pub struct Service {
    pub(super) hub: Arc<Hub>,
    pub(super) index: usize,
    pub(super) store: larder_store::Worker,
    /// Replies of this turn.
    pub(crate) turn_replies: TurnReplies,
    /// Room for values that commands work on.
    pub(super) room: Room,
    /// The loop's time.
    pub(super) now: Millis,
    pub(super) wall_base: WallBase,
    pub(super) wall_read_at: Millis,
    /// The server's time: the wall clock's unless it was moved.
    pub(super) wall: WallMillis,
    /// Bytes of input that connections keep, as the store was told.
    pub(super) kept: usize,
    /// Connections hold all the memory they may.
    pub(super) short: bool,
    /// The most bytes that were on the heap since its free pages were given back.
    pub(super) heap_most: u64,
    /// Connections for which more waits than may.
    pub(crate) overflow: Overflow,
    /// Until then a connection may be closed for a value that was refused.
    pub(super) shed_until: Millis,
    /// When a line last said that a connection cannot be watched.
    pub(super) unwatched: Rarely,
    /// When a line last said that requests wait, since their addresses have asked for more than they may.
    pub(crate) put_off: Rarely,
    /// Connections that have to go for the memory of their requests.
    pub(crate) crowd: Crowd,
    /// How far connections were looked at for users that were removed.
    pub(crate) removed: Round,
    /// Connections that have ended in the midst of what is one moment for others: in front the one that goes on.
    pub(super) unfinished: VecDeque<Connection>,
}

impl Drop for Service {
    /// Takes back the input of connections that were not waited for.
    fn drop(&mut self) {
        self.hub.store.note_input(-(self.kept as i64));
    }
}

impl Service {
    /// The handler of worker `index`.
    pub fn new(hub: Arc<Hub>, index: usize, mut store: larder_store::Worker) -> Service {
        store.set_asked_again(true);
        let turn_replies = TurnReplies::new(SEND_AT_BYTES, &hub.store, OUTPUT_KEPT_BYTES);
        let mut service = Service {
            hub,
            index,
            store,
            turn_replies,
            room: Room::default(),
            now: 0,
            wall_base: WallBase::default(),
            wall_read_at: 0,
            wall: 0,
            kept: 0,
            short: false,
            heap_most: 0,
            overflow: Overflow::default(),
            shed_until: 0,
            unwatched: Rarely::default(),
            put_off: Rarely::default(),
            crowd: Crowd::default(),
            removed: Round::default(),
            unfinished: VecDeque::new(),
        };
        service.read_wall_clock();
        service.tend_samples();
        service
    }

    /// What all workers share.
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The worker's number.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The loop's time.
    pub(crate) fn now(&self) -> Millis {
        self.now
    }

    pub(super) fn read_wall_clock(&mut self) {
        let clock = &self.hub.clock;
        for _ in 0..WALL_READS {
            let before_ns = clock.elapsed_ns();
            let system_ns = clock.system_ns();
            let after_ns = clock.elapsed_ns();
            self.wall_base.learn(before_ns, system_ns, after_ns);
            self.wall_read_at = after_ns / 1_000_000;
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.hub.handles[self.index].counters
    }

    /// Does what was asked of the worker that samples traffic.
    pub(super) fn tend_samples(&self) {
        self.hub.shared.tend_samples(&self.room, &self.hub.store, self.now);
    }

    /// Gives back, before a long sleep, the store's chunks that the worker has.
    pub(super) fn rest(&mut self) {
        self.store.rest();
    }

    /// Does a round of upkeep, `beside_requests` or at leisure; true when there is more to do.
    pub(super) fn upkeep(&mut self, beside_requests: bool) -> bool {
        self.turn_replies.shrink(OUTPUT_KEPT_BYTES);
        let begun_us = self.hub.clock_us();
        let mut guard = self.store.enter(self.wall);
        self.hub.shared.flush_if_due(&mut guard);
        let us_max = if beside_requests { STEPS_US_BESIDE_MAX } else { STEPS_US_MAX };
        let until_us = self.hub.clock_us() + us_max;
        let mut more = true;
        for _ in 0..STEPS_MAX {
            more = if beside_requests { guard.maintain_beside_requests() } else { guard.maintain() };
            if !more || self.hub.clock_us() >= until_us {
                break;
            }
        }
        if self.hub.shared.watches_latency() {
            self.hub.shared.note_upkeep(self.wall, self.hub.clock_us().saturating_sub(begun_us));
        }
        self.hub.shared.tell_events(&mut guard, &*self.hub);
        self.hub.shared.serve_left(&mut guard, &*self.hub);
        if self.index == 0 {
            self.hub.shared.take_census(&mut guard);
            self.hub.shared.look_for_rare_keys(&mut guard, self.now);
            self.hub.shared.sample_items(&mut guard, self.now);
            if self.hub.shared.counts_samples() {
                self.hub.shared.count_samples(&self.hub.store, self.now);
            }
        }
        drop(guard);
        self.tend_samples();
        more |= self.hub.shared.is_left_more();
        more |= self.hub.shared.go_on_telling(&*self.hub, &self.hub.store, us_max * 1000);
        more |= self.hub.shared.forget_subscriptions(&self.hub.store);
        if self.index == 0 {
            self.trim_heap();
            self.hub.certificates.look_at_expiry(self.wall / 1000);
            self.hub.shared.look(self.wall, &*self.hub, &self.hub.store);
        }
        self.counters().add(Counter::Upkeep, self.hub.clock_us().saturating_sub(begun_us));
        more
    }

    /// Serves what ended connections have left that waited for something.
    #[inline]
    pub(super) fn serve_left(&mut self) {
        if self.hub.shared.has_left() {
            let mut guard = self.store.enter(self.wall);
            self.hub.shared.serve_left(&mut guard, &*self.hub);
        }
    }

    /// Goes on with the work of connections that have ended, for one slice, and drops the replies. Returns in how many
    /// milliseconds there is more to do, if there is.
    pub(super) fn finish_some(&mut self) -> Option<Millis> {
        self.room.work().begin_slice();
        let hub = Arc::clone(&self.hub);
        let counters = &hub.handles[self.index].counters;
        let mut goes_on = false;
        for _ in 0..self.unfinished.len() {
            let Some(mut connection) = self.unfinished.pop_front() else { break };
            let peer = At { facts: &connection.facts, hub: &hub };
            let guard = self.store.enter(self.wall);
            let mut context = Context::new(guard, counters, &hub.shared, &*hub, &peer, &self.room);
            let session = &mut connection.session;
            let progress = self
                .turn_replies
                .write(&mut connection.replies, |out| session.receive(&mut context, &[], out));
            drop(context);
            self.turn_replies.forget(std::mem::take(&mut connection.replies));
            if connection.session.holds() {
                // It has each slice until it is done: the others may wait for what it holds.
                self.unfinished.push_front(connection);
                return Some(match progress.next {
                    Next::Yield => 0,
                    // It counts its looks for memory, and how long it has waited.
                    Next::Sleep(ms) | Next::Await(Some(ms)) => ms,
                    _ => LOOK_MS,
                });
            }
            if connection.session.must_end() {
                goes_on |= progress.next == Next::Yield;
                self.room.work().spend(LOOK_NS);
                self.unfinished.push_back(connection);
            }
            if self.room.work().is_used_up() {
                break;
            }
        }
        (!self.unfinished.is_empty()).then_some(if goes_on { 0 } else { LOOK_MS })
    }

    /// Has the heap give its free pages back when much of what was on it is gone.
    fn trim_heap(&mut self) {
        let bytes = self.hub.store.heap_bytes();
        self.heap_most = self.heap_most.max(bytes);
        if self.heap_most - bytes >= self.hub.config.memory_bytes / TRIM_SHARE {
            self.heap_most = bytes;
            self.hub.store.trim_heap();
        }
    }

    /// After each turn: lets connections take less while they hold all they may, closes those that have to go for their requests,
    /// and has items give way.
    #[inline]
    pub(super) fn balance<B: Backend>(&mut self, events: &mut EventLoop<B, Connection>) {
        let short = self.hub.store.held_bytes() >= self.hub.store.held_bytes_max();
        // A connection may have made it so already in the turn that is over.
        self.set_short(short);
        events.set_short(self, short);
        let wanted = self.hub.shared.common.take_input_wanted();
        if wanted || self.is_crowded() {
            self.thin_out(events, wanted);
        }
        self.give_way();
    }

    /// Takes note of whether connections hold all they may, and stops filling the output while there is
    /// still memory for what a socket may leave of it.
    #[inline]
    pub(super) fn set_short(&mut self, short: bool) {
        self.short = short;
        self.turn_replies.set_limit(self.room(SEND_AT_BYTES));
    }

    /// Bytes of replies that a connection may have more, `most` at most: the less may still be held, the
    /// fewer. Two workers, and one of them twice in a turn, do not get beyond the share.
    #[inline]
    pub(super) fn room(&self, most: u64) -> u64 {
        let store = &self.hub.store;
        let left = store.held_bytes_max().saturating_sub(store.held_bytes());
        (left / (ROOM_SHARE * self.hub.handles.len() as u64)).clamp(SEND_AT_BYTES_SHORT, most)
    }

    /// Has items give way to what connections were given.
    #[inline(always)]
    pub(crate) fn give_way(&mut self) {
        if self.hub.store.is_over_limit() {
            self.store.enter(self.wall).give_way_for_now();
        }
    }

    /// Closes connections that stand still and hold memory that others need, those that hold most before others: one for a
    /// value that was refused, more while they hold more than they may. True while there may be more to close.
    pub(super) fn shed<B: Backend>(&mut self, events: &mut EventLoop<B, Connection>) -> bool {
        let hub = Arc::clone(&self.hub);
        let now = events.now();
        if hub.store.take_refusal() {
            self.shed_until = now + SHED_WITHIN_MS;
        }
        let wanted = if self.short { SHED_MAX } else { usize::from(now < self.shed_until) };
        let max = hub.store.held_bytes_max();
        let connections = hub.connections().max(1) as u64;
        let bytes_min = (max / SHED_REST_SHARE / connections).min(SHED_BYTES_MIN);
        let Stood { largest, bytes: mut left, count } = match now.checked_sub(SHED_AFTER_MS) {
            Some(until) if wanted > 0 => hub.table.standing(until, bytes_min, SHED_BYTES_SMALL, wanted),
            Some(_) | None => Stood::default(),
        };
        for (nth, Standing { worker, index, since, bytes }) in largest.into_iter().enumerate() {
            let refused = now < self.shed_until;
            let has_room = hub.store.held_bytes() < max - max / SHED_ROOM_SHARE;
            // One value alone may be more than the share: its only reader takes the time it needs, until
            // another wants the memory.
            let alone = nth + 1 == count;
            if !refused && (has_room || alone) {
                break;
            }
            // Those that are left hold little: what is missing is held by others, which move.
            if bytes < SHED_BYTES_SMALL && left <= max / SHED_REST_SHARE {
                break;
            }
            left = left.saturating_sub(bytes);
            self.shed_until = 0;
            if worker == self.index {
                self.shed_one(events, index, Closed::Shed);
            } else {
                // A mailbox that is full is read soon, and this comes again.
                let _ = hub.handles[worker].mailbox.send(Shed { index, since, input: false });
                break;
            }
        }
        self.short || now < self.shed_until
    }

    pub(super) fn shed_one<B: Backend>(
        &mut self,
        events: &mut EventLoop<B, Connection>,
        index: usize,
        why: Closed,
    ) {
        if let Some(id) = events.id_at(index) {
            events.close(self, id, why);
        }
    }

    /// Closes handshakes that stand still, if connections wait for their room.
    pub(super) fn make_room_for_handshakes<B: Backend>(&mut self, events: &mut EventLoop<B, Connection>) {
        while events.opening() > 0 && self.hub.certificates.take_wanted() {
            if !events.close_silent_opening(self, SILENT_MS) {
                return self.hub.certificates.leave_wanted();
            }
        }
    }

    /// A session of a connection of a listener whose connections speak this, whatever their first byte is.
    fn session_of(&mut self, speaks: Speaks, facts: &ConnectionFacts) -> Session {
        let hub = &*self.hub;
        let counters = &hub.handles[self.index].counters;
        let guard = self.store.enter(self.wall);
        Session::of(speaks, &Context::new(guard, counters, &hub.shared, hub, &At { facts, hub }, &self.room))
    }

    /// Has the loop watch a connection, and begins its conversation.
    pub(super) fn enter<B: Backend>(
        &mut self,
        events: &mut EventLoop<B, Connection>,
        stream: B::Stream,
        peer: Address,
        listener: usize,
    ) {
        tracing::debug!(peer = %peer, worker = self.index, "connection opened");
        let facts = Arc::new(ConnectionFacts::new(peer, listener, events.now()));
        let connection = Connection {
            session: Session::new(),
            replies: Replies::None,
            held: 0,
            unsent_below: 0,
            unauthenticated_bytes: 0,
            facts: Arc::clone(&facts),
        };
        match events.adopt(stream, connection) {
            Ok(id) => {
                self.store.set_patient(events.len() <= 1);
                self.hub.store.set_aside(CONNECTION_BYTES);
                self.hub.table.enter(self.index, id.index(), Arc::clone(&facts));
                if self.hub.shared.watches_connections() {
                    let (hub, facts) = (&*self.hub, &*facts);
                    hub.shared.watch_connection(hub, &hub.store, self.wall, &At { facts, hub }, None);
                }
                events.tell_between(self, id);
                let speaks = self.hub.listeners[listener].speaks;
                if speaks.is_known_at_once(&self.hub.shared)
                    && let Some(connection) = events.state(id)
                {
                    connection.session = self.session_of(speaks, &facts);
                    if connection.session.is_turned_away() {
                        events.look_at(self, id);
                    }
                }
            }
            Err(error) => {
                if let Some(times) = self.unwatched.due(events.now()) {
                    tracing::warn!(%error, times, "cannot watch a connection");
                }
                self.hub.handshake_not_begun(self.hub.listeners[listener].tls.is_some());
                self.hub.ended(self.index, &facts.peer);
            }
        }
    }
}
