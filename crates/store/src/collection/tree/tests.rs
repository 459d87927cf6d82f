//! Trees against maps. Leaves and nodes are small here, so that trees are high.

use super::testing::scanned;
use crate::class::ClassId;
use crate::collection::{DIGITS_MAX, Declined, Element, Entry, Type};
use crate::drain::Purpose;
use crate::worker::Guard;
use crate::{Attributes, Config, Eviction, Expect, Key, Store, Worker};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

pub(in crate::collection) const NOW: u64 = 1_700_000_000_000;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

pub(in crate::collection) fn store(mebibytes: u64) -> (Arc<Store>, Worker) {
    let store = Store::new(Config { memory_bytes: mebibytes << 20, ..Config::default() }).unwrap();
    let worker = store.worker().unwrap();
    (store, worker)
}

pub(super) fn text(element: Element<'_>) -> Vec<u8> {
    element.text(&mut [0; DIGITS_MAX]).to_vec()
}

fn of(entry: Entry<'_>) -> (Vec<u8>, Vec<u8>) {
    (text(entry.name), text(entry.value))
}

/// Levels of the tree that a key has; 0 if it has none.
pub(in crate::collection) fn height(guard: &mut Guard<'_>, key: &Key<'_>) -> usize {
    guard.peek(key).hit().filter(|item| item.raw.header().is_tree()).map_or(0, |item| {
        // SAFETY: a tree of this epoch.
        unsafe { item.raw.root(item.raw.header()) }.height as usize
    })
}

/// All that can be asked of a hash or a set is as the map has it.
fn compare(guard: &mut Guard<'_>, key: &Key<'_>, kind: Type, map: &Map) {
    let Some(there) = guard.collection(key, kind).unwrap() else {
        assert!(map.is_empty());
        return;
    };
    assert_eq!(there.len(), map.len());
    let all: Vec<_> = there.entries(0..there.len()).map(of).collect();
    assert_eq!(all.iter().cloned().collect::<Map>(), *map);
    let mut back: Vec<_> = there.entries_back(0..there.len()).map(of).collect();
    back.reverse();
    assert_eq!(back, all);
    let (third, half) = (all.len() / 3, all.len().div_ceil(2));
    assert!(there.entries(third..half).map(of).eq(all[third..half].iter().cloned()));
    assert!(there.entries_back(third..half).map(of).eq(all[third..half].iter().rev().cloned()));
    assert_eq!(there.entries(third..half).len(), half - third);
    for (i, (name, value)) in all.iter().enumerate() {
        assert_eq!(there.find(name), Some(i));
        assert!(there.has(name));
        assert_eq!(of(there.entry(i)), (name.clone(), value.clone()));
        if kind == Type::Hash {
            assert_eq!(there.field(name).map(text).as_ref(), Some(value));
        }
    }
    for stranger in [&b"nobody's"[..], b"", b"-17"] {
        assert_eq!(there.find(stranger).is_some(), map.contains_key(stranger));
        assert_eq!(there.has(stranger), map.contains_key(stranger));
    }
    let scanned = scanned(&there).into_iter().flat_map(|range| there.entries(range)).map(of);
    assert_eq!(scanned.collect::<Vec<_>>(), all, "each once");
}

#[derive(Clone, Debug)]
enum Step {
    Put { from: u32, count: u32, bytes: usize },
    Take { from: u32, count: u32 },
    Move,
    Maintain,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![6 => 0..8_usize, 2 => 60..66_usize, 1 => 250..260_usize, 1 => Just(3_000_usize)];
    prop_oneof![
        6 => (0..400_u32, 1..60_u32, bytes).prop_map(|(from, count, bytes)| Step::Put { from, count, bytes }),
        5 => (0..400_u32, 1..120_u32).prop_map(|(from, count)| Step::Take { from, count }),
        1 => Just(Step::Move),
        1 => Just(Step::Maintain),
    ]
}

