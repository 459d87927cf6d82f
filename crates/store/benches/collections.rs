//! Hashes, sets and lists at every size: bytes an element takes above its strings, what reading and writing one costs, and
//! the longest that one write takes of its thread's CPU while a hash grows.
//!
//! Bytes are those of all chunks of the collection, and what its classes have allocated for them. Names and values are
//! eight bytes each, names in an order that says nothing. Everything is one thread's.
//!
//! `cargo bench -p larder-store --bench collections [-- MILLIONS]`

use larder_store::{Attributes, Config, End, Eviction, Expect, Guard, Key, Store, Type, Worker};
use std::process::ExitCode;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;
/// The longest that one write may take, each one's shortest of some rounds.
const WRITE_US_MAX: f64 = 20.0;
/// Bytes above strings that an element may take in a large collection.
const HASH_BYTES_MAX: f64 = 6.0;
const SET_BYTES_MAX: f64 = 4.0;
const LIST_BYTES_MAX: f64 = 4.0;
const ROUNDS: usize = 3;
/// Reads and writes that are measured together.
const RUN: u64 = 1 << 17;

fn cpu_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Of eight bytes, not the text of a number, and without an order.
fn name(n: u64) -> [u8; 8] {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyzABCDEF";
    let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(40) % (1 << 40);
    std::array::from_fn(|i| DIGITS[(mixed >> (5 * i)) as usize % 32])
}

fn store(mebibytes: u64) -> (Arc<Store>, Worker) {
    let config = Config { memory_bytes: mebibytes << 20, workers_max: 1, ..Config::default() };
    let store = Store::new(config).expect("address space");
    store.set_eviction(Eviction::Off);
    let worker = store.worker().expect("a worker");
    (store, worker)
}

/// Bytes of all chunks in use.
fn bytes_of(store: &Store) -> u64 {
    store.classes(NOW).iter().map(|class| class.used_chunks * u64::from(class.chunk_bytes)).sum()
}

fn put(guard: &mut Guard<'_>, key: &Key<'_>, kind: Type, n: u64, value: &[u8]) {
    let name = name(n);
    match kind {
        Type::Hash => guard.hash_set(key, [(&name[..], value)].into_iter()),
        _ => guard.set_add(key, [&name[..]].into_iter()),
    }
    .expect("there is memory");
}

