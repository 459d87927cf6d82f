//! How long one call keeps its worker, in cases that once were slow. The unit is CPU time of the thread, so
//! that other programs do not count. The bench `pauses` measures the usual cases; the steps of upkeep are
//! counted in `tests/schedules/upkeep.rs`.

use larder_store::{Attributes, Config, Eviction, Expect, Guard, Refusal, Store, Worker};
use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;
/// A call may take a millisecond in a release build. This build is several times slower, and the time
/// includes the system's work at the first access to a page. The slow cases took 20 to 200 ms, or minutes.
const CALL_US_MAX: f64 = 10_000.0;
/// The value of the smallest items, of which a span has the most.
const SMALL: &[u8] = &[7; 20];

fn store(megabytes: u64, workers_max: usize) -> Arc<Store> {
    Store::new(Config { memory_bytes: megabytes << 20, workers_max, ..Config::default() }).unwrap()
}

fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

thread_local! {
    /// The time of this thread's longest call, and the line of the test that made it.
    static LONGEST: Cell<(f64, u32)> = const { Cell::new((0.0, 0)) };
}

/// Makes a call that must be short, notes its time, and returns its result.
#[track_caller]
fn at_once<T>(call: impl FnOnce() -> T) -> T {
    let before = cpu_us();
    let result = call();
    let took = cpu_us() - before;
    if took > LONGEST.get().0 {
        LONGEST.set((took, Location::caller().line()));
    }
    result
}

/// Checks that no call of the scenario takes long. A thread's CPU time includes what the host of a virtual
/// machine does meanwhile. So the scenario is repeated after a long call: the call's own work takes as long
/// each time.
fn pausing_nowhere(scenario: fn()) {
    for repeated in 0..3 {
        LONGEST.set((0.0, 0));
        scenario();
        let (took, line) = LONGEST.get();
        println!("the longest, of line {line}: {took:.0} µs of {CALL_US_MAX}");
        if took <= CALL_US_MAX {
            return;
        }
        assert!(repeated < 2, "the call of line {line} took {took:.0} µs");
    }
}

fn set_until(worker: &mut Worker, n: u64, value: &[u8], expires_at: u64) -> Result<(), Refusal> {
    let mut guard = worker.enter(NOW);
    let name = n.to_be_bytes();
    let key = guard.key(&name);
    let attributes = Attributes { expires_at, ..Attributes::default() };
    guard.store_value(&key, value, &attributes, Expect::Any).map(drop)
}

fn set(worker: &mut Worker, n: u64, value: &[u8]) -> Result<(), Refusal> {
    set_until(worker, n, value, 0)
}

fn delete(worker: &mut Worker, n: u64) {
    let mut guard = worker.enter(NOW);
    let name = n.to_be_bytes();
    let key = guard.key(&name);
    guard.delete(&key, Expect::Present).unwrap();
}

fn has(guard: &mut Guard<'_>, n: u64) -> bool {
    let name = n.to_be_bytes();
    let key = guard.key(&name);
    guard.get(&key).hit().is_some()
}

/// A store full of small items, of which none may be evicted, its worker, and how many items there are.
fn full(megabytes: u64) -> (Arc<Store>, Worker, u64) {
    let store = store(megabytes, 2);
    store.set_eviction(Eviction::Off);
    let mut worker = store.worker().unwrap();
    let count = (0..).take_while(|&n| set(&mut worker, n, SMALL).is_ok()).count();
    (store, worker, count as u64)
}

/// The name of a key that was not stored yet.
fn new(n: u64) -> u64 {
    1 << 40 | n
}

/// Under the policies that evict only items with an expiry, one write took minutes after the limit was
/// lowered.
#[test]
fn a_write_is_refused_where_nothing_may_go() {
    for eviction in [Eviction::Off, Eviction::Volatile, Eviction::VolatileTtl] {
        for lower in [false, true] {
            let (store, mut worker, count) = full(24);
            store.set_eviction(eviction);
            if lower {
                assert!(store.set_memory_bytes(16 << 20));
            }
            for n in 0..200 {
                let value = vec![7; [20, 1_000, 300_000][n as usize % 3]];
                let refused = at_once(|| set(&mut worker, new(n), &value).is_err());
                assert!(refused || !lower && value.len() < 20_000, "{eviction:?}, {} bytes", value.len());
                at_once(|| worker.enter(NOW + n * 10).give_way());
            }
            let mut guard = worker.enter(NOW);
            assert!((0..count).all(|n| has(&mut guard, n)), "nothing was lost");
        }
    }
}

/// Retired memory becomes free when the other worker leaves its batch. How often a worker waits for one that
/// does not leave is counted in `src/wait.rs`.
#[test]
fn beside_a_worker_that_stays_in_its_batch_a_write_is_refused_until_it_has_left() {
    let (store, mut worker, _) = full(8);
    let mut other = store.worker().unwrap();
    let stuck = other.enter(NOW);
    (0..100).for_each(|n| delete(&mut worker, n));
    for n in 0..200 {
        assert!(set(&mut worker, new(n), &[7; 1_000]).is_err());
    }
    drop(stuck);
    assert!(set(&mut worker, new(0), SMALL).is_ok());
}

