//! Sums of numbers as text, computed in decimal, so that 0.1 and 0.2 make 0.3.

use std::cmp::Ordering;
use std::fmt::Write as _;

use arrayvec::ArrayString;
use larder_protocol::resp::{parse_double_or_zero, parse_hex};
use ruint::Uint;

use super::fail::Fail;

/// Digits behind the point, as many as Redis prints at most.
const PLACES: u32 = 17;
/// Digits of a number that count: those of the largest number in front of the point, and some more behind it than are printed.
const DIGITS_MAX: usize = f64::MAX_10_EXP as usize + 1 + 4 * PLACES as usize;

/// An exponent so large that no text has enough digits to make up for it.
const EXPONENT_MAX: i64 = 1 << 48;

/// A number without its sign, in units of 10^-17: any double, and what is computed on the way to one.
type Magnitude = Uint<1344, 21>;

/// The text of any number, with its sign, its point and so many digits behind it.
pub(crate) type Digits = ArrayString<{ f64::MAX_10_EXP as usize + 1 + PLACES as usize + 2 }>;

/// Adds two numbers, given as text.
pub(crate) fn sum(one: &[u8], two: &[u8]) -> Result<Digits, Fail> {
    // A number too small for a double is 0 in 17 places.
    let parse = |text| parse_double_or_zero(text).ok_or(Fail::NOT_A_FLOAT);
    let near = parse(one)? + parse(two)?;
    if !near.is_finite() {
        return Err(Fail::of("ERR increment would produce NaN or Infinity"));
    }
    let (one, two) = exact(one).zip(exact(two)).ok_or(Fail::NOT_A_FLOAT)?;
    let sum = one.plus(two);
    let sign = if sum.negative { "-" } else { "" };
    let mut digits = Digits::new();
    write!(digits, "{:0>1$}", sum.magnitude, PLACES as usize + 1).expect("room for the longest number");
    let (whole, fraction) = digits.split_at(digits.len() - PLACES as usize);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    let mut text = Digits::new();
    write!(text, "{sign}{whole}{point}{fraction}").expect("room for the longest number");
    Ok(text)
}

/// A number in units of 10^-17. A 0 is never negative.
struct Exact {
    negative: bool,
    magnitude: Magnitude,
}

impl Exact {
    fn of(negative: bool, magnitude: Magnitude) -> Exact {
        Exact { negative: negative && !magnitude.is_zero(), magnitude }
    }

    fn plus(self, other: Exact) -> Exact {
        let (one, two) = (self.magnitude, other.magnitude);
        match one.cmp(&two) {
            _ if self.negative == other.negative => Exact::of(self.negative, one + two),
            Ordering::Less => Exact::of(other.negative, two - one),
            Ordering::Equal | Ordering::Greater => Exact::of(self.negative, one - two),
        }
    }
}

/// Parses a number, rounded to the nearest unit, of two to the even one; `None` if it is no number or infinite.
fn exact(text: &[u8]) -> Option<Exact> {
    let (negative, digits) = signed(text);
    let magnitude = match parse_hex(digits) {
        Some((0, _)) => Magnitude::ZERO,
        Some((mantissa, power)) => {
            let n = times_ten_to(Magnitude::from(mantissa), PLACES)?;
            match usize::try_from(power) {
                Ok(power) => n.checked_shl(power)?,
                Err(_) => match usize::try_from(power.unsigned_abs())
                    .ok()
                    .and_then(|n| Magnitude::ONE.checked_shl(n))
                {
                    Some(unit) => divided(n, unit, false)?,
                    // The number is too small: 0.
                    None => Magnitude::ZERO,
                },
            }
        }
        None => decimal(digits)?,
    };
    Some(Exact::of(negative, magnitude))
}

fn decimal(text: &[u8]) -> Option<Magnitude> {
    let (digits, exponent) = with_exponent(text)?;
    let (mut n, mut kept) = (Magnitude::ZERO, 0);
    let (mut sticky, mut behind, mut shift) = (false, false, exponent);
    for &byte in digits {
        if byte == b'.' {
            behind = true;
            continue;
        }
        if kept < DIGITS_MAX {
            n = n.checked_mul(Magnitude::from(10))?.checked_add(Magnitude::from(byte - b'0'))?;
            kept += usize::from(!n.is_zero());
            shift -= i64::from(behind);
        } else {
            sticky |= byte != b'0';
            shift += i64::from(!behind);
        }
    }
    if n.is_zero() {
        return Some(n);
    }
    let shift = shift + i64::from(PLACES);
    match u32::try_from(shift) {
        Ok(shift) => times_ten_to(n, shift),
        // The number is too small: 0.
        Err(_) if -shift > kept as i64 + 1 => Some(Magnitude::ZERO),
        Err(_) => divided(n, times_ten_to(Magnitude::ONE, u32::try_from(-shift).ok()?)?, sticky),
    }
}

