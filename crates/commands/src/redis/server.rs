//! Commands about the server and the keyspace as a whole.

pub(crate) mod absent;
pub(crate) mod acl;
pub(crate) mod commandlog;
pub(crate) mod config;
pub(crate) mod debug;
mod hotkeys;
pub(crate) mod info;
pub(crate) mod introspect;
pub(crate) mod latency;
mod usage;

use larder_protocol::resp::Args;

use super::call::{Call, Flow, is};
use super::definition::Definition;
use super::fail::{Done, Fail};
use super::keys::{copy, object};
use super::reply::put_bulk;
use super::row::flag::{
    ADMIN, ALLOW_BUSY, EMPTIES, FAST, FLUSHES, GUARDED, LOADING, NO_MULTI, NOSCRIPT, READONLY,
    REPLIES_A_PAGE, REPLIES_A_WORD, STALE, TAKES_ALL, WEIGHTLESS, WRITE,
};
use super::row::{Command, NO_KEYS, Tells, Weighs};
use crate::core::progress::Ending;
use crate::core::work::CLEANING_NS;
use crate::redis::steps::job::{Job, Step};

/// For administrators, at any time.
const RULES: u64 = ADMIN | NOSCRIPT | LOADING | STALE | WEIGHTLESS;

/// The time to ask for figures of the process, some of which the system has.
pub(crate) const PROCESS_NS: u64 = 13_000;

pub(crate) const ROWS: &[Definition] = &[
    Command::args("flushall", -1, WRITE | FLUSHES | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, |call, args| {
        flush(call, args, true)
    })
    .tells(Tells::Nothing)
    .categories(&["keyspace", "dangerous"])
    .with(EMPTIES | TAKES_ALL)
    .doc("1.0.0", "[ASYNC|SYNC]", "Removes all keys."),
    Command::args("flushdb", -1, WRITE | FLUSHES | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, |call, args| {
        flush(call, args, false)
    })
    .tells(Tells::Nothing)
    .categories(&["keyspace", "dangerous"])
    .with(EMPTIES | TAKES_ALL)
    .doc("1.0.0", "[ASYNC|SYNC]", "Removes all keys of the selected database."),
    Command::args("swapdb", 3, WRITE | FAST | FLUSHES, NO_KEYS, copy::swap)
        .tells(Tells::Nothing)
        .with(TAKES_ALL)
        .categories(&["keyspace", "dangerous"])
        .weighs(Weighs::Swap)
        .doc("4.0.0", "index1 index2", "Swaps two databases."),
    Command::args("dbsize", 1, READONLY | FAST | WEIGHTLESS, NO_KEYS, db_size)
        .with(TAKES_ALL)
        .categories(&["keyspace"])
        .doc("1.0.0", "", "How many keys the selected database has."),
    Command::args("time", 1, LOADING | STALE | FAST | WEIGHTLESS, NO_KEYS, time).doc(
        "2.6.0",
        "",
        "The time in seconds and microseconds.",
    ),
    Command::args("info", -1, LOADING | STALE | REPLIES_A_PAGE, NO_KEYS, info::info)
        .with(TAKES_ALL)
        .weighs(Weighs::Figures)
        .categories(&["dangerous"])
        .doc("1.0.0", "[section [section ...]]", "Figures of the server."),
    Command::container("command", introspect::ROWS)
        .arity(-1)
        .with(LOADING | STALE)
        .categories(&["connection"])
        .doc("2.8.13", "", "What commands there are."),
    Command::container("config", config::ROWS).doc("2.0.0", "", "Parameters."),
    Command::container("slowlog", commandlog::SLOWLOG).doc("2.2.12", "", "Commands that took long."),
    Command::container("commandlog", commandlog::COMMANDLOG).doc(
        "8.1.0",
        "",
        "Commands that took long, or had a large request or reply.",
    ),
    Command::container("hotkeys", hotkeys::ROWS).doc("8.6.0", "", "Which keys take most."),
    Command::container("latency", latency::ROWS).doc("2.8.13", "", "Events that took long."),
    Command::container("memory", object::MEMORY).doc("4.0.0", "", "What memory is used for."),
    Command::container("debug", debug::ROWS).with(RULES | GUARDED).doc("1.0.0", "", "For tests."),
    Command::container("acl", acl::ROWS).doc("6.0.0", "", "Users, and what they may do."),
    Command::container("module", absent::MODULE).doc("4.0.0", "", "Modules: there are none."),
    absent::SAVE,
    absent::BGSAVE,
    absent::BGREWRITEAOF,
    Command::args("role", 1, LOADING | STALE | NOSCRIPT | FAST | WEIGHTLESS, NO_KEYS, role)
        .categories(&["admin", "dangerous"])
        .doc("2.8.12", "", "That this is a master without replicas."),
    Command::args("lastsave", 1, LOADING | STALE | FAST | WEIGHTLESS, NO_KEYS, |call, _| {
        call.spend(PROCESS_NS);
        let (now_s, uptime_s) = (call.cx.now() / 1000, call.cx.host.process().uptime_s);
        call.integer(call.shared.started_s(now_s, uptime_s) as i64)
    })
    .categories(&["admin", "dangerous"])
    .doc("1.0.0", "", "When the server started: nothing is saved."),
    Command::args("shutdown", -1, RULES | NO_MULTI | ALLOW_BUSY, NO_KEYS, shutdown).doc(
        "1.0.0",
        "[[NOSAVE|SAVE] [NOW] [FORCE]|ABORT]",
        "Stops the server, if it was started with -A.",
    ),
];

