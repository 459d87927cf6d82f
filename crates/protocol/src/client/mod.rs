//! The client's side: requests into bytes, replies out of bytes. memcached's meta text, and its classic text for
//! servers that do not know meta.
//!
//! ```text
//! Request ──write──► mg k v c O7\r\n        VA 5 c42 O7\r\nhello\r\n ──Head::read──► Head, value, trailer
//! ```
//!
//! One request is one reply, in classic text too, where a hit is answered in two parts: the head says how many bytes
//! of value follow it, and what stands behind them. A quiet request has a reply only if it was not carried out.
//!
//! What no server sends in a place is [`Malformed`]: nothing behind it is to be believed. No I/O, no allocation but
//! by the buffer that is written to.

mod reply;
mod request;

pub use reply::{Head, LINE_BYTES_MAX, Malformed, Marks, Refusal, Status, VALUE_BYTES_MAX, counter};
pub use request::{Ask, Count, Delete, Get, KEY_BYTES_MAX, Kind, Mode, Request, Store, Want, is_key};

/// How requests are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Meta text: memcached from 1.6.10 on.
    Meta,
    /// Classic text.
    Classic,
}
