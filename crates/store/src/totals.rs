//! Figures: what workers have counted, summed when they are asked for.
//!
//! Counts of events only grow, as long as the store lives. To count anew is to remember what they were and take that
//! away ([`Totals::since`], [`ClassTotals::since`]); what is there, and not what happened, stays as it is.

use crate::access::IDLE_PARTS;
use crate::class::ClassId;
use crate::counters::{ClassCount, Counter, WorkerCounters};
use crate::sync::atomic::Ordering;
use crate::{Millis, Store};

/// Store-wide figures, summed over workers and classes when asked.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Live items (expired and flushed ones count until they are taken out).
    pub items: u64,
    /// Items ever stored.
    pub items_stored: u64,
    /// Bytes of items in use: header, key, value and what goes with them.
    pub item_bytes: u64,
    /// Live items evicted for memory.
    pub evictions: u64,
    /// Of these, never fetched.
    pub evicted_unfetched: u64,
    /// Evicted items by how long ago their last access was: at most a second, at most four, and so on, four times as long
    /// each; the last are those that are beyond. What is more than two minutes is known in steps of half an hour.
    pub evicted_idle: [u64; IDLE_PARTS],
    /// These times together, seconds.
    pub evicted_idle_s: u64,
    /// Items whose memory was taken back because their time had passed.
    pub reclaimed: u64,
    /// Of these, never fetched.
    pub expired_unfetched: u64,
    /// Fields of hashes that were taken out because their time had passed.
    pub fields_expired: u64,
    /// Items that upkeep has looked at.
    pub maintain_checked: u64,
    /// Writes refused for want of memory.
    pub out_of_memory: u64,
    /// Memory limit.
    pub memory_bytes: u64,
    /// Memory in use by spans, index and bookkeeping.
    pub used_bytes: u64,
    /// Bytes that connections hold: buffers and pinned values.
    pub held_bytes: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Slots of the index.
    pub index_slots: u64,
    /// A segment of the index is being rebuilt now.
    pub index_growing: bool,
    /// Spans without an owner.
    pub spans_free: u64,
    /// Spans that had an owner and have none now.
    pub spans_given_back: u64,
    /// Spans that were drained: for another class, for a lower limit or memory beside items, or since they were not needed.
    pub spans_moved: u64,
    /// Of these, spans that were drained for another class.
    pub spans_reassigned: u64,
    /// Items and pieces of items that were moved out of such spans.
    pub chunks_moved: u64,
    /// Keys stored again soon after they were evicted.
    pub ghost_hits: u64,
    /// Times that all items, or those of a database, were flushed.
    pub flushes: u64,
}

/// Figures of one slab class.
#[derive(Clone, Debug, Default)]
pub struct ClassTotals {
    /// Class number, from 1, ascending by chunk size.
    pub id: u8,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Spans (64 KiB each) the class owns.
    pub spans: u64,
    /// Chunks in use (pieces of large values count in the class they are in).
    pub used_chunks: u64,
    /// Chunks free.
    pub free_chunks: u64,
    /// Items whose head is in this class.
    pub items: u64,
    /// Bytes asked for by what is in the chunks.
    pub requested_bytes: u64,
    /// As in [`Totals`].
    pub evictions: u64,
    /// As in [`Totals`].
    pub evicted_unfetched: u64,
    /// Evicted items that had an expiry.
    pub evicted_nonzero: u64,
    /// Seconds since last access of the item evicted last.
    pub evicted_age_s: u64,
    /// As in [`Totals`].
    pub reclaimed: u64,
    /// As in [`Totals`].
    pub expired_unfetched: u64,
    /// As in [`Totals`].
    pub out_of_memory: u64,
    /// Keys stored again soon after they were evicted.
    pub ghost_hits: u64,
    /// Milliseconds since the eviction hand last passed where it is now.
    pub age_ms: u64,
}

impl Totals {
    /// Takes away the events that were counted `before`.
    pub fn since(&mut self, before: &Totals) {
        for (events, before) in [
            (&mut self.items_stored, before.items_stored),
            (&mut self.evictions, before.evictions),
            (&mut self.evicted_unfetched, before.evicted_unfetched),
            (&mut self.reclaimed, before.reclaimed),
            (&mut self.expired_unfetched, before.expired_unfetched),
            (&mut self.fields_expired, before.fields_expired),
            (&mut self.maintain_checked, before.maintain_checked),
            (&mut self.out_of_memory, before.out_of_memory),
            (&mut self.spans_moved, before.spans_moved),
            (&mut self.spans_reassigned, before.spans_reassigned),
            (&mut self.chunks_moved, before.chunks_moved),
            (&mut self.ghost_hits, before.ghost_hits),
            (&mut self.flushes, before.flushes),
            (&mut self.evicted_idle_s, before.evicted_idle_s),
        ] {
            *events = events.saturating_sub(before);
        }
        for (events, before) in self.evicted_idle.iter_mut().zip(before.evicted_idle) {
            *events = events.saturating_sub(before);
        }
    }
}

