//! Attackers (`--attackers`): requests that are legal and small, or incomplete, and ask for much, beside all
//! other traffic. Their own replies are not judged. The other clients check that no other client gets a wrong
//! reply, waits, or is refused for it.

use crate::random::Random;
use crate::world::{Cause, World};
use larder_testkit::talk::{encode, encode_text};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// How long an attacker waits for its replies. A phase does not end meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two of an attacker's pipelines.
const PAUSE: Duration = Duration::from_millis(20);
/// Connections that each send a part of a request, how long they then stay silent, and the bytes of the part.
/// Together these are within what requests may hold, so no other client is closed for them.
const HALF_OPEN: usize = 20;
/// Subscribers of a message; they read nothing.
const LISTENERS: usize = 50;
const STANDS: Duration = Duration::from_millis(300);
const PART_BYTES: usize = 31_000;
/// Bytes of the values that commands search and copy.
const LARGE_BYTES: usize = 500_000;
const MIDDLE_BYTES: usize = 16_000;
/// Words of a command on elements.
const WORDS: usize = 65_536;
const END: &[u8] = b"attack-is-over\r\n";

/// Pipelines: lines in order, each with the number of its copies. The keys `large`, `other` and `middle`
/// exist.
const PIPELINES: &[(&str, &[(usize, &str)])] = &[
    ("BITCOUNT", &[(200, "BITCOUNT attack:large")]),
    ("APPEND", &[(30, "APPEND attack:large x")]),
    ("SETBIT", &[(30, "SETBIT attack:large 3999999 1")]),
    ("RENAME", &[(1, "RENAME attack:large attack:away"), (1, "RENAME attack:away attack:large")]),
    ("BITOP", &[(20, "BITOP XOR attack:to attack:large attack:other"), (1, "DEL attack:to")]),
    ("COPY", &[(20, "COPY attack:large attack:to REPLACE"), (1, "DEL attack:to")]),
    ("DUMP", &[(20, "DUMP attack:large")]),
    ("LCS", &[(3, "LCS attack:short1 attack:short2")]),
    ("INFO", &[(50, "INFO everything")]),
    ("KEYS", &[(5, "KEYS none*")]),
    ("SCAN", &[(10, "SCAN 0 MATCH none* COUNT 100000")]),
    ("CLIENT LIST", &[(100, "CLIENT LIST")]),
    ("COMMAND DOCS", &[(5, "COMMAND DOCS")]),
    ("MULTI", &[(1, "MULTI"), (300, "GET attack:middle"), (1, "EXEC")]),
    ("EXEC of INCR", &[(1, "MULTI"), (100_000, "INCR attack:n"), (1, "EXEC")]),
    ("EXEC of PUBLISH", &[(1, "MULTI"), (2000, "PUBLISH attack:channel x"), (1, "EXEC")]),
    ("EXEC of GETEX", &[(1, "MULTI"), (2000, "GETEX attack:middle PERSIST"), (1, "EXEC")]),
    ("cheap", &[(3000, "TTL attack:large"), (3000, "EXISTS a b c d")]),
];

/// Runs until the soak ends.
pub fn run(world: &World, seed: u64, number: u64) {
    let mut random = Random::of(seed, (3 << 32) + number);
    while world.runs() {
        let (name, outcome) = world.within(|_| {
            world.begin(Cause::Replies);
            let done = match random.below(PIPELINES.len() + 6) {
                0 => ("half-open", half_open(world)),
                1 => ("MGET", converse(world, &many_of_one())),
                2 => ("MSET", converse(world, &many_pairs())),
                3 => ("PUBLISH", told(world)),
                4 => ("KEYS that nobody reads", unread(world)),
                5 => ("EXEC of elements", converse(world, &many_elements())),
                n => {
                    let (name, lines) = PIPELINES[n - 6];
                    (name, converse(world, &pipeline(lines)))
                }
            };
            world.end(Cause::Replies);
            done
        });
        let told = if outcome.is_ok() { "" } else { ", not to its end" };
        world.count(&format!("attack: {name}{told}"), 1);
        thread::sleep(PAUSE);
    }
}

