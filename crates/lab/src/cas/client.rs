//! A client of the experiment: subtracts one from a counter, exactly once, again and again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::method::{Answer, INITIAL, Method, Stamp, key_name};
use crate::control::Family;
use crate::dialog::{Agent, Step, Taken};
use crate::error::Error;
use crate::tally::Latencies;

/// What a client does after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Gives this operation up and begins another.
    Never,
    /// Reads again at once.
    AtOnce,
    /// Waits a random time first, up to a bound that doubles with each refusal.
    Backoff,
}

/// The bound of the first [`Retry::Backoff`].
const BACKOFF_MIN: Duration = Duration::from_micros(50);
/// The bound of any [`Retry::Backoff`].
const BACKOFF_MAX: Duration = Duration::from_millis(5);

impl Retry {
    /// Its name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Retry::Never => "never",
            Retry::AtOnce => "at-once",
            Retry::Backoff => "backoff",
        }
    }
}

/// The task that all clients of a visit share.
#[derive(Clone, Debug)]
pub struct Task {
    /// The method that changes the counters.
    pub method: Method,
    /// The protocol.
    pub family: Family,
    /// The number of counters.
    pub keys: u32,
    /// Time between read and write.
    pub think: Duration,
    /// What follows a refusal.
    pub retry: Retry,
    /// Names of the counters.
    pub names: Arc<Vec<String>>,
}

impl Task {
    /// A task on `keys` counters.
    pub fn new(method: Method, family: Family, keys: u32, think: Duration, retry: Retry) -> Task {
        let names = Arc::new((0..keys).map(key_name).collect());
        Task { method, family, keys, think, retry, names }
    }
}

/// The counts of clients.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Reads that were answered with a value.
    pub reads: u64,
    /// Writes, or server-side decrements, that were answered.
    pub attempts: u64,
    /// Attempts that were done.
    pub stored: u64,
    /// Attempts that were refused because another client was faster.
    pub refused: u64,
    /// Operations given up after a refusal.
    pub given_up: u64,
    /// Blind operations after which the counter was what the client had written.
    pub believed: u64,
    /// Replies that cannot be right: a value that no client wrote, another key's, a key that is gone, a token that did not
    /// change.
    pub wrong: u64,
    /// The first wrong reply, in words.
    pub first_wrong: Option<String>,
    /// Time of an operation, from its first request to its success.
    pub latency: Latencies,
    /// Operations by the number of refusals before they succeeded.
    pub retries: Retries,
}

/// A histogram of small counts.
#[derive(Clone, Debug)]
pub struct Retries(pub Histogram<u64>);

impl Default for Retries {
    fn default() -> Retries {
        Retries(Histogram::new(3).expect("3 digits are fine"))
    }
}

impl Counts {
    /// Adds what another thread counted.
    pub fn merge(&mut self, other: Counts) {
        self.reads += other.reads;
        self.attempts += other.attempts;
        self.stored += other.stored;
        self.refused += other.refused;
        self.given_up += other.given_up;
        self.believed += other.believed;
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
        self.latency.merge(&other.latency);
        self.retries.0.add(&other.retries.0).expect("a histogram that grows takes any other");
    }

    #[cold]
    fn mistake(&mut self, words: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first_wrong.get_or_insert_with(words);
    }
}

/// The next step of a client, or the reply that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Chooses a counter.
    Begin,
    /// Reads it, or has the server change it.
    Read,
    Reading,
    /// Writes the computed value.
    Write,
    Writing,
    /// Blind: reads the counter again.
    Look,
    Looking,
}

/// A client.
#[derive(Debug)]
pub struct Client {
    task: Task,
    id: u32,
    rng: StdRng,
    stage: Stage,
    /// Time to wait before the stage.
    pause: Duration,
    key: u32,
    read: Stamp,
    token: u64,
    seq: u64,
    refusals: u32,
    began: Instant,
    /// The counter that its last success changed, and the token that it used, which must not come again.
    spent: Option<(u32, u64)>,
    /// The last result of each counter, where the server counts: the next is less.
    last: Vec<u64>,
    /// How many of its operations were done, by counter.
    pub done: Vec<u32>,
}

