//! Clients that load what is not there: the first to miss a key, and others that miss it meanwhile.
//!
//! A key is missed, its client loads it and stores it; a client that misses it before that loads it, too, and need not have. Some
//! keys are remembered, by their hash: what falls on another's place takes it.

use super::{Spread, TICK_MS, Tick};

const PLACES: usize = 256;
/// A client that has not stored a key after so long never will.
const LOADS_MS: u64 = 2000;

/// Keys that are being loaded.
#[derive(Debug)]
pub(super) struct Loads {
    /// Hashes of the keys, and since when.
    places: Box<[(u64, Tick); PLACES]>,
}

impl Default for Loads {
    fn default() -> Loads {
        Loads { places: Box::new([(0, 0); PLACES]) }
    }
}

impl Loads {
    fn place(&mut self, spread: Spread) -> &mut (u64, Tick) {
        &mut self.places[(spread.0 >> 32) as usize % PLACES]
    }

    /// Notes that a key was missed; true if another client is loading it.
    pub fn missed(&mut self, spread: Spread, now: Tick) -> bool {
        let place = self.place(spread);
        let is_herd = place.0 == spread.0 && u64::from(now - place.1) * TICK_MS < LOADS_MS;
        if !is_herd {
            *place = (spread.0, now);
        }
        is_herd
    }

    /// Notes that a key was stored; true if it had been missed.
    pub fn stored(&mut self, spread: Spread) -> bool {
        let place = self.place(spread);
        let is_fill = place.0 == spread.0;
        if is_fill {
            *place = (0, 0);
        }
        is_fill
    }

    /// Forgets a key that was taken out: the client that stores it next has not missed it before.
    pub fn forget(&mut self, spread: Spread) {
        self.stored(spread);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_miss_a_key_loads_it_and_who_follows_within_two_seconds_is_a_herd() {
        let mut loads = Loads::default();
        let (one, other) = (Spread::of(4096), Spread::of(8192));
        assert!(!loads.missed(one, 10));
        assert!(loads.missed(one, 11) && loads.missed(one, 209));
        assert!(!loads.missed(other, 12));
        // It was not stored.
        assert!(!loads.missed(one, 210));
        assert!(loads.stored(one) && !loads.stored(one));
        assert!(!loads.missed(one, 211));
        loads.forget(one);
        assert!(!loads.stored(one));
    }
}
