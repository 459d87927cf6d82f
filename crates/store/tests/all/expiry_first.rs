//! While expired items have more than a twentieth of a cache's bytes, it evicts no other items.

use crate::plain::Dice;
use larder_store::{Attributes, Config, Event, Expect, Refusal, Store, Worker};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NOW: u64 = 1_700_000_000_000;
/// A test's wait ends after this long: only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(600);
/// The share of the items' bytes that expired items may have.
const SHARE: f64 = 0.05;
const KEY_BYTES: u64 = 8;

fn store_one(worker: &mut Worker, now: u64, name: u64, bytes: u64, expires_at: u64) {
    let mut guard = worker.enter(now);
    let key = name.to_be_bytes();
    let key = guard.key(&key);
    let attributes = Attributes { expires_at, ..Attributes::default() };
    guard.store_value(&key, &vec![7; bytes as usize], &attributes, Expect::Any).expect("room is made");
}

/// Stores a key as [`store_one`] does, beside another worker. The system may take that worker off its core
/// for longer than the store waits for its batch, so a refused write is repeated until it is stored.
fn store_one_at_last(worker: &mut Worker, now: u64, name: u64, bytes: u64, expires_at: u64) {
    let since = Instant::now();
    let key = name.to_be_bytes();
    let attributes = Attributes { expires_at, ..Attributes::default() };
    loop {
        let mut guard = worker.enter(now);
        let key = guard.key(&key);
        match guard.store_value(&key, &vec![7; bytes as usize], &attributes, Expect::Any) {
            Err(Refusal::NoMemory) if since.elapsed() < PATIENCE => {}
            stored => return assert!(stored.is_ok(), "room is made: {stored:?}"),
        }
    }
}

/// The store's items by its events: keys with their bytes and expiry.
#[derive(Default)]
struct Contents {
    items: HashMap<u64, (u64, u64)>,
    /// Expiry and key of each item that has an expiry.
    expiries: BTreeSet<(u64, u64)>,
    /// Keys that had expired when the clock last moved.
    expired: HashSet<u64>,
    expired_bytes: u64,
    bytes: u64,
    evicted: u64,
}

impl Contents {
    /// Moves the clock to `now`.
    fn pass(&mut self, now: u64) {
        while let Some(&(at, name)) = self.expiries.first()
            && at <= now
        {
            self.expiries.pop_first();
            self.expired.insert(name);
            self.expired_bytes += self.items[&name].0;
        }
    }

    /// The share of the items' bytes that expired items have.
    fn expired_share(&self) -> f64 {
        self.expired_bytes as f64 / self.bytes.max(1) as f64
    }

    /// Stores a key, and notes which items left the store for it; returns whether one had not expired.
    fn set(&mut self, worker: &mut Worker, now: u64, name: u64, bytes: u64, expires_at: u64) -> bool {
        let before = self.evicted;
        store_one(worker, now, name, bytes, expires_at);
        self.insert(name, bytes, expires_at);
        worker.enter(now).take_events(&mut |event, _, key| self.note(event, key));
        self.evicted > before
    }

    fn insert(&mut self, name: u64, bytes: u64, expires_at: u64) {
        self.items.insert(name, (bytes + KEY_BYTES, expires_at));
        if expires_at != 0 {
            self.expiries.insert((expires_at, name));
        }
        self.bytes += bytes + KEY_BYTES;
    }

    fn note(&mut self, event: Event, key: &[u8]) {
        let name = u64::from_be_bytes(key.try_into().expect("a name"));
        let (bytes, expires_at) = self.items.remove(&name).expect("it was held");
        self.bytes -= bytes;
        self.expiries.remove(&(expires_at, name));
        if self.expired.remove(&name) {
            self.expired_bytes -= bytes;
        }
        self.evicted += u64::from(event == Event::Evicted);
    }

