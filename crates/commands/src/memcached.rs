//! memcached's commands, in their classic and their meta text and in the binary protocol: one table, one function a command.
//!
//! - `login`: how clients log in; `rules`: checks of users' rules; `session`: the conversation; `shared`: what all share;
//!   `batch`: keys that are read ahead; `incoming`: values that are not whole yet; `join`: additions in steps; `purpose`: the
//!   requests of both
//! - `table`: the rows; `verbs`: what commands on items mean; `classic`, `meta`, `frames`: their words; `admin`: all other
//!   commands; `line`: one of these at work; `flow`: what it leaves to do; `binary`: a conversation in frames; `form`: text or
//!   frames
//! - `dump`: long replies, in `steps`; `sizes`, `page`: two of them
//! - `told`: keyspace events; `asked`: stores, as watchers are told of them; `times`: how long commands take; `text`: replies;
//!   `stats`, `class_stats`, `slabs`, `tuning`: what they show; `metrics`: what scrapers read

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
