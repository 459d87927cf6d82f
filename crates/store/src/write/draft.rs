//! A draft: a chunk filled with everything but the value, which no thread sees yet.

use crate::class::ClassId;
use crate::item::{DRAFT_LARGE, Header, RawItem, Shape, key_heap_bytes};
use crate::large::{Large, head_chunk_bytes};
use crate::sync::atomic::Ordering;
use crate::worker::Guard;
use crate::{Attributes, KEY_BYTES_MAX, Key, Millis, Refusal, Store};

/// Keys longer than this are checked, and charged if they go to the heap.
const KEY_LONG_BYTES: usize = 4 << 10;
/// Keys on the heap may take one part in this many of the memory limit.
const KEY_SHARE: u64 = 8;

/// A draft about to be published.
#[derive(Clone, Copy)]
pub(crate) struct Draft {
    pub(crate) chunk: u64,
    pub(crate) large: bool,
    /// What collection it will be; 0 if it is a string.
    pub(crate) form: u16,
    /// When the first of its fields expires; 0 for never.
    pub(crate) soonest: Millis,
}

impl Draft {
    /// The draft of a hash: its first field expires at this time; 0: none does.
    pub(crate) fn timed(self, soonest: Millis) -> Draft {
        if soonest == 0 { self } else { Draft { form: Header::form_timed(self.form), soonest, ..self } }
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

impl Guard<'_> {
    /// A chunk with everything but the value.
    #[inline]
    pub(super) fn draft_whole(
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
        let bytes = if large { head_chunk_bytes(shape) } else { shape.whole_bytes() as usize };
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
                Large::init(raw, shape);
            }
        }
        Ok(Draft { chunk, large, form: 0, soonest: 0 })
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

    /// The place of a collection's leaf, `bytes` long.
    pub(crate) fn draft_leaf<'d>(&self, draft: &'d mut Draft, shape: &Shape, bytes: usize) -> &'d mut [u8] {
        // SAFETY: the draft's chunk belongs to this worker, which has the draft; the shape's leaf is the last in it.
        unsafe {
            let raw = RawItem::new(self.store.arena.at(draft.chunk));
            std::slice::from_raw_parts_mut(raw.draft_leaf(shape), bytes)
        }
    }

    #[inline]
    pub(super) fn draft_value(&self, draft: Draft, shape: &Shape) -> *mut u8 {
        // SAFETY: the draft's chunk is this worker's.
        unsafe { RawItem::new(self.store.arena.at(draft.chunk)) }.draft_value(shape)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use crate::{Attributes, Config, Eviction, Expect, Guard, Refusal, Store};
    use std::sync::Arc;

    const NOW: u64 = 1_700_000_000_000;
    /// More keys than a page of the index has room for.
    const KEYS: u32 = 500;

    fn store() -> Arc<Store> {
        let store = Store::new(Config { memory_bytes: 4 << 20, ..Config::default() }).unwrap();
        store.set_eviction(Eviction::Off);
        store
    }

    fn set(guard: &mut Guard<'_>, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let key = guard.key(name);
        guard.store_value(&key, value, &Attributes::default(), Expect::Any).map(drop)
    }

    /// A sweep may have seen it, and reads its key for as long as its batch lasts.
    #[test]
    fn what_was_published_and_found_no_place_waits_like_what_is_unlinked() {
        let store = store();
        let (mut worker, mut other) = (store.worker().unwrap(), store.worker().unwrap());
        let mut in_the_way = other.enter(NOW);
        let key = in_the_way.key(b"another transaction's");
        in_the_way.begin([key]);
        // The index does not grow: a bucket of its only segment is another's.
        let mut guard = worker.enter(NOW);
        let mut set_alone = |name: &[u8], value: &[u8]| {
            let key = guard.key(name);
            if store.index.place(&store.arena, key.hash).home().control().in_transaction() {
                return Ok(());
            }
            guard.begin([key]);
            let done = set(&mut guard, name, value);
            guard.finish();
            done
        };
        let refused = (0..KEYS).find(|n| set_alone(&n.to_le_bytes(), b"12345678") == Err(Refusal::NoMemory));
        let name = refused.expect("a page has 448 places").to_le_bytes();
        assert_eq!(set_alone(&name, &[1; 40_000]), Err(Refusal::NoMemory));
        assert_eq!(guard.local.limbo_chunks(), 2);
        in_the_way.finish();
        drop(in_the_way);
        set(&mut guard, &name, b"12345678").unwrap();
        drop(guard);
        drop((worker, other));
        store.check();
    }

    #[test]
    fn what_the_short_way_published_and_found_no_place_waits_too() {
        let store = store();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let places = store.index.slots();
        for n in 0..KEYS {
            let name = n.to_le_bytes();
            let key = guard.key(&name);
            let hint = guard.prefetch_bucket(&key);
            if !guard.insert_value(&key, b"12345678", &hint) {
                assert_eq!(guard.local.limbo_chunks(), 1);
                set(&mut guard, &name, b"12345678").unwrap();
                assert!(store.index.slots() > places, "there was no place");
                drop(guard);
                store.check_behind(worker);
                return;
            }
        }
        panic!("a page has {places} places");
    }
}
