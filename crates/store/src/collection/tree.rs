//! A tree: the elements of a collection that are too many for one leaf.
//!
//! ```text
//! root of a tree   item header (form: tree) │ expiry │ extension │ key │ pad to 8 │ root 56
//! root    0 number 4, height 1, height of members 1, longest string apart 2 │ 8 elements 8 │ 16 bytes of all nodes 8 │ 24 top 8 │ 32 moves 8 │ 40 state 8
//!         48 top of members 8, or of a hash the time of the field that expires first, 0 if none does; bit 63: what was due by
//!            then has begun to go
//!
//! node    0 header 8 │ 8 least key 8 │ 16 …
//! leaf    16 leaf: as in an item
//! inner   16 children 4, times 1 bit of 4 │ 24 key 8 × n │ child word 8 × n │ time 8 × n, of each child the earliest, if any
//!                                                                                          below expires
//!
//! child word   63 … 35 elements below │ 34 … 0 location
//! header       63 … 29 number of the tree │ 28 node │ 27 of members │ 26 part │ 25 … 22 level │ 21 first leaf │ 16 … 3 bytes │ kind 4
//! ```
//!
//! 1. A published node never changes, but for locations in child words, which follow nodes that move. A write makes a new
//!    leaf, new inner nodes on the way to it and a new root, which is published as any item is (`edit.rs`). So a
//!    reader with a root has a collection of one moment, for as long as the epoch, without a lock.
//! 2. Elements of a hash or a set are in the order of [`Store::order_of`] their names: 48 bits of a seeded hash. They are the
//!    higher bits of keys. Key i of an inner node is the least that child i may have; of the first it says nothing. In a leaf they are in the order of
//!    insertion. Those of a list are in its order, leaves and all (`places.rs`), and keys are labels (`labels.rs`). Members
//!    of a sorted set are in order, too, and keys are scores (`ranked.rs`).
//! 3. Nodes say the number of their tree, and a table whose key has the number (`fell.rs`): so sweeps find the owner of a
//!    chunk (`own.rs`), whatever its root is by then.
//! 4. A sorted set has a second tree under the same root and number, which leads from a member to its score
//!    (`members.rs`). One root has both: a reader has both of one moment.
//! 5. Of a hash in which fields expire inner nodes say when the first field below each child does (`timed.rs`).
//! 6. Rows of a stream are in order, too, and keys are what 64 bits say of where they are (`rows.rs`).
//! 7. An element of a list, a member of a set or a value of a field that is too long for a leaf lies in leaves without elements,
//!    behind one that says how long it is (`apart.rs`, `strings.rs`); a member of a sorted set in such of the members tree. Those
//!    leaves have pins, by which they stay in place while they are sent (`pinned.rs`).
//! 8. A root that is retired without a successor takes its nodes with it, in steps (`fell.rs`).

mod apart;
#[cfg(all(test, not(feature = "loom")))]
mod apart_tests;
#[cfg(all(test, not(feature = "loom")))]
mod carried_tests;
mod copy;
mod edit;
mod fell;
mod given;
#[cfg(all(test, not(feature = "loom")))]
mod given_tests;
mod labels;
mod late;
#[cfg(all(test, not(feature = "loom")))]
mod list_tests;
#[cfg(all(test, not(feature = "loom")))]
mod load_tests;
#[cfg(all(test, not(feature = "loom")))]
mod long_members_tests;
#[cfg(all(test, not(feature = "loom")))]
mod long_scored_tests;
mod many;
mod members;
mod own;
mod pinned;
mod places;
mod ranked;
#[cfg(all(test, not(feature = "loom")))]
mod received_tests;
mod rows;
mod scored;
mod scoring;
#[cfg(all(test, not(feature = "loom")))]
mod sorted_tests;
mod strings;
#[cfg(all(test, not(feature = "loom")))]
mod strings_tests;
#[cfg(all(test, not(feature = "loom")))]
mod testing;
#[cfg(all(test, not(feature = "loom")))]
pub(super) mod tests;
mod timed;
#[cfg(all(test, not(feature = "loom")))]
mod timed_tests;

