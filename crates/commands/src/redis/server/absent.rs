//! What Larder does not have: a cluster, modules, tracking, persistence. Clients ask about them before anything else, and get the
//! replies of a server that was started without.

use larder_protocol::resp::Args;

use crate::redis::call::{Call, integer, is, next};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_bulk, put_set};
use crate::redis::row::flag::{ADMIN, FAST, LOADING, NO_MULTI, NOSCRIPT, STALE, WEIGHTLESS};
use crate::redis::row::{Command, NO_KEYS};

const NO_CLUSTER: Fail = Fail::of("ERR This instance has cluster support disabled");
const RULES: u64 = ADMIN | NOSCRIPT | LOADING | STALE | WEIGHTLESS;

/// A command about a cluster.
const fn clustered(name: &'static str, arity: i32, since: &'static str, usage: &'static str) -> Definition {
    Command::args(name, arity, LOADING | STALE | WEIGHTLESS, NO_KEYS, |_, _| Err(NO_CLUSTER)).doc(
        since,
        usage,
        "Fails: there is no cluster.",
    )
}

const CLUSTER: &[Definition] = &[
    clustered("cluster|addslots", -3, "3.0.0", "slot [slot ...]"),
    clustered("cluster|addslotsrange", -4, "7.0.0", "start-slot end-slot [start-slot end-slot ...]"),
    clustered("cluster|bumpepoch", 2, "3.0.0", ""),
    clustered("cluster|count-failure-reports", 3, "3.0.0", "node-id"),
    clustered("cluster|countkeysinslot", 3, "3.0.0", "slot"),
    clustered("cluster|delslots", -3, "3.0.0", "slot [slot ...]"),
    clustered("cluster|delslotsrange", -4, "7.0.0", "start-slot end-slot [start-slot end-slot ...]"),
    clustered("cluster|failover", -2, "3.0.0", "[FORCE|TAKEOVER]"),
    clustered("cluster|flushslots", 2, "3.0.0", ""),
    clustered("cluster|forget", 3, "3.0.0", "node-id"),
    clustered("cluster|getkeysinslot", 4, "3.0.0", "slot count"),
    clustered("cluster|help", 2, "5.0.0", ""),
    clustered("cluster|info", 2, "3.0.0", ""),
    clustered("cluster|keyslot", 3, "3.0.0", "key"),
    clustered("cluster|links", 2, "7.0.0", ""),
    clustered("cluster|meet", -4, "3.0.0", "ip port [cluster-bus-port]"),
    clustered("cluster|myid", 2, "3.0.0", ""),
    clustered("cluster|myshardid", 2, "7.2.0", ""),
    clustered("cluster|nodes", 2, "3.0.0", ""),
    clustered("cluster|replicas", 3, "5.0.0", "node-id"),
    clustered("cluster|replicate", 3, "3.0.0", "node-id"),
    clustered("cluster|reset", -2, "3.0.0", "[HARD|SOFT]"),
    clustered("cluster|saveconfig", 2, "3.0.0", ""),
    clustered("cluster|set-config-epoch", 3, "3.0.0", "config-epoch"),
    clustered(
        "cluster|setslot",
        -4,
        "3.0.0",
        "slot <IMPORTING node-id|MIGRATING node-id|NODE node-id|STABLE>",
    ),
    clustered("cluster|shards", 2, "7.0.0", ""),
    clustered("cluster|slaves", 3, "3.0.0", "node-id"),
    clustered("cluster|slots", 2, "3.0.0", ""),
];

pub(crate) const ROWS: &[Definition] = &[
    Command::container("cluster", CLUSTER).doc("3.0.0", "", "A cluster: there is none."),
    clustered("asking", 1, "3.0.0", "").with(FAST).categories(&["connection"]),
    clustered("readonly", 1, "3.0.0", "").with(FAST).categories(&["connection"]),
    clustered("readwrite", 1, "3.0.0", "").with(FAST).categories(&["connection"]),
];

const NO_MODULES: Fail = Fail::of("ERR MODULE command not allowed. There are no modules here");