/// Has spans of all classes emptied into others.
pub(in crate::collection) fn move_all(store: &Arc<Store>, guard: &mut Guard<'_>) {
    move_classes(store, guard, 0);
}

/// As [`move_all`], but for one class.
fn move_classes(store: &Arc<Store>, guard: &mut Guard<'_>, but: u8) {
    for class in ClassId::all().filter(|class| class.0 != but) {
        let spans: Vec<u32> = store.slabs.class(class).all_spans(&store.arena).collect();
        for number in spans {
            if guard.local.start_drain(store, class, Some(number), true, Purpose::Class) {
                while guard.local.drain_step(store, usize::MAX) {}
                guard.local.stop_drains(store);
            }
        }
    }
}

fn is_as_a_map(kind: Type, steps: &[Step]) {
    let (store, mut worker) = store(8);
    let mut map = Map::new();
    for step in steps {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        match step {
            Step::Put { from, count, bytes } => {
                let pairs: Vec<(Vec<u8>, Vec<u8>)> = (*from..from + count)
                    .map(|n| (format!("{n}").into_bytes(), vec![b'x'; *bytes + n as usize % 3]))
                    .collect();
                let new = pairs.iter().filter(|(name, _)| !map.contains_key(name)).count();
                let names = pairs.iter().map(|(name, _)| name.as_slice());
                match kind {
                    Type::Hash => {
                        let values = pairs.iter().map(|(_, value)| value.as_slice());
                        assert_eq!(guard.hash_set(&key, names.zip(values)), Ok(new));
                        map.extend(pairs.iter().cloned());
                    }
                    _ => {
                        assert_eq!(guard.set_add(&key, names), Ok(new));
                        map.extend(pairs.iter().map(|(name, _)| (name.clone(), Vec::new())));
                    }
                }
            }
            Step::Take { from, count } => {
                let names: Vec<Vec<u8>> =
                    (*from..from + count).map(|n| format!("{n}").into_bytes()).collect();
                let gone = names.iter().filter(|name| map.remove(*name).is_some()).count();
                assert_eq!(guard.remove_named(&key, kind, names.iter().map(Vec::as_slice)), Ok(gone));
            }
            Step::Move => move_all(&store, &mut guard),
            Step::Maintain => while guard.maintain() {},
        }
        compare(&mut guard, &key, kind, &map);
    }
    store.check_behind(worker);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_hash_is_as_a_map(steps in proptest::collection::vec(step(), 1..40)) {
        is_as_a_map(Type::Hash, &steps);
    }

    #[test]
    fn a_set_is_as_a_set(steps in proptest::collection::vec(step(), 1..40)) {
        is_as_a_map(Type::Set, &steps);
    }
}

#[test]
fn a_tree_grows_high_and_comes_down_to_a_leaf_and_to_nothing() {
    let (store, mut worker) = store(32);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let mut map = Map::new();
    let name = |n: u32| format!("field {n}").into_bytes();
    for n in 0..3_000 {
        let value = n.to_string().into_bytes();
        assert_eq!(guard.hash_set(&key, [(&name(n)[..], &value[..])].into_iter()), Ok(1));
        map.insert(name(n), value);
    }
    compare(&mut guard, &key, Type::Hash, &map);
    assert!(height(&mut guard, &key) >= 4, "{}", height(&mut guard, &key));
    for n in (0..3_000).filter(|n| n % 997 != 0) {
        assert_eq!(guard.remove_named(&key, Type::Hash, [&name(n)[..]].into_iter()), Ok(1));
        map.remove(&name(n));
        if n % 300 == 0 {
            compare(&mut guard, &key, Type::Hash, &map);
        }
    }
    compare(&mut guard, &key, Type::Hash, &map);
    let left: Vec<Vec<u8>> = map.keys().cloned().collect();
    assert_eq!(guard.remove_named(&key, Type::Hash, left[1..].iter().map(Vec::as_slice)), Ok(3));
    assert_eq!(height(&mut guard, &key), 0, "so few lie in the item again");
    assert_eq!(guard.collection(&key, Type::Hash).unwrap().unwrap().len(), 1);
    assert_eq!(guard.remove_named(&key, Type::Hash, left.iter().map(Vec::as_slice)), Ok(1));
    assert!(guard.peek(&key).hit().is_none());
    while guard.maintain() {}
    drop(guard);
    store.check_behind(worker);
    assert_eq!(store.totals().items, 0);
}

