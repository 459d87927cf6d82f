//! Reads: find, judge, count as an access. No lock, and nothing written that threads share once an
//! item is known to be hot.

mod hint;
mod value;
mod view;

pub use hint::Hint;
pub(crate) use hint::{Mark, prefetch};
pub use value::{InLeaf, InPieces, Pieces, Pinned, Value};
pub use view::Item;
pub(crate) use view::seen;

use crate::access;
use crate::bucket::{Cell, FREQUENCY_MAX, Slot};
use crate::evict::Reason;
use crate::index::{Found, Walked};
use crate::item::{FETCHED, Header, RawItem};
use crate::sync::Backoff;
use crate::sync::atomic::Ordering;
use crate::wait::Wait;
use crate::worker::Guard;
use crate::{Key, Millis, Store};
use std::sync::Arc;

/// The answer to a read.
#[derive(Debug)]
pub enum Lookup<'g> {
    /// The live item.
    Hit(Item<'g>),
    /// No item.
    Miss,
    /// There was an item, and its time had passed; it is gone now.
    Expired,
    /// There was an item, and a flush took it; it is gone now.
    Flushed,
}

impl<'g> Lookup<'g> {
    /// The live item, if there is one.
    #[inline]
    pub fn hit(self) -> Option<Item<'g>> {
        match self {
            Lookup::Hit(item) => Some(item),
            Lookup::Miss | Lookup::Expired | Lookup::Flushed => None,
        }
    }
}

/// What a search found.
pub(crate) enum Find<'a> {
    Item(Found<'a>, RawItem),
    Nothing,
    /// The segment has not been cleaned since the last flush.
    Unclean,
}

#[inline(always)]
pub(crate) fn same_key(a: &[u8], b: &[u8]) -> bool {
    // Short keys: two overlapping words beat a call.
    let n = a.len();
    if n != b.len() {
        return false;
    }
    if (8..=16).contains(&n) {
        let word = |s: &[u8], at: usize| u64::from_le_bytes(s[at..at + 8].try_into().expect("eight bytes"));
        return word(a, 0) == word(b, 0) && word(a, n - 8) == word(b, n - 8);
    }
    a == b
}

impl Store {
    /// Finds the item of a key, expired or not. The caller is inside an epoch.
    #[inline]
    pub(crate) fn find(&self, key: &Key<'_>) -> Find<'_> {
        let mut backoff = Backoff::default();
        loop {
            let place = self.index.place(&self.arena, key.hash);
            let control = place.home().control();
            if !control.passes(self.gate()) {
                return Find::Unclean;
            }
            let found = self.index.scan(&place, control, |slot| self.is_at(slot, key));
            if let Some(found) = found {
                // SAFETY: reachable in this epoch.
                return Find::Item(found, unsafe { RawItem::new(self.arena.at(found.slot.location())) });
            }
            if self.index.miss_holds(&place, control) {
                return Find::Nothing;
            }
            backoff.wait();
        }
    }

    /// True if the slot's item has this key.
    #[inline]
    pub(crate) fn is_at(&self, slot: Slot, key: &Key<'_>) -> bool {
        self.item_at(slot, key).is_some()
    }

    /// The slot's item and its header, if it has this key.
    #[inline(always)]
    pub(crate) fn item_at(&self, slot: Slot, key: &Key<'_>) -> Option<(RawItem, Header)> {
        // SAFETY: a slot read in this epoch names an item that stays until the epoch is over.
        unsafe {
            let raw = RawItem::new(self.arena.at(slot.location()));
            let header = raw.header();
            (same_key(raw.key_by(header), key.bytes) && raw.number(header) == key.number)
                .then_some((raw, header))
        }
    }

    /// The database's number and the key of the item with this hash at a location; none if it is not there any more, or in a
    /// transaction. For this epoch.
    pub(crate) fn name_at(&self, hash: u64, location: u64) -> Option<(u8, &[u8])> {
        let place = self.index.place(&self.arena, hash);
        let control = place.home().control();
        if control.in_transaction() {
            return None;
        }
        self.index.scan(&place, control, |slot| slot.location() == location)?;
        // SAFETY: a slot read in this epoch names an item that stays until the epoch is over.
        unsafe {
            let raw = RawItem::new(self.arena.at(location));
            let header = raw.header();
            Some((raw.number(header), raw.key_by(header)))
        }
    }

    /// The hash of the key of the item at a location that is reachable in this epoch.
    pub(crate) fn hash_at(&self, location: u64) -> u64 {
        // SAFETY: the caller found it reachable in this epoch.
        unsafe {
            let raw = RawItem::new(self.arena.at(location));
            let header = raw.header();
            self.hash_of(raw.number(header), raw.key_by(header))
        }
    }
}

impl<'w> Guard<'w> {
    /// The time of this batch.
    #[inline]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// The store.
    #[inline]
    pub fn store(&self) -> &'w Arc<Store> {
        self.arc
    }

