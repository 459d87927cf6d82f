//! OBJECT and MEMORY: what a value looks like inside.

use larder_protocol::resp::{Args, parse_integer};
use larder_store::{Collection, Element, Item, Type, Value};

use crate::core::figures::types::{STRING, name_of};
use crate::core::findings::{self, About};
use crate::redis::call::{Call, few_names, integer, is, next};
use crate::redis::collections::COMPARE_NS;
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::row::flag::{LOADING, READONLY, REPLIES_A_PAGE, STALE, WEIGHTLESS};
use crate::redis::row::{Access, Command, Keys, NO_KEYS};

/// The key behind the subcommand.
const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };

pub(crate) const OBJECT: &[Definition] = &[
    Command::args("object|encoding", 3, READONLY | WEIGHTLESS, SECOND, |call, args| {
        of_key(call, args, Facet::Encoding)
    })
    .access(&[Access::Look])
    .doc("2.2.3", "key", "How a value is encoded."),
    Command::args("object|refcount", 3, READONLY | WEIGHTLESS, SECOND, |call, args| {
        of_key(call, args, Facet::References)
    })
    .access(&[Access::Look])
    .doc("2.2.3", "key", "How many names a value has: one."),
    Command::args("object|idletime", 3, READONLY | WEIGHTLESS, SECOND, |call, args| {
        of_key(call, args, Facet::Idle)
    })
    .access(&[Access::Look])
    .doc("2.2.3", "key", "Seconds since the last access."),
    Command::args("object|freq", 3, READONLY | WEIGHTLESS, SECOND, |call, args| {
        of_key(call, args, Facet::Frequency)
    })
    .access(&[Access::Look])
    .doc("4.0.0", "key", "How often a key is accessed, from 0 to 3."),
    Command::args("object|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
        crate::redis::help::help(call, "object")
    })
    .doc("6.2.0", "", "What OBJECT can do."),
];

pub(crate) const MEMORY: &[Definition] = &[
    Command::args("memory|usage", -3, READONLY | WEIGHTLESS, SECOND, usage).access(&[Access::Look]).doc(
        "4.0.0",
        "key [SAMPLES count]",
        "Bytes that a key and its value take.",
    ),
    Command::args("memory|doctor", 2, LOADING | STALE | WEIGHTLESS | REPLIES_A_PAGE, NO_KEYS, |call, _| {
        let mut text = "Memory is bounded by maxmemory.\n".to_owned();
        text.push_str(&findings::text(About::Memory, &findings::find_for(call.cx)));
        crate::redis::reply::put_verbatim(call.out, call.client.resp3, &text);
        Ok(())
    })
    .doc("4.0.0", "", "Reports problems of memory, and what to do."),
    Command::args("memory|malloc-stats", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
        crate::redis::reply::put_verbatim(
            call.out,
            call.client.resp3,
            "See stats slabs of the text protocol.\n",
        );
        Ok(())
    })
    .doc("4.0.0", "", "Reports where the details are."),
    Command::args("memory|purge", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| call.ok()).doc(
        "4.0.0",
        "",
        "Accepted: free memory goes back by itself.",
    ),
    Command::args("memory|stats", 2, LOADING | STALE | WEIGHTLESS | REPLIES_A_PAGE, NO_KEYS, stats).doc(
        "4.0.0",
        "",
        "What memory is used for.",
    ),
    Command::args("memory|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
        crate::redis::help::help(call, "memory")
    })
    .doc("4.0.0", "", "What MEMORY can do."),
];

enum Facet {
    Encoding,
    References,
    Idle,
    Frequency,
}

