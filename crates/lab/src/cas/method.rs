//! Ways to take one from a counter exactly once, as bytes: requests, and what replies mean.
//!
//! | method | request(s) of an attempt |
//! |---|---|
//! | `gets-cas` | `gets k` … `cas k 0 0 <n> <token>` |
//! | `meta` | `mg k v c` … `ms k <n> C<token>` |
//! | `watch` | `WATCH k`, `GET k` … `MULTI`, `SET k`, `EXEC` |
//! | `decr` | `decr k 1`, on Redis `DECR k`: the server does it |
//! | `ma` | `ma k MD v` |
//! | `blind` | `gets k` … `set k` … `get k`: the seed's, which never sent a token |
//!
//! Where a client writes the counter itself, the value says more than the number, so that a value
//! that nobody wrote is found out:
//!
//! ```text
//! counter      key        client seq        checksum
//! 000999999995 0000000000 000003 0000000017 5fb1a0c3
//! ```

use crate::control::Family;
use crate::error::Error;
use crate::value::seed;
use crate::wire::{line, value};

/// What the counters start from: nobody gets to 0.
pub const INITIAL: u64 = 1_000_000_000;

/// A way to change a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// memcached's `gets` and `cas`.
    GetsCas,
    /// memcached's meta commands with a token.
    Meta,
    /// Redis's `WATCH`, `MULTI`, `EXEC`.
    Watch,
    /// Arithmetic by the server.
    Decr,
    /// The same by memcached's meta command.
    Ma,
    /// Read, write without a token, read again: loses updates.
    Blind,
}

/// All of them.
pub const METHODS: [Method; 6] =
    [Method::GetsCas, Method::Meta, Method::Watch, Method::Decr, Method::Ma, Method::Blind];

impl Method {
    /// How it is called.
    pub fn name(self) -> &'static str {
        match self {
            Method::GetsCas => "gets-cas",
            Method::Meta => "meta",
            Method::Watch => "watch",
            Method::Decr => "decr",
            Method::Ma => "ma",
            Method::Blind => "blind",
        }
    }

    /// Reads a name, for clap.
    ///
    /// # Errors
    /// What names there are.
    pub fn parse(text: &str) -> Result<Method, String> {
        let names = || METHODS.map(Method::name).join(", ");
        METHODS
            .into_iter()
            .find(|method| method.name() == text)
            .ok_or_else(|| format!("expected one of {}", names()))
    }

    /// Servers of this family know it.
    pub fn fits(self, family: Family) -> bool {
        match self {
            Method::GetsCas | Method::Meta | Method::Ma => family == Family::Memcached,
            Method::Watch => family == Family::Redis,
            Method::Decr | Method::Blind => true,
        }
    }

    /// An attempt may be refused because somebody else was faster.
    pub fn is_optimistic(self) -> bool {
        matches!(self, Method::GetsCas | Method::Meta | Method::Watch)
    }

    /// The server computes the new value: nothing is read first.
    pub fn is_server_side(self) -> bool {
        matches!(self, Method::Decr | Method::Ma)
    }
}

/// The name of counter `key`.
pub fn key_name(key: u32) -> String {
    format!("counter:{key:010}")
}

/// Bytes of a [`Stamp`].
const STAMP_BYTES: usize = 50;

/// A counter's value as a client writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The number.
    pub counter: u64,
    /// Of which key.
    pub key: u32,
    /// Who wrote it; 0 is the lab's own start value.
    pub client: u32,
    /// Its how-manieth write.
    pub seq: u64,
}

impl Stamp {
    /// As bytes, always as many.
    pub fn text(&self) -> String {
        let Stamp { counter, key, client, seq } = *self;
        format!("{counter:012} {key:010} {client:06} {seq:010} {:08x}", self.checksum())
    }

    fn checksum(&self) -> u32 {
        let Stamp { counter, key, client, seq } = *self;
        seed(counter, u64::from(client) << 40 ^ seq, key as usize) as u32
    }

    /// Reads it; `None` if it is no value of the lab's.
    pub fn parse(bytes: &[u8]) -> Option<Stamp> {
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() == STAMP_BYTES)?;
        let mut fields = text.split(' ').map(|field| field.parse::<u64>().ok());
        let mut field = || fields.next().flatten();
        let stamp = Stamp {
            counter: field()?,
            key: field()?.try_into().ok()?,
            client: field()?.try_into().ok()?,
            seq: field()?,
        };
        (stamp.text() == text).then_some(stamp)
    }
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// A value, and its token where the method has one.
    Value(&'a [u8], u64),
    /// There is no such key.
    Missing,
    /// The write happened.
    Stored,
    /// Somebody else was faster.
    Refused,
    /// The counter after the server's arithmetic.
    Counter(u64),
}

