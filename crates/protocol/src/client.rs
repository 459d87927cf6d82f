//! The client's side: requests into bytes, replies out of bytes.
//!
//! ```text
//! Request ──write──► mg k v c O7\r\n           VA 5 c42 O7\r\nhello\r\n ──Head::read──► Head, value, trailer
//! Protocol ──get──► get a b\r\n                VALUE a 0 2\r\nhi\r\nEND\r\n ──Grammar::event──► Value, End
//! ```
//!
//! There are two ways to read, for two kinds of client:
//!
//! - [`Head`] answers a [`Request`] of memcached's text, meta or classic, as a client library sends them. Each request has one
//!   reply, also in classic text, where a hit is answered in two parts. The head gives the length of the value behind it, and
//!   what follows the value, so that a value may be longer than any buffer. A quiet request has no reply to the expected outcome:
//!   a miss of a get, success of everything else.
//! - [`Event`] is one step of a reply in any [`Protocol`], RESP too, with its whole value: a value, a miss, the end of a `get` of
//!   many keys. The caller knows which reply it expects, as a load generator does. [`answer()`] is the whole reply to a usual
//!   request of one key.
//!
//! Bytes that no server sends in a place are [`Malformed`]: nothing behind them can be trusted. Lines and announced values have a
//! longest length, so a client that waits for the rest of a reply waits for no more than [`VALUE_BYTES_MAX`] bytes and a line. No
//! I/O, and no allocation but for the buffer that is written to.

mod answer;
mod event;
mod line;
mod plain;
mod reply;
mod request;
mod resp;

pub use answer::{Answer, Asked, answer};
pub use event::{Classic, Event, Grammar, Meta, Parsed, Resp};
pub use line::{LINE_BYTES_MAX, Malformed, VALUE_BYTES_MAX, counter};
pub use plain::Protocol;
pub use reply::{Head, Marks, Refusal, Status};
pub use request::{Ask, Count, Delete, Get, KEY_BYTES_MAX, Kind, Mode, Request, Store, Want, is_key};
pub use resp::{command, word};

/// How requests of memcached's text are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Meta text: memcached from 1.6.10 on.
    Meta,
    /// Classic text.
    Classic,
}