impl ClassTotals {
    /// Takes away the events that were counted `before`, of the same class.
    pub fn since(&mut self, before: &ClassTotals) {
        for (events, before) in [
            (&mut self.evictions, before.evictions),
            (&mut self.evicted_unfetched, before.evicted_unfetched),
            (&mut self.evicted_nonzero, before.evicted_nonzero),
            (&mut self.reclaimed, before.reclaimed),
            (&mut self.expired_unfetched, before.expired_unfetched),
            (&mut self.out_of_memory, before.out_of_memory),
            (&mut self.ghost_hits, before.ghost_hits),
        ] {
            *events = events.saturating_sub(before);
        }
    }
}

impl Store {
    pub(crate) fn all_counters(&self) -> impl Iterator<Item = &WorkerCounters> {
        self.counters.iter().chain(std::iter::once(&self.loose))
    }

    pub(crate) fn sum(&self, one: impl Fn(&WorkerCounters) -> u64) -> u64 {
        self.all_counters().fold(0, |sum, counters| sum.wrapping_add(one(counters)))
    }

    /// Items now.
    pub(crate) fn items(&self) -> u64 {
        ClassId::all().fold(0u64, |sum, id| sum.wrapping_add(self.sum(|c| c.class(id).items.value())))
    }

    /// Store-wide figures.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            items: self.items(),
            items_stored: self.sum(|c| c.items_stored.value()),
            fields_expired: self.sum(|c| c.fields_expired.value()),
            maintain_checked: self.sum(|c| c.maintain_checked.value()),
            out_of_memory: self.sum(|c| c.out_of_memory.value()),
            spans_moved: self.sum(|c| c.spans_moved.value()),
            spans_reassigned: self.sum(|c| c.spans_reassigned.value()),
            chunks_moved: self.sum(|c| c.chunks_moved.value()),
            evicted_idle: std::array::from_fn(|part| self.sum(|c| c.evicted_idle[part].value())),
            evicted_idle_s: self.sum(|c| c.evicted_idle_s.value()),
            memory_bytes: self.arena.limit_bytes(),
            used_bytes: self.arena.used_bytes(),
            held_bytes: self.held_bytes(),
            index_bytes: self.index.bytes(),
            index_slots: self.index.slots(),
            index_growing: self.index.growing(),
            spans_free: self.arena.spans_free(),
            spans_given_back: self.arena.spans_given_back(),
            flushes: self.stamp_count(),
            ..Totals::default()
        };
        for id in ClassId::all() {
            let sum = |one: fn(&ClassCount) -> &Counter| self.sum(|c| one(c.class(id)).value());
            totals.item_bytes = totals.item_bytes.wrapping_add(sum(|c| &c.requested_bytes));
            totals.evictions += sum(|c| &c.evictions);
            totals.evicted_unfetched += sum(|c| &c.evicted_unfetched);
            totals.reclaimed += sum(|c| &c.reclaimed);
            totals.expired_unfetched += sum(|c| &c.expired_unfetched);
            totals.ghost_hits += sum(|c| &c.ghost_hits);
        }
        totals
    }

    /// Figures at time `now` of the classes that own a span, ascending.
    pub fn classes(&self, now: Millis) -> Vec<ClassTotals> {
        ClassId::all().filter_map(|id| self.class_totals(id, now, 1)).collect()
    }

    /// Figures at time `now` of every class, ascending: one without a span may have counted before.
    pub fn all_classes(&self, now: Millis) -> Vec<ClassTotals> {
        ClassId::all().filter_map(|id| self.class_totals(id, now, 0)).collect()
    }

    /// Figures of a class, if it owns so many spans at least.
    fn class_totals(&self, id: ClassId, now: Millis, spans_min: u64) -> Option<ClassTotals> {
        let (spans, out_of_memory) = {
            let slab = self.slabs.class(id);
            (slab.spans() as u64, slab.out_of_memory)
        };
        if spans < spans_min {
            return None;
        }
        let sum = |one: fn(&ClassCount) -> &Counter| self.sum(|c| one(c.class(id)).value());
        let used_chunks = sum(|c| &c.used_chunks);
        let view = self.slabs.view(id);
        Some(ClassTotals {
            id: id.0,
            chunk_bytes: id.chunk_bytes() as u32,
            spans,
            used_chunks,
            free_chunks: (spans * id.chunks_per_span() as u64).saturating_sub(used_chunks),
            items: sum(|c| &c.items),
            requested_bytes: sum(|c| &c.requested_bytes),
            evictions: sum(|c| &c.evictions),
            evicted_unfetched: sum(|c| &c.evicted_unfetched),
            evicted_nonzero: sum(|c| &c.evicted_nonzero),
            evicted_age_s: view.evicted_age_s.load(Ordering::Relaxed),
            reclaimed: sum(|c| &c.reclaimed),
            expired_unfetched: sum(|c| &c.expired_unfetched),
            ghost_hits: sum(|c| &c.ghost_hits),
            out_of_memory,
            age_ms: view.age_ms(now).unwrap_or(0),
        })
    }
}
