//! Lists in trees against vectors. Leaves and nodes are small here, and labels few, so that all of it comes about.

use super::testing::{ends, remove};
use super::tests::{NOW, height, move_all, store, text};
use crate::collection::{Declined, Type};
use crate::worker::Guard;
use crate::{End, Expect, Key, Refusal};
use proptest::prelude::*;
use std::collections::VecDeque;

type List = Vec<Vec<u8>>;

/// All that can be asked of a list is as the vector has it.
fn compare(guard: &mut Guard<'_>, key: &Key<'_>, list: &[Vec<u8>]) {
    let Some(there) = guard.collection(key, Type::List).unwrap() else {
        assert!(list.is_empty());
        return;
    };
    assert_eq!(there.len(), list.len());
    assert!(there.entries(0..list.len()).map(|entry| text(entry.name)).eq(list.iter().cloned()));
    assert!(there.entries_back(0..list.len()).map(|entry| text(entry.name)).eq(list.iter().rev().cloned()));
    let (third, half) = (list.len() / 3, list.len().div_ceil(2));
    assert!(there.entries(third..half).map(|entry| text(entry.name)).eq(list[third..half].iter().cloned()));
    for i in [0, third, half.min(list.len() - 1), list.len() - 1] {
        assert_eq!(text(there.entry(i).name), list[i]);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push { front: bool, count: usize, bytes: usize },
    Pop { front: bool, count: usize },
    Set { place: usize, bytes: usize },
    Insert { place: usize, count: usize, bytes: usize },
    Remove { front: bool, which: usize, count: usize },
    Trim { front: usize, back: usize },
    Copy,
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes =
        || prop_oneof![8 => 0..8_usize, 2 => 60..66_usize, 1 => 250..260_usize, 1 => Just(3_000_usize)];
    let front = any::<bool>;
    prop_oneof![
        6 => (front(), 1..120_usize, bytes()).prop_map(|(front, count, bytes)| Step::Push { front, count, bytes }),
        3 => (front(), 0..150_usize).prop_map(|(front, count)| Step::Pop { front, count }),
        2 => (0..2_000_usize, bytes()).prop_map(|(place, bytes)| Step::Set { place, bytes }),
        3 => (0..2_000_usize, 1..60_usize, bytes())
            .prop_map(|(place, count, bytes)| Step::Insert { place, count, bytes }),
        2 => (front(), 0..7_usize, 1..80_usize)
            .prop_map(|(front, which, count)| Step::Remove { front, which, count }),
        1 => (0..60_usize, 0..60_usize).prop_map(|(front, back)| Step::Trim { front, back }),
        1 => Just(Step::Copy),
        1 => Just(Step::Move),
    ]
}

/// The nth element that is put: some are alike.
fn element(n: usize, bytes: usize) -> Vec<u8> {
    [(n % 7).to_string().into_bytes(), vec![b'x'; bytes]].concat()
}

fn is_as_a_vector(steps: &[Step]) {
    let (store, mut worker) = store(8);
    let mut list = List::new();
    let mut n = 0;
    for step in steps {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        let len = list.len();
        match *step {
            Step::Push { front, count, bytes } => {
                let new: List = (n..n + count).map(|n| element(n, bytes)).collect();
                n += count;
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
                let popped: List =
                    popped.iter().flat_map(|popped| popped.entries().map(|e| text(e.name))).collect();
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
            Step::Insert { place, count, bytes } => {
                for _ in 0..count {
                    let (len, new) = (list.len(), element(n, bytes));
                    let place = place % (len + 1);
                    let inserted = guard.list_insert_at(&key, place, &new).unwrap();
                    assert_eq!(inserted, if len == 0 { None } else { Some(len + 1) });
                    if len > 0 {
                        list.insert(place, new);
                    }
                    n += 1;
                }
            }
            Step::Remove { front, which, count } => {
                let gone_is = element(which, 3);
                let gone = guard.list_remove(&key, ends(front), count, &gone_is).unwrap();
                assert_eq!(gone, remove(&mut list, ends(front), count, &gone_is));
            }
            Step::Trim { front, back } => {
                let kept = |len: usize| front.min(len)..len.saturating_sub(back).max(front.min(len));
                let trimmed = guard.list_trim(&key, kept).unwrap();
                assert_eq!((trimmed.there, trimmed.more), (len > 0, false));
                assert_eq!(trimmed.front + trimmed.back, len - kept(len).len());
                list = list[kept(len)].to_vec();
            }
            Step::Copy => {
                let other = guard.key(b"other, with a longer name");
                let copied = guard.collection_copy(&key, &other, Expect::Any).unwrap();
                assert_eq!(copied.is_ok(), len > 0);
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
    fn a_list_is_as_a_vector(steps in proptest::collection::vec(step(), 1..40)) {
        is_as_a_vector(&steps);
    }
}

/// Labels are used up at an end, too, and all leaves get new ones.
#[test]
fn a_queue_goes_on_for_longer_than_there_are_labels() {
    let (store, mut worker) = store(8);
    for (push, pop) in [(End::Back, End::Front), (End::Front, End::Back)] {
        let mut list = VecDeque::new();
        for n in 0..40_000_u32 {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            let element = format!("element {n:030}").into_bytes();
            guard.list_push(&key, push, [&element[..]].into_iter(), false).unwrap();
            list.push_back(element);
            if n > 200 {
                let popped = guard.list_pop(&key, pop, 1).unwrap().unwrap();
                assert_eq!(text(popped.entries().next().unwrap().name), list.pop_front().unwrap());
            }
            if n % 4_096 == 0 {
                guard.maintain();
                move_all(&store, &mut guard);
            }
        }
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        let mut all: List = list.into();
        if push == End::Front {
            all.reverse();
        }
        compare(&mut guard, &key, &all);
        assert!(height(&mut guard, &key) >= 2);
        guard.delete(&key, Expect::Present).unwrap();
    }
    store.check_behind(worker);
}

/// All is put in one place, in front of the same element or behind the last one: there are labels for it, again and again.
#[test]
fn elements_that_are_all_put_in_one_place_find_labels() {
    let (store, mut worker) = store(16);
    for behind in [false, true] {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        let first: List = (0..600).map(|n| format!("element {n:030}").into_bytes()).collect();
        guard.list_push(&key, End::Back, first.iter().map(Vec::as_slice), false).unwrap();
        let mut list = first;
        for n in 0..3_000 {
            let place = if behind { 300 + n } else { 300 };
            let new = format!("new {n:030}").into_bytes();
            assert_eq!(guard.list_insert_at(&key, place, &new), Ok(Some(601 + n)));
            list.insert(place, new);
            if n % 500 == 0 {
                move_all(&store, &mut guard);
                compare(&mut guard, &key, &list);
            }
        }
        compare(&mut guard, &key, &list);
        guard.delete(&key, Expect::Present).unwrap();
    }
    store.check_behind(worker);
}

#[test]
fn a_list_that_is_pushed_to_at_an_end_has_full_leaves() {
    let (store, mut worker) = store(16);
    for end in [End::Back, End::Front] {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        for n in 0..5_000_u32 {
            let element = format!("e{n:06}").into_bytes();
            guard.list_push(&key, end, [&element[..]].into_iter(), false).unwrap();
        }
        // Eight bytes and a code each, and of 120 bytes of a leaf some are its head's and the node's.
        let bytes = guard.collection(&key, Type::List).unwrap().unwrap().bytes();
        assert!(bytes < 5_000 * 13, "{end:?} {bytes}");
        guard.delete(&key, Expect::Present).unwrap();
    }
    store.check_behind(worker);
}

/// A store in which the n-th chunk from here on is refused.
#[test]
fn a_change_of_a_list_of_which_any_allocation_is_refused_has_done_nothing() {
    let (store, mut worker) = store(8);
    let mut list: List = (0..900).map(|n| element(n, n % 20)).collect();
    {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        guard.list_push(&key, End::Back, list.iter().map(Vec::as_slice), false).unwrap();
    }
    let mut refused = 0;
    for change in 0..9 {
        for budget in 0.. {
            let mut guard = worker.enter(NOW);
            let (key, other) = (guard.key(b"key"), guard.key(b"other"));
            let before = guard.peek(&key).hit().unwrap().cas();
            let many: List = (0..60).map(|n| element(n, 10)).collect();
            guard.local.refuse_after = Some(budget);
            let end = if change % 2 == 0 { End::Front } else { End::Back };
            let done = match change {
                0 | 1 => guard.list_push(&key, end, many.iter().map(Vec::as_slice), false).map(drop),
                2 | 3 => guard.list_pop(&key, end, 70).map(drop),
                4 => guard.list_set(&key, &[b'l'; 300], |_| Some(400)).map(drop),
                5 => guard.list_insert_at(&key, 333, &[b'm'; 100]).map(drop),
                6 => guard.list_trim(&key, |len| 50..len - 50).map(drop),
                7 => guard
                    .collection_copy(&key, &other, Expect::Any)
                    .map(|done| done.map(drop))
                    .and_then(|done| done.map_err(|_| Declined::NoMemory)),
                _ => guard.list_remove_among(&key, 0..usize::MAX, End::Back, 40, &element(3, 3)).map(drop),
            };
            guard.local.refuse_after = None;
            if done.is_ok() {
                match change {
                    0 => drop(list.splice(0..0, many.into_iter().rev())),
                    1 => list.extend(many),
                    2 => drop(list.drain(..70)),
                    3 => list.truncate(list.len() - 70),
                    4 => list[400] = vec![b'l'; 300],
                    5 => list.insert(333, vec![b'm'; 100]),
                    6 => list = list[50..list.len() - 50].to_vec(),
                    7 => compare(&mut guard, &other, &list),
                    _ => {
                        remove(&mut list, End::Back, 40, &element(3, 3));
                    }
                }
                compare(&mut guard, &key, &list);
                break;
            }
            assert_eq!(done, Err(Declined::NoMemory));
            refused += 1;
            assert_eq!(guard.peek(&key).hit().unwrap().cas(), before);
            compare(&mut guard, &key, &list);
            assert!(guard.peek(&other).hit().is_none() || change > 7);
        }
    }
    assert!(refused > 60, "{refused}");
    store.check_behind(worker);
}

/// A tree goes to another key with all its nodes, which are found there, whatever was there.
#[test]
fn a_tree_that_goes_to_another_key_keeps_its_nodes() {
    let (store, mut worker) = store(16);
    let names = [&b"key"[..], b"another key, of another length", b"third"];
    let list: List = (0..2_000).map(|n| element(n, n % 30)).collect();
    let mut guard = worker.enter(NOW);
    for name in &names[..2] {
        let key = guard.key(name);
        guard.list_push(&key, End::Back, list.iter().map(Vec::as_slice), false).unwrap();
    }
    let key = guard.key(names[0]);
    guard.touch(&key, NOW + 5_000).unwrap();
    let bytes = guard.collection(&key, Type::List).unwrap().unwrap().bytes();
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let (from, to) = (guard.key(names[from]), guard.key(names[to]));
        guard.begin([from, to]);
        guard.local.refuse_after = Some(0);
        assert_eq!(
            guard.collection_carry(&from, &to, Expect::Any).unwrap().map(drop),
            Err(Refusal::NoMemory)
        );
        guard.local.refuse_after = None;
        compare(&mut guard, &from, &list);
        guard.collection_carry(&from, &to, Expect::Any).unwrap().unwrap();
        guard.finish();
        assert!(guard.peek(&from).hit().is_none());
        assert_eq!(guard.peek(&to).hit().unwrap().expires_at(), NOW + 5_000);
        let moved = store.totals().chunks_moved;
        move_all(&store, &mut guard);
        assert!(store.totals().chunks_moved > moved + 100);
        compare(&mut guard, &to, &list);
        assert_eq!(guard.collection(&to, Type::List).unwrap().unwrap().bytes(), bytes);
    }
    while guard.maintain() {}
    drop(guard);
    worker.rest();
    store.check_behind(worker);
    assert_eq!(store.trees.count(), 1);
}

/// A list of very many leaves loses some at a time, from its ends on.
#[test]
fn a_long_list_is_trimmed_in_pieces() {
    let (store, mut worker) = store(32);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let mut list: List = (0..60_000).map(|n| format!("element {n}").into_bytes()).collect();
    guard.list_push(&key, End::Back, list.iter().map(Vec::as_slice), false).unwrap();
    let (mut front, mut back, mut pieces) = (0, 0, 0);
    loop {
        let kept = |_: usize| 20_000 - front..20_100 - front;
        let trimmed = guard.list_trim(&key, kept).unwrap();
        assert!(trimmed.there);
        (front, back, pieces) = (front + trimmed.front, back + trimmed.back, pieces + 1);
        let left = list[front..list.len() - back].to_vec();
        compare(&mut guard, &key, &left);
        if !trimmed.more {
            break;
        }
    }
    list = list[20_000..20_100].to_vec();
    compare(&mut guard, &key, &list);
    assert!(pieces > 2 && (front, back) == (20_000, 39_900), "{pieces}");
    assert!(!guard.list_trim(&key, |_| 0..0).unwrap().more);
    assert!(guard.peek(&key).hit().is_none());
    drop(guard);
    store.check_behind(worker);
}
