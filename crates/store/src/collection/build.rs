//! Building a leaf: its parts as vectors, which are changed one by one and put together at the end.
//!
//! ```text
//! start, or load a leaf ─▶ insert, remove, set_value … ─▶ bytes() ─▶ write into a chunk of that size
//! ```
//!
//! Scores lie as words meanwhile, since their packing depends on all of them, and so do times of fields: as many as there
//! are fields, or none. The vectors stay when a leaf is done: in
//! steady state building one allocates nothing.

use super::Type;
use super::element::{APART, APART_BYTES, LENGTH_BYTES, LONG, Packed, bytes_by, extent};
use super::leaf::{BASE_BYTES, Entry, HEAD_BYTES, Head, Leaf};
use super::scores::{Packing, Scores, word_of};
use super::times::{self, NEVER};
use super::tree::{ITEM_LEAF_BYTES, MEMBERS_HEAD_BYTES, NODE_BYTES};
use crate::class::CHUNK_BYTES_MAX;
use crate::{End, Millis};
use std::iter::Peekable;
use std::ops::Range;

/// A leaf that is longer than this has no place in any chunk.
pub(super) const LEAF_BYTES_MAX: usize = CHUNK_BYTES_MAX - 8;
/// A string that is longer than this has no place in a leaf of a tree, even alone: its code and its length are there, too.
pub(super) const STRING_BYTES_MAX: usize = CHUNK_BYTES_MAX - NODE_BYTES - HEAD_BYTES - 3;

/// What a field and its value may have together to lie in one leaf of a tree, even alone and with a time.
pub(super) const FIELD_BYTES_MAX: usize =
    CHUNK_BYTES_MAX - NODE_BYTES - HEAD_BYTES - BASE_BYTES - 3 - 2 * LENGTH_BYTES;

/// A member of a set that is longer than this has no place in a leaf of a tree, even alone: its tag, its code and its length are
/// there, too. So it lies apart.
pub(crate) const MEMBER_BYTES_MAX: usize = CHUNK_BYTES_MAX - NODE_BYTES - HEAD_BYTES - 2 - LENGTH_BYTES;

/// The same of a member of a sorted set, whose name a leaf of its members tree may come to have.
pub(super) const SCORED_BYTES_MAX: usize =
    CHUNK_BYTES_MAX - NODE_BYTES - MEMBERS_HEAD_BYTES - 1 - LENGTH_BYTES;

/// A leaf is as long as it may be, or a string has to lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A field with its value, a member or an element is no longer than one may be that lies in one leaf.
pub(super) fn fits_alone(kind: Type, name: &[u8], value: &[u8]) -> bool {
    if name.len().max(value.len()) > LEAF_BYTES_MAX {
        return false;
    }
    let (arrays, values) = match kind {
        Type::Hash => return name.len() + value.len() <= FIELD_BYTES_MAX,
        Type::Set => (2, 0),
        // It may come to have its name in both trees.
        Type::SortedSet => (1, MEMBERS_HEAD_BYTES - HEAD_BYTES),
        Type::List | Type::Stream => (1, 0),
    };
    let leaf = HEAD_BYTES + arrays + Packed::of(name).bytes() + values;
    leaf <= LEAF_BYTES_MAX && NODE_BYTES + leaf <= CHUNK_BYTES_MAX
}

/// A string is too long for a leaf of a list.
#[inline]
pub(super) fn is_apart(text: &[u8]) -> bool {
    text.len() > STRING_BYTES_MAX
}

/// A field's value lies apart: beside its name it is too long for a leaf, and the name is not. Or a member does.
#[inline]
pub(super) fn lies_apart(kind: Type, name: &[u8], value: &[u8]) -> bool {
    match kind {
        Type::Hash => {
            name.len() + value.len() > FIELD_BYTES_MAX && name.len() + APART_BYTES <= FIELD_BYTES_MAX
        }
        Type::Set => name.len() > MEMBER_BYTES_MAX,
        Type::SortedSet => name.len() > SCORED_BYTES_MAX,
        Type::List | Type::Stream => false,
    }
}

