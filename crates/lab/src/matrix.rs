//! `larder lab matrix`: what options of a client cost, and what they hide.
//!
//! libmemcached's NO_BLOCK × TCP_NODELAY × BUFFER_REQUESTS, all eight, for sets, gets, deletes and gets of many, values
//! of 8 to 300,000 bytes, handles that are kept or made anew for each call, replies that are awaited or not, over
//! loopback and over a relay. Beside them a loop by hand, which has no options, one request at a time and [`BATCH`]
//! together with every reply read, and Larder's own client in each of its ways, over a kept handle.
//!
//! ```text
//! lab (idle during visits) ── lines ──► driver on one core ── loopback or relay ──► server on the other
//! ```
//!
//! A call that returns may have been queued only, so calls are compared by the time until a barrier behind them is answered on
//! the same connection. The effect of an option is taken over all combinations of the others, with an interval over rounds. There
//! is none if the same server, measured twice, differs as much.
//!
//! What must hold: options are in effect, as library and socket say; the server's counts equal the calls' results; every value
//! that was set is read back over another connection, and every value read is verified; a handle opened the connections that it
//! should; a call returned "queued" exactly where it was queued; threads got their cores.
//!
//! A target may be behind a Unix socket, where there is no relay; one with TLS is refused, as libmemcached has none.
//!
//! A driver that its library aborts is a result: the row says how it ended.

mod effects;
mod faults;
mod report;
mod setting;
mod verdict;
mod visit;

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::connection::Check;
use crate::control::{Control, Family};
use crate::counted::Tracer;
use crate::driver::Ended;
use crate::driver::build::Language;
use crate::driver::reach::{Reach, Transport};
use crate::error::Error;
use crate::experiment::{AMPLE_MB, Experiment, Options as Common, Seat};
use crate::generator::{Load, Stop};
use crate::keys::Keyspace;
use crate::named::named;
use crate::progress::Progress;
use crate::results::of_time;
use crate::stats;
use crate::workload::{Verb, Workload};
use faults::{Account, Fault, Mode};
use larder_protocol::client::Protocol;
use setting::{Client, Grid, Handle, Link, Op, Reply, Setting};
use visit::{Bench, Counted, Sample};

/// Requests that the loop by hand sends together.
pub const BATCH: u64 = 64;

/// Options of `larder lab matrix`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// What calls do: set, get, delete, mget [default: set, get, delete; with --quick set, get; with --full all]
    #[arg(long, value_name = "OP", value_delimiter = ',', value_parser = parse_op)]
    operation: Vec<Op>,
    /// Bytes of values [default: 8, 1000, 65536, 300000; with --quick 8, 1000, 300000; with --full also 100, 8000]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    value_bytes: Vec<u32>,
    /// How long handles live: kept, churn (one for each call, as in the original article) [default: both]
    #[arg(long, value_name = "LIFE", value_delimiter = ',', value_parser = parse_handle)]
    handle: Vec<Handle>,
    /// Whether writes are answered: awaited, noreply [default: both; with --quick awaited]
    #[arg(long, value_name = "REPLY", value_delimiter = ',', value_parser = parse_reply)]
    reply: Vec<Reply>,
    /// What lies between: loopback, or a relay that makes a round trip longer, as relay-5ms [default: loopback,
    /// relay-1ms; with --quick loopback; with --full also relay-5ms]
    #[arg(long, value_name = "LINK", value_delimiter = ',', value_parser = Link::parse)]
    link: Vec<Link>,
    /// Parts: the grid of costs, the faults [default: both]
    #[arg(long, value_name = "PART", value_delimiter = ',', value_enum)]
    part: Vec<Part>,
    /// Milliseconds of a visit, which has 20 calls at least [default: 50]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..))]
    visit_ms: Option<u32>,
}

/// Parts of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// What options cost
    Grid,
    /// What they hide
    Faults,
}

fn parse_op(text: &str) -> Result<Op, String> {
    named(text, &Op::ALL, Op::name)
}

fn parse_handle(text: &str) -> Result<Handle, String> {
    named(text, &Handle::ALL, Handle::name)
}

fn parse_reply(text: &str) -> Result<Reply, String> {
    named(text, &Reply::ALL, Reply::name)
}

/// A point of the grid on a server, over all rounds.
#[derive(Debug)]
pub struct Cell {
    /// The server.
    pub seat: Seat,
    /// The setting.
    pub setting: Setting,
    /// The results, by round.
    pub samples: Vec<Sample>,
    /// Counts, made once.
    pub counted: Counted,
    /// How the driver ended, if it did: then this cell is not tried again.
    pub ended: Option<Ended>,
}

