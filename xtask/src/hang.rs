//! Ends a stage that hangs, and lists the programs that it was waiting for: the other stages still run.
//!
//! A stage hangs when it prints nothing and its programs use next to no processor time for [`PATIENCE`], or when they use
//! [`SPIN`] of it without a line. Neither limits how long a stage may take: a slow or busy machine reaches neither.

use crate::machine::{parent, ticks};
use crate::run::{Outcome, lines_printed};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a stage may do nothing.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// Processor time that counts as none in that time: idle servers still look at their clocks.
const IDLE: Duration = Duration::from_secs(10);
/// The most processor time of a stage between two lines.
const SPIN: Duration = Duration::from_secs(60 * 60);
/// The interval at which a stage is checked.
const LOOK: Duration = Duration::from_secs(2);
/// Ticks of processor time a second, on every Linux.
const TICKS_A_SECOND: u64 = 100;
/// How long a stage whose programs were ended may take to return, before its newer programs are ended too.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether the running stage is being ended, with everything that it still starts.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Whether the running stage was found to hang: what it starts now must fail.
pub fn is_ended() -> bool {
    ENDS.load(Relaxed)
}

/// The error of a stage that was ended.
#[derive(Debug)]
struct Hang {
    why: String,
    running: Vec<(u32, String)>,
}

/// What a stage has done so far: processor time of its programs, and lines that they printed.
#[derive(Clone, Copy, Debug)]
struct Done {
    ticks: u64,
    lines: u64,
}

/// When a stage last made progress.
#[derive(Debug)]
struct Progress {
    since: Instant,
    /// The counts when it had last used more than [`IDLE`], or printed a line.
    moved: Done,
    /// The counts when it had last printed a line.
    told: Done,
}

impl Progress {
    fn new(now: Instant, done: Done) -> Progress {
        Progress { since: now, moved: done, told: done }
    }

    /// Checks it again; returns why it hangs, if it does.
    fn look(&mut self, now: Instant, done: Done, patience: Duration) -> Option<String> {
        if done.lines != self.told.lines {
            *self = Progress::new(now, done);
            return None;
        }
        let used = |since: Done| Duration::from_secs(done.ticks.saturating_sub(since.ticks) / TICKS_A_SECOND);
        if used(self.told) >= SPIN {
            return Some(format!("{} minutes of processor time without a line", SPIN.as_secs() / 60));
        }
        if used(self.moved) >= IDLE || done.ticks < self.moved.ticks {
            (self.since, self.moved) = (now, done);
            return None;
        }
        let idle = now.duration_since(self.since);
        (idle >= patience).then(|| format!("nothing happened for {} seconds", idle.as_secs()))
    }
}

/// Runs a stage. If it hangs, all programs below this process are listed and ended, until it returns.
pub fn unless_it_hangs(stage: fn() -> Outcome) -> Outcome {
    watched(stage, PATIENCE, LOOK)
}

fn watched(stage: fn() -> Outcome, patience: Duration, look: Duration) -> Outcome {
    let (done, over) = mpsc::channel::<()>();
    let watcher = std::thread::spawn(move || {
        let ended = |wait| !matches!(over.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
        let now = || Done { ticks: used_below(std::process::id()), lines: lines_printed() };
        let mut progress = Progress::new(Instant::now(), now());
        let why = loop {
            if ended(look) {
                return None;
            }
            if let Some(why) = progress.look(Instant::now(), now(), patience) {
                break why;
            }
        };
        let running = below(std::process::id());
        // Set before any program is ended: the waiting stage reads it afterwards.
        ENDS.store(true, Relaxed);
        loop {
            let ids: Vec<String> = below(std::process::id()).iter().map(|(id, _)| id.to_string()).collect();
            if !ids.is_empty() {
                let _ = Command::new("kill").arg("-KILL").args(ids).status();
            }
            if ended(AGAIN) {
                return Some(Hang { why, running });
            }
        }
    });
    let outcome = stage();
    drop(done);
    let Some(hang) = watcher.join().expect("the watcher does not panic") else { return outcome };
    ENDS.store(false, Relaxed);
    let lines: String = hang.running.iter().map(|(id, line)| format!("\n  {id} {line}")).collect();
    let said = outcome.err().unwrap_or_default();
    Err(format!("it hangs: {}; these ran, and were ended:{lines}\n{said}", hang.why))
}

fn stat(id: u32) -> String {
    std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default()
}

/// Processor time of a process and of all processes below it.
fn used_below(ancestor: u32) -> u64 {
    ids_below(ancestor).into_iter().map(|id| ticks(&stat(id))).sum()
}

/// A process and those below it, parents before children.
fn ids_below(ancestor: u32) -> Vec<u32> {
    let ids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()));
    let parents: Vec<(u32, u32)> = ids.filter_map(|id| Some((id, parent(&stat(id))?))).collect();
    let mut found = vec![ancestor];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(id, _)| *id));
        at += 1;
    }
    found
}

