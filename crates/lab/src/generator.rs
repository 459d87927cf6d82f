//! The load generator: many connections per thread, each sending its script's windows.
//!
//! A [`Load`] holds open connections; [`Load::run`] drives them for a time and leaves them idle, with
//! every reply taken, so that counts are exact and the server's CPU time can be read between runs.
//! Closed loop: a connection sends its next window when the last one is answered, which shows the most that a server can do. Open
//! loop ([`Load::run_open`]): a clock decides when windows are sent, whatever is answered, which shows latencies at a given load.
//! Times are counted from when a window was due, so that a server's pause counts for all requests that were due meanwhile.
//!
//! One thread is one poll loop. A wake-up of a connection is one receive, its check, and one send of
//! bytes that were rendered before; nothing is allocated, and the clock is read once per window.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use larder_eventloop::cpu::{self, Turns};
use larder_eventloop::poll::{Events, Interest, Poller};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

use crate::connection::{Check, Connection, LastWrites, Pace};
use crate::dialog::AWAKE;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::script::Script;
use crate::tally::Tally;
use crate::workload::{Verb, Workload};

/// A run fails when no connection receives any bytes for this long.
pub const STALL: Duration = Duration::from_secs(10);

/// A wait that takes this much longer than it may shows that this process was stopped, not the server.
const SUSPENDED: Duration = Duration::from_secs(1);

/// The start of the server's silence, as far as this process was running to notice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence(Instant);

impl Silence {
    /// A silence that begins now.
    pub(crate) fn since(now: Instant) -> Silence {
        Silence(now)
    }

    /// Bytes came, or none are awaited: the silence begins anew.
    pub(crate) fn end(&mut self, now: Instant) {
        self.0 = now;
    }

    /// No bytes came in a wait from `asked` to `now`, which should have taken `wait` at most. Returns whether the server has
    /// stalled. If the wait took much longer, this process was not running itself, and bytes may have come meanwhile: the silence
    /// begins anew.
    pub(crate) fn is_stall(&mut self, asked: Instant, wait: Duration, now: Instant) -> bool {
        if now - asked > wait + SUSPENDED {
            self.end(now);
        }
        now - self.0 >= STALL
    }
}

/// How long a server may take to accept a connection, and to take a login.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// Bytes of a receive, unless a value needs more.
const RECEIVE_BYTES: usize = 256 * 1024;
/// Connections that one wait reports at most.
const EVENTS_MAX: usize = 256;
/// Bytes of a reply around its value, at most: key, numbers, line ends.
const AROUND_VALUE_BYTES: usize = 512;
/// Windows that are begun at most before replies are read: a generator that lags must still read them.
const ARRIVALS_MAX: usize = 256;
/// Windows of an open loop that are under way at most, on a thread: as many as a server at its peak leaves unanswered in some
/// seconds. Each takes 32 bytes.
const UNDER_WAY_MAX: u64 = 1 << 22;
/// How long after its time an open loop still sends a window.
const BEHIND_MAX: Duration = Duration::from_secs(3);

/// When windows of an open loop are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// Windows a second, over all threads.
    pub per_s: f64,
    /// At random times, as requests of independent clients come; else evenly.
    pub poisson: bool,
    /// Seed of the random times.
    pub seed: u64,
}

/// Time from one of `per_s` arrivals to the next, even or as in a Poisson process; an hour at most, as a rate may be very low.
pub(crate) fn gap(per_s: f64, even: bool, rng: &mut StdRng) -> Duration {
    let gaps = if even { 1.0 } else { -(1.0 - rng.random::<f64>()).ln() };
    Duration::from_secs_f64((gaps / per_s).min(3600.0))
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After this time; windows under way are answered first.
    After(Duration),
    /// When each connection has sent this many windows.
    Windows(u64),
    /// When each connection has sent its script once.
    Once,
}

/// Open connections with their scripts.
#[derive(Debug)]
pub struct Load {
    workload: Workload,
    lanes: Vec<Lane>,
    /// Runs are counted by the second, too.
    by_second: bool,
}

/// One thread's share.
#[derive(Debug)]
struct Lane {
    core: Option<usize>,
    endpoint: Endpoint,
    poller: Poller,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    /// Windows after which a connection is replaced by a new one; 0 never.
    churn: u64,
    /// Windows that the lane begins at most in a run.
    windows_max: u64,
}

