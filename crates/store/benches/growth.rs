//! The index while the number of items grows and shrinks: the longest that one request takes of its
//! thread's CPU time, and the bytes above key and value at every fill.
//!
//! The arena's memory is touched before, with large values that are deleted again: what the system
//! takes to zero a page is not the index's (a huge page takes 0.1 to 6 ms, depending on the machine).
//!
//! `cargo bench -p larder-store --bench growth [-- MILLIONS]`

use larder_store::{Attributes, Config, Expect, Store, Worker};
use std::process::ExitCode;

const NOW: u64 = 1_700_000_000_000;
const KEY_BYTES: u64 = 16;
const VALUE_BYTES: usize = 32;
/// The longest that a request may take.
const REQUEST_US_MAX: f64 = 1000.0;
/// Bytes of an item above key and value, at most.
const BYTES_MAX: f64 = 22.0;
/// Requests whose CPU time is measured together: a look at the clock takes longer than a request.
const BATCH: u64 = 16;
/// Slots and bytes of a page of the index.
const PAGE_SLOTS: u64 = 448;
const PAGE_BYTES: u64 = 4096;

fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn name(i: u64) -> [u8; KEY_BYTES as usize] {
    let mut name = *b"key-000000000000";
    let mut n = i;
    for digit in name.iter_mut().rev().take(12) {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
    name
}

/// Runs `f` on all numbers; the CPU time of the slowest batch of requests.
fn slowest(worker: &mut Worker, numbers: std::ops::Range<u64>, mut f: impl FnMut(&mut Worker, u64)) -> f64 {
    let mut worst: f64 = 0.0;
    let mut i = numbers.start;
    while i < numbers.end {
        let start = cpu_us();
        for n in i..(i + BATCH).min(numbers.end) {
            f(worker, n);
        }
        worst = worst.max(cpu_us() - start);
        i += BATCH;
    }
    worst
}

fn store_one(worker: &mut Worker, i: u64) {
    let mut guard = worker.enter(NOW);
    let name = name(i);
    let key = guard.key(&name);
    guard.store_value(&key, &[7; VALUE_BYTES], &Attributes::default(), Expect::Any).expect("room");
}

fn delete_one(worker: &mut Worker, i: u64) {
    let mut guard = worker.enter(NOW);
    let name = name(i);
    let key = guard.key(&name);
    guard.delete(&key, Expect::Present).expect("it is there");
}

/// Has the system give the arena its memory.
fn touch(worker: &mut Worker, bytes: u64) {
    let value = vec![1; 4 << 20];
    let count = bytes / value.len() as u64;
    for i in 0..2 * count {
        let mut guard = worker.enter(NOW);
        let name = name(u64::MAX / 2 + i % count);
        let key = guard.key(&name);
        match i < count {
            true => {
                guard.store_value(&key, &value, &Attributes::default(), Expect::Any).expect("room");
            }
            false => guard.delete(&key, Expect::Present).expect("it is there"),
        }
    }
    for _ in 0..100 {
        worker.enter(NOW).maintain();
    }
}

fn bytes_above(store: &Store) -> f64 {
    let totals = store.totals();
    // The directory is on the heap.
    let directory = totals.index_bytes - totals.index_slots / PAGE_SLOTS * PAGE_BYTES;
    (totals.used_bytes + directory) as f64 / totals.items as f64 - (KEY_BYTES as usize + VALUE_BYTES) as f64
}

fn main() -> ExitCode {
    let millions: u64 = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(16);
    let config = Config { memory_bytes: (millions + 2) * 80_000_000, workers_max: 1, ..Config::default() };
    let store = Store::new(config).expect("memory");
    let mut worker = store.worker().expect("a worker");
    touch(&mut worker, millions * 72_000_000);
    let (mut worst, mut most): (f64, f64) = (0.0, 0.0);
    println!("{:>10} {:>14} {:>10}", "items", "bytes above", "µs at most");
    let step = 500_000;
    for half in 0..2 * millions {
        let us = slowest(&mut worker, half * step..(half + 1) * step, store_one);
        let bytes = bytes_above(&store);
        println!("{:10} {bytes:14.2} {us:10.0}", (half + 1) * step);
        if half > 0 {
            worst = worst.max(us);
        }
        most = most.max(bytes);
    }
    let mut now = NOW;
    for (from, to) in [(2 * millions, millions), (millions, 2), (2, 1)] {
        let (from, to) = (from.max(to), to.min(from));
        let deleted = slowest(&mut worker, to * step..from * step, delete_one);
        let until = now + 330_000;
        let mut upkeep: f64 = 0.0;
        while now < until {
            now += 2;
            let start = cpu_us();
            let more = worker.enter(now).maintain();
            upkeep = upkeep.max(cpu_us() - start);
            if !more {
                now += 100;
            }
        }
        let bytes = bytes_above(&store);
        println!("{:10} {bytes:14.2} {deleted:10.0}   upkeep {upkeep:.0}", to * step);
        worst = worst.max(deleted).max(upkeep);
        most = most.max(bytes);
    }
    println!("{worst:.0} µs at most (limit {REQUEST_US_MAX}), {most:.2} bytes at most (limit {BYTES_MAX})");
    if worst <= REQUEST_US_MAX && most <= BYTES_MAX { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
