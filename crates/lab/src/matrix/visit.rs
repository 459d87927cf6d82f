//! One visit: a driver makes calls on a server for a while, and the counts of both are compared.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use larder_protocol::client::Protocol;

use super::setting::{
    BUFFER, Client, Handle, Link, MGET_KEYS, NO_BLOCK, NODELAY, Op, Reply, Setting, one_way,
};
use crate::contender::Contender;
use crate::control::{Control, Counters};
use crate::counted::{self, Tracer};
use crate::driver::build::Language;
use crate::driver::own::Way;
use crate::driver::reach::Reach;
use crate::driver::{Done, Driver, Ended, Job, Ready, Said};
use crate::error::Error;
use crate::experiment::{Checks, Experiment};
use crate::fill;
use crate::keys::Keyspace;
use crate::relay::Relay;
use crate::sizes::Sizes;
use crate::starvation::{Waited, Watch};
use crate::tally::Latencies;
use crate::usage::Usage;
use crate::walk::{Deed, Keys, walk};

/// The least number of calls of a visit.
const CALLS_MIN: u64 = 20;
/// Bytes of values that calls of one size go through, about.
const VALUES_BYTES: usize = 4 << 20;
/// The largest number of keys of a size.
const KEYS_MAX: usize = 1024;
/// Keys that a visit of deletes finds: it ends when they are gone.
const DELETED_KEYS: u32 = 32_768;
const DELETED_KEYS_CHURNED: u32 = 4_096;
/// Numbers of keys of one size begin at a multiple of this; those of deletes come after all sizes.
const SIZE_STEP: u32 = 1_000_000;
const DELETES_FIRST: u32 = 900_000_000;
/// Calls of a visit in which system calls are counted: with small values and with large ones.
const COUNTED: u64 = 200;
const COUNTED_LARGE: u64 = 20;
const LARGE_BYTES: usize = 8_000;

/// The result of a visit.
#[derive(Clone, Debug)]
pub struct Sample {
    /// µs a call until the last has returned.
    pub return_us: f64,
    /// µs a call until a barrier behind the last was answered; NaN where there is no barrier.
    pub barrier_us: f64,
    /// Share of the calls that the server never counted.
    pub lost: f64,
    /// CPU time of the driver for a call, in µs.
    pub client_us: f64,
    /// CPU time of the server for a call, in µs.
    pub server_us: Option<f64>,
    /// Times of the calls.
    pub calls: Latencies,
}

/// Counts per call of a cell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// System calls of the driver.
    pub syscalls: Option<f64>,
    /// Segments that its connections sent and received.
    pub segments: Option<f64>,
    /// Acknowledgements that were delayed, on either side.
    pub delayed_acks: Option<f64>,
}

/// Keys of one size.
pub fn keys_of(value_bytes: usize) -> u32 {
    (VALUES_BYTES / value_bytes.max(1)).clamp(MGET_KEYS as usize, KEYS_MAX) as u32
}

/// Drivers and relays, and the places of keys.
pub struct Bench {
    core: Option<usize>,
    /// The driver of libmemcached and the loops by hand; `own` is that of Larder's own client.
    driver: Option<Driver>,
    own: Option<Driver>,
    relays: HashMap<(usize, Link), Relay>,
    sizes: Vec<usize>,
    /// Version of the values of the next visit that stores.
    version: u64,
}

impl Bench {
    /// A bench with drivers on `core`, which are started as often as needed.
    pub fn new(core: Option<usize>, sizes: &[usize]) -> Bench {
        Bench { core, driver: None, own: None, relays: HashMap::new(), sizes: sizes.to_vec(), version: 1 }
    }

