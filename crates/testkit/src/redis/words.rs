//! The commands of the [`Model`]: what each does to the map, and what it replies. Here are those of one line, and helpers for the
//! others.

use super::bits::bit_offset;
use super::model::{DbKey, Item, Model};
use super::reply::{Reply, bulk};

/// An error reply.
#[derive(Clone, Debug)]
pub(super) struct Fail(pub String);

/// The reply of a command, or its error.
pub(super) type Answer = Result<Reply, Fail>;

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

pub(super) fn ok() -> Answer {
    Ok(b"+OK\r\n".to_vec().into())
}

pub(super) fn int(n: i64) -> Answer {
    Ok(format!(":{n}\r\n").into_bytes().into())
}

/// The number, if it is written as Redis writes it; else an error.
pub(super) fn integer(text: &[u8]) -> Result<i64, Fail> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    match parsed {
        Some(n) if n.to_string().as_bytes() == text => Ok(n),
        _ => Fail::of(NO_INTEGER),
    }
}

/// A database's number.
pub(super) fn database(word: &[u8]) -> Result<i64, Fail> {
    let n = integer(word)?;
    match i32::try_from(n) {
        Err(_) => Fail::of(OUT_OF_I32),
        Ok(0..16) => Ok(n),
        Ok(_) => Fail::of("ERR DB index is out of range"),
    }
}

impl Words<'_> {
    pub(super) fn place(&mut self, at: usize) -> DbKey {
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

    pub(super) fn store(&mut self, at: usize, value: Vec<u8>, expires_at: Option<i64>) {
        let place = self.place(at);
        self.model.put(&place, Item { value, expires_at, ..Item::default() });
    }

    pub(super) fn resp3(&mut self) -> bool {
        self.model.client(self.client).resp3
    }

    pub(super) fn null(&mut self) -> Reply {
        if self.resp3() { b"_\r\n".to_vec().into() } else { b"$-1\r\n".to_vec().into() }
    }

    pub(super) fn maybe(&mut self, value: Option<&Vec<u8>>) -> Reply {
        value.map_or_else(|| self.null(), |value| bulk(value).into())
    }

    /// The header of a map with this many pairs.
    pub(super) fn map_head(&mut self, pairs: usize) -> Vec<u8> {
        match self.resp3() {
            true => format!("%{pairs}\r\n").into_bytes(),
            false => format!("*{}\r\n", 2 * pairs).into_bytes(),
        }
    }

    fn get(&mut self, at: usize) -> Reply {
        let value = self.item(at).map(|item| item.value);
        self.maybe(value.as_ref())
    }

    fn mget(&mut self) -> Reply {
        let head = format!("*{}\r\n", self.args.len()).into_bytes().into();
        let values = (0..self.args.len()).map(|at| self.get(at));
        Reply::Several([head].into_iter().chain(values.collect::<Vec<_>>()).collect())
    }

    pub fn command(&mut self, name: &str) -> Answer {
        match name {
            "get" => Ok(self.get(0)),
            "set" => self.set(),
            "mget" => Ok(self.mget()),
            "getset" => {
                let told = self.get(0);
                self.store(0, self.args[1].clone(), None);
                Ok(told)
            }
            "getdel" => {
                let told = self.get(0);
                let place = self.place(0);
                self.model.remove(&place);
                Ok(told)
            }
            "getex" => self.getex(),
            "setnx" => {
                let free = self.item(0).is_none();
                if free {
                    self.store(0, self.args[1].clone(), None);
                }
                int(free.into())
            }
            "setex" | "psetex" => self.setex(name),
            "strlen" => int(self.value(0).len() as i64),
            "append" => self.append(),
            "getrange" | "substr" => self.getrange(),
            "setrange" => self.setrange(),
            "incr" => self.add(1),
            "decr" => self.add(-1),
            "incrby" => self.number(1).and_then(|n| self.add(n)),
            "decrby" => self.decrby(),
            "incrbyfloat" => self.incrbyfloat(),
            "mset" | "msetnx" => self.mset(name),
            "msetex" => self.msetex(),
            "lcs" => self.lcs(),
            "del" | "unlink" => self.del(),
            "delex" => self.delete_if(false),
            "delifeq" => self.delete_if(true),
            "exists" | "touch" => self.exists(),
            "type" => {
                let there = self.item(0).is_some();
                Ok(if there { b"+string\r\n".to_vec() } else { b"+none\r\n".to_vec() }.into())
            }
            "expire" | "pexpire" | "expireat" | "pexpireat" => self.expire(name),
            "ttl" | "pttl" | "expiretime" | "pexpiretime" => self.ttl(name),
            "persist" => self.persist(),
            "rename" | "renamenx" => self.rename(name == "renamenx"),
            "copy" => self.copy(),
            "move" => self.move_to(),
            "dump" => self.dump(),
            "restore" => self.restore(),
            "keys" => self.keys(),
            "scan" => self.scan(),
            "randomkey" => self.random_key(),
            "object|encoding" => self.encoding(),
            "object|refcount" => self.refcount(),
            "cl.throttle" => self.throttle(),
            "setbit" => self.setbit(),
            "getbit" => {
                let at = bit_offset(&self.args[1], 512 << 20)?;
                let byte = self.value(0).get((at / 8) as usize).copied().unwrap_or(0);
                int(i64::from(byte >> (7 - at % 8) & 1))
            }
            "bitcount" => self.bitcount(),
            "bitpos" => self.bitpos(),
            "bitop" => self.bitop(),
            "bitfield" => self.bitfield(false),
            "bitfield_ro" => self.bitfield(true),
            "select" => self.select(),
            "swapdb" => self.swap(),
            "dbsize" => {
                let db = self.model.client(self.client).db;
                int(self.model.places(Some(db)).len() as i64)
            }
            "flushdb" | "flushall" => self.flush(name == "flushall"),
            "ping" => self.ping(),
            "echo" => Ok(bulk(&self.args[0]).into()),
            "hello" => self.hello(),
            "auth" => self.auth(),
            "reset" => self.reset(),
            "client|getname" => self.client_name(),
            "wait" => self.wait(),
            other => unreachable!("{other} is not here"),
        }
    }
}
