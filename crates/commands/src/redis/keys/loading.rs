//! A collection that RESTORE reads from its payload, some entries at a time, in all forms that Redis up to 8.0 and Valkey up to 9
//! write or still read.
//!
//! ```text
//! type 1 │ how many │ entries                                  1 list, 2 set, 4 hash, 5 sorted set; 3 sorted set, scores as text
//! type 1 │ a string: all of it, packed                         9 10 11 12 13, 16 17 20
//! type 1 │ how many │ strings: packed, some of it each         14 list
//! type 1 │ how many │ 1 a string: an element, or 2 packed …    18 list
//! type 1 │ …                                                   15 19 21 stream: `collections/stream/loading.rs`
//!
//! hashes in which a field expires, at a time in milliseconds
//! 24   the first time 8 │ how many │ 0 for never, or 1 + what it is behind the first; field, value …       Redis
//! 25   the first time 8 │ a string: field, value, time, 0 for never …, packed                              Redis
//! 22   how many │ field, value, time 8, −1 for never …                                                     Valkey
//! ```
//!
//! The payload is not trusted: its lengths, counts, ends and repeated names are checked as they are read. Memory is charged
//! before it is allocated. What is made lies in the store, where no client sees it until it is whole.

use larder_protocol::resp::{parse_double, write_integer};
use larder_store::{BulkLoad, Key, Made, Millis, Type};

use crate::core::work::copying_ns;
use crate::redis::call::Call;
use crate::redis::collections::making::{
    ENTRIES_AT_ONCE, SMALL_BYTES, entry_ns, finish, making_ns, place_ns,
};
use crate::redis::collections::payload::{
    TIME_BYTES, TYPE_HASH, TYPE_LIST, TYPE_SET, TYPE_SORTED_SET, TYPE_TIMED_HASH, TYPE_VALKEY_HASH,
};
use crate::redis::collections::stream::loading::{StreamLoading, weight as stream_weight};
use crate::redis::collections::stream::payload::TYPES_STREAM;
use crate::redis::copied::Copied;
use crate::redis::fail::Fail;
use crate::redis::heap::Heap;
use crate::redis::serialize::packings::{Cursor, Element, Packed, Packing};
use crate::redis::serialize::{BAD_FORMAT, FOOTER_BYTES, Node, Reader, TYPE_STRING, checking_ns};
use crate::redis::steps::job::LEAVES;

/// The latest time at which a field may expire.
const TIME_MAX: u64 = (1 << 48) - 1;
/// Bytes of a field's name, at most. Another element that is longer is put in by itself, unless it is packed.
const ELEMENT_BYTES_MAX: usize = 16 << 10;
/// Bytes of entries at which a batch of them is put in.
const BYTES_AT_ONCE: usize = 16 << 10;
/// Bytes of a batch while it is read, at most: vectors grow by doubling.
const BATCH_BYTES: usize = 2 * (BYTES_AT_ONCE + 2 * ELEMENT_BYTES_MAX + ENTRIES_AT_ONCE * 32);
/// Bytes that may be kept for a moment without a charge.
const UNCHARGED_BYTES_MAX: usize = 64 << 10;
/// Bytes of the ID in front of a node of a stream.
const STREAM_ID_BYTES: usize = 16;
/// Longer payloads of streams are weighed without a look at their nodes: they weigh 20 ms as they are.
const NODES_BYTES_MAX: usize = 256 << 10;

/// How a payload keeps its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One by one.
    Plain,
    /// One by one, with scores as text.
    ScoreTexts,
    /// Packed, all of them or some at a time.
    Packed(Packing),
    /// Some packed together, or one by itself.
    Contained,
    /// One by one, each with its time in front.
    Timed,
    /// One by one, each with its time behind it.
    TimedBehind,
    /// Packed, each with its time behind it.
    TimedPacked,
}

impl Form {
    /// Whether the entries are not packed.
    fn is_plain(self) -> bool {
        matches!(self, Form::Plain | Form::ScoreTexts | Form::Timed | Form::TimedBehind)
    }

    /// Whether the time of the first field that expires stands in front.
    fn has_time(self) -> bool {
        matches!(self, Form::Timed | Form::TimedPacked)
    }
}

