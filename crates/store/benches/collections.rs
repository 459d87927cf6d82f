//! Hashes, sets, lists and sorted sets at every size: bytes an element takes above its strings, what reading and writing one
//! costs, and the longest that one write takes of its thread's CPU while a collection of each type grows.
//!
//! Bytes are those of all chunks of the collection, and what its classes have allocated for them. Names and values are
//! eight bytes each, names in an order that says nothing. Everything is one thread's.
//!
//! `cargo bench -p larder-store --bench collections [-- MILLIONS]`, or `-- commands`: what a new element takes of a command that
//! has many; or `-- loads`: what it takes to make collections over several batches; or `-- streams`: the same of entries of
//! streams, and of what is pending. `cargo xtask bench collections` asks for ten million elements, and for streams: both fail
//! where a bound is missed.

use larder_store::{
    Adding, Attributes, BulkLoad, Config, Copied, End, Eviction, Expect, Guard, Key, Made, NewFields, NewId,
    ScoreRule, Start, Store, StreamId, Trim, TrimTo, Type, Worker,
};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;
/// The longest that one write may take, each one's shortest of some rounds.
const WRITE_US_MAX: f64 = 20.0;
/// Bytes above strings that an element may take in a large collection.
const HASH_BYTES_MAX: f64 = 6.0;
const SET_BYTES_MAX: f64 = 4.0;
const LIST_BYTES_MAX: f64 = 4.0;
/// Of a sorted set above its members and 8 bytes for each score, where scores are whole numbers, and where they are any.
const SORTED_BYTES_MAX: [f64; 2] = [8.0, 16.0];
/// Bytes of an entry of one field with a value of eight bytes, all of it.
const ENTRY_BYTES_MAX: f64 = 15.0;
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

/// A row of the table of streams: one field of eight bytes with a value of eight, an entry each seven milliseconds. The bytes
/// of an entry, all of them.
fn stream_row(entries: u64) -> f64 {
    let (store, mut worker) = store(64 + entries / 12_000);
    let before = bytes_of(&store);
    let used = |worker: &mut Worker, store: &Store| {
        let mut guard = worker.enter(NOW);
        while guard.maintain() {}
        (bytes_of(store) - before) as f64
    };
    let mut fields = NewFields::default();
    let mut add = |guard: &mut Guard<'_>, n: u64, trim: Option<Trim>| {
        let (key, value) = (guard.key(b"stream"), name(n));
        fields.set([(&b"in-place"[..], &value[..])].into_iter()).expect("it is short");
        let id = NewId::In(NOW + 7 * n);
        let adding =
            Adding { id, now: NOW, fields: &fields, apart: &[], present: false, trim, at_once: true };
        guard.stream_add(&key, &adding).expect("there is memory");
    };
    let started = cpu_ns();
    batches(&mut worker, 0..entries, |guard, n| add(guard, n, None));
    let add_ns = (cpu_ns() - started) / entries as f64;
    let bytes = used(&mut worker, &store) / entries as f64;
    let started = cpu_ns();
    batches(&mut worker, 0..RUN, |guard, n| {
        let key = guard.key(b"stream");
        let there = guard.collection(&key, Type::Stream).expect("its type").expect("it is there");
        let ms = NOW + 7 * (n * 2_654_435_761 % entries);
        let stream = there.stream().expect("a stream");
        assert!(stream.entries(stream.places(StreamId { ms, seq: 0 }, StreamId::MAX)).next().is_some());
    });
    let find_ns = (cpu_ns() - started) / RUN as f64;
    let read_started = cpu_ns();
    let groups = {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"stream");
        guard.group_create(&key, b"group", Start::Behind(StreamId::MIN), None, false).expect("memory");
        entries.min(RUN)
    };
    batches(&mut worker, 0..groups, |guard, _| {
        let key = guard.key(b"stream");
        let done = guard.group_read(&key, (b"group", b"consumer"), NOW, 1, true).expect("memory");
        assert_eq!(done.count, 1);
    });
    let deliver_ns = (cpu_ns() - read_started) / groups as f64;
    let pending = (used(&mut worker, &store) - bytes * entries as f64) / groups as f64;
    let started = cpu_ns();
    batches(&mut worker, 0..groups, |guard, n| {
        let key = guard.key(b"stream");
        let id = StreamId { ms: NOW + 7 * n, seq: 0 };
        assert_eq!(guard.group_ack(&key, b"group", std::iter::once(id)), Ok(1));
    });
    let ack_ns = (cpu_ns() - started) / groups as f64;
    let keeps = Some(Trim { to: TrimTo::Len(entries), about: true, limit: None });
    let started = cpu_ns();
    batches(&mut worker, entries..entries + RUN, |guard, n| add(guard, n, keeps));
    let turn_ns = (cpu_ns() - started) / RUN as f64;
    println!(
        "{entries:>9} {bytes:>7.1} {pending:>8.1} {add_ns:>6.0} {turn_ns:>9.0} {find_ns:>6.0} {deliver_ns:>8.0} {ack_ns:>6.0}"
    );
    bytes
}

