//! Rows of a stream, and how they lie in a leaf. `docs/internals/streams.md` has the picture.
//!
//! ```text
//! tag      7 spare │ 6 … 3 kind │ 2 another line │ 1 0 how the ID is said          1 × n, where others have codes
//! payload  line + varint? │ ID? │ what the row says
//! ```
//!
//! A row is said by what it differs from the one before it in, so a leaf is read from its front. Of the same rows there is
//! one form.

use super::super::build::{Builder, Full, LEAF_BYTES_MAX};
use super::super::element::{APART, Element, LongText, Packed, extent};
use super::super::leaf::Leaf;
use crate::class::CHUNK_BYTES_MAX;
use crate::collection::{Type, part_chunk_bytes};
use std::cmp::Ordering;

/// Which entry of a stream: when it was put, and which of those of that millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since 1970.
    pub ms: u64,
    /// Number among those of the same millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The least; no entry has it.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The greatest.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// The next one; none behind the last.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => self.ms.checked_add(1).map(|ms| StreamId { ms, seq: 0 }),
        }
    }

    /// The one before; none before the first.
    pub fn before(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => self.ms.checked_sub(1).map(|ms| StreamId { ms, seq: u64::MAX }),
        }
    }
}

/// The line of entries, that of the row of the stream itself, that of groups, that of groups that are removed, that of parts
/// of values that lie apart, and the first that is given out.
pub(in crate::collection) const ENTRIES: u32 = 0;
pub(in crate::collection) const STREAM: u32 = 1;
pub(in crate::collection) const GROUPS: u32 = 2;
pub(in crate::collection) const REMOVED: u32 = 3;
pub(in crate::collection) const PARTS: u32 = 4;
pub(in crate::collection) const FIRST_LINE: u32 = 5;
/// Bytes of a part, but for the last one of a value: with its place it is what a leaf has. Tests have small ones, and many.
pub(in crate::collection) const PART_BYTES: usize =
    if cfg!(any(test, feature = "schedule")) { 700 } else { LEAF_BYTES_MAX - ROW_BYTES };
/// What a row takes beside its strings in a leaf of its own, at most: heads, and an ID that is said at length. With an entry
/// there may be the row of the stream.
const ROW_BYTES: usize = 160;
// With pins it is a node.
const _: () = assert!(part_chunk_bytes(PART_BYTES + PART_ROW_BYTES) <= CHUNK_BYTES_MAX);
/// What a part takes beside its bytes, where it is the only row of a leaf, at most: a tag, its line, an ID, its number and how
/// long it is.
const PART_ROW_BYTES: usize = 1 + 1 + 20 + NUMBER_BYTES + 3;
/// Where an entry is too long, values of more bytes lie apart.
const VALUE_BYTES_MAX: usize = 1 << 10;
/// Bytes of the number of a part, which stands where names of other rows do.
const NUMBER_BYTES: usize = 4;
/// Lines from here on have one key.
const LINE_KEYED_MAX: u32 = 0x7fff;
const LOW_BITS: u32 = 48;

/// Where a row is among all of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::collection) struct RowKey<'a> {
    pub line: u32,
    /// 0-0 in lines of names.
    pub id: StreamId,
    /// Empty in lines of IDs. Of a part its number among those of its entry.
    pub name: &'a [u8],
}

impl<'a> RowKey<'a> {
    pub const STREAM: RowKey<'static> = RowKey::of_id(STREAM, StreamId::MIN);

    pub const fn of_id(line: u32, id: StreamId) -> RowKey<'static> {
        RowKey { line, id, name: &[] }
    }

    pub const fn of_name(line: u32, name: &'a [u8]) -> RowKey<'a> {
        RowKey { line, id: StreamId::MIN, name }
    }

    /// The key of a part of a value of the entry with this ID.
    pub const fn of_part(id: StreamId, number: &'a [u8; NUMBER_BYTES]) -> RowKey<'a> {
        RowKey { line: PARTS, id, name: number }
    }

    /// The key of inner nodes for it: of two rows the later one's is no less.
    pub fn word(&self) -> u64 {
        const LOW_MAX: u64 = (1 << LOW_BITS) - 1;
        if self.line == ENTRIES {
            return self.id.ms >> 1;
        }
        if self.line >= LINE_KEYED_MAX {
            return u64::MAX;
        }
        let low = if self.name.is_empty() || self.line == PARTS {
            self.id.ms.min(LOW_MAX)
        } else {
            let mut bytes = [0; 8];
            let first = self.name.len().min(6);
            bytes[2..2 + first].copy_from_slice(&self.name[..first]);
            u64::from_be_bytes(bytes)
        };
        1 << 63 | u64::from(self.line) << LOW_BITS | low
    }
}

/// What a stream knows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collection) struct StreamRow {
    pub last: StreamId,
    pub deleted_max: StreamId,
    pub added: u64,
    /// The line that is given out next.
    pub next_line: u32,
}

