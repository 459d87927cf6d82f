//! Members that lie apart, in sorted sets in trees, against maps. Leaves, nodes and parts are small here, and few members are
//! alike without a name: a member of 17,000 bytes has 25 parts, below several nodes of the members tree.

use super::testing::{carry, copy, member_of, publish, ranked, scanned, text};
use super::tests::{NOW, move_all, store};
use crate::collection::build::{Builder, NewEntry, SCORED_BYTES_MAX};
use crate::collection::element::LongText;
use crate::collection::{BulkLoad, Declined, Made, ScoreRule, Type};
use crate::key::HASHED_BYTES;
use crate::worker::Guard;
use crate::{Attributes, Config, Expect, Key, Store};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Members with their scores.
type Map = BTreeMap<Vec<u8>, f64>;

/// The nth member: a third of them lie apart.
fn member(n: usize) -> Vec<u8> {
    let bytes = match n % 9 {
        0 => 17_000,
        1 => SCORED_BYTES_MAX,
        2 => SCORED_BYTES_MAX + 1,
        3 => 30 * 700,
        4 => 300,
        _ => 0,
    };
    member_of(n, bytes)
}

/// All that can be asked of a sorted set is as the map has it.
fn compare(guard: &mut Guard<'_>, key: &Key<'_>, map: &Map) {
    guard.check_tree(key);
    let Some(there) = guard.collection(key, Type::SortedSet).unwrap() else {
        assert!(map.is_empty());
        return;
    };
    let all = ranked(map);
    assert_eq!(there.len(), all.len());
    let of = |entry: crate::Entry<'_>| (entry.score, text(&there, &entry.name));
    assert!(there.entries(0..all.len()).map(of).eq(all.iter().cloned()));
    assert!(there.entries_back(0..all.len()).map(of).eq(all.iter().rev().cloned()));
    for (i, (score, name)) in all.iter().enumerate() {
        assert_eq!(there.find(name), Some(i));
        assert!(there.has(name));
        assert_eq!(there.score(name), Some(*score));
        assert_eq!(there.entry_named(name).map(of), Some((*score, name.clone())));
        let below = |entry: &crate::Entry<'_>| {
            entry.score < *score || entry.score == *score && there.compare(&entry.name, name).is_lt()
        };
        assert_eq!(there.partition(below), i);
        // Of the same length.
        let mut other = name.clone();
        *other.last_mut().expect("none is empty") ^= 1;
        assert_eq!(there.score(&other), map.get(&other).copied());
    }
    for stranger in [member_of(usize::MAX, 17_000), member_of(usize::MAX, 70_000), b"nobody's".to_vec()] {
        assert!(there.find(&stranger).is_none() && there.score(&stranger).is_none());
    }
    let longest = map.keys().map(Vec::len).max().unwrap_or(0);
    assert!(longest <= SCORED_BYTES_MAX || there.longest_apart() >= longest);
    let mut scanned: Vec<usize> = scanned(&there).into_iter().flatten().collect();
    scanned.sort_unstable();
    assert!(scanned.into_iter().eq(0..all.len()), "each once");
}

/// The score of the nth member: alike, few, or each its own. None is −0, which [`ranked`] would put in front of 0.
fn score(n: usize, spread: u8) -> f64 {
    match spread {
        0 => 7.0,
        1 => (n % 3) as f64,
        2 => n as f64,
        _ => 0.0 - n as f64 / 2.0,
    }
}

fn add(guard: &mut Guard<'_>, key: &Key<'_>, pairs: &[(f64, Vec<u8>)]) -> Result<usize, Declined> {
    let pairs = pairs.iter().map(|(score, name)| (*score, name.as_slice()));
    guard.sorted_add(key, ScoreRule::default(), pairs).map(|scored| scored.new)
}

fn remove(guard: &mut Guard<'_>, key: &Key<'_>, members: &[Vec<u8>]) -> Result<usize, Declined> {
    guard.remove_named(key, Type::SortedSet, members.iter().map(Vec::as_slice))
}

fn made((score, name): &(f64, Vec<u8>)) -> Made<'_> {
    Made { name, value: &[], score: *score, expires_at: 0 }
}

