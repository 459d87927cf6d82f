//! Writes: look, allocate, fill, publish.
//!
//! 1. The condition is looked at before anything is allocated or copied.
//! 2. A chunk is allocated and filled; no thread can see it.
//! 3. Under the home bucket's lock the condition is checked for good, and the item is published: what that takes
//!    is numbered in `write/publish.rs`, where every way of writing ends.
//!
//! Only marks, version and expiry change in place; where an item lacks the word for one of these,
//! it is first copied into a shape that has it.

mod draft;
mod publish;
mod room;
mod touch;
#[cfg(all(test, not(feature = "loom")))]
mod ways;

pub(crate) use draft::Draft;
pub(crate) use publish::{Becomes, NoPlace, Old, Over, Proved, Publication, Token, Unpublished, Version};
pub(crate) use room::{CLEAN_NS, Rebuild};

use crate::evict::Reason;
use crate::expect::check;
use crate::index::{Found, Locked};
use crate::item::RawItem;
use crate::read::Find;
use crate::worker::{Guard, class_of};
use crate::{Attributes, Expect, Key, Millis, Refusal, Store, Stored};

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
        self.local.leave_if_due(self.store);
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

    /// As [`Guard::delete`]; returns the slab class of what was there, as [`crate::Item::class`] says it.
    ///
    /// # Errors
    /// What was expected and was not so.
    pub fn remove(&mut self, key: &Key<'_>, expect: Expect) -> Result<u8, Refusal> {
        self.local.leave_if_due(self.store);
        self.with_live(key, |guard, locked, found, raw| {
            check(expect, Some((raw, found.slot.location())), key.hash)?;
            let class = class_of(&guard.store.arena, raw.header(), found.slot.location());
            guard.local.touched(guard.store, locked.control, key);
            guard.local.unlink(guard.store, locked, found);
            Ok(class.0)
        })
    }

    /// Removes the item if `holds` is true for its expiry (0: never); returns whether it did.
    ///
    /// # Errors
    /// [`Refusal::Absent`].
    pub fn delete_if(&mut self, key: &Key<'_>, holds: impl Fn(Millis) -> bool) -> Result<bool, Refusal> {
        self.local.leave_if_due(self.store);
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
            if locked.control.passes(store.gate()) || locked.control.in_transaction() {
                return locked;
            }
            locked.home.unlock(locked.control);
            // What is flushed goes with all that it has, also the tree that this write was to follow.
            let leaving = std::mem::take(&mut self.local.leaving);
            self.clean(hash);
            self.local.leaving = leaving;
        }
    }
}

/// Tells the item's span when it expires, or the first of its fields does; after it was published, or a visitor could
/// overlook it. The item is reachable in this epoch.
pub(crate) fn note_expiry(store: &Store, raw: RawItem, location: u64) {
    // SAFETY: reachable in this epoch.
    match unsafe { raw.due_at() } {
        0 => {}
        at => store.arena.note_expiry(location, at),
    }
}
