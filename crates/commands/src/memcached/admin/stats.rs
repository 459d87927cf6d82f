//! stats and its sub-commands.

use std::fmt::Display;
use std::io::Write;

use larder_protocol::Fault;
use larder_protocol::number::parse_u32;

use super::Line;
use crate::core::counters::Sums;
use crate::core::figures;
use crate::core::findings;
use crate::core::output::Output;
use crate::core::traffic::{Parts, Shares};
use crate::memcached::class_stats::{ClassKey, ITEM_KEYS, SLAB_KEYS};
use crate::memcached::dump::Dump;
use crate::memcached::flow::Flow;
use crate::memcached::slabs::{CLASSES_END, PAGE_BYTES, SPANS_PER_PAGE, Slab};
use crate::memcached::stats::{Figures, KEYS};
use crate::memcached::text::{END, ERROR, OK};

/// stats [settings | items | slabs | sizes | conns | memory | doctor | hotkeys | prefixes | forecast | latency | reset | detail | cachedump]
pub(crate) fn stats(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    match line.tokens.first().copied() {
        None => general(line),
        Some(b"settings") => {
            let out = &mut *line.out;
            line.cx.host.settings(&mut |name, value| put_stat(out, &name, value));
        }
        Some(b"items") => items(line),
        Some(b"slabs") => slabs(line),
        Some(b"sizes") if line.cx.shared.settings.track_sizes => {
            return Flow::Dump(Dump::sizes(line.cx.guard.store()));
        }
        Some(b"sizes") => put_stat(line.out, &"sizes_status", &"disabled"),
        Some(b"memory") => memory(line),
        Some(b"doctor") => doctor(line),
        Some(name @ (b"hotkeys" | b"prefixes")) if !line.cx.shared.settings.dump => {
            line.out.put(b"CLIENT_ERROR stats ");
            line.out.put(name);
            line.out.put(b" not allowed\r\n");
            return Flow::Next;
        }
        Some(b"hotkeys") => shares(line, "hotkeys", line.cx.hot_keys()),
        Some(b"prefixes") => shares(line, "prefixes", line.cx.prefix_shares()),
        Some(b"forecast") => forecast(line),
        Some(b"latency") => latency(line),
        Some(b"conns") => return Flow::Dump(Dump::connections()),
        Some(b"reset") => {
            figures::reset(line.cx);
            line.out.put(b"RESET\r\n");
            return Flow::Next;
        }
        Some(b"detail") => return detail(line),
        Some(b"cachedump") => return cachedump(line),
        Some(_) => {
            line.out.put(ERROR);
            return Flow::Next;
        }
    }
    line.out.put(END);
    Flow::Next
}

fn put_stat(out: &mut Output, name: &dyn Display, value: &dyn Display) {
    write!(out, "STAT {name} {value}\r\n").expect("an output takes everything");
}

fn general(line: &mut Line<'_, '_, '_, '_>) {
    let figures = Figures::gather(line.shared, line.cx);
    for key in KEYS.iter().filter(|key| key.is_shown(&line.cx.shared.settings)) {
        put_stat(line.out, &key.name, &key.value(&figures));
    }
}

/// What is found: of each rule its severity, what says so, and what to do.
fn doctor(line: &mut Line<'_, '_, '_, '_>) {
    for finding in findings::find_for(line.cx) {
        for (name, text) in finding.parts() {
            put_stat(line.out, &format_args!("{}:{name}", finding.rule.name), &text);
        }
    }
}

/// What counts against the memory limit, in all and use by use. `bytes` of `stats` are the items alone, as memcached has it.
fn memory(line: &mut Line<'_, '_, '_, '_>) {
    let (totals, ledger) = figures::memory(line.cx);
    put_stat(line.out, &"limit", &totals.memory_bytes);
    put_stat(line.out, &"used", &totals.used_bytes);
    put_stat(line.out, &"held", &totals.held_bytes);
    for (name, _, bytes) in ledger.uses() {
        put_stat(line.out, &format_args!("use:{name}"), &bytes);
    }
}

