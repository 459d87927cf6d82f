//! What a cache could do that has no overhead and forgets what was used longest ago: LRU by bytes.

use super::plan::Plan;
use crate::keys::{Choice, Chooser, Keyspace};

const NONE: u32 = u32::MAX;

/// A cache of keys numbered from 0 on, of so many bytes.
#[derive(Debug)]
pub struct Lru {
    capacity_bytes: u64,
    used_bytes: u64,
    /// Neighbours of each key, towards the more and the less recently used; `NONE` at the ends.
    newer: Vec<u32>,
    older: Vec<u32>,
    /// Size of each key's item; 0: it is not there.
    bytes: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl Lru {
    /// An empty cache for `keys` keys.
    pub fn new(capacity_bytes: u64, keys: u32) -> Lru {
        let none = || vec![NONE; keys as usize];
        Lru {
            capacity_bytes,
            used_bytes: 0,
            newer: none(),
            older: none(),
            bytes: vec![0; keys as usize],
            newest: NONE,
            oldest: NONE,
        }
    }

    /// Asks for a key, and stores it with `bytes` (at least 1) if it is not there; true for a hit.
    pub fn ask(&mut self, key: u32, bytes: u32) -> bool {
        let hit = self.bytes[key as usize] != 0;
        if hit {
            self.unlink(key);
        } else {
            self.bytes[key as usize] = bytes;
            self.used_bytes += u64::from(bytes);
        }
        self.older[key as usize] = self.newest;
        self.newer[key as usize] = NONE;
        match self.newest {
            NONE => self.oldest = key,
            newest => self.newer[newest as usize] = key,
        }
        self.newest = key;
        while self.used_bytes > self.capacity_bytes && self.oldest != NONE {
            let victim = self.oldest;
            self.unlink(victim);
            self.used_bytes -= u64::from(self.bytes[victim as usize]);
            self.bytes[victim as usize] = 0;
        }
        hit
    }

    fn unlink(&mut self, key: u32) {
        let (newer, older) = (self.newer[key as usize], self.older[key as usize]);
        match newer {
            NONE => self.newest = older,
            newer => self.older[newer as usize] = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.newer[older as usize] = newer,
        }
    }
}

/// The hit ratio in each bin, from the first bin of the plan on, of the plan's requests at `rate`.
pub fn ratios(plan: &Plan, rate: f64, seed: u64) -> Vec<f64> {
    let keys = plan.phases.iter().map(|phase| phase.first + phase.count).max().unwrap_or(0);
    let mut cache = Lru::new(plan.capacity_bytes(), keys);
    let mut ask = |phase: usize, chooser: &mut Chooser| {
        let key = chooser.next_key();
        let bytes = plan.key_bytes + plan.phases[phase].sizes.of(key, 0);
        cache.ask(key, bytes as u32)
    };
    let chooser = |phase: usize| {
        let space = Keyspace {
            first: plan.phases[phase].first,
            count: plan.phases[phase].count,
            key_bytes: plan.key_bytes,
            value_bytes: 0,
        };
        Chooser::new(space, Choice::Zipf(plan.zipf), seed.wrapping_add(phase as u64))
    };
    // Twice the capacity has to be written first, as the servers' warm-up does.
    let mut first = chooser(0);
    let mut written_bytes = 0;
    for _ in 0..100_000_000_u64 {
        if written_bytes > 2 * plan.capacity_bytes() {
            break;
        }
        if !ask(0, &mut first) {
            written_bytes += plan.phases[0].sizes.mean() as u64;
        }
    }
    let per_bin = (rate * plan.bin.as_secs_f64()).round().max(1.0) as u64;
    let mut choosers: Vec<Chooser> = (0..plan.phases.len()).map(chooser).collect();
    (0..plan.bins())
        .map(|bin| {
            let phase = plan.phase_at(plan.bin * bin as u32);
            let hits = (0..per_bin).filter(|_| ask(phase, &mut choosers[phase])).count();
            hits as f64 / per_bin as f64
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut cache = Lru::new(30, 10);
        assert!(!cache.ask(1, 10) && !cache.ask(2, 10) && !cache.ask(3, 10));
        assert!(cache.ask(1, 10), "all three fit");
        assert!(!cache.ask(4, 10), "2 goes for 4");
        assert!(cache.ask(1, 10) && cache.ask(3, 10) && cache.ask(4, 10));
        assert!(!cache.ask(2, 10), "it had gone");
        assert!(!cache.ask(1, 10), "1 had to go for it");
    }

    #[test]
    fn a_large_item_displaces_many_and_one_that_is_too_large_leaves_nothing() {
        let mut cache = Lru::new(30, 10);
        (0..3).for_each(|key| assert!(!cache.ask(key, 10)));
        assert!(!cache.ask(5, 25));
        assert!(cache.ask(5, 25));
        assert!(!cache.ask(2, 10) && cache.ask(2, 10));
        assert!(!cache.ask(6, 31));
        assert!(!cache.ask(6, 31) && cache.used_bytes == 0);
    }

    #[test]
    fn it_agrees_with_a_plain_list_on_random_requests() {
        let mut cache = Lru::new(400, 50);
        let mut list: Vec<(u32, u32)> = Vec::new();
        let mut chooser = Chooser::new(Keyspace::new(50, 0), Choice::Zipf(0.7), 3);
        for _ in 0..20_000 {
            let key = chooser.next_key();
            let bytes = 10 + key % 17;
            let hit = list.iter().position(|&(have, _)| have == key).map(|at| list.remove(at)).is_some();
            list.push((key, bytes));
            while list.iter().map(|&(_, bytes)| bytes).sum::<u32>() > 400 {
                list.remove(0);
            }
            assert_eq!(cache.ask(key, bytes), hit);
        }
    }
}
