//! What conversations of every protocol are made of: bytes in, replies out, the store around them, and what workers
//! share and count.
//!
//! - a call: `context`, `output`, `host`, `work`; what it comes to: `progress`
//! - keys ahead of their requests: `batch`, `stages`, `usual`; requests on their way in: `input`; what waits: `held`,
//!   `pause`
//! - who speaks: `access`, `strangers`; who listens: `topics`, `glob`; what is told of keys: `events`, `telling`
//! - shared: `shared`, `prefix`; counted: `counters`, `tally`, `calls`, `errors`; told: `figures`, `exposition`, `lately`,
//!   `findings`, `shown`, `system`
//!
//! Knows no protocol: `memcached` and `redis` stand on it, and not on each other.

pub(crate) mod access;
pub(crate) mod batch;
pub(crate) mod calls;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod errors;
pub(crate) mod events;
pub(crate) mod exposition;
pub(crate) mod figures;
pub(crate) mod findings;
pub(crate) mod glob;
pub(crate) mod held;
pub(crate) mod host;
pub(crate) mod input;
pub(crate) mod lately;
pub(crate) mod output;
pub(crate) mod pause;
pub(crate) mod prefix;
pub(crate) mod progress;
pub(crate) mod shared;
pub(crate) mod shown;
pub(crate) mod stages;
pub(crate) mod strangers;
pub(crate) mod system;
pub(crate) mod tally;
pub(crate) mod telling;
pub(crate) mod topics;
pub(crate) mod usual;
pub(crate) mod work;
