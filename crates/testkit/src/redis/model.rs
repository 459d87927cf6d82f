//! Redis's rules as a map, written without looking at the server: the replies to a client of RESP2 or RESP3.
//!
//! `COMMANDS` has the commands of the model, `LEFT_OUT` those that it lacks, and why: every command of the server's table is in
//! one of the two. If Redis leaves a choice (the order of KEYS, the steps of SCAN), a [`Reply`] has all that is right.
//! memcached's commands on the same keys: `memcached.rs`.

use super::reply::{Reply, error};
use super::scripts::Scripts;
use super::words::{Answer, Fail, Words, integer};
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds since the Unix epoch.
pub type Millis = i64;
/// A database and a key.
pub(super) type DbKey = (i64, Vec<u8>);

/// A value.
#[derive(Clone, Debug, Default)]
pub struct Item {
    /// Its bytes.
    pub value: Vec<u8>,
    /// When it expires, if it does.
    pub expires_at: Option<Millis>,
    /// memcached's client flags.
    pub flags: u32,
    /// Number of this value, over all keys: what memcached's tokens stand for.
    pub version: u64,
    /// memcached clients are told that it is stale.
    pub(super) stale: bool,
    pub(super) token_sent: bool,
    /// Whether it was read; `None` if that is unknown.
    pub(super) fetched: Option<bool>,
}

/// The state of a client that later replies depend on.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    pub db: i64,
    pub resp3: bool,
    pub name: Vec<u8>,
    /// Commands since MULTI.
    pub queue: Option<Vec<Vec<Vec<u8>>>>,
    /// A command was refused since MULTI.
    pub spoiled: bool,
    /// Watched keys: how often each had changed at WATCH, and whether it existed.
    pub watched: BTreeMap<DbKey, (u64, bool)>,
    /// `Some` in EXEC: whether a password was wrong. After a wrong one no password is right.
    pub was_wrong: Option<bool>,
}

/// All keys, and all clients.
#[derive(Debug)]
pub struct Model {
    pub(super) now: Millis,
    pub(super) items: BTreeMap<DbKey, Item>,
    changes: BTreeMap<DbKey, u64>,
    clients: Vec<Client>,
    pub(super) memcached: crate::model::Model,
    pub(super) scripts: Scripts,
}

/// Names, and the number of words of each; negative: at least so many.
const COMMANDS: &[(&str, i64)] = &[
    ("get", 2),
    ("set", -3),
    ("mget", -2),
    ("getset", 3),
    ("getdel", 2),
    ("getex", -2),
    ("setnx", 3),
    ("setex", 4),
    ("psetex", 4),
    ("strlen", 2),
    ("append", 3),
    ("getrange", 4),
    ("substr", 4),
    ("setrange", 4),
    ("incr", 2),
    ("decr", 2),
    ("incrby", 3),
    ("decrby", 3),
    ("mset", -3),
    ("msetnx", -3),
    ("msetex", -4),
    ("incrbyfloat", 3),
    ("lcs", -3),
    ("del", -2),
    ("unlink", -2),
    ("exists", -2),
    ("touch", -2),
    ("type", 2),
    ("expire", -3),
    ("pexpire", -3),
    ("expireat", -3),
    ("pexpireat", -3),
    ("ttl", 2),
    ("pttl", 2),
    ("expiretime", 2),
    ("pexpiretime", 2),
    ("persist", 2),
    ("rename", 3),
    ("renamenx", 3),
    ("copy", -3),
    ("move", 3),
    ("dump", 2),
    ("restore", -4),
    ("scan", -2),
    ("keys", 2),
    ("randomkey", 1),
    ("object|encoding", 3),
    ("object|refcount", 3),
    ("delex", -2),
    ("delifeq", 3),
    ("cl.throttle", -5),
    ("wait", 3),
    ("setbit", 4),
    ("getbit", 3),
    ("bitcount", -2),
    ("bitpos", -3),
    ("bitop", -4),
    ("bitfield", -2),
    ("bitfield_ro", -2),
    ("multi", 1),
    ("exec", 1),
    ("discard", 1),
    ("watch", -2),
    ("unwatch", 1),
    ("select", 2),
    ("swapdb", 3),
    ("dbsize", 1),
    ("flushdb", -1),
    ("flushall", -1),
    ("ping", -1),
    ("echo", 2),
    ("hello", -1),
    ("auth", -2),
    ("reset", 1),
    ("client|getname", 2),
    ("eval", -3),
    ("eval_ro", -3),
    ("evalsha", -3),
    ("evalsha_ro", -3),
    ("fcall", -3),
    ("fcall_ro", -3),
    ("script|load", 3),
    ("script|exists", -3),
    ("script|flush", -2),
    ("function|load", -3),
];

