//! The parts that all experiments share: their options, the servers, interleaved rounds, checks.
//!
//! ```text
//! Options ──► Experiment::start ──► contenders (Larder, peers, targets), generator cores
//!                                     │
//!             Experiment::seats: each contender once, the first one twice (A/A)
//!                                     │
//!             Experiment::rounds: all visits of a round in random order, round after round
//!                                     │
//!             Checks: each with its name; one that fails makes the run not valid
//! ```

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use larder_eventloop::cpu;
use larder_protocol::client::Protocol;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::ceiling::{Alone, TRIES};
use crate::connection::Check;
use crate::contender::{Contender, Setup, Target, apart, parse_peer};
use crate::error::Error;
use crate::keys::Keyspace;
use crate::numbers;
use crate::peers::Kind;
use crate::placement::Placement;
use crate::progress::{Progress, long};
use crate::results::{
    Better, Ceiling, Checked, Comparison, Estimate, Files, Outcome, Output, Run, Target as Measured, judged,
    number, of_time,
};
use crate::route::{Route, SocketKind};
use crate::workload::Workload;

/// Memory of servers, in MB: more than the data of any experiment that evicts nothing.
pub const AMPLE_MB: u32 = 1024;
/// Bytes that keys, values and the servers' overhead may take in it.
const AMPLE_DATA_BYTES: u32 = 256 << 20;
/// Bytes of a key and the overhead, in this estimate.
const ITEM_BYTES: u32 = 64;

/// Up to `keys` keys of `value_bytes`, as many as [`AMPLE_MB`] hold easily.
pub fn ample_keyspace(keys: u32, value_bytes: u32) -> Keyspace {
    let most = AMPLE_DATA_BYTES / value_bytes.saturating_add(ITEM_BYTES);
    Keyspace::new(keys.min(most).max(1), value_bytes as usize)
}

/// Options that every experiment takes.
#[derive(Clone, Debug, Args)]
// Experiments have options of their own, whose group would have the same name.
#[group(skip)]
pub struct Options {
    /// Shorter visits, fewer rounds and fewer settings, for a first look: ten seconds to two minutes for Larder alone, and as
    /// much again for each server beside it
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// The whole grid of settings
    #[arg(long)]
    pub full: bool,
    /// Rounds; with fewer than 6 there are no intervals [default: 6; with --quick 2, or 1 where a round takes long]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: Option<u32>,
    /// Servers to start beside Larder: memcached, redis, valkey, keydb; memcached-new, valkey-new and redis-new, the
    /// newest of Debian, which `cargo xtask peers` fetches; or larder-redis, which is Larder asked in Redis's
    /// protocol (repeatable, or with commas)
    #[arg(long = "peer", value_name = "NAME", value_delimiter = ',', value_parser = parse_peer)]
    pub peers: Vec<Kind>,
    /// Running servers: name=memcached://host:port, name=redis://host:port, name=redis+unix:///path …; with
    /// user:password@ in front of the host if there is a password, which every list of processes then shows (repeatable)
    #[arg(long = "target", value_name = "NAME=URL", value_parser = Target::parse)]
    pub targets: Vec<Target>,
    /// Running servers may be flushed: their data are deleted first. Without this, a server that holds data is refused
    #[arg(long, requires = "targets")]
    pub flush_target: bool,
    /// Leave Larder out
    #[arg(long)]
    pub no_larder: bool,
    /// Another larder binary than this one
    #[arg(long, value_name = "PATH")]
    pub larder: Option<PathBuf>,
    /// Threads of each server that is started
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// Memory limit of each server that is started, in MB [default: the experiment's]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..))]
    pub memory_mb: Option<u32>,
    /// Percent of a visit's time that a thread of a server or of the generator may wait for its core because of other programs. A
    /// visit with more is repeated; if that does not help, the run is not valid
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = numbers::percent)]
    pub wait_max: f64,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
    /// Seed of all random numbers: which keys are asked for, in which order servers are visited
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl Options {
    /// The number of rounds.
    pub fn round_count(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 2 } else { 6 })
    }

    /// The time of a visit: the given milliseconds, or one of two by the run's effort.
    pub fn visit(&self, given_ms: Option<u32>, quick_ms: u32, usual_ms: u32) -> Duration {
        let usual = self.by_effort(quick_ms, usual_ms, usual_ms);
        Duration::from_millis(given_ms.unwrap_or(usual).into())
    }

    /// One of three values, by the run's effort.
    pub fn by_effort<T>(&self, quick: T, usual: T, full: T) -> T {
        if self.quick {
            quick
        } else if self.full {
            full
        } else {
            usual
        }
    }
}

