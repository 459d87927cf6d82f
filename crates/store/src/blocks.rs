//! Large blocks of the heap that are freed later. Each is a mapping of its own, which the system takes apart page by page
//! while the caller waits: 60 µs a MiB, 16 ms for a buffer of replies of 260 MiB. Workers give back a piece of the last block
//! at a time, where they take collections apart (`collection/tree/fell.rs`): in upkeep, and where memory is needed. What is
//! left of a block counts as held, but not by connections; what is given back is charged no more at once, so that it is given
//! back before items give way.
//!
//! No more blocks wait than connections may hold, or one: so clients that go with their replies, faster than workers give
//! these back, have no more memory than twice that share.

use crate::Store;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::worker::Local;

/// A block of no more bytes is freed at once: some 250 µs.
pub const BLOCK_BYTES_AT_ONCE: usize = 4 << 20;
/// Bytes that a step gives back.
const STEP_BYTES: usize = 1 << 20;
/// The time that a step takes.
const STEP_NS: u64 = 60_000;

/// What is left of a block.
#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    /// Bytes of it that count as held.
    held: usize,
}

/// The blocks of a store.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    blocks: Mutex<Vec<Block>>,
    /// There may be a block. Changed under the lock.
    any: AtomicBool,
}

impl Blocks {
    /// The last block, which is the caller's until it is put back.
    fn take(&self) -> Option<Block> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut blocks = self.blocks.lock().expect("no panic under the lock");
        let block = blocks.pop();
        self.any.store(!blocks.is_empty(), Ordering::Relaxed);
        block
    }

    /// Takes all blocks, also one of which [`Blocks::any`] does not tell yet.
    fn take_all(&self) -> Vec<Block> {
        let mut blocks = self.blocks.lock().expect("no panic under the lock");
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *blocks)
    }

    /// Puts back what is left of a block.
    fn put_back(&self, block: Block) {
        let mut blocks = self.blocks.lock().expect("no panic under the lock");
        blocks.push(block);
        self.any.store(true, Ordering::Relaxed);
    }
}

impl Store {
    /// Frees a block of the heap, of which `held` bytes are held ([`Store::hold`]): at once, or, if it has more than
    /// [`BLOCK_BYTES_AT_ONCE`], some at a time, by upkeep or where memory is needed. Until then they are held, but not by
    /// connections ([`Store::held_bytes`]). It is freed at once without a worker, or where it and those that wait have more
    /// than connections may hold; one that is alone may have more.
    pub fn free_later(&self, bytes: Vec<u8>, held: usize) {
        if bytes.capacity() > BLOCK_BYTES_AT_ONCE {
            let mut blocks = self.blocks.blocks.lock().expect("no panic under the lock");
            // Under that lock: the last worker looks for some behind it when it has gone.
            let free = self.workers_free.lock().expect("no panic under the lock").len();
            let waiting = self.held.freeing_bytes();
            let has_room = waiting == 0 || waiting + held as u64 <= self.held_bytes_max();
            if free < self.counters.len() && has_room {
                self.held.free_later(held as i64);
                blocks.push(Block { bytes, held });
                self.blocks.any.store(true, Ordering::Relaxed);
                return;
            }
        }
        drop(bytes);
        self.hold(-(held as i64));
    }

    /// Counts `bytes` of a block as held no longer.
    fn free_now(&self, bytes: usize) {
        self.hold(-(bytes as i64));
        self.held.free_later(-(bytes as i64));
        self.lower_held_by(bytes as u64);
    }

    /// Frees all blocks that are left, when there is no worker any more.
    pub(crate) fn free_rest(&self) {
        for block in self.blocks.take_all() {
            self.free_now(block.held);
        }
    }
}

