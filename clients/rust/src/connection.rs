//! One connection for the caller's own event loop: it never waits, and has no lock and no thread.
//!
//! ```text
//! submit ──► early, until the greeting is over ──► Pipe ──► socket
//! Deliveries ◄──────────── process ◄──────── Pipe ◄── socket
//! ```
//!
//! - Each request that was taken ends exactly once: answered, late, or with the error that ended the connection.
//! - Time is an argument. [`Connection::process`] reports late requests; call it at [`Connection::wake_at`].
//! - After its first failure it takes no requests; make another connection.

use crate::config::Config;
use crate::error::{Error, Outcome, Reason};
use crate::greeting::{Greeting, GreetingStep};
use crate::lane::{self, CLOSED, KEEP_BYTES_MAX, TO_SEND_BYTES_MAX};
use crate::moved::Moved;
use crate::op::Answer;
use crate::pipe::{Delivery, Full, Input, Limits, Pipe, Tag};
use crate::reply::{Reply, result_of};
use crate::socket::{OpenFd, OpenSocket, Socket};
use crate::wire::{Ask, Dialect, Kind, LINE_BYTES_MAX, Request, Status};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

/// Receives of one [`Connection::process`], so that others in the loop have their turn.
const RECEIVES_MAX: usize = 8;

pub const UNCONNECTED: Reason = Reason::said("it does not connect in time");
const UNGREETED: Reason = Reason::said("it does not greet in time");
const HASTY: Reason = Reason::said("it answers what it was not asked");

/// What an event loop has to wait for, and what it has found ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Bytes can be received, or there is an end or an error.
    pub read: bool,
    /// Bytes can be sent, or the connection was made, or there is an error.
    pub write: bool,
}

/// Why a request was not taken. The request ends with this: it is not among the deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Untaken {
    /// The limit of owed replies, or of bytes to send, is reached. There is room again after some deliveries.
    Full,
    /// The request failed.
    Failed(Error),
}

/// Requests that have ended, and their values.
#[derive(Debug, Default)]
pub struct Deliveries {
    ended: Vec<Ended>,
    memory: Vec<u8>,
}

#[derive(Debug)]
struct Ended {
    tag: usize,
    result: Result<Reply, Error>,
    value: Range<usize>,
}

impl Deliveries {
    /// Tag, result and value of each request, in the order in which they ended.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Result<Reply, &Error>, &[u8])> {
        self.ended
            .iter()
            .map(|ended| (ended.tag, ended.result.as_ref().copied(), &self.memory[ended.value.clone()]))
    }

    /// Number of deliveries.
    pub fn len(&self) -> usize {
        self.ended.len()
    }

    /// Whether there are no deliveries.
    pub fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    /// Removes all deliveries, and keeps the memory that they usually need.
    pub fn clear(&mut self) {
        self.ended.clear();
        self.memory.clear();
        self.memory.shrink_to(KEEP_BYTES_MAX);
    }

    fn failed(&mut self, tag: usize, error: Error) {
        self.ended.push(Ended { tag, result: Err(error), value: 0..0 });
    }
}

/// A request that waits for the end of the greeting.
#[derive(Debug)]
struct Early {
    tag: usize,
    deadline: Instant,
    /// What it asks for, without its value.
    ask: Ask<'static>,
    key: Vec<u8>,
    value: Vec<u8>,
    base64: bool,
    cas: Option<u64>,
}

#[derive(Debug)]
enum State {
    Connecting,
    /// With the part that has arrived of the answer to its last question.
    Greeting(Greeting, Vec<u8>),
    Open(Box<Pipe>),
    Over(Error),
}

/// The owner of a request that the pipe has taken.
#[derive(Clone, Copy, Debug)]
struct Owner {
    tag: usize,
    kind: Kind,
}

/// The owners of the requests under way, and the parts that have arrived of a value that comes in parts.
#[derive(Debug, Default)]
struct Owners {
    list: Vec<Owner>,
    free: Vec<u32>,
    part_of: Option<u32>,
    part: Vec<u8>,
}

impl Owners {
    fn add(&mut self, owner: Owner) -> u32 {
        match self.free.pop() {
            Some(op) => {
                self.list[op as usize] = owner;
                op
            }
            None => {
                self.list.push(owner);
                self.list.len() as u32 - 1
            }
        }
    }

