//! A driver of the lab: Rust clients as a process that gets its jobs by lines, as `crates/lab/src/driver.rs` describes them.
//!
//! Each caller is a thread, or a task of a client for tasks. A shared client is shared by all callers; of another, each caller
//! has its own. Values are compared byte by byte with the expected ones.

#![forbid(unsafe_code)]

mod clients;
mod secure;
mod tasks;

use std::io::{self, BufRead, Write};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use clients::{Answer, Session};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// What the lab wants.
#[derive(Clone, Debug, Deserialize)]
pub struct Job {
    client: String,
    op: u8,
    cold: bool,
    host: String,
    port: u16,
    socket: String,
    tls: bool,
    tls_name: String,
    tls_authorities: String,
    tls_chain: String,
    tls_key: String,
    first: u32,
    keys: u32,
    version: u64,
    value_bytes: usize,
    ops_max: u64,
    time_ns: u64,
    callers: u64,
    bursts: u64,
    pause_ns: u64,
    timeout_ms: u64,
    user: String,
    password: String,
}

impl Job {
    /// The server's address and port, or the path of its Unix socket; an IPv6 address is in brackets.
    pub fn address(&self) -> String {
        let Job { host, port, socket, .. } = self;
        if !socket.is_empty() {
            socket.clone()
        } else if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }

    /// Whether the address is the path of a Unix socket.
    pub fn is_at_path(&self) -> bool {
        !self.socket.is_empty()
    }

    /// A builder of Larder's own client for this server, with TLS, user and password if the server needs them.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn builder(&self) -> Result<larder_client::Builder, String> {
        let mut builder =
            larder_client::Client::builder().server(self.address().as_str()).timeout(self.timeout());
        if self.tls {
            builder = builder.tls(secure::tls(self)?);
        }
        Ok(if self.password.is_empty() { builder } else { builder.auth(&*self.user, &*self.password) })
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

const SET: u8 = 0;
const GET: u8 = 1;
const MANY_KEYS: usize = 100;
const SETS: u8 = 4;
const SETS_KEYS: usize = 64;
const BUCKETS: usize = 4096;

/// What came of it.
#[derive(Debug, Default, Serialize)]
struct Done {
    done: u8,
    calls: u64,
    ok: u64,
    misses: u64,
    told: u64,
    timeouts: u64,
    wrong: u64,
    first_error_at: u64,
    told_ns: u64,
    last_error_ns: u64,
    error: String,
    return_ns: u64,
    barrier_ns: u64,
    cpu_ns: u64,
    allocations: u64,
    allocated_bytes: u64,
    histogram: Vec<(usize, u64)>,
}

#[derive(Deserialize)]
struct Asked {
    r#do: String,
    #[serde(flatten)]
    job: Option<Job>,
}

fn main() {
    let mut lines = io::stdin().lock().lines();
    while let Some(Ok(line)) = lines.next() {
        let asked: Asked = match serde_json::from_str(&line) {
            Ok(asked) => asked,
            Err(error) => fail(&error.to_string()),
        };
        match (asked.r#do.as_str(), asked.job) {
            ("hello", _) => {
                let value: String =
                    value(305_419_896, 7, 61).iter().map(|byte| format!("{byte:02x}")).collect();
                let hello = concat!("larder-client ", env!("CARGO_PKG_VERSION"));
                say(&serde_json::json!({ "hello": hello, "value": value, "clients": clients::VERSIONS }));
            }
            ("run", Some(job)) => run(&job, || lines.next().is_some()),
            (what, _) => fail(&format!("{what} is not understood")),
        }
    }
}

fn say(what: &impl Serialize) {
    let mut line = serde_json::to_string(what).expect("it can be written");
    line.push('\n');
    let mut out = io::stdout().lock();
    if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

fn fail(why: &str) -> ! {
    say(&serde_json::json!({ "failed": why }));
    std::process::exit(1);
}

/// Names of keys, and the value of each; as many names again as one call asks for stand behind them.
pub struct Space {
    names: Vec<String>,
    values: Vec<Vec<u8>>,
    first: u32,
}

impl Space {
    /// The name and the value of each key of a call that stores several, from this number on.
    fn several(&self, at: usize) -> impl Iterator<Item = (&str, &[u8])> {
        let Space { names, values, .. } = self;
        (at..at + SETS_KEYS).map(move |at| (names[at].as_str(), values[at % values.len()].as_slice()))
    }

    /// Whether a value is that of a key.
    pub fn is_right(&self, key: &[u8], value: &[u8]) -> bool {
        let digits = key.get(4..).unwrap_or_default();
        let id =
            digits.iter().fold(0_u32, |id, digit| id.wrapping_mul(10).wrapping_add(u32::from(digit - b'0')));
        self.values.get(id.wrapping_sub(self.first) as usize).is_some_and(|due| due == value)
    }
}

/// A caller's counts.
struct Counts {
    done: Done,
    histogram: Vec<u64>,
    /// The key that is next.
    at: usize,
}

impl Counts {
    /// The key of a call, as its place among all.
    fn next(&mut self, keys: usize) -> usize {
        let at = self.at;
        self.at = (at + 1) % keys;
        at
    }

    fn take(&mut self, answer: Answer) {
        let done = &mut self.done;
        done.calls += 1;
        match answer {
            Answer::Right => done.ok += 1,
            Answer::Wrong => (done.ok, done.wrong) = (done.ok + 1, done.wrong + 1),
            Answer::Miss => done.misses += 1,
            Answer::Many { found, wrong } => {
                done.ok += 1;
                done.misses += (MANY_KEYS - found) as u64;
                done.wrong += wrong as u64;
            }
            Answer::Failed { timeout, error } => {
                done.timeouts += u64::from(timeout);
                if done.told == 0 {
                    (done.first_error_at, done.error) = (done.calls, error());
                }
                done.told += 1;
            }
        }
    }

    /// Notes how long a call took since `last`, and whether it failed, by the number of errors before it; true if it failed.
    fn note(&mut self, told: u64, began: Instant, last: Instant, now: Instant) -> bool {
        let took = (now - last).as_nanos() as u64;
        self.histogram[bucket(took)] += 1;
        if self.done.told == told {
            return false;
        }
        self.done.told_ns += took;
        self.done.last_error_ns = (now - began).as_nanos() as u64;
        true
    }

    /// It goes on after this many calls, and this long.
    fn goes_on(&self, job: &Job, began: Instant, last: Instant) -> bool {
        let (most, limit) = (job.ops_max / job.callers.max(1), Duration::from_nanos(job.time_ns));
        self.done.calls < most && (limit.is_zero() || last - began < limit)
    }
}

/// A thread that calls.
struct Caller<'s> {
    session: Box<dyn Session>,
    space: &'s Space,
    counts: Counts,
}

impl Caller<'_> {
    fn call(&mut self, op: u8) {
        let at = self.counts.next(self.space.values.len());
        let (key, due) = (&self.space.names[at], &self.space.values[at]);
        self.counts.take(match op {
            SET => self.session.set(key, due),
            GET => self.session.get(key, due),
            SETS => self.session.sets(at, self.space),
            _ => self.session.many(&self.space.names[at..at + MANY_KEYS], self.space),
        });
    }

