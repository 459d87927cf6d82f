//! Many members that get scores at once: into the scores tree in its order, and into the members tree in its own order, so that
//! each leaf is made anew once for all that come into it.
//!
//! ```text
//! new members, by score             ─▶ into their leaves of the scores tree
//! those that move, by old score     ─▶ out of their leaves, and in again if they stay there
//! those that stay in none, by score ─▶ into their leaves
//! all of them, by hash              ─▶ into their leaves of the members tree
//! ```
//!
//! A member that is longer than a leaf shares none: such ones come one by one, in the order of the command. One that lies apart
//! comes into both trees at once.
//!
//! A leaf of the members tree has some 150 members, and one is made in microseconds: of 60,000 members in one command
//! these leaves took nine tenths of the time when each member was put into its leaf by itself.

use super::super::build::{NewEntry, SCORED_BYTES_MAX};
use super::super::change::Declined;
use super::super::leaf::Leaf;
use super::super::scores::word_of;
use super::members::{ALIKE_MAX, key_of};
use super::ranked::{compare, find_in, first_leaf_below};
use super::scored::Member;
use super::{ELEMENTS_MAX, Edit, EditContext, Growth, Inner, LEAF_BYTES, Path};
use crate::Store;
use crate::collection::{DIGITS_MAX, Element, Type};
use std::cmp::Ordering;
use std::ops::Range;

/// Members that come into a leaf of the members tree at a time, at most: each moves those behind it.
const INTO_LEAF: usize = if cfg!(any(test, feature = "schedule")) { 40 } else { 512 };
/// A leaf that is built takes no more members from so many bytes of names on, about.
const INTO_LEAF_BYTES: usize = 64 << 10;
/// From this length on a leaf of the scores tree that is built takes no more members: each moves those behind it.
const BUILT_BYTES: usize = 4 * LEAF_BYTES;
/// Bytes of names that are copied before the members tree is brought up to date, about.
const COPIED_BYTES: usize = if cfg!(any(test, feature = "schedule")) { 1 << 10 } else { 256 << 10 };

/// A member that gets a score.
#[derive(Clone, Copy, Debug)]
pub(in crate::collection) struct Move<'p> {
    /// The hash of its name, the order of the members tree.
    pub(in crate::collection) hash: u64,
    pub(in crate::collection) member: &'p [u8],
    /// The score that it has, if it is there.
    pub(in crate::collection) old: Option<f64>,
    pub(in crate::collection) score: f64,
}

/// How a member comes into the scores tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// It is new.
    New,
    /// It is there with another score.
    Moves,
    /// It is so long that it shares no leaf.
    Alone,
}

impl<'p> Move<'p> {
    fn way(&self) -> Way {
        match self.old {
            _ if self.member.len() > LEAF_BYTES => Way::Alone,
            None => Way::New,
            Some(_) => Way::Moves,
        }
    }

    /// Where it will be in the order of the scores tree.
    fn place(&self) -> (u64, &'p [u8]) {
        (word_of(self.score), self.member)
    }

    /// Where it is; where it will be, if it is new.
    fn old_place(&self) -> (u64, &'p [u8]) {
        (word_of(self.old.unwrap_or(self.score)), self.member)
    }
}

/// What a member's entry in the members tree is to become.
#[derive(Clone, Debug)]
enum Due<'p> {
    /// It has another score than `old`, or is new.
    Put { old: Option<u64>, member: &'p [u8], named: bool },
    /// It gets its name, which was copied.
    Name(Range<usize>),
}

/// What the members tree does not say yet.
#[derive(Debug, Default)]
struct Dues<'p> {
    /// A hash, the word of a score, and what is due: for one hash in this order.
    some: Vec<(u64, u64, Due<'p>)>,
    /// Names that were copied: the leaf that has one may be made anew before it is needed.
    copied: Vec<u8>,
    /// How many of the members that were put into one leaf have one score, and how many have it with those that had it before, as
    /// far as the leaf tells.
    runs: Vec<(usize, Option<usize>)>,
}

