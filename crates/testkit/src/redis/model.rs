//! Redis's rules as a map, written without looking at the server: what a client of RESP2 is told.
//!
//! Not here, and not asked: commands whose replies have no single right answer (SCAN, RANDOMKEY), and
//! those about the server. `commands` says which are here.

use super::words::{Fail, Words, error, integer};
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds since the Unix epoch.
pub type Millis = i64;
/// A database and a key.
pub(super) type Place = (i64, Vec<u8>);

/// A value.
#[derive(Clone, Debug, Default)]
pub struct Item {
    /// Its bytes.
    pub value: Vec<u8>,
    /// When it expires, if it does.
    pub expires_at: Option<Millis>,
    /// memcached's.
    pub flags: u32,
}

/// What a client has said that later replies depend on.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    pub db: i64,
    /// Commands since MULTI.
    pub queue: Option<Vec<Vec<Vec<u8>>>>,
    /// A command was refused since MULTI.
    pub spoiled: bool,
    /// Watched: how often each was changed then, and whether it was there.
    pub watched: BTreeMap<Place, (u64, bool)>,
}

/// All keys, and all clients.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub(super) now: Millis,
    pub(super) items: BTreeMap<Place, Item>,
    changes: BTreeMap<Place, u64>,
    clients: Vec<Client>,
}

/// Names, and how many words each takes; negative: at least so many.
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
    ("setbit", 4),
    ("getbit", 3),
    ("bitcount", -2),
    ("bitpos", -3),
    ("bitop", -4),
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
];

impl Model {
    /// Empty, at this time, with so many clients.
    pub fn new(now: Millis, clients: usize) -> Model {
        Model { now, clients: vec![Client::default(); clients], ..Model::default() }
    }

    /// Time passes.
    pub fn wait(&mut self, ms: Millis) {
        self.now += ms;
    }

    /// The model knows what is right for this.
    pub fn knows(&self, client: usize, words: &[Vec<u8>]) -> bool {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        // What has expired counts until it is found, which may be at any time.
        let settled = || {
            let live = |place| self.live(place).is_some();
            self.clients[client].queue.is_none() && self.items.keys().all(live)
        };
        COMMANDS.iter().any(|(known, _)| *known == name) && (name != "dbsize" || settled())
    }

    /// What a client is told that sends this.
    pub fn ask(&mut self, client: usize, words: &[Vec<u8>]) -> Vec<u8> {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        let (_, arity) = COMMANDS.iter().find(|(known, _)| *known == name).expect("the model knows it");
        let count = words.len() as i64;
        if !(count == *arity || *arity < 0 && count >= -arity) {
            let text = format!("wrong number of arguments for '{name}' command");
            if name == "exec" {
                self.clients[client] = Client { db: self.clients[client].db, ..Client::default() };
                return error(&format!("EXECABORT Transaction discarded because of: {text}"));
            }
            self.clients[client].spoiled |= self.clients[client].queue.is_some();
            return error(&format!("ERR {text}"));
        }
        if !matches!(name.as_str(), "multi" | "exec" | "discard" | "watch")
            && let Some(queue) = &mut self.clients[client].queue
        {
            queue.push(words.to_vec());
            return b"+QUEUED\r\n".to_vec();
        }
        self.carry_out(client, &name, &words[1..])
    }

    fn carry_out(&mut self, client: usize, name: &str, args: &[Vec<u8>]) -> Vec<u8> {
        let told = match name {
            "multi" | "exec" | "discard" | "watch" | "unwatch" => self.transaction(client, name, args),
            _ => {
                let mut words = Words { model: self, client, args };
                words.command(name)
            }
        };
        told.unwrap_or_else(|Fail(text)| error(&text))
    }

    fn transaction(&mut self, client: usize, name: &str, args: &[Vec<u8>]) -> Result<Vec<u8>, Fail> {
        let db = self.clients[client].db;
        let open = self.clients[client].queue.is_some();
        match name {
            "multi" if open => Fail::of("ERR MULTI calls can not be nested"),
            "multi" => {
                self.clients[client].queue = Some(Vec::new());
                Ok(b"+OK\r\n".to_vec())
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
                Ok(b"+OK\r\n".to_vec())
            }
            "unwatch" => {
                self.clients[client].watched.clear();
                Ok(b"+OK\r\n".to_vec())
            }
            _ => {
                let was = std::mem::take(&mut self.clients[client]);
                self.clients[client].db = db;
                if name == "discard" {
                    return Ok(b"+OK\r\n".to_vec());
                }
                if was.spoiled {
                    return Fail::of("EXECABORT Transaction discarded because of previous errors.");
                }
                let touched = was.watched.iter().any(|(place, (changes, there))| {
                    self.changed(place) != *changes || *there && self.live(place).is_none()
                });
                if touched {
                    return Ok(b"*-1\r\n".to_vec());
                }
                let queue = was.queue.unwrap_or_default();
                let mut told = format!("*{}\r\n", queue.len()).into_bytes();
                for words in queue {
                    let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
                    told.extend(self.carry_out(client, &name, &words[1..]));
                }
                Ok(told)
            }
        }
    }

