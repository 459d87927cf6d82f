//! The client for async programs: the same verbs, types, errors and bytes as [`crate::Client`]'s, on tokio.
//!
//! ```no_run
//! use larder_client::{Client, Ttl};
//! use std::time::Duration;
//!
//! # async fn greet() -> Result<(), larder_client::Error> {
//! let cache = Client::builder().server("127.0.0.1:11211").build_tokio()?;
//! cache.set(b"greeting", b"hello").ttl(Ttl::In(Duration::from_secs(60))).send().await?;
//! let value = cache.get(b"greeting").await?.expect("it was just stored");
//! assert_eq!(value.bytes, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! - All tasks share one pipelined connection to each server, or a few with [`crate::Builder::lanes`]; a task of the client
//!   receives for each. Requests that are made while others are under way are sent together.
//! - A future that is dropped gives up its request: the reply is dropped when it comes, and the connection stays usable. A write
//!   that was given up may have been made.
//! - The timeout covers waiting for room and for a connection, as everywhere.
//! - Connections live on the runtime on which they were made. When it ends they end, and the next call makes new ones.
//!
//! Calls panic outside of a runtime, or on one without its time and its input and output enabled.
//!
//! ```text
//! client ──► dial ──► lane ──► crate::pipe
//! verbs      servers  socket   requests ⇄ bytes
//! ```

mod alone;
mod batch;
mod client;
mod dial;
mod direct;
mod fetch;
mod lane;
mod lease;
mod socket;
mod stats;
mod stream;
mod update;
mod verbs;

pub use client::Client;

/// Requests that are sent together; see [`Client::batch`].
pub type Batch = crate::Batch<Client>;
/// Writes that are acknowledged later; see [`Client::stream`].
pub type Stream = crate::Stream<Client>;
