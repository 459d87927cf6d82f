//! Locking beside a transaction, by a thread that wants a key of a bucket that a transaction has, for another key or for this
//! one. The buckets and what transactions have said of their keys are the real ones.
//!
//! ```text
//! transaction            say keys ─► set bits ─► write … write ─► clear bits ─► say that it is over
//! a key is wanted        bit? ─► said? ─► lock ─► said since? ─► write
//! ```
//!
//! A key is a slot of the one bucket, its value the slot's location.

use crate::bucket::{Bucket, Control, Slot};
use crate::transaction::Open;
use loom::sync::Arc;
use loom::thread;
use std::sync::Arc as Shared;

struct World {
    home: Bucket,
    open: Open,
}

fn value(location: u64) -> Slot {
    Slot::new(1, location, 0, false)
}

impl World {
    fn new() -> Arc<World> {
        let world = World { home: Bucket::new(), open: Open::new(2) };
        (0..2).for_each(|key| world.home.replace(key, value(1)));
        Arc::new(world)
    }

    fn value(&self, key: usize) -> u64 {
        self.home.slot(key).location()
    }

    fn write(&self, key: usize, control: Control, new: u64) {
        self.home.replace(key, value(new));
        self.home.unlock(control.written());
    }

    /// As `Guard::begin`, by the first worker: the keys are said before the bit is set.
    fn begin(&self, key: usize) {
        self.open.say(0, Some(&Shared::new(vec![key as u64])));
        let control = self.home.lock();
        self.home.unlock(control.with_transaction());
    }

    /// As a write of a key that the transaction began with.
    fn write_own(&self, key: usize, new: u64) {
        let control = self.home.lock_beside();
        assert!(control.in_transaction(), "the bit stays until the end");
        self.write(key, control, new);
    }

    /// As `Guard::finish`.
    fn finish(&self) {
        let control = self.home.lock_beside();
        self.home.unlock(control.without_transaction());
        self.open.say(0, None);
    }

    /// As `Store::lock_beside`.
    fn lock_beside(&self, key: usize) -> Option<Control> {
        if self.open.has(key as u64) {
            return None;
        }
        let control = self.home.lock_beside();
        if !self.open.has(key as u64) {
            return Some(control);
        }
        self.home.unlock(control);
        None
    }

    /// As `Local::lock`, by the second worker, which has no transaction.
    fn lock(&self, key: usize) -> Control {
        loop {
            if let Some(control) = self.home.lock_open().or_else(|| self.lock_beside(key)) {
                return control;
            }
            thread::yield_now();
        }
    }

    /// Another worker's write of a key, whatever is open.
    fn add_ten(&self, key: usize) {
        let control = self.lock(key);
        let seen = self.value(key);
        self.write(key, control, seen + 10);
    }
}

/// Explores a transaction of key 0 and what comes behind it, beside a write of `key` by another worker.
/// `preemptions`: so many of one thread by the other are tried at every place.
fn beside(
    preemptions: usize,
    key: usize,
    transactions: impl Fn(&World) + Copy + Send + Sync + 'static,
    then: [u64; 2],
) {
    let mut explorer = loom::model::Builder::new();
    explorer.preemption_bound = Some(preemptions);
    explorer.check(move || {
        let world = World::new();
        let other = {
            let world = world.clone();
            thread::spawn(move || world.add_ten(key))
        };
        transactions(&world);
        other.join().unwrap();
        assert_eq!([0, 1].map(|key| world.value(key)), then);
        assert!(!world.home.control().busy());
    });
}

/// What it has seen of a key at its beginning holds to its end.
fn add_two_in_steps(world: &World, key: usize) {
    world.begin(key);
    let seen = world.value(key);
    world.write_own(key, seen + 1);
    world.write_own(key, seen + 2);
    world.finish();
}

#[test]
fn write_of_another_key_of_a_held_bucket_is_not_lost_and_takes_nothing() {
    beside(3, 1, |world| add_two_in_steps(world, 0), [3, 11]);
}

#[test]
fn write_of_a_key_of_the_transaction_waits_for_its_end() {
    beside(3, 0, |world| add_two_in_steps(world, 0), [13, 1]);
}

/// A thread that saw the bit of a transaction that is not of its key has the lock when one of its key begins, or comes behind it.
#[test]
fn write_beside_a_transaction_is_not_in_the_next_one_of_its_key() {
    let both = |world: &World| {
        add_two_in_steps(world, 0);
        add_two_in_steps(world, 1);
    };
    beside(2, 1, both, [3, 13]);
}
