//! Collections that are filled and read back: the commands, and the right replies.
//!
//! | type | an element | is written by | is read back by |
//! |---|---|---|---|
//! | hash | a field and a value of 8 bytes each | HSET | HMGET |
//! | list | a string of 8 bytes | RPUSH | LRANGE |
//! | set | a member of 8 bytes | SADD | SMISMEMBER |
//! | sorted set | a member of 8 bytes, and a score that counts as 8: a whole number below ten million | ZADD | ZMSCORE |
//!
//! Names are not numbers, and come in no order. One connection writes and reads a key, with some elements in each command.
//! Every reply is compared with the right one.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use larder_protocol::client::{Malformed, Protocol, command};

use crate::contender::Contender;
use crate::control::Family;
use crate::dialog::{Agent, Dialog, Step, Taken};
use crate::error::Error;
use crate::experiment::Options;
use crate::keys::{Keyspace, Prefix};
use crate::peers::Kind as Server;
use crate::template::reply;

/// A type of collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Type {
    /// Fields with values.
    Hash,
    /// Strings in order.
    List,
    /// Members.
    Set,
    /// Members with scores.
    Zset,
}

/// All of them.
pub const TYPES: [Type; 4] = [Type::Hash, Type::List, Type::Set, Type::Zset];

/// Collections of one type, all with the same number of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Their type.
    pub kind: Type,
    /// Elements of each collection.
    pub elements: u32,
    /// Number of collections.
    pub keys: u32,
}

/// The result of filling collections, or of reading them back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Commands with the right reply.
    pub right: u64,
    /// Commands with another reply.
    pub wrong: u64,
    /// The first of these replies.
    pub first: Option<String>,
}

/// Bytes of a name, a value and a score.
const STRING_BYTES: u64 = 8;
/// Most elements of a command.
const TOGETHER: u32 = 50;
/// Commands that a connection sends together.
const PIPELINE: usize = 16;
const CONNECTIONS: u32 = 16;
/// The bound of scores.
const SCORES: u64 = 10_000_000;
/// Bytes that are allowed for an element above its strings, and for a key: more than any server takes.
const ELEMENT_BYTES: u64 = 160;
/// A time that no fill takes: it ends when all elements are written.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

/// A number of 40 bits for element `n`; no other element has the same.
fn mixed(n: u32) -> u64 {
    // Multiplication by an odd number is one to one.
    u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 40)
}

/// The name of element `n` of a collection: eight letters.
pub fn name(n: u32) -> [u8; 8] {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyzABCDEF";
    std::array::from_fn(|i| LETTERS[(mixed(n) >> (5 * i)) as usize % LETTERS.len()])
}

/// The value of a field.
pub fn value(n: u32) -> [u8; 8] {
    name(u32::MAX - n)
}

/// The score of a member.
pub fn score(n: u32) -> Vec<u8> {
    ((mixed(n) >> 12) % SCORES).to_string().into_bytes()
}

