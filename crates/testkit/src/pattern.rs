//! Bytes as a transcript writes them: escapes, repetitions, captures.
//!
//! ```text
//! \r \n \t \0 \\ \$ \xNN    one byte
//! \(text*250)               text, 250 times; it may hold escapes and repetitions, no captures;
//!                           \# in it is the index of the round, from 0
//! $name                     sent: the captured digits; expected: digits, captured at first sight
//! $_                        expected only: one or more digits, not captured
//! $~                        expected only: anything up to CR or LF, at least one byte
//! ```
//!
//! A [`Pattern`] is matched against a growing buffer: the result is "more" until the bytes decide.

use std::collections::HashMap;

/// Bytes of a token in a frame.
const TOKEN_BYTES: usize = 8;

/// Captured digits by name.
pub type Captures = HashMap<String, Vec<u8>>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Bytes(Vec<u8>),
    Capture(String),
    Digits,
    Text,
    /// Eight bytes that are not all zero: captured, or any.
    Token(Option<String>),
}

/// A parsed line of a transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    pieces: Vec<Piece>,
}

/// The result of matching a buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum Match {
    /// It begins with the pattern, which took this many bytes.
    Full(usize),
    /// It may become a match.
    More,
    /// It differs at this byte, whatever follows.
    Differs(usize),
}

impl Pattern {
    /// Parses the text behind `> ` or `< `.
    ///
    /// # Errors
    /// What is wrong with the escapes.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        let mut pattern = Pattern::default();
        let mut rest = text.as_bytes();
        while let Some((&first, tail)) = rest.split_first() {
            match first {
                b'\\' => rest = pattern.escape(tail)?,
                b'$' => rest = pattern.variable(tail)?,
                _ => {
                    pattern.push(&[first]);
                    rest = tail;
                }
            }
        }
        Ok(pattern)
    }

    /// Adds another pattern.
    pub fn join(&mut self, other: &Pattern) {
        for piece in &other.pieces {
            match piece {
                Piece::Bytes(bytes) => self.push(bytes),
                other => self.pieces.push(other.clone()),
            }
        }
    }

    /// Adds a capture.
    pub fn capture(&mut self, name: String) {
        self.pieces.push(Piece::Capture(name));
    }

    /// Adds eight bytes that are captured at first sight.
    pub fn token(&mut self, name: String) {
        self.pieces.push(Piece::Token(Some(name)));
    }

    /// Adds eight bytes that are not all zero and are not captured.
    pub fn any_token(&mut self) {
        self.pieces.push(Piece::Token(None));
    }

    /// The bytes to send.
    ///
    /// # Errors
    /// Names a capture that nothing has captured, or a wildcard, which cannot be sent.
    pub fn render(&self, captures: &Captures) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(literal) => bytes.extend_from_slice(literal),
                Piece::Capture(name) | Piece::Token(Some(name)) => {
                    bytes.extend_from_slice(captures.get(name).ok_or(format!("${name} is not captured yet"))?)
                }
                Piece::Digits | Piece::Text | Piece::Token(None) => {
                    return Err("a wildcard cannot be sent".into());
                }
            }
        }
        Ok(bytes)
    }

    /// Whether it expects nothing.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Matches from the start of `buffer`; on a full match, new captures are added.
    pub fn matches(&self, buffer: &[u8], captures: &mut Captures) -> Match {
        let mut found: Vec<(String, Vec<u8>)> = Vec::new();
        let mut at = 0;
        for piece in &self.pieces {
            let rest = &buffer[at..];
            let known = match piece {
                Piece::Bytes(literal) => Some(literal.clone()),
                Piece::Capture(name) | Piece::Token(Some(name)) => captures
                    .get(name)
                    .or_else(|| found.iter().find(|(other, _)| other == name).map(|(_, digits)| digits))
                    .cloned(),
                Piece::Digits | Piece::Text | Piece::Token(None) => None,
            };
            if let Some(literal) = known {
                let same = literal.iter().zip(rest).take_while(|(a, b)| a == b).count();
                if same < literal.len() {
                    return if same == rest.len() { Match::More } else { Match::Differs(at + same) };
                }
                at += literal.len();
                continue;
            }
            if let Piece::Token(name) = piece {
                let Some(token) = rest.first_chunk::<TOKEN_BYTES>() else { return Match::More };
                if *token == [0; TOKEN_BYTES] {
                    return Match::Differs(at);
                }
                found.extend(name.iter().map(|name| (name.clone(), token.to_vec())));
                at += TOKEN_BYTES;
                continue;
            }
            let is_part: fn(&u8) -> bool = match piece {
                Piece::Text => |byte| !matches!(byte, b'\r' | b'\n'),
                _ => u8::is_ascii_digit,
            };
            let taken = rest.iter().take_while(|byte| is_part(byte)).count();
            if taken == rest.len() {
                return Match::More;
            }
            if taken == 0 {
                return Match::Differs(at);
            }
            if let Piece::Capture(name) = piece {
                found.push((name.clone(), rest[..taken].to_vec()));
            }
            at += taken;
        }
        captures.extend(found);
        Match::Full(at)
    }

    /// The expected bytes as text: wildcards as written, captures filled in if known.
    pub fn describe(&self, captures: &Captures) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => text.push_str(&escaped(bytes)),
                Piece::Capture(name) | Piece::Token(Some(name)) => match captures.get(name) {
                    Some(digits) => text.push_str(&escaped(digits)),
                    None => text.push_str(&format!("${name}")),
                },
                Piece::Digits | Piece::Token(None) => text.push_str("$_"),
                Piece::Text => text.push_str("$~"),
            }
        }
        text
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        match self.pieces.last_mut() {
            Some(Piece::Bytes(last)) => last.extend_from_slice(bytes),
            _ => self.pieces.push(Piece::Bytes(bytes.to_vec())),
        }
    }

    fn escape<'t>(&mut self, text: &'t [u8]) -> Result<&'t [u8], String> {
        let (byte, tail) = text.split_first().ok_or("a backslash ends the line")?;
        let literal = match byte {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'0' => 0,
            b'\\' | b'$' => *byte,
            b'x' => {
                let digits = tail.get(..2).ok_or("\\x wants two digits")?;
                let digits = std::str::from_utf8(digits).map_err(|_| "\\x wants two digits")?;
                self.push(&[u8::from_str_radix(digits, 16).map_err(|_| "\\x wants two digits")?]);
                return Ok(&tail[2..]);
            }
            b'(' => return self.repetition(tail),
            other => return Err(format!("unknown escape \\{}", char::from(*other))),
        };
        self.push(&[literal]);
        Ok(tail)
    }

    fn repetition<'t>(&mut self, text: &'t [u8]) -> Result<&'t [u8], String> {
        let end = closing(text).ok_or("\\( without )")?;
        let inside = std::str::from_utf8(&text[..end]).map_err(|_| "\\(…) is not text")?;
        let (what, count) = inside.rsplit_once('*').ok_or("\\(…) without *")?;
        let count: usize = count.parse().map_err(|_| format!("{count:?} is not a count"))?;
        if what.contains("\\#") {
            for index in 0..count {
                let what = Pattern::parse(&what.replace("\\#", &index.to_string()))?;
                self.push(&what.render(&Captures::new())?);
            }
        } else {
            self.push(&Pattern::parse(what)?.render(&Captures::new())?.repeat(count));
        }
        Ok(&text[end + 1..])
    }

    fn variable<'t>(&mut self, text: &'t [u8]) -> Result<&'t [u8], String> {
        let piece = match text.first() {
            Some(b'_') => Piece::Digits,
            Some(b'~') => Piece::Text,
            Some(byte) if byte.is_ascii_lowercase() => {
                let end = text
                    .iter()
                    .position(|byte| !byte.is_ascii_lowercase() && !byte.is_ascii_digit())
                    .unwrap_or(text.len());
                let name = String::from_utf8_lossy(&text[..end]).into_owned();
                self.pieces.push(Piece::Capture(name));
                return Ok(&text[end..]);
            }
            _ => return Err("$ wants a name, _ or ~ (a dollar sign is \\$)".into()),
        };
        self.pieces.push(piece);
        Ok(&text[1..])
    }
}

