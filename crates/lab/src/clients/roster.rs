//! The clients of the experiment, one row each.

use crate::control::{Control, Family};
use crate::driver::build::Language;
use crate::driver::reach::Transport;

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Speaks {
    /// memcached's text protocols.
    Text,
    /// memcached's binary protocol, on the same port.
    Binary,
    /// Redis's protocol.
    Redis,
}

impl Speaks {
    /// The family of servers that may understand it.
    pub fn family(self) -> Family {
        match self {
            Speaks::Text | Speaks::Binary => Family::Memcached,
            Speaks::Redis => Family::Redis,
        }
    }
}

/// A client of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// The language of its driver.
    pub language: Language,
    /// Its name in the driver.
    pub name: &'static str,
    /// The protocol that it speaks.
    pub speaks: Speaks,
    /// What it does for its cost: a client without a deadline is cheaper.
    pub features: &'static str,
}

const fn row(language: Language, name: &'static str, speaks: Speaks, features: &'static str) -> Client {
    Client { language, name, speaks, features }
}

/// The loop that a program could have instead of a client, in each language that has one.
pub const BY_HAND: &str = "by hand";
/// Larder's own client.
pub const OWN: &str = "larder";
/// The same client, with a number in each request that its reply repeats.
pub const OWN_VERIFIED: &str = "larder, replies verified";
/// Larder's own client for async programs.
pub const OWN_TOKIO: &str = "larder, tokio";
/// Its gomemcache façade.
pub const FACADE: &str = "larder façade";
/// gomemcache as shipped.
pub const GOMEMCACHE: &str = "gomemcache";
/// The same client with a pool as large as the number of callers.
pub const GOMEMCACHE_POOL: &str = "gomemcache, pool = callers";

/// All clients.
pub const CLIENTS: &[Client] = &[
    row(Language::Go, OWN, Speaks::Text, "one connection for all callers; deadline of the whole call"),
    row(Language::Go, OWN_VERIFIED, Speaks::Text, "the same, with a number in each request and reply"),
    row(Language::Go, FACADE, Speaks::Text, "gomemcache's interface; one connection for all callers"),
    row(
        Language::Go,
        GOMEMCACHE,
        Speaks::Text,
        "pool of 2 idle connections; deadline of each read and write",
    ),
    row(Language::Go, GOMEMCACHE_POOL, Speaks::Text, "pool; deadline of each read and write"),
    row(Language::Go, "rainycape", Speaks::Binary, "pool of 2 idle connections; deadline of a request"),
    row(Language::Go, BY_HAND, Speaks::Text, "a connection for each caller; no deadline"),
    row(Language::Go, "rueidis", Speaks::Redis, "few connections for all callers; deadline by context"),
    row(Language::Go, "go-redis", Speaks::Redis, "pool; deadlines; asks again"),
    row(
        Language::C,
        "libmemcached",
        Speaks::Text,
        "a handle for each caller; TCP_NODELAY; deadline of each wait",
    ),
    row(Language::C, OWN, Speaks::Text, "one connection for all callers; deadline of the whole call"),
    row(Language::C, BY_HAND, Speaks::Text, "a connection for each caller; deadline of each wait"),
    row(Language::Rust, OWN, Speaks::Text, "one connection for all callers; deadline of the whole call"),
    row(Language::Rust, OWN_TOKIO, Speaks::Text, "the same for tasks, on a runtime of one thread"),
    row(Language::Rust, "memcache", Speaks::Text, "pool; deadline of each read and write"),
    row(
        Language::Rust,
        "async-memcached",
        Speaks::Text,
        "a connection for each caller; calls are cancelled in time",
    ),
    row(
        Language::Rust,
        BY_HAND,
        Speaks::Text,
        "a connection for each caller; deadline of each read and write",
    ),
    row(Language::Python, "pymemcache", Speaks::Text, "a connection for each caller; deadline of each read"),
    row(Language::Python, "pylibmc", Speaks::Text, "libmemcached, a handle for each caller"),
    row(
        Language::Python,
        "python-memcached",
        Speaks::Text,
        "a connection for each caller; deadline of each read",
    ),
    row(Language::Python, BY_HAND, Speaks::Text, "a connection for each caller; deadline of each read"),
    row(
        Language::Java,
        "spymemcached",
        Speaks::Text,
        "one connection for all callers; deadline of the whole call",
    ),
    row(
        Language::Java,
        "xmemcached",
        Speaks::Text,
        "one connection for all callers; deadline of the whole call",
    ),
    row(Language::Java, BY_HAND, Speaks::Text, "a connection for each caller; deadline of each read"),
];

impl Client {
    /// "go: larder".
    pub fn full_name(&self) -> String {
        format!("{}: {}", self.language.name(), self.name)
    }

