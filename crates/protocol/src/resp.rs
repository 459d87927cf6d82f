//! RESP2, RESP3 and inline requests, and the encoding of replies.
//!
//! ```text
//! *2\r\n$3\r\nGET\r\n$3\r\nkey\r\n       an array of bulk strings
//! GET key\r\n                            inline: a line of words, with quoting
//! ```
//!
//! [`decode`] checks a whole request and returns it as [`Args`], which reads the arguments out of the input on demand: any number
//! of them costs no memory. An incomplete request leaves a [`Partial`], with which decoding resumes where it stopped. The usual
//! forms of the most usual requests have a fast path ([`decode_plain`]). Both paths give the same result (a property test
//! compares them).

mod args;
mod digits;
mod fault;
mod inline;
mod plain;
mod write;

#[cfg(debug_assertions)]
pub use args::words_read;
pub use args::{Args, Encoder};
pub use fault::Fault;
pub use inline::split;
pub use plain::{Ask, Plain, PlainRequests, decode_plain};
pub use write::{
    DoubleText, HEAD_BYTES_MAX, format_double, parse_double, parse_double_or_zero, parse_hex, parse_integer,
    write_bulk_head, write_head, write_integer, write_small_bulk,
};

use crate::scan::line_feed;
use memchr::memchr;

/// Most arguments of a request.
pub const ARGS_MAX: i64 = i32::MAX as i64;
/// Most arguments of an unauthenticated client's request.
pub const ARGS_MAX_UNAUTHENTICATED: i64 = 10;
/// Most bytes of an unauthenticated client's argument.
pub const BULK_BYTES_MAX_UNAUTHENTICATED: u64 = 16384;
/// Longest header line or inline request whose end is waited for.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Limits of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of an argument (`proto-max-bulk-len`).
    pub bulk_bytes_max: u64,
    /// The client is authenticated, or need not be.
    pub authenticated: bool,
}

/// What [`decode`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A request and the bytes it takes.
    Request(Args<'a>, usize),
    /// An inline request (its line, without the end, for [`split`]) and the bytes it takes.
    Inline(&'a [u8], usize),
    /// Nothing to answer, in this many bytes: an empty array or line.
    Nothing(usize),
    /// An incomplete request.
    Incomplete(Partial),
    /// The bytes cannot be a request: the error is sent, then the connection closed.
    Fault(Fault),
}

/// How far an incomplete request was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partial {
    /// Arguments in all; 0: the header is incomplete.
    count: u32,
    /// Arguments read.
    read: u32,
    /// Bytes read: where the next header begins.
    at: usize,
    /// Where the arguments begin.
    start: usize,
    /// The longest argument so far, in bytes.
    longest: u64,
    /// Where the current argument ends, counted from the request's start; 0 while its header is incomplete.
    end: u64,
}

impl Partial {
    /// Where the current argument ends, counted from the request's start; `None` inside a header line.
    pub fn known_end(&self) -> Option<u64> {
        (self.end > 0).then_some(self.end)
    }

    /// Arguments in all; `None` while the header is incomplete.
    pub fn count(&self) -> Option<u32> {
        (self.count > 0).then_some(self.count)
    }

    /// Complete arguments.
    pub fn read(&self) -> u32 {
        self.read
    }

    /// Bytes that were read. They have to be there when decoding resumes.
    pub fn bytes_read(&self) -> usize {
        self.at
    }

    /// The length of the current argument, and where in the request it begins.
    pub fn under_way(&self, input: &[u8]) -> Option<(u64, usize)> {
        let end = self.known_end()?;
        let start = self.at + header_bytes(input.get(self.at..)?)?;
        // As `bulk` has added it up.
        Some((end - 2 - start as u64, start))
    }

