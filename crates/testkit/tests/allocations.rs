//! In steady state a request costs no heap allocation: session, store and reply.

use larder_testkit::local::{Local, LocalConnection};

/// Rounds that are counted.
const ROUNDS: u64 = 100;

/// Runs `requests` until all memory that they keep is allocated, then counts.
fn allocations(local: &mut Local, connection: &mut LocalConnection, requests: &[u8]) -> u64 {
    let mut round = || {
        local.exchange(connection, requests);
        assert!(!connection.is_closed() && !connection.sent().is_empty());
        connection.forget();
    };
    for _ in 0..1000 {
        round();
    }
    allocation_counter::measure(|| {
        for _ in 0..ROUNDS {
            round();
        }
    })
    .count_total
}

fn check(name: &str, requests: &[u8]) {
    let local = Local::new(&[]).expect("a server");
    let connection = local.connection();
    check_on(local, connection, name, requests);
}

/// As [`check`], on a connection that speaks RESP; each request is given as its words.
fn check_resp(name: &str, requests: &[&str]) {
    let mut local = Local::new(&[]).expect("a server");
    let connection = local.resp_connection();
    let requests: Vec<u8> = requests.iter().flat_map(|words| resp(words)).collect();
    check_on(local, connection, name, &requests);
}

/// `SET k v` as bytes on the wire.
fn resp(words: &str) -> Vec<u8> {
    let words: Vec<&str> = words.split(' ').collect();
    let bulk: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{bulk}", words.len()).into_bytes()
}

fn check_on(mut local: Local, mut connection: LocalConnection, name: &str, requests: &[u8]) {
    let mut text = local.connection();
    local.exchange(&mut text, b"set k 1 0 5\r\nvalue\r\nset n 0 0 3\r\n100\r\nms m 5\r\nvalue\r\n");
    assert_eq!(allocations(&mut local, &mut connection, requests), 0, "{name}");
}

#[test]
fn reads_allocate_nothing() {
    check("get", b"get k\r\n");
    check("get of a missing key", b"get missing\r\n");
    check("get of many keys", format!("get {}\r\n", "k missing n ".repeat(100)).as_bytes());
    check("gets, gat", b"gets k\r\ngat 0 k\r\ngats 0 k\r\n");
    check("mg", b"mg k v f t c k s\r\nmg missing v\r\nmg m v h l\r\n");
    check("a pipeline of gets", "get k\r\n".repeat(200).as_bytes());
}

#[test]
fn frames_allocate_nothing() {
    use larder_testkit::frames::{Way, parse};
    use larder_testkit::pattern::Captures;
    for lines in [
        &["get key=k", "getk key=missing", "getkq key=k", "touch key=k exptime=0", "gatk key=k exptime=0"][..],
        &["set key=k flags=1 exptime=0 value=value", "add key=k flags=1 exptime=0 value=value"],
        &["setq key=x flags=0 exptime=9 value=value", "append key=missing value=x", "deleteq key=x", "noop"],
        &["increment key=n delta=1 initial=0 exptime=0", "decrementq key=n delta=1 initial=0 exptime=0"],
        &["0x50 key=k value=value", "version"],
    ] {
        let bytes = |line: &&str| parse(Way::Request, line).and_then(|frame| frame.render(&Captures::new()));
        let frames: Vec<u8> = lines.iter().flat_map(|line| bytes(line).expect("a frame")).collect();
        check(lines[0], &frames);
    }
}

#[test]
fn requests_that_are_sampled_allocate_nothing() {
    for requests in [
        "get k\r\n".repeat(200),
        "set k 1 0 5\r\nvalue\r\n".repeat(200),
        "get k missing\r\nmg k v\r\ndelete x\r\n".into(),
    ] {
        let local = Local::new(&[]).expect("a server");
        // The server samples one key in several, until the sample is full.
        local.sample();
        let connection = local.connection();
        check_on(local, connection, &requests[..9], requests.as_bytes());
    }
    let mut local = Local::new(&[]).expect("a server");
    local.sample();
    let connection = local.resp_connection();
    let requests: Vec<u8> =
        ["GET k", "SET k value", "MGET k m n", "EXPIRE k 9"].iter().flat_map(|words| resp(words)).collect();
    check_on(local, connection, "RESP", &requests.repeat(50));
}

#[test]
fn writes_allocate_nothing() {
    check("set", b"set k 1 0 5\r\nvalue\r\n");
    check("set with an exptime", b"set k 1 100 5\r\nvalue\r\n");
    check("add, replace", b"add k 0 0 1\r\nx\r\nreplace k 0 0 1\r\nx\r\n");
    check("append, prepend", b"set k 1 0 1\r\nb\r\nappend k 0 0 1\r\nc\r\nprepend k 0 0 1\r\na\r\n");
    check("cas", b"cas k 0 0 1 1\r\nx\r\n");
    check("delete", b"delete k\r\nset k 0 0 1\r\nx\r\n");
    check("incr, decr", b"incr n 1\r\ndecr n 1\r\n");
    check("touch", b"touch k 100\r\ntouch missing 1\r\n");
    check("ms, md, ma", b"ms m 5 c\r\nvalue\r\nma n v\r\nmd m I\r\nmd m\r\nms m 1\r\nx\r\n");
    check("a pipeline of sets", "set k 1 0 5\r\nvalue\r\n".repeat(200).as_bytes());
}

