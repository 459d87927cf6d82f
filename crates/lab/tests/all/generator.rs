//! The generator against servers whose replies are all known: its counts are exact, and it finds every wrong
//! reply.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use larder_eventloop::port::Port;
use larder_eventloop::socket::Address;
use larder_lab::Protocol;
use larder_lab::canned;
use larder_lab::connection::Check;
use larder_lab::error::Error;
use larder_lab::generator::{Arrivals, Load, Stop};
use larder_lab::keys::{Choice, Keyspace, Prefix};
use larder_lab::null::{Canned, Null};
use larder_lab::route::SocketKind;
use larder_lab::tally::Tally;
use larder_lab::value;
use larder_lab::workload::{Mix, Verb, Workload};

/// Longer than any delay of a machine.
const PATIENCE: Duration = Duration::from_secs(600);

const PROTOCOLS: [Protocol; 3] = [Protocol::Classic, Protocol::Meta, Protocol::Resp];

fn workload(protocol: Protocol, verb: Verb, value_bytes: usize) -> Workload {
    Workload {
        choice: Choice::Sequential,
        pipeline: 2,
        ..Workload::new(protocol, verb, Keyspace::new(2, value_bytes))
    }
}

/// The address of a null server for the workload, which serves until the test process ends.
fn null(workload: &Workload) -> Address {
    let any = Address::Tcp("127.0.0.1:0".parse().unwrap());
    let null = Null::bind(&any, Canned::of(workload)).unwrap();
    let address = null.address().unwrap();
    thread::spawn(move || null.serve());
    address
}

/// A server that accepts one connection, reads all requests and sends `reply`.
fn replying(workload: &Workload, reply: Vec<u8>, close: bool) -> Address {
    let request_bytes: usize = workload.scripts(0).iter().map(|script| script.bytes.len()).sum();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut vec![0; request_bytes]).unwrap();
        // A client that has read enough may have disconnected.
        if stream.write_all(&reply).is_ok() && !close {
            let _ = stream.read(&mut [0]);
        }
    });
    address
}

fn run_once(address: &Address, workload: &Workload, check: Check) -> Result<Tally, Error> {
    Load::connect(address, workload, workload.scripts(0), &[None])?.run(check, Stop::Once)
}

/// The two hits that the sequential workload expects, with the values of `ids`.
fn hits(workload: &Workload, ids: [u32; 2]) -> Vec<u8> {
    let mut reply = Vec::new();
    for (key, id) in ids.into_iter().enumerate() {
        let (mut name, mut bytes) = (Vec::new(), Vec::new());
        workload.keyspace.write(&mut name, Prefix::Present, key as u32);
        value::write(&mut bytes, id, 9, workload.keyspace.value_bytes);
        canned::hits(workload.protocol, &mut reply, &[(name, bytes)]);
    }
    reply
}

#[test]
fn counts_are_exact_for_every_protocol_verb_and_check() {
    for protocol in PROTOCOLS {
        for verb in [Verb::Hit, Verb::Miss, Verb::Set] {
            for keys_per_request in if verb == Verb::Set || protocol == Protocol::Meta { 1..2 } else { 1..4 }
            {
                let workload = Workload {
                    choice: Choice::One,
                    connections: 5,
                    pipeline: 7,
                    keys_per_request,
                    ..workload(protocol, verb, 32)
                };
                let address = null(&workload);
                let scripts = workload.scripts(3);
                let keys: usize = scripts.iter().map(|script| script.keys.len()).sum();
                let mut load = Load::connect(&address, &workload, scripts, &[None, None]).unwrap();
                for check in [Check::Length, Check::Parse, Check::Verify] {
                    let tally = load.run(check, Stop::Once).unwrap();
                    let seen = (tally.hits, tally.misses, tally.stored, tally.wrong);
                    let keys = keys as u64;
                    let expected = match verb {
                        Verb::Hit => (keys, 0, 0, 0),
                        Verb::Miss => (0, keys, 0, 0),
                        Verb::Set => (0, 0, keys, 0),
                        _ => unreachable!("not among those above"),
                    };
                    assert_eq!(seen, expected, "{workload:?} {check:?} {:?}", tally.first_wrong);
                    assert_eq!(tally.requests, keys / keys_per_request as u64);
                    assert_eq!(tally.latency.len(), tally.requests.div_ceil(7));
                }
            }
        }
    }
}

