//! Last access in nine bits of the slot.
//!
//! ```text
//! 0 sssssss s    seconds modulo 256: exact for the first minutes
//! 1 ccccccc c    units of 2048 seconds modulo 256: for the next six days
//! ```
//!
//! A sweep ([`crate::maintain`]) turns fine values into coarse ones before they wrap, and stops
//! coarse ones from wrapping: an item idle for longer than six days is reported as idle for six.

use crate::Millis;
use crate::sync::atomic::{AtomicU64, Ordering};

const FINE_S: u64 = 256;
const COARSE: u64 = 256;
const COARSE_UNIT_S: u64 = 2048;
/// A fine value older than this is turned into a coarse one.
const FINE_AGE_MAX_S: u64 = 128;
/// A coarse value older than this many units is held there.
const COARSE_AGE_MAX: u64 = 250;
/// A sweep has to pass every slot at least this often.
pub(crate) const SWEEP_PERIOD_S: u64 = 100;
/// An access is written down again only when it is this much newer than the last one, so that a
/// hot item's slot stays clean.
const RESOLUTION_S: u64 = 8;

/// The code for an access at `now_s`.
#[inline]
pub(crate) fn encode(now_s: u64) -> u64 {
    now_s % FINE_S
}

/// Returns the code for an access `idle_s` seconds before `now_s`; longer times become the longest that a code can hold.
pub(crate) fn encode_idle(idle_s: u64, now_s: u64) -> u64 {
    let idle_s = idle_s.min(COARSE_AGE_MAX * COARSE_UNIT_S);
    let at_s = now_s.wrapping_sub(idle_s);
    if idle_s < FINE_AGE_MAX_S { at_s % FINE_S } else { FINE_S + at_s / COARSE_UNIT_S % COARSE }
}

/// Seconds between the access and `now_s`.
#[inline]
pub(crate) fn idle_s(code: u64, now_s: u64) -> u64 {
    if code < FINE_S {
        return now_s.wrapping_sub(code) % FINE_S;
    }
    let units = (now_s / COARSE_UNIT_S).wrapping_sub(code - FINE_S) % COARSE;
    // A coarse value is at least as old as what made it coarse.
    (units * COARSE_UNIT_S).max(FINE_AGE_MAX_S)
}

/// Parts of the histogram of times since an access: up to 1 s, up to 4 s, up to 16 s and so on; the last has no bound.
pub(crate) const IDLE_PARTS: usize = 12;

/// Returns the part that a time since an access counts in.
#[inline]
pub(crate) fn idle_part(idle_s: u64) -> usize {
    match idle_s.saturating_sub(1) {
        0 => 0,
        above => (above.ilog2() as usize / 2 + 1).min(IDLE_PARTS - 1),
    }
}

/// True when an access at `now_s` is worth writing down.
#[inline]
pub(crate) fn stale(code: u64, now_s: u64) -> bool {
    code >= FINE_S || now_s.wrapping_sub(code) % FINE_S >= RESOLUTION_S
}

/// Set in codes of more than [`FINE_AGE_MAX_S`].
pub(crate) const COARSE_BIT: u64 = COARSE;

/// The opposite of [`stale`], in fewer steps, for codes without [`COARSE_BIT`]. Also false in the
/// seconds around a wrap. Ignores bits of `code` above a code's.
#[inline(always)]
pub(crate) fn surely_fresh(code: u64, now_s: u64) -> bool {
    const DIFFERENT: u64 = (FINE_S + COARSE - 1) & !(RESOLUTION_S - 1);
    (now_s % FINE_S).wrapping_sub(code) & DIFFERENT == 0
}

/// Returns the code that the sweep at `now_s` puts in place of `code`.
#[inline]
pub(crate) fn aged(code: u64, now_s: u64) -> u64 {
    let coarse_now = now_s / COARSE_UNIT_S;
    if code < FINE_S {
        let idle = idle_s(code, now_s);
        if idle < FINE_AGE_MAX_S {
            return code;
        }
        return FINE_S + (now_s - idle) / COARSE_UNIT_S % COARSE;
    }
    let units = coarse_now.wrapping_sub(code - FINE_S) % COARSE;
    FINE_S + coarse_now.wrapping_sub(units.min(COARSE_AGE_MAX)) % COARSE
}

