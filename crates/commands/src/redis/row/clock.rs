//! In what a client gives a time.

use larder_store::Millis;

use crate::redis::call::is;

/// In what a time is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// From now.
    Seconds,
    /// From now.
    Milliseconds,
    /// Since the Unix epoch.
    UnixSeconds,
    /// Since the Unix epoch.
    UnixMilliseconds,
}

impl Clock {
    /// EX, PX, EXAT, PXAT.
    pub fn of_option(word: &[u8]) -> Option<Clock> {
        if is(word, "EX") {
            Some(Clock::Seconds)
        } else if is(word, "PX") {
            Some(Clock::Milliseconds)
        } else if is(word, "EXAT") {
            Some(Clock::UnixSeconds)
        } else if is(word, "PXAT") {
            Some(Clock::UnixMilliseconds)
        } else {
            None
        }
    }

    /// The absolute time, in milliseconds; none if it does not fit 64 bits.
    pub fn absolute(self, time: i64, now: Millis) -> Option<i64> {
        let milliseconds = match self {
            Clock::Seconds | Clock::UnixSeconds => time.checked_mul(1000)?,
            Clock::Milliseconds | Clock::UnixMilliseconds => time,
        };
        match self {
            Clock::Seconds | Clock::Milliseconds => milliseconds.checked_add_unsigned(now),
            Clock::UnixSeconds | Clock::UnixMilliseconds => Some(milliseconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn times_become_absolute_milliseconds_or_nothing() {
        assert_eq!(Clock::Seconds.absolute(10, 5), Some(10_005));
        assert_eq!(Clock::Milliseconds.absolute(-10, 5), Some(-5));
        assert_eq!(Clock::UnixSeconds.absolute(10, 5), Some(10_000));
        assert_eq!(Clock::UnixMilliseconds.absolute(10, 5), Some(10));
        assert_eq!(Clock::Seconds.absolute(i64::MAX / 1000 + 1, 0), None);
        assert_eq!(Clock::Milliseconds.absolute(i64::MAX, 1), None);
    }
}
