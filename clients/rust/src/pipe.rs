//! One connection without its socket: requests become bytes to send, received bytes become deliveries, and time is an argument.
//!
//! ```text
//! push ──► to send ──hand_out──► (socket) ──► Input ──receive──► Delivery { tag, … }
//!          pending: the replies that are owed, oldest first
//! ```
//!
//! - A reply belongs to the oldest pending request and to no other; with opaques, a reply to another request is noticed.
//! - An abandoned request stays pending until its reply has come, which is dropped.
//! - After bytes that fit no grammar, nothing that follows is trusted.
//! - Each request ends once: delivered, overdue by [`Pipe::tick`], or failed by [`Pipe::fail`], which says whether any of its
//!   bytes were handed out.

use larder_protocol::client::{Ask, Dialect, Head, Kind, Malformed, Refusal, Request, Status};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::error::Outcome;
use crate::hashes::fnv1a;

/// How an owner names a reply: its own number, and the index of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The owner.
    pub op: u32,
    /// The index among the owner's replies.
    pub item: u32,
}

/// The limit of owed replies is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Why a connection is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The bytes are no reply, or the reply to another request.
    Protocol(String),
    /// Replies are owed, and no byte came for too long.
    Stalled,
}

/// What has come for a request.
#[derive(Debug)]
pub enum Delivery<'a> {
    /// A part of a value that is too long for the input; the reply follows.
    Part(&'a [u8]),
    /// A reply, with its value or the last part of it.
    Reply(Head<'a>, &'a [u8]),
    /// A request of a quiet group that was refused; the group's reply follows.
    Refused(Head<'a>),
}

/// A request, or a quiet group, whose replies are owed.
#[derive(Debug)]
struct Pending {
    /// `None`: the owner has given up.
    tag: Option<Tag>,
    kind: Kind,
    /// This many replies, whose items count up.
    left: u32,
    /// Refusals of quiet requests may come before them.
    quiet: bool,
    /// The opaque of the first, if there are opaques. They count up, too.
    opaque: Option<u32>,
    /// A hash of the key, to compare with that of a classic hit.
    key_hash: Option<u32>,
    /// Where the request's first byte is among all bytes ever pushed.
    begins: u64,
    deadline: Instant,
}

/// A value that did not fit the input.
#[derive(Debug)]
struct Long {
    head: Head<'static>,
    /// Bytes left of the value, then of its trailer.
    value_left: usize,
    trailer_left: usize,
}

/// Requests that were encoded beforehand and are sent together.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// Their bytes; a quiet group ends with a barrier.
    pub bytes: &'a [u8],
    /// Their kind; of a quiet group, the barrier's.
    pub kind: Kind,
    /// Replies that are owed; of a quiet group, one.
    pub replies: u32,
    /// Only refusals are answered.
    pub quiet: bool,
    /// The opaque of the first request.
    pub opaque: Option<u32>,
}

/// Limits of a pipe.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Replies that may be owed.
    pub in_flight: usize,
    /// The connection is given up when no byte comes for this long while replies are owed.
    pub stall: Duration,
    /// Each request has a number that its reply must repeat, where the dialect has one.
    pub verify: bool,
}

/// One connection without its socket.
#[derive(Debug)]
pub struct Pipe {
    dialect: Dialect,
    limits: Limits,
    pending: VecDeque<Pending>,
    owed: usize,
    out: Vec<u8>,
    /// Bytes that were ever pushed, and those that were handed out.
    pushed: u64,
    handed: u64,
    long: Option<Long>,
    opaque: u32,
    /// When a byte came last, or nothing was owed.
    heard: Instant,
}

impl Pipe {
    /// A pipe for a new connection.
    pub fn new(dialect: Dialect, limits: Limits, now: Instant) -> Pipe {
        Pipe {
            dialect,
            limits,
            pending: VecDeque::with_capacity(64),
            owed: 0,
            out: Vec::new(),
            pushed: 0,
            handed: 0,
            long: None,
            opaque: 1,
            heard: now,
        }
    }

