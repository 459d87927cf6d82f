//! Pins that are dropped later: those of values that were on their way to a client which is gone. They may be gigabytes in very
//! many parts, each of which takes a line of memory or two, and a lock if nothing else keeps it. Workers drop some at a time
//! where they take collections apart (`collection/tree/fell.rs`): in upkeep, and where memory is needed.
//!
//! Connections are not said to hold them meanwhile: no other one is to be closed for what is on its way out. A value is held
//! once, however many pins it has, and so it is on its way out once: until the last of its pins is dropped.

use crate::Store;
use crate::read::Pinned;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::worker::Local;
use std::collections::VecDeque;
use std::fmt::{Debug, Formatter};

/// Chunks that a step looks at, or frees. The last pin of it may be of one element more, which has up to 4,105 parts.
const STEP_CHUNKS: usize = 256;
/// Work to look at a chunk.
const CHUNK_NS: u64 = 150;

/// Pins that came together.
struct Batch {
    pins: Box<dyn Iterator<Item = Pinned> + Send>,
    /// Bytes of them that connections are not said to hold.
    bytes: u64,
}

impl Debug for Batch {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Those of a store. Each pin has an `Arc` of the store, so the last worker that goes leaves none.
#[derive(Debug, Default)]
pub(crate) struct Unpinned {
    batches: Mutex<VecDeque<Batch>>,
    /// There may be some. Changed under the lock.
    any: AtomicBool,
}

impl Unpinned {
    /// The batch that came first, which is the caller's until it is put back.
    fn take(&self) -> Option<Batch> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut batches = self.batches.lock().expect("no panic under the lock");
        let batch = batches.pop_front();
        self.any.store(!batches.is_empty(), Ordering::Relaxed);
        batch
    }

    /// Puts back what is left of it.
    fn put_back(&self, batch: Batch) {
        let mut batches = self.batches.lock().expect("no panic under the lock");
        batches.push_front(batch);
        self.any.store(true, Ordering::Relaxed);
    }
}

impl Store {
    /// Drops pins of this store's values some at a time, by upkeep or where memory is needed. Connections do not hold `bytes` of
    /// them any more ([`Store::held_bytes`]): those of the values, or as many as are known, and no more than are pinned. Costs as
    /// much as one pin; without a worker they are dropped at once.
    pub fn unpin_later(&self, bytes: u64, pins: impl Iterator<Item = Pinned> + Send + 'static) {
        let mut batches = self.unpinned.batches.lock().expect("no panic under the lock");
        // Under that lock: the last worker looks for some behind it when it has gone.
        let free = self.workers_free.lock().expect("no panic under the lock").len();
        if free < self.counters.len() {
            // Many of them may be of one value. What else is pinned later is held.
            let bytes = bytes.min(self.held.pinned_bytes());
            self.held.leave(bytes as i64);
            batches.push_back(Batch { pins: Box::new(pins), bytes });
            self.unpinned.any.store(true, Ordering::Relaxed);
        } else {
            drop(batches);
            drop(pins);
        }
    }

    /// There is no worker any more: drops what is left.
    pub(crate) fn unpin_rest(&self) {
        let mut batches = self.unpinned.batches.lock().expect("no panic under the lock");
        let rest = std::mem::take(&mut *batches);
        self.unpinned.any.store(false, Ordering::Relaxed);
        drop(batches);
        for batch in rest {
            self.held.leave(-(batch.bytes as i64));
        }
    }
}

