//! Sieving: members of one source are looked for in all others, some at a time; those that are left go on to the next source.

use larder_store::{Collection, Type};

use super::{Changed, Combining, MEMBERS_AT_ONCE, Operation, Way};
use crate::core::work::{KEY_NS, copying_ns};
use crate::redis::call::Call;
use crate::redis::collections::members::{ROW_BYTES, Rows};
use crate::redis::collections::words::COMPARED_TIMES;
use crate::redis::collections::{LOOK_NS, MEMBER_NS};
use crate::redis::fail::Fail;

/// Members of a batch, at most.
const BATCH: usize = MEMBERS_AT_ONCE / 2;
/// Bytes at which a batch ends.
const BATCH_BYTES: usize = 64 << 10;
/// A batch of more bytes ends with a long member: it is charged, and compared byte by byte in each source.
const LONG_BATCH_BYTES: usize = 2 * BATCH_BYTES;

/// Bytes of the batch of a source from a place on, if it has a long member; else 0.
fn long_batch_bytes(there: &Collection<'_>, at: usize) -> usize {
    if there.longest_apart() == 0 || at >= there.len() {
        return 0;
    }
    let mut bytes = 0;
    for entry in there.entries(at..there.len().min(at + BATCH)) {
        bytes += entry.name.len();
        if bytes >= BATCH_BYTES {
            break;
        }
    }
    if bytes > LONG_BATCH_BYTES { bytes } else { 0 }
}

/// A sieve, with the batch that is in it.
#[derive(Debug, Default)]
pub(super) struct Sieve {
    /// The members that went through.
    pub rows: Rows,
    /// How many went through, kept in `rows` or not.
    pub left: u64,
    /// How many are enough.
    most: u64,
    /// Whether they are only counted.
    counts: bool,
    /// The members of the batch, and which of them are left.
    batch: Rows,
    alive: Vec<u32>,
    /// Where the next batch begins, and the source in which the present one is looked for next.
    at: usize,
    next: usize,
}

impl Sieve {
    pub fn new(most: u64, counts: bool) -> Sieve {
        Sieve { most, counts, ..Sieve::default() }
    }

    /// Frees the batch: no other will follow.
    pub fn forget_batch(&mut self) {
        (self.batch, self.alive) = (Rows::default(), Vec::new());
    }

    /// Bytes of the batch, if it has a long member; else 0.
    pub fn long_bytes(&self) -> usize {
        if self.batch.text_bytes() > LONG_BATCH_BYTES { self.batch.text_bytes() } else { 0 }
    }

    /// Whether members are only counted.
    pub fn counts(&self) -> bool {
        self.counts
    }
}

impl Combining {
    /// Takes the next batch from the first source, or looks for the present one in another; true when all members are through, or
    /// as many as are wanted.
    pub(super) fn sieve_some(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        ns: &mut u64,
    ) -> Result<Result<bool, Changed>, Fail> {
        let Way::Sieve(sieve) = &self.way else { return Ok(Ok(true)) };
        let place = sieve.next;
        if place == self.sources.len() && !sieve.alive.is_empty() {
            return self.let_through(call).map(Ok);
        }
        let place = if sieve.alive.is_empty() { 0 } else { place };
        // If the score is needed, a long member is looked up in order, among others of its score.
        let is_ordered = self.plan.kind == Type::SortedSet && self.plan.operation == Operation::Inter;
        let times = if is_ordered { COMPARED_TIMES as u64 } else { 1 };
        let (long_ns, from) = (times * copying_ns(sieve.long_bytes() as u64), sieve.at);
        *ns += KEY_NS;
        let mut there = match self.source(call, place)? {
            Ok(there) => there,
            Err(changed) => return Ok(Err(changed)),
        };
        if place == 0 {
            let bytes = there.as_ref().map_or(0, |there| long_batch_bytes(there, from));
            if let Way::Sieve(sieve) = &mut self.way
                && sieve.long_bytes() > 0
            {
                // Frees the old batch before its successor is charged.
                sieve.batch = Rows::default();
            }
            if bytes > 0 {
                self.charge(call, self.way.bytes() + 2 * bytes)?;
                // Charging may have evicted items.
                there = match self.source(call, place)? {
                    Ok(there) => there,
                    Err(changed) => return Ok(Err(changed)),
                };
            }
        }
        let nth = self.order[place] as usize;
        let (plan, keeps) = (&self.plan, self.plan.operation == Operation::Inter);
        let Way::Sieve(Sieve { batch, alive, at, next, .. }) = &mut self.way else { return Ok(Ok(true)) };
        if place == 0 {
            batch.clear();
            let Some(there) = there.filter(|there| *at < there.len()) else { return Ok(Ok(true)) };
            for entry in there.entries(*at..there.len().min(*at + BATCH)) {
                batch.push_element_of(&there, &entry.name, plan.score(nth, there.kind(), &entry));
                if batch.text_bytes() >= BATCH_BYTES {
                    break;
                }
            }
            alive.extend(0..batch.len() as u32);
            *at += batch.len();
            *ns += batch.len() as u64 * MEMBER_NS + copying_ns(batch.text_bytes() as u64);
            *next = 1;
            return Ok(Ok(false));
        }
        *next += 1;
        *ns += alive.len() as u64 * LOOK_NS + long_ns;
        let Some(there) = there else {
            if keeps {
                alive.clear();
                // No member is in all sources.
                *at = usize::MAX;
            }
            return Ok(Ok(false));
        };
        alive.retain(|i| {
            let (text, old) = batch.at(*i as usize);
            if !keeps {
                return !there.has(text);
            }
            let Some(found) = there.entry_named(text) else { return false };
            *batch.score_mut(*i as usize) = plan.aggregate.of(old, plan.score(nth, there.kind(), &found));
            true
        });
        Ok(Ok(false))
    }

    /// Keeps the members that went through all sources; true if they are as many as are wanted.
    fn let_through(&mut self, call: &mut Call<'_, '_, '_>) -> Result<bool, Fail> {
        let Way::Sieve(sieve) = &self.way else { return Ok(true) };
        if !sieve.counts {
            let text = |i: &u32| sieve.batch.at(*i as usize).0.len() + ROW_BYTES;
            let more: usize = sieve.alive.iter().map(text).sum();
            self.charge(call, self.way.bytes() + 2 * more)?;
        }
        let Way::Sieve(Sieve { rows, left, most, counts, batch, alive, .. }) = &mut self.way else {
            return Ok(true);
        };
        *left += alive.len() as u64;
        if !*counts {
            for i in &*alive {
                let (text, score) = batch.at(*i as usize);
                rows.push(text, score);
            }
        }
        alive.clear();
        Ok(*left >= *most)
    }
}