/// The end of the repetition in which `text` begins.
fn closing(text: &[u8]) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'(' if at > 0 && text[at - 1] == b'\\' => depth += 1,
            b')' if depth == 0 => return Some(at),
            b')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Bytes as a transcript would write them, shortened in the middle when long.
pub fn escaped(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 400;
    if bytes.len() > SHOWN_BYTES_MAX {
        let (head, tail) = (&bytes[..SHOWN_BYTES_MAX / 2], &bytes[bytes.len() - SHOWN_BYTES_MAX / 2..]);
        return format!("{}…({} bytes)…{}", escaped(head), bytes.len(), escaped(tail));
    }
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'\\' => text.push_str("\\\\"),
            b'$' => text.push_str("\\$"),
            0x20..=0x7e => text.push(char::from(*byte)),
            other => text.push_str(&format!("\\x{other:02x}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(pattern: &str, bytes: &[u8]) -> Match {
        Pattern::parse(pattern).expect("valid").matches(bytes, &mut Captures::new())
    }

    #[test]
    fn escapes_and_repetitions_become_bytes() {
        let pattern = Pattern::parse("a\\x00\\(b\\r*3)\\$\\\\").expect("valid");
        assert_eq!(pattern.render(&Captures::new()).expect("bytes"), b"a\0b\rb\rb\r$\\");
        let pattern = Pattern::parse("\\(k\\#=\\(v*2) *2).").expect("valid");
        assert_eq!(pattern.render(&Captures::new()).expect("bytes"), b"k0=vv k1=vv .");
    }

    #[test]
    fn a_capture_must_recur_with_the_same_digits() {
        assert_eq!(full("$a $a\\r", b"12 12\r"), Match::Full(6));
        assert_eq!(full("$a $a\\r", b"12 13\r"), Match::Differs(4));
        assert_eq!(full("$a\\r", b"x\r"), Match::Differs(0));
    }

    #[test]
    fn an_unfinished_reply_asks_for_more_and_a_wrong_one_does_not() {
        assert_eq!(full("END\\r\\n", b"EN"), Match::More);
        assert_eq!(full("END\\r\\n", b"ER"), Match::Differs(1));
        assert_eq!(full("STAT time $_\\r\\n", b"STAT time 12"), Match::More);
    }

    #[test]
    fn broken_escapes_are_refused() {
        for text in ["\\", "\\q", "\\x1", "\\(a)", "\\(a*b)", "$", "$A"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
