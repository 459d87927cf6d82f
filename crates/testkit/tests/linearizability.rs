//! What two clients of both protocols see can always be put in one order; and a store that is broken
//! is found out.

use larder_testkit::history::{Client, KEYS, Operation, Outcome, judge};
use larder_testkit::local::{Local, LocalConnection};
use larder_testkit::talk::encode;
use std::sync::{Arc, Mutex};

/// Histories played at a time.
const HISTORIES: u64 = 2_000;
/// Histories in which the two clients meet that a run needs.
const MEETINGS: u64 = 4_000;

/// A thread's worker with a connection of each protocol.
struct Both {
    local: Local,
    redis: LocalConnection,
    memcached: LocalConnection,
    /// Which of the two is asked what both can do: a bit for each question.
    turn: u64,
}

impl Both {
    fn new(local: Local, turn: u64) -> Both {
        let (redis, memcached) = (local.connection(), local.connection());
        Both { local, redis, memcached, turn }
    }

    fn redis(&mut self, requests: &[&[&[u8]]]) -> String {
        let bytes: Vec<u8> = requests.iter().flat_map(|words| encode(words)).collect();
        self.local.exchange(&mut self.redis, &bytes);
        let text = String::from_utf8_lossy(self.redis.sent()).into_owned();
        self.redis.forget();
        text
    }

    fn memcached(&mut self, line: &str) -> String {
        self.local.exchange(&mut self.memcached, line.as_bytes());
        let text = String::from_utf8_lossy(self.memcached.sent()).into_owned();
        self.memcached.forget();
        text
    }

    fn by_redis(&mut self) -> bool {
        self.turn = self.turn.rotate_left(1);
        self.turn & 1 == 0
    }
}

fn name(history: u64, key: usize) -> String {
    format!("h{history}:{key}")
}

/// `$1 7` at the front of a reply, or `$-1`; and what follows.
fn bulk(reply: &str) -> (Option<i64>, &str) {
    let (head, rest) = reply.split_once("\r\n").expect("a line");
    if head == "$-1" {
        return (None, rest);
    }
    let (value, rest) = rest.split_once("\r\n").expect("a value");
    (Some(value.parse().expect("a number")), rest)
}

