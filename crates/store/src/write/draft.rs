//! A draft: a chunk filled with everything but the value, which nobody sees yet.

use crate::class::ClassId;
use crate::item::{DRAFT_LARGE, RawItem, Shape, key_heap_bytes};
use crate::large::{Large, head_chunk_bytes};
use crate::sync::atomic::Ordering;
use crate::worker::Guard;
use crate::{Attributes, KEY_BYTES_MAX, Key, Refusal, Store};

/// Keys longer than this are looked at before they are written.
const KEY_LONG_BYTES: usize = 4 << 10;
/// Keys on the heap may take one part in this many of the memory limit.
const KEY_SHARE: u64 = 8;

/// A draft about to be published.
#[derive(Clone, Copy)]
pub(crate) struct Draft {
    pub(crate) chunk: u64,
    pub(crate) large: bool,
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
    pub(super) fn draft_value(&self, draft: Draft, shape: &Shape) -> *mut u8 {
        // SAFETY: the draft's chunk is this worker's.
        unsafe { RawItem::new(self.store.arena.at(draft.chunk)) }.draft_value(shape)
    }
}