    /// Removes an owner, which gets no more deliveries.
    fn remove(&mut self, op: u32) -> Owner {
        if self.part_of == Some(op) {
            (self.part_of, self.part) = (None, Vec::new());
        }
        self.free.push(op);
        self.list[op as usize]
    }

    fn deliver(&mut self, server: &Arc<str>, tag: Tag, delivery: Delivery<'_>, done: &mut Deliveries) {
        match delivery {
            Delivery::Part(bytes) => {
                self.part_of = Some(tag.op);
                self.part.extend_from_slice(bytes);
            }
            Delivery::Reply(head, bytes) => {
                let begins = done.memory.len();
                if head.status == Status::Value {
                    if self.part_of == Some(tag.op) {
                        done.memory.append(&mut self.part);
                    }
                    done.memory.extend_from_slice(bytes);
                }
                let owner = self.remove(tag.op);
                let answer = Answer::new(0, &head, begins..done.memory.len(), false);
                let answer = result_of(owner.kind, answer, &done.memory[begins..], server);
                let value = answer.as_ref().map_or(begins..begins, |answer| answer.value.clone());
                done.memory.truncate(value.end);
                done.ended.push(Ended {
                    tag: owner.tag,
                    result: answer.map(|answer| Reply::of(&answer)),
                    value,
                });
            }
            Delivery::Refused(_) => unreachable!("no request is quiet"),
        }
    }
}

