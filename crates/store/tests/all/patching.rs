//! Parts of large values are overwritten in place: no reader sees half of a patch.

use larder_store::{Attributes, Config, Expect, Guard, Key, Refusal, Store, Value};
use std::sync::atomic::{AtomicBool, Ordering};

const NOW: u64 = 1_700_000_000_000;
/// Bytes of a full piece.
const PIECE: usize = (16 << 10) - 8;

fn bytes(guard: &mut Guard<'_>, key: &Key<'_>) -> Vec<u8> {
    match guard.peek(key).hit().expect("it is there").value() {
        Value::Whole(bytes) => bytes.to_vec(),
        Value::Pieces(value) => value.pin().pieces(0).flatten().copied().collect(),
        Value::Collection(_) => panic!("it is a string"),
    }
}

#[test]
fn patch_changes_its_bytes_and_the_token_and_nothing_else() {
    let store = Store::new(Config { memory_bytes: 256 << 20, ..Config::default() }).unwrap();
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    // The value's pieces are noted in the head's table, up to its end, and in tables of their own.
    for len in [PIECE * 2, 1 << 20, 40 << 20] {
        let key = guard.key(b"key");
        let mut value: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let attributes = Attributes { flags: 7, expires_at: NOW + 1000, ..Attributes::default() };
        let mut token = guard.store_value(&key, &value, &attributes, Expect::Any).unwrap().cas;
        for offset in [0, 1, PIECE - 3, PIECE, len / 2, len - PIECE - 9, len - 9] {
            let part = [b'x'; 9];
            assert_eq!(guard.patch(&key, offset as u64, &part, Expect::Present), Ok(Some(len as u64)));
            value[offset..offset + 9].copy_from_slice(&part);
            let item = guard.peek(&key).hit().unwrap();
            assert!(item.cas() > token);
            token = item.cas();
            assert_eq!((item.flags(), item.expires_at()), (7, NOW + 1000));
            assert!(bytes(&mut guard, &key) == value, "{len} {offset}");
            let Value::Pieces(large) = guard.peek(&key).hit().unwrap().value() else { panic!("large") };
            assert!(large.pin().pieces(offset as u64).flatten().eq(&value[offset..]));
        }
    }
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn what_does_not_fit_is_small_or_was_changed_is_not_patched() {
    let store = Store::new(Config::default()).unwrap();
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    assert_eq!(guard.patch(&key, 0, b"x", Expect::Present), Ok(None));
    guard.store_value(&key, &[1; 1000], &Attributes::default(), Expect::Any).unwrap();
    assert_eq!(guard.patch(&key, 0, b"x", Expect::Present), Ok(None));
    guard.store_value(&key, &[1; 100_000], &Attributes::default(), Expect::Any).unwrap();
    let seen = guard.peek(&key).hit().unwrap().seen();
    for (offset, len) in [(100_000, 1), (99_999, 2), (u64::MAX, 1), (0, (64 << 10) + 1)] {
        assert_eq!(guard.patch(&key, offset, &vec![2; len], Expect::Present), Ok(None));
    }
    assert_eq!(guard.patch(&key, 99_999, b"x", Expect::Unchanged(seen)), Ok(Some(100_000)));
    assert_eq!(guard.patch(&key, 99_999, b"x", Expect::Unchanged(seen)), Err(Refusal::Changed));
    assert_eq!(guard.patch(&key, 0, &[2; 64 << 10], Expect::Any), Ok(Some(100_000)));
}

/// A value with a long key lies in pieces, however short it is. Readers get a value of one piece as one
/// slice, without a pin, so it must never change.
#[test]
fn value_of_one_piece_is_one_run_that_stays_as_it_is() {
    let store = Store::new(Config::default()).unwrap();
    let (mut reads, mut writes) = (store.worker().unwrap(), store.worker().unwrap());
    let name = [b'k'; 9000];
    for len in [0, 1, PIECE - 1, PIECE] {
        let old = vec![1; len];
        let (mut guard, mut other) = (reads.enter(NOW), writes.enter(NOW));
        let key = guard.key(&name);
        guard.store_value(&key, &old, &Attributes::default(), Expect::Any).unwrap();
        let item = guard.peek(&key).hit().unwrap();
        assert_eq!(item.value_bytes(), len as u64);
        assert!(item.item_bytes() > (name.len() + len) as u64);
        let Value::Whole(value) = item.value() else { panic!("{len} bytes are one run") };
        let changed = other.patch(&key, 0, &[2], Expect::Present);
        assert_eq!(changed, Ok(None), "{len} bytes");
        other.overlay(&key, 0, &[2], Expect::Present).unwrap();
        assert!(bytes(&mut other, &key).starts_with(&[2]));
        // These values would reuse the old value's memory, if it were already free.
        for n in 0..200_u32 {
            let name = n.to_le_bytes();
            let key = other.key(&name);
            other.store_value(&key, &vec![3; len.max(100)], &Attributes::default(), Expect::Any).unwrap();
        }
        other.delete(&key, Expect::Present).unwrap();
        assert!(value == old, "{len} bytes");
    }
    let mut guard = reads.enter(NOW);
    let key = guard.key(&name);
    guard.store_value(&key, &[1; PIECE + 1], &Attributes::default(), Expect::Any).unwrap();
    assert!(matches!(guard.peek(&key).hit().unwrap().value(), Value::Pieces(_)));
    assert_eq!(guard.patch(&key, 0, &[2], Expect::Present), Ok(Some(PIECE as u64 + 1)));
    drop(guard);
    drop((reads, writes));
    store.check();
}

#[test]
fn pinned_value_stays_as_it_is() {
    let store = Store::new(Config::default()).unwrap();
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    guard.store_value(&key, &[1; 100_000], &Attributes::default(), Expect::Any).unwrap();
    let pinned = guard.peek(&key).hit().unwrap().pin();
    assert_eq!(guard.patch(&key, 5, b"x", Expect::Present), Ok(None));
    assert!(pinned.pieces(0).flatten().all(|byte| *byte == 1));
    drop(pinned);
    assert_eq!(guard.patch(&key, 5, b"x", Expect::Present), Ok(Some(100_000)));
}

#[test]
fn patch_touches_watches() {
    let store = Store::new(Config::default()).unwrap();
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    guard.store_value(&key, &[1; 100_000], &Attributes::default(), Expect::Any).unwrap();
    let touched = larder_store::Touched::default();
    assert_eq!(guard.watch(0, &key, &touched), Some(true));
    guard.patch(&key, 5, b"x", Expect::Present).unwrap();
    assert!(touched.load(Ordering::Relaxed));
}

#[test]
fn readers_see_all_of_a_patch_or_nothing_while_pieces_move() {
    const VALUE: usize = 6 * PIECE;
    const ROUNDS: u64 = 20_000;
    let store = Store::new(Config { memory_bytes: 32 << 20, ..Config::default() }).unwrap();
    let done = AtomicBool::new(false);
    {
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        guard.store_value(&key, &[0; VALUE], &Attributes::default(), Expect::Any).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = store.worker().unwrap();
            // Each patch spans two pieces, and repeats one byte: the low byte of the round.
            for round in 0..ROUNDS {
                let mut guard = worker.enter(NOW);
                let key = guard.key(b"key");
                let part = [round as u8; 400];
                // The system may take the reader off its core inside its batch for longer than the store
                // waits for it.
                while let Err(refusal) = guard.patch(&key, PIECE as u64 - 200, &part, Expect::Present) {
                    assert_eq!(refusal, Refusal::NoMemory);
                    std::thread::yield_now();
                }
                if round % 64 == 0 {
                    guard.reassign(None, None, 1);
                }
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let mut worker = store.worker().unwrap();
            let mut last = 0;
            while !done.load(Ordering::Acquire) {
                let mut guard = worker.enter(NOW);
                let key = guard.key(b"key");
                let item = guard.get(&key).hit().expect("nothing removes it");
                let before = item.cas();
                let Value::Pieces(value) = item.value() else { panic!("it is large") };
                let pinned = value.pin();
                let part: Vec<u8> = pinned.pieces(PIECE as u64 - 200).flatten().take(400).copied().collect();
                assert!(part.iter().all(|byte| *byte == part[0]), "torn");
                assert!(before >= last, "tokens grow");
                last = before;
            }
        });
    });
    // While the reader ran, each patch may have been made in a copy; now a patch in place is possible.
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    assert!(guard.patch(&key, 0, b"x", Expect::Present).unwrap().is_some());
    drop(guard);
    store.check_behind(worker);
}
