//! TLS over a stream: received bytes are opened, sent bytes are sealed, in buffers of the thread.
//!
//! A connection keeps leftovers only, and no memory while there are none:
//! - `records`: a partial record, or whole ones for whose plaintext there was no room;
//! - `plain`: plaintext for which there was no room;
//! - `unsent`: sealed bytes that the stream below did not take. While there are some, nothing more is sealed.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_eventloop::{Between, Stream};

use crate::acceptor::Counters;
use crate::session::{KEPT_BYTES_MAX, Opened, SEAL_BYTES_MAX, Session};

/// Most plaintext bytes of a record, by the protocol.
const PLAIN_BYTES_MAX: usize = 16 << 10;
/// Most bytes of a record: header, plaintext, and what a cipher may add by the protocol.
const RECORD_BYTES_MAX: usize = 5 + PLAIN_BYTES_MAX + 256;
/// Bytes of records received at once. Their plaintext is shorter, so it fits the loop's receive buffer.
const INCOMING_BYTES: usize = 64 << 10;
/// Bytes that are sealed before they are sent: the most that a connection may have unsent.
const SEALED_BYTES: usize = 4 * (PLAIN_BYTES_MAX + SEAL_BYTES_MAX);
/// Most bytes that one send takes, so that other connections have their turn.
const SEND_BYTES_MAX: usize = 256 << 10;
/// A slice of at least this many bytes is sealed where it lies, even if its record is short. Shorter slices are joined.
const DIRECT_BYTES_MIN: usize = 8 << 10;

/// Memory of the buffers of a thread that has TLS connections.
pub const SCRATCH_BYTES: usize = KEPT_BYTES_MAX + INCOMING_BYTES + PLAIN_BYTES_MAX + SEALED_BYTES;

/// A thread's buffers for records.
struct Scratch {
    incoming: Box<[u8]>,
    staging: Vec<u8>,
    sealed: Box<[u8]>,
    messages: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Option<Box<Scratch>>> = const { RefCell::new(None) };
}

fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        work(scratch.get_or_insert_with(|| {
            Box::new(Scratch {
                incoming: vec![0; KEPT_BYTES_MAX + INCOMING_BYTES].into_boxed_slice(),
                staging: Vec::with_capacity(PLAIN_BYTES_MAX),
                sealed: vec![0; SEALED_BYTES].into_boxed_slice(),
                messages: Vec::new(),
            })
        }))
    })
}

/// A TLS connection, the server's side.
pub struct Tls<S> {
    inner: S,
    session: Session,
    counters: Arc<Counters>,
    records: Vec<u8>,
    /// The first record of `records` is complete.
    whole: bool,
    plain: Remainder,
    unsent: Remainder,
    /// The peer sends no more.
    ended: bool,
    /// The peer broke the protocol, or the handshake failed.
    failed: bool,
    /// Why, until it is asked for.
    failure: Option<Box<str>>,
    /// The connection has ended: it sends nothing more, and drops what it receives.
    finished: bool,
    /// Records that were opened and not yet reported.
    opened: u32,
}

impl<S: fmt::Debug> fmt::Debug for Tls<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// Bytes that are taken from the front. Allocates nothing while empty.
#[derive(Debug, Default)]
struct Remainder {
    bytes: Vec<u8>,
    from: usize,
}

impl Remainder {
    fn left(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.from
    }

    fn advance(&mut self, bytes: usize) {
        self.from += bytes;
        if self.len() == 0 {
            *self = Remainder::default();
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            // Exactly, since the memory is charged to the connection.
            self.bytes.reserve_exact(bytes.len());
            self.bytes.extend_from_slice(bytes);
        }
    }
}

/// The slices of a receive, filled in order.
struct Destination<'p, 's> {
    slices: &'p mut [IoSliceMut<'s>],
    index: usize,
    at: usize,
    room: usize,
    taken: usize,
}

impl<'p, 's> Destination<'p, 's> {
    fn new(slices: &'p mut [IoSliceMut<'s>]) -> Destination<'p, 's> {
        let room = slices.iter().map(|slice| slice.len()).sum();
        Destination { slices, index: 0, at: 0, room, taken: 0 }
    }

    fn left(&self) -> usize {
        self.room - self.taken
    }

    /// Copies what fits; returns the number of bytes.
    fn put(&mut self, mut bytes: &[u8]) -> usize {
        let before = self.taken;
        while !bytes.is_empty()
            && let Some(slice) = self.slices.get_mut(self.index)
        {
            let room = &mut slice[self.at..];
            let fits = room.len().min(bytes.len());
            room[..fits].copy_from_slice(&bytes[..fits]);
            bytes = &bytes[fits..];
            self.taken += fits;
            self.at += fits;
            if self.at == slice.len() {
                (self.index, self.at) = (self.index + 1, 0);
            }
        }
        self.taken - before
    }
}

