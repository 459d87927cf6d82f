//! The result of a run: counts, wrong replies, times.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::series::{Counts, Series};

/// The longest latency that the histogram holds; longer ones are counted in [`Latencies::over_range`].
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// The generator is the limit when it works for more than this share of the time.
pub const BUSY_MAX: f64 = 0.9;
/// The generator is late at a quantile when its lag there is above this, and above a quarter of the latency.
const LAG_MAX_US: f64 = 30.0;

/// How late the generator was at a quantile of its lag, in µs, if that is too much of the latency at the same quantile: such a
/// latency is as much the generator's as the server's, and is not shown.
pub fn late_at(lag: &Latencies, latency: &Latencies, quantile: f64) -> Option<f64> {
    let lag_us = lag.quantile_us(quantile);
    (lag_us > LAG_MAX_US && lag_us > latency.quantile_us(quantile) / 4.0).then_some(lag_us)
}

/// Whether an open loop, whose threads worked for the share `busy` of the time, measures the server.
///
/// # Errors
/// Why it does not: a generator that was late, or hardly waited, measures itself.
pub fn in_time(lag: &Latencies, latency: &Latencies, busy: f64) -> Result<(), String> {
    for (name, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
        if let Some(lag_us) = late_at(lag, latency, quantile) {
            let latency_us = latency.quantile_us(quantile);
            return Err(format!(
                "the generator was late: {lag_us:.0} µs of the {latency_us:.0} µs at {name}"
            ));
        }
    }
    if busy > BUSY_MAX {
        return Err(format!("the generator was busy {:.0} % of the time", 100.0 * busy));
    }
    Ok(())
}

/// Latencies in nanoseconds: 3 digits up to 60 s. Longer ones are counted, never clamped.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// The latencies in range.
    pub ns: Histogram<u64>,
    /// How many were longer than 60 s.
    pub over_range: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let ns = Histogram::new_with_max(LATENCY_MAX_NS, 3).expect("bounds are in order");
        Latencies { ns, over_range: 0 }
    }
}

impl Latencies {
    /// Records a latency.
    pub fn record(&mut self, latency: Duration) {
        self.record_many(latency, 1);
    }

    /// Records `times` equal latencies.
    pub fn record_many(&mut self, latency: Duration, times: u64) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        if ns > LATENCY_MAX_NS || self.ns.record_n(ns, times).is_err() {
            self.over_range += times;
        }
    }

    /// Adds the latencies of another thread.
    pub fn merge(&mut self, other: &Latencies) {
        self.ns.add(&other.ns).expect("histograms have the same bounds");
        self.over_range += other.over_range;
    }

    /// Their number.
    pub fn len(&self) -> u64 {
        self.ns.len() + self.over_range
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The latency at a quantile (0.99), in microseconds; infinite if it is out of range, NaN if there are none.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        if self.is_empty() {
            return f64::NAN;
        }
        let rank = (quantile * self.len() as f64).ceil() as u64;
        if rank > self.ns.len() {
            return f64::INFINITY;
        }
        self.ns.value_at_quantile(rank as f64 / self.ns.len() as f64) as f64 / 1e3
    }
}

