//! The async client against a real server, and against a server that replies in pieces. No call gets
//! another's value, whichever call is dropped. Reports count all writes. At the end no task or connection is
//! left.

use larder_client::{Builder, Dialect, Error, Fault, Mode, Outcome, Ttl, Want, Window, tokio as larder};
use larder_testkit::PATIENCE;
use larder_testkit::folder::Folder;
use larder_testkit::process::{Port, Server};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::runtime::{self, Runtime};
use tokio::time::{sleep, timeout};

const MS: Duration = Duration::from_millis(1);

fn server() -> Server {
    Server::start(&["--threads", "1", "-m", "64"]).expect("a server")
}

fn builder(address: &str) -> Builder {
    let builder = larder::Client::builder().server(address).timeout(PATIENCE).dial_timeout(PATIENCE);
    builder.stall_timeout(PATIENCE).verify(true)
}

fn client(server: &Server) -> larder::Client {
    builder(&server.address().to_string()).build_tokio().expect("a client")
}

fn one_thread() -> Runtime {
    runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn two_threads() -> Runtime {
    runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// The output of a future that is ready at its first poll; otherwise `None`, and the future is dropped.
async fn at_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Random numbers from a seed, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn every_verb_does_what_it_says() {
    let server = server();
    one_thread().block_on(async {
        let client = client(&server);
        assert_eq!(client.get(b"k").await.expect("an answer"), None);
        client.set(b"k", b"one").flags(7).ttl(Ttl::In(60_000 * MS)).send().await.expect("stored");
        let mut value = b"before ".to_vec();
        let meta = client.get_with(b"k", Want::FLAGS | Want::CAS | Want::TTL, &mut value).await;
        let meta = meta.expect("an answer").expect("a hit");
        assert_eq!((value.as_slice(), meta.flags), (b"before one".as_slice(), 7));
        assert_eq!(client.set(b"k", b"two").cas(meta.cas + 1).send().await, Err(Error::Conflict));
        assert_eq!(client.set(b"k", b"two").mode(Mode::Add).send().await, Err(Error::NotStored));
        assert_eq!(client.incr(b"n", 5).or_make(40, Ttl::Forever).send().await, Ok(Some(40)));
        assert_eq!(client.incr(b"n", 5).send().await, Ok(Some(45)));
        assert_eq!(client.decr(b"n", 50).send().await, Ok(Some(0)));
        assert_eq!(client.touch(b"n", Ttl::Forever).await, Ok(true));
        assert_eq!(client.delete(b"n").send().await, Ok(true));
        assert_eq!(client.delete(b"n").send().await, Ok(false));
        assert_eq!(client.set(b"a b", b"").send().await, Err(Error::BadKey));
        let large = vec![b'x'; 700_000];
        client.set(b"large", &large).send().await.expect("stored");
        assert!(client.get(b"large").await.expect("an answer").expect("a hit").bytes == large);
        assert_eq!(client.set(b"large", &vec![0; 2 << 20]).send().await, Err(Error::TooLarge));
        let updated = client.update(b"k", Ttl::Forever, |old| Some([old.unwrap_or_default(), b"!"].concat()));
        assert!(updated.await.expect("stored").is_some());
        assert_eq!(client.get(b"k").await.expect("an answer").expect("a hit").bytes, b"one!");
        assert!(client.versions().await[0].1.as_ref().expect("a version").contains("larder"));
        client.flush_all().await.expect("flushed");
        assert_eq!(client.get(b"k").await.expect("an answer"), None);
        client.close();
        assert_eq!(client.get(b"k").await, Err(Error::Closed(Outcome::NotSent)));
    });
}

#[test]
fn tasks_share_a_connection_and_nobody_gets_anothers_value() {
    const TASKS: u64 = 64;
    const ROUNDS: u64 = 100;
    let server = server();
    // If other threads run tasks too, each request may be sent in a write of its own.
    for (runtime, together) in [(one_thread(), 3), (two_threads(), 1)] {
        let client = client(&server);
        runtime.block_on(async {
            client.flush_all().await.expect("flushed");
            let tasks: Vec<_> = (0..TASKS)
                .map(|owner| {
                    let client = client.clone();
                    tokio::spawn(async move {
                        let key = format!("key-{owner}");
                        let mut read = Vec::new();
                        for round in 0..ROUNDS {
                            // Now and then the value is longer than one receive.
                            let bytes =
                                if round % 67 == 66 { 200_000 } else { 10 + (round as usize * 37) % 3000 };
                            let value = format!("{owner}:{round}:").repeat(bytes / 4);
                            client.set(key.as_bytes(), value.as_bytes()).send().await.expect("stored");
                            read.clear();
                            let hit = client.get_into(key.as_bytes(), &mut read).await;
                            hit.expect("an answer").expect("a hit");
                            assert!(read == value.as_bytes(), "{owner} has read another's value");
                            let count = client.incr(b"all", 1).or_make(1, Ttl::Forever);
                            count.send().await.expect("a number");
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("it ends well");
            }
            let count = client.get(b"all").await.expect("an answer").expect("a hit").bytes;
            assert_eq!(String::from_utf8(count).expect("digits"), (TASKS * ROUNDS).to_string());
        });
        let counters = client.counters();
        // One connection for most values, and one for large ones.
        assert_eq!((counters.dials, counters.overdue), (2, 0));
        assert!(counters.writes * together < counters.requests, "{counters:?}");
    }
}

#[test]
fn a_batch_has_a_result_for_each_also_where_it_is_longer_than_a_lane() {
    let server = server();
    one_thread().block_on(async {
        let client = client(&server);
        let mut batch = client.batch();
        for round in 0..2 {
            let sets: Vec<_> = (0..5000)
                .map(|n| {
                    batch.set(format!("b{n}").as_bytes(), format!("{round}-{n}").as_bytes(), Ttl::Forever)
                })
                .collect();
            let bad = batch.get(b"a b");
            let done = batch.run().await;
            assert!(sets.into_iter().all(|set| done.take(set).is_ok()));
            assert_eq!(done.take(bad), Err(Error::BadKey));
            drop(done);
            // A run that is dropped leaves no request in the batch.
            let _ = batch.get(b"b1");
            assert!(at_once(batch.run()).await.is_none());
            assert!(batch.is_empty());
            let gets: Vec<_> = (0..5001).map(|n| batch.get(format!("b{n}").as_bytes())).collect();
            let done = batch.run().await;
            for (n, get) in gets.iter().enumerate() {
                let value = done.value(get).expect("an answer").map(|(bytes, _)| bytes.to_vec());
                assert_eq!(value, (n < 5000).then(|| format!("{round}-{n}").into_bytes()));
            }
        }
        assert_eq!(client.counters().dials, 1);
    });
}

#[test]
fn many_large_values_each_way_do_not_wait_for_each_other() {
    let server = server();
    two_threads().block_on(async {
        let client = client(&server);
        let value = vec![b'v'; 60_000];
        let mut batch = client.batch();
        let sets: Vec<_> =
            (0..100).map(|n| batch.set(format!("l{n}").as_bytes(), &value, Ttl::Forever)).collect();
        let done = batch.run().await;
        assert!(sets.into_iter().all(|set| done.take(set).is_ok()));
        drop(done);
        // 12 MB of requests and 6 MB of replies on one connection: more than the buffers of both sockets.
        let gets: Vec<_> = (0..100).map(|n| batch.get(format!("l{n}").as_bytes())).collect();
        let sets: Vec<_> =
            (0..200).map(|n| batch.set(format!("m{}", n % 50).as_bytes(), &value, Ttl::Forever)).collect();
        let done = batch.run().await;
        assert!(gets.iter().all(|get| done.value(get).expect("an answer").expect("a hit").0 == value));
        assert!(sets.into_iter().all(|set| done.take(set).is_ok()));
    });
}

#[test]
fn what_a_stream_sent_is_stored_refused_or_unknown_when_the_server_dies() {
    for quiet in [false, true] {
        let mut server = server();
        let client = client(&server);
        two_threads().block_on(async {
            let mut stream =
                if quiet { client.quiet() } else { client.stream(Window { requests: 256, bytes: 1 << 16 }) };
            for n in 0..5_000 {
                let (key, value) = (format!("s{n}"), format!("value {n}"));
                stream.set(key.as_bytes(), value.as_bytes(), Ttl::Forever).await.expect("its key is good");
            }
            let report = stream.barrier().await;
            assert_eq!((report.sent, report.stored), (5_000, 5_000), "{report:?}");
            for n in (0..5_000).step_by(997) {
                let value = client.get(format!("s{n}").as_bytes()).await.expect("an answer");
                assert_eq!(value.expect("it was acknowledged").bytes, format!("value {n}").into_bytes());
            }
            for n in 0..10_000 {
                if n == 3_000 {
                    server.kill();
                }
                stream.set(format!("s{n}").as_bytes(), b"v", Ttl::Forever).await.expect("its key is good");
            }
            let report = stream.barrier().await;
            assert_eq!(report.sent, 10_000);
            assert_eq!(report.sent, report.stored + report.refused + report.unknown);
            assert!(report.stored <= 3_000 && report.refused > 0, "{report:?}");
            assert!(!report.first.is_empty(), "{report:?}");
        });
    }
}

#[test]
fn a_call_of_a_stream_that_is_given_up_was_counted_or_not_and_reports_add_up() {
    let server = server();
    one_thread().block_on(async {
        let client = client(&server);
        for quiet in [false, true] {
            let window = Window { requests: 8, bytes: 1 << 10 };
            let mut stream = if quiet { client.quiet_within(window) } else { client.stream(window) };
            let (mut finished, mut given_up) = (0, 0);
            for n in 0..3_000_u64 {
                let key = format!("g{n}");
                let set = stream.set(key.as_bytes(), b"value", Ttl::Forever);
                match at_once(set).await {
                    Some(sent) => finished += u64::from(sent.is_ok()),
                    None => given_up += 1,
                }
                if n % 16 == 0 {
                    sleep(MS).await;
                }
            }
            let report = stream.barrier().await;
            assert_eq!(report.sent, report.stored + report.refused + report.unknown, "{report:?}");
            assert!((finished..=finished + given_up).contains(&report.sent), "{report:?}, {finished}");
            assert_eq!(report.sent, report.stored, "{report:?}");
            assert!(given_up > 0, "nothing was given up");
        }
    });
}

#[test]
fn a_stream_without_a_barrier_sends_what_it_has_and_counts_what_is_not_stored() {
    let server = server();
    let runtime = two_threads();
    let client = client(&server);
    runtime.block_on(async {
        let mut stream = client.stream(Window::default());
        for n in 0..1000 {
            stream.set(format!("d{n}").as_bytes(), b"value", Ttl::Forever).await.expect("its key is good");
        }
        drop(stream);
        let until = Instant::now() + PATIENCE;
        while client.get(b"d999").await.expect("an answer").is_none() {
            assert!(Instant::now() < until, "the last was not sent");
            sleep(MS).await;
        }
        assert_eq!(client.counters().unreported, 0);
    });
    // Without a runtime the writes are sent all the same; their results count as unreported.
    let stream = runtime.block_on(async {
        let mut stream = client.quiet();
        for n in 0..10 {
            stream.set(format!("e{n}").as_bytes(), b"value", Ttl::Forever).await.expect("its key is good");
        }
        stream
    });
    drop(stream);
    assert_eq!(client.counters().unreported, 10);
    runtime.block_on(async {
        let value = client.get(b"e9").await.expect("an answer");
        assert_eq!(value.expect("on the same connection it was sent before").bytes, b"value");
    });
}

#[test]
fn a_server_that_stops_and_goes_on_gives_no_wrong_values() {
    let server = server();
    let runtime = two_threads();
    let patient = client(&server);
    let keys: Vec<String> = (0..16).map(|n| format!("key{n}")).collect();
    runtime.block_on(async {
        for key in &keys {
            patient.set(key.as_bytes(), format!("{key}:0").as_bytes()).send().await.expect("stored");
        }
    });
    let hasty = builder(&server.address().to_string()).timeout(30 * MS).build_tokio().expect("a client");
    let over = Arc::new((AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0)));
    let tasks: Vec<_> = keys
        .into_iter()
        .map(|key| {
            let (hasty, over) = (hasty.clone(), Arc::clone(&over));
            runtime.spawn(async move {
                let (over, late, right) = &*over;
                let mut value = Vec::new();
                let mut round = 0;
                while !over.load(Ordering::Relaxed) {
                    round += 1;
                    value.clear();
                    match hasty.get_into(key.as_bytes(), &mut value).await {
                        Ok(Some(_)) => {
                            assert!(value.starts_with(format!("{key}:").as_bytes()), "{key} has another's");
                            right.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(None) => panic!("{key} is there"),
                        Err(error) => {
                            assert_eq!(error.fault(), Fault::Network, "{error}");
                            assert!(value.is_empty());
                            late.fetch_add(1, Ordering::Relaxed);
                            sleep(MS).await;
                        }
                    }
                    let set = format!("{key}:{round}");
                    if let Err(error) = hasty.set(key.as_bytes(), set.as_bytes()).send().await {
                        assert_eq!(error.fault(), Fault::Network, "{error}");
                    }
                }
            })
        })
        .collect();
    let (is_over, late, right) = &*over;
    let until = Instant::now() + PATIENCE;
    for _ in 0..5 {
        let before = late.load(Ordering::Relaxed);
        server.pause().expect("it stops");
        while late.load(Ordering::Relaxed) < before + 16 {
            assert!(Instant::now() < until, "nobody is told");
            std::thread::sleep(5 * MS);
        }
        server.resume();
        let before = right.load(Ordering::Relaxed);
        while right.load(Ordering::Relaxed) < before + 50 {
            assert!(Instant::now() < until, "nobody is answered any more");
            std::thread::sleep(5 * MS);
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        runtime.block_on(task).expect("it ends well");
    }
}

#[test]
fn values_are_written_and_read_as_they_come() {
    let server = Server::start(&["--threads", "1", "-m", "128", "-I", "32m"]).expect("a server");
    let address = server.address().to_string();
    one_thread().block_on(async {
        let client = client(&server);
        let value: Vec<u8> = (0..10_000_000_u32).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        let (bytes, mut from) = (value.len() as u64, value.as_slice());
        client.set(b"k", b"").flags(7).send_from(&mut from, bytes).await.expect("stored");
        let mut to = Vec::new();
        let meta = client.get_to(b"k", Want::FLAGS, &mut to).await.expect("an answer").expect("a hit");
        assert_eq!(meta.flags, 7);
        assert!(to == value, "another value");
        assert_eq!(client.get_to(b"none", Want::default(), &mut to).await, Ok(None));
        assert_eq!(to.len(), value.len());
        let short = client.set(b"s", b"").send_from(&mut b"val".as_slice(), 5).await;
        let error = short.expect_err("it has three bytes");
        assert!(matches!(error, Error::Local(_)) && error.outcome() == Outcome::NotSent, "{error}");
        assert_eq!(client.get(b"s").await, Ok(None));
        let compared = client.set(b"none", b"").cas(1).send_from(&mut b"v".as_slice(), 1).await;
        assert_eq!(compared, Err(Error::Absent));
        let bad = client.set(b"not a key", b"").send_from(&mut b"v".as_slice(), 1).await;
        assert_eq!(bad, Err(Error::BadKey));

        // `drain` waits for a value that is still being read; `close` does not.
        for drains in [true, false] {
            let client = builder(&address).build_tokio().expect("a client");
            // The pipe has 4 bytes: when it takes ten, the client has read some of them.
            let (mut feed, mut from) = tokio::io::duplex(4);
            let writes = client.clone();
            let set = tokio::spawn(async move { writes.set(b"fed", b"").send_from(&mut from, 20).await });
            feed.write_all(b"ten bytes.").await.expect("taken");
            if drains {
                let ends = client.clone();
                let drained = tokio::spawn(async move { ends.drain(PATIENCE).await });
                while client.change_servers(vec![address.as_str().into()]).is_ok() {
                    sleep(MS).await;
                }
                assert!(!drained.is_finished());
                feed.write_all(b"Ten more..").await.expect("taken");
                assert!(set.await.expect("it does not panic").is_ok());
                assert!(drained.await.expect("it does not panic"));
            } else {
                // The call ends although its reader delivers nothing.
                client.close();
                let closed = timeout(PATIENCE, set).await.expect("it ends").expect("it does not panic");
                assert_eq!(closed, Err(Error::Closed(Outcome::NotSent)));
            }
        }
        let fed = client.get(b"fed").await.expect("an answer").expect("a hit");
        assert_eq!(fed.bytes, b"ten bytes.Ten more..");

        // A close does not wait for a writer that accepts nothing, either.
        let (mut to, mut taken) = tokio::io::duplex(4);
        let reads = client.clone();
        let get = tokio::spawn(async move { reads.get_to(b"fed", Want::default(), &mut to).await });
        assert_eq!(taken.read_u8().await.expect("written"), b't');
        client.close();
        let closed = timeout(PATIENCE, get).await.expect("it ends").expect("it does not panic");
        assert_eq!(closed, Err(Error::Closed(Outcome::Unknown)));
    });
}

#[test]
fn values_that_come_and_go_in_parts_are_not_asked_for_by_keys_that_classic_text_cannot_say() {
    let server = server();
    let address = server.address().to_string();
    one_thread().block_on(async {
        let client = client(&server);
        client.set(b"k", b"v").send().await.expect("stored");
        let classic = builder(&address).protocol(Dialect::Classic).binary_keys(true);
        let classic = classic.build_tokio().expect("a client");
        // If this key were sent as it is, it would make two requests.
        let (key, mut to) = (b"a\r\nflush_all", Vec::<u8>::new());
        assert_eq!(classic.get_to(key, Want::default(), &mut to).await, Err(Error::Unsupported));
        let set = classic.set(key, b"").send_from(&mut b"v".as_slice(), 1).await;
        assert_eq!(set, Err(Error::Unsupported));
        assert_eq!(client.get(b"k").await.expect("an answer").expect("a hit").bytes, b"v");
        assert!(to.is_empty());
        let read = classic.get_to(b"k", Want::default(), &mut to).await;
        assert!(read.expect("an answer").is_some());
        assert_eq!(to, b"v");
    });
}

#[test]
fn a_server_tells_its_figures() {
    let server = server();
    one_thread().block_on(async {
        let client = client(&server);
        client.set(b"k", b"v").send().await.expect("stored");
        let all = client.stats(0, "").await.expect("figures");
        assert!(all.contains(&("cmd_set".to_owned(), "1".to_owned())), "{all:?}");
        assert!(client.stats(0, "items").await.expect("figures").len() > 1);
        assert!(matches!(client.stats(0, "of no server").await, Err(Error::Server(..))));
        assert_eq!(client.stats(0, "items\r\nflush_all").await, Err(Error::BadKey));
        assert_eq!(client.get(b"k").await.expect("an answer").expect("a hit").bytes, b"v");
        client.close();
        assert_eq!(client.stats(0, "").await, Err(Error::Closed(Outcome::NotSent)));
        let port = Port::reserve().expect("a port");
        let nobody = builder(&port.address().to_string()).build_tokio().expect("a client");
        assert!(matches!(nobody.stats(0, "").await, Err(Error::Down(..))));
    });
}

#[test]
fn a_question_for_figures_is_waited_for_by_a_drain_and_ended_by_a_close() {
    let folder = Folder::new("asked");
    let path = folder.join("socket");
    let name = path.to_str().expect("text");
    one_thread().block_on(async {
        let listener = UnixListener::bind(&path).expect("a socket");
        for drains in [true, false] {
            let client = builder(name).protocol(Dialect::Meta).build_tokio().expect("a client");
            let asks = client.clone();
            let stats = tokio::spawn(async move { asks.stats(0, "").await });
            let (stream, _) = listener.accept().await.expect("a connection");
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            assert_eq!(lines.next_line().await.expect("a line").as_deref(), Some("mn"));
            write.write_all(b"MN\r\n").await.expect("sent");
            assert_eq!(lines.next_line().await.expect("a line").as_deref(), Some("stats"));
            if drains {
                let ends = client.clone();
                let drained = tokio::spawn(async move { ends.drain(PATIENCE).await });
                // The list stays the same. Its change is refused once the drain has begun.
                while client.change_servers(vec![name.into()]).is_ok() {
                    sleep(MS).await;
                }
                assert!(!drained.is_finished());
                write.write_all(b"STAT pid 7\r\nEND\r\n").await.expect("sent");
                let figures = stats.await.expect("it does not panic");
                assert_eq!(figures, Ok(vec![("pid".to_owned(), "7".to_owned())]));
                assert!(drained.await.expect("it does not panic"));
            } else {
                client.close();
                let closed = stats.await.expect("it does not panic");
                assert_eq!(closed, Err(Error::Closed(Outcome::Unknown)));
            }
        }
    });
}

#[test]
fn a_drain_waits_for_what_was_asked_and_refuses_what_comes() {
    let server = server();
    let address = server.address().to_string();
    two_threads().block_on(async {
        let client = client(&server);
        client.set(b"k", b"v").send().await.expect("stored");
        server.pause().expect("it stops");
        let asks = client.clone();
        let get = tokio::spawn(async move { asks.get(b"k").await });
        while client.counters().requests < 2 {
            sleep(MS).await;
        }
        let ends = client.clone();
        let drained = tokio::spawn(async move { ends.drain(PATIENCE).await });
        // The list stays the same. Its change is refused once the drain has begun.
        while client.change_servers(vec![address.as_str().into()]).is_ok() {
            sleep(MS).await;
        }
        assert_eq!(client.get(b"k").await, Err(Error::Closed(Outcome::NotSent)));
        assert!(!drained.is_finished());
        server.resume();
        assert!(drained.await.expect("it does not panic"));
        let value = get.await.expect("it does not panic").expect("an answer").expect("a hit");
        assert_eq!(value.bytes, b"v");
    });
}

/// Replies to gets, in pieces, with pauses: a key that begins with `n` has no value; another key's value is
/// the key, repeated.
async fn answers_in_pieces(listener: UnixListener, seed: u64) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        let mut dice = Dice(seed);
        while let Ok(Some(line)) = lines.next_line().await {
            let words: Vec<&str> = line.split(' ').collect();
            let reply = match words.as_slice() {
                ["mn"] => "MN\r\n".to_owned(),
                ["mg", key, .., opaque] if key.starts_with('n') => {
                    format!("EN {opaque}\r\n")
                }
                ["mg", key, .., opaque] => {
                    let most = if dice.below(50) == 0 { 20_000 } else { 9 };
                    let value = format!("{key};").repeat(1 + dice.below(most) as usize);
                    format!("VA {} {opaque}\r\n{value}\r\n", value.len())
                }
                _ => panic!("{line}"),
            };
            let mut rest = reply.as_bytes();
            while !rest.is_empty() {
                let most = 1 << dice.below(17);
                let bytes = (1 + dice.below(most) as usize).min(rest.len());
                if write.write_all(&rest[..bytes]).await.is_err() {
                    break;
                }
                rest = &rest[bytes..];
                if dice.below(8) == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

#[test]
fn who_goes_away_takes_nobodys_answer_and_keeps_its_buffer() {
    const TASKS: u64 = 24;
    let folder = Folder::new("awaited");
    let path = folder.join("socket");
    let runtime = two_threads();
    let given_up = Arc::new(AtomicU64::new(0));
    let listener = {
        let _inside = runtime.enter();
        UnixListener::bind(&path).expect("a socket")
    };
    let played = runtime.spawn(answers_in_pieces(listener, 42));
    let client = builder(path.to_str().expect("text"))
        .protocol(Dialect::Meta)
        .in_flight(16)
        .build_tokio()
        .expect("a client");
    let tasks: Vec<_> = (0..TASKS)
        .map(|owner| {
            let (client, given_up) = (client.clone(), Arc::clone(&given_up));
            runtime.spawn(async move {
                let mut dice = Dice(owner * 7919 + 1);
                for round in 0..300 {
                    let is_there = dice.below(4) > 0;
                    let key = format!("{}{owner}-{round}", if is_there { "k" } else { "n" });
                    let mut buffer = b"before".to_vec();
                    let get = client.get_into(key.as_bytes(), &mut buffer);
                    let hit = match dice.below(3) {
                        // The call is dropped after this many turns of the scheduler.
                        0 => {
                            let turns = dice.below(6);
                            let leave = async {
                                for _ in 0..turns {
                                    tokio::task::yield_now().await;
                                }
                            };
                            let mut get = std::pin::pin!(get);
                            let mut leave = std::pin::pin!(leave);
                            poll_fn(|context| {
                                if let Poll::Ready(hit) = get.as_mut().poll(context) {
                                    return Poll::Ready(Some(hit));
                                }
                                leave.as_mut().poll(context).map(|()| None)
                            })
                            .await
                        }
                        _ => Some(get.await),
                    };
                    let Some(hit) = hit else {
                        assert_eq!(buffer, b"before");
                        given_up.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    assert_eq!(hit.expect("an answer").is_some(), is_there, "{key}");
                    let value = buffer.strip_prefix(b"before").expect("it is appended to");
                    let own = format!("{key};");
                    assert!(value.chunks(own.len()).all(|part| part == own.as_bytes()), "{key}: another's");
                    assert_eq!(value.is_empty(), !is_there);
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).expect("it ends well");
    }
    let counters = client.counters();
    assert_eq!((counters.dials, counters.overdue), (1, 0), "{counters:?}");
    assert!(given_up.load(Ordering::Relaxed) > 100, "{given_up:?}");
    played.abort();
}

#[test]
#[ignore = "time: calls are to be sent within their timeout of 100 ms"]
fn a_server_that_says_nothing_is_late_and_who_waits_for_room_is_so_too() {
    let folder = Folder::new("silent");
    let path = folder.join("socket");
    let runtime = two_threads();
    let listener = {
        let _inside = runtime.enter();
        UnixListener::bind(&path).expect("a socket")
    };
    // The server sends its greeting, and nothing after it.
    let silent = runtime.spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        lines.next_line().await.expect("a line");
        write.write_all(b"MN\r\n").await.expect("sent");
        while lines.next_line().await.is_ok_and(|line| line.is_some()) {}
    });
    let client = builder(path.to_str().expect("text")).protocol(Dialect::Meta);
    let client = client.timeout(100 * MS).in_flight(4).build_tokio().expect("a client");
    let calls: Vec<_> = (0..12)
        .map(|_| {
            let client = client.clone();
            runtime.spawn(async move { client.get(b"k").await.expect_err("nobody answers").outcome() })
        })
        .collect();
    let outcomes: Vec<_> =
        calls.into_iter().map(|call| runtime.block_on(call).expect("it ends well")).collect();
    let unknown = outcomes.iter().filter(|outcome| **outcome == Outcome::Unknown).count();
    assert_eq!(unknown, 4, "as many as there was room for: {outcomes:?}");
    assert!(outcomes.iter().all(|outcome| *outcome != Outcome::Answered));
    assert_eq!(client.counters().overdue, 4);
    silent.abort();
}

#[test]
fn a_server_that_refuses_is_dialed_now_and_then_and_callers_are_told_at_once() {
    let port = Port::reserve().expect("a port");
    let address = port.address().to_string();
    let client = builder(&address).build_tokio().expect("a client");
    let mut calls = 0;
    let began = Instant::now();
    one_thread().block_on(async {
        while calls <= 1000 || began.elapsed() < 500 * MS {
            let error = client.get(b"k").await.expect_err("nobody is there");
            assert!(matches!(error, Error::Down(..)), "{error}");
            assert_eq!(error.outcome(), Outcome::NotSent);
            assert_eq!(error.os_error(), Some(rustix::io::Errno::CONNREFUSED.raw_os_error()), "{error}");
            calls += 1;
        }
    });
    let dials = client.counters().dials;
    // The pauses between dials grow to 2.5 s at least.
    let most = 12 + began.elapsed().as_secs() / 2;
    assert!(dials <= most, "{dials} dials for {calls} calls in {:?}", began.elapsed());
}

#[test]
fn a_client_outlives_its_runtime_and_makes_its_connections_on_the_next() {
    let server = server();
    let client = client(&server);
    let first = one_thread();
    first.block_on(async { client.set(b"k", b"v").send().await }).expect("stored");
    drop(first);
    for runtime in [one_thread(), two_threads()] {
        let value = runtime.block_on(async { client.get(b"k").await }).expect("an answer");
        assert_eq!(value.expect("a hit").bytes, b"v");
    }
    assert_eq!(client.counters().dials, 3);
}

#[test]
fn what_is_closed_or_dropped_leaves_no_task_behind() {
    let server = server();
    let runtime = one_thread();
    let tasks = || runtime.metrics().num_alive_tasks();
    let await_tasks = || {
        let until = Instant::now() + PATIENCE;
        while tasks() > 0 {
            assert!(Instant::now() < until, "{} tasks are left", tasks());
            runtime.block_on(async { sleep(MS).await });
        }
    };
    let closed = client(&server);
    runtime.block_on(async { closed.set(b"k", b"v").send().await }).expect("stored");
    assert_eq!(tasks(), 1);
    closed.close();
    await_tasks();
    let dropped = client(&server);
    runtime.block_on(async { dropped.get(b"k").await }).expect("an answer");
    assert_eq!(tasks(), 1);
    drop(dropped);
    await_tasks();
    // A call is dropped while it dials: the next call uses its connection.
    let given_up = client(&server);
    runtime.block_on(async {
        assert!(at_once(given_up.get(b"k")).await.is_none());
        given_up.get(b"k").await.expect("an answer").expect("a hit");
    });
    assert_eq!(given_up.counters().dials, 1);
}

#[test]
fn get_and_set_allocate_nothing_in_steady_state() {
    let server = server();
    let client = client(&server);
    let runtime = one_thread();
    let mut value = Vec::with_capacity(1000);
    let mut round = |times: u32| {
        runtime.block_on(async {
            for _ in 0..times {
                client.set(b"k", b"value").send().await.expect("stored");
                value.clear();
                client.get_into(b"k", &mut value).await.expect("an answer").expect("a hit");
                assert!(client.touch(b"k", Ttl::Forever).await.expect("an answer"));
                client.get_into(b"none", &mut value).await.expect("an answer");
            }
        });
    };
    round(100);
    let allocated = allocation_counter::measure(|| round(100));
    assert_eq!(allocated.count_total, 0);
}
