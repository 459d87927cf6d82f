//! Canaries: one connection to each of a server's two workers, which asks for a key every 10 ms, and one to a server of fixed
//! replies on the same core, which asks every millisecond. A wait of a worker's canary is Larder's only as far as the machine did
//! not take it. The machine took as much as the null server's canary waited meanwhile, or the sum of these times, whichever is
//! more:
//!
//! - the time in which the worker could have run and another program had its core, which the system counts;
//! - while the worker slept, the time in which another thread of the server could have run that may have had what it waited for;
//! - the time for which the core itself stood still (`canary/pulse.rs`), which the system counts as the worker's.
//!
//! The rest is Larder's. The thread of the canaries runs before others of its core if that is permitted, and the time that it
//! stands still although an answer has come is not counted.

mod pulse;

use pulse::{Pause, Pulse};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two questions to a worker.
const EVERY: Duration = Duration::from_millis(10);
/// Time between two questions to the null server.
const NULL_EVERY: Duration = Duration::from_millis(1);
/// Bytes of the key, which is never there.
pub const KEY_BYTES: usize = 16;
const ANSWER: &[u8] = b"END\r\n";

/// One answered question, in microseconds since the first.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When it was asked.
    pub asked_us: u64,
    /// How long the answer took.
    pub took_us: u64,
    /// How long the thread was ready to run and had no core, from just before the question until the answer.
    pub stood_us: u64,
    /// How long it ran in that time.
    pub ran_us: u64,
    /// How long it slept in that time.
    pub slept_us: u64,
    /// How long another thread of the server was ready to run and had no core in that time: the longest of
    /// these times.
    pub others_stood_us: u64,
}

#[derive(Debug)]
struct Canary {
    name: String,
    stream: TcpStream,
    /// The thread that answers.
    thread: Option<Thread>,
    /// The other threads of its server.
    others: Vec<Thread>,
    every: Duration,
    /// When it is to ask next.
    next: Instant,
    asked: Option<Instant>,
    /// The thread's times when the question was asked, and how long each of the others had been without a
    /// core by then.
    then: (Times, Vec<u64>),
    received: usize,
    samples: Vec<Sample>,
}

/// What all canaries have seen.
#[derive(Debug)]
pub struct Heard {
    /// The workers' canaries.
    pub workers: Vec<Song>,
    /// That of the null server.
    pub null: Song,
    /// When the workers' core stood.
    pauses: Vec<Pause>,
}

/// What a canary has seen.
#[derive(Debug)]
pub struct Song {
    /// The canary's name.
    pub name: String,
    /// All its samples, in order.
    pub samples: Vec<Sample>,
}

/// What the system counts of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// How long it ran, microseconds.
    ran_us: u64,
    /// How long it was ready to run and did not.
    stood_us: u64,
    /// How often it ran.
    runs: u64,
}

/// A thread, with what the system counts for it.
#[derive(Clone, Debug)]
struct Thread {
    schedstat: Arc<File>,
}

impl Thread {
    /// The workers of a process, and its other threads.
    fn of(pid: u32) -> io::Result<(Vec<Thread>, Vec<Thread>)> {
        let (mut workers, mut others) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let path = entry?.path();
            let is_worker = std::fs::read_to_string(path.join("comm"))?.starts_with("worker-");
            let threads = if is_worker { &mut workers } else { &mut others };
            threads.push(Thread { schedstat: Arc::new(File::open(path.join("schedstat"))?) });
        }
        Ok((workers, others))
    }

    /// The calling thread.
    fn own() -> io::Result<Thread> {
        Ok(Thread { schedstat: Arc::new(File::open("/proc/thread-self/schedstat")?) })
    }

    fn is(&self, other: &Thread) -> bool {
        Arc::ptr_eq(&self.schedstat, &other.schedstat)
    }

    fn times(&self) -> io::Result<Times> {
        let mut bytes = [0; 128];
        let count = self.schedstat.read_at(&mut bytes, 0)?;
        let text = std::str::from_utf8(&bytes[..count]).unwrap_or_default();
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse::<u64>().unwrap_or(0));
        let mut next = || fields.next().unwrap_or(0);
        Ok(Times { ran_us: next() / 1000, stood_us: next() / 1000, runs: next() })
    }
}

