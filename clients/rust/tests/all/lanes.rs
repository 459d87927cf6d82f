//! Several lanes to a server: all requests for a key use the same connection, whichever call makes them, and
//! counts are exact.

use larder_client::{Builder, Client, Dialect, Ttl, Window};
use larder_testkit::PATIENCE;
use larder_testkit::folder::Folder;
use larder_testkit::process::Server;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::thread;
use tokio::runtime;

const LANES: usize = 4;
const KEYS: usize = 200;
const LARGE: &str = "large";

/// The keys that each connection has used.
type Seen = Arc<Mutex<Vec<BTreeSet<String>>>>;

/// A server that acknowledges all sets, misses all gets, and notes the keys of each connection.
struct Notes {
    folder: Folder,
    seen: Seen,
}

impl Notes {
    fn new() -> Notes {
        let folder = Folder::new("lanes");
        let listener = UnixListener::bind(folder.join("socket")).expect("a socket");
        let seen = Seen::default();
        let all = Arc::clone(&seen);
        // The thread ends with the program.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let all = Arc::clone(&all);
                let at = {
                    let mut all = all.lock().expect("not poisoned");
                    all.push(BTreeSet::new());
                    all.len() - 1
                };
                thread::spawn(move || {
                    answers(stream, |key| {
                        all.lock().expect("not poisoned")[at].insert(key.to_owned());
                    });
                });
            }
        });
        Notes { folder, seen }
    }

    fn builder(&self) -> Builder {
        let builder = Client::builder().server(self.folder.at("socket").as_str()).protocol(Dialect::Meta);
        builder.timeout(PATIENCE).dial_timeout(PATIENCE).stall_timeout(PATIENCE).lanes(LANES)
    }

    /// Checks that each lane had its own keys, and the last connection only the large value.
    fn check(&self) {
        let mut expected = vec![BTreeSet::new(); LANES];
        for key in keys() {
            expected[lane_of(&key)].insert(key);
        }
        expected.push(BTreeSet::from([LARGE.to_owned()]));
        assert!(expected.iter().all(|keys| !keys.is_empty()));
        expected.sort();
        let mut seen = self.seen.lock().expect("not poisoned").clone();
        seen.sort();
        assert_eq!(seen, expected);
    }
}

/// Replies on one connection until it ends.
fn answers(stream: UnixStream, mut note: impl FnMut(&str)) {
    let mut write = stream.try_clone().expect("the same");
    let (mut read, mut line) = (BufReader::new(stream), String::new());
    loop {
        line.clear();
        if read.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        let opaque = words.iter().skip(2).find(|word| word.starts_with('O'));
        let opaque = opaque.map_or_else(String::new, |opaque| format!(" {opaque}"));
        let reply = match words.as_slice() {
            ["mn"] => "MN\r\n".to_owned(),
            ["mg", key, ..] => {
                note(key);
                format!("EN{opaque}\r\n")
            }
            ["ms", key, bytes, flags @ ..] => {
                let mut value = vec![0; bytes.parse::<usize>().expect("a length") + 2];
                read.read_exact(&mut value).expect("a value");
                note(key);
                // A quiet set has no reply.
                if flags.contains(&"q") { String::new() } else { format!("HD{opaque}\r\n") }
            }
            _ => panic!("{line}"),
        };
        if write.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

fn keys() -> impl Iterator<Item = String> {
    (0..KEYS).map(|n| format!("key:{n}"))
}

/// The lane of a key: FNV-1a, modulo the number of lanes.
fn lane_of(key: &str) -> usize {
    let step = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    key.bytes().fold(2_166_136_261, step) as usize % LANES
}

#[test]
fn all_requests_for_a_key_go_over_one_connection() {
    let notes = Notes::new();
    let client = notes.builder().build().expect("a client");
    // Threads that begin at the same time still make each connection only once.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| keys().for_each(|key| assert_eq!(client.get(key.as_bytes()), Ok(None))));
        }
    });
    assert_eq!(client.counters().dials, LANES as u64);
    for key in keys() {
        client.set(key.as_bytes(), b"v").send().expect("stored");
    }
    client.set(LARGE.as_bytes(), &[b'v'; 64 << 10]).send().expect("stored");
    let mut batch = client.batch();
    let gets: Vec<_> = keys().map(|key| batch.get(key.as_bytes())).collect();
    let sets: Vec<_> = keys().map(|key| batch.set(key.as_bytes(), b"v", Ttl::Forever)).collect();
    let done = batch.run();
    assert!(gets.into_iter().all(|get| done.take(get) == Ok(None)));
    assert!(sets.into_iter().all(|set| done.take(set).is_ok()));
    drop(done);
    for quiet in [false, true] {
        let mut stream = if quiet { client.quiet() } else { client.stream(Window::default()) };
        for key in keys() {
            stream.set(key.as_bytes(), b"v", Ttl::Forever).expect("its key is good");
        }
        stream.set(LARGE.as_bytes(), &[b'v'; 64 << 10], Ttl::Forever).expect("its key is good");
        let report = stream.barrier();
        assert_eq!((report.sent, report.stored), (KEYS as u64 + 1, KEYS as u64 + 1), "{report:?}");
    }
    let counters = client.counters();
    // A quiet stream makes one group for each lane, and each group has one reply.
    let requests = 8 * KEYS + KEYS + 1 + 2 * KEYS + KEYS + 1 + LANES + 1;
    assert_eq!((counters.dials, counters.requests), (LANES as u64 + 1, requests as u64), "{counters:?}");
    assert_eq!(client.sockets().count(), LANES + 1);
    notes.check();
    client.close();
    assert_eq!(client.sockets().count(), 0);
}

