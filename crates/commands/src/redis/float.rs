//! INCRBYFLOAT: decimal where the numbers are decimal, so that 0.1 and 0.2 make 0.3.

use std::fmt::Write as _;

use arrayvec::ArrayString;
use larder_protocol::resp::{Args, parse_double};
use larder_store::{Attributes, Expect, Hint, Key, Value};

use super::call::{Call, kept};
use super::fail::{Done, Fail};

/// Digits behind the point: what Redis prints at most.
const PLACES: u32 = 17;

/// Room for any number with its sign, its point and so many digits behind it.
type Digits = ArrayString<{ f64::MAX_10_EXP as usize + 1 + PLACES as usize + 2 }>;

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
        let (new, attributes, expect) = match call.cx.guard.peek(key).hit() {
            Some(item) => {
                let Value::Whole(text) = item.value() else { return Err(Fail::NOT_A_FLOAT) };
                (sum(super::string::without_spaces(text), by)?, kept(&item), Expect::Unchanged(item.seen()))
            }
            None => (sum(b"0", by)?, Attributes::default(), Expect::Absent),
        };
        if call.store(key, new.as_bytes(), &attributes, expect)?.is_ok() {
            return call.bulk(new.as_bytes());
        }
    }
}

/// The sum of two numbers as text.
pub(crate) fn sum(one: &[u8], two: &[u8]) -> Result<Digits, Fail> {
    if let (Some(one), Some(two)) = (decimal(one), decimal(two))
        && let Some(sum) = one.checked_add(two)
    {
        return Ok(shown(sum));
    }
    let parse = |text| parse_double(text).ok_or(Fail::NOT_A_FLOAT);
    let sum = parse(one)? + parse(two)?;
    if !sum.is_finite() {
        return Err(Fail::of("ERR increment would produce NaN or Infinity"));
    }
    Ok(trimmed(format_args!("{sum:.17}")))
}

/// A number in units of 10^-17; none if it is not a decimal one of moderate size and precision.
fn decimal(text: &[u8]) -> Option<i128> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
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
    let n = match u32::try_from(shift) {
        Ok(shift) => n.checked_mul(10i128.checked_pow(shift)?)?,
        Err(_) => return None,
    };
    Some(if negative { -n } else { n })
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
    fn exponents_at_the_ends_of_their_width_are_out_of_range() {
        for number in ["1e-2147483648", "0.0000000000000000001e-2147483648", "1e2147483647"] {
            assert!(sum(number.as_bytes(), b"1").is_err(), "{number}");
        }
    }
}
