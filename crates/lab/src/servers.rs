//! `larder lab servers`: the rates of servers, and their costs.
//!
//! Closed loop, so these are peaks: connections × pipeline × load × size of values. The steadier figure is the server's CPU time
//! per request; throughput depends on the machine as much as on the server. Each visit first verifies every value for a while,
//! then measures, counting replies by length where their length is known, so that the generator stays ahead; the server must have
//! counted the same hits, misses and writes. `keydb` is the case of an article that compared Redis and KeyDB (docs/lab/keydb.md):
//! 16 connections × 200 reads of one key, 1,001,600 of them.
//!
//! `--verb` measures commands on collections in place of loads: `servers/collections.rs`.

mod collections;
mod report;
mod verbs;

use std::time::Duration;

use clap::Args;
use larder_protocol::client::Protocol;

use crate::books::{Books, check_kept};
use crate::connection::Check;
use crate::error::Error;
use crate::experiment::{AMPLE_MB, Experiment, Options as Common, Seat, ample_keyspace};
use crate::fill;
use crate::generator::{Load, Stop};
use crate::keys::{Choice, Keyspace};
use crate::peers::CLIENTS_MAX;
use crate::placement::Placement;
use crate::starvation::Waited;
use crate::stats::median;
use crate::tally::Latencies;
use crate::usage::Usage;
use crate::workload::{Mix, Verb, Workload};

/// Options of `larder lab servers`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Connections [default: with the pipeline 50×1 and 16×200; with --full 1, 4, 16, 64, 256, 1024]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(CLIENTS_MAX)))]
    connections: Vec<u32>,
    /// Requests sent together [default: as above; with --full 1, 4, 16, 64, 200]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pipeline: Vec<u32>,
    /// Loads: hit, miss, set, zipf (9 reads to 1 write), keydb (a million reads of one key, as in the article of
    /// docs/lab/keydb.md) [default: all; with --quick without keydb]
    #[arg(long, value_name = "LOAD", value_delimiter = ',', value_parser = Asked::parse)]
    load: Vec<Asked>,
    /// Commands on collections in place of loads, each on an element at random; all servers, Larder too, are asked in Redis's
    /// protocol
    #[arg(long, value_name = "VERB", value_delimiter = ',', value_enum, conflicts_with_all = ["load", "value_bytes", "keys", "meta"])]
    verb: Vec<verbs::Verb>,
    /// Elements of a collection; there are as many collections as have --items together [default: one collection]
    #[arg(long, value_name = "N", value_delimiter = ',', requires = "verb", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    elements: Vec<u32>,
    /// Elements of all collections together, unless one has more [default: 1,000,000; 100,000 with --quick]
    #[arg(long, value_name = "N", requires = "verb", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    items: Option<u32>,
    /// Bytes of values [default: 32; with --full 16, 128, 1024, 8192]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    value_bytes: Vec<u32>,
    /// Number of keys, as far as 256 MB hold them
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Ask memcached servers in meta commands
    #[arg(long)]
    meta: bool,
    /// Milliseconds of a visit [default: 500, or 200 with --quick]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(10..))]
    visit_ms: Option<u32>,
}

/// The kind of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Reads of keys that exist.
    Hit,
    /// Reads of keys that do not exist.
    Miss,
    /// Writes.
    Set,
    /// Nine reads to one write, keys by Zipf's law.
    Zipf,
    /// Reads of one key, as many as in the article on Redis and KeyDB.
    KeyDb,
}

/// The exponent of [`Asked::Zipf`]: YCSB's.
const ZIPF_ALPHA: f64 = 0.99;
/// Connections, pipeline and windows for each connection of [`Asked::KeyDb`].
const ARTICLE: (u32, u32, u64) = (16, 200, 313);

impl Asked {
    /// All kinds, in the order of tables.
    const ALL: [Asked; 5] = [Asked::Hit, Asked::Miss, Asked::Set, Asked::Zipf, Asked::KeyDb];

