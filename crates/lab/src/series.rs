//! A load second by second: the counts of each, and its latencies.
//!
//! ```text
//! origin ─┬─ second 0 ─┬─ second 1 ─┬─ … ─┬─ the last, as long as it was ─┐
//!         │ counts, latencies, lag        │                              end
//! ```
//!
//! A histogram in use takes 220 KB. When its second is over, the counting thread packs it as HdrHistogram does, into some hundred
//! bytes: a run of any length has a bounded number of histograms for each thread. Counts are of replies in a second, and the sum
//! of the seconds is exactly the run's.

use std::time::{Duration, Instant};

use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

use crate::error::Error;
use crate::tally::Latencies;

const SECOND: Duration = Duration::from_secs(1);

/// Figures that are counted by the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests answered.
    pub operations: u64,
    /// Replies that were not the ones expected.
    pub errors: u64,
    /// Keys that were read and had a value.
    pub hits: u64,
    /// Keys that were read and had none.
    pub misses: u64,
}

impl Counts {
    fn since(self, earlier: Counts) -> Counts {
        Counts {
            operations: self.operations - earlier.operations,
            errors: self.errors - earlier.errors,
            hits: self.hits - earlier.hits,
            misses: self.misses - earlier.misses,
        }
    }

    fn add(&mut self, other: Counts) {
        self.operations += other.operations;
        self.errors += other.errors;
        self.hits += other.hits;
        self.misses += other.misses;
    }
}

/// Latencies whose second is over.
#[derive(Clone, Debug)]
struct Packed {
    /// HdrHistogram V2; empty without latencies.
    v2: Vec<u8>,
    over_range: u64,
}

impl Packed {
    fn of(latencies: &Latencies) -> Packed {
        let mut v2 = Vec::new();
        if !latencies.ns.is_empty() {
            V2Serializer::new()
                .serialize(&latencies.ns, &mut v2)
                .expect("a vector takes it, and counts are no more than 2^63");
        }
        Packed { v2, over_range: latencies.over_range }
    }

    fn add_to(&self, latencies: &mut Latencies) -> Result<(), Error> {
        latencies.over_range += self.over_range;
        if self.v2.is_empty() {
            return Ok(());
        }
        let damaged = |why: String| Error::NotValid(format!("a histogram that was packed: {why}"));
        let histogram = Deserializer::new()
            .deserialize::<u64, _>(&mut &self.v2[..])
            .map_err(|error| damaged(error.to_string()))?;
        latencies.ns.add(&histogram).map_err(|error| damaged(error.to_string()))
    }
}

/// A second of each thread.
#[derive(Clone, Debug, Default)]
struct Closed {
    counts: Counts,
    latency: Vec<Packed>,
    lag: Vec<Packed>,
}

/// One second, over all threads.
#[derive(Clone, Debug)]
pub struct Second {
    /// When it began, from the start of the run on.
    pub from: Duration,
    /// Its length: the last second may be shorter.
    pub length: Duration,
    /// The counts of this second.
    pub counts: Counts,
    /// Latencies, as the run's are: of windows in a closed loop from their send, in an open one from when they were due.
    pub latency: Latencies,
    /// Open loop: how late windows were sent.
    pub lag: Latencies,
}

/// The seconds of a run.
#[derive(Clone, Debug)]
pub struct Series {
    origin: Instant,
    /// The end of the present second.
    ends: Instant,
    /// The counts when it began.
    before: Counts,
    latency: Latencies,
    lag: Latencies,
    closed: Vec<Closed>,
    /// The end of the run.
    end: Duration,
}

impl Series {
    /// Seconds from `origin` on, which is the same for all threads.
    pub fn new(origin: Instant) -> Series {
        Series {
            origin,
            ends: origin + SECOND,
            before: Counts::default(),
            latency: Latencies::default(),
            lag: Latencies::default(),
            closed: Vec::new(),
            end: Duration::ZERO,
        }
    }

    /// Records a latency of the present second.
    pub fn record(&mut self, latency: Duration) {
        self.latency.record(latency);
    }

    /// Records how late a window of the present second was sent.
    pub fn late(&mut self, lag: Duration) {
        self.lag.record(lag);
    }

    /// Sets the time to `now`: further events belong to its second. `counts` are those of everything before.
    pub fn turn(&mut self, now: Instant, counts: Counts) {
        while now >= self.ends {
            self.close(counts);
            self.ends += SECOND;
        }
    }

