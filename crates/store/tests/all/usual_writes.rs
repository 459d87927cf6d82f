//! The usual write in its short way, when it has to wait for memory. By then the memory of the item that it
//! has read may hold another key, or a later item of the same key. No acknowledged write is lost.

use larder_store::{Attributes, Config, Expect, Guard, Key, Store, Value};

const NOW: u64 = 1_700_000_000_000;
const COUNTER: &[u8] = b"counter-";
const THREADS: u64 = 3;
const ROUNDS: u64 = 6_000;
/// The length of the counter's value, and of the values that fill the memory, in digits.
const DIGITS: usize = 12;

fn digits(value: u64) -> String {
    format!("{value:0DIGITS$}")
}

fn value_of(guard: &mut Guard<'_>, key: &Key<'_>) -> u64 {
    let item = guard.get(key).hit().expect("what is written all the time is not evicted");
    let Value::Whole(value) = item.value() else { panic!("it is small") };
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// Adds one to the item that the hint names; returns false, without a change, if the short way is not
/// possible.
fn add(guard: &mut Guard<'_>) -> bool {
    let key = guard.key(COUNTER);
    let mut hint = guard.prefetch_bucket(&key);
    if guard.prefetch_item(&key, &mut hint) {
        guard.prefetch_again(&key, &mut hint);
    }
    guard.replace_with(&key, &hint, true, |old| {
        Some(digits(std::str::from_utf8(old).unwrap().parse::<u64>().unwrap() + 1))
    })
}

#[test]
fn sums_are_exact_where_memory_is_waited_for_between_reading_and_writing() {
    let store = Store::new(Config { memory_bytes: 4 << 20, workers_max: 3, ..Config::default() }).unwrap();
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let key = guard.key(COUNTER);
    guard.store_value(&key, digits(0).as_bytes(), &Attributes::default(), Expect::Any).unwrap();
    drop(guard);
    drop(worker);
    let added = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    let mut worker = store.worker().unwrap();
                    let mut added = 0;
                    for round in 0..ROUNDS {
                        let mut guard = worker.enter(NOW);
                        // New keys of the counter's class use up the worker's magazine …
                        for n in 0..(round % 7) * 5 {
                            let name = (thread << 56 | round << 16 | n).to_be_bytes();
                            let key = guard.key(&name);
                            let _ = guard.store_value(
                                &key,
                                digits(n).as_bytes(),
                                &Attributes::default(),
                                Expect::Any,
                            );
                        }
                        // … and many additions in a row use the same chunks in turns.
                        added += (0..60).map(|_| u64::from(add(&mut guard))).sum::<u64>();
                    }
                    added
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
    });
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let key = guard.key(COUNTER);
    assert_eq!(value_of(&mut guard, &key), added);
    assert!(added > THREADS * ROUNDS, "{added} of {} were tried", THREADS * ROUNDS * 60);
    drop(guard);
    store.check_behind(worker);
}
