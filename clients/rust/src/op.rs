//! What a caller waits for on a lane: its answers and the memory for their values; and all callers that wait on one lane.

use crate::error::{Error, Outcome};
use crate::pipe::{Broken, Delivery, Input, Pipe, Tag};
use larder_protocol::client::{Head, Marks, Status};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// One reply. Its value lies in the op's memory.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The index of its request in the op; for a refused request of a quiet group, its opaque.
    pub item: u32,
    /// The status of the reply.
    pub status: Status,
    /// The client flags.
    pub flags: u32,
    /// The token.
    pub cas: u64,
    /// Seconds until the item expires, −1 for never.
    pub ttl: i64,
    /// The length of the value.
    pub size: u64,
    /// Seconds since the last read.
    pub last_access: i64,
    /// Stale, won, pending, hit before.
    pub marks: Marks,
    /// Where its value lies.
    pub value: Range<usize>,
    /// A refusal's line, without its first word.
    pub text: String,
    /// The request was part of a quiet group and was refused.
    pub refused: bool,
}

impl Answer {
    /// The answer to request `item`, whose value lies at `value`.
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

/// What a caller waits for. `S` wakes the caller.
#[derive(Debug)]
pub struct Op<S> {
    /// Replies that have not come.
    pub left: u32,
    /// Replies that have come. For one request, they need no heap.
    pub answers: SmallVec<[Answer; 1]>,
    /// Their values.
    pub memory: Vec<u8>,
    /// Why no more replies will come.
    pub error: Option<Error>,
    /// How many of the missing replies are of requests that were not sent.
    pub not_sent: u32,
    /// The place of the value whose parts are arriving.
    begun: Option<usize>,
    /// How to wake the caller, while it sleeps.
    pub sleeper: Option<S>,
}

impl<S> Default for Op<S> {
    fn default() -> Op<S> {
        Op {
            left: 0,
            answers: SmallVec::new(),
            memory: Vec::new(),
            error: None,
            not_sent: 0,
            begun: None,
            sleeper: None,
        }
    }
}

impl<S> Op<S> {
    /// An op that was never sent.
    pub fn failed(error: Error, memory: Vec<u8>) -> Op<S> {
        Op { error: Some(error), memory, ..Op::default() }
    }

    /// Whether no more replies will come.
    pub fn is_done(&self) -> bool {
        self.left == 0 || self.error.is_some()
    }

    /// Takes a delivery; true if it was the last.
    pub fn take(&mut self, tag: Tag, delivery: Delivery<'_>) -> bool {
        match delivery {
            Delivery::Part(part) => {
                self.begun.get_or_insert(self.memory.len());
                // Memory grows with the bytes that arrive: a server that announces a false length costs nothing.
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

    /// Notes that the connection has failed, with `missing` replies missing.
    pub fn fail(&mut self, error: &Error, missing: u32, outcome: Outcome) {
        if outcome == Outcome::NotSent {
            self.not_sent += missing;
        }
        // An op has one error: the worst outcome of its requests.
        let worst = match &self.error {
            Some(before) if before.outcome() == Outcome::Unknown => Outcome::Unknown,
            _ => outcome,
        };
        self.error = Some(error.with(worst));
    }
}

/// What a lane has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests.
    pub requests: u64,
    /// System calls that sent.
    pub writes: u64,
    /// System calls that received.
    pub reads: u64,
    /// Requests whose callers left before the reply came.
    pub overdue: u64,
}

/// A pipe, and all callers that wait for its replies, each with a number.
#[derive(Debug)]
pub struct Callers<S> {
    /// The connection without its socket.
    pub pipe: Pipe,
    ops: Vec<Op<S>>,
    free: Vec<u32>,
    /// What was done so far.
    pub counters: Counters,
}

impl<S> Callers<S> {
    /// A pipe without callers.
    pub fn new(pipe: Pipe) -> Callers<S> {
        Callers { pipe, ops: Vec::new(), free: Vec::new(), counters: Counters::default() }
    }

    /// Whether no caller waits.
    pub fn is_empty(&self) -> bool {
        self.ops.len() == self.free.len()
    }

    /// Adds a caller and returns its number.
    pub fn come(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.ops.push(Op::default());
            self.ops.len() as u32 - 1
        })
    }

    /// Removes a caller, to which no reply may be owed, and returns its op.
    pub fn go(&mut self, op: u32) -> Op<S> {
        self.free.push(op);
        std::mem::take(&mut self.ops[op as usize])
    }

    /// The op of a caller.
    pub fn op(&mut self, op: u32) -> &mut Op<S> {
        &mut self.ops[op as usize]
    }

    /// Of the sleeping callers, takes the one that is owed the oldest reply.
    pub fn oldest_sleeper(&mut self) -> Option<S> {
        let op = self.pipe.oldest(|op| self.ops[op as usize].sleeper.is_some())?;
        self.ops[op as usize].sleeper.take()
    }

    /// Delivers what has arrived, and passes the callers to wake to `wake`.
    ///
    /// # Errors
    /// As [`Pipe::receive`].
    pub fn receive(
        &mut self,
        input: &mut Input,
        now: Instant,
        mut wake: impl FnMut(S),
    ) -> Result<(), Broken> {
        let Callers { pipe, ops, .. } = self;
        pipe.receive(input, now, |tag, delivery| {
            let op = &mut ops[tag.op as usize];
            if op.take(tag, delivery)
                && let Some(sleeper) = op.sleeper.take()
            {
                wake(sleeper);
            }
        })
    }

    /// Fails the callers whose time is over.
    ///
    /// # Errors
    /// [`Broken::Stalled`].
    pub fn look(&mut self, now: Instant, server: &Arc<str>, mut wake: impl FnMut(S)) -> Result<(), Broken> {
        loop {
            let mut late = None;
            let Callers { pipe, ops, counters, .. } = self;
            pipe.tick(now, |tag| {
                late = late.or(Some(tag.op));
                let op = &mut ops[tag.op as usize];
                counters.overdue += 1;
                if op.error.is_none() {
                    op.error = Some(Error::Timeout(Arc::clone(server), Outcome::Unknown));
                }
                op.sleeper.take().into_iter().for_each(&mut wake);
            })?;
            // The other replies of the same op: it fails once.
            match late {
                Some(op) => pipe.abandon(op),
                None => return Ok(()),
            }
        }
    }

    /// Fails all callers that wait: the connection has ended.
    pub fn fail(&mut self, error: &Error, wake: impl FnMut(S)) {
        let Callers { pipe, ops, .. } = self;
        pipe.fail(|tag, missing, outcome| ops[tag.op as usize].fail(error, missing, outcome));
        let told = ops.iter_mut().filter(|op| op.error.is_some());
        told.filter_map(|op| op.sleeper.take()).for_each(wake);
    }
}
