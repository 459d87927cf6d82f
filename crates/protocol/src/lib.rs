//! Bytes ⇄ requests and replies of memcached's text and binary protocols and of Redis.
//!
//! Decoding borrows from the input, copies and allocates nothing, and can resume after any byte: an incomplete request is passed
//! again with more behind it. Allocations happen for inline requests, whose words differ from the input, for words that are put
//! together ([`resp::Encoder`]), and for requests of [`client`]. No I/O, no meaning: what a request does is the business of
//! `commands`.
//!
//! - [`classic`]: the line and its dispatch, the classic commands
//! - [`meta`]: `mg ms md ma mn me` and their flags
//! - [`binary`]: frames of the binary protocol
//! - [`reply`]: replies that carry values
//! - [`resp`]: the requests and replies of Redis
//! - [`client`]: the client's side: requests of memcached's text and of Redis, and their replies
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