/// The slices of a send, cut and joined into pieces of one record each.
struct Pieces<'p, 's> {
    slices: &'p [IoSlice<'s>],
    at: usize,
}

impl Pieces<'_, '_> {
    /// The next piece. It is in `staging` if several slices are joined.
    fn next<'n>(&'n mut self, staging: &'n mut Vec<u8>) -> Option<&'n [u8]> {
        staging.clear();
        while let [slice, behind @ ..] = self.slices {
            let left = &slice[self.at..];
            let alone = left.len() >= DIRECT_BYTES_MIN || behind.is_empty();
            if alone && !staging.is_empty() && left.len() > PLAIN_BYTES_MAX - staging.len() {
                break;
            }
            let bytes = left.len().min(PLAIN_BYTES_MAX - staging.len());
            let piece = &left[..bytes];
            self.at += bytes;
            if self.at == slice.len() {
                (self.slices, self.at) = (behind, 0);
            }
            if alone && staging.is_empty() && bytes > 0 {
                return Some(piece);
            }
            staging.extend_from_slice(piece);
            if staging.len() == PLAIN_BYTES_MAX {
                break;
            }
        }
        (!staging.is_empty()).then_some(staging)
    }
}

impl<S> Tls<S> {
    pub(crate) fn new(inner: S, session: Session, counters: Arc<Counters>) -> Tls<S> {
        let (plain, unsent) = Default::default();
        Tls {
            inner,
            session,
            counters,
            records: Vec::new(),
            whole: false,
            plain,
            unsent,
            ended: false,
            failed: false,
            failure: None,
            finished: false,
            opened: 0,
        }
    }

    /// The stream below.
    pub(crate) fn inner(&self) -> &S {
        &self.inner
    }

    /// Bytes that a receive brings without asking the stream below. An end or an error counts as one byte.
    fn received(&self) -> usize {
        let records = if self.whole { self.records.len() } else { 0 };
        self.plain.len() + records + usize::from(self.ended || self.failed)
    }

    #[cold]
    fn note_handshake(&mut self) {
        self.session.note_opened();
        self.counters.handshakes.fetch_add(1, Relaxed);
        if self.session.is_resumed() {
            self.counters.resumptions.fetch_add(1, Relaxed);
        } else if self.session.gives_tickets() {
            self.counters.new_sessions.fetch_add(1, Relaxed);
        }
    }

    #[cold]
    fn note_failure(&mut self, opening: bool, why: Option<rustls::Error>) {
        self.failed = true;
        let why = why.map_or("bytes that are no records of TLS".to_owned(), |error| error.to_string());
        self.failure = Some(why.into());
        let errors = if opening { &self.counters.handshake_errors } else { &self.counters.protocol_errors };
        errors.fetch_add(1, Relaxed);
    }
}

impl<S: Stream> Tls<S> {
    fn receive(&mut self, scratch: &mut Scratch, destination: &mut Destination<'_, '_>) -> io::Result<usize> {
        let bytes = destination.put(self.plain.left());
        self.plain.advance(bytes);
        if self.plain.len() > 0 || destination.taken > 0 && !self.whole {
            return Ok(destination.taken);
        }
        if self.failed || self.ended {
            return self.outcome(destination.taken);
        }
        let kept = self.records.len();
        scratch.incoming[..kept].copy_from_slice(&self.records);
        let mut len = kept;
        if !self.whole {
            // Before its handshake is finished, a connection keeps no more than this.
            let most = if self.session.is_handshaking() { RECORD_BYTES_MAX } else { INCOMING_BYTES };
            let room = destination.left().clamp(RECORD_BYTES_MAX, most);
            match self.inner.recv(&mut scratch.incoming[kept..kept + room])? {
                0 => self.ended = true,
                bytes => len += bytes,
            }
        }
        self.open(scratch, len, destination);
        self.send_messages(scratch)?;
        self.outcome(destination.taken)
    }

    /// Sends the messages of TLS itself.
    fn send_messages(&mut self, scratch: &mut Scratch) -> io::Result<()> {
        self.unsent.put(&scratch.messages);
        scratch.messages.clear();
        scratch.messages.shrink_to(PLAIN_BYTES_MAX);
        self.flush()
    }

