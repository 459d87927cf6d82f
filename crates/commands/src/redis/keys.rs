//! Commands on keys, whatever their values are.

pub(crate) mod copy;
mod copying;
pub(crate) mod digest;
mod dump;
pub(crate) mod expiry;
pub(crate) mod loading;
pub(crate) mod object;
pub(crate) mod restore;
pub(crate) mod scan;
pub(crate) mod survey;

use arrayvec::ArrayVec;
use larder_protocol::resp::Args;
use larder_store::{Expect, Hint, Key};

use super::call::{Call, is};
use super::definition::Definition;
use super::fail::{Done, Fail};
use super::row::flag::{
    BLOCKING, DENYOOM, FAST, IN_PARTS, MOMENTS, READONLY, REPLIES_A_WORD, SHOWS_KEYS, TAKES_ALL, WEIGHTLESS,
    WRITE,
};
use super::row::{ALL_KEYS, Access, Command, NO_KEYS, ONE_KEY, Replaces, TWO_KEYS, Tells, Weighs};
use super::strings::throttle;
use crate::core::batch::{BATCH_KEYS, prefetch_items};
use crate::core::events::Change;
use crate::redis::clock::Clock;
use crate::redis::collections::sorting::{SORT, SORT_RO};
use crate::redis::strings::set::{Condition, equals};
use expiry::{expire, persist, remove, ttl};

