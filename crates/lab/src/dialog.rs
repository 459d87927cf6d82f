//! The other half of the generator: clients whose next request depends on the last reply.
//!
//! A [`Dialog`] holds one connection per [`Agent`] and drives all of them by one poll loop per core, as [`crate::generator`]
//! drives scripts. An agent has no socket and no clock: it returns its next request, gets the reply, and may pause (think time,
//! backoff).
//!
//! ```text
//! next ─► Request ─► sent ─► reply ─► Taken::More ─► …  ─► Taken::All ─► next
//!      ─► Until(t) ─► … t comes ─► next
//!      ─► Done
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use larder_eventloop::cpu;
use larder_eventloop::poll::{Events, Interest, Poller};
use larder_protocol::client::{self, Answer, Asked, LINE_BYTES_MAX, Malformed, Protocol};

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::generator::{CONNECT, STALL, Silence, prefer, thread_cpu_time, waited_since};
use crate::sizes::VALUE_BYTES_MAX;
use crate::wire::Wire;

/// The next step of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has appended its request to `out`, and waits for the reply.
    Request,
    /// It does nothing until then.
    Until(Instant),
    /// It has ended.
    Done,
}

/// How many of the received bytes an agent took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nothing: the reply is not whole yet.
    Nothing,
    /// It took this many bytes, and the reply continues.
    More(usize),
    /// It took this many bytes, and the reply is complete.
    All(usize),
}

/// One client.
pub trait Agent: Send {
    /// What agents count together, one for each thread.
    type Tally: Default + Send;

    /// The next step. `ending`: the time is over, and nothing new should begin.
    fn next(&mut self, now: Instant, ending: bool, tally: &mut Self::Tally, out: &mut Vec<u8>) -> Step;

    /// Takes bytes from the received ones, which begin where the agent stopped last time.
    ///
    /// # Errors
    /// [`Error::Reply`] when they are no reply to the request.
    fn reply(&mut self, bytes: &[u8], now: Instant, tally: &mut Self::Tally) -> Result<Taken, Error>;
}

/// The whole answer at the start of `bytes`, and its length; `None` while it is incomplete.
///
/// # Errors
/// [`Error::Reply`] when it is no answer to the request.
pub(crate) fn answer(
    protocol: Protocol,
    asked: Asked,
    bytes: &[u8],
) -> Result<Option<(Answer<'_>, usize)>, Error> {
    client::answer(protocol, asked, bytes).map_err(|Malformed| Error::malformed(bytes))
}

/// Open connections, one for each agent.
#[derive(Debug)]
pub struct Dialog<A> {
    lanes: Vec<Lane<A>>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome<T> {
    /// The agents' counts, by thread.
    pub tallies: Vec<T>,
    /// From the first request to the last reply.
    pub elapsed: Duration,
    /// Share of the time that the busiest thread worked; the rest it waited.
    pub busy: f64,
    /// The largest share of the time in which a thread was ready to run and had no core.
    pub waited: f64,
}

/// A thread's counts, how long it ran, and which shares of that it worked and waited for its core.
type Ended<T> = (T, Duration, f64, f64);

#[derive(Debug)]
struct Lane<A> {
    core: Option<usize>,
    /// The thread sleeps while it waits, and leaves its core to others.
    sleeps: bool,
    poller: Poller,
    seats: Vec<Seat<A>>,
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Agents that have not ended.
    open: usize,
    /// Agents that wait for a reply.
    asking: usize,
}

#[derive(Debug)]
struct Seat<A> {
    agent: A,
    wire: Wire,
    out: Vec<u8>,
    sent: usize,
    /// It waits for room in its socket.
    blocked: bool,
    buffered: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    Asked,
    Done,
}

const RECEIVE_BYTES: usize = 64 * 1024;
/// Bytes of a reply that are waited for at most: the largest value of any load, and lines around it.
const REPLY_BYTES_MAX: usize = VALUE_BYTES_MAX + 2 * LINE_BYTES_MAX;
const EVENTS_MAX: usize = 256;
/// Before a timer this near the thread waits awake: a sleep ends in whole milliseconds, and a little late.
pub(crate) const AWAKE: Duration = Duration::from_micros(1200);

impl<A: Agent> Dialog<A> {
    /// Connects every agent, shared out over one thread per entry of `cores`.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::System`].
    ///
    /// # Panics
    /// If there is no thread.
    pub fn connect(
        to: impl Into<Endpoint>,
        agents: Vec<A>,
        cores: &[Option<usize>],
    ) -> Result<Dialog<A>, Error> {
        assert!(!cores.is_empty(), "agents need a thread");
        let endpoint = to.into();
        let epoll = |error| Error::System("epoll", error);
        let mut lanes = Vec::with_capacity(cores.len());
        for &core in cores {
            let poller = Poller::new().map_err(epoll)?;
            lanes.push(Lane {
                core,
                sleeps: false,
                poller,
                seats: Vec::new(),
                timers: BinaryHeap::new(),
                open: 0,
                asking: 0,
            });
        }
        for (index, agent) in agents.into_iter().enumerate() {
            let refused = |error| Error::Connect(endpoint.to_string(), error);
            let wire = endpoint.connect(CONNECT).map_err(refused)?;
            let lane = &mut lanes[index % cores.len()];
            lane.poller.add(&wire, lane.seats.len() as u64, Interest::Read).map_err(epoll)?;
            let state = State::Waits;
            let (out, buffered) = (Vec::new(), Vec::new());
            lane.seats.push(Seat { agent, wire, out, sent: 0, blocked: false, buffered, state });
        }
        Ok(Dialog { lanes })
    }

