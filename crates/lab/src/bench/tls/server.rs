//! A server with TLS, and a plain port beside it.

use std::path::{Path, PathBuf};

use larder_eventloop::port::Port;
use larder_eventloop::socket::Address;
use larder_protocol::client::Protocol;

use crate::control::Family;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::handshakes::{Client, connector};
use crate::peers::{Kind, Server, Spec};

/// Memory limit of the servers: more than all values take.
const MEMORY_MB: u32 = 256;

/// A certificate, and the most that a connection by it may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Certificate {
    /// Its name in tables.
    pub name: &'static str,
    /// The name of its files.
    pub file: &'static str,
    /// The most CPU time of a connection with a full handshake, in µs.
    pub full_us_max: f64,
    /// The most CPU time of a connection that resumes a session, in µs.
    pub resumed_us_max: f64,
}

/// A running server with its two ports.
#[derive(Debug)]
pub(super) struct TlsServer {
    pub peer: Server,
    pub plain: Endpoint,
    pub tls: Endpoint,
    authority: PathBuf,
    /// The port that is not the server's usual one.
    _other: Port,
}

impl TlsServer {
    /// Starts a server that shows a certificate of the folder.
    ///
    /// # Errors
    /// [`Error::Peer`] when the server does not start, [`Error::Usage`] when the authority cannot be read.
    pub fn start(
        kind: Kind,
        core: usize,
        folder: &Path,
        certificate: &Certificate,
    ) -> Result<TlsServer, Error> {
        let path = |name: String| folder.join(name).to_string_lossy().into_owned();
        let [chain, key] = ["crt", "key"].map(|end| path(format!("{}.{end}", certificate.file)));
        let authority = path("ca.crt".to_owned());
        let known = connector(authority.clone().into())?;
        let other = Port::reserve().map_err(|error| Error::System("reserving a port", error))?;
        let (address, port) = (other.address(), other.address().port().to_string());
        let spec =
            Spec { kind, program: None, memory_mb: MEMORY_MB, threads: 1, core: Some(core), null: None };
        let (peer, plain, tls) = match kind.family() {
            // -Z has the usual port speak TLS.
            Family::Memcached => {
                let files = format!("ssl_chain_cert={chain},ssl_key={key},ssl_session_cache");
                let plain = format!("notls:{address}");
                let peer = Server::start_by(&spec, &["-Z", "-o", &files, "-l", &plain], Some(known.clone()))?;
                let tls = peer.control.address.clone();
                (peer, Address::Tcp(address), tls)
            }
            Family::Redis => {
                let words = [
                    ["--tls-port", &port],
                    ["--tls-cert-file", &chain],
                    ["--tls-key-file", &key],
                    ["--tls-ca-cert-file", &authority],
                    ["--tls-auth-clients", "no"],
                ];
                let peer = Server::start_with(&spec, words.as_flattened())?;
                let plain = peer.control.address.clone();
                (peer, plain, Address::Tcp(address))
            }
        };
        let plain = Endpoint::from(&plain);
        let tls = Endpoint { address: tls, login: None, tls: Some(known) };
        Ok(TlsServer { peer, plain, tls, authority: authority.into(), _other: other })
    }

    /// The protocol of its loads.
    pub fn protocol(&self) -> Protocol {
        self.peer.kind.protocol(Protocol::Classic)
    }

    /// Its name in tables.
    pub fn name(&self) -> &'static str {
        self.peer.kind.name()
    }

    /// A client that connects to it by TLS, and resumes sessions or does not.
    ///
    /// # Errors
    /// [`Error::Usage`] when the authority cannot be read.
    pub fn client(&self, resumes: bool) -> Result<Client, Error> {
        Client::new(self.peer.kind.family(), self.tls.address.clone(), self.authority.clone(), resumes)
    }
}
