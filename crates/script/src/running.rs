//! A script at work: what others see of it, what it asks of the server around it, and what ends it.
//!
//! ```text
//! Idle ─► Works ─► Wrote ─► Idle        begun, first write, over
//!           └────► Ended ──► Idle       told to end before its first write
//! ```

use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_protocol::resp::Args;

/// The server around a script.
pub trait Caller {
    /// `KEYS` and `ARGV`, as [`crate::Engine::begin`] was given them: asked for once more where there was no room for them.
    fn given(&self) -> (Args<'_>, Args<'_>) {
        (Args::EMPTY, Args::EMPTY)
    }

    /// Carries a command out; its reply, in RESP3 if the script has asked for that.
    ///
    /// # Errors
    /// The script is to end.
    fn call(&mut self, words: Args<'_>, resp3: bool) -> Result<&[u8], Stop>;

    /// The script's user may say this command; none if there is none of that name.
    fn may_call(&mut self, words: Args<'_>) -> Option<bool>;

    /// The script has something to log.
    fn log(&mut self, level: Level, text: &[u8]);

    /// The script has worked for so long since it was looked at last: a tenth of a millisecond, or more.
    ///
    /// # Errors
    /// It is to end.
    fn tick(&mut self, took_ns: u64) -> Result<Tick, Stop>;

    /// The script has come to its end, and asks for nothing more: what is left is to write its reply, which takes long. Told
    /// each time that it is looked at meanwhile.
    fn replies(&mut self) {}

    /// What was done for the script since this was last asked, as far as it took so long that it is not the script's work.
    fn beside(&mut self) -> Duration {
        Duration::ZERO
    }

    /// What it asked for was done, which may have taken long: it hears of it now, or later.
    ///
    /// # Errors
    /// It is to end.
    fn answered(&mut self) -> Result<Tick, Stop> {
        Ok(Tick::GoOn)
    }
}

/// Whether a script goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// At once.
    GoOn,
    /// Later: with [`crate::Engine::go_on`].
    Pause,
}

/// How much something that is logged matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// `redis.LOG_DEBUG`
    Debug,
    /// `redis.LOG_VERBOSE`
    Verbose,
    /// `redis.LOG_NOTICE`
    Notice,
    /// `redis.LOG_WARNING`
    Warning,
}

/// Where a script's reply goes.
pub trait Sink {
    /// Takes some bytes of it; false if there is no room for them.
    fn put(&mut self, bytes: &[u8]) -> bool;

    /// Takes a bulk string; false if there is no room for it.
    fn put_bulk(&mut self, text: &[u8]) -> bool;

    /// An error is among it: one that a command gave it and that is counted already, or one that it has made itself.
    fn failed(&mut self, text: &[u8], is_counted: bool);
}

/// Why a script ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its caller wants it to be begun anew: it has changed nothing.
    Again,
    /// A client said SCRIPT KILL.
    Killed,
    /// It has run for as long as it may.
    TooLong,
    /// Another has run for as long as it may.
    Busy,
}

/// What came of telling a script to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// None is at work.
    Idle,
    /// It has changed something, and goes on.
    Wrote,
    /// It ends.
    Ends,
}

const IDLE: u8 = 0;
const WORKS: u8 = 1;
const WROTE: u8 = 2;
const ENDED: u8 = 3;

/// What is shown of a function at work.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// The command that has called it, as far as it is shown.
    pub words: Vec<Vec<u8>>,
    /// When it began, by its caller's clock.
    pub since_us: u64,
}

/// What others see of the scripts of one worker.
#[derive(Debug, Default)]
pub struct Running {
    /// It is a function of a library.
    is_function: AtomicBool,
    /// It is shown, once it has worked for a while.
    shown: Mutex<Option<Shown>>,
    state: AtomicU8,
    /// The last one that began has changed something.
    written: AtomicBool,
    /// It was told so, and what catches errors lets it end.
    stops: AtomicBool,
    /// It goes on later.
    paused: AtomicBool,
    /// Bytes of the worker's state.
    used_bytes: AtomicU64,
    /// What the state may take.
    limit_bytes: AtomicU64,
}

