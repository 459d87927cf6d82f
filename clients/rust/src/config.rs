//! Configuration of a client.

#[cfg(feature = "discovery")]
use crate::discovery::Discovery;
use crate::error::Error;
use crate::event::Observer;
use crate::failure::Failure;
use crate::place::Preset;
use crate::server::Server;
#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::wire::{Dialect, KEY_BYTES_MAX, is_key};
use std::time::Duration;

/// Everything that can be configured, with its default.
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
    pub lanes: usize,
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
    /// The key with its prefix, assembled in `full` if there is a prefix, and whether it is sent as base64.
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

    /// Whether a key, with its prefix, is sent as base64.
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
