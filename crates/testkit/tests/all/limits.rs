//! Each limit that a client can meet: one less, the limit itself, and one more, over real sockets.

use larder_testkit::PATIENCE;
use larder_testkit::process::{Program, Server};
use larder_testkit::talk::{Talk, encode};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const TOO_LARGE: &str = "SERVER_ERROR object too large for cache\r\n";
const BAD_LINE: &str = "CLIENT_ERROR bad command line format\r\n";

fn server(options: &[&str]) -> Server {
    Server::start(&[&["-m", "64", "-t", "1"], options].concat()).expect("larder starts")
}

/// All replies to `bytes`, up to the end of the stream.
fn answer(server: &Server, bytes: &[u8]) -> String {
    let mut stream = server.connect().expect("a connection");
    // A connection that is closed for a limit may be closed before everything is written, and also before its end.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut replies = Vec::new();
    let _ = stream.read_to_end(&mut replies);
    String::from_utf8(replies).expect("text")
}

/// `limit - 1`, `limit` and `limit + 1`.
fn around(limit: usize) -> [usize; 3] {
    [limit - 1, limit, limit + 1]
}

#[test]
fn a_line_has_2048_bytes_before_its_end_unless_it_is_a_get() {
    let server = server(&[]);
    let line = |start: &str, bytes: usize| {
        let mut line = start.as_bytes().to_vec();
        while line.len() + 2 < bytes {
            line.extend_from_slice(b" k");
        }
        line.resize(bytes - 1, b' ');
        line.extend_from_slice(b"\r\nmn\r\n");
        line
    };
    let [less, most, more] = around(2048).map(|bytes| answer(&server, &line("gat 0 k", bytes)));
    assert_eq!([less.as_str(), most.as_str(), more.as_str()], ["END\r\nMN\r\n", "END\r\nMN\r\n", ""]);
    // Beyond 16 KiB a get is answered while it arrives.
    for bytes in around(2048).into_iter().chain(around(16 << 10)).chain(around(64 << 10)) {
        assert_eq!(answer(&server, &line("get k", bytes)), "END\r\nMN\r\n", "{bytes}");
    }
}

#[test]
fn a_key_has_250_bytes() {
    let server = server(&[]);
    for bytes in around(250) {
        let key = "k".repeat(bytes);
        let fits = bytes <= 250;
        let expected = |reply: &str| if fits { reply.to_owned() } else { BAD_LINE.to_owned() };
        let hit = format!("VALUE {key} 0 1\r\nx\r\nEND\r\n");
        assert_eq!(answer(&server, format!("set {key} 0 0 1\r\nx\r\n").as_bytes()), expected("STORED\r\n"));
        assert_eq!(answer(&server, format!("get {key}\r\n").as_bytes()), expected(&hit));
        assert_eq!(answer(&server, format!("mg {key} v\r\n").as_bytes()), expected("VA 1\r\nx\r\n"));
        assert_eq!(answer(&server, format!("md {key}\r\n").as_bytes()), expected("HD\r\n"));
    }
    // By RESP a request may be longer.
    for bytes in around(64 << 10) {
        let reply = answer(&server, &encode(&[b"SET", &vec![b'k'; bytes], b"x"]));
        let refused = "-ERR key exceeds maximum allowed size (65536 bytes)\r\n";
        assert_eq!(reply, if bytes <= 64 << 10 { "+OK\r\n" } else { refused });
    }
}

#[test]
fn an_item_has_the_bytes_of_the_option() {
    for (options, item_bytes) in [(&[][..], 1 << 20), (&["-I", "2m"], 2 << 20), (&["-I", "64k"], 64 << 10)] {
        let server = server(options);
        // memcached's size of an item: a header with a token, the key and its end, the value and a line end.
        for key in ["k", "key-of-17-letters"] {
            let most = item_bytes - 48 - 8 - (key.len() + 1) - 2;
            for bytes in around(most) {
                let set =
                    [format!("set {key} 0 0 {bytes}\r\n").as_bytes(), &vec![b'v'; bytes], b"\r\n"].concat();
                let expected = if bytes <= most { "STORED\r\n" } else { TOO_LARGE };
                assert_eq!(answer(&server, &set), expected, "{bytes} of {item_bytes}");
            }
        }
    }
}