/// Gives this thread priority over others of its core. If that is not permitted, it is late for all servers
/// alike.
fn hurry() {
    let _ = setpriority_process(Some(gettid()), -20);
}

/// Questions whose answers show which thread gives them: the one that ran.
const QUESTIONS: usize = 50;

/// Connects to each of two workers of a server that has no other connections, and to the null server, which is the last.
///
/// # Errors
/// The system's error.
pub fn hatch(pid: u32, server: SocketAddr, null: SocketAddr) -> io::Result<Canaries> {
    let (workers, others) = Thread::of(pid)?;
    let runs = || workers.iter().map(|worker| Ok(worker.times()?.runs)).collect::<io::Result<Vec<u64>>>();
    let canary = |name: &str, address, is_worker: bool| {
        let before = runs()?;
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        // Once a connection is answered, it belongs to a worker: the next connection goes to the other one.
        for _ in 0..QUESTIONS {
            stream.write_all(request().as_bytes())?;
            stream.read_exact(&mut [0; ANSWER.len()])?;
        }
        stream.set_nonblocking(true)?;
        let ran = runs()?.into_iter().zip(before).map(|(now, before)| now - before);
        let answers = workers.iter().zip(ran).max_by_key(|(_, ran)| *ran).map(|(worker, _)| worker.clone());
        let thread = answers.filter(|_| is_worker);
        let all = workers.iter().chain(&others);
        let others =
            all.filter(|one| thread.as_ref().is_some_and(|thread| !thread.is(one))).cloned().collect();
        Ok::<_, io::Error>(Canary {
            name: name.to_owned(),
            stream,
            thread,
            others,
            every: if is_worker { EVERY } else { NULL_EVERY },
            next: Instant::now(),
            asked: None,
            then: (Times::default(), Vec::new()),
            received: 0,
            samples: Vec::new(),
        })
    };
    let canaries = vec![
        canary("worker 1", server, true)?,
        canary("worker 2", server, true)?,
        canary("null server", null, false)?,
    ];
    let workers = canaries.iter().filter_map(|canary| canary.thread.clone()).collect();
    Ok(Canaries { canaries, pulse: Pulse::of(pid, workers)? })
}

fn request() -> String {
    format!("get {:<KEY_BYTES$}\r\n", "canary").replace("canary          ", "canary:is-absent")
}

/// All canaries.
#[derive(Debug)]
pub struct Canaries {
    /// The null server's is the last.
    canaries: Vec<Canary>,
    /// None: the workers have more than one core.
    pulse: Option<Pulse>,
}

impl Canaries {
    /// Asks for as long as it `runs`; times are counted from when it `started`.
    ///
    /// # Errors
    /// That a connection broke, or was answered anything else.
    pub fn sing(mut self, started: Instant, runs: impl Fn() -> bool + Sync) -> io::Result<Heard> {
        let pulse = self.pulse.take();
        let (songs, pauses) = thread::scope(|scope| {
            let runs = &runs;
            let beating =
                scope.spawn(move || pulse.map_or(Ok(Vec::new()), |pulse| pulse.beat(started, runs)));
            let songs = self.ask(started, runs);
            // A thread that ended by itself has returned why.
            (songs, beating.join().unwrap_or_else(|_| Err(io::Error::other("the pulse's thread ended"))))
        });
        let mut workers = songs?;
        let null = workers.pop().ok_or(io::ErrorKind::NotFound)?;
        Ok(Heard { workers, null, pauses: pauses? })
    }

    fn ask(mut self, started: Instant, runs: impl Fn() -> bool) -> io::Result<Vec<Song>> {
        let request = request();
        hurry();
        let own = Thread::own()?;
        while runs() {
            for canary in &mut self.canaries {
                let now = Instant::now();
                if now >= canary.next && canary.asked.is_none() {
                    // Missed samples are not made up for.
                    canary.next = now + canary.every;
                    canary.then = canary.thread_times()?;
                    canary.asked = Some(Instant::now());
                    canary.stream.write_all(request.as_bytes())?;
                }
            }
            // The wait ends when a canary without an open question is due, or another one has its answer.
            let next =
                self.canaries.iter().filter(|canary| canary.asked.is_none()).map(|canary| canary.next).min();
            let wait = next.map_or(NULL_EVERY, |next| next.saturating_duration_since(Instant::now()));
            let timeout = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
            let mut watched: Vec<PollFd<'_>> =
                self.canaries.iter().map(|canary| PollFd::new(&canary.stream, PollFlags::IN)).collect();
            let before = own.times()?.stood_us;
            poll(&mut watched, Some(&timeout))?;
            let now = Instant::now();
            let late = Duration::from_micros(own.times()?.stood_us - before);
            let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
            for (canary, _) in self.canaries.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                canary.hear(now - late, started)?;
            }
        }
        let now = Instant::now();
        Ok(self.canaries.into_iter().map(|canary| canary.end(now, started)).collect())
    }
}