#[test]
fn a_null_server_of_a_mix_is_right_for_every_request() {
    for protocol in PROTOCOLS {
        for mix in ["hit:9,set:1", "hit,miss,get,set,delete,incr,cas", "cas"] {
            let workload = Workload {
                connections: 5,
                pipeline: 7,
                ..Workload::new(protocol, Mix::parse(mix).unwrap(), Keyspace::new(50, 32))
            };
            let null = Null::in_background(&workload, None, SocketKind::Tcp).unwrap();
            let scripts = workload.scripts(3);
            let count = |verbs: &[Verb]| {
                let requests = scripts.iter().flat_map(|script| &script.requests);
                requests.filter(|request| verbs.contains(&request.verb)).count() as u64
            };
            let cas = count(&[Verb::Cas]);
            // In RESP a write with a condition also reads the value.
            let read = if protocol == Protocol::Resp { cas } else { 0 };
            let expected = [
                scripts.iter().map(|script| script.requests.len()).sum::<usize>() as u64,
                count(&[Verb::Hit, Verb::Get, Verb::Gets]) + read,
                count(&[Verb::Miss]),
                count(&[Verb::Set]),
                count(&[Verb::Delete]),
                count(&[Verb::Incr]),
                cas,
            ];
            let mut load = Load::connect(null.address(), &workload, scripts, &[None, None]).unwrap();
            let checks = [Check::Length, Check::Parse];
            for check in &checks[usize::from(!workload.has_known_replies())..] {
                let tally = load.run(*check, Stop::Once).unwrap();
                let Tally { requests, hits, misses, stored, deleted, counted, swapped, .. } = tally;
                assert_eq!(
                    ([requests, hits, misses, stored, deleted, counted, swapped], tally.wrong),
                    (expected, 0),
                    "{protocol:?} {mix} {check:?} {:?}",
                    tally.first_wrong
                );
            }
        }
    }
}

#[test]
fn a_null_server_is_reached_by_a_unix_socket_whose_file_goes_with_it() {
    for mix in ["hit", "hit:1,set:1"] {
        let mix = Mix::parse(mix).unwrap();
        let keyspace = Keyspace::new(50, 32);
        let workload = Workload { connections: 3, ..Workload::new(Protocol::Resp, mix, keyspace) };
        let nulls = [(); 2].map(|()| Null::in_background(&workload, None, SocketKind::Unix).unwrap());
        let paths = nulls.each_ref().map(|null| match null.address() {
            Address::Unix(path) => path.clone(),
            Address::Tcp(address) => panic!("{address} is no Unix socket"),
        });
        assert!(paths[0] != paths[1] && paths.iter().all(|path| path.exists()));
        let scripts = workload.scripts(0);
        let mut load = Load::connect(nulls[0].address(), &workload, scripts, &[None]).unwrap();
        drop(nulls);
        assert!(!paths.iter().any(|path| path.exists()));
        // The connections stay open for another run.
        let tally = load.run(Check::Parse, Stop::Once).unwrap();
        assert_eq!((tally.hits + tally.stored, tally.wrong), (tally.requests, 0));
    }
}

#[test]
fn large_values_of_a_mix_arrive_whole() {
    let mix = Mix::of(&[(Verb::Hit, 1), (Verb::Set, 1)]);
    let workload = Workload {
        connections: 3,
        pipeline: 16,
        ..Workload::new(Protocol::Meta, mix, Keyspace::new(50, 300 << 10))
    };
    let null = Null::in_background(&workload, None, SocketKind::Tcp).unwrap();
    let mut load = Load::connect(null.address(), &workload, workload.scripts(0), &[None]).unwrap();
    for check in [Check::Length, Check::Parse] {
        let tally = load.run(check, Stop::After(Duration::from_millis(20))).unwrap();
        assert!(tally.hits > 0 && tally.stored > 0, "{tally:?}");
        assert_eq!((tally.wrong, tally.keys), (0, tally.hits + tally.stored));
    }
}

