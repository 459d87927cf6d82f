//! LATENCY: events that took at least `latency-monitor-threshold` milliseconds (`redis/latency.rs`), and times of commands.

use std::collections::BTreeSet;
use std::fmt::Write;

use larder_protocol::resp::Args;

use super::introspect::named;
use crate::core::findings::{self, About};
use crate::redis::call::{Call, NAME_NS, few_names, next};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::latency::{COMMAND, FAST_COMMAND, Series};
use crate::redis::reply::{put_array, put_bulk, put_integer, put_map, put_verbatim};
use crate::redis::row::flag::{ADMIN, LOADING, NOSCRIPT, STALE, WEIGHTLESS};
use crate::redis::row::{Command, NO_KEYS};

const RULES: u64 = ADMIN | NOSCRIPT | LOADING | STALE | WEIGHTLESS;

pub(crate) const ROWS: &[Definition] = &[
    Command::args("latency|latest", 2, RULES, NO_KEYS, latest).doc(
        "2.8.13",
        "",
        "Of each event the latest time and the longest.",
    ),
    Command::args("latency|history", 3, RULES, NO_KEYS, history).doc(
        "2.8.13",
        "event",
        "When an event took long, and how long.",
    ),
    Command::args("latency|reset", -2, RULES, NO_KEYS, reset).doc(
        "2.8.13",
        "[event [event ...]]",
        "Forgets events.",
    ),
    Command::args("latency|graph", 3, RULES, NO_KEYS, graph).doc(
        "2.8.13",
        "event",
        "Draws an event's times.",
    ),
    Command::args("latency|doctor", 2, RULES, NO_KEYS, doctor).doc(
        "2.8.13",
        "",
        "Reports what took long, and what to look at.",
    ),
    Command::args("latency|histogram", -2, RULES, NO_KEYS, histogram).doc(
        "7.0.0",
        "[command [command ...]]",
        "How many calls of commands took up to how many microseconds, of those that were measured.",
    ),
    Command::args("latency|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
        crate::redis::help::help(call, "latency")
    })
    .doc("2.8.13", "", "What LATENCY can do."),
];

fn latest(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let events = call.shared.latency.events().clone();
    call.array(events.len());
    for (event, series) in events {
        let (at_s, ms) = series.samples.back().copied().unwrap_or_default();
        put_array(call.out, 4);
        put_bulk(call.out, event.as_bytes());
        [at_s, ms, series.longest_ms].into_iter().for_each(|n| put_integer(call.out, n as i64));
    }
    Ok(())
}

fn history(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let series = call.shared.latency.series(next(&mut args)?).unwrap_or_default();
    call.array(series.samples.len());
    for (at_s, ms) in series.samples {
        put_array(call.out, 2);
        put_integer(call.out, at_s as i64);
        put_integer(call.out, ms as i64);
    }
    Ok(())
}

fn reset(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    few_names(args)?;
    call.spend(args.len() as u64 * NAME_NS);
    let mut events = call.shared.latency.events();
    let before = events.len();
    if args.is_empty() {
        events.clear();
    } else {
        events.retain(|event, _| !args.into_iter().any(|name| name.eq_ignore_ascii_case(event.as_bytes())));
    }
    let gone = before - events.len();
    drop(events);
    call.length(gone)
}

/// The time to draw a column, and the age under it.
const COLUMN_NS: u64 = 200;
/// Lines of a drawing, without its axis.
const GRAPH_LINES: u64 = 4;

