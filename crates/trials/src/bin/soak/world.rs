//! What all threads of a soak share: the phase, what may explain a missing value, complaints, and figures.
//!
//! No client is stopped for a flush or an eviction. Instead each of these is a *cause* with two counters: how
//! often it has begun, raised before the request for it is sent, and how often it has ended, raised after the
//! reply. A client notes both before it sends a request and after it has the reply. So it knows whether an
//! item *may* be gone (a cause was under way at some time since the item was written), and whether it *must*
//! be gone after a flush.

use crate::group::Work;
use crate::phase::{MEGABYTES, PHASES, Phase};
use crate::queue::Queue;
use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

/// Most complaints that are printed; all are counted.
const PRINTED_MAX: u64 = 40;

/// A cause for missing items or refused writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// flush_all or FLUSHALL.
    Flush,
    /// A full store that evicts; or a lower limit, which also lowers what connections may hold.
    Evict,
    /// A full store that refuses writes.
    Full,
    /// Replies to attackers may hold all that connections may: then replies to reads are refused, and
    /// requests are not gathered.
    Replies,
}

const CAUSES: usize = 4;

/// How often each cause has begun and ended, at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since the start.
    pub at_ms: u64,
    began: [u64; CAUSES],
    over: [u64; CAUSES],
}

/// The time from before a request was sent to after its reply was read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// The moment before the request was sent.
    pub before: Moment,
    /// The moment after the reply was read.
    pub after: Moment,
}

impl Span {
    /// Whether the cause may have been under way at some time from `self` to the end of `later`.
    pub fn may_meet(&self, cause: Cause, later: &Span) -> bool {
        later.after.began[cause as usize] > self.before.over[cause as usize]
    }

    /// Whether connections may have held all the memory that they may.
    pub fn may_be_full(&self) -> bool {
        self.may_meet(Cause::Replies, self) || self.may_meet(Cause::Evict, self)
    }

    /// Whether the cause began after `self` and ended before `later`.
    pub fn was_followed_by(&self, cause: Cause, later: &Span) -> bool {
        later.before.over[cause as usize] > self.after.began[cause as usize]
    }
}

/// The state that all threads share.
#[derive(Debug)]
pub struct World {
    /// memcached's port, and Redis's.
    pub ports: [SocketAddr; 2],
    /// Held for reading by threads that have a request under way; for writing between two phases.
    pub gate: RwLock<&'static Phase>,
    /// Tells all threads to end.
    pub stop: AtomicBool,
    /// Connections of clients, from which the administrator chooses one to close.
    pub open: Mutex<HashSet<SocketAddr>>,
    /// Connections that the administrator has closed.
    pub killed: Mutex<HashSet<SocketAddr>>,
    /// Shared counters of the phase, with the least and the highest value that each must have.
    pub sums: Mutex<BTreeMap<String, (u64, u64)>>,
    /// Numbers that were pushed and popped in the phase.
    pub queue: Mutex<Queue>,
    /// Entries of streams that were added and acknowledged in the phase.
    pub work: Mutex<Work>,
    /// The phase's number since the start.
    pub round: AtomicUsize,
    began: [AtomicU64; CAUSES],
    over: [AtomicU64; CAUSES],
    complaints: AtomicU64,
    lost: AtomicU64,
    limits: Mutex<Vec<(Instant, u64)>>,
    figures: Mutex<BTreeMap<String, u64>>,
    deeds: Mutex<Vec<(u64, u64, String)>>,
    started: Instant,
}