#[test]
fn values_larger_than_any_buffer_arrive_whole() {
    for protocol in PROTOCOLS {
        for verb in [Verb::Hit, Verb::Set] {
            let workload = Workload {
                choice: Choice::One,
                connections: 3,
                pipeline: 16,
                ..workload(protocol, verb, 300 << 10)
            };
            let address = null(&workload);
            let mut load = Load::connect(&address, &workload, workload.scripts(0), &[None]).unwrap();
            for check in [Check::Length, Check::Parse, Check::Verify] {
                let tally = load.run(check, Stop::After(Duration::from_millis(20))).unwrap();
                assert_eq!((tally.wrong, tally.keys), (0, tally.hits + tally.stored), "{workload:?}");
            }
        }
    }
}

#[test]
fn a_run_for_a_time_ends_with_every_reply_taken_and_can_be_repeated() {
    let workload =
        Workload { choice: Choice::One, connections: 4, ..workload(Protocol::Classic, Verb::Hit, 32) };
    let mut load = Load::connect(&null(&workload), &workload, workload.scripts(0), &[None, None]).unwrap();
    for _ in 0..3 {
        let tally = load.run(Check::Verify, Stop::After(Duration::from_millis(20))).unwrap();
        assert!(tally.requests >= 8, "each connection sends at least one window");
        assert_eq!((tally.hits, tally.wrong), (tally.requests, 0));
    }
}

#[test]
fn another_keys_value_is_wrong_and_only_verifying_sees_it() {
    for protocol in PROTOCOLS {
        let workload = workload(protocol, Verb::Hit, 32);
        let swapped = hits(&workload, [1, 0]);
        for (check, wrong) in [(Check::Length, 0), (Check::Parse, 0), (Check::Verify, 2)] {
            let tally = run_once(&replying(&workload, swapped.clone(), false), &workload, check).unwrap();
            assert_eq!(tally.wrong, wrong, "{protocol:?} {check:?}");
        }
    }
}

#[test]
fn a_torn_value_is_wrong() {
    let workload = workload(Protocol::Classic, Verb::Hit, 32);
    let mut reply = hits(&workload, [0, 1]);
    let middle = reply.len() - 15;
    reply[middle] ^= 0x10;
    let tally = run_once(&replying(&workload, reply, false), &workload, Check::Verify).unwrap();
    assert_eq!((tally.hits, tally.wrong), (2, 1));
    assert!(tally.first_wrong.unwrap().contains("key 1 has a broken value"));
}

#[test]
fn client_flags_that_nobody_wrote_are_wrong() {
    let workload = workload(Protocol::Classic, Verb::Hit, 32);
    let mut reply = hits(&workload, [0, 1]);
    let flags = b"VALUE key:000000000000 ".len();
    assert_eq!(std::mem::replace(&mut reply[flags], b'7'), b'0');
    for (check, wrong) in [(Check::Parse, 0), (Check::Verify, 1)] {
        let tally = run_once(&replying(&workload, reply.clone(), false), &workload, check).unwrap();
        assert_eq!((tally.hits, tally.wrong), (2, wrong), "{check:?} {:?}", tally.first_wrong);
    }
}

#[test]
fn a_value_that_is_announced_longer_than_any_is_an_error_and_no_memory() {
    for (protocol, line) in [
        (Protocol::Classic, "VALUE key:000000000000 0 2147483647\r\n"),
        (Protocol::Meta, "VA 2147483647\r\n"),
        (Protocol::Resp, "$2147483647\r\n"),
    ] {
        let workload = workload(protocol, Verb::Hit, 32);
        let reply = [line.as_bytes(), &[b'x'; 1 << 20]].concat();
        for check in [Check::Parse, Check::Verify] {
            let address = replying(&workload, reply.clone(), false);
            let error = run_once(&address, &workload, check).unwrap_err().to_string();
            assert!(error.contains("a reply of more than 262143 bytes"), "{protocol:?}: {error}");
        }
    }
}

