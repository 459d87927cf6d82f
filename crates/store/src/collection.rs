//! Collections: hashes, sets, sorted sets, lists and streams, each one item.
//!
//! ```text
//! item    header (kind 3, form ≠ 0) │ expiry? │ extension? │ key │ pad to 8 │ leaf, or root of a tree
//! form    13 … 6 spare │ 5 some field expires │ 4 tree │ 3 … 0 type: 1 hash, 2 set, 3 sorted set, 4 list, 5 stream
//! ```
//!
//! All of a small collection is one leaf ([`leaf`]), which never changes: a write makes a new item, as a `set` does, so
//! that a reader holds no lock and sees the collection of one moment. Index, eviction, expiry, moves, watches and
//! versions are those of any item. One of more than 2 KiB is a tree of such leaves ([`tree`]), of which a write makes those
//! anew that lead to what it changes, and the item, which has the root. A sorted set has two trees under one root.
//!
//! ```text
//! write   look ─▶ change a copy of the leaf ─▶ allocate, copy ─▶ publish if no other was faster, else again
//! ```
//!
//! - No collection is empty: the last element takes the key with it.
//! - Fields of a hash may expire, each at its own time ([`fields`]).
//! - Expiry stays when elements change; each change is a new version, which watches see.
//! - No name of a field or entry is larger than a chunk, no element of a list, member of a set or value of a field larger than
//!   [`Store::element_bytes_max`], and no member of a sorted set larger than [`Store::scored_bytes_max`]: what would be is
//!   refused ([`Declined::TooLarge`]), and nothing is changed.
//!
//! `element.rs`, `scores.rs`, `leaf.rs` and `build.rs` know bytes and nothing of the store; `hash.rs`, `set.rs`, `sorted.rs`,
//! `list.rs`, `carried.rs`, `received.rs`, `stream.rs`, `whole.rs` and `load.rs` are the verbs; `change.rs` is what all that write
//! have in common; `tree.rs` is the tree. A stream is of rows, and what is said of entries here is not said of it.

mod build;
mod carried;
mod change;
mod element;
mod fields;
mod hash;
mod leaf;
mod list;
mod load;
mod received;
mod scores;
mod set;
mod sorted;
mod stream;
#[cfg(all(test, not(feature = "loom")))]
mod tests;
mod times;
mod tree;
mod whole;

pub(crate) use build::{Builder, MEMBER_BYTES_MAX};
pub use change::Declined;
pub use element::{DIGITS_MAX, Element, LongMember, LongText, Run};
pub(crate) use fields::UPKEEP_STEPS;
pub use fields::{Due, Fields, Lasting, Timed};
pub use hash::TakenOut;
pub use leaf::{Entry, Removed};
pub(crate) use leaf::{HEAD_BYTES, Leaf, leaf_bytes, leaf_entries};
pub use list::Trimmed;
pub use load::{BulkLoad, Copied};
pub(crate) use received::Received;
pub use sorted::{ScoreRule, Scored};
pub use stream::{
    Added, Adding, AutoClaimed, Claim, Consumer, ConsumerLoad, Delivered, Group, GroupLoad, NewFields, NewId,
    PendingEntry, Removal, Start, Stream, StreamEntries, StreamEntriesBack, StreamEntry, StreamFields,
    StreamId, StreamLoad, StreamRefusal, StreamTrimmed, Trim, TrimTo,
};
pub(crate) use tree::{
    Edit, PART_BYTES, PART_LEAD_BYTES, PinnedParts, ROOT_BYTES, Root, Trees, first_leaf, is_let_go, moves_of,
    owner_of_node, part_chunk_bytes, part_pins, relabel, word_of as node_word_of,
};
pub use tree::{Parts, PinnedValue};
pub use whole::{COPIED_BYTES_MAX, Made};

use crate::item::{Header, RawItem};
use crate::{Millis, Store};
use build::LEAF_BYTES_MAX;
use leaf::{Backwards, InOrder};
use std::ops::Range;
use tree::{Tree, cutoff_at};