/// The clock of access codes, in seconds: the caller's clock less the sum of its jumps. When the caller's clock is set, this
/// one goes on from where it was: every code keeps its meaning, and none is rewritten.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// Seconds that the caller's clock is ahead, modulo 2^64.
    ahead_s: AtomicU64,
}

impl Clock {
    /// This clock's time when the caller's is `now`.
    #[inline]
    pub(crate) fn seconds(&self, now: Millis) -> u64 {
        (now / 1000).wrapping_sub(self.ahead_s.load(Ordering::Relaxed))
    }

    /// Notes that the caller's clock was set from `then_s` to `now_s`.
    pub(crate) fn note_set(&self, then_s: u64, now_s: u64) {
        self.ahead_s.fetch_add(now_s.wrapping_sub(then_s), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_idle_times_ends_with_its_bound() {
        for (part, bound_s) in (0..IDLE_PARTS).zip((0..).map(|power| 4u64.pow(power))) {
            assert_eq!(idle_part(bound_s), part);
            assert_eq!(idle_part(bound_s + 1), (part + 1).min(IDLE_PARTS - 1));
        }
        assert_eq!((idle_part(0), idle_part(u64::MAX)), (0, IDLE_PARTS - 1));
    }

    #[test]
    fn what_was_accessed_elsewhere_is_idle_for_as_long() {
        let now = 5_000_000;
        for idle in [0, 1, 127, 128, 2048, 10_000, 100_000, COARSE_AGE_MAX * COARSE_UNIT_S] {
            let told = idle_s(encode_idle(idle, now), now);
            let most = if idle < FINE_AGE_MAX_S { idle } else { idle + COARSE_UNIT_S };
            assert!((idle..=most).contains(&told), "{idle}: {told}");
        }
        let most = idle_s(encode_idle(COARSE_AGE_MAX * COARSE_UNIT_S, now), now);
        assert_eq!(idle_s(encode_idle(u64::MAX, now), now), most);
    }

    #[test]
    fn what_is_surely_fresh_is_not_stale() {
        let mut fresh = 0;
        for now in 0..2 * FINE_S {
            for code in 0..FINE_S {
                let surely = surely_fresh(code | 0xabc << 9, now);
                assert_eq!((code | FINE_S) & COARSE_BIT, COARSE_BIT);
                assert!(!surely || !stale(code, now), "{code} at {now}");
                fresh += u64::from(surely);
            }
        }
        // All but the wraps: 8 codes at each of 512 moments, less 2 x 28.
        assert_eq!(fresh, 512 * 8 - 2 * 28);
    }

    #[test]
    fn a_clock_that_is_set_leaves_the_time_of_accesses_where_it_was() {
        let clock = Clock::default();
        assert_eq!(clock.seconds(5_999), 5);
        clock.note_set(5, 4_000);
        assert_eq!((clock.seconds(4_000_000), clock.seconds(4_001_000)), (5, 6));
        clock.note_set(4_001, 1);
        assert_eq!((clock.seconds(1_000), clock.seconds(61_500)), (6, 66));
    }

    #[test]
    fn idle_time_is_exact_at_first_and_never_wraps_under_the_sweep() {
        let start = 1_700_000_123;
        let mut code = encode(start);
        let mut last = 0;
        for now in start..start + 9 * 24 * 3600 {
            if (now - start) % SWEEP_PERIOD_S == 0 {
                code = aged(code, now);
            }
            let idle = idle_s(code, now);
            let true_idle = now - start;
            if true_idle < FINE_AGE_MAX_S {
                assert_eq!(idle, true_idle);
            } else if true_idle < (COARSE_AGE_MAX - 1) * COARSE_UNIT_S {
                assert!(idle + 2 * COARSE_UNIT_S >= true_idle && idle <= true_idle + COARSE_UNIT_S);
            } else {
                assert!(idle >= last.min((COARSE_AGE_MAX - 1) * COARSE_UNIT_S));
            }
            last = idle;
        }
    }
}
