//! Hashes whose fields expire, against a map with times. Leaves and nodes are small here, so that trees are high.

use super::testing::{live, set_all};
use super::tests::{NOW, height, move_all, store, text};
use crate::collection::{Due, Fields, Lasting, Timed, Type};
use crate::worker::Guard;
use crate::{Attributes, Event, Expect, Key, Lookup, Value};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Values with their times, 0 for never.
type Map = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// What is asked by names is as the map has it at this time; what is counted, once what was due is taken out.
fn compare(guard: &mut Guard<'_>, key: &Key<'_>, map: &Map) {
    let now = guard.now();
    let lives = live(map, now);
    if let Some(there) = guard.collection(key, Type::Hash).unwrap() {
        for (name, (value, at)) in map {
            let is_live = lives.contains_key(name);
            assert_eq!(there.has(name), is_live);
            assert_eq!(there.find(name).is_some(), is_live);
            assert_eq!(there.field(name).map(text), is_live.then(|| value.clone()));
            assert_eq!(there.entry_named(name).map(|entry| entry.expires_at), is_live.then_some(*at));
        }
    } else {
        assert!(lives.is_empty());
    }
    while let Due::More(_) = guard.hash_take_due(key).unwrap() {}
    let Some(there) = guard.collection(key, Type::Hash).unwrap() else {
        assert!(lives.is_empty());
        return;
    };
    assert!(!lives.is_empty(), "the last field takes the key with it");
    assert!(!there.is_due());
    let all =
        there.entries(0..there.len()).map(|entry| (text(entry.name), (text(entry.value), entry.expires_at)));
    assert_eq!(all.collect::<Map>(), lives);
    assert_eq!(there.len(), lives.len());
    assert_eq!(there.soonest(), lives.values().map(|(_, at)| *at).filter(|at| *at != 0).min().unwrap_or(0));
}

#[derive(Clone, Debug)]
enum Step {
    Set { from: u32, count: u32, bytes: usize, lasting: u8, in_ms: u64 },
    Change { field: u32 },
    Expire { from: u32, count: u32, in_ms: u64, only_absent: bool },
    Persist { from: u32, count: u32 },
    Take { from: u32, count: u32 },
    Wait { ms: u64 },
    Copy,
    Carry,
    Move,
    Maintain,
    Compare,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![6 => 0..8_usize, 2 => 60..66_usize, 1 => Just(250_usize), 1 => Just(3_000_usize)];
    let fields = || (0..300_u32, 1..60_u32);
    let in_ms = || prop_oneof![4 => 1..2_000_u64, 1 => Just(0_u64), 2 => 1..100_000_000_u64];
    prop_oneof![
        5 => (fields(), bytes, 0..3_u8, in_ms()).prop_map(|((from, count), bytes, lasting, in_ms)| Step::Set {
            from, count, bytes, lasting, in_ms
        }),
        2 => (0..300_u32).prop_map(|field| Step::Change { field }),
        5 => (fields(), in_ms(), any::<bool>())
            .prop_map(|((from, count), in_ms, only_absent)| Step::Expire { from, count, in_ms, only_absent }),
        1 => fields().prop_map(|(from, count)| Step::Persist { from, count }),
        2 => fields().prop_map(|(from, count)| Step::Take { from, count }),
        4 => prop_oneof![3 => 0..700_u64, 1 => 0..50_000_000_u64].prop_map(|ms| Step::Wait { ms }),
        1 => Just(Step::Copy),
        1 => Just(Step::Carry),
        1 => Just(Step::Move),
        3 => Just(Step::Maintain),
        2 => Just(Step::Compare),
    ]
}

fn name(n: u32) -> Vec<u8> {
    format!("f{n}").into_bytes()
}

