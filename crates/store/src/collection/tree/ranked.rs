//! A sorted set in two trees, as it is read.
//!
//! ```text
//! scores    leaves of members, by score and then by member      keys are the words of scores
//! members   leaves of hashes with their scores (`members.rs`)   keys are orders
//!
//! member ─▶ hash ─▶ members: a score, or several ─▶ scores: the member's place, if one of them is its score
//! ```
//!
//! A key of the scores tree says nothing of the member that a child begins with. Where children have the score that is looked
//! for as their key, it is the first entries below them that say which of them goes on: they are read then.

use super::super::build::SCORED_BYTES_MAX;
use super::super::element::{APART_BYTES, Element, Packed};
use super::super::leaf::{Entry, Leaf};
use super::super::scores::{score_of, word_of};
use super::members::{Members, hash_by, hash_of, key_of};
use super::strings::PARTS_MAX;
use super::{Inner, ORDER_SHIFT, Tree, leaf_at};
use crate::Store;
use crate::arena::Arena;
use crate::collection::{Collection, DIGITS_MAX};
use crate::held::Scratch;
use std::cmp::Ordering;
use std::ops::Range;

/// The first leaf below a node of a level.
///
/// # Safety
/// A node of this epoch is at the location, in a tree that is not of members.
pub(super) unsafe fn first_leaf_below<'g>(arena: &Arena, mut location: u64, level: usize) -> Leaf<'g> {
    // SAFETY: the caller's obligation; a node names nodes of the same epoch.
    unsafe {
        for _ in 0..level {
            location = Inner::at(arena, location).location(0);
        }
        leaf_at(arena, location)
    }
}

/// Which child of an inner node of a level has a member with this score, or would have it.
///
/// # Safety
/// The node is one of a scores tree of this epoch.
pub(super) unsafe fn child_with(
    tree: &Tree<'_>,
    inner: &Inner<'_>,
    level: usize,
    word: u64,
    name: &[u8],
) -> usize {
    let keys = &inner.keys[1..];
    let mut low = keys.partition_point(|key| *key < word);
    let mut high = low + keys[low..].partition_point(|key| *key == word);
    // The child at `low` begins no later, those behind `high` begin later.
    while low < high {
        let middle = (low + high).div_ceil(2);
        // SAFETY: the caller's obligation.
        let leaf = unsafe { first_leaf_below(&tree.store.arena, inner.location(middle), level - 1) };
        if compare(tree, &leaf, 0, word, name).is_gt() {
            high = middle - 1;
        } else {
            low = middle;
        }
    }
    low
}

/// Orders an entry of a leaf against a member with this score.
pub(super) fn compare(tree: &Tree<'_>, leaf: &Leaf<'_>, i: usize, word: u64, name: &[u8]) -> Ordering {
    leaf.word(i).cmp(&word).then_with(|| tree.compare(&leaf.entry(i).name, name))
}

/// Where a member with this score is in a leaf of a scores tree, if it is there.
pub(super) fn find_in(tree: &Tree<'_>, leaf: &Leaf<'_>, word: u64, name: &[u8]) -> Option<usize> {
    let i = leaf.place_by(score_of(word), |other| tree.compare(other, name));
    (i < leaf.len() && compare(tree, leaf, i, word, name).is_eq()).then_some(i)
}

impl<'g> Tree<'g> {
    /// Compares a member with a string, byte by byte: one that lies apart where it lies.
    #[inline]
    pub(in crate::collection) fn compare(&self, name: &Element<'_>, text: &[u8]) -> Ordering {
        let Element::Apart(apart) = name else { return name.compare(text) };
        let mut rest = text;
        for part in self.parts(apart) {
            let (here, behind) = rest.split_at(part.len().min(rest.len()));
            let order = part.cmp(here);
            if order.is_ne() {
                return order;
            }
            rest = behind;
        }
        if rest.is_empty() { Ordering::Equal } else { Ordering::Less }
    }

