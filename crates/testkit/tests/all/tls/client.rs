//! Certificates for tests, and a client's side of TLS without a socket.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_eventloop::sim::Peer;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, SupportedProtocolVersion};

/// The name in all certificates.
const NAME: &str = "larder.test";

/// A self-signed certificate and its key, in files that are removed with it.
pub struct Identity {
    pub chain: PathBuf,
    pub key: PathBuf,
}

impl Identity {
    pub fn new() -> Identity {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
        Identity::written(&made.cert.pem(), &made.signing_key.serialize_pem())
    }

    /// An identity whose certificate and signatures have the same lengths in each run. So have handshakes by it, and a simulated
    /// network cuts them alike.
    pub fn of_known_length() -> Identity {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let mut params = rcgen::CertificateParams::new([NAME.to_owned()]).expect("a name");
        // The default serial number is a digest of the key, whose length differs if it begins with zeros.
        params.serial_number = Some(rcgen::SerialNumber::from(1_u64));
        let certificate = params.self_signed(&key).expect("a certificate");
        Identity::written(&certificate.pem(), &key.serialize_pem())
    }

    /// An identity whose certificate has this common name.
    pub fn named(common_name: &str) -> Identity {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new([NAME.to_owned()]).expect("a name");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, common_name);
        let certificate = params.self_signed(&key).expect("a certificate");
        Identity::written(&certificate.pem(), &key.serialize_pem())
    }

    fn written(chain: &str, key: &str) -> Identity {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("larder-tls-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let at = |end: &str| std::env::temp_dir().join(format!("{name}.{end}"));
        let identity = Identity { chain: at("crt"), key: at("key") };
        std::fs::write(&identity.chain, chain).expect("a file of our own");
        std::fs::write(&identity.key, key).expect("a file of our own");
        identity
    }

    pub fn chain_text(&self) -> String {
        self.chain.display().to_string()
    }

    pub fn key_text(&self) -> String {
        self.key.display().to_string()
    }

    /// Replaces the contents of its files by those of the other identity's files.
    pub fn replace_by(&self, other: &Identity) {
        std::fs::copy(&other.chain, &self.chain).expect("copied");
        std::fs::copy(&other.key, &self.key).expect("copied");
    }

    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let certificates = CertificateDer::pem_file_iter(&self.chain).expect("the file is there");
        certificates.map(|certificate| certificate.expect("it is one")).collect()
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.chain);
        let _ = std::fs::remove_file(&self.key);
    }
}

/// The configuration of a client that trusts this server alone, and shows its own certificate if it has one.
pub fn trusting(server: &Identity, own: Option<&Identity>) -> Arc<ClientConfig> {
    speaking(rustls::DEFAULT_VERSIONS, server, own)
}

/// The same for a client that speaks these versions.
pub fn speaking(
    versions: &[&'static SupportedProtocolVersion],
    server: &Identity,
    own: Option<&Identity>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in server.certificates() {
        roots.add(certificate).expect("it is one");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("there are versions")
        .with_root_certificates(roots);
    Arc::new(match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let key = PrivateKeyDer::from_pem_file(&own.key).expect("a key");
            config.with_client_auth_cert(own.certificates(), key).expect("they go together")
        }
    })
}

/// A client's side of a connection.
pub fn connection(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = NAME.try_into().expect("a name");
    ClientConnection::new(Arc::clone(config), name).expect("a client")
}

/// A client over the simulated network.
#[derive(Debug)]
pub struct Client {
    pub peer: Peer,
    tls: ClientConnection,
    /// All bytes that it has read.
    pub read: Vec<u8>,
    /// The server has sent close_notify.
    pub close_notify: bool,
    pub error: Option<rustls::Error>,
}

impl Client {
    pub fn new(peer: Peer, config: &Arc<ClientConfig>) -> Client {
        Client { peer, tls: connection(config), read: Vec::new(), close_notify: false, error: None }
    }

    /// Sends `bytes` as soon as the handshake is complete.
    pub fn write(&mut self, bytes: &[u8]) {
        self.tls.set_buffer_limit(None);
        self.tls.writer().write_all(bytes).expect("there is no limit");
    }

    /// The handshake is complete, as this side sees it.
    pub fn is_open(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// The handshake resumed a session.
    pub fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Sends the records that it has to send.
    pub fn flush(&mut self) {
        let records = self.records();
        self.peer.send(&records);
    }

    /// Sends close_notify.
    pub fn end(&mut self) {
        self.tls.send_close_notify();
    }

    /// The records that the client has to send.
    pub fn records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut records).expect("a vector takes all");
        }
        records
    }

    /// Sends its records, and receives at most `bytes_max`; returns how many bytes it received.
    pub fn step(&mut self, bytes_max: usize) -> usize {
        let records = self.records();
        self.peer.send(&records);
        self.receive(bytes_max) + records.len()
    }

    /// Receives at most `bytes_max`; returns how many bytes it received.
    pub fn receive(&mut self, bytes_max: usize) -> usize {
        let came = self.peer.read(bytes_max);
        let mut left = &came[..];
        while !left.is_empty() && self.error.is_none() {
            self.tls.read_tls(&mut left).expect("a slice gives all");
            match self.tls.process_new_packets() {
                Ok(state) => {
                    self.close_notify |= state.peer_has_closed();
                    let mut plain = vec![0; state.plaintext_bytes_to_read()];
                    self.tls.reader().read_exact(&mut plain).expect("so much is there");
                    self.read.extend(plain);
                }
                Err(error) => self.error = Some(error),
            }
        }
        came.len()
    }
}
