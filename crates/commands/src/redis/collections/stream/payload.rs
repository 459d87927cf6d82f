//! DUMP of a stream, in the form of Redis 7.0, which all later ones and Valkey read.
//!
//! ```text
//! 19 │ nodes │ node … │ entries │ last ID 2 │ first ID 2 │ greatest deleted ID 2 │ entries added │ groups │ group …
//! node      16, ms BE, seq BE │ listpack: how many │ deleted │ fields │ name … │ 0 │ entry …
//! entry     2: names of the node, else 0 │ ms │ seq, as differences │ fields │ name │ value … or value … │ strings of it
//! group     name │ last ID 2 │ entries read │ pending: how many, (16 │ time 8 LE │ times delivered) … │ consumers
//! consumer  name │ seen 8 LE │ pending: how many, 16 …
//! ```
//!
//! All of it is copied from one version, some at a time, and then sent. The number of nodes is known last: so the head is made
//! when all is copied, and the checksum behind that.

use larder_store::{Element, Key, Stream, StreamEntry, StreamFields, StreamId, Type};

use crate::core::output::Output;
use crate::core::work::{Lane, copying_ns};
use crate::redis::call::Call;
use crate::redis::collections::listing::send_whole;
use crate::redis::collections::{ELEMENT_NS, LOOK_NS, peek_as};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_head, put_null};
use crate::redis::serialize::{FOOTER_BYTES, VERSION, checking_ns, crc64_on, length};
use crate::redis::source::Name;
use crate::redis::steps::held::Tries;
use crate::redis::steps::job::{Job, STEP_NS_MIN, Step};

/// Types of streams in a payload: as Redis 5.0, 7.0 and 7.2 write them.
pub(crate) const TYPES_STREAM: [u8; 3] = [15, 19, 21];
const TYPE: u8 = 19;
/// Entries of a node, at most, and about its bytes: as in Redis.
const NODE_ENTRIES: usize = 100;
const NODE_BYTES: usize = 4096;
/// Bytes of the buffer for nodes that are kept for the next one.
const NODE_BYTES_KEPT: usize = 64 << 10;
/// Most bytes that a string has in a node beyond those in its leaf.
const STRING_ROOM: usize = 12;
/// Most bytes of a node beside its entries, or of an entry beside its strings.
const HEAD_ROOM: usize = 64;
/// Bytes that are copied at a time, about.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes that are checksummed at a time.
const CHECKED_BYTES: usize = 64 << 10;
/// Bytes of a pending entry, at most.
const PENDING_BYTES: usize = 40;
/// A flag: the entry has the field names of its node.
pub(super) const SAME_NAMES: i64 = 2;
/// A flag: the entry was deleted.
pub(super) const DELETED: i64 = 1;

/// A listpack that is being made.
#[derive(Debug, Default)]
struct Listpack {
    bytes: Vec<u8>,
    strings: u32,
}

