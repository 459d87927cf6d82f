//! Replies of memcached's classic commands `get` and `set`.
//!
//! A key is whatever stands before the last two numbers of its line: a space in it is for the caller
//! to find, who knows what key to expect.

use super::{Event, Grammar, Malformed, Parsed, last_number, line, long_number, value};

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
            let (value_bytes, key_and_flags) = last_number(header)?;
            let (_flags, key) = last_number(key_and_flags)?;
            let Some((value, used)) = value(bytes, header_bytes, value_bytes)? else { return Ok(None) };
            return Ok(Some((Event::Value { key: Some(key), value }, used)));
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
            _ => Event::Number(long_number(line)?),
        };
        Ok(Some((event, header_bytes)))
    }

    /// `VALUE <key> <flags> <bytes> <token>\r\n<data>\r\n`.
    fn tokened(bytes: &[u8]) -> Parsed<'_> {
        if !bytes.starts_with(b"VALUE ") {
            return Self::event(bytes);
        }
        let Some((line, header_bytes)) = line(bytes)? else { return Ok(None) };
        let space = line.iter().rposition(|&byte| byte == b' ').ok_or(Malformed)?;
        let token = long_number(&line[space + 1..])?;
        let (value_bytes, key_and_flags) = last_number(&line[b"VALUE ".len()..space.max(b"VALUE ".len())])?;
        let (_flags, key) = last_number(key_and_flags)?;
        let Some((value, used)) = value(bytes, header_bytes, value_bytes)? else { return Ok(None) };
        Ok(Some((Event::Token { key: Some(key), value, token }, used)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Malformed;
    use super::super::tests::events;
    use super::*;

    #[test]
    fn values_carry_their_key_and_any_bytes() {
        let reply = b"VALUE k 4294967295 5\r\nEND\r\n\r\nVALUE l 0 0\r\n\r\nEND\r\nSTORED\r\n";
        assert_eq!(
            events::<Classic>(reply),
            [
                Event::Value { key: Some(b"k"), value: b"END\r\n" },
                Event::Value { key: Some(b"l"), value: b"" },
                Event::End,
                Event::Stored,
            ]
        );
    }

    #[test]
    fn tokens_are_read_where_they_were_asked_for() {
        let token = |reply| Classic::tokened(reply).map(|read| read.map(|(event, _)| event));
        let read = token(b"VALUE k 0 2 18446744073709551615\r\nab\r\n");
        assert_eq!(read, Ok(Some(Event::Token { key: Some(b"k"), value: b"ab", token: u64::MAX })));
        assert_eq!(token(b"END\r\n"), Ok(Some(Event::End)));
        assert_eq!(token(b"VALUE k 0 2 7\r\nab\r"), Ok(None));
        for bad in [b"VALUE k 0 2 7 7\r\nab\r\n".as_slice(), b"VALUE 7\r\n", b"VALUE k 0 2 x\r\nab\r\n"] {
            assert!(!matches!(token(bad), Ok(Some(Event::Token { key: Some(b"k"), .. }))));
        }
    }

    #[test]
    fn refusals_are_told_from_nonsense() {
        let line = b"SERVER_ERROR out of memory storing object\r\n";
        assert_eq!(events::<Classic>(line), [Event::Refused(&line[..line.len() - 2])]);
        for bad in [
            b"VALUE k 0 5\r\nabcdefg".as_slice(),
            b"VALUE k 0\r\n",
            b"VALUE k x 5\r\n",
            b"STORED \r\n",
            b"\r\n",
            b"HD\r\n",
        ] {
            assert_eq!(Classic::event(bad), Err(Malformed), "{}", bad.escape_ascii());
        }
    }
}
