//! What other workers see of a class without its lock: how much it has, and how old that is. The worker that has the lock
//! shows it anew with each change; the figures are not of one moment.

use crate::Millis;
use crate::slab::Moment;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A class of which less than one in this many items was read when it was judged counts as unread.
const UNREAD_SHARE: u64 = 8;

/// What others see of a class without its lock.
#[derive(Debug)]
pub(crate) struct ClassView {
    /// When the hand last passed the span that it passes next; the largest number: no span.
    coldest_at: AtomicU64,
    /// The same by the clock of bytes.
    coldest_clock: AtomicU64,
    /// The same of the span that would be drained next.
    next_clock: AtomicU64,
    /// Spans that are not being drained.
    spans: AtomicU32,
    /// Spans that are.
    pub(crate) draining: AtomicU32,
    /// Chunks in free lists and never carved, of spans that are not being drained.
    free_chunks: AtomicU64,
    /// The least that those were in this period of compaction.
    free_low: AtomicU64,
    /// When the oldest key on probation was put there, in its units, if most of the class is on probation; else the
    /// largest number.
    probation_front: AtomicU64,
    /// Items that were judged in main, and how many of them had been read: halved now and then, see [`ClassView::forget`].
    judged: AtomicU64,
    judged_read: AtomicU64,
    /// Keys that came back after their eviction: halved now and then, see [`ClassView::forget`].
    recent_ghosts: AtomicU64,
    /// Seconds since last access of the item evicted last.
    pub(crate) evicted_age_s: AtomicU64,
}

impl Default for ClassView {
    fn default() -> ClassView {
        ClassView {
            coldest_at: AtomicU64::new(u64::MAX),
            coldest_clock: AtomicU64::new(u64::MAX),
            next_clock: AtomicU64::new(u64::MAX),
            spans: AtomicU32::new(0),
            draining: AtomicU32::new(0),
            free_chunks: AtomicU64::new(0),
            free_low: AtomicU64::new(0),
            probation_front: AtomicU64::new(u64::MAX),
            judged: AtomicU64::new(0),
            judged_read: AtomicU64::new(0),
            recent_ghosts: AtomicU64::new(0),
            evicted_age_s: AtomicU64::new(0),
        }
    }
}

impl ClassView {
    /// How long ago the hand passed what it passes next; none without spans.
    pub(crate) fn age_ms(&self, now: Millis) -> Option<Millis> {
        let at = self.coldest_at.load(Ordering::Relaxed);
        (at != u64::MAX).then(|| now.saturating_sub(at))
    }
    /// Bytes that all classes allocated since then.
    pub(crate) fn age(&self, clock: u64) -> Option<u64> {
        let at = self.coldest_clock.load(Ordering::Relaxed);
        (at != u64::MAX).then(|| clock.saturating_sub(at))
    }
    /// The same for what the class would give: while the hand is in a span, that is the next one.
    pub(crate) fn age_to_give(&self, clock: u64) -> Option<u64> {
        let at = self.next_clock.load(Ordering::Relaxed);
        (at != u64::MAX).then(|| clock.saturating_sub(at))
    }
    pub(crate) fn spans(&self) -> u32 {
        self.spans.load(Ordering::Relaxed)
    }
    pub(crate) fn free_chunks(&self) -> u64 {
        self.free_chunks.load(Ordering::Relaxed)
    }
    /// Counts a key of the class that came back after its eviction.
    pub(crate) fn count_ghost(&self) {
        self.recent_ghosts.fetch_add(1, Ordering::Relaxed);
    }
    /// Counts an item in main that was judged, and had been read or not.
    pub(crate) fn count_judged(&self, read: bool) {
        self.judged.fetch_add(1, Ordering::Relaxed);
        if read {
            self.judged_read.fetch_add(1, Ordering::Relaxed);
        }
    }
    /// True if hardly any item that was judged in main recently had been read, or none was judged.
    pub(crate) fn is_unread(&self) -> bool {
        let read = self.judged_read.load(Ordering::Relaxed);
        read * UNREAD_SHARE <= self.judged.load(Ordering::Relaxed)
    }
    /// Has ghost hits, and what was judged, until now count half from now on.
    pub(crate) fn forget(&self) {
        for count in [&self.recent_ghosts, &self.judged, &self.judged_read] {
            let so_far = count.load(Ordering::Relaxed);
            if so_far > 0 {
                count.fetch_sub(so_far - so_far / 2, Ordering::Relaxed);
            }
        }
    }
    /// The entry of the oldest key on probation, if most of the class is on probation.
    pub(crate) fn probation_front(&self) -> Option<u64> {
        let front = self.probation_front.load(Ordering::Relaxed);
        (front != u64::MAX).then_some(front)
    }
    /// Shows the entry of the oldest key on probation, if most of the class is on probation.
    pub(crate) fn show_probation(&self, front: Option<u64>) {
        self.probation_front.store(front.unwrap_or(u64::MAX), Ordering::Relaxed);
    }
    pub(crate) fn recent_ghosts(&self) -> u64 {
        self.recent_ghosts.load(Ordering::Relaxed)
    }

    /// Shows how many spans there are, and when the one was passed that the hand passes next.
    pub(crate) fn show_spans(&self, coldest: Option<Moment>, spans: usize, draining: usize) {
        let passed = coldest.unwrap_or(Moment { at: u64::MAX, clock: u64::MAX });
        self.coldest_at.store(passed.at, Ordering::Relaxed);
        self.coldest_clock.store(passed.clock, Ordering::Relaxed);
        self.spans.store(spans as u32, Ordering::Relaxed);
        self.draining.store(draining as u32, Ordering::Relaxed);
    }
    /// Shows when the span was passed that would be drained next.
    pub(crate) fn show_next(&self, passed: Option<Moment>) {
        self.next_clock.store(passed.map_or(u64::MAX, |passed| passed.clock), Ordering::Relaxed);
    }
    /// Shows how many free chunks there are.
    pub(crate) fn show_free(&self, free: u64) {
        self.free_chunks.store(free, Ordering::Relaxed);
        if free < self.free_low.load(Ordering::Relaxed) {
            self.free_low.store(free, Ordering::Relaxed);
        }
    }
    /// The least of free chunks since this was last asked.
    pub(crate) fn take_low(&self) -> u64 {
        self.free_low.swap(self.free_chunks(), Ordering::Relaxed)
    }
}
