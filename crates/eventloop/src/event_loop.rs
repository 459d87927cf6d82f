//! The loop of one worker.
//!
//! ```text
//! wait ─► readable ─► one receive into the loop's buffer, behind the kept bytes
//!  ▲                    │  (or into the handler's own memory)
//!  │                    ▼
//!  │                  handler.received: takes requests, leaves replies
//!  │                    │
//!  │                    ▼
//!  │                  deferred until all events of the wait are looked at; then handler.replies, one send for each
//!  │                    │
//!  └──── bytes not taken are kept by the connection; bytes not sent wait for writability
//! ```
//!
//! A request in its own packet costs one wait, one receive, one send and one look at the clock.
//!
//! Order of a turn: connections with new bytes come first. Then come connections that continue with kept bytes, and those whose
//! last processing took much work, in the order in which they were queued, as many as the handler's budget allows. Handshakes
//! have a queue of their own, and a quarter of the time while other connections wait ([`opening`]). So a connection with a small
//! request waits for one turn, however many others have large ones.
//!
//! Bounds: a connection keeps at most [`RECEIVE_BYTES`] of input. The loop stops reading a connection while more than
//! `reply_bytes_max` of its replies wait. It closes one whose replies make no progress for `stall_ms`, and one whose incomplete
//! request makes none for `request_ms`. With nothing to do the loop sleeps until it is woken.

mod between;
mod ending;
mod input;
mod opening;
mod output;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::time::Duration;

use crate::Millis;
use crate::backend::{Backend, Between, Stream, WAKER_TOKEN};
use crate::connections::{Connection, Connections, Id};
use crate::handler::{Closed, Handler};
use crate::poll::{Event, Interest};
use opening::Openings;

/// Size of the loop's one receive buffer, and the most bytes of input that a connection keeps.
pub const RECEIVE_BYTES: usize = 64 << 10;

/// Bounds of a loop's connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Unsent bytes above which a connection is read no further.
    pub reply_bytes_max: u64,
    /// A connection from which nothing was received for this long is closed, unless its request is under way; 0 never.
    pub idle_ms: Millis,
    /// A connection that takes nothing of waiting replies for this long is closed; 0 never.
    pub stall_ms: Millis,
    /// A connection that has sent a part of a request, and nothing more of it for this long, is closed; 0 never.
    pub request_ms: Millis,
    /// An unauthenticated client of a server that asks for a password, and a connection in its handshake, are closed after this
    /// long; 0 never.
    pub unauthenticated_ms: Millis,
}

/// What one turn of the loop saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeUp {
    /// The waker has fired.
    pub woken: bool,
    /// Events of connections.
    pub events: usize,
    /// The time at the start of the turn's work.
    pub now: Millis,
}

/// The connections of one worker, the receive buffer that they share, and the wait for events.
#[derive(Debug)]
pub struct EventLoop<B: Backend, C> {
    backend: B,
    connections: Connections<Connection<B::Stream, C>>,
    /// Connections whose turn comes without a wait.
    queue: VecDeque<Id>,
    /// Connections in their handshakes, in order.
    openings: Openings,
    /// Sleeping connections, by the time at which they are queued. One that is woken early is removed, since many may sleep for
    /// long and be woken soon.
    asleep: BTreeSet<(Millis, Id)>,
    buffer: Box<[u8]>,
    limits: Limits,
    /// Memory for replies is short: no request is processed whose reply may have to wait ([`EventLoop::set_short`]).
    short: bool,
    /// Connections whose replies are deferred, in order. Their replies are sent after all events of a wait. A sleeping peer is
    /// then woken once for many sends; waking costs the sender some microseconds.
    deferred: Vec<Id>,
    /// Bytes of the deferred replies.
    deferred_bytes: u64,
    /// Connections whose replies wait for room.
    waiting: usize,
    /// Connections that have sent a part of a request, which the handler has taken.
    receiving: usize,
    /// There may be a connection that keeps a part of a request.
    keeping: bool,
    sweep_at: Millis,
    /// Where the sweep for timeouts continues; 0 if none is under way.
    sweep_from: usize,
    /// Bytes of memory for input that connections keep.
    kept_bytes: usize,
    /// The loop is drained: each connection ends after its last reply ([`EventLoop::drain`]).
    draining: bool,
}

