//! The clients of the experiment, one row each.

use crate::control::Family;
use crate::driver::build::Language;

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
