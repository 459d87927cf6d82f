//! Transactions on several keys, watches, and transactions on the whole store, by several threads.

mod beside;
mod full;
mod watching;

use crate::plain::{get_in as get, set_in as set};
use larder_store::{Attributes, Config, Event, Expect, Guard, Key, Lookup, Refusal, Store, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NOW: u64 = 1_700_000_000_000;
/// A test's wait ends after this long: only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(600);

fn store(megabytes: u64) -> Arc<Store> {
    Store::new(Config { memory_bytes: megabytes << 20, ..Config::default() }).unwrap()
}

/// Stores a value; with `at_last` a write that is refused for lack of memory is repeated: the system may take
/// another worker off its core for longer than the store waits for its batch.
fn write(guard: &mut Guard<'_>, key: &Key<'_>, value: &[u8], at_last: bool) -> Result<(), Refusal> {
    let since = Instant::now();
    loop {
        match guard.store_value(key, value, &Attributes::default(), Expect::Any) {
            Err(Refusal::NoMemory) if at_last && since.elapsed() < PATIENCE => std::thread::yield_now(),
            stored => return stored.map(drop),
        }
    }
}

fn number(guard: &mut Guard<'_>, key: &[u8]) -> u64 {
    get(guard, 0, key).map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
}

fn run<R: Send>(store: &Arc<Store>, threads: usize, f: impl Fn(usize, &mut Worker) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|i| {
                let f = &f;
                scope.spawn(move || f(i, &mut store.worker().unwrap()))
            })
            .collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Money moves between accounts: each reader of all accounts finds the same sum.
#[test]
fn transfers_between_accounts_keep_the_sum_for_every_observer() {
    const ACCOUNTS: u64 = 8;
    const SUM: u64 = ACCOUNTS * 1000;
    let store = store(16);
    let names: Vec<[u8; 8]> = (0..ACCOUNTS).map(u64::to_le_bytes).collect();
    let mut worker = store.worker().unwrap();
    names.iter().for_each(|name| set(&mut worker.enter(NOW), 0, name, &1000u64.to_le_bytes()));
    drop(worker);
    let (done, looks) = (AtomicU64::new(0), AtomicU64::new(0));
    run(&store, 4, |i, worker| {
        let mut random = i as u64 + 1;
        for round in 0..20_000u64 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (from, to) = ((random >> 33) % ACCOUNTS, (random >> 43) % ACCOUNTS);
            let mut guard = worker.enter(NOW);
            if i < 2 {
                let keys = [&names[from as usize], &names[to as usize]].map(|name| guard.key(name));
                guard.begin(keys);
                let amount = number(&mut guard, &names[from as usize]).min(round % 7);
                for (at, change) in [(from, amount.wrapping_neg()), (to, amount)] {
                    let now = number(&mut guard, &names[at as usize]).wrapping_add(change);
                    set(&mut guard, 0, &names[at as usize], &now.to_le_bytes());
                }
                guard.finish();
                done.fetch_add(1, Ordering::Relaxed);
            } else if i == 2 {
                // Reads all accounts in a transaction, which locks them.
                let keys: Vec<_> = names.iter().map(|name| guard.key(name)).collect();
                guard.begin(keys);
                assert_eq!(names.iter().map(|name| number(&mut guard, name)).sum::<u64>(), SUM);
                guard.finish();
            } else {
                // Reads all accounts without locks, and compares their versions afterwards.
                let keys: Vec<_> = names.iter().map(|name| guard.key(name)).collect();
                guard.look();
                keys.iter().for_each(|key| guard.note(key));
                let sum: u64 = names.iter().map(|name| number(&mut guard, name)).sum();
                if guard.looked_as_one() {
                    assert_eq!(sum, SUM);
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 40_000);
    assert!(looks.load(Ordering::Relaxed) > 0, "a look by versions succeeds now and then");
    store.check();
}

/// A pair of keys is always written together. Readers read one key after the other: the second is never older
/// than the first.
#[test]
fn reader_of_one_key_after_another_sees_no_half_of_a_transaction() {
    let store = store(16);
    let stop = AtomicBool::new(false);
    run(&store, 3, |i, worker| {
        if i == 0 {
            for n in 1..50_000u64 {
                let mut guard = worker.enter(NOW);
                let keys = [guard.key(b"first"), guard.key(b"second")];
                guard.begin(keys);
                set(&mut guard, 0, b"first", &n.to_le_bytes());
                set(&mut guard, 0, b"second", &n.to_le_bytes());
                guard.finish();
            }
            stop.store(true, Ordering::Relaxed);
        } else {
            let order: [&[u8]; 2] = if i == 1 { [b"first", b"second"] } else { [b"second", b"first"] };
            while !stop.load(Ordering::Relaxed) {
                let mut guard = worker.enter(NOW);
                let seen = order.map(|key| number(&mut guard, key));
                assert!(seen[0] <= seen[1], "{seen:?}");
            }
        }
    });
    store.check();
}

#[test]
fn transaction_of_many_new_keys_has_the_index_grow_under_it() {
    let store = store(64);
    let count = 30_000u32;
    run(&store, 2, |i, worker| {
        let key = |n: u32| [n.to_le_bytes(), (i as u32).to_le_bytes()].concat();
        for round in 0..3u32 {
            let mut guard = worker.enter(NOW);
            let all: Vec<Vec<u8>> = (0..count).map(key).collect();
            let keys: Vec<_> = all.iter().map(|key| guard.key(key)).collect();
            guard.begin(keys);
            for key in &all {
                assert_eq!(number(&mut guard, key) as u32, round);
                set(&mut guard, 0, key, &u64::from(round + 1).to_le_bytes());
            }
            guard.finish();
        }
        let mut guard = worker.enter(NOW);
        for n in 0..count {
            assert_eq!(number(&mut guard, &key(n)), 3);
        }
    });
    assert_eq!(store.totals().items, u64::from(2 * count));
    store.check();
}

#[test]
#[ignore = "time: 16 times as many keys have 64 times as long"]
fn a_transaction_of_many_new_keys_costs_each_as_much_as_one_of_few() {
    // The CPU time of this thread: other programs do not count.
    let on_core = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let took = |keys: u64| {
        let store = store(256);
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let names: Vec<[u8; 8]> = (0..keys).map(u64::to_be_bytes).collect();
        let started = on_core();
        guard.begin_in(0, names.iter().map(|name| &name[..]));
        names.iter().for_each(|name| set(&mut guard, 0, name, b"value"));
        guard.finish();
        on_core() - started
    };
    // 16 times as many keys took 200 times as long when each growth of the index searched all locked buckets.
    let holds = |_| {
        let (few, many) = (took(10_000), took(160_000));
        println!("{few:?} and {many:?}");
        many < few * 64
    };
    assert!((0..3).any(holds));
}

#[test]
fn index_grows_under_a_transaction_that_a_flush_comes_after() {
    let store = store(64);
    store.set_eviction(larder_store::Eviction::Off);
    let mut workers = [store.worker().unwrap(), store.worker().unwrap()];
    let names: Vec<[u8; 4]> = (0..30_000u32).map(u32::to_le_bytes).collect();
    let [worker, other] = &mut workers;
    let mut guard = worker.enter(NOW);
    set(&mut guard, 0, b"before", b"1");
    let keys: Vec<_> = names.iter().map(|name| guard.key(name)).collect();
    guard.begin(keys);
    let (early, late) = names.split_at(100);
    early.iter().for_each(|name| set(&mut guard, 0, name, b"early"));
    other.enter(NOW).flush();
    // This is fifty times more than the index has slots for. No write is refused, and no key is gone before
    // the end.
    late.iter().for_each(|name| set(&mut guard, 0, name, b"late"));
    assert!(early.iter().all(|name| get(&mut guard, 0, name).is_some_and(|value| value == b"early")));
    assert!(late.iter().all(|name| get(&mut guard, 0, name).is_some_and(|value| value == b"late")));
    guard.finish();
    for name in names.iter().map(|name| &name[..]).chain([&b"before"[..]]) {
        assert_eq!(get(&mut guard, 0, name), None, "the flush came after all of it");
    }
    drop(guard);
    drop(workers);
    assert_eq!(store.database_items(0), 0);
    store.check();
}

#[test]
fn every_operation_works_in_a_transaction() {
    let store = store(16);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let (one, other) = (guard.key(b"one"), guard.key(b"other"));
    guard.begin([one, other, one]);
    assert!(guard.in_transaction() && !guard.has_whole());
    set(&mut guard, 0, b"one", &[b'1'; 20_000]);
    let attributes = Attributes::default();
    let again = guard.store_value(&one, b"x", &attributes, Expect::Absent);
    assert_eq!(again.unwrap_err(), Refusal::Present);
    guard.store_value(&other, b"2", &attributes, Expect::Absent).unwrap();
    guard.concat(&other, b"3", larder_store::End::Back, None, Expect::Any).unwrap();
    guard.touch(&other, NOW + 5).unwrap();
    assert_eq!(get(&mut guard, 0, b"other").unwrap(), b"23");
    assert!(matches!(guard.peek(&one), Lookup::Hit(item) if item.value_bytes() == 20_000));
    guard.invalidate(&one, None, None, Expect::Present).unwrap();
    guard.delete(&one, Expect::Present).unwrap();
    assert!(matches!(guard.get(&one), Lookup::Miss));
    guard.finish();
    assert_eq!(get(&mut guard, 0, b"one"), None);
    assert_eq!(get(&mut guard, 0, b"other").unwrap(), b"23");
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn who_has_the_store_to_itself_is_alone() {
    let store = store(16);
    let (inside, stop) = (AtomicU64::new(0), AtomicU64::new(0));
    run(&store, 4, |i, worker| {
        for _ in 0..3_000 {
            let mut guard = worker.enter(NOW);
            if i < 2 {
                guard.begin_whole();
                assert_eq!(inside.swap(1, Ordering::Relaxed), 0, "somebody else is in");
                let swapped = get(&mut guard, 1, b"k");
                guard.swap_databases(1, 2);
                assert_eq!(get(&mut guard, 2, b"k"), swapped);
                inside.store(0, Ordering::Relaxed);
                guard.finish();
                stop.fetch_add(1, Ordering::Relaxed);
            } else {
                assert_eq!(inside.load(Ordering::Relaxed), 0, "in a batch while another has the store");
                set(&mut guard, i as u8, b"k", b"v");
            }
        }
    });
    assert_eq!((store.whole_holds(), stop.load(Ordering::Relaxed)), (6_000, 6_000));
    store.check();
}

#[test]
fn what_the_store_takes_out_is_noted_when_wanted() {
    let store = store(1);
    let mut worker = store.worker().unwrap();
    let mut seen = Vec::new();
    for (wanted, expected) in [(&[][..], 0), (&[Event::Expired][..], 1), (&[Event::Evicted][..], 2)] {
        store.note_events(wanted);
        seen.clear();
        let mut guard = worker.enter(NOW);
        let key = guard.key_in(2, b"expires");
        let attributes = Attributes { expires_at: NOW - 1, ..Attributes::default() };
        guard.store_value(&key, b"v", &attributes, Expect::Any).unwrap();
        let _ = guard.get(&key);
        let mut any = false;
        for n in 0..2_000u32 {
            set(&mut guard, 0, &n.to_le_bytes(), &[0; 1000]);
            // A small store keeps few events, so they are taken now and then.
            if n % 100 == 99 {
                any |= guard.has_events();
                guard.take_events(&mut |event, name, key| seen.push((event, name, key.to_vec())));
                assert!(!guard.has_events());
            }
        }
        assert_eq!(any, expected != 0);
        match expected {
            0 => assert!(seen.is_empty()),
            1 => assert_eq!(seen, [(Event::Expired, 2, b"expires".to_vec())]),
            _ => assert!(seen.len() > 100 && seen.iter().all(|(event, ..)| *event == Event::Evicted)),
        }
    }
    assert_eq!(store.events_lost(), 0);
}

/// A thread that reads several keys as one reads them again if one of them was written meanwhile. A new
/// expiry counts as a write, since the key may be gone by it.
#[test]
fn every_way_to_write_is_seen_by_who_reads_several_keys() {
    let store = Store::new(Config { workers_max: 2, ..Config::default() }).unwrap();
    let (mut reader, mut writer) = (store.worker().unwrap(), store.worker().unwrap());
    type Write<'f> = &'f dyn Fn(&mut Guard<'_>, &Key<'_>) -> bool;
    let ways: [(&str, Write<'_>); 5] = [
        ("set", &|guard, key| guard.store_value(key, b"new", &Attributes::default(), Expect::Any).is_ok()),
        ("touch of what never expires", &|guard, key| guard.touch(key, NOW + 9_000).is_ok()),
        ("touch", &|guard, key| guard.touch(key, NOW + 5_000).is_ok()),
        ("invalidate", &|guard, key| guard.invalidate(key, None, None, Expect::Any).is_ok()),
        ("delete", &|guard, key| guard.delete(key, Expect::Any).is_ok()),
    ];
    for (name, write) in ways {
        let mut reading = reader.enter(NOW);
        reading.look();
        let key = reading.key(b"one of several");
        reading.note(&key);
        let _ = reading.get(&key);
        assert!(reading.looked_as_one(), "before {name}");
        let mut writing = writer.enter(NOW);
        let key = writing.key(b"one of several");
        assert!(write(&mut writing, &key), "{name}");
        assert!(!reading.looked_as_one(), "{name}");
    }
}