fn flush(call: &mut Call<'_, '_, '_>, mut args: Args<'_>, all: bool) -> Done {
    match (args.next(), args.next()) {
        (None, _) => {}
        (Some(word), None) if is(word, "ASYNC") || is(word, "SYNC") => {}
        _ => return Err(Fail::SYNTAX),
    }
    if !call.cx.shared.settings.flush {
        return Err(Fail::of("ERR flushing is not allowed"));
    }
    call.work(Flushing { database: (!all).then_some(call.client.db) })
}

/// A flush. After very many others it waits until what they left is cleaned up.
#[derive(Debug)]
struct Flushing {
    database: Option<u8>,
}

impl Job for Flushing {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let until_ns = call.step_ns();
        let mut spent_ns = 0;
        while !self.flush(call) {
            call.spend(CLEANING_NS);
            spent_ns += CLEANING_NS;
            if spent_ns >= until_ns {
                return Ok(Step::More);
            }
        }
        call.ok()?;
        Ok(Step::Done)
    }
}

impl Flushing {
    fn flush(&self, call: &mut Call<'_, '_, '_>) -> bool {
        match self.database {
            None => call.cx.shared.flush_now(&mut call.cx.guard),
            Some(_) => call.cx.guard.try_flush(self.database),
        }
    }
}

fn db_size(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let items = call.cx.guard.store().database_items(call.client.db);
    call.integer(items as i64)
}

fn role(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    call.array(3);
    put_bulk(call.out, b"master");
    call.integer(0)?;
    call.array(0);
    Ok(())
}

fn shutdown(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let aborts = args.len() == 1 && args.at(0).is_some_and(|word| is(word, "ABORT"));
    let (mut saves, mut saves_not) = (false, false);
    for word in args {
        if is(word, "SAVE") {
            saves = true;
        } else if is(word, "NOSAVE") {
            saves_not = true;
        } else if !is(word, "NOW") && !is(word, "FORCE") && !aborts {
            return Err(Fail::SYNTAX);
        }
    }
    if saves && saves_not {
        return Err(Fail::SYNTAX);
    }
    if aborts {
        return Err(Fail::of("ERR No shutdown in progress."));
    }
    if !call.cx.shared.settings.shutdown {
        return Err(Fail::of("ERR shutdown is not enabled; start the server with -A"));
    }
    call.cx.host.shutdown(false);
    call.flow = Flow::Close(Ending::Shutdown);
    Ok(())
}

fn time(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let now_us = call.cx.now_us();
    call.array(2);
    call.bulk((now_us / 1_000_000).to_string().as_bytes())?;
    call.bulk((now_us % 1_000_000).to_string().as_bytes())
}
