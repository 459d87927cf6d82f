//! The client against a real server: exact counts, no value of another key, no allocation, and the errors of
//! calls when the server is gone, is stopped or never existed.

use larder_client::wire::{Ask, Count, Get, Store};
use larder_client::{Client, Dialect, Error, Fault, Mode, Outcome, Ttl, Want, Window};
use larder_testkit::PATIENCE;
use larder_testkit::process::{Port, Server};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

fn server() -> Server {
    Server::start(&["--threads", "1", "-m", "64"]).expect("a server")
}

fn client(server: &Server) -> Client {
    client_of(&server.address().to_string())
}

fn client_of(address: &str) -> Client {
    let builder = Client::builder().server(address).timeout(PATIENCE).dial_timeout(PATIENCE);
    builder.stall_timeout(PATIENCE).verify(true).build().expect("a client")
}

#[test]
fn every_verb_does_what_it_says() {
    let server = server();
    let client = client(&server);
    assert_eq!(client.get(b"k").expect("an answer"), None);
    client.set(b"k", b"one").flags(7).ttl(Ttl::In(Duration::from_secs(6000))).send().expect("stored");
    let mut value = b"before ".to_vec();
    let meta = client.get_with(b"k", Want::FLAGS | Want::CAS | Want::TTL | Want::SIZE, &mut value);
    let meta = meta.expect("an answer").expect("a hit");
    assert_eq!((value.as_slice(), meta.flags, meta.size), (b"before one".as_slice(), 7, 3));
    assert!((5000..=6000).contains(&meta.ttl.expect("a time").as_secs()));
    assert_eq!(client.set(b"k", b"two").cas(meta.cas + 1).send(), Err(Error::Conflict));
    assert_eq!(client.set(b"k", b"two").mode(Mode::Add).send(), Err(Error::NotStored));
    assert_eq!(client.set(b"none", b"two").cas(1).send(), Err(Error::Absent));
    client.set(b"k", b"two").cas(meta.cas).send().expect("stored");
    client.set(b"k", b"!").mode(Mode::Append).send().expect("stored");
    assert_eq!(client.get(b"k").expect("an answer").expect("a hit").bytes, b"two!");
    assert_eq!(client.incr(b"k", 1).send(), Err(Error::NotNumber));
    assert_eq!(client.incr(b"n", 5).send(), Ok(None));
    assert_eq!(client.incr(b"n", 5).or_make(40, Ttl::Forever).send(), Ok(Some(40)));
    assert_eq!(client.incr(b"n", 5).send(), Ok(Some(45)));
    assert_eq!(client.decr(b"n", 50).send(), Ok(Some(0)));
    assert_eq!(client.touch(b"n", Ttl::In(Duration::from_secs(900))), Ok(true));
    assert_eq!(client.touch(b"none", Ttl::Forever), Ok(false));
    assert_eq!(client.delete(b"n").send(), Ok(true));
    assert_eq!(client.delete(b"n").send(), Ok(false));
    assert_eq!(client.set(b"a b", b"").send(), Err(Error::BadKey));
    let large = vec![b'x'; 700_000];
    client.set(b"large", &large).send().expect("stored");
    assert!(client.get(b"large").expect("an answer").expect("a hit").bytes == large);
    assert_eq!(client.set(b"large", &vec![0; 2 << 20]).send(), Err(Error::TooLarge));
    assert!(client.versions()[0].1.as_ref().expect("a version").contains("larder"));
    client.flush_all().expect("flushed");
    assert_eq!(client.get(b"k").expect("an answer"), None);
    client.close();
    assert_eq!(client.get(b"k"), Err(Error::Closed(Outcome::NotSent)));
}

