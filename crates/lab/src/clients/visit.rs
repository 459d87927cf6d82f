//! One visit: a client makes calls on a server for a while, and the counts of driver and server are compared.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::roster::{Client, Speaks};
use crate::control::Counters;
use crate::counted::Tracer;
use crate::driver::build::Language;
use crate::driver::reach::Reach;
use crate::driver::{Done, Driver, Job, Secret};
use crate::endpoint::Login;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::keys::Keyspace;
use crate::sizes::Sizes;
use crate::starvation::{Waited, Watch};
use crate::tally::Latencies;
use crate::usage::Usage;
use crate::walk::{Deed, Keys, walk};

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Gets a key that exists.
    Hit,
    /// Gets a key that does not exist.
    Miss,
    /// Sets.
    Set,
    /// Gets [`MANY`] keys that exist.
    Many,
    /// Sets [`SETS`] keys, with a result for each.
    Sets,
}

/// Keys of a call for many.
pub const MANY: u64 = 100;
/// Keys of a call that sets several.
pub const SETS: u64 = 64;

impl Op {
    /// All kinds.
    pub const ALL: [Op; 5] = [Op::Hit, Op::Set, Op::Many, Op::Sets, Op::Miss];

    /// Its name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Op::Hit => "hit",
            Op::Miss => "miss",
            Op::Set => "set",
            Op::Many => "many",
            Op::Sets => "sets",
        }
    }

    /// Whether a call is about many keys: then one caller has many requests under way.
    pub fn is_of_many(self) -> bool {
        matches!(self, Op::Many | Op::Sets)
    }

    /// Its number in a driver's job.
    fn number(self) -> u8 {
        match self {
            Op::Set => 0,
            Op::Hit | Op::Miss => 1,
            Op::Many => 3,
            Op::Sets => 4,
        }
    }
}

/// Callers, and how they call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Callers {
    /// Each as soon as its last call has returned.
    Steady(u64),
    /// All callers at once, then a pause.
    Burst(u64),
}

impl Callers {
    /// The number of callers.
    pub fn count(self) -> u64 {
        match self {
            Callers::Steady(count) | Callers::Burst(count) => count,
        }
    }
}

impl fmt::Display for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Callers::Steady(count) => write!(f, "{count}"),
            Callers::Burst(count) => write!(f, "burst of {count}"),
        }
    }
}

/// A point of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// The client.
    pub client: Client,
    /// The kind of call.
    pub op: Op,
    /// The size of values.
    pub value_bytes: usize,
    /// The callers.
    pub callers: Callers,
}

impl Setting {
    /// In words, for progress and errors.
    pub fn words(&self) -> String {
        let Setting { client, op, value_bytes, callers } = self;
        format!("{}, {} of {value_bytes} B, {callers} callers", client.full_name(), op.name())
    }
}

/// The result of a visit.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// µs a call, of the whole visit.
    pub call_us: f64,
    /// CPU time of the driver for a call, in µs.
    pub client_us: f64,
    /// CPU time of the server for a call, in µs.
    pub server_us: Option<f64>,
    /// Allocations for a call, where they can be counted.
    pub allocations: f64,
    /// Their bytes.
    pub allocated_bytes: f64,
    /// Writes for a call, where the client counts them.
    pub writes: f64,
    /// Connections that the server saw, from before the client was opened.
    pub connections: u64,
    /// Calls that returned an error.
    pub told: u64,
    /// Values that were not the key's.
    pub wrong: u64,
    /// Times of the calls.
    pub latencies: Latencies,
}

impl Sample {
    /// The figures that the driver counts by itself.
    pub fn of(done: &Done) -> Sample {
        let calls = done.calls.max(1) as f64;
        Sample {
            call_us: done.return_ns as f64 / 1e3 / calls,
            client_us: done.cpu_ns as f64 / 1e3 / calls,
            server_us: None,
            allocations: done.allocations as f64 / calls,
            allocated_bytes: done.allocated_bytes as f64 / calls,
            writes: done.writes as f64 / calls,
            connections: 0,
            told: done.told,
            wrong: done.wrong,
            latencies: done.latencies(),
        }
    }
}

/// Keys that calls go through.
const KEYS: u32 = 1024;
/// Bytes of values that calls of one size go through, about.
const VALUES_BYTES: usize = 4 << 20;
/// Numbers of keys of one size begin at a multiple of this.
const SIZE_STEP: u32 = 1_000_000;
/// Keys that nothing stores.
const ABSENT_FIRST: u32 = 900_000_000;
/// Version of every value: sets store the value that exists.
pub const VERSION: u64 = 1;
/// A timeout that no call of a healthy server reaches.
const PATIENCE_MS: u64 = 5_000;
/// Bursts of a visit, and the pause between them.
pub const BURSTS: u64 = 20;
const PAUSE: Duration = Duration::from_millis(5);
/// Calls of a visit in which system calls are counted.
const COUNTED: u64 = 200;

