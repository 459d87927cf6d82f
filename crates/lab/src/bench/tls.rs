//! The benchmark of TLS: what it adds to a request, what a handshake costs, and how handshakes delay other clients.
//!
//! ```text
//! folder ─┬─ ca.crt                     the authority that the generator trusts
//!         ├─ ecdsa.crt, ecdsa.key       a certificate of 127.0.0.1 with a key on P-256, signed by it
//!         └─ rsa.crt, rsa.key           another with a key of 2048 bits
//! ```
//!
//! All servers show the same certificates, resume sessions by tickets, and have a plain port beside that of TLS. They run at the
//! same time, pinned to one core with one thread each, the generator on another core. A round visits every pair of figure and
//! server once, in random order. CPU time is the server's own over the requests or connections of the visit; a connection is a
//! handshake with its accept, one short request, and its end. The table has the medians of the rounds.
//!
//! Handshakes beside plain requests come at even times from several clients, on a third core. A machine without a third core has
//! no such row: the generator leaves its core to no client, and hardly a handshake would complete. The plain requests are an open
//! loop: their latency counts from when a request was due.

mod loads;
mod server;
mod table;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use larder_eventloop::cpu;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::{parse_rival, visits};
use crate::connection::Check;
use crate::error::Error;
use crate::fill;
use crate::generator::{Arrivals, Load, Stop, prefer, waited_since};
use crate::handshakes::{Client, Count};
use crate::peers::{self, Kind};
use crate::placement::{Placement, Threads};
use crate::starvation::{Waited, least_disturbed};
use crate::tally::late_at;
use crate::usage::Usage;
use crate::workload::{Verb, Workload};
use loads::{Asked, LARGE, LOADS, MIDDLE, SMALL};
use server::{Certificate, TlsServer};
use table::{Bound, Row};

/// Options of `bench-tls`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// A folder with ca.crt, and certificates of 127.0.0.1 with their keys: ecdsa.crt, ecdsa.key, rsa.crt, rsa.key
    #[arg(long, value_name = "FOLDER")]
    certificates: PathBuf,
    #[command(flatten)]
    visits: visits::Options,
    /// Servers to compare with, of those that the lab can start and that have TLS
    #[arg(long = "peer", value_name = "NAME", value_delimiter = ',', value_parser = parse_rival)]
    peers: Vec<Kind>,
}

/// The certificates; all loads are measured with the first.
const CERTIFICATES: [Certificate; 2] = [
    Certificate { name: "ECDSA P-256", file: "ecdsa", full_us_max: 350.0, resumed_us_max: 350.0 },
    Certificate { name: "RSA 2048", file: "rsa", full_us_max: 650.0, resumed_us_max: 350.0 },
];

/// Requests a second of the plain clients whose latency is measured, and how many these are.
const PLAIN_PER_S: f64 = 10_000.0;
const PLAIN_CLIENTS: usize = 50;
/// Handshakes a second beside them, and the clients that share them out.
const HANDSHAKES_PER_S: f64 = 500.0;
const HANDSHAKE_CLIENTS: u32 = 4;
/// The share of these handshakes that must complete at least.
const HANDSHAKES_LEAST: f64 = 0.9;
/// What these handshakes may add to the 99th percentile, in µs.
const DELAY_US_MAX: f64 = 1_000.0;
/// How long replies are verified before and after the rounds.
const VERIFIED: Duration = Duration::from_millis(100);

/// Runs the benchmark and prints it.
///
/// # Errors
/// A server cannot be started, a reply is wrong, a thread waited for a core for too long, or a bound is missed.
pub fn tls(options: &Options) -> Result<(), Error> {
    let mut bench = Bench::new(options)?;
    println!("{}", peers::machine());
    println!("{}", options.visits.words(bench.visits.core));
    for certificate in &CERTIFICATES {
        bench.measure(certificate)?;
    }
    let Bench { kinds, versions, rows, worst, third_core, .. } = bench;
    let heads: Vec<String> =
        kinds.iter().zip(&versions).map(|(kind, version)| format!("{} {version}", kind.name())).collect();
    let is_larder: Vec<bool> = kinds.iter().map(|kind| kind.is_larder()).collect();
    println!("\n{}", table::markdown(&heads, &rows));
    if third_core.is_none() {
        println!("{}", left_out());
    }
    let missed = table::missed(&rows, &is_larder);
    missed.iter().for_each(|what| println!("missed: {what}"));
    if 100.0 * worst > options.visits.wait_max {
        return Err(Error::NotValid(format!(
            "a thread waited for its core {:.1} % of a visit; {} % are allowed",
            100.0 * worst,
            options.visits.wait_max
        )));
    }
    println!("{} bounds missed; medians of {} rounds", missed.len(), options.visits.rounds);
    if missed.is_empty() { Ok(()) } else { Err(Error::Missed(missed.len())) }
}

