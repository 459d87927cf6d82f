//! `larder lab clients`: what a client adds to a request, what it does when the server does not answer, and whether it
//! is ever wrong.
//!
//! ```text
//! lab (idle during visits) ── lines ──► driver of a language on one core ──► server on the other
//!                                       its clients, callers, values         loopback; with faults: a relay between
//! ```
//!
//! Wall time says little of two clients that share two cores with their server: it depends on how they wait. So clients are
//! compared by the CPU time of a call, and by counts of allocations, system calls and connections. Beside them stands a loop by
//! hand, the least that a program can do, with ratios to it in the same round.
//!
//! A target may be behind a Unix socket or TLS. A client that does not make such connections is not asked, and a note says why.
//!
//! What must hold: every value read is the key's, byte by byte; every call has one outcome; the server's counts equal the calls'
//! results; threads got their cores. With a fault the outcomes have to add up, too, and a client's wrong results are the
//! finding.

mod faults;
mod floor;
mod report;
mod roster;
mod targets;
mod visit;

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::contender::Target;
use crate::control::Control;
use crate::counted::Tracer;
use crate::driver::build::Language;
use crate::driver::reach::{Reach, Transport};
use crate::error::Error;
use crate::experiment::{AMPLE_MB, Experiment, Options as Common, Seat};
use crate::named::named;
use crate::peers::Kind;
use crate::progress::Progress;
use faults::{Account, Fault};
use floor::Floor;
use roster::{BY_HAND, CLIENTS, Client, OWN, Speaks};
use visit::{Bench, Callers, Op, Sample, Setting};

/// Options of `larder lab clients`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Languages of the clients: go, c, rust, python, java [default: all whose tools are installed; with --quick go, c]
    #[arg(long, value_name = "LANGUAGE", value_delimiter = ',', value_parser = parse_language)]
    driver: Vec<Language>,
    /// Clients whose name contains this [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    client: Vec<String>,
    /// List the clients and what they do, and measure nothing
    #[arg(long)]
    list: bool,
    /// Kinds of calls: hit, set, many (gets 100 keys), sets (stores 64 keys, by clients that have such a call), miss
    /// [default: all; with --quick hit, set, many]
    #[arg(long, value_name = "OP", value_delimiter = ',', value_parser = parse_op)]
    operation: Vec<Op>,
    /// Bytes of values [default: 100; with --full also 10000]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    value_bytes: Vec<u32>,
    /// Numbers of callers at the same time [default: 1, 16, 256; with threads in place of goroutines, 256 with --full only]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1000))]
    callers: Vec<u32>,
    /// Parts: the grid of costs, the faults [default: both]
    #[arg(long, value_name = "PART", value_delimiter = ',', value_enum)]
    part: Vec<Part>,
    /// Values to read beside each fault, in as many visits as that takes [default: those of one visit]
    #[arg(long, value_name = "N")]
    reads: Option<u64>,
    /// Milliseconds of a visit [default: 50]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..))]
    visit_ms: Option<u32>,
}

/// Memory of a server that holds large values beside all others: a hundred large values are 30 MB.
const LARGE_MEMORY_MB: u32 = 256;

/// Parts of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// What a call costs
    Grid,
    /// What clients do when the server does not answer
    Faults,
}

fn parse_language(text: &str) -> Result<Language, String> {
    named(text, &Language::ALL, Language::name)
}

fn parse_op(text: &str) -> Result<Op, String> {
    named(text, &Op::ALL, Op::name)
}

/// A point of the grid on a server, over all rounds.
#[derive(Debug)]
struct Cell {
    seat: Seat,
    setting: Setting,
    /// The results, by round.
    samples: Vec<Sample>,
    /// System calls of a call, where they were counted.
    syscalls: Option<f64>,
}

/// A fault and its result.
#[derive(Debug)]
struct Faulted {
    contender: usize,
    client: Client,
    fault: Fault,
    account: Account,
}

