//! The whole reply to a usual request of one key, in any protocol, for clients whose next request depends on it.
//!
//! ```text
//!           get                     set        delete
//! classic   VALUE k 0 n … END, END  STORED     DELETED, NOT_FOUND
//! meta      VA n …, EN              HD         HD, NF
//! RESP      $n …, $-1               +OK        :1, :0
//! ```

use super::{Classic, Event, Grammar, Malformed, Protocol};

/// The reply to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The value asked for.
    Value(&'a [u8]),
    /// There is no value.
    Miss,
    /// It was stored.
    Stored,
    /// It was deleted.
    Deleted,
    /// The server refused: the line with the reason.
    Refused(&'a [u8]),
}

/// The request, which decides how the reply reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A read.
    Get,
    /// A write.
    Set,
    /// A delete.
    Delete,
}

/// Reads the whole reply at the start of `bytes`, and its length; `None` while it is incomplete.
///
/// # Errors
/// [`Malformed`] if this is no reply to such a request.
pub fn answer(
    protocol: Protocol,
    asked: Asked,
    bytes: &[u8],
) -> Result<Option<(Answer<'_>, usize)>, Malformed> {
    use Protocol::{Meta, Resp};
    let Some((event, used)) = protocol.event(bytes)? else { return Ok(None) };
    let answer = match (event, asked, protocol) {
        (Event::Value { value, .. }, Asked::Get, Protocol::Classic) => {
            return match Classic::event(&bytes[used..])? {
                None => Ok(None),
                Some((Event::End, end_bytes)) => Ok(Some((Answer::Value(value), used + end_bytes))),
                Some(_) => Err(Malformed),
            };
        }
        (Event::Value { value, .. }, Asked::Get, Meta | Resp) => Answer::Value(value),
        (Event::Miss | Event::End, Asked::Get, _) => Answer::Miss,
        (Event::Stored, Asked::Set, _) => Answer::Stored,
        (Event::Deleted, Asked::Delete, _) | (Event::Stored, Asked::Delete, Meta) => Answer::Deleted,
        (Event::Absent, Asked::Delete, _) => Answer::Miss,
        (Event::Number(1), Asked::Delete, Resp) => Answer::Deleted,
        (Event::Number(0), Asked::Delete, Resp) => Answer::Miss,
        (Event::Refused(line), _, _) => Answer::Refused(line),
        _ => return Err(Malformed),
    };
    Ok(Some((answer, used)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_read_whole_from_any_cut() {
        let cases: [(Protocol, Asked, &[u8], Answer<'_>); 11] = [
            (Protocol::Classic, Asked::Get, b"VALUE k 0 5\r\nEND\r\n\r\nEND\r\n", Answer::Value(b"END\r\n")),
            (Protocol::Classic, Asked::Get, b"END\r\n", Answer::Miss),
            (Protocol::Classic, Asked::Set, b"STORED\r\n", Answer::Stored),
            (Protocol::Classic, Asked::Delete, b"DELETED\r\n", Answer::Deleted),
            (Protocol::Meta, Asked::Get, b"VA 2\r\nab\r\n", Answer::Value(b"ab")),
            (Protocol::Meta, Asked::Delete, b"HD\r\n", Answer::Deleted),
            (Protocol::Meta, Asked::Delete, b"NF\r\n", Answer::Miss),
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
            (Protocol::Classic, Asked::Set, b"EXISTS\r\n"),
            (Protocol::Classic, Asked::Delete, b"STORED\r\n"),
            (Protocol::Classic, Asked::Delete, b"1\r\n"),
            (Protocol::Classic, Asked::Get, b"VALUE k 0 1\r\na\r\nVALUE l 0 1\r\nb\r\nEND\r\n"),
            (Protocol::Meta, Asked::Set, b"EN\r\n"),
            (Protocol::Meta, Asked::Get, b"NF\r\n"),
            (Protocol::Resp, Asked::Delete, b"+OK\r\n"),
            (Protocol::Resp, Asked::Get, b":1\r\n"),
            (Protocol::Resp, Asked::Get, b"*1\r\n$1\r\na\r\n"),
        ] {
            assert_eq!(answer(protocol, asked, bytes), Err(Malformed), "{}", bytes.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_within_them_or_none(
            bytes in proptest::collection::vec(
                proptest::sample::select(b"VALUE k 0 1 5\r\nENDSTO$*:+-HF".to_vec()), 0..60,
            ),
        ) {
            for protocol in [Protocol::Classic, Protocol::Meta, Protocol::Resp] {
                for asked in [Asked::Get, Asked::Set, Asked::Delete] {
                    if let Ok(Some((found, used))) = answer(protocol, asked, &bytes) {
                        prop_assert!(used > 0 && used <= bytes.len());
                        prop_assert_eq!(answer(protocol, asked, &bytes[..used]), Ok(Some((found, used))));
                        prop_assert_eq!(answer(protocol, asked, &bytes[..used - 1]), Ok(None));
                    }
                }
            }
        }
    }
}
