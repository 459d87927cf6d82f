//! Watches: a write to a watched key sets its flag, and a key whose flag is not set has the value that it
//! had.

use crate::stage::{Actor, Cast, collect, words};
use larder_store::schedule::sleep;
use larder_store::{Attributes, Expect, Touched};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Keys that are watched and written.
const KEYS: u64 = 3;

fn name(n: u64) -> String {
    format!("watched-{n}")
}

/// Adds two threads that watch, and one that writes.
pub fn join(cast: &mut Cast, steps: u64) {
    for _ in 0..2 {
        cast.main("watcher", move |actor| (0..steps).for_each(|_| watch(actor)));
    }
    cast.aside("disturber", |actor| {
        let ns = actor.random.below(20_000);
        sleep(Duration::from_nanos(ns));
        actor.batch(|guard, stage, random| {
            let name = name(random.below(KEYS));
            let key = guard.key(name.as_bytes());
            if random.below(4) == 0 {
                let _ = guard.delete(&key, Expect::Present);
                return;
            }
            let value = crate::stage::value(0, stage.number(), 16 + random.below(100) as usize);
            crate::publishing::set(guard, random, &key, &value);
        });
    });
}

/// WATCH, a read, other work, and EXEC: reads again, writes, and ends the watch.
fn watch(actor: &mut Actor) {
    let n = actor.random.below(KEYS);
    let name = name(n);
    let flag = Touched::default();
    let seen = actor.batch(|guard, _, _| {
        let key = guard.key(name.as_bytes());
        guard
            .watch(0, &key, &flag)
            .expect("there is memory for a watch")
            .then(|| guard.peek(&key).hit().map(|item| words(&collect(item.value())).1))
            .flatten()
    });
    if actor.random.below(2) == 0 {
        let ns = actor.random.below(50_000);
        sleep(Duration::from_nanos(ns));
    }
    let began = actor.stage.tick();
    actor.batch(|guard, stage, random| {
        let key = guard.key(name.as_bytes());
        guard.begin([key]);
        let now = guard.peek(&key).hit().map(|item| words(&collect(item.value())).1);
        if !flag.load(Ordering::Relaxed) {
            // A flush or an eviction removes a key without a flag; the session decides what EXEC makes of
            // that.
            let may_go = stage.evicts || stage.may_be_flushed(0, 0, stage.tick());
            assert!(
                now == seen || now.is_none() && may_go,
                "{name} was {seen:?}, is {now:?}, and raised no flag; since {began}"
            );
        }
        if random.below(2) == 0 {
            let value = crate::stage::value(0, stage.number(), 32);
            guard.store_value(&key, &value, &Attributes::default(), Expect::Any).expect("there is memory");
        }
        guard.finish();
    });
    actor.stage.store.unwatch(0, name.as_bytes(), &flag);
}