#[test]
fn a_miss_in_place_of_a_hit_is_wrong() {
    for protocol in PROTOCOLS {
        let workload = workload(protocol, Verb::Hit, 32);
        let mut reply = Vec::new();
        canned::misses(workload.protocol, &mut reply, 1);
        reply.extend_from_slice(&hits(&workload, [0, 1])[hits(&workload, [0, 1]).len() / 2..]);
        let tally = run_once(&replying(&workload, reply, false), &workload, Check::Verify).unwrap();
        assert_eq!((tally.hits, tally.misses, tally.wrong), (1, 1, 1), "{protocol:?}");
    }
}

#[test]
fn keys_left_out_of_a_multi_get_are_misses_at_their_place() {
    let workload = Workload {
        keyspace: Keyspace::new(4, 32),
        pipeline: 1,
        keys_per_request: 4,
        ..workload(Protocol::Classic, Verb::Hit, 32)
    };
    let pair = |id| {
        let (mut name, mut bytes) = (Vec::new(), Vec::new());
        workload.keyspace.write(&mut name, Prefix::Present, id);
        value::write(&mut bytes, id, 1, 32);
        (name, bytes)
    };
    let mut reply = Vec::new();
    canned::hits(workload.protocol, &mut reply, &[pair(1), pair(3)]);
    let tally = run_once(&replying(&workload, reply, false), &workload, Check::Verify).unwrap();
    // Both misses are wrong, as the workload expects hits; both hits are right.
    assert_eq!((tally.hits, tally.misses, tally.wrong), (2, 2, 2), "{:?}", tally.first_wrong);
}

/// A server's replies to the first connection, if each read found the version that `version` returns for its
/// index.
fn replies(workload: &Workload, version: impl Fn(usize) -> u64) -> Vec<u8> {
    let script = &workload.scripts(0)[0];
    let mut out = Vec::new();
    for (index, request) in script.requests.iter().enumerate() {
        let id = script.keys[request.keys_end as usize - 1].id;
        if request.verb == Verb::Set {
            canned::stored(workload.protocol, &mut out);
            continue;
        }
        let (mut name, mut bytes) = (Vec::new(), Vec::new());
        workload.keyspace.write(&mut name, Prefix::Present, id);
        value::write(&mut bytes, id, version(index), 32);
        canned::hits(workload.protocol, &mut out, &[(name, bytes)]);
    }
    out
}

#[test]
fn a_value_older_than_the_last_acknowledged_write_is_stale() {
    for protocol in PROTOCOLS {
        let workload = Workload {
            mix: Mix::of(&[(Verb::Hit, 1), (Verb::Set, 1)]),
            choice: Choice::One,
            keyspace: Keyspace::new(1, 32),
            pipeline: 100_000,
            ..workload(protocol, Verb::Hit, 32)
        };
        let script = workload.scripts(0).remove(0);
        let last_write = |index: usize| {
            let before = script.requests[..index].iter().rposition(|request| request.verb == Verb::Set);
            before.map_or(1, |at| script.first_version + at as u64)
        };
        let fresh = replies(&workload, last_write);
        let tally = run_once(&replying(&workload, fresh, false), &workload, Check::Verify).unwrap();
        assert_eq!((tally.wrong, tally.first_wrong), (0, None), "{protocol:?}");
        let stale = replies(&workload, |_| 1);
        let tally = run_once(&replying(&workload, stale.clone(), false), &workload, Check::Verify).unwrap();
        assert!(tally.wrong > 0 && tally.first_wrong.unwrap().contains("stale"), "{protocol:?}");
        let tally = run_once(&replying(&workload, stale, false), &workload, Check::Parse).unwrap();
        assert_eq!(tally.wrong, 0, "parsing alone cannot see it");
    }
}

