//! The counts at the last `stats reset`. Clients are shown what came since.

use larder_store::{ClassTotals, Totals};

use super::counters::Sums;
use super::host::Process;
use super::rows::RowSum;

/// The counts at the last reset.
#[derive(Debug, Default)]
pub(crate) struct Base {
    pub(super) process: Process,
    pub(super) sums: Sums,
    pub(super) totals: Totals,
    /// Counts of each class; empty before the first reset.
    pub(super) classes: Vec<ClassTotals>,
    /// RESP's commands, by their numbers.
    pub(super) rows: Vec<RowSum>,
    /// memcached's commands, by their numbers.
    pub(super) memcached: Vec<RowSum>,
}
