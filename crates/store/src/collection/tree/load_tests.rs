//! Collections that are made over several batches, against vectors: of entries that come some at a time, and as copies
//! while others are at work. Leaves and nodes are small here, so that trees are high.

use super::tests::{NOW, height, move_all, store, text};
use crate::collection::{Copied, Declined, Type};
use crate::worker::Guard;
use crate::{Attributes, BulkLoad, Eviction, Expect, Key, Made, Refusal, Store, Worker};
use std::sync::Arc;

const TYPES: [Type; 4] = [Type::Hash, Type::Set, Type::SortedSet, Type::List];

/// A name, a value and a score, as far as the type has them.
type Row = (Vec<u8>, Vec<u8>, f64);

/// Entries in an order that is no tree's, some of them long; scores with many alike.
fn rows(kind: Type, count: u32, order: fn(u32, u32) -> u32) -> Vec<Row> {
    let row = |n: u32| {
        let n = order(n, count);
        let name = match n % 7 {
            0 => n.to_string().into_bytes(),
            1 => format!("{n} {}", "x".repeat(n as usize % 90)).into_bytes(),
            _ => format!("member {n:06}").into_bytes(),
        };
        let value = if kind == Type::Hash { format!("value {}", n / 3).into_bytes() } else { Vec::new() };
        let score = if kind == Type::SortedSet { f64::from(n / 5) / 4.0 } else { 0.0 };
        (name, value, score)
    };
    (0..count).map(row).collect()
}

fn made(rows: &[Row]) -> impl Iterator<Item = Made<'_>> {
    rows.iter().map(|(name, value, score)| Made { name, value, score: *score, expires_at: 0 })
}

/// What a key has, as rows; in the order of a list, else sorted.
fn there(guard: &mut Guard<'_>, key: &Key<'_>, kind: Type) -> Vec<Row> {
    let there = guard.collection(key, kind).unwrap().expect("it is there");
    let all = there.entries(0..there.len());
    let rows = all.map(|entry| (text(entry.name), text(entry.value), entry.score)).collect();
    in_order(kind, rows)
}

fn in_order(kind: Type, mut rows: Vec<Row>) -> Vec<Row> {
    // What is no value is the number 0 of nothing.
    rows.iter_mut().filter(|_| kind != Type::Hash).for_each(|row| row.1.clear());
    if kind != Type::List {
        rows.sort_by(|one, other| one.0.cmp(&other.0));
    }
    rows
}

fn finish(guard: &mut Guard<'_>, load: &mut BulkLoad, key: &Key<'_>) -> Result<(), Declined> {
    while !guard.load_finish(load, key)? {}
    Ok(())
}

/// Publishes what is loaded in place of whatever is there.
fn publish(guard: &mut Guard<'_>, load: BulkLoad, key: &Key<'_>) -> Result<(), Refusal> {
    guard.load_publish(load, key, &Attributes::default(), Expect::Any).expect("it fits").map(drop)
}

/// Upkeep takes back what has no owner, and all adds up.
fn end(store: &Store, mut worker: Worker) {
    for _ in 0..3 {
        worker.rest();
        while worker.enter(NOW).maintain() {}
    }
    assert!(!store.trees.any_felled());
    store.check_behind(worker);
}

#[test]
fn what_comes_some_at_a_time_is_all_there_whatever_its_order_and_whatever_moves() {
    type Order = fn(u32, u32) -> u32;
    let orders: [Order; 4] =
        [|n, _| n, |n, count| count - 1 - n, |n, count| (n * 7919 + 13) % count, |n, _| n ^ 1];
    for (kind, count) in TYPES.into_iter().flat_map(|kind| [1, 2, 9, 300, 2_000].map(|count| (kind, count))) {
        for order in orders {
            let (store, mut worker) = store(16);
            let rows = rows(kind, count, order);
            let mut load = BulkLoad::new(&store, kind);
            for (i, some) in rows.chunks(64).enumerate() {
                let mut guard = worker.enter(NOW);
                let key = guard.key_in(1, b"key");
                guard.load_fill(&mut load, &key, made(some)).unwrap();
                assert_eq!(load.len(), rows.len().min(64 * (i + 1)));
                if i % 5 == 0 {
                    move_all(&store, &mut guard);
                    guard.maintain();
                }
                assert!(guard.peek(&key).hit().is_none(), "nobody sees it");
            }
            let mut guard = worker.enter(NOW);
            let key = guard.key_in(1, b"key");
            finish(&mut guard, &mut load, &key).unwrap();
            move_all(&store, &mut guard);
            // The database has another number by now: another key.
            let key = guard.key_in(2, b"key");
            publish(&mut guard, load, &key).unwrap();
            assert_eq!(there(&mut guard, &key, kind), in_order(kind, rows), "{kind:?} of {count}");
            assert_eq!(height(&mut guard, &key) > 0, count >= 300);
            move_all(&store, &mut guard);
            guard.delete(&key, Expect::Present).unwrap();
            drop(guard);
            end(&store, worker);
        }
    }
}

