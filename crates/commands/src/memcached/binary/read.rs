//! Frames that are read ahead: up to [`BATCH_KEYS`] are decoded and their keys hashed, and their items are on the way from
//! memory before the first is executed, as in `memcached/batch.rs`.
//!
//! Anything that is not one key with, at most, a value that is all there ends the batch and comes as an [`Event`] after it.

use arrayvec::ArrayVec;
use larder_protocol::binary::{Decoded, Frame, HEADER_BYTES, Head, Request, Status, Verb, decode};
use larder_store::{Guard, Hint, Key};

use super::sasl::{SASL_BYTES_MAX, is_for_unauthenticated};
use crate::core::batch::BATCH_KEYS;
use crate::core::shared::Settings;
use crate::memcached::batch::WAIT_BYTES_MAX;
use crate::memcached::table::{Command, find, row_of_store};
use crate::memcached::verbs::fits;

/// A frame of a key, and what is at hand of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Staged<'a, 'w> {
    pub key: Key<'a>,
    /// Where its item probably is.
    pub hint: Hint<'w>,
    pub frame: Frame<'a>,
    pub value: &'a [u8],
    /// Where in the input it begins, and where it ends.
    pub at: usize,
    pub end: usize,
}

/// Frames that are executed together.
pub(super) type Batch<'a, 'w> = ArrayVec<Staged<'a, 'w>, BATCH_KEYS>;

/// A frame that cannot be staged.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event<'a> {
    /// A frame that names no item, its value, and where it ends.
    Frame(Frame<'a>, &'a [u8], usize),
    /// A store whose value is too large, or more than is waited for. The input is at its value.
    Store(Frame<'a>),
    /// A frame that is answered by a status, and how many bytes belong to it.
    Refused(Head, Status, u64),
    /// A frame that ends the connection.
    Broken(Head, Status),
    /// No frame.
    NoFrame,
}

/// The reason why no more was read ahead.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop<'a> {
    /// The batch is full, or the requests of this turn are used up.
    Full,
    /// The input ends here.
    NeedMore,
    /// Something has to be done first.
    Event(Event<'a>),
}

/// The state of reading.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub input: &'a [u8],
    /// Bytes that are done with.
    pub at: usize,
    /// Requests left in this turn.
    pub left: u32,
}

impl<'a> Reader<'a> {
    /// Reads ahead into `batch`. `is_known`: the client has logged in, or need not; otherwise it may log in, and ask for nothing
    /// else.
    pub fn fill<'w>(
        &mut self,
        guard: &Guard<'w>,
        settings: &Settings,
        is_known: bool,
        batch: &mut Batch<'a, 'w>,
    ) -> Stop<'a> {
        let input = self.input;
        loop {
            let at = self.at;
            if at == input.len() {
                return Stop::NeedMore;
            }
            if batch.is_full() || self.left == 0 {
                return Stop::Full;
            }
            let (frame, start) = match decode(&input[at..]) {
                Decoded::Incomplete => match head_of(&input[at..]) {
                    Some(head) if !is_known && !is_for_unauthenticated(head.code) => {
                        return Stop::Event(Event::Broken(head, Status::Auth));
                    }
                    _ => return Stop::NeedMore,
                },
                Decoded::NoFrame => return Stop::Event(Event::NoFrame),
                // Lengths that contradict each other come first, as in memcached.
                Decoded::Broken(head, Status::Unknown) => {
                    return Stop::Event(Event::Broken(head, Status::Unknown));
                }
                Decoded::Frame(Frame { head, .. }, _)
                | Decoded::Refused(head, ..)
                | Decoded::Broken(head, _)
                    if !is_known && !is_for_unauthenticated(head.code) =>
                {
                    return Stop::Event(Event::Broken(head, Status::Auth));
                }
                Decoded::Broken(head, status) => return Stop::Event(Event::Broken(head, status)),
                Decoded::Refused(head, status, bytes) => {
                    self.left -= 1;
                    return Stop::Event(Event::Refused(head, status, bytes));
                }
                Decoded::Frame(frame, bytes) => (frame, at + bytes),
            };
            let value_bytes = frame.value_bytes as usize;
            let end = start + value_bytes;
            let value = input.get(start..end);
            let flags = match frame.request {
                Request::Store { flags, .. } => flags,
                Request::Concat { .. } => 0,
                Request::Get
                | Request::GetAndTouch { .. }
                | Request::Touch { .. }
                | Request::Delete
                | Request::Arithmetic { .. } => {
                    self.left -= 1;
                    self.at = end;
                    batch.push(Staged::new(guard, frame, &[], at, end));
                    continue;
                }
                Request::Sasl { .. } if value_bytes > SASL_BYTES_MAX => {
                    self.left -= 1;
                    return Stop::Event(Event::Refused(frame.head, Status::Auth, (end - at) as u64));
                }
                Request::Flush { .. }
                | Request::Noop
                | Request::Version
                | Request::Stat
                | Request::Verbosity { .. }
                | Request::Quit
                | Request::SaslList
                | Request::Sasl { .. } => {
                    let Some(value) = value else { return Stop::NeedMore };
                    self.left -= 1;
                    return Stop::Event(Event::Frame(frame, value, end));
                }
            };
            match value {
                Some(value) if fits(settings, frame.key.len(), flags, value_bytes as u64) => {
                    self.left -= 1;
                    self.at = end;
                    batch.push(Staged::new(guard, frame, value, at, end));
                }
                None if end - at <= WAIT_BYTES_MAX => return Stop::NeedMore,
                _ => {
                    self.left -= 1;
                    self.at = start;
                    return Stop::Event(Event::Store(frame));
                }
            }
        }
    }
}