impl Listpack {
    fn start(&mut self) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; 6]);
        self.strings = 0;
    }

    /// Adds a string or a number that `write` writes.
    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let len = self.bytes.len() - start;
        // The length again, to be read from the end: seven bits a byte, the lowest ones last.
        let (mut groups, mut n) = ([0_u8; 5], 0);
        let mut left = len;
        loop {
            groups[n] = (left & 0x7f) as u8;
            (left, n) = (left >> 7, n + 1);
            if left == 0 {
                break;
            }
        }
        for i in (0..n).rev() {
            let mark = if i + 1 < n { 0x80 } else { 0 };
            self.bytes.push(groups[i] | mark);
        }
        self.strings += 1;
    }

    fn number(&mut self, n: i64) {
        self.add(|bytes| match n {
            0..=127 => bytes.push(n as u8),
            -4096..=4095 => {
                let word = (n & 0x1fff) as u16 | 0xc000;
                bytes.extend_from_slice(&word.to_be_bytes());
            }
            _ => {
                let (code, len) = match n {
                    -0x8000..=0x7fff => (0xf1, 2),
                    -0x80_0000..=0x7f_ffff => (0xf2, 3),
                    -0x8000_0000..=0x7fff_ffff => (0xf3, 4),
                    _ => (0xf4, 8),
                };
                bytes.push(code);
                bytes.extend_from_slice(&n.to_le_bytes()[..len]);
            }
        });
    }

    /// Adds a string of so many bytes, which `write` writes.
    fn text(&mut self, len: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.add(|bytes| {
            match len {
                0..64 => bytes.push(0x80 | len as u8),
                64..4096 => bytes.extend_from_slice(&(len as u16 | 0xe000).to_be_bytes()),
                _ => {
                    bytes.push(0xf0);
                    bytes.extend_from_slice(&(len as u32).to_le_bytes());
                }
            }
            write(bytes);
        });
    }

    /// Adds a name or a value of the entry with this ID.
    fn element(&mut self, stream: &Stream<'_>, id: StreamId, element: &Element<'_>) {
        match element {
            Element::Number(n) => self.number(*n),
            Element::Text(text) => self.text(text.len(), |bytes| bytes.extend_from_slice(text)),
            Element::Apart(apart) => self.text(apart.len(), |bytes| {
                stream.each_part(id, element, |part| bytes.extend_from_slice(part));
            }),
        }
    }

    /// Writes the end and the head.
    fn end(&mut self) {
        self.bytes.push(0xff);
        let (bytes, strings) = (self.bytes.len() as u32, self.strings.min(0xffff) as u16);
        self.bytes[..4].copy_from_slice(&bytes.to_le_bytes());
        self.bytes[4..6].copy_from_slice(&strings.to_le_bytes());
    }
}

fn put_raw_id(out: &mut Output, id: StreamId) {
    out.put(&id.ms.to_be_bytes());
    out.put(&id.seq.to_be_bytes());
}

fn put_length(out: &mut Output, n: u64) {
    out.put(&length(n));
}

fn put_string(out: &mut Output, text: &[u8]) {
    put_length(out, text.len() as u64);
    out.put(text);
}

fn put_both(out: &mut Output, id: StreamId) {
    put_length(out, id.ms);
    put_length(out, id.seq);
}

/// Whether an entry has the same field names as the first of its node.
fn has_names(fields: StreamFields<'_>, first: &StreamFields<'_>) -> bool {
    fields.len() == first.len() && fields.zip(first.clone()).all(|(one, other)| one.0 == other.0)
}

/// What is to be copied next.
#[derive(Clone, Debug)]
enum Remaining {
    /// Entries, from a place on.
    Entries(usize),
    /// The stream's own values.
    Own,
    /// A group.
    Group(usize),
    /// Pending entries of the group, from an ID on.
    Pending(usize, StreamId),
    /// A consumer of a group.
    Consumer(usize, usize),
    /// Pending entries of the consumer, from an ID on.
    Owned(usize, usize, StreamId),
    /// Nothing.
    End,
}

/// A DUMP of a stream under way.
#[derive(Debug)]
struct Dumping {
    name: Name,
    version: u64,
    tries: Tries,
    next: Remaining,
    nodes: u64,
    node: Listpack,
    kept: Output,
    /// Once all is copied: how many bytes are checksummed, and their checksum.
    checked: Option<(usize, u64)>,
    sent: Option<u64>,
    lane: Option<Lane>,
}

