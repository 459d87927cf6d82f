//! Room in the index for a key: what the index asks of a worker while it rebuilds or cleans a segment,
//! and what happens when it cannot grow.

use crate::Store;
use crate::index::{Full, Items};
use crate::item::RawItem;
use crate::read::prefetch;
use crate::worker::{Guard, Local};
use std::ops::RangeInclusive;

/// Times that a transaction tries to have its segment grow while another holds a part of it.
const HELD_ROUNDS_MAX: usize = 100;
/// The same where the write would be refused otherwise: some milliseconds.
const HELD_ROUNDS_LAST: usize = 20_000;

/// Work to clean a segment in which no item was flushed.
pub(crate) const CLEAN_NS: u64 = 40_000;
/// Work to take out an item that was flushed.
const DISCARD_NS: u64 = 70;
/// Buckets of a segment that a step of upkeep cleans: some 400 items are at home in them.
const CLEANED_AT_ONCE: usize = 64;
/// What it costs to rebuild a segment.
const GROW_NS: u64 = 100_000;

/// What the index asks of a worker while it rebuilds or cleans a segment.
pub(crate) struct Rebuild<'a> {
    pub(crate) store: &'a Store,
    pub(crate) local: &'a mut Local,
}

impl Items for Rebuild<'_> {
    fn prefetch(&self, location: u64) {
        let item = self.store.arena.at(location).as_ptr().cast_const();
        prefetch(item);
        // Some keys begin in one line and end in the next.
        prefetch(item.wrapping_add(24));
    }
    fn hash(&self, location: u64) -> u64 {
        self.store.hash_at(location)
    }
    fn stamp(&self) -> u8 {
        self.store.stamp()
    }
    fn flushed(&self, location: u64, was: u8, now: u8) -> bool {
        self.store.flushes.took_all(was, now).unwrap_or_else(|| {
            // SAFETY: reachable until its slot is cleared, in this epoch.
            let raw = unsafe { RawItem::new(self.store.arena.at(location)) };
            self.store.flushes.took(was, now, raw.number(raw.header()))
        })
    }
    fn watched(&self, hashes: RangeInclusive<u64>) -> bool {
        self.store.watches.has(hashes)
    }
    fn discard(&mut self, location: u64) {
        // SAFETY: reachable until a moment ago, in this epoch.
        let raw = unsafe { RawItem::new(self.store.arena.at(location)) };
        let number = raw.number(raw.header());
        self.local.beside_ns += DISCARD_NS;
        self.local.drop_item(self.store, location);
        self.store.flushes.collected(number);
    }
    fn tag(&self) -> u64 {
        self.store.epochs.tag()
    }
    fn batches_over(&self, tag: u64) -> bool {
        self.store.world.batches_over(tag)
    }
}

impl Guard<'_> {
    /// Takes what was flushed out of the segment of a hash.
    #[cold]
    pub(crate) fn clean(&mut self, hash: u64) {
        let store = self.store;
        self.local.beside_ns += CLEAN_NS;
        self.local.between_transactions(store, usize::MAX, |local| {
            store.index.clean(&store.arena, hash, &mut Rebuild { store, local })
        });
        self.local.leave_if_due(store);
    }

    /// Takes some of what was flushed out of the segment of a hash, as much as a step of upkeep is for; true if nothing is
    /// left there that was flushed up to `stamp`.
    #[cold]
    pub(crate) fn clean_some(&mut self, hash: u64, stamp: u8) -> bool {
        let store = self.store;
        self.local.beside_ns += CLEAN_NS;
        let ended = self.local.between_transactions(store, usize::MAX, |local| {
            let part = (stamp, CLEANED_AT_ONCE);
            store.index.clean_some(&store.arena, hash, part, &mut Rebuild { store, local })
        });
        self.local.leave_if_due(store);
        ended == Some(true)
    }

    /// Makes room for a key where the index has none: it grows, an item goes to its other place, or
    /// a neighbour is evicted. False if nothing helps.
    #[cold]
    pub(super) fn make_room(&mut self, hash: u64, meta: u64) -> bool {
        let store = self.store;
        // A transaction that is only about to begin, and waits, unlocks what it holds of the segment.
        let _wants = self.local.transaction.open.then(|| store.wanting.one());
        // Two in one segment that both want it to grow are in each other's way.
        let rounds = if self.local.transaction.open { HELD_ROUNDS_MAX } else { usize::MAX };
        match self.grow_segment(hash, meta, rounds) {
            Some(Ok(())) => true,
            None if store.index.vacate(&store.arena, hash) => true,
            None | Some(Err(Full)) if store.evicts() => self.evict_neighbour(hash),
            // The other transaction may only be slow, and nothing else is left.
            None => self.grow_segment(hash, meta, HELD_ROUNDS_LAST) == Some(Ok(())),
            Some(Err(Full)) => false,
        }
    }

    /// Gives the segment of `hash` more room; none if another's transaction held a part of it each of so many times.
    fn grow_segment(&mut self, hash: u64, meta: u64, rounds: usize) -> Option<Result<(), Full>> {
        let store = self.store;
        let mut buckets = std::mem::take(&mut self.local.transaction.buckets);
        let open = self.local.transaction.open;
        self.local.beside_ns += GROW_NS;
        let grown = self.local.between_transactions(store, rounds, |local| {
            let buckets = open.then_some(&mut buckets);
            store.index.grow(&store.arena, hash, meta, buckets, &mut Rebuild { store, local })
        });
        self.local.transaction.buckets = buckets;
        grown
    }

    /// Evicts one of the keys beside that of `hash`, when others' transactions let it.
    fn evict_neighbour(&mut self, hash: u64) -> bool {
        let store = self.store;
        let evicted = self.local.between_transactions(store, HELD_ROUNDS_MAX, |local| {
            local.evict_neighbour(store, hash).then_some(())
        });
        evicted.is_some()
    }
}