    /// Opens the complete records of `len` bytes, and keeps the rest.
    fn open(&mut self, scratch: &mut Scratch, len: usize, destination: &mut Destination<'_, '_>) {
        let opening = self.session.is_handshaking();
        let plain = &mut self.plain;
        let records = &mut scratch.incoming[..len];
        let Opened { used, records: opened, stopped, ended, failed, why } =
            self.session.open(records, &mut scratch.messages, |bytes| {
                let fits = destination.put(bytes);
                plain.put(&bytes[fits..]);
                destination.left() > 0
            });
        self.opened += opened;
        // What follows the end is dropped.
        let rest = if ended { &[][..] } else { &scratch.incoming[used..len] };
        self.whole = stopped && self.session.has_whole(rest);
        self.records.clear();
        if rest.is_empty() {
            self.records = Vec::new();
        } else {
            self.records.reserve_exact(rest.len());
            self.records.extend_from_slice(rest);
        }
        self.ended |= ended;
        let too_long = !self.whole && rest.len() > self.session.kept_bytes_max();
        if failed || too_long {
            self.note_failure(opening, why);
        } else if opening && !self.session.is_handshaking() {
            self.note_handshake();
        }
    }

    /// What a receive returns that took `taken` bytes.
    fn outcome(&self, taken: usize) -> io::Result<usize> {
        match (taken, self.failed, self.ended) {
            (1.., _, _) => Ok(taken),
            (0, true, _) => Err(io::ErrorKind::InvalidData.into()),
            (0, false, true) => Ok(0),
            (0, false, false) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn seal(&mut self, scratch: &mut Scratch, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.failed {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if self.session.is_handshaking() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.session.write(&mut scratch.messages);
        self.send_messages(scratch)?;
        if self.unsent.len() > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut pieces = Pieces { slices, at: 0 };
        let mut taken = 0;
        while taken < SEND_BYTES_MAX {
            let mut sealed = 0;
            while scratch.sealed.len() - sealed >= PLAIN_BYTES_MAX + SEAL_BYTES_MAX
                && let Some(piece) = pieces.next(&mut scratch.staging)
            {
                sealed += self.session.seal(piece, &mut scratch.sealed[sealed..])?;
                taken += piece.len();
            }
            if sealed == 0 {
                break;
            }
            let sealed = &scratch.sealed[..sealed];
            let sent = or_none(self.inner.send(sealed))?;
            if sent < sealed.len() {
                self.unsent.put(&sealed[sent..]);
                break;
            }
        }
        Ok(taken)
    }
}

fn or_none(sent: io::Result<usize>) -> io::Result<usize> {
    match sent {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        sent => sent,
    }
}

impl<S: Stream> Stream for Tls<S> {
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_vectored(&mut [IoSliceMut::new(buffer)])
    }

    fn recv_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.finished {
            return self.inner.recv_vectored(slices);
        }
        with_scratch(|scratch| self.receive(scratch, &mut Destination::new(slices)))
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send_vectored(&[IoSlice::new(bytes)])
    }

    fn send_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        with_scratch(|scratch| self.seal(scratch, slices))
    }

    fn room(&self) -> usize {
        if self.unsent.len() > 0 { 0 } else { self.inner.room() }
    }

    fn pending(&self) -> usize {
        // Together with what is to come, a partial record may become complete.
        let coming = self.inner.pending();
        let part = if coming > 0 { self.records.len() } else { 0 };
        coming + part + self.received()
    }

    fn between(&self) -> Option<Between> {
        let opening = self.session.is_handshaking();
        let kept = self.records.capacity() + self.plain.bytes.capacity() + self.unsent.bytes.capacity();
        Some(Between {
            received: self.received(),
            unsent: self.unsent.len(),
            partial: if self.whole { 0 } else { self.records.len() },
            memory: self.session.memory() + kept,
            opening,
            worn: self.session.is_worn(),
        })
    }

    fn take_records(&mut self) -> u32 {
        std::mem::take(&mut self.opened)
    }

    fn take_peer_name(&mut self) -> Option<Box<str>> {
        self.session.take_name()
    }

    fn take_failure(&mut self) -> Option<Box<str>> {
        self.failure.take()
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.unsent.len() > 0 {
            let offered = self.unsent.len();
            let sent = or_none(self.inner.send(self.unsent.left()))?;
            self.unsent.advance(sent);
            if sent < offered {
                break;
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.finished = true;
        if self.session.is_handshaking() || self.failed {
            return;
        }
        let mut messages = Vec::new();
        self.session.close(&mut messages);
        self.unsent.put(&messages);
        // The loop does not wait for this send. If the socket is full, the client sees the end of the stream without
        // close_notify.
        let _ = self.flush();
    }
}