/// What it knows of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collection) struct GroupRow {
    /// The line of its consumers; the next is the line of what is pending.
    pub line: u32,
    pub last: StreamId,
    /// Entries that were read; none if that is not known.
    pub read: Option<u64>,
}

/// Parts of values of an entry that lie apart, with their numbers.
pub(in crate::collection) fn parts_of<'p>(
    values: impl Iterator<Item = &'p [u8]>,
) -> impl Iterator<Item = ([u8; NUMBER_BYTES], &'p [u8])> {
    let parts = values.flat_map(|value| value.chunks(PART_BYTES));
    (0_u32..).map(u32::to_be_bytes).zip(parts)
}

/// A row, but for where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collection) enum Data<'a> {
    /// Names of the fields, their number in front, and their values, as they lie in leaves; and bytes of those values that lie
    /// apart, which are named there.
    Entry {
        names: &'a [u8],
        values: &'a [u8],
        apart: usize,
    },
    /// Bytes of a value that lies apart.
    Part(&'a [u8]),
    Stream(StreamRow),
    Group(GroupRow),
    /// The line of a consumer, by its name.
    Line(u32),
    /// The consumer that a line belongs to, and when it was last seen and active.
    Consumer {
        name: &'a [u8],
        seen: u64,
        active: Option<u64>,
    },
    /// Delivered to the consumer of a line.
    Pending {
        line: u32,
        time: u64,
        count: u64,
    },
    /// The same in that line.
    Own,
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collection) struct Row<'a> {
    pub key: RowKey<'a>,
    pub data: Data<'a>,
}

const KIND_SHIFT: u32 = 3;
const OTHER_LINE: u8 = 1 << 2;
const ID_FORM: u8 = 3;
const KIND_PENDING: u8 = 4;
const KIND_OWN: u8 = 5;
const KIND_NAME: u8 = 6;
const KIND_STREAM: u8 = 7;
/// Added to the kind of an entry of which a value lies apart.
const KIND_APART: u8 = 8;
const KIND_APART_MAX: u8 = KIND_APART + 3;
const KIND_PART: u8 = 12;

/// Writes a number: seven bits a byte, the least first.
pub(in crate::collection) fn put_varint(to: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        to.push(n as u8 | 0x80);
        n >>= 7;
    }
    to.push(n as u8);
}

/// Reads one; none if there is none.
fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut n, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        n |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return n;
        }
        shift += 7;
    }
}

/// A difference that may be negative: small ones of both signs are small numbers.
fn zigzag(n: i64) -> u64 {
    (n << 1 ^ n >> 63) as u64
}

fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

/// Writes a string as it lies in leaves.
pub(in crate::collection) fn put_text(to: &mut Vec<u8>, text: &[u8]) {
    let packed = Packed::of(text);
    to.push(packed.code);
    let at = to.len();
    to.resize(at + packed.bytes(), 0);
    packed.write(&mut to[at..]);
}

/// The string at a place.
fn text<'a>(bytes: &'a [u8], at: &mut usize) -> Element<'a> {
    let code = bytes[*at];
    let (element, len) = Element::read(code, &bytes[*at + 1..]);
    *at += 1 + len;
    element
}

/// Passes over a string.
#[inline]
fn pass_text(bytes: &[u8], at: &mut usize) {
    let code = bytes[*at];
    *at += 1 + extent(code, &bytes[*at + 1..]).1;
}

