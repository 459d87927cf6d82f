//! The last stalls of all workers: turns that took long, and rounds of upkeep that came late, each with its cause as far as the
//! system's accounts tell it.
//!
//! A turn's time is from its wake-up, which the loop knows, to the next wait, before which the worker looks at the
//! system's coarse clock: some nanoseconds a turn, and no more. That clock is some milliseconds late, so that a turn of
//! 10 ms may be missed, one of 15 ms is not, and none is told that was not.

use std::collections::VecDeque;
use std::fs::read_to_string;
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_eventloop::Millis;

/// A turn that takes so long is a stall.
pub const STALL_NS: u64 = 10_000_000;

/// Most stalls that are kept.
const STALLS_MAX: usize = 128;

/// What held a worker up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It worked: a command, or a step of upkeep, took long.
    Work,
    /// It could have run, and others had the processor.
    Processor,
    /// Memory was read from a disk.
    PageFault,
    /// It did not run and could not: the system kept it waiting, or the process or its machine was stopped.
    Stopped,
    /// The system does not say.
    Unknown,
}

impl Cause {
    /// All of them, each in the place of its number.
    pub const ALL: [Cause; 5] =
        [Cause::Work, Cause::Processor, Cause::PageFault, Cause::Stopped, Cause::Unknown];

    /// The cause in a word, as it is told.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Work => "work",
            Cause::Processor => "no-processor",
            Cause::PageFault => "page-fault",
            Cause::Stopped => "stopped",
            Cause::Unknown => "unknown",
        }
    }
}

/// What the system has counted for a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// It ran, nanoseconds.
    pub ran_ns: u64,
    /// It could have run, nanoseconds.
    pub waited_ns: u64,
    /// Faults of memory that read a disk.
    pub faults: u64,
}

impl Usage {
    /// What the system has counted for the calling thread; `None` if it does not say.
    pub fn now() -> Option<Usage> {
        let read = |name: &str| read_to_string(format!("/proc/thread-self/{name}")).ok();
        Usage::parse(&read("schedstat")?, &read("stat")?)
    }

    fn parse(schedstat: &str, stat: &str) -> Option<Usage> {
        let mut times = schedstat.split_whitespace().map_while(|word| word.parse().ok());
        // The thread's name, which may have anything in it, ends with the last parenthesis; the tenth field behind it
        // are the faults.
        let (_, fields) = stat.rsplit_once(')')?;
        let faults = fields.split_whitespace().nth(9)?.parse().ok()?;
        Some(Usage { ran_ns: times.next()?, waited_ns: times.next()?, faults })
    }

    /// What held a thread up for `took_ns`, by what was counted since shortly before that. What a worker did between the
    /// two is counted, too: one that works all the time and is stopped may be told to have worked.
    pub fn cause(self, after: Usage, took_ns: u64) -> Cause {
        let half = took_ns / 2;
        let waited = after.waited_ns.saturating_sub(self.waited_ns);
        let ran = after.ran_ns.saturating_sub(self.ran_ns);
        if waited >= half {
            Cause::Processor
        } else if ran >= half {
            Cause::Work
        } else if after.faults > self.faults {
            Cause::PageFault
        } else {
            Cause::Stopped
        }
    }
}

/// Something that held a worker up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// When it was over, since the start.
    pub at: Millis,
    /// The worker's number.
    pub worker: usize,
    /// How long it took.
    pub took_us: u64,
    /// What held it up.
    pub cause: Cause,
}

/// Stalls of one cause, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfCause {
    /// How many there were.
    pub count: u64,
    /// How long they took together.
    pub took_us: u64,
}

/// The last stalls.
#[derive(Debug, Default)]
pub struct Stalls(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    stalls: VecDeque<Stall>,
    /// All stalls since the start.
    count: u64,
    /// All stalls by their causes, as in [`Cause::ALL`].
    by_cause: [OfCause; Cause::ALL.len()],
}

