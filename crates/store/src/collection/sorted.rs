//! Sorted sets: members, each once, in the order of their scores, those of one score in the order of their bytes.
//! [`Guard::remove_named`] takes members out by name.

use super::Type;
use super::change::{Declined, Workpiece};
use super::leaf::Removed;
use super::tree::Move;
use crate::worker::Guard;
use crate::{End, Key};
use std::ops::Range;

/// Members that are given scores one by one before the others are put in order.
const ONE_BY_ONE: usize = 8;
/// Room for so many others is made at first, and for twice as many whenever it is full.
const ROOM_AT_FIRST: usize = 64;

/// Which members get a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScoreRule {
    /// Only members that are there.
    pub present: bool,
    /// Only members that are not.
    pub absent: bool,
    /// Members that are there only if their score becomes higher.
    pub higher: bool,
    /// Members that are there only if their score becomes lower.
    pub lower: bool,
    /// The number is added to the score that they have, or to 0.
    pub added: bool,
}

/// What came of giving scores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scored {
    /// Members that were not there.
    pub new: usize,
    /// Members that were there and have another score now.
    pub changed: usize,
    /// What the last one has now, if the rule held for it.
    pub score: Option<f64>,
}

impl Guard<'_> {
    /// Gives members scores, in order. Nothing is written if none is new and none has another score
    /// than before. No score may be NaN.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn sorted_add<'p>(
        &mut self,
        key: &Key<'_>,
        rule: ScoreRule,
        pairs: impl Iterator<Item = (f64, &'p [u8])> + Clone,
    ) -> Result<Scored, Declined> {
        let changed = self.change_collection(key, Type::SortedSet, |set| {
            let (mut scored, mut pairs) = (Scored::default(), pairs.clone());
            let mut given = 0;
            while given < ONE_BY_ONE || !set.is_tree() {
                let Some((score, member)) = pairs.next() else { return Ok::<_, Declined>(scored) };
                give(set, rule, score, member, &mut scored)?;
                given += 1;
            }
            give_many(set, rule, &mut pairs, &mut scored)?;
            Ok(scored)
        })?;
        Ok(changed.answer)
    }

    /// Takes out the members at the ranks that `ranks` says, as far as there are any; none if there is no such set.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn sorted_remove(
        &mut self,
        key: &Key<'_>,
        mut ranks: impl FnMut(&super::Collection<'_>) -> Range<usize>,
    ) -> Result<Option<Removed<'_>>, Declined> {
        let changed = self.take_out_of_collection(key, Type::SortedSet, |set| {
            let Some(whole) = set.collection() else { return Ok::<_, Declined>(0..0) };
            let ranks = ranks(&whole);
            let ranks = ranks.start.min(whole.len())..ranks.end.min(whole.len());
            set.remove_places(ranks.clone(), End::Front, true)?;
            Ok(ranks)
        })?;
        Ok(self.removed(changed))
    }
}

impl ScoreRule {
    /// The score that a member gets, if the rule says so. `old`: the one that it has, if it is there.
    fn of(self, old: Option<f64>, score: f64) -> Result<Option<f64>, Declined> {
        // −0 is stored as 0.
        let Some(old) = old else { return Ok((!self.present).then_some(score + 0.0)) };
        // It stays as it is, whatever would come of the sum.
        if self.absent {
            return Ok(None);
        }
        let score = if self.added { old + score } else { score };
        if score.is_nan() {
            return Err(Declined::NotANumber);
        }
        let kept = self.higher && score <= old || self.lower && score >= old;
        Ok((!kept).then_some(score + 0.0))
    }
}

impl Scored {
    /// Counts what a member that has `old` gets by the rule; true if it has another score than before then.
    fn count(&mut self, old: Option<f64>, given: Option<f64>) -> bool {
        self.score = given;
        let differs = given.is_some() && given != old;
        match old {
            None => self.new += usize::from(differs),
            Some(_) => self.changed += usize::from(differs),
        }
        differs
    }
}

/// Gives one member a score, if the rule says so.
fn give(
    set: &mut Workpiece<'_>,
    rule: ScoreRule,
    score: f64,
    member: &[u8],
    scored: &mut Scored,
) -> Result<(), Declined> {
    let old = set.score(member);
    let given = rule.of(old, score)?;
    let differs = scored.count(old, given);
    match given {
        Some(score) if differs => set.put_score(member, old, score),
        Some(_) | None => Ok(()),
    }
}

/// Gives scores to the members of a tree, so many at a time: 1. A member's pairs come together, in their order, and its score
/// is looked for once. 2. What comes of them is put in, in the order of the set; long members in the order in which they
/// came.
fn give_many<'p>(
    set: &mut Workpiece<'_>,
    rule: ScoreRule,
    pairs: &mut impl Iterator<Item = (f64, &'p [u8])>,
    scored: &mut Scored,
) -> Result<(), Declined> {
    let (most, mut held) = (set.at_once(), set.scratch());
    let mut some: Vec<(u32, Move<'p>)> = Vec::new();
    loop {
        some.clear();
        for (score, member) in pairs.by_ref().take(most) {
            if some.len() == some.capacity() {
                let room = (2 * some.len()).clamp(ROOM_AT_FIRST, most);
                // Room for what comes of them, too, and for putting that in order; for those of them that leave their leaves; and
                // for what the members tree is to say, and its order.
                held.set(room * 6 * size_of::<(u32, Move<'_>)>());
                some.reserve_exact(room - some.len());
            }
            let hash = set.hash_of_member(member);
            some.push((some.len() as u32, Move { hash, member, old: None, score }));
        }
        let Some(last) = some.len().checked_sub(1) else { return Ok(()) };
        // 1.
        some.sort_unstable_by_key(|(i, given)| (given.hash, given.member, *i));
        let (mut at, mut kept, mut answer) = (0, 0, None);
        while at < some.len() {
            let (first, Move { hash, member, .. }) = some[at];
            let old = set.score(member);
            let mut now = old;
            while let Some(&(i, Move { score, .. })) =
                some.get(at).filter(|(_, given)| given.hash == hash && given.member == member)
            {
                let given = rule.of(now, score)?;
                scored.count(now, given);
                now = given.or(now);
                if i as usize == last {
                    answer = given;
                }
                at += 1;
            }
            if let Some(score) = now
                && now != old
            {
                some[kept] = (first, Move { hash, member, old, score });
                kept += 1;
            }
        }
        scored.score = answer;
        // 2.
        some.truncate(kept);
        some.sort_unstable_by_key(|(i, _)| *i);
        let mut moves: Vec<Move<'_>> = some.iter().map(|(_, given)| *given).collect();
        set.put_scores(&mut moves)?;
    }
}
