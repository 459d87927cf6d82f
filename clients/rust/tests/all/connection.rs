//! A connection in a caller's event loop: each request ends once, with its own reply, whatever happens to the
//! server.

use larder_client::wire::{Ask, Count, Get, Store};
use larder_client::{
    Builder, Client, Connection, Deliveries, Error, OpenSocket, Outcome, Ready, Reply, Untaken,
};
use larder_testkit::PATIENCE;
use larder_testkit::process::{Port, Server};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

fn server() -> Server {
    Server::start(&["--threads", "1", "-m", "64"]).expect("a server")
}

fn builder(address: &str) -> Builder {
    let builder = Client::builder().server(address).timeout(PATIENCE).dial_timeout(PATIENCE);
    builder.stall_timeout(PATIENCE).verify(true)
}

fn connection(server: &Server) -> Connection {
    builder(&server.address().to_string()).connection(Instant::now()).expect("it begins")
}

/// A turn of an event loop with one connection.
fn turn(connection: &mut Connection, done: &mut Deliveries) -> Result<(), Error> {
    let wants = connection.wants();
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, wants.read);
    flags.set(PollFlags::OUT, wants.write);
    let wake = connection.wake_at().map_or(PATIENCE, |wake| wake.saturating_duration_since(Instant::now()));
    let limit = Timespec { tv_sec: wake.as_secs() as _, tv_nsec: i64::from(wake.subsec_nanos()) as _ };
    let mut fds = [PollFd::from_borrowed_fd(connection.as_fd(), flags)];
    poll(&mut fds, Some(&limit)).expect("it waits");
    let found = fds[0].revents();
    let over = found.intersects(PollFlags::HUP | PollFlags::ERR);
    let ready =
        Ready { read: over || found.contains(PollFlags::IN), write: over || found.contains(PollFlags::OUT) };
    connection.process(ready, Instant::now(), done)
}

fn get(connection: &mut Connection, key: &str, tag: usize) -> Result<(), Untaken> {
    connection.submit(key.as_bytes(), Ask::Get(Get::default()), None, tag, Instant::now())
}

fn set(connection: &mut Connection, key: &str, value: &[u8], tag: usize) -> Result<(), Untaken> {
    let store = Ask::Store(Store { value, ..Store::default() });
    connection.submit(key.as_bytes(), store, None, tag, Instant::now())
}

/// The results of `count` requests, by tag.
fn all(connection: &mut Connection, count: usize) -> Vec<Result<(Reply, Vec<u8>), Error>> {
    let mut ended: Vec<Option<_>> = (0..count).map(|_| None).collect();
    let mut done = Deliveries::default();
    while connection.owed() > 0 {
        let over = turn(connection, &mut done);
        for (tag, result, value) in done.iter() {
            let result = result.map(|reply| (reply, value.to_vec())).map_err(Error::clone);
            assert!(ended[tag].replace(result).is_none(), "{tag} ends twice");
        }
        done.clear();
        if over.is_err() {
            break;
        }
    }
    ended.into_iter().map(|ended| ended.expect("each ends")).collect()
}

#[test]
fn each_request_has_its_own_answer() {
    let server = server();
    let mut connection = connection(&server);
    let value =
        |n: usize| format!("{n}:").repeat(if n.is_multiple_of(40) { 30_000 } else { n % 50 }).into_bytes();
    for round in 0..3 {
        // The first requests are accepted before there is a connection.
        for n in 0..200 {
            set(&mut connection, &format!("key{n}"), &value(n + round), n).expect("there is room");
        }
        assert!(all(&mut connection, 200).iter().all(Result::is_ok));
        for n in 0..200 {
            get(&mut connection, &format!("key{n}"), n).expect("there is room");
        }
        get(&mut connection, "none", 200).expect("there is room");
        let count = Ask::Count(Count { delta: 1, initial: Some((7, 0)), ..Count::default() });
        connection.submit(b"n", count, None, 201, Instant::now()).expect("there is room");
        let bad = get(&mut connection, "a b", 0);
        assert_eq!(bad, Err(Untaken::Failed(Error::BadKey)));
        let ended = all(&mut connection, 202);
        for (n, ended) in ended[..200].iter().enumerate() {
            let (reply, bytes) = ended.as_ref().expect("an answer");
            assert!(reply.found && *bytes == value(n + round), "{n} has another's value");
        }
        assert!(!ended[200].as_ref().expect("an answer").0.found);
        let (counted, bytes) = ended[201].as_ref().expect("an answer");
        assert_eq!((counted.number, bytes.len()), (7 + round as u64, 0));
    }
    assert_eq!(connection.wants(), Ready { read: true, write: false });
}

