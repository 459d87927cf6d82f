//! Where the time of requests goes: how long they waited for their turn, how long they were worked on, how long their replies
//! waited until the system had them.
//!
//! ```text
//! in the socket    wake-up         its turn              answered             sent
//!     ·── unseen ──►│──── queue ────►│───── service ───────►│────── reply ──────►│
//! ```
//!
//! Some turns of a worker are timed: a dozen after each round of upkeep, ten rounds a second, so that of a server with little to
//! do all are, and of a busy one some hundred a second. These are taken with another handler ([`Timed`]), which reads the clock
//! and has the usual one do the work: a turn that is not timed does nothing for it, not even ask. What is timed is a receive
//! with all requests in it. What lies before the wake-up is not seen; it is no longer than the turn before. Replies of
//! which the socket did not take all are not counted as sent, and not as waiting.

use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use larder_commands::Counter;
use larder_eventloop::{Between, Closed, Destination, Handler, Id, Millis, Outgoing, PutOff, Taken, Wait};

use super::service::{Connection, Service};
use crate::hub::Handle;

/// Turns that are timed in a row.
pub(super) const TURNS: u32 = 12;
/// Most connections of a turn whose replies are timed.
const REPLIES_MAX: usize = 256;

/// The parts of a request's time.
pub const STAGES: [&str; 3] = ["queue", "service", "reply"];
const QUEUE: usize = 0;
const SERVICE: usize = 1;
const REPLY: usize = 2;

/// Protocols whose requests are told apart.
pub const PROTOCOLS: [&str; 2] = ["memcached", "redis"];
/// The protocol of a connection, as an index of [`PROTOCOLS`]. A connection that has sent nothing yet is memcached's.
fn protocol(connection: &Connection) -> usize {
    usize::from(connection.session.redis_client().is_some())
}

/// Steps of a doubling.
const FINE: usize = 8;
/// Steps of times: nanoseconds up to 8, then eight a doubling, up to 32 s.
pub const STEPS: usize = 33 * FINE;

/// The step of a time.
fn step(ns: u64) -> usize {
    if ns < FINE as u64 {
        return ns as usize;
    }
    let doubling = ns.ilog2() as usize;
    ((doubling - 2) * FINE + (ns >> (doubling - 3)) as usize % FINE).min(STEPS - 1)
}

/// The shortest time of a step, nanoseconds.
pub fn step_ns(step: usize) -> u64 {
    match step / FINE {
        0 => step as u64,
        doubling => ((FINE + step % FINE) as u64) << (doubling - 1),
    }
}

/// Parts of receives by what was asked for with each: 1, up to 2, up to 4 … up to 1,024, and more.
pub const MANY: usize = 12;

/// What a worker has timed: it alone writes.
#[derive(Debug)]
pub struct Stages {
    stages: [[[AtomicU64; STEPS]; STAGES.len()]; PROTOCOLS.len()],
    /// Whole turns, from the wake-up until all had been answered and sent what a socket took.
    turns: [AtomicU64; STEPS],
    /// Receives of these turns, by what was asked for.
    receives: [AtomicU64; MANY],
}

impl Default for Stages {
    fn default() -> Stages {
        Stages {
            stages: [const { [const { [const { AtomicU64::new(0) }; STEPS] }; STAGES.len()] };
                PROTOCOLS.len()],
            turns: [const { AtomicU64::new(0) }; STEPS],
            receives: [const { AtomicU64::new(0) }; MANY],
        }
    }
}

/// Counts one more; no other thread writes it.
fn count(at: &AtomicU64) {
    at.store(at.load(Relaxed).wrapping_add(1), Relaxed);
}

fn step_of(took: Duration) -> usize {
    step(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX))
}

/// Counts of steps of each stage, of one worker or of all, of one protocol or of all.
pub type Counts = [[u64; STEPS]; STAGES.len()];

impl Stages {
    fn took(&self, protocol: usize, stage: usize, took: Duration) {
        count(&self.stages[protocol][stage][step_of(took)]);
    }

    fn turned(&self, took: Duration) {
        count(&self.turns[step_of(took)]);
    }

    /// Notes how many requests one receive brought.
    fn received(&self, requests: u64) {
        let part = (u64::BITS - (requests.max(1) - 1).leading_zeros()) as usize;
        count(&self.receives[part.min(MANY - 1)]);
    }

    /// Adds the times of a protocol.
    pub fn add_to(&self, counts: &mut Counts, protocol: usize) {
        counts.iter_mut().zip(&self.stages[protocol]).for_each(|(sums, stage)| add(sums, stage));
    }

