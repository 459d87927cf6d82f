//! `larder lab cas`: what optimistic locking costs when many clients want the same counter.
//!
//! A logical operation subtracts one from a counter exactly once: it reads the counter with its token, thinks, and writes if the
//! token is still the same, else it begins again. The sweep is clients × counters × think time × retries × method × servers.
//! Clients are connections of one asynchronous engine, so that they contend at the server and nowhere else.
//!
//! What must hold: a deliberate conflict is refused before anything is measured; what is missing from each counter at the end
//! equals what was acknowledged; the server counted the same reads, writes and refusals; every value read is one that a client
//! wrote for this counter; a token never comes twice. The blind method reads, writes without a token, and then looks whether its
//! number is there. It is measured beside the others to show what such a test reports, and is not held to conservation.

mod client;
mod ledger;
mod method;
mod report;

use std::time::Duration;

use clap::Args;
use larder_protocol::client::Protocol;

pub use client::{Client, Counts, Retries, Retry, Task};
pub use method::{INITIAL, Method, Stamp};

use crate::control::Family;
use crate::dialog::Dialog;
use crate::error::Error;
use crate::experiment::{Experiment, Options as Common, Seat};
use crate::null::{Canned, Null};
use crate::peers::CLIENTS_MAX;
use crate::placement::Placement;
use crate::results::Ceiling;
use crate::route::Route;
use crate::starvation::Waited;
use crate::stats::median;
use crate::usage::Usage;
use ledger::Ledger;

/// Options of `larder lab cas`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Numbers of clients [default: 1, those of the original article: 2 to 9, 50, 75, 100]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(CLIENTS_MAX)))]
    clients: Vec<u32>,
    /// Numbers of counters [default: 1; with --full 1, 10, 100, 10000]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: Vec<u32>,
    /// Think times between read and write, in µs [default: 0; with --full 0, 100, 1000]
    #[arg(long, value_name = "US", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    think_us: Vec<u64>,
    /// What follows a refusal: never, at-once, backoff [default: at-once; with --full all]
    #[arg(long, value_name = "POLICY", value_delimiter = ',', value_parser = parse_retry)]
    retry: Vec<Retry>,
    /// Ways to change a counter: gets-cas, meta, watch, decr, ma, blind [default: gets-cas or watch, decr,
    /// blind; with --full all that the server knows]
    #[arg(long, value_name = "METHOD", value_delimiter = ',', value_parser = Method::parse)]
    method: Vec<Method>,
    /// Milliseconds of a visit [default: 250, or 100 with --quick]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(10..))]
    visit_ms: Option<u32>,
}

fn parse_retry(text: &str) -> Result<Retry, String> {
    let all = [Retry::Never, Retry::AtOnce, Retry::Backoff];
    let found = all.into_iter().find(|retry| retry.name() == text);
    found.ok_or_else(|| format!("expected one of {}", all.map(Retry::name).join(", ")))
}

/// The client counts of the original article's table, and 1.
const ARTICLE_CLIENTS: [u32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 50, 75, 100];
/// Those of a grid that is even on a logarithmic axis.
const FULL_CLIENTS: [u32; 13] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 50, 75, 100];
const QUICK_CLIENTS: [u32; 4] = [1, 2, 8, 50];

/// One point of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The method that changes the counters.
    pub method: Method,
    /// The number of clients.
    pub clients: u32,
    /// The number of counters.
    pub keys: u32,
    /// Time between read and write.
    pub think: Duration,
    /// What follows a refusal.
    pub retry: Retry,
}

/// The result of a visit.
#[derive(Clone, Debug)]
pub struct Sample {
    /// All counts of its clients.
    pub counts: Counts,
    /// The duration of the visit.
    pub elapsed_s: f64,
    /// Jain's index of the clients' successes: 1 when all had the same, 1/N when one had all.
    pub fairness: f64,
    /// CPU time of the server for an operation that succeeded, in µs.
    pub server_us: Option<f64>,
    /// What the counters lost: less than `stored` means lost updates.
    pub missing: u64,
    /// Share of the time that the generator worked.
    pub busy: f64,
}

impl Sample {
    /// Operations that succeeded, a second.
    pub fn goodput(&self) -> f64 {
        self.counts.stored as f64 / self.elapsed_s
    }
}

