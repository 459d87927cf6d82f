//! Counts of the hot commands of one batch, added to the worker's counters once.

use super::counters::{Counter, Counters};

/// Counts of one batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub gets: u32,
    pub get_hits: u32,
    /// Misses in runs; others are counted at once.
    pub get_misses: u32,
    pub sets: u32,
    pub metas: u32,
    pub commands: u32,
    /// INCR and DECR in runs.
    pub incrs: u32,
    pub decrs: u32,
    /// Counters raised, and how many of these without becoming longer.
    pub increments: u32,
    pub in_place: u32,
}

impl Tally {
    /// Adds the counts to the worker's counters of memcached's commands, and begins anew.
    #[inline]
    pub fn settle(&mut self, counters: &Counters) {
        for (counter, n) in [
            (Counter::CmdGet, self.gets),
            (Counter::GetHits, self.get_hits),
            (Counter::GetMisses, self.get_misses),
            (Counter::CmdSet, self.sets),
            (Counter::CmdMeta, self.metas),
            (Counter::IncrHits, self.increments),
            (Counter::NumbersInPlace, self.in_place),
        ] {
            if n != 0 {
                counters.add(counter, u64::from(n));
            }
        }
        *self = Tally::default();
    }
}