/// Bytes of those of some strings that lie apart.
#[cold]
fn apart_bytes(strings: &[u8]) -> usize {
    let (mut at, mut bytes) = (0, 0);
    while at < strings.len() {
        if let Element::Apart(apart) = text(strings, &mut at) {
            bytes += apart.len();
        }
    }
    bytes
}

fn put_id(to: &mut Vec<u8>, id: StreamId) {
    to.extend_from_slice(&id.ms.to_le_bytes());
    to.extend_from_slice(&id.seq.to_le_bytes());
}

fn word(bytes: &[u8], at: &mut usize) -> u64 {
    let word = bytes[*at..*at + 8].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    *at += 8;
    word
}

fn id(bytes: &[u8], at: &mut usize) -> StreamId {
    StreamId { ms: word(bytes, at), seq: word(bytes, at) }
}

/// Bytes with their number in front.
fn bytes<'a>(bytes: &'a [u8], at: &mut usize) -> &'a [u8] {
    let len = varint(bytes, at) as usize;
    *at += len;
    &bytes[*at - len..*at]
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Names that entries behind may have: where they are in the payload, those that were had last first. So where an entry is
/// taken out, one behind it at most has to say its names again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Names {
    at: u32,
    end: u32,
    /// 0: there are none.
    fields: u32,
}

impl Names {
    fn of<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        &payload[self.at as usize..self.end as usize]
    }
}

/// What the next row differs from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::collection) struct Before {
    line: u32,
    id: StreamId,
    time: u64,
    names: [Names; 3],
}

impl Before {
    fn add_names(&mut self, names: Names) {
        self.names = [names, self.names[0], self.names[1]];
    }

    /// An entry has the names of this place.
    fn use_names(&mut self, i: usize) {
        self.names[..=i].rotate_right(1);
    }
}

/// Rows of a leaf, in order.
#[derive(Clone, Debug)]
pub(in crate::collection) struct Rows<'a> {
    tags: &'a [u8],
    payload: &'a [u8],
    /// The next row, and where it lies.
    pub i: usize,
    pub at: usize,
    before: Before,
}

impl<'a> Rows<'a> {
    pub fn of(leaf: &Leaf<'a>) -> Rows<'a> {
        Rows::new(leaf.codes, leaf.payload)
    }

    fn new(tags: &'a [u8], payload: &'a [u8]) -> Rows<'a> {
        Rows { tags, payload, i: 0, at: 0, before: Before::default() }
    }

    /// Where the row is that comes next, without what it says; none behind the last. It is not passed.
    pub fn peek(&self) -> Option<RowKey<'a>> {
        if self.i == self.tags.len() {
            return None;
        }
        let mut ahead = self.clone();
        Some(ahead.key())
    }

    /// Reads where a row is, up to what it says.
    #[inline]
    fn key(&mut self) -> RowKey<'a> {
        let tag = self.tags[self.i];
        let before = &mut self.before;
        if tag & OTHER_LINE != 0 {
            before.line += varint(self.payload, &mut self.at) as u32;
            before.id = StreamId::MIN;
        }
        let payload = self.payload;
        match tag >> KIND_SHIFT {
            KIND_NAME if !is_of_line(tag) => {
                let mut at = self.at;
                return RowKey::of_name(before.line, bytes(payload, &mut at));
            }
            KIND_NAME | KIND_STREAM => return RowKey::of_id(before.line, StreamId::MIN),
            _ => {}
        }
        let StreamId { ms, seq } = before.id;
        let id = match tag & ID_FORM {
            0 => StreamId { ms, seq: seq.wrapping_add(1) },
            1 => {
                self.at += 1;
                StreamId { ms: ms.wrapping_add(payload[self.at - 1].into()), seq: 0 }
            }
            2 => {
                self.at += 2;
                let more = u16::from_le_bytes([payload[self.at - 2], payload[self.at - 1]]);
                StreamId { ms: ms.wrapping_add(more.into()), seq: 0 }
            }
            _ => {
                let ms = ms.wrapping_add(varint(payload, &mut self.at));
                StreamId { ms, seq: varint(payload, &mut self.at) }
            }
        };
        before.id = id;
        // What is said of a part begins with its number.
        let name = if tag >> KIND_SHIFT == KIND_PART { self.at..self.at + NUMBER_BYTES } else { 0..0 };
        RowKey { line: before.line, id, name: &payload[name] }
    }
}

