//! Time in which a thread was ready to run and had no core, because other programs used it.
//!
//! The second field of `/proc/<pid>/task/<tid>/schedstat` is the time that a thread waited in a run queue, in nanoseconds
//! (sched-stats.rst). It is read for the server's threads and for the generator's, before and after the timed part. If a server
//! has more threads than cores, its own threads wait for each other. That is subtracted: while a thread waits for its siblings,
//! they run on all `c` of their cores, so such waits are no longer than a `c`-th of what they ran. The generator may be a driver,
//! a process of its own with any number of threads.

use std::time::{Duration, Instant};

use crate::contender::Contender;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::placement::Threads;
use crate::results::of_time;
use crate::usage::{ThreadUsage, Usage};

/// How often a visit is repeated.
const REPEATS_MAX: u32 = 2;
/// A thread with less than this share of the busiest one's time makes no other wait.
const IDLE_SHARE: f64 = 0.02;

/// Shares of a visit's time in which threads waited for a core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waited {
    /// The longest wait of a server's thread, without waits for its siblings; `None` where its process is not seen.
    pub server: Option<f64>,
    /// The longest wait of a generator's thread.
    pub generator: f64,
}

impl Waited {
    /// The larger of the two.
    pub fn most(self) -> f64 {
        self.server.unwrap_or(0.0).max(self.generator)
    }

    /// The shares in words.
    pub fn words(self) -> String {
        let server = match self.server {
            Some(share) => format!("the server waited for its core {:.1} % of the time", 100.0 * share),
            None => "the server's threads are not seen".to_owned(),
        };
        format!("{server}, the generator {:.1} %", 100.0 * self.generator)
    }
}

/// The longest time, between two readings, in which one of the threads, which may run on `cores` cores, waited for a core because
/// of other threads than its siblings. Siblings that have ended in between ran for `ended`.
pub fn foreign_wait(
    before: &[ThreadUsage],
    after: &[ThreadUsage],
    ended: Duration,
    cores: usize,
) -> Duration {
    let since = |thread: &ThreadUsage| {
        let earlier = before.iter().find(|earlier| earlier.tid == thread.tid);
        let (run, wait) =
            earlier.map_or((Duration::ZERO, Duration::ZERO), |earlier| (earlier.run, earlier.wait));
        (thread.run.saturating_sub(run), thread.wait.saturating_sub(wait))
    };
    let all: Vec<(Duration, Duration)> = after.iter().map(since).collect();
    let most = all.iter().map(|(run, wait)| *run + *wait).max().unwrap_or_default();
    let awake =
        |(run, wait): &(Duration, Duration)| (*run + *wait).as_secs_f64() > IDLE_SHARE * most.as_secs_f64();
    // As many threads as cores do not have to wait for each other.
    let crowded = all.iter().filter(|times| awake(times)).count() > cores || !ended.is_zero();
    let run: Duration = ended + all.iter().map(|(run, _)| *run).sum::<Duration>();
    let foreign = |(own, wait): &(Duration, Duration)| match crowded {
        true => wait.saturating_sub((run - *own) / cores.max(1) as u32),
        false => *wait,
    };
    all.iter().filter(|times| awake(times)).map(foreign).max().unwrap_or_default()
}

/// Measures the waits of threads for a core while a driver works on a server.
#[derive(Debug)]
pub struct Watch {
    began: Instant,
    server: Option<Threads>,
    driver: u32,
    threads: Threads,
    /// CPU time of this process, if it relays between the two: its waits delay them, too.
    relay: Option<Duration>,
}

impl Watch {
    /// Begins the measurement; to be called right before the driver starts.
    ///
    /// # Errors
    /// When one of the processes is gone.
    pub fn begin(server: &Contender, driver: u32, relays: bool) -> Result<Watch, Error> {
        let relay = if relays { Some(Usage::of(std::process::id())?.run) } else { None };
        let (server, threads) = (server.threads()?, Threads::of(driver)?);
        Ok(Watch { began: Instant::now(), server, driver, threads, relay })
    }

    /// Ends the measurement; to be called right after the driver, whose process ran for `run`.
    ///
    /// # Errors
    /// One of the processes has ended.
    pub fn end(self, server: &Contender, run: Duration) -> Result<Waited, Error> {
        let elapsed = self.began.elapsed();
        let driver = self.threads.waited(self.driver, run)?;
        let placement = server.placement(self.server.as_ref())?;
        let relay = match self.relay {
            Some(before) => Usage::of(std::process::id())?.run.saturating_sub(before),
            None => Duration::ZERO,
        };
        let share =
            |wait: Duration| wait.saturating_sub(relay).as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
        Ok(Waited { server: placement.map(|placement| share(placement.waited)), generator: share(driver) })
    }
}