/// One connection, made by [`crate::Builder::connection`].
#[derive(Debug)]
pub struct Connection {
    config: Config,
    server: Arc<str>,
    socket: Socket,
    state: State,
    /// When the greeting must be over.
    until: Instant,
    early: VecDeque<Early>,
    early_bytes: usize,
    owners: Owners,
    input: Input,
    /// Bytes from the pipe or the greeting, and how many of them were sent.
    sending: Vec<u8>,
    sent: usize,
    /// When a request is late at the earliest, or the server has been silent for too long.
    wake: Option<Instant>,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// Begins to connect.
    pub(crate) fn begin(config: Config, now: Instant) -> Result<Connection, Error> {
        let [server] = config.servers.as_slice() else {
            return Err(Error::Config("a connection has one server".to_owned()));
        };
        let name: Arc<str> = server.name().into();
        let socket =
            Socket::begin(&server.address, &Arc::new(OpenFd::default())).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::InvalidInput => Error::Config(error.to_string()),
                    _ => Error::Down(Arc::clone(&name), error.into()),
                }
            })?;
        Ok(Connection {
            until: now + config.dial_timeout,
            config,
            server: name,
            socket,
            state: State::Connecting,
            early: VecDeque::new(),
            early_bytes: 0,
            owners: Owners::default(),
            input: Input::default(),
            sending: Vec::new(),
            sent: 0,
            wake: None,
        })
    }

    /// Its socket, for a forked process.
    pub fn socket(&self) -> Option<OpenSocket> {
        self.socket.found()
    }

    /// Number of requests that have not ended.
    pub fn owed(&self) -> usize {
        match &self.state {
            State::Open(pipe) => pipe.owed(),
            State::Connecting | State::Greeting(..) | State::Over(_) => self.early.len(),
        }
    }

    /// What the event loop has to wait for; nothing after a failure.
    pub fn wants(&self) -> Ready {
        match &self.state {
            State::Connecting => Ready { read: false, write: true },
            State::Greeting(..) => Ready { read: true, write: self.sent < self.sending.len() },
            State::Open(pipe) => {
                Ready { read: true, write: self.sent < self.sending.len() || pipe.to_send() > 0 }
            }
            State::Over(_) => Ready::default(),
        }
    }

    /// When [`Connection::process`] has to be called at the latest, whatever is ready. There may be nothing to do then.
    pub fn wake_at(&self) -> Option<Instant> {
        match &self.state {
            State::Connecting | State::Greeting(..) => {
                Some(self.early.front().map_or(self.until, |early| early.deadline.min(self.until)))
            }
            State::Open(_) => self.wake,
            State::Over(_) => None,
        }
    }

    /// Takes a request of one key, and encodes or copies it at once. The next [`Connection::process`] sends it, whatever is
    /// ready. Its delivery carries `tag`.
    ///
    /// # Errors
    /// [`Untaken`].
    pub fn submit(
        &mut self,
        key: &[u8],
        ask: Ask<'_>,
        cas: Option<u64>,
        tag: usize,
        now: Instant,
    ) -> Result<(), Untaken> {
        let mut full = Vec::new();
        let (key, base64) = self.config.key(key, &mut full).map_err(Untaken::Failed)?;
        let request = Request { cas, base64, ..Request::new(ask, key) };
        let deadline = now + self.config.timeout;
        match &mut self.state {
            State::Over(error) => Err(Untaken::Failed(error.with(Outcome::NotSent))),
            State::Open(pipe) if !request.fits(pipe.dialect()) => Err(Untaken::Failed(Error::Unsupported)),
            State::Open(pipe) if pipe.is_full() || pipe.to_send() >= TO_SEND_BYTES_MAX => Err(Untaken::Full),
            State::Open(pipe) => {
                let op = self.owners.add(Owner { tag, kind: request.kind() });
                pipe.push(&request, Tag { op, item: 0 }, now, deadline).map_err(|Full| Untaken::Full)?;
                let first = deadline.min(now + self.config.stall_timeout);
                self.wake = Some(self.wake.map_or(first, |wake| wake.min(first)));
                Ok(())
            }
            State::Connecting | State::Greeting(..) => {
                if self.early.len() >= self.config.in_flight || self.early_bytes >= TO_SEND_BYTES_MAX {
                    return Err(Untaken::Full);
                }
                let (ask, value) = ask.split();
                self.early_bytes += key.len() + value.len();
                let (key, value) = (key.to_vec(), value.to_vec());
                self.early.push_back(Early { tag, deadline, ask, key, value, base64, cas });
                Ok(())
            }
        }
    }

    /// Sends and receives as far as `ready` says, and adds the requests that have ended to `done`.
    ///
    /// # Errors
    /// Why the connection is over. Requests under way have failed with it, and were added.
    pub fn process(&mut self, ready: Ready, now: Instant, done: &mut Deliveries) -> Result<(), Error> {
        if let State::Over(error) = &self.state {
            return Err(error.clone());
        }
        let result = self.go_on(ready, now, done).and_then(|()| self.look(now, done));
        result.inspect_err(|error| self.fail(error, done))
    }

    fn go_on(&mut self, ready: Ready, now: Instant, done: &mut Deliveries) -> Result<(), Error> {
        if matches!(self.state, State::Connecting) {
            if !self.socket.is_connected().map_err(|error| self.ended(error.into()))? {
                return Ok(());
            }
            let (greeting, first) = Greeting::new(&self.config);
            self.sending.extend_from_slice(&first);
            self.state = State::Greeting(greeting, Vec::new());
        }
        self.send()?;
        if ready.read {
            self.receive(now, done)?;
            // The greeting may be over now, which releases early requests.
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), Error> {
        loop {
            if self.sent == self.sending.len() {
                self.sending.clear();
                self.sending.shrink_to(KEEP_BYTES_MAX);
                self.sent = 0;
                match &mut self.state {
                    State::Open(pipe) if pipe.to_send() > 0 => {
                        self.sending = pipe.hand_out(std::mem::take(&mut self.sending));
                    }
                    _ => return Ok(()),
                }
            }
            match self.socket.send(&self.sending[self.sent..]) {
                Moved::Bytes(bytes) => self.sent += bytes,
                Moved::Nothing => return Ok(()),
                Moved::Failed(reason) => return Err(self.ended(reason)),
            }
        }
    }

    fn receive(&mut self, now: Instant, done: &mut Deliveries) -> Result<(), Error> {
        for _ in 0..RECEIVES_MAX {
            let bytes = match self.socket.receive_now(self.input.room()) {
                Moved::Bytes(0) => return Err(self.ended(CLOSED)),
                Moved::Bytes(bytes) => bytes,
                Moved::Nothing => return Ok(()),
                Moved::Failed(reason) => return Err(self.ended(reason)),
            };
            let was_all = bytes < self.input.room().len();
            self.input.put(bytes);
            match &mut self.state {
                State::Greeting(greeting, reply) => {
                    self.input.drain(reply);
                    if reply.contains(&b'\n') || reply.len() > LINE_BYTES_MAX {
                        if self.sent < self.sending.len() {
                            return Err(self.ended(HASTY));
                        }
                        let next = greeting.heard(&self.server, reply)?;
                        reply.clear();
                        match next {
                            GreetingStep::Say(text) => self.sending.extend_from_slice(&text),
                            GreetingStep::Speaks(dialect) => self.open(dialect, now, done),
                        }
                    }
                }
                State::Open(pipe) => {
                    let (owners, server) = (&mut self.owners, &self.server);
                    let received = pipe.receive(&mut self.input, now, |tag, delivery| {
                        owners.deliver(server, tag, delivery, done);
                    });
                    received.map_err(|broken| lane::error_of(broken, server))?;
                }
                State::Connecting | State::Over(_) => unreachable!("nothing is received then"),
            }
            if was_all {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Ends the greeting: sends the early requests.
    fn open(&mut self, dialect: Dialect, now: Instant, done: &mut Deliveries) {
        let limits = Limits {
            in_flight: self.config.in_flight,
            stall: self.config.stall_timeout,
            verify: self.config.verify,
        };
        let mut pipe = Pipe::new(dialect, limits, now);
        for early in self.early.drain(..) {
            let ask = early.ask.with_value(&early.value);
            let request = Request { cas: early.cas, base64: early.base64, ..Request::new(ask, &early.key) };
            if !request.fits(dialect) {
                done.failed(early.tag, Error::Unsupported);
                continue;
            }
            let op = self.owners.add(Owner { tag: early.tag, kind: request.kind() });
            let pushed = pipe.push(&request, Tag { op, item: 0 }, now, early.deadline);
            pushed.expect("no more were taken than may be owed");
        }
        self.early_bytes = 0;
        self.wake = pipe.wake_at();
        self.state = State::Open(Box::new(pipe));
    }

    /// Fails late requests.
    fn look(&mut self, now: Instant, done: &mut Deliveries) -> Result<(), Error> {
        let late = |outcome| Error::Timeout(Arc::clone(&self.server), outcome);
        while self.early.front().is_some_and(|early| early.deadline <= now) {
            let early = self.early.pop_front().expect("it is there");
            self.early_bytes -= early.key.len() + early.value.len();
            done.failed(early.tag, late(Outcome::NotSent));
        }
        match &mut self.state {
            State::Connecting if self.until <= now => Err(self.ended(UNCONNECTED)),
            State::Greeting(..) if self.until <= now => Err(self.ended(UNGREETED)),
            State::Open(pipe) if pipe.owed() == 0 => {
                self.wake = None;
                Ok(())
            }
            State::Open(pipe) if self.wake.is_some_and(|wake| wake <= now) => {
                let owners = &mut self.owners;
                let ticked =
                    pipe.tick(now, |tag| done.failed(owners.remove(tag.op).tag, late(Outcome::Unknown)));
                ticked.map_err(|broken| lane::error_of(broken, &self.server))?;
                self.wake = pipe.wake_at();
                Ok(())
            }
            State::Connecting | State::Greeting(..) | State::Open(_) | State::Over(_) => Ok(()),
        }
    }

    /// The error of a connection that ended without a protocol error.
    fn ended(&self, reason: Reason) -> Error {
        match self.state {
            State::Connecting | State::Greeting(..) => Error::Down(Arc::clone(&self.server), reason),
            State::Open(_) | State::Over(_) => {
                Error::Lost(Arc::clone(&self.server), reason, Outcome::NotSent)
            }
        }
    }

    fn fail(&mut self, error: &Error, done: &mut Deliveries) {
        self.socket.shut_down();
        if let State::Open(mut pipe) = std::mem::replace(&mut self.state, State::Over(error.clone())) {
            pipe.take_back(self.sending.len() - self.sent);
            let owners = &mut self.owners;
            pipe.fail(|tag, _, outcome| done.failed(owners.remove(tag.op).tag, error.with(outcome)));
        }
        for early in self.early.drain(..) {
            done.failed(early.tag, error.with(Outcome::NotSent));
        }
        (self.sending, self.sent, self.wake) = (Vec::new(), 0, None);
    }
}
