//! TLS as a stream over a stream, for the event loop.
//!
//! ```text
//! event loop ──► Transport ──► Plain ──────────────────────────────► socket
//!                   └────────► Tls: open ◄── records ◄──────────────   ▲
//!                                   seal ──► records ──► unsent ───────┘
//! ```
//!
//! [`Options`] say which certificate the server shows and what it asks of clients. Loaded, they are an [`Acceptor`], which makes
//! a [`Transport`] of each connection. rustls does the protocol: `acceptor.rs` sets what is fixed at start, `session.rs` opens
//! and seals records, `provider.rs` names the library of ciphers. `client.rs` is the other side, for programs that connect to
//! servers. No other crate of the server or the lab names rustls.
//!
//! An idle connection holds no buffer. Records are opened and sealed in buffers of the thread. A connection owns only leftovers:
//! a partial record, or bytes for which there was no room. [`Between`](larder_eventloop::Between) reports these to the loop.

#![forbid(unsafe_code)]

mod acceptor;
mod client;
mod der;
mod expiry;
mod load;
mod options;
mod provider;
mod session;
mod stream;
mod subject;
mod transport;

pub use acceptor::{Acceptor, Counters};
pub use client::{ClientOptions, ClientStream, Connector, Trust};
pub use load::{FILES_BYTES_MAX, FOLDER_FILES_MAX, Files, LoadError};
pub use options::{ClientAuth, ClientUser, KeyFormat, Options, Version, cipher_names, suite_names};
pub use session::{HANDSHAKE_BYTES, HELLO_BYTES_MAX, KEPT_BYTES_MAX, SESSION_BYTES};
pub use stream::{SCRATCH_BYTES, Tls};
pub use transport::Transport;
