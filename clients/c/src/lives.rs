//! Which client a handle refers to.
//!
//! A handle has one client for each process that uses it. A forked process cannot use its parent's client: threads that do not
//! exist there may hold its locks, and its sockets are the parent's. A count of forks, of this process and those before it, says
//! which process a client belongs to.

use crate::failure::Failure;
use larder_client::{Client, Error, Outcome};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::Duration;

/// Number of forks between the first process that used the library and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The interval at which a thread that frees a client checks whether calls are still inside.
const LOOK: Duration = Duration::from_micros(200);

/// The number of this process among those that were forked from each other.
pub fn process() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Notes that this is a forked process. Called before anything else in it, by its only thread.
pub fn was_forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A client of one process, and the number of calls inside.
#[derive(Debug)]
pub struct Life {
    pub client: Client,
    process: u32,
    inside: AtomicUsize,
    ended: AtomicBool,
}

impl Life {
    /// The life of a client in this process.
    pub fn new(client: Client) -> Life {
        Life { client, process: process(), inside: AtomicUsize::new(0), ended: AtomicBool::new(false) }
    }

    /// Whether it belongs to this process.
    pub fn is_ours(&self) -> bool {
        self.process == process()
    }

    /// The life of another client of the same configuration, in this process. Takes no lock.
    pub fn anew(&self) -> Result<Life, Failure> {
        let life = Life::new(self.client.anew()?);
        if self.ended.load(Ordering::Relaxed) {
            life.shut_down();
        }
        Ok(life)
    }

    /// Begins a call, which ends when the guard is dropped.
    pub fn enter(&self) -> Inside<'_> {
        self.inside.fetch_add(1, Ordering::Relaxed);
        Inside { life: self }
    }

    /// Ends calls under way and later ones.
    pub fn shut_down(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.client.close();
    }

    /// Waits until no call is under way. The client must have been shut down, and no call may begin.
    pub fn wait(&self) {
        // Pairs with the release of each call that leaves.
        while self.inside.load(Ordering::Acquire) > 0 {
            thread::sleep(LOOK);
        }
    }
}

/// A call under way.
#[derive(Debug)]
pub struct Inside<'l> {
    life: &'l Life,
}

impl Inside<'_> {
    /// The client.
    pub fn client(&self) -> &Client {
        &self.life.client
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.life.inside.fetch_sub(1, Ordering::Release);
    }
}

/// A value for one thread at a time, of the process that made it.
#[derive(Debug)]
pub struct Single<T> {
    process: u32,
    inner: Mutex<T>,
}

impl<T> Single<T> {
    /// A value of this process.
    pub fn new(inner: T) -> Single<T> {
        Single { process: process(), inner: Mutex::new(inner) }
    }

    /// Whether it belongs to this process.
    pub fn is_ours(&self) -> bool {
        self.process == process()
    }

    /// Begins a call.
    ///
    /// # Errors
    /// It belongs to another process; or another thread is using it, or has panicked in it.
    pub fn enter(&self) -> Result<MutexGuard<'_, T>, Failure> {
        if !self.is_ours() {
            return Err(Error::Closed(Outcome::NotSent).into());
        }
        self.inner.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Failure::Argument("two threads use it at the same time".into()),
            TryLockError::Poisoned(_) => Failure::Bug("it failed before".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time() {
        let single = Single::new(1);
        let first = single.enter().expect("nobody is inside");
        assert!(matches!(single.enter(), Err(Failure::Argument(_))));
        drop(first);
        assert_eq!(*single.enter().expect("nobody is inside"), 1);
    }

    #[test]
    fn what_failed_once_is_not_used_again() {
        let single = Single::new(1);
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _inside = single.enter().expect("nobody is inside");
            panic!("on purpose");
        }));
        assert!(failed.is_err() && matches!(single.enter(), Err(Failure::Bug(_))));
    }
}