pub(crate) const MODULE: &[Definition] = &[
    Command::args("module|list", 2, RULES, NO_KEYS, |call, _| {
        call.array(0);
        Ok(())
    })
    .doc("4.0.0", "", "Modules: none."),
    Command::args("module|load", -3, RULES, NO_KEYS, |_, _| Err(NO_MODULES)).doc(
        "4.0.0",
        "path [arg [arg ...]]",
        "Fails: there are no modules.",
    ),
    Command::args("module|loadex", -3, RULES, NO_KEYS, |_, _| Err(NO_MODULES)).doc(
        "7.0.0",
        "path [CONFIG name value [CONFIG name value ...]] [ARGS args [args ...]]",
        "Fails: there are no modules.",
    ),
    Command::args("module|unload", 3, RULES, NO_KEYS, |_, _| Err(NO_MODULES)).doc(
        "4.0.0",
        "name",
        "Fails: there are no modules.",
    ),
    Command::args("module|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
        crate::redis::help::help(call, "module")
    })
    .doc("5.0.0", "", "What MODULE can do."),
];

const NOT_SAVED: Fail = Fail::of("ERR nothing is saved here: a cache keeps its keys in memory alone");

pub(crate) const SAVE: Definition =
    Command::args("save", 1, ADMIN | NOSCRIPT | NO_MULTI | WEIGHTLESS, NO_KEYS, |_, _| Err(NOT_SAVED)).doc(
        "1.0.0",
        "",
        "Fails: nothing is saved.",
    );
pub(crate) const BGSAVE: Definition =
    Command::args("bgsave", -1, ADMIN | NOSCRIPT | WEIGHTLESS, NO_KEYS, |_, mut args| {
        match (args.next(), args.next()) {
            (Some(word), None) if is(word, "SCHEDULE") => Err(NOT_SAVED),
            (None, _) => Err(NOT_SAVED),
            _ => Err(Fail::SYNTAX),
        }
    })
    .doc("1.0.0", "[SCHEDULE]", "Fails: nothing is saved.");
pub(crate) const BGREWRITEAOF: Definition =
    Command::args("bgrewriteaof", 1, ADMIN | NOSCRIPT | WEIGHTLESS, NO_KEYS, |_, _| Err(NOT_SAVED)).doc(
        "1.0.0",
        "",
        "Fails: nothing is saved.",
    );

const PLAIN: u64 = NOSCRIPT | LOADING | STALE | WEIGHTLESS;

pub(crate) const TRACKING: Definition = Command::args("client|tracking", -3, PLAIN, NO_KEYS, tracking).doc(
    "6.0.0",
    "<ON|OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
    "Fails unless it is OFF: no invalidations are sent.",
);
pub(crate) const TRACKING_INFO: Definition =
    Command::args("client|trackinginfo", 2, PLAIN, NO_KEYS, tracking_info).doc(
        "6.2.0",
        "",
        "That tracking is off.",
    );
pub(crate) const CACHING: Definition = Command::args("client|caching", 3, PLAIN, NO_KEYS, |_, _| {
    Err(Fail::of(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
    ))
})
.doc("6.0.0", "YES|NO", "Fails: there is no tracking.");

fn tracking(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let word = next(&mut args)?;
    while let Some(word) = args.next() {
        if is(word, "REDIRECT") {
            integer(next(&mut args)?)?;
        } else if is(word, "PREFIX") {
            next(&mut args)?;
        } else if !["BCAST", "OPTIN", "OPTOUT", "NOLOOP"].iter().any(|option| is(word, option)) {
            return Err(Fail::SYNTAX);
        }
    }
    if is(word, "OFF") {
        call.ok()
    } else if is(word, "ON") {
        Err(Fail::of("ERR client side caching is not supported: no invalidations are sent"))
    } else {
        Err(Fail::SYNTAX)
    }
}

fn tracking_info(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    call.map(3);
    put_bulk(call.out, b"flags");
    put_set(call.out, call.client.resp3, 1);
    put_bulk(call.out, b"off");
    put_bulk(call.out, b"redirect");
    call.integer(-1)?;
    put_bulk(call.out, b"prefixes");
    call.array(0);
    Ok(())
}
