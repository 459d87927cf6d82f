//! Pins: a value that is being sent stays in place although its key is gone.
//!
//! ```text
//! | 63 … 3 number of pins, or a location | 2 moved | 1 moving | 0 dead |
//! ```
//!
//! A pin is taken only inside an epoch in which the item was reachable, so it comes before the item
//! is dead: dead is set when the epochs say that no thread can find the item any more. The
//! thread that makes the word "dead, no pins" frees the memory, and only one does.
//!
//! What has no pins may be moved: the worker that sets "moving" keeps new pins waiting for some
//! microseconds, and a reader that finds "moved" afterwards pins the copy instead.
//!
//! A dead value that is freed later has both "dead" and "moved", and names the one behind it in the list of such values
//! (`dropped.rs`). No thread looks for a pin there any more.

use crate::sync::{AtomicU64, Backoff, Ordering};

const DEAD: u64 = 1;
const MOVING: u64 = 1 << 1;
const MOVED: u64 = 1 << 2;
const ONE: u64 = 1 << 3;

/// The word in the head of a large value.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Pins(AtomicU64);

impl Pins {
    pub(crate) fn new() -> Pins {
        Pins(AtomicU64::new(0))
    }
    /// Adds a pin, true if it is the only one; or says where the item is now.
    pub(crate) fn add(&self) -> Result<bool, u64> {
        let mut backoff = Backoff::default();
        loop {
            let word = self.0.load(Ordering::Acquire);
            debug_assert_eq!(word & DEAD, 0);
            if word & MOVED != 0 {
                return Err(word / ONE);
            }
            // Acquire pairs with `end_move`: the table is read as it is after the move.
            if word & MOVING == 0
                && self.0.compare_exchange(word, word + ONE, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Ok(word < ONE);
            }
            backoff.wait();
        }
    }
    /// There are pins.
    pub(crate) fn any(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word & MOVED == 0 && word >= ONE
    }
    /// There is one pin.
    pub(crate) fn is_only(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word & MOVED == 0 && word / ONE == 1
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
    /// It was said before that the item cannot be found any more.
    pub(crate) fn is_dead(&self) -> bool {
        self.0.load(Ordering::Relaxed) & DEAD != 0
    }
    /// Puts a value that is dead, without pins and the caller's alone into a list, in front of the one at `location`; 0: of none.
    pub(crate) fn put_before(&self, location: u64) {
        debug_assert!(self.is_dead() || !self.any(), "it has pins");
        // The lock of the list orders it.
        self.0.store((location * ONE) | MOVED | DEAD, Ordering::Relaxed);
    }
    /// The location of the value that it was put in front of.
    pub(crate) fn behind(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / ONE
    }
    /// Keeps pins away if there are none; the caller holds the lock of the item's home.
    pub(crate) fn begin_move(&self) -> bool {
        // Acquire: a thread that pinned before has read before.
        self.0.compare_exchange(0, MOVING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
    /// Lets pins come again, after a part was moved, or nothing.
    pub(crate) fn end_move(&self) {
        self.0.store(0, Ordering::Release);
    }
    /// Does `f` while there are no pins and none may come; false, and nothing done, if there are some. The
    /// caller holds the lock of the item's home.
    pub(crate) fn alone(&self, f: impl FnOnce()) -> bool {
        let alone = self.begin_move();
        if alone {
            f();
            self.end_move();
        }
        alone
    }
    /// Has pins go to the copy at `location`, after the item was moved.
    pub(crate) fn end_moved(&self, location: u64) {
        self.0.store((location * ONE) | MOVED, Ordering::Release);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn last_one_out_frees() {
        let pins = Pins::new();
        assert!(!pins.any() && !pins.is_only());
        assert!(pins.add().unwrap());
        assert!(pins.is_only());
        assert!(!pins.add().unwrap());
        assert!(!pins.is_only());
        assert_eq!(pins.remove(), (false, false));
        assert!(pins.any() && pins.is_only());
        assert!(!pins.is_dead() && !pins.kill() && pins.is_dead());
        assert_eq!(pins.remove(), (true, true));
        assert!(Pins::new().kill());
    }

    #[test]
    fn what_is_dead_says_what_is_behind_it_in_a_list() {
        let pins = Pins::new();
        for location in [(1 << 35) - 1, 0, 1] {
            pins.put_before(location);
            assert_eq!((pins.behind(), pins.is_dead(), pins.any()), (location, true, false));
            assert!(!pins.begin_move() && !pins.is_only());
        }
    }

    #[test]
    fn pinned_value_stays_and_a_moved_one_says_where() {
        let pins = Pins::new();
        pins.add().unwrap();
        assert!(!pins.begin_move());
        pins.remove();
        assert!(pins.begin_move());
        pins.end_move();
        assert!(pins.begin_move());
        pins.end_moved((1 << 35) - 1);
        assert_eq!(pins.add(), Err((1 << 35) - 1));
        assert!(!pins.begin_move());
    }
}
