//! Which tree a node belongs to, and which word names it: for moving it, evicting for its memory, and checking the books.
//!
//! ```text
//! node ─▶ number ─▶ table: hash ─▶ the item in its bucket whose root has the number ─▶ down by the node's least key
//! ```
//!
//! In the scores tree of a sorted set, where keys may be equal, down by a leaf's first member.
//!
//! A node that was seen by a sweep may have been replaced since, or be of a write that is not published, or was given
//! up. Under the lock of the item's bucket its header is read again: while it says that it is a node of this tree, what is
//! behind the header stays as it is for this epoch, since a worker that takes a node out says so in the header before the
//! node goes to limbo. Then the tree says whether it has the node.

use super::members::{ALIKE_MAX, Members, hash_by, key_of};
use super::ranked::child_with;
use super::rows::child_with_row;
use super::strings::keys_of_parts;
use super::{Inner, LONG_AGO, Root, Tree, header_of, key_of_name, leaf_at, location_of, node_word, word};
use crate::Store;
use crate::arena::Arena;
use crate::collection::stream::rows::{Data, Rows, first_key};
use crate::collection::{DIGITS_MAX, Element, Type};
use crate::item::RawItem;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;

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
        let (top, height) = root.tops()[usize::from(header.is_of_members())];
        let level = header.node_level();
        if level == height {
            return (top.load(Ordering::Relaxed) == location).then_some(top);
        }
        let least = node_word(arena, location, 8).load(Ordering::Relaxed);
        let mut at = top.load(Ordering::Acquire);
        let kind = Type::of_form(item.header().form());
        if matches!(kind, Type::SortedSet | Type::Stream) && !header.is_of_members() {
            if level > 0 {
                return word_among(arena, (at, height), (location, level), least);
            }
            if kind == Type::Stream {
                // A leaf is where its first row is.
                let first = first_key(&leaf_at(arena, location));
                for above in (1..=height).rev() {
                    let inner = Inner::at(arena, at);
                    let i = child_with_row(arena, &inner, above, &first);
                    at = inner.location(i);
                    if above == 1 {
                        return (at == location).then_some(&inner.words[i]);
                    }
                }
            }
            // A leaf is where its first member is.
            let leaf = leaf_at(arena, location);
            let (room, first) = (&mut [0; DIGITS_MAX], leaf.entry(0));
            if matches!(first.name, Element::Apart(_)) {
                // Of a leaf that was replaced the parts may be gone: it is looked for as inner nodes are.
                return word_among(arena, (at, height), (location, 0), least);
            }
            let (name, tree) = (first.name.text(room), Tree::of(store, item));
            for above in (1..=height).rev() {
                let inner = Inner::at(arena, at);
                let i = child_with(&tree, &inner, above, leaf.word(0), name);
                at = inner.location(i);
                if above == 1 {
                    return (at == location).then_some(&inner.words[i]);
                }
            }
        }
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

/// What a members tree has: by hash and score the names, of those that have theirs.
type There = HashMap<(u64, u64), Vec<Option<Vec<u8>>>>;

