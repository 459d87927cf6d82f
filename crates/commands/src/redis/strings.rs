//! Strings: the rows of GET, SET and their kin, and the short commands themselves. `set` has SET with its options, `pairs` the
//! commands that set several keys; `rewrite` changes a value in one step, `making` a large one in several.
//!
//! MGET reads its keys as of one moment: it reads them again if a write came between, and takes them if that happens often.

pub(crate) mod bitfield;
pub(crate) mod bitmap;
mod bitop;
mod float;
pub(crate) mod hyperloglog;
mod lcs;
pub(crate) mod making;
pub(crate) mod pairs;
pub(crate) mod rewrite;
pub(crate) mod set;
pub(crate) mod throttle;

use crate::core::events::seen;
use crate::redis::steps::moments::{KEYS_AT_ONCE, keys_ns};
use larder_protocol::resp::Args;
use larder_store::{Attributes, End, Expect, Hint, Key, Refusal, Value};

use super::call::{Call, integer, is, kept, peek, read};
use super::definition::Definition;
use super::fail::{Done, Fail};
use super::reply::{put_array, put_bulk, put_null, put_part, put_value};
use super::row::flag::{ASKS, DENYOOM, FAST, IN_PARTS, MOMENTS, READONLY, WEIGHTLESS, WRITE};
use super::row::{ALL_KEYS, Access, Command, Keys, Replaces, Tells, Uploads, Weighs};
use crate::core::batch::BATCH_KEYS;
use crate::core::events::Change;
use crate::core::work::copying_ns;
use crate::redis::clock::{Clock, Expiry};
use crate::redis::steps::pieces::Piece;
use arrayvec::ArrayVec;
use making::{Edit, edited, integer as integer_reply, make};
use pairs::{mset, msetnx};
use rewrite::{Rewrite, large_with, rewrite};
use set::{Condition, Set, set};

/// Keys that are every second argument.
const PAIRS: Keys = Keys::Range { first: 1, last: -1, step: 2 };

