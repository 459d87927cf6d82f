//! HOTKEYS: which keys take most time and traffic, from START to STOP, in Redis's form.
//!
//! Keys are counted by a sample of all traffic, of both protocols (`core/traffic.rs`). While that is little, each access is
//! counted; else as many as workers have time for, and the report is an estimate. `SAMPLE ratio` reduces the work; as in Redis,
//! the report then shows that part of all.

use larder_protocol::resp::Args;

use super::PROCESS_NS;
use crate::core::traffic::{COUNT_NS, Metrics, Session, Start};
use crate::redis::call::{Call, is};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::put_bulk;
use crate::redis::row::flag::{ADMIN, LOADING, NOSCRIPT, SHOWS_KEYS, STALE, WEIGHTLESS};
use crate::redis::row::{Command, NO_KEYS};

const RULES: u64 = ADMIN | NOSCRIPT | WEIGHTLESS;

pub(crate) const ROWS: &[Definition] = &[
    Command::args("hotkeys|start", -2, RULES, NO_KEYS, start).doc(
        "8.6.0",
        "METRICS count [CPU] [NET] [COUNT k] [DURATION seconds] [SAMPLE ratio]",
        "Begins to look which keys take most.",
    ),
    Command::args("hotkeys|stop", 2, RULES, NO_KEYS, stop).doc(
        "8.6.0",
        "",
        "Stops the search; GET still shows what it found.",
    ),
    Command::args("hotkeys|get", 2, RULES | SHOWS_KEYS, NO_KEYS, get).doc(
        "8.6.0",
        "",
        "Which keys took most, and how much.",
    ),
    Command::args("hotkeys|reset", 2, RULES, NO_KEYS, reset).doc("8.6.0", "", "Forgets what was found."),
    Command::args("hotkeys|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
        crate::redis::help::help(call, "hotkeys")
    })
    .doc("8.6.0", "", "What HOTKEYS can do."),
];

/// Keys that are shown if the client gives no number, and at most.
const COUNT: usize = 10;
const COUNT_MAX: i64 = 64;
/// The longest session, in seconds.
const DURATION_MAX_S: i64 = 1_000_000;
/// The last slot of a cluster: this server has all slots.
const SLOT_MAX: i64 = 16_383;

/// Parses a number within bounds.
///
/// # Errors
/// It is no number, or out of bounds: `why`.
fn within(word: &[u8], least: i64, most: i64, why: &'static str) -> Result<u64, Fail> {
    let n = larder_protocol::resp::parse_integer(word).filter(|n| (least..=most).contains(n));
    n.map(i64::unsigned_abs).ok_or(Fail::of(why))
}

/// Parses METRICS: what is measured.
///
/// # Errors
/// Nothing is, a metric is given twice, or there are fewer words than their count.
fn metrics(args: &mut Args<'_>) -> Result<Metrics, Fail> {
    let required = || Fail::of("ERR METRICS parameter is required");
    let (Some(word), Some(count)) = (args.next(), args.next()) else { return Err(required()) };
    if !is(word, "METRICS") {
        return Err(required());
    }
    let count = within(count, 1, 2, "ERR METRICS count must be > 0 and <= 2")?;
    let mut metrics = Metrics { cpu: false, net: false };
    for _ in 0..count {
        let Some(word) = args.next() else {
            return Err(Fail::of("ERR METRICS count does not match number of metric types provided"));
        };
        // Unknown metrics are ignored: later versions may have more.
        let (found, why) = if is(word, "CPU") {
            (&mut metrics.cpu, "ERR METRICS CPU defined more than once!")
        } else if is(word, "NET") {
            (&mut metrics.net, "ERR METRICS NET defined more than once!")
        } else {
            continue;
        };
        if std::mem::replace(found, true) {
            return Err(Fail::of(why));
        }
    }
    if !metrics.cpu && !metrics.net {
        return Err(Fail::of("ERR METRICS no valid metrics passed. Supported: CPU|NET"));
    }
    Ok(metrics)
}

impl Call<'_, '_, '_> {
    /// The server's own clock, in milliseconds.
    fn own_ms(&self) -> u64 {
        self.cx.host.clock_us() / 1000
    }

    /// Counts waiting samples, then calls `work` with the session, whose time may be over.
    fn with_hotkeys<R>(&mut self, work: impl FnOnce(&mut Option<Session>) -> R) -> R {
        let (traffic, now) = (&self.cx.shared.traffic, self.own_ms());
        let counted = traffic.count(self.cx.guard.store(), now);
        let done = traffic.with_session(self.cx.guard.store(), work);
        self.cx.room.tap().tend(traffic, self.cx.guard.store(), now);
        self.spend(counted as u64 * COUNT_NS);
        done
    }
}

const IN_PROGRESS: Fail = Fail::of("ERR hotkey tracking session already in progress");