/// Reads a payload's type byte: the value's type, the form of its entries, and whether a count follows.
fn form_of(kind: u8) -> Result<(Type, Form, bool), Fail> {
    Ok(match kind {
        TYPE_LIST => (Type::List, Form::Plain, true),
        TYPE_SET => (Type::Set, Form::Plain, true),
        3 => (Type::SortedSet, Form::ScoreTexts, true),
        TYPE_HASH => (Type::Hash, Form::Plain, true),
        TYPE_SORTED_SET => (Type::SortedSet, Form::Plain, true),
        9 => (Type::Hash, Form::Packed(Packing::Zipmap), false),
        10 => (Type::List, Form::Packed(Packing::Ziplist), false),
        11 => (Type::Set, Form::Packed(Packing::Intset), false),
        12 => (Type::SortedSet, Form::Packed(Packing::Ziplist), false),
        13 => (Type::Hash, Form::Packed(Packing::Ziplist), false),
        14 => (Type::List, Form::Packed(Packing::Ziplist), true),
        16 => (Type::Hash, Form::Packed(Packing::Listpack), false),
        17 => (Type::SortedSet, Form::Packed(Packing::Listpack), false),
        18 => (Type::List, Form::Contained, true),
        20 => (Type::Set, Form::Packed(Packing::Listpack), false),
        TYPE_VALKEY_HASH => (Type::Hash, Form::TimedBehind, true),
        TYPE_TIMED_HASH => (Type::Hash, Form::Timed, true),
        25 => (Type::Hash, Form::TimedPacked, false),
        _ => return Err(BAD_FORMAT),
    })
}

/// Whether the payload is not that of a string.
pub(crate) fn is_collection(payload: &[u8]) -> bool {
    payload.first().is_some_and(|kind| *kind != TYPE_STRING)
}

/// Upper bounds for a payload, by what it says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weight {
    pub entries: u64,
    /// Bytes of the payload, unpacked.
    pub bytes: u64,
    pub ns: u64,
}

/// Weighs a payload of a collection. One that is broken weighs what its bytes do.
pub(crate) fn weigh(payload: &[u8]) -> Weight {
    let bytes = payload.len() as u64;
    let mut weight = Weight { entries: 0, bytes, ns: 0 };
    let Some(body) = payload.len().checked_sub(FOOTER_BYTES).map(|end| &payload[..end]) else {
        return weight;
    };
    let Some((&[first], rest)) = body.split_first_chunk() else { return weight };
    if TYPES_STREAM.contains(&first) {
        let unpacked = bytes + if payload.len() > NODES_BYTES_MAX { 0 } else { packed_away(rest) };
        let (entries, ns) = stream_weight(unpacked);
        return Weight { entries, bytes: unpacked, ns: ns.saturating_add(checking_ns(bytes)) };
    }
    let Ok((kind, form, counts)) = form_of(first) else { return weight };
    let mut reader = Reader(rest);
    if form.has_time() && reader.take(TIME_BYTES).is_none() {
        return weight;
    }
    let mut left = if counts { reader.length().unwrap_or(0) as u64 } else { 1 };
    if form.is_plain() {
        // An entry takes a byte or more.
        weight.entries = left.min(bytes);
    } else {
        while left > 0 && !reader.0.is_empty() {
            left -= 1;
            let packing = match form {
                Form::Contained => match reader.length() {
                    Some(2) => Some(Packing::Listpack),
                    _ => None,
                },
                Form::Packed(packing) => Some(packing),
                Form::TimedPacked => Some(Packing::Listpack),
                Form::Plain | Form::ScoreTexts | Form::Timed | Form::TimedBehind => None,
            };
            let Some(node) = Node::read(&mut reader, rest.len()) else { break };
            weight.bytes += node.unpacked_bytes() as u64;
            weight.entries += match (packing, &node) {
                (None, _) => 1,
                (Some(packing), Node::Here { at, end }) => {
                    let bytes = &rest[*at..*end];
                    Cursor::new(packing, bytes).map_or(0, |cursor| cursor.entries_max(bytes.len()))
                }
                // An entry takes two bytes or more.
                (Some(_), Node::Packed { wanted, .. }) => *wanted as u64 / 2,
            };
        }
    }
    let all = making_ns(kind, weight.bytes > SMALL_BYTES, weight.entries);
    weight.ns = (checking_ns(bytes) + 2 * weight.bytes).saturating_add(all);
    weight
}

