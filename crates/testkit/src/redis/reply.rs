//! A right reply of the [`Model`](super::model::Model): bytes; or, if Redis leaves a choice, all that are
//! right.

use super::frame::Frame;
use std::collections::BTreeSet;

/// A reply that is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Several replies, one after another.
    Several(Vec<Reply>),
    /// An array of these keys, in any order.
    Keys(BTreeSet<Vec<u8>>),
    /// A cursor, and some of these keys: a scan from 0 to 0 finds each of them.
    Walk(BTreeSet<Vec<u8>>),
    /// One of these keys.
    OneOf(BTreeSet<Vec<u8>>),
    /// Any number.
    Number,
    /// Any text.
    Text,
}

impl From<Vec<u8>> for Reply {
    fn from(bytes: Vec<u8>) -> Reply {
        Reply::Bytes(bytes)
    }
}

impl Reply {
    /// Length of such a reply at the start of `got`; `None` if it is another one.
    pub fn matches(&self, got: &[u8]) -> Option<usize> {
        if let Reply::Bytes(bytes) = self {
            return got.starts_with(bytes).then_some(bytes.len());
        }
        if let Reply::Several(replies) = self {
            let mut at = 0;
            for reply in replies {
                at += reply.matches(&got[at..])?;
            }
            return Some(at);
        }
        let (frame, length) = Frame::read(got).ok()??;
        let holds = match self {
            Reply::Bytes(_) | Reply::Several(_) => unreachable!("looked at above"),
            Reply::Keys(keys) => {
                frame.line == format!("*{}", keys.len()).as_bytes() && bodies(&frame)? == *keys
            }
            Reply::Walk(keys) => {
                frame.line == b"*2" && cursor(&frame).is_some() && bodies(&frame.inside[1])?.is_subset(keys)
            }
            Reply::OneOf(keys) => frame.body.is_some_and(|key| keys.contains(&key)),
            Reply::Number => frame.number().is_some(),
            Reply::Text => frame.body.is_some(),
        };
        holds.then_some(length)
    }

    /// The reply in words.
    pub fn shown(&self) -> String {
        let list = |keys: &BTreeSet<Vec<u8>>| {
            keys.iter().map(|key| crate::pattern::escaped(key)).collect::<Vec<_>>().join(", ")
        };
        match self {
            Reply::Bytes(bytes) => crate::pattern::escaped(bytes),
            Reply::Several(replies) => replies.iter().map(Reply::shown).collect(),
            Reply::Keys(keys) => format!("<keys {}>", list(keys)),
            Reply::Walk(keys) => format!("<a cursor and some of {}>", list(keys)),
            Reply::OneOf(keys) => format!("<one of {}>", list(keys)),
            Reply::Number => "<a number>".into(),
            Reply::Text => "<a text>".into(),
        }
    }
}

/// The keys of an array of keys.
pub fn bodies(frame: &Frame) -> Option<BTreeSet<Vec<u8>>> {
    if frame.line.first() != Some(&b'*') {
        return None;
    }
    frame.inside.iter().map(|key| key.body.clone()).collect()
}

/// The cursor that a SCAN has replied.
pub fn cursor(frame: &Frame) -> Option<Vec<u8>> {
    let cursor = frame.inside.first()?.body.clone()?;
    cursor.iter().all(u8::is_ascii_digit).then_some(cursor)
}

pub(super) fn error(text: &str) -> Vec<u8> {
    format!("-{}\r\n", text.trim_end_matches(['\r', '\n']).replace(['\r', '\n'], " ")).into_bytes()
}

pub(super) fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(keys: &[&str]) -> BTreeSet<Vec<u8>> {
        keys.iter().map(|key| key.as_bytes().to_vec()).collect()
    }

    #[test]
    fn keys_are_right_in_any_order_and_only_all_of_them() {
        let keys = Reply::Keys(set(&["a", "b"]));
        assert_eq!(keys.matches(b"*2\r\n$1\r\nb\r\n$1\r\na\r\n+more"), Some(18));
        for wrong in [&b"*1\r\n$1\r\na\r\n"[..], b"*2\r\n$1\r\na\r\n$1\r\na\r\n", b"+OK\r\n", b"*2\r\n"] {
            assert_eq!(keys.matches(wrong), None);
        }
    }

    #[test]
    fn a_walk_gives_a_cursor_and_no_other_keys() {
        let walk = Reply::Walk(set(&["a", "b"]));
        assert_eq!(walk.matches(b"*2\r\n$2\r\n17\r\n*1\r\n$1\r\nb\r\n"), Some(23));
        assert_eq!(walk.matches(b"*2\r\n$2\r\n17\r\n*1\r\n$1\r\nc\r\n"), None);
        assert_eq!(walk.matches(b"*2\r\n$1\r\nx\r\n*0\r\n"), None);
    }

    #[test]
    fn several_follow_each_other() {
        let both = Reply::Several(vec![b"*2\r\n".to_vec().into(), Reply::Number, b"_\r\n".to_vec().into()]);
        assert_eq!(both.matches(b"*2\r\n:17\r\n_\r\n"), Some(12));
        assert_eq!(both.matches(b"*2\r\n+17\r\n_\r\n"), None);
    }
}
