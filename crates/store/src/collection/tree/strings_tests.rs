//! Values of fields that lie apart, in hashes in trees, against a map. Leaves, nodes and parts are small here: a value of
//! 17,000 bytes has 25 parts, below several nodes.

use super::apart::PART_BYTES;
use super::strings::{PARTS_MAX, apart_units, bytes_of_units, free_label};
use super::testing::{carry, copy, live, publish, scanned, set_all, text};
use super::tests::{NOW, move_all, store};
use crate::collection::build::{Builder, FIELD_BYTES_MAX, NewEntry};
use crate::collection::element::LongText;
use crate::collection::{BulkLoad, Declined, Due, Element, Fields, Lasting, Made, Type};
use crate::worker::Guard;
use crate::{Attributes, Config, Expect, Key, Store};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Values with their times, 0 for never.
type Map = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// Two names of one order, with the seed of tests.
const ALIKE: [&[u8]; 2] = [b"f297588", b"f63139430"];

/// The root of a tree says no less, and less than 128 bytes more up to what is copied.
#[test]
fn a_root_says_how_long_its_longest_string_is() {
    const COPIED: u64 = 4 << 20;
    let short = [16_346, 16_384, 100_000, COPIED - 129, COPIED - 1, COPIED];
    for bytes in short {
        let said = bytes_of_units(apart_units(bytes, u64::MAX).into());
        assert_eq!(said, bytes.next_multiple_of(128), "{bytes}");
    }
    for bytes in [COPIED + 1, COPIED + (16 << 10), COPIED + (16 << 10) + 1, (64 << 20) - 1, 64 << 20] {
        let said = bytes_of_units(apart_units(bytes, u64::MAX).into());
        assert_eq!(said, COPIED + (bytes - COPIED).next_multiple_of(16 << 10), "{bytes}");
    }
    // No string is longer than all nodes, and none lies apart where all have no more than a leaf.
    assert_eq!(bytes_of_units(apart_units(64 << 20, 20_000).into()), 20_000_u64.next_multiple_of(128));
    assert_eq!(apart_units(64 << 20, FIELD_BYTES_MAX as u64), 0);
}

/// What is said of all elements by the longest of them is so of each.
#[test]
fn elements_fit_that_are_no_longer_than_ones_that_do() {
    let (store, _) = store(64);
    let text = vec![b'x'; (4 << 20) + 1];
    for kind in [Type::List, Type::Hash, Type::Set, Type::SortedSet] {
        let fit = |bytes: usize| store.elements_fit(kind, bytes);
        let most = (0..text.len()).collect::<Vec<_>>().partition_point(|bytes| fit(*bytes)) - 1;
        assert!(fit(most) && !fit(most + 1) && most > 1_000, "{kind:?} {most}");
        for bytes in (0..=most).step_by(997).chain(most.saturating_sub(40)..=most) {
            assert!(store.element_fits(kind, &text[..bytes], &text[..bytes]), "{kind:?} {bytes}");
        }
    }
}

/// All that can be asked of the hash is as the map has it.
fn compare(guard: &mut Guard<'_>, key: &Key<'_>, map: &Map) {
    guard.check_tree(key);
    let map = live(map, guard.now());
    if let Some(there) = guard.collection(key, Type::Hash).unwrap() {
        for (name, (value, at)) in &map {
            let found = there.field(name).expect("it is there");
            assert_eq!(&text(&there, &found), value);
            assert!(there.is(&found, &Element::of(value)));
            assert_eq!(there.entry_named(name).unwrap().expires_at, *at);
        }
        assert!(there.field(b"nobody's").is_none());
    }
    while let Due::More(_) = guard.hash_take_due(key).unwrap() {}
    guard.check_tree(key);
    let Some(there) = guard.collection(key, Type::Hash).unwrap() else {
        assert!(map.is_empty());
        return;
    };
    let known =
        |entry: crate::Entry<'_>| (text(&there, &entry.name), (text(&there, &entry.value), entry.expires_at));
    assert_eq!(there.len(), map.len());
    assert_eq!(there.entries(0..there.len()).map(known).collect::<Map>(), map);
    assert_eq!(there.entries_back(0..there.len()).map(known).collect::<Map>(), map);
    let longest = map.values().map(|(value, _)| value.len()).max().unwrap_or(0);
    assert!(longest < 16_384 || there.longest_apart() >= longest);
    assert_eq!(scanned(&there).iter().map(|range| range.len()).sum::<usize>(), map.len(), "each once");
}