impl Type {
    /// Its name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Type::Hash => "hash",
            Type::List => "list",
            Type::Set => "set",
            Type::Zset => "zset",
        }
    }

    /// Bytes of the strings of an element.
    fn element_bytes(self) -> u64 {
        match self {
            Type::Hash | Type::Zset => 2 * STRING_BYTES,
            Type::List | Type::Set => STRING_BYTES,
        }
    }

    /// Appends the command that writes these elements of a key; returns the right reply.
    fn write(self, out: &mut Vec<u8>, key: &[u8], numbers: Range<u32>) -> Vec<u8> {
        let (count, end) = (numbers.len(), numbers.end);
        let (verb, words): (&[u8], Vec<Vec<u8>>) = match self {
            Type::Hash => (b"HSET", numbers.flat_map(|n| [name(n).to_vec(), value(n).to_vec()]).collect()),
            Type::List => (b"RPUSH", numbers.map(|n| name(n).to_vec()).collect()),
            Type::Set => (b"SADD", numbers.map(|n| name(n).to_vec()).collect()),
            Type::Zset => (b"ZADD", numbers.flat_map(|n| [score(n), name(n).to_vec()]).collect()),
        };
        send(out, verb, key, &words);
        // A list replies with its length, the other types with the number of new elements.
        let told = if self == Type::List { end as usize } else { count };
        format!(":{told}\r\n").into_bytes()
    }

    /// Appends the command that reads these elements of a key; returns the right reply.
    fn read(self, out: &mut Vec<u8>, key: &[u8], numbers: Range<u32>) -> Vec<u8> {
        let names = || -> Vec<Vec<u8>> { numbers.clone().map(|n| name(n).to_vec()).collect() };
        let last = numbers.end.saturating_sub(1);
        let (verb, words): (&[u8], Vec<Vec<u8>>) = match self {
            Type::Hash => (b"HMGET", names()),
            Type::List => (b"LRANGE", [numbers.start, last].map(|n| n.to_string().into_bytes()).into()),
            Type::Set => (b"SMISMEMBER", names()),
            Type::Zset => (b"ZMSCORE", names()),
        };
        send(out, verb, key, &words);
        let mut reply = format!("*{}\r\n", numbers.len()).into_bytes();
        for n in numbers {
            let text = match self {
                Type::Hash => value(n).to_vec(),
                Type::List => name(n).to_vec(),
                Type::Zset => score(n),
                Type::Set => {
                    reply.extend_from_slice(b":1\r\n");
                    continue;
                }
            };
            reply.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
            reply.extend_from_slice(&text);
            reply.extend_from_slice(b"\r\n");
        }
        reply
    }
}

fn send(out: &mut Vec<u8>, verb: &[u8], key: &[u8], words: &[Vec<u8>]) {
    let all: Vec<&[u8]> = [verb, key].into_iter().chain(words.iter().map(Vec::as_slice)).collect();
    command(out, &all);
}

impl Shape {
    /// As many collections as have `total` elements together, or one that has more.
    pub fn new(kind: Type, elements: u32, total: u32) -> Shape {
        Shape { kind, elements, keys: (total / elements).max(1) }
    }

    /// Elements of all collections together.
    pub fn all(self) -> u64 {
        u64::from(self.elements) * u64::from(self.keys)
    }

    /// Bytes of all keys and of the strings of all elements.
    pub fn bytes(self) -> u64 {
        u64::from(self.keys) * self.space().key_bytes as u64 + self.all() * self.kind.element_bytes()
    }

    /// A memory limit in MB that is enough in every server.
    pub fn limit_mb(self) -> u64 {
        let most = self.bytes() + (self.all() + u64::from(self.keys)) * ELEMENT_BYTES;
        64 + ((most * 3 / 2) >> 20)
    }

    /// The shape in words, for tables.
    pub fn words(self) -> String {
        format!("{} of {} × {}", self.kind.name(), self.elements, self.keys)
    }

    /// The collections' keys.
    pub fn space(self) -> Keyspace {
        Keyspace::new(self.keys, 0)
    }

    /// Number of commands that write, or read, all collections.
    pub fn commands(self) -> u64 {
        u64::from(self.keys) * u64::from(self.elements.div_ceil(TOGETHER))
    }
}

/// The options of an experiment with collections: Larder, too, is asked in Redis's protocol.
///
/// # Errors
/// [`Error::Usage`] when another server speaks memcached's protocols alone.
pub fn asked_as_redis(options: &Options) -> Result<Options, Error> {
    let others = options.peers.iter().map(|peer| (peer.name(), peer.family()));
    let others = others.chain(options.targets.iter().map(|target| (target.name.as_str(), target.family)));
    for (name, family) in others {
        if family == Family::Memcached {
            let why = format!("{name} is asked in memcached's protocols, which have no collections");
            return Err(Error::Usage(why));
        }
    }
    let mut options = options.clone();
    if !options.no_larder {
        options.peers.insert(0, Server::LarderRedis);
        options.no_larder = true;
    }
    Ok(options)
}

