//! The events of an observer: each call with its verb, its server and its result; connections that were made
//! or could not be made; servers that are down, or back.

use larder_client::{Builder, Call, Client, Error, Event, Outcome, Server as Address, Ttl, Want};
use larder_testkit::PATIENCE;
use larder_testkit::folder::Folder;
use larder_testkit::process::Server;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime;

/// Observed events, as text.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// A builder for a client of one server, with these notes as its observer.
    fn of(&self, address: &str) -> Builder {
        let (notes, name) = (self.clone(), address.to_owned());
        let builder = Client::builder().server(address).timeout(PATIENCE).dial_timeout(PATIENCE);
        builder.stall_timeout(PATIENCE).observer(move |event| {
            notes.0.lock().expect("nobody panicked").push(words(event, &name));
        })
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("nobody panicked"))
    }
}

/// An event as text. A call has its verb, the number of its keys, how many of them were missing, ` of it` if
/// one server served it, and the fault if it failed.
fn words(event: &Event<'_>, name: &str) -> String {
    let (text, server, took) = match *event {
        Event::Call(Call { verb, server, keys, missing, took, error, .. }) => {
            let of = if server.is_some() { " of it" } else { "" };
            let fault = error.map_or_else(String::new, |error| format!(": {:?}", error.fault()));
            (format!("{verb} {keys} -{missing}{of}{fault}"), server, took)
        }
        Event::Connected { server, took } => ("connected".to_owned(), Some(server), took),
        Event::ConnectFailed { server, took, error } => {
            assert_eq!(error.server(), Some(name));
            ("not connected".to_owned(), Some(server), took)
        }
        Event::Down { server, reason } => {
            assert!(!reason.to_string().is_empty());
            ("down".to_owned(), Some(server), Duration::ZERO)
        }
        Event::Back { server } => ("back".to_owned(), Some(server), Duration::ZERO),
        _ => panic!("{event:?}"),
    };
    assert!(server.is_none_or(|server| server == name), "{event:?}");
    assert!(took <= PATIENCE, "{event:?}");
    text
}

#[test]
fn an_observer_is_told_of_calls_and_connections() {
    let server = Server::start(&["--threads", "1", "-m", "64"]).expect("a server");
    let notes = Notes::default();
    let client = notes.of(&server.address().to_string()).build().expect("a client");
    assert!(notes.taken().is_empty(), "nothing was dialed");
    client.set(b"k", b"v").send().expect("stored");
    assert_eq!(client.get(b"none"), Ok(None));
    assert_eq!(client.set(b"not a key", b"").send(), Err(Error::BadKey));
    assert_eq!(client.decr(b"k", 1).send(), Err(Error::NotNumber));
    let told = ["connected", "set 1 -0 of it", "get 1 -1 of it", "set 1 -0: Caller"];
    assert_eq!(notes.taken(), [&told[..], &["decr 1 -0 of it: Caller"]].concat());

    let mut batch = client.batch();
    let tickets = (batch.get(b"k"), batch.get(b"none"), batch.set(b"l", b"", Ttl::Forever));
    let done = batch.run();
    assert!(done.take(tickets.0).expect("an answer").is_some());
    assert!(done.take(tickets.1).expect("an answer").is_none());
    done.take(tickets.2).expect("stored");
    drop(done);
    let bad = batch.get(b"not a key");
    assert!(batch.run().take(bad).is_err());
    drop(batch.run());
    assert_eq!(notes.taken(), ["batch 3 -1", "batch 1 -0: Caller"], "a batch of nothing is none");

    // These calls use a connection for one caller at a time, which is made once.
    let mut value = Vec::new();
    client.get_to(b"k", Want::default(), &mut value).expect("an answer").expect("a hit");
    client.set(b"m", b"").send_from(&mut b"value".as_slice(), 5).expect("stored");
    assert!(client.set(b"m", b"").send_from(&mut b"val".as_slice(), 5).is_err());
    assert_eq!(client.touch(b"none", Ttl::Forever), Ok(false));
    let told = ["connected", "get 1 -0 of it", "set 1 -0 of it", "set 1 -0 of it: Caller"];
    assert_eq!(notes.taken(), [&told[..], &["touch 1 -1 of it"]].concat());
    client.close();
    assert_eq!(client.get(b"k"), Err(Error::Closed(Outcome::NotSent)));
    assert_eq!(notes.taken(), ["get 1 -0 of it: Caller"]);
}

