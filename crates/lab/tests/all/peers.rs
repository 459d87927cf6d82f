//! The generator against real servers: both count the same.
//!
//! These tests need the servers of Debian's packages memcached and redis-server, and run where those are
//! installed: `cargo test -p larder-lab --test all peers:: -- --ignored`.

use std::time::Duration;

use larder_lab::Protocol;
use larder_lab::connection::Check;
use larder_lab::fill::{fill, prepare};
use larder_lab::generator::{Load, Stop};
use larder_lab::keys::{Choice, Keyspace};
use larder_lab::peers::{Kind, Server, Spec};
use larder_lab::sizes::Sizes;
use larder_lab::tally::Tally;
use larder_lab::usage::{self, Usage};
use larder_lab::workload::{Mix, Verb, Workload};

fn start(kind: Kind) -> Server {
    let spec = Spec { kind, program: None, memory_mb: 128, threads: 1, core: Some(0), null: None };
    Server::start(&spec).unwrap()
}

fn run(server: &Server, workload: &Workload) -> u64 {
    let mut load =
        Load::connect(&server.control.address, workload, workload.scripts(1), &[None, None]).unwrap();
    let tally = load.run(Check::Verify, Stop::Once).unwrap();
    assert_eq!((tally.wrong, tally.first_wrong), (0, None), "{workload:?}");
    tally.keys
}

fn workload(protocol: Protocol, verb: Verb, value_bytes: usize) -> Workload {
    Workload {
        choice: Choice::Zipf(0.9),
        connections: 7,
        pipeline: 11,
        ..Workload::new(protocol, verb, Keyspace::new(500, value_bytes))
    }
}

#[test]
#[ignore = "peers: memcached"]
fn counts_equal_memcacheds_own() {
    let server = start(Kind::Memcached);
    assert!(server.version.starts_with("1."), "{}", server.version);
    assert!(server.settings.iter().any(|(name, value)| name == "num_threads" && value == "1"));
    for value_bytes in [32, 4 << 10] {
        let keyspace = workload(Protocol::Classic, Verb::Set, value_bytes).keyspace;
        let mut sets = fill(&server.control.address, Protocol::Classic, keyspace, &[None]).unwrap().stored;
        assert_eq!(server.control.counter("curr_items"), Some(500));
        let (mut hits, mut misses) = (0, 0);
        let before = |name| server.control.counter(name).unwrap();
        let (sets_before, hits_before) = (before("cmd_set") - sets, before("get_hits"));
        let misses_before = before("get_misses");
        for protocol in [Protocol::Classic, Protocol::Meta] {
            sets += run(&server, &workload(protocol, Verb::Set, value_bytes));
            hits += run(&server, &workload(protocol, Verb::Hit, value_bytes));
            misses += run(&server, &workload(protocol, Verb::Miss, value_bytes));
        }
        let multi = Workload { keys_per_request: 13, ..workload(Protocol::Classic, Verb::Hit, value_bytes) };
        hits += run(&server, &multi);
        let after = (before("cmd_set"), before("get_hits"), before("get_misses"));
        assert_eq!(after, (sets_before + sets, hits_before + hits, misses_before + misses));
    }
    assert!(usage::rss_bytes(server.pid()).unwrap() > 1 << 20);
    assert!(!Usage::of(server.pid()).unwrap().run.is_zero());
}

#[test]
#[ignore = "peers: redis-server"]
fn counts_equal_rediss_own() {
    let server = start(Kind::Redis);
    assert!(server.settings.iter().any(|(name, value)| name == "appendonly" && value == "no"));
    let keyspace = workload(Protocol::Resp, Verb::Set, 32).keyspace;
    fill(&server.control.address, Protocol::Resp, keyspace, &[None]).unwrap();
    let before = (
        server.control.counter("keyspace_hits").unwrap(),
        server.control.counter("keyspace_misses").unwrap(),
    );
    run(&server, &workload(Protocol::Resp, Verb::Set, 32));
    let mut hits = run(&server, &workload(Protocol::Resp, Verb::Hit, 32));
    hits += run(&server, &Workload { keys_per_request: 13, ..workload(Protocol::Resp, Verb::Hit, 32) });
    let misses = run(&server, &workload(Protocol::Resp, Verb::Miss, 32));
    let after = (
        server.control.counter("keyspace_hits").unwrap(),
        server.control.counter("keyspace_misses").unwrap(),
    );
    assert_eq!(after, (before.0 + hits, before.1 + misses));
}

