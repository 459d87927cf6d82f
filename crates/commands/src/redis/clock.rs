//! The units in which clients give times, and what a write does with the expiry of its key.

use larder_store::Millis;

use super::fail::Fail;
use super::word::{integer, is};

/// The unit of a time, and what it counts from.
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

    /// The time at which a value that is being stored is to expire, as the command of this name is given it. It may have
    /// passed; it is not 0.
    ///
    /// # Errors
    /// It is no number, or not positive.
    pub fn deadline(self, name: &str, time: &[u8], now: Millis) -> Result<Millis, Fail> {
        let time = integer(time)?;
        if time <= 0 {
            return Err(Fail::expire_time(name));
        }
        let at = self.absolute(time, now).ok_or_else(|| Fail::expire_time(name))?;
        Ok(at.max(1) as Millis)
    }
}

/// What a write does with a key's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// It never expires.
    None,
    /// As it was.
    Keep,
    /// At this time.
    At(Millis),
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
