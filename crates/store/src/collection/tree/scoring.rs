//! Many members that get scores at once: into the scores tree each by itself, in the order in which they came, and into the
//! members tree in its own order, so that each leaf of that is made anew once for all that come into it.
//!
//! ```text
//! members, scores ─▶ scores tree, one by one ─▶ what the members tree has to say of it ─▶ by hash ─▶ members tree
//! ```
//!
//! A leaf of the members tree has some 150 members, and one is made in microseconds: of 60,000 members in one command
//! these leaves took nine tenths of the time when each member was put into its leaf by itself.

use super::super::build::SCORED_BYTES_MAX;
use super::super::change::Declined;
use super::super::scores::word_of;
use super::members::{ALIKE_MAX, key_of};
use super::scored::Member;
use super::{Edit, Hand};
use crate::collection::{DIGITS_MAX, Element, Type};
use std::ops::Range;

/// Members that come into a leaf of the members tree at a time, at most: each moves those behind it.
const INTO_LEAF: usize = if cfg!(any(test, feature = "schedule")) { 40 } else { 512 };
/// Bytes of names of a leaf that is built, about, from which on no more come into it.
const INTO_LEAF_BYTES: usize = 64 << 10;
/// Bytes of names that are copied before the members tree is brought up to date, about.
const COPIED_BYTES: usize = if cfg!(any(test, feature = "schedule")) { 1 << 10 } else { 256 << 10 };

/// A member that gets a score.
#[derive(Clone, Copy, Debug)]
pub(in crate::collection) struct Move<'p> {
    /// Of the members tree.
    pub(in crate::collection) hash: u64,
    pub(in crate::collection) member: &'p [u8],
    /// The score that it has, if it is there.
    pub(in crate::collection) old: Option<f64>,
    pub(in crate::collection) score: f64,
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
}

impl Edit {
    /// Gives members scores, each once.
    pub(in crate::collection) fn put_scores(
        &mut self,
        hand: &mut Hand<'_>,
        moves: &[Move<'_>],
    ) -> Result<(), Declined> {
        let mut dues = Dues { some: Vec::with_capacity(moves.len()), copied: Vec::new() };
        for &Move { hash, member, old, score } in moves {
            if member.len() > SCORED_BYTES_MAX {
                // Both trees are to say the same before one is put in that lies apart.
                self.pay(hand, &mut dues)?;
                self.put_score(hand, member, old, score)?;
                continue;
            }
            let word = word_of(score);
            let old = old.map(word_of);
            let alike = match old {
                None => {
                    let new = self.new_member(hand, member)?;
                    self.elements += 1;
                    self.insert_member(hand, word, &new)?
                }
                Some(old) => {
                    let there = Member::in_leaf(hand.store, member);
                    self.move_member(hand, old, word, &there)?
                }
            };
            let alike = alike.unwrap_or_else(|| self.with_score(hand, score).len());
            dues.some.push((hash, word, Due::Put { old, member, named: alike > ALIKE_MAX }));
            if alike == ALIKE_MAX + 1 {
                self.note_alike(hand, score, &mut dues);
            }
            // Names make it more than there are members.
            if dues.copied.len() > COPIED_BYTES || dues.some.len() > moves.len() {
                self.pay(hand, &mut dues)?;
            }
        }
        self.pay(hand, &mut dues)
    }

    /// The members that have a score are to have their names in the members tree from here on.
    fn note_alike(&self, hand: &Hand<'_>, score: f64, dues: &mut Dues<'_>) {
        for place in self.with_score(hand, score) {
            let (leaf, start) = self.tree(hand.store, Type::SortedSet).leaf_with(place);
            let (from, room) = (dues.copied.len(), &mut [0; DIGITS_MAX]);
            let name = leaf.entry(place - start).name;
            if matches!(name, Element::Apart(_)) {
                // It has had it from the beginning.
                continue;
            }
            dues.copied.extend_from_slice(name.text(room));
            let hash = hand.store.hash_of_member(&dues.copied[from..]);
            dues.some.push((hash, word_of(score), Due::Name(from..dues.copied.len())));
        }
    }

    /// Brings the members tree up to date.
    fn pay(&mut self, hand: &mut Hand<'_>, dues: &mut Dues<'_>) -> Result<(), Declined> {
        let Dues { some, copied } = dues;
        some.sort_by_key(|(hash, ..)| *hash);
        let mut i = 0;
        while i < some.len() {
            let from = i;
            self.change_members(hand, some[i].0, |members, high| {
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