impl Running {
    /// A script, or a function, begins.
    pub(crate) fn begin(&self, is_function: bool) {
        self.is_function.store(is_function, Relaxed);
        self.stops.store(false, Relaxed);
        self.paused.store(false, Relaxed);
        self.written.store(false, Relaxed);
        self.state.store(WORKS, Relaxed);
    }

    /// It has ended; true if it was told to.
    pub(crate) fn end(&self) -> bool {
        // A client that was told that the script ends was told the truth, whatever the script was about to do.
        let was_told = self.state.swap(IDLE, AcqRel) == ENDED;
        if self.is_function() {
            *self.lock_shown() = None;
        }
        was_told
    }

    fn lock_shown(&self) -> MutexGuard<'_, Option<Shown>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a function at work.
    pub fn show(&self, shown: Shown) {
        *self.lock_shown() = Some(shown);
    }

    /// What is shown of it.
    pub fn shown(&self) -> Option<Shown> {
        self.lock_shown().clone()
    }

    /// The one at work, or the last one, is a function of a library.
    pub fn is_function(&self) -> bool {
        self.is_function.load(Relaxed)
    }

    /// It goes on later, or now.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Relaxed);
    }

    /// It goes on later.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// A script is at work.
    pub fn works(&self) -> bool {
        self.state.load(Relaxed) != IDLE
    }

    /// The script at work, or the last one, has changed something.
    pub fn has_written(&self) -> bool {
        self.written.load(Relaxed)
    }

    /// The script is about to change something.
    ///
    /// # Errors
    /// It was told to end before it did.
    pub fn write(&self) -> Result<(), Stop> {
        // Acquire pairs with `kill`: a client that was told that the script ends was told the truth.
        match self.state.compare_exchange(WORKS, WROTE, AcqRel, Acquire) {
            Ok(_) | Err(WROTE) => {
                self.written.store(true, Relaxed);
                Ok(())
            }
            Err(_) => Err(Stop::Killed),
        }
    }

    /// Tells the script at work to end.
    pub fn kill(&self) -> Kill {
        match self.state.compare_exchange(WORKS, ENDED, AcqRel, Acquire) {
            Ok(_) | Err(ENDED) => Kill::Ends,
            Err(WROTE) => Kill::Wrote,
            Err(_) => Kill::Idle,
        }
    }

    /// What ends a script has ended it: it cannot be caught.
    pub(crate) fn stops(&self) -> bool {
        self.stops.load(Relaxed)
    }

    /// The script ends.
    pub(crate) fn stop(&self) {
        self.stops.store(true, Relaxed);
    }

    /// The script may go on.
    ///
    /// # Errors
    /// It was told to end.
    pub(crate) fn look(&self) -> Result<(), Stop> {
        if self.state.load(Relaxed) == ENDED { Err(Stop::Killed) } else { Ok(()) }
    }

    /// Bytes of the worker's state.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    pub(crate) fn set_used(&self, bytes: usize) {
        self.used_bytes.store(bytes as u64, Relaxed);
    }

    pub(crate) fn set_limit(&self, bytes: usize) {
        self.limit_bytes.store(bytes as u64, Relaxed);
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit_bytes.load(Relaxed) as usize
    }
}

/// An account of the memory that a state takes.
pub trait Account {
    /// The state takes so many bytes more, or fewer.
    fn aside(&self, more: i64);

    /// The reply that is written takes so many bytes more, as what connections hold does, or fewer. False if they hold as
    /// much as they may: nothing is taken then.
    fn hold(&self, more: i64) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_killed_before_its_first_write_and_not_behind_it() {
        let running = Running::default();
        assert_eq!(running.kill(), Kill::Idle);
        running.begin(false);
        assert_eq!(running.kill(), Kill::Ends);
        assert_eq!(running.write(), Err(Stop::Killed));
        assert!(!running.has_written());
        assert!(running.end());
        assert_eq!(running.kill(), Kill::Idle);
        running.begin(false);
        assert_eq!(running.write(), Ok(()));
        assert_eq!(running.write(), Ok(()));
        assert_eq!(running.kill(), Kill::Wrote);
        assert!(running.has_written());
        assert!(!running.end());
        assert!(running.has_written() && !running.works());
    }
}