pub use apart::Parts;
pub(crate) use apart::{PART_BYTES, PART_LEAD_BYTES, part_chunk_bytes};
pub(super) use copy::CopyCursor;
pub(crate) use edit::Edit;
pub(super) use edit::EditContext;
pub(crate) use fell::Trees;
pub(crate) use labels::relabel;
pub(super) use late::LateMembers;
pub(super) use many::at_once;
pub(super) use members::HEAD_BYTES as MEMBERS_HEAD_BYTES;
pub(crate) use own::{first_leaf, moves_of, owner_of_node, word_of};
pub use pinned::PinnedValue;
pub(crate) use pinned::{PinnedParts, is_let_go, part_pins};
pub(super) use places::Growth;
pub(super) use scoring::Move;

use super::build::MEMBER_BYTES_MAX;
use super::leaf::{HEAD_BYTES, Leaf, leaf_bytes};
use super::{Collection, DIGITS_MAX, Element, LongText, Type};
use crate::arena::Arena;
use crate::item::{Header, RawItem};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{Millis, Store};
use std::ops::Range;

/// Bytes of a root, behind an item's key.
pub(crate) const ROOT_BYTES: usize = size_of::<Root>();
const _: () = assert!(ROOT_BYTES == 56);
/// Bytes of a node before its leaf, or before the number of its children.
pub(super) const NODE_BYTES: usize = 16;
/// In the word that says how many children there are: they have times.
const TIMES: u64 = 1 << 63;
/// Bytes of an inner node without children.
const INNER_BYTES: usize = NODE_BYTES + 8;
/// A leaf of a tree is no longer than this, unless it has one entry only. Tests have small ones, and high trees.
const LEAF_BYTES: usize = if cfg!(any(test, feature = "schedule")) { 120 } else { 1008 };
/// Children of an inner node: 1,016 bytes.
const CHILDREN_MAX: usize = if cfg!(any(test, feature = "schedule")) { 5 } else { 62 };
/// A collection whose one leaf is longer is a tree, unless it has one entry only.
pub(super) const ITEM_LEAF_BYTES: usize = if cfg!(any(test, feature = "schedule")) { 240 } else { 2048 };
/// Levels of inner nodes: [`CHILDREN_MAX`] to the power of this is more than there can be.
const HEIGHT_MAX: usize = 16;
/// Bits of a hash that an order has not: the tag is among them. In keys of a hash or a set they are 0, or number parts.
const ORDER_SHIFT: u32 = 16;
/// Bits of a location in a child word.
const LOCATION_BITS: u32 = 35;
/// A tree has fewer elements than this.
const ELEMENTS_MAX: u64 = 1 << (u64::BITS - LOCATION_BITS);

/// What an item has of its tree.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Root {
    /// The number of the tree in the table.
    pub(crate) number: u32,
    /// Levels of inner nodes, at least 1.
    height: u8,
    /// Those of the members tree of a sorted set, at least 1; 0 of others.
    members_height: u8,
    /// The length of the longest value of a hash, or member of a set or a sorted set, that lies apart, in units of `strings.rs`;
    /// 0 if none does.
    apart: u16,
    pub(crate) elements: u64,
    /// Bytes of all nodes.
    pub(crate) bytes: u64,
    /// Location of the topmost inner node.
    top: AtomicU64,
    /// How often one of its nodes was moved; never 0.
    moves: AtomicU64,
    /// [`SUCCEEDED`], or 0; of one that is being taken apart, the location of the next.
    state: AtomicU64,
    /// Location of the topmost inner node of the members tree of a sorted set; of a hash when the first field expires, 0 for
    /// never, or [`BEGUN`], or [`SHORTENED`]; of a list how many elements lie apart (`apart.rs`), 0 if none does.
    beside: AtomicU64,
}

