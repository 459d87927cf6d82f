//! Elements of lists that are carried from one list to another, against vectors: their parts stay
//! where they lie. Leaves and parts are small here.

use super::apart_tests::{List, compare, element};
use super::testing::ends;
use super::tests::{NOW, move_all, store};
use crate::collection::{Declined, Type};
use crate::worker::{Guard, Worker};
use crate::{End, Expect, Key};

/// Pushes elements to the back of a list.
fn fill(guard: &mut Guard<'_>, key: &Key<'_>, list: &[Vec<u8>]) {
    if !list.is_empty() {
        guard.list_push(key, End::Back, list.iter().map(Vec::as_slice), false).unwrap();
    }
}

/// So many short elements.
fn shorts(count: usize) -> List {
    (0..count).map(|n| element(n, 40)).collect()
}

/// Where the parts of the element at an end of a list lie.
fn parts_at(guard: &mut Guard<'_>, key: &Key<'_>, front: bool) -> Vec<u64> {
    let there = guard.collection(key, Type::List).unwrap().expect("it is there");
    let place = if front { 0 } else { there.len() - 1 };
    let apart = there.entry(place).apart().expect("it is long");
    let mut parts = there.parts(&apart);
    std::iter::from_fn(|| parts.step().map(|(location, _)| location)).collect()
}

