//! Commands on collections, each on an element at random: the requests, and the right replies.

use std::collections::VecDeque;
use std::time::Instant;

use clap::ValueEnum;
use larder_protocol::client::{Malformed, Protocol, command};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::dialog::{Agent, Step, Taken};
use crate::elements::{Shape, Type, name, score, value};
use crate::error::Error;
use crate::keys::Prefix;
use crate::tally::Latencies;
use crate::template::{Reply, reply};

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Verb {
    /// HGET of an existing field
    Hget,
    /// HSET of an existing field, to another value
    Hset,
    /// HSET of a new field
    HsetNew,
    /// SADD of a new member
    Sadd,
    /// SISMEMBER of a member
    Sismember,
    /// ZADD of an existing member, with another score
    Zadd,
    /// ZADD of a new member
    ZaddNew,
    /// ZSCORE of a member
    Zscore,
    /// ZRANK of a member
    Zrank,
    /// ZRANGE of ten members, from any rank on
    Zrange,
    /// LPUSH of an element
    Lpush,
    /// LPOP, for as long as there are elements
    Lpop,
}

/// Members that one ZRANGE asks for.
const RANGE: u32 = 10;

impl Verb {
    /// Its name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Hget => "hget",
            Verb::Hset => "hset",
            Verb::HsetNew => "hset-new",
            Verb::Sadd => "sadd",
            Verb::Sismember => "sismember",
            Verb::Zadd => "zadd",
            Verb::ZaddNew => "zadd-new",
            Verb::Zscore => "zscore",
            Verb::Zrank => "zrank",
            Verb::Zrange => "zrange",
            Verb::Lpush => "lpush",
            Verb::Lpop => "lpop",
        }
    }

    /// The type of its collections.
    pub fn kind(self) -> Type {
        match self {
            Verb::Hget | Verb::Hset | Verb::HsetNew => Type::Hash,
            Verb::Sadd | Verb::Sismember => Type::Set,
            Verb::Zadd | Verb::ZaddNew | Verb::Zscore | Verb::Zrank | Verb::Zrange => Type::Zset,
            Verb::Lpush | Verb::Lpop => Type::List,
        }
    }

    /// Whether the command changes collections.
    pub fn changes(self) -> bool {
        match self {
            Verb::Hget | Verb::Sismember | Verb::Zscore | Verb::Zrank | Verb::Zrange => false,
            Verb::Hset | Verb::HsetNew | Verb::Sadd | Verb::Zadd | Verb::ZaddNew => true,
            Verb::Lpush | Verb::Lpop => true,
        }
    }

    /// Whether the command makes collections larger.
    pub fn adds(self) -> bool {
        matches!(self, Verb::HsetNew | Verb::Sadd | Verb::ZaddNew | Verb::Lpush)
    }
}

/// The right reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// This string.
    Text([u8; 8]),
    /// The score of an element.
    Score(u32),
    /// This digit.
    Digit(u8),
    /// A number.
    Number,
    /// An element of a list.
    Element,
    /// This many members.
    Members(u32),
}

impl Expected {
    fn holds(self, reply: &Reply<'_>) -> bool {
        match (self, reply) {
            (Expected::Text(text), Reply::Value(have)) => **have == text[..],
            (Expected::Score(element), Reply::Value(have)) => **have == score(element)[..],
            (Expected::Element, Reply::Value(have)) => have.len() == 8,
            (Expected::Digit(digit), Reply::Number(digits)) => **digits == [digit],
            (Expected::Number, Reply::Number(_)) => true,
            (Expected::Members(count), Reply::Many(have)) => *have == count as usize,
            _ => false,
        }
    }
}

/// Counts of all connections.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Requests with a reply.
    pub requests: u64,
    /// Requests with a wrong reply.
    pub wrong: u64,
    /// The first of these replies.
    pub first: Option<String>,
    /// Latencies of whole pipelines, from when they were sent.
    pub latency: Latencies,
}

impl Counts {
    /// Adds the counts of another connection.
    pub fn add(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.wrong += other.wrong;
        self.first = self.first.take().or_else(|| other.first.clone());
        self.latency.merge(&other.latency);
    }
}

/// A connection.
#[derive(Debug)]
pub struct Asker {
    verb: Verb,
    shape: Shape,
    pipeline: usize,
    random: StdRng,
    /// The number of the next new element; no other connection uses it.
    new: u32,
    /// For lists that are popped: the connection's next list, and the step to the one behind it. `left` is how many elements the
    /// connection may still pop.
    own: (u32, u32),
    left: u64,
    expected: VecDeque<Expected>,
    sent: Instant,
    key: Vec<u8>,
}

