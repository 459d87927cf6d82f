//! Ghosts: fingerprints of keys evicted. A key that comes back while its ghost is there was evicted too early: the queue that
//! it was evicted from is too short. It skips probation, unless it was evicted from main and main loops (`window.rs`).
//!
//! ```text
//! place   | 15 evicted from main | 14 asked for since | 13 … 0 fingerprint |      0: free
//! ```
//!
//! A key comes back when it is asked for in vain, or stored; that counts once.
//!
//! There is one place by hash: a new ghost overwrites what is there, so that a table of n places remembers about the last n
//! evictions. There are as many places as items, or up to a fifth fewer, or half as many more: with more of them, keys that
//! were evicted long ago would join main; and a cache whose values change has more items at times, and fewer at others.
//!
//! The table is made when memory is nearly full, or with the first evictions, and grows and shrinks by parts of a quarter to
//! an eighth of it. What is in it is forgotten when there are more places or fewer, since all keys have others then. A part
//! out of use is freed when every batch is over that could have seen it. A worker that holds no lock makes and frees parts
//! bit by bit: some 50 µs a step, whatever the length of the table. The system has to find and clear a part's pages before it
//! is used: the 32 places of the first eviction lay in as many pages, which took 600 µs together.

mod part;

use crate::arena::Arena;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicPtr};
use crate::sync::{AtomicU16, AtomicU64, Ordering};
use part::{MAPPED_BYTES_MIN, Part};
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};

/// Places of the first part.
const PLACES_MIN: u64 = 1024;
/// Parts of a group, which has twice as many places as the one before.
const GROUP_PARTS: u64 = 4;
/// Room for far more places than memory for items.
const PARTS: usize = 24 * GROUP_PARTS as usize;
/// Parts that are made in a step: two calls into the system for each that is long.
const STEP_PARTS: usize = 4;
/// Bytes of parts whose pages are made ready in a step: 8 pages take 20 µs, or 100 in a machine whose host has to find
/// them first.
const STEP_BYTES: usize = 32 << 10;

/// The table.
#[derive(Debug)]
pub(crate) struct Ghosts {
    /// Part k has [`part_places`]`(k)` places, or none: null. Changed by the worker that has `fitting`.
    parts: [AtomicPtr<AtomicU16>; PARTS],
    /// Bytes of each part from its start whose pages are ready. Changed likewise.
    ready: [AtomicU64; PARTS],
    /// Places in use; 0: nothing was evicted yet. The parts that they need are there.
    places: AtomicU64,
    /// A thread changes the parts.
    fitting: AtomicBool,
    /// Parts out of use, with the epoch since when.
    retired: Mutex<Vec<(u64, Part)>>,
}

impl Default for Ghosts {
    fn default() -> Ghosts {
        Ghosts {
            parts: std::array::from_fn(|_| AtomicPtr::default()),
            ready: std::array::from_fn(|_| AtomicU64::new(0)),
            places: AtomicU64::new(0),
            fitting: AtomicBool::new(false),
            retired: Mutex::default(),
        }
    }
}

impl Drop for Ghosts {
    fn drop(&mut self) {
        (0..PARTS).for_each(|k| drop(self.take_part(k)));
    }
}

/// The queue that an item was evicted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Probation,
    Main,
}

/// Set in ghosts of main.
const MAIN: u16 = 1 << 15;
/// Set in ghosts of keys that were asked for since they were evicted.
const ASKED: u16 = 1 << 14;

fn fingerprint(hash: u64) -> u16 {
    // Bits that a probation queue's entry keeps.
    ((hash >> 24) as u16 & !(MAIN | ASKED)).max(1)
}

