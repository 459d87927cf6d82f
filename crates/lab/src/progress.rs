//! The progress of an experiment or a load, on stderr: a bar on a terminal, a line every ten seconds elsewhere.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is written where there is no terminal.
const EVERY: Duration = Duration::from_secs(10);
/// The step of work that is shown by its time.
const SECOND: Duration = Duration::from_secs(1);
/// Work that takes longer is announced to the user.
const LONG: Duration = Duration::from_secs(120);

/// How long work of this time takes, in words; `None`: not so long that it is announced.
pub fn long(time: Duration) -> Option<String> {
    let minutes = (time.as_secs_f64() / 60.0).ceil();
    (time > LONG).then(|| format!("about {minutes:.0} minutes"))
}

/// The length of a piece of work.
#[derive(Clone, Copy, Debug)]
enum Length {
    /// Steps that take about the same time each.
    Steps(u64),
    /// Seconds, each of them a step; `None`: the end is not a time.
    Seconds(Option<u64>),
}

/// Progress of an experiment in steps that take about the same time each, or of a load in seconds.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    lines: Option<Lines>,
}

impl Progress {
    /// Progress of this many steps.
    pub fn new(steps: u64) -> Progress {
        Progress::of(Length::Steps(steps))
    }

    fn of(length: Length) -> Progress {
        let (bar, form) = match length {
            Length::Steps(steps) => (ProgressBar::new(steps), "{msg:<40!} {bar:30} {pos}/{len}, {eta} left"),
            Length::Seconds(Some(seconds)) => {
                (ProgressBar::new(seconds), "{msg:<40!} {bar:30} {pos}/{len} s, {eta} left")
            }
            Length::Seconds(None) => (ProgressBar::no_length(), "{msg:<40!} {pos} s"),
        };
        bar.set_style(ProgressStyle::with_template(form).expect("the form is right"));
        let lines = (!io::stderr().is_terminal()).then(|| Lines::begin(length, EVERY, io::stderr()));
        Progress { bar, lines }
    }

    /// Does `work`, and shows how many seconds have passed meanwhile: of `time`, if it takes that at most.
    pub fn seconds<T>(what: &str, time: Option<Duration>, work: impl FnOnce() -> T) -> T {
        let seconds = time.map(|time| time.as_secs_f64().ceil() as u64);
        let progress = Progress::of(Length::Seconds(seconds));
        progress.say(what);
        progress.counting(SECOND, seconds.unwrap_or(u64::MAX), work)
    }

    /// Does `work`, and counts a step each time that `every` has passed meanwhile, `most` steps at most.
    fn counting<T>(&self, every: Duration, most: u64, work: impl FnOnce() -> T) -> T {
        let (end, ended) = mpsc::channel::<()>();
        let count = move || {
            let mut due = Instant::now();
            for _ in 0..most {
                due += every;
                let wait = due.saturating_duration_since(Instant::now());
                if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                self.step();
            }
        };
        thread::scope(|scope| {
            // It is dropped when the work has ended, also by a panic, and then the thread ends, too.
            let _end = end;
            // Without a thread no steps are counted, and everything else works.
            let _ = thread::Builder::new().name("seconds".to_owned()).spawn_scoped(scope, count);
            work()
        })
    }

    /// Sets the name of the present step.
    pub fn say(&self, what: impl Into<String>) {
        let what: String = what.into();
        if let Some(lines) = &self.lines {
            lines.state().what.clone_from(&what);
        }
        self.bar.set_message(what);
    }

    /// Records that one step is done.
    pub fn step(&self) {
        self.advance(1);
    }

