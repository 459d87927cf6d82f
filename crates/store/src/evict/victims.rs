//! What the hand has found: the next items to be judged, in order or those that expire soonest.

use super::BATCH;
use crate::item::RawItem;
use crate::{Millis, Store};

/// What the hand has found.
pub(super) struct Victims {
    /// How many are wanted.
    count_max: usize,
    pub(super) locations: [u64; BATCH],
    expiries: [Millis; BATCH],
    pub(super) count: usize,
}

impl Victims {
    /// Room for so many victims, [`BATCH`] at most; none yet.
    pub(super) fn new(count_max: usize) -> Victims {
        Victims { count_max, locations: [0; BATCH], expiries: [0; BATCH], count: 0 }
    }

    /// True if there are as many as are wanted.
    pub(super) fn are_enough(&self) -> bool {
        self.count == self.count_max
    }

    pub(super) fn push(&mut self, location: u64) {
        self.locations[self.count] = location;
        self.count += 1;
    }

    /// Adds an item that has an expiry; if there are as many as are wanted, the one that expires last of them goes.
    pub(super) fn keep_soonest(&mut self, store: &Store, location: u64) {
        // SAFETY: it is an item in this epoch.
        let at = match unsafe { RawItem::new(store.arena.at(location)) }.expires_at() {
            0 => return,
            at => at,
        };
        let place = if self.count < self.count_max {
            self.count += 1;
            self.count - 1
        } else {
            let (last, &latest) =
                self.expiries.iter().enumerate().max_by_key(|(_, at)| **at).expect("it is full");
            if latest <= at {
                return;
            }
            last
        };
        self.locations[place] = location;
        self.expiries[place] = at;
    }

    /// When the last of them expires.
    pub(super) fn latest(&self) -> Option<Millis> {
        self.expiries[..self.count].iter().copied().max()
    }

    /// Keeps those that expire no later than `bar`.
    pub(super) fn keep_until(&mut self, bar: Millis) {
        let mut kept = 0;
        for i in 0..self.count {
            if self.expiries[i] <= bar {
                (self.locations[kept], self.expiries[kept]) = (self.locations[i], self.expiries[i]);
                kept += 1;
            }
        }
        self.count = kept;
    }
}