    /// The driver of a client, started anew if it has ended.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub fn driver(&mut self, client: Client) -> Result<&mut Driver, Error> {
        let core = self.core;
        match self.place(client) {
            Some(driver) => Ok(driver),
            none => Ok(none.insert(start(client, core)?)),
        }
    }

    fn place(&mut self, client: Client) -> &mut Option<Driver> {
        match client {
            Client::Library(_) | Client::ByHand | Client::Batch => &mut self.driver,
            Client::Own(_) => &mut self.own,
        }
    }

    /// Another driver for a client, for visits that end it.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub fn another(&self, client: Client) -> Result<Driver, Error> {
        start(client, self.core)
    }

    /// Stores the keys that reads expect.
    ///
    /// # Errors
    /// When the server refuses it.
    pub fn fill(&self, experiment: &Experiment, contender: usize) -> Result<(), Error> {
        let contender = &experiment.contenders[contender];
        contender.control.flush()?;
        for &value_bytes in &self.sizes {
            self.store(experiment, contender, self.keyspace(value_bytes))?;
        }
        Ok(())
    }

    fn store(&self, experiment: &Experiment, contender: &Contender, space: Keyspace) -> Result<(), Error> {
        fill::fill(contender.endpoint(), Protocol::Classic, space, &experiment.generator_cores)?;
        Ok(())
    }

    fn keyspace(&self, value_bytes: usize) -> Keyspace {
        let at = self.sizes.iter().position(|&size| size == value_bytes).unwrap_or(self.sizes.len());
        Keyspace { first: at as u32 * SIZE_STEP, ..Keyspace::new(keys_of(value_bytes), value_bytes) }
    }

    /// The way to a server, or to a relay before it.
    fn way(&mut self, experiment: &Experiment, contender: usize, link: Link) -> Result<Reach, Error> {
        let server = Reach::of(&experiment.contenders[contender].control)?;
        let (ms, server) = match (link, server) {
            (Link::Relay(ms), Reach::Tcp(address)) => (ms, address),
            // A relay to a server without a port was refused before the experiment began.
            (Link::Loopback | Link::Relay(_), server) => return Ok(server),
        };
        let relay = match self.relays.entry((contender, link)) {
            std::collections::hash_map::Entry::Occupied(relay) => relay.into_mut(),
            std::collections::hash_map::Entry::Vacant(none) => {
                none.insert(Relay::start(server, one_way(ms))?)
            }
        };
        Ok(Reach::Tcp(relay.address))
    }

    /// The time that a relay adds to a round trip.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn added(
        &mut self,
        experiment: &Experiment,
        contender: usize,
        link: Link,
    ) -> Result<Duration, Error> {
        self.way(experiment, contender, link)?;
        let control = &experiment.contenders[contender].control;
        self.relays.get(&(contender, link)).map_or(Ok(Duration::ZERO), |relay| relay.added(control))
    }

    /// The job of the driver on a server. `limits` are the least and the largest number of calls, and the time.
    fn job(
        &mut self,
        experiment: &Experiment,
        contender: usize,
        setting: &Setting,
        limits: (u64, u64, Duration),
    ) -> Result<Job, Error> {
        let server = self.way(experiment, contender, setting.link)?;
        let mut space = self.keyspace(setting.value_bytes);
        let (least, mut most, time) = limits;
        if setting.op == Op::Delete {
            let count = if setting.handle == Handle::Kept { DELETED_KEYS } else { DELETED_KEYS_CHURNED };
            // Counting needs no more keys than calls.
            space = Keyspace { first: DELETES_FIRST, count: count.min(most.max(1) as u32), ..space };
            most = most.min(space.count.into());
            self.store(experiment, &experiment.contenders[contender], space)?;
        }
        self.version += 1;
        let job = Job {
            first: space.first,
            keys: space.count,
            version: self.version,
            ops_min: least,
            ops_max: most,
            time_ns: time.as_nanos() as u64,
            ..setting.job()
        };
        Ok(job.on(server))
    }

    /// Visits a server; returns also how long threads waited for a core.
    ///
    /// # Errors
    /// Server or driver do not answer. It is no error if the driver ends.
    pub fn visit(
        &mut self,
        experiment: &mut Experiment,
        contender: usize,
        setting: &Setting,
        time: Duration,
    ) -> Result<(Result<Sample, Ended>, Waited), Error> {
        let job = self.job(experiment, contender, setting, (CALLS_MIN, u64::MAX >> 1, time))?;
        let client = setting.client;
        let ready = match self.driver(client)?.prepare(&job)? {
            Ok(ready) => ready,
            Err(ended) => return Ok((Err(self.ended(client, ended)), Waited::default())),
        };
        let server = &experiment.contenders[contender];
        let (before, used_before) = (server.control.counters()?, server.usage()?);
        let watch = Watch::begin(server, self.driver(client)?.pid(), matches!(setting.link, Link::Relay(_)))?;
        let done = match self.driver(client)?.go()? {
            Said::Done(done) => *done,
            Said::Ended(ended) => return Ok((Err(self.ended(client, ended)), Waited::default())),
            Said::Paused(_) => return Err(Error::Peer("a driver waits that was not asked to".to_owned())),
        };
        let waited = watch.end(server, Duration::from_nanos(done.cpu_ns))?;
        let used = server.usage()?.zip(used_before).map(|(after, before)| Usage::since(after, before).run);
        let books = Books { setting, before, questions: 0 };
        let (books, after) = books.close(&server.control, &done)?;
        let name = format!("{}, {}", server.name, setting.words());
        let own = server.is_ours();
        check_options(&mut experiment.checks, &name, setting, &ready);
        let lost = books.check(&mut experiment.checks, &name, &done, &after, own);
        if setting.op == Op::Set && lost == 0 {
            self.read_back(experiment, contender, setting, &job, &done)?;
        }
        let calls = done.calls.max(1) as f64;
        let barrier_us = done.barrier_ns as f64 / 1e3 / calls;
        let sample = Sample {
            return_us: done.return_ns as f64 / 1e3 / calls,
            barrier_us: if setting.has_no_barrier() { f64::NAN } else { barrier_us },
            lost: lost as f64 / calls,
            client_us: done.cpu_ns as f64 / 1e3 / calls,
            server_us: used.map(|used| used.as_secs_f64() * 1e6 / calls),
            calls: done.latencies(),
        };
        Ok((Ok(sample), waited))
    }

    /// Records that the driver is gone: another is started when it is needed.
    fn ended(&mut self, client: Client, ended: Ended) -> Ended {
        *self.place(client) = None;
        ended
    }

    /// Checks that every key that was written has the value of this visit.
    fn read_back(
        &self,
        experiment: &mut Experiment,
        contender: usize,
        setting: &Setting,
        job: &Job,
        done: &Done,
    ) -> Result<(), Error> {
        let written = u64::from(job.keys).min(done.calls) as u32;
        let space = self.keyspace(setting.value_bytes);
        // A walk of the keys ends at the number behind the last.
        let keys =
            Keys { space: Keyspace { count: job.first + written, ..space }, first: job.first, step: 1 };
        let deed = Deed::Read { sizes: Sizes::Fixed(setting.value_bytes), version: job.version };
        let server = &experiment.contenders[contender];
        let counts = walk(server, keys, &deed, &experiment.generator_cores)?;
        let name = format!("{}, {}", server.name, setting.words());
        let right = counts.wrong == 0 && counts.done == u64::from(written);
        experiment.checks.add("what was set is what is read back over another connection", right, || {
            let first = counts.first.as_deref().unwrap_or_default();
            format!("{name}: {} of {written} keys, {} wrong {first}", counts.done, counts.wrong)
        });
        Ok(())
    }

    /// Counts the system calls, segments and delayed acknowledgements of a call.
    ///
    /// # Errors
    /// When server, driver or tracer cannot be asked.
    pub fn count(
        &mut self,
        experiment: &mut Experiment,
        contender: usize,
        setting: &Setting,
        tracer: Tracer,
    ) -> Result<Counted, Error> {
        let calls =
            if setting.value_bytes < LARGE_BYTES && setting.op != Op::Mget { COUNTED } else { COUNTED_LARGE };
        // Whole batches.
        let calls = match setting.client {
            Client::Batch | Client::Own(Way::Batch | Way::Stream | Way::Quiet) => 4 * super::BATCH,
            Client::Library(_) | Client::ByHand | Client::Own(Way::OneByOne) => calls,
        };
        let mut counted = Counted::default();
        let (mut syscalls, mut segments) = ([0; 2], [0; 2]);
        for (at, calls) in [0, calls].into_iter().enumerate() {
            let mut job = self.job(experiment, contender, setting, (calls, calls, Duration::ZERO))?;
            // The number of a delete's keys differs from that of its calls, of which there may be none.
            job.ops_max = calls;
            let (job, acks, began) = (Job { segments: true, ..job }, counted::delayed_acks(), Instant::now());
            let Some(done) = self.whole(setting.client, &job, None)?.0 else { return Ok(Counted::default()) };
            segments[at] = done.segments;
            if let (Some(before), Some(after)) = (acks, counted::delayed_acks())
                && calls > 0
            {
                thread::sleep(began.elapsed());
                let idle = counted::delayed_acks().unwrap_or(u64::MAX).saturating_sub(after);
                let ours = counted::without_others(after.saturating_sub(before), idle);
                counted.delayed_acks = ours.map(|ours| ours / calls as f64);
            }
            if setting.op == Op::Delete {
                self.job(experiment, contender, setting, (calls, calls, Duration::ZERO))?;
            }
            let job = Job { segments: false, ..job };
            let (Some(_), count) = self.whole(setting.client, &job, Some(tracer))? else {
                return Ok(Counted::default());
            };
            syscalls[at] = count.unwrap_or(0);
        }
        let each = |of: [u64; 2]| of[1].saturating_sub(of[0]) as f64 / calls as f64;
        counted.syscalls = (tracer != Tracer::Nobody).then(|| each(syscalls));
        // A kernel that does not count segments reports 0 for all.
        counted.segments = (segments[1] > 0).then(|| each(segments));
        Ok(counted)
    }

    /// A visit that is not timed; `None` if the driver ended.
    fn whole(
        &mut self,
        client: Client,
        job: &Job,
        tracer: Option<Tracer>,
    ) -> Result<(Option<Done>, Option<u64>), Error> {
        let driver = self.driver(client)?;
        if let Err(ended) = driver.prepare(job)? {
            self.ended(client, ended);
            return Ok((None, None));
        }
        let counting = match tracer {
            Some(tracer) => tracer.attach(driver.pid())?,
            None => None,
        };
        let said = driver.go()?;
        let count = counting.map(counted::Counting::count).transpose()?;
        match said {
            Said::Done(done) => Ok((Some(*done), count)),
            Said::Ended(ended) => {
                self.ended(client, ended);
                Ok((None, None))
            }
            Said::Paused(_) => Err(Error::Peer("a driver waits that was not asked to".to_owned())),
        }
    }
}