/// A write was refused; then memory becomes free in one of several ways, and the next write gets it.
#[test]
fn a_write_that_was_refused_succeeds_when_there_is_memory() {
    let long = vec![7; 5_000];
    for way in ["delete", "deletes beside what stays", "expiry", "flush", "limit", "eviction"] {
        let expires = if way == "expiry" { NOW + 1_000 } else { 0 };
        let store = store(20, 1);
        assert!(store.set_memory_bytes(16 << 20));
        store.set_eviction(Eviction::Off);
        let mut worker = store.worker().unwrap();
        let count = (0..).take_while(|&n| set_until(&mut worker, n, SMALL, expires).is_ok()).count() as u64;
        assert!((0..500).all(|n| set(&mut worker, new(n), &long).is_err()), "{way}: it is full");
        let (mut value, mut now) = (&long[..], NOW);
        match way {
            "delete" => {
                delete(&mut worker, 0);
                value = SMALL;
            }
            "deletes beside what stays" => {
                (0..count).filter(|n| n % 8 != 0).for_each(|n| delete(&mut worker, n))
            }
            "expiry" => now = NOW + 2_000,
            "flush" => {
                worker.enter(NOW).flush();
                while worker.enter(NOW).maintain() {}
            }
            "limit" => assert!(store.set_memory_bytes(20 << 20)),
            _ => store.set_eviction(Eviction::All),
        }
        let mut guard = worker.enter(now);
        let name = new(1_000).to_be_bytes();
        let key = guard.key(&name);
        let stored = at_once(|| guard.store_value(&key, value, &Attributes::default(), Expect::Any));
        assert!(stored.is_ok(), "{way}: {stored:?}");
    }
}

/// When the hand has passed over many items that were read, it evicts the next one. It once went three times
/// round before it evicted the first.
#[test]
fn where_all_is_hot_a_write_is_stored() {
    let (store, mut worker, count) = full(24);
    for _ in 0..4 {
        let mut guard = worker.enter(NOW);
        assert!((0..count).all(|n| has(&mut guard, n)));
    }
    store.set_eviction(Eviction::All);
    for n in 0..2_000 {
        // Half of the values have a class with memory; the others have classes without any so far.
        let value = vec![7; [20, 3_000 + n as usize * 4][n as usize % 2]];
        assert!(at_once(|| set(&mut worker, new(n), &value)).is_ok());
    }
    store.check_behind(worker);
}

/// After the limit was lowered, a class without a span gets one for each two spans that are freed. No call
/// frees all of them at once.
#[test]
fn a_limit_that_falls_is_reached_in_steps() {
    let (store, mut worker, _) = full(24);
    store.set_eviction(Eviction::All);
    assert!(store.set_memory_bytes(16 << 20));
    for n in 0..50 {
        assert!(at_once(|| set(&mut worker, new(n), &vec![7; 100 << (n % 7)])).is_ok());
        at_once(|| worker.enter(NOW).give_way());
    }
    assert!(store.is_over_limit());
    for _ in 0..10_000 {
        at_once(|| worker.enter(NOW).maintain());
    }
    assert!(!store.is_over_limit());
    store.check_behind(worker);
}

/// Each item of the span once caused a search through its class, in vain: minutes for a span.
#[test]
fn a_span_that_cannot_be_emptied_is_left() {
    for eviction in [Eviction::Off, Eviction::Volatile, Eviction::All] {
        let (store, mut worker, count) = full(16);
        store.set_eviction(eviction);
        for n in 0..10 {
            let moved = at_once(|| worker.enter(NOW + n).reassign(None, None, 1));
            assert_eq!(moved, usize::from(eviction == Eviction::All));
        }
        let mut guard = worker.enter(NOW);
        assert!(eviction == Eviction::All || (0..count).all(|n| has(&mut guard, n)));
    }
}

/// The memory that another worker's batch kept in limbo becomes free in steps.
#[test]
fn what_a_long_batch_held_back_comes_free_in_steps() {
    let (store, mut worker, count) = full(16);
    let mut other = store.worker().unwrap();
    let stuck = other.enter(NOW);
    (0..count).for_each(|n| delete(&mut worker, n));
    drop(stuck);
    let free = |store: &Store| store.classes(NOW).iter().map(|class| class.free_chunks).sum::<u64>();
    let mut before = free(&store);
    let mut steps = 0;
    while store.totals().item_bytes > 0 {
        at_once(|| worker.enter(NOW).maintain());
        let now = free(&store);
        assert!(now.saturating_sub(before) <= 2_048, "{} chunks in one step", now - before);
        before = now;
        steps += 1;
        assert!(steps < 100_000);
    }
    assert!(steps > 10);
}

#[test]
#[ignore = "time: a call has 10 ms of its thread's time on a core"]
fn no_call_takes_long() {
    pausing_nowhere(a_write_is_refused_where_nothing_may_go);
    pausing_nowhere(a_write_that_was_refused_succeeds_when_there_is_memory);
    pausing_nowhere(where_all_is_hot_a_write_is_stored);
    pausing_nowhere(a_limit_that_falls_is_reached_in_steps);
    pausing_nowhere(a_span_that_cannot_be_emptied_is_left);
    pausing_nowhere(what_a_long_batch_held_back_comes_free_in_steps);
}