pub(crate) const ROWS: &[Definition] = &[
    Command::args("del", -2, WRITE | MOMENTS | WEIGHTLESS | IN_PARTS, ALL_KEYS, del)
        .tells(Tells::Each(Change::KEY))
        .access(&[Access::Remove])
        .doc("1.0.0", "key [key ...]", "Removes keys."),
    Command::args("unlink", -2, WRITE | FAST | MOMENTS | WEIGHTLESS | IN_PARTS, ALL_KEYS, del)
        .tells(Tells::Each(Change::KEY))
        .access(&[Access::Remove])
        .doc("4.0.0", "key [key ...]", "Removes keys."),
    Command::args("exists", -2, READONLY | FAST | MOMENTS | WEIGHTLESS | IN_PARTS, ALL_KEYS, exists)
        .access(&[Access::Look])
        .doc("1.0.0", "key [key ...]", "How many of the keys are there."),
    Command::args("touch", -2, READONLY | FAST | MOMENTS | WEIGHTLESS | IN_PARTS, ALL_KEYS, touch)
        .access(&[Access::Look])
        .doc("3.2.1", "key [key ...]", "Counts as an access of keys; how many are there."),
    Command::key("type", 2, READONLY | FAST | WEIGHTLESS, kind).access(&[Access::Look]).doc(
        "1.0.0",
        "key",
        "The type of a value.",
    ),
    Command::key("expire", -3, WRITE | FAST | WEIGHTLESS, |call, key, _, args| {
        expire(call, key, args, "expire", Clock::Seconds)
    })
    .tells(Tells::Each(Change::KEY))
    .replaces(Replaces::IfPast(Clock::Seconds))
    .doc("1.0.0", "key seconds [NX|XX|GT|LT]", "Sets when a key expires."),
    Command::key("pexpire", -3, WRITE | FAST | WEIGHTLESS, |call, key, _, args| {
        expire(call, key, args, "pexpire", Clock::Milliseconds)
    })
    .tells(Tells::Each(Change::KEY))
    .replaces(Replaces::IfPast(Clock::Milliseconds))
    .doc("2.6.0", "key milliseconds [NX|XX|GT|LT]", "Sets when a key expires."),
    Command::key("expireat", -3, WRITE | FAST | WEIGHTLESS, |call, key, _, args| {
        expire(call, key, args, "expireat", Clock::UnixSeconds)
    })
    .tells(Tells::Each(Change::KEY))
    .replaces(Replaces::IfPast(Clock::UnixSeconds))
    .doc("1.2.0", "key unix-time-seconds [NX|XX|GT|LT]", "Sets when a key expires."),
    Command::key("pexpireat", -3, WRITE | FAST | WEIGHTLESS, |call, key, _, args| {
        expire(call, key, args, "pexpireat", Clock::UnixMilliseconds)
    })
    .tells(Tells::Each(Change::KEY))
    .replaces(Replaces::IfPast(Clock::UnixMilliseconds))
    .doc("2.6.0", "key unix-time-milliseconds [NX|XX|GT|LT]", "Sets when a key expires."),
    Command::key("ttl", 2, READONLY | FAST | WEIGHTLESS, |call, key, _, _| ttl(call, key, Clock::Seconds))
        .doc("1.0.0", "key", "Seconds until a key expires."),
    Command::key("pttl", 2, READONLY | FAST | WEIGHTLESS, |call, key, _, _| {
        ttl(call, key, Clock::Milliseconds)
    })
    .doc("2.6.0", "key", "Milliseconds until a key expires."),
    Command::key("expiretime", 2, READONLY | FAST | WEIGHTLESS, |call, key, _, _| {
        ttl(call, key, Clock::UnixSeconds)
    })
    .doc("7.0.0", "key", "The Unix time in seconds at which a key expires."),
    Command::key("pexpiretime", 2, READONLY | FAST | WEIGHTLESS, |call, key, _, _| {
        ttl(call, key, Clock::UnixMilliseconds)
    })
    .doc("7.0.0", "key", "The Unix time in milliseconds at which a key expires."),
    Command::key("persist", 2, WRITE | FAST | WEIGHTLESS, persist)
        .tells(Tells::Each(Change::KEY))
        .replaces(Replaces::Never)
        .doc("2.2.0", "key", "Lets a key not expire."),
    Command::args("rename", 3, WRITE, TWO_KEYS, |call, args| copy::rename(call, args, false))
        .tells(copy::RENAMED)
        .access(&[Access::Take, Access::Replace])
        .weighs(Weighs::Rename)
        .doc("1.0.0", "key newkey", "Renames a key, over another if that is there."),
    Command::args("renamenx", 3, WRITE | FAST, TWO_KEYS, |call, args| copy::rename(call, args, true))
        .tells(copy::RENAMED)
        .access(&[Access::Take, Access::Replace])
        .weighs(Weighs::Rename)
        .doc("1.0.0", "key newkey", "Renames a key if the new name is free."),
    Command::args("copy", -3, WRITE | DENYOOM, TWO_KEYS, copy::copy)
        .tells(Tells::Each(Change::made("copy_to")))
        .access(&[Access::Read, Access::Replace])
        .takes_all_if(|args| args.len() > 2)
        .weighs(Weighs::Copy)
        .replaces(Replaces::AlsoElsewhere)
        .doc("6.2.0", "source destination [DB destination-db] [REPLACE]", "Copies a value with its expiry."),
    Command::args("move", 3, WRITE | FAST, ONE_KEY, copy::move_to)
        .tells(copy::MOVED)
        .access(&[Access::Take])
        .with(TAKES_ALL)
        .weighs(Weighs::Move)
        .replaces(Replaces::AlsoElsewhere)
        .doc("1.0.0", "key db", "Moves a key to another database."),
    Command::key("dump", 2, READONLY, dump::dump).weighs(Weighs::Dump).doc(
        "2.6.0",
        "key",
        "A value in a form that RESTORE reads.",
    ),
    Command::key("restore", -4, WRITE | DENYOOM, restore::restore)
        .tells(Tells::Each(Change::made("restore")))
        .access(&[Access::Replace])
        .weighs(Weighs::Restore)
        .categories(&["keyspace", "dangerous"])
        .doc(
            "2.6.0",
            "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
            "Sets a key to what DUMP gave.",
        ),
    Command::args("scan", -2, READONLY | SHOWS_KEYS, NO_KEYS, scan::scan)
        .with(TAKES_ALL)
        .weighs(Weighs::Scan)
        .doc(
            "2.8.0",
            "cursor [MATCH pattern] [COUNT count] [TYPE type]",
            "Some of the keys, and where to go on.",
        ),
    Command::args("keys", 2, READONLY | SHOWS_KEYS, NO_KEYS, scan::keys)
        .with(TAKES_ALL)
        .weighs(Weighs::Names)
        .categories(&["keyspace", "dangerous"])
        .doc("1.0.0", "pattern", "All keys that match."),
    Command::args("randomkey", 1, READONLY | SHOWS_KEYS, NO_KEYS, scan::random_key)
        .with(TAKES_ALL)
        .weighs(Weighs::Sample)
        .doc("1.0.0", "", "Some key."),
    Command::container("object", object::OBJECT).doc("2.2.3", "", "What a value looks like inside."),
    Command::key("delex", -2, WRITE | FAST | WEIGHTLESS, delex)
        .tells(Tells::Each(Change::KEY))
        .access(&[Access::Remove])
        .doc("8.4.0", "key [IFEQ value|IFNE value]", "Removes a key, on a condition if one is given."),
    Command::key("delifeq", 3, WRITE | FAST | WEIGHTLESS, |call, key, _, mut args| {
        let value = args.next().unwrap_or_default();
        delete_if(call, key, Condition::Equal(value))
    })
    .tells(Tells::Each(Change::KEY))
    .access(&[Access::Remove])
    .categories(&["string"])
    .doc("9.0.0", "key value", "Removes a key that has this value, so as to release a lock."),
    Command::key("cl.throttle", -5, WRITE | DENYOOM | FAST | WEIGHTLESS, throttle::throttle)
        .tells(Tells::Each(Change::string("cl.throttle")))
        .access(&[Access::Change])
        .doc(
            "4.0.0",
            "key max_burst count period [quantity]",
            "A rate limiter: whether something may be done now.",
        ),
    SORT,
    SORT_RO,
    Command::args("wait", 3, BLOCKING | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, wait)
        .categories(&["connection"])
        .doc(
            "3.0.0",
            "numreplicas timeout",
            "How many replicas have what was written: none, there are none.",
        ),
];

