//! The cost of a step of upkeep, counted in accesses to shared words, fences and locks by the only worker.
//! Most accesses take a nanosecond; one to a word in no cache takes a hundred. No schedule runs.

use crate::stage::NOW;
use larder_store::schedule::counted;
use larder_store::{Attributes, Config, Eviction, Expect, Fields, Lasting, Refusal, Store, Worker};
use std::sync::Arc;

/// Most accesses of a step, some 100 µs: flushed items, a thousand in one step, were 80,760 accesses and took
/// 150 µs. By calculation, cleaning a part of a segment takes 35,000 to 44,000 accesses, and rebuilding a
/// segment 30,000 to 37,000. Most steps are far shorter. (Before segments were cleaned in parts, one with
/// only flushed items took 160,000 in a step.)
const STEP_MAX: u64 = 50_000;
/// As above for a step that removes fields from a tree. Built for schedules, a tree's nodes have five
/// children, not 62 as in a server: removing 256 parts rewrites fifty nodes, each with the nodes above it.
const FIELDS_STEP_MAX: u64 = 100_000;
/// Most accesses to drop the last pin of a long value: to its head, to the list of dropped values, and to the
/// count of what connections hold.
const PIN_MAX: u64 = 64;
/// Time in which upkeep passes over the whole index twice.
const PASSES_MS: u64 = 220_000;
/// The time between two ticks of upkeep. `STEPS`: the most steps of a tick.
const TICK_MS: usize = 20;
const STEPS: usize = 16;
/// The expiry of items that expire.
const EXPIRES_AT: u64 = NOW + 1_000;
/// Of this many items the deletes leave one.
const LEFT: u64 = 16;

fn set(worker: &mut Worker, n: u64, expires_at: u64) -> Result<(), Refusal> {
    let mut guard = worker.enter(NOW);
    let name = n.to_be_bytes();
    let key = guard.key(&name);
    let attributes = Attributes { expires_at, ..Attributes::default() };
    guard.store_value(&key, &[7; 20], &attributes, Expect::Any).map(drop)
}

fn delete(worker: &mut Worker, n: u64) {
    let mut guard = worker.enter(NOW);
    let name = n.to_be_bytes();
    let key = guard.key(&name);
    guard.delete(&key, Expect::Present).expect("it was stored, and nothing is evicted");
}

/// A full store of small items, its worker, and how many items there are.
fn full(mebibytes: u64, expires_at: u64) -> (Arc<Store>, Worker, u64) {
    let config = Config { memory_bytes: mebibytes << 20, workers_max: 1, evict: false, ..Config::default() };
    let store = Store::new(config).expect("there is memory");
    let mut worker = store.worker().expect("a worker");
    let items = (0..).take_while(|&n| set(&mut worker, n, expires_at).is_ok()).count();
    (store, worker, items as u64)
}

/// Does upkeep from the time `from` on; returns the most accesses of a step, and the count of steps.
fn upkeep(worker: &mut Worker, from: u64) -> (u64, u64) {
    let (mut most, mut steps) = (0, 0);
    for now in (from..from + PASSES_MS).step_by(TICK_MS) {
        for _ in 0..STEPS {
            let (more, accesses) = counted(|| worker.enter(now).maintain());
            (most, steps) = (most.max(accesses), steps + 1);
            if !more {
                break;
            }
        }
    }
    (most, steps)
}

