//! The load generator: many connections per thread, each sending its script's windows.
//!
//! A [`Load`] holds open connections; [`Load::run`] drives them for a time and leaves them idle, with
//! every reply taken, so that counts are exact and the server's CPU time can be read between runs.
//! Closed loop: a connection sends its next window when the last one is answered.
//!
//! One thread is one poll loop. A wake-up of a connection is one receive, its check, and one send of
//! bytes that were rendered before; nothing is allocated, and the clock is read once per window.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use larder_eventloop::cpu;
use larder_eventloop::poll::{Events, Interest, Poller};
use larder_eventloop::socket::{Address, Socket};
use rustix::time::{ClockId, clock_gettime};

use crate::connection::{Check, Connection};
use crate::error::Error;
use crate::keys::{Choice, Keyspace};
use crate::tally::Tally;
use crate::wire::Protocol;
use crate::workload::{Script, Verb, Workload};

/// A run ends with an error when no connection hears anything for so long.
pub const STALL: Duration = Duration::from_secs(10);

/// Received at once, unless a value needs more.
const RECEIVE_BYTES: usize = 256 * 1024;
/// Connections that one wait reports at most.
const EVENTS_MAX: usize = 256;
/// What a reply has around its value, at most: key, numbers, line ends.
const AROUND_VALUE_BYTES: usize = 512;

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After this time; windows under way are answered first.
    After(Duration),
    /// When each connection has sent its script once.
    Once,
}

/// Open connections with their scripts.
#[derive(Debug)]
pub struct Load {
    workload: Workload,
    scripts: Arc<Vec<Script>>,
    lanes: Vec<Lane>,
}

/// One thread's share.
#[derive(Debug)]
struct Lane {
    core: Option<usize>,
    poller: Poller,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
}

impl Load {
    /// Connects to `address`, one connection per script, shared out over one thread per entry of
    /// `cores`: `Some` pins it.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::System`].
    ///
    /// # Panics
    /// If there is no thread, or the scripts are not of `workload`.
    pub fn connect(
        address: &Address,
        workload: &Workload,
        scripts: Arc<Vec<Script>>,
        cores: &[Option<usize>],
    ) -> Result<Load, Error> {
        assert!(!cores.is_empty(), "a load needs a thread");
        assert_eq!(scripts.len(), workload.connections, "one script per connection");
        let value_bytes = workload.keyspace.value_bytes + AROUND_VALUE_BYTES;
        let buffer_bytes = RECEIVE_BYTES.max(2 * value_bytes);
        let mut lanes = Vec::with_capacity(cores.len());
        for &core in cores {
            let poller = Poller::new().map_err(|error| Error::System("epoll", error))?;
            lanes.push(Lane { core, poller, connections: Vec::new(), buffer: vec![0; buffer_bytes] });
        }
        for script in 0..scripts.len() {
            let refused = |error| Error::Connect(address.to_string(), error);
            let socket = Socket::connect_timeout(address, Duration::from_secs(5)).map_err(refused)?;
            if matches!(address, Address::Tcp(_)) {
                socket.set_nodelay(true).map_err(refused)?;
            }
            let lane = &mut lanes[script % cores.len()];
            let token = lane.connections.len() as u64;
            lane.poller.add(&socket, token, Interest::Read).map_err(|error| Error::System("epoll", error))?;
            lane.connections.push(Connection::new(socket, script));
        }
        Ok(Load { workload: *workload, scripts, lanes })
    }

    /// How many threads it runs on.
    pub fn threads(&self) -> usize {
        self.lanes.len()
    }

    /// Sends and checks until `stop`.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::NotValid`]: wrong replies that leave the stream readable are
    /// counted in the [`Tally`] instead. After an error the connections are of no more use.
    pub fn run(&mut self, check: Check, stop: Stop) -> Result<Tally, Error> {
        let (workload, scripts) = (&self.workload, &self.scripts[..]);
        let results: Vec<Result<Tally, Error>> = thread::scope(|scope| {
            let runs: Vec<_> = self
                .lanes
                .iter_mut()
                .map(|lane| scope.spawn(move || lane.run(scripts, workload, check, stop)))
                .collect();
            runs.into_iter().map(|run| run.join().expect("a lane does not panic")).collect()
        });
        let mut total = Tally::default();
        for result in results {
            total.merge(result?);
        }
        Ok(total)
    }
}

