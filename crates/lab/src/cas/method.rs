//! Ways to subtract one from a counter exactly once, as bytes: requests, and the meaning of replies.
//!
//! | method | request(s) of an attempt |
//! |---|---|
//! | `gets-cas` | `gets k` … `cas k 0 0 <n> <token>` |
//! | `meta` | `mg k v c` … `ms k <n> C<token>` |
//! | `watch` | `WATCH k`, `GET k` … `MULTI`, `SET k`, `EXEC` |
//! | `decr` | `decr k 1`, on Redis `DECR k`: the server does it |
//! | `ma` | `ma k v MD D1` |
//! | `blind` | `gets k` … `set k` … `get k`: the original article's, which never sent a token |
//!
//! If a client writes the counter itself, the value has more than the number in it, so that a value that no client wrote is
//! noticed:
//!
//! ```text
//! counter      key        client seq        checksum
//! 000999999995 0000000000 000003 0000000017 5fb1a0c3
//! ```

use larder_protocol::client::{
    Ask, Classic, Dialect, Event, Get, Grammar, Malformed, Meta, Parsed, Protocol, Request, Resp, Store,
    Want, command, counter,
};

use crate::control::Family;
use crate::error::Error;
use crate::value::seed;

/// The initial value of counters, large enough that no run reaches 0.
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
    /// The server subtracts, by memcached's meta command.
    Ma,
    /// Read, write without a token, read again: loses updates.
    Blind,
}

/// All methods.
pub const METHODS: [Method; 6] =
    [Method::GetsCas, Method::Meta, Method::Watch, Method::Decr, Method::Ma, Method::Blind];

impl Method {
    /// Its name in options and tables.
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

    /// Whether servers of this family have it.
    pub fn fits(self, family: Family) -> bool {
        match self {
            Method::GetsCas | Method::Meta | Method::Ma => family == Family::Memcached,
            Method::Watch => family == Family::Redis,
            Method::Decr | Method::Blind => true,
        }
    }

    /// Whether an attempt may be refused because another client was faster.
    pub fn is_optimistic(self) -> bool {
        matches!(self, Method::GetsCas | Method::Meta | Method::Watch)
    }

    /// Whether the server computes the new value: nothing is read first.
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
    /// The counter.
    pub key: u32,
    /// The client that wrote it; 0 is the lab's initial value.
    pub client: u32,
    /// The number of this write among the client's.
    pub seq: u64,
}

impl Stamp {
    /// The bytes of the value; their number is always the same.
    pub fn text(&self) -> String {
        let Stamp { counter, key, client, seq } = *self;
        format!("{counter:012} {key:010} {client:06} {seq:010} {:08x}", self.checksum())
    }

    fn checksum(&self) -> u32 {
        let Stamp { counter, key, client, seq } = *self;
        seed(counter, u64::from(client) << 40 ^ seq, key as usize) as u32
    }

    /// Reads a value; `None` if the lab did not write it.
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

/// The meaning of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// A value, and its token where the method has one.
    Value(&'a [u8], u64),
    /// There is no such key.
    Missing,
    /// The write was done.
    Stored,
    /// Another client was faster.
    Refused,
    /// The counter after the server's arithmetic.
    Counter(u64),
}

/// A result and the bytes that it took; `None` when the reply is incomplete.
type Read<'a> = Result<Option<(Answer<'a>, usize)>, Error>;

impl Method {
    /// The form of its requests; none in Redis's protocol.
    fn dialect(self, family: Family) -> Option<Dialect> {
        match (self, family) {
            (_, Family::Redis) => None,
            (Method::Meta | Method::Ma, Family::Memcached) => Some(Dialect::Meta),
            (Method::GetsCas | Method::Watch | Method::Decr | Method::Blind, Family::Memcached) => {
                Some(Dialect::Classic)
            }
        }
    }

    /// The protocol of its requests.
    fn protocol(self, family: Family) -> Protocol {
        match self.dialect(family) {
            Some(Dialect::Meta) => Protocol::Meta,
            Some(Dialect::Classic) => Protocol::Classic,
            None => Protocol::Resp,
        }
    }

    /// Appends the request that reads counter `key`.
    pub fn ask_read(self, family: Family, out: &mut Vec<u8>, key: &str) {
        if self == Method::Watch {
            command(out, &[b"WATCH", key.as_bytes()]);
        }
        match self.dialect(family) {
            Some(dialect) => {
                let get = Get { want: Want::CAS, ..Get::default() };
                Request::new(Ask::Get(get), key.as_bytes()).write(dialect, out);
            }
            None => command(out, &[b"GET", key.as_bytes()]),
        }
    }

    /// Appends the request that writes `value`; with a method that uses tokens, only if the counter still has `token`.
    pub fn ask_write(self, family: Family, out: &mut Vec<u8>, key: &str, value: &str, token: u64) {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        match (self, self.dialect(family)) {
            (Method::GetsCas | Method::Meta, Some(dialect)) => {
                let store = Ask::Store(Store { value, ..Store::default() });
                Request { cas: Some(token), ..Request::new(store, key) }.write(dialect, out);
            }
            (Method::Watch, _) => {
                command(out, &[b"MULTI"]);
                command(out, &[b"SET", key, value]);
                command(out, &[b"EXEC"]);
            }
            (Method::GetsCas | Method::Meta | Method::Decr | Method::Ma | Method::Blind, _) => {
                self.protocol(family).set(out, key, value, 0);
            }
        }
    }

