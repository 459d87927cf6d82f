//! Full caches that are hard on their allocator: the share of memory that keys and values have, and the
//! longest that a `set` takes of its thread's CPU time.
//!
//! ```text
//! fill: twice the memory ─▶ measured: once the memory
//! ```
//!
//! Everything is done several times over, the same at each, and what counts of a request is its shortest
//! time: what interrupts a thread is now here and now there.
//!
//! `cargo bench -p larder-store --bench pauses [-- NAME…]`

use larder_store::{Attributes, Config, Expect, Store, Worker};
use std::process::ExitCode;

const NOW: u64 = 1_700_000_000_000;
const KEY_BYTES: usize = 16;
const ROUNDS: usize = 3;
/// The longest that a request may take.
const REQUEST_US_MAX: f64 = 1000.0;

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

/// One round: what each `set` took, and the bytes of keys and values held, and the classes.
fn round(stream: &Stream) -> (Vec<f32>, u64, usize) {
    let memory = stream.memory_mb << 20;
    let store = Store::new(Config { memory_bytes: memory, workers_max: 1, ..Config::default() });
    let mut worker: Worker = store.expect("memory").worker().expect("a worker");
    let (mut random, value) = (Random(7), vec![7; 4096]);
    let (mut now_us, mut name, mut written) = (NOW * 1000, 0u64, 0);
    let mut took = Vec::new();
    let mut tick = 0;
    while written < 3 * memory {
        if written >= 2 * memory && took.is_empty() {
            now_us += stream.pause_ms * 1000;
        }
        now_us += stream.pace_us;
        let now = now_us / 1000;
        // Upkeep as a server's worker takes it.
        if now >= tick {
            let more = (0..16).all(|_| worker.enter(now).maintain());
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
            took.push((cpu_us() - before) as f32);
        }
        written += (bytes + KEY_BYTES) as u64;
    }
    let classes = worker.store().classes(now_us / 1000);
    // Headers are not keys and values.
    let payload = classes.iter().map(|class| class.requested_bytes - 8 * class.items).sum();
    (took, payload, classes.len())
}

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut missed = false;
    println!(
        "{:24} {:>6} {:>8} {:>10} {:>9} {:>9}",
        "", "MB", "classes", "payload, %", "99.99, µs", "most, µs"
    );
    for stream in STREAMS.iter().filter(|s| wanted.is_empty() || wanted.iter().any(|name| name == s.name)) {
        let (mut least, payload, classes) = round(stream);
        for _ in 1..ROUNDS {
            let (took, ..) = round(stream);
            least.iter_mut().zip(took).for_each(|(least, took)| *least = least.min(took));
        }
        least.sort_by(f32::total_cmp);
        let most = f64::from(least[least.len() - 1]);
        let high = least[least.len() - 1 - least.len() / 10_000];
        let share = payload as f64 / (stream.memory_mb << 20) as f64 * 100.0;
        println!("{:24} {:6} {classes:8} {share:10.1} {high:9.0} {most:9.0}", stream.name, stream.memory_mb);
        missed |= most > REQUEST_US_MAX;
    }
    println!("limit {REQUEST_US_MAX} µs");
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
