//! A limit of few spans, fewer than there are classes in use.

use larder_store::{Attributes, Config, Eviction, Expect, Refusal, Store, Worker, chunk_sizes};
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;

fn store(megabytes: u64) -> Arc<Store> {
    Store::new(Config { memory_bytes: megabytes << 20, ..Config::default() }).unwrap()
}

/// Sizes spread over all classes, from 16 bytes to 64 KiB, the same in each run.
fn sizes() -> impl Iterator<Item = usize> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (1 << (4 + state % 12)) + (state >> 32) as usize % (1 << (4 + state % 12))
    })
}

#[test]
fn three_megabytes_take_values_of_all_sizes() {
    let store = store(3);
    let mut worker = store.worker().unwrap();
    for (i, bytes) in sizes().take(20_000).enumerate() {
        let mut guard = worker.enter(NOW);
        let name = format!("key:{}", i % 5000);
        let key = guard.key(name.as_bytes());
        let stored = guard.store_value(&key, &vec![b'v'; bytes], &Attributes::default(), Expect::Any);
        assert!(stored.is_ok(), "{i}: {bytes} bytes: {stored:?}");
    }
    assert_eq!(store.classes(NOW).iter().map(|class| class.out_of_memory).sum::<u64>(), 0);
}

#[test]
fn an_upload_that_stands_still_does_not_keep_other_classes_from_spans() {
    let store = store(3);
    let (mut one, mut two) = (store.worker().unwrap(), store.worker().unwrap());
    let mut upload = {
        let mut guard = one.enter(NOW);
        let key = guard.key(b"upload");
        let mut upload = guard.upload(&key, 300_000, &Attributes::default()).unwrap();
        guard.upload_fill(&mut upload, &[b'u'; 100_000]).unwrap();
        upload
    };
    for (i, bytes) in sizes().take(5000).enumerate() {
        let mut guard = two.enter(NOW);
        let name = format!("key:{i}");
        let key = guard.key(name.as_bytes());
        let stored = guard.store_value(&key, &vec![b'v'; bytes], &Attributes::default(), Expect::Any);
        assert!(stored.is_ok(), "{i}: {bytes} bytes: {stored:?}");
    }
    let mut guard = one.enter(NOW);
    guard.upload_fill(&mut upload, &[b'u'; 200_000]).unwrap();
    guard.publish(upload, Expect::Any).unwrap();
}

/// Without eviction, a class gives its last span to another class once it has no item.
#[test]
fn classes_that_have_become_empty_leave_room_for_all_others() {
    /// Stores an item that takes a chunk of `bytes` bytes.
    fn set(worker: &mut Worker, bytes: u32) -> Result<(), Refusal> {
        let mut guard = worker.enter(NOW);
        let name = bytes.to_le_bytes();
        let key = guard.key(&name);
        let value = vec![b'v'; bytes as usize - 12];
        guard.store_value(&key, &value, &Attributes::default(), Expect::Any).map(|_| ())
    }
    fn delete(worker: &mut Worker, bytes: u32) {
        let mut guard = worker.enter(NOW);
        let name = bytes.to_le_bytes();
        let key = guard.key(&name);
        guard.delete(&key, Expect::Present).unwrap();
    }
    for eviction in [Eviction::Off, Eviction::Volatile] {
        let store = store(2);
        store.set_eviction(eviction);
        let mut worker = store.worker().unwrap();
        let sizes: Vec<u32> = chunk_sizes().map(|(_, bytes)| bytes).filter(|&bytes| bytes >= 24).collect();
        let first = sizes.iter().take_while(|&&bytes| set(&mut worker, bytes).is_ok()).count();
        assert!((20..32).contains(&first), "{first} classes have a span each, and there is no other");
        sizes[..first].iter().for_each(|&bytes| delete(&mut worker, bytes));
        for &bytes in &sizes[first..] {
            let stored = set(&mut worker, bytes);
            assert!(stored.is_ok(), "{eviction:?}: {bytes} bytes of a store without items: {stored:?}");
            delete(&mut worker, bytes);
        }
    }
}

/// The ghosts of a million evicted items take memory, which is freed when the limit falls below it.
#[test]
fn limit_that_falls_leaves_room_for_items() {
    let store = Store::new(Config { memory_bytes: 64 << 20, workers_max: 1, ..Config::default() }).unwrap();
    let mut worker = store.worker().unwrap();
    let set = |worker: &mut Worker, now: u64, n: u64| {
        let mut guard = worker.enter(now);
        let name = n.to_be_bytes();
        let key = guard.key(&name);
        guard.store_value(&key, b"", &Attributes::default(), Expect::Any).unwrap();
    };
    (0..2_500_000).for_each(|n| set(&mut worker, NOW, n));
    let full = store.totals().items;
    assert!(store.set_memory_bytes(2 << 20));
    // The index frees memory as upkeep passes over it.
    for now in (NOW..NOW + 20_000).step_by(2) {
        let _ = (0..6).all(|_| worker.enter(now).maintain());
    }
    (0..200_000).for_each(|n| set(&mut worker, NOW + 20_000, 1 << 40 | n));
    drop(worker);
    let totals = store.totals();
    assert!(totals.items > full / 64, "{} of {full}", totals.items);
    assert!(totals.used_bytes <= 2 << 20, "{totals:?}");
    store.check();
}
