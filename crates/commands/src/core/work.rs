//! Work: how much a worker does before it looks which other connections have something to say.
//!
//! Each wake-up of a worker has a slice of work, which all its connections share. What does more than a fixed
//! small amount (looks through values or keys, copies them, makes long replies) spends of it; the
//! connection that spends the last of it has its turn ended, and those that come after it do the least they can. So commands that
//! are dear do not add up before the worker looks again, however many send them, while those that are not
//! go on as if nothing were.
//!
//! Work is counted, not measured: the same requests end their turns at the same places in every run.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Work of a wake-up, in nanoseconds that it takes about.
pub const SLICE_NS: u64 = 500_000;

/// Work of a wake-up for all connections that have sent something, received and answered, after which the budget is nearly
/// spent: of those that are left only the beginning is received, and what is dear is begun in another turn.
const NEARLY_SPENT_NS: u64 = 4 * SLICE_NS;
/// What a receive costs, …
const RECEIVE_NS: u64 = 1_000;
/// … and a byte of it with what it asks for, where that is nothing dear.
const RECEIVED_BYTE_NS: u64 = 2;

/// Work at values of fewer bytes is done in one step.
pub(crate) const STEPS_BYTES_MIN: u64 = 128 << 10;
/// Work that a step of a long command does at least, however much of the slice is gone.
pub(crate) const STEP_NS_MIN: u64 = 20_000;

/// What it costs to look at a key, and at its item, on the way through all of them.
pub(crate) const KEY_NS: u64 = 150;
/// What it costs to have a command's words read and its reply written, however short they are.
pub(crate) const COMMAND_NS: u64 = 500;

/// What a step takes of the cleaning up that a flush waits for: 40 µs where a segment is clean, 150 where it is full.
pub(crate) const CLEANING_NS: u64 = 150_000;
/// What it takes to store a short key.
pub(crate) const STORE_NS: u64 = 300;
/// What it costs to gather the figures of the process, half of which is that the system is asked for its times (these are
/// measured, with a margin), …
pub(crate) const FIGURES_NS: u64 = 20_000;
/// … to add what a worker has counted, …
pub(crate) const COUNTERS_NS: u64 = 500;
/// … and what it has counted of each RESP command: a cache line for each of 512, and three more for the thirty that are usually
/// measured, …
pub(crate) const CALLS_NS: u64 = 60_000;
/// … and of each of memcached's, of which there are a tenth as many, …
pub(crate) const MEMCACHED_CALLS_NS: u64 = 6_000;
/// … and what it has counted of types of values, a hundred cache lines, reckoned as lines of another processor, …
pub(crate) const TYPES_NS: u64 = 6_000;
/// … to gather what the store's classes are like, …
pub(crate) const CLASSES_NS: u64 = 10_000;
/// … to judge by the rules what is found, …
pub(crate) const RULES_NS: u64 = 10_000;
/// … and to add what is known of a client.
pub(crate) const CLIENT_NS: u64 = 50;
/// What a byte of a reply costs that is put together for it.
pub(crate) const REPLY_BYTE_NS: u64 = 2;

/// What it costs to copy so many bytes from one place of the store to another.
pub(crate) fn copying_ns(bytes: u64) -> u64 {
    bytes / 2
}

/// A worker's account of work.
#[derive(Debug, Default)]
pub struct Work {
    done_ns: Cell<u64>,
    /// What is not of the slice: requests that cost next to nothing each, and of which there may be many.
    received_ns: Cell<u64>,
    lane: Arc<Taken>,
}

/// Whether a connection works at large values ([`Work::take_lane`]), and whether it only waits.
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

    /// What was done of it.
    pub fn done_ns(&self) -> u64 {
        self.done_ns.get()
    }

    /// The slice is used up.
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

    /// What was done for all together, of the slice or not.
    #[inline]
    pub fn spent_ns(&self) -> u64 {
        self.done_ns.get().saturating_add(self.received_ns.get())
    }

    /// Whether nearly as much was done for all together as may be before the worker looks again.
    #[inline]
    pub fn budget_nearly_spent(&self) -> bool {
        self.spent_ns() >= NEARLY_SPENT_NS
    }

    /// Spends so much.
    #[inline]
    pub fn spend(&self, ns: u64) {
        self.done_ns.set(self.done_ns.get().saturating_add(ns));
    }

    /// What is left of the slice, and no less than `least`.
    pub(crate) fn left_ns(&self, least: u64) -> u64 {
        SLICE_NS.saturating_sub(self.done_ns.get()).max(least)
    }

    /// Leave to hold on to large values from one turn to the next: one connection of a worker has it at a time, so
    /// that what is pinned and half made is no more than where each command is one step.
    pub(crate) fn take_lane(&self) -> Option<Lane> {
        (!self.lane.is_taken.swap(true, Relaxed)).then(|| Lane(Some(Arc::clone(&self.lane))))
    }

    /// No connection has it.
    pub(crate) fn lane_is_free(&self) -> bool {
        !self.lane.is_taken.load(Relaxed)
    }

    /// The connection that has it waits itself, and looks some milliseconds later: others need not look before.
    pub(crate) fn lane_rests(&self) -> bool {
        self.lane.rests.load(Relaxed)
    }
}

/// See [`Work::take_lane`]; given back when dropped.
#[derive(Debug)]
pub(crate) struct Lane(Option<Arc<Taken>>);

impl Lane {
    /// A lane for work under one that another job keeps: dropping it gives nothing back.
    pub(crate) fn kept_by_another() -> Lane {
        Lane(None)
    }

    /// Says whether it only waits ([`Work::lane_rests`]).
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