#[test]
fn a_server_tells_its_figures_by_group() {
    let server = server();
    let client = client(&server);
    client.set(b"k", b"v").send().expect("stored");
    assert_eq!(client.get(b"none").expect("an answer"), None);
    let of = |what: &str, name: &str| {
        let all = client.stats(0, what).expect("figures");
        all.into_iter().find(|(have, _)| have == name).map(|(_, value)| value)
    };
    for (what, name, value) in [
        ("", "cmd_set", "1"),
        ("", "get_misses", "1"),
        ("settings", "num_threads", "1"),
        ("", "curr_items", "1"),
    ] {
        assert_eq!(of(what, name).as_deref(), Some(value), "{what} {name}");
    }
    assert_eq!(of("", "of_no_server"), None);
    // This resets the statistics; its reply has no figures, which is valid.
    assert_eq!(client.stats(0, "reset"), Ok(Vec::new()));
    assert_eq!(of("", "get_misses").as_deref(), Some("0"));
    assert!(matches!(client.stats(0, "of no server"), Err(Error::Server(..))));
    assert_eq!(client.stats(0, "items\r\nflush_all"), Err(Error::BadKey));
    // An error reply leaves the shared connection usable.
    assert_eq!(client.get(b"k").expect("an answer").expect("a hit").bytes, b"v");
    assert!(client.stats(0, "items").expect("figures").iter().any(|(name, _)| name.ends_with(":number")));
    client.close();
    assert_eq!(client.stats(0, ""), Err(Error::Closed(Outcome::NotSent)));
}

#[test]
fn threads_share_a_connection_and_nobody_gets_anothers_value() {
    const THREADS: u64 = 16;
    const ROUNDS: u64 = 400;
    let server = server();
    let client = client(&server);
    thread::scope(|scope| {
        for owner in 0..THREADS {
            let client = &client;
            scope.spawn(move || {
                let key = format!("key-{owner}");
                let mut read = Vec::new();
                for round in 0..ROUNDS {
                    // Now and then the value is longer than one receive.
                    let bytes = if round % 97 == 96 { 200_000 } else { 10 + (round as usize * 37) % 3000 };
                    let value = format!("{owner}:{round}:").repeat(bytes / 4);
                    client.set(key.as_bytes(), value.as_bytes()).send().expect("stored");
                    read.clear();
                    client.get_into(key.as_bytes(), &mut read).expect("an answer").expect("a hit");
                    assert!(read == value.as_bytes(), "{owner} has read another's value");
                    client.incr(b"all", 1).or_make(1, Ttl::Forever).send().expect("a number");
                }
            });
        }
    });
    let count = client.get(b"all").expect("an answer").expect("a hit").bytes;
    assert_eq!(String::from_utf8(count).expect("digits"), (THREADS * ROUNDS).to_string());
    let counters = client.counters();
    // One connection for most values, and one for large ones.
    assert_eq!((counters.dials, counters.overdue), (2, 0));
    assert!(counters.writes < counters.requests, "{counters:?}");
}

