//! What an expiry may be given as, and the commands that read and set it.

use larder_protocol::resp::Args;
use larder_store::{Expect, Hint, Key, Millis};

use crate::redis::call::{Call, integer, is};
use crate::redis::clock::Clock;
use crate::redis::fail::{Done, Fail};

/// Under what condition EXPIRE sets an expiry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct When {
    absent: bool,
    present: bool,
    later: bool,
    earlier: bool,
}

impl When {
    /// NX, XX, GT, LT, of which HEXPIRE takes one.
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

    fn parse(args: Args<'_>) -> Result<When, Fail> {
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
                let word = crate::redis::fail::shown(word, 128);
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

    /// It holds for a key that expires at `old` (0: never) and is to expire at `new`.
    pub fn holds(self, old: Millis, new: Millis) -> bool {
        !(self.absent && old != 0
            || self.present && old == 0
            || self.later && (old == 0 || new <= old)
            || self.earlier && old != 0 && new >= old)
    }
}

/// EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT.
pub(crate) fn expire(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    mut args: Args<'_>,
    name: &str,
    clock: Clock,
) -> Done {
    let time = args.next().unwrap_or_default();
    let when = When::parse(args)?;
    let time = integer(time)?;
    let now = call.cx.now();
    let at = clock.absolute(time, now).ok_or_else(|| Fail::expire_time(name))?;
    let at = at.max(1) as Millis;
    let guard = &mut call.cx.guard;
    let set = if at <= now {
        guard.delete_if(key, |old| when.holds(old, at)).is_ok_and(|held| held)
    } else {
        match guard.touch_if(key, at, |old| when.holds(old, at)) {
            Ok(held) => held,
            Err(larder_store::Refusal::NoMemory) => return Err(Fail::OUT_OF_MEMORY),
            Err(_) => false,
        }
    };
    call.integer(i64::from(set))
}

/// PERSIST
pub(crate) fn persist(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, _: Args<'_>) -> Done {
    let removed = call.cx.guard.touch_if(key, 0, |old| old != 0).unwrap_or(false);
    call.integer(i64::from(removed))
}

/// TTL, PTTL, EXPIRETIME, PEXPIRETIME.
pub(crate) fn ttl(call: &mut Call<'_, '_, '_>, key: &Key<'_>, clock: Clock) -> Done {
    let now = call.cx.now() as i64;
    let reply = match call.cx.guard.peek(key).hit().map(|item| item.expires_at() as i64) {
        None => -2,
        Some(0) => -1,
        Some(at) => match clock {
            Clock::Seconds => (at - now).saturating_add(500) / 1000,
            Clock::Milliseconds => at - now,
            Clock::UnixSeconds => at.saturating_add(500) / 1000,
            Clock::UnixMilliseconds => at,
        },
    };
    call.integer(reply)
}

/// Removes a key if it is there.
pub(crate) fn remove(call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> bool {
    call.cx.guard.delete(key, Expect::Present).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
