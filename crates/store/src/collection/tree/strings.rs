//! Values of fields and members of sets and sorted sets that are too long for a leaf: they lie *apart*, in leaves of the tree
//! that have no entries.
//!
//! ```text
//! key     63 … 16 order of a name │ 15 … 0 number of a part; 0 of a leaf with entries
//!
//! … leaf │ leaf: …, field of order o: bytes, label o.0 │ part o.1 │ part o.2 │ … │ leaf …        or member of order o
//! ```
//!
//! All of them are leaves of the tree, which are moved, copied, counted and taken apart as others are. What is different, said of
//! fields, and so of members:
//!
//! 1. A leaf with a field whose value lies apart has no field behind the order of that one: its parts are next to the leaf. So
//!    one that is put in cuts the leaf there, and all other fields of the leaf may be short ones.
//! 2. What a field says of its value is how long it is, and the *label*: the key before that of the first part. Where
//!    several fields have one order, parts of each are numbered behind each other. No key changes, and no label. A member says
//!    the same of itself: so its order is known without a look at its parts.
//! 3. A field whose order is behind the parts and before the next leaf belongs to no leaf. The way to it ends at a part,
//!    where nothing is found; the first such field that is put in gets a leaf behind the parts.
//! 4. Parts go before the leaf that named them is made anew, and come after it. No key of theirs is left above the leaves then.
//! 5. A member is found by its order, its tag and its length; of what has these the parts are compared with it where they lie.
//! 6. Parts of members of a sorted set are in its members tree, where keys are hashes (`members.rs`), and leaves of both trees
//!    name them.

use super::super::build::{Builder, FIELD_BYTES_MAX, MEMBER_BYTES_MAX, NewEntry, fits_alone, lies_apart};
use super::super::change::Declined;
use super::super::element::LongText;
use super::super::leaf::Leaf;
use super::apart::{ELEMENT_BYTES_MAX, NewElement, PART_BYTES, RECEIVED_BYTES_MAX};
use super::{
    ELEMENTS_MAX, Edit, EditContext, Growth, LONG_AGO, ORDER_SHIFT, Path, Root, Tree, header_of, key_by,
    key_of_name, location_of, node_word,
};
use crate::Store;
use crate::collection::{Element, Entry, Lasting, Received, Type};
use crate::sync::atomic::Ordering;
use std::collections::HashSet;

/// Parts of strings of one order, at most.
pub(super) const PARTS_MAX: u64 = (1 << ORDER_SHIFT) - 1;
/// What a member of a sorted set may have that lies apart, if memory is large enough.
const SCORED_APART_BYTES_MAX: usize = 1 << 20;
/// What the longest string is counted in by a root, up to so many of these units, …
const APART_UNIT: u64 = 128;
const APART_UNITS: u64 = 1 << 15;
/// … and behind them: strings that were received.
const APART_LONG_UNIT: u64 = 16 << 10;
/// Parts that are left of a value that loses its last ones: of so many bytes it lies apart still.
const PARTS_LEFT: usize = FIELD_BYTES_MAX / PART_BYTES + 1;

const _: () = assert!(ELEMENT_BYTES_MAX == APART_UNIT * APART_UNITS);
const _: () = assert!(units_of(RECEIVED_BYTES_MAX) <= u16::MAX as u64);
const _: () = assert!((RECEIVED_BYTES_MAX as usize).div_ceil(PART_BYTES) < PARTS_MAX as usize);

/// The units of a string of so many bytes.
const fn units_of(bytes: u64) -> u64 {
    let short = APART_UNIT * APART_UNITS;
    if bytes <= short {
        bytes.div_ceil(APART_UNIT)
    } else {
        APART_UNITS + (bytes - short).div_ceil(APART_LONG_UNIT)
    }
}

/// Bytes that a string of so many units has at most.
pub(super) fn bytes_of_units(units: u64) -> u64 {
    units.min(APART_UNITS) * APART_UNIT + units.saturating_sub(APART_UNITS) * APART_LONG_UNIT
}

/// The longest string as the root of a tree of so many bytes says it: 0 where no string can lie apart.
pub(super) fn apart_units(longest: u64, bytes: u64) -> u16 {
    if bytes <= FIELD_BYTES_MAX as u64 { 0 } else { units_of(longest.min(bytes)) as u16 }
}

