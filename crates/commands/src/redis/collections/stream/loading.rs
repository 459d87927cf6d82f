//! A stream that RESTORE loads from a payload (`payload.rs`), some of it at a time. The payload is not trusted.

use larder_store::{
    BulkLoad, ConsumerLoad, Declined, Element as Stored, GroupLoad, Key, NewFields, StreamId, StreamLoad,
};

use super::APART_COPIES;
use super::payload::{DELETED, SAME_NAMES};
use crate::core::work::copying_ns;
use crate::redis::call::Call;
use crate::redis::collections::making::finish;
use crate::redis::copied::Copied;
use crate::redis::fail::Fail;
use crate::redis::heap::Heap;
use crate::redis::serialize::packings::{Cursor, Element, Packed, Packing};
use crate::redis::serialize::{BAD_FORMAT, Node, Reader};
use crate::redis::steps::job::LEAVES;

/// Entries that are put in at a time, and about their bytes.
const ENTRIES_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: usize = 64 << 10;
/// Time of reading at a time, about: in it deleted entries are passed over, too.
const READ_AT_ONCE_NS: u64 = 20_000;
/// Pending entries that are put in at a time.
const PENDING_AT_ONCE: usize = 64;
/// Work to put in an entry, and a pending one, or to give that to its consumer.
const ENTRY_NS: u64 = 400;
const PENDING_NS: u64 = 600;
/// Work to read a string, however short.
const STRING_NS: u64 = 10;
/// Strings of a deleted entry, or names of a node, that are passed over at a time.
const PASSED_AT_ONCE: usize = (READ_AT_ONCE_NS / STRING_NS) as usize;
/// Fields of an entry, at most; only a deleted one may have more.
const FIELDS_MAX: usize = 16 << 10;
/// Bytes on the heap that are not charged.
const UNCHARGED_BYTES_MAX: usize = 64 << 10;

/// What is read next.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// How many nodes are left.
    Nodes(u64),
    /// The stream's own values, behind its entries.
    Own,
    /// How many groups are left.
    Groups(u64),
    /// How many pending entries of a group are left, and how many groups behind it.
    Pending(u64, u64),
    /// How many consumers of the group are left, and how many groups behind it.
    Consumers(u64, u64),
    /// How many pending entries of a consumer are left; consumers; groups.
    Owned(u64, u64, u64),
    /// Nothing.
    End,
}

/// A node that is being read.
#[derive(Debug)]
struct ReadNode {
    node: Node,
    /// `None` until the node is unpacked.
    cursor: Option<Cursor>,
    master: StreamId,
    /// How many entries there are and were deleted, according to the node, less those that were read; `None` until its head is
    /// read.
    told: Option<(u64, u64)>,
    /// How many field names it has for its entries.
    fields: usize,
    /// These names, unless they are more than an entry may have.
    names: Copied,
    passing: Option<Passing>,
}

/// Strings that are being passed over.
#[derive(Debug)]
struct Passing {
    /// Strings that are left.
    left: usize,
    /// The number that has to be behind them.
    end: i64,
    /// They are the node's names, not a deleted entry.
    are_names: bool,
}

/// An entry that was read.
#[derive(Debug)]
struct ReadEntry {
    id: StreamId,
    fields: NewFields,
    /// Its strings, if some of its values lie apart.
    texts: Copied,
    /// The strings that are these values, by their numbers.
    apart: Vec<usize>,
}

impl ReadEntry {
    /// The values that lie apart.
    fn apart(&self) -> impl Iterator<Item = &[u8]> {
        self.apart.iter().map(|&at| self.texts.at(at))
    }
}

/// A stream that is being loaded from a payload.
#[derive(Debug)]
pub(crate) struct StreamLoading {
    kind: u8,
    /// The place of the first byte that is not read.
    at: usize,
    part: Part,
    node: Option<Box<ReadNode>>,
    load: Option<StreamLoad>,
    group: Option<GroupLoad>,
    consumer: Option<ConsumerLoad>,
    batch: Vec<ReadEntry>,
    pending: Vec<(StreamId, u64, u64)>,
    ids: Vec<StreamId>,
    held: Heap,
}

fn raw_id(reader: &mut Reader<'_>) -> Result<StreamId, Fail> {
    let ms = reader.array().ok_or(BAD_FORMAT)?;
    let seq = reader.array().ok_or(BAD_FORMAT)?;
    Ok(StreamId { ms: u64::from_be_bytes(ms), seq: u64::from_be_bytes(seq) })
}

