//! What a word of a command may be: an option, or a number.

use larder_protocol::resp::parse_integer;

use super::fail::Fail;

/// The word is this option, in any case.
pub(crate) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// A 64-bit number.
///
/// # Errors
/// It is none.
pub(crate) fn integer(word: &[u8]) -> Result<i64, Fail> {
    parse_integer(word).ok_or(Fail::NOT_AN_INTEGER)
}
