//! Elements of lists that were received, against vectors, values of fields, against maps, and members of sets, against sets:
//! their pieces have 700 bytes here, as parts have.

use super::apart_tests::{List, compare, element};
use super::testing::{ends, member_of, text};
use super::tests::{NOW, move_all, store};
use crate::collection::build::STRING_BYTES_MAX;
use crate::collection::{Declined, Fields, Lasting, Type};
use crate::worker::{Guard, Worker};
use crate::{Attributes, End, Expect, Key, Store, Upload};
use std::collections::{BTreeMap, BTreeSet};

/// An upload of an element for a list under this key, which is filled so many bytes at a time.
fn receive(guard: &mut Guard<'_>, key: &Key<'_>, element: &[u8], step: usize) -> Upload {
    let mut upload = guard.upload_element(key, element.len() as u64).unwrap().expect("it is long enough");
    for bytes in element.chunks(step) {
        guard.upload_fill(&mut upload, bytes).unwrap();
    }
    assert_eq!((upload.missing(), upload.value_bytes()), (0, element.len() as u64));
    upload
}

/// What waits for this worker to leave its epoch is given back.
fn reclaim_all(worker: &mut Worker) {
    for _ in 0..200 {
        worker.enter(NOW).maintain();
    }
}

/// Into lists of every form, at both ends; all that has come goes again.
#[test]
fn an_element_that_is_received_is_as_one_that_is_pushed() {
    let lengths = [STRING_BYTES_MAX + 1, 25 * 700 - 1, 25 * 700, 25 * 700 + 1, 40_000];
    for shorts in [0, 1, 5, 60] {
        for (front, step) in [(true, 699), (true, 100_000), (false, 700), (false, 1_401)] {
            let (store, mut worker) = store(16);
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            let mut list: List = (0..shorts).map(|n| element(n, 40)).collect();
            if shorts > 0 {
                guard.list_push(&key, End::Back, list.iter().map(Vec::as_slice), false).unwrap();
            }
            for (n, bytes) in lengths.into_iter().enumerate() {
                let new = element(n, bytes);
                let upload = receive(&mut guard, &key, &new, step);
                compare(&mut guard, &key, &list);
                assert_eq!(store.input_bytes(), bytes as u64);
                assert_eq!(guard.list_push_upload(&key, ends(front), upload, false), Ok(list.len() + 1));
                assert_eq!(store.input_bytes(), 0);
                list.insert(if front { 0 } else { list.len() }, new);
                compare(&mut guard, &key, &list);
                move_all(&store, &mut guard);
                compare(&mut guard, &key, &list);
            }
            while !list.is_empty() {
                list.remove(0);
                assert!(guard.list_pop(&key, End::Front, 1).unwrap().is_some());
                compare(&mut guard, &key, &list);
            }
            drop(guard);
            reclaim_all(&mut worker);
            store.check_behind(worker);
            assert_eq!((store.totals().item_bytes, store.trees.count()), (0, 0));
        }
    }
}

