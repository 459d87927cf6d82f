//! A stream as it is read.

use super::rows::{
    Data, ENTRIES, FIRST_LINE, GROUPS, PART_BYTES, PARTS, REMOVED, Row, RowKey, Rows, STREAM, StreamFields,
    StreamId, StreamRow, seek,
};
use crate::Store;
use crate::collection::{Body, Collection, DIGITS_MAX, Element, LongText, PinnedValue, Type};
use std::ops::Range;
use std::sync::Arc;

/// Parts of values that go in one moment with their entries, about.
const PARTS_AT_ONCE: usize = if cfg!(any(test, feature = "schedule")) { 20 } else { 512 };

/// A stream of one moment, borrowed from the arena.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'g> {
    all: Collection<'g>,
    pub(super) own: StreamRow,
    /// Entries.
    len: usize,
}

/// An entry of a stream.
#[derive(Clone, Debug)]
pub struct StreamEntry<'g> {
    /// Its ID.
    pub id: StreamId,
    /// Its fields with their values.
    pub fields: StreamFields<'g>,
}

/// A group of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'g> {
    /// Its name.
    pub name: &'g [u8],
    /// The last ID that was delivered.
    pub last: StreamId,
    /// Entries that were read of all that were ever added; none if that is not known.
    pub read: Option<u64>,
    pub(super) line: u32,
}

/// A consumer of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer<'g> {
    /// Its name.
    pub name: &'g [u8],
    /// When it last asked for something, in milliseconds since 1970.
    pub seen: u64,
    /// When it was last given something; none: never.
    pub active: Option<u64>,
    pub(super) line: u32,
}

impl Consumer<'_> {
    /// Which it is among consumers of one stream.
    pub fn number(&self) -> u32 {
        self.line
    }
}

/// An entry that was delivered and is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// Its ID, whether it still is there or not.
    pub id: StreamId,
    /// The number of its consumer ([`Consumer::number`]).
    pub consumer: u32,
    /// When it was delivered last, in milliseconds since 1970.
    pub time: u64,
    /// How often.
    pub count: u64,
}

impl<'g> Collection<'g> {
    /// What it has, if it is a stream.
    pub fn stream(&self) -> Option<Stream<'g>> {
        if self.kind() != Type::Stream {
            return None;
        }
        let (len, row) = self.seek_row(&RowKey::STREAM);
        let Data::Stream(own) = row?.data else { return None };
        Some(Stream { all: *self, own, len })
    }

    fn seek_row(&self, key: &RowKey<'_>) -> (usize, Option<Row<'g>>) {
        match &self.body {
            Body::Leaf(leaf) => seek(leaf, key),
            Body::Tree(tree) => tree.seek_row(key),
        }
    }
}

impl<'g> Stream<'g> {
    /// Entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// It has no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that all of it takes.
    pub fn bytes(&self) -> usize {
        self.all.bytes()
    }

    /// Rows: entries, what is pending, and all else.
    pub fn rows_count(&self) -> usize {
        self.all.len()
    }

    /// Rows of groups, of consumers, and of what is pending: all but entries, parts of their values, and what it knows of itself.
    pub fn others_count(&self) -> usize {
        let parts = if self.may_have_parts() { self.line(PARTS, StreamId::MIN).len() } else { 0 };
        self.all.len() - self.len - parts - 1
    }

    /// The greatest ID that an entry has had.
    pub fn last_id(&self) -> StreamId {
        self.own.last
    }

    /// The greatest ID of an entry that was deleted.
    pub fn deleted_max(&self) -> StreamId {
        self.own.deleted_max
    }

    /// Entries that were ever added.
    pub fn added(&self) -> u64 {
        self.own.added
    }

    /// How many rows come before one, and that one, if it is there.
    pub(super) fn seek(&self, key: &RowKey<'_>) -> (usize, Option<Row<'g>>) {
        self.all.seek_row(key)
    }

    /// How many entries have a lower ID.
    pub fn below(&self, id: StreamId) -> usize {
        self.seek(&RowKey::of_id(ENTRIES, id)).0
    }

    /// The places of the entries from one ID to another, which is one of them.
    pub fn places(&self, from: StreamId, to: StreamId) -> Range<usize> {
        let start = self.below(from);
        let end = to.next().map_or(self.len, |next| self.below(next));
        start..end.max(start)
    }

