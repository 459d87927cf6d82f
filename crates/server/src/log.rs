//! The log: structured events to stderr, with a level that `-v` sets and `verbosity` changes.
//!
//! A thread of its own writes them: where stderr is not read, lines are dropped and counted, and no worker waits.

use std::io::{self, Stderr, Write};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use larder_eventloop::Millis;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, reload};

use crate::confine::{Confinement, Role};

/// The level of the log, and how much was written.
#[derive(Clone, Debug, Default)]
pub struct Log {
    level: Arc<AtomicU8>,
    lines: Arc<AtomicU64>,
    handle: Option<reload::Handle<LevelFilter, Registry>>,
    dropped: Option<ErrorCounter>,
    /// What its thread is limited to; `queue` wakes the thread.
    confinement: Arc<OnceLock<Confinement>>,
    queue: Option<NonBlocking>,
    _writer: Option<Arc<Writer>>,
}

/// The thread that writes. When the last log is gone it has a while to write what is left.
#[derive(Debug)]
struct Writer {
    given: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
    dropped: ErrorCounter,
    /// The thread is left running: where stderr is not read, its end would print to stdout, which may be closed, and panic.
    _thread: ManuallyDrop<WorkerGuard>,
}

/// How long the log is waited for at the end.
const LAST_LINES: Duration = Duration::from_millis(500);

impl Drop for Writer {
    fn drop(&mut self) {
        let left = || {
            let done = self.written.load(Relaxed) + self.dropped.dropped_lines() as u64;
            self.given.load(Relaxed).saturating_sub(done)
        };
        let until = Instant::now() + LAST_LINES;
        while left() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// stderr, whose lines are counted.
struct Counted {
    stderr: Stderr,
    written: Arc<AtomicU64>,
    confinement: Arc<OnceLock<Confinement>>,
    is_confined: bool,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stderr.write(bytes)
    }

    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        if !self.is_confined
            && let Some(confinement) = self.confinement.get()
        {
            self.is_confined = true;
            confinement.enter(Role::Log);
        }
        if line.is_empty() {
            return Ok(());
        }
        let written = self.stderr.write_all(line);
        self.written.fetch_add(1, Relaxed);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stderr.flush()
    }
}

/// Most lines that wait for the reader of stderr.
const LINES_WAITING_MAX: usize = 1024;

impl Log {
    /// Starts the log at a verbosity. Only the first log of a process writes.
    pub fn start(level: u8) -> Log {
        let (filter, handle) = reload::Layer::new(filter(level));
        let lines = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lines);
        let written = Arc::new(AtomicU64::new(0));
        let confinement = Arc::default();
        let writer = Counted {
            stderr: io::stderr(),
            written: Arc::clone(&written),
            confinement: Arc::clone(&confinement),
            is_confined: false,
        };
        let (stderr, guard) =
            NonBlockingBuilder::default().buffered_lines_limit(LINES_WAITING_MAX).finish(writer);
        let dropped = stderr.error_counter();
        let writer = Writer {
            given: Arc::clone(&lines),
            written,
            dropped: dropped.clone(),
            _thread: ManuallyDrop::new(guard),
        };
        let queue = Some(stderr.clone());
        let make = move || {
            counted.fetch_add(1, Relaxed);
            stderr.clone()
        };
        let layer = fmt::layer().with_writer(make).with_ansi(false).with_target(false);
        let _ = tracing_subscriber::registry().with(filter).with(layer).try_init();
        Log {
            level: Arc::new(AtomicU8::new(level)),
            lines,
            handle: Some(handle),
            dropped: Some(dropped),
            confinement,
            queue,
            _writer: Some(Arc::new(writer)),
        }
    }

    /// Changes the verbosity.
    pub fn set(&self, level: u8) {
        self.level.store(level, Relaxed);
        if let Some(handle) = &self.handle {
            let _ = handle.modify(|current| *current = filter(level));
        }
    }

    /// Has the thread that writes limit itself at once, before its next line.
    pub fn confine(&self, confinement: Confinement) {
        // Once in a process.
        let _ = self.confinement.set(confinement);
        if let Some(mut queue) = self.queue.clone() {
            // A line of no bytes wakes the thread and is not written. One that finds no room waits behind others that wake it.
            let _ = queue.write_all(&[]);
        }
    }

    /// The verbosity.
    pub fn level(&self) -> u8 {
        self.level.load(Relaxed)
    }

    /// Lines written.
    pub fn lines(&self) -> u64 {
        self.lines.load(Relaxed).saturating_sub(self.dropped())
    }

    /// Lines dropped, because those before them were not read.
    pub fn dropped(&self) -> u64 {
        self.dropped.as_ref().map_or(0, |dropped| dropped.dropped_lines() as u64)
    }
}

/// Interval of two lines of the same kind that unauthenticated clients can cause.
const RARELY_MS: Millis = 1000;

/// Lets a line a second through.
#[derive(Debug, Default)]
pub struct Rarely {
    next_at: Millis,
    times: u64,
}

impl Rarely {
    /// Counts that something has happened. If a line is due, returns how often it has since the last line.
    pub fn due(&mut self, now: Millis) -> Option<u64> {
        self.times += 1;
        if now < self.next_at {
            return None;
        }
        self.next_at = now + RARELY_MS;
        Some(std::mem::take(&mut self.times))
    }
}

fn filter(level: u8) -> LevelFilter {
    match level {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_second_says_how_often_it_was() {
        let mut rarely = Rarely::default();
        assert_eq!(rarely.due(5), Some(1));
        assert!((5..1005).all(|now| rarely.due(now).is_none()));
        assert_eq!(rarely.due(1005), Some(1001));
        assert_eq!(rarely.due(9000), Some(1));
    }
}