/// Visits until no thread waited for a core for a larger share than `bound`, three times at most, and returns the best visit.
///
/// # Errors
/// Those of `visit`.
pub fn least_disturbed<T>(
    bound: f64,
    mut visit: impl FnMut() -> Result<(T, Waited), Error>,
) -> Result<(T, Waited), Error> {
    let mut best = visit()?;
    for _ in 0..REPEATS_MAX {
        if best.1.most() <= bound {
            break;
        }
        let next = visit()?;
        if next.1.most() < best.1.most() {
            best = next;
        }
    }
    Ok(best)
}

impl Experiment {
    /// Visits until no thread waited for a core for longer than `--wait-max` allows, three times at most, and returns the best
    /// visit. If even that was disturbed, the run is not valid. `name` is the server's.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn undisturbed<T>(
        &mut self,
        name: &str,
        mut visit: impl FnMut(&mut Experiment) -> Result<(T, Waited), Error>,
    ) -> Result<T, Error> {
        let bound = self.options.wait_max / 100.0;
        let (best, waited) = least_disturbed(bound, || visit(self))?;
        self.note_waited(name, waited);
        Ok(best)
    }

    /// Checks that no thread waited for a core for longer than `--wait-max` allows.
    pub fn note_waited(&mut self, name: &str, waited: Waited) {
        let bound = self.options.wait_max;
        self.checks.add_off(of_time::CORES, 100.0 * waited.most() <= bound, waited.most(), || {
            format!("{name}: {}; {bound} % are allowed", waited.words())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: u32, run_ms: u64, wait_ms: u64) -> ThreadUsage {
        let ms = Duration::from_millis;
        ThreadUsage { tid, name: String::new(), run: ms(run_ms), wait: ms(wait_ms) }
    }

    fn foreign_ms(after: &[ThreadUsage], cores: usize) -> u128 {
        let before: Vec<ThreadUsage> = after.iter().map(|have| thread(have.tid, 0, 0)).collect();
        foreign_wait(&before, after, Duration::ZERO, cores).as_millis()
    }

    #[test]
    fn a_thread_that_shares_its_core_with_strangers_waits_for_them() {
        assert_eq!(foreign_ms(&[thread(1, 200, 800)], 1), 800);
        let (before, after) = ([thread(1, 1_000, 5_000)], [thread(1, 1_900, 5_100), thread(2, 0, 0)]);
        assert_eq!(foreign_wait(&before, &after, Duration::ZERO, 1), Duration::from_millis(100));
    }

    #[test]
    fn a_visit_is_repeated_while_it_is_disturbed_and_the_best_counts() {
        let run = |shares: &[f64]| {
            let mut rest = shares.iter().copied().enumerate();
            let visit = || {
                let (at, generator) = rest.next().expect("no more visits than that");
                Ok((at, Waited { server: None, generator }))
            };
            least_disturbed(0.05, visit).unwrap()
        };
        assert_eq!(run(&[0.01]).0, 0);
        assert_eq!(run(&[0.2, 0.04]).0, 1);
        let (best, waited) = run(&[0.2, 0.1, 0.3]);
        assert_eq!((best, waited.most()), (1, 0.1));
    }

    #[test]
    fn threads_of_one_server_that_share_a_core_do_not_count_as_strangers() {
        // Two workers and a thread for the clock, on one core of their own.
        assert_eq!(foreign_ms(&[thread(1, 500, 490), thread(2, 480, 500), thread(3, 20, 900)], 1), 0);
        // The same beside another program that takes half of the core.
        assert_eq!(foreign_ms(&[thread(1, 250, 740), thread(2, 240, 750)], 1), 500);
        // A thread waited for siblings that have ended, or partly so.
        let (before, after) = ([thread(1, 0, 0)], [thread(1, 100, 400)]);
        let foreign =
            |ended_ms| foreign_wait(&before, &after, Duration::from_millis(ended_ms), 1).as_millis();
        assert_eq!((foreign(0), foreign(300), foreign(500)), (400, 100, 0));
        // As many cores as threads: a thread that waits there waits for another program.
        assert_eq!(foreign_ms(&[thread(1, 1_000, 0), thread(2, 400, 600)], 2), 600);
    }
}
