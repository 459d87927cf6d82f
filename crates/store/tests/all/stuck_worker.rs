//! A worker stays in its batch: items that other workers unlink meanwhile stay in limbo, and so does the list
//! that names them. All of it together stays within the memory limit, and so does the memory of the process.
//! It becomes free when the worker leaves.

use larder_store::{Attributes, Config, Eviction, Expect, Guard, Store, Worker};
use std::process::Command;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;
const MEMORY_BYTES: u64 = 16 << 20;
const KEYS: u32 = 20_000;
/// A value for the smallest chunk: its entry in the list of limbo is half as long as the chunk.
const VALUE: &[u8] = b"1234";
/// This variable is set in a process that runs one test alone.
const ALONE: &str = "LARDER_STUCK_ALONE";

/// Bytes of this process that are in physical memory.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux says so");
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * 4096
}

fn write(guard: &mut Guard<'_>, n: u32) -> bool {
    let name = n.to_be_bytes();
    let key = guard.key(&name);
    guard.store_value(&key, VALUE, &Attributes::default(), Expect::Any).is_ok()
}

/// Calls `step` until it returns false; returns the most memory that the store used meanwhile.
fn most_used(store: &Store, mut step: impl FnMut(u32) -> bool) -> u64 {
    (0..).map_while(|n| step(n).then(|| store.used_bytes())).max().expect("it is not over at once")
}

fn stores(eviction: Eviction) -> (Arc<Store>, Worker, Worker) {
    let config = Config { memory_bytes: MEMORY_BYTES, workers_max: 2, ..Config::default() };
    let store = Store::new(config).unwrap();
    store.set_eviction(eviction);
    let workers = (store.worker().unwrap(), store.worker().unwrap());
    (store, workers.0, workers.1)
}

/// Has a worker overwrite items until there is no more memory, and then for a while longer. The store stays
/// within its limit. Returns by how many bytes this process has grown then.
fn overwrite_beside_a_stuck_worker(eviction: Eviction) -> u64 {
    let (store, mut worker, mut stuck) = stores(eviction);
    (0..KEYS).for_each(|n| assert!(write(&mut worker.enter(NOW), n)));
    worker.rest();
    let (used_before, heap_before, resident_before) =
        (store.used_bytes(), store.heap_bytes(), resident_bytes());
    let kept = stuck.enter(NOW);
    let mut refused = 0;
    let most = most_used(&store, |n| {
        refused += u32::from(!write(&mut worker.enter(NOW), n % KEYS));
        refused < 2
    });
    // A system that is short of memory may take pages away meanwhile.
    let grown = resident_bytes().saturating_sub(resident_before);
    assert!(most > MEMORY_BYTES / 8 * 7 && most <= MEMORY_BYTES, "{most}");
    assert!(store.used_bytes() <= MEMORY_BYTES);
    drop(kept);
    worker.rest();
    // The ghosts of evicted keys take some memory.
    let ghosts = if eviction == Eviction::Off { 0 } else { 1 << 17 };
    assert!(store.heap_bytes() <= heap_before + ghosts, "{}", store.heap_bytes());
    assert!(write(&mut worker.enter(NOW), 0), "there is memory again");
    assert!(store.used_bytes() < used_before + (1 << 20), "{}", store.used_bytes());
    drop((worker, stuck));
    store.check();
    grown
}

#[test]
fn what_waits_for_a_stuck_worker_and_what_names_it_stay_within_the_limit_and_come_back() {
    for eviction in [Eviction::Off, Eviction::All] {
        overwrite_beside_a_stuck_worker(eviction);
    }
}

/// Runs a test in a process of its own. Here it would reuse memory that other tests have freed, and the
/// process would not grow.
fn alone(test: &str) {
    let program = std::env::current_exe().expect("a running program has a path");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(ALONE, "1");
    let output = command.output().expect("it starts");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // The child's summary line is left out, so that a count of results sees one for this test.
    text.lines().filter(|line| !line.starts_with("test result: ")).for_each(|line| println!("{line}"));
    assert!(output.status.success() && text.contains(" 1 passed; 0 failed"), "{errors}");
}

#[test]
#[ignore = "memory: what this process holds in real time"]
fn what_waits_for_a_stuck_worker_is_in_memory_within_the_limit_too() {
    if std::env::var_os(ALONE).is_none() {
        return alone("stuck_worker::what_waits_for_a_stuck_worker_is_in_memory_within_the_limit_too");
    }
    for eviction in [Eviction::Off, Eviction::All] {
        let grown = overwrite_beside_a_stuck_worker(eviction);
        println!("{eviction:?}: {grown} bytes of {MEMORY_BYTES}");
        assert!(grown <= MEMORY_BYTES, "{eviction:?}: {grown}");
    }
}
