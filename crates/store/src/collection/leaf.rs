//! A leaf: the elements of a collection, packed into one run of bytes that never changes once it is published.
//!
//! ```text
//! entries 2 │ payload bytes 2 │ shape 4 │ arrays │ payload
//!
//! hash         times? │ tag 1 × n │ code 1 × n (field) │ code 1 × n (value) │ field, value …     in order of insertion
//!   times      base 8 │ difference w × n                                   if a field expires
//! set          tag 1 × n │ code 1 × n                              │ member …           in order of insertion
//! sorted set   base 8 │ difference w × n │ tag 1 × n │ code 1 × n  │ member …           by score, then member
//! list         code 1 × n                                          │ element …          as in the list
//! stream       tag 1 × n                                           │ row …              `stream/rows.rs`
//!
//! part                                                             │ bytes of a string that lies apart: no entries
//!
//! shape        31 … 22 spare │ 21 … 16 shift │ 15 … 12 width, of scores or times │ 11 … 6 spare │ 5 times │ 4 long │ 3 … 0 type
//! ```
//!
//! `element.rs` says what a code means, `scores.rs` and `times.rs` what the differences are. `long`: some code is that of a
//! string that has its length in front; then what lies before an entry is found by walking there, else it is a sum of codes.
//! A tag is eight bits of the member's hash: eight members are compared at once, and a search for a member that is not there
//! looks at one in 256 strings.
//!
//! Everything here is about bytes, which others own. [`Builder`] makes them.
//!
//! [`Builder`]: super::build::Builder

use super::element::{self, APART, APART_BYTES, Element, LONG, LongText, Packed, bytes_by, extent};
use super::scores::{Packing, Scores, score_of, word_of};
use super::times::{self, time_of};
use super::{Collection, Entries, EntriesBack, Type};
use crate::Millis;
use std::cmp::Ordering;
use std::ops::Range;

/// Bytes before the arrays.
pub(crate) const HEAD_BYTES: usize = 8;
/// Bytes of the least score or time, in front of the differences.
pub(super) const BASE_BYTES: usize = 8;
/// Entries whose places are worked out at a time when a leaf is walked backwards.
const BACK_ENTRIES: usize = 64;

const SHAPE_TYPE: u32 = 0xf;
const SHAPE_LONG: u32 = 1 << 4;
const SHAPE_TIMES: u32 = 1 << 5;
const SHAPE_WIDTH: u32 = 12;
const SHAPE_SHIFT: u32 = 16;

/// The first words of a leaf, decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) kind: Type,
    pub(super) entries: usize,
    pub(super) payload_bytes: usize,
    pub(super) long: bool,
    /// A field of the hash expires.
    pub(super) times: bool,
    /// How scores or times are packed; the base is not in it.
    pub(super) packing: Packing,
}

impl Head {
    #[inline]
    fn read(bytes: [u8; HEAD_BYTES]) -> Head {
        let word = u64::from_le_bytes(bytes);
        let shape = (word >> 32) as u32;
        Head {
            kind: Type::of((shape & SHAPE_TYPE) as u8).expect("a leaf says what it is"),
            entries: (word & 0xffff) as usize,
            payload_bytes: (word >> 16 & 0xffff) as usize,
            long: shape & SHAPE_LONG != 0,
            times: shape & SHAPE_TIMES != 0,
            packing: Packing {
                base: 0,
                shift: shape >> SHAPE_SHIFT & 63,
                width: (shape >> SHAPE_WIDTH & 15) as usize,
            },
        }
    }

    pub(super) fn write(&self) -> [u8; HEAD_BYTES] {
        let shape = self.kind as u32
            | if self.long { SHAPE_LONG } else { 0 }
            | if self.times { SHAPE_TIMES } else { 0 }
            | (self.packing.width as u32) << SHAPE_WIDTH
            | self.packing.shift << SHAPE_SHIFT;
        let word = self.entries as u64 | (self.payload_bytes as u64) << 16 | u64::from(shape) << 32;
        word.to_le_bytes()
    }