    /// The entry with this ID.
    pub fn entry(&self, id: StreamId) -> Option<StreamEntry<'g>> {
        self.seek(&RowKey::of_id(ENTRIES, id)).1.and_then(entry_of)
    }

    /// The entry at a place below [`Stream::len`].
    pub fn at(&self, place: usize) -> Option<StreamEntry<'g>> {
        self.entries(place..place + 1).next()
    }

    /// The ID of the first entry; 0-0 if there is none.
    pub fn first_id(&self) -> StreamId {
        self.at(0).map_or(StreamId::MIN, |entry| entry.id)
    }

    /// The entries at these places, in order.
    pub fn entries(&self, places: Range<usize>) -> StreamEntries<'g> {
        StreamEntries(self.rows(places.start.min(self.len)..places.end.min(self.len)))
    }

    /// The entries at these places, the last first.
    pub fn entries_back(&self, places: Range<usize>) -> StreamEntriesBack<'g> {
        StreamEntriesBack(self.rows_back(places.start.min(self.len)..places.end.min(self.len)))
    }

    /// Calls `read` with the bytes of a value of the entry with this ID: once, or part by part if it lies apart.
    pub fn each_part(&self, id: StreamId, value: &Element<'_>, mut read: impl FnMut(&[u8])) {
        let Element::Apart(apart) = value else { return read(value.text(&mut [0; DIGITS_MAX])) };
        let first = (apart.label() as u32).to_be_bytes();
        let start = self.seek(&RowKey::of_part(id, &first)).0;
        for row in self.rows(start..start + apart.len().div_ceil(PART_BYTES)) {
            let Data::Part(part) = row.data else { unreachable!("each value has its parts") };
            read(part);
        }
    }

    /// Keeps a value of the entry with this ID that lies apart in place while it is sent, unless connections hold their share of
    /// the memory. `store` is that of the stream.
    ///
    /// # Panics
    /// If the value is another stream's, or the stream is another store's.
    pub fn pin_for_reply(
        &self,
        store: &Arc<Store>,
        id: StreamId,
        apart: &LongText<'_>,
    ) -> Option<PinnedValue<'g>> {
        let first = (apart.label() as u32).to_be_bytes();
        let start = self.seek(&RowKey::of_part(id, &first)).0;
        self.all.tree()?.pin_rows(store, start..start + apart.len().div_ceil(PART_BYTES), apart.len())
    }

    /// Values of entries lie apart.
    pub fn has_parts(&self) -> bool {
        self.may_have_parts() && !self.line(PARTS, StreamId::MIN).is_empty()
    }

    /// There is more than entries: groups, or parts of values.
    pub(super) fn may_have_parts(&self) -> bool {
        self.all.len() > self.len + 1
    }

    /// The places of the parts of entries from one ID up to another, whose own are not among them; or up to the last.
    pub(super) fn parts_of(&self, from: StreamId, to: Option<StreamId>) -> Range<usize> {
        let end = match to {
            Some(to) => RowKey::of_id(PARTS, to),
            None => RowKey::of_id(FIRST_LINE, StreamId::MIN),
        };
        let start = self.seek(&RowKey::of_id(PARTS, from)).0;
        start..self.seek(&end).0.max(start)
    }

    /// How many of the first `count` entries go in one moment: one at least, and no more than have some hundred parts.
    pub(super) fn gone_at_once(&self, count: u64) -> u64 {
        if count <= 1 || !self.may_have_parts() {
            return count;
        }
        let beyond = self.seek(&RowKey::of_id(PARTS, StreamId::MIN)).0 + PARTS_AT_ONCE;
        let row = self.rows(beyond..self.all.len().min(beyond + 1)).next();
        match row.filter(|row| row.key.line == PARTS) {
            Some(row) => count.min(self.below(row.key.id) as u64).max(1),
            None => count,
        }
    }

    pub(super) fn rows(&self, range: Range<usize>) -> RowsAt<'g> {
        RowsAt { all: self.all, range, here: None }
    }

    fn rows_back(&self, range: Range<usize>) -> RowsBack<'g> {
        RowsBack { all: self.all, range, here: Vec::new() }
    }

    /// The places of the rows of a line behind an ID, or from its first on.
    pub(super) fn line(&self, line: u32, from: StreamId) -> Range<usize> {
        let start = self.seek(&RowKey::of_id(line, from)).0;
        let end = line
            .checked_add(1)
            .map_or(self.all.len(), |next| self.seek(&RowKey::of_id(next, StreamId::MIN)).0);
        start..end.max(start)
    }

    /// Its groups, in the order of their names.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = Group<'g>> + use<'g> {
        self.groups_behind(0)
    }

    /// The same, but for so many in front.
    pub fn groups_behind(&self, skipped: usize) -> impl ExactSizeIterator<Item = Group<'g>> + use<'g> {
        self.groups_of(GROUPS, skipped)
    }

    /// Groups that are removed, of which rows are left: no command sees them. Their names are not those that they had.
    pub(super) fn removed_groups(&self) -> impl ExactSizeIterator<Item = Group<'g>> + use<'g> {
        self.groups_of(REMOVED, 0)
    }

    fn groups_of(&self, line: u32, skipped: usize) -> impl ExactSizeIterator<Item = Group<'g>> + use<'g> {
        self.rows(behind(self.line(line, StreamId::MIN), skipped)).map(|row| {
            let Data::Group(group) = row.data else { unreachable!("a line of groups") };
            Group { name: row.key.name, last: group.last, read: group.read, line: group.line }
        })
    }

    /// The group of a name.
    pub fn group(&self, name: &[u8]) -> Option<Group<'g>> {
        let row = self.seek(&RowKey::of_name(GROUPS, name)).1?;
        let Data::Group(group) = row.data else { return None };
        Some(Group { name: row.key.name, last: group.last, read: group.read, line: group.line })
    }

    /// The consumers of a group, in the order of their names.
    pub fn consumers(&self, group: &Group<'_>) -> impl ExactSizeIterator<Item = Consumer<'g>> + use<'g> {
        self.consumers_behind(group, 0)
    }

    /// The same, but for so many in front.
    pub fn consumers_behind(
        &self,
        group: &Group<'_>,
        skipped: usize,
    ) -> impl ExactSizeIterator<Item = Consumer<'g>> + use<'g> {
        let this = *self;
        self.rows(behind(self.line(group.line, StreamId::MIN), skipped)).map(move |row| {
            let Data::Line(line) = row.data else { unreachable!("a line of consumers") };
            this.consumer_of(line).expect("each line says whose it is")
        })
    }

    /// The consumer of a name.
    pub fn consumer(&self, group: &Group<'_>, name: &[u8]) -> Option<Consumer<'g>> {
        let Data::Line(line) = self.seek(&RowKey::of_name(group.line, name)).1?.data else { return None };
        self.consumer_of(line)
    }

    /// The consumer with this number.
    pub fn consumer_of(&self, number: u32) -> Option<Consumer<'g>> {
        let row = self.seek(&RowKey::of_id(number, StreamId::MIN)).1?;
        let Data::Consumer { name, seen, active } = row.data else { return None };
        Some(Consumer { name, seen, active, line: number })
    }

    /// What is pending in a group, from an ID on.
    pub fn pending(
        &self,
        group: &Group<'_>,
        from: StreamId,
    ) -> impl ExactSizeIterator<Item = PendingEntry> + use<'g> {
        self.rows(self.line(group.line + 1, from))
            .map(|row| pending_of(&row).expect("a line of what is pending"))
    }

    /// The same, the last first.
    pub fn pending_back(&self, group: &Group<'_>) -> impl Iterator<Item = PendingEntry> + use<'g> {
        self.rows_back(self.line(group.line + 1, StreamId::MIN)).filter_map(|row| pending_of(&row))
    }

    /// How much is pending in a group.
    pub fn pending_count(&self, group: &Group<'_>) -> usize {
        self.line(group.line + 1, StreamId::MIN).len()
    }

    /// What is pending of one ID.
    pub fn pending_at(&self, group: &Group<'_>, id: StreamId) -> Option<PendingEntry> {
        self.seek(&RowKey::of_id(group.line + 1, id)).1.and_then(|row| pending_of(&row))
    }

    /// The IDs that are pending with a consumer, from one on.
    pub fn pending_with(
        &self,
        consumer: &Consumer<'_>,
        from: StreamId,
    ) -> impl ExactSizeIterator<Item = StreamId> + use<'g> {
        self.rows(self.line(consumer.line, from.max(FIRST))).map(|row| row.key.id)
    }

    /// How many entries are pending with a consumer.
    pub fn pending_with_count(&self, consumer: &Consumer<'_>) -> usize {
        self.line(consumer.line, FIRST).len()
    }

    /// Some entry was deleted, and may have been between an ID and the end.
    fn has_gaps_behind(&self, from: StreamId) -> bool {
        let deleted = self.own.deleted_max;
        self.len > 0 && deleted != StreamId::MIN && self.first_id() <= deleted && from <= deleted
    }

    /// How many entries had been added when that with this ID was, if that can be said.
    pub fn added_at(&self, id: StreamId) -> Option<u64> {
        let StreamRow { last, deleted_max, added, .. } = self.own;
        if added == 0 {
            return Some(0);
        }
        if self.len == 0 && id <= last {
            return Some(added);
        }
        if id != StreamId::MIN && id < deleted_max || id > last {
            return None;
        }
        if id == last {
            return Some(added);
        }
        let first = self.first_id();
        let missing = added.saturating_sub(self.len as u64);
        if deleted_max == StreamId::MIN || deleted_max < first {
            if id < first {
                return Some(missing);
            }
            if id == first {
                return Some(missing + 1);
            }
        }
        None
    }

    /// How many entries a group has still to read, if that can be said.
    pub fn lag(&self, group: &Group<'_>) -> Option<u64> {
        let StreamRow { deleted_max, added, .. } = self.own;
        if added == 0 || self.len == 0 {
            return Some(0);
        }
        let first = self.first_id();
        if group.last < first && deleted_max < first {
            return Some(self.len as u64);
        }
        match group.read.filter(|_| !self.has_gaps_behind(group.last)) {
            Some(read) => Some(added.wrapping_sub(read)),
            None => self.added_at(group.last).map(|read| added.wrapping_sub(read)),
        }
    }

    /// What a group has read behind the entry with this ID.
    pub(super) fn read_behind(&self, read: Option<u64>, last: StreamId, id: StreamId) -> Option<u64> {
        match read.filter(|_| last >= self.first_id() && !self.has_gaps_behind(last)) {
            Some(read) => Some(read.saturating_add(1)),
            None if self.own.added > 0 => self.added_at(id),
            None => read,
        }
    }

    /// Rows of its lines belong together: each line that is named is there, and what is pending is so with one consumer.
    ///
    /// # Panics
    /// If it is not so.
    pub fn check(&self) {
        assert_eq!(self.rows(0..self.len).filter(|row| row.key.line == ENTRIES).count(), self.len);
        let mut rows = self.len + 1;
        for group in self.groups().chain(self.removed_groups()) {
            rows += 1 + self.pending_count(&group);
            let mut pending = 0;
            assert!(group.line + 1 < self.own.next_line, "a line that was not given out");
            for consumer in self.consumers(&group) {
                assert!(consumer.line < self.own.next_line, "a line that was not given out");
                assert_eq!(self.consumer(&group, consumer.name), Some(consumer));
                for id in self.pending_with(&consumer, StreamId::MIN) {
                    let there = self.pending_at(&group, id).expect("it is pending in the group");
                    assert_eq!(there.consumer, consumer.line);
                    pending += 1;
                }
                rows += 2 + self.pending_with_count(&consumer);
            }
            assert_eq!(pending, self.pending_count(&group), "it is pending with a consumer");
        }
        rows += self.check_parts();
        assert_eq!(rows, self.all.len(), "rows that nobody has");
        assert!(self.seek(&RowKey::of_id(STREAM, StreamId::MIN)).1.is_some());
        if let Some(last) = self.len.checked_sub(1).and_then(|last| self.at(last)) {
            assert!(last.id <= self.own.last, "an entry behind the last ID");
        }
    }
}