/// Bytes that unpacking adds to the nodes of a stream: up to 88 for one, as Redis packs them.
fn packed_away(body: &[u8]) -> u64 {
    let (mut reader, mut bytes) = (Reader(body), 0);
    for _ in 0..reader.length().unwrap_or(0) {
        // Each node has an ID in front.
        let id = Node::read(&mut reader, body.len()).filter(|id| id.len() == STREAM_ID_BYTES);
        let Some(node) = id.and_then(|_| Node::read(&mut reader, body.len())) else { break };
        if let Node::Packed { at, end, wanted, .. } = node {
            bytes += wanted.saturating_sub(end - at) as u64;
        }
    }
    bytes
}

/// Bytes of the longest element in a payload of so many unpacked bytes, at most. A member of a sorted set has at most
/// `scored_max`.
pub(crate) fn longest(payload: &[u8], bytes: u64, scored_max: u64) -> u64 {
    match payload.first().map(|kind| form_of(*kind)) {
        Some(Ok((Type::SortedSet, ..))) => bytes.min(scored_max),
        // Payloads of streams have no form here.
        Some(Ok((Type::List | Type::Hash | Type::Set | Type::Stream, ..)) | Err(_)) | None => bytes,
    }
}

/// A string of packed entries that is being read.
#[derive(Debug)]
struct Reading {
    node: Node,
    packing: Packing,
    /// `None` until the string is unpacked.
    cursor: Option<Cursor>,
}

/// An element or a field's value that is put in by itself, being read.
#[derive(Debug)]
struct Whole {
    node: Node,
    /// For a value: its field, and when that expires; 0 for never.
    field: Option<(Vec<u8>, Millis)>,
    /// For a member of a sorted set: its score.
    score: f64,
    /// It is unpacked.
    read: bool,
}

/// Entries that were read and not put in yet.
#[derive(Debug, Default)]
struct Batch {
    /// The texts of the entries; of a hash fields and values in turn.
    texts: Copied,
    scores: Vec<f64>,
    /// For a hash in which fields expire: when each does; 0 for never.
    times: Vec<Millis>,
}

impl Batch {
    fn push(&mut self, text: Packed<'_>, bytes_max: usize) -> Result<(), Fail> {
        match text {
            Packed::Text(text) if text.len() > bytes_max => return Err(Fail::COLLECTION_TOO_LARGE),
            Packed::Text(text) => self.texts.push(text),
            Packed::Number(n) => {
                let mut room = [0; 20];
                let digits = write_integer(&mut room, n);
                self.texts.push(&room[..digits]);
            }
        }
        Ok(())
    }

    /// How many entries it has.
    fn len(&self, kind: Type) -> usize {
        self.texts.len() / if kind == Type::Hash { 2 } else { 1 }
    }

    /// The entries without fields that have expired.
    fn made(&self, kind: Type, now: Millis) -> impl Iterator<Item = Made<'_>> {
        let time = |i: usize| self.times.get(i).copied().unwrap_or(0);
        let live = move |i: &usize| time(*i) == 0 || time(*i) > now;
        (0..self.len(kind)).filter(live).map(move |i| match kind {
            Type::Hash => {
                let (name, value) = (self.texts.at(2 * i), self.texts.at(2 * i + 1));
                Made { name, value, score: 0.0, expires_at: time(i) }
            }
            Type::SortedSet => {
                Made { name: self.texts.at(i), value: &[], score: self.scores[i], expires_at: 0 }
            }
            Type::Set | Type::List | Type::Stream => {
                Made { name: self.texts.at(i), value: &[], score: 0.0, expires_at: 0 }
            }
        })
    }
}

/// Parses a score.
fn score_of(text: &[u8]) -> Result<f64, Fail> {
    parse_double(text).filter(|score| !score.is_nan()).ok_or(BAD_FORMAT)
}

