//! Memory moves between classes: hot items stay, and with enough memory all items do.

use crate::plain::{collect, store};
use larder_store::{Attributes, Automove, Config, Eviction, Expect, Lookup, Store, Worker};
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;

/// A value that repeats its key from the first byte to the last.
fn value(name: u64, bytes: usize) -> Vec<u8> {
    name.to_be_bytes().iter().copied().cycle().take(bytes).collect()
}

fn set(worker: &mut Worker, now: u64, name: u64, bytes: usize) -> u64 {
    let mut guard = worker.enter(now);
    let key = name.to_be_bytes();
    let key = guard.key(&key);
    guard.store_value(&key, &value(name, bytes), &Attributes::default(), Expect::Any).unwrap().cas
}

/// The value's length and token, after a check of each byte.
fn get(worker: &mut Worker, now: u64, name: u64) -> Option<(usize, u64)> {
    let mut guard = worker.enter(now);
    let key = name.to_be_bytes();
    let key = guard.key(&key);
    let Lookup::Hit(item) = guard.get(&key) else { return None };
    let bytes = collect(item.value());
    assert!(bytes == value(name, bytes.len()), "torn or foreign value under {name}");
    Some((bytes.len(), item.cas()))
}

#[test]
fn reassigning_with_room_loses_nothing_and_keeps_tokens() {
    let (store, mut worker) = store(64);
    let sizes = [30, 500, 3000, 20_000, 100_000, 1 << 20, 3 << 20];
    let mut tokens = Vec::new();
    for name in 0..2000 {
        let bytes = sizes[if name < 1990 { name as usize % 4 } else { 3 + name as usize % 4 }];
        tokens.push((bytes, set(&mut worker, NOW, name, bytes)));
    }
    for class in store.classes(NOW) {
        let moved = worker.enter(NOW).reassign(Some(class.id), None, 16);
        assert!(moved > 0, "class {}", class.id);
    }
    assert!(store.totals().chunks_moved > 1000);
    for (name, &is) in tokens.iter().enumerate() {
        assert_eq!(get(&mut worker, NOW, name as u64), Some(is));
    }
    assert_eq!(store.totals().evictions, 0);
    store.check_behind(worker);
}

#[test]
fn pinned_value_is_not_moved_and_the_span_is_used_again() {
    let (store, mut worker) = store(16);
    set(&mut worker, NOW, 1, 100_000);
    let pinned = {
        let mut guard = worker.enter(NOW);
        let key = 1u64.to_be_bytes();
        let key = guard.key(&key);
        guard.get(&key).hit().unwrap().pin()
    };
    let largest = store.classes(NOW).last().unwrap().id;
    assert_eq!(worker.enter(NOW).reassign(Some(largest), None, 1), 0);
    assert_eq!(pinned.pieces(0).flatten().count(), 100_000);
    drop(pinned);
    assert_eq!(worker.enter(NOW).reassign(Some(largest), None, 1), 1);
    assert_eq!(get(&mut worker, NOW, 1).unwrap().0, 100_000);
    store.check_behind(worker);
}

/// Upkeep does not search for memory for items that all stay. Such a search among 100,000 items, for each of
/// some thousand batches, kept a worker busy for half a minute.
#[test]
fn what_has_nowhere_to_go_in_a_full_store_that_evicts_nothing_is_not_looked_for_room() {
    let config = Config { memory_bytes: 8 << 20, evict: false, ..Config::default() };
    let store = Store::new(config).unwrap();
    let mut worker = store.worker().unwrap();
    let full = (0..1 << 20).find(|name: &u64| {
        let mut guard = worker.enter(NOW);
        let key = name.to_be_bytes();
        let key = guard.key(&key);
        guard.store_value(&key, &value(*name, 100), &Attributes::default(), Expect::Any).is_err()
    });
    let full = full.expect("the store is full");
    let class = store.classes(NOW).into_iter().max_by_key(|class| class.spans).unwrap().id;
    let age_ms = |now| store.classes(now).iter().find(|one| one.id == class).map(|one| one.age_ms);
    let later = NOW + 10_000;
    let before = age_ms(later);
    assert_eq!(worker.enter(later).reassign(None, Some(5), 16), 0);
    assert_eq!(age_ms(later), before, "the hand of the class has not moved");
    assert_eq!((store.totals().evictions, store.totals().items), (0, full));
    store.check_behind(worker);
}

