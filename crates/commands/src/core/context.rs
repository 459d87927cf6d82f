//! The context of one call of a session: a store guard, the worker's counters, what all workers share.

use std::any::Any;
use std::cell::Cell;

use larder_store::{Guard, Millis};

use super::counters::Counters;
use super::host::{Host, Peer};
use super::output::Output;
use super::prefix::WorkerPrefixes;
use super::shared::Shared;
use super::traffic::Tap;
use super::watchers::Scene;
use super::work::Work;

/// Everything around a session at work. Made once per batch of receives.
pub struct Context<'c, 'w> {
    /// The worker inside the store, entered at [`Shared::now`].
    pub guard: Guard<'w>,
    /// This worker's counters.
    pub counters: &'c Counters,
    /// Settings and state that all workers share.
    pub shared: &'c Shared,
    /// The server around the session.
    pub host: &'c dyn Host,
    /// The other end of the connection.
    pub peer: &'c dyn Peer,
    /// The worker's room for values at work, and its account of work.
    pub room: &'c Room,
}

/// Memory and state that the worker keeps from one request to the next: room for a value that is read, changed and written, so
/// that this allocates nothing, its account of work, its sampler of traffic, and its counts for `stats detail`.
#[derive(Default)]
pub struct Room {
    bytes: Cell<Vec<u8>>,
    work: Work,
    tap: Tap,
    prefixes: WorkerPrefixes,
    retry: Cell<Retry>,
    /// Microseconds of the turn's time beyond its milliseconds.
    micros: Cell<u64>,
    /// The rest of the request at work, if that goes on in the next turn. Its conversation knows the type.
    later: Cell<Option<Box<dyn Any + Send>>>,
    /// State that protocols keep with their worker, one of each type.
    kept: Cell<Vec<Box<dyn Any + Send>>>,
}

/// Whether the request at work may be retried if it finds no memory while some may come, and whether it is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Retry {
    /// It may be retried.
    #[default]
    Allowed,
    /// It is refused instead.
    Forbidden,
    /// It is to be retried from its beginning.
    Requested,
    /// It goes on in the next turn.
    Continued,
}

impl Room {
    /// Most bytes of the room that are kept.
    pub(crate) const BYTES_KEPT: usize = 64 << 10;

    /// Lends the room, empty. It is a new one if the room is lent already.
    pub(crate) fn lend(&self) -> Vec<u8> {
        self.bytes.take()
    }

    /// Takes the room back for the next request.
    pub(crate) fn take_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        bytes.shrink_to(Room::BYTES_KEPT);
        self.bytes.set(bytes);
    }

    /// Takes what was kept of this type. `None` if nothing was, or if it is lent already.
    pub(crate) fn take_kept<T: 'static>(&self) -> Option<Box<T>> {
        let mut kept = self.kept.take();
        let at = kept.iter().position(|what| (**what).is::<T>());
        let found = at.map(|at| kept.swap_remove(at));
        self.kept.set(kept);
        found?.downcast().ok()
    }

    /// Keeps something from one request to the next, in place of what was kept of its type.
    pub(crate) fn keep<T: Send + 'static>(&self, what: Box<T>) {
        let mut kept = self.kept.take();
        kept.retain(|other| !(**other).is::<T>());
        kept.push(what);
        self.kept.set(kept);
    }

    /// Begins a turn, whose time has so many microseconds beyond the milliseconds at which guards are entered.
    #[inline]
    pub fn set_micros(&self, micros: u64) {
        self.micros.set(micros);
    }

    /// The worker's account of work.
    #[inline]
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// The worker's counts for `stats detail`.
    #[inline]
    pub(crate) fn prefixes(&self) -> &WorkerPrefixes {
        &self.prefixes
    }

    /// The worker's sampler of traffic.
    #[inline]
    pub(crate) fn tap(&self) -> &Tap {
        &self.tap
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

impl Room {
    /// Returns true, once, for a request that is to be retried.
    pub(crate) fn take_again(&self) -> bool {
        let is = self.retry.get() == Retry::Requested;
        if is {
            self.retry.set(Retry::Allowed);
        }
        is
    }

    /// Returns whether a request is to be retried, or goes on in the next turn. Requests behind it wait.
    #[inline]
    pub(crate) fn is_again(&self) -> bool {
        self.retry.get() >= Retry::Requested
    }

    /// Returns whether a request goes on in the next turn.
    pub(crate) fn is_later(&self) -> bool {
        self.retry.get() == Retry::Continued
    }

    /// Runs `f` without retries: a request that finds no memory in it is refused.
    pub(crate) fn for_the_last_time<R>(&self, f: impl FnOnce() -> R) -> R {
        let before = self.retry.replace(Retry::Forbidden);
        let done = f();
        if self.retry.get() == Retry::Forbidden {
            self.retry.set(before);
        }
        done
    }

    /// Returns whether a request may go on in the next turn: not while one is to be retried, or goes on already.
    pub(crate) fn may_go_on_later(&self) -> bool {
        self.retry.get() < Retry::Requested
    }

    /// Notes that the request at work goes on in the next turn with `rest`.
    pub(crate) fn go_on_later(&self, rest: Box<dyn Any + Send>) {
        self.retry.set(Retry::Continued);
        self.later.set(Some(rest));
    }

    /// Takes the rest of the request that goes on in the next turn.
    pub(crate) fn take_later<T: 'static>(&self) -> Option<Box<T>> {
        if !self.is_later() {
            return None;
        }
        self.retry.set(Retry::Allowed);
        self.later.take()?.downcast().ok()
    }
}

impl Context<'_, '_> {
    /// A request found no memory. Returns true if it is to be retried later from its beginning: then the turn of the connection
    /// that has `out` ends, and nothing is replied.
    #[cold]
    pub(crate) fn asks_again(&self, out: &mut Output) -> bool {
        if !self.guard.memory_comes() || self.room.retry.get() != Retry::Allowed {
            return false;
        }
        self.room.retry.set(Retry::Requested);
        out.end_turn();
        true
    }

    /// Where and when something happens, for memcached's watchers.
    pub(crate) fn watched(&self) -> Scene<'_> {
        Scene { host: self.host, store: self.guard.store(), now: self.now() }
    }

    /// The time of this batch, milliseconds since the Unix epoch.
    #[inline]
    pub fn now(&self) -> Millis {
        self.guard.now()
    }

    /// The time of this turn, microseconds since the Unix epoch.
    pub(crate) fn now_us(&self) -> u64 {
        self.now() * 1000 + self.room.micros.get()
    }

    /// Spends work. If that was the last of the slice, the turn of the connection that has `out` ends.
    pub(crate) fn spend(&self, out: &mut Output, ns: u64) {
        self.room.work().spend(ns);
        self.end_turn_if_due(out);
    }

    /// Spends the store's side work: a flush leaves work to the commands that come later.
    #[inline(always)]
    pub(crate) fn spend_beside(&mut self, out: &mut Output) {
        let ns = self.guard.take_beside_ns();
        if ns > 0 {
            self.spend_much(out, ns);
        }
    }

    #[cold]
    #[inline(never)]
    fn spend_much(&mut self, out: &mut Output, ns: u64) {
        self.spend(out, ns);
    }

    /// Ends the turn of the connection that has `out` if the slice is used up.
    pub(crate) fn end_turn_if_due(&self, out: &mut Output) {
        if self.room.work().is_used_up() {
            out.end_turn();
        }
    }
}

impl std::fmt::Debug for Context<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("now", &self.guard.now()).finish_non_exhaustive()
    }
}
