//! Cache-aside clients: they get a key, and after a miss make the value and set it.
//!
//! All connections share one table of versions. A key has one writer at a time: a client that misses while another writes the
//! same key does not write it. So the versions of a key follow each other, and a hit must have a version between the last one
//! acknowledged before its request and the last one sent before its reply. Any other value is stale, torn or foreign.
//!
//! Open loop: each connection has its own Poisson schedule; the time of a batch of gets runs from its intended send. Sets follow
//! at once, and their time runs from their own send. Closed loop, for filling: the next batch follows the last.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use larder_protocol::client::{Answer, Asked, Protocol};
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::draw::Draw;
use super::plan::Plan;
use super::seen::{Seen, record};
use super::shelf::Shelf;
use crate::dialog::{Agent, Step, Taken, answer};
use crate::error::Error;
use crate::generator::gap;
use crate::keys::{Keyspace, Prefix};
use crate::value;

/// When a client sends its batches.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// The next batch follows the last.
    Closed,
    /// This many batches a second, on average.
    Open(f64),
}

/// One client.
#[derive(Debug)]
pub struct Aside {
    plan: Arc<Plan>,
    shelf: Arc<Shelf>,
    protocol: Protocol,
    draws: Vec<Draw>,
    pace: Pace,
    batch: usize,
    rng: StdRng,
    started: Instant,
    intended: Instant,
    idle: bool,
    /// Batches that the client begins at most from now on, if they are limited.
    left: Option<u64>,
    doing: Doing,
    /// Keys of the batch under way, each with the version acknowledged before its request, or with the one that is written.
    keys: Vec<(u32, u32)>,
    answered: usize,
    missed: Vec<u32>,
    sent: Instant,
    key: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    Getting,
    Setting,
}

impl Aside {
    /// Client number `number`. `started` is time 0 of the plan.
    pub fn new(
        plan: &Arc<Plan>,
        shelf: &Arc<Shelf>,
        protocol: Protocol,
        (pace, batch): (Pace, usize),
        started: Instant,
        (number, clients): (usize, usize),
        seed: u64,
    ) -> Aside {
        let draws = (0..plan.phases.len()).map(|phase| Draw::new(plan, phase, (number, clients), seed));
        let mut client = Aside {
            draws: draws.collect(),
            plan: plan.clone(),
            shelf: shelf.clone(),
            protocol,
            pace,
            batch,
            rng: StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number as u64)),
            started,
            intended: started,
            idle: true,
            left: None,
            doing: Doing::Nothing,
            keys: Vec::new(),
            answered: 0,
            missed: Vec::new(),
            sent: started,
            key: Vec::new(),
        };
        let gap = client.gap();
        client.intended += gap;
        client
    }

    /// Ends after this many further batches.
    pub fn limit(&mut self, batches: u64) {
        self.left = Some(batches);
    }

    /// Batches of its limit that the client has not begun.
    pub fn left(&self) -> u64 {
        self.left.unwrap_or(0)
    }

    /// Time to the next batch: exponential, so that arrivals are a Poisson process.
    fn gap(&mut self) -> Duration {
        match self.pace {
            Pace::Closed => Duration::ZERO,
            Pace::Open(per_s) => gap(per_s, false, &mut self.rng),
        }
    }

    fn write_key(&mut self, key: u32) {
        let key_bytes = self.plan.phase_of(key).key_bytes(key);
        self.key.clear();
        let space = Keyspace { first: 0, count: u32::MAX, key_bytes, value_bytes: 0 };
        space.write(&mut self.key, Prefix::Present, key);
    }

    fn get(&mut self, now: Instant, out: &mut Vec<u8>) {
        let phase = self.plan.phase_at(self.intended.max(self.started) - self.started);
        for _ in 0..self.batch {
            let key = self.draws[phase].next_key();
            self.write_key(key);
            self.protocol.get(out, [&self.key[..]]);
            self.keys.push((key, self.shelf.acknowledged(key)));
        }
        self.doing = Doing::Getting;
        self.sent = now;
    }

    fn set(&mut self, now: Instant, out: &mut Vec<u8>) {
        for key in std::mem::take(&mut self.missed) {
            let Some(version) = self.shelf.begin(key) else { continue };
            self.write_key(key);
            let phase = self.plan.phase_of(key);
            let (bytes, ttl_s) = (phase.value_bytes(key), phase.ttl_s(key));
            self.protocol.begin_set(out, &self.key, bytes, ttl_s);
            value::write(out, key, version.into(), bytes);
            self.protocol.end_set(out, ttl_s);
            self.keys.push((key, version));
        }
        self.doing = Doing::Setting;
        self.sent = now;
    }

    fn hit(&self, key: u32, acknowledged: u32, have: &[u8], seen: &mut Seen) {
        let bytes = self.plan.phase_of(key).value_bytes(key);
        let named = have.len() >= value::NAMED_BYTES_MIN;
        let found = value::verify(have, key);
        let newest = u64::from(self.shelf.sent(key));
        let fresh = |version: u64| !named || (u64::from(acknowledged)..=newest).contains(&version);
        if have.len() != bytes || !found.is_ok_and(fresh) {
            seen.wrong += 1;
            seen.first.get_or_insert_with(|| {
                format!(
                    "key {key}: {} bytes in place of {bytes}, {found:?}, versions {acknowledged} to {newest}",
                    have.len()
                )
            });
        }
    }
}

impl Agent for Aside {
    type Tally = Seen;

