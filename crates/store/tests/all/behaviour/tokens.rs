//! Tokens and marks: they grow, are compared, and stay valid while other things happen to the store.

use crate::behaviour::{NOW, set, store};
use larder_store::{Attributes, Expect, Guard, Refusal, Worker};

#[test]
fn tokens_grow_across_delete_flush_expiry_and_overwrite() {
    let (_store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"k");
    let mut last = set(&mut guard, b"k", b"1");
    for step in 0..40 {
        let old = last;
        match step % 4 {
            0 => guard.delete(&key, Expect::Present).unwrap(),
            1 => guard.flush(),
            2 => guard.touch(&key, 1).unwrap(),
            _ => {}
        }
        last = set(&mut guard, b"k", b"2");
        assert!(last > old && last < 1 << 63);
        let late = guard.store_value(&key, b"3", &Attributes::default(), Expect::Cas(old));
        assert_eq!(late, Err(Refusal::Changed));
    }
}

#[test]
fn explicit_token_is_kept_and_compared() {
    let (_store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"k");
    let attributes = Attributes { cas: Some(77), ..Attributes::default() };
    assert_eq!(guard.store_value(&key, b"v", &attributes, Expect::Any).unwrap().cas, 77);
    guard.touch(&key, NOW + 5000).unwrap();
    assert_eq!(guard.peek(&key).hit().unwrap().cas(), 77);
    assert!(guard.store_value(&key, b"w", &Attributes::default(), Expect::Cas(77)).is_ok());
    assert_eq!(guard.invalidate(&key, Some(5), Some(NOW + 9), Expect::Present).unwrap().cas, 5);
    let item = guard.peek(&key).hit().unwrap();
    assert!(item.stale() && !item.token_sent() && item.cas() == 5 && item.expires_at() == NOW + 9);
}

#[test]
fn token_is_claimed_once() {
    let (_store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"k");
    set(&mut guard, b"k", b"v");
    let seen = guard.peek(&key).hit().unwrap().seen();
    assert!(guard.claim_token(&key, seen));
    assert!(!guard.claim_token(&key, seen));
    guard.invalidate(&key, None, None, Expect::Present).unwrap();
    assert!(!guard.claim_token(&key, seen), "it is another version now");
    let seen = guard.peek(&key).hit().unwrap().seen();
    assert!(guard.claim_token(&key, seen));
}

/// What was seen of an item is its place and version: a later item of the same key at the same place is
/// another.
#[test]
fn what_was_seen_is_not_what_was_stored_later_at_the_same_place() {
    let (store, mut worker) = store(4);
    let set = |worker: &mut Worker, value: &[u8]| {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"k");
        guard.store_value(&key, value, &Attributes::default(), Expect::Any).unwrap();
        guard.get(&key).hit().unwrap().seen()
    };
    let place = |seen: larder_store::Seen| {
        let text = format!("{seen:?}");
        text.split(',').next().expect("a location").to_owned()
    };
    let mut earlier = vec![set(&mut worker, b"first")];
    // Deletes the key and stores it again until an item gets a place that an earlier one had.
    let (first, again) = (0..10_000)
        .find_map(|_| {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"k");
            guard.delete(&key, Expect::Present).unwrap();
            drop(guard);
            let seen = set(&mut worker, b"other");
            let first = earlier.iter().find(|&&first| place(first) == place(seen)).copied();
            earlier.push(seen);
            first.map(|first| (first, seen))
        })
        .expect("a freed chunk is used again");
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"k");
    let attributes = Attributes::default();
    assert_eq!(guard.store_value(&key, b"x", &attributes, Expect::Unchanged(first)), Err(Refusal::Changed));
    assert_eq!(guard.delete(&key, Expect::Unchanged(first)), Err(Refusal::Changed));
    assert!(!guard.claim_token(&key, first) && guard.claim_token(&key, again));
    assert!(guard.store_value(&key, b"x", &attributes, Expect::Unchanged(again)).is_ok());
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn old_token_fails_after_an_eviction_too() {
    let (store, mut worker) = store(2);
    let mut guard = worker.enter(NOW);
    let set = |guard: &mut Guard<'_>, name: u32| {
        let name = name.to_be_bytes();
        let key = guard.key(&name);
        guard.store_value(&key, &[7; 500], &Attributes::default(), Expect::Any).unwrap().cas
    };
    let tokens: Vec<u64> = (0..50).map(|name| set(&mut guard, name)).collect();
    for name in 1_000..21_000 {
        set(&mut guard, name);
    }
    for (name, token) in (0u32..).zip(tokens) {
        let bytes = name.to_be_bytes();
        let key = guard.key(&bytes);
        assert!(guard.get(&key).hit().is_none(), "it was to be evicted");
        let again = set(&mut guard, name);
        assert!(again > token);
        let late = guard.store_value(&key, b"late", &Attributes::default(), Expect::Cas(token));
        assert_eq!(late, Err(Refusal::Changed));
    }
    assert!(store.totals().evictions >= 50);
}

#[test]
fn tokens_grow_while_the_index_grows_and_shrinks() {
    let (store, mut worker) = store(64);
    let mut guard = worker.enter(NOW);
    let mut last = vec![0; 300];
    for round in 0..4u32 {
        for (name, last) in (0u32..).zip(&mut last) {
            let token = set(&mut guard, &name.to_be_bytes(), b"v");
            assert!(token > *last, "round {round}");
            *last = token;
        }
        let names = (round + 1) << 20..((round + 1) << 20) + 60_000;
        for name in names.clone() {
            set(&mut guard, &name.to_be_bytes(), b"v");
        }
        if round % 2 == 1 {
            for name in (round << 20..(round << 20) + 60_000).chain(names) {
                let bytes = name.to_be_bytes();
                let key = guard.key(&bytes);
                guard.delete(&key, Expect::Present).unwrap();
            }
            // A pass of upkeep shrinks the index.
            let slots = store.totals().index_slots;
            for now in (NOW..NOW + 220_000).step_by(100) {
                drop(guard);
                guard = worker.enter(now);
                (0..200).take_while(|_| guard.maintain()).for_each(drop);
            }
            assert!(store.totals().index_slots < slots / 4);
        }
    }
}
