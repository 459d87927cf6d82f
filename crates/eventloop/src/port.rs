//! Ports of this machine that the system gives to no other program.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// A port of 127.0.0.1 on which a server may listen, again and again, and which the system gives to no other program.
///
/// A port that was only found free may be given to another program as soon as it is closed. A test that expects a refusal there
/// would then reach another server, or itself.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _bound: OwnedFd,
}

impl Port {
    /// Reserves a free port until this value is dropped. The server has to name the port, and to set SO_REUSEADDR as nearly all
    /// servers do.
    ///
    /// # Errors
    /// What the system said.
    pub fn reserve() -> io::Result<Port> {
        let bound = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // A socket that is bound and never listens keeps the port from all programs but those that name it and set this option
        // too.
        sockopt::set_socket_reuseaddr(&bound, true)?;
        net::bind(&bound, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = net::getsockname(&bound)?.try_into()?;
        Ok(Port { address, _bound: bound })
    }

    /// The reserved address. Nothing listens there unless a server was told to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::net::{TcpListener, TcpStream};

    fn refuses(address: SocketAddr) -> bool {
        TcpStream::connect(address).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    #[test]
    fn whoever_names_it_listens_and_nobody_does_before_or_after() {
        let port = Port::reserve().expect("a port");
        for _ in 0..2 {
            assert!(refuses(port.address()));
            let listener = TcpListener::bind(port.address()).expect("it is ours");
            let _client = TcpStream::connect(port.address()).expect("a connection");
            let _served = listener.accept().expect("a connection");
        }
        assert!(refuses(port.address()));
    }

    #[test]
    fn nobody_is_given_it_by_chance() {
        // Of 28,000 that the system gives in no order, these are too many to be missed 4,000 times.
        let reserved: Vec<_> = (0..100).map(|_| Port::reserve().expect("a port")).collect();
        let ours: HashSet<_> = reserved.iter().map(Port::address).collect();
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = server.local_addr().expect("an address");
        for _ in 0..2_000 {
            let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            assert!(!ours.contains(&other.local_addr().expect("an address")));
        }
        for _ in 0..2_000 {
            let client = TcpStream::connect(address).expect("a connection");
            assert!(!ours.contains(&client.local_addr().expect("an address")));
            sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).expect("a socket");
            let _ = server.accept();
        }
    }
}
