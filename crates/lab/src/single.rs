//! Requests of one key and their whole replies, in any protocol: what clients send whose next request
//! depends on the last reply.
//!
//! ```text
//! classic   get k            VALUE k 0 n … END | END        set k 0 ttl n …   STORED   delete k  DELETED
//! meta      mg k v           VA n … | EN                    ms k n Tttl …     HD       md k      HD
//! RESP      GET k            $n … | $-1                     SET k … EX ttl    +OK      DEL k     :1
//! ```

use std::io::Write;

use crate::wire::{Malformed, Protocol, line, number, value};

/// The reply to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The value asked for.
    Value(&'a [u8]),
    /// There is none.
    Miss,
    /// It was stored.
    Stored,
    /// It was deleted.
    Deleted,
    /// The server did not do it: the line that says why.
    Refused(&'a [u8]),
}

/// What was asked, which says how the answer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A read.
    Get,
    /// A write.
    Set,
    /// A delete.
    Delete,
}

/// Appends a read.
pub fn get(protocol: Protocol, out: &mut Vec<u8>, key: &[u8]) {
    // Writing into a vector cannot fail, here and below.
    let _ = match protocol {
        Protocol::Classic => write!(out, "get "),
        Protocol::Meta => write!(out, "mg "),
        Protocol::Resp => write!(out, "*2\r\n$3\r\nGET\r\n${}\r\n", key.len()),
    };
    out.extend_from_slice(key);
    out.extend_from_slice(if protocol == Protocol::Meta { b" v\r\n" } else { b"\r\n" });
}

