//! Keys outside of a transaction whose buckets the transaction has locked.

use super::{NOW, PATIENCE, get, number, run, set, store};
use larder_store::{Attributes, Expect, Lookup};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Keys of a transaction: so many that each bucket of a small store has some of them.
const KEYS: u64 = 3000;
/// How long the test watches that the other worker waits.
const LOOK: Duration = Duration::from_millis(100);

fn names(prefix: &str) -> Vec<Vec<u8>> {
    (0..KEYS).map(|n| format!("{prefix}{n}").into_bytes()).collect()
}

#[test]
fn keys_that_are_not_a_transactions_are_read_and_written_while_it_is_open() {
    let store = store(16);
    let (held, others) = (names("held"), names("other"));
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    others.iter().for_each(|name| set(&mut guard, 0, name, b"before"));
    let keys: Vec<_> = held.iter().map(|name| guard.key(name)).collect();
    guard.begin(keys);
    // Segments grow inside the transaction, which then has all of their buckets locked.
    held.iter().for_each(|name| set(&mut guard, 0, name, b"new"));
    let (beside, seen) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = store.worker().unwrap();
            let mut guard = worker.enter(NOW);
            for name in &others {
                assert_eq!(get(&mut guard, 0, name).as_deref(), Some(&b"before"[..]));
                set(&mut guard, 0, name, b"after");
                let key = guard.key(name);
                if name.ends_with(b"7") {
                    guard.delete(&key, Expect::Present).unwrap();
                    assert!(matches!(guard.get(&key), Lookup::Miss));
                }
            }
            beside.store(true, Ordering::Release);
            assert_eq!(get(&mut guard, 0, &held[0]).as_deref(), Some(&b"new"[..]));
            seen.store(true, Ordering::Release);
        });
        let since = Instant::now();
        while !beside.load(Ordering::Acquire) {
            assert!(since.elapsed() < PATIENCE, "it waits for what it does not want");
            std::thread::yield_now();
        }
        let since = Instant::now();
        while since.elapsed() < LOOK {
            assert!(!seen.load(Ordering::Acquire), "half of a transaction");
            std::thread::yield_now();
        }
        // The other worker, when it ends, waits for the end of this batch.
        drop(guard);
    });
    let mut guard = worker.enter(NOW);
    for name in &others {
        let after = (!name.ends_with(b"7")).then_some(&b"after"[..]);
        assert_eq!(get(&mut guard, 0, name).as_deref(), after);
    }
    drop(guard);
    store.check_behind(worker);
}

/// Two workers raise counters in transactions on all keys; two raise other counters one by one, which are in
/// the same buckets.
#[test]
fn counts_beside_transactions_lose_nothing() {
    const ROUNDS: u64 = 40;
    // The limit leaves enough for all that is ever written: a worker that the system takes off its core
    // inside its batch may keep all of it in limbo.
    let store = store(64);
    let (held, others) = (names("held"), names("other"));
    let beside = AtomicU64::new(0);
    run(&store, 4, |i, worker| {
        let mut guard = worker.enter(NOW);
        for round in 0..ROUNDS {
            if i < 2 {
                let keys: Vec<_> = held.iter().map(|name| guard.key(name)).collect();
                guard.begin(keys);
                for name in &held {
                    let next = number(&mut guard, name) + 1;
                    set(&mut guard, 0, name, &next.to_le_bytes());
                }
                guard.finish();
                continue;
            }
            for name in &others {
                loop {
                    let key = guard.key(name);
                    let (seen, expect) = match guard.get(&key) {
                        Lookup::Hit(item) => {
                            let cas = item.cas();
                            (number(&mut guard, name), Expect::Cas(cas))
                        }
                        _ => (0, Expect::Absent),
                    };
                    // This worker writes as usual; the other one stores items of another layout in the same
                    // place.
                    let value = (seen + 1).to_le_bytes();
                    let attributes = Attributes { flags: (round % 3) as u32, ..Attributes::default() };
                    if guard.store_value(&key, &value, &attributes, expect).is_ok() {
                        beside.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                }
            }
        }
    });
    assert_eq!(beside.load(Ordering::Relaxed), 2 * ROUNDS * KEYS);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    for name in held.iter().chain(&others) {
        assert_eq!(number(&mut guard, name), 2 * ROUNDS, "{}", String::from_utf8_lossy(name));
    }
    drop(guard);
    store.check_behind(worker);
}
