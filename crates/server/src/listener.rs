//! Where the server listens, and what is spoken there.

use std::sync::Arc;

use larder_commands::Speaks;
use larder_eventloop::socket::Address;

/// A listener, as its connections know it.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Its address, with the real port.
    pub address: Address,
    /// The address, as RESP's clients are told.
    pub told: Arc<str>,
    /// What its connections speak.
    pub speaks: Speaks,
    /// With TLS: the index of its options among the server's.
    pub tls: Option<usize>,
}

impl Listener {
    /// A listener at an address, without TLS.
    pub fn new(address: Address, speaks: Speaks) -> Listener {
        Listener { told: ip_and_port(&address).into(), address, speaks, tls: None }
    }
}

/// `127.0.0.1:6379`, or `/path:0` of a Unix socket.
pub(crate) fn ip_and_port(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("{}:0", path.display()),
    }
}
