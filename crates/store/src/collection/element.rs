//! An element: one string of a collection, and how it lies in a leaf.
//!
//! ```text
//! code 0 … 62   bytes of the string
//!      63       the string's length in 2 bytes, then the string
//!      64 + k   a whole number in k = 1 … 8 bytes, the least first: the string is its decimal text
//!      77       bytes of the string in 5, label in 8: it lies in the leaves behind the one that the label leads to, of a list the
//!               one that says so (`tree/apart.rs`, `tree/strings.rs`); of a stream it is the number of the first of its parts
//!               among those of its entry, which are rows (`stream/rows.rs`)
//! ```
//!
//! A string that is the one decimal text of a number of 64 bits always lies as a number, which takes no more bytes than
//! the text. So equal strings have equal codes and equal bytes.

use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

/// The code of a string that has its length in front.
pub(super) const LONG: u8 = 63;
/// Added to the bytes of a number.
const NUMBER: u8 = 64;
/// The longest decimal text of a number of 64 bits.
pub const DIGITS_MAX: usize = 20;
/// Bytes of a length in front of a string.
pub(super) const LENGTH_BYTES: usize = 2;
/// The code of a string that lies apart.
pub(super) const APART: u8 = NUMBER + APART_BYTES as u8;
/// Bytes that it takes in its leaf: its length, and the label of the leaf.
pub(super) const APART_BYTES: usize = APART_LENGTH_BYTES + 8;
pub(super) const APART_LENGTH_BYTES: usize = 5;

/// One string of a collection, as it lies there.
#[derive(Clone, Copy, Debug)]
pub enum Element<'a> {
    /// Its bytes.
    Text(Run<'a>),
    /// Its decimal text.
    Number(i64),
    /// A string that is too long for a leaf: the collection has its parts ([`super::Collection::parts`]), or the stream
    /// ([`crate::Stream::each_part`], which asks for the entry's ID).
    Apart(LongText<'a>),
}

// Entries are copied by each step of an iterator.
const _: () = assert!(size_of::<Element<'_>>() == 16);

/// Bytes of a string, in one run.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    at: NonNull<u8>,
    bytes: u32,
    /// What it has is not said by it: where an element says what else it is.
    tag: RunTag,
    of: PhantomData<&'a [u8]>,
}

#[derive(Clone, Copy)]
#[repr(u8)]
enum RunTag {
    Run = 0,
}

// SAFETY: it is a `&[u8]`, which may be sent and shared.
unsafe impl Send for Run<'_> {}
// SAFETY: as above.
unsafe impl Sync for Run<'_> {}

impl<'a> Run<'a> {
    #[inline]
    fn new(bytes: &'a [u8]) -> Run<'a> {
        // A string has 512 MiB at most.
        debug_assert!(u32::try_from(bytes.len()).is_ok());
        Run { at: NonNull::from(bytes).cast(), bytes: bytes.len() as u32, tag: RunTag::Run, of: PhantomData }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        let RunTag::Run = self.tag;
        // SAFETY: so many bytes at least were borrowed for `'a` when it was made.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes as usize) }
    }
}

impl Deref for Run<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

/// A string that lies apart, as its leaf names it.
#[derive(Clone, Copy, Debug)]
pub struct LongText<'a>(&'a [u8; APART_BYTES]);

impl<'a> LongText<'a> {
    #[inline]
    fn read(bytes: &'a [u8]) -> LongText<'a> {
        LongText(bytes.try_into().expect("its code says how many bytes it has"))
    }

    /// What lies in the leaf of a string of so many bytes, whose parts are behind the leaf with this label.
    pub(super) fn packed(bytes: usize, label: u64) -> [u8; APART_BYTES] {
        let mut packed = [0; APART_BYTES];
        packed[..APART_LENGTH_BYTES].copy_from_slice(&(bytes as u64).to_le_bytes()[..APART_LENGTH_BYTES]);
        packed[APART_LENGTH_BYTES..].copy_from_slice(&label.to_le_bytes());
        packed
    }

    /// Bytes of the string.
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        let mut all = [0; 8];
        all[..APART_LENGTH_BYTES].copy_from_slice(&self.0[..APART_LENGTH_BYTES]);
        u64::from_le_bytes(all) as usize
    }

    /// Reads what [`LongText::packed`] has made.
    pub(super) fn read_packed(packed: &'a [u8; APART_BYTES]) -> LongText<'a> {
        LongText(packed)
    }

    /// What [`LongText::packed`] has made.
    pub(super) fn as_packed(&self) -> [u8; APART_BYTES] {
        *self.0
    }

    /// The label of the leaf before its parts; of a stream the number of the first of them.
    pub(super) fn label(&self) -> u64 {
        u64::from_le_bytes(*self.0.last_chunk().expect("eight bytes"))
    }

    /// What names this member of a set, for as long as no other member comes to the set.
    pub fn member(&self) -> LongMember {
        LongMember(*self.0)
    }
}

/// A member of a set that lies apart, as its leaf names it ([`crate::Guard::set_take_long`]).
#[derive(Clone, Copy, Debug)]
pub struct LongMember([u8; APART_BYTES]);

impl LongMember {
    pub(super) fn text(&self) -> LongText<'_> {
        LongText(&self.0)
    }
}

/// The same string. One that lies apart is equal to none here: its collection says what it is.
impl PartialEq for Element<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Element::Text(one), Element::Text(other)) => one.bytes() == other.bytes(),
            (Element::Number(one), Element::Number(other)) => one == other,
            _ => false,
        }
    }
}