impl World {
    /// The world of a server at `ports`.
    pub fn new(ports: [SocketAddr; 2]) -> World {
        World {
            ports,
            gate: RwLock::new(&PHASES[0]),
            stop: AtomicBool::new(false),
            open: Mutex::default(),
            killed: Mutex::default(),
            sums: Mutex::default(),
            queue: Mutex::default(),
            work: Mutex::default(),
            round: AtomicUsize::new(0),
            began: Default::default(),
            over: Default::default(),
            complaints: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            limits: Mutex::new(vec![(Instant::now(), MEGABYTES)]),
            figures: Mutex::default(),
            deeds: Mutex::default(),
            started: Instant::now(),
        }
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Microseconds since the start.
    pub fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// The time at which the soak began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Notes that the administrator did something that began at `began_us`.
    pub fn note(&self, deed: &str, began_us: u64) {
        let now = self.now_us();
        self.deeds.lock().expect("not poisoned").push((began_us, now, deed.to_owned()));
    }

    /// What the administrator did between these times.
    pub fn deeds(&self, from_us: u64, to_us: u64) -> String {
        let deeds = self.deeds.lock().expect("not poisoned");
        let meant = deeds.iter().filter(|(began, ended, _)| *began <= to_us && *ended >= from_us);
        let told: Vec<String> =
            meant.map(|(began, ended, deed)| format!("{deed} ({} ms)", (ended - began) / 1000)).collect();
        told.join(", ")
    }

    /// The state of every cause. Read it before sending a request and after its reply.
    pub fn moment(&self) -> Moment {
        // `over` first: a cause that ends in between then counts as still under way.
        let over = std::array::from_fn(|cause| self.over[cause].load(SeqCst));
        let began = std::array::from_fn(|cause| self.began[cause].load(SeqCst));
        Moment { at_ms: self.now_ms(), began, over }
    }

    /// Notes that the cause is about to begin.
    pub fn begin(&self, cause: Cause) {
        self.began[cause as usize].fetch_add(1, SeqCst);
    }

    /// Notes that the cause has ended.
    pub fn end(&self, cause: Cause) {
        self.over[cause as usize].fetch_add(1, SeqCst);
    }

    /// Whether threads go on.
    pub fn runs(&self) -> bool {
        !self.stop.load(SeqCst)
    }

    /// Runs `act` within a phase.
    pub fn within<R>(&self, act: impl FnOnce(&'static Phase) -> R) -> R {
        let phase = self.gate.read().expect("nobody panics between phases");
        act(*phase)
    }

    /// Notes that the limit is, or is about to be, this many megabytes.
    pub fn limit(&self, megabytes: u64) {
        self.limits.lock().expect("not poisoned").push((Instant::now(), megabytes));
    }

    /// The highest limit within the last `patience`, in bytes: a lower limit takes effect over time.
    pub fn limit_bytes(&self, patience: Duration) -> u64 {
        let limits = self.limits.lock().expect("not poisoned");
        let now = Instant::now();
        let mut until = now;
        let mut most = 0;
        for (since, megabytes) in limits.iter().rev() {
            if now.duration_since(until) > patience {
                break;
            }
            most = most.max(*megabytes);
            until = *since;
        }
        most << 20
    }

    /// Whether a refusal is explained: connections may have held all the memory that they may.
    pub fn were_full(text: &str, span: &Span) -> bool {
        span.may_be_full() && text.contains("connections hold as much memory as they may")
    }

    /// Prints and counts a complaint.
    pub fn complain(&self, text: &str) {
        if self.complaints.fetch_add(1, SeqCst) < PRINTED_MAX {
            let round = self.round.load(SeqCst);
            eprintln!("WRONG at {:.1} s, round {round}: {text}", self.started.elapsed().as_secs_f64());
        }
    }

    /// Prints more about the last complaint.
    pub fn tell(&self, text: &str) {
        if self.complaints.load(SeqCst) <= PRINTED_MAX {
            eprintln!("{text}");
        }
    }

    /// Complains that an acknowledged value is missing, and nothing explains it.
    pub fn lost(&self, text: &str) {
        self.lost.fetch_add(1, SeqCst);
        self.complain(text);
    }

    /// Number of all complaints, and of those about lost values.
    pub fn complaints(&self) -> (u64, u64) {
        (self.complaints.load(SeqCst), self.lost.load(SeqCst))
    }

    /// Adds to a named count.
    pub fn count(&self, what: &str, more: u64) {
        let mut figures = self.figures.lock().expect("not poisoned");
        match figures.get_mut(what) {
            Some(figure) => *figure += more,
            None => drop(figures.insert(what.to_owned(), more)),
        }
    }

    /// All named counts.
    pub fn figures(&self) -> BTreeMap<String, u64> {
        self.figures.lock().expect("not poisoned").clone()
    }

    /// Forgets a connection that no client has any more.
    pub fn forget(&self, address: SocketAddr) {
        self.open.lock().expect("not poisoned").remove(&address);
    }

    /// Notes that a connection ended. That is a complaint with the text `what`, unless the administrator
    /// closed it.
    pub fn broke(&self, address: SocketAddr, what: impl FnOnce() -> String) {
        self.forget(address);
        if !self.was_killed(address) {
            self.complain(&what());
        }
    }

    /// Whether the administrator has closed this connection.
    pub fn was_killed(&self, address: SocketAddr) -> bool {
        self.killed.lock().expect("not poisoned").contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_explains_what_it_overlaps_and_demands_what_it_follows() {
        let world = World::new([([127, 0, 0, 1], 1).into(); 2]);
        let span = |world: &World| Span { before: world.moment(), after: world.moment() };
        let written = span(&world);
        assert!(!written.may_meet(Cause::Flush, &span(&world)));
        world.begin(Cause::Flush);
        let during = span(&world);
        assert!(written.may_meet(Cause::Flush, &during) && !written.was_followed_by(Cause::Flush, &during));
        world.end(Cause::Flush);
        let later = span(&world);
        assert!(written.was_followed_by(Cause::Flush, &later));
        assert!(during.may_meet(Cause::Flush, &later) && !during.was_followed_by(Cause::Flush, &later));
        assert!(!later.may_meet(Cause::Flush, &span(&world)), "what is written behind a flush stays");
        assert!(!written.may_meet(Cause::Evict, &later));
    }
}