/// A store with eight times the items needs more steps of upkeep, but no step exceeds the limit, whatever
/// work there is.
#[test]
fn a_step_of_upkeep_takes_so_many_accesses_however_large_the_store_is() {
    for way in ["nothing", "expiry", "flush", "deletes", "limit"] {
        for mebibytes in [4, 32] {
            let (store, mut worker, items) = full(mebibytes, if way == "expiry" { EXPIRES_AT } else { 0 });
            match way {
                "flush" => worker.enter(NOW).flush(),
                "deletes" => (0..items).filter(|n| n % LEFT != 0).for_each(|n| delete(&mut worker, n)),
                "limit" => {
                    store.set_eviction(Eviction::All);
                    assert!(store.set_memory_bytes(mebibytes << 19));
                }
                _ => {}
            }
            let (most, steps) = upkeep(&mut worker, EXPIRES_AT);
            println!("{way}, {mebibytes} MiB: {most} accesses in the longest of {steps} steps");
            // At least one step looked at a segment, and none did all of its work at once.
            assert!((1_000..=STEP_MAX).contains(&most), "{way}, {mebibytes} MiB: {most}");
            let left = store.totals().items;
            match way {
                "expiry" | "flush" => assert_eq!(left, 0, "{way}"),
                "deletes" => assert_eq!(left, items.div_ceil(LEFT)),
                "limit" => assert!(!store.is_over_limit() && left > 0),
                _ => assert_eq!(left, items),
            }
            store.check_behind(worker);
        }
    }
}

/// A deleted value of many pieces is freed in steps of a limited number of pieces.
#[test]
fn a_step_of_upkeep_takes_so_many_accesses_however_long_a_value_is() {
    for mebibytes in [1, 48] {
        let config = Config { memory_bytes: 128 << 20, workers_max: 1, evict: false, ..Config::default() };
        let store = Store::new(config).expect("there is memory");
        let mut worker = store.worker().expect("a worker");
        {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            let value = vec![7; mebibytes << 20];
            guard.store_value(&key, &value, &Attributes::default(), Expect::Any).expect("there is room");
            guard.delete(&key, Expect::Present).expect("it was stored");
        }
        let (most, steps) = upkeep(&mut worker, EXPIRES_AT);
        println!("{mebibytes} MiB: {most} accesses in the longest of {steps} steps");
        // Freeing 3,074 pieces in one step would be 100,000 accesses.
        assert!((1_000..=STEP_MAX).contains(&most), "{mebibytes} MiB: {most}");
        store.check_behind(worker);
    }
}

/// Dropping the last pin of a deleted value leaves its pieces to upkeep, which frees a limited number in each
/// step.
#[test]
fn the_last_pin_of_a_value_takes_so_many_accesses_however_long_it_is() {
    for mebibytes in [2_usize, 48] {
        let config = Config { memory_bytes: 128 << 20, workers_max: 1, evict: false, ..Config::default() };
        let store = Store::new(config).expect("there is memory");
        let mut worker = store.worker().expect("a worker");
        let pinned = {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            let value = vec![7; mebibytes << 20];
            guard.store_value(&key, &value, &Attributes::default(), Expect::Any).expect("there is room");
            let pinned = guard.get(&key).hit().expect("it was stored").pin();
            guard.delete(&key, Expect::Present).expect("it was stored");
            pinned
        };
        upkeep(&mut worker, NOW);
        assert!(store.totals().item_bytes > (mebibytes as u64) << 20);
        let ((), accesses) = counted(|| drop(pinned));
        let (most, steps) = upkeep(&mut worker, NOW + PASSES_MS);
        println!("{mebibytes} MiB: {accesses} accesses, and {most} in the longest of {steps} steps");
        // Freeing a single piece takes a dozen accesses.
        assert!(accesses < PIN_MAX, "{mebibytes} MiB: {accesses}");
        assert!((1_000..=STEP_MAX).contains(&most), "{mebibytes} MiB: {most}");
        assert_eq!(store.totals().item_bytes, 0);
        store.check_behind(worker);
    }
}

