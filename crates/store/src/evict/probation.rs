//! Probation: new keys are noted, queued by class, and judged when they are overdue.
//!
//! ```text
//! stored for the first time ──▶ fresh (some at a time) ──▶ the class's ring ──▶ overdue: judged
//! ```
//!
//! A key is on probation until as many bytes of other keys have been put there after it as the
//! window has (`window.rs`): the same for all classes, whatever their share.
//!
//! ```text
//! entry of a ring   | 63 … 24 leading bits of the hash | 23 … 0 bytes ever put on probation, in units |
//! ```

use super::{BATCH, PROMOTE_FREQUENCY, batch_of, parts_of};
use crate::bucket::Slot;
use crate::class::{ClassId, SPAN_BYTES};
use crate::ghost::Queue;
use crate::item::RawItem;
use crate::ring::BLOCK_BYTES;
use crate::slab::Class;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::window::WindowMemory;
use crate::worker::{FRESH_MAX, Local};
use crate::{Eviction, Millis, Store};

/// Ghost hits count half after one part in this many of the limit was written by new keys.
const GHOST_PERIODS: u64 = 8;
/// Entries that upkeep takes from a crowded queue in a step: some 50 µs.
const THIN_ENTRIES: usize = 512;
/// Bytes in a unit of a ring entry's stamp: stamps wrap after 64 GiB.
const STAMP_BYTES: u64 = 4096;
const STAMP_MASK: u64 = (1 << 24) - 1;

/// In classes of chunks up to this, new items do not count by themselves while the window is short:
/// measured, misses are 1 to 2 % fewer on streams of many small classes.
const WEIGHS_NEW_BYTES: usize = 1024;
/// Keys whose bytes make the mean.
const MEAN_OF: u64 = 16;
/// Quarters of a class's memory that count as most of it.
const MOST_QUARTERS: u64 = 3;

/// A new key that waits to be put on probation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fresh {
    pub(crate) class: ClassId,
    pub(crate) hash: u64,
    pub(crate) bytes: u64,
}

impl Store {
    /// The memory that the window is a share of.
    fn window_memory(&self) -> WindowMemory {
        let spans_bytes = self.arena.spans_used() * SPAN_BYTES as u64;
        WindowMemory { limit_bytes: self.arena.limit_bytes(), spans_bytes }
    }

    /// Notes that a key is asked for that is not there. Costs one look at its ghost's place, if there are ghosts.
    #[inline(never)]
    pub(crate) fn note_miss(&self, hash: u64) {
        if let Some(queue) = self.ghosts.ask(hash) {
            self.window.note_asked(queue, self.window_memory());
        }
    }

    /// True if what is new in a class is worth looking at by itself when the class gives memory: its items are long, or
    /// what is new is wanted.
    pub(crate) fn weighs_new(&self, class: ClassId) -> bool {
        class.chunk_bytes() > WEIGHS_NEW_BYTES || self.window.has_turned(self.arena.limit_bytes())
    }

    /// Bytes allocated since the key with this entry was put on probation.
    pub(crate) fn probation_age(&self, entry: u64) -> u64 {
        let now = self.probation_bytes.load(Ordering::Relaxed) / STAMP_BYTES;
        self.window.allocated((now.wrapping_sub(entry) & STAMP_MASK) * STAMP_BYTES)
    }

    /// True if what is in the ring entry has been on probation for long enough.
    pub(crate) fn is_overdue(&self, entry: u64) -> bool {
        let now = self.probation_bytes.load(Ordering::Relaxed) / STAMP_BYTES;
        let window = self.window.bytes(self.arena.limit_bytes()) / STAMP_BYTES;
        now.wrapping_sub(entry) & STAMP_MASK >= window.min(STAMP_MASK / 2)
    }
}

impl Local {
    /// Notes a key stored for the first time while memory is short: true if it starts on
    /// probation. A value in pieces is queued with the class of its pieces, which have its memory.
    #[inline]
    pub(crate) fn starts_on_probation(
        &mut self,
        store: &Store,
        class: ClassId,
        hash: u64,
        bytes: u64,
    ) -> bool {
        if !store.arena.nearly_full() || !matches!(store.eviction(), Eviction::All | Eviction::Volatile) {
            return false;
        }
        if let Some((queue, asked)) = store.ghosts.recall(hash) {
            self.counters(store).class(class).ghost_hits.add(1);
            store.slabs.view(class).count_ghost();
            // It was counted when it was asked for.
            if !asked {
                store.window.note_stored(queue, bytes, store.window_memory());
            }
            if queue == Queue::Probation || !store.window.main_loops(store.arena.limit_bytes()) {
                return false;
            }
        }
        self.fresh.push(Fresh { class, hash, bytes });
        true
    }

