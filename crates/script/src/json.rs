//! `cjson`: values into JSON and back, as lua-cjson has it, with its words for what is wrong.
//!
//! A table whose keys are all whole numbers from 1 on is an array, missing elements `null`; an empty one is an object.

use std::io::Write;

use mlua::prelude::{LuaMultiValue, LuaResult, LuaTable, LuaValue};

use crate::answer::{error, no_memory};
use crate::bits::{name_of, wrong};
use crate::sandbox::{Library, Making};

/// Deepest nesting of tables, as in Redis without a script's setting; each takes a part of the stack.
const DEPTH_MAX: usize = 1000;
/// Up to this depth objects are passed within a call of Lua's, which is faster. There may be 200 such calls within one another,
/// and the script may have made most of them.
const CALLS_MAX: usize = 16;
/// Digits of a number.
const PRECISION: usize = 14;
/// Bytes of a text that are read or written between two looks.
const PART_BYTES: usize = 16 << 10;

/// How values are written, as scripts may set it.
#[derive(Clone, Copy, Debug)]
struct Settings {
    /// A sparse array becomes an object.
    converts: bool,
    /// An array with an element above `safe` has at least one in `ratio`, if that is not 0.
    ratio: usize,
    safe: usize,
    depth_max: usize,
    precision: usize,
    /// What becomes of a number that JSON does not have: an error, a word, or null.
    invalid: Invalid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invalid {
    Error,
    Word,
    Null,
}

impl Settings {
    /// The settings behind the value, in the order of `sandbox.lua`. Without them they are those of a new state.
    fn of(args: &LuaMultiValue) -> Settings {
        let whole = |at: usize, usual: usize| match args.get(at) {
            Some(LuaValue::Integer(n)) => usize::try_from(*n).unwrap_or(usual),
            Some(LuaValue::Number(n)) => *n as usize,
            _ => usual,
        };
        Settings {
            converts: matches!(args.get(1), Some(LuaValue::Boolean(true))),
            ratio: whole(2, 2),
            safe: whole(3, 10),
            depth_max: whole(4, DEPTH_MAX).min(DEPTH_MAX),
            precision: whole(5, PRECISION),
            invalid: match whole(6, 0) {
                0 => Invalid::Error,
                1 => Invalid::Word,
                _ => Invalid::Null,
            },
        }
    }
}

/// The functions of `cjson` that are written in Rust.
pub(crate) const FUNCTIONS: Library<LuaValue> = &[
    ("encode", |making, args| {
        let settings = Settings::of(&args);
        let mut writer = Writer { out: Vec::new(), bytes_max: making.budget.0, settings, making };
        writer.value(args.front().unwrap_or(&LuaValue::Nil), 0)?;
        let Writer { out, making, .. } = writer;
        making.budget.string(making.lua, &out)
    }),
    ("decode", decode),
];

struct Writer<'m, 'l> {
    out: Vec<u8>,
    bytes_max: usize,
    settings: Settings,
    making: &'m mut Making<'l>,
}

/// Writes a number as C's `%.14g`.
pub(crate) fn format_number(n: f64) -> String {
    format_digits(n, PRECISION)
}

/// Writes a number as C's `%g` with so many digits, one at least.
fn format_digits(n: f64, precision: usize) -> String {
    if precision == PRECISION && n == n.trunc() && n.abs() < 1e14 {
        return if n == 0.0 && n.is_sign_negative() { "-0".to_owned() } else { format!("{}", n as i64) };
    }
    let scientific = format!("{n:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let cut = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    if (-4..precision as i32).contains(&exponent) {
        let text = format!("{n:.*}", (precision as i32 - 1 - exponent).max(0) as usize);
        return if text.contains('.') { cut(&text) } else { text };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", cut(digits), exponent.abs())
}

impl Writer<'_, '_> {
    fn put(&mut self, bytes: &[u8]) -> LuaResult<()> {
        if self.out.len() + bytes.len() > self.bytes_max {
            return Err(no_memory());
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn value(&mut self, value: &LuaValue, depth: usize) -> LuaResult<()> {
        self.making.step()?;
        match value {
            LuaValue::Nil => self.put(b"null"),
            value if *value == LuaValue::NULL => self.put(b"null"),
            LuaValue::Boolean(is) => self.put(if *is { b"true" } else { b"false" }),
            LuaValue::Integer(n) => self.number(*n as f64),
            LuaValue::Number(n) => self.number(*n),
            LuaValue::String(text) => self.string(&text.as_bytes()),
            LuaValue::Table(table) => {
                if depth >= self.settings.depth_max {
                    return Err(error(format!("Cannot serialise, excessive nesting ({})", depth + 1)));
                }
                self.making.look()?;
                match array_length(self.making, table, &self.settings)? {
                    0 => self.object(table, depth + 1),
                    length => self.array(table, length, depth + 1),
                }
            }
            other => Err(error(format!("Cannot serialise {}: type not supported", other.type_name()))),
        }
    }

    fn number(&mut self, n: f64) -> LuaResult<()> {
        match self.settings.invalid {
            _ if n.is_finite() => self.put(format_digits(n, self.settings.precision).as_bytes()),
            Invalid::Error => Err(error("Cannot serialise number: must not be NaN or Inf")),
            Invalid::Null => self.put(b"null"),
            Invalid::Word if n.is_nan() => self.put(b"nan"),
            Invalid::Word => self.put(if n > 0.0 { b"inf" } else { b"-inf" }),
        }
    }

    fn string(&mut self, text: &[u8]) -> LuaResult<()> {
        self.put(b"\"")?;
        for part in text.chunks(PART_BYTES) {
            self.making.bytes(part.len())?;
            self.part(part)?;
        }
        self.put(b"\"")
    }

    /// Writes a part of a string.
    fn part(&mut self, text: &[u8]) -> LuaResult<()> {
        let mut plain = 0;
        for (at, &byte) in text.iter().enumerate() {
            let mut escape = [0u8; 6];
            let escape: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'/' => b"\\/",
                0x08 => b"\\b",
                b'\t' => b"\\t",
                b'\n' => b"\\n",
                0x0C => b"\\f",
                b'\r' => b"\\r",
                0..0x20 | 0x7F => {
                    // Six bytes are what it takes.
                    let _ = write!(&mut escape[..], "\\u{byte:04x}");
                    &escape
                }
                _ => continue,
            };
            self.put(&text[plain..at])?;
            self.put(escape)?;
            plain = at + 1;
        }
        self.put(&text[plain..])
    }

    fn array(&mut self, table: &LuaTable, length: usize, depth: usize) -> LuaResult<()> {
        self.put(b"[")?;
        for n in 1..=length {
            if n > 1 {
                self.put(b",")?;
            }
            self.value(&table.raw_get::<LuaValue>(n)?, depth)?;
        }
        self.put(b"]")
    }

    fn object(&mut self, table: &LuaTable, depth: usize) -> LuaResult<()> {
        self.put(b"{")?;
        let mut first = true;
        if depth <= CALLS_MAX {
            table.for_each(|key: LuaValue, value: LuaValue| {
                self.key(&key, std::mem::take(&mut first))?;
                self.value(&value, depth)
            })?;
        } else {
            for pair in table.pairs::<LuaValue, LuaValue>() {
                let (key, value) = pair?;
                self.key(&key, std::mem::take(&mut first))?;
                self.value(&value, depth)?;
            }
        }
        self.put(b"}")
    }

    /// Writes the key of a member.
    fn key(&mut self, key: &LuaValue, is_first: bool) -> LuaResult<()> {
        if !is_first {
            self.put(b",")?;
        }
        match key {
            LuaValue::Integer(n) => self.put(format!("\"{}\":", format_number(*n as f64)).as_bytes()),
            LuaValue::Number(n) => self.put(format!("\"{}\":", format_number(*n)).as_bytes()),
            LuaValue::String(text) => {
                self.string(&text.as_bytes())?;
                self.put(b":")
            }
            other => {
                let name = name_of(other);
                Err(error(format!("Cannot serialise {name}: table key must be a number or string")))
            }
        }
    }
}

/// Length of a table that is an array; 0 if it is none.
fn array_length(making: &mut Making<'_>, table: &LuaTable, settings: &Settings) -> LuaResult<usize> {
    let (mut last, mut count, mut other) = (0usize, 0usize, false);
    let looked = table.for_each(|key: LuaValue, _: LuaValue| {
        count += 1;
        making.step()?;
        match key {
            LuaValue::Integer(n) if n > 0 => last = last.max(n as usize),
            _ => {
                other = true;
                // No more of it is looked at.
                return Err(no_memory());
            }
        }
        Ok(())
    });
    if other || looked.is_err() {
        return Ok(0);
    }
    if settings.ratio > 0 && last > settings.safe && last > count.saturating_mul(settings.ratio) {
        if settings.converts {
            return Ok(0);
        }
        return Err(error("Cannot serialise table: excessively sparse array"));
    }
    Ok(last)
}

fn decode(making: &mut Making<'_>, args: LuaMultiValue) -> LuaResult<LuaValue> {
    let text = match args.front() {
        Some(LuaValue::String(text)) => text.as_bytes().to_vec(),
        Some(LuaValue::Integer(n)) => n.to_string().into_bytes(),
        Some(LuaValue::Number(n)) => format_number(*n).into_bytes(),
        _ => return Err(wrong(&args, 0, "string")),
    };
    let depth_max = match args.get(1) {
        Some(LuaValue::Integer(n)) => usize::try_from(*n).unwrap_or(DEPTH_MAX).min(DEPTH_MAX),
        Some(LuaValue::Number(n)) => (*n as usize).min(DEPTH_MAX),
        _ => DEPTH_MAX,
    };
    let strict = matches!(args.get(2), Some(LuaValue::Boolean(false)));
    if let [first, second, ..] = text[..]
        && (first == 0 || second == 0)
    {
        return Err(error("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut parser = Parser { text: &text, at: 0, start: 0, depth_max, strict };
    let token = parser.next(making)?;
    let value = parser.value(making, token, 0)?;
    match parser.next(making)? {
        Token::End => Ok(value),
        token => Err(parser.expected("the end", &token)),
    }
}

#[derive(Debug, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(what) => what,
        }
    }
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    /// Where the last token began.
    start: usize,
    depth_max: usize,
    /// Numbers have to be JSON's.
    strict: bool,
}

impl Parser<'_> {
    fn expected(&self, what: &str, found: &Token) -> mlua::Error {
        let (found, at) = (found.name(), self.start + 1);
        error(format!("Expected {what} but found {found} at character {at}"))
    }

    fn next(&mut self, making: &mut Making<'_>) -> LuaResult<Token> {
        while self.text.get(self.at).is_some_and(|byte| b" \t\n\r".contains(byte)) {
            self.at += 1;
            self.passed(making)?;
        }
        self.start = self.at;
        // A zero ends the text, as strings of C end.
        let Some(&byte) = self.text.get(self.at).filter(|byte| **byte != 0) else { return Ok(Token::End) };
        let sign = match byte {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.string(making),
            _ => return Ok(self.word()),
        };
        self.at += 1;
        Ok(sign)
    }

    /// Counts one more byte of what may be long.
    fn passed(&self, making: &mut Making<'_>) -> LuaResult<()> {
        if self.at.is_multiple_of(PART_BYTES) { making.bytes(PART_BYTES) } else { Ok(()) }
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        for (word, token) in
            [("true", Token::Boolean(true)), ("false", Token::Boolean(false)), ("null", Token::Null)]
        {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return token;
            }
        }
        let begins = rest.first().is_some_and(|byte| byte.is_ascii_digit() || b"+-iInN".contains(byte));
        let signs: &[u8] = if self.strict { b"-" } else { b"+-" };
        let wrong = if rest.first().is_some_and(|byte| byte.is_ascii_digit() || signs.contains(byte)) {
            Token::Error("invalid number")
        } else {
            Token::Error("invalid token")
        };
        match number(rest).filter(|_| begins) {
            Some((_, bytes)) if self.strict && !is_plain(&rest[..bytes]) => wrong,
            Some((n, bytes)) => {
                self.at += bytes;
                Token::Number(n)
            }
            None => wrong,
        }
    }

    fn string(&mut self, making: &mut Making<'_>) -> LuaResult<Token> {
        let mut made = Vec::new();
        self.at += 1;
        loop {
            let Some(&byte) = self.text.get(self.at).filter(|byte| **byte != 0) else {
                self.start = self.at;
                return Ok(Token::Error("unexpected end of string"));
            };
            self.at += 1;
            self.passed(making)?;
            match byte {
                b'"' => return Ok(Token::String(made)),
                b'\\' => {
                    let Some(&escape) = self.text.get(self.at) else {
                        return Ok(Token::Error("unexpected end of string"));
                    };
                    self.at += 1;
                    let byte = match escape {
                        b'"' | b'\\' | b'/' => escape,
                        b'b' => 0x08,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 0x0C,
                        b'r' => b'\r',
                        b'u' => match self.unicode() {
                            Some(c) => {
                                made.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                                continue;
                            }
                            None => {
                                self.start = self.at - 2;
                                return Ok(Token::Error("invalid unicode escape code"));
                            }
                        },
                        _ => {
                            self.start = self.at - 2;
                            return Ok(Token::Error("invalid escape code"));
                        }
                    };
                    made.push(byte);
                }
                byte => made.push(byte),
            }
        }
    }

    /// The character behind `\u`, of one or two such escapes.
    fn unicode(&mut self) -> Option<char> {
        let hex = |at: usize| {
            let digits = self.text.get(at..at + 4)?;
            digits.iter().try_fold(0, |n, digit| Some(n * 16 + char::from(*digit).to_digit(16)?))
        };
        let first = hex(self.at)?;
        if !(0xD800..0xDC00).contains(&first) {
            self.at += 4;
            return char::from_u32(first);
        }
        if self.text.get(self.at + 4..self.at + 6) != Some(b"\\u") {
            return None;
        }
        let second = hex(self.at + 6).filter(|low| (0xDC00..0xE000).contains(low))?;
        self.at += 10;
        char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00))
    }

    fn value(&mut self, making: &mut Making<'_>, token: Token, depth: usize) -> LuaResult<LuaValue> {
        making.step()?;
        match token {
            Token::String(text) => making.budget.string(making.lua, &text),
            Token::Number(n) => Ok(LuaValue::Number(n)),
            Token::Boolean(is) => Ok(LuaValue::Boolean(is)),
            Token::Null => Ok(LuaValue::NULL),
            Token::ObjectBegin | Token::ArrayBegin if depth >= self.depth_max => Err(error(format!(
                "Found too many nested data structures ({}) at character {}",
                depth + 1,
                self.start + 1
            ))),
            Token::ObjectBegin => self.object(making, depth + 1),
            Token::ArrayBegin => self.array(making, depth + 1),
            other => Err(self.expected("value", &other)),
        }
    }

    fn object(&mut self, making: &mut Making<'_>, depth: usize) -> LuaResult<LuaValue> {
        let table = making.budget.table(making.lua, 0, 0)?;
        let mut token = self.next(making)?;
        if token == Token::ObjectEnd {
            return Ok(LuaValue::Table(table));
        }
        loop {
            let Token::String(key) = token else { return Err(self.expected("object key string", &token)) };
            match self.next(making)? {
                Token::Colon => {}
                other => return Err(self.expected("colon", &other)),
            }
            let next = self.next(making)?;
            let value = self.value(making, next, depth)?;
            making.budget.element()?;
            table.raw_set(making.budget.string(making.lua, &key)?, value)?;
            match self.next(making)? {
                Token::ObjectEnd => return Ok(LuaValue::Table(table)),
                Token::Comma => token = self.next(making)?,
                other => return Err(self.expected("comma or object end", &other)),
            }
        }
    }

    fn array(&mut self, making: &mut Making<'_>, depth: usize) -> LuaResult<LuaValue> {
        let table = making.budget.table(making.lua, 0, 0)?;
        let mut token = self.next(making)?;
        if token == Token::ArrayEnd {
            return Ok(LuaValue::Table(table));
        }
        for n in 1.. {
            let value = self.value(making, token, depth)?;
            making.budget.element()?;
            table.raw_set(n, value)?;
            match self.next(making)? {
                Token::ArrayEnd => break,
                Token::Comma => token = self.next(making)?,
                other => return Err(self.expected("comma or array end", &other)),
            }
        }
        Ok(LuaValue::Table(table))
    }
}