    /// The leaf of the members tree for a key, and the least key behind it. Without entries, if a part is there.
    pub(super) fn members_of(&self, key: u64) -> (Members<'g>, Option<u64>) {
        if self.members_height == 0 {
            // It is not made yet.
            return (Members::none(), None);
        }
        let (mut location, mut next) = (self.members, None);
        for _ in 0..self.members_height {
            let inner = self.inner(location);
            let i = inner.child_of(key);
            next = inner.keys.get(i + 1).copied().or(next);
            location = inner.location(i);
        }
        // SAFETY: a leaf of this tree's members, of the epoch that `'g` ends before.
        (unsafe { Members::at(&self.store.arena, location) }, next)
    }

    /// The leaf that has a member with this score, or would have it, and, if `counts` says so, where it begins among all.
    fn leaf_with_score(&self, word: u64, name: &[u8], counts: bool) -> (Leaf<'g>, usize) {
        let (mut location, mut before) = (self.top, 0);
        for level in (1..=self.height).rev() {
            let inner = self.inner(location);
            // SAFETY: a node of this tree, of the epoch that `'g` ends before.
            let i = unsafe { child_with(self, &inner, level, word, name) };
            if counts {
                before += inner.before(i);
            }
            location = inner.location(i);
        }
        (self.leaf(location), before)
    }

    /// The word of a member's score.
    pub(super) fn word_of_member(&self, name: &[u8]) -> Option<u64> {
        if name.len() > SCORED_BYTES_MAX {
            return self.long_member(name).map(|(word, _)| word);
        }
        let hash = hash_of(self.store.order_of(name));
        let (members, _) = self.members_of(key_of(hash));
        let with_hash = members.with_hash(hash);
        if with_hash.is_empty() {
            return None;
        }
        let packed = Packed::of(name);
        with_hash.into_iter().find_map(|i| {
            let word = members.word(i);
            let is_it = members.is_named(i, &packed).unwrap_or_else(|| {
                let (leaf, _) = self.leaf_with_score(word, name, false);
                find_in(self, &leaf, word, name).is_some()
            });
            is_it.then_some(word)
        })
    }

    /// The word of the score of a member that lies apart, and what leaves store for it. It is found by its hash and its
    /// length, and compared then. A name that is longer than any that lies apart is not even hashed.
    #[cold]
    pub(super) fn long_member(&self, name: &[u8]) -> Option<(u64, [u8; APART_BYTES])> {
        if self.apart < name.len() as u64 {
            return None;
        }
        self.long_member_with(self.store.hash_of_member(name), name)
    }

    /// As [`Tree::long_member`], given the member's hash in the members tree.
    pub(super) fn long_member_with(&self, hash: u64, name: &[u8]) -> Option<(u64, [u8; APART_BYTES])> {
        let (members, _) = self.members_of(key_of(hash));
        members.with_hash(hash).find_map(|i| match members.name(i) {
            Some(Element::Apart(apart)) if self.is_text(&apart, name) => {
                Some((members.word(i), apart.as_packed()))
            }
            _ => None,
        })
    }

    /// The score of a member.
    pub(in crate::collection) fn score_of_member(&self, name: &[u8]) -> Option<f64> {
        self.word_of_member(name).map(score_of)
    }

    /// A member's place among all, and its entry.
    pub(in crate::collection) fn member(&self, name: &[u8]) -> Option<(usize, Entry<'g>)> {
        let word = self.word_of_member(name)?;
        let (leaf, before) = self.leaf_with_score(word, name, true);
        let i = find_in(self, &leaf, word, name).expect("both trees have the same members");
        Some((before + i, leaf.entry(i)))
    }

    /// How many members have a lower score, or, if `also_equal`, one that is no higher.
    pub(in crate::collection) fn below(&self, score: f64, also_equal: bool) -> usize {
        let word = word_of(score);
        let (mut location, mut before) = (self.top, 0);
        for _ in 0..self.height {
            let inner = self.inner(location);
            let i = inner.keys[1..].partition_point(|key| *key < word || also_equal && *key == word);
            before += inner.before(i);
            location = inner.location(i);
        }
        before + self.leaf(location).below(score, also_equal)
    }

