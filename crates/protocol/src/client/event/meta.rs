//! Replies of memcached's meta commands `mg <key> v`, `ms <key> <bytes>`, `md <key>` and `ma <key> v`.

use super::{Event, Grammar, Parsed};
use crate::client::line::{Malformed, line, number, size, value};

/// `VA <bytes>\r\n<data>\r\n`, `EN\r\n`, `HD\r\n`.
#[derive(Debug)]
pub struct Meta;

impl Grammar for Meta {
    const END: bool = false;

    #[inline]
    fn event(bytes: &[u8]) -> Parsed<'_> {
        let Some((line, header_bytes)) = line(bytes)? else { return Ok(None) };
        if let Some(digits) = line.strip_prefix(b"VA ") {
            let found = value(bytes, header_bytes, size(digits)?)?;
            return Ok(found.map(|(value, used)| (Event::Value { key: None, flags: 0, value }, used)));
        }
        let event = match line {
            b"HD" => Event::Stored,
            b"EN" => Event::Miss,
            b"NF" => Event::Absent,
            b"EX" => Event::Conflict,
            b"NS" | b"ERROR" => Event::Refused(line),
            _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => {
                Event::Refused(line)
            }
            _ => return Err(Malformed),
        };
        Ok(Some((event, header_bytes)))
    }

    /// `VA <bytes> c<token>\r\n<data>\r\n`.
    fn tokened(bytes: &[u8]) -> Parsed<'_> {
        if !bytes.starts_with(b"VA ") {
            return Self::event(bytes);
        }
        let Some((line, header_bytes)) = line(bytes)? else { return Ok(None) };
        let mut words = line[b"VA ".len()..].split(|&byte| byte == b' ');
        let (digits, token) = (words.next(), words.next().and_then(|word| word.strip_prefix(b"c")));
        let (Some(digits), Some(token), None) = (digits, token, words.next()) else { return Err(Malformed) };
        let token = number(token)?;
        let found = value(bytes, header_bytes, size(digits)?)?;
        Ok(found.map(|(value, used)| (Event::Token { key: None, flags: 0, value, token }, used)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::events;
    use super::*;

    fn value(value: &[u8]) -> Event<'_> {
        Event::Value { key: None, flags: 0, value }
    }

    #[test]
    fn values_misses_and_stores_follow_each_other() {
        assert_eq!(
            events::<Meta>(b"VA 4\r\nEN\r\n\r\nEN\r\nHD\r\nNS\r\n"),
            [value(b"EN\r\n"), Event::Miss, Event::Stored, Event::Refused(b"NS")]
        );
    }

    #[test]
    fn a_value_with_flags_nobody_asked_for_is_malformed() {
        assert_eq!(Meta::event(b"VA 4 t9\r\nabcd\r\n"), Err(Malformed));
        assert_eq!(Meta::tokened(b"VA 4 t9\r\nabcd\r\n"), Err(Malformed));
        assert_eq!(Meta::tokened(b"VA 4 c9 s4\r\nabcd\r\n"), Err(Malformed));
        let token = Event::Token { key: None, flags: 0, value: b"abcd", token: 9 };
        assert_eq!(Meta::tokened(b"VA 4 c9\r\nabcd\r\n"), Ok(Some((token, 15))));
        assert_eq!(Meta::event(b"HD \r\n"), Err(Malformed));
        assert_eq!(Meta::event(b"STORED\r\n"), Err(Malformed));
        assert_eq!(Meta::event(b"VA 2147483648\r\n"), Err(Malformed));
    }
}