/// Four connections, each with one request at a time.
fn four_connections() -> Load {
    let workload = Workload {
        choice: Choice::One,
        connections: 4,
        pipeline: 1,
        ..workload(Protocol::Classic, Verb::Hit, 32)
    };
    Load::connect(&null(&workload), &workload, workload.scripts(0), &[None]).unwrap()
}

#[test]
fn an_open_loop_asks_at_its_rate_and_counts_from_when_a_window_was_due() {
    let mut load = four_connections();
    load.limit(1000);
    for poisson in [false, true] {
        let arrivals = Arrivals { per_s: 2000.0, poisson, seed: 1 };
        let tally = load.run_open(Check::Parse, arrivals, PATIENCE).unwrap();
        // The last request is due after half a second; the sum of all gaps varies by a few standard
        // deviations.
        assert!(tally.requests == 1000 && tally.elapsed >= Duration::from_millis(400), "{tally:?}");
        assert_eq!((tally.wrong, tally.latency.len()), (0, tally.requests));
        assert_eq!((tally.service.len(), tally.lag.len()), (tally.requests, tally.requests));
        assert!(tally.latency.ns.max() >= tally.service.ns.max());
    }
}

#[test]
#[ignore = "time: what is due in half a second ends the run if it comes too late"]
fn an_open_loop_asks_as_often_as_is_due_in_its_time() {
    let mut load = four_connections();
    for poisson in [false, true] {
        let arrivals = Arrivals { per_s: 2000.0, poisson, seed: 1 };
        let tally = load.run_open(Check::Parse, arrivals, Duration::from_millis(500)).unwrap();
        // A thousand requests are due, give or take a few standard deviations.
        let off = tally.requests.abs_diff(1000);
        assert!(off <= if poisson { 200 } else { 2 }, "{} requests", tally.requests);
    }
}

#[test]
fn an_open_loop_counts_from_when_a_window_was_due_also_while_it_cannot_be_sent() {
    let workload =
        Workload { choice: Choice::One, pipeline: 1, ..workload(Protocol::Classic, Verb::Set, 1 << 20) };
    let request_bytes = workload.sample().0.len();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    // This server stops reading once the first request arrives; few requests fit the system's buffers.
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.peek(&mut [0]).unwrap();
        thread::sleep(Duration::from_millis(300));
        let mut request = vec![0; request_bytes];
        while stream.read_exact(&mut request).is_ok() && stream.write_all(b"STORED\r\n").is_ok() {}
    });
    let mut load = Load::connect(&address, &workload, workload.scripts(0), &[None]).unwrap();
    let arrivals = Arrivals { per_s: 100.0, poisson: false, seed: 1 };
    // Requests that are due within 400 ms, however late they are sent.
    load.limit(40);
    let tally = load.run_open(Check::Parse, arrivals, PATIENCE).unwrap();
    // One request is due every 10 ms, and none is answered during the first 300 ms: those of the first 200 ms
    // wait for more than 100 ms.
    let waited = tally.latency.ns.len() - tally.latency.ns.count_between(0, 100_000_000);
    assert!(tally.requests == 40 && waited >= 18, "{waited} of {}", tally.requests);
    assert!(tally.lag.ns.max() >= 100_000_000, "lag {} ns", tally.lag.ns.max());
    assert!(tally.latency.ns.max() >= tally.lag.ns.max());
}

#[test]
fn connections_are_replaced_as_often_as_asked() {
    let workload = Workload {
        choice: Choice::One,
        connections: 3,
        pipeline: 2,
        ..workload(Protocol::Resp, Verb::Hit, 32)
    };
    let mut load = Load::connect(&null(&workload), &workload, workload.scripts(0), &[None]).unwrap();
    load.churn(10);
    let tally = load.run(Check::Verify, Stop::Once).unwrap();
    let windows: usize = workload.scripts(0).iter().map(|script| script.windows.len()).sum();
    assert_eq!((tally.wrong, tally.latency.len()), (0, windows as u64));
    assert!(tally.connects >= windows as u64 / 10 - 3, "{} connections", tally.connects);
}

