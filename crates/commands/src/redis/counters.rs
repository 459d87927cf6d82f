//! What a worker counts of RESP commands: RESP's block of its counters (`core/counters.rs`).

use crate::core::counters::{Counted, Counters, ProtocolCounter, in_block};
use crate::core::tally::Tally;

/// RESP's block.
const BLOCK: usize = 0;

/// What is counted of RESP commands. `RedisFigure` says under which names it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum RedisCounter {
    /// RESP commands.
    Commands = ProtocolCounter::Commands as usize,
    /// Keys that RESP commands read and found.
    Hits = ProtocolCounter::Hits as usize,
    /// Keys that RESP commands read and did not find.
    Misses = ProtocolCounter::Misses as usize,
    /// Those of the misses at which an item had expired.
    Expired = ProtocolCounter::Expired as usize,
    /// RESP commands that were answered with an error.
    Errors,
}

impl RedisCounter {
    /// All counters.
    pub const ALL: [RedisCounter; 5] = [
        RedisCounter::Commands,
        RedisCounter::Hits,
        RedisCounter::Misses,
        RedisCounter::Expired,
        RedisCounter::Errors,
    ];
}

impl Counted for RedisCounter {
    #[inline]
    fn index(self) -> usize {
        in_block(BLOCK, self as usize)
    }
}

impl Tally {
    /// Adds what RESP commands counted: memcached's counters are not theirs.
    #[inline]
    pub fn settle_redis(&mut self, counters: &Counters) {
        for (counter, n) in [
            (RedisCounter::Hits, self.get_hits),
            (RedisCounter::Misses, self.get_misses),
            (RedisCounter::Commands, self.commands),
        ] {
            if n != 0 {
                counters.add(counter, u64::from(n));
            }
        }
        *self = Tally::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::counters::{Counter, Sums};

    #[test]
    fn each_counter_has_a_count_of_its_own() {
        let counters = Counters::default();
        for (n, counter) in (1..).zip(RedisCounter::ALL) {
            counters.add(counter, n);
        }
        let mut sums = Sums::default();
        sums.add(&counters);
        assert_eq!(RedisCounter::ALL.map(|counter| sums.of(counter)), [1, 2, 3, 4, 5]);
        assert!(Counter::ALL.iter().all(|counter| sums.of(*counter) == 0));
        assert_eq!((sums.requests(), sums.hits(), sums.misses(), sums.misses_expired()), (1, 2, 3, 4));
    }

    #[test]
    fn a_tally_of_resp_counts_nothing_of_memcacheds() {
        let counters = Counters::default();
        let mut tally =
            Tally { gets: 5, get_hits: 3, get_misses: 2, sets: 7, commands: 12, ..Tally::default() };
        tally.settle_redis(&counters);
        assert_eq!(RedisCounter::ALL.map(|counter| counters.value(counter)), [12, 3, 2, 0, 0]);
        assert!(Counter::ALL.iter().all(|counter| counters.value(*counter) == 0));
        assert_eq!(tally.commands, 0);
    }
}
