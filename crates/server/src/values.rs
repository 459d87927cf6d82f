//! Values of options as they are written: whole numbers in a range, bytes with a suffix, a file of users.
//!
//! An error is a reason without the option's name.

/// Reads a whole number in a range.
pub(crate) fn number<T>(text: &str, least: T, most: T) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    match text.parse::<T>() {
        Ok(value) if value >= least && value <= most => Ok(value),
        _ => Err(format!("a whole number from {least} to {most}")),
    }
}

/// Reads bytes with an optional suffix k, m or g.
pub(crate) fn bytes(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let value = digits.parse::<u64>().ok().and_then(|value| value.checked_mul(1 << shift));
    match value {
        Some(value) if value >= least && value <= most => Ok(value),
        _ => Err(format!("bytes from {} to {}", short(least), short(most))),
    }
}

fn short(bytes: u64) -> String {
    for (shift, suffix) in [(30, 'g'), (20, 'm'), (10, 'k')] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Reads users and their passwords from a file: `user:password` lines, `#` comments.
pub(crate) fn users(path: &str) -> Result<Vec<(String, String)>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut users = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let (user, password) = line.split_once(':').ok_or("lines are user:password")?;
        users.push((user.to_owned(), password.to_owned()));
    }
    if users.is_empty() {
        return Err("the file names no user".into());
    }
    Ok(users)
}
