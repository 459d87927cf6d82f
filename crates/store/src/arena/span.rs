//! What is known about one span, beside its bytes: its owner, its free chunks, its place in lists.

use crate::due::Due;
use crate::slab::Moment;
use crate::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// No chunk, in a span's free list.
pub(crate) const NONE: u16 = u16::MAX;

/// Owner of a span that has none.
pub(crate) const OWNER_FREE: u8 = 0;
/// Owner of a span that holds pages of the index.
pub(crate) const OWNER_INDEX: u8 = 255;

/// What is known about one span. Fields but `owner` belong to the owning class's lock.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Span {
    /// [`OWNER_FREE`], a class id, or [`OWNER_INDEX`].
    pub(crate) owner: AtomicU8,
    /// 1 while it is being emptied so that it can go to another class.
    pub(crate) draining: AtomicU8,
    /// First free chunk, in units from the span's start, or [`NONE`].
    pub(crate) free: AtomicU16,
    /// Chunks in the free list.
    pub(crate) free_count: AtomicU16,
    /// Chunks ever handed out; those above have never been touched.
    pub(crate) carved: AtomicU16,
    /// Neighbours in the class's list of spans with room (0: none).
    pub(crate) next: AtomicU32,
    pub(crate) previous: AtomicU32,
    /// Neighbours in the class's queue of spans, or among those it drains (0: none).
    pub(crate) queue_next: AtomicU32,
    pub(crate) queue_previous: AtomicU32,
    /// When the hand last passed it, or the class got it: in time, and by the store's clock of bytes.
    pub(crate) passed_at: AtomicU64,
    pub(crate) passed_clock: AtomicU64,
    /// When it is due: enough of its items will have expired.
    pub(crate) due: Due,
}
const _: () = assert!(size_of::<Span>() == 64);

impl Span {
    /// Notes that the hand passes it now.
    pub(crate) fn note_passed(&self, now: Moment) {
        self.passed_at.store(now.at, Ordering::Relaxed);
        self.passed_clock.store(now.clock, Ordering::Relaxed);
    }

    /// When the hand last passed it.
    pub(crate) fn passed(&self) -> Moment {
        let (at, clock) = (self.passed_at.load(Ordering::Relaxed), self.passed_clock.load(Ordering::Relaxed));
        Moment { at, clock }
    }
}
