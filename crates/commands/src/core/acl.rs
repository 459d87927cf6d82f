//! Rules of users: Redis's rules, in the form in which they are checked.
//!
//! ```text
//! User ── on, nopass, passwords
//!   ├──── root ───────┐   Rules: commands (a bit for each, and first arguments), keys, channels
//!   └──── selectors ──┴─► one of them has to allow all of a request
//! ```
//!
//! - [`ahead`]: a short check of requests of one key, where these are read ahead
//! - [`asked`]: what a request asks for
//! - [`catalog`]: which commands there are, and their categories; rules name them
//! - [`pattern`]: one key pattern or channel pattern
//! - [`rules`]: the root's rules, or a selector's: changed by one word at a time, checked, printed
//! - [`sieve`]: patterns that all keys of one request are compared with
//! - [`user`]: a user: changed by the words of `ACL SETUSER`, checked, printed as `ACL LIST` does
//! - [`mod@file`]: lines that make users; [`log`]: refusals; [`verbs`]: memcached's requests, as commands of Redis
//!
//! A user never changes: a change makes another one, which takes its place ([`super::access`]). Commands are numbers here,
//! those of the table that the catalog was made of.

pub(crate) mod ahead;
pub(crate) mod asked;
pub(crate) mod catalog;
pub(crate) mod file;
pub(crate) mod log;
pub(crate) mod pattern;
pub(crate) mod rules;
mod sieve;
pub(crate) mod user;
pub(crate) mod verbs;
