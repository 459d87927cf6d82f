//! What users may do: Redis's rules, in the form that they are checked in.
//!
//! ```text
//! User ── on, nopass, passwords
//!   ├──── root ───────┐   Rules: commands (a bit for each, and first arguments), keys, channels
//!   └──── selectors ──┴─► one of them has to allow all of a request
//! ```
//!
//! - [`ahead`]: what is known of rules where requests of one key are read ahead
//! - [`asked`]: what a request asks for
//! - [`catalog`]: which commands there are, and their categories; rules name them
//! - [`pattern`]: one key pattern or channel pattern
//! - [`rules`]: the root's rules, or a selector's: changed by one word at a time, checked, printed
//! - [`sieve`]: which of a request's keys some patterns have
//! - [`user`]: a user: changed by the words of `ACL SETUSER`, checked, printed as `ACL LIST` does
//! - [`mod@file`]: lines that make users; [`log`]: what was refused; [`verbs`]: what rules say of memcached's requests
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
