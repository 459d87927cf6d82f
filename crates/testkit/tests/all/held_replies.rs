//! A small request and the head of a large value arrive in one receive of a real server, which holds the
//! small request's reply while it receives the value. The clients reset, read late, or have not
//! authenticated. The server process is paused while bytes are sent that are to arrive in one receive.

use larder_testkit::PATIENCE;
use larder_testkit::process::Server;
use larder_testkit::talk::encode;
use rustix::net::sockopt;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes of a value that fills the receive in which it begins.
const LONG: usize = 1_000_000;
/// Time after which a client that does not authenticate is closed.
const UNAUTHENTICATED: Duration = Duration::from_secs(10);
/// Bytes of a value of which, after a receive, more are missing than the server waits for.
const SHORT: usize = 40_000;

fn server(options: &[&str]) -> Server {
    Server::start(&[&["-m", "128", "-t", "1"], options].concat()).expect("larder starts")
}

fn exchange(stream: &mut TcpStream, request: &[u8], reply: &[u8]) {
    stream.write_all(request).expect("sent");
    expect(stream, reply);
}

fn expect(stream: &mut TcpStream, reply: &[u8]) {
    let mut got = vec![0; reply.len()];
    stream.read_exact(&mut got).expect("a reply");
    assert!(got == reply, "{:?}", String::from_utf8_lossy(&got[..got.len().min(100)]));
}

/// Writes as many bytes as the peer takes without waiting; returns how many.
fn pour(stream: &mut TcpStream, bytes: &[u8]) -> usize {
    stream.set_nonblocking(true).expect("a socket");
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(more) => sent += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    stream.set_nonblocking(false).expect("a socket");
    sent
}

/// A connection whose last long receive began a value.
fn uploader(server: &Server, hello: &[(Vec<u8>, &[u8])], set: &[u8], stored: &[u8]) -> TcpStream {
    let mut stream = server.connect().expect("a connection");
    for (request, reply) in hello {
        exchange(&mut stream, request, reply);
    }
    for _ in 0..4 {
        // Each exchange lets the system's socket buffers grow.
        exchange(&mut stream, set, stored);
    }
    server.pause().expect("it stands");
    let sent = pour(&mut stream, set);
    server.resume();
    exchange(&mut stream, &set[sent..], stored);
    stream
}

fn text_set(key: &str, bytes: usize) -> Vec<u8> {
    [format!("set {key} 0 0 {bytes}\r\n").as_bytes(), &vec![b'v'; bytes], b"\r\n"].concat()
}

fn text_uploader(server: &Server) -> TcpStream {
    uploader(server, &[], &text_set("warm", LONG), b"STORED\r\n")
}

#[test]
fn a_reset_behind_a_request_and_the_head_of_a_value_costs_nobody_else() {
    let server = server(&[]);
    let mut other = server.connect().expect("a connection");
    for _ in 0..3 {
        let mut stream = text_uploader(&server);
        server.pause().expect("it stands");
        stream.write_all(b"get missing\r\n").expect("sent");
        pour(&mut stream, &text_set("k", SHORT));
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
        drop(stream);
        server.resume();
        exchange(&mut other, b"get missing\r\n", b"END\r\n");
    }
}

#[test]
fn a_late_reader_of_a_pipeline_of_small_and_large_requests_gets_each_reply_once() {
    let server = server(&[]);
    for bytes in [15_000, 15_037] {
        let mut stream = text_uploader(&server);
        sockopt::set_socket_recv_buffer_size(&stream, 32 << 10).expect("a socket");
        exchange(&mut stream, &text_set("v", bytes), b"STORED\r\n");
        let round = [b"get v\r\n", &text_set("k", SHORT)[..]].concat();
        let value = vec![b'v'; bytes];
        let replies =
            [format!("VALUE v 0 {bytes}\r\n").as_bytes(), &value, b"\r\nEND\r\nSTORED\r\n"].concat();
        // More replies than the sockets hold, so that some wait in the server. Each round is sent by itself.
        let rounds = 400;
        for _ in 0..rounds {
            stream.write_all(&round).expect("sent");
            std::thread::sleep(Duration::from_millis(1));
        }
        (0..rounds).for_each(|_| expect(&mut stream, &replies));
        exchange(&mut stream, b"mn\r\n", b"MN\r\n");
    }
}

