//! A server's acceptor and a client that trusts it, joined by a simulated stream.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_eventloop::sim::{Network, Peer, SimStream, Time, Weather};
use larder_eventloop::{Between, Stream};
use larder_tls::{Acceptor, Counters, Files, Options, Transport};
use rustls::client::WantsClientCert;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, ConfigBuilder, RootCertStore};

/// A test's files, which are removed when it ends.
pub struct TestFiles {
    folder: PathBuf,
}

impl TestFiles {
    pub fn new() -> TestFiles {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("larder-tls-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("a new folder");
        TestFiles { folder }
    }

    pub fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    pub fn folder(&self) -> PathBuf {
        self.folder.clone()
    }
}

impl Drop for TestFiles {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub struct Pair {
    pub acceptor: Acceptor,
    pub counters: Arc<Counters>,
    pub trust: Arc<ClientConfig>,
    certificate: CertificateDer<'static>,
    network: Network,
}

/// A server with these options and a new certificate and key, and a client that trusts it.
pub fn pair(options: Options) -> Pair {
    pair_in(options, Weather::FAIR)
}

/// The same over a network with this weather.
pub fn pair_in(options: Options, weather: Weather) -> Pair {
    let made = rcgen::generate_simple_self_signed(["larder.test".to_owned()]).expect("a certificate");
    let files = TestFiles::new();
    let chain = files.put("crt", made.cert.pem());
    let key = files.put("key", made.signing_key.serialize_pem());
    let counters: Arc<Counters> = Arc::default();
    let acceptor = Acceptor::load(&Options { chain, key, ..options }, &counters, &mut Files::default())
        .expect("good files");
    let certificate = made.cert.der().clone();
    let trust = Arc::new(trusting(&certificate).with_no_client_auth());
    let network = Network::new(1, weather, Time::default());
    Pair { acceptor, counters, trust, certificate, network }
}

fn trusting(certificate: &CertificateDer<'static>) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
}

impl Pair {
    /// Has the client send this certificate to the server.
    pub fn show(&mut self, chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) {
        let trust = trusting(&self.certificate).with_client_auth_cert(chain, key);
        self.trust = Arc::new(trust.expect("they belong together"));
    }

    pub fn client(&self) -> ClientConnection {
        let name = "larder.test".try_into().expect("a name");
        ClientConnection::new(Arc::clone(&self.trust), name).expect("a client")
    }

    pub fn accept(&self) -> (Transport<SimStream>, Peer) {
        let (stream, peer) = self.network.connect();
        (self.acceptor.accept(stream).expect("random numbers"), peer)
    }
}

pub fn between(stream: &Transport<SimStream>) -> Between {
    stream.between().expect("it is TLS")
}

/// The bytes that the client has to send, as records.
pub fn records(client: &mut ClientConnection) -> Vec<u8> {
    let mut records = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut records).expect("a vector takes all");
    }
    records
}

/// Sends the client's records to the server.
pub fn send(client: &mut ClientConnection, peer: &Peer) {
    let records = records(client);
    peer.send(&records);
}

/// Gives the client what the server has sent; returns its plaintext.
pub fn take(client: &mut ClientConnection, peer: &Peer) -> Vec<u8> {
    let came = peer.read(usize::MAX);
    let (mut left, mut plain) = (&came[..], Vec::new());
    while !left.is_empty() {
        client.read_tls(&mut left).expect("a slice gives all");
        let bytes = client.process_new_packets().expect("good records").plaintext_bytes_to_read();
        let at = plain.len();
        plain.resize(at + bytes, 0);
        client.reader().read_exact(&mut plain[at..]).expect("so much is there");
    }
    plain
}

pub fn would_block(stream: &mut Transport<SimStream>) {
    let error = stream.recv(&mut [0; 100]).expect_err("no plaintext");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

pub fn shake_hands(client: &mut ClientConnection, stream: &mut Transport<SimStream>, peer: &Peer) {
    while between(stream).opening || client.is_handshaking() {
        send(client, peer);
        would_block(stream);
        assert!(take(client, peer).is_empty());
    }
}