#[test]
fn an_opaque_has_31_bytes_and_a_meta_command_20_tokens() {
    let server = server(&[]);
    for bytes in around(31) {
        let opaque = "o".repeat(bytes);
        let refused = "CLIENT_ERROR opaque token too long\r\n".to_owned();
        let expected = if bytes <= 31 { format!("EN O{opaque}\r\n") } else { refused };
        assert_eq!(answer(&server, format!("mg none O{opaque}\r\n").as_bytes()), expected);
    }
    // The command and the key are two of the words. All flags are the same, so a shorter line is refused for
    // that.
    for flags in around(18) {
        let fault = if flags <= 18 { "duplicate flag" } else { "options flags are too long" };
        let line = format!("mg none{}\r\n", " v".repeat(flags));
        assert_eq!(answer(&server, line.as_bytes()), format!("CLIENT_ERROR {fault}\r\n"), "{flags}");
    }
}

#[test]
fn flags_have_32_bits_of_the_64_that_are_read() {
    let server = server(&[]);
    let top = u128::from(u32::MAX);
    for (flags, kept) in [(top - 1, top - 1), (top, top), (top + 1, 0), (u128::from(u64::MAX), top)] {
        let set = format!("set k {flags} 0 1\r\nx\r\nmg k f\r\n");
        assert_eq!(answer(&server, set.as_bytes()), format!("STORED\r\nHD f{kept}\r\n"), "{flags}");
        let stored = if flags <= top { "HD\r\n" } else { BAD_LINE };
        let set = format!("ms k 1 F{flags}\r\nx\r\nmg k f\r\n");
        assert_eq!(answer(&server, set.as_bytes()), format!("{stored}HD f{kept}\r\n"), "{flags}");
    }
    let more = u128::from(u64::MAX) + 1;
    for set in [format!("set k {more} 0 1\r\nx\r\n"), format!("ms k 1 F{more}\r\nx\r\n")] {
        assert_eq!(answer(&server, (set + "mg k f\r\n").as_bytes()), format!("{BAD_LINE}HD f{top}\r\n"));
    }
}

#[test]
fn times_up_to_30_days_are_from_now_and_end_with_31_bits() {
    let server = server(&[]);
    let days = |reply: &str| reply.trim_start_matches("HD t").trim_end().parse::<i64>().map(|s| s / 86_400);
    let day = 86_400;
    // Beyond 30 days a time is a date; 30 days and a second were in 1970.
    for (seconds, left) in [(30 * day - 1, Some(29)), (30 * day, Some(30)), (30 * day + 1, None)] {
        for set in [
            format!("set k 0 {seconds} 1\r\nx\r\n"),
            format!("set k 0 0 1\r\nx\r\ntouch k {seconds}\r\n"),
            format!("ms k 1 T{seconds}\r\nx\r\n"),
        ] {
            // On a slow server a second may pass after the set: then a day less is left.
            let reply = answer(&server, (set + "mg k t\r\n").as_bytes());
            let last = reply.split_inclusive("\r\n").last().expect("a reply");
            match left {
                Some(left) => assert!([left - 1, left].contains(&days(last).expect(last)), "{reply}"),
                None => assert_eq!(last, "EN\r\n"),
            }
        }
    }
    // The last second that an expiry can name. A set takes the lower 32 bits of larger numbers; other
    // commands refuse them.
    let last = i64::from(i32::MAX);
    for (date, fits) in [(last - 1, true), (last, true), (last + 1, false)] {
        let there = |reply: &str| reply.ends_with("HD\r\n");
        let set = answer(&server, format!("set k 0 {date} 1\r\nx\r\nmg k\r\n").as_bytes());
        assert!(set.starts_with("STORED\r\n") && there(&set) == fits, "{date}: {set}");
        let refused = "CLIENT_ERROR invalid exptime argument\r\n";
        let touch = answer(&server, format!("set k 0 0 1\r\nx\r\ntouch k {date}\r\n").as_bytes());
        assert_eq!(touch, format!("STORED\r\n{}", if fits { "TOUCHED\r\n" } else { refused }));
        let refused = "CLIENT_ERROR bad token in command line format\r\n";
        let meta = answer(&server, format!("mg k T{date}\r\n").as_bytes());
        assert_eq!(meta, if fits { "HD\r\n" } else { refused });
        let flush = answer(&server, format!("flush_all {date}\r\n").as_bytes());
        assert_eq!(flush, if fits { "OK\r\n" } else { "CLIENT_ERROR invalid exptime argument\r\n" });
    }
}