impl Client {
    /// Client number `id`, from 1 on.
    pub fn new(task: Task, id: u32, seed: u64) -> Client {
        Client {
            last: vec![INITIAL; if task.method.is_server_side() { task.keys as usize } else { 0 }],
            done: vec![0; task.keys as usize],
            task,
            id,
            rng: StdRng::seed_from_u64(seed ^ u64::from(id) << 32),
            stage: Stage::Begin,
            pause: Duration::ZERO,
            key: 0,
            read: Stamp { counter: 0, key: 0, client: 0, seq: 0 },
            token: 0,
            seq: 0,
            refusals: 0,
            began: Instant::now(),
            spent: None,
        }
    }

    fn name(&self) -> &str {
        &self.task.names[self.key as usize]
    }

    fn value_was_read(&mut self, value: &[u8], token: u64, counts: &mut Counts) {
        counts.reads += 1;
        let foreign = Stamp { counter: 1, key: self.key, client: 0, seq: 0 };
        let stamp = Stamp::parse(value).filter(|stamp| stamp.key == self.key);
        if stamp.is_none() {
            counts.mistake(|| format!("{} has the value \"{}\"", self.name(), value.escape_ascii()));
        }
        if self.task.method != Method::Watch && self.spent == Some((self.key, token)) {
            counts.mistake(|| format!("{} has token {token} again after a write with it", self.name()));
        }
        // A counter that no client wrote counts as wrong. The client continues with it, so that the run ends as usual.
        self.read = stamp.filter(|stamp| stamp.counter > 0).unwrap_or(foreign);
        self.token = token;
    }

    fn succeeded(&mut self, now: Instant, counts: &mut Counts) {
        counts.stored += 1;
        counts.latency.record(now - self.began);
        counts.retries.0.saturating_record(self.refusals.into());
        self.done[self.key as usize] += 1;
        self.spent = Some((self.key, self.token));
        self.stage = Stage::Begin;
    }

    fn was_refused(&mut self, counts: &mut Counts) {
        counts.refused += 1;
        self.refusals += 1;
        match self.task.retry {
            Retry::Never => {
                counts.given_up += 1;
                self.stage = Stage::Begin;
            }
            Retry::AtOnce => self.stage = Stage::Read,
            Retry::Backoff => {
                let bound = BACKOFF_MIN.saturating_mul(1 << (self.refusals - 1).min(16)).min(BACKOFF_MAX);
                self.pause = Duration::from_nanos(self.rng.random_range(0..=bound.as_nanos() as u64));
                self.stage = Stage::Read;
            }
        }
    }

    fn is_gone(&mut self, counts: &mut Counts) {
        counts.mistake(|| format!("{} is gone", self.name()));
        self.stage = Stage::Begin;
    }
}

impl Agent for Client {
    type Tally = Counts;

    fn next(&mut self, now: Instant, ending: bool, _counts: &mut Counts, out: &mut Vec<u8>) -> Step {
        if ending {
            self.stage = Stage::Begin;
            return Step::Done;
        }
        if !self.pause.is_zero() {
            return Step::Until(now + std::mem::take(&mut self.pause));
        }
        let Task { method, family, .. } = self.task;
        if self.stage == Stage::Begin {
            self.key = self.rng.random_range(0..self.task.keys);
            self.refusals = 0;
            self.began = now;
            self.stage = Stage::Read;
        }
        match self.stage {
            Stage::Read if method.is_server_side() => {
                method.ask_decrement(family, out, self.name());
                self.stage = Stage::Writing;
            }
            Stage::Read => {
                method.ask_read(family, out, self.name());
                self.stage = Stage::Reading;
            }
            Stage::Write => {
                self.seq += 1;
                let stamp =
                    Stamp { counter: self.read.counter - 1, key: self.key, client: self.id, seq: self.seq };
                self.read = stamp;
                method.ask_write(family, out, self.name(), &stamp.text(), self.token);
                self.stage = Stage::Writing;
            }
            Stage::Look => {
                method.ask_read(family, out, self.name());
                self.stage = Stage::Looking;
            }
            Stage::Begin | Stage::Reading | Stage::Writing | Stage::Looking => {
                unreachable!("an agent is asked when its reply has come")
            }
        }
        Step::Request
    }