/// In the word of a hash: some of what was due at this time has gone, and the rest has not yet. All of it is gone for every
/// reader, a worker whose clock is behind among them.
const BEGUN: u64 = 1 << 63;

/// The same, and a value that was due has lost some of its parts: it is due by any clock, also by one that was set back since.
const SHORTENED: u64 = BEGUN | 1 << 62;

/// When the field of such a value expires: before any clock.
const LONG_AGO: Millis = 1;

/// Clocks of workers are no more apart than this: each is read once a second.
const CLOCKS_APART_MS: Millis = 2_000;

/// By which time fields go for a reader in a batch of the time `now`: that, or a later one by which some have gone. One that
/// is far ahead is of a clock that was set back since: it says nothing.
pub(super) fn cutoff_at(now: Millis, cutoff: Millis) -> Millis {
    if cutoff <= now + CLOCKS_APART_MS { now.max(cutoff) } else { now }
}

/// The nodes are another root's.
const SUCCEEDED: u64 = 1;

impl Root {
    /// When the first field of a hash expires, or a later time that has passed; 0: none does.
    pub(crate) fn soonest(&self) -> Millis {
        let word = self.beside.load(Ordering::Relaxed);
        if word & SHORTENED == SHORTENED { LONG_AGO } else { word & !BEGUN }
    }

    /// The time at which due fields of a hash are not there any more, whether they have been taken out or not; 0 if no such field
    /// is left.
    fn cutoff(&self) -> Millis {
        let word = self.beside.load(Ordering::Relaxed);
        if word & BEGUN == 0 { 0 } else { word & !SHORTENED }
    }

    /// A worker in a batch of this time has something to take out of a hash in which a field expires.
    pub(crate) fn is_due(&self, now: Millis) -> bool {
        self.soonest() <= cutoff_at(now, self.cutoff())
    }

    /// The nodes are another root's: they are not taken apart with this one.
    pub(crate) fn has_successor(&self) -> bool {
        self.state.load(Ordering::Relaxed) == SUCCEEDED
    }

    /// Another root has the nodes.
    pub(crate) fn leave_nodes(&self) {
        self.state.store(SUCCEEDED, Ordering::Relaxed);
    }
}

impl Store {
    /// Where a field or member is in the order of a tree.
    #[inline]
    pub(crate) fn order_of(&self, name: &[u8]) -> u64 {
        self.member_hash(name) >> ORDER_SHIFT
    }
}

/// What leads to a name with this hash in the tree of a hash or a set.
#[inline]
fn key_by(hash: u64) -> u64 {
    hash >> ORDER_SHIFT << ORDER_SHIFT
}

/// What leads to a field or a member: one that lies apart says it.
#[inline]
fn key_of_name(store: &Store, name: &Element<'_>) -> u64 {
    match name {
        Element::Apart(apart) => key_by(apart.label()),
        name => key_by(store.member_hash(name.text(&mut [0; DIGITS_MAX]))),
    }
}

#[inline]
fn word(elements: u64, location: u64) -> u64 {
    elements << LOCATION_BITS | location
}

#[inline]
fn location_of(word: u64) -> u64 {
    word & ((1 << LOCATION_BITS) - 1)
}

#[inline]
fn elements_of(word: u64) -> usize {
    (word >> LOCATION_BITS) as usize
}

/// A node's word at an offset.
///
/// # Safety
/// A node of this epoch is at the location, with a word there that is only accessed atomically.
#[inline]
unsafe fn node_word<'g>(arena: &Arena, location: u64, offset: usize) -> &'g AtomicU64 {
    debug_assert!(offset.is_multiple_of(8));
    // SAFETY: the caller's obligation; chunks are aligned to 8.
    unsafe { arena.at(location).add(offset).cast::<AtomicU64>().as_ref() }
}