    pub(super) fn client(&mut self, client: usize) -> &mut Client {
        &mut self.clients[client]
    }

    fn changed(&self, place: &Place) -> u64 {
        self.changes.get(place).copied().unwrap_or(0)
    }

    /// The item, unless its time has come.
    pub(super) fn live(&self, place: &Place) -> Option<&Item> {
        self.items.get(place).filter(|item| item.expires_at.is_none_or(|at| at > self.now))
    }

    pub(super) fn touch(&mut self, place: &Place) {
        *self.changes.entry(place.clone()).or_default() += 1;
    }

    /// Stores, and tells who watches. What has expired already is removed instead.
    pub(super) fn put(&mut self, place: &Place, item: Item) {
        self.touch(place);
        self.items.insert(place.clone(), item);
        if self.live(place).is_none() {
            self.items.remove(place);
        }
    }

    pub(super) fn remove(&mut self, place: &Place) -> Option<Item> {
        let there = self.live(place).is_some();
        let item = self.items.remove(place);
        if !there {
            return None;
        }
        self.touch(place);
        item
    }

    pub(super) fn places(&self, db: Option<i64>) -> Vec<Place> {
        let wanted = |place: &&Place| db.is_none_or(|db| place.0 == db) && self.live(place).is_some();
        self.items.keys().filter(wanted).cloned().collect()
    }

    pub(super) fn swap(&mut self, one: i64, two: i64) {
        if one == two {
            return;
        }
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

    /// A memcached client's line (and value), in database 0, if the model knows what is right for it.
    pub fn ask_memcached(
        &mut self,
        verb: &str,
        key: &[u8],
        value: &[u8],
        n: u64,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let place = (0, key.to_vec());
        let name = String::from_utf8_lossy(key).into_owned();
        let there = self.live(&place).cloned();
        let line = |text: String| format!("{text}\r\n").into_bytes();
        Some(match verb {
            "get" => {
                let told = match there {
                    Some(item) => [
                        format!("VALUE {name} {} {}\r\n", item.flags, item.value.len()).as_bytes(),
                        &item.value,
                        b"\r\nEND\r\n",
                    ]
                    .concat(),
                    None => b"END\r\n".to_vec(),
                };
                (line(format!("get {name}")), told)
            }
            "delete" => {
                let told = if self.remove(&place).is_some() { "DELETED" } else { "NOT_FOUND" };
                (line(format!("delete {name}")), line(told.into()))
            }
            "touch" => {
                let seconds = 100 + n as i64;
                if let Some(mut item) = there.clone() {
                    item.expires_at = Some(self.now + seconds * 1000);
                    self.put(&place, item);
                }
                let told = if there.is_some() { "TOUCHED" } else { "NOT_FOUND" };
                (line(format!("touch {name} {seconds}")), line(told.into()))
            }
            "incr" | "decr" => {
                let sent = line(format!("{verb} {name} {n}"));
                let Some(mut item) = there else { return Some((sent, line("NOT_FOUND".into()))) };
                let width = item.value.len();
                if width == 0 || width > 19 || !item.value.iter().all(u8::is_ascii_digit) {
                    return None;
                }
                let old: u64 = String::from_utf8_lossy(&item.value).parse().ok()?;
                let new = if verb == "incr" { old.wrapping_add(n) } else { old.saturating_sub(n) };
                item.value = format!("{new:<width$}").into_bytes();
                self.put(&place, item);
                (sent, line(new.to_string()))
            }
            "set" | "add" | "replace" | "append" | "prepend" => {
                let flags = n as u32;
                let head = format!("{verb} {name} {flags} 0 {}\r\n", value.len());
                let sent = [head.as_bytes(), value, b"\r\n"].concat();
                let holds = match verb {
                    "set" => true,
                    "add" => there.is_none(),
                    _ => there.is_some(),
                };
                if !holds {
                    return Some((sent, line("NOT_STORED".into())));
                }
                let item = match (verb, there) {
                    ("append", Some(item)) => Item { value: [&item.value, value].concat(), ..item },
                    ("prepend", Some(item)) => Item { value: [value, &item.value].concat(), ..item },
                    _ => Item { value: value.to_vec(), expires_at: None, flags },
                };
                self.put(&place, item);
                (sent, line("STORED".into()))
            }
            _ => return None,
        })
    }
}

/// A number that a value holds: Redis's rules, but for the spaces memcached leaves behind one.
pub(super) fn number_of(value: &[u8]) -> Result<i64, Fail> {
    let end = value.iter().rposition(|byte| *byte != b' ').map_or(0, |at| at + 1);
    integer(if end > 0 { &value[..end] } else { value })
}
