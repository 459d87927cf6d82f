//! The time of a server: how long it runs, and what the system's clock says.
//!
//! ```text
//! started ──── since start: never back, the loops' clock ────►
//! 1970 ─────── the system's time, which may be set ──────────►
//! ```
//!
//! Both are the machine's, or, where the sockets are simulated, those of the simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use larder_commands::Pace;
use larder_eventloop::cpu::{CpuTime, process_time};
use larder_eventloop::sim::Time;
use larder_store::Millis;

use crate::stalls::Usage;

/// Simulated time that a script works from one look at the clock to the next. It is so long that scripts of a simulation soon go
/// on in later turns.
const SIMULATED_LOOK: Duration = Duration::from_micros(20);

/// The time of a server.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's.
    Machine {
        /// When the server was started.
        started: Instant,
    },
    /// That of a simulation.
    Simulated {
        /// Since the start.
        time: Time,
        /// When it was started as the system's clock says now, microseconds since the Unix epoch.
        epoch_us: Arc<AtomicU64>,
    },
}

impl Clock {
    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        match self {
            Clock::Machine { started } => started.elapsed(),
            Clock::Simulated { time, .. } => Duration::from_micros(time.now_us()),
        }
    }

    /// The processor's time that the process has used. It is told to clients: a simulation's is always the same.
    pub fn process_cpu(&self) -> CpuTime {
        match self {
            Clock::Machine { .. } => process_time(std::process::id()).unwrap_or_default(),
            Clock::Simulated { .. } => CpuTime::default(),
        }
    }

    /// Whether the system is asked about the machine, the process and its threads, for figures. In a simulation it is not: such
    /// a figure would differ from run to run.
    pub fn is_of_machine(&self) -> bool {
        matches!(self, Clock::Machine { .. })
    }

    /// What the system has counted for the thread that asks, if it counts; a simulation has no threads of its own.
    pub fn thread_usage(&self) -> Option<Usage> {
        match self {
            Clock::Machine { .. } => Usage::now(),
            Clock::Simulated { .. } => None,
        }
    }

    /// The clock that measures scripts. A simulation's time stands still while a worker takes its turn.
    pub fn script_pace(&self) -> Pace {
        match self {
            Clock::Machine { .. } => Pace::Machine,
            Clock::Simulated { .. } => Pace::Look(SIMULATED_LOOK),
        }
    }

    /// The number of the process, which is told to clients, too.
    pub fn process_id(&self) -> u32 {
        match self {
            Clock::Machine { .. } => std::process::id(),
            Clock::Simulated { .. } => 1,
        }
    }

    /// Nanoseconds since the start, by the loops' clock.
    pub fn elapsed_ns(&self) -> u64 {
        self.elapsed().as_nanos() as u64
    }

    /// The system's time, milliseconds since the Unix epoch.
    pub fn system_ms(&self) -> Millis {
        self.system_ns() / 1_000_000
    }

    /// The system's time, nanoseconds since the Unix epoch.
    pub fn system_ns(&self) -> u64 {
        match self {
            Clock::Machine { .. } => {
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
            }
            Clock::Simulated { time, epoch_us } => (epoch_us.load(Relaxed) + time.now_us()) * 1000,
        }
    }
}

/// How much the system's time is ahead of the loops' clock, as a worker knows it: never too much, so that nothing expires early
/// and no time is told that is still to come.
///
/// ```text
/// loops' clock   before        after
///                   │  system    │        system − after ≤ base ≤ system − before
/// ```
///
/// The base stays while it may be right, and otherwise becomes the least that it may be. So it grows to what is right with each
/// reading, and the time that is told goes back only where the system's clock was set back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WallBase {
    ns: u64,
}

impl WallBase {
    /// Learns from a reading of the system's time between two looks at the loops' clock.
    pub fn learn(&mut self, before_ns: u64, system_ns: u64, after_ns: u64) {
        let (least, most) = (system_ns.saturating_sub(after_ns), system_ns.saturating_sub(before_ns));
        if self.ns < least || self.ns > most {
            self.ns = least;
        }
    }

    /// The system's time when the loops' is this, nanoseconds since the Unix epoch.
    #[inline]
    pub fn at(self, now_ns: u64) -> u64 {
        self.ns + now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_never_too_much_and_goes_back_only_with_the_system() {
        const AHEAD: u64 = 1_700_000_000_123_456_789;
        let mut base = WallBase::default();
        // What each of two looks at a clock takes: the first reading was interrupted.
        let (mut now, mut last) = (5_000, 0);
        for (one, other) in [(40, 3_000_000), (2_000_000, 70), (30, 30), (10, 900), (500, 20), (20, 25)] {
            let (before, system, after) = (now, now + one + AHEAD, now + one + other);
            base.learn(before, system, after);
            let told = base.at(after);
            assert!(last <= told && told <= after + AHEAD, "{last} {told}");
            (now, last) = (after + 1, told);
        }
        // The least of what came between the system's time and a look behind it.
        assert_eq!(AHEAD - base.ns, 20);
        for set in [AHEAD - 7_000_000_000, AHEAD + 1, AHEAD + 900_000_000] {
            base.learn(now, now + 30 + set, now + 60);
            assert_eq!(set - base.ns, 30, "what somebody has set is known at once");
        }
    }
}
