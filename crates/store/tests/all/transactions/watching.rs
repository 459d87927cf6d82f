//! Watches: which writes set their flags, and how much memory they may take.

use crate::transactions::{NOW, get, number, run, set, store};
use larder_store::{Attributes, Expect, Guard, Touched};
use std::sync::atomic::Ordering;

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
        guard.end_watches();
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
    guard.prefetch_item(&key, &mut hint);
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
        guard.end_watches();
    }
    assert_eq!(store.watch_bytes(), 0);
}

/// A counter that is raised only by WATCH, a read and a transaction: no update is lost.
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
                guard.end_watches();
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
        guard.end_watches();
    }
    assert_eq!(store.watch_bytes(), 0);
}