impl<'a> Element<'a> {
    /// A string as it would lie in a collection.
    #[inline]
    pub fn of(text: &'a [u8]) -> Element<'a> {
        whole_number(text).map_or_else(|| Element::Text(Run::new(text)), Element::Number)
    }

    /// The empty string.
    #[inline]
    pub(super) fn empty() -> Element<'a> {
        Element::Text(Run::new(&[]))
    }

    /// The string's bytes; those of a number are written into `room`.
    ///
    /// # Panics
    /// If it lies apart: then it is no run of bytes.
    #[inline]
    pub fn text<'r>(&self, room: &'r mut [u8; DIGITS_MAX]) -> &'r [u8]
    where
        'a: 'r,
    {
        match *self {
            Element::Text(text) => text.bytes(),
            Element::Number(number) => write_number(room, number),
            Element::Apart(_) => unreachable!("a string that lies apart is read by its parts"),
        }
    }

    /// How many bytes the string has.
    pub fn len(&self) -> usize {
        match *self {
            Element::Text(text) => text.len(),
            Element::Number(number) => {
                let digits = number.unsigned_abs().checked_ilog10().map_or(1, |log| log as usize + 1);
                digits + usize::from(number < 0)
            }
            Element::Apart(apart) => apart.len(),
        }
    }

    /// It is the empty string.
    pub fn is_empty(&self) -> bool {
        matches!(self, Element::Text(text) if text.bytes().is_empty())
    }

    /// The whole number that the string is the text of.
    pub fn number(&self) -> Option<i64> {
        match *self {
            Element::Number(number) => Some(number),
            Element::Text(_) | Element::Apart(_) => None,
        }
    }

    /// Compares the strings, byte by byte.
    pub fn compare(&self, text: &[u8]) -> Ordering {
        self.text(&mut [0; DIGITS_MAX]).cmp(text)
    }

    /// The element with this code at the start of `payload`, and how many bytes it takes there.
    #[inline]
    pub(super) fn read(code: u8, payload: &'a [u8]) -> (Element<'a>, usize) {
        let (front, bytes) = extent(code, payload);
        let bytes_of = &payload[front..bytes];
        let element = match code {
            ..=NUMBER => Element::Text(Run::new(bytes_of)),
            APART => Element::Apart(LongText::read(bytes_of)),
            _ => Element::Number(read_number(bytes_of)),
        };
        (element, bytes)
    }
}

/// Bytes of an element with this code, but for a long one.
#[inline]
pub(super) fn bytes_by(code: u8) -> usize {
    usize::from(code & 63)
}

/// Where the string of an element at the start of `payload` begins, and where the element ends.
#[inline]
pub(super) fn extent(code: u8, payload: &[u8]) -> (usize, usize) {
    if code != LONG {
        return (0, bytes_by(code));
    }
    let length = u16::from_le_bytes([payload[0], payload[1]]);
    (LENGTH_BYTES, LENGTH_BYTES + usize::from(length))
}

/// A string in the form that lies in a leaf: its code, and its bytes in two parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed<'a> {
    pub(super) code: u8,
    front: [u8; 8],
    front_bytes: usize,
    body: &'a [u8],
}

impl<'a> Packed<'a> {
    /// A string of less than 64 KiB.
    #[inline]
    pub(super) fn of(text: &'a [u8]) -> Packed<'a> {
        if let Some(number) = whole_number(text) {
            let bytes = number_bytes(number);
            return Packed {
                code: NUMBER + bytes as u8,
                front: number.to_le_bytes(),
                front_bytes: bytes,
                body: &[],
            };
        }
        if text.len() < usize::from(LONG) {
            return Packed { code: text.len() as u8, front: [0; 8], front_bytes: 0, body: text };
        }
        debug_assert!(text.len() <= usize::from(u16::MAX), "longer strings are refused before");
        let mut front = [0; 8];
        front[..LENGTH_BYTES].copy_from_slice(&(text.len() as u16).to_le_bytes());
        Packed { code: LONG, front, front_bytes: LENGTH_BYTES, body: text }
    }

    /// What [`LongText::packed`] has made.
    pub(super) fn apart(packed: &'a [u8; APART_BYTES]) -> Packed<'a> {
        Packed { code: APART, front: [0; 8], front_bytes: 0, body: packed }
    }

    /// Bytes that it takes in a leaf, beside its code.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.front_bytes + self.body.len()
    }

    /// Writes it to the start of `to`, which has room for it.
    #[inline]
    pub(super) fn write(&self, to: &mut [u8]) {
        to[..self.front_bytes].copy_from_slice(&self.front[..self.front_bytes]);
        to[self.front_bytes..self.bytes()].copy_from_slice(self.body);
    }

    /// An element with this code at the start of `payload` is this one.
    #[inline]
    pub(super) fn is_at(&self, code: u8, payload: &[u8]) -> bool {
        code == self.code
            && payload.get(..self.bytes()).is_some_and(|bytes| {
                let (front, body) = bytes.split_at(self.front_bytes);
                front == &self.front[..self.front_bytes] && body == self.body
            })
    }
}

/// The number whose decimal text this is, written as numbers are: no sign but a minus, no zero in front.
#[inline]
pub(super) fn whole_number(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() < DIGITS_MAX => {}
        _ => return None,
    }
    // Downwards: there is one negative number more.
    let mut number = 0_i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(number) } else { number.checked_neg() }
}

