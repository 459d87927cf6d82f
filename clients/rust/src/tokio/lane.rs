//! One connection that all tasks share, with a task of its own.
//!
//! ```text
//! callers ──push──► Pipe ──a caller, if nothing is under way, else the driver──► socket ──the driver──► callers
//! ```
//!
//! A caller encodes its request under the lock. If nothing else is under way, it sends the request at once. Otherwise the driver
//! does, after other tasks that can run now have added theirs. The driver receives, delivers, and checks the time once per step
//! while replies are owed: a timeout is late by at most one step.
//!
//! - No lock is held across an await or a wake-up.
//! - A caller that is dropped leaves its request pending, whose reply is dropped.
//! - A driver that ends, with its runtime, ends the connection.

use super::alone::Alone;
use super::socket::Socket;
use crate::error::{Error, Outcome, Reason};
use crate::lane::{CLOSED, KEEP_BYTES_MAX, TO_SEND_BYTES_MAX, error_of};
use crate::line::Line;
use crate::moved::Moved;
use crate::op::{self, Callers, Counters};
use crate::pipe::{Full, Input, Limits, Pipe};
use crate::socket::lost;
use crate::wire::Dialect;
use ::tokio::sync::Notify;
use ::tokio::time::{self, Sleep, timeout_at};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// After this many writes or receives, other tasks have their turn.
const TURN_MAX: usize = 8;

/// Why a connection ended, or was not made: its runtime is gone.
pub const UNDRIVEN: Reason = Reason::said("the runtime that it was made on has ended");

/// Why a connection ended: its server was taken off the list.
const RETIRED: Reason = Reason::said("its server is no longer one of the servers");

/// What a task waits for.
pub type Op = op::Op<Waker>;

/// One connection.
#[derive(Debug)]
pub struct Lane {
    server: Arc<str>,
    socket: Socket,
    dialect: Dialect,
    alive: AtomicBool,
    /// Notifies callers that wait for room.
    room: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    callers: Callers<Waker>,
    /// Bytes from the pipe, of which the first were sent.
    sending: Vec<u8>,
    sent: usize,
    writing: bool,
    /// Callers wait for room.
    is_crowded: bool,
    /// Wakes the driver, while it sleeps.
    driver: Option<Waker>,
    /// The driver's timer runs.
    is_timed: bool,
    /// The lane ends when no reply is owed any more.
    is_retired: bool,
    error: Option<Error>,
}

type Locked<'l> = MutexGuard<'l, State>;

impl Lane {
    /// A lane over a new connection, and its driver on the present runtime.
    pub fn start(
        server: Arc<str>,
        socket: Socket,
        dialect: Dialect,
        limits: Limits,
        step: Duration,
    ) -> Arc<Lane> {
        let state = State {
            callers: Callers::new(Pipe::new(dialect, limits, Lane::now())),
            sending: Vec::new(),
            sent: 0,
            writing: false,
            is_crowded: false,
            driver: None,
            is_timed: false,
            is_retired: false,
            error: None,
        };
        let lane = Arc::new(Lane {
            server,
            socket,
            dialect,
            alive: AtomicBool::new(true),
            room: Notify::new(),
            state: Mutex::new(state),
        });
        ::tokio::spawn(Driver {
            lane: Arc::clone(&lane),
            step,
            input: Input::default(),
            timer: Box::pin(time::sleep(Duration::ZERO)),
            woken: Vec::new(),
            has_given_way: false,
        });
        lane
    }

    fn lock(&self) -> Locked<'_> {
        // Only a panic in a caller's own code could poison the lock, and no such code runs under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pushes requests, as soon as there is room. `push` is called with the number of the op, returns how many replies are owed,
    /// and is called again after the lane was full. `memory` is taken, and values are appended to it.
    ///
    /// # Errors
    /// None of the requests was sent. The memory stays as it was.
    pub async fn begin(
        self: &Arc<Self>,
        deadline: Instant,
        memory: &mut Vec<u8>,
        mut push: impl FnMut(&mut Pipe, u32, Instant) -> Result<u32, Full>,
    ) -> Result<Ticket, Error> {
        loop {
            // From here on no notification of room is missed.
            let room = self.room.notified();
            if let Some(begun) = self.try_begin(deadline, memory, &mut push) {
                return begun;
            }
            // The next try reports a timeout.
            let _ = timeout_at(deadline.into(), room).await;
        }
    }