/// Calls `each` in batches of 16.
fn batches(worker: &mut Worker, range: std::ops::Range<u64>, mut each: impl FnMut(&mut Guard<'_>, u64)) {
    let mut n = range.start;
    while n < range.end {
        let mut guard = worker.enter(NOW);
        for n in n..range.end.min(n + 16) {
            each(&mut guard, n);
        }
        n += 16;
    }
}

/// A row of the table; the bytes above strings.
fn row(kind: Type, elements: u64) -> f64 {
    let (store, mut worker) = store(64 + elements / 12_000);
    let strings = if kind == Type::Hash { 16 } else { 8 };
    let copies = (20_000 / elements).max(1);
    let before = bytes_of(&store);
    let names: Vec<[u8; 8]> = (0..copies).map(|n| (n << 8).to_be_bytes()).collect();
    let started = cpu_ns();
    batches(&mut worker, 0..copies * elements, |guard, n| {
        let key = guard.key(&names[(n % copies) as usize]);
        put(guard, &key, kind, n / copies, b"in-place");
    });
    let all = (copies * elements) as f64;
    let insert_ns = (cpu_ns() - started) / all;
    {
        let mut guard = worker.enter(NOW);
        while guard.maintain() {}
    }
    let bytes = (bytes_of(&store) - before) as f64 / all - f64::from(strings);
    let mut random = 1_u64;
    let mut draw = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 24
    };
    let mut read_ns = f64::MAX;
    let mut over_ns = f64::MAX;
    for _ in 0..ROUNDS {
        let started = cpu_ns();
        batches(&mut worker, 0..RUN, |guard, _| {
            let drawn = draw();
            let key = guard.key(&names[(drawn % copies) as usize]);
            let there = guard.collection(&key, kind).expect("its type").expect("it is there");
            assert!(there.has(&name(drawn / copies % elements)));
        });
        read_ns = read_ns.min((cpu_ns() - started) / RUN as f64);
        let started = cpu_ns();
        batches(&mut worker, 0..RUN, |guard, n| {
            let drawn = draw();
            let key = guard.key(&names[(drawn % copies) as usize]);
            let value = name(n);
            match kind {
                Type::Hash => put(guard, &key, kind, drawn / copies % elements, &value),
                // A set is not written to by a member that it has: one goes and comes.
                _ => {
                    let member = name(drawn / copies % elements);
                    guard.remove_named(&key, kind, [&member[..]].into_iter()).expect("memory");
                    guard.set_add(&key, [&member[..]].into_iter()).expect("memory");
                }
            }
        });
        over_ns = over_ns.min((cpu_ns() - started) / RUN as f64);
    }
    let rewritten = {
        let mut guard = worker.enter(NOW);
        while guard.maintain() {}
        (bytes_of(&store) - before) as f64 / all - f64::from(strings)
    };
    batches(&mut worker, 0..copies * elements, |guard, n| {
        if !(n / copies).is_multiple_of(4) {
            let key = guard.key(&names[(n % copies) as usize]);
            guard.remove_named(&key, kind, [&name(n / copies)[..]].into_iter()).expect("memory");
        }
    });
    let left = (copies * elements.div_ceil(4)) as f64;
    let thinned = {
        let mut guard = worker.enter(NOW);
        while guard.maintain() {}
        (bytes_of(&store) - before) as f64 / left - f64::from(strings)
    };
    let kind = if kind == Type::Hash { "hash" } else { "set" };
    println!(
        "{kind:5} {elements:>9} {bytes:>7.1} {rewritten:>9.1} {thinned:>8.1} {insert_ns:>9.0} {read_ns:>7.0} {over_ns:>10.0}"
    );
    bytes
}

/// A row of the table of lists; the bytes above strings.
fn list_row(elements: u64) -> f64 {
    let (store, mut worker) = store(64 + elements / 12_000);
    let copies = (20_000 / elements).max(1);
    let before = bytes_of(&store);
    let names: Vec<[u8; 8]> = (0..copies).map(|n| (n << 8).to_be_bytes()).collect();
    let push = |guard: &mut Guard<'_>, n: u64, end: End| {
        let (key, name) = (guard.key(&names[(n % copies) as usize]), name(n));
        guard.list_push(&key, end, [&name[..]].into_iter(), false).expect("there is memory");
    };
    let all = (copies * elements) as f64;
    let started = cpu_ns();
    batches(&mut worker, 0..copies * elements, |guard, n| push(guard, n, End::Back));
    let insert_ns = (cpu_ns() - started) / all;
    {
        let mut guard = worker.enter(NOW);
        while guard.maintain() {}
    }
    let bytes = (bytes_of(&store) - before) as f64 / all - 8.0;
    let mut random = 1_u64;
    let mut draw = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 24
    };
    let [mut read_ns, mut turn_ns, mut set_ns] = [f64::MAX; 3];
    for _ in 0..ROUNDS {
        let started = cpu_ns();
        batches(&mut worker, 0..RUN, |guard, _| {
            let drawn = draw();
            let key = guard.key(&names[(drawn % copies) as usize]);
            let there = guard.collection(&key, Type::List).expect("its type").expect("it is there");
            assert!(there.entry((drawn / copies % elements) as usize).name.len() == 8);
        });
        read_ns = read_ns.min((cpu_ns() - started) / RUN as f64);
        let started = cpu_ns();
        batches(&mut worker, 0..RUN, |guard, n| {
            push(guard, n, End::Back);
            let key = guard.key(&names[(n % copies) as usize]);
            let popped = guard.list_pop(&key, End::Front, 1).expect("memory").expect("it is there");
            assert_eq!(popped.len(), 1);
        });
        turn_ns = turn_ns.min((cpu_ns() - started) / RUN as f64);
        let started = cpu_ns();
        batches(&mut worker, 0..RUN, |guard, n| {
            let drawn = draw();
            let key = guard.key(&names[(drawn % copies) as usize]);
            let place = (drawn / copies % elements) as usize;
            guard.list_set(&key, &name(n), |_| Some(place)).expect("memory").expect("a list");
        });
        set_ns = set_ns.min((cpu_ns() - started) / RUN as f64);
    }
    println!(
        "list  {elements:>9} {bytes:>7.1} {insert_ns:>27.0} {read_ns:>7.0} {set_ns:>10.0} {turn_ns:>10.0}"
    );
    bytes
}

