//! Ghosts: fingerprints of keys evicted. A key that comes back while its ghost is there was evicted too
//! early, and skips probation; from where it was evicted says which queue is too short.
//!
//! ```text
//! place   | 15 evicted from main | 14 … 0 fingerprint |      0: nobody's
//! ```
//!
//! One place by hash: a new ghost overwrites what is there, so that a table of n places remembers
//! about the last n evictions. There are as many places as items, or up to a quarter fewer and half as
//! many more: keys that were evicted long ago would join main, and a cache whose values change has more
//! items or fewer. The table is made at the first eviction and grows and shrinks by parts of a quarter to
//! an eighth of it; what is in it is forgotten when there are more places or fewer, since all keys have
//! others then. A part out of use is freed when every batch is over that could have seen it.

use crate::arena::Arena;
use crate::sync::Mutex;
use crate::sync::atomic::AtomicPtr;
use crate::sync::{AtomicU16, AtomicU64, Ordering};
use std::ptr::null_mut;

/// Places of the first part.
const PLACES_MIN: u64 = 1024;
/// Parts of a group, which has twice as many places as the one before.
const GROUP_PARTS: u64 = 4;
/// Room for far more places than memory for items.
const PARTS: usize = 24 * GROUP_PARTS as usize;

/// The table.
#[derive(Debug)]
pub(crate) struct Ghosts {
    /// Part k has [`part_places`]`(k)` places, or none: null. Changed under the lock of `retired`.
    parts: [AtomicPtr<AtomicU16>; PARTS],
    /// Places in use; 0: nothing was evicted yet. The parts that they need are there.
    places: AtomicU64,
    /// Parts out of use, with the epoch since when.
    retired: Mutex<Vec<(u64, Part)>>,
}

type Part = Box<[AtomicU16]>;

impl Default for Ghosts {
    fn default() -> Ghosts {
        Ghosts {
            parts: std::array::from_fn(|_| AtomicPtr::default()),
            places: AtomicU64::new(0),
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

fn fingerprint(hash: u64) -> u16 {
    // Bits that a probation queue's entry keeps.
    ((hash >> 24) as u16 & !MAIN).max(1)
}

impl Ghosts {
    /// Fits the table to the number of items: at the first eviction, and now and then. `tag` says in which
    /// epoch something went out of use.
    #[cold]
    pub(crate) fn fit(&self, arena: &Arena, items: u64, tag: impl Fn() -> u64) {
        let places = self.places.load(Ordering::Relaxed);
        if places != 0 && items <= places / 4 * 5 && items * 3 >= places * 2 {
            return;
        }
        // Somebody is at it.
        let Ok(mut retired) = self.retired.try_lock() else { return };
        let wanted = items.max(PLACES_MIN);
        let parts = part_of(wanted - 1).0 + 1;
        for (k, part) in self.parts.iter().enumerate().take(parts) {
            if part.load(Ordering::Relaxed).is_null() {
                let new: Part = (0..part_places(k)).map(|_| AtomicU16::new(0)).collect();
                arena.charge(part_bytes(&new));
                part.store(Box::into_raw(new).cast(), Ordering::Release);
            }
        }
        // Whoever sees the number sees the parts, unless they went since.
        self.places.store(wanted, Ordering::Release);
        for k in parts..PARTS {
            if let Some(part) = self.take_part(k) {
                retired.push((tag(), part));
            }
        }
    }

    /// Frees parts that are out of use, if `over` says that every batch is that was under way then.
    pub(crate) fn free_retired(&self, arena: &Arena, over: impl Fn(u64) -> bool) {
        let Ok(mut retired) = self.retired.try_lock() else { return };
        retired.retain(|(tag, part)| {
            let stays = !over(*tag);
            if !stays {
                arena.charge(-part_bytes(part));
            }
            stays
        });
    }

    /// Takes a part out of the table.
    fn take_part(&self, k: usize) -> Option<Part> {
        let part = self.parts[k].swap(null_mut(), Ordering::AcqRel);
        if part.is_null() {
            return None;
        }
        let part = std::ptr::slice_from_raw_parts_mut(part, part_places(k) as usize);
        // SAFETY: it came from a box of this length, and only one who swaps it out gets it.
        Some(unsafe { Box::from_raw(part) })
    }

    /// Bytes of heap.
    pub(crate) fn bytes(&self) -> u64 {
        let made = self.parts.iter().enumerate().filter(|(_, part)| !part.load(Ordering::Relaxed).is_null());
        let retired = self.retired.lock().expect("no panic under the lock");
        made.map(|(k, _)| part_places(k) * 2).sum::<u64>()
            + retired.iter().map(|(_, part)| part_bytes(part) as u64).sum::<u64>()
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

    /// The queue that the key was evicted from, if it is remembered; it is forgotten with that.
    pub(crate) fn recall(&self, hash: u64) -> Option<Queue> {
        let place = self.place(hash)?;
        let ghost = place.load(Ordering::Relaxed);
        if ghost & !MAIN != fingerprint(hash) {
            return None;
        }
        place.store(0, Ordering::Relaxed);
        Some(if ghost & MAIN != 0 { Queue::Main } else { Queue::Probation })
    }
}

fn part_bytes(part: &Part) -> i64 {
    part.len() as i64 * 2
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ghost_is_recalled_once_with_its_queue() {
        let arena = Arena::new(1 << 20, 1 << 20).unwrap();
        let ghosts = Ghosts::default();
        let (known, other) = (77 << 40 | 3 << 24, 77 << 40 | 4 << 24);
        ghosts.remember(known, Queue::Main);
        assert_eq!(ghosts.recall(known), None, "not made yet");
        ghosts.fit(&arena, 10, || 0);
        for queue in [Queue::Probation, Queue::Main] {
            ghosts.remember(known, queue);
            assert_eq!(ghosts.recall(other), None);
            assert_eq!(ghosts.recall(known), Some(queue));
            assert_eq!(ghosts.recall(known), None);
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
            ghosts.fit(&arena, items, || 0);
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
        ghosts.fit(&arena, 100_000, || 7);
        let large = ghosts.bytes();
        assert!(large >= 200_000);
        ghosts.fit(&arena, 2_000, || 7);
        ghosts.free_retired(&arena, |tag| tag != 7);
        assert_eq!((ghosts.bytes(), arena.charged_bytes()), (large, large), "a batch may see it");
        ghosts.fit(&arena, 100_000, || 8);
        ghosts.fit(&arena, 2_000, || 8);
        ghosts.free_retired(&arena, |_| true);
        assert!(ghosts.bytes() < 6_000);
        assert_eq!(ghosts.bytes(), arena.charged_bytes());
    }
}
