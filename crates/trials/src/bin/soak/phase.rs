//! Phases: what the server is put through for a while, and with that what a client may still be told.
//!
//! In each the same clients ask the same kinds of things. What differs is which disappearances and refusals have an
//! explanation; what has none is wrong.

use std::time::Duration;

/// How long a phase lasts.
pub const LASTS: Duration = Duration::from_secs(15);

/// Memory at the start of each phase, in megabytes.
pub const MEGABYTES: u64 = 64;

/// A row of the table.
#[derive(Debug)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// A full store evicts; otherwise it refuses.
    pub evicts: bool,
    /// A client fills the memory that clients leave.
    pub fills: bool,
    /// The store is flushed now and then.
    pub flushes: bool,
    /// The memory limit moves.
    pub moves_limit: bool,
    /// Clients contend for counters, which are exact at the end: nothing else may change them.
    pub counts: bool,
}

/// All phases, one after the other, again and again.
pub const PHASES: &[Phase] = &[
    // Whatever is missing or refused is wrong.
    Phase { name: "keep", evicts: false, fills: false, flushes: false, moves_limit: false, counts: true },
    Phase { name: "evict", evicts: true, fills: true, flushes: false, moves_limit: true, counts: false },
    Phase { name: "flush", evicts: false, fills: false, flushes: true, moves_limit: false, counts: false },
    Phase { name: "refuse", evicts: false, fills: true, flushes: false, moves_limit: false, counts: false },
    Phase { name: "everything", evicts: true, fills: true, flushes: true, moves_limit: true, counts: false },
];