impl Client for Both {
    fn ask(&mut self, history: u64, operation: &Operation) -> Outcome {
        let by_redis = self.by_redis();
        match operation {
            Operation::Get(key) => {
                let key = name(history, *key);
                if by_redis {
                    return Outcome::Value(bulk(&self.redis(&[&[b"GET", key.as_bytes()]])).0);
                }
                let reply = self.memcached(&format!("get {key}\r\n"));
                Outcome::Value(reply.split("\r\n").nth(1).and_then(|value| value.parse().ok()))
            }
            Operation::Set(key, value) => {
                let (key, value) = (name(history, *key), value.to_string());
                if by_redis {
                    assert_eq!(self.redis(&[&[b"SET", key.as_bytes(), value.as_bytes()]]), "+OK\r\n");
                } else {
                    let reply = self.memcached(&format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()));
                    assert_eq!(reply, "STORED\r\n");
                }
                Outcome::Done
            }
            Operation::Incr(key) => {
                let key = name(history, *key);
                if by_redis {
                    let reply = self.redis(&[&[b"INCR", key.as_bytes()]]);
                    return Outcome::Value(reply[1..].trim_end().parse().ok());
                }
                // The meta command makes what is not there, from 1.
                let reply = self.memcached(&format!("ma {key} v N0 J1\r\n"));
                Outcome::Value(reply.split("\r\n").nth(1).and_then(|value| value.parse().ok()))
            }
            Operation::Delete(key) => {
                let key = name(history, *key);
                if by_redis {
                    return Outcome::Did(Some(self.redis(&[&[b"DEL", key.as_bytes()]]) == ":1\r\n"));
                }
                Outcome::Did(Some(self.memcached(&format!("delete {key}\r\n")) == "DELETED\r\n"))
            }
            Operation::Gets(key) => {
                let reply = self.memcached(&format!("gets {}\r\n", name(history, *key)));
                let mut lines = reply.split("\r\n");
                let token = lines.next().and_then(|head| head.split(' ').nth(4)).and_then(|t| t.parse().ok());
                Outcome::Token(lines.next().and_then(|value| value.parse().ok()).zip(token))
            }
            Operation::Cas(key, token, value) => {
                let (key, value) = (name(history, *key), value.to_string());
                let reply = self.memcached(&format!("cas {key} 0 0 {} {token}\r\n{value}\r\n", value.len()));
                Outcome::Did(match reply.as_str() {
                    "STORED\r\n" => Some(true),
                    "EXISTS\r\n" => Some(false),
                    "NOT_FOUND\r\n" => None,
                    other => panic!("{other}"),
                })
            }
            Operation::Watch(keys) => {
                let names: Vec<String> = keys.iter().map(|&key| name(history, key)).collect();
                let words: Vec<&[u8]> =
                    std::iter::once(&b"WATCH"[..]).chain(names.iter().map(|name| name.as_bytes())).collect();
                assert_eq!(self.redis(&[&words]), "+OK\r\n");
                Outcome::Done
            }
            Operation::Exec(writes) => {
                let texts: Vec<(String, String)> =
                    writes.iter().map(|(key, value)| (name(history, *key), value.to_string())).collect();
                let all: Vec<String> = (0..KEYS).map(|key| name(history, key)).collect();
                let mut requests: Vec<Vec<&[u8]>> = vec![vec![b"MULTI"]];
                requests.extend(
                    texts.iter().map(|(key, value)| vec![&b"SET"[..], key.as_bytes(), value.as_bytes()]),
                );
                requests.extend(all.iter().map(|key| vec![&b"GET"[..], key.as_bytes()]));
                requests.push(vec![b"EXEC"]);
                let requests: Vec<&[&[u8]]> = requests.iter().map(Vec::as_slice).collect();
                let reply = self.redis(&requests);
                let (_, reply) =
                    reply.split_at("+OK\r\n".len() + "+QUEUED\r\n".len() * (writes.len() + KEYS));
                if reply == "*-1\r\n" {
                    return Outcome::Exec(None);
                }
                let mut rest = &reply["*4\r\n".len() + "+OK\r\n".len() * writes.len()..];
                let values = (0..KEYS).map(|_| {
                    let (value, left) = bulk(rest);
                    rest = left;
                    value
                });
                Outcome::Exec(Some(values.collect()))
            }
        }
    }
}

#[test]
fn two_clients_of_both_protocols_see_one_order() {
    let local = Local::new(&[]).expect("a server");
    let sibling = local.sibling().expect("another worker");
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_121);
    let mut clients = [Both::new(local, 0x9a3c_55f0_1b2d_70e6), Both::new(sibling, 0x3c5a_0f96_e1d2_44b7)];
    let mut meetings = 0;
    for round in 0.. {
        let verdict = judge(&mut clients, round * HISTORIES, HISTORIES, seed + round);
        let bad = verdict.violations;
        assert!(
            bad.is_empty(),
            "SEED={}: {} of {HISTORIES}, the first: {:#?}",
            seed + round,
            bad.len(),
            bad[0]
        );
        meetings += verdict.overlapping.max(verdict.alternating);
        if meetings >= MEETINGS {
            break;
        }
        assert!(round < 200, "two threads meet now and then: {meetings} times");
    }
}

/// How a store can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Adds without holding what it read.
    LostIncrement,
    /// Now and then tells what was there before.
    StaleGet,
    /// Stores whatever the token.
    DeafCas,
    /// Does not look at what was watched.
    BlindExec,
    /// Lets others in between two writes.
    HalfExec,
    /// Does nothing although nothing was touched.
    TimidExec,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    value: Option<i64>,
    before: Option<i64>,
    token: u64,
    changes: u64,
}

type Table = Mutex<std::collections::HashMap<(u64, usize), Entry>>;

/// A store of a table and a lock, with a fault.
struct Simple {
    table: Arc<Table>,
    fault: Fault,
    watched: Vec<(usize, u64)>,
    asked: u64,
}