impl Dues<'_> {
    /// Notes the runs of members that were put into a leaf, which are in its order. A leaf tells how many have a score,
    /// unless that is the score at one of its ends, and the tree does not end there.
    fn note_runs(&mut self, leaf: &Leaf<'_>, placed: &[Move<'_>], (is_first, is_last): (bool, bool)) {
        for alike in placed.chunk_by(|one, other| word_of(one.score) == word_of(other.score)) {
            let score = alike[0].score;
            let here = leaf.below(score, false)..leaf.below(score, true);
            let is_whole = (here.start > 0 || is_first) && (here.end < leaf.len() || is_last);
            self.runs.push((alike.len(), is_whole.then_some(here.len())));
        }
    }
}

impl Edit {
    /// Gives members scores; no member comes twice. Puts `moves` in another order.
    pub(in crate::collection) fn put_scores(
        &mut self,
        cx: &mut EditContext<'_>,
        moves: &mut [Move<'_>],
    ) -> Result<(), Declined> {
        moves.sort_by(|one, other| {
            one.way().cmp(&other.way()).then_with(|| match one.way() {
                Way::New | Way::Moves => one.old_place().cmp(&other.old_place()),
                Way::Alone => Ordering::Equal,
            })
        });
        let count = moves.len();
        let (new, others) = moves.split_at(moves.partition_point(|given| given.way() == Way::New));
        let mut dues = Dues { some: Vec::with_capacity(count), ..Dues::default() };
        self.insert_all(cx, new, (&mut dues, count))?;
        // If all of the tree move, one does so when the others are there again: no tree is empty meanwhile.
        let moving = others.partition_point(|given| given.way() == Way::Moves);
        let (mut moving, alone) = others.split_at(moving.min((self.elements as usize).saturating_sub(1)));
        let mut far = Vec::new();
        while !moving.is_empty() {
            let done = self.move_some(cx, moving, &mut far, &mut dues)?;
            moving = &moving[done..];
            self.pay_many(cx, &mut dues, count)?;
        }
        far.sort_unstable_by_key(Move::place);
        self.insert_all(cx, &far, (&mut dues, count))?;
        for &Move { hash, member, old, score } in alone {
            if member.len() > SCORED_BYTES_MAX {
                // Both trees are to say the same before one is put in that lies apart.
                self.pay(cx, &mut dues)?;
                self.put_score(cx, member, old, score)?;
                continue;
            }
            let word = word_of(score);
            let old = old.map(word_of);
            let alike = match old {
                None => {
                    let new = self.new_member(cx, member)?;
                    self.elements += 1;
                    self.insert_member(cx, word, &new)?
                }
                Some(old) => {
                    let there = Member::in_leaf(cx.store, member);
                    self.move_member(cx, old, word, &there)?
                }
            };
            let alike = alike.unwrap_or_else(|| self.with_score(cx, score).len());
            dues.some.push((hash, word, Due::Put { old, member, named: alike > ALIKE_MAX }));
            if alike == ALIKE_MAX + 1 {
                self.note_alike(cx, (score, &[]), &mut dues);
            }
            self.pay_many(cx, &mut dues, count)?;
        }
        self.pay(cx, &mut dues)
    }

    /// Puts members into the scores tree; they come in its order, and are not there.
    fn insert_all<'p>(
        &mut self,
        cx: &mut EditContext<'_>,
        mut all: &[Move<'p>],
        (dues, count): (&mut Dues<'p>, usize),
    ) -> Result<(), Declined> {
        while !all.is_empty() {
            let done = self.insert_some(cx, all, dues)?;
            all = &all[done..];
            self.pay_many(cx, dues, count)?;
        }
        Ok(())
    }

    /// Puts the first of some members into the scores tree, as many as come into one leaf, and notes what the members tree
    /// has to say of them; returns how many these are.
    fn insert_some<'p>(
        &mut self,
        cx: &mut EditContext<'_>,
        all: &[Move<'p>],
        dues: &mut Dues<'p>,
    ) -> Result<usize, Declined> {
        let (store, (word, name)) = (cx.store, all[0].place());
        let path = self.path_to(store, word, name);
        let (is_first, high) = (path.is_first(self.height), path.high(&store.arena, self.height - 1));
        let tree = self.tree(store, Type::SortedSet);
        let mut builder = std::mem::take(&mut self.builder);
        builder.load(&self.leaf(store, &path));
        builder.make_roomy();
        let (mut count, mut in_front, mut behind, mut fits) = (0, true, true, true);
        let mut next: Option<Leaf<'_>> = None;
        for &Move { member, score, .. } in all {
            let place = builder.leaf().place_by(score, |other| tree.compare(other, member));
            let is_last = place == builder.leaf().len();
            let word = word_of(score);
            let is_beyond = match high {
                // The next leaf has members with this score, or had some: its first member is compared.
                Some(high) if is_last && word == high => {
                    let next = next.get_or_insert_with(|| self.leaf_behind(store, &path));
                    compare(&tree, next, 0, word, member).is_le()
                }
                Some(high) => is_last && word > high,
                None => false,
            };
            if count > 0 && (is_beyond || builder.loose_bytes() >= BUILT_BYTES) {
                break;
            }
            let entry = NewEntry { tag: store.tag_of(member), name: member, value: &[], score };
            if builder.insert(place, entry).is_err() {
                fits = false;
                break;
            }
            (in_front, behind) = (in_front && place == count, behind && is_last);
            count += 1;
        }
        let placed = &all[..count];
        dues.note_runs(&builder.leaf(), placed, (is_first, high.is_none()));
        self.elements += count as u64;
        self.growth = match high {
            None if behind => Growth::Back,
            Some(_) | None if is_first && in_front => Growth::Front,
            Some(_) | None => Growth::Within,
        };
        let done = if fits && self.elements < ELEMENTS_MAX {
            self.store_leaf(cx, &path, &mut builder)
        } else {
            Err(Declined::TooLarge)
        };
        self.growth = Growth::Within;
        self.builder = builder;
        done?;
        self.note_placed(cx, placed, dues);
        Ok(count)
    }

    /// The leaf behind that at the end of a path, which is not the last.
    fn leaf_behind<'g>(&self, store: &Store, path: &Path) -> Leaf<'g> {
        let arena = &store.arena;
        let behind = (0..self.height).rev().find_map(|depth| {
            let (location, i) = path.steps[depth];
            // SAFETY: an inner node of this edit, or of a tree that is as it was.
            let inner = unsafe { Inner::at(arena, location) };
            (i + 1 < inner.len()).then(|| (inner.location(i + 1), self.height - 1 - depth))
        });
        let (location, level) = behind.expect("there is a key behind the leaf");
        // SAFETY: as above, so is what is below it; no caller keeps the leaf beyond the next allocation.
        unsafe { first_leaf_below(arena, location, level) }
    }

    /// Takes the first of some members, which are there, out of their leaf of the scores tree, and puts those in again that
    /// stay in it; the others are added to `far`. Returns how many were taken out.
    fn move_some<'p>(
        &mut self,
        cx: &mut EditContext<'_>,
        moving: &[Move<'p>],
        far: &mut Vec<Move<'p>>,
        dues: &mut Dues<'p>,
    ) -> Result<usize, Declined> {
        let (store, (word, name)) = (cx.store, moving[0].old_place());
        let path = self.path_to(store, word, name);
        let depth = self.height - 1;
        let (is_first, high) = (path.is_first(self.height), path.high(&store.arena, depth));
        let low = path.low(&store.arena, depth, path.steps[depth].1);
        let tree = self.tree(store, Type::SortedSet);
        let mut builder = std::mem::take(&mut self.builder);
        builder.load(&self.leaf(store, &path));
        builder.make_roomy();
        let (mut count, mut near, mut fits) = (0, Vec::new(), true);
        for given in moving {
            let (word, member) = given.old_place();
            // One that is not here is in a leaf behind this one.
            let Some(i) = find_in(&tree, &builder.leaf(), word, member) else { break };
            builder.remove(i..i + 1);
            count += 1;
            let (word, score) = (word_of(given.score), given.score);
            let place = builder.leaf().place_by(score, |other| tree.compare(other, member));
            // Of members that have the score that a leaf begins with some may be in the leaf before it.
            let is_behind = place > 0 || is_first || word > low;
            let is_before = place < builder.leaf().len() || high.is_none_or(|high| word < high);
            if is_behind && is_before {
                let entry = NewEntry { tag: store.tag_of(member), name: member, value: &[], score };
                fits &= builder.insert(place, entry).is_ok();
                near.push(*given);
            } else {
                far.push(*given);
            }
        }
        assert!(count > 0, "both trees have the same members");
        near.sort_unstable_by_key(Move::place);
        dues.note_runs(&builder.leaf(), &near, (is_first, high.is_none()));
        self.elements -= (count - near.len()) as u64;
        let done = if fits { self.store_leaf(cx, &path, &mut builder) } else { Err(Declined::TooLarge) };
        self.builder = builder;
        done?;
        self.note_placed(cx, &near, dues);
        Ok(count)
    }

    /// Notes what the members tree has to say of members that were put into a leaf of the scores tree, which is there by now.
    fn note_placed<'p>(&self, cx: &EditContext<'_>, placed: &[Move<'p>], dues: &mut Dues<'p>) {
        let (mut at, mut runs) = (0, std::mem::take(&mut dues.runs));
        for (run, alike) in runs.drain(..) {
            let some = &placed[at..at + run];
            at += run;
            let score = some[0].score;
            let alike = alike.unwrap_or_else(|| self.with_score(cx, score).len());
            let named = alike > ALIKE_MAX;
            for &Move { hash, member, old, .. } in some {
                dues.some.push((hash, word_of(score), Due::Put { old: old.map(word_of), member, named }));
            }
            // Others that had it have their names if they were too many before.
            if named && alike - run <= ALIKE_MAX {
                self.note_alike(cx, (score, some), dues);
            }
        }
        dues.runs = runs;
    }

    /// Notes that the members with a score are to have their names in the members tree, but for
    /// those that were just put in, which get them anyway.
    fn note_alike(&self, cx: &EditContext<'_>, (score, placed): (f64, &[Move<'_>]), dues: &mut Dues<'_>) {
        let (tree, places) = (self.tree(cx.store, Type::SortedSet), self.with_score(cx, score));
        let mut placed = placed.iter().map(|given| given.member).peekable();
        let mut place = places.start;
        while place < places.end {
            let (leaf, start) = tree.leaf_with(place);
            let here = place - start..leaf.len().min(places.end - start);
            place = start + here.end;
            for entry in leaf.entries(here) {
                if matches!(entry.name, Element::Apart(_)) {
                    // It has had it from the beginning.
                    continue;
                }
                let (from, room) = (dues.copied.len(), &mut [0; DIGITS_MAX]);
                let name = entry.name.text(room);
                if placed.next_if(|member| *member == name).is_some() {
                    continue;
                }
                dues.copied.extend_from_slice(name);
                let hash = cx.store.hash_of_member(name);
                dues.some.push((hash, word_of(score), Due::Name(from..dues.copied.len())));
            }
        }
    }

