//! A worker: one thread, one loop, one view of the store.
//!
//! [`Service`] is the loop's handler: it gives received bytes to the connection's session and sends
//! what the session leaves. Replies are written into one output for all connections; only what a
//! socket does not take moves to its connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use larder_commands::{Context, Counter, Counters, Host, Next as Wish, Output, Peer, Session};
use larder_eventloop::socket::Address;
use larder_eventloop::{
    Closed, Epoll, EventLoop, Handler, Id, Limits, Millis, Next, Place, Sent, Stream, Taken,
};
use larder_store::Millis as WallMillis;

use crate::hub::{Hub, Message};
use crate::overflow::Overflow;
use crate::table::Facts;

/// A session stops and its replies are sent when so many bytes of them wait: what a socket takes at
/// once, and what a processor's second cache holds.
const SEND_AT_BYTES: u64 = 256 << 10;

/// Replies of a connection that may be held for a common send: what a socket surely takes at once.
const HELD_REPLIES_MAX: u64 = 32 << 10;

/// Output memory that a worker keeps between bursts.
const OUTPUT_KEPT_BYTES: usize = 64 << 10;

/// Slices of one vectored send: 64 pieces of 16 KiB are a MiB, more than sockets take at once.
const SLICES: usize = 64;

/// A connection whose replies wait, or whose value is half there, without progress is closed after
/// this: what it holds is memory that others need.
const STALL_MS: Millis = 60_000;

/// As [`SEND_AT_BYTES`] when connections hold all the memory they may, or nearly: what a reader that
/// stops just then adds.
const SEND_AT_BYTES_SHORT: u64 = 8 << 10;

/// A worker fills one part in this many of what connections may still hold before it looks again.
const ROOM_SHARE: u64 = 4;

/// When others need its memory, a connection is closed whose replies have not moved for this long:
/// longer than any round trip that progress is made in.
const SHED_AFTER_MS: Millis = 250;

/// Replies of fewer bytes are not worth a connection, unless those of many connections are all short:
/// what all that are passed over hold is at most one part in [`SHED_REST_SHARE`] of what all may.
const SHED_BYTES_MIN: u64 = 16 << 10;
const SHED_REST_SHARE: u64 = 4;

/// Connections closed at a time while others hold more than they may.
const SHED_MAX: usize = 16;

/// So long after a value was refused for want of memory a connection is closed for it.
const SHED_WITHIN_MS: Millis = 1000;

/// Memory counted for a worker: its receive buffer, replies, stack, and free chunks in its hands.
pub(crate) const WORKER_BYTES: u64 = 256 << 10;

/// Memory counted for a connection that does nothing.
const CONNECTION_BYTES: i64 = 1 << 10;

/// Changes of the memory that input takes are told from this many bytes on.
const KEPT_TOLD_BYTES: usize = 16 << 10;

/// How long connections have to take their replies when the server stops.
const DRAIN_MS: Millis = 5_000;

/// Upkeep is looked at this often while requests come.
const TICK_BUSY_MS: Millis = 100;
/// The first worker looks this often when nothing happens, the others not at all.
const TICK_IDLE_MS: Millis = 250;
/// The pause between two rounds of upkeep that had more to do.
const TICK_MORE_MS: Millis = 2;
/// The heap's free pages are given back when what is on it has shrunk by one part in this many of the
/// memory limit.
const TRIM_SHARE: u64 = 64;
/// Steps of upkeep in one round, each bounded by the store.
const STEPS_MAX: usize = 16;
/// The wall clock is read anew this often; in between it moves with the loop's clock.
const CLOCK_MS: Millis = 1000;

/// What a worker keeps of a connection.
#[derive(Debug)]
pub struct Connection {
    pub(crate) session: Session,
    /// Replies that the socket did not take.
    pub(crate) rest: Option<Box<Output>>,
    /// Bytes of its memory, as the store was told.
    held: usize,
    pub(crate) facts: Arc<Facts>,
}

