//! Meta commands: `mg ms md ma mn me`, a key, then flags of one letter with or without a token.
//!
//! ```text
//! mg <key> <flag>[token] …\r\n      ms <key> <bytes> <flag>[token] …\r\n<data>\r\n
//! ```
//!
//! Decoding records which letters there are, one bit each, and refuses unknown and repeated ones. A command reads the tokens that
//! it needs by [`Flags::iter`] and [`Flags::number`].

use crate::classic::{LINE_BYTES_MAX, Request, VALUE_BYTES_MAX, is_key, short_number};
use crate::fault::Fault;
use crate::number::{parse_i32, parse_length, parse_u32, parse_u64};
use crate::scan::{line, line_feed, token_end};
use crate::tokens::Tokens;

/// Most tokens of a line, command and key included.
pub const TOKENS_MAX: usize = 20;

/// Most bytes of an opaque, its letter not counted.
pub const OPAQUE_BYTES_MAX: usize = 31;

/// Which command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// mg
    Get,
    /// ms
    Set,
    /// md
    Delete,
    /// ma
    Arithmetic,
    /// mn
    Noop,
    /// me
    Debug,
}

impl Verb {
    /// All of them.
    pub const ALL: [Verb; 6] =
        [Verb::Get, Verb::Set, Verb::Delete, Verb::Arithmetic, Verb::Noop, Verb::Debug];

    /// The verb of a command's name.
    #[inline]
    pub fn from_name(name: &[u8]) -> Option<Verb> {
        match name {
            [b'm', letter] => Verb::from_letter(*letter),
            _ => None,
        }
    }

    #[inline]
    fn from_letter(letter: u8) -> Option<Verb> {
        match letter {
            b'g' => Some(Verb::Get),
            b's' => Some(Verb::Set),
            b'd' => Some(Verb::Delete),
            b'a' => Some(Verb::Arithmetic),
            b'n' => Some(Verb::Noop),
            b'e' => Some(Verb::Debug),
            _ => None,
        }
    }

    /// The command's name.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "mg",
            Verb::Set => "ms",
            Verb::Delete => "md",
            Verb::Arithmetic => "ma",
            Verb::Noop => "mn",
            Verb::Debug => "me",
        }
    }
}

/// A meta command, as far as its line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// Which.
    pub verb: Verb,
    /// The key as it came, encoded if flag b is there; empty for mn.
    pub key: &'a [u8],
    /// ms: bytes of the data block, its line end not counted.
    pub value_bytes: u32,
    /// The flags.
    pub flags: Flags<'a>,
}

/// The flags of a meta command: none twice, none unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags<'a> {
    text: &'a [u8],
    letters: u64,
}

/// One flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag<'a> {
    /// Its letter.
    pub letter: u8,
    /// What follows the letter.
    pub token: &'a [u8],
}

/// Bit of a letter: `A` is bit 0, `z` bit 57.
#[inline]
const fn bit(letter: u8) -> u64 {
    1 << (letter - b'A')
}

/// Every letter that some meta command knows, and the two that proxies add.
const KNOWN: u64 = bits(b"bcfhklqstuvxCDEFIJMNORTPL");

/// Flags that may come more than once.
const REPEATED: u64 = bits(b"PL");

const fn bits(letters: &[u8]) -> u64 {
    let (mut all, mut n) = (0, 0);
    while n < letters.len() {
        all |= bit(letters[n]);
        n += 1;
    }
    all
}

/// Flags with a number that a command does not use, but checks.
#[inline]
fn unread(verb: Verb) -> u64 {
    const GET: u64 = bits(b"DFJ");
    const SET: u64 = bits(b"DJR");
    const DELETE: u64 = bits(b"DFJNR");
    const ARITHMETIC: u64 = bits(b"FR");
    match verb {
        Verb::Get => GET,
        Verb::Set => SET,
        Verb::Delete => DELETE,
        Verb::Arithmetic => ARITHMETIC,
        Verb::Noop | Verb::Debug => 0,
    }
}

impl<'a> Flags<'a> {
    /// No flags.
    pub const NONE: Flags<'static> = Flags { text: &[], letters: 0 };

