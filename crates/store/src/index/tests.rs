//! Rebuildings of an index without a store: what they leave of locks and items when something comes between, and
//! what they hold when they ask for the stamp.

use super::directory::{PAGES_MAX, depth_of};
use super::pages::PAGE_BUCKETS;
use super::place::{home_of, tag_of};
use super::shrink::MERGE_PAGES_MAX;
use super::{Full, Hold, Index, Items, Own, Place, Sparse, Walked};
use crate::arena::Arena;
use crate::bucket::{Bucket, Control, SLOTS, Slot};
use std::cell::Cell;
use std::ops::RangeInclusive;
use std::thread;

/// Items that are their location, and whose hash is made of it.
struct Numbers<'i> {
    index: &'i Index,
    arena: &'i Arena,
    /// Of keys whose buckets are to be locked when the stamp is asked for.
    hashes: Vec<u64>,
    stamp: u8,
    /// How often it was asked for.
    asked: Cell<u32>,
    /// What a flush has taken of those with even numbers; none: it takes nothing.
    taken: Option<Vec<u64>>,
}

impl<'i> Numbers<'i> {
    fn of(index: &'i Index, arena: &'i Arena) -> Numbers<'i> {
        Numbers { index, arena, hashes: Vec::new(), stamp: 0, asked: Cell::new(0), taken: None }
    }
}

fn hash_of(location: u64) -> u64 {
    location.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Items for Numbers<'_> {
    fn prefetch(&self, _location: u64) {}
    fn hash(&self, location: u64) -> u64 {
        hash_of(location)
    }
    fn stamp(&self) -> u8 {
        self.asked.set(self.asked.get() + 1);
        assert!(self.index.growth.try_lock().is_err(), "nobody else rebuilds the segment");
        for &hash in &self.hashes {
            let home = self.index.place(self.arena, hash).home();
            assert!(
                home.control().busy(),
                "nobody writes to it, after a flush that this stamp does not know of"
            );
        }
        self.stamp
    }
    fn flushed(&self, location: u64, was: u8, now: u8) -> bool {
        self.taken.is_some() && was < now && location.is_multiple_of(2)
    }
    fn watched(&self, _hashes: RangeInclusive<u64>) -> bool {
        false
    }
    fn discard(&mut self, location: u64) {
        self.taken.as_mut().expect("each has a place").push(location);
    }
    fn tag(&self) -> u64 {
        0
    }
    fn batches_over(&self, _tag: u64) -> bool {
        false
    }
}

fn shrink(index: &Index, arena: &Arena, hash: u64, items: &mut Numbers<'_>) -> bool {
    index.shrink(arena, hash, Sparse { items: None, is_clean: true, both_are_clean: true }, items)
}

fn insert(index: &Index, arena: &Arena, location: u64, grows: bool) -> bool {
    loop {
        let hash = hash_of(location);
        let mut locked = index.lock_open(arena, hash).expect("no transaction");
        let slot = Slot::new(locked.place.tag, location, 0, false);
        let inserted = index.insert(&mut locked, slot);
        let meta = Index::meta(&locked);
        locked.home.unlock(locked.control.written());
        if inserted || !grows {
            return inserted;
        }
        let grown = index.grow(arena, hash, meta, None, &mut Numbers::of(index, arena));
        assert_eq!(grown, Some(Ok::<_, Full>(())), "there is memory, and no transaction");
    }
}

fn remove(index: &Index, arena: &Arena, location: u64) {
    let mut locked = index.lock_open(arena, hash_of(location)).expect("no transaction");
    let found = index.scan(&locked.place, locked.control, |slot| slot.location() == location);
    index.remove(&mut locked, &found.expect("it was put there"));
    locked.home.unlock(locked.control.written());
}

/// There is one segment. After a merge a directory of two entries names it by both, until the directory is halved.
fn is_whole(index: &Index, arena: &Arena) -> bool {
    depth_of(index.place(arena, 0).meta) == 0
}

fn buckets<'a>(place: &Place<'a>) -> impl Iterator<Item = &'a Bucket> {
    (0..place.buckets()).map(|i| place.bucket(i))
}

