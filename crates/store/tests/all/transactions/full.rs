//! Transactions in a full store: which keys they evict for memory, and which they do not.

use crate::transactions::{NOW, get, run, set, store, write};
use larder_store::{Attributes, Expect};
use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped, also by a panic, so that the other threads end.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A transaction on many keys in a small, full store evicts keys outside of it. Another worker that waits for
/// the transaction keeps no memory in limbo meanwhile.
fn in_a_full_store_while_others_wait(at_last: bool) {
    const KEYS: u64 = 60;
    for kind in 0..4 {
        let store = store(4);
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        (0..20_000u64).for_each(|n| set(&mut guard, 0, &n.to_be_bytes(), &[1; 400]));
        drop(guard);
        drop(worker);
        let names: Vec<String> = (0..KEYS).map(|n| format!("key-{n}")).collect();
        let stop = AtomicBool::new(false);
        run(&store, 2, |i, worker| {
            if i == 0 {
                let _end = Ends(&stop);
                for round in 0..20 {
                    let mut guard = worker.enter(NOW);
                    let keys: Vec<_> = names.iter().map(|name| guard.key(name.as_bytes())).collect();
                    guard.begin(keys.iter().copied());
                    for key in &keys {
                        let stored = write(&mut guard, key, &[2; 10_000], at_last);
                        assert!(stored.is_ok(), "way {kind}, round {round}: {stored:?}");
                    }
                    let there = keys.iter().filter(|key| guard.get(key).hit().is_some()).count();
                    assert_eq!(there as u64, KEYS, "a transaction evicts none of its own");
                    guard.finish();
                }
                return;
            }
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                round += 1;
                let mut guard = worker.enter(NOW);
                let name = names[round % KEYS as usize].as_bytes();
                match kind {
                    0 => drop(get(&mut guard, 0, name)),
                    1 => {
                        let key = guard.key(name);
                        let _ = guard.delete(&key, Expect::Present);
                    }
                    2 => {
                        let keys = [guard.key(name), guard.key(b"other")];
                        guard.begin(keys);
                        guard.finish();
                    }
                    _ => drop(guard.walk(0, 10, &mut |_| {})),
                }
            }
        });
        // The transactions replace a sixth of the small items, and an interrupted batch costs no more; a walk
        // is inside a batch all the time.
        let (left, least) = (store.totals().items, if kind == 3 { 1_000 } else { 2_000 });
        // Each refused write costs more items.
        assert!(left > least || store.totals().out_of_memory > 0, "way {kind}: {left} are left");
        store.check();
    }
}

#[test]
fn transaction_in_a_full_store_gets_its_memory_at_last_while_others_wait_for_it() {
    in_a_full_store_while_others_wait(true);
}

#[test]
#[ignore = "time: a worker that is kept from its core in its batch is waited for a second"]
fn transaction_in_a_full_store_gets_its_memory_while_others_wait_for_it() {
    in_a_full_store_while_others_wait(false);
}

/// Three workers whose transactions need memory, while they also wait for each other: for a walk, and for the
/// cleaning of segments after a flush.
fn while_others_wait_for_segments(at_last: bool) {
    const TRANSACTIONS: u64 = 400;
    for flushes in [false, true] {
        let store = store(16);
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        (0..40_000u64).for_each(|n| set(&mut guard, 0, &n.to_be_bytes(), &[1; 400]));
        drop(guard);
        drop(worker);
        let stop = AtomicBool::new(false);
        run(&store, 4, |i, worker| {
            let mut cursor = 0;
            while i == 0 && !stop.load(Ordering::Relaxed) {
                let mut guard = worker.enter(NOW);
                cursor = guard.walk(cursor, 10, &mut |_| {});
                if flushes && cursor == 0 {
                    guard.flush_database(5);
                }
            }
            let _end = Ends(&stop);
            for n in 0..if i == 0 { 0 } else { TRANSACTIONS } {
                let mut guard = worker.enter(NOW);
                let names: Vec<_> =
                    (0..16).map(|k| [i as u64, n * 16 + k].map(u64::to_be_bytes).concat()).collect();
                let keys: Vec<_> = names.iter().map(|name| guard.key(name)).collect();
                guard.begin(keys.iter().copied());
                for key in &keys {
                    let stored = write(&mut guard, key, &[7; 400], at_last);
                    assert!(stored.is_ok(), "flushes {flushes}, transaction {n}: {stored:?}");
                }
                guard.finish();
            }
        });
        store.check();
    }
}