/// Ratios of a server to itself, or their inverses, that are no more than disturbance: where an interval leaves out 1,
/// and where there are too few rounds for one.
const TWICE_MAX: (f64, f64) = (1.1, 1.25);

/// Whether a ratio of a server to itself is near enough to 1.
fn agrees(ratio: &Estimate) -> bool {
    let most = match ratio.interval {
        Some([low, high]) if (low..=high).contains(&1.0) => return true,
        Some(_) => TWICE_MAX.0,
        None => TWICE_MAX.1,
    };
    (1.0 / most..=most).contains(&ratio.median)
}

/// Two servers, or one server twice, in the same rounds.
#[derive(Clone, Debug)]
pub struct Pair {
    claim: String,
    better: Better,
    base: Vec<f64>,
    other: Vec<f64>,
    control: bool,
    /// Why one of them has no figures, if it is known.
    why: Option<String>,
}

impl Pair {
    /// `claim` names the comparison, `better` says which way is better; `base` and `other` are the figures by round. `control`:
    /// both are the same server, whose ratio shows the noise.
    pub fn new(claim: String, better: Better, base: &[f64], other: &[f64], control: bool) -> Pair {
        Pair { claim, better, base: base.to_vec(), other: other.to_vec(), control, why: None }
    }

    /// A comparison that is not possible, and why: one of the two has no figures.
    pub fn lost(claim: String, better: Better, why: String) -> Pair {
        Pair { why: Some(why), ..Pair::new(claim, better, &[], &[], false) }
    }

    /// A pair of the rounds in which both figures are known.
    pub fn known(
        claim: String,
        better: Better,
        base: &[Option<f64>],
        other: &[Option<f64>],
        control: bool,
    ) -> Pair {
        let (base, other) = base.iter().zip(other).filter_map(|(&a, &b)| a.zip(b)).unzip();
        Pair { claim, better, base, other, control, why: None }
    }

    /// Whether both are the same server.
    #[cfg(test)]
    pub(crate) fn is_control(&self) -> bool {
        self.control
    }

    /// Why one of the two has no figure.
    #[cfg(test)]
    pub(crate) fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }
}

/// How far a server that was measured twice differs from itself.
struct Twice {
    passed: bool,
    /// How far apart both are: the size of the logarithm of their ratio; infinite where there is none.
    off: f64,
    found: String,
}

/// The ratios as [`Experiment::compare_pairs`] notes them: whether the server that was measured twice agrees with itself, and
/// what the other ratios show. If the control is missing, or has no interval, the noise is unknown, and nothing is shown.
fn compared(mut pairs: Vec<Pair>) -> (Vec<Twice>, Vec<Comparison>) {
    pairs.sort_by_key(|pair| !pair.control);
    let (mut twice, mut comparisons) = (Vec::new(), Vec::new());
    // Several controls are checked together: the first that leaves the noise unknown decides.
    let mut controls: Vec<Option<Estimate>> = Vec::new();
    for Pair { claim, better, base, other, control, why } in pairs {
        let ratio = Estimate::ratio(&base, &other);
        if control {
            let found = match &ratio {
                Some(ratio) => format!("{claim}: {}", number::estimate(ratio)),
                None if base.is_empty() => format!("{claim}: no round in which both are known"),
                None => format!("{claim}: no ratio of {base:?} and {other:?}"),
            };
            let same = || !base.is_empty() && base == other;
            let passed = ratio.as_ref().map_or_else(same, agrees);
            let off = ratio.as_ref().map_or(f64::INFINITY, |ratio| ratio.median.ln().abs());
            twice.push(Twice { passed, off, found });
            controls.push(ratio.clone());
        }
        let comparison = match ratio {
            None => Comparison {
                claim,
                ratio: None,
                better,
                control,
                outcome: Outcome::Noise,
                why: why.unwrap_or_else(|| no_ratio(&base, &other)),
            },
            Some(ratio) if control => Comparison::control(claim, better, ratio),
            Some(ratio) => Comparison::compared(claim, better, ratio, &controls),
        };
        comparisons.push(comparison);
    }
    (twice, comparisons)
}

