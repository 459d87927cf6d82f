//! Transactions, versions and watches: every interleaving of two threads over two real buckets.
//!
//! A key is the first slot of its bucket, its value the slot's location.

use crate::bucket::{Bucket, Control, Slot};
use crate::epoch::Epochs;
use crate::index::Gate;
use crate::read::Hint;
use crate::transaction::World;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use loom::thread;

const GATE: u64 = 0;

/// As `Store::enter_batch`, by the second worker.
fn enter_batch(world: &World, epochs: &Epochs) {
    loop {
        world.enter(1, epochs.now());
        epochs.enter(1);
        if !world.taken() {
            break;
        }
        leave_batch(world, epochs);
        while world.taken() {
            thread::yield_now();
        }
    }
}

/// As `Guard::begin_whole`, by the first worker.
fn take_the_world(world: &World) {
    assert!(world.take(0));
    while world.others_inside(0) {
        thread::yield_now();
    }
}

fn leave_batch(world: &World, epochs: &Epochs) {
    epochs.leave(1);
    world.leave(1);
}

struct Pair([Bucket; 2]);

impl Pair {
    fn new() -> Arc<Pair> {
        let pair = Pair([Bucket::new(), Bucket::new()]);
        pair.0.iter().for_each(|bucket| bucket.replace(0, value(1)));
        Arc::new(pair)
    }

    /// As a lookup: not from a bucket in a transaction.
    fn read(&self, key: usize) -> u64 {
        loop {
            let control = self.0[key].control();
            if control.passes(GATE) {
                return self.0[key].slot(0).location();
            }
            thread::yield_now();
        }
    }

    /// Adds one to both keys as one.
    fn add_to_both(&self) {
        for bucket in &self.0 {
            let control = bucket.lock();
            bucket.unlock(control.with_transaction());
        }
        for bucket in &self.0 {
            let control = bucket.control();
            bucket.replace(0, value(bucket.slot(0).location() + 1));
            bucket.unlock(control.written());
        }
        for bucket in &self.0 {
            bucket.unlock(bucket.control().without_transaction());
        }
    }
}

fn value(location: u64) -> Slot {
    Slot::new(1, location, 0, false)
}

/// Explores a reader of two keys beside a transaction that writes both. The reader is the second thread: loom
/// remembers the last access of each word alone, so that the loads of a first thread are hidden by those that a
/// second makes before it writes, and one order of the two would be all that is tried.
fn beside_a_transaction(read: impl Fn(&Pair) + Copy + Send + Sync + 'static) {
    let mut explorer = loom::model::Builder::new();
    // Of one thread by the other: all orders are 225,000.
    explorer.preemption_bound = Some(3);
    explorer.check(move || {
        let pair = Pair::new();
        let reader = {
            let pair = pair.clone();
            thread::spawn(move || read(&pair))
        };
        pair.add_to_both();
        reader.join().unwrap();
    });
}

#[test]
fn reader_of_one_key_after_another_sees_no_half_of_a_transaction() {
    beside_a_transaction(|pair| {
        let (first, second) = (pair.read(0), pair.read(1));
        assert!(first <= second, "{first} {second}");
    });
}

/// The first key is looked up, the second read where a hint of its batch says that it is.
#[test]
fn hinted_reader_of_one_key_after_another_sees_no_half_of_a_transaction() {
    beside_a_transaction(|pair| {
        let first = pair.read(0);
        let home = &pair.0[1];
        let hint = Hint { home, cell: home.cell(0), slot: home.slot(0), tag: 1, mark: 1 };
        let second = hint.open_slot(GATE).map(Slot::location);
        // Not open: it is looked up, and waited for.
        assert!(second.is_none_or(|second| first <= second), "{first} {second:?}");
    });
}