    /// Records the letters of `text`.
    #[inline]
    fn parse(verb: Verb, text: &'a [u8]) -> Result<Flags<'a>, Fault> {
        let mut letters = 0;
        let mut count = 0;
        let mut at = 0;
        while at < text.len() {
            if text[at] == b' ' {
                at += 1;
                continue;
            }
            count += 1;
            let letter = text[at];
            let offset = letter.wrapping_sub(b'A');
            let known = offset <= b'z' - b'A' && KNOWN & 1 << offset != 0;
            if !known || letters & !REPEATED & 1 << offset != 0 {
                return Flags::parse_odd(verb, text);
            }
            letters |= 1 << offset;
            at += 1;
            while at < text.len() && text[at] != b' ' {
                at += 1;
            }
        }
        if count > flags_max(verb) {
            return Err(Fault::TooManyFlags);
        }
        let flags = Flags { text, letters };
        if letters & unread(verb) != 0 {
            flags.check_unread(verb)?;
        }
        Ok(flags)
    }

    /// Finds the fault of flags of which one is unknown or repeated: the first one's, unless there are too many tokens. `me`
    /// ignores all flags but `b`.
    #[cold]
    fn parse_odd(verb: Verb, text: &'a [u8]) -> Result<Flags<'a>, Fault> {
        if Tokens::new(text).count() > flags_max(verb) {
            return Err(Fault::TooManyFlags);
        }
        let mut letters = 0;
        for token in Tokens::new(text) {
            let letter = match token[0] {
                letter @ b'A'..=b'z' => bit(letter),
                b'0'..=b'9' => 0,
                _ => return Err(Fault::BadLine),
            };
            if verb != Verb::Debug {
                if letter & KNOWN == 0 {
                    return Err(Fault::UnknownFlag);
                }
                if letters & letter & !REPEATED != 0 {
                    return Err(Fault::DuplicateFlag);
                }
            }
            letters |= letter;
        }
        Ok(Flags { text: &[], letters: letters & bit(b'b') })
    }

    /// Checks the flags that only other commands use: their numbers must be numbers, too.
    #[cold]
    fn check_unread(&self, verb: Verb) -> Result<(), Fault> {
        for Flag { letter, token } in self.iter().filter(|flag| unread(verb) & bit(flag.letter) != 0) {
            match letter {
                b'D' => drop(parse_u64(token).ok_or(Fault::BadFlagDelta)?),
                b'J' => drop(parse_u64(token).ok_or(Fault::BadFlagInitial)?),
                b'F' => drop(parse_u32(token).ok_or(Fault::BadLine)?),
                _ => drop(parse_i32(token).ok_or(Fault::BadToken)?),
            }
        }
        Ok(())
    }

    /// The flag is there.
    #[inline]
    pub fn has(&self, letter: u8) -> bool {
        self.letters & bit(letter) != 0
    }

    /// One of `letters` is there.
    #[inline]
    pub fn has_any(&self, letters: &[u8]) -> bool {
        letters.iter().any(|&letter| self.has(letter))
    }

    /// No flag at all.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.letters == 0
    }

    /// No flag but `letter`, which is there.
    #[inline]
    pub fn is_only(&self, letter: u8) -> bool {
        self.letters == bit(letter)
    }

    /// The flags in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Flag<'a>> + use<'a> {
        Tokens::new(self.text).map(|text| Flag { letter: text[0], token: &text[1..] })
    }

    /// The token of a flag that is there.
    pub fn token(&self, letter: u8) -> Option<&'a [u8]> {
        if !self.has(letter) {
            return None;
        }
        self.iter().find(|flag| flag.letter == letter).map(|flag| flag.token)
    }

    /// The unsigned 64-bit number of a flag, if it is there.
    ///
    /// # Errors
    /// When its token is no such number.
    pub fn number(&self, letter: u8) -> Result<Option<u64>, Fault> {
        self.token(letter).map(|token| parse_u64(token).ok_or(Fault::BadToken)).transpose()
    }

    /// The version that E gives, if it is there; 0 leaves the choice to the server.
    ///
    /// # Errors
    /// When its token is no number.
    pub fn version(&self) -> Result<Option<u64>, Fault> {
        Ok(self.number(b'E')?.filter(|version| *version != 0))
    }

    /// The exptime of a flag, if it is there.
    ///
    /// # Errors
    /// When its token is no number of 32 bits.
    pub fn exptime(&self, letter: u8) -> Result<Option<i32>, Fault> {
        self.token(letter).map(|token| parse_i32(token).ok_or(Fault::BadToken)).transpose()
    }

    /// The opaque, if it is there.
    ///
    /// # Errors
    /// When it is longer than [`OPAQUE_BYTES_MAX`].
    pub fn opaque(&self) -> Result<Option<&'a [u8]>, Fault> {
        match self.token(b'O') {
            Some(token) if token.len() > OPAQUE_BYTES_MAX => Err(Fault::LongOpaque),
            opaque => Ok(opaque),
        }
    }
}

