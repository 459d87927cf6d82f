//! `larder lab shift`: the hit ratio after the sizes of values change.
//!
//! Cache-aside clients fill a server with values of one size; then the working set becomes other keys
//! with values of another size, of as many bytes. A cache whose memory follows the workload loses hits
//! only until the new values have been written once; one whose memory is bound to size classes loses
//! them for as long as it takes to move it.
//!
//! ```text
//! fit      every server's limit, so that its resident memory is the same; its peak rate
//! rounds   a new server: fill ─► measured at a fixed rate: phase 1 ─ shift ─► phase 2 …
//!          another new server that only ever sees the last phase: the ratio to be reached
//! oracle   an LRU by bytes without overhead, in this process, at the same rate
//! ```
//!
//! Every value is verified, stale ones too, and the servers' counts must equal the clients'.

pub(crate) mod aside;
pub(crate) mod check;
pub(crate) mod draw;
pub(crate) mod oracle;
mod outcome;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod seen;
pub(crate) mod shelf;
pub(crate) mod variant;
pub(crate) mod visit;

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use larder_protocol::client::Protocol;

use crate::error::Error;
use crate::experiment::{self, Experiment};
use crate::numbers;
use crate::peers::CLIENTS_MAX;
use crate::sizes::Sizes;
use plan::{Phase, Plan};
use variant::{Variant, Ways};
use visit::{Driver, Fit, Visit};

/// A shift from a question that was asked in public.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// As in the original article (docs/lab/shift.md): 128 MB, values of 1,100, then 1,400 bytes, two classes of memcached
    #[value(alias = "seed")]
    Article,
    /// 512 MB, values of 100, then 1,000 bytes
    SmallToLarge,
    /// 128 MB, values of 10,000, then 100 bytes
    LargeToSmall,
}

impl Preset {
    /// Memory in MB, sizes, gets that are sent together.
    fn terms(self) -> (u32, Vec<usize>, usize) {
        match self {
            Preset::Article => (128, vec![1_100, 1_400], 16),
            Preset::SmallToLarge => (512, vec![100, 1_000], 16),
            Preset::LargeToSmall => (128, vec![10_000, 100], 16),
        }
    }
}

/// Options of `larder lab shift`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: experiment::Options,
    /// A shift that has been asked about
    #[arg(long, value_enum, default_value = "article")]
    preset: Preset,
    /// Bytes of values, phase by phase, in place of the preset's
    #[arg(long, value_delimiter = ',', value_name = "B", num_args = 2.., value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sizes: Vec<u32>,
    /// Exponent of Zipf's law for the keys
    #[arg(long, default_value = "0.9", value_name = "α", value_parser = numbers::not_negative)]
    zipf: f64,
    /// Keys and values of a phase, as a multiple of the memory
    #[arg(long, default_value = "2", value_name = "X", value_parser = numbers::multiple)]
    working_set: f64,
    /// Requests a second that are offered [default: half of what the slowest server can in its hardest phase]
    #[arg(long, value_name = "N", value_parser = numbers::positive)]
    rate: Option<f64>,
    /// Connections
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CLIENTS_MAX)))]
    connections: u32,
    /// Gets that a connection sends together, in place of the preset's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pipeline: Option<u32>,
    /// Seconds that are measured before the first shift [default: 2; 1 with --quick, 10 with --full]
    #[arg(long, value_name = "S", value_parser = numbers::seconds)]
    before: Option<f64>,
    /// Seconds of each phase after it [default: 4; 3 with --quick, 120 with --full]
    #[arg(long, value_name = "S", value_parser = numbers::seconds)]
    after: Option<f64>,
    /// Time to live of stored values, in seconds; 0: for ever
    #[arg(long, default_value_t = 0, value_name = "S")]
    ttl: u32,
    #[command(flatten)]
    ways: Ways,
}

/// The results of a variant, by round.
#[derive(Debug)]
pub(crate) struct Found {
    variant: Variant,
    fit: Fit,
    visits: Vec<Visit>,
    /// Hit ratios of servers that had only the last phase.
    fresh: Vec<f64>,
}

