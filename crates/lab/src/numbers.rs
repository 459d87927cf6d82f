//! Numbers with a fraction on the command line: finite, and within sensible limits.

/// Reads a number that is not negative, for clap.
///
/// # Errors
/// What is wrong with the text.
pub fn not_negative(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    match number.is_finite() && number >= 0.0 {
        true => Ok(number),
        false => Err("expected a number that is not negative".to_owned()),
    }
}

/// Reads a number above 0, for clap.
///
/// # Errors
/// What is wrong with the text.
pub fn positive(text: &str) -> Result<f64, String> {
    not_negative(text)
        .ok()
        .filter(|&number| number > 0.0)
        .ok_or_else(|| "expected a number above 0".to_owned())
}

/// Reads a share in percent, for clap.
///
/// # Errors
/// What is wrong with the text.
pub fn percent(text: &str) -> Result<f64, String> {
    not_negative(text)
        .ok()
        .filter(|&number| number <= 100.0)
        .ok_or_else(|| "expected a number from 0 to 100".to_owned())
}

/// Reads a time in seconds, up to a day, for clap.
///
/// # Errors
/// What is wrong with the text.
pub fn seconds(text: &str) -> Result<f64, String> {
    const DAY: f64 = 86_400.0;
    positive(text)
        .ok()
        .filter(|&s| s <= DAY)
        .ok_or_else(|| "expected seconds, above 0, up to a day".to_owned())
}

/// Reads a multiple of the memory, up to a thousand, for clap.
///
/// # Errors
/// What is wrong with the text.
pub fn multiple(text: &str) -> Result<f64, String> {
    positive(text)
        .ok()
        .filter(|&x| x <= 1000.0)
        .ok_or_else(|| "expected a number above 0, up to 1000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_amount_is_refused() {
        assert_eq!((not_negative("0"), positive("0.5")), (Ok(0.0), Ok(0.5)));
        assert_eq!((seconds("86400"), multiple("1000")), (Ok(86_400.0), Ok(1000.0)));
        for bad in ["", "x", "-1", "nan", "inf"] {
            assert!(not_negative(bad).is_err(), "{bad}");
            assert!(positive(bad).is_err() && seconds(bad).is_err() && multiple(bad).is_err(), "{bad}");
        }
        assert!(positive("0").is_err() && seconds("86401").is_err() && multiple("1001").is_err());
    }
}
