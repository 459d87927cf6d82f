//! Keys that are written in one transaction: a reader that has seen one of the writes sees all of them.

use crate::stage::{Actor, Cast, collect, words};
use larder_store::{Attributes, Expect, Guard, Lookup};

/// Keys of a transaction.
const KEYS: u64 = 4;
/// Pairs of reads in one batch.
const READS: u64 = 4;
/// Keys of a transaction that inserts.
const INSERTS: u64 = 16;

fn name(n: u64) -> String {
    format!("together-{n}")
}

/// Adds two threads that write all keys in transactions, and two that read them in all ways.
pub fn join(cast: &mut Cast, steps: u64) {
    for _ in 0..2 {
        cast.main("writer", move |actor| (0..steps).for_each(|_| write(actor, KEYS)));
        cast.main("reader", move |actor| {
            for _ in 0..steps {
                match actor.random.below(4) {
                    0 => read_in_transaction(actor),
                    1 => read_by_versions(actor),
                    2 => read_one_by_one(actor, false),
                    _ => read_one_by_one(actor, true),
                }
            }
        });
    }
}

/// Writes the same number, higher than all before, to the first `count` keys.
fn write(actor: &mut Actor, count: u64) {
    actor.batch(|guard, stage, random| {
        let names: Vec<String> = (0..count).map(name).collect();
        let keys: Vec<_> = names.iter().map(|name| guard.key(name.as_bytes())).collect();
        guard.begin(keys.iter().copied());
        let number = stage.number();
        // Half of the values have the same length: these are usual overwrites, the others are insertions.
        let bytes = if random.below(2) == 0 { 32 } else { 16 + random.below(200) as usize };
        for key in &keys {
            let value = crate::stage::value(0, number, bytes);
            guard.store_value(key, &value, &Attributes::default(), Expect::Any).expect("there is memory");
        }
        guard.finish();
    });
}

fn number(lookup: Lookup<'_>) -> Option<u64> {
    lookup.hit().map(|item| words(&collect(item.value())).1)
}

fn all_of(guard: &mut Guard<'_>) -> Vec<Option<u64>> {
    (0..KEYS)
        .map(|n| {
            let name = name(n);
            let key = guard.key(name.as_bytes());
            number(guard.get(&key))
        })
        .collect()
}

fn read_in_transaction(actor: &mut Actor) {
    actor.batch(|guard, _, _| {
        let names: Vec<String> = (0..KEYS).map(name).collect();
        guard.begin_in(0, names.iter().map(|name| name.as_bytes()));
        let seen = all_of(guard);
        guard.finish();
        assert!(seen.iter().all(|number| *number == seen[0]), "half of a transaction: {seen:?}");
    });
}

fn read_by_versions(actor: &mut Actor) {
    actor.batch(|guard, _, _| {
        guard.look();
        for n in 0..KEYS {
            let name = name(n);
            let key = guard.key(name.as_bytes());
            guard.note(&key);
        }
        let seen = all_of(guard);
        if guard.looked_as_one() {
            assert!(seen.iter().all(|number| *number == seen[0]), "half of a transaction: {seen:?}");
        }
    });
}

/// Reads one key after another, in any order. A key that is read later is not older, unless a flush removed
/// it.
fn read_one_by_one(actor: &mut Actor, hinted: bool) {
    actor.batch(|guard, stage, random| {
        let order: Vec<u64> = (0..6).map(|_| random.below(KEYS)).collect();
        let names: Vec<String> = order.iter().map(|&n| name(n)).collect();
        let keys: Vec<_> = names.iter().map(|name| guard.key(name.as_bytes())).collect();
        let mut hints: Vec<_> = keys.iter().map(|key| guard.prefetch_bucket(key)).collect();
        if hinted {
            for (key, hint) in keys.iter().zip(&mut hints) {
                if guard.prefetch_item(key, hint) {
                    guard.prefetch_again(key, hint);
                }
            }
        }
        let mut last = 0;
        for ((n, key), hint) in order.iter().zip(&keys).zip(&hints) {
            let seen = match random.below(3) {
                0 if hinted => match guard.plain_value(key, hint) {
                    Some(value) => Some(words(value).1),
                    None if guard.is_absent(key, hint) => None,
                    None => number(guard.get_hinted(key, hint)),
                },
                1 if hinted => number(guard.get_hinted(key, hint)),
                _ => number(guard.get(key)),
            };
            match seen {
                Some(number) => {
                    assert!(number >= last, "key {n} says {number} after another said {last}");
                    last = number;
                }
                None => assert!(last == 0 || stage.flushes(), "key {n} is gone after another said {last}"),
            }
        }
    });
}

/// Adds a thread that writes two keys in a transaction, and two that read them in that order, the second by a
/// hint. They do so little else that the schedules reach every place between two steps.
pub fn join_closely(cast: &mut Cast, steps: u64) {
    cast.main("writer", move |actor| (0..steps).for_each(|_| write(actor, 2)));
    for _ in 0..2 {
        cast.main("reader", move |actor| (0..steps).for_each(|_| read_by_hint(actor)));
    }
}

/// Reads the first key, then the second by a hint that was taken before.
fn read_by_hint(actor: &mut Actor) {
    let names = [name(0), name(1)];
    actor.batch(|guard, _, _| {
        let [first, second] = [&names[0], &names[1]].map(|name| guard.key(name.as_bytes()));
        let mut hint = guard.prefetch_bucket(&second);
        guard.prefetch_item(&second, &mut hint);
        for _ in 0..READS {
            let seen = number(guard.get(&first));
            let then = number(guard.get_hinted(&second, &hint));
            assert!(then >= seen, "{} says {then:?} after {} said {seen:?}", names[1], names[0]);
        }
    });
}

/// Adds a thread whose transactions insert new keys, `steps` times; none may be refused, even in a full
/// store.
pub fn join_inserts(cast: &mut Cast, steps: u64) {
    cast.main("inserter", move |actor| {
        for _ in 0..steps {
            actor.batch(|guard, stage, _| {
                let names: Vec<String> = (0..INSERTS).map(|_| format!("insert-{}", stage.number())).collect();
                let keys: Vec<_> = names.iter().map(|name| guard.key(name.as_bytes())).collect();
                guard.begin(keys.iter().copied());
                for key in &keys {
                    let done = guard.store_value(key, &[7; 400], &Attributes::default(), Expect::Any);
                    assert!(done.is_ok(), "a transaction is refused: {done:?}");
                }
                guard.finish();
            });
        }
    });
}