/// An entry to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<'a> {
    /// The tag of its field or member; unused in a list.
    pub(crate) tag: u8,
    pub(crate) name: &'a [u8],
    /// In a hash only.
    pub(crate) value: &'a [u8],
    /// In a sorted set only.
    pub(crate) score: f64,
}

/// A leaf that is being built.
#[derive(Debug)]
pub(crate) struct Builder {
    kind: Type,
    /// Bytes that it may have while it is being built.
    pub(super) room: usize,
    /// Strings that have their length in front.
    longs: usize,
    words: Vec<u64>,
    tags: Vec<u8>,
    /// The tags of a stream's rows.
    pub(super) codes: Vec<u8>,
    value_codes: Vec<u8>,
    pub(super) payload: Vec<u8>,
    /// Where a stream's rows lie while they are written anew.
    pub(super) spare_codes: Vec<u8>,
    pub(super) spare: Vec<u8>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            kind: Type::Hash,
            room: LEAF_BYTES_MAX,
            longs: 0,
            words: Vec::new(),
            tags: Vec::new(),
            codes: Vec::new(),
            value_codes: Vec::new(),
            payload: Vec::new(),
            spare_codes: Vec::new(),
            spare: Vec::new(),
        }
    }
}

impl Builder {
    /// Begins an empty leaf.
    pub(crate) fn start(&mut self, kind: Type) {
        self.kind = kind;
        self.room = LEAF_BYTES_MAX;
        self.longs = 0;
        self.words.clear();
        self.tags.clear();
        self.codes.clear();
        self.value_codes.clear();
        self.payload.clear();
    }

    /// Begins with what is in `leaf`.
    pub(crate) fn load(&mut self, leaf: &Leaf<'_>) {
        self.start(leaf.kind);
        if leaf.long {
            self.longs = longs(leaf.codes) + longs(leaf.value_codes);
        }
        self.add_words(leaf, 0..leaf.len());
        self.tags.extend_from_slice(leaf.tags);
        self.codes.extend_from_slice(leaf.codes);
        self.value_codes.extend_from_slice(leaf.value_codes);
        self.payload.extend_from_slice(leaf.payload);
    }

    /// It will be cut: meanwhile it may be as long as three leaves.
    pub(super) fn make_roomy(&mut self) {
        self.room = 3 * LEAF_BYTES_MAX;
    }

    /// Adds entry `i` of a leaf, which lies at `at`, to the end. Of a hash or a set.
    pub(super) fn push(&mut self, leaf: &Leaf<'_>, i: usize, at: Range<usize>) {
        debug_assert!(leaf.kind == self.kind && self.kind != Type::SortedSet);
        self.add_words(leaf, i..i + 1);
        let added = [
            (&mut self.tags, leaf.tags),
            (&mut self.codes, leaf.codes),
            (&mut self.value_codes, leaf.value_codes),
        ];
        for (array, from) in added {
            array.extend(from.get(i));
        }
        self.longs += longs(leaf.codes.get(i..=i).unwrap_or_default());
        self.longs += longs(leaf.value_codes.get(i..=i).unwrap_or_default());
        self.payload.extend_from_slice(&leaf.payload[at]);
    }

    /// Adds all entries of a leaf to the end.
    pub(super) fn append(&mut self, leaf: &Leaf<'_>) {
        debug_assert!(leaf.kind == self.kind);
        if self.kind == Type::Stream {
            return self.append_rows(leaf);
        }
        self.add_words(leaf, 0..leaf.len());
        self.tags.extend_from_slice(leaf.tags);
        self.codes.extend_from_slice(leaf.codes);
        self.value_codes.extend_from_slice(leaf.value_codes);
        self.longs += longs(leaf.codes) + longs(leaf.value_codes);
        self.payload.extend_from_slice(leaf.payload);
    }

