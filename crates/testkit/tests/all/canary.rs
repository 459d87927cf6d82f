//! A canary beside attackers: who asks for a key does not wait for what others have piled up, and a server under attack
//! stops when it is told to.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use larder_testkit::process::Server;

/// Bytes of the large value.
const LARGE: usize = 12 << 20;
/// Bytes of an attacker's pipeline.
const PIPELINE: usize = 24 << 10;
/// How often the canary asks beside an attack.
const ASKS: usize = 10;
/// What it waits at most, on a machine that is busy otherwise too. What an attacker has piled up takes longer than that.
const WAIT: Duration = Duration::from_secs(2);
/// The server's 30 seconds, and what a busy machine needs besides.
const STOP: Duration = Duration::from_secs(60);

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
    bytes.into_bytes()
}

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
    let server = Server::start(&["-m", "128", "-t", "1"]).expect("larder starts");
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
    server
}

/// Pipelines of dear commands, each for an attacker.
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
        (
            "SWAPDB",
            fill([command(&["BITOP", "NOT", "made", "other"]), command(&["SWAPDB", "5", "6"])].concat()),
        ),
    ]
}

/// The canary asks some times; the longest that it waited.
fn sing(canary: &mut TcpStream) -> Duration {
    let asks = (0..ASKS).map(|_| {
        let asked = Instant::now();
        ask(canary, &command(&["GET", "nothing"]), b"$-1\r\n");
        asked.elapsed()
    });
    asks.max().unwrap_or_default()
}

#[test]
#[ignore = "time: how long a canary waits"]
fn a_canary_waits_for_none_of_the_attacks_and_the_server_stops_under_all() {
    let mut server = server();
    let mut canary = connect(&server);
    let mut attackers = Vec::new();
    // They add up: those that came before go on.
    for (name, pipeline) in attacks() {
        let mut attacker = connect(&server);
        attacker.write_all(&pipeline).expect("sent");
        attackers.push(attacker);
        let longest = sing(&mut canary);
        assert!(longest < WAIT, "{name}: {longest:?}");
    }
    // Many of one kind at once.
    for (name, pipeline) in attacks().into_iter().take(3) {
        for _ in 0..10 {
            let mut attacker = connect(&server);
            attacker.write_all(&pipeline).expect("sent");
            attackers.push(attacker);
        }
        let longest = sing(&mut canary);
        assert!(longest < WAIT, "many {name}: {longest:?}");
    }
    // Not all of what they ask for is done by then.
    let still = |attacker: &mut TcpStream| {
        attacker.set_nonblocking(true).expect("a setting");
        matches!(attacker.read(&mut [0; 64]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    assert!(attackers.iter_mut().filter_map(|attacker| still(attacker).then_some(())).count() > 0);
    server.terminate();
    assert!(server.wait(STOP).expect("it stops").success());
}