#[test]
#[ignore = "peers: memcached"]
fn a_dropped_server_is_gone() {
    let server = start(Kind::Memcached);
    let pid = server.pid();
    drop(server);
    assert!(Usage::of(pid).is_err());
}

/// A workload with all kinds of requests: reads, writes, deletes, additions and swaps of keys by Zipf's law.
/// The values have many sizes and a time to live; the requests are pipelined over several connections on two
/// threads.
fn mixed(protocol: Protocol) -> Workload {
    Workload {
        mix: Mix::of(&[(Verb::Get, 6), (Verb::Set, 2), (Verb::Delete, 1), (Verb::Incr, 1), (Verb::Cas, 2)]),
        sizes: Some(Sizes::Weighted(vec![(30, 5.0), (500, 2.0), (20_000, 0.1)])),
        ttl_s: 3600,
        ..workload(protocol, Verb::Get, 100)
    }
}

fn run_mixed(server: &Server, workload: &Workload) -> Tally {
    prepare(&server.control.address, workload, &[None]).unwrap();
    let mut load =
        Load::connect(&server.control.address, workload, workload.scripts(1), &[None, None]).unwrap();
    let mut total = Tally::default();
    for stop in [Stop::Once, Stop::After(Duration::from_millis(200))] {
        let tally = load.run(Check::Verify, stop).unwrap();
        assert_eq!((tally.wrong, tally.first_wrong.clone()), (0, None), "{workload:?}");
        total.merge(tally);
    }
    total
}

#[test]
#[ignore = "peers: memcached"]
fn a_mix_is_verified_and_counted_as_memcached_counts_it() {
    let server = start(Kind::Memcached);
    for protocol in [Protocol::Classic, Protocol::Meta] {
        let before = server.control.counters().unwrap();
        let workload = mixed(protocol);
        let tally = run_mixed(&server, &workload);
        let after = server.control.counters().unwrap();
        let grown = |name| after.number(name).unwrap() - before.number(name).unwrap();
        let fill = 2 * u64::from(workload.keyspace.count);
        assert_eq!(grown("cmd_set"), tally.stored + tally.swaps + fill);
        assert_eq!((grown("get_hits"), grown("incr_hits")), (tally.hits, tally.counted));
        assert_eq!(grown("delete_hits"), tally.deleted);
        assert_eq!(grown("get_misses"), tally.misses);
        assert_eq!((grown("cas_hits"), grown("cas_badval")), (tally.swapped, tally.conflicts));
        assert!(tally.swapped > 100 && tally.conflicts > 100, "{tally:?}");
        let absent = grown("delete_misses") + grown("incr_misses") + grown("cas_misses");
        assert_eq!(absent, tally.absent);
    }
}

#[test]
#[ignore = "peers: redis-server"]
fn a_mix_is_verified_and_counted_as_redis_counts_it() {
    let server = start(Kind::Redis);
    let workload = mixed(Protocol::Resp);
    let tally = run_mixed(&server, &workload);
    let counters = server.control.counters().unwrap();
    let fill = 2 * u64::from(workload.keyspace.count);
    let sets = tally.stored + tally.swapped + fill;
    let calls = |command| counters.calls(command).unwrap();
    assert_eq!((calls("set"), calls("incr")), (sets, tally.counted));
    assert_eq!((calls("exec"), calls("watch")), (tally.swaps, tally.swaps));
    assert!(tally.swapped > 100 && tally.swapped == tally.swaps);
    assert_eq!(calls("get"), tally.hits + tally.misses);
    assert_eq!(calls("del"), tally.deleted + tally.absent);
}