/// The least key behind all parts of the order that a part with this key has.
pub(super) fn behind_parts(key: u64) -> u64 {
    // No order is behind the last one, so that nothing is put behind its parts.
    (key | PARTS_MAX).wrapping_add(1)
}

/// What lies apart of an entry of a hash or a set, where something does: its value, or its name.
pub(super) fn long_text<'p>(kind: Type, name: &'p [u8], value: &'p [u8]) -> &'p [u8] {
    if kind == Type::Set { name } else { value }
}

/// Parts of a string.
pub(super) fn parts_of(bytes: usize) -> usize {
    bytes.div_ceil(PART_BYTES)
}

impl Root {
    /// What lies apart, as [`Tree`] and [`Edit`] have it: of a list the word of `apart.rs`, of others what the longest string
    /// has, at most, as far as is known; 0 if none does.
    pub(super) fn apart(&self, kind: Type) -> u64 {
        match kind {
            Type::List => self.beside.load(Ordering::Relaxed),
            Type::Hash | Type::Set | Type::SortedSet | Type::Stream => {
                bytes_of_units(u64::from(self.apart)).min(self.bytes)
            }
        }
    }
}

impl Edit {
    /// Entry `i` of the leaf that is built is about to go, or gets another value: what lies apart of it goes with it.
    #[inline]
    pub(super) fn loosen(&mut self, builder: &Builder, i: usize) {
        if self.apart > 0 {
            // Of a sorted set the members tree has the parts, and notes them.
            debug_assert_ne!(builder.kind(), Type::SortedSet, "its parts would go twice");
            self.note_loose(&builder.leaf().entry(i));
        }
    }

    fn note_loose(&mut self, entry: &Entry<'_>) {
        if let Some(apart) = entry.apart() {
            self.loose.push((apart.label(), apart.len()));
        }
    }

    /// Loads a leaf of a tree in which something lies apart: of a part nothing. What goes with fields that are due is noted.
    pub(super) fn load_beside_parts(&mut self, cx: &EditContext<'_>, leaf: &Leaf<'_>, builder: &mut Builder) {
        if leaf.len() == 0 {
            return builder.start(leaf.kind());
        }
        debug_assert_ne!(leaf.kind(), Type::SortedSet, "its parts are in the other tree");
        let now = self.now(cx.local);
        if leaf.soonest() != 0 && leaf.soonest() <= now {
            let due = leaf.entries(0..leaf.len()).filter(|entry| !entry.is_live(now));
            due.for_each(|entry| self.note_loose(&entry));
        }
        builder.load(leaf);
    }

    /// Loads the leaf at the end of a path as it is, but for a due value that has more parts than `parts_max`: so many of its
    /// last parts go. From here on no reader finds what is due, and none finds that value, whatever its clock says. False, and
    /// nothing loaded, if the leaf has no such value.
    pub(super) fn load_shortened(
        &mut self,
        cx: &EditContext<'_>,
        path: &Path,
        builder: &mut Builder,
        parts_max: usize,
    ) -> Result<bool, Declined> {
        if self.apart == 0 {
            return Ok(false);
        }
        let (leaf, now) = (self.leaf(cx.store, path), self.now(cx.local));
        let long = leaf.entries(0..leaf.len()).enumerate().find_map(|(i, entry)| {
            let apart = entry.apart().filter(|_| !entry.is_live(now))?;
            (parts_of(apart.len()) > parts_max.max(PARTS_LEFT)).then_some((i, apart))
        });
        let Some((i, apart)) = long else { return Ok(false) };
        let left = (parts_of(apart.len()) - parts_max).max(PARTS_LEFT);
        builder.load(&leaf);
        builder.make_roomy();
        builder.set_value_apart(i, &LongText::packed(left * PART_BYTES, apart.label()))?;
        builder.set_time(i, LONG_AGO);
        self.loose.push((apart.label() + left as u64, apart.len() - left * PART_BYTES));
        self.cutoff = now;
        Ok(true)
    }

