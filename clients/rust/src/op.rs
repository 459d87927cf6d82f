//! What a caller waits for on a lane: its answers, and the memory that their values go to.

use crate::error::{Error, Outcome};
use crate::pipe::{Delivery, Tag};
use larder_protocol::client::{Head, Marks, Status};
use smallvec::SmallVec;
use std::ops::Range;
use std::thread::Thread;

/// One reply, with what it said; its value lies in the op's memory.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Which request of the op it answers; of a request that a quiet group refused, its opaque.
    pub item: u32,
    /// What became of it.
    pub status: Status,
    /// The client flags.
    pub flags: u32,
    /// The token.
    pub cas: u64,
    /// Seconds left, −1 for ever.
    pub ttl: i64,
    /// How long the value is.
    pub size: u64,
    /// Seconds since it was read.
    pub last_access: i64,
    /// Stale, won, pending, hit before.
    pub marks: Marks,
    /// Where its value lies.
    pub value: Range<usize>,
    /// A refusal's line, without its first word.
    pub text: String,
    /// It is that of a quiet request that was refused.
    pub refused: bool,
}

impl Answer {
    /// What a head says of the request of this number; its value lies there.
    pub fn new(item: u32, head: &Head<'_>, value: Range<usize>, refused: bool) -> Answer {
        let text = match head.status {
            Status::Refused(_) | Status::Version => String::from_utf8_lossy(head.text).into_owned(),
            _ => String::new(),
        };
        let (item, refused) = if refused { (head.opaque.unwrap_or(u32::MAX), true) } else { (item, false) };
        Answer {
            item,
            status: head.status,
            flags: head.flags,
            cas: head.cas,
            ttl: head.ttl,
            size: head.size,
            last_access: head.last_access,
            marks: head.marks,
            value,
            text,
            refused,
        }
    }
}

/// What a caller waits for.
#[derive(Debug, Default)]
pub struct Op {
    /// Replies that have not come.
    pub left: u32,
    /// Those that have: of one request on the stack.
    pub answers: SmallVec<[Answer; 1]>,
    /// Their values.
    pub memory: Vec<u8>,
    /// Why no more will come.
    pub error: Option<Error>,
    /// Of those that are missing, how many were not sent.
    pub not_sent: u32,
    /// Where the value begins whose parts are coming.
    begun: Option<usize>,
    /// Who is to be woken.
    pub sleeper: Option<Thread>,
}

impl Op {
    /// One that was never sent.
    pub fn failed(error: Error, memory: Vec<u8>) -> Op {
        Op { error: Some(error), memory, ..Op::default() }
    }

    /// Nothing more will come.
    pub fn is_done(&self) -> bool {
        self.left == 0 || self.error.is_some()
    }

    /// Takes what has come; true if nothing more will.
    pub fn take(&mut self, tag: Tag, delivery: Delivery<'_>) -> bool {
        match delivery {
            Delivery::Part(part) => {
                self.begun.get_or_insert(self.memory.len());
                // Memory grows with what comes: a server that lies about a length costs nothing.
                self.memory.extend_from_slice(part);
            }
            Delivery::Reply(head, value) => {
                let begins = self.begun.take().unwrap_or(self.memory.len());
                if head.status == Status::Value {
                    self.memory.extend_from_slice(value);
                }
                self.answers.push(Answer::new(tag.item, &head, begins..self.memory.len(), false));
                self.left -= 1;
            }
            Delivery::Refused(head) => {
                self.answers.push(Answer::new(tag.item, &head, 0..0, true));
            }
        }
        self.is_done()
    }

    /// The connection has failed with so many replies missing.
    pub fn fail(&mut self, error: &Error, missing: u32, outcome: Outcome) {
        if outcome == Outcome::NotSent {
            self.not_sent += missing;
        }
        // Of several, what is worst is told of the whole.
        let worst = match &self.error {
            Some(before) if before.outcome() == Outcome::Unknown => Outcome::Unknown,
            _ => outcome,
        };
        self.error = Some(error.with(worst));
    }
}
