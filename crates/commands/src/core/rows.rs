//! Counts of each command, of a worker and in all: calls, refused and failed ones, and the times of measured ones with their
//! distribution. Each command has a row, by its number. `calls` says when the counts are raised.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of a command among all of its protocol.
pub(crate) type RowId = u32;

/// Most commands of a protocol, subcommands among them.
pub(crate) const ROWS_MAX: usize = 512;

/// Most commands of memcached's protocols; their table asserts that it has no more.
pub(crate) const MEMCACHED_ROWS_MAX: usize = 48;

/// One receive in so many is measured.
const RECEIVES_PER_MEASURED: u64 = 16;

/// Steps in which times are counted: up to 1 µs, 2 µs, 4 µs and so on.
pub(crate) const STEPS: usize = 24;

/// The step of a time.
fn step(us: u64) -> usize {
    (u64::BITS - us.saturating_sub(1).leading_zeros()).min(STEPS as u32 - 1) as usize
}

/// A worker's counts of a command; written by that worker alone.
#[derive(Debug, Default)]
pub(crate) struct Row {
    calls: AtomicU64,
    measured: AtomicU64,
    measured_us: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    /// Measured calls by their time; none before the first: most commands are never called, and 24 counts for each of them
    /// would take 100 KiB a worker. (Counts of 32 bits would be full of `get` after some hours.)
    steps: OnceLock<Box<[AtomicU64; STEPS]>>,
}

// The size that docs/operating.md names, for the case that all commands are measured.
const _: () = {
    let row_bytes = size_of::<Row>() + STEPS * size_of::<AtomicU64>();
    assert!((ROWS_MAX + MEMCACHED_ROWS_MAX) * row_bytes <= 140 << 10);
};

fn raise(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// Divides the microseconds that calls of several rows took together: each row gets a part by its share of all calls. The parts
/// make up the whole. `phase` decides which row has the microseconds that do not divide: over phases from 0 up to the number of
/// all calls, each row has exactly its share. (If each part were rounded down, runs of 8 reads and 8 writes that take 3 µs
/// would count as 2.)
fn shares<const N: usize>(us: u64, calls: [u32; N], phase: u64) -> [u64; N] {
    let all: u64 = calls.iter().map(|calls| u64::from(*calls)).sum();
    let Some(phase) = phase.checked_rem(all) else { return [0; N] };
    let up_to = |calls: u64| (us * calls + phase) / all;
    let mut before = 0;
    calls.map(|calls| {
        let behind = before + u64::from(calls);
        let share = up_to(behind) - up_to(before);
        before = behind;
        share
    })
}

/// The rows of all commands, of one worker.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(super) rows: Box<[Row]>,
    receives: AtomicU64,
}

impl Rows {
    /// Counts for so many rows, all of them 0.
    pub fn new(rows_max: usize) -> Rows {
        let rows = (0..rows_max).map(|_| Row::default()).collect();
        Rows { rows, receives: AtomicU64::new(0) }
    }

    fn row(&self, id: RowId) -> &Row {
        &self.rows[id as usize]
    }

    /// Counts so many calls, without a time.
    pub fn called(&self, id: RowId, calls: u32) {
        raise(&self.row(id).calls, u64::from(calls));
    }

    /// Counts how long so many calls took together.
    pub fn took(&self, id: RowId, calls: u32, us: u64) {
        let row = self.row(id);
        raise(&row.measured, u64::from(calls));
        raise(&row.measured_us, us);
        let steps = row.steps.get_or_init(Box::default);
        raise(&steps[step(us / u64::from(calls.max(1)))], u64::from(calls));
    }

    /// Counts so many calls of each of these rows, whose requests were answered together: each call gets an equal part of the
    /// time, if that was measured.
    pub fn ran<const N: usize>(&self, ids: [RowId; N], calls: [u32; N], us: Option<u64>) {
        for (id, calls) in ids.into_iter().zip(calls).filter(|(_, calls)| *calls > 0) {
            self.called(id, calls);
        }
        let Some(us) = us else { return };
        let shares = shares(us, calls, self.receives.load(Relaxed));
        for ((id, calls), us) in ids.into_iter().zip(calls).zip(shares).filter(|((_, calls), _)| *calls > 0) {
            self.took(id, calls, us);
        }
    }