/// The processes below one, with their command lines.
fn below(ancestor: u32) -> Vec<(u32, String)> {
    let line = |id: u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").chars().take(200).collect()
    };
    ids_below(ancestor).into_iter().skip(1).map(|id| (id, line(id))).collect()
}

/// One of these tests ends everything that this process has started: tests that start programs hold this lock.
#[cfg(test)]
pub fn nobody_is_ended() -> std::sync::MutexGuard<'static, ()> {
    static ENDING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ENDING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::again;
    use crate::run::{all_of, command, run};

    #[test]
    fn a_stage_that_does_nothing_is_ended_with_all_it_started() {
        let _no_other = nobody_is_ended();
        let hangs = || {
            let _ = run(command("sh", &["-c", "sleep 4712 & wait"]));
            let not_again = again("it", "it was killed", || Ok(()));
            all_of([not_again, run(command("sleep", &["4713"]))])
        };
        let error = watched(hangs, Duration::from_secs(10), Duration::from_millis(20)).unwrap_err();
        assert!(error.contains("nothing happened"), "{error}");
        assert!(error.contains("sleep 4712"), "{error}");
        assert!(error.contains("it was killed\nit: was not run again, as the stage was ended"), "{error}");
        assert!(error.contains("sleep 4713 failed"), "{error}");
        assert!(!is_ended());
        let left: Vec<_> =
            below(std::process::id()).into_iter().filter(|(_, line)| line.contains("471")).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn a_stage_that_ends_is_as_it_says() {
        assert_eq!(unless_it_hangs(|| Ok(())), Ok(()));
        assert_eq!(unless_it_hangs(|| Err("no".to_owned())), Err("no".to_owned()));
    }

    #[test]
    fn a_stage_gets_on_by_a_line_or_by_work_and_hangs_without_either() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let done = |seconds: u64, lines| Done { ticks: seconds * TICKS_A_SECOND, lines };
        let mut progress = Progress::new(start, done(0, 0));
        // A slow machine: a second of work in a minute, for an hour.
        for minute in 1..60 {
            let told = progress.look(start + 60 * minute * second, done(u64::from(minute) * 3, 0), PATIENCE);
            assert_eq!(told, None, "minute {minute}");
        }
        // A line, and then nothing.
        let start = start + 3600 * second;
        assert_eq!(progress.look(start, done(180, 1), PATIENCE), None);
        assert_eq!(progress.look(start + 299 * second, done(189, 1), PATIENCE), None);
        assert!(progress.look(start + 300 * second, done(189, 1), PATIENCE).is_some());
        // A line, and then work without end.
        let start = start + 600 * second;
        assert_eq!(progress.look(start, done(200, 2), PATIENCE), None);
        assert_eq!(progress.look(start + 60 * second, done(200 + 3599, 2), PATIENCE), None);
        assert!(progress.look(start + 61 * second, done(200 + 3600, 2), PATIENCE).is_some());
        assert_eq!(progress.look(start + 62 * second, done(200 + 3601, 3), PATIENCE), None);
    }
}
