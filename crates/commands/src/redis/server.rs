//! Commands about the server and the keyspace as a whole.

pub(crate) mod absent;
mod acl;
pub(crate) mod config;
pub(crate) mod debug;
pub(crate) mod info;
pub(crate) mod introspect;
pub(crate) mod latency;
pub(crate) mod parameter;
pub(crate) mod secret;
pub(crate) mod slowlog;
mod usage;

use larder_protocol::resp::Args;

use super::call::{Call, Flow, is, next};
use super::fail::{Done, Fail};
use super::keys::{copy, object};
use super::reply::put_bulk;
use super::table::flag::{
    ADMIN, ALLOW_BUSY, EMPTIES, FAST, FLUSHES, GUARDED, LOADING, NO_MULTI, NOSCRIPT, READONLY, STALE,
    TAKES_ALL, WRITE,
};
use super::table::{Command, NO_KEYS, Tells};
use crate::core::work::CLEANING_NS;
use crate::redis::steps::job::{Job, Step};

/// At any time, for those who look after the server.
const RULES: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

/// What it takes to ask for figures of the process, the system among those who are asked.
pub(crate) const PROCESS_NS: u64 = 13_000;

/// What FUNCTION DUMP answers is no longer.
const NO_FUNCTIONS_BYTES_MAX: usize = 4 << 10;

pub(crate) const ROWS: &[Command] = &[
    Command::args("flushall", -1, WRITE | FLUSHES, NO_KEYS, |call, args| flush(call, args, true))
        .tells(Tells::Nothing)
        .with(EMPTIES | TAKES_ALL)
        .doc("1.0.0", "[ASYNC|SYNC]", "Removes all keys."),
    Command::args("flushdb", -1, WRITE | FLUSHES, NO_KEYS, |call, args| flush(call, args, false))
        .tells(Tells::Nothing)
        .with(EMPTIES | TAKES_ALL)
        .doc("1.0.0", "[ASYNC|SYNC]", "Removes all keys of the selected database."),
    Command::args("swapdb", 3, WRITE | FAST | FLUSHES, NO_KEYS, copy::swap)
        .tells(Tells::Nothing)
        .with(TAKES_ALL)
        .doc("4.0.0", "index1 index2", "Swaps two databases."),
    Command::args("dbsize", 1, READONLY | FAST, NO_KEYS, db_size).with(TAKES_ALL).doc(
        "1.0.0",
        "",
        "How many keys the selected database has.",
    ),
    Command::args("time", 1, LOADING | STALE | FAST, NO_KEYS, time).doc(
        "2.6.0",
        "",
        "The time in seconds and microseconds.",
    ),
    Command::args("info", -1, LOADING | STALE, NO_KEYS, info::info).with(TAKES_ALL).doc(
        "1.0.0",
        "[section [section ...]]",
        "Figures of the server.",
    ),
    Command { arity: -1, flags: LOADING | STALE, ..Command::container("command", introspect::ROWS) }.doc(
        "2.8.13",
        "",
        "What commands there are.",
    ),
    Command::container("config", config::ROWS).doc("2.0.0", "", "Parameters."),
    Command::container("slowlog", slowlog::SLOWLOG).doc("2.2.12", "", "Commands that took long."),
    Command::container("latency", latency::ROWS).doc("2.8.13", "", "Events that took long."),
    Command::container("memory", object::MEMORY).doc("4.0.0", "", "What memory is used for."),
    Command { flags: RULES | GUARDED, ..Command::container("debug", debug::ROWS) }.doc(
        "1.0.0",
        "",
        "For tests.",
    ),
    Command::container("acl", acl::ROWS).doc("6.0.0", "", "Users: each may do everything."),
    Command::container("function", FUNCTION).doc("7.0.0", "", "Functions: there are none."),
    Command::container("module", absent::MODULE).doc("4.0.0", "", "Modules: there are none."),
    absent::SAVE,
    absent::BGSAVE,
    absent::BGREWRITEAOF,
    Command::args("role", 1, LOADING | STALE | NOSCRIPT | FAST, NO_KEYS, role).doc(
        "2.8.12",
        "",
        "That this is a master without replicas.",
    ),
    Command::args("lastsave", 1, LOADING | STALE | FAST, NO_KEYS, |call, _| {
        call.spend(PROCESS_NS);
        let (now_s, uptime_s) = (call.cx.now() / 1000, call.cx.host.process().uptime_s);
        call.integer(call.cx.shared.started_s(now_s, uptime_s) as i64)
    })
    .doc("1.0.0", "", "When the server started: nothing is saved."),
    Command::args("shutdown", -1, RULES | NO_MULTI | ALLOW_BUSY, NO_KEYS, shutdown).doc(
        "1.0.0",
        "[NOSAVE|SAVE] [NOW] [FORCE]",
        "Stops the server, if it was started with -A.",
    ),
];

