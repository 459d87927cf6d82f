//! Counters: written by their worker alone, summed by the thread that asks.

use crate::access::IDLE_PARTS;
use crate::class::{CLASSES, ClassId};
use crate::database::DATABASES;
use crate::recent::Recent;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::types::TypeCounts;

/// A number that one thread changes and all may read. Sums of several wrap to the right value even
/// when one of them is "negative": a chunk taken by one worker may be freed by another.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`; only the owning thread.
    #[inline]
    pub(crate) fn add(&self, n: i64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n as u64), Ordering::Relaxed);
    }
    /// Adds `n`; any thread, for counters without an owner.
    pub(crate) fn add_shared(&self, n: i64) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }
    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a worker counts for one class.
#[derive(Debug, Default)]
pub(crate) struct ClassCount {
    pub(crate) used_chunks: Counter,
    pub(crate) requested_bytes: Counter,
    pub(crate) items: Counter,
    pub(crate) evictions: Counter,
    pub(crate) evicted_unfetched: Counter,
    pub(crate) evicted_nonzero: Counter,
    pub(crate) reclaimed: Counter,
    pub(crate) expired_unfetched: Counter,
    pub(crate) ghost_hits: Counter,
}

/// What a worker counts.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerCounters {
    classes: [ClassCount; CLASSES + 1],
    /// Items of the databases but number 0.
    databases: [Counter; DATABASES as usize],
    pub(crate) items_stored: Counter,
    pub(crate) out_of_memory: Counter,
    pub(crate) maintain_checked: Counter,
    pub(crate) spans_moved: Counter,
    /// Of these, spans that were drained for another class.
    pub(crate) spans_reassigned: Counter,
    pub(crate) chunks_moved: Counter,
    pub(crate) fields_expired: Counter,
    /// Evicted items by how long ago their last access was, and the seconds of all.
    pub(crate) evicted_idle: [Counter; IDLE_PARTS],
    pub(crate) evicted_idle_s: Counter,
    /// Collections by type.
    pub(crate) types: TypeCounts,
    /// Keys that were new recently.
    pub(crate) recent: Recent,
}

impl Default for WorkerCounters {
    fn default() -> WorkerCounters {
        WorkerCounters {
            classes: std::array::from_fn(|_| ClassCount::default()),
            databases: Default::default(),
            items_stored: Counter::default(),
            out_of_memory: Counter::default(),
            maintain_checked: Counter::default(),
            spans_moved: Counter::default(),
            spans_reassigned: Counter::default(),
            chunks_moved: Counter::default(),
            fields_expired: Counter::default(),
            evicted_idle: Default::default(),
            evicted_idle_s: Counter::default(),
            types: TypeCounts::default(),
            recent: Recent::default(),
        }
    }
}

impl WorkerCounters {
    #[inline]
    pub(crate) fn class(&self, id: ClassId) -> &ClassCount {
        &self.classes[id.0 as usize]
    }
    #[inline]
    pub(crate) fn database(&self, number: u8) -> &Counter {
        &self.databases[usize::from(number)]
    }
}
