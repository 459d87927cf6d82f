//! Sorted sets in trees against maps. Leaves and nodes are small here, and few members are alike without a name.

use super::testing::{ranked, scanned};
use super::tests::{NOW, height, move_all, store, text};
use crate::collection::{Declined, ScoreRule, Type};
use crate::worker::Guard;
use crate::{Attributes, Eviction, Expect, Key, Made, Refusal};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Members with their scores.
type Map = BTreeMap<Vec<u8>, f64>;

/// All that can be asked of a sorted set is as the map has it.
fn compare(guard: &mut Guard<'_>, key: &Key<'_>, map: &Map) {
    let Some(there) = guard.collection(key, Type::SortedSet).unwrap() else {
        assert!(map.is_empty());
        return;
    };
    let all = ranked(map);
    assert_eq!(there.len(), all.len());
    let of = |entry: crate::Entry<'_>| (entry.score, text(entry.name));
    assert!(there.entries(0..all.len()).map(of).eq(all.iter().cloned()));
    assert!(there.entries_back(0..all.len()).map(of).eq(all.iter().rev().cloned()));
    let (third, half) = (all.len() / 3, all.len().div_ceil(2));
    assert!(there.entries(third..half).map(of).eq(all[third..half].iter().cloned()));
    for (i, (score, name)) in all.iter().enumerate() {
        assert_eq!(there.find(name), Some(i));
        assert!(there.has(name));
        assert_eq!(there.score(name), Some(*score));
        assert_eq!(there.entry_named(name).map(of), Some((*score, name.clone())));
        assert_eq!(of(there.entry(i)), (*score, name.clone()));
    }
    for score in
        all.iter().map(|(score, _)| *score).step_by(5).chain([f64::NEG_INFINITY, 2.25, f64::INFINITY])
    {
        assert_eq!(there.below(score, false), all.partition_point(|other| other.0 < score));
        assert_eq!(there.below(score, true), all.partition_point(|other| other.0 <= score));
    }
    for (i, (score, name)) in all.iter().enumerate().step_by(3) {
        let below = |entry: &crate::Entry<'_>| {
            entry.score < *score || entry.score == *score && entry.name.compare(name).is_lt()
        };
        assert_eq!(there.partition(below), i);
    }
    for stranger in [&b"nobody's"[..], b"", b"-17"] {
        assert_eq!(there.find(stranger).is_some(), map.contains_key(stranger));
        assert_eq!(there.score(stranger), map.get(stranger).copied());
    }
    let mut scanned: Vec<usize> = scanned(&there).into_iter().flatten().collect();
    scanned.sort_unstable();
    assert!(scanned.into_iter().eq(0..all.len()), "each once");
}

#[derive(Clone, Debug)]
enum Step {
    /// Members from that number on get scores: how these are spread, and how long the names are.
    Put {
        from: u32,
        count: u32,
        spread: u8,
        bytes: usize,
    },
    Add {
        from: u32,
        count: u32,
        by: f64,
    },
    Take {
        from: u32,
        count: u32,
    },
    RemoveRanks {
        from: usize,
        count: usize,
    },
    Copy,
    Carry,
    Move,
    Maintain,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![8 => 0..8_usize, 2 => 60..66_usize, 1 => 250..260_usize, 1 => Just(3_000_usize)];
    prop_oneof![
        6 => (0..400_u32, 1..60_u32, 0..8_u8, bytes)
            .prop_map(|(from, count, spread, bytes)| Step::Put { from, count, spread, bytes }),
        3 => (0..400_u32, 1..40_u32, -3..4_i8)
            .prop_map(|(from, count, by)| Step::Add { from, count, by: by.into() }),
        4 => (0..400_u32, 1..120_u32).prop_map(|(from, count)| Step::Take { from, count }),
        3 => (0..500_usize, 0..150_usize).prop_map(|(from, count)| Step::RemoveRanks { from, count }),
        1 => Just(Step::Copy),
        1 => Just(Step::Carry),
        1 => Just(Step::Move),
        1 => Just(Step::Maintain),
    ]
}

