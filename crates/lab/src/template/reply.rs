//! Replies to commands of any kind.

use larder_protocol::client::{LINE_BYTES_MAX, Malformed, Protocol};

/// A reply to any command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'r> {
    /// A status, or a line.
    Text(&'r [u8]),
    /// The server refused the command.
    Error(&'r [u8]),
    /// A number, as its digits.
    Number(&'r [u8]),
    /// A value.
    Value(&'r [u8]),
    /// There is no value.
    Nil,
    /// An array of this length, or this many values or figures.
    Many(usize),
}

impl Reply<'_> {
    /// The reply in words, as a message shows it.
    pub fn words(&self) -> String {
        let shown = |bytes: &[u8]| bytes[..bytes.len().min(64)].escape_ascii().to_string();
        match self {
            Reply::Text(line) | Reply::Error(line) => format!("\"{}\"", shown(line)),
            Reply::Number(digits) => format!("the number {}", shown(digits)),
            Reply::Value(value) => format!("a value of {} bytes, \"{}\"", value.len(), shown(value)),
            Reply::Nil => "nil".to_owned(),
            Reply::Many(count) => format!("{count} replies in one"),
        }
    }
}

/// The complete reply at the start of `bytes`, and its length; none while it is incomplete.
///
/// # Errors
/// [`Malformed`] when it is no reply.
pub fn reply(protocol: Protocol, bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
    match protocol {
        Protocol::Resp => resp(bytes),
        Protocol::Classic | Protocol::Meta => text(bytes),
    }
}

/// The line at `from`, and where the next begins.
fn line(bytes: &[u8], from: usize) -> Result<Option<(&[u8], usize)>, Malformed> {
    let rest = &bytes[from..];
    match memchr::memchr(b'\n', &rest[..rest.len().min(LINE_BYTES_MAX)]) {
        Some(end) => {
            let line = rest[..end].strip_suffix(b"\r").ok_or(Malformed)?;
            Ok(Some((line, from + end + 1)))
        }
        None if rest.len() >= LINE_BYTES_MAX => Err(Malformed),
        None => Ok(None),
    }
}

/// The `length` bytes from `from` on, which a line end follows, and where the next part begins.
fn block(bytes: &[u8], from: usize, length: usize) -> Result<Option<(&[u8], usize)>, Malformed> {
    let end = from.checked_add(length).and_then(|end| end.checked_add(2)).ok_or(Malformed)?;
    match bytes.get(from..end) {
        None => Ok(None),
        Some(block) => Ok(Some((block.strip_suffix(b"\r\n").ok_or(Malformed)?, end))),
    }
}

fn size(digits: &[u8]) -> Result<usize, Malformed> {
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or(Malformed)
}

fn resp(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
    let (mut first, mut at, mut left) = (None, 0, 1_usize);
    while left > 0 {
        let Some((head, next)) = line(bytes, at)? else { return Ok(None) };
        let (&kind, rest) = head.split_first().ok_or(Malformed)?;
        (at, left) = (next, left - 1);
        let part = match kind {
            b'+' => Reply::Text(rest),
            b'-' => Reply::Error(rest),
            b':' => Reply::Number(rest),
            b'$' | b'*' if rest == b"-1" => Reply::Nil,
            b'$' => {
                let Some((value, next)) = block(bytes, at, size(rest)?)? else { return Ok(None) };
                at = next;
                Reply::Value(value)
            }
            b'*' => {
                let count = size(rest)?;
                left = left.checked_add(count).ok_or(Malformed)?;
                Reply::Many(count)
            }
            _ => return Err(Malformed),
        };
        first.get_or_insert(part);
    }
    Ok(first.map(|reply| (reply, at)))
}

fn text(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
    let (mut at, mut values, mut figures, mut last) = (0, 0, 0, None);
    loop {
        let Some((head, next)) = line(bytes, at)? else { return Ok(None) };
        at = next;
        let mut words = head.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let word = words.next().unwrap_or_default();
        let alone = match word {
            b"VALUE" => {
                let length = size(words.nth(2).ok_or(Malformed)?)?;
                let Some((value, next)) = block(bytes, at, length)? else { return Ok(None) };
                (at, values, last) = (next, values + 1, Some(value));
                continue;
            }
            b"STAT" | b"ITEM" => {
                figures += 1;
                continue;
            }
            b"END" => match (values, figures, last) {
                (1, 0, Some(value)) => Reply::Value(value),
                (0, 0, _) => Reply::Nil,
                (values, figures, _) => Reply::Many(values + figures),
            },
            _ if values + figures > 0 => return Err(Malformed),
            b"VA" => {
                let length = size(words.next().ok_or(Malformed)?)?;
                let Some((value, next)) = block(bytes, at, length)? else { return Ok(None) };
                at = next;
                Reply::Value(value)
            }
            b"EN" => Reply::Nil,
            b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => Reply::Error(head),
            _ if !word.is_empty() && head.iter().all(u8::is_ascii_digit) => Reply::Number(head),
            _ => Reply::Text(head),
        };
        return Ok(Some((alone, at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn replies_are_read_whole_from_any_cut() {
        let (resp, classic) = (Protocol::Resp, Protocol::Classic);
        let cases: [(Protocol, &[u8], Reply<'_>); 15] = [
            (resp, b"+OK\r\n", Reply::Text(b"OK")),
            (resp, b"-ERR no\r\n", Reply::Error(b"ERR no")),
            (resp, b":-5\r\n", Reply::Number(b"-5")),
            (resp, b"$-1\r\n", Reply::Nil),
            (resp, b"$4\r\na\r\nb\r\n", Reply::Value(b"a\r\nb")),
            (resp, b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n", Reply::Many(2)),
            (resp, b"*0\r\n", Reply::Many(0)),
            (classic, b"STORED\r\n", Reply::Text(b"STORED")),
            (classic, b"12\r\n", Reply::Number(b"12")),
            (classic, b"END\r\n", Reply::Nil),
            (classic, b"VALUE k 0 3\r\nEND\r\nEND\r\n", Reply::Value(b"END")),
            (classic, b"VALUE k 0 1\r\na\r\nVALUE l 0 1 99\r\nb\r\nEND\r\n", Reply::Many(2)),
            (classic, b"VA 2 f0\r\nab\r\n", Reply::Value(b"ab")),
            (classic, b"STAT a 1\r\nSTAT b 2\r\nEND\r\n", Reply::Many(2)),
            (classic, b"CLIENT_ERROR bad\r\n", Reply::Error(b"CLIENT_ERROR bad")),
        ];
        for (protocol, bytes, expected) in cases {
            for cut in 0..bytes.len() {
                assert_eq!(reply(protocol, &bytes[..cut]), Ok(None), "{}", bytes[..cut].escape_ascii());
            }
            let more = [bytes, b"+OK\r\n"].concat();
            assert_eq!(reply(protocol, &more), Ok(Some((expected, bytes.len()))), "{}", bytes.escape_ascii());
        }
        for (protocol, bytes) in [
            (resp, &b"what\r\n"[..]),
            (resp, b"+OK\n"),
            (resp, b"$x\r\n"),
            (resp, b"$1\r\nabc"),
            (classic, b"VALUE k\r\n"),
            (classic, b"STAT a 1\r\nOK\r\n"),
        ] {
            assert_eq!(reply(protocol, bytes), Err(Malformed), "{}", bytes.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_reply_within_them_or_none(
            bytes in proptest::collection::vec(prop::sample::select(b"*$:+-123\r\nVALUE STAT END".to_vec()), 0..60),
        ) {
            for protocol in [Protocol::Resp, Protocol::Classic] {
                if let Ok(Some((_, used))) = reply(protocol, &bytes) {
                    prop_assert!(0 < used && used <= bytes.len());
                }
            }
        }
    }
}