/// The handler of a worker's loop.
#[derive(Debug)]
pub struct Service {
    hub: Arc<Hub>,
    index: usize,
    store: larder_store::Worker,
    out: Output,
    /// Bytes of each connection's held replies, which `out` begins with, in order.
    held: VecDeque<u64>,
    /// Their sum.
    held_bytes: u64,
    /// The loop's time.
    now: Millis,
    /// The wall clock's time less the loop's.
    wall_base: WallMillis,
    wall_read_at: Millis,
    /// The server's time: the wall clock's unless it was moved.
    wall: WallMillis,
    /// Bytes of input that connections keep, as the store was told.
    kept: usize,
    /// Connections hold all the memory they may.
    short: bool,
    /// The most bytes that were on the heap since its free pages were given back.
    heap_most: u64,
    /// Connections for whom more waits than may.
    pub(crate) overflow: Overflow,
    /// Until then a connection may be closed for a value that was refused.
    shed_until: Millis,
}

impl Service {
    /// The handler of worker `index`.
    pub fn new(hub: Arc<Hub>, index: usize, store: larder_store::Worker) -> Service {
        let mut service = Service {
            hub,
            index,
            store,
            out: Output::new(SEND_AT_BYTES),
            held: VecDeque::new(),
            held_bytes: 0,
            now: 0,
            wall_base: 0,
            wall_read_at: 0,
            wall: 0,
            kept: 0,
            short: false,
            heap_most: 0,
            overflow: Overflow::default(),
            shed_until: 0,
        };
        service.read_wall_clock(0);
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

    fn read_wall_clock(&mut self, now: Millis) {
        self.wall_base = Hub::system_time().saturating_sub(now);
        self.wall_read_at = now;
    }

    fn counters(&self) -> &Counters {
        &self.hub.desks[self.index].counters
    }

    /// A round of upkeep; true when there is more to do.
    fn upkeep(&mut self) -> bool {
        self.out.shrink(OUTPUT_KEPT_BYTES);
        let started_us = self.hub.shared.watches_latency().then(|| self.hub.clock_us());
        let mut guard = self.store.enter(self.wall);
        self.hub.shared.flush_if_due(&mut guard);
        let more = (0..STEPS_MAX).all(|_| guard.maintain());
        if let Some(started_us) = started_us {
            self.hub.shared.note_upkeep(self.wall, self.hub.clock_us().saturating_sub(started_us));
        }
        self.hub.shared.tell_events(&mut guard, &*self.hub);
        drop(guard);
        if self.index == 0 {
            self.trim_heap();
            self.hub.shared.look(self.wall, &*self.hub, self.hub.store.used_bytes());
        }
        more
    }

    /// Has the heap give its free pages back when much of what was on it is gone.
    fn trim_heap(&mut self) {
        let bytes = self.hub.store.heap_bytes();
        self.heap_most = self.heap_most.max(bytes);
        if self.heap_most - bytes >= self.hub.config.memory_bytes / TRIM_SHARE {
            self.heap_most = bytes;
            larder_store::trim_heap();
        }
    }

    /// After each turn: tells the store what connections hold, has items give way to it, and lets
    /// connections take less while they hold all they may.
    #[inline]
    fn balance(&mut self, events: &mut EventLoop<Epoll, Service>) {
        let short = self.hub.store.held_bytes() >= self.hub.store.held_bytes_max();
        // Of the turn that is over, a connection may have made it so already.
        self.set_short(short);
        events.set_short(short);
        self.give_way();
    }

    /// Takes note of whether connections hold all they may, and stops filling the output while there is
    /// still memory for what a socket may leave of it.
    #[inline]
    fn set_short(&mut self, short: bool) {
        self.short = short;
        self.out.set_limit(self.room(SEND_AT_BYTES));
    }

    /// Bytes of replies that a connection may have more, `most` at most: the less may still be held, the
    /// fewer. Two workers, and one of them twice in a turn, do not get beyond the share.
    #[inline]
    fn room(&self, most: u64) -> u64 {
        let store = &self.hub.store;
        let left = store.held_bytes_max().saturating_sub(store.held_bytes());
        (left / (ROOM_SHARE * self.hub.desks.len() as u64)).clamp(SEND_AT_BYTES_SHORT, most)
    }

    /// Items give way to what connections were given.
    #[inline]
    fn give_way(&mut self) {
        if self.hub.store.is_over_limit() {
            self.store.enter(self.wall).give_way();
        }
    }

    /// Closes connections that stand still and hold memory that others need: one for a value that was
    /// refused, more while they hold more than they may. True while there may be more to close.
    fn shed(&mut self, events: &mut EventLoop<Epoll, Service>) -> bool {
        let hub = Arc::clone(&self.hub);
        let now = events.now();
        if hub.store.take_refusal() {
            self.shed_until = now + SHED_WITHIN_MS;
        }
        let wanted = if self.short { SHED_MAX } else { usize::from(now < self.shed_until) };
        let connections = hub.connections().max(1) as u64;
        let bytes_min = (hub.store.held_bytes_max() / SHED_REST_SHARE / connections).min(SHED_BYTES_MIN);
        for _ in 0..wanted {
            let Some((worker, index, since)) = hub.table.longest_standing(bytes_min) else { break };
            if now < since + SHED_AFTER_MS {
                break;
            }
            self.shed_until = 0;
            if worker == self.index {
                self.shed_one(events, index);
            } else {
                // A mailbox that is full is read soon, and this comes again.
                let _ = hub.desks[worker].mailbox.send(Message::Shed { index, since });
                break;
            }
        }
        self.short || now < self.shed_until
    }

    fn shed_one(&mut self, events: &mut EventLoop<Epoll, Service>, index: usize) {
        if let Some(id) = events.id_at(index) {
            events.close(self, id, Closed::Shed);
        }
    }

    /// A session of a connection that speaks RESP from its first byte on.
    fn redis_session(&mut self, facts: &Facts) -> Session {
        let hub = &*self.hub;
        let counters = &hub.desks[self.index].counters;
        let guard = self.store.enter(self.wall);
        Session::redis(&Context { guard, counters, shared: &hub.shared, host: hub, peer: &At { facts, hub } })
    }

    /// Takes over a connection.
    fn adopt(
        &mut self,
        events: &mut EventLoop<Epoll, Service>,
        socket: larder_eventloop::socket::Socket,
        listener: usize,
    ) {
        let peer = match socket.peer_address() {
            Ok(peer) => peer,
            Err(_) => return self.hub.ended(self.index),
        };
        tracing::debug!(peer = %peer, worker = self.index, "connection opened");
        let facts = Arc::new(Facts::new(peer, listener, events.now()));
        let connection =
            Connection { session: Session::new(), rest: None, held: 0, facts: Arc::clone(&facts) };
        match events.adopt(socket, connection) {
            Ok(id) => {
                self.hub.store.set_aside(CONNECTION_BYTES);
                self.hub.table.enter(self.index, id.index(), Arc::clone(&facts));
                if listener >= self.hub.redis_from
                    && let Some(connection) = events.state(id)
                {
                    connection.session = self.redis_session(&facts);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot watch a connection");
                self.hub.ended(self.index);
            }
        }
    }
}

/// A connection as its session sees it.
struct At<'h> {
    facts: &'h Facts,
    hub: &'h Hub,
}

impl Peer for At<'_> {
    fn address(&self) -> String {
        plain(&self.facts.peer)
    }
    fn listen_address(&self) -> String {
        plain(&self.hub.listening[self.facts.listener])
    }
    fn place(&self) -> u64 {
        self.facts.place()
    }
}