impl Asker {
    /// Connection number `at` of `connections`.
    pub fn new(verb: Verb, shape: Shape, (at, connections): (u32, u32), pipeline: u32, seed: u64) -> Asker {
        let Shape { elements, keys, .. } = shape;
        let left = match verb {
            Verb::Lpop if keys >= connections => {
                u64::from((keys - at).div_ceil(connections)) * u64::from(elements)
            }
            // Several connections share a list.
            Verb::Lpop => u64::from(elements / (connections - at % keys).div_ceil(keys)),
            _ => u64::MAX,
        };
        Asker {
            verb,
            shape,
            pipeline: pipeline as usize,
            random: StdRng::seed_from_u64(seed.wrapping_add(u64::from(at))),
            new: elements + (u32::MAX - elements) / connections * at,
            own: (at % keys, connections),
            left,
            expected: VecDeque::new(),
            sent: Instant::now(),
            key: Vec::new(),
        }
    }

    /// Appends a request; returns its right reply.
    fn ask(&mut self, out: &mut Vec<u8>) -> Expected {
        let Shape { elements, keys, .. } = self.shape;
        let there = self.random.random_range(0..elements);
        let other = self.random.random_range(0..u32::MAX);
        let which = if self.verb == Verb::Lpop { self.own_key() } else { self.random.random_range(0..keys) };
        self.key.clear();
        self.shape.space().write(&mut self.key, Prefix::Present, which);
        let (key, new) = (self.key.as_slice(), name(self.new));
        match self.verb {
            Verb::Hget => {
                command(out, &[b"HGET", key, &name(there)]);
                Expected::Text(value(there))
            }
            Verb::Hset => {
                command(out, &[b"HSET", key, &name(there), &value(other)]);
                Expected::Digit(b'0')
            }
            Verb::HsetNew => {
                command(out, &[b"HSET", key, &new, &value(other)]);
                self.new += 1;
                Expected::Digit(b'1')
            }
            Verb::Sadd => {
                command(out, &[b"SADD", key, &new]);
                self.new += 1;
                Expected::Digit(b'1')
            }
            Verb::Sismember => {
                command(out, &[b"SISMEMBER", key, &name(there)]);
                Expected::Digit(b'1')
            }
            Verb::Zadd => {
                command(out, &[b"ZADD", key, &score(other), &name(there)]);
                Expected::Digit(b'0')
            }
            Verb::ZaddNew => {
                command(out, &[b"ZADD", key, &score(other), &new]);
                self.new += 1;
                Expected::Digit(b'1')
            }
            Verb::Zscore => {
                command(out, &[b"ZSCORE", key, &name(there)]);
                Expected::Score(there)
            }
            Verb::Zrank => {
                command(out, &[b"ZRANK", key, &name(there)]);
                Expected::Number
            }
            Verb::Zrange => {
                let count = RANGE.min(elements);
                let from = there.min(elements - count);
                let [from, to] = [from, from + count - 1].map(|rank| rank.to_string());
                command(out, &[b"ZRANGE", key, from.as_bytes(), to.as_bytes()]);
                Expected::Members(count)
            }
            Verb::Lpush => {
                command(out, &[b"LPUSH", key, &name(other)]);
                Expected::Number
            }
            Verb::Lpop => {
                command(out, &[b"LPOP", key]);
                Expected::Element
            }
        }
    }

    /// The next of the lists that this connection pops from, in turn.
    fn own_key(&mut self) -> u32 {
        let (key, step) = self.own;
        let next = key + step;
        self.own.0 = if next < self.shape.keys { next } else { key % step % self.shape.keys };
        key
    }
}

impl Agent for Asker {
    type Tally = Counts;

    fn next(&mut self, now: Instant, ending: bool, _tally: &mut Counts, out: &mut Vec<u8>) -> Step {
        let count = if ending { 0 } else { self.left.min(self.pipeline as u64) };
        if count == 0 {
            return Step::Done;
        }
        for _ in 0..count {
            let told = self.ask(out);
            self.expected.push_back(told);
        }
        self.left -= count;
        self.sent = now;
        Step::Request
    }