    /// Ends the run.
    pub fn finish(&mut self, now: Instant, counts: Counts) {
        self.turn(now, counts);
        // An empty last second is left out.
        if now + SECOND > self.ends || counts != self.before {
            self.close(counts);
        }
        self.end = now - self.origin;
    }

    fn close(&mut self, counts: Counts) {
        let mut closed = Closed { counts: counts.since(self.before), ..Closed::default() };
        for (under_way, packed) in
            [(&mut self.latency, &mut closed.latency), (&mut self.lag, &mut closed.lag)]
        {
            if !under_way.is_empty() {
                packed.push(Packed::of(under_way));
                under_way.ns.reset();
                under_way.over_range = 0;
            }
        }
        self.before = counts;
        self.closed.push(closed);
    }

    /// Adds the series of another thread in the same run.
    pub fn merge(&mut self, other: Series) {
        self.end = self.end.max(other.end);
        self.closed.resize_with(self.closed.len().max(other.closed.len()), Closed::default);
        for (have, more) in self.closed.iter_mut().zip(other.closed) {
            have.counts.add(more.counts);
            have.latency.extend(more.latency);
            have.lag.extend(more.lag);
        }
    }

    /// The seconds in order, each unpacked on demand.
    ///
    /// # Errors
    /// [`Error::NotValid`] in the place of a second that cannot be unpacked.
    pub fn seconds(&self) -> impl Iterator<Item = Result<Second, Error>> + '_ {
        self.closed.iter().enumerate().map(|(at, closed)| self.second(at, closed))
    }

    fn second(&self, at: usize, closed: &Closed) -> Result<Second, Error> {
        let from = SECOND * at as u32;
        let length = self.end.saturating_sub(from).min(SECOND);
        let (latency, lag) = (unpacked(&closed.latency)?, unpacked(&closed.lag)?);
        Ok(Second { from, length, counts: closed.counts, latency, lag })
    }
}

fn unpacked(parts: &[Packed]) -> Result<Latencies, Error> {
    let mut all = Latencies::default();
    parts.iter().try_for_each(|part| part.add_to(&mut all))?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(operations: u64) -> Counts {
        Counts { operations, hits: operations / 2, ..Counts::default() }
    }

    #[test]
    fn seconds_have_what_came_in_them_and_add_up() {
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        let mut series = Series::new(origin);
        for (ms, us, count) in [(10, 100, 1), (999, 200, 2), (1_000, 300, 3), (3_500, 400, 4)] {
            series.turn(at(ms), counts(count - 1));
            series.record(Duration::from_micros(us));
        }
        series.finish(at(3_700), counts(4));
        let mut other = Series::new(origin);
        other.turn(at(1_500), counts(0));
        other.record(Duration::from_secs(70));
        other.late(Duration::from_micros(5));
        other.finish(at(4_200), counts(10));
        series.merge(other);
        let seconds: Vec<Second> = series.seconds().map(Result::unwrap).collect();
        let operations: Vec<u64> = seconds.iter().map(|second| second.counts.operations).collect();
        assert_eq!(operations, [2, 11, 0, 1, 0]);
        let latencies: Vec<u64> = seconds.iter().map(|second| second.latency.len()).collect();
        assert_eq!(latencies, [2, 2, 0, 1, 0]);
        assert_eq!(seconds[1].latency.over_range, 1);
        assert_eq!((seconds[1].lag.len(), seconds[0].lag.len()), (1, 0));
        assert!((seconds[0].latency.quantile_us(1.0) - 200.0).abs() < 1.0);
        assert_eq!((seconds[3].length, seconds[4].length), (SECOND, Duration::from_millis(200)));
    }

    #[test]
    fn a_run_that_ends_with_a_second_has_no_empty_one_behind_it() {
        let origin = Instant::now();
        let mut series = Series::new(origin);
        series.finish(origin + 2 * SECOND, counts(0));
        assert_eq!(series.seconds().count(), 2);
        let mut series = Series::new(origin);
        series.finish(origin, counts(0));
        assert_eq!(series.seconds().count(), 0);
    }

    #[test]
    fn a_packed_second_is_the_histogram_that_it_was() {
        let (mut latencies, mut back) = (Latencies::default(), Latencies::default());
        for us in 1..2_000 {
            latencies.record(Duration::from_micros(us * us));
        }
        let packed = Packed::of(&latencies);
        packed.add_to(&mut back).unwrap();
        assert_eq!(back.ns, latencies.ns);
        assert!(packed.v2.len() < 20_000, "{}", packed.v2.len());
    }
}