/// A row with a name says which consumer its line belongs to, and comes before all IDs of the line.
fn is_of_line(tag: u8) -> bool {
    tag & ID_FORM == ID_FORM
}

impl<'a> Iterator for Rows<'a> {
    type Item = Row<'a>;

    #[inline]
    fn next(&mut self) -> Option<Row<'a>> {
        let tag = *self.tags.get(self.i)?;
        let key = self.key();
        let (payload, at) = (self.payload, &mut self.at);
        let data = match tag >> KIND_SHIFT {
            kind @ (0..=3 | KIND_APART..=KIND_APART_MAX) => {
                let (kind, has_apart) = (kind & !KIND_APART, kind & KIND_APART != 0);
                if kind == 0 {
                    let start = *at;
                    let fields = varint(payload, at);
                    (0..fields).for_each(|_| pass_text(payload, at));
                    let (at, end) = (start as u32, *at as u32);
                    self.before.add_names(Names { at, end, fields: fields as u32 });
                } else {
                    self.before.use_names(usize::from(kind) - 1);
                }
                let names = self.before.names[0];
                let start = *at;
                (0..names.fields).for_each(|_| pass_text(payload, at));
                let values = &payload[start..*at];
                let apart = if has_apart { apart_bytes(values) } else { 0 };
                Data::Entry { names: names.of(payload), values, apart }
            }
            KIND_PART => {
                *at += NUMBER_BYTES;
                Data::Part(bytes(payload, at))
            }
            KIND_PENDING => {
                let line = varint(payload, at) as u32;
                let time = self.before.time.wrapping_add(unzigzag(varint(payload, at)) as u64);
                self.before.time = time;
                Data::Pending { line, time, count: varint(payload, at) }
            }
            KIND_OWN => Data::Own,
            KIND_NAME if is_of_line(tag) => {
                let name = bytes(payload, at);
                let seen = varint(payload, at);
                Data::Consumer { name, seen, active: varint(payload, at).checked_sub(1) }
            }
            KIND_NAME => {
                bytes(payload, at);
                let line = varint(payload, at) as u32;
                if key.line == GROUPS || key.line == REMOVED {
                    let last = id(payload, at);
                    Data::Group(GroupRow { line, last, read: varint(payload, at).checked_sub(1) })
                } else {
                    Data::Line(line)
                }
            }
            _ => {
                let (last, deleted_max) = (id(payload, at), id(payload, at));
                let added = word(payload, at);
                Data::Stream(StreamRow { last, deleted_max, added, next_line: varint(payload, at) as u32 })
            }
        };
        self.i += 1;
        Some(Row { key, data })
    }
}

/// Fields of an entry with their values.
#[derive(Clone, Debug)]
pub struct StreamFields<'a> {
    names: &'a [u8],
    values: &'a [u8],
    apart: usize,
    name_at: usize,
    value_at: usize,
    left: usize,
}

impl<'a> StreamFields<'a> {
    pub(in crate::collection) fn of(names: &'a [u8], values: &'a [u8], apart: usize) -> StreamFields<'a> {
        let mut name_at = 0;
        let left = varint(names, &mut name_at) as usize;
        StreamFields { names, values, apart, name_at, value_at: 0, left }
    }

    /// Bytes of all of them as they lie in a leaf, and of those values that lie apart.
    pub fn bytes(&self) -> usize {
        self.names.len() + self.values.len() + self.apart
    }

    /// A value of them lies apart: the stream has its parts ([`super::Stream::each_part`]).
    pub fn has_apart(&self) -> bool {
        self.apart > 0
    }
}

impl<'a> Iterator for StreamFields<'a> {
    type Item = (Element<'a>, Element<'a>);
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some((text(self.names, &mut self.name_at), text(self.values, &mut self.value_at)))
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for StreamFields<'_> {}

/// Fields of an entry that is to be put: names and values as they lie in a leaf.
#[derive(Debug, Default)]
pub struct NewFields {
    names: Vec<u8>,
    values: Vec<u8>,
    /// Bytes of values that lie apart.
    apart: usize,
}

impl NewFields {
    /// What is put is no longer than this, about.
    const BYTES_MAX: usize = LEAF_BYTES_MAX;

