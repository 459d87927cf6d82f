//! Inline requests: words with quoting, as Redis splits them.

use super::args::Encoder;

/// Splits a line into words. Blanks separate; `"` quotes with `\xHH \n \r \t \b \a \<any>`; `'` quotes with `\'`. `None` if a
/// quote is not closed, or is closed inside a word.
pub fn split(line: &[u8]) -> Option<Encoder> {
    let mut words = Encoder::default();
    let mut word = Vec::new();
    let mut rest = line;
    loop {
        rest = &rest[rest.iter().take_while(|&&byte| is_blank(byte)).count()..];
        // Redis's words are C strings: a NUL ends the word and the line.
        if rest.is_empty() || rest[0] == 0 {
            return Some(words);
        }
        word.clear();
        rest = take_word(rest, &mut word)?;
        words.push(&word);
    }
}

/// The blanks between words: C's `isspace`, vertical tab included.
pub(super) fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn is_end(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0)
}

/// Takes one word off the start of `text`.
fn take_word<'a>(mut text: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let [byte, rest @ ..] = text {
        match *byte {
            byte if is_end(byte) => break,
            b'"' => return behind_quote(quoted(rest, word)?),
            b'\'' => return behind_quote(single_quoted(rest, word)?),
            byte => {
                word.push(byte);
                text = rest;
            }
        }
    }
    Some(text)
}

/// A closing quote ends the word.
fn behind_quote(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|&byte| is_blank(byte) || byte == 0).then_some(rest)
}

fn quoted<'a>(mut text: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        text = match text {
            [] | [0, ..] => return None,
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', b'x', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
                word.push(digit(*high) << 4 | digit(*low));
                rest
            }
            [b'\\', escaped, rest @ ..] if *escaped != 0 => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest
            }
            [byte, rest @ ..] => {
                word.push(*byte);
                rest
            }
        };
    }
}

fn single_quoted<'a>(mut text: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        text = match text {
            [] | [0, ..] => return None,
            [b'\'', rest @ ..] => return Some(rest),
            [b'\\', b'\'', rest @ ..] => {
                word.push(b'\'');
                rest
            }
            [byte, rest @ ..] => {
                word.push(*byte);
                rest
            }
        };
    }
}
