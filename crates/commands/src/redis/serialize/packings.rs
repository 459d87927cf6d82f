//! The packed forms of small collections in Redis's payloads, read entry by entry. Each entry is checked.
//!
//! ```text
//! listpack  bytes 4 LE │ entries 2 LE (65535: unknown) │ entry … │ 0xff
//!   entry   encoding with the number, or with the length and the string │ back length: bytes of all before, 7 a byte
//! ziplist   bytes 4 LE │ offset of the last entry 4 LE │ entries 2 LE │ entry … │ 0xff
//!   entry   bytes of the one before 1, or 254 and 4 LE │ encoding │ the number or the string
//! intset    bytes of a number 4 LE │ numbers 4 LE │ number …, ascending
//! zipmap    pairs 1 │ pair … │ 0xff
//!   pair    length 1, or 254 and 4 LE │ field │ length │ spare 1 │ value │ spare bytes
//! ```

/// A packed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Listpack,
    Ziplist,
    Intset,
    Zipmap,
}

/// One entry of a packed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packed<'a> {
    Text(&'a [u8]),
    /// The decimal text of a number.
    Number(i64),
}

/// What a cursor reads next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element<'a> {
    Entry(Packed<'a>),
    /// The end, at the right place.
    End,
}

const END: u8 = 0xff;
/// The number of entries if there are so many or more.
const UNKNOWN: u32 = 0xffff;
const LISTPACK_HEAD_BYTES: usize = 6;
const ZIPLIST_HEAD_BYTES: usize = 10;
const INTSET_HEAD_BYTES: usize = 8;
/// Marks a length of a ziplist or zipmap that does not fit into a byte.
const LONG: u8 = 254;

/// A place in a packed string. A cursor keeps no bytes, and is given the same ones each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    packing: Packing,
    at: usize,
    /// Entries that were read.
    entries: u64,
    /// How many entries there are, according to the head.
    told: u32,
    /// Where the last entry of a ziplist began.
    last: usize,
    /// For an intset: bytes of a number, and the number before.
    width: usize,
    before: i64,
}

/// A little-endian number of so many bytes.
fn number(bytes: &[u8]) -> i64 {
    let mut word = [if bytes.last().is_some_and(|high| high & 0x80 != 0) { 0xff } else { 0 }; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(word)
}

/// A number of 32 bits at a place.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half_word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?)))
}

/// Takes so many bytes from a place on; also returns the place behind them.
fn take(bytes: &[u8], at: usize, n: usize) -> Option<(&[u8], usize)> {
    let end = at.checked_add(n)?;
    Some((bytes.get(at..end)?, end))
}