#[derive(Clone, Debug)]
enum Step {
    Put { from: usize, count: usize, spread: u8 },
    Take { from: usize, count: usize },
    RemoveRanks { from: usize, count: usize },
    Copy,
    CopySome,
    Carry,
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..60_usize, 1..20_usize, 0..4_u8)
            .prop_map(|(from, count, spread)| Step::Put { from, count, spread }),
        5 => (0..60_usize, 1..12_usize).prop_map(|(from, count)| Step::Take { from, count }),
        3 => (0..60_usize, 0..40_usize).prop_map(|(from, count)| Step::RemoveRanks { from, count }),
        1 => Just(Step::Copy),
        1 => Just(Step::CopySome),
        1 => Just(Step::Carry),
        2 => Just(Step::Move),
    ]
}

fn is_as_a_map(steps: &[Step]) {
    let (store, mut worker) = store(32);
    let mut map = Map::new();
    for step in steps {
        let mut guard = worker.enter(NOW);
        let (key, other) = (guard.key(b"key"), guard.key(b"other, with a longer name"));
        match *step {
            Step::Put { from, count, spread } => {
                let pairs: Vec<(f64, Vec<u8>)> =
                    (from..from + count).map(|n| (score(n, spread), member(n))).collect();
                let new = pairs.iter().filter(|(score, name)| map.insert(name.clone(), *score).is_none());
                let new = new.count();
                assert_eq!(add(&mut guard, &key, &pairs), Ok(new));
            }
            Step::Take { from, count } => {
                let members: Vec<Vec<u8>> = (from..from + count).map(member).collect();
                let gone = members.iter().filter(|member| map.remove(*member).is_some()).count();
                assert_eq!(remove(&mut guard, &key, &members), Ok(gone));
            }
            Step::RemoveRanks { from, count } => {
                let range = from.min(map.len())..(from + count).min(map.len());
                let gone: Vec<_> = ranked(&map)[range.clone()].to_vec();
                gone.iter().for_each(|(_, name)| assert!(map.remove(name).is_some()));
                if let Some(removed) = guard.sorted_remove(&key, |_| range.clone()).unwrap() {
                    let set = removed.collection();
                    let taken: Vec<_> =
                        removed.entries().map(|entry| (entry.score, text(set, &entry.name))).collect();
                    assert!(taken == gone, "{} for {}", taken.len(), gone.len());
                }
            }
            Step::Copy | Step::CopySome => {
                let by_node = matches!(step, Step::CopySome);
                assert_eq!(
                    copy(&store, &mut guard, Type::SortedSet, (&key, &other), by_node),
                    !map.is_empty()
                );
                if !map.is_empty() {
                    compare(&mut guard, &other, &map);
                }
            }
            Step::Carry => carry(&mut guard, &key, &other),
            Step::Move => move_all(&store, &mut guard),
        }
        compare(&mut guard, &key, &map);
        drop(guard);
        worker.rest();
    }
    store.check_behind(worker);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_sorted_set_with_members_apart_is_as_a_map(steps in proptest::collection::vec(step(), 1..30)) {
        is_as_a_map(&steps);
    }
}

/// Of three that have a score of 0, each by another way, the short one is first, since its bytes are.
#[test]
fn members_with_a_score_of_0_are_in_the_order_of_their_bytes() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let map: Map = [(0, 3), (3, 1), (6, 1)].map(|(n, spread)| (member(n), score(n, spread))).into();
    let all = ranked(&map);
    assert!(all.iter().all(|(score, _)| *score == 0.0 && score.is_sign_positive()));
    assert_eq!(all[0].1, member(6));
    assert_eq!(add(&mut guard, &key, &all), Ok(3));
    compare(&mut guard, &key, &map);
    drop(guard);
    store.check_behind(worker);
}

