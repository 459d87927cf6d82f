//! Eviction: S3-FIFO in place, one state per class, no links between items.
//!
//! ```text
//!            new key ──▶ probation (a ring of hashes) ──▶ read twice? main
//!                                                     └──▶ no: evicted, its ghost is kept
//! key with a ghost ──▶ main (a hand over the class's spans) ──▶ frequency 0? evicted
//!                                                     └──▶ else: frequency − 1, passed over
//! ```
//!
//! Probation is the window of what was written last. It begins with 10 % of the bytes and adapts to what is asked for, up to
//! 88 % (docs/internals/eviction.md).
//!
//! While there is memory, everything enters main and nothing is queued: the ring starts when the
//! arena is nearly full. The queues hold no items, only hints: an entry whose item is gone, was
//! promoted or replaced is skipped. Victims are taken some at a time, their buckets prefetched; a
//! bucket that another thread holds is left for later.

mod probation;
mod victims;

pub(crate) use probation::Fresh;
use victims::Victims;

use crate::arena::{Arena, OWNER_FREE, OWNER_INDEX, Span};
use crate::bucket::{Bucket, FREQUENCY_MAX, SLOTS, Slot};
use crate::class::{CHUNK_BYTES_MAX, ClassId, SPAN_BYTES};
use crate::event::Event;
use crate::ghost::Queue;
use crate::index::{Found, Locked};
use crate::item::{EXPIRY, FETCHED, Header, RawItem};
use crate::large::Large;
use crate::owner::{judged_at, owner_at};
use crate::sync::atomic::Ordering;
use crate::worker::{Local, class_of};
use crate::{Eviction, Millis, Store, access};

/// Victims looked for at a time.
pub(crate) const BATCH: usize = 32;
/// Items of a class that are judged at a time: those of a span at most. Those in pieces go one by one: each may be
/// several spans.
pub(crate) fn batch_of(class: ClassId) -> usize {
    match class.chunk_bytes() {
        CHUNK_BYTES_MAX => 1,
        bytes => (SPAN_BYTES / bytes).min(BATCH),
    }
}

/// Chunks the hand looks at in one turn at most.
const HAND_CHUNKS_MAX: usize = 512;
/// Turns of the hand without a victim after which the oldest key on probation goes early.
const HAND_TURNS_PATIENT: usize = 4;
/// What the hand does at most before it takes what it has come to, in looks at a chunk: some 100 µs. (While there was
/// no end to it but the class's, the first eviction among a million items that were all read took 97 ms.)
const HAND_WORK_MAX: usize = 8192;
/// The same where room is made for what is hot in a span that is drained: that goes itself otherwise.
pub(crate) const HAND_WORK_DRAIN: usize = 2048;
/// Looks that judging an item costs as much as.
const JUDGE_WORK: usize = 2;
/// Accesses that take a key from probation to main.
pub(crate) const PROMOTE_FREQUENCY: u64 = 2;
/// There are no more ghosts than the limit has room for items of so many bytes.
const GHOST_ITEM_BYTES: u64 = 32;
/// Why an item goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// For its memory.
    Evicted,
    /// Its time had passed.
    Expired,
}

impl Store {
    /// Leaves a ghost of what is evicted from a slot.
    pub(crate) fn remember(&self, hash: u64, slot: Slot) {
        let queue = if slot.probation() { Queue::Probation } else { Queue::Main };
        self.ghosts.remember(hash, queue);
    }

    /// Makes the table of ghosts, or takes a step towards that: something was evicted, or soon will be. The caller holds no lock.
    #[inline]
    pub(crate) fn make_ghosts(&self) {
        if !self.ghosts.is_made() {
            self.fit_ghosts();
        }
    }

    /// Fits the table of ghosts to the number of items, or to those that the limit has room for, if they are fewer; or takes
    /// a step towards that. The caller holds no lock.
    #[cold]
    pub(crate) fn fit_ghosts(&self) {
        let items_max = self.arena.limit_bytes() / GHOST_ITEM_BYTES;
        self.ghosts.fit(&self.arena, self.items().min(items_max), || self.epochs.tag());
        self.free_retired_ghosts();
    }

    pub(crate) fn free_retired_ghosts(&self) {
        self.ghosts.free_retired(&self.arena, |tag| self.world.batches_over(tag));
    }

    /// What is left of an item's frequency when the hand passes.
    pub(crate) fn worn(&self, frequency: u64) -> u64 {
        if self.window.has_turned(self.arena.limit_bytes()) { 0 } else { frequency.saturating_sub(1) }
    }