/// What there is none of: scripts.
fn no_scripts(_: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    Err(Fail::of("ERR scripts and functions are not run here"))
}

const FUNCTION: &[Command] = &[
    Command::args("function|flush", -2, WRITE | NOSCRIPT, NO_KEYS, |call, mut args| {
        match (args.next(), args.next()) {
            (_, Some(_)) => Err(Fail::subcommand_arity("FUNCTION", "FLUSH")),
            (None, None) => call.ok(),
            (Some(word), None) if is(word, "ASYNC") || is(word, "SYNC") => call.ok(),
            _ => Err(Fail::of("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
        }
    })
    .tells(Tells::Nothing)
    .doc("7.0.0", "[ASYNC|SYNC]", "Accepted: there are no functions."),
    Command::args("function|list", -2, NOSCRIPT, NO_KEYS, |call, mut args| {
        while let Some(word) = args.next() {
            if is(word, "LIBRARYNAME") {
                args.next().ok_or(Fail::of("ERR library name argument was not given"))?;
            } else if !is(word, "WITHCODE") {
                let word = super::fail::shown(word, 128);
                return Err(Fail::with(format!("ERR Unknown argument {word}")));
            }
        }
        call.array(0);
        Ok(())
    })
    .doc("7.0.0", "[LIBRARYNAME pattern] [WITHCODE]", "No functions."),
    Command::args("function|stats", 2, NOSCRIPT | ALLOW_BUSY, NO_KEYS, |call, _| {
        call.map(2);
        put_bulk(call.out, b"running_script");
        call.null()?;
        put_bulk(call.out, b"engines");
        call.map(0);
        Ok(())
    })
    .doc("7.0.0", "", "What runs: nothing, by no engine."),
    Command::args("function|kill", 2, NOSCRIPT | ALLOW_BUSY, NO_KEYS, |_, _| {
        Err(Fail::of("NOTBUSY No scripts in execution right now."))
    })
    .doc("7.0.0", "", "Fails: nothing runs."),
    Command::args("function|delete", 3, WRITE | NOSCRIPT, NO_KEYS, |_, _| {
        Err(Fail::of("ERR Library not found"))
    })
    .tells(Tells::Nothing)
    .doc("7.0.0", "library-name", "Fails: there are no libraries."),
    Command::args("function|load", -3, WRITE | NOSCRIPT, NO_KEYS, no_scripts).tells(Tells::Nothing).doc(
        "7.0.0",
        "[REPLACE] function-code",
        "Fails: functions are not run.",
    ),
    Command::args("function|dump", 2, NOSCRIPT, NO_KEYS, |call, _| {
        call.bulk(&crate::redis::keys::serialize::dump_nothing())
    })
    .doc("7.0.0", "", "All functions in a form that FUNCTION RESTORE reads: none."),
    Command::args("function|restore", -3, WRITE | NOSCRIPT, NO_KEYS, |call, mut args| {
        let payload = next(&mut args)?;
        match args.at(0) {
            _ if args.len() > 1 => return Err(Fail::subcommand_arity("FUNCTION", "RESTORE")),
            Some(word) if !["FLUSH", "APPEND", "REPLACE"].iter().any(|policy| is(word, policy)) => {
                return Err(Fail::of(
                    "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
                ));
            }
            _ => {}
        }
        // That there are none can be restored. What is longer has some, whatever its checksum is.
        if payload.len() > NO_FUNCTIONS_BYTES_MAX {
            return no_scripts(call, args);
        }
        match crate::redis::keys::serialize::verified(payload)? {
            [] => call.ok(),
            _ => no_scripts(call, args),
        }
    })
    .tells(Tells::Nothing)
    .doc(
        "7.0.0",
        "serialized-value [FLUSH|APPEND|REPLACE]",
        "Fails, unless there are none: functions are not run.",
    ),
    Command::args("function|help", 2, LOADING | STALE, NO_KEYS, |call, _| introspect::help(call, "function"))
        .doc("7.0.0", "", "What FUNCTION can do."),
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

/// A flush, which behind very many others waits until what they left is cleaned up.
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

fn shutdown(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let known = ["NOSAVE", "SAVE", "NOW", "FORCE"];
    if !args.all(|word| known.iter().any(|name| is(word, name))) {
        return Err(Fail::SYNTAX);
    }
    if !call.cx.shared.settings.shutdown {
        return Err(Fail::of("ERR shutdown is not enabled; start the server with -A"));
    }
    call.cx.host.shutdown(false);
    call.flow = Flow::Close;
    Ok(())
}

fn time(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let now = call.cx.now();
    call.array(2);
    call.bulk((now / 1000).to_string().as_bytes())?;
    call.bulk((now % 1000 * 1000).to_string().as_bytes())
}