impl Local {
    /// Drops some of the pins that are dropped later; true if there may be more. Costs some 50 µs, or 0.6 ms where the last of
    /// them is that of the longest element.
    pub(crate) fn unpin_some(&mut self, store: &Store) -> bool {
        let Some(mut batch) = store.unpinned.take() else { return false };
        let mut chunks = 0;
        let is_done = loop {
            if chunks >= STEP_CHUNKS {
                break false;
            }
            let Some(pinned) = batch.pins.next() else { break true };
            let bytes = pinned.own_bytes().min(batch.bytes);
            chunks += pinned.chunks_at_once();
            drop(pinned);
            batch.bytes -= bytes;
            store.held.leave(-(bytes as i64));
        };
        self.beside_ns += chunks as u64 * CHUNK_NS;
        if is_done {
            store.held.leave(-(batch.bytes as i64));
        } else {
            store.unpinned.put_back(batch);
        }
        true
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::class::ClassId;
    use crate::{Attributes, Config, Expect, Guard, Lookup, Refusal};
    use std::sync::Arc;

    const NOW: u64 = 1_700_000_000_000;
    /// Seven pieces, and eight chunks with the head.
    const BYTES: usize = 100_000;
    const CHUNKS: usize = 8;
    /// What connections hold when a value has a pin.
    const HELD: u64 = BYTES as u64;

    fn store() -> Arc<Store> {
        Store::new(Config { memory_bytes: 64 << 20, workers_max: 1, ..Config::default() }).unwrap()
    }

    /// Chunks of all classes that are in use.
    fn used(store: &Store) -> usize {
        let used_of = |class| store.sum(|c| c.class(class).used_chunks.value());
        ClassId::all().map(used_of).sum::<u64>() as usize
    }

    /// A pin of a new value.
    fn pinned(guard: &mut Guard<'_>, name: &[u8]) -> Pinned {
        let key = guard.key(name);
        guard.store_value(&key, &[1; BYTES], &Attributes::default(), Expect::Any).unwrap();
        let Lookup::Hit(item) = guard.get(&key) else { panic!("it was stored") };
        item.pin_for_reply().expect("connections hold less than their share")
    }

    /// Pins of so many values whose keys are gone.
    fn pins(guard: &mut Guard<'_>, count: u32) -> Vec<Pinned> {
        let names: Vec<[u8; 4]> = (0..count).map(u32::to_be_bytes).collect();
        let pins = names.iter().map(|name| pinned(guard, name)).collect();
        for name in &names {
            let key = guard.key(name);
            guard.delete(&key, Expect::Present).unwrap();
        }
        while guard.maintain() {}
        assert_eq!(guard.local.limbo_chunks(), 0);
        pins
    }

    #[test]
    fn pins_are_dropped_some_at_a_time_and_connections_hold_them_no_more() {
        const COUNT: usize = 100;
        let store = store();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let pins = pins(&mut guard, COUNT as u32);
        assert_eq!((store.held_bytes(), used(&store)), (COUNT as u64 * HELD, COUNT * CHUNKS));
        store.unpin_later(COUNT as u64 * HELD, pins.into_iter());
        assert_eq!((store.held_bytes(), used(&store)), (0, COUNT * CHUNKS));
        guard.take_beside_ns();
        let each = STEP_CHUNKS / CHUNKS;
        for left in [COUNT - each, COUNT - 2 * each, COUNT - 3 * each, 0] {
            let before = used(&store);
            assert!(guard.local.take_apart(&store));
            assert_eq!((store.held_bytes(), used(&store)), (0, left * CHUNKS));
            assert_eq!(guard.take_beside_ns(), (before - left * CHUNKS) as u64 * CHUNK_NS);
        }
        assert!(!guard.local.take_apart(&store));
        drop(guard);
        store.check_behind(worker);
    }

    /// Bytes that were said to be too many, or too few, are put right when the last pin is dropped; what another has pinned is
    /// held.
    #[test]
    fn what_another_has_pinned_is_held_when_the_pins_are_dropped() {
        for bytes in [0, 1, HELD, 5 * HELD] {
            let store = store();
            let mut worker = store.worker().unwrap();
            let mut guard = worker.enter(NOW);
            let (one, other) = (pinned(&mut guard, b"key"), pinned(&mut guard, b"other"));
            let key = guard.key(b"key");
            let Lookup::Hit(item) = guard.get(&key) else { panic!("it was stored") };
            let again = item.pin_for_reply().expect("it is pinned already");
            store.unpin_later(bytes, [one, other].into_iter());
            assert_eq!(store.held_bytes(), (2 * HELD).saturating_sub(bytes));
            assert!(guard.maintain());
            assert_eq!(store.held_bytes(), HELD);
            drop(again);
            assert_eq!(store.held_bytes(), 0);
            drop(guard);
            store.check_behind(worker);
        }
    }

    /// Returns `count` pins of one value, which is there.
    fn pins_of_one(guard: &mut Guard<'_>, name: &[u8], count: usize) -> Vec<Pinned> {
        let first = pinned(guard, name);
        let key = guard.key(name);
        let Lookup::Hit(item) = guard.get(&key) else { panic!("it was stored") };
        let more = (1..count).map(|_| item.pin_for_reply().expect("it is pinned already"));
        std::iter::once(first).chain(more).collect()
    }

    /// It is held once, and is on its way out once, until the last of them is dropped. What is pinned meanwhile is held. A value
    /// that is there costs a step one line for each pin, however many pieces it has.
    #[test]
    fn a_value_with_many_pins_hides_no_other() {
        const STEPS: usize = 3;
        let store = store();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let pins = pins_of_one(&mut guard, b"key", STEPS * STEP_CHUNKS);
        assert_eq!(store.held_bytes(), HELD);
        store.unpin_later((STEPS * STEP_CHUNKS) as u64 * HELD, pins.into_iter());
        assert_eq!(store.held_bytes(), 0);
        let other = pinned(&mut guard, b"other");
        // The last step finds that none is left.
        for _ in 0..=STEPS {
            assert_eq!(store.held_bytes(), HELD);
            assert!(guard.local.take_apart(&store));
        }
        assert!(!guard.local.take_apart(&store));
        assert_eq!(store.held_bytes(), HELD);
        drop(other);
        assert_eq!(store.held_bytes(), 0);
        drop(guard);
        drop(worker);
        store.check();
    }

    /// An allocation that finds no memory, where nothing may be evicted, drops as many of them as it takes some 10 ms to drop.
    #[test]
    fn an_allocation_drops_so_many_pins() {
        const STEPS: usize = 256;
        let config = Config { memory_bytes: 8 << 20, workers_max: 1, evict: false, ..Config::default() };
        let store = Store::new(config).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let pins = pins_of_one(&mut guard, b"key", (STEPS + 44) * STEP_CHUNKS);
        let value = vec![7; 10_000];
        let set = |guard: &mut Guard<'_>, n: u64| {
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, &value, &Attributes::default(), Expect::Any).map(drop)
        };
        let items = (0..).take_while(|&n| set(&mut guard, n).is_ok()).count() as u64;
        store.unpin_later(HELD, pins.into_iter());
        guard.take_beside_ns();
        assert_eq!(set(&mut guard, items), Err(Refusal::NoMemory));
        assert_eq!(guard.take_beside_ns() / (STEP_CHUNKS as u64 * CHUNK_NS), STEPS as u64);
        while guard.maintain() {}
        assert_eq!(store.held_bytes(), 0);
        drop(guard);
        drop(worker);
        store.check();
    }

    /// Pins of what is there free nothing when they are dropped: items give way beside them.
    #[test]
    fn items_give_way_while_pins_are_dropped() {
        const STEPS: usize = 64;
        let config = Config { memory_bytes: 16 << 20, workers_max: 1, ..Config::default() };
        let store = Store::new(config).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        for n in 0..40_000_u32 {
            let name = n.to_le_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, &[1; 500], &Attributes::default(), Expect::Any).unwrap();
        }
        let pins = pins_of_one(&mut guard, b"key", STEPS * STEP_CHUNKS);
        store.unpin_later(HELD, pins.into_iter());
        store.hold(4 << 20);
        assert!(store.is_over_limit());
        let before = store.totals().items;
        guard.give_way();
        assert!(store.totals().items < before);
        store.hold(-(4 << 20));
        drop(guard);
        drop(worker);
        assert_eq!(store.held_bytes(), 0);
        store.check();
    }

    /// A worker that is the last drops them, and where there is none they are dropped at once: no pin keeps the store.
    #[test]
    fn no_pin_stays_without_a_worker() {
        for is_there in [true, false] {
            let store = store();
            let mut worker = store.worker().unwrap();
            let mut guard = worker.enter(NOW);
            let pins = pins(&mut guard, 60);
            drop(guard);
            if is_there {
                store.unpin_later(60 * HELD, pins.into_iter());
                assert_eq!(used(&store), 60 * CHUNKS);
                drop(worker);
            } else {
                drop(worker);
                assert_eq!(used(&store), 60 * CHUNKS);
                store.unpin_later(60 * HELD, pins.into_iter());
            }
            assert_eq!((store.held_bytes(), used(&store)), (0, 0));
            assert_eq!(Arc::strong_count(&store), 1);
            store.check();
        }
    }
}
