//! Writes requests of memcached's text as bytes.

use super::Dialect;
use crate::{base64, number};

/// The longest key that servers take.
pub const KEY_BYTES_MAX: usize = 250;

/// True if servers take the key as it is: 1 to 250 bytes, none of them a space or a control character.
#[inline]
pub fn is_key(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= KEY_BYTES_MAX && key.iter().all(|&byte| byte > b' ' && byte != 0x7f)
}

/// What a get asks for besides the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Want(u8);

impl Want {
    /// The client flags.
    pub const FLAGS: Want = Want(1);
    /// The token for compare-and-swap.
    pub const CAS: Want = Want(1 << 1);
    /// The time until the item expires.
    pub const TTL: Want = Want(1 << 2);
    /// The length of its value.
    pub const SIZE: Want = Want(1 << 3);
    /// Seconds since the last read.
    pub const LAST_ACCESS: Want = Want(1 << 4);
    /// Whether it had been read before.
    pub const HIT_BEFORE: Want = Want(1 << 5);
    /// The read does not change its place in the order of eviction.
    pub const NO_BUMP: Want = Want(1 << 6);

    /// The letters of meta text, by bit.
    const LETTERS: [u8; 7] = *b"fctslhu";

    /// True if it asks for all of `other`.
    pub fn has(self, other: Want) -> bool {
        self.0 & other.0 == other.0
    }

    /// The wishes of these bits, in the order above; `None` if another bit is set.
    pub fn from_bits(bits: u32) -> Option<Want> {
        u8::try_from(bits).ok().filter(|bits| bits >> Want::LETTERS.len() == 0).map(Want)
    }
}

impl std::ops::BitOr for Want {
    type Output = Want;

    fn bitor(self, other: Want) -> Want {
        Want(self.0 | other.0)
    }
}

/// A read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Get {
    /// What it asks for besides the value.
    pub want: Want,
    /// The new exptime.
    pub retime: Option<i64>,
    /// Where there is no item, an empty one is made with this exptime, and this client wins (meta).
    pub vivify: Option<i64>,
    /// If the item has fewer seconds left than this, one reader wins (meta).
    pub refresh: Option<i64>,
}

/// When a value is stored, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Whatever is there.
    #[default]
    Set,
    /// If there is no item.
    Add,
    /// If there is one.
    Replace,
    /// Behind the value that is there.
    Append,
    /// In front of it.
    Prepend,
}

/// A value that is stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Store<'a> {
    /// The value's bytes.
    pub value: &'a [u8],
    /// When and where.
    pub mode: Mode,
    /// The client flags.
    pub flags: u32,
    /// The exptime: 0 never, up to 30 days relative seconds, above that a Unix time.
    pub exptime: i64,
    /// If the given token is older than the item's, the value is stored as stale (meta).
    pub stale_if_older: bool,
    /// The reply has the item's new token (meta).
    pub want_cas: bool,
}

/// An item to delete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delete {
    /// The item stays and becomes stale (meta).
    pub stale: bool,
    /// The value is removed, and the item stays (meta).
    pub empty: bool,
    /// The new exptime of an item that stays (meta).
    pub retime: Option<i64>,
}

/// A number to change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Subtracts.
    pub down: bool,
    /// The number to add or subtract.
    pub delta: u64,
    /// The first value and the exptime where there is no item (meta).
    pub initial: Option<(u64, i64)>,
    /// The new exptime (meta).
    pub retime: Option<i64>,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub enum Ask<'a> {
    /// A value.
    Get(Get),
    /// A new exptime.
    Touch(i64),
    /// Stores a value.
    Store(Store<'a>),
    /// Deletes an item.
    Delete(Delete),
    /// Changes a number.
    Count(Count),
    /// A reply after those of all earlier requests.
    Barrier,
    /// The server's version.
    Version,
    /// Deletes everything.
    FlushAll,
}

impl<'a> Ask<'a> {
    /// Splits a request into what it asks for, without the value, and the value.
    pub fn split(self) -> (Ask<'static>, &'a [u8]) {
        let ask = match self {
            Ask::Store(Store { value, mode, flags, exptime, stale_if_older, want_cas }) => {
                let store = Store { value: &[], mode, flags, exptime, stale_if_older, want_cas };
                return (Ask::Store(store), value);
            }
            Ask::Get(get) => Ask::Get(get),
            Ask::Touch(exptime) => Ask::Touch(exptime),
            Ask::Delete(delete) => Ask::Delete(delete),
            Ask::Count(count) => Ask::Count(count),
            Ask::Barrier => Ask::Barrier,
            Ask::Version => Ask::Version,
            Ask::FlushAll => Ask::FlushAll,
        };
        (ask, &[])
    }