/// The header of a node.
///
/// # Safety
/// A carved chunk is at the location.
#[inline]
unsafe fn header_of(arena: &Arena, location: u64) -> Header {
    // SAFETY: the caller's obligation.
    unsafe { RawItem::new(arena.at(location)) }.header()
}

/// An inner node.
#[derive(Clone, Copy, Debug)]
struct Inner<'g> {
    keys: &'g [u64],
    words: &'g [AtomicU64],
}

impl<'g> Inner<'g> {
    /// # Safety
    /// An inner node of this epoch is at the location.
    #[inline]
    unsafe fn at(arena: &Arena, location: u64) -> Inner<'g> {
        // SAFETY: the caller's obligation: so many keys and words are behind the number of children. Keys never change,
        // words are only accessed atomically.
        unsafe {
            let n = node_word(arena, location, NODE_BYTES).load(Ordering::Relaxed) as u32 as usize;
            let keys = arena.at(location).add(INNER_BYTES).cast::<u64>();
            Inner {
                keys: std::slice::from_raw_parts(keys.as_ptr(), n),
                words: std::slice::from_raw_parts(keys.add(n).cast::<AtomicU64>().as_ptr(), n),
            }
        }
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    /// Which child has the elements with this key.
    #[inline]
    fn child_of(&self, key: u64) -> usize {
        self.keys[1..].partition_point(|other| *other <= key)
    }

    #[inline]
    fn word(&self, i: usize) -> u64 {
        // Acquire: a reader that finds a node which has moved finds its bytes.
        self.words[i].load(Ordering::Acquire)
    }

    #[inline]
    fn location(&self, i: usize) -> u64 {
        location_of(self.word(i))
    }

    /// Elements of the children before `i`.
    fn before(&self, i: usize) -> usize {
        self.words[..i].iter().map(|word| elements_of(word.load(Ordering::Relaxed))).sum()
    }
}

/// The leaf of a leaf node.
///
/// # Safety
/// A leaf node of this epoch is at the location.
#[inline]
unsafe fn leaf_at<'g>(arena: &Arena, location: u64) -> Leaf<'g> {
    // SAFETY: the caller's obligation; its head says how long it is, and it never changes.
    unsafe {
        let at = arena.at(location).add(NODE_BYTES);
        let bytes = leaf_bytes(at.cast::<[u8; HEAD_BYTES]>().read());
        Leaf::of(std::slice::from_raw_parts(at.as_ptr(), bytes))
    }
}

/// The way to a leaf.
#[derive(Clone, Copy, Debug)]
struct Path {
    /// Inner nodes from the top down, and which child each goes on with.
    steps: [(u64, usize); HEIGHT_MAX],
    leaf: u64,
}

impl Path {
    /// The least key that child `i` of the inner node at a depth may have. Of its first one a node does not say it: what
    /// is above does.
    fn low(&self, arena: &Arena, depth: usize, i: usize) -> u64 {
        let above = self.steps[..depth].iter().rev().copied();
        let here = std::iter::once((self.steps[depth].0, i));
        let (location, i) = here.chain(above).find(|(_, i)| *i > 0).unwrap_or((0, 0));
        // SAFETY: an inner node of the tree or edit that the path is of.
        if i > 0 { unsafe { Inner::at(arena, location) }.keys[i] } else { 0 }
    }

    /// Goes on to the next node below an inner node at a depth, or below the one behind it: the word that names it, none
    /// if it is the last. What the path says of deeper nodes is nothing then.
    fn go_on(&mut self, arena: &Arena, depth: usize) -> Option<u64> {
        // SAFETY: inner nodes of the tree or edit that the path is of; so below.
        let at = |(location, i): (u64, usize)| (unsafe { Inner::at(arena, location) }, i);
        let up = (0..=depth).rev().find(|&depth| {
            let (inner, i) = at(self.steps[depth]);
            i + 1 < inner.len()
        })?;
        self.steps[up].1 += 1;
        for below in up + 1..=depth {
            let (inner, i) = at(self.steps[below - 1]);
            self.steps[below] = (inner.location(i), 0);
        }
        let (inner, i) = at(self.steps[depth]);
        Some(inner.word(i))
    }

