//! ZREMRANGEBYRANK, ZREMRANGEBYSCORE, ZREMRANGEBYLEX: members are removed from a sorted set. Many are removed in steps, each of
//! which is one moment.
//!
//! No more are removed than were meant when the command came: members that others add meanwhile do not keep it going.

use larder_protocol::resp::Args;
use larder_store::{Key, Type};

use super::bounds::Bounds;
use super::taking::MEMBERS_AT_ONCE;
use super::{Call, SCORED_NS, peek_as};
use crate::redis::call::{ELEMENT_BYTES, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::row::{By, Command};
use crate::redis::source::Name;
use crate::redis::steps::job::{Job, Step};

/// Removes the members between two bounds. `name`: the command's.
pub(crate) fn remove(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    key: &Key<'_>,
    mut args: Args<'_>,
    by: By,
) -> Done {
    let words = [next(&mut args)?, next(&mut args)?];
    let bounds = Bounds::parse(by, words[0], words[1])?;
    let (whole, mut meant, mut len) = (call.cx.guard.in_transaction(), 0..0, 0);
    // They are looked for once: long bounds are compared with many members.
    let gone = call.cx.guard.sorted_remove(key, |set| {
        (meant, len) = (bounds.ranks(set), set.len());
        // A set that loses all members goes with its root, at once.
        let at_once = whole || meant.len() <= MEMBERS_AT_ONCE || meant.len() == len;
        if at_once { meant.clone() } else { 0..0 }
    })?;
    let gone = gone.map(|gone| gone.len());
    call.spend_on_bytes(bounds.compared_bytes());
    // `meant` may be of an earlier attempt that has found a set, though the last found none.
    let Some(gone) = gone else { return call.length(0) };
    if gone == meant.len() {
        call.spend_on(if gone == len { 1 } else { gone }, SCORED_NS);
        return call.length(gone);
    }
    let Some((row, _)) = call.shared.rows.find(name.as_bytes()) else { return Ok(()) };
    let held = Heap::keep(call, words.iter().map(|word| word.len()).sum())?;
    let words = words.map(Box::from);
    let name = Name::kept(call, key.bytes())?;
    let (start, left) = (meant.start, meant.len());
    call.go_on_with(Removing { row, name, by, words, _held: held, start, left, gone: 0 });
    Ok(())
}

/// How many members there are between two bounds, and how many in all.
pub(crate) fn meant<'a>(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    by: By,
    mut args: impl Iterator<Item = &'a [u8]>,
) -> (u64, u64) {
    let words = [args.next(), args.next()].map(Option::unwrap_or_default);
    let there = peek_as(&mut call.cx.guard, key, Type::SortedSet).unwrap_or(None);
    match (there, Bounds::parse(by, words[0], words[1])) {
        (Some(set), Ok(bounds)) => (bounds.ranks(&set).len() as u64, set.len() as u64),
        // Nothing will be removed.
        _ => (0, 0),
    }
}

/// Members that are removed in steps.
#[derive(Debug)]
struct Removing {
    row: &'static Command,
    name: Name,
    by: By,
    words: [Box<[u8]>; 2],
    _held: Heap,
    /// The rank of the first of them. When some are removed, the next has it.
    start: usize,
    left: usize,
    gone: usize,
}

impl Removing {
    /// Removes up to `most` members; returns how many.
    fn remove_some(&self, call: &mut Call<'_, '_, '_>, key: &Key<'_>, most: usize) -> Result<usize, Fail> {
        let most = most.min(self.left);
        let bounds = Bounds::parse(self.by, &self.words[0], &self.words[1])?;
        call.spend_on_bytes(bounds.compared_bytes());
        let gone = call.cx.guard.sorted_remove(key, |set| {
            let meant = match self.by {
                By::Rank => self.start..set.len(),
                By::Score | By::Lex => bounds.ranks(set),
            };
            meant.start..meant.end.min(meant.start + most)
        })?;
        Ok(gone.map_or(0, |gone| gone.len()))
    }
}

impl Job for Removing {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        // A second search for long bounds would take longer than to remove as many members as a step may.
        let is_long = self.words.iter().any(|word| word.len() > ELEMENT_BYTES);
        let ns = if is_long { u64::MAX } else { call.step_ns() };
        let most = ((ns / SCORED_NS) as usize).clamp(1, MEMBERS_AT_ONCE);
        let (row, key, mut gone) = (self.row, self.name.key(call), 0);
        call.tell_around_key(row, key.bytes(), |call| {
            gone = self.remove_some(call, &key, most)?;
            Ok(())
        })?;
        call.spend(gone.max(1) as u64 * SCORED_NS);
        self.gone += gone;
        self.left = if gone == 0 { 0 } else { self.left - gone };
        if self.left > 0 {
            return Ok(Step::More);
        }
        call.length(self.gone)?;
        Ok(Step::Done)
    }
}
