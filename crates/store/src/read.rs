//! Reads: find, judge, count as an access. No lock, and nothing written that threads share once an
//! item is known to be hot.

use crate::access;
use crate::arena::Arena;
use crate::bucket::{Bucket, Cell, FREQUENCY_MAX, Slot};
use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::evict::Reason;
use crate::index::Found;
use crate::item::{FETCHED, Header, Kind, RawItem, STALE, TOKEN_SENT};
use crate::large::{Large, PIECE_BYTES, PieceCursor, piece_value};
use crate::sync::Backoff;
use crate::worker::{Guard, chunk_facts, class_of, free_alone};
use crate::{Key, Millis, Seen, Store};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// A live item, borrowed from the arena until the guard is written through.
#[derive(Clone, Copy, Debug)]
pub struct Item<'g> {
    pub(crate) raw: RawItem,
    /// As it was before this access.
    pub(crate) header: Header,
    pub(crate) slot: Slot,
    hash: u64,
    now_s: u64,
    arc: &'g Arc<Store>,
}

/// Where a key's item probably is: what the prefetch stages of a batch found out, so that the
/// operation does not look again. A hint is only ever a guess; the item's key decides.
#[derive(Clone, Copy, Debug)]
pub struct Hint<'g> {
    pub(crate) home: &'g Bucket,
    /// Where a slot with the key's tag was seen, in its home or its other bucket.
    pub(crate) cell: &'g Cell,
    /// What it said; [`Slot::EMPTY`] if none was seen.
    pub(crate) slot: Slot,
    hash: u64,
    tag: u32,
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

    /// The hash of the key of the item at a location that is reachable in this epoch.
    pub(crate) fn hash_at(&self, location: u64) -> u64 {
        // SAFETY: the caller found it reachable in this epoch.
        unsafe {
            let raw = RawItem::new(self.arena.at(location));
            let header = raw.header();
            self.hash_of(raw.number(header), raw.key_by(header))
        }
    }

    pub(crate) fn prefetch_home(&self, hash: u64) {
        prefetch(std::ptr::from_ref(self.index.place(&self.arena, hash).home()).cast());
    }
}