impl Stalls {
    /// Notes a stall. Workers do so rarely: a stall is 10 ms or more.
    pub fn add(&self, stall: Stall) {
        let mut last = self.last();
        if last.stalls.len() == STALLS_MAX {
            last.stalls.pop_front();
        }
        last.stalls.push_back(stall);
        last.count += 1;
        let of_cause = &mut last.by_cause[stall.cause as usize];
        of_cause.count += 1;
        of_cause.took_us += stall.took_us;
    }

    /// All that there were, by their causes.
    pub fn by_cause(&self) -> [(Cause, OfCause); Cause::ALL.len()] {
        let last = self.last();
        Cause::ALL.map(|cause| (cause, last.by_cause[cause as usize]))
    }

    /// The stalls that are kept, the last one first.
    pub fn all(&self) -> Vec<Stall> {
        self.last().stalls.iter().rev().copied().collect()
    }

    /// The longest stall since there were `seen`, which becomes the present number.
    pub fn longest_since(&self, seen: &mut u64) -> Option<Stall> {
        let last = self.last();
        let fresh = (last.count - *seen).min(STALLS_MAX as u64) as usize;
        *seen = last.count;
        last.stalls.iter().rev().take(fresh).copied().max_by_key(|stall| stall.took_us)
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_accounts_of_a_thread_are_read() {
        let stat = "71 (worker-0 (x) 9) S 1 2 3 4 5 6 700 0 13 0 0 0";
        let expected = Usage { ran_ns: 615_094, waited_ns: 75_863, faults: 13 };
        assert_eq!(Usage::parse("615094 75863 1\n", stat), Some(expected));
        for (schedstat, stat) in [("", stat), ("1", stat), ("1 2 3", ""), ("1 2 3", "71 (x) S 1 2")] {
            assert_eq!(Usage::parse(schedstat, stat), None);
        }
    }

    #[test]
    fn a_stall_has_the_cause_that_half_of_its_time_went_to() {
        const MS: u64 = 1_000_000;
        let before = Usage { ran_ns: 70, waited_ns: 50, faults: 3 };
        let cause = |ran_ms: u64, waited_ms: u64, faults: u64| {
            let (ran_ns, waited_ns) = (before.ran_ns + ran_ms * MS, before.waited_ns + waited_ms * MS);
            before.cause(Usage { ran_ns, waited_ns, faults: before.faults + faults }, 20 * MS)
        };
        assert_eq!(cause(10, 9, 0), Cause::Work);
        assert_eq!(cause(20, 10, 0), Cause::Processor);
        assert_eq!(cause(10, 0, 5), Cause::Work, "faults that took little");
        assert_eq!(cause(9, 9, 1), Cause::PageFault);
        assert_eq!(cause(9, 9, 0), Cause::Stopped);
    }

    #[test]
    fn stalls_are_counted_by_their_causes() {
        let stalls = Stalls::default();
        for (at, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, at, "{cause:?}");
            for nth in 0..=at as u64 {
                stalls.add(Stall { at: nth, worker: 0, took_us: 10_000, cause });
            }
        }
        for (at, (cause, of_cause)) in (1..).zip(stalls.by_cause()) {
            assert_eq!(of_cause, OfCause { count: at, took_us: 10_000 * at }, "{cause:?}");
        }
    }

    #[test]
    fn the_last_stalls_are_kept_and_the_longest_of_the_new_ones_is_told_once() {
        let stalls = Stalls::default();
        let stall = |at: Millis, took_us| Stall { at, worker: 1, took_us, cause: Cause::Work };
        let mut seen = 0;
        assert_eq!(stalls.longest_since(&mut seen), None);
        [(1, 20_000), (2, 90_000), (3, 10_000)]
            .into_iter()
            .for_each(|(at, took)| stalls.add(stall(at, took)));
        assert_eq!(stalls.longest_since(&mut seen), Some(stall(2, 90_000)));
        assert_eq!(stalls.longest_since(&mut seen), None);
        (0..3 * STALLS_MAX as u64).for_each(|at| stalls.add(stall(at, 10_000 + at)));
        let all = stalls.all();
        assert_eq!((all.len(), all[0].at), (STALLS_MAX, 3 * STALLS_MAX as u64 - 1));
        assert_eq!(stalls.longest_since(&mut seen).map(|stall| stall.at), Some(all[0].at));
    }
}