/// Long members of one score are in the order of their bytes, wherever these differ, in whatever order they come.
#[test]
fn long_members_of_one_score_are_in_the_order_of_their_bytes() {
    let (store, mut worker) = store(32);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let mut map = Map::new();
    for n in 0..40_usize {
        let n = n * 27 % 40;
        // At the beginning, in the midst, at the end; and some are beginnings of others.
        let mut name = vec![b'x'; 20_000 + n % 3];
        name[[0, 10_000, 19_999][n % 3]] = n as u8;
        name.truncate(if n % 4 == 0 { 16_500 + n } else { name.len() });
        assert_eq!(add(&mut guard, &key, &[(1.0, name.clone())]), Ok(usize::from(!map.contains_key(&name))));
        map.insert(name, 1.0);
        compare(&mut guard, &key, &map);
    }
    for name in map.keys().cloned().collect::<Vec<_>>() {
        assert_eq!(add(&mut guard, &key, &[(2.0, name.clone())]), Ok(0));
        map.insert(name, 2.0);
    }
    compare(&mut guard, &key, &map);
    drop(guard);
    store.check_behind(worker);
}

/// Each way to a member compares it with some twenty others, if these are many: one that moves is looked for at its old score and
/// at its new one, and at its old one again where that is in another leaf, since the tree is another by then.
#[test]
fn a_member_that_moves_is_looked_for_no_more_than_three_times() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let mut map: Map = (0..60).map(|n| (member(n), score(n, 2))).collect();
    assert_eq!(add(&mut guard, &key, &ranked(&map)), Ok(60));
    for name in [member(0), member(5)] {
        // To the end, and there, and back to the beginning.
        for (score, ways) in [(60.0, 3), (61.0, 2), (-1.0, 3), (-1.0, 0)] {
            let before = guard.local.edit.ways.get();
            assert_eq!(add(&mut guard, &key, &[(score, name.clone())]), Ok(0));
            assert_eq!(guard.local.edit.ways.get() - before, ways, "{} {score}", name.len());
            map.insert(name.clone(), score);
            compare(&mut guard, &key, &map);
        }
        // One that is new is looked for once, and so is one that goes.
        let before = guard.local.edit.ways.get();
        assert_eq!(remove(&mut guard, &key, std::slice::from_ref(&name)), Ok(1));
        assert_eq!(guard.local.edit.ways.get() - before, 1);
        assert_eq!(add(&mut guard, &key, &[(7.5, name.clone())]), Ok(1));
        assert_eq!(guard.local.edit.ways.get() - before, 2);
        map.insert(name, 7.5);
        compare(&mut guard, &key, &map);
    }
    drop(guard);
    store.check_behind(worker);
}

/// Members that are taken out by rank at once are in several leaves of the members tree: the parts of all go with the first, and
/// leaves that have few members left are joined with others.
#[test]
fn ranks_with_members_apart_go_from_many_leaves_at_once() {
    let (store, mut worker) = store(32);
    for (from, count) in [(0, 59), (1, 59), (10, 40), (0, 30), (30, 30), (7, 3), (59, 1)] {
        for spread in 0..4 {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            let mut map: Map = (0..60).map(|n| (member(n), score(n, spread))).collect();
            assert_eq!(add(&mut guard, &key, &ranked(&map)), Ok(60));
            for (_, name) in &ranked(&map)[from..from + count] {
                assert!(map.remove(name).is_some());
            }
            let removed = guard.sorted_remove(&key, |_| from..from + count).unwrap();
            assert_eq!(removed.map(|removed| removed.len()), Some(count));
            compare(&mut guard, &key, &map);
            assert!(guard.delete(&key, Expect::Present).is_ok());
            drop(guard);
            worker.rest();
        }
    }
    store.check_behind(worker);
}

/// What is longer than all that is there, or than any may be, is not even hashed.
#[test]
fn members_of_sorted_sets_that_cannot_be_there_are_not_hashed() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let mut map: Map = [(member_of(1, 20_000), 1.0), (b"short".to_vec(), 2.0)].into();
    assert_eq!(add(&mut guard, &key, &ranked(&map)), Ok(2));
    let set = guard.collection(&key, Type::SortedSet).unwrap().unwrap();
    let longest = set.longest_apart();
    for (bytes, is_hashed) in [(longest - 1, true), (longest, true), (longest + 1, false), (1 << 20, false)] {
        let (stranger, before) = (member_of(2, bytes), HASHED_BYTES.get());
        assert!(set.score(&stranger).is_none() && set.find(&stranger).is_none());
        assert_eq!(HASHED_BYTES.get() > before, is_hashed, "{bytes}");
    }
    let most = store.scored_bytes_max();
    let (long, longer, before) = (member_of(2, longest + 1), member_of(2, most + 1), HASHED_BYTES.get());
    assert_eq!(remove(&mut guard, &key, &[long]), Ok(0));
    assert_eq!(add(&mut guard, &key, &[(1.0, longer)]), Err(Declined::TooLarge));
    assert_eq!(HASHED_BYTES.get(), before);
    assert_eq!(add(&mut guard, &key, &[(1.0, member_of(2, 100_000))]), Ok(1));
    map.insert(member_of(2, 100_000), 1.0);
    compare(&mut guard, &key, &map);
    drop(guard);
    store.check_behind(worker);
}