/// The counts of a lane while it runs.
struct Run<'a> {
    workload: &'a Workload,
    check: Check,
    /// Writes get new versions.
    renew: Option<&'a Workload>,
    tally: Tally,
}

fn epoll(error: std::io::Error) -> Error {
    Error::System("epoll", error)
}

impl Load {
    /// Connects to a server, one connection per script, shared out over one thread per entry of
    /// `cores`: `Some` pins it.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::System`].
    ///
    /// # Panics
    /// If there is no thread, or the scripts are not of `workload`.
    pub fn connect(
        to: impl Into<Endpoint>,
        workload: &Workload,
        scripts: Vec<Arc<Script>>,
        cores: &[Option<usize>],
    ) -> Result<Load, Error> {
        assert!(!cores.is_empty(), "a load needs a thread");
        assert_eq!(scripts.len(), workload.connections, "one script per connection");
        let endpoint = to.into();
        let value_bytes = workload.value_bytes_max() + AROUND_VALUE_BYTES;
        let buffer_bytes = RECEIVE_BYTES.max(2 * value_bytes);
        let mut lanes = Vec::with_capacity(cores.len());
        for &core in cores {
            lanes.push(Lane {
                core,
                endpoint: endpoint.clone(),
                poller: Poller::new().map_err(epoll)?,
                connections: Vec::new(),
                buffer: vec![0; buffer_bytes],
                churn: 0,
                windows_max: u64::MAX,
            });
        }
        for (index, script) in scripts.into_iter().enumerate() {
            let refused = |error| Error::Connect(endpoint.to_string(), error);
            let wire = endpoint.connect(CONNECT).map_err(refused)?;
            let lane = &mut lanes[index % cores.len()];
            lane.poller.add(&wire, lane.connections.len() as u64, Interest::Read).map_err(epoll)?;
            lane.connections.push(Connection::new(wire, script));
        }
        Ok(Load { workload: workload.clone(), lanes, by_second: false })
    }

    /// Replaces every connection by a new one after `windows` windows (0: never). Their time then includes the time to connect.
    /// Closed loop only.
    pub fn churn(&mut self, windows: u64) {
        self.lanes.iter_mut().for_each(|lane| lane.churn = windows);
    }

    /// Ends runs when this many windows were begun over all connections, if their time is not over before. Each thread has a
    /// share of them, from which its free connections take the next.
    pub fn limit(&mut self, windows: u64) {
        let asking = |lane: &Lane| lane.asking().count() as u128;
        let all = self.lanes.iter().map(asking).sum::<u128>().max(1);
        let mut before = 0;
        for lane in &mut self.lanes {
            let upto = before + asking(&*lane);
            let share = |connections: u128| u128::from(windows) * connections / all;
            lane.windows_max = (share(upto) - share(before)) as u64;
            before = upto;
        }
    }

    /// At most `most` of the keys that were written last, with the versions that they may hold. Versions are known where a load
    /// changes keys by `set` alone; other loads know their keys themselves.
    pub fn last_writes(&self, most: usize) -> LastWrites {
        let mut keys = LastWrites::new();
        if ![Verb::Set, Verb::Cas].iter().any(|&verb| self.workload.mix.has(verb)) {
            return keys;
        }
        let all = || self.lanes.iter().flat_map(|lane| &lane.connections).filter(|one| !one.is_idle());
        let each = most.div_ceil(all().count().max(1));
        for connection in all() {
            for (id, _) in connection.writes(&self.workload).take(each) {
                if keys.len() < most {
                    keys.entry(id).or_default();
                }
            }
        }
        let changes = |verb: &Verb| !verb.is_read() && !matches!(verb, Verb::Set | Verb::Incr);
        if self.workload.mix.parts().any(|(verb, _)| changes(&verb)) {
            return keys;
        }
        for connection in all() {
            let mut seen = HashSet::new();
            for (id, version) in connection.writes(&self.workload) {
                if let Some(versions) = keys.get_mut(&id)
                    && seen.insert(id)
                {
                    versions.extend(version);
                }
            }
        }
        keys
    }