    /// Takes these fields with their values, in order.
    ///
    /// # Errors
    /// They are too long for any leaf.
    pub fn of<'p>(
        pairs: impl ExactSizeIterator<Item = (&'p [u8], &'p [u8])>,
    ) -> Result<NewFields, super::super::Declined> {
        let mut new = NewFields::default();
        new.set(pairs)?;
        Ok(new)
    }

    /// As [`NewFields::of`], in the same room.
    ///
    /// # Errors
    /// As there.
    pub fn set<'p>(
        &mut self,
        pairs: impl ExactSizeIterator<Item = (&'p [u8], &'p [u8])>,
    ) -> Result<(), super::super::Declined> {
        self.start(pairs.len())?;
        for (name, value) in pairs {
            if name.len().max(value.len()) > Self::BYTES_MAX
                || self.names.len() + self.values.len() > Self::BYTES_MAX
            {
                return Err(super::super::Declined::TooLarge);
            }
            put_text(&mut self.names, name);
            put_text(&mut self.values, value);
        }
        Ok(())
    }

    /// As [`NewFields::set`]; where they are too long for a leaf, long values are to lie apart, of so many bytes together at
    /// most, and come to `apart` in their order.
    ///
    /// # Errors
    /// They are too long; nothing has come there.
    pub fn set_long<'p>(
        &mut self,
        pairs: impl ExactSizeIterator<Item = (&'p [u8], &'p [u8])> + Clone,
        apart_max: usize,
        apart: &mut Vec<&'p [u8]>,
    ) -> Result<(), super::super::Declined> {
        apart.clear();
        if self.set(pairs.clone()).is_ok() && self.fits() {
            return Ok(());
        }
        // Those that are too many for any leaf are not looked at: of a request of 64 MiB these are millions.
        self.start(pairs.len())?;
        if !pairs.clone().any(|(_, value)| value.len() > VALUE_BYTES_MAX) {
            return Err(super::super::Declined::TooLarge);
        }
        let set = self.set_apart(pairs, apart_max, apart);
        if set.is_err() {
            apart.clear();
        }
        set
    }

    #[cold]
    fn set_apart<'p>(
        &mut self,
        pairs: impl ExactSizeIterator<Item = (&'p [u8], &'p [u8])>,
        apart_max: usize,
        apart: &mut Vec<&'p [u8]>,
    ) -> Result<(), super::super::Declined> {
        self.start(pairs.len())?;
        let mut parts = 0;
        for (name, value) in pairs {
            if name.len() > Self::BYTES_MAX || !self.fits() {
                return Err(super::super::Declined::TooLarge);
            }
            put_text(&mut self.names, name);
            if value.len() <= VALUE_BYTES_MAX {
                put_text(&mut self.values, value);
                continue;
            }
            self.apart += value.len();
            if self.apart > apart_max {
                return Err(super::super::Declined::TooLarge);
            }
            self.values.push(APART);
            self.values.extend_from_slice(&LongText::packed(value.len(), parts));
            parts += value.len().div_ceil(PART_BYTES) as u64;
            apart.push(value);
        }
        if self.fits() { Ok(()) } else { Err(super::super::Declined::TooLarge) }
    }

    /// Begins anew, with so many fields.
    fn start(&mut self, fields: usize) -> Result<(), super::super::Declined> {
        self.names.clear();
        self.values.clear();
        self.apart = 0;
        if 2 * fields > Self::BYTES_MAX {
            return Err(super::super::Declined::TooLarge);
        }
        put_varint(&mut self.names, fields as u64);
        Ok(())
    }

    pub(in crate::collection) fn data(&self) -> Data<'_> {
        Data::Entry { names: &self.names, values: &self.values, apart: self.apart }
    }

    /// The fields with their values.
    pub fn fields(&self) -> StreamFields<'_> {
        StreamFields::of(&self.names, &self.values, self.apart)
    }

    /// A leaf of a tree with nothing else has room for them.
    pub fn fits(&self) -> bool {
        self.names.len() + self.values.len() + ROW_BYTES <= Self::BYTES_MAX
    }
}