/// Starts the driver of a client, on `core`.
fn start(client: Client, core: Option<usize>) -> Result<Driver, Error> {
    match client {
        Client::Library(_) | Client::ByHand | Client::Batch => {
            Driver::start_command(Language::C.build()?, core)
        }
        Client::Own(_) => Driver::start_own(core),
    }
}

/// Checks that library and socket have the options of the job.
pub fn check_options(checks: &mut Checks, name: &str, setting: &Setting, ready: &Ready) {
    let Client::Library(options) = setting.client else { return };
    let noreply = setting.reply == Reply::Noreply;
    let asked = [options.has(NO_BLOCK), options.has(NODELAY), options.has(BUFFER), noreply];
    let says = [ready.has_no_block, ready.has_nodelay, ready.has_buffer, ready.has_noreply].map(|on| on != 0);
    let socket = [ready.socket_linger != 0, ready.socket_nodelay != 0];
    let agrees = asked == says && (ready.socket == 0 || socket == asked[..2]);
    checks.add("the options are in effect, as library and socket say", agrees, || {
        format!("{name}: {says:?}, SO_LINGER and TCP_NODELAY of the socket {socket:?}")
    });
}

/// The server's counts before a visit.
struct Books<'s> {
    setting: &'s Setting,
    before: Counters,
    /// Questions of the lab since then, each on a connection of its own.
    questions: u64,
}