    /// False if there is nothing that this policy evicts, as far as one look tells.
    pub fn may_evict(&self) -> bool {
        match self.eviction() {
            Eviction::Off => false,
            Eviction::All => true,
            // While a span is visited, its time is not in the agenda.
            Eviction::Volatile | Eviction::VolatileTtl => {
                !self.arena.agenda().is_empty() || self.expiring.load(Ordering::Relaxed)
            }
        }
    }

    /// True if this policy evicts nothing in a span of `class`, as far as one look tells.
    pub(crate) fn all_stays(&self, class: ClassId, span: &Span) -> bool {
        match self.eviction() {
            Eviction::Off => true,
            Eviction::All => false,
            // A large value is judged at its first piece, a tree at its first leaf, and its expiry is where its head is.
            Eviction::Volatile | Eviction::VolatileTtl => {
                class.chunk_bytes() < CHUNK_BYTES_MAX && span.due.is_never() && !self.trees.any()
            }
        }
    }

    /// True if this policy never evicts an item with this header.
    pub(crate) fn is_protected(&self, item: RawItem, header: Header) -> bool {
        match self.eviction() {
            Eviction::Off => true,
            Eviction::All => false,
            Eviction::Volatile | Eviction::VolatileTtl => !header.has(EXPIRY) || item.expires_at() == 0,
        }
    }
}

impl Store {
    /// [`Store::is_protected`] of the item at a location.
    ///
    /// # Safety
    /// It was an item in this epoch.
    unsafe fn is_protected_at(&self, location: u64) -> bool {
        // SAFETY: the caller's obligation.
        let item = unsafe { RawItem::new(self.arena.at(location)) };
        self.is_protected(item, item.header())
    }
}

/// The database of an item that is taken out of a bucket that is not clean, if a flush has counted the item as gone.
#[cold]
fn flushed_of(store: &Store, locked: &Locked<'_>, found: &Found<'_>) -> Option<u8> {
    // SAFETY: reachable until a moment ago, in this epoch.
    let item = unsafe { RawItem::new(store.arena.at(found.slot.location())) };
    let number = item.number(item.header());
    store.flushes.took(locked.control.stamp(), store.stamp(), number).then_some(number)
}

/// The locations of a large value's head and last piece, which are in classes of their own, and judged with the first piece.
///
/// # Safety
/// A large item that is reachable in this epoch.
unsafe fn parts_of(arena: &Arena, item: RawItem, location: u64) -> [u64; 2] {
    // SAFETY: the caller's obligation.
    let large = unsafe { Large::of(item) };
    let pieces = large.head().pieces as usize;
    [location, if pieces > 0 { large.piece(arena, pieces - 1) } else { location }]
}

impl Store {
    /// Notes that an item was judged that has a chunk at each of these places: their spans were
    /// passed, as if by their classes' hands.
    fn note_judged(&self, now: Millis, parts: [u64; 2]) {
        for number in parts.map(Arena::span_of) {
            let class = ClassId(self.arena.span(number).owner.load(Ordering::Relaxed));
            if class.0 != OWNER_FREE && class.0 != OWNER_INDEX && class.chunk_bytes() < CHUNK_BYTES_MAX {
                self.slabs.class(class).note_judged(&self.arena, number, self.moment(now));
            }
        }
    }
}

impl Local {
    /// Clears a found slot under its home's lock and retires the item.
    pub(crate) fn unlink(&mut self, store: &Store, locked: &mut Locked<'_>, found: &Found<'_>) {
        store.index.remove(locked, found);
        let dirty = !locked.control.passes(store.gate());
        let flushed = if dirty { flushed_of(store, locked, found) } else { None };
        locked.control = locked.control.written();
        self.drop_item(store, found.slot.location());
        if let Some(number) = flushed {
            store.flushes.collected(number);
        }
    }

    /// Counts an item as gone and retires its chunk; its slot is gone already.
    pub(crate) fn drop_item(&mut self, store: &Store, location: u64) {
        // SAFETY: reachable until a moment ago, in this epoch.
        let item = unsafe { RawItem::new(store.arena.at(location)) };
        let header = item.header();
        let counters = self.counters(store);
        counters.class(class_of(&store.arena, header, location)).items.add(-1);
        let number = item.number(header);
        if number != 0 {
            counters.database(number).add(-1);
        }
        if header.is_collection() {
            // SAFETY: as above, and no thread has retired it.
            unsafe { counters.types.add(item, -1) };
        }
        self.retire(store, location);
    }