    /// Bytes of the whole leaf.
    #[inline]
    pub(super) fn leaf_bytes(&self) -> usize {
        let each = match self.kind {
            // Without times the width is 0.
            Type::Hash => 3 + self.packing.width,
            Type::Set => 2,
            Type::SortedSet => 2 + self.packing.width,
            Type::List | Type::Stream => 1,
        };
        let base = if self.kind == Type::SortedSet || self.times { BASE_BYTES } else { 0 };
        HEAD_BYTES + base + each * self.entries + self.payload_bytes
    }
}

/// Bytes of the leaf that begins with these.
#[inline]
pub(crate) fn leaf_bytes(head: [u8; HEAD_BYTES]) -> usize {
    Head::read(head).leaf_bytes()
}

/// Entries of the leaf that begins with these; of one of a members tree, too.
#[inline]
pub(crate) fn leaf_entries(head: [u8; HEAD_BYTES]) -> usize {
    usize::from(u16::from_le_bytes([head[0], head[1]]))
}

/// A leaf's parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf<'a> {
    pub(super) kind: Type,
    pub(super) long: bool,
    /// Scores of a sorted set, times of a hash in which a field expires.
    pub(super) scores: Scores<'a>,
    /// None in a list.
    pub(super) tags: &'a [u8],
    pub(super) codes: &'a [u8],
    /// In a hash only.
    pub(super) value_codes: &'a [u8],
    pub(super) payload: &'a [u8],
}

/// One entry of a leaf.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry<'a> {
    /// The field, member or element.
    pub name: Element<'a>,
    /// A field's value; empty in other collections.
    pub value: Element<'a>,
    /// A member's score; 0 in other collections.
    pub score: f64,
    /// When a field of a hash expires, in milliseconds; 0 for never.
    pub expires_at: Millis,
}

impl<'a> Entry<'a> {
    /// Its name or its value, if one of them lies apart.
    #[inline]
    pub fn apart(&self) -> Option<LongText<'a>> {
        match (self.name, self.value) {
            (Element::Apart(apart), _) | (_, Element::Apart(apart)) => Some(apart),
            (Element::Text(_) | Element::Number(_), Element::Text(_) | Element::Number(_)) => None,
        }
    }

    /// It is there at this time.
    #[inline]
    pub fn is_live(&self, now: Millis) -> bool {
        self.expires_at == 0 || self.expires_at > now
    }
}

impl<'a> Leaf<'a> {
    /// The leaf at the start of `bytes`.
    #[inline]
    pub(crate) fn of(bytes: &'a [u8]) -> Leaf<'a> {
        let (first, mut rest) = bytes.split_first_chunk().expect("a leaf has a head");
        let head = Head::read(*first);
        let n = head.entries;
        let mut take = |bytes: usize| rest.split_off(..bytes).expect("a leaf has all its parts");
        let scores = match head.kind {
            Type::SortedSet => {
                let base = u64::from_le_bytes(take(BASE_BYTES).try_into().expect("eight bytes"));
                Scores::Packed(Packing { base, ..head.packing }, take(n * head.packing.width))
            }
            Type::Hash if head.times => {
                let base = u64::from_le_bytes(take(BASE_BYTES).try_into().expect("eight bytes"));
                Scores::Times(Packing { base, ..head.packing }, take(n * head.packing.width))
            }
            Type::Hash | Type::Set | Type::List | Type::Stream => Scores::Plain(&[]),
        };
        let tags = take(if head.kind.has_tags() { n } else { 0 });
        let codes = take(n);
        let value_codes = take(if head.kind == Type::Hash { n } else { 0 });
        let payload = take(head.payload_bytes);
        Leaf { kind: head.kind, long: head.long, scores, tags, codes, value_codes, payload }
    }

    /// The type of the collection that it is of.
    #[inline]
    pub(crate) fn kind(&self) -> Type {
        self.kind
    }

    /// Entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.codes.len()
    }

    /// Where entry `i` begins in the payload; where the payload ends, if there are `i`.
    #[inline]
    pub(super) fn offset(&self, i: usize) -> usize {
        self.offset_from(0, 0, i)
    }

