//! Turns the connections of a listener into TLS connections, by options whose files were read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use larder_eventloop::Stream;
use rustls::ServerConfig;
use rustls::crypto::GetRandomFailed;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::sign::SingleCertAndKey;
use rustls::ticketer::TicketRotator;

use crate::expiry;
use crate::load::{self, Files, LoadError};
use crate::options::{ClientAuth, ClientUser, Options};
use crate::provider::Ticketer;
use crate::session::Session;
use crate::stream::Tls;
use crate::transport::Transport;

/// Counters of the connections of all acceptors that share them.
#[derive(Debug, Default)]
pub struct Counters {
    /// Handshakes that failed.
    pub handshake_errors: AtomicU64,
    /// Connections that broke the protocol after the handshake.
    pub protocol_errors: AtomicU64,
    /// Handshakes that were finished.
    pub handshakes: AtomicU64,
    /// Of these, handshakes that resumed a session.
    pub resumptions: AtomicU64,
    /// Sessions for which clients were given a ticket, resumed ones not counted.
    pub new_sessions: AtomicU64,
}

/// Makes a [`Transport`] of each connection of a listener. Clones share the loaded options.
#[derive(Clone, Debug)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    counters: Arc<Counters>,
    not_after_s: Option<u64>,
    /// The server asks clients for certificates.
    asks: bool,
    /// Clients are the users that their certificates name.
    names: bool,
}

impl Acceptor {
    /// Reads the files of the options, within the limit of `files` for one load. `counters` count what happens to the acceptor's
    /// connections.
    ///
    /// # Errors
    /// Which of the files cannot be used, and why.
    pub fn load(
        options: &Options,
        counters: &Arc<Counters>,
        files: &mut Files,
    ) -> Result<Acceptor, LoadError> {
        let chain = load::certificates(files, &options.chain)
            .map_err(|why| LoadError::Chain(options.chain.clone(), why))?;
        let key = load::key(files, &options.key, options.key_format)
            .map_err(|why| LoadError::Key(options.key.clone(), why))?;
        let not_after_s = chain.first().and_then(|leaf| expiry::not_after(leaf));
        let provider = Arc::new(load::provider(options)?);
        let certified = load::pair(&provider, chain, key)?;
        let pair = |error: rustls::Error| LoadError::Pair(error.to_string());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&load::versions(options))
            .map_err(pair)?;
        let config = match load::verifier(files, options, provider)? {
            Some(verifier) => config.with_client_cert_verifier(verifier),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.ignore_client_order = options.prefer_own_ciphers;
        // Tickets hold what is needed to resume a session: the server keeps nothing in memory.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        // An attacker could replay early data of a resumed session.
        config.max_early_data_size = 0;
        if options.resumption {
            config.ticketer = tickets(options.ticket_lifetime_s).map_err(pair)?;
            config.send_tls13_tickets = 1;
        }
        Ok(Acceptor {
            config: Arc::new(config),
            counters: Arc::clone(counters),
            not_after_s,
            asks: options.clients != ClientAuth::None,
            names: options.client_user == ClientUser::CommonName,
        })
    }

    /// When the server's certificate expires, in seconds since 1970; `None` if its date cannot be read.
    pub fn not_after_s(&self) -> Option<u64> {
        self.not_after_s
    }

    /// Wraps a connection, whose handshake is still to come.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn accept<S: Stream>(&self, stream: S) -> io::Result<Transport<S>> {
        let session = Session::new(&self.config, self.asks, self.names)?;
        Ok(Transport::Tls(Box::new(Tls::new(stream, session, Arc::clone(&self.counters)))))
    }
}

/// Makes tickets that are valid for `lifetime_s` seconds at most. Their key is replaced after half of that, and the previous key
/// still opens tickets.
fn tickets(lifetime_s: u32) -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    /// Owns the key that [`TicketRotator`] is to rotate.
    #[derive(Debug)]
    struct Owned(Arc<dyn ProducesTickets>);
    impl ProducesTickets for Owned {
        fn enabled(&self) -> bool {
            self.0.enabled()
        }
        fn lifetime(&self) -> u32 {
            self.0.lifetime()
        }
        fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
            self.0.encrypt(plain)
        }
        fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
            self.0.decrypt(cipher)
        }
    }
    let next = || match Ticketer::new() {
        Ok(tickets) => Ok(Box::new(Owned(tickets)) as Box<dyn ProducesTickets>),
        Err(_) => Err(GetRandomFailed),
    };
    Ok(Arc::new(TicketRotator::new((lifetime_s / 2).max(1), next)?))
}
