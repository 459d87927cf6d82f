//! What the store promises, seen from outside, on one thread.

mod memory;
mod tokens;
mod uploads;

use crate::plain::{collect, store};
use larder_store::{Attributes, End, Expect, Guard, Lookup, Refusal};

const NOW: u64 = 1_700_000_000_000;

fn set(guard: &mut Guard<'_>, key: &[u8], value: &[u8]) -> u64 {
    let key = guard.key(key);
    guard.store_value(&key, value, &Attributes::default(), Expect::Any).unwrap().cas
}

fn get(guard: &mut Guard<'_>, key: &[u8]) -> Option<Vec<u8>> {
    let key = guard.key(key);
    guard.get(&key).hit().map(|item| collect(item.value()))
}

#[test]
fn values_of_every_size_come_back() {
    let (_store, mut worker) = store(64);
    let mut guard = worker.enter(NOW);
    for bytes in (0..40).chain([250, 1000, 4000, 16_000, 16_383, 16_384, 16_400, 70_000, 1 << 20, 5 << 20]) {
        let value: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8).collect();
        set(&mut guard, b"k", &value);
        assert!(get(&mut guard, b"k").unwrap() == value, "{bytes} bytes");
    }
}

#[test]
fn a_million_keys_come_back_while_the_index_grows() {
    let (store, mut worker) = store(256);
    let count = 1_000_000u32;
    for i in 0..count {
        let mut guard = worker.enter(NOW);
        set(&mut guard, format!("key:{i:09}").as_bytes(), &i.to_le_bytes());
    }
    let mut guard = worker.enter(NOW);
    for i in 0..count {
        assert_eq!(get(&mut guard, format!("key:{i:09}").as_bytes()).unwrap(), i.to_le_bytes());
    }
    let totals = store.totals();
    assert_eq!((totals.items, totals.evictions), (u64::from(count), 0));
    let load = f64::from(count) / totals.index_slots as f64;
    assert!((0.7..1.0).contains(&load), "load {load}");
}

#[test]
fn conditions_decide() {
    let (_store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"k");
    let plain = Attributes::default();
    assert_eq!(guard.store_value(&key, b"v", &plain, Expect::Present), Err(Refusal::Absent));
    assert_eq!(guard.store_value(&key, b"v", &plain, Expect::Cas(1)), Err(Refusal::Absent));
    let first = guard.store_value(&key, b"v", &plain, Expect::Absent).unwrap();
    assert!(!first.replaced);
    assert_eq!(guard.store_value(&key, b"v", &plain, Expect::Absent), Err(Refusal::Present));
    let second = guard.store_value(&key, b"w", &plain, Expect::Cas(first.cas)).unwrap();
    assert!(second.replaced && second.cas > first.cas);
    assert_eq!(guard.delete(&key, Expect::Cas(first.cas)), Err(Refusal::Changed));
    assert_eq!(guard.delete(&key, Expect::Cas(second.cas)), Ok(()));
    assert_eq!(guard.delete(&key, Expect::Present), Err(Refusal::Absent));
}

#[test]
fn expired_item_is_absent_to_the_millisecond() {
    let (store, mut worker) = store(16);
    let attributes = Attributes { expires_at: NOW + 100, ..Attributes::default() };
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"k");
    guard.store_value(&key, b"v", &attributes, Expect::Any).unwrap();
    drop(guard);
    assert!(matches!(worker.enter(NOW + 99).get(&key), Lookup::Hit(_)));
    assert!(matches!(worker.enter(NOW + 100).get(&key), Lookup::Expired));
    assert!(matches!(worker.enter(NOW + 100).get(&key), Lookup::Miss));
    assert_eq!((store.totals().items, store.totals().reclaimed), (0, 1));
}

#[test]
fn touch_changes_expiry_and_not_the_token() {
    let (_store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    for bytes in [5, 16_370, 100_000] {
        let value = vec![7; bytes];
        let key = guard.key(b"k");
        let cas = set(&mut guard, b"k", &value);
        for at in [NOW + 50, 0, NOW + 70] {
            guard.touch(&key, at).unwrap();
            let item = guard.peek(&key).hit().unwrap();
            assert_eq!((item.expires_at(), item.cas(), item.value_bytes()), (at, cas, bytes as u64));
        }
        assert!(get(&mut guard, b"k").unwrap() == value);
    }
}

#[test]
fn what_was_seen_is_another_when_it_expires_otherwise() {
    let (_store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"k");
    let attributes = Attributes { expires_at: NOW + 1000, ..Attributes::default() };
    guard.store_value(&key, b"5", &attributes, Expect::Any).unwrap();
    let seen = Expect::Unchanged(guard.peek(&key).hit().unwrap().seen());
    guard.touch(&key, 0).unwrap();
    assert_eq!(guard.store_value(&key, b"6", &attributes, seen), Err(Refusal::Changed));
    assert_eq!(guard.delete(&key, seen), Err(Refusal::Changed));
    let seen = Expect::Unchanged(guard.peek(&key).hit().unwrap().seen());
    assert!(guard.store_value(&key, b"6", &Attributes::default(), seen).is_ok());
}

#[test]
fn concat_keeps_flags_and_expiry_at_every_size() {
    let (_store, mut worker) = store(64);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"k");
    let attributes = Attributes { flags: 9, expires_at: NOW + 1000, ..Attributes::default() };
    assert_eq!(guard.concat(&key, b"x", End::Back, None, Expect::Present), Err(Refusal::Absent));
    guard.store_value(&key, b"mid", &attributes, Expect::Any).unwrap();
    let mut model = b"mid".to_vec();
    for bytes in [1usize, 20, 9_000, 9_000, 40_000, 3] {
        let part = vec![b'0' + (bytes % 10) as u8; bytes];
        guard.concat(&key, &part, End::Back, None, Expect::Present).unwrap();
        guard.concat(&key, &part, End::Front, None, Expect::Present).unwrap();
        model = [part.clone(), model, part].concat();
        let item = guard.peek(&key).hit().unwrap();
        assert_eq!((item.flags(), item.expires_at()), (9, NOW + 1000));
        assert!(get(&mut guard, b"k").unwrap() == model);
    }
}