/// Runs the experiment and prints the result.
///
/// # Errors
/// When a driver that was asked for cannot be built, a server cannot be started or fails, or a check did not hold.
pub fn run(options: &Options) -> Result<(), Error> {
    if options.list {
        for client in CLIENTS {
            println!("{:<32} {}", client.full_name(), client.features);
        }
        return Ok(());
    }
    let none = || Error::Usage("there is no such client: --list shows them".to_owned());
    let asked = if options.driver.is_empty() { &Language::ALL[..] } else { &options.driver };
    if !CLIENTS.iter().any(|client| options.wants(client, asked)) {
        return Err(none());
    }
    options.common.targets.iter().try_for_each(|target| Reach::of(&target.control()).map(drop))?;
    let (languages, absent) = options.languages()?;
    let mut clients: Vec<Client> =
        CLIENTS.iter().filter(|client| options.wants(client, &languages)).copied().collect();
    if clients.is_empty() {
        return Err(none());
    }
    for target in options.common.targets.iter().map(Target::control) {
        if !clients.iter().any(|client| client.can_ask(&target)) {
            let by = match Transport::of(&target) {
                Transport::Tcp => String::new(),
                other @ (Transport::Unix | Transport::Tls) => format!(" by {other}"),
            };
            let login = if target.login.is_some() { " and logs in" } else { "" };
            let why = format!("{}: no client that is asked for speaks its protocol{by}{login}", target.name);
            return Err(Error::Usage(why));
        }
    }
    let mut common = options.common.clone();
    // Clients of Redis's protocol are a group of their own, on the same store.
    let redis = clients.iter().any(|client| client.speaks == Speaks::Redis);
    if redis && !common.no_larder && !common.peers.contains(&Kind::LarderRedis) {
        common.peers.insert(0, Kind::LarderRedis);
    }
    let title =
        "Client libraries: what they add to a request, and what they do when the server does not answer";
    let mut experiment = Experiment::start("clients", title, &common, AMPLE_MB)?;
    experiment.run.notes.extend(absent);
    let visit = common.visit(options.visit_ms, 50, 50);
    experiment.run.set("visit, ms", visit.as_millis());
    let core = experiment.generator_cores.first().copied().flatten();
    let mut bench = Bench::new(core, &options.filled(&clients));
    for &language in &languages {
        let driver = bench.driver(language)?;
        let is_there = |client: &Client| {
            let known = driver.clients.iter().any(|(name, _)| name == client.name);
            client.language != language || known || driver.clients.is_empty()
        };
        for client in clients.iter().filter(|client| !is_there(client)) {
            let line = format!("{} is left out: its driver was built without it", client.full_name());
            experiment.run.notes.push(line);
        }
        clients.retain(is_there);
        if clients.is_empty() {
            return Err(none());
        }
        let versions: Vec<String> = driver
            .clients
            .iter()
            .filter(|(_, version)| !version.is_empty())
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        let all = format!("{}; {}", driver.version, versions.join(", "));
        experiment.run.set(&format!("clients, {}", language.name()), all);
    }
    for contender in 0..experiment.contenders.len() {
        let control = &experiment.contenders[contender].control;
        let notes = [without_transport(&clients, control), without_login(&clients, control)];
        experiment.run.notes.extend(notes.into_iter().flatten());
        bench.fill(&experiment, contender)?;
    }
    let (mut cells, mut floors) = (Vec::new(), Vec::new());
    if options.does(Part::Grid) {
        cells = costs(&mut experiment, &mut bench, &options.settings(&clients), visit)?;
        floors = all_floors(&mut experiment, &mut bench, &cells, visit)?;
    }
    let mut faulted = Vec::new();
    if options.does(Part::Faults) {
        faulted = all_faults(&mut experiment, &bench, &clients, options.reads.unwrap_or(0))?;
    }
    report::report(&mut experiment, &cells, &floors, &faulted)?;
    experiment.finish()
}

/// A note about clients that are left out because they make no connections of the server's kind, and why they do not.
fn without_transport(clients: &[Client], control: &Control) -> Option<String> {
    let transport = Transport::of(control);
    let of = clients.iter().filter(|client| client.is_understood_by(control.family));
    let words = |client: &Client| Some(format!("{} ({})", client.full_name(), client.why_not(transport)?));
    let left_out: Vec<String> = of.filter_map(words).collect();
    let line = || format!("{} is reached by {transport}, but not by {}", control.name, left_out.join(", "));
    (!left_out.is_empty()).then(line)
}

/// A note about clients that are left out because they cannot send the server's password, though they reach it.
fn without_login(clients: &[Client], control: &Control) -> Option<String> {
    let is_left_out = |client: &&Client| {
        let reaches = client.why_not(Transport::of(control)).is_none();
        client.is_understood_by(control.family) && reaches && control.login.is_some() && !client.logs_in()
    };
    let names: Vec<String> = clients.iter().filter(is_left_out).map(Client::full_name).collect();
    let line = || format!("{} wants a password, which is not said by {}", control.name, names.join(", "));
    (!names.is_empty()).then(line)
}