    /// Takes out the parts of strings that no entry of the leaf at the end of the path has any more. The path leads to the same
    /// leaf then.
    #[inline]
    pub(super) fn remove_loose(&mut self, cx: &mut EditContext<'_>, path: &mut Path) -> Result<(), Declined> {
        if self.loose.is_empty() { Ok(()) } else { self.remove_loose_parts(cx, path) }
    }

    #[cold]
    fn remove_loose_parts(&mut self, cx: &mut EditContext<'_>, path: &mut Path) -> Result<(), Declined> {
        let depth = self.height - 1;
        let low = path.low(&cx.store.arena, depth, path.steps[depth].1);
        // Else keys of theirs would lead behind those that come in their place.
        self.leads_back = true;
        let unmarked = self.unmarked;
        let mut done = Ok(());
        while let Some((label, bytes)) = self.loose.pop()
            && done.is_ok()
        {
            let first = self.path(cx.store, label + 1);
            done = self.remove_run(cx, first, parts_of(bytes));
        }
        self.leads_back = false;
        // Those of a members tree say nothing of the first leaf of the other.
        self.unmarked = if self.in_members { unmarked } else { self.unmarked };
        done?;
        *path = self.path(cx.store, low);
        Ok(())
    }

    /// Has the leaf that is built name a value that lies apart, of the field that is `there` or of a new one at the end, or a new
    /// member that does. `text`: what lies apart. Its label.
    #[cold]
    pub(super) fn put_reference(
        &mut self,
        cx: &EditContext<'_>,
        builder: &mut Builder,
        (there, hash): (Option<usize>, u64),
        (name, text): (&[u8], &NewElement<'_>),
    ) -> Result<u64, Declined> {
        let (kind, end, bytes) = (builder.kind(), builder.leaf().len(), text.len());
        if text.is_too_long(cx.store) {
            return Err(Declined::TooLarge);
        }
        match there {
            // Its labels are free again.
            Some(i) => builder.set_value(i, name.len(), b"")?,
            None if kind == Type::Set => {}
            None => builder.insert(end, NewEntry { tag: hash as u8, name, value: b"", score: 0.0 })?,
        }
        let label = free_label(&builder.leaf(), key_by(hash), bytes).ok_or(Declined::TooLarge)?;
        let packed = LongText::packed(bytes, label);
        if kind == Type::Set {
            builder.push_apart(hash as u8, &packed)?;
        } else {
            builder.set_value_apart(there.unwrap_or(end), &packed)?;
        }
        self.apart = self.apart.max(bytes as u64);
        Ok(label)
    }

    /// Makes the parts of a string, behind the leaf that its label leads to.
    #[cold]
    pub(super) fn put_parts(
        &mut self,
        cx: &mut EditContext<'_>,
        (kind, label): (Type, u64),
        text: NewElement<'_>,
    ) -> Result<(), Declined> {
        let path = self.path(cx.store, label);
        let depth = self.height - 1;
        let behind = path.steps[depth].1 + 1;
        debug_assert!(self.news.is_empty());
        self.write_all_parts(cx, (kind, label + 1), text)?;
        self.growth = Growth::Within;
        self.climb(cx, &path, depth, behind..behind)
    }

    /// Gives a field a value that was received, and says how long it lasts; whether the field is new. Fields of the same leaf
    /// whose time has passed go.
    #[cold]
    pub(in crate::collection) fn put_received(
        &mut self,
        cx: &mut EditContext<'_>,
        field: &[u8],
        received: Received,
        lasting: Lasting,
    ) -> Result<bool, Declined> {
        let hash = cx.store.member_hash(field);
        let mut builder = std::mem::take(&mut self.builder);
        let value = NewElement::Received(received);
        let done = if self.height == 0 {
            self.put_first_received(cx, &mut builder, (field, hash), value, lasting)
        } else {
            self.put_received_by(cx, &mut builder, (field, hash), value, lasting)
        };
        self.builder = builder;
        done
    }

    /// The same of the first field, into a tree that has none.
    fn put_first_received(
        &mut self,
        cx: &mut EditContext<'_>,
        builder: &mut Builder,
        (field, hash): (&[u8], u64),
        value: NewElement<'_>,
        lasting: Lasting,
    ) -> Result<bool, Declined> {
        debug_assert!(self.elements == 0 && self.news.is_empty());
        builder.start(Type::Hash);
        let label = self.put_reference(cx, builder, (None, hash), (field, &value))?;
        lasting.note(builder, 0);
        self.elements = 1;
        self.unmarked = true;
        self.write_leaf(cx, builder, 0)?;
        self.write_all_parts(cx, (Type::Hash, label + 1), value)?;
        self.write_top(cx, 1)?;
        Ok(true)
    }

    /// The same into a tree with fields, by way of a copy of the leaf that the field belongs to.
    fn put_received_by(
        &mut self,
        cx: &mut EditContext<'_>,
        builder: &mut Builder,
        (field, hash): (&[u8], u64),
        value: NewElement<'_>,
        lasting: Lasting,
    ) -> Result<bool, Declined> {
        let mut path = self.path(cx.store, key_by(hash));
        self.load_live(cx, &path, builder);
        let end = builder.leaf().len();
        let there = builder.leaf().find(field, hash as u8);
        if let Some(i) = there {
            self.loosen(builder, i);
        }
        let label = self.put_reference(cx, builder, (there, hash), (field, &value))?;
        lasting.note(builder, there.unwrap_or(end));
        let new = there.is_none();
        if new && self.elements + 1 >= ELEMENTS_MAX {
            return Err(Declined::TooLarge);
        }
        self.elements += u64::from(new);
        self.remove_loose(cx, &mut path)?;
        self.store_leaf(cx, &path, builder)?;
        self.put_parts(cx, (Type::Hash, label), value)?;
        Ok(new)
    }

    /// Puts a member that was received, and has this hash, into a set, if it is not there; whether it was not.
    #[cold]
    pub(in crate::collection) fn add_received(
        &mut self,
        cx: &mut EditContext<'_>,
        hash: u64,
        received: Received,
    ) -> Result<bool, Declined> {
        let mut builder = std::mem::take(&mut self.builder);
        let done = self.add_received_by(cx, &mut builder, hash, received);
        self.builder = builder;
        done
    }

    fn add_received_by(
        &mut self,
        cx: &mut EditContext<'_>,
        builder: &mut Builder,
        hash: u64,
        received: Received,
    ) -> Result<bool, Declined> {
        let member = NewElement::Received(received);
        if self.height == 0 {
            debug_assert!(self.elements == 0 && self.news.is_empty());
            builder.start(Type::Set);
            let label = self.put_reference(cx, builder, (None, hash), (&b""[..], &member))?;
            self.elements = 1;
            self.unmarked = true;
            self.write_leaf(cx, builder, 0)?;
            self.write_all_parts(cx, (Type::Set, label + 1), member)?;
            self.write_top(cx, 1)?;
            return Ok(true);
        }
        let path = self.path(cx.store, key_by(hash));
        if self.has_received(cx.store, &self.leaf(cx.store, &path), hash, received) {
            return Ok(false);
        }
        if self.elements + 1 >= ELEMENTS_MAX {
            return Err(Declined::TooLarge);
        }
        self.load_live(cx, &path, builder);
        let label = self.put_reference(cx, builder, (None, hash), (&b""[..], &member))?;
        self.elements += 1;
        self.store_leaf(cx, &path, builder)?;
        self.put_parts(cx, (Type::Set, label), member)?;
        Ok(true)
    }

    /// A leaf of a set names a member that is one that was received: their parts are compared where they lie.
    fn has_received(&self, store: &Store, leaf: &Leaf<'_>, hash: u64, received: Received) -> bool {
        if received.bytes() as u64 > self.apart {
            return false;
        }
        let tree = self.tree(store, Type::Set);
        let is = |apart: &LongText<'_>| {
            key_by(apart.label()) == key_by(hash)
                && apart.len() == received.bytes()
                && tree.parts(apart).eq(received.blocks(store))
        };
        leaf.find_apart(hash as u8, is).is_some()
    }