/// The part of a frame's header that its reply repeats; `None` if the header is not all there.
fn head_of(input: &[u8]) -> Option<Head> {
    let header: &[u8; HEADER_BYTES] = input.first_chunk()?;
    Some(Head { code: header[1], opaque: [header[12], header[13], header[14], header[15]] })
}

impl<'a, 'w> Staged<'a, 'w> {
    /// Hashes the key and starts loading its bucket.
    fn new(guard: &Guard<'w>, frame: Frame<'a>, value: &'a [u8], at: usize, end: usize) -> Staged<'a, 'w> {
        let key = guard.key(frame.key);
        Staged { key, hint: guard.prefetch_bucket(&key), frame, value, at, end }
    }
}

/// The row of the text's command that does the same; `None` for verbs by which a client logs in.
pub(super) fn row_of(verb: Verb) -> Option<&'static Command> {
    find(match verb {
        Verb::Get => b"get",
        Verb::GetAndTouch => b"gat",
        Verb::Touch => b"touch",
        Verb::Store(verb) | Verb::Concat(verb) => return Some(row_of_store(verb)),
        Verb::Delete => b"delete",
        // Like `ma`, they may make a number.
        Verb::Increment | Verb::Decrement => b"ma",
        Verb::Flush => b"flush_all",
        Verb::Noop => b"mn",
        Verb::Version => b"version",
        Verb::Stat => b"stats",
        Verb::Verbosity => b"verbosity",
        Verb::Quit => b"quit",
        Verb::SaslList | Verb::SaslAuth | Verb::SaslStep => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcached::table::number;
    use crate::memcached::times::of_frame;
    use larder_protocol::binary::OPCODES;

    #[test]
    fn each_opcode_that_may_come_from_those_who_are_known_has_a_row_of_the_text() {
        for opcode in OPCODES {
            let is_login = matches!(opcode.verb, Verb::SaslList | Verb::SaslAuth | Verb::SaslStep);
            assert_eq!(row_of(opcode.verb).is_none(), is_login, "{}", opcode.name);
        }
    }

    /// Rules and events know a frame by the row of the text that does the same, times by its name, which differ where they
    /// must: with a token it is `cas` to times, and to rules what may make a number is `ma`.
    #[test]
    fn rows_and_times_agree_on_each_frame_of_a_key() {
        let mut differ = Vec::new();
        for opcode in OPCODES.iter().filter(|opcode| !opcode.quiet) {
            let request = match opcode.verb {
                Verb::Store(verb) => Request::Store { verb, flags: 0, exptime: 0 },
                Verb::Concat(verb) => Request::Concat { verb },
                Verb::Get
                | Verb::GetAndTouch
                | Verb::Touch
                | Verb::Delete
                | Verb::Increment
                | Verb::Decrement => Request::Get,
                Verb::Flush
                | Verb::Noop
                | Verb::Version
                | Verb::Stat
                | Verb::Verbosity
                | Verb::Quit
                | Verb::SaslList
                | Verb::SaslAuth
                | Verb::SaslStep => continue,
            };
            for cas in [0, 1] {
                let head = Head { code: opcode.code, opaque: [0; 4] };
                let frame = Frame { head, opcode, request, key: b"k", cas, value_bytes: 0 };
                let row = row_of(opcode.verb).expect("it names a key");
                if of_frame(&frame) != number(row.name) {
                    differ.push((opcode.name, cas));
                }
            }
        }
        let numbers = ["increment", "decrement"].map(|name| [(name, 0u64), (name, 1)]).concat();
        let stores = ["set", "add", "replace"].map(|name| (name, 1u64));
        assert_eq!(differ, [&stores[..], &numbers].concat());
    }
}
