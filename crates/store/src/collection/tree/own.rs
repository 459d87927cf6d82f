//! Whose a node is, and which word names it: for who moves it, evicts for its memory, or checks the books.
//!
//! ```text
//! node ─▶ number ─▶ table: hash ─▶ the item in its bucket whose root has the number ─▶ down by the node's least key
//! ```
//!
//! A node that was seen by a sweep may have been replaced since, or be of a write that is not published, or was given
//! up. Under the lock of the item's bucket its header is read again: while it says that it is a node of this tree, what is
//! behind the header stays as it is for this epoch, since whoever takes a node out says so in the header before the node
//! goes to limbo. Then the tree says whether it has the node.

use super::{Inner, Root, Tree, header_of, leaf_at, location_of, node_word, word};
use crate::Store;
use crate::collection::Type;
use crate::item::RawItem;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The item that has the tree of this number, of this epoch; none if there is none, or it moves in the index just now.
pub(crate) fn owner_of_node(store: &Store, number: u64) -> Option<u64> {
    let hash = store.trees.hash(number)?;
    let place = store.index.place(&store.arena, hash);
    let found = store.index.scan(&place, place.home().control(), |slot| {
        // SAFETY: a slot read in this epoch names an item that stays until the epoch is over.
        let item = unsafe { RawItem::new(store.arena.at(slot.location())) };
        let header = item.header();
        // SAFETY: as above, and it has a root.
        header.is_tree() && u64::from(unsafe { item.root(header) }.number) == number
    });
    found.map(|found| found.slot.location())
}

/// How often a node of this item's tree was moved; 0 if it has none.
///
/// # Safety
/// The item is reachable in this epoch.
pub(crate) unsafe fn moves_of(item: RawItem) -> u64 {
    let header = item.header();
    // SAFETY: the caller's obligation.
    if header.is_tree() { unsafe { item.root(header) }.moves.load(Ordering::Acquire) } else { 0 }
}

impl Root {
    /// A node was moved: a write that has looked at its parent before is not published. Under the lock of the home.
    pub(crate) fn note_move(&self) {
        let moves = self.moves.load(Ordering::Relaxed);
        self.moves.store(moves.wrapping_add(1).max(1), Ordering::Release);
    }
}

/// The location of the first leaf of an item's tree, by which the tree is judged.
///
/// # Safety
/// A tree, reachable in this epoch.
pub(crate) unsafe fn first_leaf(store: &Store, item: RawItem) -> u64 {
    // SAFETY: the caller's obligation.
    let root = unsafe { item.root(item.header()) };
    let mut location = root.top.load(Ordering::Acquire);
    for _ in 0..root.height {
        // SAFETY: an inner node of the tree.
        location = unsafe { Inner::at(&store.arena, location) }.location(0);
    }
    location
}

/// The word that names the node at a location; none if the item's tree does not have it. Only its location may be
/// changed.
///
/// # Safety
/// The item is a tree, reachable in this epoch, and the caller holds the lock of its home bucket.
pub(crate) unsafe fn word_of(store: &Store, item: RawItem, location: u64) -> Option<&AtomicU64> {
    let arena = &store.arena;
    // SAFETY: 1. The item is the caller's. 2. A sweep found a node at the location. 3. While its header says that it is one
    // of this tree, it stays one for this epoch, and so do the nodes that the tree has.
    unsafe {
        let root = item.root(item.header());
        let header = header_of(arena, location);
        if !header.is_node() || header.node_number() != u64::from(root.number) {
            return None;
        }
        let (level, height) = (header.node_level(), root.height as usize);
        if level == height {
            return (root.top.load(Ordering::Relaxed) == location).then_some(&root.top);
        }
        let least = node_word(arena, location, 8).load(Ordering::Relaxed);
        let mut at = root.top.load(Ordering::Acquire);
        for above in (level + 1..=height).rev() {
            let inner = Inner::at(arena, at);
            let i = inner.child_of(least);
            at = inner.location(i);
            if above == level + 1 {
                return (at == location).then_some(&inner.words[i]);
            }
        }
        None
    }
}

impl Store {
    /// Checks that a tree is what it says: nodes of its number and of their levels, children in order, elements within
    /// the keys, counts and bytes that add up, one first leaf, and leaves that are what they say.
    ///
    /// # Panics
    /// If it is not so.
    pub(crate) fn check_tree(&self, item: RawItem, hash: u64) {
        let header = item.header();
        // SAFETY: a tree, and the store is at rest.
        let (root, tree) = unsafe { (item.root(header), Tree::of(self, item)) };
        assert_eq!(self.trees.hash(u64::from(root.number)), Some(hash), "a tree of another key");
        assert!(root.height >= 1 && root.moves.load(Ordering::Relaxed) != 0 && !root.has_successor());
        assert!(tree.len() > 0, "no collection is empty");
        let mut bytes = 0;
        let top = word(root.elements, root.top.load(Ordering::Relaxed));
        self.check_node(root, tree.kind(), top, (root.height as usize, 0, u64::MAX, true), &mut bytes);
        assert_eq!(root.bytes, bytes, "bytes of the nodes");
    }

    fn check_node(
        &self,
        root: &Root,
        kind: Type,
        named: u64,
        (level, low, high, first): (usize, u64, u64, bool),
        bytes: &mut u64,
    ) {
        let (arena, location) = (&self.arena, location_of(named));
        // SAFETY: the store is at rest, and the tree names a node there.
        let (header, least) =
            unsafe { (header_of(arena, location), node_word(arena, location, 8).load(Ordering::Relaxed)) };
        assert!(header.is_node(), "a tree names something that is no node");
        assert_eq!((header.node_number(), header.node_level()), (u64::from(root.number), level));
        // A node that has become the first of its parent keeps the key that it had.
        assert!((low..high).contains(&least), "a node is not where its key leads");
        *bytes += (header.piece_bytes() + 8) as u64;
        let elements = if level == 0 {
            // SAFETY: as above, a leaf.
            let leaf = unsafe { leaf_at(arena, location) };
            assert!(!first || header.is_first_leaf(), "the first leaf is not marked");
            assert_eq!(leaf.kind(), kind);
            leaf.check(&|name| self.tag_of(name));
            // The order of a list is that of its leaves.
            let ordered = if kind == Type::List { 0 } else { leaf.len() };
            for entry in leaf.entries(0..ordered) {
                let order = self.order_of(entry.name.text(&mut [0; super::super::DIGITS_MAX]));
                assert!((low..high).contains(&order), "an element in another leaf than its order says");
            }
            leaf.len()
        } else {
            // SAFETY: as above, an inner node.
            let inner = unsafe { Inner::at(arena, location) };
            assert!(inner.len() > 0 && inner.keys.is_sorted() && inner.len() <= super::CHILDREN_MAX);
            for i in 0..inner.len() {
                let low = if i == 0 { low } else { inner.keys[i] };
                let high = inner.keys.get(i + 1).copied().unwrap_or(high);
                assert!(low < high, "keys of children ascend");
                self.check_node(root, kind, inner.word(i), (level - 1, low, high, first && i == 0), bytes);
            }
            inner.before(inner.len())
        };
        assert_eq!(elements, super::elements_of(named), "a count of elements");
    }
}
