//! BLPOP and its kin: commands that wait for something to be there.
//!
//! ```text
//! BLPOP k1 k2 ─▶ something there, none in line? ─▶ it is taken
//!                 └── no ─▶ in line at each key ─▶ the keys are awaited ─▶ looked at ─▶ its connection sleeps
//! RPUSH k1    ─▶ its reply ─▶ k1 was awaited ─▶ first in line: claimed, popped, replied for ─▶ its worker is woken
//! ```
//!
//! - `want`: how what is wanted is given and put back; `redis/waiters.rs`: which client stands in line where; `serve`: which is
//!   served when a key was written; `blocked`: the command as its client has it, until it ends.
//! - **No waiter is missed.** A waiter stands in line first, has the store note each write to its keys then
//!   ([`larder_store::Guard::await_key`]), and looks at the keys last. A write comes before that note is made, under the
//!   lock of the key's bucket, and is seen by the look; or behind it, and is noted by its worker, which serves those
//!   in line behind each command that may fill a key, however it did that.
//! - **Each element goes to one.** The worker that serves holds the key as a transaction does. There it finds something, claims the
//!   first in line by one compare-and-swap, and pops: what ends a wait otherwise (its time, CLIENT UNBLOCK, the end of
//!   the connection) changes the same word. A claim always ends with a reply.
//! - **What was popped for a client that has gone** before it had its reply is put back where it was, as a push that
//!   serves the next in line: by the worker that served it, or by that of the connection.
//! - **The first of its keys that has something serves a waiter**, whichever was written first: the keys that it named before
//!   the one that was written are held, too. Where others stand before it, it is their turn.
//! - Lines are by arrival over all workers, one for each key and type: what waits for a list does not hide what waits
//!   for a sorted set. A command that finds others in line joins it. An LPOP does not: on another worker it may take
//!   what has just been pushed, and those in line go on waiting in their order.
//! - **Many are given some at a time.** A waiter that wants more than is taken in one step (`LMPOP` and its kin with COUNT) is
//!   served with the first of them, which holds up no client that pushes, and takes the others as one that did not wait
//!   (`taking`).
//! - **What is too long to be copied its client takes itself.** It could not be put back if the client went before it has that.
//!   So the worker that has pushed it calls the first in line, whose own worker pops it.
//! - **A waiter whose rules forbid it by then gets an error.** Before a waiter is claimed it is asked whether its user may still
//!   do what it asked for, as Redis asks again when it runs the command again: rules may have changed since it joined.
//! - A push serves 64 at most; the next in line is woken then, and goes on with it.

mod blocked;
mod serve;
mod want;

use larder_protocol::resp::{Args, parse_double};
use larder_store::End;

use super::list::{self, end};
use super::mpop::{self, Asked};
use super::sending::{ToSend, has_too_long, is_sent};
use super::sorted::{self, which};
use super::taking::{Form, take_first};
use super::{Call, ELEMENT_ROOM, PRESENT_NS, peek_as};
use crate::core::calls::RowId;
use crate::redis::call::{few_keys, next};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_null, put_null_array};
use crate::redis::row::flag::{AS_ONE, BLOCKING, DENYOOM, FAST, MOVABLEKEYS, WRITE};
use crate::redis::row::{Access, ChangeOf, Command, Elements, Keys, TWO_KEYS, Tells, Weighs};
use crate::redis::waiters::{Waiter, Want, Which};
use blocked::Blocked;
pub(crate) use serve::{LEFT_ROUNDS, SERVE_NS, Serving};

/// Keys that a client waits for at most: it joins and leaves all lines in one step.
const KEYS_MAX: usize = 1 << 10;

/// Keys, and the timeout behind them.
const KEYS: Keys = Keys::Range { first: 1, last: -2, step: 1 };
/// Keys behind their number, which is behind the timeout.
const COUNTED_KEYS: Keys = Keys::Counted { count: 2, step: 1 };

pub(crate) const BLPOP: Definition =
    Command::of_collections("blpop", -3, WRITE | BLOCKING, KEYS, |call, args| {
        pop(call, args, Want::Elements { end: End::Front, count: None })
    })
    .with(AS_ONE)
    .tells(Tells::Each(list::popped(End::Front)))
    .access(&[Access::Take])
    .weighs(Weighs::Elements(Elements::PopAny))
    .doc(
        "2.0.0",
        "key [key ...] timeout",
        "Takes an element from the front of the first list that there is, and waits for one.",
    );

pub(crate) const BRPOP: Definition =
    Command::of_collections("brpop", -3, WRITE | BLOCKING, KEYS, |call, args| {
        pop(call, args, Want::Elements { end: End::Back, count: None })
    })
    .with(AS_ONE)
    .tells(Tells::Each(list::popped(End::Back)))
    .access(&[Access::Take])
    .weighs(Weighs::Elements(Elements::PopAny))
    .doc(
        "2.0.0",
        "key [key ...] timeout",
        "Takes an element from the back of the first list that there is, and waits for one.",
    );