/// A store that evicts nothing is filled: whatever is in it can be taken out, by name and by rank, and all comes back.
#[test]
fn members_of_sorted_sets_apart_are_taken_out_of_a_full_store() {
    let store = Store::new(Config { memory_bytes: 8 << 20, evict: false, ..Config::default() });
    let store = store.unwrap();
    let mut worker = store.worker().unwrap();
    for by_rank in [false, true] {
        let mut map = Map::new();
        loop {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            let (score, new) = (score(map.len(), 1), member_of(map.len(), 20_000));
            match add(&mut guard, &key, &[(score, new.clone())]) {
                Ok(count) => assert_eq!((count, map.insert(new, score)), (1, None)),
                Err(declined) => {
                    assert_eq!(declined, Declined::NoMemory);
                    break;
                }
            }
        }
        assert!(map.len() > 250, "{}", map.len());
        let names: Vec<Vec<u8>> = match by_rank {
            false => map.keys().cloned().collect(),
            true => ranked(&map).into_iter().map(|(_, name)| name).collect(),
        };
        for name in names {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            if by_rank {
                let gone = guard.sorted_remove(&key, |_| 0..1).unwrap();
                assert_eq!(gone.map(|gone| gone.len()), Some(1));
            } else {
                assert_eq!(remove(&mut guard, &key, std::slice::from_ref(&name)), Ok(1));
            }
            map.remove(&name);
            if map.len().is_multiple_of(100) {
                compare(&mut guard, &key, &map);
            }
            drop(guard);
            worker.rest();
        }
        for _ in 0..2_000 {
            worker.enter(NOW).maintain();
        }
        assert_eq!(store.trees.count(), 0);
    }
    store.check_behind(worker);
}

/// The check of a leaf compares the short members on both sides of a long one, which it knows nothing of.
#[test]
fn a_leaf_is_out_of_order_if_short_members_about_a_long_one_are() {
    let is_sound = |before: &[u8], behind: &[u8]| {
        let mut builder = Builder::default();
        builder.start(Type::SortedSet);
        let short = |name| NewEntry { tag: 7, name, value: b"", score: 1.0 };
        builder.insert(0, short(before)).unwrap();
        builder.insert_apart(1, 7, &LongText::packed(20_000, 1 << 16), 1.0).unwrap();
        builder.insert(2, short(behind)).unwrap();
        catch_unwind(AssertUnwindSafe(|| builder.leaf().check_form(&|_| 7))).is_ok()
    };
    assert!(is_sound(b"a", b"b"));
    assert!(!is_sound(b"b", b"a"));
    assert!(!is_sound(b"a", b"a"));
}

