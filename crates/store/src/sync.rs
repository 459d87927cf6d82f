//! Atomics, or the model checker's atomics under `--cfg loom`; the bucket, the epochs, the
//! pins, due times and ghosts are written against these, so that the models run the store's own code.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};

/// What workers keep writing, on lines of its own: what lies beside it is read by every request.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> std::ops::Deref for Apart<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Waits for another thread to leave a short critical section: spins, then gives up the core.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Rounds of spinning before the core is given up: a lock is held for some 50 ns, so that a
    /// longer wait means that its holder does not run.
    #[cfg(not(loom))]
    const SPIN_ROUNDS_MAX: u32 = 64;

    /// One wait.
    #[inline]
    pub(crate) fn wait(&mut self) {
        self.rounds += 1;
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        if self.rounds < Self::SPIN_ROUNDS_MAX {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}
