//! `larder lab hitratio`: how many requests miss, on streams shaped like those of real caches, in the same resident memory; and
//! on access patterns that such streams do not have.
//!
//! Each stream is a working set of four times the memory: sizes, popularity, requests for keys that are asked for once, times to
//! live, and popularity that moves. A server is warmed until twice its memory has been written; then misses are counted. Its
//! limit is searched so that its resident memory is the wanted one. An LRU by bytes without overhead, in this process, gets the
//! same stream.
//!
//! Patterns (keys that are written and read late, sessions, loops) have a report of their own, and so has a trace.

mod behaviour;
pub(crate) mod caches;
mod client;
mod patterns;
pub(crate) mod streams;
mod traces;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use larder_protocol::client::Protocol;

use crate::error::Error;
use crate::experiment::{self, Experiment};
use crate::numbers;
use crate::results::{Axis, Better, Column, Estimate, Kind, Plot, Point, Scale, Table, Target, number};
use crate::shift::check::{check_counts, check_values};
use crate::shift::oracle;
use crate::shift::shelf::Shelf;
use crate::shift::variant::{Variant, Ways};
use crate::shift::visit::{Counted, Driver, FILL_BATCH, FILL_CONNECTIONS, resident_mib};
use crate::trace;
use caches::{STREAMS, Stream};
use patterns::Pattern;
use streams::Named;

/// Options of `larder lab hitratio`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: experiment::Options,
    /// Which streams and patterns; caches are all streams, patterns all patterns [default: caches; cluster52 and
    /// cluster25 with --quick]
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = streams::parse)]
    stream: Vec<Named>,
    /// Patterns that run before, once each; patterns are all of them [default: keys that are never read]
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = streams::parse_pattern)]
    after: Vec<Named>,
    /// Bytes of a pattern's values, once each
    #[arg(long, value_delimiter = ',', default_value = "1000", value_name = "B", value_parser = clap::value_parser!(u32).range(24..=1_000_000))]
    value_bytes: Vec<u32>,
    /// Keys and values of a stream, as a multiple of the memory
    #[arg(long, default_value = "4", value_name = "X", value_parser = numbers::multiple)]
    working_set: f64,
    /// Requests whose misses are counted, the same for every server [default: 500,000; 100,000 with --quick, 2,000,000 with
    /// --full; all of a trace]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    requests: Option<u64>,
    #[command(flatten)]
    trace: trace::Options,
    #[command(flatten)]
    ways: Ways,
}

/// Resident memory that differs by this share counts as equal.
const NEAR: f64 = 0.02;
/// Servers that are started in search of a limit, at most.
const TRIES: usize = 4;
/// Requests that a server answers in a second, about.
const PER_S: f64 = 200_000.0;

/// The results of a variant on a stream.
#[derive(Debug)]
struct Found {
    limit_mb: u32,
    /// Resident memory, if it is visible.
    resident_mib: Option<f64>,
    /// Share of requests that missed, by round.
    misses: Vec<f64>,
}