#[test]
fn a_refused_write_is_wrong() {
    let workload = workload(Protocol::Classic, Verb::Set, 32);
    let reply = b"STORED\r\nSERVER_ERROR out of memory storing object\r\n".to_vec();
    let tally = run_once(&replying(&workload, reply, false), &workload, Check::Parse).unwrap();
    assert_eq!((tally.stored, tally.wrong), (1, 1));
    assert!(tally.first_wrong.unwrap().contains("out of memory"));
}

#[test]
fn surplus_duplicated_and_foreign_bytes_end_the_run() {
    for check in [Check::Length, Check::Parse, Check::Verify] {
        let workload = workload(Protocol::Classic, Verb::Set, 32);
        let surplus = b"STORED\r\nSTORED\r\nSTORED\r\n".to_vec();
        let error = run_once(&replying(&workload, surplus, false), &workload, check).unwrap_err();
        assert!(matches!(error, Error::Reply(_)), "{check:?}: {error}");
        let foreign = b"STORED\r\nSTORAD\r\n".to_vec();
        let error = run_once(&replying(&workload, foreign, false), &workload, check).unwrap_err();
        assert!(matches!(error, Error::Reply(_)), "{check:?}: {error}");
    }
}

#[test]
fn a_value_with_a_field_nobody_asked_for_ends_the_run() {
    let workload = workload(Protocol::Classic, Verb::Hit, 0);
    let gets = b"VALUE key:000000000000 0 0 7\r\n\r\nEND\r\n".repeat(2);
    let error = run_once(&replying(&workload, gets, false), &workload, Check::Parse).unwrap_err();
    assert!(matches!(error, Error::Reply(_)), "{error}");
}

#[test]
fn a_server_that_closes_ends_the_run() {
    let workload = workload(Protocol::Classic, Verb::Set, 32);
    for check in [Check::Length, Check::Parse] {
        let error = run_once(&replying(&workload, b"STORED\r\nSTO".to_vec(), true), &workload, check);
        assert!(matches!(error, Err(Error::Closed)), "{check:?}");
    }
}

#[test]
fn nobody_listening_is_an_error_that_names_the_address() {
    let port = Port::reserve().unwrap();
    let workload = workload(Protocol::Classic, Verb::Set, 32);
    let error = run_once(&Address::Tcp(port.address()), &workload, Check::Parse).unwrap_err();
    assert!(error.to_string().contains(&port.address().to_string()), "{error}");
}

/// Runs a script of swaps on one key against a server that counts tokens up. Its two windows have one request
/// each: a read with its token, and a write with it.
fn swap(protocol: Protocol, read: (u64, u64), written: &str) -> Result<Tally, Error> {
    let workload = Workload {
        mix: Verb::Cas.into(),
        choice: Choice::One,
        ..Workload::new(protocol, Verb::Cas, Keyspace::new(1, 32))
    };
    let (mut name, mut value) = (Vec::new(), Vec::new());
    workload.keyspace.write(&mut name, Prefix::Present, 0);
    value::write(&mut value, 0, read.0, 32);
    let (name, token) = (String::from_utf8(name).unwrap(), read.1);
    let (head, tail) = match protocol {
        Protocol::Classic => (format!("VALUE {name} 0 32 {token}\r\n"), "\r\nEND\r\n"),
        _ => (format!("VA 32 c{token}\r\n"), "\r\n"),
    };
    let first = [head.as_bytes(), &value, tail.as_bytes()].concat();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let written = written.to_owned();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = vec![0; 1024];
        let _ = stream.read(&mut asked).unwrap();
        stream.write_all(&first).unwrap();
        let received = stream.read(&mut asked).unwrap();
        stream.write_all(written.as_bytes()).unwrap();
        String::from_utf8_lossy(&asked[..received]).into_owned()
    });
    let mut load = Load::connect(&address, &workload, workload.scripts(0), &[None])?;
    let tally = load.run(Check::Verify, Stop::Windows(2));
    let asked = server.join().unwrap();
    assert!(asked.contains(&format!("{token:020}\r\n")), "{asked}");
    tally
}