/// A row that is put in the place of what is there, or taken out.
#[derive(Clone, Copy, Debug)]
pub(in crate::collection) struct Op<'a> {
    pub key: RowKey<'a>,
    /// None: it is taken out.
    pub data: Option<Data<'a>>,
}

impl<'a> Op<'a> {
    /// Puts a part of a value of the entry with this ID.
    pub fn of_part(id: StreamId, number: &'a [u8; NUMBER_BYTES], part: &'a [u8]) -> Op<'a> {
        Op { key: RowKey::of_part(id, number), data: Some(Data::Part(part)) }
    }
}

/// Rows that a leaf is made of: they come one behind the other.
struct Writer<'b> {
    tags: &'b mut Vec<u8>,
    payload: &'b mut Vec<u8>,
    before: Before,
}

impl Writer<'_> {
    fn put(&mut self, row: &Row<'_>) {
        let Writer { tags, payload, before } = self;
        let mut tag = 0;
        if row.key.line != before.line {
            tag |= OTHER_LINE;
            put_varint(payload, u64::from(row.key.line - before.line));
            (before.line, before.id) = (row.key.line, StreamId::MIN);
        }
        if matches!(row.data, Data::Entry { .. } | Data::Part(_) | Data::Pending { .. } | Data::Own) {
            let (now, was) = (row.key.id, std::mem::replace(&mut before.id, row.key.id));
            let more = now.ms.wrapping_sub(was.ms);
            match more {
                0 if Some(now) == was.next() => {}
                1..=0xff if now.seq == 0 => {
                    tag |= 1;
                    payload.push(more as u8);
                }
                0x100..=0xffff if now.seq == 0 => {
                    tag |= 2;
                    payload.extend_from_slice(&(more as u16).to_le_bytes());
                }
                _ => {
                    tag |= 3;
                    put_varint(payload, more);
                    put_varint(payload, now.seq);
                }
            }
        }
        let kind = match row.data {
            Data::Entry { names, values, apart } => {
                let is_known = |known: &Names| known.fields > 0 && known.of(payload) == names;
                let known = before.names.iter().position(is_known);
                match known {
                    Some(known) => before.use_names(known),
                    None => {
                        let at = payload.len() as u32;
                        payload.extend_from_slice(names);
                        let fields = varint(names, &mut 0) as u32;
                        before.add_names(Names { at, end: payload.len() as u32, fields });
                    }
                }
                payload.extend_from_slice(values);
                known.map_or(0, |known| known as u8 + 1) | if apart > 0 { KIND_APART } else { 0 }
            }
            Data::Part(part) => {
                payload.extend_from_slice(row.key.name);
                put_bytes(payload, part);
                KIND_PART
            }
            Data::Pending { line, time, count } => {
                put_varint(payload, line.into());
                let was = std::mem::replace(&mut before.time, time);
                put_varint(payload, zigzag(time.wrapping_sub(was) as i64));
                put_varint(payload, count);
                KIND_PENDING
            }
            Data::Own => KIND_OWN,
            Data::Consumer { name, seen, active } => {
                tag |= ID_FORM;
                put_bytes(payload, name);
                put_varint(payload, seen);
                put_varint(payload, active.map_or(0, |at| at.saturating_add(1)));
                KIND_NAME
            }
            Data::Line(line) => {
                put_bytes(payload, row.key.name);
                put_varint(payload, line.into());
                KIND_NAME
            }
            Data::Group(GroupRow { line, last, read }) => {
                put_bytes(payload, row.key.name);
                put_varint(payload, line.into());
                put_id(payload, last);
                put_varint(payload, read.map_or(0, |read| read.saturating_add(1)));
                KIND_NAME
            }
            Data::Stream(StreamRow { last, deleted_max, added, next_line }) => {
                put_id(payload, last);
                put_id(payload, deleted_max);
                payload.extend_from_slice(&added.to_le_bytes());
                put_varint(payload, next_line.into());
                KIND_STREAM
            }
        };
        tags.push(tag | kind << KIND_SHIFT);
    }
}

