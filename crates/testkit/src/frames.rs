//! Frames of memcached's binary protocol as a transcript writes them.
//!
//! ```text
//! > set k flags=7 exptime=0 cas=$c value=hello       a request: its opcode, then its fields
//! < set cas=$c                                       a reply: its opcode, then its fields
//! < get status=1 value=Not found
//! ```
//!
//! | word | is |
//! |---|---|
//! | an opcode's name without spaces, or `0xNN` | the first word |
//! | `key=TEXT`, `cas=N`, `opaque=N`, `status=N` | of the header; 0, or none, unless written |
//! | `flags=N`, `exptime=N`, `delta=N`, `initial=N`, `level=N` | of the extras, in the order in which they are written |
//! | `extras=TEXT` | the extras as they are |
//! | `number=N` | a value of eight bytes |
//! | `value=TEXT` | the value: the rest of the line |
//! | `cas=$name`, `cas=$_` | the token of a reply is captured, or any but 0 |
//! | `raw TEXT` | in place of all that: these bytes |
//!
//! TEXT has the escapes of [`crate::pattern`], but no captures.

use crate::pattern::{Captures, Pattern};

/// Opcodes by their numbers, the protocol's own names.
#[rustfmt::skip]
const OPCODES: [&str; 0x25] = [
    "get", "set", "add", "replace", "delete", "increment", "decrement", "quit", "flush", "getq", "noop", "version", "getk",
    "getkq", "append", "prepend", "stat", "setq", "addq", "replaceq", "deleteq", "incrementq", "decrementq", "quitq",
    "flushq", "appendq", "prependq", "verbosity", "touch", "gat", "gatq", "", "sasl-list-mechs", "sasl-auth", "sasl-step",
    "gatk", "gatkq",
];

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the server.
    Request,
    /// From the server.
    Reply,
}

/// A request that every server answers with the same bytes, and these bytes.
pub fn probe() -> (Vec<u8>, Vec<u8>) {
    let frame = |way| parse(way, "noop opaque=123456789").and_then(|frame| frame.render(&Captures::new()));
    let [request, reply] = [Way::Request, Way::Reply].map(|way| frame(way).expect("a frame"));
    (request, reply)
}

/// The bytes of a frame.
///
/// # Errors
/// Names the word that no frame has.
pub fn parse(way: Way, text: &str) -> Result<Pattern, String> {
    if let Some(raw) = text.strip_prefix("raw ") {
        return Pattern::parse(raw);
    }
    let bytes = |text: &str| Pattern::parse(text)?.render(&Captures::new());
    let (words, value) = match text.split_once(" value=") {
        Some((words, value)) => (words, Some(bytes(value)?)),
        None => (text, None),
    };
    let mut words = words.split(' ').filter(|word| !word.is_empty());
    let code = opcode(words.next().ok_or("a frame has an opcode")?)?;
    let (mut key, mut extras, mut value) = (Vec::new(), Vec::new(), value.unwrap_or_default());
    let (mut status, mut opaque, mut cas) = (0, 0, Pattern::default());
    cas.push(&[0; 8]);
    for word in words {
        let (name, text) = word.split_once('=').ok_or(format!("{word:?} is no part of a frame"))?;
        let number = || text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
        let short = || u32::try_from(number()?).map_err(|_| format!("{text:?} is too large"));
        match name {
            "key" => key = bytes(text)?,
            "extras" => extras = bytes(text)?,
            "flags" | "exptime" | "level" => extras.extend(short()?.to_be_bytes()),
            "delta" | "initial" => extras.extend(number()?.to_be_bytes()),
            "number" => value = number()?.to_be_bytes().into(),
            "opaque" => opaque = short()?,
            "status" if way == Way::Reply => {
                status = u16::try_from(short()?).map_err(|_| format!("{text:?} is too large"))?;
            }
            "cas" => {
                cas = Pattern::default();
                match text.strip_prefix('$') {
                    Some("_") => cas.any_token(),
                    Some(name) => cas.token(name.to_owned()),
                    None => cas.push(&number()?.to_be_bytes()),
                }
            }
            _ => return Err(format!("{word:?} is no part of a frame")),
        }
    }
    let magic = if way == Way::Request { 0x80 } else { 0x81 };
    let key_bytes = u16::try_from(key.len()).map_err(|_| "the key is too long")?;
    let extras_bytes = u8::try_from(extras.len()).map_err(|_| "the extras are too long")?;
    let body_bytes = (extras.len() + key.len() + value.len()) as u32;
    let mut header = Vec::new();
    header.extend([magic, code]);
    header.extend(key_bytes.to_be_bytes());
    header.extend([extras_bytes, 0]);
    header.extend(status.to_be_bytes());
    header.extend(body_bytes.to_be_bytes());
    header.extend(opaque.to_be_bytes());
    let mut frame = Pattern::default();
    frame.push(&header);
    frame.join(&cas);
    frame.push(&[extras, key, value].concat());
    Ok(frame)
}

fn opcode(word: &str) -> Result<u8, String> {
    let unknown = || format!("{word:?} is no opcode");
    match word.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).map_err(|_| unknown()),
        None => OPCODES.iter().position(|name| *name == word).map(|code| code as u8).ok_or_else(unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Match;

    #[test]
    fn a_request_has_its_parts_in_their_places() {
        let text = r"set key=a\x20b flags=7 exptime=1 cas=258 opaque=9 value=some text";
        let bytes = parse(Way::Request, text).unwrap().render(&Captures::new()).unwrap();
        let expected = b"\x80\x01\0\x03\x08\0\0\0\0\0\0\x14\0\0\0\x09\0\0\0\0\0\0\x01\x02\0\0\0\x07\0\0\0\x01a bsome text";
        assert_eq!(bytes, expected);
        assert!(parse(Way::Request, "sets key=a").is_err() && parse(Way::Request, "set a").is_err());
        assert!(parse(Way::Request, "get status=1").is_err());
    }

    #[test]
    fn a_token_is_captured_and_sent_again() {
        let mut captures = Captures::new();
        let reply = |cas: u8| [b"\x81\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", &[cas][..]].concat();
        let pattern = parse(Way::Reply, "set cas=$c").unwrap();
        assert_eq!(pattern.matches(&reply(5)[..20], &mut captures), Match::More);
        assert_eq!(pattern.matches(&reply(5), &mut captures), Match::Full(24));
        assert_eq!(pattern.matches(&reply(6), &mut captures), Match::Differs(23));
        let any = parse(Way::Reply, "set cas=$_").unwrap();
        assert_eq!(any.matches(&reply(6), &mut captures), Match::Full(24));
        assert_eq!(any.matches(&reply(0), &mut captures), Match::Differs(16));
        let sent = parse(Way::Request, "get key=k cas=$c").unwrap().render(&captures).unwrap();
        assert_eq!(sent[16..24], [0, 0, 0, 0, 0, 0, 0, 5]);
    }
}
