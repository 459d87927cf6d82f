//! Read-through: one caller loads a value while the others wait for it, and an outdated value is not stored.

use larder_client::{Client, Error, Fetching, Ttl, tokio as larder};
use larder_testkit::PATIENCE;
use larder_testkit::process::Server;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;
use tokio::runtime::{self, Runtime};
use tokio::sync::Notify;

const HOUR: Ttl = Ttl::In(Duration::from_secs(3600));

fn server() -> Server {
    Server::start(&["--threads", "1", "-m", "64"]).expect("a server")
}

fn client(server: &Server) -> Client {
    let address = server.address().to_string();
    let builder = Client::builder().server(address.as_str()).timeout(PATIENCE).dial_timeout(PATIENCE);
    builder.stall_timeout(PATIENCE).verify(true).build().expect("a client")
}

fn awaited(server: &Server) -> larder::Client {
    let address = server.address().to_string();
    let builder = Client::builder().server(address.as_str()).timeout(PATIENCE).dial_timeout(PATIENCE);
    builder.stall_timeout(PATIENCE).verify(true).build_tokio().expect("a client")
}

fn runtime() -> Runtime {
    runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn patient() -> Fetching {
    Fetching { vivify: PATIENCE, wait_max: PATIENCE, ..Fetching::default() }
}

/// The errors of these tests: a load that fails, and an error of the cache.
#[derive(Debug, PartialEq, Eq)]
enum Failed {
    Load,
    Cache(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Cache(error)
    }
}

#[test]
fn one_caller_of_all_clients_finds_a_value_that_is_not_there() {
    let (server, loads) = (server(), AtomicU64::new(0));
    let clients = [client(&server), client(&server)];
    thread::scope(|scope| {
        for n in 0..16 {
            let (client, loads) = (&clients[n % 2], &loads);
            scope.spawn(move || {
                let value = client.fetch(b"k", patient(), || {
                    loads.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(20));
                    Ok::<_, Failed>((b"found".to_vec(), HOUR))
                });
                assert_eq!(value, Ok(b"found".to_vec()));
            });
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 1);
    assert_eq!(clients[0].get(b"k").expect("an answer").expect("a hit").bytes, b"found");
    let (runtime, clients) = (runtime(), [awaited(&server), awaited(&server)]);
    let loads = Arc::new(AtomicU64::new(0));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..64)
            .map(|n| {
                let (client, loads) = (clients[n % 2].clone(), Arc::clone(&loads));
                tokio::spawn(async move {
                    let value = client.fetch(b"awaited", patient(), async || {
                        loads.fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        Ok::<_, Failed>((b"found".to_vec(), HOUR))
                    });
                    assert_eq!(value.await, Ok(b"found".to_vec()));
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("it does not panic");
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 1);
}

#[test]
fn who_fails_is_told_and_who_waited_tries() {
    let (server, loads) = (server(), AtomicU64::new(0));
    let client = client(&server);
    let failed = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let value = client.fetch(b"k", patient(), || match loads.fetch_add(1, Ordering::Relaxed) {
                    0..3 => Err(Failed::Load),
                    _ => Ok((b"found".to_vec(), HOUR)),
                });
                match value {
                    Ok(value) => assert_eq!(value, b"found"),
                    Err(error) => {
                        assert_eq!(error, Failed::Load);
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!((loads.load(Ordering::Relaxed), failed.load(Ordering::Relaxed)), (4, 3));
    // A load that panics does not keep other callers waiting either.
    let shared = &client;
    let panicked = thread::scope(|scope| {
        let load = || -> Result<(Vec<u8>, Ttl), Failed> { panic!("as the test wants") };
        scope.spawn(move || shared.fetch(b"other", patient(), load)).join()
    });
    assert!(panicked.is_err());
    let value = client.fetch(b"other", patient(), || Ok::<_, Failed>((b"found".to_vec(), HOUR)));
    assert_eq!(value, Ok(b"found".to_vec()));
    assert_eq!(client.fetch(b"a b", patient(), || Ok((Vec::new(), HOUR))), Err(Failed::Cache(Error::BadKey)));
}

#[test]
fn what_was_deleted_while_it_was_found_is_not_stored() {
    let server = server();
    let client = client(&server);
    let value = client.fetch(b"k", patient(), || {
        assert_eq!(client.delete(b"k").send(), Ok(true));
        Ok::<_, Failed>((b"old".to_vec(), HOUR))
    });
    assert_eq!(value, Ok(b"old".to_vec()));
    assert_eq!(client.get(b"k"), Ok(None));
}

#[test]
fn others_have_the_old_value_while_one_renews_it() {
    let server = server();
    let client = client(&server);
    client.set(b"k", b"old").send().expect("stored");
    assert_eq!(client.delete(b"k").keep_stale(HOUR).send(), Ok(true));
    let (begun, go_on) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let renewed = scope.spawn(|| {
            client.fetch(b"k", patient(), || {
                begun.wait();
                go_on.wait();
                Ok::<_, Failed>((b"new".to_vec(), HOUR))
            })
        });
        begun.wait();
        let never = || -> Result<(Vec<u8>, Ttl), Failed> { panic!("another renews it") };
        assert_eq!(client.fetch(b"k", patient(), never), Ok(b"old".to_vec()));
        go_on.wait();
        assert_eq!(renewed.join().expect("it does not panic"), Ok(b"new".to_vec()));
    });
    assert_eq!(client.get(b"k").expect("an answer").expect("a hit").bytes, b"new");
    // The value is due for renewal: if the load fails, the present value is returned.
    let refresh = Fetching { refresh: Duration::from_secs(7200), ..patient() };
    client.set(b"k", b"short").ttl(HOUR).send().expect("stored");
    assert_eq!(client.fetch(b"k", refresh, || Err(Failed::Load)), Ok(b"short".to_vec()));
}

#[test]
fn a_cache_that_is_down_is_not_in_the_way() {
    let mut server = server();
    let client = client(&server);
    server.kill();
    let (loads, together) = (AtomicU64::new(0), Barrier::new(4));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                together.wait();
                let value = client.fetch(b"k", patient(), || {
                    loads.fetch_add(1, Ordering::Relaxed);
                    Ok::<_, Failed>((b"found".to_vec(), HOUR))
                });
                assert_eq!(value, Ok(b"found".to_vec()));
            });
        }
    });
    assert!((1..=4).contains(&loads.load(Ordering::Relaxed)));
}

#[test]
fn who_goes_away_while_it_finds_a_value_leaves_it_to_others() {
    let server = server();
    let runtime = runtime();
    runtime.block_on(async {
        let client = awaited(&server);
        let begun = Arc::new(Notify::new());
        let (first, tells) = (client.clone(), Arc::clone(&begun));
        let gone = tokio::spawn(async move {
            let load = async || {
                tells.notify_one();
                std::future::pending::<Result<(Vec<u8>, Ttl), Failed>>().await
            };
            first.fetch(b"k", patient(), load).await
        });
        begun.notified().await;
        let waits = tokio::spawn(async move {
            client.fetch(b"k", patient(), async || Ok::<_, Failed>((b"found".to_vec(), HOUR))).await
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        gone.abort();
        assert!(gone.await.is_err());
        assert_eq!(waits.await.expect("it does not panic"), Ok(b"found".to_vec()));
    });
}