/// Bytes of the strings that a row has, at most; with what they are said by.
fn row_bytes(row: &Row<'_>) -> usize {
    64 + row.key.name.len()
        + match row.data {
            Data::Entry { names, values, .. } => names.len() + values.len(),
            Data::Part(part) => part.len(),
            Data::Consumer { name, .. } => name.len(),
            Data::Stream(_) | Data::Group(_) | Data::Line(_) | Data::Pending { .. } | Data::Own => 0,
        }
}

impl Builder {
    /// Puts and takes out rows, which come in order, as long as `goes_on` says so of the next one; how many. They are at the
    /// end of their line, if `grows` says so then.
    ///
    /// # Errors
    /// [`Full`]: there is no room for the first one. Nothing is done then.
    pub(in crate::collection) fn merge_rows(
        &mut self,
        ops: &[Op<'_>],
        mut goes_on: impl FnMut(&Op<'_>, usize) -> bool,
        grows: &mut bool,
    ) -> Result<usize, Full> {
        self.set_rows_aside();
        let (old_tags, old_payload) =
            (std::mem::take(&mut self.spare_codes), std::mem::take(&mut self.spare));
        let mut there = Rows::new(&old_tags, &old_payload);
        let mut done = 0;
        let mut full = false;
        let first = ops.first().map(|op| op.key);
        while let (Some(first), Some(key)) = (first, there.peek())
            && key < first
        {
            there.next();
        }
        // What is before the first change stays as it is.
        self.codes.extend_from_slice(&old_tags[..there.i]);
        self.payload.extend_from_slice(&old_payload[..there.at]);
        let room = self.room;
        let mut before = there.before;
        *grows = false;
        while let Some(op) = ops.get(done) {
            while let Some(key) = there.peek()
                && key < op.key
            {
                let Some(row) = there.next() else { break };
                before = self.put_row(&row, before);
            }
            let bytes = self.loose_bytes() + (old_payload.len() - there.at);
            if done > 0 && !goes_on(op, bytes) {
                break;
            }
            if let Some(data) = op.data {
                let row = Row { key: op.key, data };
                if bytes + row_bytes(&row) > room {
                    full = done == 0;
                    break;
                }
                before = self.put_row(&row, before);
            }
            if there.peek() == Some(op.key) {
                there.next();
                *grows = false;
            } else {
                *grows = op.data.is_some() && there.peek().is_none_or(|next| next.line != op.key.line);
            }
            done += 1;
        }
        for row in there {
            before = self.put_row(&row, before);
        }
        if full {
            self.codes.clear();
            self.payload.clear();
            self.codes.extend_from_slice(&old_tags);
            self.payload.extend_from_slice(&old_payload);
        }
        (self.spare_codes, self.spare) = (old_tags, old_payload);
        if full { Err(Full) } else { Ok(done) }
    }

    /// It has one row, which is a part of a value.
    pub(in crate::collection) fn is_lone_part(&self) -> bool {
        self.kind() == Type::Stream && matches!(self.codes[..], [tag] if tag >> KIND_SHIFT == KIND_PART)
    }

    /// What there is goes to what is kept for that; it has no rows then.
    fn set_rows_aside(&mut self) {
        std::mem::swap(&mut self.codes, &mut self.spare_codes);
        std::mem::swap(&mut self.payload, &mut self.spare);
        self.codes.clear();
        self.payload.clear();
    }

    fn put_row(&mut self, row: &Row<'_>, before: Before) -> Before {
        let mut writer = Writer { tags: &mut self.codes, payload: &mut self.payload, before };
        writer.put(row);
        writer.before
    }

    /// What the next row would differ from.
    fn before_next(&self) -> Before {
        let mut rows = Rows::new(&self.codes, &self.payload);
        while rows.next().is_some() {}
        rows.before
    }

    /// Adds rows of a leaf to the end, as long as all are no longer than `bytes_max`, but one at least, and up to that of the
    /// stream itself, if `parts` it from what is behind; true if there are more.
    pub(in crate::collection) fn take_rows(
        &mut self,
        rows: &mut Rows<'_>,
        bytes_max: usize,
        parts: bool,
    ) -> bool {
        let mut before = self.before_next();
        loop {
            let ahead = rows.clone();
            let Some(row) = rows.next() else { return false };
            let (tags, bytes) = (self.codes.len(), self.payload.len());
            before = self.put_row(&row, before);
            if tags > 0 && self.loose_bytes() > bytes_max {
                self.codes.truncate(tags);
                self.payload.truncate(bytes);
                *rows = ahead;
                return true;
            }
            if parts && row.key.line == STREAM {
                return rows.i < rows.tags.len();
            }
        }
    }

    /// Adds all rows of a leaf, which come behind those that there are.
    pub(in crate::collection) fn append_rows(&mut self, leaf: &Leaf<'_>) {
        let mut before = self.before_next();
        for row in Rows::of(leaf) {
            before = self.put_row(&row, before);
        }
    }

    /// Adds all rows of a leaf in front of those that there are.
    pub(in crate::collection) fn prepend_rows(&mut self, leaf: &Leaf<'_>) {
        self.set_rows_aside();
        self.codes.extend_from_slice(leaf.codes);
        self.payload.extend_from_slice(leaf.payload);
        let (tags, payload) = (std::mem::take(&mut self.spare_codes), std::mem::take(&mut self.spare));
        let mut before = self.before_next();
        for row in Rows::new(&tags, &payload) {
            before = self.put_row(&row, before);
        }
        (self.spare_codes, self.spare) = (tags, payload);
    }

    /// Takes these rows out.
    pub(in crate::collection) fn remove_rows(&mut self, range: std::ops::Range<usize>) {
        self.set_rows_aside();
        let (tags, payload) = (std::mem::take(&mut self.spare_codes), std::mem::take(&mut self.spare));
        let mut rows = Rows::new(&tags, &payload);
        while rows.i < range.start {
            rows.next();
        }
        self.codes.extend_from_slice(&tags[..rows.i]);
        self.payload.extend_from_slice(&payload[..rows.at]);
        let mut before = rows.before;
        while rows.i < range.end {
            rows.next();
        }
        for row in rows {
            before = self.put_row(&row, before);
        }
        (self.spare_codes, self.spare) = (tags, payload);
    }
}

/// Where the first row of a leaf is.
pub(in crate::collection) fn first_key<'a>(leaf: &Leaf<'a>) -> RowKey<'a> {
    Rows::of(leaf).peek().expect("no leaf is empty")
}

