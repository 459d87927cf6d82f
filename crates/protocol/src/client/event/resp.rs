//! Replies of Redis's `GET`, `MGET`, `SET`, `DEL`, `INCR` and transactions of these, in RESP2.

use super::{Event, Grammar, Parsed};
use crate::client::line::{Malformed, line, number, size, value};

/// `$<bytes>\r\n<data>\r\n`, `$-1\r\n`, `*<n>\r\n` before n of these, `+OK\r\n`.
#[derive(Debug)]
pub struct Resp;

impl Grammar for Resp {
    const END: bool = false;

    #[inline]
    fn event(bytes: &[u8]) -> Parsed<'_> {
        let Some((line, header_bytes)) = line(bytes)? else { return Ok(None) };
        let event = match line.split_first() {
            Some((b'$', b"-1")) => Event::Miss,
            Some((b'$', digits)) => {
                let found = value(bytes, header_bytes, size(digits)?)?;
                return Ok(found.map(|(value, used)| (Event::Value { key: None, flags: 0, value }, used)));
            }
            Some((b'*', b"-1")) => Event::Conflict,
            Some((b'*', digits)) => Event::Count(size(digits)?),
            Some((b'+', b"OK")) => Event::Stored,
            Some((b'+', b"QUEUED")) => Event::Queued,
            Some((b':', digits)) => Event::Number(number(digits)?),
            Some((b'-', _)) => Event::Refused(line),
            _ => return Err(Malformed),
        };
        Ok(Some((event, header_bytes)))
    }

    /// There are no tokens: [`Grammar::event`].
    fn tokened(bytes: &[u8]) -> Parsed<'_> {
        Self::event(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::events;
    use super::*;

    #[test]
    fn arrays_announce_their_values() {
        assert_eq!(
            events::<Resp>(b"*2\r\n$3\r\n$-1\r\n$-1\r\n+OK\r\n-ERR no\r\n"),
            [
                Event::Count(2),
                Event::Value { key: None, flags: 0, value: b"$-1" },
                Event::Miss,
                Event::Stored,
                Event::Refused(b"-ERR no"),
            ]
        );
    }

    #[test]
    fn what_was_not_asked_for_is_malformed() {
        for bad in [
            b":x\r\n".as_slice(),
            b":-1\r\n",
            b"+PONG\r\n",
            b"$-2\r\n",
            b"*-2\r\n",
            b"\r\n",
            b"$1\r\nab\r\n",
            b"$2147483648\r\n",
            b"*2147483648\r\n",
        ] {
            assert_eq!(Resp::event(bad), Err(Malformed), "{}", bad.escape_ascii());
        }
    }
}
