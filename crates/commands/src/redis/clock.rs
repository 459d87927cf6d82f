//! The units in which clients give times; what a write does with the expiry of its key; on which condition EXPIRE sets one.

use larder_protocol::resp::Args;
use larder_store::Millis;

use super::fail::{Fail, shown};
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
    /// The clock that EX, PX, EXAT or PXAT names.
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

    /// Parses the time at which a value that is being stored expires; `name`: the command's. The time may have passed; it is not
    /// 0.
    ///
    /// # Errors
    /// It is no number, or not positive, or too large.
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
    /// The key never expires.
    None,
    /// The expiry stays.
    Keep,
    /// The key expires at this time.
    At(Millis),
}

/// On which condition EXPIRE sets an expiry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct When {
    absent: bool,
    present: bool,
    later: bool,
    earlier: bool,
}

impl When {
    /// Parses one of NX, XX, GT and LT, as HEXPIRE takes it.
    pub fn of_option(word: &[u8]) -> Option<When> {
        let when = When::default();
        if is(word, "NX") {
            Some(When { absent: true, ..when })
        } else if is(word, "XX") {
            Some(When { present: true, ..when })
        } else if is(word, "GT") {
            Some(When { later: true, ..when })
        } else if is(word, "LT") {
            Some(When { earlier: true, ..when })
        } else {
            None
        }
    }

    /// Parses conditions that must hold at once, as EXPIRE takes them.
    ///
    /// # Errors
    /// A word is no condition, or they exclude each other.
    pub fn parse(args: Args<'_>) -> Result<When, Fail> {
        let mut when = When::default();
        for word in args {
            if is(word, "NX") {
                when.absent = true;
            } else if is(word, "XX") {
                when.present = true;
            } else if is(word, "GT") {
                when.later = true;
            } else if is(word, "LT") {
                when.earlier = true;
            } else {
                let word = shown(word, 128);
                return Err(Fail::with(format!("ERR Unsupported option {word}")));
            }
        }
        if when.absent && (when.present || when.later || when.earlier) {
            return Err(Fail::of("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if when.later && when.earlier {
            return Err(Fail::of("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(when)
    }

    /// Whether it holds for a key that expires at `old` (0: never) and is to expire at `new`.
    pub fn holds(self, old: Millis, new: Millis) -> bool {
        !(self.absent && old != 0
            || self.present && old == 0
            || self.later && (old == 0 || new <= old)
            || self.earlier && old != 0 && new >= old)
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, When};

    #[test]
    fn times_become_absolute_milliseconds_or_nothing() {
        assert_eq!(Clock::Seconds.absolute(10, 5), Some(10_005));
        assert_eq!(Clock::Milliseconds.absolute(-10, 5), Some(-5));
        assert_eq!(Clock::UnixSeconds.absolute(10, 5), Some(10_000));
        assert_eq!(Clock::UnixMilliseconds.absolute(10, 5), Some(10));
        assert_eq!(Clock::Seconds.absolute(i64::MAX / 1000 + 1, 0), None);
        assert_eq!(Clock::Milliseconds.absolute(i64::MAX, 1), None);
    }

    #[test]
    fn a_condition_compares_with_never_as_the_latest_time() {
        let when = |absent, present, later, earlier| When { absent, present, later, earlier };
        assert!(when(true, false, false, false).holds(0, 5) && !when(true, false, false, false).holds(4, 5));
        assert!(!when(false, true, false, false).holds(0, 5) && when(false, true, false, false).holds(4, 5));
        assert!(!when(false, false, true, false).holds(0, 5) && when(false, false, true, false).holds(4, 5));
        assert!(!when(false, false, true, false).holds(5, 5));
        assert!(when(false, false, false, true).holds(0, 5) && !when(false, false, false, true).holds(4, 5));
    }
}
