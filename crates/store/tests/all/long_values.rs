//! Hashes, most of whose values lie outside of the leaf. Two workers write, read, expire and delete them in a
//! store that evicts them, moves items and has its limit changed. Each hash is whole or gone, and the store's
//! counts are right afterwards.

use crate::plain::Dice;
use larder_store::{Collection, Config, Declined, Due, Expect, Fields, Guard, Lasting, Store, Type, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NOW: u64 = 1_700_000_000_000;
const KEYS: u64 = 12;
const STEPS: u64 = 1_500;
/// The memory limits between which the tests switch.
pub(crate) const MEBIBYTES: [u64; 3] = [8, 12, 16];

/// A length for a value; most are so long that the value lies outside of the leaf.
fn bytes(dice: &mut Dice) -> usize {
    match dice.below(10) {
        0 => 16 + dice.below(200) as usize,
        1 => 16_300 + dice.below(60) as usize,
        2 => 300_000 + dice.below(700_000) as usize,
        _ => 17_000 + dice.below(60_000) as usize,
    }
}

/// A value that repeats its number and its length from the first byte to the last.
fn value(number: u64, bytes: usize) -> Vec<u8> {
    let words = [number.to_le_bytes(), (bytes as u64).to_le_bytes()].concat();
    words.iter().copied().cycle().take(bytes).collect()
}

/// The number of a field's value, after a check that the value is whole. The other worker may write while
/// this one reads.
fn number(there: &Collection<'_>, field: &[u8]) -> Option<u64> {
    let found = there.field(field)?;
    let mut all = Vec::new();
    there.each_part(&found, |part| {
        all.extend_from_slice(part);
        std::thread::yield_now();
    });
    let word = u64::from_le_bytes(all[..8].try_into().expect("eight bytes"));
    assert!(all == value(word, all.len()), "a torn value");
    Some(word)
}

/// Checks that the two fields that are always set together have the same number, and that each listed value
/// is whole.
fn look(guard: &mut Guard<'_>, name: &[u8]) {
    let key = guard.key(name);
    let Some(there) = guard.collection(&key, Type::Hash).expect("a hash") else { return };
    assert_eq!(number(&there, b"one"), number(&there, b"other"), "a moment that never was");
    let mut count = 0;
    for entry in there.entries(0..there.len()) {
        let mut bytes = 0;
        there.each_part(&entry.value, |part| bytes += part.len());
        assert_eq!(bytes, entry.value.len());
        count += 1;
    }
    assert_eq!(count, there.len());
}

/// Takes one random step; returns true if there was no memory for it.
fn step(worker: &mut Worker, dice: &mut Dice, (numbers, clock): (&AtomicU64, &AtomicU64)) -> bool {
    let now = clock.fetch_add(1, Ordering::Relaxed);
    let name = format!("hash {}", dice.below(KEYS)).into_bytes();
    let mut guard = worker.enter(now);
    if dice.below(8) == 0 {
        // Meanwhile the other worker begins batches with a later time.
        std::thread::sleep(Duration::from_millis(1));
    }
    if dice.below(60) == 0 {
        guard.store().set_memory_bytes(MEBIBYTES[dice.below(3) as usize] << 20);
    }
    let key = guard.key(&name);
    let new = value(numbers.fetch_add(1, Ordering::Relaxed), bytes(dice));
    let field = format!("f{}", dice.below(9)).into_bytes();
    let done = match dice.below(9) {
        0..3 => {
            let pairs = [(&b"one"[..], new.as_slice()), (b"other", &new)];
            let lasting =
                if dice.below(3) > 0 { Lasting::Until(now + 1 + dice.below(40)) } else { Lasting::Never };
            guard.hash_set_lasting(&key, pairs.into_iter(), Fields::Any, lasting).map(drop)
        }
        3 | 4 => guard.hash_set(&key, [(field.as_slice(), new.as_slice())].into_iter()).map(drop),
        5 => guard.remove_named(&key, Type::Hash, [field.as_slice(), b"f1"].into_iter()).map(drop),
        6 => {
            let until = now + dice.below(40);
            let fields = [field.as_slice()].into_iter();
            guard.hash_expire(&key, fields, until, |_| true, &mut Vec::new())
        }
        7 => guard.hash_take_due(&key).map(|due| assert!(matches!(due, Due::Done(_) | Due::More(_)))),
        _ if dice.below(6) == 0 => {
            let _ = guard.delete(&key, Expect::Present);
            Ok(())
        }
        _ => {
            look(&mut guard, &name);
            Ok(())
        }
    };
    let refused = done == Err(Declined::NoMemory);
    assert!(refused || done.is_ok(), "{done:?}");
    for _ in 0..4 {
        guard.maintain();
    }
    refused
}

/// Waits until another worker has ended a batch: that may be the one that keeps evicted memory in limbo. The
/// wait has an end, since the other worker may wait in the same way.
fn wait_for(ended: &AtomicU64) {
    let before = ended.load(Ordering::Relaxed);
    for _ in 0..20 {
        if ended.load(Ordering::Relaxed) != before {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A store that evicts, after random steps of two workers in parallel. `step` takes one step; it returns true
/// if there was no memory for it.
pub(crate) fn stepped_by_two(step: impl Fn(&mut Worker, &mut Dice) -> bool + Sync) -> Arc<Store> {
    let most = MEBIBYTES[2] << 20;
    let config = Config { memory_bytes: most, memory_bytes_max: most, workers_max: 3, ..Config::default() };
    let store = Store::new(config).unwrap();
    let ended = [AtomicU64::new(0), AtomicU64::new(0)];
    let refused: u64 = std::thread::scope(|scope| {
        let workers = [0, 1].map(|nth| {
            let (store, step, own, other) = (&store, &step, &ended[nth], &ended[1 - nth]);
            scope.spawn(move || {
                let mut worker = store.worker().unwrap();
                let (mut dice, mut refused) = (Dice(1 + nth as u64), 0_u64);
                for _ in 0..STEPS {
                    let is_refused = step(&mut worker, &mut dice);
                    own.fetch_add(1, Ordering::Relaxed);
                    if is_refused {
                        refused += 1;
                        wait_for(other);
                    }
                }
                refused
            })
        });
        workers.map(|worker| worker.join().expect("it has ended")).iter().sum()
    });
    // A write is refused while another worker's batch keeps evicted memory in limbo; then the step waits for
    // the end of a batch.
    assert!(refused < STEPS / 4, "{refused}");
    store
}

#[test]
fn hashes_of_long_values_are_evicted_as_a_whole_beside_two_workers() {
    let (numbers, clock) = (AtomicU64::new(1 << 32), AtomicU64::new(NOW));
    let store = stepped_by_two(|worker, dice| step(worker, dice, (&numbers, &clock)));
    let mut worker = store.worker().unwrap();
    let now = clock.into_inner();
    for n in 0..KEYS {
        look(&mut worker.enter(now), format!("hash {n}").as_bytes());
    }
    let evicted: u64 = store.totals().evictions;
    assert!(evicted > KEYS, "{evicted}");
    while worker.enter(now).maintain() {}
    store.check_behind(worker);
}
