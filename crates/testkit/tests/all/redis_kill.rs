//! A client that is to be closed is closed: one of many that are named at once, and that never send
//! anything again.

use larder_testkit::bounded::{Bounded, is_closed};
use larder_testkit::talk::encode;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// More than a worker's mailbox has room for.
const CLIENTS: usize = 1500;

/// One worker, which cannot look at anything before it has carried out the command that names them all.
fn server_and_clients(words: &[&[u8]], reply: &str) -> (Bounded, Vec<TcpStream>) {
    let bounded = Bounded::start(64, &["-t", "1"]);
    let clients = (0..CLIENTS).map(|_| {
        let mut stream = bounded.server.connect().expect("a connection");
        ask(&mut stream, words, reply);
        stream
    });
    let clients = clients.collect();
    (bounded, clients)
}

fn ask(stream: &mut TcpStream, words: &[&[u8]], reply: &str) {
    ask_bytes(stream, &encode(words), reply);
}

fn ask_bytes(stream: &mut TcpStream, requests: &[u8], reply: &str) {
    stream.write_all(requests).expect("sent");
    let mut bytes = vec![0; reply.len()];
    stream.read_exact(&mut bytes).expect("a reply");
    assert_eq!(String::from_utf8_lossy(&bytes), reply);
}

#[test]
fn all_that_one_client_kill_names() {
    let (bounded, mut clients) = server_and_clients(&[b"PING"], "+PONG\r\n");
    let mut other = bounded.server.connect().expect("a connection");
    // Both come at once, so that the second is carried out before the worker can have closed anyone.
    let words: [&[u8]; 4] = [b"CLIENT", b"KILL", b"TYPE", b"normal"];
    let twice = [encode(&words), encode(&words)].concat();
    ask_bytes(&mut other, &twice, &format!(":{CLIENTS}\r\n:0\r\n"));
    assert!(clients.iter_mut().all(is_closed), "all are closed");
    ask(&mut other, &[b"PING"], "+PONG\r\n");
}

#[test]
fn all_subscribers_for_whom_one_message_has_no_room() {
    let subscribed = "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n";
    let (bounded, mut clients) = server_and_clients(&[b"SUBSCRIBE", b"news"], subscribed);
    let mut other = bounded.server.connect().expect("a connection");
    // A sixteenth of the memory is for what is on its way: room for some forty of them.
    let message = vec![b'm'; 100_000];
    ask(&mut other, &[b"PUBLISH", b"news", &message], &format!(":{CLIENTS}\r\n"));
    // All others have missed it, and find their connections closed; those that were told read on.
    let told = |stream: &mut TcpStream| match stream.read(&mut [0]) {
        Ok(bytes) => bytes == 1,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
        Err(error) => panic!("neither told nor closed: {error}"),
    };
    let told: Vec<bool> = clients.iter_mut().map(told).collect();
    let count = told.iter().filter(|told| **told).count();
    assert!((1..100).contains(&count), "{count} were told");
    ask(&mut other, &[b"PUBLISH", b"news", b"short"], &format!(":{count}\r\n"));
}