    /// Everything is to the right of it.
    fn is_first(&self, height: usize) -> bool {
        self.steps[..height].iter().all(|(_, i)| *i == 0)
    }
}

/// A tree of one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree<'g> {
    store: &'g Store,
    kind: Type,
    top: u64,
    height: usize,
    len: usize,
    bytes: usize,
    /// The topmost node of the members tree of a sorted set.
    members: u64,
    members_height: usize,
    /// What lies apart of a list (`apart.rs`), a hash, a set or a sorted set (`strings.rs`); 0 if nothing does.
    apart: u64,
    /// When the first field of a hash expires; 0 for never.
    soonest: Millis,
    /// See [`Root::cutoff`].
    cutoff: Millis,
}

impl<'g> Tree<'g> {
    /// # Safety
    /// The item is a collection in a tree, and was reachable in this epoch, which `'g` ends before.
    pub(super) unsafe fn of(store: &'g Store, item: RawItem) -> Tree<'g> {
        let header = item.header();
        // SAFETY: the caller's obligation.
        let root = unsafe { item.root(header) };
        let kind = Type::of_form(header.form());
        Tree {
            store,
            kind,
            top: root.top.load(Ordering::Acquire),
            height: root.height as usize,
            len: root.elements as usize,
            bytes: root.bytes as usize,
            members: root.beside.load(Ordering::Acquire),
            members_height: root.members_height as usize,
            apart: root.apart(kind),
            soonest: if header.is_timed() { root.soonest() } else { 0 },
            cutoff: if header.is_timed() { root.cutoff() } else { 0 },
        }
    }

    pub(super) fn kind(&self) -> Type {
        self.kind
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all nodes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the first field of a hash expires; 0 for never.
    pub(super) fn soonest(&self) -> Millis {
        self.soonest
    }

    /// Fields that were due at this time are not there any more; 0 if no such field is left.
    pub(super) fn cutoff(&self) -> Millis {
        self.cutoff
    }

    fn inner(&self, location: u64) -> Inner<'g> {
        // SAFETY: an inner node of this tree, of the epoch that `'g` ends before.
        unsafe { Inner::at(&self.store.arena, location) }
    }

    fn leaf(&self, location: u64) -> Leaf<'g> {
        // SAFETY: a leaf of this tree, of the epoch that `'g` ends before.
        unsafe { leaf_at(&self.store.arena, location) }
    }

