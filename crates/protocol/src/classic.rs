//! Text requests: one line each, a data block after the lines that store.
//!
//! ```text
//! get <key> <key> …\r\n                          a line of keys, read key by key: it has no end
//! set <key> <flags> <exptime> <bytes>\r\n<data>\r\n
//! mg <key> <flag> …\r\n                          see `meta`
//! verbosity 1\r\n                                anything else: a whole line, for a table to look up
//! ```
//!
//! [`decode`] reads one line at the start of the input and borrows from it. It does not look at data blocks, and of a line of
//! keys it reads up to the first key: [`next_key`] reads the rest. The two forms that make up nearly all traffic have a fast
//! path, which falls back to the general one whenever anything is unusual. Both give the same result (a property test compares
//! them).

mod keys;
mod short;
#[cfg(test)]
mod tests;

pub use keys::{KeyStep, holds_long_key, next_key};
pub use short::{GET_BYTES, decode_get, decode_set, starts_get};
pub(crate) use short::{short_number, spaced_number};

use crate::fault::Fault;
use crate::meta::{self, Meta};
use crate::number::{parse_exptime, parse_flags, parse_i32, parse_length, parse_u64};
use crate::scan::{line, line_feed};
use crate::tokens::{Tokens, ends_in_noreply};

/// Most bytes of a key.
pub const KEY_BYTES_MAX: usize = 250;

/// Longest line whose end is waited for (lines of keys excepted).
pub const LINE_BYTES_MAX: usize = 2048;

/// A line of keys up to this long is read as a whole, so that a bad key invalidates all of it. A longer one is answered while it
/// arrives. No usual client sends a longer multi-get, and what a connection keeps of an incomplete line takes memory.
pub const KEYS_BYTES_MAX: usize = 16 << 10;

/// Most bytes that the length of a data block can say: 2^31 less the line end and one.
pub const VALUE_BYTES_MAX: u64 = i32::MAX as u64 - 2;

/// Most spaces in front of `get ` that leave it exempt from [`LINE_BYTES_MAX`].
const LEADING_SPACES_MAX: usize = 100;

/// What a line of keys asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// gets, gats: replies carry CAS tokens.
    pub cas: bool,
    /// gat, gats: the new exptime.
    pub touch: Option<i32>,
}

/// How a store treats an existing item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreVerb {
    /// set
    Set,
    /// add
    Add,
    /// replace
    Replace,
    /// append
    Append,
    /// prepend
    Prepend,
    /// cas
    Cas,
}

/// set, add, replace, append, prepend, cas: the line without its data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Which.
    pub verb: StoreVerb,
    /// No reply wanted.
    pub noreply: bool,
    /// Client flags.
    pub flags: u32,
    /// As given: 0, relative, absolute or negative.
    pub exptime: i32,
    /// Bytes of the data block, its line end not counted.
    pub value_bytes: u32,
    /// cas: the token.
    pub cas: u64,
    /// The key.
    pub key: &'a [u8],
}

