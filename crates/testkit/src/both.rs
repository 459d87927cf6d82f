//! A client of histories ([`crate::history`]) that speaks both protocols to sessions without sockets.

use crate::history::{Client, KEYS, Operation, Outcome};
use crate::local::{Local, LocalConnection};
use crate::talk::encode;

/// A thread's worker with a connection of each protocol.
#[derive(Debug)]
pub struct Both {
    local: Local,
    redis: LocalConnection,
    memcached: LocalConnection,
    /// Each bit chooses, for one operation that both connections can make, which of them makes it.
    turn: u64,
}

impl Both {
    /// `turn`: each bit chooses, for one operation that both connections can make, which of them makes it.
    pub fn new(local: Local, turn: u64) -> Both {
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

/// Splits a reply that begins with `$1 7` or `$-1` into that value and the rest.
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
                // The meta command creates a missing number, beginning with 1.
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