/// An answer and the bytes it took; `None` when it is not whole.
type Read<'a> = Result<Option<(Answer<'a>, usize)>, Error>;

impl Method {
    /// Appends the request that reads counter `key`.
    pub fn ask_read(self, family: Family, out: &mut Vec<u8>, key: &str) {
        let text = match (self, family) {
            (Method::Meta, _) => format!("mg {key} v c\r\n"),
            (Method::Watch, _) => format!("{}{}", resp(&["WATCH", key]), resp(&["GET", key])),
            (_, Family::Memcached) => format!("gets {key}\r\n"),
            (_, Family::Redis) => resp(&["GET", key]),
        };
        out.extend_from_slice(text.as_bytes());
    }

    /// Appends the request that writes `value`, if the counter still has `token` where the method
    /// cares.
    pub fn ask_write(self, family: Family, out: &mut Vec<u8>, key: &str, value: &str, token: u64) {
        let bytes = value.len();
        let text = match (self, family) {
            (Method::GetsCas, _) => format!("cas {key} 0 0 {bytes} {token}\r\n{value}\r\n"),
            (Method::Meta, _) => format!("ms {key} {bytes} C{token}\r\n{value}\r\n"),
            (Method::Watch, _) => {
                format!("{}{}{}", resp(&["MULTI"]), resp(&["SET", key, value]), resp(&["EXEC"]))
            }
            (_, Family::Memcached) => format!("set {key} 0 0 {bytes}\r\n{value}\r\n"),
            (_, Family::Redis) => resp(&["SET", key, value]),
        };
        out.extend_from_slice(text.as_bytes());
    }

    /// Appends the request by which the server takes one off.
    pub fn ask_decrement(self, family: Family, out: &mut Vec<u8>, key: &str) {
        let text = match (self, family) {
            (Method::Ma, _) => format!("ma {key} MD v\r\n"),
            (_, Family::Memcached) => format!("decr {key} 1\r\n"),
            (_, Family::Redis) => resp(&["DECR", key]),
        };
        out.extend_from_slice(text.as_bytes());
    }

    /// Reads the reply to [`Method::ask_read`].
    ///
    /// # Errors
    /// [`Error::Reply`].
    pub fn read<'a>(self, family: Family, bytes: &'a [u8], key: &str) -> Read<'a> {
        match (self, family) {
            (Method::Meta, _) => meta_value(bytes),
            (Method::Watch, _) => {
                const OK: &[u8] = b"+OK\r\n";
                match bytes.strip_prefix(OK) {
                    Some(rest) => Ok(resp_value(rest)?.map(|(answer, used)| (answer, used + OK.len()))),
                    None if OK.starts_with(bytes) => Ok(None),
                    None => Err(Error::malformed(bytes)),
                }
            }
            (_, Family::Memcached) => classic_value(bytes, key),
            (_, Family::Redis) => resp_value(bytes),
        }
    }

    /// Reads the reply to [`Method::ask_write`].
    ///
    /// # Errors
    /// [`Error::Reply`].
    pub fn written(self, family: Family, bytes: &[u8]) -> Read<'_> {
        match (self, family) {
            (Method::GetsCas, _) => one_of(
                bytes,
                &[
                    (b"STORED\r\n", Answer::Stored),
                    (b"EXISTS\r\n", Answer::Refused),
                    (b"NOT_FOUND\r\n", Answer::Missing),
                ],
            ),
            (Method::Meta, _) => one_of(
                bytes,
                &[(b"HD\r\n", Answer::Stored), (b"EX\r\n", Answer::Refused), (b"NF\r\n", Answer::Missing)],
            ),
            (Method::Watch, _) => one_of(
                bytes,
                &[
                    (b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n", Answer::Stored),
                    (b"+OK\r\n+QUEUED\r\n*-1\r\n", Answer::Refused),
                ],
            ),
            (_, Family::Memcached) => one_of(bytes, &[(b"STORED\r\n", Answer::Stored)]),
            (_, Family::Redis) => one_of(bytes, &[(b"+OK\r\n", Answer::Stored)]),
        }
    }

    /// Reads the reply to [`Method::ask_decrement`].
    ///
    /// # Errors
    /// [`Error::Reply`].
    pub fn decremented(self, family: Family, bytes: &[u8]) -> Read<'_> {
        let (digits, used) = match (self, family) {
            (Method::Ma, _) => {
                let Some((answer, used)) = meta_value(bytes)? else { return Ok(None) };
                let Answer::Value(digits, _) = answer else { return Ok(Some((answer, used))) };
                (digits, used)
            }
            _ => {
                let Some((line, used)) = line(bytes).map_err(|_| Error::malformed(bytes))? else {
                    return Ok(None);
                };
                match family {
                    Family::Memcached if line == b"NOT_FOUND" => return Ok(Some((Answer::Missing, used))),
                    Family::Memcached => (line, used),
                    Family::Redis => (line.strip_prefix(b":").ok_or_else(|| Error::malformed(bytes))?, used),
                }
            }
        };
        let counter = decimal(digits).ok_or_else(|| Error::malformed(bytes))?;
        Ok(Some((Answer::Counter(counter), used)))
    }
}

