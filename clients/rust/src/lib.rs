//! A client of memcached and of Larder.
//!
//! ```no_run
//! use larder_client::{Client, Ttl};
//! use std::time::Duration;
//!
//! let cache = Client::builder().server("127.0.0.1:11211").build()?;
//! cache.set(b"greeting", b"hello").ttl(Ttl::In(Duration::from_secs(60))).send()?;
//! let value = cache.get(b"greeting")?.expect("it was just stored");
//! assert_eq!(value.bytes, b"hello");
//! # Ok::<(), larder_client::Error>(())
//! ```
//!
//! A [`Client`] is for all threads; clones are the same client. All threads share one pipelined connection to each server, or a
//! few with [`Builder::lanes`], and another one for large values. There is no pool to size, and the client has no thread of its
//! own.
//!
//! - One by one: [`Client::get`], [`Client::set`] and so on. In steady state they allocate only the value, and
//!   [`Client::get_into`] allocates nothing.
//! - Together: [`Client::batch`], acknowledged as a whole.
//! - Later: [`Client::stream`] and [`Client::quiet`], whose barrier reports sent = stored + refused + unknown.
//! - Async: with the feature `tokio`, the module of that name has a client with the same calls.
//! - In an event loop of your own: [`Builder::connection`], which never waits.
//!
//! ```text
//! client ──► fleet ──► lane ──► pipe ──► larder_protocol::client
//! verbs      servers   socket   requests ⇄ bytes, without input or output
//!
//! tokio      the same verbs above a lane that tokio drives; fleet and pipe are the same
//! ```
#![forbid(unsafe_code)]

mod alone;
mod batch;
mod breaker;
mod builder;
mod chance;
mod client;
mod config;
mod connection;
mod dial;
mod direct;
#[cfg(feature = "discovery")]
mod discovery;
mod error;
mod event;
mod failure;
mod fetch;
mod figures;
mod fleet;
mod greeting;
mod hashes;
mod lane;
mod lease;
mod line;
mod loads;
mod moved;
mod observe;
mod op;
pub mod pipe;
mod place;
mod reply;
mod server;
mod socket;
mod stream;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tokio")]
pub mod tokio;
mod ttl;
mod update;
mod verbs;
mod xxh3;

pub use larder_protocol::client as wire;

pub use batch::{Batch, Done, Ticket};
pub use builder::Builder;
pub use client::{Client, Counters};
pub use connection::{Connection, Deliveries, Ready, Untaken};
#[cfg(feature = "discovery")]
pub use discovery::Discovery;
pub use error::{Error, Fault, Outcome, Reason};
pub use event::{Call, Event};
pub use failure::Failure;
pub use fetch::Fetching;
pub use lease::{Lease, LeaseState, Leasing};
pub use place::{Placement, Preset};
pub use reply::{Meta, Reply, Stored, Value};
#[cfg(feature = "tls")]
pub use rustls;
pub use server::Server;
pub use socket::OpenSocket;
pub use stream::{Refused, Report, Stream, Window};
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use ttl::Ttl;
pub use verbs::{Delete, Incr, Set};
pub use wire::{Dialect, Mode, Want};