/// Counts of one run, over all its connections.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Requests answered.
    pub requests: u64,
    /// Keys that were read or written.
    pub keys: u64,
    /// Keys that were read and had a value.
    pub hits: u64,
    /// Keys that were read and had none.
    pub misses: u64,
    /// Writes that were done.
    pub stored: u64,
    /// Deletes that found their key.
    pub deleted: u64,
    /// Additions that were done.
    pub counted: u64,
    /// Writes with a token, or in a transaction, that have a reply.
    pub swaps: u64,
    /// Those that were done.
    pub swapped: u64,
    /// Those that were refused because the key had changed.
    pub conflicts: u64,
    /// Deletes, additions and writes with a token that found no key.
    pub absent: u64,
    /// Connections opened anew in the run.
    pub connects: u64,
    /// Writes of a trace that the server refused, such as of values that are too large for it.
    pub refused: u64,
    /// The first refusal, in the server's words.
    pub first_refused: Option<String>,
    /// Replies that were wrong: another key's value, a torn value, a miss in place of a hit, a refusal.
    pub wrong: u64,
    /// The first wrong reply, in words.
    pub first_wrong: Option<String>,
    /// From the first send to the last reply.
    pub elapsed: Duration,
    /// CPU time of the generator's threads in that time, without busy waiting.
    pub generator_cpu: Duration,
    /// The largest share of that time in which a thread of the generator was ready to run and had no core.
    pub waited: f64,
    /// Time of a window: in a closed loop from its send to its last reply, and the next window waits for it; in an open loop from
    /// the time that it was due.
    pub latency: Latencies,
    /// Open loop: from its send to its last reply.
    pub service: Latencies,
    /// Open loop: how late it was sent.
    pub lag: Latencies,
    /// Counts and times by the second, if wanted.
    pub series: Option<Box<Series>>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            requests: 0,
            keys: 0,
            hits: 0,
            misses: 0,
            stored: 0,
            deleted: 0,
            counted: 0,
            swaps: 0,
            swapped: 0,
            conflicts: 0,
            absent: 0,
            connects: 0,
            refused: 0,
            first_refused: None,
            wrong: 0,
            first_wrong: None,
            elapsed: Duration::ZERO,
            generator_cpu: Duration::ZERO,
            waited: 0.0,
            latency: Latencies::default(),
            service: Latencies::default(),
            lag: Latencies::default(),
            series: None,
        }
    }
}

impl Tally {
    /// An empty tally, which keeps seconds from `origin` on, if there is one.
    pub fn since(origin: Option<Instant>) -> Tally {
        Tally { series: origin.map(|origin| Box::new(Series::new(origin))), ..Tally::default() }
    }

    fn counts(&self) -> Counts {
        Counts { operations: self.requests, errors: self.wrong, hits: self.hits, misses: self.misses }
    }

    /// Sets the second to the present one.
    pub(crate) fn turn(&mut self) {
        // The clock is read only if needed.
        if self.series.is_some() {
            self.turn_at(Instant::now());
        }
    }

    /// Sets the second to that of `now`.
    pub(crate) fn turn_at(&mut self, now: Instant) {
        let counts = self.counts();
        if let Some(series) = &mut self.series {
            series.turn(now, counts);
        }
    }

    /// Records that a window was answered after this time.
    pub(crate) fn took(&mut self, latency: Duration) {
        self.latency.record(latency);
        if let Some(series) = &mut self.series {
            series.record(latency);
        }
    }

    /// As [`Tally::took`], for an open loop: the latency since it was due, the service time since it was sent, and how late it
    /// was sent.
    pub(crate) fn took_since_due(&mut self, latency: Duration, service: Duration, lag: Duration) {
        self.took(latency);
        self.service.record(service);
        self.lag.record(lag);
        if let Some(series) = &mut self.series {
            series.late(lag);
        }
    }

    /// Ends the counting.
    pub(crate) fn end(&mut self) {
        let counts = self.counts();
        if let Some(series) = &mut self.series {
            series.finish(Instant::now(), counts);
        }
    }

    /// Counts a wrong reply; `words` are called for the first only.
    #[cold]
    pub fn mistake(&mut self, words: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first_wrong.get_or_insert_with(words);
    }

    /// Adds the tally of another thread over the same time.
    pub fn merge(&mut self, other: Tally) {
        self.requests += other.requests;
        self.keys += other.keys;
        self.hits += other.hits;
        self.misses += other.misses;
        self.stored += other.stored;
        self.deleted += other.deleted;
        self.counted += other.counted;
        self.swaps += other.swaps;
        self.swapped += other.swapped;
        self.conflicts += other.conflicts;
        self.absent += other.absent;
        self.connects += other.connects;
        self.refused += other.refused;
        self.first_refused = self.first_refused.take().or(other.first_refused);
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.generator_cpu += other.generator_cpu;
        self.waited = self.waited.max(other.waited);
        self.latency.merge(&other.latency);
        self.service.merge(&other.service);
        self.lag.merge(&other.lag);
        self.series = match (self.series.take(), other.series) {
            (Some(mut have), Some(more)) => {
                have.merge(*more);
                Some(have)
            }
            (have, more) => have.or(more),
        };
    }

    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Share of the elapsed time that the generator's threads, `threads` of them, were running. Near 1
    /// the generator is the limit.
    pub fn generator_load(&self, threads: usize) -> f64 {
        self.generator_cpu.as_secs_f64() / (self.elapsed.as_secs_f64().max(1e-9) * threads as f64)
    }

