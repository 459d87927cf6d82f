//! Encoding of replies and of the numbers in them.

use std::fmt::Write;

use super::digits::Digits;
use crate::number::{with_line_end, write_u64};
use crate::reply::{SMALL_BYTES_MAX, SMALL_ROOM, copy};

/// Most bytes of a header line: a type, a 64-bit number, a line end.
pub const HEAD_BYTES_MAX: usize = 24;

/// Lengths below this have an entry.
const TABLE_VALUES: usize = 1000;

/// `$<length>\r\n` padded with zeros to eight bytes, its length in the last.
const HEADS: &[[u8; 8]; TABLE_VALUES] = &{
    let mut heads = [[0; 8]; TABLE_VALUES];
    let mut n = 0;
    while n < TABLE_VALUES {
        let (mut text, bytes) = with_line_end([b'$', 0, 0, 0, 0, 0, 0, 0], 1, n);
        text[7] = bytes as u8;
        heads[n] = text;
        n += 1;
    }
    heads
};

/// Writes `$<bytes>\r\n` and returns its length. The first eight bytes of `into` are overwritten, even if it is shorter.
///
/// # Panics
/// When `into` is shorter than [`HEAD_BYTES_MAX`].
#[inline(always)]
pub fn write_bulk_head(into: &mut [u8], bytes: u64) -> usize {
    if bytes < TABLE_VALUES as u64 {
        let head = &HEADS[bytes as usize];
        *into.first_chunk_mut::<8>().expect("room for a header") = *head;
        return usize::from(head[7]);
    }
    write_head(into, b'$', bytes)
}

/// Writes `$<bytes>\r\n<value>\r\n` and returns its length; `None` if the value is longer than [`SMALL_BYTES_MAX`].
#[inline(always)]
pub fn write_small_bulk(into: &mut [u8; SMALL_ROOM], value: &[u8]) -> Option<usize> {
    if value.len() > SMALL_BYTES_MAX {
        return None;
    }
    let head = &HEADS[value.len()];
    *into.first_chunk_mut::<8>()? = *head;
    let at = usize::from(head[7]);
    let (data, end) = into[at..].split_at_mut(value.len());
    copy(data, value);
    *end.first_chunk_mut::<2>()? = *b"\r\n";
    Some(at + value.len() + 2)
}

/// Writes `<kind><n>\r\n` and returns its length.
///
/// # Panics
/// When `into` is shorter than [`HEAD_BYTES_MAX`].
#[inline]
pub fn write_head(into: &mut [u8], kind: u8, n: u64) -> usize {
    into[0] = kind;
    let end = 1 + write_u64(&mut into[1..], n);
    into[end..end + 2].copy_from_slice(b"\r\n");
    end + 2
}

/// Writes the digits of a signed number and returns their length.
///
/// # Panics
/// When `into` is shorter than 20 bytes.
#[inline]
pub fn write_integer(into: &mut [u8], n: i64) -> usize {
    if n < 0 {
        into[0] = b'-';
        return 1 + write_u64(&mut into[1..], n.unsigned_abs());
    }
    write_u64(into, n as u64)
}

/// Reads a number by Redis's rule: an optional minus, digits without leading zeros, 64 bits.
#[inline]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut n: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n = n * 10 + u64::from(digit);
    }
    if negative {
        (n <= i64::MIN.unsigned_abs()).then_some((n as i64).wrapping_neg())
    } else {
        i64::try_from(n).ok()
    }
}

/// Bits of a mantissa that are kept: those of C's widest type.
const MANTISSA_BITS: u32 = 64;
/// Digits that are read exactly. Of the others it matters only whether one is not 0.
const HEX_DIGITS_MAX: u32 = 24;

/// Reads a hexadecimal number without a sign, from all of the text: `0x`, digits, perhaps a point among them, perhaps `p` and a
/// power of two. Returns a mantissa of up to 2^64, rounded to 64 bits as by `strtold`, and its power.
pub fn parse_hex(text: &[u8]) -> Option<(u128, i64)> {
    let [b'0', b'x' | b'X', rest @ ..] = text else { return None };
    let end = rest.iter().position(|b| matches!(b, b'p' | b'P')).unwrap_or(rest.len());
    let (mut n, mut count, mut power, mut sticky) = (0u128, 0, 0i64, false);
    let (mut any, mut point) = (false, false);
    for &byte in &rest[..end] {
        if byte == b'.' && !point {
            point = true;
            continue;
        }
        let digit = char::from(byte).to_digit(16)?;
        any = true;
        if count < HEX_DIGITS_MAX {
            n = n << 4 | u128::from(digit);
            count += u32::from(n > 0);
            power -= if point { 4 } else { 0 };
        } else {
            sticky |= digit > 0;
            power += if point { 0 } else { 4 };
        }
    }
    if !any {
        return None;
    }
    if let Some(exponent) = rest.get(end + 1..) {
        let (negative, digits) = match exponent {
            [b'-', digits @ ..] => (true, digits),
            [b'+', digits @ ..] => (false, digits),
            digits => (false, digits),
        };
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let add = |sum: i64, digit: &u8| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
        let exponent = digits.iter().fold(0, add);
        power = if negative { power.saturating_sub(exponent) } else { power.saturating_add(exponent) };
    }
    let surplus = (u128::BITS - n.leading_zeros()).saturating_sub(MANTISSA_BITS);
    if surplus > 0 {
        let (cut, half) = (n & ((1 << surplus) - 1), 1 << (surplus - 1));
        n >>= surplus;
        n += u128::from(cut > half || cut == half && (sticky || n & 1 == 1));
        power = power.saturating_add(i64::from(surplus));
    }
    Some((n, power))
}