/// Commands of the server that the model lacks, in all or in some subcommands, and why.
pub const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "what they say of keys depends on memory and clocks, not on what was asked",
        &["object", "memory", "debug"],
    ),
    (
        "what arrives depends on others: redis_pubsub.rs, and transcripts",
        &[
            "subscribe",
            "unsubscribe",
            "psubscribe",
            "punsubscribe",
            "ssubscribe",
            "sunsubscribe",
            "publish",
            "spublish",
            "pubsub",
            "monitor",
        ],
    ),
    (
        "they speak of the server, not of keys: transcripts",
        &[
            "time",
            "info",
            "command",
            "config",
            "slowlog",
            "commandlog",
            "hotkeys",
            "latency",
            "role",
            "lastsave",
            "client",
            "acl",
            "cluster",
            "readonly",
            "readwrite",
            "asking",
            "module",
            "save",
            "bgsave",
            "bgrewriteaof",
        ],
    ),
    ("nothing can be asked afterwards: transcripts", &["quit", "shutdown"]),
    (
        "they wait for others: resp_block.txt, redis_blocking.rs",
        &[
            "blpop",
            "brpop",
            "blmove",
            "brpoplpush",
            "blmpop",
            "bzpopmin",
            "bzpopmax",
            "bzmpop",
            "xread",
            "xreadgroup",
        ],
    ),
    (
        "estimates and their bytes: transcripts, and streams that Redis itself is asked",
        &["pfadd", "pfcount", "pfmerge", "pfdebug"],
    ),
    (
        "streams: a model of their own in the store, transcripts, and what Redis itself is asked",
        &[
            "xack",
            "xadd",
            "xautoclaim",
            "xclaim",
            "xdel",
            "xgroup",
            "xinfo",
            "xlen",
            "xpending",
            "xrange",
            "xrevrange",
            "xsetid",
            "xtrim",
        ],
    ),
    (
        "elements of collections: transcripts, and streams that Redis itself is asked",
        &[
            "geoadd",
            "geodist",
            "geohash",
            "geopos",
            "georadius",
            "georadius_ro",
            "georadiusbymember",
            "georadiusbymember_ro",
            "geosearch",
            "geosearchstore",
            "hdel",
            "hexists",
            "hexpire",
            "hexpireat",
            "hexpiretime",
            "hget",
            "hgetall",
            "hgetdel",
            "hgetex",
            "hincrby",
            "hincrbyfloat",
            "hkeys",
            "hlen",
            "hmget",
            "hmset",
            "hpersist",
            "hpexpire",
            "hpexpireat",
            "hpexpiretime",
            "hpttl",
            "hrandfield",
            "hscan",
            "hset",
            "hsetex",
            "hsetnx",
            "hstrlen",
            "httl",
            "hvals",
            "lindex",
            "linsert",
            "llen",
            "lmove",
            "lmpop",
            "lpop",
            "lpos",
            "lpush",
            "lpushx",
            "lrange",
            "lrem",
            "lset",
            "ltrim",
            "rpop",
            "rpoplpush",
            "rpush",
            "rpushx",
            "sadd",
            "scard",
            "sdiff",
            "sdiffstore",
            "sinter",
            "sintercard",
            "sinterstore",
            "sismember",
            "smembers",
            "smismember",
            "smove",
            "sort",
            "sort_ro",
            "spop",
            "srandmember",
            "srem",
            "sscan",
            "sunion",
            "sunionstore",
            "zadd",
            "zcard",
            "zcount",
            "zdiff",
            "zdiffstore",
            "zincrby",
            "zinter",
            "zintercard",
            "zinterstore",
            "zlexcount",
            "zmpop",
            "zmscore",
            "zpopmax",
            "zpopmin",
            "zrandmember",
            "zrange",
            "zrangebylex",
            "zrangebyscore",
            "zrangestore",
            "zrank",
            "zrem",
            "zremrangebylex",
            "zremrangebyrank",
            "zremrangebyscore",
            "zrevrange",
            "zrevrangebylex",
            "zrevrangebyscore",
            "zrevrank",
            "zscan",
            "zscore",
            "zunion",
            "zunionstore",
        ],
    ),
];

impl Model {
    /// An empty model at this time, with this many clients.
    pub fn new(now: Millis, clients: usize) -> Model {
        Model {
            now,
            items: BTreeMap::new(),
            changes: BTreeMap::new(),
            clients: vec![Client::default(); clients],
            memcached: crate::model::Model::new(now as u64),
            scripts: Scripts::default(),
        }
    }

    /// Lets time pass.
    pub fn wait(&mut self, ms: Millis) {
        self.now += ms;
    }

