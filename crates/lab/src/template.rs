//! Commands of users, with places for keys and values, and the expected replies.
//!
//! ```text
//! HSET h:{key} f {value}        for Redis: words, in quotation marks where they have blanks
//! set t:{key} 0 0 {bytes}\r\n{value}      for memcached: the bytes as they go, with \r, \n, \t, \\ and the last line end added
//! ```
//!
//! | place | is |
//! |---|---|
//! | `{key}` | the name of the key whose turn it is, `{n}` its number |
//! | `{value}` | a value that names the key, `{bytes}` how long it is |
//!
//! | expected | holds for |
//! |---|---|
//! | `any` | all but an error |
//! | `value` | a value that is whole and of this key |
//! | `nil` | no value: a null, END, EN |
//! | `:` or `:5` | a number, or this one |
//! | `*` or `*3` | an array, or one of so many |
//! | other words | a status, a line, a number or a value that says this; places as above |
//!
//! `|` stands between several of which one must hold.

mod reply;

use larder_protocol::client::{Protocol, command};

use crate::value;
pub use reply::{Reply, reply};

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Bytes(Vec<u8>),
    Key,
    Number,
    Value,
    Length,
}

/// A text with places.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Text(Vec<Part>);

/// The present key and its value.
#[derive(Clone, Copy, Debug)]
pub struct Present<'t> {
    /// The key's number.
    pub id: u32,
    /// The key's name.
    pub key: &'t [u8],
    /// The value that a write stores.
    pub value: &'t [u8],
}

impl Text {
    /// Reads a text; `{{` is a brace.
    fn parse(text: &[u8]) -> Result<Text, String> {
        let mut parts: Vec<Part> = Vec::new();
        let mut bytes = Vec::new();
        let mut rest = text;
        while let Some((&byte, more)) = rest.split_first() {
            rest = more;
            if matches!(byte, b'{' | b'}') && rest.first() == Some(&byte) {
                bytes.push(byte);
                rest = &rest[1..];
                continue;
            }
            if byte != b'{' {
                bytes.push(byte);
                continue;
            }
            let end = rest.iter().position(|&byte| byte == b'}');
            let (name, more) = rest.split_at(end.ok_or("a { without its }; {{ is a brace")?);
            rest = &more[1..];
            let part = match name {
                b"key" => Part::Key,
                b"n" => Part::Number,
                b"value" => Part::Value,
                b"bytes" => Part::Length,
                other => {
                    return Err(format!(
                        "{{{}}} is none of {{key}}, {{n}}, {{value}}, {{bytes}}",
                        other.escape_ascii()
                    ));
                }
            };
            if !bytes.is_empty() {
                parts.push(Part::Bytes(std::mem::take(&mut bytes)));
            }
            parts.push(part);
        }
        if !bytes.is_empty() {
            parts.push(Part::Bytes(bytes));
        }
        Ok(Text(parts))
    }

    fn write(&self, out: &mut Vec<u8>, turn: Present<'_>) {
        for part in &self.0 {
            match part {
                Part::Bytes(bytes) => out.extend_from_slice(bytes),
                Part::Key => out.extend_from_slice(turn.key),
                Part::Number => out.extend_from_slice(turn.id.to_string().as_bytes()),
                Part::Value => out.extend_from_slice(turn.value),
                Part::Length => out.extend_from_slice(turn.value.len().to_string().as_bytes()),
            }
        }
    }

    fn is(&self, have: &[u8], turn: Present<'_>) -> bool {
        if let [Part::Bytes(bytes)] = &self.0[..] {
            return bytes == have;
        }
        let mut wanted = Vec::new();
        self.write(&mut wanted, turn);
        wanted == have
    }
}

/// A command and its expected reply.
#[derive(Clone, Debug)]
pub struct Template {
    words: Vec<Text>,
    protocol: Protocol,
    expected: Vec<Expected>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Expected {
    Any,
    Value,
    Nil,
    Number(Option<Vec<u8>>),
    Many(Option<usize>),
    Text(Text),
}

impl Template {
    /// Reads a command and its expected reply.
    ///
    /// # Errors
    /// What is wrong with the texts.
    pub fn parse(protocol: Protocol, text: &str, expected: &str) -> Result<Template, String> {
        let words = match protocol {
            Protocol::Resp => words(text)?,
            Protocol::Classic | Protocol::Meta => vec![[&unescaped(text)?[..], b"\r\n"].concat()],
        };
        if words.is_empty() || words[0].is_empty() || text.trim().is_empty() {
            return Err("a command has a word".to_owned());
        }
        let words = words.iter().map(|word| Text::parse(word)).collect::<Result<_, _>>()?;
        let expected = expected.split('|').map(Expected::parse).collect::<Result<_, _>>()?;
        Ok(Template { words, protocol, expected })
    }

    /// Appends the command.
    pub fn write(&self, out: &mut Vec<u8>, turn: Present<'_>) {
        if self.protocol != Protocol::Resp {
            return self.words.iter().for_each(|word| word.write(out, turn));
        }
        let render = |word: &Text| {
            let mut bytes = Vec::new();
            word.write(&mut bytes, turn);
            bytes
        };
        let words: Vec<Vec<u8>> = self.words.iter().map(render).collect();
        command(out, &words.iter().map(|word| &word[..]).collect::<Vec<_>>());
    }