pub(crate) const ROWS: &[Definition] = &[
    Command::key("get", 2, READONLY | FAST | WEIGHTLESS, |call, key, hint, _| fetch(call, key, hint)).doc(
        "1.0.0",
        "key",
        "The value of a key.",
    ),
    Command::key("set", -3, WRITE | DENYOOM, set).tells(set::TOLD).access(&[Access::Replace]).uses(|args| {
        // Redis counts any word GET among the options.
        if args.skip(2).any(|word| is(word, "GET")) { Access::Change } else { Access::Replace }
    }).uploads(Uploads::Value { clock: None }).weighs(Weighs::Value(1)).doc(
        "1.0.0",
        "key value [NX|XX|IFEQ value|IFNE value] [GET] [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|KEEPTTL]",
        "Sets a key to a value, on a condition if one is given.",
    ),
    Command::args("mget", -2, READONLY | FAST | MOMENTS | WEIGHTLESS, ALL_KEYS, mget).doc(
        "1.0.0",
        "key [key ...]",
        "The values of several keys.",
    ),
    Command::key("getset", 3, WRITE | DENYOOM | FAST, getset).tells(Tells::Each(Change::SET)).access(&[Access::Change]).with(ASKS).weighs(Weighs::Value(1)).doc(
        "1.0.0",
        "key value",
        "Sets a key and returns what it had.",
    ),
    Command::key("getdel", 2, WRITE | FAST | WEIGHTLESS, getdel).tells(Tells::Each(Change::KEY)).access(&[Access::Take]).with(ASKS).doc(
        "6.2.0",
        "key",
        "Removes a key and returns what it had.",
    ),
    Command::key("getex", -2, WRITE | FAST | WEIGHTLESS, getex).tells(Tells::Each(Change::KEY)).access(&[Access::Change]).with(ASKS).doc(
        "6.2.0",
        "key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|PERSIST]",
        "The value of a key, whose expiry is set.",
    ),
    Command::key("setnx", 3, WRITE | DENYOOM | FAST, setnx).tells(Tells::Each(Change::SET)).access(&[Access::Make]).weighs(Weighs::Value(1)).doc(
        "1.0.0",
        "key value",
        "Sets a key that is not there.",
    ),
    Command::key("setex", 4, WRITE | DENYOOM, |call, key, hint, args| setex(call, key, hint, args, false)).tells(Tells::Each(Change::SET)).access(&[Access::Replace]).uploads(Uploads::Value { clock: Some(Clock::Seconds) }).weighs(Weighs::Value(2)).doc(
        "2.0.0",
        "key seconds value",
        "Sets a key that expires.",
    ),
    Command::key("psetex", 4, WRITE | DENYOOM, |call, key, hint, args| setex(call, key, hint, args, true)).tells(Tells::Each(Change::SET)).access(&[Access::Replace]).uploads(Uploads::Value { clock: Some(Clock::Milliseconds) }).weighs(Weighs::Value(2)).doc(
        "2.6.0",
        "key milliseconds value",
        "Sets a key that expires.",
    ),
    Command::key("strlen", 2, READONLY | FAST | WEIGHTLESS, strlen).access(&[Access::Look]).doc("2.2.0", "key", "Bytes of a value."),
    Command::key("append", 3, WRITE | DENYOOM | FAST, append).tells(Tells::Each(Change::APPEND)).access(&[Access::Extend]).weighs(Weighs::Append).replaces(Replaces::Never).doc(
        "2.0.0",
        "key value",
        "Adds behind a value; expiry and flags stay.",
    ),
    Command::key("getrange", 4, READONLY | WEIGHTLESS, getrange).doc("2.4.0", "key start end", "A part of a value."),
    Command::key("substr", 4, READONLY | WEIGHTLESS, getrange).doc("1.0.0", "key start end", "As GETRANGE."),
    Command::key("setrange", 4, WRITE | DENYOOM, setrange).tells(Tells::Each(Change::string("setrange"))).weighs(Weighs::Overlay).replaces(Replaces::Never).doc(
        "2.2.0",
        "key offset value",
        "Writes over a part of a value.",
    ),
    Command::key("incr", 2, WRITE | DENYOOM | FAST | WEIGHTLESS, |call, key, hint, _| add(call, key, hint, 1)).tells(Tells::Each(Change::INCRBY)).access(&[Access::Change]).replaces(Replaces::Never).doc(
        "1.0.0",
        "key",
        "Adds one to a number.",
    ),
    Command::key("decr", 2, WRITE | DENYOOM | FAST | WEIGHTLESS, |call, key, hint, _| add(call, key, hint, -1)).tells(Tells::Each(Change::INCRBY)).access(&[Access::Change]).replaces(Replaces::Never).doc(
        "1.0.0",
        "key",
        "Takes one from a number.",
    ),
    Command::key("incrby", 3, WRITE | DENYOOM | FAST | WEIGHTLESS, |call, key, hint, mut args| {
        let by = integer(args.next().unwrap_or_default())?;
        add(call, key, hint, by)
    }).tells(Tells::Each(Change::INCRBY)).access(&[Access::Change])
    .replaces(Replaces::Never).doc("1.0.0", "key increment", "Adds to a number."),
    Command::key("decrby", 3, WRITE | DENYOOM | FAST | WEIGHTLESS, |call, key, hint, mut args| {
        let by = integer(args.next().unwrap_or_default())?;
        let by = by.checked_neg().ok_or(Fail::of("ERR decrement would overflow"))?;
        add(call, key, hint, by)
    }).tells(Tells::Each(Change::INCRBY)).access(&[Access::Change])
    .replaces(Replaces::Never).doc("1.0.0", "key decrement", "Takes from a number."),
    Command::key("incrbyfloat", 3, WRITE | DENYOOM | FAST | WEIGHTLESS, float::incrbyfloat).tells(Tells::Each(Change::string("incrbyfloat"))).access(&[Access::Change]).replaces(Replaces::Never).doc(
        "2.6.0",
        "key increment",
        "Adds to a number with a fraction.",
    ).doubles(&["increment"]),
    Command::args("mset", -3, WRITE | DENYOOM | MOMENTS | IN_PARTS, PAIRS, mset).tells(Tells::Each(Change::SET)).access(&[Access::Replace]).weighs(Weighs::Pairs).doc(
        "1.0.1",
        "key value [key value ...]",
        "Sets several keys.",
    ),
    Command::args("msetnx", -3, WRITE | DENYOOM | MOMENTS | IN_PARTS, PAIRS, msetnx).tells(Tells::Each(Change::SET)).access(&[Access::Make]).weighs(Weighs::Pairs).doc(
        "1.0.1",
        "key value [key value ...]",
        "Sets several keys if none of them is there.",
    ),
    Command::args("msetex", -4, WRITE | DENYOOM | MOMENTS | super::row::flag::MOVABLEKEYS, NUMBERED_PAIRS, set::msetex).tells(set::TOLD).access(&[Access::Replace])
        .weighs(Weighs::CountedPairs).doc(
            "8.4.0",
            "numkeys key value [key value ...] [NX|XX] [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|KEEPTTL]",
            "Sets several keys with one expiry.",
        ),
    Command::args("lcs", -3, READONLY, super::row::TWO_KEYS, lcs::lcs).weighs(Weighs::Subsequence).doc(
        "7.0.0",
        "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
        "The longest common subsequence of two values.",
    ),
];

