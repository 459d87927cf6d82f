//! Sorted sets: members, each once, in the order of their scores, those of one score in the order of their bytes.
//! [`Guard::remove_named`] takes members out by name.

use super::Type;
use super::change::{Declined, Workpiece};
use super::leaf::Removed;
use crate::worker::Guard;
use crate::{End, Key};
use std::ops::Range;

/// Which members get a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScoreRule {
    /// Only those that are there.
    pub present: bool,
    /// Only those that are not.
    pub absent: bool,
    /// Of those that are there, only those whose score becomes higher.
    pub higher: bool,
    /// Of those that are there, only those whose score becomes lower.
    pub lower: bool,
    /// It is added to the score that they have, or to 0.
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
    /// Gives members scores, in order. Nothing is written if none is new and none has another score than before. A
    /// score is a number.
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
            let mut scored = Scored::default();
            for (score, member) in pairs.clone() {
                give(set, rule, score, member, &mut scored)?;
            }
            Ok::<_, Declined>(scored)
        })?;
        Ok(changed.answer)
    }

    /// Takes the members of these ranks out, as far as there are; none if there is no such set.
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

/// Gives one member a score, if the rule says so.
fn give(
    set: &mut Workpiece<'_>,
    rule: ScoreRule,
    score: f64,
    member: &[u8],
    scored: &mut Scored,
) -> Result<(), Declined> {
    scored.score = None;
    let Some(old) = set.score(member) else {
        if !rule.present {
            set.put_score(member, None, score)?;
            scored.new += 1;
            // −0 is stored as 0.
            scored.score = Some(score + 0.0);
        }
        return Ok(());
    };
    // It stays as it is, whatever would come of the sum.
    if rule.absent {
        return Ok(());
    }
    let score = if rule.added { old + score } else { score };
    if score.is_nan() {
        return Err(Declined::NotANumber);
    }
    if rule.higher && score <= old || rule.lower && score >= old {
        return Ok(());
    }
    scored.score = Some(score + 0.0);
    if score != old {
        set.put_score(member, Some(old), score)?;
        scored.changed += 1;
    }
    Ok(())
}