impl<B: Backend, C> EventLoop<B, C> {
    /// A loop without connections.
    pub fn new(backend: B, limits: Limits) -> EventLoop<B, C> {
        EventLoop {
            backend,
            connections: Connections::new(),
            queue: VecDeque::new(),
            openings: Openings::default(),
            deferred: Vec::new(),
            deferred_bytes: 0,
            asleep: BTreeSet::new(),
            buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            limits,
            short: false,
            waiting: 0,
            receiving: 0,
            keeping: false,
            sweep_at: 0,
            sweep_from: 0,
            kept_bytes: 0,
            draining: false,
        }
    }

    /// Takes over a connection.
    ///
    /// # Errors
    /// When the backend cannot watch it; stream and state are dropped then.
    pub fn adopt(&mut self, stream: B::Stream, state: C) -> io::Result<Id> {
        let now = self.backend.now();
        let id = self.connections.next_id();
        let opening = stream.between().is_some_and(|between| between.opening);
        self.backend.add(&stream, id.token(), Interest::Read)?;
        let connection = Connection {
            stream,
            state,
            kept: Vec::new(),
            unsent: 0,
            received_at: now,
            sent_at: now,
            interest: Interest::Read,
            closing: None,
            deferred: false,
            receiving: false,
            again: false,
            blocked: false,
            room: 0,
            uploads: false,
            queued: false,
            dear: false,
            awaits: false,
            put_off: None,
            sleeps: None,
            owed: 0,
            below: 0,
            between: Between::default(),
            looks: false,
            opening: opening.then_some(now),
        };
        if opening {
            self.begin_opening(id);
        }
        Ok(self.connections.insert(connection))
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// How many connections sleep until some time.
    pub fn asleep(&self) -> usize {
        self.asleep.len()
    }

    /// There are no connections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The time of the last wait.
    pub fn now(&self) -> Millis {
        self.backend.now()
    }

    /// How long the present turn has taken, which began with the last wait ([`Backend::worked_ns`]).
    #[inline]
    pub fn worked_ns(&self) -> u64 {
        self.backend.worked_ns()
    }

    /// The time of the last wait, nanoseconds.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.backend.now_ns()
    }

    /// The backend.
    pub fn backend(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Bytes of memory that connections take for input they keep.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Sets whether memory for replies is short. While it is, the loop reads a connection and processes its requests only if none
    /// of its replies wait and its stream has room for more, and it receives no more at a time than the connection can keep. What
    /// other connections wait for continues ([`Handler::holds_up_others`]).
    pub fn set_short<H: Handler<Connection = C>>(&mut self, handler: &mut H, short: bool) {
        if self.short == short {
            return;
        }
        self.short = short;
        if !short {
            self.unblock(handler);
        }
    }

    /// Memory is no longer short: queues the connections that waited for room in their streams, and reads again those whose
    /// replies wait, within the usual limits.
    #[cold]
    fn unblock<H: Handler<Connection = C>>(&mut self, handler: &mut H) {
        for index in 0..self.connections.entries() {
            let Some((id, _)) = self.connections.at(index) else { continue };
            let Some(connection) = self.connections.find(id) else { continue };
            if std::mem::take(&mut connection.blocked) && !connection.queued {
                connection.queued = true;
                self.queue.push_back(id);
            }
            if connection.unsent > 0 {
                self.arrange(handler, id);
            }
        }
    }

    /// The handler's state of a connection, if it still lives.
    pub fn state(&mut self, id: Id) -> Option<&mut C> {
        self.connections.find(id).map(|connection| &mut connection.state)
    }

    /// Tells the handler what the stream of a connection buffers, before any bytes have arrived.
    pub fn tell_between<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id) {
        self.look_below(handler, id);
    }

