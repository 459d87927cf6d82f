//! Ghosts: fingerprints of keys evicted on probation. A key that comes back while its ghost is there
//! was evicted too early, and skips probation.
//!
//! One 16-bit fingerprint a place, placed by hash: a new ghost overwrites what is there, so that a
//! table of n places remembers about the last n evictions. Made at the first eviction, when the
//! number of items says how large the cache is.

use crate::arena::Arena;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

const PLACES_MIN: u64 = 1024;

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    places: OnceLock<Box<[AtomicU16]>>,
}

fn fingerprint(hash: u64) -> u16 {
    // Bits that a probation queue's entry keeps.
    ((hash >> 24) as u16).max(1)
}

impl Ghosts {
    /// Remembers an evicted key; `items` counts the items, at the first eviction.
    pub(crate) fn remember(&self, arena: &Arena, hash: u64, items: impl Fn() -> u64) {
        let places = self.places.get_or_init(|| {
            let count = items().max(PLACES_MIN) as usize;
            arena.charge(count as i64 * 2);
            (0..count).map(|_| AtomicU16::new(0)).collect()
        });
        place(places, hash).store(fingerprint(hash), Ordering::Relaxed);
    }

    /// Starts loading the place of a key that is about to be remembered.
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(places) = self.places.get() {
            crate::read::prefetch(std::ptr::from_ref(place(places, hash)).cast());
        }
    }

    /// True if the key was remembered; it is forgotten with that.
    pub(crate) fn recall(&self, hash: u64) -> bool {
        let Some(places) = self.places.get() else { return false };
        let place = place(places, hash);
        let known = place.load(Ordering::Relaxed) == fingerprint(hash);
        if known {
            place.store(0, Ordering::Relaxed);
        }
        known
    }
}

fn place(places: &[AtomicU16], hash: u64) -> &AtomicU16 {
    &places[((u128::from(hash) * places.len() as u128) >> 64) as usize]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ghost_is_recalled_once() {
        let arena = Arena::new(1 << 20, 1 << 20).unwrap();
        let ghosts = Ghosts::default();
        assert!(!ghosts.recall(77 << 40 | 3 << 24));
        ghosts.remember(&arena, 77 << 40 | 3 << 24, || 10);
        assert!(!ghosts.recall(77 << 40 | 4 << 24));
        assert!(ghosts.recall(77 << 40 | 3 << 24));
        assert!(!ghosts.recall(77 << 40 | 3 << 24));
    }
}