/// `127.0.0.1:6379`, or `/path:0` of a Unix socket.
fn plain(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("{}:0", path.display()),
    }
}

impl Service {
    /// Tells the store and the table what a connection's replies hold after a send; how many bytes
    /// wait.
    fn keep_account(&mut self, connection: &mut Connection, moved: bool) -> u64 {
        let rest = connection.rest.as_deref();
        let (held, unsent) = rest.map_or((0, 0), |rest| (rest.capacity_bytes().max(1), rest.len()));
        if held != connection.held {
            let store = &self.hub.store;
            store.hold(held as i64 - connection.held as i64);
            if held > connection.held {
                // Many connections may have their replies in one turn.
                let short = store.held_bytes() >= store.held_bytes_max();
                self.set_short(short);
                self.give_way();
            }
        }
        if unsent == 0 {
            connection.facts.moves();
        } else {
            let since = (moved || connection.held == 0).then_some(self.now);
            connection.facts.stands(since, unsent);
        }
        connection.session.show_output(held as u64);
        if let Some(limit) = connection.session.output_limit(&self.hub.shared) {
            self.overflow.left_behind(&connection.facts, unsent, limit, self.now);
        }
        connection.held = held;
        unsent
    }
}

impl Handler for Service {
    type Connection = Connection;