    /// The same request with this value, if it stores one.
    pub fn with_value(self, value: &'a [u8]) -> Ask<'a> {
        match self {
            Ask::Store(store) => Ask::Store(Store { value, ..store }),
            other => other,
        }
    }
}

/// The kind of request that a reply answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Ask::Get`].
    Get,
    /// [`Ask::Touch`].
    Touch,
    /// [`Ask::Store`].
    Store,
    /// [`Ask::Delete`].
    Delete,
    /// [`Ask::Count`].
    Count,
    /// [`Ask::Barrier`].
    Barrier,
    /// [`Ask::Version`].
    Version,
    /// [`Ask::FlushAll`].
    FlushAll,
}

/// A request. Its key must be as [`is_key`] says, or go as base64; some requests have none.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is asked for.
    pub ask: Ask<'a>,
    /// The key.
    pub key: &'a [u8],
    /// The key may have any bytes and is written in base64 (meta).
    pub base64: bool,
    /// The token that the item must have.
    pub cas: Option<u64>,
    /// A number that the reply repeats (meta).
    pub opaque: Option<u32>,
    /// The expected outcome has no reply (meta): a miss of a get, success of everything else.
    pub quiet: bool,
}

impl<'a> Request<'a> {
    /// A request without conditions.
    pub fn new(ask: Ask<'a>, key: &'a [u8]) -> Request<'a> {
        Request { ask, key, base64: false, cas: None, opaque: None, quiet: false }
    }

    /// The kind of its reply.
    pub fn kind(&self) -> Kind {
        match self.ask {
            Ask::Get(_) => Kind::Get,
            Ask::Touch(_) => Kind::Touch,
            Ask::Store(_) => Kind::Store,
            Ask::Delete(_) => Kind::Delete,
            Ask::Count(_) => Kind::Count,
            Ask::Barrier => Kind::Barrier,
            Ask::Version => Kind::Version,
            Ask::FlushAll => Kind::FlushAll,
        }
    }

    /// The value that follows the line, without its line end.
    pub fn value(&self) -> Option<&'a [u8]> {
        match self.ask {
            Ask::Store(store) => Some(store.value),
            _ => None,
        }
    }

    /// True if the dialect can express the request. Classic text has tokens in a set alone, creates no counters, has no stale
    /// items, does not repeat opaques, and cannot suppress the reply of a success alone.
    pub fn fits(&self, dialect: Dialect) -> bool {
        if dialect == Dialect::Meta {
            return true;
        }
        let known = match self.ask {
            Ask::Get(get) => get.vivify.is_none() && get.refresh.is_none(),
            Ask::Store(store) => !store.stale_if_older && (self.cas.is_none() || store.mode == Mode::Set),
            Ask::Delete(delete) => !delete.stale && !delete.empty && self.cas.is_none(),
            Ask::Count(count) => count.initial.is_none() && count.retime.is_none() && self.cas.is_none(),
            Ask::Touch(_) | Ask::Barrier | Ask::Version | Ask::FlushAll => true,
        };
        known && !self.quiet && !self.base64
    }

    /// Appends the whole request.
    pub fn write(&self, dialect: Dialect, out: &mut Vec<u8>) {
        self.write_line(dialect, self.value().map_or(0, <[u8]>::len), out);
        if let Some(value) = self.value() {
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends the request's line. A store's line has to be followed by `value_bytes` bytes of value and a line end.
    pub fn write_line(&self, dialect: Dialect, value_bytes: usize, out: &mut Vec<u8>) {
        match (dialect, self.ask) {
            (_, Ask::Version) => out.extend_from_slice(b"version"),
            (_, Ask::FlushAll) => out.extend_from_slice(b"flush_all"),
            (Dialect::Meta, Ask::Barrier) => out.extend_from_slice(b"mn"),
            (Dialect::Classic, Ask::Barrier) => out.extend_from_slice(b"version"),
            (Dialect::Meta, _) => self.write_meta(value_bytes, out),
            (Dialect::Classic, _) => self.write_classic(value_bytes, out),
        }
        out.extend_from_slice(b"\r\n");
    }

    fn write_meta(&self, value_bytes: usize, out: &mut Vec<u8>) {
        let begin = |out: &mut Vec<u8>, name: &[u8]| {
            out.extend_from_slice(name);
            if self.base64 {
                let begins = out.len();
                out.resize(begins + base64::encoded_bytes(self.key.len()), 0);
                base64::encode(self.key, &mut out[begins..]);
            } else {
                out.extend_from_slice(self.key);
            }
        };
        match self.ask {
            Ask::Get(get) => {
                begin(out, b"mg ");
                out.extend_from_slice(b" v");
                for (bit, letter) in Want::LETTERS.iter().enumerate() {
                    if get.want.0 & 1 << bit != 0 {
                        out.extend_from_slice(&[b' ', *letter]);
                    }
                }
                for (letter, number) in [(b'N', get.vivify), (b'R', get.refresh), (b'T', get.retime)] {
                    signed(out, letter, number);
                }
            }
            Ask::Touch(exptime) => {
                begin(out, b"mg ");
                signed(out, b'T', Some(exptime));
            }
            Ask::Store(store) => {
                begin(out, b"ms ");
                out.push(b' ');
                write_u64(out, value_bytes as u64);
                if store.flags != 0 {
                    unsigned(out, b'F', Some(u64::from(store.flags)));
                }
                signed(out, b'T', Some(store.exptime).filter(|&exptime| exptime != 0));
                match store.mode {
                    Mode::Set => {}
                    Mode::Add => out.extend_from_slice(b" ME"),
                    Mode::Replace => out.extend_from_slice(b" MR"),
                    Mode::Append => out.extend_from_slice(b" MA"),
                    Mode::Prepend => out.extend_from_slice(b" MP"),
                }
                unsigned(out, b'C', self.cas);
                for (letter, said) in [(b'I', store.stale_if_older), (b'c', store.want_cas)] {
                    if said {
                        out.extend_from_slice(&[b' ', letter]);
                    }
                }
            }
            Ask::Delete(delete) => {
                begin(out, b"md ");
                unsigned(out, b'C', self.cas);
                for (letter, said) in [(b'I', delete.stale), (b'x', delete.empty)] {
                    if said {
                        out.extend_from_slice(&[b' ', letter]);
                    }
                }
                signed(out, b'T', delete.retime);
            }
            Ask::Count(count) => {
                begin(out, b"ma ");
                out.extend_from_slice(if count.down { b" v MD" } else { b" v" });
                unsigned(out, b'D', Some(count.delta));
                if let Some((initial, exptime)) = count.initial {
                    signed(out, b'N', Some(exptime));
                    unsigned(out, b'J', Some(initial));
                }
                signed(out, b'T', count.retime);
                unsigned(out, b'C', self.cas);
            }
            Ask::Barrier | Ask::Version | Ask::FlushAll => unreachable!("written without a key"),
        }
        if self.base64 {
            out.extend_from_slice(b" b");
        }
        if let Some(opaque) = self.opaque {
            out.extend_from_slice(b" O");
            write_base36(out, opaque);
        }
        if self.quiet {
            out.extend_from_slice(b" q");
        }
    }

    fn write_classic(&self, value_bytes: usize, out: &mut Vec<u8>) {
        match self.ask {
            Ask::Get(Get { retime: Some(exptime), .. }) => {
                out.extend_from_slice(b"gats ");
                write_i64(out, exptime);
                out.push(b' ');
                out.extend_from_slice(self.key);
            }
            Ask::Get(_) => {
                out.extend_from_slice(b"gets ");
                out.extend_from_slice(self.key);
            }
            Ask::Touch(exptime) => {
                out.extend_from_slice(b"touch ");
                out.extend_from_slice(self.key);
                out.push(b' ');
                write_i64(out, exptime);
            }
            Ask::Store(store) => {
                out.extend_from_slice(match store.mode {
                    Mode::Set if self.cas.is_some() => b"cas ",
                    Mode::Set => b"set ",
                    Mode::Add => b"add ",
                    Mode::Replace => b"replace ",
                    Mode::Append => b"append ",
                    Mode::Prepend => b"prepend ",
                });
                out.extend_from_slice(self.key);
                out.push(b' ');
                write_u64(out, u64::from(store.flags));
                out.push(b' ');
                write_i64(out, store.exptime);
                out.push(b' ');
                write_u64(out, value_bytes as u64);
                if let Some(cas) = self.cas {
                    out.push(b' ');
                    write_u64(out, cas);
                }
            }
            Ask::Delete(_) => {
                out.extend_from_slice(b"delete ");
                out.extend_from_slice(self.key);
            }
            Ask::Count(count) => {
                out.extend_from_slice(if count.down { b"decr " } else { b"incr " });
                out.extend_from_slice(self.key);
                out.push(b' ');
                write_u64(out, count.delta);
            }
            Ask::Barrier | Ask::Version | Ask::FlushAll => unreachable!("written without a key"),
        }
    }
}

fn write_u64(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let count = number::write_u64(&mut digits, number);
    out.extend_from_slice(&digits[..count]);
}

/// Writes an opaque with as few letters as possible.
fn write_base36(out: &mut Vec<u8>, mut number: u32) {
    let mut letters = [0; 7];
    let mut at = letters.len();
    loop {
        at -= 1;
        letters[at] = b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize];
        number /= 36;
        if number == 0 {
            out.extend_from_slice(&letters[at..]);
            return;
        }
    }
}