    fn tick(&mut self, worker: &mut Worker, now: u64) {
        let mut guard = worker.enter(now);
        let _ = (0..16).all(|_| guard.maintain());
        guard.take_events(&mut |event, _, key| self.note(event, key));
    }
}

/// What a run writes, and how its clock moves.
#[derive(Clone, Copy)]
struct Run<'s> {
    memory_bytes: u64,
    /// How many workers write, one after another.
    workers: usize,
    sizes: &'s [u64],
    /// Lifetimes are up to this, in milliseconds.
    ttl_ms: u64,
    /// The clock moves in steps of up to this; some keys are set in each step.
    step_ms: u64,
    /// Whether one worker does upkeep, ten times a second.
    ticks: bool,
}

const SMALL: Run<'_> =
    Run { memory_bytes: 16 << 20, workers: 1, sizes: &[100], ttl_ms: 60_000, step_ms: 100, ticks: true };

fn start(run: &Run<'_>) -> (Arc<Store>, Vec<Worker>) {
    let config = Config { memory_bytes: run.memory_bytes, workers_max: run.workers, ..Config::default() };
    let store = Store::new(config).unwrap();
    store.note_events(&[Event::Evicted, Event::Expired]);
    let workers = (0..run.workers).map(|_| store.worker().unwrap()).collect();
    (store, workers)
}

/// The writes of a step: name, bytes, expiry.
fn step(run: &Run<'_>, random: &mut Dice, now: u64, names: &mut u64) -> Vec<(u64, u64, u64)> {
    let mean = run.sizes.iter().sum::<u64>() / run.sizes.len() as u64 + KEY_BYTES;
    let sets = 1 + random.below((run.memory_bytes / 200 / mean).max(1));
    let one = |_| {
        let bytes = run.sizes[random.below(run.sizes.len() as u64) as usize];
        let expires_at = if random.below(4) == 0 { 0 } else { now + 1 + random.below(run.ttl_ms) };
        *names += 1;
        (*names, bytes, expires_at)
    };
    (0..sets).map(one).collect()
}

/// Plays a run; returns how many items were evicted. None may be while expired items have more than
/// [`SHARE`].
fn run(seed: u64, run: Run<'_>) -> u64 {
    let (store, mut workers) = start(&run);
    let (mut random, mut contents, mut now) = (Dice(seed), Contents::default(), NOW);
    let (mut names, mut written, mut tick) = (0, 0, NOW);
    while written < 4 * run.memory_bytes {
        now += random.below(run.step_ms);
        contents.pass(now);
        if run.ticks && now >= tick {
            contents.tick(&mut workers[0], now);
            tick = now + 100;
        }
        // The share is taken before each step: the clock stands still within a step, so the share only falls.
        let before = contents.expired_share();
        let evicted = contents.evicted;
        for (name, bytes, expires_at) in step(&run, &mut random, now, &mut names) {
            written += bytes;
            let worker = random.below(run.workers as u64) as usize;
            if contents.set(&mut workers[worker], now, name, bytes, expires_at) {
                let share = contents.expired_share();
                assert!(
                    share <= SHARE,
                    "seed {seed}: evicted with {share:.3} of the bytes expired, {before:.3} before the step, {} \
                     evicted in it, {name} stored",
                    contents.evicted - evicted
                );
            }
        }
    }
    assert_eq!(store.totals().items, contents.items.len() as u64, "the model is right");
    drop(workers);
    store.check();
    contents.evicted
}

