//! What makes clients from a configuration. It stands above all of them, so that none knows it.

use crate::client::Client;
use crate::config::Config;
use crate::connection::Connection;
#[cfg(feature = "discovery")]
use crate::discovery::Discovery;
use crate::error::Error;
use crate::event::{Event, Observer};
use crate::failure::Failure;
use crate::place::Preset;
use crate::server::Server;
#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::wire::{Dialect, is_key};
use std::time::{Duration, Instant};

/// Most connections to a server for values that are not large.
const LANES_MAX: usize = 8;

/// Builds a [`Client`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    config: Config,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            config: Config {
                servers: Vec::new(),
                #[cfg(feature = "discovery")]
                discovery: None,
                failure: Failure::FailFast,
                preset: Preset::Ketama,
                timeout: Duration::from_millis(500),
                dial_timeout: Duration::from_secs(1),
                stall_timeout: Duration::from_secs(2),
                lanes: 1,
                in_flight: 4096,
                large_bytes: 64 << 10,
                retry_reads: true,
                verify: false,
                auth: None,
                #[cfg(feature = "tls")]
                tls: None,
                prefix: Vec::new(),
                binary_keys: false,
                protocol: None,
                observer: None,
            },
        }
    }
}

impl Builder {
    /// Adds a server: an address, or a [`Server`] with a name or a weight.
    pub fn server(mut self, server: impl Into<Server>) -> Builder {
        self.config.servers.push(server.into());
        self
    }

    /// Sets the source of the list of servers, which is asked from the moment in which the client is made. Servers that stay keep
    /// their connections. Requests under way at servers that go are still answered. Without [`Builder::server`], building the
    /// client waits for the first list.
    #[cfg(feature = "discovery")]
    pub fn discover(mut self, discovery: Discovery) -> Builder {
        self.config.discovery = Some(discovery);
        self
    }

    /// Sets what happens to the keys of a server that is down. Default: [`Failure::FailFast`].
    pub fn failure(mut self, failure: Failure) -> Builder {
        self.config.failure = failure;
        self
    }

    /// Sets the rule by which keys are placed on servers. Default: [`Preset::Ketama`].
    pub fn preset(mut self, preset: Preset) -> Builder {
        self.config.preset = preset;
        self
    }

    /// Time for a whole call, including waiting and connecting. Default: 500 ms.
    pub fn timeout(mut self, timeout: Duration) -> Builder {
        self.config.timeout = timeout;
        self
    }

    /// Time to connect, within that of the call. Default: 1 s.
    pub fn dial_timeout(mut self, timeout: Duration) -> Builder {
        self.config.dial_timeout = timeout;
        self
    }

    /// A connection that owes replies and receives nothing for this long is given up. Default: 2 s.
    pub fn stall_timeout(mut self, timeout: Duration) -> Builder {
        self.config.stall_timeout = timeout;
        self
    }

    /// Connections to each server for values that are not large, 1 to 8. A key always uses the same one, so that its requests
    /// keep their order. More than one is for programs whose calls together want more than one of a server's threads, or whose
    /// reads of long values hold others up. Default: 1.
    pub fn lanes(mut self, lanes: usize) -> Builder {
        self.config.lanes = lanes;
        self
    }

    /// Replies that a connection may owe. More callers wait, within their time. Default: 4,096.
    pub fn in_flight(mut self, requests: usize) -> Builder {
        self.config.in_flight = requests;
        self
    }

    /// Values of at least this many bytes are stored over a connection of their own. Default: 64 KiB.
    pub fn large_bytes(mut self, bytes: usize) -> Builder {
        self.config.large_bytes = bytes;
        self
    }

    /// Whether a read whose connection was lost is made once more. Default: yes.
    pub fn retry_reads(mut self, retry: bool) -> Builder {
        self.config.retry_reads = retry;
        self
    }

    /// Whether each request carries a number that its reply must repeat, where the server speaks meta text. Default: no.
    pub fn verify(mut self, verify: bool) -> Builder {
        self.config.verify = verify;
        self
    }