    /// The dialect that is spoken.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Number of owed replies.
    pub fn owed(&self) -> usize {
        self.owed
    }

    /// Bytes that were not handed out.
    pub fn to_send(&self) -> usize {
        self.out.len()
    }

    /// Whether the limit of owed replies is reached.
    pub fn is_full(&self) -> bool {
        self.owed >= self.limits.in_flight
    }

    /// Encodes a request. Its reply is delivered with `tag`. The request must fit the dialect and not be quiet.
    ///
    /// # Errors
    /// [`Full`]; nothing has changed then.
    pub fn push(
        &mut self,
        request: &Request<'_>,
        tag: Tag,
        now: Instant,
        deadline: Instant,
    ) -> Result<(), Full> {
        debug_assert!(request.fits(self.dialect) && !request.quiet);
        if self.is_full() {
            return Err(Full);
        }
        let kind = request.kind();
        let numbered = self.limits.verify
            && self.dialect == Dialect::Meta
            && !matches!(request.ask, Ask::Barrier | Ask::Version | Ask::FlushAll);
        let opaque = numbered.then(|| self.number(1));
        let before = self.out.len();
        Request { opaque, ..*request }.write(self.dialect, &mut self.out);
        let key_hash = (self.dialect == Dialect::Classic && kind == Kind::Get).then(|| fnv1a(request.key));
        let pending = Pending {
            tag: Some(tag),
            kind,
            left: 1,
            quiet: false,
            opaque,
            key_hash,
            begins: self.pushed,
            deadline,
        };
        self.admit(pending, (self.out.len() - before) as u64, now);
        Ok(())
    }

    /// Takes a group, whose replies are delivered with `tag` and items that count up from the tag's.
    ///
    /// # Errors
    /// [`Full`]; nothing has changed then.
    pub fn push_group(
        &mut self,
        group: &Group<'_>,
        tag: Tag,
        now: Instant,
        deadline: Instant,
    ) -> Result<(), Full> {
        if self.is_full() {
            return Err(Full);
        }
        self.out.extend_from_slice(group.bytes);
        let pending = Pending {
            tag: Some(tag),
            kind: group.kind,
            left: group.replies,
            quiet: group.quiet,
            opaque: group.opaque,
            key_hash: None,
            begins: self.pushed,
            deadline,
        };
        self.admit(pending, group.bytes.len() as u64, now);
        Ok(())
    }

    /// Reserves `count` opaques in a row, and returns the first.
    pub fn number(&mut self, count: u32) -> u32 {
        let first = self.opaque;
        self.opaque = first.wrapping_add(count);
        first
    }

    fn admit(&mut self, pending: Pending, bytes: u64, now: Instant) {
        if self.owed == 0 {
            self.heard = now;
        }
        self.pushed += bytes;
        self.owed += pending.left as usize;
        self.pending.push_back(pending);
    }

    /// All bytes that wait to be sent. They count as sent from here on. The next bytes are written to `spare`.
    pub fn hand_out(&mut self, spare: Vec<u8>) -> Vec<u8> {
        debug_assert!(spare.is_empty());
        self.handed = self.pushed;
        std::mem::replace(&mut self.out, spare)
    }

    /// Notes that the last `bytes` bytes that were handed out will not be sent: the connection is about to fail.
    pub fn take_back(&mut self, bytes: usize) {
        self.handed -= bytes as u64;
    }