/// Multiplies by 10 to the power of `power`.
fn times_ten_to(mut n: Magnitude, mut power: u32) -> Option<Magnitude> {
    while power > 0 {
        let some = power.min(u64::MAX.ilog10());
        n = n.checked_mul(Magnitude::from(10u64.pow(some)))?;
        power -= some;
    }
    Some(n)
}

/// Divides and rounds. `sticky`: the number has further digits that are not 0.
fn divided(n: Magnitude, by: Magnitude, sticky: bool) -> Option<Magnitude> {
    let (whole, rest) = n.div_rem(by);
    let up = match rest.cmp(&(by - rest)) {
        Ordering::Less => false,
        Ordering::Equal => sticky || whole.bit(0),
        Ordering::Greater => true,
    };
    whole.checked_add(Magnitude::from(u8::from(up)))
}

/// Splits off a sign; true if it is negative.
fn signed(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    }
}

/// The digits of a decimal number with their point, and its exponent.
fn with_exponent(text: &[u8]) -> Option<(&[u8], i64)> {
    let Some(at) = text.iter().position(|b| matches!(b, b'e' | b'E')) else { return Some((text, 0)) };
    let (negative, digits) = signed(&text[at + 1..]);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // A greater exponent makes no difference: no text has enough digits.
    let add = |sum: i64, digit: &u8| (sum * 10 + i64::from(digit - b'0')).min(EXPONENT_MAX);
    let exponent = digits.iter().fold(0, add);
    Some((&text[..at], if negative { -exponent } else { exponent }))
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
            ("1e300", "0", &format!("1{}", "0".repeat(300))),
            ("1e23", "1", "100000000000000000000001"),
            ("1e23", "1e30", "1000000100000000000000000000000"),
            ("-1e23", "0.5", "-99999999999999999999999.5"),
            ("123456789012345678901234567890", "0.25", "123456789012345678901234567890.25"),
            ("0.1234567890123456789", "1", "1.12345678901234568"),
            ("1e-17", "1e-18", "0.00000000000000001"),
            ("0.000000000000000005", "0", "0"),
            ("0.0000000000000000050000000000000000001", "1e23", "100000000000000000000000.00000000000000001"),
            ("1e-300", "1e300", &format!("1{}", "0".repeat(300))),
            (&format!("{}1.5", "0".repeat(9000)), "1e25", "10000000000000000000000001.5"),
            (&format!("1.{}", "3".repeat(9000)), "1e25", "10000000000000000000000001.33333333333333333"),
            (&format!("0x1{}", "0".repeat(40)), "1", "1461501637330902918203684832716283019655932542977"),
            ("0x1p-70", "1e25", "10000000000000000000000000"),
            ("-1e308", "1e308", "0"),
            ("0x0p99999999999999999999", "1e30", "1000000000000000000000000000000"),
            ("1", "1e-330", "1"),
            ("-1e-330", "1", "1"),
            ("-.5e-330", "-1e-400", "0"),
            ("0.1", &format!("0.{}1", "0".repeat(9000)), "0.1"),
            ("1", "1e-2147483648", "1"),
            ("1", "0.0000000000000000001e-2147483648", "1"),
            ("1", "-1e-99999999999999999999", "1"),
            ("0e99999999999999999999", "0e-99999999999999999999", "0"),
            (&format!("0.{}1e9001", "0".repeat(9000)), "1", "2"),
            (&format!("1{}e-9000", "0".repeat(9000)), "1", "2"),
            ("1", "0x1p-2000", "1"),
            ("1", "-0x1p-99999999999999999999", "1"),
            ("0", "0x1p-57", "0.00000000000000001"),
            ("0", "0x1p-58", "0"),
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
    fn numbers_beyond_a_double_are_none() {
        for number in ["1e309", "1e2147483647", "1e99999999999999999999", "0x1p1024"] {
            assert!(sum(number.as_bytes(), b"1").is_err(), "{number}");
        }
    }
}