/// What collection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Type {
    /// Fields with values.
    Hash = 1,
    /// Members, each once.
    Set = 2,
    /// Members, each once, in the order of their scores.
    SortedSet = 3,
    /// Elements in the order in which they were put.
    List = 4,
    /// Entries in the order of their IDs, and groups that read them.
    Stream = 5,
}

impl Type {
    /// The type of this number.
    #[inline]
    pub(crate) fn of(number: u8) -> Option<Type> {
        Some(match number {
            1 => Type::Hash,
            2 => Type::Set,
            3 => Type::SortedSet,
            4 => Type::List,
            5 => Type::Stream,
            _ => return None,
        })
    }

    /// The type that an item's form says.
    #[inline]
    pub(crate) fn of_form(form: u16) -> Type {
        Type::of((form & 0xf) as u8).expect("an item says what it is")
    }

    /// Its entries have names that are looked for by their tags.
    #[inline]
    pub(crate) fn has_tags(self) -> bool {
        matches!(self, Type::Hash | Type::Set | Type::SortedSet)
    }

    /// The form of an item of this type in a tree.
    pub(crate) fn form_of_tree(self) -> u16 {
        Header::form_of_tree(self as u16)
    }
}

/// A collection of one moment, borrowed from the arena.
#[derive(Clone, Copy, Debug)]
pub struct Collection<'g> {
    body: Body<'g>,
    store: &'g Store,
    /// Fields whose time has passed by then are not found.
    now: Millis,
}

