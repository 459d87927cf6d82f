//! What the thread looks at between requests: figures once a second, for the history, and findings now and then.

use larder_commands::{Reading, SERIES};
use larder_eventloop::Millis;

use super::history::{Found, History, What};
use crate::stalls::{Stall, Stalls};

/// Findings are looked at with one look in so many: they ask the system for more than figures do.
const FINDINGS_EVERY: u64 = 5;

/// Looks at figures, stalls and findings, and keeps their history.
#[derive(Debug)]
pub struct Observer {
    /// The history of figures.
    pub history: History,
    found: Found,
    looks: u64,
    flushes: Follow,
    limit: Follow,
    /// Stalls that were looked at.
    stalls: u64,
}

/// A figure whose changes are marked.
#[derive(Debug)]
struct Follow {
    series: usize,
    last: u64,
}

impl Follow {
    fn new(name: &str, reading: &Reading) -> Follow {
        let series = SERIES.iter().position(|series| series.name == name).expect("the table has it");
        Follow { series, last: reading[series] }
    }

    /// The figure, if it has changed.
    fn look(&mut self, reading: &Reading) -> Option<u64> {
        let before = std::mem::replace(&mut self.last, reading[self.series]);
        (self.last != before).then_some(self.last)
    }
}

impl Observer {
    /// With a first look.
    pub fn new(now: Millis, reading: &Reading) -> Observer {
        Observer {
            history: History::new(now, reading),
            found: Found::default(),
            looks: 0,
            flushes: Follow::new("flushes", reading),
            limit: Follow::new("memory_limit", reading),
            stalls: 0,
        }
    }

    /// When it is to look.
    pub fn due(&self) -> Millis {
        self.history.due()
    }

    /// Looks. `findings` names the rules that find something now.
    pub fn look(
        &mut self,
        now: Millis,
        reading: &Reading,
        stalls: &Stalls,
        findings: impl FnOnce() -> Vec<&'static str>,
    ) {
        self.history.look(now, reading);
        if let Some(Stall { at, took_us: us, cause, .. }) = stalls.longest_since(&mut self.stalls) {
            self.history.mark(at, What::Stalled { us, cause });
        }
        if self.flushes.look(reading).is_some() {
            self.history.mark(now, What::Flushed);
        }
        if let Some(bytes) = self.limit.look(reading) {
            self.history.mark(now, What::Limit { bytes });
        }
        if self.looks.is_multiple_of(FINDINGS_EVERY) {
            for change in self.found.look(now, findings().into_iter()) {
                self.history.mark(now, change);
            }
        }
        self.looks += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::Cause;
    use larder_commands::SERIES_COUNT;

    #[test]
    fn what_happens_is_marked_once() {
        let mut reading = [0; SERIES_COUNT];
        let mut observer = Observer::new(0, &reading);
        let (flushes, limit) = (observer.flushes.series, observer.limit.series);
        let marks = |observer: &Observer| -> Vec<(Millis, What)> {
            observer.history.marks(None).map(|mark| (mark.at, mark.what)).collect()
        };
        let stalls = Stalls::default();
        observer.look(1000, &reading, &stalls, || vec!["churn"]);
        reading[flushes] += 3;
        reading[limit] = 7;
        observer.look(2000, &reading, &stalls, || panic!("not with each look"));
        for (at, took_us) in [(2100, 20_000), (2200, 50_000), (2300, 30_000)] {
            stalls.add(Stall { at, worker: 0, took_us, cause: Cause::Work });
        }
        for second in 3..7 {
            observer.look(second * 1000, &reading, &stalls, || vec!["churn"]);
        }
        let expected = [
            (1000, What::Found("churn")),
            (2000, What::Flushed),
            (2000, What::Limit { bytes: 7 }),
            (2200, What::Stalled { us: 50_000, cause: Cause::Work }),
        ];
        assert_eq!(marks(&observer), expected);
        assert_eq!(observer.due(), 7000);
    }
}
