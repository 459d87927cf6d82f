//! CPU facts: pinning a thread to a core, and the CPU time of threads and processes from /proc.

use std::io;
use std::time::Duration;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// Clock ticks per second in /proc/*/stat: USER_HZ, 100 on every Linux of this architecture.
const TICKS_PER_SECOND: u64 = 100;

/// CPU time of a thread or process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In its own code.
    pub user: Duration,
    /// In the kernel on its behalf.
    pub system: Duration,
}

impl CpuTime {
    /// User and system together.
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    /// What was spent since `earlier`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// Pins the calling thread to `core`; threads it starts later inherit that.
///
/// # Errors
/// What sched_setaffinity(2) says (no such core, or not allowed to use it).
pub fn pin_thread(core: usize) -> io::Result<()> {
    pin(None, core)
}

/// Pins the thread `tid` (a process id means its first thread) to `core`.
///
/// # Errors
/// As [`pin_thread`], and when there is no such thread.
pub fn pin_tid(tid: u32, core: usize) -> io::Result<()> {
    pin(Some(tid), core)
}

/// Lets the thread `tid` run on `cores` alone.
///
/// # Errors
/// As [`pin_tid`].
pub fn pin_tid_to(tid: u32, cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().filter(|&&core| core < CpuSet::MAX_CPU).for_each(|&core| set.set(core));
    Ok(sched_setaffinity(Pid::from_raw(tid as i32), &set)?)
}

fn pin(tid: Option<u32>, core: usize) -> io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(tid.and_then(|tid| Pid::from_raw(tid as i32)), &set)?)
}

/// Has thread `tid` (`None`: the calling thread) run before ordinary threads, as far as the system allows: at the highest of the
/// ordinary priorities. Threads that it starts later inherit that.
///
/// # Errors
/// What setpriority(2) says: not permitted without privileges, no such thread.
pub fn raise_priority(tid: Option<u32>) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(tid.and_then(|tid| Pid::from_raw(tid as i32)), -20)?)
}

/// Cores the calling thread may use, ascending.
///
/// # Errors
/// What sched_getaffinity(2) says; none in correct use.
pub fn cores() -> io::Result<Vec<usize>> {
    cores_of(None)
}

/// Cores the thread `tid` may use (`None`: the calling thread), ascending.
///
/// # Errors
/// When there is no such thread.
pub fn cores_of(tid: Option<u32>) -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(tid.and_then(|tid| Pid::from_raw(tid as i32)))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// CPU time of process `pid`, all threads, ended ones included; in steps of 10 ms.
///
/// # Errors
/// When /proc/`pid` cannot be read (no such process).
pub fn process_time(pid: u32) -> io::Result<CpuTime> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat"))?)
}

/// Time one thread has spent on a core, user and system together, to the nanosecond.
///
/// # Errors
/// When the thread cannot be read, or the kernel keeps no scheduler statistics.
pub fn thread_run_time(pid: u32, tid: u32) -> io::Result<Duration> {
    Ok(thread_turns(pid, tid)?.run)
}

/// How long one thread has run and has waited for a core, to the nanosecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Time on a core, user and system together.
    pub run: Duration,
    /// Time in which the thread was ready to run and was not on a core.
    pub wait: Duration,
}

/// Reads the [`Turns`] of a thread of process `pid`.
///
/// # Errors
/// When the thread cannot be read, or the kernel keeps no scheduler statistics.
pub fn thread_turns(pid: u32, tid: u32) -> io::Result<Turns> {
    turns(&std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat"))?)
}

/// Reads the [`Turns`] of the calling thread.
///
/// # Errors
/// As [`thread_turns`].
pub fn own_turns() -> io::Result<Turns> {
    turns(&std::fs::read_to_string("/proc/thread-self/schedstat")?)
}

/// `run wait timeslices`, the times in nanoseconds (sched-stats.rst).
fn turns(text: &str) -> io::Result<Turns> {
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse().map(Duration::from_nanos));
    match (fields.next(), fields.next()) {
        (Some(Ok(run)), Some(Ok(wait))) => Ok(Turns { run, wait }),
        _ => Err(io::Error::other("schedstat: unknown form")),
    }
}