impl Local {
    /// Gives back some of a block that is freed later; true if there may be more. Costs some 60 µs.
    pub(crate) fn free_some(&mut self, store: &Store) -> bool {
        let Some(mut block) = store.blocks.take() else { return false };
        self.beside_ns += STEP_NS;
        let left = block.bytes.capacity().saturating_sub(STEP_BYTES);
        block.bytes.truncate(left);
        // The system takes the end of a mapping as it takes all of it: nothing is copied.
        block.bytes.shrink_to(left);
        let held = block.held.min(left);
        store.free_now(block.held - held);
        if left > 0 {
            store.blocks.put_back(Block { held, ..block });
        }
        true
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::{Attributes, Config, Expect, Guard, Lookup};
    use std::sync::Arc;

    const NOW: u64 = 1_700_000_000_000;

    fn store() -> Arc<Store> {
        Store::new(Config { memory_bytes: 64 << 20, workers_max: 1, ..Config::default() }).unwrap()
    }

    /// Has a block freed that its caller holds.
    fn free(store: &Store, bytes: usize) {
        store.hold(bytes as i64);
        assert_eq!(store.held_bytes(), bytes as u64);
        store.free_later(vec![1; bytes], bytes);
        assert_eq!(store.held_bytes(), 0);
    }

    #[test]
    fn a_large_block_is_given_back_a_mebibyte_at_a_time_and_connections_hold_it_no_more() {
        for bytes in [BLOCK_BYTES_AT_ONCE - 1, BLOCK_BYTES_AT_ONCE, BLOCK_BYTES_AT_ONCE + 1] {
            let store = store();
            let mut worker = store.worker().unwrap();
            let mut guard = worker.enter(NOW);
            free(&store, bytes);
            if bytes > BLOCK_BYTES_AT_ONCE {
                assert_eq!(store.held.buffers(), bytes as u64);
                for n in 1..=BLOCK_BYTES_AT_ONCE / STEP_BYTES {
                    guard.take_beside_ns();
                    assert!(guard.local.take_apart(&store));
                    assert_eq!(guard.take_beside_ns(), STEP_NS);
                    assert_eq!(store.held.buffers(), (bytes - n * STEP_BYTES) as u64);
                    assert_eq!(store.held_bytes(), 0);
                }
                assert!(guard.local.take_apart(&store));
            }
            assert_eq!((store.held.buffers(), store.held_bytes()), (0, 0));
            assert!(!guard.local.take_apart(&store));
            drop(guard);
            drop(worker);
            store.check();
        }
    }

    /// Where memory is needed, such blocks are given back before an item gives way.
    #[test]
    fn no_item_gives_way_while_there_are_blocks_to_give_back() {
        let store = store();
        let mut worker = store.worker().unwrap();
        let bytes = 2 * BLOCK_BYTES_AT_ONCE;
        store.hold(bytes as i64);
        let mut guard = worker.enter(NOW);
        let mut n = 0_u64;
        while store.totals().evictions == 0 {
            let name = u64::to_be_bytes(n);
            let key = guard.key(&name);
            guard.store_value(&key, &[1; 20_000], &Attributes::default(), Expect::Any).unwrap();
            n += 1;
        }
        let evictions = store.totals().evictions;
        store.free_later(vec![1; bytes], bytes);
        store.hold(bytes as i64);
        guard.give_way();
        assert_eq!((store.arena.over_limit(), store.totals().evictions), (0, evictions));
        // There is nothing else by now.
        store.hold(bytes as i64);
        guard.give_way();
        assert!(store.totals().evictions > evictions);
        store.hold(-2 * bytes as i64);
        drop(guard);
        drop(worker);
        store.check();
    }

    /// Upkeep does it by itself, and the last worker that goes leaves none.
    #[test]
    fn upkeep_gives_back_blocks_and_so_does_the_last_worker_that_goes() {
        for upkeep in [true, false] {
            let store = store();
            let mut worker = store.worker().unwrap();
            let bytes = 2 * BLOCK_BYTES_AT_ONCE;
            free(&store, bytes);
            free(&store, bytes);
            assert_eq!(store.held.buffers(), 2 * bytes as u64);
            if upkeep {
                let mut guard = worker.enter(NOW);
                assert!(guard.maintain());
                assert_eq!(store.held.buffers(), (2 * bytes - STEP_BYTES) as u64);
                while guard.maintain() {}
                assert_eq!(store.held.buffers(), 0);
            }
            drop(worker);
            assert_eq!((store.held.buffers(), store.held_bytes()), (0, 0));
            // Now there is no worker.
            free(&store, bytes);
            assert_eq!(store.held.buffers(), 0);
            store.check();
        }
    }

    /// Where workers do not give blocks back as fast as they come, the next one does not wait.
    #[test]
    fn no_more_is_freed_later_than_connections_may_hold_or_one_block() {
        let most = store().held_bytes_max() as usize;
        let cases: [(&[usize], usize); 5] = [
            (&[most / 2, most / 2 - 1], most - 1),
            (&[most / 2, most / 2], most),
            (&[most / 2, most / 2 + 1], most / 2),
            (&[most + 1], most + 1),
            (&[most + 1, BLOCK_BYTES_AT_ONCE + 1], most + 1),
        ];
        for (blocks, left) in cases {
            let store = store();
            let worker = store.worker().unwrap();
            blocks.iter().for_each(|&bytes| free(&store, bytes));
            assert_eq!(store.held.buffers(), left as u64);
            drop(worker);
            assert_eq!((store.held.buffers(), store.held_bytes()), (0, 0));
            store.check();
        }
    }

    /// Another thread may have put one there, and not have said so yet.
    #[test]
    fn the_last_worker_that_goes_looks_for_blocks_under_their_lock() {
        let store = store();
        let worker = store.worker().unwrap();
        free(&store, 2 * BLOCK_BYTES_AT_ONCE);
        store.blocks.any.store(false, Ordering::Relaxed);
        drop(worker);
        assert_eq!((store.held.buffers(), store.held_bytes()), (0, 0));
    }

    /// An allocation takes only so long, and does first what costs it least.
    #[test]
    fn an_allocation_takes_pieces_back_before_it_frees_blocks() {
        const PIECES: usize = 6 * crate::large::PIECE_BYTES;
        let config = Config { memory_bytes: 16 << 20, workers_max: 1, evict: false, ..Config::default() };
        let store = Store::new(config).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let set = |guard: &mut Guard<'_>, name: &[u8], bytes: usize| {
            let key = guard.key(name);
            guard.store_value(&key, &vec![1; bytes], &Attributes::default(), Expect::Any).is_ok()
        };
        assert!(set(&mut guard, b"long", 2 << 20));
        let key = guard.key(b"long");
        let Lookup::Hit(item) = guard.get(&key) else { panic!("it was stored") };
        let pinned = item.pin_for_reply().expect("it is alone");
        guard.delete(&key, Expect::Present).unwrap();
        while guard.maintain() {}
        let items = (0_u32..).take_while(|n| set(&mut guard, &n.to_be_bytes(), PIECES)).count();
        assert!(items > 50, "{items}");
        assert!(!set(&mut guard, b"next", PIECES));
        // Its pieces wait until they are taken back, and a block that takes longer than an allocation may.
        drop(pinned);
        store.free_later(Vec::with_capacity(256 << 20), 0);
        assert!(set(&mut guard, b"next", PIECES));
        while guard.maintain() {}
        drop(guard);
        drop(worker);
        store.check();
    }
}
