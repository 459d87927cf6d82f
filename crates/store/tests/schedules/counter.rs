//! Counters that several threads raise: by a token, by the item that they have read, and in transactions.
//!
//! A counter has a generation, which is new whenever a thread finds no counter, and a count. The tokens of a
//! key only grow. So its writes in the order of their tokens read 1, 2, 3 … of one generation, then 1, 2, 3 …
//! of the next. After a lost update a count comes twice; if an old item came back, its generation continues
//! after another began.

use crate::stage::{Actor, Cast, Stage, collect, size, value, words};
use larder_store::schedule::Random;
use larder_store::{Attributes, Expect, Guard, Lookup, Refusal};
use std::collections::{BTreeMap, BTreeSet};

/// Keys that all threads raise.
const KEYS: u64 = 4;

/// The writes of each counter, by their tokens: generation and count.
pub type Notes = BTreeMap<u64, BTreeMap<u64, (u64, u64)>>;

/// Adds `count` threads that each raise counters `steps` times.
pub fn join(cast: &mut Cast, count: u64, steps: u64) {
    for _ in 0..count {
        cast.main("counter", move |actor| {
            for _ in 0..steps {
                step(actor);
            }
        });
    }
}

fn step(actor: &mut Actor) {
    actor.batch(|guard, stage, random| {
        if random.below(3) > 0 {
            let counter = random.below(KEYS);
            return raise(guard, stage, random, counter, false);
        }
        let counters: BTreeSet<u64> = (0..3).map(|_| random.below(KEYS)).collect();
        let names: Vec<String> = counters.iter().map(|n| format!("counter-{n}")).collect();
        let keys: Vec<_> = names.iter().map(|name| guard.key(name.as_bytes())).collect();
        guard.begin(keys);
        counters.iter().for_each(|&counter| raise(guard, stage, random, counter, true));
        guard.finish();
    });
}

/// Reads a counter and writes the next count: with `alone` in a transaction, else on condition that the item
/// is unchanged.
fn raise(guard: &mut Guard<'_>, stage: &Stage, random: &mut Random, counter: u64, alone: bool) {
    let name = format!("counter-{counter}");
    let key = guard.key(name.as_bytes());
    let (generation, count, expect) = match guard.get(&key) {
        Lookup::Hit(item) => {
            let (generation, count) = words(&collect(item.value()));
            let unchanged = random.below(2) == 0;
            let expect = if unchanged { Expect::Unchanged(item.seen()) } else { Expect::Cas(item.cas()) };
            (generation, count + 1, expect)
        }
        _ => (stage.number(), 1, Expect::Absent),
    };
    let expect = if alone { Expect::Any } else { expect };
    let bytes = size(random);
    match guard.store_value(&key, &value(generation, count, bytes), &Attributes::default(), expect) {
        Ok(stored) => {
            let twin =
                stage.notes.borrow_mut().entry(counter).or_default().insert(stored.cas, (generation, count));
            assert!(twin.is_none(), "{name} was given token {} twice", stored.cas);
        }
        Err(Refusal::NoMemory) => assert!(!stage.evicts, "no memory for {name}"),
        Err(refusal) => assert!(!alone, "{refusal:?} in a transaction"),
    }
}

/// Checks that the writes of each counter are in order.
pub fn check(notes: &Notes) {
    for (counter, notes) in notes {
        let mut ended = BTreeSet::new();
        let mut last: Option<(u64, u64)> = None;
        for (token, &(generation, count)) in notes {
            let follows = last.filter(|last| last.0 == generation);
            let expected = follows.map_or(1, |last| last.1 + 1);
            assert_eq!(count, expected, "counter {counter} at token {token}: {generation} after {last:?}");
            assert!(
                follows.is_some() || ended.insert(generation),
                "counter {counter}: {generation} came back"
            );
            last = Some((generation, count));
        }
    }
}
