//! What each command means: one table per protocol, one function a command.
//!
//! ```text
//! received bytes ──► Session::receive ──► decode up to 32 keys, hash, prefetch ──► one row each
//!                         │                                                            │
//!                         └── Progress (consumed, what next)            Output ◄── replies written
//! ```
//!
//! [`Session`] is one connection without its socket, [`Output`] the replies on their way out. [`Context`] is all that a call
//! works with: a store guard, the worker's [`Counters`], what workers have [`Shared`], and the [`Host`] around it. There is no
//! I/O but a look into `/proc` and at the memory limit of the process's group, for INFO, metrics and findings
//! (`core/system.rs`), and no clock.
//!
//! Requests on items allocate nothing (`testkit/tests/allocations.rs` says which are counted). Requests that keep something for
//! their client do (MULTI and its queue, WATCH, SUBSCRIBE, names), and so do commands in steps, those of very many keys,
//! messages to other clients (PUBLISH, MONITOR, keyspace events), and what people ask for: KEYS, SCAN, INFO, `stats` and all
//! else of administration.
//!
//! The listener or the first byte tells `session` which protocol a connection speaks. The classic and meta text and the binary
//! protocol are in [`memcached`], RESP is in [`redis`], and neither knows the other. The parts that conversations of every
//! protocol are made of are in `core`, which decodes no request and words no reply. memcached's counters are there, too; those of
//! RESP are in [`redis`]. [`metrics`] has what scrapers read of all of it.
#![forbid(unsafe_code)]

mod core;
pub mod memcached;
pub mod metrics;
pub mod redis;
mod session;
mod shared;

pub use crate::core::access::{Access, FiledUsers, Followed, Rights, RuledUsers, SECRET_BYTES_MAX, UsersNow};
pub use crate::core::acl::file::FILE_BYTES_MAX as USERS_FILE_BYTES_MAX;
pub use crate::core::context::Room;
pub use crate::core::counters::{ClassCounter, Counted, Counter, Counters, Sums};
pub use crate::core::delivery::{Delivery, Message, Target};
pub use crate::core::digest::Digest;
pub use crate::core::exposition::{Exposition, Family, LastValues, Sample, TRUNCATED};
pub use crate::core::figures::table::{ClassFigure, Figure, Kind, Row, Unit};
pub use crate::core::figures::types::OfType;
pub use crate::core::findings::{Finding, Rule, Severity};
pub use crate::core::host::{Connection, Host, Machine, Peer, Process, StageTimes, UsersFile, WorkerTime};
pub use crate::core::input::UNAUTHENTICATED_SHARE;
pub use crate::core::origin::Origin;
pub use crate::core::output::{Mark, Output, OutputLimit};
pub use crate::core::prefix::{PrefixCount, Prefixes};
pub use crate::core::progress::{Ending, Next, Progress};
pub use crate::core::shared::{Clock, Settings, VERSION};
pub use crate::core::topics::{OUTBOX_BYTES_MAX, Outbox};
pub use crate::core::traffic::{
    AgeShare, Ages, Gain, HotKey, HotKeys, Outlook, PrefixShare, PrefixShares, Shares,
};
pub use crate::core::unauthenticated::Unauthenticated;
pub use crate::core::work::{SLICE_NS, Work};
pub use larder_script::Pace;
pub use memcached::tuning::{Kept, Tuning};
pub use metrics::series::{Reading, SERIES, SERIES_COUNT, Series};
pub use redis::counters::RedisCounter;
pub use redis::settings::{DebugCommand, RedisSettings};
pub use redis::shown::{Logged, RespClient};
pub use session::{Context, Session, Speaks};
pub use shared::{Shared, ruled_users};
