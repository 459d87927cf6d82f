//! A worker: one thread, one loop, one view of the store.
//!
//! ```text
//! turn ─► the loop's turn ─► mail: arrivals, what is to be shed, the outbox ─► balance ─► upkeep, at its time
//!  ▲                                                                                      │
//!  └──────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! [`Service`] is the loop's handler: it gives received bytes to the connection's session and offers the loop
//! what the session leaves ([`replies`]). Told to stop, a worker takes turns until its connections have had
//! their replies.

#[cfg(test)]
mod addresses_on_sim;
#[cfg(test)]
mod half_open_on_sim;
pub(crate) mod handling;
#[cfg(test)]
mod holding_on_sim;
#[cfg(test)]
mod hot_keys_on_sim;
#[cfg(test)]
mod messages_on_sim;
#[cfg(test)]
mod on_sim;
#[cfg(test)]
mod paced_on_sim;
#[cfg(test)]
mod reasons_on_sim;
#[cfg(test)]
mod received_on_sim;
#[cfg(test)]
mod removed_on_sim;
mod replies;
mod service;
#[cfg(test)]
mod stalls_on_sim;
pub(crate) mod timing;
#[cfg(test)]
mod unfinished_on_sim;
#[cfg(test)]
mod uploads_on_sim;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use larder_commands::Counter;
use larder_eventloop::{Backend, Closed, EventLoop, Limits, Millis, WakeUp};

use crate::hub::{Hub, Shed};
use crate::log::Rarely;
use crate::mailbox::{Arrival, Mailbox};
use crate::stalls::{Cause, STALL_NS, Stall, Usage};
use service::STALL_MS;
pub(crate) use service::{Connection, Service, WORKER_BYTES};
use timing::{Timed, Timing};

/// While requests come, upkeep is due this often.
const TICK_BUSY_MS: Millis = if COUNTED { COUNTED_TICK_MS } else { 100 };
/// While nothing happens the first worker does upkeep this often, and the other workers do none.
const TICK_IDLE_MS: Millis = if COUNTED { COUNTED_TICK_MS } else { 250 };
/// The build is one of two that are compared by their instructions. What a worker does by the clock would be counted as a part
/// of requests, the more of it the slower the machine is: such a worker does upkeep at its start alone, and notes no stall.
const COUNTED: bool = cfg!(feature = "counted");
/// Longer than any run that is counted.
const COUNTED_TICK_MS: Millis = 24 * 60 * 60 * 1000;
/// The pause between two rounds of upkeep that had more to do.
const TICK_MORE_MS: Millis = 2;

/// Upkeep that comes so late says that the worker was held up.
const LATE_MS: Millis = 10;

/// When the server stops, a connection whose client reads nothing of its replies for so long is closed.
const DRAIN_STALL_MS: Millis = 5_000;

/// A connection that has to authenticate itself is closed if it has not done so within this time.
const UNAUTHENTICATED_MS: Millis = 10_000;

/// When the server stops, what was published before is delivered first. Clients that go on publishing have no longer than this.
const DELIVERS_MS: Millis = 1_000;

/// When the server stops, connections are closed after this time, even if their clients are still reading replies.
const DRAIN_MS: Millis = 30_000;

/// A worker, its connections and what it does between their requests.
#[derive(Debug)]
pub struct Worker<B: Backend> {
    hub: Arc<Hub>,
    index: usize,
    events: EventLoop<B, Connection>,
    service: Service,
    /// Connections on their way to it.
    arrivals: Arc<Mailbox<Arrival<B::Stream>>>,
    /// When upkeep is due, if it is.
    tick_at: Option<Millis>,
    /// When unfinished work of ended connections goes on, if there is any.
    finish_at: Option<Millis>,
    /// Something has happened since upkeep was last looked at.
    busy: bool,
    /// Until when it waits for its connections, if it has been told to stop.
    stops_at: Option<Millis>,
    timing: Timing,
    /// Turns are timed.
    times: bool,
    /// What the system had counted for the thread when upkeep was done last.
    usage: Option<Usage>,
    /// When the last stall was over.
    stalled_until: Millis,
    /// When a line last told of a stall.
    stall_lines: Rarely,
}

