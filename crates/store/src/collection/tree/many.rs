//! Many entries that are put into a tree which has none of them, or is searched for each first. They come in the order of the
//! tree, so that each leaf is made anew once for all that come into it.

use super::super::build::{Full, NewEntry, SCORED_BYTES_MAX, lies_apart};
use super::super::change::Declined;
use super::super::scores::word_of;
use super::members::{ALIKE_MAX, ENTRY_BYTES, MembersBuilder, key_of};
use super::ranked::find_in;
use super::{ELEMENTS_MAX, Edit, EditContext, Growth, LEAF_BYTES, ORDER_SHIFT, key_by};
use crate::collection::{Lasting, Made, Type};
use crate::held::Scratch;
use crate::{End, Store};
use std::iter::Peekable;
use std::ops::Range;

/// Entries that are put in order at a time, at most: what is kept of them meanwhile is some mebibytes.
const AT_ONCE: usize = if cfg!(any(test, feature = "schedule")) { 300 } else { 32 << 10 };
/// In a small store they are fewer: one for so many bytes of the memory limit.
const AT_ONCE_SHARE: usize = 8 << 10;
/// The fewest entries at a time.
const AT_ONCE_MIN: usize = if cfg!(any(test, feature = "schedule")) { 300 } else { 4 << 10 };
/// Bytes of names for each of them, about.
const AT_ONCE_BYTES: usize = if cfg!(any(test, feature = "schedule")) { 1 << 20 } else { 128 };
/// Room for so many is made at first, and for twice as many whenever it is full.
const ROOM_AT_FIRST: usize = 64;
/// Entries of a members tree that come into one leaf at a time, and bytes of their names.
const INTO_LEAF: usize = if cfg!(any(test, feature = "schedule")) { 100 } else { 4 << 10 };
const INTO_LEAF_BYTES: usize = 256 << 10;
/// A leaf of members that is made longer is cut.
const APPENDED_BYTES: usize = 16 * LEAF_BYTES;
/// The same where each that comes moves all others.
const PREPENDED_BYTES: usize = 4 * LEAF_BYTES;

/// Entries of a store that are put in order at a time.
pub(in crate::collection) fn at_once(store: &Store) -> usize {
    (store.memory_bytes() as usize / AT_ONCE_SHARE).clamp(AT_ONCE_MIN, AT_ONCE)
}