fn number(reader: &mut Reader<'_>) -> Result<u64, Fail> {
    reader.length().map(|n| n as u64).ok_or(BAD_FORMAT)
}

fn both(reader: &mut Reader<'_>) -> Result<StreamId, Fail> {
    Ok(StreamId { ms: number(reader)?, seq: number(reader)? })
}

fn time(reader: &mut Reader<'_>) -> Result<u64, Fail> {
    reader.array().map(u64::from_le_bytes).ok_or(BAD_FORMAT)
}

/// Reads a name, which has to fit into a leaf.
fn name(reader: &mut Reader<'_>) -> Result<Vec<u8>, Fail> {
    let room =
        &mut |bytes| if bytes > UNCHARGED_BYTES_MAX { Err(Fail::COLLECTION_TOO_LARGE) } else { Ok(()) };
    Ok(reader.string(room)?.into_owned())
}

fn broken(declined: Declined) -> Fail {
    match declined {
        Declined::Twice => BAD_FORMAT,
        declined => declined.into(),
    }
}

/// Reads the next number of a listpack.
fn next_number(cursor: &mut Cursor, bytes: &[u8]) -> Result<i64, Fail> {
    match cursor.next(bytes) {
        Some(Element::Entry(Packed::Number(n))) => Ok(n),
        _ => Err(BAD_FORMAT),
    }
}

/// Adds the next string of a listpack to `to`, which may have `most` bytes.
fn next_text(cursor: &mut Cursor, bytes: &[u8], to: &mut Copied, most: usize) -> Result<(), Fail> {
    match cursor.next(bytes) {
        // It is not copied, since no room was made for it.
        Some(Element::Entry(Packed::Text(text))) if to.bytes() + text.len() > most => {
            return Err(Fail::COLLECTION_TOO_LARGE);
        }
        Some(Element::Entry(Packed::Text(text))) => to.push(text),
        Some(Element::Entry(Packed::Number(n))) => to.push(n.to_string().as_bytes()),
        Some(Element::End) | None => return Err(BAD_FORMAT),
    }
    if to.bytes() > most { Err(Fail::COLLECTION_TOO_LARGE) } else { Ok(()) }
}

/// Checks a number of fields: each has some of these bytes.
fn fields_of(n: i64, bytes: &[u8]) -> Result<usize, Fail> {
    usize::try_from(n).ok().filter(|n| (1..=bytes.len()).contains(n)).ok_or(BAD_FORMAT)
}

impl ReadNode {
    /// Reads what is in front of the entries.
    fn read_head(&mut self, bytes: &[u8]) -> Result<(), Fail> {
        let Some(cursor) = &mut self.cursor else { return Err(BAD_FORMAT) };
        let count = u64::try_from(next_number(cursor, bytes)?).map_err(|_| BAD_FORMAT)?;
        let deleted = u64::try_from(next_number(cursor, bytes)?).map_err(|_| BAD_FORMAT)?;
        self.told = Some((count, deleted));
        self.fields = fields_of(next_number(cursor, bytes)?, bytes)?;
        if self.fields > FIELDS_MAX {
            // Only deleted entries have as many.
            self.passing = Some(Passing { left: self.fields, end: 0, are_names: true });
            return Ok(());
        }
        for _ in 0..self.fields {
            next_text(cursor, bytes, &mut self.names, BYTES_AT_ONCE)?;
        }
        if next_number(cursor, bytes)? == 0 { Ok(()) } else { Err(BAD_FORMAT) }
    }

    /// Passes over some of the next strings, and behind the last of them over their number. Adds that work to `ns`.
    fn pass(&mut self, bytes: &[u8], ns: &mut u64) -> Result<(), Fail> {
        let (Some(cursor), Some((_, deleted)), Some(Passing { left, end, are_names })) =
            (&mut self.cursor, &mut self.told, &mut self.passing)
        else {
            return Err(BAD_FORMAT);
        };
        let some = PASSED_AT_ONCE.min(*left);
        for _ in 0..some {
            let Some(Element::Entry(_)) = cursor.next(bytes) else { return Err(BAD_FORMAT) };
        }
        *ns += some as u64 * STRING_NS;
        *left -= some;
        if *left > 0 {
            return Ok(());
        }
        if next_number(cursor, bytes)? != *end {
            return Err(BAD_FORMAT);
        }
        if !*are_names {
            *deleted = deleted.checked_sub(1).ok_or(BAD_FORMAT)?;
        }
        self.passing = None;
        Ok(())
    }