/// Runs the experiment.
///
/// # Errors
/// When a server cannot be started, or a check failed: then there is no result.
pub fn run(options: &Options) -> Result<(), Error> {
    let mut common = options.common.clone();
    common.rounds = common.rounds.or(Some(common.by_effort(1, 6, 6)));
    let memory_mb = common.memory_mb.unwrap_or(common.by_effort(16, 64, 64));
    if options.working_set.is_nan() || options.working_set <= 0.0 {
        return Err(Error::Usage("a working set is not negative".to_owned()));
    }
    let streams: Vec<&Stream> = match options.stream.is_empty() {
        false => options.stream.iter().flat_map(|named| named.streams()).collect(),
        true if options.trace.trace.is_some() => Vec::new(),
        true if common.quick => STREAMS.iter().filter(|stream| stream.is_quick()).collect(),
        true => STREAMS.iter().collect(),
    };
    let of = |list: &[Named]| list.iter().flat_map(|named| named.patterns()).collect::<Vec<_>>();
    let (patterns, afters): (Vec<&Pattern>, Vec<&Pattern>) = (of(&options.stream), of(&options.after));
    let sizes: Vec<u64> = options.value_bytes.iter().map(|&bytes| bytes.into()).collect();
    let (cases, left_out) = behaviour::cases(&patterns, &afters, &sizes, memory_mb);
    if streams.is_empty() && cases.is_empty() && options.trace.trace.is_none() {
        return Err(Error::Usage(
            "values of these sizes fit too few times, or nothing is left to ask".to_owned(),
        ));
    }
    let title = "Hit ratio: misses on streams like those of real caches, in the same memory";
    let mut experiment = Experiment::start("hitratio", title, &common, memory_mb)?;
    let cores = experiment.generator_cores.clone();
    let warm_max = Duration::from_secs_f64(options.ways.warm_max);
    let driver = Driver { cores: &cores, seed: common.seed, warm_max };
    let requests = options.requests.unwrap_or(common.by_effort(100_000, 500_000, 2_000_000));
    let mut variants = Variant::all(&experiment, &options.ways);
    if streams.is_empty() {
        // A pattern runs in a fixed order: a second measurement would show no chance.
        variants.retain(|variant| !variant.again);
    }
    let run = &mut experiment.run;
    run.set("working set over memory", options.working_set);
    run.set("warmed until", "twice the memory was written");
    run.set("requests counted", requests);
    options.ways.note(run);
    for stream in &streams {
        run.set(stream.name, stream.describe());
    }
    for pattern in &patterns {
        run.set(pattern.name, behaviour::describe(pattern.shape));
    }
    for bytes in left_out {
        run.notes.push(format!("values of {bytes} B fit too few times in {memory_mb} MB: left out"));
    }
    // Each variant has a name of its own in every table.
    run.targets = variants
        .iter()
        .map(|variant| Target { name: variant.name.clone(), ..run.targets[variant.contender].clone() })
        .collect();

    // The overhead of a server beyond its limit hardly differs from stream to stream.
    let mut guesses = vec![memory_mb; variants.len()];
    let mut visits: Vec<(usize, usize)> =
        (0..streams.len()).flat_map(|stream| (0..variants.len()).map(move |at| (stream, at))).collect();
    let mut found: Vec<Vec<Option<Found>>> =
        streams.iter().map(|_| variants.iter().map(|_| None).collect()).collect();
    // To warm a server takes writes of twice its memory, and more in search of its limit.
    let each = f64::from(memory_mb) / 16.0 + requests as f64 / PER_S;
    experiment.announce(visits.len(), Duration::from_secs_f64(each));
    experiment.rounds(
        &mut visits,
        |&(stream, at)| format!("{}, {}", streams[stream].name, variants[at].name),
        |experiment, &mut (stream, at), _| {
            let (variant, stream_at) = (&variants[at], stream);
            let plan = Arc::new(streams[stream].plan(memory_mb, options.working_set));
            let search = !options.ways.equal_limit && variant.can_be_limited();
            let cell = &mut found[stream_at][at];
            let mut limit_mb = cell.as_ref().map_or(guesses[at], |found| found.limit_mb);
            for attempt in 1.. {
                let server = variant.start(limit_mb)?;
                let shelf = Shelf::new(&plan);
                let before = Counted::of(&server.control)?;
                let mut warm = driver.warm(&server, &plan, &shelf)?;
                check_values(experiment, variant, &warm.seen);
                let resident_mib = resident_mib(&server)?;
                let off = resident_mib.map_or(0.0, |resident_mib| resident_mib - f64::from(memory_mb));
                let next = (f64::from(limit_mb) - off).round().max(2.0) as u32;
                let near = off.abs() < NEAR * f64::from(memory_mb);
                if search && cell.is_none() && !near && next != limit_mb && attempt < TRIES {
                    limit_mb = next;
                    continue;
                }
                guesses[at] = limit_mb;
                let seen = warm.count(requests)?;
                check_values(experiment, variant, &seen);
                let after = Counted::of(&server.control)?;
                let counted = after.zip(before).map(|(after, before)| after.since(before));
                check_counts(experiment, variant, &[&warm.seen, &seen], counted);
                let (gets, hits, _) = seen.totals();
                let misses = 1.0 - hits as f64 / gets.max(1) as f64;
                cell.get_or_insert(Found { limit_mb, resident_mib, misses: Vec::new() }).misses.push(misses);
                break;
            }
            Ok(())
        },
    )?;
    let oracle: Vec<f64> = streams
        .iter()
        .map(|stream| {
            let plan = stream.plan(memory_mb, options.working_set);
            oracle::misses(&plan, (FILL_CONNECTIONS, FILL_BATCH), requests, common.seed)
        })
        .collect();
    let found: Vec<Vec<Found>> = found.into_iter().map(|row| row.into_iter().flatten().collect()).collect();
    let ceiling = Driver::ceiling(&experiment, Protocol::Classic.into(), FILL_CONNECTIONS, FILL_BATCH)?;
    experiment.run.ceilings.push(ceiling);
    if !streams.is_empty() {
        report(&mut experiment, (&streams, &variants), &found, &oracle, (memory_mb, &options.ways));
    }
    if !cases.is_empty() {
        let said = behaviour::run(&mut experiment, &variants, &cases, memory_mb)?;
        let verdict = &mut experiment.run.verdict;
        *verdict = [verdict.as_str(), &said].join(" ").trim().to_owned();
    }
    if let Some(path) = &options.trace.trace {
        let asked = options.requests.unwrap_or(u64::MAX);
        let trace = (&options.trace, path.as_path());
        let said = traces::run(&mut experiment, &variants, trace, asked, (memory_mb, &options.ways))?;
        let verdict = &mut experiment.run.verdict;
        *verdict = [verdict.as_str(), &said].join(" ").trim().to_owned();
    }
    experiment.finish()
}

