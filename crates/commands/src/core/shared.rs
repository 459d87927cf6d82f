//! State that conversations of every protocol share beside the store: settings, the clock, a delayed flush_all, users, events
//! and messages on their way, pauses, samples of traffic.
//!
//! Settings never change once the server runs. Of the rest a request reads one atomic each: whether a receive has more to look
//! at than its input (`is_to_look`), and whether events, watchers and prefix statistics are wanted. Commands of administrators
//! write these. Counts and queues (errors, wrong passwords, traffic, events) are locked by their own modules.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_store::{Guard, Millis};

use super::access::{Access, RuledUsers};
use super::base::Base;
use super::digest::Digest;
use super::errors::Errors;
use super::events::Events;
use super::guesses::Guesses;
use super::looks::LastMinute;
use super::pause::Pause;
use super::prefix::Prefixes;
use super::system::Said;
use super::telling::Telling;
use super::topics::Topics;
use super::traffic::Traffic;
use super::unauthenticated::Unauthenticated;
use super::watchers::Watchers;

/// The version that `version` and `stats` report: the memcached that is spoken, then ours. Clients compare it with the versions
/// that brought the commands they want to use.
pub const VERSION: &str = concat!("1.6.45-larder-", env!("CARGO_PKG_VERSION"));

/// Settings that are made at the start and stay: for all conversations, and for memcached's.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `-I`: bytes of the largest item, in memcached's arithmetic (its header included).
    pub item_bytes_max: u64,
    /// Not `-C`: items have CAS tokens.
    pub cas: bool,
    /// Not `-F`: flush_all is allowed.
    pub flush: bool,
    /// Not `-X`: keys may be dumped.
    pub dump: bool,
    /// Not `-W`: clients may watch.
    pub watch: bool,
    /// `-o watcher_logbuf_size`: bytes of lines that may wait for a client that watches.
    pub watch_bytes_max: usize,
    /// `-A`: shutdown is allowed.
    pub shutdown: bool,
    /// `-o relaxed_privileges`: debugtime exists.
    pub debugtime: bool,
    /// `-R`, if it was given: requests after which a connection gives way to others. Without it a
    /// connection gives way when its receive buffer is done or its replies fill theirs.
    pub requests_per_event: Option<u32>,
    /// Least bytes of input in which a run of plain requests is looked for; `None`: as many as make a run worth it, which each
    /// protocol says. The answers are the same.
    pub run_bytes_min: Option<usize>,
    /// `-D`: the byte that ends a prefix in `stats detail`.
    pub prefix_delimiter: u8,
    /// `stats detail` counts from the start (`-D` was given).
    pub detail: bool,
    /// Not `-o no_lru_crawler`.
    pub lru_crawler: bool,
    /// Not `-o no_lru_maintainer`.
    pub lru_maintainer: bool,
    /// `-o track_sizes`.
    pub track_sizes: bool,
    /// Not `-o no_slab_reassign`: memory may move by command.
    pub slab_reassign: bool,
    /// Sizes of the slab classes as memcached's commands show them, ascending; empty: as memcached has them.
    pub slab_sizes: Vec<u32>,
    /// Some listener speaks TLS.
    pub speaks_tls: bool,
    /// `-Z`: counts of TLS are shown.
    pub tls: bool,
    /// `-Z` with `-o ssl_session_cache`: counts of new TLS sessions are shown, too.
    pub tls_sessions: bool,
    /// `-o idle_timeout` above 0: connections that say nothing are closed, and counted.
    pub idle_timeout: bool,
    /// Bytes that one append or prepend, or one request that is gathered until it is whole, may hold while it arrives.
    pub append_bytes_max: u64,
    /// Connections that may be open without having logged in, where they have to.
    pub unauthenticated_max: usize,
    /// Not `-B ascii`: a connection whose first byte is 0x80 speaks the binary protocol.
    pub binary: bool,
    /// Not `-B binary`: a connection of any other first byte speaks memcached's text.
    pub text: bool,
    /// `--requirepass`: the default user's password; none: it has none.
    pub password: Option<Digest>,
    /// `--auth-file`: further users and their passwords.
    pub users: Vec<(String, Digest)>,
    /// `--aclfile`, `--acl-user`: users and what they may do.
    pub ruled: RuledUsers,
    /// `--acl-pubsub-default allchannels`: a new user may use all channels.
    pub all_channels: bool,
    /// `--strict-framing`: text whose end is uncertain ends its connection.
    pub strict_framing: bool,
    /// Not `--text-auth no`: where clients must log in, memcached's text clients must, too.
    pub text_auth: bool,
}