    /// [`Lane::begin`] without waiting; `None` if there is no room.
    pub fn try_begin(
        self: &Arc<Self>,
        deadline: Instant,
        memory: &mut Vec<u8>,
        mut push: impl FnMut(&mut Pipe, u32, Instant) -> Result<u32, Full>,
    ) -> Option<Result<Ticket, Error>> {
        let mut state = self.lock();
        let now = Lane::now();
        if let Some(error) = &state.error {
            return Some(Err(error.with(Outcome::NotSent)));
        }
        if now >= deadline {
            return Some(Err(Error::Timeout(Arc::clone(&self.server), Outcome::NotSent)));
        }
        if state.callers.pipe.to_send() < TO_SEND_BYTES_MAX {
            let op = state.callers.come();
            if let Ok(owed) = push(&mut state.callers.pipe, op, now) {
                let waits = state.callers.op(op);
                (waits.left, waits.memory) = (owed, std::mem::take(memory));
                self.pushed(state, owed);
                return Some(Ok(Ticket { lane: Arc::clone(self), op, is_over: false }));
            }
            state.callers.go(op);
        }
        state.is_crowded = true;
        None
    }

    /// Notes that `owed` more replies are owed.
    fn pushed<'l>(&'l self, mut state: Locked<'l>, owed: u32) {
        state.callers.counters.requests += u64::from(owed);
        let is_alone = state.callers.pipe.owed() == owed as usize && state.sending.is_empty();
        if is_alone && !state.writing {
            state = self.write(state).0;
        }
        let is_wanted = !state.is_timed || state.is_unsent();
        let driver = if is_wanted { state.driver.take() } else { None };
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Sends what the socket takes; true if it takes no more. Only one task may write at a time.
    fn write<'l>(&'l self, mut state: Locked<'l>) -> (Locked<'l>, bool) {
        state.writing = true;
        let mut is_full = false;
        for _ in 0..TURN_MAX {
            let mut has_room = false;
            if state.sending.is_empty() {
                if state.callers.pipe.to_send() == 0 {
                    break;
                }
                let spare = std::mem::take(&mut state.sending);
                state.sending = state.callers.pipe.hand_out(spare);
                state.sent = 0;
                has_room = std::mem::take(&mut state.is_crowded);
            }
            let (bytes, sent) = (std::mem::take(&mut state.sending), state.sent);
            state.callers.counters.writes += 1;
            drop(state);
            if has_room {
                self.room.notify_waiters();
            }
            let moved = self.socket.send(&bytes[sent..]);
            state = self.lock();
            if state.error.is_some() {
                break;
            }
            match moved {
                Moved::Bytes(more) => (state.sending, state.sent) = (bytes, sent + more),
                Moved::Nothing => (state.sending, state.sent, is_full) = (bytes, sent, true),
                Moved::Failed(why) => {
                    state.callers.pipe.take_back(bytes.len() - sent);
                    self.fail(state, lost(&self.server, why));
                    state = self.lock();
                    break;
                }
            }
            if is_full {
                break;
            }
            if state.sent == state.sending.len() {
                state.sending.clear();
                state.sending.shrink_to(KEEP_BYTES_MAX);
            }
        }
        state.writing = false;
        (state, is_full)
    }

    /// Ends the connection and fails all callers that wait.
    fn fail(&self, mut state: Locked<'_>, error: Error) {
        if state.error.is_some() {
            return;
        }
        self.alive.store(false, Ordering::Relaxed);
        self.socket.shut_down();
        let mut woken = Vec::new();
        state.callers.fail(&error, |sleeper| woken.push(sleeper));
        woken.extend(state.driver.take());
        (state.sending, state.sent) = (Vec::new(), 0);
        state.error = Some(error);
        drop(state);
        self.room.notify_waiters();
        woken.into_iter().for_each(Waker::wake);
    }

    fn lost(&self, error: io::Error) -> Error {
        lost(&self.server, error.into())
    }
}