/// Pinned values keep their spans. As many other spans move to the class, and the result counts only spans
/// that moved.
#[test]
fn as_many_spans_are_moved_as_is_said_while_some_cannot_be() {
    let (store, mut worker) = store(16);
    for name in 0..40 {
        set(&mut worker, NOW, name, 100_000);
    }
    let pin = |worker: &mut Worker, name: u64| {
        let mut guard = worker.enter(NOW);
        let key = name.to_be_bytes();
        let key = guard.key(&key);
        guard.get(&key).hit().unwrap().pin()
    };
    let spans =
        |id: u8| store.classes(NOW).iter().find(|class| class.id == id).map_or(0, |class| class.spans);
    let (largest, to) = (store.classes(NOW).last().unwrap().id, 20);
    // A pinned value has six pieces: a third of the values keeps a third of the spans.
    let pins: Vec<_> = (0..13).map(|name| pin(&mut worker, name)).collect();
    assert_eq!((worker.enter(NOW).reassign(Some(largest), Some(to), 16), spans(to)), (16, 16));
    let pins: Vec<_> = (13..40).map(|name| pin(&mut worker, name)).chain(pins).collect();
    assert_eq!((worker.enter(NOW).reassign(Some(largest), Some(to), 16), spans(to)), (0, 16));
    drop(pins);
    assert_eq!((worker.enter(NOW).reassign(Some(largest), Some(to), 16), spans(to)), (16, 32));
    assert!((0..40).all(|name| get(&mut worker, NOW, name).is_some()));
    let totals = store.totals();
    assert_eq!((totals.evictions, totals.spans_reassigned), (0, totals.spans_moved));
    assert!(totals.spans_moved >= 32, "{}", totals.spans_moved);
    store.check_behind(worker);
}

/// Fills the store with values of one size, reads some keys often, then writes values of another size.
fn shift(automove: Automove) -> (u64, u64, Arc<Store>) {
    let (store, mut worker) = store(16);
    store.set_automove(automove);
    let mut now = NOW;
    for name in 0..28_000 {
        set(&mut worker, now, name, 500);
        now += u64::from(name % 16 == 0);
    }
    for _ in 0..3 {
        for hot in (0..28_000).step_by(56) {
            assert!(get(&mut worker, now, hot).is_some());
        }
    }
    for name in 0..40_000u64 {
        set(&mut worker, now, 1 << 40 | name, 900);
        if name % 4 == 0 {
            get(&mut worker, now, name / 4 % 500 * 56);
        }
        now += u64::from(name % 16 == 0);
    }
    let hot = (0..28_000).step_by(56).filter(|&hot| get(&mut worker, now, hot).is_some()).count();
    let new = (0..40_000).filter(|name| get(&mut worker, now, 1 << 40 | name).is_some()).count();
    store.check_behind(worker);
    (hot as u64, new as u64, store)
}

#[test]
fn memory_follows_the_sizes_that_are_written_and_what_is_hot_stays() {
    let (hot, new, store) = shift(Automove::Ages);
    assert!(hot >= 490, "{hot} of 500 hot keys are left");
    assert!(new * 900 > 11 << 20, "the new size has {} KiB", new * 900 / 1024);
    assert!(store.totals().chunks_moved >= 300);
}

#[test]
fn with_automove_off_classes_keep_their_memory() {
    let (_, new, store) = shift(Automove::Off);
    assert!(new * 900 < 2 << 20, "the new size has {} KiB", new * 900 / 1024);
    assert!(new > 0, "a class without a span gets one");
    assert_eq!(store.totals().out_of_memory, 0);
}

