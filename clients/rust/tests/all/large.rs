//! Values that are written and read piece by piece.

use larder_client::{Client, Error, Outcome, Ttl, Want};
use larder_testkit::PATIENCE;
use larder_testkit::process::Server;
use std::io::{self, Read, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

fn server() -> Server {
    Server::start(&["--threads", "1", "-m", "128", "-I", "32m"]).expect("a server")
}

fn client(server: &Server) -> Client {
    let address = server.address().to_string();
    let builder = Client::builder().server(address.as_str()).timeout(PATIENCE).dial_timeout(PATIENCE);
    builder.stall_timeout(PATIENCE).build().expect("a client")
}

/// A reader of the test's bytes from `at` to `end`, each of which depends on its place; a few at a time. With
/// `fails` an error follows them.
struct Source {
    at: usize,
    end: usize,
    fails: bool,
}

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

impl Read for Source {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let bytes = room.len().min(self.end - self.at).min(1 + self.at % 40_000);
        if bytes == 0 && self.fails {
            return Err(io::ErrorKind::InvalidData.into());
        }
        room[..bytes].iter_mut().zip(self.at..).for_each(|(room, at)| *room = byte(at));
        self.at += bytes;
        Ok(bytes)
    }
}

/// A writer that checks these bytes; with `end` it fails there.
#[derive(Default)]
struct Sink {
    at: usize,
    end: Option<usize>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.end.is_some_and(|end| self.at >= end) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        assert!(bytes.iter().zip(self.at..).all(|(given, at)| *given == byte(at)), "near {}", self.at);
        self.at += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A writer that reports each part, and accepts it when the test allows that, or when the test has dropped
/// its end.
struct Gate {
    came: mpsc::Sender<()>,
    go: mpsc::Receiver<()>,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.came.send(());
        let _ = self.go.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn values_of_all_lengths_go_through_a_reader_and_a_writer() {
    let server = server();
    let client = client(&server);
    for end in [0, 1, 65_535, 65_536, 65_537, 1_000_000, 20_000_000] {
        let mut source = Source { at: 0, end, fails: false };
        client.set(b"k", b"").ttl(Ttl::Forever).flags(7).send_from(&mut source, end as u64).expect("stored");
        let mut sink = Sink::default();
        let meta = client.get_to(b"k", Want::FLAGS, &mut sink).expect("an answer").expect("a hit");
        assert_eq!((sink.at, meta.flags), (end, 7));
    }
    assert_eq!(client.get_to(b"none", Want::default(), &mut Sink::default()), Ok(None));
    // All values went over one connection.
    assert_eq!(client.counters().dials, 1);
}

#[test]
fn what_fails_on_the_callers_side_stores_nothing_and_leaves_the_client_as_it_was() {
    let server = server();
    let client = client(&server);
    client.set(b"k", b"before").send().expect("stored");
    let short = |fails| {
        let mut source = Source { at: 0, end: 3_000_000, fails };
        let error = client.set(b"k", b"").send_from(&mut source, 4_000_000).expect_err("too few");
        assert!(matches!(error, Error::Local(_)), "{error}");
        assert_eq!(error.outcome(), Outcome::NotSent);
        assert_eq!(client.get(b"k").expect("an answer").expect("a hit").bytes, b"before");
    };
    short(false);
    short(true);
    let mut source = Source { at: 0, end: 3_000_000, fails: false };
    client.set(b"k", b"").send_from(&mut source, 3_000_000).expect("stored");
    let mut full = Sink { at: 0, end: Some(100_000) };
    let error = client.get_to(b"k", Want::default(), &mut full).expect_err("it is full");
    assert!(matches!(error, Error::Local(_)), "{error}");
    let mut sink = Sink::default();
    assert!(client.get_to(b"k", Want::default(), &mut sink).expect("an answer").is_some());
    assert_eq!(sink.at, 3_000_000);
    let mut long = Source { at: 0, end: 40 << 20, fails: false };
    assert_eq!(client.set(b"long", b"").send_from(&mut long, 40 << 20), Err(Error::TooLarge));
}

#[test]
fn callers_take_turns_and_closing_ends_the_one_that_waits() {
    let server = server();
    let client = client(&server);
    let mut source = Source { at: 0, end: 2_000_000, fails: false };
    client.set(b"k", b"").send_from(&mut source, 2_000_000).expect("stored");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let mut sink = Sink::default();
                    assert!(client.get_to(b"k", Want::default(), &mut sink).expect("an answer").is_some());
                    assert_eq!(sink.at, 2_000_000);
                }
            });
        }
    });
    assert_eq!(client.counters().dials, 1);
    server.pause().expect("it stands still");
    thread::scope(|scope| {
        let waits = scope.spawn(|| client.get_to(b"k", Want::default(), &mut Sink::default()));
        thread::sleep(Duration::from_millis(50));
        client.close();
        // No request was sent yet: the client first tries a connection that it had kept.
        assert_eq!(waits.join().expect("it does not panic"), Err(Error::Closed(Outcome::NotSent)));
    });
    server.resume();
    let closed = Err(Error::Closed(Outcome::NotSent));
    assert_eq!(client.get_to(b"k", Want::default(), &mut Sink::default()), closed);
}

#[test]
fn what_was_asked_and_has_come_in_part_is_unknown_when_the_client_is_closed() {
    let server = server();
    // The value is longer than the sockets' buffers: while it is not read, the server still has its end when
    // the client is closed.
    let bytes = 20_000_000;
    let mut source = Source { at: 0, end: bytes, fails: false };
    client(&server).set(b"k", b"").send_from(&mut source, bytes as u64).expect("stored");
    for has_gone in [false, true] {
        let client = client(&server);
        let ((came, comes), (goes, go)) = (mpsc::channel(), mpsc::channel());
        thread::scope(|scope| {
            let client = &client;
            let get = scope.spawn(move || client.get_to(b"k", Want::default(), &mut Gate { came, go }));
            comes.recv().expect("a part came");
            if has_gone {
                // The server is removed from the list while it is in use.
                client.change_servers(vec!["127.0.0.1:1".into()]).expect("a good server");
            }
            client.close();
            drop(goes);
            let closed = get.join().expect("it does not panic");
            assert_eq!(closed, Err(Error::Closed(Outcome::Unknown)), "{has_gone}");
        });
    }
}
