//! INCRBYFLOAT of the [`Model`](super::model::Model). A number is exact: its digits, and the place of its
//! point. Numbers are added digit by digit, as on paper. A hexadecimal number becomes decimal by doubling, or
//! by halving: times five, with one more decimal.

use std::cmp::Ordering;

use super::words::Fail;

const PLACES: i64 = 17;
const NO_FLOAT: &str = "ERR value is not a valid float";
/// Bits of a hexadecimal number's digits that count.
const MANTISSA_BITS: u32 = 64;
/// A mantissa that is halved more often than this is 0 in any number of decimals.
const HALVES_MAX: i64 = 1000;

/// A number as it was written, rounded to a number of decimals.
struct Number {
    negative: bool,
    /// From the first nonzero digit on.
    digits: Vec<u8>,
    near: f64,
}

pub(super) fn sum(one: &[u8], two: &[u8]) -> Result<String, Fail> {
    let (one, two) = (read(one)?, read(two)?);
    if !(one.near + two.near).is_finite() {
        return Fail::of("ERR increment would produce NaN or Infinity");
    }
    let (negative, digits) = if one.negative == two.negative {
        (one.negative, plus(&one.digits, &two.digits))
    } else if order(&one.digits, &two.digits) == Ordering::Less {
        (two.negative, minus(&two.digits, &one.digits))
    } else {
        (one.negative, minus(&one.digits, &two.digits))
    };
    let text: String = digits.iter().map(|digit| char::from(b'0' + digit)).collect();
    let text = format!("{text:0>18}");
    let (whole, places) = text.split_at(text.len() - PLACES as usize);
    let sign = if negative && !digits.is_empty() { "-" } else { "" };
    Ok(format!("{sign}{whole}.{places}").trim_end_matches('0').trim_end_matches('.').to_owned())
}

fn read(text: &[u8]) -> Result<Number, Fail> {
    let wrong = || Fail(NO_FLOAT.into());
    let text = std::str::from_utf8(text).map_err(|_| wrong())?.to_ascii_lowercase();
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let signed = |near: f64| if negative { -near } else { near };
    if matches!(text, "inf" | "infinity") {
        return Ok(Number { negative, digits: Vec::new(), near: signed(f64::INFINITY) });
    }
    let (digits, near) = match text.strip_prefix("0x") {
        Some(hex) => hexadecimal(hex)?,
        None => decimal(text)?,
    };
    if near.is_finite() { Ok(Number { negative, digits, near: signed(near) }) } else { Err(wrong()) }
}

fn decimal(text: &str) -> Result<(Vec<u8>, f64), Fail> {
    if !text.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return Fail::of(NO_FLOAT);
    }
    let near = text.parse().map_err(|_| Fail(NO_FLOAT.into()))?;
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = whole.bytes().chain(behind.bytes()).map(|byte| byte - b'0').collect();
    // A longer exponent has the same effect as this one.
    let exponent = exponent.parse::<i64>().unwrap_or(if exponent.starts_with('-') { -1 } else { 1 } << 40);
    Ok((rounded(digits, behind.len() as i64 - exponent), near))
}

/// Reads a hexadecimal number, behind its `0x`.
fn hexadecimal(text: &str) -> Result<(Vec<u8>, f64), Fail> {
    let wrong = || Fail(NO_FLOAT.into());
    let (digits, power) = text.split_once('p').unwrap_or((text, "0"));
    let (whole, places) = digits.split_once('.').unwrap_or((digits, ""));
    let power_digits = power.strip_prefix(['+', '-']).unwrap_or(power);
    let all = format!("{whole}{places}");
    let is_number = !all.is_empty()
        && all.bytes().all(|byte| byte.is_ascii_hexdigit())
        && !power_digits.is_empty()
        && power_digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(wrong());
    }
    // Digits beyond the first 30 only decide whether a rest is more than a half.
    let significant = all.trim_start_matches('0');
    let (kept, rest) = significant.split_at(significant.len().min(30));
    let more = rest.bytes().any(|byte| byte != b'0');
    let mantissa = u128::from_str_radix(&format!("0{kept}{}", u8::from(more)), 16).map_err(|_| wrong())?;
    if mantissa == 0 {
        return Ok((Vec::new(), 0.0));
    }
    let power = power.parse::<i64>().unwrap_or(if power.starts_with('-') { -1 } else { 1 } << 40);
    let mut power = power + 4 * (rest.len() as i64 - places.len() as i64 - 1);
    let mut mantissa = mantissa;
    let surplus = (u128::BITS - mantissa.leading_zeros()).saturating_sub(MANTISSA_BITS);
    if surplus > 0 {
        let (cut, half) = (mantissa % (1 << surplus), 1 << (surplus - 1));
        mantissa >>= surplus;
        mantissa += u128::from(cut > half || cut == half && mantissa % 2 == 1);
        power += i64::from(surplus);
    }
    let near = mantissa as f64 * f64::powi(2.0, power.clamp(-2000, 2000) as i32);
    let mut digits: Vec<u8> = mantissa.to_string().bytes().map(|byte| byte - b'0').collect();
    if !near.is_finite() {
        return Err(wrong());
    }
    if power < -HALVES_MAX {
        return Ok((Vec::new(), near));
    }
    for _ in 0..power.unsigned_abs() {
        digits = times(&digits, if power > 0 { 2 } else { 5 });
    }
    Ok((rounded(digits, (-power).max(0)), near))
}

