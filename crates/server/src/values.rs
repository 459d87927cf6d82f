//! Values of options as they are written: whole numbers in a range, yes or no, bytes with a suffix, files of secrets.
//!
//! An error is a reason without the option's name. Of passwords nothing is kept but their digests: the text of their
//! files is overwritten behind them.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use larder_commands::{Digest, SECRET_BYTES_MAX};
use zeroize::Zeroizing;

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

/// Reads `yes` or `no`.
pub(crate) fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("yes or no".into()),
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

/// Reads users and their passwords from a file: `user:password` lines, `#` comments. A user may have several.
pub(crate) fn users(path: &str) -> Result<Vec<(String, Digest)>, String> {
    let text = secret_text(path)?;
    let mut users = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let (user, password) = line.split_once(':').ok_or("lines are user:password")?;
        if user.is_empty() || password.is_empty() {
            return Err("lines are user:password, and neither is empty".into());
        }
        if user.len() > SECRET_BYTES_MAX || password.len() > SECRET_BYTES_MAX {
            return Err(format!("a user and a password have {SECRET_BYTES_MAX} bytes at most"));
        }
        if users.len() == USERS_MAX {
            return Err(format!("{USERS_MAX} lines at most"));
        }
        users.push((user.to_owned(), password.into()));
    }
    if users.is_empty() {
        return Err("the file names no user".into());
    }
    Ok(users)
}

/// Lines that have passwords: nothing shows them, and they are overwritten when they are dropped.
#[derive(Clone, Default)]
pub struct SecretText(Zeroizing<String>);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(redacted)")
    }
}

impl SecretText {
    /// The text of a file.
    pub(crate) fn of_file(path: &str) -> Result<SecretText, String> {
        secret_text(path).map(SecretText)
    }