/// How many rows of a leaf come before one; and that one, if it is there.
pub(in crate::collection) fn seek<'a>(leaf: &Leaf<'a>, key: &RowKey<'_>) -> (usize, Option<Row<'a>>) {
    let mut rows = Rows::of(leaf);
    while let Some(there) = rows.peek() {
        match there.cmp(key) {
            Ordering::Less => drop(rows.next()),
            Ordering::Equal => return (rows.i, rows.next()),
            Ordering::Greater => break,
        }
    }
    (rows.i, None)
}

/// Rows ascend, each in its line, and lie as they are written.
///
/// # Panics
/// If it is not so.
pub(in crate::collection) fn check(leaf: &Leaf<'_>) {
    let mut again = Builder::default();
    again.start(Type::Stream);
    let mut before = Before::default();
    let mut last: Option<RowKey<'_>> = None;
    for row in Rows::of(leaf) {
        assert!(last.is_none_or(|last| last < row.key && last.word() <= row.key.word()), "rows ascend");
        let right = match row.data {
            Data::Entry { .. } => row.key.line == ENTRIES && row.key.id > StreamId::MIN,
            Data::Part(part) => row.key.line == PARTS && (1..=PART_BYTES).contains(&part.len()),
            Data::Stream(_) => row.key == RowKey::STREAM,
            Data::Group(_) => [GROUPS, REMOVED].contains(&row.key.line),
            Data::Line(_) => row.key.line >= FIRST_LINE,
            Data::Consumer { .. } => row.key.line >= FIRST_LINE && row.key.id == StreamId::MIN,
            Data::Pending { .. } | Data::Own => row.key.line >= FIRST_LINE && row.key.id > StreamId::MIN,
        };
        assert!(right, "a row in another line than it belongs to: {row:?}");
        last = Some(row.key);
        before = again.put_row(&row, before);
    }
    assert_eq!(
        (again.leaf().codes, again.leaf().payload),
        (leaf.codes, leaf.payload),
        "rows in their one form"
    );
}
