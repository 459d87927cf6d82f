//! Elements that lie apart, in lists in trees, against vectors. Leaves, nodes and parts are small here, and labels few: one of
//! 17,000 bytes has 25 parts, below several nodes.

use super::testing::{copy, ends, publish, remove, text};
use super::tests::{NOW, height, move_all, store};
use crate::collection::build::STRING_BYTES_MAX;
use crate::collection::{BulkLoad, Declined, Element, Entries, Made, Type};
use crate::worker::Guard;
use crate::{Attributes, Config, End, Expect, Key, Store};
use proptest::prelude::*;

pub(super) type List = Vec<Vec<u8>>;

/// The strings of the entries of a list.
fn texts<'g>(entries: Entries<'g>) -> impl Iterator<Item = Vec<u8>> {
    let list = entries.collection;
    entries.map(move |entry| text(&list, &entry.name))
}

pub(super) fn compare(guard: &mut Guard<'_>, key: &Key<'_>, list: &[Vec<u8>]) {
    guard.check_tree(key);
    let Some(there) = guard.collection(key, Type::List).unwrap() else {
        assert!(list.is_empty());
        return;
    };
    assert_eq!(there.len(), list.len());
    assert!(texts(there.entries(0..list.len())).eq(list.iter().cloned()));
    for (i, element) in list.iter().enumerate() {
        assert_eq!(texts(there.entries(i..i + 1)).next().as_ref(), Some(element));
        assert!(there.is(&there.entry(i).name, &Element::of(element)));
        let mut other = element.clone();
        other.push(b'x');
        assert!(!there.is(&there.entry(i).name, &Element::of(&other)));
        other.pop();
        if let Some(last) = other.last_mut() {
            *last ^= 0x80;
            assert!(!there.is(&there.entry(i).name, &Element::of(&other)));
        }
    }
    let lens: Vec<usize> = there.entries_back(0..list.len()).map(|entry| entry.name.len()).collect();
    assert!(lens.into_iter().eq(list.iter().rev().map(Vec::len)));
}

/// The nth element that is put: some are alike.
pub(super) fn element(n: usize, bytes: usize) -> Vec<u8> {
    let seed = (n % 3) as u32;
    (0..bytes as u32).map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Push { front: bool, count: usize, bytes: usize },
    Pop { front: bool, count: usize },
    Set { place: usize, bytes: usize },
    Insert { place: usize, bytes: usize },
    Remove { front: bool, place: usize, count: usize },
    Trim { front: usize, back: usize },
    Copy,
    CopySome,
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || {
        prop_oneof![
            4 => 3..30_usize,
            // One alone stays a tree.
            3 => Just(300_usize),
            1 => Just(STRING_BYTES_MAX),
            4 => Just(STRING_BYTES_MAX + 1),
            2 => Just(30 * 700_usize),
            1 => Just(30_000_usize),
        ]
    };
    let front = any::<bool>;
    prop_oneof![
        5 => (front(), 1..4_usize, bytes()).prop_map(|(front, count, bytes)| Step::Push { front, count, bytes }),
        3 => (front(), 0..5_usize).prop_map(|(front, count)| Step::Pop { front, count }),
        3 => (0..60_usize, bytes()).prop_map(|(place, bytes)| Step::Set { place, bytes }),
        4 => (0..60_usize, bytes()).prop_map(|(place, bytes)| Step::Insert { place, bytes }),
        3 => (front(), 0..60_usize, 1..4_usize)
            .prop_map(|(front, place, count)| Step::Remove { front, place, count }),
        1 => (0..4_usize, 0..4_usize).prop_map(|(front, back)| Step::Trim { front, back }),
        1 => Just(Step::Copy),
        1 => Just(Step::CopySome),
        2 => Just(Step::Move),
    ]
}

