//! Two workers receive long elements, push them to the ends of one list, and pop them. Each element is popped
//! once and whole, however often a push has to begin again because the other worker was faster, and all
//! memory is free at the end.

use larder_store::{Config, Element, End, Guard, Key, Store, Worker};
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;
/// Elements that each worker pushes.
const PUSHES: u64 = 300;

/// The element with a number: too long for a leaf; it repeats its number.
fn element(number: u64) -> Vec<u8> {
    let bytes = 16_358 + (number % 7) as usize * 9_001;
    number.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

fn end(number: u64) -> End {
    if number.is_multiple_of(2) { End::Front } else { End::Back }
}

/// Receives an element, and pushes it to its end of the list.
fn push(guard: &mut Guard<'_>, key: &Key<'_>, number: u64) {
    let bytes = element(number);
    let upload = guard.upload_element(key, bytes.len() as u64).expect("there is memory");
    let mut upload = upload.expect("it is longer than a leaf");
    guard.upload_fill(&mut upload, &bytes).expect("there is memory");
    assert!(guard.list_push_upload(key, end(number), upload, false).expect("there is memory") > 0);
}

/// Pops an element from an end of the list, and returns its number; `None` if the list is empty.
fn pop(guard: &mut Guard<'_>, key: &Key<'_>, end: End) -> Option<u64> {
    let popped = guard.list_pop(key, end, 1).expect("a list")?;
    let mut bytes = Vec::new();
    for entry in popped.entries() {
        assert!(matches!(entry.name, Element::Apart(_)));
        popped.collection().each_part(&entry.name, |part| bytes.extend_from_slice(part));
    }
    let number = u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
    assert!(bytes == element(number), "{number} is not whole");
    Some(number)
}

/// The work of one worker; returns the numbers of the elements that it popped.
fn work(worker: &mut Worker, first: u64) -> Vec<u64> {
    let mut popped = Vec::new();
    for number in first..first + PUSHES {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"list");
        push(&mut guard, &key, number);
        if number.is_multiple_of(3) {
            popped.extend(pop(&mut guard, &key, end(number / 3)));
        }
        drop(guard);
        worker.enter(NOW).maintain();
    }
    popped
}

#[test]
fn elements_that_two_workers_receive_come_out_once_and_whole() {
    let store = Store::new(Config { memory_bytes: 128 << 20, workers_max: 2, ..Config::default() }).unwrap();
    let mut workers = [store.worker().unwrap(), store.worker().unwrap()];
    let mut popped: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .zip([0, PUSHES])
            .map(|(worker, first)| scope.spawn(move || work(worker, first)))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it has done its work")).collect()
    });
    let [mut worker, other] = workers;
    drop(other);
    loop {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"list");
        let Some(number) = pop(&mut guard, &key, End::Front) else { break };
        popped.push(number);
    }
    popped.sort_unstable();
    assert!(popped.into_iter().eq(0..2 * PUSHES));
    for _ in 0..1_000 {
        worker.enter(NOW).maintain();
    }
    drop(worker);
    assert_eq!((store.totals().item_bytes, store.input_bytes()), (0, 0));
    store.check();
    assert_eq!(Arc::strong_count(&store), 1, "no upload is left");
}

/// 64 MiB is the limit in a store of 256 MiB, which has memory for it.
#[test]
fn the_longest_that_is_received_has_64_mebibytes() {
    const MOST: usize = 64 << 20;
    let store = Store::new(Config { memory_bytes: 256 << 20, workers_max: 1, ..Config::default() }).unwrap();
    assert_eq!((store.element_bytes_max(), store.received_bytes_max()), (4 << 20, MOST));
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    for (bytes, is_received) in [(MOST - 1, true), (MOST, true), (MOST + 1, false)] {
        let upload = guard.upload_element(&key, bytes as u64).unwrap();
        assert_eq!(upload.is_some(), is_received, "{bytes}");
        let Some(mut upload) = upload else { continue };
        // The words are all different, so that no part equals another.
        let piece: Vec<u8> = (0..99_991_u32).flat_map(u32::to_le_bytes).collect();
        while upload.missing() > 0 {
            let some = piece.len().min(upload.missing() as usize);
            guard.upload_fill(&mut upload, &piece[..some]).expect("there is memory");
        }
        assert_eq!(guard.list_push_upload(&key, End::Back, upload, false), Ok(1));
        let mut read = 0;
        {
            let popped = guard.list_pop(&key, End::Front, 1).unwrap().expect("it is there");
            let entry = popped.entries().next().expect("one");
            popped.collection().each_part(&entry.name, |part| {
                for i in (0..part.len()).step_by(1_021) {
                    assert_eq!(part[i], piece[(read + i) % piece.len()]);
                }
                read += part.len();
            });
        }
        assert_eq!(read, bytes);
        drop(guard);
        for _ in 0..2_000 {
            worker.enter(NOW).maintain();
        }
        guard = worker.enter(NOW);
    }
    assert!(guard.peek(&key).hit().is_none());
    drop(guard);
    drop(worker);
    assert_eq!((store.totals().item_bytes, store.input_bytes()), (0, 0));
    store.check();
}

/// The shortest elements that are too long for a leaf have two parts, also if the key is empty.
#[test]
fn the_shortest_are_received_beside_an_empty_key_too() {
    let store = Store::new(Config { memory_bytes: 16 << 20, workers_max: 1, ..Config::default() }).unwrap();
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    for name in [&b""[..], b"key"] {
        let key = guard.key(name);
        for (bytes, is_received) in [(16_357, false), (16_358, true), (16_359, true)] {
            let upload = guard.upload_element(&key, bytes).unwrap();
            assert_eq!(upload.is_some(), is_received, "{bytes} beside {} bytes", name.len());
        }
    }
}