/// Drivers, and the places of keys.
pub struct Bench {
    core: Option<usize>,
    drivers: BTreeMap<Language, Driver>,
    sizes: Vec<usize>,
}

impl Bench {
    /// A bench with drivers on `core`, and keys of these sizes.
    pub fn new(core: Option<usize>, sizes: &[usize]) -> Bench {
        Bench { core, drivers: BTreeMap::new(), sizes: sizes.to_vec() }
    }

    /// The driver of a language, started anew if it has ended.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn driver(&mut self, language: Language) -> Result<&mut Driver, Error> {
        match self.drivers.entry(language) {
            std::collections::btree_map::Entry::Occupied(driver) => Ok(driver.into_mut()),
            std::collections::btree_map::Entry::Vacant(none) => {
                Ok(none.insert(Driver::start_command(language.build()?, self.core)?))
            }
        }
    }

    /// Another driver, for visits that may leave something behind.
    ///
    /// # Errors
    /// As [`Bench::driver`].
    pub fn another(&self, language: Language) -> Result<Driver, Error> {
        Driver::start_command(language.build()?, self.core)
    }

    /// Stores the keys that calls expect.
    ///
    /// # Errors
    /// When the server refuses it.
    pub fn fill(&self, experiment: &Experiment, contender: usize) -> Result<(), Error> {
        let contender = &experiment.contenders[contender];
        contender.control.flush()?;
        for &value_bytes in &self.sizes {
            let space = self.keyspace(value_bytes);
            // A walk of the keys ends at the number behind the last.
            let end = Keyspace { count: space.first + space.count, ..space };
            let keys = Keys { space: end, first: space.first, step: 1 };
            let deed = Deed::Write { sizes: Sizes::Fixed(value_bytes), version: VERSION, ttl_s: 0 };
            let counts = walk(contender, keys, &deed, &experiment.generator_cores)?;
            if counts.done != u64::from(space.count) {
                let why = format!("{}: {} of {} keys were stored", contender.name, counts.done, space.count);
                return Err(Error::NotValid(why));
            }
        }
        Ok(())
    }

    fn keyspace(&self, value_bytes: usize) -> Keyspace {
        let at = self.sizes.iter().position(|&size| size == value_bytes).unwrap_or(self.sizes.len());
        let most = (VALUES_BYTES / value_bytes.max(1)) as u32;
        let space = Keyspace::new(KEYS.min(most).max(MANY as u32), value_bytes);
        Keyspace { first: at as u32 * SIZE_STEP, ..space }
    }

    /// The driver's job on a server.
    ///
    /// # Errors
    /// When drivers do not reach it.
    pub fn job(&self, experiment: &Experiment, contender: usize, setting: &Setting) -> Result<Job, Error> {
        let control = &experiment.contenders[contender].control;
        let (server, login) = (Reach::of(control)?, control.login.as_ref());
        let (user, password) = login.map(Login::words).unwrap_or_default();
        let space = self.keyspace(setting.value_bytes);
        let (bursts, pause) = match setting.callers {
            Callers::Steady(_) => (0, Duration::ZERO),
            Callers::Burst(_) => (BURSTS, PAUSE),
        };
        let job = Job {
            client: setting.client.name.to_owned(),
            by_hand: setting.client.name == super::roster::BY_HAND,
            // Without it a large value waits 40 ms for its last segment: `larder lab matrix` is about that.
            nodelay: true,
            op: setting.op.number(),
            first: if setting.op == Op::Miss { ABSENT_FIRST } else { space.first },
            keys: space.count,
            version: VERSION,
            value_bytes: setting.value_bytes,
            ops_max: u64::MAX >> 1,
            batch: 1,
            callers: setting.callers.count(),
            bursts,
            pause_ns: pause.as_nanos() as u64,
            timeout_ms: PATIENCE_MS,
            user: user.to_owned(),
            password: Secret(password.to_owned()),
            ..Job::default()
        };
        Ok(job.on(server))
    }

    /// Visits a server; returns also how long threads waited for a core.
    ///
    /// # Errors
    /// Server or driver do not answer, or the driver ended.
    pub fn visit(
        &mut self,
        experiment: &mut Experiment,
        contender: usize,
        setting: &Setting,
        time: Duration,
    ) -> Result<(Sample, Waited), Error> {
        let job = Job {
            time_ns: time.as_nanos() as u64,
            // Bursts measure how connections are opened: the first burst opens them.
            cold: matches!(setting.callers, Callers::Burst(_)),
            ..self.job(experiment, contender, setting)?
        };
        let server = &experiment.contenders[contender];
        let opened = server.control.counters()?;
        let driver = self.driver(setting.client.language)?;
        driver.ready(&job)?;
        let (before, used_before) = (server.control.counters()?, server.usage()?);
        let watch = Watch::begin(server, driver.pid(), false)?;
        let done = driver.done()?;
        let waited = watch.end(server, Duration::from_nanos(done.cpu_ns))?;
        let used = server.usage()?.zip(used_before).map(|(after, before)| Usage::since(after, before).run);
        let after = server.control.counters()?;
        let name = format!("{}, {}", server.name, setting.words());
        check(experiment, contender, setting, &name, &done, (&before, &after));
        // The lab asked twice, each time on a connection of its own.
        let family = experiment.contenders[contender].control.family;
        let connections = grown(&opened, &after, connections_counter(family)).saturating_sub(2);
        let server_us = used.map(|used| used.as_secs_f64() * 1e6 / done.calls.max(1) as f64);
        Ok((Sample { server_us, connections, ..Sample::of(&done) }, waited))
    }

    /// Counts the system calls of a call by one caller; `None` where counting is not permitted.
    ///
    /// # Errors
    /// Driver or tracer do not answer.
    pub fn count(
        &mut self,
        experiment: &Experiment,
        contender: usize,
        setting: &Setting,
        tracer: Tracer,
    ) -> Result<Option<f64>, Error> {
        let mut counts = [0; 2];
        // The cost of closing a client is in both.
        for (count, calls) in counts.iter_mut().zip([0, COUNTED]) {
            let job = Job { ops_min: calls, ops_max: calls, ..self.job(experiment, contender, setting)? };
            let driver = self.driver(setting.client.language)?;
            driver.ready(&job)?;
            let Some(counting) = tracer.attach(driver.pid())? else { return Ok(None) };
            driver.done()?;
            *count = counting.count()?;
        }
        Ok(Some(counts[1].saturating_sub(counts[0]) as f64 / COUNTED as f64))
    }
}