    /// Reads an entry, of which `apart_max` bytes may lie apart, and adds that work to `ns`. `None` for a deleted entry, or for
    /// names that no entry has: these are passed over, some at a time, however long they are.
    fn read_entry(
        &mut self,
        bytes: &[u8],
        apart_max: usize,
        ns: &mut u64,
    ) -> Result<Option<ReadEntry>, Fail> {
        if self.passing.is_some() {
            return self.pass(bytes, ns).map(|()| None);
        }
        *ns += ENTRY_NS / 4;
        let (Some(cursor), Some((count, _))) = (&mut self.cursor, &mut self.told) else {
            return Err(BAD_FORMAT);
        };
        let flags = next_number(cursor, bytes)?;
        if !(0..=DELETED | SAME_NAMES).contains(&flags) {
            return Err(BAD_FORMAT);
        }
        let (ms, seq) = (next_number(cursor, bytes)?, next_number(cursor, bytes)?);
        let id = StreamId {
            ms: self.master.ms.wrapping_add(ms as u64),
            seq: self.master.seq.wrapping_add(seq as u64),
        };
        let mut texts = Copied::default();
        let (same, is_deleted) = (flags & SAME_NAMES != 0, flags & DELETED != 0);
        let fields = if same { self.fields } else { fields_of(next_number(cursor, bytes)?, bytes)? };
        let (strings, numbers) = if same { (fields, 3) } else { (2 * fields, 4) };
        let end = (strings + numbers) as i64;
        if is_deleted {
            self.passing = Some(Passing { left: strings, end, are_names: false });
            return self.pass(bytes, ns).map(|()| None);
        }
        if fields > FIELDS_MAX {
            return Err(Fail::COLLECTION_TOO_LARGE);
        }
        for _ in 0..strings {
            next_text(cursor, bytes, &mut texts, apart_max + BYTES_AT_ONCE)?;
        }
        // Strings are read and packed.
        *ns += strings as u64 * 2 * STRING_NS;
        if next_number(cursor, bytes)? != end {
            return Err(BAD_FORMAT);
        }
        *count = count.checked_sub(1).ok_or(BAD_FORMAT)?;
        let value_at = |i: usize| if same { i } else { 2 * i + 1 };
        let pair = |i: usize| {
            let name = if same { self.names.at(i) } else { texts.at(2 * i) };
            (name, texts.at(value_at(i)))
        };
        let (mut new, mut apart) = (NewFields::default(), Vec::new());
        new.set_long((0..fields).map(pair), apart_max, &mut apart)?;
        if !new.fits() {
            return Err(Fail::COLLECTION_TOO_LARGE);
        }
        if apart.is_empty() {
            return Ok(Some(ReadEntry { id, fields: new, texts: Copied::default(), apart: Vec::new() }));
        }
        let is_apart = |value: &Stored<'_>| matches!(value, Stored::Apart(_));
        let values = new.fields().enumerate().filter(|(_, (_, value))| is_apart(value));
        let apart = values.map(|(i, _)| value_at(i)).collect();
        Ok(Some(ReadEntry { id, fields: new, texts, apart }))
    }
}

impl StreamLoading {
    /// Begins with a payload.
    ///
    /// # Errors
    /// It is too short.
    pub fn new(call: &Call<'_, '_, '_>, body: &[u8]) -> Result<StreamLoading, Fail> {
        let (&kind, rest) = body.split_first().ok_or(BAD_FORMAT)?;
        let mut reader = Reader(rest);
        let nodes = number(&mut reader)?;
        Ok(StreamLoading {
            kind,
            at: body.len() - reader.0.len(),
            part: Part::Nodes(nodes),
            node: None,
            load: Some(StreamLoad::new(call.cx.guard.store())),
            group: None,
            consumer: None,
            batch: Vec::new(),
            pending: Vec::new(),
            ids: Vec::new(),
            held: Heap::none(call),
        })
    }

