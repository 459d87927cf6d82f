//! Replies of memcached's meta commands `mg <key> v` and `ms <key> <bytes>`.

use super::{Event, Grammar, Malformed, Parsed, line, number, value};

/// `VA <bytes>\r\n<data>\r\n`, `EN\r\n`, `HD\r\n`.
#[derive(Debug)]
pub struct Meta;

impl Grammar for Meta {
    const END: bool = false;

    #[inline]
    fn event(bytes: &[u8]) -> Parsed<'_> {
        let Some((line, header_bytes)) = line(bytes)? else { return Ok(None) };
        if let Some(digits) = line.strip_prefix(b"VA ") {
            let Some((value, used)) = value(bytes, header_bytes, number(digits)?)? else { return Ok(None) };
            return Ok(Some((Event::Value { key: None, value }, used)));
        }
        let event = match line {
            b"HD" => Event::Stored,
            b"EN" => Event::Miss,
            b"NF" => Event::Absent,
            b"NS" | b"EX" | b"ERROR" => Event::Refused(line),
            _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => {
                Event::Refused(line)
            }
            _ => return Err(Malformed),
        };
        Ok(Some((event, header_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::events;
    use super::*;

    #[test]
    fn values_misses_and_stores_follow_each_other() {
        assert_eq!(
            events::<Meta>(b"VA 4\r\nEN\r\n\r\nEN\r\nHD\r\nNS\r\n"),
            [Event::Value { key: None, value: b"EN\r\n" }, Event::Miss, Event::Stored, Event::Refused(b"NS")]
        );
    }

    #[test]
    fn a_value_with_flags_nobody_asked_for_is_malformed() {
        assert_eq!(Meta::event(b"VA 4 t9\r\nabcd\r\n"), Err(Malformed));
        assert_eq!(Meta::event(b"HD \r\n"), Err(Malformed));
        assert_eq!(Meta::event(b"STORED\r\n"), Err(Malformed));
    }
}
