//! Every word that threads share, every lock and every wait of the store comes from here.
//!
//! | build | words | locks | waits |
//! |---|---|---|---|
//! | usual | the standard library's | the standard library's | spin, then give up the core |
//! | feature `schedule` | the same words, with a turn before each access | a turn, then tried | the end of a turn |
//! | feature `loom` | the model checker's, for the modules that the models run | | the checker's |
//!
//! [`atomic`] is for modules that loom does not run, the names beside it for those that it does: the bucket, the
//! epochs, the pins, due times and ghosts. Under the schedule (`schedule.rs`) both are the same.

#[cfg(feature = "schedule")]
mod words;

/// Words of modules that no loom model runs.
pub(crate) mod atomic {
    #[cfg(feature = "schedule")]
    pub(crate) use super::words::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
    };
    #[cfg(not(feature = "schedule"))]
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
    };
}

#[cfg(not(feature = "loom"))]
pub(crate) use atomic::{AtomicU16, AtomicU64, Ordering, fence};
#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};

#[cfg(not(feature = "schedule"))]
pub(crate) use std::sync::{Mutex, MutexGuard};
#[cfg(feature = "schedule")]
pub(crate) use words::{Mutex, MutexGuard};

#[cfg(not(feature = "loom"))]
pub(crate) use Mutex as ModelMutex;
/// Locks of modules that models run.
#[cfg(feature = "loom")]
pub(crate) use loom::sync::Mutex as ModelMutex;

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

/// Waits for another thread to leave a short critical section, in which it waits for nothing but such sections:
/// spins, then gives up the core. Everything else is waited for by [`crate::wait::Wait`].
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Rounds of spinning before the core is given up: a lock is held for some 50 ns, so that a
    /// longer wait means that its holder does not run.
    const SPIN_ROUNDS_MAX: u32 = if cfg!(any(feature = "loom", feature = "schedule")) { 1 } else { 64 };

    /// One wait.
    #[inline]
    pub(crate) fn wait(&mut self) {
        self.rounds += 1;
        if self.rounds < Self::SPIN_ROUNDS_MAX {
            std::hint::spin_loop();
        } else {
            yield_now();
        }
    }
}

/// Gives up the core once.
pub(crate) fn yield_now() {
    #[cfg(feature = "loom")]
    loom::thread::yield_now();
    #[cfg(feature = "schedule")]
    crate::schedule::wait();
    #[cfg(not(any(feature = "loom", feature = "schedule")))]
    std::thread::yield_now();
}

/// Gives up the core for a while.
pub(crate) fn sleep(time: std::time::Duration) {
    #[cfg(feature = "schedule")]
    crate::schedule::sleep(time);
    #[cfg(not(feature = "schedule"))]
    std::thread::sleep(time);
}
