//! What conversations of every protocol are made of: bytes in, replies out, the store around them, and what workers
//! share and count.
//!
//! - the call: `context`, `output`, `host`, `work`; requests on their way in: `input`, `strangers`
//! - keys ahead of their requests: `stages`, `usual`
//! - shared: `shared`, `prefix`, `topics` (who listens to what), `events` (what is told of keys), `glob`
//! - counted: `counters`, `tally`, `calls`, `errors`

pub(crate) mod calls;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod errors;
pub(crate) mod events;
pub(crate) mod glob;
pub(crate) mod host;
pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod prefix;
pub(crate) mod shared;
pub(crate) mod stages;
pub(crate) mod strangers;
pub(crate) mod tally;
pub(crate) mod topics;
pub(crate) mod usual;
pub(crate) mod work;
