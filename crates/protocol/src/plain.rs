//! Plain requests in a row: nearly all of a pipeline, read in as few steps as possible.
//!
//! ```text
//! get <key> <key> …\r\n                        single spaces, the line's end in sight
//! set <key> <flags> <exptime> <bytes>\r\n<data>\r\n   all of it there
//! incr <key> <delta>\r\n                       mg <key> v\r\n
//! ms <key> <bytes>\r\n<data>\r\n
//! ```
//!
//! Anything unusual ends the row, and is left to [`crate::classic::decode`].

use std::hint::black_box;

use crate::classic::{KEY_BYTES_MAX, spaced_number};
use crate::scan::{WINDOW, line_feed, token_end, token_end_within};

/// A name, a short key, and what stands behind it up to a value.
const SHORT: usize = 4 + WINDOW + 8;
/// A short `set` at its longest: numbers, value and line ends behind the key.
const SHORT_SET: usize = 4 + WINDOW + 9 + 99 + 2;
/// Most that a plain `incr` adds.
const DELTA_MAX: u64 = 1 << 32;

/// Plain requests, from one place of the input on.
#[derive(Clone, Debug)]
pub struct PlainLines<'a> {
    input: &'a [u8],
    at: usize,
    /// Where the line of the next key begins, unless that key is the line's first.
    line: Option<usize>,
    lines_left: u32,
    value_bytes_max: usize,
    pace: Pace,
}

/// The length of the previous request, which is most often that of the next one, too.
///
/// Where a request begins depends on where the previous one ended, so a processor cannot begin to read it before it has
/// understood the previous one. With a guess it can: `step` returns its argument, but if the guess is right, the processor knows
/// the result before the argument.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace(usize);

impl Pace {
    /// Returns `bytes`, after which the next request begins.
    #[inline(always)]
    pub fn step(&mut self, bytes: usize) -> usize {
        if bytes == self.0 {
            // The compiler must not know that this is `bytes`.
            return black_box(self.0);
        }
        self.0 = bytes;
        bytes
    }
}

/// One key of a plain request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Where the key begins, or its line if the key is the first.
    pub at: usize,
    /// Its place in its line.
    pub part: Part,
    /// What the request asks of it.
    pub ask: Ask<'a>,
}

/// The place of a key in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The only key.
    Whole,
    /// The last of several.
    Last,
    /// The first of several.
    First,
    /// Neither first nor last.
    Inner,
}

impl Part {
    /// The part for a key that is the first, the last, both or neither.
    #[inline(always)]
    fn of(first: bool, last: bool) -> Part {
        match (first, last) {
            (true, true) => Part::Whole,
            (true, false) => Part::First,
            (false, false) => Part::Inner,
            (false, true) => Part::Last,
        }
    }
    /// A line begins with this key.
    #[inline(always)]
    pub fn is_first(self) -> bool {
        matches!(self, Part::Whole | Part::First)
    }
    /// A line ends with this key.
    #[inline(always)]
    pub fn is_last(self) -> bool {
        matches!(self, Part::Whole | Part::Last)
    }
}