/// A command as Redis wants it.
pub(super) fn resp(words: &[&str]) -> String {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    text
}

/// A number of up to 20 digits; memcached leaves spaces behind one that became shorter.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.trim_end_matches(' ').parse().ok()
}

fn one_of<'a>(bytes: &[u8], known: &[(&[u8], Answer<'a>)]) -> Read<'a> {
    if let Some((text, answer)) = known.iter().find(|(text, _)| bytes.starts_with(text)) {
        return Ok(Some((*answer, text.len())));
    }
    if known.iter().any(|(text, _)| text.starts_with(bytes)) {
        Ok(None)
    } else {
        Err(Error::malformed(bytes))
    }
}

/// `VALUE <key> <flags> <bytes>[ <token>]`, the value, `END`.
fn classic_value<'a>(bytes: &'a [u8], key: &str) -> Read<'a> {
    let malformed = || Error::malformed(bytes);
    let Some((header, header_bytes)) = line(bytes).map_err(|_| malformed())? else { return Ok(None) };
    if header == b"END" {
        return Ok(Some((Answer::Missing, header_bytes)));
    }
    let fields: Vec<&[u8]> = header.split(|&byte| byte == b' ').collect();
    let (length, token) = match fields[..] {
        [b"VALUE", name, b"0", length] if name == key.as_bytes() => (length, 0),
        [b"VALUE", name, b"0", length, token] if name == key.as_bytes() => {
            (length, decimal(token).ok_or_else(malformed)?)
        }
        _ => return Err(malformed()),
    };
    let length = decimal(length).ok_or_else(malformed)? as usize;
    let Some((data, used)) = value(bytes, header_bytes, length).map_err(|_| malformed())? else {
        return Ok(None);
    };
    let end = one_of(&bytes[used..], &[(b"END\r\n", Answer::Stored)])?;
    Ok(end.map(|(_, end_bytes)| (Answer::Value(data, token), used + end_bytes)))
}

/// `VA <bytes>[ c<token>]` and the value, or `EN`; `NF` for arithmetic.
fn meta_value(bytes: &[u8]) -> Read<'_> {
    let malformed = || Error::malformed(bytes);
    let Some((header, header_bytes)) = line(bytes).map_err(|_| malformed())? else { return Ok(None) };
    let fields: Vec<&[u8]> = header.split(|&byte| byte == b' ').collect();
    let (length, token) = match fields[..] {
        [b"EN" | b"NF"] => return Ok(Some((Answer::Missing, header_bytes))),
        [b"VA", length] => (length, 0),
        [b"VA", length, [b'c', token @ ..]] => (length, decimal(token).ok_or_else(malformed)?),
        _ => return Err(malformed()),
    };
    let length = decimal(length).ok_or_else(malformed)? as usize;
    let whole = value(bytes, header_bytes, length).map_err(|_| malformed())?;
    Ok(whole.map(|(data, used)| (Answer::Value(data, token), used)))
}

