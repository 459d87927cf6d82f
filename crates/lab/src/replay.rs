//! Clients that repeat the requests of a trace.
//!
//! ```text
//! trace ─► feed ─┬─► queue ─► client ─► requests, replies, and perhaps writes of what was missed
//!                └─► queue ─► client
//! ```
//!
//! All requests for a key use one connection, in the order of the trace. A client reads on in the trace when its own queue is
//! empty, and fills the queues of the others. Queues are bounded, so that a trace of any length takes as much memory as a short
//! one. Written values name their key. A client knows the last write of keys that it wrote recently, and compares reads with it.

mod back;
mod feed;

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_protocol::client::{Answer, Asked, Protocol};

use crate::dialog::{Agent, Dialog, Step, Taken, answer};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::sizes::Sizes;
use crate::tally::Tally;
use crate::trace::Kind;
use crate::value::{self, NAMED_BYTES_MIN};
use back::Recent;
pub use back::Wrote;
pub use feed::{Changes, Source};
use feed::{Feed, Given, Queues, Waiting};

/// If a client's requests wait behind those of a slower client, it tries again after this.
const BLOCKED: Duration = Duration::from_micros(50);
/// Keys whose last write a client knows.
const KNOWN: usize = 1 << 14;
/// Most requests that are due and sent together.
pub const DUE_TOGETHER: usize = 256;

/// How a source is replayed.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The protocol.
    pub protocol: Protocol,
    /// Clients, each with a connection.
    pub connections: usize,
    /// Requests that a client sends together, if they are due or have no time.
    pub pipeline: usize,
    /// Requests in all, at most.
    pub requests: u64,
    /// Time in all, at most.
    pub time: Duration,
    /// Reads that miss are followed by a write.
    pub fills: bool,
    /// Values are verified.
    pub verify: bool,
    /// Counts are kept by the second, too.
    pub by_second: bool,
    /// The server may use the clients' cores.
    pub shares_cores: bool,
    /// Sizes of values for which the source gives none.
    pub sizes: Sizes,
}

/// The results.
#[derive(Debug)]
pub struct Replayed {
    /// The counts.
    pub tally: Tally,
    /// Requests that were changed before they were sent.
    pub told: Changes,
    /// The last writes, for [`Replay::read_back`].
    pub wrote: Vec<Wrote>,
}

impl Replay {
    /// Replays all requests on a server.
    ///
    /// # Errors
    /// A connection fails, a reply is malformed, or the source cannot be read.
    pub fn run<S: Source>(
        &self,
        to: &Endpoint,
        source: S,
        cores: &[Option<usize>],
    ) -> Result<Replayed, Error> {
        let queues = Queues::new(source, (self.protocol, &self.sizes), self.connections, self.requests);
        let feed = Arc::new(Feed::new(queues));
        // Connecting does not count: the clock starts when the clients do.
        let clients = (0..self.connections).map(|number| Client::new(&feed, number, self)).collect();
        let mut dialog = Dialog::connect(to, clients, cores)?;
        if self.shares_cores {
            dialog.sleep();
        }
        let started = Instant::now();
        dialog.agents_mut().for_each(|client| client.started = started);
        let outcome = dialog.run(self.time)?;
        let mut tally = Tally::default();
        for mut part in outcome.tallies {
            part.end();
            tally.merge(part);
        }
        tally.elapsed = outcome.elapsed;
        tally.waited = outcome.waited;
        // It is known of the busiest thread, and the others were no busier.
        tally.generator_cpu = outcome.elapsed.mul_f64(outcome.busy * cores.len() as f64);
        let told = feed.lock().end()?;
        let wrote = dialog.agents_mut().flat_map(|client| client.recent.take()).collect();
        Ok(Replayed { tally, told, wrote })
    }
}

/// The contents of a key that a client wrote, read or deleted recently.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    hash: u64,
    /// 0: it has no value.
    version: u64,
    bytes: usize,
}

/// The index of a key's contents.
fn place(hash: u64) -> usize {
    (hash >> 32) as usize % KNOWN
}

/// One client.
struct Client<S> {
    feed: Arc<Feed<S>>,
    number: usize,
    protocol: Protocol,
    pipeline: usize,
    fills: bool,
    verify: bool,
    by_second: bool,
    started: Instant,
    /// The requests under way, and how many of them are answered.
    asked: Vec<Waiting>,
    answered: usize,
    /// The client is writing missed keys.
    filling: bool,
    missed: Vec<Waiting>,
    sent: Instant,
    /// The client had nothing to do but wait for the next due request.
    idle: bool,
    version: u64,
    known: Vec<Known>,
    recent: Recent,
}