/// True if a number that `strtod` reads is one of JSON's: not infinite, not hexadecimal, without a leading zero.
fn is_plain(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0', b'0'..=b'9' | b'x' | b'X', ..] => false,
        [first, ..] => first.is_ascii_digit(),
        [] => false,
    }
}

/// The number that some text begins with, as `strtod` reads it, and how long it is.
fn number(text: &[u8]) -> Option<(f64, usize)> {
    let negative = text.first() == Some(&b'-');
    let sign = usize::from(negative || text.first() == Some(&b'+'));
    let rest = &text[sign..];
    let signed = |n: f64| if negative { -n } else { n };
    let begins =
        |word: &str| rest.get(..word.len()).is_some_and(|it| it.eq_ignore_ascii_case(word.as_bytes()));
    for (word, n) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)] {
        if begins(word) {
            return Some((signed(n), sign + word.len()));
        }
    }
    if begins("0x") {
        let digits = rest[2..].iter().take_while(|digit| digit.is_ascii_hexdigit()).count();
        if digits > 0 {
            let n = rest[2..2 + digits]
                .iter()
                .fold(0.0, |n, digit| n * 16.0 + f64::from(char::from(*digit).to_digit(16).unwrap_or(0)));
            return Some((signed(n), sign + 2 + digits));
        }
    }
    let digits = |from: usize| rest[from..].iter().take_while(|digit| digit.is_ascii_digit()).count();
    let whole = digits(0);
    let fraction = if rest.get(whole) == Some(&b'.') { 1 + digits(whole + 1) } else { 0 };
    if whole + fraction.saturating_sub(1) == 0 {
        return None;
    }
    let mut end = whole + fraction;
    if rest.get(end).is_some_and(|byte| byte.eq_ignore_ascii_case(&b'e')) {
        let sign = usize::from(rest.get(end + 1).is_some_and(|byte| b"+-".contains(byte)));
        let power = digits((end + 1 + sign).min(rest.len()));
        if power > 0 {
            end += 1 + sign + power;
        }
    }
    let text = std::str::from_utf8(&rest[..end]).ok()?;
    Some((signed(text.parse().ok()?), sign + end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_fourteen_digits() {
        for (n, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.33333333333333"),
            (1e15, "1e+15"),
            (123_456_789_012_345_680.0, "1.2345678901235e+17"),
            (1e14, "1e+14"),
            (99_999_999_999_999.0, "99999999999999"),
            (0.000_012_3, "1.23e-05"),
            (0.000_123, "0.000123"),
            (1e300, "1e+300"),
            (-1e-7, "-1e-07"),
        ] {
            assert_eq!(format_number(n), text);
        }
    }

    #[test]
    fn numbers_are_read_as_c_does() {
        for (text, n, bytes) in [
            ("1", 1.0, 1),
            ("-1.5e3,", -1500.0, 6),
            ("1e", 1.0, 1),
            (".5", 0.5, 2),
            ("5.", 5.0, 2),
            ("0x10 ", 16.0, 4),
            ("0x", 0.0, 1),
            ("-Infinity", f64::NEG_INFINITY, 9),
            ("1e400", f64::INFINITY, 5),
        ] {
            assert_eq!(number(text.as_bytes()), Some((n, bytes)), "{text}");
        }
        assert!(number(b"nan").unwrap().0.is_nan());
        for text in ["", "-", ".", "e1", "x", "+"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }
}
