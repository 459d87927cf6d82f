//! Epochs: when may a freed chunk be used again?
//!
//! ```text
//! global:   5
//! worker 0: 5   inside a batch that began at 5
//! worker 1: 0   outside: holds no reference
//! worker 2: 4   inside since 4: the global epoch cannot pass 5 until it leaves
//! ```
//!
//! 1. A worker announces the global epoch when it enters a batch and withdraws when it leaves.
//! 2. What is unlinked is tagged with the global epoch read after the unlinking.
//! 3. The global epoch moves from e to e + 1 only when every worker inside has announced e.
//! 4. A tag t is safe when the global epoch is at least t + 2: a worker that could have seen the
//!    chunk had announced t or less, and has left.
//!
//! It does not say what is freed; [`crate::worker`] keeps the queues.

use crate::sync::{Apart, AtomicU64, Ordering, fence};

/// The state "outside".
const OUTSIDE: u64 = 0;

/// The global epoch and all announcements.
#[derive(Debug)]
pub(crate) struct Epochs {
    global: Apart<AtomicU64>,
    /// What each worker has announced.
    workers: Box<[Apart<AtomicU64>]>,
}

impl Epochs {
    pub(crate) fn new(workers: usize) -> Epochs {
        Epochs {
            global: Apart(AtomicU64::new(2)),
            workers: (0..workers).map(|_| Apart(AtomicU64::new(OUTSIDE))).collect(),
        }
    }

    /// Announces worker `id`; anew, if it is inside: the caller holds no reference that it got before.
    #[inline]
    pub(crate) fn enter(&self, id: usize) {
        let now = self.global.load(Ordering::Relaxed);
        // Release, as in `leave`: what this worker has read since its last announcement happened before.
        self.workers[id].store(now, Ordering::Release);
        // Pairs with the fence in `advance`: either the advancing thread sees the announcement, or
        // this worker's later loads see everything unlinked before the advance.
        fence(Ordering::SeqCst);
    }

    /// Announces worker `id`, which is inside, anew if the epoch has moved on.
    #[inline]
    pub(crate) fn renew(&self, id: usize) {
        if self.workers[id].load(Ordering::Relaxed) != self.now() {
            self.enter(id);
        }
    }

    /// The epoch, for the announcement of a batch that begins.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.global.load(Ordering::Relaxed)
    }

    /// What worker `id` has announced; called by itself. While that is the same, nothing that it could reach was used again.
    pub(crate) fn announced(&self, id: usize) -> u64 {
        self.workers[id].load(Ordering::Relaxed)
    }

    /// Withdraws worker `id`.
    #[inline]
    pub(crate) fn leave(&self, id: usize) {
        // Release: what this worker read happened before anyone reuses it (Acquire in `advance`).
        self.workers[id].store(OUTSIDE, Ordering::Release);
    }

    /// True if worker `id` has announced itself.
    pub(crate) fn is_inside(&self, id: usize) -> bool {
        self.workers[id].load(Ordering::Relaxed) != OUTSIDE
    }

    /// The tag for what has just been unlinked.
    #[inline]
    pub(crate) fn tag(&self) -> u64 {
        // The unlinking store comes before the load of the epoch, for all threads.
        fence(Ordering::SeqCst);
        self.global.load(Ordering::Relaxed)
    }

    /// True when nothing tagged `tag` can be seen any more.
    #[inline]
    pub(crate) fn safe(&self, tag: u64) -> bool {
        // Acquire pairs with the AcqRel of `advance`.
        self.global.load(Ordering::Acquire) >= tag + 2
    }

    /// Moves the global epoch on if every worker inside has announced it.
    pub(crate) fn advance(&self) -> bool {
        let now = self.global.load(Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for worker in &self.workers {
            let announced = worker.load(Ordering::Acquire);
            if announced != OUTSIDE && announced != now {
                return false;
            }
        }
        self.global.compare_exchange(now, now + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn tag_is_safe_only_after_everyone_inside_has_left() {
        let epochs = Epochs::new(2);
        epochs.enter(0);
        epochs.enter(1);
        let tag = epochs.tag();
        assert!(epochs.advance());
        assert!(!epochs.advance(), "worker 0 and 1 still announce the old epoch");
        epochs.leave(1);
        assert!(!epochs.advance());
        assert!(!epochs.safe(tag));
        epochs.leave(0);
        assert!(epochs.advance());
        assert!(epochs.safe(tag));
    }
}
