//! RESP clients on several threads of a real server: exact counts under WATCH, order of messages,
//! slow subscribers.

use larder_testkit::PATIENCE;
use larder_testkit::process::Server;
use larder_testkit::talk::encode;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

fn server() -> Server {
    Server::start(&["-m", "64", "-t", "2"]).expect("larder starts")
}

struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    fn new(server: &Server) -> Client {
        let stream = server.connect().expect("a connection");
        let reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        Client { stream, reader }
    }

    fn send(&mut self, words: &[&[u8]]) {
        self.stream.write_all(&encode(words)).expect("sent");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, words: &[&[u8]]) -> String {
        self.send(words);
        self.line()
    }

    /// A bulk string, or none.
    fn bulk(&mut self) -> Option<String> {
        let head = self.line();
        (head != "$-1").then(|| self.line())
    }
}

#[test]
fn counter_raised_under_watch_by_many_counts_exactly() {
    let server = server();
    const EACH: usize = 500;
    let clients = 6;
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = Client::new(&server);
                let mut raised = 0;
                while raised < EACH {
                    assert_eq!(client.ask(&[b"WATCH", b"counter"]), "+OK");
                    client.send(&[b"GET", b"counter"]);
                    let seen: u64 = client.bulk().map_or(0, |value| value.parse().expect("a number"));
                    let next = (seen + 1).to_string();
                    client.send(&[b"MULTI"]);
                    client.send(&[b"SET", b"counter", next.as_bytes()]);
                    client.send(&[b"INCR", b"twin"]);
                    client.send(&[b"EXEC"]);
                    assert_eq!([client.line(), client.line(), client.line()], ["+OK", "+QUEUED", "+QUEUED"]);
                    match client.line().as_str() {
                        "*-1" => {}
                        "*2" => {
                            assert_eq!(client.line(), "+OK");
                            assert_eq!(client.line(), format!(":{next}"), "both move together");
                            raised += 1;
                        }
                        other => panic!("{other}"),
                    }
                }
            });
        }
    });
    let mut client = Client::new(&server);
    client.send(&[b"GET", b"counter"]);
    assert_eq!(client.bulk(), Some((clients * EACH).to_string()));
}

#[test]
fn every_subscriber_hears_every_publisher_in_order() {
    let server = server();
    const EACH: usize = 3000;
    let mut listeners: Vec<Client> = (0..4).map(|_| Client::new(&server)).collect();
    for client in &mut listeners {
        assert_eq!(client.ask(&[b"SUBSCRIBE", b"news"]), "*3");
        assert_eq!([client.line(), client.line(), client.line(), client.line()].last().unwrap(), "news");
        assert_eq!(client.line(), ":1");
    }
    std::thread::scope(|scope| {
        for publisher in 0..3 {
            let server = &server;
            scope.spawn(move || {
                let mut client = Client::new(server);
                for n in 0..EACH {
                    client.send(&[b"PUBLISH", b"news", format!("{publisher} {n}").as_bytes()]);
                }
                (0..EACH).for_each(|_| assert_eq!(client.line(), ":4"));
            });
        }
        for client in &mut listeners {
            scope.spawn(move || {
                let mut next = [0; 3];
                for _ in 0..3 * EACH {
                    let lines: Vec<String> = (0..7).map(|_| client.line()).collect();
                    let (publisher, n) = lines[6].split_once(' ').expect("two numbers");
                    let publisher: usize = publisher.parse().expect("a number");
                    assert_eq!(n, next[publisher].to_string());
                    next[publisher] += 1;
                }
            });
        }
    });
}

#[test]
fn subscriber_that_does_not_read_is_cut_and_others_are_not() {
    let server = server();
    let mut slow = Client::new(&server);
    slow.ask(&[b"SUBSCRIBE", b"news"]);
    let mut publisher = Client::new(&server);
    // One of each worker: by the time it is answered, the worker has looked at what was there for the slow one.
    let mut others = [(); 2].map(|()| Client::new(&server));
    let text = vec![b'x'; 60_000];
    let start = Instant::now();
    let mut sent = 0u64;
    loop {
        let told = publisher.ask(&[b"PUBLISH", b"news", &text]);
        sent += text.len() as u64;
        if told == ":0" {
            break;
        }
        others.iter_mut().for_each(|other| assert_eq!(other.ask(&[b"PING"]), "+PONG"));
        assert!(start.elapsed() < PATIENCE, "{sent} bytes, and it still listens");
    }
    assert!(sent < 64 << 20, "{sent} bytes waited for one of 64 MiB");
    assert_eq!(publisher.ask(&[b"PING"]), "+PONG");
    // It gets what was under way, and then the end.
    let mut rest = Vec::new();
    let end = slow.reader.read_to_end(&mut rest);
    assert!(end.is_ok() || end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
}