/// A fault on a server, and its result.
#[derive(Debug)]
pub struct Faulted {
    /// Index among the contenders.
    pub contender: usize,
    /// The way to store.
    pub mode: Mode,
    /// The fault.
    pub fault: Fault,
    /// The result.
    pub account: Account,
}

/// Runs the experiment and prints the result.
///
/// # Errors
/// When the driver cannot be built, a server cannot be started or fails, or a check did not hold.
pub fn run(options: &Options) -> Result<(), Error> {
    options.only_memcached()?;
    let grid = options.grid();
    options.common.targets.iter().try_for_each(|target| is_reached(&target.control(), &grid.links))?;
    // This error comes before any server is started.
    Language::C.build()?;
    let title = "Client options: what they cost, and what they hide";
    let mut experiment = Experiment::start("matrix", title, &options.common, AMPLE_MB)?;
    let visit = options.common.visit(options.visit_ms, 50, 50);
    let core = experiment.generator_cores.first().copied().flatten();
    let mut bench = Bench::new(core, &grid.sizes);
    let version = bench.driver(Client::ByHand)?.version.clone();
    experiment.run.set("libmemcached", version);
    experiment.run.set("visit, ms", visit.as_millis());
    let mut cells = Vec::new();
    if options.does(Part::Grid) {
        cells = costs(&mut experiment, &mut bench, &grid, visit)?;
        compare_with_the_generator(&mut experiment, &mut bench, grid.sizes[0], visit)?;
    }
    let mut faulted = Vec::new();
    if options.does(Part::Faults) {
        faulted = all_faults(&mut experiment, &bench)?;
    }
    report::report(&mut experiment, &cells, &faulted, &grid)?;
    experiment.finish()
}

/// Checks that libmemcached can reach a server over these links: by its IP address or the path of its socket, without a login.
/// It has one in its binary protocol alone, which the matrix does not measure.
fn is_reached(control: &Control, links: &[Link]) -> Result<(), Error> {
    let is_relayed = links.iter().any(|link| matches!(link, Link::Relay(_)));
    let why = match Transport::of(control) {
        Transport::Tls => "libmemcached has no TLS",
        Transport::Unix if is_relayed => "a relay leads to no Unix socket: --link loopback",
        Transport::Tcp | Transport::Unix if control.login.is_some() => {
            "libmemcached says no password in the text protocol"
        }
        Transport::Tcp | Transport::Unix => return Reach::of(control).map(drop),
    };
    Err(Error::Usage(format!("{}: {why}", control.name)))
}

impl Options {
    fn does(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }

    /// Refuses servers that are not of memcached's family: libmemcached speaks to no others.
    fn only_memcached(&self) -> Result<(), Error> {
        let peers = self.common.peers.iter().map(|kind| (kind.name(), kind.family()));
        let targets = self.common.targets.iter().map(|target| (target.name.as_str(), target.family));
        match peers.chain(targets).find(|(_, family)| *family == Family::Redis) {
            Some((name, _)) => Err(Error::Usage(format!("libmemcached does not speak {name}'s protocol"))),
            None => Ok(()),
        }
    }

    fn grid(&self) -> Grid {
        fn or<T: Clone>(given: &[T], usual: &[T]) -> Vec<T> {
            if given.is_empty() { usual.to_vec() } else { given.to_vec() }
        }
        let common = &self.common;
        let relays = [Link::Loopback, Link::Relay(1), Link::Relay(5)];
        let sizes: &[u32] = common.by_effort(
            &[8, 1_000, 300_000],
            &[8, 1_000, 65_536, 300_000],
            &[8, 100, 1_000, 8_000, 65_536, 300_000],
        );
        let mut sizes: Vec<usize> = or(&self.value_bytes, sizes).iter().map(|&size| size as usize).collect();
        sizes.sort_unstable();
        sizes.dedup();
        Grid {
            ops: or(&self.operation, &Op::ALL[..common.by_effort(2, 3, 4)]),
            sizes,
            handles: or(&self.handle, &Handle::ALL),
            replies: or(&self.reply, &Reply::ALL[..common.by_effort(1, 2, 2)]),
            links: or(&self.link, &relays[..common.by_effort(1, 2, 3)]),
        }
    }
}

/// The time of a visit beside its calls: two questions to servers, a driver that becomes warm, values that are read back.
const AROUND: Duration = Duration::from_millis(40);

