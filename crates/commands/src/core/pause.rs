//! Times in which commands wait: those of all clients, those that change something (CLIENT PAUSE), or those whose keys another
//! command holds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_store::Millis;

use super::hold::Holds;

/// Milliseconds after which a request that waits for the end of a pause looks whether that came early.
pub(crate) const PAUSE_LOOK_MS: Millis = 100;

/// CLIENT PAUSE: until when commands wait, and which; and the keys that are held.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    until: AtomicU64,
    writes_only: AtomicBool,
    /// Keys that commands in steps hold.
    pub holds: Arc<Holds>,
    /// The time until which each request is looked at: for ever while keys are held.
    look_until: AtomicU64,
    /// Held while `look_until` is derived from these, and while a pause is begun or ended.
    looking: Mutex<()>,
}

impl Pause {
    /// Has commands wait until then. A pause under way stays if it lasts longer, and one of all commands stays one of all.
    pub fn begin(&self, now: Millis, until: Millis, writes_only: bool) {
        let looking = self.looking();
        let all = self.left_ms(now) > 0 && !self.writes_only();
        self.writes_only.store(writes_only && !all, Relaxed);
        self.until.fetch_max(until, Relaxed);
        self.set_look(&looking);
    }

    pub fn end(&self) {
        let looking = self.looking();
        self.until.store(0, Relaxed);
        self.set_look(&looking);
    }

    /// How long commands wait at `now`; 0 if they do not.
    #[inline]
    pub fn left_ms(&self, now: Millis) -> u64 {
        self.until.load(Relaxed).saturating_sub(now)
    }

    /// Milliseconds that a request waits before it looks again; `None` if it need not wait. `changes`: whether it changes
    /// something.
    pub fn waits_ms(&self, now: Millis, changes: impl FnOnce() -> bool) -> Option<Millis> {
        let ms = self.left_ms(now).min(PAUSE_LOOK_MS);
        (ms > 0 && (!self.writes_only() || changes())).then_some(ms)
    }

    /// Returns whether each request is to be looked at before it is carried out.
    #[inline]
    pub fn looks(&self, now: Millis) -> bool {
        self.look_until.load(Relaxed) > now
    }

    /// Derives again whether requests are looked at, after keys were held or are held no more.
    #[cold]
    pub fn look(&self) {
        self.set_look(&self.looking());
    }

    fn looking(&self) -> MutexGuard<'_, ()> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_look(&self, _looking: &MutexGuard<'_, ()>) {
        let until = if self.holds.any() { Millis::MAX } else { self.until.load(Relaxed) };
        self.look_until.store(until, Relaxed);
    }

    pub fn writes_only(&self) -> bool {
        self.writes_only.load(Relaxed)
    }
}