/// Reads a floating-point number as `strtod` does, from all of the text, without blanks in front and without NaN. `None` also if
/// it is too large or too small for the type, where `strtod` reports an error.
pub fn parse_double(text: &[u8]) -> Option<f64> {
    parse_near(text).filter(|(n, is_zero)| *n != 0.0 || *is_zero).map(|(n, _)| n)
}

/// Reads a floating-point number as [`parse_double`] does, but one that is too small for the type is 0.
pub fn parse_double_or_zero(text: &[u8]) -> Option<f64> {
    parse_near(text).map(|(n, _)| n)
}

/// The nearest number of the type, and whether the text is exactly 0.
fn parse_near(text: &[u8]) -> Option<(f64, bool)> {
    let text = std::str::from_utf8(text).ok()?;
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if digits.eq_ignore_ascii_case("inf") || digits.eq_ignore_ascii_case("infinity") {
        return Some((sign * f64::INFINITY, false));
    }
    let (n, is_zero) = if digits.starts_with("0x") || digits.starts_with("0X") {
        let (mantissa, power) = parse_hex(digits.as_bytes())?;
        // In two steps, each by a power that the type can represent.
        let power = i32::try_from(power.clamp(-4000, 4000)).ok()?;
        let n = mantissa as f64 * f64::powi(2.0, power / 2) * f64::powi(2.0, power - power / 2);
        (if mantissa == 0 { 0.0 } else { n }, mantissa == 0)
    } else {
        if !digits.bytes().next()?.is_ascii_digit() && !digits.starts_with('.') {
            return None;
        }
        let mut mantissa = digits.bytes().take_while(|b| !matches!(b, b'e' | b'E'));
        (digits.parse().ok()?, mantissa.all(|b| matches!(b, b'0' | b'.')))
    };
    n.is_finite().then_some((sign * n, is_zero))
}

/// Most bytes of a floating-point number as text: sign, point, and 17 digits or six zeros in front of them or behind.
const DOUBLE_BYTES_MAX: usize = 32;

/// A floating-point number as text.
#[derive(Clone, Copy, Debug, Default)]
pub struct DoubleText {
    bytes: [u8; DOUBLE_BYTES_MAX],
    len: usize,
}

impl std::ops::Deref for DoubleText {
    type Target = str;
    fn deref(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).expect("digits and letters")
    }
}

impl Write for DoubleText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Writes a floating-point number as Redis prints scores and RESP3 doubles from 7.2 on: by Grisu2, with nearly always the fewest
/// digits that read back as the same number; whole numbers below 2^62, and numbers with few zeros, without an exponent.
pub fn format_double(n: f64) -> DoubleText {
    let mut text = DoubleText::default();
    write_double(&mut text, n).expect("room for any number");
    text
}

fn write_double(to: &mut DoubleText, n: f64) -> std::fmt::Result {
    /// Whole numbers below this are written as integers.
    const WHOLE_MAX: f64 = (1_u64 << 62) as f64;
    if n.is_nan() {
        return to.write_str("nan");
    }
    if n.is_sign_negative() {
        to.write_char('-')?;
    }
    let n = n.abs();
    if n.is_infinite() {
        return to.write_str("inf");
    }
    if n.fract() == 0.0 && n < WHOLE_MAX {
        return write!(to, "{}", n as u64);
    }
    let found = Digits::of(n);
    let (digits, power) = (found.text(), found.power);
    let count = digits.len() as i32;
    let exponent = power + count - 1;
    if power >= 0 && exponent < count + 7 {
        to.write_str(digits)?;
        return (0..power).try_for_each(|_| to.write_char('0'));
    }
    if power < 0 && (power > -7 || exponent.abs() < 4) {
        let before = count + power;
        if before <= 0 {
            to.write_str("0.")?;
            (before..0).try_for_each(|_| to.write_char('0'))?;
            return to.write_str(digits);
        }
        let (whole, fraction) = digits.split_at(before as usize);
        return write!(to, "{whole}.{fraction}");
    }
    let (first, rest) = digits.split_at(1);
    let (point, sign) = (if rest.is_empty() { "" } else { "." }, if exponent < 0 { '-' } else { '+' });
    write!(to, "{first}{point}{rest}e{sign}{}", exponent.abs())
}
