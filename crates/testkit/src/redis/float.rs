//! INCRBYFLOAT of the [`Model`](super::model::Model): decimals are added as they are written; numbers
//! that need more than 17 places or 21 digits as the machine adds. Hexadecimal ones are decimals too, written otherwise.

use super::words::Fail;

const PLACES: i32 = 17;
const NO_FLOAT: &str = "ERR value is not a valid float";

/// A number as it was written.
enum Number {
    /// In units of the last place.
    Exact(i128),
    Near(f64),
}

pub(super) fn sum(one: &[u8], two: &[u8]) -> Result<String, Fail> {
    let (one, two) = (read(one)?, read(two)?);
    if let (Number::Exact(one), Number::Exact(two)) = (&one, &two)
        && let Some(sum) = one.checked_add(*two)
    {
        let digits = format!("{:0>18}", sum.unsigned_abs());
        let (whole, places) = digits.split_at(digits.len() - PLACES as usize);
        let sign = if sum < 0 { "-" } else { "" };
        return Ok(short(&format!("{sign}{whole}.{places}")));
    }
    let sum = near(&one) + near(&two);
    if !sum.is_finite() {
        return Fail::of("ERR increment would produce NaN or Infinity");
    }
    match short(&format!("{sum:.17}")).as_str() {
        "-0" => Ok("0".into()),
        text => Ok(text.into()),
    }
}

fn near(number: &Number) -> f64 {
    match number {
        // What is read once more is what was written.
        Number::Exact(n) => format!("{n}e-{PLACES}").parse().expect("a number"),
        Number::Near(n) => *n,
    }
}

fn short(text: &str) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn read(text: &[u8]) -> Result<Number, Fail> {
    let text = std::str::from_utf8(text).map_err(|_| Fail(NO_FLOAT.into()))?.to_ascii_lowercase();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(&text)),
    };
    if matches!(digits, "inf" | "infinity") {
        return Ok(Number::Near(f64::from(sign) * f64::INFINITY));
    }
    if let Some(hex) = digits.strip_prefix("0x") {
        return hexadecimal(hex).map(|n| match n {
            Number::Exact(n) => Number::Exact(i128::from(sign) * n),
            Number::Near(n) => Number::Near(f64::from(sign) * n),
        });
    }
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return Fail::of(NO_FLOAT);
    }
    let double: f64 = digits.parse().map_err(|_| Fail(NO_FLOAT.into()))?;
    let (mantissa, exponent) = digits.split_once('e').unwrap_or((digits, "0"));
    let zero = mantissa.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    if !double.is_finite() || double == 0.0 && !zero {
        return Fail::of(NO_FLOAT);
    }
    let (whole, places) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exact = || {
        let exponent: i32 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
        let power = u32::try_from(PLACES + exponent - places.len() as i32).ok()?;
        let n: i128 = format!("{whole}{places}").parse().ok()?;
        Some(sign as i128 * n.checked_mul(10i128.checked_pow(power)?)?)
    };
    Ok(exact().map_or(Number::Near(f64::from(sign) * double), Number::Exact))
}

/// Behind its `0x`: digits that are whole, and fit, are a number exactly.
fn hexadecimal(text: &str) -> Result<Number, Fail> {
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
    let mantissa = u128::from_str_radix(&all, 16).map_err(|_| wrong())?;
    let power = power.parse::<i32>().map_err(|_| wrong())? - 4 * places.len() as i32;
    if mantissa == 0 {
        return Ok(Number::Exact(0));
    }
    let near = mantissa as f64 * f64::powi(2.0, power);
    if !near.is_finite() || near == 0.0 && mantissa > 0 {
        return Err(wrong());
    }
    let exact = || {
        let n = i128::try_from(mantissa).ok()?.checked_mul(10i128.pow(PLACES as u32))?;
        let unit = 1i128.checked_shl(power.unsigned_abs()).filter(|unit| *unit > 0)?;
        if power >= 0 { n.checked_mul(unit) } else { (n % unit == 0).then(|| n / unit) }
    };
    Ok(exact().map_or(Number::Near(near), Number::Exact))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        for (one, two, expected) in
            [("0.1", "0.2", "0.3"), ("3", "-3", "0"), ("-0.5", "0.25", "-0.25"), ("2e2", "1", "201")]
        {
            assert_eq!(sum(one.as_bytes(), two.as_bytes()).unwrap(), expected);
        }
        assert!(sum(b"x", b"1").is_err() && sum(b"1", b" 1").is_err());
    }
}