impl Settings {
    /// A token as it is shown and compared with: 0 where items have none, which no comparison finds equal.
    #[inline]
    pub fn token(&self, cas: u64) -> u64 {
        if self.cas { cas } else { 0 }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            item_bytes_max: 1 << 20,
            cas: true,
            flush: true,
            dump: true,
            watch: true,
            watch_bytes_max: 256 << 10,
            shutdown: false,
            debugtime: false,
            requests_per_event: None,
            run_bytes_min: None,
            prefix_delimiter: b':',
            detail: false,
            lru_crawler: true,
            lru_maintainer: true,
            track_sizes: false,
            slab_reassign: true,
            slab_sizes: Vec::new(),
            speaks_tls: false,
            tls: false,
            tls_sessions: false,
            idle_timeout: false,
            append_bytes_max: 4 << 20,
            unauthenticated_max: 256,
            binary: true,
            text: true,
            password: None,
            users: Vec::new(),
            ruled: RuledUsers::default(),
            all_channels: false,
            strict_framing: false,
            text_auth: true,
        }
    }
}

/// The server's clock: the system's, moved or stopped by `debugtime`.
#[derive(Debug, Default)]
pub struct Clock {
    /// Added to the system's time, milliseconds.
    offset_ms: AtomicI64,
    /// The time at which the clock stands; 0: it runs.
    stopped_at: AtomicU64,
    /// How far it was moved since it last ran with the system's, milliseconds.
    moved_ms: AtomicI64,
}

impl Clock {
    /// The server's time when the system's is `system`.
    #[inline]
    pub fn now(&self, system: Millis) -> Millis {
        match self.stopped_at.load(Relaxed) {
            0 => system.saturating_add_signed(self.offset_ms.load(Relaxed)),
            stopped => stopped,
        }
    }

    /// The server's time in microseconds, when the system's is `system_us`.
    #[inline]
    pub fn now_us(&self, system_us: u64) -> u64 {
        let us = if self.stopped_at.load(Relaxed) == 0 { system_us % 1000 } else { 0 };
        self.now(system_us / 1000) * 1000 + us
    }

    /// Stops the clock at `now`.
    pub fn stop(&self, now: Millis) {
        self.stopped_at.store(now, Relaxed);
    }

    /// Lets the clock run on from the system's time.
    pub fn resume(&self) {
        self.stopped_at.store(0, Relaxed);
        self.offset_ms.store(0, Relaxed);
        self.moved_ms.store(0, Relaxed);
    }

    /// Milliseconds by which the clock was moved since it last ran with the system's: callers add them to durations measured
    /// without it.
    pub fn moved_ms(&self) -> i64 {
        self.moved_ms.load(Relaxed)
    }

    /// Moves it by `delta_ms`, stopped or running.
    pub fn shift(&self, delta_ms: i64) {
        self.moved_ms.fetch_add(delta_ms, Relaxed);
        let stopped = self.stopped_at.load(Relaxed);
        if stopped == 0 {
            self.offset_ms.fetch_add(delta_ms, Relaxed);
        } else {
            self.stopped_at.store(stopped.saturating_add_signed(delta_ms).max(1), Relaxed);
        }
    }
}

/// Value of `flush_at` while no flush is due.
const NEVER: Millis = Millis::MAX;

/// State that conversations of every protocol share.
#[derive(Debug)]
pub struct Shared {
    /// Settings of the start.
    pub settings: Settings,
    /// The server's clock.
    pub clock: Clock,
    /// Prefix statistics.
    pub prefixes: Prefixes,
    /// When a delayed flush_all is due.
    flush_at: AtomicU64,
    /// The time from which on each receive has more to look at than its input: a flush that is due, a pause, users that were
    /// changed.
    look_at: AtomicU64,
    /// Number of flushes that were asked for. The lock is held while `look_at` is derived.
    looking: Mutex<u64>,
    /// Counts at the last `stats reset`.
    pub(crate) base: Mutex<Base>,
    /// Events of the last minute.
    pub(crate) last_minute: LastMinute,
    /// Figures of the system.
    pub(crate) said: Said,
    /// Counts of error replies.
    pub(crate) errors: Errors,
    /// Users and their passwords.
    pub(crate) access: Access,
    /// Wrong passwords.
    pub(crate) guesses: Guesses,
    /// Clients that must log in, and have not.
    pub unauthenticated: Arc<Unauthenticated>,
    /// Whether a request on its way in waits for others to give up their memory.
    input_wanted: AtomicBool,
    pub(crate) pause: Pause,
    /// The keyspace events that are wanted.
    pub(crate) events: Events,
    /// Events that are not published yet.
    pub(crate) telling: Telling,
    /// Subscriptions of clients.
    pub(crate) topics: Arc<Topics>,
    /// Samples of traffic.
    pub(crate) traffic: Traffic,
    /// Clients that watch (`watch`).
    pub(crate) watchers: Arc<Watchers>,
}

