//! What can happen to an item beside being moved: insert, hit, promote, wear, evict, ghost, expire,
//! flush, writing in place; each against what may come in between.

use super::{TAG, World};
use crate::arena::Arena;
use crate::bucket::{Control, Slot};
use crate::due::{Agenda, Due};
use crate::epoch::Epochs;
use crate::ghost::{Ghosts, Queue};
use crate::pin::Pins;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// Takes the item at `location` out, if it is still there; whether this thread did.
fn unlink(world: &World, location: u64) -> bool {
    let control = world.home.lock();
    let found = world.scan().filter(|(_, _, slot)| slot.location() == location);
    if let Some((_, i, _)) = found {
        world.home.replace(i, Slot::EMPTY);
    }
    world.home.unlock(if found.is_some() { control.written() } else { control });
    found.is_some()
}

#[test]
fn reader_during_an_insert_sees_all_of_the_item_or_nothing() {
    loom::model(|| {
        let world = World::new();
        // The checker begins with the first thread and remembers only the last access to a word: `claim`
        // looks before it swaps, and a reader that comes first would not be tried between the two.
        let reader = {
            let world = world.clone();
            // `read` fails on an item whose bytes are not there yet.
            thread::spawn(move || world.get())
        };
        world.publish(1);
        let seen = reader.join().unwrap();
        assert!(matches!(seen, None | Some(1)));
        assert_eq!(world.get(), Some(1));
    });
}

#[test]
fn of_two_adds_of_one_key_exactly_one_is_stored() {
    loom::model(|| {
        let world = World::new();
        let add = |world: &World, location: u64| {
            let control = world.home.lock();
            let absent = world.scan().is_none();
            if absent {
                world.fill(location, control.writes() + 1);
                assert!(world.home.claim(Slot::new(TAG, location, 0, false)));
            }
            world.home.unlock(if absent { control.written() } else { control });
            absent
        };
        let other = {
            let world = world.clone();
            thread::spawn(move || add(&world, 2))
        };
        let mine = add(&world, 1);
        assert!(mine ^ other.join().unwrap());
        assert_eq!(world.home.slots_used(), 1);
    });
}

/// The hand at a key on probation that was read twice: it enters main.
fn promote(world: &World, location: u64) {
    let Some(control) = world.home.try_lock() else { return };
    if let Some((_, i, slot)) = world.scan()
        && slot.location() == location
    {
        world.home.replace(i, slot.promoted().with_frequency(0));
    }
    world.home.unlock(control);
}

/// The hand at a key of main that was read: it is passed over.
fn wear(world: &World, location: u64) {
    let Some(control) = world.home.try_lock() else { return };
    if let Some((_, i, slot)) = world.scan()
        && slot.location() == location
    {
        world.home.replace(i, slot.with_frequency(slot.frequency().saturating_sub(1)));
    }
    world.home.unlock(control);
}

/// An item on probation that was read twice, a hand, a reader that counts its hit, and a third.
fn judged(hand: fn(&World, u64), third: fn(&World), then: fn(&World, Slot)) {
    let world = World::new();
    world.fill(1, 1);
    assert!(world.home.claim(Slot::new(TAG, 1, 0, true).with_frequency(2)));
    let judge = {
        let world = world.clone();
        thread::spawn(move || hand(&world, 1))
    };
    let other = {
        let world = world.clone();
        thread::spawn(move || third(&world))
    };
    if let Some((_, i, slot)) = world.scan() {
        world.home.bump(i, slot, slot.with_frequency(3));
    }
    judge.join().unwrap();
    other.join().unwrap();
    assert!(world.home.slots_used() <= 1);
    then(&world, world.home.slot(0));
}

#[test]
fn promoted_item_keeps_its_place_and_one_slot_whoever_reads_it() {
    loom::model(|| {
        judged(
            promote,
            |_| {},
            |world, slot| {
                assert_eq!((slot.location(), world.get()), (1, Some(1)));
                assert!(!slot.probation(), "the hand had the lock to itself");
            },
        );
    });
}

#[test]
fn item_deleted_while_it_is_promoted_stays_away() {
    loom::model(|| {
        judged(
            promote,
            |world| assert!(unlink(world, 1)),
            |world, slot| {
                assert!(slot.is_empty() && world.get().is_none(), "{slot:?}");
            },
        );
    });
}

