//! The driver of Larder's own client: `larder lab drive`, a process with the protocol of all drivers.
//!
//! It stores and deletes in the four ways of the client: one by one, 64 together, as a stream, and quietly. It reads one by
//! one, or many keys with one call. A write by a stream counts as queued; the stream's barrier reports the results, and refused
//! or unknown ones count as errors in the end. Keys are rendered as calls are made, values beforehand, as in the driver in C.

use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

use larder_client::{Batch, Client, Stream, Ticket, Ttl, Value, Window};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{Done, Hello, Job, MANY_KEYS, Paused, Ready, bucket_of, sample};
use crate::error::Error;
use crate::keys::{Keyspace, Prefix};
use crate::value;

/// Ways to store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The client waits for each reply.
    #[default]
    OneByOne,
    /// Several writes are sent together, and acknowledged together.
    Batch,
    /// Writes are sent without waiting, and acknowledged later.
    Stream,
    /// Like a stream, but the server replies only to refused requests.
    Quiet,
}

impl Way {
    /// All ways.
    pub const ALL: [Way; 4] = [Way::OneByOne, Way::Batch, Way::Stream, Way::Quiet];

    /// Whether this way can make such calls: ones that write, or else read, and that want no reply, or else one.
    pub fn takes(self, writes: bool, noreply: bool) -> bool {
        match self {
            Way::OneByOne => !noreply,
            Way::Batch | Way::Stream => writes && !noreply,
            Way::Quiet => writes && noreply,
        }
    }

    /// Its name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Way::OneByOne => "larder-client",
            Way::Batch => "larder-client, batch of 64",
            Way::Stream => "larder-client, stream",
            Way::Quiet => "larder-client, quiet",
        }
    }
}

/// The timeout of libmemcached.
const PATIENCE: Duration = Duration::from_secs(5);
/// Kinds of calls, by the numbers of all drivers.
const SET: u8 = 0;
const GET: u8 = 1;
const DELETE: u8 = 2;
const MANY: u8 = 3;