/// It is beside other long ones, in front of them and behind them.
#[test]
fn elements_that_are_received_lie_beside_each_other() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let mut list = List::new();
    for n in 0..60 {
        let (front, new) = (n % 3 == 0, element(n, 17_000 + n));
        if n % 4 == 3 {
            guard.list_push(&key, ends(front), [&new[..]].into_iter(), false).unwrap();
        } else {
            let upload = receive(&mut guard, &key, &new, 100_000);
            assert_eq!(guard.list_push_upload(&key, ends(front), upload, false), Ok(n + 1));
        }
        list.insert(if front { 0 } else { list.len() }, new);
        if n % 10 == 0 {
            move_all(&store, &mut guard);
        }
    }
    compare(&mut guard, &key, &list);
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn a_push_of_which_any_allocation_is_refused_has_done_nothing_and_keeps_nothing() {
    for shorts in [0, 1, 5, 60] {
        for front in [true, false] {
            let (store, mut worker) = store(16);
            let mut list: List = (0..shorts).map(|n| element(n, 40)).collect();
            let new = element(0, 40_000);
            for budget in 0.. {
                reclaim_all(&mut worker);
                let before = store.totals().item_bytes;
                let mut guard = worker.enter(NOW);
                let key = guard.key(b"key");
                if shorts > 0 && budget == 0 {
                    guard.list_push(&key, End::Back, list.iter().map(Vec::as_slice), false).unwrap();
                }
                let upload = receive(&mut guard, &key, &new, 100_000);
                guard.local.refuse_after = Some(budget);
                let pushed = guard.list_push_upload(&key, ends(front), upload, false);
                guard.local.refuse_after = None;
                assert_eq!(store.input_bytes(), 0);
                if pushed.is_ok() {
                    assert!(budget > 0, "a new element has a leaf of its own at least");
                    assert_eq!(pushed, Ok(shorts + 1));
                    list.insert(if front { 0 } else { shorts }, new);
                    compare(&mut guard, &key, &list);
                    break;
                }
                assert_eq!(pushed, Err(Declined::NoMemory));
                compare(&mut guard, &key, &list);
                drop(guard);
                reclaim_all(&mut worker);
                if budget > 0 {
                    assert_eq!(store.totals().item_bytes, before, "{budget} of {shorts}");
                }
            }
            store.check_behind(worker);
        }
    }
}

/// In any place of lists of every form, whatever was there. Where there is no such place it is put nowhere.
#[test]
fn an_element_that_is_received_takes_a_place() {
    for len in [1, 5, 60] {
        let (store, mut worker) = store(16);
        let mut guard = worker.enter(NOW);
        let (key, none) = (guard.key(b"key"), guard.key(b"none"));
        let mut list: List = (0..len).map(|n| element(n, if n % 7 == 3 { 17_000 } else { 40 })).collect();
        guard.list_push(&key, End::Back, list.iter().map(Vec::as_slice), false).unwrap();
        for n in 0..30 {
            let (place, new) = (n * 7 % len, element(n, STRING_BYTES_MAX + 1 + n * 353));
            let upload = receive(&mut guard, &key, &new, 1_401);
            assert_eq!(guard.list_set_upload(&key, upload, |_| Some(place)), Ok(Some(true)));
            list[place] = new;
            compare(&mut guard, &key, &list);
            if n % 5 == 0 {
                move_all(&store, &mut guard);
                compare(&mut guard, &key, &list);
            }
            if n % 3 == 0 {
                list[place] = b"short".to_vec();
                assert_eq!(guard.list_set(&key, b"short", |_| Some(place)), Ok(Some(true)));
                compare(&mut guard, &key, &list);
            }
        }
        for (key, place, there) in
            [(key, Some(len), Some(false)), (key, None, Some(false)), (none, Some(0), None)]
        {
            let upload = receive(&mut guard, &key, &element(1, 20_000), 100_000);
            assert_eq!(guard.list_set_upload(&key, upload, |_| place), Ok(there));
            assert_eq!(store.input_bytes(), 0);
        }
        compare(&mut guard, &key, &list);
        assert!(guard.peek(&none).hit().is_none());
        drop(guard);
        reclaim_all(&mut worker);
        store.check_behind(worker);
    }
}