impl Shared {
    /// Makes the state of the start, with these settings.
    pub fn new(settings: Settings) -> Shared {
        Shared {
            prefixes: Prefixes::new(settings.prefix_delimiter, settings.detail),
            clock: Clock::default(),
            flush_at: AtomicU64::new(NEVER),
            look_at: AtomicU64::new(NEVER),
            looking: Mutex::default(),
            base: Mutex::default(),
            last_minute: LastMinute::default(),
            said: Said::default(),
            errors: Errors::default(),
            access: Access::new(settings.password.as_ref(), &settings.users),
            guesses: Guesses::default(),
            unauthenticated: Arc::default(),
            input_wanted: AtomicBool::new(false),
            pause: Pause::default(),
            events: Events::default(),
            telling: Telling::default(),
            topics: Arc::default(),
            traffic: Traffic::default(),
            watchers: Arc::default(),
            settings,
        }
    }

    /// The server's time when the system's is `system`. Guards are entered at this time.
    #[inline]
    pub fn now(&self, system: Millis) -> Millis {
        self.clock.now(system)
    }

    /// Notes that a request on its way in waits for memory which others' requests hold.
    pub(crate) fn want_input(&self) {
        self.input_wanted.store(true, Relaxed);
    }

    /// Returns whether a request has waited so since the last call: then requests that stand still are to be closed.
    #[inline]
    pub fn take_input_wanted(&self) -> bool {
        self.input_wanted.load(Relaxed) && self.input_wanted.swap(false, Relaxed)
    }

    /// Flushes the store if a delayed flush_all is due. It is called once per receive. Workers that receive nothing call it on
    /// their tick, so that a flush happens in time without traffic.
    #[inline]
    pub fn flush_if_due(&self, guard: &mut Guard<'_>) {
        if self.is_to_look(guard.now()) {
            self.flush_due(guard);
        }
    }

    /// Returns whether there may be something to look at beside the input: a flush that is due, a pause, held keys, changed
    /// users.
    #[inline]
    pub(crate) fn is_to_look(&self, now: Millis) -> bool {
        now >= self.look_at.load(Relaxed)
    }

    /// Derives from when on each receive looks: called when a pause begins or ends, keys are held, another flush is due, or
    /// users were changed.
    pub(crate) fn look_in_time(&self, now: Millis) {
        let _alone = self.looking();
        // Where users were changed, each connection looks whether its user is as it was.
        let each_time = self.pause.left_ms(now) > 0 || self.pause.holds.any() || self.access.epoch() > 0;
        self.look_at.store(if each_time { 0 } else { self.flush_at.load(Relaxed) }, Relaxed);
    }

    #[cold]
    fn flush_due(&self, guard: &mut Guard<'_>) {
        let (now, due) = (guard.now(), self.flush_at.load(Relaxed));
        // A flush comes behind commands that hold keys.
        let is_held = self.pause.holds.any();
        if now < due || is_held {
            if is_held && now >= due {
                self.pause.holds.note_waiter();
            }
            // Once users were changed, each receive looks for good.
            if self.access.epoch() == 0 {
                self.look_in_time(now);
            }
            return;
        }
        let asked = *self.looking();
        if self.flush_at.compare_exchange(due, NEVER, Relaxed, Relaxed).is_ok() && !guard.try_flush(None) {
            // The flush is tried again at the next look, unless another was asked for meanwhile, or one at once takes its
            // place.
            let asked_now = self.looking();
            if *asked_now == asked {
                self.flush_at.store(due, Relaxed);
            }
        }
        self.look_in_time(now);
    }

    fn looking(&self) -> MutexGuard<'_, u64> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets when the next flush is due, or that none is.
    fn set_flush(&self, at: Millis) {
        let mut asked = self.looking();
        *asked += 1;
        self.flush_at.store(at, Relaxed);
    }

    /// Flushes the store now. An earlier delayed flush is forgotten, as in memcached. False if only a step was made: then the
    /// caller tries again.
    pub(crate) fn flush_now(&self, guard: &mut Guard<'_>) -> bool {
        self.set_flush(NEVER);
        guard.try_flush(None)
    }

    /// Sets when the next flush is due; replaces an earlier one.
    pub(crate) fn flush_later(&self, at: Millis, now: Millis) {
        self.set_flush(at);
        self.look_in_time(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_stops_moves_and_resumes() {
        let clock = Clock::default();
        assert_eq!(clock.now(1000), 1000);
        clock.shift(500);
        assert_eq!(clock.now(1000), 1500);
        clock.stop(clock.now(1000));
        assert_eq!(clock.now(9000), 1500);
        clock.shift(-100);
        assert_eq!(clock.now(9000), 1400);
        assert_eq!(clock.moved_ms(), 400);
        clock.resume();
        assert_eq!(clock.now(9000), 9000);
    }
}