#[test]
fn an_observer_of_a_client_for_tasks_is_told_the_same() {
    let server = Server::start(&["--threads", "1", "-m", "64"]).expect("a server");
    let notes = Notes::default();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = notes.of(&server.address().to_string()).build_tokio().expect("a client");
        client.set(b"k", b"v").send().await.expect("stored");
        assert_eq!(client.get(b"none").await, Ok(None));
        assert_eq!(client.set(b"not a key", b"").send().await, Err(Error::BadKey));
        let mut batch = client.batch();
        let (there, none) = (batch.get(b"k"), batch.get(b"none"));
        let done = batch.run().await;
        assert!(done.take(there).expect("an answer").is_some());
        assert!(done.take(none).expect("an answer").is_none());
    });
    let told = ["connected", "set 1 -0 of it", "get 1 -1 of it", "set 1 -0: Caller", "batch 2 -1"];
    assert_eq!(notes.taken(), told);
}

#[test]
fn an_observer_is_told_that_a_server_is_down_and_back() {
    let folder = Folder::new("observe");
    let path = folder.join("socket");
    let notes = Notes::default();
    let client = notes.of(path.to_str().expect("text")).build().expect("a client");
    for _ in 0..3 {
        assert!(matches!(client.get(b"k"), Err(Error::Down(..))));
    }
    let failed = ["not connected", "get 1 -0 of it: Network"];
    let told = notes.taken();
    assert_eq!(told[..4], [failed, failed].concat());
    assert_eq!(told[4..], [failed[0], "down", failed[1]]);

    let listener = UnixListener::bind(&path).expect("a socket");
    let answers = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let mut write = stream.try_clone().expect("the same");
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            // The server's version is too old for meta text, and the server has no items.
            let answer = if line == "version" { "VERSION 1.4.0\r\n" } else { "END\r\n" };
            write.write_all(answer.as_bytes()).expect("sent");
        }
    });
    let until = Instant::now() + PATIENCE;
    while let Err(error) = client.get(b"k") {
        assert!(matches!(error, Error::Down(..)), "{error}");
        assert!(Instant::now() < until, "{error}");
        thread::sleep(Duration::from_millis(1));
    }
    let mut told = notes.taken();
    // The server counts as down until its pause is over.
    told.retain(|words| words != failed[1]);
    assert_eq!(told, ["connected", "back", "get 1 -1 of it"]);
    client.close();
    answers.join().expect("it ended with the connection");
}

#[test]
fn an_observer_is_told_of_a_connection_to_a_server_that_went_and_of_none_behind_a_close() {
    let server = Server::start(&["--threads", "1", "-m", "64"]).expect("a server");
    let folder = Folder::new("observe-gone");
    let path = folder.join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let (notes, name) = (Notes::default(), path.to_str().expect("text"));
    let greeting = b"VERSION 1.4.0\r\n";
    let client = notes.of(name).build().expect("a client");
    thread::scope(|scope| {
        let get = scope.spawn(|| client.get(b"k"));
        let (mut stream, _) = listener.accept().expect("a connection");
        // The call waits for the greeting, while a new list moves its key to another server.
        let address = server.address().to_string();
        let other = Address { address, name: Some(name.to_owned()), weight: 1 };
        client.change_servers(vec![other]).expect("a good server");
        stream.write_all(greeting).expect("sent");
        assert_eq!(get.join().expect("it does not panic"), Ok(None));
    });
    assert_eq!(notes.taken(), ["connected", "connected", "get 1 -1 of it"]);

    let client = notes.of(name).build().expect("a client");
    thread::scope(|scope| {
        let get = scope.spawn(|| client.get_to(b"k", Want::default(), &mut Vec::<u8>::new()));
        let (mut stream, _) = listener.accept().expect("a connection");
        client.close();
        stream.write_all(greeting).expect("sent");
        let closed = get.join().expect("it does not panic");
        assert_eq!(closed, Err(Error::Closed(Outcome::NotSent)));
    });
    assert_eq!(notes.taken(), ["get 1 -0 of it: Caller"]);
}
