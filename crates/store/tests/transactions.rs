//! Several keys as one, watches, and the store as a whole, under threads.

use larder_store::{
    Attributes, Config, Event, Expect, Guard, Lookup, Refusal, Store, Touched, Value, Worker,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const NOW: u64 = 1_700_000_000_000;

fn store(megabytes: u64) -> Arc<Store> {
    Store::new(Config { memory_bytes: megabytes << 20, ..Config::default() }).unwrap()
}

fn set(guard: &mut Guard<'_>, name: u8, key: &[u8], value: &[u8]) {
    let key = guard.key_in(name, key);
    guard.store_value(&key, value, &Attributes::default(), Expect::Any).unwrap();
}

fn get(guard: &mut Guard<'_>, name: u8, key: &[u8]) -> Option<Vec<u8>> {
    let key = guard.key_in(name, key);
    guard.get(&key).hit().map(|item| match item.value() {
        Value::Whole(value) => value.to_vec(),
        Value::Pieces(value) => value.pin().pieces(0).flatten().copied().collect(),
    })
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

/// Accounts between which money moves: whoever looks at all of them finds the same sum.
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
                // As one, by locking.
                let keys: Vec<_> = names.iter().map(|name| guard.key(name)).collect();
                guard.begin(keys);
                assert_eq!(names.iter().map(|name| number(&mut guard, name)).sum::<u64>(), SUM);
                guard.finish();
            } else {
                // As one, by versions.
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

/// One reader follows a pair that is always written together: it never goes back.
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
    drop(worker);
    store.check();
}

type Write<'a> = &'a dyn Fn(&mut Guard<'_>);

#[test]
fn watch_sees_writes_of_its_key_and_nothing_else() {
    let store = store(16);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    set(&mut guard, 0, b"k", b"v");
    let key = guard.key(b"k");
    let attributes = Attributes::default();
    let touching: [(&str, Write<'_>); 7] = [
        ("set", &|guard| set(guard, 0, b"k", b"v")),
        ("append", &|guard| {
            guard.concat(&key, b"", larder_store::End::Back, None, Expect::Any).unwrap();
        }),
        ("touch", &|guard| guard.touch(&key, NOW + 1000).unwrap()),
        ("touch_if", &|guard| assert!(guard.touch_if(&key, NOW + 1000, |_| true).unwrap())),
        ("delete_if", &|guard| assert!(guard.delete_if(&key, |_| true).unwrap())),
        ("delete", &|guard| guard.delete(&key, Expect::Present).unwrap()),
        ("add", &|guard| {
            guard.store_value(&key, b"v", &attributes, Expect::Absent).unwrap();
        }),
    ];
    for (what, write) in touching {
        let flag = Touched::default();
        let there = guard.watch(0, &key, &flag);
        assert_eq!(there, Some(what != "add"));
        set(&mut guard, 0, b"another", b"v");
        set(&mut guard, 3, b"k", b"v");
        let _ = guard.get(&key);
        let _ = guard.store_value(&key, b"v", &attributes, Expect::Cas(1));
        let _ = guard.touch_if(&key, NOW + 1000, |_| false);
        let _ = guard.delete_if(&key, |_| false);
        assert!(!flag.load(Ordering::Relaxed), "before {what}");
        write(&mut guard);
        assert!(flag.load(Ordering::Relaxed), "{what}");
        store.unwatch(0, b"k", &flag);
        guard.settle_watches();
        flag.store(false, Ordering::Relaxed);
        set(&mut guard, 0, b"k", b"v");
        assert!(!flag.load(Ordering::Relaxed), "after the watch of {what}");
        if what == "delete" {
            guard.delete(&key, Expect::Present).unwrap();
        }
    }
    assert_eq!(store.watch_bytes(), 0);
}

#[test]
fn watched_key_by_the_short_way_of_set_is_seen() {
    let store = store(16);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    set(&mut guard, 0, b"k", b"v");
    let key = guard.key(b"k");
    let flag = Touched::default();
    guard.watch(0, &key, &flag).unwrap();
    let mut hint = guard.prefetch_bucket(&key);
    guard.prefetch_item(&mut hint);
    guard.store_value_hinted(&key, b"w", &Attributes::default(), Expect::Any, &hint).unwrap();
    assert!(flag.load(Ordering::Relaxed));
}

#[test]
fn watches_hold_their_share_and_no_more() {
    let store = store(1);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let flag = Touched::default();
    let share = (1 << 20) / 16;
    let mut watched = 0u32;
    let name = |n: u32| format!("key:{n}").into_bytes();
    while let Some(there) = guard.watch(0, &store.key(&name(watched)), &flag) {
        assert!(!there);
        watched += 1;
        assert!(store.watch_bytes() <= share);
    }
    assert!(watched > 100 && store.watch_bytes() + 400 > share);
    for n in 0..watched {
        store.unwatch(0, &name(n), &flag);
        guard.settle_watches();
    }
    assert_eq!(store.watch_bytes(), 0);
}

/// A counter that is only ever raised by watch, look, transaction: nothing is lost.
#[test]
fn counter_raised_under_watches_counts_exactly() {
    let store = store(16);
    let each = 5_000u64;
    let retries: u64 = run(&store, 3, |_, worker| {
        let mut retries = 0;
        for _ in 0..each {
            loop {
                let flag = Touched::default();
                let mut guard = worker.enter(NOW);
                let key = guard.key(b"counter");
                guard.watch(0, &key, &flag).unwrap();
                let seen = number(&mut guard, b"counter");
                drop(guard);
                let mut guard = worker.enter(NOW);
                guard.begin([key]);
                let raised = flag.load(Ordering::Relaxed);
                if !raised {
                    set(&mut guard, 0, b"counter", &(seen + 1).to_le_bytes());
                }
                guard.finish();
                store.unwatch(0, b"counter", &flag);
                guard.settle_watches();
                if !raised {
                    break;
                }
                retries += 1;
            }
        }
        retries
    })
    .into_iter()
    .sum();
    let mut worker = store.worker().unwrap();
    assert_eq!(number(&mut worker.enter(NOW), b"counter"), 3 * each, "{retries} retries");
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
fn swapped_databases_take_their_watches_along() {
    let store = store(16);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    set(&mut guard, 1, b"there", b"v");
    set(&mut guard, 2, b"other", b"v");
    let flags: Vec<Touched> = (0..4).map(|_| Touched::default()).collect();
    for (flag, (name, key)) in
        flags.iter().zip([(1, &b"there"[..]), (1, b"other"), (1, b"nowhere"), (3, b"there")])
    {
        let key = guard.key_in(name, key);
        guard.watch(name, &key, flag).unwrap();
    }
    guard.swap_databases(1, 2);
    let raised: Vec<bool> = flags.iter().map(|flag| flag.load(Ordering::Relaxed)).collect();
    assert_eq!(raised, [true, true, false, false]);
    assert_eq!(
        (get(&mut guard, 2, b"there").is_some(), get(&mut guard, 1, b"other").is_some()),
        (true, true)
    );
    set(&mut guard, 2, b"nowhere", b"v");
    assert!(!flags[2].load(Ordering::Relaxed), "the watch is of database 1");
    set(&mut guard, 1, b"nowhere", b"v");
    assert!(flags[2].load(Ordering::Relaxed));
    for (flag, (name, key)) in
        flags.iter().zip([(1, &b"there"[..]), (1, b"other"), (1, b"nowhere"), (3, b"there")])
    {
        store.unwatch(name, key, flag);
        guard.settle_watches();
    }
    assert_eq!(store.watch_bytes(), 0);
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
        for n in 0..2_000u32 {
            set(&mut guard, 0, &n.to_le_bytes(), &[0; 1000]);
        }
        assert_eq!(guard.has_events(), expected != 0);
        guard.take_events(&mut |event, name, key| seen.push((event, name, key.to_vec())));
        assert!(!guard.has_events());
        match expected {
            0 => assert!(seen.is_empty()),
            1 => assert_eq!(seen, [(Event::Expired, 2, b"expires".to_vec())]),
            _ => assert!(seen.len() > 100 && seen.iter().all(|(event, ..)| *event == Event::Evicted)),
        }
    }
    assert_eq!(store.events_lost(), 0);
}

/// Raises a flag when it goes, also by a panic: the other threads end.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A transaction of many keys in a small, full store: what is beside its keys makes room, and who waits
/// for it holds back no memory.
#[test]
fn transaction_in_a_full_store_gets_its_memory_while_others_wait_for_it() {
    const KEYS: u64 = 60;
    for kind in 0..4 {
        let store = store(4);
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        (0..20_000u64).for_each(|n| set(&mut guard, 0, &n.to_be_bytes(), &[1; 400]));
        drop(guard);
        drop(worker);
        let names: Vec<String> = (0..KEYS).map(|n| format!("key-{n}")).collect();
        let stop = AtomicBool::new(false);
        run(&store, 2, |i, worker| {
            if i == 0 {
                let _end = Ends(&stop);
                for round in 0..20 {
                    let mut guard = worker.enter(NOW);
                    let keys: Vec<_> = names.iter().map(|name| guard.key(name.as_bytes())).collect();
                    guard.begin(keys.iter().copied());
                    for key in &keys {
                        let stored =
                            guard.store_value(key, &[2; 10_000], &Attributes::default(), Expect::Any);
                        assert!(stored.is_ok(), "way {kind}, round {round}: {stored:?}");
                    }
                    let there = keys.iter().filter(|key| guard.get(key).hit().is_some()).count();
                    assert_eq!(there as u64, KEYS, "a transaction evicts none of its own");
                    guard.finish();
                }
                return;
            }
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                round += 1;
                let mut guard = worker.enter(NOW);
                let name = names[round % KEYS as usize].as_bytes();
                match kind {
                    0 => drop(get(&mut guard, 0, name)),
                    1 => {
                        let key = guard.key(name);
                        let _ = guard.delete(&key, Expect::Present);
                    }
                    2 => {
                        let keys = [guard.key(name), guard.key(b"other")];
                        guard.begin(keys);
                        guard.finish();
                    }
                    _ => drop(guard.walk(0, 10, &mut |_| {})),
                }
            }
        });
        // A third of them, and a batch that was interrupted costs no more.
        let left = store.totals().items;
        assert!(left > 4_000, "way {kind}: {left} are left");
        store.check();
    }
}

/// What one worker deletes is room for another, which need not evict for it: also while the first does
/// nothing, neither allocate nor rest.
#[test]
fn what_a_worker_deletes_is_not_kept_by_it() {
    const KEYS: u64 = 60;
    let store = store(4);
    let (mut worker, mut deleter) = (store.worker().unwrap(), store.worker().unwrap());
    let names: Vec<String> = (0..KEYS).map(|n| format!("key-{n}")).collect();
    let mut guard = worker.enter(NOW);
    names.iter().for_each(|name| set(&mut guard, 0, name.as_bytes(), &[2; 10_000]));
    (0..20_000u64).for_each(|n| set(&mut guard, 0, &n.to_be_bytes(), &[1; 400]));
    drop(guard);
    let full = store.totals().items;
    for round in 0..20 {
        for name in &names {
            let mut guard = deleter.enter(NOW);
            let key = guard.key(name.as_bytes());
            let _ = guard.delete(&key, Expect::Present);
        }
        let mut guard = worker.enter(NOW);
        names.iter().for_each(|name| set(&mut guard, 0, name.as_bytes(), &[2; 10_000]));
        drop(guard);
        let left = store.totals().items;
        // Each takes the place of twenty-five small ones; a batch of the deleter's and its magazine wait.
        assert!(left + KEYS * 25 + 500 >= full, "round {round}: {left} of {full} are left");
    }
    drop((worker, deleter));
    store.check();
}

/// Where the index cannot grow, a new key takes the place of another that lives beside it: not of one that
/// the same transaction has written.
#[test]
fn transaction_whose_keys_have_no_place_in_the_index_evicts_none_of_its_own() {
    const KEYS: u64 = 3_000;
    let store = store(2);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    (0..100_000u64).for_each(|n| set(&mut guard, 0, &n.to_be_bytes(), b""));
    for round in 1..40u64 {
        let names: Vec<_> = (0..KEYS).map(|n| (round << 32 | n).to_be_bytes()).collect();
        let keys: Vec<_> = names.iter().map(|name| guard.key(name)).collect();
        guard.begin(keys.iter().copied());
        for key in &keys {
            guard.store_value(key, b"", &Attributes::default(), Expect::Any).unwrap();
        }
        let lost = keys.iter().filter(|key| guard.get(key).hit().is_none()).count();
        assert_eq!(lost, 0, "round {round}");
        guard.finish();
    }
    drop(guard);
    drop(worker);
    store.check();
}

/// A transaction that needs a seventh of a full store takes about that from the other keys, and so does
/// its repetition, which needs nothing more.
#[test]
fn transaction_in_a_full_store_evicts_about_what_it_needs() {
    const KEYS: u64 = 60;
    let store = store(4);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    (0..20_000u64).for_each(|n| set(&mut guard, 0, &n.to_be_bytes(), &[1; 400]));
    let (full, before) = (store.totals().items, store.totals().evictions);
    let names: Vec<String> = (0..KEYS).map(|n| format!("key-{n}")).collect();
    for round in 0..20 {
        let keys: Vec<_> = names.iter().map(|name| guard.key(name.as_bytes())).collect();
        guard.begin(keys.iter().copied());
        for key in &keys {
            guard.store_value(key, &[2; 10_000], &Attributes::default(), Expect::Any).unwrap();
        }
        assert!(keys.iter().all(|key| guard.get(key).hit().is_some()), "it evicts none of its own");
        guard.finish();
        let evicted = store.totals().evictions - before;
        // What it takes, and two spans' worth of the small values for each that the arena is short of.
        let needed = KEYS * 10_000 / 400;
        assert!(evicted <= needed * 3 / 2 + 500, "round {round}: {evicted} of {full} were evicted");
    }
    drop(guard);
    drop(worker);
    store.check();
}

/// What was evicted waits for the batch of another worker, which does not end: more would wait, too.
#[test]
fn batch_that_does_not_end_costs_no_more_than_what_is_needed() {
    let store = store(4);
    let (mut worker, mut other) = (store.worker().unwrap(), store.worker().unwrap());
    let mut guard = worker.enter(NOW);
    (0..20_000u64).for_each(|n| set(&mut guard, 0, &n.to_be_bytes(), &[1; 400]));
    drop(guard);
    let full = store.totals().items;
    let stuck = other.enter(NOW);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let stored = guard.store_value(&key, &[2; 10_000], &Attributes::default(), Expect::Any);
    assert!(stored.is_err(), "there was room without the others' memory");
    let left = store.totals().items;
    assert!(left + 500 >= full, "{left} of {full} are left");
    drop(stuck);
    guard.store_value(&key, &[2; 10_000], &Attributes::default(), Expect::Any).unwrap();
    drop(guard);
    drop((worker, other));
    store.check();
}

/// A copy for which there is no room beside the original is refused after one search for memory, not after
/// one for each of its pieces.
#[test]
fn copy_in_a_transaction_that_has_no_room_is_refused_and_the_original_stays() {
    const BYTES: u64 = (4 << 20) - 100_000;
    let store = store(8);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let (from, to) = (guard.key(b"from"), guard.key(b"to"));
    let value: Vec<u8> = (0..BYTES).map(|n| (n % 251) as u8).collect();
    guard.store_value(&from, &value, &Attributes::default(), Expect::Any).unwrap();
    guard.begin([from, to]);
    let stored = guard.upload(&to, BYTES, &Attributes::default()).and_then(|mut upload| {
        guard.upload_fill(&mut upload, &value)?;
        guard.publish(upload, Expect::Any)
    });
    guard.finish();
    let held = guard.get(&from).hit().map(|item| item.value_bytes());
    assert_eq!(held, Some(BYTES), "{stored:?}");
    drop(guard);
    drop(worker);
    store.check();
}