    /// Delivers what has arrived.
    ///
    /// # Errors
    /// The bytes cannot be trusted: close the connection and call [`Pipe::fail`].
    pub fn receive(
        &mut self,
        input: &mut Input,
        now: Instant,
        mut deliver: impl FnMut(Tag, Delivery<'_>),
    ) -> Result<(), Broken> {
        self.heard = now;
        while !input.is_empty() {
            if self.long.is_some() {
                self.receive_long(input, &mut deliver)?;
                continue;
            }
            let Some(pending) = self.pending.front() else {
                return Err(protocol("a reply without a request", input.bytes()));
            };
            let kind = pending.kind;
            let bytes = input.bytes();
            // Refusals of a quiet group answer the stores in it.
            let read = match Head::read(self.dialect, kind, bytes) {
                Err(Malformed) if pending.quiet => Head::read(self.dialect, Kind::Store, bytes),
                read => read,
            };
            let Some((head, head_bytes)) = read.map_err(|Malformed| protocol("no reply", bytes))? else {
                input.make_room();
                return Ok(());
            };
            if head.status != Status::Value {
                self.deliver(head, &[], bytes, &mut deliver)?;
                input.take(head_bytes);
                continue;
            }
            let whole = head_bytes + head.value_bytes + head.trailer.len();
            if let Some(rest) = bytes.get(head_bytes..whole) {
                let (value, trailer) = rest.split_at(head.value_bytes);
                if trailer != head.trailer {
                    return Err(protocol("a value without its end", trailer));
                }
                self.deliver(head, value, bytes, &mut deliver)?;
                input.take(whole);
            } else if whole <= input.capacity() {
                input.make_room();
                return Ok(());
            } else {
                self.is_own(&head, bytes)?;
                self.long = Some(Long {
                    head: head.unborrowed(),
                    value_left: head.value_bytes,
                    trailer_left: head.trailer.len(),
                });
                input.take(head_bytes);
            }
        }
        Ok(())
    }

    fn receive_long(
        &mut self,
        input: &mut Input,
        deliver: &mut impl FnMut(Tag, Delivery<'_>),
    ) -> Result<(), Broken> {
        let Some(long) = &mut self.long else { unreachable!("only called with a long reply") };
        let bytes = input.bytes();
        if long.value_left > 0 {
            let part = &bytes[..bytes.len().min(long.value_left)];
            long.value_left -= part.len();
            if let Some(tag) = self.pending.front().and_then(|pending| pending.tag) {
                deliver(tag, Delivery::Part(part));
            }
            let part_bytes = part.len();
            input.take(part_bytes);
            return Ok(());
        }
        let trailer = &long.head.trailer[long.head.trailer.len() - long.trailer_left..];
        let end = &bytes[..bytes.len().min(trailer.len())];
        if !trailer.starts_with(end) {
            return Err(protocol("a value without its end", end));
        }
        long.trailer_left -= end.len();
        let (done, head, end_bytes) = (long.trailer_left == 0, long.head, end.len());
        input.take(end_bytes);
        if done {
            self.long = None;
            self.deliver(head, &[], &[], deliver)?;
        }
        Ok(())
    }

    /// Checks that the reply may be that of the oldest pending request.
    fn is_own(&self, head: &Head<'_>, bytes: &[u8]) -> Result<(), Broken> {
        let pending = self.pending.front().expect("there is one whose reply was read");
        let refused = matches!(head.status, Status::Refused(_));
        if let (Some(key), Some(expected)) = (head.key, pending.key_hash)
            && fnv1a(key) != expected
        {
            return Err(protocol("another key's value", bytes));
        }
        if !pending.quiet && !refused && pending.opaque.is_some() && head.opaque != pending.opaque {
            return Err(protocol("the answer to another request", bytes));
        }
        Ok(())
    }

    fn deliver(
        &mut self,
        head: Head<'_>,
        value: &[u8],
        bytes: &[u8],
        deliver: &mut impl FnMut(Tag, Delivery<'_>),
    ) -> Result<(), Broken> {
        self.is_own(&head, bytes)?;
        let pending = self.pending.front_mut().expect("seen by is_own");
        // After a store that is refused as malformed, the server may have taken its value for requests.
        let trusted = !matches!(head.status, Status::Refused(Refusal::Client | Refusal::Unknown))
            || !(pending.kind == Kind::Store || pending.quiet);
        if pending.quiet && head.status != Status::Barrier {
            if let Some(tag) = pending.tag {
                deliver(tag, Delivery::Refused(head));
            }
        } else {
            if let Some(tag) = &mut pending.tag {
                deliver(*tag, Delivery::Reply(head, value));
                tag.item += 1;
            }
            if let Some(opaque) = &mut pending.opaque {
                *opaque = opaque.wrapping_add(1);
            }
            pending.left -= 1;
            self.owed -= 1;
            if pending.left == 0 {
                self.pending.pop_front();
            }
        }
        if trusted { Ok(()) } else { Err(protocol("a store was refused as malformed", head.text)) }
    }

    /// Gives up overdue requests, and passes their tags to `overdue`.
    ///
    /// # Errors
    /// [`Broken::Stalled`].
    pub fn tick(&mut self, now: Instant, mut overdue: impl FnMut(Tag)) -> Result<(), Broken> {
        if self.owed > 0 && now.duration_since(self.heard) >= self.limits.stall {
            return Err(Broken::Stalled);
        }
        for pending in &mut self.pending {
            if let Some(tag) = pending.tag
                && pending.deadline <= now
            {
                pending.tag = None;
                overdue(tag);
            }
        }
        Ok(())
    }

    /// The earliest time at which [`Pipe::tick`] has something to do.
    pub fn wake_at(&self) -> Option<Instant> {
        let awaited = self.pending.iter().filter(|pending| pending.tag.is_some());
        let overdue = awaited.map(|pending| pending.deadline).min();
        let stalled = (self.owed > 0).then(|| self.heard + self.limits.stall);
        [overdue, stalled].into_iter().flatten().min()
    }

    /// Notes that the owner of this number no longer waits.
    pub fn abandon(&mut self, op: u32) {
        for pending in &mut self.pending {
            pending.tag = pending.tag.filter(|tag| tag.op != op);
        }
    }

    /// The owner of the oldest owed reply, among those for which `waits` holds.
    pub fn oldest(&self, waits: impl Fn(u32) -> bool) -> Option<u32> {
        self.pending.iter().filter_map(|pending| pending.tag).map(|tag| tag.op).find(|&op| waits(op))
    }

    /// Ends the connection: calls `each` for every owner that still waits, with the number of its missing replies.
    pub fn fail(&mut self, mut each: impl FnMut(Tag, u32, Outcome)) {
        self.owed = 0;
        self.long = None;
        self.out = Vec::new();
        for pending in self.pending.drain(..) {
            if let Some(tag) = pending.tag {
                let sent = pending.begins < self.handed;
                each(tag, pending.left, if sent { Outcome::Unknown } else { Outcome::NotSent });
            }
        }
    }
}

fn protocol(what: &str, bytes: &[u8]) -> Broken {
    Broken::Protocol(format!("{what}: \"{}\"", bytes[..bytes.len().min(64)].escape_ascii()))
}

/// Bytes that were received and not delivered. A line, or a small value with its line, is presented as a whole.
#[derive(Debug)]
pub struct Input {
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
}

/// Size of an [`Input`]. Longer values are delivered in parts.
const INPUT_BYTES: usize = 64 << 10;

impl Default for Input {
    fn default() -> Input {
        Input { buffer: vec![0; INPUT_BYTES].into(), from: 0, to: 0 }
    }
}

impl Input {
    /// Where the next bytes go; never empty between two calls of [`Pipe::receive`].
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.to..]
    }

    /// Notes that this many bytes were received into the room.
    pub fn put(&mut self, bytes: usize) {
        self.to += bytes;
        assert!(self.to <= self.buffer.len());
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Moves all bytes to `into`: they are no replies.
    pub(crate) fn drain(&mut self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.bytes());
        (self.from, self.to) = (0, 0);
    }

    fn capacity(&self) -> usize {
        self.buffer.len()
    }

    fn take(&mut self, bytes: usize) {
        self.from += bytes;
        if self.is_empty() {
            (self.from, self.to) = (0, 0);
        }
    }

    /// Moves an incomplete reply to the front.
    fn make_room(&mut self) {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
    }
}