#[test]
fn a_swap_names_the_token_that_was_read_and_must_happen() {
    for (protocol, stored, refused, absent) in [
        (Protocol::Classic, "STORED\r\n", "EXISTS\r\n", "NOT_FOUND\r\n"),
        (Protocol::Meta, "HD\r\n", "EX\r\n", "NF\r\n"),
    ] {
        let tally = swap(protocol, (1, 77), stored).unwrap();
        assert_eq!((tally.wrong, tally.first_wrong), (0, None), "{protocol:?}");
        assert_eq!((tally.hits, tally.swaps, tally.swapped), (1, 1, 1));
        let tally = swap(protocol, (1, u64::MAX - 1), refused).unwrap();
        assert_eq!((tally.wrong, tally.swaps, tally.conflicts), (1, 1, 1), "{protocol:?}");
        assert!(tally.first_wrong.unwrap().contains("which is its own"));
        let tally = swap(protocol, (1, 77), absent).unwrap();
        assert_eq!((tally.wrong, tally.swaps, tally.absent), (1, 1, 1), "{protocol:?}");
        assert!(matches!(swap(protocol, (1, 77), "OK\r\n"), Err(Error::Reply(_))));
    }
}

/// Runs writes with and without a token on one key, many in a window, against a server that compares tokens
/// or does not.
fn swaps_after_sets(compares: bool) -> Tally {
    let workload = Workload {
        mix: Mix::of(&[(Verb::Cas, 1), (Verb::Set, 1)]),
        choice: Choice::One,
        pipeline: 64,
        ..Workload::new(Protocol::Classic, Verb::Cas, Keyspace::new(1, 32))
    };
    let script = workload.scripts(0).remove(0);
    let windows = 2;
    let (mut replies, mut version, mut token) = (vec![Vec::new(); windows], 1, 1_u64);
    let mut known = 0;
    for (at, reply) in replies.iter_mut().enumerate() {
        // The writes of a window carry the tokens from the windows before it.
        let named = known;
        for index in script.windows[at].requests.clone() {
            let verb = script.requests[index].verb;
            if verb == Verb::Gets {
                let mut value = Vec::new();
                value::write(&mut value, 0, version, 32);
                let head = format!("VALUE key:000000000000 0 32 {token}\r\n");
                reply.extend([head.as_bytes(), &value, b"\r\nEND\r\n"].concat());
                known = token;
                continue;
            }
            let stored = verb == Verb::Set || !compares || named == token;
            reply.extend(if stored { b"STORED\r\n".as_slice() } else { b"EXISTS\r\n" });
            if stored {
                (version, token) = (script.first_version + index as u64, token + 1);
            }
        }
    }
    let sizes: Vec<usize> = script.windows.iter().map(|window| window.bytes.len()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for (bytes, reply) in sizes.into_iter().zip(replies) {
            stream.read_exact(&mut vec![0; bytes]).unwrap();
            stream.write_all(&reply).unwrap();
        }
    });
    let mut load = Load::connect(&address, &workload, vec![script], &[None]).unwrap();
    load.run(Check::Verify, Stop::Windows(windows as u64)).unwrap()
}

#[test]
fn a_swap_of_a_key_that_was_changed_since_must_be_refused() {
    let right = swaps_after_sets(true);
    assert_eq!((right.wrong, &right.first_wrong), (0, &None));
    // Of the writes with the same token only the first can succeed.
    assert!(right.conflicts > 10 && right.swapped <= 1, "{right:?}");
    let loses = swaps_after_sets(false);
    assert!(loses.wrong + 1 >= loses.swapped && loses.wrong > 10, "{loses:?}");
    assert!(loses.first_wrong.unwrap().contains("an update is lost"));
}
