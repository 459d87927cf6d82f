//! Redis's commands: the session of a RESP client, one table, one function a command.
//!
//! - `session`: the conversation; `turn`: what it reads ahead; `runs`, `gather`: its ways for short and
//!   long requests
//! - `dispatch`: what a request has to pass; `execute`: running it; `transaction`: running it later
//! - `table`: the rows; `call`: what a command works with; `reply`, `fail`: what it answers
//! - `client`, `common`: what a connection keeps, what all share
//! - the groups: `string`, `keys`, `connection`, `server`

mod absent;
mod acl;
mod again;
mod bitfield;
mod bitmap;
mod bitop;
mod call;
mod client;
mod clients;
mod common;
mod config;
mod connection;
mod copy;
mod debug;
mod dispatch;
mod errors;
mod execute;
mod expiry;
mod fail;
mod filter;
mod float;
mod gather;
mod glob;
mod info;
mod introspect;
mod job;
mod keys;
mod kind;
mod latency;
mod lcs;
mod limits;
mod making;
mod monitor;
mod notify;
mod object;
mod parameter;
mod pieces;
mod pubsub;
mod reply;
mod rewrite;
mod runs;
mod scan;
mod secret;
mod serialize;
mod server;
mod session;
mod set;
mod slowlog;
mod source;
mod string;
mod survey;
pub mod table;
mod tally;
mod throttle;
mod topics;
mod transaction;
mod turn;
mod upload;
mod usage;
mod weight;

pub use client::Facts;
pub use common::{Access, Common};
pub(crate) use latency::EXPIRE_CYCLE;
pub use limits::{Class, OutputLimit};
pub(crate) use notify::seen;
pub(crate) use session::Conversation;
pub(crate) use tally::Rows;
pub use topics::{Letter, Message, POST_BYTES_MAX, Post, Target};