    /// Has the handler process a connection that has sent nothing, as soon as its handshake is finished.
    pub fn look_at<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id) {
        match self.connections.find(id) {
            Some(connection) if connection.opening.is_some() => connection.looks = true,
            _ => self.process(handler, id, 0),
        }
    }

    /// Has the handler process, in the next turn, a connection that waits to be woken ([`Wait::Wake`](crate::Wait::Wake)).
    pub fn wake(&mut self, id: Id) {
        let Some(connection) = self.connections.find(id) else { return };
        if !std::mem::take(&mut connection.awaits) {
            return;
        }
        // A connection that is woken was not idle.
        connection.received_at = self.backend.now();
        if let Some(at) = connection.sleeps.take() {
            self.asleep.remove(&(at, id));
        }
        self.queue.push_back(id);
    }

    /// Queues a connection after `ms` milliseconds.
    fn put_to_sleep(&mut self, id: Id, ms: Millis) {
        let at = self.backend.now().saturating_add(ms);
        if let Some(connection) = self.connections.find(id) {
            (connection.queued, connection.sleeps) = (true, Some(at));
            self.asleep.insert((at, id));
        }
    }

    /// Sends what the handler has left for a connection outside of that connection's turn.
    pub fn push<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id) {
        self.send_and_arrange(handler, id, None);
    }

    /// Indexes of connections are below this.
    pub fn places(&self) -> usize {
        self.connections.entries()
    }

    /// The connection at an index, if there is one.
    pub fn id_at(&mut self, index: usize) -> Option<Id> {
        (index < self.connections.entries()).then(|| self.connections.at(index))?.map(|(id, _)| id)
    }

    /// Waits for something to do, `timeout` at most, and does it.
    ///
    /// # Errors
    /// When the backend cannot wait, which does not happen in correct use.
    pub fn turn<H: Handler<Connection = C>>(
        &mut self,
        handler: &mut H,
        timeout: Option<Duration>,
    ) -> io::Result<WakeUp> {
        let timeout = self.wait_for(handler, timeout);
        let events = self.backend.wait(timeout)?;
        let now = self.backend.now();
        handler.woke(self.backend.now_ns());
        let mut turn = WakeUp { woken: false, events: 0, now };
        for index in 0..events {
            let event = self.backend.event(index);
            match event.token {
                WAKER_TOKEN => turn.woken = true,
                token => {
                    turn.events += 1;
                    self.ready(handler, Id::from_token(token), event);
                }
            }
        }
        self.send_deferred(handler);
        let before = self.queue.len();
        while let Some((at, id)) = self.asleep.first().copied()
            && at <= now
        {
            self.asleep.pop_first();
            if let Some(connection) = self.connections.find(id) {
                connection.sleeps = None;
                if std::mem::take(&mut connection.awaits) {
                    connection.received_at = now;
                }
                self.queue.push_back(id);
            }
        }
        if self.queue.len() > before + 1 {
            self.order_put_off(before);
        }
        // Only connections that were queued before this turn: one that is queued again waits for the next. At least one is
        // processed. Then the loop stops when the handler's budget is spent, so that new events come first.
        let queued = self.queue.len();
        for _ in 0..queued {
            let Some(id) = self.queue.pop_front() else { break };
            if let Some(connection) = self.connections.find(id) {
                connection.queued = false;
                if connection.put_off.is_some() {
                    self.receive_put_off(handler, id);
                } else if !connection.again && (connection.dear || connection.stream.between().is_some()) {
                    self.receive_rest(handler, id);
                } else {
                    self.process(handler, id, 0);
                }
            }
            if handler.budget_spent() || handler.budget_nearly_spent() {
                break;
            }
        }
        self.send_deferred(handler);
        if self.openings.any_wait() {
            self.open_next(handler, turn.events, queued);
        }
        if now >= self.sweep_at {
            self.sweep(handler, now);
        }
        Ok(turn)
    }

    fn wait_for<H: Handler<Connection = C>>(
        &self,
        handler: &H,
        timeout: Option<Duration>,
    ) -> Option<Duration> {
        if !self.queue.is_empty() || self.openings.any_wait() {
            return Some(Duration::ZERO);
        }
        let timeout = match self.asleep.first() {
            Some((at, _)) => {
                let left = Duration::from_millis(at.saturating_sub(self.backend.now()));
                Some(timeout.map_or(left, |timeout| timeout.min(left)))
            }
            None => timeout,
        };
        if !self.times(handler) {
            return timeout;
        }
        let sweep = Duration::from_millis(self.sweep_at.saturating_sub(self.backend.now()));
        Some(timeout.map_or(sweep, |timeout| timeout.min(sweep)))
    }

    /// Some connection can run into a timeout.
    fn times<H: Handler<Connection = C>>(&self, handler: &H) -> bool {
        self.sweep_from > 0
            || self.waiting > 0 && self.limits.stall_ms > 0
            || (self.receiving > 0 || self.keeping) && self.limits.request_ms > 0
            || self.limits.idle_ms > 0 && !self.is_empty()
            || self.limits.unauthenticated_ms > 0
                && (self.openings.count() > 0 || handler.has_unauthenticated())
    }

    fn ready<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id, event: Event) {
        if event.writable || event.hangup {
            self.send_deferred(handler);
        }
        if event.writable
            && let Some(connection) = self.connections.find(id)
        {
            connection.blocked = false;
        }
        if event.writable && self.flush(handler, id).is_err() {
            return self.close(handler, id, Closed::Error);
        }
        // No receive would show an error on a connection that is not read, and the system would report it for ever.
        let Some(connection) = self.connections.find(id) else { return };
        let reading = connection.is_read();
        if event.hangup && !(reading && event.readable) {
            return self.close(handler, id, Closed::Error);
        }
        if event.readable && reading && !connection.again && !self.waits_its_turn(id) {
            self.receive(handler, id);
        }
    }

    /// Decides what the connection waits for: bytes, room, both or nothing.
    fn arrange<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id) {
        let Some(connection) = self.connections.find(id) else { return };
        let between = connection.stream.between();
        if let Some(between) = between {
            self.note_between(handler, id, between);
        }
        if self.draining && self.had_all(handler, id) {
            return;
        }
        let Some(connection) = self.connections.find(id) else { return };
        let receiving = handler.awaits_rest(&connection.state);
        if connection.receiving != receiving {
            connection.receiving = receiving;
            self.receiving = if receiving { self.receiving + 1 } else { self.receiving - 1 };
        }
        if between.is_some_and(|between| between.worn && between.received == 0)
            && connection.is_between_requests()
        {
            return self.close(handler, id, Closed::Handler);
        }
        // Replies that can go out only after the peer's part of the handshake do not wait for room.
        let opens = between.is_some_and(|between| between.opening && between.unsent == 0);
        let write = (connection.unsent > 0 || connection.blocked) && !opens;
        let max = if self.short { 0 } else { self.limits.reply_bytes_max };
        let read = connection.closing.is_none() && !connection.again && connection.unsent <= max;
        let interest = match (read, write) {
            (true, false) => Interest::Read,
            (false, true) => Interest::Write,
            (true, true) => Interest::Both,
            (false, false) if connection.awaits && !handler.must_end(&connection.state) => Interest::End,
            (false, false) => Interest::None,
        };
        // A connection that stopped for lack of room continues while less than the limit waits. So a client that writes all of
        // its requests before it reads a reply has all of them read.
        let room = (connection.unsent < max || connection.unsent == 0) && !connection.blocked;
        let goes_on = || room || handler.holds_up_others(&connection.state);
        if connection.again && connection.closing.is_none() && !connection.queued && goes_on() {
            connection.queued = true;
            self.queue.push_back(id);
        }
        if read
            && !connection.queued
            && let Some(between) = between
            && between.received > 0
        {
            connection.queued = true;
            if between.opening { self.openings.wait(id) } else { self.queue.push_back(id) }
        }
        if connection.interest != interest {
            connection.interest = interest;
            if self.backend.modify(&connection.stream, id.token(), interest).is_err() {
                self.close(handler, id, Closed::Error);
            }
        }
    }
}