#[test]
fn a_change_with_members_apart_of_which_any_allocation_is_refused_has_done_nothing() {
    let (store, mut worker) = store(16);
    let mut map: Map = (0..20).map(|n| (member(n), score(n, 1))).collect();
    {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        assert_eq!(add(&mut guard, &key, &ranked(&map)), Ok(20));
    }
    let mut refused = 0;
    for change in 0..5 {
        for budget in 0.. {
            let mut guard = worker.enter(NOW);
            let (key, other) = (guard.key(b"key"), guard.key(b"other"));
            let before = guard.peek(&key).hit().unwrap().cas();
            let new = [(1.0, member_of(50, 18_000)), (9.0, b"short".to_vec()), (1.0, member_of(51, 40_000))];
            let moved = [(5.5, member(0)), (5.5, member(2))];
            guard.local.refuse_after = Some(budget);
            let done = match change {
                0 => add(&mut guard, &key, &new).map(drop),
                1 => remove(&mut guard, &key, &[member(3)]).map(drop),
                2 => guard
                    .collection_copy(&key, &other, Expect::Any)
                    .map(|done| done.map(drop))
                    .and_then(|done| done.map_err(|_| Declined::NoMemory)),
                3 => add(&mut guard, &key, &moved).map(drop),
                _ => guard.sorted_remove(&key, |_| 2..9).map(drop),
            };
            guard.local.refuse_after = None;
            if done.is_ok() {
                match change {
                    0 => map.extend(new.into_iter().map(|(score, name)| (name, score))),
                    1 => _ = map.remove(&member(3)),
                    2 => compare(&mut guard, &other, &map),
                    3 => map.extend(moved.into_iter().map(|(score, name)| (name, score))),
                    _ => {
                        for (_, name) in &ranked(&map)[2..9] {
                            map.remove(name);
                        }
                    }
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

/// What is made at once, and what comes over several batches, in any order, has them, as its first member, too; and each once.
#[test]
fn sorted_sets_that_are_made_have_members_apart() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    for spread in 0..4 {
        for (from, len) in [(0, 1), (0, 2), (2, 3), (4, 9), (0, 14), (5, 40)] {
            let map: Map = (from..from + len).map(|n| (member(n), score(n, spread))).collect();
            let all = ranked(&map);
            let stored = guard.collection_store(
                &key,
                Type::SortedSet,
                all.iter().map(made),
                &Attributes::default(),
                Expect::Any,
            );
            assert!(stored.unwrap().is_ok());
            compare(&mut guard, &key, &map);
            let mut mixed = all.clone();
            mixed.sort_by_key(|(_, name)| name.iter().rev().take(2).copied().collect::<Vec<u8>>());
            for (rows, at_once) in [(&all, 1), (&all, 5), (&mixed, 1), (&mixed, 7)] {
                let mut load = BulkLoad::new(&store, Type::SortedSet);
                for some in rows.chunks(at_once) {
                    guard.load_fill(&mut load, &key, some.iter().map(made)).unwrap();
                }
                publish(&mut guard, load, &key);
                compare(&mut guard, &key, &map);
            }
            for (_, again) in &all {
                let mut load = BulkLoad::new(&store, Type::SortedSet);
                guard.load_fill(&mut load, &key, all.iter().map(made)).unwrap();
                let twice = [(99.0, again.clone())];
                let mut done = guard.load_fill(&mut load, &key, twice.iter().map(made));
                while done.is_ok() {
                    done = guard.load_finish(&mut load, &key).map(|all| assert!(!all, "it is there twice"));
                }
                assert_eq!(done, Err(Declined::Twice));
            }
        }
    }
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn a_member_has_the_bytes_that_it_may_have_and_no_more() {
    let (store, mut worker) = store(64);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let most = store.scored_bytes_max();
    assert_eq!(most, 1 << 20);
    for (bytes, fits, apart) in [
        (SCORED_BYTES_MAX - 1, true, false),
        (SCORED_BYTES_MAX, true, false),
        (SCORED_BYTES_MAX + 1, true, true),
        ((1 << 16) + 1, true, true),
        (most - 1, true, true),
        (most, true, true),
        (most + 1, false, false),
    ] {
        for others in [0, 60] {
            let _ = guard.delete(&key, Expect::Present);
            let mut map: Map = (0..others).map(|n| (format!("s{n}").into_bytes(), n as f64)).collect();
            assert_eq!(add(&mut guard, &key, &ranked(&map)), Ok(others));
            let name = member_of(1, bytes);
            let done = add(&mut guard, &key, &[(3.0, name.clone())]);
            assert_eq!(done, if fits { Ok(1) } else { Err(Declined::TooLarge) }, "{bytes}");
            assert_eq!(store.element_fits(Type::SortedSet, &name, b""), fits);
            if fits {
                map.insert(name, 3.0);
                let there = guard.collection(&key, Type::SortedSet).unwrap().unwrap();
                assert_eq!(there.longest_apart() >= bytes, apart, "{bytes}");
            }
            compare(&mut guard, &key, &map);
        }
    }
    drop(guard);
    store.check_behind(worker);
}
