//! INCRBYFLOAT: decimal where the numbers are decimal, so that 0.1 and 0.2 make 0.3.

use std::fmt::Write as _;

use arrayvec::ArrayString;
use larder_protocol::resp::{Args, parse_double, parse_hex};
use larder_store::{Attributes, Expect, Hint, Key, Value};

use crate::redis::call::{Call, kept};
use crate::redis::fail::{Done, Fail};

/// Digits behind the point: what Redis prints at most.
const PLACES: u32 = 17;

/// Room for any number with its sign, its point and so many digits behind it.
pub(crate) type Digits = ArrayString<{ f64::MAX_10_EXP as usize + 1 + PLACES as usize + 2 }>;

/// INCRBYFLOAT
pub(crate) fn incrbyfloat(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    _: &Hint<'_>,
    mut args: Args<'_>,
) -> Done {
    let by = args.next().unwrap_or_default();
    parse_double(by).ok_or(Fail::NOT_A_FLOAT)?;
    loop {
        let (expect, new, attributes) = match call.peek(key)? {
            Some(item) => {
                let Value::Whole(text) = item.value() else { return Err(Fail::NOT_A_FLOAT) };
                (Expect::Unchanged(item.seen()), sum(super::without_spaces(text), by)?, kept(&item))
            }
            None => (Expect::Absent, sum(b"0", by)?, Attributes::default()),
        };
        if call.store(key, new.as_bytes(), &attributes, expect)?.is_ok() {
            return call.bulk(new.as_bytes());
        }
    }
}

/// The sum of two numbers as text.
pub(crate) fn sum(one: &[u8], two: &[u8]) -> Result<Digits, Fail> {
    let parse = |text| parse_double(text).ok_or(Fail::NOT_A_FLOAT);
    let near = parse(one)? + parse(two)?;
    if let (Some(one), Some(two)) = (exact(one), exact(two))
        && let Some(sum) = one.checked_add(two)
    {
        return Ok(shown(sum));
    }
    let sum = near;
    if !sum.is_finite() {
        return Err(Fail::of("ERR increment would produce NaN or Infinity"));
    }
    Ok(trimmed(format_args!("{sum:.17}")))
}

/// A number in units of 10^-17; none if it is not one of moderate size and precision.
fn exact(text: &[u8]) -> Option<i128> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let n = if digits.get(1).is_some_and(|b| matches!(b, b'x' | b'X')) {
        hexadecimal(digits)?
    } else {
        decimal(digits)?
    };
    Some(if negative { -n } else { n })
}

/// What has more places is rounded to the last of them, where it is printed.
fn hexadecimal(digits: &[u8]) -> Option<i128> {
    let (mantissa, power) = parse_hex(digits)?;
    let n = i128::try_from(mantissa).ok()?.checked_mul(10i128.pow(PLACES))?;
    if n == 0 {
        return Some(0);
    }
    if power >= 0 {
        let power = u32::try_from(power).ok().filter(|&power| power < i128::BITS)?;
        return n.checked_mul(1i128.checked_shl(power).filter(|n| *n > 0)?);
    }
    let Some(power) = u32::try_from(-power).ok().filter(|&power| power < i128::BITS - 1) else {
        return Some(0);
    };
    let (whole, cut, half) = (n >> power, n & ((1 << power) - 1), 1 << (power - 1));
    Some(whole + i128::from(cut > half || cut == half && whole & 1 == 1))
}

