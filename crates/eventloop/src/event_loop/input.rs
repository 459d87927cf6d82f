//! How a connection's bytes come in: one receive into the loop's buffer behind what the connection kept, or into the handler's
//! own memory. Then the handler takes requests, and the connection keeps the rest.

use std::io;

use super::output::{Sent, send};
use super::{EventLoop, RECEIVE_BYTES};
use crate::Millis;
use crate::backend::{Backend, Stream};
use crate::connections::{Connection, Id};
use crate::handler::{Closed, Handler, PutOff, Wait};

/// Most bytes received into a handler's own memory before other connections have their turn.
const DIRECT_BYTES_PER_TURN: usize = 1 << 20;

/// Bytes received into the buffer from a connection that uploads: the head of a request, and little of the value, which would
/// have to be copied to its place.
const HEAD_BYTES: usize = 2 << 10;

/// Bytes received behind a value whose connection is put off: the line end of text and RESP, and nothing of the next request.
const END_BYTES: usize = 2;

/// Bytes received at a time while memory is short: what cannot be answered has to be kept.
const RECEIVE_BYTES_SHORT: usize = 4 << 10;

/// Bytes received at a time when the handler's budget is nearly spent.
const RECEIVE_BYTES_NEARLY_SPENT: usize = 1 << 10;

/// Rounds of kept input that a connection gets in a row while all its replies go out at once.
const ROUNDS_PER_TURN: usize = 8;

/// Replies deferred for a common send: as many as fit a processor's second cache beside everything else.
const DEFERRED_BYTES_MAX: u64 = 128 << 10;

/// Work for one connection, in nanoseconds, after which others come before it the next time. It is a fifth of the budget of a
/// turn for queued connections, and what a dozen short requests with their system calls take.
const DEAR_NS: u64 = 100_000;