fn is_as_a_map(steps: &[Step]) {
    let (store, mut worker) = store(8);
    let (mut map, mut now) = (Map::new(), NOW);
    for step in steps {
        let mut guard = worker.enter(now);
        let key = guard.key(b"key");
        match step {
            Step::Set { from, count, bytes, lasting, in_ms } => {
                let pairs: Vec<(Vec<u8>, Vec<u8>)> =
                    (*from..from + count).map(|n| (name(n), vec![b'x'; *bytes + n as usize % 3])).collect();
                let lasting = match lasting {
                    0 => Lasting::Never,
                    1 => Lasting::Keep,
                    _ => Lasting::Until(now + in_ms + 1),
                };
                let slices = pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
                assert_eq!(guard.hash_set_lasting(&key, slices, Fields::Any, lasting), Ok(true));
                map = live(&map, now);
                set_all(&mut map, pairs, lasting);
            }
            Step::Change { field } => {
                let name = name(*field);
                let old = live(&map, now).get(&name).cloned();
                let done = guard.hash_update(&key, &name, |value| {
                    assert_eq!(value.map(text), old.as_ref().map(|(value, _)| value.clone()));
                    Ok::<_, crate::Declined>(b"changed")
                });
                assert!(done.is_ok());
                map.insert(name, (b"changed".to_vec(), old.map_or(0, |(_, at)| at)));
            }
            Step::Expire { from, count, in_ms, only_absent } => {
                let names: Vec<Vec<u8>> = (*from..from + count).map(name).collect();
                let (at, mut done) = (now + in_ms, Vec::new());
                let fields = names.iter().map(Vec::as_slice);
                let holds = |old: u64| !(*only_absent && old != 0);
                guard.hash_expire(&key, fields, at, holds, &mut done).unwrap();
                map = live(&map, now);
                for (name, done) in names.iter().zip(done) {
                    let expected = match map.get_mut(name) {
                        None => Timed::Absent,
                        Some((_, old)) if *only_absent && *old != 0 => Timed::Unmet,
                        Some(_) if at <= now => {
                            map.remove(name);
                            Timed::Removed
                        }
                        Some((_, old)) => {
                            *old = at;
                            Timed::Set
                        }
                    };
                    assert_eq!(done, expected);
                }
            }
            Step::Persist { from, count } => {
                let names: Vec<Vec<u8>> = (*from..from + count).map(name).collect();
                let mut done = Vec::new();
                guard.hash_persist(&key, names.iter().map(Vec::as_slice), &mut done).unwrap();
                map = live(&map, now);
                for (name, done) in names.iter().zip(done) {
                    let expected = match map.get_mut(name) {
                        None => Timed::Absent,
                        Some((_, 0)) => Timed::Unmet,
                        Some((_, old)) => {
                            *old = 0;
                            Timed::Set
                        }
                    };
                    assert_eq!(done, expected);
                }
            }
            Step::Take { from, count } => {
                let names: Vec<Vec<u8>> = (*from..from + count).map(name).collect();
                map = live(&map, now);
                let gone = names.iter().filter(|name| map.remove(*name).is_some()).count();
                let names = names.iter().map(Vec::as_slice);
                assert_eq!(guard.remove_named(&key, Type::Hash, names), Ok(gone));
            }
            Step::Wait { ms } => now += ms,
            Step::Copy => {
                let to = guard.key(b"copy");
                if guard.collection_copy(&key, &to, Expect::Any).unwrap().is_ok() {
                    let _ = guard.delete(&key, Expect::Present);
                    assert!(guard.collection_copy(&to, &key, Expect::Any).unwrap().is_ok());
                    let _ = guard.delete(&to, Expect::Present);
                }
            }
            Step::Carry => {
                let to = guard.key(b"other");
                guard.begin([key, to]);
                if guard.peek(&key).hit().is_some() {
                    assert!(guard.collection_carry(&key, &to, Expect::Absent).unwrap().is_ok());
                    assert!(guard.peek(&key).hit().is_none());
                    assert!(guard.collection_carry(&to, &key, Expect::Absent).unwrap().is_ok());
                }
                guard.finish();
            }
            Step::Move => move_all(&store, &mut guard),
            Step::Maintain => {
                for _ in 0..200 {
                    if !guard.maintain() {
                        break;
                    }
                }
            }
            Step::Compare => compare(&mut guard, &key, &map),
        }
    }
    let mut guard = worker.enter(now);
    let key = guard.key(b"key");
    compare(&mut guard, &key, &map);
    drop(guard);
    store.check_behind(worker);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 256 }, ..ProptestConfig::default() })]
    #[test]
    fn a_hash_whose_fields_expire_is_as_a_map(steps in proptest::collection::vec(step(), 1..60)) {
        is_as_a_map(&steps);
    }
}

