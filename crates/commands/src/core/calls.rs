//! Counts of each command: how often it was called, refused and failed, and how long it took.
//!
//! ```text
//! one command at a time   counted; measured if it is not FAST, or in a measured receive
//! a batch, a run          counted by row, a row's commands in a row together; measured in a measured
//!                         receive, each command an equal part
//! ```
//!
//! A call that finds no memory counts as refused (`rejected_calls`), not as carried out, whether the store refuses before the
//! command runs or while it does.
//!
//! One receive in sixteen is measured (`rows.rs`), and each while `latency-monitor-threshold` is set: a look at the clock for
//! each command would be a good part of what a GET costs. The reported `usec` is the mean of the measured calls, times the
//! calls.
//!
//! memcached's commands (`memcached/times.rs`) are counted in measured receives alone: other counters count their keys.

use super::counters::Counters;
use super::host::Host;
pub(crate) use super::rows::{MEMCACHED_ROWS_MAX, ROWS_MAX, RowId, RowSum, Rows};

/// The counts of all commands since the counts `before`, by their numbers, up to the last command with a count. An empty
/// `before` means since the start. `rows` gives those of one protocol.
pub(crate) fn sums(
    each: impl FnOnce(&mut dyn FnMut(&Counters)),
    rows: fn(&Counters) -> &Rows,
    before: &[RowSum],
) -> Vec<RowSum> {
    let mut sums = Vec::new();
    each(&mut |counters| {
        let rows = &rows(counters).rows;
        sums.resize(rows.len(), RowSum::default());
        sums.iter_mut().zip(rows).for_each(|(sum, row)| sum.add(row));
    });
    sums.iter_mut().for_each(RowSum::at_least_zero);
    sums.iter_mut().zip(before).for_each(|(sum, before)| sum.since(before));
    let end = sums.iter().rposition(RowSum::any).map_or(0, |last| last + 1);
    sums.truncate(end);
    sums.shrink_to_fit();
    sums
}

/// The commands with a measured call, and their counts. `names` has the names of all commands, by their numbers.
pub(crate) fn measured<'s>(
    names: &'static [&'static str],
    sums: &'s [RowSum],
) -> impl Iterator<Item = (&'static str, &'s RowSum)> {
    names.iter().copied().zip(sums).filter(|(_, sum)| sum.measured > 0)
}

/// Meter of the commands of one receive. Successive commands of one row are counted together.
#[derive(Debug)]
pub(crate) struct Meter {
    row: Option<RowId>,
    calls: u32,
    /// Number of these calls that go on in later turns. They are timed when they end.
    go_on: u32,
    /// When the calls began; `None`: they are not measured.
    since_us: Option<u64>,
}

impl Meter {
    /// Begins a receive. `measures`: it is measured whatever the rows say.
    #[inline]
    pub fn begin(rows: &Rows, measures: bool, clock_us: impl FnOnce() -> u64) -> Meter {
        let measured = rows.is_measured() || measures;
        Meter { row: None, calls: 0, go_on: 0, since_us: measured.then(clock_us) }
    }

    /// Returns whether this receive is measured.
    #[inline]
    pub fn measures(&self) -> bool {
        self.since_us.is_some()
    }

    /// Counts a call of this row. True if the row is another than that of the call before: then the call is not counted.
    #[inline(always)]
    pub fn call(&mut self, row: RowId) -> bool {
        let same = self.row == Some(row);
        self.calls += u32::from(same);
        !same
    }

    /// Begins with this row and its first call. The time since the last look at the clock counts for the row.
    pub fn begin_row(&mut self, row: RowId) {
        (self.row, self.calls, self.go_on) = (Some(row), 1, 0);
    }

    /// Notes that the last call goes on in later turns. Its time is counted when it ends.
    #[cold]
    pub fn last_goes_on(&mut self) {
        self.go_on += 1;
    }

    /// Returns whether there are calls that [`Meter::settle`] has not counted.
    #[inline]
    pub fn has_calls(&self) -> bool {
        self.row.is_some()
    }

