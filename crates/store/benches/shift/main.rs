//! What a shift of value sizes costs the store, by the bytes written since: no network, no clock, the
//! same at every run.
//!
//! ```text
//! keys of Zipf's law, values of the old size ──▶ twice the memory written ─▶ other keys, of the new size
//!                                                                        └─▶ hit ratio by memories written
//! a fresh store that only sees the new size ──▶ the ratio to be reached
//! ```
//!
//! Beside it what exact LRU and an ideal S3-FIFO of the same bytes do.
//!
//! `cargo bench -p larder-store --bench shift [-- NAME…]`

#[path = "../hitratio/classes.rs"]
mod classes;
#[path = "../hitratio/policies.rs"]
#[allow(dead_code, reason = "not every model is of use here")]
mod policies;

use larder_store::{Attributes, Config, Expect, Lookup, Store};
use policies::{Lru, Policy, S3Fifo};
use std::process::ExitCode;
use std::sync::Arc;

/// When time begins.
const START: u64 = 1_700_000_000_000;
/// Requests that share a batch.
const BATCH: u64 = 32;
/// Keys and values of a phase take so many times the memory.
const WORKING_SETS: f64 = 2.0;
const ZIPF: f64 = 0.9;
const KEY_BYTES: usize = 16;
/// Memories written before the shift, and after it.
const FILLS: f64 = 3.0;
const FILLS_AFTER: f64 = 6.0;
/// Ratios are of stretches in which this share of the memory was written.
const STRETCH: f64 = 0.1;
/// Seconds in which a cold cache is written once with the new values: what a server at half load does.
const FILL_S: f64 = 5.0;

/// Of the final ratio, within [`BACK_STRETCHES_MAX`] (one memory, and two seconds).
const BACK_SHARE: f64 = 0.95;
const BACK_STRETCHES_MAX: usize = 14;
/// The final ratio, of a fresh store's. Two of three shifts end at 0.976 to 0.979 with the window that keys which are asked for
/// once, and later again, need: docs/decisions/0006-what-is-read-late.md, "Shifts of sizes".
const FINAL_SHARE: f64 = 0.975;

struct Shift {
    name: &'static str,
    memory_bytes: u64,
    from: usize,
    to: usize,
}

const SHIFTS: &[Shift] = &[
    Shift { name: "seed", memory_bytes: 64 << 20, from: 1_100, to: 1_400 },
    Shift { name: "small-to-large", memory_bytes: 64 << 20, from: 100, to: 1_000 },
    Shift { name: "large-to-small", memory_bytes: 64 << 20, from: 10_000, to: 100 },
];

/// A cache that is asked, and told what it lacked.
trait Cache {
    /// True if the key was there; else it is stored.
    fn ask(&mut self, id: u64, value_bytes: usize, now: u64) -> bool;
    /// Shows how it is doing.
    fn show(&self, _now: u64) {}
}

struct Built {
    worker: larder_store::Worker,
    requests: u64,
    tick: u64,
    value: Vec<u8>,
}

impl Built {
    fn new(memory_bytes: u64) -> Built {
        let store = Store::new(Config { memory_bytes, workers_max: 1, ..Config::default() }).expect("memory");
        let worker = store.worker().expect("a worker");
        Built { worker, requests: 0, tick: 0, value: vec![7; 16 << 10] }
    }

    fn store(&self) -> &Arc<Store> {
        self.worker.store()
    }
}

impl Cache for Built {
    fn ask(&mut self, id: u64, value_bytes: usize, now: u64) -> bool {
        // A batch for each request, whose time is that of the batch's first: the store sees the same.
        self.requests += 1;
        let mut guard = self.worker.enter(now / BATCH * BATCH);
        if now >= self.tick {
            // As a server's worker does.
            let more = (0..16).all(|_| guard.maintain());
            self.tick = now + if more { 2 } else { 100 };
        }
        let key = format!("{id:016x}");
        let key = guard.key(key.as_bytes());
        let hit = matches!(guard.get(&key), Lookup::Hit(_));
        if !hit {
            guard
                .store_value(&key, &self.value[..value_bytes], &Attributes::default(), Expect::Any)
                .expect("room");
        }
        hit
    }

    fn show(&self, now: u64) {
        if std::env::var_os("SHIFT_CLASSES").is_none() {
            return;
        }
        let totals = self.store().totals();
        eprintln!(
            "  {} items, {} KiB in use, {} KiB of index, {} spans free",
            totals.items,
            totals.used_bytes >> 10,
            totals.index_bytes >> 10,
            totals.spans_free
        );
        let mut all = self.store().classes(now);
        all.retain(|class| class.spans > 2);
        classes::show(&all);
    }
}

impl<P: Policy> Cache for P {
    fn ask(&mut self, id: u64, value_bytes: usize, now: u64) -> bool {
        let hit = self.get(id, now);
        if !hit {
            self.set(id, (KEY_BYTES + value_bytes) as u64, 0);
        }
        hit
    }
}

struct Zipf {
    shares: Vec<f64>,
    state: u64,
}