/// Fills all collections of a server, or reads them back.
///
/// # Errors
/// When a connection fails, or a reply is malformed.
pub fn pass(server: &Contender, shape: Shape, reads: bool, cores: &[Option<usize>]) -> Result<Done, Error> {
    let agents = (0..CONNECTIONS).map(|key| Visitor::new(shape, reads, key)).collect();
    let mut total = Done::default();
    for done in Dialog::connect(server.endpoint(), agents, cores)?.run(FOR_EVER)?.tallies {
        total.right += done.right;
        total.wrong += done.wrong;
        total.first = total.first.or(done.first);
    }
    Ok(total)
}

/// A connection. It visits its share of the keys, and all elements of each in order.
#[derive(Debug)]
struct Visitor {
    shape: Shape,
    reads: bool,
    /// The key of the next elements, and the first of them.
    key: u32,
    from: u32,
    name: Vec<u8>,
    /// The right replies to the commands under way.
    expected: VecDeque<Vec<u8>>,
}

impl Visitor {
    fn new(shape: Shape, reads: bool, key: u32) -> Visitor {
        Visitor { shape, reads, key, from: 0, name: Vec::new(), expected: VecDeque::new() }
    }
}

impl Agent for Visitor {
    type Tally = Done;

    fn next(&mut self, _now: Instant, _ending: bool, _tally: &mut Done, out: &mut Vec<u8>) -> Step {
        let Shape { kind, elements, keys } = self.shape;
        while self.expected.len() < PIPELINE && self.key < keys {
            self.name.clear();
            self.shape.space().write(&mut self.name, Prefix::Present, self.key);
            let numbers = self.from..elements.min(self.from + TOGETHER);
            self.from = numbers.end;
            let reply = match self.reads {
                true => kind.read(out, &self.name, numbers),
                false => kind.write(out, &self.name, numbers),
            };
            self.expected.push_back(reply);
            if self.from == elements {
                (self.key, self.from) = (self.key + CONNECTIONS, 0);
            }
        }
        if self.expected.is_empty() { Step::Done } else { Step::Request }
    }

