//! Numbers that SORT sorts by, read as Redis 8.0 does: decimal, up to the first NUL. An empty text is 0, a number too large for a
//! double infinite, one too small 0.
//!
//! ```text
//! - 000 27182…9045… . 23536…0001… e -00012
//!       └ the first 800 digits ┘└ is any of them not 0? ┘       the point and the exponent are one power of ten
//! ```
//!
//! A text that is longer than a leaf is read where it lies, piece by piece. Of it only the digits that matter are kept.

use larder_protocol::resp::parse_double;

use crate::redis::call::ELEMENT_BYTES;
use crate::redis::fail::Fail;

/// Digits that are kept of a long number. A number halfway between two doubles has at most 767, so that for all further digits it
/// only matters whether one is not 0.
const DIGITS_MAX: usize = 800;
/// Greater exponents are read as this: no text has enough digits to make up for it.
const EXPONENT_MAX: i64 = 1 << 40;

const NOT_A_NUMBER: Fail = Fail::of("ERR One or more scores can't be converted into double");

/// Parses a number.
///
/// # Errors
/// It is no number.
pub(super) fn number(text: &[u8]) -> Result<f64, Fail> {
    if text.len() > ELEMENT_BYTES {
        let mut long = LongNumber::default();
        long.read(text);
        return long.finish();
    }
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Ok(0.0);
    }
    if text.iter().any(|byte| byte.eq_ignore_ascii_case(&b'x')) {
        return Err(NOT_A_NUMBER);
    }
    if let Some(n) = parse_double(text) {
        return Ok(n);
    }
    // The number is too large or too small for that parser.
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    if !digits.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.') {
        return Err(NOT_A_NUMBER);
    }
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(NOT_A_NUMBER)
}

/// What may come next in a long number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Its sign, or what may be behind that.
    #[default]
    Start,
    /// Digits in front of the point, or what may be behind them.
    Whole,
    /// Digits behind the point.
    Fraction,
    /// The exponent's sign, or a digit of it.
    ExponentStart,
    /// A digit of the exponent.
    Exponent,
    /// Nothing: it is no number.
    Wrong,
}

/// A number of any length, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct LongNumber {
    place: Place,
    /// A NUL was read.
    is_over: bool,
    bytes: usize,
    is_negative: bool,
    /// A digit of the number itself was read.
    has_digits: bool,
    /// The digits, from the first one on that is not 0.
    digits: String,
    /// A digit that was left out is not 0.
    has_more: bool,
    /// The power of ten that multiplies the digits, beside the exponent.
    power: i64,
    /// The exponent is negative.
    is_small: bool,
    exponent: Option<i64>,
}

impl LongNumber {
    /// Reads a piece; false if what is behind it does not matter.
    pub fn read(&mut self, piece: &[u8]) -> bool {
        for &byte in piece {
            self.bytes += 1;
            if byte == 0 {
                self.is_over = true;
                return false;
            }
            self.place = self.behind(byte);
            if self.place == Place::Wrong {
                return false;
            }
        }
        true
    }

    /// How many bytes were read.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether more bytes might change the number.
    pub fn goes_on(&self) -> bool {
        !self.is_over && self.place != Place::Wrong
    }

    fn behind(&mut self, byte: u8) -> Place {
        match self.place {
            Place::Start if matches!(byte, b'+' | b'-') => {
                self.is_negative = byte == b'-';
                Place::Whole
            }
            Place::Start | Place::Whole if byte.is_ascii_digit() => {
                self.digit(byte, false);
                Place::Whole
            }
            Place::Start | Place::Whole if byte == b'.' => Place::Fraction,
            Place::Fraction if byte.is_ascii_digit() => {
                self.digit(byte, true);
                Place::Fraction
            }
            Place::Whole | Place::Fraction if self.has_digits && matches!(byte, b'e' | b'E') => {
                Place::ExponentStart
            }
            Place::ExponentStart if matches!(byte, b'+' | b'-') => {
                self.is_small = byte == b'-';
                Place::Exponent
            }
            Place::ExponentStart | Place::Exponent if byte.is_ascii_digit() => {
                let before = self.exponent.unwrap_or(0);
                self.exponent = Some((10 * before + i64::from(byte - b'0')).min(EXPONENT_MAX));
                Place::Exponent
            }
            Place::Start
            | Place::Whole
            | Place::Fraction
            | Place::ExponentStart
            | Place::Exponent
            | Place::Wrong => Place::Wrong,
        }
    }