/// A setting on a server, over all rounds.
#[derive(Debug)]
pub struct Cell {
    /// The server.
    pub seat: Seat,
    /// The setting.
    pub setting: Setting,
    /// The results, by round.
    pub samples: Vec<Sample>,
}

/// Memory of servers: counters are few.
const MEMORY_MB: u32 = 64;

/// Runs the experiment and prints the result.
///
/// # Errors
/// When a server cannot be started or fails, or a check did not hold.
pub fn run(options: &Options) -> Result<(), Error> {
    let title = "CAS under contention: taking one off a counter, exactly once";
    let mut experiment = Experiment::start("cas", title, &options.common, MEMORY_MB)?;
    for index in 0..experiment.contenders.len() {
        ledger::deliberate_conflict(&mut experiment, index)?;
    }
    let mut cells = options.cells(&experiment)?;
    let visit = options.common.visit(options.visit_ms, 100, 250);
    // Before each visit counters are stored and read, and clients connect.
    experiment.announce(cells.len(), visit + Duration::from_millis(30));
    experiment.run.set("visit, ms", visit.as_millis());
    let names = experiment.names();
    let label = |cell: &Cell| {
        let Setting { clients, method, .. } = cell.setting;
        format!("{}, {clients} clients, {}", names[cell.seat.contender], method.name())
    };
    experiment.rounds(&mut cells, label, |experiment, cell, round| {
        let name = experiment.seat_name(cell.seat);
        let sample =
            experiment.undisturbed(&name, |experiment| visit_once(experiment, cell, visit, round))?;
        cell.samples.push(sample);
        Ok(())
    })?;
    let most = cells.iter().map(|cell| cell.setting.clients).max().unwrap_or(1);
    for route in experiment.routes(Protocol::Classic) {
        let rates: Vec<(String, f64)> = cells
            .iter()
            .filter(|cell| cell.setting.clients == most)
            .filter(|cell| experiment.contender(cell.seat).route(Protocol::Classic) == route)
            .map(|cell| (experiment.seat_name(cell.seat), median(&attempts(cell))))
            .collect();
        experiment.hold_below(&rates, |experiment| ceiling(experiment, route, most))?;
    }
    report::report(&mut experiment, &cells)?;
    experiment.finish()
}

impl Options {
    fn cells(&self, experiment: &Experiment) -> Result<Vec<Cell>, Error> {
        let or =
            |given: &[u32], usual: &[u32]| if given.is_empty() { usual.to_vec() } else { given.to_vec() };
        let common = &self.common;
        let clients = or(&self.clients, common.by_effort(&QUICK_CLIENTS, &ARTICLE_CLIENTS, &FULL_CLIENTS));
        let keys = or(&self.keys, common.by_effort(&[1], &[1], &[1, 10, 100, 10_000]));
        let thinks: &[u64] = match self.think_us.as_slice() {
            [] => common.by_effort(&[0], &[0], &[0, 100, 1000]),
            given => given,
        };
        let retries: &[Retry] = match self.retry.as_slice() {
            [] => common.by_effort(
                &[Retry::AtOnce],
                &[Retry::AtOnce],
                &[Retry::Never, Retry::AtOnce, Retry::Backoff],
            ),
            given => given,
        };
        let mut cells = Vec::new();
        for seat in experiment.seats() {
            let family = experiment.contender(seat).control.family;
            let methods = self.methods(family);
            for &method in &methods {
                // The blind method is not compared: it needs no second visit.
                if seat.again && method == Method::Blind {
                    continue;
                }
                for &clients in &clients {
                    for &keys in &keys {
                        for &think in thinks {
                            for (at, &retry) in retries.iter().enumerate() {
                                // Where the server computes, a client has nothing to think about, and no write is refused.
                                let idle = method.is_server_side() && think != thinks[0];
                                if idle || (!method.is_optimistic() && at > 0) {
                                    continue;
                                }
                                let think = Duration::from_micros(think);
                                let setting = Setting { method, clients, keys, think, retry };
                                cells.push(Cell { seat, setting, samples: Vec::new() });
                            }
                        }
                    }
                }
            }
        }
        match cells.is_empty() {
            true => Err(Error::Usage("no server knows the methods asked for".to_owned())),
            false => Ok(cells),
        }
    }

