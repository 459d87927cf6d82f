//! Members that lie apart, in sets in trees, against a set. Leaves, nodes and parts are small here: a member of 17,000 bytes has
//! 25 parts, below several nodes.

use super::apart::PART_BYTES;
use super::strings::{PARTS_MAX, free_label};
use super::testing::{carry, copy, member_of, publish, scanned, text};
use super::tests::{NOW, move_all, store};
use crate::collection::build::{Builder, MEMBER_BYTES_MAX, NewEntry};
use crate::collection::element::LongText;
use crate::collection::{BulkLoad, Declined, Element, Made, Type};
use crate::key::HASHED_BYTES;
use crate::worker::Guard;
use crate::{Attributes, Config, Expect, Key, Store};
use proptest::prelude::*;
use std::collections::BTreeSet;

type Set = BTreeSet<Vec<u8>>;

/// The nth member: of a third of them the bytes are apart.
fn member(n: usize) -> Vec<u8> {
    let bytes = match n % 9 {
        0 => 17_000,
        1 => MEMBER_BYTES_MAX,
        2 => MEMBER_BYTES_MAX + 1,
        3 => 30 * 700,
        4 => 300,
        _ => 0,
    };
    member_of(n, bytes)
}

/// All that can be asked of the set is as is known.
fn compare(guard: &mut Guard<'_>, key: &Key<'_>, set: &Set) {
    guard.check_tree(key);
    let Some(there) = guard.collection(key, Type::Set).unwrap() else {
        assert!(set.is_empty());
        return;
    };
    assert_eq!(there.len(), set.len());
    let all: Vec<Vec<u8>> = there.entries(0..there.len()).map(|entry| text(&there, &entry.name)).collect();
    assert_eq!(all.iter().cloned().collect::<Set>(), *set);
    let back: Vec<Vec<u8>> =
        there.entries_back(0..there.len()).map(|entry| text(&there, &entry.name)).collect();
    assert!(back.iter().rev().eq(&all));
    for (i, member) in all.iter().enumerate() {
        assert_eq!(there.find(member), Some(i));
        assert!(there.has(member));
        let found = there.entry_named(member).expect("it is there").name;
        assert!(there.is(&found, &Element::of(member)));
        // Of the same length, and of one that is like it.
        let mut other = member.clone();
        *other.last_mut().expect("none is empty") ^= 1;
        assert_eq!(there.has(&other), set.contains(&other));
        other.push(b'x');
        assert_eq!(there.find(&other).is_some(), set.contains(&other));
    }
    for stranger in [member_of(usize::MAX, 17_000), member_of(usize::MAX, 70_000), b"nobody's".to_vec()] {
        assert!(there.find(&stranger).is_none() && there.entry_named(&stranger).is_none());
    }
    let longest = set.iter().map(Vec::len).max().unwrap_or(0);
    assert!(longest <= MEMBER_BYTES_MAX || there.longest_apart() >= longest);
    assert_eq!(scanned(&there).iter().map(|range| range.len()).sum::<usize>(), set.len(), "each once");
}

fn add(guard: &mut Guard<'_>, key: &Key<'_>, members: &[Vec<u8>]) -> Result<usize, Declined> {
    guard.set_add(key, members.iter().map(Vec::as_slice))
}

fn remove(guard: &mut Guard<'_>, key: &Key<'_>, members: &[Vec<u8>]) -> Result<usize, Declined> {
    guard.remove_named(key, Type::Set, members.iter().map(Vec::as_slice))
}

fn made(member: &[u8]) -> Made<'_> {
    Made { name: member, value: &[], score: 0.0, expires_at: 0 }
}

#[derive(Clone, Debug)]
enum Step {
    Add { from: usize, count: usize },
    Take { from: usize, count: usize },
    Copy,
    CopySome,
    Carry,
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..60_usize, 1..7_usize).prop_map(|(from, count)| Step::Add { from, count }),
        6 => (0..60_usize, 1..12_usize).prop_map(|(from, count)| Step::Take { from, count }),
        1 => Just(Step::Copy),
        1 => Just(Step::CopySome),
        1 => Just(Step::Carry),
        2 => Just(Step::Move),
    ]
}