#[test]
fn all_writes_of_a_transaction_are_stored_at_last_while_others_wait_for_segments() {
    while_others_wait_for_segments(true);
}

#[test]
#[ignore = "time: a worker that is kept from its core in its batch is waited for a second"]
fn no_write_of_a_transaction_is_refused_while_others_wait_for_segments() {
    while_others_wait_for_segments(false);
}

/// One worker deletes items: another worker gets this memory without evicting, also while the first does
/// nothing, neither an allocation nor a rest.
#[test]
fn what_a_worker_deletes_is_not_kept_by_it() {
    const KEYS: u64 = 60;
    let store = store(4);
    let (mut worker, mut deleter) = (store.worker().unwrap(), store.worker().unwrap());
    let names: Vec<String> = (0..KEYS).map(|n| format!("key-{n}")).collect();
    let mut guard = worker.enter(NOW);
    names.iter().for_each(|name| set(&mut guard, 0, name.as_bytes(), &[2; 10_000]));
    (0..20_000u64).for_each(|n| set(&mut guard, 0, &n.to_be_bytes(), &[1; 400]));
    drop(guard);
    let full = store.totals().items;
    for round in 0..20 {
        for name in &names {
            let mut guard = deleter.enter(NOW);
            let key = guard.key(name.as_bytes());
            let _ = guard.delete(&key, Expect::Present);
        }
        let mut guard = worker.enter(NOW);
        names.iter().for_each(|name| set(&mut guard, 0, name.as_bytes(), &[2; 10_000]));
        drop(guard);
        let left = store.totals().items;
        // Each value replaces twenty-five small ones; in addition a batch of the deleter and its magazine may
        // be missing.
        assert!(left + KEYS * 25 + 500 >= full, "round {round}: {left} of {full} are left");
    }
    drop((worker, deleter));
    store.check();
}

/// If the index cannot grow, a new key replaces another key in its buckets, but not one that the same
/// transaction has written.
#[test]
fn transaction_whose_keys_have_no_place_in_the_index_evicts_none_of_its_own() {
    const KEYS: u64 = 3_000;
    let store = store(2);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    (0..100_000u64).for_each(|n| set(&mut guard, 0, &n.to_be_bytes(), b""));
    for round in 1..40u64 {
        let names: Vec<_> = (0..KEYS).map(|n| (round << 32 | n).to_be_bytes()).collect();
        let keys: Vec<_> = names.iter().map(|name| guard.key(name)).collect();
        guard.begin(keys.iter().copied());
        for key in &keys {
            guard.store_value(key, b"", &Attributes::default(), Expect::Any).unwrap();
        }
        let lost = keys.iter().filter(|key| guard.get(key).hit().is_none()).count();
        assert_eq!(lost, 0, "round {round}");
        guard.finish();
    }
    drop(guard);
    store.check_behind(worker);
}

/// A transaction that needs a seventh of a full store evicts about that much of the other keys. So does its
/// repetition, which needs no more memory.
#[test]
fn transaction_in_a_full_store_evicts_about_what_it_needs() {
    const KEYS: u64 = 60;
    let store = store(4);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    (0..20_000u64).for_each(|n| set(&mut guard, 0, &n.to_be_bytes(), &[1; 400]));
    let (full, before) = (store.totals().items, store.totals().evictions);
    let names: Vec<String> = (0..KEYS).map(|n| format!("key-{n}")).collect();
    for round in 0..20 {
        let keys: Vec<_> = names.iter().map(|name| guard.key(name.as_bytes())).collect();
        guard.begin(keys.iter().copied());
        for key in &keys {
            guard.store_value(key, &[2; 10_000], &Attributes::default(), Expect::Any).unwrap();
        }
        assert!(keys.iter().all(|key| guard.get(key).hit().is_some()), "it evicts none of its own");
        guard.finish();
        let evicted = store.totals().evictions - before;
        // What the transaction takes, and two spans of small values for each span that the arena lacks.
        let needed = KEYS * 10_000 / 400;
        assert!(evicted <= needed * 3 / 2 + 500, "round {round}: {evicted} of {full} were evicted");
    }
    drop(guard);
    store.check_behind(worker);
}

