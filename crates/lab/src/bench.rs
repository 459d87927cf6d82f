//! The server's benchmark: every figure with its target, side by side with other servers.
//!
//! Servers of one data set run at the same time, pinned to one core with one thread each, the generator on another core; idle
//! ones sleep. A round visits every pair of load and server once, in random order, with connections that stay open. Larder is
//! visited twice, which shows the noise (A/A). CPU time is the server's own over the requests of the visit; ratios are taken
//! within rounds. Before and after the rounds every value is verified. In the rounds replies are counted by their length and
//! their end, so that the generator stays ahead of the fastest server. A visit in which other programs used the server's or the
//! generator's core is repeated; if that does not help, there is no result.

pub mod figures;
mod judge;
pub mod report;
pub mod tls;
mod visits;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;
use larder_protocol::client::{Protocol, command};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::connection::Check;
use crate::contender::parse_peer;
use crate::error::Error;
use crate::fill;
use crate::generator::{Load, Stop};
use crate::peers::{self, Kind, Server, Spec};
use crate::placement::{Placement, Threads};
use crate::script::Script;
use crate::starvation::{Waited, least_disturbed};
use crate::stats::ROUNDS_MIN;
use crate::usage::{self, Usage};
use crate::workload::{SCRIPT, SCRIPT_DIGEST, Verb, Workload};
use figures::{Data, FIGURES, Figure, MEMORY, MILLION, Reference};
use judge::{judge, memory};
use report::{Cell, Outcome, Role, Verdict};

/// Options of `bench-server`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    visits: visits::Options,
    /// Only these: get, set, mg, ms, one, plain, multi, evict, memory, resp, 4k, 100k, 4k-get-1 …
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Servers to compare with, of those that the lab can start, except larder-redis: each takes memcached's or Redis's place
    /// [default: memcached,redis]
    #[arg(long = "peer", value_name = "NAME", value_delimiter = ',', value_parser = parse_rival)]
    peers: Vec<Kind>,
    /// Leave these servers out: larder, memcached, redis, null
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Another larder binary than this one
    #[arg(long)]
    larder: Option<PathBuf>,
    /// An older larder binary, visited beside: CPU time is to be at most 1.03 of its
    #[arg(long)]
    against: Option<PathBuf>,
}

/// Reads the name of a server to compare with, for clap.
fn parse_rival(text: &str) -> Result<Kind, String> {
    match parse_peer(text)? {
        Kind::LarderRedis => Err("Larder is asked in both protocols in any case".to_owned()),
        kind => Ok(kind),
    }
}

/// The result of a visit.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// How long threads waited for a core.
    pub waited: Waited,
    /// The server's CPU time per request, or per key of requests with several.
    pub cpu_us: f64,
    /// The part of it in user mode (known in steps of 10 ms).
    pub user_us: f64,
    /// Requests a second.
    pub rate: f64,
    /// Median latency of a window.
    pub p50_us: f64,
    /// 99th percentile of it.
    pub p99_us: f64,
    /// Share of the time that the generator was running.
    pub generator_load: f64,
    /// Writes that were refused, where [`Cell::may_refuse`].
    pub refused: u64,
}