    /// Hashes a key of database 0, memcached's.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.store.key(bytes)
    }

    /// Hashes a key of the database of this name, below [`crate::DATABASES`].
    #[inline]
    pub fn key_in<'k>(&self, name: u8, bytes: &'k [u8]) -> Key<'k> {
        self.store.key_in(name, bytes)
    }
    /// Reads, and counts it as an access: frequency, last access, fetched.
    #[inline(never)]
    pub fn get(&mut self, key: &Key<'_>) -> Lookup<'_> {
        match self.store.find(key) {
            Find::Item(found, raw) => {
                let header = raw.header();
                if raw.expired_by(header, self.now) {
                    return self.lookup_slow(key);
                }
                self.count_access(found.bucket.cell(found.i), found.slot, raw, header);
                Lookup::Hit(self.item(key, found.slot, raw, header))
            }
            Find::Nothing => {
                if !self.traceless {
                    self.store.note_miss(key.hash);
                }
                Lookup::Miss
            }
            Find::Unclean => self.lookup_slow(key),
        }
    }

    #[inline(always)]
    fn item(&self, key: &Key<'_>, slot: Slot, raw: RawItem, header: Header) -> Item<'_> {
        Item { raw, header, slot, hash: key.hash, now_s: self.now_s, arc: self.arc }
    }

    /// The item that a slot names, with this hash.
    pub(crate) fn item_at_slot(&self, raw: RawItem, slot: Slot, hash: u64) -> Item<'_> {
        Item { raw, header: raw.header(), slot, hash, now_s: self.now_s, arc: self.arc }
    }

    /// Whether reads leave a trace in what is evicted first: from here on, until the batch is over.
    pub fn leave_traces(&mut self, on: bool) {
        self.traceless = !on;
    }

    /// Writes an access down, as far as it is worth it: a hot item's is not.
    fn count_access(&self, cell: &Cell, slot: Slot, raw: RawItem, header: Header) {
        if self.traceless {
            return;
        }
        if slot.frequency() < FREQUENCY_MAX || access::stale(slot.access(), self.now_s) {
            let bumped = slot
                .with_frequency((slot.frequency() + 1).min(FREQUENCY_MAX))
                .with_access(access::encode(self.now_s));
            // Lost when another thread wrote the slot: the next access tries again.
            cell.bump(slot, bumped);
        }
        if !header.has(FETCHED) {
            raw.header_word().fetch_or(FETCHED, Ordering::Relaxed);
        }
    }

    /// Reads without leaving a trace.
    pub fn peek(&mut self, key: &Key<'_>) -> Lookup<'_> {
        match self.store.find(key) {
            Find::Item(found, raw) if !raw.expired(self.now) => {
                let header = raw.header();
                Lookup::Hit(Item {
                    raw,
                    header,
                    slot: found.slot,
                    hash: key.hash,
                    now_s: self.now_s,
                    arc: self.arc,
                })
            }
            Find::Nothing => Lookup::Miss,
            Find::Item(..) | Find::Unclean => self.lookup_slow(key),
        }
    }

    /// The key's item has expired, or its segment is not clean after a flush. Of the flushed only
    /// this key's item is taken out: a request for another key is told that a flush took it, unless that was in the
    /// second of its last access. (memcached drops those at once and leaves the others to the next request for them.)
    #[cold]
    fn lookup_slow(&mut self, key: &Key<'_>) -> Lookup<'_> {
        let store = self.store;
        let mut locked = self.local.lock(store, key.hash);
        // In a transaction a flush since its beginning comes after it.
        if locked.control.stamp() != store.stamp() && !locked.control.in_transaction() {
            let found = store.index.scan(&locked.place, locked.control, |slot| store.is_at(slot, key));
            let answer = match found {
                Some(found) => {
                    let at_s = store.flushes.taken_at(locked.control.stamp(), store.stamp(), key.number);
                    at_s.map(|at_s| {
                        let idle_s = access::idle_s(found.slot.access(), self.now_s);
                        self.local.unlink(store, &mut locked, &found);
                        if idle_s > self.now_s.wrapping_sub(at_s) { Lookup::Flushed } else { Lookup::Miss }
                    })
                }
                None => Some(Lookup::Miss),
            };
            locked.home.unlock(locked.control);
            if let Some(answer) = answer {
                return answer;
            }
            locked = self.lock_clean(key.hash);
        }
        let mut answer = Lookup::Miss;
        let found = store.index.scan(&locked.place, locked.control, |slot| store.is_at(slot, key));
        if let Some(found) = found {
            // SAFETY: reachable in this epoch.
            let raw = unsafe { RawItem::new(store.arena.at(found.slot.location())) };
            if raw.expired(self.now) {
                self.local.count_reason(store, raw, found.slot, self.now_s, Reason::Expired);
                self.local.unlink(store, &mut locked, &found);
                answer = Lookup::Expired;
            } else {
                // Stored anew meanwhile, or of a database that was not flushed.
                answer = Lookup::Hit(self.item(key, found.slot, raw, raw.header()));
            }
        }
        locked.home.unlock(locked.control);
        answer
    }

    /// Visits live items from `cursor` on, about `items_max` of them; returns where to go on, 0 at
    /// the end. Every key that was there throughout is visited; some may be visited twice. Leaves the epoch
    /// before the first is visited, so that a walk of many steps in one batch holds back no memory. Not in a
    /// transaction of keys. Costs some 5 µs and what the visits do.
    pub fn walk(&mut self, cursor: u64, items_max: usize, visit: &mut dyn FnMut(Item<'_>)) -> u64 {
        let store = self.store;
        debug_assert!(!self.local.transaction.open, "a walk waits for transactions");
        self.local.step_out(store);
        let mut slots = Vec::new();
        let mut wait = Wait::idle();
        let next = loop {
            match store.index.walk(&store.arena, cursor, items_max, store.gate(), &mut slots) {
                Walked::To(next) => break next,
                Walked::Busy => self.local.wait(store, &mut wait),
                Walked::Unclean => self.clean(cursor),
            }
        };
        slots.iter().for_each(|slot| store.prefetch_chunk(slot.location()));
        for slot in slots {
            // SAFETY: reachable in this epoch.
            let raw = unsafe { RawItem::new(store.arena.at(slot.location())) };
            if !raw.expired(self.now) {
                visit(self.item_at_slot(raw, slot, store.hash_at(slot.location())));
            }
        }
        next
    }
}