    fn methods(&self, family: Family) -> Vec<Method> {
        let usual: &[Method] = match (self.method.as_slice(), self.common.full) {
            ([], false) => &[Method::GetsCas, Method::Watch, Method::Decr, Method::Blind],
            ([], true) => &method::METHODS,
            (given, _) => given,
        };
        usual.iter().copied().filter(|method| method.fits(family)).collect()
    }
}

/// Lets the clients of a cell work for a while, and checks what became of the counters.
fn visit_once(
    experiment: &mut Experiment,
    cell: &Cell,
    visit: Duration,
    round: u32,
) -> Result<(Sample, Waited), Error> {
    let Setting { method, clients, keys, think, retry } = cell.setting;
    let contender = experiment.contender(cell.seat);
    let control = contender.control.clone();
    let task = Task::new(method, control.family, keys, think, retry);
    let ledger = Ledger::open(&control, &task)?;
    let seed = experiment.options.seed.wrapping_add(u64::from(round) << 40);
    let agents = (1..=clients).map(|id| Client::new(task.clone(), id, seed)).collect();
    let mut dialog = Dialog::connect(control.endpoint(), agents, &experiment.generator_cores)?;
    let (before, threads) = (contender.usage()?, contender.threads()?);
    let outcome = dialog.run(visit)?;
    let used = contender.usage()?.zip(before).map(|(after, before)| Usage::since(after, before).run);
    let placement = contender.placement(threads.as_ref())?;
    let waited = Placement::waited(placement.as_ref(), outcome.elapsed, outcome.waited);
    let mut counts = Counts::default();
    outcome.tallies.into_iter().for_each(|tally| counts.merge(tally));
    let mut acknowledged = vec![0_u64; keys as usize];
    let mut by_client = Vec::new();
    for client in dialog.agents() {
        client.done.iter().zip(&mut acknowledged).for_each(|(done, sum)| *sum += u64::from(*done));
        by_client.push(client.done.iter().map(|&done| f64::from(done)).sum::<f64>());
    }
    drop(dialog);
    let name = contender.name.clone();
    experiment.note_idle_threads(cell.seat.contender, placement.as_ref());
    let missing = ledger.compare(experiment, &name, &counts, &acknowledged)?;
    let sample = Sample {
        elapsed_s: outcome.elapsed.as_secs_f64(),
        fairness: fairness(&by_client),
        server_us: used.map(|used| used.as_secs_f64() * 1e6 / counts.stored.max(1) as f64),
        missing,
        busy: outcome.busy,
        counts,
    };
    Ok((sample, waited))
}

/// Jain's index: (Σx)² / (n Σx²).
fn fairness(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// Attempts a second, each of one request at least, by round.
fn attempts(cell: &Cell) -> Vec<f64> {
    cell.samples.iter().map(|sample| sample.counts.attempts as f64 / sample.elapsed_s).collect()
}

/// The rate of the clients when the server only sends fixed bytes.
fn ceiling(experiment: &Experiment, route: Route, clients: u32) -> Result<Ceiling, Error> {
    let (family, reply) = match route.protocol {
        Protocol::Classic | Protocol::Meta => (Family::Memcached, format!("{INITIAL}\r\n")),
        Protocol::Resp => (Family::Redis, format!(":{INITIAL}\r\n")),
    };
    let task = Task::new(Method::Decr, family, 1, Duration::ZERO, Retry::AtOnce);
    let mut request = Vec::new();
    task.method.ask_decrement(task.family, &mut request, &task.names[0]);
    let turns = vec![Canned { request_bytes: request.len(), reply: reply.into_bytes() }];
    let null = Null::conversing_in_background(turns, experiment.server_core, route.socket)?;
    let agents = (1..=clients).map(|id| Client::new(task.clone(), id, 1)).collect();
    let mut dialog = Dialog::connect(null.address(), agents, &experiment.generator_cores)?;
    let outcome = dialog.run(Duration::from_millis(200))?;
    let answered: u64 = outcome.tallies.iter().map(|tally| tally.attempts).sum();
    Ok(Ceiling {
        load: format!("{clients} clients, one request at a time, {route}"),
        per_s: answered as f64 / outcome.elapsed.as_secs_f64(),
        busy: outcome.busy,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equals_and_small_for_a_winner_who_takes_all() {
        assert_eq!(fairness(&[5.0; 10]), 1.0);
        assert!((fairness(&[9.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(fairness(&[0.0; 4]), 1.0);
    }
}