/// Keys behind their number, a value behind each.
const NUMBERED_PAIRS: Keys = Keys::Counted { count: 1, step: 2 };

/// Replies the value of a key.
#[inline(always)]
pub(crate) fn fetch(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>) -> Done {
    if let Some(value) = call.cx.guard.plain_value(key, hint) {
        call.tally.gets += 1;
        call.tally.get_hits += 1;
        put_bulk(call.out, value);
        return Ok(());
    }
    fetch_any(call, key, hint)
}

/// [`fetch`] if the value is not plain, or not there.
fn fetch_any(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>) -> Done {
    match read(call.cx, call.tally, key, hint)? {
        Some(item) => put_value(call.out, &item),
        None => put_null(call.out, call.client.resp3),
    }
    Ok(())
}

/// Serves SET without options.
#[inline(always)]
pub(crate) fn set_plain(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, value: &[u8]) -> Done {
    let guard = &mut call.cx.guard;
    let stored = guard.replace_value(key, value, hint)
        || guard.store_value_hinted(key, value, &Attributes::default(), Expect::Any, hint).is_ok();
    if !stored {
        return Err(Fail::OUT_OF_MEMORY);
    }
    call.out.put(b"+OK\r\n");
    Ok(())
}

fn mget(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let mark = call.out.mark();
    put_array(call.out, args.len());
    call.in_pieces(mark, args, fetch_some)
}

/// How often keys are looked at that writes disturb; then they are taken.
const LOOKS_MAX: usize = 3;

/// Replies as many keys as belong to a piece, as of one moment.
fn fetch_some(call: &mut Call<'_, '_, '_>, args: &mut Args<'_>) {
    let (all, before) = (*args, args.len());
    fetch_moment(call, args);
    let count = before - args.len();
    if count > BATCH_KEYS {
        call.spend(keys_ns(count));
    }
    if call.cx.shared.tells_misses() {
        let db = call.client.db;
        for name in Args::rest(all.encoded(), count) {
            if seen(&mut call.cx.guard, db, name).is_none() {
                call.cx.tell_miss(db, name);
            }
        }
    }
}

