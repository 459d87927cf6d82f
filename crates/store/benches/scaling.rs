//! Two threads on one store against two threads on two stores, in interleaved rounds: what sharing
//! costs. Busy loops that share nothing scale by 1.4 to 2.0 on small virtual machines, so two
//! threads against one prove nothing. Figures are operations per second of the threads' own CPU
//! time, so that a busy machine does not count; what threads lose to each other does. The shared store
//! is one of the two by turns, so that which got better pages does not count either.
//!
//! How long a cache line takes from thread to thread is measured beside it: some hundred nanoseconds
//! from core to core. Where it is microseconds other programs ran, and the two threads had one core by
//! turns: the one that has the core then waits for what the other, interrupted in its batch, still may see.
//!
//! `cargo bench -p larder-store --bench scaling [-- rounds] [-- get|set]`

use larder_store::{Attributes, Config, Expect, Store, Value, Worker};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const KEYS: u64 = 1_000_000;
const BATCH: usize = 32;
const ROUND: Duration = Duration::from_millis(400);
const NOW: u64 = 1_700_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Load {
    GetUniform,
    GetHot,
    SetUniform,
}

fn name(i: u64) -> [u8; 16] {
    let mut name = *b"key-000000000000";
    let mut n = i;
    for digit in name.iter_mut().rev().take(12) {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
    name
}

fn filled() -> Arc<Store> {
    let store =
        Store::new(Config { memory_bytes: 512 << 20, workers_max: 4, ..Config::default() }).expect("memory");
    let mut worker = store.worker().expect("a worker");
    for i in 0..KEYS {
        let mut guard = worker.enter(NOW);
        let name = name(i);
        let key = guard.key(&name);
        guard.store_value(&key, &[7; 32], &Attributes::default(), Expect::Any).expect("room");
    }
    store
}

/// CPU time of this thread, in seconds.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs one load until the time is up; returns operations done and CPU seconds spent.
fn run(worker: &mut Worker, load: Load, seed: u64, until: Instant) -> (u64, f64) {
    let start = cpu_s();
    let mut random = seed;
    let mut done = 0;
    let mut sum = 0u64;
    let mut names = [[0u8; 16]; BATCH];
    while Instant::now() < until {
        for _ in 0..16 {
            for slot in &mut names {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                *slot = name(if matches!(load, Load::GetHot) { 4711 } else { random % KEYS });
            }
            let mut guard = worker.enter(NOW);
            let keys = names.each_ref().map(|name| guard.key(name));
            let mut hints = keys.each_ref().map(|key| guard.prefetch_bucket(key));
            for (key, hint) in keys.iter().zip(&mut hints) {
                if guard.prefetch_item(key, hint) {
                    guard.prefetch_again(key, hint);
                }
            }
            for (key, hint) in keys.iter().zip(&hints) {
                match load {
                    Load::GetUniform | Load::GetHot => {
                        if let Some(item) = guard.get_hinted(key, hint).hit()
                            && let Value::Whole(value) = item.value()
                        {
                            sum += u64::from(value[0]);
                        }
                    }
                    Load::SetUniform => {
                        guard
                            .store_value_hinted(key, &[8; 32], &Attributes::default(), Expect::Any, hint)
                            .expect("room");
                    }
                }
            }
            done += BATCH as u64;
        }
    }
    std::hint::black_box(sum);
    (done, cpu_s() - start)
}

/// Operations per CPU second of two threads, each on its store; doubled, as if both ran throughout.
fn pair(stores: [&Arc<Store>; 2], load: Load) -> f64 {
    let barrier = Barrier::new(2);
    let mut workers = stores.map(|store| store.worker().expect("a worker"));
    let (done, cpu) = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .zip([0x9e37_79b9u64, 0x1234_5678_9abc])
            .map(|(worker, seed)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    run(worker, load, seed, Instant::now() + ROUND)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .fold((0, 0.0), |(done, cpu), (d, c)| (done + d, cpu + c))
    });
    2.0 * done as f64 / cpu
}

/// Nanoseconds that a cache line takes from one thread to another, one way.
fn line_ns() -> f64 {
    const TURNS: u64 = 20_000;
    let (line, barrier) = (AtomicU64::new(0), Barrier::new(2));
    std::thread::scope(|scope| {
        let [first, second] = [0, 1].map(|side| {
            let (line, barrier) = (&line, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let start = Instant::now();
                for turn in 0..TURNS {
                    while line.load(Ordering::Acquire) != turn * 2 + side {
                        std::hint::spin_loop();
                    }
                    line.store(turn * 2 + side + 1, Ordering::Release);
                }
                start.elapsed()
            })
        });
        first.join().expect("no panic").max(second.join().expect("no panic"))
    })
    .as_secs_f64()
        * 1e9
        / (2 * TURNS) as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let rounds: usize = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(11);
    let (one, two) = (filled(), filled());
    println!(
        "{:<12} {:>16} {:>16} {:>8} {:>8} {:>8}",
        "load", "shared Mop/s", "separate Mop/s", "ratio", "A/A", "line ns"
    );
    let only = std::env::args().skip(1).find(|arg| arg.starts_with("get") || arg.starts_with("set"));
    for load in [Load::GetUniform, Load::GetHot, Load::SetUniform] {
        if only.as_ref().is_some_and(|only| !format!("{load:?}").to_lowercase().starts_with(only.as_str())) {
            continue;
        }
        let (mut shared, mut separate, mut ratios, mut noise, mut line) =
            (vec![], vec![], vec![], vec![], vec![]);
        for round in 0..rounds {
            let both = if round % 4 < 2 { &one } else { &two };
            let order = |swap: bool| {
                let run =
                    |shared: bool| if shared { pair([both, both], load) } else { pair([&one, &two], load) };
                if swap {
                    (run(true), run(false))
                } else {
                    let separate = run(false);
                    (run(true), separate)
                }
            };
            let (s, p) = order(round % 2 == 0);
            let again = pair([&one, &two], load);
            shared.push(s);
            separate.push(p);
            ratios.push(s / p);
            noise.push(again / p);
            line.push(line_ns());
        }
        println!(
            "{:<12} {:>16.2} {:>16.2} {:>8.3} {:>8.3} {:>8.0}",
            format!("{load:?}"),
            median(&mut shared) / 1e6,
            median(&mut separate) / 1e6,
            median(&mut ratios),
            median(&mut noise),
            median(&mut line)
        );
    }
}