/// A hash of so many fields, each with its own time.
fn fill(guard: &mut Guard<'_>, key: &Key<'_>, fields: u32, at: impl Fn(u32) -> u64) {
    for n in 0..fields {
        let (name, lasting) = (
            name(n),
            match at(n) {
                0 => Lasting::Never,
                at => Lasting::Until(at),
            },
        );
        let pair = [(name.as_slice(), &b"value"[..])];
        guard.hash_set_lasting(key, pair.iter().copied(), Fields::Any, lasting).unwrap();
    }
}

fn fields_of(guard: &mut Guard<'_>, key: &Key<'_>) -> usize {
    guard.collection(key, Type::Hash).unwrap().map_or(0, |there| there.len())
}

#[test]
fn what_is_due_goes_some_leaves_at_a_time_and_the_last_takes_the_key_with_it() {
    let (store, mut worker) = store(8);
    store.note_events(&[Event::FieldsExpired, Event::Emptied]);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    fill(&mut guard, &key, 500, |n| NOW + 10 + u64::from(n) % 2 * 1_000);
    assert!(height(&mut guard, &key) >= 3);
    drop(guard);
    let mut guard = worker.enter(NOW + 10);
    let mut steps = 1;
    while let Due::More(_) = guard.hash_take_due(&key).unwrap() {
        steps += 1;
        assert!(fields_of(&mut guard, &key) > 250, "none was taken that is not due");
    }
    assert!(steps > 10, "{steps} steps");
    assert_eq!(fields_of(&mut guard, &key), 250);
    assert_eq!(store.totals().fields_expired, 250);
    drop(guard);
    let mut guard = worker.enter(NOW + 1_010);
    assert!(
        (0..500)
            .all(|n| !guard.collection(&key, Type::Hash).unwrap().is_some_and(|there| there.has(&name(n))))
    );
    while let Due::More(_) = guard.hash_take_due(&key).unwrap() {}
    assert!(matches!(guard.peek(&key), Lookup::Miss));
    assert_eq!(store.totals().fields_expired, 500);
    let mut told = Vec::new();
    guard.take_events(&mut |event, _, key| told.push((event, key.to_vec())));
    assert!(told.len() > 10 && told.iter().all(|(_, name)| name == b"key"));
    assert_eq!(told.iter().filter(|(event, _)| *event == Event::Emptied).count(), 1);
    assert_eq!(told.last().map(|(event, _)| *event), Some(Event::Emptied));
    drop(guard);
    store.check_behind(worker);
}

/// Leaves with something that is due are counted by the times above them, up to a number.
#[test]
fn leaves_with_what_is_due_are_counted() {
    let (store, mut worker) = store(8);
    let mut guard = worker.enter(NOW);
    let (key, few) = (guard.key(b"key"), guard.key(b"few"));
    fill(&mut guard, &key, 500, |n| NOW + if n == 7 { 10 } else { 1_000 });
    fill(&mut guard, &few, 3, |_| NOW + 10);
    let due = |guard: &mut Guard<'_>, key: &Key<'_>, most: usize| {
        guard.collection(key, Type::Hash).unwrap().map_or((0, 0), |there| there.due_leaves(most))
    };
    assert_eq!((due(&mut guard, &key, 1_000), due(&mut guard, &few, 1_000)), ((0, 0), (0, 0)));
    drop(guard);
    let mut guard = worker.enter(NOW + 10);
    let (one, one_bytes) = due(&mut guard, &key, 1_000);
    assert!(one == 1 && one_bytes > 0, "{one} {one_bytes}");
    assert_eq!(due(&mut guard, &few, 1_000).0, 1);
    drop(guard);
    let mut guard = worker.enter(NOW + 1_000);
    let (all, all_bytes) = due(&mut guard, &key, 1_000);
    assert!((20..500).contains(&all) && all_bytes > 10 * one_bytes, "{all} {all_bytes}");
    for most in [all - 1, all, all + 1] {
        assert_eq!(due(&mut guard, &key, most).0, most.min(all));
    }
    drop(guard);
    store.check_behind(worker);
}

