//! A client that owns its keys. It sends pipelines in all dialects, over connections to all workers, and
//! judges every reply by its [`Key`]s. Some clients are odd: they send slowly, stop in the middle, read late,
//! or reset.

use crate::dialect::{Dialect, Reply, reply};
use crate::ledger::{Fate, Fault, Key};
use crate::op::{Seen, Verb};
use crate::random::Random;
use crate::values::Values;
use crate::wire::{Manner, ODD, Wire};
use crate::world::{Cause, Span, World};
use larder_testkit::talk::encode;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Keys of a client.
pub const KEYS: usize = 1500;
/// Connections of a client to each port.
const EACH: usize = 2;
/// Most operations of a pipeline.
const PIPELINE: usize = 40;
/// Most bytes of requests whose replies are read late: no more than the sockets take.
const LATE_BYTES: usize = 64 << 10;
/// A connection that stands still after it has sent this much of a request may be closed if others need the
/// memory; after less it must stay open.
const LONG_BYTES: usize = 48 << 10;
/// Operations before a complaint that the complaint lists.
const TOLD: usize = 8;
/// Deeds that a client remembers; the next constant: those of one key that a complaint lists.
const DEEDS: usize = 20_000;
const DEEDS_TOLD: usize = 12;
/// How long other clients may still see a connection that was reset.
const GONE: Duration = Duration::from_secs(10);

/// Whether the key holds a number.
pub fn is_number(key: usize) -> bool {
    key.is_multiple_of(16)
}

/// Whether the key is longer than memcached allows: only RESP requests use it.
pub fn is_long(key: usize) -> bool {
    key % 64 == 1
}

/// A client.
#[derive(Debug)]
pub struct Client<'w> {
    pub(crate) world: &'w World,
    pub(crate) name: String,
    pub(crate) random: Random,
    pub(crate) tally: BTreeMap<&'static str, u64>,
    pub(crate) values: Values,
    pub(crate) keys: Vec<Key>,
    /// Connections to memcached's port, then to Redis's.
    pub(crate) wires: Vec<Option<Wire>>,
    pub(crate) subscriber: Option<Wire>,
    odd: bool,
    /// The last deeds on all keys.
    deeds: VecDeque<Deed>,
}

/// An operation on a key.
#[derive(Clone, Copy, Debug)]
struct Deed {
    key: usize,
    dialect: Dialect,
    verb: &'static str,
    /// The reply; `None` if it is unknown.
    seen: Option<&'static str>,
    at_ms: u64,
}

