//! CL.THROTTLE: a rate limiter in one command, by the generic cell rate algorithm.
//!
//! A key holds the time from which on the whole limit is free again ("theoretical arrival time"), in nanoseconds, and expires
//! then. `CL.THROTTLE key max_burst count period [quantity]` allows `count` in `period` seconds, and `max_burst` more at once.
//! The reply: 1 if it is refused; the limit; what is left; after how many seconds to try again (-1 if it is allowed, or never
//! will be); in how many seconds the whole limit is free.

use larder_protocol::resp::Args;
use larder_store::{Attributes, Expect, Hint, Key, Value};

use super::stored_integer;
use crate::redis::call::{Call, integer};
use crate::redis::fail::{Done, Fail};

const NANOS: i128 = 1_000_000_000;

/// Serves CL.THROTTLE.
pub(crate) fn throttle(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, args: Args<'_>) -> Done {
    if args.len() > 4 {
        return Err(Fail::arity("cl.throttle"));
    }
    let number = |at, least| match args.at(at) {
        Some(word) => integer(word).and_then(|n| if n >= least { Ok(n) } else { Err(Fail::NOT_POSITIVE) }),
        None => Ok(1),
    };
    let (burst, count, period, quantity) = (number(0, 0)?, number(1, 1)?, number(2, 1)?, number(3, 0)?);
    let limit = i128::from(burst) + 1;
    let interval = i128::from(period) * NANOS / i128::from(count);
    let room = limit.checked_mul(interval).filter(|room| (1..=i128::from(i64::MAX)).contains(room));
    let room = room.ok_or(Fail::NOT_AN_INTEGER)?;
    let now = i128::from(call.cx.now()) * 1_000_000;
    loop {
        let (arrival, expect) = match call.peek(key)? {
            Some(item) => {
                let Value::Whole(text) = item.value() else { return Err(Fail::NOT_AN_INTEGER) };
                (i128::from(stored_integer(text)?).max(now), Expect::Unchanged(item.seen()))
            }
            None => (now, Expect::Absent),
        };
        let next = arrival + interval * i128::from(quantity);
        let allow_at = next - room;
        let allowed = allow_at <= now;
        let stands = if allowed { next } else { arrival };
        if allowed && quantity > 0 {
            let text = i64::try_from(next).map_err(|_| Fail::NOT_AN_INTEGER)?.to_string();
            let expires_at = (next as u64).div_ceil(1_000_000);
            let attributes = Attributes { expires_at, ..Attributes::default() };
            if call.store(key, text.as_bytes(), &attributes, expect)?.is_err() {
                continue;
            }
        }
        let seconds = |nanos: i128| i64::try_from((nanos + NANOS - 1) / NANOS).unwrap_or(i64::MAX);
        let left = (room - (stands - now)) / interval;
        call.array(5);
        call.integer(i64::from(!allowed))?;
        call.integer(limit as i64)?;
        call.integer(left.max(0) as i64)?;
        // More than the limit is never allowed.
        let never = i128::from(quantity) > limit;
        call.integer(if allowed || never { -1 } else { seconds(allow_at - now) })?;
        return call.integer(seconds(stands - now));
    }
}