impl State {
    /// Whether bytes wait to be sent, and no task sends them.
    fn is_unsent(&self) -> bool {
        !self.writing && (!self.sending.is_empty() || self.callers.pipe.to_send() > 0)
    }
}

impl Line for Lane {
    type Dialed = Notify;
    type Ticket = Ticket;
    type Alone = Alone;

    fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    fn dialect(&self) -> Dialect {
        self.dialect
    }

    fn counters(&self) -> Counters {
        self.lock().callers.counters
    }

    fn is_idle(&self) -> bool {
        self.lock().callers.is_empty()
    }

    fn close(&self, error: Error) {
        self.fail(self.lock(), error);
    }

    fn retire(&self) {
        let mut state = self.lock();
        state.is_retired = true;
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }

    fn is_free(alone: &Alone) -> bool {
        alone.is_free()
    }

    fn end(alone: &Alone) {
        alone.end();
    }

    fn tell(dialed: &Notify) {
        dialed.notify_waiters();
    }

    fn now() -> Instant {
        time::Instant::now().into_std()
    }
}

/// Receives, delivers, sends what others left, and checks the time, until the connection ends.
struct Driver {
    lane: Arc<Lane>,
    step: Duration,
    input: Input,
    /// Used while the state says that it runs.
    timer: Pin<Box<Sleep>>,
    /// Callers to wake next.
    woken: Vec<Waker>,
    /// The driver has let other tasks run, which may have more to send.
    has_given_way: bool,
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let driver = &mut *self;
        match driver.turn(context) {
            Ok(()) => Poll::Pending,
            Err(error) => {
                driver.lane.close(error);
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.lane.close(lost(&self.lane.server, UNDRIVEN));
    }
}

impl Driver {
    /// Does what can be done now, and registers to be woken for more.
    ///
    /// # Errors
    /// Why the connection has ended.
    fn turn(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        self.receive(context)?;
        if !self.has_given_way && self.lane.lock().is_unsent() {
            // Tasks that can run now add their own requests; otherwise there would be a write for each.
            self.has_given_way = true;
            context.waker().wake_by_ref();
            return Ok(());
        }
        self.has_given_way = false;
        loop {
            let is_stuck = self.send(context)?;
            self.look(context)?;
            let mut state = self.lane.lock();
            if let Some(error) = &state.error {
                return Err(error.clone());
            }
            // Bytes that were left since then are sent now, since no task has woken the driver for them.
            if (state.is_unsent() && !is_stuck) || (!state.is_timed && state.callers.pipe.owed() > 0) {
                continue;
            }
            if state.is_retired && state.callers.pipe.owed() == 0 && !state.is_unsent() {
                return Err(lost(&self.lane.server, RETIRED));
            }
            let before = state.driver.replace(context.waker().clone());
            drop(state);
            drop(before);
            return Ok(());
        }
    }

    fn receive(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        let lane = &*self.lane;
        for _ in 0..TURN_MAX {
            match lane.socket.poll_receive(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(ready) => ready.map_err(|error| lane.lost(error))?,
            }
            let bytes = match lane.socket.receive(self.input.room()) {
                Moved::Bytes(0) => return Err(lost(&lane.server, CLOSED)),
                Moved::Bytes(bytes) => bytes,
                Moved::Nothing => continue,
                Moved::Failed(why) => return Err(lost(&lane.server, why)),
            };
            self.input.put(bytes);
            let mut state = lane.lock();
            state.callers.counters.reads += 1;
            let woken = &mut self.woken;
            let received = state.callers.receive(&mut self.input, Lane::now(), |sleeper| woken.push(sleeper));
            if let Err(broken) = received {
                // Before any caller is woken: a caller with an answer must not ask on a connection that has ended.
                let error = error_of(broken, &lane.server);
                lane.fail(state, error.clone());
                self.woken.drain(..).for_each(Waker::wake);
                return Err(error);
            }
            let has_room = state.is_crowded && !state.callers.pipe.is_full();
            state.is_crowded &= !has_room;
            drop(state);
            self.woken.drain(..).for_each(Waker::wake);
            if has_room {
                lane.room.notify_waiters();
            }
        }
        // There may be more.
        context.waker().wake_by_ref();
        Ok(())
    }

