//! What the store promises, seen from outside, on one thread.

use larder_store::{Attributes, Config, End, Expect, Guard, Lookup, Refusal, Store, Value, Worker};
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;

fn store(megabytes: u64) -> (Arc<Store>, Worker) {
    let store = Store::new(Config { memory_bytes: megabytes << 20, ..Config::default() }).unwrap();
    let worker = store.worker().unwrap();
    (store, worker)
}

fn set(guard: &mut Guard<'_>, key: &[u8], value: &[u8]) -> u64 {
    let key = guard.key(key);
    guard.store_value(&key, value, &Attributes::default(), Expect::Any).unwrap().cas
}

fn get(guard: &mut Guard<'_>, key: &[u8]) -> Option<Vec<u8>> {
    let key = guard.key(key);
    guard.get(&key).hit().map(|item| match item.value() {
        Value::Whole(value) => value.to_vec(),
        Value::Pieces(value) => value.pin().pieces(0).flatten().copied().collect(),
    })
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
fn abandoned_uploads_and_pins_give_their_memory_back() {
    let (store, mut worker) = store(64);
    let value = vec![5; 3 << 20];
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"big");
    let mut upload = guard.upload(&key, 3 << 20, &Attributes::default()).unwrap();
    guard.upload_reserve(&mut upload, 100_000).unwrap();
    assert!(upload.spaces().map(|space| space.len()).sum::<usize>() >= 100_000);
    drop(upload);
    set(&mut guard, b"big", &value);
    let pinned = guard.get(&key).hit().unwrap().pin();
    guard.delete(&key, Expect::Present).unwrap();
    drop(guard);
    for _ in 0..4 {
        worker.enter(NOW).maintain();
    }
    assert!(pinned.pieces(0).flatten().eq(&value), "a pinned value outlives its key");
    assert!(pinned.pieces(1_000_000).flatten().eq(&value[1_000_000..]));
    assert!(store.totals().item_bytes > 3 << 20);
    drop(pinned);
    assert_eq!(store.totals().item_bytes, 0);
}

#[test]
fn uploads_hold_at_most_their_share_together_and_one_alone_any_part() {
    let (_store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let receive = |guard: &mut Guard<'_>, upload: &mut larder_store::Upload, bytes: u64| {
        let target = upload.missing().saturating_sub(bytes);
        while upload.missing() > target {
            guard.upload_reserve(upload, 100_000)?;
            let n = upload.spaces().next().unwrap().len();
            upload.advance(n);
        }
        Ok::<(), Refusal>(())
    };
    let key = guard.key(b"big");
    let mut upload = guard.upload(&key, 7 << 20, &Attributes::default()).unwrap();
    receive(&mut guard, &mut upload, u64::MAX).unwrap();
    guard.publish(upload, Expect::Any).unwrap();

    let other = guard.key(b"other");
    let mut waiting = guard.upload(&other, 1 << 20, &Attributes::default()).unwrap();
    receive(&mut guard, &mut waiting, 500_000).unwrap();
    let mut upload = guard.upload(&key, 7 << 20, &Attributes::default()).unwrap();
    assert_eq!(receive(&mut guard, &mut upload, u64::MAX), Err(Refusal::NoMemory));
    let held = 7 * 1024 * 1024 - upload.missing();
    assert!((3 << 20..4 << 20).contains(&held), "{held}");
}

#[test]
fn uploads_with_memory_ahead_leave_half_of_the_share_to_others() {
    let (_store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let mut uploads = Vec::new();
    for i in 0..100 {
        let name = [i];
        let key = guard.key(&name);
        let mut upload = guard.upload(&key, 1 << 20, &Attributes::default()).unwrap();
        guard.upload_reserve(&mut upload, 100_000).unwrap();
        uploads.push(upload);
    }
    let spaces: Vec<usize> = uploads.iter_mut().map(|upload| upload.spaces().count()).collect();
    assert_eq!((spaces[0], spaces[99]), (7, 1), "{spaces:?}");
}

#[test]
fn an_upload_is_filled_across_its_spaces_in_any_steps() {
    // So large that its pieces need two tables beside the one in its head.
    const BYTES: usize = 70 << 20;
    let (_store, mut worker) = store(512);
    let mut guard = worker.enter(NOW);
    let value: Vec<u8> = (0..BYTES).map(|i| (i % 65_521 % 251) as u8).collect();
    let key = guard.key(b"big");
    let mut upload = guard.upload(&key, BYTES as u64, &Attributes::default()).unwrap();
    let mut at = 0;
    for step in (0..).map(|i| 1 + i * 7_919 % 130_000) {
        if upload.missing() == 0 {
            break;
        }
        guard.upload_reserve(&mut upload, 100_000).unwrap();
        let before = at;
        for space in upload.spaces() {
            let n = space.len().min(step - (at - before)).min(BYTES - at);
            space[..n].copy_from_slice(&value[at..at + n]);
            at += n;
        }
        upload.advance(at - before);
        assert_eq!(upload.missing() as usize, BYTES - at);
    }
    guard.publish(upload, Expect::Absent).unwrap();
    assert!(get(&mut guard, b"big").unwrap() == value);
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

#[test]
fn an_item_that_is_given_an_expiry_keeps_its_marks() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    // Also where the word for the expiry makes it too long for one chunk.
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
fn every_flushed_key_that_is_asked_for_says_so_once() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    for i in 0..1000u32 {
        set(&mut guard, &i.to_le_bytes(), b"x");
    }
    guard.flush();
    for i in 0..1000u32 {
        let bytes = i.to_le_bytes();
        let key = guard.key(&bytes);
        assert!(matches!(guard.get(&key), Lookup::Flushed), "{i}");
        assert!(matches!(guard.get(&key), Lookup::Miss), "{i}");
    }
    assert_eq!(store.totals().items, 0);
}

/// What was seen names a place and a version: another item of the same key at the same place is another.
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
    // Deleted and stored again until some memory is used again.
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
    drop(worker);
    store.check();
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
            // A pass of upkeep makes the index small again.
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

/// Keys that are read twice on probation enter main, and the hand there passes over what was read.
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
    // 1. Into main, while there is memory: every tenth is read.
    (0..6_000).for_each(|name| write(&mut worker, name, if name % 10 == 0 { 3 } else { 0 }));
    assert_eq!(store.totals().evictions, 0);
    // 2. On probation: every fifth is read, and takes the place of what was not in main.
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
    drop(worker);
    store.check();
}