impl<S: Source> Client<S> {
    fn new(feed: &Arc<Feed<S>>, number: usize, replay: &Replay) -> Client<S> {
        let now = Instant::now();
        Client {
            feed: feed.clone(),
            number,
            protocol: replay.protocol,
            pipeline: replay.pipeline,
            fills: replay.fills,
            verify: replay.verify,
            by_second: replay.by_second,
            started: now,
            asked: Vec::new(),
            answered: 0,
            filling: false,
            missed: Vec::new(),
            sent: now,
            idle: false,
            version: (number as u64) << 40,
            known: if replay.verify { vec![Known::default(); KNOWN] } else { Vec::new() },
            recent: Recent::default(),
        }
    }

    fn ask(&mut self, now: Instant, out: &mut Vec<u8>) -> Step {
        (self.answered, self.sent) = (0, now);
        for waiting in &mut self.asked {
            let key = &waiting.op.key[..];
            match waiting.op.kind {
                Kind::Read => self.protocol.get(out, [key]),
                Kind::Delete => self.protocol.delete(out, key),
                Kind::Write => {
                    self.version += 1;
                    waiting.version = self.version;
                    self.protocol.begin_set(out, key, waiting.bytes, waiting.op.ttl_s);
                    value::write(out, waiting.hash as u32, self.version, waiting.bytes);
                    self.protocol.end_set(out, waiting.op.ttl_s);
                }
            }
        }
        Step::Request
    }

    fn note(&mut self, hash: u64, version: u64, bytes: usize) {
        if let Some(known) = self.known.get_mut(place(hash)) {
            *known = Known { hash, version, bytes };
        }
    }

    /// Compares a value that was read with the key's last known write.
    fn hit(&mut self, at: usize, have: &[u8], tally: &mut Tally) {
        if !self.verify {
            return;
        }
        let Waiting { hash, ref op, .. } = self.asked[at];
        let key = || op.key.escape_ascii();
        let version = match value::verify(have, hash as u32) {
            Ok(version) => version,
            Err(flaw) => {
                return tally
                    .mistake(|| format!("{}: {} bytes that are not its value: {flaw:?}", key(), have.len()));
            }
        };
        let Some(last) = self.known.get(place(hash)).filter(|last| last.hash == hash) else { return };
        if last.version == 0 {
            tally.mistake(|| format!("{} has come back with version {version}", key()));
        } else if last.bytes != have.len() || have.len() >= NAMED_BYTES_MIN && version != last.version {
            tally.mistake(|| {
                format!(
                    "{} has {} bytes of version {version} after {} of version {} were written: stale",
                    key(),
                    have.len(),
                    last.bytes,
                    last.version
                )
            });
        }
    }

    /// Takes the answer to one request: counts it, and checks it.
    fn take(&mut self, at: usize, answer: Answer<'_>, tally: &mut Tally) {
        let Waiting { hash, bytes, version, ref op, .. } = self.asked[at];
        let kind = op.kind;
        match (answer, kind) {
            (Answer::Value(have), _) => {
                tally.hits += 1;
                self.hit(at, have, tally);
            }
            (Answer::Miss, Kind::Delete) => {
                tally.absent += 1;
                self.note(hash, 0, 0);
            }
            (Answer::Miss, _) => {
                tally.misses += 1;
                self.note(hash, 0, 0);
                // A key that is read twice in one group is written once.
                if self.fills && self.missed.iter().all(|missed| missed.hash != hash) {
                    let mut missed = self.asked[at].clone();
                    missed.op.kind = Kind::Write;
                    self.missed.push(missed);
                }
            }
            (Answer::Stored, _) => {
                tally.stored += 1;
                self.recent.wrote(&op.key, hash, (version, bytes), op.ttl_s);
                self.note(hash, version, bytes);
            }
            (Answer::Deleted, _) => {
                tally.deleted += 1;
                self.recent.forget(hash);
                self.note(hash, 0, 0);
            }
            (Answer::Refused(line), Kind::Write) => {
                tally.refused += 1;
                tally.first_refused.get_or_insert_with(|| line.escape_ascii().to_string());
                // The key's contents are unknown now: the old value, or none.
                self.recent.forget(hash);
                if let Some(known) = self.known.get_mut(place(hash)) {
                    *known = Known::default();
                }
            }
            (Answer::Refused(line), Kind::Read | Kind::Delete) => {
                tally.mistake(|| format!("refused: {}", line.escape_ascii()));
            }
        }
    }
}

impl<S: Source> Agent for Client<S> {
    type Tally = Tally;