/// Digits of which `places` are decimals, rounded to the decimals that are kept; a half goes to the even
/// digit.
fn rounded(digits: Vec<u8>, places: i64) -> Vec<u8> {
    let mut digits = without_zeros(digits);
    if digits.is_empty() {
        return digits;
    }
    match usize::try_from(places - PLACES) {
        Err(_) => digits.resize(digits.len() + (PLACES - places) as usize, 0),
        Ok(cut) if cut > digits.len() => digits.clear(),
        Ok(cut) => {
            let rest = digits.split_off(digits.len() - cut);
            let is_odd = digits.last().is_some_and(|last| last % 2 == 1);
            let more = rest.iter().skip(1).any(|digit| *digit > 0);
            let up = rest.first().is_some_and(|first| *first > 5 || *first == 5 && (more || is_odd));
            digits = plus(&digits, if up { &[1] } else { &[] });
        }
    }
    digits
}

fn without_zeros(mut digits: Vec<u8>) -> Vec<u8> {
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    digits.drain(..zeros);
    digits
}

fn order(one: &[u8], two: &[u8]) -> Ordering {
    one.len().cmp(&two.len()).then_with(|| one.cmp(two))
}

fn plus(one: &[u8], two: &[u8]) -> Vec<u8> {
    let (mut ones, mut twos) = (one.iter().rev(), two.iter().rev());
    let (mut sum, mut carry) = (Vec::new(), 0);
    for _ in 0..=one.len().max(two.len()) {
        carry += ones.next().unwrap_or(&0) + twos.next().unwrap_or(&0);
        sum.push(carry % 10);
        carry /= 10;
    }
    sum.reverse();
    without_zeros(sum)
}

/// The difference of two numbers; the second is not larger than the first.
fn minus(one: &[u8], two: &[u8]) -> Vec<u8> {
    let mut twos = two.iter().rev();
    let (mut rest, mut borrowed) = (Vec::new(), 0);
    for digit in one.iter().rev() {
        let less = twos.next().unwrap_or(&0) + borrowed;
        borrowed = u8::from(*digit < less);
        rest.push(digit + 10 * borrowed - less);
    }
    rest.reverse();
    without_zeros(rest)
}

fn times(digits: &[u8], by: u8) -> Vec<u8> {
    let (mut product, mut carry) = (Vec::new(), 0);
    for digit in digits.iter().rev() {
        carry += digit * by;
        product.push(carry % 10);
        carry /= 10;
    }
    product.push(carry);
    product.reverse();
    without_zeros(product)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        for (one, two, expected) in [
            ("0.1", "0.2", "0.3"),
            ("3", "-3", "0"),
            ("-0.5", "0.25", "-0.25"),
            ("2e2", "1", "201"),
            ("1e23", "0.5", "100000000000000000000000.5"),
            ("3.3e22", "0.7", "33000000000000000000000.7"),
            ("0.1234567890123456789", "1", "1.12345678901234568"),
            ("0.000000000000000005", "0.000000000000000015", "0.00000000000000002"),
            ("1000", "0.014285714285714285", "1000.01428571428571428"),
            ("1", "1e-330", "1"),
            ("1", "-1e-99999999999999999999", "1"),
            ("1e25", "-1", "9999999999999999999999999"),
            ("0x1p-1", "1", "1.5"),
            ("0", "0x1p-57", "0.00000000000000001"),
            ("1", "0x1p-2000", "1"),
            ("0", "0xffffffffffffffffffff", "1208925819614629174706176"),
            ("0x1.999999999999ap-4", "0", "0.10000000000000001"),
        ] {
            assert_eq!(sum(one.as_bytes(), two.as_bytes()).unwrap(), expected, "{one} {two}");
        }
        let huge = format!("1{}.5", "0".repeat(308));
        assert_eq!(sum(b"1e308", b"0.5").unwrap(), huge);
        for (one, two) in
            [("x", "1"), ("1", " 1"), ("1e309", "1"), ("inf", "1"), ("1e308", "1.7e308"), ("0x", "1")]
        {
            assert!(sum(one.as_bytes(), two.as_bytes()).is_err(), "{one} {two}");
        }
    }
}
