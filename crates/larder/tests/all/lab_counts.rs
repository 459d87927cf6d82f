//! The generator beside Larder: for all kinds of requests, in every protocol, both count the same. Values
//! that were stored by one protocol are verified by another.

use larder_lab::Protocol;
use larder_lab::books::Books;
use larder_lab::connection::Check;
use larder_lab::experiment::Checks;
use larder_lab::fill::prepare;
use larder_lab::generator::{Arrivals, Load, Stop};
use larder_lab::keys::{Choice, Keyspace};
use larder_lab::peers::{Kind, Server, Spec};
use larder_lab::sizes::Sizes;
use larder_lab::tally::Tally;
use larder_lab::workload::{Mix, Verb, Workload};
use std::time::Duration;

fn start(kind: Kind) -> Server {
    let program = Some(env!("CARGO_BIN_EXE_larder").into());
    Server::start(&Spec { kind, program, memory_mb: 128, threads: 2, core: None, null: None }).unwrap()
}

/// Each protocol with the server that speaks it.
const WAYS: [(Protocol, Kind); 3] =
    [(Protocol::Classic, Kind::Larder), (Protocol::Meta, Kind::Larder), (Protocol::Resp, Kind::LarderRedis)];

fn mixed(protocol: Protocol, ttl_s: u32) -> Workload {
    Workload {
        mix: Mix::of(&[(Verb::Get, 6), (Verb::Set, 2), (Verb::Delete, 1), (Verb::Incr, 1), (Verb::Cas, 2)]),
        sizes: Some(Sizes::Weighted(vec![(30, 5.0), (500, 2.0), (20_000, 0.1)])),
        ttl_s,
        choice: Choice::Zipf(0.9),
        connections: 7,
        pipeline: 11,
        ..Workload::new(protocol, Verb::Get, Keyspace::new(500, 100))
    }
}

/// Checks that both sides have counted the same during `run`, and that every reply was right.
fn compared(server: &Server, workload: &Workload, run: impl FnOnce(&mut Load) -> Tally) -> Tally {
    prepare(&server.control.address, workload, &[None]).unwrap();
    let books = Books::open(&server.control).unwrap();
    let mut load =
        Load::connect(&server.control.address, workload, workload.scripts(1), &[None, None]).unwrap();
    let tally = run(&mut load);
    let mut checks = Checks::default();
    books.compare(&mut checks, "larder", &tally).unwrap();
    let list = checks.list();
    assert!(list.len() >= 3 && list.iter().all(|check| check.passed), "{workload:?}: {list:?}");
    tally
}

#[test]
fn a_mix_of_everything_is_verified_and_counted_as_larder_counts_it() {
    for (protocol, kind) in WAYS {
        let server = start(kind);
        for ttl_s in [0, 3600] {
            let workload = mixed(protocol, ttl_s);
            let tally = compared(&server, &workload, |load| {
                let mut tally = load.run(Check::Verify, Stop::Once).unwrap();
                tally.merge(load.run(Check::Parse, Stop::Once).unwrap());
                tally
            });
            assert!(tally.hits > 1000 && tally.stored > 1000, "{protocol:?}: {tally:?}");
            assert!(tally.deleted > 100 && tally.counted > 100 && tally.absent > 10, "{tally:?}");
            assert!(tally.swapped > 100, "{protocol:?}: {tally:?}");
            // A transaction counts as one request, and no other request of its connection comes between its
            // commands: so it has no conflicts.
            assert_eq!(tally.conflicts > 0, protocol != Protocol::Resp, "{tally:?}");
        }
    }
}

#[test]
fn swaps_alone_all_happen_also_in_an_open_loop_whose_windows_overlap() {
    for (protocol, kind) in WAYS {
        let server = start(kind);
        let workload = Workload {
            mix: Verb::Cas.into(),
            connections: 4,
            ..Workload::new(protocol, Verb::Cas, Keyspace::new(1000, 100))
        };
        let closed = compared(&server, &workload, |load| load.run(Check::Verify, Stop::Once).unwrap());
        assert!(closed.swaps > 10_000 && closed.swapped == closed.swaps, "{protocol:?}: {closed:?}");
        let open = compared(&server, &workload, |load| {
            let arrivals = Arrivals { per_s: 4000.0, poisson: true, seed: 1 };
            // The load has as many requests as are due in half a second, however late they are sent.
            load.limit(2000);
            load.run_open(Check::Verify, arrivals, Duration::from_secs(600)).unwrap()
        });
        // A write that is sent before the reply to its read carries an old token, and is refused.
        assert_eq!(open.swaps, open.swapped + open.conflicts, "{protocol:?}: {open:?}");
        assert!(open.swapped > 0, "{protocol:?}: {open:?}");
    }
}
