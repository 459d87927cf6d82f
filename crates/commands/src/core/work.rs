//! Work: how much a worker does before it looks which other connections have something to say.
//!
//! Each wake-up of a worker has a slice of work, which all its connections share. Anything that does more than a fixed small
//! amount (looks through values or keys, copies them, makes long replies) spends of it. The connection that spends the last of
//! it has its turn ended, and those that come after it do the least they can. So dear commands do not add up before the worker
//! looks again, however many send them, while cheap ones go on as if nothing were.
//!
//! Work is counted, not measured: the same requests end their turns at the same places in every run.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The slice of a wake-up, in nanoseconds that its work takes about.
pub const SLICE_NS: u64 = 500_000;

/// Work of a wake-up, received and answered for all connections, after which the budget is nearly spent: of the connections
/// that are left only the beginning is received, and dear work is begun in another turn.
const NEARLY_SPENT_NS: u64 = 4 * SLICE_NS;
/// Nanoseconds of a receive.
const RECEIVE_NS: u64 = 1_000;
/// Nanoseconds of a received byte and what it asks for, where that is nothing dear.
const RECEIVED_BYTE_NS: u64 = 2;

/// Work at values of fewer bytes is done in one step.
pub(crate) const STEPS_BYTES_MIN: u64 = 128 << 10;
/// Least work of a step of a long command, however much of the slice is gone.
pub(crate) const STEP_NS_MIN: u64 = 20_000;

/// Nanoseconds to look at a key and its item, on the way through all of them.
pub(crate) const KEY_NS: u64 = 150;
/// Nanoseconds to read a command's words and write its reply, however short they are.
pub(crate) const COMMAND_NS: u64 = 500;

/// Nanoseconds of a step of the cleaning up that a flush waits for: 40 µs where a segment is clean, 150 where it is full.
pub(crate) const CLEANING_NS: u64 = 150_000;
/// Nanoseconds to store a short key.
pub(crate) const STORE_NS: u64 = 300;
/// Nanoseconds to gather the figures of the process; half of them are to ask the system for its times. Measured, with a margin.
pub(crate) const FIGURES_NS: u64 = 20_000;
/// Nanoseconds to add a worker's counters.
pub(crate) const COUNTERS_NS: u64 = 500;
/// Nanoseconds to add a worker's counts of RESP commands: a cache line for each of 512, and three more for each of the thirty
/// that are usually measured.
pub(crate) const CALLS_NS: u64 = 60_000;
/// Nanoseconds to add a worker's counts of memcached's commands, which are a tenth as many.
pub(crate) const MEMCACHED_CALLS_NS: u64 = 6_000;
/// Nanoseconds to add a worker's counts of types of values: a hundred cache lines, reckoned as lines of another processor.
pub(crate) const TYPES_NS: u64 = 6_000;
/// Nanoseconds to gather the state of the store's classes.
pub(crate) const CLASSES_NS: u64 = 10_000;
/// Nanoseconds to judge figures by the rules of findings.
pub(crate) const RULES_NS: u64 = 10_000;
/// Nanoseconds to add a client's figures.
pub(crate) const CLIENT_NS: u64 = 50;
/// Nanoseconds of a byte of a reply that is put together.
pub(crate) const REPLY_BYTE_NS: u64 = 2;

/// Nanoseconds to copy so many bytes from one place of the store to another.
pub(crate) fn copying_ns(bytes: u64) -> u64 {
    bytes / 2
}

/// A worker's account of work.
#[derive(Debug, Default)]
pub struct Work {
    done_ns: Cell<u64>,
    /// Work that is not of the slice: that of requests which cost next to nothing each, and of which there may be many.
    received_ns: Cell<u64>,
    lane: Arc<Taken>,
}

/// The lane: whether a connection works at large values ([`Work::take_lane`]), and whether it only waits.
#[derive(Debug, Default)]
struct Taken {
    is_taken: AtomicBool,
    rests: AtomicBool,
}

impl Work {
    /// Begins a new slice: the worker has looked which connections have something to say.
    #[inline]
    pub fn begin_slice(&self) {
        self.done_ns.set(0);
        self.received_ns.set(0);
    }

    /// Nanoseconds that were spent of the slice.
    pub fn done_ns(&self) -> u64 {
        self.done_ns.get()
    }

    /// Returns whether the slice is used up.
    #[inline]
    pub fn is_used_up(&self) -> bool {
        self.done_ns.get() >= SLICE_NS
    }

    /// Counts received bytes that were looked at.
    #[inline]
    pub fn note_received(&self, bytes: usize) {
        let ns = RECEIVE_NS + bytes as u64 * RECEIVED_BYTE_NS;
        self.received_ns.set(self.received_ns.get().saturating_add(ns));
    }

    /// Nanoseconds of work for all connections, of the slice or not.
    #[inline]
    pub fn spent_ns(&self) -> u64 {
        self.done_ns.get().saturating_add(self.received_ns.get())
    }

    /// Returns whether nearly as much was done as may be before the worker looks again.
    #[inline]
    pub fn budget_nearly_spent(&self) -> bool {
        self.spent_ns() >= NEARLY_SPENT_NS
    }

    /// Spends `ns` of the slice.
    #[inline]
    pub fn spend(&self, ns: u64) {
        self.done_ns.set(self.done_ns.get().saturating_add(ns));
    }

    /// Nanoseconds that are left of the slice, and no less than `least`.
    pub(crate) fn left_ns(&self, least: u64) -> u64 {
        SLICE_NS.saturating_sub(self.done_ns.get()).max(least)
    }

    /// Takes the lane: the leave to hold on to large values from one turn to the next. One connection of a worker has it at a
    /// time, so that no more is pinned and half made than where each command is one step.
    pub(crate) fn take_lane(&self) -> Option<Lane> {
        (!self.lane.is_taken.swap(true, Relaxed)).then(|| Lane(Some(Arc::clone(&self.lane))))
    }

    /// Returns whether no connection has the lane.
    pub(crate) fn lane_is_free(&self) -> bool {
        !self.lane.is_taken.load(Relaxed)
    }

    /// Returns whether the connection that has the lane only waits, and looks some milliseconds later: others need not look
    /// before.
    pub(crate) fn lane_rests(&self) -> bool {
        self.lane.rests.load(Relaxed)
    }
}

/// The lane of [`Work::take_lane`]; given back when dropped.
#[derive(Debug)]
pub(crate) struct Lane(Option<Arc<Taken>>);

impl Lane {
    /// A lane for work within a job that keeps the lane: dropping it gives nothing back.
    pub(crate) fn kept_by_another() -> Lane {
        Lane(None)
    }

    /// Sets whether it only waits ([`Work::lane_rests`]).
    pub(crate) fn rest(&self, rests: bool) {
        if let Some(lane) = &self.0 {
            lane.rests.store(rests, Relaxed);
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(lane) = &self.0 {
            lane.rests.store(false, Relaxed);
            lane.is_taken.store(false, Relaxed);
        }
    }
}