impl Lane {
    fn run(
        &mut self,
        scripts: &[Script],
        workload: &Workload,
        check: Check,
        stop: Stop,
    ) -> Result<Tally, Error> {
        if let Some(core) = self.core {
            cpu::pin_thread(core).map_err(|error| Error::System("pinning the generator", error))?;
        }
        let system = |error| Error::System("epoll", error);
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut tally = Tally::default();
        let cpu_started = thread_cpu_time();
        let started = Instant::now();
        let mut active = 0;
        for (token, connection) in self.connections.iter_mut().enumerate() {
            let script = &scripts[connection.script];
            if script.windows.is_empty() {
                continue;
            }
            active += 1;
            connection.begin(script, Instant::now());
            if !connection.send(script)? {
                self.poller.modify(&connection.socket, token as u64, Interest::Both).map_err(system)?;
            }
        }
        let mut heard = started;
        while active > 0 {
            self.poller.wait(&mut events, Some(STALL)).map_err(system)?;
            if events.is_empty() {
                // A signal ends a wait too.
                if heard.elapsed() >= STALL {
                    return Err(self.stalled(scripts));
                }
                continue;
            }
            for event in events.iter() {
                let connection = &mut self.connections[event.token as usize];
                let script = &scripts[connection.script];
                if script.windows.is_empty() {
                    return Err(Error::Closed);
                }
                if event.writable && connection.send(script)? {
                    self.poller.modify(&connection.socket, event.token, Interest::Read).map_err(system)?;
                }
                if !(event.readable || event.hangup)
                    || !connection.receive(&mut self.buffer, script, workload, check, &mut tally)?
                {
                    continue;
                }
                heard = Instant::now();
                let wrapped = connection.finish(script, heard, &mut tally);
                let done = match stop {
                    Stop::After(time) => heard - started >= time,
                    Stop::Once => wrapped,
                };
                if done {
                    active -= 1;
                    continue;
                }
                connection.begin(script, heard);
                if !connection.send(script)? {
                    self.poller.modify(&connection.socket, event.token, Interest::Both).map_err(system)?;
                }
            }
        }
        tally.elapsed = started.elapsed();
        tally.generator_cpu = thread_cpu_time().saturating_sub(cpu_started);
        Ok(tally)
    }

    fn stalled(&self, scripts: &[Script]) -> Error {
        let missing = |connection: &Connection| {
            let script = &scripts[connection.script];
            if script.windows.is_empty() { 0 } else { connection.missing_bytes(script) }
        };
        Error::Stalled { missing_bytes: self.connections.iter().map(missing).sum() }
    }
}

/// CPU time of the calling thread so far.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bytes of requests that a fill renders at a time.
const FILL_BYTES: usize = 64 << 20;

/// Stores every key of `keyspace` once, at version 1 and later, over 16 connections in windows of
/// 200, and checks that each write was acknowledged.
///
/// # Errors
/// Those of [`Load::run`], and [`Error::NotValid`] when a write was refused.
pub fn fill(
    address: &Address,
    protocol: Protocol,
    keyspace: Keyspace,
    cores: &[Option<usize>],
) -> Result<Tally, Error> {
    let mut total = Tally::default();
    let request_bytes = keyspace.key_bytes + keyspace.value_bytes + 64;
    let step = (FILL_BYTES / request_bytes).max(1) as u32;
    let mut first = keyspace.first;
    let end = keyspace.first + keyspace.count;
    while first < end {
        let count = step.min(end - first);
        let pipeline = (1 << 20) / request_bytes;
        let workload = Workload {
            protocol,
            verb: Verb::Set,
            keyspace: Keyspace { first, count, ..keyspace },
            choice: Choice::Sequential,
            connections: 16,
            pipeline: pipeline.clamp(1, 200),
            keys_per_request: 1,
        };
        let mut load = Load::connect(address, &workload, workload.scripts(0), cores)?;
        let tally = load.run(Check::Parse, Stop::Once)?;
        if tally.wrong > 0 || tally.stored != u64::from(count) {
            let why = tally.first_wrong.unwrap_or_else(|| format!("{} of {count} stored", tally.stored));
            return Err(Error::NotValid(format!("fill: {why}")));
        }
        let elapsed = total.elapsed + tally.elapsed;
        total.merge(tally);
        total.elapsed = elapsed;
        first += count;
    }
    Ok(total)
}
