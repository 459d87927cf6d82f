//! The pieces of replies: lines, numbers, values behind a line.

use crate::number::parse_u64;

/// The longest line of a reply: a key, an error text or all flags are far below.
pub const LINE_BYTES_MAX: usize = 2048;
/// The longest value that a server may announce.
pub const VALUE_BYTES_MAX: usize = (1 << 31) - 1;

/// No server sends these bytes here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The line at the start of `bytes`, without its end, and its length with it; `None` while it is incomplete.
///
/// # Errors
/// [`Malformed`] if it ends without a carriage return, or is longer than [`LINE_BYTES_MAX`].
#[inline]
pub(super) fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Malformed> {
    match memchr::memchr(b'\n', &bytes[..bytes.len().min(LINE_BYTES_MAX)]) {
        Some(end) => match bytes[..end].split_last() {
            Some((b'\r', line)) => Ok(Some((line, end + 1))),
            _ => Err(Malformed),
        },
        None if bytes.len() >= LINE_BYTES_MAX => Err(Malformed),
        None => Ok(None),
    }
}

/// The `value_bytes` behind a header of `header_bytes`, and where the line end behind them ends; `None` while they are
/// incomplete.
///
/// # Errors
/// [`Malformed`] if something else than a line end follows the value.
#[inline]
pub(super) fn value(
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

/// A decimal number up to [`VALUE_BYTES_MAX`], all of `digits`, as servers write lengths: no sign, no leading zero.
///
/// # Errors
/// [`Malformed`] if it is anything else.
#[inline]
pub(super) fn size(digits: &[u8]) -> Result<usize, Malformed> {
    if digits.is_empty() || digits.len() > 10 || (digits[0] == b'0' && digits.len() > 1) {
        return Err(Malformed);
    }
    let mut n: u64 = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Malformed);
        }
        n = n * 10 + u64::from(digit);
    }
    if n <= VALUE_BYTES_MAX as u64 { Ok(n as usize) } else { Err(Malformed) }
}

/// A decimal number of up to 64 bits, all of `digits`.
///
/// # Errors
/// [`Malformed`] if it is not one.
#[inline]
pub(super) fn number(digits: &[u8]) -> Result<u64, Malformed> {
    parse_u64(digits).ok_or(Malformed)
}

/// The number of a counter's value: digits, and spaces behind them where the number was longer before.
///
/// # Errors
/// [`Malformed`] if it is not one.
pub fn counter(value: &[u8]) -> Result<u64, Malformed> {
    let end = value.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    number(&value[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_needs_both_its_end_bytes_and_has_a_longest_length() {
        assert_eq!(line(b"END\r"), Ok(None));
        assert_eq!(line(b"END\r\nx"), Ok(Some((b"END".as_slice(), 5))));
        for bad in [b"END\n".as_slice(), b"\n", b"\rx\n"] {
            assert_eq!(line(bad), Err(Malformed), "{}", bad.escape_ascii());
        }
        let mut longest = vec![b'x'; LINE_BYTES_MAX - 2];
        longest.extend_from_slice(b"\r\n");
        assert_eq!(line(&longest), Ok(Some((&longest[..LINE_BYTES_MAX - 2], LINE_BYTES_MAX))));
        assert_eq!(line(&longest[..LINE_BYTES_MAX - 1]), Ok(None));
        longest.insert(0, b'x');
        assert_eq!(line(&longest), Err(Malformed));
    }

    #[test]
    fn lengths_are_plain_decimals_that_a_value_may_have() {
        assert_eq!((size(b"0"), size(b"102400")), (Ok(0), Ok(102_400)));
        assert_eq!((size(b"2147483647"), size(b"2147483648")), (Ok(VALUE_BYTES_MAX), Err(Malformed)));
        for bad in [b"".as_slice(), b"-1", b"+1", b"01", b"1 ", b"12345678901", b"9999999999"] {
            assert_eq!(size(bad), Err(Malformed), "{bad:?}");
        }
    }

    #[test]
    fn a_counter_that_became_shorter_has_spaces_behind_it() {
        assert_eq!((counter(b"9  "), counter(b"18446744073709551615")), (Ok(9), Ok(u64::MAX)));
        for bad in [b"".as_slice(), b"  ", b" 9", b"9\t", b"-9", b"18446744073709551616"] {
            assert_eq!(counter(bad), Err(Malformed), "{bad:?}");
        }
    }

    #[test]
    fn a_value_is_whole_with_its_line_end() {
        assert_eq!(value(b"5\r\nhello\r\nx", 3, 5), Ok(Some((b"hello".as_slice(), 10))));
        assert_eq!(value(b"5\r\nhello\r", 3, 5), Ok(None));
        assert_eq!(value(b"5\r\nhello!!", 3, 5), Err(Malformed));
        assert_eq!(value(b"0\r\n\r\n", 3, 0), Ok(Some((b"".as_slice(), 5))));
    }
}
