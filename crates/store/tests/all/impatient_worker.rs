//! A worker with waiting clients, beside one that does not leave its batch: its writes are refused, and later
//! succeed. How often it waits is counted in `src/wait.rs`.

use larder_store::{Attributes, Config, Expect, Guard, Store};
use std::time::{Duration, Instant};

const NOW: u64 = 1_700_000_000_000;
/// The count of items that fill the store.
const LARGER: u32 = 16_000;

fn write_larger(guard: &mut Guard<'_>, n: u32) -> bool {
    let name = n.to_be_bytes();
    let key = guard.key(&name);
    guard.store_value(&key, &[1; 1000], &Attributes::default(), Expect::Any).is_ok()
}

/// How long each write took beside a worker that stays in its batch.
fn beside_a_stuck_worker() -> Vec<Duration> {
    let store = Store::new(Config { memory_bytes: 16 << 20, workers_max: 2, ..Config::default() }).unwrap();
    let (mut worker, mut stuck) = (store.worker().unwrap(), store.worker().unwrap());
    (0..LARGER).for_each(|n| assert!(write_larger(&mut worker.enter(NOW), n)));
    worker.set_patient(false);
    let kept = stuck.enter(NOW);
    let mut took = Vec::new();
    let mut refused = 0;
    for n in 0.. {
        let began = Instant::now();
        refused += u32::from(!write_larger(&mut worker.enter(NOW), n));
        took.push(began.elapsed());
        if refused == 500 {
            break;
        }
    }
    drop(kept);
    assert!(write_larger(&mut worker.enter(NOW), 0), "there is memory again");
    drop((worker, stuck));
    store.check();
    took
}

#[test]
fn a_worker_for_whom_others_wait_is_refused_and_then_there_is_memory_again() {
    beside_a_stuck_worker();
}

#[test]
#[ignore = "time: half of the refusals have a millisecond each"]
fn a_worker_for_whom_others_wait_is_refused_soon_and_then_at_once() {
    let holds = |_| {
        let mut took = beside_a_stuck_worker();
        took.sort_unstable();
        let (all, half) = (took.iter().sum::<Duration>(), took[took.len() - 250]);
        println!("{all:?}, half of the refusals {half:?} at most");
        // A patient worker would wait for more than a second at each refusal, also after it has waited in
        // vain.
        all < Duration::from_secs(60) && half < Duration::from_millis(1)
    };
    assert!((0..3).any(holds));
}
