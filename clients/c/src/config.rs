//! Reads a configuration out of its struct, as the Rust client takes it.

use crate::failure::{Failure, wrong};
use crate::secure::Files;
use crate::shapes::{self, BINARY_KEYS, NO_RETRY_READS, TLS, VERIFY};
use larder_client::{Builder, Client, Dialect, Preset, Server};
use std::time::Duration;

/// What the pointers of a configuration lead to.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    /// Addresses, names, weights.
    pub servers: Vec<(String, Option<String>, Option<u32>)>,
    pub preset: Option<String>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub key_prefix: Vec<u8>,
    pub tls: Files,
}

/// The builder of the client.
///
/// # Errors
/// Which field is invalid, by its name.
pub fn builder(config: &shapes::Config, texts: Texts) -> Result<Builder, Failure> {
    if config.options & !(NO_RETRY_READS | VERIFY | BINARY_KEYS | TLS) != 0 {
        return wrong("options has a bit that means nothing");
    }
    // A later version may give it a meaning, which this one would pass over.
    if config.reserved != 0 {
        return wrong("reserved is not 0");
    }
    let mut builder = Client::builder()
        .retry_reads(config.options & NO_RETRY_READS == 0)
        .verify(config.options & VERIFY != 0)
        .binary_keys(config.options & BINARY_KEYS != 0)
        .key_prefix(texts.key_prefix);
    builder = match config.protocol {
        0 => builder,
        1 => builder.protocol(Dialect::Meta),
        2 => builder.protocol(Dialect::Classic),
        _ => return wrong("protocol is none of the protocols"),
    };
    for (address, name, weight) in texts.servers {
        builder = builder.server(Server { address, name, weight: weight.unwrap_or(1) });
    }
    if let Some(name) = texts.preset {
        let Some(preset) = Preset::named(&name) else {
            return Err(Failure::Argument(format!("there is no preset {name}").into()));
        };
        builder = builder.preset(preset);
    }
    builder = match (texts.user, texts.password) {
        (Some(user), Some(password)) => builder.auth(user, password),
        (None, None) => builder,
        _ => return wrong("user and password go together"),
    };
    if config.options & TLS != 0 {
        builder = builder.tls(texts.tls.load()?);
    } else if texts.tls.any() {
        return wrong("ca_file, cert_file, key_file and server_name take LARDER_TLS");
    }
    let said = |ms: u32| (ms > 0).then(|| Duration::from_millis(ms.into()));
    if let Some(timeout) = said(config.timeout_ms) {
        builder = builder.timeout(timeout);
    }
    if let Some(timeout) = said(config.dial_timeout_ms) {
        builder = builder.dial_timeout(timeout);
    }
    if let Some(timeout) = said(config.stall_timeout_ms) {
        builder = builder.stall_timeout(timeout);
    }
    if config.lanes > 0 {
        builder = builder.lanes(config.lanes as usize);
    }
    if config.in_flight > 0 {
        builder = builder.in_flight(config.in_flight as usize);
    }
    if config.large_bytes > 0 {
        builder = builder.large_bytes(config.large_bytes as usize);
    }
    Ok(builder)
}