/// Upkeep takes out what no client asks for, of small hashes and of large ones, soon after its time, and lets all else be.
#[test]
fn upkeep_takes_out_what_is_due() {
    for fields in [1, 3, 400] {
        let (store, mut worker) = store(8);
        let mut guard = worker.enter(NOW);
        let keys: Vec<Vec<u8>> = (0..50).map(|n| format!("key{n}").into_bytes()).collect();
        for (n, bytes) in keys.iter().enumerate() {
            let key = guard.key(bytes);
            fill(&mut guard, &key, fields, |_| NOW + 100 + n as u64 % 2 * 5_000);
            let string = format!("string{n}").into_bytes();
            let string = guard.key(&string);
            guard.store_value(&string, b"stays", &Attributes::default(), Expect::Absent).unwrap();
        }
        drop(guard);
        let there = |worker: &mut crate::Worker, now: u64| {
            let mut guard = worker.enter(now);
            keys.iter()
                .filter(|bytes| {
                    let key = guard.key(bytes);
                    guard.peek(&key).hit().is_some()
                })
                .count()
        };
        let maintain = |worker: &mut crate::Worker, now: u64| {
            for _ in 0..10_000 {
                let mut guard = worker.enter(now);
                if !guard.maintain() {
                    break;
                }
            }
        };
        maintain(&mut worker, NOW + 99);
        assert_eq!(there(&mut worker, NOW + 99), 50);
        maintain(&mut worker, NOW + 100);
        assert_eq!(there(&mut worker, NOW + 100), 25, "{fields} fields");
        maintain(&mut worker, NOW + 5_000);
        assert_eq!(there(&mut worker, NOW + 5_000), 25);
        // A span that was visited is visited again after a second at most.
        maintain(&mut worker, NOW + 6_200);
        assert_eq!(there(&mut worker, NOW + 6_200), 0, "{fields} fields");
        assert_eq!(store.totals().items, 50);
        store.check_behind(worker);
    }
}

/// Whatever allocation is refused, a write has done all or nothing, and what is due is not found.
#[test]
fn a_refused_write_of_times_leaves_everything() {
    for large in [false, true] {
        let (store, mut worker) = store(8);
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        fill(&mut guard, &key, if large { 200 } else { 5 }, |n| if n % 3 == 0 { 0 } else { NOW + 1_000 });
        let names: Vec<Vec<u8>> = (0..30).map(name).collect();
        for refuse_after in 0.. {
            let before: Vec<(Vec<u8>, u64)> = all(&mut guard, &key);
            guard.local.refuse_after = Some(refuse_after);
            let mut done = Vec::new();
            let fields = names.iter().map(Vec::as_slice);
            let refused = guard.hash_expire(&key, fields, NOW + 2_000, |_| true, &mut done).is_err();
            guard.local.refuse_after = None;
            if !refused {
                break;
            }
            assert_eq!(all(&mut guard, &key), before);
        }
        let there = guard.collection(&key, Type::Hash).unwrap().unwrap();
        assert!(there.entry_named(&name(0)).is_some_and(|entry| entry.expires_at == NOW + 2_000));
        drop(guard);
        // What is due by then: taken out at once, or not at all.
        let mut guard = worker.enter(NOW + 2_000);
        for refuse_after in 0.. {
            guard.local.refuse_after = Some(refuse_after);
            let mut refused = false;
            loop {
                match guard.hash_take_due(&key) {
                    Ok(Due::More(_)) => {}
                    Ok(Due::Done(_)) => break,
                    Err(_) => {
                        refused = true;
                        break;
                    }
                }
            }
            guard.local.refuse_after = None;
            let there = guard.collection(&key, Type::Hash).unwrap();
            assert!(there.is_none_or(|there| (0..5).all(|n| !there.has(&name(n)))));
            if !refused {
                break;
            }
        }
        let _ = guard.delete(&key, Expect::Present);
        drop(guard);
        store.check_behind(worker);
    }
}

