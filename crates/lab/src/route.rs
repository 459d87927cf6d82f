//! The route of a load to a server: the protocol, and the kind of socket.
//!
//! A server is compared with a null server that is reached by the same route. A Unix socket costs less of the kernel than TCP, so
//! that a server behind one may well do more than a null server behind the other.

use std::fmt;

use larder_eventloop::socket::Address;
use larder_protocol::client::Protocol;

/// The kind of a server's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// IPv4 or IPv6.
    Tcp,
    /// A Unix stream socket.
    Unix,
}

impl SocketKind {
    /// The kind of the sockets at an address.
    pub fn of(address: &Address) -> SocketKind {
        match address {
            Address::Tcp(_) => SocketKind::Tcp,
            Address::Unix(_) => SocketKind::Unix,
        }
    }
}

/// How a load reaches a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The protocol.
    pub protocol: Protocol,
    /// The kind of socket.
    pub socket: SocketKind,
}

impl From<Protocol> for Route {
    /// A protocol over TCP.
    fn from(protocol: Protocol) -> Route {
        Route { protocol, socket: SocketKind::Tcp }
    }
}

impl fmt::Display for Route {
    /// `text`, or `RESP, Unix socket`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.protocol {
            Protocol::Classic => "text",
            Protocol::Meta => "meta",
            Protocol::Resp => "RESP",
        })?;
        match self.socket {
            SocketKind::Tcp => Ok(()),
            SocketKind::Unix => f.write_str(", Unix socket"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_names_its_protocol_and_a_socket_that_is_not_usual() {
        let route = |protocol, address: Address| Route { protocol, socket: SocketKind::of(&address) };
        let tcp = || Address::Tcp(([127, 0, 0, 1], 1).into());
        assert_eq!(route(Protocol::Classic, tcp()).to_string(), "text");
        assert_eq!(route(Protocol::Meta, tcp()), Protocol::Meta.into());
        let unix = route(Protocol::Resp, Address::Unix("/run/r.sock".into()));
        assert_eq!(unix.to_string(), "RESP, Unix socket");
        assert_ne!(unix, Protocol::Resp.into());
    }
}