    /// Takes out the member of a set that lies apart and is named so; whether it was there.
    #[cold]
    pub(in crate::collection) fn take_long(
        &mut self,
        cx: &mut EditContext<'_>,
        named: &LongText<'_>,
    ) -> Result<bool, Declined> {
        let mut path = self.path(cx.store, key_by(named.label()));
        let leaf = self.leaf(cx.store, &path);
        let is_named = |entry: Entry<'_>| entry.apart().is_some_and(|it| it.as_packed() == named.as_packed());
        let Some(i) = leaf.entries(0..leaf.len()).position(is_named) else { return Ok(false) };
        let mut builder = std::mem::take(&mut self.builder);
        self.load_live(cx, &path, &mut builder);
        self.loosen(&builder, i);
        builder.remove(i..i + 1);
        self.elements -= 1;
        let done = self.remove_loose(cx, &mut path).and_then(|()| self.store_leaf(cx, &path, &mut builder));
        self.builder = builder;
        done.map(|()| true)
    }

    /// Puts the first field or member, which has this hash, into a tree that has none.
    #[cold]
    pub(super) fn put_first(
        &mut self,
        cx: &mut EditContext<'_>,
        (kind, hash): (Type, u64),
        (name, value): (&[u8], &[u8]),
        lasting: Lasting,
    ) -> Result<bool, Declined> {
        debug_assert!(self.elements == 0 && self.news.is_empty());
        let mut builder = std::mem::take(&mut self.builder);
        builder.start(kind);
        let label = if lies_apart(kind, name, value) {
            let text = NewElement::Text(long_text(kind, name, value));
            self.put_reference(cx, &mut builder, (None, hash), (name, &text)).map(Some)
        } else {
            let built = builder.insert(0, NewEntry { tag: hash as u8, name, value, score: 0.0 });
            built.map(|()| None).map_err(Declined::from)
        };
        let done = label.and_then(|label| {
            if kind == Type::Hash {
                lasting.note(&mut builder, 0);
            }
            self.elements = 1;
            self.unmarked = true;
            self.write_leaf(cx, &builder, 0)?;
            if let Some(label) = label {
                let text = NewElement::Text(long_text(kind, name, value));
                self.write_all_parts(cx, (kind, label + 1), text)?;
            }
            self.write_top(cx, 1)
        });
        self.builder = builder;
        done.map(|()| true)
    }
}

