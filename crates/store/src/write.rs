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

mod draft;
mod room;
mod touch;

pub(crate) use draft::Draft;
pub(crate) use room::{CLEAN_NS, Rebuild};

use crate::access;
use crate::bucket::Slot;
use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::evict::Reason;
use crate::expect::check;
use crate::index::{Found, Index, Locked};
use crate::item::{FETCHED, Kind, RawItem, token};
use crate::large::Large;
use crate::read::Find;
use crate::worker::{Guard, class_of};
use crate::{Attributes, Expect, Key, Millis, Refusal, Store, Stored};

/// What a publication does to the token.
#[derive(Clone, Copy)]
pub(crate) enum Token {
    /// The bucket's next version, or the one given.
    Next(Option<u64>),
    /// The item is a copy of the one it replaces: same version, same explicit token.
    Keep { version: u32, explicit: u64 },
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
                let mut upload = self.compose(key, value.len() as u64, attributes)?;
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
            guard.local.touched(guard.store, locked.control, key);
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
                guard.local.touched(guard.store, locked.control, key);
                guard.local.unlink(guard.store, locked, found);
            }
            Ok(held)
        })
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
            // What is flushed goes with all that it has, also the tree that this write was to follow.
            let leaving = std::mem::take(&mut self.local.leaving);
            self.clean(hash);
            self.local.leaving = leaving;
        }
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
                self.local.give_back(store, draft.chunk);
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
                self.local.give_back(store, draft.chunk);
                return Err(Unpublished::NeedsExtension);
            }
            match draft.form {
                0 => raw.publish(version, explicit, if draft.large { Kind::Large } else { Kind::Whole }),
                form => raw.publish_collection(version, explicit, form),
            }
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
                    found.bucket.replace(found.i, was.overwritten(draft.chunk).with_access(code));
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
                            self.local.give_back(store, draft.chunk);
                            return Err(Refusal::NoMemory.into());
                        }
                        continue;
                    }
                    self.counters.recent.note(key.number, key.hash);
                }
            }
            if matches!(keep, Token::Next(_)) {
                self.local.touched(store, locked.control, key);
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
