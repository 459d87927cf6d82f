//! The time of a server: how long it runs, and what the system's clock says.
//!
//! ```text
//! started ──── since start: never back, the loops' clock ────►
//! 1970 ─────── the system's time: somebody may set it ───────►
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

/// Where time is simulated, scripts work for so long from one look at them to the next, so that one that goes on in later
/// turns is soon run.
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
        /// When it was started as the system's clock says now, milliseconds since the Unix epoch.
        epoch_ms: Arc<AtomicU64>,
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

    /// What tells how long a script has worked: a simulation's time stands still while a worker takes its turn.
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

    /// The system's time, milliseconds since the Unix epoch.
    pub fn system_ms(&self) -> Millis {
        match self {
            Clock::Machine { .. } => {
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as Millis)
            }
            Clock::Simulated { time, epoch_ms } => epoch_ms.load(Relaxed) + time.now_us() / 1000,
        }
    }
}