fn fetch_moment(call: &mut Call<'_, '_, '_>, args: &mut Args<'_>) {
    let (mark, piece) = (call.out.mark(), call.piece());
    let all = *args;
    let mut count = 0;
    let most = match piece {
        Piece::Whole => usize::MAX,
        Piece::First { .. } if all.len() <= KEYS_AT_ONCE => KEYS_AT_ONCE,
        Piece::First { .. } | Piece::Later => call.keys_of_a_step(),
    };
    for _ in 0..LOOKS_MAX {
        call.cx.guard.look();
        let holds = call.cx.guard.store().whole_holds();
        count = fetch_each(call, args, piece, most);
        // Items may have been evicted for the reply, and databases swapped meanwhile.
        let swapped = holds != call.cx.guard.store().whole_holds();
        if count == 1 || !swapped && call.cx.guard.looked_as_one() {
            return;
        }
        call.out.rewind(mark);
        *args = all;
    }
    // There is room for the values, unless they have grown.
    let mut some = Args::rest(all.encoded(), count);
    call.cx.guard.look();
    call.as_one_in(some, |call| fetch_each(call, &mut some, piece, most));
    *args = Args::rest(some.encoded(), all.len() - (count - some.len()));
}

/// Replies up to `most` keys until the piece is full, and notes their state before; returns how many.
fn fetch_each(call: &mut Call<'_, '_, '_>, args: &mut Args<'_>, piece: Piece, most: usize) -> usize {
    let mut count = 0;
    loop {
        let before = *args;
        if before.is_empty() {
            return count;
        }
        let mut batch = ArrayVec::<(Key<'_>, Hint<'_>), BATCH_KEYS>::new();
        for name in args.by_ref().take(BATCH_KEYS) {
            let key = call.key(name);
            batch.push((key, call.cx.guard.prefetch_bucket(&key)));
        }
        crate::core::batch::prefetch_items(&call.cx.guard, &mut batch, |(key, hint)| (&*key, hint));
        for (nth, (key, hint)) in batch.iter().enumerate() {
            if count > 0 && (!call.goes_on(piece) || count == most) {
                *args = before;
                if nth > 0 {
                    args.nth(nth - 1);
                }
                return count;
            }
            call.cx.guard.note(key);
            // This fails only for a value that is no string, for which the reply is null.
            if fetch(call, key, hint).is_err() {
                put_null(call.out, call.client.resp3);
            }
            count += 1;
        }
    }
}

fn getset(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let value = args.next().unwrap_or_default();
    Set { value, condition: Condition::Any, get: true, expiry: Expiry::None }.run(call, key)
}

fn setnx(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let value = args.next().unwrap_or_default();
    let done = call.store(key, value, &Attributes::default(), Expect::Absent)?;
    call.integer(i64::from(done.is_ok()))
}

fn setex(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    hint: &Hint<'_>,
    mut args: Args<'_>,
    milliseconds: bool,
) -> Done {
    let (time, value) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let (name, clock) =
        if milliseconds { ("psetex", Clock::Milliseconds) } else { ("setex", Clock::Seconds) };
    let expires_at = clock.deadline(name, time, call.cx.now())?;
    let attributes = Attributes { expires_at, ..Attributes::default() };
    let done = call.cx.guard.store_value_hinted(key, value, &attributes, Expect::Any, hint);
    done.map_err(|_| Fail::OUT_OF_MEMORY)?;
    call.ok()
}

fn getdel(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, _: Args<'_>) -> Done {
    loop {
        let mark = call.out.mark();
        let Some(item) = peek(&mut call.cx.guard, key)? else { return call.null() };
        let unchanged = Expect::Unchanged(item.seen());
        put_value(call.out, &item);
        match call.cx.guard.delete(key, unchanged) {
            Ok(()) => return Ok(()),
            Err(_) => call.out.rewind(mark),
        }
    }
}