/// Calls `each` in batches of 16.
fn batches(worker: &mut Worker, range: Range<u64>, mut each: impl FnMut(&mut Guard<'_>, u64)) {
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

/// A number in no order.
fn drawn(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 24
}

/// A whole number below ten million, or any number.
fn score(random: &mut u64, whole: bool) -> f64 {
    let number = drawn(random);
    if whole { (number % 10_000_000) as f64 } else { number as f64 / 1e9 }
}

/// A row of the table of sorted sets; the bytes above members and 8 bytes for each score.
fn sorted_row(elements: u64, whole: bool) -> f64 {
    let (store, mut worker) = store(64 + elements / 9_000);
    let copies = (20_000 / elements).max(1);
    let before = bytes_of(&store);
    let names: Vec<[u8; 8]> = (0..copies).map(|n| (n << 8).to_be_bytes()).collect();
    let mut random = 1_u64;
    let all = copies * elements;
    let add = |guard: &mut Guard<'_>, n: u64, score: f64| {
        let (key, member) = (guard.key(&names[(n % copies) as usize]), name(n / copies));
        let pair = std::iter::once((score, &member[..]));
        guard.sorted_add(&key, ScoreRule::default(), pair).expect("there is memory")
    };
    let bytes_now = |worker: &mut Worker| {
        let mut guard = worker.enter(NOW);
        while guard.maintain() {}
        (bytes_of(&store) - before) as f64 / all as f64 - 16.0
    };
    let started = cpu_ns();
    batches(&mut worker, 0..all, |guard, n| {
        add(guard, n, score(&mut random, whole));
    });
    let insert_ns = (cpu_ns() - started) / all as f64;
    let bytes = bytes_now(&mut worker);
    let [mut read_ns, mut rank_ns, mut write_ns] = [f64::MAX; 3];
    for _ in 0..ROUNDS {
        let started = cpu_ns();
        batches(&mut worker, 0..RUN, |guard, _| {
            let n = drawn(&mut random) % all;
            let key = guard.key(&names[(n % copies) as usize]);
            let there = guard.collection(&key, Type::SortedSet).expect("its type").expect("it is there");
            assert!(there.score(&name(n / copies)).is_some());
        });
        read_ns = read_ns.min((cpu_ns() - started) / RUN as f64);
        let started = cpu_ns();
        batches(&mut worker, 0..RUN, |guard, _| {
            let n = drawn(&mut random) % all;
            let key = guard.key(&names[(n % copies) as usize]);
            let there = guard.collection(&key, Type::SortedSet).expect("its type").expect("it is there");
            let score = there.score(&name(n / copies)).expect("it is there");
            assert!((there.below(score, false) as u64) < elements);
        });
        rank_ns = rank_ns.min((cpu_ns() - started) / RUN as f64);
        let started = cpu_ns();
        batches(&mut worker, 0..RUN, |guard, _| {
            let n = drawn(&mut random) % all;
            assert_eq!(add(guard, n, score(&mut random, whole)).new, 0);
        });
        write_ns = write_ns.min((cpu_ns() - started) / RUN as f64);
    }
    let rewritten = bytes_now(&mut worker);
    let kind = if whole { "whole" } else { "any" };
    println!(
        "{kind:5} {elements:>9} {bytes:>7.1} {rewritten:>9.1} {insert_ns:>18.0} {read_ns:>7.0} {write_ns:>10.0} {rank_ns:>10.0}"
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

/// Puts an element into a collection that grows: a list has it at its end, a sorted set by a score in no order.
fn grow(guard: &mut Guard<'_>, key: &Key<'_>, kind: Type, n: u64) {
    let member = name(n);
    match kind {
        Type::List => {
            guard.list_push(key, End::Back, [&member[..]].into_iter(), false).expect("there is memory");
        }
        Type::SortedSet => {
            let score = score(&mut n.wrapping_add(1), true);
            let pair = std::iter::once((score, &member[..]));
            guard.sorted_add(key, ScoreRule::default(), pair).expect("there is memory");
        }
        _ => put(guard, key, kind, n, b"in-place"),
    }
}

/// The longest write while a collection grows, in µs, and the longest call and step of taking it out.
fn pauses(kind: Type, elements: u64) -> [f64; 3] {
    let mut least: Vec<f32> = Vec::new();
    let (mut call, mut step) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        let (store, mut worker) = store(64 + elements / 9_000);
        touch_memory(&mut worker, (32 << 20) + elements * 40);
        let mut at = 0;
        batches(&mut worker, 0..elements, |guard, n| {
            let key = guard.key(b"growing");
            let started = cpu_ns();
            grow(guard, &key, kind, n);
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
            let key = guard.key(b"growing");
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

/// ns of an element that is loaded with others, in an order, and the longest step in µs; ns of one that is copied, and the
/// longest step.
fn loads(kind: Type, elements: u64, order: fn(u64, u64) -> u64) -> [f64; 4] {
    const AT_ONCE: u64 = 128;
    let (store, mut worker) = store(512);
    let mut least = [f64::INFINITY; 4];
    for _ in 0..ROUNDS {
        let (mut load, mut loading, mut longest) = (BulkLoad::new(&store, kind), 0.0, 0.0_f64);
        for start in (0..elements).step_by(AT_ONCE as usize) {
            let names: Vec<_> = (start..elements.min(start + AT_ONCE)).map(|n| order(n, elements)).collect();
            let names: Vec<_> = names.into_iter().map(|n| (name(n), n as f64)).collect();
            let value: &[u8] = if kind == Type::Hash { b"in-place" } else { b"" };
            let score = |n: f64| if kind == Type::SortedSet { n } else { 0.0 };
            let made = names.iter().map(|(name, n)| Made { name, value, score: score(*n), expires_at: 0 });
            let started = cpu_ns();
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            guard.load_fill(&mut load, &key, made).expect("there is memory");
            drop(guard);
            let ns = cpu_ns() - started;
            (loading, longest) = (loading + ns, longest.max(ns));
        }
        let mut guard = worker.enter(NOW);
        let (key, other) = (guard.key(b"key"), guard.key(b"other"));
        loop {
            let started = cpu_ns();
            let finished = guard.load_finish(&mut load, &key).expect("there is memory");
            let ns = cpu_ns() - started;
            (loading, longest) = (loading + ns, longest.max(ns));
            if finished {
                break;
            }
        }
        let attributes = Attributes::default();
        guard.load_publish(load, &key, &attributes, Expect::Any).expect("it fits").expect("there is memory");
        let version = guard.peek(&key).hit().expect("it is there").cas();
        let (mut load, mut copying, mut longest_copy) = (BulkLoad::new(&store, kind), 0.0, 0.0_f64);
        loop {
            let started = cpu_ns();
            let copied = guard.load_copy(&mut load, (&key, version), &other).expect("there is memory");
            let ns = cpu_ns() - started;
            (copying, longest_copy) = (copying + ns, longest_copy.max(ns));
            if copied != Copied::More {
                break;
            }
        }
        drop(load);
        drop(guard);
        while worker.enter(NOW).maintain() {}
        let round = [loading / elements as f64, longest / 1e3, copying / elements as f64, longest_copy / 1e3];
        least = std::array::from_fn(|i| least[i].min(round[i]));
    }
    least
}

/// ns of CPU of each new element of commands that have `given` of them, each a batch, on collections that have `elements` before
/// and grow by a quarter, or by one command.
fn command_ns(kind: Type, ascending: bool, elements: u64, given: u64) -> f64 {
    let copies = (100_000 / elements).max(1);
    let all = elements + (elements / 4).next_multiple_of(given);
    let (_store, mut worker) = store(64 + copies * all / 6_000);
    touch_memory(&mut worker, 40 * copies * all);
    let keys: Vec<[u8; 8]> = (0..copies).map(|n| (n << 8).to_be_bytes()).collect();
    let mut random = 1_u64;
    let mut put = |copy: u64, numbers: Range<u64>| {
        let names: Vec<[u8; 8]> = numbers.clone().map(name).collect();
        let scores: Vec<f64> =
            numbers.map(|n| if ascending { n as f64 } else { score(&mut random, true) }).collect();
        let names = names.iter().map(|name| &name[..]);
        let started = cpu_ns();
        let mut guard = worker.enter(NOW);
        let key = guard.key(&keys[copy as usize]);
        let new = match kind {
            Type::Hash => guard.hash_set(&key, names.map(|name| (name, &b"in-place"[..]))),
            Type::Set => guard.set_add(&key, names),
            _ => guard
                .sorted_add(&key, ScoreRule::default(), scores.iter().copied().zip(names))
                .map(|scored| scored.new),
        };
        assert_eq!(new.expect("there is memory"), scores.len());
        drop(guard);
        cpu_ns() - started
    };
    for n in (0..elements).step_by(500) {
        for copy in 0..copies {
            put(copy, n..elements.min(n + 500));
        }
    }
    let mut ns = 0.0;
    for n in (elements..all).step_by(given as usize) {
        for copy in 0..copies {
            ns += put(copy, n..n + given);
        }
    }
    ns / (copies * (all - elements)) as f64
}

fn main() -> ExitCode {
    if std::env::args().any(|arg| arg == "commands") {
        println!("ns of CPU of a new element, of commands that have 1, 10, 100 and 1,000 of them");
        println!("type              elements       1      10     100    1000");
        let kinds = [
            ("hash", Type::Hash, false),
            ("set", Type::Set, false),
            ("zset", Type::SortedSet, false),
            ("zset, ascending", Type::SortedSet, true),
        ];
        for (name, kind, ascending) in kinds {
            for elements in [1_000, 10_000, 100_000, 1_000_000] {
                let [one, ten, hundred, thousand] = [1, 10, 100, 1_000].map(|given| {
                    let rounds = (0..ROUNDS).map(|_| command_ns(kind, ascending, elements, given));
                    rounds.fold(f64::MAX, f64::min)
                });
                println!("{name:15} {elements:>10} {one:>7.0} {ten:>7.0} {hundred:>7.0} {thousand:>7.0}");
            }
        }
        return ExitCode::SUCCESS;
    }
    if std::env::args().any(|arg| arg == "loads") {
        println!(
            "ns of an element that is loaded, the longest step in µs; of one that is copied, the longest step"
        );
        type Order = fn(u64, u64) -> u64;
        let orders: [(&str, Order); 3] = [
            ("ascending", |n, _| n),
            ("descending", |n, count| count - 1 - n),
            ("any", |n, count| n * 7919 % count),
        ];
        for kind in [Type::Hash, Type::Set, Type::List, Type::SortedSet] {
            for (name, order) in orders {
                let [load, step, copy, copy_step] = loads(kind, 1_000_000, order);
                println!("{kind:?} {name:10} {load:8.0} {step:8.1} {copy:8.1} {copy_step:8.1}");
            }
        }
        return ExitCode::SUCCESS;
    }
    if std::env::args().any(|arg| arg == "streams") {
        println!(
            "bytes of an entry, of a pending one; ns of CPU for one that is put, put and one trimmed, found, delivered, acknowledged"
        );
        println!("  entries   bytes  pending    add  add+trim   find  deliver    ack");
        let bytes = [100, 1_000, 10_000, 100_000, 1_000_000].map(stream_row);
        let worst = bytes[2..].iter().copied().fold(0.0, f64::max);
        return if worst <= ENTRY_BYTES_MAX { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
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
    println!(
        "sorted set: a member is added, its score is read, it is given another, it is ranked by its score"
    );
    let sorted = [true, false].map(|whole| {
        let rows = [10, 100, 300, 1_000, 10_000, 100_000, most].map(|elements| sorted_row(elements, whole));
        rows[2..].iter().copied().fold(f64::MIN, f64::max)
    });
    let mut write = 0.0_f64;
    for kind in [Type::Hash, Type::Set, Type::List, Type::SortedSet] {
        let [longest, call, step] = pauses(kind, most);
        println!(
            "{kind:?}: longest write while it grows to {most}: {longest:.1} µs; its deletion: {call:.1} µs, then steps of {step:.1} µs at most"
        );
        write = write.max(longest);
    }
    let bounds = [
        ("bytes of a hash", worst[0], HASH_BYTES_MAX * 1.3),
        ("bytes of a set", worst[1], SET_BYTES_MAX * 1.3),
        ("bytes of a list", list, LIST_BYTES_MAX * 1.3),
        ("bytes of a sorted set, whole scores", sorted[0], SORTED_BYTES_MAX[0]),
        ("bytes of a sorted set, any scores", sorted[1], SORTED_BYTES_MAX[1]),
        ("µs of the longest write", write, WRITE_US_MAX),
    ];
    let missed: Vec<_> = bounds.iter().filter(|(_, is, max)| is > max).collect();
    for (what, is, max) in &missed {
        println!("missed: {what} {is:.1}, at most {max:.1}");
    }
    if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
