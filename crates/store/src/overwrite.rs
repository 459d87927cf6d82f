//! The short ways of the usual writes: the key is there, where the prefetch stages saw it, or is not there at all, and
//! nothing about it is unusual. The general way ([`crate::write`]) does the same with every case in it; all end in the
//! one publication, whose steps before it (A to D) and in it (1 to 9) `write/publish.rs` names.

use crate::bucket::Control;
use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::item::{Header, KEY_BYTES_SHORT, Kind, RawItem};
use crate::read::{Hint, same_key, seen};
use crate::worker::Guard;
use crate::write::{Becomes, NoPlace, Old, Over, Proved, Publication, Version};
use crate::{Attributes, Expect, Key, Millis, Refusal, Stored};

/// A whole item that was written but for its header, and that no thread sees.
struct Body {
    raw: RawItem,
    header: Header,
    chunk: u64,
    class: ClassId,
}

impl Body {
    /// The publication of this body: in database 0, under a lock that [`Guard::lock_hinted`] took,
    /// which has shown that the version fits its header.
    #[inline(always)]
    fn publication<'k>(&self, key: &'k Key<'k>, control: Control, expires_at: Millis) -> Publication<'k> {
        let &Body { raw, header, chunk, class } = self;
        let (becomes, version) = (Becomes::Body(header), Version::short(control));
        Publication { key, number: 0, raw, chunk, class, becomes, version, expires_at, reads: false }
    }
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
        self.local.leave_if_due(store);
        // Is it so? Nothing of this changes while the item is linked, in this epoch.
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
        // A. The new item.
        let Some(body) = self.body_plain(key, value) else { return false };
        // B. Memory may have been waited for outside the epoch: the chunk may have been freed and hold another item by
        // now, or a later one of this key.
        let Some(control) = self.lock_hinted(hint) else {
            self.give_back(&body);
            return false;
        };
        // C, D. The slot still names what was read: alive, as it never expires, and as simple as it was.
        let slot = hint.cell.slot();
        let same = slot.location() == location
            && slot.tag() == u64::from(hint.tag)
            && old.header().is_same_write(old_header);
        if !same {
            hint.home.unlock(control);
            self.give_back(&body);
            return false;
        }
        let alike = old_header.value_bytes() == value.len();
        let proved = Proved::Simple { header: old_header, alike };
        let over = Over::Item(Old { cell: hint.cell, slot, raw: old, live: true, proved });
        let new = Publication { reads: read, ..body.publication(key, control, 0) };
        self.publish_item(hint.home, control, new, over).is_ok()
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
        self.local.leave_if_due(store);
        // A. The new item.
        let Some(body) = self.body_plain(key, value) else { return false };
        // B. The home: a hint of another key names another bucket.
        let Some(control) = self.lock_hinted(hint) else {
            self.give_back(&body);
            return false;
        };
        let place = store.index.place(&store.arena, key.hash);
        // C, D. There is nothing.
        let elsewhere = !std::ptr::eq(place.home(), hint.home)
            || store.index.scan(&place, control, |slot| store.is_at(slot, key)).is_some();
        if elsewhere {
            hint.home.unlock(control);
            self.give_back(&body);
            return false;
        }
        let over = Over::Nothing { place, probation: &mut None };
        match self.publish_item(hint.home, control, body.publication(key, control, 0), over) {
            Ok(_) => true,
            Err(NoPlace { .. }) => {
                self.local.give_back(store, body.chunk);
                false
            }
        }
    }

    /// A chunk with an item without flags and expiry, which no thread sees.
    #[inline(always)]
    fn body_plain(&mut self, key: &Key<'_>, value: &[u8]) -> Option<Body> {
        let bytes = 8 + key.bytes.len() + value.len();
        let header = Header::whole(0, 0, 0, key.bytes.len(), value.len());
        self.body(key, value, header, bytes, &Attributes::default())
    }

    /// A chunk with an item of `bytes` that has this header and, as far as the header says so, these attributes.
    #[inline(always)]
    fn body(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        header: Header,
        bytes: usize,
        attributes: &Attributes,
    ) -> Option<Body> {
        let class = ClassId::of(bytes);
        let chunk = self.local.allocate(self.store, class, bytes)?;
        // SAFETY: the chunk is this worker's and its class holds the item; key and value come from
        // outside the arena.
        let raw = unsafe {
            let raw = RawItem::new(self.store.arena.at(chunk));
            raw.write_body(header, key.bytes, value, attributes.flags, attributes.expires_at);
            raw
        };
        Some(Body { raw, header, chunk, class })
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

    /// Frees what was written and not published.
    #[cold]
    fn give_back(&mut self, body: &Body) {
        body.raw.publish_header(body.header.with_kind(Kind::Draft), 0);
        self.local.free_unseen(self.store, body.chunk);
    }

    /// Overwrites the live item that the hint names; none, and nothing done, if it is not so.
    #[inline]
    pub(crate) fn overwrite(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        attributes: &Attributes,
        expect: Expect,
        hint: &Hint<'_>,
    ) -> Option<Stored> {
        let store = self.store;
        self.local.leave_if_due(store);
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
        // A. The new item.
        let body = self.body(key, value, header, bytes, attributes)?;
        // B. The home.
        let Some(control) = self.lock_hinted(hint) else {
            self.give_back(&body);
            return None;
        };
        // C, D. The slot still names this key, which is alive and at home in the bucket that is locked, and the version
        // that was seen if one was.
        let slot = hint.cell.slot();
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
            self.give_back(&body);
            return None;
        };
        let proved = Proved::Whole(old_header);
        let over = Over::Item(Old { cell: hint.cell, slot, raw: old, live: true, proved });
        let new = body.publication(key, control, attributes.expires_at);
        self.publish_item(hint.home, control, new, over).ok()
    }
}

#[cfg(all(test, not(feature = "loom")))]
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