    fn reply(&mut self, bytes: &[u8], now: Instant, tally: &mut Counts) -> Result<Taken, Error> {
        let read = reply(Protocol::Resp, bytes).map_err(|Malformed| Error::malformed(bytes))?;
        let Some((reply, used)) = read else { return Ok(Taken::Nothing) };
        let told = self.expected.pop_front().expect("it has asked for something");
        tally.requests += 1;
        if !told.holds(&reply) {
            tally.wrong += 1;
            let verb = self.verb.name();
            tally.first.get_or_insert_with(|| format!("{verb} is answered by {}", reply.words()));
        }
        if !self.expected.is_empty() {
            return Ok(Taken::More(used));
        }
        tally.latency.record(now.saturating_duration_since(self.sent));
        Ok(Taken::All(used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const ALL: [Verb; 12] = [
        Verb::Hget,
        Verb::Hset,
        Verb::HsetNew,
        Verb::Sadd,
        Verb::Sismember,
        Verb::Zadd,
        Verb::ZaddNew,
        Verb::Zscore,
        Verb::Zrank,
        Verb::Zrange,
        Verb::Lpush,
        Verb::Lpop,
    ];

    /// The words of a request.
    fn words(request: &[u8]) -> Vec<String> {
        let text = String::from_utf8(request.to_vec()).unwrap();
        let words = text.split("\r\n").filter(|part| !part.is_empty() && !part.starts_with(['*', '$']));
        words.map(str::to_owned).collect()
    }

    #[test]
    fn verbs_ask_for_what_is_there_or_for_what_nobody_has_written() {
        for verb in ALL {
            let shape = Shape::new(verb.kind(), 20, 60);
            let mut asker = Asker::new(verb, shape, (1, 4), 1, 7);
            let names: HashSet<String> =
                (0..20).map(|element| String::from_utf8(name(element).to_vec()).unwrap()).collect();
            let mut news = HashSet::new();
            for _ in 0..50 {
                let mut out = Vec::new();
                let told = asker.ask(&mut out);
                let words = words(&out);
                assert_eq!(words[0].to_lowercase(), verb.name().trim_end_matches("-new"));
                assert!(["0", "1", "2"].iter().any(|digit| words[1] == format!("key:00000000000{digit}")));
                match verb {
                    Verb::Hget | Verb::Hset | Verb::Sismember | Verb::Zscore | Verb::Zrank => {
                        assert!(names.contains(&words[2]), "{words:?}");
                    }
                    Verb::Zadd => assert!(names.contains(&words[3]) && words[2].parse::<u32>().is_ok()),
                    Verb::HsetNew | Verb::Sadd => {
                        assert!(!names.contains(&words[2]) && news.insert(words[2].clone()));
                    }
                    Verb::ZaddNew => assert!(!names.contains(&words[3]) && news.insert(words[3].clone())),
                    Verb::Zrange => {
                        let [from, to] = [&words[2], &words[3]].map(|rank| rank.parse::<u32>().unwrap());
                        assert!(to == from + 9 && to < 20 && told == Expected::Members(10));
                    }
                    Verb::Lpush => assert_eq!(words.len(), 3),
                    Verb::Lpop => assert_eq!(words.len(), 2),
                }
            }
        }
    }

    #[test]
    fn no_list_is_popped_from_more_often_than_it_has_elements() {
        for (keys, connections) in [(1, 1), (1, 16), (3, 16), (16, 16), (17, 16), (100, 16), (5, 2)] {
            let shape = Shape { kind: Type::List, elements: 40, keys };
            let mut popped = vec![0; keys as usize];
            for at in 0..connections {
                let mut asker = Asker::new(Verb::Lpop, shape, (at, connections), 7, 1);
                let (now, mut counts, mut out) = (Instant::now(), Counts::default(), Vec::new());
                while asker.next(now, false, &mut counts, &mut out) == Step::Request {
                    for key in words(&out).iter().filter_map(|word| word.strip_prefix("key:")) {
                        popped[key.parse::<usize>().unwrap()] += 1;
                    }
                    out.clear();
                    while !asker.expected.is_empty() {
                        asker.reply(b"$8\r\nabcdefgh\r\n", now, &mut counts).unwrap();
                    }
                }
                assert_eq!(counts.wrong, 0);
            }
            assert!(popped.iter().all(|times| (21..=40).contains(times)), "{keys} {connections}: {popped:?}");
        }
    }

    #[test]
    fn what_must_be_answered_holds_of_that_alone() {
        let nil = Reply::Nil;
        let told = [
            (Expected::Text(*b"abcdefgh"), Reply::Value(b"abcdefgh"), Reply::Value(b"abcdefgi")),
            (Expected::Digit(b'1'), Reply::Number(b"1"), Reply::Number(b"11")),
            (Expected::Number, Reply::Number(b"17"), Reply::Value(b"17")),
            (Expected::Element, Reply::Value(b"abcdefgh"), Reply::Value(b"abc")),
            (Expected::Members(10), Reply::Many(10), Reply::Many(9)),
            (Expected::Score(0), Reply::Value(b"0"), Reply::Value(b"1")),
        ];
        for (told, right, wrong) in told {
            assert!(told.holds(&right) && !told.holds(&wrong) && !told.holds(&nil), "{told:?}");
        }
    }

    #[test]
    fn a_pipeline_is_one_latency_and_what_is_wrong_is_told() {
        let mut asker = Asker::new(Verb::Sadd, Shape::new(Type::Set, 10, 10), (0, 1), 3, 1);
        let (now, mut counts, mut out) = (Instant::now(), Counts::default(), Vec::new());
        assert_eq!(asker.next(now, false, &mut counts, &mut out), Step::Request);
        assert_eq!(asker.reply(b":1\r\n:1\r\n", now, &mut counts).unwrap(), Taken::More(4));
        assert_eq!(asker.reply(b":0\r\n", now, &mut counts).unwrap(), Taken::More(4));
        assert_eq!(asker.reply(b":1\r\n", now, &mut counts).unwrap(), Taken::All(4));
        assert_eq!((counts.requests, counts.wrong, counts.latency.len()), (3, 1, 1));
        assert_eq!(counts.first.as_deref(), Some("sadd is answered by the number 0"));
        assert_eq!(asker.next(now, true, &mut counts, &mut out), Step::Done);
    }
}
