//! ma: adds to a number or subtracts from it, and may make one that is not there.

use larder_protocol::Fault;
use larder_protocol::meta::Flags;
use larder_protocol::number::{U64_BYTES_MAX, digits, write_u64};
use larder_store::{Attributes, Expect, Key, Millis, Refusal};

use super::reply::{ReplyKey, put_key_flag, put_number_flag, put_opaque_flag, put_status};
use crate::core::context::Context;
use crate::core::output::Output;
use crate::core::tally::Tally;
use crate::memcached::text::{NO_MEMORY, NOT_A_NUMBER, put_number};
use crate::memcached::time::{expires_at, seconds_left};
use crate::memcached::verbs::{Arithmetic, Changed, change, count_no_number, has_collection};

/// Parameters of an ma.
struct Given {
    change: Arithmetic,
    /// N: the exptime of a counter made on a miss.
    vivify: Option<i32>,
    /// J: its value.
    initial: u64,
}

impl Given {
    fn parse(cx: &Context<'_, '_>, flags: &Flags<'_>) -> Result<Given, Fault> {
        let bad = |_| Fault::BadArithmeticFlag;
        flags.opaque().map_err(bad)?;
        let touch = flags.exptime(b'T').map_err(bad)?;
        let decrement = match flags.token(b'M').map(<[u8]>::first) {
            None | Some(Some(b'I' | b'+')) => false,
            Some(Some(b'D' | b'-')) => true,
            Some(_) => return Err(Fault::BadArithmeticMode),
        };
        let change = Arithmetic {
            delta: flags.number(b'D').map_err(bad)?.unwrap_or(1),
            decrement,
            // 0 compares nothing, as in memcached.
            expect_cas: match flags.number(b'C').map_err(bad)? {
                None | Some(0) => None,
                Some(cas) => Some(cx.shared.settings.token(cas)),
            },
            cas: flags.version().map_err(bad)?,
            expires_at: touch.map(|exptime| expires_at(exptime, cx.now())),
        };
        let initial = flags.number(b'J').map_err(bad)?.unwrap_or(0);
        Ok(Given { change, vivify: flags.exptime(b'N').map_err(bad)?, initial })
    }
}

/// ma
pub fn arithmetic(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    flags: &Flags<'_>,
) {
    tally.metas += 1;
    let given = match Given::parse(cx, flags) {
        Ok(given) => given,
        Err(fault) => return out.put(fault.reply()),
    };
    let reply_key = ReplyKey { bytes: key.bytes(), binary: flags.has(b'b') };
    loop {
        match change(cx, key, &given.change) {
            Changed::Done { value, cas, expired_at, expires_at } => {
                return put_done(cx, out, flags, reply_key, value, cas, [expired_at, expires_at]);
            }
            Changed::Absent => match given.vivify.filter(|_| !has_collection(cx, key)) {
                Some(exptime) => match seed(cx, key, flags, &given, exptime) {
                    Ok((cas, expires_at)) => {
                        return put_done(cx, out, flags, reply_key, given.initial, cas, [expires_at; 2]);
                    }
                    Err(Refusal::NoMemory) if cx.asks_again(out) => return tally.metas -= 1,
                    Err(Refusal::NoMemory) => return out.put(NO_MEMORY),
                    Err(Refusal::Present | Refusal::Changed | Refusal::Absent | Refusal::Type) => {}
                },
                None => {
                    count_no_number(cx, given.change.decrement);
                    return put_status(out, b"NF", flags, reply_key);
                }
            },
            Changed::OtherCas => return put_status(out, b"EX", flags, reply_key),
            Changed::NotANumber => return out.put(NOT_A_NUMBER),
            Changed::NoMemory if cx.asks_again(out) => return tally.metas -= 1,
            Changed::NoMemory => return out.put(NO_MEMORY),
        }
    }
}

/// Stores the initial value under a key that has none.
fn seed(
    cx: &mut Context<'_, '_>,
    key: &Key<'_>,
    flags: &Flags<'_>,
    given: &Given,
    exptime: i32,
) -> Result<(u64, Millis), Refusal> {
    let mut room = [0; U64_BYTES_MAX];
    let bytes = write_u64(&mut room, given.initial);
    let attributes = Attributes {
        expires_at: expires_at(exptime, cx.now()),
        cas: given.change.cas,
        key_binary: flags.has(b'b'),
        ..Attributes::default()
    };
    let stored = cx.guard.store_value(key, &room[..bytes], &attributes, Expect::Absent)?;
    Ok((stored.cas, attributes.expires_at))
}

/// Writes HD, or with v the number. The expiry is that before T where `t` is in front of T, and behind it that of T.
fn put_done(
    cx: &Context<'_, '_>,
    out: &mut Output,
    flags: &Flags<'_>,
    key: ReplyKey<'_>,
    value: u64,
    cas: u64,
    [mut expires, touched]: [Millis; 2],
) {
    if flags.has(b'q') {
        return;
    }
    let echo = flags.has(b'v');
    if echo {
        out.put(b"VA ");
        put_number(out, digits(value) as u64);
    } else {
        out.put(b"HD");
    }
    for flag in flags.iter() {
        match flag.letter {
            b'T' => expires = touched,
            b't' if expires == 0 => out.put(b" t-1"),
            b't' => put_number_flag(out, b't', seconds_left(expires, cx.now())),
            b'c' => put_number_flag(out, b'c', cx.shared.settings.token(cas)),
            b'k' => put_key_flag(out, key),
            b'O' => put_opaque_flag(out, flag.token),
            _ => {}
        }
    }
    out.put(b"\r\n");
    if echo {
        put_number(out, value);
        out.put(b"\r\n");
    }
}
