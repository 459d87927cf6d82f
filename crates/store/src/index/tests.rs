//! Rebuildings of an index without a store: what they leave of locks and items when something comes between.

use super::pages::PAGE_BUCKETS;
use super::shrink::MERGE_PAGES_MAX;
use super::{Full, Index, Items, Place};
use crate::arena::Arena;
use crate::bucket::{Bucket, SLOTS, Slot};
use std::thread;

/// Items that are their location, and whose hash is made of it.
#[derive(Default)]
struct Numbers {
    discarded: Vec<u64>,
}

fn hash_of(location: u64) -> u64 {
    location.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Items for Numbers {
    fn prefetch(&self, _location: u64) {}
    fn hash(&self, location: u64) -> u64 {
        hash_of(location)
    }
    fn flushed(&self, _location: u64, _was: u8, _now: u8) -> bool {
        false
    }
    fn discard(&mut self, location: u64) {
        self.discarded.push(location);
    }
    fn tag(&self) -> u64 {
        0
    }
    fn batches_over(&self, _tag: u64) -> bool {
        false
    }
}

fn insert(index: &Index, arena: &Arena, location: u64, grows: bool) -> bool {
    loop {
        let hash = hash_of(location);
        let mut locked = index.lock(arena, hash);
        let slot = Slot::new(locked.place.tag, location, 0, false);
        let inserted = index.insert(&mut locked, slot);
        let meta = Index::meta(&locked);
        locked.home.unlock(locked.control.written());
        if inserted || !grows {
            return inserted;
        }
        let grown = index.grow(arena, hash, meta, 0, None, &mut Numbers::default());
        assert_eq!(grown, Some(Ok::<_, Full>(())), "there is memory, and no transaction");
    }
}

fn remove(index: &Index, arena: &Arena, location: u64) {
    let mut locked = index.lock(arena, hash_of(location));
    let found = index.scan(&locked.place, locked.control, |slot| slot.location() == location);
    index.remove(&mut locked, &found.expect("it was put there"));
    locked.home.unlock(locked.control.written());
}

fn buckets<'a>(place: &Place<'a>) -> impl Iterator<Item = &'a Bucket> {
    (0..place.buckets()).map(|i| place.bucket(i))
}

/// What is reached by the index, in order.
fn reached(index: &Index, arena: &Arena) -> Vec<u64> {
    let (mut cursor, mut locations) = (0, Vec::new());
    loop {
        let next = index.walk(arena, cursor, usize::MAX, &mut |slot| locations.push(slot.location()));
        cursor = next.expect("no transaction is open");
        if cursor == 0 {
            locations.sort_unstable();
            return locations;
        }
    }
}

#[test]
fn a_merge_for_which_too_much_has_come_meanwhile_leaves_everything_open() {
    const LOW: u64 = 0;
    const HIGH: u64 = 1 << 63;
    let arena = Arena::new(16 << 20, 16 << 20).unwrap();
    let index = Index::new(&arena).unwrap();
    // 1. Two halves, with as many items as a merge may just have.
    let mut locations = Vec::new();
    while index.place(&arena, LOW).meta == index.place(&arena, HIGH).meta {
        locations.push(1 + locations.len() as u64);
        assert!(insert(&index, &arena, locations[locations.len() - 1], true));
    }
    let merged_max = MERGE_PAGES_MAX * PAGE_BUCKETS * SLOTS * 8 / 10;
    while locations.len() > merged_max {
        remove(&index, &arena, locations.pop().expect("there are too many"));
    }
    let (low, high) = (index.place(&arena, LOW), index.place(&arena, HIGH));
    let pages = index.pages_of_spans();

    thread::scope(|scope| {
        // 2. The merge has made its plan when it locks buckets, and waits for the second.
        let (first, second) = (low.bucket(0), low.bucket(1));
        let control = second.lock();
        let merge = scope.spawn(|| index.shrink(&arena, LOW, 0, &mut Numbers::default()));
        while !first.control().busy() {
            thread::yield_now();
        }
        // 3. Meanwhile the other half is filled.
        let mut location = 1 << 20;
        while buckets(&high).map(Bucket::slots_used).sum::<usize>() < high.buckets() * SLOTS * 8 / 10 {
            location += 1;
            if hash_of(location) >= HIGH && insert(&index, &arena, location, false) {
                locations.push(location);
            }
        }
        second.unlock(control);
        assert!(!merge.join().expect("it does not panic"), "there was room for the plan alone");
    });

    assert!(buckets(&low).chain(buckets(&high)).all(|bucket| !bucket.control().busy()));
    assert!(index.holds(&low) && index.holds(&high));
    assert_eq!(index.pages_of_spans(), pages);
    locations.sort_unstable();
    assert_eq!(reached(&index, &arena), locations);
}