    /// Calls, and notes how long it took since `last`.
    fn timed(&mut self, op: u8, began: Instant, last: Instant, pause: Duration) -> Instant {
        let told = self.counts.done.told;
        self.call(op);
        let now = Instant::now();
        if !self.counts.note(told, began, last, now) || pause.is_zero() {
            return now;
        }
        thread::sleep(pause);
        Instant::now()
    }

    fn steady(&mut self, job: &Job, began: Instant) {
        let pause = Duration::from_nanos(job.pause_ns);
        let mut last = began;
        while self.counts.goes_on(job, began, last) {
            last = self.timed(job.op, began, last, pause);
        }
    }
}

fn run(job: &Job, hear: impl FnMut() -> bool) {
    let count = job.keys.max(1) as usize;
    let id = |at: usize| job.first + (at % count) as u32;
    let space = Space {
        names: (0..count + MANY_KEYS).map(|at| format!("key:{:012}", id(at))).collect(),
        values: (0..count).map(|at| value(id(at).into(), job.version, job.value_bytes)).collect(),
        first: job.first,
    };
    let counts =
        |at: usize| Counts { done: Done::default(), histogram: vec![0; BUCKETS], at: at * 37 % count };
    let callers = 0..job.callers.max(1) as usize;
    let done = match job.client.as_str() {
        clients::TASKS => tasks::run(job, space, callers.map(counts).collect(), hear),
        _ => threads(job, &space, counts, hear),
    };
    match done {
        Ok(Some((all, counts))) => say(&summed(all, counts)),
        Ok(None) => {}
        Err(why) => fail(&why),
    }
}