    /// Whether the model knows the right reply to this request.
    pub fn knows(&self, client: usize, words: &[Vec<u8>]) -> bool {
        let (name, _) = named(words);
        // An expired key counts until it is found, which may be at any time.
        let all_live = || {
            let live = |place| self.live(place).is_some();
            self.clients[client].queue.is_none() && self.items.keys().all(live)
        };
        COMMANDS.iter().any(|(known, _)| *known == name)
            && (name != "dbsize" || all_live())
            && Model::knows_script(&name, words)
    }

    /// Whether the client is in MULTI, so that its commands are queued.
    pub fn queues(&self, client: usize) -> bool {
        self.clients[client].queue.is_some()
    }

    /// The right reply to this request of a client.
    pub fn ask(&mut self, client: usize, words: &[Vec<u8>]) -> Reply {
        let (name, skip) = named(words);
        // The model does not check whether a value was read before.
        self.items.values_mut().for_each(|item| item.fetched = None);
        let (_, arity) = COMMANDS.iter().find(|(known, _)| *known == name).expect("the model knows it");
        let count = words.len() as i64;
        if !(count == *arity || *arity < 0 && count >= -arity) {
            let text = format!("wrong number of arguments for '{name}' command");
            if name == "exec" {
                self.take_transaction(client);
                return error(&format!("EXECABORT Transaction discarded because of: {text}")).into();
            }
            self.clients[client].spoiled |= self.clients[client].queue.is_some();
            return error(&format!("ERR {text}")).into();
        }
        if !matches!(name.as_str(), "multi" | "exec" | "discard" | "watch" | "reset")
            && let Some(queue) = &mut self.clients[client].queue
        {
            queue.push(words.to_vec());
            return b"+QUEUED\r\n".to_vec().into();
        }
        self.carry_out(client, &name, &words[skip..])
    }

    fn carry_out(&mut self, client: usize, name: &str, args: &[Vec<u8>]) -> Reply {
        let told = match name {
            "multi" | "exec" | "discard" | "watch" | "unwatch" => self.transaction(client, name, args),
            "eval" | "eval_ro" | "evalsha" | "evalsha_ro" | "fcall" | "fcall_ro" => {
                self.script(client, name, args)
            }
            _ if name.starts_with("script|") || name.starts_with("function|") => {
                self.script(client, name, args)
            }
            _ => {
                let mut words = Words { model: self, client, args };
                words.command(name)
            }
        };
        told.unwrap_or_else(|Fail(text)| error(&text).into())
    }

    /// The right reply to a command that a script calls.
    pub(super) fn ask_in_script(&mut self, client: usize, words: &[Vec<u8>]) -> Reply {
        let (name, skip) = named(words);
        let arity = COMMANDS.iter().find(|(known, _)| *known == name).map(|(_, arity)| *arity);
        let count = words.len() as i64;
        if arity.is_none_or(|arity| count != arity && (arity > 0 || count < -arity)) {
            return error("ERR Wrong number of args calling Redis command from script").into();
        }
        self.carry_out(client, &name, &words[skip..])
    }

    /// Takes the client's queue and watched keys out of it, and keeps the rest of the client.
    fn take_transaction(&mut self, client: usize) -> Client {
        let client = &mut self.clients[client];
        let Client { db, resp3, ref name, .. } = *client;
        let left = Client { db, resp3, name: name.clone(), ..Client::default() };
        std::mem::replace(client, left)
    }

    fn transaction(&mut self, client: usize, name: &str, args: &[Vec<u8>]) -> Answer {
        let ok = || Ok(b"+OK\r\n".to_vec().into());
        let db = self.clients[client].db;
        let open = self.clients[client].queue.is_some();
        match name {
            "multi" if open => Fail::of("ERR MULTI calls can not be nested"),
            "multi" => {
                self.clients[client].queue = Some(Vec::new());
                ok()
            }
            "discard" if !open => Fail::of("ERR DISCARD without MULTI"),
            "exec" if !open => Fail::of("ERR EXEC without MULTI"),
            "watch" if open => Fail::of("ERR WATCH inside MULTI is not allowed"),
            "watch" => {
                for key in args {
                    let place = (db, key.clone());
                    let seen = (self.changed(&place), self.live(&place).is_some());
                    self.clients[client].watched.entry(place).or_insert(seen);
                }
                ok()
            }
            "unwatch" => {
                self.clients[client].watched.clear();
                ok()
            }
            _ => {
                let was = self.take_transaction(client);
                if name == "discard" {
                    return ok();
                }
                if was.spoiled {
                    return Fail::of("EXECABORT Transaction discarded because of previous errors.");
                }
                let touched = was.watched.iter().any(|(place, (changes, there))| {
                    self.changed(place) != *changes || *there && self.live(place).is_none()
                });
                if touched {
                    return Ok(if was.resp3 { b"_\r\n".to_vec() } else { b"*-1\r\n".to_vec() }.into());
                }
                let queue = was.queue.unwrap_or_default();
                let mut told = vec![Reply::Bytes(format!("*{}\r\n", queue.len()).into_bytes())];
                self.clients[client].was_wrong = Some(false);
                for words in queue {
                    let (name, skip) = named(&words);
                    told.push(self.carry_out(client, &name, &words[skip..]));
                }
                self.clients[client].was_wrong = None;
                Ok(Reply::Several(told))
            }
        }
    }