fn getex(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, mut args: Args<'_>) -> Done {
    let now = call.cx.now();
    let (mut expires, mut persist) = (None, false);
    while let Some(word) = args.next() {
        match Clock::of_option(word) {
            Some(clock) => {
                let time = args.next().ok_or(Fail::SYNTAX)?;
                // Of several times in the same unit the last counts.
                let other = expires.replace((clock, time)).is_some_and(|(was, _)| was != clock);
                if persist || other {
                    return Err(Fail::SYNTAX);
                }
            }
            None if super::call::is(word, "PERSIST") && expires.is_none() => persist = true,
            None => return Err(Fail::SYNTAX),
        }
    }
    if call.peek(key)?.is_none() {
        let _ = read(call.cx, call.tally, key, hint)?;
        return call.null();
    }
    let expiry = match expires {
        Some((clock, time)) => Some(clock.deadline("getex", time, now)?),
        None => persist.then_some(0),
    };
    let Some(item) = read(call.cx, call.tally, key, hint)? else { return call.null() };
    let mark = call.out.mark();
    put_value(call.out, &item);
    // If another client has removed the key since, it was still read before: the reply holds.
    match expiry {
        None => {}
        Some(at) if at != 0 && at <= now => drop(call.cx.guard.delete(key, Expect::Present)),
        // A key without expiry that is given none has not changed.
        Some(at) => {
            if let Err(Refusal::NoMemory) = call.cx.guard.touch_if(key, at, |was| was != 0 || at != 0) {
                call.out.rewind(mark);
                return Err(Fail::OUT_OF_MEMORY);
            }
        }
    }
    Ok(())
}

fn strlen(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, _: Args<'_>) -> Done {
    let bytes = read(call.cx, call.tally, key, hint)?.map_or(0, |item| item.value_bytes());
    call.integer(bytes as i64)
}

fn append(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let words = args;
    let value = args.next().unwrap_or_default();
    loop {
        let Some(item) = call.peek(key)? else {
            if call.store(key, value, &Attributes::default(), Expect::Absent)?.is_ok() {
                return call.length(value.len());
            }
            continue;
        };
        let bytes = item.value_bytes() + value.len() as u64;
        let unchanged = Expect::Unchanged(item.seen());
        if bytes > call.value_bytes_max() {
            return Err(Fail::TOO_LONG);
        }
        let (from, reply) =
            ((call.client.db, key), |_: &Call<'_, '_, '_>, bytes: u64| edited(integer_reply(bytes as i64)));
        if make(
            call,
            ("append", Some(key.bytes()), words),
            from,
            None,
            |old| Edit::behind(value, old),
            reply,
        )? {
            return Ok(());
        }
        call.spend(copying_ns(bytes));
        match call.cx.guard.concat(key, value, End::Back, None, unchanged) {
            Ok(_) => {
                return call.integer(bytes as i64);
            }
            Err(Refusal::NoMemory) => return Err(Fail::OUT_OF_MEMORY),
            Err(Refusal::Changed | Refusal::Absent | Refusal::Present | Refusal::Type) => {}
        }
    }
}

/// The bytes from `start` to `end`, both included, of a value of `bytes` bytes; negative places count from the end.
pub(crate) fn range(start: i64, end: i64, bytes: u64) -> std::ops::Range<usize> {
    let len = bytes as i64;
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let place = |n: i64| if n < 0 { (len.saturating_add(n)).max(0) } else { n };
    let (start, end) = (place(start), place(end).min(len - 1));
    if start > end || len == 0 { 0..0 } else { start as usize..end as usize + 1 }
}

fn getrange(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, mut args: Args<'_>) -> Done {
    let start = integer(args.next().unwrap_or_default())?;
    let end = integer(args.next().unwrap_or_default())?;
    let Some(item) = read(call.cx, call.tally, key, hint)? else { return call.bulk(b"") };
    put_part(call.out, &item, range(start, end, item.value_bytes()));
    Ok(())
}

fn setrange(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let words = args;
    let offset = integer(args.next().unwrap_or_default())?;
    let value = args.next().unwrap_or_default();
    let offset = usize::try_from(offset).map_err(|_| Fail::of("ERR offset is out of range"))?;
    let max = call.value_bytes_max();
    if !value.is_empty()
        && let Ok(Some(bytes)) = call.cx.guard.patch(key, offset as u64, value, Expect::Present)
    {
        return call.length(bytes as usize);
    }
    if value.is_empty() {
        let bytes = call.peek(key)?.map_or(0, |item| item.value_bytes());
        return call.integer(bytes as i64);
    }
    let end = offset.saturating_add(value.len());
    if end as u64 > max {
        return Err(Fail::TOO_LONG);
    }
    while let Some((there, expect)) = large_with(call, key, end)? {
        let (from, reply) =
            ((call.client.db, key), |_: &Call<'_, '_, '_>, bytes: u64| edited(integer_reply(bytes as i64)));
        let edit = |old| Edit::over(value, offset as u64, old);
        if make(call, ("setrange", Some(key.bytes()), words), from, None, edit, reply)? {
            return Ok(());
        }
        call.spend(copying_ns(there.max(end) as u64));
        match call.cx.guard.overlay(key, offset as u64, value, expect) {
            Ok(_) => return call.length(there.max(end)),
            Err(Refusal::NoMemory) => return Err(Fail::OUT_OF_MEMORY),
            Err(Refusal::Changed | Refusal::Absent | Refusal::Present | Refusal::Type) => {}
        }
    }
    let bytes = rewrite(call, key, |bytes, _| {
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset..end].copy_from_slice(value);
        Ok(Rewrite::Store(bytes.len()))
    })?;
    call.length(bytes)
}

/// Parses a stored number. memcached's decr may have left blanks behind it.
pub(crate) fn stored_integer(text: &[u8]) -> Result<i64, Fail> {
    integer(without_spaces(text))
}

/// A stored number without the blanks that memcached's incr and decr leave behind it. Line ends and tabs stay, so that it is no
/// number, as in Redis.
pub(crate) fn without_spaces(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| byte != b' ').map_or(0, |at| at + 1);
    &text[..end]
}

