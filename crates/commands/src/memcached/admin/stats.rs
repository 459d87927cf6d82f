//! stats and its sub-commands.

use std::fmt::Display;

use larder_protocol::Fault;
use larder_protocol::binary::Status;
use larder_protocol::number::parse_u32;

use crate::core::calls::measured;
use crate::core::counters::Sums;
use crate::core::figures;
use crate::core::findings;
use crate::core::traffic::{Parts, Shares};
use crate::memcached::class_stats::{ClassKey, ITEM_KEYS, SLAB_KEYS};
use crate::memcached::dump::Dump;
use crate::memcached::flow::Flow;
use crate::memcached::form::Form;
use crate::memcached::line::Line;
use crate::memcached::slabs::{CLASSES_END, PAGE_BYTES, SPANS_PER_PAGE, Slab};
use crate::memcached::stats::{Figures, KEYS};
use crate::memcached::text::ERROR;

/// stats [settings | items | slabs | sizes | conns | memory | types | doctor | hotkeys | prefixes | forecast | latency | commands | reset |
/// detail | cachedump]
pub(crate) fn stats(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    match line.tokens.first().copied() {
        None => general(line),
        Some(b"settings") => {
            let (out, form) = (&mut *line.out, line.form);
            line.cx.host.settings(&mut |name, value| form.put(out, &name, value));
        }
        Some(b"items") => items(line),
        Some(b"slabs") => slabs(line),
        Some(b"sizes") if line.cx.shared.settings.track_sizes => {
            return Flow::Dump(Dump::sizes(line.cx.guard.store(), line.form));
        }
        Some(b"sizes") => put_stat(line, &"sizes_status", &"disabled"),
        Some(b"memory") => memory(line),
        Some(b"types") => types(line),
        Some(b"doctor") => doctor(line),
        Some(b"hotkeys") if !line.cx.shared.settings.dump => {
            return refuse(line, b"CLIENT_ERROR stats hotkeys not allowed\r\n");
        }
        Some(b"prefixes") if !line.cx.shared.settings.dump => {
            return refuse(line, b"CLIENT_ERROR stats prefixes not allowed\r\n");
        }
        Some(b"hotkeys") => shares(line, "hotkeys", line.cx.hot_keys()),
        Some(b"prefixes") => shares(line, "prefixes", line.cx.prefix_shares()),
        Some(b"forecast") => forecast(line),
        Some(b"latency") => latency(line),
        Some(b"commands") => commands(line),
        Some(b"conns") => return Flow::Dump(Dump::connections(line.form)),
        Some(b"reset") => {
            figures::reset(line.cx);
            line.form.say(line.out, b"RESET\r\n", Status::Ok);
            return Flow::Next;
        }
        Some(b"detail") => return detail(line),
        Some(b"cachedump") => return cachedump(line),
        Some(_) => {
            line.form.say(line.out, ERROR, Status::NotFound);
            return Flow::Next;
        }
    }
    line.form.end(line.out);
    Flow::Next
}

/// Refuses to show names of keys (`-X`).
fn refuse(line: &mut Line<'_, '_, '_, '_>, text: &[u8]) -> Flow {
    line.form.say(line.out, text, Status::Auth);
    Flow::Next
}

fn put_stat(line: &mut Line<'_, '_, '_, '_>, name: &dyn Display, value: &dyn Display) {
    line.form.put(line.out, name, value);
}

fn general(line: &mut Line<'_, '_, '_, '_>) {
    let figures = Figures::gather(line.shared, line.cx);
    for key in KEYS.iter().filter(|key| key.is_shown(&line.cx.shared.settings)) {
        put_stat(line, &key.name, &key.value(&figures));
    }
}

/// Lists findings: of each rule its severity, the figures that show it, and its advice.
fn doctor(line: &mut Line<'_, '_, '_, '_>) {
    for finding in findings::find_for(line.cx) {
        for (name, text) in finding.parts() {
            put_stat(line, &format_args!("{}:{name}", finding.rule.name), &text);
        }
    }
}

/// Lists what counts against the memory limit, in all and use by use. `bytes` of `stats` are the items alone, as memcached has
/// it.
fn memory(line: &mut Line<'_, '_, '_, '_>) {
    let (totals, ledger) = figures::memory(line.cx);
    put_stat(line, &"limit", &totals.memory_bytes);
    put_stat(line, &"used", &totals.used_bytes);
    put_stat(line, &"held", &totals.held_bytes);
    for (name, _, bytes) in ledger.uses() {
        put_stat(line, &format_args!("use:{name}"), &bytes);
    }
}

/// Lists totals of each type of values.
fn types(line: &mut Line<'_, '_, '_, '_>) {
    for of in figures::of_types(line.cx) {
        of.each(&mut |name, value| put_stat(line, &format_args!("{}:{name}", of.name), &value));
    }
}