/// What all callers have counted.
fn summed(all: Done, counts: Vec<Counts>) -> Done {
    let mut all = Done { done: 1, barrier_ns: all.return_ns, ..all };
    let mut histogram = vec![0; BUCKETS];
    for Counts { done, histogram: own, .. } in counts {
        if done.told > 0 && all.told == 0 {
            (all.first_error_at, all.error) = (done.first_error_at, done.error);
        }
        all.calls += done.calls;
        all.ok += done.ok;
        all.misses += done.misses;
        all.told += done.told;
        all.timeouts += done.timeouts;
        all.wrong += done.wrong;
        all.told_ns += done.told_ns;
        all.last_error_ns = all.last_error_ns.max(done.last_error_ns);
        histogram.iter_mut().zip(own).for_each(|(sum, count)| *sum += count);
    }
    all.histogram = histogram.into_iter().enumerate().filter(|&(_, count)| count > 0).collect();
    all
}

/// What came of a job: of all together, and by caller. None where the lab has gone.
type Outcome = Result<Option<(Done, Vec<Counts>)>, String>;

/// Callers that are threads.
fn threads(
    job: &Job,
    space: &Space,
    counts: impl Fn(usize) -> Counts,
    mut hear: impl FnMut() -> bool,
) -> Outcome {
    let sessions = clients::open(job)?.into_iter().enumerate();
    let mut callers: Vec<Caller<'_>> =
        sessions.map(|(at, session)| Caller { session, space, counts: counts(at) }).collect();
    let warm = !job.cold && job.bursts == 0;
    let all = if callers.len() == 1 {
        let caller = &mut callers[0];
        if warm {
            (0..4).for_each(|_| caller.call(job.op));
            caller.counts.done = Done::default();
        }
        say(&serde_json::json!({ "ready": 1 }));
        if !hear() {
            return Ok(None);
        }
        let (cpu, began) = (processor_ns(), Instant::now());
        let allocated = allocation_counter::measure(|| caller.steady(job, began));
        let mut all = Done { return_ns: began.elapsed().as_nanos() as u64, ..Done::default() };
        all.cpu_ns = processor_ns() - cpu;
        (all.allocations, all.allocated_bytes) = (allocated.count_total, allocated.bytes_total);
        all
    } else {
        together(job, &mut callers, warm, hear)
    };
    Ok(Some((all, callers.into_iter().map(|caller| caller.counts).collect())))
}

/// All callers, a thread each.
fn together(job: &Job, callers: &mut [Caller<'_>], warm: bool, mut hear: impl FnMut() -> bool) -> Done {
    let count = callers.len();
    // Ready, go, and done; and each burst's beginning and end.
    let (gate, burst) = (Barrier::new(count + 1), Barrier::new(count));
    thread::scope(|scope| {
        for caller in callers.iter_mut() {
            scope.spawn(|| {
                if warm {
                    (0..4).for_each(|_| caller.call(job.op));
                    caller.counts.done = Done::default();
                }
                gate.wait();
                gate.wait();
                let began = Instant::now();
                if job.bursts == 0 {
                    caller.steady(job, began);
                }
                for _ in 0..job.bursts {
                    burst.wait();
                    caller.timed(job.op, began, Instant::now(), Duration::ZERO);
                    burst.wait();
                    thread::sleep(Duration::from_nanos(job.pause_ns));
                }
                gate.wait();
            });
        }
        gate.wait();
        say(&serde_json::json!({ "ready": 1 }));
        if !hear() {
            std::process::exit(0);
        }
        let (cpu, began) = (processor_ns(), Instant::now());
        gate.wait();
        gate.wait();
        let return_ns = began.elapsed().as_nanos() as u64;
        Done { return_ns, cpu_ns: processor_ns() - cpu, ..Done::default() }
    })
}

fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Exact below 64 ns, then 64 buckets for each power of two.
fn bucket(ns: u64) -> usize {
    if ns < 64 {
        return ns as usize;
    }
    let power = ns.ilog2();
    (((power - 5) * 64 + ((ns >> (power - 6)) & 63) as u32) as usize).min(BUCKETS - 1)
}

/// The lab's value of a key at a version.
fn value(key: u64, version: u64, bytes: usize) -> Vec<u8> {
    const NAMED_BYTES_MIN: usize = 24;
    let version = if bytes < NAMED_BYTES_MIN { 0 } else { version };
    let mut x = key.wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ version.rotate_left(32) ^ (bytes as u64) << 17;
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^= x >> 31;
    let mut out = Vec::with_capacity(bytes + 8);
    if bytes >= NAMED_BYTES_MIN {
        out.extend_from_slice(&key.to_le_bytes());
        out.extend_from_slice(&version.to_le_bytes());
    }
    while out.len() < bytes {
        out.extend_from_slice(&x.to_le_bytes());
        x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    }
    out.truncate(bytes);
    out
}
