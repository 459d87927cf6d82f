//! The three ways of writing an [`Op`](crate::op): memcached's classic text, its meta commands, RESP.

use crate::op::{Seen, Ttl, Verb, short};
use crate::wire::Wire;
use larder_testkit::talk::encode;
use std::io;

/// A way to write an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `get key`
    Classic,
    /// `mg key v`
    Meta,
    /// `*2 $3 GET $3 key`
    Resp,
}

impl Dialect {
    /// Whether the dialect has this operation.
    pub fn knows(self, verb: &Verb) -> bool {
        match verb {
            Verb::Get | Verb::Set(..) | Verb::Add(..) | Verb::Replace(..) | Verb::Append(_) => true,
            Verb::Plus(_) | Verb::Delete | Verb::Touch(_) => true,
            // RESP's numbers go below zero, and a missing key counts as 0.
            Verb::GetToken | Verb::Prepend(_) | Verb::Cas(..) | Verb::Minus(_) => self != Dialect::Resp,
            Verb::Exists | Verb::Length | Verb::Take | Verb::Swap(_) => self == Dialect::Resp,
        }
    }

    /// Appends the request.
    pub fn put(self, out: &mut Vec<u8>, key: &str, flags: u32, verb: &Verb) {
        match self {
            Dialect::Classic => classic(out, key, flags, verb),
            Dialect::Meta => meta(out, key, flags, verb),
            Dialect::Resp => resp(out, key, verb),
        }
    }

    /// Reads the reply.
    ///
    /// # Errors
    /// The system's error.
    pub fn take(self, wire: &mut Wire, verb: &Verb) -> io::Result<Seen> {
        match self {
            Dialect::Resp => Ok(of_reply(verb, reply(wire)?)),
            Dialect::Classic | Dialect::Meta => of_line(wire, verb),
        }
    }
}