/// The word below an inner node that names another one, of a level, of a scores tree. Of those with one key none says which
/// of them leads there: all are looked at. They are one node in 62.
///
/// # Safety
/// The node is one of a tree whose bucket's lock the caller holds.
unsafe fn word_among(
    arena: &Arena,
    (at, height): (u64, usize),
    (location, level): (u64, usize),
    least: u64,
) -> Option<&AtomicU64> {
    // SAFETY: the caller's obligation; a node names nodes of the same epoch.
    let inner = unsafe { Inner::at(arena, at) };
    let keys = &inner.keys[1..];
    let first = keys.partition_point(|key| *key < least);
    let last = keys.partition_point(|key| *key <= least);
    for i in first..=last {
        if height == level + 1 {
            if inner.location(i) == location {
                return Some(&inner.words[i]);
            }
            continue;
        }
        // SAFETY: as above.
        let found = unsafe { word_among(arena, (inner.location(i), height - 1), (location, level), least) };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The bytes of a name in one of the trees of a sorted set.
fn text_of(tree: &Tree<'_>, name: &Element<'_>) -> Vec<u8> {
    match name {
        Element::Apart(apart) => tree.parts(apart).flatten().copied().collect(),
        name => name.text(&mut [0; DIGITS_MAX]).to_vec(),
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
        let height = usize::from(root.height);
        self.check_node(root, tree.kind(), top, (height, 0, u64::MAX, true), &mut bytes);
        match tree.kind() {
            Type::List => self.check_apart(&tree),
            Type::Hash | Type::Set | Type::SortedSet | Type::Stream => self.check_strings(&tree),
        }
        assert_eq!(root.members_height > 0, tree.kind() == Type::SortedSet, "sorted sets have members trees");
        let soonest = self.check_times(root.top.load(Ordering::Relaxed), height);
        let cutoff = if soonest == LONG_AGO { 0 } else { tree.cutoff() };
        assert_eq!(
            (if tree.kind() == Type::Hash { root.soonest() } else { 0 }, header.is_timed()),
            (if cutoff == 0 { soonest } else { cutoff }, soonest != 0),
            "when the first field expires"
        );
        assert!(tree.cutoff() == 0 || soonest <= tree.cutoff(), "something is left that was due");
        if root.members_height > 0 {
            let members = root.beside.load(Ordering::Relaxed);
            let mut there = There::new();
            let members = word(root.elements, members);
            let level = usize::from(root.members_height);
            self.check_members((root, &tree), members, (level, 0, u64::MAX), &mut bytes, &mut there);
            self.check_both(&tree, there);
            self.check_parts_of_members(&tree);
        }
        assert_eq!(root.bytes, bytes, "bytes of the nodes");
        self.each_node(item, &mut |node, _| {
            // SAFETY: a tree, and the store is at rest: it is as if the lock were held.
            let word = unsafe { word_of(self, item, node) };
            assert!(word.is_some(), "a node that no sweep finds in its tree");
        });
    }

    /// Both trees of a sorted set have the same members, and those have their names that must.
    fn check_both(&self, tree: &Tree<'_>, mut there: There) {
        for place in 0..tree.len() {
            let (leaf, start) = tree.leaf_with(place);
            let (entry, word) = (leaf.entry(place - start), leaf.word(place - start));
            let name = &text_of(tree, &entry.name)[..];
            let hash = self.hash_of_member(name);
            assert_eq!(leaf.tags[place - start], self.tag_of(name), "the tag of a member");
            let alike = tree.below(entry.score, true) - tree.below(entry.score, false);
            let others = there.get_mut(&(hash, word)).expect("a member is in the other tree with its score");
            let at = others.iter().position(|other| other.as_deref() == Some(name));
            assert!(at.is_some() || alike <= ALIKE_MAX, "a member of many with one score has no name");
            let at = at.or_else(|| others.iter().position(Option::is_none));
            others.swap_remove(at.expect("a member is in the other tree as often as in this one"));
            assert_eq!(tree.member(name).map(|(rank, _)| rank), Some(place), "a member is not found");
        }
        assert!(there.values().all(Vec::is_empty), "members that the set does not have");
    }

    fn check_members(
        &self,
        (root, tree): (&Root, &Tree<'_>),
        named: u64,
        (level, low, high): (usize, u64, u64),
        bytes: &mut u64,
        there: &mut There,
    ) {
        let (arena, location) = (&self.arena, location_of(named));
        // SAFETY: the store is at rest, and the tree names a node there.
        let (header, least) =
            unsafe { (header_of(arena, location), node_word(arena, location, 8).load(Ordering::Relaxed)) };
        assert!(header.is_node() && header.is_of_members(), "a tree names something that is no node of it");
        assert_eq!((header.node_number(), header.node_level()), (u64::from(root.number), level));
        assert!((low..high).contains(&least), "a node is not where its key leads");
        *bytes += (header.piece_bytes() + 8) as u64;
        let elements = if level == 0 {
            // SAFETY: as above, a leaf.
            let leaf = unsafe { Members::at(arena, location) };
            // Parts are checked behind each other.
            if leaf.len() > 0 {
                leaf.check();
            }
            for i in 0..leaf.len() {
                assert!((low..high).contains(&key_of(leaf.hash(i))), "a hash in another leaf than it says");
                let name = leaf.name(i).map(|name| text_of(tree, &name));
                there.entry((leaf.hash(i), leaf.word(i))).or_default().push(name);
            }
            leaf.len()
        } else {
            // SAFETY: as above, an inner node.
            let inner = unsafe { Inner::at(arena, location) };
            assert!(inner.len() > 0 && inner.len() <= super::CHILDREN_MAX);
            for i in 0..inner.len() {
                let low = if i == 0 { low } else { inner.keys[i] };
                let high = inner.keys.get(i + 1).copied().unwrap_or(high);
                assert!(low < high, "keys of children ascend");
                self.check_members((root, tree), inner.word(i), (level - 1, low, high), bytes, there);
            }
            inner.before(inner.len())
        };
        assert_eq!(elements, super::elements_of(named), "a count of elements");
    }

    /// Checks that behind each leaf of a members tree are all parts of its members that lie apart, and no others anywhere.
    fn check_parts_of_members(&self, tree: &Tree<'_>) {
        let texts = tree.texts();
        let mut path = texts.path_to(0);
        let mut at = path.leaf;
        // Keys and bytes of the parts that are to come, the last first.
        let mut owed: Vec<(u64, usize)> = Vec::new();
        loop {
            // SAFETY: the store is at rest, and the tree names a leaf there.
            let (leaf, own) = unsafe {
                (Members::at(&self.arena, at), node_word(&self.arena, at, 8).load(Ordering::Relaxed))
            };
            if leaf.len() == 0 {
                let (key, bytes) = owed.pop().expect("a part of no member");
                let there = (hash_by(own), texts.leaf(at).payload.len());
                assert_eq!(there, (hash_by(key), bytes), "a part of another member");
                assert!(own <= key, "a part is not found by its key");
            } else {
                assert!(owed.is_empty(), "a member without its parts");
                for i in 0..leaf.len() {
                    let Some(Element::Apart(apart)) = leaf.name(i) else { continue };
                    let most = tree.apart as usize;
                    assert!((1..=most).contains(&apart.len()), "a member longer than the root says");
                    assert_eq!(hash_by(apart.label()), leaf.hash(i), "a label of another hash");
                    assert_eq!(leaf.hash(leaf.len() - 1), leaf.hash(i), "a hash behind one with parts");
                    owed.extend(keys_of_parts(apart.label(), apart.len()));
                }
                owed.sort_unstable_by(|one, other| other.cmp(one));
                assert!(owed.windows(2).all(|two| two[0].0 > two[1].0), "a part of two members");
            }
            let Some(word) = path.go_on(&self.arena, texts.height - 1) else { break };
            at = location_of(word);
        }
        assert!(owed.is_empty(), "a member without its parts");
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
        assert!(!header.is_of_members(), "a node of the other tree");
        // Members with one score, and rows with one key, may be in several leaves.
        let ties = matches!(kind, Type::SortedSet | Type::Stream);
        let within = |key: u64| low <= key && (key < high || ties && key == high);
        // A node that has become the first of its parent keeps the key that it had.
        assert!(within(least), "a node is not where its key leads");
        *bytes += (header.piece_bytes() + 8) as u64;
        let elements = if level == 0 {
            // SAFETY: as above, a leaf.
            let leaf = unsafe { leaf_at(arena, location) };
            assert!(!first || header.is_first_leaf(), "the first leaf is not marked");
            assert_eq!(leaf.kind(), kind);
            // Those that have parts are checked behind each other.
            if leaf.len() > 0 {
                leaf.check(&|name| self.tag_of(name));
            }
            if kind == Type::Stream {
                let all = Rows::of(&leaf).all(|row| within(row.key.word()));
                assert!(all, "a row in another leaf than its key says");
                let first = Rows::of(&leaf).next().map(|row| row.data);
                let is_part = leaf.len() == 1 && matches!(first, Some(Data::Part(_)));
                assert_eq!(header.is_part(), is_part, "pins are what a part has that is alone in its leaf");
            }
            let named = if kind == Type::Stream { 0 } else { leaf.len() };
            for (i, entry) in leaf.entries(0..named).enumerate() {
                let order = match kind {
                    // The order of a list is that of its leaves.
                    Type::List | Type::Stream => break,
                    Type::SortedSet => leaf.word(i),
                    Type::Hash | Type::Set => key_of_name(self, &entry.name),
                };
                assert!(within(order), "an element in another leaf than its order says");
            }
            leaf.len()
        } else {
            // SAFETY: as above, an inner node.
            let inner = unsafe { Inner::at(arena, location) };
            assert!(inner.len() > 0 && inner.keys.is_sorted() && inner.len() <= super::CHILDREN_MAX);
            for i in 0..inner.len() {
                let low = if i == 0 { low } else { inner.keys[i] };
                let high = inner.keys.get(i + 1).copied().unwrap_or(high);
                assert!(low < high || ties && low == high, "keys of children ascend");
                self.check_node(root, kind, inner.word(i), (level - 1, low, high, first && i == 0), bytes);
            }
            inner.before(inner.len())
        };
        assert_eq!(elements, super::elements_of(named), "a count of elements");
    }
}