/// Has the system zero so many bytes of the arena: that is not a collection's time.
fn touch_memory(worker: &mut Worker, bytes: u64) {
    let value = vec![1; 1 << 20];
    for delete in [false, true] {
        batches(worker, 0..bytes >> 20, |guard, n| {
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            if delete {
                guard.delete(&key, Expect::Present).expect("it is there");
            } else {
                guard
                    .store_value(&key, &value, &Attributes::default(), Expect::Any)
                    .expect("there is memory");
            }
        });
    }
}

/// The longest write while a hash grows, in µs, and the longest call and step of taking it out.
fn pauses(elements: u64) -> [f64; 3] {
    let mut least: Vec<f32> = Vec::new();
    let (mut call, mut step) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        let (store, mut worker) = store(64 + elements / 12_000);
        touch_memory(&mut worker, (32 << 20) + elements * 30);
        let mut at = 0;
        batches(&mut worker, 0..elements, |guard, n| {
            let key = guard.key(b"hash");
            let started = cpu_ns();
            put(guard, &key, Type::Hash, n, b"in-place");
            let us = ((cpu_ns() - started) / 1e3) as f32;
            match least.get_mut(at) {
                Some(least) => *least = least.min(us),
                None => least.push(us),
            }
            at += 1;
        });
        let started = cpu_ns();
        {
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"hash");
            guard.delete(&key, Expect::Present).expect("it is there");
        }
        call = call.min((cpu_ns() - started) / 1e3);
        let (mut longest, mut more) = (0.0_f64, true);
        while more {
            let started = cpu_ns();
            more = worker.enter(NOW).maintain();
            longest = longest.max((cpu_ns() - started) / 1e3);
        }
        step = step.min(longest);
        drop(worker);
        store.check();
    }
    [f64::from(least.iter().copied().fold(0.0, f32::max)), call, step]
}

fn main() -> ExitCode {
    let millions = std::env::args().skip(1).find_map(|arg| arg.parse::<f64>().ok()).unwrap_or(1.0);
    let most = (millions * 1e6) as u64;
    println!(
        "bytes an element above its strings; ns of CPU for an insertion, a read, a write of what is there"
    );
    println!("type   elements   bytes rewritten  quarter    insert    read  overwrite");
    let mut worst = [0.0_f64; 2];
    for (i, kind) in [Type::Hash, Type::Set].into_iter().enumerate() {
        for elements in [10, 100, 300, 1_000, 10_000, 100_000, most] {
            let bytes = row(kind, elements);
            if elements >= 300 {
                worst[i] = worst[i].max(bytes);
            }
        }
    }
    println!(
        "list: an element is pushed, read by its place, set there, and one is pushed and one popped at the other end"
    );
    let lists = [10, 100, 300, 1_000, 10_000, 100_000, most].map(list_row);
    let list = lists[2..].iter().copied().fold(0.0, f64::max);
    let [write, call, step] = pauses(most);
    println!(
        "longest write while a hash grows to {most}: {write:.1} µs; its deletion: {call:.1} µs, then steps of {step:.1} µs at most"
    );
    let bound = [
        (worst[0], HASH_BYTES_MAX * 1.3),
        (worst[1], SET_BYTES_MAX * 1.3),
        (list, LIST_BYTES_MAX * 1.3),
        (write, WRITE_US_MAX),
    ];
    if bound.iter().all(|(is, max)| is <= max) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
