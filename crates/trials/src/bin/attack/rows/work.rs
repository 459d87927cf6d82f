//! Requests whose work must not grow faster than their length.

use super::{PATIENCE, prepare, set, within};
use crate::stage::Stage;
use crate::wire::{connect, exchange, exchange_last, said, shown};
use larder_testkit::talk::encode;
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

fn mset(stage: &Stage, keys: usize, most_ms: u64) -> Result<String, String> {
    let names: Vec<String> = (0..keys).map(|n| format!("key:{n}")).collect();
    let mut words = vec![&b"MSET"[..]];
    for name in &names {
        words.extend([name.as_bytes(), b"v"]);
    }
    let (took, reply) = exchange(stage.resp, &encode(&words), PATIENCE)?;
    if !reply.starts_with(b"+OK") {
        return Err(shown(&reply));
    }
    within(took, most_ms, &format!("{keys} keys"))
}

pub(super) fn mset_100k(stage: &Stage) -> Result<String, String> {
    mset(stage, 100_000, 500)
}

pub(super) fn mset_400k(stage: &Stage) -> Result<String, String> {
    mset(stage, 400_000, 1000)
}

/// Runs a transaction of the requests in `queue`; its replies must end with `ends`.
fn exec(stage: &Stage, queue: &[u8], ends: &[u8], (most_ms, what): (u64, &str)) -> Result<String, String> {
    let requests = [&said("MULTI"), queue, &said("EXEC")].concat();
    let (took, reply) = exchange_last(stage.resp, &requests, PATIENCE)?;
    if reply.ends_with(ends) { within(took, most_ms, what) } else { Err(shown(&reply)) }
}

pub(super) fn exec_of_sets(stage: &Stage) -> Result<String, String> {
    let sets: Vec<u8> = (0..80_000).flat_map(|n| said(&format!("SET key:{n} v"))).collect();
    exec(stage, &sets, &b"+OK\r\n".repeat(20), (1000, "80,000 SETs"))
}

pub(super) fn exec_of_incrs(stage: &Stage) -> Result<String, String> {
    exec(stage, &said("INCR n").repeat(100_000), b":99999\r\n:100000\r\n", (2000, "100,000 INCR"))
}

/// GETEX of a value of 16,000 bytes; a reply for which there is no memory is an error instead.
pub(super) fn exec_of_getexs(stage: &Stage) -> Result<String, String> {
    exec(stage, &said("GETEX k PERSIST").repeat(100_000), b"\r\n", (5000, "100,000 GETEX of 16 KB"))
}

pub(super) fn exec_of_many_keys(stage: &Stage) -> Result<String, String> {
    let names: Vec<String> = (0..200_000).map(|n| format!("key:{n}")).collect();
    let (mut mset, mut del) = (vec![&b"MSET"[..]], vec![&b"DEL"[..]]);
    names.iter().for_each(|name| mset.extend([name.as_bytes(), b"v"]));
    del.extend(names.iter().map(|name| name.as_bytes()));
    let queue = [encode(&mset), encode(&del)].concat();
    exec(stage, &queue, b"+OK\r\n:200000\r\n", (5000, "MSET and DEL of 200,000 keys"))
}

pub(super) fn exec_of_elements(stage: &Stage) -> Result<String, String> {
    let names: Vec<String> = (0..60_000).map(|n| format!("{n:x}")).collect();
    let queue = ["SADD set", "HSET hash", "RPUSH list", "SREM set", "HDEL hash"].map(|line| {
        let words = line.split(' ').map(str::as_bytes);
        encode(&words.chain(names.iter().map(|name| name.as_bytes())).collect::<Vec<_>>())
    });
    let ends = b":60000\r\n:30000\r\n:60000\r\n:60000\r\n:30000\r\n";
    exec(stage, &queue.concat(), ends, (5000, "SADD, HSET, RPUSH, SREM, HDEL of 60,000 words"))
}

