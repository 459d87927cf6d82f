//! The cost of a step of upkeep: accesses to shared words, fences and locks of the only worker, counted. Most take a nanosecond;
//! those whose word is in no cache take a hundred. No schedule runs.

use crate::stage::NOW;
use larder_store::schedule::counted;
use larder_store::{Attributes, Config, Eviction, Expect, Fields, Lasting, Refusal, Store, Worker};
use std::sync::Arc;

/// Some 100 µs: a thousand items that were flushed were 80,760 accesses, and took 150 µs. By reckoning a part of a segment that
/// is cleaned is 35,000 to 44,000, a rebuilding of one 30,000 to 37,000; most steps are far shorter. (A segment whose items were
/// all flushed was 160,000 in one step.)
const STEP_MAX: u64 = 50_000;
/// Where nodes of a tree have five children, and not 62 as in a server: with 256 parts that are taken out fifty of them are made
/// anew, each with those above it.
const FIELDS_STEP_MAX: u64 = 100_000;
/// The last pin of a long value: its head, the list, and what connections hold.
const PIN_MAX: u64 = 64;
/// Upkeep passes the whole index twice within this.
const PASSES_MS: u64 = 220_000;
/// The pause between two ticks of upkeep. The next is how many steps a tick has at most.
const TICK_MS: usize = 20;
const STEPS: usize = 16;
/// When the items with an expiry expire.
const EXPIRES_AT: u64 = NOW + 1_000;
/// When items are deleted, one in so many stays.
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

/// A store that is full of small items, and how many there are.
fn full(mebibytes: u64, expires_at: u64) -> (Arc<Store>, Worker, u64) {
    let config = Config { memory_bytes: mebibytes << 20, workers_max: 1, evict: false, ..Config::default() };
    let store = Store::new(config).expect("there is memory");
    let mut worker = store.worker().expect("a worker");
    let items = (0..).take_while(|&n| set(&mut worker, n, expires_at).is_ok()).count();
    (store, worker, items as u64)
}

/// Does upkeep from then on; returns the most accesses of a step, and how many steps there were.
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

/// Whatever there is to do, a store of eight times the items takes more steps, and none is beyond the bound.
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
            // A segment was looked at, and no step went on for as long as there was something to do.
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

/// However many pieces a value has that comes free, a step takes back so many of them.
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
        // 3,074 pieces are 100,000 in one step.
        assert!((1_000..=STEP_MAX).contains(&most), "{mebibytes} MiB: {most}");
        store.check_behind(worker);
    }
}

/// However many pieces a value has whose key is gone, its last pin leaves them to upkeep, a step of which takes back so many.
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
        // A piece takes a dozen.
        assert!(accesses < PIN_MAX, "{mebibytes} MiB: {accesses}");
        assert!((1_000..=STEP_MAX).contains(&most), "{mebibytes} MiB: {most}");
        assert_eq!(store.totals().item_bytes, 0);
        store.check_behind(worker);
    }
}

/// However many values were on their way to a client that is gone, a step drops the pins of so many.
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

/// A step that needs memory itself, for what is left of a hash, takes back some pieces of what has come free, and not all.
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
    // 3,074 pieces are 100,000 alone.
    assert!((1_000..=FIELDS_STEP_MAX).contains(&most), "{most}");
    let totals = store.totals();
    assert_eq!((totals.items, totals.fields_expired), (0, 500));
    store.check_behind(worker);
}

/// However many fields of a hash are due, and however long their values are, a step takes so many of them out.
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
