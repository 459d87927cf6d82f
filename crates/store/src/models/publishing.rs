//! The publication, by the numbers of `write/publish.rs`: the general way and a short one beside each other, beside a
//! reader, a sweep over chunks, and a client that watches the key. The bucket and the epochs are the real ones.
//!
//! A location's header is the version of its item, 0 of a free chunk; its body is a count, which each write makes one
//! higher.

use super::TAG;
use crate::bucket::{Bucket, Control, Slot};
use crate::epoch::Epochs;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;

struct World {
    home: Bucket,
    epochs: Epochs,
    headers: [AtomicU64; 4],
    bodies: [AtomicU64; 4],
    told: AtomicBool,
}

impl World {
    /// The key has a count of 1, at location 1.
    fn new() -> Arc<World> {
        let world = World {
            home: Bucket::new(),
            epochs: Epochs::new(2),
            headers: std::array::from_fn(|_| AtomicU64::new(0)),
            bodies: std::array::from_fn(|_| AtomicU64::new(0)),
            told: AtomicBool::new(false),
        };
        world.bodies[1].store(1, Ordering::Relaxed);
        world.publish_item(world.home.lock(), None, 1);
        Arc::new(world)
    }

    /// Steps 1 to 7, under the lock whose control word this is; what was filled before is at `location`.
    fn publish_item(&self, control: Control, old: Option<Slot>, location: u64) {
        // 1, 2. The token, and the item.
        self.headers[location as usize].store(control.writes() + 1, Ordering::Release);
        // 3. The slot.
        match old {
            Some(old) => self.home.replace(0, old.overwritten(location)),
            None => assert!(self.home.claim(Slot::new(TAG, location, 0, false))),
        }
        // 4. Watchers are told.
        if control.watched() {
            self.told.store(true, Ordering::Relaxed);
        }
        // 5. Unlock.
        self.home.unlock(control.written());
        // 7. The old item retires, which is a mark in its header.
        if let Some(old) = old {
            self.headers[old.location() as usize].store(u64::MAX, Ordering::Release);
        }
    }

    /// What the item that a slot names has counted.
    fn count(&self, slot: Slot) -> u64 {
        let count = self.bodies[slot.location() as usize].load(Ordering::Relaxed);
        assert_ne!(count, 0, "memory that was used again");
        assert_ne!(self.headers[slot.location() as usize].load(Ordering::Relaxed), 0, "no item is there");
        count
    }

    /// One more, by the general way: whatever is there under the lock is what is written over.
    fn add_in_general(&self, location: u64) {
        let control = self.home.lock();
        let old = self.home.slot(0);
        self.bodies[location as usize].store(self.count(old) + 1, Ordering::Relaxed);
        self.publish_item(control, Some(old), location);
    }

    /// One more, as `replace_with`: what is there is read without the lock, and is to be there under it. False, and
    /// nothing done, if it is not.
    fn add_shortly(&self, location: u64) -> bool {
        let old = self.home.slot(0);
        self.bodies[location as usize].store(self.count(old) + 1, Ordering::Relaxed);
        let Some(control) = self.home.lock_open() else { return false };
        let now = self.home.slot(0);
        if now.location() != old.location() {
            self.home.unlock(control);
            return false;
        }
        self.publish_item(control, Some(now), location);
        true
    }

    /// Frees a retired location, if no thread can see it any more.
    fn free(&self, id: usize, location: usize) {
        let tag = self.epochs.tag();
        self.epochs.leave(id);
        for _ in 0..2 {
            self.epochs.enter(id);
            self.epochs.advance();
        }
        if self.epochs.safe(tag) {
            self.bodies[location].store(0, Ordering::Relaxed);
            self.headers[location].store(0, Ordering::Relaxed);
        }
        self.epochs.leave(id);
    }
}

#[test]
fn of_a_general_and_a_short_publication_neither_is_lost() {
    loom::model(|| {
        let world = World::new();
        let other = {
            let world = world.clone();
            thread::spawn(move || world.add_in_general(2))
        };
        let done = world.add_shortly(3);
        other.join().unwrap();
        assert_eq!(world.count(world.home.slot(0)), 2 + u64::from(done));
        assert_eq!(world.home.control().writes(), 2 + u64::from(done));
    });
}

#[test]
fn of_two_short_publications_of_one_count_one_is_done() {
    loom::model(|| {
        let world = World::new();
        let other = {
            let world = world.clone();
            thread::spawn(move || world.add_shortly(2))
        };
        let done = u64::from(world.add_shortly(3)) + u64::from(other.join().unwrap());
        assert!(done > 0, "one of them was first");
        assert_eq!(world.count(world.home.slot(0)), 1 + done);
    });
}

/// Under the lock behind the write, as a transaction begins: what was written has been told.
#[test]
fn whoever_watches_is_told_of_what_is_published() {
    for short in [false, true] {
        loom::model(move || {
            let world = World::new();
            // The watch.
            let control = world.home.lock();
            world.home.unlock(control.with_watched());
            let seen = world.count(world.home.slot(0));
            let writer = {
                let world = world.clone();
                thread::spawn(
                    move || if short { world.add_shortly(2) } else { world.add_in_general(2) == () },
                )
            };
            let control = world.home.lock();
            let changed = world.count(world.home.slot(0)) != seen;
            assert!(!changed || world.told.load(Ordering::Relaxed), "it was not told");
            world.home.unlock(control);
            assert!(writer.join().unwrap());
        });
    }
}

/// Chunks are looked at one by one, by their headers alone.
#[test]
fn a_sweep_that_sees_an_item_sees_all_of_it() {
    loom::model(|| {
        let world = World::new();
        let sweep = {
            let world = world.clone();
            thread::spawn(move || {
                if world.headers[2].load(Ordering::Acquire) != 0 {
                    assert_eq!(world.bodies[2].load(Ordering::Relaxed), 2);
                }
            })
        };
        assert!(world.add_shortly(2));
        sweep.join().unwrap();
    });
}

/// The old item retires when the lock is released already: a reader that sees it then has it for as long as its batch lasts.
#[test]
fn what_retires_behind_the_lock_is_there_for_who_still_sees_it() {
    loom::model(|| {
        let world = World::new();
        let writer = {
            let world = world.clone();
            thread::spawn(move || {
                world.epochs.enter(1);
                assert!(world.add_shortly(2));
                world.free(1, 1);
            })
        };
        world.epochs.enter(0);
        let slot = world.home.slot(0);
        let count = world.count(slot);
        assert_eq!(world.count(slot), count);
        assert!(count <= world.count(world.home.slot(0)), "what was read later is older");
        world.epochs.leave(0);
        writer.join().unwrap();
    });
}
