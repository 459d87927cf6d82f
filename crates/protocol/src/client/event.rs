//! Replies as sequences of [`Event`]s: a value, a miss, the end of a `get`. Each event is complete in the buffer, or not there
//! yet.
//!
//! The caller knows which reply it expects. A [`Grammar`] accepts only the replies that its protocol allows to the requests of
//! [`Protocol`] and to writes with a token. Everything else is [`Malformed`].

mod classic;
mod meta;
mod resp;

pub use classic::Classic;
pub use meta::Meta;
pub use resp::Resp;

use super::line::Malformed;
use super::plain::Protocol;

/// One step of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A value; with its key and client flags where the protocol sends them.
    Value {
        /// The key, as the server names it (classic only).
        key: Option<&'a [u8]>,
        /// The client flags (classic only).
        flags: u32,
        /// The value.
        value: &'a [u8],
    },
    /// One key has no value.
    Miss,
    /// The end of the values of one request (classic only). Keys without a value before it had none.
    End,
    /// A write happened, or, in meta, a delete.
    Stored,
    /// A delete happened (classic only).
    Deleted,
    /// A number (RESP also counts deletes with it).
    Number(u64),
    /// The key to change does not exist.
    Absent,
    /// A write with a token found another version, or a watched key of a transaction has changed.
    Conflict,
    /// A value as in [`Event::Value`], and its token.
    Token {
        /// The key, as the server names it (classic only).
        key: Option<&'a [u8]>,
        /// The client flags (classic only).
        flags: u32,
        /// The value.
        value: &'a [u8],
        /// The token by which a write replaces exactly this version.
        token: u64,
    },
    /// A command of a transaction was queued (RESP only).
    Queued,
    /// This many values or misses follow (RESP arrays).
    Count(usize),
    /// The server answered without doing it: the line with the reason.
    Refused(&'a [u8]),
}

/// An event and how many bytes it took, or `None` when more bytes are needed.
pub type Parsed<'a> = Result<Option<(Event<'a>, usize)>, Malformed>;

/// The reply syntax of a protocol.
pub trait Grammar {
    /// Values of a request end with [`Event::End`]; otherwise each key has its own event.
    const END: bool;

    /// Reads the event at the start of `bytes`.
    ///
    /// # Errors
    /// [`Malformed`], as early as possible.
    fn event(bytes: &[u8]) -> Parsed<'_>;

    /// Reads the event at the start of the reply to a read with tokens.
    ///
    /// # Errors
    /// [`Malformed`], as early as possible.
    fn tokened(bytes: &[u8]) -> Parsed<'_>;
}

impl Protocol {
    /// [`Grammar::event`] of this protocol.
    ///
    /// # Errors
    /// [`Malformed`], as early as possible.
    #[inline]
    pub fn event(self, bytes: &[u8]) -> Parsed<'_> {
        match self {
            Protocol::Classic => Classic::event(bytes),
            Protocol::Meta => Meta::event(bytes),
            Protocol::Resp => Resp::event(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All events of `bytes`. Every prefix must give a prefix of the events and no error, so that they are the same however the
    /// bytes arrive.
    pub(super) fn events<G: Grammar>(bytes: &[u8]) -> Vec<Event<'_>> {
        let mut events = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            for end in at..bytes.len() {
                if let Some((_, used)) = G::event(&bytes[at..end]).expect("a prefix is not malformed") {
                    assert!(used <= end - at);
                }
            }
            let (event, used) = G::event(&bytes[at..]).expect("a reply").expect("complete");
            assert!(
                G::event(&bytes[at..at + used - 1]).expect("a reply").is_none(),
                "known before its last byte"
            );
            events.push(event);
            at += used;
        }
        events
    }

    /// Holds for any bytes: they are an event, the start of one, or none. An event does not depend on what follows it, and is not
    /// recognised before its last byte.
    pub(super) fn holds(read: fn(&[u8]) -> Parsed<'_>, bytes: &[u8]) -> Result<(), TestCaseError> {
        if let Ok(Some((event, used))) = read(bytes) {
            prop_assert!(used > 0 && used <= bytes.len());
            prop_assert_eq!(read(&bytes[..used]), Ok(Some((event, used))));
            for end in 0..used {
                prop_assert_eq!(read(&bytes[..end]), Ok(None));
            }
        }
        Ok(())
    }

    const READERS: [fn(&[u8]) -> Parsed<'_>; 6] =
        [Classic::event, Classic::tokened, Meta::event, Meta::tokened, Resp::event, Resp::tokened];

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            for read in READERS {
                holds(read, &bytes)?;
            }
        }

        /// Bytes that begin as a reply and have a flaw somewhere.
        #[test]
        fn replies_with_a_flaw_are_read_without_a_panic(
            reply in proptest::sample::select(vec![
                "VALUE k 0 2\r\nab\r\nEND\r\n", "VALUE k 0 2 7\r\nab\r\nEND\r\n", "STORED\r\n", "12  \r\n", "VA 2\r\nab\r\n",
                "VA 2 c7\r\nab\r\n", "HD\r\n", "$2\r\nab\r\n", "*2\r\n$-1\r\n:5\r\n", "+OK\r\n", "-ERR no\r\n",
                "VALUE k 0 2147483647\r\nab", "VA 2147483647\r\nab", "$2147483647\r\nab",
            ]),
            at in 0..30_usize,
            with in proptest::collection::vec(
                proptest::sample::select(b" 0123456789-+:$*\r\nkcVEATUN\xff".to_vec()), 0..4,
            ),
            cut in 0..3_usize,
        ) {
            let mut bytes = reply.as_bytes().to_vec();
            let at = at.min(bytes.len());
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, with);
            for read in READERS {
                holds(read, &bytes)?;
            }
        }
    }
}
