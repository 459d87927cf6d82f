//! How replies go out: one send takes what a connection's handler offers, or several where it lies in very many slices. The loop
//! counts the connections that wait for room.

use std::io::{self, IoSlice};

use super::EventLoop;
use crate::Millis;
use crate::backend::{Backend, SEND_ROOM_BYTES, Stream};
use crate::connections::{Connection, Id};
use crate::handler::{Closed, Handler, Outgoing};

/// Slices of one vectored send: 64 pieces of 16 KiB are a MiB, more than sockets take at once.
const SEND_SLICES: usize = 64;

/// Most bytes of a connection's replies sent at a time, which costs some 300 µs; a turn sends up to three times. A peer that
/// reads as fast as the loop sends leaves room for ever.
const SEND_BYTES_MAX: usize = 1 << 20;

/// What a send did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Bytes that the system took.
    pub bytes: u64,
    /// Bytes still to be sent.
    pub unsent: u64,
}

impl<B: Backend, C> EventLoop<B, C> {
    /// Sends what is deferred, each connection's replies by one send.
    #[inline]
    pub(super) fn send_deferred<H: Handler<Connection = C>>(&mut self, handler: &mut H) {
        if !self.deferred.is_empty() {
            self.send_all_deferred(handler);
        }
    }

    fn send_all_deferred<H: Handler<Connection = C>>(&mut self, handler: &mut H) {
        let now = self.backend.now();
        let mut deferred = std::mem::take(&mut self.deferred);
        self.deferred_bytes = 0;
        for id in deferred.drain(..) {
            let Some(connection) = self.connections.find(id) else {
                debug_assert!(false, "what is deferred goes out before its connection ends");
                continue;
            };
            connection.deferred = false;
            match send(handler, connection, &mut self.waiting, now) {
                Ok(_) => self.arrange(handler, id),
                Err(_) => self.close(handler, id, Closed::Error),
            }
        }
        self.deferred = deferred;
    }

    /// Sends what can be sent, then closes the connection, queues it, or decides what it waits for.
    pub(super) fn send_and_arrange<H: Handler<Connection = C>>(
        &mut self,
        handler: &mut H,
        id: Id,
        closing: Option<Closed>,
    ) {
        self.send_deferred(handler);
        let now = self.backend.now();
        let Some(connection) = self.connections.find(id) else { return };
        if connection.closing.is_none() {
            connection.closing = closing;
        }
        if send(handler, connection, &mut self.waiting, now).is_err() {
            return self.close(handler, id, Closed::Error);
        }
        if connection.unsent == 0
            && let Some(why) = connection.closing
        {
            return self.close(handler, id, why);
        }
        self.arrange(handler, id);
    }

    /// Sends now that there is room, then closes the connection or decides what it waits for.
    pub(super) fn flush<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id) -> io::Result<()> {
        let now = self.backend.now();
        let Some(connection) = self.connections.find(id) else { return Ok(()) };
        send(handler, connection, &mut self.waiting, now)?;
        if connection.unsent == 0
            && let Some(why) = connection.closing
        {
            self.close(handler, id, why);
            return Ok(());
        }
        self.arrange(handler, id);
        Ok(())
    }
}

/// Sends a connection's replies, by one send if they are not in very many slices, and notes what was sent.
#[inline(always)]
pub(super) fn send<S: Stream, H: Handler>(
    handler: &mut H,
    connection: &mut Connection<S, H::Connection>,
    waiting: &mut usize,
    now: Millis,
) -> io::Result<Sent> {
    let sent = match connection.stream.between() {
        None => send_replies(handler, connection)?,
        Some(between) => send_through(handler, connection, between.unsent as u64)?,
    };
    note_sent(connection, sent, waiting, now);
    Ok(sent)
}

#[inline(always)]
fn send_replies<S: Stream, H: Handler>(
    handler: &mut H,
    connection: &mut Connection<S, H::Connection>,
) -> io::Result<Sent> {
    let bytes = match handler.replies(&mut connection.state) {
        Outgoing::None => return Ok(Sent::default()),
        Outgoing::Bytes(bytes) => {
            or_none(connection.stream.send(&bytes[..bytes.len().min(SEND_BYTES_MAX)]))? as u64
        }
        Outgoing::Slices => return send_slices(handler, connection),
    };
    Ok(Sent { bytes, unsent: handler.sent(&mut connection.state, bytes) })
}

/// Sends replies that lie in several slices, until the stream takes no more, or has taken so many that others come first.
#[inline(never)]
fn send_slices<S: Stream, H: Handler>(
    handler: &mut H,
    connection: &mut Connection<S, H::Connection>,
) -> io::Result<Sent> {
    let mut all = Sent::default();
    let mut left = SEND_BYTES_MAX;
    loop {
        let mut slices = [IoSlice::new(&[]); SEND_SLICES];
        let used = handler.slices(&mut connection.state, &mut slices);
        let (offered, taken) = send_some(&mut connection.stream, &slices[..used], left)?;
        left -= taken;
        all.bytes += taken as u64;
        all.unsent = handler.sent(&mut connection.state, taken as u64);
        if taken < offered || offered == 0 || all.unsent == 0 || left == 0 {
            return Ok(all);
        }
    }
}

/// Sends the first slices, `most` bytes of them at most, or the beginning of a first slice that is longer. Returns how many bytes
/// it offered, and how many were taken.
fn send_some<S: Stream>(stream: &mut S, slices: &[IoSlice<'_>], most: usize) -> io::Result<(usize, usize)> {
    let (mut whole, mut offered) = (0, 0);
    for slice in slices {
        if offered + slice.len() > most {
            break;
        }
        whole += 1;
        offered += slice.len();
    }
    match slices.first() {
        None => Ok((0, 0)),
        Some(first) if whole == 0 => Ok((most, or_none(stream.send(&first[..most]))?)),
        Some(_) => Ok((offered, or_none(stream.send_vectored(&slices[..whole]))?)),
    }
}

/// Sends replies through a stream that buffers `before` bytes, which go first. Bytes that the stream buffers afterwards count as
/// unsent.
#[inline(never)]
fn send_through<S: Stream, H: Handler>(
    handler: &mut H,
    connection: &mut Connection<S, H::Connection>,
    before: u64,
) -> io::Result<Sent> {
    if before > 0 {
        connection.stream.flush()?;
    }
    let sent = send_replies(handler, connection)?;
    let after = connection.stream.between().map_or(0, |between| between.unsent);
    connection.below = after;
    let moved = before.saturating_sub(after as u64);
    Ok(Sent { bytes: sent.bytes + moved, unsent: sent.unsent + after as u64 })
}

#[inline]
fn or_none(sent: io::Result<usize>) -> io::Result<usize> {
    match sent {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        sent => sent,
    }
}

/// Notes what a send did, and counts the connections that wait for room.
#[inline]
pub(super) fn note_sent<S, C>(
    connection: &mut Connection<S, C>,
    sent: Sent,
    waiting: &mut usize,
    now: Millis,
) {
    let waited = connection.unsent > 0;
    if connection.room > 0 {
        connection.room = connection.room.saturating_sub(sent.bytes as usize + SEND_ROOM_BYTES);
    }
    if sent.bytes > 0 || !waited {
        connection.sent_at = now;
    }
    connection.unsent = sent.unsent;
    match (waited, sent.unsent > 0) {
        (false, true) => *waiting += 1,
        (true, false) => *waiting -= 1,
        (false, false) | (true, true) => {}
    }
}