impl Stream<'_> {
    /// Each value that lies apart has its parts, and there are no others; how many there are.
    fn check_parts(&self) -> usize {
        let mut parts = self.rows(self.line(PARTS, StreamId::MIN));
        let count = parts.len();
        for entry in self.entries(0..self.len) {
            let mut number = 0_u32;
            for (name, value) in entry.fields {
                assert!(!matches!(name, Element::Apart(_)), "a name lies in its leaf");
                let Element::Apart(apart) = value else { continue };
                assert_eq!(apart.label(), u64::from(number), "its first part is another");
                let mut left = apart.len();
                while left > 0 {
                    let part = parts.next().expect("a value without its parts");
                    assert_eq!((part.key.id, part.key.name), (entry.id, &number.to_be_bytes()[..]));
                    let Data::Part(bytes) = part.data else { unreachable!("a line of parts") };
                    assert_eq!(bytes.len(), left.min(PART_BYTES));
                    (left, number) = (left - bytes.len(), number + 1);
                }
            }
        }
        assert!(parts.next().is_none(), "a part of no value");
        count
    }
}

/// Places but for so many in front.
fn behind(places: Range<usize>, skipped: usize) -> Range<usize> {
    places.start.saturating_add(skipped).min(places.end)..places.end
}

/// The least ID that an entry may have.
const FIRST: StreamId = StreamId { ms: 0, seq: 1 };

