//! memcached's commands, in their classic and their meta text and in the binary protocol: one table, one function a command.
//!
//! - `login`: how clients log in; `rules`: what their rules allow; `session`: the conversation; `shared`: what all share;
//!   `batch`: what it reads ahead; `incoming`: values that are not whole yet; `join`: additions in steps; `purpose`: what both
//!   are for
//! - `table`: the rows; `verbs`: what commands on items mean; `classic`, `meta`, `frames`: their words; `admin`: all other
//!   commands, of which `line` is one at work, and `flow` what it leaves behind; `binary`: a conversation in frames; `form`: text
//!   or frames
//! - `dump`: long replies, in `steps`; `sizes`, `page`: two of them
//! - `told`: keyspace events; `asked`: what watchers are told of a store; `times`: how long commands take; `text`: what they
//!   answer; `stats`, `class_stats`, `slabs`, `tuning`: what they show; `metrics`: what scrapers read

mod admin;
mod asked;
mod batch;
mod binary;
pub mod class_stats;
mod classic;
mod dump;
mod flow;
mod form;
mod frames;
mod incoming;
pub(crate) mod join;
mod line;
mod login;
mod meta;
pub(crate) mod metrics;
mod page;
mod pause;
mod purpose;
mod rules;
mod session;
pub(crate) mod shared;
mod sizes;
pub mod slabs;
pub mod stats;
mod steps;
pub mod table;
mod text;
mod time;
mod times;
mod told;
pub(crate) mod tuning;
mod verbs;
mod watch;

pub(crate) use binary::Conversation as Binary;
pub(crate) use login::Login;
pub(crate) use session::Conversation;
pub(crate) use text::TOO_MANY_CONNECTIONS;
