//! A full store, and a limit that is lowered: which items are evicted, which stay, and which writes are
//! refused.

use crate::behaviour::{NOW, get, set, store};
use larder_store::{
    Attributes, Config, Error, Expect, Guard, MEMORY_BYTES_MAX, MEMORY_BYTES_MIN, Refusal, Store, Worker,
};

#[test]
fn full_store_evicts_and_keeps_what_is_read() {
    let (store, mut worker) = store(8);
    let value = [1u8; 100];
    for i in 0..400_000u32 {
        let mut guard = worker.enter(NOW + u64::from(i));
        set(&mut guard, format!("key{i}").as_bytes(), &value);
        if i % 16 == 0 {
            get(&mut guard, b"key7");
        }
    }
    let mut guard = worker.enter(NOW + 400_000);
    assert!(get(&mut guard, b"key7").is_some(), "a hot key outlives a scan");
    assert!(get(&mut guard, b"key399999").is_some());
    while guard.maintain() {}
    drop(guard);
    let totals = store.totals();
    assert!(totals.evictions > 300_000 && totals.used_bytes <= totals.memory_bytes, "{totals:?}");
    assert!(totals.items > 40_000, "{totals:?}");
}

#[test]
fn limits_of_memory_are_what_a_store_can_address_whatever_the_machine_has() {
    let store = |memory_bytes, memory_bytes_max| {
        Store::new(Config { memory_bytes, memory_bytes_max, workers_max: 1, ..Config::default() })
    };
    // Limits: a machine of 384 GiB, the most possible, and a byte less or more.
    for max in [384 << 30, MEMORY_BYTES_MAX - 1, MEMORY_BYTES_MAX, MEMORY_BYTES_MAX + 1, u64::MAX] {
        let store = store(64 << 20, max).expect("address space is all that is taken");
        assert_eq!(store.memory_bytes_max(), MEMORY_BYTES_MAX);
        assert!(!store.set_memory_bytes(MEMORY_BYTES_MAX + 1));
        assert!(store.set_memory_bytes(MEMORY_BYTES_MAX) && store.set_memory_bytes(MEMORY_BYTES_MIN));
        assert!(!store.set_memory_bytes(MEMORY_BYTES_MIN - 1));
        let mut worker = store.worker().unwrap();
        set(&mut worker.enter(NOW), b"k", b"v");
        assert!(get(&mut worker.enter(NOW), b"k").is_some());
    }
    assert!(store(MEMORY_BYTES_MAX, 0).is_ok() && store(MEMORY_BYTES_MIN, 0).is_ok());
    for bad in [MEMORY_BYTES_MAX + 1, MEMORY_BYTES_MIN - 1] {
        assert!(matches!(store(bad, u64::MAX), Err(Error::Config(_))));
    }
}

#[test]
fn no_write_to_a_store_that_has_just_filled_evicts_many() {
    // One batch of eviction, and one step of draining.
    const EVICTED_MAX: u64 = 32 + 128;
    let config = Config { memory_bytes: 16 << 20, workers_max: 1, ..Config::default() };
    let store = Store::new(config).unwrap();
    let mut worker = store.worker().unwrap();
    let (mut before, mut most) = (0, 0);
    for i in 0..500_000u32 {
        set(&mut worker.enter(NOW), &i.to_le_bytes(), b"12345678");
        let evictions = store.totals().evictions;
        most = most.max(evictions - before);
        before = evictions;
    }
    assert!(before > 50_000 && most <= EVICTED_MAX, "{most} of {before} with one write");
}

#[test]
fn without_eviction_a_full_store_refuses() {
    let config = Config { memory_bytes: 2 << 20, evict: false, ..Config::default() };
    let store = Store::new(config).unwrap();
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let mut stored = 0;
    loop {
        let name = format!("key{stored}");
        let key = guard.key(name.as_bytes());
        match guard.store_value(&key, &[0; 1000], &Attributes::default(), Expect::Any) {
            Ok(_) => stored += 1,
            Err(refusal) => {
                assert_eq!(refusal, Refusal::NoMemory);
                break;
            }
        }
    }
    assert!(stored > 1500);
    for i in 0..stored {
        assert!(get(&mut guard, format!("key{i}").as_bytes()).is_some());
    }
}