    fn next(&mut self, now: Instant, ending: bool, seen: &mut Seen, out: &mut Vec<u8>) -> Step {
        self.keys.clear();
        self.answered = 0;
        if !self.missed.is_empty() {
            self.set(now, out);
            if !self.keys.is_empty() {
                return Step::Request;
            }
        }
        if self.doing != Doing::Nothing {
            // A batch has ended: the next one is due by the schedule, however long this one took.
            self.doing = Doing::Nothing;
            let gap = self.gap();
            self.intended += gap;
            self.idle = false;
        }
        if ending || self.left == Some(0) {
            return Step::Done;
        }
        if matches!(self.pace, Pace::Closed) {
            self.intended = now;
        } else if self.intended > now {
            self.idle = true;
            return Step::Until(self.intended);
        }
        if self.idle {
            // Only the generator itself delayed this send.
            let due = self.intended.saturating_duration_since(self.started);
            record(&mut seen.lag, due, now - self.intended);
        }
        self.left = self.left.map(|left| left - 1);
        self.get(now, out);
        Step::Request
    }

    fn reply(&mut self, bytes: &[u8], now: Instant, seen: &mut Seen) -> Result<Taken, Error> {
        let asked = if self.doing == Doing::Setting { Asked::Set } else { Asked::Get };
        let Some((answer, used)) = answer(self.protocol, asked, bytes)? else { return Ok(Taken::Nothing) };
        let (key, version) = self.keys[self.answered];
        let at = now.saturating_duration_since(self.started);
        let width = self.plan.bin;
        match answer {
            Answer::Value(have) => {
                let bin = seen.bin(at, width);
                (bin.gets, bin.hits) = (bin.gets + 1, bin.hits + 1);
                self.hit(key, version, have, seen);
            }
            Answer::Miss => {
                seen.bin(at, width).gets += 1;
                self.missed.push(key);
            }
            Answer::Stored => {
                let phase = self.plan.phase_of(key);
                let bytes = (phase.key_bytes(key) + phase.value_bytes(key)) as u64;
                let bin = seen.bin(at, width);
                (bin.sets, bin.set_bytes) = (bin.sets + 1, bin.set_bytes + bytes);
                self.shelf.written_bytes.fetch_add(bytes, Relaxed);
                self.shelf.end(key, version);
            }
            Answer::Refused(line) if asked == Asked::Set => {
                // The old value may still be there: the last version sent is the newest that may be read.
                self.shelf.end(key, version - 1);
                seen.refused += 1;
                seen.first.get_or_insert_with(|| line.escape_ascii().to_string());
            }
            Answer::Refused(line) => {
                return Err(Error::Reply(format!("a get was refused: {}", line.escape_ascii())));
            }
            Answer::Deleted => return Err(Error::Reply("a reply to a delete".to_owned())),
        }
        self.answered += 1;
        if self.answered < self.keys.len() {
            return Ok(Taken::More(used));
        }
        match asked {
            Asked::Set => record(&mut seen.set, at, now - self.sent),
            Asked::Get | Asked::Delete => {
                record(&mut seen.get, at, now.saturating_duration_since(self.intended));
            }
        }
        Ok(Taken::All(used))
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::plan;
    use super::*;

    #[test]
    fn a_stale_a_torn_and_a_foreign_value_are_wrong() {
        let plan = Arc::new(plan());
        let shelf = Shelf::new(&plan);
        let client = |seed| {
            Aside::new(&plan, &shelf, Protocol::Classic, (Pace::Closed, 1), Instant::now(), (0, 1), seed)
        };
        let client = client(1);
        for version in 1..=3 {
            assert_eq!(shelf.begin(7), Some(version));
            shelf.end(7, version);
        }
        let wrong = |key: u32, version, bytes| {
            let (mut seen, mut have) = (Seen::default(), Vec::new());
            value::write(&mut have, key, version, bytes);
            client.hit(7, 3, &have, &mut seen);
            seen.wrong
        };
        assert_eq!(wrong(7, 3, 100), 0);
        assert_eq!(wrong(7, 2, 100), 1, "stale");
        assert_eq!(wrong(7, 4, 100), 1, "never written");
        assert_eq!(wrong(8, 3, 100), 1, "another key's");
        assert_eq!(wrong(7, 3, 99), 1, "cut");
        shelf.begin(7);
        assert_eq!(wrong(7, 4, 100), 0, "being written");
    }

    #[test]
    fn misses_are_set_before_the_next_get() {
        let plan = Arc::new(plan());
        let shelf = Shelf::new(&plan);
        let now = Instant::now();
        let mut client = Aside::new(&plan, &shelf, Protocol::Classic, (Pace::Closed, 2), now, (0, 1), 1);
        let (mut seen, mut out) = (Seen::default(), Vec::new());
        assert_eq!(client.next(now, false, &mut seen, &mut out), Step::Request);
        assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 2);
        assert_eq!(client.reply(b"END\r\n", now, &mut seen).unwrap(), Taken::More(5));
        assert_eq!(client.reply(b"END\r\n", now, &mut seen).unwrap(), Taken::All(5));
        out.clear();
        assert_eq!(client.next(now, true, &mut seen, &mut out), Step::Request, "also when ending");
        assert!(out.starts_with(b"set key:"));
        let sets = client.keys.len();
        for _ in 0..sets {
            client.reply(b"STORED\r\n", now, &mut seen).unwrap();
        }
        assert_eq!(client.next(now, true, &mut seen, &mut out), Step::Done);
        assert_eq!(seen.totals(), (2, 0, sets as u64));
        assert_eq!(shelf.written_bytes.load(Relaxed), 116 * sets as u64);
    }
}