/// A client that is gone leaves many pinned values. A step of upkeep drops a limited number of pins.
#[test]
fn a_step_of_upkeep_takes_so_many_accesses_however_many_pins_are_dropped() {
    const VALUES: u64 = 500;
    const BYTES: usize = 100_000;
    let config = Config { memory_bytes: 128 << 20, workers_max: 1, evict: false, ..Config::default() };
    let store = Store::new(config).expect("there is memory");
    let mut worker = store.worker().expect("a worker");
    let mut pins = Vec::new();
    {
        let mut guard = worker.enter(NOW);
        let value = vec![7; BYTES];
        for n in 0..VALUES {
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, &value, &Attributes::default(), Expect::Any).expect("there is room");
            pins.push(guard.get(&key).hit().expect("it was stored").pin());
            guard.delete(&key, Expect::Present).expect("it was stored");
        }
    }
    upkeep(&mut worker, NOW);
    let bytes = VALUES * BYTES as u64;
    assert!(store.totals().item_bytes > bytes);
    store.unpin_later(bytes, pins.into_iter());
    let (most, steps) = upkeep(&mut worker, NOW + PASSES_MS);
    println!("{most} accesses in the longest of {steps} steps");
    assert!((1_000..=STEP_MAX).contains(&most), "{most}");
    assert_eq!((store.totals().item_bytes, store.held_bytes()), (0, 0));
    drop(worker);
    store.check();
}

/// A step that itself needs memory, to rewrite a hash without its expired fields, frees some pieces of a
/// dropped value, not all of them.
#[test]
fn a_step_of_upkeep_that_needs_memory_takes_back_some_pieces_of_a_long_value() {
    let config = Config { memory_bytes: 128 << 20, workers_max: 1, evict: false, ..Config::default() };
    let store = Store::new(config).expect("there is memory");
    let mut worker = store.worker().expect("a worker");
    {
        let mut guard = worker.enter(NOW);
        let hash = guard.key(b"hash");
        for n in 0..500_u64 {
            let name = n.to_be_bytes();
            let (pair, until) = ([(&name[..], &[7; 20][..])], Lasting::Until(EXPIRES_AT));
            assert_eq!(guard.hash_set_lasting(&hash, pair.into_iter(), Fields::Any, until), Ok(true));
        }
        let key = guard.key(b"key");
        let value = vec![7; 48 << 20];
        guard.store_value(&key, &value, &Attributes::default(), Expect::Any).expect("there is room");
        guard.delete(&key, Expect::Present).expect("it was stored");
    }
    let (most, steps) = upkeep(&mut worker, EXPIRES_AT);
    println!("{most} accesses in the longest of {steps} steps");
    // Freeing the 3,074 pieces alone would be 100,000 accesses.
    assert!((1_000..=FIELDS_STEP_MAX).contains(&most), "{most}");
    let totals = store.totals();
    assert_eq!((totals.items, totals.fields_expired), (0, 500));
    store.check_behind(worker);
}

/// Many fields of a hash are due, with short or long values: a step removes a limited number of them.
#[test]
fn a_step_of_upkeep_takes_so_many_accesses_however_many_fields_are_due() {
    let long = vec![7; 500_000];
    for fields in [500_u64, 4_000] {
        let config = Config { memory_bytes: 64 << 20, workers_max: 1, evict: false, ..Config::default() };
        let store = Store::new(config).expect("there is memory");
        let mut worker = store.worker().expect("a worker");
        for n in 0..fields {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"hash");
            let name = n.to_be_bytes();
            let value = if n % 100 == 0 { &long[..] } else { &long[..20] };
            let (pair, until) = ([(&name[..], value)], Lasting::Until(EXPIRES_AT));
            assert_eq!(guard.hash_set_lasting(&key, pair.into_iter(), Fields::Any, until), Ok(true));
        }
        let (most, steps) = upkeep(&mut worker, EXPIRES_AT);
        println!("{fields} fields: {most} accesses in the longest of {steps} steps");
        assert!((1_000..=FIELDS_STEP_MAX).contains(&most), "{fields} fields: {most}");
        let totals = store.totals();
        assert_eq!((totals.items, totals.fields_expired), (0, fields));
        store.check_behind(worker);
    }
}
