//! How long keys stay on probation: a tenth of the memory, and more while keys that were evicted there
//! come back and none that were evicted from main do.
//!
//! Then what main holds is worth less than what is thrown away: the workload has turned to other keys,
//! and main is full of what was read often before. The window grows with each ghost of probation that
//! comes back, so that new keys have the memory and main gives it; each ghost of main that comes back,
//! and what is written, makes it shorter again. While it is long, the hand takes all frequency at once,
//! since it says what was read before.
//!
//! One window for all classes: so ghost hits of a class that needs memory take it from main wherever that
//! is, and no class has a share of its own to defend.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Probation is one part in this many of the memory limit, at least.
const SHARE: u64 = 10;
/// It is longer by at most so many tenths of the limit.
const MORE_TENTHS_MAX: u64 = 8;
/// Bytes by which a ghost hit of probation makes it longer, for each of the item.
const LONGER: u64 = 16;
/// And one of main shorter.
const SHORTER: u64 = 128;
/// What it is longer by shrinks by its share of the limit in bytes written, so many times.
const DECAY: u64 = 1;
/// Longer by one part in this many of the limit, the workload has turned.
const TURNED_SHARE: u64 = 10;

/// The window. Workers change it without a lock: what one loses another has in its place.
#[derive(Debug, Default)]
pub(crate) struct Window {
    more_bytes: AtomicU64,
}

impl Window {
    /// Bytes of other keys put on probation after a key until it is judged.
    #[inline]
    pub(crate) fn bytes(&self, limit_bytes: u64) -> u64 {
        limit_bytes / SHARE + self.more_bytes.load(Ordering::Relaxed)
    }

    /// The workload has turned to other keys.
    pub(crate) fn has_turned(&self, limit_bytes: u64) -> bool {
        self.more_bytes.load(Ordering::Relaxed) > limit_bytes / TURNED_SHARE
    }

    /// A key of `bytes` that was evicted on probation came back.
    pub(crate) fn lengthen(&self, bytes: u64, limit_bytes: u64) {
        let more = self.more_bytes.load(Ordering::Relaxed) + bytes * LONGER;
        self.more_bytes.store(more.min(limit_bytes / 10 * MORE_TENTHS_MAX), Ordering::Relaxed);
    }

    /// A key of `bytes` that was evicted from main came back.
    pub(crate) fn shorten(&self, bytes: u64) {
        let more = self.more_bytes.load(Ordering::Relaxed);
        if more > 0 {
            self.more_bytes.store(more.saturating_sub(bytes * SHORTER), Ordering::Relaxed);
        }
    }

    /// New keys of `bytes` were written.
    pub(crate) fn decay(&self, bytes: u64, limit_bytes: u64) {
        let more = self.more_bytes.load(Ordering::Relaxed);
        if more > 0 {
            let less = (u128::from(more) * u128::from(bytes * DECAY) / u128::from(limit_bytes.max(1))) as u64;
            self.more_bytes.store(more.saturating_sub(less.max(1)), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LIMIT: u64 = 100_000;

    #[test]
    fn ghosts_of_probation_lengthen_it_to_nine_tenths_and_those_of_main_shorten_it_to_one() {
        let window = Window::default();
        assert_eq!((window.bytes(LIMIT), window.has_turned(LIMIT)), (10_000, false));
        window.lengthen(625, LIMIT);
        assert_eq!((window.bytes(LIMIT), window.has_turned(LIMIT)), (20_000, false));
        window.lengthen(1, LIMIT);
        assert!(window.has_turned(LIMIT));
        window.lengthen(LIMIT, LIMIT);
        assert_eq!(window.bytes(LIMIT), 90_000);
        window.shorten(100);
        assert_eq!(window.bytes(LIMIT), 77_200);
        window.shorten(LIMIT);
        assert_eq!((window.bytes(LIMIT), window.has_turned(LIMIT)), (10_000, false));
    }

    #[test]
    fn it_is_a_tenth_again_when_nobody_comes_back() {
        let window = Window::default();
        window.lengthen(LIMIT, LIMIT);
        for _ in 0..100 {
            window.decay(LIMIT / 10, LIMIT);
        }
        assert!(window.bytes(LIMIT) < 10_010, "{}", window.bytes(LIMIT));
    }
}