fn value(n: usize, bytes: usize) -> Vec<u8> {
    let seed = (n % 5) as u32;
    (0..bytes as u32).map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn name(n: usize) -> Vec<u8> {
    ALIKE.get(n).map_or_else(|| format!("f{n}").into_bytes(), |name| name.to_vec())
}

#[derive(Clone, Debug)]
enum Step {
    Set { from: usize, count: usize, bytes: usize, lasting: u8, in_ms: u64 },
    Expire { from: usize, count: usize, in_ms: u64 },
    Persist { from: usize, count: usize },
    Change { field: usize },
    Take { from: usize, count: usize },
    Wait { ms: u64 },
    Copy,
    CopySome,
    Carry,
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![
        4 => 0..30_usize,
        2 => Just(300_usize),
        1 => FIELD_BYTES_MAX - 8..FIELD_BYTES_MAX,
        4 => Just(17_000_usize),
        1 => Just(30 * 700_usize),
        1 => Just(30_000_usize),
    ];
    let fields = || (0..40_usize, 1..5_usize);
    prop_oneof![
        8 => (fields(), bytes, 0..4_u8, 1..1_000_u64).prop_map(|((from, count), bytes, lasting, in_ms)| {
            Step::Set { from, count, bytes, lasting, in_ms }
        }),
        2 => (fields(), 0..1_000_u64).prop_map(|((from, count), in_ms)| Step::Expire { from, count, in_ms }),
        1 => fields().prop_map(|(from, count)| Step::Persist { from, count }),
        2 => (0..40_usize).prop_map(|field| Step::Change { field }),
        5 => (0..40_usize, 1..12_usize).prop_map(|(from, count)| Step::Take { from, count }),
        2 => (0..400_u64).prop_map(|ms| Step::Wait { ms }),
        1 => Just(Step::Copy),
        1 => Just(Step::CopySome),
        1 => Just(Step::Carry),
        2 => Just(Step::Move),
    ]
}

fn is_as_a_map(steps: &[Step]) {
    let (store, mut worker) = store(32);
    let (mut map, mut now, mut n) = (Map::new(), NOW, 0);
    for step in steps {
        let mut guard = worker.enter(now);
        let (key, other) = (guard.key(b"key"), guard.key(b"other, with a longer name"));
        n += 1;
        map = live(&map, now);
        match *step {
            Step::Set { from, count, bytes, lasting, in_ms } => {
                // Short ones between them.
                let pairs: Vec<(Vec<u8>, Vec<u8>)> = (0..count)
                    .map(|i| (name(from + i), value(n + i, if i % 2 == 0 { bytes } else { 5 })))
                    .collect();
                let lasting = match lasting {
                    0 | 1 => Lasting::Never,
                    2 => Lasting::Keep,
                    _ => Lasting::Until(now + in_ms),
                };
                let slices = pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
                assert_eq!(guard.hash_set_lasting(&key, slices, Fields::Any, lasting), Ok(true));
                set_all(&mut map, pairs, lasting);
            }
            Step::Expire { from, count, in_ms } => {
                let names: Vec<Vec<u8>> = (from..from + count).map(name).collect();
                let (at, mut done) = (now + in_ms, Vec::new());
                guard.hash_expire(&key, names.iter().map(Vec::as_slice), at, |_| true, &mut done).unwrap();
                for name in names {
                    map.entry(name).and_modify(|(_, old)| *old = at);
                }
            }
            Step::Persist { from, count } => {
                let names: Vec<Vec<u8>> = (from..from + count).map(name).collect();
                guard.hash_persist(&key, names.iter().map(Vec::as_slice), &mut Vec::new()).unwrap();
                for name in names {
                    map.entry(name).and_modify(|(_, old)| *old = 0);
                }
            }
            Step::Change { field } => {
                let (name, new) = (name(field), value(n, 17_500));
                let done = guard.hash_update(&key, &name, |_| Ok::<_, Declined>(&new));
                assert!(done.is_ok());
                let at = map.get(&name).map_or(0, |(_, at)| *at);
                map.insert(name, (new, at));
            }
            Step::Take { from, count } => {
                let names: Vec<Vec<u8>> = (from..from + count).map(name).collect();
                let gone = names.iter().filter(|name| map.remove(*name).is_some()).count();
                assert_eq!(guard.remove_named(&key, Type::Hash, names.iter().map(Vec::as_slice)), Ok(gone));
            }
            Step::Wait { ms } => now += ms,
            Step::Copy | Step::CopySome => {
                while let Due::More(_) = guard.hash_take_due(&key).unwrap() {}
                let by_node = matches!(step, Step::CopySome);
                assert_eq!(copy(&store, &mut guard, Type::Hash, (&key, &other), by_node), !map.is_empty());
                if !map.is_empty() {
                    compare(&mut guard, &other, &map);
                }
            }
            Step::Carry => carry(&mut guard, &key, &other),
            Step::Move => move_all(&store, &mut guard),
        }
        if !matches!(step, Step::Wait { .. }) {
            compare(&mut guard, &key, &map);
        }
        drop(guard);
        worker.rest();
    }
    store.check_behind(worker);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_hash_with_values_apart_is_as_a_map(steps in proptest::collection::vec(step(), 1..30)) {
        is_as_a_map(&steps);
    }
}

/// Of fields of one order each has parts of its own, whichever comes, goes and grows first.
#[test]
fn values_of_fields_of_one_order_lie_apart_beside_each_other() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let [one, other] = ALIKE;
    assert_eq!(store.order_of(one), store.order_of(other), "the seed of tests is another one");
    let mut map = Map::new();
    for round in 0..200_usize {
        let (name, bytes) = (ALIKE[round / 2 % 2], [20_000, 5, 17_000, 60_000][round * 7 / 3 % 4]);
        if round % 5 == 4 {
            guard.remove_named(&key, Type::Hash, [name].into_iter()).unwrap();
            map.remove(name);
        } else {
            let new = value(round, bytes);
            guard.hash_set(&key, [(name, new.as_slice())].into_iter()).unwrap();
            map.insert(name.to_vec(), (new, 0));
        }
        if round % 3 == 0 {
            let (name, new) = (format!("{round}").into_bytes(), value(round, 17_000));
            guard.hash_set(&key, [(name.as_slice(), new.as_slice())].into_iter()).unwrap();
            map.insert(name, (new, 0));
        }
        compare(&mut guard, &key, &map);
    }
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn a_change_with_values_apart_of_which_any_allocation_is_refused_has_done_nothing() {
    let (store, mut worker) = store(16);
    let bytes = |n: usize| if n.is_multiple_of(3) { 17_000 } else { n };
    let mut map: Map = (0..20).map(|n| (name(n), (value(n, bytes(n)), 0))).collect();
    {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        let pairs = map.iter().map(|(name, (value, _))| (name.as_slice(), value.as_slice()));
        guard.hash_set(&key, pairs).unwrap();
    }
    let mut refused = 0;
    for change in 0..7 {
        for budget in 0.. {
            let mut guard = worker.enter(NOW);
            let (key, other) = (guard.key(b"key"), guard.key(b"other"));
            let before = guard.peek(&key).hit().unwrap().cas();
            let new: Vec<(Vec<u8>, Vec<u8>)> = match change {
                // New ones; short for long; long for long and for short.
                0 => vec![(name(50), value(1, 18_000)), (name(51), value(2, 5))],
                1 => vec![(name(0), value(3, 7)), (name(3), value(3, 7))],
                _ => vec![(name(6), value(4, 16_400)), (name(7), value(5, 40_000))],
            };
            guard.local.refuse_after = Some(budget);
            let names = new.iter().map(|(name, _)| name.as_slice());
            let done = match change {
                0..=2 => {
                    let values = new.iter().map(|(_, value)| value.as_slice());
                    guard.hash_set(&key, names.clone().zip(values)).map(drop)
                }
                3 => guard.remove_named(&key, Type::Hash, names.take(1)).map(drop),
                4 => guard
                    .collection_copy(&key, &other, Expect::Any)
                    .map(|done| done.map(drop))
                    .and_then(|done| done.map_err(|_| Declined::NoMemory)),
                5 => guard.hash_expire(&key, names, NOW + 5, |_| true, &mut Vec::new()),
                _ => guard.hash_persist(&key, names, &mut Vec::new()),
            };
            guard.local.refuse_after = None;
            if done.is_ok() {
                match change {
                    0..=2 => map.extend(new.into_iter().map(|(name, value)| (name, (value, 0)))),
                    3 => drop(map.remove(&name(6))),
                    4 => compare(&mut guard, &other, &map),
                    _ => drop(
                        map.entry(name(7)).and_modify(|(_, at)| *at = if change == 5 { NOW + 5 } else { 0 }),
                    ),
                }
                compare(&mut guard, &key, &map);
                break;
            }
            assert_eq!(done, Err(Declined::NoMemory));
            refused += 1;
            assert_eq!(guard.peek(&key).hit().unwrap().cas(), before);
            compare(&mut guard, &key, &map);
        }
    }
    assert!(refused > 100, "{refused}");
    store.check_behind(worker);
}

/// What is made at once, and what comes over several batches, has them, in the first field, too.
#[test]
fn hashes_that_are_made_have_values_apart() {
    let (store, mut worker) = store(16);
    let all: Vec<(Vec<u8>, Vec<u8>)> =
        (0..14).map(|n| (name(n), value(n, if n % 4 == 0 { 17_000 } else { 50 }))).collect();
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    for len in 1..all.len() {
        let at = |n: usize| if n.is_multiple_of(8) { NOW + 50 } else { 0 };
        let entries = || {
            let made = |(n, (name, value)): (usize, &'_ (Vec<u8>, Vec<u8>))| (n, name.clone(), value.clone());
            all[..len].iter().enumerate().map(made)
        };
        let rows: Vec<(usize, Vec<u8>, Vec<u8>)> = entries().collect();
        let made =
            || rows.iter().map(|(n, name, value)| Made { name, value, score: 0.0, expires_at: at(*n) });
        let map: Map = rows.iter().map(|(n, name, value)| (name.clone(), (value.clone(), at(*n)))).collect();
        let stored = guard.collection_store(&key, Type::Hash, made(), &Attributes::default(), Expect::Any);
        assert!(stored.unwrap().is_ok());
        compare(&mut guard, &key, &map);
        let mut load = BulkLoad::new(&store, Type::Hash);
        for entry in made() {
            guard.load_fill(&mut load, &key, std::iter::once(entry)).unwrap();
        }
        let again = made().next_back().unwrap();
        publish(&mut guard, load, &key);
        compare(&mut guard, &key, &map);
        let mut load = BulkLoad::new(&store, Type::Hash);
        guard.load_fill(&mut load, &key, made()).unwrap();
        let twice = guard.load_fill(&mut load, &key, std::iter::once(again));
        assert_eq!(twice, Err(Declined::Twice));
    }
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn a_value_has_the_bytes_that_it_may_have_and_no_more() {
    let (store, mut worker) = store(64);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let most = store.element_bytes_max();
    assert_eq!(most, 4 << 20);
    for (name_bytes, bytes, fits) in [
        (1, most - 1, true),
        (1, most, true),
        (1, most + 1, false),
        (FIELD_BYTES_MAX - 13, 14, true),
        (FIELD_BYTES_MAX - 13, most, true),
        (FIELD_BYTES_MAX - 12, 13, false),
        (FIELD_BYTES_MAX - 12, 12, true),
        (FIELD_BYTES_MAX, 0, true),
        (FIELD_BYTES_MAX + 1, 0, false),
    ] {
        for others in [false, true] {
            let _ = guard.delete(&key, Expect::Present);
            let mut map = Map::new();
            if others {
                let pairs: Vec<Vec<u8>> = (0..60).map(name).collect();
                guard.hash_set(&key, pairs.iter().map(|name| (name.as_slice(), &b"v"[..]))).unwrap();
                map.extend(pairs.into_iter().map(|name| (name, (b"v".to_vec(), 0))));
            }
            let (name, value) = (vec![b'n'; name_bytes], value(1, bytes));
            let done = guard.hash_set(&key, [(name.as_slice(), value.as_slice())].into_iter());
            assert_eq!(done, if fits { Ok(1) } else { Err(Declined::TooLarge) }, "{name_bytes} {bytes}");
            assert_eq!(store.element_fits(Type::Hash, &name, &value), fits);
            if fits {
                let mut done = Vec::new();
                guard.hash_expire(&key, [name.as_slice()].into_iter(), NOW + 9, |_| true, &mut done).unwrap();
                map.insert(name, (value, NOW + 9));
            }
            compare(&mut guard, &key, &map);
        }
    }
    drop(guard);
    store.check_behind(worker);
}

/// A store that evicts nothing is filled to the last chunk: whatever is in it can be taken out, and all comes back.
#[test]
fn values_apart_are_taken_out_of_a_full_store() {
    for deleted in [false, true] {
        let store = Store::new(Config { memory_bytes: 8 << 20, evict: false, ..Config::default() });
        let store = store.unwrap();
        let mut worker = store.worker().unwrap();
        let mut counts = Vec::new();
        for _ in 0..3 {
            let mut map = Map::new();
            loop {
                let mut guard = worker.enter(NOW);
                let key = guard.key(b"key");
                let (name, new) = (name(map.len()), value(map.len(), 20_000));
                match guard.hash_set(&key, [(name.as_slice(), new.as_slice())].into_iter()) {
                    Ok(count) => assert_eq!((count, map.insert(name, (new, 0))), (1, None)),
                    Err(declined) => {
                        assert_eq!(declined, Declined::NoMemory);
                        break;
                    }
                }
            }
            counts.push(map.len());
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            let bytes = guard.peek(&key).hit().unwrap().value_bytes();
            assert!((20_000..22_000).contains(&(bytes as usize / map.len())), "{bytes} for {}", map.len());
            compare(&mut guard, &key, &map);
            if deleted {
                guard.delete(&key, Expect::Present).unwrap();
                drop(guard);
            } else {
                drop(guard);
                while let Some((name, _)) = map.pop_first() {
                    let mut guard = worker.enter(NOW);
                    let key = guard.key(b"key");
                    assert_eq!(guard.remove_named(&key, Type::Hash, [name.as_slice()].into_iter()), Ok(1));
                    if map.len().is_multiple_of(50) {
                        compare(&mut guard, &key, &map);
                    }
                    drop(guard);
                    worker.rest();
                }
            }
            for _ in 0..2_000 {
                worker.enter(NOW).maintain();
            }
            assert_eq!(store.trees.count(), 0);
        }
        // Later ones find spans that were given to other classes.
        assert!(counts[0] > 300 && counts[1] == counts[2] && counts[0] - counts[1] < 10, "{counts:?}");
        store.check_behind(worker);
    }
}

/// Bytes are given back, and with them that something lies apart.
#[test]
fn a_hash_forgets_what_lay_apart() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let pairs: Vec<Vec<u8>> = (0..200).map(name).collect();
    guard.hash_set(&key, pairs.iter().map(|name| (name.as_slice(), &b"v"[..]))).unwrap();
    let bytes = |guard: &mut Guard<'_>| guard.peek(&key).hit().unwrap().value_bytes();
    let before = bytes(&mut guard);
    guard.hash_set(&key, [(&b"long"[..], &value(1, 100_000)[..])].into_iter()).unwrap();
    assert!(guard.collection(&key, Type::Hash).unwrap().unwrap().longest_apart() >= 100_000);
    assert!(bytes(&mut guard) - before > 100_000);
    guard.hash_set(&key, [(&b"long"[..], &b"short"[..])].into_iter()).unwrap();
    let after = bytes(&mut guard);
    assert!(after.abs_diff(before) < 400, "{before} {after}");
    assert_eq!(guard.collection(&key, Type::Hash).unwrap().unwrap().longest_apart(), 0);
    drop(guard);
    store.check_behind(worker);
}

/// Parts are numbered in the first gap that has so many numbers, else behind all others; where there are not as many left, the
/// value finds no label.
#[test]
fn parts_have_the_first_numbers_that_are_free() {
    let key: u64 = 5 << 16;
    let (all, gaps) = (PARTS_MAX, &[(10, 1), (0, 2), (4, 3)][..]);
    for (taken, parts, expected) in [
        (&[][..], 1, Some(0)),
        (&[], all, Some(0)),
        (&[], all + 1, None),
        (&[(3, 10)], 3, Some(0)),
        (&[(3, 10)], 4, Some(13)),
        (gaps, 1, Some(2)),
        (gaps, 2, Some(2)),
        (gaps, 3, Some(7)),
        (gaps, 4, Some(11)),
        (&[(0, all - 4)], 4, Some(all - 4)),
        (&[(0, all - 4)], 5, None),
        (&[(4, all - 4)], 4, Some(0)),
        (&[(4, all - 4)], 5, None),
        (&[(0, 3), (7, all - 7)], 4, Some(3)),
        (&[(0, 3), (7, all - 7)], 5, None),
    ] {
        let mut builder = Builder::default();
        builder.start(Type::Hash);
        // Those of another order take none of these numbers.
        let others = [(key - (1 << 16), all), (key + (1 << 16), all)];
        let ours = taken.iter().map(|(label, parts)| (key + label, *parts));
        for (i, (label, parts)) in others.into_iter().chain(ours).enumerate() {
            builder.insert(i, NewEntry { tag: 0, name: &name(i), value: b"", score: 0.0 }).unwrap();
            let bytes = parts as usize * PART_BYTES;
            builder.set_value_apart(i, &LongText::packed(bytes, label)).unwrap();
        }
        for bytes in [(parts as usize - 1) * PART_BYTES + 1, parts as usize * PART_BYTES] {
            let label = free_label(&builder.leaf(), key, bytes);
            assert_eq!(label.map(|label| label - key), expected, "{taken:?} {parts}");
        }
    }
}

/// What is due at once has no more parts than one step may give back, and says what it took.
#[test]
fn long_values_that_are_due_go_some_parts_at_a_time() {
    let (store, mut worker) = store(64);
    let new = value(1, 1 << 20);
    {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        for n in 2..8 {
            let pairs = [(name(n), new.as_slice())];
            let pairs = pairs.iter().map(|(name, value)| (name.as_slice(), *value));
            let until = Lasting::Until(NOW + 10);
            assert_eq!(guard.hash_set_lasting(&key, pairs, Fields::Any, until), Ok(true));
        }
        guard.hash_set(&key, [(&b"a"[..], &b"1"[..])].into_iter()).unwrap();
    }
    let mut guard = worker.enter(NOW + 20);
    let key = guard.key(b"key");
    let (mut times, mut all) = (0, 0);
    loop {
        let (leaves, more) = match guard.hash_take_due(&key).unwrap() {
            Due::More(leaves) => (leaves, true),
            Due::Done(leaves) => (leaves, false),
        };
        // 2,048 parts, and inner nodes that go with them.
        assert!(leaves <= 3 + 2 * 2_000 / 20, "{leaves}");
        (times, all) = (times + 1, all + leaves);
        guard.check_tree(&key);
        if !more {
            break;
        }
    }
    assert!(times >= 5 && all > 6 * 1_400 / 20, "{times} {all}");
    assert_eq!(guard.collection(&key, Type::Hash).unwrap().unwrap().len(), 1);
    drop(guard);
    store.check_behind(worker);
}

/// A value that is due and has more parts than a step of upkeep gives back loses its last ones first. No reader finds it from
/// then on, one whose clock is behind neither, and a write to its field takes out what is left of it.
#[test]
fn a_long_value_that_is_due_goes_in_steps_of_upkeep() {
    for written_after in [None, Some(2)] {
        let (store, mut worker) = store(64);
        let new = value(1, 1 << 20);
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        let (long, until) = ([(&b"long"[..], new.as_slice())], Lasting::Until(NOW + 10));
        assert_eq!(guard.hash_set_lasting(&key, long.into_iter(), Fields::Any, until), Ok(true));
        guard.hash_set(&key, [(&b"a"[..], &b"1"[..])].into_iter()).unwrap();
        let whole = guard.collection(&key, Type::Hash).unwrap().unwrap().bytes();
        drop(guard);
        let (mut left, mut steps) = (whole, 0);
        for _ in 0..1_000 {
            let mut guard = worker.enter(NOW + 20);
            guard.maintain();
            guard.check_tree(&key);
            let there = guard.collection(&key, Type::Hash).unwrap().unwrap();
            let (bytes, fields, has_long) = (there.bytes(), there.len(), there.has(b"long"));
            assert!(!has_long && there.has(b"a"));
            drop(guard);
            // 256 parts of 700 bytes, and the nodes above them.
            assert!(left - bytes <= 256 * 900, "{} bytes in a step", left - bytes);
            steps += usize::from(bytes < left);
            left = bytes;
            let mut behind = worker.enter(NOW + 9);
            let there = behind.collection(&key, Type::Hash).unwrap().unwrap();
            assert_eq!(there.has(b"long"), left == whole);
            if fields == 1 || written_after == Some(steps) {
                break;
            }
        }
        assert_eq!(steps, written_after.unwrap_or(((1 << 20) / PART_BYTES).div_ceil(256)));
        let mut guard = worker.enter(NOW + 20);
        if written_after.is_some() {
            guard.hash_set(&key, [(&b"long"[..], &b"new"[..])].into_iter()).unwrap();
            guard.check_tree(&key);
        }
        let there = guard.collection(&key, Type::Hash).unwrap().unwrap();
        let found = there.field(b"long").map(|value| text(&there, &value));
        assert_eq!(found, written_after.map(|_| b"new".to_vec()));
        assert!(there.bytes() < 1_000);
        drop(guard);
        store.check_behind(worker);
    }
}

/// Once a long value has lost parts a clock that is behind finds nothing of what was due with it. One that was set back since
/// finds what lasts until then, and of that value nothing: what is left of it is due, and goes.
#[test]
fn what_is_left_of_a_long_value_is_found_by_no_clock() {
    for (back, lasts) in [(1, false), (2_000, false), (2_001, true), (3_600_000, true)] {
        let (store, mut worker) = store(64);
        // The way to what is due leads to the long value first.
        let mut names = [*b"one", *b"two"];
        names.sort_unstable_by_key(|name| store.order_of(name));
        let [long, short] = &names;
        let new = value(1, 1 << 20);
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        for pair in [(&long[..], new.as_slice()), (&short[..], &b"1"[..])] {
            let until = Lasting::Until(NOW + 10);
            assert_eq!(guard.hash_set_lasting(&key, [pair].into_iter(), Fields::Any, until), Ok(true));
        }
        guard.hash_set(&key, [(&b"a"[..], &b"1"[..])].into_iter()).unwrap();
        drop(guard);
        let bytes = |guard: &mut Guard<'_>| guard.collection(&key, Type::Hash).unwrap().unwrap().bytes();
        let whole = bytes(&mut worker.enter(NOW));
        let begun = (0..1_000).any(|_| {
            worker.enter(NOW + 10).maintain();
            bytes(&mut worker.enter(NOW + 10)) < whole
        });
        assert!(begun);
        let mut guard = worker.enter(NOW + 10 - back);
        guard.check_tree(&key);
        let there = guard.collection(&key, Type::Hash).unwrap().unwrap();
        assert_eq!((there.has(long), there.has(short), there.has(b"a")), (false, lasts, true), "{back} ms");
        assert!(there.is_due() && there.bytes() > 1_000 * PART_BYTES, "most of it is there");
        while let Due::More(_) = guard.hash_take_due(&key).unwrap() {}
        guard.check_tree(&key);
        let there = guard.collection(&key, Type::Hash).unwrap().unwrap();
        assert_eq!((there.len(), there.has(short)), (1 + usize::from(lasts), lasts), "{back} ms");
        assert!(!there.is_due() && there.bytes() < 1_000);
        drop(guard);
        store.check_behind(worker);
    }
}

/// A long value is written however often another client writes to the same hash meanwhile.
#[test]
fn a_long_value_comes_to_an_end_beside_another_worker() {
    let (store, mut worker) = store(64);
    let ends = AtomicBool::new(false);
    let (wrote, written) = mpsc::channel();
    let new = value(1, 200_000);
    std::thread::scope(|scope| {
        let (store, ends) = (&store, &ends);
        scope.spawn(move || {
            let mut worker = store.worker().unwrap();
            while !ends.load(Ordering::Relaxed) {
                let mut guard = worker.enter(NOW);
                let key = guard.key(b"key");
                guard.hash_set(&key, [(&b"count"[..], &b"1"[..])].into_iter()).unwrap();
                drop(guard);
                let _ = wrote.send(());
            }
        });
        let mut tries = 0;
        {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            let done = guard.hash_update(&key, b"long", |_| {
                tries += 1;
                while written.try_recv().is_ok() {}
                // The first may have been told late, the second has been written since; where the key is held none comes.
                for _ in 0..2 {
                    let _ = written.recv_timeout(Duration::from_millis(if tries < 20 { 100 } else { 0 }));
                }
                Ok::<_, Declined>(&new)
            });
            assert!(done.is_ok());
        }
        ends.store(true, Ordering::Relaxed);
        assert!(tries <= 3, "{tries}");
    });
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let there = guard.collection(&key, Type::Hash).unwrap().unwrap();
    assert_eq!(text(&there, &there.field(b"long").unwrap()), new);
    drop(guard);
    store.check_behind(worker);
}