impl Canary {
    /// Ends the canary; returns its samples. An unanswered question counts with the time that it has taken so
    /// far.
    fn end(mut self, now: Instant, started: Instant) -> Song {
        if let Some(asked) = self.asked.take() {
            // The process may be gone.
            let times = self.thread_times().unwrap_or_else(|_| self.then.clone());
            self.samples.push(sample(asked, now, started, &self.then, &times));
        }
        Song { name: self.name, samples: self.samples }
    }

    fn thread_times(&self) -> io::Result<(Times, Vec<u64>)> {
        let own = self.thread.as_ref().map_or(Ok(Times::default()), Thread::times)?;
        let stood = self.others.iter().map(|thread| Ok(thread.times()?.stood_us));
        Ok((own, stood.collect::<io::Result<_>>()?))
    }

    fn hear(&mut self, now: Instant, started: Instant) -> io::Result<()> {
        let mut bytes = [0; 64];
        let count = self.stream.read(&mut bytes)?;
        let expected = ANSWER.get(self.received..self.received + count);
        if count == 0 || expected != Some(&bytes[..count]) {
            let told = String::from_utf8_lossy(&bytes[..count]).into_owned();
            return Err(io::Error::other(format!("{} heard {told:?}", self.name)));
        }
        self.received += count;
        if self.received == ANSWER.len()
            && let Some(asked) = self.asked.take()
        {
            self.received = 0;
            let times = self.thread_times()?;
            self.samples.push(sample(asked, now, started, &self.then, &times));
        }
        Ok(())
    }
}

fn sample(
    asked: Instant,
    now: Instant,
    started: Instant,
    (then, others_then): &(Times, Vec<u64>),
    (times, others): &(Times, Vec<u64>),
) -> Sample {
    let micros = |time: Duration| time.as_micros() as u64;
    let took_us = micros(now.saturating_duration_since(asked));
    let (stood_us, ran_us) = (times.stood_us - then.stood_us, times.ran_us - then.ran_us);
    Sample {
        asked_us: micros(asked.saturating_duration_since(started)),
        took_us,
        stood_us,
        ran_us,
        slept_us: took_us.saturating_sub(ran_us + stood_us),
        others_stood_us: others.iter().zip(others_then).map(|(now, then)| now - then).max().unwrap_or(0),
    }
}

/// A time by which a worker's canary waited longer than the machine took.
#[derive(Clone, Copy, Debug)]
pub struct Excess {
    /// How much longer.
    pub us: u64,
    /// How long its core stood meanwhile.
    pub paused_us: u64,
    /// The wait itself.
    pub sample: Sample,
}

impl Heard {
    /// For how long the workers' core stood still, in microseconds: the longest time, how often for more than `more_than_us`, and
    /// in all.
    pub fn paused_us(&self, more_than_us: u64) -> [u64; 3] {
        let took = || self.pauses.iter().map(|pause| pause.took_us);
        let long = took().filter(|took| *took > more_than_us).count() as u64;
        [took().max().unwrap_or(0), long, took().sum()]
    }