pub(crate) const BLMOVE: Definition =
    Command::of_collections("blmove", 6, WRITE | DENYOOM | BLOCKING, TWO_KEYS, |call, mut args| {
        let (source, target) = (args.encoded(), args.at(1).unwrap_or_default());
        args.nth(1);
        let (from, to) = (end(next(&mut args)?)?, end(next(&mut args)?)?);
        let timeout = timeout(next(&mut args)?)?;
        block(call, Want::Move { from, to, target: target.into() }, Args::rest(source, 1), timeout)
    })
    .tells(Tells::By(ChangeOf(|args, nth| {
        let end = end(args.at(2 + nth).unwrap_or_default()).unwrap_or(End::Front);
        if nth == 0 { list::popped(end) } else { list::pushed(end) }
    })))
    .access(&[Access::Take, Access::Extend])
    .weighs(Weighs::Elements(Elements::MoveEnd))
    .doc(
        "6.2.0",
        "source destination <LEFT|RIGHT> <LEFT|RIGHT> timeout",
        "As LMOVE, and waits for an element.",
    );

pub(crate) const BRPOPLPUSH: Definition =
    Command::of_collections("brpoplpush", 4, WRITE | DENYOOM | BLOCKING, TWO_KEYS, |call, args| {
        let (source, target) = (args.encoded(), args.at(1).unwrap_or_default());
        let timeout = timeout(args.at(2).unwrap_or_default())?;
        let want = Want::Move { from: End::Back, to: End::Front, target: target.into() };
        block(call, want, Args::rest(source, 1), timeout)
    })
    .tells(Tells::By(ChangeOf(
        |_, nth| {
            if nth == 0 { list::popped(End::Back) } else { list::pushed(End::Front) }
        },
    )))
    .access(&[Access::Take, Access::Extend])
    .weighs(Weighs::Elements(Elements::MoveEnd))
    .doc("2.2.0", "source destination timeout", "As BLMOVE source destination RIGHT LEFT timeout.");

pub(crate) const BLMPOP: Definition =
    Command::of_collections("blmpop", -5, WRITE | BLOCKING | MOVABLEKEYS, COUNTED_KEYS, |call, mut args| {
        let time = next(&mut args)?;
        let Asked { keys, which: end, count } = mpop::parse(args, end)?;
        block(call, Want::Elements { end, count: Some(count) }, keys, timeout(time)?)
    })
    .with(AS_ONE)
    .tells(Tells::By(ChangeOf(|mut args, _| {
        args.next();
        list::popped(mpop::parse(args, end).map_or(End::Front, |asked| asked.which))
    })))
    .access(&[Access::Take])
    .weighs(Weighs::Elements(Elements::PopSome))
    .doc(
        "7.0.0",
        "timeout numkeys key [key ...] <LEFT|RIGHT> [COUNT count]",
        "As LMPOP, and waits for an element.",
    );

pub(crate) const BZPOPMIN: Definition =
    Command::of_collections("bzpopmin", -3, WRITE | BLOCKING | FAST, KEYS, |call, args| {
        pop(call, args, Want::Members { which: Which::Min, count: None })
    })
    .with(AS_ONE)
    .tells(Tells::Each(sorted::popped(Which::Min)))
    .access(&[Access::Take])
    .weighs(Weighs::Elements(Elements::PopAny))
    .doc(
        "5.0.0",
        "key [key ...] timeout",
        "Takes the member with the lowest score of the first sorted set that there is, and waits for one.",
    );

pub(crate) const BZPOPMAX: Definition =
    Command::of_collections("bzpopmax", -3, WRITE | BLOCKING | FAST, KEYS, |call, args| {
        pop(call, args, Want::Members { which: Which::Max, count: None })
    })
    .with(AS_ONE)
    .tells(Tells::Each(sorted::popped(Which::Max)))
    .access(&[Access::Take])
    .weighs(Weighs::Elements(Elements::PopAny))
    .doc(
        "5.0.0",
        "key [key ...] timeout",
        "Takes the member with the highest score of the first sorted set that there is, and waits for one.",
    );

pub(crate) const BZMPOP: Definition =
    Command::of_collections("bzmpop", -5, WRITE | BLOCKING | MOVABLEKEYS, COUNTED_KEYS, |call, mut args| {
        let time = next(&mut args)?;
        let Asked { keys, which, count } = mpop::parse(args, which)?;
        block(call, Want::Members { which, count: Some(count) }, keys, timeout(time)?)
    })
    .with(AS_ONE)
    .tells(Tells::By(ChangeOf(|mut args, _| {
        args.next();
        sorted::popped(mpop::parse(args, which).map_or(Which::Min, |asked| asked.which))
    })))
    .access(&[Access::Take])
    .weighs(Weighs::Elements(Elements::PopSomeScored))
    .doc(
        "7.0.0",
        "timeout numkeys key [key ...] <MIN|MAX> [COUNT count]",
        "As ZMPOP, and waits for a member.",
    );

/// `key [key ...] timeout`
fn pop(call: &mut Call<'_, '_, '_>, args: Args<'_>, want: Want) -> Done {
    let keys = args.len() - 1;
    let timeout = timeout(args.at(keys).unwrap_or_default())?;
    block(call, want, Args::rest(args.encoded(), keys), timeout)
}

