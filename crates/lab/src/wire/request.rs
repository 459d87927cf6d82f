//! Requests as bytes, and the replies that a server of the protocol would send to them.

use super::{Place, Protocol};
use crate::mix::Verb;

/// Digits of a token in a request: as many as the longest has, so that it is written where it stands.
pub const TOKEN_DIGITS: usize = 20;
/// The token of who has none: no server gives it out.
pub const NO_TOKEN: u64 = u64::MAX;

impl Protocol {
    /// Appends what comes before the keys of a read of `keys` keys.
    pub fn open_get(self, out: &mut Vec<u8>, keys: usize) {
        match self {
            Protocol::Classic => out.extend_from_slice(b"get"),
            Protocol::Meta => {}
            Protocol::Resp if keys == 1 => out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n"),
            Protocol::Resp => {
                out.extend_from_slice(format!("*{}\r\n$4\r\nMGET\r\n", keys + 1).as_bytes());
            }
        }
    }

    /// Appends one key of a read; returns where in `out` the key itself starts.
    pub fn key(self, out: &mut Vec<u8>, key_bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        match self {
            Protocol::Classic => out.push(b' '),
            Protocol::Meta => out.extend_from_slice(b"mg "),
            Protocol::Resp => out.extend_from_slice(format!("${key_bytes}\r\n").as_bytes()),
        }
        let at = out.len();
        write(out);
        match self {
            Protocol::Classic => {}
            Protocol::Meta => out.extend_from_slice(b" v\r\n"),
            Protocol::Resp => out.extend_from_slice(b"\r\n"),
        }
        at
    }

