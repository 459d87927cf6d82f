//! Keys of a line of keys, one by one: such a line may have any length.

use super::KEY_BYTES_MAX;
use crate::scan::token_end;

/// What [`next_key`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStep<'a> {
    /// A key, and the bytes up to its end. With `last` they include the line's end.
    Key {
        /// The key, at most [`KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
        /// Bytes read.
        bytes: usize,
        /// The line ends here.
        last: bool,
    },
    /// The line ends after this many bytes without another key.
    End(usize),
    /// A key that is too long begins after this many bytes.
    TooLong(usize),
    /// This many bytes are spaces. What follows is an incomplete key.
    Incomplete(usize),
}

/// Reads the next key of a line of keys.
#[inline]
pub fn next_key(input: &[u8]) -> KeyStep<'_> {
    let mut start = 0;
    while input.get(start) == Some(&b' ') {
        start += 1;
    }
    let mut end = start;
    loop {
        end += token_end(&input[end..]);
        match input.get(end) {
            None if end - start > KEY_BYTES_MAX => return KeyStep::TooLong(start),
            None => return KeyStep::Incomplete(start),
            Some(b' ') => return spaced_key(input, start, end),
            Some(b'\r') if input.get(end + 1) == Some(&b'\n') => return last_key(input, start, end, 2),
            Some(b'\r') if end + 1 == input.len() => return KeyStep::Incomplete(start),
            Some(b'\n') => return last_key(input, start, end, 1),
            Some(_) => end += 1,
        }
    }
}

/// True if one of `keys`, the text of a line behind a key with or without its end, is too long. Looks at about one byte in ten.
#[inline]
pub fn holds_long_key(keys: &[u8]) -> bool {
    let keys = keys.strip_suffix(b"\r").unwrap_or(keys);
    let mut start = 0;
    while let Some(window) = keys.get(start..=start + KEY_BYTES_MAX) {
        match memchr::memrchr(b' ', window) {
            Some(space) => start += space + 1,
            None => return true,
        }
    }
    false
}

#[inline]
fn last_key(input: &[u8], start: usize, end: usize, line_end: usize) -> KeyStep<'_> {
    if end == start {
        KeyStep::End(end + line_end)
    } else if end - start > KEY_BYTES_MAX {
        KeyStep::TooLong(start)
    } else {
        KeyStep::Key { key: &input[start..end], bytes: end + line_end, last: true }
    }
}

/// A key with a space behind it; checks whether only spaces follow.
#[inline]
fn spaced_key(input: &[u8], start: usize, end: usize) -> KeyStep<'_> {
    if end - start > KEY_BYTES_MAX {
        return KeyStep::TooLong(start);
    }
    let mut after = end + 1;
    while input.get(after) == Some(&b' ') {
        after += 1;
    }
    let line_end = match &input[after..] {
        [b'\n', ..] => 1,
        [b'\r', b'\n', ..] => 2,
        _ => return KeyStep::Key { key: &input[start..end], bytes: end, last: false },
    };
    KeyStep::Key { key: &input[start..end], bytes: after + line_end, last: true }
}