    /// Returns how many entries come before the first one for which `is_before` is false; it is true for all before that one.
    pub(in crate::collection) fn partition(&self, is_before: impl Fn(&Entry<'g>) -> bool) -> usize {
        let (mut location, mut before) = (self.top, 0);
        for level in (1..=self.height).rev() {
            let inner = self.inner(location);
            // The last child that begins with one that is before.
            let (mut low, mut high) = (0, inner.len() - 1);
            while low < high {
                let middle = (low + high).div_ceil(2);
                // SAFETY: a node of this tree, of the epoch that `'g` ends before.
                let leaf: Leaf<'g> =
                    unsafe { first_leaf_below(&self.store.arena, inner.location(middle), level - 1) };
                if is_before(&leaf.entry(0)) {
                    low = middle;
                } else {
                    high = middle - 1;
                }
            }
            before += inner.before(low);
            location = inner.location(low);
        }
        let leaf = self.leaf(location);
        before + leaf.partition(0..leaf.len(), is_before)
    }

    /// Adds the places of the members whose hashes are in one leaf of the members tree, that with
    /// this order, to `places`; returns the least order behind it.
    pub(super) fn scan_members(&self, order: u64, places: &mut Vec<Range<usize>>) -> Option<u64> {
        let (members, next) = self.members_of(order << ORDER_SHIFT);
        let mut found = Vec::with_capacity(members.len());
        let (room, mut long, mut held) = (&mut [0; DIGITS_MAX], Vec::new(), Scratch::none(self.store));
        for i in 0..members.len() {
            let (hash, word) = (members.hash(i), members.word(i));
            if let Some(name) = members.name(i) {
                let name = if let Element::Apart(apart) = &name {
                    // Part by part: byte by byte a mebibyte took a millisecond.
                    held.set(apart.len().max(long.capacity()));
                    long.clear();
                    long.reserve_exact(apart.len());
                    self.parts(apart).for_each(|part| long.extend_from_slice(part));
                    &long[..]
                } else {
                    name.text(room)
                };
                let (leaf, before) = self.leaf_with_score(word, name, true);
                found.extend(find_in(self, &leaf, word, name).map(|i| before + i));
                continue;
            }
            // Those with its score are few.
            let score = score_of(word);
            let alike = self.below(score, false)..self.below(score, true);
            let mut at = alike.start;
            while at < alike.end {
                let (leaf, start) = self.leaf_with(at);
                let here = at - start..leaf.len().min(alike.end - start);
                for (place, entry) in here.clone().zip(leaf.entries(here.clone())) {
                    if matches!(entry.name, Element::Apart(_)) {
                        // A member that lies apart has its name.
                        continue;
                    }
                    if hash_of(self.store.order_of(entry.name.text(&mut [0; DIGITS_MAX]))) == hash {
                        found.push(start + place);
                    }
                }
                at = start + here.end;
            }
        }
        found.sort_unstable();
        found.dedup();
        for place in found {
            match places.last_mut().filter(|last| last.end == place) {
                Some(last) => last.end += 1,
                None => places.push(place..place + 1),
            }
        }
        // Parts have the hash of the member before them, and nothing may follow them.
        let last = members.len().checked_sub(1).map(|last| members.hash(last));
        let next = match last {
            Some(hash) if next.is_some_and(|key| hash_by(key) == hash) => {
                // A leaf that was put behind them begins with the next order, which has the same hash.
                self.members_of(key_of(hash) | PARTS_MAX).1
            }
            _ => next,
        };
        next.map(|key| key.div_ceil(1 << ORDER_SHIFT)).filter(|order| *order < 1 << (u64::BITS - ORDER_SHIFT))
    }
}

impl Collection<'_> {
    /// Compares an element of this collection with a string, byte by byte.
    pub fn compare(&self, element: &Element<'_>, text: &[u8]) -> Ordering {
        self.tree().map_or_else(|| element.compare(text), |tree| tree.compare(element, text))
    }
}

impl Store {
    /// The hash of a member, as it lies in a members tree.
    pub(in crate::collection) fn hash_of_member(&self, name: &[u8]) -> u64 {
        hash_of(self.order_of(name))
    }
}