/// Milliseconds to wait; none: for ever. It is said in seconds, and what is less than a millisecond is one.
///
/// # Errors
/// It is no number, or below 0, or longer than can be.
fn timeout(word: &[u8]) -> Result<Option<u64>, Fail> {
    // What is beyond the type is a number in the wider one that Redis reads.
    let seconds = parse_double(word)
        .or_else(|| beyond_double(word))
        .ok_or(Fail::of("ERR timeout is not a float or out of range"))?;
    let ms = (seconds * 1000.0).ceil();
    if ms < 0.0 {
        return Err(Fail::of("ERR timeout is negative"));
    }
    // Behind that, the end of the wait is no time that can be said.
    if ms >= TIMEOUT_MS_MAX as f64 {
        return Err(Fail::of("ERR timeout is out of range"));
    }
    Ok(Some(ms as u64).filter(|&ms| ms > 0))
}

/// Infinity, for a decimal number that is too large for the type.
fn beyond_double(word: &[u8]) -> Option<f64> {
    let word = std::str::from_utf8(word).ok()?;
    let starts = word.strip_prefix('-').unwrap_or(word).starts_with(|first: char| first.is_ascii_digit());
    word.parse::<f64>().ok().filter(|n| starts && n.is_infinite())
}

/// The time that Redis knows less the time that it is, about.
pub(crate) const TIMEOUT_MS_MAX: u64 = i64::MAX as u64 - (2 << 40);

/// Takes what is wanted of the first of the keys that has it, or waits for it; in a transaction it does not wait.
fn block(call: &mut Call<'_, '_, '_>, want: Want, keys: Args<'_>, timeout_ms: Option<u64>) -> Done {
    if take(call, &want, keys)? {
        return Ok(());
    }
    if call.cx.guard.in_transaction() {
        match want {
            Want::Move { .. } => put_null(call.out, call.client.resp3),
            Want::Elements { .. } | Want::Members { .. } | Want::Entries { .. } | Want::Delivery { .. } => {
                put_null_array(call.out, call.client.resp3);
            }
        }
        return Ok(());
    }
    wait(call, want, keys, timeout_ms)
}

/// Waits for what is wanted of these keys, of which none has it. Not in a transaction.
pub(crate) fn wait(call: &mut Call<'_, '_, '_>, want: Want, keys: Args<'_>, timeout_ms: Option<u64>) -> Done {
    if keys.len() > KEYS_MAX {
        return Err(blocked::TOO_MANY_KEYS);
    }
    let (client, row) = (&*call.client, call.row.unwrap_or(RowId::MAX));
    let user = client.standing.snapshot();
    let waiter = Waiter::new(&client.facts, (client.db, client.resp3), user, row, want, keys);
    let now_us = call.cx.host.clock_us();
    let until_us = timeout_ms.map(|ms| now_us.saturating_add(ms.saturating_mul(1000)));
    let blocked = Blocked::new(call, waiter, until_us);
    call.wait_with(blocked);
    Ok(())
}

/// Takes what is wanted of the first of the keys that has it, unless others stand in line there; whether it did.
fn take(call: &mut Call<'_, '_, '_>, want: &Want, keys: Args<'_>) -> Result<bool, Fail> {
    few_keys(keys.len())?;
    // A client that cannot wait stands in no line.
    let waits = !call.cx.guard.in_transaction();
    if let Some((Form { kind, end, .. }, count)) = want.counted(call.client.resp3) {
        return take_first(call, keys, (kind, end), count, waits);
    }
    let (mut taken, until_ns) = (false, call.step_ns());
    call.spend(keys.len() as u64 * PRESENT_NS);
    call.as_one_with_room(keys.chain(want.target()), |call| {
        let target = want.target().map(|target| call.key(target));
        for name in keys {
            let key = call.key(name);
            let Some(there) = peek_as(&mut call.cx.guard, &key, want.kind())? else { continue };
            if waits && call.shared.waiters.has_line(call.client.db, want.kind(), name) {
                continue;
            }
            let portion = want.portion(&there, until_ns);
            // In a transaction all is copied.
            if !waits && has_too_long(&there, want.end(), portion.count) {
                return Err(Fail::TOO_LONG_TO_COPY);
            }
            let sends = waits && is_sent(there.longest_apart());
            let mut to_send = ToSend::default();
            if sends {
                to_send = want.pin(&mut call.cx.guard, &key, &portion)?;
            }
            let bytes = portion.bytes.saturating_sub(to_send.bytes()) + name.len() + 3 * ELEMENT_ROOM;
            if !call.has_room(bytes) {
                return Ok(Some(bytes));
            }
            call.spend(to_send.ns());
            let (mark, before) = (call.out.mark(), call.out.own_bytes());
            let (from, out) = ((&key, target.as_ref()), (&mut *call.out, call.client.resp3));
            let given = want.give(&mut call.cx.guard, from, (&portion, to_send), out, None);
            taken = given.inspect_err(|_| call.out.rewind(mark))?;
            call.spend_on_bytes((call.out.own_bytes() - before) as usize);
            return Ok(None);
        }
        Ok(None)
    })?;
    Ok(taken)
}