/// Runs the benchmark and prints it.
///
/// # Errors
/// A server cannot be started, a reply is wrong, a thread waited for a core for too long, or a target is missed.
pub fn server(options: &Options) -> Result<(), Error> {
    let bench = Bench::new(options)?;
    println!("{}", peers::machine());
    println!("{}", options.visits.words(bench.core));
    let steal = usage::steal_ticks();
    let mut results = Results::default();
    for data in bench.data() {
        let chosen: Vec<Figure> =
            bench.figures.iter().filter(|figure| figure.data == data).copied().collect();
        bench.measure(data, &chosen, &mut results)?;
    }
    if let (Some((stolen_before, all_before)), Some((stolen, all))) = (steal, usage::steal_ticks()) {
        let share = (stolen - stolen_before) as f64 / (all - all_before).max(1) as f64;
        println!("stolen by the hypervisor: {:.1} % of the machine's time", 100.0 * share);
    }
    let Results { servers, cells, mut verdicts } = results;
    servers.iter().for_each(|server| println!("{server}"));
    for cell in &cells {
        let refused: u64 = cell.samples.iter().map(|sample| sample.refused).sum();
        if refused > 0 {
            println!("{}: {refused} writes were refused for want of memory", cell.name());
        }
    }
    println!("\n{}\n", report::measurements(&cells));
    verdicts.extend(judge(&cells));
    println!("{}", report::verdicts(&verdicts));
    if options.visits.rounds < ROUNDS_MIN as u32 {
        println!("no intervals: of fewer than {ROUNDS_MIN} rounds none holds the median with 95 %");
    }
    if let Some(why) = report::disturbed(&cells, options.visits.wait_max) {
        return Err(Error::NotValid(why));
    }
    match verdicts.iter().filter(|verdict| verdict.outcome == Outcome::Miss).count() {
        0 => Ok(()),
        missed => Err(Error::Missed(missed)),
    }
}

struct Bench<'a> {
    options: &'a Options,
    core: usize,
    visit: Duration,
    figures: Vec<Figure>,
    memory: bool,
    kinds: Vec<Kind>,
}

/// The material of the report.
#[derive(Default)]
struct Results {
    /// Each kind of server with its version.
    servers: Vec<String>,
    cells: Vec<Cell>,
    verdicts: Vec<Verdict>,
}

