//! Counts of events at the last looks, some seconds apart, and what came since the first. `last_minute` says which events there
//! are, and how they are read.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of events that are counted.
pub(super) const EVENTS: usize = 28;
/// Seconds between two looks.
const LOOK_S: u64 = 10;
/// Looks that are kept: a minute, and the one at its beginning.
const LOOKS: usize = 7;

/// Counts of all events.
pub(super) type Counts = [u64; EVENTS];

/// The last looks, by the second in which they were taken.
#[derive(Debug, Default)]
pub(crate) struct LastMinute(Mutex<VecDeque<(u64, Counts)>>);

impl LastMinute {
    /// Returns whether a look is due.
    pub(super) fn is_due(&self, now_s: u64) -> bool {
        // The clock may have been moved back.
        self.looks().back().is_none_or(|(at, _)| now_s < *at || now_s - at >= LOOK_S)
    }

    /// Adds a look.
    pub(super) fn add(&self, now_s: u64, counts: Counts) {
        let mut looks = self.looks();
        if looks.back().is_some_and(|(at, _)| *at > now_s) {
            looks.clear();
        }
        looks.push_back((now_s, counts));
        if looks.len() > LOOKS {
            looks.pop_front();
        }
    }

    /// The events since the first look.
    pub(super) fn since_first(&self, now_s: u64, mut counts: Counts) -> Happened {
        let (at, before) = self.looks().front().copied().unwrap_or((now_s, counts));
        counts.iter_mut().zip(before).for_each(|(count, before)| *count = count.saturating_sub(before));
        Happened { seconds: now_s.saturating_sub(at), counts }
    }

    fn looks(&self) -> MutexGuard<'_, VecDeque<(u64, Counts)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Events of some seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Happened {
    /// Number of seconds.
    pub seconds: u64,
    pub(super) counts: Counts,
}