impl Ghosts {
    /// Fits the table to the number of items, or takes a step towards that: when memory is nearly full, and now and then. The
    /// caller holds no lock. `tag` says in which epoch something went out of use.
    #[cold]
    pub(crate) fn fit(&self, arena: &Arena, items: u64, tag: impl Fn() -> u64) {
        let places = self.places.load(Ordering::Relaxed);
        if places != 0 && items <= places / 4 * 5 && items * 3 >= places * 2 {
            return;
        }
        // Acquire pairs with the Release below: the next thread sees the parts.
        if self.fitting.swap(true, Ordering::Acquire) {
            return;
        }
        let wanted = items.max(PLACES_MIN);
        let parts = part_of(wanted - 1).0 + 1;
        if self.make(arena, parts) {
            // A thread that sees the number sees the parts, unless they went since.
            self.places.store(wanted, Ordering::Release);
            for part in (parts..PARTS).filter_map(|k| self.take_part(k)) {
                self.retire(tag(), part);
            }
        }
        self.fitting.store(false, Ordering::Release);
    }

    /// Makes the first parts, as far as a step goes; true if all of them are there and ready.
    fn make(&self, arena: &Arena, parts: usize) -> bool {
        let (mut parts_left, mut bytes_left) = (STEP_PARTS, STEP_BYTES.max(rustix::param::page_size()));
        for k in 0..parts {
            if self.parts[k].load(Ordering::Relaxed).is_null() {
                if parts_left == 0 {
                    return false;
                }
                parts_left -= 1;
                let Some(new) = Part::new(part_places(k) as usize) else { return false };
                arena.charge(new.bytes() as i64);
                self.ready[k].store(0, Ordering::Relaxed);
                self.parts[k].store(new.into_raw().as_ptr(), Ordering::Release);
            }
            let ready = self.ready[k].load(Ordering::Relaxed) as usize;
            let bytes = part_places(k) as usize * 2;
            let step = (bytes - ready).min(bytes_left);
            // What is not a mapping of its own was written when it was made.
            if bytes >= MAPPED_BYTES_MIN && ready < bytes {
                self.with_part(k, |part| part.make_ready(ready, step));
                self.ready[k].store((ready + step) as u64, Ordering::Relaxed);
                bytes_left -= step;
                if ready + step < bytes {
                    return false;
                }
            }
        }
        true
    }

    /// Calls `each` with a part that is there. The caller has `fitting`.
    fn with_part(&self, k: usize, each: impl FnOnce(&Part)) {
        let places = NonNull::new(self.parts[k].load(Ordering::Relaxed)).expect("it was made");
        // SAFETY: it came from a part of this length, and is not taken back by this: only the owner of `fitting` takes
        // parts out.
        let part = ManuallyDrop::new(unsafe { Part::from_raw(places, part_places(k) as usize) });
        each(&part);
    }

    fn retire(&self, tag: u64, part: Part) {
        self.retired.lock().expect("no panic under the lock").push((tag, part));
    }

    /// Takes a step in freeing parts that are out of use, if `over` says that every batch is that was under way
    /// then. The caller holds no lock.
    pub(crate) fn free_retired(&self, arena: &Arena, over: impl Fn(u64) -> bool) {
        let next = {
            let mut retired = self.retired.lock().expect("no panic under the lock");
            retired.iter().position(|(tag, _)| over(*tag)).map(|at| retired.swap_remove(at))
        };
        if let Some((tag, part)) = next {
            let (bytes, rest) = part.shorten();
            if let Some(rest) = rest {
                self.retire(tag, rest);
            }
            arena.charge(-(bytes as i64));
        }
    }

    /// Takes a part out of the table.
    fn take_part(&self, k: usize) -> Option<Part> {
        let part = NonNull::new(self.parts[k].swap(null_mut(), Ordering::AcqRel))?;
        // SAFETY: it came from a part of this length, and only the thread that swaps it out gets it.
        Some(unsafe { Part::from_raw(part, part_places(k) as usize) })
    }

    /// Bytes of all parts.
    pub(crate) fn bytes(&self) -> u64 {
        let made = self.parts.iter().enumerate().filter(|(_, part)| !part.load(Ordering::Relaxed).is_null());
        let retired = self.retired.lock().expect("no panic under the lock");
        made.map(|(k, _)| part_places(k) * 2).sum::<u64>()
            + retired.iter().map(|(_, part)| part.bytes() as u64).sum::<u64>()
    }