    #[inline]
    fn woke(&mut self, now: Millis) {
        self.now = now;
        if now >= self.wall_read_at + CLOCK_MS {
            self.read_wall_clock(now);
        }
        self.wall = self.hub.shared.now(self.wall_base + now);
    }

    fn received(&mut self, connection: &mut Connection, input: &[u8]) -> Taken {
        let room = connection.rest.as_ref().map_or(0, |_| self.room(SEND_AT_BYTES));
        let hub = &*self.hub;
        let counters = &hub.desks[self.index].counters;
        let out = match &mut connection.rest {
            Some(rest) => {
                rest.set_limit((rest.len() + room).min(hub.config.reply_bytes_max()));
                rest
            }
            None => &mut self.out,
        };
        let guard = self.store.enter(self.wall);
        let peer = At { facts: &connection.facts, hub };
        let mut context = Context { guard, counters, shared: &hub.shared, host: hub, peer: &peer };
        let progress = connection.session.receive(&mut context, input, out);
        counters.add(Counter::BytesRead, progress.consumed as u64);
        let partial = progress.consumed < input.len() || !connection.session.is_idle();
        connection.facts.received(self.now, partial);
        let next = match progress.next {
            Wish::Receive => Next::Receive,
            Wish::Flush => Next::Again,
            Wish::Yield => Next::Yield,
            Wish::Sleep(ms) => Next::Sleep(ms),
            Wish::Close => Next::Close,
        };
        Taken { bytes: progress.consumed, next }
    }

    fn destination<'d>(&'d mut self, connection: &'d mut Connection) -> Option<Place<'d>> {
        if connection.session.is_idle() {
            return None;
        }
        let hub = &*self.hub;
        let counters = &hub.desks[self.index].counters;
        let guard = self.store.enter(self.wall);
        let peer = At { facts: &connection.facts, hub };
        let mut context = Context { guard, counters, shared: &hub.shared, host: hub, peer: &peer };
        let missing = connection.session.upload_missing();
        Some(Place::new(connection.session.upload_spaces(&mut context)?, missing))
    }

    fn filled(&mut self, connection: &mut Connection, bytes: usize) -> Next {
        connection.session.upload_filled(bytes);
        connection.facts.received(self.now, true);
        self.counters().add(Counter::BytesRead, bytes as u64);
        Next::Receive
    }

    #[inline]
    fn keeps(&mut self, bytes: usize) {
        if bytes.abs_diff(self.kept) >= KEPT_TOLD_BYTES {
            self.hub.store.set_aside(bytes as i64 - self.kept as i64);
            self.kept = bytes;
            self.give_way();
        }
    }