impl Simple {
    fn write(
        table: &mut std::collections::HashMap<(u64, usize), Entry>,
        at: (u64, usize),
        value: Option<i64>,
    ) {
        let all: u64 = table.values().map(|entry| entry.changes).sum();
        let entry = table.entry(at).or_default();
        *entry = Entry { value, before: entry.value, token: all + 1, changes: entry.changes + 1 };
    }
}

impl Client for Simple {
    fn ask(&mut self, history: u64, operation: &Operation) -> Outcome {
        self.asked += 1;
        let pause = || std::thread::yield_now();
        let mut table = self.table.lock().unwrap();
        // Only the keys of a history matter to it.
        table.retain(|(of, _), _| *of >= history);
        let entry = |table: &std::collections::HashMap<_, Entry>, key: usize| {
            table.get(&(history, key)).copied().unwrap_or_default()
        };
        match operation {
            Operation::Get(key) => {
                let entry = entry(&table, *key);
                let stale = self.fault == Fault::StaleGet && self.asked.is_multiple_of(5);
                Outcome::Value(if stale { entry.before } else { entry.value })
            }
            Operation::Set(key, value) => {
                Simple::write(&mut table, (history, *key), Some(*value));
                Outcome::Done
            }
            Operation::Incr(key) => {
                let value = entry(&table, *key).value.unwrap_or(0) + 1;
                if self.fault == Fault::LostIncrement {
                    drop(table);
                    pause();
                    table = self.table.lock().unwrap();
                }
                Simple::write(&mut table, (history, *key), Some(value));
                Outcome::Value(Some(value))
            }
            Operation::Delete(key) => {
                let there = entry(&table, *key).value.is_some();
                if there {
                    Simple::write(&mut table, (history, *key), None);
                }
                Outcome::Did(Some(there))
            }
            Operation::Gets(key) => {
                let entry = entry(&table, *key);
                Outcome::Token(entry.value.map(|value| (value, entry.token)))
            }
            Operation::Cas(key, token, value) => {
                let entry = entry(&table, *key);
                let holds = entry.token == *token || self.fault == Fault::DeafCas;
                if entry.value.is_some() && holds {
                    Simple::write(&mut table, (history, *key), Some(*value));
                }
                Outcome::Did(entry.value.map(|_| holds))
            }
            Operation::Watch(keys) => {
                self.watched.extend(keys.iter().map(|&key| (key, entry(&table, key).changes)));
                Outcome::Done
            }
            Operation::Exec(writes) => {
                let watched = std::mem::take(&mut self.watched);
                let touched = watched.iter().any(|&(key, changes)| entry(&table, key).changes != changes);
                if touched && self.fault != Fault::BlindExec
                    || self.fault == Fault::TimidExec && self.asked.is_multiple_of(5)
                {
                    return Outcome::Exec(None);
                }
                for &(key, value) in writes {
                    Simple::write(&mut table, (history, key), Some(value));
                    if self.fault == Fault::HalfExec {
                        drop(table);
                        pause();
                        table = self.table.lock().unwrap();
                    }
                }
                Outcome::Exec(Some((0..KEYS).map(|key| entry(&table, key).value).collect()))
            }
        }
    }
}

fn found(fault: Fault, histories: u64) -> usize {
    let table: Arc<Table> = Arc::default();
    let mut clients =
        [0, 1].map(|asked| Simple { table: Arc::clone(&table), fault, watched: Vec::new(), asked });
    judge(&mut clients, 0, histories, 7).violations.len()
}

#[test]
fn broken_store_is_found_out() {
    let faults = [
        Fault::LostIncrement,
        Fault::StaleGet,
        Fault::DeafCas,
        Fault::BlindExec,
        Fault::HalfExec,
        Fault::TimidExec,
    ];
    for fault in faults {
        // Who is on a busy machine may have to try more than once to meet the other.
        let found = (0..20).any(|_| found(fault, 1_000) > 0);
        assert!(found, "{fault:?} goes unnoticed");
    }
}

#[test]
fn simple_store_without_a_fault_is_right() {
    assert_eq!(found(Fault::None, 2_000), 0);
}