    /// Sends what no other task sends; true if this task will be woken when it can continue.
    fn send(&mut self, context: &mut Context<'_>) -> Result<bool, Error> {
        let lane = &*self.lane;
        loop {
            if !lane.lock().is_unsent() {
                return Ok(false);
            }
            match lane.socket.poll_send(context) {
                Poll::Pending => return Ok(true),
                Poll::Ready(ready) => ready.map_err(|error| lane.lost(error))?,
            }
            let state = lane.lock();
            if !state.is_unsent() {
                return Ok(false);
            }
            let (state, is_full) = lane.write(state);
            let is_over = !state.is_unsent();
            drop(state);
            if is_over {
                return Ok(false);
            }
            if !is_full {
                // Others have their turn.
                context.waker().wake_by_ref();
                return Ok(true);
            }
        }
    }

    /// Fails callers whose time is over; once per step while replies are owed.
    fn look(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        let mut is_timed = self.lane.lock().is_timed;
        loop {
            if is_timed && self.timer.as_mut().poll(context).is_pending() {
                return Ok(());
            }
            let mut state = self.lane.lock();
            let woken = &mut self.woken;
            let looked = match is_timed {
                true => state.callers.look(Lane::now(), &self.lane.server, |sleeper| woken.push(sleeper)),
                false => Ok(()),
            };
            is_timed = state.callers.pipe.owed() > 0;
            state.is_timed = is_timed;
            drop(state);
            self.woken.drain(..).for_each(Waker::wake);
            looked.map_err(|broken| error_of(broken, &self.lane.server))?;
            if !is_timed {
                return Ok(());
            }
            self.timer.as_mut().reset(time::Instant::now() + self.step);
        }
    }
}

/// A caller's place on the lane. Awaited, it gives the replies; dropped, it gives them up.
#[derive(Debug)]
pub struct Ticket {
    lane: Arc<Lane>,
    op: u32,
    is_over: bool,
}

impl Ticket {
    /// Stops waiting; returns its memory, with what has arrived of a value.
    fn give_up(&mut self) -> Vec<u8> {
        self.is_over = true;
        let mut state = self.lane.lock();
        state.callers.pipe.abandon(self.op);
        let op = state.callers.go(self.op);
        drop(state);
        op.memory
    }
}

impl Future for Ticket {
    type Output = Op;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Op> {
        let ticket = &mut *self;
        assert!(!ticket.is_over, "it is awaited once");
        let mut state = ticket.lane.lock();
        let op = state.callers.op(ticket.op);
        if op.is_done() {
            ticket.is_over = true;
            return Poll::Ready(state.callers.go(ticket.op));
        }
        let before = match &op.sleeper {
            Some(sleeper) if sleeper.will_wake(context.waker()) => None,
            _ => op.sleeper.replace(context.waker().clone()),
        };
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_over {
            self.give_up();
        }
    }
}

/// A ticket whose memory is a caller's buffer. The buffer is returned in the end; if the ticket is dropped, with its old
/// contents.
#[derive(Debug)]
pub struct Filling<'b> {
    ticket: Ticket,
    buffer: &'b mut Vec<u8>,
    /// Length of the buffer before the call.
    bytes: usize,
}

impl<'b> Filling<'b> {
    /// For a ticket that has taken the memory of `buffer`, which had `bytes` bytes.
    pub fn new(ticket: Ticket, buffer: &'b mut Vec<u8>, bytes: usize) -> Filling<'b> {
        Filling { ticket, buffer, bytes }
    }
}

impl Future for Filling<'_> {
    type Output = Op;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Op> {
        let filling = &mut *self;
        Pin::new(&mut filling.ticket).poll(context).map(|mut op| {
            *filling.buffer = std::mem::take(&mut op.memory);
            op
        })
    }
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        if !self.ticket.is_over {
            *self.buffer = self.ticket.give_up();
            self.buffer.truncate(self.bytes);
        }
    }
}
