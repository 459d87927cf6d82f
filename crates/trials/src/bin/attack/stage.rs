//! A server for one attack, and what is measured meanwhile: its memory, and the waits of its workers'
//! canaries.

use crate::identity::{Identity, Tls};
use crate::rows::{Row, fill};
use larder_testkit::canary;
use larder_testkit::process::Server;
use larder_testkit::stage::{Null, PROGRAM_BYTES, bound, pin, redis_port, tls_port};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait of a canary beyond what the machine takes, in microseconds.
pub const EXCESS_US_MAX: u64 = 10_000;
/// The time between two measurements of memory.
const LOOK: Duration = Duration::from_millis(20);

/// A running server, for an attack.
#[derive(Debug)]
pub struct Stage {
    pub server: Server,
    /// The address of its RESP port.
    pub resp: SocketAddr,
    /// The TLS port, if the attack needs one.
    pub tls: Option<Tls>,
    /// Connections that stay open until the attack is over.
    pub open: Mutex<Vec<TcpStream>>,
}

/// The result of an attack.
#[derive(Debug)]
pub struct Report {
    outcome: Result<String, String>,
    pub rss: u64,
    pub bound: u64,
    pub longest_us: u64,
    pub excess_us: u64,
    canaries: Option<String>,
}

impl Report {
    /// Whether the server has passed.
    pub fn holds(&self) -> bool {
        self.outcome.is_ok()
            && self.rss <= self.bound
            && self.excess_us <= EXCESS_US_MAX
            && self.canaries.is_none()
    }

    /// The result in words.
    pub fn said(&self) -> String {
        let (Ok(said) | Err(said)) = &self.outcome;
        match &self.canaries {
            Some(error) => format!("{said}; canaries: {error}"),
            None => said.clone(),
        }
    }
}

/// Stages an attack.
///
/// # Errors
/// When the server cannot be started or prepared.
pub fn run(row: &Row, two_cores: bool) -> Result<Report, String> {
    pin(0);
    let megabytes = row.megabytes.to_string();
    let mut options = vec!["--redis-port", "-1", "-m", &megabytes, "-t", "2", "-c", "12000"];
    options.extend(row.options);
    let identity = if row.tls { Some(Identity::new()?) } else { None };
    if let Some(Identity { chain, key, .. }) = &identity {
        options.extend(["--tls-port", "-1", "--tls-auth-clients", "no"]);
        options.extend(["--tls-cert-file", chain, "--tls-key-file", key]);
    }
    let server = Server::start(&options)?;
    let null = Null::start()?;
    if two_cores {
        pin(1);
    }
    let resp = redis_port(&server)?;
    let by_tls = |identity: Identity| Ok::<Tls, String>(Tls { address: tls_port(&server)?, identity });
    let tls = identity.map(by_tls).transpose()?;
    let stage = Stage { resp, tls, server, open: Mutex::default() };
    let ready = if row.full { fill(&stage) } else { Ok(()) };
    ready.and_then(|()| (row.prepare)(&stage)).map_err(|error| format!("{}: {error}", row.name))?;
    let canaries = canary::hatch(stage.server.id(), stage.server.address(), null.address)
        .map_err(|error| format!("{}: canaries: {error}", row.name))?;
    let (stop, most, started) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    let (outcome, songs) = thread::scope(|scope| {
        let singing = scope.spawn(|| canaries.sing(started, || !stop.load(SeqCst)));
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                // The highest RSS so far, also between two measurements.
                if let Ok(rss) = stage.server.rss_most_bytes() {
                    most.store(rss, SeqCst);
                }
                thread::sleep(LOOK);
            }
        });
        let outcome = (row.attack)(&stage);
        // The memory that the attack leaves in use is measured, too.
        thread::sleep(10 * LOOK);
        stop.store(true, SeqCst);
        (outcome, singing.join())
    });
    let songs = songs.map_err(|_| "the canaries' thread")?;
    let mut report = Report {
        outcome,
        rss: most.load(SeqCst),
        bound: bound(row.megabytes << 20) + PROGRAM_BYTES,
        longest_us: 0,
        excess_us: 0,
        canaries: None,
    };
    match songs {
        // An attack that ends the server also ends the canaries' connections.
        Err(_) if row.ends => {}
        Err(error) => report.canaries = Some(error.to_string()),
        Ok(heard) => {
            let longest = |worker: usize| {
                let took = heard.workers[worker].samples.iter().map(|sample| sample.took_us);
                (heard.excesses(worker).first().map_or(0, |one| one.us), took.max().unwrap_or(0))
            };
            let waited = (0..heard.workers.len()).map(longest).max();
            (report.excess_us, report.longest_us) = waited.unwrap_or_default();
        }
    }
    Ok(report)
}
