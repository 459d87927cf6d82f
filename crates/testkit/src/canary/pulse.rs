//! Pauses of the workers' core: a thread wakes up on that core twice in a millisecond, before all others of it, and sees how late
//! it is. The host of a virtual machine stops a core when it has other work for its own, some milliseconds at a time. The system
//! inside does not notice, and counts that time for the thread that ran.
//!
//! ```text
//! wanted  ┬────────┬────────┬────────┬────────┬────────┬──
//! woke    ┬────────┬────────┬░░░░░░░░░░░░░░░░░░░░░░░┬──┬──     ░ the core stood: late, and not because another ran:
//!                                                                what the system knows that it stood is not counted
//! ```

use super::{Thread, hurry};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two wake-ups.
const EVERY: Duration = Duration::from_micros(500);
/// Usual wake-ups are late by less than this.
const USUAL_US: u64 = 300;

/// A time in which the core stood still.
#[derive(Clone, Debug)]
pub(super) struct Pause {
    /// Its beginning, in microseconds since the first question.
    pub from_us: u64,
    /// Its length.
    pub took_us: u64,
    /// How long each worker ran between the last two wake-ups.
    pub ran_us: Vec<u64>,
}

/// Watches when a core stands still.
#[derive(Debug)]
pub(super) struct Pulse {
    core: usize,
    workers: Vec<Thread>,
}

impl Pulse {
    /// The pulse of a server's core; `None` if the server has more than one core.
    pub fn of(pid: u32, workers: Vec<Thread>) -> io::Result<Option<Pulse>> {
        let cores = sched_getaffinity(i32::try_from(pid).ok().and_then(Pid::from_raw))?;
        let mut of_server = (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core));
        let core = of_server.next().filter(|_| of_server.next().is_none());
        Ok(core.map(|core| Pulse { core, workers }))
    }

    /// Watches for as long as `runs` is true.
    pub fn beat(self, started: Instant, runs: impl Fn() -> bool) -> io::Result<Vec<Pause>> {
        let mut set = CpuSet::new();
        set.set(self.core);
        sched_setaffinity(None, &set)?;
        hurry();
        let own = Thread::own()?;
        let look =
            || self.workers.iter().map(|worker| Ok(worker.times()?.ran_us)).collect::<io::Result<Vec<_>>>();
        let (mut ran, mut stood, mut pauses) = (look()?, own.times()?.stood_us, Vec::new());
        while runs() {
            let wanted = Instant::now() + EVERY;
            thread::sleep(EVERY);
            let late = wanted.elapsed().as_micros() as u64;
            let (ran_now, stood_now) = (look()?, own.times()?.stood_us);
            let took_us = late.saturating_sub(stood_now - stood);
            if took_us > USUAL_US {
                pauses.push(Pause {
                    from_us: wanted.saturating_duration_since(started).as_micros() as u64,
                    took_us,
                    ran_us: ran_now.iter().zip(&ran).map(|(now, before)| now - before).collect(),
                });
            }
            (ran, stood) = (ran_now, stood_now);
        }
        Ok(pauses)
    }
}
