//! Memory that a worker keeps to itself (chunks in limbo, magazines, spans that it drains) is there for
//! another worker's write that needs it, whatever the first worker did before, and however little it does
//! now. One thread drives all workers: a write that waits for another worker waits in vain, and is repeated.

use crate::plain::Dice;
use larder_store::{Attributes, Config, End, Expect, Guard, Store, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NOW: u64 = 1_700_000_000_000;
/// A test's wait ends after this long: only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(600);
const WORKERS: usize = 4;
const KEYS: u64 = 4_000;

/// The length of a value: all magnitudes from 10 bytes to `most`.
fn bytes(random: &mut Dice, most: u64) -> usize {
    let magnitude = 10 << random.below(18);
    (magnitude + random.below(magnitude)).min(most) as usize
}

/// Stores a value; returns false if it is refused.
fn write(guard: &mut Guard<'_>, name: u64, bytes: usize) -> bool {
    let name = name.to_be_bytes();
    let key = guard.key(&name);
    guard.store_value(&key, &vec![b'v'; bytes], &Attributes::default(), Expect::Any).is_ok()
}

/// Has a worker make many requests of all kinds.
fn toil(worker: &mut Worker, random: &mut Dice, now: u64, most: u64) {
    for _ in 0..1 + random.below(4) {
        let mut guard = worker.enter(now);
        let kind = random.below(8);
        for _ in 0..1 + random.below(200) {
            let name = random.below(KEYS);
            let name = name.to_be_bytes();
            let key = guard.key(&name);
            match kind {
                0 => drop(guard.delete(&key, Expect::Present)),
                1 => drop(guard.get(&key).hit().is_some()),
                2 => drop(guard.concat(&key, &[b'a'; 50], End::Back, None, Expect::Any)),
                3 => {
                    let attributes =
                        Attributes { expires_at: now + random.below(2_000), ..Attributes::default() };
                    let _ = guard.store_value(&key, &[b'e'; 300], &attributes, Expect::Any);
                }
                4 => drop(guard.maintain()),
                5 => drop(write(&mut guard, u64::from_be_bytes(name), bytes(random, 2_000))),
                _ => {
                    let _ = write(&mut guard, u64::from_be_bytes(name), bytes(random, most));
                    if random.below(20) == 0 {
                        break;
                    }
                }
            }
        }
    }
}

/// What the other workers do while one worker writes.
#[derive(Clone, Copy, Debug)]
enum Idle {
    /// Now and then a batch with some reads.
    Reads,
    /// Now and then an empty batch.
    Passes,
    /// Nothing at all.
    Sleeps,
}

fn run(seed: u64, megabytes: u64, most: u64, idle: Idle) {
    let config = Config { memory_bytes: megabytes << 20, workers_max: WORKERS, ..Config::default() };
    let store = Store::new(config).unwrap();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Arc::clone(&store).worker().unwrap()).collect();
    let (mut random, mut now) = (Dice(seed), NOW);
    for round in 0..12 {
        for _ in 0..2 {
            for worker in &mut workers {
                toil(worker, &mut random, now, most / 2);
                now += random.below(300);
            }
        }
        let writer = random.below(WORKERS as u64) as usize;
        let what = format!("{megabytes} MB, seed {seed}, {idle:?}, round {round}");
        for _ in 0..60 {
            let (name, bytes) = (random.below(KEYS), bytes(&mut random, most));
            let count = 1 + random.below(4);
            // A write is refused at most until each other worker has entered a batch once more.
            let mut tries = 0;
            while !(0..count).all(|n| write(&mut workers[writer].enter(now), name + n, bytes)) {
                tries += 1;
                assert!(tries < 2, "{what}: {bytes} bytes");
                workers.iter_mut().for_each(|worker| drop(worker.enter(now)));
            }
            now += random.below(3);
            let other = random.below(WORKERS as u64) as usize;
            if other == writer {
                continue;
            }
            match idle {
                Idle::Reads => {
                    let mut guard = workers[other].enter(now);
                    for _ in 0..random.below(10) {
                        let name = random.below(KEYS).to_be_bytes();
                        let key = guard.key(&name);
                        let _ = guard.get(&key).hit().is_some();
                    }
                }
                Idle::Passes => drop(workers[other].enter(now)),
                Idle::Sleeps => {}
            }
        }
    }
    drop(workers);
    store.check();
}

fn all(idle: Idle) {
    for seed in seeds() {
        run(seed, 4, 700_000, idle);
        run(seed, 8, 1_500_000, idle);
    }
}

/// `LARDER_WORKERS_SEED` replays one seed; with `LARDER_WORKERS_SEEDS=n` it is the first of `n` seeds.
fn seeds() -> std::ops::Range<u64> {
    let number =
        |name: &str, other: u64| std::env::var(name).map_or(other, |text| text.parse().expect("a number"));
    let first = number("LARDER_WORKERS_SEED", 0);
    first..first + number("LARDER_WORKERS_SEEDS", 2)
}

#[test]
fn a_worker_that_only_reads_keeps_nobody_from_writing() {
    all(Idle::Reads);
}

#[test]
fn a_worker_that_only_comes_and_goes_keeps_nobody_from_writing() {
    all(Idle::Passes);
}

#[test]
fn a_worker_that_does_nothing_keeps_nobody_from_writing() {
    all(Idle::Sleeps);
}

/// A worker removes flushed items, and has them in its limbo, while another worker needs memory in a batch
/// that began before: the second one has nothing in its own limbo to wait for. With `at_last` it tries again
/// in further batches, since the system may take the cleaner off its core for longer than the store waits for
/// it.
fn while_another_worker_cleans(at_last: bool) {
    let config = Config { memory_bytes: 8 << 20, workers_max: 2, evict: false, ..Config::default() };
    let store = Store::new(config).unwrap();
    let mut writer = Arc::clone(&store).worker().unwrap();
    let mut cleaner = Arc::clone(&store).worker().unwrap();
    let mut now = NOW;
    for (round, bytes) in [200, 3_000, 30_000].into_iter().cycle().take(12).enumerate() {
        let done = AtomicBool::new(false);
        now = std::thread::scope(|scope| {
            let mut guard = writer.enter(now);
            assert!((0..1_000_000).any(|name| !write(&mut guard, name, bytes)), "it is full");
            cleaner.enter(now).flush();
            while cleaner.enter(now).maintain() {}
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    cleaner.enter(now).maintain();
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let (since, mut later) = (Instant::now(), now);
            let mut stored = (0..10).all(|name| write(&mut guard, name, 200_000));
            drop(guard);
            while at_last && !stored && since.elapsed() < PATIENCE {
                later += 1_000;
                let mut guard = writer.enter(later);
                stored = (0..10).all(|name| write(&mut guard, name, 200_000));
            }
            done.store(true, Ordering::Relaxed);
            assert!(stored, "round {round}: nothing is there, and values of 200 KB are refused");
            later + 1_000
        });
    }
    drop((writer, cleaner));
    store.check();
}

#[test]
fn what_another_worker_cleans_of_a_flush_is_room_for_a_write_at_last() {
    while_another_worker_cleans(true);
}

#[test]
#[ignore = "time: a worker that is kept from its core is waited for a second"]
fn what_another_worker_cleans_of_a_flush_is_room_for_a_write() {
    while_another_worker_cleans(false);
}