#[derive(Clone, Copy, Debug)]
enum Body<'g> {
    Leaf(Leaf<'g>),
    Tree(Tree<'g>),
}

impl<'g> Collection<'g> {
    #[inline]
    pub(crate) fn new(leaf: Leaf<'g>, store: &'g Store, now: Millis) -> Collection<'g> {
        Collection { body: Body::Leaf(leaf), store, now }
    }

    fn of_tree(tree: Tree<'g>, store: &'g Store, now: Millis) -> Collection<'g> {
        Collection { body: Body::Tree(tree), store, now: cutoff_at(now, tree.cutoff()) }
    }

    /// # Safety
    /// The item is a collection that was reachable in this epoch, which `'g` ends before.
    #[inline]
    pub(crate) unsafe fn of(item: RawItem, store: &'g Store, now: Millis) -> Collection<'g> {
        let header = item.header();
        // SAFETY: the caller's obligation.
        unsafe {
            if header.is_tree() {
                Collection::of_tree(Tree::of(store, item), store, now)
            } else {
                Collection::new(item.leaf(header), store, now)
            }
        }
    }

    /// When the first field of a hash expires, or a later time that has passed; 0: none does.
    #[inline]
    pub fn soonest(&self) -> Millis {
        match &self.body {
            Body::Leaf(leaf) if !leaf.is_timed() => 0,
            Body::Leaf(leaf) => leaf.soonest(),
            Body::Tree(tree) => tree.soonest(),
        }
    }

    /// The time of some field has passed. Such fields are counted and listed until they are taken out
    /// ([`crate::Guard::hash_take_due`]), but none is found by its name.
    #[inline]
    pub fn is_due(&self) -> bool {
        let soonest = self.soonest();
        soonest != 0 && soonest <= self.now
    }

    /// All of it, where that is one leaf.
    fn only_leaf(&self) -> Option<&Leaf<'g>> {
        match &self.body {
            Body::Leaf(leaf) => Some(leaf),
            Body::Tree(_) => None,
        }
    }

    fn tree(&self) -> Option<&Tree<'g>> {
        match &self.body {
            Body::Leaf(_) => None,
            Body::Tree(tree) => Some(tree),
        }
    }

    /// What it is.
    #[inline]
    pub fn kind(&self) -> Type {
        match &self.body {
            Body::Leaf(leaf) => leaf.kind(),
            Body::Tree(tree) => tree.kind(),
        }
    }

    /// Fields, members, elements or rows; never 0.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        match &self.body {
            Body::Leaf(leaf) => leaf.len(),
            Body::Tree(tree) => tree.len(),
        }
    }

    /// Bytes that its elements take together.
    #[inline]
    pub fn bytes(&self) -> usize {
        match &self.body {
            Body::Leaf(leaf) => leaf.bytes(),
            Body::Tree(tree) => tree.bytes(),
        }
    }

    /// Where a field of a hash or a member of a set is. In a sorted set that is its rank.
    ///
    /// # Panics
    /// If it is a list.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        assert!(self.kind().has_tags(), "elements of a list have no names");
        match &self.body {
            // What is longer than a leaf is in none.
            Body::Leaf(_) if name.len() > LEAF_BYTES_MAX => None,
            Body::Leaf(leaf) => leaf.find_live(name, self.store.tag_of(name), self.now),
            Body::Tree(tree) if tree.kind() == Type::SortedSet => tree.member(name).map(|(rank, _)| rank),
            Body::Tree(tree) => tree.find_live(name, self.now),
        }
    }

    /// Whether a field or a member is there: as [`Collection::find`], which in a large collection has to count, too.
    ///
    /// # Panics
    /// If it is a list.
    #[inline]
    pub fn has(&self, name: &[u8]) -> bool {
        match &self.body {
            Body::Leaf(_) => self.find(name).is_some(),
            Body::Tree(tree) if tree.kind() == Type::SortedSet => tree.score_of_member(name).is_some(),
            Body::Tree(tree) => tree.entry_of(name, self.now).is_some(),
        }
    }

    /// The entry of a field or a member: as [`Collection::has`].
    ///
    /// # Panics
    /// If it is a list.
    pub fn entry_named(&self, name: &[u8]) -> Option<Entry<'g>> {
        match &self.body {
            Body::Leaf(leaf) => self.find(name).map(|i| leaf.entry(i)),
            Body::Tree(tree) if tree.kind() == Type::SortedSet => tree.member(name).map(|(_, entry)| entry),
            Body::Tree(tree) => tree.entry_of(name, self.now).map(|(leaf, i)| leaf.entry(i)),
        }
    }

    /// The value of a field.
    #[inline]
    pub fn field(&self, name: &[u8]) -> Option<Element<'g>> {
        debug_assert_eq!(self.kind(), Type::Hash);
        match &self.body {
            Body::Leaf(leaf) => {
                leaf.find_live(name, self.store.tag_of(name), self.now).map(|i| leaf.entry(i).value)
            }
            Body::Tree(tree) => tree.entry_of(name, self.now).map(|(leaf, i)| leaf.entry(i).value),
        }
    }

    /// The score of a member.
    pub fn score(&self, name: &[u8]) -> Option<f64> {
        debug_assert_eq!(self.kind(), Type::SortedSet);
        match &self.body {
            // As above.
            Body::Leaf(_) if name.len() > LEAF_BYTES_MAX => None,
            Body::Leaf(leaf) => leaf.find(name, self.store.tag_of(name)).map(|i| leaf.score(i)),
            Body::Tree(tree) => tree.score_of_member(name),
        }
    }

    /// The entry at a place below [`Collection::len`]: of a list by position, of a sorted set by rank, of others by no
    /// order that means something.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn entry(&self, i: usize) -> Entry<'g> {
        match &self.body {
            Body::Leaf(leaf) => leaf.entry(i),
            Body::Tree(tree) => {
                let (leaf, start) = tree.leaf_with(i);
                leaf.entry(i - start)
            }
        }
    }

    /// The entries whose time has not passed, in order.
    pub fn live(&self) -> impl Iterator<Item = Entry<'g>> + use<'g> {
        let now = self.now;
        self.entries(0..self.len()).filter(move |entry| entry.is_live(now))
    }

    /// The entries at these places, in order.
    #[inline]
    pub fn entries(&self, range: Range<usize>) -> Entries<'g> {
        Entries::new(*self, range)
    }

    /// The entries at these places, the last first.
    pub fn entries_back(&self, range: Range<usize>) -> EntriesBack<'g> {
        EntriesBack::new(*self, range)
    }

    /// How many members of a sorted set have a lower score, or, if `also_equal`, one that is no higher.
    pub fn below(&self, score: f64, also_equal: bool) -> usize {
        debug_assert_eq!(self.kind(), Type::SortedSet);
        match &self.body {
            Body::Leaf(leaf) => leaf.below(score, also_equal),
            Body::Tree(tree) => tree.below(score, also_equal),
        }
    }

    /// How many entries come before the first one of which `before` is false, where it is true of all before that.
    pub fn partition(&self, before: impl Fn(&Entry<'g>) -> bool) -> usize {
        match &self.body {
            Body::Leaf(leaf) => leaf.partition(0..leaf.len(), before),
            Body::Tree(tree) => tree.partition(before),
        }
    }

    /// The leaf with the entry `i`, and the places of its entries.
    fn leaf_with(&self, i: usize) -> (Leaf<'g>, Range<usize>) {
        match &self.body {
            Body::Leaf(leaf) => (*leaf, 0..leaf.len()),
            Body::Tree(tree) => {
                let (leaf, start) = tree.leaf_with(i);
                (leaf, start..start + leaf.len())
            }
        }
    }
}

