//! Plain requests in a row, as [`crate::plain`] reads memcached's.

use super::{Limits, short_bulk};
use crate::plain::Pace;

/// Plain requests, from one place of the input on.
#[derive(Clone, Debug)]
pub struct PlainRequests<'a> {
    input: &'a [u8],
    at: usize,
    left: u32,
    pace: Pace,
}

impl<'a> PlainRequests<'a> {
    /// At most `max` requests from `at` on.
    pub fn new(input: &'a [u8], at: usize, max: u32) -> PlainRequests<'a> {
        PlainRequests { input, at, left: max, pace: Pace::default() }
    }

    /// Where the first unread request begins.
    #[inline(always)]
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next request, and its length for [`PlainRequests::take`]; `None` at the end, and where anything else begins. It stays
    /// unread, so that no caller keeps a copy of the reader to go back to, which would cost each request.
    #[inline(always)]
    pub fn peek(&self) -> Option<(Plain<'a>, usize)> {
        if self.left == 0 { None } else { decode_plain(&self.input[self.at..]) }
    }

    /// Takes the request that [`PlainRequests::peek`] has returned, which is of so many bytes.
    #[inline(always)]
    pub fn take(&mut self, bytes: usize) {
        self.left -= 1;
        self.at += self.pace.step(bytes);
    }
}

/// A request in the form that nearly every one of its kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// What the request asks of it.
    pub ask: Ask<'a>,
}

/// What a plain request asks of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// GET
    Get,
    /// SET without options, to this value
    Set(&'a [u8]),
    /// INCR
    Incr,
    /// DECR
    Decr,
}

const HEAD_GET: u64 = u64::from_le_bytes(*b"*2\r\n$3\r\n");
const HEAD_SET: u64 = u64::from_le_bytes(*b"*3\r\n$3\r\n");
const HEAD_INCR: u64 = u64::from_le_bytes(*b"*2\r\n$4\r\n");
const GET: u64 = u64::from_le_bytes(*b"\r\nget\r\n$");
const SET: u64 = u64::from_le_bytes(*b"\r\nset\r\n$");
const INCR: u64 = u64::from_le_bytes(*b"\nincr\r\n$");
const DECR: u64 = u64::from_le_bytes(*b"\ndecr\r\n$");
/// The bits that make the letters of a name lower case.
const LOWER_3: u64 = u64::from_le_bytes([0, 0, 0x20, 0x20, 0x20, 0, 0, 0]);
const LOWER_4: u64 = u64::from_le_bytes([0, 0x20, 0x20, 0x20, 0x20, 0, 0, 0]);
/// Bytes up to the length of the key, behind a name of three letters.
const NAME_BYTES: usize = 13;

/// Reads a complete plain request, and its length; `None` for anything else.
#[inline(always)]
pub fn decode_plain(input: &[u8]) -> Option<(Plain<'_>, usize)> {
    let head = input.first_chunk::<15>()?;
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let (first, name) = (word(0), word(6) | LOWER_3);
    if first == HEAD_GET && name == GET {
        let (key, end) = argument(input, NAME_BYTES)?;
        return Some((Plain { key, ask: Ask::Get }, end));
    }
    if first == HEAD_SET && name == SET {
        let (key, at) = argument(input, NAME_BYTES)?;
        let (value, end) = argument(input, at)?;
        return Some((Plain { key, ask: Ask::Set(value) }, end));
    }
    if first == HEAD_INCR {
        let ask = match word(7) | LOWER_4 {
            INCR => Ask::Incr,
            DECR => Ask::Decr,
            _ => return None,
        };
        let (key, end) = argument(input, NAME_BYTES + 1)?;
        return Some((Plain { key, ask }, end));
    }
    None
}

/// The argument whose header is at `at`, and where it ends; `None` if it is long or incomplete.
#[inline(always)]
fn argument(input: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = input.get(at..)?;
    let (bytes, head) = short_bulk(rest, &Limits { bulk_bytes_max: u64::MAX, authenticated: true })?;
    let argument = rest.get(head..head + bytes)?;
    let end = at + head + bytes + 2;
    (end <= input.len()).then_some((argument, end))
}
