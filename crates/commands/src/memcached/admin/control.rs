//! version, verbosity, flush_all, cache_memlimit, shutdown, quit, refresh_certs, debugtime.

use larder_protocol::Fault;
use larder_protocol::number::{parse_c_u64, parse_i32, parse_u32};
use larder_store::Millis;

use crate::core::context::Context;
use crate::core::counters::Counter;
use crate::core::host::CERTIFICATES_NS;
use crate::core::progress::Ending;
use crate::core::shared::VERSION;
use crate::memcached::dump::Dump;
use crate::memcached::flow::Flow;
use crate::memcached::line::Line;
use crate::memcached::shared::Shared;
use crate::memcached::text::{ERROR, OK};
use crate::memcached::time::expires_at;

/// Highest level of verbosity.
pub(crate) const VERBOSITY_MAX: u32 = 2;
/// Seconds of memcached's clock when it starts.
const CLOCK_AT_START_S: u64 = 62;
/// Fewest megabytes that cache_memlimit takes.
const MEMLIMIT_MIN_MB: u64 = 8;
/// Most megabytes that cache_memlimit takes: a greater number was meant as bytes.
const MEMLIMIT_MAX_MB: u64 = 1_000_000_000;

/// version
pub(crate) fn version(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    line.out.put(b"VERSION ");
    line.out.put(VERSION.as_bytes());
    line.out.put(b"\r\n");
    Flow::Next
}

/// quit
pub(crate) fn quit(_line: &mut Line<'_, '_, '_, '_>) -> Flow {
    Flow::Close(Ending::Quit)
}

/// `verbosity <level>`
pub(crate) fn verbosity(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    line.out.put(match line.tokens.first().map(|level| parse_u32(level)) {
        None | Some(None) => Fault::BadLine.reply(),
        Some(Some(level)) => {
            line.cx.host.verbosity(level.min(VERBOSITY_MAX) as u8);
            OK
        }
    });
    Flow::Next
}

/// `flush_all [delay]`
pub(crate) fn flush_all(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    line.cx.counters.add(Counter::CmdFlush, 1);
    if !line.cx.shared.settings.flush {
        line.out.put(b"CLIENT_ERROR flush_all not allowed\r\n");
        return Flow::Next;
    }
    let delay = match line.tokens.first() {
        None => 0,
        Some(token) => match parse_i32(token) {
            Some(delay) => delay,
            None => {
                line.out.put(Fault::BadExptime.reply());
                return Flow::Next;
            }
        },
    };
    let at = (delay > 0).then(|| expires_at(delay, line.cx.now()));
    if !flush(line.shared, line.cx, at) {
        return Flow::Dump(Dump::Flush { noreply: line.noreply, form: line.form });
    }
    line.out.put(OK);
    Flow::Next
}

/// Removes everything, now or at the time `at`. False if it takes steps: then the caller goes on with them.
pub(crate) fn flush(shared: &Shared, cx: &mut Context<'_, '_>, at: Option<Millis>) -> bool {
    let now = cx.now();
    note_oldest(shared, cx, at.unwrap_or(now));
    let Some(at) = at else { return cx.shared.flush_now(&mut cx.guard) };
    cx.shared.flush_later(at, now);
    cx.shared.flush_if_due(&mut cx.guard);
    true
}

/// Notes for `stats settings`, as memcached does, which items stay: those from this second on. With versions, items of the
/// flush's own second go, if they were there before.
fn note_oldest(shared: &Shared, cx: &Context<'_, '_>, at: Millis) {
    let moved_s = cx.shared.clock.moved_ms() / 1000;
    let clock_s = CLOCK_AT_START_S + cx.host.clock_us() / 1_000_000;
    let due_s = clock_s.saturating_add_signed(moved_s) + at.saturating_sub(cx.now()) / 1000;
    shared.oldest_s.set(due_s.saturating_sub(u64::from(cx.shared.settings.cas)));
}

/// `cache_memlimit <megabytes>`
pub(crate) fn cache_memlimit(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    // Words behind the number are ignored, whatever they say, as memcached does.
    let megabytes = line.tokens.first().and_then(|number| parse_c_u64(number));
    // Its numbers have 32 bits.
    let megabytes = megabytes.filter(|&mb| mb <= u64::from(u32::MAX));
    line.out.put(match megabytes {
        None => ERROR,
        Some(mb) if mb < MEMLIMIT_MIN_MB => b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
        Some(mb) if mb > MEMLIMIT_MAX_MB => b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
        Some(mb) if line.cx.guard.store().set_memory_bytes(mb << 20) => OK,
        Some(_) => b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
    });
    Flow::Next
}

/// `shutdown [graceful]`
pub(crate) fn shutdown(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    if !line.cx.shared.settings.shutdown {
        line.out.put(b"SERVER_ERROR: shutdown not enabled\r\n");
        return Flow::Next;
    }
    match line.tokens[..] {
        [] => line.cx.host.shutdown(false),
        [b"graceful"] => line.cx.host.shutdown(true),
        _ => {
            line.out.put(b"CLIENT_ERROR invalid shutdown mode\r\n");
            return Flow::Next;
        }
    }
    Flow::Close(Ending::Shutdown)
}

/// `refresh_certs`
pub(crate) fn refresh_certs(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    line.cx.room.work().spend(CERTIFICATES_NS);
    match line.cx.host.refresh_certificates() {
        None => line.out.put(b"Error TLS not enabled\r\n"),
        Some(Ok(())) => line.out.put(b"OK\r\n"),
        Some(Err(why)) => {
            line.out.put(why.as_bytes());
            line.out.put(b"\r\n");
        }
    }
    Flow::Next
}

/// `debugtime p | r | <seconds>`: stops the clock, lets it run, moves it. Only with
/// `-o relaxed_privileges`.
pub(crate) fn debugtime(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    let clock = &line.cx.shared.clock;
    match line.tokens[..] {
        _ if !line.cx.shared.settings.debugtime => {
            line.out.put(ERROR);
            return Flow::Next;
        }
        [b"p"] => clock.stop(line.cx.now()),
        [b"r"] => clock.resume(),
        [delta] => match parse_i32(delta) {
            Some(seconds) => clock.shift(i64::from(seconds) * 1000),
            None => {
                line.out.put(ERROR);
                return Flow::Next;
            }
        },
        _ => {
            line.out.put(ERROR);
            return Flow::Next;
        }
    }
    line.out.put(OK);
    Flow::Yield
}
