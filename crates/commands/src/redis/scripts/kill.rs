//! Running scripts, as others see them: SCRIPT KILL, FUNCTION KILL, and what FUNCTION STATS shows.

use larder_script::Kill;

use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_array, put_bulk, put_integer, put_map};

const NOT_BUSY: Fail = Fail::of("NOTBUSY No scripts in execution right now.");
const UNKILLABLE: Fail = Fail::of(
    "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
);
const FUNCTION_RUNS: Fail =
    Fail::of("BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.");

/// Ends the scripts, or the functions, of all workers that have changed nothing.
pub(crate) fn kill(call: &mut Call<'_, '_, '_>, functions: bool) -> Done {
    let (mut ends, mut wrote, mut others) = (0, 0, 0);
    call.shared.scripts.each_running(|running| {
        if running.is_function() != functions {
            others += usize::from(running.works());
            return;
        }
        match running.kill() {
            Kill::Idle => {}
            Kill::Wrote => wrote += 1,
            Kill::Ends => ends += 1,
        }
    });
    match (ends, wrote, others) {
        (0, 0, 0) => Err(NOT_BUSY),
        (0, 0, _) => Err(if functions { Fail::BUSY } else { FUNCTION_RUNS }),
        (0, ..) => Err(UNKILLABLE),
        _ => call.ok(),
    }
}

/// Replies a function that has run for some time.
pub(crate) fn show(call: &mut Call<'_, '_, '_>) {
    let now_us = call.cx.host.clock_us();
    let mut found = None;
    call.shared.scripts.each_running(|running| {
        if running.is_function() {
            found = found.take().or(running.shown());
        }
    });
    let resp3 = call.client.resp3;
    let Some(shown) = found else {
        let _ = call.null();
        return;
    };
    put_map(call.out, resp3, 3);
    put_bulk(call.out, b"name");
    put_bulk(call.out, shown.name.as_bytes());
    put_bulk(call.out, b"command");
    put_array(call.out, shown.words.len());
    for word in &shown.words {
        put_bulk(call.out, word);
    }
    put_bulk(call.out, b"duration_ms");
    put_integer(call.out, (now_us.saturating_sub(shown.since_us) / 1000) as i64);
}