#[test]
fn item_overwritten_while_it_is_worn_is_the_new_one() {
    loom::model(|| {
        judged(
            wear,
            |world| {
                world.publish(2);
            },
            |world, slot| assert_eq!((slot.location(), world.get()), (2, Some(1))),
        );
    });
}

#[test]
fn of_two_that_evict_an_item_exactly_one_frees_it() {
    loom::model(|| {
        let world = World::new();
        world.publish(1);
        let other = {
            let world = world.clone();
            thread::spawn(move || unlink(&world, 1))
        };
        let mine = unlink(&world, 1);
        assert!(mine ^ other.join().unwrap());
    });
}

#[test]
fn key_that_comes_back_after_its_eviction_finds_its_ghost() {
    const HASH: u64 = 0x1234_5678_9abc_def0;
    loom::model(|| {
        let arena = Arena::new(1 << 20, 1 << 20).unwrap();
        let ghosts = Arc::new(Ghosts::default());
        ghosts.fit(&arena, 1, || 0);
        let world = World::new();
        world.publish(1);
        let evictor = {
            let (world, ghosts) = (world.clone(), ghosts.clone());
            thread::spawn(move || {
                let control = world.home.lock();
                let (_, i, _) = world.scan().expect("it is evicted here only");
                ghosts.remember(HASH, Queue::Probation);
                world.home.replace(i, Slot::EMPTY);
                world.home.unlock(control.written());
            })
        };
        // A set: an overwrite, or an insert of a key that was evicted.
        let control = world.home.lock();
        world.fill(2, 2);
        let found = world.scan();
        let probation = match found {
            Some((_, i, slot)) => {
                world.home.replace(i, slot.with_location(2));
                false
            }
            None => {
                let probation = ghosts.recall(HASH).is_none();
                assert!(world.home.claim(Slot::new(TAG, 2, 0, probation)));
                probation
            }
        };
        world.home.unlock(control.written());
        evictor.join().unwrap();
        assert!(!probation, "its ghost was there before the key was gone");
        // Evicted after the overwrite, or recalled: the ghost is there once.
        assert_eq!(ghosts.recall(HASH).is_some(), found.is_some());
        assert_eq!(ghosts.recall(HASH), None);
    });
}

/// A flush that has been acknowledged, as the store's gate says it.
fn clean(world: &World, control: Control, gate: u64) -> Control {
    if control.passes(gate) {
        return control;
    }
    if let Some((_, i, _)) = world.scan() {
        world.home.replace(i, Slot::EMPTY);
    }
    control.with_stamp((gate >> 12) as u8).written()
}

#[test]
fn what_was_set_after_a_flush_stays_and_what_was_there_before_is_gone() {
    loom::model(|| {
        let world = World::new();
        world.publish(1);
        let gate = Arc::new(AtomicU64::new(Control::gate(0)));
        // Upkeep or a reader, which clean a bucket that they meet.
        let upkeep = {
            let (world, gate) = (world.clone(), gate.clone());
            thread::spawn(move || {
                let control = world.home.lock();
                let cleaned = clean(&world, control, gate.load(Ordering::Acquire));
                world.home.unlock(cleaned);
            })
        };
        gate.store(Control::gate(1), Ordering::Release);
        // A reader after the flush.
        if world.home.control().passes(gate.load(Ordering::Acquire)) {
            assert_eq!(world.get(), None);
        }
        let control = world.home.lock();
        let control = clean(&world, control, gate.load(Ordering::Acquire));
        assert!(world.scan().is_none());
        world.fill(2, 7);
        assert!(world.home.claim(Slot::new(TAG, 2, 0, false)));
        world.home.unlock(control.written());
        upkeep.join().unwrap();
        assert_eq!(world.get(), Some(7));
        assert!(world.home.control().passes(Control::gate(1)));
    });
}