/// Keys and bytes of the parts of a string.
pub(super) fn keys_of_parts(label: u64, bytes: usize) -> impl Iterator<Item = (u64, usize)> {
    let starts = (0..bytes).step_by(PART_BYTES);
    (label + 1..).zip(starts.map(move |start| PART_BYTES.min(bytes - start)))
}

/// The first label behind which there are numbers for the parts of a string of so many bytes, of an order whose first key is
/// `key`, and all of whose fields or members are in a leaf.
pub(super) fn free_label(leaf: &Leaf<'_>, key: u64, bytes: usize) -> Option<u64> {
    let taken = leaf
        .entries(0..leaf.len())
        .filter_map(|entry| entry.apart())
        .filter(|apart| key_by(apart.label()) == key)
        .map(|apart| (apart.label(), parts_of(apart.len()) as u64));
    first_gap(taken.collect(), key, bytes)
}

/// The same, given the labels that are taken, and how many parts each has.
pub(super) fn first_gap(mut taken: Vec<(u64, u64)>, key: u64, bytes: usize) -> Option<u64> {
    taken.sort_unstable();
    let parts = parts_of(bytes) as u64;
    let mut label = key;
    for (other, its_parts) in taken {
        if label + parts <= other {
            break;
        }
        label = other + its_parts;
    }
    (label + parts <= key + PARTS_MAX).then_some(label)
}

impl Store {
    /// A field with its value, a member or an element is no longer than one may be, whatever else is there.
    pub fn element_fits(&self, kind: Type, name: &[u8], value: &[u8]) -> bool {
        match kind {
            Type::List => name.len() <= self.element_bytes_max(),
            Type::Hash | Type::Set if lies_apart(kind, name, value) => {
                long_text(kind, name, value).len() <= self.element_bytes_max()
            }
            Type::SortedSet if lies_apart(kind, name, value) => name.len() <= self.scored_bytes_max(),
            Type::Hash | Type::Set | Type::SortedSet | Type::Stream => fits_alone(kind, name, value),
        }
    }