    /// False until the table was made.
    pub(crate) fn is_made(&self) -> bool {
        self.places.load(Ordering::Relaxed) != 0
    }

    fn place(&self, hash: u64) -> Option<&AtomicU16> {
        let places = self.places.load(Ordering::Acquire);
        if places == 0 {
            return None;
        }
        let (part, i) = part_of(((u128::from(hash) * u128::from(places)) >> 64) as u64);
        let part = self.parts[part].load(Ordering::Acquire);
        if part.is_null() {
            return None;
        }
        // SAFETY: 1. `i` is below the part's number of places. 2. A part that was seen in a batch is freed
        // after its end.
        Some(unsafe { &*part.add(i) })
    }

    /// Remembers a key evicted from `queue`.
    pub(crate) fn remember(&self, hash: u64, queue: Queue) {
        if let Some(place) = self.place(hash) {
            let mark = if queue == Queue::Main { MAIN } else { 0 };
            place.store(fingerprint(hash) | mark, Ordering::Relaxed);
        }
    }

    /// Starts loading the place of a key that is about to be remembered.
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(place) = self.place(hash) {
            crate::read::prefetch(std::ptr::from_ref(place).cast());
        }
    }

    /// For a key that is stored: the queue that it was evicted from, if it is remembered, and
    /// whether it was asked for since. Forgets the key.
    pub(crate) fn recall(&self, hash: u64) -> Option<(Queue, bool)> {
        let place = self.place(hash)?;
        let ghost = place.load(Ordering::Relaxed);
        if ghost & !(MAIN | ASKED) != fingerprint(hash) {
            return None;
        }
        place.store(0, Ordering::Relaxed);
        Some((if ghost & MAIN != 0 { Queue::Main } else { Queue::Probation }, ghost & ASKED != 0))
    }

    /// For a key that is asked for and not there: the queue that it was evicted from, if it is
    /// remembered and was not asked for before.
    pub(crate) fn ask(&self, hash: u64) -> Option<Queue> {
        let place = self.place(hash)?;
        let ghost = place.load(Ordering::Relaxed);
        if ghost & !MAIN != fingerprint(hash) {
            return None;
        }
        place.store(ghost | ASKED, Ordering::Relaxed);
        Some(if ghost & MAIN != 0 { Queue::Main } else { Queue::Probation })
    }
}

/// Places of a part.
fn part_places(part: usize) -> u64 {
    (PLACES_MIN / GROUP_PARTS) << (part as u64 / GROUP_PARTS)
}