/// `m? <key> …` with single spaces and a legal key, and the bytes of the line; `None` for anything else, which
/// [`crate::classic::decode`] then reads.
#[inline]
pub fn decode_start(input: &[u8]) -> Option<(Meta<'_>, usize)> {
    let ([b'm', letter, b' '], rest) = input.split_first_chunk::<3>()? else { return None };
    let verb = Verb::from_letter(*letter)?;
    if matches!(verb, Verb::Noop) {
        return None;
    }
    let end = token_end(rest);
    if end == 0 || !is_key(&rest[..end]) {
        return None;
    }
    let key = &rest[..end];
    let mut at = end;
    let mut value_bytes = 0;
    if matches!(verb, Verb::Set) {
        if rest.get(at) != Some(&b' ') {
            return None;
        }
        at += 1;
        value_bytes = short_number(rest, &mut at)?;
    }
    let after = &rest[at..];
    let (flags, line_bytes) = match after {
        [b'\r', b'\n', ..] => (Flags::NONE, 2),
        // The most usual flag.
        [b' ', b'v', b'\r', b'\n', ..] => (Flags { text: &after[..2], letters: bit(b'v') }, 4),
        [b' ', ..] => {
            let feed = line_feed(after).filter(|feed| 3 + at + feed <= LINE_BYTES_MAX)?;
            (Flags::parse(verb, line(after, feed)).ok()?, feed + 1)
        }
        _ => return None,
    };
    Some((Meta { verb, key, value_bytes, flags }, 3 + at + line_bytes))
}

/// Most flags that a line of [`TOKENS_MAX`] tokens has room for.
fn flags_max(verb: Verb) -> usize {
    match verb {
        Verb::Set => TOKENS_MAX - 3,
        Verb::Get | Verb::Delete | Verb::Arithmetic | Verb::Noop | Verb::Debug => TOKENS_MAX - 2,
    }
}

/// Reads the tokens behind a meta command's name.
pub(crate) fn decode_tokens<'a>(verb: Verb, mut tokens: Tokens<'a>) -> Request<'a> {
    let fault = |fault, swallow| Request::Fault { fault, swallow, noreply: false };
    if matches!(verb, Verb::Noop) {
        return Request::Meta(Meta { verb, key: &[], value_bytes: 0, flags: Flags::NONE });
    }
    let stores = matches!(verb, Verb::Set);
    let Some(key) = tokens.next() else { return fault(Fault::BadLine, 0) };
    let mut swallow = 0;
    let mut value_bytes = 0;
    if stores {
        let word = tokens.next();
        match word.and_then(parse_length).filter(|&n| n <= VALUE_BYTES_MAX) {
            Some(bytes) => {
                value_bytes = bytes as u32;
                swallow = bytes + 2;
            }
            None => return fault(Fault::of_length(word), 0),
        }
    }
    if !is_key(key) {
        return fault(Fault::BadLine, swallow);
    }
    match Flags::parse(verb, tokens.rest()) {
        Ok(flags) => Request::Meta(Meta { verb, key, value_bytes, flags }),
        Err(Fault::BadLine) if verb == Verb::Arithmetic && has_odd_byte(tokens.rest()) => {
            fault(Fault::BadLine, 0)
        }
        Err(_) if matches!(verb, Verb::Arithmetic) => fault(Fault::BadArithmeticFlag, 0),
        Err(why) => fault(why, swallow),
    }
}

