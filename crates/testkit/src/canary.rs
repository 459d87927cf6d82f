//! Canaries: one connection to each worker that asks for a key every 10 ms, and one to a server of fixed replies on the
//! same core that asks every millisecond, so that no pause of that core is missed. What both wait for is the machine's,
//! and so is the time in which the worker could have run and another program had its core, which the system counts, and,
//! while the worker slept, the time in which another thread of the server could have run that may have had what it waited
//! for; what else the worker's canary waits for is Larder's. The thread of the canaries goes before others of its core where it may,
//! and what it stands all the same when an answer has come is not counted.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
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
    /// How long, from a question before it until the answer, the worker could have run and did not.
    pub stood_us: u64,
    /// How long it ran meanwhile.
    pub ran_us: u64,
    /// How long it did neither.
    pub slept_us: u64,
    /// How long another thread of the server could have run meanwhile and did not: the one for which it was longest.
    pub others_stood_us: u64,
}

impl Sample {
    /// How long its threads were kept from their cores.
    fn kept_us(&self) -> u64 {
        self.stood_us + self.slept_us.min(self.others_stood_us)
    }
}

#[derive(Debug)]
struct Canary {
    name: String,
    stream: TcpStream,
    /// Who answers.
    thread: Option<Thread>,
    /// The other threads of its server.
    others: Vec<Thread>,
    every: Duration,
    /// When it is to ask next.
    next: Instant,
    asked: Option<Instant>,
    /// What the thread had done when it was asked, and how long each of the others had stood.
    then: (Times, Vec<u64>),
    received: usize,
    samples: Vec<Sample>,
}

/// What a canary has seen.
#[derive(Debug)]
pub struct Song {
    /// Whose it is.
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

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thread {
    schedstat: PathBuf,
}

impl Thread {
    /// The workers of a process, and its other threads.
    fn of(pid: u32) -> io::Result<(Vec<Thread>, Vec<Thread>)> {
        let (mut workers, mut others) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let path = entry?.path();
            let is_worker = std::fs::read_to_string(path.join("comm"))?.starts_with("worker-");
            let threads = if is_worker { &mut workers } else { &mut others };
            threads.push(Thread { schedstat: path.join("schedstat") });
        }
        Ok((workers, others))
    }

    /// The one that asks.
    fn own() -> Thread {
        Thread { schedstat: "/proc/thread-self/schedstat".into() }
    }

    fn times(&self) -> io::Result<Times> {
        let text = std::fs::read_to_string(&self.schedstat)?;
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse::<u64>().unwrap_or(0));
        let mut next = || fields.next().unwrap_or(0);
        Ok(Times { ran_us: next() / 1000, stood_us: next() / 1000, runs: next() })
    }
}

/// Questions by whose answers it is seen who gives them.
const QUESTIONS: usize = 50;

/// Connections to each of two workers of a server that has no others, and to the null server, which is the last.
///
/// # Errors
/// What the system said.
pub fn hatch(pid: u32, server: SocketAddr, null: SocketAddr) -> io::Result<Canaries> {
    let (workers, others) = Thread::of(pid)?;
    let runs = || workers.iter().map(|worker| Ok(worker.times()?.runs)).collect::<io::Result<Vec<u64>>>();
    let canary = |name: &str, address, is_worker: bool| {
        let before = runs()?;
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        // Answered once, it is some worker's: the next connection goes to the other.
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
            all.filter(|one| thread.as_ref().is_some_and(|thread| thread != *one)).cloned().collect();
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
    Ok(Canaries(vec![
        canary("worker 1", server, true)?,
        canary("worker 2", server, true)?,
        canary("null server", null, false)?,
    ]))
}

fn request() -> String {
    format!("get {:<KEY_BYTES$}\r\n", "canary").replace("canary          ", "canary:is-absent")
}

/// All of them.
#[derive(Debug)]
pub struct Canaries(Vec<Canary>);

impl Canaries {
    /// Asks for as long as it `runs`; times are counted from when it `started`.
    ///
    /// # Errors
    /// That a connection broke, or was answered anything else.
    pub fn sing(mut self, started: Instant, runs: impl Fn() -> bool) -> io::Result<Vec<Song>> {
        let request = request();
        // Where it may not, it is late for all alike.
        let _ = setpriority_process(Some(gettid()), -20);
        let own = Thread::own();
        while runs() {
            for canary in &mut self.0 {
                let now = Instant::now();
                if now >= canary.next && canary.asked.is_none() {
                    // What was missed is not made up for.
                    canary.next = now + canary.every;
                    canary.then = canary.thread_times()?;
                    canary.asked = Some(Instant::now());
                    canary.stream.write_all(request.as_bytes())?;
                }
            }
            // Who waits for an answer asks when it is there; the others are not far.
            let next = self.0.iter().filter(|canary| canary.asked.is_none()).map(|canary| canary.next).min();
            let wait = next.map_or(NULL_EVERY, |next| next.saturating_duration_since(Instant::now()));
            let timeout = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
            let mut watched: Vec<PollFd<'_>> =
                self.0.iter().map(|canary| PollFd::new(&canary.stream, PollFlags::IN)).collect();
            let before = own.times()?.stood_us;
            poll(&mut watched, Some(&timeout))?;
            let now = Instant::now();
            let late = Duration::from_micros(own.times()?.stood_us - before);
            let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
            for (canary, _) in self.0.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                canary.hear(now - late, started)?;
            }
        }
        let now = Instant::now();
        Ok(self.0.into_iter().map(|canary| canary.end(now, started)).collect())
    }
}

impl Canary {
    /// All that it has seen; what is not answered yet has taken as long as that.
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

/// The longest times by which `one` waited longer than the machine took, longest first, and when: the longest that the
/// null server's canary waited meanwhile, or the time that the server's threads were kept from their cores, whichever is
/// more.
pub fn excesses(one: &[Sample], null: &[Sample]) -> Vec<Sample> {
    let mut excesses = Vec::with_capacity(one.len());
    let mut from = 0;
    for sample in one {
        let end = sample.asked_us + sample.took_us;
        // Answers of one connection are in order.
        while null.get(from).is_some_and(|null| null.asked_us + null.took_us < sample.asked_us) {
            from += 1;
        }
        let meanwhile = null[from..].iter().take_while(|null| null.asked_us <= end);
        let machine = meanwhile.map(|null| null.took_us).max().unwrap_or(0).max(sample.kept_us());
        excesses.push(Sample { took_us: sample.took_us.saturating_sub(machine), ..*sample });
    }
    excesses.sort_by_key(|excess| std::cmp::Reverse(excess.took_us));
    excesses
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
        let null = [sample(0, 100), sample(10_000, 15_000), sample(30_000, 100), sample(40_000, 100)];
        let one = [sample(0, 150), sample(10_000, 16_000), sample(30_000, 12_000)];
        assert_eq!(excesses(&one, &null)[0].took_us, 11_900);
        assert_eq!(excesses(&one[..2], &null)[0].took_us, 1_000);
        assert!(excesses(&[], &null).is_empty());
        let stood = Sample { stood_us: 8_000, ran_us: 1_000, slept_us: 3_000, ..sample(30_000, 12_000) };
        assert_eq!(excesses(&[stood], &null)[0].took_us, 4_000);
        // It slept for 3 ms; who stood meanwhile may have had what it waited for.
        for (others_stood_us, excess) in [(2_000, 2_000), (20_000, 1_000)] {
            assert_eq!(excesses(&[Sample { others_stood_us, ..stood }], &null)[0].took_us, excess);
        }
    }
}