    /// A worker's canary's waits beyond what the machine took, longest first. The machine took the longest
    /// wait of the null server's canary meanwhile, or the time in which the server's threads and their core
    /// stood still, whichever is more.
    pub fn excesses(&self, worker: usize) -> Vec<Excess> {
        let samples = self.workers.get(worker).map_or(&[][..], |song| &song.samples);
        let (mut nulls, mut pauses) = (&self.null.samples[..], &self.pauses[..]);
        let mut excesses = Vec::with_capacity(samples.len());
        for sample in samples {
            let end = sample.asked_us + sample.took_us;
            // Answers of one connection are in order.
            nulls = &nulls[nulls.partition_point(|null| null.asked_us + null.took_us < sample.asked_us)..];
            pauses =
                &pauses[pauses.partition_point(|pause| pause.from_us + pause.took_us < sample.asked_us)..];
            let null = nulls.iter().take_while(|null| null.asked_us <= end).map(|null| null.took_us).max();
            let meanwhile = pauses.iter().take_while(|pause| pause.from_us <= end);
            let (mut of_run, mut of_sleep) = (0, 0);
            for pause in meanwhile {
                let within = (pause.from_us + pause.took_us).min(end) - pause.from_us.max(sample.asked_us);
                let of_worker = within.min(pause.ran_us.get(worker).copied().unwrap_or(0));
                of_run += of_worker;
                // While another worker ran, this one was ready and had no core: `stood_us` has that time.
                of_sleep += within.saturating_sub(pause.ran_us.iter().sum());
            }
            let slept = sample.slept_us.min(sample.others_stood_us.max(of_sleep));
            let machine = null.unwrap_or(0).max(sample.stood_us + slept + of_run.min(sample.ran_us));
            let us = sample.took_us.saturating_sub(machine);
            excesses.push(Excess { us, paused_us: of_run + of_sleep, sample: *sample });
        }
        excesses.sort_by_key(|excess| std::cmp::Reverse(excess.us));
        excesses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_of_the_length_the_null_server_counts_in() {
        assert_eq!(request().len(), "get \r\n".len() + KEY_BYTES);
    }

    #[test]
    fn what_the_machine_took_is_not_larders() {
        let sample = |asked_us, took_us| Sample {
            asked_us,
            took_us,
            stood_us: 0,
            ran_us: took_us,
            slept_us: 0,
            others_stood_us: 0,
        };
        let null = vec![sample(0, 100), sample(10_000, 15_000), sample(30_000, 100), sample(40_000, 100)];
        let song = |samples| Song { name: String::new(), samples };
        let mut heard = Heard { workers: Vec::new(), null: song(null), pauses: Vec::new() };
        let mut excess = |samples: &[Sample], pauses: &[Pause]| {
            heard.workers = vec![song(samples.to_vec())];
            heard.pauses = pauses.to_vec();
            heard.excesses(0).first().map_or(0, |excess| excess.us)
        };
        let one = [sample(0, 150), sample(10_000, 16_000), sample(30_000, 12_000)];
        assert_eq!(excess(&one, &[]), 11_900);
        assert_eq!(excess(&one[..2], &[]), 1_000);
        assert_eq!(excess(&[], &[]), 0);
        let stood = Sample { stood_us: 8_000, ran_us: 1_000, slept_us: 3_000, ..sample(30_000, 12_000) };
        assert_eq!(excess(&[stood], &[]), 4_000);
        // The worker slept for 3 ms. Another thread, which stood still meanwhile, may have had what it waited
        // for.
        for (others_stood_us, expected) in [(2_000, 2_000), (20_000, 1_000)] {
            assert_eq!(excess(&[Sample { others_stood_us, ..stood }], &[]), expected);
        }
        // The core stood still while the worker ran, while it slept, and while another worker ran, which the
        // system counts.
        let pause = |from_us, took_us, ran_us: [u64; 2]| Pause { from_us, took_us, ran_us: ran_us.to_vec() };
        assert_eq!(excess(&one[2..], &[pause(31_000, 4_000, [4_000, 0])]), 8_000);
        assert_eq!(
            excess(&one[2..], &[pause(31_000, 4_000, [4_000, 0]), pause(40_000, 4_000, [4_500, 0])]),
            6_000
        );
        assert_eq!(
            excess(&one[2..], &[pause(26_000, 4_000, [4_000, 0]), pause(50_000, 4_000, [4_000, 0])]),
            11_900
        );
        assert_eq!(excess(&[stood], &[pause(31_000, 2_000, [0, 0])]), 2_000);
        assert_eq!(excess(&[stood], &[pause(31_000, 4_000, [0, 4_500])]), 4_000);
        assert_eq!(excess(&[stood], &[pause(31_000, 4_000, [3_000, 1_000])]), 3_000);
    }
}
