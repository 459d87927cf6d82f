//! The commands that read or set the expiry of a key.

use larder_protocol::resp::Args;
use larder_store::{Expect, Hint, Key, Millis};

use crate::redis::call::{Call, integer};
use crate::redis::clock::{Clock, When};
use crate::redis::fail::{Done, Fail};

/// Serves EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
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

/// Serves PERSIST.
pub(crate) fn persist(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, _: Args<'_>) -> Done {
    let removed = call.cx.guard.touch_if(key, 0, |old| old != 0).unwrap_or(false);
    call.integer(i64::from(removed))
}

/// Serves TTL, PTTL, EXPIRETIME and PEXPIRETIME.
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
