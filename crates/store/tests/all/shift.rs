//! Memory follows the workload when requests turn to other keys, with values of another size.

use larder_store::{Attributes, Automove, Config, Expect, Lookup, Store, Worker, plain_class};

const MEMORY_BYTES: u64 = 8 << 20;
const KEY_BYTES: u64 = 16;
/// The items of each phase take this many times the memory.
const WORKING_SETS: u64 = 2;

/// Draws keys by Zipf's law with exponent 0.9, the same in each run.
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

/// Reads keys, and stores those that are missed, until `tenths` tenths of the memory were written; returns
/// the hit ratio during the last two tenths.
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

/// Stores a key; now and then does a step of upkeep.
fn set(worker: &mut Worker, now: &mut u64, name: u64, bytes: usize) {
    *now += u64::from(name.is_multiple_of(16));
    let mut guard = worker.enter(*now);
    let key = name.to_be_bytes();
    let key = guard.key(&key);
    guard.store_value(&key, &vec![1; bytes], &Attributes::default(), Expect::Any).expect("room is made");
    if name.is_multiple_of(64) {
        let _ = guard.maintain();
    }
}

fn get(worker: &mut Worker, now: u64, name: u64) -> bool {
    let mut guard = worker.enter(now);
    let key = name.to_be_bytes();
    let key = guard.key(&key);
    guard.get(&key).hit().is_some()
}

/// Fills a cache of 16 MiB until it has evicted twice its memory. Of its keys one in `of` is read three
/// times, and then `per_memory` times while values of another size, as much as the memory holds, are written.
/// Returns how many percent of these keys are left after three times the memory was written. The same in each
/// run.
fn left_of_what_is_read(of: u64, per_memory: u64, reassign: bool, automove: Automove) -> u64 {
    const MEMORY_BYTES: u64 = 16 << 20;
    let config = Config { memory_bytes: MEMORY_BYTES, workers_max: 1, ..Config::default() };
    let mut worker = Store::new(config).expect("memory").worker().expect("a worker");
    let store = std::sync::Arc::clone(worker.store());
    store.set_automove(automove);
    let mut now = 1_700_000_000_000;
    let filled = 3 * MEMORY_BYTES / 520;
    (0..filled).for_each(|name| set(&mut worker, &mut now, name, 500));
    let read: Vec<u64> = (0..MEMORY_BYTES / 520 / of).map(|n| filled - 1 - 2 * n).collect();
    for _ in 0..3 {
        let there = read.iter().filter(|&&name| get(&mut worker, now, name)).count();
        // A few may be missing, since queues know keys by parts of their hashes.
        assert!(there * 100 >= read.len() * 99, "{there} of {}: they are new", read.len());
    }
    if reassign {
        let (from, to) = (plain_class(508), plain_class(908));
        (0..4).for_each(|_| assert!(worker.enter(now).reassign(Some(from), Some(to), 16) > 0));
    }
    for name in 0..3 * MEMORY_BYTES / 908 {
        set(&mut worker, &mut now, 1 << 40 | name, 900);
        if name.is_multiple_of(MEMORY_BYTES / 908 / per_memory) {
            read.iter().for_each(|&name| _ = get(&mut worker, now, name));
        }
    }
    let new =
        (0..3 * MEMORY_BYTES / 908).filter(|&name| get(&mut worker, now, 1 << 40 | name)).count() as u64;
    assert!(new * 908 > MEMORY_BYTES * 3 / 4, "{new} of the new size");
    let left = read.iter().filter(|&&name| get(&mut worker, now, name)).count();
    store.check_behind(worker);
    (left * 100 / read.len()) as u64
}

/// In one S3-FIFO queue of all sizes these keys are in main before the hand judges any item there. Here an
/// item that must move to another span of its class must be read again before the hand comes to it.
#[test]
fn what_is_read_now_and_then_stays_while_memory_goes_to_another_size() {
    for (of, per_memory, reassign, automove) in [
        (25, 4, false, Automove::Ages),
        (100, 4, false, Automove::Ages),
        (100, 20, true, Automove::Ages),
        (25, 20, false, Automove::Always),
    ] {
        let left = left_of_what_is_read(of, per_memory, reassign, automove);
        assert!(
            left >= 90,
            "{automove:?}, reassigned: {reassign}, one key in {of} read {per_memory} times: {left} % are left"
        );
    }
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
    store.check_behind(worker);
    assert!(back >= 0.95 * fresh, "{from} B to {to} B: {back:.3} of hits, {fresh:.3} in a fresh store");
}

/// A span of the old size has some 500 keys. Only the first writes of the new size may empty a whole span at
/// once: the store does not know yet that this size needs more.
#[test]
fn no_write_of_another_size_takes_out_a_whole_span() {
    let config = Config { memory_bytes: MEMORY_BYTES, workers_max: 1, ..Config::default() };
    let mut worker = Store::new(config).expect("memory").worker().expect("a worker");
    let store = std::sync::Arc::clone(worker.store());
    let mut now = 1_700_000_000_000;
    (0..2 * MEMORY_BYTES / 120).for_each(|name| set(&mut worker, &mut now, name, 90));
    let mut most = 0;
    for name in 0..2 * MEMORY_BYTES / 1_024 {
        let before = store.totals().items;
        set(&mut worker, &mut now, 1 << 40 | name, 1_000);
        if name >= 200 {
            most = most.max(before.saturating_sub(store.totals().items));
        }
    }
    assert!(most <= 250, "{most} keys went for one");
}