impl Options {
    fn does(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }

    fn wants(&self, client: &Client, languages: &[Language]) -> bool {
        let named = self.client.is_empty() || self.client.iter().any(|part| client.name.contains(&**part));
        languages.contains(&client.language) && named
    }

    /// Languages whose drivers are available, and lines about the others. A language that was asked for must be available.
    fn languages(&self) -> Result<(Vec<Language>, Vec<String>), Error> {
        if !self.driver.is_empty() {
            self.driver.iter().try_for_each(|language| language.build().map(drop))?;
            return Ok((self.driver.clone(), Vec::new()));
        }
        let usual = self.common.by_effort(&Language::ALL[..2], &Language::ALL[..], &Language::ALL[..]);
        let (mut found, mut absent) = (Vec::new(), Vec::new());
        for &language in usual {
            match language.build() {
                Ok(_) => found.push(language),
                Err(error) => {
                    let line = format!("clients in {} are left out: {error}", language.name());
                    eprintln!("{line}");
                    absent.push(line);
                }
            }
        }
        Ok((found, absent))
    }

    /// Whether the clients that a target names set large values, too: with the default settings, if these values fit.
    fn sets_large(&self) -> bool {
        let all = self.callers.is_empty() && self.operation.is_empty() && self.value_bytes.is_empty();
        all && !self.common.quick && self.common.memory_mb.is_none_or(|mb| mb >= LARGE_MEMORY_MB)
    }

    fn sizes(&self) -> Vec<usize> {
        let usual: &[u32] = self.common.by_effort(&[100], &[100], &[100, 10_000]);
        let sizes = if self.value_bytes.is_empty() { usual } else { &self.value_bytes };
        sizes.iter().map(|&size| size as usize).collect()
    }

