//! A cache that holds more than a twentieth of expired bytes evicts nothing that lives.

use larder_store::{Attributes, Config, Event, Expect, Store, Worker};
use std::collections::{BTreeSet, HashMap, HashSet};

const NOW: u64 = 1_700_000_000_000;
const MEMORY_BYTES: u64 = 16 << 20;
const KEY_BYTES: u64 = 8;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// What the store holds, as it tells: keys with their bytes and when they expire.
#[derive(Default)]
struct Held {
    items: HashMap<u64, (u64, u64)>,
    /// Those that have one, by expiry.
    expiries: BTreeSet<(u64, u64)>,
    /// Keys whose time had passed when time last moved.
    expired: HashSet<u64>,
    expired_bytes: u64,
    bytes: u64,
    evicted: u64,
}

impl Held {
    /// Time moves.
    fn pass(&mut self, now: u64) {
        while let Some(&(at, name)) = self.expiries.first()
            && at <= now
        {
            self.expiries.pop_first();
            self.expired.insert(name);
            self.expired_bytes += self.items[&name].0;
        }
    }

    /// The share of what is held whose time has passed.
    fn expired_share(&self) -> f64 {
        self.expired_bytes as f64 / self.bytes.max(1) as f64
    }

    /// Stores a key, and takes note of what went for it; true if something that lives was evicted.
    fn set(&mut self, worker: &mut Worker, now: u64, name: u64, bytes: u64, expires_at: u64) -> bool {
        let before = self.evicted;
        let mut guard = worker.enter(now);
        let key = name.to_be_bytes();
        let key = guard.key(&key);
        let attributes = Attributes { expires_at, ..Attributes::default() };
        guard.store_value(&key, &vec![7; bytes as usize], &attributes, Expect::Any).expect("room is made");
        self.items.insert(name, (bytes + KEY_BYTES, expires_at));
        if expires_at != 0 {
            self.expiries.insert((expires_at, name));
        }
        self.bytes += bytes + KEY_BYTES;
        guard.take_events(&mut |event, _, key| self.note(event, key));
        self.evicted > before
    }

    fn note(&mut self, event: Event, key: &[u8]) {
        let name = u64::from_be_bytes(key.try_into().expect("a name"));
        let (bytes, expires_at) = self.items.remove(&name).expect("it was held");
        self.bytes -= bytes;
        self.expiries.remove(&(expires_at, name));
        if self.expired.remove(&name) {
            self.expired_bytes -= bytes;
        }
        self.evicted += u64::from(event == Event::Evicted);
    }

    fn tick(&mut self, worker: &mut Worker, now: u64) {
        let mut guard = worker.enter(now);
        let _ = (0..16).all(|_| guard.maintain());
        guard.take_events(&mut |event, _, key| self.note(event, key));
    }
}

/// Time passes in steps of up to `step_ms`, some sets each; sizes are `sizes`, lifetimes up to `ttl_ms`.
fn run(seed: u64, sizes: &[u64], ttl_ms: u64, step_ms: u64, ticks: bool) -> u64 {
    let config = Config { memory_bytes: MEMORY_BYTES, workers_max: 1, ..Config::default() };
    let mut worker = Store::new(config).unwrap().worker().unwrap();
    worker.store().note_events(&[Event::Evicted, Event::Expired]);
    let (mut random, mut held, mut now) = (Random(seed), Held::default(), NOW);
    let mean = sizes.iter().sum::<u64>() / sizes.len() as u64 + KEY_BYTES;
    let (mut name, mut written, mut tick) = (0, 0, NOW);
    while written < 4 * MEMORY_BYTES {
        now += random.below(step_ms);
        held.pass(now);
        if ticks && now >= tick {
            held.tick(&mut worker, now);
            tick = now + 100;
        }
        // Looked at before each step: time stands still within it, so the share only falls.
        let before = held.expired_share();
        let evicted = held.evicted;
        for _ in 0..1 + random.below(MEMORY_BYTES / 200 / mean) {
            let bytes = sizes[random.below(sizes.len() as u64) as usize];
            let expires_at = if random.below(4) == 0 { 0 } else { now + 1 + random.below(ttl_ms) };
            name += 1;
            written += bytes;
            if held.set(&mut worker, now, name, bytes, expires_at) {
                let share = held.expired_share();
                assert!(
                    share <= 0.05,
                    "seed {seed}: evicted with {share:.3} of the bytes expired, {before:.3} before the step, {} \
                     evicted in it, {name} stored",
                    held.evicted - evicted
                );
            }
        }
    }
    assert_eq!(worker.store().totals().items, held.items.len() as u64, "the model is right");
    let store = std::sync::Arc::clone(worker.store());
    drop(worker);
    store.check();
    held.evicted
}

#[test]
fn items_of_one_size_with_all_lifetimes() {
    let evicted: u64 = (0..2).map(|seed| run(seed, &[100], 60_000, 100, seed == 0)).sum();
    assert!(evicted > 1000, "the cache was full: {evicted}");
}

#[test]
fn items_of_many_sizes() {
    let sizes: Vec<u64> = (1..40).map(|i| i * 53).collect();
    let evicted: u64 = (0..2).map(|seed| run(seed, &sizes, 60_000, 100, seed == 0)).sum();
    assert!(evicted > 1000, "the cache was full: {evicted}");
}

#[test]
fn all_at_once_after_a_pause() {
    // A step is long enough for a large part of the cache to expire before the next write.
    (0..2).for_each(|seed| {
        run(seed, &[100, 1000], 2_000, 4_000, false);
    });
}
