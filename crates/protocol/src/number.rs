//! Numbers in text, both ways.
//!
//! memcached reads numbers in two ways. Most tokens are plain digits, with an optional minus where the field is signed. `set`'s
//! flags and exptime, and a stored counter, go through C's `strtoul`, which also takes blanks in front and a plus.

/// Digits only, no sign; `None` without digits, with other bytes, or above 64 bits.
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let mut n: u64 = 0;
    if text.len() < 20 {
        for &byte in text {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            n = n * 10 + u64::from(digit);
        }
        return Some(n);
    }
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n = n.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(n)
}

/// The length of a value: digits, or zeros behind a minus, which memcached also reads as 0.
#[inline]
pub(crate) fn parse_length(text: &[u8]) -> Option<u64> {
    parse_u64(text).or_else(|| {
        let zeros = text.strip_prefix(b"-").filter(|zeros| !zeros.is_empty())?;
        zeros.iter().all(|digit| *digit == b'0').then_some(0)
    })
}

/// Digits only, within 32 bits: the client flags of ms.
pub fn parse_u32(text: &[u8]) -> Option<u32> {
    u32::try_from(parse_u64(text)?).ok()
}

/// Digits with an optional minus, within 32 bits: exptime of touch, gat and meta commands.
pub fn parse_i32(text: &[u8]) -> Option<i32> {
    match text.split_first() {
        Some((b'-', digits)) => i32::try_from(-i64::try_from(parse_u64(digits)?).ok()?).ok(),
        _ => i32::try_from(parse_u64(text)?).ok(),
    }
}

/// Blanks as C's `isspace` knows them.
#[inline]
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Reads a number as `strtoul`: blanks, a sign, digits, then the end or a blank. Returns (negative, magnitude).
fn parse_c(text: &[u8]) -> Option<(bool, u64)> {
    let text = &text[text.iter().position(|&b| !is_blank(b))?..];
    let (negative, digits) = match text[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = digits.iter().position(|b| !b.is_ascii_digit()).unwrap_or(digits.len());
    if digits.get(end).is_some_and(|&b| !is_blank(b)) {
        return None;
    }
    // Any number of zeros in front.
    let zeros = digits[..end].iter().take_while(|&&b| b == b'0').count().min(end.saturating_sub(1));
    Some((negative, parse_u64(&digits[zeros..end])?))
}

/// A 64-bit number without a sign other than plus, as C reads it: a stored counter.
pub fn parse_c_u64(text: &[u8]) -> Option<u64> {
    match parse_c(text)? {
        (false, n) => Some(n),
        (true, _) => None,
    }
}

/// Reads a number as [`parse_c_u64`] does, from a text in several pieces.
pub fn parse_c_u64_in_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
    let (mut n, mut has_sign, mut has_digits) = (0u64, false, false);
    for &byte in pieces.into_iter().flatten() {
        match byte {
            b'0'..=b'9' => {
                n = n.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
                has_digits = true;
            }
            _ if has_digits => return is_blank(byte).then_some(n),
            b'+' if !has_sign => has_sign = true,
            _ if is_blank(byte) && !has_sign => {}
            _ => return None,
        }
    }
    has_digits.then_some(n)
}

/// `set`'s flags: as C reads an unsigned long, cut to 32 bits.
pub fn parse_flags(text: &[u8]) -> Option<u32> {
    Some(parse_c_u64(text)? as u32)
}

/// `set`'s exptime: as C reads a long, cut to 32 bits (2^31 and above become negative).
pub fn parse_exptime(text: &[u8]) -> Option<i32> {
    let (negative, n) = parse_c(text)?;
    let n = i64::try_from(n).ok()?;
    Some(if negative { n.wrapping_neg() } else { n } as i32)
}

/// Most bytes of a 64-bit number.
pub const U64_BYTES_MAX: usize = 20;

/// "00" to "99".
const PAIRS: &[u8; 200] = &{
    let mut pairs = [0; 200];
    let mut n = 0;
    while n < 100 {
        pairs[2 * n] = b'0' + (n / 10) as u8;
        pairs[2 * n + 1] = b'0' + (n % 10) as u8;
        n += 1;
    }
    pairs
};

