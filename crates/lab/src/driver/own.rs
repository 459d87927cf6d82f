//! The driver of Larder's own client: `larder lab drive`, a process that talks as all drivers do.
//!
//! It stores, in the four ways that the client has: one by one, 64 together, as a stream and quietly. What a stream
//! says of a set is that it is queued; its barrier says what became of all of them, and what was refused or is unknown
//! counts as told in the end.

use std::io::{self, BufRead, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use larder_client::{Client, Stream, Ttl, Window};
use serde::{Deserialize, Serialize};

use super::{Done, Hello, Job, Paused, Ready, bucket_of, sample};
use crate::error::Error;
use crate::keys::{Keyspace, Prefix};
use crate::value;

/// Ways to store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Each is waited for.
    #[default]
    OneByOne,
    /// So many are sent together, and acknowledged together.
    Batch,
    /// Sent without waiting, acknowledged later.
    Stream,
    /// The same, and only what is refused is answered.
    Quiet,
}

impl Way {
    /// How it is called.
    pub fn name(self) -> &'static str {
        match self {
            Way::OneByOne => "larder-client",
            Way::Batch => "larder-client, batch of 64",
            Way::Stream => "larder-client, stream",
            Way::Quiet => "larder-client, quiet",
        }
    }
}

/// As long as libmemcached waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// Does what lines on stdin say, until they end.
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

/// What calls said so far.
#[derive(Default)]
struct Tally {
    ok: u64,
    queued: u64,
    told: u64,
    first_error_at: u64,
    error: String,
}

impl Tally {
    fn take<T>(&mut self, at: u64, result: Result<T, larder_client::Error>) {
        match result {
            Ok(_) => self.ok += 1,
            Err(error) => {
                if self.told == 0 {
                    (self.first_error_at, self.error) = (at + 1, error.to_string());
                }
                self.told += 1;
            }
        }
    }
}

fn run(job: &Job, hear: &mut impl FnMut() -> Result<Option<String>, Error>) -> Result<(), Error> {
    let server = format!("{}:{}", Ipv4Addr::from(job.host), job.port);
    let client = Client::builder()
        .server(server.as_str())
        .timeout(PATIENCE)
        .stall_timeout(PATIENCE)
        .build()
        .map_err(|error| Error::Peer(error.to_string()))?;
    let mut stream: Option<Stream> = match job.way {
        Way::OneByOne | Way::Batch => None,
        Way::Stream => Some(client.stream(Window::default())),
        Way::Quiet => Some(client.quiet()),
    };
    // Connects.
    let warm = client.get(b"barrier").err();
    say(&Ready {
        warm_told: warm.is_some().into(),
        warm_error: warm.map(|error| error.to_string()).unwrap_or_default(),
        ..Ready::default()
    })?;
    if hear()?.is_none() {
        return Ok(());
    }
    let space = Keyspace { first: job.first, ..Keyspace::new(job.keys, job.value_bytes) };
    let large = vec![0; job.large_bytes];
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let render = |at: u64, key: &mut Vec<u8>, value: &mut Vec<u8>| {
        let id = job.first + (at % u64::from(job.keys.max(1))) as u32;
        key.clear();
        space.write(key, Prefix::Present, id);
        value.clear();
        match at + 1 == job.large_at {
            true => value.extend_from_slice(&large),
            false => value::write(value, id, job.version, job.value_bytes),
        }
    };
    let mut tally = Tally::default();
    let mut histogram = std::collections::BTreeMap::<u32, u64>::new();
    let began = Instant::now();
    let (mut last, mut calls) = (began, 0);
    while calls < job.ops_max {
        let count = if job.way == Way::Batch { job.batch.clamp(1, job.ops_max - calls) } else { 1 };
        match &mut stream {
            Some(stream) => {
                render(calls, &mut key, &mut value);
                let before = tally.ok;
                tally.take(calls, stream.set(&key, &value, Ttl::Forever));
                tally.queued += tally.ok - before;
                tally.ok = before;
            }
            None if count == 1 => {
                render(calls, &mut key, &mut value);
                tally.take(calls, client.set(&key, &value).send());
            }
            None => {
                let mut batch = client.batch();
                let tickets: Vec<_> = (calls..calls + count)
                    .map(|at| {
                        render(at, &mut key, &mut value);
                        batch.set(&key, &value, Ttl::Forever)
                    })
                    .collect();
                let done = batch.run();
                for (at, ticket) in (calls..).zip(tickets) {
                    tally.take(at, done.take(ticket));
                }
            }
        }
        calls += count;
        let now = Instant::now();
        let ns = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
        *histogram.entry(bucket_of(ns)).or_default() += 1;
        last = now;
        if job.pause_at > 0 && (calls - count..calls).contains(&(job.pause_at - 1)) {
            say(&Paused { paused: calls, ok: tally.ok, queued: tally.queued, told: tally.told })?;
            if hear()?.is_none() {
                return Ok(());
            }
            last = Instant::now();
        }
    }
    let return_ns = began.elapsed().as_nanos() as u64;
    let mut late = 0;
    if let Some(stream) = stream.as_mut().filter(|_| !job.leave) {
        let report = stream.barrier();
        late = report.refused + report.unknown;
    }
    say(&Done {
        calls,
        ok: tally.ok,
        queued: tally.queued,
        told: tally.told,
        late,
        first_error_at: tally.first_error_at,
        error: tally.error,
        return_ns,
        barrier_ns: began.elapsed().as_nanos() as u64,
        histogram: histogram.into_iter().collect(),
        ..Done::default()
    })?;
    if job.leave {
        // Gone without a word: nothing is dropped, and so nothing flushed.
        std::process::exit(0);
    }
    Ok(())
}