    #[inline]
    fn holds_room(&self, connection: &Connection) -> bool {
        connection.session.holds_room()
    }

    fn send<S: Stream>(&mut self, connection: &mut Connection, stream: &mut S) -> io::Result<Sent> {
        let out = match &mut connection.rest {
            Some(rest) => rest,
            None => &mut self.out,
        };
        if out.is_empty() {
            return Ok(Sent::default());
        }
        let bytes = send_all(out, stream).inspect_err(|_| self.out.clear())?;
        self.hub.desks[self.index].counters.add(Counter::BytesWritten, bytes);
        match &mut connection.rest {
            Some(rest) if rest.is_empty() => connection.rest = None,
            Some(_) => {}
            None if self.out.is_empty() => return Ok(Sent { bytes, unsent: 0 }),
            None => connection.rest = Some(Box::new(self.out.take_rest())),
        }
        Ok(Sent { bytes, unsent: self.keep_account(connection, bytes > 0) })
    }

    #[inline]
    fn hold(&mut self, connection: &mut Connection) -> bool {
        let bytes = self.out.len() - self.held_bytes;
        // Large values go out on their own; what waits for room goes on waiting.
        let holds = (1..=HELD_REPLIES_MAX).contains(&bytes)
            && !self.short
            && connection.rest.is_none()
            && self.out.contiguous().is_some();
        if holds {
            self.held.push_back(bytes);
            self.held_bytes += bytes;
        }
        holds
    }

    fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    fn send_held<S: Stream>(&mut self, connection: &mut Connection, stream: &mut S) -> io::Result<Sent> {
        let bytes = self.held.pop_front().expect("the loop asks for what is held");
        self.held_bytes -= bytes;
        let replies = self.out.front(bytes as usize);
        let sent = or_none(stream.send(replies));
        if let Ok(sent) = sent
            && sent < replies.len()
        {
            connection.rest = Some(Box::new(Output::of(&replies[sent..])));
        }
        self.out.pop_front(bytes as usize);
        let sent = sent? as u64;
        self.hub.desks[self.index].counters.add(Counter::BytesWritten, sent);
        let unsent = if sent < bytes { self.keep_account(connection, sent > 0) } else { 0 };
        Ok(Sent { bytes: sent, unsent })
    }

    fn closed(&mut self, id: Id, mut connection: Connection, why: Closed) {
        // What its session had left and no send took belongs to nobody else.
        self.out.truncate(self.held_bytes);
        self.hub.table.strike(self.index, id.index());
        connection.rest = None;
        self.keep_account(&mut connection, true);
        self.hub.store.set_aside(-CONNECTION_BYTES);
        match why {
            Closed::Idle => self.counters().add(Counter::IdleKicks, 1),
            Closed::Shed => {
                self.counters().add(Counter::Shed, 1);
                tracing::info!(peer = %connection.facts.peer, ?why, "connection closed");
            }
            Closed::Stalled | Closed::Input => {
                tracing::info!(peer = %connection.facts.peer, ?why, "connection closed");
            }
            Closed::Handler | Closed::Peer | Closed::Error | Closed::Drained => {}
        }
        tracing::debug!(peer = %connection.facts.peer, ?why, "connection closed");
        drop(connection);
        self.hub.ended(self.index);
    }
}

/// Sends what the stream takes now of all replies; how many bytes that was.
#[inline]
fn send_all<S: Stream>(out: &mut Output, stream: &mut S) -> io::Result<u64> {
    if let Some(bytes) = out.contiguous() {
        let sent = or_none(stream.send(bytes))?;
        out.advance(sent as u64);
        return Ok(sent as u64);
    }
    let mut total = 0;
    while !out.is_empty() {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let used = out.slices(&mut slices);
        let offered: usize = slices[..used].iter().map(|slice| slice.len()).sum();
        let sent = or_none(stream.send_vectored(&slices[..used]))?;
        out.advance(sent as u64);
        total += sent as u64;
        if sent < offered {
            break;
        }
    }
    Ok(total)
}

