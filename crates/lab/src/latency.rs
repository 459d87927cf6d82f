//! `larder lab latency`: the time of answers at a given load.
//!
//! Open loop: requests come at random times (Poisson), whatever is answered. Their time counts from when they were due, so that a
//! server's pause counts for all requests that were due meanwhile. The service time, from when a request was sent, stands beside
//! it: the difference is the queue. A ladder of loads, the same for all servers, in percent of the lowest peak (closed loop,
//! measured first), gives the curve. The figure to remember is the throughput at which the 99th percentile is still below a
//! millisecond.
//!
//! The generator has to be in time itself. Its limit is measured against a null server, and ladders end there. A visit in which
//! the generator lagged, or hardly waited, does not measure the server. It is repeated, and if that does not help, left out of
//! the table and of the verdict. A rung with half of its visits left out makes the run not valid.

mod report;

use std::time::Duration;

use clap::Args;
use larder_protocol::client::Protocol;

use crate::books::{Books, check_kept};
use crate::connection::Check;
use crate::error::Error;
use crate::experiment::{AMPLE_MB, Experiment, Options as Common, Seat, ample_keyspace};
use crate::fill;
use crate::generator::{Arrivals, Load, Stop};
use crate::keys::Choice;
use crate::null::Null;
use crate::numbers;
use crate::peers::CLIENTS_MAX;
use crate::placement::Placement;
use crate::results::{Ceiling, of_time};
use crate::route::SocketKind;
use crate::starvation::Waited;
use crate::stats::median;
use crate::tally::{Latencies, Tally, in_time};
use crate::usage::Usage;
use crate::workload::{Mix, Verb, Workload};

/// Options of `larder lab latency`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=i64::from(CLIENTS_MAX)))]
    connections: u32,
    /// Loads in percent of the slowest server's peak [default: 10, 25, 50, 75, 90, 95; with --full every 5 from 5 on]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=200))]
    percent: Vec<u32>,
    /// Requests: hit, miss, set, or several with weights: hit:9,set:1
    #[arg(long, value_name = "MIX", default_value = "hit", value_parser = Mix::parse)]
    mix: Mix,
    /// Choose keys by Zipf's law with this exponent [default: all alike]
    #[arg(long, value_name = "ALPHA", value_parser = numbers::not_negative)]
    zipf: Option<f64>,
    /// Bytes of values
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    value_bytes: u32,
    /// Number of keys, as far as 256 MB hold them
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Milliseconds of a visit [default: 500, or 200 with --quick]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(50..))]
    visit_ms: Option<u32>,
}

/// The bound of the 99th percentile.
pub const P99_MAX_US: f64 = 1000.0;

/// How often a visit is repeated in which the generator was late or busy.
const REPEATS_MAX: u32 = 2;
/// Shares of the null server's closed-loop rate at which the generator is tried, the largest first.
const TRIES: [f64; 7] = [1.0, 0.9, 0.8, 0.7, 0.6, 0.45, 0.3];

/// The result of a visit.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Replies a second.
    pub rate: f64,
    /// Times from when requests were due.
    pub latency: Latencies,
    /// Times from when they were sent.
    pub service: Latencies,
    /// Delays of their sending.
    pub lag: Latencies,
    /// Share of the time that the generator worked.
    pub busy: f64,
    /// Share of the time that the server worked.
    pub server_busy: Option<f64>,
}

impl Sample {
    fn of(tally: &Tally, threads: usize, used: Option<Duration>) -> Sample {
        let elapsed_s = tally.elapsed.as_secs_f64().max(1e-9);
        Sample {
            rate: tally.rate(),
            latency: tally.latency.clone(),
            service: tally.service.clone(),
            lag: tally.lag.clone(),
            busy: tally.generator_load(threads),
            server_busy: used.map(|used| used.as_secs_f64() / elapsed_s),
        }
    }

    /// Why the visit does not measure the server, if it does not.
    pub fn fault(&self) -> Option<String> {
        in_time(&self.lag, &self.latency, self.busy).err()
    }
}