/// A request: its line without its data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// get, gets, gat, gats; [`next_key`] reads the keys.
    Fetch(Fetch),
    /// A store; its data block follows the line.
    Store(Store<'a>),
    /// delete
    Delete {
        /// The key.
        key: &'a [u8],
        /// No reply wanted.
        noreply: bool,
    },
    /// incr, decr
    Arithmetic {
        /// The key.
        key: &'a [u8],
        /// The number to add or subtract.
        delta: u64,
        /// decr
        decrement: bool,
        /// No reply wanted.
        noreply: bool,
    },
    /// touch
    Touch {
        /// The key.
        key: &'a [u8],
        /// As given.
        exptime: i32,
        /// No reply wanted.
        noreply: bool,
    },
    /// A meta command; for ms its data block follows the line.
    Meta(Meta<'a>),
    /// Another line, without its end: administrative or unknown.
    Line(&'a [u8]),
    /// A request that cannot be carried out.
    Fault {
        /// What is wrong.
        fault: Fault,
        /// Bytes after the line that belong to the request and are to be dropped, line end included.
        swallow: u64,
        /// No reply wanted.
        noreply: bool,
    },
}

/// What [`decode`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A request and the bytes it takes: its line, or a line of keys up to its first key.
    Request(Request<'a>, usize),
    /// The line has no end yet.
    Incomplete,
    /// The line has no end yet and is longer than the limit.
    TooLong,
}

/// Reads one request at the start of `input`, which is not empty.
pub fn decode(input: &[u8]) -> Decoded<'_> {
    match input.first_chunk::<4>() {
        Some(b"get ") if starts_get(input) => {
            return Decoded::Request(Request::Fetch(Fetch { cas: false, touch: None }), GET_BYTES);
        }
        Some(b"set ") => {
            if let Some((store, bytes)) = decode_set(input) {
                return Decoded::Request(Request::Store(store), bytes);
            }
        }
        Some([b'm', _, b' ', _]) => {
            if let Some((meta, bytes)) = meta::decode_start(input) {
                return Decoded::Request(Request::Meta(meta), bytes);
            }
        }
        _ => {}
    }
    decode_line(input)
}

/// Reads a whole line of any kind.
#[inline(never)]
fn decode_line(input: &[u8]) -> Decoded<'_> {
    let Some(feed) = line_feed(input) else { return without_end(input) };
    if feed > LINE_BYTES_MAX && !may_be_long(input) {
        return Decoded::TooLong;
    }
    let text = line(input, feed);
    // memcached's rule: a line of at most three bytes, line end included, is no command, not even `mn\n`.
    if feed < 3 {
        return Decoded::Request(fault(Fault::BadLine, 0, false), feed + 1);
    }
    let mut tokens = Tokens::new(text);
    let Some(name) = tokens.next() else { return Decoded::Request(Request::Line(text), feed + 1) };
    let request = match name {
        b"get" => return fetch(input, feed, tokens, Fetch { cas: false, touch: None }),
        b"gets" => return fetch(input, feed, tokens, Fetch { cas: true, touch: None }),
        b"gat" => return fetch_and_touch(input, feed, tokens, false),
        b"gats" => return fetch_and_touch(input, feed, tokens, true),
        b"set" => store(StoreVerb::Set, text, tokens),
        b"add" => store(StoreVerb::Add, text, tokens),
        b"replace" => store(StoreVerb::Replace, text, tokens),
        b"append" => store(StoreVerb::Append, text, tokens),
        b"prepend" => store(StoreVerb::Prepend, text, tokens),
        b"cas" => store(StoreVerb::Cas, text, tokens),
        b"delete" => delete(text, tokens),
        b"incr" => arithmetic(false, text, tokens),
        b"decr" => arithmetic(true, text, tokens),
        b"touch" => touch(text, tokens),
        _ => match meta::Verb::from_name(name) {
            Some(verb) => meta::decode_tokens(verb, tokens),
            None => Request::Line(text),
        },
    };
    Decoded::Request(request, feed + 1)
}

/// True for a line of keys to which [`LINE_BYTES_MAX`] does not apply: get and gets, with few spaces in front.
fn may_be_long(input: &[u8]) -> bool {
    let spaces = input.iter().take_while(|&&b| b == b' ').count();
    let text = &input[spaces..];
    spaces <= LEADING_SPACES_MAX && (text.starts_with(b"get ") || text.starts_with(b"gets "))
}

/// A line without an end: incomplete, read key by key, or too long.
fn without_end(input: &[u8]) -> Decoded<'_> {
    if input.len() <= LINE_BYTES_MAX {
        return Decoded::Incomplete;
    }
    if !may_be_long(input) {
        return Decoded::TooLong;
    }
    let spaces = input.iter().take_while(|&&b| b == b' ').count();
    let fetch =
        |cas, name: usize| Decoded::Request(Request::Fetch(Fetch { cas, touch: None }), spaces + name);
    match &input[spaces..] {
        [b'g', b'e', b't', b' ', ..] => fetch(false, 4),
        _ => fetch(true, 5),
    }
}

fn fault(fault: Fault, swallow: u64, noreply: bool) -> Request<'static> {
    Request::Fault { fault, swallow, noreply }
}

/// A line of keys whose end has arrived. The request takes the bytes up to the first key.
fn fetch<'a>(input: &'a [u8], feed: usize, mut tokens: Tokens<'a>, fetch: Fetch) -> Decoded<'a> {
    let before = tokens.rest();
    let Some(_) = tokens.next() else {
        return Decoded::Request(fault(Fault::BadLine, 0, false), feed + 1);
    };
    let line_bytes = line(input, feed).len();
    Decoded::Request(Request::Fetch(fetch), line_bytes - before.len())
}