fn classic(out: &mut Vec<u8>, key: &str, flags: u32, verb: &Verb) {
    let (name, value, ttl, tail) = match verb {
        Verb::Get => return line(out, &format!("get {key}")),
        Verb::GetToken => return line(out, &format!("gets {key}")),
        Verb::Plus(by) => return line(out, &format!("incr {key} {by}")),
        Verb::Minus(by) => return line(out, &format!("decr {key} {by}")),
        Verb::Delete => return line(out, &format!("delete {key}")),
        Verb::Touch(ttl) => return line(out, &format!("touch {key} {}", ttl.seconds())),
        Verb::Set(value, ttl) => ("set", value, *ttl, String::new()),
        Verb::Add(value, ttl) => ("add", value, *ttl, String::new()),
        Verb::Replace(value, ttl) => ("replace", value, *ttl, String::new()),
        Verb::Append(value) => ("append", value, Ttl::Ever, String::new()),
        Verb::Prepend(value) => ("prepend", value, Ttl::Ever, String::new()),
        Verb::Cas(value, token) => ("cas", value, Ttl::Ever, format!(" {token}")),
        Verb::Exists | Verb::Length | Verb::Take | Verb::Swap(_) => unreachable!("not asked in this dialect"),
    };
    line(out, &format!("{name} {key} {flags} {} {}{tail}", ttl.seconds(), value.len()));
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn meta(out: &mut Vec<u8>, key: &str, flags: u32, verb: &Verb) {
    let (mode, value, ttl, tail) = match verb {
        Verb::Get => return line(out, &format!("mg {key} v f")),
        Verb::GetToken => return line(out, &format!("mg {key} v f c")),
        Verb::Plus(by) => return line(out, &format!("ma {key} D{by} v")),
        Verb::Minus(by) => return line(out, &format!("ma {key} MD D{by} v")),
        Verb::Delete => return line(out, &format!("md {key}")),
        Verb::Touch(ttl) => return line(out, &format!("mg {key} T{}", ttl.seconds())),
        Verb::Set(value, ttl) => ("S", value, *ttl, String::new()),
        Verb::Add(value, ttl) => ("E", value, *ttl, String::new()),
        Verb::Replace(value, ttl) => ("R", value, *ttl, String::new()),
        Verb::Append(value) => ("A", value, Ttl::Ever, String::new()),
        Verb::Prepend(value) => ("P", value, Ttl::Ever, String::new()),
        Verb::Cas(value, token) => ("S", value, Ttl::Ever, format!(" C{token}")),
        Verb::Exists | Verb::Length | Verb::Take | Verb::Swap(_) => unreachable!("not asked in this dialect"),
    };
    line(out, &format!("ms {key} {} M{mode} F{flags} T{}{tail}", value.len(), ttl.seconds()));
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn resp(out: &mut Vec<u8>, key: &str, verb: &Verb) {
    let key = key.as_bytes();
    let store = |value: &[u8], ttl: Ttl, condition: Option<&[u8]>| {
        let ms;
        let mut words = vec![&b"SET"[..], key, value];
        words.extend(condition);
        if let Ttl::Ms(time) = ttl {
            ms = time.to_string();
            words.extend([&b"PX"[..], ms.as_bytes()]);
            return encode(&words);
        }
        encode(&words)
    };
    out.extend(match verb {
        Verb::Get => encode(&[b"GET", key]),
        Verb::Exists => encode(&[b"EXISTS", key]),
        Verb::Length => encode(&[b"STRLEN", key]),
        Verb::Take => encode(&[b"GETDEL", key]),
        Verb::Set(value, ttl) => store(value, *ttl, None),
        Verb::Add(value, ttl) => store(value, *ttl, Some(b"NX")),
        Verb::Replace(value, ttl) => store(value, *ttl, Some(b"XX")),
        Verb::Swap(value) => encode(&[b"GETSET", key, value]),
        Verb::Append(value) => encode(&[b"APPEND", key, value]),
        Verb::Plus(by) => encode(&[b"INCRBY", key, by.to_string().as_bytes()]),
        Verb::Delete => encode(&[b"DEL", key]),
        Verb::Touch(Ttl::Ms(ms)) => encode(&[b"PEXPIRE", key, ms.to_string().as_bytes()]),
        // PERSIST replies whether there was an expiry, not whether the key exists.
        Verb::Touch(Ttl::Ever) => encode(&[b"GETEX", key, b"PERSIST"]),
        Verb::GetToken | Verb::Prepend(_) | Verb::Cas(..) | Verb::Minus(_) => {
            unreachable!("not asked in this dialect")
        }
    });
}

fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Reads a reply of the text protocol.
fn of_line(wire: &mut Wire, verb: &Verb) -> io::Result<Seen> {
    let line = wire.line()?;
    let text = String::from_utf8_lossy(&line).into_owned();
    let words: Vec<&str> = text.split(' ').collect();
    let number = |word: &str| word.parse::<u64>().ok();
    Ok(match words[..] {
        ["VALUE", _, flags, bytes, ref token @ ..] => {
            let (Some(flags), Some(bytes)) = (number(flags), number(bytes)) else {
                return Ok(Seen::Strange(text));
            };
            let value = wire.block(bytes as usize)?;
            let end = wire.line()?;
            match (token, &end[..]) {
                ([], b"END") => Seen::Value(value, Some(flags as u32)),
                ([token], b"END") => match number(token) {
                    Some(token) => Seen::Token(value, flags as u32, token),
                    None => Seen::Strange(text),
                },
                _ => Seen::Strange(format!("{text} … {}", short(&end))),
            }
        }
        ["VA", bytes, ref tokens @ ..] => {
            let Some(bytes) = number(bytes) else { return Ok(Seen::Strange(text)) };
            let value = wire.block(bytes as usize)?;
            let of = |letter: char| tokens.iter().find_map(|token| number(token.strip_prefix(letter)?));
            match (verb, of('f'), of('c')) {
                (Verb::GetToken, Some(flags), Some(token)) => Seen::Token(value, flags as u32, token),
                (Verb::Get, Some(flags), None) => Seen::Value(value, Some(flags as u32)),
                (Verb::Plus(_) | Verb::Minus(_), None, None) => {
                    let sum = number(&String::from_utf8_lossy(&value));
                    sum.map_or_else(|| Seen::Strange(short(&value)), Seen::Number)
                }
                _ => Seen::Strange(text),
            }
        }
        ["END" | "EN" | "NOT_FOUND" | "NF"] => Seen::Nothing,
        ["STORED" | "HD" | "DELETED" | "TOUCHED"] => Seen::Done,
        // The condition failed: the key exists for an add; it does not for the others.
        ["NOT_STORED" | "NS"] if matches!(verb, Verb::Add(..)) => Seen::Otherwise,
        ["NOT_STORED" | "NS"] => Seen::Nothing,
        ["EXISTS" | "EX"] => Seen::Otherwise,
        ["SERVER_ERROR", ..] if text.ends_with("writing get response") => Seen::NotSent,
        ["SERVER_ERROR", "out" | "Out", "of", "memory", ..] => Seen::Refused,
        [word] => number(word).map_or(Seen::Strange(text.clone()), Seen::Number),
        _ => Seen::Strange(text),
    })
}

/// A reply of RESP2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`
    Simple(String),
    /// `-ERR`
    Error(String),
    /// `:1`
    Number(i64),
    /// `$3`, or none
    Bulk(Option<Vec<u8>>),
    /// `*2`, or none
    Array(Option<Vec<Reply>>),
}

/// Reads one.
///
/// # Errors
/// The system's error, or bytes that are no reply.
pub fn reply(wire: &mut Wire) -> io::Result<Reply> {
    let line = wire.line()?;
    let text = String::from_utf8_lossy(line.get(1..).unwrap_or_default()).into_owned();
    let wrong = || io::Error::other(format!("no reply: {}", short(&line)));
    let number = || text.parse::<i64>().map_err(|_| wrong());
    Ok(match line.first() {
        Some(b'+') => Reply::Simple(text),
        Some(b'-') => Reply::Error(text),
        Some(b':') => Reply::Number(number()?),
        Some(b'$') => match usize::try_from(number()?) {
            Ok(bytes) => Reply::Bulk(Some(wire.block(bytes)?)),
            Err(_) => Reply::Bulk(None),
        },
        Some(b'*') => match usize::try_from(number()?) {
            Ok(count) => Reply::Array(Some((0..count).map(|_| reply(wire)).collect::<io::Result<_>>()?)),
            Err(_) => Reply::Array(None),
        },
        _ => return Err(wrong()),
    })
}

/// The meaning of a reply of RESP.
pub fn of_reply(verb: &Verb, reply: Reply) -> Seen {
    match (verb, reply) {
        (_, Reply::Error(text)) if text.starts_with("OOM") => Seen::Refused,
        (Verb::Get | Verb::Take | Verb::Swap(_), Reply::Bulk(Some(value))) => Seen::Value(value, None),
        (Verb::Touch(Ttl::Ever), Reply::Bulk(Some(_))) => Seen::Done,
        (Verb::Add(..), Reply::Bulk(None)) => Seen::Otherwise,
        (_, Reply::Bulk(None)) => Seen::Nothing,
        (Verb::Set(..) | Verb::Add(..) | Verb::Replace(..), Reply::Simple(text)) if text == "OK" => {
            Seen::Done
        }
        (Verb::Delete | Verb::Touch(_) | Verb::Exists, Reply::Number(0)) => Seen::Nothing,
        (Verb::Delete | Verb::Touch(_) | Verb::Exists, Reply::Number(1)) => Seen::Done,
        (Verb::Length | Verb::Append(_) | Verb::Plus(_), Reply::Number(number)) if number >= 0 => {
            Seen::Number(number as u64)
        }
        (_, Reply::Bulk(Some(value))) => Seen::Strange(short(&value)),
        (_, reply) => Seen::Strange(format!("{reply:?}")),
    }
}
