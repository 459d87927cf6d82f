//! Commands about the server and the keyspace as a whole.

use larder_protocol::resp::Args;

use super::call::{Call, is};
use super::fail::{Done, Fail};
use super::table::flag::{FAST, LOADING, STALE, WRITE};
use super::table::{Command, NO_KEYS};
use crate::counters::Counter;

pub(crate) const ROWS: &[Command] = &[
    Command::args("flushall", -1, WRITE, NO_KEYS, flush).doc("1.0.0", "[ASYNC|SYNC]", "Removes all keys."),
    Command::args("flushdb", -1, WRITE, NO_KEYS, flush).doc(
        "1.0.0",
        "[ASYNC|SYNC]",
        "Removes all keys of the selected database.",
    ),
    Command::args("time", 1, LOADING | STALE | FAST, NO_KEYS, time).doc(
        "2.6.0",
        "",
        "The time in seconds and microseconds.",
    ),
];

fn flush(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    match (args.next(), args.next()) {
        (None, _) => {}
        (Some(word), None) if is(word, "ASYNC") || is(word, "SYNC") => {}
        _ => return Err(Fail::SYNTAX),
    }
    call.cx.counters.add(Counter::CmdFlush, 1);
    if !call.cx.shared.settings.flush {
        return Err(Fail::of("ERR flushing is not allowed"));
    }
    call.cx.shared.flush_now(&mut call.cx.guard);
    call.ok()
}

fn time(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let now = call.cx.now();
    call.array(2);
    call.bulk((now / 1000).to_string().as_bytes())?;
    call.bulk((now % 1000 * 1000).to_string().as_bytes())
}