fn fetch_and_touch<'a>(input: &'a [u8], feed: usize, mut tokens: Tokens<'a>, cas: bool) -> Decoded<'a> {
    let bad = |why| Decoded::Request(fault(why, 0, false), feed + 1);
    let Some(exptime) = tokens.next() else { return bad(Fault::BadLine) };
    if tokens.clone().next().is_none() {
        return bad(Fault::BadLine);
    }
    let Some(exptime) = parse_i32(exptime) else { return bad(Fault::BadExptime) };
    fetch(input, feed, tokens, Fetch { cas, touch: Some(exptime) })
}

/// A key of legal length.
#[inline]
pub(crate) fn is_key(key: &[u8]) -> bool {
    key.len() <= KEY_BYTES_MAX
}

fn store<'a>(verb: StoreVerb, text: &'a [u8], mut tokens: Tokens<'a>) -> Request<'a> {
    let noreply = ends_in_noreply(text);
    let bad = |swallow| fault(Fault::BadLine, swallow, noreply);
    // A length that is no number closes the connection, so the error is sent even with noreply.
    let no_length = |word| match Fault::of_length(word) {
        fault @ Fault::NoLength => Request::Fault { fault, swallow: 0, noreply: false },
        fault => Request::Fault { fault, swallow: 0, noreply },
    };
    let mut token = || tokens.next();
    let (Some(key), Some(flags), Some(exptime), Some(bytes)) = (token(), token(), token(), token()) else {
        return no_length(None);
    };
    let Some(value_bytes) = parse_length(bytes).filter(|&n| n <= VALUE_BYTES_MAX) else {
        return no_length(Some(bytes));
    };
    let swallow = value_bytes + 2;
    let cas = match verb {
        StoreVerb::Cas => match token() {
            None => return bad(swallow),
            Some(cas) => match parse_u64(cas) {
                None => return bad(swallow),
                Some(cas) => cas,
            },
        },
        StoreVerb::Set | StoreVerb::Add | StoreVerb::Replace | StoreVerb::Append | StoreVerb::Prepend => 0,
    };
    let (true, Some(flags), Some(exptime)) = (is_key(key), parse_flags(flags), parse_exptime(exptime)) else {
        return bad(swallow);
    };
    Request::Store(Store { verb, noreply, flags, exptime, value_bytes: value_bytes as u32, cas, key })
}

/// Reads a delete. Some words behind the key are ignored, whatever they are: deletes once had a time. memcached ignores any
/// number of them. More than a few are an error here, which libmemcached's test of a server expects (it sends four).
fn delete<'a>(text: &'a [u8], mut tokens: Tokens<'a>) -> Request<'a> {
    const WORDS_MAX: usize = 3;
    let noreply = ends_in_noreply(text);
    let key = tokens.next().filter(|key| is_key(key));
    let words = tokens.take(WORDS_MAX + 2).count();
    // A key may be "noreply".
    let noreply = noreply && words > 0;
    match key {
        Some(key) if words - usize::from(noreply) <= WORDS_MAX => Request::Delete { key, noreply },
        _ => fault(Fault::BadLine, 0, noreply),
    }
}

fn arithmetic<'a>(decrement: bool, text: &'a [u8], mut tokens: Tokens<'a>) -> Request<'a> {
    // Words are counted first: if there are too few, `noreply` is the key.
    let (Some(key), Some(delta)) = (tokens.next(), tokens.next()) else {
        return fault(Fault::BadLine, 0, false);
    };
    let noreply = ends_in_noreply(text);
    if !is_key(key) {
        return fault(Fault::BadLine, 0, noreply);
    }
    match parse_u64(delta) {
        Some(delta) => Request::Arithmetic { key, delta, decrement, noreply },
        None => fault(Fault::BadDelta, 0, noreply),
    }
}

fn touch<'a>(text: &'a [u8], mut tokens: Tokens<'a>) -> Request<'a> {
    // As in `arithmetic`.
    let (Some(key), Some(exptime)) = (tokens.next(), tokens.next()) else {
        return fault(Fault::BadLine, 0, false);
    };
    let noreply = ends_in_noreply(text);
    if !is_key(key) {
        return fault(Fault::BadLine, 0, noreply);
    }
    match parse_i32(exptime) {
        Some(exptime) => Request::Touch { key, exptime, noreply },
        None => fault(Fault::BadExptime, 0, noreply),
    }
}
