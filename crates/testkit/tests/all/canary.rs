//! A canary on each worker beside attackers: a client that asks for a key does not wait for work that other clients have queued,
//! and a server under attack stops on a signal. Time that the machine itself takes is not counted (`testkit/src/canary.rs`).

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use larder_testkit::PATIENCE;
use larder_testkit::canary::{self, Excess, Heard};
use larder_testkit::process::Server;
use larder_testkit::stage::Null;
use larder_testkit::talk::encode_text as command;
use larder_testkit::timing::at_most;

/// Bytes of the large value.
const LARGE: usize = 12 << 20;
/// Elements of each collection, and how many of them one command adds.
const ELEMENTS: usize = 100_000;
const BLOCK: usize = 1000;
/// Bytes of an attacker's pipeline.
const PIPELINE: usize = 24 << 10;
/// Time that the canaries measure beside an attack before the next one is added.
const BESIDE: Duration = Duration::from_millis(150);
/// The longest wait of a canary beyond the machine's own waits. It is meant for a release build.
const WAIT: Duration = Duration::from_millis(10 * SLOWER);
/// A debug build checks each sum and index, is hardly optimised, and runs beside other tests. So this test finds waits of more
/// than half a second; `cargo xtask attack` and the soak look for milliseconds.
const SLOWER: u64 = if cfg!(debug_assertions) { 50 } else { 1 };

fn connect(server: &Server) -> TcpStream {
    let stream = server.connect().expect("a connection");
    stream.set_nodelay(true).expect("a setting");
    stream
}

fn ask(stream: &mut TcpStream, request: &[u8], reply: &[u8]) {
    stream.write_all(request).expect("sent");
    let mut bytes = vec![0; reply.len()];
    stream.read_exact(&mut bytes).expect("a reply");
    assert_eq!(String::from_utf8_lossy(&bytes), String::from_utf8_lossy(reply));
}

