//! Keys that a command in steps holds from its first write to its last, so that all of it is one moment for others.
//!
//! ```text
//! the keys are noted ─► said to all ─► every request of before is over ─► written, step by step ─► said no more
//!   nobody waits          who names one of them waits, whatever its worker and protocol
//! ```
//!
//! Requests look whether one of their keys is held before they begin, and wait in their connection if it is: no worker
//! waits. Nothing looks while nothing is held, but for what looks at [`Pause`](super::pause::Pause) anyway. Of all
//! commands one holds keys at a time; the next one waits a little, so that others have their turn between.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_store::Millis;

/// Who waits for keys that are held looks this often.
pub(crate) const LOOK_MS: Millis = 2;
/// Between two that hold keys is so much time: everybody who waited has looked, and begun.
const BETWEEN_MS: Millis = 3 * LOOK_MS;

/// The hashes of keys, as a table that is filled step by step.
#[derive(Debug)]
pub(crate) struct Keys {
    /// 0 where there is none; a power of two, half of which is free at least.
    places: Box<[u64]>,
}

impl Keys {
    /// Room for the hashes of so many keys.
    pub fn of(count: usize) -> Keys {
        Keys { places: vec![0; Keys::places(count)].into_boxed_slice() }
    }

    fn places(count: usize) -> usize {
        (2 * count.max(1)).next_power_of_two()
    }

    /// Bytes that the hashes of so many keys take.
    pub fn bytes(count: usize) -> usize {
        Keys::places(count) * size_of::<u64>()
    }

    /// Where a hash is, or would be.
    fn place(&self, hash: u64) -> usize {
        let mask = self.places.len() - 1;
        // 0 is no hash here: it stands for the same as 1, and whose key has either of them waits for both.
        let hash = hash.max(1);
        let mut at = (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        while self.places[at] != 0 && self.places[at] != hash {
            at = (at + 1) & mask;
        }
        at
    }

    /// Notes the hash of one more key, of as many as there is room for.
    pub fn note(&mut self, hash: u64) {
        let at = self.place(hash);
        self.places[at] = hash.max(1);
    }

    /// A key with this hash is one of them.
    pub fn has(&self, hash: u64) -> bool {
        self.places[self.place(hash)] != 0
    }
}

/// Which keys are held.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    any: AtomicBool,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    keys: Option<Arc<Keys>>,
    /// Nobody begins before.
    free_at: Millis,
    /// The time when it was looked at last.
    seen_at: Millis,
}

impl Holds {
    /// Some keys are held.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Those that are held.
    #[cold]
    pub fn keys(&self) -> Option<Arc<Keys>> {
        self.now().keys.clone()
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds these keys, unless others are held or were a moment ago.
    pub fn take(self: &Arc<Self>, keys: &Arc<Keys>, at: Millis) -> Option<Hold> {
        let mut now = self.now();
        // The clock may have been set back.
        let since_free = at.checked_sub(now.free_at);
        if now.keys.is_some() || since_free.is_none() && at + BETWEEN_MS >= now.free_at {
            return None;
        }
        now.keys = Some(Arc::clone(keys));
        now.seen_at = at;
        self.any.store(true, Relaxed);
        Some(Hold(Arc::clone(self)))
    }
}

/// Keys are held until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Holds>);

impl Hold {
    /// A step was done at this time.
    pub fn step(&self, at: Millis) {
        self.0.now().seen_at = at;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut now = self.0.now();
        now.keys = None;
        now.free_at = now.seen_at + BETWEEN_MS;
        self.0.any.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noted_hashes_are_found_and_no_others() {
        let mut keys = Keys::of(1000);
        (0..1000u64).for_each(|n| keys.note(n * 1_000_003));
        assert!((0..1000u64).all(|n| keys.has(n * 1_000_003)));
        assert!((0..1000u64).all(|n| !keys.has(n * 1_000_003 + 7)));
    }

    #[test]
    fn one_holds_at_a_time_and_others_have_their_turn_between() {
        let holds = Arc::new(Holds::default());
        let keys = Arc::new(Keys::of(1));
        let hold = holds.take(&keys, 100).unwrap();
        assert!(holds.any() && holds.take(&keys, 100).is_none());
        hold.step(200);
        drop(hold);
        assert!(!holds.any() && holds.keys().is_none());
        assert!(holds.take(&keys, 200 + BETWEEN_MS - 1).is_none());
        assert!(holds.take(&keys, 200 + BETWEEN_MS).is_some());
        assert!(holds.take(&keys, 10).is_some(), "the clock was set back");
    }
}