/// The second key's home becomes another bucket before the transaction begins, while its slot stays where the
/// hint has seen it. The reader looks for the transaction's bit in the bucket that was its home.
#[test]
fn hinted_reader_of_a_key_whose_home_has_moved_sees_no_half_of_a_transaction() {
    let mut explorer = loom::model::Builder::new();
    explorer.preemption_bound = Some(3);
    explorer.check(|| {
        let (pair, moved, gate) = (Pair::new(), Arc::new(Bucket::new()), Arc::new(Gate::default()));
        let layout = gate.layout();
        let reader = {
            let (pair, gate) = (pair.clone(), gate.clone());
            thread::spawn(move || {
                let first = pair.read(0);
                let home = &pair.0[1];
                let hint = Hint { home, cell: home.cell(0), slot: home.slot(0), tag: 1, mark: 1 };
                let second = hint.open_slot(gate.since(layout)).map(Slot::location);
                assert!(second.is_none_or(|second| first <= second), "{first} {second:?}");
            })
        };
        // A rebuilding.
        let (old, new) = (pair.0[1].lock(), moved.lock());
        gate.raise();
        pair.0[1].unlock(old);
        moved.unlock(new);
        // Adds one to both keys as one.
        for home in [&pair.0[0], &*moved] {
            let control = home.lock();
            home.unlock(control.with_transaction());
        }
        for bucket in &pair.0 {
            bucket.replace(0, value(bucket.slot(0).location() + 1));
        }
        for home in [&pair.0[0], &*moved] {
            home.unlock(home.control().written().without_transaction());
        }
        reader.join().unwrap();
    });
}

#[test]
fn keys_whose_versions_hold_were_read_at_one_moment() {
    beside_a_transaction(|pair| {
        let versions = [0, 1].map(|key| pair.0[key].control());
        let seen = [0, 1].map(|key| pair.read(key));
        fence(Ordering::Acquire);
        let held = |key: usize| versions[key] == pair.0[key].control() && !versions[key].busy();
        if held(0) && held(1) {
            assert_eq!(seen[0], seen[1]);
        }
    });
}

#[test]
fn two_transactions_lose_nothing_and_end() {
    loom::model(|| {
        let pair = Pair::new();
        let other = {
            let pair = pair.clone();
            thread::spawn(move || pair.add_to_both())
        };
        pair.add_to_both();
        other.join().unwrap();
        assert_eq!([0, 1].map(|key| pair.read(key)), [3, 3]);
    });
}

#[test]
fn transactions_that_share_one_key_of_two_end_and_lose_nothing() {
    loom::model(|| {
        let pair = Pair::new();
        let other = {
            let pair = pair.clone();
            // Another EXEC, whose only key is the second of the first one's.
            thread::spawn(move || {
                let control = pair.0[1].lock();
                pair.0[1].unlock(control.with_transaction());
                let control = pair.0[1].control();
                pair.0[1].replace(0, value(pair.0[1].slot(0).location() + 10));
                pair.0[1].unlock(control.written().without_transaction());
            })
        };
        pair.add_to_both();
        other.join().unwrap();
        assert_eq!([0, 1].map(|key| pair.read(key)), [2, 12]);
    });
}

#[test]
fn transaction_of_keys_is_over_or_has_not_begun_when_another_has_the_world() {
    loom::model(|| {
        let all = Arc::new((World::new(2), Epochs::new(2), Pair::new()));
        let other = {
            let all = all.clone();
            thread::spawn(move || {
                let (world, epochs, pair) = &*all;
                enter_batch(world, epochs);
                pair.add_to_both();
                leave_batch(world, epochs);
            })
        };
        let (world, _, pair) = &*all;
        take_the_world(world);
        // FLUSHALL, KEYS: no bucket is held, and the keys are alike.
        let controls = [0, 1].map(|key: usize| pair.0[key].control());
        assert!(controls.iter().all(|control| control.passes(GATE)));
        assert_eq!(pair.read(0), pair.read(1));
        world.give();
        other.join().unwrap();
        assert_eq!([0, 1].map(|key| pair.read(key)), [2, 2]);
    });
}

