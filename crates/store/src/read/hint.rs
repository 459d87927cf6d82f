//! Hints: what the stages of a batch find out, so that the operation does not look again.
//!
//! ```text
//! 1 prefetch_bucket ─▶ Hint ─▶ 2 prefetch_item ─▶ 3 prefetch_again ─▶ get_hinted, plain_value
//!    home bucket                 its slot's item      one key in ten, which lives in its other bucket,
//!                                                     or shares its tag with another
//! ```

use super::{Lookup, same_key};
use crate::bucket::{Bucket, Cell, Slot};
use crate::item::{FETCHED, RawItem};
use crate::sync::atomic::fence;
use crate::worker::Guard;
use crate::{Key, Store};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where a key's item probably is: what the prefetch stages of a batch found out, so that the
/// operation does not look again. A hint is only ever a guess; the item's key decides.
///
/// It is good for the batch that it was made in, up to its next [`Guard::begin_whole`] or [`Guard::give_way`]. To
/// any other, of this store or of another, it is a hint that says nothing.
#[derive(Clone, Copy, Debug)]
pub struct Hint<'g> {
    pub(crate) home: &'g Bucket,
    /// Where a slot with the key's tag was seen, in its home or its other bucket.
    pub(crate) cell: &'g Cell,
    /// What it said; [`Slot::EMPTY`] if none was seen.
    pub(crate) slot: Slot,
    pub(crate) tag: u32,
    pub(crate) mark: u32,
}

/// What the hints of one batch carry, and those of no other, of any store.
///
/// The compiler forbids a worker's next batch while a hint of this one is used, and so one mark lasts for all of
/// them; a worker that leaves a batch in its midst takes a new one. There are four billion; then hints say nothing any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// What the hints that are made get.
    made: u32,
    /// What those have that are believed; differs where there are no more marks.
    believed: u32,
}

impl Mark {
    /// A mark that no other batch has had, nor will have.
    pub(crate) fn new() -> Mark {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let next = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
        next.map_or(Mark { made: 0, believed: u32::MAX }, |mark| Mark { made: mark, believed: mark })
    }
}

impl Hint<'_> {
    /// True if it was made in the batch with this mark: what it points to is still a part of the index.
    #[inline(always)]
    pub(crate) fn is_of(&self, mark: Mark) -> bool {
        self.mark == mark.believed
    }

    /// As [`Hint::is_of`], and the key is one of database 0: one comparison.
    #[inline(always)]
    pub(crate) fn is_of_main(&self, mark: Mark, key: &Key<'_>) -> bool {
        (self.mark ^ mark.believed) | u32::from(key.number) == 0
    }

    /// What the cell says now; none unless the home bucket passes the gate, which also says that it still is the
    /// key's home. That is looked at first: a reader that saw one of a transaction's writes finds the bits of all its
    /// keys, or all of its writes. The other way round it could read the cell, wait until the transaction is over,
    /// and find no bit.
    #[inline(always)]
    pub(crate) fn open_slot(&self, gate: u64) -> Option<Slot> {
        if !self.home.control().passes(gate) {
            return None;
        }
        Some(self.cell.slot())
    }
}

impl Store {
    pub(crate) fn prefetch_home(&self, hash: u64) {
        prefetch(std::ptr::from_ref(self.index.place(&self.arena, hash).home()).cast());
    }

    /// Starts loading the item on probation that the home bucket of a hash names.
    pub(crate) fn prefetch_probation(&self, hash: u64) {
        let place = self.index.place(&self.arena, hash);
        let control = place.home().control();
        if let Some(found) = self.index.scan(&place, control, Slot::probation) {
            self.prefetch_chunk(found.slot.location());
        }
    }

    /// Starts loading a chunk: two lines, since most items are longer than what is left of the first.
    #[inline(always)]
    pub(crate) fn prefetch_chunk(&self, location: u64) {
        let chunk = self.arena.near(location);
        prefetch(chunk);
        prefetch(chunk.wrapping_add(64));
    }
}

#[inline]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint and faults at no address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

