//! The certificate of a server that speaks TLS, and clients that trust it.

use crate::wire::{connect, shown};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The name in the certificate.
const NAME: &str = "larder.test";

/// A self-signed certificate and its key, in files that are removed with it, and the configuration of clients
/// that trust it.
#[derive(Debug)]
pub struct Identity {
    /// The file of the certificate.
    pub chain: String,
    /// The file of the key.
    pub key: String,
    folder: PathBuf,
    config: Arc<ClientConfig>,
}

impl Identity {
    /// Makes a certificate.
    ///
    /// # Errors
    /// The system's error, or the library's.
    pub fn new() -> Result<Identity, String> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(told)?;
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).map_err(told)?;
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(told)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let folder = std::env::temp_dir().join(format!("larder-attack-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(told)?;
        let [chain, key] = ["crt", "key"].map(|name| folder.join(name).display().to_string());
        // From here on, dropping it removes the folder.
        let identity = Identity { chain, key, folder, config: Arc::new(config) };
        std::fs::write(&identity.chain, made.cert.pem()).map_err(told)?;
        std::fs::write(&identity.key, made.signing_key.serialize_pem()).map_err(told)?;
        Ok(identity)
    }

    fn client(&self) -> Result<ClientConnection, String> {
        let name = ServerName::try_from(NAME).map_err(told)?;
        ClientConnection::new(Arc::clone(&self.config), name).map_err(told)
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The port on which a server speaks TLS.
#[derive(Debug)]
pub struct Tls {
    /// Its address.
    pub address: SocketAddr,
    /// The certificate that it shows.
    pub identity: Identity,
}

impl Tls {
    /// The first message of a handshake, as a client sends it.
    ///
    /// # Errors
    /// The library's error.
    pub fn hello(&self) -> Result<Vec<u8>, String> {
        let mut client = self.identity.client()?;
        let mut records = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut records).map_err(told)?;
        }
        Ok(records)
    }

    /// Connects, sends a request and reads its reply; returns how long all of it took.
    ///
    /// # Errors
    /// Another reply than `reply`, or why none came within `patience`.
    pub fn exchange(&self, request: &[u8], reply: &[u8], patience: Duration) -> Result<Duration, String> {
        let began = Instant::now();
        let stream = connect(self.address)?;
        stream.set_read_timeout(Some(patience)).map_err(told)?;
        let mut stream = StreamOwned::new(self.identity.client()?, stream);
        stream.write_all(request).map_err(told)?;
        let mut heard = vec![0; reply.len()];
        stream.read_exact(&mut heard).map_err(told)?;
        if heard == reply { Ok(began.elapsed()) } else { Err(shown(&heard)) }
    }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
