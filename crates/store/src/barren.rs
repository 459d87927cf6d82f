//! Remembers that a policy which evicts only items with an expiry has found none of them: looking again is of no use.
//!
//! Otherwise each write that is refused would look through the whole store, and wait for memory that no class gives. Writing
//! an item with an expiry ends this; so does some time, for what was stored while the search was under way.

use crate::Millis;
use crate::sync::{AtomicU64, Ordering};

/// How long a search that found nothing holds.
const HOLDS_MS: Millis = 100;

/// Until when nothing is looked for; 0: nothing is known.
#[derive(Debug, Default)]
pub(crate) struct Barren(AtomicU64);

impl Barren {
    /// Notes that a search has found nothing.
    pub(crate) fn set(&self, now: Millis) {
        self.0.store(now + HOLDS_MS, Ordering::Relaxed);
    }

    /// Notes that an item with an expiry is there.
    #[inline]
    pub(crate) fn clear(&self) {
        // Read first: nearly always there is nothing to clear, and the line stays shared.
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// True if a search would find nothing.
    pub(crate) fn holds(&self, now: Millis) -> bool {
        now < self.0.load(Ordering::Relaxed)
    }
}
