//! The short way of the usual `set`: the key is there, where the prefetch stages saw it, or is not there
//! at all, and nothing about it is unusual. The general way ([`crate::write`]) does the same with every
//! case in it.

use crate::access;
use crate::arena::Arena;
use crate::bucket::{Control, FREQUENCY_MAX, Slot};
use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::index::Locked;
use crate::item::{Header, KEY_BYTES_SHORT, Kind, RawItem, token};
use crate::read::{Hint, same_key, seen};
use crate::sync::atomic::Ordering;
use crate::worker::Guard;
use crate::{Attributes, Expect, Key, Refusal, Stored};

/// A whole item that was written and that nobody sees.
struct Draft {
    raw: RawItem,
    header: Header,
    chunk: u64,
    class: ClassId,
}

impl Guard<'_> {
    /// As [`Guard::store_value`], looking first where the prefetch stages of this batch have looked.
    ///
    /// # Errors
    /// As for [`Guard::store_value`].
    #[inline]
    pub fn store_value_hinted(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        attributes: &Attributes,
        expect: Expect,
        hint: &Hint<'_>,
    ) -> Result<Stored, Refusal> {
        if hint.is_of(self.mark)
            && !hint.slot.is_empty()
            && matches!(expect, Expect::Any | Expect::Unchanged(_))
            && attributes.cas.is_none()
            && let Some(stored) = self.overwrite(key, value, attributes, expect, hint)
        {
            return Ok(stored);
        }
        self.store_value(key, value, attributes, expect)
    }

    /// Stores `value` without flags and expiry over a live item that has neither, which the hint names.
    /// False, and nothing done, if it is not so: ask [`Guard::store_value`].
    #[inline(always)]
    pub fn replace_value(&mut self, key: &Key<'_>, value: &[u8], hint: &Hint<'_>) -> bool {
        self.replace_with(key, hint, false, |_| Some(value))
    }

    /// As [`Guard::replace_value`], with a value made of the one that is there, as one step; `make` may
    /// decline. `read`: this is a use of the item, too, and counts as one.
    #[inline(always)]
    pub fn replace_with<V: AsRef<[u8]>>(
        &mut self,
        key: &Key<'_>,
        hint: &Hint<'_>,
        read: bool,
        make: impl FnOnce(&[u8]) -> Option<V>,
    ) -> bool {
        let store = self.store;
        let key_bytes = key.bytes.len();
        if !hint.is_of_main(self.mark, key) || hint.slot.is_empty() {
            return false;
        }
        self.local.breathe(store);
        // 1. Is it so? Nothing of this changes while the item is linked, in this epoch.
        let location = hint.cell.slot().location();
        if location == 0 {
            return false;
        }
        // SAFETY: a slot read in this epoch names an item that stays until the epoch is over.
        let (old, old_header, old_value) = unsafe {
            let old = RawItem::new(store.arena.at(location));
            let header = old.header();
            if !header.is_simple(key_bytes) {
                return false;
            }
            let (its_key, value) = old.plain(header, key_bytes);
            if !same_key(its_key, key.bytes) {
                return false;
            }
            (old, header, value)
        };
        let Some(made) = make(old_value) else { return false };
        let value = made.as_ref();
        let bytes = 8 + key_bytes + value.len();
        if bytes > CHUNK_BYTES_MAX {
            return false;
        }
        // 2. The new item, which nobody sees.
        let Some(draft) = self.draft_plain(key, value) else { return false };
        // 3. In its place, if the slot still names what was read. Memory may have been waited for outside the
        // epoch: the chunk may have been freed and hold another item by now, or a later one of this key.
        let Some(control) = self.lock_hinted(hint) else {
            self.give_back(&draft);
            return false;
        };
        let slot = hint.cell.slot();
        let same = slot.location() == location
            && slot.tag() == u64::from(hint.tag)
            && old.header().is_same_write(old_header);
        if !same {
            hint.home.unlock(control);
            self.give_back(&draft);
            return false;
        }
        draft.raw.publish_header(draft.header, control.writes() + 1);
        let mut new = slot.overwritten(draft.chunk).with_access(access::encode(self.now_s));
        if read {
            new = new.with_frequency((slot.frequency() + 1).min(FREQUENCY_MAX));
        }
        hint.cell.replace(new);
        self.local.touched(store, control, key);
        hint.home.unlock(control.written());
        // 4. The old item waits until nobody sees it.
        let old_bytes = 8 + key_bytes + old_header.value_bytes();
        let old_class = if old_bytes == bytes { draft.class } else { ClassId::of(old_bytes) };
        self.local.retire_whole(old, old_header, location, old_class, old_bytes);
        self.count_overwrite(old_class, draft.class);
        true
    }

    /// Stores `value` without flags and expiry under a key that is not there, as the hint says. False, and
    /// nothing done, if it is not so, or not simply done: ask [`Guard::store_value`].
    #[inline]
    pub fn insert_value(&mut self, key: &Key<'_>, value: &[u8], hint: &Hint<'_>) -> bool {
        let store = self.store;
        if !hint.is_of_main(self.mark, key)
            || !hint.slot.is_empty()
            || key.bytes.len() > KEY_BYTES_SHORT
            || 8 + key.bytes.len() + value.len() > CHUNK_BYTES_MAX
        {
            return false;
        }
        self.local.breathe(store);
        let Some(draft) = self.draft_plain(key, value) else { return false };
        let Some(control) = self.lock_hinted(hint) else {
            self.give_back(&draft);
            return false;
        };
        let mut locked =
            Locked { place: store.index.place(&store.arena, key.hash), home: hint.home, control };
        // A hint of another key names another bucket.
        let elsewhere = !std::ptr::eq(locked.place.home(), hint.home)
            || store.index.scan(&locked.place, locked.control, |slot| store.is_at(slot, key)).is_some();
        if elsewhere {
            hint.home.unlock(locked.control);
            self.give_back(&draft);
            return false;
        }
        let version = locked.control.writes() + 1;
        draft.raw.publish_header(draft.header, version);
        let bytes = draft.class.chunk_bytes() as u64;
        let probation = self.local.starts_on_probation(store, draft.class, key.hash, bytes);
        let slot = Slot::new(locked.place.tag, draft.chunk, access::encode(self.now_s), probation);
        if !store.index.insert(&mut locked, slot) {
            hint.home.unlock(locked.control);
            // A sweep may have seen it by now.
            self.local.give_back(store, draft.chunk);
            return false;
        }
        self.local.touched(store, locked.control, key);
        hint.home.unlock(locked.control.written());
        self.counters.class(draft.class).items.add(1);
        self.counters.items_stored.add(1);
        self.counters.recent.note(0, key.hash);
        self.local.queue_fresh_if_many(store);
        true
    }

    /// A chunk with an item without flags and expiry, which nobody sees.
    #[inline(always)]
    fn draft_plain(&mut self, key: &Key<'_>, value: &[u8]) -> Option<Draft> {
        let bytes = 8 + key.bytes.len() + value.len();
        let class = ClassId::of(bytes);
        let chunk = self.local.allocate(self.store, class, bytes)?;
        let header = Header::whole(0, 0, 0, key.bytes.len(), value.len());
        // SAFETY: the chunk is this worker's and its class holds the item; key and value come from
        // outside the arena.
        let raw = unsafe {
            let raw = RawItem::new(self.store.arena.at(chunk));
            raw.write_body(header, key.bytes, value, 0, 0);
            raw
        };
        Some(Draft { raw, header, chunk, class })
    }

    /// Locks the bucket that was the hint's key's home, if it is still (only its holder moves the key's slot, so a
    /// slot that names the key is where the key is), nothing there was flushed, and the next token fits a header.
    #[inline(always)]
    fn lock_hinted(&self, hint: &Hint<'_>) -> Option<Control> {
        // Instructions that lock a line wait for all that are under way.
        let control = if self.alone { hint.home.lock_alone()? } else { hint.home.lock_open()? };
        if !control.passes_once_more(self.store.index.gate.since(self.layout)) {
            hint.home.unlock(control);
            return None;
        }
        Some(control)
    }

    /// An item of class `new` has taken the place of one of class `old`.
    #[inline(always)]
    fn count_overwrite(&self, old: ClassId, new: ClassId) {
        if old != new {
            self.counters.class(old).items.add(-1);
            self.counters.class(new).items.add(1);
        }
        self.counters.items_stored.add(1);
    }

    /// Frees what was written and not published.
    #[cold]
    fn give_back(&mut self, draft: &Draft) {
        draft.raw.publish_header(draft.header.with_kind(Kind::Draft), 0);
        self.local.free_unseen(self.store, draft.chunk);
    }

    /// Overwrites the live item that the hint names; none, and nothing done, if it is not so.
    #[inline]
    fn overwrite(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        attributes: &Attributes,
        expect: Expect,
        hint: &Hint<'_>,
    ) -> Option<Stored> {
        let store = self.store;
        self.local.breathe(store);
        let header = Header::whole(
            attributes.marks(),
            attributes.flags,
            attributes.expires_at,
            key.bytes.len(),
            value.len(),
        );
        let bytes = header.body_offset() + key.bytes.len() + value.len();
        if key.number != 0 || key.bytes.len() > KEY_BYTES_SHORT || bytes > CHUNK_BYTES_MAX {
            return None;
        }
        let new_class = ClassId::of(bytes);
        let chunk = self.local.allocate(store, new_class, bytes)?;
        // SAFETY: the chunk is this worker's and its class holds the item; key and value come from
        // outside the arena.
        let raw = unsafe {
            let raw = RawItem::new(store.arena.at(chunk));
            raw.write_body(header, key.bytes, value, attributes.flags, attributes.expires_at);
            raw
        };
        let draft = Draft { raw, header, chunk, class: new_class };

        let Some(control) = self.lock_hinted(hint) else {
            self.give_back(&draft);
            return None;
        };
        let slot = hint.cell.slot();
        let writes = control.writes() + 1;
        // The slot still names this key, which is alive and at home in the bucket that is locked, and the version that
        // was seen if one was.
        let old = (!slot.is_empty() && slot.tag() == u64::from(hint.tag))
            .then(|| store.item_at(slot, key))
            .flatten()
            .filter(|&(old, header)| header.is_whole() && !old.expired_by(header, self.now))
            .filter(|&(old, _)| match expect {
                Expect::Unchanged(was) => seen(old, slot.location(), key.hash) == was,
                _ => true,
            });
        let Some((old, old_header)) = old else {
            hint.home.unlock(control);
            self.give_back(&draft);
            return None;
        };
        raw.publish_header(header, writes);
        let code = access::encode(self.now_s);
        hint.cell.replace(slot.overwritten(chunk).with_access(code));
        self.local.touched(store, control, key);
        hint.home.unlock(control.written());
        if attributes.expires_at != 0 {
            store.arena.note_expiry(chunk, attributes.expires_at);
        }

        let location = slot.location();
        let class = ClassId(store.arena.span(Arena::span_of(location)).owner.load(Ordering::Relaxed));
        self.local.retire_whole(old, old_header, location, class, old.whole_bytes_by(old_header));
        self.count_overwrite(class, new_class);
        Some(Stored { cas: token(writes, key.hash), replaced: true })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Config, Store, Worker};
    use std::ptr;

    const NOW: u64 = 1_700_000_000_000;

    fn insert(worker: &mut Worker, names: std::ops::Range<u32>) {
        let mut guard = worker.enter(NOW);
        for n in names {
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, b"v", &Attributes::default(), Expect::Absent).unwrap();
        }
    }

    #[test]
    fn a_hint_from_before_a_growth_locks_no_bucket() {
        let store = Store::new(Config { workers_max: 2, ..Config::default() }).unwrap();
        let (mut early, mut grower) = (store.worker().unwrap(), store.worker().unwrap());
        insert(&mut grower, 0..200);
        let guard = early.enter(NOW);
        let names: Vec<[u8; 4]> = (0..400u32).map(u32::to_be_bytes).collect();
        let keys: Vec<Key<'_>> = names.iter().map(|name| guard.key(name)).collect();
        let hints: Vec<Hint<'_>> = keys.iter().map(|key| guard.prefetch_bucket(key)).collect();
        insert(&mut grower, 400..4_000);
        let homes = keys.iter().map(|key| store.index.place(&store.arena, key.hash).home());
        let moved = homes.zip(&hints).filter(|(home, hint)| !ptr::eq(*home, hint.home)).count();
        assert!(moved > 100, "{moved} keys are at home elsewhere");
        assert!(hints.iter().all(|hint| guard.lock_hinted(hint).is_none()));
    }

    /// A key's home moves between the stages of a batch that reads it. The last stage then finds the key's slot
    /// by the new place, while the bucket in which the reader looks for a transaction is the old one.
    #[test]
    fn a_hint_from_before_a_growth_reads_nothing_beside_a_transaction() {
        let store = Store::new(Config { workers_max: 3, ..Config::default() }).unwrap();
        let mut workers = [(); 3].map(|()| store.worker().unwrap());
        let [early, grower, writer] = &mut workers;
        let mut found = 0;
        for round in 0..30 {
            // Mostly the index grows somewhere in a round.
            let old = round * 1_000;
            insert(grower, old..old + 500);
            let mut guard = early.enter(NOW);
            let names: Vec<[u8; 4]> = (0..old).map(u32::to_be_bytes).collect();
            let keys: Vec<Key<'_>> = names.iter().map(|name| guard.key(name)).collect();
            let mut hints: Vec<Hint<'_>> = keys.iter().map(|key| guard.prefetch_bucket(key)).collect();
            insert(grower, old + 500..old + 1_000);
            for (key, hint) in keys.iter().zip(&mut hints) {
                if guard.prefetch_item(key, hint) {
                    guard.prefetch_again(key, hint);
                }
                let named = !hint.slot.is_empty() && store.item_at(hint.slot, key).is_some();
                if named && !ptr::eq(store.index.place(&store.arena, key.hash).home(), hint.home) {
                    found += 1;
                    let mut writing = writer.enter(NOW);
                    let its = writing.key(key.bytes);
                    writing.begin([its]);
                    let seen = guard.hinted_slot(hint);
                    writing.finish();
                    assert_eq!(seen, None, "its transaction has begun");
                }
            }
            for (key, hint) in keys.iter().zip(&hints) {
                assert!(guard.get_hinted(key, hint).hit().is_some());
            }
        }
        assert!(found > 10, "{found} keys were found by their new place, and the hint names their old home");
    }
}