/// The score of the nth member: alike, few, ascending, descending, fractions, large, or all of that.
fn score(n: u32, spread: u8) -> f64 {
    match spread {
        0 => 7.0,
        1 => f64::from(n % 5),
        2 => 1.7e12 + f64::from(n),
        3 => 0.0 - f64::from(n),
        4 => f64::from(n.wrapping_mul(0x9e37_79b9)) / 3.0,
        5 => [f64::NEG_INFINITY, -1e300, 5e-324, f64::INFINITY][n as usize % 4],
        6 => f64::from(n.wrapping_mul(0x9e37_79b9) >> 12),
        _ => score(n, (n % 7) as u8),
    }
}

/// The nth member. Some look alike for long.
fn member(n: u32, bytes: usize) -> Vec<u8> {
    match n % 3 {
        0 => n.to_string().into_bytes(),
        _ => [vec![b'm'; bytes], n.to_string().into_bytes()].concat(),
    }
}

fn is_as_a_map(steps: &[Step]) {
    let (store, mut worker) = store(8);
    let mut map = Map::new();
    for step in steps {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        let other = guard.key(b"other, with a longer name");
        match *step {
            Step::Put { from, count, spread, bytes } => {
                let pairs: Vec<(f64, Vec<u8>)> =
                    (from..from + count).map(|n| (score(n, spread), member(n, bytes))).collect();
                let scored = guard
                    .sorted_add(&key, ScoreRule::default(), pairs.iter().map(|(s, n)| (*s, &n[..])))
                    .unwrap();
                let old = map.clone();
                map.extend(pairs.into_iter().map(|(score, name)| (name, score)));
                assert_eq!(scored.new, map.len() - old.len());
                assert_eq!(scored.changed, old.iter().filter(|(name, old)| map[*name] != **old).count());
            }
            Step::Add { from, count, by } => {
                let rule = ScoreRule { present: true, added: true, ..ScoreRule::default() };
                for n in from..from + count {
                    let name = member(n, 0);
                    let scored = guard.sorted_add(&key, rule, [(by, &name[..])].into_iter()).unwrap();
                    assert_eq!(scored.score, map.get(&name).map(|old| old + by));
                    map.entry(name).and_modify(|old| *old += by);
                }
            }
            Step::Take { from, count } => {
                let names: Vec<Vec<u8>> = (from..from + count)
                    .flat_map(|n| [0, 1, 62, 255].map(|bytes| member(n, bytes)))
                    .collect();
                let gone = names.iter().filter(|name| map.remove(*name).is_some()).count();
                let names = names.iter().map(Vec::as_slice);
                assert_eq!(guard.remove_named(&key, Type::SortedSet, names), Ok(gone));
            }
            Step::RemoveRanks { from, count } => {
                let all = ranked(&map);
                let range = from.min(all.len())..(from + count).min(all.len());
                let gone = guard.sorted_remove(&key, |_| from..from + count).unwrap();
                assert_eq!(gone.is_some(), !map.is_empty());
                let gone: Vec<_> =
                    gone.iter().flat_map(|gone| gone.entries().map(|e| (e.score, text(e.name)))).collect();
                assert_eq!(gone, all[range]);
                map.retain(|name, _| !gone.iter().any(|(_, other)| other == name));
            }
            Step::Copy => {
                let copied = guard.collection_copy(&key, &other, Expect::Any).unwrap();
                assert_eq!(copied.is_ok(), !map.is_empty());
                if !map.is_empty() {
                    compare(&mut guard, &other, &map);
                    guard.delete(&other, Expect::Present).unwrap();
                }
            }
            Step::Carry => {
                guard.begin([key, other]);
                let carried = guard.collection_carry(&key, &other, Expect::Any).unwrap();
                assert_eq!(carried.map(drop), if map.is_empty() { Err(Refusal::Type) } else { Ok(()) });
                compare(&mut guard, &other, &map);
                guard.collection_carry(&other, &key, Expect::Any).unwrap().ok();
                guard.finish();
            }
            Step::Move => move_all(&store, &mut guard),
            Step::Maintain => while guard.maintain() {},
        }
        compare(&mut guard, &key, &map);
    }
    store.check_behind(worker);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_sorted_set_is_as_a_map(steps in proptest::collection::vec(step(), 1..40)) {
        is_as_a_map(&steps);
    }
}

