//! How a real server stops: requests that have arrived are answered, the server waits for no client without limit, and a second
//! signal ends it at once.

use larder_testkit::PATIENCE;
use larder_testkit::client::Client;
use larder_testkit::process::Server;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long the server waits for a client that reads none of its replies.
const STALL: Duration = Duration::from_secs(5);

fn server() -> Server {
    Server::start(&["-m", "64", "-t", "2"]).expect("larder starts")
}

fn client(server: &Server) -> Client {
    server.connect().and_then(Client::new).expect("a connection")
}

/// A client that has asked for `times` values of `bytes` at once and has read nothing, so that the server has to wait. All
/// requests are in one packet, so they have arrived when a reply has.
fn held_back(server: &Server, bytes: usize, times: usize) -> Client {
    let mut client = client(server);
    client.store("set", "k", &vec![b'v'; bytes], None);
    client.flush().expect("sent");
    assert_eq!(client.reply().expect("a reply"), "STORED");
    for _ in 0..times {
        client.line("get k");
    }
    client.flush().expect("sent");
    assert_eq!(client.stream().peek(&mut [0]).expect("the begin of a reply"), 1);
    client
}

/// Runs a test that stops a server at the moment that `stop` sets, beside a client that reads. If the machine
/// keeps the client from its core for as long as the server waits, the server takes it for one that does not
/// read: then the test starts again.
fn beside_a_reader(stop: impl Fn(&mut Instant) -> io::Result<()>) {
    let began = Instant::now();
    loop {
        let mut stops = Instant::now();
        let Err(error) = stop(&mut stops) else { return };
        assert!(stops.elapsed() >= STALL && began.elapsed() < PATIENCE, "not all is answered: {error}");
    }
}

#[test]
fn requests_that_a_slow_reader_holds_back_are_answered_before_the_end() {
    beside_a_reader(|stops| {
        let mut server = server();
        let mut slow = held_back(&server, 1_000_000, 60);
        let mut idle = server.connect()?;
        *stops = Instant::now();
        server.terminate();
        assert_eq!(idle.read(&mut [0])?, 0, "who has asked for nothing is not waited for");
        for _ in 0..60 {
            assert_eq!(slow.hits()?[0].value.len(), 1_000_000);
        }
        assert!(slow.rest()?.is_empty());
        assert!(server.wait(PATIENCE).expect("it stops").success());
        Ok(())
    });
}

#[test]
fn a_write_behind_held_replies_is_executed_and_acknowledged() {
    beside_a_reader(|stops| {
        let mut server = server();
        let mut slow = client(&server);
        slow.store("set", "k", &vec![b'v'; 1_000_000], None);
        slow.flush()?;
        assert_eq!(slow.reply()?, "STORED");
        for _ in 0..20 {
            slow.line("get k");
        }
        slow.store("set", "last", b"words", None);
        slow.line("get last");
        slow.flush()?;
        assert_eq!(slow.stream().peek(&mut [0])?, 1);
        *stops = Instant::now();
        server.terminate();
        for _ in 0..20 {
            assert_eq!(slow.hits()?[0].value.len(), 1_000_000);
        }
        assert_eq!(slow.reply()?, "STORED");
        assert_eq!(slow.hits()?[0].value, b"words");
        assert!(slow.rest()?.is_empty());
        assert!(server.wait(PATIENCE).expect("it stops").success());
        Ok(())
    });
}

#[test]
fn who_never_reads_is_not_waited_for() {
    let mut server = server();
    let slow = held_back(&server, 1_000_000, 60);
    server.terminate();
    assert!(server.wait(PATIENCE).expect("it stops").success());
    drop(slow);
}

#[test]
fn a_value_that_is_half_there_is_not_waited_for() {
    let mut server = server();
    let mut half: TcpStream = server.connect().expect("a connection");
    half.write_all(b"version\r\nset k 0 0 100000\r\nhalf of it").expect("sent");
    let mut reply = [0; 8];
    half.read_exact(&mut reply).expect("a reply");
    assert_eq!(&reply, b"VERSION ");
    server.terminate();
    assert!(server.wait(PATIENCE).expect("it stops").success());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = server();
    let slow = held_back(&server, 1_000_000, 60);
    let mut idle = server.connect().expect("a connection");
    let started = Instant::now();
    server.terminate();
    // The server has begun to stop, and waits for the client that does not read.
    assert_eq!(idle.read(&mut [0]).expect("an end"), 0);
    server.terminate();
    let status = server.wait(PATIENCE).expect("it ends");
    // On a machine that was suspended meanwhile, the first signal has ended the server.
    assert!(!status.success() || started.elapsed() >= STALL, "replies were left");
    drop(slow);
}

#[test]
fn the_command_stops_it_as_the_signal_does() {
    beside_a_reader(|stops| {
        let mut server = Server::start(&["-m", "64", "-t", "2", "-A"]).expect("larder starts");
        let mut slow = held_back(&server, 1_000_000, 60);
        let mut other = server.connect()?;
        *stops = Instant::now();
        other.write_all(b"shutdown\r\n")?;
        for _ in 0..60 {
            assert_eq!(slow.hits()?[0].value.len(), 1_000_000);
        }
        assert!(slow.rest()?.is_empty());
        assert!(server.wait(PATIENCE).expect("it stops").success());
        Ok(())
    });
}
