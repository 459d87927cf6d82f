//! An ideal cache without overhead that evicts the least recently used key: LRU by bytes.

use super::draw::Draw;
use super::plan::Plan;
use super::visit::{FILL_TIMES, warm_step};

const NONE: u32 = u32::MAX;

/// A cache of keys numbered from 0 on, of this many bytes.
#[derive(Debug)]
pub struct Lru {
    capacity_bytes: u64,
    used_bytes: u64,
    /// Neighbours of each key, towards the more and the less recently used; `NONE` at the ends.
    newer: Vec<u32>,
    older: Vec<u32>,
    /// Size of each key's item; 0: the key does not exist.
    bytes: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl Lru {
    /// An empty cache for `keys` keys; it grows for more.
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

    /// Reads a key, and stores it with `bytes` (at least 1) after a miss; true for a hit.
    pub fn ask(&mut self, key: u32, bytes: u32) -> bool {
        if key as usize >= self.bytes.len() {
            let keys = (key as usize + 1).next_power_of_two();
            self.newer.resize(keys, NONE);
            self.older.resize(keys, NONE);
            self.bytes.resize(keys, 0);
        }
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

    /// Reads a key, and stores nothing after a miss; true for a hit.
    pub fn look(&mut self, key: u32) -> bool {
        match self.bytes.get(key as usize) {
            None | Some(0) => false,
            Some(&bytes) => self.ask(key, bytes),
        }
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

/// The run of a stream through a cache.
struct Trial<'p> {
    plan: &'p Plan,
    cache: Lru,
}

impl Trial<'_> {
    fn ask(&mut self, draw: &mut Draw) -> bool {
        let key = draw.next_key();
        let phase = self.plan.phase_of(key);
        self.cache.ask(key, (phase.key_bytes(key) + phase.value_bytes(key)) as u32)
    }
}

/// Clients that share a stream, like those of [`super::aside`]: each reads a batch of keys, and then stores the missing ones.
struct Clients {
    draws: Vec<Draw>,
    batch: usize,
    asked: u64,
    missed: u64,
    written_bytes: u64,
}

impl Clients {
    /// Makes this many requests, rounded up to whole batches of all clients.
    fn ask(&mut self, trial: &mut Trial<'_>, requests: u64) {
        let mut missed: Vec<u32> = Vec::with_capacity(self.batch);
        for _ in 0..requests.div_ceil((self.draws.len() * self.batch) as u64) {
            for draw in &mut self.draws {
                missed.clear();
                for _ in 0..self.batch {
                    let key = draw.next_key();
                    if !trial.cache.look(key) {
                        self.missed += 1;
                        missed.push(key);
                    }
                }
                self.asked += self.batch as u64;
                for (at, &key) in missed.iter().enumerate() {
                    if missed[..at].contains(&key) {
                        continue;
                    }
                    let phase = trial.plan.phase_of(key);
                    let bytes = phase.key_bytes(key) + phase.value_bytes(key);
                    trial.cache.ask(key, bytes as u32);
                    self.written_bytes += bytes as u64;
                }
            }
        }
    }
}

/// Requests of a warm-up at most.
const WARM_MAX: u64 = 100_000_000;

/// A cache that had requests of the first phase until twice its capacity was written, as servers are warmed.
fn warmed(plan: &Plan, seed: u64) -> (Trial<'_>, Draw) {
    let mut trial = Trial { plan, cache: Lru::new(plan.capacity_bytes(), plan.numbers()) };
    let mut draw = Draw::new(plan, 0, (0, 1), seed);
    let item_bytes = plan.phases[0].item_bytes() as u64;
    let mut written_bytes = 0;
    for _ in 0..WARM_MAX {
        if written_bytes > 2 * plan.capacity_bytes() {
            break;
        }
        if !trial.ask(&mut draw) {
            written_bytes += item_bytes;
        }
    }
    (trial, draw)
}

/// The hit ratio in each bin, from the first bin of the plan on, for the plan's requests at `rate`.
pub fn ratios(plan: &Plan, rate: f64, seed: u64) -> Vec<f64> {
    let (mut trial, _) = warmed(plan, seed);
    let per_bin = (rate * plan.bin.as_secs_f64()).round().max(1.0) as u64;
    let mut draws: Vec<Draw> =
        (0..plan.phases.len()).map(|phase| Draw::new(plan, phase, (0, 1), !seed)).collect();
    (0..plan.bins())
        .map(|bin| {
            let draw = &mut draws[plan.phase_at(plan.bin * bin as u32)];
            (0..per_bin).filter(|_| trial.ask(draw)).count() as f64 / per_bin as f64
        })
        .collect()
}

/// The share of `requests` of the first phase that miss in a warm cache: the same requests as the clients send to a server, in
/// turns.
pub fn misses(plan: &Plan, (clients, batch): (usize, usize), requests: u64, seed: u64) -> f64 {
    let mut trial = Trial { plan, cache: Lru::new(plan.capacity_bytes(), plan.numbers()) };
    let draws = (0..clients).map(|number| Draw::new(plan, 0, (number, clients), seed)).collect();
    let mut clients = Clients { draws, batch, asked: 0, missed: 0, written_bytes: 0 };
    while clients.written_bytes < FILL_TIMES * plan.capacity_bytes() && clients.asked < WARM_MAX {
        let before = clients.written_bytes;
        clients.ask(&mut trial, warm_step(plan));
        if clients.written_bytes == before {
            break;
        }
    }
    let (asked, missed) = (clients.asked, clients.missed);
    clients.ask(&mut trial, requests);
    (clients.missed - missed) as f64 / (clients.asked - asked) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Choice, Chooser, Keyspace};

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut cache = Lru::new(30, 10);
        assert!(!cache.ask(1, 10) && !cache.ask(2, 10) && !cache.ask(3, 10));
        assert!(cache.ask(1, 10), "all three fit");
        assert!(!cache.ask(4, 10), "2 goes for 4");
        assert!(cache.ask(1, 10) && cache.ask(3, 10) && cache.ask(4, 10));
        assert!(!cache.ask(2, 10), "it had gone");
        assert!(!cache.ask(1, 10), "1 had to go for it");
        assert!(!cache.look(3) && !cache.look(99), "a look stores nothing");
        assert!(cache.look(4) && !cache.ask(5, 10), "2 goes, which was used longest ago now");
        assert!(!cache.look(2) && cache.look(4) && cache.look(1));
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
