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
//! items or fewer. The table is made at the first eviction and grows by parts of a quarter to an eighth
//! of it; what is in it is forgotten when there are more places or fewer, since all keys have others then.

use crate::arena::Arena;
use crate::sync::{AtomicU16, AtomicU64, Ordering};
use std::sync::OnceLock;

/// Places of the first part.
const PLACES_MIN: u64 = 1024;
/// Parts of a group, which has twice as many places as the one before.
const GROUP_PARTS: u64 = 4;
/// Room for far more places than memory for items.
const PARTS: usize = 24 * GROUP_PARTS as usize;

/// The table.
#[derive(Debug)]
pub(crate) struct Ghosts {
    /// Part k has [`part_places`]`(k)` places.
    parts: [OnceLock<Box<[AtomicU16]>>; PARTS],
    /// Places in use; 0: nothing was evicted yet. The parts that they need are there.
    places: AtomicU64,
}

impl Default for Ghosts {
    fn default() -> Ghosts {
        Ghosts { parts: std::array::from_fn(|_| OnceLock::new()), places: AtomicU64::new(0) }
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
    /// Fits the table to the number of items: at the first eviction, and now and then.
    #[cold]
    pub(crate) fn fit(&self, arena: &Arena, items: u64) {
        let places = self.places.load(Ordering::Relaxed);
        if places != 0 && items <= places / 4 * 5 && items * 3 >= places * 2 {
            return;
        }
        let wanted = items.max(PLACES_MIN);
        for (k, part) in self.parts.iter().enumerate().take(part_of(wanted - 1).0 + 1) {
            part.get_or_init(|| {
                let count = part_places(k);
                arena.charge(count as i64 * 2);
                (0..count).map(|_| AtomicU16::new(0)).collect()
            });
        }
        // Whoever sees the number sees the parts.
        self.places.store(wanted, Ordering::Release);
    }

    /// Bytes of heap.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().filter_map(OnceLock::get).map(|part| part.len() as u64 * 2).sum()
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
        Some(&self.parts[part].get()?[i])
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
        ghosts.fit(&arena, 10);
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
            ghosts.fit(&arena, items);
            let hash = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (0..20_000).for_each(|i| ghosts.remember(hash(i), Queue::Probation));
            (0..20_000).filter(|&i| ghosts.recall(hash(i)).is_some()).count()
        };
        assert!(known(100) < 1_100);
        assert!(known(20_000) > 12_000);
        assert!(known(15_000) > 12_000, "somewhat fewer items leave it as it is");
        assert!(known(2_000) < 2_100);
    }
}