#[test]
fn item_touched_to_a_later_time_is_not_expired_by_who_saw_the_earlier() {
    loom::model(|| {
        let world = World::new();
        world.publish(1);
        let expiry = Arc::new(AtomicU64::new(10));
        let visit = {
            let (world, expiry) = (world.clone(), expiry.clone());
            thread::spawn(move || {
                if expiry.load(Ordering::Relaxed) > 10 {
                    return;
                }
                // Seen from the span; judged again under the lock.
                let control = world.home.lock();
                if let Some((_, i, _)) = world.scan()
                    && expiry.load(Ordering::Relaxed) <= 10
                {
                    world.home.replace(i, Slot::EMPTY);
                }
                world.home.unlock(control.written());
            })
        };
        let control = world.home.lock();
        let touched = world.scan().is_some();
        if touched {
            expiry.store(20, Ordering::Relaxed);
        }
        world.home.unlock(control.written());
        visit.join().unwrap();
        assert_eq!(world.get().is_some(), touched);
    });
}

/// The books of one span: its own time, those above it, and what a visit would find in it.
struct Lifetimes {
    agenda: Agenda,
    span: Due,
    epochs: Epochs,
    /// When the new item expires; 0: it is not published yet.
    item: AtomicU64,
}

#[test]
fn item_whose_writer_found_an_earlier_time_is_seen_by_the_visit() {
    loom::model(|| {
        let books = Arc::new(Lifetimes {
            agenda: Agenda::new(1),
            span: Due::default(),
            epochs: Epochs::new(2),
            item: AtomicU64::new(0),
        });
        books.span.lower(10);
        books.agenda.note(0, 10);
        let writer = {
            let books = books.clone();
            thread::spawn(move || {
                books.epochs.enter(1);
                // Earlier than what it publishes: nothing to note.
                if books.span.lower(20) {
                    books.agenda.note(0, 20);
                }
                books.item.store(20, Ordering::Release);
                books.epochs.leave(1);
            })
        };
        let taken = books.agenda.take(0, 1, 10, |_| &books.span);
        assert_eq!(taken, Some(0));
        let tag = books.epochs.tag();
        while !books.epochs.safe(tag) {
            if !books.epochs.advance() {
                thread::yield_now();
            }
        }
        let found = books.item.load(Ordering::Acquire);
        if found != 0 && books.span.lower(found) {
            books.agenda.note(0, found);
        }
        writer.join().unwrap();
        assert!(books.agenda.any(20), "nobody knows that the span is due at 20");
        assert_eq!(books.agenda.take(0, 1, 20, |_| &books.span), Some(0));
    });
}

#[test]
fn value_written_in_place_is_read_whole() {
    loom::model(|| {
        let value = Arc::new((Pins::new(), [AtomicU64::new(1), AtomicU64::new(1)]));
        let writer = {
            let value = value.clone();
            thread::spawn(move || {
                let (pins, pieces) = &*value;
                let alone = pins.begin_move();
                if alone {
                    pieces.iter().for_each(|piece| piece.store(2, Ordering::Relaxed));
                    pins.end_move();
                }
                alone
            })
        };
        let (pins, pieces) = &*value;
        pins.add().unwrap();
        let [first, second] = [0, 1].map(|i: usize| pieces[i].load(Ordering::Relaxed));
        assert_eq!(first, second, "half of a write");
        pins.remove();
        let written = writer.join().unwrap();
        assert_eq!(pieces[0].load(Ordering::Relaxed), if written { 2 } else { 1 });
    });
}

#[test]
fn update_of_what_was_seen_is_refused_when_its_place_was_filled_again_with_its_key() {
    loom::model(|| {
        let world = World::new();
        let seen = world.publish(1);
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                // Deleted, its memory used again, by the same key: another version at the same place.
                assert!(unlink(&world, 1) || world.scan().is_some_and(|(_, _, slot)| slot.location() == 2));
                world.publish(1)
            })
        };
        // Seen in an epoch that is over: an allocation that waits steps outside.
        let control = world.home.lock();
        let same = world.scan().is_some_and(|(_, _, slot)| slot.location() == 1 && world.read(slot) == seen);
        if same {
            world.fill(2, control.writes() + 1);
            world.home.replace(0, Slot::new(TAG, 2, 0, false));
        }
        world.home.unlock(if same { control.written() } else { control });
        let last = other.join().unwrap();
        // The other's write is the last, or came after what was made of the first.
        assert_eq!(world.get(), Some(last));
    });
}
