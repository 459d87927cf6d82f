//! Memory follows the workload when other keys with values of another size are asked for.

use larder_store::{Attributes, Config, Expect, Lookup, Store, Worker};

const MEMORY_BYTES: u64 = 8 << 20;
const KEY_BYTES: u64 = 16;
/// Each phase's keys and values take so many times the memory.
const WORKING_SETS: u64 = 2;

/// Keys by Zipf's law with exponent 0.9, the same at every run.
struct Keys {
    sums: Vec<f64>,
    state: u64,
}

impl Keys {
    fn new(count: u64, seed: u64) -> Keys {
        let mut sum = 0.0;
        let add = |rank: u64| {
            sum += (rank as f64).powf(-0.9);
            sum
        };
        Keys { sums: (1..=count).map(add).collect(), state: seed }
    }

    fn next(&mut self) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (self.state >> 11) as f64 / (1u64 << 53) as f64;
        let at = unit * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|&sum| sum <= at)
    }
}

/// Asks for keys, storing what is missed, until `tenths` of the memory were written; the hit ratio
/// while the last two tenths were.
fn ask(worker: &mut Worker, now: &mut u64, name: &str, value_bytes: u64, tenths: u64) -> f64 {
    let item_bytes = KEY_BYTES + value_bytes;
    let mut keys = Keys::new(MEMORY_BYTES * WORKING_SETS / item_bytes, value_bytes);
    let value = vec![7; value_bytes as usize];
    let (mut written, mut gets, mut hits) = (0, 0u64, 0u64);
    let counted = MEMORY_BYTES / 10 * tenths.saturating_sub(2);
    while written < MEMORY_BYTES / 10 * tenths {
        *now += 1;
        let mut guard = worker.enter(*now);
        for _ in 0..32 {
            let key = format!("{name}{:015}", keys.next());
            let key = guard.key(key.as_bytes());
            let hit = matches!(guard.get(&key), Lookup::Hit(_));
            if written >= counted {
                gets += 1;
                hits += u64::from(hit);
            }
            if !hit {
                let stored = guard.store_value(&key, &value, &Attributes::default(), Expect::Any);
                stored.expect("room is made");
                written += item_bytes;
            }
        }
        if now.is_multiple_of(16) {
            guard.maintain();
        }
    }
    hits as f64 / gets as f64
}

#[test]
fn hits_are_back_when_the_memory_was_written_one_and_a_half_times_with_new_sizes() {
    let (from, to) = (1_100, 1_400);
    let new = || {
        let store = Store::new(Config { memory_bytes: MEMORY_BYTES, workers_max: 1, ..Config::default() });
        store.expect("memory").worker().expect("a worker")
    };
    let (mut worker, mut now) = (new(), 1_700_000_000_000);
    let fresh = ask(&mut worker, &mut now, "b", to, 30);
    let (mut worker, mut now) = (new(), 1_700_000_000_000);
    ask(&mut worker, &mut now, "a", from, 30);
    let back = ask(&mut worker, &mut now, "b", to, 16);
    let store = std::sync::Arc::clone(worker.store());
    drop(worker);
    store.check();
    assert!(back >= 0.95 * fresh, "{from} B to {to} B: {back:.3} of hits, {fresh:.3} in a fresh store");
}
