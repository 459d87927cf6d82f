//! What a word of a command may be: an option, a number, or a cursor.

use larder_protocol::number::parse_c_u64;
use larder_protocol::resp::parse_integer;

use super::fail::Fail;

/// Whether the word is this option, in any case.
pub(crate) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// Parses a 64-bit number.
///
/// # Errors
/// It is no such number.
pub(crate) fn integer(word: &[u8]) -> Result<i64, Fail> {
    parse_integer(word).ok_or(Fail::NOT_AN_INTEGER)
}

/// Parses a cursor as C does: blanks and a plus in front are skipped.
///
/// # Errors
/// It is no cursor.
pub(crate) fn cursor(word: &[u8]) -> Result<u64, Fail> {
    // C's number ends at a blank behind digits, but a cursor may not.
    let ends = word.last().is_some_and(u8::is_ascii_digit);
    let signs = word.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |last| last + 1);
    let is_one = ends && word[..signs].iter().all(|byte| matches!(byte, b' ' | b'\t'..=b'\r' | b'+'));
    parse_c_u64(word).filter(|_| is_one).ok_or(Fail::of("ERR invalid cursor"))
}
