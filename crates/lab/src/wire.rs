//! The client's side of the protocols: requests as bytes, replies as [`Event`]s.
//!
//! A reply is read as a series of events, each complete in the buffer or not there yet: a value, a
//! miss, the end of a `get`. What was expected is the business of the caller. A [`Grammar`] accepts
//! nothing but the replies that its protocol allows; everything else is [`Malformed`].

mod classic;
mod meta;
mod request;
mod resp;

pub use classic::Classic;
pub use meta::Meta;
pub use request::{NO_TOKEN, TOKEN_DIGITS};
pub use resp::Resp;

/// A place inside a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    bit: u64,
    /// What it is to be: each request of a connection differs from the one before.
    on: bool,
}

impl Place {
    /// The place of a connection, by the version that its request carries, in a value of so many bytes: far
    /// behind the value's own head.
    pub fn of(version: u64, value_bytes: usize) -> Place {
        let (connection, request) = (version >> 40, version & 1);
        Place { bit: (value_bytes as u64 / 2 + connection * 64) * 8 + 3, on: request == 0 }
    }
}

/// A protocol that the generator speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// memcached's `get` and `set`.
    Classic,
    /// memcached's `mg … v` and `ms`.
    Meta,
    /// Redis's `GET`, `MGET` and `SET`.
    Resp,
}

/// One step of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A value; with its key where the protocol sends one.
    Value {
        /// The key, as the server names it.
        key: Option<&'a [u8]>,
        /// The value.
        value: &'a [u8],
    },
    /// One key has no value.
    Miss,
    /// The end of the values of one request (classic only): keys not named had none.
    End,
    /// A write happened, or, in meta, a delete.
    Stored,
    /// A delete happened (classic only).
    Deleted,
    /// A number (RESP also counts deletes with it).
    Number(u64),
    /// A change found no such key.
    Absent,
    /// A write with a token found another version, or a transaction a watched key that was changed.
    Conflict,
    /// A value with its key, where the protocol sends one, and its token.
    Token {
        /// The key, as the server names it.
        key: Option<&'a [u8]>,
        /// The value.
        value: &'a [u8],
        /// What a write of exactly this version has to name.
        token: u64,
    },
    /// A command of a transaction waits for its end (RESP only).
    Queued,
    /// So many values or misses follow (RESP arrays).
    Count(usize),
    /// The server answered, but did not do it: the line that says why.
    Refused(&'a [u8]),
}

/// The bytes are no reply of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// An event and how many bytes it took, or `None` when more bytes are needed.
pub type Parsed<'a> = Result<Option<(Event<'a>, usize)>, Malformed>;

/// The reply syntax of a protocol.
pub trait Grammar {
    /// Values of a request end with [`Event::End`]; otherwise each key has its own event.
    const END: bool;

    /// Reads the event at the start of `bytes`.
    ///
    /// # Errors
    /// [`Malformed`], as soon as it can be known.
    fn event(bytes: &[u8]) -> Parsed<'_>;

    /// The same of the reply to a read that asks for tokens.
    ///
    /// # Errors
    /// [`Malformed`], as soon as it can be known.
    fn tokened(bytes: &[u8]) -> Parsed<'_>;
}

/// The longest line of a reply that is not a value.
const LINE_BYTES_MAX: usize = 2048;

/// The line at the start of `bytes`, without its end, and its length with it.
#[inline]
pub(crate) fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Malformed> {
    match memchr::memchr(b'\n', &bytes[..bytes.len().min(LINE_BYTES_MAX)]) {
        Some(end) => match bytes[..end].split_last() {
            Some((b'\r', line)) => Ok(Some((line, end + 1))),
            _ => Err(Malformed),
        },
        None if bytes.len() >= LINE_BYTES_MAX => Err(Malformed),
        None => Ok(None),
    }
}

/// A decimal number, all of `digits`, as servers write it: no sign, no leading zero.
#[inline]
pub(crate) fn number(digits: &[u8]) -> Result<usize, Malformed> {
    if digits.is_empty() || digits.len() > 10 || (digits[0] == b'0' && digits.len() > 1) {
        return Err(Malformed);
    }
    let mut n = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Malformed);
        }
        n = n * 10 + usize::from(digit);
    }
    Ok(n)
}