#[test]
fn errors_allocate_nothing() {
    check("bad lines", b"bogus\r\nset k x 0 1\r\nx\r\nincr k 1\r\nmg k !\r\nget\r\n");
}

#[test]
fn large_values_allocate_nothing() {
    let set = format!("set large 0 0 100000\r\n{}\r\n", "v".repeat(100_000));
    check("set of 100 kB", set.as_bytes());
    check("set and get of 100 kB", format!("{set}get large\r\n").as_bytes());
}

#[test]
fn resp_reads_allocate_nothing() {
    check_resp("GET", &["GET k"]);
    check_resp("GET of a missing key", &["GET missing"]);
    check_resp("TTL, PTTL", &["TTL k", "PTTL n"]);
    check_resp("STRLEN", &["STRLEN k"]);
    check_resp("TYPE", &["TYPE k"]);
    check_resp("a pipeline of GETs", &["GET k"; 200]);
    check_resp("PING, inline and not", &["PING", "ECHO hello"]);
}

#[test]
fn resp_writes_allocate_nothing() {
    check_resp("SET", &["SET k value"]);
    check_resp("SET with options", &["SET k value EX 100", "SET k value PX 100 NX", "SET k v XX KEEPTTL"]);
    check_resp("SETEX, SETNX, GETSET", &["SETEX k 100 value", "SETNX k v", "GETSET k value"]);
    check_resp("INCR, DECRBY", &["INCR n", "DECRBY n 1"]);
    check_resp("DEL", &["DEL k", "SET k value"]);
    check_resp("EXPIRE, PERSIST", &["EXPIRE k 100", "PERSIST k"]);
    check_resp("APPEND", &["SET k a", "APPEND k b"]);
    check_resp("a pipeline of SETs", &["SET k value"; 200]);
}

#[test]
fn mixed_pipelines_allocate_nothing() {
    let text =
        "get k\r\nset k 1 0 5\r\nvalue\r\nmg k v\r\nms m 1\r\nx\r\nincr n 1\r\ndelete m\r\ngets k n\r\n";
    check("text", text.repeat(50).as_bytes());
    let words = ["GET k", "SET k value", "INCR n", "DEL m", "SET m x", "EXPIRE k 9"];
    check_resp("RESP", &words.repeat(50));
}

#[test]
fn resp_commands_of_several_keys_and_large_values_allocate_nothing() {
    check_resp("MGET", &["MGET k missing n m"]);
    check_resp("EXISTS, TOUCH", &["EXISTS k missing", "TOUCH k missing"]);
    check_resp("MGET of many keys", &[&format!("MGET {}", ["k missing n"; 1000].join(" "))]);
    check_resp("MSET, MSETNX", &["MSET k value n 100 m x", "MSETNX k value other x"]);
    check_resp("MSETEX", &["MSETEX 2 k value m x EX 100"]);
    check_resp("DEL, UNLINK", &["MSET k value n 100", "DEL k n missing", "MSET k value n 1", "UNLINK k n"]);
    check_resp("COPY, RENAME", &["COPY k copy REPLACE", "RENAME copy renamed"]);
    let set = format!("SET large {}", "v".repeat(100_000));
    check_resp("SET of 100 kB", &[&set]);
    check_resp("SETEX of 100 kB", &[&set.replace("SET large", "SETEX large 100")]);
    check_resp("SET and GET of 100 kB", &[&set, "GET large", "GET large"]);
}

#[test]
fn resp_commands_of_a_part_of_a_value_allocate_nothing() {
    check_resp("GETRANGE, SETRANGE", &["GETRANGE k 1 2", "SETRANGE k 2 x"]);
    check_resp("SETBIT, GETBIT", &["SETBIT bits 100 1", "GETBIT bits 100", "BITCOUNT bits", "BITPOS bits 1"]);
    check_resp("BITFIELD", &["BITFIELD bits SET u8 0 7 GET u8 8"]);
    check_resp("INCRBYFLOAT", &["SET float 1.5", "INCRBYFLOAT float 1.5"]);
    check_resp("GETEX, GETDEL", &["GETEX k EX 100", "GETDEL k", "SET k value"]);
    check_resp("SELECT, PEXPIREAT", &["SELECT 1", "SELECT 0", "PEXPIREAT k 9999999999999"]);
    check_resp("CL.THROTTLE", &["CL.THROTTLE throttle 15 30 60 1"]);
}
