//! Databases, flushes of one of them, and long keys, seen from outside.

use crate::plain::{get_in as get, set_in as set, store};
use larder_store::{Attributes, DATABASES, Expect, KEY_BYTES_MAX, Lookup, Refusal};

const NOW: u64 = 1_700_000_000_000;

#[test]
fn databases_do_not_see_each_other() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    for database in 0..DATABASES {
        set(&mut guard, database, b"k", &[database]);
    }
    for database in 0..DATABASES {
        assert_eq!(get(&mut guard, database, b"k"), Some(vec![database]));
        assert_eq!(store.database_items(database), 1);
    }
    let key = guard.key_in(3, b"k");
    guard.delete(&key, Expect::Present).unwrap();
    assert!(matches!(guard.get(&key), Lookup::Miss));
    assert_eq!((store.database_items(3), store.database_items(0)), (0, 1));
    assert_eq!(get(&mut guard, 4, b"k"), Some(vec![4]));
    let mut seen = Vec::new();
    guard.walk(0, 1000, &mut |item| seen.push(item.database()));
    seen.sort_unstable();
    assert_eq!(seen, (0..DATABASES).filter(|&database| database != 3).collect::<Vec<_>>());
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn flush_of_one_database_leaves_the_others() {
    let (store, mut worker) = store(64);
    let count = 20_000u32;
    let mut guard = worker.enter(NOW);
    for database in [0, 1, 2] {
        for i in 0..count {
            set(&mut guard, database, &i.to_le_bytes(), &[database]);
        }
    }
    let items = |database| store.database_items(database);
    drop(guard);
    let mut guard = worker.enter(NOW + 1000);
    guard.flush_database(1);
    assert_eq!((items(0), items(1), items(2)), (u64::from(count), 0, u64::from(count)));
    let seven = 7u32.to_le_bytes();
    let key = guard.key_in(1, &seven);
    assert!(matches!(guard.get(&key), Lookup::Flushed));
    // Keys that are set after the flush stay, whether or not their bucket was cleaned before.
    set(&mut guard, 1, &5u32.to_le_bytes(), b"new");
    set(&mut guard, 1, b"other", b"new");
    assert_eq!(items(1), 2);
    guard.flush_database(0);
    assert_eq!((items(0), items(1), items(2)), (0, 2, u64::from(count)));
    for i in 0..count {
        assert_eq!(get(&mut guard, 0, &i.to_le_bytes()), None);
        assert_eq!(get(&mut guard, 1, &i.to_le_bytes()), (i == 5).then(|| b"new".to_vec()));
        assert_eq!(get(&mut guard, 2, &i.to_le_bytes()), Some(vec![2]));
    }
    while guard.maintain() {}
    assert_eq!((items(0), items(1), items(2)), (0, 2, u64::from(count)));
    assert_eq!(store.totals().items, u64::from(count) + 2);
    guard.flush();
    assert_eq!((items(0), items(1), items(2)), (0, 0, 0));
    drop(guard);
    drop(worker);
}

#[test]
fn flushes_of_databases_past_the_wrap_of_their_stamps_leave_the_others() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    for i in 0..2000u32 {
        set(&mut guard, 0, &i.to_le_bytes(), b"v");
    }
    for round in 0..1000u32 {
        set(&mut guard, 1 + (round % 3) as u8, b"k", b"v");
        guard.flush_database(1 + (round % 3) as u8);
    }
    for i in 0..2000u32 {
        assert_eq!(get(&mut guard, 0, &i.to_le_bytes()), Some(b"v".to_vec()), "{i}");
    }
    assert_eq!(get(&mut guard, 1, b"k"), None);
    assert_eq!((store.database_items(0), store.database_items(1)), (2000, 0));
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn items_of_any_database_move_when_the_index_grows() {
    let (store, mut worker) = store(64);
    let mut guard = worker.enter(NOW);
    for i in 0..60_000u32 {
        set(&mut guard, (i % 16) as u8, &i.to_le_bytes(), &i.to_be_bytes());
    }
    for i in 0..60_000u32 {
        assert_eq!(get(&mut guard, (i % 16) as u8, &i.to_le_bytes()), Some(i.to_be_bytes().to_vec()));
    }
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn keys_of_every_length_come_back() {
    let (store, mut worker) = store(64);
    let mut guard = worker.enter(NOW);
    let lengths = [0, 1, 250, 254, 255, 256, 8191, 8192, 8193, 16_384, 65_535, KEY_BYTES_MAX];
    for database in [0, 5] {
        for bytes in lengths {
            for value in [0, 10, 16_000, 100_000] {
                let key = vec![b'k'; bytes];
                let value = vec![value as u8; value];
                set(&mut guard, database, &key, &value);
                assert!(get(&mut guard, database, &key).as_ref() == Some(&value), "{bytes}");
                let key = guard.key_in(database, &key);
                guard.touch(&key, NOW + 1000).unwrap();
                guard.concat(&key, b"+", larder_store::End::Back, None, Expect::Any).unwrap();
                let Lookup::Hit(item) = guard.get(&key) else { panic!("it was stored") };
                assert_eq!((item.key().len(), item.value_bytes()), (bytes, value.len() as u64 + 1));
                assert_eq!((item.expires_at(), item.database()), (NOW + 1000, database));
            }
        }
    }
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    let key = guard.key(&long);
    let refused = guard.store_value(&key, b"", &Attributes::default(), Expect::Any);
    assert_eq!(refused.unwrap_err(), Refusal::NoMemory);
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn long_keys_take_their_share_and_give_it_back() {
    let (store, mut worker) = store(4);
    let used = store.totals().used_bytes;
    let key = |i: u32| {
        let mut key = vec![b'k'; KEY_BYTES_MAX];
        key[..4].copy_from_slice(&i.to_le_bytes());
        key
    };
    for round in 0..3 {
        let mut stored = 0;
        for i in 0..100 {
            let mut guard = worker.enter(NOW);
            let key = key(i);
            let key = guard.key(&key);
            stored += u32::from(guard.store_value(&key, b"v", &Attributes::default(), Expect::Any).is_ok());
        }
        assert_eq!(stored, 8, "an eighth of the memory, in round {round}");
        for i in 0..100 {
            let mut guard = worker.enter(NOW);
            let key = key(i);
            let key = guard.key(&key);
            let _ = guard.delete(&key, Expect::Present);
        }
        for _ in 0..3 {
            worker.rest();
        }
        assert!(store.totals().used_bytes <= used + (2 << 16), "freed keys are not charged");
    }
    store.check_behind(worker);
}