    fn reply(&mut self, bytes: &[u8], _now: Instant, tally: &mut Done) -> Result<Taken, Error> {
        let read = reply(Protocol::Resp, bytes).map_err(|Malformed| Error::malformed(bytes))?;
        let Some((reply, used)) = read else { return Ok(Taken::Nothing) };
        let expected = self.expected.pop_front().expect("it has asked for something");
        if bytes[..used] == expected[..] {
            tally.right += 1;
        } else {
            tally.wrong += 1;
            tally.first.get_or_insert_with(|| reply.words());
        }
        Ok(if self.expected.is_empty() { Taken::All(used) } else { Taken::More(used) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_one_to_one_and_no_numbers() {
        let names: HashSet<[u8; 8]> = (0..100_000).flat_map(|n| [name(n), value(n)]).collect();
        assert_eq!(names.len(), 200_000);
        assert!(names.iter().flatten().all(u8::is_ascii_alphabetic));
        assert!((0..1000).all(|n| score(n).len() <= 7));
    }

    #[test]
    fn commands_are_written_and_replies_known_to_the_byte() {
        let key = b"k";
        let both = |kind: Type| {
            let (mut write, mut read) = (Vec::new(), Vec::new());
            let told = [kind.write(&mut write, key, 0..2), kind.read(&mut read, key, 0..2)];
            [write, told[0].clone(), read, told[1].clone()].map(|bytes| String::from_utf8(bytes).unwrap())
        };
        let text = |n: u32| String::from_utf8(name(n).into()).unwrap();
        let (a, b) = (text(0), text(1));
        assert_eq!(a, "aaaaaaaa");
        let (v, w) = (text(u32::MAX), text(u32::MAX - 1));
        let [one, two] = [0, 1].map(|n| String::from_utf8(score(n)).unwrap());
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let words = |words: &[&str]| {
            format!("*{}\r\n{}", words.len(), words.iter().map(|word| bulk(word)).collect::<String>())
        };
        assert_eq!(
            both(Type::Hash),
            [
                words(&["HSET", "k", &a, &v, &b, &w]),
                ":2\r\n".into(),
                words(&["HMGET", "k", &a, &b]),
                words(&[&v, &w]),
            ]
        );
        assert_eq!(
            both(Type::List),
            [
                words(&["RPUSH", "k", &a, &b]),
                ":2\r\n".into(),
                words(&["LRANGE", "k", "0", "1"]),
                words(&[&a, &b]),
            ]
        );
        assert_eq!(
            both(Type::Set),
            [
                words(&["SADD", "k", &a, &b]),
                ":2\r\n".into(),
                words(&["SMISMEMBER", "k", &a, &b]),
                "*2\r\n:1\r\n:1\r\n".into(),
            ]
        );
        assert_eq!(
            both(Type::Zset),
            [
                words(&["ZADD", "k", &one, &a, &two, &b]),
                ":2\r\n".into(),
                words(&["ZMSCORE", "k", &a, &b]),
                words(&[&one, &two]),
            ]
        );
        // A list replies with its length by then.
        assert_eq!(Type::List.write(&mut Vec::new(), key, 50..70), b":70\r\n");
        assert_eq!(Type::Set.write(&mut Vec::new(), key, 50..70), b":20\r\n");
    }

    #[test]
    fn all_elements_of_every_key_are_visited_once() {
        for (elements, total) in [(1, 40), (49, 900), (50, 900), (51, 900), (5000, 100)] {
            let shape = Shape::new(Type::Set, elements, total);
            let (mut commands, mut sent) = (0, 0);
            for key in 0..CONNECTIONS {
                let mut visitor = Visitor::new(shape, false, key);
                let (now, mut done) = (Instant::now(), Done::default());
                let mut out = Vec::new();
                while visitor.next(now, false, &mut done, &mut out) == Step::Request {
                    while let Some(expected) = visitor.expected.front().cloned() {
                        let digits = String::from_utf8_lossy(&expected[1..]).trim_end().to_owned();
                        sent += digits.parse::<u64>().unwrap();
                        visitor.reply(&expected, now, &mut done).unwrap();
                    }
                }
                assert_eq!(done.wrong, 0);
                commands += done.right;
            }
            assert_eq!((commands, sent), (shape.commands(), shape.all()), "{shape:?}");
        }
        assert_eq!(Shape::new(Type::Hash, 1000, 100), Shape { kind: Type::Hash, elements: 1000, keys: 1 });
        assert_eq!(Shape::new(Type::Hash, 3, 100).keys, 33);
        assert_eq!(Shape::new(Type::Hash, 10, 20).bytes(), 2 * 16 + 20 * 16);
    }

    #[test]
    fn another_reply_than_the_one_that_must_come_is_counted_and_shown() {
        let mut visitor = Visitor::new(Shape::new(Type::Hash, 2, 2), true, 0);
        let (now, mut done, mut out) = (Instant::now(), Done::default(), Vec::new());
        assert_eq!(visitor.next(now, false, &mut done, &mut out), Step::Request);
        let refused = b"-WRONGTYPE no\r\n";
        assert_eq!(visitor.reply(&refused[..5], now, &mut done).unwrap(), Taken::Nothing);
        assert_eq!(visitor.reply(refused, now, &mut done).unwrap(), Taken::All(refused.len()));
        assert_eq!(done, Done { right: 0, wrong: 1, first: Some("\"WRONGTYPE no\"".to_owned()) });
        assert_eq!(visitor.next(now, false, &mut done, &mut out), Step::Done);
    }
}
