//! Eviction: S3-FIFO in place, one state per class, no links between items.
//!
//! ```text
//!            new key ──▶ probation (a ring of hashes, 10 % of the class) ──▶ read twice? main
//!                                                     └──▶ no: evicted, its ghost is kept
//! key with a ghost ──▶ main (a hand over the class's spans) ──▶ frequency 0? evicted
//!                                                     └──▶ else: frequency − 1, passed over
//! ```
//!
//! While there is memory, everything enters main and nothing is queued: the ring starts when the
//! arena is nearly full. The queues hold no items, only hints: an entry whose item is gone, was
//! promoted or replaced is skipped. Victims are taken some at a time, their buckets prefetched; a
//! bucket that somebody holds is left for later.
//!
//! To give a span to another class, all that is in it is evicted and the chunks are kept out of
//! circulation until the last one is free.

use crate::arena::Arena;
use crate::bucket::{FREQUENCY_MAX, Slot};
use crate::class::ClassId;
use crate::index::{Found, Index, Locked};
use crate::item::{EXPIRY, FETCHED, Kind, RawItem};
use crate::ring::BLOCK_BYTES;
use crate::worker::{FRESH_MAX, Local};
use crate::{Store, access};
use std::sync::atomic::Ordering;

/// Victims looked for at a time.
const BATCH: usize = 16;
/// Chunks the hand looks at in one turn at most.
const HAND_CHUNKS_MAX: usize = 512;
/// Accesses that take a key from probation to main.
const PROMOTE_FREQUENCY: u64 = 2;
/// Probation holds at most one of this many of the class's chunks.
const PROBATION_SHARE: u64 = 10;
/// Spans tried when one is wanted for another class: uploads and pins keep some from emptying.
const DRAIN_SPANS_MAX: usize = 4;

/// Why an item goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// For its memory.
    Evicted,
    /// Its time had passed.
    Expired,
}

impl Local {
    /// Clears a found slot under its home's lock and retires the item.
    pub(crate) fn unlink(&mut self, store: &Store, locked: &mut Locked<'_>, found: &Found<'_>) {
        store.index.remove(locked, found);
        if !locked.control.passes(store.gate()) {
            self.count_flushed(store, locked, found);
        }
        locked.control = locked.control.written();
        self.drop_item(store, found.slot.location());
    }

    /// An item goes whose bucket is not clean: it may be one that a flush has counted as gone.
    #[cold]
    fn count_flushed(&self, store: &Store, locked: &Locked<'_>, found: &Found<'_>) {
        // SAFETY: reachable until a moment ago, in this epoch.
        let item = unsafe { RawItem::new(store.arena.at(found.slot.location())) };
        let number = item.number(item.header());
        if store.flushes.took(locked.control.stamp(), store.stamp(), number) {
            store.flushes.collected(number);
        }
    }

    /// Counts an item as gone and retires its chunk; its slot is gone already.
    pub(crate) fn drop_item(&mut self, store: &Store, location: u64) {
        let class = ClassId(store.arena.span(Arena::span_of(location)).owner.load(Ordering::Relaxed));
        let counters = self.counters(store);
        counters.class(class).items.add(-1);
        // SAFETY: reachable until a moment ago, in this epoch.
        let item = unsafe { RawItem::new(store.arena.at(location)) };
        let number = item.number(item.header());
        if number != 0 {
            counters.database(number).add(-1);
        }
        self.retire(store, location);
    }

    /// Counts why an item went, in its class.
    pub(crate) fn count_reason(
        &mut self,
        store: &Store,
        item: RawItem,
        slot: Slot,
        now_s: u64,
        reason: Reason,
    ) {
        let header = item.header();
        let class = ClassId(store.arena.span(Arena::span_of(slot.location())).owner.load(Ordering::Relaxed));
        let mut slab = store.slabs.class(class);
        let unfetched = u64::from(!header.has(FETCHED));
        match reason {
            Reason::Evicted => {
                slab.counters.evictions += 1;
                slab.counters.evicted_unfetched += unfetched;
                slab.counters.evicted_nonzero += u64::from(header.has(EXPIRY));
                slab.counters.evicted_age_s = access::idle_s(slot.access(), now_s);
            }
            Reason::Expired => {
                slab.counters.reclaimed += 1;
                slab.counters.expired_unfetched += unfetched;
            }
        }
    }