fn start(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    if call.with_hotkeys(|session| session.as_ref().is_some_and(Session::is_active)) {
        return Err(IN_PROGRESS);
    }
    let metrics = metrics(&mut args)?;
    let (mut count, mut ends_after_ms, mut ratio) = (COUNT, None, 1);
    while let Some(option) = args.next() {
        let Some(value) = args.clone().next() else { return Err(Fail::SYNTAX) };
        if is(option, "COUNT") {
            count = within(value, 1, COUNT_MAX, "ERR COUNT must be between 1 and 64")? as usize;
        } else if is(option, "DURATION") {
            let why = "ERR DURATION must be between 1 and 1000000";
            ends_after_ms = Some(within(value, 1, DURATION_MAX_S, why)? * 1000);
        } else if is(option, "SAMPLE") {
            ratio = within(value, 1, i32::MAX.into(), "ERR SAMPLE ratio must be positive")?;
        } else if is(option, "SLOTS") {
            return Err(Fail::of("ERR SLOTS parameter cannot be used in non-cluster mode"));
        } else {
            return Err(Fail::SYNTAX);
        }
        args.next();
    }
    call.spend(PROCESS_NS);
    let process = call.cx.host.process();
    let start = Start { metrics, count, ends_after_ms, ratio, at_ms: call.cx.now(), process };
    let (store, now) = (std::sync::Arc::clone(call.cx.guard.store()), call.own_ms());
    let begun = call.with_hotkeys(|session| {
        let free = !session.as_ref().is_some_and(Session::is_active);
        if free {
            *session = Some(Session::begin(start, &store, now));
        }
        free
    });
    // Another client may have begun a session meanwhile.
    if begun { call.ok() } else { Err(IN_PROGRESS) }
}

fn stop(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let now = call.own_ms();
    let ended = call.with_hotkeys(|session| {
        let active = session.as_mut().filter(|session| session.is_active());
        active.map(|session| session.end(now)).is_some()
    });
    if ended { call.ok() } else { call.null() }
}

fn reset(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let active = call.with_hotkeys(|session| {
        let active = session.as_ref().is_some_and(Session::is_active);
        if !active {
            *session = None;
        }
        active
    });
    if active {
        return Err(Fail::of("ERR hotkey tracking session in progress, stop tracking first"));
    }
    call.ok()
}

/// Keys and how much each took.
type Listed = Option<Vec<(Box<[u8]>, u64)>>;

/// What a session found.
struct Report {
    active: bool,
    start: Start,
    lasted_ms: u64,
    cpu_us: u64,
    net_bytes: u64,
    by_cpu: Listed,
    by_net: Listed,
}

/// Work to look through a table of keys, and bytes of a key in the reply.
const TABLE_NS: u64 = 20_000;
const KEY_REPLY_BYTES: usize = 320;

fn get(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let now = call.own_ms();
    let told = call.with_hotkeys(|session| {
        let session = session.as_ref()?;
        let (cpu_us, net_bytes) = session.totals();
        Some(Report {
            active: session.is_active(),
            start: session.start.clone(),
            lasted_ms: session.lasted_ms(now),
            cpu_us,
            net_bytes,
            by_cpu: session.by_cpu(),
            by_net: session.by_net(),
        })
    });
    let Some(told) = told else { return call.null() };
    call.spend(2 * TABLE_NS + PROCESS_NS);
    let keys = told.by_cpu.as_ref().map_or(0, Vec::len) + told.by_net.as_ref().map_or(0, Vec::len);
    call.make_room((keys + 8) * KEY_REPLY_BYTES)?;
    let mut numbers: Vec<(&str, u64)> = vec![
        ("all-commands-all-slots-us", told.cpu_us),
        ("net-bytes-all-commands-all-slots", told.net_bytes),
        ("collection-start-time-unix-ms", told.start.at_ms),
        ("collection-duration-ms", told.lasted_ms),
    ];
    if told.by_cpu.is_some() {
        let (now, then) = (call.cx.host.process(), &told.start.process);
        numbers.push(("total-cpu-time-user-ms", now.user_us.saturating_sub(then.user_us) / 1000));
        numbers.push(("total-cpu-time-sys-ms", now.system_us.saturating_sub(then.system_us) / 1000));
    }
    if told.by_net.is_some() {
        numbers.push(("total-net-bytes", told.net_bytes / told.start.ratio.max(1)));
    }
    let lists = [("by-cpu-time-us", told.by_cpu), ("by-net-bytes", told.by_net)];
    let lists: Vec<_> = lists.into_iter().filter_map(|(name, list)| Some((name, list?))).collect();
    // An array of one node, as Redis's tools merge those of several.
    call.array(1);
    call.map(3 + numbers.len() + lists.len());
    call.bulk(b"tracking-active")?;
    call.integer(told.active.into())?;
    call.bulk(b"sample-ratio")?;
    call.integer(told.start.ratio as i64)?;
    call.bulk(b"selected-slots")?;
    call.array(1);
    call.array(2);
    call.integer(0)?;
    call.integer(SLOT_MAX)?;
    for (name, number) in numbers {
        call.bulk(name.as_bytes())?;
        call.integer(i64::try_from(number).unwrap_or(i64::MAX))?;
    }
    for (name, list) in lists {
        call.bulk(name.as_bytes())?;
        call.array(2 * list.len());
        for (key, weight) in list {
            put_bulk(call.out, &key);
            call.integer(i64::try_from(weight).unwrap_or(i64::MAX))?;
        }
    }
    Ok(())
}
