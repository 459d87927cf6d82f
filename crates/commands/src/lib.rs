//! What each command means: one table per protocol, one function a command.
//!
//! ```text
//! received bytes ──► Session::receive ──► decode up to 32 keys, hash, prefetch ──► one row each
//!                         │                                                            │
//!                         └── Progress (consumed, what next)            Output ◄── replies written
//! ```
//!
//! [`Session`] is one connection without its socket, [`Output`] the replies on their way out,
//! [`Context`] what a call works with: a store guard, the worker's [`Counters`], what workers
//! [`Shared`], and the [`Host`] around it. No I/O, no clock of its own, no allocation per request.
#![forbid(unsafe_code)]

mod admin;
mod batch;
pub mod class_stats;
mod classic;
mod context;
mod counters;
mod dump;
mod flow;
mod host;
mod input;
mod meta;
mod output;
mod prefix;
pub mod redis;
mod session;
mod shared;
pub mod slabs;
mod stages;
pub mod stats;
mod strangers;
pub mod table;
mod tally;
mod text;
mod time;
mod tuning;
mod upload;
mod usual;
mod work;

pub use context::{Context, Room};
pub use counters::{ClassCounter, Counter, Counters, Sums};
pub use host::{Connection, Host, Peer, Process};
pub use input::STRANGERS_SHARE;
pub use output::{Mark, Output};
pub use prefix::{PrefixCount, Prefixes};
pub use redis::{Letter, Message, OutputLimit, POST_BYTES_MAX, Post, Target};
pub use session::{Next, Progress, Session};
pub use shared::DebugCommand;
pub use shared::{Clock, Settings, Shared, VERSION};
pub use strangers::Strangers;
pub use tuning::{Kept, Tuning};
pub use work::{SLICE_NS, Work};