fn entry_of(row: Row<'_>) -> Option<StreamEntry<'_>> {
    match row.data {
        Data::Entry { names, values, apart } => {
            Some(StreamEntry { id: row.key.id, fields: StreamFields::of(names, values, apart) })
        }
        _ => None,
    }
}

fn pending_of(row: &Row<'_>) -> Option<PendingEntry> {
    match row.data {
        Data::Pending { line, time, count } => {
            Some(PendingEntry { id: row.key.id, consumer: line, time, count })
        }
        _ => None,
    }
}

/// Iterator over rows, in order.
#[derive(Clone, Debug)]
pub(super) struct RowsAt<'g> {
    all: Collection<'g>,
    range: Range<usize>,
    here: Option<Rows<'g>>,
}

impl<'g> Iterator for RowsAt<'g> {
    type Item = Row<'g>;
    fn next(&mut self) -> Option<Row<'g>> {
        if self.range.is_empty() {
            return None;
        }
        let row = match self.here.as_mut().and_then(Iterator::next) {
            Some(row) => row,
            None => {
                let (leaf, there) = self.all.leaf_with(self.range.start);
                let mut rows = Rows::of(&leaf);
                while rows.i < self.range.start - there.start {
                    rows.next();
                }
                self.here.insert(rows).next()?
            }
        };
        self.range.start += 1;
        Some(row)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl ExactSizeIterator for RowsAt<'_> {}

/// Iterator over rows, the last first.
#[derive(Clone, Debug)]
struct RowsBack<'g> {
    all: Collection<'g>,
    range: Range<usize>,
    /// Those of one leaf that are left.
    here: Vec<Row<'g>>,
}

