//! The index grows and shrinks with the number of items, and loses none of them.

use crate::plain::delete;
use larder_store::{Attributes, Config, Expect, Store, Worker};
use std::sync::atomic::{AtomicBool, Ordering};

const NOW: u64 = 1_700_000_000_000;
/// Upkeep passes over the whole index within this time.
const PASS_MS: u64 = 110_000;

fn set(worker: &mut Worker, now: u64, name: u64) {
    let mut guard = worker.enter(now);
    let bytes = name.to_be_bytes();
    let key = guard.key(&bytes);
    guard.store_value(&key, &bytes, &Attributes::default(), Expect::Any).unwrap();
}

fn is_there(worker: &mut Worker, now: u64, name: u64) -> bool {
    let mut guard = worker.enter(now);
    let bytes = name.to_be_bytes();
    let key = guard.key(&bytes);
    guard.get(&key).hit().is_some_and(|item| item.key() == bytes)
}

/// Does upkeep as a server's worker does, during `passes` passes over the index.
fn upkeep(worker: &mut Worker, from: u64, passes: u64) -> u64 {
    let until = from + passes * PASS_MS;
    for now in (from..until).step_by(100) {
        for _ in 0..200 {
            if !worker.enter(now).maintain() {
                break;
            }
        }
    }
    until
}

#[test]
fn index_shrinks_with_the_items_and_gives_its_memory_back() {
    const ITEMS: u64 = 600_000;
    let store = Store::new(Config { memory_bytes: 256 << 20, ..Config::default() }).unwrap();
    let mut worker = store.worker().unwrap();
    let mut now = NOW;
    for name in 0..ITEMS {
        set(&mut worker, now, name);
    }
    let full = store.totals();
    for keep in [3, 40, 1000, u64::MAX] {
        for name in 0..ITEMS {
            let kept = |every: u64| name % every == 0;
            let before = match keep {
                3 => true,
                40 => kept(3),
                1000 => kept(120),
                _ => kept(12_000),
            };
            let after = match keep {
                3 => kept(3),
                40 => kept(120),
                1000 => kept(12_000),
                _ => false,
            };
            if before && !after {
                delete(&mut worker, now, name);
            }
        }
        now = upkeep(&mut worker, now, 3);
        let totals = store.totals();
        let least = totals.items.max(400);
        assert!(
            totals.index_slots * 60 <= least * 100 + 60 * 448,
            "{} slots for {} items",
            totals.index_slots,
            totals.items
        );
    }
    let empty = store.totals();
    assert!(
        full.used_bytes - empty.used_bytes > full.index_bytes * 9 / 10,
        "of {} bytes of index much is left: {} in use",
        full.index_bytes,
        empty.used_bytes
    );
    // The index grows again.
    for name in 0..ITEMS {
        set(&mut worker, now, name);
    }
    assert!((0..ITEMS).all(|name| is_there(&mut worker, now, name)));
    store.check_behind(worker);
}

#[test]
fn beside_requests_one_segment_is_rebuilt_at_a_time() {
    const ITEMS: u64 = 200_000;
    /// Most slots by which the index may shrink between two looks: a segment of 14 pages shrinks, and is
    /// merged with its other half.
    const SLOTS_MAX: u64 = 28 * 448;
    let store = Store::new(Config { memory_bytes: 64 << 20, ..Config::default() }).unwrap();
    let mut worker = store.worker().unwrap();
    (0..ITEMS).for_each(|name| set(&mut worker, NOW, name));
    (0..ITEMS).filter(|name| !name.is_multiple_of(20)).for_each(|name| delete(&mut worker, NOW, name));
    let full = store.totals().index_slots;
    let mut slots = full;
    for now in (NOW..NOW + 3_000).step_by(5) {
        let before = slots;
        // Extra calls of upkeep change nothing while less than ten milliseconds have passed.
        for _ in 0..32 {
            let _ = worker.enter(now).maintain_beside_requests();
        }
        slots = store.totals().index_slots;
        assert!(before - slots <= SLOTS_MAX, "from {before} to {slots} at {}", now - NOW);
    }
    assert!(slots * 8 < full, "{slots} of {full} are left for a twentieth of the items");
}

#[test]
fn shrinking_index_loses_no_key_under_readers_and_writers() {
    const KEPT: u64 = 5_000;
    let store = Store::new(Config { memory_bytes: 64 << 20, ..Config::default() }).unwrap();
    let (mut one, mut two) = (store.worker().unwrap(), store.worker().unwrap());
    for name in 0..KEPT {
        set(&mut one, NOW, name);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut step = 0u64;
            while !done.load(Ordering::Relaxed) {
                step += 1;
                let name = step.wrapping_mul(0x9e37_79b9) % KEPT;
                assert!(is_there(&mut two, NOW, name), "key {name} is missing");
                if step.is_multiple_of(7) {
                    set(&mut two, NOW, name);
                }
            }
        });
        let mut now = NOW;
        for round in 1..6 {
            let names = (round << 32)..(round << 32) + 60_000;
            names.clone().for_each(|name| set(&mut one, now, name));
            names.for_each(|name| delete(&mut one, now, name));
            now = upkeep(&mut one, now, 1);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(store.totals().index_slots < 3 * KEPT);
    drop((one, two));
    store.check();
}