    /// Appends the request by which the server subtracts one.
    pub fn ask_decrement(self, family: Family, out: &mut Vec<u8>, key: &str) {
        self.protocol(family).decr(out, key.as_bytes());
    }

    /// Reads the reply to [`Method::ask_read`].
    ///
    /// # Errors
    /// [`Error::Reply`].
    pub fn read<'a>(self, family: Family, bytes: &'a [u8], key: &str) -> Read<'a> {
        let reply = &mut Reply { bytes, used: 0 };
        if self == Method::Watch && !reply.follows(Resp::event, Event::Stored)? {
            return Ok(None);
        }
        let event = match self.dialect(family) {
            Some(Dialect::Meta) => reply.next(Meta::tokened)?,
            Some(Dialect::Classic) => reply.next(Classic::tokened)?,
            None => reply.next(Resp::event)?,
        };
        let Some(event) = event else { return Ok(None) };
        let answer = match event {
            Event::Token { key: None, value, token, .. } => Answer::Value(value, token),
            // No client stores client flags.
            Event::Token { key: Some(name), flags: 0, value, token } if name == key.as_bytes() => {
                if !reply.follows(Classic::event, Event::End)? {
                    return Ok(None);
                }
                Answer::Value(value, token)
            }
            Event::Value { value, .. } => Answer::Value(value, 0),
            Event::Miss | Event::End => Answer::Missing,
            _ => return Err(Error::malformed(bytes)),
        };
        Ok(Some((answer, reply.used)))
    }

    /// Reads the reply to [`Method::ask_write`].
    ///
    /// # Errors
    /// [`Error::Reply`].
    pub fn written(self, family: Family, bytes: &[u8]) -> Read<'_> {
        let protocol = self.protocol(family);
        let reply = &mut Reply { bytes, used: 0 };
        if self == Method::Watch {
            for before in [Event::Stored, Event::Queued] {
                if !reply.follows(Resp::event, before)? {
                    return Ok(None);
                }
            }
        }
        let Some(event) = reply.next(|bytes| protocol.event(bytes))? else { return Ok(None) };
        let compares = self.is_optimistic();
        let answer = match event {
            Event::Count(1) if self == Method::Watch => {
                if !reply.follows(Resp::event, Event::Stored)? {
                    return Ok(None);
                }
                Answer::Stored
            }
            Event::Stored if self != Method::Watch => Answer::Stored,
            Event::Conflict if compares => Answer::Refused,
            Event::Absent if compares => Answer::Missing,
            _ => return Err(Error::malformed(bytes)),
        };
        Ok(Some((answer, reply.used)))
    }

    /// Reads the reply to [`Method::ask_decrement`].
    ///
    /// # Errors
    /// [`Error::Reply`].
    pub fn decremented(self, family: Family, bytes: &[u8]) -> Read<'_> {
        let protocol = self.protocol(family);
        let malformed = |Malformed| Error::malformed(bytes);
        let Some((event, used)) = protocol.event(bytes).map_err(malformed)? else { return Ok(None) };
        let answer = match event {
            Event::Number(number) => Answer::Counter(number),
            Event::Value { value, .. } if protocol == Protocol::Meta => {
                Answer::Counter(counter(value).map_err(malformed)?)
            }
            Event::Absent => Answer::Missing,
            _ => return Err(Error::malformed(bytes)),
        };
        Ok(Some((answer, used)))
    }
}

/// A reply of several events.
struct Reply<'a> {
    bytes: &'a [u8],
    /// Bytes that were read.
    used: usize,
}

impl<'a> Reply<'a> {
    /// The next event; none while it is incomplete.
    fn next(&mut self, read: impl Fn(&'a [u8]) -> Parsed<'a>) -> Result<Option<Event<'a>>, Error> {
        let read = read(&self.bytes[self.used..]).map_err(|Malformed| Error::malformed(self.bytes))?;
        Ok(read.map(|(event, used)| {
            self.used += used;
            event
        }))
    }

    /// Whether the next event has come; it must be `expected`.
    fn follows(&mut self, read: impl Fn(&'a [u8]) -> Parsed<'a>, expected: Event<'_>) -> Result<bool, Error> {
        match self.next(read)? {
            None => Ok(false),
            Some(event) if event == expected => Ok(true),
            Some(_) => Err(Error::malformed(self.bytes)),
        }
    }
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
        assert_eq!(sent(|out| Method::Ma.ask_decrement(Family::Memcached, out, "k")), "ma k v MD D1\r\n");
        assert_eq!(
            sent(|out| Method::Decr.ask_decrement(Family::Redis, out, "k")),
            "*2\r\n$4\r\nDECR\r\n$1\r\nk\r\n"
        );
    }

    /// A reply is incomplete before its last byte, and then takes all its bytes.
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
        // A stamp with another digit is not a valid stamp.
        for at in 0..STAMP_BYTES {
            let mut bytes = stamp.text().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(Stamp::parse(&bytes), None, "{}", bytes.escape_ascii());
        }
    }
}
