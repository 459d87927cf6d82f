//! Writes: look, allocate, fill, publish.
//!
//! 1. The condition is looked at before anything is allocated or copied.
//! 2. A chunk is allocated and filled; nobody can see it.
//! 3. Under the home bucket's lock the condition is checked for good, the item gets the bucket's
//!    next version, and one store to the slot publishes it.
//! 4. The old item's chunk is retired.
//!
//! Only marks, version and expiry change in place; where an item lacks the word for one of these,
//! it is first copied into a shape that has it.

use crate::access;
use crate::bucket::Slot;
use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::evict::Reason;
use crate::index::{Found, Full, Index, Items, Locked};
use crate::item::{
    DRAFT_LARGE, EXPIRY, FETCHED, KEY_BINARY, Kind, RawItem, STALE, Shape, TOKEN_SENT, key_heap_bytes, token,
};
use crate::large::Large;
use crate::read::{Find, prefetch, seen};
use crate::worker::{Guard, Local, class_of};
use crate::{Attributes, Expect, KEY_BYTES_MAX, Key, Lookup, Millis, Refusal, Seen, Store, Stored, Value};
use std::sync::atomic::Ordering;

/// Times that a transaction tries to have its segment grow while another holds a part of it.
const HELD_ROUNDS_MAX: usize = 100;
/// Keys longer than this are looked at before they are written.
const KEY_LONG_BYTES: usize = 4 << 10;
/// Keys on the heap may take one part in this many of the memory limit.
const KEY_SHARE: u64 = 8;

/// What a publication does to the token.
#[derive(Clone, Copy)]
pub(crate) enum Token {
    /// The bucket's next version, or the one given.
    Next(Option<u64>),
    /// The item is a copy of the one it replaces: same version, same explicit token.
    Keep { version: u32, explicit: u64 },
}

/// A draft about to be published.
#[derive(Clone, Copy)]
pub(crate) struct Draft {
    pub(crate) chunk: u64,
    pub(crate) large: bool,
}

/// Why a publication did not happen.
pub(crate) enum Unpublished {
    Refused(Refusal),
    /// The bucket has been written to four billion times: tokens need the extension now.
    NeedsExtension,
}

impl From<Refusal> for Unpublished {
    fn from(refusal: Refusal) -> Unpublished {
        Unpublished::Refused(refusal)
    }
}

pub(crate) fn check(expect: Expect, live: Option<(RawItem, u64)>, hash: u64) -> Result<(), Refusal> {
    match (expect, live) {
        (Expect::Any, _) | (Expect::Absent, None) | (Expect::Present, Some(_)) => Ok(()),
        (Expect::Absent, Some(_)) => Err(Refusal::Present),
        (Expect::Present | Expect::Cas(_) | Expect::Unchanged(_), None) => Err(Refusal::Absent),
        (Expect::Cas(wire), Some((raw, _))) if raw.token(hash) == wire => Ok(()),
        (Expect::Unchanged(was), Some((raw, at))) if seen(raw, at, hash) == was => Ok(()),
        (Expect::Cas(_) | Expect::Unchanged(_), Some(_)) => Err(Refusal::Changed),
    }
}

impl Attributes {
    pub(crate) fn marks(&self) -> u64 {
        let mark = |set, bit| if set { bit } else { 0 };
        mark(self.key_binary, KEY_BINARY) | mark(self.stale, STALE) | mark(self.token_sent, TOKEN_SENT)
    }

    /// The shape of an item with these attributes. Large items always have expiry and extension:
    /// copying one later to add them would cost more.
    #[inline]
    pub(crate) fn shape(&self, key: &Key<'_>, value_bytes: u64, extension: bool) -> Shape {
        let shape = Shape::new(
            key.bytes.len(),
            value_bytes,
            self.flags,
            self.expires_at != 0,
            self.cas.is_some() || extension || key.number != 0,
        );
        if shape.large() { Shape::new(key.bytes.len(), value_bytes, self.flags, true, true) } else { shape }
    }
}