    /// The leaf for elements with this key.
    #[inline]
    fn leaf_of(&self, key: u64) -> Leaf<'g> {
        let mut location = self.top;
        for _ in 0..self.height {
            let inner = self.inner(location);
            location = inner.location(inner.child_of(key));
        }
        self.leaf(location)
    }

    /// A name may be there: one that is longer than a leaf only where something as long lies apart. It is not hashed for that.
    #[inline]
    fn may_have(&self, name: &[u8]) -> bool {
        name.len() <= MEMBER_BYTES_MAX || name.len() as u64 <= self.apart
    }

    /// Where a name with this hash is in its leaf, if it is there at this time.
    #[inline]
    fn find_in(&self, leaf: &Leaf<'_>, (name, hash): (&[u8], u64), now: Millis) -> Option<usize> {
        if name.len() <= MEMBER_BYTES_MAX {
            leaf.find_live(name, hash as u8, now)
        } else {
            self.find_long(leaf, (name, hash))
        }
    }

    /// The same of one that lies apart: its order, its tag and its length are as they should be before any byte is compared.
    #[cold]
    fn find_long(&self, leaf: &Leaf<'_>, (name, hash): (&[u8], u64)) -> Option<usize> {
        let is = |apart: &LongText<'_>| key_by(apart.label()) == key_by(hash) && self.is_text(apart, name);
        leaf.find_apart(hash as u8, is)
    }

    /// The entry of a name, if it is there at this time: its leaf, and its place there.
    #[inline]
    pub(super) fn entry_of(&self, name: &[u8], now: Millis) -> Option<(Leaf<'g>, usize)> {
        if !self.may_have(name) {
            return None;
        }
        let hash = self.store.member_hash(name);
        let leaf = self.leaf_of(key_by(hash));
        self.find_in(&leaf, (name, hash), now).map(|i| (leaf, i))
    }

    /// Where the leaf for elements with this key is among all elements, the leaf, and the least key that is behind it.
    fn place_of(&self, key: u64) -> (usize, Leaf<'g>, Option<u64>) {
        let (mut location, mut before, mut next) = (self.top, 0, None);
        for _ in 0..self.height {
            let inner = self.inner(location);
            let i = inner.child_of(key);
            before += inner.before(i);
            next = inner.keys.get(i + 1).copied().or(next);
            location = inner.location(i);
        }
        (before, self.leaf(location), next)
    }

    /// Where an element is among all, if it is there at this time.
    pub(super) fn find_live(&self, name: &[u8], now: Millis) -> Option<usize> {
        if !self.may_have(name) {
            return None;
        }
        let hash = self.store.member_hash(name);
        let (before, leaf, _) = self.place_of(key_by(hash));
        self.find_in(&leaf, (name, hash), now).map(|i| before + i)
    }

    /// The leaf that has element `i`, and where it begins among all.
    ///
    /// # Panics
    /// If there are no more than `i`.
    pub(super) fn leaf_with(&self, i: usize) -> (Leaf<'g>, usize) {
        let (location, start) = self.location_with(i);
        (self.leaf(location), start)
    }

    /// The same of where the leaf lies.
    fn location_with(&self, i: usize) -> (u64, usize) {
        assert!(i < self.len, "an element that is not there");
        let (mut location, mut start) = (self.top, 0);
        for _ in 0..self.height {
            let inner = self.inner(location);
            let child = inner.words.iter().find_map(|word| {
                let word = word.load(Ordering::Acquire);
                let elements = elements_of(word);
                if i < start + elements {
                    return Some(location_of(word));
                }
                start += elements;
                None
            });
            location = child.expect("children have as many elements as is said above them");
        }
        (location, start)
    }

    /// Adds the places of the elements of one leaf, that with this order, to `places`; the least order behind it, none if
    /// it is the last.
    fn scan(&self, order: u64, places: &mut Vec<Range<usize>>) -> Option<u64> {
        if self.kind == Type::SortedSet {
            return self.scan_members(order, places);
        }
        let (before, leaf, next) = self.place_of(order << ORDER_SHIFT);
        places.push(before..before + leaf.len());
        if before + leaf.len() == self.len {
            // Nothing but parts may follow.
            return None;
        }
        // Parts have the order of the element before them: what follows them has one of its own.
        next.map(|key| key.div_ceil(1 << ORDER_SHIFT)).filter(|order| *order < 1 << (u64::BITS - ORDER_SHIFT))
    }
}

impl<'g> Collection<'g> {
    /// Adds the places of some entries to `places`, and says the cursor for those that follow; 0 if there are none. A
    /// walk from 0 until it is 0 again has met every element that was there all the time, whatever else was changed
    /// meanwhile, a member's score, too; others perhaps, and some twice. Cursors are below 2^48. Not of a list.
    pub fn scan(&self, cursor: u64, places: &mut Vec<Range<usize>>) -> u64 {
        debug_assert!(self.kind() != Type::List, "elements of a list are read by their places");
        match self.tree() {
            None => {
                places.push(0..self.len());
                0
            }
            Some(tree) => tree.scan(cursor, places).unwrap_or(0),
        }
    }
}