/// One load on one server, ready to run.
struct Visit {
    cell: usize,
    load: Load,
    pid: u32,
    /// Whether the load adds to numbers.
    counts: bool,
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options) -> Result<Bench<'a>, Error> {
        let refuse = |why: String| Err(Error::Usage(why));
        for word in &options.only {
            if word != MEMORY && !FIGURES.iter().any(|figure| figure.is_meant_by(word)) {
                return refuse(format!("there is no figure {word:?}"));
            }
        }
        let mut all = vec![Kind::Larder, Kind::Null];
        let usual = [Kind::Memcached, Kind::Redis];
        for &kind in if options.peers.is_empty() { &usual[..] } else { &options.peers } {
            if !all.contains(&kind) {
                all.push(kind);
            }
        }
        for word in &options.without {
            if !all.iter().any(|kind| kind.name() == word) {
                return refuse(format!("there is no server {word:?}"));
            }
        }
        let meant = |figure: &Figure| {
            options.only.is_empty() || options.only.iter().any(|word| figure.is_meant_by(word))
        };
        // The figures that others are compared with are measured along with them.
        let referred = |id: &str| {
            FIGURES
                .iter()
                .filter(|figure| meant(figure))
                .flat_map(|figure| figure.bounds)
                .any(|bound| matches!(bound.reference, Reference::Figure(other) if other == id))
        };
        Ok(Bench {
            options,
            core: options.visits.cores()?.generator,
            visit: options.visits.time(),
            figures: FIGURES.iter().filter(|figure| meant(figure) || referred(figure.id)).copied().collect(),
            memory: options.only.is_empty() || options.only.iter().any(|word| word == MEMORY),
            kinds: all
                .into_iter()
                .filter(|kind| !options.without.iter().any(|word| word == kind.name()))
                .collect(),
        })
    }

    /// The data sets in use, without repetitions.
    fn data(&self) -> Vec<Data> {
        let mut data: Vec<Data> = self.figures.iter().map(|figure| figure.data).collect();
        data.dedup();
        if self.memory && !data.contains(&MILLION) {
            data.push(MILLION);
        }
        data
    }

    fn start(
        &self,
        kind: Kind,
        program: Option<PathBuf>,
        memory_mb: u32,
        null: Option<Workload>,
    ) -> Result<Server, Error> {
        let server = Server::start(&Spec {
            kind,
            program,
            memory_mb,
            threads: 1,
            core: Some(self.options.visits.server_core),
            null,
        })?;
        eprintln!("started {} {} ({})", kind.name(), server.version, server.command);
        Ok(server)
    }

    /// Runs all rounds of the figures on one data set.
    fn measure(&self, data: Data, figures: &[Figure], results: &mut Results) -> Result<(), Error> {
        let memory = self.memory && data == MILLION;
        let mut servers = Vec::new();
        let mut older = None;
        for &kind in self.kinds.iter().filter(|&&kind| kind != Kind::Null) {
            let peer = figures.iter().any(|figure| figure.peers.contains(&kind.stands_for()));
            if memory || peer || (kind == Kind::Larder && !figures.is_empty()) {
                let program = if kind == Kind::Larder { self.options.larder.clone() } else { None };
                let (server, used) = self.start_filled(kind, program, data)?;
                if let (Kind::Larder, Some(program)) = (kind, &self.options.against) {
                    older = Some(self.start_filled(kind, Some(program.clone()), data)?.0);
                }
                if memory {
                    results.verdicts.push(used);
                }
                let version = format!("{} {}", kind.name(), server.version);
                if !results.servers.contains(&version) {
                    results.servers.push(version);
                }
                servers.push(server);
            }
        }
        if figures.is_empty() {
            return Ok(());
        }
        let mut visits = Vec::new();
        for figure in figures {
            self.prepare(figure, &mut servers, older.as_ref(), &mut visits, &mut results.cells)?;
        }
        verify(&mut visits, &results.cells)?;
        let mut rng = StdRng::seed_from_u64(self.options.visits.seed);
        for round in 1..=self.options.visits.rounds {
            visits.shuffle(&mut rng);
            eprintln!(
                "{} keys of {} B: round {round} of {}",
                data.keys, data.value_bytes, self.options.visits.rounds
            );
            for visit in &mut visits {
                let cell = &mut results.cells[visit.cell];
                let sample = || self.sample(visit, cell).map(|sample| (sample, sample.waited));
                let (sample, _) = least_disturbed(self.options.visits.wait_max / 100.0, sample)
                    .map_err(|error| error.within(|| cell.name()))?;
                cell.samples.push(sample);
            }
        }
        verify(&mut visits, &results.cells)
    }

    /// Starts a server and stores the data; returns the memory that this took.
    fn start_filled(
        &self,
        kind: Kind,
        program: Option<PathBuf>,
        data: Data,
    ) -> Result<(Server, Verdict), Error> {
        let pause = Duration::from_millis(500);
        let server = self.start(kind, program, data.memory_mb, None)?;
        thread::sleep(pause);
        let empty = usage::rss_bytes(server.process()?)?;
        let protocol = kind.protocol(Protocol::Classic);
        let filled = fill::fill(&server.control.address, protocol, data.keyspace(), &[Some(self.core)]);
        if kind.is_larder() || !data.overfills() {
            filled.map_err(|error| error.within(|| kind.name().to_owned()))?;
        }
        thread::sleep(pause);
        let full = usage::rss_bytes(server.process()?)?;
        Ok((server, memory(kind, data, empty, full)))
    }

    /// Connects to every server of a figure; starts its null server.
    fn prepare(
        &self,
        figure: &Figure,
        servers: &mut Vec<Server>,
        older: Option<&Server>,
        visits: &mut Vec<Visit>,
        cells: &mut Vec<Cell>,
    ) -> Result<(), Error> {
        let mut rendered: Vec<(Workload, Vec<Arc<Script>>)> = Vec::new();
        for &kind in &self.kinds {
            if kind != Kind::Larder && !figure.peers.contains(&kind.stands_for()) {
                continue;
            }
            let workload = figure.workload(kind);
            if kind == Kind::Null {
                servers.push(self.start(kind, None, figure.data.memory_mb, Some(workload.clone()))?);
            }
            // The null server of this figure is the last one.
            let server = servers.iter().rfind(|server| server.kind == kind).expect("it was started");
            let scripts = match rendered.iter().find(|(have, _)| *have == workload) {
                Some((_, scripts)) => scripts.clone(),
                None => {
                    let scripts = workload.scripts(self.options.visits.seed);
                    rendered.push((workload.clone(), scripts.clone()));
                    scripts
                }
            };
            let counts = matches!(figure.verb, Verb::Incr | Verb::SetBit | Verb::GetBit | Verb::SetRange);
            if figure.verb == Verb::Incr {
                for server in [Some(server), older].into_iter().flatten() {
                    fill::prepare(&server.control.address, &workload, &[Some(self.core)])?;
                }
            }
            if figure.verb == Verb::EvalSha && kind != Kind::Null {
                for server in [Some(server), older].into_iter().flatten() {
                    load_script(server)?;
                }
            }
            // The first server is visited twice a round.
            let again = (kind == self.kinds[0]).then_some((Role::Again, server));
            let older = older.filter(|_| kind == Kind::Larder).map(|older| (Role::Older, older));
            for (role, server) in [(Role::First, server)].into_iter().chain(again).chain(older) {
                let load =
                    Load::connect(&server.control.address, &workload, scripts.clone(), &[Some(self.core)])?;
                visits.push(Visit { cell: cells.len(), load, pid: server.process()?, counts });
                cells.push(Cell { figure: *figure, kind, role, samples: Vec::new() });
            }
        }
        Ok(())
    }

    fn sample(&self, visit: &mut Visit, cell: &Cell) -> Result<Sample, Error> {
        let (before, threads) = (Usage::of(visit.pid)?, Threads::of(visit.pid)?);
        // The generator cannot know the digits of a sum, or which writes are refused.
        let check = if visit.counts || cell.may_refuse() { Check::Parse } else { Check::Length };
        let tally = visit.load.run(check, Stop::After(self.visit))?;
        let used = Usage::of(visit.pid)?.since(before);
        let placement = threads.placement(visit.pid)?;
        let units = tally.keys.max(1) as f64;
        Ok(Sample {
            waited: Placement::waited(Some(&placement), tally.elapsed, tally.waited),
            cpu_us: used.run.as_secs_f64() * 1e6 / units,
            user_us: used.split.user.as_secs_f64() * 1e6 / units,
            rate: tally.rate(),
            p50_us: tally.latency_us(0.5),
            p99_us: tally.latency_us(0.99),
            generator_load: tally.generator_load(visit.load.threads()),
            refused: tally.wrong,
        })
    }
}