#[test]
fn an_element_for_a_place_of_which_any_allocation_is_refused_leaves_the_list_as_it_was() {
    for (len, place) in [(1, 0), (5, 3), (60, 30), (60, 31)] {
        let (store, mut worker) = store(16);
        let mut list: List = (0..len).map(|n| element(n, if n == 31 { 17_000 } else { 40 })).collect();
        let new = element(0, 40_000);
        for budget in 0.. {
            reclaim_all(&mut worker);
            let before = store.totals().item_bytes;
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            if budget == 0 {
                guard.list_push(&key, End::Back, list.iter().map(Vec::as_slice), false).unwrap();
            }
            let upload = receive(&mut guard, &key, &new, 100_000);
            guard.local.refuse_after = Some(budget);
            let set = guard.list_set_upload(&key, upload, |_| Some(place));
            guard.local.refuse_after = None;
            assert_eq!(store.input_bytes(), 0);
            if set.is_ok() {
                assert!(budget > 0 && set == Ok(Some(true)));
                list[place] = new;
                compare(&mut guard, &key, &list);
                break;
            }
            assert_eq!(set, Err(Declined::NoMemory));
            compare(&mut guard, &key, &list);
            drop(guard);
            reclaim_all(&mut worker);
            if budget > 0 {
                assert_eq!(store.totals().item_bytes, before, "{budget} of {len}");
            }
        }
        store.check_behind(worker);
    }
}

/// An element of many parts takes long to put in place: where others are faster twice, the third attempt holds the key.
#[test]
fn an_element_of_many_parts_is_put_in_place_with_its_key_held_where_others_are_faster() {
    let (store, mut worker) = store(16);
    let mut other = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let new = element(0, 100 * 700);
    let mut upload = receive(&mut guard, &key, &new, 100_000);
    let (received, mut held) = (guard.received(&upload), Vec::new());
    let changed = guard.change_collection(&key, Type::List, |list| {
        held.push(store.index.place(&store.arena, key.hash).home().control().in_transaction());
        // Else it would never end.
        if held == [false] || held == [false, false] {
            let mut guard = other.enter(NOW);
            guard.list_push(&key, End::Front, [&b"x"[..]].into_iter(), false).unwrap();
        }
        list.push_received(End::Back, received)?;
        Ok::<_, Declined>(list.len())
    });
    assert!(changed.is_ok_and(|changed| changed.answer == 3));
    assert_eq!(held, [false, false, true]);
    upload.leave_pieces();
    drop(upload);
    compare(&mut guard, &key, &[b"x".to_vec(), b"x".to_vec(), new]);
    drop(guard);
    drop((worker, other));
    store.check();
}

