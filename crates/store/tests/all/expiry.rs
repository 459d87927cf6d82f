//! Expired items: no reply has them any more at once, and their memory is free soon after, without a request.

use larder_store::{Attributes, Config, Expect, Lookup, Store, Worker};
use std::collections::HashMap;

const NOW: u64 = 1_700_000_000_000;

/// A small generator of random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn set(worker: &mut Worker, now: u64, name: u64, bytes: usize, expires_at: u64) {
    let mut guard = worker.enter(now);
    let name = name.to_be_bytes();
    let key = guard.key(&name);
    let attributes = Attributes { expires_at, ..Attributes::default() };
    guard.store_value(&key, &vec![7; bytes], &attributes, Expect::Any).unwrap();
}

/// Does one tick of upkeep, as a server's worker does.
fn tick(worker: &mut Worker, now: u64) {
    for _ in 0..1000 {
        let mut guard = worker.enter(now);
        if !(0..16).all(|_| guard.maintain()) {
            return;
        }
    }
    panic!("upkeep finds no end");
}

/// Most items that a step of upkeep removes: it stops soon after 128.
const STEP_ITEMS_MAX: u64 = 192;

/// Does a tick as [`tick`] does, and checks how many items each step removes.
fn tick_seen(worker: &mut Worker, now: u64) {
    let mut more = true;
    while more {
        let before = worker.store().totals().reclaimed;
        more = worker.enter(now).maintain();
        let taken = worker.store().totals().reclaimed - before;
        assert!(taken <= STEP_ITEMS_MAX, "{taken} items in a step");
    }
}

/// Items live for 1 to 60 s, then no request comes, and upkeep runs each 250 ms. At any time expired items
/// have at most a twentieth of the items' bytes.
fn leave_without_requests(memory_bytes: u64, items: u64, bytes: impl Fn(&mut Random) -> usize) {
    let store = Store::new(Config { memory_bytes, ..Config::default() }).unwrap();
    let mut worker = store.worker().unwrap();
    let mut random = Random(3);
    let mut expiries = Vec::new();
    let mut counted = HashMap::new();
    for name in 0..items {
        let expires_at = NOW + 1000 + random.below(59_000);
        let bytes = bytes(&mut random);
        let before = (!counted.contains_key(&bytes)).then(|| store.totals().item_bytes);
        set(&mut worker, NOW, name, bytes, expires_at);
        let counted = counted.entry(bytes).or_insert_with(|| store.totals().item_bytes - before.unwrap_or(0));
        expiries.push((expires_at, *counted));
    }
    expiries.sort_unstable();
    let all = store.totals().item_bytes;
    let (mut live, mut gone) = (all, 0);
    for now in (NOW..NOW + 61_000).step_by(250) {
        tick_seen(&mut worker, now);
        while let Some((_, bytes)) = expiries.get(gone).filter(|(at, _)| *at <= now) {
            (live, gone) = (live - bytes, gone + 1);
        }
        let held = store.totals().item_bytes - live;
        assert!(held <= all / 20, "{held} of {all} bytes are held after {} ms", now - NOW);
    }
    tick(&mut worker, NOW + 70_000);
    let totals = store.totals();
    assert_eq!((totals.items, totals.reclaimed, totals.evictions), (0, items, 0));
    assert!(
        totals.spans_free > (memory_bytes >> 16) * 95 / 100,
        "{} spans are free again",
        totals.spans_free
    );
    store.check_behind(worker);
}

#[test]
fn expired_items_leave_without_requests() {
    leave_without_requests(256 << 20, 200_000, |random| 40 + random.below(7) as usize * 20);
}

#[test]
fn expired_large_values_leave_without_requests() {
    leave_without_requests(256 << 20, 400, |random| 10_000 + random.below(1_000_000) as usize);
}

#[test]
fn upkeep_finds_what_was_touched_to_an_earlier_time_and_spares_what_was_touched_to_a_later() {
    let store = Store::new(Config::default()).unwrap();
    let mut worker = store.worker().unwrap();
    for name in 0..3 {
        set(&mut worker, NOW, name, 20, NOW + 100_000);
    }
    for (name, at) in [(0u64, NOW + 1000), (1, NOW + 500_000), (2, 0)] {
        let mut guard = worker.enter(NOW);
        let name = name.to_be_bytes();
        let key = guard.key(&name);
        guard.touch(&key, at).unwrap();
    }
    tick(&mut worker, NOW + 999);
    assert_eq!(store.totals().items, 3);
    tick(&mut worker, NOW + 1000);
    assert_eq!(store.totals().items, 2);
    tick(&mut worker, NOW + 200_000);
    assert_eq!(store.totals().items, 2);
    tick(&mut worker, NOW + 700_000);
    assert_eq!((store.totals().items, store.totals().reclaimed), (1, 2));
    let mut guard = worker.enter(NOW + 700_000);
    let name = 2u64.to_be_bytes();
    let key = guard.key(&name);
    assert!(matches!(guard.get(&key), Lookup::Hit(_)));
}

#[test]
fn full_cache_takes_what_expired_before_what_lives() {
    let store = Store::new(Config { memory_bytes: 8 << 20, ..Config::default() }).unwrap();
    let mut worker = store.worker().unwrap();
    // A tenth of the items expires a second later; nothing is evicted until the memory of this tenth is used
    // up.
    let mut count = 0;
    while count % 64 != 0 || store.totals().spans_free > 12 {
        set(&mut worker, NOW, count, 100, if count % 10 == 0 { NOW + 1000 } else { 0 });
        count += 1;
    }
    for name in 0..count / 10 {
        set(&mut worker, NOW + 1500, 1 << 40 | name, 100, 0);
    }
    let totals = store.totals();
    assert_eq!(totals.evictions, 0);
    assert!(totals.reclaimed > 0);
    store.check_behind(worker);
}

/// A worker may have read when a span is next due, found that early enough for its item, and not published
/// the item yet. A visit of the span before that worker leaves its batch would not see the item, and no other
/// visit would come for it.
#[test]
fn a_span_that_is_due_is_not_looked_through_while_a_batch_goes_on_that_began_before() {
    let store = Store::new(Config { workers_max: 2, ..Config::default() }).unwrap();
    let (mut worker, mut other) = (store.worker().unwrap(), store.worker().unwrap());
    for name in 0..100 {
        set(&mut worker, NOW, name, 20, NOW + 1_000);
    }
    let batch = other.enter(NOW);
    for round in 0..100 {
        worker.enter(NOW + 2_000 + round).maintain();
    }
    assert_eq!(store.totals().items, 100);
    drop(batch);
    tick(&mut worker, NOW + 2_200);
    assert_eq!(store.totals().items, 0);
}