fn write_i64(out: &mut Vec<u8>, number: i64) {
    if number < 0 {
        out.push(b'-');
    }
    write_u64(out, number.unsigned_abs());
}

fn signed(out: &mut Vec<u8>, letter: u8, number: Option<i64>) {
    if let Some(number) = number {
        out.extend_from_slice(&[b' ', letter]);
        write_i64(out, number);
    }
}

fn unsigned(out: &mut Vec<u8>, letter: u8, number: Option<u64>) {
    if let Some(number) = number {
        out.extend_from_slice(&[b' ', letter]);
        write_u64(out, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(request: Request<'_>) -> (String, Option<String>) {
        let text = |dialect| {
            let mut out = Vec::new();
            request.write(dialect, &mut out);
            String::from_utf8(out).expect("text")
        };
        (text(Dialect::Meta), request.fits(Dialect::Classic).then(|| text(Dialect::Classic)))
    }

    #[test]
    fn each_request_in_both_dialects() {
        let store = Store { value: b"v\r\n", ..Store::default() };
        let cases: [(Request<'_>, &str, Option<&str>); 17] = [
            (Request::new(Ask::Get(Get::default()), b"k"), "mg k v\r\n", Some("gets k\r\n")),
            (
                Request::new(Ask::Get(Get { want: Want::CAS | Want::TTL, ..Get::default() }), b"k"),
                "mg k v c t\r\n",
                Some("gets k\r\n"),
            ),
            (
                Request::new(Ask::Get(Get { retime: Some(60), ..Get::default() }), b"k"),
                "mg k v T60\r\n",
                Some("gats 60 k\r\n"),
            ),
            (
                Request::new(Ask::Get(Get { vivify: Some(30), refresh: Some(10), ..Get::default() }), b"k"),
                "mg k v N30 R10\r\n",
                None,
            ),
            (Request::new(Ask::Touch(-1), b"k"), "mg k T-1\r\n", Some("touch k -1\r\n")),
            (Request::new(Ask::Store(store), b"k"), "ms k 3\r\nv\r\n\r\n", Some("set k 0 0 3\r\nv\r\n\r\n")),
            (
                Request::new(Ask::Store(Store { flags: 7, exptime: 9, mode: Mode::Add, ..store }), b"k"),
                "ms k 3 F7 T9 ME\r\nv\r\n\r\n",
                Some("add k 7 9 3\r\nv\r\n\r\n"),
            ),
            (
                Request::new(Ask::Store(Store { mode: Mode::Append, ..store }), b"k"),
                "ms k 3 MA\r\nv\r\n\r\n",
                Some("append k 0 0 3\r\nv\r\n\r\n"),
            ),
            (
                Request { cas: Some(42), ..Request::new(Ask::Store(store), b"k") },
                "ms k 3 C42\r\nv\r\n\r\n",
                Some("cas k 0 0 3 42\r\nv\r\n\r\n"),
            ),
            (
                Request {
                    cas: Some(42),
                    ..Request::new(Ask::Store(Store { stale_if_older: true, ..store }), b"k")
                },
                "ms k 3 C42 I\r\nv\r\n\r\n",
                None,
            ),
            (Request::new(Ask::Delete(Delete::default()), b"k"), "md k\r\n", Some("delete k\r\n")),
            (
                Request::new(Ask::Delete(Delete { stale: true, retime: Some(30), empty: false }), b"k"),
                "md k I T30\r\n",
                None,
            ),
            (
                Request::new(Ask::Count(Count { delta: 5, ..Count::default() }), b"k"),
                "ma k v D5\r\n",
                Some("incr k 5\r\n"),
            ),
            (
                Request::new(
                    Ask::Count(Count { down: true, delta: 1, initial: Some((3, 60)), retime: None }),
                    b"k",
                ),
                "ma k v MD D1 N60 J3\r\n",
                None,
            ),
            (Request::new(Ask::Barrier, b""), "mn\r\n", Some("version\r\n")),
            (Request::new(Ask::FlushAll, b""), "flush_all\r\n", Some("flush_all\r\n")),
            (
                Request {
                    opaque: Some(37),
                    quiet: true,
                    base64: true,
                    ..Request::new(Ask::Delete(Delete::default()), b"a b")
                },
                "md YSBi b O11 q\r\n",
                None,
            ),
        ];
        for (request, meta, classic) in cases {
            assert_eq!(written(request), (meta.to_owned(), classic.map(str::to_owned)));
        }
    }

    #[test]
    fn keys_that_text_cannot_say_are_known() {
        for good in [b"k".as_slice(), "schlüssel".as_bytes(), &[b'k'; 250], b"!~\x80\xff"] {
            assert!(is_key(good), "{}", good.escape_ascii());
        }
        for bad in [b"".as_slice(), b"a b", b"a\r\nb", b"\t", b"\x7f", &[b'k'; 251]] {
            assert!(!is_key(bad), "{}", bad.escape_ascii());
        }
    }
}
