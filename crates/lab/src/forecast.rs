//! `larder lab forecast`: compares Larder's forecast of misses with other memory limits with servers that have these limits, on
//! the same stream.
//!
//! Streams are those of [`hitratio`](crate::hitratio): a working set of four times the memory. A server of today's size is warmed
//! until twice its memory has been written. Then its misses are counted, and it is asked for its forecast (`stats forecast`).
//! Servers of the other sizes are warmed as well, and their misses in as many requests are counted. Two servers of today's size
//! show how much is chance. Other servers get the same limits, and their curves stand beside Larder's.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;
use larder_protocol::client::Protocol;

use crate::error::Error;
use crate::experiment::{self, Experiment};
use crate::hitratio::caches::{STREAMS, Stream};
use crate::hitratio::streams::{self, Named};
use crate::numbers;
use crate::peers::Kind;
use crate::results::{
    Axis, Better, Column, Estimate, Kind as PlotKind, Plot, Point, Scale, Table, Target, number,
};
use crate::shift::check::{check_counts, check_values};
use crate::shift::shelf::Shelf;
use crate::shift::variant::{Variant, Ways};
use crate::shift::visit::{Counted, Driver, FILL_BATCH, FILL_CONNECTIONS};

/// Options of `larder lab forecast`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: experiment::Options,
    /// Which streams [default: all; cluster52 and cluster25 with --quick]
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = streams::parse)]
    stream: Vec<Named>,
    /// Keys and values of a stream, as a multiple of the memory
    #[arg(long, default_value = "4", value_name = "X", value_parser = numbers::multiple)]
    working_set: f64,
    /// Requests whose misses are counted, the same for every server [default: 2,000,000; 1,000,000 with --quick, 4,000,000 with
    /// --full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    requests: Option<u64>,
    #[command(flatten)]
    ways: Ways,
}

/// Sizes of the memory, as multiples of today's.
const FACTORS: [f64; 5] = [0.5, 0.75, 1.0, 1.5, 2.0];
const NOW: usize = 2;
/// The longest wait for a forecast that is not ready, in multiples of the requests.
const PATIENCE: usize = 40;
/// The pause before a server is asked again: it makes a forecast once a second.
const LOOK: Duration = Duration::from_millis(1200);
/// Requests that a server answers in a second, about.
const PER_S: f64 = 200_000.0;

/// A server's forecast for a size.
#[derive(Clone, Copy, Debug)]
struct Said {
    miss_ratio: f64,
    error: f64,
}

/// Results of the servers of one variant on a stream: misses by size and round, and forecasts by round and size.
#[derive(Clone, Debug, Default)]
struct Found {
    misses: [Vec<f64>; FACTORS.len()],
    said: Vec<[Option<Said>; FACTORS.len()]>,
}

/// One visit.
#[derive(Clone, Copy, Debug)]
struct Visit {
    stream: usize,
    variant: usize,
    size: usize,
}