fn all(guard: &mut Guard<'_>, key: &Key<'_>) -> Vec<(Vec<u8>, u64)> {
    let Some(there) = guard.collection(key, Type::Hash).unwrap() else { return Vec::new() };
    there.entries(0..there.len()).map(|entry| (text(entry.name), entry.expires_at)).collect()
}

/// The times of nodes that were moved are those of the nodes.
#[test]
fn nodes_with_times_are_moved_and_taken_apart() {
    let (store, mut worker) = store(8);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    fill(&mut guard, &key, 600, |n| NOW + 1 + u64::from(n));
    move_all(&store, &mut guard);
    drop(guard);
    let mut guard = worker.enter(NOW + 300);
    while let Due::More(_) = guard.hash_take_due(&key).unwrap() {
        move_all(&store, &mut guard);
    }
    assert_eq!(fields_of(&mut guard, &key), 300);
    guard.delete(&key, Expect::Present).unwrap();
    while guard.maintain() {}
    drop(guard);
    store.check_behind(worker);
    assert_eq!(store.trees.count(), 0);
}

/// A hash in which nothing expires takes the bytes that it took, and one loses its times with the last of them.
#[test]
fn without_times_a_hash_is_as_if_it_never_had_any() {
    for fields in [5, 300] {
        let (store, mut worker) = store(8);
        let mut guard = worker.enter(NOW);
        let (plain, timed) = (guard.key(b"plain"), guard.key(b"timed"));
        fill(&mut guard, &plain, fields, |_| 0);
        fill(&mut guard, &timed, fields, |n| if n == 2 { NOW + 5 } else { 0 });
        let bytes =
            |guard: &mut Guard<'_>, key: &Key<'_>| guard.peek(key).hit().map(|item| item.value_bytes());
        assert!(bytes(&mut guard, &timed) > bytes(&mut guard, &plain));
        let is_timed = |guard: &mut Guard<'_>, key: &Key<'_>| {
            let Some(Value::Collection(there)) = guard.peek(key).hit().map(|item| item.value()) else {
                panic!("it is there")
            };
            there.is_timed()
        };
        assert!(is_timed(&mut guard, &timed) && !is_timed(&mut guard, &plain));
        let mut done = Vec::new();
        guard.hash_persist(&timed, [&b"f2"[..]].into_iter(), &mut done).unwrap();
        assert_eq!(done, [Timed::Set]);
        assert!(!is_timed(&mut guard, &timed));
        if fields == 5 {
            assert_eq!(bytes(&mut guard, &timed), bytes(&mut guard, &plain));
        }
        drop(guard);
        store.check_behind(worker);
    }
}

/// A write that asks whether all or none of some fields are there, or has a time that they have, is told so.
#[test]
fn fields_are_set_under_a_condition() {
    let (_, mut worker) = store(8);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let pairs = |names: &'static [&'static str]| names.iter().map(|name| (name.as_bytes(), &b"v"[..]));
    let mut set = |names, asked, lasting| guard.hash_set_lasting(&key, pairs(names), asked, lasting).unwrap();
    assert!(!set(&["a"], Fields::Present, Lasting::Never));
    assert!(set(&["a", "b"], Fields::Absent, Lasting::Until(NOW + 10)));
    assert!(!set(&["b", "c"], Fields::Absent, Lasting::Never));
    assert!(!set(&["b", "c"], Fields::Present, Lasting::Never));
    assert!(set(&["a"], Fields::Present, Lasting::Keep));
    assert_eq!(all(&mut guard, &key), [(b"a".to_vec(), NOW + 10), (b"b".to_vec(), NOW + 10)]);
    drop(guard);
    let mut guard = worker.enter(NOW + 10);
    assert!(guard.hash_set_lasting(&key, pairs(&["b"]), Fields::Absent, Lasting::Keep).unwrap());
    assert_eq!(all(&mut guard, &key), [(b"b".to_vec(), 0)], "what is due went with the write");
}

