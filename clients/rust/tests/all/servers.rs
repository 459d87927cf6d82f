//! Servers that come, go and fail: where keys are stored meanwhile, how long those values live, and what
//! happens to requests under way.

use larder_client::{
    Builder, Client, Discovery, Error, Event, Failure, Fault, Outcome, Server as Address, Ttl, Want, Window,
};
use larder_testkit::PATIENCE;
use larder_testkit::process::Server;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::runtime::{self, Runtime};
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(3600);

fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| Server::start(&["--threads", "1", "-m", "64"]).expect("a server")).collect()
}

fn address(server: &Server) -> Address {
    Address::from(server.address().to_string().as_str())
}

fn builder<'s>(servers: impl IntoIterator<Item = &'s Server>) -> Builder {
    let builder =
        Client::builder().timeout(PATIENCE).dial_timeout(PATIENCE).stall_timeout(PATIENCE).verify(true);
    servers.into_iter().fold(builder, |builder, server| builder.server(address(server)))
}

fn runtime() -> Runtime {
    runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn keys() -> Vec<String> {
    (0..200).map(|n| format!("key:{n}")).collect()
}

fn ttl_of(client: &Client, key: &str) -> Option<Duration> {
    let read = client.get_with(key.as_bytes(), Want::TTL, &mut Vec::new());
    read.expect("an answer").expect("a hit").ttl
}

/// Stores all keys. Writes to a server that has died are repeated until they succeed elsewhere.
fn store_all(client: &Client) {
    let until = Instant::now() + PATIENCE;
    for key in keys() {
        while let Err(error) = client.set(key.as_bytes(), key.as_bytes()).send() {
            // A request was under way when the server died, or used its connection.
            assert!(matches!(error, Error::Lost(..)), "{error}");
            assert!(Instant::now() < until, "{error}");
        }
    }
}

#[test]
fn others_get_the_keys_of_a_server_that_is_down_for_a_while_only() {
    for gutter in [false, true] {
        let mut all = servers(3);
        let spare = all.pop().expect("three");
        let failure = match gutter {
            true => Failure::Gutter { servers: vec![address(&spare)], ttl: TTL },
            false => Failure::Rehash { ttl: TTL },
        };
        let client = builder(&all).failure(failure).build().expect("a client");
        store_all(&client);
        let (mut dead, alive) = (all.pop().expect("two"), all.pop().expect("one"));
        let dead_name = dead.address().to_string();
        let of_dead: Vec<String> =
            keys().into_iter().filter(|key| client.server_of(key.as_bytes()) == dead_name).collect();
        assert!(of_dead.len() > 20, "{} keys", of_dead.len());
        dead.kill();
        store_all(&client);
        for key in keys() {
            let value = client.get(key.as_bytes()).expect("an answer").expect("a hit");
            assert_eq!(value.bytes, key.as_bytes());
            let ttl = ttl_of(&client, &key);
            match of_dead.contains(&key) {
                true => assert!(ttl.expect("it ends") <= TTL, "{key}: {ttl:?}"),
                false => assert_eq!(ttl, None, "{key}"),
            }
        }
        // The same by a batch and a stream.
        let mut batch = client.batch();
        let gets: Vec<_> = keys().iter().map(|key| batch.get(key.as_bytes())).collect();
        let sets: Vec<_> =
            keys().iter().map(|key| batch.set(key.as_bytes(), b"batch", Ttl::Forever)).collect();
        let done = batch.run();
        assert!(gets.into_iter().all(|get| done.take(get).expect("an answer").is_some()));
        assert!(sets.into_iter().all(|set| done.take(set).is_ok()));
        drop(done);
        let mut stream = client.stream(Window::default());
        keys()
            .iter()
            .for_each(|key| stream.set(key.as_bytes(), b"stream", Ttl::Forever).expect("a good key"));
        assert!(stream.barrier().is_clean());
        assert!(of_dead.iter().all(|key| ttl_of(&client, key).is_some_and(|ttl| ttl <= TTL)));
        // The values are on the server that the client's setting chooses.
        let (other, own) = (if gutter { &spare } else { &alive }, keys().len() - of_dead.len());
        let count = |server: &Server| {
            let client = builder([server]).build().expect("a client");
            keys().iter().filter(|key| client.get(key.as_bytes()).expect("an answer").is_some()).count()
        };
        assert_eq!(count(other), of_dead.len() + if gutter { 0 } else { own });
        assert_eq!(count(&alive), own + if gutter { 0 } else { of_dead.len() });
    }
}

#[test]
fn without_a_stand_in_callers_are_told() {
    let mut all = servers(2);
    let client = builder(&all).build().expect("a client");
    store_all(&client);
    let mut last = all.pop().expect("two");
    last.kill();
    let dead = last.address().to_string();
    let until = Instant::now() + PATIENCE;
    let told = |key: &String| client.get(key.as_bytes()).err();
    let of_dead: Vec<String> =
        keys().into_iter().filter(|key| client.server_of(key.as_bytes()) == dead).collect();
    while !of_dead.iter().all(|key| matches!(told(key), Some(Error::Down(..)))) {
        assert!(Instant::now() < until);
    }
    let others = keys().into_iter().filter(|key| !of_dead.contains(key));
    assert!(others.map(|key| client.get(key.as_bytes())).all(|value| value.expect("an answer").is_some()));
}

#[test]
fn a_server_is_not_blamed_for_time_that_another_has_taken() {
    let others = servers(1);
    // This server accepts connections, and never sends a greeting.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = (silent.local_addr().expect("it is bound").to_string(), silent);
    let failed = Arc::new(Mutex::new(Vec::new()));
    let builder = || {
        let failed = Arc::clone(&failed);
        let builder = builder(&others).server(silent.0.as_str()).failure(Failure::Rehash { ttl: TTL });
        builder.timeout(Duration::from_millis(100)).observer(move |event| {
            if let Event::ConnectFailed { server, .. } = event {
                failed.lock().expect("not poisoned").push((*server).to_owned());
            }
        })
    };
    let client = builder().build().expect("a client");
    let of_silent = |key: &String| client.server_of(key.as_bytes()) == silent.0;
    let key = keys().into_iter().find(of_silent).expect("one of all");
    // The third failure opens the breaker of the silent server.
    for _ in 0..3 {
        let asked = client.get_to(key.as_bytes(), Want::default(), &mut io::sink());
        assert!(matches!(asked, Err(Error::Timeout(_, Outcome::NotSent))), "{asked:?}");
    }
    runtime().block_on(async {
        let client = builder().build_tokio().expect("a client");
        for _ in 0..3 {
            let asked = client.get_to(key.as_bytes(), Want::default(), &mut tokio::io::sink()).await;
            assert!(matches!(asked, Err(Error::Timeout(_, Outcome::NotSent))), "{asked:?}");
        }
    });
    let failed = failed.lock().expect("not poisoned");
    assert!(!failed.is_empty() && failed.iter().all(|server| *server == silent.0), "{failed:?}");
}

#[test]
fn servers_that_stay_keep_their_connections_and_those_that_go_are_left() {
    let all = servers(3);
    let client = builder(&all[..2]).build().expect("a client");
    store_all(&client);
    let sockets: Vec<_> = client.sockets().collect();
    assert_eq!((sockets.len(), client.counters().dials), (2, 2));
    let mut stream = client.stream(Window::default());
    let of_first = |key: &&String| client.server_of(key.as_bytes()) == all[0].address().to_string();
    let (own, keys) = (keys(), keys());
    let own = own.iter().find(of_first).expect("one of all");
    stream.set(own.as_bytes(), b"before", Ttl::Forever).expect("a good key");
    client.change_servers(vec![address(&all[1]), address(&all[2])]).expect("good servers");
    assert_eq!(client.servers(), [1, 2].map(|at: usize| all[at].address().to_string()));
    // Requests collected before go to the earlier server, new ones to another.
    for key in &keys {
        stream.set(key.as_bytes(), b"after", Ttl::Forever).expect("a good key");
    }
    assert!(stream.barrier().is_clean());
    let old = builder(&all[..1]).build().expect("a client");
    assert_eq!(old.get(own.as_bytes()).expect("an answer").expect("a hit").bytes, b"before");
    assert!(keys.iter().all(|key| client.get(key.as_bytes()).expect("an answer").is_some()));
    let (now, counters) = (client.sockets().collect::<Vec<_>>(), client.counters());
    assert_eq!((now.len(), counters.dials), (2, 3));
    assert_eq!(now.iter().filter(|socket| sockets.contains(socket)).count(), 1);
    assert!(counters.requests >= 400, "{counters:?}");
    // An invalid list changes nothing.
    assert!(matches!(client.change_servers(Vec::new()), Err(Error::Config(_))));
    assert_eq!(client.servers().len(), 2);
    client.close();
    assert_eq!(client.change_servers(vec![address(&all[0])]), Err(Error::Closed(Outcome::NotSent)));
}

#[test]
fn callers_beside_changes_of_the_list_are_all_answered() {
    let all = servers(3);
    let client = builder(&all).build().expect("a client");
    let lists: Vec<Vec<Address>> = (0..3)
        .map(|out| {
            all.iter().enumerate().filter(|(at, _)| *at != out).map(|(_, server)| address(server)).collect()
        })
        .collect();
    thread::scope(|scope| {
        for owner in 0..4 {
            let client = &client;
            scope.spawn(move || {
                for n in 0..2000 {
                    let key = format!("{owner}:{n}");
                    client.set(key.as_bytes(), key.as_bytes()).send().expect("stored");
                    let value = client.get(key.as_bytes()).expect("an answer");
                    // A value may be on a server to which its key belonged earlier.
                    assert!(value.is_none_or(|value| value.bytes == key.as_bytes()));
                }
            });
        }
        for list in lists.iter().cycle().take(60) {
            client.change_servers(list.clone()).expect("good servers");
            thread::sleep(Duration::from_millis(2));
        }
    });
    // The same for the async client, whose unused connections end by themselves.
    runtime().block_on(async {
        let client = builder(&all).build_tokio().expect("a client");
        let tasks: Vec<_> = (0..16)
            .map(|owner| {
                let client = client.clone();
                tokio::spawn(async move {
                    for n in 0..500 {
                        let key = format!("{owner}:{n}");
                        client.set(key.as_bytes(), key.as_bytes()).send().await.expect("stored");
                        let value = client.get(key.as_bytes()).await.expect("an answer");
                        assert!(value.is_none_or(|value| value.bytes == key.as_bytes()));
                    }
                })
            })
            .collect();
        for list in lists.iter().cycle().take(60) {
            client.change_servers(list.clone()).expect("good servers");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for task in tasks {
            task.await.expect("it does not panic");
        }
        client.close();
    });
}

/// The server's connections, except the one that this function makes.
fn connections(server: &Server) -> u64 {
    let mut stream = server.connect().expect("a connection");
    stream.write_all(b"stats\r\n").expect("sent");
    let mut text = String::new();
    let mut lines = BufReader::new(stream);
    while !text.ends_with("END\r\n") {
        lines.read_line(&mut text).expect("a line");
    }
    let count = text.lines().find_map(|line| line.strip_prefix("STAT curr_connections "));
    count.expect("it is counted").parse::<u64>().expect("a number") - 1
}

#[test]
fn a_connection_to_a_server_that_went_ends_by_itself() {
    let all = servers(2);
    runtime().block_on(async {
        let client = builder(&all[..1]).build_tokio().expect("a client");
        client.set(b"k", b"v").send().await.expect("stored");
        assert_eq!(connections(&all[0]), 1);
        client.change_servers(vec![address(&all[1])]).expect("good servers");
        let until = Instant::now() + PATIENCE;
        while connections(&all[0]) > 0 {
            assert!(Instant::now() < until);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(client.get(b"k").await, Ok(None));
    });
}

#[test]
fn a_value_on_its_way_to_a_server_that_went_is_waited_for_by_a_drain_and_ended_by_a_close() {
    let all = servers(2);
    let pause = || tokio::time::sleep(Duration::from_millis(1));
    runtime().block_on(async {
        for drains in [true, false] {
            let client = builder(&all[..1]).build_tokio().expect("a client");
            let (mut feed, mut from) = tokio::io::duplex(64);
            let writes = client.clone();
            let set = tokio::spawn(async move { writes.set(b"fed", b"").send_from(&mut from, 20).await });
            feed.write_all(b"ten bytes.").await.expect("taken");
            while client.counters().dials < 1 {
                pause().await;
            }
            client.change_servers(vec![address(&all[1])]).expect("good servers");
            if drains {
                let ends = client.clone();
                let drained = tokio::spawn(async move { ends.drain(PATIENCE).await });
                // The list stays the same. Its change is refused once the drain has begun.
                while client.change_servers(vec![address(&all[1])]).is_ok() {
                    pause().await;
                }
                assert!(!drained.is_finished());
                feed.write_all(b"Ten more..").await.expect("taken");
                assert!(set.await.expect("it does not panic").is_ok());
                assert!(drained.await.expect("it does not panic"));
            } else {
                client.close();
                let closed = timeout(PATIENCE, set).await.expect("it ends").expect("it does not panic");
                assert_eq!(closed, Err(Error::Closed(Outcome::NotSent)));
            }
        }
        let first = builder(&all[..1]).build_tokio().expect("a client");
        let fed = first.get(b"fed").await.expect("an answer").expect("a hit");
        assert_eq!(fed.bytes, b"ten bytes.Ten more..");
    });
}

#[test]
fn what_is_discovered_changes_the_servers_of_both_clients() {
    let all = servers(2);
    let now = Arc::new(Mutex::new(vec![address(&all[0])]));
    let discovery = || {
        let now = Arc::clone(&now);
        Discovery::new(Duration::from_millis(2), move || {
            let servers = now.lock().expect("not poisoned").clone();
            if servers.is_empty() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(servers) }
        })
    };
    let builder = || builder(&[] as &[Server]).discover(discovery());
    let client = builder().build().expect("a client");
    let runtime = runtime();
    let awaited = runtime.block_on(async { builder().build_tokio() }).expect("a client");
    client.set(b"k", b"first").send().expect("stored");
    let both = |server: &Server| {
        let name = [server.address().to_string()];
        let until = Instant::now() + PATIENCE;
        while client.servers() != name || awaited.servers() != name {
            assert!(Instant::now() < until);
            thread::sleep(Duration::from_millis(1));
        }
    };
    *now.lock().expect("not poisoned") = vec![address(&all[1])];
    both(&all[1]);
    assert_eq!(client.get(b"k"), Ok(None));
    assert_eq!(runtime.block_on(awaited.get(b"k")), Ok(None));
    // An empty list from discovery leaves the servers as they are.
    now.lock().expect("not poisoned").clear();
    thread::sleep(Duration::from_millis(20));
    both(&all[1]);
    *now.lock().expect("not poisoned") = vec![address(&all[0])];
    both(&all[0]);
    assert_eq!(client.get(b"k").expect("an answer").expect("a hit").bytes, b"first");
    // The threads that poll the discovery end with their clients.
    drop((client, awaited));
    let until = Instant::now() + PATIENCE;
    while Arc::strong_count(&now) > 1 {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(1));
    }
    // With an empty list the client cannot be built.
    now.lock().expect("not poisoned").clear();
    let refused = builder().build().expect_err("no servers");
    assert_eq!(refused.fault(), Fault::Caller);
}
