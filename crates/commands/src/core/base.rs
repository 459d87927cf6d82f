//! What was counted up to the last `stats reset`: clients are shown what came since.

use larder_store::{ClassTotals, Totals};

use super::counters::Sums;
use super::host::Process;
use super::rows::RowSum;

/// What was counted before the last reset.
#[derive(Debug, Default)]
pub(crate) struct Base {
    pub(super) process: Process,
    pub(super) sums: Sums,
    pub(super) totals: Totals,
    /// Every class, or none.
    pub(super) classes: Vec<ClassTotals>,
    /// RESP's commands, by their numbers.
    pub(super) rows: Vec<RowSum>,
    /// memcached's.
    pub(super) memcached: Vec<RowSum>,
}