/// What is reached by the index, in order.
fn reached(index: &Index, arena: &Arena) -> Vec<u64> {
    let (mut cursor, mut locations) = (0, Vec::new());
    loop {
        cursor = index.sweep(arena, cursor, &mut |bucket| {
            let slots = (0..SLOTS).map(|i| bucket.slot(i)).filter(|slot| !slot.is_empty());
            locations.extend(slots.map(Slot::location));
        });
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
    while is_whole(&index, &arena) {
        locations.push(1 + locations.len() as u64);
        assert!(insert(&index, &arena, locations[locations.len() - 1], true));
    }
    let merged_max = MERGE_PAGES_MAX * PAGE_BUCKETS * SLOTS * 8 / 10;
    while locations.len() > merged_max {
        remove(&index, &arena, locations.pop().expect("there are too many"));
    }
    // Both have 8 pages, and 14 may become one.
    assert!(shrink(&index, &arena, LOW, &mut Numbers::of(&index, &arena)));
    let (low, high) = (index.place(&arena, LOW), index.place(&arena, HIGH));
    let slots = index.slots();

    thread::scope(|scope| {
        // 2. The merge has made its plan when it locks buckets, and waits for the second.
        let (first, second) = (low.bucket(0), low.bucket(1));
        let control = second.lock();
        let merge = scope.spawn(|| shrink(&index, &arena, LOW, &mut Numbers::of(&index, &arena)));
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
    assert_eq!(index.slots(), slots, "the pages that were taken for it are free again");
    locations.sort_unstable();
    assert_eq!(reached(&index, &arena), locations);
}

#[test]
fn the_stamp_is_asked_for_when_no_bucket_of_the_segment_can_be_written_to() {
    let arena = Arena::new(16 << 20, 16 << 20).unwrap();
    let index = Index::new(&arena).unwrap();
    let ends = [0, 1 << 20, 1 << 62, 1 << 63, u64::MAX];
    let numbers = |stamp| Numbers { stamp, hashes: ends.to_vec(), ..Numbers::of(&index, &arena) };
    let stamps = || ends.map(|hash| index.place(&arena, hash).home().control().stamp());
    let grow = |stamp| {
        let mut items = numbers(stamp);
        let meta = index.place(&arena, 0).meta;
        assert_eq!(index.grow(&arena, 0, meta, None, &mut items), Some(Ok(())));
        assert_eq!((items.asked.get(), stamps()), (1, [stamp; 5]));
    };
    // By a page, up to the most that a segment has, and in two.
    (2..=PAGES_MAX as u8).for_each(grow);
    grow(100);
    assert!(!is_whole(&index, &arena));
    // One half gets fewer pages.
    let mut items = Numbers { hashes: ends[..3].to_vec(), ..numbers(101) };
    assert!(shrink(&index, &arena, 0, &mut items));
    assert_eq!((items.asked.get(), stamps()), (1, [101, 101, 101, 100, 100]));
    assert_ne!(index.place(&arena, 0).pages(), index.place(&arena, u64::MAX).pages());
    // Both halves become one.
    let mut items = numbers(102);
    assert!(shrink(&index, &arena, 0, &mut items));
    assert_eq!(index.place(&arena, 0).pages(), index.place(&arena, u64::MAX).pages());
    assert_eq!((items.asked.get(), stamps()), (1, [102; 5]));
    let mut items = numbers(103);
    assert_eq!(index.clean(&arena, 0, &mut items), Some(()));
    assert_eq!((items.asked.get(), stamps()), (1, [103; 5]));
}

#[test]
fn what_a_flush_took_before_a_rebuilding_began_is_not_carried_into_it() {
    let arena = Arena::new(16 << 20, 16 << 20).unwrap();
    let index = Index::new(&arena).unwrap();
    let mut stamp = 0;
    // A flush comes, and a rebuilding locks buckets that were not cleaned since.
    let mut flush = |rebuild: &dyn Fn(&mut Numbers<'_>)| {
        let before = reached(&index, &arena);
        stamp += 1;
        let mut items = Numbers { stamp, taken: Some(Vec::new()), ..Numbers::of(&index, &arena) };
        rebuild(&mut items);
        let (taken, stays): (Vec<u64>, Vec<u64>) =
            before.iter().partition(|location| location.is_multiple_of(2));
        let mut discarded = items.taken.expect("it was there");
        discarded.sort_unstable();
        assert_eq!((discarded, reached(&index, &arena)), (taken, stays));
    };
    let fill =
        |from: u64| (from..from + 200).for_each(|location| assert!(insert(&index, &arena, location, false)));
    let grow = |items: &mut Numbers<'_>| {
        let meta = index.place(&arena, 0).meta;
        assert_eq!(index.grow(&arena, 0, meta, None, items), Some(Ok(())));
    };
    fill(1);
    while is_whole(&index, &arena) {
        flush(&grow);
        fill(reached(&index, &arena).last().unwrap() + 1);
    }
    // One half gets fewer pages, and both become one.
    let stamp = index.place(&arena, 0).home().control().stamp();
    assert!(shrink(&index, &arena, 0, &mut Numbers { stamp, ..Numbers::of(&index, &arena) }));
    flush(&|items| assert!(shrink(&index, &arena, 0, items)));
    assert!(is_whole(&index, &arena));
}

/// Two halves become one when they have as many pages together as one segment may have: 14, and not 15.
#[test]
fn halves_of_more_pages_than_a_segment_may_have_shrink_before_they_become_one() {
    let arena = Arena::new(16 << 20, 16 << 20).unwrap();
    let index = Index::new(&arena).unwrap();
    let mut location = 0;
    while is_whole(&index, &arena) {
        location += 1;
        assert!(insert(&index, &arena, location, true));
    }
    // Of the lower half so many items stay that it shrinks to 6 or 7 pages of its 8; of the other one few.
    for (low_items, is_one) in [(2_300, true), (2_550, false)] {
        let is_low = |location: u64| hash_of(location) >> 63 == 0;
        let index = Index::new(&arena).unwrap();
        (1..=location).for_each(|location| assert!(insert(&index, &arena, location, true)));
        for low in [true, false] {
            let items: Vec<u64> = (1..=location).filter(|&location| is_low(location) == low).collect();
            let stay = if low { low_items } else { 100 };
            items[stay..].iter().for_each(|&location| remove(&index, &arena, location));
        }
        let pages = |hash| index.place(&arena, hash).pages().len();
        assert_eq!((pages(0), pages(u64::MAX)), (8, 8));
        let mut items = Numbers::of(&index, &arena);
        assert!(shrink(&index, &arena, 0, &mut items));
        assert_eq!((pages(0), pages(u64::MAX)), (if is_one { 6 } else { 7 }, 8));
        assert!(shrink(&index, &arena, u64::MAX, &mut items));
        assert_eq!(is_whole(&index, &arena), is_one);
        assert_eq!(reached(&index, &arena).len(), low_items + 100);
    }
}

/// What is at home in a part of a segment goes, wherever it lies, under the locks of that part alone; what stays is found.
#[test]
fn a_part_of_a_segment_is_cleaned_under_the_locks_of_that_part() {
    const ITEMS: u64 = 1_500;
    let arena = Arena::new(16 << 20, 16 << 20).unwrap();
    let index = Index::new(&arena).unwrap();
    assert!((1..=ITEMS).all(|location| insert(&index, &arena, location, true)));
    assert!(is_whole(&index, &arena));
    let place = index.place(&arena, 0);
    let n = place.buckets();
    assert!(n > 3 * PAGE_BUCKETS, "{n} buckets");
    let taken_before = |end: usize| {
        let is_before = |location: u64| home_of(tag_of(hash_of(location), 0), n) < end;
        (1..=ITEMS).filter(|&location| location.is_multiple_of(2) && is_before(location)).collect::<Vec<_>>()
    };
    let mut items = Numbers { stamp: 1, taken: Some(Vec::new()), ..Numbers::of(&index, &arena) };
    let mut clean = || {
        let clean = index.clean_some(&arena, 0, (1, PAGE_BUCKETS), &mut items);
        let mut taken = items.taken.clone().expect("each has a place");
        taken.sort_unstable();
        (clean, taken, items.asked.get())
    };
    let parts = n / PAGE_BUCKETS;
    for part in 1..=parts {
        let end = part * PAGE_BUCKETS;
        assert_eq!(clean(), (Some(part == parts), taken_before(end), part as u32));
        let mut stamps = buckets(&place).map(|bucket| bucket.control().stamp()).enumerate();
        assert!(stamps.all(|(i, stamp)| stamp == u8::from(i < end)), "{end} buckets are clean");
        assert!(buckets(&place).all(|bucket| !bucket.control().busy()), "no lock is left");
    }
    assert_eq!(clean(), (Some(true), taken_before(n), parts as u32), "there is nothing to do");
    let is_found = |location: u64| {
        let place = index.place(&arena, hash_of(location));
        index.scan(&place, place.home().control(), |slot| slot.location() == location).is_some()
    };
    assert!((1..=ITEMS).all(|location| is_found(location) != location.is_multiple_of(2)));
}

/// A transaction that began before a flush has its segment keep its stamp, also where the segment grows: a part of it that was
/// clean would have an earlier stamp then than what is written there meanwhile.
#[test]
fn no_part_of_a_segment_is_cleaned_beside_a_transaction_in_another() {
    let arena = Arena::new(16 << 20, 16 << 20).unwrap();
    let index = Index::new(&arena).unwrap();
    assert!((1..=1_500).all(|location| insert(&index, &arena, location, true)));
    assert!(is_whole(&index, &arena));
    let stamps = || {
        let place = index.place(&arena, 0);
        let stamps: Vec<u8> = buckets(&place).map(|bucket| bucket.control().stamp()).collect();
        (stamps.iter().min().copied(), stamps.iter().max().copied())
    };
    let mut held = Own::default();
    assert_eq!(index.hold(&arena, u64::MAX, Control::gate(0), &mut held), Hold::Held);
    let mut items = Numbers { stamp: 1, taken: Some(Vec::new()), ..Numbers::of(&index, &arena) };
    for _ in 0..2 {
        // None of the part is the transaction's.
        assert_eq!(index.clean_some(&arena, 0, (1, PAGE_BUCKETS), &mut items), None);
        assert_eq!((stamps(), &items.taken), ((Some(0), Some(0)), &Some(Vec::new())));
        let meta = index.place(&arena, u64::MAX).meta();
        assert_eq!(index.grow(&arena, u64::MAX, meta, Some(&mut held), &mut items), Some(Ok(())));
        assert_ne!(index.place(&arena, u64::MAX).meta(), meta);
    }
    index.release(&arena, &mut held);
    let parts = index.place(&arena, 0).buckets() / PAGE_BUCKETS;
    for part in 1..=parts {
        let clean = index.clean_some(&arena, 0, (1, PAGE_BUCKETS), &mut items);
        assert_eq!((clean, stamps()), (Some(part == parts), (Some(u8::from(part == parts)), Some(1))));
    }
    assert_eq!(items.taken.expect("each has a place").len(), 750);
}

#[test]
fn a_segment_that_grows_under_a_transaction_keeps_the_stamp_that_it_began_with() {
    let arena = Arena::new(16 << 20, 16 << 20).unwrap();
    let index = Index::new(&arena).unwrap();
    let mut held = Own::default();
    assert_eq!(index.hold(&arena, 7, Control::gate(0), &mut held), Hold::Held);
    // A flush comes now.
    let mut items = Numbers { stamp: 1, ..Numbers::of(&index, &arena) };
    let meta = index.place(&arena, 7).meta;
    assert_eq!(index.grow(&arena, 7, meta, Some(&mut held), &mut items), Some(Ok(())));
    let place = index.place(&arena, 7);
    assert_eq!(held.len(), place.buckets());
    assert!(buckets(&place).all(|bucket| bucket.control().in_transaction() && bucket.control().stamp() == 0));
    index.release(&arena, &mut held);
    assert_eq!(index.clean(&arena, 7, &mut items), Some(()));
    assert!(buckets(&place).all(|bucket| !bucket.control().busy() && bucket.control().stamp() == 1));
}

#[test]
fn a_walk_that_a_transaction_keeps_waiting_collects_nothing() {
    let arena = Arena::new(16 << 20, 16 << 20).unwrap();
    let index = Index::new(&arena).unwrap();
    assert!((1..=40).all(|location| insert(&index, &arena, location, true)));
    let (mut held, mut slots, gate) = (Own::default(), Vec::new(), Control::gate(0));
    assert_eq!(index.hold(&arena, 0, gate, &mut held), Hold::Held);
    assert_eq!(index.walk(&arena, 0, 64, gate, &mut slots), Walked::Busy);
    assert_eq!(slots.capacity(), 0, "who waits asks again and again");
    index.release(&arena, &mut held);
    assert!(matches!(index.walk(&arena, 0, 64, gate, &mut slots), Walked::To(_)));
    assert!(!slots.is_empty());
}
