//! Events of the last minute: counts, taken some seconds apart by upkeep of one worker.

use super::counters::Counter;
use super::figures::table::Figure;
use super::figures::{Figures, Place};
use super::looks::{Counts, EVENTS, Happened, LastMinute};

macro_rules! events {
    ($($name:ident: $read:expr,)*) => {
        /// An event that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Event { $($name,)* }

        const READ: &[fn(&Figures) -> u64] = &[$($read,)*];
    };
}

events! {
    Stored: |f| Figure::ItemsStored.of(f),
    Misses: |f| Figure::Misses.of(f),
    MissesExpired: |f| f.sums.misses_expired(),
    Evictions: |f| Figure::Evictions.of(f),
    EvictedUnfetched: |f| Figure::EvictedUnfetched.of(f),
    GhostHits: |f| Figure::GhostHits.of(f),
    Reclaimed: |f| Figure::Reclaimed.of(f),
    ExpiredUnfetched: |f| Figure::ExpiredUnfetched.of(f),
    OutOfMemory: |f| Figure::OutOfMemory.of(f) + f.sums.of(Counter::StoreNoMemory),
    Swapped: |f| f.sums.of(Counter::CasHits),
    NotSwapped: |f| f.sums.of(Counter::CasBadval),
    Opened: |f| Figure::ConnectionsOpened.of(f),
    // The second is a part of the first, and was read once for both.
    Refused: |f| {
        Figure::ConnectionsRefused.of(f).saturating_sub(Figure::ConnectionsRefusedPerAddress.of(f))
    },
    RefusedPerAddress: |f| Figure::ConnectionsRefusedPerAddress.of(f),
    AcceptPauses: |f| Figure::AcceptPauses.of(f),
    RepliesHeld: |f| f.sums.of(Counter::Shed) + Figure::SubscribersCut.of(f),
    RequestsHeld: |f| f.sums.of(Counter::Crowded),
    LinesDropped: |f| Figure::LogLinesDropped.of(f),
    EventsLost: |f| Figure::EventsLost.of(f),
    Fills: |f| Figure::Fills.of(f),
    HerdMisses: |f| Figure::HerdMisses.of(f),
    Sampled: |f| f.traffic.samples + f.traffic.followed,
    SamplesDropped: |f| Figure::SamplesDropped.of(f),
    SpansReassigned: |f| Figure::SpansReassigned.of(f),
    Requests: |f| f.sums.requests(),
    TimedReceives: |f| f.sums.of(Counter::TimedReceives),
    TimedRequests: |f| f.sums.of(Counter::TimedRequests),
    Stalls: |f| f.sums.of(Counter::Stalls),
}

const _: () = assert!(READ.len() == EVENTS, "each event has a place among the counts");

fn counts(figures: &Figures) -> Counts {
    std::array::from_fn(|at| READ[at](figures))
}

impl LastMinute {
    /// Takes a look, if one is due.
    pub fn look(&self, place: Place<'_>) {
        let now_s = place.now / 1000;
        if self.is_due(now_s) {
            self.add(now_s, counts(&Figures::since_start(place)));
        }
    }

    /// The events from the first of the last looks until these figures.
    pub fn until(&self, figures: &Figures) -> Happened {
        self.since_first(figures.now_s, counts(figures))
    }
}

impl Happened {
    /// Number of events of this kind.
    pub fn of(&self, event: Event) -> u64 {
        self.counts[event as usize]
    }

    #[cfg(test)]
    pub fn with(seconds: u64, events: &[(Event, u64)]) -> Happened {
        let mut happened = Happened { seconds, ..Happened::default() };
        events.iter().for_each(|(event, count)| happened.counts[*event as usize] = *count);
        happened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_remembered_and_a_clock_that_goes_back_begins_anew() {
        let last_minute = LastMinute::default();
        let all = |n: u64| [n; READ.len()];
        let evictions = |now_s, n| {
            let happened = last_minute.since_first(now_s, all(n));
            (happened.seconds, happened.of(Event::Evictions))
        };
        assert_eq!(evictions(5, 9), (0, 0), "nothing is known");
        for second in 0..200 {
            if last_minute.is_due(second) {
                last_minute.add(second, all(second * 3));
            }
        }
        assert_eq!(evictions(199, 600), (69, 600 - 130 * 3));
        assert!(last_minute.is_due(100));
        last_minute.add(100, all(700));
        assert_eq!(evictions(101, 703), (1, 3));
    }
}