    /// Notes a key stored for the first time while memory is short: true if it starts on
    /// probation.
    #[inline]
    pub(crate) fn starts_on_probation(&mut self, store: &Store, class: ClassId, hash: u64) -> bool {
        if !store.evicts || !store.arena.nearly_full() || store.ghosts.recall(hash) {
            return false;
        }
        self.fresh.push((class, hash));
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
        let mut slab = None;
        for (class, hash) in self.fresh.drain(..) {
            if slab.as_ref().is_none_or(|(held, _)| *held != class) {
                // The old lock goes before the new one is taken.
                drop(slab.take());
                slab = Some((class, store.slabs.class(class)));
            }
            let (_, slab) = slab.as_mut().expect("just set");
            let bytes = slab.probation.push(hash);
            if bytes != 0 {
                store.arena.charge(bytes);
            }
        }
    }

    /// Evicts up to [`BATCH`] items of a class; returns how many went.
    pub(crate) fn evict(&mut self, store: &Store, now_s: u64, class: ClassId) -> usize {
        self.queue_fresh(store);
        let mut hashes = [0; BATCH];
        let mut count = 0;
        {
            let mut slab = store.slabs.class(class);
            let chunks = slab.spans.len() as u64 * class.chunks_per_span() as u64 - slab.free_chunks;
            while count < BATCH && slab.probation.len() as u64 * PROBATION_SHARE > chunks {
                let Some((hash, bytes)) = slab.probation.pop() else { break };
                debug_assert!(bytes == 0 || bytes == BLOCK_BYTES);
                store.arena.charge(-bytes);
                hashes[count] = hash;
                count += 1;
            }
        }
        if count > 0 {
            for &hash in &hashes[..count] {
                store.prefetch_home(hash);
            }
            let gone =
                hashes[..count].iter().filter(|&&hash| self.judge_new(store, now_s, class, hash)).count();
            if gone > 0 {
                return gone;
            }
        }
        self.sweep_main(store, now_s, class)
    }

    /// The oldest key on probation: promotes or evicts it. True if memory came free.
    fn judge_new(&mut self, store: &Store, now_s: u64, class: ClassId, hash: u64) -> bool {
        let Some(mut locked) = store.index.try_lock(&store.arena, hash) else {
            self.fresh.push((class, hash));
            return false;
        };
        let found = store.index.scan(&locked.place, locked.control, Slot::probation);
        let gone = found.is_some_and(|found| {
            // SAFETY: reachable in this epoch.
            let item = unsafe { RawItem::new(store.arena.at(found.slot.location())) };
            let expired = item.expired(now_s * 1000);
            if found.slot.frequency() >= PROMOTE_FREQUENCY && !expired {
                found.bucket.replace(found.i, found.slot.promoted().with_frequency(0));
                return false;
            }
            let reason = if expired { Reason::Expired } else { Reason::Evicted };
            if !expired {
                store.ghosts.remember(&store.arena, hash, || store.items());
            }
            self.count_reason(store, item, found.slot, now_s, reason);
            self.unlink(store, &mut locked, &found);
            true
        });
        locked.home.unlock(locked.control);
        gone
    }