/// Gives a server the script that [`Verb::EvalSha`] runs.
fn load_script(server: &Server) -> Result<(), Error> {
    let mut request = Vec::new();
    command(&mut request, &[b"SCRIPT", b"LOAD", SCRIPT]);
    server.control.ask(request, &format!("{}\r\n", SCRIPT_DIGEST.escape_ascii())).map(drop)
}

/// Sends requests for a moment, with every value verified. The replies of a null server are only parsed: they are always the
/// same.
fn verify(visits: &mut [Visit], cells: &[Cell]) -> Result<(), Error> {
    for visit in visits {
        let cell = &cells[visit.cell];
        let check = if cell.kind == Kind::Null { Check::Parse } else { Check::Verify };
        let tally = visit.load.run(check, Stop::After(Duration::from_millis(100)));
        let tally = tally.map_err(|error| error.within(|| cell.name()))?;
        if cell.may_refuse() {
            continue;
        }
        if let Some(first) = tally.first_wrong {
            return Err(Error::NotValid(format!(
                "{}: {} wrong replies, the first: {first}",
                cell.name(),
                tally.wrong
            )));
        }
        let answered = match cell.figure.verb {
            Verb::Hit | Verb::Get | Verb::EvalSha => tally.hits,
            Verb::Miss => tally.misses,
            Verb::Set => tally.stored,
            Verb::Delete => tally.deleted,
            Verb::Incr | Verb::SetBit | Verb::GetBit | Verb::SetRange => tally.counted,
            Verb::Cas | Verb::Gets => tally.swaps,
        };
        if answered != tally.keys {
            return Err(Error::NotValid(format!("{answered} replies for {} keys", tally.keys)));
        }
    }
    Ok(())
}
