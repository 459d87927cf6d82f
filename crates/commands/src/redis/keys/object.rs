//! OBJECT and MEMORY: what a value looks like inside.

use larder_protocol::resp::{Args, parse_integer};
use larder_store::{Item, Value};

use crate::redis::call::{Call, integer, is, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::table::flag::{LOADING, READONLY, STALE};
use crate::redis::table::{Access, Command, Keys, NO_KEYS};

/// The key behind the subcommand.
const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };

pub(crate) const OBJECT: &[Command] = &[
    Command::args("object|encoding", 3, READONLY, SECOND, |call, args| of_key(call, args, Facet::Encoding))
        .access(&[Access::Look])
        .doc("2.2.3", "key", "How a value is encoded."),
    Command::args("object|refcount", 3, READONLY, SECOND, |call, args| of_key(call, args, Facet::References))
        .access(&[Access::Look])
        .doc("2.2.3", "key", "How many names a value has: one."),
    Command::args("object|idletime", 3, READONLY, SECOND, |call, args| of_key(call, args, Facet::Idle))
        .access(&[Access::Look])
        .doc("2.2.3", "key", "Seconds since the last access."),
    Command::args("object|freq", 3, READONLY, SECOND, |call, args| of_key(call, args, Facet::Frequency))
        .access(&[Access::Look])
        .doc("4.0.0", "key", "How often a key is accessed, from 0 to 3."),
    Command::args("object|help", 2, LOADING | STALE, NO_KEYS, |call, _| {
        crate::redis::server::introspect::help(call, "object")
    })
    .doc("6.2.0", "", "What OBJECT can do."),
];

pub(crate) const MEMORY: &[Command] = &[
    Command::args("memory|usage", -3, READONLY, SECOND, usage).access(&[Access::Look]).doc(
        "4.0.0",
        "key [SAMPLES count]",
        "Bytes that a key and its value take.",
    ),
    Command::args("memory|doctor", 2, LOADING | STALE, NO_KEYS, |call, _| {
        crate::redis::reply::put_verbatim(call.out, call.client.resp3, "Memory is bounded by maxmemory.\n");
        Ok(())
    })
    .doc("4.0.0", "", "Says how memory is."),
    Command::args("memory|malloc-stats", 2, LOADING | STALE, NO_KEYS, |call, _| {
        crate::redis::reply::put_verbatim(
            call.out,
            call.client.resp3,
            "See stats slabs of the text protocol.\n",
        );
        Ok(())
    })
    .doc("4.0.0", "", "Says where to look."),
    Command::args("memory|purge", 2, LOADING | STALE, NO_KEYS, |call, _| call.ok()).doc(
        "4.0.0",
        "",
        "Accepted: free memory goes back by itself.",
    ),
    Command::args("memory|stats", 2, LOADING | STALE, NO_KEYS, stats).doc(
        "4.0.0",
        "",
        "What memory is used for.",
    ),
    Command::args("memory|help", 2, LOADING | STALE, NO_KEYS, |call, _| {
        crate::redis::server::introspect::help(call, "memory")
    })
    .doc("4.0.0", "", "What MEMORY can do."),
];

enum Facet {
    Encoding,
    References,
    Idle,
    Frequency,
}

/// `int`, `embstr` or `raw`, by Redis's rules.
pub(crate) fn encoding(item: &Item<'_>) -> &'static str {
    /// The longest string that Redis keeps beside its object.
    const EMBEDDED_BYTES_MAX: usize = 44;
    match item.value() {
        Value::Whole(text) if text.len() <= 20 && parse_integer(text).is_some() => "int",
        Value::Whole(text) if text.len() <= EMBEDDED_BYTES_MAX => "embstr",
        Value::Whole(_) | Value::Pieces(_) => "raw",
        Value::Collection(_) => "listpack",
    }
}

fn of_key(call: &mut Call<'_, '_, '_>, mut args: Args<'_>, facet: Facet) -> Done {
    let key = call.key(args.next().unwrap_or_default());
    let Some(item) = call.peek(&key)? else { return call.null() };
    match facet {
        Facet::Encoding => {
            let name = encoding(&item);
            call.bulk(name.as_bytes())
        }
        Facet::References => call.integer(1),
        Facet::Idle => {
            let idle = item.idle_s();
            call.integer(idle as i64)
        }
        Facet::Frequency => {
            let frequency = i64::from(item.frequency());
            if !crate::redis::server::config::policy(call).contains("lfu") {
                return Err(Fail::of(
                    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
                ));
            }
            call.integer(frequency)
        }
    }
}

fn usage(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
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
    let Some(item) = call.peek(&key)? else { return call.null() };
    // The item and its slot in the index.
    let bytes = item.item_bytes() + 8;
    call.integer(bytes as i64)
}

fn stats(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
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