/// Checks the time at which a field expires.
fn time_of(at: i64) -> Result<Millis, Fail> {
    let at = Millis::try_from(at).ok().filter(|at| (1..=TIME_MAX).contains(at));
    at.ok_or(BAD_FORMAT)
}

/// Reads the time of a field in Valkey's form, where −1 is never: 0 for never.
fn time_or_never(reader: &mut Reader<'_>) -> Result<Millis, Fail> {
    let at = i64::from_le_bytes(reader.array().ok_or(BAD_FORMAT)?);
    if at == -1 { Ok(0) } else { time_of(at) }
}

/// Checks that a string of so many bytes may be unpacked at once.
fn short(bytes: usize) -> Result<(), Fail> {
    if bytes > ELEMENT_BYTES_MAX { Err(Fail::COLLECTION_TOO_LARGE) } else { Ok(()) }
}

/// Reads the next string if it is to be put in by itself.
fn read_long(call: &Call<'_, '_, '_>, reader: &mut Reader<'_>, body: &[u8]) -> Result<Option<Node>, Fail> {
    // A short one may be a number, which is not a string of its own.
    let mut ahead = Reader(reader.0);
    let node = Node::read(&mut ahead, body.len()).filter(|node| node.len() > ELEMENT_BYTES_MAX);
    let Some(node) = node else { return Ok(None) };
    if node.len() > call.cx.guard.store().element_bytes_max() {
        return Err(Fail::COLLECTION_TOO_LARGE);
    }
    *reader = ahead;
    Ok(Some(node))
}

/// A collection that is being loaded from a payload.
#[derive(Debug)]
pub(crate) struct Loading {
    kind: Type,
    form: Form,
    /// The place of the first byte that is not read.
    at: usize,
    /// When the first field expires, according to the payload.
    soonest: Millis,
    /// Entries, or strings of packed ones, that are left.
    left: u64,
    reading: Option<Reading>,
    whole: Option<Whole>,
    batch: Batch,
    load: BulkLoad,
    held: Heap,
    /// The loading of a stream, which does all of it.
    stream: Option<Box<StreamLoading>>,
}

impl Loading {
    /// Begins with a payload, without its footer.
    ///
    /// # Errors
    /// It is not of a collection that can be restored, or of an empty one.
    pub fn new(call: &Call<'_, '_, '_>, body: &[u8]) -> Result<Loading, Fail> {
        let (&first, rest) = body.split_first().ok_or(BAD_FORMAT)?;
        if TYPES_STREAM.contains(&first) {
            return Ok(Loading {
                kind: Type::Stream,
                form: Form::Plain,
                at: 0,
                soonest: 0,
                left: 0,
                reading: None,
                whole: None,
                batch: Batch::default(),
                load: BulkLoad::new(call.cx.guard.store(), Type::Stream),
                held: Heap::none(call),
                stream: Some(Box::new(StreamLoading::new(call, body)?)),
            });
        }
        let (kind, form, counts) = form_of(first)?;
        let mut reader = Reader(rest);
        let soonest = if form.has_time() { reader.array().ok_or(BAD_FORMAT)? } else { [0; TIME_BYTES] };
        let left = if counts { reader.length().ok_or(BAD_FORMAT)? as u64 } else { 1 };
        if left == 0 {
            return Err(BAD_FORMAT);
        }
        Ok(Loading {
            kind,
            form,
            at: body.len() - reader.0.len(),
            soonest: Millis::from_le_bytes(soonest),
            left,
            reading: None,
            whole: None,
            batch: Batch::default(),
            load: BulkLoad::new(call.cx.guard.store(), kind),
            held: Heap::none(call),
            stream: None,
        })
    }