/// Bytes of the back length of a listpack's entry.
fn back_bytes(entry_bytes: usize) -> usize {
    match entry_bytes {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

impl Cursor {
    /// Makes a cursor at the first entry; `None` if the head is wrong.
    pub fn new(packing: Packing, bytes: &[u8]) -> Option<Cursor> {
        let starts_with_length = || word(bytes, 0) == u32::try_from(bytes.len()).ok();
        let (mut last, mut width) = (0, 0);
        let (at, told) = match packing {
            Packing::Listpack if starts_with_length() => (LISTPACK_HEAD_BYTES, half_word(bytes, 4)?),
            Packing::Ziplist if starts_with_length() => {
                last = ZIPLIST_HEAD_BYTES;
                (ZIPLIST_HEAD_BYTES, half_word(bytes, 8)?)
            }
            Packing::Listpack | Packing::Ziplist => return None,
            Packing::Intset => {
                let told = word(bytes, 4)?;
                width = word(bytes, 0)? as usize;
                matches!(width, 2 | 4 | 8).then_some(())?;
                (bytes.len() - INTSET_HEAD_BYTES == (told as usize).checked_mul(width)?).then_some(())?;
                (INTSET_HEAD_BYTES, told)
            }
            Packing::Zipmap => {
                let pairs = *bytes.first()?;
                (1, if pairs >= LONG { UNKNOWN } else { 2 * u32::from(pairs) })
            }
        };
        Some(Cursor { packing, at, entries: 0, told, last, width, before: i64::MIN })
    }

    /// How many entries so many bytes have at most, according to the head.
    pub fn entries_max(&self, bytes: usize) -> u64 {
        // An entry takes a byte or more.
        let most = bytes as u64;
        if self.told == UNKNOWN && self.packing != Packing::Intset {
            most
        } else {
            most.min(self.told.into())
        }
    }

    /// Reads the next entry; `None` if the bytes are broken.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Option<Element<'a>> {
        let next = match self.packing {
            Packing::Listpack => self.listpack(bytes),
            Packing::Ziplist => self.ziplist(bytes),
            Packing::Intset => self.intset(bytes),
            Packing::Zipmap => self.zipmap(bytes),
        }?;
        match next {
            Element::Entry(_) => self.entries += 1,
            Element::End => {
                let is_known = self.told != UNKNOWN || self.packing == Packing::Intset;
                (!is_known || self.entries == u64::from(self.told)).then_some(())?;
            }
        }
        Some(next)
    }

    /// Checks that there is nothing behind the end.
    fn end<'a>(&self, bytes: &[u8]) -> Option<Element<'a>> {
        (self.at + 1 == bytes.len()).then_some(Element::End)
    }

    fn listpack<'a>(&mut self, bytes: &'a [u8]) -> Option<Element<'a>> {
        let start = self.at;
        let first = *bytes.get(start)?;
        if first == END {
            return self.end(bytes);
        }
        let second = || Some(usize::from(*bytes.get(start + 1)?));
        let text = |at: usize, n: usize| take(bytes, at, n).map(|(text, end)| (Packed::Text(text), end));
        let int = |n: usize| take(bytes, start + 1, n).map(|(int, end)| (Packed::Number(number(int)), end));
        let (entry, end) = match first {
            0..=0x7f => (Packed::Number(first.into()), start + 1),
            0x80..=0xbf => text(start + 1, usize::from(first & 0x3f))?,
            0xc0..=0xdf => {
                let n = i64::from(first & 0x1f) << 8 | second()? as i64;
                // Thirteen bits, the first of which is the sign.
                (Packed::Number(if n >= 1 << 12 { n - (1 << 13) } else { n }), start + 2)
            }
            0xe0..=0xef => text(start + 2, usize::from(first & 0xf) << 8 | second()?)?,
            0xf0 => text(start + 5, word(bytes, start + 1)? as usize)?,
            0xf1..=0xf3 => int(usize::from(first - 0xf1) + 2)?,
            0xf4 => int(8)?,
            0xf5.. => return None,
        };
        let len = end - start;
        let n = back_bytes(len);
        let (back, end) = take(bytes, end, n)?;
        // The highest bits first; all bytes but the first are marked.
        let said = back.iter().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
        let marked = back.iter().enumerate().all(|(i, byte)| (byte & 0x80 != 0) == (i > 0));
        self.at = end;
        (said == len && marked).then_some(Element::Entry(entry))
    }

    fn ziplist<'a>(&mut self, bytes: &'a [u8]) -> Option<Element<'a>> {
        let start = self.at;
        let first = *bytes.get(start)?;
        if first == END {
            // The head says where the last entry begins, for readers from the end.
            let last = word(bytes, 4)? as usize;
            return if last == self.last { self.end(bytes) } else { None };
        }
        let (before, at) = if first < LONG {
            (usize::from(first), start + 1)
        } else {
            (word(bytes, start + 1)? as usize, start + 5)
        };
        if before != if self.entries == 0 { 0 } else { start - self.last } {
            return None;
        }
        let encoding = *bytes.get(at)?;
        let text = |at: usize, n: usize| take(bytes, at, n).map(|(text, end)| (Packed::Text(text), end));
        let int = |n: usize| take(bytes, at + 1, n).map(|(int, end)| (Packed::Number(number(int)), end));
        let (entry, end) = match encoding {
            0..=0x3f => text(at + 1, encoding.into())?,
            0x40..=0x7f => {
                text(at + 2, usize::from(encoding & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?))?
            }
            0x80 => {
                let n = u32::from_be_bytes(*bytes.get(at + 1..)?.first_chunk()?);
                text(at + 5, n as usize)?
            }
            0xc0 => int(2)?,
            0xd0 => int(4)?,
            0xe0 => int(8)?,
            0xf0 => int(3)?,
            0xfe => int(1)?,
            0xf1..=0xfd => (Packed::Number(i64::from(encoding & 0xf) - 1), at + 1),
            _ => return None,
        };
        (self.last, self.at) = (start, end);
        Some(Element::Entry(entry))
    }

    fn intset<'a>(&mut self, bytes: &'a [u8]) -> Option<Element<'a>> {
        if self.at == bytes.len() {
            return Some(Element::End);
        }
        let (int, end) = take(bytes, self.at, self.width)?;
        let n = number(int);
        if self.entries > 0 && n <= self.before {
            return None;
        }
        (self.at, self.before) = (end, n);
        Some(Element::Entry(Packed::Number(n)))
    }

    fn zipmap<'a>(&mut self, bytes: &'a [u8]) -> Option<Element<'a>> {
        let first = *bytes.get(self.at)?;
        let is_value = self.entries % 2 == 1;
        if first == END {
            return if is_value { None } else { self.end(bytes) };
        }
        let (n, at) = if first < LONG {
            (usize::from(first), self.at + 1)
        } else {
            (word(bytes, self.at + 1)? as usize, self.at + 5)
        };
        let (spare, at) = if is_value { (usize::from(*bytes.get(at)?), at + 1) } else { (0, at) };
        let (text, end) = take(bytes, at, n)?;
        let (_, end) = take(bytes, end, spare)?;
        self.at = end;
        Some(Element::Entry(Packed::Text(text)))
    }
}
