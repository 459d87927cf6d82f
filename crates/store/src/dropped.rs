//! Large values that were let go of outside of a batch: with the last pin of one whose key is gone, or with an upload that was
//! not published. A long one is put here, and workers take back its pieces some at a time, as they take collections apart
//! (`collection/tree/fell.rs`): by upkeep, and where memory is needed.
//!
//! ```text
//! first ─▶ head ─▶ head ─▶ …       each names the next one where its pins were
//! ```
//!
//! Its key is not here: what lies of it on the heap was freed before. A head says how many of its pieces are left.

use crate::Store;
use crate::arena::Arena;
use crate::item::RawItem;
use crate::large::Large;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::worker::Local;

/// Most pieces that are freed at once, of a large value that is dropped or a large draft that a worker gives back: 1 MiB.
pub(crate) const PIECES_AT_ONCE: usize = 64;
/// Pieces that a step takes back.
const STEP_PIECES: usize = 64;
/// The time that it takes to take one back.
const PIECE_NS: u64 = 150;

/// The list of dropped values.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    /// The location of the head that was put there last; 0: none.
    first: Mutex<u64>,
    /// There may be one. Changed under the lock.
    any: AtomicBool,
}

/// A large value that is in the list, or was taken out of it.
///
/// # Safety
/// The head of a large item or draft is at the location, and either it is in the list, whose lock the caller has, or the caller
/// alone has it.
unsafe fn large_at(arena: &Arena, location: u64) -> Large {
    // SAFETY: the caller's obligation: it stays a large item or draft until its chunk is given back.
    unsafe { Large::of(RawItem::new(arena.at(location))) }
}

impl Dropped {
    /// Takes the head of a large item or draft.
    ///
    /// # Safety
    /// One is at the location, the caller alone has it, and its key is freed.
    pub(crate) unsafe fn put(&self, arena: &Arena, location: u64) {
        let mut first = self.first.lock().expect("no panic under the lock");
        // SAFETY: the caller's obligation.
        unsafe { large_at(arena, location) }.head().pins.put_before(*first);
        *first = location;
        self.any.store(true, Ordering::Relaxed);
    }

    /// Takes the one that was put there last, which is the caller's from then on.
    fn take(&self, arena: &Arena) -> Option<u64> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut first = self.first.lock().expect("no panic under the lock");
        let location = *first;
        if location == 0 {
            return None;
        }
        // SAFETY: it is in the list, and this has the lock.
        *first = unsafe { large_at(arena, location) }.head().pins.behind();
        self.any.store(*first != 0, Ordering::Relaxed);
        Some(location)
    }

    /// Calls `each` with the chunks of all that is there.
    pub(crate) fn each(&self, arena: &Arena, each: &mut dyn FnMut(u64)) {
        let first = self.first.lock().expect("no panic under the lock");
        let mut location = *first;
        while location != 0 {
            // SAFETY: it is in the list, and this has the lock.
            let large = unsafe { large_at(arena, location) };
            each(location);
            large.chunks(arena, each);
            location = large.head().pins.behind();
        }
    }
}

