//! Moving an item to another chunk of its class, against everything else that can happen to it.

use super::{TAG, World};
use crate::bucket::Slot;
use crate::index::Gate;
use crate::pin::Pins;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// Moves the key's item to location `to`, if there is one, and frees what it left; as worker 1.
fn move_to(world: &World, to: u64) {
    world.epochs.enter(1);
    let control = world.home.lock();
    let moved = world.scan().map(|(_, i, slot)| {
        let value = world.read(slot);
        world.fill(to, value);
        world.home.replace(i, slot.with_location(to));
        slot.location()
    });
    // Nothing a reader could miss: the slot always named the item, so the version stays.
    world.home.unlock(control);
    let tag = world.epochs.tag();
    world.epochs.leave(1);
    if let Some(from) = moved {
        world.reuse(1, tag, from);
    }
}

fn with_mover(other: impl Fn(&World), then: impl Fn(&World)) {
    let world = World::new();
    world.publish(1);
    let mover = {
        let world = world.clone();
        thread::spawn(move || move_to(&world, 2))
    };
    other(&world);
    mover.join().unwrap();
    then(&world);
}

#[test]
fn reader_of_a_moving_item_sees_its_value() {
    loom::model(|| {
        with_mover(
            |world| {
                world.epochs.enter(0);
                assert_eq!(world.get(), Some(1));
                world.epochs.leave(0);
            },
            |world| assert_eq!(world.get(), Some(1)),
        );
    });
}

#[test]
fn reader_who_counts_an_access_revives_no_old_place() {
    loom::model(|| {
        with_mover(
            |world| {
                world.epochs.enter(0);
                if let Some((_, i, slot)) = world.scan() {
                    world.home.bump(i, slot, slot.with_frequency(1));
                    world.read(slot);
                }
                world.epochs.leave(0);
            },
            |world| {
                let (_, _, slot) = world.scan().unwrap();
                assert_eq!((slot.location(), world.read(slot)), (2, 1));
            },
        );
    });
}

#[test]
fn overwrite_of_a_moving_item_is_what_stays() {
    loom::model(|| {
        with_mover(
            |world| {
                world.epochs.enter(0);
                assert_eq!(world.publish(3), 2);
                world.epochs.leave(0);
            },
            |world| assert_eq!(world.get(), Some(2)),
        );
    });
}

#[test]
fn deleted_item_is_not_brought_back_by_a_move() {
    loom::model(|| {
        with_mover(
            |world| {
                let control = world.home.lock();
                let (_, i, _) = world.scan().expect("a move never hides it");
                world.home.replace(i, Slot::EMPTY);
                world.home.unlock(control.written());
            },
            |world| assert_eq!(world.get(), None),
        );
    });
}

#[test]
fn increment_of_a_moving_item_is_counted() {
    loom::model(|| {
        with_mover(
            |world| {
                loop {
                    world.epochs.enter(0);
                    let (_, _, seen) = world.scan().expect("it is never deleted");
                    let count = world.read(seen);
                    let control = world.home.lock();
                    let (_, i, slot) = world.scan().expect("it is never deleted");
                    let same = slot.location() == seen.location();
                    if same {
                        world.fill(3, count + 10);
                        world.home.replace(i, Slot::new(TAG, 3, 0, false));
                    }
                    world.home.unlock(if same { control.written() } else { control });
                    world.epochs.leave(0);
                    if same {
                        return;
                    }
                }
            },
            |world| assert_eq!(world.get(), Some(11)),
        );
    });
}

#[test]
fn pinned_value_reads_no_piece_that_was_moved_away() {
    loom::model(|| {
        // The word of a table names piece 0 or its copy 1; 0 in a piece: used again.
        let state = Arc::new((Pins::new(), AtomicU64::new(0), [AtomicU64::new(7), AtomicU64::new(0)]));
        let mover = {
            let state = state.clone();
            thread::spawn(move || {
                let (pins, word, pieces) = &*state;
                if pins.begin_move() {
                    pieces[1].store(7, Ordering::Relaxed);
                    word.store(1, Ordering::Release);
                    pins.end_move();
                    // A reader that has pinned since reads the copy; no thread is in an older epoch here.
                    pieces[0].store(0, Ordering::Relaxed);
                }
            })
        };
        let (pins, word, pieces) = &*state;
        pins.add().unwrap();
        let piece = word.load(Ordering::Acquire);
        assert_eq!(pieces[piece as usize].load(Ordering::Relaxed), 7);
        pins.remove();
        mover.join().unwrap();
    });
}

#[test]
fn pin_of_a_moved_value_goes_to_its_copy() {
    loom::model(|| {
        let heads = Arc::new([Pins::new(), Pins::new()]);
        let mover = {
            let heads = heads.clone();
            thread::spawn(move || {
                if heads[0].begin_move() {
                    heads[0].end_moved(1);
                }
            })
        };
        let mut at = 0;
        while let Err(moved) = heads[at].add() {
            at = moved as usize;
        }
        mover.join().unwrap();
        // What is pinned is where the value is, and its last pin frees it once it is deleted.
        assert!(!heads[0].begin_move());
        assert!(!heads[at].kill());
        assert!(heads[at].remove().1);
    });
}

#[test]
fn bucket_is_home_still_if_no_segment_has_changed_since_it_was_asked_for() {
    loom::model(|| {
        let world = World::new();
        // Which of the two buckets is home, as a directory says it.
        let segment = Arc::new((Gate::default(), AtomicU64::new(0)));
        let rebuild = {
            let (world, segment) = (world.clone(), segment.clone());
            thread::spawn(move || {
                let (home, other) = (world.home.lock(), world.other.lock());
                segment.1.store(1, Ordering::Release);
                segment.0.raise();
                world.other.unlock(other.written());
                world.home.unlock(home.written());
            })
        };
        let layout = segment.0.layout();
        let at = segment.1.load(Ordering::Acquire);
        let bucket = if at == 0 { &world.home } else { &world.other };
        let control = bucket.lock();
        if control.passes(segment.0.since(layout)) {
            assert_eq!(segment.1.load(Ordering::Acquire), at, "the keys live elsewhere by now");
        }
        bucket.unlock(control);
        rebuild.join().unwrap();
    });
}