    fn reply(&mut self, bytes: &[u8], now: Instant, counts: &mut Counts) -> Result<Taken, Error> {
        let Task { method, family, .. } = self.task;
        let answer = match self.stage {
            Stage::Reading | Stage::Looking => method.read(family, bytes, self.name())?,
            _ if method.is_server_side() => method.decremented(family, bytes)?,
            _ => method.written(family, bytes)?,
        };
        let Some((answer, used)) = answer else { return Ok(Taken::Nothing) };
        match (self.stage, answer) {
            (Stage::Reading, Answer::Value(value, token)) => {
                self.value_was_read(value, token, counts);
                self.pause = self.task.think;
                self.stage = Stage::Write;
            }
            (Stage::Looking, Answer::Value(value, _)) => {
                // As in the original article: compares the number alone, whichever client wrote it.
                let mine = self.read.counter;
                self.value_was_read(value, 0, counts);
                counts.believed += u64::from(self.read.counter == mine);
                self.stage = Stage::Begin;
            }
            (Stage::Writing, Answer::Stored) if method == Method::Blind => {
                counts.attempts += 1;
                self.succeeded(now, counts);
                self.spent = None;
                self.stage = Stage::Look;
            }
            (Stage::Writing, Answer::Counter(counter)) => {
                counts.attempts += 1;
                let last = std::mem::replace(&mut self.last[self.key as usize], counter);
                if counter >= last {
                    counts.mistake(|| format!("{} is {counter} after it was {last}", self.name()));
                }
                self.succeeded(now, counts);
            }
            (Stage::Writing, Answer::Stored) => {
                counts.attempts += 1;
                self.succeeded(now, counts);
            }
            (Stage::Writing, Answer::Refused) => {
                counts.attempts += 1;
                self.was_refused(counts);
            }
            (_, Answer::Missing) => self.is_gone(counts),
            _ => return Err(Error::malformed(bytes)),
        }
        Ok(Taken::All(used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(method: Method, retry: Retry) -> Client {
        Client::new(Task::new(method, Family::Memcached, 1, Duration::ZERO, retry), 1, 1)
    }

    fn ask(client: &mut Client, counts: &mut Counts) -> String {
        let mut out = Vec::new();
        assert_eq!(client.next(Instant::now(), false, counts, &mut out), Step::Request);
        String::from_utf8(out).unwrap()
    }

    fn tell(client: &mut Client, counts: &mut Counts, reply: &str) {
        let taken = client.reply(reply.as_bytes(), Instant::now(), counts).unwrap();
        assert_eq!(taken, Taken::All(reply.len()));
    }

    fn value(counter: u64, token: u64) -> String {
        let stamp = Stamp { counter, key: 0, client: 9, seq: 1 };
        format!("VALUE {} 0 50 {token}\r\n{}\r\nEND\r\n", key_name(0), stamp.text())
    }

    #[test]
    fn an_operation_is_done_when_its_write_is_and_counts_its_refusals() {
        let (mut client, mut counts) = (client(Method::GetsCas, Retry::AtOnce), Counts::default());
        assert!(ask(&mut client, &mut counts).starts_with("gets "));
        tell(&mut client, &mut counts, &value(10, 5));
        assert!(ask(&mut client, &mut counts).contains(" 5\r\n000000000009 "));
        tell(&mut client, &mut counts, "EXISTS\r\n");
        ask(&mut client, &mut counts);
        tell(&mut client, &mut counts, &value(9, 6));
        assert!(ask(&mut client, &mut counts).contains(" 6\r\n000000000008 "));
        tell(&mut client, &mut counts, "STORED\r\n");
        assert_eq!((counts.attempts, counts.stored, counts.refused), (2, 1, 1));
        assert_eq!((counts.retries.0.max(), counts.latency.len(), client.done[0]), (1, 1, 1));
        assert_eq!(counts.wrong, 0);
    }

    #[test]
    fn without_retries_a_refused_operation_is_given_up() {
        let (mut client, mut counts) = (client(Method::GetsCas, Retry::Never), Counts::default());
        ask(&mut client, &mut counts);
        tell(&mut client, &mut counts, &value(10, 5));
        ask(&mut client, &mut counts);
        tell(&mut client, &mut counts, "EXISTS\r\n");
        assert_eq!((counts.given_up, counts.stored, counts.latency.len()), (1, 0, 0));
    }

    #[test]
    fn backoff_waits_before_it_reads_again() {
        let (mut client, mut counts) = (client(Method::GetsCas, Retry::Backoff), Counts::default());
        ask(&mut client, &mut counts);
        tell(&mut client, &mut counts, &value(10, 5));
        ask(&mut client, &mut counts);
        tell(&mut client, &mut counts, "EXISTS\r\n");
        let now = Instant::now();
        match client.next(now, false, &mut counts, &mut Vec::new()) {
            Step::Until(at) => assert!(at > now && at <= now + BACKOFF_MAX),
            // A wait of zero may be drawn, though hardly.
            next => assert_eq!(next, Step::Request),
        }
        assert!(ask(&mut client, &mut counts).starts_with("gets "));
    }

    #[test]
    fn a_foreign_value_a_lost_key_and_a_repeated_token_are_wrong() {
        let (mut client, mut counts) = (client(Method::GetsCas, Retry::AtOnce), Counts::default());
        ask(&mut client, &mut counts);
        tell(&mut client, &mut counts, &value(10, 5));
        ask(&mut client, &mut counts);
        tell(&mut client, &mut counts, "STORED\r\n");
        ask(&mut client, &mut counts);
        tell(&mut client, &mut counts, &value(9, 5));
        assert_eq!(counts.wrong, 1);
        ask(&mut client, &mut counts);
        tell(&mut client, &mut counts, "NOT_FOUND\r\n");
        assert_eq!(counts.wrong, 2);
        ask(&mut client, &mut counts);
        let reply = format!("VALUE {} 0 2 7\r\nno\r\nEND\r\n", key_name(0));
        tell(&mut client, &mut counts, &reply);
        assert_eq!(counts.wrong, 3);
        assert!(counts.first_wrong.unwrap().contains("token 5 again"));
    }

    #[test]
    fn a_counter_that_does_not_go_down_is_wrong() {
        let (mut client, mut counts) = (client(Method::Decr, Retry::AtOnce), Counts::default());
        for (counter, wrong) in [(INITIAL - 3, 0), (INITIAL - 4, 0), (INITIAL - 4, 1), (INITIAL, 2)] {
            assert!(ask(&mut client, &mut counts).starts_with("decr "));
            tell(&mut client, &mut counts, &format!("{counter}\r\n"));
            assert_eq!(counts.wrong, wrong, "{:?}", counts.first_wrong);
        }
        assert_eq!(counts.stored, 4);
    }

    #[test]
    fn the_blind_method_believes_what_it_sees() {
        let (mut client, mut counts) = (client(Method::Blind, Retry::AtOnce), Counts::default());
        for (seen, believed) in [(9, 1), (7, 1)] {
            ask(&mut client, &mut counts);
            tell(&mut client, &mut counts, &value(10, 0));
            assert!(ask(&mut client, &mut counts).starts_with("set "));
            tell(&mut client, &mut counts, "STORED\r\n");
            ask(&mut client, &mut counts);
            tell(&mut client, &mut counts, &value(seen, 0));
            assert_eq!(counts.believed, believed);
        }
        assert_eq!((counts.attempts, counts.stored), (2, 2));
    }
}