    /// Counts a call that was refused before it ran.
    pub fn refused(&self, id: RowId) {
        raise(&self.row(id).refused, 1);
    }

    /// Counts the error that a counted call ran into.
    #[cold]
    pub fn failed(&self, id: RowId) {
        raise(&self.row(id).failed, 1);
    }

    /// Counts that a counted call found no memory.
    #[cold]
    pub fn refused_late(&self, id: RowId) {
        self.refused(id);
        // Its call may be counted only later, with those beside it: until then the count may be below 0.
        raise(&self.row(id).calls, u64::MAX);
    }

    /// Counts a receive; true if it is to be measured.
    pub(super) fn is_measured(&self) -> bool {
        let n = self.receives.load(Relaxed);
        self.receives.store(n.wrapping_add(1), Relaxed);
        // Not every sixteenth: of a client that sends two requests in turn, only one would be measured.
        n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & (RECEIVES_PER_MEASURED - 1) == 0
    }
}

/// Counts of a command, summed over workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowSum {
    pub calls: u64,
    pub measured: u64,
    pub measured_us: u64,
    pub refused: u64,
    pub failed: u64,
    pub steps: [u64; STEPS],
}

impl RowSum {
    /// Adds a worker's counts.
    pub(super) fn add(&mut self, row: &Row) {
        self.calls = self.calls.wrapping_add(row.calls.load(Relaxed));
        self.measured += row.measured.load(Relaxed);
        self.measured_us += row.measured_us.load(Relaxed);
        self.refused += row.refused.load(Relaxed);
        self.failed += row.failed.load(Relaxed);
        let Some(steps) = row.steps.get() else { return };
        for (sum, step) in self.steps.iter_mut().zip(&steps[..]) {
            *sum += step.load(Relaxed);
        }
    }

    /// Makes a count below 0 one of 0: a worker may have taken calls back that it will count in a moment.
    pub(super) fn at_least_zero(&mut self) {
        self.calls = u64::try_from(self.calls as i64).unwrap_or(0);
    }

    /// Subtracts the counts `before`.
    pub(super) fn since(&mut self, before: &RowSum) {
        self.calls = self.calls.saturating_sub(before.calls);
        self.measured = self.measured.saturating_sub(before.measured);
        self.measured_us = self.measured_us.saturating_sub(before.measured_us);
        self.refused = self.refused.saturating_sub(before.refused);
        self.failed = self.failed.saturating_sub(before.failed);
        for (step, before) in self.steps.iter_mut().zip(&before.steps) {
            *step = step.saturating_sub(*before);
        }
    }

    /// Microseconds of a call, on average.
    pub fn us_per_call(&self) -> f64 {
        self.measured_us as f64 / self.measured.max(1) as f64
    }

    /// The time that `percent` % of the measured calls did not exceed, in microseconds: the upper end of its step.
    pub fn percentile_us(&self, percent: f64) -> u64 {
        let total: u64 = self.steps.iter().sum();
        let wanted = (total as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (step, count) in self.steps.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return 1 << step;
            }
        }
        0
    }

    pub fn any(&self) -> bool {
        self.calls + self.refused + self.failed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_powers_of_two() {
        for (us, at) in
            [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10), (1025, 11), (u64::MAX, 23)]
        {
            assert_eq!(step(us), at, "{us}");
        }
    }

    #[test]
    fn parts_of_a_time_make_up_the_whole_and_are_exact_over_all_phases() {
        let calls = [8, 0, 5, 3];
        for us in [0, 1, 3, 17, 1_000_003] {
            let mut sums = [0u64; 4];
            for phase in 0..16 {
                let parts = shares(us, calls, phase);
                assert_eq!(parts.iter().sum::<u64>(), us, "{us} in phase {phase}");
                assert_eq!(parts, shares(us, calls, phase + 16), "{us} in phase {phase}");
                sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
            }
            assert_eq!(sums, calls.map(|calls| us * u64::from(calls)), "{us}");
        }
        assert_eq!(shares(3, [8, 8], 0), [1, 2]);
        assert_eq!(shares(3, [8, 8], 8), [2, 1]);
        assert_eq!(shares(3, [0, 0], 1), [0, 0]);
    }
}