impl Zipf {
    fn new(keys: usize, seed: u64) -> Zipf {
        let mut sum = 0.0;
        let share = |rank: usize| {
            sum += (rank as f64).powf(-ZIPF);
            sum
        };
        Zipf { shares: (1..=keys).map(share).collect(), state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let unit = ((x ^ x >> 31) >> 11) as f64 / (1u64 << 53) as f64;
        let at = unit * self.shares[self.shares.len() - 1];
        self.shares.partition_point(|&share| share <= at) as u64
    }
}

/// Hit ratios, one for each stretch, until `fills` memories were written.
fn phase(
    cache: &mut impl Cache,
    shift: &Shift,
    size: usize,
    first: u64,
    fills: f64,
    now: &mut f64,
) -> Vec<f64> {
    let item_bytes = (KEY_BYTES + size) as f64;
    let memory = shift.memory_bytes as f64;
    let mut keys = Zipf::new((memory * WORKING_SETS / item_bytes) as usize, first + 1);
    // The same rate in all phases.
    let step = FILL_S * 1000.0 / (memory / (KEY_BYTES + shift.to) as f64) / 2.0;
    let stretch = (memory * STRETCH / item_bytes) as u64;
    let mut ratios = Vec::new();
    for _ in 0..(fills / STRETCH).round() as usize {
        let (mut gets, mut sets) = (0, 0);
        // A cache in which nothing misses any more ends a stretch too.
        while sets < stretch && gets < 20 * stretch {
            *now += step;
            gets += 1;
            sets += u64::from(!cache.ask(first + keys.next(), size, START + *now as u64));
        }
        ratios.push(1.0 - sets as f64 / gets as f64);
        cache.show(START + *now as u64);
    }
    ratios
}

/// The ratios after the shift, and the one to be reached.
fn run<C: Cache>(shift: &Shift, new: impl Fn() -> C) -> (Vec<f64>, f64, C) {
    let mean = |ratios: &[f64]| ratios.iter().sum::<f64>() / ratios.len() as f64;
    let (mut cache, mut now) = (new(), 0.0);
    phase(&mut cache, shift, shift.to, 1 << 40, FILLS, &mut now);
    let last = phase(&mut cache, shift, shift.to, 1 << 40, 1.0, &mut now);
    let fresh = mean(&last);
    let (mut cache, mut now) = (new(), 0.0);
    phase(&mut cache, shift, shift.from, 1 << 50, FILLS, &mut now);
    let after = phase(&mut cache, shift, shift.to, 1 << 40, FILLS_AFTER, &mut now);
    (after, fresh, cache)
}

/// Stretches written until the ratio was `goal`.
fn back(ratios: &[f64], goal: f64) -> Option<usize> {
    ratios.iter().position(|&ratio| ratio >= goal)
}

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut missed = Vec::new();
    for shift in SHIFTS.iter().filter(|s| wanted.is_empty() || wanted.iter().any(|name| name == s.name)) {
        println!("{}: {} MiB, {} B, then {} B", shift.name, shift.memory_bytes >> 20, shift.from, shift.to);
        let mut row = |name: &str, ratios: &[f64], fresh: f64, judged: bool| {
            let end = ratios[ratios.len() - 10..].iter().sum::<f64>() / 10.0;
            // Of its own final ratio, which in turn has to be that of a fresh store.
            let back = back(ratios, BACK_SHARE * end);
            let at = |fills: f64| ratios[(fills / STRETCH).round() as usize];
            println!(
                "  {name:10} fresh {fresh:.4}  after 0 {:.3}  0.5 {:.3}  1 {:.3}  1.4 {:.3}  2 {:.3}  3 {:.3}  end \
                 {:.3} of fresh; back after {} memories",
                at(0.0),
                at(0.5),
                at(1.0),
                at(1.4),
                at(2.0),
                at(3.0),
                end / fresh,
                back.map_or("more".to_owned(), |stretch| format!("{:.1}", stretch as f64 * STRETCH))
            );
            if judged
                && (end < FINAL_SHARE * fresh || back.is_none_or(|stretch| stretch > BACK_STRETCHES_MAX))
            {
                missed.push(shift.name);
            }
        };
        let (ratios, fresh, built) = run(shift, || Built::new(shift.memory_bytes));
        row("store", &ratios, fresh, true);
        let store = Arc::clone(built.store());
        drop(built);
        store.check();
        if std::env::var_os("SHIFT_STORE").is_some() {
            continue;
        }
        // What the store holds of keys and values, as far as that is known: its own share is small.
        let bytes = shift.memory_bytes * 9 / 10;
        let (ratios, fresh, _) = run(shift, || S3Fifo::new(bytes));
        row("S3-FIFO", &ratios, fresh, false);
        let (ratios, fresh, _) = run(shift, || Lru::new(bytes));
        row("LRU", &ratios, fresh, false);
    }
    println!(
        "beyond {BACK_STRETCHES_MAX} stretches of {STRETCH} memories, or below {FINAL_SHARE} of fresh: {missed:?}"
    );
    if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