#[test]
fn flush_removes_all_at_once_and_nothing_after() {
    let (store, mut worker) = store(64);
    let mut guard = worker.enter(NOW);
    for round in 0..300 {
        for i in 0..20 {
            set(&mut guard, format!("k{i}").as_bytes(), b"v");
        }
        guard.flush();
        set(&mut guard, b"k3", b"new");
        if round % 50 == 0 {
            let key = guard.key(b"k4");
            assert!(!matches!(guard.get(&key), Lookup::Hit(_)));
            assert_eq!(get(&mut guard, b"k3").unwrap(), b"new");
        }
    }
    while guard.maintain() {}
    drop(guard);
    assert_eq!(store.totals().items, 1);
}

#[test]
fn walk_visits_every_key_while_the_index_grows() {
    let (_store, mut worker) = store(128);
    let mut guard = worker.enter(NOW);
    for i in 0..50_000u32 {
        set(&mut guard, format!("k{i}").as_bytes(), b"v");
    }
    let mut seen = std::collections::HashSet::new();
    let (mut cursor, mut next) = (0, 50_000u32);
    loop {
        cursor = guard.walk(cursor, 100, &mut |item| {
            seen.insert(item.key().to_vec());
        });
        if cursor == 0 {
            break;
        }
        for _ in 0..200 {
            set(&mut guard, format!("k{next}").as_bytes(), b"v");
            next += 1;
        }
    }
    for i in 0..50_000u32 {
        assert!(seen.contains(format!("k{i}").as_bytes()), "k{i}");
    }
}

#[test]
fn an_item_that_is_given_an_expiry_keeps_its_marks() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    // The longer value fits one chunk only if the item has no word for its expiry.
    for bytes in [10, 16_370] {
        for fetched in [false, true] {
            set(&mut guard, b"k", &vec![7; bytes]);
            if fetched {
                assert!(get(&mut guard, b"k").is_some());
            }
            let key = guard.key(b"k");
            guard.touch(&key, NOW + 1000).unwrap();
            let Lookup::Hit(item) = guard.peek(&key) else { panic!("it is there") };
            assert_eq!((item.fetched(), item.expires_at()), (fetched, NOW + 1000), "{bytes}");
            assert_eq!(get(&mut guard, b"k").unwrap(), vec![7; bytes]);
        }
    }
    assert_eq!(store.totals().items_stored, 4, "a copy in another shape is no item more");
}

#[test]
fn what_a_flush_takes_in_the_second_of_its_last_access_was_never_there() {
    let (_store, mut worker) = store(16);
    let mut guard = worker.enter(NOW + 100);
    set(&mut guard, b"old", b"x");
    drop(guard);
    let mut guard = worker.enter(NOW + 1000);
    set(&mut guard, b"new", b"x");
    drop(guard);
    let mut guard = worker.enter(NOW + 1999);
    guard.flush();
    drop(guard);
    // If several flushes removed a key, a reader learns of the first, however late it reads.
    let mut guard = worker.enter(NOW + 5000);
    guard.flush();
    for (name, flushed) in [(b"old", true), (b"new", false)] {
        let key = guard.key(name);
        let told = guard.get(&key);
        assert_eq!(
            (matches!(told, Lookup::Flushed), matches!(told, Lookup::Miss)),
            (flushed, !flushed),
            "{name:?}"
        );
        assert!(matches!(guard.get(&key), Lookup::Miss));
    }
}

#[test]
fn every_flushed_key_that_is_asked_for_says_so_once() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    for i in 0..1000u32 {
        set(&mut guard, &i.to_le_bytes(), b"x");
    }
    drop(guard);
    let mut guard = worker.enter(NOW + 1000);
    guard.flush();
    for i in 0..1000u32 {
        let bytes = i.to_le_bytes();
        let key = guard.key(&bytes);
        assert!(matches!(guard.get(&key), Lookup::Flushed), "{i}");
        assert!(matches!(guard.get(&key), Lookup::Miss), "{i}");
    }
    assert_eq!(store.totals().items, 0);
}