#[inline]
fn or_none(sent: io::Result<usize>) -> io::Result<usize> {
    match sent {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        sent => sent,
    }
}

/// Runs a worker until it is told to stop and its connections are served.
///
/// # Errors
/// When the system gives it no loop.
pub fn run(hub: Arc<Hub>, index: usize, store: larder_store::Worker) -> io::Result<()> {
    let desk = &hub.desks[index];
    let limits = Limits {
        reply_bytes_max: hub.config.reply_bytes_max(),
        idle_ms: hub.config.idle_timeout_s.saturating_mul(1000),
        stall_ms: STALL_MS,
    };
    let mut events = EventLoop::new(Epoll::new(desk.mailbox.waker(), hub.started)?, limits);
    let mut service = Service::new(Arc::clone(&hub), index, store);
    let mut tick_at: Option<Millis> = (index == 0).then_some(0);
    let mut busy = false;
    loop {
        let wait = tick_at.map(|at| Duration::from_millis(at.saturating_sub(events.now())));
        let turn = events.turn(&mut service, wait)?;
        if turn.woken {
            if !take_mail(&mut events, &mut service) {
                return drain(events, service);
            }
            service.deliver(&mut events);
        }
        service.balance(&mut events);
        if service.overflow.any() {
            // Looked at again with the next upkeep.
            busy |= service.cut(&mut events);
        }
        busy |= turn.events > 0;
        if tick_at.is_some_and(|at| turn.now >= at) {
            let more = service.upkeep();
            busy |= service.shed(&mut events);
            tick_at = match (more, busy, index) {
                (true, _, _) => Some(turn.now + TICK_MORE_MS),
                (false, true, _) => Some(turn.now + TICK_BUSY_MS),
                (false, false, 0) => Some(turn.now + TICK_IDLE_MS),
                (false, false, _) => {
                    service.store.rest();
                    None
                }
            };
            busy = false;
        } else if tick_at.is_none() && busy {
            tick_at = Some(turn.now + TICK_BUSY_MS);
        }
    }
}

/// Reads the mail; false when the worker is to stop.
fn take_mail(events: &mut EventLoop<Epoll, Service>, service: &mut Service) -> bool {
    let hub = Arc::clone(&service.hub);
    let mut go_on = true;
    for message in hub.desks[service.index].mailbox.take() {
        match message {
            Message::Connection { socket, listener } => service.adopt(events, socket, listener),
            Message::Kill { index, client } => {
                if let Some(id) = events.id_at(index)
                    && events.state(id).is_some_and(|at| at.session.redis_client() == Some(client))
                {
                    events.close(service, id, Closed::Handler);
                }
            }
            Message::Shed { index, since } => {
                // Unless it has moved since, or is another.
                if service.hub.table.stands_since(service.index, index) == since {
                    service.shed_one(events, index);
                }
            }
            Message::Stop => go_on = false,
        }
    }
    go_on
}

/// Answers what has come, sends what waits, and ends all connections.
fn drain(mut events: EventLoop<Epoll, Service>, mut service: Service) -> io::Result<()> {
    events.turn(&mut service, Some(Duration::ZERO))?;
    events.drain(&mut service);
    let until = events.now() + DRAIN_MS;
    while !events.is_empty() && events.now() < until {
        events.turn(&mut service, Some(Duration::from_millis(until - events.now())))?;
    }
    tracing::debug!(worker = service.index, left = events.len(), "worker stopped");
    Ok(())
}

/// The worker with the fewest connections.
pub fn fewest(hub: &Hub) -> usize {
    let load = |index: &usize| hub.desks[*index].connections.load(Relaxed);
    (0..hub.desks.len()).min_by_key(load).expect("a server has a worker")
}