impl<B: Backend, C> EventLoop<B, C> {
    /// Receives once from a connection, and has the handler process what came.
    pub(super) fn receive<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id) {
        let now = self.backend.now();
        let Some(connection) = self.connections.find(id) else { return };
        let kept = connection.kept.len();
        if kept == 0 && handler.destination(&mut connection.state).is_some() {
            return self.receive_directly(handler, id);
        }
        let mut room = RECEIVE_BYTES - kept;
        let asks = connection.opening.is_none() && !self.draining;
        let put_off = if asks { handler.put_off(&connection.state) } else { None };
        match put_off {
            None => {}
            Some(PutOff { ms, rest: 0 }) => return self.put_off(handler, id, ms),
            Some(PutOff { rest, .. }) => {
                room = room.min(usize::try_from(rest).map_or(room, |rest| rest.saturating_add(END_BYTES)));
            }
        }
        if self.short {
            if is_blocked(connection) {
                connection.again = true;
                return self.arrange(handler, id);
            }
            room = room.min(RECEIVE_BYTES_SHORT);
        }
        if handler.budget_nearly_spent() {
            room = room.min(RECEIVE_BYTES_NEARLY_SPENT);
        }
        self.buffer[..kept].copy_from_slice(&connection.kept);
        let mut room = if connection.uploads { room.min(HEAD_BYTES) } else { room };
        if self.draining {
            room = room.min(connection.owed);
        }
        let received = connection.stream.recv(&mut self.buffer[kept..kept + room]);
        note_records(handler, connection, now);
        match received {
            Ok(0) => self.finish(handler, id, Closed::Peer),
            Ok(bytes) => {
                connection.received_at = now;
                connection.owed = connection.owed.saturating_sub(bytes);
                self.process(handler, id, bytes);
                if bytes == room {
                    self.go_on(handler, id);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.look_below(handler, id),
            Err(_) => self.close(handler, id, Closed::Error),
        }
    }

    /// Continues after a receive that filled its room: if it began an upload, the socket holds more of it.
    fn go_on<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id) {
        let Some(connection) = self.connections.find(id) else { return };
        connection.uploads = connection.closing.is_none()
            && !connection.again
            && connection.kept.is_empty()
            && handler.destination(&mut connection.state).is_some();
        if connection.uploads {
            // Replies to earlier requests may be deferred, and what comes now can be answered too.
            self.send_deferred(handler);
            self.receive_directly(handler, id);
        }
    }

    /// Receives into the handler's own memory until the socket is empty, the bytes belong to the buffer again, or others have
    /// waited long enough.
    ///
    /// A complete upload is always finished here, even if others wait: nothing may follow it, and then no readiness would bring
    /// the loop back to it.
    fn receive_directly<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id) {
        let now = self.backend.now();
        let Some(connection) = self.connections.find(id) else { return };
        let is_put_off = !self.draining && handler.put_off(&connection.state).is_some();
        let behind = if is_put_off { END_BYTES } else { HEAD_BYTES };
        let mut total = 0;
        loop {
            let others_wait = total >= DIRECT_BYTES_PER_TURN || total > 0 && handler.budget_spent();
            let Some(connection) = self.connections.find(id) else { return };
            // The handler has no destination any more: it finishes the upload, and the next bytes belong to the buffer.
            let Some(destination) = handler.destination(&mut connection.state) else {
                return self.process(handler, id, 0);
            };
            if self.draining && connection.owed == 0 {
                return self.arrange(handler, id);
            }
            if others_wait {
                break;
            }
            let room = destination.bytes();
            let received = destination.receive(&mut connection.stream, &mut self.buffer[..behind]);
            note_records(handler, connection, now);
            let bytes = match received {
                Ok(0) => return self.finish(handler, id, Closed::Peer),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return self.close(handler, id, Closed::Error),
            };
            connection.received_at = now;
            connection.owed = connection.owed.saturating_sub(bytes);
            total += bytes;
            match handler.filled(&mut connection.state, bytes.min(room)) {
                Wait::Input if bytes > room => return self.process(handler, id, bytes - room),
                Wait::Input if bytes < room => return self.send_and_arrange(handler, id, None),
                Wait::Input => {}
                wait @ (Wait::Room | Wait::Turn | Wait::Time(_) | Wait::Wake(_)) => {
                    keep(
                        &mut connection.kept,
                        &self.buffer[..bytes.saturating_sub(room)],
                        &mut self.kept_bytes,
                    );
                    connection.again = true;
                    self.rest(id, wait);
                    return self.send_and_arrange(handler, id, None);
                }
                Wait::End => return self.send_and_arrange(handler, id, Some(Closed::Handler)),
            }
        }
        self.look_below(handler, id);
    }

    /// Receives nothing from a connection before so many milliseconds are over.
    #[cold]
    fn put_off<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id, ms: Millis) {
        let now = self.backend.now();
        if let Some(connection) = self.connections.find(id) {
            (connection.again, connection.put_off) = (true, Some(now));
        }
        self.put_to_sleep(id, ms);
        self.arrange(handler, id);
    }

    /// Receives from a connection that was put off, now that its time has come.
    #[cold]
    pub(super) fn receive_put_off<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id) {
        let now = self.backend.now();
        let Some(connection) = self.connections.find(id) else { return };
        // Timeouts count from here on.
        (connection.again, connection.received_at) = (false, now);
        let since = connection.put_off.take();
        // While the loop is drained, readiness and what is owed say whether it is read.
        if !self.draining {
            self.receive(handler, id);
        }
        // One that is put off again has waited for longer.
        if let Some(connection) = self.connections.find(id)
            && connection.put_off.is_some()
        {
            connection.put_off = since;
        }
        self.arrange(handler, id);
    }

    /// Orders the queue from an index on: connections that were put off come last, and first among them those that have waited
    /// for longest. So one that sends without a pause is not before others each time.
    #[cold]
    pub(super) fn order_put_off(&mut self, from: usize) {
        let EventLoop { queue, connections, .. } = self;
        let since = |id: &Id| connections.find(*id).and_then(|connection| connection.put_off);
        queue.make_contiguous()[from..].sort_by_cached_key(since);
    }

    /// Has the handler take kept bytes and `fresh` new ones. The new bytes lie in the buffer behind the room for the kept ones.
    pub(super) fn process<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id, fresh: usize) {
        let Some(connection) = self.connections.find(id) else { return };
        if connection.again {
            // A connection that goes on was not idle.
            connection.received_at = self.backend.now();
        }
        (connection.again, connection.awaits) = (false, false);
        let kept = connection.kept.len();
        if fresh == 0 {
            self.buffer[..kept].copy_from_slice(&connection.kept);
        }
        let len = kept + fresh;
        let mut at = 0;
        let mut rounds = 0;
        let before = handler.spent_ns();
        let wait = loop {
            if self.short && !handler.holds_up_others(&connection.state) && is_blocked(connection) {
                break Wait::Room;
            }
            let taken = handler.received(&mut connection.state, &self.buffer[at..len]);
            at += taken.bytes;
            debug_assert!(at <= len, "a handler takes no more than there is");
            rounds += 1;
            if taken.wait != Wait::Room {
                break taken.wait;
            }
            // Deferred replies are sent before the connection is processed again.
            if !self.deferred.is_empty() {
                break Wait::Room;
            }
            // Others' replies must not wait for this connection's, so it sends its own first.
            match send(handler, connection, &mut self.waiting, self.backend.now()) {
                Ok(Sent { unsent: 0, .. }) if rounds < ROUNDS_PER_TURN && !handler.budget_spent() => {}
                Ok(_) => break Wait::Room,
                Err(_) => return self.close(handler, id, Closed::Error),
            }
        };
        connection.dear = handler.spent_ns() - before >= DEAR_NS;
        let mut connection = connection;
        if keep(&mut connection.kept, &self.buffer[at..len], &mut self.kept_bytes) {
            self.keeping = true;
            let own = connection.kept.capacity();
            if handler.keeps(&mut connection.state, own, self.kept_bytes) {
                self.relieve(handler, id);
                match self.connections.find(id) {
                    Some(found) => connection = found,
                    None => return,
                }
            }
        }
        match wait {
            Wait::Input if connection.kept.len() == RECEIVE_BYTES => {
                self.send_and_arrange(handler, id, Some(Closed::Input));
            }
            Wait::Input => match handler.deferrable(&connection.state) {
                Some(bytes) if connection.closing.is_none() => {
                    // Even if this failed, the replies would go out: the handler knows which connection they belong to.
                    debug_assert!(!connection.deferred, "what is deferred goes out before more is made");
                    if !std::mem::replace(&mut connection.deferred, true) {
                        self.deferred.push(id);
                    }
                    self.deferred_bytes += bytes;
                    if self.deferred_bytes >= DEFERRED_BYTES_MAX {
                        self.send_deferred(handler);
                    }
                }
                _ => self.send_and_arrange(handler, id, None),
            },
            Wait::Room | Wait::Turn | Wait::Time(_) | Wait::Wake(_) => {
                connection.again = true;
                self.rest(id, wait);
                self.send_and_arrange(handler, id, None);
            }
            Wait::End => self.send_and_arrange(handler, id, Some(Closed::Handler)),
        }
    }

    /// Puts a connection to sleep, or has it wait to be woken, if that is what it waits for.
    #[inline]
    fn rest(&mut self, id: Id, wait: Wait) {
        match wait {
            Wait::Time(ms) => self.put_to_sleep(id, ms),
            Wait::Wake(ms) => {
                if let Some(connection) = self.connections.find(id) {
                    (connection.queued, connection.awaits) = (true, true);
                }
                if let Some(ms) = ms {
                    self.put_to_sleep(id, ms);
                }
            }
            Wait::Input | Wait::Room | Wait::Turn | Wait::End => {}
        }
    }
}

