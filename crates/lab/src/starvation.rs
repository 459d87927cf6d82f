//! Time in which a thread was ready to run and did not: somebody else had its core.
//!
//! The second field of `/proc/<pid>/task/<tid>/schedstat` is the time that a thread waited in a run queue, in
//! nanoseconds (sched-stats.rst). It is read of the server's threads and of the generator's, before and after what is
//! timed. A server's own threads wait for each other where they have fewer cores than they are; that is its own doing
//! and is taken off: while a thread waits for its siblings, they run on all `c` of their cores, so such waits are no
//! longer than a `c`-th of what they ran.

use std::time::Duration;

use crate::error::Error;
use crate::experiment::Experiment;
use crate::results::of_time;
use crate::usage::ThreadUsage;

/// A visit is repeated so often.
const REPEATS_MAX: u32 = 2;
/// A thread that wanted less than this share of the busiest one's time is no reason for others to wait.
const IDLE_SHARE: f64 = 0.02;

/// Shares of a visit's time in which threads were kept from their cores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waited {
    /// Of the server's worst off thread, without waits for its siblings; `None` where its process is not seen.
    pub server: Option<f64>,
    /// Of the generator's worst off thread.
    pub generator: f64,
}

impl Waited {
    /// The larger of both.
    pub fn most(self) -> f64 {
        self.server.unwrap_or(0.0).max(self.generator)
    }

    /// In words.
    pub fn words(self) -> String {
        let server = match self.server {
            Some(share) => format!("the server waited for its core {:.1} % of the time", 100.0 * share),
            None => "the server's threads are not seen".to_owned(),
        };
        format!("{server}, the generator {:.1} %", 100.0 * self.generator)
    }
}

/// The longest time that one of the threads, which may run on `cores` cores, was kept from them by others than its
/// siblings, between two readings.
pub fn foreign_wait(before: &[ThreadUsage], after: &[ThreadUsage], cores: usize) -> Duration {
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
    // No more threads than cores have no need to wait for each other.
    let crowded = all.iter().filter(|times| awake(times)).count() > cores;
    let run: Duration = all.iter().map(|(run, _)| *run).sum();
    let foreign = |(own, wait): &(Duration, Duration)| match crowded {
        true => wait.saturating_sub((run - *own) / cores.max(1) as u32),
        false => *wait,
    };
    all.iter().filter(|times| awake(times)).map(foreign).max().unwrap_or_default()
}

impl Experiment {
    /// Visits until nobody was kept from a core for longer than `--wait-max` allows, three times at most, and gives the
    /// best of them. If even that was disturbed, the run is not valid. `name` is the server's.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn undisturbed<T>(
        &mut self,
        name: &str,
        mut visit: impl FnMut(&mut Experiment) -> Result<(T, Waited), Error>,
    ) -> Result<T, Error> {
        let bound = self.options.wait_max / 100.0;
        let mut best = visit(self)?;
        for _ in 0..REPEATS_MAX {
            if best.1.most() <= bound {
                break;
            }
            let next = visit(self)?;
            if next.1.most() < best.1.most() {
                best = next;
            }
        }
        self.note_waited(name, best.1);
        Ok(best.0)
    }

    /// Checks that nobody was kept from a core for longer than `--wait-max` allows.
    pub fn note_waited(&mut self, name: &str, waited: Waited) {
        let bound = self.options.wait_max;
        self.checks.add(of_time::CORES, 100.0 * waited.most() <= bound, || {
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
        foreign_wait(&before, after, cores).as_millis()
    }

    #[test]
    fn a_thread_that_shares_its_core_with_strangers_waits_for_them() {
        assert_eq!(foreign_ms(&[thread(1, 200, 800)], 1), 800);
        let (before, after) = ([thread(1, 1_000, 5_000)], [thread(1, 1_900, 5_100), thread(2, 0, 0)]);
        assert_eq!(foreign_wait(&before, &after, 1), Duration::from_millis(100));
    }

    #[test]
    fn threads_of_one_server_that_share_a_core_do_not_count_as_strangers() {
        // Two workers and one that sees to the clock, on one core of their own.
        assert_eq!(foreign_ms(&[thread(1, 500, 490), thread(2, 480, 500), thread(3, 20, 900)], 1), 0);
        // The same beside a stranger that takes half of it.
        assert_eq!(foreign_ms(&[thread(1, 250, 740), thread(2, 240, 750)], 1), 500);
        // As many cores as threads: whoever waits there waits for a stranger.
        assert_eq!(foreign_ms(&[thread(1, 1_000, 0), thread(2, 400, 600)], 2), 600);
    }
}