const ORACLE: &str = "oracle, LRU by bytes";

fn report(
    experiment: &mut Experiment,
    (streams, variants): (&[&Stream], &[Variant]),
    found: &[Vec<Found>],
    oracle: &[f64],
    (memory_mb, ways): (u32, &Ways),
) {
    let run = &mut experiment.run;
    let mut table = Table::new("misses", "Requests that missed", &["stream"]);
    table.absent("an oracle has neither limit nor process, and a server's may not be seen from here");
    table.column(Column::new("misses", "%", Better::Lower));
    table.column(Column::new("of the oracle's", "", Better::Lower));
    table.column(Column::new("limit given", "MB", Better::Neither));
    table.column(Column::new("resident", "MiB", Better::Neither));
    let mut plot = Plot::new("misses", "Requests that missed", Kind::Bars);
    plot.groups = streams.iter().map(|stream| stream.name.to_owned()).collect();
    plot.x = Axis::new("stream", "", Scale::Linear);
    plot.y = Axis::new("misses", "%", Scale::Linear);
    plot.caption = "The oracle has no overhead: it has more room than any server.".to_owned();
    for (at, variant) in variants.iter().enumerate() {
        let mut points = Vec::new();
        for (stream, row) in found.iter().enumerate() {
            let percent: Vec<f64> = row[at].misses.iter().map(|misses| 100.0 * misses).collect();
            let misses = Estimate::of(&percent);
            points.extend(misses.as_ref().map(|misses| Point::estimated(stream as f64, misses)));
            let against: Vec<f64> = row[at].misses.iter().map(|misses| misses / oracle[stream]).collect();
            table.row(
                &variant.name,
                [streams[stream].name],
                [
                    misses,
                    Estimate::of(&against),
                    variant.can_be_limited().then(|| Estimate::exact(row[at].limit_mb.into())).flatten(),
                    row[at].resident_mib.and_then(Estimate::exact),
                ],
            );
            let off = row[at].resident_mib.map_or(0.0, |mib| mib / f64::from(memory_mb) - 1.0);
            if off.abs() > NEAR {
                let (name, stream) = (&variant.name, streams[stream].name);
                run.notes.push(format!("{stream}: resident memory of {name} is {:+.1} % off", 100.0 * off));
            }
        }
        plot.curve(&variant.name, points);
    }
    for (stream, misses) in streams.iter().zip(oracle) {
        table.row(ORACLE, [stream.name], [Estimate::exact(100.0 * misses), None, None, None]);
    }
    plot.curve(ORACLE, oracle.iter().enumerate().map(|(at, misses)| Point::new(at as f64, 100.0 * misses)));
    run.tables.push(table);
    run.plots.push(plot);

    let mean = |at: usize| {
        let all: Vec<f64> =
            found.iter().filter_map(|row| Some(Estimate::of(&row[at].misses)?.median)).collect();
        100.0 * all.iter().sum::<f64>() / all.len().max(1) as f64
    };
    let said: Vec<String> = variants
        .iter()
        .enumerate()
        .filter(|(_, variant)| !variant.again)
        .map(|(at, variant)| format!("{} {} %", variant.name, number::text(mean(at))))
        .collect();
    let of = |at: usize| found.iter().map(move |row| row[at].resident_mib);
    let seen: Vec<(&Variant, Option<f64>)> =
        variants.iter().enumerate().flat_map(|(at, variant)| of(at).map(move |mib| (variant, mib))).collect();
    run.verdict = format!(
        "On the mean of {} stream(s), {}, requests miss: {}.",
        streams.len(),
        ways.memory_words(memory_mb, NEAR, &seen),
        said.join(", ")
    );
    for (stream, row) in streams.iter().zip(found) {
        let others = row.iter().zip(variants).skip(1).map(|(other, variant)| {
            let claim = format!("misses of {} / {}, {}", variants[0].name, variant.name, stream.name);
            (claim, other.misses.clone(), variant.again)
        });
        experiment.compare_with(Better::Lower, &row[0].misses, others.collect());
    }
}