/// How many of the fields with even numbers are found.
fn even_fields_of(guard: &mut Guard<'_>, key: &Key<'_>, fields: u32) -> usize {
    let there = guard.collection(key, Type::Hash).unwrap();
    there.map_or(0, |there| (0..fields).step_by(2).filter(|n| there.has(&name(*n))).count())
}

/// What the worker whose clock is ahead does at the time at which half of the fields are due, of which it takes some out.
type Begins = fn(&mut Guard<'_>, &Key<'_>);

/// The clocks of two workers are never one: fields that are due at one time are there together for one that is behind, too,
/// or none of them is, whichever worker has begun to take them out.
#[test]
fn fields_of_one_time_go_together_for_a_worker_whose_clock_is_behind() {
    let begins: [Begins; 4] = [
        |guard, key| assert!(matches!(guard.hash_take_due(key), Ok(Due::More(_)))),
        |guard, key| guard.hash_set(key, [(&name(1)[..], &b"new"[..])].into_iter()).map(drop).unwrap(),
        |guard, key| guard.remove_named(key, Type::Hash, [&name(1)[..]].into_iter()).map(drop).unwrap(),
        |guard, key| {
            guard.hash_expire(key, [&name(1)[..]].into_iter(), NOW + 500, |_| true, &mut Vec::new()).unwrap();
        },
    ];
    for begin in begins {
        let (store, mut ahead) = store(8);
        let mut slow = store.worker().unwrap();
        let mut guard = ahead.enter(NOW);
        let (key, other) = (guard.key(b"key"), guard.key(b"other"));
        fill(&mut guard, &key, 500, |n| NOW + 10 + u64::from(n) % 2 * 1_000);
        drop(guard);
        let due = |guard: &mut Guard<'_>, key: &Key<'_>| even_fields_of(guard, key, 500);
        let mut behind = slow.enter(NOW + 9);
        assert_eq!(due(&mut behind, &key), 250);
        let mut guard = ahead.enter(NOW + 10);
        begin(&mut guard, &key);
        drop(guard);
        assert_eq!(due(&mut behind, &key), 0, "some of what is due together");
        for n in (0..500).step_by(2) {
            let pair = [(&name(n)[..], &b"1"[..])];
            let done = behind.hash_set_lasting(&key, pair.into_iter(), Fields::Present, Lasting::Never);
            assert_eq!(done, Ok(false), "a condition finds some of it");
        }
        assert!(behind.collection_copy(&key, &other, Expect::Any).unwrap().is_ok());
        assert_eq!(due(&mut behind, &other), 0, "a copy has some of it");
        assert!(behind.hash_set(&key, [(&b"one more"[..], &b"1"[..])].into_iter()).is_ok());
        assert_eq!(due(&mut behind, &key), 0, "a write brings some of it back");
        behind.begin([key, other]);
        assert!(behind.collection_carry(&key, &other, Expect::Any).unwrap().is_ok());
        behind.finish();
        let live = fields_of(&mut behind, &other);
        while let Due::More(_) = behind.hash_take_due(&other).unwrap() {}
        let there = behind.collection(&other, Type::Hash).unwrap().expect("some fields last");
        assert!(there.entries(0..there.len()).all(|entry| entry.expires_at != NOW + 10), "of {live}");
        drop(behind);
        drop(slow);
        drop(ahead);
        store.check();
    }
}

