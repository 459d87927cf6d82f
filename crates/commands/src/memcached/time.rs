//! The meaning of an exptime.

use larder_store::Millis;

/// Most seconds of an exptime that is a distance: 30 days. A greater one is a point in time.
const RELATIVE_MAX_S: i32 = 60 * 60 * 24 * 30;

/// A point in time that has always passed, for negative exptimes.
const LONG_AGO: Millis = 1;

/// The time at which an item with this exptime, given at `now`, expires; 0 for never.
#[inline]
pub fn expires_at(exptime: i32, now: Millis) -> Millis {
    if exptime == 0 {
        0
    } else if exptime < 0 {
        LONG_AGO
    } else if exptime <= RELATIVE_MAX_S {
        now + exptime as u64 * 1000
    } else {
        exptime as u64 * 1000
    }
}

/// The time at which an item with this unsigned exptime expires: one that would be negative is a point in time far ahead.
pub fn expires_at_unsigned(exptime: u32, now: Millis) -> Millis {
    match i32::try_from(exptime) {
        Ok(exptime) => expires_at(exptime, now),
        Err(_) => Millis::from(exptime) * 1000,
    }
}

/// Seconds that are left, rounded to the nearest, so that a TTL reads back as it was given, also by a worker whose clock is a
/// little behind.
#[inline]
pub fn seconds_left(expires_at: Millis, now: Millis) -> u64 {
    (expires_at.saturating_sub(now) + 500) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_700_000_000_123;

    #[test]
    fn exptimes_are_relative_up_to_30_days() {
        assert_eq!(expires_at(0, NOW), 0);
        assert_eq!(expires_at(1, NOW), NOW + 1000);
        assert_eq!(expires_at(2_591_999, NOW), NOW + 2_591_999_000);
        assert_eq!(expires_at(2_592_000, NOW), NOW + 2_592_000_000);
        assert_eq!(expires_at(2_592_001, NOW), 2_592_001_000);
        assert_eq!(expires_at(1_800_000_000, NOW), 1_800_000_000_000);
    }

    #[test]
    fn negative_exptimes_have_passed_and_are_not_never() {
        for exptime in [-1, -100, i32::MIN] {
            let at = expires_at(exptime, NOW);
            assert!(at != 0 && at < NOW);
        }
    }

    #[test]
    fn exptimes_without_a_sign_are_never_negative() {
        for exptime in [0, 1, 2_592_000, 2_592_001, i32::MAX] {
            assert_eq!(expires_at_unsigned(exptime as u32, NOW), expires_at(exptime, NOW));
        }
        assert_eq!(expires_at_unsigned(1 << 31, NOW), 2_147_483_648_000);
        assert_eq!(expires_at_unsigned(u32::MAX, NOW), 4_294_967_295_000);
    }

    #[test]
    fn a_ttl_reads_back_as_given() {
        assert_eq!(seconds_left(expires_at(30, NOW), NOW), 30);
        assert_eq!(seconds_left(expires_at(30, NOW), NOW + 1), 30);
        assert_eq!(seconds_left(expires_at(30, NOW), NOW + 1000), 29);
        assert_eq!(seconds_left(5, NOW), 0);
    }
}
