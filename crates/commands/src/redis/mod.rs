//! Redis's commands: the session of a RESP client, one table, one function a command.
//!
//! - [`session`]: the conversation; [`runs`], [`gather`]: its ways for short and long requests
//! - [`table`]: the rows; [`call`]: what a command works with; [`reply`], [`fail`]: what it answers
//! - [`client`], [`common`]: what a connection keeps, what all share
//! - the groups: [`string`], [`keys`], [`connection`], [`server`]

#![allow(dead_code)]

mod call;
mod client;
mod common;
mod connection;
mod expiry;
mod fail;
mod float;
mod gather;
mod keys;
mod lcs;
mod reply;
mod runs;
mod server;
mod session;
mod set;
mod string;
pub mod table;
mod transaction;

pub use client::Facts;
pub use common::{Access, Common};
pub(crate) use session::Conversation;