/// Tells the handler how many records a receive has opened, and which user the peer is if one of them ended the handshake.
#[inline(always)]
fn note_records<S: Stream, H: Handler>(
    handler: &mut H,
    connection: &mut Connection<S, H::Connection>,
    now: Millis,
) {
    let records = connection.stream.take_records();
    if records > 0 {
        if connection.opening.is_some() {
            connection.received_at = now;
            if let Some(name) = connection.stream.take_peer_name() {
                handler.stream_named(&mut connection.state, &name);
            }
        }
        handler.stream_worked(records);
    }
}

/// While memory is short: true if the connection's requests are not processed, since their replies might have to wait.
fn is_blocked<S: Stream, C>(connection: &mut Connection<S, C>) -> bool {
    if connection.unsent > 0 {
        (connection.blocked, connection.room) = (true, 0);
    } else if connection.room == 0 {
        connection.room = connection.stream.room();
        connection.blocked = connection.room == 0;
    } else {
        connection.blocked = false;
    }
    connection.blocked
}

/// Memory that a connection may keep for the ends of later receives, so that a pipeline does not allocate for each. An idle
/// connection costs that much at most.
const KEPT_ROOM_BYTES: usize = 256;

/// Keeps `rest` in `kept`. The memory for it is at most twice its size and [`KEPT_ROOM_BYTES`]. `total` is the memory of all
/// connections. True if the memory may have changed.
#[inline]
fn keep(kept: &mut Vec<u8>, rest: &[u8], total: &mut usize) -> bool {
    kept.clear();
    if rest.is_empty() && kept.capacity() <= KEPT_ROOM_BYTES {
        return false;
    }
    *total -= kept.capacity();
    if rest.is_empty() {
        *kept = Vec::new();
    } else {
        if kept.capacity() > 2 * rest.len() + KEPT_ROOM_BYTES {
            *kept = Vec::new();
        }
        kept.reserve_exact(rest.len());
        kept.extend_from_slice(rest);
    }
    *total += kept.capacity();
    true
}