    /// Records that further steps are done.
    pub fn advance(&self, steps: u64) {
        if let Some(lines) = &self.lines {
            lines.state().done += steps;
        }
        self.bar.inc(steps);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A thread that prints the progress from time to time. A step may take minutes, so the steps cannot print it.
#[derive(Debug)]
struct Lines {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Clone, Debug, Default)]
struct State {
    what: String,
    done: u64,
    ended: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of another thread leaves a valid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    /// Writes a line to `out` once in each interval `every`, until it is dropped. Errors of writes are ignored.
    fn begin(length: Length, every: Duration, mut out: impl Write + Send + 'static) -> Lines {
        let shared = Arc::new(Shared::default());
        let mine = Arc::clone(&shared);
        let write = move || {
            let began = Instant::now();
            let mut due = began + every;
            let mut state = mine.state();
            while !state.ended {
                let now = Instant::now();
                if now >= due {
                    let text = line(&state, length, now - began);
                    due = now + every;
                    drop(state);
                    let _ = out.write_all(text.as_bytes());
                    state = mine.state();
                    continue;
                }
                let waited = mine.ended.wait_timeout(state, due - now);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        // Without a thread there are no lines, and everything else works.
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(write).ok();
        Lines { shared, thread }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.state().ended = true;
        self.shared.ended.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The progress after `elapsed`, and the time of the rest: of steps at the same speed.
fn line(state: &State, length: Length, elapsed: Duration) -> String {
    let &State { ref what, done, .. } = state;
    let (done, left_s) = match length {
        Length::Steps(steps) => {
            let rest = steps.saturating_sub(done) as f64 / done as f64;
            (format!("{done}/{steps}"), (done > 0).then(|| (elapsed.as_secs_f64() * rest).ceil()))
        }
        Length::Seconds(Some(seconds)) => {
            (format!("{done}/{seconds} s"), Some(seconds.saturating_sub(done) as f64))
        }
        Length::Seconds(None) => (format!("{done} s"), None),
    };
    let left = match left_s {
        None => "not known how long".to_owned(),
        Some(seconds) if seconds < 120.0 => format!("about {seconds:.0} s left"),
        Some(seconds) => format!("about {:.0} min left", (seconds / 60.0).ceil()),
    };
    format!("{done}, {left}: {what}\n")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Sends each line that is written.
    struct Sender(mpsc::Sender<String>);

    impl Write for Sender {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let line = String::from_utf8_lossy(bytes).into_owned();
            self.0.send(line).map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn without_a_terminal_lines_say_how_far_it_is_until_it_ends() {
        let (send, lines) = mpsc::channel();
        let progress = Lines::begin(Length::Steps(9), Duration::from_millis(1), Sender(send));
        // Also while no step ends.
        assert!(lines.recv().unwrap().starts_with("0/9, not known how long: "));
        {
            let mut state = progress.state();
            (state.done, state.what) = (3, "round 1: larder".to_owned());
        }
        let said =
            |line: &String| line.starts_with("3/9, about ") && line.ends_with("left: round 1: larder\n");
        assert!(lines.iter().any(|line| said(&line)));
        drop(progress);
        // The thread is gone, and its end of the channel.
        assert_eq!(lines.iter().filter(|line| !said(line)).count(), 0);
    }

    #[test]
    fn the_time_left_is_that_of_the_steps_so_far() {
        let of = |done: u64, seconds: u64| {
            line(&State { done, ..State::default() }, Length::Steps(60), Duration::from_secs(seconds))
        };
        assert_eq!(of(0, 10), "0/60, not known how long: \n");
        assert_eq!(of(20, 10), "20/60, about 20 s left: \n");
        assert_eq!(of(1, 10), "1/60, about 10 min left: \n");
        assert_eq!(of(60, 10), "60/60, about 0 s left: \n");
    }

    #[test]
    fn the_time_left_of_seconds_is_the_rest_of_them() {
        let of = |done: u64, seconds| {
            let state = State { done, what: "load".to_owned(), ..State::default() };
            line(&state, Length::Seconds(seconds), Duration::from_secs(done))
        };
        assert_eq!(of(0, Some(600)), "0/600 s, about 10 min left: load\n");
        assert_eq!(of(480, Some(600)), "480/600 s, about 2 min left: load\n");
        assert_eq!(of(481, Some(600)), "481/600 s, about 119 s left: load\n");
        assert_eq!(of(600, Some(600)), "600/600 s, about 0 s left: load\n");
        assert_eq!(of(30, None), "30 s, not known how long: load\n");
    }

    #[test]
    fn seconds_are_counted_until_the_work_has_ended_or_they_are_all() {
        let progress = Progress::of(Length::Seconds(Some(3)));
        let at_least = |steps: u64| {
            while progress.bar.position() < steps {
                thread::yield_now();
            }
            steps
        };
        assert_eq!(progress.counting(Duration::from_nanos(1), 3, || at_least(3)), 3);
        assert_eq!(progress.bar.position(), 3);
        // Work that ends before the first step, and that ends by a panic.
        let hour = Duration::from_secs(3600);
        assert_eq!(progress.counting(hour, u64::MAX, || 7), 7);
        let work = || progress.counting(hour, u64::MAX, || -> u64 { panic!("the work fails") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
        assert_eq!(progress.bar.position(), 3);
    }

    #[test]
    fn work_of_more_than_two_minutes_is_long() {
        assert_eq!((long(LONG - SECOND), long(LONG)), (None, None));
        assert_eq!(long(LONG + Duration::from_millis(1)).as_deref(), Some("about 3 minutes"));
        assert_eq!(long(5 * LONG).as_deref(), Some("about 10 minutes"));
    }
}