impl Store {
    /// Takes back what `charge_key` counted.
    #[cold]
    fn uncharge_key(&self, key_bytes: usize) {
        let bytes = key_heap_bytes(key_bytes);
        self.key_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.arena.charge(-(bytes as i64));
    }
}

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
    fn flushed(&self, location: u64, was: u8, now: u8) -> bool {
        self.store.flushes.took_all(was, now).unwrap_or_else(|| {
            // SAFETY: reachable until its slot is cleared, in this epoch.
            let raw = unsafe { RawItem::new(self.store.arena.at(location)) };
            self.store.flushes.took(was, now, raw.number(raw.header()))
        })
    }
    fn discard(&mut self, location: u64) {
        // SAFETY: reachable until a moment ago, in this epoch.
        let raw = unsafe { RawItem::new(self.store.arena.at(location)) };
        self.store.flushes.collected(raw.number(raw.header()));
        self.local.drop_item(self.store, location);
    }
    fn tag(&self) -> u64 {
        self.store.epochs.tag()
    }
    fn batches_over(&self, tag: u64) -> bool {
        self.store.world.batches_over(tag)
    }
}

impl Guard<'_> {
    /// Stores `value` under `key` if `expect` holds.
    ///
    /// # Errors
    /// What was expected and was not so, or [`Refusal::NoMemory`].
    #[inline]
    pub fn store_value(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        attributes: &Attributes,
        expect: Expect,
    ) -> Result<Stored, Refusal> {
        self.local.breathe(self.store);
        self.check_first(key, expect)?;
        let mut extension = false;
        loop {
            let shape = attributes.shape(key, value.len() as u64, extension);
            let published = if shape.large() {
                let mut upload = self.upload(key, value.len() as u64, attributes)?;
                self.upload_fill(&mut upload, value)?;
                return self.publish(upload, expect);
            } else {
                let draft = self.draft_whole(key, &shape, attributes)?;
                // SAFETY: the chunk is this worker's and holds the shape, value included.
                unsafe {
                    self.draft_value(draft, &shape).copy_from_nonoverlapping(value.as_ptr(), value.len())
                };
                self.publish_draft(key, draft, Token::Next(attributes.cas), expect)
            };
            match published {
                Ok(stored) => return Ok(stored),
                Err(Unpublished::Refused(refusal)) => return Err(refusal),
                Err(Unpublished::NeedsExtension) => extension = true,
            }
        }
    }

    /// Removes the item. `expect`: `Present`, `Cas` or `Unchanged`.
    ///
    /// # Errors
    /// What was expected and was not so.
    pub fn delete(&mut self, key: &Key<'_>, expect: Expect) -> Result<(), Refusal> {
        self.remove(key, expect).map(drop)
    }

    /// As [`Guard::delete`]; the slab class of what was there, as [`crate::Item::class`] says it.
    ///
    /// # Errors
    /// What was expected and was not so.
    pub fn remove(&mut self, key: &Key<'_>, expect: Expect) -> Result<u8, Refusal> {
        self.local.breathe(self.store);
        self.with_live(key, |guard, locked, found, raw| {
            check(expect, Some((raw, found.slot.location())), key.hash)?;
            let class = class_of(&guard.store.arena, raw.header(), found.slot.location());
            guard.store.touched(locked, key);
            guard.local.unlink(guard.store, locked, found);
            Ok(class.0)
        })
    }

    /// Removes the item if `holds` says so of its expiry (0: never); whether it did.
    ///
    /// # Errors
    /// [`Refusal::Absent`].
    pub fn delete_if(&mut self, key: &Key<'_>, holds: impl Fn(Millis) -> bool) -> Result<bool, Refusal> {
        self.local.breathe(self.store);
        self.with_live(key, |guard, locked, found, raw| {
            let held = holds(raw.expires_at());
            if held {
                guard.store.touched(locked, key);
                guard.local.unlink(guard.store, locked, found);
            }
            Ok(held)
        })
    }

    /// Sets the expiry (0: never). The token does not change.
    ///
    /// # Errors
    /// [`Refusal::Absent`], [`Refusal::NoMemory`].
    pub fn touch(&mut self, key: &Key<'_>, expires_at: Millis) -> Result<(), Refusal> {
        self.touch_if(key, expires_at, |_| true).map(|_| ())
    }

    /// As [`Guard::touch`], if `holds` says so of the expiry that the item has; whether it did.
    ///
    /// # Errors
    /// As [`Guard::touch`].
    pub fn touch_if(
        &mut self,
        key: &Key<'_>,
        expires_at: Millis,
        holds: impl Fn(Millis) -> bool,
    ) -> Result<bool, Refusal> {
        loop {
            let store = self.store;
            let set = self.with_live(key, |_, locked, found, raw| {
                if !holds(raw.expires_at()) {
                    return Ok(Ok(false));
                }
                if raw.header().has(EXPIRY) {
                    set_expiry(store, raw, found, expires_at);
                } else if expires_at != 0 {
                    return Ok(Err(seen(raw, found.slot.location(), key.hash)));
                }
                store.touched(locked, key);
                locked.control = locked.control.written();
                Ok(Ok(true))
            })?;
            match set {
                Ok(held) => return Ok(held),
                Err(was) => self.reshape(key, was)?,
            }
        }
    }

    /// Marks the item stale, clears its token-sent mark, gives it the next version (or `cas`) and,
    /// if told, a new expiry.
    ///
    /// # Errors
    /// What was expected and was not so, or [`Refusal::NoMemory`].
    pub fn invalidate(
        &mut self,
        key: &Key<'_>,
        cas: Option<u64>,
        expires_at: Option<Millis>,
        expect: Expect,
    ) -> Result<Stored, Refusal> {
        loop {
            let store = self.store;
            let done = self.with_live(key, |_, locked, found, raw| {
                let location = found.slot.location();
                check(expect, Some((raw, location)), key.hash)?;
                let writes = locked.control.writes() + 1;
                let explicit = explicit_token(writes, cas, key.hash);
                let lacks_expiry = expires_at.is_some_and(|at| at != 0) && !raw.header().has(EXPIRY);
                if lacks_expiry || explicit.is_some() && !raw.has_extension() {
                    return Ok(Err(seen(raw, location, key.hash)));
                }
                if let Some(at) = expires_at
                    && raw.header().has(EXPIRY)
                {
                    set_expiry(store, raw, found, at);
                }
                raw.set_token(writes, explicit, (STALE | TOKEN_SENT, STALE));
                store.touched(locked, key);
                locked.control = locked.control.written();
                Ok(Ok(Stored { cas: raw.token(key.hash), replaced: true }))
            })?;
            match done {
                Ok(stored) => return Ok(stored),
                Err(was) => self.reshape(key, was)?,
            }
        }
    }

    /// Sets the token-sent mark; true for the one caller that set it.
    pub fn claim_token(&mut self, key: &Key<'_>, was: Seen) -> bool {
        self.with_live(key, |_, locked, found, raw| {
            // A copy of the same version, moved meanwhile, is what was seen.
            let is = seen(raw, found.slot.location(), key.hash);
            if raw.header().has(TOKEN_SENT) || (is.version, is.token) != (was.version, was.token) {
                return Err(Refusal::Changed);
            }
            raw.mark(TOKEN_SENT);
            locked.control = locked.control.written();
            Ok(())
        })
        .is_ok()
    }

    /// Copies the item into a shape with expiry and extension, token unchanged. Whoever changed it
    /// meanwhile did what was wanted or has to be looked at anew: that is no error.
    fn reshape(&mut self, key: &Key<'_>, was: Seen) -> Result<(), Refusal> {
        let mut copy = std::mem::take(&mut self.local.copy);
        let done = self.reshape_through(key, was, &mut copy);
        self.local.copy = copy;
        match done {
            Err(Refusal::NoMemory) => Err(Refusal::NoMemory),
            _ => Ok(()),
        }
    }

    /// [`Guard::reshape`] with room for a copy of the value.
    fn reshape_through(&mut self, key: &Key<'_>, was: Seen, copy: &mut Vec<u8>) -> Result<Stored, Refusal> {
        let Lookup::Hit(item) = self.peek(key) else { return Err(Refusal::Absent) };
        if item.seen() != was {
            return Err(Refusal::Changed);
        }
        let Value::Whole(value) = item.value() else { unreachable!("a large item has all words") };
        copy.clear();
        copy.extend_from_slice(value);
        let attributes = Attributes {
            flags: item.flags(),
            expires_at: item.expires_at(),
            cas: None,
            key_binary: item.key_binary(),
            stale: item.stale(),
            token_sent: item.token_sent(),
        };
        let keep = Token::Keep { version: item.raw.header().version(), explicit: item.raw.explicit() };
        // With its new words it may be too long for one chunk.
        let shape = Shape::new(key.bytes.len(), copy.len() as u64, attributes.flags, true, true);
        let mut upload = self.start(key, shape, &attributes)?;
        self.upload_fill(&mut upload, copy)?;
        self.publish_upload(upload, keep, Expect::Unchanged(was))
    }

    /// Looks at a condition before anything is spent on the write.
    #[inline]
    fn check_first(&mut self, key: &Key<'_>, expect: Expect) -> Result<(), Refusal> {
        if expect == Expect::Any {
            return Ok(());
        }
        let live = match self.store.find(key) {
            Find::Item(found, raw) if !raw.expired(self.now) => Some((raw, found.slot.location())),
            Find::Item(..) | Find::Nothing => None,
            Find::Unclean => self.peek(key).hit().map(|item| (item.raw, item.slot.location())),
        };
        check(expect, live, key.hash)
    }

    /// Runs `f` on the live item under its home's lock.
    pub(crate) fn with_live<R>(
        &mut self,
        key: &Key<'_>,
        f: impl FnOnce(&mut Self, &mut Locked<'_>, &Found<'_>, RawItem) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let store = self.store;
        let mut locked = self.lock_clean(key.hash);
        let found = store.index.scan(&locked.place, locked.control, |slot| store.is_at(slot, key));
        let done = match found {
            None => Err(Refusal::Absent),
            Some(found) => {
                // SAFETY: reachable in this epoch.
                let raw = unsafe { RawItem::new(store.arena.at(found.slot.location())) };
                if raw.expired(self.now) {
                    self.local.count_reason(store, raw, found.slot, self.now_s, Reason::Expired);
                    self.local.unlink(store, &mut locked, &found);
                    Err(Refusal::Absent)
                } else {
                    f(self, &mut locked, &found, raw)
                }
            }
        };
        locked.home.unlock(locked.control);
        done
    }

    /// Locks a home bucket that has nothing flushed in it.
    pub(crate) fn lock_clean<'s>(&mut self, hash: u64) -> Locked<'s>
    where
        Self: 's,
    {
        // The store outlives the guard, which outlives what is locked through it.
        let store: &'s Store = self.store;
        loop {
            let locked = self.local.lock(store, hash);
            // In a transaction a flush since its beginning comes after it.
            if locked.control.passes(store.gate()) || locked.control.held() {
                return locked;
            }
            locked.home.unlock(locked.control);
            self.clean(hash);
        }
    }

    /// Takes what was flushed out of the segment of a hash.
    #[cold]
    pub(crate) fn clean(&mut self, hash: u64) {
        let store = self.store;
        self.local.between_transactions(store, usize::MAX, |local| {
            store.index.clean(&store.arena, hash, store.stamp(), &mut Rebuild { store, local })
        });
        self.local.breathe(store);
    }

    /// A chunk with everything but the value.
    #[inline]
    fn draft_whole(
        &mut self,
        key: &Key<'_>,
        shape: &Shape,
        attributes: &Attributes,
    ) -> Result<Draft, Refusal> {
        self.draft_marked(key, shape, attributes, attributes.marks())
    }

    #[inline]
    pub(crate) fn draft_marked(
        &mut self,
        key: &Key<'_>,
        shape: &Shape,
        attributes: &Attributes,
        marks: u64,
    ) -> Result<Draft, Refusal> {
        let large = shape.large();
        if key.bytes.len() > KEY_LONG_BYTES {
            self.charge_key(key.bytes.len())?;
        }
        let bytes = if large { crate::large::head_chunk_bytes(shape) } else { shape.whole_bytes() as usize };
        let class = ClassId::of(bytes);
        let Some(chunk) = self.local.allocate(self.store, class, bytes) else {
            self.store.uncharge_key(key.bytes.len());
            return Err(Refusal::NoMemory);
        };
        let marks = if large { marks | DRAFT_LARGE } else { marks };
        // SAFETY: the chunk is this worker's and its class holds the shape.
        unsafe {
            let raw = RawItem::new(self.store.arena.at(chunk));
            raw.write_draft(shape, key.bytes, key.number, marks, attributes.flags, attributes.expires_at);
            if large {
                crate::large::Large::init(raw, shape);
            }
        }
        Ok(Draft { chunk, large })
    }

    /// Counts a key that will be on the heap.
    #[cold]
    fn charge_key(&mut self, key_bytes: usize) -> Result<(), Refusal> {
        if key_bytes > KEY_BYTES_MAX {
            return Err(Refusal::NoMemory);
        }
        let store = self.store;
        let bytes = key_heap_bytes(key_bytes) as u64;
        let max = store.arena.limit_bytes() / KEY_SHARE;
        if store.key_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > max {
            store.key_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Refusal::NoMemory);
        }
        store.arena.charge(bytes as i64);
        Ok(())
    }

    #[inline]
    fn draft_value(&self, draft: Draft, shape: &Shape) -> *mut u8 {
        // SAFETY: the draft's chunk is this worker's.
        unsafe { RawItem::new(self.store.arena.at(draft.chunk)) }.draft_value(shape)
    }

    /// Publishes a draft if `expect` holds; its memory is given back if not.
    pub(crate) fn publish_draft(
        &mut self,
        key: &Key<'_>,
        draft: Draft,
        keep: Token,
        expect: Expect,
    ) -> Result<Stored, Unpublished> {
        let store = self.store;
        // SAFETY: the draft is this worker's.
        let raw = unsafe { RawItem::new(store.arena.at(draft.chunk)) };
        let class = if draft.large {
            ClassId::of(CHUNK_BYTES_MAX)
        } else {
            class_of(&store.arena, raw.header(), draft.chunk)
        };
        let mut probation = None;
        loop {
            let mut locked = self.lock_clean(key.hash);
            let found = store.index.scan(&locked.place, locked.control, |slot| store.is_at(slot, key));
            let old = found.map(|found| {
                // SAFETY: reachable in this epoch.
                (found, unsafe { RawItem::new(store.arena.at(found.slot.location())) })
            });
            let live = old.filter(|(_, raw)| !raw.expired(self.now));
            if let Err(refusal) = check(expect, live.map(|(f, raw)| (raw, f.slot.location())), key.hash) {
                locked.home.unlock(locked.control);
                self.local.free_unseen(store, draft.chunk);
                return Err(refusal.into());
            }
            let writes = locked.control.writes() + 1;
            let (version, explicit) = match keep {
                Token::Keep { version, explicit } => {
                    (u64::from(version), (explicit != 0).then_some(explicit))
                }
                Token::Next(cas) => (writes, explicit_token(writes, cas, key.hash)),
            };
            if explicit.is_some() && !raw.has_extension() {
                locked.home.unlock(locked.control);
                self.local.free_unseen(store, draft.chunk);
                return Err(Unpublished::NeedsExtension);
            }
            raw.publish(version, explicit, if draft.large { Kind::Large } else { Kind::Whole });
            if let (Token::Keep { .. }, Some((_, old))) = (keep, &old)
                && old.header().has(FETCHED)
            {
                raw.mark(FETCHED);
            }
            let code = access::encode(self.now_s);
            match &old {
                Some((found, old_raw)) => {
                    let was = found.slot;
                    if live.is_none() {
                        self.local.count_reason(store, *old_raw, was, self.now_s, Reason::Expired);
                    }
                    found.bucket.replace(found.i, was.with_location(draft.chunk).with_access(code));
                    self.local.drop_item(store, was.location());
                }
                None => {
                    let new = *probation.get_or_insert_with(|| {
                        let bytes = if draft.large {
                            // SAFETY: the draft is this worker's, a large one.
                            unsafe { Large::of(raw) }.head().value_bytes
                        } else {
                            class.chunk_bytes() as u64
                        };
                        self.local.starts_on_probation(store, class, key.hash, bytes)
                    });
                    let slot = Slot::new(locked.place.tag, draft.chunk, code, new);
                    if !store.index.insert(&mut locked, slot) {
                        let meta = Index::meta(&locked);
                        locked.home.unlock(locked.control);
                        if !self.make_room(key.hash, meta) {
                            self.local.free_unseen(store, draft.chunk);
                            return Err(Refusal::NoMemory.into());
                        }
                        continue;
                    }
                }
            }
            if matches!(keep, Token::Next(_)) {
                store.touched(&locked, key);
            }
            locked.home.unlock(locked.control.written());
            note_expiry(store, raw, draft.chunk);
            let counters = self.local.counters(store);
            counters.class(class).items.add(1);
            if key.number != 0 {
                counters.database(key.number).add(1);
            }
            // A copy of an item into another shape is no item more.
            counters.items_stored.add(i64::from(matches!(keep, Token::Next(_))));
            self.local.queue_fresh_if_many(store);
            return Ok(Stored {
                cas: explicit.unwrap_or_else(|| token(version, key.hash)),
                replaced: live.is_some(),
            });
        }
    }

    /// The index has no room for a key: grows it, or evicts a neighbour.
    #[cold]
    fn make_room(&mut self, hash: u64, meta: u64) -> bool {
        let store = self.store;
        if self.local.transaction.open
            && store.index.lock_held(&store.arena, hash).control.stamp() != store.stamp()
        {
            // A flush comes after this transaction: its segment is not cleaned while it is open.
            return self.evict_neighbour(hash);
        }
        let mut held = std::mem::take(&mut self.local.transaction.held);
        let open = self.local.transaction.open;
        // Two transactions in one segment that both want it to grow are in each other's way.
        let rounds = if open { HELD_ROUNDS_MAX } else { usize::MAX };
        let grown = self.local.between_transactions(store, rounds, |local| {
            let held = open.then_some(&mut held);
            store.index.grow(&store.arena, hash, meta, store.stamp(), held, &mut Rebuild { store, local })
        });
        self.local.transaction.held = held;
        let grown = grown.unwrap_or(Err(Full));
        match grown {
            Ok(()) => true,
            Err(Full) => store.evicts() && self.evict_neighbour(hash),
        }
    }

    /// Evicts one of the keys beside that of `hash`, when others' transactions let it.
    fn evict_neighbour(&mut self, hash: u64) -> bool {
        let store = self.store;
        let evicted = self.local.between_transactions(store, HELD_ROUNDS_MAX, |local| {
            local.evict_neighbour(store, hash).then_some(())
        });
        evicted.is_some()
    }

    /// Removes everything stored until now, at once: what it held comes free bit by bit.
    pub fn flush(&mut self) {
        self.flush_scope(None);
    }

    /// As [`Guard::flush`], of the database of this name.
    pub fn flush_database(&mut self, name: u8) {
        self.flush_scope(Some(self.store.names.word(name).number()));
    }

    fn flush_scope(&mut self, number: Option<u8>) {
        if self.store.flush_lags() {
            // Stamps are about to wrap: what an old flush left is cleaned first.
            let stamp = self.store.stamp_count();
            let mut cursor = 0;
            loop {
                self.clean(cursor);
                cursor = self.store.index.sweep(&self.store.arena, cursor, &mut |_| {});
                if cursor == 0 {
                    break;
                }
            }
            self.store.all_clean(stamp);
        }
        self.store.raise_stamp(number);
    }
}

/// Sets the expiry of a published item under its home's lock.
fn set_expiry(store: &Store, raw: RawItem, found: &Found<'_>, at: Millis) {
    raw.set_expires_at(at);
    note_expiry(store, raw, found.slot.location());
}

/// Tells the item's span when it expires; after it was published, or a visitor could overlook it.
pub(crate) fn note_expiry(store: &Store, raw: RawItem, location: u64) {
    match raw.expires_at() {
        0 => {}
        at => store.arena.note_expiry(location, at),
    }
}

/// The token to write down in the extension, if the header's version does not say it all.
pub(crate) fn explicit_token(writes: u64, cas: Option<u64>, hash: u64) -> Option<u64> {
    cas.or_else(|| (writes > u64::from(u32::MAX)).then(|| token(writes, hash)))
}
