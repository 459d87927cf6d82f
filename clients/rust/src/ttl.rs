//! How long an item lives.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest time that the protocol takes as relative: 30 days.
const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// How long an item lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ttl {
    /// Until it is deleted or evicted.
    #[default]
    Forever,
    /// For this long; whole seconds, rounded up, at least one.
    In(Duration),
    /// Until this time; an item with a time in the past ends within a second.
    At(SystemTime),
}

impl Ttl {
    /// The protocol's exptime: 0 for ever, whole seconds up to 30 days, above that a Unix time.
    pub fn exptime(self) -> i64 {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let left = match self {
            Ttl::Forever => return 0,
            Ttl::In(left) => left,
            Ttl::At(when) => when.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(now()),
        };
        // Servers keep 31 bits of Unix time.
        let seconds =
            left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0)).clamp(1, 1 << 30) as i64;
        if seconds <= RELATIVE_SECONDS_MAX {
            return seconds;
        }
        (seconds + now().as_secs() as i64).min(i64::from(i32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_said_in_whole_seconds_and_beyond_30_days_as_a_date() {
        let exptime = |ms| Ttl::In(Duration::from_millis(ms)).exptime();
        assert_eq!(Ttl::Forever.exptime(), 0);
        assert_eq!((exptime(0), exptime(1), exptime(1000), exptime(1001)), (1, 1, 1, 2));
        assert_eq!(exptime(2_592_000_000), 2_592_000);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
        assert!((2_592_001..2_592_003).contains(&(exptime(2_592_000_001) - now)));
        assert_eq!(Ttl::At(UNIX_EPOCH).exptime(), 1);
        assert_eq!(Ttl::In(Duration::MAX).exptime(), i64::from(i32::MAX));
    }
}