    /// The time since the last look at the clock, if this receive is measured.
    #[inline]
    pub fn lap(&mut self, host: &dyn Host) -> Option<u64> {
        let since = self.since_us?;
        let now = host.clock_us();
        self.since_us = Some(now);
        Some(now.saturating_sub(since))
    }

    /// Counts the calls so far, and begins with `next`. Returns their row and time, if they were measured.
    pub fn settle(
        &mut self,
        rows: &Rows,
        next: Option<RowId>,
        clock_us: impl FnOnce() -> u64,
    ) -> Option<(RowId, u64)> {
        let mut took = None;
        if let Some(since) = self.since_us {
            let now = clock_us();
            if let Some(row) = self.row {
                let us = now.saturating_sub(since);
                let ended = self.calls.saturating_sub(self.go_on);
                if ended > 0 {
                    rows.took(row, ended, us);
                    took = Some((row, us));
                }
            }
            self.since_us = Some(now);
        }
        if let Some(row) = self.row {
            rows.called(row, self.calls);
        }
        (self.row, self.calls, self.go_on) = (next, 1, 0);
        took
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_beyond_those_of_32_bits() {
        let counters = Counters::default();
        for _ in 0..2 {
            counters.memcached.called(3, u32::MAX);
            counters.memcached.took(3, u32::MAX, 5);
        }
        let sums = sums(|visit| visit(&counters), |counters| &counters.memcached, &[]);
        let sum = &sums[3];
        assert_eq!((sum.measured, sum.steps[0]), (0x1_ffff_fffe, 0x1_ffff_fffe));
        assert_eq!((sum.measured_us, sum.percentile_us(99.0)), (10, 1));
    }

    #[test]
    fn commands_in_a_row_are_counted_and_measured_together() {
        let counters = Counters::default();
        let (get, set) = (3, 7);
        let mut meter = Meter::begin(&counters.rows, true, || 100);
        for row in [get, get, get, set] {
            if meter.call(row) {
                meter.settle(&counters.rows, Some(row), || 130);
            }
        }
        assert_eq!(meter.settle(&counters.rows, None, || 150), Some((set, 20)));
        counters.rows.failed(set);
        let sums = sums(|visit| visit(&counters), |counters| &counters.rows, &[]);
        let found: Vec<_> =
            sums.iter().map(|sum| (sum.calls, sum.failed)).filter(|sum| *sum != (0, 0)).collect();
        assert_eq!((found, sums.len()), (vec![(3, 0), (1, 1)], 8));
        let set = &sums[set as usize];
        assert_eq!(set.us_per_call(), 20.0);
        assert_eq!((set.percentile_us(50.0), set.percentile_us(99.9)), (32, 32));
        assert!(super::sums(|visit| visit(&counters), |counters| &counters.rows, &sums).is_empty());
        assert!(super::sums(|visit| visit(&counters), |counters| &counters.memcached, &[]).is_empty());
    }

    #[test]
    fn a_call_without_memory_is_refused_and_taken_back() {
        let counters = Counters::default();
        let sum = || super::sums(|visit| visit(&counters), |of| &of.rows, &[]).pop().unwrap_or_default();
        counters.rows.refused_late(7);
        assert_eq!((sum().calls, sum().refused, sum().failed), (0, 1, 0), "not below none");
        counters.rows.called(7, 1);
        assert_eq!(sum().calls, 0);
        counters.rows.called(7, 2);
        counters.rows.refused_late(7);
        assert_eq!((sum().calls, sum().refused), (1, 2));
    }

    #[test]
    fn the_last_row_has_a_place() {
        let counters = Counters::default();
        counters.rows.called(ROWS_MAX as RowId - 1, 1);
        assert_eq!(super::sums(|visit| visit(&counters), |counters| &counters.rows, &[]).len(), ROWS_MAX);
        counters.memcached.called(MEMCACHED_ROWS_MAX as RowId - 1, 1);
        let sums = super::sums(|visit| visit(&counters), |counters| &counters.memcached, &[]);
        assert_eq!(sums.len(), MEMCACHED_ROWS_MAX);
    }
}
