//! One connection that all tasks share, with a task of its own.
//!
//! ```text
//! callers ──push──► Pipe ──who finds nothing under way, else the driver──► socket ──the driver──► callers
//! ```
//!
//! Who has a request encodes it under the lock. If nothing else is under way, it sends it at once; else the driver does,
//! after those who can run now have added theirs. The driver receives, delivers, and looks at the time each step while
//! replies are owed: a timeout is late by a step.
//!
//! - No lock is held while anything is awaited, or while anybody is woken.
//! - A caller that goes away leaves its slot, whose reply is thrown away.
//! - A driver that ends, with its runtime, ends the connection.

use super::direct::Alone;
use super::socket::Socket;
use crate::error::{Error, Outcome, Reason};
use crate::fleet::Line;
use crate::lane::{CLOSED, KEEP_BYTES_MAX, TO_SEND_BYTES_MAX, error_of};
use crate::op::{self, Callers, Counters};
use crate::pipe::{Full, Input, Limits, Pipe};
use crate::socket::{Moved, lost};
use crate::wire::Dialect;
use ::tokio::sync::Notify;
use ::tokio::time::{self, Sleep, timeout_at};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// After so many writes, or receives, others have their turn.
const TURN_MAX: usize = 8;

/// Why a connection ends that nobody drives any more, or is not made.
pub const UNDRIVEN: Reason = Reason::said("the runtime that it was made on has ended");

/// Why a connection ends that nobody needs any more.
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
    /// Those who wait for room look again.
    room: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    callers: Callers<Waker>,
    /// Handed out by the pipe, and sent up to here.
    sending: Vec<u8>,
    sent: usize,
    writing: bool,
    /// Somebody waits for room.
    is_crowded: bool,
    /// The driver, while it sleeps.
    driver: Option<Waker>,
    /// The driver looks at the time without being woken.
    is_timed: bool,
    /// It ends when nothing is owed any more.
    is_retired: bool,
    error: Option<Error>,
}

type Locked<'l> = MutexGuard<'l, State>;

impl Lane {
    /// A lane of a connection on which nothing is under way, and its driver, on this runtime.
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
        // A panic while it was held is one of a caller's own code: nothing of it runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pushes requests, when there is room. `push` is given the number of the op, says how many replies are owed, and is
    /// asked again if the lane was full; values are appended to what `memory` has, which is taken.
    ///
    /// # Errors
    /// None of the requests was sent, and the memory is as it was.
    pub async fn begin(
        self: &Arc<Self>,
        deadline: Instant,
        memory: &mut Vec<u8>,
        mut push: impl FnMut(&mut Pipe, u32, Instant) -> Result<u32, Full>,
    ) -> Result<Ticket, Error> {
        loop {
            // Whoever makes room from here on is heard.
            let room = self.room.notified();
            if let Some(begun) = self.try_begin(deadline, memory, &mut push) {
                return begun;
            }
            // The next try tells who is late.
            let _ = timeout_at(deadline.into(), room).await;
        }
    }

    /// [`Lane::begin`] without waiting; none if there is no room.
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

    /// So many replies more are owed.
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

    /// Sends what the socket takes; true if it takes no more. Nobody else writes.
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

    /// Ends the connection and tells all who wait.
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
    /// Some bytes wait to be sent, and nobody sends them.
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

/// Receives, delivers, sends what others left, and looks at the time, until the connection is over.
struct Driver {
    lane: Arc<Lane>,
    step: Duration,
    input: Input,
    /// While the state says that it is timed.
    timer: Pin<Box<Sleep>>,
    /// Those who are woken next.
    woken: Vec<Waker>,
    /// It has let others run who may have more to send.
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
    /// Does what can be done now, and leaves word of who is to be woken for more.
    ///
    /// # Errors
    /// Why the connection is over.
    fn turn(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        self.receive(context)?;
        if !self.has_given_way && self.lane.lock().is_unsent() {
            // Who can run now adds its own: else there were a write for each.
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
            // What was left since is done now: nobody has woken this for it.
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
                // Before anybody is woken: who was answered last does not ask on a connection that is over.
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

    /// Sends what nobody else does; true if this is woken when it can go on.
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

    /// Tells those whose time is over, each step while replies are owed.
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

/// A caller's place among those who wait. Awaited, it gives what came; dropped, it is given up.
#[derive(Debug)]
pub struct Ticket {
    lane: Arc<Lane>,
    op: u32,
    is_over: bool,
}

impl Ticket {
    /// Waits no more: its memory, with what came of a value until now.
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

/// A ticket whose memory is a caller's buffer, which has it back in the end: if it is dropped, as it was.
#[derive(Debug)]
pub struct Filling<'b> {
    ticket: Ticket,
    buffer: &'b mut Vec<u8>,
    /// Of the buffer before.
    bytes: usize,
}

impl<'b> Filling<'b> {
    /// Of a ticket that has taken the memory of this buffer, which had so many bytes.
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