    /// Appends what comes after the keys of a read.
    pub fn close_get(self, out: &mut Vec<u8>) {
        if self == Protocol::Classic {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends a whole write of a key and a value of these `sizes`, which lives for `ttl_s` seconds
    /// (0: for ever); returns where in `out` the key starts.
    pub fn set(
        self,
        out: &mut Vec<u8>,
        sizes: (usize, usize),
        ttl_s: u32,
        key: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        let (key_bytes, value_bytes) = sizes;
        let (head, middle) = match self {
            Protocol::Classic => ("set ".to_owned(), format!(" 0 {ttl_s} {value_bytes}\r\n")),
            Protocol::Meta if ttl_s == 0 => ("ms ".to_owned(), format!(" {value_bytes}\r\n")),
            Protocol::Meta => ("ms ".to_owned(), format!(" {value_bytes} T{ttl_s}\r\n")),
            Protocol::Resp => {
                let words = if ttl_s == 0 { 3 } else { 5 };
                (format!("*{words}\r\n$3\r\nSET\r\n${key_bytes}\r\n"), format!("\r\n${value_bytes}\r\n"))
            }
        };
        out.extend_from_slice(head.as_bytes());
        let at = out.len();
        key(out);
        out.extend_from_slice(middle.as_bytes());
        value(out);
        out.extend_from_slice(b"\r\n");
        if self == Protocol::Resp && ttl_s > 0 {
            let digits = ttl_s.to_string();
            out.extend_from_slice(format!("$2\r\nEX\r\n${}\r\n{digits}\r\n", digits.len()).as_bytes());
        }
        at
    }

    /// Appends a read of one key with its token; returns where in `out` the key starts.
    ///
    /// # Panics
    /// For RESP, which has no tokens.
    pub fn gets(self, out: &mut Vec<u8>, key: impl FnOnce(&mut Vec<u8>)) -> usize {
        match self {
            Protocol::Classic => around(out, "gets ", key, "\r\n"),
            Protocol::Meta => around(out, "mg ", key, " v c\r\n"),
            Protocol::Resp => unreachable!("RESP has no tokens"),
        }
    }

    /// Appends a write that happens if the key was not changed since it was read. In memcached's protocols
    /// it names a token, of [`TOKEN_DIGITS`] digits right before the line end in front of the value; in RESP
    /// it is a transaction that watches the key, reads it, and sets it. Returns where in `out` the key starts.
    pub fn cas(
        self,
        out: &mut Vec<u8>,
        sizes: (usize, usize),
        ttl_s: u32,
        key: &[u8],
        value: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        let (key_bytes, value_bytes) = sizes;
        let name = |out: &mut Vec<u8>| out.extend_from_slice(key);
        let middle = match self {
            Protocol::Classic => format!(" 0 {ttl_s} {value_bytes} {NO_TOKEN}\r\n"),
            Protocol::Meta if ttl_s == 0 => format!(" {value_bytes} C{NO_TOKEN}\r\n"),
            Protocol::Meta => format!(" {value_bytes} T{ttl_s} C{NO_TOKEN}\r\n"),
            Protocol::Resp => {
                let word = format!("${key_bytes}\r\n");
                around(out, &format!("*2\r\n$5\r\nWATCH\r\n{word}"), name, "\r\n");
                around(out, &format!("*2\r\n$3\r\nGET\r\n{word}"), name, "\r\n*1\r\n$5\r\nMULTI\r\n");
                let at = self.set(out, sizes, ttl_s, name, value);
                out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
                return at;
            }
        };
        let head = if self == Protocol::Meta { "ms " } else { "cas " };
        let at = around(out, head, name, &middle);
        value(out);
        out.extend_from_slice(b"\r\n");
        at
    }

    /// Appends a delete; returns where in `out` the key starts.
    pub fn delete(self, out: &mut Vec<u8>, key_bytes: usize, key: impl FnOnce(&mut Vec<u8>)) -> usize {
        let head = match self {
            Protocol::Classic => "delete ".to_owned(),
            Protocol::Meta => "md ".to_owned(),
            Protocol::Resp => format!("*2\r\n$3\r\nDEL\r\n${key_bytes}\r\n"),
        };
        around(out, &head, key, "\r\n")
    }

    /// Appends an addition of one to a number; returns where in `out` the key starts.
    pub fn incr(self, out: &mut Vec<u8>, key_bytes: usize, key: impl FnOnce(&mut Vec<u8>)) -> usize {
        match self {
            Protocol::Classic => around(out, "incr ", key, " 1\r\n"),
            Protocol::Meta => around(out, "ma ", key, " v\r\n"),
            Protocol::Resp => around(out, &format!("*2\r\n$4\r\nINCR\r\n${key_bytes}\r\n"), key, "\r\n"),
        }
    }

    /// Appends a read or a write of a place inside a value; returns where in `out` the key starts.
    ///
    /// # Panics
    /// For memcached's protocols, which know whole values only, and for a verb that means no place.
    pub fn inside(
        self,
        out: &mut Vec<u8>,
        verb: Verb,
        key_bytes: usize,
        key: impl FnOnce(&mut Vec<u8>),
        place: &Place,
    ) -> usize {
        assert_eq!(self, Protocol::Resp, "only RESP knows places inside a value");
        let word = |text: String| format!("${}\r\n{text}\r\n", text.len());
        let bit = word(place.bit.to_string());
        let (head, tail) = match verb {
            Verb::GetBit => ("*3\r\n$6\r\nGETBIT\r\n", bit),
            Verb::SetBit => ("*4\r\n$6\r\nSETBIT\r\n", bit + &word(u8::from(place.on).to_string())),
            Verb::SetRange => {
                let bytes = if place.on { "some" } else { "else" };
                ("*4\r\n$8\r\nSETRANGE\r\n", word((place.bit / 8).to_string()) + &word(bytes.to_owned()))
            }
            _ => unreachable!("a verb of whole values"),
        };
        around(out, &format!("{head}${key_bytes}\r\n"), key, &format!("\r\n{tail}"))
    }

    /// Appends the reply to a read of one or more keys that all hit: what a server of this protocol
    /// would send for them. `pairs` appends a key or a value.
    pub fn reply_hits(self, out: &mut Vec<u8>, pairs: &[(Vec<u8>, Vec<u8>)]) {
        if self == Protocol::Resp && pairs.len() > 1 {
            out.extend_from_slice(format!("*{}\r\n", pairs.len()).as_bytes());
        }
        for (key, value) in pairs {
            match self {
                Protocol::Classic => {
                    out.extend_from_slice(b"VALUE ");
                    out.extend_from_slice(key);
                    out.extend_from_slice(format!(" 0 {}\r\n", value.len()).as_bytes());
                }
                Protocol::Meta => out.extend_from_slice(format!("VA {}\r\n", value.len()).as_bytes()),
                Protocol::Resp => out.extend_from_slice(format!("${}\r\n", value.len()).as_bytes()),
            }
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        if self == Protocol::Classic {
            out.extend_from_slice(b"END\r\n");
        }
    }

    /// Appends the reply to a read of `keys` keys that all miss.
    pub fn reply_misses(self, out: &mut Vec<u8>, keys: usize) {
        match self {
            Protocol::Classic => out.extend_from_slice(b"END\r\n"),
            Protocol::Meta => (0..keys).for_each(|_| out.extend_from_slice(b"EN\r\n")),
            Protocol::Resp => {
                if keys > 1 {
                    out.extend_from_slice(format!("*{keys}\r\n").as_bytes());
                }
                (0..keys).for_each(|_| out.extend_from_slice(b"$-1\r\n"));
            }
        }
    }

    /// Appends the reply to a write that happened.
    pub fn reply_stored(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Protocol::Classic => b"STORED\r\n".as_slice(),
            Protocol::Meta => b"HD\r\n",
            Protocol::Resp => b"+OK\r\n",
        });
    }
}

/// Appends a key with what stands before and behind it; returns where it starts.
fn around(out: &mut Vec<u8>, head: &str, key: impl FnOnce(&mut Vec<u8>), tail: &str) -> usize {
    out.extend_from_slice(head.as_bytes());
    let at = out.len();
    key(out);
    out.extend_from_slice(tail.as_bytes());
    at
}
