//! The origin of a client: clients of one origin are counted together.
//!
//! Of an IPv6 address the first 64 bits count: a machine usually has the other 64 bits for itself. An IPv4 address that is
//! written as IPv6 is the IPv4 address. The clients of Unix sockets are one.

use std::net::{IpAddr, SocketAddr};

/// The origin of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An IPv4 address.
    V4([u8; 4]),
    /// The first 64 bits of an IPv6 address.
    V6([u8; 8]),
    /// A Unix socket: a shown address that is no IP address.
    Unix,
}

impl Origin {
    /// The origin of an IP address.
    pub fn of_ip(address: IpAddr) -> Origin {
        match address.to_canonical() {
            IpAddr::V4(address) => Origin::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Origin::V6([a, b, c, d, e, f, g, h])
            }
        }
    }

    /// The origin of a peer's address as it is shown.
    pub(crate) fn of_shown(address: &str) -> Origin {
        address.parse().map_or(Origin::Unix, |address: SocketAddr| Origin::of_ip(address.ip()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart_as_far_as_one_client_may_have_many() {
        let of = Origin::of_shown;
        assert_ne!(of("127.0.0.1:1"), of("127.0.0.2:1"));
        assert_eq!(of("127.0.0.1:1"), of("127.0.0.1:65535"));
        assert_eq!(of("[::ffff:127.0.0.1]:1"), of("127.0.0.1:1"));
        assert_eq!(of("[2001:db8:1:2::1]:1"), of("[2001:db8:1:2:ffff::]:9"));
        assert_ne!(of("[2001:db8:1:2::1]:1"), of("[2001:db8:1:3::1]:1"));
        assert_eq!(of("/run/larder.sock:0"), Origin::Unix);
    }
}