/// Carries out the lines on stdin until they end.
///
/// # Errors
/// When stdin or stdout fail, or a line is not understood.
pub fn serve() -> Result<(), Error> {
    let mut lines = io::stdin().lock().lines();
    let mut hear = || -> Result<Option<String>, Error> {
        lines.next().transpose().map_err(|error| Error::System("hearing the lab", error))
    };
    while let Some(line) = hear()? {
        let asked: Asked = super::parse(&line)?;
        match (asked.r#do.as_str(), asked.job) {
            ("hello", _) => say(&Hello {
                hello: env!("CARGO_PKG_VERSION").to_owned(),
                value: sample(),
                clients: Vec::new(),
            })?,
            ("run", Some(job)) => run(&job, &mut hear)?,
            (what, _) => return Err(Error::Peer(format!("{what} is not understood"))),
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Asked {
    r#do: String,
    #[serde(flatten)]
    job: Option<Job>,
}

fn say(what: &impl Serialize) -> Result<(), Error> {
    let failed = |error| Error::System("telling the lab", error);
    let mut line = serde_json::to_string(what).map_err(|error| failed(error.into()))?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(failed)
}

/// Results of the calls so far.
#[derive(Default)]
struct Tally {
    ok: u64,
    queued: u64,
    misses: u64,
    told: u64,
    wrong: u64,
    first_error_at: u64,
    error: String,
}

impl Tally {
    /// Counts the result of call number `at`: it found its key, or did not, or returned an error.
    fn take(&mut self, at: u64, said: Result<bool, larder_client::Error>) {
        match said {
            Ok(true) => self.ok += 1,
            Ok(false) => self.misses += 1,
            Err(error) => self.tell(at, &error),
        }
    }

    fn tell(&mut self, at: u64, error: &larder_client::Error) {
        if self.told == 0 {
            (self.first_error_at, self.error) = (at + 1, error.to_string());
        }
        self.told += 1;
    }
}

/// Keys and values of a job.
struct Data<'j> {
    job: &'j Job,
    space: Keyspace,
    /// The values of all keys, one behind the other, if the job stores them.
    values: Vec<u8>,
    /// The value of call `large_at`.
    large: Vec<u8>,
}

impl<'j> Data<'j> {
    fn new(job: &'j Job) -> Data<'j> {
        let space = Keyspace { first: job.first, ..Keyspace::new(job.keys.max(1), job.value_bytes) };
        let mut values = Vec::new();
        if job.op == SET {
            for at in 0..space.count {
                value::write(&mut values, job.first + at, job.version, job.value_bytes);
            }
        }
        Data { job, space, values, large: vec![0; job.large_bytes] }
    }

    /// The number of a call's key, counted from the job's first.
    fn place(&self, at: u64) -> u32 {
        (at % u64::from(self.space.count)) as u32
    }

    /// Renders the key of call number `at`, and returns its number.
    fn key(&self, at: u64, key: &mut Vec<u8>) -> u32 {
        let id = self.job.first + self.place(at);
        key.clear();
        self.space.write(key, Prefix::Present, id);
        id
    }

    /// The value that call number `at` stores.
    fn value(&self, at: u64) -> &[u8] {
        if at + 1 == self.job.large_at {
            return &self.large;
        }
        let bytes = self.job.value_bytes;
        &self.values[self.place(at) as usize * bytes..][..bytes]
    }

    /// Whether a value that was read belongs to the key.
    fn is_right(&self, got: &[u8], id: u32) -> bool {
        got.len() == self.job.value_bytes && value::verify(got, id).is_ok()
    }
}

/// The client, and the buffers of its calls.
struct Caller<'j> {
    data: Data<'j>,
    client: Client,
    stream: Option<Stream>,
    batch: Batch,
    key: Vec<u8>,
    buffer: Vec<u8>,
    tally: Tally,
}

impl<'j> Caller<'j> {
    fn open(job: &'j Job) -> Result<Caller<'j>, Error> {
        let server = job.address();
        let client = Client::builder()
            .server(server.as_str())
            .timeout(PATIENCE)
            .stall_timeout(PATIENCE)
            .build()
            .map_err(|error| Error::Peer(error.to_string()))?;
        let stream = match job.way {
            Way::OneByOne | Way::Batch => None,
            Way::Stream => Some(client.stream(Window::default())),
            Way::Quiet => Some(client.quiet()),
        };
        let (data, batch) = (Data::new(job), client.batch());
        let (key, buffer) = (Vec::new(), Vec::new());
        Ok(Caller { data, client, stream, batch, key, buffer, tally: Tally::default() })
    }

    /// Makes call number `at`, and with it the rest of `count` if they are sent together.
    fn call(&mut self, at: u64, count: u64) {
        if self.stream.is_some() {
            self.queue(at);
        } else if count > 1 {
            self.together(at, count);
        } else if self.data.job.op == MANY {
            self.many(at);
        } else {
            self.one(at);
        }
    }

    fn one(&mut self, at: u64) {
        let Caller { data, client, key, buffer, tally, .. } = self;
        let id = data.key(at, key);
        let said = match data.job.op {
            GET => {
                buffer.clear();
                let found = client.get_into(key, buffer).map(|meta| meta.is_some());
                tally.wrong += u64::from(matches!(found, Ok(true)) && !data.is_right(buffer, id));
                found
            }
            DELETE => client.delete(key).send(),
            _ => client.set(key, data.value(at)).send().map(|_| true),
        };
        tally.take(at, said);
    }

    /// Reads many keys with one call.
    fn many(&mut self, at: u64) {
        let Caller { data, batch, key, tally, .. } = self;
        let mut asked: Vec<(u32, Ticket<Option<Value>>)> = Vec::with_capacity(MANY_KEYS as usize);
        for at in at..at + u64::from(MANY_KEYS) {
            let id = data.key(at, key);
            asked.push((id, batch.get(key)));
        }
        let done = batch.run();
        for (id, ticket) in &asked {
            match done.value(ticket) {
                Ok(Some((got, _))) => tally.wrong += u64::from(!data.is_right(got, *id)),
                Ok(None) => tally.misses += 1,
                Err(error) => return tally.tell(at, &error),
            }
        }
        tally.ok += 1;
    }

    /// Sends `count` writes together. Each counts as a call.
    fn together(&mut self, from: u64, count: u64) {
        let Caller { data, batch, key, tally, .. } = self;
        let calls = from..from + count;
        if data.job.op == DELETE {
            let mut tickets = Vec::with_capacity(count as usize);
            for at in calls.clone() {
                data.key(at, key);
                tickets.push(batch.delete(key));
            }
            let done = batch.run();
            for (at, ticket) in calls.zip(tickets) {
                tally.take(at, done.take(ticket));
            }
            return;
        }
        let mut tickets = Vec::with_capacity(count as usize);
        for at in calls.clone() {
            data.key(at, key);
            tickets.push(batch.set(key, data.value(at), Ttl::Forever));
        }
        let done = batch.run();
        for (at, ticket) in calls.zip(tickets) {
            tally.take(at, done.take(ticket).map(|_| true));
        }
    }

    /// Passes a write to the stream, which returns that it is queued.
    fn queue(&mut self, at: u64) {
        let Caller { data, stream: Some(stream), key, tally, .. } = self else { return };
        data.key(at, key);
        let said = match data.job.op {
            DELETE => stream.delete(key),
            _ => stream.set(key, data.value(at), Ttl::Forever),
        };
        match said {
            Ok(()) => tally.queued += 1,
            Err(error) => tally.tell(at, &error),
        }
    }

    /// Waits for all queued writes; returns how many of them were refused or are unknown.
    fn barrier(&mut self) -> u64 {
        let Some(stream) = &mut self.stream else { return 0 };
        let report = stream.barrier();
        report.refused + report.unknown
    }

    /// Connects, also for large values. The calls that this takes are not counted.
    fn warm(&mut self) -> Ready {
        let mut warm_error = self.client.get(b"barrier").err().map(|error| error.to_string());
        // A delete would remove a key that a later call expects.
        if !self.data.job.cold && self.data.job.op != DELETE {
            self.call(0, 1);
            let late = self.barrier();
            let warm = std::mem::take(&mut self.tally);
            let told = (warm.told > 0).then_some(warm.error);
            let refused = (late > 0).then(|| format!("{late} writes were refused or are unknown"));
            warm_error = warm_error.or(told).or(refused);
        }
        let (warm_told, warm_error) = (warm_error.is_some().into(), warm_error.unwrap_or_default());
        Ready { warm_told, warm_error, ..Ready::default() }
    }
}

fn run(job: &Job, hear: &mut impl FnMut() -> Result<Option<String>, Error>) -> Result<(), Error> {
    let mut caller = Caller::open(job)?;
    say(&caller.warm())?;
    if hear()?.is_none() {
        return Ok(());
    }
    let mut histogram = std::collections::BTreeMap::<u32, u64>::new();
    let (dials, cpu, began) = (caller.client.counters().dials, processor_time(), Instant::now());
    let time = Duration::from_nanos(job.time_ns);
    let (mut last, mut calls) = (began, 0);
    while calls < job.ops_max && (calls < job.ops_min || last - began < time) {
        let count = if job.way == Way::Batch { job.batch.clamp(1, job.ops_max - calls) } else { 1 };
        caller.call(calls, count);
        calls += count;
        let now = Instant::now();
        let ns = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
        *histogram.entry(bucket_of(ns)).or_default() += 1;
        last = now;
        if job.pause_at > 0 && (calls - count..calls).contains(&(job.pause_at - 1)) {
            let Tally { ok, queued, told, .. } = caller.tally;
            say(&Paused { paused: calls, ok, queued, told })?;
            if hear()?.is_none() {
                return Ok(());
            }
            last = Instant::now();
        }
    }
    let return_ns = began.elapsed().as_nanos() as u64;
    let late = if job.leave { 0 } else { caller.barrier() };
    let (barrier_ns, used) = (began.elapsed().as_nanos() as u64, processor_time().saturating_sub(cpu));
    let connections = caller.client.counters().dials - dials;
    let Tally { ok, queued, misses, told, wrong, first_error_at, error } = std::mem::take(&mut caller.tally);
    say(&Done {
        calls,
        ok,
        queued,
        misses,
        told,
        late,
        wrong,
        first_error_at,
        error,
        connections,
        return_ns,
        barrier_ns,
        cpu_ns: used.as_nanos() as u64,
        histogram: histogram.into_iter().collect(),
        ..Done::default()
    })?;
    if job.leave {
        // The process ends at once: nothing is dropped, and so nothing flushed.
        std::process::exit(0);
    }
    Ok(())
}

/// CPU time of this process so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_go_through_the_keys_and_one_value_may_be_large() {
        let job = Job { first: 7, keys: 3, value_bytes: 30, large_at: 5, large_bytes: 90, ..Job::default() };
        let data = Data::new(&job);
        let mut key = Vec::new();
        let asked: Vec<u32> = (0..7).map(|at| data.key(at, &mut key)).collect();
        assert_eq!(asked, [7, 8, 9, 7, 8, 9, 7]);
        assert_eq!(key, b"key:000000000007");
        for at in [0, 1, 2, 3, 5, 6] {
            assert!(data.is_right(data.value(at), data.key(at, &mut key)), "{at}");
        }
        assert_eq!(data.value(4), [0; 90]);
        assert!(!data.is_right(data.value(0), 8) && !data.is_right(&data.value(0)[..29], 7));
        // A job that only reads keeps no values.
        assert!(Data::new(&Job { op: GET, ..job.clone() }).values.is_empty());
    }

    #[test]
    fn each_call_has_one_outcome_and_the_first_error_is_kept() {
        let mut tally = Tally::default();
        tally.take(0, Ok(true));
        tally.take(1, Ok(false));
        let closed = larder_client::Error::Closed(larder_client::Outcome::NotSent);
        tally.take(2, Err(closed.clone()));
        tally.take(3, Err(larder_client::Error::BadKey));
        assert_eq!((tally.ok, tally.misses, tally.told, tally.first_error_at), (1, 1, 2, 3));
        assert_eq!(tally.error, closed.to_string());
    }
}
