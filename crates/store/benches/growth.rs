//! The index while the number of items grows and shrinks: the longest that one request takes of its
//! thread's CPU time, and the bytes above key and value at every fill.
//!
//! The arena's memory is touched before, with large values that are deleted again: what the system
//! takes to zero a page is not the index's (a huge page takes 0.1 to 6 ms, depending on the machine).
//! Another store, whose memory was not touched, shows what is resident of it, at every fill and when
//! every other item was deleted, again and again.
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
/// Steps of upkeep in a round.
const STEPS: u32 = 6;
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

/// Resident memory of the process.
fn rss_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("a process has one");
    let pages: f64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * rustix::param::page_size() as f64
}

/// Upkeep as a server's worker takes it, for so long; the CPU time of the slowest step.
fn upkeep(worker: &mut Worker, now: &mut u64, for_ms: u64) -> f64 {
    let until = *now + for_ms;
    let mut slowest: f64 = 0.0;
    while *now < until {
        *now += 2;
        for step in 0..STEPS {
            let start = cpu_us();
            let more = worker.enter(*now).maintain();
            slowest = slowest.max(cpu_us() - start);
            if !more {
                *now += if step == 0 { 100 } else { 0 };
                break;
            }
        }
    }
    slowest
}

fn new_store(millions: u64) -> Worker {
    let config = Config { memory_bytes: (millions + 2) * 80_000_000, workers_max: 1, ..Config::default() };
    Store::new(config).expect("memory").worker().expect("a worker")
}

/// The longest that a request and a step of upkeep take, and the bytes in use at every fill.
fn growth(millions: u64) -> (f64, f64) {
    let mut worker = new_store(millions);
    let worker = &mut worker;
    touch(worker, millions * 72_000_000);
    let (mut worst, mut most): (f64, f64) = (0.0, 0.0);
    println!("{:>10} {:>14} {:>10}", "items", "bytes above", "µs at most");
    let step = 500_000;
    for half in 0..2 * millions {
        let us = slowest(worker, half * step..(half + 1) * step, store_one);
        let bytes = bytes_above(worker.store());
        println!("{:10} {bytes:14.2} {us:10.0}", (half + 1) * step);
        if half > 0 {
            worst = worst.max(us);
        }
        most = most.max(bytes);
    }
    let mut now = NOW;
    for (from, to) in [(2 * millions, millions), (millions, 2), (2, 1)] {
        let (from, to) = (from.max(to), to.min(from));
        let deleted = slowest(worker, to * step..from * step, delete_one);
        let upkeep = upkeep(worker, &mut now, 330_000);
        let bytes = bytes_above(worker.store());
        println!("{:10} {bytes:14.2} {deleted:10.0}   upkeep {upkeep:.0}", to * step);
        worst = worst.max(deleted).max(upkeep);
        most = most.max(bytes);
    }
    (worst, most)
}

/// Resident memory at every fill, and when every other item was deleted, again and again; the most of
/// an item, and the slowest step of upkeep.
fn resident(millions: u64) -> (f64, f64) {
    let before = rss_bytes();
    let mut worker = new_store(millions);
    let worker = &mut worker;
    let (mut now, mut most, mut worst): (u64, f64, f64) = (NOW, 0.0, 0.0);
    println!("{:>10} {:>14} {:>14} {:>10}", "items", "resident above", "in use", "upkeep, µs");
    let mut row = |items: u64, upkeep: f64, worker: &mut Worker| {
        let bytes = (rss_bytes() - before) / items as f64 - (KEY_BYTES as usize + VALUE_BYTES) as f64;
        println!("{items:10} {bytes:14.2} {:14.2} {upkeep:10.0}", bytes_above(worker.store()));
        most = most.max(bytes);
    };
    let step = 500_000;
    for half in 0..2 * millions {
        for i in half * step..(half + 1) * step {
            store_one(worker, i);
        }
        row((half + 1) * step, 0.0, worker);
    }
    let (mut items, mut stride) = (millions * 2 * step, 1);
    while items > step {
        // Of those that are left every other goes.
        for i in (stride..2 * millions * step).step_by(2 * stride as usize) {
            delete_one(worker, i);
        }
        (items, stride) = (items.div_ceil(2), 2 * stride);
        let upkeep = upkeep(worker, &mut now, 60_000);
        worst = worst.max(upkeep);
        row(items, upkeep, worker);
        if std::env::var_os("GROWTH_CLASSES").is_some() {
            eprintln!("{:?}\n{:?}", worker.store().totals(), worker.store().classes(now));
        }
    }
    (worst, most)
}

fn main() -> ExitCode {
    let millions: u64 = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(16);
    let (worst, most) = growth(millions);
    let (worst_kept, most_kept) = resident(millions);
    let (worst, most) = (worst.max(worst_kept), most.max(most_kept));
    println!("{worst:.0} µs at most (limit {REQUEST_US_MAX}), {most:.2} bytes at most (limit {BYTES_MAX})");
    if worst <= REQUEST_US_MAX && most <= BYTES_MAX { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