/// A rung of a server's ladder, over all rounds.
#[derive(Debug)]
pub struct Cell {
    /// The server.
    pub seat: Seat,
    /// Percent of the lowest peak.
    pub percent: u32,
    /// Requests a second.
    pub per_s: f64,
    /// Samples by round. Those with a fault are included here, and left out of figures.
    pub samples: Vec<Sample>,
}

/// Rates that are measured before the ladders begin.
#[derive(Debug)]
pub struct Peaks {
    /// Peaks of the closed loop, by contender and round.
    pub closed: Vec<Vec<f64>>,
    /// The rate that the generator can send in time.
    pub generator: f64,
}

impl Peaks {
    /// 100 % of the ladder, the same for all servers: the lowest peak, as far as the generator can send it.
    pub fn shared(&self) -> f64 {
        self.closed.iter().map(|rates| median(rates)).fold(self.generator, f64::min)
    }
}

/// Runs the experiment and prints the result.
///
/// # Errors
/// When a server cannot be started or fails, or a check did not hold.
pub fn run(options: &Options) -> Result<(), Error> {
    let title = "Latency against load (open loop, counted from when a request was due)";
    let mut experiment = Experiment::start("latency", title, &options.common, AMPLE_MB)?;
    let visit = options.common.visit(options.visit_ms, 200, 500);
    for (name, value) in [
        ("visit, ms", visit.as_millis().to_string()),
        ("connections", options.connections.to_string()),
        ("asked", options.mix.to_string()),
        ("keys", options.keys.to_string()),
        ("value, B", options.value_bytes.to_string()),
    ] {
        experiment.run.set(name, value);
    }
    options.workload(Protocol::Classic).renderable()?;
    // Peaks of all servers, and their ladders.
    let rungs = experiment.seats().len() * options.percents().len();
    experiment.announce(experiment.contenders.len() + rungs, visit.mul_f64(1.3));
    for contender in &experiment.contenders {
        contender.control.flush()?;
        let workload = options.workload(contender.protocol(Protocol::Classic));
        fill::prepare(contender.endpoint(), &workload, &experiment.generator_cores)?;
    }
    let peaks = peaks(&mut experiment, options, visit)?;
    let mut cells = Vec::new();
    for seat in experiment.seats() {
        for percent in options.percents() {
            let per_s = peaks.shared() * f64::from(percent) / 100.0;
            cells.push(Cell { seat, percent, per_s, samples: Vec::new() });
        }
    }
    let names = experiment.names();
    let label =
        |cell: &Cell| format!("{}, {} % of the lowest peak", names[cell.seat.contender], cell.percent);
    experiment.rounds(&mut cells, label, |experiment, cell, round| {
        let name = experiment.seat_name(cell.seat);
        let once = |experiment: &mut Experiment| {
            experiment.undisturbed(&name, |experiment| visit_once(experiment, options, cell, visit, round))
        };
        let mut sample = once(experiment)?;
        for _ in 0..REPEATS_MAX {
            if sample.fault().is_some() {
                sample = once(experiment)?;
            }
        }
        cell.samples.push(sample);
        Ok(())
    })?;
    report::report(&mut experiment, &peaks, &cells)?;
    experiment.finish()
}

impl Options {
    fn workload(&self, protocol: Protocol) -> Workload {
        Workload {
            choice: self.zipf.map_or(Choice::Uniform, Choice::Zipf),
            connections: self.connections as usize,
            ..Workload::new(protocol, self.mix, ample_keyspace(self.keys, self.value_bytes))
        }
    }

    /// The load of a null server, and how its replies are checked. All its values are those of the first key, as a fill wrote
    /// them: in a mix, which writes others, they cannot be verified.
    fn null_load(&self, protocol: Protocol) -> (Workload, Check) {
        let workload = self.workload(protocol);
        match self.mix.only() {
            Some(Verb::Hit | Verb::Miss | Verb::Set) => {
                (Workload { choice: Choice::One, ..workload }, Check::Verify)
            }
            _ => (workload, Check::Parse),
        }
    }