#[test]
fn updates_of_many_threads_are_all_made() {
    let server = server();
    let client = client(&server);
    let lost = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let made = client.update(b"counter", Ttl::Forever, |old| {
                        let count: u64 = old.map_or(0, |old| {
                            std::str::from_utf8(old).expect("digits").parse().expect("digits")
                        });
                        Some((count + 1).to_string().into_bytes())
                    });
                    match made {
                        Ok(stored) => assert!(stored.is_some()),
                        Err(Error::Conflict) => drop(lost.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let count = client.get(b"counter").expect("an answer").expect("a hit").bytes;
    let made = 800 - lost.load(Ordering::Relaxed);
    assert_eq!(String::from_utf8(count).expect("digits"), made.to_string());
}

#[test]
fn a_batch_has_a_result_for_each_and_keeps_its_memory() {
    let server = server();
    let client = client(&server);
    let mut batch = client.batch();
    for round in 0..3 {
        let sets: Vec<_> = (0..5000)
            .map(|n| batch.set(format!("b{n}").as_bytes(), format!("{round}-{n}").as_bytes(), Ttl::Forever))
            .collect();
        let bad = batch.get(b"a b");
        let done = batch.run();
        assert!(sets.into_iter().all(|set| done.take(set).is_ok()));
        assert_eq!(done.take(bad), Err(Error::BadKey));
        drop(done);
        let gets: Vec<_> = (0..5001).map(|n| batch.get(format!("b{n}").as_bytes())).collect();
        let done = batch.run();
        for (n, get) in gets.iter().enumerate() {
            let value = done.value(get).expect("an answer").map(|(bytes, _)| bytes.to_vec());
            assert_eq!(value, (n < 5000).then(|| format!("{round}-{n}").into_bytes()));
        }
    }
    assert_eq!(client.counters().dials, 1);
}

#[test]
fn requests_without_types_of_their_own_do_what_the_typed_do() {
    let server = server();
    let client = client(&server);
    let mut value = b"before ".to_vec();
    let store = Store { value: b"one", flags: 7, want_cas: true, ..Store::default() };
    let stored = client.request(b"k", Ask::Store(store), None, &mut value).expect("stored");
    assert!(stored.found && stored.meta.cas > 0 && value == b"before ");
    let get = Ask::Get(Get { want: Want::FLAGS | Want::CAS, retime: Some(60), ..Get::default() });
    let hit = client.request(b"k", get, None, &mut value).expect("an answer");
    assert_eq!((hit.found, hit.meta.flags, hit.meta.cas), (true, 7, stored.meta.cas));
    assert_eq!(value, b"before one");
    let missed = client.request(b"none", get, None, &mut value).expect("an answer");
    assert!(!missed.found && value == b"before one");
    let refused = client.request(b"k", Ask::Store(store), Some(stored.meta.cas + 1), &mut value);
    assert_eq!(refused, Err(Error::Conflict));
    let count = Ask::Count(Count { delta: 2, initial: Some((40, 0)), ..Count::default() });
    let counted = |client: &Client, value: &mut Vec<u8>| {
        client.request(b"n", count, None, value).expect("an answer").number
    };
    assert_eq!((counted(&client, &mut value), counted(&client, &mut value)), (40, 42));
    assert_eq!(value, b"before one", "a number is not a value");

    let mut batch = client.batch();
    assert!(batch.reply(0).is_none());
    let asked =
        [(b"k".as_slice(), get), (b"n", count), (b"a b", get), (b"k", Ask::Store(store)), (b"none", get)];
    for (at, (key, ask)) in asked.into_iter().enumerate() {
        assert_eq!(batch.request(key, ask, None), at);
    }
    drop(batch.run());
    let reply = |at| batch.reply(at).expect("it was asked");
    let (hit, bytes) = reply(0).expect("an answer");
    assert_eq!((hit.meta.flags, hit.meta.cas, bytes), (7, stored.meta.cas, b"one".as_slice()));
    let (counted, bytes) = reply(1).expect("an answer");
    assert_eq!((counted.number, bytes), (44, b"".as_slice()));
    assert_eq!(reply(2).err(), Some(&Error::BadKey));
    assert!(reply(3).expect("stored").0.meta.cas > stored.meta.cas);
    assert!(!reply(4).expect("an answer").0.found);
    assert!(batch.reply(5).is_none() && batch.is_empty());

    let mut quiet = client.quiet_within(Window { requests: 2, bytes: 1 << 16 });
    quiet.store(b"k", Store { value: b"two", flags: 9, ..Store::default() }, None).expect("its key is good");
    quiet.store(b"k", Store { mode: Mode::Add, ..store }, None).expect("its key is good");
    quiet.store(b"none", store, Some(1)).expect("its key is good");
    quiet.remove(b"n", Default::default(), None).expect("its key is good");
    let report = quiet.barrier();
    assert_eq!((report.sent, report.stored, report.refused), (4, 2, 2), "{report:?}");
    let refusals: Vec<_> =
        report.first.iter().map(|refused| (refused.key.as_slice(), &refused.error)).collect();
    assert_eq!(refusals, [(b"k".as_slice(), &Error::NotStored), (b"none", &Error::Absent)]);
    value.clear();
    assert_eq!(client.request(b"k", get, None, &mut value).expect("an answer").meta.flags, 9);
}

#[test]
fn what_classic_text_cannot_say_is_refused_in_a_batch_too() {
    let server = server();
    let address = server.address().to_string();
    let builder = Client::builder().server(address.as_str()).timeout(PATIENCE).dial_timeout(PATIENCE);
    let client = builder
        .stall_timeout(PATIENCE)
        .protocol(Dialect::Classic)
        .binary_keys(true)
        .build()
        .expect("a client");
    client.set(b"b", b"two").send().expect("stored");
    let mut batch = client.batch();
    let (binary, good) = (batch.get(b"a b"), batch.get(b"b"));
    let done = batch.run();
    assert_eq!(done.take(binary), Err(Error::Unsupported));
    assert_eq!(done.take(good).expect("an answer").expect("a hit").bytes, b"two");
    drop(done);
    let counted = batch.request(b"n", Ask::Count(Count { initial: Some((1, 0)), ..Count::default() }), None);
    drop(batch.run());
    assert_eq!(batch.reply(counted).expect("it was asked").err(), Some(&Error::Unsupported));
}

#[test]
fn streams_add_up_whose_writes_go_to_several_servers_in_turns() {
    let servers = [server(), server(), server()];
    let builder = servers.iter().fold(Client::builder().timeout(PATIENCE), |builder, server| {
        builder.server(server.address().to_string().as_str())
    });
    let client = builder.dial_timeout(PATIENCE).stall_timeout(PATIENCE).build().expect("a client");
    for quiet in [false, true] {
        let mut stream = if quiet { client.quiet() } else { client.stream(Window::default()) };
        for n in 0..1000 {
            stream.set(format!("t{n}").as_bytes(), b"value", Ttl::Forever).expect("a good key");
        }
        let report = stream.barrier();
        assert_eq!((report.sent, report.stored), (1000, 1000), "{report:?}");
    }
    let mut batch = client.batch();
    let gets: Vec<_> = (0..1000).map(|n| batch.get(format!("t{n}").as_bytes())).collect();
    let done = batch.run();
    assert!(gets.into_iter().all(|get| done.take(get).expect("an answer").is_some()));
}

#[test]
fn a_key_has_its_server_by_its_prefix_and_all() {
    let builder = |prefix: &str| {
        let servers = (0..8).map(|n| format!("10.0.0.{n}:11211"));
        let builder = servers.fold(Client::builder(), |builder, server| builder.server(server.as_str()));
        builder.key_prefix(prefix).build().expect("a client")
    };
    let (prefixed, plain) = (builder("p:"), builder(""));
    for n in 0..100 {
        let key = format!("key:{n}");
        let whole = format!("p:{key}");
        assert_eq!(prefixed.server_of(key.as_bytes()), plain.server_of(whole.as_bytes()));
        let at = plain.index_of(whole.as_bytes());
        assert_eq!(plain.servers()[at], plain.server_of(whole.as_bytes()));
    }
}

#[test]
fn a_client_knows_its_sockets_and_another_like_it_shares_none() {
    let server = server();
    let client = client(&server);
    assert_eq!(client.sockets().count(), 0);
    client.set(b"k", b"v").send().expect("stored");
    client.set(b"large", &vec![b'x'; 100_000]).send().expect("stored");
    let sockets: Vec<_> = client.sockets().collect();
    assert_eq!(sockets.len(), 2);
    let other = client.anew().expect("it was good before");
    assert_eq!(other.sockets().count(), 0);
    assert_eq!(other.get(b"k").expect("an answer").expect("a hit").bytes, b"v");
    assert!(other.sockets().all(|socket| !sockets.contains(&socket)));
    assert!(client.sockets().eq(sockets));
    client.close();
    assert_eq!(client.sockets().count(), 0);
    assert_eq!(other.get(b"k").expect("an answer").expect("a hit").bytes, b"v");
}

#[test]
fn get_and_set_allocate_nothing_in_steady_state() {
    let server = server();
    let client = client(&server);
    let mut value = Vec::with_capacity(1000);
    let mut round = |times: u32| {
        for _ in 0..times {
            client.set(b"k", b"value").send().expect("stored");
            value.clear();
            client.get_into(b"k", &mut value).expect("an answer").expect("a hit");
            assert!(client.touch(b"k", Ttl::Forever).expect("an answer"));
            client.get_into(b"none", &mut value).expect("an answer");
        }
    };
    round(100);
    let allocated = allocation_counter::measure(|| round(100));
    assert_eq!(allocated.count_total, 0);
}

#[test]
fn what_a_stream_sent_is_stored_refused_or_unknown_when_the_server_dies() {
    for quiet in [false, true] {
        let mut server = server();
        let client = client(&server);
        let mut stream =
            if quiet { client.quiet() } else { client.stream(Window { requests: 256, bytes: 1 << 16 }) };
        let set = |stream: &mut larder_client::Stream, n: u32| {
            stream
                .set(format!("s{n}").as_bytes(), format!("value {n}").as_bytes(), Ttl::Forever)
                .expect("its key is good");
        };
        (0..10_000).for_each(|n| set(&mut stream, n));
        let report = stream.barrier();
        assert_eq!((report.sent, report.stored), (10_000, 10_000), "{report:?}");
        for n in (0..10_000).step_by(997) {
            let value =
                client.get(format!("s{n}").as_bytes()).expect("an answer").expect("it was acknowledged");
            assert_eq!(value.bytes, format!("value {n}").into_bytes());
        }
        for n in 0..20_000 {
            if n == 5_000 {
                server.kill();
            }
            set(&mut stream, n);
        }
        let report = stream.barrier();
        assert_eq!(report.sent, 20_000);
        assert_eq!(report.sent, report.stored + report.refused + report.unknown);
        assert!(report.stored <= 5_000 && report.refused > 0, "{report:?}");
        assert!(!report.first.is_empty() && report.error.is_some(), "{report:?}");
    }
}

/// Serves one connection as a server whose version is too old for meta text, and replies to nothing else. It
/// reports when it has read `expected` sets of the value `v`.
fn reads_only(listener: &TcpListener, expected: u32, told: &mpsc::Sender<()>) {
    let (stream, _) = listener.accept().expect("a connection");
    let (mut write, mut sets) = (stream.try_clone().expect("the same"), 0);
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if line == "version" {
            write.write_all(b"VERSION 1.4.0\r\n").expect("sent");
        }
        sets += u32::from(line.starts_with("set "));
        if sets == expected && line == "v" {
            told.send(()).expect("the test hears it");
        }
    }
}

#[test]
fn what_was_sent_when_the_client_is_closed_may_have_been_applied() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = client_of(&listener.local_addr().expect("it is bound").to_string());
    let (tell, told) = mpsc::channel();
    let reads = thread::spawn(move || reads_only(&listener, 201, &tell));
    let mut stream = client.stream(Window { requests: 256, bytes: 1 << 16 });
    for n in 0..100 {
        stream.set(format!("s{n}").as_bytes(), b"v", Ttl::Forever).expect("its key is good");
    }
    let mut batch = client.batch();
    let tickets: Vec<_> =
        (0..100).map(|n| batch.set(format!("b{n}").as_bytes(), b"v", Ttl::Forever)).collect();
    thread::scope(|scope| {
        let set = scope.spawn(|| client.set(b"k", b"v").send());
        let report = scope.spawn(|| stream.barrier());
        let results = scope.spawn(|| {
            let done = batch.run();
            tickets.into_iter().map(|ticket| done.take(ticket)).collect::<Vec<_>>()
        });
        told.recv_timeout(PATIENCE).expect("the server has read all of them");
        client.close();
        let set = set.join().expect("it does not panic");
        assert_eq!(set, Err(Error::Closed(Outcome::Unknown)));
        let report = report.join().expect("it does not panic");
        assert_eq!((report.sent, report.unknown), (100, 100), "{report:?}");
        for result in results.join().expect("it does not panic") {
            assert_eq!(result, Err(Error::Closed(Outcome::Unknown)));
        }
    });
    assert_eq!(client.set(b"k", b"v").send(), Err(Error::Closed(Outcome::NotSent)));
    reads.join().expect("it ended with the connection");
}