fn is_as_a_vector(steps: &[Step]) {
    let (store, mut worker) = store(16);
    let mut list = List::new();
    let mut n = 0;
    for step in steps {
        let mut guard = worker.enter(NOW);
        let (key, other) = (guard.key(b"key"), guard.key(b"other, with a longer name"));
        let len = list.len();
        n += 1;
        match *step {
            Step::Push { front, count, bytes } => {
                // Short ones between them.
                let new: List = (0..count).map(|i| element(n, if i % 2 == 0 { bytes } else { 7 })).collect();
                let pushed = guard.list_push(&key, ends(front), new.iter().map(Vec::as_slice), false);
                assert_eq!(pushed, Ok(len + count));
                if front {
                    list.splice(0..0, new.into_iter().rev());
                } else {
                    list.extend(new);
                }
            }
            Step::Pop { front, count } => {
                let gone = count.min(len);
                let range = if front { 0..gone } else { len - gone..len };
                let popped = guard.list_pop(&key, ends(front), count).unwrap();
                assert_eq!(popped.is_some(), len > 0);
                let popped: List = popped.iter().flat_map(|popped| texts(popped.entries())).collect();
                assert_eq!(popped, list.drain(range).collect::<List>());
            }
            Step::Set { place, bytes } => {
                let place = place % (len + 1);
                let new = element(n, bytes);
                let set = guard.list_set(&key, &new, |_| Some(place)).unwrap();
                assert_eq!(set, if len == 0 { None } else { Some(place < len) });
                if let Some(old) = list.get_mut(place) {
                    *old = new;
                }
            }
            Step::Insert { place, bytes } => {
                let (place, new) = (place % (len + 1), element(n, bytes));
                let inserted = guard.list_insert_at(&key, place, &new).unwrap();
                assert_eq!(inserted, if len == 0 { None } else { Some(len + 1) });
                if len > 0 {
                    list.insert(place, new);
                }
            }
            Step::Remove { front, place, count } if len > 0 => {
                let which = list[place % len].clone();
                let gone = guard.list_remove(&key, ends(front), count, &which).unwrap();
                assert_eq!(gone, remove(&mut list, ends(front), count, &which));
            }
            Step::Remove { .. } => {}
            Step::Trim { front, back } => {
                let kept = |len: usize| front.min(len)..len.saturating_sub(back).max(front.min(len));
                let trimmed = guard.list_trim(&key, kept).unwrap();
                assert_eq!((trimmed.there, trimmed.more), (len > 0, false));
                list = list[kept(len)].to_vec();
            }
            Step::Copy | Step::CopySome => {
                let by_node = matches!(step, Step::CopySome);
                assert_eq!(copy(&store, &mut guard, Type::List, (&key, &other), by_node), len > 0);
                if len > 0 {
                    compare(&mut guard, &other, &list);
                }
            }
            Step::Move => move_all(&store, &mut guard),
        }
        compare(&mut guard, &key, &list);
        drop(guard);
        worker.rest();
    }
    store.check_behind(worker);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_list_with_elements_apart_is_as_a_vector(steps in proptest::collection::vec(step(), 1..30)) {
        is_as_a_vector(&steps);
    }
}

/// The last leaf of a list, in front of which others were taken out, keeps its label, which may be above its key: a long
/// element that comes behind it has labels above both.
#[test]
fn what_comes_behind_a_last_leaf_has_labels_above_its_label() {
    for (height_min, shorts) in [(1, 2), (2, 7), (3, 26), (3, 40)] {
        for (long, front) in [(STRING_BYTES_MAX + 1, true), (40_000, true), (17_000, false)] {
            let (store, mut worker) = store(16);
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            // Each has a leaf of its own.
            let mut list: List = (0..shorts).map(|n| element(n, 300)).collect();
            guard.list_push(&key, End::Back, list.iter().map(Vec::as_slice), false).unwrap();
            assert!(height(&mut guard, &key) >= height_min);
            while list.len() > 1 {
                let gone = if front { 0 } else { list.len() - 2 };
                let which = list.remove(gone);
                let removed = guard.list_remove_among(&key, gone..gone + 1, End::Front, 1, &which);
                assert_eq!(removed, Ok(1));
                let pushed = element(shorts, long);
                guard.list_push(&key, End::Back, [&pushed[..]].into_iter(), false).unwrap();
                list.push(pushed);
                compare(&mut guard, &key, &list);
                move_all(&store, &mut guard);
                compare(&mut guard, &key, &list);
                list.pop();
                assert!(guard.list_pop(&key, End::Back, 1).unwrap().is_some());
                compare(&mut guard, &key, &list);
            }
            drop(guard);
            store.check_behind(worker);
        }
    }
}