/// The longest wait for requests that no barrier waits for.
const ARRIVAL: Duration = Duration::from_secs(2);

impl<'s> Books<'s> {
    /// Reads the server's counts since then. Where there is no barrier, the server may still be at work: then it is asked until
    /// it has counted all, or its counts no longer change.
    fn close(mut self, control: &Control, done: &Done) -> Result<(Books<'s>, Counters), Error> {
        let mut waiting = Instant::now();
        let mut last = 0;
        loop {
            let after = control.counters()?;
            self.questions += 1;
            let counted = self.counted(&after);
            let all = counted == self.due(done) && self.connections(&after) == done.connections;
            if all || !self.setting.has_no_barrier() || waiting.elapsed() > ARRIVAL {
                return Ok((self, after));
            }
            if counted != last {
                (last, waiting) = (counted, Instant::now());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn grown(&self, after: &Counters, counter: &str) -> u64 {
        let read = |counters: &Counters| counters.number(counter).unwrap_or(0);
        read(after).wrapping_sub(read(&self.before))
    }

    /// The server's count of the calls.
    fn counted(&self, after: &Counters) -> u64 {
        self.grown(
            after,
            match self.setting.op {
                Op::Set => "cmd_set",
                Op::Delete => "delete_hits",
                Op::Get | Op::Mget => "get_hits",
            },
        )
    }

    /// How many calls the server has to count.
    fn due(&self, done: &Done) -> u64 {
        done.calls * if self.setting.op == Op::Mget { u64::from(MGET_KEYS) } else { 1 }
    }

    /// Connections, without those of the lab's questions.
    fn connections(&self, after: &Counters) -> u64 {
        self.grown(after, "total_connections").saturating_sub(self.questions)
    }

    /// Checks that the calls' results equal the server's counts; returns how many calls it never counted, if nothing waits for
    /// them.
    fn check(&self, checks: &mut Checks, name: &str, done: &Done, after: &Counters, own: bool) -> u64 {
        let setting = self.setting;
        checks.add("no call without a fault told an error", done.told + done.late == 0, || {
            format!("{name}: {} of {} calls, and {} after: {}", done.told, done.calls, done.late, done.error)
        });
        checks.add("every value read was the one written", done.wrong == 0, || {
            format!("{name}: {} of {} calls were wrong", done.wrong, done.calls)
        });
        let queued = if setting.is_queued() { done.calls } else { 0 };
        let claim = "a call said that it was queued where it was, and nowhere else";
        checks.equal(claim, queued, done.queued, name);
        let (due, counted) = (self.due(done), self.counted(after));
        let lost = if setting.has_no_barrier() { due.saturating_sub(counted) } else { 0 };
        let what = match setting.op {
            Op::Set => "sets",
            Op::Delete => "deletes",
            Op::Get | Op::Mget => "hits",
        };
        checks.equal(&format!("the server counted the same {what}"), due - lost, counted, name);
        // If other clients use the server, too, it counts their connections; and a connection that was closed before the server
        // accepted it may never be counted.
        let expected = if setting.handle == Handle::Churn { done.calls } else { 0 };
        checks.equal("the driver opened the connections that it should", expected, done.connections, name);
        if own && lost == 0 {
            let claim = "the server saw as many connections";
            checks.equal(claim, done.connections, self.connections(after), name);
        }
        lost
    }
}