    fn percents(&self) -> Vec<u32> {
        let full: Vec<u32> = (1..20).map(|step| 5 * step).collect();
        match self.percent.as_slice() {
            [] => self.common.by_effort(vec![25, 50, 90], vec![10, 25, 50, 75, 90, 95], full),
            given => given.to_vec(),
        }
    }
}

/// Measures closed-loop peaks of all servers, and the rate that the generator can send in time.
fn peaks(experiment: &mut Experiment, options: &Options, visit: Duration) -> Result<Peaks, Error> {
    let mut peaks: Vec<(usize, Vec<f64>)> =
        (0..experiment.contenders.len()).map(|index| (index, Vec::new())).collect();
    let names = experiment.names();
    let label = |peak: &(usize, Vec<f64>)| format!("peak of {}", names[peak.0]);
    experiment.rounds(&mut peaks, label, |experiment, (index, rates), _| {
        let name = names[*index].clone();
        rates
            .push(experiment.undisturbed(&name, |experiment| peak_once(experiment, options, visit, *index))?);
        Ok(())
    })?;
    let closed: Vec<Vec<f64>> = peaks.into_iter().map(|(_, rates)| rates).collect();
    hold_below_null(experiment, options, &closed)?;
    let generator = generator_peak(experiment, options, visit)?;
    Ok(Peaks { closed, generator })
}

/// Compares peaks with those of null servers, by each route.
fn hold_below_null(experiment: &mut Experiment, options: &Options, closed: &[Vec<f64>]) -> Result<(), Error> {
    for route in experiment.routes(Protocol::Classic) {
        let (workload, check) = options.null_load(route.protocol);
        let rates: Vec<(String, f64)> = experiment
            .contenders
            .iter()
            .zip(closed)
            .filter(|(contender, _)| contender.route(Protocol::Classic) == route)
            .map(|(contender, rates)| (contender.name.clone(), median(rates)))
            .collect();
        let (asked, connections) = (&options.mix, options.connections);
        let parsed = if check == Check::Parse { ", parsed" } else { "" };
        let load = format!("{asked} {connections}×1, {route}, closed loop{parsed}");
        experiment.hold_below(&rates, |experiment| {
            experiment.ceiling(&workload, check, load.clone(), route.socket)
        })?;
    }
    Ok(())
}

/// A server's peak of a closed loop.
fn peak_once(
    experiment: &mut Experiment,
    options: &Options,
    visit: Duration,
    index: usize,
) -> Result<(f64, Waited), Error> {
    let contender = &experiment.contenders[index];
    let workload = options.workload(contender.protocol(Protocol::Classic));
    let books = Books::open(&contender.control)?;
    let scripts = workload.scripts(experiment.options.seed);
    let mut load = Load::connect(contender.endpoint(), &workload, scripts, &experiment.generator_cores)?;
    let threads = contender.threads()?;
    let tally = load.run(Check::Verify, Stop::After(visit))?;
    let placement = contender.placement(threads.as_ref())?;
    drop(load);
    let (rate, name) = (tally.rate(), contender.name.clone());
    books.compare(&mut experiment.checks, &name, &tally)?;
    Ok((rate, Placement::waited(placement.as_ref(), tally.elapsed, tally.waited)))
}

/// The highest rate that the generator sends in time when the server costs almost nothing.
fn generator_peak(experiment: &mut Experiment, options: &Options, visit: Duration) -> Result<f64, Error> {
    // Reads are as good as any.
    let workload =
        Workload { mix: Mix::from(Verb::Hit), choice: Choice::One, ..options.workload(Protocol::Classic) };
    let null = Null::in_background(&workload, experiment.server_core, SocketKind::Tcp)?;
    let scripts = workload.scripts(1);
    let mut load = Load::connect(null.address(), &workload, scripts, &experiment.generator_cores)?;
    let closed = load.run(Check::Verify, Stop::After(visit))?.rate();
    let mut found = (closed * TRIES[TRIES.len() - 1] / 2.0, 0.0);
    'tries: for share in TRIES {
        // Twice, as other programs may disturb it once.
        for seed in 0..2 {
            let arrivals = Arrivals { per_s: closed * share, poisson: true, seed };
            let tally = load.run_open(Check::Verify, arrivals, visit)?;
            let sample = Sample::of(&tally, load.threads(), None);
            if sample.fault().is_none() {
                found = (closed * share, sample.busy);
                break 'tries;
            }
        }
    }
    let (per_s, busy) = found;
    let load = format!("{} connections, open loop, in time", options.connections);
    experiment.run.ceilings.push(Ceiling { load, per_s, busy });
    Ok(per_s)
}