/// Bytes that a number takes, its sign included.
fn number_bytes(number: i64) -> usize {
    let bits = 65 - (number ^ (number >> 63)).leading_zeros();
    bits.div_ceil(8) as usize
}

fn read_number(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut all = [if negative { 0xff } else { 0 }; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(all)
}

/// Writes the number's decimal text to the end of `room`.
fn write_number(room: &mut [u8; DIGITS_MAX], number: i64) -> &[u8] {
    let mut left = number.unsigned_abs();
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        room[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        room[at] = b'-';
    }
    &room[at..]
}

/// The code and the bytes are what [`Packed::of`] makes of the element's text, and nothing else.
pub(super) fn is_canonical(code: u8, payload: &[u8]) -> bool {
    if code > NUMBER + 8 || code == NUMBER {
        return false;
    }
    let whole = match code {
        LONG => payload.len() >= LENGTH_BYTES && payload.len() >= extent(code, payload).1,
        _ => payload.len() >= bytes_by(code),
    };
    whole && {
        let (element, bytes) = Element::read(code, payload);
        let mut room = [0; DIGITS_MAX];
        let packed = Packed::of(element.text(&mut room));
        packed.bytes() == bytes && packed.is_at(code, payload)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn packed(text: &[u8]) -> (u8, Vec<u8>) {
        let packed = Packed::of(text);
        let mut bytes = vec![0xaa; packed.bytes()];
        packed.write(&mut bytes);
        assert!(packed.is_at(packed.code, &bytes));
        assert!(is_canonical(packed.code, &bytes));
        (packed.code, bytes)
    }

    fn comes_back(text: &[u8]) -> u8 {
        let (code, mut bytes) = packed(text);
        let length = bytes.len();
        bytes.extend_from_slice(b"what follows");
        let (element, used) = Element::read(code, &bytes);
        assert_eq!(used, length);
        assert_eq!(element.text(&mut [0; DIGITS_MAX]), text);
        assert_eq!(element.len(), text.len());
        assert_eq!(element, Element::of(text));
        code
    }

    #[test]
    fn strings_of_every_length_come_back() {
        for bytes in (0..200).chain([255, 256, 1000, 16_000, 65_535]) {
            let code = comes_back(&vec![b'x'; bytes]);
            assert_eq!(usize::from(code), bytes.min(63));
        }
    }

    #[test]
    fn numbers_take_as_few_bytes_as_they_need_and_never_more_than_their_text() {
        let mut numbers = vec![0, 1, -1, i64::MAX, i64::MIN, i64::MIN + 1];
        for power in 0..63 {
            for near in -2..=2 {
                numbers.extend([(1_i64 << power) + near, -(1_i64 << power) + near]);
            }
        }
        for power in 0..19 {
            numbers.extend([10_i64.pow(power), 10_i64.pow(power) - 1, -(10_i64.pow(power))]);
        }
        for number in numbers {
            let text = number.to_string();
            let code = comes_back(text.as_bytes());
            let bytes = usize::from(code - NUMBER);
            assert!(bytes <= text.len(), "{text}");
            let fits =
                |bytes: usize| bytes == 8 || (number << (64 - 8 * bytes)) >> (64 - 8 * bytes) == number;
            assert!(fits(bytes) && (bytes == 1 || !fits(bytes - 1)), "{text} in {bytes} bytes");
            assert_eq!(Element::of(text.as_bytes()).number(), Some(number));
        }
    }

    #[test]
    fn text_that_only_looks_like_a_number_is_text() {
        for text in [
            "",
            "-",
            "+1",
            "-0",
            "00",
            "01",
            "-01",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "0x1",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "184467440737095516160",
        ] {
            assert!(Element::of(text.as_bytes()).number().is_none(), "{text}");
            comes_back(text.as_bytes());
        }
    }

    #[test]
    fn what_is_not_the_shortest_form_is_not_canonical() {
        assert!(!is_canonical(66, &[1, 0]), "a number in too many bytes");
        assert!(!is_canonical(1, b"7"), "a number as text");
        assert!(!is_canonical(LONG, &[2, 0, b'a', b'b']), "a short string with its length in front");
        assert!(!is_canonical(3, b"ab"), "less than its code says");
        assert!(!is_canonical(64, b""), "a number of no bytes");
        assert!(!is_canonical(73, &[0; 9]), "a number of nine bytes");
    }
}