    /// Reads some more of the payload, and adds that work to `ns`, up to about `ns_max`; true when all of it is read and may be
    /// published. If memory for more is on its way, the step ends behind the entries that were put in.
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
        if let Some(stream) = &mut self.stream {
            return stream.step(call, key, body, (ns, ns_max));
        }
        loop {
            let each = entry_ns(self.kind, self.load.bytes() > 0);
            let most = (ns_max.saturating_sub(*ns) / each).clamp(1, ENTRIES_AT_ONCE as u64) as usize;
            let mut all = false;
            while !all
                && !self.is_whole()
                && self.batch.len(self.kind) < most
                && self.batch.texts.bytes() < BYTES_AT_ONCE
                && *ns < ns_max
            {
                all = self.read(call, body, ns)?;
            }
            let entries = self.batch.len(self.kind);
            if entries > 0 {
                *ns += each * entries as u64 + copying_ns(self.batch.texts.bytes() as u64);
                let now = call.cx.now();
                call.cx.guard.load_fill(&mut self.load, key, self.batch.made(self.kind, now))?;
                self.batch.texts.clear();
                self.batch.scores.clear();
                self.batch.times.clear();
                self.charge(call)?;
            }
            self.put_whole(call, key, body, (ns, each))?;
            if all {
                break;
            }
            // The step looked for memory of its first leaves before it began.
            if *ns >= ns_max || entries > 0 && call.finds_none(LEAVES) {
                return Ok(false);
            }
        }
        if self.load.is_empty() {
            return Err(BAD_FORMAT);
        }
        finish(call, &mut self.load, key, (ns, ns_max))
    }

    /// What was loaded.
    pub fn into_load(self) -> BulkLoad {
        self.stream.and_then(|stream| stream.into_load()).unwrap_or(self.load)
    }

    /// Whether an element that is put in by itself is read.
    fn is_whole(&self) -> bool {
        matches!(self.whole, Some(Whole { read: true, .. }))
    }

    /// Puts in an element that goes in by itself, if one is read.
    fn put_whole(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        key: &Key<'_>,
        body: &[u8],
        (ns, each): (&mut u64, u64),
    ) -> Result<(), Fail> {
        if !self.is_whole() {
            return Ok(());
        }
        let Some(Whole { node, field, score, .. }) = self.whole.take() else { return Ok(()) };
        let (text, now) = (node.bytes(body), call.cx.now());
        *ns += each + copying_ns(text.len() as u64) + place_ns(self.kind, text);
        let made = match &field {
            None => Some(Made { name: text, value: &[], score, expires_at: 0 }),
            // The field has expired.
            Some((_, at)) if *at != 0 && *at <= now => None,
            Some((name, at)) => Some(Made { name, value: text, score: 0.0, expires_at: *at }),
        };
        call.cx.guard.load_fill(&mut self.load, key, made.into_iter())?;
        drop(node);
        self.charge(call)
    }

    /// Charges the heap that the loading takes. Short elements are there for a moment, or are charged with long ones.
    fn charge(&mut self, call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
        let whole = self.whole.as_ref().map(|whole| &whole.node);
        let node = self.reading.as_ref().map(|reading| &reading.node).or(whole);
        let texts = match 2 * self.batch.texts.bytes() {
            few if few <= BATCH_BYTES => 0,
            many => many,
        };
        let bytes = self.load.heap_bytes() + node.map_or(0, Node::unpacked_bytes) + texts;
        self.held.set(call, if bytes <= UNCHARGED_BYTES_MAX { 0 } else { bytes + BATCH_BYTES })
    }

    /// Reads the next part; true if there was none.
    fn read(&mut self, call: &mut Call<'_, '_, '_>, body: &[u8], ns: &mut u64) -> Result<bool, Fail> {
        if let Some(whole) = &mut self.whole {
            whole.read = whole.node.unpack(body, ns)?;
            return Ok(false);
        }
        if self.reading.is_some() {
            self.read_packed(call, body, ns)?;
            return Ok(false);
        }
        if self.left == 0 {
            return if self.at == body.len() { Ok(true) } else { Err(BAD_FORMAT) };
        }
        self.left -= 1;
        let mut reader = Reader(&body[self.at..]);
        let packing = match self.form {
            Form::Plain | Form::ScoreTexts | Form::Timed | Form::TimedBehind => None,
            Form::Packed(packing) => Some(packing),
            Form::TimedPacked => Some(Packing::Listpack),
            Form::Contained => match reader.length() {
                Some(1) => None,
                Some(2) => Some(Packing::Listpack),
                _ => return Err(BAD_FORMAT),
            },
        };
        match packing {
            None if matches!(self.kind, Type::List | Type::Set) => {
                self.read_element(call, &mut reader, body)?;
            }
            None if self.kind == Type::Hash => self.read_field(call, &mut reader, body)?,
            None if self.kind == Type::SortedSet => self.read_member(call, &mut reader, body)?,
            None => self.read_plain(&mut reader)?,
            Some(packing) => {
                let node = Node::read(&mut reader, body.len()).ok_or(BAD_FORMAT)?;
                let cursor = match &node {
                    Node::Here { at, end } => Some(Cursor::new(packing, &body[*at..*end]).ok_or(BAD_FORMAT)?),
                    Node::Packed { .. } => None,
                };
                self.reading = Some(Reading { node, packing, cursor });
                // Charged before anything is unpacked.
                self.charge(call)?;
            }
        }
        self.at = body.len() - reader.0.len();
        Ok(false)
    }

    /// Reads an element of a list or a member of a set that is not packed.
    fn read_element(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        reader: &mut Reader<'_>,
        body: &[u8],
    ) -> Result<(), Fail> {
        let Some(node) = read_long(call, reader, body)? else { return self.read_plain(reader) };
        self.whole = Some(Whole { node, field: None, score: 0.0, read: false });
        // Charged before anything is unpacked.
        self.charge(call)
    }

    /// Reads a field and value that are not packed.
    fn read_field(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        reader: &mut Reader<'_>,
        body: &[u8],
    ) -> Result<(), Fail> {
        let mut ahead = Reader(reader.0);
        let mut at = if self.form == Form::Timed { self.time_behind(&mut ahead)? } else { 0 };
        let name = ahead.string(&mut short)?;
        let Some(node) = read_long(call, &mut ahead, body)? else { return self.read_plain(reader) };
        if name.len() > ELEMENT_BYTES_MAX {
            return Err(Fail::COLLECTION_TOO_LARGE);
        }
        if self.form == Form::TimedBehind {
            at = time_or_never(&mut ahead)?;
        }
        let field = Some((name.into_owned(), at));
        *reader = ahead;
        self.whole = Some(Whole { node, field, score: 0.0, read: false });
        // Charged before anything is unpacked.
        self.charge(call)
    }

    /// Reads a member of a sorted set and its score, which are not packed.
    fn read_member(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        reader: &mut Reader<'_>,
        body: &[u8],
    ) -> Result<(), Fail> {
        let mut ahead = Reader(reader.0);
        let Some(node) = read_long(call, &mut ahead, body)? else { return self.read_plain(reader) };
        if node.len() > call.cx.guard.store().scored_bytes_max() {
            return Err(Fail::COLLECTION_TOO_LARGE);
        }
        let score = self.read_score(&mut ahead)?;
        *reader = ahead;
        self.whole = Some(Whole { node, field: None, score, read: false });
        // Charged before anything is unpacked.
        self.charge(call)
    }

    /// Reads the score behind a member.
    fn read_score(&self, reader: &mut Reader<'_>) -> Result<f64, Fail> {
        let score = match self.form {
            Form::ScoreTexts => match reader.array::<1>().ok_or(BAD_FORMAT)?[0] {
                253 => f64::NAN,
                254 => f64::INFINITY,
                255 => f64::NEG_INFINITY,
                bytes => score_of(reader.take(bytes.into()).ok_or(BAD_FORMAT)?)?,
            },
            Form::Plain
            | Form::Packed(_)
            | Form::Contained
            | Form::Timed
            | Form::TimedBehind
            | Form::TimedPacked => f64::from_le_bytes(reader.array().ok_or(BAD_FORMAT)?),
        };
        if score.is_nan() { Err(BAD_FORMAT) } else { Ok(score) }
    }

    /// Reads a field's time, kept as its distance from the first one: when the field expires, 0 for never.
    fn time_behind(&self, reader: &mut Reader<'_>) -> Result<Millis, Fail> {
        let at = match reader.length().ok_or(BAD_FORMAT)? as u64 {
            0 => Some(0),
            behind => self.soonest.checked_add(behind - 1).filter(|at| (1..=TIME_MAX).contains(at)),
        };
        at.ok_or(BAD_FORMAT)
    }

    /// Reads a short entry that is not packed.
    fn read_plain(&mut self, reader: &mut Reader<'_>) -> Result<(), Fail> {
        if self.form == Form::Timed {
            let at = self.time_behind(reader)?;
            self.batch.times.push(at);
        }
        let mut string = |reader: &mut Reader<'_>| {
            let text = reader.string(&mut short)?;
            self.batch.push(Packed::Text(&text), ELEMENT_BYTES_MAX)
        };
        string(reader)?;
        match self.kind {
            Type::Hash => string(reader)?,
            Type::SortedSet => {
                let score = self.read_score(reader)?;
                self.batch.scores.push(score);
            }
            Type::Set | Type::List | Type::Stream => {}
        }
        if self.form == Form::TimedBehind {
            self.batch.times.push(time_or_never(reader)?);
        }
        Ok(())
    }

    /// Unpacks a part of the string of packed entries, or reads one of them.
    fn read_packed(&mut self, call: &mut Call<'_, '_, '_>, body: &[u8], ns: &mut u64) -> Result<(), Fail> {
        let most = call.cx.guard.store().element_bytes_max();
        let bytes_max = match self.kind {
            Type::List | Type::Set => most,
            Type::SortedSet => call.cx.guard.store().scored_bytes_max(),
            Type::Hash | Type::Stream => ELEMENT_BYTES_MAX,
        };
        let Some(Reading { node, packing, cursor }) = &mut self.reading else { return Ok(()) };
        let Some(cursor) = cursor else {
            if !node.unpack(body, ns)? {
                return Ok(());
            }
            *cursor = Some(Cursor::new(*packing, node.bytes(body)).ok_or(BAD_FORMAT)?);
            return Ok(());
        };
        let bytes = node.bytes(body);
        let Element::Entry(name) = cursor.next(bytes).ok_or(BAD_FORMAT)? else {
            self.reading = None;
            return Ok(());
        };
        self.batch.push(name, bytes_max)?;
        let has_long_name = matches!(name, Packed::Text(text) if text.len() > ELEMENT_BYTES_MAX);
        if matches!(self.kind, Type::Set | Type::List) {
            return if has_long_name { self.charge(call) } else { Ok(()) };
        }
        let Element::Entry(value) = cursor.next(bytes).ok_or(BAD_FORMAT)? else { return Err(BAD_FORMAT) };
        match (self.kind, value) {
            (Type::SortedSet, Packed::Number(n)) => self.batch.scores.push(n as f64),
            (Type::SortedSet, Packed::Text(text)) => self.batch.scores.push(score_of(text)?),
            (_, value) => self.batch.push(value, most)?,
        }
        let is_long = has_long_name || matches!(value, Packed::Text(text) if text.len() > ELEMENT_BYTES_MAX);
        if self.form == Form::TimedPacked {
            let Element::Entry(Packed::Number(at)) = cursor.next(bytes).ok_or(BAD_FORMAT)? else {
                return Err(BAD_FORMAT);
            };
            self.batch.times.push(if at == 0 { 0 } else { time_of(at)? });
        }
        if is_long {
            self.charge(call)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_says_how_long_its_elements_may_be() {
        const MEBIBYTE: u64 = 1 << 20;
        let longest_of = |kind: u8| longest(&[kind, 0], 3 * MEBIBYTE, MEBIBYTE);
        let kinds = [TYPE_LIST, TYPE_SET, TYPE_HASH, TYPE_TIMED_HASH, TYPE_VALKEY_HASH, 14, 18, 20, 25];
        for kind in kinds.into_iter().chain(TYPES_STREAM) {
            assert_eq!(longest_of(kind), 3 * MEBIBYTE, "{kind}");
        }
        for kind in [3, TYPE_SORTED_SET, 12, 17] {
            assert_eq!(longest_of(kind), MEBIBYTE, "{kind}");
        }
        // What is refused is as long as it is.
        for kind in [TYPE_STRING, 99] {
            assert_eq!(longest_of(kind), 3 * MEBIBYTE, "{kind}");
        }
        assert_eq!(longest(&[], 3 * MEBIBYTE, MEBIBYTE), 3 * MEBIBYTE);
        for kind in [TYPE_SET, TYPE_SORTED_SET, TYPES_STREAM[0]] {
            assert_eq!(longest(&[kind, 0], 100, MEBIBYTE), 100, "{kind}");
        }
    }
}