/// Why there is no ratio of two servers' figures by round.
fn no_ratio(base: &[f64], other: &[f64]) -> String {
    let round = base.iter().zip(other).position(|(a, b)| !(a / b).is_finite());
    match round {
        Some(at) => {
            let (a, b) = (number::text(base[at]), number::text(other[at]));
            format!("in round {} of {} it would be {a} / {b}", at + 1, base.len())
        }
        None => "no round in which both are known".to_owned(),
    }
}

/// How many times as fast as the null server a server may seem before that is an error: both were measured for a part of a second
/// each.
const OVER_CEILING_MAX: f64 = 1.1;

/// One visit of a round: a contender, once or again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Index among [`Experiment::contenders`].
    pub contender: usize,
    /// The second visit to the same server in a round: the difference of the two is noise.
    pub again: bool,
}

/// All checks of a run. Checks of the same name are one: it holds if each holds, and reports their number, or the failure that is
/// furthest off.
#[derive(Clone, Debug, Default)]
pub struct Checks(Vec<OfOneName>);

/// Checks of one name.
#[derive(Clone, Debug)]
struct OfOneName {
    check: Checked,
    times: u64,
    failed: u64,
    /// How far off the reported failure is, if that is known.
    off: Option<f64>,
}

impl Checks {
    /// Adds a check; `found` is asked for when it is the first of its name, or the first that fails.
    pub fn add(&mut self, claim: &str, passed: bool, found: impl FnOnce() -> String) {
        self.add_measured(claim, passed, None, found);
    }

    /// Adds a check of a measured value. Of several failures of one name the one with the largest `off` is reported; its unit is
    /// the same for all of a name.
    pub fn add_off(&mut self, claim: &str, passed: bool, off: f64, found: impl FnOnce() -> String) {
        // A failure without a measure counts as the largest.
        let off = if off.is_nan() { f64::INFINITY } else { off };
        self.add_measured(claim, passed, Some(off), found);
    }

    fn add_measured(&mut self, claim: &str, passed: bool, off: Option<f64>, found: impl FnOnce() -> String) {
        let Some(have) = self.0.iter_mut().find(|have| have.check.claim == claim) else {
            let check = Checked { claim: claim.to_owned(), passed, found: found() };
            self.0.push(OfOneName { check, times: 1, failed: u64::from(!passed), off });
            return;
        };
        have.times += 1;
        if passed {
            return;
        }
        have.failed += 1;
        if have.check.passed || off > have.off {
            (have.check.passed, have.check.found, have.off) = (false, found(), off);
        }
    }

    /// Checks that two counts are equal.
    pub fn equal(&mut self, claim: &str, ours: u64, theirs: u64, whose: &str) {
        self.add(claim, ours == theirs, || match ours == theirs {
            true => format!("{whose}: {ours}"),
            false => format!("{whose}: {ours} here, {theirs} there"),
        });
    }

    /// Checks that a server did no more than the null server with the same load.
    fn below(&mut self, ceiling: &Ceiling, name: &str, per_s: f64) {
        let over = per_s / ceiling.per_s;
        self.add_off(of_time::CEILING, over <= OVER_CEILING_MAX, over, || {
            format!("{name}, {}: {per_s:.0}/s, the null server {:.0}/s", ceiling.load, ceiling.per_s)
        });
    }

