//! One connection that all threads share, without a thread of its own.
//!
//! ```text
//! callers ──push──► Pipe ──a caller, if no other writes──► socket ──a waiting caller, if no other reads──► callers
//! ```
//!
//! A caller encodes its request under the lock. If no other thread writes, it writes for all callers that have encoded by then. A
//! waiting caller reads, if no other does, and delivers all replies that come before its own; the others sleep. A caller that
//! leaves while no thread reads wakes the owner of the oldest owed reply.
//!
//! - Bytes that the socket does not take stay with the lane, and any caller that comes or waits continues with them. While
//!   another thread reads, the writer waits for the socket. Otherwise the writer also reads, so that two full buffers cannot wait
//!   for each other.
//! - The reading thread checks the time at least once per step (an eighth of the timeout, 1 to 16 ms): a timeout is late by at
//!   most one step.

use crate::alone::Alone;
use crate::error::{Error, Outcome, Reason};
use crate::line::Line;
use crate::moved::Moved;
use crate::op::{self, Callers, Counters};
use crate::pipe::{Broken, Full, Input, Limits, Pipe};
use crate::socket::{Socket, lost};
use larder_protocol::client::Dialect;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Buffers that grew beyond this are not kept.
pub const KEEP_BYTES_MAX: usize = 256 << 10;
/// After this many writes for others a caller looks for its own replies.
const WRITES_MAX: usize = 8;
/// Callers wait while more than this is to be sent.
pub const TO_SEND_BYTES_MAX: usize = 1 << 20;

/// Why a connection ended without an error of the system.
pub const CLOSED: Reason = Reason::said("closed by the server");
pub const STALLED: Reason = Reason::said("it owes replies and sends nothing");

/// The interval at which deadlines are checked.
pub fn step(timeout: Duration) -> Duration {
    (timeout / 8).clamp(Duration::from_millis(1), Duration::from_millis(16))
}

/// What a thread waits for.
pub type Op = op::Op<Thread>;

/// One connection.
#[derive(Debug)]
pub struct Lane {
    server: Arc<str>,
    socket: Socket,
    step: Duration,
    alive: AtomicBool,
    state: Mutex<State>,
}

/// A caller's place in the lane.
#[derive(Debug)]
pub struct Ticket(u32);

#[derive(Debug)]
struct State {
    callers: Callers<Thread>,
    /// `None` while a thread reads.
    input: Option<Input>,
    /// Bytes from the pipe, of which the first were sent.
    sending: Vec<u8>,
    sent: usize,
    writing: bool,
    looked: Instant,
    error: Option<Error>,
    /// Threads that wait for room.
    crowd: Vec<Thread>,
}

type Locked<'l> = MutexGuard<'l, State>;

impl Lane {
    /// A lane over a new connection.
    pub fn new(server: Arc<str>, socket: Socket, dialect: Dialect, limits: Limits, step: Duration) -> Lane {
        let now = Instant::now();
        let state = State {
            callers: Callers::new(Pipe::new(dialect, limits, now)),
            input: Some(Input::default()),
            sending: Vec::new(),
            sent: 0,
            writing: false,
            looked: now,
            error: None,
            crowd: Vec::new(),
        };
        Lane { server, socket, step, alive: AtomicBool::new(true), state: Mutex::new(state) }
    }

