//! The choice of the next key.
//!
//! Popular keys are drawn by Zipf's law. Two things make a stream harder than that: keys that are requested once and never again,
//! and popularity that moves, so that wanted keys become unwanted. Both are known to distinguish eviction policies.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::plan::{GENERATIONS, Plan};
use crate::keys::{Choice, Chooser, Keyspace};

/// Draws keys for one client in one phase.
#[derive(Debug)]
pub struct Draw {
    places: Chooser,
    first: u32,
    count: u32,
    lone: f64,
    life: u64,
    rng: StdRng,
    /// Requests so far, of all clients, about.
    asked: u64,
    clients: u64,
    /// The next key that is requested only once; clients take turns.
    next_lone: u32,
}

impl Draw {
    /// The draws of client `number` of `clients`. They depend on the arguments alone.
    pub fn new(plan: &Plan, phase: usize, (number, clients): (usize, usize), seed: u64) -> Draw {
        let terms = &plan.phases[phase];
        // A seed and its complement, for a warm-up and the part after it, share no lone key.
        let lone_first = if seed >> 63 == 1 { 1 << 31 } else { plan.numbers() };
        let seed =
            seed.wrapping_mul(1_000_003).wrapping_add(number as u64).wrapping_add((phase as u64) << 32);
        let places = Keyspace { first: 0, count: terms.count, key_bytes: 0, value_bytes: 0 };
        Draw {
            places: Chooser::new(places, Choice::Zipf(terms.zipf), seed),
            first: terms.first,
            count: terms.count,
            lone: terms.lone,
            life: terms.life,
            rng: StdRng::seed_from_u64(!seed),
            asked: number as u64,
            clients: clients as u64,
            next_lone: lone_first + number as u32,
        }
    }

    /// The number of the next key.
    pub fn next_key(&mut self) -> u32 {
        self.asked += self.clients;
        if self.lone > 0.0 && self.rng.random_range(0.0..1.0) < self.lone {
            let key = self.next_lone;
            self.next_lone = self.next_lone.wrapping_add(self.clients as u32);
            return key;
        }
        let place = self.places.next_key();
        // Each place changes its key at another time.
        let generation = match self.life {
            0 => 0,
            life => {
                let offset = u64::from(place).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24;
                ((self.asked + offset % life) / life) % u64::from(GENERATIONS)
            }
        };
        self.first + place + generation as u32 * self.count
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::plan::tests::{model, plan};
    use super::super::plan::{Phase, Plan};
    use super::*;

    fn one(phase: Phase) -> Plan {
        Plan { phases: vec![phase], ..plan() }
    }

    #[test]
    fn so_many_keys_come_once_and_no_two_clients_share_them() {
        let plan = one(Phase { count: 100, lone: 0.25, ..model() });
        let mut seen: HashMap<u32, u32> = HashMap::new();
        for client in 0..3 {
            let mut draw = Draw::new(&plan, 0, (client, 3), 1);
            (0..10_000).for_each(|_| *seen.entry(draw.next_key()).or_default() += 1);
        }
        let lone: Vec<_> = seen.iter().filter(|(key, _)| **key >= 100).collect();
        assert!(lone.iter().all(|(_, times)| **times == 1));
        assert!((7_000..8_000).contains(&lone.len()), "{}", lone.len());
    }

    #[test]
    fn popularity_moves_from_key_to_key() {
        let plan = one(Phase { count: 100, life: 10_000, zipf: 1.2, ..model() });
        let mut draw = Draw::new(&plan, 0, (0, 1), 1);
        let mut most_popular = || {
            let mut times: HashMap<u32, u32> = HashMap::new();
            (0..5_000).for_each(|_| *times.entry(draw.next_key()).or_default() += 1);
            *times.iter().max_by_key(|(_, times)| **times).unwrap().0
        };
        let keys: Vec<u32> = (0..8).map(|_| most_popular()).collect();
        assert!(keys.iter().all(|key| key % 100 == keys[0] % 100), "one place: {keys:?}");
        assert!(keys.iter().collect::<std::collections::HashSet<_>>().len() >= 3, "several keys: {keys:?}");
        assert!(keys.iter().all(|&key| key < plan.numbers()));
    }
}