fn visit_once(
    experiment: &mut Experiment,
    options: &Options,
    cell: &Cell,
    visit: Duration,
    round: u32,
) -> Result<(Sample, Waited), Error> {
    let contender = experiment.contender(cell.seat);
    let workload = options.workload(contender.protocol(Protocol::Classic));
    let seed = experiment.options.seed.wrapping_add(u64::from(round) << 32 | u64::from(cell.percent));
    let books = Books::open(&contender.control)?;
    let scripts = workload.scripts(seed);
    let mut load = Load::connect(contender.endpoint(), &workload, scripts, &experiment.generator_cores)?;
    // New connections and cold caches must not be measured.
    let mut all = load.run(Check::Verify, Stop::After(visit / 20))?;
    let (before, threads) = (contender.usage()?, contender.threads()?);
    let tally = load.run_open(Check::Verify, Arrivals { per_s: cell.per_s, poisson: true, seed }, visit)?;
    let used = contender.usage()?.zip(before).map(|(after, before)| Usage::since(after, before).run);
    let placement = contender.placement(threads.as_ref())?;
    let sample = Sample::of(&tally, load.threads(), used);
    let waited = Placement::waited(placement.as_ref(), tally.elapsed, tally.waited);
    let written = load.last_writes(fill::READ_BACK_MAX);
    drop(load);
    let name = contender.name.clone();
    let back = fill::read_back(contender.endpoint(), &workload, written, &experiment.generator_cores)?;
    check_kept(&mut experiment.checks, &name, &workload, &back, books.evicted()?);
    all.merge(back);
    let due = cell.per_s * visit.as_secs_f64();
    // Six standard deviations of a Poisson count, and the ends of the time.
    let sent_all = (tally.requests as f64 - due).abs() <= 6.0 * due.sqrt() + 2.0;
    experiment.checks.add(of_time::DUE, sent_all, || format!("{name}: {} of {due:.0}", tally.requests));
    all.merge(tally);
    experiment.note_idle_threads(cell.seat.contender, placement.as_ref());
    books.compare(&mut experiment.checks, &name, &all)?;
    Ok((sample, waited))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_servers_are_offered_the_same() {
        let peaks = Peaks { closed: vec![vec![90.0, 110.0, 100.0], vec![50.0, 60.0, 55.0]], generator: 80.0 };
        assert_eq!(peaks.shared(), 55.0);
        assert_eq!(Peaks { generator: 40.0, ..peaks }.shared(), 40.0);
    }

    #[test]
    fn a_visit_with_a_late_or_busy_generator_says_nothing() {
        let sample = |lag: u64, latency: u64, busy: f64| {
            let of = |us| {
                let mut latencies = Latencies::default();
                latencies.record(Duration::from_micros(us));
                latencies
            };
            let (latency, lag) = (of(latency), of(lag));
            Sample { rate: 1.0, service: latency.clone(), latency, lag, busy, server_busy: None }
        };
        assert_eq!(sample(5, 60, 0.5).fault(), None);
        assert_eq!(sample(29, 60, 0.5).fault(), None);
        assert!(sample(40, 60, 0.5).fault().unwrap().contains("late"));
        assert_eq!(sample(40, 6000, 0.5).fault(), None);
        assert!(sample(5, 60, 0.95).fault().unwrap().contains("busy 95 %"));
    }
}
