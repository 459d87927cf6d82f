//! Events that took at least `latency-monitor-threshold` milliseconds.
//!
//! | event | what is measured |
//! |---|---|
//! | `command` | a command that may take long |
//! | `fast-command` | FAST commands that came together |
//! | `expire-cycle` | a round of upkeep: expiry, eviction ahead of need, moving memory |
//! | `event-loop` | a turn of a worker of 10 ms or longer, whatever took so long, or a wake-up that came so late |

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Commands that may take long.
pub(crate) const COMMAND: &str = "command";
/// FAST commands that came together.
pub(crate) const FAST_COMMAND: &str = "fast-command";
/// A round of upkeep.
pub(crate) const EXPIRE_CYCLE: &str = "expire-cycle";
/// A worker that was held up.
pub(crate) const EVENT_LOOP: &str = "event-loop";

/// How many times are kept of an event.
const SAMPLES_MAX: usize = 160;

/// The times of an event: second and milliseconds, oldest first, at most one a second.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    pub samples: VecDeque<(u64, u64)>,
    pub longest_ms: u64,
}

/// The events that took long, by name.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    threshold_ms: AtomicU64,
    events: Mutex<BTreeMap<&'static str, Series>>,
}

impl Latency {
    /// Sets from how many milliseconds on an event is noted; 0: none is.
    pub fn set_threshold(&self, ms: u64) {
        self.threshold_ms.store(ms, Relaxed);
    }

    /// Whether events are noted.
    #[inline]
    pub fn watches(&self) -> bool {
        self.threshold_ms.load(Relaxed) > 0
    }

    /// Notes an event, if it took long.
    #[inline]
    pub fn note(&self, event: &'static str, now_s: u64, took_us: u64) {
        let threshold = self.threshold_ms.load(Relaxed);
        if threshold > 0 && took_us / 1000 >= threshold {
            self.add(event, now_s, took_us / 1000);
        }
    }

    #[cold]
    fn add(&self, event: &'static str, now_s: u64, ms: u64) {
        let mut events = self.events();
        let series = events.entry(event).or_default();
        series.longest_ms = series.longest_ms.max(ms);
        match series.samples.back_mut() {
            Some((second, longest)) if *second == now_s => *longest = ms.max(*longest),
            _ => series.samples.push_back((now_s, ms)),
        }
        if series.samples.len() > SAMPLES_MAX {
            series.samples.pop_front();
        }
    }

    /// Calls `visit` with each event, the second of its latest time, and that time in milliseconds.
    pub fn each_latest(&self, visit: &mut dyn FnMut(&'static str, u64, u64)) {
        for (event, series) in &*self.events() {
            let (at_s, ms) = series.samples.back().copied().unwrap_or_default();
            visit(event, at_s, ms);
        }
    }

    /// All events.
    pub(super) fn events(&self) -> MutexGuard<'_, BTreeMap<&'static str, Series>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The times of one event.
    pub(super) fn series(&self, event: &[u8]) -> Option<Series> {
        let events = self.events();
        events.iter().find(|(name, _)| name.as_bytes() == event).map(|(_, series)| series.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_long_is_noted_once_a_second_and_the_oldest_goes() {
        let latency = Latency::default();
        latency.note(COMMAND, 1, 1_000_000);
        assert!(latency.series(b"command").is_none(), "nothing is long while the threshold is 0");
        latency.set_threshold(10);
        latency.note(COMMAND, 1, 9_999);
        latency.note(COMMAND, 1, 10_000);
        latency.note(COMMAND, 1, 30_000);
        latency.note(COMMAND, 2, 20_000);
        let series = latency.series(b"command").expect("noted");
        assert_eq!((series.samples, series.longest_ms), ([(1, 30), (2, 20)].into(), 30));
        for (second, kept) in (3..).zip(3..=SAMPLES_MAX + 1) {
            latency.note(COMMAND, second, 10_000);
            let series = latency.series(b"command").expect("noted");
            let first = if kept <= SAMPLES_MAX { (1, 30) } else { (2, 20) };
            assert_eq!((series.samples.len(), series.samples[0]), (kept.min(SAMPLES_MAX), first));
        }
        (0..1000).for_each(|second| latency.note(COMMAND, second, 10_000));
        let series = latency.series(b"command").expect("noted");
        assert_eq!((series.samples.len(), series.longest_ms), (SAMPLES_MAX, 30));
        assert_eq!(series.samples.back(), Some(&(999, 10)));
    }
}
