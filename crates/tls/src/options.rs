//! Options of a listener's TLS: files, versions, ciphers, and what is asked of clients.

use std::path::PathBuf;

use rustls::SupportedCipherSuite;

use crate::provider::cipher_suite;

/// Whether clients show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// The server asks for none.
    #[default]
    None,
    /// A client may show one; one that is shown must verify.
    Optional,
    /// Each client must show one that verifies.
    Required,
}

/// How a client's certificate decides which user the client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientUser {
    /// Nothing follows from the certificate.
    #[default]
    Off,
    /// The user whose name is the common name of the certificate's subject.
    CommonName,
}

/// The format of the key's file. Certificates are always PEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyFormat {
    /// Base64 between lines that name it.
    #[default]
    Pem,
    /// The bytes themselves.
    Der,
}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// A listener's TLS. Equal options load the same files and accept the same connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// PEM: the server's certificate first, then those that lead to its authority.
    pub chain: PathBuf,
    /// The key of the first certificate.
    pub key: PathBuf,
    /// The key's format.
    pub key_format: KeyFormat,
    /// PEM: authorities that sign clients' certificates.
    pub authorities: Option<PathBuf>,
    /// A folder of such files. Files without a certificate are ignored.
    pub authorities_folder: Option<PathBuf>,
    /// What is asked of clients.
    pub clients: ClientAuth,
    /// Which user a client is by its certificate.
    pub client_user: ClientUser,
    /// The lowest version.
    pub min_version: Version,
    /// The highest version.
    pub max_version: Version,
    /// Cipher suites of TLS 1.2 by OpenSSL's names, best first; empty: all.
    pub ciphers: Vec<String>,
    /// Cipher suites of TLS 1.3, best first; empty: all.
    pub suites: Vec<String>,
    /// The server's order of ciphers decides, not the client's.
    pub prefer_own_ciphers: bool,
    /// Sessions are resumed, by tickets that clients keep. The server keeps none.
    pub resumption: bool,
    /// How long a ticket is valid.
    pub ticket_lifetime_s: u32,
}

/// A ticket's lifetime unless it is set. The key of tickets is replaced after half of it.
pub const TICKET_LIFETIME_S: u32 = 12 * 60 * 60;

impl Default for Options {
    /// TLS 1.2 and 1.3 with all ciphers, without resumption, for any client. The files have to be named before use.
    fn default() -> Options {
        Options {
            chain: PathBuf::new(),
            key: PathBuf::new(),
            key_format: KeyFormat::Pem,
            authorities: None,
            authorities_folder: None,
            clients: ClientAuth::None,
            client_user: ClientUser::Off,
            min_version: Version::Tls12,
            max_version: Version::Tls13,
            ciphers: Vec::new(),
            suites: Vec::new(),
            prefer_own_ciphers: false,
            resumption: false,
            ticket_lifetime_s: TICKET_LIFETIME_S,
        }
    }
}

/// Cipher suites of TLS 1.2, by OpenSSL's names.
pub(crate) const CIPHERS: [(&str, SupportedCipherSuite); 6] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Cipher suites of TLS 1.3.
pub(crate) const SUITES: [(&str, SupportedCipherSuite); 3] = [
    ("TLS_AES_256_GCM_SHA384", cipher_suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", cipher_suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", cipher_suite::TLS13_CHACHA20_POLY1305_SHA256),
];

/// The cipher suites of TLS 1.2 that can be chosen from, by OpenSSL's names.
pub fn cipher_names() -> impl Iterator<Item = &'static str> + Clone {
    CIPHERS.iter().map(|(name, _)| *name)
}

/// The cipher suites of TLS 1.3 that can be chosen from.
pub fn suite_names() -> impl Iterator<Item = &'static str> + Clone {
    SUITES.iter().map(|(name, _)| *name)
}