#[test]
fn a_name_that_comes_twice_is_found_whenever_it_comes() {
    for kind in [Type::Hash, Type::Set, Type::SortedSet] {
        for (count, again) in [(2_u32, 0_usize), (40, 3), (600, 0), (600, 599), (600, 300)] {
            let (store, mut worker) = store(16);
            let rows = rows(kind, count, |n, _| n);
            let twice = (rows[again].0.clone(), b"other".to_vec(), rows[again].2 + 1e6);
            // Behind all others, and among those that come with it.
            for at in [count as usize, (again + 1).min(count as usize), count as usize / 64 * 64] {
                let mut rows = rows.clone();
                rows.insert(at.max(again), twice.clone());
                let mut load = BulkLoad::new(&store, kind);
                let mut guard = worker.enter(NOW);
                let key = guard.key(b"key");
                let filled =
                    rows.chunks(64).try_for_each(|some| guard.load_fill(&mut load, &key, made(some)));
                let done = filled.and_then(|()| finish(&mut guard, &mut load, &key));
                assert_eq!(done, Err(Declined::Twice), "{kind:?} {count} {again} {at}");
            }
            end(&store, worker);
        }
    }
}

#[test]
fn what_is_too_long_or_too_much_or_dropped_leaves_nothing() {
    for kind in TYPES {
        let (store, mut worker) = store(4);
        // But for the name of a field it may be longer than a leaf.
        let long = vec![b'l'; if kind == Type::Hash { 20_000 } else { (2 << 20) + 1 }];
        for count in [0, 1, 500] {
            let mut load = BulkLoad::new(&store, kind);
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            guard.load_fill(&mut load, &key, made(&rows(kind, count, |n, _| n))).unwrap();
            let one = [(long.clone(), Vec::new(), 0.0)];
            assert_eq!(guard.load_fill(&mut load, &key, made(&one)), Err(Declined::TooLarge));
        }
        // No more than half of the memory, though all of it is there.
        let mut load = BulkLoad::new(&store, kind);
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        let mut n = 0;
        let done = loop {
            n += 1;
            let name = |i: u32| format!("{n} {i} {}", "x".repeat(500)).into_bytes();
            let some: Vec<Row> = (0..16).map(|i| (name(i), Vec::new(), f64::from(n))).collect();
            match guard.load_fill(&mut load, &key, made(&some)) {
                Ok(()) => assert!(load.bytes() <= 2 << 20),
                refused => break refused,
            }
        };
        assert_eq!(done, Err(Declined::NoMemory));
        assert!(load.bytes() > 1 << 20 && load.heap_bytes() > 0);
        drop(load);
        // One that is finished, and not published, or refused.
        for publishes in [false, true] {
            let mut load = BulkLoad::new(&store, kind);
            let rows = rows(kind, 1500, |n, _| n);
            guard.store_value(&key, b"string", &Attributes::default(), Expect::Any).unwrap();
            guard.load_fill(&mut load, &key, made(&rows)).unwrap();
            finish(&mut guard, &mut load, &key).unwrap();
            if publishes {
                let done = guard.load_publish(load, &key, &Attributes::default(), Expect::Absent);
                assert_eq!(done.unwrap().unwrap_err(), Refusal::Present);
            }
            assert_eq!(guard.peek(&key).hit().unwrap().value_bytes(), 6);
            move_all(&store, &mut guard);
        }
        drop(guard);
        end(&store, worker);
    }
}