    /// Counts why an item went, in its class. Every item that the store takes out by itself, evicted
    /// or expired, passes here once, under its home's lock, while its key is still there.
    pub(crate) fn count_reason(
        &mut self,
        store: &Store,
        item: RawItem,
        slot: Slot,
        now_s: u64,
        reason: Reason,
    ) {
        let event = match reason {
            Reason::Evicted => Event::Evicted,
            Reason::Expired => Event::Expired,
        };
        self.note(store, event, item, slot, now_s);
        let header = item.header();
        let class = class_of(&store.arena, header, slot.location());
        let count = self.counters(store).class(class);
        let unfetched = i64::from(!header.has(FETCHED));
        match reason {
            Reason::Evicted => {
                count.evictions.add(1);
                count.evicted_unfetched.add(unfetched);
                count.evicted_nonzero.add(i64::from(header.has(EXPIRY)));
                let idle_s = access::idle_s(slot.access(), now_s);
                store.slabs.view(class).evicted_age_s.store(idle_s, Ordering::Relaxed);
                let counters = self.counters(store);
                counters.evicted_idle[access::idle_part(idle_s)].add(1);
                counters.evicted_idle_s.add(idle_s as i64);
            }
            Reason::Expired => {
                count.reclaimed.add(1);
                count.expired_unfetched.add(unfetched);
            }
        }
    }

    /// Evicts some items of a class, [`batch_of`] it at most; returns how many went.
    pub(crate) fn evict(&mut self, store: &Store, now: Millis, class: ClassId) -> usize {
        self.queue_fresh(store);
        let gone = match store.eviction() {
            Eviction::VolatileTtl => 0,
            Eviction::Off | Eviction::All | Eviction::Volatile => self.evict_new(store, now, class, false),
        };
        if gone > 0 {
            return gone;
        }
        match self.sweep_main(store, now, class, false, HAND_WORK_MAX, false) {
            // The hand has passed many items that were read: the one that it comes to next is worth no more.
            0 => self.sweep_main(store, now, class, false, 1, true),
            gone => gone,
        }
    }

    /// Moves the hand on until some items of main have gone (with `also_new` of those on probation, too), or it has done
    /// `work_max`; the next time it goes on from there. `also_read`: what it comes to goes, however often it was read.
    /// Returns how many items went.
    pub(crate) fn sweep_main(
        &mut self,
        store: &Store,
        now: Millis,
        class: ClassId,
        also_new: bool,
        work_max: usize,
        also_read: bool,
    ) -> usize {
        if !store.may_evict() {
            return 0;
        }
        let arena = &store.arena;
        let victims_max = batch_of(class);
        // One round lowers every frequency by one: after four, everything left is locked or pinned.
        let turns = {
            let slab = store.slabs.class(class);
            (slab.queue.count * class.chunks_per_span()).div_ceil(HAND_CHUNKS_MAX)
                * (FREQUENCY_MAX as usize + 2)
                * (BATCH / victims_max)
        };
        let soonest = store.eviction() == Eviction::VolatileTtl;
        let volatile = soonest || store.eviction() == Eviction::Volatile;
        let skips = |span: &Span| store.all_stays(class, span);
        let mut work = 0;
        for turn in 0..turns {
            if work >= work_max {
                break;
            }
            let mut victims = Victims::new(victims_max);
            let probation_empty;
            {
                let mut slab = store.slabs.class(class);
                probation_empty = slab.probation.len() == 0;
                work += slab.pass(arena, store.moment(now), HAND_CHUNKS_MAX, skips, |location| {
                    // SAFETY: a carved chunk has a header word at all times, and under the class's lock
                    // an item stays one for this worker's epoch.
                    match unsafe { victim_at(store, location) } {
                        Some(owner) if soonest => victims.keep_soonest(store, owner),
                        // SAFETY: it is an item in this epoch.
                        Some(owner) if volatile && unsafe { store.is_protected_at(owner) } => {}
                        Some(owner) => victims.push(owner),
                        None => {}
                    }
                    !victims.are_enough() || soonest
                });
                if soonest {
                    let chunks = slab.queue.count * class.chunks_per_span();
                    let bar = slab.bar.pass(HAND_CHUNKS_MAX, chunks, victims.latest());
                    victims.keep_until(bar);
                }
            }
            let victims = &victims.locations[..victims.count];
            work += victims.len() * JUDGE_WORK;
            let mut hashes = [0; BATCH];
            for (hash, &location) in hashes.iter_mut().zip(victims) {
                *hash = store.hash_at(location);
                store.prefetch_home(*hash);
                store.ghosts.prefetch(*hash);
                // SAFETY: it is an item in this epoch.
                let item = unsafe { RawItem::new(arena.at(location)) };
                if item.header().is_large() {
                    // SAFETY: as above, a large one.
                    store.note_judged(now, unsafe { parts_of(arena, item, location) });
                }
            }
            let gone = victims
                .iter()
                .zip(hashes)
                .filter(|&(&location, hash)| {
                    self.judge_main(
                        store,
                        now,
                        hash,
                        location,
                        also_new || probation_empty || soonest,
                        soonest || also_read,
                    )
                })
                .count();
            if gone > 0 {
                store.make_ghosts();
                return gone;
            }
            if turn >= HAND_TURNS_PATIENT * (BATCH / victims_max) {
                let gone = self.evict_new(store, now, class, true);
                if gone > 0 {
                    return gone;
                }
            }
        }
        self.evict_new(store, now, class, true)
    }