/// A store in which the n-th chunk from here on is refused: all memory is taken, and n free chunks are left of each class.
#[test]
fn a_change_of_which_any_allocation_is_refused_has_done_nothing() {
    let (store, mut worker) = store(8);
    let mut map = Map::new();
    let name = |n: u32| format!("field {n}").into_bytes();
    {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        for n in 0..600 {
            guard.hash_set(&key, [(&name(n)[..], &b"1"[..])].into_iter()).unwrap();
            map.insert(name(n), b"1".to_vec());
        }
    }
    let mut refused = 0;
    // Splits, joins, a new tree, a tree that comes down, several fields at once, a leaf longer than all others.
    for change in 0..6 {
        for budget in 0.. {
            let mut guard = worker.enter(NOW);
            let (key, other) = (guard.key(b"key"), guard.key(b"other"));
            let before = guard.peek(&key).hit().unwrap().cas();
            guard.local.refuse_after = Some(budget);
            let many: Vec<Vec<u8>> = (0..40).map(|n| name(n * 17 + change * 3 + 10_000)).collect();
            let long = vec![b'l'; 300];
            let done = match change {
                0 => guard.hash_set(&key, many.iter().map(|name| (&name[..], &b"2"[..]))),
                1 => guard.remove_named(&key, Type::Hash, map.keys().step_by(3).map(Vec::as_slice)),
                2 => guard.hash_set(&key, [(&b"long"[..], &long[..])].into_iter()),
                3 => guard.set_add(&other, many.iter().map(Vec::as_slice)),
                4 => guard.remove_named(&other, Type::Set, many[1..].iter().map(Vec::as_slice)),
                _ => guard.remove_named(&key, Type::Hash, [&name(1)[..]].into_iter()),
            };
            guard.local.refuse_after = None;
            match done {
                Ok(_) => {
                    match change {
                        0 => map.extend(many.iter().map(|name| (name.clone(), b"2".to_vec()))),
                        1 => {
                            let gone: Vec<_> = map.keys().step_by(3).cloned().collect();
                            gone.iter().for_each(|name| drop(map.remove(name)));
                        }
                        2 => drop(map.insert(b"long".to_vec(), long)),
                        3 | 4 => {}
                        _ => drop(map.remove(&name(1))),
                    }
                    compare(&mut guard, &key, Type::Hash, &map);
                    break;
                }
                Err(declined) => {
                    assert_eq!(declined, Declined::NoMemory);
                    refused += 1;
                    assert_eq!(guard.peek(&key).hit().unwrap().cas(), before);
                    compare(&mut guard, &key, Type::Hash, &map);
                    assert_eq!(guard.peek(&other).hit().is_some(), change >= 4);
                }
            }
        }
    }
    assert!(refused > 100, "{refused}");
    store.check_behind(worker);
}