/// Bytes of scratch memory to put entries in order: room for so many, and so many bytes of names.
fn scratch_bytes(kind: Type, room: usize, names: usize) -> usize {
    let each = size_of::<(u64, Made<'_>)>();
    // Of a sorted set those of the members tree, and as many again while these are sorted.
    let members = if kind == Type::SortedSet { 2 * ENTRY_BYTES } else { 0 };
    room * (each + members) + names
}

impl Edit {
    /// Puts in entries of which none is there; those of a list or a sorted set come behind all others, in their order.
    pub(in crate::collection) fn put_many<'p>(
        &mut self,
        cx: &mut EditContext<'_>,
        kind: Type,
        entries: impl Iterator<Item = Made<'p>>,
    ) -> Result<(), Declined> {
        if kind == Type::List {
            return self.push(cx, End::Back, &mut entries.map(|made| made.name).peekable());
        }
        let mut entries = entries.peekable();
        let mut some: Vec<(u64, Made<'p>)> = Vec::new();
        let (mut held, count_max) = (Scratch::none(cx.store), at_once(cx.store));
        while entries.peek().is_some() {
            some.clear();
            let mut bytes = 0;
            while some.len() < count_max
                && bytes < count_max * AT_ONCE_BYTES
                && let Some(made) = entries.next()
            {
                if !cx.store.element_fits(kind, made.name, made.value) {
                    return Err(Declined::TooLarge);
                }
                bytes += made.name.len();
                if some.len() == some.capacity() {
                    let room = (2 * some.len()).clamp(ROOM_AT_FIRST, count_max);
                    held.set(scratch_bytes(kind, room, bytes));
                    some.reserve_exact(room - some.len());
                }
                some.push((cx.store.member_hash(made.name), made));
            }
            held.set(scratch_bytes(kind, some.capacity(), bytes));
            if self.elements + some.len() as u64 >= ELEMENTS_MAX {
                return Err(Declined::TooLarge);
            }
            match kind {
                Type::SortedSet => {
                    let is_long = |(_, made): &(u64, Made<'_>)| made.name.len() > SCORED_BYTES_MAX;
                    for alike in some.chunk_by(|one, other| is_long(one) == is_long(other)) {
                        if is_long(&alike[0]) {
                            let mut long = alike.iter().map(|(_, made)| made);
                            long.try_for_each(|made| self.put_score(cx, made.name, None, made.score))?;
                        } else {
                            self.append_scores(cx, alike)?;
                            self.add_members(cx, alike)?;
                        }
                    }
                }
                Type::Hash | Type::Set | Type::List | Type::Stream => {
                    some.sort_unstable_by_key(|(hash, _)| *hash);
                    let mut sorted = some.iter().copied().peekable();
                    while sorted.peek().is_some() {
                        self.put_into_leaf(cx, kind, &mut sorted, false)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts in entries of which some may be there, or come twice; those of a list come behind all others, those of a sorted
    /// set into its scores tree. No more are given than are put in in one step.
    ///
    /// # Errors
    /// [`Declined::Twice`]: one is there, or comes twice. Some are put in then.
    pub(in crate::collection) fn put_each_once<'p>(
        &mut self,
        cx: &mut EditContext<'_>,
        kind: Type,
        entries: impl Iterator<Item = Made<'p>>,
    ) -> Result<(), Declined> {
        if kind == Type::List {
            return self.push(cx, End::Back, &mut entries.map(|made| made.name).peekable());
        }
        let mut some: Vec<(u64, Made<'p>)> = Vec::with_capacity(entries.size_hint().0);
        for made in entries {
            if !cx.store.element_fits(kind, made.name, made.value) {
                return Err(Declined::TooLarge);
            }
            some.push((cx.store.member_hash(made.name), made));
        }
        if self.elements + some.len() as u64 >= ELEMENTS_MAX {
            return Err(Declined::TooLarge);
        }
        if kind == Type::SortedSet {
            return self.put_scores_once(cx, &mut some);
        }
        some.sort_unstable_by_key(|(hash, _)| *hash);
        let mut sorted = some.iter().copied().peekable();
        while sorted.peek().is_some() {
            self.put_into_leaf(cx, kind, &mut sorted, true)?;
        }
        Ok(())
    }

    /// As [`Edit::put_each_once`], for members of a sorted set whose members tree is made later ([`super::late`]): a member
    /// that comes with two scores is found there.
    fn put_scores_once(
        &mut self,
        cx: &mut EditContext<'_>,
        some: &mut Vec<(u64, Made<'_>)>,
    ) -> Result<(), Declined> {
        debug_assert!(self.beside == (0, 0) || self.apart > 0, "the members tree is made later");
        if some.iter().any(|(_, made)| made.name.len() > SCORED_BYTES_MAX) {
            for (_, made) in some.iter().filter(|(_, made)| made.name.len() > SCORED_BYTES_MAX) {
                self.put_long_once(cx, made.name, made.score)?;
            }
            some.retain(|(_, made)| made.name.len() <= SCORED_BYTES_MAX);
        }
        some.sort_unstable_by(|(_, one), (_, other)| {
            word_of(one.score).cmp(&word_of(other.score)).then_with(|| one.name.cmp(other.name))
        });
        let is_twice = |one: &Made<'_>, other: &Made<'_>| {
            word_of(one.score) == word_of(other.score) && one.name == other.name
        };
        if some.windows(2).any(|two| is_twice(&two[0].1, &two[1].1)) {
            return Err(Declined::Twice);
        }
        let (Some((_, first)), Some((_, last))) = (some.first(), some.last()) else { return Ok(()) };
        let tree = self.tree(cx.store, Type::SortedSet);
        let (end, start) = tree.leaf_with(self.elements as usize - 1);
        let place = end.place_by(first.score, |other| tree.compare(other, first.name));
        if place == self.elements as usize - start {
            return self.append_scores(cx, some);
        }
        let front = tree.leaf_with(0).0;
        let is_in_front = front.place_by(last.score, |other| tree.compare(other, last.name)) == 0
            && find_in(&tree, &front, word_of(last.score), last.name).is_none();
        if is_in_front {
            return self.prepend_scores(cx, some);
        }
        some.iter().try_for_each(|(_, made)| self.put_score_once(cx, made.name, made.score))
    }

    /// Puts a member that lies apart into a sorted set whose members tree is made later. Such a
    /// member comes into that tree at once, since its parts lie there.
    ///
    /// # Errors
    /// [`Declined::Twice`]: it is there.
    fn put_long_once(&mut self, cx: &mut EditContext<'_>, name: &[u8], score: f64) -> Result<(), Declined> {
        let (member, word) = (self.new_member(cx, name)?, word_of(score));
        let tree = self.tree(cx.store, Type::SortedSet);
        if self.apart > 0 && tree.long_member_with(member.hash(), name).is_some() {
            return Err(Declined::Twice);
        }
        if self.height == 0 {
            return self.put_first_member(cx, &member, score);
        }
        self.elements += 1;
        self.insert_member(cx, word, &member)?;
        if self.beside == (0, 0) {
            self.plant_members_of(cx, |members| member.insert_into(members, word, true))?;
        } else {
            self.change_members(cx, member.hash(), |members, _| member.insert_into(members, word, true))?;
        }
        self.put_parts_of(cx, &member)
    }

    /// Puts as many entries of a hash or a set as come into the leaf of the first of them; `asks`:
    /// it fails if one of them is there.
    fn put_into_leaf<'p>(
        &mut self,
        cx: &mut EditContext<'_>,
        kind: Type,
        sorted: &mut Peekable<impl Iterator<Item = (u64, Made<'p>)>>,
        asks: bool,
    ) -> Result<(), Declined> {
        let Some(&(hash, made)) = sorted.peek() else { return Ok(()) };
        if self.height == 0 || lies_apart(kind, made.name, made.value) {
            sorted.next();
            return self.put_one(cx, kind, made, asks);
        }
        let path = self.path(cx.store, key_by(hash));
        let high = path.high(&cx.store.arena, self.height - 1);
        let mut builder = std::mem::take(&mut self.builder);
        match self.leaf(cx.store, &path) {
            // Parts are there: it comes behind them.
            leaf if leaf.len() == 0 => builder.start(kind),
            leaf => builder.load(&leaf),
        }
        builder.make_roomy();
        let before = builder.leaf().len();
        let mut fault = None;
        while let Some(&(hash, Made { name, value, expires_at, .. })) = sorted.peek()
            && high.is_none_or(|high| key_by(hash) < high)
            && (builder.leaf().len() == before || builder.loose_bytes() < APPENDED_BYTES)
        {
            let end = builder.leaf().len();
            if asks && builder.leaf().find(name, hash as u8).is_some() {
                fault = Some(Declined::Twice);
                break;
            }
            if builder.insert(end, NewEntry { tag: hash as u8, name, value, score: 0.0 }) == Err(Full) {
                fault = (end == before).then_some(Declined::TooLarge);
                break;
            }
            if expires_at != 0 {
                builder.set_time(end, expires_at);
            }
            sorted.next();
        }
        self.elements += (builder.leaf().len() - before) as u64;
        let done = match fault {
            Some(declined) => Err(declined),
            None => self.store_leaf(cx, &path, &mut builder),
        };
        self.builder = builder;
        done
    }

    /// Puts one entry of which something lies apart, or that is the first of all.
    fn put_one(
        &mut self,
        cx: &mut EditContext<'_>,
        kind: Type,
        made: Made<'_>,
        asks: bool,
    ) -> Result<(), Declined> {
        let now = cx.local.now;
        // A member of a set is not looked for first: putting one that is there changes nothing.
        let asks_first = asks && kind != Type::Set && self.elements > 0;
        if asks_first && self.with(cx.store, (made.name, now), |_, _| ()).is_some() {
            return Err(Declined::Twice);
        }
        let lasting = if made.expires_at == 0 { Lasting::Never } else { Lasting::Until(made.expires_at) };
        let new = self.put(cx, kind, (made.name, made.value), lasting)?;
        if asks && !new { Err(Declined::Twice) } else { Ok(()) }
    }

    /// Puts members behind all others into the scores tree.
    fn append_scores(&mut self, cx: &mut EditContext<'_>, some: &[(u64, Made<'_>)]) -> Result<(), Declined> {
        let mut some = some.iter().peekable();
        while some.peek().is_some() {
            self.change_last(cx, |builder| {
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

    /// Puts members in front of all others into the scores tree.
    fn prepend_scores(&mut self, cx: &mut EditContext<'_>, some: &[(u64, Made<'_>)]) -> Result<(), Declined> {
        let mut some = some.iter().rev().peekable();
        while some.peek().is_some() {
            self.change_first(cx, |builder| {
                let before = builder.leaf().len();
                while let Some(&&(hash, Made { name, score, .. })) = some.peek()
                    && (builder.leaf().len() == before || builder.loose_bytes() < PREPENDED_BYTES)
                {
                    match builder.insert(0, NewEntry { tag: hash as u8, name, value: &[], score }) {
                        Ok(()) => drop(some.next()),
                        Err(Full) if builder.leaf().len() == before => return Err(Declined::TooLarge),
                        Err(Full) => break,
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Puts members that are in the scores tree, behind all others there, into the members tree.
    fn add_members(&mut self, cx: &mut EditContext<'_>, some: &[(u64, Made<'_>)]) -> Result<(), Declined> {
        // They come anywhere there.
        self.growth = Growth::Within;
        let mut added = MembersBuilder::default();
        for (i, alike) in some.chunk_by(|one, other| one.1.score == other.1.score).enumerate() {
            let score = alike[0].1.score;
            let mut ranks = 0..alike.len();
            if i == 0 {
                // Others may have it, too.
                ranks = self.with_score(cx, score);
                let others = ranks.start..ranks.end - alike.len();
                if ranks.len() > ALIKE_MAX && others.len() <= ALIKE_MAX {
                    self.name_ranks(cx, score, others)?;
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
            self.change_members(cx, added.hash(i), |members, high| {
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
    pub(super) fn with_score(&self, cx: &EditContext<'_>, score: f64) -> Range<usize> {
        let tree = self.tree(cx.store, Type::SortedSet);
        tree.below(score, false)..tree.below(score, true)
    }
}