#[test]
fn both_trees_grow_high_and_come_down_to_a_leaf_and_to_nothing() {
    for spread in [0, 1, 2, 3, 6] {
        let (store, mut worker) = store(32);
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        let mut map = Map::new();
        for n in 0..2_000 {
            let (name, score) = (member(n, 4), score(n, spread));
            let scored = guard.sorted_add(&key, ScoreRule::default(), [(score, &name[..])].into_iter());
            assert_eq!(scored.unwrap().new, 1);
            map.insert(name, score);
        }
        compare(&mut guard, &key, &map);
        assert!(height(&mut guard, &key) >= 3, "{}", height(&mut guard, &key));
        let moved = store.totals().chunks_moved;
        move_all(&store, &mut guard);
        assert!(store.totals().chunks_moved > moved + 500, "{} moved", store.totals().chunks_moved - moved);
        compare(&mut guard, &key, &map);
        drop(guard);
        store.check_behind(worker);
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        for n in (0..2_000).filter(|n| n % 700 != 0) {
            let name = member(n, 4);
            assert_eq!(guard.remove_named(&key, Type::SortedSet, [&name[..]].into_iter()), Ok(1));
            map.remove(&name);
        }
        compare(&mut guard, &key, &map);
        assert!(height(&mut guard, &key) <= 1, "so few lie in the item again, or in a leaf or two");
        assert_eq!(guard.sorted_remove(&key, |_| 0..usize::MAX).unwrap().unwrap().len(), 3);
        assert!(guard.peek(&key).hit().is_none());
        drop(guard);
        for _ in 0..1_000 {
            worker.enter(NOW).maintain();
        }
        store.check_behind(worker);
        assert_eq!((store.totals().items, store.trees.count()), (0, 0));
    }
}

/// A store in which the n-th chunk from here on is refused: all memory is taken, and n free chunks are left of each class.
#[test]
fn a_change_of_which_any_allocation_is_refused_has_done_nothing_to_either_tree() {
    let (store, mut worker) = store(8);
    let mut map = Map::new();
    let add = |guard: &mut Guard<'_>, key: &Key<'_>, pairs: &[(f64, Vec<u8>)]| {
        guard
            .sorted_add(key, ScoreRule::default(), pairs.iter().map(|(score, name)| (*score, &name[..])))
            .map(drop)
    };
    {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        for n in 0..500 {
            let pair = (score(n, 6), member(n, 4));
            add(&mut guard, &key, std::slice::from_ref(&pair)).unwrap();
            map.insert(pair.1, pair.0);
        }
    }
    let mut refused = 0;
    // New members of one score, others that get it, a new tree, many by rank, one by name, a leaf longer than all others, a
    // copy, the last ones.
    for change in 0..8 {
        for budget in 0.. {
            let mut guard = worker.enter(NOW);
            let (key, other, copy) = (guard.key(b"key"), guard.key(b"other"), guard.key(b"copy"));
            let before = guard.peek(&key).hit().unwrap().cas();
            let all = ranked(&map);
            let new: Vec<_> = (0..20).map(|n| (3.5, member(n + 10_000, 9))).collect();
            let again: Vec<_> = all.iter().step_by(11).map(|(_, name)| (3.5, name.clone())).collect();
            let long = vec![(0.0, vec![b'l'; 300])];
            let len = all.len();
            guard.local.refuse_after = Some(budget);
            let done = match change {
                0 => add(&mut guard, &key, &new),
                1 => add(&mut guard, &key, &again),
                2 => add(&mut guard, &other, &new),
                3 => guard.sorted_remove(&key, |_| len / 4..len / 2).map(drop),
                4 => guard.remove_named(&key, Type::SortedSet, [&all[7].1[..]].into_iter()).map(drop),
                5 => add(&mut guard, &key, &long),
                6 => guard.collection_copy(&key, &copy, Expect::Any).and_then(|stored| {
                    stored.map(drop).map_err(|refusal| {
                        assert_eq!(refusal, Refusal::NoMemory);
                        Declined::NoMemory
                    })
                }),
                _ => guard.sorted_remove(&key, |_| 2..len).map(drop),
            };
            guard.local.refuse_after = None;
            if done.is_ok() {
                match change {
                    0 => map.extend(new.iter().map(|(score, name)| (name.clone(), *score))),
                    1 => map.extend(again.iter().map(|(score, name)| (name.clone(), *score))),
                    3 => map.retain(|name, _| !all[len / 4..len / 2].iter().any(|(_, other)| other == name)),
                    4 => map.retain(|name, _| *name != all[7].1),
                    5 => map.extend(long.iter().map(|(score, name)| (name.clone(), *score))),
                    7 => map.retain(|name, _| !all[2..].iter().any(|(_, other)| other == name)),
                    _ => {}
                }
                compare(&mut guard, &key, &map);
                break;
            }
            assert_eq!(done, Err(Declined::NoMemory));
            refused += 1;
            assert_eq!(guard.peek(&key).hit().unwrap().cas(), before);
            compare(&mut guard, &key, &map);
            assert_eq!(guard.peek(&other).hit().is_some(), change > 2);
            assert_eq!(guard.peek(&copy).hit().is_some(), change > 6);
        }
    }
    assert!(refused > 150, "{refused}");
    store.check_behind(worker);
}