fn connections_counter(family: crate::control::Family) -> &'static str {
    match family {
        crate::control::Family::Memcached => "total_connections",
        crate::control::Family::Redis => "total_connections_received",
    }
}

fn grown(before: &Counters, after: &Counters, counter: &str) -> u64 {
    let read = |counters: &Counters| counters.number(counter).unwrap_or(0);
    read(after).wrapping_sub(read(before))
}

/// Checks that the calls' results equal the server's counts.
fn check(
    experiment: &mut Experiment,
    contender: usize,
    setting: &Setting,
    name: &str,
    done: &Done,
    (before, after): (&Counters, &Counters),
) {
    let server = &experiment.contenders[contender];
    let (ours, text) = (server.is_ours(), setting.client.speaks != Speaks::Redis);
    let checks = &mut experiment.checks;
    checks.add("every value read was the key's", done.wrong == 0, || {
        format!("{name}: {} of {} calls were wrong", done.wrong, done.calls)
    });
    let said = done.ok + done.told + if setting.op == Op::Many { 0 } else { done.misses };
    checks.equal("every call has one outcome", done.calls, said, name);
    let timed: u64 = done.histogram.iter().map(|&(_, count)| count).sum();
    checks.equal("every call was timed", done.calls, timed, name);
    // A call that returned an error may have been carried out or not, and a running target may have other clients.
    if done.told > 0 || !ours {
        return;
    }
    let (hits, misses) = match text {
        true => ("get_hits", "get_misses"),
        false => ("keyspace_hits", "keyspace_misses"),
    };
    match setting.op {
        Op::Hit => {
            checks.equal("the server counted the same hits", done.ok, grown(before, after, hits), name);
        }
        Op::Many => {
            let found = done.ok * MANY - done.misses;
            checks.equal("the server counted the same hits", found, grown(before, after, hits), name);
        }
        Op::Miss => {
            let counted = grown(before, after, misses);
            checks.equal("the server counted the same misses", done.misses, counted, name);
        }
        Op::Set | Op::Sets if text => {
            let counted = grown(before, after, "cmd_set");
            let keys = if setting.op == Op::Sets { SETS } else { 1 };
            checks.equal("the server counted the same sets", done.ok * keys, counted, name);
        }
        Op::Set | Op::Sets => {}
    }
}