    /// Adds whole turns.
    pub fn add_turns_to(&self, counts: &mut [u64; STEPS]) {
        add(counts, &self.turns);
    }

    /// Adds receives by what was asked for.
    pub fn add_receives_to(&self, counts: &mut [u64; MANY]) {
        add(counts, &self.receives);
    }
}

fn add<const N: usize>(sums: &mut [u64; N], counts: &[AtomicU64; N]) {
    sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.wrapping_add(count.load(Relaxed)));
}

/// The time up to which such a part of all is, in the middle of its step, nanoseconds; `all` is not 0.
pub fn quantile(counts: &[u64; STEPS], all: u64, part: f64) -> f32 {
    let wanted = ((all as f64 * part).ceil() as u64).max(1);
    let mut sum = 0;
    let reached = counts.iter().position(|count| {
        sum += count;
        sum >= wanted
    });
    let step = reached.unwrap_or(STEPS - 1);
    (step_ns(step) + step_ns(step + 1)) as f32 / 2.0
}

/// What is kept of a turn that is timed.
#[derive(Debug)]
pub(super) struct Timing {
    woke: Instant,
    /// Places of connections whose replies are not sent, and since when.
    waiting: Vec<(u64, Instant)>,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { woke: Instant::now(), waiting: Vec::with_capacity(REPLIES_MAX) }
    }
}

/// The handler of a turn that is timed. Where addresses may ask for so much in a second, all turns are timed: what a receive has
/// asked for is counted here.
pub(super) struct Timed<'t> {
    service: &'t mut Service,
    timing: &'t mut Timing,
    /// Addresses may ask for so much in a second.
    paces: bool,
}

impl<'t> Timed<'t> {
    pub fn new(service: &'t mut Service, timing: &'t mut Timing) -> Timed<'t> {
        timing.waiting.clear();
        let paces = service.hub().rates.any();
        Timed { service, timing, paces }
    }

    fn handle(&self) -> &Handle {
        &self.service.hub().handles[self.service.index()]
    }

    fn took(&self, protocol: usize, stage: usize, from: Instant, to: Instant) {
        self.handle().stages.took(protocol, stage, to.saturating_duration_since(from));
    }

    /// Notes that the turn is over.
    pub fn ended(&self) {
        self.handle().stages.turned(self.timing.woke.elapsed());
    }

    /// Notes how many requests one receive brought.
    fn asked_for(&self, requests: u64) {
        // A receive may bring a part of a request, or one that is on no keys, which is not counted.
        if requests > 0 {
            let Handle { counters, stages, .. } = self.handle();
            stages.received(requests);
            counters.add(Counter::TimedReceives, 1);
            counters.add(Counter::TimedRequests, requests);
        }
    }
}