/// Why there is no row beside handshakes, in words.
fn left_out() -> String {
    format!(
        "left out: p99 beside {HANDSHAKES_PER_S} handshakes/s, whose clients need a core beside the servers' and the generator's"
    )
}

struct Bench<'a> {
    options: &'a Options,
    visits: Visits,
    /// The core of clients that shake hands beside plain requests, if there is one.
    third_core: Option<usize>,
    kinds: Vec<Kind>,
    /// The version of each kind.
    versions: Vec<String>,
    rows: Vec<Row>,
    /// The largest share of a visit in which a thread waited for its core.
    worst: f64,
}

/// What all visits have in common.
#[derive(Clone, Copy)]
struct Visits {
    /// The generator's core.
    core: usize,
    /// How long each takes.
    time: Duration,
}

/// A visit, ready to run.
struct Job {
    row: usize,
    /// The server, by its position among the kinds.
    column: usize,
    pid: u32,
    what: What,
}

/// What a visit measures.
enum What {
    /// CPU time of a request.
    Requests(Box<Load>, Verb),
    /// CPU time of a connection; sessions are to be resumed, or not.
    Handshakes(Client, bool),
    /// The 99th percentile of plain requests, beside handshakes or alone.
    Latency(Box<Load>, Option<Shaking>),
}

/// Clients that shake hands at even times, on a core of their own.
struct Shaking {
    clients: Vec<Client>,
    core: usize,
}

impl Shaking {
    fn new(server: &TlsServer, core: usize) -> Result<Shaking, Error> {
        let clients = (0..HANDSHAKE_CLIENTS).map(|_| server.client(false)).collect::<Result<_, Error>>()?;
        Ok(Shaking { clients, core })
    }