fn is_as_a_set(steps: &[Step]) {
    let (store, mut worker) = store(32);
    let mut set = Set::new();
    for step in steps {
        let mut guard = worker.enter(NOW);
        let (key, other) = (guard.key(b"key"), guard.key(b"other, with a longer name"));
        match *step {
            Step::Add { from, count } => {
                let members: Vec<Vec<u8>> = (from..from + count).map(member).collect();
                let new = members.iter().filter(|member| set.insert((*member).clone())).count();
                let before = guard.peek(&key).hit().map(|item| item.cas());
                assert_eq!(add(&mut guard, &key, &members), Ok(new));
                let is_written = guard.peek(&key).hit().map(|item| item.cas()) != before;
                assert_eq!(is_written, new > 0);
            }
            Step::Take { from, count } => {
                let members: Vec<Vec<u8>> = (from..from + count).map(member).collect();
                let gone = members.iter().filter(|member| set.remove(*member)).count();
                assert_eq!(remove(&mut guard, &key, &members), Ok(gone));
            }
            Step::Copy | Step::CopySome => {
                let by_node = matches!(step, Step::CopySome);
                assert_eq!(copy(&store, &mut guard, Type::Set, (&key, &other), by_node), !set.is_empty());
                if !set.is_empty() {
                    compare(&mut guard, &other, &set);
                }
            }
            Step::Carry => carry(&mut guard, &key, &other),
            Step::Move => move_all(&store, &mut guard),
        }
        compare(&mut guard, &key, &set);
        drop(guard);
        worker.rest();
    }
    store.check_behind(worker);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_set_with_members_apart_is_as_a_set(steps in proptest::collection::vec(step(), 1..30)) {
        is_as_a_set(&steps);
    }
}

/// One that is named several times is put in once, and goes once.
#[test]
fn a_long_member_is_there_once_however_often_it_is_named() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    for others in [0, 5, 200] {
        let others: Vec<Vec<u8>> = (0..others).map(|n| format!("s{n}").into_bytes()).collect();
        assert_eq!(add(&mut guard, &key, &others), Ok(others.len()));
        let long = member_of(1, 20_000);
        let twice = [long.clone(), member_of(2, 20_000), long.clone()];
        assert_eq!(add(&mut guard, &key, &twice), Ok(2));
        assert_eq!(add(&mut guard, &key, &twice), Ok(0));
        let set: Set = others.iter().cloned().chain(twice.clone()).collect();
        compare(&mut guard, &key, &set);
        assert_eq!(remove(&mut guard, &key, &twice), Ok(2));
        assert_eq!(remove(&mut guard, &key, &twice), Ok(0));
        compare(&mut guard, &key, &others.iter().cloned().collect());
        assert_eq!(remove(&mut guard, &key, &others), Ok(others.len()));
        assert!(guard.peek(&key).hit().is_none());
    }
    drop(guard);
    store.check_behind(worker);
}