pub(super) fn psubscribe(stage: &Stage) -> Result<String, String> {
    let names: Vec<String> = (0..150_000).map(|n| format!("pattern:{n}*")).collect();
    let mut words = vec![&b"PSUBSCRIBE"[..]];
    words.extend(names.iter().map(|name| name.as_bytes()));
    // In RESP3 a subscriber may send any command: here PUBSUB NUMPAT, and the ECHO that ends the exchange.
    let requests = [said("HELLO 3"), encode(&words), said("PUBSUB NUMPAT")].concat();
    let (took, reply) = exchange_last(stage.resp, &requests, PATIENCE)?;
    if !reply.ends_with(b":150000\r\n:150000\r\n") {
        return Err(shown(&reply));
    }
    within(took, 2000, "150,000 patterns")
}

/// A pattern that matches nothing, but makes a simple matcher try every combination.
fn evil(bytes: usize) -> Vec<u8> {
    let mut pattern = b"*a".repeat(bytes / 2);
    pattern.push(b'b');
    pattern
}

pub(super) fn evil_keys(stage: &Stage) -> Result<(), String> {
    let keys = (0..20u8).map(|n| set(&[vec![b'a'; 65_000], vec![n]].concat(), b""));
    prepare(stage, &keys.collect::<Vec<_>>().concat())
}

pub(super) fn scan_match(stage: &Stage) -> Result<String, String> {
    let scan = encode(&[b"SCAN", b"0", b"MATCH", &evil(30_000), b"COUNT", b"1000"]);
    let (took, reply) = exchange(stage.resp, &scan, PATIENCE)?;
    if !reply.starts_with(b"*2\r\n$1\r\n0\r\n*0\r\n") {
        return Err(shown(&reply));
    }
    within(took, 1000, "20 keys of 64 KB")
}

pub(super) fn publish_glob(stage: &Stage) -> Result<String, String> {
    let mut patterns = vec![evil(60_000), dear_class()];
    patterns.extend((0..100).map(|n| [format!("*{n:03}").as_bytes(), &b"?".repeat(4_000), b"*"].concat()));
    listen(stage, &patterns)?;
    let channel = vec![b'a'; 128 << 10];
    let requests = encode(&[b"PUBLISH", &channel, b"m"]).repeat(3);
    let (took, reply) = exchange(stage.resp, &requests, PATIENCE)?;
    if !reply.starts_with(b":0\r\n:0\r\n:0\r\n") {
        return Err(shown(&reply));
    }
    within(took, 10_000, "3 × PUBLISH to a channel of 128 KiB, 102 patterns")
}

/// A pattern with the longest possible class.
fn dear_class() -> Vec<u8> {
    [&b"*["[..], &b"b".repeat(4_090), b"]*"].concat()
}