#[test]
fn what_is_told_as_not_sent_when_the_client_is_closed_is_not_there() {
    let server = server();
    let (client, other) = (client(&server), client(&server));
    thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|owner| {
                let client = &client;
                scope.spawn(move || {
                    let mut stored = 0_u64;
                    loop {
                        match client.set(format!("{owner}:{stored}").as_bytes(), b"v").send() {
                            Ok(_) => stored += 1,
                            Err(error) => return (stored, error),
                        }
                    }
                })
            })
            .collect();
        let until = Instant::now() + PATIENCE;
        while client.counters().requests < 1000 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        client.close();
        for (owner, caller) in callers.into_iter().enumerate() {
            let (stored, error) = caller.join().expect("it does not panic");
            assert!(matches!(error, Error::Closed(_)), "{owner}: {error}");
            let is_there =
                |n: u64| other.get(format!("{owner}:{n}").as_bytes()).expect("an answer").is_some();
            assert!(stored == 0 || is_there(stored - 1), "{owner}: {stored}");
            assert!(error.outcome() == Outcome::Unknown || !is_there(stored), "{owner}: {stored}, {error}");
        }
    });
}

#[test]
fn a_drain_waits_for_what_was_asked_and_refuses_what_comes() {
    let server = server();
    let address = server.address().to_string();
    let waits_for = |client: &Client, requests: u64| {
        let until = Instant::now() + PATIENCE;
        while client.counters().requests < requests {
            assert!(Instant::now() < until, "{:?}", client.counters());
            thread::sleep(Duration::from_millis(1));
        }
    };
    let patient = client(&server);
    patient.set(b"k", b"v").send().expect("stored");
    let hasty = client(&server);
    hasty.set(b"k", b"v").send().expect("stored");
    server.pause().expect("it stops");
    thread::scope(|scope| {
        let gets: Vec<_> = (0..16).map(|_| scope.spawn(|| patient.get(b"k"))).collect();
        waits_for(&patient, 17);
        let drained = scope.spawn(|| patient.drain(PATIENCE));
        // The list stays the same. Its change is refused once the drain has begun.
        while patient.change_servers(vec![address.as_str().into()]).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(patient.get(b"other"), Err(Error::Closed(Outcome::NotSent)));
        let mut value = Vec::new();
        assert_eq!(patient.get_to(b"k", Want::default(), &mut value), Err(Error::Closed(Outcome::NotSent)));
        assert!(!drained.is_finished());
        // This client's drain has a limit that is too short for the reply.
        let get = scope.spawn(|| hasty.get(b"k"));
        waits_for(&hasty, 2);
        assert!(!hasty.drain(Duration::from_millis(50)));
        assert!(matches!(get.join().expect("it does not panic"), Err(Error::Closed(_))));
        server.resume();
        assert!(drained.join().expect("it does not panic"));
        for get in gets {
            let value = get.join().expect("it does not panic").expect("an answer").expect("a hit");
            assert_eq!(value.bytes, b"v");
        }
    });
    assert!(patient.drain(PATIENCE), "nothing is under way");
    assert_eq!(patient.sockets().count(), 0);
}