/// One that a look has found goes as its leaf names it, once, and no other; where an allocation is refused nothing is done.
#[test]
fn a_long_member_is_taken_out_as_its_leaf_names_it() {
    let (store, mut worker) = store(16);
    let mut set: Set = (0..40).map(member).collect();
    let mut guard = worker.enter(NOW);
    let (key, other) = (guard.key(b"key"), guard.key(b"other"));
    let members: Vec<Vec<u8>> = set.iter().cloned().collect();
    assert_eq!(add(&mut guard, &key, &members), Ok(40));
    drop(guard);
    let (mut refused, mut budget) = (0, 0);
    loop {
        let mut guard = worker.enter(NOW);
        let there = guard.collection(&key, Type::Set).unwrap().unwrap();
        let found = there.entries(0..there.len()).find_map(|entry| Some((entry.apart()?.member(), entry)));
        let Some((named, entry)) = found else { break };
        let name = text(&there, &entry.name);
        guard.local.refuse_after = Some(budget);
        let done = guard.set_take_long(&key, &named);
        guard.local.refuse_after = None;
        if done == Err(Declined::NoMemory) {
            (refused, budget) = (refused + 1, budget + 1);
        } else {
            assert_eq!((done, set.remove(&name)), (Ok(true), true));
            assert_eq!(guard.set_take_long(&key, &named), Ok(false));
            budget = 0;
        }
        compare(&mut guard, &key, &set);
        drop(guard);
        worker.rest();
    }
    assert!(refused > 10, "{refused}");
    assert_eq!(set.len(), 25);
    // It is not hashed, whatever it is beside.
    let mut guard = worker.enter(NOW);
    let long = [member_of(1, 20_000), b"short".to_vec()];
    assert_eq!(add(&mut guard, &other, &long), Ok(2));
    let there = guard.collection(&other, Type::Set).unwrap().unwrap();
    let named = there.entries(0..2).find_map(|entry| entry.apart()).unwrap().member();
    let before = HASHED_BYTES.get();
    assert_eq!(guard.set_take_long(&other, &named), Ok(true));
    assert!(HASHED_BYTES.get() - before < 1_000);
    // A set that has none by then is as it was.
    for key in [key, other] {
        assert_eq!(guard.set_take_long(&key, &named), Ok(false));
    }
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn a_change_with_members_apart_of_which_any_allocation_is_refused_has_done_nothing() {
    let (store, mut worker) = store(16);
    let mut set: Set = (0..20).map(member).collect();
    {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        let members: Vec<Vec<u8>> = set.iter().cloned().collect();
        assert_eq!(add(&mut guard, &key, &members), Ok(20));
    }
    let mut refused = 0;
    for change in 0..4 {
        for budget in 0.. {
            let mut guard = worker.enter(NOW);
            let (key, other) = (guard.key(b"key"), guard.key(b"other"));
            let before = guard.peek(&key).hit().unwrap().cas();
            let new = [member_of(50, 18_000), b"short".to_vec(), member_of(51, 40_000)];
            let (old, late) = ([member(0)], [member_of(60, 18_000)]);
            guard.local.refuse_after = Some(budget);
            let done = match change {
                0 => add(&mut guard, &key, &new).map(drop),
                1 => remove(&mut guard, &key, &old).map(drop),
                2 => guard
                    .collection_copy(&key, &other, Expect::Any)
                    .map(|done| done.map(drop))
                    .and_then(|done| done.map_err(|_| Declined::NoMemory)),
                _ => add(&mut guard, &other, &late).map(drop),
            };
            guard.local.refuse_after = None;
            if done.is_ok() {
                match change {
                    0 => set.extend(new),
                    1 => _ = set.remove(&old[0]),
                    2 => compare(&mut guard, &other, &set),
                    _ => compare(&mut guard, &other, &set.iter().chain(&late).cloned().collect()),
                }
                compare(&mut guard, &key, &set);
                break;
            }
            assert_eq!(done, Err(Declined::NoMemory));
            refused += 1;
            assert_eq!(guard.peek(&key).hit().unwrap().cas(), before);
            compare(&mut guard, &key, &set);
        }
    }
    assert!(refused > 100, "{refused}");
    store.check_behind(worker);
}

/// What is made at once, and what comes over several batches, has them, as its first member, too; and each once.
#[test]
fn sets_that_are_made_have_members_apart() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    for from in [0, 2, 5] {
        for len in 1..14 {
            let all: Vec<Vec<u8>> = (from..from + len).map(member).collect();
            let set: Set = all.iter().cloned().collect();
            let entries = || all.iter().map(|member| made(member));
            let stored =
                guard.collection_store(&key, Type::Set, entries(), &Attributes::default(), Expect::Any);
            assert!(stored.unwrap().is_ok());
            compare(&mut guard, &key, &set);
            let mut load = BulkLoad::new(&store, Type::Set);
            for entry in entries() {
                guard.load_fill(&mut load, &key, std::iter::once(entry)).unwrap();
            }
            publish(&mut guard, load, &key);
            compare(&mut guard, &key, &set);
            for again in &all {
                let mut load = BulkLoad::new(&store, Type::Set);
                guard.load_fill(&mut load, &key, entries()).unwrap();
                let twice = guard.load_fill(&mut load, &key, std::iter::once(made(again)));
                assert_eq!(twice, Err(Declined::Twice));
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
    let most = store.element_bytes_max();
    assert_eq!(most, 4 << 20);
    for (bytes, fits, apart) in [
        (MEMBER_BYTES_MAX - 1, true, false),
        (MEMBER_BYTES_MAX, true, false),
        (MEMBER_BYTES_MAX + 1, true, true),
        (1 << 16, true, true),
        ((1 << 16) + 1, true, true),
        (most - 1, true, true),
        (most, true, true),
        (most + 1, false, false),
    ] {
        for others in [0, 60] {
            let _ = guard.delete(&key, Expect::Present);
            let mut set: Set = (0..others).map(|n| format!("s{n}").into_bytes()).collect();
            let short: Vec<Vec<u8>> = set.iter().cloned().collect();
            assert_eq!(add(&mut guard, &key, &short), Ok(others));
            let member = member_of(1, bytes);
            let done = add(&mut guard, &key, std::slice::from_ref(&member));
            assert_eq!(done, if fits { Ok(1) } else { Err(Declined::TooLarge) }, "{bytes}");
            assert_eq!(store.element_fits(Type::Set, &member, b""), fits);
            if fits {
                set.insert(member);
                let there = guard.collection(&key, Type::Set).unwrap().unwrap();
                assert_eq!(there.longest_apart() >= bytes, apart, "{bytes}");
            }
            compare(&mut guard, &key, &set);
        }
    }
    drop(guard);
    store.check_behind(worker);
}

/// A store that evicts nothing is filled to the last chunk: whatever is in it can be taken out, and all comes back.
#[test]
fn members_apart_are_taken_out_of_a_full_store() {
    let store = Store::new(Config { memory_bytes: 8 << 20, evict: false, ..Config::default() });
    let store = store.unwrap();
    let mut worker = store.worker().unwrap();
    for _ in 0..2 {
        let mut set = Set::new();
        loop {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            let new = member_of(set.len(), 20_000);
            match add(&mut guard, &key, std::slice::from_ref(&new)) {
                Ok(count) => assert_eq!((count, set.insert(new)), (1, true)),
                Err(declined) => {
                    assert_eq!(declined, Declined::NoMemory);
                    break;
                }
            }
        }
        assert!(set.len() > 300, "{}", set.len());
        while let Some(member) = set.pop_first() {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            assert_eq!(remove(&mut guard, &key, &[member]), Ok(1));
            if set.len().is_multiple_of(100) {
                compare(&mut guard, &key, &set);
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

/// What is longer than all that is there, or than anything may be, is not even hashed: half of the memory may be asked for.
#[test]
fn members_that_cannot_be_there_are_not_hashed() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    assert_eq!(add(&mut guard, &key, &[member_of(1, 20_000), b"short".to_vec()]), Ok(2));
    let set = guard.collection(&key, Type::Set).unwrap().unwrap();
    let longest = set.longest_apart();
    assert!((20_000..20_200).contains(&longest), "{longest}");
    for (bytes, is_hashed) in [(longest - 1, true), (longest, true), (longest + 1, false), (4 << 20, false)] {
        let (stranger, before) = (member_of(2, bytes), HASHED_BYTES.get());
        assert!(!set.has(&stranger) && set.find(&stranger).is_none());
        assert_eq!(HASHED_BYTES.get() > before, is_hashed, "{bytes}");
    }
    let most = store.element_bytes_max();
    let (long, longer, before) = (member_of(2, longest + 1), member_of(2, most + 1), HASHED_BYTES.get());
    assert_eq!(remove(&mut guard, &key, &[long]), Ok(0));
    let other = guard.key(b"other");
    for key in [key, other] {
        assert_eq!(add(&mut guard, &key, std::slice::from_ref(&longer)), Err(Declined::TooLarge));
        let pairs = [(&longer[..], &b"value"[..])];
        let hash = guard.key(b"hash");
        assert_eq!(guard.hash_set(&hash, pairs.into_iter()).map(drop), Err(Declined::TooLarge));
    }
    assert_eq!(HASHED_BYTES.get(), before);
    // What fits is put in, though nothing as long was there.
    assert_eq!(add(&mut guard, &key, &[member_of(2, 100_000)]), Ok(1));
    compare(&mut guard, &key, &[member_of(1, 20_000), b"short".to_vec(), member_of(2, 100_000)].into());
    drop(guard);
    store.check_behind(worker);
}

/// Bytes are given back, and with them that something lies apart.
#[test]
fn a_set_forgets_what_lay_apart() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let short: Vec<Vec<u8>> = (0..200).map(|n| format!("s{n}").into_bytes()).collect();
    assert_eq!(add(&mut guard, &key, &short), Ok(200));
    let bytes = |guard: &mut Guard<'_>| guard.peek(&key).hit().unwrap().value_bytes();
    let before = bytes(&mut guard);
    let long = [member_of(1, 100_000)];
    assert_eq!(add(&mut guard, &key, &long), Ok(1));
    assert!(guard.collection(&key, Type::Set).unwrap().unwrap().longest_apart() >= 100_000);
    assert!(bytes(&mut guard) - before > 100_000);
    assert_eq!(remove(&mut guard, &key, &long), Ok(1));
    let after = bytes(&mut guard);
    assert!(after.abs_diff(before) < 400, "{before} {after}");
    assert_eq!(guard.collection(&key, Type::Set).unwrap().unwrap().longest_apart(), 0);
    drop(guard);
    store.check_behind(worker);
}

/// Parts of members of one order are numbered behind each other, and numbers that are free again are taken again.
#[test]
fn members_of_one_order_have_parts_of_their_own() {
    let order = 5 << 16;
    let mut builder = Builder::default();
    builder.start(Type::Set);
    let put = |builder: &mut Builder, parts: u64| {
        let bytes = parts as usize * PART_BYTES;
        let label = free_label(&builder.leaf(), order, bytes).unwrap();
        builder.push_apart(7, &LongText::packed(bytes, label)).unwrap();
        label - order
    };
    assert_eq!([25, 25, 30].map(|parts| put(&mut builder, parts)), [0, 25, 50]);
    // What has another order says nothing.
    builder.push_apart(7, &LongText::packed(20_000, 6 << 16)).unwrap();
    builder.remove(1..2);
    let free =
        |builder: &Builder, bytes| free_label(&builder.leaf(), order, bytes).map(|label| label - order);
    assert_eq!(free(&builder, 25 * PART_BYTES), Some(25));
    assert_eq!(free(&builder, 25 * PART_BYTES + 1), Some(80));
    assert_eq!(put(&mut builder, 25), 25);
    assert_eq!(free(&builder, 1), Some(80));
    // There are so many numbers, and no more.
    let left = PARTS_MAX as usize - 80;
    assert_eq!(free(&builder, left * PART_BYTES), Some(80));
    assert_eq!(free(&builder, left * PART_BYTES + 1), None);
}

/// Of the members that lie apart those with the tag are asked, and no other.
#[test]
fn who_looks_for_a_long_member_is_asked_of_those_with_its_tag() {
    let mut builder = Builder::default();
    builder.start(Type::Set);
    for (tag, label) in [(7, Some(1 << 16)), (9, Some(2 << 16)), (7, None), (7, Some(3 << 16))] {
        let end = builder.leaf().len();
        match label {
            Some(label) => builder.push_apart(tag, &LongText::packed(20_000, label)).unwrap(),
            None => builder.insert(end, NewEntry { tag, name: b"short", value: b"", score: 0.0 }).unwrap(),
        }
    }
    let leaf = builder.leaf();
    assert!(leaf.has_apart() && !leaf.is_apart());
    let looks = [
        (7, 3, Some(3), vec![1, 3]),
        (7, 1, Some(0), vec![1]),
        (7, 2, None, vec![1, 3]),
        (8, 1, None, vec![]),
    ];
    for (tag, wanted, found, asked) in looks {
        let mut labels = Vec::new();
        let place = leaf.find_apart(tag, |apart| {
            labels.push(apart.label() >> 16);
            apart.label() >> 16 == wanted
        });
        assert_eq!((place, labels), (found, asked));
    }
    assert_eq!(leaf.find(b"short", 7), Some(2));
}
