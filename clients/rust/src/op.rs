//! What a caller waits for on a lane: its answers, and the memory that their values go to; and all who wait on one.

use crate::error::{Error, Outcome};
use crate::pipe::{Broken, Delivery, Input, Pipe, Tag};
use larder_protocol::client::{Head, Marks, Status};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

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

/// What a caller waits for, who sleeps meanwhile as `S` says.
#[derive(Debug)]
pub struct Op<S> {
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
    /// One that was never sent.
    pub fn failed(error: Error, memory: Vec<u8>) -> Op<S> {
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

/// What a lane has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests.
    pub requests: u64,
    /// System calls that sent.
    pub writes: u64,
    /// System calls that received.
    pub reads: u64,
    /// Requests whose callers went away before the reply came.
    pub overdue: u64,
}

/// A pipe, and all who wait for its replies: each has a number while it waits.
#[derive(Debug)]
pub struct Callers<S> {
    /// The connection without its socket.
    pub pipe: Pipe,
    ops: Vec<Op<S>>,
    free: Vec<u32>,
    /// What was done until now.
    pub counters: Counters,
}

impl<S> Callers<S> {
    /// Nobody waits.
    pub fn new(pipe: Pipe) -> Callers<S> {
        Callers { pipe, ops: Vec::new(), free: Vec::new(), counters: Counters::default() }
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.ops.len() == self.free.len()
    }

    /// Somebody comes: its number.
    pub fn come(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.ops.push(Op::default());
            self.ops.len() as u32 - 1
        })
    }

    /// It goes, with what it has; nothing is owed to it.
    pub fn go(&mut self, op: u32) -> Op<S> {
        self.free.push(op);
        std::mem::take(&mut self.ops[op as usize])
    }

    /// What one waits for.
    pub fn op(&mut self, op: u32) -> &mut Op<S> {
        &mut self.ops[op as usize]
    }

    /// The one whose reply is the oldest that is owed among those who sleep, who is to be woken.
    pub fn oldest_sleeper(&mut self) -> Option<S> {
        let op = self.pipe.oldest(|op| self.ops[op as usize].sleeper.is_some())?;
        self.ops[op as usize].sleeper.take()
    }

    /// Delivers what has come; gives those who are to be woken to `wake`.
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

    /// Tells those whose time is over.
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
            // The other replies of the same op: it is told once.
            match late {
                Some(op) => pipe.abandon(op),
                None => return Ok(()),
            }
        }
    }

    /// The connection has ended: tells all who wait.
    pub fn fail(&mut self, error: &Error, wake: impl FnMut(S)) {
        let Callers { pipe, ops, .. } = self;
        pipe.fail(|tag, missing, outcome| ops[tag.op as usize].fail(error, missing, outcome));
        let told = ops.iter_mut().filter(|op| op.error.is_some());
        told.filter_map(|op| op.sleeper.take()).for_each(wake);
    }
}
