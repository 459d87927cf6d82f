//! `-m` bounds the process beside RESP clients that hold as much as they may: queues of MULTI, watched keys, subscribers that
//! read nothing. The cache is full meanwhile, and goes on.

use larder_testkit::PATIENCE;
use larder_testkit::bounded::{Bounded, is_closed, number, random};
use larder_testkit::client::Client;
use larder_testkit::resp::{self, line};
use larder_testkit::talk::encode;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const MEGABYTES: u64 = 64;
const CLIENTS: usize = 200;

fn full() -> (Bounded, Client) {
    full_of(MEGABYTES, "2")
}

fn full_of(megabytes: u64, threads: &str) -> (Bounded, Client) {
    let bounded = Bounded::start(megabytes, &["-t", threads]);
    let mut client = bounded.client();
    let items = megabytes as usize * 1400;
    bounded.fill(&mut client, "k", random(2000).take(items), "a full cache");
    assert!(number(&mut client, "evictions") > 0);
    (bounded, client)
}

/// Checks that the cache stores new items, and that the process is within its limit.
fn goes_on(bounded: &Bounded, client: &mut Client, what: &str) {
    bounded.fill(client, "s", random(2000).take(2_000), what);
}

/// Sends a request; returns its reply of one line, without the line's end.
fn ask(stream: &mut TcpStream, words: &[&[u8]]) -> String {
    resp::ask(stream, &encode(words))
}

#[test]
#[ignore = "memory: what a process holds in real time"]
fn queues_of_transactions() {
    let (bounded, mut client) = full();
    let value = vec![b'q'; 100_000];
    let mut clients = Vec::new();
    let (mut queued, mut refused) = (0, 0);
    for n in 0..CLIENTS {
        let mut stream = bounded.server.connect().expect("a connection");
        assert_eq!(ask(&mut stream, &[b"MULTI"]), "+OK");
        for _ in 0..4 {
            match ask(&mut stream, &[b"SET", format!("q{n}").as_bytes(), &value]) {
                reply if reply == "+QUEUED" => queued += value.len() as u64,
                // The server keeps no further command of such a client, whatever its reply is.
                reply if reply.starts_with("-OOM") => {
                    refused += 1;
                    break;
                }
                reply => panic!("{reply}"),
            }
        }
        clients.push(stream);
        bounded.stays_within("queues");
        if n % 20 == 0 {
            goes_on(&bounded, &mut client, "sets beside queues");
        }
    }
    let share = bounded.memory_bytes / 16;
    assert!(refused > 0 && queued <= share && queued > share / 4, "{queued} queued, {refused} refused");
    // A client whose whole transaction is in the queue can run it.
    assert_eq!(ask(&mut clients[0], &[b"EXEC"]), "*4");
    (0..4).for_each(|_| assert_eq!(line(&mut clients[0]), "+OK"));
    assert!(ask(&mut clients[CLIENTS - 1], &[b"EXEC"]).starts_with("-EXECABORT"));
    goes_on(&bounded, &mut client, "after queues");
}

#[test]
#[ignore = "memory: what a process holds in real time"]
fn watched_keys() {
    let (bounded, mut client) = full();
    let mut clients = Vec::new();
    let (mut watched, mut refused) = (0, 0);
    for n in 0..CLIENTS {
        let mut stream = bounded.server.connect().expect("a connection");
        for piece in 0..4 {
            let names: Vec<String> = (0..500).map(|key| format!("watched-{n}-{piece}-{key}")).collect();
            let words: Vec<&[u8]> =
                [&b"WATCH"[..]].into_iter().chain(names.iter().map(String::as_bytes)).collect();
            match ask(&mut stream, &words) {
                reply if reply == "+OK" => watched += 500,
                reply if reply.starts_with("-ERR too many") => refused += 1,
                reply => panic!("{reply}"),
            }
        }
        clients.push(stream);
        bounded.stays_within("watched keys");
        if n % 20 == 0 {
            goes_on(&bounded, &mut client, "sets beside watched keys");
        }
    }
    assert!(refused > 0 && watched >= 8_000, "{watched} watched, {refused} refused");
    drop(clients);
    goes_on(&bounded, &mut client, "after watched keys");
}

#[test]
#[ignore = "memory: what a process holds in real time"]
fn subscribers_that_read_nothing() {
    let (bounded, mut client) = full();
    let mut clients: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut stream = bounded.server.connect().expect("a connection");
            stream.write_all(&encode(&[b"SUBSCRIBE", b"news"])).expect("sent");
            stream
        })
        .collect();
    let mut publisher = bounded.server.connect().expect("a connection");
    let message = vec![b'm'; 100_000];
    let started = Instant::now();
    let mut round = 0;
    while ask(&mut publisher, &[b"PUBLISH", b"news", &message]) != ":0" {
        assert!(started.elapsed() < PATIENCE, "nobody is closed");
        bounded.stays_within("subscribers");
        round += 1;
        if round % 20 == 0 {
            goes_on(&bounded, &mut client, "sets beside subscribers");
        }
    }
    assert!(clients.iter_mut().all(is_closed), "all have missed something");
    goes_on(&bounded, &mut client, "after subscribers");
}

/// Number of clients that were closed for unread replies.
fn cut(stream: &mut TcpStream) -> usize {
    let head = ask(stream, &[b"INFO", b"stats"]);
    let bytes = head.strip_prefix('$').and_then(|bytes| bytes.parse::<usize>().ok()).expect("a text");
    let mut text = vec![0; bytes + 2];
    stream.read_exact(&mut text).expect("as much as it says");
    let text = String::from_utf8(text).expect("a text");
    let cut = text.lines().find_map(|line| line.strip_prefix("client_output_buffer_limit_disconnections:"));
    cut.and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
#[ignore = "memory: what a process holds in real time"]
fn monitors_that_read_nothing() {
    // Lines for monitors may take a quarter of the memory on several threads.
    let (bounded, mut client) = full_of(256, "4");
    let mut clients: Vec<TcpStream> = (0..2 * CLIENTS)
        .map(|_| {
            let mut stream = bounded.server.connect().expect("a connection");
            assert_eq!(ask(&mut stream, &[b"MONITOR"]), "+OK");
            stream
        })
        .collect();
    // Each line of either client is for all monitors.
    let mut busy = [(); 2].map(|()| bounded.server.connect().expect("a connection"));
    let value = vec![b'm'; 1000];
    let commands: Vec<u8> =
        (0..200).flat_map(|n| encode(&[b"SET", format!("m{n}").as_bytes(), &value])).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // The limit holds at any time, not only between two commands.
        let watch = scope.spawn(|| {
            while !over.load(Relaxed) {
                bounded.stays_within("monitors");
                thread::sleep(Duration::from_millis(1));
            }
        });
        let started = Instant::now();
        while cut(&mut busy[0]) < clients.len() && !watch.is_finished() {
            assert!(started.elapsed() < PATIENCE, "some are never closed");
            busy.iter_mut().for_each(|stream| stream.write_all(&commands).expect("sent"));
            for stream in &mut busy {
                (0..200).for_each(|_| assert_eq!(line(stream), "+OK"));
            }
        }
        over.store(true, Relaxed);
    });
    assert!(clients.iter_mut().all(is_closed), "all have missed something");
    goes_on(&bounded, &mut client, "after monitors");
}