    /// User and password, which each connection sends first.
    pub fn auth(mut self, user: impl Into<String>, password: impl Into<String>) -> Builder {
        self.config.auth = Some((user.into(), password.into()));
        self
    }

    /// Connections use TLS with this configuration: an `Arc` of rustls's, or a [`Tls`] with the name in the servers'
    /// certificates.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: impl Into<Tls>) -> Builder {
        self.config.tls = Some(tls.into());
        self
    }

    /// A prefix for all keys.
    pub fn key_prefix(mut self, prefix: impl Into<Vec<u8>>) -> Builder {
        self.config.prefix = prefix.into();
        self
    }

    /// Whether keys may have any bytes: keys that servers would refuse are sent as base64, where the server speaks meta text.
    /// Default: no.
    pub fn binary_keys(mut self, binary: bool) -> Builder {
        self.config.binary_keys = binary;
        self
    }

    /// The dialect to speak. Default: the best that each server speaks.
    pub fn protocol(mut self, protocol: Dialect) -> Builder {
        self.config.protocol = Some(protocol);
        self
    }

    /// A function that is called for each event of calls, connections and servers; none by default. Many threads and tasks call
    /// it at once. It must not make requests by the client: each of these would be an event, too, and one that needs a server's
    /// connection for one caller, which may have just been made, waits for itself until its timeout.
    pub fn observer(mut self, told: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Builder {
        self.config.observer = Some(Observer::new(told));
        self
    }

    /// Builds the client. Nothing is dialed before the first call.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn build(self) -> Result<Client, Error> {
        Client::new(self.checked()?)
    }

    /// Builds the client for async programs. Nothing is dialed before the first call.
    ///
    /// # Errors
    /// [`Error::Config`].
    #[cfg(feature = "tokio")]
    pub fn build_tokio(self) -> Result<crate::tokio::Client, Error> {
        crate::tokio::Client::new(self.checked()?)
    }

    /// Begins one connection to the one server, for the caller's own event loop. It is not waited for, so the server must be an
    /// address, not a name. Placement, [`Builder::lanes`], [`Builder::retry_reads`] and [`Builder::observer`] do not apply, and
    /// large values use this connection, too.
    ///
    /// # Errors
    /// [`Error::Config`]; [`Error::Down`] if the system refuses at once.
    pub fn connection(self, now: Instant) -> Result<Connection, Error> {
        #[cfg(feature = "tls")]
        if self.config.tls.is_some() {
            return Err(Error::Config("a connection for an event loop does not speak TLS".to_owned()));
        }
        Connection::begin(self.checked()?, now)
    }

    fn checked(self) -> Result<Config, Error> {
        let config = &self.config;
        #[cfg(feature = "tls")]
        if let Some(tls) = &config.tls {
            let gutter = config.failure.gutter().unwrap_or_default();
            config.servers.iter().chain(gutter).try_for_each(|server| tls.check(&server.address))?;
        }
        let wrong = if config.in_flight == 0 {
            "in_flight is 0"
        } else if !(1..=LANES_MAX).contains(&config.lanes) {
            "lanes is not 1 to 8"
        } else if config.timeout.is_zero() || config.dial_timeout.is_zero() || config.stall_timeout.is_zero()
        {
            "a timeout is 0"
        } else if !config.binary_keys && !config.prefix.is_empty() && !is_key(&config.prefix) {
            "the prefix is no part of a key"
        } else {
            return Ok(self.config);
        };
        Err(Error::Config(wrong.to_owned()))
    }
}

impl Client {
    /// Begins the configuration of a client.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

#[cfg(feature = "tokio")]
impl crate::tokio::Client {
    /// Begins the configuration of a client; [`Builder::build_tokio`] makes it.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_one_to_eight_lanes() {
        let built = |lanes| Client::builder().server("127.0.0.1:1").lanes(lanes).build().map(|_| ());
        let wrong = Err(Error::Config("lanes is not 1 to 8".to_owned()));
        assert_eq!([0, 1, LANES_MAX, LANES_MAX + 1].map(built), [wrong.clone(), Ok(()), Ok(()), wrong]);
    }
}