/// Decimal digits of `n`.
#[inline]
pub fn digits(n: u64) -> usize {
    n.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Writes `n` at the start of `into` and returns its length.
///
/// # Panics
/// When `into` is too short; [`U64_BYTES_MAX`] always suffices.
#[inline]
pub fn write_u64(into: &mut [u8], mut n: u64) -> usize {
    if n < 10 {
        into[0] = b'0' + n as u8;
        return 1;
    }
    let len = digits(n);
    let text = &mut into[..len];
    let mut at = len;
    while n >= 100 {
        let pair = (n % 100) as usize * 2;
        n /= 100;
        text[at - 2..at].copy_from_slice(&PAIRS[pair..pair + 2]);
        at -= 2;
    }
    if n >= 10 {
        let pair = n as usize * 2;
        text[..2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        text[0] = b'0' + n as u8;
    }
    len
}

/// Writes the digits of `n`, below 1000, and a line end into `text` from `at` on, and returns the length: for tables that are
/// made at compile time.
pub(crate) const fn with_line_end(mut text: [u8; 8], at: usize, n: usize) -> ([u8; 8], usize) {
    let digits = if n < 10 {
        1
    } else if n < 100 {
        2
    } else {
        3
    };
    let mut left = n;
    let mut place = at + digits;
    while place > at {
        place -= 1;
        text[place] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    text[at + digits] = b'\r';
    text[at + digits + 1] = b'\n';
    (text, at + digits + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_digits_or_minus_zero() {
        for (text, length) in [("0", Some(0)), ("17", Some(17)), ("-0", Some(0)), ("-00", Some(0))] {
            assert_eq!(parse_length(text.as_bytes()), length, "{text}");
        }
        for bad in ["", "-", "-1", "-01", "--0", "+0", "-0x", "0-"] {
            assert_eq!(parse_length(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn plain_numbers_take_digits_only() {
        assert_eq!(parse_u64(b"0"), Some(0));
        assert_eq!(parse_u64(b"01"), Some(1));
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["18446744073709551616", "", "+1", "-1", "0x10", "1.5", "1 ", "99999999999999999999"] {
            assert_eq!(parse_u64(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn signed_numbers_stay_within_32_bits() {
        assert_eq!(parse_i32(b"-1"), Some(-1));
        assert_eq!(parse_i32(b"2147483647"), Some(i32::MAX));
        assert_eq!(parse_i32(b"-2147483648"), Some(i32::MIN));
        for bad in ["2147483648", "-2147483649", "+1", "-", "", "--1"] {
            assert_eq!(parse_i32(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn c_numbers_take_plus_and_blanks_and_wrap_at_32_bits() {
        assert_eq!(parse_flags(b"+1"), Some(1));
        assert_eq!(parse_flags(b"4294967296"), Some(0));
        assert_eq!(parse_flags(b"-1"), None);
        assert_eq!(parse_flags(b"1.5"), None);
        assert_eq!(parse_flags(b"18446744073709551616"), None);
        assert_eq!(parse_exptime(b"-1"), Some(-1));
        assert_eq!(parse_exptime(b"2147483648"), Some(i32::MIN));
        assert_eq!(parse_exptime(b"x"), None);
        assert_eq!(parse_c_u64(b"1 2"), Some(1));
        assert_eq!(parse_c_u64(b" 5"), Some(5));
        assert_eq!(parse_c_u64(b"+5"), Some(5));
        assert_eq!(parse_c_u64(b"9 "), Some(9));
        assert_eq!(parse_c_u64(b"00000000000000000007"), Some(7));
        assert_eq!(parse_c_u64(&[b'0'; 99]), Some(0));
        assert_eq!(parse_c_u64(format!("{}18446744073709551615", "0".repeat(44)).as_bytes()), Some(u64::MAX));
        for bad in ["-5", "", " ", "12abc", "18446744073709551616"] {
            assert_eq!(parse_c_u64(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_counter_in_pieces_is_what_it_is_in_one() {
        let mut texts: Vec<String> =
            ["5", "+5", " +5 ", "-5", "+ 5", "++5", "5+", "5 x", "5x", "", " ", "+", "18446744073709551616"]
                .map(str::to_owned)
                .into();
        texts.extend(["0", "7", "18446744073709551615", "x", " "].map(|end| "0".repeat(50) + end));
        // All texts of four of these, too.
        let bytes = b"09 +-x";
        texts.extend((0..bytes.len().pow(4)).map(|n| {
            (0..4).map(|at| char::from(bytes[n / bytes.len().pow(at) % bytes.len()])).collect::<String>()
        }));
        for text in texts {
            for piece_bytes in [1, 2, 3, 100] {
                let pieces = text.as_bytes().chunks(piece_bytes);
                assert_eq!(parse_c_u64_in_pieces(pieces), parse_c_u64(text.as_bytes()), "{text:?}");
            }
        }
    }

    #[test]
    fn written_numbers_read_back() {
        let mut cases = vec![0, 9, 10, 99, 100, 999, 1000, u64::MAX, u64::MAX - 1];
        cases.extend((0..64).map(|bit| 1u64 << bit));
        for n in cases {
            let mut text = [0; U64_BYTES_MAX];
            let len = write_u64(&mut text, n);
            assert_eq!(&text[..len], n.to_string().as_bytes());
            assert_eq!(len, digits(n));
        }
    }
}