    /// Compares reads with these last writes.
    pub fn expect(&mut self, writes: LastWrites) {
        let writes = Arc::new(writes);
        for connection in self.lanes.iter_mut().flat_map(|lane| &mut lane.connections) {
            connection.expected = Some(Arc::clone(&writes));
        }
    }

    /// Counts runs by the second, too.
    pub fn keep_seconds(&mut self) {
        self.by_second = true;
    }

    /// The number of its threads.
    pub fn threads(&self) -> usize {
        self.lanes.len()
    }

    /// Each thread's core, if it has one, and how many connections it has.
    pub fn placement(&self) -> Vec<(Option<usize>, usize)> {
        self.lanes.iter().map(|lane| (lane.core, lane.connections.len())).collect()
    }

    /// Sends and checks until `stop`, in a closed loop.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::NotValid`]: wrong replies that leave the stream readable are counted in the [`Tally`] instead.
    /// After an error the connections cannot be used.
    ///
    /// # Panics
    /// If lengths are to be checked that cannot be known.
    pub fn run(&mut self, check: Check, stop: Stop) -> Result<Tally, Error> {
        assert!(check > Check::Length || self.workload.has_known_replies(), "replies of unknown length");
        self.drive(check, |lane, run, _| lane.closed(run, stop))
    }

    /// Sends windows when they are due, for `time`, and takes all replies.
    ///
    /// # Errors
    /// As [`Load::run`].
    ///
    /// # Panics
    /// If replies are to be counted by length.
    pub fn run_open(&mut self, check: Check, arrivals: Arrivals, time: Duration) -> Result<Tally, Error> {
        assert!(check > Check::Length, "an open loop reads its replies");
        // A lane whose connections have nothing to send has no share.
        let lanes = self.lanes.iter().filter(|lane| lane.asking().next().is_some()).count().max(1) as f64;
        let arrivals = Arrivals { per_s: arrivals.per_s / lanes, ..arrivals };
        self.drive(check, |lane, run, index| {
            let seed = arrivals.seed.wrapping_add(index as u64);
            lane.open(run, Arrivals { seed, ..arrivals }, time)
        })
    }

