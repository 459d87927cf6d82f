//! The index while the number of items grows and shrinks: the longest that one request takes of its
//! thread's CPU time, and the bytes above key and value at every fill.
//!
//! The arena's memory is touched before, with large values that are deleted again: what the system
//! takes to zero a page is not the index's (a huge page takes 0.1 to 6 ms, depending on the machine). All
//! of it is done several times over, the same at each, and what counts of a request is its shortest time:
//! what interrupts a thread is now here and now there.
//!
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
/// How often everything is done.
const ROUNDS: u32 = 3;
/// Steps of upkeep in a row.
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

/// What each request took, in µs, in the round in which it took least.
#[derive(Default)]
struct Costs {
    least: Vec<f32>,
    /// The next request of this round.
    at: usize,
}

impl Costs {
    fn note(&mut self, us: f64) -> f64 {
        let us = us as f32;
        match self.least.get_mut(self.at) {
            Some(least) => *least = least.min(us),
            None => self.least.push(us),
        }
        self.at += 1;
        f64::from(self.least[self.at - 1])
    }
}

/// Runs `f` on all numbers; the CPU time of the slowest request, with that of a look at the clock.
fn slowest(
    worker: &mut Worker,
    costs: &mut Costs,
    numbers: std::ops::Range<u64>,
    mut f: impl FnMut(&mut Worker, u64),
) -> f64 {
    let mut worst: f64 = 0.0;
    let mut before = cpu_us();
    for n in numbers {
        f(worker, n);
        let now = cpu_us();
        worst = worst.max(costs.note(now - before));
        before = now;
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
fn upkeep(worker: &mut Worker, costs: &mut Costs, now: &mut u64, for_ms: u64) -> f64 {
    let until = *now + for_ms;
    let mut slowest: f64 = 0.0;
    while *now < until {
        *now += 2;
        for step in 0..STEPS {
            let start = cpu_us();
            let more = worker.enter(*now).maintain();
            slowest = slowest.max(costs.note(cpu_us() - start));
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
fn growth(millions: u64, costs: &mut Costs, last: bool) -> (f64, f64) {
    costs.at = 0;
    let mut worker = new_store(millions);
    let worker = &mut worker;
    touch(worker, millions * 72_000_000);
    let (mut worst, mut most): (f64, f64) = (0.0, 0.0);
    if last {
        println!("{:>10} {:>14} {:>10}", "items", "bytes above", "µs at most");
    }
    let step = 500_000;
    for half in 0..2 * millions {
        let us = slowest(worker, costs, half * step..(half + 1) * step, store_one);
        let bytes = bytes_above(worker.store());
        if last {
            println!("{:10} {bytes:14.2} {us:10.0}", (half + 1) * step);
        }
        if half > 0 {
            worst = worst.max(us);
        }
        most = most.max(bytes);
    }
    let mut now = NOW;
    for (from, to) in [(2 * millions, millions), (millions, 2), (2, 1)] {
        let (from, to) = (from.max(to), to.min(from));
        let deleted = slowest(worker, costs, to * step..from * step, delete_one);
        let upkeep = upkeep(worker, costs, &mut now, 330_000);
        let bytes = bytes_above(worker.store());
        if last {
            println!("{:10} {bytes:14.2} {deleted:10.0}   upkeep {upkeep:.0}", to * step);
        }
        worst = worst.max(deleted).max(upkeep);
        most = most.max(bytes);
    }
    (worst, most)
}

/// Resident memory at every fill, and when every other item was deleted, again and again; the most of
/// an item.
fn resident(millions: u64) -> f64 {
    let before = rss_bytes();
    let mut worker = new_store(millions);
    let worker = &mut worker;
    let (mut now, mut most): (u64, f64) = (NOW, 0.0);
    println!("{:>10} {:>14} {:>14}", "items", "resident above", "in use");
    let mut row = |items: u64, worker: &mut Worker| {
        let bytes = (rss_bytes() - before) / items as f64 - (KEY_BYTES as usize + VALUE_BYTES) as f64;
        println!("{items:10} {bytes:14.2} {:14.2}", bytes_above(worker.store()));
        most = most.max(bytes);
    };
    let step = 500_000;
    for half in 0..2 * millions {
        for i in half * step..(half + 1) * step {
            store_one(worker, i);
        }
        row((half + 1) * step, worker);
    }
    let (mut items, mut stride) = (millions * 2 * step, 1);
    while items > step {
        // Of those that are left every other goes.
        for i in (stride..2 * millions * step).step_by(2 * stride as usize) {
            delete_one(worker, i);
        }
        (items, stride) = (items.div_ceil(2), 2 * stride);
        upkeep(worker, &mut Costs { least: vec![0.0], at: 0 }, &mut now, 60_000);
        row(items, worker);
        if std::env::var_os("GROWTH_CLASSES").is_some() {
            eprintln!("{:?}\n{:?}", worker.store().totals(), worker.store().classes(now));
        }
    }
    most
}

fn main() -> ExitCode {
    let millions: u64 = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(16);
    let most_kept = resident(millions);
    let mut costs = Costs::default();
    for _ in 1..ROUNDS {
        growth(millions, &mut costs, false);
    }
    let (worst, most) = growth(millions, &mut costs, true);
    let most = most.max(most_kept);
    println!("{worst:.0} µs at most (limit {REQUEST_US_MAX}), {most:.2} bytes at most (limit {BYTES_MAX})");
    if worst <= REQUEST_US_MAX && most <= BYTES_MAX { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
