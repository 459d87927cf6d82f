//! Core: the parts that conversations of every protocol are made of. Bytes in, replies out, the store around them, and what
//! workers share and count.
//!
//! - a call: `context`, `output`, `host`, `work`; what it comes to: `progress`; what is called: `conversation`
//! - keys ahead of their requests: `batch`, `stages`, `usual`; requests on their way in: `input`; what waits: `pause`,
//!   `hold`
//! - which clients may send commands, and what they may do: `access`, `acl`, `arrival`, `digest`, `guesses`, `tries`,
//!   `origin`, `unauthenticated`; which listen: `topics`, `delivery`, `glob`; events of keys: `events`,
//!   `published`, `telling`
//! - what is asked for, and what is there: `traffic`, `shares`; the clients of `watch`: `watchers`
//! - shared: `shared`, `prefix`; counted: `counters`, `tally`, `calls`, `rows`, `errors`; shown: `figures`, `base`,
//!   `exposition`, `last_minute`, `looks`, `findings`, `system`
//!
//! Decodes no request and words no reply of a protocol: `memcached` and `redis` stand on it, and not on each other. What one
//! protocol's words say of the commands of both is here: names of keyspace events, and the lines of `watch`. So is what either
//! protocol counts anew of the other (`stats reset`, CONFIG RESETSTAT): counts of commands (`rows`), and of errors (`errors`).

pub(crate) mod access;
pub(crate) mod acl;
pub(crate) mod arrival;
pub(crate) mod base;
pub(crate) mod batch;
pub(crate) mod calls;
pub(crate) mod context;
pub(crate) mod conversation;
pub(crate) mod counters;
pub(crate) mod delivery;
pub(crate) mod digest;
pub(crate) mod errors;
pub(crate) mod events;
pub(crate) mod exposition;
pub(crate) mod figures;
pub(crate) mod findings;
pub(crate) mod glob;
pub(crate) mod guesses;
pub(crate) mod hold;
pub(crate) mod host;
pub(crate) mod input;
pub(crate) mod last_minute;
pub(crate) mod looks;
pub(crate) mod origin;
pub(crate) mod output;
pub(crate) mod pause;
pub(crate) mod prefix;
pub(crate) mod progress;
pub(crate) mod published;
pub(crate) mod rows;
pub(crate) mod shared;
pub(crate) mod shares;
pub(crate) mod stages;
pub(crate) mod system;
pub(crate) mod tally;
pub(crate) mod telling;
pub(crate) mod topics;
pub(crate) mod traffic;
pub(crate) mod tries;
pub(crate) mod unauthenticated;
pub(crate) mod usual;
pub(crate) mod watchers;
pub(crate) mod work;
