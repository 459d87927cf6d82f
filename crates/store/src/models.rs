//! Models: every interleaving of two or three threads over the store's own bucket, epochs and pins.
//!
//! The arena's memory cannot be the model checker's, so items are stood for by a table of atomics:
//! entry n is the item at location n, its value is the version it was published with, and 0 means
//! that its memory was used again. Everything that decides which thread sees what (control words, slots,
//! announcements, pins) is the real code.

mod beside;
mod moving;
mod orderings;
mod patching;
mod publishing;
mod transactions;
mod transitions;

use crate::bucket::{Bucket, Control, Slot};
use crate::epoch::Epochs;
use crate::pin::Pins;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

const TAG: u64 = 9;

struct World {
    home: Bucket,
    other: Bucket,
    epochs: Epochs,
    items: [AtomicU64; 5],
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            home: Bucket::new(),
            other: Bucket::new(),
            epochs: Epochs::new(2),
            items: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    fn fill(&self, location: u64, version: u64) {
        self.items[location as usize].store(version, Ordering::Relaxed);
    }

    /// What an item holds; nothing reachable may have been used again.
    fn read(&self, slot: Slot) -> u64 {
        let value = self.items[slot.location() as usize].load(Ordering::Relaxed);
        assert_ne!(value, 0, "a reader saw memory that was used again");
        value
    }

    fn scan(&self) -> Option<(bool, usize, Slot)> {
        for (away, bucket) in [(false, &self.home), (true, &self.other)] {
            let matches = bucket.matches(TAG);
            for i in 0..crate::bucket::SLOTS {
                if matches >> i & 1 == 1 {
                    let slot = bucket.slot(i);
                    if !slot.is_empty() && slot.tag() == TAG {
                        return Some((away, i, slot));
                    }
                }
            }
        }
        None
    }

    /// A reader: a value, or a miss that holds.
    fn get(&self) -> Option<u64> {
        loop {
            let control = self.home.control();
            if let Some((_, _, slot)) = self.scan() {
                return Some(self.read(slot));
            }
            loom::sync::atomic::fence(Ordering::Acquire);
            if !control.busy() && self.home.control() == control {
                return None;
            }
            thread::yield_now();
        }
    }

    /// Frees a retired location once no thread can see it.
    fn reuse(&self, id: usize, tag: u64, location: u64) {
        for _ in 0..2 {
            self.epochs.enter(id);
            self.epochs.advance();
        }
        if self.epochs.safe(tag) {
            self.fill(location, 0);
        }
        self.epochs.leave(id);
    }

    fn publish(&self, location: u64) -> u64 {
        let control = self.home.lock();
        let version = control.writes() + 1;
        self.fill(location, version);
        let new = Slot::new(TAG, location, 0, false);
        match self.scan() {
            Some((false, i, _)) => self.home.replace(i, new),
            Some((true, i, _)) => self.other.replace(i, new),
            None => assert!(self.home.claim(new)),
        }
        self.home.unlock(control.written());
        version
    }
}

#[test]
fn reader_during_overwrite_sees_old_or_new_and_never_nothing() {
    loom::model(|| {
        let world = World::new();
        world.publish(1);
        let writer = {
            let world = world.clone();
            thread::spawn(move || {
                world.epochs.enter(1);
                let control = world.home.lock();
                world.fill(2, 2);
                world.home.replace(0, Slot::new(TAG, 2, 0, false));
                world.home.unlock(control.written());
                let tag = world.epochs.tag();
                world.epochs.leave(1);
                world.reuse(1, tag, 1);
            })
        };
        world.epochs.enter(0);
        let seen = world.get();
        assert!(matches!(seen, Some(1 | 2)), "{seen:?}");
        world.epochs.leave(0);
        writer.join().unwrap();
    });
}

#[test]
fn reader_during_eviction_never_reads_used_memory_and_its_bump_revives_nothing() {
    loom::model(|| {
        let world = World::new();
        world.publish(1);
        let evictor = {
            let world = world.clone();
            thread::spawn(move || {
                world.epochs.enter(1);
                if let Some(control) = world.home.try_lock() {
                    world.home.replace(0, Slot::EMPTY);
                    world.home.unlock(control.written());
                    let tag = world.epochs.tag();
                    world.epochs.leave(1);
                    world.reuse(1, tag, 1);
                }
            })
        };
        world.epochs.enter(0);
        if let Some((_, i, slot)) = world.scan() {
            world.read(slot);
            world.home.bump(i, slot, slot.with_frequency(1));
            world.read(slot);
        }
        world.epochs.leave(0);
        evictor.join().unwrap();
        assert!(world.home.slot(0).is_empty(), "the slot is back");
    });
}

