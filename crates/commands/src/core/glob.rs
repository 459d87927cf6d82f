//! Patterns as KEYS, SCAN, PSUBSCRIBE and CONFIG GET have them: `*`, `?`, `[a-z]`, `[^a]`, `\` before what is meant
//! as it is.
//!
//! ```text
//! user:*:[0-9]?     user:  at the beginning     the pattern's parts between its stars,
//!                   :[0-9]?  at the end         those in the middle each where it comes first
//! ```
//!
//! Every part has one length, so that the first place where it fits is as good as any: nothing is tried twice. A
//! part of letters alone is searched for by `memmem`; any other at most so many bytes long step by step, a longer
//! one 64 places of it at once. The cost is the text's length, times one for each 64 bytes of the pattern.

use memchr::memmem;

/// Most bytes of a pattern: a key can be asked for by its name.
pub(crate) const PATTERN_BYTES_MAX: usize = 64 << 10;

/// Most bytes of a part that has others than letters.
const PART_BYTES_MAX: usize = 4096;

/// A part this short is tried at each place of the text.
const TRIED_BYTES_MAX: usize = 16;

/// A pattern is no longer than one may be, nor is one of its parts.
pub(crate) fn is_bounded(pattern: &[u8]) -> bool {
    let mut left = Some(pattern).filter(|pattern| pattern.len() > PART_BYTES_MAX);
    while let Some(rest) = left {
        let part;
        (part, left) = Part::first(rest, false);
        if !part.plain && part.pattern.len() > PART_BYTES_MAX {
            return false;
        }
    }
    pattern.len() <= PATTERN_BYTES_MAX
}

/// What matching a text of one byte costs beside what it costs with a short pattern.
pub(crate) fn weight(pattern: &[u8]) -> usize {
    1 + pattern.len().min(PART_BYTES_MAX) / 64
}

/// True if the whole `text` is as `pattern` says.
pub(crate) fn matches(pattern: &[u8], text: &[u8], any_case: bool) -> bool {
    // In Redis not even `**` matches nothing; that `*` does is for those who ask to know.
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut part, mut left) = Part::first(pattern, any_case);
    if part.bytes > text.len() || !part.fits(text) {
        return false;
    }
    let Some(_) = left else { return part.bytes == text.len() };
    let mut text = &text[part.bytes..];
    while let Some(pattern) = left {
        (part, left) = Part::first(pattern, any_case);
        if part.bytes > text.len() {
            return false;
        }
        if left.is_none() {
            // The last one is at the end.
            return part.fits(&text[text.len() - part.bytes..]);
        }
        let Some(at) = part.find(text) else { return false };
        text = &text[at + part.bytes..];
    }
    true
}

/// What a pattern says between two stars.
#[derive(Clone, Copy)]
struct Part<'p> {
    pattern: &'p [u8],
    /// Bytes of the text that it stands for.
    bytes: usize,
    /// Each byte of it stands for itself.
    plain: bool,
    any_case: bool,
}

/// What one byte of the text may be.
#[derive(Clone, Copy)]
enum One<'p> {
    Any,
    Byte(u8),
    /// Inside of the brackets.
    Class(&'p [u8]),
}

impl<'p> Part<'p> {
    /// The part in front of the first star, and what is behind the star; none if there is no star.
    fn first(pattern: &'p [u8], any_case: bool) -> (Part<'p>, Option<&'p [u8]>) {
        let (mut at, mut bytes, mut plain) = (0, 0, !any_case);
        loop {
            if pattern.get(at) == Some(&b'*') {
                let part = Part { pattern: &pattern[..at], bytes, plain, any_case };
                return (part, Some(&pattern[at + 1..]));
            }
            let Some((one, length)) = next(&pattern[at..]) else {
                return (Part { pattern, bytes, plain, any_case }, None);
            };
            plain &= length == 1 && matches!(one, One::Byte(_));
            at += length;
            bytes += 1;
        }
    }

    fn ones(self) -> impl Iterator<Item = One<'p>> {
        let mut rest = self.pattern;
        std::iter::from_fn(move || {
            let (one, length) = next(rest)?;
            rest = &rest[length..];
            Some(one)
        })
    }

    /// The text, which is long enough, begins as the part says.
    fn fits(self, text: &[u8]) -> bool {
        if self.plain {
            return text.starts_with(self.pattern);
        }
        self.ones().zip(text).all(|(one, &byte)| one.is(byte, self.any_case))
    }

    /// Where in the text it fits first.
    fn find(self, text: &[u8]) -> Option<usize> {
        if self.bytes == 0 {
            Some(0)
        } else if self.plain {
            memmem::find(text, self.pattern)
        } else if self.bytes <= TRIED_BYTES_MAX {
            (0..=text.len() - self.bytes).find(|&at| self.fits(&text[at..]))
        } else {
            self.find_long(text)
        }
    }

    /// The same: bit n of `state` says that the last n + 1 bytes of the text are the part's first (Shift-And).
    fn find_long(self, text: &[u8]) -> Option<usize> {
        let words = self.bytes.div_ceil(64);
        // For each byte, where in the part it may be.
        let mut places = vec![0u64; 256 * words];
        for (n, one) in self.ones().enumerate() {
            for byte in (0..=255u8).filter(|&byte| one.is(byte, self.any_case)) {
                places[usize::from(byte) * words + n / 64] |= 1 << (n % 64);
            }
        }
        let last = 1 << ((self.bytes - 1) % 64);
        let mut state = vec![0u64; words];
        for (at, &byte) in text.iter().enumerate() {
            let mut carried = 1;
            let places = &places[usize::from(byte) * words..][..words];
            for (word, places) in state.iter_mut().zip(places) {
                let shifted = *word << 1 | carried;
                carried = *word >> 63;
                *word = shifted & places;
            }
            if state[words - 1] & last != 0 {
                return Some(at + 1 - self.bytes);
            }
        }
        None
    }
}