/// Carries an element, with both keys held.
fn carry(
    guard: &mut Guard<'_>,
    (from, from_front): (&Key<'_>, bool),
    (to, to_front): (&Key<'_>, bool),
) -> Result<bool, Declined> {
    guard.begin([*from, *to]);
    let carried = guard.list_carry((from, ends(from_front)), (to, ends(to_front)));
    guard.finish();
    carried
}

fn take(list: &mut List, front: bool) -> Vec<u8> {
    if front { list.remove(0) } else { list.pop().expect("it has one") }
}

fn put(list: &mut List, front: bool, element: Vec<u8>) {
    list.insert(if front { 0 } else { list.len() }, element);
}

/// What waits for this worker to leave its epoch is given back.
fn reclaim_all(worker: &mut Worker) {
    for _ in 0..200 {
        worker.enter(NOW).maintain();
    }
}

/// Between lists of every form, from both ends to both ends, until none is left; and back.
#[test]
fn an_element_that_is_carried_leaves_one_list_for_another() {
    for (ours, theirs) in [(0, 0), (0, 3), (1, 0), (1, 60), (5, 5), (60, 1), (60, 60)] {
        for (front, to_front) in [(true, false), (true, true), (false, true), (false, false)] {
            let (store, mut worker) = store(16);
            let mut guard = worker.enter(NOW);
            let (one, two) = (guard.key(b"one"), guard.key(b"two, with a longer name"));
            let (mut list, mut other) = (shorts(ours), shorts(theirs));
            for (n, bytes) in [17_000, 30 * 700, 40_000].into_iter().enumerate() {
                put(&mut list, front, element(n, bytes));
            }
            fill(&mut guard, &one, &list);
            fill(&mut guard, &two, &other);
            for _ in 0..3 {
                let parts = parts_at(&mut guard, &one, front);
                assert_eq!(carry(&mut guard, (&one, front), (&two, to_front)), Ok(true));
                let element = take(&mut list, front);
                put(&mut other, to_front, element);
                assert_eq!(parts_at(&mut guard, &two, to_front), parts);
                compare(&mut guard, &one, &list);
                compare(&mut guard, &two, &other);
                move_all(&store, &mut guard);
                compare(&mut guard, &one, &list);
                compare(&mut guard, &two, &other);
            }
            // Short ones lie in leaves, and are not carried.
            assert_eq!(carry(&mut guard, (&one, front), (&two, to_front)), Ok(false));
            for _ in 0..3 {
                assert_eq!(carry(&mut guard, (&two, to_front), (&one, front)), Ok(true));
                let element = take(&mut other, to_front);
                put(&mut list, front, element);
                compare(&mut guard, &one, &list);
                compare(&mut guard, &two, &other);
            }
            for key in [&one, &two] {
                _ = guard.delete(key, Expect::Present);
            }
            drop(guard);
            reclaim_all(&mut worker);
            store.check_behind(worker);
            assert_eq!((store.totals().item_bytes, store.trees.count()), (0, 0));
        }
    }
}

/// From one end of a list to the other, and from an end to the same.
#[test]
fn a_list_of_long_elements_turns() {
    for shorts_beside in [0, 1, 60] {
        for (front, to_front) in [(true, false), (false, true), (true, true), (false, false)] {
            let (store, mut worker) = store(16);
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            let mut list = shorts(shorts_beside);
            for n in 0..4 {
                put(&mut list, front, element(n, 17_000 + 700 * n));
            }
            fill(&mut guard, &key, &list);
            for n in 0..4 {
                assert_eq!(carry(&mut guard, (&key, front), (&key, to_front)), Ok(true));
                let element = take(&mut list, front);
                put(&mut list, to_front, element);
                compare(&mut guard, &key, &list);
                if n % 2 == 0 {
                    move_all(&store, &mut guard);
                }
            }
            compare(&mut guard, &key, &list);
            drop(guard);
            reclaim_all(&mut worker);
            store.check_behind(worker);
        }
    }
    // One that is alone stays.
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let list = vec![element(0, 17_000)];
    fill(&mut guard, &key, &list);
    assert_eq!(carry(&mut guard, (&key, true), (&key, false)), Ok(false));
    compare(&mut guard, &key, &list);
    drop(guard);
    store.check_behind(worker);
}

/// Its pins stay, and keep its parts when the list has gone to which it was carried.
#[test]
fn an_element_that_is_carried_may_be_on_its_way_to_clients() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let (one, two) = (guard.key(b"one"), guard.key(b"two"));
    let long = element(1, 30_000);
    fill(&mut guard, &one, std::slice::from_ref(&long));
    let there = guard.collection(&one, Type::List).unwrap().expect("it is there");
    let apart = there.entry(0).apart().expect("it is long");
    let pinned = there.pin_for_reply(&store, &apart).expect("it is alone");
    let held = store.held_bytes();
    for (from, to) in [(&one, &two), (&two, &one), (&one, &two)] {
        assert_eq!(carry(&mut guard, (from, true), (to, true)), Ok(true));
        assert!(guard.collection(from, Type::List).unwrap().is_none());
        compare(&mut guard, to, std::slice::from_ref(&long));
        move_all(&store, &mut guard);
    }
    assert_eq!(store.held_bytes(), held);
    assert!(guard.list_pop(&two, End::Front, 1).unwrap().is_some());
    drop(guard);
    reclaim_all(&mut worker);
    let mut guard = worker.enter(NOW);
    fill(&mut guard, &one, &shorts(2_000));
    assert!(pinned.pieces(0).flatten().copied().eq(long));
    drop(pinned);
    assert_eq!(store.held_bytes(), 0);
    guard.delete(&one, Expect::Present).unwrap();
    drop(guard);
    reclaim_all(&mut worker);
    store.check_behind(worker);
    assert_eq!((store.totals().item_bytes, store.trees.count()), (0, 0));
}

/// Where any one allocation is refused it stays, or comes back.
#[test]
fn an_element_for_which_memory_is_refused_is_where_it_was() {
    for (ours, theirs) in [(0, 0), (0, 60), (1, 1), (60, 5)] {
        for front in [true, false] {
            for budget in 0.. {
                assert!(budget < 200, "it takes no end of memory");
                let (store, mut worker) = store(16);
                let mut guard = worker.enter(NOW);
                let (one, two) = (guard.key(b"one"), guard.key(b"two"));
                let (mut list, mut other) = (shorts(ours), shorts(theirs));
                put(&mut list, front, element(7, 20_000));
                fill(&mut guard, &one, &list);
                fill(&mut guard, &two, &other);
                (guard.local.refuse_after, guard.local.refusals) = (Some(budget), 1);
                let carried = carry(&mut guard, (&one, front), (&two, !front));
                let refused = guard.local.refusals == 0;
                (guard.local.refuse_after, guard.local.refusals) = (None, u32::MAX);
                match carried {
                    // What is left for one leaf stays a tree where there is no memory to make it that.
                    Ok(carried) => {
                        assert!(carried);
                        let element = take(&mut list, front);
                        put(&mut other, !front, element);
                    }
                    Err(declined) => assert_eq!((declined, refused), (Declined::NoMemory, true)),
                }
                compare(&mut guard, &one, &list);
                compare(&mut guard, &two, &other);
                for key in [&one, &two] {
                    _ = guard.delete(key, Expect::Present);
                }
                drop(guard);
                reclaim_all(&mut worker);
                store.check_behind(worker);
                assert_eq!((store.totals().item_bytes, store.trees.count()), (0, 0));
                if !refused {
                    assert!(budget > 2, "the leaf of the element and both roots are made anew");
                    break;
                }
            }
        }
    }
}

/// The target has another type: nothing is done.
#[test]
fn an_element_comes_back_from_a_key_of_another_type() {
    for ours in [0, 5] {
        let (store, mut worker) = store(16);
        let mut guard = worker.enter(NOW);
        let (one, two) = (guard.key(b"one"), guard.key(b"two"));
        guard.hash_set(&two, [(&b"field"[..], &b"value"[..])].into_iter()).unwrap();
        let mut list = shorts(ours);
        list.push(element(7, 20_000));
        fill(&mut guard, &one, &list);
        assert_eq!(carry(&mut guard, (&one, false), (&two, false)), Err(Declined::Type));
        compare(&mut guard, &one, &list);
        drop(guard);
        store.check_behind(worker);
    }
}