impl<'w> Client<'w> {
    /// Client number `number`, which has sent nothing yet.
    pub fn new(world: &'w World, seed: u64, number: usize, odd: bool) -> Client<'w> {
        let mut random = Random::of(seed, number as u64);
        let values = Values::new(&mut random);
        let name = |n: usize| {
            let short = format!("c{number}:{n}");
            match n {
                // Only RESP has keys as long as these.
                n if is_long(n) => format!("{short}:{}", "l".repeat(300 + n * 6)),
                n if n % 8 == 2 => format!("{short}:{}", "m".repeat(n % 230)),
                _ => short,
            }
        };
        let keys = (0..KEYS).map(|n| Key::new(name(n), n as u32)).collect();
        let wires = (0..2 * EACH).map(|_| None).collect();
        let name = format!("c{number}");
        let deeds = VecDeque::with_capacity(DEEDS);
        Client {
            world,
            name,
            random,
            values,
            keys,
            wires,
            subscriber: None,
            odd,
            deeds,
            tally: BTreeMap::new(),
        }
    }

    /// Sends requests until the soak ends; then reads every key once more.
    pub fn run(mut self) {
        while self.world.runs() {
            self.world.within(|phase| match self.random.below(100) {
                0..68 => self.pipeline(),
                68..78 => self.many(),
                78..84 => self.store_many(),
                84..92 => self.transaction(),
                92..96 => self.publish(),
                _ if phase.counts => self.contend(),
                _ => self.pipeline(),
            });
            thread::sleep(Duration::from_micros(self.random.below(2000) as u64));
        }
        self.world.within(|_| {
            for from in (0..KEYS).step_by(PIPELINE) {
                let asked = (from..KEYS.min(from + PIPELINE)).map(|key| (key, Verb::Get)).collect();
                self.exchange(2 * EACH - 1, Dialect::Resp, asked, Manner::Prompt);
            }
        });
        self.tally.iter().for_each(|(what, count)| self.world.count(what, *count));
        self.wires.iter().flatten().chain(&self.subscriber).for_each(|wire| {
            self.world.forget(wire.address);
        });
    }

    pub(crate) fn tally(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    pub(crate) fn resp_wire(&mut self) -> usize {
        EACH + self.random.below(EACH)
    }

    fn manner(&mut self) -> Manner {
        if self.odd && self.random.chance(70) { *self.random.of_list(ODD) } else { Manner::Prompt }
    }

    /// The connection with this index, made now if there is none.
    pub(crate) fn wire(&mut self, at: usize) -> Option<&mut Wire> {
        if self.wires[at].is_none() {
            self.wires[at] = open(self.world, at / EACH);
        }
        self.wires[at].as_mut()
    }

    fn pipeline(&mut self) {
        let at = self.random.below(2 * EACH);
        let dialect = match at / EACH {
            0 => *self.random.of_list(&[Dialect::Classic, Dialect::Meta]),
            _ => Dialect::Resp,
        };
        let manner = self.manner();
        let asked = if manner == Manner::Late && self.random.chance(50) {
            self.large_gets()
        } else {
            let count = self.random.within(1, PIPELINE);
            self.operations(count, dialect)
        };
        self.exchange(at, dialect, asked, manner);
    }

    /// Sends operations over a connection, reads the replies, and judges them.
    pub(crate) fn exchange(
        &mut self,
        at: usize,
        dialect: Dialect,
        asked: Vec<(usize, Verb)>,
        manner: Manner,
    ) {
        if asked.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        for (key, verb) in &asked {
            dialect.put(&mut bytes, &self.keys[*key].name, self.keys[*key].flags, verb);
        }
        let manner = if manner == Manner::Late && bytes.len() > LATE_BYTES { Manner::Prompt } else { manner };
        let verbs: Vec<Verb> = asked.iter().map(|(_, verb)| verb.clone()).collect();
        let (seen, span, ended) = self.ask(at, &bytes, manner, |wire| {
            let mut seen = Vec::new();
            let ended = verbs.iter().try_for_each(|verb| {
                seen.push(dialect.take(wire, verb)?);
                Ok(())
            });
            (seen, ended)
        });
        let mut judged = 0;
        for ((key, verb), answer) in asked.iter().zip(&seen) {
            judged += 1;
            if !self.judge(*key, dialect, verb, answer, &span) {
                // The replies behind a wrong one may belong to other requests.
                self.tell(&asked, &seen[..judged]);
                self.close(at);
                break;
            }
        }
        for (key, verb) in &asked[judged..] {
            self.doubt(*key, dialect, verb);
        }
        if let Err(error) = ended {
            let long = asked[seen.len()..].iter().any(|(_, verb)| verb.value_bytes() >= LONG_BYTES);
            let attacked = span.may_meet(Cause::Replies, &span);
            if manner == Manner::Stopping && long && attacked && has_ended(&error) {
                self.tally("connection: stopped in a long request, closed");
                return self.close(at);
            }
            self.broken(at, manner, &error, &format!("{} of {} replies", seen.len(), asked.len()));
        }
    }

    /// Sends bytes and reads what `read` reads.
    pub(crate) fn ask<R: Default>(
        &mut self,
        at: usize,
        bytes: &[u8],
        manner: Manner,
        read: impl FnOnce(&mut Wire) -> (R, io::Result<()>),
    ) -> (R, Span, io::Result<()>) {
        let mut random = self.random.clone();
        self.random.chance(50);
        self.tally(match manner {
            Manner::Prompt => "manner: prompt",
            Manner::Slow => "manner: slow",
            Manner::Stopping => "manner: stopping",
            Manner::Late => "manner: late",
            Manner::HalfClosing => "manner: half closing",
            Manner::Resetting => "manner: resetting",
        });
        let before = self.world.moment();
        let world = self.world;
        if manner == Manner::Resetting
            && let Some(wire) = self.wire(at)
            && !wire.answered
        {
            let greeted = wire.greet(at / EACH > 0);
            if let Err(error) = greeted {
                return (R::default(), Span { before, after: world.moment() }, Err(error));
            }
        }
        let Some(wire) = self.wire(at) else {
            return (
                R::default(),
                Span { before, after: world.moment() },
                Err(io::ErrorKind::NotConnected.into()),
            );
        };
        let (result, ended) = match wire.send(bytes, manner, &mut random) {
            Ok(()) => read(wire),
            // Replies that came before the connection broke are not read.
            Err(error) => (R::default(), Err(error)),
        };
        wire.answered |= ended.is_ok();
        let span = Span { before, after: world.moment() };
        if ended.is_ok() && manner == Manner::HalfClosing {
            match wire.is_at_end() {
                Ok(true) => {}
                Ok(false) => world.complain(&format!("{}: more than was asked for", self.name)),
                Err(error) => world.complain(&format!("{}: half closed: {error}", self.name)),
            }
            self.close(at);
        }
        (result, span, ended)
    }

    /// Prints the replies before a complaint.
    fn tell(&self, asked: &[(usize, Verb)], seen: &[Seen]) {
        let from = seen.len().saturating_sub(TOLD);
        let lines: Vec<String> = asked[from..]
            .iter()
            .zip(&seen[from..])
            .map(|((key, verb), seen)| format!("    {} {key}: {}", verb.name(), seen.shown()))
            .collect();
        self.world.tell(&format!("  after\n{}", lines.join("\n")));
    }

    /// Judges a reply; false if there was a complaint.
    pub(crate) fn judge(
        &mut self,
        key: usize,
        dialect: Dialect,
        verb: &Verb,
        seen: &Seen,
        span: &Span,
    ) -> bool {
        self.tally(verb.name());
        self.note(key, dialect, verb, Some(seen));
        let judged = self.keys[key].judge(dialect, verb, seen, span);
        if judged.is_err() {
            self.tell_deeds(key);
        }
        match judged {
            Ok(Fate::Gone) => self.tally("outcome: gone, explained"),
            Ok(Fate::Refused) => self.tally("outcome: refused, explained"),
            Ok(Fate::There) => self.tally("outcome: there"),
            Ok(Fate::Absent) => self.tally("outcome: absent"),
            Ok(Fate::Doubtful) => self.tally("outcome: in doubt"),
            Err(Fault::Lost(text)) => {
                self.world.lost(&text);
                return false;
            }
            Err(Fault::Wrong(text)) => {
                self.world.complain(&text);
                return false;
            }
        }
        true
    }

    /// Drops a connection that ended, or cannot be used any more.
    pub(crate) fn broken(&mut self, at: usize, manner: Manner, error: &io::Error, what: &str) {
        let address = self.wires[at].as_ref().map(|wire| wire.address);
        self.close(at);
        let Some(address) = address else { return };
        let ended = has_ended(error);
        if manner == Manner::Resetting {
            self.tally("connection: reset by us");
            self.wait_until_gone(address, at);
        } else if ended && self.world.was_killed(address) {
            self.tally("connection: killed");
        } else if ended && manner == Manner::Late {
            // The client has not read for a quarter of a second, and others needed the memory of its replies.
            self.tally("connection: late, closed");
        } else {
            self.world.complain(&format!("{}: {address} ended after {what}, {manner:?}: {error}", self.name));
        }
    }

    /// Waits until the server has dropped a connection that was reset: until then it may carry out requests
    /// that were sent before.
    fn wait_until_gone(&mut self, address: std::net::SocketAddr, but: usize) {
        let text = format!("addr={address} ");
        let started = Instant::now();
        let mut other = 2 * EACH - 1;
        if other == but {
            other -= 1;
        }
        loop {
            let (list, _, ended) = self.ask(other, &encode(&[b"CLIENT", b"LIST"]), Manner::Prompt, |wire| {
                let list = reply(wire);
                match list {
                    Ok(Reply::Bulk(Some(list))) => {
                        (Some(String::from_utf8_lossy(&list).into_owned()), Ok(()))
                    }
                    // Late readers have all the memory for replies: the request is sent again.
                    Ok(Reply::Error(why)) if why.starts_with("OOM connections hold") => (None, Ok(())),
                    Ok(other) => (None, Err(io::Error::other(format!("CLIENT LIST: {other:?}")))),
                    Err(error) => (None, Err(error)),
                }
            });
            if let Err(error) = ended {
                self.broken(other, Manner::Prompt, &error, "CLIENT LIST");
            }
            if list.is_some_and(|list| !list.contains(&text)) {
                return;
            }
            if started.elapsed() > GONE {
                return self.world.complain(&format!("{address} was reset and is still there"));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn close(&mut self, at: usize) {
        if let Some(wire) = self.wires[at].take() {
            self.world.forget(wire.address);
        }
    }

    pub(crate) fn key(&self, key: usize) -> &Key {
        &self.keys[key]
    }

    /// Notes an operation that may have been carried out or not.
    pub(crate) fn doubt(&mut self, key: usize, dialect: Dialect, verb: &Verb) {
        self.note(key, dialect, verb, None);
        self.keys[key].doubt(dialect, verb);
    }

    fn note(&mut self, key: usize, dialect: Dialect, verb: &Verb, seen: Option<&Seen>) {
        if self.deeds.len() == DEEDS {
            self.deeds.pop_front();
        }
        let at_ms = self.world.moment().at_ms;
        self.deeds.push_back(Deed { key, dialect, verb: verb.name(), seen: seen.map(Seen::kind), at_ms });
    }

    /// Prints the last operations on a key before a complaint.
    fn tell_deeds(&self, key: usize) {
        let of_key = self.deeds.iter().rev().filter(|deed| deed.key == key).take(DEEDS_TOLD);
        let lines: Vec<String> = of_key
            .map(|deed| {
                let Deed { dialect, verb, seen, at_ms, .. } = deed;
                format!("    {at_ms} ms: {verb} by {dialect:?}: {}", seen.unwrap_or("no reply"))
            })
            .collect();
        self.world.tell(&format!("  {key}, the last first:\n{}", lines.join("\n")));
    }
}

/// Whether the server has closed the connection.
fn has_ended(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
    )
}

/// Connects to a port.
pub fn open(world: &World, port: usize) -> Option<Wire> {
    match Wire::connect(world.ports[port]) {
        Ok(wire) => {
            world.killed.lock().expect("not poisoned").remove(&wire.address);
            world.open.lock().expect("not poisoned").insert(wire.address);
            world.count("connection: opened", 1);
            Some(wire)
        }
        Err(error) => {
            world.complain(&format!("cannot connect: {error}"));
            thread::sleep(Duration::from_millis(100));
            None
        }
    }
}
