//! How a driver reaches a server: over TCP, over a Unix socket, or by TLS over TCP.
//!
//! A driver gets texts alone: an address, a path, and for TLS the name in the server's certificate and paths of PEM files, which
//! it reads itself. So a target whose certificate is not checked is not for drivers: not all of their clients can leave that out.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use larder_eventloop::socket::Address;
use larder_tls::{Connector, Trust};

use crate::control::Control;
use crate::error::Error;

/// What a client's connections are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP, over IPv4 or IPv6.
    Tcp,
    /// A Unix stream socket.
    Unix,
    /// TLS over TCP.
    Tls,
}

impl Transport {
    /// The transport to a server.
    pub fn of(control: &Control) -> Transport {
        match &control.address {
            _ if control.tls.is_some() => Transport::Tls,
            Address::Tcp(_) => Transport::Tcp,
            Address::Unix(_) => Transport::Unix,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "TCP",
            Transport::Unix => "a Unix socket",
            Transport::Tls => "TLS",
        })
    }
}

/// A server, in the words of a driver's job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// An IP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(String),
    /// An IP address, by TLS.
    Tls(SocketAddr, Secured),
}

/// What a client needs for TLS. Files are paths of PEM; an empty text is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secured {
    /// The name in the server's certificate.
    pub name: String,
    /// Certificates of authorities; empty for those of the system.
    pub authorities: String,
    /// The client's own certificates.
    pub chain: String,
    /// Their key.
    pub key: String,
}

impl Reach {
    /// The way to a server.
    ///
    /// # Errors
    /// [`Error::Usage`] when drivers do not reach it: at an address of an interface, or with a certificate that is not checked.
    pub fn of(control: &Control) -> Result<Reach, Error> {
        let address = match &control.address {
            // The job that is sent to a driver has no room for the number of an interface.
            Address::Tcp(SocketAddr::V6(address)) if address.scope_id() != 0 => {
                let why = format!("drivers reach no addresses of an interface, as {address} is");
                return Err(Error::Usage(format!("{}: {why}", control.name)));
            }
            Address::Tcp(address) => *address,
            Address::Unix(path) => return Ok(Reach::Unix(text(path))),
        };
        let Some(connector) = &control.tls else { return Ok(Reach::Tcp(address)) };
        let Some(secured) = Secured::of(connector) else {
            let why = "drivers check certificates: ssl_ca_certs names their authority";
            return Err(Error::Usage(format!("{}: {why}", control.name)));
        };
        Ok(Reach::Tls(address, secured))
    }
}

impl Secured {
    /// The lab's own options for a driver; `None` if these check no certificate.
    fn of(connector: &Connector) -> Option<Secured> {
        let options = connector.options();
        let authorities = match &options.trust {
            Trust::System => String::new(),
            Trust::File(path) => text(path),
            Trust::Anyone => return None,
        };
        let (chain, key) = match &options.pair {
            Some((chain, key)) => (text(chain), text(key)),
            None => (String::new(), String::new()),
        };
        Some(Secured { name: connector.name(), authorities, chain, key })
    }
}

/// A path as text. Paths of a URL are texts, so nothing is lost.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv6Addr, SocketAddrV6};

    use crate::control::Family;
    use larder_tls::ClientOptions;

    fn control(address: Address, tls: Option<Connector>) -> Control {
        Control { name: "a".to_owned(), family: Family::Memcached, address, login: None, tls }
    }

    fn tcp(text: &str) -> Address {
        Address::Tcp(text.parse().unwrap())
    }

    #[test]
    fn drivers_reach_ip_addresses_and_unix_sockets() {
        for text in ["127.0.0.1:11211", "[::1]:11211", "[2001:db8::7]:1"] {
            let control = control(tcp(text), None);
            assert_eq!(Reach::of(&control).unwrap(), Reach::Tcp(text.parse().unwrap()));
            assert_eq!(Transport::of(&control), Transport::Tcp);
        }
        let control = control(Address::Unix("/run/m".into()), None);
        assert_eq!(Reach::of(&control).unwrap(), Reach::Unix("/run/m".to_owned()));
        assert_eq!(Transport::of(&control), Transport::Unix);
    }

    #[test]
    fn an_address_of_an_interface_is_refused() {
        let zone = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 1, 0, 3));
        let error = Reach::of(&control(Address::Tcp(zone), None)).unwrap_err();
        let why = "a: drivers reach no addresses of an interface, as [::1%3]:1 is";
        assert!(matches!(error, Error::Usage(_)) && error.to_string() == why, "{error}");
    }

    #[test]
    fn a_server_with_tls_is_reached_by_its_name_and_only_with_a_certificate_that_is_checked() {
        let by = |name: &str, trust| {
            let connector = Connector::load(name, ClientOptions { trust, pair: None }).unwrap();
            control(tcp("127.0.0.1:7"), Some(connector))
        };
        for (name, plain) in [("cache.internal", "cache.internal"), ("[::1]", "::1")] {
            let control = by(name, Trust::System);
            let secured = Secured { name: plain.to_owned(), ..Secured::default() };
            assert_eq!(Reach::of(&control).unwrap(), Reach::Tls("127.0.0.1:7".parse().unwrap(), secured));
            assert_eq!(Transport::of(&control), Transport::Tls);
        }
        let error = Reach::of(&by("cache.internal", Trust::Anyone)).unwrap_err();
        assert!(matches!(error, Error::Usage(_)), "{error}");
        assert!(error.to_string().starts_with("a: drivers check certificates: "), "{error}");
    }
}