/// Appends a delete.
pub fn delete(protocol: Protocol, out: &mut Vec<u8>, key: &[u8]) {
    let _ = match protocol {
        Protocol::Classic => write!(out, "delete "),
        Protocol::Meta => write!(out, "md "),
        Protocol::Resp => write!(out, "*2\r\n$3\r\nDEL\r\n${}\r\n", key.len()),
    };
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

/// Appends a write of a value of `value_bytes` that `value` appends; it lives for `ttl_s` seconds, or
/// for ever if that is 0.
pub fn set(
    protocol: Protocol,
    out: &mut Vec<u8>,
    key: &[u8],
    ttl_s: u32,
    value_bytes: usize,
    value: impl FnOnce(&mut Vec<u8>),
) {
    match protocol {
        Protocol::Classic => {
            out.extend_from_slice(b"set ");
            out.extend_from_slice(key);
            let _ = write!(out, " 0 {ttl_s} {value_bytes}\r\n");
        }
        Protocol::Meta => {
            out.extend_from_slice(b"ms ");
            out.extend_from_slice(key);
            let _ = match ttl_s {
                0 => write!(out, " {value_bytes}\r\n"),
                _ => write!(out, " {value_bytes} T{ttl_s}\r\n"),
            };
        }
        Protocol::Resp => {
            let words = if ttl_s == 0 { 3 } else { 5 };
            let _ = write!(out, "*{words}\r\n$3\r\nSET\r\n${}\r\n", key.len());
            out.extend_from_slice(key);
            let _ = write!(out, "\r\n${value_bytes}\r\n");
        }
    }
    value(out);
    out.extend_from_slice(b"\r\n");
    if protocol == Protocol::Resp && ttl_s > 0 {
        let digits = ttl_s.to_string();
        let _ = write!(out, "$2\r\nEX\r\n${}\r\n{digits}\r\n", digits.len());
    }
}

/// Reads the whole answer at the start of `bytes` and how long it is; none while it is not all there.
///
/// # Errors
/// [`Malformed`] when it is no answer to what was asked.
pub fn answer(
    protocol: Protocol,
    asked: Asked,
    bytes: &[u8],
) -> Result<Option<(Answer<'_>, usize)>, Malformed> {
    let Some((line, header_bytes)) = line(bytes)? else { return Ok(None) };
    let refused = match protocol {
        Protocol::Resp => line.starts_with(b"-"),
        Protocol::Classic | Protocol::Meta => {
            line == b"ERROR"
                || [&b"SERVER_ERROR"[..], b"CLIENT_ERROR", b"NOT_STORED", b"NS", b"EX"]
                    .iter()
                    .any(|start| line.starts_with(start))
        }
    };
    let whole = |answer| Ok(Some((answer, header_bytes)));
    if refused {
        return whole(Answer::Refused(line));
    }
    match (protocol, asked) {
        (Protocol::Classic, Asked::Get) if line == b"END" => whole(Answer::Miss),
        (Protocol::Classic, Asked::Get) => {
            let digits = line.strip_prefix(b"VALUE ").ok_or(Malformed)?;
            let digits = digits.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
            let Some((value, used)) = value(bytes, header_bytes, number(digits)?)? else { return Ok(None) };
            match bytes.get(used..used + 5) {
                None if b"END\r\n".starts_with(&bytes[used..]) => Ok(None),
                Some(b"END\r\n") => Ok(Some((Answer::Value(value), used + 5))),
                _ => Err(Malformed),
            }
        }
        (Protocol::Classic, Asked::Set) if line == b"STORED" => whole(Answer::Stored),
        (Protocol::Classic, Asked::Delete) if line == b"DELETED" => whole(Answer::Deleted),
        (Protocol::Classic, Asked::Delete) if line == b"NOT_FOUND" => whole(Answer::Miss),
        (Protocol::Meta, Asked::Get) if line == b"EN" => whole(Answer::Miss),
        (Protocol::Meta, Asked::Get) => {
            let digits = line.strip_prefix(b"VA ").ok_or(Malformed)?;
            let found = value(bytes, header_bytes, number(digits)?)?;
            Ok(found.map(|(value, used)| (Answer::Value(value), used)))
        }
        (Protocol::Meta, Asked::Set) if line == b"HD" => whole(Answer::Stored),
        (Protocol::Meta, Asked::Delete) if line == b"HD" => whole(Answer::Deleted),
        (Protocol::Meta, Asked::Delete) if line == b"NF" => whole(Answer::Miss),
        (Protocol::Resp, Asked::Get) if line == b"$-1" => whole(Answer::Miss),
        (Protocol::Resp, Asked::Get) => {
            let digits = line.strip_prefix(b"$").ok_or(Malformed)?;
            let found = value(bytes, header_bytes, number(digits)?)?;
            Ok(found.map(|(value, used)| (Answer::Value(value), used)))
        }
        (Protocol::Resp, Asked::Set) if line == b"+OK" => whole(Answer::Stored),
        (Protocol::Resp, Asked::Delete) if line == b":1" => whole(Answer::Deleted),
        (Protocol::Resp, Asked::Delete) if line == b":0" => whole(Answer::Miss),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_look_as_their_protocol_wants() {
        let value = |out: &mut Vec<u8>| out.extend_from_slice(b"abc");
        let set = |protocol, ttl_s| text(|out| set(protocol, out, b"k", ttl_s, 3, value));
        assert_eq!(set(Protocol::Classic, 0), "set k 0 0 3\r\nabc\r\n");
        assert_eq!(set(Protocol::Meta, 60), "ms k 3 T60\r\nabc\r\n");
        assert_eq!(set(Protocol::Resp, 0), "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nabc\r\n");
        assert_eq!(
            set(Protocol::Resp, 60),
            "*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nabc\r\n$2\r\nEX\r\n$2\r\n60\r\n"
        );
        assert_eq!(text(|out| get(Protocol::Meta, out, b"k")), "mg k v\r\n");
        assert_eq!(text(|out| delete(Protocol::Classic, out, b"k")), "delete k\r\n");
        assert_eq!(text(|out| delete(Protocol::Resp, out, b"k")), "*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n");
    }

    #[test]
    fn answers_are_read_whole_from_any_cut() {
        let cases: [(Protocol, Asked, &[u8], Answer<'_>); 9] = [
            (Protocol::Classic, Asked::Get, b"VALUE k 0 5\r\nEND\r\n\r\nEND\r\n", Answer::Value(b"END\r\n")),
            (Protocol::Classic, Asked::Get, b"END\r\n", Answer::Miss),
            (Protocol::Classic, Asked::Set, b"STORED\r\n", Answer::Stored),
            (Protocol::Classic, Asked::Delete, b"DELETED\r\n", Answer::Deleted),
            (Protocol::Meta, Asked::Get, b"VA 2\r\nab\r\n", Answer::Value(b"ab")),
            (Protocol::Resp, Asked::Get, b"$2\r\nab\r\n", Answer::Value(b"ab")),
            (Protocol::Resp, Asked::Set, b"-OOM no\r\n", Answer::Refused(b"-OOM no")),
            (Protocol::Resp, Asked::Get, b"$-1\r\n", Answer::Miss),
            (Protocol::Resp, Asked::Delete, b":0\r\n", Answer::Miss),
        ];
        for (protocol, asked, bytes, expected) in cases {
            for cut in 0..bytes.len() {
                assert_eq!(answer(protocol, asked, &bytes[..cut]), Ok(None), "{}", bytes.escape_ascii());
            }
            let more = [bytes, b"VALUE"].concat();
            assert_eq!(answer(protocol, asked, &more), Ok(Some((expected, bytes.len()))));
        }
    }

    #[test]
    fn an_answer_to_something_else_is_malformed() {
        for (protocol, asked, bytes) in [
            (Protocol::Classic, Asked::Get, &b"STORED\r\n"[..]),
            (Protocol::Classic, Asked::Set, b"END\r\n"),
            (Protocol::Classic, Asked::Get, b"VALUE k 0 1\r\na\r\nVALUE l 0 1\r\nb\r\nEND\r\n"),
            (Protocol::Meta, Asked::Set, b"EN\r\n"),
            (Protocol::Resp, Asked::Delete, b"+OK\r\n"),
            (Protocol::Resp, Asked::Get, b":1\r\n"),
        ] {
            assert_eq!(answer(protocol, asked, bytes), Err(Malformed), "{}", bytes.escape_ascii());
        }
    }
}