#[test]
fn of_two_cas_with_one_token_exactly_one_wins() {
    loom::model(|| {
        let world = World::new();
        let token = world.publish(1);
        let cas = move |world: &World, location: u64| {
            let control = world.home.lock();
            let (_, i, slot) = world.scan().expect("it is never deleted");
            let won = world.read(slot) == token;
            if won {
                world.fill(location, control.writes() + 1);
                world.home.replace(i, Slot::new(TAG, location, 0, false));
            }
            world.home.unlock(if won { control.written() } else { control });
            won
        };
        let other = {
            let world = world.clone();
            thread::spawn(move || cas(&world, 2))
        };
        let mine = cas(&world, 3);
        assert!(mine ^ other.join().unwrap());
    });
}

/// Moves the item from home to its other bucket, as an insertion that needs its slot does.
fn relocate(world: &World) {
    let Some(control) = world.home.try_lock() else { return };
    let slot = world.home.slot(0);
    if !slot.is_empty() && world.other.claim(slot) {
        world.home.replace(0, Slot::new(TAG + 1, 4, 0, false));
        world.home.unlock(control.away_more().written());
    } else {
        world.home.unlock(control);
    }
}

#[test]
fn increments_and_a_relocation_lose_nothing() {
    loom::model(|| {
        let world = World::new();
        world.fill(4, 99);
        world.publish(1);
        let incr = |world: &World, location: u64| {
            // Read, then publish only if it is still what was read.
            loop {
                let (_, _, seen) = world.scan().expect("it is never deleted");
                let count = world.read(seen);
                let control = world.home.lock();
                let (away, i, slot) = world.scan().expect("it is never deleted");
                if slot.location() != seen.location() {
                    world.home.unlock(control);
                    continue;
                }
                world.fill(location, count + 1);
                let bucket = if away { &world.other } else { &world.home };
                bucket.replace(i, Slot::new(TAG, location, 0, false));
                world.home.unlock(control.written());
                return;
            }
        };
        let mover = {
            let world = world.clone();
            thread::spawn(move || relocate(&world))
        };
        incr(&world, 2);
        mover.join().unwrap();
        let (_, _, slot) = world.scan().unwrap();
        assert_eq!(world.read(slot), 2);
    });
}

#[test]
fn reader_during_relocation_finds_the_item() {
    loom::model(|| {
        let world = World::new();
        world.fill(4, 99);
        world.publish(1);
        // The reader is the second thread, or the mover's own loads hide the reader's from loom.
        let reader = {
            let world = world.clone();
            thread::spawn(move || assert_eq!(world.get(), Some(1)))
        };
        relocate(&world);
        reader.join().unwrap();
    });
}

#[test]
fn deleted_item_is_not_resurrected_by_a_relocation() {
    loom::model(|| {
        let world = World::new();
        world.fill(4, 99);
        world.publish(1);
        let mover = {
            let world = world.clone();
            thread::spawn(move || relocate(&world))
        };
        let control = world.home.lock();
        let control = match world.scan() {
            Some((false, i, _)) => {
                world.home.replace(i, Slot::EMPTY);
                control
            }
            Some((true, i, _)) => {
                world.other.replace(i, Slot::EMPTY);
                control.away_less()
            }
            None => control,
        };
        world.home.unlock(control.written());
        mover.join().unwrap();
        assert_eq!(world.get(), None);
        assert_eq!(world.home.control().away(), 0);
    });
}

#[test]
fn two_inserts_never_share_a_slot() {
    loom::model(|| {
        let world = World::new();
        let other = {
            let world = world.clone();
            // Its home is another bucket; this one is its second choice.
            thread::spawn(move || assert!(world.home.claim(Slot::new(TAG + 1, 2, 0, false))))
        };
        assert!(world.home.claim(Slot::new(TAG, 1, 0, false)));
        other.join().unwrap();
        assert_eq!(world.home.matches(TAG).count_ones() + world.home.matches(TAG + 1).count_ones(), 2);
    });
}

#[test]
fn pinned_value_is_freed_exactly_once_and_after_the_pin() {
    loom::model(|| {
        let pins = Arc::new(Pins::new());
        assert!(pins.add().unwrap());
        let freed = Arc::new(AtomicU64::new(0));
        let sender = {
            let (pins, freed) = (pins.clone(), freed.clone());
            thread::spawn(move || {
                if pins.remove().1 {
                    freed.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        if pins.kill() {
            freed.fetch_add(1, Ordering::Relaxed);
        }
        sender.join().unwrap();
        assert_eq!(freed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn control_word_of_a_new_bucket_is_free() {
    loom::model(|| assert_eq!(Bucket::new().control(), Control::new(0, 0)));
}