#[test]
fn room_for_the_nodes_of_a_large_edit_is_given_back() {
    const KEPT: usize = 1 << 10;
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key_in(2, b"key");
    let names: Vec<String> = (0..20_000).map(|n| format!("member {n:020}")).collect();
    guard.set_add(&key, names.iter().map(String::as_bytes)).unwrap();
    assert!(guard.local.edit.room_for_nodes() <= KEPT, "{}", guard.local.edit.room_for_nodes());
    guard.remove_named(&key, Type::Set, names.iter().map(String::as_bytes)).unwrap();
    assert!(guard.local.edit.room_for_nodes() <= KEPT, "{}", guard.local.edit.room_for_nodes());
    // What is begun and finds no memory.
    let long = [b'l'; 1000];
    let names: Vec<Vec<u8>> = (0..20_000_u32).map(|n| [&n.to_le_bytes()[..], &long].concat()).collect();
    let refused = guard.set_add(&key, names.iter().map(Vec::as_slice));
    assert_eq!(refused.unwrap_err(), Declined::NoMemory);
    assert!(guard.local.edit.room_for_nodes() <= KEPT, "{}", guard.local.edit.room_for_nodes());
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn nodes_that_move_are_found_again_and_what_was_begun_before_is_begun_anew() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key_in(2, b"key");
    let mut map = Map::new();
    for n in 0..900_u32 {
        let (name, value) = (format!("field {n}").into_bytes(), n.to_string().into_bytes());
        guard.hash_set(&key, [(&name[..], &value[..])].into_iter()).unwrap();
        map.insert(name, value);
        if n % 100 == 99 {
            let moved = store.totals().chunks_moved;
            move_all(&store, &mut guard);
            assert!(store.totals().chunks_moved > moved);
            compare(&mut guard, &key, Type::Hash, &map);
        }
    }
    // While a field is being changed, all of it moves.
    let mut moves = 2;
    let other = std::cell::RefCell::new(store.worker().unwrap());
    let done = guard.hash_update(&key, b"field 1", |old| {
        assert_eq!(old, Some(Element::Number(1)));
        if moves > 0 {
            moves -= 1;
            move_all(&store, &mut other.borrow_mut().enter(NOW));
        }
        Ok::<_, Declined>("2")
    });
    assert_eq!((done, moves), (Ok("2"), 0));
    map.insert(b"field 1".to_vec(), b"2".to_vec());
    // And behind the first of two fields, whose new nodes name those beside it where they were.
    let root = guard.peek(&key).hit().unwrap().class();
    let moves = std::cell::Cell::new(2);
    let fields = [&b"field 1"[..], b"field 2"].map(|field| (field, &b"3"[..]));
    let fields = fields.into_iter().inspect(|(field, _)| {
        if *field == b"field 2" && moves.get() > 0 {
            moves.set(moves.get() - 1);
            move_classes(&store, &mut other.borrow_mut().enter(NOW), root);
        }
    });
    assert_eq!((guard.hash_set(&key, fields), moves.get()), (Ok(0), 0));
    map.extend([&b"field 1"[..], b"field 2"].map(|field| (field.to_vec(), b"3".to_vec())));
    compare(&mut guard, &key, Type::Hash, &map);
    // And amid a command of many fields, of which the first 300 were put in before the others are read.
    let moves = std::cell::Cell::new(2);
    let names: Vec<Vec<u8>> = (0..700).map(|n| format!("field {n}").into_bytes()).collect();
    let fields = names.iter().enumerate().map(|(n, name)| {
        if n == 500 && moves.get() > 0 {
            moves.set(moves.get() - 1);
            move_classes(&store, &mut other.borrow_mut().enter(NOW), root);
        }
        (&name[..], &b"4"[..])
    });
    assert_eq!((guard.hash_set(&key, fields), moves.get()), (Ok(0), 0));
    map.extend(names.iter().map(|name| (name.clone(), b"4".to_vec())));
    compare(&mut guard, &key, Type::Hash, &map);
    drop(guard);
    drop((worker, other));
    store.check();
}