    /// Adds the words of the scores, or times, of these entries of a leaf to the end: before what else they have.
    #[inline]
    fn add_words(&mut self, leaf: &Leaf<'_>, entries: Range<usize>) {
        if self.kind == Type::SortedSet {
            self.words.extend(entries.map(|i| leaf.scores.at(i)));
        } else if leaf.is_timed() || !self.words.is_empty() {
            self.words.resize(self.codes.len(), NEVER);
            self.words.extend(entries.map(|i| leaf.time_word(i)));
        }
    }

    /// Adds these entries of a leaf, which lie at `at`, to the end.
    pub(super) fn push_run(&mut self, leaf: &Leaf<'_>, entries: Range<usize>, at: Range<usize>) {
        debug_assert!(leaf.kind == self.kind);
        self.add_words(leaf, entries.clone());
        let arrays = [
            (&mut self.tags, leaf.tags),
            (&mut self.codes, leaf.codes),
            (&mut self.value_codes, leaf.value_codes),
        ];
        for (array, from) in arrays {
            array.extend_from_slice(from.get(entries.clone()).unwrap_or_default());
        }
        self.longs += longs(leaf.codes.get(entries.clone()).unwrap_or_default());
        self.longs += longs(leaf.value_codes.get(entries).unwrap_or_default());
        self.payload.extend_from_slice(&leaf.payload[at]);
    }

    /// Adds all entries of a leaf in front of the first.
    pub(super) fn prepend(&mut self, leaf: &Leaf<'_>) {
        if self.kind == Type::Stream {
            return self.prepend_rows(leaf);
        }
        let (codes, bytes) = (self.codes.len(), self.payload.len());
        self.append(leaf);
        for (array, from) in [
            (&mut self.tags, leaf.tags),
            (&mut self.codes, leaf.codes),
            (&mut self.value_codes, leaf.value_codes),
        ] {
            if !from.is_empty() {
                array.rotate_left(codes);
            }
        }
        if !self.words.is_empty() {
            self.words.rotate_left(codes);
        }
        self.payload.rotate_left(bytes);
    }

