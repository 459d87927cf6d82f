//! A client's end of a connection: plain, or by TLS. What the client reads and writes there is plain.

use std::net::SocketAddr;
use std::sync::Arc;

use larder_eventloop::sim::Peer;
use rustls::{ClientConfig, SupportedProtocolVersion};

use crate::tls::client::{Client, Identity, speaking};
use crate::world::scene::Scene;

/// TLS configurations that all clients of a world share: a client may resume a session of another one.
#[derive(Debug)]
pub struct Trust {
    /// For any version, and for TLS 1.2 alone.
    versions: [Arc<ClientConfig>; 2],
}

impl Trust {
    /// A configuration that trusts this server alone, without a session to resume.
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

/// The result of a receive.
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

    /// True if the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Wire::Tls(_))
    }

    /// True if bytes can be sent: there is no handshake, or this side has completed it.
    pub fn is_open(&self) -> bool {
        match self {
            Wire::Plain(_) => true,
            Wire::Tls(client) => client.is_open(),
        }
    }

    /// True if the handshake resumed a session.
    pub fn is_resumed(&self) -> bool {
        match self {
            Wire::Plain(_) => false,
            Wire::Tls(client) => client.is_resumed(),
        }
    }

    /// Sends the waiting bytes of the handshake.
    pub fn flush(&mut self) {
        if let Wire::Tls(client) = self {
            client.flush();
        }
    }

    /// Sends bytes; the wire must be open.
    pub fn send(&mut self, bytes: &[u8]) {
        match self {
            Wire::Plain(peer) => peer.send(bytes),
            Wire::Tls(client) => {
                client.write(bytes);
                client.flush();
            }
        }
    }

    /// Receives at most `bytes_max` bytes from the network.
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

    /// The error of received records, if there is one.
    pub fn wrong(&self) -> Option<String> {
        match self {
            Wire::Tls(client) => client.error.as_ref().map(|error| format!("these are no records: {error}")),
            Wire::Plain(_) => None,
        }
    }

    /// Ends the sending side, by TLS with close_notify.
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