/// Runs the experiment.
///
/// # Errors
/// When a server cannot be started, or a check failed: then there is no result.
pub fn run(options: &Options) -> Result<(), Error> {
    let mut common = options.common.clone();
    common.rounds = common.rounds.or(Some(common.by_effort(1, 6, 12)));
    if common.no_larder {
        return Err(Error::Usage("it is Larder's forecast".to_owned()));
    }
    if !common.targets.is_empty() {
        return Err(Error::Usage("the size of a running server cannot be chosen".to_owned()));
    }
    let memory_mb = common.memory_mb.unwrap_or(common.by_effort(16, 64, 64));
    let streams: Vec<&Stream> = match options.stream.is_empty() {
        false => options.stream.iter().flat_map(|named| named.streams()).collect(),
        true if common.quick => STREAMS.iter().filter(|stream| stream.is_quick()).collect(),
        true => STREAMS.iter().collect(),
    };
    if streams.is_empty() {
        return Err(Error::Usage("a forecast is made of a stream, not of a pattern".to_owned()));
    }
    let title = "Forecast: what another memory limit would miss, against servers that have it";
    let mut experiment = Experiment::start("forecast", title, &common, memory_mb)?;
    let cores = experiment.generator_cores.clone();
    let warm_max = Duration::from_secs_f64(options.ways.warm_max);
    let driver = Driver { cores: &cores, seed: common.seed, warm_max };
    let requests = options.requests.unwrap_or(common.by_effort(1_000_000, 2_000_000, 4_000_000));
    let variants = Variant::all(&experiment, &options.ways);
    let run = &mut experiment.run;
    run.set("working set over memory", options.working_set);
    run.set("warmed until", "twice the memory was written");
    run.set("requests counted", requests);
    for stream in &streams {
        run.set(stream.name, stream.describe());
    }
    run.targets = variants
        .iter()
        .map(|variant| Target { name: variant.name.clone(), ..run.targets[variant.contender].clone() })
        .collect();

    let mut visits: Vec<Visit> = Vec::new();
    for stream in 0..streams.len() {
        for (variant, of) in variants.iter().enumerate() {
            // A second server of today's size shows the differences that are chance.
            let sizes = if of.again { NOW..NOW + 1 } else { 0..FACTORS.len() };
            visits.extend(sizes.map(|size| Visit { stream, variant, size }));
        }
    }
    let mut found = vec![vec![Found::default(); variants.len()]; streams.len()];
    let each = f64::from(memory_mb) / 12.0 + requests as f64 / PER_S;
    experiment.announce(visits.len(), Duration::from_secs_f64(each));
    experiment.rounds(
        &mut visits,
        |visit| {
            let (stream, variant) = (streams[visit.stream].name, &variants[visit.variant].name);
            format!("{stream}, {variant}, {} ×", FACTORS[visit.size])
        },
        |experiment, visit, round| {
            let (variant, factor) = (&variants[visit.variant], FACTORS[visit.size]);
            let limit_mb = (f64::from(memory_mb) * factor).round() as u32;
            // The keys are the same; a different part of them fits.
            let plan = streams[visit.stream]
                .plan(limit_mb, options.working_set * f64::from(memory_mb) / f64::from(limit_mb));
            let plan = Arc::new(plan);
            let tells = visit.size == NOW && variant.kind() == Some(Kind::Larder);
            let server = variant.start_with(limit_mb, if tells { &["--http-port=-1"] } else { &[] })?;
            let shelf = Shelf::new(&plan);
            let before = Counted::of(&server.control)?;
            // Another round is another sample of the stream.
            let driver = Driver { seed: driver.seed.wrapping_add(round as u64), ..driver };
            let mut warm = driver.warm(&server, &plan, &shelf)?;
            let seen = warm.count(requests)?;
            let (gets, hits, _) = seen.totals();
            let misses = 1.0 - hits as f64 / gets.max(1) as f64;
            let mut all = vec![std::mem::take(&mut warm.seen), seen];
            let cell = &mut found[visit.stream][visit.variant];
            cell.misses[visit.size].push(misses);
            if tells {
                let mut said = told(&server.control.stats("forecast")?);
                for _ in 0..PATIENCE {
                    thread::sleep(LOOK);
                    said = told(&server.control.stats("forecast")?);
                    if said[NOW].is_some() {
                        break;
                    }
                    all.push(warm.count(requests)?);
                }
                cell.said.push(said);
            }
            let after = Counted::of(&server.control)?;
            let counted = after.zip(before).map(|(after, before)| after.since(before));
            all.iter().for_each(|seen| check_values(experiment, variant, seen));
            check_counts(experiment, variant, &all.iter().collect::<Vec<_>>(), counted);
            Ok(())
        },
    )?;
    let ceiling = Driver::ceiling(&experiment, Protocol::Classic.into(), FILL_CONNECTIONS, FILL_BATCH)?;
    experiment.run.ceilings.push(ceiling);
    report(&mut experiment, &streams, &variants, &found, memory_mb);
    experiment.finish()
}

/// The forecast of `stats forecast` for each size; `None` if it is unknown or vague.
fn told(stats: &[(String, String)]) -> [Option<Said>; FACTORS.len()] {
    let field = |name: &str| -> Option<f64> {
        stats.iter().find(|(have, _)| have == name).and_then(|(_, value)| value.parse().ok())
    };
    FACTORS.map(|factor| {
        let of = |name: &str| field(&format!("{factor}_{name}"));
        let is_vague = of("vague")? != 0.0;
        let (hit_ratio, error) = (of("hit_ratio")?, of("error")?);
        (!is_vague).then_some(Said { miss_ratio: 1.0 - hit_ratio, error })
    })
}

/// Forecasts compared with misses.
#[derive(Debug, Default)]
struct Judged {
    /// The error of each forecast of another size, in percentage points.
    off: Vec<f64>,
    /// Number of forecasts within their own error.
    inside: usize,
    /// Number of forecasts that were not ready, or vague.
    silent: usize,
}