    /// Whether it has a call that stores several keys and returns a result for each.
    pub fn sets_several(&self) -> bool {
        let drivers = matches!(self.language, Language::Go | Language::C | Language::Rust);
        drivers && matches!(self.name, OWN | OWN_VERIFIED | OWN_TOKIO | BY_HAND)
    }

    /// Whether it can send a user and a password. Of the clients of the text protocol Larder's own can; no loop by hand can.
    pub fn logs_in(&self) -> bool {
        let own = self.sets_several() && self.name != BY_HAND;
        own || self.speaks == Speaks::Redis
    }

    /// Why it makes no connections of this kind; `None` if it makes them.
    pub fn why_not(&self, transport: Transport) -> Option<&'static str> {
        let own = matches!(self.name, OWN | OWN_VERIFIED | OWN_TOKIO);
        match (transport, self.language, self.name) {
            (Transport::Tcp, ..) => None,
            (Transport::Unix, Language::Java, _) => Some("it connects to hosts and ports"),
            (Transport::Unix, ..) => None,
            (Transport::Tls, Language::Go | Language::C | Language::Rust, _) if own => None,
            (Transport::Tls, Language::Go, "rainycape") => Some("it has no TLS, and dials by itself"),
            (Transport::Tls, Language::Go, _) => None,
            (Transport::Tls, _, BY_HAND) => Some("the loop is written over a socket"),
            (Transport::Tls, _, "memcache") => Some("its TLS is OpenSSL's, without which it is built"),
            (Transport::Tls, _, "pymemcache") => Some("it looks for the address in the certificate"),
            (Transport::Tls, Language::Java, _) => Some("its driver gives it no SSLContext"),
            (Transport::Tls, Language::C | Language::Rust | Language::Python, _) => Some("it has no TLS"),
        }
    }

    /// Whether it speaks the server's protocol, makes connections of its kind, and can log in if the server requires it.
    pub fn can_ask(&self, control: &Control) -> bool {
        self.is_understood_by(control.family)
            && self.why_not(Transport::of(control)).is_none()
            && (control.login.is_none() || self.logs_in())
    }

    /// Whether servers of this family understand it.
    pub fn is_understood_by(&self, family: Family) -> bool {
        self.speaks.family() == family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_has_each_client_once_and_most_have_a_loop_by_hand() {
        for (at, client) in CLIENTS.iter().enumerate() {
            let twice = CLIENTS[..at]
                .iter()
                .any(|other| (other.language, other.name) == (client.language, client.name));
            assert!(!twice && !client.features.is_empty(), "{}", client.full_name());
        }
        for language in Language::ALL {
            assert!(CLIENTS.iter().any(|client| client.language == language && client.name == BY_HAND));
        }
    }

    #[test]
    fn several_keys_are_stored_by_larders_own_clients_and_by_hand() {
        let names: Vec<String> =
            CLIENTS.iter().filter(|client| client.sets_several()).map(Client::full_name).collect();
        let expected = [
            "go: larder",
            "go: larder, replies verified",
            "go: by hand",
            "c: larder",
            "c: by hand",
            "rust: larder",
            "rust: larder, tokio",
            "rust: by hand",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_password_is_said_by_larders_own_clients_and_by_those_of_redis() {
        let names: Vec<String> =
            CLIENTS.iter().filter(|client| client.logs_in()).map(Client::full_name).collect();
        let expected = [
            "go: larder",
            "go: larder, replies verified",
            "go: rueidis",
            "go: go-redis",
            "c: larder",
            "rust: larder",
            "rust: larder, tokio",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn all_clients_but_javas_use_unix_sockets_and_those_that_can_use_tls() {
        let by = |transport| -> Vec<String> {
            let able = CLIENTS.iter().filter(|client| client.why_not(transport).is_none());
            able.map(Client::full_name).collect()
        };
        let all = CLIENTS.len();
        assert_eq!((by(Transport::Tcp).len(), by(Transport::Unix).len()), (all, all - 3));
        assert!(by(Transport::Unix).iter().all(|name| !name.starts_with("java")));
        let expected = [
            "go: larder",
            "go: larder, replies verified",
            "go: larder façade",
            "go: gomemcache",
            "go: gomemcache, pool = callers",
            "go: by hand",
            "go: rueidis",
            "go: go-redis",
            "c: larder",
            "rust: larder",
            "rust: larder, tokio",
        ];
        assert_eq!(by(Transport::Tls), expected);
    }

    #[test]
    fn each_client_is_understood_by_the_servers_of_one_family() {
        let by = |name, family| {
            let client = CLIENTS.iter().find(|client| client.name == name).unwrap();
            client.is_understood_by(family)
        };
        // The binary protocol is memcached's as well, and Larder's.
        for name in ["gomemcache", "rainycape", "larder"] {
            assert!(by(name, Family::Memcached) && !by(name, Family::Redis), "{name}");
        }
        assert!(by("rueidis", Family::Redis) && !by("rueidis", Family::Memcached));
    }
}