/// The same while a tree becomes so small that it lies in its item again.
#[test]
fn fields_of_one_time_go_together_when_a_tree_becomes_a_leaf() {
    for fields in (8..80).step_by(2) {
        let (store, mut ahead) = store(8);
        let mut slow = store.worker().unwrap();
        let mut guard = ahead.enter(NOW);
        let key = guard.key(b"key");
        fill(&mut guard, &key, fields, |n| NOW + 10 + u64::from(n) % 2 * 1_000);
        drop(guard);
        let mut behind = slow.enter(NOW + 9);
        let mut before = even_fields_of(&mut behind, &key, fields);
        assert_eq!(before, fields as usize / 2);
        for n in (3..fields).step_by(2) {
            ahead.enter(NOW + 10).remove_named(&key, Type::Hash, [&name(n)[..]].into_iter()).unwrap();
            let now = even_fields_of(&mut behind, &key, fields);
            assert!(now == before || now == 0, "{now} of {before} fields of {fields}");
            before = now;
        }
        assert_eq!(before, 0);
        drop(behind);
        drop(slow);
        drop(ahead);
        store.check();
    }
}

/// The last field tells that the key goes, however many leaves are taken out in the last step.
#[test]
fn the_last_field_that_is_due_tells_that_the_key_goes() {
    for fields in 1..220 {
        let (store, mut worker) = store(8);
        store.note_events(&[Event::FieldsExpired, Event::Emptied]);
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        fill(&mut guard, &key, fields, |_| NOW + 10);
        drop(guard);
        let mut guard = worker.enter(NOW + 10);
        while let Due::More(_) = guard.hash_take_due(&key).unwrap() {}
        assert!(matches!(guard.peek(&key), Lookup::Miss));
        let mut told = Vec::new();
        guard.take_events(&mut |event, _, _| told.push(event));
        assert_eq!(told.iter().filter(|event| **event == Event::Emptied).count(), 1, "{fields} fields");
        assert_eq!(told.last(), Some(&Event::Emptied));
    }
}

/// What has begun to go is taken out by upkeep of a worker whose clock is behind, too; and where a
/// clock was set back since, fields last as long as they were given.
#[test]
fn a_clock_that_is_set_back_takes_no_field_before_its_time() {
    for (back, lasts) in [(1, false), (2_000, false), (2_001, true), (3_600_000, true)] {
        let (store, mut worker) = store(8);
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        fill(&mut guard, &key, 500, |n| NOW + 10 + u64::from(n) % 2 * 1_000_000);
        drop(guard);
        let mut guard = worker.enter(NOW + 10);
        assert!(matches!(guard.hash_take_due(&key), Ok(Due::More(_))));
        drop(guard);
        let now = NOW + 10 - back;
        let mut guard = worker.enter(now);
        assert_eq!(even_fields_of(&mut guard, &key, 500) > 0, lasts, "{back} ms");
        let pair = [(&b"new"[..], &b"1"[..])];
        let new = Lasting::Until(now + 1);
        assert_eq!(guard.hash_set_lasting(&key, pair.into_iter(), Fields::Any, new), Ok(true));
        let there = guard.collection(&key, Type::Hash).unwrap().is_some_and(|hash| hash.has(b"new"));
        assert_eq!(there, lasts, "{back} ms");
        drop(guard);
        // By itself, a second later at most, where the clocks are no more apart than that.
        for at in [now, now + 1_100, now + 2_200] {
            while worker.enter(at).maintain() {}
        }
        let mut guard = worker.enter(now + 2_200);
        assert_eq!(fields_of(&mut guard, &key) == 250, back < 2_200, "{back} ms");
        drop(guard);
        store.check_behind(worker);
    }
}

/// What a worker whose clock is ahead has begun with, upkeep of one that is behind goes on with.
#[test]
fn upkeep_goes_on_with_what_a_worker_whose_clock_is_ahead_has_begun() {
    let (store, mut worker) = store(8);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    fill(&mut guard, &key, 500, |n| NOW + 5 + u64::from(n) % 2 * 1_000);
    drop(guard);
    assert!(matches!(worker.enter(NOW + 10).hash_take_due(&key), Ok(Due::More(_))));
    while worker.enter(NOW + 9).maintain() {}
    assert_eq!(fields_of(&mut worker.enter(NOW + 9), &key), 250);
    store.check_behind(worker);
}