#[test]
fn a_copy_in_steps_is_of_one_version_whatever_moves() {
    for (kind, count) in TYPES.into_iter().flat_map(|kind| [400, 3_000].map(|count| (kind, count))) {
        let (store, mut worker) = store(16);
        let rows = rows(kind, count, |n, count| (n * 7919 + 13) % count);
        let mut guard = worker.enter(NOW);
        let (key, other) = (guard.key_in(1, b"key"), guard.key_in(3, b"another key"));
        let mut load = BulkLoad::new(&store, kind);
        guard.load_fill(&mut load, &key, made(&rows)).unwrap();
        publish(&mut guard, load, &key).unwrap();
        let version = guard.peek(&key).hit().unwrap().cas();
        drop(guard);
        let (mut load, mut steps) = (BulkLoad::new(&store, kind), 0);
        loop {
            let mut guard = worker.enter(NOW);
            let (key, other) = (guard.key_in(1, b"key"), guard.key_in(3, b"another key"));
            match guard.load_copy(&mut load, (&key, version), &other).unwrap() {
                Copied::More => steps += 1,
                Copied::All => break,
                Copied::Changed => panic!("nobody writes"),
            }
            if steps % 8 == 1 {
                move_all(&store, &mut guard);
            }
        }
        assert!(steps > 10, "{steps}");
        let mut guard = worker.enter(NOW);
        finish(&mut guard, &mut load, &other).unwrap();
        guard.load_publish(load, &other, &Attributes::default(), Expect::Absent).unwrap().unwrap();
        assert_eq!(there(&mut guard, &other, kind), there(&mut guard, &key, kind));
        // Each is its own, and as good as the other.
        guard.delete(&key, Expect::Present).unwrap();
        assert_eq!(there(&mut guard, &other, kind), in_order(kind, rows.clone()), "{kind:?} of {count}");
        let names = rows.iter().map(|row| row.0.as_slice());
        match kind {
            Type::List => drop(guard.list_push(&other, crate::End::Back, names, false).unwrap()),
            kind => drop(guard.remove_named(&other, kind, names.step_by(2)).unwrap()),
        }
        // Another version is not gone on with.
        let mut load = BulkLoad::new(&store, kind);
        let version = guard.peek(&other).hit().unwrap().cas();
        assert_eq!(guard.load_copy(&mut load, (&other, version), &key), Ok(Copied::More));
        guard.delete(&other, Expect::Present).unwrap();
        assert_eq!(guard.load_copy(&mut load, (&other, version), &key), Ok(Copied::Changed));
        drop(load);
        drop(guard);
        end(&store, worker);
    }
}

/// The n-th chunk from here on is refused, for each n.
#[test]
fn any_chunk_of_a_load_or_a_copy_may_be_refused() {
    let mut refused = 0;
    for kind in TYPES {
        let (store, mut worker) = store(16);
        store.set_eviction(Eviction::Off);
        let rows = rows(kind, 300, |n, count| (n * 7919 + 13) % count);
        let mut guard = worker.enter(NOW);
        let (key, other) = (guard.key(b"key"), guard.key(b"other"));
        for budget in (0..40).chain((40..).step_by(41)) {
            guard.local.refuse_after = Some(budget);
            let mut load = BulkLoad::new(&store, kind);
            let filled = rows.chunks(50).try_for_each(|some| guard.load_fill(&mut load, &key, made(some)));
            let finished = filled.and_then(|()| finish(&mut guard, &mut load, &key));
            let done =
                finished.and_then(|()| publish(&mut guard, load, &key).map_err(|_| Declined::NoMemory));
            guard.local.refuse_after = None;
            if done.is_ok() {
                break;
            }
            assert_eq!(done, Err(Declined::NoMemory));
            assert!(guard.peek(&key).hit().is_none());
            refused += 1;
        }
        let version = guard.peek(&key).hit().unwrap().cas();
        for budget in 0.. {
            guard.local.refuse_after = Some(budget);
            let mut load = BulkLoad::new(&store, kind);
            let copied = loop {
                match guard.load_copy(&mut load, (&key, version), &other) {
                    Ok(Copied::More) => {}
                    done => break done,
                }
            };
            let done = match copied {
                Ok(Copied::All) => publish(&mut guard, load, &other).map_err(|_| Declined::NoMemory),
                done => done.map(drop),
            };
            guard.local.refuse_after = None;
            if done.is_ok() {
                break;
            }
            assert_eq!(done, Err(Declined::NoMemory));
            assert!(guard.peek(&other).hit().is_none());
            refused += 1;
        }
        assert_eq!(there(&mut guard, &other, kind), in_order(kind, rows));
        drop(guard);
        end(&store, worker);
    }
    assert!(refused > 150, "{refused}");
}

/// A large tree that is abandoned is left to others: they take it back some at a time.
#[test]
fn what_was_made_is_taken_back_in_steps_and_by_who_asks_for_memory() {
    let (store, mut worker) = store(8);
    store.set_eviction(Eviction::Off);
    let rows = rows(Type::Hash, 30_000, |n, _| n);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    for _ in 0..12 {
        let mut load = BulkLoad::new(&store, Type::Hash);
        rows.chunks(500).for_each(|some| guard.load_fill(&mut load, &key, made(some)).unwrap());
        assert!(load.bytes() > 1 << 20);
        drop(load);
        assert!(store.trees.any_felled());
    }
    guard.take_beside_ns();
    let mut steps = 0;
    while guard.local.take_apart(&Arc::clone(&store)) {
        let ns = guard.take_beside_ns();
        assert!(ns <= 64 * 150, "{ns}");
        steps += 1;
    }
    assert!(steps > 100, "{steps}");
    drop(guard);
    end(&store, worker);
}