    fn lock(&self) -> Locked<'_> {
        // Only a panic in a caller's own code could poison the lock, and no such code runs under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pushes requests and sends what the socket takes. `push` is called with the number of the op, returns how many replies are
    /// owed, and is called again after the lane was full. Values are appended to `memory`.
    ///
    /// # Errors
    /// None of the requests was sent. The memory is given back.
    pub fn begin(
        &self,
        deadline: Instant,
        memory: Vec<u8>,
        mut push: impl FnMut(&mut Pipe, u32, Instant) -> Result<u32, Full>,
    ) -> Result<Ticket, (Error, Vec<u8>)> {
        let mut state = self.lock();
        let op = state.callers.come();
        state.callers.op(op).memory = memory;
        let owed = loop {
            let now = Instant::now();
            let refused = match &state.error {
                Some(error) => Some(error.with(Outcome::NotSent)),
                None if now >= deadline => Some(Error::Timeout(Arc::clone(&self.server), Outcome::NotSent)),
                None => None,
            };
            if let Some(error) = refused {
                return Err((error, state.callers.go(op).memory));
            }
            let pipe = &mut state.callers.pipe;
            if pipe.to_send() < TO_SEND_BYTES_MAX
                && let Ok(owed) = push(pipe, op, now)
            {
                break owed;
            }
            state = self.wait_for_room(state);
        };
        state.callers.op(op).left = owed;
        state.callers.counters.requests += u64::from(owed);
        if !state.writing {
            if state.callers.pipe.owed() > owed as usize {
                // Threads that can run now add their own requests; otherwise each thread would write for itself.
                drop(state);
                thread::yield_now();
                state = self.lock();
            }
            if !state.writing {
                drop(self.write(state, deadline));
            }
        }
        Ok(Ticket(op))
    }

    /// Waits until all replies have come, or none can come any more; returns them.
    pub fn wait(&self, ticket: &Ticket) -> Op {
        let mut state = self.lock();
        let op = ticket.0;
        while !state.callers.op(op).is_done() {
            if state.has_bytes() && !state.writing {
                state = self.write(state, Instant::now() + self.step);
                if state.callers.op(op).is_done() {
                    break;
                }
            }
            state = match state.input.take() {
                Some(input) => self.read(state, input),
                None => {
                    state.callers.op(op).sleeper = Some(thread::current());
                    drop(state);
                    // The thread that delivers its reply, or leaves the reading to it, wakes this one. The timeout is for a
                    // wake-up that an unpark in the caller's own code consumed.
                    thread::park_timeout(self.step * 4);
                    let mut state = self.lock();
                    state.callers.op(op).sleeper = None;
                    state
                }
            };
        }
        let op = state.callers.go(op);
        state.hand_over();
        op
    }

    /// Reads if no other thread does, since replies that no caller waits for may take the room; otherwise sleeps for a step.
    fn wait_for_room<'l>(&'l self, mut state: Locked<'l>) -> Locked<'l> {
        if state.has_bytes() && !state.writing {
            state = self.write(state, Instant::now() + self.step);
        }
        if let Some(input) = state.input.take() {
            state = self.read(state, input);
            state.hand_over();
            return state;
        }
        state.crowd.push(thread::current());
        drop(state);
        thread::park_timeout(self.step);
        self.lock()
    }

    /// Sends what there is. Until `deadline`, waits for the socket as long as another thread reads.
    fn write<'l>(&'l self, mut state: Locked<'l>, deadline: Instant) -> Locked<'l> {
        state.writing = true;
        for _ in 0..WRITES_MAX {
            if state.sending.is_empty() {
                if state.callers.pipe.to_send() == 0 {
                    break;
                }
                let spare = std::mem::take(&mut state.sending);
                state.sending = state.callers.pipe.hand_out(spare);
                state.sent = 0;
            }
            let bytes = std::mem::take(&mut state.sending);
            let mut sent = state.sent;
            let mut full = false;
            loop {
                state.callers.counters.writes += 1;
                drop(state);
                let moved = self.socket.send(&bytes[sent..]);
                state = self.lock();
                match moved {
                    Moved::Bytes(more) => sent += more,
                    Moved::Nothing if state.input.is_none() && Instant::now() < deadline => {
                        drop(state);
                        self.socket.wait(false, self.step);
                        state = self.lock();
                    }
                    Moved::Nothing => full = true,
                    Moved::Failed(why) => {
                        if state.error.is_none() {
                            state.callers.pipe.take_back(bytes.len() - sent);
                            self.fail(&mut state, lost(&self.server, why));
                        }
                    }
                }
                if full || sent == bytes.len() || state.error.is_some() {
                    break;
                }
            }
            if state.error.is_some() {
                break;
            }
            state.sending = bytes;
            state.sent = sent;
            if full {
                break;
            }
            state.sending.clear();
            if state.sending.capacity() > KEEP_BYTES_MAX {
                state.sending = Vec::new();
            }
        }
        state.writing = false;
        state
    }