#[test]
fn counters_steps_and_tokens_have_64_bits() {
    let server = server(&[]);
    let top = u128::from(u64::MAX);
    let no_number = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".to_owned();
    for (value, next) in [(top - 1, Some(top)), (top, Some(0)), (top + 1, None)] {
        let length = value.to_string().len();
        let reply = answer(&server, format!("set n 0 0 {length}\r\n{value}\r\nincr n 1\r\n").as_bytes());
        let next = next.map_or(no_number.clone(), |next| format!("{next}\r\n"));
        assert_eq!(reply, format!("STORED\r\n{next}"));
    }
    for (by, up) in [(top - 1, Some(top)), (top, Some(0)), (top + 1, None)] {
        let reply = answer(&server, format!("set n 0 0 1\r\n1\r\nincr n {by}\r\n").as_bytes());
        let refused = "CLIENT_ERROR invalid numeric delta argument\r\n".to_owned();
        assert_eq!(reply, format!("STORED\r\n{}", up.map_or(refused, |up| format!("{up}\r\n"))));
    }
    for token in [top - 1, top, top + 1] {
        let fits = token <= top;
        let reply = answer(&server, format!("set k 0 0 1\r\nx\r\ncas k 0 0 1 {token}\r\ny\r\n").as_bytes());
        assert_eq!(reply, format!("STORED\r\n{}", if fits { "EXISTS\r\n" } else { BAD_LINE }));
        let reply = answer(&server, format!("ms k 1 E{token}\r\ny\r\nmg k c\r\n").as_bytes());
        if fits {
            assert_eq!(reply, format!("HD\r\nHD c{token}\r\n"));
        } else {
            assert!(reply.starts_with("CLIENT_ERROR bad token in command line format\r\nHD c"), "{reply}");
        }
    }
}

#[test]
fn a_value_is_announced_with_31_bits_and_its_line_end() {
    let server = server(&[]);
    // The value's bytes are not sent: if the length is allowed, the server waits for them without a reply.
    for bytes in around(i32::MAX as usize - 2) {
        let fits = bytes <= i32::MAX as usize - 2;
        for set in [format!("set k 0 0 {bytes}\r\n"), format!("append k 0 0 {bytes}\r\n")] {
            assert_eq!(answer(&server, set.as_bytes()), if fits { "" } else { BAD_LINE }, "{set}");
        }
    }
}

#[test]
fn a_client_watches_16384_keys() {
    const WATCHED: usize = 16 << 10;
    // This much memory keeps two clients below the limit of all watched keys together.
    let mut talk = Talk::new(&["-m", "256"]);
    let keys: Vec<String> = (0..WATCHED).map(|n| format!("key:{n}")).collect();
    let words = |count: usize| -> Vec<&[u8]> {
        std::iter::once(&b"WATCH"[..]).chain(keys[..count].iter().map(|key| key.as_bytes())).collect()
    };
    assert_eq!(talk.send(0, &encode(&words(WATCHED - 1))), "+OK");
    assert_eq!(talk.say(0, "WATCH last"), "+OK");
    assert_eq!(talk.say(0, "WATCH more"), "-ERR too many watched keys");
    // Each client has its own limit; all keys of one command count.
    assert_eq!(talk.say(1, "WATCH more"), "+OK");
    assert_eq!(talk.send(2, &encode(&words(WATCHED))), "+OK");
    assert_eq!(talk.say(2, "WATCH more"), "-ERR too many watched keys");
    assert_eq!(talk.say(0, "UNWATCH"), "+OK");
    assert_eq!(talk.say(0, "WATCH more"), "+OK");
}