    fn next(&mut self, now: Instant, ending: bool, tally: &mut Tally, out: &mut Vec<u8>) -> Step {
        if self.by_second && tally.series.is_none() {
            tally.series = Tally::since(Some(self.started)).series;
        }
        self.asked.clear();
        self.filling = !self.missed.is_empty();
        if self.filling {
            mem::swap(&mut self.asked, &mut self.missed);
            return self.ask(now, out);
        }
        if ending {
            return Step::Done;
        }
        let until = now.saturating_duration_since(self.started);
        let feed = Arc::clone(&self.feed);
        let mut queues = feed.lock();
        match queues.take(self.number, self.pipeline, until, &mut self.asked) {
            Given::Some => {
                drop(queues);
                self.ask(now, out)
            }
            Given::At(due) => {
                self.idle = true;
                Step::Until(self.started + due)
            }
            Given::Blocked => Step::Until(now + BLOCKED),
            Given::Ended => Step::Done,
        }
    }

    fn reply(&mut self, bytes: &[u8], now: Instant, tally: &mut Tally) -> Result<Taken, Error> {
        let at = self.answered;
        let asked = match self.asked[at].op.kind {
            Kind::Read => Asked::Get,
            Kind::Write => Asked::Set,
            Kind::Delete => Asked::Delete,
        };
        let Some((answer, used)) = answer(self.protocol, asked, bytes)? else { return Ok(Taken::Nothing) };
        tally.turn_at(now);
        self.take(at, answer, tally);
        self.answered += 1;
        let last = self.answered == self.asked.len();
        if !self.filling {
            tally.requests += 1;
            tally.keys += 1;
            match self.asked[at].due {
                Some(due) => {
                    let due = self.started + due;
                    // A request that waited for the last reply is not late because of the generator.
                    let lag =
                        if self.idle { self.sent.saturating_duration_since(due) } else { Duration::ZERO };
                    tally.took_since_due(now.saturating_duration_since(due), now - self.sent, lag);
                }
                None if last => tally.took(now - self.sent),
                None => {}
            }
        }
        if last {
            self.idle = false;
        }
        Ok(if last { Taken::All(used) } else { Taken::More(used) })
    }
}

#[cfg(test)]
mod tests {
    use super::feed::tests::queues;
    use super::*;
    use crate::trace::hash;

    fn replay(protocol: Protocol) -> Replay {
        Replay {
            protocol,
            connections: 2,
            pipeline: 4,
            requests: u64::MAX,
            time: Duration::from_secs(1),
            fills: true,
            verify: true,
            by_second: false,
            shares_cores: false,
            sizes: Sizes::Fixed(1),
        }
    }

    #[test]
    fn what_was_missed_is_written_once_and_stale_and_foreign_values_are_wrong() {
        let list = vec![(1, None), (1, None), (1, None), (1, None), (1, None)];
        let feed = Arc::new(Feed::new(queues(list, Protocol::Resp)));
        let number = (hash(b"k 1") % 2) as usize;
        let mut client = Client::new(&feed, number, &replay(Protocol::Resp));
        let (now, mut tally, mut out) = (Instant::now(), Tally::default(), Vec::new());
        client.pipeline = 2;
        assert_eq!(client.next(now, false, &mut tally, &mut out), Step::Request);
        assert_eq!(client.reply(b"$-1\r\n", now, &mut tally).unwrap(), Taken::More(5));
        assert_eq!(client.reply(b"$-1\r\n", now, &mut tally).unwrap(), Taken::All(5));
        out.clear();
        assert_eq!(client.next(now, true, &mut tally, &mut out), Step::Request, "also when ending");
        assert!(out.starts_with(b"*3\r\n$3\r\nSET\r\n$3\r\nk 1\r\n$30\r\n"), "{}", out.escape_ascii());
        assert_eq!(client.reply(b"+OK\r\n", now, &mut tally).unwrap(), Taken::All(5));
        assert_eq!((tally.requests, tally.misses, tally.stored), (2, 2, 1));
        client.pipeline = 3;
        assert_eq!(client.next(now, false, &mut tally, &mut out), Step::Request);
        let value = |key: &[u8], version| {
            let mut reply = b"$30\r\n".to_vec();
            value::write(&mut reply, hash(key) as u32, version, 30);
            reply.extend_from_slice(b"\r\n");
            reply
        };
        let written = client.version;
        client.reply(&value(b"k 1", written), now, &mut tally).unwrap();
        assert_eq!((tally.hits, tally.wrong), (1, 0), "{:?}", tally.first_wrong);
        client.reply(&value(b"k 1", written - 1), now, &mut tally).unwrap();
        assert!(tally.wrong == 1 && tally.first_wrong.take().unwrap().contains("stale"));
        client.reply(&value(b"k 2", written), now, &mut tally).unwrap();
        assert!(tally.wrong == 2 && tally.first_wrong.unwrap().contains("not its value"));
        assert_eq!(client.next(now, false, &mut Tally::default(), &mut out), Step::Done);
    }
}