    /// Moves the hand on until some items of main have gone.
    fn sweep_main(&mut self, store: &Store, now_s: u64, class: ClassId) -> usize {
        let arena = &store.arena;
        // One turn lowers every frequency by one: after four, everything left is locked or pinned.
        let turns = {
            let slab = store.slabs.class(class);
            (slab.spans.len() * class.chunks_per_span()).div_ceil(HAND_CHUNKS_MAX)
                * (FREQUENCY_MAX as usize + 2)
        };
        for _ in 0..turns {
            let mut candidates = [0; BATCH];
            let mut count = 0;
            let probation_empty;
            {
                let mut slab = store.slabs.class(class);
                probation_empty = slab.probation.len() == 0;
                let mut looked = 0;
                while count < BATCH && looked < HAND_CHUNKS_MAX && !slab.spans.is_empty() {
                    if slab.hand_place >= slab.spans.len() {
                        slab.hand_place = 0;
                        slab.hand_chunk = 0;
                    }
                    let number = slab.spans[slab.hand_place];
                    if slab.hand_chunk >= usize::from(arena.span(number).carved.load(Ordering::Relaxed)) {
                        slab.hand_place += 1;
                        slab.hand_chunk = 0;
                        looked += 1;
                        continue;
                    }
                    let location = Arena::location_of(number)
                        + (slab.hand_chunk * class.chunk_bytes() / crate::arena::UNIT) as u64;
                    slab.hand_chunk += 1;
                    looked += 1;
                    // SAFETY: a carved chunk has a header word at all times.
                    if unsafe { RawItem::new(arena.at(location)) }.header().is_item() {
                        candidates[count] = location;
                        count += 1;
                    }
                }
            }
            let mut hashes = [0; BATCH];
            for (hash, &location) in hashes.iter_mut().zip(&candidates[..count]) {
                *hash = store.hash_at(location);
                store.prefetch_home(*hash);
            }
            let gone = candidates[..count]
                .iter()
                .zip(hashes)
                .filter(|&(&location, hash)| self.judge_main(store, now_s, hash, location, probation_empty))
                .count();
            if gone > 0 {
                return gone;
            }
        }
        0
    }

    /// An item under the hand: passes over it or evicts it. True if memory came free.
    fn judge_main(&mut self, store: &Store, now_s: u64, hash: u64, location: u64, also_new: bool) -> bool {
        let Some(mut locked) = store.index.try_lock(&store.arena, hash) else { return false };
        let found = store.index.scan(&locked.place, locked.control, |slot| slot.location() == location);
        let gone = found.is_some_and(|found| {
            // SAFETY: reachable in this epoch.
            let item = unsafe { RawItem::new(store.arena.at(location)) };
            let expired = item.expired(now_s * 1000);
            if !expired && found.slot.probation() && !also_new {
                return false;
            }
            if !expired && found.slot.frequency() > 0 {
                found.bucket.replace(found.i, found.slot.with_frequency(found.slot.frequency() - 1));
                return false;
            }
            self.count_reason(
                store,
                item,
                found.slot,
                now_s,
                if expired { Reason::Expired } else { Reason::Evicted },
            );
            self.unlink(store, &mut locked, &found);
            true
        });
        locked.home.unlock(locked.control);
        gone
    }

    /// Makes room for a home bucket's new key by evicting another key that lives there: only when
    /// the index cannot grow for want of memory. True if a slot came free.
    pub(crate) fn evict_neighbour(&mut self, store: &Store, now_s: u64, hash: u64) -> bool {
        let mut locked = store.index.lock(&store.arena, hash);
        let home = locked.home;
        let victim = store.index.own_slot(&locked);
        let gone = victim.is_some_and(|(i, slot)| {
            // SAFETY: reachable in this epoch.
            let item = unsafe { RawItem::new(store.arena.at(slot.location())) };
            self.count_reason(store, item, slot, now_s, Reason::Evicted);
            self.unlink(store, &mut locked, &Found { bucket: home, i, slot, away: false });
            true
        });
        home.unlock(locked.control);
        gone
    }

    /// Empties a span of the class that has the most, for `class` to take.
    pub(crate) fn drain_for(&mut self, store: &Store, class: ClassId) {
        for _ in 0..DRAIN_SPANS_MAX {
            let used = store.arena.used_bytes();
            match store.slabs.richest(Some(class)).or_else(|| store.slabs.richest(None)) {
                Some(victim) => self.drain_span(store, victim),
                None => self.drain_again(store),
            }
            self.pass_epochs(store);
            self.pass_epochs(store);
            if store.arena.used_bytes() < used {
                self.counters(store).spans_moved.add(1);
                return;
            }
            // What is missing is in other workers' hands.
            self.recalled = store.recall.fetch_add(1, Ordering::Relaxed) + 1;
        }
    }

