//! Connections with TLS: they work like others, to servers that are trusted, and to no others.

use larder_client::rustls::{ClientConfig, RootCertStore, ServerConfig};
use larder_client::{Builder, Client, Error, Outcome, Tls, Ttl, Window};
use larder_testkit::PATIENCE;
use larder_testkit::process::Server;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{self, Runtime};
use tokio_rustls::TlsAcceptor;

const NAME: &str = "cache.internal";

fn runtime() -> Runtime {
    runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// A server that speaks TLS: a server without TLS, and a proxy in front of it.
struct Secure {
    server: Server,
    address: SocketAddr,
    front: Runtime,
    trusts: Arc<ClientConfig>,
}

impl Secure {
    fn start() -> Secure {
        let server = Server::start(&["--threads", "1", "-m", "64"]).expect("a server");
        let pair = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
        let certificate = pair.cert.der().clone();
        let key = pair.signing_key.serialize_der().try_into().expect("a key");
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.clone()], key).expect("a configuration");
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a root");
        let trusts = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let (front, behind) = (runtime(), server.address());
        let listener = front.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        front.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut outside) = acceptor.accept(stream).await else { return };
                    let mut inside = TcpStream::connect(behind).await.expect("a connection");
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
        Secure { server, address, front, trusts: Arc::new(trusts) }
    }

    fn builder(&self) -> Builder {
        let address = self.address.to_string();
        let builder = Client::builder().server(address.as_str()).timeout(PATIENCE).dial_timeout(PATIENCE);
        let tls = Tls::from(Arc::clone(&self.trusts)).name(NAME);
        builder.stall_timeout(PATIENCE).verify(true).tls(tls)
    }
}

/// A value of `bytes` bytes that only this key has.
fn value(key: &str, bytes: usize) -> Vec<u8> {
    key.bytes().cycle().take(bytes).collect()
}

/// Lengths around those of TLS records and of receives.
const LENGTHS: [usize; 9] = [0, 1, 100, 16_000, 16_384, 65_535, 65_536, 300_000, 1_000_000];

#[test]
fn values_of_all_lengths_come_back_as_they_were() {
    let secure = Secure::start();
    let client = secure.builder().build().expect("a client");
    for bytes in LENGTHS {
        let (key, value) = (format!("key:{bytes}"), value("blocking", bytes));
        client.set(key.as_bytes(), &value).send().expect("stored");
        assert!(client.get(key.as_bytes()).expect("an answer").expect("a hit").bytes == value, "{bytes}");
    }
    runtime().block_on(async {
        let client = secure.builder().build_tokio().expect("a client");
        for bytes in LENGTHS {
            let (key, value) = (format!("key:{bytes}"), value("awaited", bytes));
            client.set(key.as_bytes(), &value).send().await.expect("stored");
            let read = client.get(key.as_bytes()).await.expect("an answer").expect("a hit").bytes;
            assert!(read == value, "{bytes}");
        }
    });
}

