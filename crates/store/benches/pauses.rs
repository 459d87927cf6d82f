//! Full caches that are hard on their allocator: the share of memory that keys and values have, and the
//! longest that a `set`, and a step of upkeep between them, takes of its thread's CPU time.
//!
//! ```text
//! fill: twice the memory ─▶ measured: once the memory
//! ```
//!
//! Everything is done several times over, the same at each, and what counts of a request or a step is its
//! shortest time: what interrupts a thread is now here and now there.
//!
//! `cargo bench -p larder-store --bench pauses [-- NAME…]`

use larder_store::{Attributes, Config, Expect, Store, Worker};
use std::process::ExitCode;

const NOW: u64 = 1_700_000_000_000;
const KEY_BYTES: usize = 16;
const ROUNDS: usize = 3;
/// The longest that a request may take.
const REQUEST_US_MAX: f64 = 1000.0;
/// The longest that a step of upkeep may take: a request may wait for it. It is some 100 µs by the accesses that are counted
/// (`tests/schedules/upkeep.rs`), and as much again where memory goes back to the system.
const STEP_US_MAX: f64 = 200.0;
/// Steps of upkeep in a row.
const STEPS: usize = 16;

/// What is written.
struct Stream {
    name: &'static str,
    memory_mb: u64,
    /// One in this many values is of any size; the others are of one.
    rare: u64,
    /// Lifetimes in ms, at random up to this; 0: none.
    lifetime_ms: u64,
    /// Time between two requests of the measurement, in µs.
    pace_us: u64,
    /// Time passes between filling and measuring.
    pause_ms: u64,
}

const fn of_sizes(name: &'static str, memory_mb: u64, rare: u64) -> Stream {
    Stream { name, memory_mb, rare, lifetime_ms: 0, pace_us: 1, pause_ms: 0 }
}

const STREAMS: &[Stream] = &[
    of_sizes("all sizes", 16, 1),
    of_sizes("all sizes", 64, 1),
    of_sizes("all sizes", 1024, 1),
    of_sizes("one size and rare ones", 16, 100),
    of_sizes("one size and rare ones", 64, 100),
    of_sizes("one size and rare ones", 1024, 100),
    Stream { lifetime_ms: 2_000, pace_us: 10, ..of_sizes("lifetimes", 64, 1) },
    Stream { lifetime_ms: 1_000, pause_ms: 2_000, ..of_sizes("all expired", 64, 1) },
    Stream { lifetime_ms: 1_000, pause_ms: 500, ..of_sizes("half expired", 64, 1) },
    Stream { lifetime_ms: 1_000, pause_ms: 500, ..of_sizes("half expired", 1024, 1) },
];

fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// As many of 16 to 32 bytes as of 2,048 to 4,096: some 80 classes.
    fn size(&mut self) -> usize {
        let least = 16 << self.below(8);
        (least + self.below(least)) as usize
    }
}

/// What came of a round.
struct Round {
    /// What each `set` took.
    sets: Vec<f32>,
    /// What each step of upkeep took, also while the store was filled.
    steps: Vec<f32>,
    /// Bytes of keys and values held, and the classes.
    payload: u64,
    classes: usize,
}

/// One round.
fn round(stream: &Stream) -> Round {
    let memory = stream.memory_mb << 20;
    let store = Store::new(Config { memory_bytes: memory, workers_max: 1, ..Config::default() });
    let mut worker: Worker = store.expect("memory").worker().expect("a worker");
    let (mut random, value) = (Random(7), vec![7; 4096]);
    let (mut now_us, mut name, mut written) = (NOW * 1000, 0u64, 0);
    let (mut sets, mut steps) = (Vec::new(), Vec::new());
    let mut tick = 0;
    while written < 3 * memory {
        if written >= 2 * memory && sets.is_empty() {
            now_us += stream.pause_ms * 1000;
        }
        now_us += stream.pace_us;
        let now = now_us / 1000;
        // Upkeep as a server's worker takes it.
        if now >= tick {
            let more = (0..STEPS).all(|_| {
                let before = cpu_us();
                let more = worker.enter(now).maintain();
                steps.push((cpu_us() - before) as f32);
                more
            });
            tick = now + if more { 2 } else { 100 };
        }
        let bytes = if random.below(stream.rare) == 0 { random.size() } else { 22 };
        let expires_at = match stream.lifetime_ms {
            0 => 0,
            longest => now + 1 + random.below(longest),
        };
        name += 1;
        let key = format!("key-{name:012}");
        let before = cpu_us();
        {
            let mut guard = worker.enter(now);
            let key = guard.key(key.as_bytes());
            let attributes = Attributes { expires_at, ..Attributes::default() };
            guard.store_value(&key, &value[..bytes], &attributes, Expect::Any).expect("room is made");
        }
        if written >= 2 * memory {
            sets.push((cpu_us() - before) as f32);
        }
        written += (bytes + KEY_BYTES) as u64;
    }
    let classes = worker.store().classes(now_us / 1000);
    // Headers are not keys and values.
    let payload = classes.iter().map(|class| class.requested_bytes - 8 * class.items).sum();
    Round { sets, steps, payload, classes: classes.len() }
}

/// Of each the shorter time.
fn shorten(least: &mut [f32], others: &[f32]) {
    least.iter_mut().zip(others).for_each(|(least, other)| *least = least.min(*other));
}

/// The longest of them, and the longest but one in ten thousand.
fn longest(times: &mut [f32]) -> (f64, f64) {
    times.sort_by(f32::total_cmp);
    let last = times.len() - 1;
    (f64::from(times[last]), f64::from(times[last - times.len() / 10_000]))
}

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut missed = false;
    println!(
        "{:24} {:>6} {:>8} {:>10} {:>9} {:>9} {:>10} {:>9}",
        "", "MB", "classes", "payload, %", "99.99, µs", "most, µs", "upkeep, µs", "most, µs"
    );
    for stream in STREAMS.iter().filter(|s| wanted.is_empty() || wanted.iter().any(|name| name == s.name)) {
        let Round { mut sets, mut steps, payload, classes } = round(stream);
        for _ in 1..ROUNDS {
            let other = round(stream);
            shorten(&mut sets, &other.sets);
            shorten(&mut steps, &other.steps);
        }
        let ((most, high), (most_step, high_step)) = (longest(&mut sets), longest(&mut steps));
        let share = payload as f64 / (stream.memory_mb << 20) as f64 * 100.0;
        println!(
            "{:24} {:6} {classes:8} {share:10.1} {high:9.0} {most:9.0} {high_step:10.0} {most_step:9.0}",
            stream.name, stream.memory_mb
        );
        missed |= most > REQUEST_US_MAX || most_step > STEP_US_MAX;
    }
    println!("limits {REQUEST_US_MAX} µs, and {STEP_US_MAX} µs of a step of upkeep");
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