    /// Its name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Asked::Hit => "hit",
            Asked::Miss => "miss",
            Asked::Set => "set",
            Asked::Zipf => "zipf",
            Asked::KeyDb => "keydb",
        }
    }

    /// Whether it consists of several kinds of requests.
    fn is_mix(self) -> bool {
        self == Asked::Zipf
    }

    /// Whether a null server is compared with a server with so many threads that serve connections; `None`: that is not known. A
    /// null server has one thread, which has to look at each request of a mix: several threads may do more than it.
    fn has_null(self, workers: Option<u32>) -> bool {
        !self.is_mix() || workers == Some(1)
    }

    fn parse(text: &str) -> Result<Asked, String> {
        let names = || Asked::ALL.map(Asked::name).join(", ");
        // Its earlier name.
        let text = if text == "seed" { "keydb" } else { text };
        let named = Asked::ALL.into_iter().find(|load| load.name() == text);
        named.ok_or_else(|| format!("expected one of {}", names()))
    }
}

/// One point of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The load.
    pub asked: Asked,
    /// The number of connections.
    pub connections: u32,
    /// Requests that are sent together.
    pub pipeline: u32,
    /// Bytes of values.
    pub value_bytes: u32,
}

impl Setting {
    /// The load on a server that speaks `protocol`.
    fn workload(&self, protocol: Protocol, keys: u32) -> Workload {
        let (mix, choice) = match self.asked {
            Asked::Hit => (Mix::from(Verb::Hit), Choice::Uniform),
            Asked::Miss => (Mix::from(Verb::Miss), Choice::Uniform),
            Asked::Set => (Mix::from(Verb::Set), Choice::Uniform),
            Asked::Zipf => (Mix::of(&[(Verb::Hit, 9), (Verb::Set, 1)]), Choice::Zipf(ZIPF_ALPHA)),
            Asked::KeyDb => (Mix::from(Verb::Hit), Choice::One),
        };
        Workload {
            choice,
            connections: self.connections as usize,
            pipeline: self.pipeline as usize,
            ..Workload::new(protocol, mix, ample_keyspace(keys, self.value_bytes))
        }
    }

    /// The point in a word: load, connections × pipeline, bytes.
    pub fn words(&self) -> String {
        let Setting { asked, connections, pipeline, value_bytes } = self;
        format!("{} {connections}×{pipeline} {value_bytes} B", asked.name())
    }
}

/// The result of a visit.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Requests a second.
    pub rate: f64,
    /// CPU time of the server for a request, in µs.
    pub server_us: Option<f64>,
    /// Time of a window.
    pub latency: Latencies,
    /// Share of the time that the generator worked.
    pub busy: f64,
    /// The time of the measured part.
    pub elapsed_s: f64,
}

/// A setting on a server, over all rounds.
#[derive(Debug)]
pub struct Cell<S = Setting> {
    /// The server.
    pub seat: Seat,
    /// The setting.
    pub setting: S,
    /// The results, by round.
    pub samples: Vec<Sample>,
}