/// What is asked for most: of each key or prefix, by its rank, its parts.
fn shares<R: Parts>(line: &mut Line<'_, '_, '_, '_>, name: &str, told: Option<Shares<R>>) {
    let Some(told) = told else {
        return put_stat(line.out, &format_args!("{name}_status"), &"disabled");
    };
    put_stat(line.out, &"seconds", &format_args!("{:.1}", told.seconds));
    put_stat(line.out, &"requests", &told.all);
    put_stat(line.out, &"samples", &told.samples);
    for (nth, row) in told.rows.iter().enumerate() {
        row.each_part(&mut |name, value| {
            put_stat(line.out, &format_args!("{}:{name}", nth + 1), value);
            Ok(())
        })
        .expect("nothing fails");
    }
}

/// What other memory limits would bring.
fn forecast(line: &mut Line<'_, '_, '_, '_>) {
    match line.cx.shared.traffic.told().outlook {
        Some(outlook) => outlook.each(&mut |name, value| put_stat(line.out, &name, value)),
        None => put_stat(line.out, &"forecast_status", &"disabled"),
    }
}

/// What it takes to add up what workers have timed.
const STAGES_NS: u64 = 20_000;

/// How long requests of each protocol took, stage by stage, of those that were timed.
fn latency(line: &mut Line<'_, '_, '_, '_>) {
    line.cx.room.work().spend(STAGES_NS);
    let out = &mut *line.out;
    line.cx.host.stage_times(&mut |times| {
        let (protocol, stage) = (times.protocol, times.stage);
        put_stat(out, &format_args!("{protocol}:{stage}:count"), &times.count);
        times.each_quantile(&mut |name, us| {
            put_stat(out, &format_args!("{protocol}:{stage}:{name}"), &format_args!("{us:.1}"));
        });
    });
}

fn items(line: &mut Line<'_, '_, '_, '_>) {
    let sums = figures::sums(line.cx);
    for slab in slabs_now(line).iter().filter(|slab| slab.totals.items > 0) {
        put_class(line, "items:", slab, ITEM_KEYS, &sums);
    }
}

fn slabs(line: &mut Line<'_, '_, '_, '_>) {
    let slabs = slabs_now(line);
    let sums = figures::sums(line.cx);
    for slab in &slabs {
        put_class(line, "", slab, SLAB_KEYS, &sums);
    }
    let malloced: u64 = slabs.iter().map(|slab| slab.totals.spans * PAGE_BYTES / SPANS_PER_PAGE).sum();
    put_stat(line.out, &"active_slabs", &slabs.len());
    put_stat(line.out, &"total_malloced", &malloced);
}

fn slabs_now(line: &Line<'_, '_, '_, '_>) -> Vec<Slab> {
    line.shared.slabs.sum(&figures::classes(line.cx))
}

fn put_class(line: &mut Line<'_, '_, '_, '_>, prefix: &str, slab: &Slab, keys: &[ClassKey], sums: &Sums) {
    let shared = line.shared;
    for key in keys.iter().filter(|key| !key.maintainer || line.cx.shared.settings.lru_maintainer) {
        let value = key.source.value(slab, &shared.slabs, sums);
        put_stat(line.out, &format_args!("{prefix}{}:{}", slab.totals.id, key.name), &value);
    }
}

fn detail(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    let reply: &[u8] = match line.tokens[1..] {
        _ if !line.cx.shared.settings.dump => b"CLIENT_ERROR stats detail not allowed\r\n",
        [b"on"] => {
            line.cx.shared.prefixes.turn(true);
            OK
        }
        [b"off"] => {
            line.cx.shared.prefixes.turn(false);
            OK
        }
        [b"dump"] => return Flow::Dump(Dump::prefixes()),
        _ => b"CLIENT_ERROR usage: stats detail on|off|dump\r\n",
    };
    line.out.put(reply);
    Flow::Next
}

fn cachedump(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    let reply: &[u8] = match line.tokens[1..] {
        _ if !line.cx.shared.settings.dump => b"CLIENT_ERROR stats cachedump not allowed\r\n",
        [class, items, ..] => match (parse_u32(class), parse_u32(items)) {
            (Some(class), Some(items)) if class < u32::from(CLASSES_END) => {
                return Flow::Dump(Dump::cache(class as u8, items.into()));
            }
            (Some(_), Some(_)) => b"CLIENT_ERROR Illegal slab id\r\n",
            _ => Fault::BadLine.reply(),
        },
        _ => b"CLIENT_ERROR bad command line\r\n",
    };
    line.out.put(reply);
    Flow::Next
}