    /// Receives once, for a step at most, and delivers.
    fn read<'l>(&'l self, mut state: Locked<'l>, mut input: Input) -> Locked<'l> {
        // No thread writes what the socket did not take: this one waits for both directions.
        let stuck = state.has_bytes() && !state.writing;
        drop(state);
        let moved = if !stuck {
            self.socket.receive(input.room())
        } else if self.socket.wait(true, self.step) {
            self.socket.receive_now(input.room())
        } else {
            Moved::Nothing
        };
        state = self.lock();
        let now = Instant::now();
        state.callers.counters.reads += 1;
        let mut failure = None;
        match moved {
            _ if state.error.is_some() => {}
            Moved::Bytes(0) => failure = Some(lost(&self.server, CLOSED)),
            Moved::Bytes(bytes) => {
                input.put(bytes);
                let received = state.callers.receive(&mut input, now, |sleeper| sleeper.unpark());
                failure = received.err().map(|broken| self.broken(broken));
            }
            Moved::Nothing => {}
            Moved::Failed(why) => failure = Some(lost(&self.server, why)),
        }
        if failure.is_none() && now.duration_since(state.looked) >= self.step / 2 {
            state.looked = now;
            let looked = state.callers.look(now, &self.server, |sleeper| sleeper.unpark());
            failure = looked.err().map(|broken| self.broken(broken));
        }
        state.input = Some(input);
        if let Some(error) = failure {
            self.fail(&mut state, error);
        }
        if !state.crowd.is_empty() && !state.callers.pipe.is_full() {
            state.crowd.drain(..).for_each(|thread| thread.unpark());
        }
        state
    }

    /// Ends the connection and fails all callers that wait.
    fn fail(&self, state: &mut State, error: Error) {
        if state.error.is_some() {
            return;
        }
        self.alive.store(false, Ordering::Relaxed);
        self.socket.shut_down();
        state.callers.fail(&error, |sleeper| sleeper.unpark());
        state.crowd.drain(..).for_each(|thread| thread.unpark());
        state.error = Some(error);
    }

    fn broken(&self, broken: Broken) -> Error {
        error_of(broken, &self.server)
    }
}

impl Line for Lane {
    type Dialed = Condvar;
    type Ticket = Ticket;
    type Alone = Alone;

    fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    fn dialect(&self) -> Dialect {
        self.lock().callers.pipe.dialect()
    }

    fn counters(&self) -> Counters {
        self.lock().callers.counters
    }

    fn is_idle(&self) -> bool {
        self.lock().callers.is_empty()
    }

    fn close(&self, error: Error) {
        self.fail(&mut self.lock(), error);
    }

    /// Waiting callers drive the lane, and it ends with the last of them.
    fn retire(&self) {}

    fn is_free(alone: &Alone) -> bool {
        alone.is_free()
    }

    fn end(alone: &Alone) {
        alone.end();
    }

    fn tell(dialed: &Condvar) {
        dialed.notify_all();
    }

    fn now() -> Instant {
        Instant::now()
    }
}

/// The error of a connection that was given up.
pub fn error_of(broken: Broken, server: &Arc<str>) -> Error {
    let server = Arc::clone(server);
    match broken {
        Broken::Protocol(what) => Error::Protocol(server, what, Outcome::Unknown),
        Broken::Stalled => Error::Lost(server, STALLED, Outcome::Unknown),
    }
}

impl State {
    /// Whether bytes wait to be sent.
    fn has_bytes(&self) -> bool {
        !self.sending.is_empty() || self.callers.pipe.to_send() > 0
    }

    /// If no thread reads owed replies, or writes waiting bytes, wakes the sleeping owner of the oldest owed reply to do it.
    fn hand_over(&mut self) {
        let unread = self.input.is_some() && self.callers.pipe.owed() > 0;
        if !unread && (self.writing || !self.has_bytes()) {
            return;
        }
        if let Some(thread) = self.callers.oldest_sleeper().or_else(|| self.crowd.pop()) {
            thread.unpark();
        }
    }
}