/// Plays a run as [`run`] does, with workers in parallel. The order of their writes is not known. So a step
/// fails only if it evicted an item that had not expired, and the share of expired bytes is too large even
/// after the step.
fn run_at_once(seed: u64, run: Run<'_>) -> u64 {
    let (store, mut workers) = start(&run);
    let (mut random, mut contents, mut now) = (Dice(seed), Contents::default(), NOW);
    let (mut names, mut written, mut tick) = (0, 0, NOW);
    while written < 4 * run.memory_bytes {
        now += random.below(run.step_ms);
        contents.pass(now);
        if run.ticks && now >= tick {
            contents.tick(&mut workers[0], now);
            tick = now + 100;
        }
        let evicted = contents.evicted;
        let sets: Vec<_> = workers.iter().map(|_| step(&run, &mut random, now, &mut names)).collect();
        std::thread::scope(|scope| {
            for (worker, sets) in workers.iter_mut().zip(&sets) {
                scope.spawn(move || {
                    sets.iter().for_each(|&(name, bytes, at)| store_one_at_last(worker, now, name, bytes, at))
                });
            }
        });
        for (name, bytes, expires_at) in sets.into_iter().flatten() {
            written += bytes;
            contents.insert(name, bytes, expires_at);
        }
        for worker in &mut workers {
            worker.enter(now).take_events(&mut |event, _, key| contents.note(event, key));
        }
        let (share, evicted) = (contents.expired_share(), contents.evicted - evicted);
        assert!(
            evicted == 0 || share <= SHARE,
            "seed {seed}: {evicted} evicted, and {share:.3} expired after it"
        );
    }
    assert_eq!(store.totals().items, contents.items.len() as u64, "the model is right");
    drop(workers);
    store.check();
    contents.evicted
}

fn evicts(evicted: u64, at_least: u64) {
    assert!(evicted > at_least, "the cache was full: {evicted}");
}

#[test]
fn items_of_one_size_with_all_lifetimes() {
    evicts((0..2).map(|seed| run(seed, Run { ticks: seed == 0, ..SMALL })).sum(), 1000);
}

#[test]
fn items_of_many_sizes() {
    let sizes: Vec<u64> = (1..40).map(|i| i * 53).collect();
    evicts((0..2).map(|seed| run(seed, Run { sizes: &sizes, ticks: seed == 0, ..SMALL })).sum(), 1000);
}

#[test]
fn all_at_once_after_a_pause() {
    // In one step so much time passes that a large part of the cache expires before the next write.
    (0..2).for_each(|seed| {
        run(seed, Run { sizes: &[100, 1000], ttl_ms: 2_000, step_ms: 4_000, ticks: false, ..SMALL });
    });
}

/// Sizes from one chunk to several spans.
const LARGE: [u64; 7] = [9_000, 17_000, 40_000, 64 << 10, 100_000, 200_000, 400_000];

fn large(workers: usize, ticks: bool) -> Run<'static> {
    Run { memory_bytes: 64 << 20, workers, sizes: &LARGE, ticks, ..SMALL }
}

#[test]
fn values_of_several_spans() {
    evicts((0..2).map(|seed| run(seed, large(1, seed == 0))).sum(), 100);
}

#[test]
fn small_and_large_values_together() {
    let sizes: Vec<u64> = [100; 2000].into_iter().chain([1000; 200]).chain(LARGE).collect();
    evicts((0..2).map(|seed| run(seed, Run { sizes: &sizes, ..large(1, seed == 0) })).sum(), 100);
}

#[test]
fn two_workers_by_turns() {
    let sizes: Vec<u64> = (1..40).map(|i| i * 53).collect();
    for (seed, sizes) in [(0, &[100][..]), (1, &sizes), (2, &sizes)] {
        evicts(run(seed, Run { workers: 2, sizes, ticks: seed < 2, ..SMALL }), 500);
    }
    evicts((0..2).map(|seed| run(seed, large(2, seed == 0))).sum(), 100);
}

#[test]
fn two_workers_at_once() {
    let sizes: Vec<u64> = (1..40).map(|i| i * 53).collect();
    for (seed, sizes) in [(0, &[100][..]), (1, &sizes), (2, &sizes)] {
        evicts(run_at_once(seed, Run { workers: 2, sizes, ticks: seed < 2, ..SMALL }), 500);
    }
    evicts((0..2).map(|seed| run_at_once(seed, large(2, seed == 0))).sum(), 100);
}