    /// Lets the clients shake hands for `time`, at even times.
    fn shake(&self, time: Duration) -> Result<Count, Error> {
        let per_s = HANDSHAKES_PER_S / f64::from(HANDSHAKE_CLIENTS);
        let shake = |client: &Client| -> Result<Count, Error> {
            cpu::pin_thread(self.core).map_err(|error| Error::System("pinning a client", error))?;
            client.connect_at(per_s, time)
        };
        let counts = thread::scope(|scope| {
            let threads: Vec<_> =
                self.clients.iter().map(|client| scope.spawn(move || shake(client))).collect();
            let joined = threads.into_iter().map(|client| client.join().expect("a client does not panic"));
            joined.collect::<Result<Vec<Count>, Error>>()
        })?;
        let mut all = Count::default();
        counts.into_iter().for_each(|count| all.add(count));
        Ok(all)
    }
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options) -> Result<Bench<'a>, Error> {
        let mut kinds = vec![Kind::Larder, Kind::LarderRedis];
        for &kind in &options.peers {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let visits::Cores { generator: core, third: third_core } = options.visits.cores()?;
        Ok(Bench {
            options,
            visits: Visits { core, time: options.visits.time() },
            third_core,
            kinds,
            versions: Vec::new(),
            rows: Vec::new(),
            worst: 0.0,
        })
    }

    /// Starts all servers with a certificate, and runs all rounds on them.
    fn measure(&mut self, certificate: &Certificate) -> Result<(), Error> {
        let with_loads = *certificate == CERTIFICATES[0];
        let folder = &self.options.certificates;
        let mut servers = Vec::new();
        for &kind in &self.kinds {
            let server = TlsServer::start(kind, self.options.visits.server_core, folder, certificate)?;
            eprintln!("started {} {} ({})", kind.name(), server.peer.version, server.peer.command);
            servers.push(server);
        }
        if with_loads {
            self.versions = servers.iter().map(|server| server.peer.version.clone()).collect();
        }
        let mut jobs = Vec::new();
        if with_loads {
            for server in &servers {
                for keyspace in [SMALL, MIDDLE, LARGE] {
                    let cores = [Some(self.visits.core)];
                    let filled = fill::fill(&server.plain, server.protocol(), keyspace, &cores);
                    filled.map_err(|error| error.within(|| server.name().to_owned()))?;
                }
            }
            for asked in &LOADS {
                self.prepare_load(asked, &servers, &mut jobs)?;
            }
        }
        self.prepare_handshakes(certificate, &servers, &mut jobs)?;
        if with_loads {
            self.prepare_latency(&servers, &mut jobs)?;
        }
        self.verify(&mut jobs)?;
        let mut rng = StdRng::seed_from_u64(self.options.visits.seed);
        for round in 1..=self.options.visits.rounds {
            jobs.shuffle(&mut rng);
            eprintln!("{}: round {round} of {}", certificate.name, self.options.visits.rounds);
            for job in &mut jobs {
                let name = format!("{}, {}", self.kinds[job.column].name(), self.rows[job.row].name);
                let visits = self.visits;
                let sample = || job.sample(visits);
                let (value, waited) = least_disturbed(self.options.visits.wait_max / 100.0, sample)
                    .map_err(|error| error.within(|| name.clone()))?;
                self.worst = self.worst.max(waited.most());
                self.rows[job.row].values[job.column].push(value);
            }
        }
        self.verify(&mut jobs)
    }

    /// Adds a row, and returns its number.
    fn row(&mut self, name: String, unit: &'static str, bound: Bound) -> usize {
        let values = vec![Vec::new(); self.kinds.len()];
        self.rows.push(Row { name, unit, bound, values });
        self.rows.len() - 1
    }

    /// Connects to all servers for one load, over plain connections and over TLS.
    fn prepare_load(
        &mut self,
        asked: &Asked,
        servers: &[TlsServer],
        jobs: &mut Vec<Job>,
    ) -> Result<(), Error> {
        let plain = self.row(format!("{}, plain", asked.name), "µs", Bound::None);
        let bound = match (asked.us_max, asked.more_us_max) {
            (Some(most), _) => Bound::Most(most),
            (None, Some(more)) => Bound::Above(more),
            (None, None) => Bound::None,
        };
        let tls = self.row(format!("{}, TLS", asked.name), "µs", bound);
        for (column, server) in servers.iter().enumerate() {
            let workload = Workload {
                connections: asked.connections,
                pipeline: asked.pipeline,
                ..Workload::new(server.protocol(), asked.verb, asked.keyspace)
            };
            let scripts = workload.scripts(self.options.visits.seed);
            for (row, endpoint) in [(plain, &server.plain), (tls, &server.tls)] {
                let load = Load::connect(endpoint, &workload, scripts.clone(), &[Some(self.visits.core)])
                    .map_err(|error| error.within(|| server.name().to_owned()))?;
                let what = What::Requests(Box::new(load), asked.verb);
                jobs.push(Job { row, column, pid: server.peer.process()?, what });
            }
        }
        Ok(())
    }

    fn prepare_handshakes(
        &mut self,
        certificate: &Certificate,
        servers: &[TlsServer],
        jobs: &mut Vec<Job>,
    ) -> Result<(), Error> {
        let Certificate { full_us_max, resumed_us_max, .. } = *certificate;
        for (name, resumes, most) in [("full", false, full_us_max), ("resumed", true, resumed_us_max)] {
            let row = self.row(format!("handshake, {}, {name}", certificate.name), "µs", Bound::Most(most));
            for (column, server) in servers.iter().enumerate() {
                let client = server.client(resumes)?;
                // The session that later connections resume.
                client.connect().map_err(|error| error.within(|| server.name().to_owned()))?;
                let what = What::Handshakes(client, resumes);
                jobs.push(Job { row, column, pid: server.peer.process()?, what });
            }
        }
        Ok(())
    }

    fn prepare_latency(&mut self, servers: &[TlsServer], jobs: &mut Vec<Job>) -> Result<(), Error> {
        let alone = self.row("p99 of plain GETs at 10,000/s".to_owned(), "µs", Bound::None);
        // Rows, and the core of the clients that shake hands.
        let mut rows = vec![(alone, None)];
        if self.third_core.is_some() {
            let name = format!("the same beside {HANDSHAKES_PER_S} handshakes/s");
            rows.push((self.row(name, "µs", Bound::Above(DELAY_US_MAX)), self.third_core));
        }
        for (column, server) in servers.iter().enumerate() {
            let workload =
                Workload { connections: PLAIN_CLIENTS, ..Workload::new(server.protocol(), Verb::Hit, SMALL) };
            let scripts = workload.scripts(self.options.visits.seed);
            for &(row, core) in &rows {
                let cores = [Some(self.visits.core)];
                let load = Load::connect(&server.plain, &workload, scripts.clone(), &cores)?;
                let shaking = core.map(|core| Shaking::new(server, core)).transpose()?;
                let what = What::Latency(Box::new(load), shaking);
                jobs.push(Job { row, column, pid: server.peer.process()?, what });
            }
        }
        Ok(())
    }

    /// Sends each load for a moment, with every value verified.
    fn verify(&self, jobs: &mut [Job]) -> Result<(), Error> {
        for job in jobs {
            let name = || format!("{}, {}", self.kinds[job.column].name(), self.rows[job.row].name);
            let (load, verb) = match &mut job.what {
                What::Requests(load, verb) => (load, *verb),
                What::Latency(load, _) => (load, Verb::Hit),
                What::Handshakes(..) => continue,
            };
            let tally = load.run(Check::Verify, Stop::After(VERIFIED)).map_err(|error| error.within(name))?;
            if let Some(first) = tally.first_wrong {
                let why = format!("{}: {} wrong replies, the first: {first}", name(), tally.wrong);
                return Err(Error::NotValid(why));
            }
            let answered = if verb == Verb::Set { tally.stored } else { tally.hits };
            if answered != tally.keys {
                let why = format!("{}: {answered} replies for {} keys", name(), tally.keys);
                return Err(Error::NotValid(why));
            }
        }
        Ok(())
    }
}