/// Visits every cell in every round, and counts system calls, segments and acknowledgements once.
fn costs(
    experiment: &mut Experiment,
    bench: &mut Bench,
    grid: &Grid,
    visit: Duration,
) -> Result<Vec<Cell>, Error> {
    let (settings, left_out) = grid.settings();
    experiment.run.notes.extend(left_out.iter().map(|why| why.words().to_owned()));
    let mut cells: Vec<Cell> = Vec::new();
    for seat in experiment.seats() {
        for &setting in &settings {
            // The noise is measured for effects of options: a client without options has none.
            if seat.again && setting.client.options().is_none() {
                continue;
            }
            let counted = Counted::default();
            cells.push(Cell { seat, setting, samples: Vec::new(), counted, ended: None });
        }
    }
    experiment.announce(cells.len(), visit + AROUND);
    for contender in 0..experiment.contenders.len() {
        bench.fill(experiment, contender)?;
        for &link in &grid.links {
            let Link::Relay(_) = link else { continue };
            let added = bench.added(experiment, contender, link)?;
            let name = &experiment.contenders[contender].name;
            let us = added.as_micros();
            experiment.run.notes.push(format!("{} to {name} makes a round trip {us} µs longer", link.name()));
        }
    }
    let names = experiment.names();
    let label = |cell: &Cell| format!("{}, {}", names[cell.seat.contender], cell.setting.words());
    experiment.rounds(&mut cells, label, |experiment, cell, _| {
        if cell.ended.is_none() {
            let (contender, name) = (cell.seat.contender, &names[cell.seat.contender]);
            let visited = experiment
                .undisturbed(name, |experiment| bench.visit(experiment, contender, &cell.setting, visit))?;
            match visited {
                Ok(sample) => cell.samples.push(sample),
                Err(ended) => cell.ended = Some(ended),
            }
        }
        Ok(())
    })?;
    let tracer = Tracer::find();
    experiment.run.set("system calls", tracer.words());
    // A longer way does not change the counts of a call.
    let countable =
        |cell: &Cell| !cell.seat.again && cell.ended.is_none() && cell.setting.link == Link::Loopback;
    let progress = Progress::new(cells.iter().filter(|cell| countable(cell)).count() as u64);
    for cell in cells.iter_mut().filter(|cell| countable(cell)) {
        progress.say(format!("counting: {}", cell.setting.words()));
        cell.counted = bench.count(experiment, cell.seat.contender, &cell.setting, tracer)?;
        progress.step();
    }
    Ok(cells)
}

/// How often both are measured for [`compare_with_the_generator`].
const TRIES: usize = 5;
/// How many times the generator's CPU time the loop by hand may take.
const OF_THE_GENERATOR: f64 = 1.3;

/// Checks that the loop by hand is no straw man: it costs about as much as the lab's own generator, one request at a time.
fn compare_with_the_generator(
    experiment: &mut Experiment,
    bench: &mut Bench,
    value_bytes: usize,
    visit: Duration,
) -> Result<(), Error> {
    let setting = Setting {
        client: Client::ByHand,
        op: Op::Set,
        value_bytes,
        handle: Handle::Kept,
        reply: Reply::Awaited,
        link: Link::Loopback,
    };
    let space = Keyspace::new(1_000, value_bytes);
    let workload = Workload { connections: 1, ..Workload::new(Protocol::Classic, Verb::Set, space) };
    let (mut ours, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..TRIES {
        if let (Ok(sample), _) = bench.visit(experiment, 0, &setting, visit)? {
            ours.push(sample.client_us);
        }
        let endpoint = experiment.contenders[0].endpoint();
        let mut load = Load::connect(&endpoint, &workload, workload.scripts(1), &experiment.generator_cores)?;
        let tally = load.run(Check::Parse, Stop::After(visit))?;
        costs.push(tally.generator_cpu.as_secs_f64() * 1e6 / tally.requests.max(1) as f64);
    }
    let (ours, generator) = (stats::min(&ours), stats::min(&costs));
    experiment.checks.add(of_time::BY_HAND, ours <= OF_THE_GENERATOR * generator, || {
        format!("{ours:.1} µs of CPU a set, {generator:.1} µs by the generator")
    });
    Ok(())
}

/// Runs every fault with every way to store, on every server that the lab can start and kill.
fn all_faults(experiment: &mut Experiment, bench: &Bench) -> Result<Vec<Faulted>, Error> {
    let kinds: Vec<_> = experiment.contenders.iter().map(|contender| contender.kind).collect();
    let steps = kinds.iter().flatten().count() * Mode::ALL.len() * Fault::ALL.len();
    let progress = Progress::new(steps as u64);
    let mut all = Vec::new();
    for (contender, kind) in kinds.into_iter().enumerate() {
        let Some(kind) = kind else {
            let name = experiment.contenders[contender].name.clone();
            experiment
                .run
                .notes
                .push(format!("{name} was running before: it is not stopped, filled or killed"));
            continue;
        };
        for fault in Fault::ALL {
            for mode in Mode::ALL {
                progress.say(format!("{}: {}, {}", kind.name(), fault.name(), mode.name()));
                let account = faults::visit(experiment, bench, kind, mode, fault)?;
                all.push(Faulted { contender, mode, fault, account });
                progress.step();
            }
        }
    }
    Ok(all)
}