    /// Adds these parts. What was there is overwritten where it was.
    pub(crate) fn add(&mut self, parts: &[&str]) {
        let bytes = self.0.len() + parts.iter().map(|part| part.len()).sum::<usize>();
        let mut text = Zeroizing::new(String::with_capacity(bytes));
        text.push_str(&self.0);
        parts.iter().for_each(|part| text.push_str(part));
        self.0 = text;
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Nothing was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a password from a file: its one line.
pub(crate) fn password(path: &str) -> Result<Digest, String> {
    let text = secret_text(path)?;
    let mut lines = text.lines();
    match (lines.next(), lines.next()) {
        (Some(password), None) if password.len() > SECRET_BYTES_MAX => {
            Err(format!("a password has {SECRET_BYTES_MAX} bytes at most"))
        }
        (Some(password), None) if !password.is_empty() => Ok(password.into()),
        (Some(_), Some(_)) => Err("the file has more than one line".into()),
        _ => Err("the file has no password".into()),
    }
}

/// Most users of all files, and lines of one: at each login all of them are compared.
pub(crate) const USERS_MAX: usize = 4096;

/// The text of a file of secrets, in memory that is overwritten when it is dropped: of the file's size from the start, so
/// that no shorter copy was left behind while it grew.
fn secret_text(path: &str) -> Result<Zeroizing<String>, String> {
    let read = || -> std::io::Result<String> {
        let mut file = std::fs::File::open(path)?;
        let bytes = file.metadata()?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        let mut text = String::with_capacity(bytes as usize + 1);
        file.read_to_string(&mut text)?;
        Ok(text)
    };
    read().map(Zeroizing::new).map_err(|error| error.to_string())
}

/// Opens a file to be read. Something else, which might be waited for, is an error.
///
/// # Errors
/// If it cannot be opened, or is no file.
pub(crate) fn open_file(path: &str) -> std::io::Result<std::fs::File> {
    // Checked before it is opened: something that is no file may be waited for.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    std::fs::File::open(path)
}

/// Replaces the contents of a file at once: a reader meanwhile, or after a crash, has the old ones or the new ones.
///
/// # Errors
/// If it cannot be written: then it has what it had, unless it was only the folder that could not be synced.
pub(crate) fn replace_file(path: &Path, text: &[u8]) -> std::io::Result<()> {
    static WRITING: Mutex<()> = Mutex::new(());
    let _alone = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(name);
    let write = || -> std::io::Result<()> {
        // Removes what another process of this number has left. What is there afterwards is another program's, or a link, and is
        // not followed.
        let _ = std::fs::remove_file(&beside);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&beside)?;
        if let Ok(there) = std::fs::metadata(path) {
            // What the file's owner may do with it stays; others read no digests, whatever the file was made with. The
            // server reads it again, as its owner.
            file.set_permissions(Permissions::from_mode(there.permissions().mode() & 0o600 | 0o400))?;
        }
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    let written = write();
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// Most bytes of a file of secrets.
const FILE_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use larder_commands::Access;

    /// Whether a server whose users are those of such a file admits this one.
    fn admitted(text: &str, user: &str, password: &str) -> Result<bool, String> {
        let path = std::env::temp_dir().join(format!("larder-users-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let found = users(path.to_str().unwrap());
        std::fs::remove_file(&path).unwrap();
        Ok(Access::new(None, &found?).admits(user.as_bytes(), password.as_bytes()))
    }

    #[test]
    fn a_file_is_replaced_whole_by_several_at_once_and_no_link_is_followed() {
        let folder = std::env::temp_dir().join(format!("larder-replaced-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, other) = (folder.join("users"), folder.join("other"));
        std::fs::write(&other, "untouched").unwrap();
        let beside = folder.join(format!("users.{}.tmp", std::process::id()));
        std::os::unix::fs::symlink(&other, &beside).unwrap();
        std::thread::scope(|scope| {
            for n in 1..=4_u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..20 {
                        replace_file(path, &vec![n; usize::from(n) * 50_000]).unwrap();
                    }
                });
            }
        });
        let text = std::fs::read(&path).unwrap();
        assert!(text.len() == usize::from(text[0]) * 50_000 && text.iter().all(|byte| *byte == text[0]));
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "untouched");
        assert!(!beside.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_is_replaced_is_its_owners_alone() {
        let path = std::env::temp_dir().join(format!("larder-mode-{}", std::process::id()));
        for (mode, then) in [(0o644, 0o600), (0o600, 0o600), (0o440, 0o400), (0o666, 0o600), (0o060, 0o400)] {
            let _ = std::fs::remove_file(&path);
            std::fs::write(&path, "before").unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            replace_file(&path, b"behind").unwrap();
            let found = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(found, then, "{mode:o}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn users_are_lines_and_neither_part_is_empty() {
        let text = "# those of the shop\n\nshop:s3:cret \nshop:next\r\nother:x";
        for (user, password, admits) in [
            ("shop", "s3:cret ", true),
            ("shop", "next", true),
            ("other", "x", true),
            ("shop", "x", false),
            ("# those of the shop", "", false),
        ] {
            assert_eq!(admitted(text, user, password), Ok(admits), "{user} {password}");
        }
        for bad in ["", "# none\n", "user", "user:", ":password", "a:b\nuser\n"] {
            assert!(admitted(bad, "user", "").is_err(), "{bad:?}");
        }
        for (lines, is_right) in [(USERS_MAX - 1, true), (USERS_MAX, true), (USERS_MAX + 1, false)] {
            assert_eq!(admitted(&"user:x\n".repeat(lines), "user", "x").is_ok(), is_right, "{lines}");
        }
        for bytes in [SECRET_BYTES_MAX, SECRET_BYTES_MAX + 1] {
            let long = "p".repeat(bytes);
            for text in [format!("user:{long}"), format!("{long}:word")] {
                assert_eq!(admitted(&text, "user", &long).is_ok(), bytes == SECRET_BYTES_MAX, "{bytes}");
            }
        }
    }

    #[test]
    fn a_password_is_the_one_line_of_its_file() {
        let path = std::env::temp_dir().join(format!("larder-password-{}", std::process::id()));
        let said = |text: &str| {
            std::fs::write(&path, text).unwrap();
            password(path.to_str().unwrap())
        };
        for text in ["a b:#c", "a b:#c\n", "a b:#c\r\n"] {
            let access = Access::new(Some(&said(text).unwrap()), &[]);
            assert!(access.admits(b"default", b"a b:#c"), "{text:?}");
        }
        for text in ["", "\n", "\nx", "x\ny", "x\n\n"] {
            assert!(said(text).is_err(), "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(password(path.to_str().unwrap()).is_err());
    }
}