impl Job {
    /// Measures once. The value is NaN if there is none.
    fn sample(&mut self, visits: Visits) -> Result<(f64, Waited), Error> {
        if let What::Handshakes(client, true) = &self.what {
            // The session of the last visit may be too old.
            client.connect()?;
        }
        let (before, threads) = (Usage::of(self.pid)?, Threads::of(self.pid)?);
        let began = Instant::now();
        // Requests or connections, the share of the time in which the generator waited, and the value where it is not CPU time.
        let (units, generator, value) = match &mut self.what {
            What::Requests(load, _) => {
                let tally = load.run(Check::Length, Stop::After(visits.time))?;
                (tally.keys, tally.waited, None)
            }
            What::Handshakes(client, resumes) => {
                let (count, waited) = alone_on(visits.core, || client.connect_for(visits.time))?;
                let as_wanted = if *resumes { count.resumed == count.all } else { count.resumed == 0 };
                (count.all, waited, (!as_wanted).then_some(f64::NAN))
            }
            // The CPU share of an open loop says nothing: [`p99_us`] judges whether the generator was late.
            What::Latency(load, shaking) => (1, 0.0, Some(p99_us(load, shaking.as_ref(), visits.time)?)),
        };
        let elapsed = began.elapsed();
        let used = Usage::of(self.pid)?.since(before);
        let placement = threads.placement(self.pid)?;
        let waited = Placement::waited(Some(&placement), elapsed, generator);
        let cpu_us = used.run.as_secs_f64() * 1e6 / units.max(1) as f64;
        Ok((value.unwrap_or(cpu_us), waited))
    }
}

/// Does some work on the generator's core, and returns the share of the time in which it waited for it.
fn alone_on(core: usize, work: impl FnOnce() -> Result<Count, Error> + Send) -> Result<(Count, f64), Error> {
    let run = || -> Result<(Count, f64), Error> {
        prefer(Some(core))?;
        let (turns, began) = (cpu::own_turns().unwrap_or_default(), Instant::now());
        let count = work()?;
        Ok((count, waited_since(turns, began.elapsed())))
    };
    thread::scope(|scope| scope.spawn(run).join().expect("a client does not panic"))
}

/// The 99th percentile of a plain load in µs, beside the handshakes of some clients or alone. NaN if the generator was late, or
/// if there were fewer handshakes than there should be.
fn p99_us(load: &mut Load, shaking: Option<&Shaking>, time: Duration) -> Result<f64, Error> {
    let arrivals = Arrivals { per_s: PLAIN_PER_S, poisson: true, seed: 1 };
    let (tally, count) = thread::scope(|scope| {
        let shaking = shaking.map(|shaking| scope.spawn(move || shaking.shake(time)));
        let tally = load.run_open(Check::Parse, arrivals, time);
        (tally, shaking.map(|shaking| shaking.join().expect("a client does not panic")).transpose())
    });
    let (tally, count) = (tally?, count?);
    let least = HANDSHAKES_LEAST * HANDSHAKES_PER_S * time.as_secs_f64();
    let too_few = count.is_some_and(|count| (count.all as f64) < least);
    let is_late = late_at(&tally.lag, &tally.latency, 0.99).is_some();
    Ok(if is_late || too_few { f64::NAN } else { tally.latency_us(0.99) })
}
