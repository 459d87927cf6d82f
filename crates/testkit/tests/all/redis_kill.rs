//! A client that is to be closed is closed, although one command names very many of them and they never send anything again.

use larder_testkit::bounded::{Bounded, is_closed};
use larder_testkit::talk::encode;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// More clients than a worker's mailbox has room for.
const CLIENTS: usize = 1500;

/// A server with one worker, and its clients. The worker reads its mailbox only after the command that names
/// all clients.
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
    // Both commands come at once, so that the second is carried out before the worker can have closed any client.
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
    // Messages that are not sent yet may take a sixteenth of the memory, and none is sent before all are
    // published: there is memory for a part of the last message's copies.
    const MESSAGES: usize = 35;
    let publish = encode(&[b"PUBLISH", b"news", b"m"]);
    let requests = [encode(&[b"MULTI"]), publish.repeat(MESSAGES), encode(&[b"EXEC"])].concat();
    let queued = "+QUEUED\r\n".repeat(MESSAGES);
    let counts = format!(":{CLIENTS}\r\n").repeat(MESSAGES);
    ask_bytes(&mut other, &requests, &format!("+OK\r\n{queued}*{MESSAGES}\r\n{counts}"));
    // The other subscribers missed a message, and were closed; those that got all messages stay.
    let message = "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nm\r\n".repeat(MESSAGES);
    let told = |stream: &mut TcpStream| {
        let mut bytes = vec![0; message.len()];
        match stream.read_exact(&mut bytes) {
            Ok(()) => bytes == message.as_bytes(),
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                false
            }
            Err(error) => panic!("neither told nor closed: {error}"),
        }
    };
    let count = clients.iter_mut().map(told).filter(|told| *told).count();
    assert!((1..CLIENTS).contains(&count), "{count} were told");
    ask(&mut other, &[b"PUBLISH", b"news", b"short"], &format!(":{count}\r\n"));
}

/// Each memcached client is closed by its own worker, which sleeps until it is woken for that.
#[test]
fn all_quiet_text_clients_of_a_user_that_is_removed() {
    let user = "app on >secret ~* +@all";
    let bounded = Bounded::start(64, &["-t", "2", "--requirepass", "boss", "--acl-user", user]);
    let clients = (0..100).map(|_| {
        let mut stream = bounded.server.connect().expect("a connection");
        ask_bytes(&mut stream, b"set login 0 0 10\r\napp secret\r\n", "STORED\r\n");
        stream
    });
    let mut clients: Vec<TcpStream> = clients.collect();
    let mut other = bounded.server.connect().expect("a connection");
    ask(&mut other, &[b"AUTH", b"boss"], "+OK\r\n");
    ask(&mut other, &[b"ACL", b"DELUSER", b"app"], ":1\r\n");
    assert!(clients.iter_mut().all(is_closed), "all are closed");
    ask(&mut other, &[b"PING"], "+PONG\r\n");
}
