//! The commands of the [`Model`]: what each does to the map, and what it replies.

use super::bits::bit_offset;
use super::model::{Item, Model, Place, number_of};

/// An error reply.
#[derive(Clone, Debug)]
pub(super) struct Fail(pub String);

pub(super) type Told = Result<Vec<u8>, Fail>;

impl Fail {
    pub fn of<T>(text: &str) -> Result<T, Fail> {
        Err(Fail(text.to_owned()))
    }
}

pub(super) const SYNTAX: &str = "ERR syntax error";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const OUT_OF_I32: &str = "ERR value is out of range, value must between -2147483648 and 2147483647";
pub(super) const BYTES_MAX: i64 = 32 << 20;

/// A command that is carried out.
pub(super) struct Words<'m> {
    pub model: &'m mut Model,
    pub client: usize,
    pub args: &'m [Vec<u8>],
}

pub(super) fn error(text: &str) -> Vec<u8> {
    format!("-{}\r\n", text.trim_end_matches(['\r', '\n']).replace(['\r', '\n'], " ")).into_bytes()
}

fn ok() -> Told {
    Ok(b"+OK\r\n".to_vec())
}

pub(super) fn int(n: i64) -> Told {
    Ok(format!(":{n}\r\n").into_bytes())
}

fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

fn maybe(value: Option<&[u8]>) -> Vec<u8> {
    value.map_or(b"$-1\r\n".to_vec(), bulk)
}

/// A number as Redis writes it, and no other.
pub(super) fn integer(text: &[u8]) -> Result<i64, Fail> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    match parsed {
        Some(n) if n.to_string().as_bytes() == text => Ok(n),
        _ => Fail::of(NO_INTEGER),
    }
}

/// What a SET or GETEX does with an expiry.
enum Expiry {
    None,
    Keep,
    Persist,
    /// Option and number.
    At(String, Vec<u8>),
}