#[test]
fn volatile_policies_spare_what_has_no_expiry() {
    for eviction in [Eviction::Volatile, Eviction::VolatileTtl] {
        let (store, mut worker) = store(4);
        store.set_eviction(eviction);
        let mut refused = 0;
        for name in 0..20_000u64 {
            let mut guard = worker.enter(NOW);
            let key = name.to_be_bytes();
            let key = guard.key(&key);
            // One of a hundred items never expires; of the others, half expire sooner than the other half.
            let expires_at = match name % 100 {
                0 => 0,
                odd if odd % 2 == 1 => NOW + 1_000_000,
                _ => NOW + 9_000_000,
            };
            let attributes = Attributes { expires_at, ..Attributes::default() };
            refused += u64::from(guard.store_value(&key, &[1; 400], &attributes, Expect::Any).is_err());
        }
        assert_eq!(refused, 0);
        assert!((0..20_000).step_by(100).all(|name| {
            let mut guard = worker.enter(NOW);
            let key = u64::to_be_bytes(name);
            let key = guard.key(&key);
            guard.get(&key).hit().is_some()
        }));
        let left = |odd: u64, worker: &mut Worker| {
            (0..20_000u64)
                .filter(|name| name % 2 == odd && name % 100 != 0)
                .filter(|name| {
                    let mut guard = worker.enter(NOW);
                    let key = name.to_be_bytes();
                    let key = guard.key(&key);
                    guard.get(&key).hit().is_some()
                })
                .count()
        };
        let (sooner, later) = (left(1, &mut worker), left(0, &mut worker));
        if eviction == Eviction::VolatileTtl {
            assert!(later > 3 * sooner, "{sooner} that expire sooner, {later} later");
        }
        // No item with an expiry is left: writes are refused, and no item is lost.
        let mut stored = 0;
        while {
            let mut guard = worker.enter(NOW);
            let key = (1u64 << 50 | stored).to_be_bytes();
            let key = guard.key(&key);
            guard.store_value(&key, &[1; 400], &Attributes::default(), Expect::Any).is_ok()
        } {
            stored += 1;
        }
        let (mut name, mut all) = (0, true);
        while name < stored {
            let mut guard = worker.enter(NOW);
            let key = (1u64 << 50 | name).to_be_bytes();
            let key = guard.key(&key);
            all &= guard.get(&key).hit().is_some();
            name += 1;
        }
        assert!(all && stored > 5000, "{stored} kept");
        store.check_behind(worker);
    }
}

/// Thousands of writes that must be refused end soon: a write does not search for long where nothing may be
/// evicted.
#[test]
fn volatile_policies_refuse_at_once_and_take_what_is_given_an_expiry() {
    for eviction in [Eviction::Volatile, Eviction::VolatileTtl] {
        for (persisted, bytes) in [(false, 400), (true, 400), (false, 100_000), (true, 100_000)] {
            let (store, mut worker) = store(16);
            store.set_eviction(eviction);
            let mut try_set = |name: u64| {
                let mut guard = worker.enter(NOW);
                let key = name.to_be_bytes();
                let key = guard.key(&key);
                let expires_at = if persisted { NOW + 1_000_000 } else { 0 };
                let attributes = Attributes { expires_at, ..Attributes::default() };
                let stored = guard.store_value(&key, &vec![1; bytes], &attributes, Expect::Any);
                // With `persisted` the item had an expiry, and loses it here.
                if persisted && stored.is_ok() {
                    guard.touch(&key, 0).unwrap();
                }
                stored.is_ok()
            };
            let stored = (0..).take_while(|&name| try_set(name)).count() as u64;
            assert!(stored * bytes as u64 > 12 << 20, "{stored} of {bytes} bytes");
            assert!(!(0..3_000).any(|name| try_set(1 << 40 | name)));
            let mut guard = worker.enter(NOW);
            for name in 0..40u64 {
                let key = name.to_be_bytes();
                let key = guard.key(&key);
                // An item that never had an expiry would need a longer chunk to get one; it is deleted
                // instead.
                let done = match persisted {
                    true => guard.touch(&key, NOW + 1_000_000),
                    false => guard.delete(&key, Expect::Present),
                };
                done.unwrap();
            }
            // The new item has the size of the others, so that it fits a chunk of one of them.
            let key = guard.key(b"eight by");
            let expires_at = if persisted { NOW + 1_000_000 } else { 0 };
            let attributes = Attributes { expires_at, ..Attributes::default() };
            let stored_again = guard.store_value(&key, &vec![1; bytes], &attributes, Expect::Any);
            assert!(stored_again.is_ok(), "{eviction:?}, {bytes} bytes, had an expiry: {persisted}");
            assert_eq!(store.totals().evictions > 0, persisted);
            assert!(store.totals().items > stored - 40);
            drop(guard);
            store.check_behind(worker);
        }
    }
}