/// Begins DUMP of a stream. It replies null if there is none by then.
///
/// # Errors
/// The key has another type of value by then; there is no room.
pub(crate) fn dump(call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Done {
    let dumping = Dumping {
        name: Name::kept(call, key.bytes())?,
        version: 0,
        tries: Tries::default(),
        next: Remaining::Entries(0),
        nodes: 0,
        node: Listpack::default(),
        kept: Output::charged(u64::MAX, call.cx.guard.store(), 0),
        checked: None,
        sent: None,
        lane: None,
    };
    call.work(dumping)
}

impl Dumping {
    /// Copies the next part: a node, a group, some pending entries. Returns the work of that; or, as an error, the bytes for
    /// which there is no room.
    fn copy(&mut self, stream: &Stream<'_>) -> Result<u64, usize> {
        let Dumping { next, node, kept, nodes, .. } = self;
        let group_at = |at: usize| stream.groups_behind(at).next();
        let room = |kept: &Output, bytes: usize| if kept.free_bytes() < bytes { Err(bytes) } else { Ok(()) };
        match next.clone() {
            Remaining::Entries(at) => {
                let Some(first) = stream.at(at) else {
                    *next = Remaining::Own;
                    return Ok(LOOK_NS);
                };
                let (count, bytes) = of_a_node(stream, at);
                if bytes > NODE_BYTES_KEPT {
                    // The buffer is charged together with what it is copied to, before it is made.
                    room(kept, 2 * bytes)?;
                    node.bytes.reserve_exact(bytes);
                }
                fill(node, stream, (at, count), &first);
                room(kept, node.bytes.len() + 64)?;
                put_string(kept, &[first.id.ms.to_be_bytes(), first.id.seq.to_be_bytes()].concat());
                put_string(kept, &node.bytes);
                *nodes += 1;
                *next = Remaining::Entries(at + count);
                let ns = LOOK_NS + count as u64 * 3 * ELEMENT_NS + copying_ns(2 * node.bytes.len() as u64);
                if node.bytes.capacity() > NODE_BYTES_KEPT {
                    // It held a value that lay apart: the next node may be short.
                    node.bytes = Vec::new();
                }
                Ok(ns)
            }
            Remaining::Own => {
                room(kept, 128)?;
                put_length(kept, stream.len() as u64);
                put_both(kept, stream.last_id());
                put_both(kept, stream.first_id());
                put_both(kept, stream.deleted_max());
                put_length(kept, stream.added());
                put_length(kept, stream.groups().len() as u64);
                *next = Remaining::Group(0);
                Ok(LOOK_NS)
            }
            Remaining::Group(at) => {
                let Some(group) = group_at(at) else {
                    *next = Remaining::End;
                    return Ok(LOOK_NS);
                };
                room(kept, group.name.len() + 128)?;
                put_string(kept, group.name);
                put_both(kept, group.last);
                put_length(kept, group.read.unwrap_or(u64::MAX));
                put_length(kept, stream.pending_count(&group) as u64);
                *next = Remaining::Pending(at, StreamId::MIN);
                Ok(4 * LOOK_NS)
            }
            Remaining::Pending(at, from) => {
                let Some(group) = group_at(at) else { return Ok(0) };
                let mut count = 0;
                for there in stream.pending(&group, from) {
                    if kept.free_bytes() < PENDING_BYTES || count == PIECE_BYTES / PENDING_BYTES {
                        *next = Remaining::Pending(at, there.id);
                        room(kept, PENDING_BYTES)?;
                        return Ok(count as u64 * ELEMENT_NS);
                    }
                    put_raw_id(kept, there.id);
                    kept.put(&there.time.to_le_bytes());
                    put_length(kept, there.count);
                    count += 1;
                }
                *next = Remaining::Consumer(at, 0);
                // The number of consumers.
                room(kept, 16).inspect_err(|_| *next = Remaining::Pending(at, StreamId::MAX))?;
                put_length(kept, stream.consumers(&group).len() as u64);
                Ok(LOOK_NS + count as u64 * ELEMENT_NS)
            }
            Remaining::Consumer(at, nth) => {
                let Some(group) = group_at(at) else { return Ok(0) };
                let Some(consumer) = stream.consumers_behind(&group, nth).next() else {
                    *next = Remaining::Group(at + 1);
                    return Ok(LOOK_NS);
                };
                room(kept, consumer.name.len() + 64)?;
                put_string(kept, consumer.name);
                kept.put(&consumer.seen.to_le_bytes());
                put_length(kept, stream.pending_with_count(&consumer) as u64);
                *next = Remaining::Owned(at, nth, StreamId::MIN);
                Ok(4 * LOOK_NS)
            }
            Remaining::Owned(at, nth, from) => {
                let Some(group) = group_at(at) else { return Ok(0) };
                let Some(consumer) = stream.consumers_behind(&group, nth).next() else { return Ok(0) };
                let mut count = 0;
                for id in stream.pending_with(&consumer, from) {
                    if kept.free_bytes() < PENDING_BYTES || count == PIECE_BYTES / PENDING_BYTES {
                        *next = Remaining::Owned(at, nth, id);
                        room(kept, PENDING_BYTES)?;
                        return Ok(count as u64 * ELEMENT_NS);
                    }
                    put_raw_id(kept, id);
                    count += 1;
                }
                *next = Remaining::Consumer(at, nth + 1);
                Ok(2 * LOOK_NS + count as u64 * ELEMENT_NS)
            }
            Remaining::End => Ok(0),
        }
    }

    /// Copies as much as there is time for; true when all is copied, `None` if there is no stream.
    fn copy_some(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Option<bool>, Fail> {
        let at_once = call.cx.guard.in_transaction() || self.tries.are_over();
        let (ns_max, mut ns) = (if at_once { u64::MAX } else { call.step_ns() }, 0);
        let mut needs = NODE_BYTES;
        let done = loop {
            // In a transaction nothing is evicted: no more room is made than is needed.
            let piece = if self.nodes > 0 && !call.cx.guard.in_transaction() { PIECE_BYTES } else { 0 };
            call.make_room_in(&mut self.kept, needs.max(piece))?;
            if self.name.is_swapped(call) {
                self.name.anew(call);
                self.version = 0;
            }
            let key = self.name.key(call);
            let version = call.cx.guard.peek(&key).hit().map_or(0, |item| item.cas());
            let there = peek_as(&mut call.cx.guard, &key, Type::Stream)?.and_then(|there| there.stream());
            let Some(stream) = there else { break None };
            if self.version != version {
                if self.version != 0 {
                    self.tries.fail();
                }
                (self.version, self.next, self.nodes) = (version, Remaining::Entries(0), 0);
                self.kept.clear();
            }
            let ended = loop {
                match self.copy(&stream) {
                    Err(bytes) => {
                        needs = bytes.max(NODE_BYTES);
                        break false;
                    }
                    Ok(took) => ns += took,
                }
                if matches!(self.next, Remaining::End) {
                    break true;
                }
                if ns >= ns_max {
                    break false;
                }
            };
            if ended {
                break Some(true);
            }
            if ns >= ns_max {
                break Some(false);
            }
        };
        call.spend(ns);
        Ok(done)
    }

    /// The head of the payload.
    fn head(&self) -> Vec<u8> {
        let mut head = vec![TYPE];
        head.extend_from_slice(&length(self.nodes));
        head
    }
}

/// How many entries from a place on one node has, and its bytes, at most.
fn of_a_node(stream: &Stream<'_>, at: usize) -> (usize, usize) {
    let (mut count, mut bytes, mut bytes_max) = (0, 0, HEAD_ROOM);
    for entry in stream.entries(at..stream.len().min(at + NODE_ENTRIES)) {
        count += 1;
        bytes += entry.fields.bytes() + 16;
        bytes_max += entry.fields.bytes() + 2 * entry.fields.len() * STRING_ROOM + HEAD_ROOM;
        if bytes >= NODE_BYTES {
            break;
        }
    }
    (count, bytes_max)
}

/// Makes a node of so many entries from a place on.
fn fill(node: &mut Listpack, stream: &Stream<'_>, (at, count): (usize, usize), first: &StreamEntry<'_>) {
    // A node begins with the number of its entries.
    node.start();
    node.number(count as i64);
    node.number(0);
    node.number(first.fields.len() as i64);
    first.fields.clone().for_each(|(name, _)| node.element(stream, first.id, &name));
    node.number(0);
    for entry in stream.entries(at..at + count) {
        let fields = entry.fields.len() as i64;
        let same = has_names(entry.fields.clone(), &first.fields);
        node.number(if same { SAME_NAMES } else { 0 });
        node.number(entry.id.ms.wrapping_sub(first.id.ms) as i64);
        node.number(entry.id.seq.wrapping_sub(first.id.seq) as i64);
        if !same {
            node.number(fields);
        }
        for (name, value) in entry.fields {
            if !same {
                node.element(stream, entry.id, &name);
            }
            node.element(stream, entry.id, &value);
        }
        node.number(if same { fields + 3 } else { 2 * fields + 4 });
    }
    node.end();
}

impl Job for Dumping {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let at_once = call.cx.guard.in_transaction();
        if let Some(sent) = &mut self.sent {
            let step = send_whole(call, &self.kept, sent)?;
            if step == Step::Done {
                self.put_end(call);
            }
            return Ok(step);
        }
        if self.checked.is_none() {
            if self.version != 0 && self.lane.is_none() && !at_once {
                self.lane = call.cx.room.work().take_lane();
                if self.lane.is_none() {
                    call.spend(STEP_NS_MIN);
                    return Ok(call.await_lane());
                }
            }
            if self.tries.are_many() && !at_once {
                self.tries.begin_held();
                return Ok(Step::Hold);
            }
            match self.copy_some(call)? {
                None => {
                    put_null(call.out, call.client.resp3);
                    return Ok(Step::Done);
                }
                Some(false) => return Ok(Step::More),
                Some(true) => self.checked = Some((0, crc64_on(0, &self.head()))),
            }
            if !at_once && self.kept.len() >= CHECKED_BYTES as u64 {
                return Ok(Step::More);
            }
        }
        let kept = self.kept.contiguous().unwrap_or_default();
        if let Some((at, checksum)) = &mut self.checked {
            let (ns_max, mut ns) = (if at_once { u64::MAX } else { call.step_ns() }, 0);
            while *at < kept.len() && ns < ns_max {
                let end = kept.len().min(*at + CHECKED_BYTES);
                *checksum = crc64_on(*checksum, &kept[*at..end]);
                ns += checking_ns((end - *at) as u64);
                *at = end;
            }
            call.spend(ns);
            if *at < kept.len() || ns >= ns_max && !at_once {
                return Ok(Step::More);
            }
        }
        let head = self.head();
        put_head(call.out, b'$', (head.len() + kept.len() + FOOTER_BYTES) as u64);
        call.out.put(&head);
        // The client takes the reply when it likes; the rest of it is memory that is charged.
        self.lane = None;
        let step = send_whole(call, &self.kept, self.sent.insert(0))?;
        if step == Step::Done {
            self.put_end(call);
        }
        Ok(step)
    }

    fn held_bytes(&self) -> u64 {
        self.kept.capacity_bytes() as u64
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn asks_itself(&self) -> bool {
        self.sent.is_some()
    }

    fn only_replies(&self) -> bool {
        self.checked.is_some() || self.sent.is_some()
    }

    fn names(&self) -> Vec<&Name> {
        vec![&self.name]
    }
}

impl Dumping {
    /// Writes the end of the payload.
    fn put_end(&self, call: &mut Call<'_, '_, '_>) {
        let version = VERSION.to_le_bytes();
        let checksum = self.checked.map_or(0, |(_, checksum)| checksum);
        call.out.put(&version);
        call.out.put(&crc64_on(checksum, &version).to_le_bytes());
        call.out.put(b"\r\n");
    }
}
