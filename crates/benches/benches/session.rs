//! Whole sessions without sockets: CPU time per request of 200 pipelined ones over 100,000 keys.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use larder_commands::{Context, Output, RedisSettings, Room, Session, Settings, Shared};
use larder_store::{Config, Store};
use larder_testkit::host::LocalHost;

const KEYS: u64 = 100_000;
const PIPELINE: u64 = 200;
/// Receives prepared ahead, so that keys do not repeat soon.
const RECEIVES: u64 = 500;

/// The `n`th key of a walk that visits all keys in no order a prefetcher could guess.
fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % KEYS
}

fn receives(one: &dyn Fn(u64) -> String) -> Vec<String> {
    (0..RECEIVES).map(|r| (0..PIPELINE).map(|n| one(key(r * PIPELINE + n))).collect()).collect()
}

fn bench(c: &mut Criterion) {
    let memory_bytes = 256 << 20;
    let config =
        Config { memory_bytes, memory_bytes_max: memory_bytes, workers_max: 1, evict: true, seed: 1 };
    let store = Store::new(config).expect("memory for the store");
    let mut worker = store.worker().expect("a worker");
    let shared = Shared::new(Settings::default(), RedisSettings::default());
    let (host, room) = (LocalHost::default(), Room::default());
    let mut out = Output::new(1 << 20);
    let mut session = Session::new();
    let mut run = |input: &str| {
        let guard = worker.enter(1_800_000_000_000);
        let mut cx = Context::new(guard, &host.counters, &shared, &host, &host, &room);
        let progress = session.receive(&mut cx, black_box(input.as_bytes()), &mut out);
        assert_eq!(progress.consumed, input.len());
        black_box(out.contiguous());
        out.clear();
    };
    let value = "v".repeat(32);
    for n in 0..KEYS {
        run(&format!("set key-{n:010} 0 0 32\r\n{value}\r\n"));
    }
    let mut group = c.benchmark_group("session");
    group.throughput(Throughput::Elements(PIPELINE));
    let multi: Vec<String> = (0..RECEIVES)
        .map(|r| {
            let keys = |half: u64| {
                (0..100).map(|n| format!(" key-{:010}", key(r * 200 + half * 100 + n))).collect::<String>()
            };
            format!("get{}\r\nget{}\r\n", keys(0), keys(1))
        })
        .collect();
    for (name, inputs) in [
        ("get", receives(&|n| format!("get key-{n:010}\r\n"))),
        ("get of one key", receives(&|_| format!("get key-{:010}\r\n", 7))),
        ("get of 100 keys", multi),
        ("set", receives(&|n| format!("set key-{n:010} 0 0 32\r\n{value}\r\n"))),
        (
            "get of keys of many lengths",
            receives(&|n| format!("get key-{n:0w$}\r\n", w = 5 + n as usize * 7 % 13)),
        ),
        ("mg v", receives(&|n| format!("mg key-{n:010} v\r\n"))),
        ("ms", receives(&|n| format!("ms key-{n:010} 32\r\n{value}\r\n"))),
        ("touch", receives(&|n| format!("touch key-{n:010} 0\r\n"))),
    ] {
        let mut turn = inputs.iter().cycle();
        group.bench_function(name, |b| b.iter(|| run(turn.next().expect("a cycle has no end"))));
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