impl<'g> Iterator for RowsBack<'g> {
    type Item = Row<'g>;
    fn next(&mut self) -> Option<Row<'g>> {
        if self.range.is_empty() {
            return None;
        }
        if self.here.is_empty() {
            let (leaf, there) = self.all.leaf_with(self.range.end - 1);
            let from = self.range.start.max(there.start) - there.start;
            self.here.extend(Rows::of(&leaf).take(self.range.end - there.start).skip(from));
        }
        self.range.end -= 1;
        self.here.pop()
    }
}

/// Iterator over entries of a stream, in order.
#[derive(Clone, Debug)]
pub struct StreamEntries<'g>(RowsAt<'g>);

impl<'g> Iterator for StreamEntries<'g> {
    type Item = StreamEntry<'g>;
    fn next(&mut self) -> Option<StreamEntry<'g>> {
        self.0.next().and_then(entry_of)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for StreamEntries<'_> {}

/// Iterator over entries of a stream, the last first.
#[derive(Clone, Debug)]
pub struct StreamEntriesBack<'g>(RowsBack<'g>);

impl<'g> Iterator for StreamEntriesBack<'g> {
    type Item = StreamEntry<'g>;
    fn next(&mut self) -> Option<StreamEntry<'g>> {
        self.0.next().and_then(entry_of)
    }
}