    /// As [`Leaf::offset`], given that entry `from`, which is no later, begins at `at`.
    #[inline]
    fn offset_from(&self, from: usize, at: usize, i: usize) -> usize {
        if self.long {
            return self.walk(at, from, i);
        }
        let sum = |codes: &[u8]| codes.iter().map(|&code| u32::from(code & 63)).sum::<u32>() as usize;
        let names = at + sum(&self.codes[from..i]);
        if self.kind == Type::Hash { names + sum(&self.value_codes[from..i]) } else { names }
    }

    /// As [`Leaf::offset_from`], in a leaf with long strings.
    fn walk(&self, mut at: usize, from: usize, to: usize) -> usize {
        for i in from..to {
            at += self.entry_bytes(i, at);
        }
        at
    }

    /// Bytes of entry `i`, which begins at `at`.
    #[inline]
    pub(super) fn entry_bytes(&self, i: usize, at: usize) -> usize {
        if !self.long {
            return bytes_by(self.codes[i]) + self.value_codes.get(i).map_or(0, |&code| bytes_by(code));
        }
        let name = extent(self.codes[i], &self.payload[at..]).1;
        name + self.value_codes.get(i).map_or(0, |&code| extent(code, &self.payload[at + name..]).1)
    }

    /// The entry `i`, which begins at `at`, and its bytes.
    #[inline]
    pub(super) fn entry_at(&self, i: usize, at: usize) -> (Entry<'a>, usize) {
        let payload = &self.payload[at..];
        let (name, mut bytes) = Element::read(self.codes[i], payload);
        let mut value = Element::empty();
        if let Some(&code) = self.value_codes.get(i) {
            let (read, more) = Element::read(code, &payload[bytes..]);
            value = read;
            bytes += more;
        }
        // Most have neither.
        let (score, expires_at) = if self.scores.is_empty() {
            (0.0, 0)
        } else if self.kind == Type::SortedSet {
            (score_of(self.scores.at(i)), 0)
        } else {
            (0.0, time_of(self.scores.at(i)))
        };
        (Entry { name, value, score, expires_at }, bytes)
    }

    /// True for a part of a string that lies apart, and for the leaf of a list that says where such
    /// an element lies. Nothing else is in it.
    #[inline]
    pub(super) fn is_apart(&self) -> bool {
        self.codes.first().is_none_or(|&code| code == APART && self.kind == Type::List)
    }

    /// A value of a field, or a member of a set, lies apart.
    pub(super) fn has_apart(&self) -> bool {
        match self.kind {
            Type::Hash => self.value_codes.contains(&APART),
            Type::Set => self.codes.contains(&APART),
            Type::SortedSet | Type::List | Type::Stream => false,
        }
    }

    /// A member of a sorted set lies apart.
    pub(super) fn names_apart(&self) -> bool {
        self.kind == Type::SortedSet && self.codes.contains(&APART)
    }

