//! Canaries: one connection to each worker that asks for a key every 10 ms, and one to a server of fixed replies on the
//! same core. What both wait for is the machine's; what only the worker's canary waits for is Larder's.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Time between two questions.
const EVERY: Duration = Duration::from_millis(10);
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
}

#[derive(Debug)]
struct Canary {
    name: String,
    stream: TcpStream,
    asked: Option<Instant>,
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

/// Connections to each of two workers, which have none yet, and to the null server, which is the last.
///
/// # Errors
/// What the system said.
pub fn hatch(server: SocketAddr, null: SocketAddr) -> io::Result<Canaries> {
    let canary = |name: &str, address| {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        // Answered once, it is some worker's: the next connection goes to the other.
        stream.write_all(request().as_bytes())?;
        stream.read_exact(&mut [0; ANSWER.len()])?;
        stream.set_nonblocking(true)?;
        Ok::<_, io::Error>(Canary {
            name: name.to_owned(),
            stream,
            asked: None,
            received: 0,
            samples: Vec::new(),
        })
    };
    Ok(Canaries(vec![canary("worker 1", server)?, canary("worker 2", server)?, canary("null server", null)?]))
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
        let mut next = Instant::now();
        while runs() {
            let now = Instant::now();
            if now >= next {
                // What was missed is not made up for.
                next = now + EVERY;
                for canary in self.0.iter_mut().filter(|canary| canary.asked.is_none()) {
                    canary.asked = Some(Instant::now());
                    canary.stream.write_all(request.as_bytes())?;
                }
            }
            let wait = next.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
            let mut watched: Vec<PollFd<'_>> =
                self.0.iter().map(|canary| PollFd::new(&canary.stream, PollFlags::IN)).collect();
            poll(&mut watched, Some(&timeout))?;
            let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
            let now = Instant::now();
            for (canary, _) in self.0.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                canary.hear(now, started)?;
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
            self.samples.push(sample(asked, now, started));
        }
        Song { name: self.name, samples: self.samples }
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
            self.samples.push(sample(asked, now, started));
        }
        Ok(())
    }
}

fn sample(asked: Instant, now: Instant, started: Instant) -> Sample {
    let micros = |time: Duration| time.as_micros() as u64;
    Sample {
        asked_us: micros(asked.saturating_duration_since(started)),
        took_us: micros(now.saturating_duration_since(asked)),
    }
}

/// The longest times by which `one` waited longer than the null server did meanwhile, longest first, and when.
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
        let machine = meanwhile.map(|null| null.took_us).max().unwrap_or(0);
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
        let sample = |asked_us, took_us| Sample { asked_us, took_us };
        let null = [sample(0, 100), sample(10_000, 15_000), sample(30_000, 100), sample(40_000, 100)];
        let one = [sample(0, 150), sample(10_000, 16_000), sample(30_000, 12_000)];
        assert_eq!(excesses(&one, &null)[0].took_us, 11_900);
        assert_eq!(excesses(&one[..2], &null)[0].took_us, 1_000);
        assert!(excesses(&[], &null).is_empty());
    }
}
