//! The progress of an experiment, on stderr: a bar on a terminal, a line every ten seconds elsewhere.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is written where there is no terminal.
const EVERY: Duration = Duration::from_secs(10);

/// Progress of an experiment in steps that take about the same time each.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    lines: Option<Lines>,
}

impl Progress {
    /// Progress of this many steps.
    pub fn new(steps: u64) -> Progress {
        let bar = ProgressBar::new(steps);
        let form = "{msg:<40!} {bar:30} {pos}/{len}, {eta} left";
        bar.set_style(ProgressStyle::with_template(form).expect("the form is right"));
        let lines = (!io::stderr().is_terminal()).then(|| Lines::begin(steps, EVERY, io::stderr()));
        Progress { bar, lines }
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
        if let Some(lines) = &self.lines {
            lines.state().done += 1;
        }
        self.bar.inc(1);
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
    fn begin(steps: u64, every: Duration, mut out: impl Write + Send + 'static) -> Lines {
        let shared = Arc::new(Shared::default());
        let mine = Arc::clone(&shared);
        let write = move || {
            let began = Instant::now();
            let mut due = began + every;
            let mut state = mine.state();
            while !state.ended {
                let now = Instant::now();
                if now >= due {
                    let text = line(&state, steps, now - began);
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

/// The progress after `elapsed`, and the time of the rest at the same speed.
fn line(state: &State, steps: u64, elapsed: Duration) -> String {
    let State { what, done, .. } = state;
    let left = match done {
        0 => "not known how long".to_owned(),
        done => {
            let rest = steps.saturating_sub(*done) as f64 / *done as f64;
            let seconds = (elapsed.as_secs_f64() * rest).ceil();
            match seconds {
                seconds if seconds < 120.0 => format!("about {seconds:.0} s left"),
                seconds => format!("about {:.0} min left", (seconds / 60.0).ceil()),
            }
        }
    };
    format!("{done}/{steps}, {left}: {what}\n")
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
        let progress = Lines::begin(9, Duration::from_millis(1), Sender(send));
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
            line(&State { done, ..State::default() }, 60, Duration::from_secs(seconds))
        };
        assert_eq!(of(0, 10), "0/60, not known how long: \n");
        assert_eq!(of(20, 10), "20/60, about 20 s left: \n");
        assert_eq!(of(1, 10), "1/60, about 10 min left: \n");
        assert_eq!(of(60, 10), "60/60, about 0 s left: \n");
    }
}