#[test]
fn what_multi_queues_has_a_sixteenth_of_the_memory_with_what_goes_with_it() {
    const SHARE: usize = (4 << 20) / 16;
    // Most bytes that a queued command takes besides its own.
    const BESIDE: usize = 128;
    let mut talk = Talk::new(&["-m", "4"]);
    let set = |bytes: usize| encode(&[b"SET", b"k", &vec![b'v'; bytes]]);
    let whole = set(30_000);
    let count = SHARE / (whole.len() + BESIDE);
    let mut last_is_queued = |bytes: usize| {
        assert_eq!(talk.say(0, "MULTI"), "+OK");
        for _ in 0..count {
            assert_eq!(talk.send(0, &whole), "+QUEUED");
        }
        let reply = talk.send(0, &set(bytes));
        assert_eq!(talk.say(0, "DISCARD"), "+OK");
        assert!(reply == "+QUEUED" || reply.starts_with("-OOM"), "{reply}");
        reply == "+QUEUED"
    };
    // The limit is found by halving: all shorter ones fit, no longer one does.
    let left = SHARE - count * whole.len();
    let most = (0..left).collect::<Vec<_>>().partition_point(|&bytes| last_is_queued(bytes)) - 1;
    assert_eq!(around(most).map(&mut last_is_queued), [true, true, false]);
    let used = count * whole.len() + set(most).len();
    assert!((SHARE - (count + 1) * BESIDE..SHARE).contains(&used), "{used} of {SHARE}");
}

/// Three kinds of names share one limit.
#[test]
fn subscriptions_have_a_sixteenth_of_the_memory() {
    const SHARE: usize = (4 << 20) / 16;
    /// Bytes that a subscription takes besides the two copies of its name.
    const BESIDE: usize = 256;
    const NAME: usize = 16;
    let count = SHARE / (BESIDE + 2 * NAME) - 1;
    let names: Vec<String> = (0..count).map(|n| format!("{n:0>NAME$}")).collect();
    let most = (SHARE - count * (BESIDE + 2 * NAME) - BESIDE) / 2;
    for [first, last] in
        [["SUBSCRIBE", "PSUBSCRIBE"], ["PSUBSCRIBE", "SSUBSCRIBE"], ["SSUBSCRIBE", "SUBSCRIBE"]]
    {
        let mut talk = Talk::new(&["-m", "4"]);
        names.iter().for_each(|name| assert!(talk.say(0, &format!("{first} {name}")).starts_with("*3 ")));
        let taken = around(most).map(|bytes| {
            let reply = talk.say(1, &format!("{last} {}", "n".repeat(bytes)));
            talk.hang_up(1);
            assert!(reply.starts_with("*3 ") || reply == "-ERR too many subscriptions", "{reply}");
            reply.starts_with("*3 ")
        });
        assert_eq!(taken, [true, true, false], "{last}");
    }
}

#[test]
fn a_text_of_config_set_has_4096_bytes_and_percentiles_are_16() {
    let mut talk = Talk::new(&["-m", "64"]);
    for bytes in around(4096) {
        let reply = talk.say(0, &format!("CONFIG SET requirepass {}", "p".repeat(bytes)));
        assert_eq!(reply == "+OK", bytes <= 4096, "{bytes}: {reply:.80}");
        assert!(reply == "+OK" || reply.ends_with("the text is too long"), "{reply:.80}");
    }
    for count in around(16) {
        let numbers = "99 ".repeat(count);
        let words = ["CONFIG", "SET", "latency-tracking-info-percentiles", &numbers].map(str::as_bytes);
        let reply = talk.send(0, &encode(&words));
        assert_eq!(reply == "+OK", count <= 16, "{count}: {reply:.80}");
    }
    for name in ["proto-max-bulk-len", "client-query-buffer-limit"] {
        for bytes in around(1 << 20) {
            let reply = talk.say(0, &format!("CONFIG SET {name} {bytes}"));
            assert_eq!(reply == "+OK", bytes >= 1 << 20, "{name} {bytes}: {reply:.80}");
        }
    }
}

