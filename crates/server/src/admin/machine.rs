//! What the machine does for the server: how long it takes to read its clock, whether it gives huge pages, how long workers run
//! and how long they wait for a processor. It is looked at every five seconds, and shown for the last minute.
//!
//! The system counts the workers' time (`/proc/self/task/…/schedstat`): workers do nothing for it.

use std::collections::VecDeque;
use std::fs::read_to_string;
use std::hint::black_box;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use larder_commands::{Machine, WorkerTime};
use larder_eventloop::Millis;

use crate::hub::Hub;

/// Interval of looks.
const LOOK_MS: Millis = 5_000;
/// Looks that are kept: a minute, and the one at its beginning.
const LOOKS: usize = 13;

/// How often a clock is read in a row, in one try.
const READS: u64 = 32;
/// Number of tries. The fastest counts: others had the processor during the slower ones.
const TRIES: u64 = 8;

/// How long a thread ran, and could have run, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// It ran.
    pub ran: u64,
    /// It could have run, and did not.
    pub waited: u64,
}

impl ThreadTime {
    /// The time of a worker; `None` where the system does not say.
    pub fn of_worker(hub: &Hub, worker: usize) -> Option<ThreadTime> {
        match hub.handles[worker].thread.load(Relaxed) {
            // The thread has not begun.
            0 => None,
            thread => {
                let text = read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
                // A thread that has begun has run. A system that does not count says 0.
                ThreadTime::parse(&text).filter(|time| time.ran > 0)
            }
        }
    }

    fn parse(text: &str) -> Option<ThreadTime> {
        let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
        Some(ThreadTime { ran: numbers.next()?, waited: numbers.next()? })
    }
}

/// Ticks of all processors since the machine was started: those that its host gave to others, and all.
fn stolen(text: &str) -> Option<[u64; 2]> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    // user nice system idle iowait irq softirq steal; guests' time is in user and nice already.
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    Some([*ticks.get(7)?, ticks.iter().sum()])
}

/// How often the system has dropped a connection since it was started because a listener's queue was full. The text is a line of
/// names, and one of numbers.
fn overflows(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names.split_whitespace().position(|name| name == "ListenOverflows")?;
    numbers.split_whitespace().nth(place)?.parse().ok()
}

/// Why there are no huge pages, by the system's switch and its page of the process.
fn no_huge_pages(switch: &str, status: &str) -> Option<&'static str> {
    let own = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
    if own.is_some_and(|own| own.trim() == "0") {
        return Some("huge pages are switched off for the process");
    }
    switch
        .contains("[never]")
        .then_some("huge pages are switched off in /sys/kernel/mm/transparent_hugepage/enabled")
}

/// How long it takes to read the clock.
fn clock_ns() -> u64 {
    let once = |_| {
        let begun = Instant::now();
        for _ in 0..READS {
            let _ = black_box(Instant::now());
        }
        begun.elapsed().as_nanos() as u64 / (READS + 1)
    };
    (0..TRIES).map(once).min().unwrap_or(0)
}

/// What was seen at one moment.
#[derive(Debug)]
struct Look {
    at: Millis,
    /// Empty if the system does not say.
    workers: Vec<ThreadTime>,
    /// [`stolen`], if the system says so.
    stolen: Option<[u64; 2]>,
    /// [`overflows`], if the system says so.
    overflows: Option<u64>,
}

impl Look {
    fn now(at: Millis, hub: &Hub) -> Look {
        let workers: Option<Vec<ThreadTime>> =
            (0..hub.handles.len()).map(|worker| ThreadTime::of_worker(hub, worker)).collect();
        let stat = read_to_string("/proc/stat").unwrap_or_default();
        let network = read_to_string("/proc/self/net/netstat").unwrap_or_default();
        let workers = workers.unwrap_or_default();
        Look { at, workers, stolen: stolen(&stat), overflows: overflows(&network) }
    }
}

/// What was seen in the last minute.
#[derive(Debug, Default)]
pub struct Observed {
    looks: VecDeque<Look>,
}

