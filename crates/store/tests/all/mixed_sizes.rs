//! Values of many sizes in one store: a value that is read soon or late after its write is still there,
//! whatever its size.

use larder_store::{Attributes, Config, Expect, Lookup, Store, Worker};
use std::collections::VecDeque;

const START: u64 = 1_700_000_000_000;
/// Requests in a millisecond.
const RATE_MS: u64 = 50;
/// Bytes of a key, and about the bytes of an item beside key and value.
const ITEM_BYTES: u64 = 16 + 24;

struct Cache {
    worker: Worker,
    value: Vec<u8>,
    now: u64,
    requests: u64,
    tick: u64,
}

impl Cache {
    /// A store full of keys that are never read, with values of `value_bytes` bytes.
    fn full(memory_bytes: u64, value_bytes: usize, seed: u64) -> Cache {
        let config = Config { memory_bytes, workers_max: 1, seed, ..Config::default() };
        let store = Store::new(config).expect("memory");
        let worker = store.worker().expect("a worker");
        let mut cache = Cache { worker, value: vec![7; 4 << 20], now: START, requests: 0, tick: START };
        (0..memory_bytes * 3 / 2 / (value_bytes as u64 + 24))
            .for_each(|id| cache.set(u64::MAX - id, value_bytes));
        cache
    }

    /// Moves the clock by one request, and does upkeep as a server's busy worker does: some 100 µs.
    fn pass(&mut self) {
        self.requests += 1;
        self.now = START + self.requests / RATE_MS;
        if self.now >= self.tick {
            let mut guard = self.worker.enter(self.now);
            let more = (0..2).all(|_| guard.maintain_beside_requests());
            self.tick = self.now + if more { 2 } else { 100 };
        }
    }

    fn set(&mut self, id: u64, value_bytes: usize) {
        let name = format!("{id:016x}");
        let mut guard = self.worker.enter(self.now);
        let key = guard.key(name.as_bytes());
        guard
            .store_value(&key, &self.value[..value_bytes], &Attributes::default(), Expect::Any)
            .expect("room");
        drop(guard);
        self.pass();
    }

    fn get(&mut self, id: u64) -> bool {
        let name = format!("{id:016x}");
        let mut guard = self.worker.enter(self.now);
        let key = guard.key(name.as_bytes());
        let hit = matches!(guard.get(&key), Lookup::Hit(_));
        drop(guard);
        self.pass();
        hit
    }
}

/// The least share of late reads that find their key.
const LEAST: f64 = 0.97;

/// Writes `count` values of `large` bytes into a store full of values of `small` bytes that are never read;
/// returns how many of them are left. With `read` each one is also read at once.
fn left(small: usize, large: usize, count: u64, read: bool) -> usize {
    let mut cache = Cache::full(64 << 20, small, 0);
    for id in 0..count {
        cache.set(id, large);
        assert!(!read || cache.get(id), "{id} of {large} B is not there a moment later");
    }
    (0..count).filter(|&id| cache.get(id)).count()
}

/// The large values take a third of the memory. An LRU cache would keep all of them.
#[test]
fn some_large_values_in_a_store_full_of_small_unread_ones_stay() {
    for (small, large, count) in [
        (100, 1 << 20, 20),
        (1_000, 1 << 20, 20),
        (100, 4 << 20, 5),
        (100, 100_000, 200),
        (100, 10_000, 2_000),
    ] {
        for read in [true, false] {
            let left = left(small, large, count, read);
            assert!(
                left as u64 * 100 >= count * 97,
                "{left} of {count} values of {large} B are left beside values of {small} B; read at once: {read}"
            );
        }
    }
}

const SIZES: [usize; 5] = [50, 300, 3_000, 30_000, 300_000];

/// Hit ratio by size, for keys that are written once and read once, after a `distance` of the store's memory
/// was written. With `equal_bytes` each size has the same share of the bytes; otherwise longer values are
/// rarer.
fn late(distance: f64, equal_bytes: bool, seed: u64) -> [f64; SIZES.len()] {
    const MEMORY_BYTES: u64 = 64 << 20;
    let away = (MEMORY_BYTES as f64 * 0.88 * distance) as u64;
    let mut cache = Cache::full(MEMORY_BYTES, 100, seed);
    let mut waiting = VecDeque::new();
    let (mut written, mut id, mut state) = (0, 0, 1u64);
    let mut bytes = [0; SIZES.len()];
    let (mut gets, mut hits) = ([0u64; SIZES.len()], [0u64; SIZES.len()]);
    while written < 6 * MEMORY_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let size = match (state >> 40) % 1_000 {
            _ if equal_bytes => (0..SIZES.len()).min_by_key(|&i| bytes[i]).expect("there are some"),
            0 => 4,
            1..10 => 3,
            10..100 => 2,
            100..400 => 1,
            _ => 0,
        };
        id += 1;
        cache.set(id, SIZES[size]);
        let item_bytes = SIZES[size] as u64 + ITEM_BYTES;
        bytes[size] += item_bytes;
        written += item_bytes;
        waiting.push_back((id, size, written));
        while let Some((id, size, _)) = waiting.pop_front_if(|&mut (_, _, at)| written - at > away) {
            let hit = cache.get(id);
            if written > 3 * MEMORY_BYTES {
                gets[size] += 1;
                hits[size] += u64::from(hit);
            }
        }
    }
    std::array::from_fn(|i| hits[i] as f64 / gets[i] as f64)
}

#[test]
fn what_is_written_once_and_read_late_is_there_whatever_its_size() {
    for (distance, equal_bytes) in [(0.05, true), (0.2, true), (0.05, false), (0.2, false)] {
        let hits = late(distance, equal_bytes, 0);
        assert!(hits.iter().all(|&hits| hits >= LEAST), "{distance}, {equal_bytes}: {hits:.3?} of {SIZES:?}");
    }
    // At a distance of half the memory, one store in five gives the memory of large values to others
    // (decision 0006).
    let runs = [0, 1, 2, 3, 4].map(|seed| late(0.5, true, seed));
    let medians: [f64; SIZES.len()] = std::array::from_fn(|size| {
        let mut hits = runs.map(|hits| hits[size]);
        hits.sort_unstable_by(f64::total_cmp);
        hits[2]
    });
    assert!(medians.iter().all(|&hits| hits >= LEAST), "0.5: {medians:.3?} of {SIZES:?}: {runs:.3?}");
}
