//! The log: structured events to stderr, with a level that `-v` sets and `verbosity` changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, reload};

/// The level of the log, and how much was written.
#[derive(Clone, Debug, Default)]
pub struct Log {
    level: Arc<AtomicU8>,
    lines: Arc<AtomicU64>,
    handle: Option<reload::Handle<LevelFilter, Registry>>,
}

impl Log {
    /// Starts the log at a verbosity. Only the first log of a process writes.
    pub fn start(level: u8) -> Log {
        let (filter, handle) = reload::Layer::new(filter(level));
        let lines = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lines);
        let writer = move || {
            counted.fetch_add(1, Relaxed);
            std::io::stderr()
        };
        let layer = fmt::layer().with_writer(writer).with_ansi(false).with_target(false);
        let _ = tracing_subscriber::registry().with(filter).with(layer).try_init();
        Log { level: Arc::new(AtomicU8::new(level)), lines, handle: Some(handle) }
    }

    /// Changes the verbosity.
    pub fn set(&self, level: u8) {
        self.level.store(level, Relaxed);
        if let Some(handle) = &self.handle {
            let _ = handle.modify(|current| *current = filter(level));
        }
    }

    /// The verbosity.
    pub fn level(&self) -> u8 {
        self.level.load(Relaxed)
    }

    /// Lines written.
    pub fn lines(&self) -> u64 {
        self.lines.load(Relaxed)
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