    pub(super) fn client(&mut self, client: usize) -> &mut Client {
        &mut self.clients[client]
    }

    fn changed(&self, place: &DbKey) -> u64 {
        self.changes.get(place).copied().unwrap_or(0)
    }

    /// The item, unless it has expired.
    pub(super) fn live(&self, place: &DbKey) -> Option<&Item> {
        self.items.get(place).filter(|item| item.expires_at.is_none_or(|at| at > self.now))
    }

    pub(super) fn touch(&mut self, place: &DbKey) {
        *self.changes.entry(place.clone()).or_default() += 1;
    }

    /// Stores a new value, which counts as a change of a watched key. A value that has expired already is
    /// removed instead.
    pub(super) fn put(&mut self, place: &DbKey, item: Item) {
        let version = self.memcached.version();
        self.keep(place, Item { version, stale: false, token_sent: false, fetched: None, ..item });
    }

    /// As [`Model::put`], for a value that existed and stays.
    pub(super) fn keep(&mut self, place: &DbKey, item: Item) {
        self.touch(place);
        self.items.insert(place.clone(), item);
        if self.live(place).is_none() {
            self.items.remove(place);
        }
    }

    pub(super) fn remove(&mut self, place: &DbKey) -> Option<Item> {
        let there = self.live(place).is_some();
        let item = self.items.remove(place);
        if !there {
            return None;
        }
        self.touch(place);
        item
    }

    pub(super) fn places(&self, db: Option<i64>) -> Vec<DbKey> {
        let wanted = |place: &&DbKey| db.is_none_or(|db| place.0 == db) && self.live(place).is_some();
        self.items.keys().filter(wanted).cloned().collect()
    }

    pub(super) fn swap(&mut self, one: i64, two: i64) {
        if one == two {
            return;
        }
        self.memcached.forget_shown();
        let both = [self.places(Some(one)), self.places(Some(two))].concat();
        let keys: BTreeSet<Vec<u8>> = both.into_iter().map(|(_, key)| key).collect();
        for key in keys {
            let (a, b) = ((one, key.clone()), (two, key));
            let (of_a, of_b) = (self.items.remove(&a), self.items.remove(&b));
            self.touch(&a);
            self.touch(&b);
            if let Some(item) = of_a {
                self.items.insert(b, item);
            }
            if let Some(item) = of_b {
                self.items.insert(a, item);
            }
        }
    }
}

/// The number in a value, by Redis's rules; but spaces behind it are allowed, since memcached leaves some.
pub(super) fn number_of(value: &[u8]) -> Result<i64, Fail> {
    let end = value.iter().rposition(|byte| *byte != b' ').map_or(0, |at| at + 1);
    integer(if end > 0 { &value[..end] } else { value })
}

/// A command's name, a container's with that of its subcommand, and where its arguments begin.
fn named(words: &[Vec<u8>]) -> (String, usize) {
    let lower = |word: &Vec<u8>| String::from_utf8_lossy(word).to_ascii_lowercase();
    let name = lower(&words[0]);
    match words.get(1).map(lower) {
        Some(sub) if matches!(name.as_str(), "object" | "client" | "script" | "function") => {
            (format!("{name}|{sub}"), 2)
        }
        _ => (name, 1),
    }
}

/// Names of the commands that are here; of containers, the part in front.
pub fn known() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(name, _)| name.split('|').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_commands::redis::table::REDIS;

    #[test]
    fn every_command_is_here_or_left_out_for_a_reason() {
        let names = || REDIS.iter().flat_map(|group| group.rows).map(|row| row.name);
        let left_out = || LEFT_OUT.iter().flat_map(|(_, names)| names.iter().copied());
        for name in names() {
            assert!(known().chain(left_out()).any(|other| other == name), "nothing is said of {name}");
        }
        for name in known().chain(left_out()) {
            assert!(names().any(|other| other == name), "{name} is no command");
        }
    }
}
