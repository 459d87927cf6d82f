//! Collections: hashes, sets, sorted sets and lists, each one item.
//!
//! ```text
//! item    header (kind 3, form ≠ 0) │ expiry? │ extension? │ key │ pad to 8 │ leaf
//! form    13 … 4 spare │ 3 … 0 type: 1 hash, 2 set, 3 sorted set, 4 list
//! ```
//!
//! All of a collection is one leaf ([`leaf`]), which never changes: a write makes a new item, as a `set` does, so that who
//! reads holds no lock and sees the collection of one moment. Index, eviction, expiry, moves, watches and versions are
//! those of any item.
//!
//! ```text
//! write   look ─▶ change a copy of the leaf ─▶ allocate, copy ─▶ publish if nobody was faster, else again
//! ```
//!
//! - No collection is empty: the last element takes the key with it.
//! - Expiry stays when elements change; each change is a new version, which watches hear of.
//! - A collection is no larger than a chunk, with its key and header: what would be larger is refused
//!   ([`Declined::TooLarge`]), and nothing is changed.
//!
//! `element.rs`, `scores.rs`, `leaf.rs` and `build.rs` know bytes and nothing of the store; `hash.rs`, `set.rs`, `sorted.rs`
//! and `list.rs` are the verbs; `change.rs` is what all that write have in common. The tree that larger ones take is not
//! there.

mod build;
mod change;
mod element;
mod hash;
mod leaf;
mod list;
mod scores;
mod set;
mod sorted;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use build::Builder;
pub use change::Declined;
pub use element::{DIGITS_MAX, Element};
pub use leaf::{Entries, EntriesBack, Entry, Removed};
pub(crate) use leaf::{HEAD_BYTES, Leaf, leaf_bytes};
pub use sorted::{ScoreRule, Scored};

use crate::Store;
use std::ops::Range;

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
            _ => return None,
        })
    }
}

/// A collection of one moment, borrowed from the arena.
#[derive(Clone, Copy, Debug)]
pub struct Collection<'g> {
    leaf: Leaf<'g>,
    store: &'g Store,
}

impl<'g> Collection<'g> {
    #[inline]
    pub(crate) fn new(leaf: Leaf<'g>, store: &'g Store) -> Collection<'g> {
        Collection { leaf, store }
    }

    #[inline]
    pub(crate) fn leaf(&self) -> &Leaf<'g> {
        &self.leaf
    }

    /// What it is.
    #[inline]
    pub fn kind(&self) -> Type {
        self.leaf.kind()
    }

    /// Fields, members or elements; never 0.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.leaf.len()
    }

    /// Where a field of a hash or a member of a set is. In a sorted set that is its rank.
    ///
    /// # Panics
    /// If it is a list.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        assert!(self.kind() != Type::List, "elements of a list have no names");
        self.leaf.find(name, self.store.tag_of(name))
    }

    /// The value of a field.
    #[inline]
    pub fn field(&self, name: &[u8]) -> Option<Element<'g>> {
        debug_assert_eq!(self.kind(), Type::Hash);
        self.find(name).map(|i| self.leaf.entry(i).value)
    }

    /// The score of a member.
    pub fn score(&self, name: &[u8]) -> Option<f64> {
        debug_assert_eq!(self.kind(), Type::SortedSet);
        self.find(name).map(|i| self.leaf.score(i))
    }

    /// The entry at a place below [`Collection::len`]: of a list by position, of a sorted set by rank, of others by no
    /// order that means something.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn entry(&self, i: usize) -> Entry<'g> {
        self.leaf.entry(i)
    }

    /// The entries at these places, in order.
    #[inline]
    pub fn entries(&self, range: Range<usize>) -> Entries<'g> {
        self.leaf.entries(range)
    }

    /// The entries at these places, the last first.
    pub fn entries_back(&self, range: Range<usize>) -> EntriesBack<'g> {
        self.leaf.entries_back(range)
    }

    /// How many members of a sorted set have a lower score, or, if `also_equal`, one that is no higher.
    pub fn below(&self, score: f64, also_equal: bool) -> usize {
        debug_assert_eq!(self.kind(), Type::SortedSet);
        self.leaf.below(score, also_equal)
    }

    /// How many entries come before the first one of which `before` is false, where it is true of all before that.
    pub fn partition(&self, before: impl Fn(&Entry<'g>) -> bool) -> usize {
        self.leaf.partition(0..self.len(), before)
    }
}

impl Store {
    /// The tag of a field or member.
    #[inline]
    pub(crate) fn tag_of(&self, name: &[u8]) -> u8 {
        self.member_hash(name) as u8
    }
}