#[test]
fn all_requests_of_tasks_for_a_key_go_over_one_connection() {
    let notes = Notes::new();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let client = notes.builder().build_tokio().expect("a client");
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    for key in keys() {
                        assert_eq!(client.get(key.as_bytes()).await, Ok(None));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("it does not panic");
        }
        assert_eq!(client.counters().dials, LANES as u64);
        client.set(LARGE.as_bytes(), &[b'v'; 64 << 10]).send().await.expect("stored");
        let mut batch = client.batch();
        let gets: Vec<_> = keys().map(|key| batch.get(key.as_bytes())).collect();
        let done = batch.run().await;
        assert!(gets.into_iter().all(|get| done.take(get) == Ok(None)));
        drop(done);
        for quiet in [false, true] {
            let mut stream = if quiet { client.quiet() } else { client.stream(Window::default()) };
            for key in keys() {
                stream.set(key.as_bytes(), b"v", Ttl::Forever).await.expect("its key is good");
            }
            let report = stream.barrier().await;
            assert_eq!((report.sent, report.stored), (KEYS as u64, KEYS as u64), "{report:?}");
        }
        let counters = client.counters();
        let requests = 8 * KEYS + 1 + KEYS + KEYS + LANES;
        assert_eq!((counters.dials, counters.requests), (LANES as u64 + 1, requests as u64), "{counters:?}");
    });
    notes.check();
}

#[test]
fn eight_lanes_of_a_server_count_together() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 200;
    let server = Server::start(&["--threads", "2", "-m", "64"]).expect("a server");
    let builder = Client::builder().server(server.address().to_string().as_str()).lanes(8).verify(true);
    let builder = builder.timeout(PATIENCE).dial_timeout(PATIENCE).stall_timeout(PATIENCE);
    let (client, awaited) = (builder.clone().build().expect("a client"), builder.build_tokio());
    thread::scope(|scope| {
        for owner in 0..THREADS {
            let client = &client;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let (key, value) = (format!("{owner}:{round}"), format!("value {owner}:{round}"));
                    client.set(key.as_bytes(), value.as_bytes()).send().expect("stored");
                    let read = client.get(key.as_bytes()).expect("an answer").expect("a hit");
                    assert_eq!(read.bytes, value.as_bytes());
                    let all = format!("all:{round}");
                    client.incr(all.as_bytes(), 1).or_make(1, Ttl::Forever).send().expect("counted");
                }
            });
        }
    });
    let counters = client.counters();
    assert_eq!((counters.dials, counters.overdue), (8, 0), "{counters:?}");
    assert_eq!(counters.requests, (3 * THREADS * ROUNDS) as u64);
    for round in 0..ROUNDS {
        let all = client.get(format!("all:{round}").as_bytes()).expect("an answer").expect("a hit");
        assert_eq!(all.bytes, THREADS.to_string().as_bytes());
    }
    // The same keys by tasks, over lanes of their own.
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = awaited.expect("a client");
        for owner in 0..THREADS {
            for round in 0..ROUNDS {
                let read = client.get(format!("{owner}:{round}").as_bytes()).await;
                let value = format!("value {owner}:{round}");
                assert_eq!(read.expect("an answer").expect("a hit").bytes, value.as_bytes());
            }
        }
        let counters = client.counters();
        assert_eq!((counters.dials, counters.requests), (8, (THREADS * ROUNDS) as u64));
        client.close();
    });
}