/// `$<bytes>` and the value, or `$-1`.
fn resp_value(bytes: &[u8]) -> Read<'_> {
    let malformed = || Error::malformed(bytes);
    let Some((header, header_bytes)) = line(bytes).map_err(|_| malformed())? else { return Ok(None) };
    if header == b"$-1" {
        return Ok(Some((Answer::Missing, header_bytes)));
    }
    let length = header.strip_prefix(b"$").and_then(decimal).ok_or_else(malformed)? as usize;
    let whole = value(bytes, header_bytes, length).map_err(|_| malformed())?;
    Ok(whole.map(|(data, used)| (Answer::Value(data, 0), used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(ask: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        ask(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_method_asks_for_what_it_is_called_after() {
        let write = |method: Method, family| sent(|out| method.ask_write(family, out, "k", "5", 77));
        assert_eq!(write(Method::GetsCas, Family::Memcached), "cas k 0 0 1 77\r\n5\r\n");
        assert_eq!(write(Method::Meta, Family::Memcached), "ms k 1 C77\r\n5\r\n");
        assert_eq!(write(Method::Blind, Family::Memcached), "set k 0 0 1\r\n5\r\n");
        let exec = write(Method::Watch, Family::Redis);
        assert!(exec.contains("MULTI") && exec.ends_with("$4\r\nEXEC\r\n"), "{exec}");
        assert_eq!(sent(|out| Method::Ma.ask_decrement(Family::Memcached, out, "k")), "ma k MD v\r\n");
        assert_eq!(
            sent(|out| Method::Decr.ask_decrement(Family::Redis, out, "k")),
            "*2\r\n$4\r\nDECR\r\n$1\r\nk\r\n"
        );
    }

    /// A reply is not known before its last byte, and then takes all its bytes.
    fn whole<'a>(reply: &'a [u8], read: impl Fn(&'a [u8]) -> Read<'a>) -> Answer<'a> {
        for end in 0..reply.len() {
            assert_eq!(read(&reply[..end]).unwrap(), None, "{}", reply[..end].escape_ascii());
        }
        let (answer, used) = read(reply).unwrap().unwrap();
        assert_eq!(used, reply.len());
        answer
    }

    #[test]
    fn replies_mean_what_the_protocol_says() {
        let (mc, redis) = (Family::Memcached, Family::Redis);
        let gets = |bytes| Method::GetsCas.read(mc, bytes, "k");
        assert_eq!(whole(b"VALUE k 0 2 9\r\nab\r\nEND\r\n", gets), Answer::Value(b"ab", 9));
        assert_eq!(whole(b"END\r\n", gets), Answer::Missing);
        assert_eq!(whole(b"VA 2 c9\r\nab\r\n", |b| Method::Meta.read(mc, b, "k")), Answer::Value(b"ab", 9));
        assert_eq!(
            whole(b"+OK\r\n$2\r\nab\r\n", |b| Method::Watch.read(redis, b, "k")),
            Answer::Value(b"ab", 0)
        );
        for (method, family, reply, answer) in [
            (Method::GetsCas, mc, b"EXISTS\r\n".as_slice(), Answer::Refused),
            (Method::GetsCas, mc, b"NOT_FOUND\r\n", Answer::Missing),
            (Method::Meta, mc, b"EX\r\n", Answer::Refused),
            (Method::Watch, redis, b"+OK\r\n+QUEUED\r\n*-1\r\n", Answer::Refused),
            (Method::Watch, redis, b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n", Answer::Stored),
        ] {
            assert_eq!(whole(reply, |bytes| method.written(family, bytes)), answer);
        }
        assert_eq!(whole(b"41\r\n", |b| Method::Decr.decremented(mc, b)), Answer::Counter(41));
        assert_eq!(whole(b":41\r\n", |b| Method::Decr.decremented(redis, b)), Answer::Counter(41));
        assert_eq!(whole(b"VA 2\r\n41\r\n", |b| Method::Ma.decremented(mc, b)), Answer::Counter(41));
    }

    #[test]
    fn what_was_not_asked_for_is_an_error() {
        assert!(Method::GetsCas.read(Family::Memcached, b"VALUE other 0 2 9\r\nab\r\nEND\r\n", "k").is_err());
        assert!(Method::GetsCas.written(Family::Memcached, b"ERROR\r\n").is_err());
        assert!(Method::Decr.decremented(Family::Redis, b"41\r\n").is_err());
        assert!(Method::Watch.written(Family::Redis, b"+OK\r\n+OK\r\n").is_err());
    }

    #[test]
    fn a_stamp_is_read_back_and_nothing_else_is_a_stamp() {
        let stamp = Stamp { counter: INITIAL, key: 7, client: 100, seq: 3 };
        assert_eq!(Stamp::parse(stamp.text().as_bytes()), Some(stamp));
        for bad in ["", "1000000000", &stamp.text()[1..], &stamp.text().replace("0007", "+007")] {
            assert_eq!(Stamp::parse(bad.as_bytes()), None, "{bad}");
        }
        // A digit for another is no other stamp.
        for at in 0..STAMP_BYTES {
            let mut bytes = stamp.text().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(Stamp::parse(&bytes), None, "{}", bytes.escape_ascii());
        }
    }
}
