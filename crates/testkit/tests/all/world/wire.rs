//! A client's end of a connection: plain, or by TLS. What the client reads and writes there is plain.

use std::net::SocketAddr;
use std::sync::Arc;

use larder_eventloop::sim::Peer;
use rustls::{ClientConfig, SupportedProtocolVersion};

use crate::tls::client::{Client, Identity, speaking};
use crate::world::scene::Scene;

/// How clients of a world speak TLS: what one remembers of its sessions, another resumes.
#[derive(Debug)]
pub struct Trust {
    /// Of any version, and of 1.2 alone.
    versions: [Arc<ClientConfig>; 2],
}

impl Trust {
    /// Trusts a server alone, and remembers no sessions yet.
    pub fn new(server: &Identity) -> Trust {
        let versions: [&[&'static SupportedProtocolVersion]; 2] =
            [rustls::DEFAULT_VERSIONS, &[&rustls::version::TLS12]];
        Trust { versions: versions.map(|versions| speaking(versions, server, None)) }
    }
}

/// A client's end of a connection.
#[derive(Debug)]
pub enum Wire {
    Plain(Peer),
    Tls(Box<Client>),
}

/// What a receive has brought.
#[derive(Debug)]
pub struct Received {
    /// Bytes that came by the network: records, where TLS is spoken.
    pub moved: u64,
    pub plain: Vec<u8>,
}

impl Wire {
    /// Connects to a listener: by TLS, where the listener speaks it.
    pub fn connect(scene: &mut Scene, listener: usize) -> (Wire, SocketAddr) {
        let (peer, address) = scene.door.connect(listener);
        let wire = match &scene.trust {
            Some(trust) if scene.plan.tls[listener] => {
                let old = scene.random.one_in(4);
                Wire::Tls(Box::new(Client::new(peer, &trust.versions[usize::from(old)])))
            }
            _ => Wire::Plain(peer),
        };
        (wire, address)
    }

    /// The network's end.
    pub fn peer(&self) -> &Peer {
        match self {
            Wire::Plain(peer) => peer,
            Wire::Tls(client) => &client.peer,
        }
    }

    /// TLS is spoken.
    pub fn is_tls(&self) -> bool {
        matches!(self, Wire::Tls(_))
    }

    /// Bytes can be sent: there is no handshake, or it is complete as the client sees it.
    pub fn is_open(&self) -> bool {
        match self {
            Wire::Plain(_) => true,
            Wire::Tls(client) => client.is_open(),
        }
    }

    /// The handshake resumed a session.
    pub fn is_resumed(&self) -> bool {
        match self {
            Wire::Plain(_) => false,
            Wire::Tls(client) => client.is_resumed(),
        }
    }

    /// Sends what the handshake has to send.
    pub fn flush(&mut self) {
        if let Wire::Tls(client) = self {
            client.flush();
        }
    }

    /// Sends bytes; the wire is open.
    pub fn send(&mut self, bytes: &[u8]) {
        match self {
            Wire::Plain(peer) => peer.send(bytes),
            Wire::Tls(client) => {
                client.write(bytes);
                client.flush();
            }
        }
    }

    /// Receives at most `bytes_max` of what has come by the network.
    pub fn receive(&mut self, bytes_max: usize) -> Received {
        match self {
            Wire::Plain(peer) => {
                let plain = peer.read(bytes_max);
                Received { moved: plain.len() as u64, plain }
            }
            Wire::Tls(client) => {
                let moved = client.receive(bytes_max) as u64;
                Received { moved, plain: std::mem::take(&mut client.read) }
            }
        }
    }

    /// What is wrong with the records that have come.
    pub fn wrong(&self) -> Option<String> {
        match self {
            Wire::Tls(client) => client.error.as_ref().map(|error| format!("these are no records: {error}")),
            Wire::Plain(_) => None,
        }
    }

    /// Sends no more: the peer is told that this is no loss.
    pub fn end(&mut self) {
        if let Wire::Tls(client) = self
            && client.is_open()
        {
            client.end();
            client.flush();
        }
        self.peer().end();
    }
}
