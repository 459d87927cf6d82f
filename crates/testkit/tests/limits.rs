//! Each limit that a client can meet, at one less, at the limit, and at one more, over real sockets.

use larder_testkit::process::{Program, Server};
use larder_testkit::talk::encode;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const TOO_LARGE: &str = "SERVER_ERROR object too large for cache\r\n";
const BAD_LINE: &str = "CLIENT_ERROR bad command line format\r\n";

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn server(options: &[&str]) -> Server {
    Server::start(&[&["-m", "64", "-t", "1"], options].concat()).expect("larder starts")
}

/// All that is answered to `bytes` and the end of the stream behind them.
fn answer(server: &Server, bytes: &[u8]) -> String {
    let mut stream = server.connect().expect("a connection");
    // Who is closed for a limit may be closed before all is written, and then also before the end.
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
    // By RESP it has more.
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
        // memcached's header with a token, the key and its end, and a line end behind the value.
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
    // The command and the key are two of them. So many flags are not all different.
    for flags in around(18) {
        let fault = if flags <= 18 { "duplicate flag" } else { "options flags are too long" };
        let line = format!("mg none{}\r\n", " v".repeat(flags));
        assert_eq!(answer(&server, line.as_bytes()), format!("CLIENT_ERROR {fault}\r\n"), "{flags}");
    }
}

#[test]
fn a_resp_request_is_bounded_in_all_directions() {
    // Only its own port takes lines for commands of RESP.
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
        // One that is refused may be closed already.
        let _ = stream.write_all(b"mn\r\n");
        let line = first_line(&stream);
        (stream, line)
    };
    // The one by which the start was awaited may still be there.
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
    // When one ends, another may come.
    streams.pop();
    while open().1 != "MN\r\n" {
        assert!(started.elapsed() < PATIENCE, "the place stays taken");
    }
}

#[test]
fn who_says_nothing_is_closed_after_the_idle_timeout_and_not_before() {
    let server = server(&["-o", "idle_timeout=2"]);
    let mut idle = server.connect().expect("a connection");
    // Before it is sent it has not come.
    let started = Instant::now();
    idle.write_all(b"mn\r\n").expect("sent");
    assert_eq!(first_line(&idle), "MN\r\n");
    assert_eq!(idle.read(&mut [0]).expect("an end"), 0);
    assert!(started.elapsed() >= Duration::from_millis(1500), "{:?}", started.elapsed());
}