/// What a pattern's first byte of text is to be, and the bytes of the pattern that say so.
fn next(pattern: &[u8]) -> Option<(One<'_>, usize)> {
    Some(match pattern {
        [] => return None,
        [b'?', ..] => (One::Any, 1),
        [b'[', rest @ ..] => {
            let (_, bytes) = class(rest, 0, false);
            (One::Class(&rest[..bytes]), 1 + bytes)
        }
        [b'\\', escaped, ..] => (One::Byte(*escaped), 2),
        [byte, ..] => (One::Byte(*byte), 1),
    })
}

impl One<'_> {
    #[inline]
    fn is(self, byte: u8, any_case: bool) -> bool {
        match self {
            One::Any => true,
            One::Byte(one) => same(one, byte, any_case),
            One::Class(inside) => class(inside, byte, any_case).0,
        }
    }
}

fn same(one: u8, other: u8, any_case: bool) -> bool {
    one == other || any_case && one.eq_ignore_ascii_case(&other)
}

/// A class behind its bracket: whether the byte is in it, and how long it is, with the bracket that ends it; one
/// without ends with the pattern.
fn class(class: &[u8], byte: u8, any_case: bool) -> (bool, usize) {
    let fold = |b: u8| if any_case { b.to_ascii_lowercase() } else { b };
    let not = class.first() == Some(&b'^');
    let mut at = usize::from(not);
    let mut held = false;
    loop {
        match class[at..] {
            [b'\\', escaped, ..] => {
                held |= same(escaped, byte, any_case);
                at += 2;
            }
            [b']', ..] => return (held != not, at + 1),
            [] => return (held != not, at),
            [from, b'-', to, ..] => {
                let (from, to) = (fold(from.min(to)), fold(from.max(to)));
                held |= (from..=to).contains(&fold(byte));
                at += 3;
            }
            [literal, ..] => {
                held |= same(literal, byte, any_case);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    #[test]
    fn patterns_match_as_redis_matches_them() {
        for (pattern, text) in [
            ("", ""),
            ("*", "abc"),
            ("h?llo", "hello"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-c]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("a\\*b", "a*b"),
            ("*a*b*c*", "xxaxxbxxcxx"),
            ("[\\]]", "]"),
            ("[*]", "*"),
            ("a**b", "ab"),
            ("[abc", "b"),
            ("a\\", "a\\"),
            ("*ab?b", "abbabab"),
        ] {
            assert!(matches(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            // As in Redis, where KEYS * and SCAN of all keys do not ask.
            ("*", ""),
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("h[^a-c]llo", "hbllo"),
            ("a\\*b", "axb"),
            ("*a", "ab"),
            ("a*a", "a"),
            ("*ab*ba*", "xabax"),
            ("[a-c]", "d"),
            ("ABC", "abc"),
        ] {
            assert!(!matches(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}");
        }
        assert!(matches(b"A[B-C]?", b"abz", true));
    }

    /// The meaning itself: a star stands for nothing, or for a byte and a star.
    fn plainly(pattern: &[u8], text: &[u8], any_case: bool) -> bool {
        match (pattern, next(pattern)) {
            ([b'*', rest @ ..], _) => {
                plainly(rest, text, any_case) || !text.is_empty() && plainly(pattern, &text[1..], any_case)
            }
            (_, None) => text.is_empty(),
            (_, Some((one, bytes))) => {
                !text.is_empty()
                    && one.is(text[0], any_case)
                    && plainly(&pattern[bytes..], &text[1..], any_case)
            }
        }
    }

    proptest! {
        #[test]
        fn parts_that_are_searched_for_mean_what_the_pattern_means(
            pattern in "[ab*?\\[\\]^\\\\-]{0,12}",
            middle in "[ab?]{0,150}",
            text in "[abAB]{1,14}",
            around in "[ab]{0,80}",
            any_case: bool,
        ) {
            let is = matches(pattern.as_bytes(), text.as_bytes(), any_case);
            prop_assert_eq!(is, plainly(pattern.as_bytes(), text.as_bytes(), any_case));
            // A long part is found where trying each place finds it.
            let text = [around.as_str(), &middle.replace('?', "a"), &around].concat();
            let (part, _) = Part::first(middle.as_bytes(), any_case);
            let tried = (0..=text.len() - part.bytes).find(|&at| part.fits(&text.as_bytes()[at..]));
            prop_assert_eq!(part.find(text.as_bytes()), tried);
        }
    }

    #[test]
    fn no_pattern_takes_long() {
        let text = vec![b'a'; 64 << 10];
        let most = PART_BYTES_MAX;
        for pattern in [
            "a*".repeat(most / 2 - 1) + "b",
            "*".to_owned() + &"a".repeat(most - 3) + "b*",
            "*".to_owned() + &"?".repeat(most - 3) + "b*",
            "*".to_owned() + &"[a]".repeat(most / 3 - 2) + "b*",
            "*".to_owned() + &"a?".repeat(7) + "b*c",
            "*a?b".repeat(most / 4),
            "*".to_owned() + &"[^b]".repeat(most / 4 - 2) + "b*",
        ] {
            assert!(pattern.len() <= most && is_bounded(pattern.as_bytes()));
            let started = Instant::now();
            assert!(!matches(pattern.as_bytes(), &text, false));
            let took = started.elapsed();
            assert!(took < Duration::from_millis(500), "{took:?} for {:?}", &pattern[..8]);
        }
    }
}