fn report(
    experiment: &mut Experiment,
    streams: &[&Stream],
    variants: &[Variant],
    found: &[Vec<Found>],
    memory_mb: u32,
) {
    let mut table = Table::new("forecast", "Missed, and said to be missed", &["stream", "memory"]);
    table.column(Column::new("misses", "%", Better::Lower));
    table.column(Column::new("forecast", "%", Better::Neither));
    table.column(Column::new("give or take", "points", Better::Neither));
    table.column(Column::new("off by", "points", Better::Neither));
    let (mut judged, mut chance) = (Judged::default(), Vec::new());
    for (stream, of_stream) in streams.iter().zip(found) {
        let mut plot =
            Plot::new(stream.name, &format!("Misses by memory limit: {}", stream.name), PlotKind::Lines);
        plot.x = Axis::new("memory limit", "MB", Scale::Log);
        plot.y = Axis::new("misses", "%", Scale::Linear);
        for (variant, found) in variants.iter().zip(of_stream) {
            let mut points = Vec::new();
            for (size, factor) in FACTORS.iter().enumerate() {
                let Some(misses) = Estimate::of(&percent(&found.misses[size])) else { continue };
                let median = misses.median;
                points.push(Point::estimated(f64::from(memory_mb) * factor, &misses));
                let said: Vec<Said> = found.said.iter().filter_map(|said| said[size]).collect();
                let of =
                    |each: &dyn Fn(&Said) -> f64| Estimate::of(&said.iter().map(each).collect::<Vec<_>>());
                let off = |said: &Said| 100.0 * said.miss_ratio - median;
                table.row(
                    &variant.name,
                    [stream.name.to_owned(), format!("{factor} ×")],
                    [
                        Some(misses),
                        of(&|said| 100.0 * said.miss_ratio),
                        of(&|said| 100.0 * said.error),
                        of(&off),
                    ],
                );
                if size != NOW {
                    judged.silent += found.said.len() - said.len();
                    judged.off.extend(said.iter().map(off));
                    judged.inside += said.iter().filter(|said| off(said).abs() <= 100.0 * said.error).count();
                }
            }
            plot.curve(&variant.name, points);
            let said: Vec<Point> = FACTORS
                .iter()
                .enumerate()
                .filter_map(|(size, factor)| {
                    let all: Vec<f64> =
                        found.said.iter().filter_map(|said| Some(said[size]?.miss_ratio)).collect();
                    Some(Point::estimated(f64::from(memory_mb) * factor, &Estimate::of(&percent(&all))?))
                })
                .collect();
            if !said.is_empty() {
                plot.curve(&format!("{}'s forecast", variant.name), said);
            }
        }
        experiment.run.plots.push(plot);
        // The same server, measured twice.
        let [one, again] = [0, 1].map(|at| &of_stream[at].misses[NOW]);
        if let (Some(one), Some(again)) = (Estimate::of(&percent(one)), Estimate::of(&percent(again))) {
            chance.push((one.median - again.median).abs());
        }
        let claim = format!("misses of {} / {}, {}", variants[0].name, variants[1].name, stream.name);
        experiment.compare_with(Better::Lower, one, vec![(claim, again.clone(), true)]);
    }
    experiment.run.tables.push(table);
    experiment.run.verdict = judged.words(&chance);
}

impl Judged {
    /// The result in words.
    fn words(&self, chance: &[f64]) -> String {
        let mean = |all: &[f64]| all.iter().map(|off| off.abs()).sum::<f64>() / all.len().max(1) as f64;
        let silent = match self.silent {
            0 => String::new(),
            n => format!(" Not ready, or vague: {n}."),
        };
        format!(
            "Of {} forecasts of ½, ¾, 1½ and 2 × the memory {} are within what they give or take; they are off by {} points \
             in the mean, {} at most, where two servers of one size differ by {}.{silent}",
            self.off.len(),
            self.inside,
            number::text(mean(&self.off)),
            number::text(self.off.iter().fold(0.0, |most: f64, off| most.max(off.abs()))),
            number::text(mean(chance)),
        )
    }
}

fn percent(ratios: &[f64]) -> Vec<f64> {
    ratios.iter().map(|ratio| 100.0 * ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_vague_or_not_known_is_not_said() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let stats = [
            pair("ready", "1"),
            pair("0.5_hit_ratio", "0.7"),
            pair("0.5_error", "0.01"),
            pair("0.5_vague", "0"),
            pair("2_hit_ratio", "0.9"),
            pair("2_error", "0.02"),
            pair("2_vague", "1"),
        ];
        let said = told(&stats);
        let half = said[0].expect("it is said");
        assert!((half.miss_ratio - 0.3).abs() < 1e-9 && half.error == 0.01);
        assert!(said[1..].iter().all(Option::is_none));
        assert!(told(&[pair("forecast_status", "disabled")]).iter().all(Option::is_none));
    }

    #[test]
    fn the_verdict_says_how_many_are_inside_and_by_how_much_they_are_off() {
        let judged = Judged { off: vec![0.5, -1.5, 0.25, 0.75], inside: 3, silent: 1 };
        assert_eq!(
            judged.words(&[0.1, 0.3]),
            "Of 4 forecasts of ½, ¾, 1½ and 2 × the memory 3 are within what they give or take; they are off by 0.75 points \
             in the mean, 1.50 at most, where two servers of one size differ by 0.2. Not ready, or vague: 1."
        );
    }
}