/// Runs the experiment and prints the result.
///
/// # Errors
/// When a server cannot be started or fails, or a check did not hold.
pub fn run(options: &Options) -> Result<(), Error> {
    if !options.verb.is_empty() {
        return collections::run(options);
    }
    let title = "Servers: throughput, and what a request costs them (closed loop)";
    let mut experiment = Experiment::start("servers", title, &options.common, AMPLE_MB)?;
    let visit = options.common.visit(options.visit_ms, 200, 500);
    experiment.run.set("visit, ms", visit.as_millis());
    experiment.run.set("keys", options.keys);
    let settings = options.settings();
    for setting in &settings {
        setting.workload(options.protocol(), options.keys).renderable()?;
    }
    let mut cells = Vec::new();
    // Besides its own time, a visit takes some to render requests and verify values.
    let visit_takes = visit.mul_f64(1.2) + Duration::from_millis(200);
    let most = settings.len() * (experiment.contenders.len() + 1);
    experiment.announce(most, visit_takes);
    for value_bytes in options.value_sizes() {
        for index in 0..experiment.contenders.len() {
            fill(&experiment, index, ample_keyspace(options.keys, value_bytes), options.protocol())?;
        }
        let here = settings.iter().filter(|setting| setting.value_bytes == value_bytes);
        let seats = experiment.seats();
        let visits = here.flat_map(|&setting| seats.iter().map(move |&seat| (seat, setting)));
        let mut group: Vec<Cell> =
            visits.map(|(seat, setting)| Cell { seat, setting, samples: Vec::new() }).collect();
        let names = experiment.names();
        let label = |cell: &Cell| format!("{}, {}", names[cell.seat.contender], cell.setting.words());
        experiment.rounds(&mut group, label, |experiment, cell, round| {
            let name = experiment.seat_name(cell.seat);
            let sample = experiment
                .undisturbed(&name, |experiment| visit_once(experiment, options, cell, visit, round))?;
            cell.samples.push(sample);
            Ok(())
        })?;
        cells.extend(group);
    }
    let workers: Vec<Option<u32>> = experiment.contenders.iter().map(|contender| contender.workers).collect();
    experiment.without_ceiling(report::without_null(&settings, &workers));
    for setting in report::extremes(&settings) {
        for route in experiment.routes(options.protocol()) {
            // One key is as good as many, except in a mix, where each key has a connection that changes it.
            let keys = if setting.asked.is_mix() { options.keys } else { 1 };
            let workload = setting.workload(route.protocol, keys);
            let asked = |cell: &&Cell| {
                let contender = experiment.contender(cell.seat);
                let has_null = setting.asked.has_null(contender.workers);
                cell.setting == setting && contender.route(options.protocol()) == route && has_null
            };
            let rates: Vec<(String, f64)> = cells
                .iter()
                .filter(asked)
                .map(|cell| {
                    let rates: Vec<f64> = cell.samples.iter().map(|sample| sample.rate).collect();
                    (experiment.seat_name(cell.seat), median(&rates))
                })
                .collect();
            if rates.is_empty() {
                continue;
            }
            let load = format!("{}, {route}", setting.words());
            experiment.hold_below(&rates, |experiment| {
                experiment.ceiling(&workload, Check::Length, load.clone(), route.socket)
            })?;
        }
    }
    report::report(&mut experiment, &cells)?;
    experiment.finish()
}

impl Options {
    fn protocol(&self) -> Protocol {
        if self.meta { Protocol::Meta } else { Protocol::Classic }
    }

    fn value_sizes(&self) -> Vec<u32> {
        match self.value_bytes.as_slice() {
            [] => self.common.by_effort(&[32][..], &[32], &[16, 128, 1024, 8192]).to_vec(),
            given => given.to_vec(),
        }
    }

    /// Counts of connections, and how many requests each sends together.
    fn shapes(&self) -> Vec<(u32, u32)> {
        let full = self.common.full;
        if !full && self.connections.is_empty() && self.pipeline.is_empty() {
            return vec![(50, 1), (16, 200)];
        }
        let or = |given: &[u32], one: &[u32], all: &[u32]| match (given, full) {
            ([], true) => all.to_vec(),
            ([], false) => one.to_vec(),
            (given, _) => given.to_vec(),
        };
        let pipelines = or(&self.pipeline, &[1], &[1, 4, 16, 64, 200]);
        or(&self.connections, &[50], &[1, 4, 16, 64, 256, 1024])
            .into_iter()
            .flat_map(|connections| pipelines.iter().map(move |&pipeline| (connections, pipeline)))
            .collect()
    }

    fn settings(&self) -> Vec<Setting> {
        // A million reads are not quick on every server.
        let usual = &Asked::ALL[..self.common.by_effort(4, 5, 5)];
        let loads: &[Asked] = if self.load.is_empty() { usual } else { &self.load };
        let shapes = self.shapes();
        let mut settings = Vec::new();
        for value_bytes in self.value_sizes() {
            for &asked in loads {
                let article = [(ARTICLE.0, ARTICLE.1)];
                let shapes = if asked == Asked::KeyDb { &article[..] } else { &shapes };
                for &(connections, pipeline) in shapes {
                    settings.push(Setting { asked, connections, pipeline, value_bytes });
                }
            }
        }
        settings
    }
}

