//! Commands on keys, whatever their values are.

use arrayvec::ArrayVec;
use larder_protocol::resp::Args;
use larder_store::{Hint, Key};

use super::call::Call;
use super::expiry::{Clock, expire, persist, remove, ttl};
use super::fail::Done;
use super::table::flag::{FAST, READONLY, WRITE};
use super::table::{ALL_KEYS, Command};
use crate::batch::{SLOTS, prefetch_items};

pub(crate) const ROWS: &[Command] = &[
    Command::args("del", -2, WRITE, ALL_KEYS, del).doc("1.0.0", "key [key ...]", "Removes keys."),
    Command::args("unlink", -2, WRITE | FAST, ALL_KEYS, del).doc("4.0.0", "key [key ...]", "Removes keys."),
    Command::args("exists", -2, READONLY | FAST, ALL_KEYS, exists).doc(
        "1.0.0",
        "key [key ...]",
        "How many of the keys are there.",
    ),
    Command::args("touch", -2, READONLY | FAST, ALL_KEYS, touch).doc(
        "3.2.1",
        "key [key ...]",
        "Counts as an access of keys; how many are there.",
    ),
    Command::key("type", 2, READONLY | FAST, kind).doc("1.0.0", "key", "The type of a value."),
    Command::key("expire", -3, WRITE | FAST, |call, key, _, args| {
        expire(call, key, args, "expire", Clock::Seconds)
    })
    .doc("1.0.0", "key seconds [NX|XX|GT|LT]", "Sets when a key expires."),
    Command::key("pexpire", -3, WRITE | FAST, |call, key, _, args| {
        expire(call, key, args, "pexpire", Clock::Milliseconds)
    })
    .doc("2.6.0", "key milliseconds [NX|XX|GT|LT]", "Sets when a key expires."),
    Command::key("expireat", -3, WRITE | FAST, |call, key, _, args| {
        expire(call, key, args, "expireat", Clock::UnixSeconds)
    })
    .doc("1.2.0", "key unix-time-seconds [NX|XX|GT|LT]", "Sets when a key expires."),
    Command::key("pexpireat", -3, WRITE | FAST, |call, key, _, args| {
        expire(call, key, args, "pexpireat", Clock::UnixMilliseconds)
    })
    .doc("2.6.0", "key unix-time-milliseconds [NX|XX|GT|LT]", "Sets when a key expires."),
    Command::key("ttl", 2, READONLY | FAST, |call, key, _, _| ttl(call, key, Clock::Seconds)).doc(
        "1.0.0",
        "key",
        "Seconds until a key expires.",
    ),
    Command::key("pttl", 2, READONLY | FAST, |call, key, _, _| ttl(call, key, Clock::Milliseconds)).doc(
        "2.6.0",
        "key",
        "Milliseconds until a key expires.",
    ),
    Command::key("expiretime", 2, READONLY | FAST, |call, key, _, _| ttl(call, key, Clock::UnixSeconds)).doc(
        "7.0.0",
        "key",
        "The Unix time in seconds at which a key expires.",
    ),
    Command::key("pexpiretime", 2, READONLY | FAST, |call, key, _, _| {
        ttl(call, key, Clock::UnixMilliseconds)
    })
    .doc("7.0.0", "key", "The Unix time in milliseconds at which a key expires."),
    Command::key("persist", 2, WRITE | FAST, persist).doc("2.2.0", "key", "Lets a key not expire."),
];

/// Runs `each` on the keys, loaded ahead; how many times it was true.
pub(crate) fn count(
    call: &mut Call<'_, '_, '_>,
    mut args: Args<'_>,
    mut each: impl FnMut(&mut Call<'_, '_, '_>, &Key<'_>) -> bool,
) -> usize {
    let mut count = 0;
    while !args.is_empty() {
        let mut batch = ArrayVec::<(Key<'_>, Hint<'_>), SLOTS>::new();
        for name in args.by_ref().take(SLOTS) {
            let key = call.key(name);
            batch.push((key, call.cx.guard.prefetch_bucket(&key)));
        }
        prefetch_items(&call.cx.guard, &mut batch, |(_, hint)| hint);
        for (key, _) in &batch {
            count += usize::from(each(call, key));
        }
    }
    count
}

fn del(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    if args.len() == 1 {
        let removed = count(call, args, remove);
        return call.length(removed);
    }
    let keys: Vec<Key<'_>> = args.map(|name| call.key(name)).collect();
    let removed = call.as_one(keys, |call| count(call, args, remove));
    call.length(removed)
}

fn exists(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let there = count(call, args, |call, key| call.cx.guard.peek(key).hit().is_some());
    call.length(there)
}

fn touch(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let there = count(call, args, |call, key| call.cx.guard.get(key).hit().is_some());
    call.length(there)
}

fn kind(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, _: Args<'_>) -> Done {
    let there = call.peek(key)?.is_some();
    super::reply::put_simple(call.out, if there { "string" } else { "none" });
    Ok(())
}