/// The encoding by Redis's rules, from what the value is now: `int`, `embstr`, `raw`, `listpack` and so on.
pub(crate) fn encoding(item: &Item<'_>) -> &'static str {
    /// Bytes of a string that Redis keeps in one block with its object, at most.
    const EMBEDDED_BYTES_MAX: usize = 44;
    match item.value() {
        Value::Whole(text) if text.len() <= 20 && parse_integer(text).is_some() => "int",
        Value::Whole(text) if text.len() <= EMBEDDED_BYTES_MAX => "embstr",
        Value::Whole(_) | Value::Pieces(_) => "raw",
        Value::Collection(collection) => encoding_of(&collection.elements()),
    }
}

/// Bytes of a string in a listpack of a hash, a set or a sorted set, at most.
const ELEMENT_BYTES_MAX: usize = 64;
/// Elements of the packed encodings, at most.
const HASH_MAX: usize = 512;
const NUMBERS_MAX: usize = 512;
const MEMBERS_MAX: usize = 128;
/// Bytes of a list in one listpack, and what an element takes there beside its own.
const LIST_BYTES_MAX: usize = 8 << 10;
const LIST_ELEMENT_BYTES: usize = 2;

/// The time to find the encoding of a value: elements are looked at until they are too many, or too long.
pub(crate) fn encoding_ns(item: &Item<'_>) -> u64 {
    let Value::Collection(collection) = item.value() else { return 0 };
    let most = match collection.kind() {
        Type::Hash => 2 * HASH_MAX,
        Type::Set => NUMBERS_MAX + MEMBERS_MAX,
        Type::SortedSet => MEMBERS_MAX,
        Type::List => LIST_BYTES_MAX / LIST_ELEMENT_BYTES,
        Type::Stream => 0,
    };
    // A hash has fields and values.
    (2 * collection.elements().len()).min(most) as u64 * COMPARE_NS
}

/// The encoding in which Redis would keep these elements, with its default limits.
fn encoding_of(collection: &Collection<'_>) -> &'static str {
    let elements = || collection.entries(0..collection.len());
    let packs = |most| {
        let short = |element: Element<'_>| element.len() <= ELEMENT_BYTES_MAX;
        collection.len() <= most && elements().all(|entry| short(entry.name) && short(entry.value))
    };
    match collection.kind() {
        Type::Hash if packs(HASH_MAX) => {
            if collection.soonest() == 0 {
                "listpack"
            } else {
                "listpackex"
            }
        }
        Type::Set
            if collection.len() <= NUMBERS_MAX && elements().all(|entry| entry.name.number().is_some()) =>
        {
            "intset"
        }
        Type::Set | Type::SortedSet if packs(MEMBERS_MAX) => "listpack",
        Type::Hash | Type::Set => "hashtable",
        Type::SortedSet => "skiplist",
        Type::Stream => "stream",
        Type::List => {
            let mut bytes = 0;
            let is_long = elements().any(|entry| {
                bytes += entry.name.len() + LIST_ELEMENT_BYTES;
                bytes > LIST_BYTES_MAX
            });
            if is_long { "quicklist" } else { "listpack" }
        }
    }
}

/// The type of a value, in Redis's words.
pub(crate) fn type_of(item: &Item<'_>) -> &'static str {
    match item.value() {
        Value::Whole(_) | Value::Pieces(_) => STRING,
        Value::Collection(collection) => name_of(collection.kind()),
    }
}

/// The time to add up what the store's classes have counted.
const TOTALS_NS: u64 = 2_000;

fn of_key(call: &mut Call<'_, '_, '_>, mut args: Args<'_>, facet: Facet) -> Done {
    let key = call.key(args.next().unwrap_or_default());
    let Some(item) = call.cx.guard.peek(&key).hit() else { return call.null() };
    match facet {
        Facet::Encoding => {
            let (name, ns) = (encoding(&item), encoding_ns(&item));
            call.spend(ns);
            call.bulk(name.as_bytes())
        }
        Facet::References => call.integer(1),
        Facet::Idle => {
            let idle = item.idle_s();
            call.integer(idle as i64)
        }
        Facet::Frequency => {
            let frequency = i64::from(item.frequency());
            if !call.shared.parameters.policy(call.cx.guard.store()).contains("lfu") {
                return Err(Fail::of(
                    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
                ));
            }
            call.integer(frequency)
        }
    }
}

fn usage(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    few_names(args)?;
    let key = next(&mut args)?;
    while let Some(word) = args.next() {
        if !is(word, "SAMPLES") {
            return Err(Fail::SYNTAX);
        }
        if integer(next(&mut args)?)? < 0 {
            return Err(Fail::SYNTAX);
        }
    }
    let key = call.key(key);
    let Some(item) = call.cx.guard.peek(&key).hit() else { return call.null() };
    // The item and its slot in the index.
    let bytes = item.item_bytes() + 8;
    call.integer(bytes as i64)
}

fn stats(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    call.spend(TOTALS_NS);
    let totals = call.cx.guard.store().totals();
    let rows: &[(&str, u64)] = &[
        ("peak.allocated", totals.used_bytes),
        ("total.allocated", totals.used_bytes),
        ("startup.allocated", 0),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", 0),
        ("aof.buffer", 0),
        ("overhead.total", totals.used_bytes.saturating_sub(totals.item_bytes)),
        ("keys.count", totals.items),
        ("keys.bytes-per-key", totals.item_bytes / totals.items.max(1)),
        ("dataset.bytes", totals.item_bytes),
    ];
    call.map(rows.len());
    for (name, n) in rows {
        call.bulk(name.as_bytes())?;
        call.integer(*n as i64)?;
    }
    Ok(())
}