    fn digit(&mut self, digit: u8, is_fraction: bool) {
        self.has_digits = true;
        if self.digits.len() == DIGITS_MAX {
            self.has_more |= digit != b'0';
            self.power += i64::from(!is_fraction);
            return;
        }
        if digit != b'0' || !self.digits.is_empty() {
            self.digits.push(char::from(digit));
        }
        self.power -= i64::from(is_fraction);
    }

    /// The number that was read.
    ///
    /// # Errors
    /// It is no number.
    pub fn finish(self) -> Result<f64, Fail> {
        match self.place {
            // The text is empty, or begins with a NUL.
            Place::Start => return Ok(0.0),
            Place::Whole | Place::Fraction if self.has_digits => {}
            Place::Exponent if self.exponent.is_some() => {}
            Place::Whole | Place::Fraction | Place::ExponentStart | Place::Exponent | Place::Wrong => {
                return Err(NOT_A_NUMBER);
            }
        }
        let sign = if self.is_negative { "-" } else { "" };
        let (more, power) = if self.has_more { ("1", self.power - 1) } else { ("", self.power) };
        let exponent = self.exponent.unwrap_or(0);
        let power = power + if self.is_small { -exponent } else { exponent };
        format!("{sign}0{}{more}e{power}", self.digits).parse().map_err(|_| NOT_A_NUMBER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a long number is, read in pieces of so many bytes.
    fn long(text: &[u8], piece_bytes: usize) -> Result<f64, Fail> {
        let mut long = LongNumber::default();
        let _ = text.chunks(piece_bytes).all(|piece| long.read(piece));
        long.finish()
    }

    fn same(one: Result<f64, Fail>, other: Result<f64, Fail>) -> bool {
        match (one, other) {
            (Ok(one), Ok(other)) => one.to_bits() == other.to_bits(),
            (one, other) => one.is_err() && other.is_err(),
        }
    }

    /// But for the words for what is infinite, which are no long texts.
    #[test]
    fn a_text_is_the_same_number_however_it_is_read() {
        let texts = [
            &b""[..],
            b"0",
            b"-0",
            b"+0",
            b"1",
            b"-1",
            b"+3",
            b"10",
            b"007",
            b".5",
            b"5.",
            b"-.5",
            b".",
            b"-",
            b"+",
            b"e5",
            b".e5",
            b"1e",
            b"1e+",
            b"1e5",
            b"1E+5",
            b"1e-5",
            b"1.e5",
            b"1e5.",
            b"1e5e5",
            b"1e+-5",
            b"--1",
            b"+-1",
            b"1-",
            b"1.2.3",
            b"0x10",
            b" 5",
            b"5 ",
            b"nan",
            b"1e400",
            b"-1e400",
            b"1e-400",
            b"1e99999999999999999999",
            b"-1e-99999999999999999999",
            b"0e99999999999999999999",
            b"0.1",
            b"3.14159265358979323846",
            b"9007199254740993",
            b"9007199254740993.000000000000000000000000000001",
            b"2.2250738585072011e-308",
            b"4.9e-324",
            b"2.4e-324",
            b"1.7976931348623157e308",
            b"1.7976931348623159e308",
            b"5\0x",
            b"\0x",
            b"-\0",
            b"1e\0",
            "1é".as_bytes(),
        ];
        for text in texts {
            for piece_bytes in [1, 2, 100] {
                let shown = String::from_utf8_lossy(text);
                assert!(same(long(text, piece_bytes), number(text)), "{shown:?} {piece_bytes}");
            }
        }
    }

    /// Zeros in front of it and behind it, digits that no double has room for, exponents that make up for all of these.
    #[test]
    fn long_numbers_are_as_exact_as_short_ones() {
        let zeros = "0".repeat(20_000);
        let nines = "9".repeat(20_000);
        for (text, expected) in [
            (format!("{zeros}12.5"), 12.5),
            (format!("-{zeros}12.5"), -12.5),
            (format!("12.5{zeros}"), 12.5),
            (format!("0.{zeros}25e20001"), 2.5),
            (format!("25{zeros}e-20001"), 2.5),
            (format!("25{zeros}.{zeros}e-{zeros}20001"), 2.5),
            (format!("1e{zeros}3"), 1000.0),
            (format!("25{zeros}"), f64::INFINITY),
            (format!("-25{zeros}"), f64::NEG_INFINITY),
            (format!("0.{zeros}25"), 0.0),
            (format!("{nines}e-20000"), 1.0),
            (format!("0.{nines}"), 1.0),
            (format!("{zeros}.{zeros}"), 0.0),
            (format!("1e{nines}"), f64::INFINITY),
            (format!("1e-{nines}"), 0.0),
            (format!("0e{nines}"), 0.0),
            // Halfway between two, and a little more or less.
            (format!("9007199254740993.{zeros}"), 9_007_199_254_740_992.0),
            (format!("9007199254740993.{zeros}1"), 9_007_199_254_740_994.0),
            (format!("9007199254740993{zeros}e-20000"), 9_007_199_254_740_992.0),
            (format!("9007199254740993{zeros}1e-20001"), 9_007_199_254_740_994.0),
            (format!("9007199254740992.{nines}"), 9_007_199_254_740_992.0),
            (format!("9007199254740995.{zeros}"), 9_007_199_254_740_996.0),
            (format!("9007199254740994.{nines}"), 9_007_199_254_740_994.0),
            (format!("7\0{nines}"), 7.0),
            (format!("\0{nines}"), 0.0),
        ] {
            let (text, shown) = (text.as_bytes(), &text[..10]);
            assert!(same(number(text), Ok(expected)), "{shown}…: {:?}", number(text));
            for piece_bytes in [1, 16_384] {
                assert!(same(long(text, piece_bytes), Ok(expected)), "{shown}… {piece_bytes}");
            }
        }
        let wrong = [format!("{nines}x"), format!("x{nines}"), format!("1e{zeros}+1"), format!("1.{zeros}.")];
        for wrong in wrong {
            assert_eq!(number(wrong.as_bytes()), Err(NOT_A_NUMBER), "{}…", &wrong[..10]);
        }
    }

    /// One digit less than are kept, as many, and one more.
    #[test]
    fn what_is_left_out_of_a_number_only_says_whether_it_is_nothing() {
        for zeros in DIGITS_MAX - 18..DIGITS_MAX + 2 {
            let zeros = "0".repeat(zeros);
            let above = format!("9007199254740993.{zeros}1");
            assert_eq!(long(above.as_bytes(), 7).ok(), Some(9_007_199_254_740_994.0), "{}", zeros.len());
            let half = format!("9007199254740993.{zeros}0");
            assert_eq!(long(half.as_bytes(), 7).ok(), Some(9_007_199_254_740_992.0), "{}", zeros.len());
        }
    }

    #[test]
    fn a_text_is_read_up_to_what_is_wrong_in_it() {
        let mut long = LongNumber::default();
        assert!(long.read(b"12") && long.goes_on() && long.bytes() == 2);
        assert!(!long.read(b"3x45") && !long.goes_on() && long.bytes() == 4);
        let mut long = LongNumber::default();
        assert!(!long.read(b"1\x0045") && !long.goes_on() && long.bytes() == 2);
        assert_eq!(long.finish().ok(), Some(1.0));
    }
}