    fn drive(
        &mut self,
        check: Check,
        work: impl Fn(&mut Lane, &mut Run<'_>, usize) -> Result<Duration, Error> + Sync,
    ) -> Result<Tally, Error> {
        let (workload, work) = (&self.workload, &work);
        // Scripts are shared with other loads until they are written to.
        let swaps = workload.mix.has(Verb::Cas);
        let writes = (workload.mix.has(Verb::Set) || swaps) && !workload.zeros;
        let renew = (writes && check == Check::Verify || swaps).then_some(workload);
        let origin = self.by_second.then(Instant::now);
        let results: Vec<Result<Tally, Error>> = thread::scope(|scope| {
            let start = |(index, lane): (usize, &mut Lane)| {
                let lane: &mut Lane = lane;
                prefer(lane.core)?;
                lane.connections.iter_mut().for_each(Connection::start);
                let mut run = Run { workload, check, renew, tally: Tally::since(origin) };
                let turns = cpu::own_turns().unwrap_or_default();
                let (started, cpu_started) = (Instant::now(), thread_cpu_time());
                let idle = work(lane, &mut run, index)?;
                run.tally.elapsed = started.elapsed();
                run.tally.end();
                run.tally.waited = waited_since(turns, run.tally.elapsed);
                run.tally.generator_cpu = thread_cpu_time().saturating_sub(cpu_started).saturating_sub(idle);
                Ok(run.tally)
            };
            let runs: Vec<_> =
                self.lanes.iter_mut().enumerate().map(|lane| scope.spawn(move || start(lane))).collect();
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
    /// Its connections that have something to send, by their places.
    fn asking(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.connections.len()).filter(|&token| !self.connections[token].is_idle())
    }

    /// Sends one window at a time on each connection, the next when the last is answered.
    fn closed(&mut self, run: &mut Run<'_>, stop: Stop) -> Result<Duration, Error> {
        let started = Instant::now();
        let mut events = Events::with_capacity(EVENTS_MAX);
        let (mut active, mut left) = (0, self.windows_max);
        for token in 0..self.connections.len() {
            if !self.connections[token].is_idle() && left > 0 {
                active += 1;
                left -= 1;
                self.connections[token].begin(Instant::now(), run.renew);
                self.send(token)?;
            }
        }
        let mut silence = Silence::since(started);
        while active > 0 {
            let asked = Instant::now();
            self.poller.wait(&mut events, Some(STALL)).map_err(epoll)?;
            if events.is_empty() {
                // A signal ends a wait too.
                if silence.is_stall(asked, STALL, Instant::now()) {
                    return Err(self.stalled());
                }
                continue;
            }
            run.tally.turn();
            for event in events.iter() {
                let token = event.token as usize;
                if self.connections[token].is_idle() {
                    return Err(Error::Closed);
                }
                if event.writable {
                    self.send(token)?;
                }
                if !(event.readable || event.hangup) || self.receive(token, run, Pace::Closed)? == 0 {
                    continue;
                }
                let heard = Instant::now();
                silence.end(heard);
                let connection = &mut self.connections[token];
                let windows = connection.script.windows.len() as u64;
                let done = match stop {
                    Stop::After(time) => heard - started >= time,
                    Stop::Windows(count) => connection.answered - connection.answered_before >= count,
                    Stop::Once => connection.answered.is_multiple_of(windows),
                };
                if done || left == 0 {
                    active -= 1;
                    continue;
                }
                left -= 1;
                if self.churn > 0 && connection.answered.is_multiple_of(self.churn) {
                    self.reconnect(token, run)?;
                }
                self.connections[token].begin(heard, run.renew);
                self.send(token)?;
            }
        }
        Ok(Duration::ZERO)
    }

    /// Sends windows when they are due. Returns the time that was spent awake only to be in time.
    fn open(&mut self, run: &mut Run<'_>, arrivals: Arrivals, time: Duration) -> Result<Duration, Error> {
        let mut rng = StdRng::seed_from_u64(arrivals.seed);
        let mut gap = || gap(arrivals.per_s, !arrivals.poisson, &mut rng);
        let asking: Vec<usize> = self.asking().collect();
        if asking.is_empty() {
            return Ok(Duration::ZERO);
        }
        let started = Instant::now();
        let end = started + time;
        let mut due = started + gap();
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut touched: Vec<usize> = Vec::with_capacity(self.connections.len());
        let (mut turn, mut under_way, mut idle) = (0, 0_u64, Duration::ZERO);
        let (mut now, mut silence, mut left) = (started, Silence::since(started), self.windows_max);
        loop {
            let mut begun = 0;
            while due <= now && due < end && left > 0 && begun < ARRIVALS_MAX {
                turn = (turn + 1) % asking.len();
                let token = asking[turn];
                let connection = &mut self.connections[token];
                let under_way_here = connection.begun - connection.answered;
                let rewritten =
                    run.renew.is_some() && under_way_here >= connection.script.windows.len() as u64;
                if rewritten || under_way >= UNDER_WAY_MAX {
                    return Err(Error::NotValid("far more is asked than the server answers".to_owned()));
                }
                if !touched.contains(&token) {
                    touched.push(token);
                }
                connection.begin(due, run.renew);
                under_way += 1;
                begun += 1;
                left -= 1;
                due += gap();
            }
            let comes = due < end && left > 0;
            if comes && now >= end + BEHIND_MAX {
                let seconds = (now - due).as_secs_f64();
                let why = format!("far more is asked than the generator sends: it is {seconds:.0} s late");
                return Err(Error::NotValid(why));
            }
            for token in touched.drain(..) {
                self.send(token)?;
            }
            if under_way == 0 && !comes {
                return Ok(idle);
            }
            let next = if comes { due.saturating_duration_since(Instant::now()) } else { STALL };
            let awake = next <= AWAKE;
            let wait = if awake { Duration::ZERO } else { (next - AWAKE).min(STALL) };
            let asked = now;
            // CPU time, like all work of the thread: the time that other programs had the core is not idleness.
            let cpu = if awake { thread_cpu_time() } else { Duration::ZERO };
            self.poller.wait(&mut events, Some(wait)).map_err(epoll)?;
            run.tally.turn();
            let (mut worked, mut received, mut answered) = (begun > 0, false, 0);
            for event in events.iter() {
                let token = event.token as usize;
                if event.writable {
                    self.send(token)?;
                }
                if event.readable || event.hangup {
                    answered += self.receive(token, run, Pace::Open)? as u64;
                    (worked, received) = (true, true);
                }
            }
            now = Instant::now();
            if awake && !worked {
                idle += thread_cpu_time().saturating_sub(cpu);
            }
            under_way -= answered;
            // Only received bytes show that the server works; sent bytes do not.
            if received || under_way == 0 {
                silence.end(now);
            } else if silence.is_stall(asked, wait, now) {
                return Err(self.stalled());
            }
        }
    }

    fn receive(&mut self, token: usize, run: &mut Run<'_>, pace: Pace) -> Result<usize, Error> {
        let Run { workload, check, tally, .. } = run;
        let connection = &mut self.connections[token];
        let mut answered = connection.receive(&mut self.buffer, workload, *check, pace, tally)?;
        while connection.wire.has_more() {
            answered += connection.receive(&mut self.buffer, workload, *check, pace, tally)?;
        }
        if connection.wire.wants_write() {
            self.send(token)?;
        }
        Ok(answered)
    }

    /// Sends as much as the system takes, and waits for room if that was not all.
    fn send(&mut self, token: usize) -> Result<(), Error> {
        let connection = &mut self.connections[token];
        let blocked = !connection.send(Instant::now())?;
        if blocked != connection.blocked {
            connection.blocked = blocked;
            let interest = if blocked { Interest::Both } else { Interest::Read };
            self.poller.modify(&connection.wire, token as u64, interest).map_err(epoll)?;
        }
        Ok(())
    }

    /// Replaces a connection by a new one, which sends its first window once it is connected.
    fn reconnect(&mut self, token: usize, run: &mut Run<'_>) -> Result<(), Error> {
        let refused = |error| Error::Connect(self.endpoint.to_string(), error);
        let wire = self.endpoint.begin().map_err(refused)?;
        self.poller.add(&wire, token as u64, Interest::Both).map_err(epoll)?;
        let connection = &mut self.connections[token];
        connection.replace(wire);
        connection.blocked = true;
        run.tally.connects += 1;
        Ok(())
    }

    fn stalled(&self) -> Error {
        Error::Stalled { missing_bytes: self.connections.iter().map(Connection::missing_bytes).sum() }
    }
}

/// Pins the calling thread, and gives it priority over others, where that is allowed: other work of the machine must not look
/// like the server's.
pub(crate) fn prefer(core: Option<usize>) -> Result<(), Error> {
    let _ = cpu::raise_priority(None);
    match core {
        Some(core) => cpu::pin_thread(core).map_err(|error| Error::System("pinning the generator", error)),
        None => Ok(()),
    }
}

/// The share of `elapsed` in which the calling thread was ready to run and did not; 0 if the kernel does not report it.
pub(crate) fn waited_since(earlier: Turns, elapsed: Duration) -> f64 {
    let wait = cpu::own_turns().unwrap_or_default().wait.saturating_sub(earlier.wait);
    // The wait is read a little later than the time, and cannot be more than all of it.
    (wait.as_secs_f64() / elapsed.as_secs_f64().max(1e-9)).min(1.0)
}

/// CPU time of the calling thread so far.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_own_stop_is_not_the_servers() {
        let started = Instant::now();
        let at = |ms: u64| started + Duration::from_millis(ms);
        let (short, stall) = (Duration::from_millis(100), STALL.as_millis() as u64);
        // A server that is silent, wait after wait.
        let mut silence = Silence::since(started);
        for ms in (0..stall - 100).step_by(100) {
            assert!(!silence.is_stall(at(ms), short, at(ms + 100)), "{ms}");
        }
        assert!(silence.is_stall(at(stall - 100), short, at(stall)));
        // The same in one wait, which is a little late.
        assert!(Silence::since(started).is_stall(at(0), STALL, at(stall + 500)));
        // A wait of 100 ms, or of the longest time, that took a minute: this process was stopped.
        for wait in [short, STALL] {
            let mut silence = Silence::since(started);
            assert!(!silence.is_stall(at(0), wait, at(60_000)));
            assert!(!silence.is_stall(at(60_000), short, at(60_100)));
            assert!(silence.is_stall(at(60_000), STALL, at(60_000 + stall)), "from then on it is the server");
        }
    }
}