/// The part that has a place, and which of its places it is.
fn part_of(place: u64) -> (usize, usize) {
    let group = u64::from((place / PLACES_MIN + 1).ilog2());
    let (at, length) = (place - PLACES_MIN * ((1 << group) - 1), (PLACES_MIN / GROUP_PARTS) << group);
    ((group * GROUP_PARTS + at / length) as usize, (at % length) as usize)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    /// As many steps as it takes.
    fn fit(ghosts: &Ghosts, arena: &Arena, items: u64, tag: u64) {
        (0..100).for_each(|_| ghosts.fit(arena, items, || tag));
    }

    fn free(ghosts: &Ghosts, arena: &Arena, over: impl Fn(u64) -> bool) {
        (0..1_000).for_each(|_| ghosts.free_retired(arena, &over));
    }

    #[test]
    fn a_long_table_is_made_and_freed_in_steps() {
        let arena = Arena::new(1 << 30, 1 << 30).unwrap();
        let ghosts = Ghosts::default();
        let (mut parts, mut ready) = (0, 0);
        while !ghosts.is_made() {
            ghosts.fit(&arena, 30_000_000, || 0);
            let made = ghosts.parts.iter().filter(|part| !part.load(Ordering::Relaxed).is_null()).count();
            let all_ready = ghosts.ready.iter().map(|ready| ready.load(Ordering::Relaxed)).sum::<u64>();
            assert!(made - parts <= STEP_PARTS && all_ready - ready <= STEP_BYTES as u64);
            (parts, ready) = (made, all_ready);
        }
        let short = (0..parts).map(|k| part_places(k) * 2).filter(|&bytes| bytes < MAPPED_BYTES_MIN as u64);
        assert_eq!(ready + short.sum::<u64>(), ghosts.bytes());
        assert!(ready >= 60_000_000);
        fit(&ghosts, &arena, 1_000, 0);
        let mut bytes = ghosts.bytes();
        while bytes > 3_000 {
            ghosts.free_retired(&arena, |_| true);
            let left = ghosts.bytes();
            assert!((1..=part::STEP_BYTES as u64).contains(&(bytes - left)));
            assert_eq!(left, arena.charged_bytes());
            bytes = left;
        }
    }

    #[test]
    fn ghost_is_recalled_once_with_its_queue() {
        let arena = Arena::new(1 << 20, 1 << 20).unwrap();
        let ghosts = Ghosts::default();
        let (known, other) = (77 << 40 | 3 << 24, 77 << 40 | 4 << 24);
        ghosts.remember(known, Queue::Main);
        assert_eq!(ghosts.recall(known), None, "not made yet");
        fit(&ghosts, &arena, 10, 0);
        for queue in [Queue::Probation, Queue::Main] {
            ghosts.remember(known, queue);
            assert_eq!(ghosts.recall(other), None);
            assert_eq!(ghosts.recall(known), Some((queue, false)));
            assert_eq!(ghosts.recall(known), None);
        }
    }

    #[test]
    fn ghost_is_asked_for_once_and_says_so_when_it_is_recalled() {
        let arena = Arena::new(1 << 20, 1 << 20).unwrap();
        let ghosts = Ghosts::default();
        let (known, other) = (77 << 40 | 3 << 24, 77 << 40 | 4 << 24);
        assert_eq!(ghosts.ask(known), None, "not made yet");
        fit(&ghosts, &arena, 10, 0);
        for queue in [Queue::Probation, Queue::Main] {
            ghosts.remember(known, queue);
            assert_eq!((ghosts.ask(other), ghosts.ask(known), ghosts.ask(known)), (None, Some(queue), None));
            assert_eq!(ghosts.recall(known), Some((queue, true)));
            assert_eq!(ghosts.ask(known), None);
        }
    }

    #[test]
    fn parts_follow_each_other_without_a_gap() {
        let mut next = (0, 0);
        for place in 0..40 * PLACES_MIN {
            assert_eq!(part_of(place), next);
            next.1 += 1;
            if next.1 as u64 == part_places(next.0) {
                next = (next.0 + 1, 0);
            }
        }
    }

    #[test]
    fn table_has_room_for_as_many_keys_as_there_are_items() {
        let arena = Arena::new(1 << 24, 1 << 24).unwrap();
        let ghosts = Ghosts::default();
        let known = |items: u64| {
            fit(&ghosts, &arena, items, 0);
            let hash = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (0..20_000).for_each(|i| ghosts.remember(hash(i), Queue::Probation));
            (0..20_000).filter(|&i| ghosts.recall(hash(i)).is_some()).count()
        };
        assert!(known(100) < 1_100);
        assert!(known(20_000) > 12_000);
        assert!(known(15_000) > 12_000, "somewhat fewer items leave it as it is");
        assert!(known(2_000) < 2_100);
    }

    #[test]
    fn table_for_fewer_items_gives_its_memory_back_when_nobody_sees_it() {
        let arena = Arena::new(1 << 24, 1 << 24).unwrap();
        let ghosts = Ghosts::default();
        fit(&ghosts, &arena, 100_000, 7);
        let large = ghosts.bytes();
        assert!(large >= 200_000);
        fit(&ghosts, &arena, 2_000, 7);
        free(&ghosts, &arena, |tag| tag != 7);
        assert_eq!((ghosts.bytes(), arena.charged_bytes()), (large, large), "a batch may see it");
        fit(&ghosts, &arena, 100_000, 8);
        fit(&ghosts, &arena, 2_000, 8);
        free(&ghosts, &arena, |_| true);
        assert!(ghosts.bytes() < 6_000);
        assert_eq!(ghosts.bytes(), arena.charged_bytes());
    }
}