impl<B: Backend> Worker<B> {
    /// Worker `index` of a server.
    pub fn new(
        hub: Arc<Hub>,
        index: usize,
        store: larder_store::Worker,
        backend: B,
        arrivals: Arc<Mailbox<Arrival<B::Stream>>>,
    ) -> Worker<B> {
        let limits = Limits {
            reply_bytes_max: hub.config.reply_bytes_max(),
            idle_ms: hub.config.idle_timeout_s.saturating_mul(1000),
            stall_ms: STALL_MS,
            request_ms: hub.config.request_timeout_s.saturating_mul(1000),
            unauthenticated_ms: UNAUTHENTICATED_MS,
        };
        Worker {
            events: EventLoop::new(backend, limits),
            service: Service::new(Arc::clone(&hub), index, store),
            hub,
            index,
            arrivals,
            tick_at: (index == 0).then_some(0),
            finish_at: None,
            busy: false,
            stops_at: None,
            timing: Timing::default(),
            times: false,
            usage: None,
            stalled_until: 0,
            stall_lines: Rarely::default(),
        }
    }

    /// Takes turns until it has been told to stop and its connections are served.
    ///
    /// # Errors
    /// When the system cannot wait, which does not happen in correct use.
    pub fn run(mut self) -> io::Result<()> {
        if self.hub.rates.any() {
            while self.paced_turn()? {}
        } else {
            while self.turn()? {}
        }
        Ok(())
    }

    /// Takes a turn as [`Worker::turn`] does, where addresses may ask for so much in a second: it is timed, and counts what was
    /// asked for.
    fn paced_turn(&mut self) -> io::Result<bool> {
        // Upkeep need not have turns timed then.
        self.times = true;
        let wait = self.before_wait();
        let mut timed = Timed::new(&mut self.service, &mut self.timing);
        let turn = self.events.turn(&mut timed, wait)?;
        timed.ended();
        self.after(turn)
    }