    /// The complete arguments.
    pub fn args<'a>(&self, input: &'a [u8]) -> Args<'a> {
        Args::new(&input[self.start..self.at], self.read, self.longest)
    }

    /// Resumes the same request with more input.
    #[inline]
    pub fn resume<'a>(mut self, input: &'a [u8], limits: &Limits) -> Decoded<'a> {
        if self.count == 0 {
            match self.header(input, limits) {
                Ok(()) => {}
                Err(decoded) => return decoded,
            }
        }
        if self.end > input.len() as u64 {
            return Decoded::Incomplete(self);
        }
        let mut at = self.at;
        for read in self.read..self.count {
            let Some((bytes, head)) = short_bulk(&input[at..], limits) else {
                (self.read, self.at) = (read, at);
                match self.bulk(input, limits) {
                    Ok(next) => at = next,
                    Err(decoded) => return decoded,
                }
                continue;
            };
            self.longest = self.longest.max(bytes as u64);
            let end = at + head + bytes + 2;
            if end > input.len() {
                (self.read, self.at, self.end) = (read, at, end as u64);
                return Decoded::Incomplete(self);
            }
            at = end;
        }
        Decoded::Request(Args::new(&input[self.start..at], self.count, self.longest), at)
    }

    /// Reads `*<count>\r\n`.
    #[inline]
    fn header<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Result<(), Decoded<'a>> {
        // Nearly all requests have one digit.
        if let Some([b'*', digit @ b'1'..=b'9', b'\r', b'\n']) = input.first_chunk::<4>() {
            self.count = u32::from(digit - b'0');
            (self.at, self.start) = (4, 4);
            return Ok(());
        }
        self.long_header(input, limits)
    }

    #[inline(never)]
    fn long_header<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Result<(), Decoded<'a>> {
        let Some(end) = line_end(input) else {
            return Err(match input.len() > LINE_BYTES_MAX && memchr(b'\r', input).is_none() {
                true => Decoded::Fault(Fault::LongCount),
                false => Decoded::Incomplete(*self),
            });
        };
        if end > LINE_BYTES_MAX {
            return Err(Decoded::Fault(Fault::LongCount));
        }
        let count = parse_integer(&input[1..end]).filter(|&n| n <= ARGS_MAX);
        let Some(count) = count else { return Err(Decoded::Fault(Fault::BadCount)) };
        if count > ARGS_MAX_UNAUTHENTICATED && !limits.authenticated {
            return Err(Decoded::Fault(Fault::UnauthenticatedCount));
        }
        if count <= 0 {
            return Err(Decoded::Nothing(end + 2));
        }
        self.count = count as u32;
        (self.at, self.start) = (end + 2, end + 2);
        Ok(())
    }

    /// Reads `$<bytes>\r\n` in any form and skips the argument.
    #[inline(never)]
    fn bulk<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Result<usize, Decoded<'a>> {
        let rest = &input[self.at..];
        let Some(line) = line_end(rest) else {
            self.end = 0;
            return Err(match rest.len() > LINE_BYTES_MAX && memchr(b'\r', rest).is_none() {
                true => Decoded::Fault(Fault::LongBulkHeader),
                false => Decoded::Incomplete(*self),
            });
        };
        if line > LINE_BYTES_MAX {
            return Err(Decoded::Fault(Fault::LongBulkHeader));
        }
        if rest[0] != b'$' {
            return Err(Decoded::Fault(Fault::NotABulk(rest[0])));
        }
        let bytes = parse_integer(&rest[1..line]).and_then(|n| u64::try_from(n).ok());
        let Some(bytes) = bytes.filter(|&n| n <= limits.bulk_bytes_max) else {
            return Err(Decoded::Fault(Fault::BadBulk));
        };
        if bytes > BULK_BYTES_MAX_UNAUTHENTICATED && !limits.authenticated {
            return Err(Decoded::Fault(Fault::UnauthenticatedBulk));
        }
        self.longest = self.longest.max(bytes);
        let end = (self.at + line + 2) as u64 + bytes + 2;
        if end > input.len() as u64 {
            self.end = end;
            return Err(Decoded::Incomplete(*self));
        }
        self.end = 0;
        Ok(end as usize)
    }
}

/// Length of the header line at the start of `input`, its end included; `None` if the end is missing.
#[inline]
pub fn header_bytes(input: &[u8]) -> Option<usize> {
    line_end(input).map(|at| at + 2)
}

/// Index of the first carriage return, if a byte follows it. Any byte does for the line feed.
#[inline]
fn line_end(input: &[u8]) -> Option<usize> {
    memchr(b'\r', input).filter(|&at| at + 1 < input.len())
}

/// `$<one to four digits>\r\n`: the argument's length and the header's; `None` for anything else.
#[inline(always)]
fn short_bulk(input: &[u8], limits: &Limits) -> Option<(usize, usize)> {
    let (bytes, digits) = match *input.first_chunk::<5>()? {
        [b'$', a, b'\r', b'\n', _] if a.is_ascii_digit() => (usize::from(a - b'0'), 1),
        [b'$', a @ b'1'..=b'9', b, b'\r', b'\n'] if b.is_ascii_digit() => {
            (usize::from(a - b'0') * 10 + usize::from(b - b'0'), 2)
        }
        [b'$', a @ b'1'..=b'9', b, c, d] if b.is_ascii_digit() && c.is_ascii_digit() => {
            let three = usize::from(a - b'0') * 100 + usize::from(b - b'0') * 10 + usize::from(c - b'0');
            match (d, input.get(5), input.get(6)) {
                (b'\r', Some(b'\n'), _) => (three, 3),
                (b'0'..=b'9', Some(b'\r'), Some(b'\n')) => (three * 10 + usize::from(d - b'0'), 4),
                _ => return None,
            }
        }
        _ => return None,
    };
    (bytes as u64 <= limits.bulk_bytes_max).then_some((bytes, digits + 3))
}

/// Reads one request at the start of `input`, which is not empty.
#[inline]
pub fn decode<'a>(input: &'a [u8], limits: &Limits) -> Decoded<'a> {
    if input[0] == b'*' {
        return Partial::default().resume(input, limits);
    }
    decode_inline(input)
}

#[inline(never)]
fn decode_inline(input: &[u8]) -> Decoded<'_> {
    let Some(feed) = line_feed(input) else {
        return match input.len() > LINE_BYTES_MAX {
            true => Decoded::Fault(Fault::LongInline),
            false => Decoded::Incomplete(Partial::default()),
        };
    };
    // A line that is too long is refused also if all of it has arrived at once.
    if feed > LINE_BYTES_MAX {
        return Decoded::Fault(Fault::LongInline);
    }
    let line = crate::scan::line(input, feed);
    if line.iter().all(|&byte| inline::is_blank(byte)) {
        return Decoded::Nothing(feed + 1);
    }
    Decoded::Inline(line, feed + 1)
}

#[cfg(test)]
mod tests;