/// Long elements that are all put in one place, between short ones: labels are found for their parts again and again.
#[test]
fn elements_apart_that_are_all_put_in_one_place_find_labels() {
    let (store, mut worker) = store(64);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let mut list: List = (0..40).map(|n| element(n, 40)).collect();
    guard.list_push(&key, End::Back, list.iter().map(Vec::as_slice), false).unwrap();
    for n in 0..150 {
        let place = if n % 2 == 0 { 20 } else { 20 + n / 2 };
        let new = element(n, 17_000);
        assert_eq!(guard.list_insert_at(&key, place, &new), Ok(Some(41 + n)));
        list.insert(place, new);
        if n % 30 == 0 {
            move_all(&store, &mut guard);
        }
    }
    compare(&mut guard, &key, &list);
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn a_change_with_elements_apart_of_which_any_allocation_is_refused_has_done_nothing() {
    let (store, mut worker) = store(16);
    let mut list: List = (0..20).map(|n| element(n, if n % 3 == 0 { 17_000 } else { n })).collect();
    {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        guard.list_push(&key, End::Back, list.iter().map(Vec::as_slice), false).unwrap();
    }
    let mut refused = 0;
    for change in 0..10 {
        for budget in 0.. {
            let mut guard = worker.enter(NOW);
            let (key, other) = (guard.key(b"key"), guard.key(b"other"));
            let before = guard.peek(&key).hit().unwrap().cas();
            let (many, new) = ([element(1, 18_000), element(1, 5)], element(2, 16_400));
            guard.local.refuse_after = Some(budget);
            let end = if change % 2 == 0 { End::Front } else { End::Back };
            let done = match change {
                0 | 1 => guard.list_push(&key, end, many.iter().map(Vec::as_slice), false).map(drop),
                2 | 3 => guard.list_pop(&key, end, 4).map(drop),
                4 => guard.list_set(&key, &new, |_| Some(5)).map(drop),
                5 => guard.list_insert_at(&key, 7, &new).map(drop),
                6 => guard.list_trim(&key, |len| 2..len - 2).map(drop),
                7 => guard
                    .collection_copy(&key, &other, Expect::Any)
                    .map(|done| done.map(drop))
                    .and_then(|done| done.map_err(|_| Declined::NoMemory)),
                8 => guard.list_set(&key, b"short", |_| Some(5)).map(drop),
                _ => guard.list_remove_among(&key, 0..usize::MAX, End::Back, 2, &list[6]).map(drop),
            };
            guard.local.refuse_after = None;
            if done.is_ok() {
                match change {
                    0 => drop(list.splice(0..0, many.into_iter().rev())),
                    1 => list.extend(many),
                    2 => drop(list.drain(..4)),
                    3 => list.truncate(list.len() - 4),
                    4 => list[5] = new,
                    5 => list.insert(7, new),
                    6 => list = list[2..list.len() - 2].to_vec(),
                    7 => compare(&mut guard, &other, &list),
                    8 => list[5] = b"short".to_vec(),
                    _ => {
                        let which = list[6].clone();
                        assert!(remove(&mut list, End::Back, 2, &which) > 0);
                    }
                }
                compare(&mut guard, &key, &list);
                break;
            }
            assert_eq!(done, Err(Declined::NoMemory));
            refused += 1;
            assert_eq!(guard.peek(&key).hit().unwrap().cas(), before);
            compare(&mut guard, &key, &list);
        }
    }
    assert!(refused > 100, "{refused}");
    store.check_behind(worker);
}

/// What is made at once, and what comes over several batches, has them at any place, the first one, too.
#[test]
fn lists_that_are_made_have_elements_apart() {
    let (store, mut worker) = store(16);
    let list: List = (0..12).map(|n| element(n, if n % 4 == 0 { 17_000 } else { 50 })).collect();
    let made = |name| Made { name, value: &[], score: 0.0, expires_at: 0 };
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    for len in 1..list.len() {
        let entries = || list[..len].iter().map(|element| made(element.as_slice()));
        let stored = guard.collection_store(&key, Type::List, entries(), &Attributes::default(), Expect::Any);
        assert!(stored.unwrap().is_ok());
        compare(&mut guard, &key, &list[..len]);
        let mut load = BulkLoad::new(&store, Type::List);
        for entry in entries() {
            guard.load_fill(&mut load, &key, std::iter::once(entry)).unwrap();
        }
        publish(&mut guard, load, &key);
        compare(&mut guard, &key, &list[..len]);
    }
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn an_element_that_is_too_long_changes_nothing() {
    let (store, mut worker) = store(8);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let long = vec![b'x'; (4 << 20) + 1];
    let push = |guard: &mut Guard<'_>| guard.list_push(&key, End::Back, [&long[..]].into_iter(), false);
    assert_eq!(push(&mut guard), Err(Declined::TooLarge));
    assert!(guard.peek(&key).hit().is_none());
    guard.list_push(&key, End::Back, [&b"a"[..]].into_iter(), false).unwrap();
    assert_eq!(push(&mut guard), Err(Declined::TooLarge));
    assert_eq!(guard.list_set(&key, &long, |_| Some(0)), Err(Declined::TooLarge));
    compare(&mut guard, &key, &[b"a".to_vec()]);
    drop(guard);
    store.check_behind(worker);
}

/// A store that evicts nothing is filled to the last chunk: whatever is in it can be taken out.
#[test]
fn elements_apart_are_popped_from_a_full_store() {
    for end in [End::Front, End::Back] {
        let store = Store::new(Config { memory_bytes: 8 << 20, evict: false, ..Config::default() });
        let store = store.unwrap();
        let mut worker = store.worker().unwrap();
        let mut pushed = 0;
        loop {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            match guard.list_push(&key, End::Back, [&element(pushed, 20_000)[..]].into_iter(), false) {
                Ok(_) => pushed += 1,
                Err(declined) => {
                    assert_eq!(declined, Declined::NoMemory);
                    break;
                }
            }
        }
        assert!(pushed > 50, "{pushed}");
        for n in 0..pushed {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            let popped = guard.list_pop(&key, end, 1).unwrap().expect("there are more");
            let nth = if end == End::Front { n } else { pushed - 1 - n };
            assert_eq!(texts(popped.entries()).next(), Some(element(nth, 20_000)));
            drop(guard);
            worker.rest();
        }
        store.check_behind(worker);
    }
}

/// What a reader has is of one moment, whatever is popped and moved meanwhile, for as long as its batch does not go on.
#[test]
fn what_was_popped_is_read_behind_it() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let list: List = (0..30).map(|n| element(n, 17_000)).collect();
    guard.list_push(&key, End::Back, list.iter().map(Vec::as_slice), false).unwrap();
    let popped = guard.list_pop(&key, End::Front, 29).unwrap().unwrap();
    assert!(texts(popped.entries()).eq(list[..29].iter().cloned()));
    let popped = guard.list_pop(&key, End::Front, 9).unwrap().unwrap();
    assert!(texts(popped.entries()).eq(list[29..].iter().cloned()));
    assert!(guard.peek(&key).hit().is_none());
    drop(guard);
    for _ in 0..1_000 {
        worker.enter(NOW).maintain();
    }
    store.check_behind(worker);
    assert_eq!(store.trees.count(), 0);
}