    /// Times, of any kind, that were longer than histograms hold.
    pub fn over_range(&self) -> u64 {
        self.latency.over_range + self.service.over_range + self.lag.over_range
    }

    /// Latency of a window at a quantile (0.99), in microseconds.
    pub fn latency_us(&self, quantile: f64) -> f64 {
        self.latency.quantile_us(quantile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_compared_at_the_quantile_that_is_shown() {
        let of = |fast: u64, slow: u64| {
            let mut latencies = Latencies::default();
            latencies.record_many(Duration::from_micros(fast), 999);
            latencies.record_many(Duration::from_micros(slow), 1);
            latencies
        };
        // One stop of 50 ms: of a thousand requests one waited for the generator.
        let (lag, latency) = (of(5, 50_000), of(80, 50_080));
        assert_eq!(late_at(&lag, &latency, 0.99), None);
        assert!(late_at(&lag, &latency, 1.0).is_some_and(|us| (us - 50_000.0).abs() < 50.0));
        assert_eq!(in_time(&lag, &latency, 0.1), Ok(()));
        // The server was slower by far than the generator was late.
        assert_eq!(late_at(&of(5, 1_000), &of(80, 50_000), 1.0), None);
        assert!(in_time(&of(60, 60), &of(80, 500), 0.1).unwrap_err().contains("at p50"));
    }

    #[test]
    fn latencies_out_of_range_are_counted_not_clamped() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_secs(60));
        latencies.record(Duration::from_nanos(60_000_000_001));
        latencies.record(Duration::ZERO);
        assert_eq!((latencies.ns.len(), latencies.over_range), (2, 1));
        assert_eq!(latencies.ns.min(), 0);
    }

    #[test]
    fn latencies_keep_three_digits_from_a_microsecond_to_a_minute() {
        for ns in [1_000, 1_234, 12_345, 987_654, 1_234_567, 59_876_543_210] {
            let mut latencies = Latencies::default();
            latencies.record(Duration::from_nanos(ns));
            let error = latencies.ns.value_at_quantile(1.0).abs_diff(ns) as f64 / ns as f64;
            assert!(error < 0.001, "{ns}: {error}");
        }
    }

    #[test]
    fn a_quantile_among_those_out_of_range_is_infinite() {
        let mut latencies = Latencies::default();
        assert!(latencies.quantile_us(0.5).is_nan());
        (0..9).for_each(|_| latencies.record(Duration::from_millis(1)));
        latencies.record(Duration::from_secs(61));
        assert!((latencies.quantile_us(0.9) - 1_000.0).abs() < 1.0);
        assert_eq!((latencies.quantile_us(0.99), latencies.len()), (f64::INFINITY, 10));
    }

    #[test]
    fn merging_adds_counts_and_keeps_the_longest_time() {
        let mut a = Tally { requests: 1, elapsed: Duration::from_secs(2), ..Tally::default() };
        let mut b = Tally { requests: 5, elapsed: Duration::from_secs(1), ..Tally::default() };
        b.mistake(|| "torn".to_owned());
        b.mistake(|| unreachable!("only the first is put in words"));
        b.latency.record(Duration::from_micros(10));
        a.merge(b);
        assert_eq!((a.requests, a.wrong, a.latency.len()), (6, 2, 1));
        assert_eq!(a.first_wrong.as_deref(), Some("torn"));
        assert!((a.rate() - 3.0).abs() < 1e-9);
    }
}