/// An expiry that is set, changed or taken away in the midst of a write to elements is the one that stays.
#[test]
fn an_expiry_that_changes_in_the_midst_of_a_write_stays() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let mut other = store.worker().unwrap();
    for fields in [3, 5_000_u32] {
        let name = fields.to_le_bytes();
        let key = guard.key(&name);
        let names: Vec<Vec<u8>> = (0..fields).map(|n| format!("field {n}").into_bytes()).collect();
        guard.hash_set(&key, names.iter().map(|name| (&name[..], &b"1"[..]))).unwrap();
        for expires_at in [NOW + 5_000, NOW + 9_000, 0, NOW + 7_000] {
            let mut changes = 1;
            let done = guard.hash_update(&key, b"field 1", |_| {
                if changes > 0 {
                    changes -= 1;
                    other.enter(NOW).touch(&key, expires_at).unwrap();
                }
                Ok::<_, Declined>("2")
            });
            assert_eq!((done, changes), (Ok("2"), 0));
            assert_eq!(guard.peek(&key).hit().unwrap().expires_at(), expires_at, "{fields} fields");
        }
    }
    drop(guard);
    drop((worker, other));
    store.check();
}

/// The tree that a write was to follow goes with all its nodes, where a flush comes before the write is published.
#[test]
fn a_flush_in_the_midst_of_a_write_leaves_no_node_behind() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let fields: Vec<Vec<u8>> = (0..5_000_u32).map(|n| format!("field {n}").into_bytes()).collect();
    guard.hash_set(&key, fields.iter().map(|name| (&name[..], &b"1"[..]))).unwrap();
    let mut other = store.worker().unwrap();
    let mut flushes = 1;
    let done = guard.hash_update(&key, b"field 1", |_| {
        if flushes > 0 {
            flushes -= 1;
            other.enter(NOW).flush();
        }
        Ok::<_, Declined>("2")
    });
    assert_eq!((done, flushes), (Ok("2"), 0));
    // What was written came after the flush.
    let left = guard.collection(&key, Type::Hash).unwrap().unwrap();
    assert_eq!((left.len(), left.field(b"field 1").is_some()), (1, true));
    guard.delete(&key, Expect::Present).unwrap();
    drop(guard);
    drop(other);
    for _ in 0..1_000 {
        worker.enter(NOW).maintain();
    }
    store.check_behind(worker);
    assert_eq!((store.totals().items, store.trees.count()), (0, 0), "nothing is left of either tree");
}

#[test]
fn what_is_taken_out_goes_in_steps_and_to_the_next_write() {
    let (store, mut worker) = store(4);
    store.set_eviction(Eviction::Off);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let fill = |guard: &mut Guard<'_>, key: &Key<'_>| {
        (0_u32..).take_while(|n| guard.set_add(key, [&n.to_le_bytes()[..]].into_iter()).is_ok()).count()
    };
    let first = fill(&mut guard, &key);
    assert!(first > 20_000, "{first}");
    assert_eq!(guard.collection(&key, Type::Set).unwrap().unwrap().len(), first);
    guard.delete(&key, Expect::Present).unwrap();
    let other = guard.key(b"other");
    // No upkeep: the write itself takes the memory.
    let second = fill(&mut guard, &other);
    assert!(second * 10 > first * 9, "{second} of {first}");
    guard.delete(&other, Expect::Present).unwrap();
    drop(guard);
    worker.rest();
    store.check_behind(worker);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let mut steps = 0;
    while guard.maintain() {
        steps += 1;
    }
    assert!(steps > 50, "{steps} steps");
    drop(guard);
    store.check_behind(worker);
    assert!(!store.trees.any_felled());
}