    /// All elements fit whose names and values have no more bytes each.
    pub fn elements_fit(&self, kind: Type, longest: usize) -> bool {
        match kind {
            Type::List | Type::Set => longest <= self.element_bytes_max(),
            // No value lies apart, and no name is too long.
            Type::Hash => 2 * longest <= FIELD_BYTES_MAX,
            Type::SortedSet => longest <= self.scored_bytes_max(),
            Type::Stream => false,
        }
    }

    /// Bytes that a member of a sorted set may have. One that is put in is compared with some twenty others of its score, each
    /// from the first byte on, so that it has less than a member of a set may have.
    pub fn scored_bytes_max(&self) -> usize {
        self.element_bytes_max().min(SCORED_APART_BYTES_MAX)
    }

    /// Checks that behind each leaf are all parts of what lies apart of its entries, and no others anywhere.
    ///
    /// # Panics
    /// If it is not so.
    pub(super) fn check_strings(&self, tree: &Tree<'_>) {
        let mut path = tree.path_to(0);
        let mut at = path.leaf;
        // Keys and bytes of the parts that are to come.
        let mut owed: Vec<(u64, usize)> = Vec::new();
        loop {
            let leaf = tree.leaf(at);
            if leaf.len() == 0 {
                let (key, bytes) = owed.pop().expect("a part of no string");
                // SAFETY: the store is at rest, and the tree names a leaf there.
                let (header, own) = unsafe {
                    (header_of(&self.arena, at), node_word(&self.arena, at, 8).load(Ordering::Relaxed))
                };
                assert!(header.is_part(), "a part without pins");
                assert_eq!(
                    (key_by(own), leaf.payload.len()),
                    (key_by(key), bytes),
                    "a part of another string"
                );
                assert!(own <= key, "a part is not found by its key");
            } else {
                assert!(owed.is_empty(), "a string without its parts");
                if leaf.has_apart() {
                    owed = self.parts_owed(tree, &leaf);
                    let last = key_by(owed[0].0);
                    for entry in leaf.entries(0..leaf.len()) {
                        let key = key_of_name(self, &entry.name);
                        let is_apart = entry.apart().is_some();
                        assert!(key == last || key < last && !is_apart, "an entry behind one with parts");
                    }
                    self.check_members_apart(tree, &leaf);
                }
            }
            let Some(word) = path.go_on(&self.arena, tree.height - 1) else { break };
            at = location_of(word);
        }
        assert!(owed.is_empty(), "a string without its parts");
    }

    /// Checks that members of a leaf that lie apart have the tags and the orders that are said, and that none is there twice.
    fn check_members_apart(&self, tree: &Tree<'_>, leaf: &Leaf<'_>) {
        let mut there = HashSet::new();
        for (entry, tag) in leaf.entries(0..leaf.len()).zip(leaf.tags) {
            let Element::Apart(apart) = entry.name else { continue };
            let text: Vec<u8> = tree.parts(&apart).flatten().copied().collect();
            let hash = self.member_hash(&text);
            assert_eq!((key_by(hash), hash as u8), (key_by(apart.label()), *tag), "another member's parts");
            assert!(text.len() > MEMBER_BYTES_MAX, "what fits a leaf lies in one");
            assert!(there.insert(text), "a member twice");
        }
    }

    /// Keys and bytes of the parts of what lies apart of the entries of a leaf, the last first.
    fn parts_owed(&self, tree: &Tree<'_>, leaf: &Leaf<'_>) -> Vec<(u64, usize)> {
        let mut owed = Vec::new();
        for entry in leaf.entries(0..leaf.len()) {
            let Some(apart) = entry.apart() else { continue };
            assert!((1..=tree.apart as usize).contains(&apart.len()), "a string longer than the root says");
            let bytes = entry.name.len() + entry.value.len();
            assert!(bytes > FIELD_BYTES_MAX, "what fits a leaf lies in one");
            owed.extend(keys_of_parts(apart.label(), apart.len()));
        }
        owed.sort_unstable();
        owed.windows(2).for_each(|two| assert!(two[0].0 < two[1].0, "a part of two strings"));
        owed.reverse();
        owed
    }
}