impl<'w> Guard<'w> {
    /// Starts loading the key's home bucket: stage 1 of a batch.
    #[inline(always)]
    pub fn prefetch_bucket(&self, key: &Key<'_>) -> Hint<'w> {
        let store: &'w Store = self.store;
        let place = store.index.place(&store.arena, key.hash);
        let home = place.home();
        prefetch(std::ptr::from_ref(home).cast());
        Hint { home, cell: home.cell(0), slot: Slot::EMPTY, tag: place.tag as u32, mark: self.mark.made }
    }

    /// Starts loading the item that the key's home bucket names: stage 2, after stage 1 of some 16
    /// to 32 keys. True if it names none or several: then [`Guard::prefetch_again`] has something to do.
    #[inline(always)]
    pub fn prefetch_item(&self, key: &Key<'_>, hint: &mut Hint<'w>) -> bool {
        // A hint of another batch is not looked for here: what it leads to is loaded, and nothing else.
        let matches = hint.home.matches(u64::from(hint.tag));
        if matches != 0 {
            self.prefetch_match(hint.home, matches, hint);
            return matches & (matches - 1) != 0;
        }
        if hint.home.control().away() > 0 {
            prefetch(std::ptr::from_ref(self.other(key)).cast());
        }
        true
    }

    /// Starts loading the item that the key's other bucket names, or, if slots of its home bucket share its
    /// tag and the first is not its own, that of the second: stage 3, for about one key in ten.
    #[inline]
    pub fn prefetch_again(&self, key: &Key<'_>, hint: &mut Hint<'w>) {
        if !hint.is_of(self.mark) {
            return;
        }
        let tag = u64::from(hint.tag);
        if hint.slot.is_empty() {
            if hint.home.control().away() > 0 {
                let other = self.other(key);
                self.prefetch_match(other, other.matches(tag), hint);
            }
            return;
        }
        // As it is now: what it named before may be gone.
        let slot = hint.cell.slot();
        if slot.is_empty() || self.store.item_at(slot, key).is_none() {
            let matches = hint.home.matches(tag);
            self.prefetch_match(hint.home, matches & matches.wrapping_sub(1), hint);
        }
    }

    /// Starts loading what a first store of the key looks at, if the stages before have found no item.
    #[inline(always)]
    pub fn prefetch_insert(&self, key: &Key<'_>, hint: &Hint<'_>) {
        if hint.slot.is_empty() {
            self.store.ghosts.prefetch(key.hash);
        }
    }

    #[inline]
    fn other(&self, key: &Key<'_>) -> &'w Bucket {
        let store: &'w Store = self.store;
        store.index.place(&store.arena, key.hash).other()
    }

    /// Starts loading the item of the first slot in `bucket` of those that match, if there is one.
    #[inline(always)]
    fn prefetch_match(&self, bucket: &'w Bucket, matches: u32, hint: &mut Hint<'w>) {
        if matches == 0 {
            return;
        }
        hint.cell = bucket.cell(matches.trailing_zeros() as usize);
        hint.slot = hint.cell.slot();
        self.store.prefetch_chunk(hint.slot.location());
    }

    /// What the hint's cell says now; none if that may be a part of what a transaction writes, or if the index has
    /// changed since the batch began.
    #[inline(always)]
    pub(crate) fn hinted_slot(&self, hint: &Hint<'_>) -> Option<Slot> {
        hint.open_slot(self.store.index.gate.since(self.layout))
    }

    /// As [`Guard::get`], looking first where the prefetch stages of this batch have looked.
    #[inline(always)]
    pub fn get_hinted(&mut self, key: &Key<'_>, hint: &Hint<'_>) -> Lookup<'_> {
        // The index keeps a page while a batch lasts, so the cell is one, if perhaps another key's by now;
        // what it names in this epoch is an item.
        if hint.is_of(self.mark)
            && !hint.slot.is_empty()
            && let Some(slot) = self.hinted_slot(hint)
            && !slot.is_empty()
            && let Some((raw, header)) = self.store.item_at(slot, key)
            && !raw.expired_by(header, self.now)
        {
            if !slot.is_hot(self.now_s) || !header.has(FETCHED) {
                self.count_access(hint.cell, slot, raw, header);
            }
            return Lookup::Hit(self.item(key, slot, raw, header));
        }
        self.get(key)
    }

    /// The value of an item that the prefetch stages saw, if a reply to it takes nothing but the
    /// value: live, in place, without flags, expiry and marks; in database 0. Counts as an access.
    /// None says nothing: ask [`Guard::get_hinted`].
    #[inline(always)]
    pub fn plain_value(&self, key: &Key<'_>, hint: &Hint<'_>) -> Option<&[u8]> {
        let store = self.store;
        let slot = hint.slot;
        if !hint.is_of_main(self.mark, key) {
            return None;
        }
        // As in `get_hinted`; an empty slot is not hot.
        if self.hinted_slot(hint) != Some(slot) {
            return None;
        }
        if !slot.is_hot(self.now_s) {
            return self.warm_value(key, hint);
        }
        // SAFETY: a slot read in this epoch names an item that stays until the epoch is over.
        unsafe {
            let raw = RawItem::new(store.arena.at(slot.location()));
            let header = raw.header();
            if !header.is_plain(key.bytes.len()) {
                return self.warm_value(key, hint);
            }
            let (its_key, value) = raw.plain(header, key.bytes.len());
            same_key(its_key, key.bytes).then_some(value)
        }
    }

    /// True if the key, of database 0, is not there: no slot has its tag where its item could be. Counts as a miss.
    /// False says nothing: ask [`Guard::get_hinted`].
    #[inline(always)]
    pub fn is_absent(&self, key: &Key<'_>, hint: &Hint<'_>) -> bool {
        if !hint.is_of_main(self.mark, key) || !hint.slot.is_empty() {
            return false;
        }
        let (home, tag) = (hint.home, u64::from(hint.tag));
        let control = home.control();
        if control.busy() || home.matches(tag) != 0 || control.away() > 0 && self.other(key).matches(tag) != 0
        {
            return false;
        }
        // The slots were read before the words are read again.
        fence(Ordering::Acquire);
        if home.control() != control || !control.passes(self.store.index.gate.since(self.layout)) {
            return false;
        }
        if !self.traceless {
            self.store.note_miss(key.hash);
        }
        true
    }

    /// [`Guard::plain_value`] of an item that is not known to be hot, or was not read before: its reading is
    /// written down.
    #[inline(never)]
    fn warm_value(&self, key: &Key<'_>, hint: &Hint<'_>) -> Option<&[u8]> {
        let slot = hint.slot;
        if slot.is_empty() {
            return None;
        }
        // SAFETY: a slot read in this epoch, which the caller found to be so still, names an item that stays
        // until the epoch is over.
        unsafe {
            let raw = RawItem::new(self.store.arena.at(slot.location()));
            let header = raw.header();
            if !header.is_simple(key.bytes.len()) {
                return None;
            }
            let (its_key, value) = raw.plain(header, key.bytes.len());
            if !same_key(its_key, key.bytes) {
                return None;
            }
            self.count_access(hint.cell, slot, raw, header);
            Some(value)
        }
    }
}
