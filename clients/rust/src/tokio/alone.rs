//! A server's connections of which each serves one call: how many there are, and whether they have to end. What calls do with
//! them is in `direct.rs` and `stats.rs`.

use ::tokio::sync::Notify;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A server's connections of which each serves one call.
#[derive(Debug, Default)]
pub struct Alone {
    calls: AtomicUsize,
    is_over: AtomicBool,
    over: Notify,
}

impl Alone {
    /// Counts one more.
    pub fn opened(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one less.
    pub fn closed(&self) {
        self.calls.fetch_sub(1, Ordering::Release);
    }

    /// Whether there are none.
    pub fn is_free(&self) -> bool {
        self.calls.load(Ordering::Acquire) == 0
    }

    /// Ends these connections.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.over.notify_waiters();
    }

    /// Whether these connections were ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Waits until these connections are ended.
    pub async fn ended(&self) {
        // An end from here on wakes this future.
        let over = self.over.notified();
        if !self.is_over() {
            over.await;
        }
    }
}