/// A server with a large value and many keys.
fn server() -> Server {
    let server = Server::start(&["-m", "128", "-t", "2"]).expect("larder starts");
    let mut stream = connect(&server);
    for key in ["large", "other"] {
        let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${LARGE}\r\n", key.len());
        let set = [head.as_bytes(), &vec![0xa5; LARGE], b"\r\n"].concat();
        ask(&mut stream, &set, b"+OK\r\n");
    }
    for key in ["one", "two"] {
        ask(&mut stream, &command(&["SET", key, &"ab".repeat(700)]), b"+OK\r\n");
    }
    let block = "x".repeat(900_000);
    ask(
        &mut connect(&server),
        format!("set block 0 0 {}\r\n{block}\r\n", block.len()).as_bytes(),
        b"STORED\r\n",
    );
    for block in 0..20 {
        let sets: Vec<u8> =
            (0..2000).flat_map(|n| command(&["SET", &format!("key:{block}:{n}"), "v"])).collect();
        ask(&mut stream, &sets, &b"+OK\r\n".repeat(2000));
    }
    for (name, word) in
        [("hash", "HSET"), ("list", "RPUSH"), ("set", "SADD"), ("members", "SADD"), ("sorted", "ZADD")]
    {
        for block in 0..ELEMENTS / BLOCK {
            let mut words = vec![word.to_owned(), name.to_owned()];
            for n in block * BLOCK..(block + 1) * BLOCK {
                match word {
                    "HSET" => words.extend([format!("field:{n}"), "v".to_owned()]),
                    "ZADD" => words.extend([(n % 1000).to_string(), format!("member:{n}")]),
                    _ => words.push(format!("{name}:{n}")),
                }
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let count = if word == "RPUSH" { (block + 1) * BLOCK } else { BLOCK };
            ask(&mut stream, &command(&words), format!(":{count}\r\n").as_bytes());
        }
    }
    server
}

/// Pipelines of expensive commands, one for each attacker.
fn attacks() -> Vec<(&'static str, Vec<u8>)> {
    let fill = |one: Vec<u8>| one.repeat(PIPELINE.div_ceil(one.len()));
    let of = |words: &[&str]| fill(command(words));
    let grows =
        (1..600).flat_map(|n| command(&["SETBIT", "large", &(8 * (LARGE + n)).to_string(), "1"])).collect();
    let transaction =
        [command(&["MULTI"]), command(&["KEYS", "*"]).repeat(2000), command(&["EXEC"])].concat();
    let goes =
        fill([command(&["RENAME", "other", "third"]), command(&["RENAME", "third", "other"])].concat());
    vec![
        ("BITCOUNT", of(&["BITCOUNT", "large"])),
        ("APPEND", of(&["APPEND", "large", "x"])),
        ("SETBIT", grows),
        ("RENAME", goes),
        ("BITOP", of(&["BITOP", "XOR", "made", "large", "other"])),
        ("COPY", of(&["COPY", "large", "made", "REPLACE"])),
        ("LCS", of(&["LCS", "one", "two", "LEN"])),
        ("INFO", of(&["INFO"])),
        ("KEYS", of(&["KEYS", "nothing*"])),
        ("SCAN", of(&["SCAN", "0", "COUNT", "100000", "MATCH", "nothing*"])),
        ("append", fill(b"append block 0 0 1 noreply\r\nx\r\n".to_vec())),
        ("prepend", fill(b"prepend block 0 0 1 noreply\r\nx\r\n".to_vec())),
        ("EXEC", transaction),
        ("HGETALL", of(&["HGETALL", "hash"])),
        ("LRANGE", of(&["LRANGE", "list", "0", "-1"])),
        ("LPOS", of(&["LPOS", "list", "nothing"])),
        ("LREM", of(&["LREM", "list", "0", "nothing"])),
        ("LINSERT", of(&["LINSERT", "list", "BEFORE", "nothing", "x"])),
        ("SINTERCARD", of(&["SINTERCARD", "2", "set", "members"])),
        ("SUNIONSTORE", of(&["SUNIONSTORE", "made:set", "set", "members"])),
        ("ZUNIONSTORE", of(&["ZUNIONSTORE", "made:sorted", "2", "sorted", "set"])),
        ("ZRANGESTORE", of(&["ZRANGESTORE", "made:sorted", "sorted", "0", "-1"])),
        ("ZREVRANGE", of(&["ZREVRANGE", "sorted", "0", "-1", "WITHSCORES"])),
        ("HSCAN", of(&["HSCAN", "hash", "0", "COUNT", "100000", "MATCH", "nothing*"])),
        (
            "EVAL",
            of(&["EVAL", "for n = 1, 100000 do redis.call('HGET', KEYS[1], 'field:' .. n) end", "1", "hash"]),
        ),
        (
            "SWAPDB",
            fill([command(&["BITOP", "NOT", "made", "other"]), command(&["SWAPDB", "5", "6"])].concat()),
        ),
    ]
}

/// Ends the canaries, also when the attack panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Runs the attacks while canaries measure; each attack is recorded with its time in microseconds.
fn attack(server: &Server, null: &Null, noted: &mut Vec<(String, u64)>) -> (Vec<TcpStream>, Heard) {
    let canaries = canary::hatch(server.id(), server.address(), null.address).expect("canaries");
    let (stop, started) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        let singing = scope.spawn(|| canaries.sing(started, || !stop.load(SeqCst)));
        let ends = Ends(&stop);
        let mut attackers = Vec::new();
        let mut add = |name: String, pipeline: &[u8], times: usize| {
            noted.push((name, started.elapsed().as_micros() as u64));
            for _ in 0..times {
                let mut attacker = connect(server);
                attacker.write_all(pipeline).expect("sent");
                attackers.push(attacker);
            }
            thread::sleep(BESIDE);
        };
        // The attacks add up: earlier attackers go on. Each attack has a client of each worker.
        for (name, pipeline) in attacks() {
            add(name.to_owned(), &pipeline, 2);
        }
        // Many attackers of one kind at once.
        for (name, pipeline) in attacks().into_iter().take(3) {
            add(format!("many {name}"), &pipeline, 20);
        }
        drop(ends);
        (attackers, singing.join().expect("they sing to the end").expect("they are answered"))
    })
}

#[test]
#[ignore = "time: how long a canary waits"]
fn canaries_wait_for_none_of_the_attacks_and_the_server_stops_under_all() {
    at_most(WAIT, longest_wait);
}

/// Returns the longest wait of a canary beside all attacks; the server stops under these attacks.
fn longest_wait() -> Duration {
    let mut server = server();
    let null = Null::start().expect("a server of fixed replies");
    let mut noted = Vec::new();
    let (mut attackers, heard) = attack(&server, &null, &mut noted);
    // SWAPDB lets one worker wait for another. On a busy machine it also waits for that worker's core: this
    // time is subtracted.
    let waited_us = |excess: &Excess| excess.us.saturating_sub(excess.sample.others_stood_us);
    let mut longest_us = 0;
    for worker in 0..heard.workers.len() {
        let excesses = heard.excesses(worker);
        let most = excesses.iter().max_by_key(|excess| waited_us(excess)).expect("somebody asks each worker");
        let beside = noted.partition_point(|(_, at_us)| *at_us <= most.sample.asked_us);
        let name = noted.get(beside.saturating_sub(1)).map(|(name, _)| name);
        println!("worker {worker}, {name:?}: {} µs of {most:?}", waited_us(most));
        longest_us = longest_us.max(waited_us(most));
    }
    // Some of the attackers' requests are not answered by then.
    let still = |attacker: &mut TcpStream| {
        attacker.set_nonblocking(true).expect("a setting");
        matches!(attacker.read(&mut [0; 64]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    assert!(attackers.iter_mut().filter_map(|attacker| still(attacker).then_some(())).count() > 0);
    server.terminate();
    assert!(server.wait(PATIENCE).expect("it stops").success());
    Duration::from_micros(longest_us)
}