    /// Makes threads sleep while they wait, even if they have a core of their own: if other threads may use these cores, too,
    /// spinning would leave them nothing.
    pub fn sleep(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.sleeps = true);
    }

    /// Lets all agents work for `time`, and then finish their operations.
    ///
    /// # Errors
    /// The first error of an agent or a connection.
    pub fn run(&mut self, time: Duration) -> Result<Outcome<A::Tally>, Error> {
        let results: Vec<Result<Ended<A::Tally>, Error>> = thread::scope(|scope| {
            let runs: Vec<_> =
                self.lanes.iter_mut().map(|lane| scope.spawn(move || lane.run(time))).collect();
            runs.into_iter().map(|run| run.join().expect("a lane does not panic")).collect()
        });
        let mut outcome = Outcome { tallies: Vec::new(), elapsed: Duration::ZERO, busy: 0.0, waited: 0.0 };
        for result in results {
            let (tally, elapsed, busy, waited) = result?;
            outcome.waited = outcome.waited.max(waited);
            outcome.tallies.push(tally);
            outcome.elapsed = outcome.elapsed.max(elapsed);
            outcome.busy = outcome.busy.max(busy);
        }
        Ok(outcome)
    }

    /// The agents; between two runs they may be changed.
    pub fn agents_mut(&mut self) -> impl Iterator<Item = &mut A> {
        self.lanes.iter_mut().flat_map(|lane| lane.seats.iter_mut().map(|seat| &mut seat.agent))
    }

    /// The agents.
    pub fn agents(&self) -> impl Iterator<Item = &A> {
        self.lanes.iter().flat_map(|lane| lane.seats.iter().map(|seat| &seat.agent))
    }
}

impl<A: Agent> Lane<A> {
    fn run(&mut self, time: Duration) -> Result<Ended<A::Tally>, Error> {
        // With a core of its own it never sleeps: a wake-up costs more than a request, on virtual
        // machines many times more, and would be measured in the server's place.
        let own = self.core.is_some() && !self.sleeps;
        let alone = own && thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
        prefer(self.core)?;
        let mut tally = A::Tally::default();
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut buffer = vec![0; RECEIVE_BYTES];
        let (cpu_started, turns) = (thread_cpu_time(), cpu::own_turns().unwrap_or_default());
        let started = Instant::now();
        let end = started + time;
        let mut idle = Duration::ZERO;
        let mut silence = Silence::since(started);
        let mut first = 0;
        (self.open, self.asking) = (self.seats.len(), 0);
        for token in 0..self.seats.len() {
            self.advance(token, started, end, &mut tally)?;
        }
        let mut now = started;
        while self.open > 0 {
            let due = self.timers.peek().map(|Reverse((at, _))| at.saturating_duration_since(now));
            let awake = alone || due.is_some_and(|due| due <= AWAKE);
            let wait = if awake { Duration::ZERO } else { due.map_or(STALL, |due| (due - AWAKE).min(STALL)) };
            let asked = now;
            let cpu = if awake { thread_cpu_time() } else { Duration::ZERO };
            self.poller.wait(&mut events, Some(wait)).map_err(|error| Error::System("epoll", error))?;
            now = Instant::now();
            let (mut worked, mut received) = (false, false);
            // Otherwise clients in step with each other would always be served in the same order.
            first = (first + 1) % events.len().max(1);
            for index in 0..events.len() {
                let event = events.at((first + index) % events.len());
                worked = true;
                let token = event.token as usize;
                if event.writable {
                    self.send(token)?;
                }
                if event.readable || event.hangup {
                    received = true;
                    self.receive(token, &mut buffer, end, &mut tally)?;
                    while self.seats[token].wire.has_more() {
                        self.receive(token, &mut buffer, end, &mut tally)?;
                    }
                    if self.seats[token].wire.wants_write() {
                        self.send(token)?;
                    }
                }
            }
            while let Some(&Reverse((at, token))) = self.timers.peek()
                && at <= now
            {
                worked = true;
                self.timers.pop();
                self.advance(token, now, end, &mut tally)?;
            }
            // Only received bytes show that the server works; sent bytes do not.
            if received || self.asking == 0 {
                silence.end(now);
            } else if silence.is_stall(asked, wait, now) {
                return Err(Error::Stalled { missing_bytes: 0 });
            }
            if awake && !worked {
                idle += thread_cpu_time().saturating_sub(cpu);
            }
        }
        let elapsed = started.elapsed();
        let worked = thread_cpu_time().saturating_sub(cpu_started).saturating_sub(idle);
        let busy = worked.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
        Ok((tally, elapsed, busy, waited_since(turns, elapsed)))
    }