impl Observed {
    /// Looks, if it is time, and puts what was seen where all can read it.
    pub fn look(&mut self, now: Millis, hub: &Hub) {
        let is_early = self.looks.back().is_some_and(|last| now < last.at + LOOK_MS);
        if is_early || !hub.clock.is_of_machine() {
            return;
        }
        self.add(Look::now(now, hub));
        let switch = read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let status = read_to_string("/proc/self/status").unwrap_or_default();
        let source = read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let (seconds, workers, stolen, dropped) = self.seen();
        let seen = Machine {
            clock_ns: Some(clock_ns()),
            clock_source: source.map_or("not known".to_owned(), |source| source.trim().to_owned()),
            no_huge_pages: no_huge_pages(&switch, &status),
            seconds,
            workers,
            stolen,
            dropped,
            idle_options: Vec::new(),
        };
        *hub.machine.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    fn add(&mut self, look: Look) {
        // Workers that have begun since the looks before are missing there.
        if self.looks.back().is_some_and(|last| last.workers.len() != look.workers.len()) {
            self.looks.clear();
        }
        self.looks.push_back(look);
        if self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
    }

    /// Seconds from the first look to the last, parts of them that workers had, what others had of the machine, and how often a
    /// connection was dropped.
    fn seen(&self) -> (u64, Vec<WorkerTime>, f64, u64) {
        let (Some(first), Some(last)) = (self.looks.front(), self.looks.back()) else {
            return Default::default();
        };
        let ms = last.at.saturating_sub(first.at);
        let part = |now: u64, before: u64| now.saturating_sub(before) as f64 / (ms.max(1) * 1_000_000) as f64;
        let workers = first.workers.iter().zip(&last.workers).map(|(before, now)| WorkerTime {
            busy: part(now.ran, before.ran),
            delayed: part(now.waited, before.waited),
        });
        let stolen = first.stolen.zip(last.stolen).map_or(0.0, |(before, now)| {
            let [stolen, all] = [0, 1].map(|at| now[at].saturating_sub(before[at]) as f64);
            stolen / all.max(1.0)
        });
        let counted = first.overflows.zip(last.overflows);
        let dropped = counted.map_or(0, |(before, now)| now.saturating_sub(before));
        (ms / 1000, workers.collect(), stolen, dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        let time = ThreadTime { ran: 615_094, waited: 75_863 };
        assert_eq!(ThreadTime::parse("615094 75863 1\n"), Some(time));
        assert_eq!((ThreadTime::parse("615094"), ThreadTime::parse("")), (None, None));
        assert_eq!(stolen("cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 1\n"), Some([80, 360]));
        assert_eq!((stolen("cpu  10 20\n"), stolen("")), (None, None));
        let named = "TcpExt: Syn ListenOverflows\nTcpExt: 1 20\nIpExt: InNoRoutes\nIpExt: 0\n";
        assert_eq!((overflows(named), overflows("TcpExt: ListenDrops\nTcpExt: 21\n")), (Some(20), None));
        assert_eq!((overflows("TcpExt: ListenOverflows\n"), overflows("")), (None, None));
        let never = no_huge_pages("always madvise [never]\n", "THP_enabled:\t1\n");
        assert!(never.is_some_and(|why| why.contains("/sys/")), "{never:?}");
        assert_eq!(no_huge_pages("always [madvise] never\n", "THP_enabled:\t1\n"), None);
        assert_eq!(no_huge_pages("", ""), None, "nobody knows");
        let own = no_huge_pages("[always] madvise never\n", "Threads:\t1\nTHP_enabled:\t0\n");
        assert!(own.is_some_and(|why| why.contains("process")), "{own:?}");
        assert!(clock_ns() > 0);
    }

    fn look(at: Millis, ran: &[u64], waited: u64, stolen: [u64; 2]) -> Look {
        let workers = ran.iter().map(|&ran| ThreadTime { ran, waited }).collect();
        Look { at, workers, stolen: Some(stolen), overflows: Some(at / 1_000) }
    }

    #[test]
    fn a_minute_is_told_and_begins_anew_with_the_workers() {
        let mut observed = Observed::default();
        assert_eq!(observed.seen(), (0, Vec::new(), 0.0, 0));
        observed.add(look(0, &[], 0, [0, 0]));
        observed.add(look(5_000, &[1, 2], 0, [0, 0]));
        assert_eq!((observed.looks.len(), observed.seen().0), (1, 0), "none of its workers was there before");
        // The first runs half of the time, the second a tenth; each waits for a hundredth.
        const MS: u64 = 1_000_000;
        for nth in 1..=20 {
            let ms = nth * LOOK_MS;
            let ran = [ms * MS / 2, ms * MS / 10];
            observed.add(look(5_000 + ms, &ran, ms * MS / 100, [nth, nth * 50]));
        }
        let (seconds, workers, stolen, dropped) = observed.seen();
        assert_eq!((seconds, workers.len(), observed.looks.len(), dropped), (60, 2, LOOKS, 60));
        for (worker, busy) in workers.iter().zip([0.5, 0.1]) {
            assert!((worker.busy - busy).abs() < 1e-9 && (worker.delayed - 0.01).abs() < 1e-9, "{worker:?}");
        }
        assert!((stolen - 0.02).abs() < 1e-9, "{stolen}");
    }
}