#[test]
fn what_is_late_is_told_and_its_answer_thrown_away() {
    let server = server();
    let address = server.address().to_string();
    let timeout = Duration::from_millis(50);
    let mut connection = builder(&address).timeout(timeout).connection(Instant::now()).expect("it begins");
    let mut patient = builder(&address).connection(Instant::now()).expect("it begins");
    set(&mut patient, "a", b"of a", 0).expect("there is room");
    set(&mut patient, "b", b"of b", 1).expect("there is room");
    assert!(all(&mut patient, 2).iter().all(Result::is_ok));
    // Requests that were made before the connection is open may time out, so this repeats until one succeeds.
    let until = Instant::now() + PATIENCE;
    let mut done = Deliveries::default();
    loop {
        get(&mut connection, "a", 0).expect("there is room");
        while done.is_empty() {
            turn(&mut connection, &mut done).expect("it is only late");
        }
        let answered = done.iter().next().expect("it ended").1.is_ok();
        done.clear();
        if answered {
            break;
        }
        assert!(Instant::now() < until, "nothing is answered");
    }
    server.pause().expect("it stops");
    // A request is sent as soon as it is made, even if this thread does not return to the loop.
    let now = Instant::now();
    connection.submit(b"a", Ask::Get(Get::default()), None, 0, now).expect("there is room");
    connection.process(Ready::default(), now, &mut done).expect("it is sent");
    while done.is_empty() {
        turn(&mut connection, &mut done).expect("it is only late");
    }
    let (tag, result, _) = done.iter().next().expect("it ended");
    assert!(matches!((tag, result), (0, Err(Error::Timeout(_, Outcome::Unknown)))));
    server.resume();
    done.clear();
    loop {
        get(&mut connection, "b", 1).expect("there is room");
        while done.is_empty() {
            turn(&mut connection, &mut done).expect("it is only late");
        }
        let (tag, result, value) = done.iter().next().expect("it ended");
        assert_eq!(tag, 1);
        if result.is_ok() {
            assert_eq!(value, b"of b");
            break;
        }
        assert!(Instant::now() < until, "nothing is answered any more");
        done.clear();
    }
}

#[test]
fn when_the_server_dies_each_request_is_told() {
    let mut server = server();
    let mut connection = connection(&server);
    set(&mut connection, "k", b"v", 0).expect("there is room");
    all(&mut connection, 1)[0].as_ref().expect("stored");
    server.pause().expect("it stops");
    (0..50).for_each(|n| get(&mut connection, "k", n).expect("there is room"));
    let mut done = Deliveries::default();
    connection.process(Ready::default(), Instant::now(), &mut done).expect("they are sent");
    (50..60).for_each(|n| get(&mut connection, "k", n).expect("there is room"));
    server.kill();
    let mut over = connection.process(Ready::default(), Instant::now(), &mut done);
    while over.is_ok() {
        over = turn(&mut connection, &mut done);
    }
    assert!(matches!(over, Err(Error::Lost(..))), "{over:?}");
    let mut tags = Vec::new();
    for (tag, result, _) in done.iter() {
        let error = result.expect_err("nobody has answered");
        assert!(matches!(error, Error::Lost(..)), "{error}");
        assert!(tag >= 50 || error.outcome() == Outcome::Unknown, "{tag}: {error}");
        tags.push(tag);
    }
    tags.sort_unstable();
    assert!(tags.into_iter().eq(0..60), "each ends once");
    assert_eq!((connection.owed(), connection.wants(), connection.wake_at()), (0, Ready::default(), None));
    let refused = get(&mut connection, "k", 0);
    assert!(matches!(refused, Err(Untaken::Failed(Error::Lost(_, _, Outcome::NotSent)))), "{refused:?}");
}

#[test]
fn where_nobody_listens_early_requests_are_told() {
    let port = Port::reserve().expect("a port");
    let mut connection = builder(&port.address().to_string()).connection(Instant::now()).expect("it begins");
    get(&mut connection, "k", 7).expect("there is room");
    let mut done = Deliveries::default();
    let over = loop {
        if let Err(error) = turn(&mut connection, &mut done) {
            break error;
        }
    };
    assert_eq!(over.os_error(), Some(rustix::io::Errno::CONNREFUSED.raw_os_error()));
    let ended: Vec<_> =
        done.iter().map(|(tag, result, _)| (tag, result.expect_err("nobody is there"))).collect();
    assert!(matches!(ended[..], [(7, Error::Down(..))]), "{ended:?}");
    assert_eq!(connection.process(Ready::default(), Instant::now(), &mut done), Err(over));
}

#[test]
fn a_server_that_says_nothing_is_waited_for_so_long() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let began = Instant::now();
    let second = Duration::from_secs(1);
    let builder = Client::builder().server(address.as_str()).timeout(second).dial_timeout(3 * second);
    let mut connection = builder.connection(began).expect("it begins");
    connection.submit(b"k", Ask::Get(Get::default()), None, 7, began).expect("there is room");
    assert_eq!(connection.wake_at(), Some(began + second));
    let mut done = Deliveries::default();
    connection.process(Ready::default(), began + second, &mut done).expect("it may still greet");
    let ended: Vec<_> = done.iter().map(|(tag, result, _)| (tag, result.expect_err("it is late"))).collect();
    assert!(matches!(ended[..], [(7, Error::Timeout(_, Outcome::NotSent))]), "{ended:?}");
    assert_eq!(connection.wake_at(), Some(began + 3 * second));
    let over = connection.process(Ready::default(), began + 3 * second, &mut done);
    assert!(matches!(over, Err(Error::Down(..))), "{over:?}");
}

#[test]
fn no_more_are_taken_than_may_be_owed() {
    let server = server();
    let mut connection =
        builder(&server.address().to_string()).in_flight(10).connection(Instant::now()).expect("it begins");
    for _ in 0..2 {
        (0..10).for_each(|n| get(&mut connection, "k", n).expect("there is room"));
        assert_eq!(get(&mut connection, "k", 10), Err(Untaken::Full));
        assert!(all(&mut connection, 10).iter().all(Result::is_ok));
    }
}

#[test]
fn what_would_wait_is_refused() {
    let begun = |address: &str| builder(address).connection(Instant::now());
    assert!(matches!(begun("localhost:11211"), Err(Error::Config(_))));
    assert!(matches!(begun("127.0.0.1"), Err(Error::Config(_))));
    let two = Client::builder().server("127.0.0.1:1").server("127.0.0.1:2").connection(Instant::now());
    assert!(matches!(two, Err(Error::Config(_))));
    let server = server();
    let OpenSocket { number, inode } = connection(&server).socket().expect("it is open");
    assert!(number > 2 && inode > 0);
}