    /// A field of the hash expires.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.kind == Type::Hash && !self.scores.is_empty()
    }

    /// When field `i` of a hash expires; 0 for never.
    #[inline]
    pub(super) fn time(&self, i: usize) -> Millis {
        if self.scores.is_empty() { 0 } else { time_of(self.scores.at(i)) }
    }

    /// The word of the time of field `i`.
    pub(super) fn time_word(&self, i: usize) -> u64 {
        times::word_of(self.time(i))
    }

    /// When the first field of a hash expires; 0 for never.
    pub(crate) fn soonest(&self) -> Millis {
        match self.scores {
            Scores::Times(packing, _) => packing.base,
            Scores::Plain(words) if self.kind == Type::Hash => time_of(times::soonest(words)),
            Scores::Packed(..) | Scores::Plain(_) => 0,
        }
    }

    /// Field `i` of a hash is there at this time; so are all members and elements.
    #[inline]
    pub(super) fn is_live(&self, i: usize, now: Millis) -> bool {
        // Never is the last of all times.
        self.scores.is_empty() || self.kind != Type::Hash || self.scores.at(i) > now
    }

    /// As [`Leaf::find`], of fields and members that are there at this time.
    #[inline]
    pub(crate) fn find_live(&self, name: &[u8], tag: u8, now: Millis) -> Option<usize> {
        self.find(name, tag).filter(|&i| self.is_live(i, now))
    }

    /// Bytes of the leaf, but for scores and times.
    pub(super) fn bytes(&self) -> usize {
        HEAD_BYTES + self.tags.len() + self.codes.len() + self.value_codes.len() + self.payload.len()
    }

    /// Bytes of the leaf.
    pub(super) fn whole_bytes(&self) -> usize {
        match self.scores {
            Scores::Plain(_) => self.bytes(),
            Scores::Packed(packing, _) | Scores::Times(packing, _) => {
                self.bytes() + BASE_BYTES + packing.width * self.len()
            }
        }
    }

    /// Bytes that an entry takes beside its strings, but for its score or time.
    pub(super) fn arrays(&self) -> usize {
        match self.kind {
            Type::Hash => 3,
            Type::Set | Type::SortedSet => 2,
            Type::List | Type::Stream => 1,
        }
    }

    /// The entry `i`.
    ///
    /// # Panics
    /// If there are no more than `i`.
    #[inline]
    pub(crate) fn entry(&self, i: usize) -> Entry<'a> {
        self.entry_at(i, self.offset(i)).0
    }

    /// Finds the entry of this field or member, whose tag is `tag`. Not in a list. Finds none that
    /// lies apart (see [`Leaf::find_apart`]).
    #[inline]
    pub(crate) fn find(&self, name: &[u8], tag: u8) -> Option<usize> {
        debug_assert!(self.kind.has_tags(), "a list has no tags");
        if name.len() > usize::from(u16::MAX) {
            return None;
        }
        let wanted = Packed::of(name);
        // In a long leaf there are many of one tag: each place is found from the one before it.
        let (mut from, mut at) = (0, 0);
        for i in matches(self.tags, tag) {
            if self.codes[i] == wanted.code {
                (from, at) = (i, self.offset_from(from, at, i));
                if wanted.is_at(wanted.code, &self.payload[at..]) {
                    return Some(i);
                }
            }
        }
        None
    }

    /// Finds the member of a set with this tag that lies apart and of which `is` is true.
    pub(super) fn find_apart(&self, tag: u8, mut is: impl FnMut(&LongText<'a>) -> bool) -> Option<usize> {
        matches(self.tags, tag).find(|&i| {
            self.codes[i] == APART
                && match self.entry(i).name {
                    Element::Apart(apart) => is(&apart),
                    Element::Text(_) | Element::Number(_) => false,
                }
        })
    }

    /// These entries, in order.
    pub(crate) fn entries(&self, range: Range<usize>) -> InOrder<'a> {
        InOrder { at: if range.is_empty() { 0 } else { self.offset(range.start) }, leaf: *self, range }
    }

    /// These entries, the last first.
    pub(crate) fn entries_back(&self, range: Range<usize>) -> Backwards<'a> {
        Backwards { leaf: *self, block: range.end..range.end, range, places: [0; BACK_ENTRIES] }
    }

    /// Returns the first place in `range` for which `before` is false; it is true for all places before that one.
    pub(crate) fn partition(&self, range: Range<usize>, before: impl Fn(&Entry<'a>) -> bool) -> usize {
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low.midpoint(high);
            if before(&self.entry(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// How many members have a lower score, or, if `also_equal`, one that is no higher.
    pub(crate) fn below(&self, score: f64, also_equal: bool) -> usize {
        let wanted = word_of(score);
        self.scores.partition(self.len(), |word| word < wanted || also_equal && word == wanted)
    }

    /// Returns the place where a member with this score is or belongs, in a leaf in which no member lies apart.
    pub(super) fn place(&self, score: f64, name: &[u8]) -> usize {
        self.place_by(score, |other| other.compare(name))
    }

    /// As [`Leaf::place`], where `compare` orders another member with this score against the member.
    pub(super) fn place_by(&self, score: f64, compare: impl Fn(&Element<'a>) -> Ordering) -> usize {
        let equal = self.below(score, false)..self.below(score, true);
        self.partition(equal, |entry| compare(&entry.name) == Ordering::Less)
    }

    /// The score of member `i`.
    #[inline]
    pub(crate) fn score(&self, i: usize) -> f64 {
        score_of(self.scores.at(i))
    }

    /// The word of the score of member `i`.
    #[inline]
    pub(super) fn word(&self, i: usize) -> u64 {
        self.scores.at(i)
    }

    /// Checks as [`Leaf::check_form`], and that no member is there twice, except those that lie apart.
    ///
    /// # Panics
    /// If it is not so.
    pub(crate) fn check(&self, tag_of: &dyn Fn(&[u8]) -> u8) {
        self.check_form(tag_of);
        if self.kind.has_tags() {
            for (i, entry) in self.entries(0..self.len()).enumerate() {
                if matches!(entry.name, Element::Apart(_)) {
                    continue;
                }
                let name = &mut [0; element::DIGITS_MAX];
                assert_eq!(self.find(entry.name.text(name), self.tags[i]), Some(i), "a member twice");
            }
        }
    }

    /// Checks that it is what it says: every string in its one form, each tag its member's, members of a sorted set in order,
    /// `long` only where there is a long string, scores as narrow as they can be, and no byte of payload too many.
    ///
    /// # Panics
    /// If it is not so.
    pub(crate) fn check_form(&self, tag_of: &dyn Fn(&[u8]) -> u8) {
        let n = self.len();
        assert!(n > 0, "no collection is empty");
        if self.kind == Type::Stream {
            return super::stream::check_rows(self);
        }
        if self.is_apart() {
            assert!(n == 1 && self.payload.len() == APART_BYTES, "beside a string that lies apart");
            return;
        }
        let lies_apart = |code: u8, bytes: &[u8]| code == APART && bytes.len() >= APART_BYTES;
        let with = |has: bool| if has { n } else { 0 };
        assert_eq!(self.tags.len(), with(self.kind.has_tags()), "tags");
        assert_eq!(self.value_codes.len(), with(self.kind == Type::Hash), "codes of values");
        let long = self.codes.contains(&LONG) || self.value_codes.contains(&LONG);
        assert_eq!(self.long, long, "whether some string has its length in front");
        let mut at = 0;
        let mut before: Option<Entry<'_>> = None;
        for i in 0..n {
            let payload = &self.payload[at..];
            if matches!(self.kind, Type::Set | Type::SortedSet) && lies_apart(self.codes[i], payload) {
                // Its tag, and its place between the others, are checked where its parts are known.
                at += APART_BYTES;
                continue;
            }
            assert!(element::is_canonical(self.codes[i], payload), "entry {i} is not in its one form");
            if let Some(&code) = self.value_codes.get(i) {
                let value = &payload[extent(self.codes[i], payload).1..];
                assert!(
                    lies_apart(code, value) || element::is_canonical(code, value),
                    "the value of entry {i} is not in its one form"
                );
            }
            let mut room = [0; element::DIGITS_MAX];
            let (entry, bytes) = self.entry_at(i, at);
            let name = entry.name.text(&mut room);
            if self.kind.has_tags() {
                assert_eq!(self.tags[i], tag_of(name), "the tag of entry {i}");
            }
            if self.kind == Type::SortedSet
                && let Some(before) = before
            {
                let follows = before.score < entry.score
                    || before.score == entry.score && before.name.compare(name).is_lt();
                assert!(follows, "entry {i} is out of order");
            }
            before = Some(entry);
            at += bytes;
        }
        assert_eq!(at, self.payload.len(), "bytes behind the last entry");
        if let Scores::Packed(packing, _) = self.scores {
            assert_eq!(
                packing,
                Packing::of((0..n).map(|i| self.scores.at(i))),
                "scores as narrow as they can be"
            );
        }
        if let Scores::Times(packing, _) = self.scores {
            let words: Vec<u64> = (0..n).map(|i| self.scores.at(i)).collect();
            assert!(times::soonest(&words) != times::NEVER, "some field expires");
            assert_eq!(packing, times::packing(&words), "times as narrow as they can be");
        }
    }
}

/// The places of a tag, in order.
#[inline]
fn matches(tags: &[u8], tag: u8) -> impl Iterator<Item = usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let (words, rest) = tags.as_chunks::<8>();
    let start = words.len() * 8;
    let whole = words.iter().enumerate().flat_map(move |(n, word)| {
        let other = u64::from_le_bytes(*word) ^ (ONES * u64::from(tag));
        // The highest bit of each byte that is 0.
        let mut hits = !(((other & LOW) + LOW) | other | LOW);
        std::iter::from_fn(move || {
            (hits != 0).then(|| {
                let i = hits.trailing_zeros() / 8;
                hits &= hits - 1;
                n * 8 + i as usize
            })
        })
    });
    let last = rest.iter().enumerate().filter(move |(_, other)| **other == tag).map(move |(i, _)| start + i);
    whole.chain(last)
}

/// Iterator over entries of one leaf, in order.
#[derive(Clone, Debug)]
pub(crate) struct InOrder<'a> {
    leaf: Leaf<'a>,
    range: Range<usize>,
    at: usize,
}

impl<'a> Iterator for InOrder<'a> {
    type Item = Entry<'a>;
    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        let i = self.range.next()?;
        let (entry, bytes) = self.leaf.entry_at(i, self.at);
        self.at += bytes;
        Some(entry)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl ExactSizeIterator for InOrder<'_> {}

/// Iterator over entries of one leaf, the last first.
#[derive(Clone, Debug)]
pub(crate) struct Backwards<'a> {
    leaf: Leaf<'a>,
    /// Those that are left.
    range: Range<usize>,
    /// Those whose places are known.
    block: Range<usize>,
    places: [u16; BACK_ENTRIES],
}

impl<'a> Iterator for Backwards<'a> {
    type Item = Entry<'a>;
    fn next(&mut self) -> Option<Entry<'a>> {
        let i = self.range.next_back()?;
        if i < self.block.start {
            self.block = self.range.start.max((i + 1).saturating_sub(BACK_ENTRIES))..i + 1;
            let mut at = self.leaf.offset(self.block.start);
            for (place, entry) in self.places.iter_mut().zip(self.block.clone()) {
                *place = at as u16;
                at += self.leaf.entry_bytes(entry, at);
            }
        }
        Some(self.leaf.entry_at(i, usize::from(self.places[i - self.block.start])).0)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl ExactSizeIterator for Backwards<'_> {}

/// Entries that were taken out of a collection.
#[derive(Clone, Debug)]
pub struct Removed<'g> {
    /// As it was before.
    collection: Collection<'g>,
    range: Range<usize>,
}

impl<'g> Removed<'g> {
    pub(super) fn new(collection: Collection<'g>, range: Range<usize>) -> Removed<'g> {
        Removed { collection, range }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// As it was before.
    pub fn collection(&self) -> &Collection<'g> {
        &self.collection
    }

    /// In the order in which they were there.
    pub fn entries(&self) -> Entries<'g> {
        self.collection.entries(self.range.clone())
    }

    /// The last first.
    pub fn entries_back(&self) -> EntriesBack<'g> {
        self.collection.entries_back(self.range.clone())
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_a_tag_is_found_and_no_other() {
        for length in 0..40 {
            for pattern in 0..64_u32 {
                // Neighbours of the tag, on both sides and in the highest bit, that a borrow could mistake for it.
                let near = [0x00, 0x01, 0x7f, 0x80, 0x81, 0xff];
                let tags: Vec<u8> = (0..length)
                    .map(|i| near[(i as u32 * 7 + pattern * (i as u32 + 3)) as usize % 6])
                    .collect();
                for tag in near {
                    let expected: Vec<usize> = (0..tags.len()).filter(|&i| tags[i] == tag).collect();
                    assert_eq!(matches(&tags, tag).collect::<Vec<_>>(), expected);
                }
            }
        }
    }
}