/// What a plain request asks of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// get
    Get,
    /// mg with the flag v
    MetaGet,
    /// set of this value, without flags and exptime
    Set(&'a [u8]),
    /// set with either
    SetWith(PlainSet<'a>),
    /// ms without flags, of this value
    MetaSet(&'a [u8]),
    /// incr by this much
    Add(u64),
}

/// What a plain `set` with flags or exptime stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainSet<'a> {
    /// The value.
    pub value: &'a [u8],
    /// Client flags.
    pub flags: u32,
    /// As given, and not negative.
    pub exptime: i32,
}

impl<'a> PlainLines<'a> {
    /// At most `lines_max` lines from `at` on. A value above `value_bytes_max` is not plain.
    pub fn new(input: &'a [u8], at: usize, lines_max: u32, value_bytes_max: usize) -> PlainLines<'a> {
        PlainLines { input, at, line: None, lines_left: lines_max, value_bytes_max, pace: Pace::default() }
    }

    /// Where the first line begins that is not read, or that was found not to be plain.
    pub fn at(&self) -> usize {
        self.line.unwrap_or(self.at)
    }

    /// Lines that may still be read.
    pub fn lines_left(&self) -> u32 {
        self.lines_left
    }

    /// Counts the line that was found not to be plain as unread.
    pub fn give_back(&mut self) {
        self.lines_left += 1;
    }

    /// Some keys of a line are read, not all. If no further key can be read, the line is not plain.
    pub fn is_inside(&self) -> bool {
        self.line.is_some()
    }

    /// The next key and where its line begins, if that line is `get <key>` with a short key and more input behind it: the most
    /// usual request of all. `None` decides nothing: ask [`PlainLines::next`].
    #[inline(always)]
    pub fn next_get(&mut self) -> Option<(&'a [u8], usize)> {
        let (text, key_bytes) = self.short::<SHORT>(b"get ")?;
        let end = 4 + key_bytes;
        if text[end..end + 2] != *b"\r\n" {
            return None;
        }
        let start = self.at;
        self.lines_left -= 1;
        self.at += self.pace.step(end + 2);
        Some((&text[4..end], start))
    }

    /// The next key, where its line begins, and the value, if that line is `set <key> 0 0 <bytes>` with a short key and a value
    /// of up to 99 bytes. `None` decides nothing: ask [`PlainLines::next`].
    #[inline(always)]
    pub fn next_set(&mut self) -> Option<(&'a [u8], usize, &'a [u8])> {
        let (text, key_bytes) = self.short::<SHORT_SET>(b"set ")?;
        let end = 4 + key_bytes;
        let numbers: &[u8; 9] = text[end..].first_chunk()?;
        if numbers[..5] != *b" 0 0 " {
            return None;
        }
        let (value_bytes, data) = match *numbers.last_chunk()? {
            [a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n'] => {
                (usize::from(a - b'0') * 10 + usize::from(b - b'0'), 9)
            }
            [a @ b'0'..=b'9', b'\r', b'\n', _] => (usize::from(a - b'0'), 8),
            _ => return None,
        };
        let start = self.at;
        let after = end + data + value_bytes;
        if value_bytes > self.value_bytes_max || text[after..after + 2] != *b"\r\n" {
            return None;
        }
        self.lines_left -= 1;
        self.at += self.pace.step(after + 2);
        Some((&text[4..end], start, &text[end + data..after]))
    }

    /// The start of a line with this name and a short key, if there are `N` bytes; and the length of the key.
    #[inline(always)]
    fn short<const N: usize>(&self, name: &[u8; 4]) -> Option<(&'a [u8; N], usize)> {
        if self.line.is_some() || self.lines_left == 0 {
            return None;
        }
        let text = self.input.get(self.at..)?.first_chunk::<N>()?;
        if text[..4] != *name {
            return None;
        }
        let key_bytes = token_end_within(text[4..4 + WINDOW].try_into().expect("a window"));
        (key_bytes != 0 && key_bytes != WINDOW).then_some((text, key_bytes))
    }

    /// The next key; `None` at the end, and where anything else begins.
    #[expect(
        clippy::should_implement_trait,
        reason = "`Iterator` would bring methods that make no sense here"
    )]
    #[inline(always)]
    pub fn next(&mut self) -> Option<Plain<'a>> {
        let start = self.at;
        let rest = self.input.get(start..)?;
        let first = self.line.is_none();
        let mut text = rest;
        if first {
            if self.lines_left == 0 {
                return None;
            }
            let (name, behind) = rest.split_first_chunk::<4>()?;
            text = behind;
            if name != b"get " {
                return match name {
                    b"set " => self.set(start, text),
                    [b'm', b'g', b' ', _] => self.meta_get(start, &rest[3..]),
                    [b'm', b's', b' ', _] => self.meta_set(start, &rest[3..]),
                    b"incr" => self.add(start, text),
                    _ => None,
                };
            }
        }
        let (key, end) = plain_key(text)?;
        let key_at = self.input.len() - text.len();
        let last = end == *b"\r\n";
        if last {
            self.lines_left -= u32::from(first);
            self.line = None;
            self.at += self.pace.step(key_at + key.len() + 2 - start);
        } else {
            // Another key follows.
            if end[0] != b' ' || end[1] <= b' ' {
                return None;
            }
            if first {
                line_feed(text)?;
                self.lines_left -= 1;
                self.line = Some(start);
            }
            self.at += self.pace.step(key_at + key.len() + 1 - start);
        }
        Some(Plain { key, at: start, part: Part::of(first, last), ask: Ask::Get })
    }

    /// The rest of a `set`.
    #[inline(always)]
    fn set(&mut self, start: usize, text: &'a [u8]) -> Option<Plain<'a>> {
        let (key, _) = plain_key(text)?;
        let numbers = &text[key.len()..];
        // Most have neither flags nor exptime.
        if let Some(numbers) = numbers.strip_prefix(b" 0 0 ") {
            let (value, rest) = self.block(numbers)?;
            return Some(self.alone(key, start, rest, Ask::Set(value)));
        }
        let mut at = 0;
        let flags = spaced_number(numbers, &mut at)?;
        let exptime = spaced_number(numbers, &mut at)? as i32;
        let (value, rest) = self.block(numbers[at..].strip_prefix(b" ")?)?;
        Some(self.alone(key, start, rest, Ask::SetWith(PlainSet { value, flags, exptime })))
    }

    /// The rest of an `mg`.
    #[inline(always)]
    fn meta_get(&mut self, start: usize, text: &'a [u8]) -> Option<Plain<'a>> {
        let (key, _) = plain_key(text)?;
        let rest = text[key.len()..].strip_prefix(b" v\r\n")?;
        Some(self.alone(key, start, rest, Ask::MetaGet))
    }

    /// The rest of an `ms`.
    #[inline(always)]
    fn meta_set(&mut self, start: usize, text: &'a [u8]) -> Option<Plain<'a>> {
        let (key, end) = plain_key(text)?;
        if end[0] != b' ' {
            return None;
        }
        let (value, rest) = self.block(&text[key.len() + 1..])?;
        Some(self.alone(key, start, rest, Ask::MetaSet(value)))
    }

    /// The rest of an `incr`.
    #[inline(always)]
    fn add(&mut self, start: usize, text: &'a [u8]) -> Option<Plain<'a>> {
        let (key, end) = plain_key(text.strip_prefix(b" ")?)?;
        if end[0] != b' ' {
            return None;
        }
        let (delta, rest) = number(&text[key.len() + 2..], DELTA_MAX)?;
        Some(self.alone(key, start, rest, Ask::Add(delta)))
    }

    /// Ends a line of one key.
    #[inline(always)]
    fn alone(&mut self, key: &'a [u8], start: usize, rest: &[u8], ask: Ask<'a>) -> Plain<'a> {
        self.lines_left -= 1;
        self.at += self.pace.step(self.input.len() - rest.len() - start);
        Plain { key, at: start, part: Part::Whole, ask }
    }

    /// `<bytes>\r\n<data>\r\n`, and what follows it.
    #[inline(always)]
    fn block(&self, text: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let (value_bytes, block) = number(text, self.value_bytes_max as u64)?;
        let (value, rest) = block.split_at_checked(value_bytes as usize)?;
        Some((value, rest.strip_prefix(b"\r\n")?))
    }
}

/// Digits of a number up to `max`, a line end, and what follows it.
#[inline(always)]
fn number(text: &[u8], max: u64) -> Option<(u64, &[u8])> {
    let (mut n, mut at) = (0, 0);
    loop {
        let digit = text.get(at)?.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        n = n * 10 + u64::from(digit);
        if n > max {
            return None;
        }
        at += 1;
    }
    let rest = text[at..].strip_prefix(b"\r\n")?;
    (at > 0).then_some((n, rest))
}

/// A key and the two bytes behind it.
#[inline(always)]
fn plain_key(text: &[u8]) -> Option<(&[u8], [u8; 2])> {
    // Nearly every key is short, with more of the pipeline behind it.
    if let Some(window) = text.first_chunk::<{ WINDOW + 2 }>() {
        let end = token_end_within(window.first_chunk()?);
        if end < WINDOW {
            return (end > 0).then(|| (&window[..end], [window[end], window[end + 1]]));
        }
    }
    let end = token_end(text);
    let after = *text.get(end..)?.first_chunk()?;
    (end > 0 && end <= KEY_BYTES_MAX).then(|| (&text[..end], after))
}

#[cfg(test)]
mod tests;