    /// Does a part, as [`crate::redis::keys::loading::Loading::step`].
    ///
    /// # Errors
    /// The payload is broken, or there is no memory for it.
    pub fn step(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        key: &Key<'_>,
        body: &[u8],
        (ns, ns_max): (&mut u64, u64),
    ) -> Result<bool, Fail> {
        let mut is_first = true;
        while !matches!(self.part, Part::End) {
            // The step looked for memory of its first leaves before it began.
            if *ns >= ns_max || !is_first && call.finds_none(LEAVES) {
                return Ok(false);
            }
            self.read(call, key, body, ns)?;
            self.charge(call)?;
            is_first = false;
        }
        if self.at != body.len() {
            return Err(BAD_FORMAT);
        }
        let Some(load) = &mut self.load else { return Ok(true) };
        finish(call, load.load_mut(), key, (ns, ns_max))
    }

    /// Returns what was loaded.
    pub fn into_load(mut self) -> Option<BulkLoad> {
        self.load.take().map(StreamLoad::into_load)
    }

    fn charge(&mut self, call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
        let most = call.cx.guard.store().element_bytes_max();
        let node = self.node.as_ref().map_or(0, |node| {
            // Such a long entry is copied into a buffer that grows by doubling.
            let long = node.node.len().min(most);
            node.node.unpacked_bytes() + if long > BYTES_AT_ONCE { 2 * long } else { 0 }
        });
        let bytes = self.load.as_ref().map_or(0, StreamLoad::heap_bytes) + node;
        self.held.set(call, if bytes <= UNCHARGED_BYTES_MAX { 0 } else { bytes + 2 * BYTES_AT_ONCE })
    }

    /// Reads the next part.
    fn read(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        key: &Key<'_>,
        body: &[u8],
        ns: &mut u64,
    ) -> Result<(), Fail> {
        if self.node.is_some() {
            return self.read_node(call, key, body, ns);
        }
        let Some(load) = &mut self.load else { return Err(BAD_FORMAT) };
        let guard = &mut call.cx.guard;
        let mut reader = Reader(&body[self.at..]);
        self.part = match self.part {
            Part::Nodes(0) => Part::Own,
            Part::Nodes(left) => {
                let room = &mut |_| Err(BAD_FORMAT);
                let text = reader.string(room)?;
                let master =
                    raw_id(&mut Reader(&text)).ok().filter(|_| text.len() == 16).ok_or(BAD_FORMAT)?;
                let node = Node::read(&mut reader, body.len()).ok_or(BAD_FORMAT)?;
                let (cursor, told, fields, names, passing) = (None, None, 0, Copied::default(), None);
                self.node = Some(Box::new(ReadNode { node, cursor, master, told, fields, names, passing }));
                Part::Nodes(left - 1)
            }
            Part::Own => {
                let (len, last) = (number(&mut reader)?, both(&mut reader)?);
                let (mut deleted_max, mut added) = (StreamId::MIN, len);
                if self.kind > 15 {
                    both(&mut reader)?;
                    (deleted_max, added) = (both(&mut reader)?, number(&mut reader)?);
                }
                // Each listpack has an entry, so that an empty stream has no nodes.
                if len != load.len() || last < load.last() {
                    return Err(BAD_FORMAT);
                }
                guard.stream_load_own(load, key, (last, deleted_max, added)).map_err(broken)?;
                Part::Groups(number(&mut reader)?)
            }
            Part::Groups(0) => Part::End,
            Part::Groups(left) => {
                let (name, last) = (name(&mut reader)?, both(&mut reader)?);
                let read = if self.kind > 15 { Some(number(&mut reader)?) } else { None };
                let read = read.filter(|read| *read <= i64::MAX as u64);
                self.group = Some(guard.stream_load_group(load, key, &name, last, read).map_err(broken)?);
                *ns += 4 * PENDING_NS;
                Part::Pending(number(&mut reader)?, left - 1)
            }
            Part::Pending(0, groups) => Part::Consumers(number(&mut reader)?, groups),
            Part::Pending(left, groups) => {
                let some = left.min(PENDING_AT_ONCE as u64);
                self.pending.clear();
                for _ in 0..some {
                    self.pending.push((raw_id(&mut reader)?, time(&mut reader)?, number(&mut reader)?));
                }
                let Some(group) = &mut self.group else { return Err(BAD_FORMAT) };
                guard.stream_load_pending(load, key, group, &self.pending).map_err(broken)?;
                *ns += some * PENDING_NS;
                Part::Pending(left - some, groups)
            }
            Part::Consumers(0, groups) => {
                if self.group.take().is_some_and(|group| !group.is_whole()) {
                    return Err(BAD_FORMAT);
                }
                Part::Groups(groups)
            }
            Part::Consumers(left, groups) => {
                let (name, seen) = (name(&mut reader)?, time(&mut reader)?);
                // A time before 0 means never.
                let active = if self.kind > 19 {
                    Some(time(&mut reader)?).filter(|at| *at <= i64::MAX as u64)
                } else {
                    Some(seen)
                };
                let Some(group) = &self.group else { return Err(BAD_FORMAT) };
                let consumer = guard.stream_load_consumer(load, key, group, &name, (seen, active));
                self.consumer = Some(consumer.map_err(broken)?);
                *ns += 4 * PENDING_NS;
                Part::Owned(number(&mut reader)?, left - 1, groups)
            }
            Part::Owned(0, consumers, groups) => Part::Consumers(consumers, groups),
            Part::Owned(left, consumers, groups) => {
                let some = left.min(PENDING_AT_ONCE as u64);
                self.ids.clear();
                for _ in 0..some {
                    self.ids.push(raw_id(&mut reader)?);
                }
                let (Some(group), Some(consumer)) = (&mut self.group, self.consumer) else {
                    return Err(BAD_FORMAT);
                };
                guard.stream_load_owned(load, key, (group, consumer), &self.ids).map_err(broken)?;
                *ns += some * 2 * PENDING_NS;
                Part::Owned(left - some, consumers, groups)
            }
            Part::End => Part::End,
        };
        self.at = body.len() - reader.0.len();
        Ok(())
    }