/// Connects a client that subscribes to patterns, and reads its messages until the attack is over.
fn listen(stage: &Stage, patterns: &[Vec<u8>]) -> Result<(), String> {
    let words: Vec<&[u8]> =
        std::iter::once(&b"PSUBSCRIBE"[..]).chain(patterns.iter().map(Vec::as_slice)).collect();
    let mut stream = connect(stage.resp)?;
    stream.write_all(&encode(&words)).map_err(|error| error.to_string())?;
    let mut reader = stream.try_clone().map_err(|error| error.to_string())?;
    thread::spawn(move || {
        let mut room = vec![0; 1 << 20];
        while matches!(reader.read(&mut room), Ok(1..)) {}
    });
    stage.open.lock().expect("not poisoned").push(stream);
    let began = Instant::now();
    loop {
        let (_, reply) = exchange(stage.resp, &said("PUBSUB NUMPAT"), PATIENCE)?;
        if reply.starts_with(format!(":{}\r\n", patterns.len()).as_bytes()) {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("patterns: {}", shown(&reply)));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn keys_by_class(stage: &Stage) -> Result<String, String> {
    let keys = encode(&[b"KEYS", &dear_class()]);
    let scan = encode(&[b"SCAN", b"0", b"MATCH", &dear_class(), b"COUNT", b"1000000"]);
    let (took, reply) = exchange(stage.resp, &[keys.repeat(20), scan].concat(), PATIENCE)?;
    if !reply.starts_with(&[&b"*0\r\n".repeat(20)[..], b"*2\r\n$1\r\n0\r\n*0\r\n"].concat()) {
        return Err(shown(&reply));
    }
    within(took, 10_000, "20 × KEYS and SCAN of 100,000 keys with a class of 4,090 bytes")
}

/// Connects subscribers of a thousand patterns, and of all events.
pub(super) fn listeners(stage: &Stage) -> Result<(), String> {
    prepare(stage, &said("CONFIG SET notify-keyspace-events KEA"))?;
    listen(stage, &(0..1_000).map(|n| format!("pattern:{n}*").into_bytes()).collect::<Vec<_>>())
}

pub(super) fn events(stage: &Stage) -> Result<String, String> {
    let names: Vec<String> = (0..50_000).map(|n| format!("key:{n}")).collect();
    let mut set = vec![&b"MSET"[..]];
    names.iter().for_each(|name| set.extend([name.as_bytes(), b"v"]));
    let delete: Vec<&[u8]> =
        std::iter::once(&b"DEL"[..]).chain(names.iter().map(|name| name.as_bytes())).collect();
    let pipeline = said("INCR n").repeat(5_000);
    let (took, reply) = exchange(stage.resp, &[encode(&set), encode(&delete), pipeline].concat(), PATIENCE)?;
    if !reply.starts_with(b"+OK\r\n:50000\r\n:1\r\n:2\r\n") {
        return Err(shown(&reply));
    }
    within(took, 20_000, "MSET and DEL of 50,000 keys and 5,000 × INCR, told to 1,000 patterns")
}

/// Words of a request.
const WORDS: usize = 300_000;

/// Sends requests of very many words; each reply must begin as its row says.
fn of_words(stage: &Stage, rows: &[(&str, &str)]) -> Result<String, String> {
    let names: Vec<String> = (0..WORDS).map(|n| format!("{n:x}")).collect();
    let mut said = Vec::new();
    for (line, begins) in rows {
        let words: Vec<&[u8]> =
            line.split(' ').map(str::as_bytes).chain(names.iter().map(|name| name.as_bytes())).collect();
        let (took, reply) = exchange(stage.resp, &encode(&words), PATIENCE)?;
        if !reply.starts_with(begins.as_bytes()) {
            return Err(format!("{line}: {}", shown(&reply)));
        }
        said.push(within(took, 5_000, line)?);
    }
    Ok(format!("{WORDS} words: {}", said.join(", ")))
}

pub(super) fn words(stage: &Stage) -> Result<String, String> {
    of_words(
        stage,
        &[
            ("COMMAND DOCS", "*0\r\n"),
            ("COMMAND INFO", "*300000\r\n"),
            ("LATENCY HISTOGRAM", "-ERR too many arguments"),
            ("INFO", "-ERR too many arguments"),
            ("COMMAND GETKEYS MGET", "-ERR too many arguments"),
            ("PUBSUB NUMSUB", "*600000\r\n"),
            ("SADD set", ":300000\r\n"),
            ("HSET hash", ":150000\r\n"),
            ("SREM set", ":300000\r\n"),
        ],
    )
}

pub(super) fn patterns(stage: &Stage) -> Result<(), String> {
    for part in 0..2 {
        let names: Vec<String> = (0..4869).map(|n| format!("*{}", "?".repeat(n % 7))).collect();
        let names: Vec<String> = names
            .iter()
            .enumerate()
            .map(|(n, name)| format!("{name}*{}", "*".repeat(n / 7 + part * 700)))
            .collect();
        let mut words = vec![&b"PSUBSCRIBE"[..]];
        words.extend(names.iter().map(|name| name.as_bytes()));
        let mut stream = connect(stage.resp)?;
        stream.write_all(&encode(&words)).map_err(|error| error.to_string())?;
        let mut reader = stream.try_clone().map_err(|error| error.to_string())?;
        thread::spawn(move || {
            let mut room = vec![0; 1 << 20];
            while matches!(reader.read(&mut room), Ok(1..)) {}
        });
        stage.open.lock().expect("not poisoned").push(stream);
    }
    thread::sleep(Duration::from_millis(500));
    Ok(())
}

pub(super) fn publish_1mb(stage: &Stage) -> Result<String, String> {
    let message = vec![b'm'; 1 << 20];
    let began = Instant::now();
    let (_, reply) = exchange(stage.resp, &encode(&[b"PUBLISH", b"channel", &message]), PATIENCE)?;
    if !reply.starts_with(b":9738\r\n") {
        return Err(shown(&reply));
    }
    within(began.elapsed(), 1000, "told 9,738 patterns")
}