    /// Each check, with its finding.
    pub fn list(&self) -> Vec<Checked> {
        let shown = |have: &OfOneName| {
            let OfOneName { check, times, failed, off } = have;
            let more = match (check.passed, off) {
                (true, _) if *times > 1 => format!(" (and {} more times)", times - 1),
                (false, Some(_)) if *failed > 1 => format!(" (the worst of {failed})"),
                (false, None) if *failed > 1 => format!(" (the first of {failed})"),
                _ => String::new(),
            };
            Checked { found: check.found.clone() + &more, ..check.clone() }
        };
        self.0.iter().map(shown).collect()
    }
}

/// The rate of a null server: the best of as many tries as it takes to be above the fastest server, [`TRIES`] at most.
/// Other programs only make it slower.
fn best_ceiling(highest: f64, mut measure: impl FnMut() -> Result<Ceiling, Error>) -> Result<Ceiling, Error> {
    let mut best = measure()?;
    for _ in 1..TRIES {
        if highest <= best.per_s {
            break;
        }
        let next = measure()?;
        if next.per_s > best.per_s {
            best = next;
        }
    }
    Ok(best)
}

/// A running experiment.
#[derive(Debug)]
pub struct Experiment {
    /// The options of the run.
    pub options: Options,
    /// The servers, Larder first.
    pub contenders: Vec<Contender>,
    /// Cores of the generator, one thread each.
    pub generator_cores: Vec<Option<usize>>,
    /// Core of the servers, if they are pinned to one.
    pub server_core: Option<usize>,
    /// How servers are started.
    pub setup: Setup,
    /// The checks of the run.
    pub checks: Checks,
    /// The results: tables, plots, notes, verdict.
    pub run: Run,
    began: Instant,
    files: Files,
}

