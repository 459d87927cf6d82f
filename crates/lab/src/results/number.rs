//! Numbers for readers.

use super::Estimate;

/// A figure with about four digits: 0.0512, 2.71, 882,114.
pub fn text(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if value.fract() == 0.0 && size < 1e15 || size >= 1000.0 {
        grouped(value)
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else if size >= 0.001 {
        format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.1e}")
    }
}

/// A figure with about three digits, as short as it can be read: 0.066, 2.98M, 29.6k.
pub fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 999_500.0 => (value / 1e6, "M"),
        size if size >= 9_995.0 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let size = value.abs();
    let digits = match () {
        _ if value.fract() == 0.0 || size >= 99.95 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.digits$}{unit}")
}

/// A whole number with commas between thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A figure with the ends of its interval: "104 (90 … 110)".
pub fn estimate(estimate: &Estimate) -> String {
    match estimate.interval {
        Some([low, high]) if low != high => {
            format!("{} ({} … {})", text(estimate.median), text(low), text(high))
        }
        _ => text(estimate.median),
    }
}

/// A ratio as it is usually written: 2.31, or 1/64.2.
pub fn ratio(value: f64) -> String {
    if value > 0.0 && value < 0.5 { format!("1/{}", text(1.0 / value)) } else { format!("{value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers_keep_three_digits() {
        for (value, words) in [
            (0.0662, "0.066"),
            (2.741, "2.74"),
            (24.43, "24.4"),
            (9_000.0, "9000"),
            (29_550.0, "29.6k"),
            (2_980_026.0, "2.98M"),
            (999_900.0, "1.00M"),
            (0.0, "0"),
        ] {
            assert_eq!(short(value), words);
        }
    }

    #[test]
    fn numbers_keep_about_four_digits() {
        let shown: Vec<String> =
            [0.0, 0.5, 0.99999, 0.05123, 2.71001, 27.1001, 271.001, 882114.4, -1234567.0, 12.0, 2e-5]
                .map(text)
                .into();
        assert_eq!(
            shown,
            ["0", "0.5", "1", "0.0512", "2.71", "27.1", "271", "882,114", "-1,234,567", "12", "2.0e-5"]
        );
        assert_eq!((ratio(0.0156), ratio(1.03)), ("1/64.1".to_owned(), "1.030".to_owned()));
    }
}
