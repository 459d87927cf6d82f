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
    /// `KEYS` and `ARGV`, as [`crate::Engine::begin`] was given them. Asked for once more if there was no room for them.
    fn given(&self) -> (Args<'_>, Args<'_>) {
        (Args::EMPTY, Args::EMPTY)
    }

    /// Carries out a command and returns its reply, in RESP3 if the script has asked for that.
    ///
    /// # Errors
    /// If the script is to end.
    fn call(&mut self, words: Args<'_>, resp3: bool) -> Result<&[u8], Stop>;

    /// Whether the script's user may give this command; `None` if there is no command of that name.
    fn may_call(&mut self, words: Args<'_>) -> Option<bool>;

    /// Logs a line of the script's.
    fn log(&mut self, level: Level, text: &[u8]);

    /// Called when the script has worked for `took_ns`, 0.1 ms or more, since it was last looked at.
    ///
    /// # Errors
    /// If the script is to end.
    fn tick(&mut self, took_ns: u64) -> Result<Tick, Stop>;

    /// Called at each look while the script's reply is written, which takes long: the script has ended, and asks for nothing
    /// more.
    fn replies(&mut self) {}

    /// Time that the script's requests took since this was last asked, as far as they took so long that it is not the script's
    /// work.
    fn beside(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Called when a request of the script was carried out, which may have taken long: the script goes on now, or later.
    ///
    /// # Errors
    /// If the script is to end.
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

    /// Called for each error in the reply: a command's, which is counted already, or one that the script has made.
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

/// The outcome of telling a script to end.
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
    /// The script at work, or the last one, is a function of a library.
    is_function: AtomicBool,
    /// What is shown of the function at work, once it has worked for a while.
    shown: Mutex<Option<Shown>>,
    state: AtomicU8,
    /// The script at work, or the last one, has changed something.
    written: AtomicBool,
    /// The script ends: what catches errors does not catch this.
    stops: AtomicBool,
    /// The script at work goes on later.
    paused: AtomicBool,
    /// Bytes that the worker's state takes.
    used_bytes: AtomicU64,
    /// Bytes that the state may take.
    limit_bytes: AtomicU64,
}

impl Running {
    /// Notes that a script, or a function, begins.
    pub(crate) fn begin(&self, is_function: bool) {
        self.is_function.store(is_function, Relaxed);
        self.stops.store(false, Relaxed);
        self.paused.store(false, Relaxed);
        self.written.store(false, Relaxed);
        self.state.store(WORKS, Relaxed);
    }

    /// Notes that the script has ended; true if it was told to.
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

    /// What is shown of the function at work.
    pub fn shown(&self) -> Option<Shown> {
        self.lock_shown().clone()
    }

    /// The one at work, or the last one, is a function of a library.
    pub fn is_function(&self) -> bool {
        self.is_function.load(Relaxed)
    }

    /// Notes whether the script goes on later.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Relaxed);
    }

    /// The script at work goes on later.
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

    /// Notes that the script is about to change something.
    ///
    /// # Errors
    /// If it was told to end before.
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

    /// True once the script is to end, which it cannot catch.
    pub(crate) fn stops(&self) -> bool {
        self.stops.load(Relaxed)
    }

    /// Ends the script at work.
    pub(crate) fn stop(&self) {
        self.stops.store(true, Relaxed);
    }

    /// Asks whether the script may go on.
    ///
    /// # Errors
    /// If it was told to end.
    pub(crate) fn look(&self) -> Result<(), Stop> {
        if self.state.load(Relaxed) == ENDED { Err(Stop::Killed) } else { Ok(()) }
    }

    /// Bytes that the worker's state takes.
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
    /// Charges so many bytes more, or fewer, for the state.
    fn aside(&self, more: i64);

    /// Charges so many bytes more, or fewer, for the reply that is written, as what connections hold. False if they hold as much
    /// as they may: nothing is charged then.
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