pub(crate) fn add(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, by: i64) -> Done {
    loop {
        let (expect, old, attributes) = match call.cx.guard.get_hinted(key, hint).hit() {
            Some(item) => {
                let text = match item.value() {
                    Value::Whole(text) => text,
                    Value::Pieces(_) => return Err(Fail::NOT_AN_INTEGER),
                    Value::Collection(_) => return Err(Fail::WRONG_TYPE),
                };
                (Expect::Unchanged(item.seen()), stored_integer(text)?, kept(&item))
            }
            None => (Expect::Absent, 0, Attributes::default()),
        };
        let new = old.checked_add(by).ok_or(Fail::OVERFLOW)?;
        let mut room = [0; 24];
        let bytes = larder_protocol::resp::write_integer(&mut room, new);
        match call.cx.guard.store_value_hinted(key, &room[..bytes], &attributes, expect, hint) {
            Ok(_) => {
                return call.integer(new);
            }
            Err(Refusal::NoMemory) => return Err(Fail::OUT_OF_MEMORY),
            Err(Refusal::Changed | Refusal::Absent | Refusal::Present | Refusal::Type) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn ranges_are_cut_to_the_value() {
        for ((start, end, bytes), expected) in [
            ((0, 3, 10), 0..4),
            ((-3, -1, 10), 7..10),
            ((0, -1, 10), 0..10),
            ((5, 100, 10), 5..10),
            ((-100, 2, 10), 0..3),
            ((5, 3, 10), 0..0),
            ((-1, -5, 10), 0..0),
            ((10, 20, 10), 0..0),
            ((0, -100, 10), 0..1),
            ((0, 0, 0), 0..0),
            ((i64::MIN, i64::MAX, 5), 0..5),
        ] {
            assert_eq!(range(start, end, bytes), expected, "{start} {end} {bytes}");
        }
    }
}