#[test]
fn commands_that_look_at_names_in_one_step_take_65536() {
    const MOST: usize = 64 << 10;
    let mut talk = Talk::new(&["-m", "256"]);
    assert_eq!(talk.say(0, "SET k v"), "+OK");
    let heads: [&[&[u8]]; 6] = [
        &[b"LATENCY", b"RESET"],
        &[b"LATENCY", b"HISTOGRAM"],
        &[b"INFO"],
        &[b"MEMORY", b"USAGE", b"k"],
        &[b"COMMAND", b"GETKEYS", b"MGET"],
        &[b"COMMAND", b"GETKEYSANDFLAGS", b"MGET"],
    ];
    for head in heads {
        let own = if matches!(head[0], b"MEMORY" | b"COMMAND") { 1 } else { 0 };
        for count in around(MOST) {
            let more: Vec<&[u8]> = [&b"SAMPLES"[..], b"0"].into_iter().cycle().take(count - own).collect();
            let reply = talk.send(0, &encode(&[head, &more[..]].concat()));
            assert_eq!(reply == "-ERR too many arguments", count > MOST, "{head:?} {count}: {reply:.80}");
        }
    }
}

#[test]
fn commands_that_look_at_several_keys_as_one_take_16384() {
    const MOST: usize = 16 << 10;
    let mut talk = Talk::new(&["-m", "256"]);
    let names: Vec<String> = (0..=MOST).map(|n| format!("{n:x}")).collect();
    // The words before the keys, whether a count precedes the keys, and the words behind them.
    let rows = [
        ("SINTER", false, ""),
        ("SUNIONSTORE to", false, ""),
        ("PFCOUNT", false, ""),
        ("PFMERGE", false, ""),
        ("BITOP OR to", false, ""),
        ("BLPOP", false, "0.001"),
        ("SINTERCARD", true, ""),
        ("ZUNION", true, ""),
        ("LMPOP", true, "LEFT"),
        ("BZMPOP 0.001", true, "MIN"),
    ];
    for (head, counts, tail) in rows {
        for count in around(MOST) {
            let number = count.to_string();
            let mut words: Vec<&[u8]> = head.split(' ').map(str::as_bytes).collect();
            words.extend(counts.then_some(number.as_bytes()));
            words.extend(names[..count].iter().map(|name| name.as_bytes()));
            words.extend(tail.split_whitespace().map(str::as_bytes));
            let reply = talk.send(0, &encode(&words));
            assert_eq!(reply == "-ERR too many keys", count > MOST, "{head} {count}: {reply:.80}");
        }
    }
    for head in ["XREAD STREAMS", "XREADGROUP GROUP g c STREAMS"] {
        for count in around(MOST) {
            let mut words: Vec<&[u8]> = head.split(' ').map(str::as_bytes).collect();
            words.extend(names[..count].iter().map(|name| name.as_bytes()));
            words.extend(std::iter::repeat_n(&b"0"[..], count));
            let reply = talk.send(0, &encode(&words));
            assert_eq!(reply == "-ERR too many keys", count > MOST, "{head} {count}: {reply:.80}");
        }
    }
}