/// A flag is neither letter nor digit.
fn has_odd_byte(flags: &[u8]) -> bool {
    Tokens::new(flags).any(|token| !matches!(token[0], b'0'..=b'9' | b'A'..=b'z'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classic::{Decoded, decode};

    fn request(text: &str) -> Request<'_> {
        match decode(text.as_bytes()) {
            Decoded::Request(request, bytes) => {
                assert_eq!(bytes, text.len());
                request
            }
            other => panic!("{other:?}"),
        }
    }

    fn meta(text: &str) -> Meta<'_> {
        match request(text) {
            Request::Meta(meta) => meta,
            other => panic!("{other:?}"),
        }
    }

    fn fault(text: &str) -> (Fault, u64) {
        match request(text) {
            Request::Fault { fault, swallow, .. } => (fault, swallow),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_keep_their_order_and_tokens() {
        let meta = meta("mg key t  v Oabc N30\r\n");
        assert_eq!((meta.verb, meta.key), (Verb::Get, &b"key"[..]));
        let flags: Vec<_> = meta.flags.iter().map(|f| (f.letter as char, f.token)).collect();
        assert_eq!(flags, [('t', &b""[..]), ('v', b""), ('O', b"abc"), ('N', b"30")]);
        assert!(meta.flags.has(b'v') && !meta.flags.has(b'k'));
        assert_eq!(meta.flags.exptime(b'N'), Ok(Some(30)));
        assert_eq!(meta.flags.opaque(), Ok(Some(&b"abc"[..])));
        assert_eq!(meta.flags.number(b'O'), Err(Fault::BadToken));
    }

    #[test]
    fn a_bare_request_has_no_flags() {
        assert!(meta("mg key\r\n").flags.is_empty());
        assert!(meta("mg key \n").flags.is_empty());
        assert!(meta("mg key v\r\n").flags.is_only(b'v'));
        assert_eq!(meta("ms key 10 T1\r\n").value_bytes, 10);
        assert_eq!(meta("mn foo\r\n").verb, Verb::Noop);
    }

    #[test]
    fn bad_flags_are_told_apart() {
        assert_eq!(fault("mg k v v\r\n"), (Fault::DuplicateFlag, 0));
        for (flag, why) in [
            ("!", Fault::BadLine),
            ("\u{80}", Fault::BadLine),
            ("W", Fault::UnknownFlag),
            ("7", Fault::UnknownFlag),
            ("S1", Fault::UnknownFlag),
        ] {
            assert_eq!(fault(&format!("mg k {flag}\r\n")), (why, 0));
            assert_eq!(fault(&format!("md k v {flag}1\r\n")), (why, 0));
            assert_eq!(fault(&format!("ms k 1 {flag}\r\n")), (why, 3));
        }
        assert_eq!(fault("ma k v v\r\n"), (Fault::BadArithmeticFlag, 0));
        assert_eq!(fault("ma k S\r\n"), (Fault::BadArithmeticFlag, 0));
        assert_eq!(fault("ma k !\r\n"), (Fault::BadLine, 0));
        assert!(matches!(request("me k W v v 7\r\n"), Request::Meta(_)), "me looks at none");
        assert_eq!(fault("me k !\r\n"), (Fault::BadLine, 0));
        assert!(meta("mg k M x I\r\n").flags.has(b'M'), "flags of other commands are accepted");
        assert!(meta("mg k Pa Lb P L\r\n").flags.has(b'P'));
    }

    #[test]
    fn numbers_of_flags_that_a_command_does_not_read_are_numbers_all_the_same() {
        for (line, why) in [
            ("mg k Dx", Fault::BadFlagDelta),
            ("mg k J", Fault::BadFlagInitial),
            ("mg k F4294967296", Fault::BadLine),
            ("md k N", Fault::BadToken),
            ("md k R4294967296", Fault::BadToken),
            ("ma k R", Fault::BadArithmeticFlag),
            ("ma k F+1", Fault::BadArithmeticFlag),
        ] {
            assert_eq!(fault(&format!("{line}\r\n")), (why, 0), "{line}");
        }
        assert_eq!(fault("ms k 1 D-1\r\n"), (Fault::BadFlagDelta, 3));
        assert_eq!(fault("ms k 1 Rx\r\n"), (Fault::BadToken, 3));
        for line in ["mg k D1 J18446744073709551615 F4294967295", "md k N-1 R30 F1", "ms k 1 D0 J0 R-1"] {
            assert!(matches!(request(&format!("{line}\r\n")), Request::Meta(_)), "{line}");
        }
    }

    #[test]
    fn tokens_have_a_limit() {
        let line = |start: &str, flags: usize| {
            let all = "b c f h k l q s t u v x C1 D1 E1 F1 I J1 M N1".split(' ');
            format!("{start} {}\r\n", all.take(flags).collect::<Vec<_>>().join(" "))
        };
        assert!(matches!(request(&line("mg k", 17)), Request::Meta(_)));
        assert!(matches!(request(&line("mg k", 18)), Request::Meta(_)));
        assert_eq!(fault(&line("mg k", 19)), (Fault::TooManyFlags, 0));
        assert!(matches!(request(&line("ms k 1", 17)), Request::Meta(_)));
        assert_eq!(fault(&line("ms k 1", 18)), (Fault::TooManyFlags, 3));
    }

    #[test]
    fn opaques_have_a_limit() {
        let line = |bytes: usize| format!("mg k O{}\r\n", "o".repeat(bytes));
        assert!(meta(&line(OPAQUE_BYTES_MAX - 1)).flags.opaque().is_ok());
        assert!(meta(&line(OPAQUE_BYTES_MAX)).flags.opaque().is_ok());
        assert_eq!(meta(&line(OPAQUE_BYTES_MAX + 1)).flags.opaque(), Err(Fault::LongOpaque));
    }

    #[test]
    fn stores_swallow_their_data_when_the_length_is_known() {
        assert_eq!(fault("ms k 2 !\r\n"), (Fault::BadLine, 4));
        for line in ["ms k S1\r\n", "ms k 2147483646\r\n"] {
            assert_eq!(fault(line), (Fault::NoLength, 0), "{line}");
        }
        for line in ["ms k -1\r\n", "ms k\r\n", "ms\r\n"] {
            assert_eq!(fault(line), (Fault::BadLine, 0), "{line}");
        }
        assert!(matches!(request("ms k 2147483645\r\n"), Request::Meta(_)));
        let long = format!("ms {} 2\r\n", "k".repeat(251));
        assert_eq!(fault(&long), (Fault::BadLine, 4));
        assert_eq!(fault("mg\r\n"), (Fault::BadLine, 0));
    }
}