    /// Sizes of the values that are stored before the measurements, as these clients need them.
    fn filled(&self, clients: &[Client]) -> Vec<usize> {
        let mut sizes = self.sizes();
        sizes.push(targets::ARTICLE_BYTES);
        if self.does(Part::Grid) && self.sets_large() && clients.iter().any(targets::Target::sets_large) {
            sizes.push(targets::LARGE_BYTES);
        }
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn settings(&self, clients: &[Client]) -> Vec<Setting> {
        let mut all = Vec::new();
        let ops: &[Op] = self.common.by_effort(&Op::ALL[..3], &Op::ALL, &Op::ALL);
        let ops = if self.operation.is_empty() { ops } else { &self.operation };
        let callers = if self.callers.is_empty() { &[1, 16, 256][..] } else { &self.callers };
        for &client in clients {
            let mut add = |op, value_bytes, callers| {
                let setting = Setting { client, op, value_bytes, callers };
                if !all.contains(&setting) {
                    all.push(setting);
                }
            };
            // Goroutines are cheap; few programs have a thread for each caller.
            let threads_max = if client.language == Language::Go || self.common.full { u32::MAX } else { 16 };
            let threads_max = if self.callers.is_empty() { threads_max } else { u32::MAX };
            for &op in ops.iter().filter(|op| **op != Op::Sets || client.sets_several()) {
                for value_bytes in self.sizes() {
                    for &count in callers.iter().filter(|&&count| count <= threads_max) {
                        // One caller of many keys has many requests under way already.
                        if op.is_of_many() && count > 16 {
                            continue;
                        }
                        add(op, value_bytes, Callers::Steady(count.into()));
                    }
                    if op == Op::Hit && self.callers.is_empty() && threads_max > 256 {
                        add(op, value_bytes, Callers::Burst(256));
                    }
                }
            }
            let in_article =
                targets::ARTICLE_CLIENTS.contains(&client.name) && client.language == Language::Go;
            if in_article && self.callers.is_empty() && self.operation.is_empty() {
                add(Op::Hit, targets::ARTICLE_BYTES, Callers::Steady(1));
                add(Op::Set, targets::ARTICLE_BYTES, Callers::Steady(1));
            }
            if self.sets_large() && targets::Target::sets_large(&client) {
                add(Op::Set, targets::LARGE_BYTES, Callers::Steady(1));
            }
        }
        all
    }
}

/// The time of a visit beside its calls: questions to servers, and a client that is opened and becomes warm.
const AROUND: Duration = Duration::from_millis(60);

/// Visits every cell in every round, and counts system calls once.
fn costs(
    experiment: &mut Experiment,
    bench: &mut Bench,
    settings: &[Setting],
    visit: Duration,
) -> Result<Vec<Cell>, Error> {
    let mut cells: Vec<Cell> = Vec::new();
    for seat in experiment.seats() {
        let control = &experiment.contenders[seat.contender].control;
        for &setting in settings {
            // One client is enough to show the noise.
            if !setting.client.can_ask(control) || seat.again && setting.client.name != OWN {
                continue;
            }
            cells.push(Cell { seat, setting, samples: Vec::new(), syscalls: None });
        }
    }
    experiment.announce(cells.len(), visit + AROUND);
    let names = experiment.names();
    let label = |cell: &Cell| format!("{}, {}", names[cell.seat.contender], cell.setting.words());
    experiment.rounds(&mut cells, label, |experiment, cell, _| {
        let (contender, name) = (cell.seat.contender, &names[cell.seat.contender]);
        cell.samples.push(
            experiment
                .undisturbed(name, |experiment| bench.visit(experiment, contender, &cell.setting, visit))?,
        );
        Ok(())
    })?;
    let tracer = Tracer::find();
    experiment.run.set("system calls", tracer.words());
    // With several callers a tracer would change the order in which they run.
    let countable = |cell: &Cell| {
        !cell.seat.again && cell.setting.callers == Callers::Steady(1) && tracer != Tracer::Nobody
    };
    let progress = Progress::new(cells.iter().filter(|cell| countable(cell)).count() as u64);
    for cell in cells.iter_mut().filter(|cell| countable(cell)) {
        progress.say(format!("counting: {}", cell.setting.words()));
        cell.syscalls = bench.count(experiment, cell.seat.contender, &cell.setting, tracer)?;
        progress.step();
    }
    Ok(cells)
}

/// The loops by hand that were measured against a server of fixed replies.
fn all_floors(
    experiment: &mut Experiment,
    bench: &mut Bench,
    cells: &[Cell],
    visit: Duration,
) -> Result<Vec<Floor>, Error> {
    let mut all: Vec<Floor> = Vec::new();
    let first = &experiment.contenders[0];
    if Transport::of(&first.control) == Transport::Tls {
        let note = format!("{} speaks TLS: its loops by hand are compared with no null server", first.name);
        experiment.run.notes.push(note);
        return Ok(all);
    }
    for cell in cells {
        let Setting { client, op, value_bytes, callers } = cell.setting;
        let is_wanted = client.name == BY_HAND
            && (op, value_bytes) == (Op::Hit, floor::VALUE_BYTES)
            && matches!(callers, Callers::Steady(_))
            && (cell.seat.contender, cell.seat.again) == (0, false);
        if is_wanted {
            let visits = cell.samples.len().max(floor::VISITS_MIN);
            all.push(floor::visit(experiment, bench, &cell.setting, visit, visits)?);
        }
    }
    Ok(all)
}

/// Visits of a fault at most, while no value can be read.
const FAULT_VISITS_MAX: u32 = 50;

/// Every fault for every client, on every server that the lab can stop.
fn all_faults(
    experiment: &mut Experiment,
    bench: &Bench,
    clients: &[Client],
    reads: u64,
) -> Result<Vec<Faulted>, Error> {
    let mut visits = Vec::new();
    for (contender, server) in experiment.contenders.iter().enumerate() {
        if !server.is_ours() {
            let note = format!("{} was running before: it is not stopped", server.name);
            experiment.run.notes.push(note);
            continue;
        }
        let family = server.control.family;
        for client in clients.iter().filter(|client| client.is_understood_by(family)) {
            visits.extend(Fault::ALL.map(|fault| (contender, *client, fault)));
        }
    }
    let progress = Progress::new(visits.len() as u64);
    let mut all = Vec::new();
    for (contender, client, fault) in visits {
        progress.say(format!("{}, {}", client.full_name(), fault.name()));
        let mut account = faults::visit(experiment, bench, contender, client, fault)?;
        for _ in 1..FAULT_VISITS_MAX {
            if account.values() >= reads || account.ended.is_some() {
                break;
            }
            account.add(&faults::visit(experiment, bench, contender, client, fault)?);
        }
        all.push(Faulted { contender, client, fault, account });
        progress.step();
    }
    Ok(all)
}

/// The loop by hand of the same language with the same setting, if there is one.
fn by_hand<'c>(cells: &'c [Cell], cell: &Cell) -> Option<&'c Cell> {
    let hand = Setting {
        client: *CLIENTS
            .iter()
            .find(|client| client.language == cell.setting.client.language && client.name == BY_HAND)?,
        ..cell.setting
    };
    cells.iter().find(|other| other.setting == hand && other.seat == cell.seat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &[&str]) -> Options {
        Line::try_parse_from(["clients"].iter().chain(words)).unwrap().options
    }

    #[test]
    fn every_setting_is_there_once_and_threads_are_few_unless_asked_for() {
        let usual = options(&[]).settings(CLIENTS);
        for (at, setting) in usual.iter().enumerate() {
            assert!(!usual[..at].contains(setting), "{}", setting.words());
            let threads = setting.client.language != Language::Go;
            assert!(!threads || setting.callers.count() <= 16, "{}", setting.words());
        }
        let bursts = |all: &[Setting]| all.iter().filter(|s| matches!(s.callers, Callers::Burst(_))).count();
        let go = CLIENTS.iter().filter(|client| client.language == Language::Go).count();
        assert_eq!(bursts(&usual), go);
        assert_eq!(bursts(&options(&["--full"]).settings(CLIENTS)), 2 * CLIENTS.len());
        let few = options(&["--callers", "4", "--operation", "hit"]).settings(CLIENTS);
        assert_eq!(few.len(), CLIENTS.len());
        // Sets of large values, by clients that a target names.
        let large = |all: &[Setting]| {
            all.iter().filter(|s| (s.op, s.value_bytes) == (Op::Set, targets::LARGE_BYTES)).count()
        };
        assert_eq!(large(&usual), 6);
        let none: [&[&str]; 4] =
            [&["--quick"], &["--callers", "1"], &["--value-bytes", "100"], &["--memory-mb", "255"]];
        for words in none {
            assert_eq!(large(&options(words).settings(CLIENTS)), 0, "{words:?}");
        }
        assert_eq!(large(&options(&["--memory-mb", "256"]).settings(CLIENTS)), 6);
        // Large values are stored for these clients alone.
        let filled = |words: &[&str], language: Option<Language>| {
            let of = |client: &&Client| language.is_none_or(|language| client.language == language);
            options(words).filled(&CLIENTS.iter().filter(of).copied().collect::<Vec<_>>())
        };
        let (usual_bytes, with_large) = ([4_usize, 100], [4, 100, targets::LARGE_BYTES]);
        assert_eq!(filled(&[], None), with_large);
        assert_eq!(filled(&["--part", "grid"], Some(Language::Rust)), with_large);
        assert_eq!(filled(&[], Some(Language::Python)), usual_bytes);
        assert_eq!(filled(&["--part", "faults"], None), usual_bytes);
        assert_eq!(filled(&["--quick"], None), usual_bytes);
        // Sets of several keys with one call, by clients that have such a call, and by 16 callers at most.
        let sets = |s: &&Setting| s.op == Op::Sets;
        let able = CLIENTS.iter().filter(|client| client.sets_several()).count();
        let asked = options(&["--operation", "sets", "--callers", "1,256"]).settings(CLIENTS);
        assert_eq!((asked.len(), asked.iter().filter(sets).count()), (able, able));
        assert!(usual.iter().filter(sets).all(|s| s.client.sets_several() && s.callers.count() <= 16));
    }

    #[test]
    fn clients_are_chosen_by_language_and_by_a_part_of_their_name() {
        let chosen = |words: &[&str]| {
            let options = options(words);
            let languages =
                if options.driver.is_empty() { Language::ALL.to_vec() } else { options.driver.clone() };
            CLIENTS
                .iter()
                .filter(|client| options.wants(client, &languages))
                .map(Client::full_name)
                .collect::<Vec<_>>()
        };
        assert_eq!(chosen(&["--driver", "c"]), ["c: libmemcached", "c: larder", "c: by hand"]);
        assert_eq!(chosen(&["--client", "rueidis,façade"]), ["go: larder façade", "go: rueidis"]);
        assert!(parse_language("cobol").unwrap_err().contains("go, c, rust, python, java"));
        assert!(parse_op("fly").unwrap_err().contains("hit, set, many, sets, miss"));
    }
}