    /// Puts elements to an end of a list, one after the other, as far as there is room; how many.
    pub(super) fn push_some<'p>(
        &mut self,
        end: End,
        elements: &mut Peekable<impl Iterator<Item = &'p [u8]>>,
    ) -> usize {
        let old = self.codes.len();
        while let Some(&name) = elements.peek() {
            if self.insert(self.codes.len(), NewEntry { tag: 0, name, value: &[], score: 0.0 }).is_err() {
                break;
            }
            elements.next();
        }
        let added = self.codes.len() - old;
        if end == End::Front && added > 0 {
            self.turn_to_front(old);
        }
        added
    }

    /// Puts an element behind all others of a list.
    ///
    /// # Errors
    /// [`Full`], and nothing done.
    pub(super) fn push_one(&mut self, name: &[u8]) -> Result<(), Full> {
        self.insert(self.codes.len(), NewEntry { tag: 0, name, value: &[], score: 0.0 })
    }

    /// What the strings of an entry may have together, at most: what is longer lies apart, but for rows of streams.
    fn strings_bytes_max(&self) -> usize {
        match self.kind {
            Type::List => STRING_BYTES_MAX,
            Type::Hash => FIELD_BYTES_MAX,
            Type::Set => MEMBER_BYTES_MAX,
            Type::SortedSet => SCORED_BYTES_MAX,
            Type::Stream => LEAF_BYTES_MAX,
        }
    }

    /// A time of a field is there, or was.
    fn has_times(&self) -> bool {
        self.kind == Type::Hash && !self.words.is_empty()
    }

    /// It is too long to lie in an item whose leaf may have so many bytes, and can be a tree.
    pub(super) fn is_for_tree(&self, item_bytes_max: usize) -> bool {
        let bytes = self.tree_bytes();
        bytes > item_bytes_max || bytes > ITEM_LEAF_BYTES && self.codes.len() > 1
    }

    /// What it is a leaf of.
    pub(crate) fn kind(&self) -> Type {
        self.kind
    }

    /// It has no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    /// What it is so far.
    pub(crate) fn leaf(&self) -> Leaf<'_> {
        Leaf {
            kind: self.kind,
            long: self.longs > 0,
            scores: Scores::Plain(&self.words),
            tags: &self.tags,
            codes: &self.codes,
            value_codes: &self.value_codes,
            payload: &self.payload,
        }
    }

    /// Puts a new entry in front of entry `i`, or at the end. In a sorted set that is where [`Leaf::place`] says.
    ///
    /// # Errors
    /// [`Full`], and nothing done.
    pub(crate) fn insert(&mut self, i: usize, new: NewEntry<'_>) -> Result<(), Full> {
        if new.name.len() + new.value.len() > self.strings_bytes_max() {
            return Err(Full);
        }
        let (name, value) = (Packed::of(new.name), Packed::of(new.value));
        let hash = self.kind == Type::Hash;
        let bytes = name.bytes() + if hash { value.bytes() } else { 0 };
        let arrays = 1 + usize::from(self.kind != Type::List) + usize::from(hash);
        if self.loose_bytes() + arrays + bytes > self.room {
            return Err(Full);
        }
        let at = if i == self.codes.len() { self.payload.len() } else { self.leaf().offset(i) };
        resize(&mut self.payload, at..at, bytes);
        name.write(&mut self.payload[at..]);
        self.longs += usize::from(name.code == LONG);
        self.codes.insert(i, name.code);
        if hash {
            value.write(&mut self.payload[at + name.bytes()..]);
            self.longs += usize::from(value.code == LONG);
            self.value_codes.insert(i, value.code);
        }
        if self.kind != Type::List {
            self.tags.insert(i, new.tag);
        }
        if self.kind == Type::SortedSet {
            self.words.insert(i, word_of(new.score));
        } else if !self.words.is_empty() {
            self.words.insert(i, NEVER);
        }
        Ok(())
    }

    /// Puts a member that lies apart behind all others of a set, as [`LongText::packed`] names it.
    ///
    /// # Errors
    /// [`Full`], and nothing done.
    ///
    /// [`LongText::packed`]: super::LongText::packed
    pub(super) fn push_apart(&mut self, tag: u8, packed: &[u8; APART_BYTES]) -> Result<(), Full> {
        debug_assert!(self.kind == Type::Set, "of a hash values do");
        self.insert_apart(self.codes.len(), tag, packed, 0.0)
    }

    /// Puts such a member in front of entry `i` of a set or a sorted set, or at the end.
    ///
    /// # Errors
    /// [`Full`], and nothing done.
    pub(super) fn insert_apart(
        &mut self,
        i: usize,
        tag: u8,
        packed: &[u8; APART_BYTES],
        score: f64,
    ) -> Result<(), Full> {
        if self.loose_bytes() + 2 + APART_BYTES > self.room {
            return Err(Full);
        }
        let at = if i == self.codes.len() { self.payload.len() } else { self.leaf().offset(i) };
        resize(&mut self.payload, at..at, APART_BYTES);
        self.payload[at..at + APART_BYTES].copy_from_slice(packed);
        self.tags.insert(i, tag);
        self.codes.insert(i, APART);
        if self.kind == Type::SortedSet {
            self.words.insert(i, word_of(score));
        }
        Ok(())
    }

    /// Says when field `i` of a hash expires; 0: never.
    pub(crate) fn set_time(&mut self, i: usize, at: Millis) {
        debug_assert!(self.kind == Type::Hash, "only fields expire");
        if at != 0 && self.words.is_empty() {
            self.words.resize(self.codes.len(), NEVER);
        }
        if !self.words.is_empty() {
            self.words[i] = times::word_of(at);
        }
    }

    /// When the first field of a hash expires; 0: none does.
    pub(crate) fn soonest(&self) -> Millis {
        if self.kind == Type::Hash { times::time_of(times::soonest(&self.words)) } else { 0 }
    }

    /// Takes out the fields of a hash whose time has passed; how many.
    pub(crate) fn drop_expired(&mut self, now: Millis) -> usize {
        let soonest = self.soonest();
        if soonest == 0 || soonest > now {
            return 0;
        }
        let before = self.codes.len();
        self.retain(|entry| entry.is_live(now));
        before - self.codes.len()
    }

    /// Takes these entries out.
    pub(crate) fn remove(&mut self, range: Range<usize>) {
        if self.kind == Type::Stream {
            return self.remove_rows(range);
        }
        let leaf = self.leaf();
        let (start, end) = (leaf.offset(range.start), leaf.offset(range.end));
        self.payload.drain(start..end);
        let mut longs = 0;
        for codes in [&mut self.codes, &mut self.value_codes] {
            if range.end <= codes.len() {
                longs += codes.drain(range.clone()).filter(|code| *code == LONG).count();
            }
        }
        self.longs -= longs;
        if self.kind != Type::List {
            self.tags.drain(range.clone());
        }
        if !self.words.is_empty() {
            self.words.drain(range);
        }
    }

    /// Puts the elements of a list from place `from` on in front of all others, the last of them first.
    pub(crate) fn turn_to_front(&mut self, from: usize) {
        debug_assert_eq!(self.kind, Type::List);
        let start = self.leaf().offset(from);
        self.payload.rotate_left(start);
        self.codes.rotate_left(from);
        let count = self.codes.len() - from;
        // All bytes are reversed, and those of each element again: the first one lies last by then.
        let mut end = self.payload.len() - start;
        self.payload[..end].reverse();
        for &code in &self.codes[..count] {
            let bytes = match code {
                LONG => extent(LONG, &[self.payload[end - 1], self.payload[end - 2]]).1,
                code => bytes_by(code),
            };
            self.payload[end - bytes..end].reverse();
            end -= bytes;
        }
        self.codes[..count].reverse();
    }

    /// Takes out the entries of which `keep` is false; it is asked in order.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Entry<'_>) -> bool) {
        let (mut kept, mut from, mut to) = (0, 0, 0);
        for i in 0..self.codes.len() {
            let (entry, bytes) = self.leaf().entry_at(i, from);
            if keep(&entry) {
                self.payload.copy_within(from..from + bytes, to);
                to += bytes;
                for array in [&mut self.tags, &mut self.codes, &mut self.value_codes] {
                    if i < array.len() {
                        array[kept] = array[i];
                    }
                }
                if i < self.words.len() {
                    self.words[kept] = self.words[i];
                }
                kept += 1;
            }
            from += bytes;
        }
        self.payload.truncate(to);
        for array in [&mut self.tags, &mut self.codes, &mut self.value_codes] {
            array.truncate(kept);
        }
        self.words.truncate(kept);
        self.longs = longs(&self.codes) + longs(&self.value_codes);
    }

    /// Gives the field `i` of a hash, whose name has so many bytes, another value.
    ///
    /// # Errors
    /// [`Full`], and nothing done.
    pub(crate) fn set_value(&mut self, i: usize, name_bytes: usize, value: &[u8]) -> Result<(), Full> {
        if name_bytes + value.len() > self.strings_bytes_max() {
            return Err(Full);
        }
        self.replace(i, &Packed::of(value), true)
    }

    /// Gives the field `i` of a hash a value that lies apart, as [`LongText::packed`] names it.
    ///
    /// # Errors
    /// [`Full`], and nothing done.
    ///
    /// [`LongText::packed`]: super::LongText::packed
    pub(super) fn set_value_apart(&mut self, i: usize, packed: &[u8; APART_BYTES]) -> Result<(), Full> {
        self.replace(i, &Packed::apart(packed), true)
    }

    /// Puts another element in the place of element `i` of a list.
    ///
    /// # Errors
    /// [`Full`], and nothing done.
    pub(crate) fn set_element(&mut self, i: usize, element: &[u8]) -> Result<(), Full> {
        debug_assert!(self.kind == Type::List, "the others have tags, or an order");
        if element.len() > self.strings_bytes_max() {
            return Err(Full);
        }
        self.replace(i, &Packed::of(element), false)
    }

    /// Replaces the value of entry `i`, or the only string that it has.
    #[inline]
    fn replace(&mut self, i: usize, new: &Packed<'_>, value: bool) -> Result<(), Full> {
        let leaf = self.leaf();
        let mut start = leaf.offset(i);
        let end = start + leaf.entry_bytes(i, start);
        if value {
            start += extent(self.codes[i], &self.payload[start..]).1;
        }
        if self.loose_bytes() - (end - start) + new.bytes() > self.room {
            return Err(Full);
        }
        let code = if value { &mut self.value_codes[i] } else { &mut self.codes[i] };
        self.longs -= usize::from(*code == LONG);
        self.longs += usize::from(new.code == LONG);
        *code = new.code;
        resize(&mut self.payload, start..end, new.bytes());
        new.write(&mut self.payload[start..]);
        Ok(())
    }

    /// Bytes of the leaf without its scores and times, at most as many as of the leaf that comes of it.
    pub(super) fn loose_bytes(&self) -> usize {
        HEAD_BYTES + self.tags.len() + self.codes.len() + self.value_codes.len() + self.payload.len()
    }

    /// Bytes of the leaf that comes of it.
    pub(super) fn tree_bytes(&self) -> usize {
        match self.kind {
            Type::SortedSet => self.head().leaf_bytes(),
            Type::Hash if self.has_times() => self.head().leaf_bytes(),
            Type::Hash | Type::Set | Type::List | Type::Stream => self.loose_bytes(),
        }
    }

    /// Bytes that an entry takes beside its strings, at most.
    pub(super) fn each_bytes(&self) -> usize {
        let words = if self.words.is_empty() { 0 } else { self.head().packing.width };
        self.leaf().arrays() + words
    }

    fn head(&self) -> Head {
        let times = self.soonest() != 0;
        let packing = match self.kind {
            Type::SortedSet => Packing::of(self.words.iter().copied()),
            Type::Hash if times => times::packing(&self.words),
            Type::Hash | Type::Set | Type::List | Type::Stream => Packing::default(),
        };
        Head {
            kind: self.kind,
            entries: self.codes.len(),
            payload_bytes: self.payload.len(),
            long: self.longs > 0,
            times,
            packing,
        }
    }

    /// Bytes of the leaf.
    ///
    /// # Errors
    /// [`Full`], if they are too many for any chunk.
    pub(crate) fn bytes(&self) -> Result<usize, Full> {
        let bytes = self.head().leaf_bytes();
        if bytes <= LEAF_BYTES_MAX { Ok(bytes) } else { Err(Full) }
    }

    /// Writes the leaf to `to`, which is as long as it.
    pub(crate) fn write(&self, mut to: &mut [u8]) {
        let head = self.head();
        debug_assert_eq!(to.len(), head.leaf_bytes());
        let mut next = |bytes: usize| to.split_off_mut(..bytes).expect("it is as long as the leaf");
        next(HEAD_BYTES).copy_from_slice(&head.write());
        if self.kind == Type::SortedSet || head.times {
            next(BASE_BYTES).copy_from_slice(&head.packing.base.to_le_bytes());
            let differences = next(self.words.len() * head.packing.width);
            if head.times {
                times::write(&head.packing, &self.words, differences);
            } else {
                head.packing.write(&self.words, differences);
            }
        }
        for part in [&self.tags, &self.codes, &self.value_codes, &self.payload] {
            next(part.len()).copy_from_slice(part);
        }
    }
}

/// How many of these strings have their length in front.
fn longs(codes: &[u8]) -> usize {
    codes.iter().filter(|&&code| code == LONG).count()
}

/// Makes what lies in `range` `bytes` long; what is in there then is nothing yet.
fn resize(payload: &mut Vec<u8>, range: Range<usize>, bytes: usize) {
    let old_end = payload.len();
    if bytes > range.len() {
        payload.resize(old_end + bytes - range.len(), 0);
        payload.copy_within(range.end..old_end, range.start + bytes);
    } else {
        payload.copy_within(range.end..old_end, range.start + bytes);
        payload.truncate(old_end - (range.len() - bytes));
    }
}