/// A decimal number of up to 64 bits; memcached leaves spaces behind one that became shorter.
pub(crate) fn long_number(digits: &[u8]) -> Result<u64, Malformed> {
    let text = std::str::from_utf8(digits).map_err(|_| Malformed)?.trim_end_matches(' ');
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Malformed);
    }
    text.parse().map_err(|_| Malformed)
}

/// The number that `line` ends with, and what stands before the space in front of it.
#[inline]
fn last_number(line: &[u8]) -> Result<(usize, &[u8]), Malformed> {
    // Numbers are shorter than keys: from the end, the space is near.
    let space = line.iter().rposition(|&byte| byte == b' ').ok_or(Malformed)?;
    Ok((number(&line[space + 1..])?, &line[..space]))
}

/// The `value_bytes` behind a header of `header_bytes`, with their line end.
#[inline]
pub(crate) fn value(
    bytes: &[u8],
    header_bytes: usize,
    value_bytes: usize,
) -> Result<Option<(&[u8], usize)>, Malformed> {
    let end = header_bytes + value_bytes;
    match bytes.get(header_bytes..end + 2) {
        Some(body) if body[value_bytes..] == *b"\r\n" => Ok(Some((&body[..value_bytes], end + 2))),
        Some(_) => Err(Malformed),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All events of `bytes`, which must be the same however they arrive: a prefix gives a prefix of
    /// the events and no error.
    pub(super) fn events<G: Grammar>(bytes: &[u8]) -> Vec<Event<'_>> {
        let mut events = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            for end in at..bytes.len() {
                if let Some((_, used)) = G::event(&bytes[at..end]).expect("a prefix is not malformed") {
                    assert!(used <= end - at);
                }
            }
            let (event, used) = G::event(&bytes[at..]).unwrap().expect("complete");
            assert!(G::event(&bytes[at..at + used - 1]).unwrap().is_none(), "known before its last byte");
            events.push(event);
            at += used;
        }
        events
    }

    #[test]
    fn canned_replies_are_read_back_as_what_they_say() {
        let pairs = [(b"a".to_vec(), b"1\r\n2".to_vec()), (b"b".to_vec(), Vec::new())];
        for protocol in [Protocol::Classic, Protocol::Meta, Protocol::Resp] {
            let mut out = Vec::new();
            protocol.reply_hits(&mut out, &pairs);
            protocol.reply_misses(&mut out, 1);
            protocol.reply_stored(&mut out);
            let seen = match protocol {
                Protocol::Classic => events::<Classic>(&out),
                Protocol::Meta => events::<Meta>(&out),
                Protocol::Resp => events::<Resp>(&out),
            };
            let values: Vec<&[u8]> = seen
                .iter()
                .filter_map(|event| match event {
                    Event::Value { value, .. } => Some(*value),
                    _ => None,
                })
                .collect();
            assert_eq!(values, [b"1\r\n2".as_slice(), b""], "{protocol:?}");
            assert_eq!(seen.last(), Some(&Event::Stored));
            let miss = if protocol == Protocol::Classic { Event::End } else { Event::Miss };
            assert_eq!(seen[seen.len() - 2], miss);
        }
    }

    #[test]
    fn numbers_are_plain_decimals() {
        assert_eq!(number(b"0"), Ok(0));
        assert_eq!(number(b"102400"), Ok(102_400));
        for bad in [b"".as_slice(), b"-1", b"+1", b"01", b"1 ", b"12345678901"] {
            assert_eq!(number(bad), Err(Malformed), "{bad:?}");
        }
    }

    #[test]
    fn a_line_needs_both_its_end_bytes_and_has_a_longest_length() {
        assert_eq!(line(b"END\r"), Ok(None));
        assert_eq!(line(b"END\r\nx"), Ok(Some((b"END".as_slice(), 5))));
        assert_eq!(line(b"END\n"), Err(Malformed));
        assert_eq!(line(&[b'x'; LINE_BYTES_MAX - 1]), Ok(None));
        assert_eq!(line(&[b'x'; LINE_BYTES_MAX]), Err(Malformed));
    }
}
