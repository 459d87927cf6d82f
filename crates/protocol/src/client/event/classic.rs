//! Replies of memcached's classic commands.
//!
//! The key is everything before the last numbers of its line. The caller knows which key to expect, and so notices a space in it.

use super::{Event, Grammar, Parsed};
use crate::client::line::{Malformed, counter, line, number, size, value};

/// `VALUE <key> <flags> <bytes>\r\n<data>\r\n` … `END\r\n`, `STORED\r\n`.
#[derive(Debug)]
pub struct Classic;

impl Grammar for Classic {
    const END: bool = true;

    #[inline]
    fn event(bytes: &[u8]) -> Parsed<'_> {
        if bytes.starts_with(b"END\r\n") {
            return Ok(Some((Event::End, 5)));
        }
        let Some((line, header_bytes)) = line(bytes)? else { return Ok(None) };
        if let Some(header) = line.strip_prefix(b"VALUE ") {
            let (key, flags, value_bytes) = header_of(header)?;
            let found = value(bytes, header_bytes, value_bytes)?;
            return Ok(found.map(|(value, used)| (Event::Value { key: Some(key), flags, value }, used)));
        }
        let event = match line {
            b"STORED" => Event::Stored,
            b"DELETED" => Event::Deleted,
            b"NOT_FOUND" => Event::Absent,
            b"EXISTS" => Event::Conflict,
            b"NOT_STORED" | b"ERROR" => Event::Refused(line),
            _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => {
                Event::Refused(line)
            }
            _ => Event::Number(counter(line)?),
        };
        Ok(Some((event, header_bytes)))
    }

    /// `VALUE <key> <flags> <bytes> <token>\r\n<data>\r\n`.
    fn tokened(bytes: &[u8]) -> Parsed<'_> {
        if !bytes.starts_with(b"VALUE ") {
            return Self::event(bytes);
        }
        let Some((line, header_bytes)) = line(bytes)? else { return Ok(None) };
        let (token, rest) = last_word(&line[b"VALUE ".len()..])?;
        let token = number(token)?;
        let (key, flags, value_bytes) = header_of(rest)?;
        let found = value(bytes, header_bytes, value_bytes)?;
        Ok(found.map(|(value, used)| (Event::Token { key: Some(key), flags, value, token }, used)))
    }
}

/// Key, flags and length of a value.
#[inline]
fn header_of(header: &[u8]) -> Result<(&[u8], u32, usize), Malformed> {
    let (value_bytes, key_and_flags) = last_word(header)?;
    let (flags, key) = last_word(key_and_flags)?;
    let flags = u32::try_from(number(flags)?).map_err(|_| Malformed)?;
    if key.is_empty() {
        return Err(Malformed);
    }
    Ok((key, flags, size(value_bytes)?))
}

/// The last word of `line`, and what stands before the space in front of it.
#[inline]
fn last_word(line: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    // Numbers are shorter than keys: the space is near the end.
    let space = line.iter().rposition(|&byte| byte == b' ').ok_or(Malformed)?;
    Ok((&line[space + 1..], &line[..space]))
}

#[cfg(test)]
mod tests {
    use super::super::tests::events;
    use super::*;

    #[test]
    fn values_carry_their_key_and_any_bytes() {
        let reply = b"VALUE k 4294967295 5\r\nEND\r\n\r\nVALUE l 0 0\r\n\r\nEND\r\nSTORED\r\n";
        assert_eq!(
            events::<Classic>(reply),
            [
                Event::Value { key: Some(b"k"), flags: u32::MAX, value: b"END\r\n" },
                Event::Value { key: Some(b"l"), flags: 0, value: b"" },
                Event::End,
                Event::Stored,
            ]
        );
    }

    #[test]
    fn tokens_are_read_where_they_were_asked_for() {
        let token = |reply| Classic::tokened(reply).map(|read| read.map(|(event, _)| event));
        let read = token(b"VALUE k 5 2 18446744073709551615\r\nab\r\n");
        let found = Event::Token { key: Some(b"k"), flags: 5, value: b"ab", token: u64::MAX };
        assert_eq!(read, Ok(Some(found)));
        assert_eq!(token(b"END\r\n"), Ok(Some(Event::End)));
        assert_eq!(token(b"VALUE k 0 2 7\r\nab\r"), Ok(None));
        for bad in [b"VALUE k 0 2 7 7\r\nab\r\n".as_slice(), b"VALUE 7\r\n", b"VALUE k 0 2 x\r\nab\r\n"] {
            assert!(!matches!(token(bad), Ok(Some(Event::Token { key: Some(b"k"), .. }))));
        }
        assert_eq!(token(b"VALUE k 0 2\r\nab\r\n"), Err(Malformed));
    }

    #[test]
    fn refusals_are_told_from_nonsense() {
        let line = b"SERVER_ERROR out of memory storing object\r\n";
        assert_eq!(events::<Classic>(line), [Event::Refused(&line[..line.len() - 2])]);
        for bad in [
            b"VALUE k 0 5\r\nabcdefg".as_slice(),
            b"VALUE k 0\r\n",
            b"VALUE  0 1\r\na\r\n",
            b"VALUE k x 5\r\n",
            b"VALUE k 4294967296 1\r\na\r\n",
            b"VALUE k 0 2147483648\r\n",
            b"STORED \r\n",
            b"\r\n",
            b"HD\r\n",
        ] {
            assert_eq!(Classic::event(bad), Err(Malformed), "{}", bad.escape_ascii());
        }
    }
}
