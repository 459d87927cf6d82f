//! The short way of the usual `set`: the key is there, where the prefetch stages saw it, and nothing
//! about it is unusual. The general way ([`crate::write`]) does the same with every case in it.

use crate::access;
use crate::arena::Arena;
use crate::class::ClassId;
use crate::item::{Kind, RawItem, token};
use crate::read::Hint;
use crate::worker::Guard;
use crate::{Attributes, Expect, Key, Refusal, Stored};
use std::sync::atomic::Ordering;

/// Copies `bytes` to `to`: short ones as two overlapping blocks, without a call.
///
/// # Safety
/// `to` has room for `bytes`, which lie elsewhere.
#[inline(always)]
unsafe fn copy(bytes: &[u8], to: *mut u8) {
    let (from, n) = (bytes.as_ptr(), bytes.len());
    // SAFETY: both blocks are inside both ranges, which the caller says do not overlap.
    unsafe {
        if !(8..=64).contains(&n) {
            to.copy_from_nonoverlapping(from, n);
        } else if n > 32 {
            to.cast::<[u8; 32]>().write_unaligned(from.cast::<[u8; 32]>().read_unaligned());
            to.add(n - 32)
                .cast::<[u8; 32]>()
                .write_unaligned(from.add(n - 32).cast::<[u8; 32]>().read_unaligned());
        } else if n > 16 {
            to.cast::<u128>().write_unaligned(from.cast::<u128>().read_unaligned());
            to.add(n - 16).cast::<u128>().write_unaligned(from.add(n - 16).cast::<u128>().read_unaligned());
        } else {
            to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
            to.add(n - 8).cast::<u64>().write_unaligned(from.add(n - 8).cast::<u64>().read_unaligned());
        }
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
        if hint.known()
            && expect == Expect::Any
            && attributes.cas.is_none()
            && let Some(stored) = self.overwrite(key, value, attributes, hint)
        {
            return Ok(stored);
        }
        self.store_value(key, value, attributes, expect)
    }

    /// Overwrites the live item that the hint names; none, and nothing done, if it is not so.
    #[inline]
    fn overwrite(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        attributes: &Attributes,
        hint: &Hint<'_>,
    ) -> Option<Stored> {
        let store = self.store;
        self.local.breathe(store);
        let shape = attributes.shape(key.bytes, value.len() as u64, false);
        if shape.large() {
            return None;
        }
        let bytes = shape.whole_bytes() as usize;
        let chunk = self.local.allocate(store, self.now_s, ClassId::of(bytes), bytes)?;
        // SAFETY: the chunk is this worker's and its class holds the shape; key and value come from
        // outside the arena.
        let raw = unsafe {
            let raw = RawItem::new(store.arena.at(chunk));
            raw.write_draft(&shape, key.bytes, attributes.marks(), attributes.flags, attributes.expires_at);
            copy(value, raw.draft_value(&shape));
            raw
        };

        let control = hint.home.lock();
        let slot = hint.bucket.slot(usize::from(hint.slot));
        let writes = control.writes() + 1;
        // 1. The hint's buckets are still this key's. 2. Nothing there was flushed. 3. The token fits
        // the header. 4. The slot still names this key, which is alive.
        let old = (store.index.holds(&hint.place)
            && control.stamp() == store.stamp()
            && writes <= u64::from(u32::MAX)
            && !slot.is_empty())
        .then(|| store.item_at(slot, key.bytes))
        .flatten()
        .filter(|&(old, header)| header.kind() == Kind::Whole && !old.expired_by(header, self.now));
        let Some((old, header)) = old else {
            hint.home.unlock(control);
            self.local.free_unseen(store, chunk);
            return None;
        };
        raw.publish(writes, None, Kind::Whole);
        let code = access::encode(self.now_s);
        hint.bucket.replace(usize::from(hint.slot), slot.with_location(chunk).with_access(code));
        hint.home.unlock(control.written());

        let location = slot.location();
        let class = ClassId(store.arena.span(Arena::span_of(location)).owner.load(Ordering::Relaxed));
        self.local.retire_known(old, header, location, class, old.whole_bytes_by(header));
        let counters = self.local.counters(store);
        if class != ClassId::of(bytes) {
            counters.class(class).items.add(-1);
            counters.class(ClassId::of(bytes)).items.add(1);
        }
        counters.items_stored.add(1);
        Some(Stored { cas: token(writes, key.hash), replaced: true })
    }
}