#[test]
fn a_server_that_stops_and_goes_on_gives_no_wrong_values() {
    let server = server();
    let patient = client(&server);
    for n in 0..16 {
        patient.set(format!("key{n}").as_bytes(), format!("key{n}:0").as_bytes()).send().expect("stored");
    }
    let address = server.address().to_string();
    let builder = Client::builder().server(address.as_str()).timeout(Duration::from_millis(30)).verify(true);
    let hasty = builder.build().expect("a client");
    let (over, late, right) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for n in 0..16 {
            let (hasty, over, late, right) = (&hasty, &over, &late, &right);
            scope.spawn(move || {
                let key = format!("key{n}");
                let mut value = Vec::new();
                let mut round = 0;
                while !over.load(Ordering::Relaxed) {
                    round += 1;
                    value.clear();
                    match hasty.get_into(key.as_bytes(), &mut value) {
                        Ok(Some(_)) => {
                            assert!(
                                value.starts_with(format!("{key}:").as_bytes()),
                                "{}",
                                value.escape_ascii()
                            );
                            right.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(None) => panic!("{key} is there"),
                        Err(error) => {
                            assert_eq!(error.fault(), Fault::Network, "{error}");
                            assert!(value.is_empty());
                            late.fetch_add(1, Ordering::Relaxed);
                            thread::sleep(Duration::from_millis(1));
                        }
                    }
                    if let Err(error) = hasty.set(key.as_bytes(), format!("{key}:{round}").as_bytes()).send()
                    {
                        assert_eq!(error.fault(), Fault::Network, "{error}");
                    }
                }
            });
        }
        let until = Instant::now() + PATIENCE;
        for _ in 0..5 {
            let before = late.load(Ordering::Relaxed);
            server.pause().expect("it stops");
            while late.load(Ordering::Relaxed) < before + 16 {
                assert!(Instant::now() < until, "nobody is told");
                thread::sleep(Duration::from_millis(5));
            }
            server.resume();
            let before = right.load(Ordering::Relaxed);
            while right.load(Ordering::Relaxed) < before + 50 {
                assert!(Instant::now() < until, "nobody is answered any more");
                thread::sleep(Duration::from_millis(5));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_server_that_refuses_is_dialed_now_and_then_and_callers_are_told_at_once() {
    let port = Port::reserve().expect("a port");
    let address = port.address().to_string();
    let builder = Client::builder().server(address.as_str()).timeout(PATIENCE).dial_timeout(PATIENCE);
    let client = builder.build().expect("a client");
    let began = Instant::now();
    let mut calls = 0;
    while calls <= 1000 || began.elapsed() < Duration::from_millis(500) {
        let error = client.get(b"k").expect_err("nobody is there");
        assert!(matches!(error, Error::Down(..)), "{error}");
        assert_eq!(error.outcome(), Outcome::NotSent);
        assert_eq!(error.os_error(), Some(rustix::io::Errno::CONNREFUSED.raw_os_error()), "{error}");
        assert_eq!(error.server(), Some(address.as_str()));
        calls += 1;
    }
    let dials = client.counters().dials;
    // The pauses between dials grow to 2.5 s at least.
    let most = 12 + began.elapsed().as_secs() / 2;
    assert!(dials <= most, "{dials} dials for {calls} calls in {:?}", began.elapsed());
}

#[test]
fn many_large_values_each_way_do_not_wait_for_each_other() {
    let server = server();
    let client = client(&server);
    let value = vec![b'v'; 60_000];
    let mut batch = client.batch();
    let sets: Vec<_> =
        (0..100).map(|n| batch.set(format!("l{n}").as_bytes(), &value, Ttl::Forever)).collect();
    let done = batch.run();
    assert!(sets.into_iter().all(|set| done.take(set).is_ok()));
    drop(done);
    // 12 MB of requests and 6 MB of replies on one connection: more than the buffers of both sockets.
    for _ in 0..2 {
        let gets: Vec<_> = (0..100).map(|n| batch.get(format!("l{n}").as_bytes())).collect();
        let sets: Vec<_> =
            (0..200).map(|n| batch.set(format!("m{}", n % 50).as_bytes(), &value, Ttl::Forever)).collect();
        let done = batch.run();
        assert!(gets.iter().all(|get| done.value(get).expect("an answer").expect("a hit").0 == value));
        assert!(sets.into_iter().all(|set| done.take(set).is_ok()));
    }
}
