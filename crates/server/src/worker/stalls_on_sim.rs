//! What holds a worker up is noted, over the simulated network: turns that take long, and wake-ups that come late.

use std::sync::Arc;

use larder_commands::Counter;
use larder_eventloop::sim::{Sim, Weather};
use larder_store::Store;

use super::Worker;
use crate::clock::Clock;
use crate::config::Config;
use crate::hub::Hub;
use crate::log::Log;
use crate::mailbox::Mailbox;
use crate::stalls::{Cause, OfCause, Stall};

fn worker() -> Worker<Sim> {
    let config = Config { threads: 1, ..Config::default() };
    let store = Store::new(crate::store_config(&config)).expect("a store");
    let of_store = store.worker().expect("a worker of the store");
    let sim = Sim::new(1, Weather::FAIR);
    let clock = Clock::Simulated { time: sim.time(), epoch_us: Arc::new(0.into()) };
    let hub = Arc::new(Hub::new(config, store, Vec::new(), Log::default(), clock).expect("wakers"));
    let arrivals = Arc::new(Mailbox::new(&hub.handles[0].waker));
    Worker::new(hub, 0, of_store, sim, arrivals)
}

/// A turn whose work takes so long; what is noted when the next one begins.
fn after_a_turn_of(worker: &mut Worker<Sim>, us: u64) -> Vec<Stall> {
    worker.turn().expect("a turn");
    worker.events.backend().work_us(us);
    worker.turn().expect("a turn");
    worker.hub.stalls.all()
}

fn counted(worker: &Worker<Sim>) -> u64 {
    let mut sums = larder_commands::Sums::default();
    sums.add(&worker.hub.handles[0].counters);
    sums.of(Counter::Stalls)
}

#[test]
fn a_turn_of_20_ms_is_always_noted_and_one_below_10_ms_never() {
    let mut worker = worker();
    assert_eq!(after_a_turn_of(&mut worker, 9_999), []);
    for nth in 1..=50 {
        let all = after_a_turn_of(&mut worker, 20_000);
        let at = all[0].at;
        assert_eq!(
            (all.len(), all[0]),
            (nth, Stall { at, worker: 0, took_us: 20_000, cause: Cause::Unknown })
        );
        assert_eq!(counted(&worker), nth as u64);
        let of_cause = OfCause { count: nth as u64, took_us: 20_000 * nth as u64 };
        assert_eq!(worker.hub.stalls.by_cause()[Cause::Unknown as usize], (Cause::Unknown, of_cause));
    }
}

#[test]
fn a_wake_up_that_comes_late_is_noted_and_a_long_turn_is_not_noted_twice() {
    let mut worker = worker();
    // Upkeep becomes due in the midst of it.
    let all = after_a_turn_of(&mut worker, 600_000);
    assert_eq!(all.iter().map(|stall| stall.took_us).collect::<Vec<_>>(), [600_000]);
    // Nothing is done, and the worker is not woken.
    worker.turn().expect("a turn");
    let due = worker.tick_at.expect("the first worker has upkeep");
    let late_ms = 345;
    let time = worker.events.backend().time();
    time.pass_us((due + late_ms) * 1000 - time.now_us());
    worker.turn().expect("a turn");
    let all = worker.hub.stalls.all();
    assert_eq!((all.len(), all[0].took_us, counted(&worker)), (2, late_ms * 1000, 2));
}
