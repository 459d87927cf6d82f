//! A time in which commands wait, of all clients or of those that change something (CLIENT PAUSE).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use larder_store::Millis;

/// CLIENT PAUSE: until when commands wait, and which.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    until: AtomicU64,
    writes_only: AtomicBool,
}

impl Pause {
    /// Commands wait until then. A pause that lasts longer stays, and one of all commands is of all.
    pub fn begin(&self, now: Millis, until: Millis, writes_only: bool) {
        let all = self.left_ms(now) > 0 && !self.writes_only();
        self.writes_only.store(writes_only && !all, Relaxed);
        self.until.fetch_max(until, Relaxed);
    }

    pub fn end(&self) {
        self.until.store(0, Relaxed);
    }

    /// How long commands wait at `now`; 0 if they do not.
    #[inline]
    pub fn left_ms(&self, now: Millis) -> u64 {
        self.until.load(Relaxed).saturating_sub(now)
    }

    pub fn writes_only(&self) -> bool {
        self.writes_only.load(Relaxed)
    }
}