    /// Waits for something to do, and does it; false when it has come to its end.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub fn turn(&mut self) -> io::Result<bool> {
        let wait = self.before_wait();
        let turn = self.events.turn(&mut self.service, wait)?;
        self.after(turn)
    }

    /// Notes whether the turn that is over was a stall, and returns how long the next one may wait.
    #[inline]
    fn before_wait(&mut self) -> Option<Duration> {
        let worked_ns = self.events.worked_ns();
        if worked_ns >= STALL_NS && !COUNTED {
            // The exact clock says it better than the coarse one.
            let ended_ns = self.hub.clock.elapsed_ns();
            let took_ns = ended_ns.saturating_sub(self.events.now_ns()).max(worked_ns);
            self.note_stall(took_ns / 1000, ended_ns / 1_000_000);
        }
        let until = match self.stops_at {
            Some(at) => (!self.events.is_empty()).then_some(at),
            None => self.tick_at,
        };
        // Upkeep closes connections, too, and what they were at is looked at in the next turn.
        let is_new = self.finish_at.is_none() && !self.service.unfinished.is_empty();
        let finish_at = if is_new { Some(0) } else { self.finish_at };
        let due = [until, finish_at].into_iter().flatten().min();
        due.map(|at| Duration::from_millis(at.saturating_sub(self.events.now())))
    }

    /// Takes some turns that are timed; false when it has come to its end.
    #[cold]
    fn time_turns(&mut self) -> io::Result<bool> {
        self.times = true;
        let mut goes_on = true;
        for _ in 0..timing::TURNS {
            let wait = self.before_wait();
            let mut timed = Timed::new(&mut self.service, &mut self.timing);
            let turn = self.events.turn(&mut timed, wait)?;
            timed.ended();
            goes_on = self.after(turn)?;
            if !goes_on {
                break;
            }
        }
        self.times = false;
        Ok(goes_on)
    }

    /// Does what else there is to do after a turn of the loop; false when it has come to its end.
    #[inline]
    fn after(&mut self, turn: WakeUp) -> io::Result<bool> {
        if turn.woken {
            let handle = &self.hub.handles[self.index];
            // Before the boxes are looked at: what is left behind them wakes again.
            handle.waker.drain();
            // Before the arrivals are taken: none comes after it was set, and so none behind the drain.
            let stops = handle.stop.load(SeqCst);
            self.take_mail();
            self.service.make_room_for_handshakes(&mut self.events);
            let delivers = self.service.deliver(&mut self.events);
            self.service.close_removed(&mut self.events);
            let stopped_at = self.hub.stopped_at.load(SeqCst);
            if stops && self.stops_at.is_none() && (!delivers || turn.now >= stopped_at + DELIVERS_MS) {
                // Not from now on: a worker that was in a script has as much less time as that took.
                self.stops_at = Some(stopped_at + DRAIN_MS);
                self.events.drain(&mut self.service, DRAIN_STALL_MS);
            }
        }
        self.service.balance(&mut self.events);
        let ends = self.stops_at.is_some_and(|until| self.events.is_empty() || turn.now >= until);
        if ends {
            // What such a connection was at is finished, too.
            self.events.close_all(&mut self.service, Closed::Drained);
        }
        self.finish(turn.now);
        match self.stops_at {
            None => {
                if self.tick(turn.now, turn.events > 0) {
                    return self.time_turns();
                }
            }
            Some(_) if ends => {
                // Clients of other workers might see half of it otherwise.
                let goes_on = !self.service.unfinished.is_empty();
                if !goes_on {
                    tracing::debug!(worker = self.index, "worker stopped");
                }
                return Ok(goes_on);
            }
            // A script without end is waited for as long as a client that reads nothing.
            Some(until) if turn.now + DRAIN_MS >= until + DRAIN_STALL_MS => self.hub.shared.end_scripts(),
            Some(_) => {}
        }
        Ok(true)
    }

    /// Goes on with what ended connections were at, if it is time.
    #[inline]
    fn finish(&mut self, now: Millis) {
        if !self.service.unfinished.is_empty() && self.finish_at.is_none_or(|at| now >= at) {
            self.finish_at = self.service.finish_some().map(|left_ms| now + left_ms);
        }
    }

    /// Does upkeep if it is due, and sets when it is due next. True if turns are to be timed.
    #[inline]
    fn tick(&mut self, now: Millis, events: bool) -> bool {
        if self.service.overflow.any() {
            // Looked at again with the next upkeep.
            self.busy |= self.service.cut(&mut self.events);
        }
        self.busy |= events;
        if let Some(at) = self.tick_at
            && now >= at
        {
            self.note_late(at, now);
            let more = self.service.upkeep(self.busy);
            self.busy |= self.service.shed(&mut self.events);
            self.tick_at = match (more, self.busy, self.index) {
                (true, _, _) => Some(now + TICK_MORE_MS),
                (false, true, _) => Some(now + TICK_BUSY_MS),
                (false, false, 0) => Some(now + TICK_IDLE_MS),
                (false, false, _) => {
                    self.service.rest();
                    None
                }
            };
            self.busy = false;
            // Two files of the system: not in each of the rounds that follow one another.
            if !more {
                self.usage = self.hub.clock.thread_usage();
            }
            return !self.times && self.hub.shared.shows_traffic();
        } else if self.tick_at.is_none() && self.busy {
            self.tick_at = Some(now + TICK_BUSY_MS);
            // It has slept, and may not know that samples are wanted.
            self.service.tend_samples();
        }
        false
    }

    /// Notes a stall if upkeep, which was due at `at`, comes late. Where no turn was long, the worker waited and was woken late.
    fn note_late(&mut self, at: Millis, now: Millis) {
        // The first round is due before the worker has begun.
        let late = now.saturating_sub(at.max(self.stalled_until));
        if at > 0 && late >= LATE_MS {
            self.note_stall(late * 1000, now);
        }
    }

    /// Notes that something held the worker up for so long, until `ended`.
    #[cold]
    fn note_stall(&mut self, took_us: u64, ended: Millis) {
        let hub = &self.hub;
        let after = hub.clock.thread_usage();
        let cause = self
            .usage
            .zip(after)
            .map_or(Cause::Unknown, |(before, after)| before.cause(after, took_us * 1000));
        (self.usage, self.stalled_until) = (after, ended);
        hub.handles[self.index].counters.add(Counter::Stalls, 1);
        hub.stalls.add(Stall { at: ended, worker: self.index, took_us, cause });
        hub.shared.note_stall(hub.clock.system_ms(), took_us);
        if let Some(times) = self.stall_lines.due(ended) {
            let (worker, ms, cause) = (self.index, took_us / 1000, cause.name());
            tracing::info!(worker, ms, cause, times, "a worker was held up");
        }
    }

    /// Takes its connections over, and closes those that are to be shed.
    fn take_mail(&mut self) {
        let handle = &self.hub.handles[self.index];
        for Arrival { stream, peer, listener } in self.arrivals.take() {
            debug_assert!(self.stops_at.is_none(), "no connection arrives at a worker that ends its own");
            self.service.enter(&mut self.events, stream, peer, listener);
        }
        for Shed { index, since, input } in handle.mailbox.take() {
            // Unless the connection has moved since, or is another.
            let table = &self.hub.table;
            if input && table.half_open_since(self.index, index) == Some(since) {
                self.service.shed_one(&mut self.events, index, Closed::Crowded);
            } else if !input && table.stands_since(self.index, index) == since {
                self.service.shed_one(&mut self.events, index, Closed::Shed);
            }
        }
    }
}