fn fill(experiment: &Experiment, index: usize, keyspace: Keyspace, wanted: Protocol) -> Result<(), Error> {
    let contender = &experiment.contenders[index];
    contender.control.flush()?;
    fill::fill(contender.endpoint(), contender.protocol(wanted), keyspace, &experiment.generator_cores)?;
    Ok(())
}

fn visit_once(
    experiment: &mut Experiment,
    options: &Options,
    cell: &Cell,
    visit: Duration,
    round: u32,
) -> Result<(Sample, Waited), Error> {
    let contender = experiment.contender(cell.seat);
    let workload = cell.setting.workload(contender.protocol(options.protocol()), options.keys);
    let seed = experiment.options.seed.wrapping_add(u64::from(round) << 32);
    let scripts = workload.scripts(seed);
    let books = Books::open(&contender.control)?;
    let mut load = Load::connect(contender.endpoint(), &workload, scripts, &experiment.generator_cores)?;
    let mut all = load.run(Check::Verify, Stop::After(visit / 5))?;
    // A wrong reply has another length: a client that counts bytes would wait for the rest.
    let known = workload.has_known_replies() && all.wrong == 0;
    let check = if known { Check::Length } else { Check::Verify };
    let stop = if cell.setting.asked == Asked::KeyDb { Stop::Windows(ARTICLE.2) } else { Stop::After(visit) };
    let (before, threads) = (contender.usage()?, contender.threads()?);
    let tally = load.run(check, stop)?;
    let used = contender.usage()?.zip(before).map(|(after, before)| Usage::since(after, before).run);
    let placement = contender.placement(threads.as_ref())?;
    let waited = Placement::waited(placement.as_ref(), tally.elapsed, tally.waited);
    let sample = Sample {
        rate: tally.rate(),
        server_us: used.map(|used| used.as_secs_f64() * 1e6 / tally.requests.max(1) as f64),
        latency: tally.latency.clone(),
        busy: tally.generator_load(load.threads()),
        elapsed_s: tally.elapsed.as_secs_f64(),
    };
    let written = load.last_writes(fill::READ_BACK_MAX);
    drop(load);
    all.merge(tally);
    let back = fill::read_back(contender.endpoint(), &workload, written, &experiment.generator_cores)?;
    let name = contender.name.clone();
    check_kept(&mut experiment.checks, &name, &workload, &back, books.evicted()?);
    all.merge(back);
    experiment.note_idle_threads(cell.seat.contender, placement.as_ref());
    books.compare(&mut experiment.checks, &name, &all)?;
    Ok((sample, waited))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// `larder lab servers` and its options.
    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    /// Parses these words of a command line.
    pub(super) fn options(words: &[&str]) -> Options {
        Line::try_parse_from(["servers"].iter().chain(words)).unwrap().options
    }

    #[test]
    fn connections_and_pipelines_are_as_the_help_says() {
        assert_eq!(options(&[]).shapes(), [(50, 1), (16, 200)]);
        assert_eq!(options(&["--connections", "3,7"]).shapes(), [(3, 1), (7, 1)]);
        assert_eq!(options(&["--pipeline", "20"]).shapes(), [(50, 20)]);
        let full = options(&["--full"]).shapes();
        assert_eq!((full.len(), full[0], full[29]), (30, (1, 1), (1024, 200)));
        let some = options(&["--full", "--connections", "3"]).shapes();
        assert_eq!(some, [(3, 1), (3, 4), (3, 16), (3, 64), (3, 200)]);
    }

    #[test]
    fn the_articles_case_is_1_001_600_reads_of_one_key() {
        assert_eq!(u64::from(ARTICLE.0) * u64::from(ARTICLE.1) * ARTICLE.2, 1_001_600);
        let setting =
            Setting { asked: Asked::KeyDb, connections: ARTICLE.0, pipeline: ARTICLE.1, value_bytes: 4 };
        let workload = setting.workload(Protocol::Resp, 100);
        assert_eq!((workload.choice, workload.mix.only()), (Choice::One, Some(Verb::Hit)));
        assert_eq!((Asked::parse("keydb"), Asked::parse("seed")), (Ok(Asked::KeyDb), Ok(Asked::KeyDb)));
        assert!(!Asked::parse("all").unwrap_err().contains("seed"), "--seed is another thing");
    }
}