fn said(line: &str) -> Vec<u8> {
    encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// Requests that store the values for the pipelines.
fn values() -> Vec<u8> {
    let of =
        |key: &str, bytes: usize| encode(&[b"SET", format!("attack:{key}").as_bytes(), &vec![b'a'; bytes]]);
    [
        of("large", LARGE_BYTES),
        of("other", LARGE_BYTES),
        of("middle", MIDDLE_BYTES),
        of("short1", 1000),
        of("short2", 1000),
    ]
    .concat()
}

fn pipeline(lines: &[(usize, &str)]) -> Vec<u8> {
    let lines = lines.iter().flat_map(|(times, line)| said(line).repeat(*times));
    values().into_iter().chain(lines).collect()
}

/// A request with a reply many times as long.
fn many_of_one() -> Vec<u8> {
    let mut words: Vec<&[u8]> = vec![b"MGET"];
    words.extend(std::iter::repeat_n(&b"attack:middle"[..], 2000));
    [values(), encode(&words)].concat()
}

/// A write of very many pairs of a few keys.
fn many_pairs() -> Vec<u8> {
    let mut words: Vec<&[u8]> = vec![b"MSET"];
    for _ in 0..50_000 {
        words.extend([&b"attack:n"[..], b"1", b"attack:to", b"2"]);
    }
    encode(&words)
}

/// A transaction of commands on very many elements.
fn many_elements() -> Vec<u8> {
    let words: Vec<String> = (0..WORDS).map(|n| n.to_string()).collect();
    let of = |head: [&'static str; 2]| {
        let all: Vec<&str> = head.into_iter().chain(words.iter().map(String::as_str)).collect();
        encode_text(&all)
    };
    let (sadd, hset) = (of(["SADD", "attack:set"]), of(["HSET", "attack:hash"]));
    [said("MULTI"), sadd, hset, of(["ZADD", "attack:sorted"]), said("EXEC")].concat()
}

/// Sends messages to many subscribers that do not read them.
fn told(world: &World) -> io::Result<()> {
    let mut open = Vec::new();
    for _ in 0..LISTENERS {
        let mut stream = TcpStream::connect(world.ports[1])?;
        stream.write_all(&said("SUBSCRIBE attack:channel"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.read_exact(&mut [0; 5])?;
        open.push(stream);
    }
    converse(world, &encode(&[b"PUBLISH", b"attack:channel", &vec![b'm'; LARGE_BYTES]]).repeat(4))
}

/// Sends requests with long replies, reads nothing, and disconnects.
fn unread(world: &World) -> io::Result<()> {
    let mut open = Vec::new();
    for _ in 0..HALF_OPEN {
        let mut stream = TcpStream::connect(world.ports[1])?;
        stream.write_all(&said("KEYS *").repeat(3))?;
        open.push(stream);
    }
    thread::sleep(STANDS);
    Ok(())
}

/// Sends requests, and reads all replies; the last request deletes the values.
fn converse(world: &World, requests: &[u8]) -> io::Result<()> {
    let names = ["large", "other", "middle", "short1", "short2", "away", "to", "n", "set", "hash", "sorted"]
        .map(|name| format!("attack:{name}"));
    let mut words: Vec<&[u8]> = vec![b"DEL"];
    words.extend(names.iter().map(|name| name.as_bytes()));
    let all = [requests, &encode(&words), &encode(&[b"ECHO", &END[..END.len() - 2]])].concat();
    let mut stream = TcpStream::connect(world.ports[1])?;
    let mut writer = stream.try_clone()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writer.set_write_timeout(Some(PATIENCE))?;
    let began = Instant::now();
    thread::scope(|scope| {
        let writing = scope.spawn(move || writer.write_all(&all));
        let (mut last, mut room) = (Vec::new(), vec![0; 256 << 10]);
        let outcome = loop {
            match stream.read(&mut room) {
                Ok(0) => break Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    last.extend_from_slice(&room[..count]);
                    last.drain(..last.len().saturating_sub(END.len()));
                    if last == END {
                        break Ok(());
                    }
                }
                Err(error) => break Err(error),
            }
            if began.elapsed() > PATIENCE {
                break Err(io::ErrorKind::TimedOut.into());
            }
        };
        // This also ends the thread that writes.
        let _ = stream.shutdown(std::net::Shutdown::Both);
        let _ = writing.join();
        outcome
    })
}

/// Opens connections that each send a part of a request, and then nothing.
fn half_open(world: &World) -> io::Result<()> {
    let parts = [
        encode(&[b"SET", b"attack:half", &[b'x'; PART_BYTES + 1000]]),
        format!("get {}", "y".repeat(100) + " ").repeat(320).into_bytes(),
        [&b"set attack:half 0 0 31500\r\n"[..], &[b'z'; PART_BYTES]].concat(),
    ];
    let mut open = Vec::new();
    for (number, port) in [1, 0, 0].iter().cycle().take(HALF_OPEN).enumerate() {
        let mut stream = TcpStream::connect(world.ports[*port])?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&parts[number % parts.len()][..PART_BYTES])?;
        open.push(stream);
    }
    thread::sleep(STANDS);
    Ok(())
}
