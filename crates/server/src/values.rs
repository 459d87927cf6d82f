//! Values of options as they are written: whole numbers in a range, bytes with a suffix, files of secrets.
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

/// Reads a password from a file: its one line.
pub(crate) fn password(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut lines = text.lines();
    match (lines.next(), lines.next()) {
        (Some(password), None) if !password.is_empty() => Ok(password.to_owned()),
        (Some(_), Some(_)) => Err("the file has more than one line".into()),
        _ => Err("the file has no password".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_one_line_of_its_file() {
        let path = std::env::temp_dir().join(format!("larder-password-{}", std::process::id()));
        let said = |text: &str| {
            std::fs::write(&path, text).unwrap();
            password(path.to_str().unwrap())
        };
        for text in ["a b:#c", "a b:#c\n", "a b:#c\r\n"] {
            assert_eq!(said(text).as_deref(), Ok("a b:#c"));
        }
        for text in ["", "\n", "\nx", "x\ny", "x\n\n"] {
            assert!(said(text).is_err(), "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(password(path.to_str().unwrap()).is_err());
    }
}