/// A client that repeatedly asks for its own value, and sends the head of another one behind that. It reads
/// late, and must receive no byte but those of its replies.
fn ask_for_its_own(server: &Server, name: u8) -> std::thread::JoinHandle<()> {
    let ok: &[u8] = b"+OK\r\n";
    let (key, value) = ([name], vec![name; 15_000]);
    let set = |bytes: usize| encode(&[b"SET", b"k", &vec![b'v'; bytes]]);
    let mut stream = uploader(server, &[(encode(&[b"SET", &key, &value]), ok)], &set(LONG), ok);
    sockopt::set_socket_recv_buffer_size(&stream, 32 << 10).expect("a socket");
    std::thread::spawn(move || {
        let round = [encode(&[b"GET", &key]), set(SHORT)].concat();
        // Sends until the server ends the connection. Requests that have not arrived by then get no reply.
        for _ in 0..ROUNDS {
            if stream.write_all(&round).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut got = Vec::new();
        let end = stream.read_to_end(&mut got);
        assert!(end.is_ok() || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
        let replies = [b"$15000\r\n", &value[..], b"\r\n", ok].concat().repeat(ROUNDS);
        assert!(replies.starts_with(&got), "{} bytes to {}", got.len(), char::from(name));
    })
}

/// An unauthenticated client sends requests while replies to authenticated ones wait in the server.
#[test]
fn a_client_without_the_password_gets_no_byte_of_what_waits_for_others() {
    let server = server(&["--requirepass", "word"]);
    let ok: &[u8] = b"+OK\r\n";
    let value = vec![b's'; 15_000];
    let hello = [(encode(&[b"AUTH", b"word"]), ok), (encode(&[b"SET", b"secret", &value]), ok)];
    let set = |bytes: usize| encode(&[b"SET", b"k", &vec![b'v'; bytes]]);
    let round = [encode(&[b"GET", b"secret"]), set(SHORT)].concat();
    for resets in [true, false] {
        let mut known = uploader(&server, &hello, &set(LONG), ok);
        sockopt::set_socket_recv_buffer_size(&known, 32 << 10).expect("a socket");
        let mut clients = Vec::new();
        for _ in 0..ROUNDS {
            known.write_all(&round).expect("sent");
            // The client connects and asks while replies to the other one wait.
            let since = Instant::now();
            let mut client = server.connect().expect("a connection");
            let asks = [encode(&[b"GET", b"secret"]), encode(&[b"PING"])].concat();
            client.write_all(&asks).expect("sent");
            clients.push((since, client));
        }
        if resets {
            sockopt::set_socket_linger(&known, Some(Duration::ZERO)).expect("a socket");
            drop(known);
        } else {
            let replies = [b"$15000\r\n", &value[..], b"\r\n", ok].concat();
            (0..ROUNDS).for_each(|_| expect(&mut known, &replies));
        }
        for (since, mut client) in clients {
            let replies = [&b"-NOAUTH Authentication required.\r\n".repeat(2)[..], ok].concat();
            let quits = client.write_all(&encode(&[b"QUIT"]));
            let mut got = Vec::new();
            let end = client.read_to_end(&mut got);
            let whole = quits.is_ok() && end.is_ok() && got == replies;
            // If the machine stood still, the server may have closed the connection before QUIT came.
            let closed = since.elapsed() >= UNAUTHENTICATED && replies.starts_with(&got);
            assert!(whole || closed, "{quits:?}, {end:?}: {}", got.escape_ascii());
        }
    }
}

/// Rounds of requests; the sockets do not hold all the replies to them.
const ROUNDS: usize = 60;

#[test]
fn a_signal_amid_such_requests_ends_it_and_each_client_has_had_its_own() {
    for turn in 0..20 {
        let mut server = server(&[]);
        let clients: Vec<_> = (b'a'..=b'c').map(|name| ask_for_its_own(&server, name)).collect();
        std::thread::sleep(Duration::from_millis(20 + 2 * turn));
        server.terminate();
        assert!(server.wait(PATIENCE).expect("it stops").success(), "turn {turn}");
        clients.into_iter().for_each(|client| client.join().expect("its own replies"));
    }
}