/// Iterator over entries, in order.
#[derive(Clone, Debug)]
pub struct Entries<'g> {
    collection: Collection<'g>,
    /// Those that are left.
    range: Range<usize>,
    /// Those of them that are in `leaf`.
    here: InOrder<'g>,
}

impl<'g> Entries<'g> {
    fn new(collection: Collection<'g>, range: Range<usize>) -> Entries<'g> {
        let here = match &collection.body {
            Body::Leaf(leaf) => leaf.entries(range.clone()),
            Body::Tree(_) => collection.entries_here(&range),
        };
        Entries { collection, range, here }
    }
}

impl<'g> Collection<'g> {
    /// The first of these entries, as far as they are in one leaf.
    fn entries_here(&self, range: &Range<usize>) -> InOrder<'g> {
        let (leaf, there) = self.leaf_with(range.start.min(self.len() - 1));
        let (from, to) = (range.start - there.start, range.end.min(there.end).max(range.start) - there.start);
        leaf.entries(from..to)
    }
}

impl<'g> Iterator for Entries<'g> {
    type Item = Entry<'g>;
    #[inline]
    fn next(&mut self) -> Option<Entry<'g>> {
        if self.range.is_empty() {
            return None;
        }
        let entry = match self.here.next() {
            Some(entry) => entry,
            None => {
                self.here = self.collection.entries_here(&self.range);
                self.here.next()?
            }
        };
        self.range.start += 1;
        Some(entry)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl ExactSizeIterator for Entries<'_> {}

/// Iterator over entries, the last first.
#[derive(Clone, Debug)]
pub struct EntriesBack<'g> {
    collection: Collection<'g>,
    /// Those that are left.
    range: Range<usize>,
    /// Those of them that are in one leaf.
    here: Backwards<'g>,
}

impl<'g> EntriesBack<'g> {
    fn new(collection: Collection<'g>, range: Range<usize>) -> EntriesBack<'g> {
        let here = match &collection.body {
            Body::Leaf(leaf) => leaf.entries_back(range.clone()),
            Body::Tree(_) => collection.entries_back_here(&range),
        };
        EntriesBack { collection, range, here }
    }
}

impl<'g> Collection<'g> {
    /// The last of these entries, as far as they are in one leaf.
    fn entries_back_here(&self, range: &Range<usize>) -> Backwards<'g> {
        if range.is_empty() {
            return self.leaf_with(0).0.entries_back(0..0);
        }
        let (leaf, there) = self.leaf_with(range.end - 1);
        leaf.entries_back(range.start.max(there.start) - there.start..range.end - there.start)
    }
}

impl<'g> Iterator for EntriesBack<'g> {
    type Item = Entry<'g>;
    fn next(&mut self) -> Option<Entry<'g>> {
        if self.range.is_empty() {
            return None;
        }
        let entry = match self.here.next() {
            Some(entry) => entry,
            None => {
                self.here = self.collection.entries_back_here(&self.range);
                self.here.next()?
            }
        };
        self.range.end -= 1;
        Some(entry)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl ExactSizeIterator for EntriesBack<'_> {}

impl Store {
    /// The tag of a field or member.
    #[inline]
    pub(crate) fn tag_of(&self, name: &[u8]) -> u8 {
        self.member_hash(name) as u8
    }
}