/// The first bucket is a part of a segment that is cleaned, the second one that of a transaction. If that goes on, since it
/// has seen no flush, no bucket of the segment has a later stamp than its own: all of them get that one if the segment grows.
#[test]
fn a_part_of_a_segment_is_not_cleaned_of_a_flush_that_an_open_transaction_has_not_seen() {
    loom::model(|| {
        let all = Arc::new((Pair::new(), Gate::default()));
        let transaction = {
            let all = all.clone();
            thread::spawn(move || {
                let (pair, gate) = &*all;
                let began = gate.now();
                let control = pair.0[1].lock();
                let clean = control.passes(began);
                pair.0[1].unlock(if clean { control.with_transaction() } else { control });
                fence(Ordering::SeqCst);
                clean && gate.now() == began
            })
        };
        let (pair, gate) = &*all;
        gate.flush();
        let control = pair.0[0].lock();
        let stamp = gate.stamp();
        fence(Ordering::SeqCst);
        let cleans = !pair.0[1].control().in_transaction();
        pair.0[0].unlock(if cleans { control.with_stamp(stamp).written() } else { control });
        let goes_on = transaction.join().unwrap();
        assert!(!(goes_on && cleans));
    });
}

#[test]
fn write_waits_for_a_transaction_and_is_not_lost() {
    loom::model(|| {
        let pair = Pair::new();
        let other = {
            let pair = pair.clone();
            thread::spawn(move || pair.add_to_both())
        };
        let control = pair.0[1].lock();
        let seen = pair.0[1].slot(0).location();
        pair.0[1].replace(0, value(seen + 1));
        pair.0[1].unlock(control.written());
        other.join().unwrap();
        assert_eq!([0, 1].map(|key| pair.read(key)), [2, 3]);
    });
}

#[test]
fn transaction_after_a_watch_never_overwrites_what_it_has_not_seen() {
    loom::model(|| {
        let pair = Pair::new();
        let flag = Arc::new(AtomicBool::new(false));
        // Watch, then look.
        let control = pair.0[0].lock();
        pair.0[0].unlock(control.with_watched());
        let writer = {
            let (pair, flag) = (pair.clone(), flag.clone());
            thread::spawn(move || {
                let control = pair.0[0].lock();
                assert!(control.watched());
                // Before the lock is released.
                flag.store(true, Ordering::Relaxed);
                let seen = pair.0[0].slot(0).location();
                pair.0[0].replace(0, value(seen + 10));
                pair.0[0].unlock(control.written());
            })
        };
        let seen = pair.read(0);
        let control = pair.0[0].lock();
        pair.0[0].unlock(control.with_transaction());
        let raised = flag.load(Ordering::Relaxed);
        if !raised {
            pair.0[0].replace(0, value(seen + 1));
        }
        let control = pair.0[0].control();
        pair.0[0].unlock(control.written().without_transaction());
        writer.join().unwrap();
        assert_eq!(pair.read(0), if raised { 11 } else { 12 });
    });
}

#[test]
fn who_has_the_world_is_alone() {
    loom::model(|| {
        let world = Arc::new((World::new(2), Epochs::new(2), AtomicU64::new(0)));
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                let (world, epochs, inside) = &*world;
                enter_batch(world, epochs);
                assert_ne!(inside.load(Ordering::Relaxed), 1, "in a batch while another has the world");
                leave_batch(world, epochs);
            })
        };
        let (world, _, inside) = &*world;
        take_the_world(world);
        inside.store(1, Ordering::Relaxed);
        inside.store(2, Ordering::Relaxed);
        world.give();
        other.join().unwrap();
    });
}

#[test]
fn held_bucket_lets_nobody_in() {
    loom::model(|| {
        let bucket = Bucket::new();
        bucket.unlock(Control::new(0, 0).with_transaction());
        assert!(bucket.try_lock().is_none() && bucket.lock_open().is_none());
        bucket.unlock(bucket.control().without_transaction());
        assert!(bucket.lock_open().is_some());
    });
}
