//! Memory that is not needed any more goes back to the system, and no item is lost.

use crate::plain::delete;
use larder_store::{Attributes, Automove, Config, Expect, Store, Value, Worker};

const NOW: u64 = 1_700_000_000_000;
const ITEMS: u64 = 200_000;
const VALUE_BYTES: u64 = 100;

fn set(worker: &mut Worker, now: u64, name: u64) {
    let mut guard = worker.enter(now);
    let bytes = name.to_be_bytes();
    let key = guard.key(&bytes);
    let value = [name as u8; VALUE_BYTES as usize];
    guard.store_value(&key, &value, &Attributes::default(), Expect::Any).unwrap();
}

fn is_there(worker: &mut Worker, now: u64, name: u64) -> bool {
    let mut guard = worker.enter(now);
    let bytes = name.to_be_bytes();
    let key = guard.key(&bytes);
    guard.get(&key).hit().is_some_and(|item| match item.value() {
        Value::Whole(value) => value == [name as u8; VALUE_BYTES as usize],
        Value::Pieces(_) => false,
        Value::Collection(_) => false,
    })
}

/// Does upkeep for `for_ms`, tick by tick, as a server's worker does; returns in how many ticks there was
/// more work than a tick does.
fn upkeep(worker: &mut Worker, now: &mut u64, for_ms: u64) -> u64 {
    let (until, mut steps) = (*now + for_ms, 0);
    while *now < until {
        let mut guard = worker.enter(*now);
        let more = (0..16).all(|_| guard.maintain());
        steps += u64::from(more);
        *now += if more { 2 } else { 100 };
    }
    steps
}

fn filled() -> (Worker, u64) {
    let config = Config { memory_bytes: 64 << 20, workers_max: 2, ..Config::default() };
    let mut worker = Store::new(config).unwrap().worker().unwrap();
    (0..ITEMS).for_each(|name| set(&mut worker, NOW, name));
    (worker, NOW)
}

#[test]
fn deleted_items_give_their_memory_back_and_the_others_stay() {
    let (mut worker, mut now) = filled();
    let full = worker.store().totals().used_bytes;
    for keep in [2, 8] {
        for name in (0..ITEMS).filter(|name| name % keep != 0) {
            if is_there(&mut worker, now, name) {
                delete(&mut worker, now, name);
            }
        }
        upkeep(&mut worker, &mut now, 10_000);
        let totals = worker.store().totals();
        let share = full / keep;
        assert!(
            totals.used_bytes < share + share / 10 + (1 << 20),
            "one in {keep} is kept: {} bytes of {full} are in use",
            totals.used_bytes
        );
        assert_eq!((totals.items, totals.evictions), (ITEMS / keep, 0));
        assert!(totals.spans_moved > 0 && totals.spans_reassigned == 0, "no class asked for any");
        assert!((0..ITEMS).all(|name| is_there(&mut worker, now, name) == (name % keep == 0)));
        assert!(upkeep(&mut worker, &mut now, 5_000) < 20, "and then there is nothing to do");
    }
    let store = std::sync::Arc::clone(worker.store());
    store.check_behind(worker);
}

#[test]
fn automove_0_leaves_the_memory_with_its_class() {
    let (mut worker, mut now) = filled();
    worker.store().set_automove(Automove::Off);
    (0..ITEMS).filter(|name| name % 4 != 0).for_each(|name| delete(&mut worker, now, name));
    let before: u64 = worker.store().classes(now).iter().map(|class| class.spans).sum();
    upkeep(&mut worker, &mut now, 10_000);
    let after: u64 = worker.store().classes(now).iter().map(|class| class.spans).sum();
    assert_eq!((before, worker.store().totals().spans_moved), (after, 0));
}

#[test]
fn steady_writes_and_deletes_move_nothing() {
    let (mut worker, mut now) = filled();
    // A tenth as many items come and go again.
    for round in 1..40 {
        let names = |round: u64| (0..ITEMS / 10).map(move |name| round << 32 | name);
        names(round).for_each(|name| set(&mut worker, now, name));
        upkeep(&mut worker, &mut now, 300);
        names(round).for_each(|name| delete(&mut worker, now, name));
        upkeep(&mut worker, &mut now, 300);
    }
    assert_eq!(worker.store().totals().chunks_moved, 0);
}

#[test]
fn a_store_that_evicts_nothing_compacts_too_and_refuses_no_write_for_it() {
    let (mut worker, mut now) = filled();
    worker.store().set_eviction(larder_store::Eviction::Off);
    (0..ITEMS).filter(|name| name % 3 != 0).for_each(|name| delete(&mut worker, now, name));
    let before = worker.store().totals().used_bytes;
    for name in 0..20_000 {
        set(&mut worker, now, 1 << 40 | name);
        if name % 100 == 0 {
            upkeep(&mut worker, &mut now, 100);
        }
    }
    let totals = worker.store().totals();
    assert!(totals.used_bytes < before * 2 / 3, "{} of {before}", totals.used_bytes);
    assert_eq!(totals.items, ITEMS.div_ceil(3) + 20_000);
}