/// Evicted memory stays in limbo during another worker's batch, which does not end: evicting more would not
/// help.
#[test]
fn batch_that_does_not_end_costs_no_more_than_what_is_needed() {
    let store = store(4);
    let (mut worker, mut other) = (store.worker().unwrap(), store.worker().unwrap());
    let mut guard = worker.enter(NOW);
    (0..20_000u64).for_each(|n| set(&mut guard, 0, &n.to_be_bytes(), &[1; 400]));
    drop(guard);
    let full = store.totals().items;
    let stuck = other.enter(NOW);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let stored = guard.store_value(&key, &[2; 10_000], &Attributes::default(), Expect::Any);
    assert!(stored.is_err(), "there was room without the others' memory");
    let left = store.totals().items;
    assert!(left + 500 >= full, "{left} of {full} are left");
    drop(stuck);
    guard.store_value(&key, &[2; 10_000], &Attributes::default(), Expect::Any).unwrap();
    drop(guard);
    drop((worker, other));
    store.check();
}

/// A copy that does not fit beside the original is refused after one search for memory, not after a search
/// for each of its pieces.
#[test]
fn copy_in_a_transaction_that_has_no_room_is_refused_and_the_original_stays() {
    const BYTES: u64 = (4 << 20) - 100_000;
    let store = store(8);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let (from, to) = (guard.key(b"from"), guard.key(b"to"));
    let value: Vec<u8> = (0..BYTES).map(|n| (n % 251) as u8).collect();
    guard.store_value(&from, &value, &Attributes::default(), Expect::Any).unwrap();
    guard.begin([from, to]);
    let stored = guard.upload(&to, BYTES, &Attributes::default()).and_then(|mut upload| {
        guard.upload_fill(&mut upload, &value)?;
        guard.publish(upload, Expect::Any)
    });
    guard.finish();
    let held = guard.get(&from).hit().map(|item| item.value_bytes());
    assert_eq!(held, Some(BYTES), "{stored:?}");
    drop(guard);
    store.check_behind(worker);
}

/// A full store that evicts nothing is flushed. Then several keys of other sizes are stored, while another
/// worker stays in a batch for some milliseconds, as if the system had taken it off its core.
fn after_a_flush_beside_a_batch_that_lasts(at_last: bool) {
    for beside_ms in [0, 20] {
        let store = store(4);
        store.set_eviction(larder_store::Eviction::Off);
        let mut worker = store.worker().unwrap();
        let mut other = store.worker().unwrap();
        let sizes = [60, 400, 3_000, 20_000, 200_000];
        for round in 0..20u64 {
            // This worker does not wait for flushed items in the limbo of the other worker, which does
            // nothing meanwhile.
            worker.set_patient(false);
            let mut guard = worker.enter(NOW + round * 100);
            let mut full = [false; 5];
            let mut n = 0u64;
            while let Some(k) = (0..5).map(|more| (n as usize + more) % 5).find(|&k| !full[k]) {
                let name = n.to_be_bytes();
                let key = guard.key(&name);
                let value = vec![1; sizes[k]];
                full[k] = guard.store_value(&key, &value, &Attributes::default(), Expect::Any).is_err();
                n += 1;
            }
            drop(guard);
            worker.set_patient(true);
            let inside = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                let (other, inside) = (&mut other, &inside);
                scope.spawn(move || {
                    let guard = other.enter(NOW + round * 100);
                    inside.wait();
                    std::thread::sleep(std::time::Duration::from_millis(beside_ms));
                    drop(guard);
                });
                inside.wait();
                let mut guard = worker.enter(NOW + round * 100);
                guard.flush();
                drop(guard);
                let mut guard = worker.enter(NOW + round * 100);
                let names: Vec<_> = (0..16).map(|k| [round, k].map(u64::to_be_bytes).concat()).collect();
                let keys: Vec<_> = names.iter().map(|name| guard.key(name)).collect();
                guard.begin(keys.iter().copied());
                for (k, key) in keys.iter().enumerate() {
                    let size = [100, 1_000, 8_000, 50_000][k % 4];
                    let stored = write(&mut guard, key, &vec![7; size], at_last);
                    assert!(stored.is_ok(), "{beside_ms} ms, round {round}, key {k}: {stored:?}");
                }
                guard.finish();
            });
        }
        drop((worker, other));
        store.check();
    }
}

#[test]
fn what_a_flush_left_is_room_for_a_transaction_when_a_batch_beside_it_is_over() {
    after_a_flush_beside_a_batch_that_lasts(true);
}

#[test]
#[ignore = "time: a worker that is kept from its core in its batch is waited for a second"]
fn what_a_flush_left_is_room_for_a_transaction_beside_a_batch_that_lasts() {
    after_a_flush_beside_a_batch_that_lasts(false);
}