/// Runs the experiment.
///
/// # Errors
/// When a server cannot be started, or a check failed: then there is no result.
pub fn run(options: &Options) -> Result<(), Error> {
    let mut common = options.common.clone();
    common.rounds = common.rounds.or(Some(common.by_effort(1, 6, 6)));
    let (memory_mb, sizes, pipeline) = options.preset.terms();
    let memory_mb = common.memory_mb.unwrap_or(common.by_effort(memory_mb / 8, memory_mb, memory_mb));
    let sizes: Vec<usize> = if options.sizes.is_empty() {
        sizes
    } else {
        options.sizes.iter().map(|&size| size as usize).collect()
    };
    let seconds = |given: Option<f64>, quick, usual, full| {
        Duration::from_secs_f64(given.unwrap_or(common.by_effort(quick, usual, full)).clamp(0.5, 3600.0))
    };
    let model = Phase {
        first: 0,
        count: 0,
        keys: Sizes::Fixed(16),
        sizes: Sizes::Fixed(0),
        zipf: options.zipf,
        lone: 0.0,
        life: 0,
        ttls: vec![(options.ttl, 1.0)],
    };
    let plan = Arc::new(Plan {
        phases: Plan::phases(&model, &sizes, memory_mb, options.working_set),
        memory_mb,
        before: seconds(options.before, 1.0, 2.0, 10.0),
        after: seconds(options.after, 3.0, 4.0, 120.0),
        bin: Duration::from_millis(250),
        connections: options.connections as usize,
        pipeline: options.pipeline.map_or(pipeline, |pipeline| pipeline as usize),
    });

    let mut experiment =
        Experiment::start("shift", "Shift: hit ratio when the sizes of values change", &common, memory_mb)?;
    let cores = experiment.generator_cores.clone();
    let warm_max = Duration::from_secs_f64(options.ways.warm_max);
    let driver = Driver { cores: &cores, seed: common.seed, warm_max };
    let fresh_requests = common.by_effort(100_000, 500_000, 1_000_000);
    let peak_time = Duration::from_millis(common.by_effort(300, 1_000, 2_000));
    let variants = Variant::all(&experiment, &options.ways);
    let mut found: Vec<Found> = Vec::new();
    for variant in variants {
        let search = !options.ways.equal_limit && variant.can_be_limited();
        let fit = match found.first() {
            Some(first) if variant.again => first.fit,
            _ => visit::fit(&variant, &plan, &driver, search, peak_time)?,
        };
        found.push(Found { variant, fit, visits: Vec::new(), fresh: Vec::new() });
    }
    let slowest = found.iter().map(|found| found.fit.peak).reduce(f64::min).unwrap_or(1.0);
    let rate = options.rate.unwrap_or(slowest / 2.0).max(1.0);
    report::settings(&mut experiment.run, &plan, options, rate);

    let names: Vec<String> = found.iter().map(|found| found.variant.name.clone()).collect();
    let mut order: Vec<(usize, Found)> = found.into_iter().enumerate().collect();
    // Two servers are warmed for each measurement.
    experiment.announce(order.len(), plan.length() + Duration::from_secs(5));
    experiment.rounds(
        &mut order,
        |(at, _)| names[*at].clone(),
        |experiment, (_, found), _| {
            let visit = experiment.undisturbed(&found.variant.name, |experiment| {
                let server = found.variant.start(found.fit.limit_mb)?;
                let visit = driver.visit(&server, &plan, rate)?;
                check::check(experiment, &found.variant, &visit);
                let waited = visit.waited;
                Ok((visit, waited))
            })?;
            let server = found.variant.start(found.fit.limit_mb)?;
            let (ratio, seen, counts) = driver.fresh_ratio(&server, &plan, fresh_requests)?;
            check::check_values(experiment, &found.variant, &seen);
            check::check_counts(experiment, &found.variant, &[&seen], counts);
            found.visits.push(visit);
            found.fresh.push(ratio);
            Ok(())
        },
    )?;
    let found: Vec<Found> = order.into_iter().map(|(_, found)| found).collect();
    let oracle = oracle::ratios(&plan, rate, common.seed);
    for route in experiment.routes(Protocol::Classic) {
        let asked =
            |found: &&Found| experiment.contenders[found.variant.contender].route(Protocol::Classic) == route;
        let peaks: Vec<(String, f64)> =
            found.iter().filter(asked).map(|found| (found.variant.name.clone(), found.fit.peak)).collect();
        experiment.hold_below(&peaks, |experiment| {
            Driver::ceiling(experiment, route, plan.connections, plan.pipeline)
        })?;
    }
    report::fill(&mut experiment, &plan, &found, &oracle, &options.ways)?;
    experiment.finish()
}