impl Local {
    /// Takes back some pieces of a value that was dropped; true if there may be more. Costs some microseconds.
    pub(crate) fn take_dropped(&mut self, store: &Store) -> bool {
        let Some(location) = store.dropped.take(&store.arena) else { return false };
        // SAFETY: this worker has taken it out of the list.
        let large = unsafe { large_at(&store.arena, location) };
        let pieces = large.head().pieces as usize;
        let count = pieces.min(STEP_PIECES);
        self.beside_ns += count as u64 * PIECE_NS;
        // SAFETY: no other thread finds it, or has it pinned.
        unsafe { large.drop_last(&store.arena, count, &mut |piece| self.recycle(store, piece)) };
        if count < pieces {
            // SAFETY: it was there, and is this worker's alone.
            unsafe { store.dropped.put(&store.arena, location) };
        } else {
            // Its tables, and the head last: it says where they are.
            large.chunks(&store.arena, &mut |table| self.recycle(store, table));
            self.recycle(store, location);
        }
        true
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::class::ClassId;
    use crate::large::PIECE_BYTES;
    use crate::{Attributes, Config, Expect, Guard, Lookup, Pinned};
    use std::sync::Arc;

    const NOW: u64 = 1_700_000_000_000;
    /// A key that lies on the heap.
    const KEY: [u8; 300] = [b'k'; 300];

    fn store() -> Arc<Store> {
        Store::new(Config { memory_bytes: 128 << 20, workers_max: 1, ..Config::default() }).unwrap()
    }

    /// Chunks of all classes that are in use.
    fn used(store: &Store) -> usize {
        let used_of = |class| store.sum(|c| c.class(class).used_chunks.value());
        ClassId::all().map(used_of).sum::<u64>() as usize
    }

    /// A value of so many pieces, pinned, whose key is gone.
    fn pinned(guard: &mut Guard<'_>, pieces: usize) -> Pinned {
        let key = guard.key(&KEY);
        let value = vec![1; pieces * PIECE_BYTES];
        guard.store_value(&key, &value, &Attributes::default(), Expect::Any).unwrap();
        let Lookup::Hit(item) = guard.get(&key) else { panic!("it was stored") };
        let pinned = item.pin_for_reply().expect("it is alone");
        guard.delete(&key, Expect::Present).unwrap();
        while guard.maintain() {}
        assert_eq!(guard.local.limbo_chunks(), 0);
        pinned
    }

    /// The last pin frees a value of up to 64 pieces, and leaves a longer one to steps of so many.
    #[test]
    fn a_long_value_whose_last_pin_is_dropped_comes_free_some_pieces_at_a_time() {
        // The last of them do not fit the table in the head.
        for pieces in [PIECES_AT_ONCE - 1, PIECES_AT_ONCE, PIECES_AT_ONCE + 1, 2_500] {
            let store = store();
            let mut worker = store.worker().unwrap();
            let mut guard = worker.enter(NOW);
            let pin = pinned(&mut guard, pieces);
            let all = pieces + 1 + usize::from(pieces > 2_046);
            assert_eq!(used(&store), all);
            drop(pin);
            assert_eq!(store.held_bytes(), 0);
            if pieces > PIECES_AT_ONCE {
                guard.take_beside_ns();
                for n in 1..=pieces / STEP_PIECES {
                    assert_eq!(used(&store), all - (n - 1) * STEP_PIECES);
                    assert!(guard.local.take_apart(&store));
                    assert_eq!(guard.take_beside_ns(), STEP_PIECES as u64 * PIECE_NS);
                }
                assert!(guard.local.take_apart(&store));
            }
            assert_eq!(used(&store), 0, "{pieces}");
            assert!(!guard.local.take_apart(&store));
            drop(guard);
            store.check_behind(worker);
        }
    }

    /// An upload that is dropped is no other; several wait for each other, and nothing of them is lost meanwhile.
    #[test]
    fn uploads_that_are_dropped_wait_in_a_list_until_a_worker_takes_them() {
        let store = store();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let key = guard.key(&KEY);
        let pieces = [PIECES_AT_ONCE, PIECES_AT_ONCE + 1, 200];
        for &pieces in &pieces {
            let bytes = pieces * PIECE_BYTES;
            let mut upload = guard.upload(&key, bytes as u64, &Attributes::default()).unwrap();
            guard.upload_fill(&mut upload, &vec![1; bytes]).unwrap();
            drop(upload);
        }
        let left = pieces[1] + 1 + pieces[2] + 1;
        assert_eq!(used(&store), left);
        drop(guard);
        store.check_behind(worker);
        let mut worker = store.worker().unwrap();
        let guard = worker.enter(NOW);
        assert_eq!(used(&store), left);
        // 200 pieces are four steps, and 65 are two.
        for _ in 0..6 {
            assert!(guard.local.take_dropped(&store));
        }
        assert!(!guard.local.take_dropped(&store));
        assert_eq!(used(&store), 0);
        drop(guard);
        store.check_behind(worker);
    }

    /// Upkeep does it by itself.
    #[test]
    fn upkeep_takes_back_what_was_dropped() {
        let store = store();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        drop(pinned(&mut guard, 300));
        assert_eq!(used(&store), 301);
        assert!(guard.maintain());
        assert_eq!(used(&store), 301 - STEP_PIECES);
        while guard.maintain() {}
        assert_eq!(used(&store), 0);
        drop(guard);
        store.check_behind(worker);
    }
}