/// A large tree that is taken out is no longer work for the next allocation, or for what gives way to a buffer, than
/// a little of it; and that is counted.
#[test]
fn no_call_takes_more_than_some_of_a_tree_apart() {
    /// What one allocation takes apart before it goes on to what is there.
    const STEPS: u64 = 32;
    const STEP_NS: u64 = 64 * 150;
    for policy in [Eviction::All, Eviction::Off] {
        let (store, mut worker) = store(16);
        store.set_eviction(Eviction::Off);
        worker.set_patient(false);
        worker.set_asked_again(true);
        let mut guard = worker.enter(NOW);
        // Room of its own for what is evicted, and a tree in all the rest.
        let long = |guard: &mut Guard<'_>, n: u32| {
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, &[1; 16_000], &Attributes::default(), Expect::Any)
        };
        for n in 0..64 {
            long(&mut guard, n).unwrap();
        }
        let key = guard.key(b"key");
        let put = |guard: &mut Guard<'_>, names: Range<u32>| {
            let names: Vec<_> = names.map(u32::to_le_bytes).collect();
            guard.set_add(&key, names.iter().map(|name| &name[..]))
        };
        let mut members = 0;
        for some in [512, 1] {
            while put(&mut guard, members..members + some).is_ok() {
                members += some;
            }
        }
        let used = |class| store.sum(|c| c.class(class).used_chunks.value());
        let nodes = || ClassId::all().map(used).sum::<u64>();
        guard.delete(&key, Expect::Present).unwrap();
        // Its root has no owner any more.
        (0..4).for_each(|_| guard.local.pass_epochs(&store));
        assert!(store.trees.any_felled(), "{members} members");
        store.set_eviction(policy);
        guard.take_beside_ns();
        let before = nodes();
        let (mut calls, mut most_ns) = (0, 0);
        while store.trees.any_felled() {
            calls += 1;
            assert!(calls < 10_000);
            let stored = long(&mut guard, 64 + calls);
            let ns = guard.take_beside_ns();
            most_ns = most_ns.max(ns);
            assert!(stored.is_ok() || guard.memory_comes(), "{policy:?} {stored:?}");
            assert!(ns <= 4 * STEPS * STEP_NS, "{ns} ns in a call");
            if calls == 20 {
                break;
            }
        }
        assert!(most_ns > 0, "what was done is counted");
        assert!(nodes() < before);
        assert!(store.trees.any_felled(), "{calls} calls took {before} nodes apart");
        if policy == Eviction::All {
            // So is it where items give way.
            store.hold(2 << 20);
            guard.give_way_for_now();
            let ns = guard.take_beside_ns();
            assert!(ns > 0 && ns <= 32 * STEP_NS, "{ns}");
            store.hold(-(2 << 20));
        }
        drop(guard);
        for _ in 0..20_000 {
            if !worker.enter(NOW).maintain() {
                break;
            }
        }
        assert!(!store.trees.any_felled());
        store.check_behind(worker);
    }
}

#[test]
fn trees_are_evicted_expire_and_are_flushed_as_any_item() {
    for policy in [Eviction::All, Eviction::Volatile, Eviction::VolatileTtl] {
        let (store, mut worker) = store(4);
        store.set_eviction(policy);
        for round in 0..400_u32 {
            let mut guard = worker.enter(NOW + u64::from(round));
            let name = round.to_le_bytes();
            let key = guard.key(&name);
            let members: Vec<String> = (0..600 + round % 900).map(|n| format!("{round} {n}")).collect();
            let mut half = members.chunks(members.len().div_ceil(2));
            let mut add = |guard: &mut Guard<'_>| {
                let members = half.next().expect("two halves");
                guard.set_add(&key, members.iter().map(String::as_bytes))
            };
            assert!(add(&mut guard).is_ok(), "{policy:?} {round}");
            guard.touch(&key, NOW + 1_000 + u64::from(round)).unwrap();
            assert!(add(&mut guard).is_ok(), "{policy:?} {round}");
            assert!(guard.peek(&key).hit().is_some());
            if round % 16 == 0 {
                guard.maintain();
            }
        }
        assert!(store.totals().evictions > 100);
        let mut guard = worker.enter(NOW + 500);
        let key = guard.key(b"string");
        guard.store_value(&key, b"string", &Attributes::default(), Expect::Any).unwrap();
        drop(guard);
        store.check_behind(worker);
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW + 1_300);
        while guard.maintain() {}
        guard.flush();
        while guard.maintain() {}
        drop(guard);
        store.check_behind(worker);
        assert_eq!(store.totals().items, 0);
    }
}