#[test]
fn threads_share_a_connection_and_nobody_gets_anothers_value() {
    let secure = Secure::start();
    let client = secure.builder().build().expect("a client");
    thread::scope(|scope| {
        for owner in 0..8 {
            let client = &client;
            scope.spawn(move || {
                let mut read = Vec::new();
                for round in 0..200_usize {
                    let (key, bytes) = (format!("{owner}:{}", round % 7), (round * 3571) % 70_000);
                    let value = value(&format!("{owner}:{round}"), bytes);
                    client.set(key.as_bytes(), &value).send().expect("stored");
                    read.clear();
                    client.get_into(key.as_bytes(), &mut read).expect("an answer").expect("a hit");
                    assert!(read == value, "{key}");
                }
            });
        }
    });
    // One connection for most values, and one for large ones.
    assert!(client.counters().dials <= 2, "{:?}", client.counters());
    runtime().block_on(async {
        let client = secure.builder().build_tokio().expect("a client");
        let tasks: Vec<_> = (0..32)
            .map(|owner| {
                let client = client.clone();
                tokio::spawn(async move {
                    for round in 0..50_usize {
                        let (key, bytes) = (format!("{owner}:{}", round % 7), (round * 3571) % 70_000);
                        let value = value(&format!("{owner}:{round}"), bytes);
                        client.set(key.as_bytes(), &value).send().await.expect("stored");
                        let read = client.get(key.as_bytes()).await.expect("an answer").expect("a hit");
                        assert!(read.bytes == value, "{key}");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("it does not panic");
        }
    });
}

#[test]
fn batches_and_streams_add_up_also_when_the_server_dies() {
    let secure = Secure::start();
    let client = secure.builder().build().expect("a client");
    let mut batch = client.batch();
    let value = vec![b'v'; 1000];
    let sets: Vec<_> =
        (0..5000).map(|n| batch.set(format!("b{n}").as_bytes(), &value, Ttl::Forever)).collect();
    let done = batch.run();
    assert!(sets.into_iter().all(|set| done.take(set).is_ok()));
    drop(done);
    let gets: Vec<_> = (0..5000).map(|n| batch.get(format!("b{n}").as_bytes())).collect();
    let done = batch.run();
    assert!(gets.iter().all(|get| done.value(get).expect("an answer").expect("a hit").0 == value));
    drop(done);
    let mut stream = client.stream(Window::default());
    (0..10_000).for_each(|n| stream.set(format!("s{n}").as_bytes(), &value, Ttl::Forever).expect("good"));
    let report = stream.barrier();
    assert_eq!((report.sent, report.stored), (10_000, 10_000), "{report:?}");
    let Secure { server, front, .. } = secure;
    let mut both = Some((server, front));
    for n in 0..10_000 {
        if n == 3000 {
            both = None;
        }
        stream.set(format!("s{n}").as_bytes(), &value, Ttl::Forever).expect("a good key");
    }
    drop(both);
    let report = stream.barrier();
    assert_eq!((report.sent, report.stored + report.refused + report.unknown), (10_000, 10_000));
    assert!(report.stored < 10_000 && report.error.is_some(), "{report:?}");
}

/// The errors of both clients with the same configuration.
fn told(builder: impl Fn() -> Builder) -> [Error; 2] {
    let blocking = builder().build().expect("a client").get(b"k").expect_err("nobody to talk to");
    let awaited = runtime().block_on(async {
        let client = builder().build_tokio().expect("a client");
        client.get(b"k").await.expect_err("nobody to talk to")
    });
    [blocking, awaited]
}

#[test]
fn nobody_is_spoken_to_who_is_not_whom_it_should_be() {
    let (secure, other) = (Secure::start(), Secure::start());
    let tls = Tls::from(Arc::clone(&secure.trusts));
    let cases: [(&str, String, Tls); 3] = [
        ("a certificate of another's", other.address.to_string(), tls.clone().name(NAME)),
        ("another name", secure.address.to_string(), tls.clone().name("other.internal")),
        ("no TLS at all", secure.server.address().to_string(), tls.clone().name(NAME)),
    ];
    for (what, address, tls) in cases {
        for error in told(|| Client::builder().server(address.as_str()).timeout(PATIENCE).tls(tls.clone())) {
            assert!(matches!(error, Error::Down(..)), "{what}: {error}");
            assert_eq!(error.outcome(), Outcome::NotSent);
        }
    }
    // If no name is set, the certificate must be for the address.
    for error in told(|| secure.builder().tls(tls.clone())) {
        assert!(error.to_string().contains("not valid for name"), "{error}");
    }
    let path = Client::builder().server("/run/cache.sock").tls(tls.clone()).build();
    assert!(matches!(path, Err(Error::Config(_))), "{path:?}");
    let loop_of_ones_own = secure.builder().connection(Instant::now());
    assert!(matches!(loop_of_ones_own, Err(Error::Config(_))));
}

#[test]
fn who_says_nothing_in_the_handshake_is_given_up_in_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let tls = Tls::from(Arc::new(config)).name(NAME);
    let builder = || {
        let builder = Client::builder().server(address.as_str()).timeout(PATIENCE);
        builder.dial_timeout(Duration::from_millis(50)).tls(tls.clone())
    };
    for error in told(builder) {
        assert!(matches!(error, Error::Down(..)), "{error}");
    }
}