    /// Queues the noted keys, if enough have come together.
    #[inline]
    pub(crate) fn queue_fresh_if_many(&mut self, store: &Store) {
        if self.fresh.len() >= FRESH_MAX {
            self.queue_fresh(store);
        }
    }

    pub(crate) fn queue_fresh(&mut self, store: &Store) {
        if self.fresh.is_empty() {
            return;
        }
        let bytes = self.fresh.iter().map(|fresh| fresh.bytes).sum();
        let mut sum = store.probation_bytes.fetch_add(bytes, Ordering::Relaxed);
        store.window.note_written(self.fresh.len(), bytes);
        let period = (store.arena.limit_bytes() / GHOST_PERIODS).max(1);
        // Memory will be short soon. While there is some, nothing has to give way to the table of ghosts.
        if store.arena.has_span() {
            store.make_ghosts();
        }
        if sum / period != (sum + bytes) / period {
            store.slabs.forget();
            store.window.note_period(period, store.moment(self.now).clock);
            if store.ghosts.is_made() {
                store.fit_ghosts();
            }
        }
        let mut slab: Option<(ClassId, MutexGuard<'_, Class>)> = None;
        let mut crowded = None;
        for Fresh { class, hash, bytes } in self.fresh.drain(..) {
            if slab.as_ref().is_none_or(|(held, _)| *held != class) {
                // The old lock goes before the new one is taken.
                if let Some((_, slab)) = slab.take() {
                    slab.show_probation();
                }
                slab = Some((class, store.slabs.class(class)));
            }
            let (_, slab) = slab.as_mut().expect("just set");
            sum += bytes;
            if bytes > 0 {
                slab.note_bytes(bytes);
            }
            let taken = slab.probation.push(hash & !STAMP_MASK | ((sum / STAMP_BYTES) & STAMP_MASK));
            if taken != 0 {
                store.arena.charge(taken);
            }
            if slab.is_crowded() {
                crowded = Some(class);
            }
        }
        if let Some((_, slab)) = slab {
            slab.show_probation();
        }
        if let Some(class) = crowded {
            self.thin_out(store, class, 2 * FRESH_MAX);
        }
    }

    /// Thins out the probation queues of classes that have lost memory; true if there may be more to do.
    pub(crate) fn thin_out_crowded(&mut self, store: &Store) -> bool {
        let crowded = ClassId::all().find(|&class| store.slabs.class(class).is_crowded());
        if let Some(class) = crowded {
            self.thin_out(store, class, THIN_ENTRIES);
        }
        crowded.is_some()
    }

    /// Takes the oldest entries out of a queue that has more entries than its class has chunks: most are of keys that are
    /// gone. Those whose keys are there join main.
    #[cold]
    fn thin_out(&mut self, store: &Store, class: ClassId, entries: usize) {
        for _ in 0..entries {
            let Some(hash) = pop(store, &mut store.slabs.class(class)) else { return };
            let Some(locked) = store.index.try_lock(&store.arena, hash) else { continue };
            if let Some(found) = store.index.scan(&locked.place, locked.control, Slot::probation) {
                found.bucket.replace(found.i, found.slot.promoted());
            }
            locked.home.unlock(locked.control);
        }
    }

    /// Evicts up to `count_max` of the keys of a class that are overdue on probation.
    pub(crate) fn evict_overdue(
        &mut self,
        store: &Store,
        now: Millis,
        class: ClassId,
        count_max: usize,
    ) -> usize {
        self.queue_fresh(store);
        if store.eviction() == Eviction::VolatileTtl {
            return 0;
        }
        self.judge_oldest(store, now, class, count_max, false).1
    }

    /// Evicts some of the oldest keys on probation, [`batch_of`] the class at most, of those that are overdue, or of
    /// all if `early`.
    pub(super) fn evict_new(&mut self, store: &Store, now: Millis, class: ClassId, early: bool) -> usize {
        let mut judged = 0;
        while judged < BATCH {
            let (count, gone) = self.judge_oldest(store, now, class, batch_of(class), early);
            if gone > 0 || count == 0 {
                return gone;
            }
            judged += count;
        }
        0
    }

    /// Judges the oldest keys on probation: those that are overdue, or any if `early`. Returns how
    /// many, and how many of them went.
    fn judge_oldest(
        &mut self,
        store: &Store,
        now: Millis,
        class: ClassId,
        count_max: usize,
        early: bool,
    ) -> (usize, usize) {
        let mut hashes = [0; BATCH];
        let mut count = 0;
        {
            let mut slab = store.slabs.class(class);
            while count < count_max.min(BATCH)
                && slab.probation.front().is_some_and(|entry| early || store.is_overdue(entry))
            {
                hashes[count] = pop(store, &mut slab).expect("it has a front");
                count += 1;
            }
            slab.show_probation();
        }
        for &hash in &hashes[..count] {
            store.prefetch_home(hash);
        }
        for &hash in &hashes[..count] {
            store.prefetch_probation(hash);
            store.ghosts.prefetch(hash);
        }
        let gone = hashes[..count].iter().filter(|&&hash| self.judge_new(store, now, class, hash)).count();
        if gone > 0 {
            store.make_ghosts();
        }
        (count, gone)
    }

    /// Judges the oldest key on probation: promotes or evicts it. True if memory came free.
    fn judge_new(&mut self, store: &Store, now: Millis, class: ClassId, hash: u64) -> bool {
        let Some(mut locked) = self.try_lock(store, hash) else {
            self.fresh.push(Fresh { class, hash, bytes: 0 });
            return false;
        };
        let found = store.index.scan(&locked.place, locked.control, Slot::probation);
        let mut parts = None;
        let gone = found.is_some_and(|found| {
            // SAFETY: reachable in this epoch.
            let item = unsafe { RawItem::new(store.arena.at(found.slot.location())) };
            let header = item.header();
            if header.is_large() {
                // SAFETY: as above, a large one.
                parts = Some(unsafe { parts_of(&store.arena, item, found.slot.location()) });
            }
            let expired = item.expired_by(header, now);
            // What is there may be another key with the same tag.
            let stays = found.slot.frequency() >= PROMOTE_FREQUENCY
                || store.is_protected(item, header)
                || self.has_own() && self.may_be_own(store.hash_at(found.slot.location()));
            if !expired && stays {
                // What it was read beyond that counts in main.
                let left = found.slot.frequency().saturating_sub(PROMOTE_FREQUENCY);
                found.bucket.replace(found.i, found.slot.promoted().with_frequency(left));
                return false;
            }
            if found.slot.frequency() == 0 {
                store.window.note_unread(class.chunk_bytes() as u64, store.arena.limit_bytes());
            }
            self.take_out(store, hash, &mut locked, &found, item, expired);
            true
        });
        locked.home.unlock(locked.control);
        if let Some(parts) = parts {
            store.note_judged(now, parts);
        }
        gone
    }
}

impl Class {
    /// Counts a key of so many bytes, which is put on probation, for the mean.
    fn note_bytes(&mut self, bytes: u64) {
        let mean = self.probation_mean_bytes;
        self.probation_mean_bytes = if mean == 0 { bytes } else { mean - mean / MEAN_OF + bytes / MEAN_OF };
    }

    /// Shows how old the oldest key on probation is, if most of the class is on probation.
    fn show_probation(&self) {
        let bytes = self.probation.len() as u64 * self.probation_mean_bytes;
        let most = bytes * 4 > (self.spans() * SPAN_BYTES) as u64 * MOST_QUARTERS;
        self.view().show_probation(self.probation.front().filter(|_| most).map(|entry| entry & STAMP_MASK));
    }

    /// True if there are more entries on probation than chunks.
    fn is_crowded(&self) -> bool {
        self.probation.len() > self.spans() * self.id().chunks_per_span() + BATCH
    }
}

/// Takes the oldest entry from a class's ring; returns the hash's leading bits.
fn pop(store: &Store, slab: &mut Class) -> Option<u64> {
    let (entry, bytes) = slab.probation.pop()?;
    debug_assert!(bytes == 0 || bytes == BLOCK_BYTES);
    if bytes != 0 {
        store.arena.charge(-bytes);
    }
    Some(entry & !STAMP_MASK)
}