/// Of members with one score those that are found by their hashes alone have their names; those that are not are few.
#[test]
fn members_of_one_score_are_found_however_many_they_are_and_in_whatever_order_they_came() {
    let (store, mut worker) = store(32);
    for seed in 1..30_u32 {
        let mut guard = worker.enter(NOW);
        let name = seed.to_le_bytes();
        let key = guard.key(&name);
        let mut map = Map::new();
        for n in 0..160 + seed {
            // Up to the bound, over it, and back, while others come between.
            let (group, step) = (n % 3, n / 3);
            let name = member(n.wrapping_mul(seed) % 400, 3);
            let score = if step % 7 < 5 { f64::from(group) } else { f64::from(n) + 0.5 };
            guard.sorted_add(&key, ScoreRule::default(), [(score, &name[..])].into_iter()).unwrap();
            map.insert(name, score);
            if n % 13 == 12 {
                let gone = ranked(&map)[n as usize % map.len()].1.clone();
                guard.remove_named(&key, Type::SortedSet, [&gone[..]].into_iter()).unwrap();
                map.remove(&gone);
            }
        }
        compare(&mut guard, &key, &map);
    }
    store.check_behind(worker);
}

/// A member whose score changes, however often, while others go through the set, is met.
#[test]
fn a_member_whose_score_changes_meanwhile_is_scanned() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let names: Vec<Vec<u8>> = (0..600).map(|n| member(n, 3)).collect();
    for (n, name) in names.iter().enumerate() {
        guard.sorted_add(&key, ScoreRule::default(), [((n % 40) as f64, &name[..])].into_iter()).unwrap();
    }
    let (mut cursor, mut met, mut round) = (0, std::collections::BTreeSet::new(), 0);
    loop {
        let there = guard.collection(&key, Type::SortedSet).unwrap().unwrap();
        let mut places = Vec::new();
        cursor = there.scan(cursor, &mut places);
        met.extend(places.into_iter().flatten().map(|place| text(there.entry(place).name)));
        if cursor == 0 {
            break;
        }
        round += 1;
        for (n, name) in names.iter().enumerate().skip(round % 7).step_by(7) {
            let score = ((n * round) % 53) as f64 - 20.0;
            guard.sorted_add(&key, ScoreRule::default(), [(score, &name[..])].into_iter()).unwrap();
        }
    }
    assert!(round > 20, "{round}");
    assert!(names.iter().all(|name| met.contains(name)));
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn sorted_sets_go_in_steps_and_are_evicted_and_flushed_as_any_item() {
    let (store, mut worker) = store(4);
    store.set_eviction(Eviction::All);
    for round in 0..300_u32 {
        let mut guard = worker.enter(NOW + u64::from(round));
        let name = round.to_le_bytes();
        let key = guard.key(&name);
        let names: Vec<Vec<u8>> = (0..300 + round % 500).map(|n| member(n, 5)).collect();
        let pairs = names.iter().enumerate().map(|(n, name)| (score(n as u32, 7), &name[..]));
        assert!(guard.sorted_add(&key, ScoreRule::default(), pairs).is_ok(), "{round}");
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
    worker.enter(NOW + 1_300).flush();
    for _ in 0..1_000 {
        worker.enter(NOW + 1_300).maintain();
    }
    store.check_behind(worker);
    assert_eq!((store.totals().items, store.trees.count()), (0, 0));
}

/// Collections of every type that are stored at once, of any size, and with any allocation refused.
#[test]
fn what_is_stored_at_once_is_as_it_was_given() {
    let (store, mut worker) = store(32);
    let mut refused = 0;
    for (n, count) in [1, 5, 40, 299, 300, 301, 650, 2_000].into_iter().enumerate() {
        for kind in [Type::Hash, Type::Set, Type::SortedSet, Type::List] {
            for spread in 0..8 {
                let mut guard = worker.enter(NOW);
                let names: Vec<Vec<u8>> = (0..count).map(|n| member(n, (n % 9) as usize)).collect();
                let map: Map = (0..count).map(|n| (names[n as usize].clone(), score(n, spread))).collect();
                let ranked = ranked(&map);
                let made = |i: usize| {
                    let (score, name) = match kind {
                        Type::SortedSet => (ranked[i].0, &ranked[i].1),
                        _ => (0.0, &names[i]),
                    };
                    let value = if kind == Type::Hash { &names[names.len() - 1 - i][..] } else { b"" };
                    Made { name, value, score, expires_at: 0 }
                };
                let text_of = |entry: crate::Entry<'_>| (entry.score, text(entry.name), text(entry.value));
                let mut given: Vec<_> = (0..names.len())
                    .map(made)
                    .map(|made| (made.score, made.name.to_vec(), made.value.to_vec()))
                    .collect();
                let key = guard.key(b"key");
                let mut budget = if spread == 0 && n > 2 { 0 } else { u64::MAX };
                loop {
                    guard.local.refuse_after = (budget < u64::MAX).then_some(budget as _);
                    let entries = (0..names.len()).map(made);
                    let done = guard
                        .collection_store(&key, kind, entries, &Attributes::default(), Expect::Any)
                        .unwrap();
                    guard.local.refuse_after = None;
                    if done.is_ok() {
                        break;
                    }
                    assert_eq!(done.map(drop), Err(Refusal::NoMemory));
                    (refused, budget) = (refused + 1, budget * 5 / 4 + 1);
                }
                if kind == Type::SortedSet {
                    compare(&mut guard, &key, &map);
                }
                let there = guard.collection(&key, kind).unwrap().unwrap();
                let mut all: Vec<_> = there.entries(0..there.len()).map(text_of).collect();
                if matches!(kind, Type::Hash | Type::Set) {
                    all.sort_by(|one, other| one.1.cmp(&other.1));
                    given.sort_by(|one, other| one.1.cmp(&other.1));
                }
                assert_eq!(all, given, "{kind:?} {count} {spread}");
                assert!(height(&mut guard, &key) > 0 || count < 100, "{kind:?} {count}");
            }
        }
        while worker.enter(NOW).maintain() {}
    }
    assert!(refused > 100, "{refused}");
    store.check_behind(worker);
}

/// What is kept of entries while they are put in order is held, and has no owner afterwards.
#[test]
fn entries_that_are_put_in_order_are_held_meanwhile() {
    const COUNT: u32 = 1_000;
    for kind in [Type::Hash, Type::Set, Type::SortedSet] {
        let (store, mut worker) = store(32);
        let mut guard = worker.enter(NOW);
        let names: Vec<Vec<u8>> = (0..COUNT).map(|n| format!("{n:0>400}").into_bytes()).collect();
        let most = Cell::new(0);
        let entries = names.iter().enumerate().map(|(n, name)| {
            most.set(store.held_bytes().max(most.get()));
            Made {
                name,
                value: b"",
                score: if kind == Type::SortedSet { n as f64 } else { 0.0 },
                expires_at: 0,
            }
        });
        let key = guard.key(b"key");
        guard.collection_store(&key, kind, entries, &Attributes::default(), Expect::Any).unwrap().unwrap();
        // Of 300 at a time their names, beside what leads to them.
        assert!((120_000..400_000).contains(&most.get()), "{kind:?}: {} bytes", most.get());
        assert_eq!(store.held_bytes(), 0);
        // Few are counted with their worker.
        most.set(0);
        let entries = names.iter().take(100).map(|name| {
            most.set(store.held_bytes().max(most.get()));
            Made { name, value: b"", score: 0.0, expires_at: 0 }
        });
        guard.collection_store(&key, kind, entries, &Attributes::default(), Expect::Any).unwrap().unwrap();
        assert_eq!(most.get(), 0);
    }
}

/// Nodes that a write makes are noted, and that is held while it lasts.
#[test]
fn nodes_of_a_long_write_are_held_meanwhile() {
    let (store, mut worker) = store(32);
    let mut guard = worker.enter(NOW);
    let names: Vec<Vec<u8>> = (0..100_000).map(|n| member(n, 20)).collect();
    let most = Cell::new(0);
    let entries = names.iter().map(|name| {
        most.set(store.held_bytes().max(most.get()));
        Made { name, value: b"", score: 0.0, expires_at: 0 }
    });
    let key = guard.key(b"key");
    guard.collection_store(&key, Type::List, entries, &Attributes::default(), Expect::Any).unwrap().unwrap();
    assert!(most.get() > 64 << 10, "{} bytes", most.get());
    assert_eq!(store.held_bytes(), 0);
}

/// Members of one command come into the members tree leaf by leaf.
#[test]
fn members_of_one_command_make_each_leaf_of_the_members_tree_anew_once() {
    const COUNT: u32 = 300;
    for spread in [0, 2, 3] {
        let (store, mut worker) = store(32);
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        let mut map = Map::new();
        let mut put = |from: u32, count: u32, more: f64| {
            let pairs: Vec<(f64, Vec<u8>)> =
                (from..from + count).map(|n| (score(n, spread) + more, member(n, 4))).collect();
            let before = guard.local.edit.members_leaves;
            let given = pairs.iter().map(|(score, name)| (*score, &name[..]));
            guard.sorted_add(&key, ScoreRule::default(), given).unwrap();
            map.extend(pairs.into_iter().map(|(score, name)| (name, score)));
            compare(&mut guard, &key, &map);
            guard.local.edit.members_leaves - before
        };
        put(0, COUNT, 0.0);
        // Leaves have five to ten members here: new ones and such as move come into each of them.
        for (from, count) in [(COUNT, COUNT), (0, COUNT), (COUNT / 2, COUNT)] {
            let leaves = put(from, count, f64::from(from % 7) + 0.5);
            assert!(
                leaves < COUNT as usize * 2 / 3,
                "{leaves} leaves for {count} members of scores {spread}"
            );
        }
        drop(guard);
        store.check_behind(worker);
    }
}

/// A command has done what its pairs would have done one after the other, where a member comes more than once, too.
#[test]
fn pairs_of_one_command_are_as_pairs_that_come_one_after_the_other() {
    let none = ScoreRule::default();
    let rules = [
        none,
        ScoreRule { present: true, ..none },
        ScoreRule { absent: true, ..none },
        ScoreRule { higher: true, ..none },
        ScoreRule { lower: true, present: true, ..none },
        ScoreRule { added: true, ..none },
    ];
    let (store, mut worker) = store(32);
    let mut guard = worker.enter(NOW);
    let (one, other) = (guard.key(b"one"), guard.key(b"other"));
    let mut random = 1_u64;
    let mut next = |n: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % n
    };
    for round in 0..60 {
        let rule = rules[if round < 4 { 0 } else { next(6) as usize }];
        let (names, scores) = (1 + next(900), 1 + next(40));
        let pairs: Vec<(f64, Vec<u8>)> = (0..10 + next(700))
            .map(|_| (next(scores) as f64 - 3.0, member(next(names) as u32, 60 + next(6) as usize)))
            .collect();
        let mut apart = [0; 2];
        let mut score = None;
        for (given, name) in &pairs {
            let scored = guard.sorted_add(&other, rule, [(*given, &name[..])].into_iter()).unwrap();
            apart = [apart[0] + scored.new, apart[1] + scored.changed];
            score = scored.score;
        }
        let given = pairs.iter().map(|(score, name)| (*score, &name[..]));
        let scored = guard.sorted_add(&one, rule, given).unwrap();
        assert_eq!(([scored.new, scored.changed], scored.score), (apart, score), "round {round}, {rule:?}");
        let map: Map = guard
            .collection(&other, Type::SortedSet)
            .unwrap()
            .into_iter()
            .flat_map(|there| {
                there.entries(0..there.len()).map(|e| (text(e.name), e.score)).collect::<Vec<_>>()
            })
            .collect();
        compare(&mut guard, &one, &map);
        if round % 8 == 7 {
            guard.sorted_remove(&one, |_| 0..usize::MAX).unwrap();
            guard.sorted_remove(&other, |_| 0..usize::MAX).unwrap();
        }
    }
    drop(guard);
    store.check_behind(worker);
}