#[test]
fn a_request_on_its_way_in_has_the_bytes_of_the_parameter() {
    let server = server(&[]);
    let limit = encode(&[b"CONFIG", b"SET", b"client-query-buffer-limit", b"1048576"]);
    assert_eq!(answer(&server, &limit), "+OK\r\n");
    for bytes in around(1 << 20) {
        let echo = |value: usize| encode(&[b"ECHO", &vec![b'e'; value]]);
        let request = echo(bytes - (echo(1_000_000).len() - 1_000_000));
        assert_eq!(request.len(), bytes);
        // Without a reply, as in Redis.
        assert_eq!(!answer(&server, &request).is_empty(), bytes <= 1 << 20, "{bytes}");
    }
}

#[test]
fn a_resp_request_is_bounded_in_all_directions() {
    // Only the RESP port takes lines as RESP commands.
    let server =
        Server::start_program(&Program::LarderResp, &["-m", "64", "-t", "1"]).expect("larder starts");
    let ping = "+PONG\r\n";
    for bytes in around(65535) {
        let reply = answer(&server, format!("PING{}\r\n", " ".repeat(bytes - 4)).as_bytes());
        let refused = "-ERR Protocol error: too big inline request\r\n";
        assert_eq!(reply, if bytes <= 65535 { ping } else { refused }, "{bytes}");
    }
    for count in around(i32::MAX as usize) {
        let refused = "-ERR Protocol error: invalid multibulk length\r\n";
        let expected = if count <= i32::MAX as usize { "" } else { refused };
        assert_eq!(answer(&server, format!("*{count}\r\n").as_bytes()), expected, "{count}");
    }
    let limit = encode(&[b"CONFIG", b"SET", b"proto-max-bulk-len", b"1048576"]);
    assert_eq!(answer(&server, &limit), "+OK\r\n");
    for bytes in around(1 << 20) {
        // The length is refused before the value comes.
        let head = format!("*2\r\n$4\r\nECHO\r\n${bytes}\r\n");
        let refused = "-ERR Protocol error: invalid bulk length\r\n";
        assert_eq!(answer(&server, head.as_bytes()), if bytes <= 1 << 20 { "" } else { refused }, "{bytes}");
    }
}

fn first_line(stream: &TcpStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("a reply");
    line
}

#[test]
fn so_many_connections_are_served_and_one_more_is_told_so() {
    const CONNECTIONS: usize = 12;
    let server = server(&["-c", &CONNECTIONS.to_string()]);
    let open = || {
        let mut stream = server.connect().expect("a connection");
        // A refused connection may be closed already.
        let _ = stream.write_all(b"mn\r\n");
        let line = first_line(&stream);
        (stream, line)
    };
    // The connection of the start's check may still be open.
    let started = Instant::now();
    let mut streams = Vec::new();
    while streams.len() < CONNECTIONS {
        let (stream, line) = open();
        match line.as_str() {
            "MN\r\n" => streams.push(stream),
            line => assert_eq!(line, "ERROR Too many open connections\r\n"),
        }
        assert!(started.elapsed() < PATIENCE, "{} of {CONNECTIONS}", streams.len());
    }
    assert_eq!(open().1, "ERROR Too many open connections\r\n");
    // When one connection ends, another may be opened.
    streams.pop();
    while open().1 != "MN\r\n" {
        assert!(started.elapsed() < PATIENCE, "the place stays taken");
    }
}

#[test]
fn who_says_nothing_is_closed_after_the_idle_timeout_and_not_before() {
    let server = server(&["-o", "idle_timeout=2"]);
    let began = Instant::now();
    let (mut idle, started) = loop {
        let mut stream = server.connect().expect("a connection");
        // The request is sent after this moment: the idle time begins later.
        let started = Instant::now();
        let mut reply = [0; 4];
        // A connection whose request is too late is closed by then.
        if stream.write_all(b"mn\r\n").and_then(|()| stream.read_exact(&mut reply)).is_ok() {
            assert_eq!(&reply, b"MN\r\n");
            break (stream, started);
        }
        assert!(began.elapsed() < PATIENCE, "everyone is closed at once");
    };
    assert_eq!(idle.read(&mut [0]).expect("an end"), 0);
    assert!(started.elapsed() >= Duration::from_millis(1500), "{:?}", started.elapsed());
}
