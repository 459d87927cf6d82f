//! Uploads: how many bytes they may hold, how they are filled, and that abandoned ones free their memory.

use crate::behaviour::{NOW, get, set, store};
use larder_store::{Attributes, Expect, Guard, Refusal};

#[test]
fn abandoned_uploads_and_pins_give_their_memory_back() {
    let (store, mut worker) = store(64);
    let value = vec![5; 3 << 20];
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"big");
    let mut upload = guard.upload(&key, 3 << 20, &Attributes::default()).unwrap();
    guard.upload_reserve(&mut upload, 100_000).unwrap();
    assert!(upload.spaces().map(|space| space.len()).sum::<usize>() >= 100_000);
    drop(upload);
    set(&mut guard, b"big", &value);
    let pinned = guard.get(&key).hit().unwrap().pin();
    guard.delete(&key, Expect::Present).unwrap();
    drop(guard);
    for _ in 0..4 {
        worker.enter(NOW).maintain();
    }
    assert!(pinned.pieces(0).flatten().eq(&value), "a pinned value outlives its key");
    assert!(pinned.pieces(1_000_000).flatten().eq(&value[1_000_000..]));
    assert!(store.totals().item_bytes > 3 << 20);
    drop(pinned);
    // The value has 193 pieces, which upkeep frees in steps.
    while worker.enter(NOW).maintain() {}
    assert_eq!(store.totals().item_bytes, 0);
}

#[test]
fn uploads_hold_at_most_their_share_together_and_one_beside_half_of_it_any_part() {
    let (store, mut worker) = store(16);
    assert_eq!(store.input_bytes_max(), 2 << 20);
    let mut guard = worker.enter(NOW);
    let receive = |guard: &mut Guard<'_>, upload: &mut larder_store::Upload, bytes: u64| {
        let target = upload.missing().saturating_sub(bytes);
        while upload.missing() > target {
            guard.upload_reserve(upload, 100_000)?;
            let n = upload.spaces().next().unwrap().len();
            upload.advance(n);
        }
        Ok::<(), Refusal>(())
    };
    let key = guard.key(b"big");
    let mut upload = guard.upload(&key, 7 << 20, &Attributes::default()).unwrap();
    receive(&mut guard, &mut upload, u64::MAX).unwrap();
    guard.publish(upload, Expect::Any).unwrap();

    let other = guard.key(b"other");
    let mut waiting = guard.upload(&other, 1 << 20, &Attributes::default()).unwrap();
    receive(&mut guard, &mut waiting, 900_000).unwrap();
    let mut upload = guard.upload(&key, 7 << 20, &Attributes::default()).unwrap();
    receive(&mut guard, &mut upload, 3 << 20).unwrap();
    // The other upload may not hold more beside this one. Once a third holder has some bytes, this one may
    // not grow, either.
    assert_eq!(receive(&mut guard, &mut waiting, 100_000), Err(Refusal::NoMemory));
    store.note_input(200_000);
    assert_eq!(receive(&mut guard, &mut upload, u64::MAX), Err(Refusal::NoMemory));
    store.note_input(-200_000);
    receive(&mut guard, &mut upload, u64::MAX).unwrap();
    drop((upload, waiting));
    assert_eq!(store.input_bytes(), 0);
}

#[test]
fn uploads_with_memory_ahead_leave_half_of_the_share_to_others() {
    let (_store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let mut uploads = Vec::new();
    for i in 0..30 {
        let name = [i];
        let key = guard.key(&name);
        let mut upload = guard.upload(&key, 1 << 20, &Attributes::default()).unwrap();
        guard.upload_reserve(&mut upload, 100_000).unwrap();
        uploads.push(upload);
    }
    let spaces: Vec<usize> = uploads.iter_mut().map(|upload| upload.spaces().count()).collect();
    assert_eq!((spaces[0], spaces[29]), (7, 1), "{spaces:?}");
}

#[test]
fn uploads_that_begin_leave_a_quarter_of_the_share_to_those_under_way() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let begin = |guard: &mut Guard<'_>, name: &[u8]| {
        let mut upload = guard.upload(&guard.key(name), 1 << 20, &Attributes::default()).unwrap();
        guard.upload_reserve(&mut upload, 1).map(|()| upload)
    };
    let mut first = begin(&mut guard, b"first").unwrap();
    let others = store.input_bytes_max() * 3 / 4 - store.input_bytes();
    store.note_input(others as i64);
    let late = begin(&mut guard, b"late");
    assert_eq!(late.unwrap_err(), Refusal::NoMemory);
    while first.held_bytes() < 256 << 10 {
        guard.upload_reserve(&mut first, 1).expect("it is under way");
        let bytes = first.spaces().map(|space| space.len()).sum();
        first.advance(bytes);
    }
    store.note_input(-(others as i64));
    begin(&mut guard, b"late").unwrap();
}

#[test]
fn an_upload_is_filled_across_its_spaces_in_any_steps() {
    // So large that its pieces need two tables beside the table in its head.
    const BYTES: usize = 70 << 20;
    let (_store, mut worker) = store(512);
    let mut guard = worker.enter(NOW);
    let value: Vec<u8> = (0..BYTES).map(|i| (i % 65_521 % 251) as u8).collect();
    let key = guard.key(b"big");
    let mut upload = guard.upload(&key, BYTES as u64, &Attributes::default()).unwrap();
    let mut at = 0;
    for step in (0..).map(|i| 1 + i * 7_919 % 130_000) {
        if upload.missing() == 0 {
            break;
        }
        guard.upload_reserve(&mut upload, 100_000).unwrap();
        let before = at;
        for space in upload.spaces() {
            let n = space.len().min(step - (at - before)).min(BYTES - at);
            space[..n].copy_from_slice(&value[at..at + n]);
            at += n;
        }
        upload.advance(at - before);
        assert_eq!(upload.missing() as usize, BYTES - at);
    }
    guard.publish(upload, Expect::Absent).unwrap();
    assert!(get(&mut guard, b"big").unwrap() == value);
}
