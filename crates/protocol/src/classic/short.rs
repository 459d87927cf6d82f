//! The forms that make up nearly all traffic, read in as few steps as possible. Anything unusual is left to
//! [`decode`](super::decode).

use super::{KEY_BYTES_MAX, Store, StoreVerb};
use crate::scan::token_end;

/// Bytes of `get `.
pub const GET_BYTES: usize = 4;

/// `get ` with a key right behind it: the rest of the line need not be looked at before its keys are read.
#[inline]
pub fn starts_get(input: &[u8]) -> bool {
    matches!(input.first_chunk::<5>(), Some([b'g', b'e', b't', b' ', key]) if *key > b' ')
}

/// `get <key>\r\n` with single spaces: the key, and the bytes of the line; `None` for anything else.
#[inline]
pub fn decode_get(input: &[u8]) -> Option<(&[u8], usize)> {
    let rest = input.strip_prefix(b"get ")?;
    let end = token_end(rest);
    if end == 0 || end > KEY_BYTES_MAX || rest.get(end..end + 2) != Some(b"\r\n") {
        return None;
    }
    Some((&rest[..end], GET_BYTES + end + 2))
}

/// `set <key> <digits> <digits> <digits>\r\n` with single spaces, and the bytes of the line; `None` for anything else, which
/// [`decode`](super::decode) then reads.
#[inline]
pub fn decode_set(input: &[u8]) -> Option<(Store<'_>, usize)> {
    let (b"set ", rest) = input.split_first_chunk::<4>()? else { return None };
    let end = token_end(rest);
    if end == 0 || end > KEY_BYTES_MAX {
        return None;
    }
    let (key, numbers) = rest.split_at(end);
    let mut at = 0;
    // Most stores have neither flags nor exptime.
    let (flags, exptime) = if numbers.starts_with(b" 0 0") {
        at = 4;
        (0, 0)
    } else {
        (spaced_number(numbers, &mut at)?, spaced_number(numbers, &mut at)?)
    };
    let value_bytes = spaced_number(numbers, &mut at)?;
    if !matches!(numbers.get(at..), Some([b'\r', b'\n', ..])) {
        return None;
    }
    let store = Store {
        verb: StoreVerb::Set,
        noreply: false,
        flags,
        exptime: exptime as i32,
        value_bytes,
        cas: 0,
        key,
    };
    Some((store, 4 + end + at + 2))
}

/// A space and one to nine digits at `at`, which moves past them. One digit is the usual case.
#[inline]
pub(crate) fn spaced_number(text: &[u8], at: &mut usize) -> Option<u32> {
    let [b' ', first, second, ..] = text.get(*at..)? else { return None };
    let (first, second) = (first.wrapping_sub(b'0'), second.wrapping_sub(b'0'));
    if first <= 9 && second > 9 {
        *at += 2;
        return Some(u32::from(first));
    }
    *at += 1;
    short_number(text, at)
}

/// One to nine digits at `at`, which moves past them.
#[inline]
pub(crate) fn short_number(text: &[u8], at: &mut usize) -> Option<u32> {
    let mut n = 0u32;
    let start = *at;
    while let Some(&byte) = text.get(*at) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        if *at - start == 9 {
            return None;
        }
        n = n * 10 + u32::from(digit);
        *at += 1;
    }
    (*at > start).then_some(n)
}
