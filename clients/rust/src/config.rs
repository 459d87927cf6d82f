//! What a client is told before it begins.

use crate::client::Client;
use crate::connection::Connection;
#[cfg(feature = "discovery")]
use crate::discovery::Discovery;
use crate::error::Error;
use crate::failure::Failure;
use crate::observe::{Event, Observer};
use crate::place::Preset;
#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::wire::{Dialect, KEY_BYTES_MAX, is_key};
use std::time::{Duration, Instant};

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// host:port, or a path that begins with `/`.
    pub address: String,
    /// What placement hashes, if it is not the address as written.
    pub name: Option<String>,
    /// Its share of the keys beside the others'.
    pub weight: u32,
}

impl Server {
    /// What placement hashes.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.address)
    }
}

impl From<&str> for Server {
    fn from(address: &str) -> Server {
        Server { address: address.to_owned(), name: None, weight: 1 }
    }
}

/// Everything that can be set, by its default.
#[derive(Clone, Debug)]
pub struct Config {
    pub servers: Vec<Server>,
    #[cfg(feature = "discovery")]
    pub discovery: Option<Discovery>,
    pub failure: Failure,
    pub preset: Preset,
    pub timeout: Duration,
    pub dial_timeout: Duration,
    pub stall_timeout: Duration,
    pub in_flight: usize,
    pub large_bytes: usize,
    pub retry_reads: bool,
    pub verify: bool,
    pub auth: Option<(String, String)>,
    #[cfg(feature = "tls")]
    pub tls: Option<Tls>,
    pub prefix: Vec<u8>,
    pub binary_keys: bool,
    pub protocol: Option<Dialect>,
    pub observer: Option<Observer>,
}

impl Config {
    /// A key with its prefix, put together in `full` if there is one, and whether it goes as base64.
    ///
    /// # Errors
    /// [`Error::BadKey`].
    pub fn key<'k>(&self, key: &'k [u8], full: &'k mut Vec<u8>) -> Result<(&'k [u8], bool), Error> {
        let key = if self.prefix.is_empty() {
            key
        } else {
            full.extend_from_slice(&self.prefix);
            full.extend_from_slice(key);
            full.as_slice()
        };
        Ok((key, self.as_base64(key)?))
    }

    /// A key with its prefix, as placement hashes it.
    pub fn prefixed(&self, key: &[u8]) -> Vec<u8> {
        [&self.prefix, key].concat()
    }

    /// Whether a key, which has its prefix, goes as base64.
    ///
    /// # Errors
    /// [`Error::BadKey`].
    pub fn as_base64(&self, key: &[u8]) -> Result<bool, Error> {
        match is_key(key) {
            _ if key.len() <= self.prefix.len() => Err(Error::BadKey),
            true => Ok(false),
            false if self.binary_keys && key.len() <= KEY_BYTES_MAX / 4 * 3 => Ok(true),
            false => Err(Error::BadKey),
        }
    }
}

/// Makes a [`Client`].
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

    /// Who says which servers there are, from the moment on in which the client is made. Servers that stay keep their
    /// connections; what is under way at those that go is still answered. Without [`Builder::server`], making the client waits
    /// until the first are known.
    #[cfg(feature = "discovery")]
    pub fn discover(mut self, discovery: Discovery) -> Builder {
        self.config.discovery = Some(discovery);
        self
    }

    /// What becomes of the keys of a server that is down: [`Failure::FailFast`] if not said.
    pub fn failure(mut self, failure: Failure) -> Builder {
        self.config.failure = failure;
        self
    }

    /// Which server has a key: [`Preset::Ketama`] if not said.
    pub fn preset(mut self, preset: Preset) -> Builder {
        self.config.preset = preset;
        self
    }

    /// Time of a whole call, with waiting and connecting: 500 ms.
    pub fn timeout(mut self, timeout: Duration) -> Builder {
        self.config.timeout = timeout;
        self
    }

    /// Time to connect, within that of a call: 1 s.
    pub fn dial_timeout(mut self, timeout: Duration) -> Builder {
        self.config.dial_timeout = timeout;
        self
    }

    /// A connection that owes replies and sends nothing for so long is given up: 2 s.
    pub fn stall_timeout(mut self, timeout: Duration) -> Builder {
        self.config.stall_timeout = timeout;
        self
    }

    /// Replies that a connection may owe; more callers wait, within their time: 4,096.
    pub fn in_flight(mut self, requests: usize) -> Builder {
        self.config.in_flight = requests;
        self
    }

    /// Values from here on are stored over a connection of their own: 64 KiB.
    pub fn large_bytes(mut self, bytes: usize) -> Builder {
        self.config.large_bytes = bytes;
        self
    }

    /// A read whose connection was lost is asked once more: yes.
    pub fn retry_reads(mut self, retry: bool) -> Builder {
        self.config.retry_reads = retry;
        self
    }

    /// Each request has a number that its reply must repeat, where the server speaks meta text: no.
    pub fn verify(mut self, verify: bool) -> Builder {
        self.config.verify = verify;
        self
    }

    /// User and password, the first thing that each connection says.
    pub fn auth(mut self, user: impl Into<String>, password: impl Into<String>) -> Builder {
        self.config.auth = Some((user.into(), password.into()));
        self
    }

    /// Connections speak TLS, as this says: an `Arc` of rustls's configuration, or a [`Tls`] with the name that servers'
    /// certificates have.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: impl Into<Tls>) -> Builder {
        self.config.tls = Some(tls.into());
        self
    }

    /// Stands in front of each key.
    pub fn key_prefix(mut self, prefix: impl Into<Vec<u8>>) -> Builder {
        self.config.prefix = prefix.into();
        self
    }

    /// Keys of any bytes: what servers do not take as it is goes as base64, where the server speaks meta text: no.
    pub fn binary_keys(mut self, binary: bool) -> Builder {
        self.config.binary_keys = binary;
        self
    }

    /// What is spoken; if not said, what each server speaks.
    pub fn protocol(mut self, protocol: Dialect) -> Builder {
        self.config.protocol = Some(protocol);
        self
    }

    /// Who is told of calls, connections and servers: nobody if not said. Many threads and tasks call it at once. It must not
    /// ask the client: it would be told of that call, too, and one on a server's connection for one caller, which may have just
    /// been made, waits for itself until its time is over.
    pub fn observer(mut self, told: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Builder {
        self.config.observer = Some(Observer::new(told));
        self
    }

    /// The client. Nothing is dialed before the first call.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn build(self) -> Result<Client, Error> {
        Client::new(self.checked()?)
    }

    /// The client for programs that await. Nothing is dialed before the first call.
    ///
    /// # Errors
    /// [`Error::Config`].
    #[cfg(feature = "tokio")]
    pub fn build_tokio(self) -> Result<crate::tokio::Client, Error> {
        crate::tokio::Client::new(self.checked()?)
    }

    /// One connection to the one server, for an event loop of one's own. It is begun and not waited for, so that the server
    /// must be an address, not a name. Placement, [`Builder::retry_reads`] and [`Builder::observer`] mean nothing to it, and
    /// large values go over it, too.
    ///
    /// # Errors
    /// [`Error::Config`]; [`Error::Down`] if the system says so at once.
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