/// Draws times as columns: `_` low, `#` high, and under each column how long ago it was.
fn draw(event: &str, series: &Series, now_s: u64) -> String {
    let times = || series.samples.iter().map(|(_, ms)| *ms);
    let (high, low) = (times().max().unwrap_or(0), times().min().unwrap_or(0));
    let mut text =
        format!("{event} - high {high} ms, low {low} ms (all time high {} ms)\n", series.longest_ms);
    text.push_str(&"-".repeat(80));
    text.push('\n');
    let height = |ms: u64| (ms - low) * (GRAPH_LINES * 2 - 1) / (high - low).max(1);
    for line in (0..GRAPH_LINES).rev() {
        let row: String = times()
            .map(|ms| match height(ms) {
                h if h / 2 > line => '|',
                h if h / 2 == line && h % 2 == 1 => '#',
                h if h / 2 == line => '_',
                _ => ' ',
            })
            .collect();
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text.push('\n');
    let ages: Vec<String> = series.samples.iter().map(|(at, _)| age(now_s.saturating_sub(*at))).collect();
    for line in 0..ages.iter().map(String::len).max().unwrap_or(0) {
        let row: String =
            ages.iter().map(|age| age.as_bytes().get(line).map_or(' ', |b| char::from(*b))).collect();
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text
}

/// `45s`, `3m`, `2h`, `9d`.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn graph(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let event = next(&mut args)?;
    let Some(series) = call.shared.latency.series(event) else {
        let event = crate::redis::fail::shown(event, 128);
        return Err(Fail::with(format!("ERR No samples available for event '{event}'")));
    };
    call.spend(series.samples.len() as u64 * COLUMN_NS);
    let text = draw(&crate::redis::fail::shown(event, 128), &series, call.cx.now() / 1000);
    put_verbatim(call.out, call.client.resp3, &text);
    Ok(())
}

fn doctor(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let latency = &call.shared.latency;
    let events = latency.events().clone();
    let mut text = String::new();
    if !latency.watches() {
        text.push_str("Nothing is noted: latency-monitor-threshold is 0. Set it to the milliseconds that are too many for you, as in CONFIG SET latency-monitor-threshold 100.\n");
    } else if events.is_empty() {
        text.push_str(
            "Nothing took as long as latency-monitor-threshold since it was set or LATENCY RESET.\n",
        );
    }
    for (event, series) in &events {
        let count = series.samples.len() as u64;
        let mean = series.samples.iter().map(|(_, ms)| ms).sum::<u64>() / count.max(1);
        let advice = match *event {
            COMMAND => {
                "SLOWLOG GET shows which commands they were; KEYS, long ranges and large transactions take time in proportion to what they touch."
            }
            FAST_COMMAND => {
                "Each takes little: the pipelines are long, or something else had the processor; look at other processes and at swapping."
            }
            _ => {
                "Many keys expire together or items give way to others; spread expiries, or give more memory."
            }
        };
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "{event}: {count} times in as many seconds, {mean} ms in the mean, {} ms at most. {advice}",
            series.longest_ms
        );
    }
    text.push_str(&findings::text(About::Latency, &findings::find_for(call.cx)));
    put_verbatim(call.out, call.client.resp3, &text);
    Ok(())
}

fn histogram(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    few_names(args)?;
    call.spend(args.len() as u64 * NAME_NS);
    let (rows, sums) = (call.shared.rows, crate::core::figures::row_sums(call.cx));
    // A container's name stands for all of its subcommands.
    let named: BTreeSet<&str> = args.filter_map(|name| named(rows, name)).map(|(_, row)| row.name).collect();
    let is_named = |row: &Command| {
        let container = row.name.split_once('|').map_or(row.name, |(container, _)| container);
        named.contains(row.name) || named.contains(container)
    };
    let wanted: Vec<_> = rows
        .in_use(&sums)
        .filter(|(_, sum)| sum.measured > 0)
        .filter(|(row, _)| args.is_empty() || is_named(row))
        .collect();
    call.map(wanted.len());
    let resp3 = call.client.resp3;
    for (row, sum) in wanted {
        put_bulk(call.out, row.name.as_bytes());
        put_map(call.out, resp3, 2);
        put_bulk(call.out, b"calls");
        put_integer(call.out, sum.calls as i64);
        put_bulk(call.out, b"histogram_usec");
        // Each step counts those below it, too, and the last has all.
        let mut total = 0;
        let mut steps = Vec::new();
        for (step, count) in sum.steps.iter().enumerate() {
            total += count;
            if *count > 0 {
                steps.push((1i64 << step, total as i64));
            }
        }
        put_map(call.out, resp3, steps.len());
        for (us, count) in steps {
            put_integer(call.out, us);
            put_integer(call.out, count);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graph_has_a_column_for_each_time() {
        let series = Series { samples: [(100, 10), (160, 50), (161, 90)].into(), longest_ms: 90 };
        let text = draw("command", &series, 165);
        assert_eq!(
            text,
            format!(
                "command - high 90 ms, low 10 ms (all time high 90 ms)\n{}\n  #\n  |\n #|\n_||\n\n154\nmss\n",
                "-".repeat(80)
            )
        );
    }
}
