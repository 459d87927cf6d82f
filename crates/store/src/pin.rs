//! Pins: a value that is being sent stays in place although its key is gone.
//!
//! ```text
//! | 63 … 1 number of pins | 0 dead |
//! ```
//!
//! A pin is taken only inside an epoch in which the item was reachable, so it comes before the item
//! is dead: dead is set when the epochs say that nobody can find the item any more. Whoever makes
//! the word "dead, no pins" frees the memory, and only one thread does.

use crate::sync::{AtomicU64, Ordering};

const DEAD: u64 = 1;
const ONE: u64 = 2;

/// The word in the head of a large value.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Pins(AtomicU64);

impl Pins {
    pub(crate) fn new() -> Pins {
        Pins(AtomicU64::new(0))
    }
    /// Adds a pin; true if it is the only one.
    pub(crate) fn add(&self) -> bool {
        let old = self.0.fetch_add(ONE, Ordering::Relaxed);
        debug_assert_eq!(old & DEAD, 0);
        old < ONE
    }
    /// There are pins.
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= ONE
    }
    /// Drops a pin: whether it was the only one, and whether the caller has to free the memory.
    pub(crate) fn remove(&self) -> (bool, bool) {
        // Release: this thread's reads come before the freeing; Acquire: the freeing after all.
        let old = self.0.fetch_sub(ONE, Ordering::AcqRel);
        (old < 2 * ONE, old == ONE | DEAD)
    }
    /// Says that the item cannot be found any more; true if the caller has to free the memory.
    pub(crate) fn kill(&self) -> bool {
        self.0.fetch_or(DEAD, Ordering::AcqRel) == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn last_one_out_frees() {
        let pins = Pins::new();
        assert!(!pins.any());
        assert!(pins.add());
        assert!(!pins.add());
        assert_eq!(pins.remove(), (false, false));
        assert!(pins.any());
        assert!(!pins.kill());
        assert_eq!(pins.remove(), (true, true));
        assert!(Pins::new().kill());
    }
}