/// Lists the keys or prefixes that are asked for most: of each, by its rank, its parts.
fn shares<R: Parts>(line: &mut Line<'_, '_, '_, '_>, name: &str, told: Option<Shares<R>>) {
    let Some(told) = told else {
        return put_stat(line, &format_args!("{name}_status"), &"disabled");
    };
    put_stat(line, &"seconds", &format_args!("{:.1}", told.seconds));
    put_stat(line, &"requests", &told.all);
    put_stat(line, &"samples", &told.samples);
    for (nth, row) in told.rows.iter().enumerate() {
        row.each_part(&mut |name, value| {
            put_stat(line, &format_args!("{}:{name}", nth + 1), value);
            Ok(())
        })
        .expect("nothing fails");
    }
}

/// Shows the forecast for other memory limits.
fn forecast(line: &mut Line<'_, '_, '_, '_>) {
    match line.cx.shared.traffic.told().outlook {
        Some(outlook) => outlook.each(&mut |name, value| put_stat(line, &name, value)),
        None => put_stat(line, &"forecast_status", &"disabled"),
    }
}

/// Nanoseconds to add up what workers have timed.
const STAGES_NS: u64 = 20_000;

/// Lists the times of each protocol's requests, stage by stage, of those that were timed.
fn latency(line: &mut Line<'_, '_, '_, '_>) {
    line.cx.room.work().spend(STAGES_NS);
    let (out, form) = (&mut *line.out, line.form);
    line.cx.host.stage_times(&mut |times| {
        let (protocol, stage) = (times.protocol, times.stage);
        form.put(out, &format_args!("{protocol}:{stage}:count"), &times.count);
        times.each_quantile(&mut |name, us| {
            form.put(out, &format_args!("{protocol}:{stage}:{name}"), &format_args!("{us:.1}"));
        });
    });
}

/// Lists the times of memcached's commands, of those that were measured: of each the number, the mean, percentiles, and how
/// many did not exceed each power of two, where that adds some, up to 4 s.
fn commands(line: &mut Line<'_, '_, '_, '_>) {
    let sums = figures::memcached_sums(line.cx);
    for (name, sum) in measured(line.shared.names, &sums) {
        put_stat(line, &format_args!("{name}:measured"), &sum.measured);
        put_stat(line, &format_args!("{name}:mean_us"), &format_args!("{:.2}", sum.us_per_call()));
        for (percent, shown) in [(50.0, "p50_us"), (99.0, "p99_us"), (99.9, "p999_us")] {
            put_stat(line, &format_args!("{name}:{shown}"), &sum.percentile_us(percent));
        }
        let [steps @ .., _] = &sum.steps;
        let mut within: u64 = 0;
        for (step, calls) in steps.iter().enumerate().filter(|(_, calls)| **calls > 0) {
            within += calls;
            put_stat(line, &format_args!("{name}:within_{}_us", 1u64 << step), &within);
        }
    }
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
    put_stat(line, &"active_slabs", &slabs.len());
    put_stat(line, &"total_malloced", &malloced);
}

fn slabs_now(line: &Line<'_, '_, '_, '_>) -> Vec<Slab> {
    line.shared.slabs.sum(&figures::classes(line.cx))
}

fn put_class(line: &mut Line<'_, '_, '_, '_>, prefix: &str, slab: &Slab, keys: &[ClassKey], sums: &Sums) {
    let shared = line.shared;
    for key in keys.iter().filter(|key| !key.maintainer || line.cx.shared.settings.lru_maintainer) {
        let value = key.source.value(slab, &shared.slabs, sums);
        put_stat(line, &format_args!("{prefix}{}:{}", slab.totals.id, key.name), &value);
    }
}

fn detail(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    match line.tokens[1..] {
        _ if !line.cx.shared.settings.dump => {
            return refuse(line, b"CLIENT_ERROR stats detail not allowed\r\n");
        }
        [b"on"] => line.cx.shared.prefixes.turn(true),
        [b"off"] => line.cx.shared.prefixes.turn(false),
        [b"dump"] => return Flow::Dump(Dump::prefixes(line.form)),
        _ => {
            let usage = b"CLIENT_ERROR usage: stats detail on|off|dump\r\n";
            line.form.say(line.out, usage, Status::NotFound);
            return Flow::Next;
        }
    }
    line.form.done(line.out);
    Flow::Next
}

/// Lists keys, in lines; in frames there is no such list.
fn cachedump(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    let reply: &[u8] = match line.tokens[1..] {
        _ if !matches!(line.form, Form::Text) => ERROR,
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
    line.form.say(line.out, reply, Status::NotFound);
    Flow::Next
}