impl Store {
    /// Starts loading the item on probation that the home bucket of a hash names.
    pub(crate) fn prefetch_probation(&self, hash: u64) {
        let place = self.index.place(&self.arena, hash);
        let control = place.home().control();
        if let Some(found) = self.index.scan(&place, control, Slot::probation) {
            let item = self.arena.at(found.slot.location()).as_ptr().cast_const();
            prefetch(item);
            // What takes its place is longer than what is left of the first line.
            prefetch(item.wrapping_add(64));
        }
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
    /// The time of this batch.
    #[inline]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// The store.
    #[inline]
    pub fn store(&self) -> &Arc<Store> {
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

    /// Starts loading the key's home bucket: stage 1 of a batch.
    #[inline(always)]
    pub fn prefetch_bucket(&self, key: &Key<'_>) -> Hint<'w> {
        let store: &'w Store = self.store;
        let place = store.index.place(&store.arena, key.hash);
        let home = place.home();
        prefetch(std::ptr::from_ref(home).cast());
        Hint { home, cell: home.cell(0), slot: Slot::EMPTY, hash: key.hash, tag: place.tag as u32 }
    }

    /// Starts loading the item that the key's home bucket names: stage 2, after stage 1 of some 16
    /// to 32 keys. True if it names none and the key's other bucket was started instead: then
    /// [`Guard::prefetch_away`] has something to do.
    #[inline(always)]
    pub fn prefetch_item(&self, hint: &mut Hint<'w>) -> bool {
        if self.prefetch_match(hint.home, hint) {
            return false;
        }
        let away = hint.home.control().away() > 0;
        if away {
            prefetch(std::ptr::from_ref(self.other(hint)).cast());
        }
        away
    }

    /// Starts loading the item that the key's other bucket names: stage 3, for about one key in ten.
    #[inline]
    pub fn prefetch_away(&self, hint: &mut Hint<'w>) {
        self.prefetch_match(self.other(hint), hint);
    }

    /// Starts loading what a first store of the key looks at, if the stages before have found no item.
    #[inline(always)]
    pub fn prefetch_insert(&self, hint: &Hint<'_>) {
        if hint.slot.is_empty() {
            self.store.ghosts.prefetch(hint.hash);
        }
    }

    #[inline]
    fn other(&self, hint: &Hint<'_>) -> &'w Bucket {
        let store: &'w Store = self.store;
        store.index.place(&store.arena, hint.hash).other()
    }

    /// Starts loading the item of the first slot in `bucket` with the hint's tag, if there is one.
    #[inline(always)]
    fn prefetch_match(&self, bucket: &'w Bucket, hint: &mut Hint<'w>) -> bool {
        let matches = bucket.matches(u64::from(hint.tag));
        if matches == 0 {
            return false;
        }
        hint.cell = bucket.cell(matches.trailing_zeros() as usize);
        hint.slot = hint.cell.slot();
        self.prefetch_slot(hint.slot);
        true
    }

    #[inline]
    fn prefetch_slot(&self, slot: Slot) {
        let item = self.store.arena.at(slot.location()).as_ptr().cast_const();
        prefetch(item);
        // Most items are longer than what is left of their first line.
        prefetch(item.wrapping_add(64));
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
            Find::Nothing => Lookup::Miss,
            Find::Unclean => self.lookup_slow(key),
        }
    }

    /// As [`Guard::get`], looking first where the prefetch stages of this batch have looked.
    #[inline(always)]
    pub fn get_hinted(&mut self, key: &Key<'_>, hint: &Hint<'_>) -> Lookup<'_> {
        // The index keeps a page while a batch lasts, so the cell is one, if perhaps another key's by now;
        // what it names in this epoch is an item.
        let slot = hint.cell.slot();
        if !hint.slot.is_empty()
            && !slot.is_empty()
            && hint.home.control().passes(self.store.gate())
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
    /// value and its reading leaves no trace: live, in place, without flags and expiry, and already
    /// known to be hot; in database 0. None says nothing: ask [`Guard::get_hinted`].
    #[inline(always)]
    pub fn hot_value(&self, key: &Key<'_>, hint: &Hint<'_>) -> Option<&[u8]> {
        let store = self.store;
        let slot = hint.slot;
        // As in `get_hinted`; an empty slot is not hot.
        if hint.cell.slot() != slot
            || !hint.home.control().passes(store.gate())
            || !slot.is_hot(self.now_s)
            || key.number != 0
        {
            return None;
        }
        // SAFETY: a slot read in this epoch names an item that stays until the epoch is over.
        unsafe {
            let raw = RawItem::new(store.arena.at(slot.location()));
            let header = raw.header();
            if !header.is_plain(key.bytes.len()) {
                return None;
            }
            let (its_key, value) = raw.plain(header, key.bytes.len());
            same_key(its_key, key.bytes).then_some(value)
        }
    }

    #[inline(always)]
    fn item(&self, key: &Key<'_>, slot: Slot, raw: RawItem, header: Header) -> Item<'_> {
        Item { raw, header, slot, hash: key.hash, now_s: self.now_s, arc: self.arc }
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
            // Lost when somebody else wrote the slot: the next access tries again.
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
    /// this key's item is taken out: whoever asks for another is to hear that a flush took it.
    #[cold]
    fn lookup_slow(&mut self, key: &Key<'_>) -> Lookup<'_> {
        let store = self.store;
        let mut locked = self.local.lock(store, key.hash);
        // In a transaction a flush since its beginning comes after it.
        if locked.control.stamp() != store.stamp() && !locked.control.held() {
            let found = store.index.scan(&locked.place, locked.control, |slot| store.is_at(slot, key));
            let flushed = found.is_some_and(|found| {
                store.flushes.took(locked.control.stamp(), store.stamp(), key.number) && {
                    self.local.unlink(store, &mut locked, &found);
                    true
                }
            });
            let nothing = found.is_none();
            locked.home.unlock(locked.control);
            if flushed || nothing {
                return if flushed { Lookup::Flushed } else { Lookup::Miss };
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
    /// the end. Every key that was there throughout is visited; some may be visited twice.
    pub fn walk(&mut self, cursor: u64, items_max: usize, visit: &mut dyn FnMut(Item<'_>)) -> u64 {
        let store = self.store;
        if store.index.place(&store.arena, cursor).home().control().stamp() != store.stamp() {
            self.clean(cursor);
        }
        let (now, now_s, arc) = (self.now, self.now_s, self.arc);
        let next = self.local.between_transactions(store, usize::MAX, |_| {
            store.index.walk(&store.arena, cursor, items_max, &mut |slot| {
                // SAFETY: reachable in this epoch.
                let raw = unsafe { RawItem::new(store.arena.at(slot.location())) };
                if !raw.expired(now) {
                    let (hash, header) = (store.hash_at(slot.location()), raw.header());
                    visit(Item { raw, header, slot, hash, now_s, arc });
                }
            })
        });
        next.expect("it is tried for ever")
    }
}

impl<'g> Item<'g> {
    /// The key's bytes.
    #[inline]
    pub fn key(&self) -> &'g [u8] {
        // SAFETY: `'g` ends before the guard can leave its epoch.
        unsafe { self.raw.key_by(self.header) }
    }
    /// The name of the item's database.
    pub fn database(&self) -> u8 {
        self.arc.names.name(self.raw.number(self.header))
    }
    /// memcached's client flags.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.raw.flags(self.header)
    }
    /// The wire CAS token.
    #[inline]
    pub fn cas(&self) -> u64 {
        self.raw.token(self.hash)
    }
    /// Absolute expiry, 0 for never.
    pub fn expires_at(&self) -> Millis {
        self.raw.expires_at()
    }
    /// Bytes of the value.
    pub fn value_bytes(&self) -> u64 {
        match self.value() {
            Value::Whole(value) => value.len() as u64,
            Value::Pieces(value) => value.value_bytes(),
        }
    }
    /// The value.
    #[inline]
    pub fn value(&self) -> Value<'g> {
        if self.header.is_whole() {
            // SAFETY: `'g` ends before the guard can leave its epoch.
            return Value::Whole(unsafe { self.raw.whole_value(self.header) });
        }
        Value::Pieces(InPieces(*self))
    }
    /// Keeps a large value in place while it is being sent.
    ///
    /// # Panics
    /// If the value is not in pieces.
    pub fn pin(&self) -> Pinned {
        assert_eq!(self.raw.header().kind(), Kind::Large, "only large values are pinned");
        // SAFETY: reachable in this epoch, and a large item.
        let mut large = unsafe { Large::of(self.raw) };
        let mut location = self.slot.location();
        let only = loop {
            match large.head().pins.add() {
                Ok(only) => break only,
                Err(moved) => location = moved,
            }
            // SAFETY: a large item again, published in this epoch.
            large = unsafe { Large::of(RawItem::new(self.arc.arena.at(location))) };
        };
        if only {
            self.arc.held.pinned(self.value_bytes() as i64);
        }
        Pinned { store: Arc::clone(self.arc), location }
    }
    /// As [`Item::pin`], unless connections hold their share of the memory.
    ///
    /// # Panics
    /// If the value is not in pieces.
    pub fn pin_for_reply(&self) -> Option<Pinned> {
        // SAFETY: reachable in this epoch, and a large item, as `pin` asserts first of all.
        let pinned =
            self.raw.header().kind() == Kind::Large && unsafe { Large::of(self.raw) }.head().pins.any();
        // What is being sent to another already takes no more memory for this one.
        (pinned || self.arc.may_pin(self.value_bytes())).then(|| self.pin())
    }
    /// Identity of this version.
    #[inline]
    pub fn seen(&self) -> Seen {
        seen(self.raw, self.slot.location(), self.hash)
    }
    /// Marked stale by [`Guard::invalidate`] or [`crate::Attributes::stale`].
    #[inline]
    pub fn stale(&self) -> bool {
        self.header.has(STALE)
    }
    /// A recache token is out.
    #[inline]
    pub fn token_sent(&self) -> bool {
        self.header.has(TOKEN_SENT)
    }
    /// The key arrived base64-encoded.
    #[inline]
    pub fn key_binary(&self) -> bool {
        self.header.has(crate::item::KEY_BINARY)
    }
    /// It was read before this access.
    #[inline]
    pub fn fetched(&self) -> bool {
        self.header.has(FETCHED)
    }
    /// Seconds between the access before this one and now: exact for the first two minutes, then in
    /// steps of about half an hour up to six days. Accesses within 8 s of a noted one may count as
    /// that one.
    pub fn idle_s(&self) -> u64 {
        access::idle_s(self.slot.access(), self.now_s)
    }
    /// How often it was accessed lately, from 0 to 3.
    pub fn frequency(&self) -> u8 {
        self.slot.frequency() as u8
    }
    /// Slab class of the item's chunk; of a value in pieces, that of the pieces. Follows from the
    /// header: the arena is not looked at.
    #[inline]
    pub fn class(&self) -> u8 {
        let class = match self.header.kind() {
            Kind::Large => ClassId::of(CHUNK_BYTES_MAX),
            _ => ClassId::of(self.raw.whole_bytes_by(self.header)),
        };
        debug_assert_eq!(class, class_of(&self.arc.arena, self.header, self.slot.location()));
        class.0
    }
    /// Bytes of header, key, value and what goes with them.
    pub fn item_bytes(&self) -> u64 {
        let head = chunk_facts(&self.arc.arena, self.slot.location()).1 as u64
            + crate::item::key_heap_bytes(self.key().len()) as u64;
        match self.value() {
            Value::Whole(_) => head,
            Value::Pieces(value) => head + value.value_bytes(),
        }
    }
}

/// Identity of the version of an item that is reachable in this epoch.
#[inline]
pub(crate) fn seen(raw: RawItem, location: u64, hash: u64) -> Seen {
    Seen { location, version: raw.header().version(), token: raw.token(hash) }
}

/// An item's value.
#[derive(Debug)]
pub enum Value<'g> {
    /// One run of bytes (values up to about 16 KiB).
    Whole(&'g [u8]),
    /// A larger value, to be pinned before it is read.
    Pieces(InPieces<'g>),
}

/// A large value that is not pinned: its bytes may be written over ([`Guard::patch`]), its length stays.
/// A version noted before it is pinned ([`Item::seen`]) is at most as new as the bytes.
#[derive(Clone, Copy, Debug)]
pub struct InPieces<'g>(Item<'g>);

impl InPieces<'_> {
    /// Bytes of the value.
    pub fn value_bytes(&self) -> u64 {
        // SAFETY: `'g` ends before the guard can leave its epoch, and it is a large item.
        unsafe { Large::of(self.0.raw) }.head().value_bytes
    }

    /// Keeps the value as it is while it is read ([`Item::pin`]).
    pub fn pin(&self) -> Pinned {
        self.0.pin()
    }
}

/// Iterator over the pieces of a large value, in order.
#[derive(Debug)]
pub struct Pieces<'g> {
    arena: &'g Arena,
    cursor: PieceCursor,
    /// Bytes of the first piece to leave out.
    skip: usize,
}

impl<'g> Pieces<'g> {
    /// The pieces from byte `offset` on.
    fn from(arena: &'g Arena, large: Large, offset: u64) -> Pieces<'g> {
        let whole = offset / PIECE_BYTES as u64;
        let cursor = PieceCursor::at(large, arena, usize::try_from(whole).unwrap_or(usize::MAX));
        Pieces { arena, cursor, skip: (offset % PIECE_BYTES as u64) as usize }
    }
}

impl<'g> Iterator for Pieces<'g> {
    type Item = &'g [u8];
    fn next(&mut self) -> Option<&'g [u8]> {
        let piece = self.cursor.next(self.arena)?;
        // SAFETY: whoever made this iterator keeps the value alive for `'g`.
        let bytes = unsafe { piece_value(self.arena, piece) };
        Some(&bytes[std::mem::take(&mut self.skip)..])
    }
}

/// A large value kept in place for as long as this lives, whatever happens to its key.
#[derive(Debug)]
pub struct Pinned {
    store: Arc<Store>,
    location: u64,
}

impl Pinned {
    fn large(&self) -> Large {
        // SAFETY: the pin keeps the item where it is.
        unsafe { Large::of(RawItem::new(self.store.arena.at(self.location))) }
    }

    /// Bytes of the value.
    pub fn value_bytes(&self) -> u64 {
        self.large().head().value_bytes
    }

    /// The pieces from byte `offset` on, in order.
    pub fn pieces(&self, offset: u64) -> Pieces<'_> {
        Pieces::from(&self.store.arena, self.large(), offset)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let bytes = self.value_bytes();
        let (last, dead) = self.large().head().pins.remove();
        if last {
            self.store.held.pinned(-(bytes as i64));
        }
        if dead {
            free_alone(&self.store, self.location);
        }
    }
}