impl Experiment {
    /// Starts the servers. With one thread each they share one core and the generator has the last
    /// one; with more they may use all cores but the generator's, as the system places them.
    ///
    /// # Errors
    /// [`Error::Peer`] when a server is missing or does not answer, [`Error::NotEmpty`] when a target holds something,
    /// [`Error::Usage`] when there is none to measure.
    pub fn start(name: &str, title: &str, options: &Options, memory_mb: u32) -> Result<Experiment, Error> {
        let began = Instant::now();
        let files = options.output.open()?;
        let mut run = Run::new(name, title);
        let cores = cpu::cores().map_err(|error| Error::System("finding cores", error))?;
        let generator = cores.last().copied();
        let server_core = cores.first().copied().filter(|_| options.threads == 1);
        let setup = Setup {
            memory_mb: options.memory_mb.unwrap_or(memory_mb),
            threads: options.threads,
            core: server_core,
            larder: options.larder.clone(),
        };
        let mut kinds = if options.no_larder { Vec::new() } else { vec![Kind::Larder] };
        for &kind in &options.peers {
            // A server that is named twice is started once: two rows of one name would be useless.
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let names = || kinds.iter().map(|kind| kind.name()).chain(options.targets.iter().map(|t| &*t.name));
        if let Some(name) =
            names().enumerate().find_map(|(at, name)| names().take(at).find(|have| *have == name))
        {
            return Err(Error::Usage(format!("two servers are called {name:?}: rows would be mixed up")));
        }
        let mut contenders = Vec::new();
        for &kind in &kinds {
            contenders.push(Contender::start(kind, &setup)?);
        }
        for target in &options.targets {
            contenders.push(Contender::reach(target, &setup)?);
        }
        if contenders.is_empty() {
            return Err(Error::Usage("there is no server to measure".to_owned()));
        }
        run.targets = contenders.iter().map(Measured::of).collect();
        for (contender, measured) in contenders.iter().zip(&mut run.targets) {
            if !contender.is_ours() {
                let found = contender.control.claim(options.flush_target)?;
                eprintln!("{} {found}; it is written to", contender.name);
                measured.notes.push(found);
            }
            measured.notes.extend_from_slice(&contender.remarks);
        }
        run.set("rounds", options.round_count());
        run.set("effort", options.by_effort("quick", "usual", "full"));
        run.set("seed", options.seed);
        run.set("threads of a server", options.threads);
        run.set("memory of a server, MB", setup.memory_mb);
        let core = |core: Option<usize>| core.map_or("any".to_owned(), |core| core.to_string());
        let raised = thread::spawn(|| cpu::raise_priority(None).is_ok()).join().unwrap_or(false);
        run.set("priority of servers and generator", if raised { "highest" } else { "as others" });
        let placed: Vec<String> = apart(options.threads).iter().map(ToString::to_string).collect();
        run.set("cores of the servers", placed.join(", "));
        run.set("core of the generator", core(generator));
        run.set("waits for a core, % at most", options.wait_max);
        Ok(Experiment {
            options: options.clone(),
            contenders,
            generator_cores: vec![generator],
            server_core,
            setup,
            checks: Checks::default(),
            run,
            began,
            files,
        })
    }

    /// Each contender once, the first one twice.
    pub fn seats(&self) -> Vec<Seat> {
        let first = [Seat { contender: 0, again: false }, Seat { contender: 0, again: true }];
        let others = (1..self.contenders.len()).map(|contender| Seat { contender, again: false });
        first.into_iter().chain(others).collect()
    }

    /// The contender of a seat.
    pub fn contender(&self, seat: Seat) -> &Contender {
        &self.contenders[seat.contender]
    }

    /// The name of a seat.
    pub fn seat_name(&self, seat: Seat) -> String {
        let name = &self.contender(seat).name;
        if seat.again { format!("{name} again") } else { name.clone() }
    }

    /// Names of all contenders.
    pub fn names(&self) -> Vec<String> {
        self.contenders.iter().map(|contender| contender.name.clone()).collect()
    }

    /// Visits all of `visits` in every round, each round in another random order, and shows the progress. `label` names a visit
    /// and its server, for the progress and for errors.
    ///
    /// # Errors
    /// Those of `visit`, which end the rounds.
    pub fn rounds<V>(
        &mut self,
        visits: &mut [V],
        label: impl Fn(&V) -> String,
        mut visit: impl FnMut(&mut Experiment, &mut V, u32) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let rounds = self.options.round_count();
        let progress = Progress::new(u64::from(rounds) * visits.len() as u64);
        let mut rng = StdRng::seed_from_u64(self.options.seed);
        let mut order: Vec<usize> = (0..visits.len()).collect();
        for round in 0..rounds {
            order.shuffle(&mut rng);
            for &index in &order {
                let visit_name = label(&visits[index]);
                progress.say(format!("round {}: {visit_name}", round + 1));
                visit(self, &mut visits[index], round).map_err(|error| error.within(|| visit_name))?;
                progress.step();
            }
        }
        Ok(())
    }

    /// Announces how long this many visits in each round will take, if it is long.
    pub fn announce(&self, visits: usize, each: Duration) {
        let rounds = self.options.round_count();
        let all = each.mul_f64(visits as f64 * f64::from(rounds));
        if let Some(time) = long(all) {
            eprintln!("{visits} visits in each of {rounds} rounds: {time}");
        }
    }

    /// Notes the ratios of `base` to `others`: for each its name, its rounds, and whether it is the same server again, which
    /// shows the noise for the others. `better` says which way is better.
    pub fn compare_with(&mut self, better: Better, base: &[f64], others: Vec<(String, Vec<f64>, bool)>) {
        let pair = |(claim, rounds, control): (String, Vec<f64>, bool)| {
            Pair::new(claim, better, base, &rounds, control)
        };
        self.compare_pairs(others.into_iter().map(pair).collect());
    }

    /// As [`Experiment::compare_with`], for pairs, which need not have all rounds.
    pub fn compare_pairs(&mut self, pairs: Vec<Pair>) {
        let (twice, comparisons) = compared(pairs);
        for Twice { passed, off, found } in twice {
            self.checks.add_off(of_time::TWICE, passed, off, || found);
        }
        self.run.comparisons.extend(comparisons);
    }

    /// As [`Experiment::compare_pairs`], without the check that the first server agrees with itself, for figures that a busy
    /// machine does not change. That pair still shows the noise for the others.
    pub fn compare_unchecked(&mut self, pairs: Vec<Pair>) {
        let (_, comparisons) = compared(pairs);
        self.run.comparisons.extend(comparisons);
    }

    /// The rate of the generator alone with a load, against a null server on the servers' core, by this kind of socket.
    ///
    /// # Errors
    /// When the null server or a connection fails.
    ///
    /// # Panics
    /// If a null server has no [`crate::null::Answers`] to the load.
    pub fn ceiling(
        &self,
        workload: &Workload,
        check: Check,
        load: String,
        socket: SocketKind,
    ) -> Result<Ceiling, Error> {
        let (server_core, wait_max) = (self.server_core, self.options.wait_max);
        let generator_cores = &self.generator_cores;
        let alone = Alone { workload, check, socket, server_core, generator_cores, wait_max };
        Ok(alone.measure(load)?.0)
    }

    /// The routes of the servers' loads, each once, if memcached's family uses the protocol `wanted`.
    pub fn routes(&self, wanted: Protocol) -> Vec<Route> {
        let mut all = Vec::new();
        for contender in &self.contenders {
            let route = contender.route(wanted);
            if !all.contains(&route) {
                all.push(route);
            }
        }
        all
    }

    /// Shows the rate of a null server with a load, as `measure` finds it, and checks that no server reached more: otherwise one
    /// of them was disturbed. `rates` are the servers' figures, with names, of the same load by the same route.
    ///
    /// # Errors
    /// The errors of `measure`.
    pub fn hold_below(
        &mut self,
        rates: &[(String, f64)],
        mut measure: impl FnMut(&Experiment) -> Result<Ceiling, Error>,
    ) -> Result<(), Error> {
        let highest = rates.iter().map(|(_, per_s)| *per_s).fold(0.0, f64::max);
        let ceiling = best_ceiling(highest, || measure(self))?;
        for (name, per_s) in rates {
            self.checks.below(&ceiling, name, *per_s);
        }
        self.run.ceilings.push(ceiling);
        Ok(())
    }

    /// Notes that loads of these names have no null server beside them.
    pub fn without_ceiling(&mut self, loads: impl IntoIterator<Item = String>) {
        let loads: Vec<String> = loads.into_iter().collect();
        if !loads.is_empty() {
            let note = format!("no null server answers {}: no ceiling is known there", loads.join(", "));
            self.run.notes.push(note);
        }
    }

    /// Notes which threads worked, unless all did.
    pub fn note_idle_threads(&mut self, contender: usize, placement: Option<&Placement>) {
        let (Some(placement), Some(workers)) = (placement, self.contenders[contender].workers) else {
            return;
        };
        let Some(complaint) = placement.complaint(workers as usize) else { return };
        let notes = &mut self.run.targets[contender].notes;
        if !notes.contains(&complaint) {
            notes.push(complaint);
        }
    }

    /// Ends the experiment: stops its servers, prints the results, writes the files.
    ///
    /// # Errors
    /// A file cannot be written, or a check failed: then everything is printed, and marked as no result.
    pub fn finish(self) -> Result<(), Error> {
        let Experiment { contenders, checks, mut run, began, files, .. } = self;
        drop(contenders);
        run.checks.extend(checks.list());
        run.verdict = [run.verdict.as_str(), &judged(&run.comparisons)].join(" ").trim().to_owned();
        run.finish(began, files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_agrees_with_itself_within_its_interval_or_a_tenth() {
        let ratio = |median, interval| Estimate { median, interval, rounds: vec![median] };
        for (median, interval, holds) in [
            (1.4, Some([0.9, 2.0]), true),
            (1.05, Some([1.01, 1.1]), true),
            (1.2, Some([1.1, 1.3]), false),
            (0.46, Some([0.4, 0.5]), false),
            (1.2, None, true),
            (2.17, None, false),
            (0.7, None, false),
        ] {
            assert_eq!(agrees(&ratio(median, interval)), holds, "{median} {interval:?}");
        }
    }

    #[test]
    fn a_control_without_a_ratio_leaves_no_verdict() {
        let said = |base: f64, again: f64| {
            let rounds = |value: f64| vec![value; 6];
            let pair = |name: &str, other, control| {
                Pair::new(name.to_owned(), Better::Higher, &rounds(base), &rounds(other), control)
            };
            let (twice, comparisons) = compared(vec![pair("other", 5.0, false), pair("again", again, true)]);
            let outcomes = comparisons.iter().filter(|one| !one.control).map(|one| one.outcome);
            (twice.iter().all(|twice| twice.passed), outcomes.collect::<Vec<_>>())
        };
        assert_eq!(said(4.0, 4.0), (true, vec![Outcome::Differs]));
        // No load of its ladder kept the bound, either time.
        assert_eq!(said(0.0, 0.0), (true, vec![Outcome::Noise]));
        assert_eq!(said(4.0, 0.0), (false, vec![Outcome::Noise]));
    }

    #[test]
    fn a_control_that_is_missing_or_has_no_interval_leaves_no_verdict() {
        let pair = |name: &str, rounds: usize, ratio: f64, control| {
            let of = |value: f64| vec![value; rounds];
            Pair::new(name.to_owned(), Better::Higher, &of(ratio), &of(1.0), control)
        };
        let word = |mut pairs: Vec<Pair>| {
            pairs.push(pair("rival", 6, 1.2, false));
            let (_, comparisons) = compared(pairs);
            let rival = comparisons.iter().find(|one| !one.control).expect("the rival is listed");
            rival.said()
        };
        assert_eq!(word(vec![pair("again", 6, 1.01, true)]), "ahead");
        // With five rounds, a difference of a quarter may still be noise, so a difference of a fifth shows nothing.
        let unknown = "not shown: how much the server differs from itself is not known";
        assert_eq!(word(vec![pair("again", 5, 1.01, true)]), unknown);
        assert_eq!(word(vec![pair("again", 0, 1.0, true)]), unknown);
        assert_eq!(word(vec![]), unknown);
        let (_, few) = compared(vec![pair("rival", 2, 1.2, false)]);
        assert_eq!(few[0].said(), "too few rounds");
    }

    #[test]
    fn a_ratio_that_cannot_be_formed_is_listed_with_the_reason() {
        let new = |base: &[f64], other: &[f64], control| {
            Pair::new("a / b".to_owned(), Better::Higher, base, other, control)
        };
        let (_, all) = compared(vec![
            new(&[4.0; 6], &[4.0; 6], true),
            new(&[4.0; 6], &[2.0, 2.0, 0.0, 2.0, 2.0, 2.0], false),
            new(&[], &[], false),
        ]);
        let said: Vec<String> = all.iter().skip(1).map(Comparison::said).collect();
        let reasons = ["in round 3 of 6 it would be 4 / 0", "no round in which both are known"];
        assert_eq!(said, reasons.map(|why| format!("not shown: {why}")));
        assert_eq!(judged(&all[1..2]), "Not shown: a / b (in round 3 of 6 it would be 4 / 0).");
        let lost =
            Pair::lost("a / b".to_owned(), Better::Lower, "the client of b ended: signal 6".to_owned());
        let (twice, all) = compared(vec![new(&[4.0; 6], &[4.0; 6], true), lost]);
        assert!(twice[0].passed && all.len() == 2);
        assert_eq!(all[1].said(), "not shown: the client of b ended: signal 6");
    }

    #[test]
    fn only_rounds_in_which_both_are_known_are_compared() {
        let (base, other) =
            ([Some(4.0), None, Some(8.0), Some(6.0)], [Some(2.0), Some(9.0), None, Some(3.0)]);
        let claim = || "larder / larder again".to_owned();
        let known = Pair::known(claim(), Better::Higher, &base, &other, true);
        assert_eq!((&known.base[..], &known.other[..]), (&[4.0, 6.0][..], &[2.0, 3.0][..]));
        let none = Pair::known(claim(), Better::Higher, &base[..2], &other[2..], true);
        let (twice, comparisons) = compared(vec![none]);
        let Twice { passed, off, found } = &twice[0];
        assert!(!passed && off.is_infinite() && comparisons[0].ratio.is_none());
        assert!(found.ends_with("no round in which both are known"), "{found}");
    }

    #[test]
    fn a_null_server_that_is_slower_than_a_server_is_no_ceiling() {
        let of = |per_s: f64| Ceiling { load: "hit 50×1, RESP".to_owned(), per_s, busy: 1.0 };
        let passed = |per_s: f64| {
            let mut checks = Checks::default();
            checks.below(&of(100.0), "redis", per_s);
            let Checked { passed, found, .. } = checks.list().remove(0);
            assert_eq!(found, format!("redis, hit 50×1, RESP: {per_s:.0}/s, the null server 100/s"));
            passed
        };
        assert_eq!([90.0, 110.0, 111.0, 200.0].map(passed), [true, true, false, false]);
        // A disturbed measurement is repeated, a limited number of times.
        let best = |highest: f64, tries: &[f64]| {
            let mut rest = tries.iter();
            let measure = || Ok(of(*rest.next().expect("no more tries than that")));
            (best_ceiling(highest, measure).unwrap().per_s, rest.len())
        };
        assert_eq!(best(90.0, &[100.0, 500.0]), (100.0, 1));
        assert_eq!(best(90.0, &[40.0, 100.0, 500.0]), (100.0, 1));
        assert_eq!(best(90.0, &[40.0, 60.0, 50.0, 500.0]), (60.0, 1));
        let failed = best_ceiling(1.0, || Err(Error::Closed));
        assert!(matches!(failed, Err(Error::Closed)));
    }

    #[test]
    fn of_checks_that_measure_the_one_that_is_furthest_off_is_told() {
        let mut checks = Checks::default();
        for (passed, off, found) in [
            (true, 0.1, "1.1"),
            (false, 1.34, "1.34"),
            (false, 3.892, "3.892"),
            (true, 9.0, "9.0"),
            (false, 1.91, "1.91"),
        ] {
            checks.add_off(of_time::TWICE, passed, off, || found.to_owned());
        }
        assert_eq!(checks.list()[0].found, "3.892 (the worst of 3)");
        checks.add_off(of_time::TWICE, false, f64::NAN, || "none".to_owned());
        assert_eq!(checks.list()[0].found, "none (the worst of 4)");
        // A server that differs from itself by a third is further off than one by a quarter.
        let pair = |base: f64, again: f64| {
            let rounds = |value: f64| vec![value; 6];
            let (twice, _) =
                compared(vec![Pair::new(String::new(), Better::Higher, &rounds(base), &rounds(again), true)]);
            twice[0].off
        };
        assert!(pair(1.0, 3.0) > pair(5.0, 4.0) && pair(5.0, 4.0) > pair(1.0, 1.0));
    }

    #[test]
    fn checks_of_one_name_are_one_and_keep_the_first_failure() {
        let mut checks = Checks::default();
        checks.add("counts agree", true, || "5 = 5".to_owned());
        checks.add("counts agree", true, || unreachable!("only the first is put in words"));
        assert_eq!(checks.list()[0].found, "5 = 5 (and 1 more times)");
        assert!(checks.list()[0].passed);
        checks.add("counts agree", false, || "5 ≠ 6".to_owned());
        checks.add("counts agree", false, || unreachable!("the first failure is kept"));
        checks.add("values whole", true, || "all".to_owned());
        let list = checks.list();
        let found = list[0].found.as_str();
        assert_eq!((list.len(), list[0].passed, found), (2, false, "5 ≠ 6 (the first of 2)"));
        checks.equal("sums", 1, 2, "larder");
        assert_eq!(checks.list()[2].found, "larder: 1 here, 2 there");
    }
}