    /// Evicts everything in the span under a class's hand.
    pub(crate) fn drain_span(&mut self, store: &Store, class: ClassId) {
        let arena = &store.arena;
        self.empty_magazine(store, class);
        let number = {
            let mut slab = store.slabs.class(class);
            let start = slab.hand_place;
            let count = slab.spans.len();
            let undrained = (0..count)
                .map(|i| slab.spans[(start + i) % count])
                .find(|&number| arena.span(number).draining.load(Ordering::Relaxed) == 0);
            let Some(number) = undrained else { return };
            slab.start_draining(arena, number);
            if arena.span(number).owner.load(Ordering::Relaxed) != class.0 {
                return;
            }
            number
        };
        self.evict_span(store, class, number);
    }

    /// All spans are being drained: evicts what came into them since, as uploads that were under way.
    pub(crate) fn drain_again(&mut self, store: &Store) {
        for class in ClassId::all() {
            self.empty_magazine(store, class);
            let spans = store.slabs.class(class).spans.clone();
            for number in spans {
                self.evict_span(store, class, number);
            }
        }
    }

    /// Evicts every item of a span of `class`, and those that have a piece there.
    fn evict_span(&mut self, store: &Store, class: ClassId, number: u32) {
        let arena = &store.arena;
        let mut chunk = 0;
        loop {
            let mut victims = [0; BATCH];
            let mut count = 0;
            {
                // Under the lock the span stays with its class, and what is seen as an item is not
                // used again before this worker's epoch has passed.
                let _class = store.slabs.class(class);
                if arena.span(number).owner.load(Ordering::Relaxed) != class.0 {
                    return;
                }
                let carved = usize::from(arena.span(number).carved.load(Ordering::Relaxed));
                while chunk < carved && count < BATCH {
                    let location = Arena::location_of(number)
                        + (chunk * class.chunk_bytes() / crate::arena::UNIT) as u64;
                    chunk += 1;
                    // SAFETY: a carved chunk has a header word at all times.
                    let header = unsafe { RawItem::new(arena.at(location)) }.header();
                    let owner = match header.kind() {
                        Kind::Whole | Kind::Large => location,
                        Kind::Piece => header.piece_owner(),
                        Kind::Free | Kind::Draft => continue,
                    };
                    // SAFETY: a piece's owner is a chunk with a header word.
                    if unsafe { RawItem::new(arena.at(owner)) }.header().is_item() {
                        victims[count] = owner;
                        count += 1;
                    }
                }
            }
            if count == 0 {
                return;
            }
            for &owner in &victims[..count] {
                // Several pieces of one value: it is an item only before the first.
                // SAFETY: it was an item in this epoch.
                if unsafe { RawItem::new(arena.at(owner)) }.header().is_item() {
                    self.evict_at(store, owner);
                }
            }
        }
    }

    /// Evicts the item at a location, if it is still reachable there.
    fn evict_at(&mut self, store: &Store, location: u64) {
        let hash = store.hash_at(location);
        let mut locked = store.index.lock(&store.arena, hash);
        if let Some(found) =
            store.index.scan(&locked.place, locked.control, |slot| slot.location() == location)
        {
            // SAFETY: reachable in this epoch.
            let item = unsafe { RawItem::new(store.arena.at(location)) };
            self.count_reason(store, item, found.slot, 0, Reason::Evicted);
            self.unlink(store, &mut locked, &found);
        }
        locked.home.unlock(locked.control);
    }
}

impl Index {
    /// A slot of the locked home bucket whose item is at home there.
    fn own_slot(&self, locked: &Locked<'_>) -> Option<(usize, Slot)> {
        (0..crate::bucket::SLOTS)
            .map(|i| (i, locked.home.slot(i)))
            .find(|(_, slot)| !slot.is_empty() && locked.place.at_home(*slot, locked.home))
    }
}