    /// Unpacks a part of the node that is being read, or reads some of its entries.
    fn read_node(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        key: &Key<'_>,
        body: &[u8],
        ns: &mut u64,
    ) -> Result<(), Fail> {
        let (Some(read), Some(load)) = (&mut self.node, &mut self.load) else { return Err(BAD_FORMAT) };
        if read.cursor.is_none() {
            if !read.node.unpack(body, ns)? {
                return Ok(());
            }
            let bytes = read.node.bytes(body);
            read.cursor = Some(Cursor::new(Packing::Listpack, bytes).ok_or(BAD_FORMAT)?);
            let node = std::mem::replace(&mut read.node, Node::Here { at: 0, end: 0 });
            let head = read.read_head(node.bytes(body));
            read.node = node;
            // The head may be all that there is in the node.
            *ns += ENTRY_NS + read.names.len() as u64 * STRING_NS;
            return head;
        }
        self.batch.clear();
        let apart_max = call.cx.guard.store().element_bytes_max();
        let (mut bytes, mut ended, began) = (0, false, *ns);
        let node = std::mem::replace(&mut read.node, Node::Here { at: 0, end: 0 });
        let all = node.bytes(body);
        while self.batch.len() < ENTRIES_AT_ONCE && bytes < BYTES_AT_ONCE && *ns - began < READ_AT_ONCE_NS {
            if read.told == Some((0, 0)) && read.passing.is_none() {
                ended = true;
                break;
            }
            if let Some(entry) = read.read_entry(all, apart_max, ns)? {
                bytes += entry.fields.fields().bytes();
                self.batch.push(entry);
            }
        }
        if ended {
            let end = read.cursor.as_mut().and_then(|cursor| cursor.next(all));
            if end != Some(Element::End) {
                return Err(BAD_FORMAT);
            }
        }
        read.node = node;
        // Entries are copied once; values that lie apart are copied more often on their way into leaves.
        let apart: usize = self.batch.iter().flat_map(ReadEntry::apart).map(<[u8]>::len).sum();
        *ns += self.batch.len() as u64 * ENTRY_NS;
        *ns += copying_ns(bytes as u64) + APART_COPIES * copying_ns(apart as u64);
        if !self.batch.is_empty() {
            let entries = self.batch.iter().map(|entry| (entry.id, &entry.fields, entry.apart()));
            call.cx.guard.stream_load_entries(load, key, entries).map_err(broken)?;
            self.batch.clear();
        }
        if ended {
            self.node = None;
        }
        Ok(())
    }
}

/// How many entries a payload of so many bytes has at most, and the work to restore them.
pub(crate) fn weight(bytes: u64) -> (u64, u64) {
    // An entry takes six bytes or more. Pending entries take more work.
    (bytes / 6, bytes.saturating_mul(PENDING_NS / 8))
}