impl Words<'_> {
    pub(super) fn place(&mut self, at: usize) -> Place {
        (self.model.client(self.client).db, self.args[at].clone())
    }

    pub(super) fn item(&mut self, at: usize) -> Option<Item> {
        let place = self.place(at);
        self.model.live(&place).cloned()
    }

    pub(super) fn number(&self, at: usize) -> Result<i64, Fail> {
        integer(&self.args[at])
    }

    pub(super) fn option(&self, at: usize) -> String {
        String::from_utf8_lossy(&self.args[at]).to_ascii_uppercase()
    }

    pub(super) fn value(&mut self, at: usize) -> Vec<u8> {
        self.item(at).map(|item| item.value).unwrap_or_default()
    }

    pub fn command(&mut self, name: &str) -> Told {
        match name {
            "get" => Ok(maybe(self.item(0).map(|item| item.value).as_deref())),
            "set" => self.set(),
            "mget" => {
                let mut told = format!("*{}\r\n", self.args.len()).into_bytes();
                for at in 0..self.args.len() {
                    told.extend(maybe(self.item(at).map(|item| item.value).as_deref()));
                }
                Ok(told)
            }
            "getset" => {
                let told = maybe(self.item(0).map(|item| item.value).as_deref());
                self.store(0, self.args[1].clone(), None);
                Ok(told)
            }
            "getdel" => {
                let place = self.place(0);
                Ok(maybe(self.model.remove(&place).map(|item| item.value).as_deref()))
            }
            "getex" => self.getex(),
            "setnx" => {
                let free = self.item(0).is_none();
                if free {
                    self.store(0, self.args[1].clone(), None);
                }
                int(free.into())
            }
            "setex" | "psetex" => {
                let unit = if name == "setex" { "EX" } else { "PX" };
                let at = self.deadline(name, unit, &self.args[1].clone())?;
                self.store(0, self.args[2].clone(), Some(at));
                ok()
            }
            "strlen" => int(self.value(0).len() as i64),
            "append" => {
                let mut item = self.item(0).unwrap_or_default();
                item.value.extend_from_slice(&self.args[1]);
                let length = item.value.len();
                let place = self.place(0);
                self.model.put(&place, item);
                int(length as i64)
            }
            "getrange" | "substr" => {
                let (start, end) = (self.number(1)?, self.number(2)?);
                let value = self.value(0);
                Ok(bulk(range(&value, start, end)))
            }
            "setrange" => self.setrange(),
            "incr" => self.add(1),
            "decr" => self.add(-1),
            "incrby" => self.number(1).and_then(|n| self.add(n)),
            "decrby" => match self.number(1)? {
                i64::MIN => Fail::of("ERR decrement would overflow"),
                n => self.add(-n),
            },
            "mset" | "msetnx" => {
                if self.args.len() % 2 == 1 {
                    return Fail::of(&format!("ERR wrong number of arguments for '{name}' command"));
                }
                let keys = (0..self.args.len()).step_by(2);
                if name == "msetnx" && keys.clone().any(|at| self.item(at).is_some()) {
                    return int(0);
                }
                keys.for_each(|at| self.store(at, self.args[at + 1].clone(), None));
                if name == "mset" { ok() } else { int(1) }
            }
            "del" | "unlink" => {
                let removed = (0..self.args.len()).filter(|&at| {
                    let place = (self.model.client(self.client).db, self.args[at].clone());
                    self.model.remove(&place).is_some()
                });
                int(removed.count() as i64)
            }
            "exists" | "touch" => {
                let there = (0..self.args.len()).filter(|&at| {
                    let place = (self.model.client(self.client).db, self.args[at].clone());
                    self.model.live(&place).is_some()
                });
                int(there.count() as i64)
            }
            "type" => {
                Ok(if self.item(0).is_some() { b"+string\r\n".to_vec() } else { b"+none\r\n".to_vec() })
            }
            "expire" | "pexpire" | "expireat" | "pexpireat" => self.expire(name),
            "ttl" | "pttl" | "expiretime" | "pexpiretime" => {
                let now = self.model.now;
                int(match self.item(0) {
                    None => -2,
                    Some(Item { expires_at: None, .. }) => -1,
                    Some(Item { expires_at: Some(at), .. }) => match name {
                        "ttl" => (at - now).saturating_add(500) / 1000,
                        "pttl" => at - now,
                        "expiretime" => at.saturating_add(500) / 1000,
                        _ => at,
                    },
                })
            }
            "persist" => match self.item(0) {
                Some(item @ Item { expires_at: Some(_), .. }) => {
                    let place = self.place(0);
                    self.model.put(&place, Item { expires_at: None, ..item });
                    int(1)
                }
                _ => int(0),
            },
            "rename" | "renamenx" => {
                let Some(item) = self.item(0) else { return Fail::of("ERR no such key") };
                let (from, to) = (self.place(0), self.place(1));
                let only = name == "renamenx";
                if only && self.item(1).is_some() {
                    return int(0);
                }
                if from != to {
                    self.model.remove(&from);
                    self.model.put(&to, item);
                }
                if only { int(1) } else { ok() }
            }
            "copy" => self.copy(),
            "move" => {
                let to = database(&self.args[1], NO_INTEGER, OUT_OF_I32)?;
                let (from, to) = (self.place(0), (to, self.args[0].clone()));
                if from == to {
                    return Fail::of("ERR source and destination objects are the same");
                }
                let (Some(item), None) = (self.item(0), self.model.live(&to)) else { return int(0) };
                self.model.remove(&from);
                self.model.put(&to, item);
                int(1)
            }
            "setbit" => self.setbit(),
            "getbit" => {
                let at = bit_offset(&self.args[1], 512 << 20)?;
                let byte = self.value(0).get((at / 8) as usize).copied().unwrap_or(0);
                int(i64::from(byte >> (7 - at % 8) & 1))
            }
            "bitcount" => self.bitcount(),
            "bitpos" => self.bitpos(),
            "bitop" => self.bitop(),
            "select" => {
                let db = database(&self.args[0], NO_INTEGER, OUT_OF_I32)?;
                self.model.client(self.client).db = db;
                ok()
            }
            "swapdb" => {
                let (first, second) = ("ERR invalid first DB index", "ERR invalid second DB index");
                let numbers = [(&self.args[0], first), (&self.args[1], second)].map(|(word, text)| {
                    integer(word).ok().filter(|n| i32::try_from(*n).is_ok()).ok_or(Fail(text.to_owned()))
                });
                let [one, two] = numbers;
                let (one, two) = (one?, two?);
                if !(0..16).contains(&one) || !(0..16).contains(&two) {
                    return Fail::of("ERR DB index is out of range");
                }
                self.model.swap(one, two);
                ok()
            }
            "dbsize" => {
                let db = self.model.client(self.client).db;
                int(self.model.places(Some(db)).len() as i64)
            }
            "flushdb" | "flushall" => {
                match self.args {
                    [] => {}
                    [how] if how.eq_ignore_ascii_case(b"ASYNC") || how.eq_ignore_ascii_case(b"SYNC") => {}
                    _ => return Fail::of(SYNTAX),
                }
                let db = self.model.client(self.client).db;
                for place in self.model.places((name == "flushdb").then_some(db)) {
                    self.model.remove(&place);
                }
                ok()
            }
            "ping" => match self.args {
                [] => Ok(b"+PONG\r\n".to_vec()),
                [word] => Ok(bulk(word)),
                _ => Fail::of("ERR wrong number of arguments for 'ping' command"),
            },
            "echo" => Ok(bulk(&self.args[0])),
            other => unreachable!("{other} is not here"),
        }
    }

    pub(super) fn store(&mut self, at: usize, value: Vec<u8>, expires_at: Option<i64>) {
        let place = self.place(at);
        self.model.put(&place, Item { value, expires_at, flags: 0 });
    }

    /// When something stored now with this option expires.
    fn deadline(&self, name: &str, unit: &str, text: &[u8]) -> Result<i64, Fail> {
        let n = integer(text)?;
        let wrong = || Fail(format!("ERR invalid expire time in '{name}' command"));
        if n <= 0 {
            return Err(wrong());
        }
        self.absolute(unit, n).ok_or_else(wrong)
    }

    fn absolute(&self, unit: &str, n: i64) -> Option<i64> {
        let ms = if unit.starts_with("EX") { n.checked_mul(1000)? } else { n };
        if unit.ends_with("AT") { Some(ms) } else { ms.checked_add(self.model.now) }
    }

    fn set(&mut self) -> Told {
        let (mut absent, mut present, mut get, mut expiry) = (false, false, false, Expiry::None);
        let mut at = 2;
        while at < self.args.len() {
            let word = self.option(at);
            match word.as_str() {
                "NX" if !present => absent = true,
                "XX" if !absent => present = true,
                "GET" => get = true,
                "KEEPTTL" if !matches!(expiry, Expiry::At(..)) => expiry = Expiry::Keep,
                "EX" | "PX" | "EXAT" | "PXAT" if at + 1 < self.args.len() => {
                    expiry = self.timed(expiry, word, at)?;
                    at += 1;
                }
                _ => return Fail::of(SYNTAX),
            }
            at += 1;
        }
        let expires_at = match &expiry {
            Expiry::At(unit, text) => Some(self.deadline("set", unit, text)?),
            _ => None,
        };
        let old = self.item(0);
        let told = if get { Some(maybe(old.as_ref().map(|item| &item.value[..]))) } else { None };
        if absent && old.is_some() || present && old.is_none() {
            return Ok(told.unwrap_or(b"$-1\r\n".to_vec()));
        }
        let kept = matches!(expiry, Expiry::Keep).then(|| old.and_then(|item| item.expires_at)).flatten();
        self.store(0, self.args[1].clone(), expires_at.or(kept));
        Ok(told.unwrap_or(b"+OK\r\n".to_vec()))
    }

    fn timed(&self, before: Expiry, unit: String, at: usize) -> Result<Expiry, Fail> {
        match before {
            Expiry::At(other, _) if other != unit => Fail::of(SYNTAX),
            Expiry::Keep | Expiry::Persist => Fail::of(SYNTAX),
            Expiry::None | Expiry::At(..) => Ok(Expiry::At(unit, self.args[at + 1].clone())),
        }
    }

    fn getex(&mut self) -> Told {
        let mut expiry = Expiry::None;
        let mut at = 1;
        while at < self.args.len() {
            let word = self.option(at);
            match word.as_str() {
                "PERSIST" if !matches!(expiry, Expiry::At(..)) => expiry = Expiry::Persist,
                "EX" | "PX" | "EXAT" | "PXAT" if at + 1 < self.args.len() => {
                    expiry = self.timed(expiry, word, at)?;
                    at += 1;
                }
                _ => return Fail::of(SYNTAX),
            }
            at += 1;
        }
        let Some(item) = self.item(0) else { return Ok(b"$-1\r\n".to_vec()) };
        let told = bulk(&item.value);
        let place = self.place(0);
        match expiry {
            Expiry::At(unit, text) => {
                let at = self.deadline("getex", &unit, &text)?;
                self.model.put(&place, Item { expires_at: Some(at), ..item });
            }
            Expiry::Persist if item.expires_at.is_some() => {
                self.model.put(&place, Item { expires_at: None, ..item });
            }
            _ => {}
        }
        Ok(told)
    }

    fn setrange(&mut self) -> Told {
        let offset = self.number(1)?;
        if offset < 0 {
            return Fail::of("ERR offset is out of range");
        }
        let patch = self.args[2].clone();
        let mut item = self.item(0).unwrap_or_default();
        if patch.is_empty() {
            return int(item.value.len() as i64);
        }
        if offset.saturating_add(patch.len() as i64) > BYTES_MAX {
            return Fail::of("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
        }
        let end = offset as usize + patch.len();
        if item.value.len() < end {
            item.value.resize(end, 0);
        }
        item.value[offset as usize..end].copy_from_slice(&patch);
        let (place, length) = (self.place(0), item.value.len());
        self.model.put(&place, item);
        int(length as i64)
    }

    fn add(&mut self, n: i64) -> Told {
        let item = self.item(0);
        let old = item.as_ref().map_or(Ok(0), |item| number_of(&item.value))?;
        let Some(new) = old.checked_add(n) else {
            return Fail::of("ERR increment or decrement would overflow");
        };
        let place = self.place(0);
        self.model.put(&place, Item { value: new.to_string().into_bytes(), ..item.unwrap_or_default() });
        int(new)
    }

    fn expire(&mut self, name: &str) -> Told {
        let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
        for at in 2..self.args.len() {
            match self.option(at).as_str() {
                "NX" => nx = true,
                "XX" => xx = true,
                "GT" => gt = true,
                "LT" => lt = true,
                _ => {
                    let word: String = self.args[at].iter().map(|&byte| char::from(byte)).collect();
                    return Fail::of(&format!(
                        "ERR Unsupported option {}",
                        word.split('\0').next().unwrap_or("")
                    ));
                }
            }
        }
        if nx && (xx || gt || lt) {
            return Fail::of("ERR NX and XX, GT or LT options at the same time are not compatible");
        }
        if gt && lt {
            return Fail::of("ERR GT and LT options at the same time are not compatible");
        }
        let n = self.number(1)?;
        let unit = match name {
            "expire" => "EX",
            "pexpire" => "PX",
            "expireat" => "EXAT",
            _ => "PXAT",
        };
        let Some(at) = self.absolute(unit, n) else {
            return Fail::of(&format!("ERR invalid expire time in '{name}' command"));
        };
        let Some(item) = self.item(0) else { return int(0) };
        let holds = match item.expires_at {
            None => !xx && !gt,
            Some(old) => !(nx || gt && at <= old || lt && at >= old),
        };
        if holds {
            let place = self.place(0);
            self.model.put(&place, Item { expires_at: Some(at), ..item });
        }
        int(holds.into())
    }

    fn copy(&mut self) -> Told {
        let mut to = (self.model.client(self.client).db, self.args[1].clone());
        let mut replace = false;
        let mut at = 2;
        while at < self.args.len() {
            match self.option(at).as_str() {
                "REPLACE" => replace = true,
                "DB" if at + 1 < self.args.len() => {
                    at += 1;
                    to.0 = database(&self.args[at], NO_INTEGER, OUT_OF_I32)?;
                }
                _ => return Fail::of(SYNTAX),
            }
            at += 1;
        }
        if self.place(0) == to {
            return Fail::of("ERR source and destination objects are the same");
        }
        let Some(item) = self.item(0) else { return int(0) };
        if !replace && self.model.live(&to).is_some() {
            return int(0);
        }
        self.model.put(&to, item);
        int(1)
    }
}

fn database(word: &[u8], no_number: &str, too_large: &str) -> Result<i64, Fail> {
    let n = integer(word).map_err(|_| Fail(no_number.to_owned()))?;
    match i32::try_from(n) {
        Err(_) => Fail::of(too_large),
        Ok(0..16) => Ok(n),
        Ok(_) => Fail::of("ERR DB index is out of range"),
    }
}

fn range(value: &[u8], start: i64, end: i64) -> &[u8] {
    let total = value.len() as i64;
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let place = |n: i64| if n < 0 { total.saturating_add(n).max(0) } else { n };
    let (start, end) = (place(start), place(end).min(total - 1));
    if start > end { &[] } else { &value[start as usize..=end as usize] }
}