    /// Judges an item under the hand: passes over it or evicts it. True if memory came free.
    fn judge_main(
        &mut self,
        store: &Store,
        now: Millis,
        hash: u64,
        location: u64,
        also_new: bool,
        also_read: bool,
    ) -> bool {
        let Some(mut locked) = self.try_lock(store, hash) else { return false };
        let found = store.index.scan(&locked.place, locked.control, |slot| slot.location() == location);
        let gone = found.is_some_and(|found| {
            // SAFETY: reachable in this epoch.
            let item = unsafe { RawItem::new(store.arena.at(location)) };
            let header = item.header();
            let expired = item.expired_by(header, now);
            let stays = found.slot.probation() && !also_new
                || store.is_protected(item, header)
                || self.may_be_own(hash);
            if !expired && stays {
                return false;
            }
            if !expired && !found.slot.probation() {
                let class = class_of(&store.arena, header, location);
                store.slabs.view(class).count_judged(found.slot.frequency() > 0);
            }
            if !expired && !also_read && found.slot.frequency() > 0 {
                found.bucket.replace(found.i, found.slot.with_frequency(store.worn(found.slot.frequency())));
                return false;
            }
            self.take_out(store, hash, &mut locked, &found, item, expired);
            true
        });
        locked.home.unlock(locked.control);
        gone
    }

    /// Takes out an item that was judged: because its time has passed, or, leaving a ghost, for its memory.
    #[inline]
    pub(crate) fn take_out(
        &mut self,
        store: &Store,
        hash: u64,
        locked: &mut Locked<'_>,
        found: &Found<'_>,
        item: RawItem,
        expired: bool,
    ) {
        if !expired {
            store.remember(hash, found.slot);
        }
        let reason = if expired { Reason::Expired } else { Reason::Evicted };
        self.count_reason(store, item, found.slot, store.accesses.seconds(self.now), reason);
        self.unlink(store, locked, found);
    }

    /// Makes room for a key by evicting another one from its home or its other bucket, one of those that were read least. For
    /// when the index cannot grow for want of memory. True if a slot came free; false if all of them are protected, the own
    /// transaction's, or another's. The caller holds no reference into the arena.
    pub(crate) fn evict_neighbour(&mut self, store: &Store, hash: u64) -> bool {
        // A worker that has the home in a transaction is waited for.
        let Locked { place, home, control } = self.lock(store, hash);
        home.unlock(control);
        let slots = |bucket: &Bucket| (0..SLOTS).map(|i| bucket.slot(i)).collect::<Vec<_>>();
        let mut slots = [slots(place.home()), slots(place.other())].concat();
        slots.retain(|slot| !slot.is_empty());
        slots.sort_by_key(|slot| slot.frequency());
        slots.iter().any(|slot| self.evict_at(store, slot.location(), slot.location()))
    }
}

/// The item that the hand judges at a chunk: the one in it, the large one whose first piece it is, or the tree whose first
/// leaf it is. The latter two are not judged at their heads: what counts is the memory of their parts.
///
/// # Safety
/// The chunk is carved, and the caller holds its class's lock.
unsafe fn victim_at(store: &Store, location: u64) -> Option<u64> {
    // SAFETY: the caller's obligation; what is found is an item for as long as this epoch, and of its kind.
    unsafe {
        let header = RawItem::new(store.arena.at(location)).header();
        // Nearly all nodes are not the first.
        if header.is_node() && !header.is_first_leaf() {
            return None;
        }
        let owner = owner_at(store, location)?;
        let item = RawItem::new(store.arena.at(owner));
        (judged_at(store, item).unwrap_or(owner) == location).then_some(owner)
    }
}
