//! Phases: the conditions that the server works under for a while, and which replies these explain.
//!
//! In each phase the same clients send the same kinds of requests. Phases differ in which disappearances and
//! refusals have an explanation; one without is an error.

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
    /// Clients share counters whose sums are exact at the end: nothing else may change them.
    pub counts: bool,
}

/// All phases, one after the other, again and again.
pub const PHASES: &[Phase] = &[
    // No disappearance or refusal has an explanation.
    Phase { name: "keep", evicts: false, fills: false, flushes: false, moves_limit: false, counts: true },
    Phase { name: "evict", evicts: true, fills: true, flushes: false, moves_limit: true, counts: false },
    Phase { name: "flush", evicts: false, fills: false, flushes: true, moves_limit: false, counts: false },
    Phase { name: "refuse", evicts: false, fills: true, flushes: false, moves_limit: false, counts: false },
    Phase { name: "everything", evicts: true, fills: true, flushes: true, moves_limit: true, counts: false },
];
