//! The CPU time and memory of a server process, from /proc.
//!
//! CPU time is the sum over the process's threads of the first field of `/proc/<pid>/task/<tid>/schedstat`: time on a core, in
//! nanoseconds. The kernel scales `utime + stime` of `/proc/<pid>/stat` to it, too, and prints these in steps of 10 ms; the test
//! below compares the two. While a thread runs, its figure is updated at every tick (1–4 ms) and when it sleeps: between runs of
//! the generator servers sleep, so readings are exact. Only the split into user and system time has to come from the coarse file.
//! Interrupts that a thread is charged with (the loopback receive of its sends) are included; time stolen by a hypervisor is not,
//! on kernels that know it.

use std::fs;
use std::time::Duration;

use larder_eventloop::cpu::{self, CpuTime};

use crate::error::Error;

/// CPU time of a process so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Time on a core, user and system, of all living threads.
    pub run: Duration,
    /// User and system time separately, in steps of 10 ms, and of ended threads, too.
    pub split: CpuTime,
}

impl Usage {
    /// Reads the times.
    ///
    /// # Errors
    /// When there is no such process any more.
    pub fn of(pid: u32) -> Result<Usage, Error> {
        let gone = |error| Error::System("reading a server's CPU time", error);
        let split = cpu::process_time(pid).map_err(gone)?;
        let run = cpu::process_run_time(pid).unwrap_or_default();
        Ok(Usage { run: if run.is_zero() { split.total() } else { run }, split })
    }

    /// The use since `earlier`.
    pub fn since(self, earlier: Usage) -> Usage {
        Usage { run: self.run.saturating_sub(earlier.run), split: self.split.since(earlier.split) }
    }
}

/// CPU time of one thread.
#[derive(Clone, Debug)]
pub struct ThreadUsage {
    /// Thread id.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Time on a core.
    pub run: Duration,
    /// Time in which it was ready to run and was not on a core.
    pub wait: Duration,
}

/// CPU time of each thread of a process, to distinguish busy from idle ones.
///
/// # Errors
/// When there is no such process any more.
pub fn threads(pid: u32) -> Result<Vec<ThreadUsage>, Error> {
    let tids = cpu::threads(pid).map_err(|error| Error::System("listing a server's threads", error))?;
    let read = |tid| {
        let cpu::Turns { run, wait } = cpu::thread_turns(pid, tid).ok()?;
        Some(ThreadUsage { tid, name: cpu::thread_name(pid, tid).ok()?, run, wait })
    };
    Ok(tids.into_iter().filter_map(read).collect())
}

/// Resident memory of a process in bytes, with its swapped memory: `Rss` and `Swap` of `smaps_rollup`, which counts page by page,
/// where `statm` may lag.
///
/// # Errors
/// When it cannot be read.
pub fn rss_bytes(pid: u32) -> Result<u64, Error> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(path).map_err(|error| Error::System("reading a server's memory", error))?;
    memory_of(&text)
        .ok_or_else(|| Error::System("reading a server's memory", std::io::Error::other("unknown form")))
}

/// The sum in a text like `smaps_rollup`.
fn memory_of(text: &str) -> Option<u64> {
    let field = |name: &str| {
        let of = |line: &str| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok();
        text.lines().find_map(of)
    };
    Some((field("Rss:")? + field("Swap:").unwrap_or(0)) * 1024)
}

/// Time stolen from this machine's cores by its hypervisor, all cores, and all time that passed on
/// them, in ticks.
pub fn steal_ticks() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<u64> =
        text.lines().next()?.split_ascii_whitespace().skip(1).filter_map(|f| f.parse().ok()).collect();
    Some((*fields.get(7)?, fields.iter().take(8).sum()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn run_time_agrees_with_user_and_system_time() {
        // A process of its own: threads of other tests come and go in this one.
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let (before, after) = loop {
            std::thread::sleep(Duration::from_millis(20));
            let before = Usage::of(busy.id()).unwrap();
            if before.run >= Duration::from_millis(300) {
                break (before, Usage::of(busy.id()).unwrap());
            }
        };
        busy.kill().unwrap();
        busy.wait().unwrap();
        // They are read in turns: each lies between the reading of the other before it and the one after it, however late those
        // are. One is cut to 10 ms twice and updated at ticks.
        let (off, split) = (Duration::from_millis(100), after.split.total());
        assert!(before.run <= split + off && split <= after.run + off, "{before:?} {after:?}");
    }

    #[test]
    fn what_is_swapped_out_is_taken_as_well() {
        let text = "5581c0a00000-7ffd4a5f5000 ---p 00000000 00:00 0  [rollup]\nRss:  100 kB\nPss: 90 kB\nSwap:   28 kB\n";
        assert_eq!(memory_of(text), Some(128 * 1024));
        assert_eq!(memory_of("Rss: 5 kB\n"), Some(5 * 1024));
        assert_eq!(memory_of("Swap: 5 kB\n"), None);
    }

    #[test]
    fn own_memory_and_threads_can_be_read() {
        let pid = std::process::id();
        assert!(rss_bytes(pid).unwrap() > 100_000);
        assert!(threads(pid).unwrap().iter().any(|thread| !thread.name.is_empty()));
        assert!(rss_bytes(u32::MAX).is_err());
    }
}