/// How many cores the thread `tid` may use (a process id means its first thread).
///
/// # Errors
/// When there is no such thread.
pub fn core_count(tid: u32) -> io::Result<usize> {
    let set = sched_getaffinity(Pid::from_raw(tid as i32))?;
    Ok(set.count() as usize)
}

/// Time the living threads of process `pid` have spent on cores, to the nanosecond.
///
/// # Errors
/// When the process cannot be read.
pub fn process_run_time(pid: u32) -> io::Result<Duration> {
    // A thread may end between the listing and the reading; its time is gone with it.
    Ok(threads(pid)?.iter().filter_map(|&tid| thread_run_time(pid, tid).ok()).sum())
}

/// Ids of the living threads of process `pid`, ascending.
///
/// # Errors
/// When the process cannot be read.
pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let list = || {
        let mut tids = Vec::new();
        for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            tids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        tids.sort_unstable();
        io::Result::Ok(tids)
    };
    // When the thread that a listing has reached ends, the kernel omits one behind it. So the list is read until two in a row
    // agree.
    let (mut before, mut tids) = (list()?, list()?);
    while tids != before {
        (before, tids) = (tids, list()?);
    }
    Ok(tids)
}

/// Name of a thread (at most 15 bytes).
///
/// # Errors
/// When the thread cannot be read.
pub fn thread_name(pid: u32, tid: u32) -> io::Result<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"))?;
    Ok(text.trim_end_matches('\n').to_owned())
}

/// Fields 14 and 15 of proc_pid_stat(5). The second field is a name in parentheses that may itself
/// hold spaces and parentheses, so counting starts behind the last one.
fn parse_stat(text: &str) -> io::Result<CpuTime> {
    let parse = || {
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace().skip(11);
        let user: u64 = fields.next()?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let ticks = |n: u64| Duration::from_millis(n * 1000 / TICKS_PER_SECOND);
        Some(CpuTime { user: ticks(user), system: ticks(system) })
    };
    parse().ok_or_else(|| io::Error::other("stat: unknown form"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_behind_a_name_with_spaces_and_parentheses() {
        let line = "77 (a ) b) S 1 1 1 0 -1 4194560 1 2 3 4 250 31 0 0 20 0 1 0 5 6 7";
        let time = parse_stat(line).unwrap();
        assert_eq!(time, CpuTime { user: Duration::from_millis(2500), system: Duration::from_millis(310) });
        assert_eq!(time.total(), Duration::from_millis(2810));
        assert!(parse_stat("77 (x) S 1 2").is_err());
    }

    #[test]
    fn turns_are_the_first_two_fields() {
        let time = turns("1500 70 3\n").unwrap();
        assert_eq!(time, Turns { run: Duration::from_nanos(1500), wait: Duration::from_nanos(70) });
        assert!(turns("1500").is_err() && turns("").is_err() && turns("a b c").is_err());
        // The system counts the time of a new thread at its next tick.
        while own_turns().unwrap().run == Duration::ZERO {
            std::thread::yield_now();
        }
        assert_eq!(core_count(std::process::id()).unwrap(), cores().unwrap().len());
    }

    #[test]
    fn own_thread_is_pinned_named_and_timed() {
        std::thread::Builder::new()
            .name("cpu-test".into())
            .spawn(|| {
                let core = *cores().unwrap().last().unwrap();
                pin_thread(core).unwrap();
                assert_eq!(cores().unwrap(), [core]);
                let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                let pid = std::process::id();
                assert!(threads(pid).unwrap().contains(&tid));
                assert_eq!(thread_name(pid, tid).unwrap(), "cpu-test");
                let spin = (0..2_000_000u64).fold(0, |a, b| std::hint::black_box(a ^ b));
                std::hint::black_box(spin);
                // The system counts the time of a thread at its next tick.
                while thread_run_time(pid, tid).unwrap() == Duration::ZERO {
                    std::thread::yield_now();
                }
                assert!(process_run_time(pid).unwrap() > Duration::ZERO);
                process_time(pid).unwrap();
            })
            .unwrap()
            .join()
            .unwrap();
    }

    #[test]
    fn a_core_that_does_not_exist_is_an_error() {
        assert!(pin_thread(CpuSet::MAX_CPU).is_err());
    }
}