/// Runs `each` on the keys, which are prefetched; returns how often it was true.
pub(crate) fn count(
    call: &mut Call<'_, '_, '_>,
    mut args: Args<'_>,
    mut each: impl FnMut(&mut Call<'_, '_, '_>, &Key<'_>) -> bool,
) -> usize {
    let mut count = 0;
    while !args.is_empty() {
        let mut batch = ArrayVec::<(Key<'_>, Hint<'_>), BATCH_KEYS>::new();
        for name in args.by_ref().take(BATCH_KEYS) {
            let key = call.key(name);
            batch.push((key, call.cx.guard.prefetch_bucket(&key)));
        }
        prefetch_items(&call.cx.guard, &mut batch, |(key, hint)| (&*key, hint));
        for (key, _) in &batch {
            count += usize::from(each(call, key));
        }
    }
    count
}

fn del(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    call.count_in_moments("del", args, del_some)
}

fn del_some(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> usize {
    if args.len() == 1 {
        return count(call, args, remove);
    }
    call.as_one_in(args, |call| count(call, args, remove))
}

/// Notes the state of the keys before they are looked at.
fn note_all(call: &mut Call<'_, '_, '_>, args: Args<'_>) {
    for name in args {
        let key = call.key(name);
        call.cx.guard.note(&key);
    }
}

fn exists(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    call.count_in_moments("exists", args, |call, args| {
        call.look_as_one(args, |call, args| {
            note_all(call, args);
            count(call, args, |call, key| call.is_there(key))
        })
    })
}

fn touch(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    call.count_in_moments("touch", args, |call, args| {
        // TOUCH leaves traces even for clients whose other commands leave none.
        call.cx.guard.leave_traces(true);
        let there = call.look_as_one(args, |call, args| {
            note_all(call, args);
            count(call, args, |call, key| call.cx.guard.get(key).hit().is_some())
        });
        call.cx.guard.leave_traces(!call.client.no_touch);
        there
    })
}

/// Serves DELEX.
fn delex(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let condition = match (args.next(), args.next(), args.next()) {
        (None, _, _) => Condition::Any,
        (Some(word), Some(value), None) if is(word, "IFEQ") => Condition::Equal(value),
        (Some(word), Some(value), None) if is(word, "IFNE") => Condition::Differs(value),
        _ => return Err(Fail::SYNTAX),
    };
    delete_if(call, key, condition).map_err(|fail| match fail {
        fail if fail == Fail::WRONG_TYPE => {
            Fail::of("ERR Key should be of string type if conditions are specified")
        }
        fail => fail,
    })
}

fn delete_if(call: &mut Call<'_, '_, '_>, key: &Key<'_>, condition: Condition<'_>) -> Done {
    loop {
        let Some(item) = call.cx.guard.peek(key).hit() else { return call.integer(0) };
        if item.is_collection() && condition != Condition::Any {
            return Err(Fail::WRONG_TYPE);
        }
        let unchanged = Expect::Unchanged(item.seen());
        let holds = match condition {
            Condition::Equal(value) => equals(item.value(), value),
            Condition::Differs(value) => !equals(item.value(), value),
            Condition::Any | Condition::Absent | Condition::Present => true,
        };
        if !holds {
            return call.integer(0);
        }
        if call.cx.guard.delete(key, unchanged).is_ok() {
            return call.integer(1);
        }
    }
}

/// Serves WAIT: there are no replicas, and none will come, so there is nothing to wait for.
fn wait(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    super::call::integer(args.next().unwrap_or_default())?;
    let timeout = super::call::integer(args.next().unwrap_or_default())
        .map_err(|_| Fail::of("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(Fail::of("ERR timeout is negative"));
    }
    if (call.cx.now() as i64).checked_add(timeout).is_none() {
        return Err(Fail::of("ERR timeout is out of range"));
    }
    call.integer(0)
}

fn kind(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, _: Args<'_>) -> Done {
    let name = call.cx.guard.peek(key).hit().map_or("none", |item| object::type_of(&item));
    super::reply::put_simple(call.out, name);
    Ok(())
}
