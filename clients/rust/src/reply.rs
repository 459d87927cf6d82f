//! Results of calls.

use crate::error::{Error, Outcome};
use crate::op::Answer;
use crate::wire::{Kind, Marks, Refusal, Status, counter};
use std::sync::Arc;
use std::time::Duration;

/// What is known of an item besides its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The client flags.
    pub flags: u32,
    /// The token for compare-and-swap, if it was asked for.
    pub cas: u64,
    /// The time until the item expires, if it was asked for; `None`: never.
    pub ttl: Option<Duration>,
    /// The length of its value, if it was asked for.
    pub size: u64,
    /// How long ago it was last read, if it was asked for.
    pub last_access: Duration,
    /// Stale, won, pending, hit before.
    pub marks: Marks,
}

impl Meta {
    pub(crate) fn of(answer: &Answer) -> Meta {
        Meta {
            flags: answer.flags,
            cas: answer.cas,
            ttl: u64::try_from(answer.ttl).ok().map(Duration::from_secs),
            size: answer.size,
            last_access: Duration::from_secs(answer.last_access as u64),
            marks: answer.marks,
        }
    }
}

/// A value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What else is known of the item.
    pub meta: Meta,
}

/// The result of a write that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The item's token, if it was asked for.
    pub cas: u64,
}

/// The result of a request that has no type of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// False for a read, a deletion, a touch or a count of an item that does not exist.
    pub found: bool,
    /// The number, after a count.
    pub number: u64,
    /// What is known of the item.
    pub meta: Meta,
}

impl Reply {
    pub(crate) fn of(answer: &Answer) -> Reply {
        let number = match answer.status {
            Status::Number(number) => number,
            _ => 0,
        };
        Reply { found: answer.status != Status::Absent, number, meta: Meta::of(answer) }
    }
}

/// The result of a store.
pub(crate) fn stored(answer: &Answer) -> Stored {
    Stored { cas: answer.cas }
}

/// Whether the item existed.
pub(crate) fn found(answer: &Answer) -> bool {
    answer.status != Status::Absent
}

/// The result of a count.
pub(crate) fn counted(answer: &Answer) -> Option<u64> {
    match answer.status {
        Status::Number(number) => Some(number),
        _ => None,
    }
}

/// The result of a call whose value went to the end of `memory`. Without a value, `memory` is cut to its old length.
pub(crate) fn concluded(
    kind: Kind,
    answer: Answer,
    memory: &mut Vec<u8>,
    length: usize,
    server: &Arc<str>,
) -> Result<Answer, Error> {
    let value = answer.value.clone();
    let answer = result_of(kind, answer, &memory[value], server);
    if !matches!(&answer, Ok(answer) if answer.status == Status::Value) {
        memory.truncate(length);
    }
    answer
}

/// Turns the answer of a refusal into its error, and a counter's value into its number.
pub(crate) fn result_of(
    kind: Kind,
    mut answer: Answer,
    value: &[u8],
    server: &Arc<str>,
) -> Result<Answer, Error> {
    if kind == Kind::Count && answer.status == Status::Value {
        answer.status = counter(value).map(Status::Number).map_err(|_| {
            let what = format!("no number: {}", value[..value.len().min(64)].escape_ascii());
            Error::Protocol(Arc::clone(server), what, Outcome::Answered)
        })?;
        answer.value.end = answer.value.start;
    }
    let reads = matches!(kind, Kind::Get | Kind::Touch | Kind::Delete | Kind::Count);
    let Status::Refused(refusal) = answer.status else {
        return match answer.status {
            Status::Absent if reads => Ok(answer),
            Status::Absent => Err(Error::Absent),
            Status::NotStored => Err(Error::NotStored),
            Status::Exists => Err(Error::Conflict),
            _ => Ok(answer),
        };
    };
    let text = answer.text.to_ascii_lowercase();
    Err(match refusal {
        Refusal::Server if text.contains("too large") => Error::TooLarge,
        Refusal::Server if text.contains("out of memory") => Error::ServerMemory(Arc::clone(server)),
        Refusal::Client if kind == Kind::Count && text.contains("non-numeric") => Error::NotNumber,
        Refusal::Client if text.contains("unauthenticated") => Error::Auth(Arc::clone(server)),
        Refusal::Server => Error::Server(Arc::clone(server), format!("SERVER_ERROR {}", answer.text)),
        Refusal::Client => Error::Server(Arc::clone(server), format!("CLIENT_ERROR {}", answer.text)),
        Refusal::Unknown => Error::Server(Arc::clone(server), "ERROR".to_owned()),
    })
}