/// What becomes of an element that is whole and put nowhere: its memory is back at once, to the byte.
#[test]
fn an_element_that_is_put_nowhere_leaves_nothing() {
    let (store, mut worker) = store(16);
    let new = element(0, 40_000);
    {
        let mut guard = worker.enter(NOW);
        let (text, list) = (guard.key(b"text"), guard.key(b"list"));
        guard.store_value(&text, b"text", &Attributes::default(), Expect::Any).unwrap();
        guard.list_push(&list, End::Back, [&b"a"[..]].into_iter(), false).unwrap();
    }
    reclaim_all(&mut worker);
    let before = store.totals().item_bytes;
    let is_back = |store: &Store| {
        assert_eq!((store.totals().item_bytes, store.input_bytes()), (before, 0));
    };
    let mut guard = worker.enter(NOW);
    let (text, list, none) = (guard.key(b"text"), guard.key(b"list"), guard.key(b"none"));
    // There is something else.
    let upload = receive(&mut guard, &text, &new, 100_000);
    assert_eq!(guard.list_push_upload(&text, End::Front, upload, false), Err(Declined::Type));
    is_back(&store);
    // There is no list, and there has to be one.
    let upload = receive(&mut guard, &none, &new, 100_000);
    assert_eq!(guard.list_push_upload(&none, End::Front, upload, true), Ok(0));
    assert!(guard.peek(&none).hit().is_none());
    is_back(&store);
    // It stops after any byte.
    for there in [0, 1, 699, 700, 701, 39_999, 40_000] {
        let mut upload = guard.upload_element(&list, 40_000).unwrap().unwrap();
        guard.upload_fill(&mut upload, &new[..there]).unwrap();
        assert_eq!(store.input_bytes(), (there.div_ceil(700) * 700).min(40_000) as u64);
        drop(upload);
        is_back(&store);
    }
    // There is one.
    let upload = receive(&mut guard, &list, &new, 100_000);
    assert_eq!(guard.list_push_upload(&list, End::Front, upload, true), Ok(2));
    compare(&mut guard, &list, &[new, b"a".to_vec()]);
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn an_element_is_received_where_it_is_too_long_for_a_leaf_and_not_for_a_list() {
    for (mebibytes, copied, most) in [(4, 2 << 20, 2 << 20), (16, 4 << 20, 8 << 20), (64, 4 << 20, 8 << 20)] {
        let (store, mut worker) = store(mebibytes);
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        assert_eq!((store.element_bytes_max(), store.received_bytes_max()), (copied, most));
        let lengths = [0, 1, STRING_BYTES_MAX, STRING_BYTES_MAX + 1, most - 1, most, most + 1];
        let received = [false, false, false, true, true, true, false];
        for (bytes, is_received) in lengths.into_iter().zip(received) {
            let upload = guard.upload_element(&key, bytes as u64).unwrap();
            assert_eq!(upload.is_some(), is_received, "{bytes} of {most}");
            assert_eq!(store.element_is_received(bytes as u64), is_received);
        }
    }
}

/// At the longest that is copied and at the longest that is received: such a one is put in, read, moved, carried, replaced and
/// taken out. One that is longer than the first is not copied into a list or a hash.
#[test]
fn what_is_received_may_be_longer_than_what_is_copied() {
    let (store, mut worker) = store(64);
    let (copied, most) = (store.element_bytes_max(), store.received_bytes_max());
    for bytes in [copied, copied + 1, most - 1, most] {
        let mut guard = worker.enter(NOW);
        let (list, other, hash) = (guard.key(b"list"), guard.key(b"other"), guard.key(b"hash"));
        let new = element(bytes, bytes);
        let upload = receive(&mut guard, &list, &new, 1 << 20);
        assert_eq!(guard.list_push_upload(&list, End::Back, upload, false), Ok(1));
        guard.list_push(&list, End::Back, [&b"a"[..]].into_iter(), false).unwrap();
        let there = guard.collection(&list, Type::List).unwrap().expect("it is there");
        assert_eq!(there.longest_apart(), bytes);
        move_all(&store, &mut guard);
        compare(&mut guard, &list, &[new.clone(), b"a".to_vec()]);
        if bytes > copied {
            let pushed = guard.list_push(&list, End::Back, [&new[..]].into_iter(), false);
            assert_eq!(pushed, Err(Declined::TooLarge));
            assert_eq!(guard.list_set(&list, &new, |_| Some(0)), Err(Declined::TooLarge));
            assert_eq!(guard.list_insert_at(&list, 1, &new), Err(Declined::TooLarge));
            let set = guard.hash_set(&hash, [(&b"f"[..], &new[..])].into_iter());
            assert_eq!(set, Err(Declined::TooLarge));
        }
        guard.begin([list, other]);
        assert_eq!(guard.list_carry((&list, End::Front), (&other, End::Back)), Ok(true));
        guard.finish();
        compare(&mut guard, &list, &[b"a".to_vec()]);
        compare(&mut guard, &other, std::slice::from_ref(&new));
        assert!(guard.list_pop(&other, End::Back, 1).unwrap().is_some());
        drop(guard);
        reclaim_all(&mut worker);
        let mut guard = worker.enter(NOW);
        let mut map = Map::new();
        let upload = receive(&mut guard, &hash, &new, 1 << 20);
        assert_eq!(guard.hash_set_upload(&hash, &name(0), upload, false), Ok(Some(true)));
        map.insert(name(0), new);
        set(&mut guard, &hash, &mut map, (1, b"short".to_vec()));
        is_as(&mut guard, &hash, &map);
        // The root says how long it is, a little more at most.
        let said = guard.collection(&hash, Type::Hash).unwrap().expect("it is there").longest_apart();
        assert!((bytes..bytes + (16 << 10)).contains(&said), "{said} of {bytes}");
        set(&mut guard, &hash, &mut map, (0, b"short".to_vec()));
        is_as(&mut guard, &hash, &map);
        for key in [list, hash] {
            guard.delete(&key, Expect::Present).unwrap();
        }
        drop(guard);
        (0..5).for_each(|_| reclaim_all(&mut worker));
        assert_eq!((store.totals().item_bytes, store.trees.count()), (0, 0), "{bytes}");
    }
    store.check_behind(worker);
}

/// Names of fields, and their values.
type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn name(n: usize) -> Vec<u8> {
    format!("field {n}").into_bytes()
}

/// The hash has these fields, and no others.
fn is_as(guard: &mut Guard<'_>, key: &Key<'_>, map: &Map) {
    guard.check_tree(key);
    let Some(there) = guard.collection(key, Type::Hash).unwrap() else {
        return assert!(map.is_empty());
    };
    assert_eq!(there.len(), map.len());
    for (name, value) in map {
        let found = there.field(name).expect("it is there");
        assert!(text(&there, &found) == *value, "the value of {}", String::from_utf8_lossy(name));
    }
}

fn set(guard: &mut Guard<'_>, key: &Key<'_>, map: &mut Map, (n, value): (usize, Vec<u8>)) {
    guard.hash_set(key, [(&name(n)[..], &value[..])].into_iter()).unwrap();
    map.insert(name(n), value);
}

/// Into hashes of every form, in place of short values and of long ones, whose parts go.
#[test]
fn a_value_that_is_received_is_as_one_that_is_set() {
    for shorts in [0, 1, 5, 200] {
        let (store, mut worker) = store(16);
        let mut guard = worker.enter(NOW);
        let (key, mut map) = (guard.key(b"key"), Map::new());
        for n in 0..shorts {
            set(&mut guard, &key, &mut map, (n, element(n, 10)));
        }
        for n in 0..30 {
            let (name, value) = (name(n * 7 % 20), element(n, STRING_BYTES_MAX + 1 + n * 353));
            let upload = receive(&mut guard, &key, &value, 1_401);
            let new = !map.contains_key(&name);
            assert_eq!(guard.hash_set_upload(&key, &name, upload, false), Ok(Some(new)));
            map.insert(name, value);
            is_as(&mut guard, &key, &map);
            if n % 5 == 0 {
                move_all(&store, &mut guard);
                is_as(&mut guard, &key, &map);
            }
        }
        // One that is there stays, and one that is not comes.
        for (n, set) in [(7, None), (500, Some(true))] {
            let value = element(1, 20_000);
            let upload = receive(&mut guard, &key, &value, 100_000);
            assert_eq!(guard.hash_set_upload(&key, &name(n), upload, true), Ok(set));
            if set.is_some() {
                map.insert(name(n), value);
            }
            is_as(&mut guard, &key, &map);
            assert_eq!(store.input_bytes(), 0);
        }
        for n in 0..10 {
            set(&mut guard, &key, &mut map, (n, element(n, 10)));
            is_as(&mut guard, &key, &map);
        }
        while let Some((name, _)) = map.pop_first() {
            assert_eq!(guard.remove_named(&key, Type::Hash, [&name[..]].into_iter()), Ok(1));
            is_as(&mut guard, &key, &map);
        }
        drop(guard);
        reclaim_all(&mut worker);
        store.check_behind(worker);
        assert_eq!((store.totals().item_bytes, store.trees.count()), (0, 0));
    }
}

/// It lasts as long as is said, and is set where what is asked holds.
#[test]
fn a_value_that_is_received_lasts_as_long_as_is_said() {
    for shorts in [0, 5, 200] {
        let (store, mut worker) = store(16);
        let mut guard = worker.enter(NOW);
        let (key, mut map) = (guard.key(b"key"), Map::new());
        for n in 0..shorts {
            set(&mut guard, &key, &mut map, (n, element(n, 10)));
        }
        let (field, at) = (name(1_000), NOW + 5_000);
        for (n, (asked, lasting, is_new, time)) in [
            (Fields::Present, Lasting::Until(at), None, None),
            (Fields::Absent, Lasting::Until(at), Some(true), Some(at)),
            (Fields::Absent, Lasting::Never, None, Some(at)),
            (Fields::Any, Lasting::Keep, Some(false), Some(at)),
            (Fields::Present, Lasting::Until(at + 1), Some(false), Some(at + 1)),
            (Fields::Any, Lasting::Never, Some(false), Some(0)),
            (Fields::Any, Lasting::Keep, Some(false), Some(0)),
        ]
        .into_iter()
        .enumerate()
        {
            let value = element(n, 20_000 + n);
            let upload = receive(&mut guard, &key, &value, 100_000);
            let done = guard.hash_set_upload_lasting(&key, &field, upload, (asked, lasting));
            assert_eq!(done, Ok(is_new), "{n} beside {shorts}");
            assert_eq!(store.input_bytes(), 0);
            if is_new.is_some() {
                map.insert(field.clone(), value);
            }
            is_as(&mut guard, &key, &map);
            let there = guard.collection(&key, Type::Hash).unwrap();
            let entry = there.and_then(|there| there.entry_named(&field));
            assert_eq!(entry.map(|entry| entry.expires_at), time, "{n} beside {shorts}");
        }
        drop(guard);
        store.check_behind(worker);
    }
}

#[test]
fn a_value_for_which_any_allocation_is_refused_leaves_the_hash_as_it_was() {
    for (shorts, n) in [(0, 0), (5, 3), (200, 3), (200, 500)] {
        let (store, mut worker) = store(16);
        let mut map = Map::new();
        let value = element(1, 40_000);
        for budget in 0.. {
            reclaim_all(&mut worker);
            let before = store.totals().item_bytes;
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            if budget == 0 {
                (0..shorts).for_each(|n| set(&mut guard, &key, &mut map, (n, element(n, 10))));
            }
            let upload = receive(&mut guard, &key, &value, 100_000);
            guard.local.refuse_after = Some(budget);
            let done = guard.hash_set_upload(&key, &name(n), upload, false);
            guard.local.refuse_after = None;
            assert_eq!(store.input_bytes(), 0);
            if done.is_ok() {
                assert_eq!(done, Ok(Some(!map.contains_key(&name(n)))));
                map.insert(name(n), value);
                is_as(&mut guard, &key, &map);
                break;
            }
            assert_eq!(done, Err(Declined::NoMemory));
            is_as(&mut guard, &key, &map);
            drop(guard);
            reclaim_all(&mut worker);
            if budget > 0 {
                assert_eq!(store.totals().item_bytes, before, "{budget} of {shorts}");
            }
        }
        store.check_behind(worker);
    }
}

/// A member of a set is hashed and compared in one step: it has no more than one that is copied.
#[test]
fn a_member_that_is_received_is_no_longer_than_one_that_is_copied() {
    let (store, mut worker) = store(64);
    let most = store.element_bytes_max();
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    for (bytes, added) in [(most - 1, Ok(1)), (most, Ok(1)), (most + 1, Err(Declined::TooLarge))] {
        let upload = receive(&mut guard, &key, &member_of(bytes, bytes), 1 << 20);
        assert_eq!(guard.set_add_upload(&key, std::iter::empty(), upload), added, "{bytes}");
        assert_eq!(store.input_bytes(), 0);
    }
    assert_eq!(guard.collection(&key, Type::Set).unwrap().map(|there| there.len()), Some(2));
    drop(guard);
    store.check_behind(worker);
}

/// The set has these members, and no others.
fn has_all(guard: &mut Guard<'_>, key: &Key<'_>, set: &BTreeSet<Vec<u8>>) {
    guard.check_tree(key);
    let Some(there) = guard.collection(key, Type::Set).unwrap() else {
        return assert!(set.is_empty());
    };
    assert_eq!(there.len(), set.len());
    let all = there.entries(0..there.len()).map(|entry| text(&there, &entry.name));
    assert!(all.collect::<BTreeSet<_>>() == *set);
    assert!(set.iter().all(|member| there.has(member)), "each is found by its name");
}

/// Into sets of every form, beside others of its length and of its beginning: it is there once, however it comes.
#[test]
fn a_member_that_is_received_is_as_one_that_is_added() {
    for shorts in [0, 1, 5, 200] {
        let (store, mut worker) = store(16);
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        let mut set: BTreeSet<Vec<u8>> = (0..shorts).map(|n| element(n, 10)).collect();
        guard.set_add(&key, set.iter().map(Vec::as_slice)).unwrap();
        let shorts = set.clone();
        for n in 0..40 {
            // Some of them twice, and some by way of a request.
            let nth = n * 7 % 25;
            let member = member_of(nth, STRING_BYTES_MAX + 1 + nth / 2 * 353);
            let new = set.insert(member.clone());
            if n % 3 == 2 {
                assert_eq!(guard.set_add(&key, [&member[..]].into_iter()), Ok(usize::from(new)), "{n}");
            } else {
                let upload = receive(&mut guard, &key, &member, 1_401);
                let added = guard.set_add_upload(&key, std::iter::empty(), upload);
                assert_eq!(added, Ok(usize::from(new)), "{n}");
            }
            assert_eq!(store.input_bytes(), 0);
            has_all(&mut guard, &key, &set);
            if n % 5 == 0 {
                move_all(&store, &mut guard);
                has_all(&mut guard, &key, &set);
            }
        }
        // One that is like another but for its last byte is another.
        let mut other = member_of(0, STRING_BYTES_MAX + 1);
        *other.last_mut().expect("it has some") ^= 1;
        let upload = receive(&mut guard, &key, &other, 100_000);
        let added = guard.set_add_upload(&key, std::iter::empty(), upload);
        assert_eq!(added, Ok(usize::from(set.insert(other))));
        has_all(&mut guard, &key, &set);
        let long: Vec<Vec<u8>> = set.difference(&shorts).cloned().collect();
        for member in long {
            assert_eq!(guard.remove_named(&key, Type::Set, [&member[..]].into_iter()), Ok(1));
            set.remove(&member);
            has_all(&mut guard, &key, &set);
        }
        drop(guard);
        reclaim_all(&mut worker);
        store.check_behind(worker);
    }
}

#[test]
fn a_member_for_which_any_allocation_is_refused_leaves_the_set_as_it_was() {
    for shorts in [0, 5, 200] {
        let (store, mut worker) = store(16);
        let mut set: BTreeSet<Vec<u8>> = (0..shorts).map(|n| element(n, 10)).collect();
        let member = member_of(1, 40_000);
        for budget in 0.. {
            reclaim_all(&mut worker);
            let before = store.totals().item_bytes;
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            if budget == 0 {
                guard.set_add(&key, set.iter().map(Vec::as_slice)).unwrap();
            }
            let upload = receive(&mut guard, &key, &member, 100_000);
            guard.local.refuse_after = Some(budget);
            let done = guard.set_add_upload(&key, std::iter::empty(), upload);
            guard.local.refuse_after = None;
            assert_eq!(store.input_bytes(), 0);
            if done.is_ok() {
                assert_eq!(done, Ok(1));
                set.insert(member.clone());
                has_all(&mut guard, &key, &set);
                // It comes again, and its memory is back at once.
                let there = store.totals().item_bytes;
                let upload = receive(&mut guard, &key, &member, 100_000);
                assert_eq!(guard.set_add_upload(&key, std::iter::empty(), upload), Ok(0));
                assert_eq!((store.totals().item_bytes, store.input_bytes()), (there, 0));
                break;
            }
            assert_eq!(done, Err(Declined::NoMemory));
            has_all(&mut guard, &key, &set);
            drop(guard);
            reclaim_all(&mut worker);
            if budget > 0 {
                assert_eq!(store.totals().item_bytes, before, "{budget} of {shorts}");
            }
        }
        store.check_behind(worker);
    }
}

/// What is received comes behind short ones: they are put in together, or none is.
#[test]
fn what_is_received_behind_others_comes_with_them_or_not_at_all() {
    let (new, names) = (element(7, 40_000), (0..9).map(|n| element(n, 40)).collect::<List>());
    let before = || names.iter().map(Vec::as_slice);
    let kinds = [Type::List, Type::Hash, Type::Set];
    for (shorts, kind) in [0, 1, 5, 200].into_iter().flat_map(|shorts| kinds.map(|kind| (shorts, kind))) {
        let (store, mut worker) = store(16);
        let (mut list, mut map, mut set) = (List::new(), Map::new(), BTreeSet::new());
        let compare_all = |guard: &mut Guard<'_>, list: &List, map: &Map, set: &BTreeSet<Vec<u8>>| {
            let key = guard.key(b"key");
            match kind {
                Type::List => compare(guard, &key, list),
                Type::Hash => is_as(guard, &key, map),
                Type::Set | Type::SortedSet | Type::Stream => has_all(guard, &key, set),
            }
        };
        for budget in 0.. {
            reclaim_all(&mut worker);
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            if budget == 0 {
                for n in 0..shorts {
                    let short = element(n, 30);
                    match kind {
                        Type::List => {
                            guard.list_push(&key, End::Back, [&short[..]].into_iter(), false).unwrap();
                            list.push(short);
                        }
                        Type::Hash => self::set(&mut guard, &key, &mut map, (n, short)),
                        Type::Set | Type::SortedSet | Type::Stream => {
                            guard.set_add(&key, [&short[..]].into_iter()).unwrap();
                            set.insert(short);
                        }
                    }
                }
            }
            let upload = receive(&mut guard, &key, &new, 100_000);
            guard.local.refuse_after = Some(budget);
            let done = match kind {
                Type::List => guard.list_push_upload_behind(&key, End::Front, before(), upload, false),
                Type::Hash => {
                    let pairs = before().map(|name| (name, name));
                    guard.hash_set_upload_behind(&key, pairs, &names[3], upload)
                }
                Type::Set | Type::SortedSet | Type::Stream => guard.set_add_upload(&key, before(), upload),
            };
            guard.local.refuse_after = None;
            assert_eq!(store.input_bytes(), 0);
            if let Ok(count) = done {
                match kind {
                    Type::List => {
                        before().for_each(|name| list.insert(0, name.to_vec()));
                        list.insert(0, new.clone());
                        assert_eq!(count, list.len());
                    }
                    Type::Hash => {
                        let there = map.len();
                        map.extend(before().map(|name| (name.to_vec(), name.to_vec())));
                        // It is the last value of a field that was set before.
                        map.insert(names[3].clone(), new.clone());
                        assert_eq!(count, map.len() - there);
                    }
                    Type::Set | Type::SortedSet | Type::Stream => {
                        let there = set.len();
                        set.extend(before().map(<[u8]>::to_vec));
                        set.insert(new.clone());
                        assert_eq!(count, set.len() - there);
                    }
                }
                compare_all(&mut guard, &list, &map, &set);
                break;
            }
            assert_eq!(done, Err(Declined::NoMemory));
            compare_all(&mut guard, &list, &map, &set);
        }
        store.check_behind(worker);
    }
}