    /// Asks an agent for its next step.
    fn advance(
        &mut self,
        token: usize,
        now: Instant,
        end: Instant,
        tally: &mut A::Tally,
    ) -> Result<(), Error> {
        let seat = &mut self.seats[token];
        seat.out.clear();
        seat.sent = 0;
        match seat.agent.next(now, now >= end, tally, &mut seat.out) {
            Step::Request => {
                seat.state = State::Asked;
                self.asking += 1;
                self.send(token)?;
            }
            Step::Until(at) => {
                seat.state = State::Waits;
                self.timers.push(Reverse((at, token)));
            }
            Step::Done => {
                seat.state = State::Done;
                self.open -= 1;
            }
        }
        Ok(())
    }

    fn send(&mut self, token: usize) -> Result<(), Error> {
        let seat = &mut self.seats[token];
        match seat.wire.send(&seat.out[seat.sent..]) {
            Ok(sent) => seat.sent += sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(Error::lost(error)),
        }
        let blocked = seat.sent < seat.out.len() || !seat.wire.flush().map_err(Error::lost)?;
        // Also when no bytes of a request are left: the end of a handshake may have waited for room.
        if blocked != seat.blocked {
            seat.blocked = blocked;
            let interest = if blocked { Interest::Both } else { Interest::Read };
            let epoll = |error| Error::System("epoll", error);
            self.poller.modify(&seat.wire, token as u64, interest).map_err(epoll)?;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        token: usize,
        buffer: &mut Vec<u8>,
        end: Instant,
        tally: &mut A::Tally,
    ) -> Result<(), Error> {
        let seat = &mut self.seats[token];
        let buffered = seat.buffered.len();
        if buffer.len() < 2 * buffered {
            buffer.resize(2 * buffered, 0);
        }
        buffer[..buffered].copy_from_slice(&seat.buffered);
        let received = match seat.wire.recv(&mut buffer[buffered..]) {
            Ok(0) => return Err(Error::Closed),
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(Error::lost(error)),
        };
        let now = Instant::now();
        let mut bytes = &buffer[..buffered + received];
        seat.buffered.clear();
        loop {
            if seat.state != State::Asked {
                return Err(Error::surplus(bytes));
            }
            match seat.agent.reply(bytes, now, tally)? {
                Taken::Nothing => break,
                Taken::More(used) => bytes = &bytes[used..],
                Taken::All(used) if used < bytes.len() => return Err(Error::surplus(&bytes[used..])),
                Taken::All(_) => {
                    self.asking -= 1;
                    return self.advance(token, now, end, tally);
                }
            }
        }
        if bytes.len() > REPLY_BYTES_MAX {
            return Err(Error::endless(REPLY_BYTES_MAX, bytes));
        }
        seat.buffered.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use larder_eventloop::socket::Address;

    use super::*;

    /// An agent that sends one request, and ignores the reply.
    struct Patient;

    impl Agent for Patient {
        type Tally = ();

        fn next(&mut self, _now: Instant, _ending: bool, _tally: &mut (), out: &mut Vec<u8>) -> Step {
            out.extend_from_slice(b"get k\r\n");
            Step::Request
        }

        fn reply(&mut self, _bytes: &[u8], _now: Instant, _tally: &mut ()) -> Result<Taken, Error> {
            Ok(Taken::Nothing)
        }
    }

    #[test]
    fn a_reply_without_end_is_an_error_before_it_takes_all_memory() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            while client.write_all(&[b'x'; 64 << 10]).is_ok() {}
        });
        let mut dialog = Dialog::connect(&address, vec![Patient], &[None]).unwrap();
        let error = dialog.run(Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("a reply of more than 67112960 bytes"), "{error}");
        assert!(dialog.lanes[0].seats[0].buffered.capacity() <= 2 * REPLY_BYTES_MAX);
    }
}
