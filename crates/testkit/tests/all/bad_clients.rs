//! Misbehaving clients harm only themselves: memory stays bounded, other clients are served.

use larder_testkit::PATIENCE;
use larder_testkit::client::Client;
use larder_testkit::process::Server;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MEBIBYTE: u64 = 1 << 20;

fn server(options: &[&str]) -> Server {
    Server::start(&[&["-m", "64", "-t", "2"], options].concat()).expect("larder starts")
}

fn client(server: &Server) -> Client {
    server.connect().and_then(Client::new).expect("a connection")
}

/// Another client gets correct replies.
fn serves(server: &Server) {
    let mut client = client(server);
    client.store("set", "well", b"behaved", None);
    client.line("get well");
    client.flush().expect("sent");
    assert_eq!(client.reply().expect("a reply"), "STORED");
    assert_eq!(client.hits().expect("a reply")[0].value, b"behaved");
}

/// Resident bytes of the server.
fn resident(server: &Server) -> u64 {
    server.rss_bytes().expect("a figure")
}

/// Waits until the server is no larger than `most`: it may take time to return memory that it need not keep.
fn comes_down_to(server: &Server, most: u64, what: &str) {
    let began = Instant::now();
    loop {
        let rss = resident(server);
        if rss <= most {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {rss} bytes, and {most} are allowed");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writes bytes until the peer takes no more for a while; returns how many bytes the peer took.
fn pour(stream: &TcpStream, bytes: &[u8], most: u64) -> u64 {
    stream.set_write_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let mut taken = 0;
    while taken < most {
        match (&*stream).write(bytes) {
            Ok(count) => taken += count as u64,
            Err(error) => {
                let closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
                let full = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
                assert!(closed.contains(&error.kind()) || full.contains(&error.kind()), "{error}");
                break;
            }
        }
    }
    taken
}

#[test]
fn requests_that_break_off_leave_nothing() {
    let server = server(&[]);
    let whole = b"set half 0 0 1000\r\n";
    for cut in 1..=whole.len() {
        let mut stream = server.connect().expect("a connection");
        stream.write_all(&whole[..cut]).expect("sent");
    }
    let mut stream = server.connect().expect("a connection");
    stream.write_all(b"set large 0 0 1000000\r\n").expect("sent");
    stream.write_all(&vec![b'x'; 500_000]).expect("sent");
    drop(stream);
    serves(&server);
    let mut client = client(&server);
    assert_eq!(client.stat("curr_items").expect("a statistic"), "1");
    assert_eq!(client.ask("get half large").expect("a reply"), "END");
}

#[test]
fn garbage_is_answered_or_closed_and_never_more() {
    let server = server(&[]);
    let mut state = 1_u64;
    for round in 0..200 {
        let stream = server.connect().expect("a connection");
        let garbage: Vec<u8> = (0..3000)
            .map(|at| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Every other connection also sends line ends, so that parsers see more than one line.
                if round % 2 == 0 && at % 60 == 59 { b'\n' } else { (state >> 56) as u8 }
            })
            .collect();
        pour(&stream, &garbage, 3000);
        // The replies do not matter here; only that the connection ends.
        let _ = stream.shutdown(Shutdown::Write);
        let mut replies = Vec::new();
        let ended = (&stream).read_to_end(&mut replies);
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
        assert!(replies.len() < 10_000, "{} bytes for 3000", replies.len());
    }
    serves(&server);
}

#[test]
fn a_first_byte_of_another_protocol_does_not_confuse_the_next_client() {
    let server = server(&[]);
    for first in [0x80_u8, 0x81, b'*', b'$', 0, 0x16, b'{'] {
        let mut stream = server.connect().expect("a connection");
        pour(&stream, &[&[first; 24][..], b"\r\n"].concat(), 26);
        // This fails when the server has closed already, as it may.
        let _ = stream.shutdown(Shutdown::Write);
        let mut replies = Vec::new();
        let ended = stream.read_to_end(&mut replies);
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    }
    serves(&server);
}

#[test]
fn an_announced_size_costs_nothing() {
    let server = server(&["-I", "32m"]);
    serves(&server);
    let before = resident(&server);
    let mut waiting = Vec::new();
    for connection in 0..100 {
        let mut stream = server.connect().expect("a connection");
        stream.write_all(format!("set big{connection} 0 0 33000000\r\nx").as_bytes()).expect("sent");
        waiting.push(stream);
    }
    serves(&server);
    comes_down_to(&server, before + 16 * MEBIBYTE, "for announcements");
}

#[test]
fn oversized_values_are_swallowed_in_bounded_memory() {
    let server = server(&[]);
    let before = resident(&server);
    let mut client = client(&server);
    client.line("set big 0 0 100000000");
    client.flush().expect("sent");
    let piece = vec![b'x'; 1_000_000];
    for _ in 0..100 {
        client.pending.extend_from_slice(&piece);
        client.flush().expect("sent");
    }
    client.line("");
    client.line("version");
    client.flush().expect("sent");
    assert_eq!(client.reply().expect("a reply"), "SERVER_ERROR object too large for cache");
    assert!(client.reply().expect("a reply").starts_with("VERSION "));
    comes_down_to(&server, before + 16 * MEBIBYTE, "for what is thrown away");
    serves(&server);
}

#[test]
fn a_half_closed_connection_gets_all_its_replies() {
    let server = server(&[]);
    let mut client = client(&server);
    client.store("set", "k", &vec![b'v'; 10_000], None);
    for _ in 0..500 {
        client.line("get k");
    }
    client.flush().expect("sent");
    client.stream().shutdown(Shutdown::Write).expect("half closed");
    assert_eq!(client.reply().expect("a reply"), "STORED");
    for _ in 0..500 {
        assert_eq!(client.hits().expect("a reply")[0].value.len(), 10_000);
    }
    assert!(client.rest().expect("an end").is_empty());
    serves(&server);
}

#[test]
fn resets_in_the_middle_harm_nobody() {
    let server = server(&[]);
    let mut other = client(&server);
    other.store("set", "k", &vec![b'v'; 100_000], None);
    other.flush().expect("sent");
    assert_eq!(other.reply().expect("a reply"), "STORED");
    for round in 0..300 {
        let mut stream = server.connect().expect("a connection");
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("an option");
        let request: &[u8] = match round % 3 {
            0 => b"get k k k k k k\r\n",
            1 => b"set k2 0 0 100000\r\nhalf of it",
            _ => b"ms k3 50",
        };
        stream.write_all(request).expect("sent");
        if round % 6 == 0 {
            assert!(stream.read(&mut [0; 100]).expect("some of the reply") > 0);
        }
        // Closed with unread replies and without lingering: the server sees a reset.
        drop(stream);
    }
    assert_eq!(other.ask("get k2 k3").expect("a reply"), "END");
    serves(&server);
    let began = Instant::now();
    while other.stat("curr_connections").expect("a statistic").parse::<u64>().expect("a number") > 3 {
        assert!(began.elapsed() < PATIENCE, "connections that were reset stay open");
    }
}

#[test]
fn a_reader_that_does_not_read_is_read_no_further() {
    let server = server(&[]);
    let mut writer = client(&server);
    writer.store("set", "k", &vec![b'v'; 10_000], None);
    writer.flush().expect("sent");
    assert_eq!(writer.reply().expect("a reply"), "STORED");
    let before = resident(&server);
    // Each client may hold 1/16 of -m; all connections together may hold more than these few do.
    let slow: Vec<TcpStream> = (0..3).map(|_| server.connect().expect("a connection")).collect();
    let requests = b"get k\r\n".repeat(10_000);
    for stream in &slow {
        // The kernel's buffers take a few megabytes; the replies would be 90 GB.
        let taken = pour(stream, &requests, 64 * MEBIBYTE);
        assert!(taken < 64 * MEBIBYTE, "the server takes requests without end");
    }
    serves(&server);
    // Each client holds at most 1/16 of -m.
    comes_down_to(&server, before + 16 * MEBIBYTE, "wait for readers");
    // A client that starts to read gets its replies, complete and in order.
    let mut late = Client::new(slow[0].try_clone().expect("a socket")).expect("a client");
    for _ in 0..200 {
        assert_eq!(late.hits().expect("a reply")[0].value.len(), 10_000);
    }
}

#[test]
fn large_values_that_nobody_reads_are_bounded_too() {
    let server = server(&[]);
    let mut writer = client(&server);
    let slow: Vec<TcpStream> = (0..50).map(|_| server.connect().expect("a connection")).collect();
    for (index, stream) in slow.iter().enumerate() {
        writer.store("set", &format!("k{index}"), &vec![b'v'; 900_000], None);
        writer.flush().expect("sent");
        while writer.reply().expect("a reply") != "STORED" {
            // While the other worker is off its core, the memory of evicted items stays in use: the store is
            // repeated.
            writer.store("set", &format!("k{index}"), &vec![b'v'; 900_000], None);
            writer.flush().expect("sent");
        }
        pour(stream, format!("get k{index} k{index} k{index}\r\n").repeat(10).as_bytes(), 300);
    }
    // The values are deleted while the clients wait: their memory no longer counts as the cache's.
    for index in 0..slow.len() {
        writer.line(&format!("delete k{index}"));
    }
    writer.flush().expect("sent");
    for _ in 0..slow.len() {
        assert!(["DELETED", "NOT_FOUND"].contains(&writer.reply().expect("a reply").as_str()));
    }
    serves(&server);
    comes_down_to(&server, 112 * MEBIBYTE, "in all");
}

#[test]
fn an_endless_line_is_closed() {
    let server = server(&[]);
    for start in ["a", "set ", "mg ", "gat 0 "] {
        let stream = server.connect().expect("a connection");
        (&stream).write_all(start.as_bytes()).expect("sent");
        let taken = pour(&stream, &[b'k'; 65536], 64 * MEBIBYTE);
        assert!(taken < 64 * MEBIBYTE, "{start} goes on for ever");
    }
    serves(&server);
}

#[test]
fn an_endless_get_is_answered_or_closed_in_bounded_memory() {
    let server = server(&[]);
    serves(&server);
    let before = resident(&server);
    let stream = server.connect().expect("a connection");
    (&stream).write_all(b"get").expect("sent");
    pour(&stream, b" key".repeat(10_000).as_slice(), 64 * MEBIBYTE);
    serves(&server);
    comes_down_to(&server, before + 16 * MEBIBYTE, "for one line");
}

#[test]
fn gets_of_thirty_thousand_keys_are_answered_while_others_are() {
    let server = server(&[]);
    let mut writer = client(&server);
    let keys: Vec<String> = (0..30_000).map(|key| format!("key{key}")).collect();
    for key in &keys {
        writer.store("set", key, &[b'v'; 1000], None);
    }
    writer.flush().expect("sent");
    for _ in &keys {
        assert_eq!(writer.reply().expect("a reply"), "STORED");
    }
    let before = resident(&server);
    // More than the sockets and the server hold for clients that do not read.
    let mut clients: Vec<Client> = (0..4).map(|_| client(&server)).collect();
    for client in &mut clients {
        client.line(&format!("get {}", keys.join(" ")));
        client.flush().expect("sent");
    }
    serves(&server);
    for client in &mut clients {
        let hits = client.hits().expect("a reply");
        assert_eq!(hits.len(), keys.len());
        assert!(hits.iter().zip(&keys).all(|(hit, key)| hit.key == *key && hit.value == [b'v'; 1000]));
    }
    comes_down_to(&server, before + 32 * MEBIBYTE, "for four requests");
}

#[test]
fn a_pipeline_may_be_written_before_any_reply_is_read() {
    let server = server(&[]);
    let mut client = client(&server);
    client.store("set", "k", b"value", None);
    for _ in 0..30_000 {
        client.line("get k");
    }
    client.flush().expect("sent");
    assert_eq!(client.reply().expect("a reply"), "STORED");
    for _ in 0..30_000 {
        assert_eq!(client.hits().expect("a reply")[0].value, b"value");
    }
}

#[test]
fn a_pipeline_of_any_length_is_answered_to_who_reads() {
    const REQUESTS: usize = 300_000;
    let server = server(&[]);
    let mut client = client(&server);
    client.store("set", "k", &[b'v'; 100], None);
    client.flush().expect("sent");
    assert_eq!(client.reply().expect("a reply"), "STORED");
    let mut writer = client.stream().try_clone().expect("a socket");
    let sender = std::thread::spawn(move || writer.write_all(&b"get k\r\n".repeat(REQUESTS)));
    for _ in 0..REQUESTS {
        assert_eq!(client.hits().expect("a reply")[0].value.len(), 100);
    }
    sender.join().expect("a thread").expect("sent");
}

/// Each client sends a request, and some send a later one; all are answered. RESP clients also have a line in
/// CLIENT LIST.
#[test]
fn ten_thousand_idle_connections_cost_little() {
    idle_connections_cost_little([(b"get nothing\r\n", b"END\r\n"), (b"mn\r\n", b"MN\r\n")]);
}

#[test]
fn ten_thousand_idle_connections_of_redis_clients_cost_little() {
    let echo = (&b"*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n"[..], &b"$1\r\nx\r\n"[..]);
    idle_connections_cost_little([echo, (b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n")]);
}

fn idle_connections_cost_little([first, later]: [(&[u8], &[u8]); 2]) {
    const CONNECTIONS: u64 = 10_000;
    // Two such tests at once need more descriptors than some machines allow a process.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised)
        .expect("files up to the hard limit");
    let ask = |stream: &mut TcpStream, (request, expected): (&[u8], &[u8])| {
        stream.write_all(request).expect("sent");
        let mut reply = vec![0; expected.len()];
        stream.read_exact(&mut reply).expect("a reply");
        assert_eq!(reply, expected);
    };
    let server = server(&["-c", "12000"]);
    serves(&server);
    let before = resident(&server);
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = server.connect().expect("a connection");
        ask(&mut stream, first);
        idle.push(stream);
    }
    println!("{} bytes a connection", resident(&server).saturating_sub(before) / CONNECTIONS);
    comes_down_to(&server, before + CONNECTIONS * 1280 + 4 * MEBIBYTE, "idle connections");
    serves(&server);
    let mut client = client(&server);
    let open: u64 = client.stat("curr_connections").expect("a statistic").parse().expect("a number");
    assert!(open >= CONNECTIONS, "{open} open");
    // Each connection still works.
    for stream in idle.iter_mut().step_by(100) {
        ask(stream, later);
    }
    drop(idle);
    serves(&server);
}