fn decimal(rest: &[u8]) -> Option<i128> {
    let (digits, exponent) = match rest.iter().position(|b| matches!(b, b'e' | b'E')) {
        Some(at) => {
            let exponent = rest[at + 1..].strip_prefix(b"+").unwrap_or(&rest[at + 1..]);
            (&rest[..at], i64::from(std::str::from_utf8(exponent).ok()?.parse::<i32>().ok()?))
        }
        None => (rest, 0),
    };
    let point = digits.iter().position(|&b| b == b'.').unwrap_or(digits.len());
    let places = digits.len().saturating_sub(point + 1) as i64;
    let mut n: i128 = 0;
    let mut seen = false;
    for &byte in digits.iter().filter(|&&b| b != b'.') {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        seen = true;
        n = n.checked_mul(10)?.checked_add(i128::from(digit))?;
    }
    if !seen || digits.iter().filter(|&&b| b == b'.').count() > 1 {
        return None;
    }
    let shift = i64::from(PLACES) + exponent - places;
    n.checked_mul(10i128.checked_pow(u32::try_from(shift).ok()?)?)
}

fn shown(n: i128) -> Digits {
    let unit = 10u128.pow(PLACES);
    let (whole, fraction) = (n.unsigned_abs() / unit, n.unsigned_abs() % unit);
    let sign = if n < 0 { "-" } else { "" };
    trimmed(format_args!("{sign}{whole}.{fraction:017}"))
}

/// Without zeros at the end, nor a point.
fn trimmed(number: std::fmt::Arguments<'_>) -> Digits {
    let mut text = Digits::new();
    text.write_fmt(number).expect("room for the longest number");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    if &*text == "-0" {
        text.remove(0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_sums_are_exact() {
        for (one, two, expected) in [
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("3", "-5.5", "-2.5"),
            ("1", "-1", "0"),
            ("-0.5", "0.5", "0"),
            ("1e17", "1", "100000000000000001"),
            ("1e300", "0", &format!("{:.0}", 1e300)),
        ] {
            assert_eq!(&*sum(one.as_bytes(), two.as_bytes()).unwrap(), expected, "{one} {two}");
        }
        assert!(sum(b"abc", b"1").is_err());
        assert!(sum(b"1e308", b"1.7e308").is_err());
        assert!(sum(b"1", b"inf").is_err());
    }

    #[test]
    fn hexadecimal_numbers_are_read_as_c_reads_them() {
        for (one, two, expected) in [
            ("0.1", "0x10", "16.1"),
            ("1", "0x1p-1", "1.5"),
            ("1.5", "0x.8", "2"),
            ("2", "0x1.", "3"),
            ("3", "0x1p+3", "11"),
            ("11", "0X1P-3", "11.125"),
            ("11.125", "-0x10", "-4.875"),
            ("0x10", "1", "17"),
            ("0x1p4", "1", "17"),
            ("0", "0x1p-20", "0.00000095367431641"),
            ("0", "0x1.8p1", "3"),
            ("0", "0xffffffffffffffffffff", "1208925819614629174706176"),
            ("0", "0x1p-70", "0"),
            ("0", "0x1.999999999999ap-4", "0.10000000000000001"),
            ("1", "0x0p99999999999999999999", "1"),
            ("0", "0x00000000000000000000000000000001", "1"),
            ("0", "0x8000000000000000000000000p-100", "0.5"),
        ] {
            assert_eq!(sum(one.as_bytes(), two.as_bytes()).as_deref(), Ok(expected), "{one} {two}");
        }
        let bad = [
            "0x",
            "0x.",
            "0x1p",
            "0x1p+",
            "0x1p+-1",
            "0x1..",
            "0x1g",
            "x1",
            "0x+1",
            "0x1p2000",
            "0x1p-2000",
            "0x1p99999999999999999999",
            "1e+-5",
            "1e++5",
            "1e-+5",
            "1e",
            "0x1e 1",
            "nan",
            "0xinf",
            "-0x",
            "--0x1",
        ];
        for text in bad {
            assert!(sum(text.as_bytes(), b"1").is_err(), "{text}");
            assert!(sum(b"1", text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn exponents_at_the_ends_of_their_width_are_out_of_range() {
        for number in ["1e-2147483648", "0.0000000000000000001e-2147483648", "1e2147483647"] {
            assert!(sum(number.as_bytes(), b"1").is_err(), "{number}");
        }
    }
}
