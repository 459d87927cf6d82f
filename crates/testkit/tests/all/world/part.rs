//! A reply in the order of its bytes: parts that are known, that depend on a key, or that are checked when they arrive.

use std::net::SocketAddr;

pub use larder_testkit::talk::encode as words;

use crate::world::bank::{Query, Since};
use crate::world::model::{Answer, Verb};
use crate::world::shared::Ask;
use crate::world::user::Change;
use crate::world::users::Stamp;

/// The dialect of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Classic,
    Meta,
    Resp2,
    Resp3,
}

impl Dialect {
    /// RESP of either version.
    pub fn is_resp(self) -> bool {
        matches!(self, Dialect::Resp2 | Dialect::Resp3)
    }
}

/// How the reply to a verb is written.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub dialect: Dialect,
    /// Verbs without need of a reply get none (`noreply`, `q`).
    pub quiet: bool,
    /// Meta's `O`.
    pub opaque: u64,
}

/// Commands on shared keys, which several clients read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contest {
    /// `gets`, or `WATCH` and `GET`: the number, and the token.
    Read,
    /// `cas`, or `EXEC`: whether this client was the first.
    Write,
}

/// A part of a reply.
#[derive(Clone, Debug)]
pub enum Part {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The reply of one of the client's keys.
    Key { key: usize, verb: Verb, form: Form, doubtful: bool, asked_at: u64 },
    /// The new value of a shared counter.
    Count { counter: usize, by: u64, before: u64 },
    /// The reply of a contended key.
    Contest { key: usize, what: Contest },
    /// The names of the client's keys, in any order.
    Names { doubtful: bool, asked_at: u64 },
    /// The length of a list to which `count` elements were pushed; the first has the number `first`.
    Pushed { first: u64, count: usize },
    /// An element of the first of these lists that has one. `waits`: the request blocks if all are empty.
    Popped { lists: Vec<usize>, waits: bool, asked: u64 },
    /// How many clients received a message.
    Published(u64),
    /// Any line.
    Line,
    /// Lines up to END, or up to one that does not begin with STAT.
    Lines,
    /// Any bulk string.
    Bulk,
    /// The reply to a flush that is done.
    Flushed,
    /// How many connections with this address were closed.
    Killed(SocketAddr),
    /// The reply to HELLO: a map of seven entries. `logs_in`: HELLO has a password, and may be delayed by an
    /// earlier wrong one.
    Hello { logs_in: bool },
    /// The refusal of a request that the client's user may not make.
    Refused(Vec<u8>),
    /// The reply to a login; `right`: the password was right when the request was queued.
    Login { right: bool, stamp: Stamp },
    /// The reply for the key that is lent to the client: its new number, or that it does not exist.
    Lent { add: Option<(u64, u64)>, stamp: Stamp },
    /// The reply to a change of a user. `address`: the client's connection, which ends with the user's
    /// removal.
    Changed { client: usize, change: Change, address: Option<SocketAddr> },
    /// A part about accounts.
    Bank { told: Query, since: Since },
    /// Whether scripts were killed.
    ScriptsKilled,
    /// A reply about a collection to which other clients write, too.
    Shared(Ask),
    /// The reply to a subscription.
    Subscribed { subscription: usize, reply: Vec<u8> },
}

/// A bulk string.
pub fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

const NO_MEMORY: &str = "SERVER_ERROR out of memory storing object\r\n";
const NO_MEMORY_FOR_THE_REST: &str = "SERVER_ERROR Out of memory during read\r\n";
const NO_MEMORY_TO_SEND: &str = "SERVER_ERROR out of memory writing get response\r\n";
const NOT_A_NUMBER: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

impl Form {
    /// The bytes of a reply.
    pub fn bytes(&self, name: &str, verb: &Verb, answer: &Answer) -> Vec<u8> {
        match self.dialect {
            Dialect::Classic => self.classic(name, verb, answer),
            Dialect::Meta => self.meta(name, verb, answer),
            Dialect::Resp2 | Dialect::Resp3 => self.resp(verb, answer),
        }
    }

    fn classic(&self, name: &str, verb: &Verb, answer: &Answer) -> Vec<u8> {
        if self.quiet {
            return Vec::new();
        }
        let text = match (verb, answer) {
            (_, Answer::Value(item)) => {
                let head = format!("VALUE {name} {} {}\r\n", item.flags, item.value.len());
                return [head.as_bytes(), &item.value, b"\r\n"].concat();
            }
            (Verb::Get, Answer::Nothing) => "",
            (Verb::Get, Answer::Refused) => NO_MEMORY_TO_SEND,
            (Verb::Delete, Answer::Done) => "DELETED\r\n",
            (_, Answer::Done) => "STORED\r\n",
            (_, Answer::Not) => "NOT_STORED\r\n",
            (_, Answer::Nothing) => "NOT_FOUND\r\n",
            (_, Answer::Number(number)) => return format!("{number}\r\n").into_bytes(),
            (_, Answer::NoNumber) => NOT_A_NUMBER,
            (_, Answer::Refused) => NO_MEMORY,
            (_, Answer::Broken) => NO_MEMORY_FOR_THE_REST,
        };
        text.into()
    }

    fn meta(&self, name: &str, verb: &Verb, answer: &Answer) -> Vec<u8> {
        let opaque = self.opaque;
        let code = match (verb, answer) {
            (Verb::Get, Answer::Value(item)) => {
                let head = format!("VA {} k{name} f{} O{opaque}\r\n", item.value.len(), item.flags);
                return [head.as_bytes(), &item.value, b"\r\n"].concat();
            }
            (Verb::Get, Answer::Nothing) if self.quiet => return Vec::new(),
            (Verb::Get, Answer::Nothing) => "EN",
            (Verb::Get, Answer::Refused) => return NO_MEMORY_TO_SEND.into(),
            (Verb::Plus(_), Answer::Number(number)) => {
                let number = number.to_string();
                return format!("VA {} k{name} O{opaque}\r\n{number}\r\n", number.len()).into_bytes();
            }
            (_, Answer::NoNumber) => return NOT_A_NUMBER.into(),
            (_, Answer::Refused) => return NO_MEMORY.into(),
            (_, Answer::Broken) => return NO_MEMORY_FOR_THE_REST.into(),
            (_, Answer::Done) if self.quiet => return Vec::new(),
            (_, Answer::Done) => "HD",
            (_, Answer::Not) => "NS",
            (_, Answer::Nothing) => "NF",
            (_, Answer::Value(_) | Answer::Number(_)) => unreachable!("meta has no such command"),
        };
        format!("{code} k{name} O{opaque}\r\n").into_bytes()
    }

    fn resp(&self, verb: &Verb, answer: &Answer) -> Vec<u8> {
        let nil = if self.dialect == Dialect::Resp3 { "_\r\n" } else { "$-1\r\n" };
        let text = match (verb, answer) {
            (_, Answer::Value(item)) => return bulk(&item.value),
            (_, Answer::Number(number)) => return format!(":{number}\r\n").into_bytes(),
            (Verb::Delete, Answer::Done) => ":1\r\n",
            (Verb::Delete, Answer::Nothing) => ":0\r\n",
            (_, Answer::Done) => "+OK\r\n",
            (_, Answer::Nothing | Answer::Not) => nil,
            (_, Answer::NoNumber) => "-ERR value is not an integer or out of range\r\n",
            (Verb::Get, Answer::Refused) => "-OOM connections hold as much memory as they may\r\n",
            (_, Answer::Refused | Answer::Broken) => {
                "-OOM command not allowed when used memory > 'maxmemory'.\r\n"
            }
        };
        text.into()
    }
}