    /// Brings the members tree up to date, if more is due than there are members, or many names were copied.
    fn pay_many(
        &mut self,
        cx: &mut EditContext<'_>,
        dues: &mut Dues<'_>,
        members: usize,
    ) -> Result<(), Declined> {
        let is_much = dues.copied.len() > COPIED_BYTES || dues.some.len() > members;
        if is_much { self.pay(cx, dues) } else { Ok(()) }
    }

    /// Brings the members tree up to date.
    fn pay(&mut self, cx: &mut EditContext<'_>, dues: &mut Dues<'_>) -> Result<(), Declined> {
        let Dues { some, copied, .. } = dues;
        some.sort_by_key(|(hash, ..)| *hash);
        let mut i = 0;
        while i < some.len() {
            let from = i;
            self.change_members(cx, some[i].0, |members, high| {
                while let Some((hash, word, due)) = some.get(i)
                    && high.is_none_or(|high| key_of(*hash) < high)
                    && (i == from || i - from < INTO_LEAF && members.payload_bytes() < INTO_LEAF_BYTES)
                {
                    match due {
                        Due::Put { old, member, named } => {
                            if let Some(old) = old {
                                let there = members.find(*hash, *old, member);
                                members.remove(there.expect("both trees have the same members"));
                            }
                            members.insert(*hash, *word, named.then_some(*member));
                        }
                        Due::Name(name) => {
                            let name = &copied[name.clone()];
                            let there = members.find(*hash, *word, name);
                            members.set_name(there.expect("both trees have the same members"), name);
                        }
                    }
                    i += 1;
                }
            })?;
        }
        some.clear();
        copied.clear();
        Ok(())
    }
}
