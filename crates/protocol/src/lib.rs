//! Bytes ⇄ requests and replies of memcached's text and binary protocols and of Redis.
//!
//! Decoding borrows from the input, copies and allocates nothing, and takes up again after any byte: what is not complete
//! is presented again with more behind it. What allocates are inline requests, whose words are not as they came, words that
//! are put together ([`resp::Encoder`]), and requests of [`client`]. No I/O, no meaning: what a request does is the
//! commands' business.
//!
//! - [`classic`]: the line and its dispatch, the classic commands
//! - [`meta`]: `mg ms md ma mn me` and their flags
//! - [`binary`]: frames of the binary protocol
//! - [`reply`]: replies that carry values
//! - [`resp`]: the requests and replies of Redis
//! - [`client`]: the client's side: requests of memcached's text and of Redis, and what replies say
//! - [`number`], [`scan`], [`Tokens`], [`base64`], [`escape`]: the pieces
#![forbid(unsafe_code)]

pub mod base64;
pub mod binary;
pub mod classic;
pub mod client;
pub mod escape;
mod fault;
pub mod meta;
pub mod number;
pub mod plain;
pub mod reply;
pub mod resp;
pub mod scan;
mod tokens;

pub use fault::Fault;
pub use tokens::{Tokens, ends_in_noreply, last as last_token};