/// The next write gets the memory of flushed items in a full store that evicts nothing, also in a
/// transaction, and also if it has another size.
#[test]
fn without_eviction_a_flush_makes_room_at_once() {
    for (transaction, bytes) in [(false, 1000), (false, 90), (false, 40_000), (true, 1000), (true, 90)] {
        let store = Store::new(Config { memory_bytes: 16 << 20, evict: false, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let put = |guard: &mut larder_store::Guard<'_>, name: String, bytes: usize| {
            let key = guard.key(name.as_bytes());
            guard.store_value(&key, &vec![7; bytes], &Attributes::default(), Expect::Any).map(drop)
        };
        let full = (0..).find(|n| put(&mut guard, format!("old{n}"), 200).is_err()).expect("it fills up");
        assert!(full > 40_000);
        guard.flush();
        if transaction {
            let keys = [guard.key(b"new0"), guard.key(b"new1")];
            guard.begin(keys);
        }
        for n in 0..2 {
            assert_eq!(put(&mut guard, format!("new{n}"), bytes), Ok(()), "{bytes} bytes, {transaction}");
        }
        guard.finish();
        let most = (0..30 * full).find(|n| put(&mut guard, format!("more{n}"), 200).is_err());
        assert!(most.is_some_and(|most| most > full * 9 / 10), "{most:?} of {full} fit again");
    }
}

#[test]
fn value_sizes_shift_in_a_full_store() {
    let (store, mut worker) = store(8);
    for (round, bytes) in [100usize, 1_200, 60, 10_000, 300_000, 100].into_iter().enumerate() {
        let value = vec![round as u8; bytes];
        for i in 0..(20 << 20) / (bytes + 60) {
            let mut guard = worker.enter(NOW);
            set(&mut guard, format!("k{round}-{i}").as_bytes(), &value);
            assert!(get(&mut guard, format!("k{round}-{i}").as_bytes()).unwrap() == value);
        }
    }
    let totals = store.totals();
    assert_eq!(totals.out_of_memory, 0);
    assert!(totals.used_bytes <= totals.memory_bytes, "{totals:?}");
}

#[test]
fn lower_limit_gives_memory_back() {
    let (store, mut worker) = store(32);
    for i in 0..200_000u32 {
        set(&mut worker.enter(NOW), format!("k{i}").as_bytes(), &[0; 100]);
    }
    assert!(store.set_memory_bytes(8 << 20));
    while worker.enter(NOW).maintain() {}
    assert!(store.totals().used_bytes <= 8 << 20, "{:?}", store.totals());
    assert!(!store.set_memory_bytes(64 << 20), "above the reservation");
}

#[test]
fn lower_limit_leaves_room_for_a_class_without_a_span() {
    let (store, mut worker) = store(64);
    let mut guard = worker.enter(NOW);
    for i in 0..15_000u32 {
        set(&mut guard, format!("f{i}").as_bytes(), &[7; 1000]);
    }
    assert!(store.set_memory_bytes(8 << 20));
    set(&mut guard, b"a", b"x");
    assert_eq!(get(&mut guard, b"a").unwrap(), b"x");
}

/// A key that is read twice on probation enters main, and the hand there passes over items that were read.
#[test]
fn read_items_are_promoted_and_passed_over_and_unread_ones_go() {
    let (store, mut worker) = store(4);
    let mut now = NOW;
    let mut write = |worker: &mut Worker, name: u32, reads: usize| {
        now += 1;
        let mut guard = worker.enter(now);
        set(&mut guard, &name.to_be_bytes(), &[5; 400]);
        drop(guard);
        for _ in 0..reads {
            let mut guard = worker.enter(now);
            assert!(get(&mut guard, &name.to_be_bytes()).is_some());
        }
    };
    let left = |worker: &mut Worker, names: std::ops::Range<u32>, step: usize| {
        let mut guard = worker.enter(NOW);
        guard.leave_traces(false);
        names.step_by(step).filter(|name| get(&mut guard, &name.to_be_bytes()).is_some()).count()
    };
    // 1. Keys enter main while there is free memory; every tenth is read.
    (0..6_000).for_each(|name| write(&mut worker, name, if name % 10 == 0 { 3 } else { 0 }));
    assert_eq!(store.totals().evictions, 0);
    // 2. Later keys are on probation; every fifth is read, and replaces a key outside of main.
    (10_000..25_000).for_each(|name| write(&mut worker, name, if name % 5 == 0 { 2 } else { 0 }));
    let hot = left(&mut worker, 0..6_000, 10);
    let cold = left(&mut worker, 1..6_000, 10);
    let promoted = left(&mut worker, 10_000..22_000, 5);
    let passed = left(&mut worker, 10_001..22_000, 5);
    assert!(hot > 590 && cold < 500, "of 600 each {hot} that were read, {cold} that were not");
    assert!(
        promoted > 2_390 && passed < 800,
        "of 2,400 each {promoted} that were read, {passed} that were not"
    );
    store.check_behind(worker);
}

/// The course of a cache into which more values of one size were stored than fit.
#[derive(Debug, Default)]
struct Filled {
    /// `before`: how many items there were before the first eviction. `gone`: how many items that write
    /// evicted.
    before: u64,
    gone: u64,
    /// `gone_later`: the most items that a later write evicted. `items`: how many items there are in the end.
    gone_later: u64,
    items: u64,
}

/// Stores `count` values of `value_bytes` bytes in a new store.
fn fill_with(memory_bytes: u64, value_bytes: usize, count: u32) -> Filled {
    let store = Store::new(Config { memory_bytes, workers_max: 1, ..Config::default() }).unwrap();
    let mut worker = store.worker().unwrap();
    let value = vec![7u8; value_bytes];
    let mut filled = Filled::default();
    for n in 0..count {
        let before = store.totals();
        let mut guard = worker.enter(NOW);
        let name = format!("{n:08}");
        let key = guard.key(name.as_bytes());
        guard.store_value(&key, &value, &Attributes::default(), Expect::Any).unwrap();
        drop(guard);
        let gone = store.totals().evictions - before.evictions;
        if filled.gone > 0 {
            filled.gone_later = filled.gone_later.max(gone);
        } else {
            (filled.before, filled.gone) = (before.items, gone);
        }
    }
    assert!(filled.gone > 0, "more is stored than fits");
    Filled { items: store.totals().items, ..filled }
}

#[test]
fn a_write_evicts_what_its_own_bytes_need() {
    // If values are longer than a span, each new value evicts one.
    let filled = fill_with(4 << 20, 65_000, 200);
    assert!(filled.before >= 50 && filled.gone == 1 && filled.gone_later == 1, "{filled:?}");
    // If they are shorter, a write evicts at most the values of one span.
    for value_bytes in [200, 3_000, 9_000, 16_000, 20_000] {
        let filled = fill_with(4 << 20, value_bytes, (6 << 20) / value_bytes as u32);
        let span = ((64 << 10) / value_bytes as u64).min(32);
        assert!((1..=span).contains(&filled.gone), "values of {value_bytes} B: {filled:?}");
    }
}

/// The first value of another size needs a span. In a store of large values, which lie in many spans, it
/// evicts only the values that have their long pieces in one span.
#[test]
fn the_first_value_of_another_size_takes_a_span_of_values() {
    for (first, second) in
        [(100_000, 1_000), (100_000, 100), (30_000, 1_000), (20_000, 1_000), (50_000, 300), (9_000, 1_000)]
    {
        const BYTES: usize = 64 << 20;
        let config = Config { memory_bytes: BYTES as u64, workers_max: 1, ..Config::default() };
        let store = Store::new(config).unwrap();
        let mut worker = store.worker().unwrap();
        let mut set = |name: &str, bytes: usize| {
            let mut guard = worker.enter(NOW);
            let key = guard.key(name.as_bytes());
            guard.store_value(&key, &vec![b'v'; bytes], &Attributes::default(), Expect::Any).unwrap();
        };
        (0..2 * BYTES / first).for_each(|n| set(&format!("{n:08}"), first));
        let before = store.totals();
        assert!(before.evictions > 0, "{before:?}");
        set("another", second);
        let gone = store.totals().evictions - before.evictions;
        let span = ((64 << 10) / first).max(4) as u64;
        assert!(gone <= span, "{second} B among values of {first} B: {gone} gone");
    }
}

/// Short values fill a store. Among the longer values written then, the first and some later ones need a span
/// each; no write needs more.
#[test]
fn a_longer_value_takes_a_span_of_short_ones_and_what_it_needs() {
    for (first, second) in
        [(100, 1_000), (100, 300), (20, 1_000), (100, 10_000), (300, 3_000), (1_000, 12_000), (1_000, 100)]
    {
        for read in [false, true] {
            const BYTES: usize = 8 << 20;
            let config = Config { memory_bytes: BYTES as u64, workers_max: 1, ..Config::default() };
            let store = Store::new(config).unwrap();
            let mut worker = store.worker().unwrap();
            let mut set = |name: &str, bytes: usize| {
                let mut guard = worker.enter(NOW);
                let key = guard.key(name.as_bytes());
                guard.store_value(&key, &vec![b'v'; bytes], &Attributes::default(), Expect::Any).unwrap();
                if read && bytes == first {
                    assert!(guard.get(&key).hit().is_some());
                }
            };
            for n in 0..2 * BYTES / first {
                set(&format!("{n:08}"), first);
            }
            let mut gone_for = |n| {
                let before = store.totals().evictions;
                set(&format!("b{n:07}"), second);
                (store.totals().evictions - before) as usize
            };
            let gone: Vec<usize> = (0..200).map(&mut gone_for).collect();
            // The list of chunks in limbo takes memory, too: nearly half a span if a span has thousands of
            // chunks. If all items were read, those that move out of a span take as much elsewhere.
            let spans = if first < 50 || read { 2 } else { 1 };
            // Key (8 bytes), header and rounding add about 16 bytes to a value.
            let most = ((spans << 16) + second).div_ceil(first + 16);
            let worst = gone.iter().enumerate().max_by_key(|&(_, &gone)| gone);
            assert!(
                gone.iter().all(|&gone| gone <= most),
                "{second} B among values of {first} B (read: {read}): {worst:?} gone, {most} at most; {gone:?}"
            );
        }
    }
}

/// Many writes in one batch, as of a pipeline, evict no more than single writes do, though all that they
/// retire stays in limbo until the batch ends.
#[test]
fn writes_that_share_a_batch_leave_no_more_to_evict() {
    for (first, second, megabytes) in
        [(100, 1_000, 64), (100, 1_000, 8), (100, 300, 8), (20, 100, 64), (20, 1_000, 16)]
    {
        let config = Config { memory_bytes: megabytes << 20, workers_max: 1, ..Config::default() };
        let store = Store::new(config).unwrap();
        let mut worker = store.worker().unwrap();
        let set = |guard: &mut Guard<'_>, name: String, bytes: usize| {
            let key = guard.key(name.as_bytes());
            guard.store_value(&key, &vec![b'v'; bytes], &Attributes::default(), Expect::Any).unwrap();
        };
        let keys = ((megabytes as usize) << 20) / (first + 16);
        for n in (0..keys * 3 / 2).step_by(1_000) {
            let mut guard = worker.enter(NOW);
            (n..n + 1_000).for_each(|n| set(&mut guard, format!("{n:08}"), first));
        }
        for rest in 0..100 {
            while worker.enter(NOW + rest * 10).maintain() {}
        }
        let gone: Vec<u64> = (0..20)
            .map(|n| {
                let before = store.totals().evictions;
                set(&mut worker.enter(NOW + 1_000), format!("b{n:07}"), second);
                store.totals().evictions - before
            })
            .collect();
        // If a span has thousands of chunks, one more may be drained for memory that the index has borrowed.
        let spans = if first < 50 { 2 } else { 1 };
        let most = ((spans << 16) + second).div_ceil(first + 16) as u64;
        assert!(
            gone.iter().all(|&gone| gone <= most) && gone[0] > 0,
            "{second} B among values of {first} B at {megabytes} MB: {gone:?} gone, {most} at most"
        );
    }
}

#[test]
fn a_cache_of_long_values_is_full_of_them() {
    let filled = fill_with(64 << 20, 1 << 20, 300);
    assert!(filled.before >= 62 && filled.items >= 62, "{filled:?}");
    assert!(filled.gone == 1 && filled.gone_later == 1, "{filled:?}");
}

/// Stores as many values of 1 MiB as a gigabyte holds, and a few more: each of these evicts one.
#[test]
fn a_large_cache_of_long_values_gives_one_for_one() {
    let filled = fill_with(1 << 30, 1 << 20, 1_040);
    assert!(filled.before >= 1_000 && filled.items >= 1_000, "{filled:?}");
    assert!(filled.gone == 1 && filled.gone_later == 1, "{filled:?}");
}