    /// Whether a reply is the expected one.
    pub fn holds(&self, reply: &Reply<'_>, turn: Present<'_>) -> bool {
        self.expected.iter().any(|expected| match (expected, reply) {
            (Expected::Any, reply) => !matches!(reply, Reply::Error(_)),
            (Expected::Value, Reply::Value(have)) => value::verify(have, turn.id).is_ok(),
            (Expected::Nil, Reply::Nil) => true,
            (Expected::Number(wanted), Reply::Number(have)) => {
                wanted.as_ref().is_none_or(|wanted| wanted == have)
            }
            (Expected::Many(wanted), Reply::Many(have)) => wanted.is_none_or(|wanted| wanted == *have),
            (
                Expected::Text(text),
                Reply::Text(have) | Reply::Number(have) | Reply::Value(have) | Reply::Error(have),
            ) => text.is(have, turn),
            _ => false,
        })
    }
}

impl Expected {
    fn parse(text: &str) -> Result<Expected, String> {
        let text = text.trim();
        if let Some(number) = text.strip_prefix(':') {
            let digits = number.strip_prefix('-').unwrap_or(number);
            if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(format!("{text:?} is no number"));
            }
            return Ok(Expected::Number((!number.is_empty()).then(|| number.as_bytes().to_vec())));
        }
        if let Some(count) = text.strip_prefix('*') {
            let count = if count.is_empty() {
                None
            } else {
                Some(count.parse().map_err(|_| format!("{text:?} is no count"))?)
            };
            return Ok(Expected::Many(count));
        }
        Ok(match text {
            "any" => Expected::Any,
            "value" => Expected::Value,
            "nil" => Expected::Nil,
            "" => return Err("nothing is expected; any is all but an error".to_owned()),
            other => Expected::Text(Text::parse(other.strip_prefix('+').unwrap_or(other).as_bytes())?),
        })
    }
}

/// The words of a command: blanks separate them except in quotation marks, within which `\` escapes.
fn words(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('"' | '\'', None) => (quote, word) = (Some(letter), Some(word.unwrap_or_default())),
            (mark, Some(open)) if mark == open => quote = None,
            ('\\', Some('"')) => {
                let escaped = letters.next().ok_or("a \\ at the end")?;
                let whole = unescaped(&format!("\\{escaped}"))
                    .or_else(|_| Ok::<_, String>(escaped.to_string().into_bytes()))?;
                word.get_or_insert_default().push_str(&String::from_utf8_lossy(&whole));
            }
            (blank, None) if blank.is_whitespace() => words.extend(word.take().map(String::into_bytes)),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err("a quotation mark without its other".to_owned());
    }
    words.extend(word.map(String::into_bytes));
    Ok(words)
}

/// A text whose `\r`, `\n`, `\t` and `\\` are the bytes that they stand for.
fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next() {
                Some(b'r') => b'\r',
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'\\') => b'\\',
                _ => return Err("after a \\ comes r, n, t or another".to_owned()),
            },
            other => other,
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: Present<'static> = Present { id: 7, key: b"key:7", value: b"a b" };

    fn written(protocol: Protocol, text: &str) -> String {
        let mut out = Vec::new();
        Template::parse(protocol, text, "any").unwrap().write(&mut out, PRESENT);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn places_are_filled_and_words_are_parted() {
        assert_eq!(
            written(Protocol::Resp, "HSET h:{key} f {value}"),
            "*4\r\n$4\r\nHSET\r\n$7\r\nh:key:7\r\n$1\r\nf\r\n$3\r\na b\r\n"
        );
        assert_eq!(
            written(Protocol::Resp, "EVAL \"return \\\"{{\\\"\\n\" 0 ''"),
            "*4\r\n$4\r\nEVAL\r\n$11\r\nreturn \"{\"\n\r\n$1\r\n0\r\n$0\r\n\r\n"
        );
        assert_eq!(
            written(Protocol::Classic, "set t:{n} 0 0 {bytes}\\r\\n{value}"),
            "set t:7 0 0 3\r\na b\r\n"
        );
        for bad in ["", "  ", "GET {keys}", "GET {key", "GET \"k", "GET \"k\\"] {
            assert!(Template::parse(Protocol::Resp, bad, "any").is_err(), "{bad}");
        }
        assert!(Template::parse(Protocol::Classic, "get \\k", "any").is_err());
        for bad in ["", ":x", "*x", "OK|", "{keys}"] {
            assert!(Template::parse(Protocol::Resp, "GET k", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_expected_holds_or_does_not() {
        let mut own = Vec::new();
        value::write(&mut own, 7, 3, 40);
        let mut other = Vec::new();
        value::write(&mut other, 8, 3, 40);
        let cases: [(&str, Reply<'_>, bool); 20] = [
            ("any", Reply::Nil, true),
            ("any", Reply::Error(b"ERR no"), false),
            ("value", Reply::Value(&own), true),
            ("value", Reply::Value(&other), false),
            ("value", Reply::Nil, false),
            ("value|nil", Reply::Nil, true),
            (":", Reply::Number(b"5"), true),
            (":5", Reply::Number(b"5"), true),
            (":-5", Reply::Number(b"5"), false),
            (":1|:0", Reply::Number(b"0"), true),
            ("*", Reply::Many(3), true),
            ("*2", Reply::Many(3), false),
            ("OK", Reply::Text(b"OK"), true),
            ("+OK", Reply::Text(b"OK"), true),
            ("STORED", Reply::Text(b"NOT_STORED"), false),
            ("{n}", Reply::Number(b"7"), true),
            ("x{key}", Reply::Value(b"xkey:7"), true),
            ("{value}", Reply::Value(b"a b"), true),
            ("ERR no", Reply::Error(b"ERR no"), true),
            ("nil", Reply::Many(0), false),
        ];
        for (expected, reply, holds) in cases {
            let template = Template::parse(Protocol::Resp, "X", expected).unwrap();
            assert_eq!(template.holds(&reply, PRESENT), holds, "{expected} {}", reply.words());
        }
    }
}
