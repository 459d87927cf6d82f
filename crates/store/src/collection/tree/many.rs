//! Many entries that are put into a tree which has none of them: in the order of the tree, so that each leaf is made anew
//! once for all that come into it.

use super::super::build::{Full, NewEntry, fits_alone};
use super::super::change::Declined;
use super::super::scores::word_of;
use super::members::{ALIKE_MAX, MembersBuilder, key_of};
use super::{ELEMENTS_MAX, Edit, Hand, LEAF_BYTES, ORDER_SHIFT};
use crate::End;
use crate::collection::{Made, Type};
use std::iter::Peekable;
use std::ops::Range;

/// Entries that are put in order at a time: what is kept of them meanwhile is some mebibytes.
const AT_ONCE: usize = if cfg!(any(test, feature = "schedule")) { 300 } else { 32 << 10 };
/// The same of bytes.
const AT_ONCE_BYTES: usize = 4 << 20;
/// Entries of a members tree that come into one leaf at a time, and bytes of their names.
const INTO_LEAF: usize = if cfg!(any(test, feature = "schedule")) { 100 } else { 4 << 10 };
const INTO_LEAF_BYTES: usize = 256 << 10;
/// A leaf of members that is made longer is cut.
const APPENDED_BYTES: usize = 16 * LEAF_BYTES;

impl Edit {
    /// Puts in entries of which none is there; those of a list or a sorted set come behind all others, in their order.
    pub(in crate::collection) fn put_many<'p>(
        &mut self,
        hand: &mut Hand<'_>,
        kind: Type,
        entries: impl Iterator<Item = Made<'p>>,
    ) -> Result<(), Declined> {
        if kind == Type::List {
            return self.push(hand, End::Back, &mut entries.map(|made| made.name).peekable());
        }
        let mut entries = entries.peekable();
        let mut some: Vec<(u64, Made<'p>)> = Vec::new();
        while entries.peek().is_some() {
            some.clear();
            let mut bytes = 0;
            while some.len() < AT_ONCE
                && bytes < AT_ONCE_BYTES
                && let Some(made) = entries.next()
            {
                if !fits_alone(kind, made.name, made.value) {
                    return Err(Declined::TooLarge);
                }
                bytes += made.name.len();
                some.push((hand.store.member_hash(made.name), made));
            }
            if self.elements + some.len() as u64 >= ELEMENTS_MAX {
                return Err(Declined::TooLarge);
            }
            match kind {
                Type::SortedSet => {
                    self.append_scores(hand, &some)?;
                    self.add_members(hand, &some)?;
                }
                Type::Hash | Type::Set | Type::List => {
                    some.sort_unstable_by_key(|(hash, _)| *hash);
                    let mut sorted = some.iter().copied().peekable();
                    while sorted.peek().is_some() {
                        self.put_into_leaf(hand, &mut sorted)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts as many entries of a hash or a set as come into the leaf of the first of them.
    fn put_into_leaf<'p>(
        &mut self,
        hand: &mut Hand<'_>,
        sorted: &mut Peekable<impl Iterator<Item = (u64, Made<'p>)>>,
    ) -> Result<(), Declined> {
        let Some((hash, _)) = sorted.peek() else { return Ok(()) };
        let path = self.path(hand.store, hash >> ORDER_SHIFT);
        let high = path.high(&hand.store.arena, self.height - 1);
        let mut builder = std::mem::take(&mut self.builder);
        builder.load(&self.leaf(hand.store, &path));
        builder.make_roomy();
        let before = builder.leaf().len();
        let mut full = false;
        while let Some(&(hash, Made { name, value, .. })) = sorted.peek()
            && high.is_none_or(|high| hash >> ORDER_SHIFT < high)
            && (builder.leaf().len() == before || builder.loose_bytes() < APPENDED_BYTES)
        {
            let end = builder.leaf().len();
            if builder.insert(end, NewEntry { tag: hash as u8, name, value, score: 0.0 }) == Err(Full) {
                full = end == before;
                break;
            }
            sorted.next();
        }
        self.elements += (builder.leaf().len() - before) as u64;
        let done = if full { Err(Declined::TooLarge) } else { self.store_leaf(hand, &path, &mut builder) };
        self.builder = builder;
        done
    }

    /// Puts members behind all others into the scores tree.
    fn append_scores(&mut self, hand: &mut Hand<'_>, some: &[(u64, Made<'_>)]) -> Result<(), Declined> {
        let mut some = some.iter().peekable();
        while some.peek().is_some() {
            self.change_last(hand, |builder| {
                let before = builder.leaf().len();
                while let Some(&&(hash, Made { name, score, .. })) = some.peek()
                    && (builder.leaf().len() == before || builder.loose_bytes() < APPENDED_BYTES)
                {
                    let end = builder.leaf().len();
                    match builder.insert(end, NewEntry { tag: hash as u8, name, value: &[], score }) {
                        Ok(()) => drop(some.next()),
                        Err(Full) if end == before => return Err(Declined::TooLarge),
                        Err(Full) => break,
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Puts members that are in the scores tree, the last ones there, into the members tree.
    fn add_members(&mut self, hand: &mut Hand<'_>, some: &[(u64, Made<'_>)]) -> Result<(), Declined> {
        let mut added = MembersBuilder::default();
        for alike in some.chunk_by(|one, other| one.1.score == other.1.score) {
            let score = alike[0].1.score;
            let mut ranks = 0..alike.len();
            if std::ptr::eq(alike, &some[..alike.len()]) {
                // Others may have it, too.
                ranks = self.with_score(hand, score);
                let before = ranks.start..ranks.end - alike.len();
                if ranks.len() > ALIKE_MAX && before.len() <= ALIKE_MAX {
                    self.name_ranks(hand, score, before)?;
                }
            }
            for (hash, made) in alike {
                let name = (ranks.len() > ALIKE_MAX).then_some(made.name);
                added.push(super::members::hash_of(hash >> ORDER_SHIFT), word_of(score), name);
            }
        }
        added.sort();
        let mut i = 0;
        while i < added.len() {
            self.change_members(hand, added.hash(i), |members, high| {
                let end = added.len().min(i + INTO_LEAF);
                while i < end
                    && members.payload_bytes() < INTO_LEAF_BYTES
                    && high.is_none_or(|high| key_of(added.hash(i)) < high)
                {
                    members.push_one_of(&added, i);
                    i += 1;
                }
                members.sort();
            })?;
        }
        Ok(())
    }

    /// The places of the members with a score.
    pub(super) fn with_score(&self, hand: &Hand<'_>, score: f64) -> Range<usize> {
        let tree = self.tree(hand.store, Type::SortedSet);
        tree.below(score, false)..tree.below(score, true)
    }
}