impl Handler for Timed<'_> {
    type Connection = Connection;

    fn woke(&mut self, now_ns: u64) {
        self.timing.woke = Instant::now();
        self.service.woke(now_ns);
    }

    fn received(&mut self, connection: &mut Connection, input: &[u8]) -> Taken {
        let requests = self.handle().counters.requests();
        let began = Instant::now();
        let taken = self.service.received(connection, input);
        let ended = Instant::now();
        let requests = self.handle().counters.requests().saturating_sub(requests);
        if self.paces {
            self.service.spend(connection, requests);
        }
        // A client that is only looked at has asked for nothing.
        if taken.bytes > 0 {
            let protocol = protocol(connection);
            self.took(protocol, QUEUE, self.timing.woke, began);
            self.took(protocol, SERVICE, began, ended);
            self.asked_for(requests);
            if self.timing.waiting.len() < REPLIES_MAX {
                self.timing.waiting.push((connection.facts.place(), ended));
            }
        }
        taken
    }

    fn put_off(&mut self, connection: &Connection) -> Option<PutOff> {
        if !self.paces {
            return None;
        }
        let put_off = self.service.puts_off(connection);
        if matches!(put_off, Some(PutOff { rest: 0, .. })) {
            // It costs what a short receive does: thousands of one address may wake at the same time.
            self.service.room.work().note_received(0);
        }
        put_off
    }

    fn sent(&mut self, connection: &mut Connection, bytes: u64) -> u64 {
        let now = Instant::now();
        let unsent = self.service.sent(connection, bytes);
        let place = connection.facts.place();
        while let Some(at) = self.timing.waiting.iter().position(|(of, _)| *of == place) {
            let (_, since) = self.timing.waiting.swap_remove(at);
            if unsent == 0 && bytes > 0 {
                self.took(protocol(connection), REPLY, since, now);
            }
        }
        unsent
    }

    fn destination<'d>(&'d mut self, connection: &'d mut Connection) -> Option<Destination<'d>> {
        self.service.destination(connection)
    }

    fn filled(&mut self, connection: &mut Connection, bytes: usize) -> Wait {
        self.service.filled(connection, bytes)
    }

    fn keeps(&mut self, connection: &mut Connection, own: usize, all: usize) -> bool {
        self.service.keeps(connection, own, all)
    }

    fn budget_spent(&self) -> bool {
        self.service.budget_spent()
    }

    fn spent_ns(&self) -> u64 {
        self.service.spent_ns()
    }

    fn budget_nearly_spent(&self) -> bool {
        self.service.budget_nearly_spent()
    }

    fn lets_go(&mut self, all: usize) {
        self.service.lets_go(all);
    }

    fn crowded_out(&mut self, except: Id) -> Option<usize> {
        self.service.crowded_out(except)
    }

    fn awaits_rest(&self, connection: &Connection) -> bool {
        self.service.awaits_rest(connection)
    }

    fn holds_up_others(&self, connection: &Connection) -> bool {
        self.service.holds_up_others(connection)
    }

    fn must_end(&self, connection: &Connection) -> bool {
        self.service.must_end(connection)
    }

    fn has_unauthenticated(&self) -> bool {
        self.service.has_unauthenticated()
    }

    fn unauthenticated_since(&self, connection: &Connection) -> Option<Millis> {
        self.service.unauthenticated_since(connection)
    }

    fn replies<'r>(&'r mut self, connection: &'r mut Connection) -> Outgoing<'r> {
        self.service.replies(connection)
    }

    fn slices<'r>(&'r mut self, connection: &'r mut Connection, into: &mut [IoSlice<'r>]) -> usize {
        self.service.slices(connection, into)
    }

    fn stream_holds(&mut self, connection: &mut Connection, before: Between, now: Between) {
        self.service.stream_holds(connection, before, now);
    }

    fn stream_named(&mut self, connection: &mut Connection, name: &str) {
        self.service.stream_named(connection, name);
    }

    fn stream_opened(&mut self, took_ns: u64) {
        self.service.stream_opened(took_ns);
    }

    fn stream_worked(&mut self, records: u32) {
        self.service.stream_worked(records);
    }

    fn deferrable(&self, connection: &Connection) -> Option<u64> {
        self.service.deferrable(connection)
    }

    fn closed(&mut self, id: Id, connection: Connection, why: Closed) {
        let place = connection.facts.place();
        self.timing.waiting.retain(|(of, _)| *of != place);
        self.service.closed(id, connection, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_times_from_its_shortest_up_to_the_next_ones() {
        for at in 0..STEPS - 1 {
            let (least, next) = (step_ns(at), step_ns(at + 1));
            assert!(least < next && next - least <= (least / 8).max(1), "{at}: {least} {next}");
            assert_eq!((step(least), step(next - 1)), (at, at), "{least} to {next}");
        }
        assert_eq!(step(u64::MAX), STEPS - 1);
        assert!(step_ns(STEPS - 1) > 30_000_000_000);
    }

    #[test]
    fn what_was_counted_is_added_up() {
        let (one, other) = (Stages::default(), Stages::default());
        let ns = Duration::from_nanos;
        one.took(1, QUEUE, ns(100));
        other.took(1, QUEUE, ns(100));
        other.took(1, REPLY, ns(7));
        other.took(0, SERVICE, ns(9));
        let mut counts: Counts = [[0; STEPS]; STAGES.len()];
        [&one, &other].iter().for_each(|stages| stages.add_to(&mut counts, 1));
        assert_eq!((counts[QUEUE][step(100)], counts[REPLY][7]), (2, 1));
        assert_eq!(counts.iter().flatten().sum::<u64>(), 3);
        one.turned(ns(100));
        let mut turns = [0; STEPS];
        [&one, &other].iter().for_each(|stages| stages.add_turns_to(&mut turns));
        assert_eq!((turns[step(100)], turns.iter().sum::<u64>()), (1, 1));
    }

    #[test]
    fn receives_are_counted_by_doublings_of_what_was_asked_for() {
        let stages = Stages::default();
        for requests in [1, 2, 3, 4, 5, 1_024, 1_025, u64::MAX / 2] {
            stages.received(requests);
        }
        let mut counts = [0; MANY];
        stages.add_receives_to(&mut counts);
        assert_eq!(counts, [1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1, 2]);
    }
}
