//! What the RESP clients of all workers share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use larder_store::{Millis, Store};

use crate::core::acl::catalog::Catalog;
use crate::core::counters::{Counter, Sums};
use crate::core::host::Host;
use crate::redis::census::Census;
use crate::redis::commandlog::Commandlog;
use crate::redis::counters::RedisCounter;
use crate::redis::facts::{Clients, CommandName};
use crate::redis::latency::{EVENT_LOOP, EXPIRE_CYCLE, Latency};
use crate::redis::limits::Limits;
use crate::redis::lua::cache::Scripts;
use crate::redis::lua::libraries::Libraries;
use crate::redis::parameters::Parameters;
use crate::redis::rare::Rare;
use crate::redis::rows::Rows;
use crate::redis::settings::RedisSettings;
use crate::redis::waiters::Waiters;

/// Shared by all RESP clients.
#[derive(Debug)]
pub struct Shared {
    /// The table of commands.
    pub(crate) rows: &'static Rows,
    /// The commands, as rules of users name them.
    pub(crate) catalog: &'static Catalog,
    /// The settings at start.
    pub(crate) settings: RedisSettings,
    /// Whether protected mode is on. It may be set while the server runs.
    protected: AtomicBool,
    pub(crate) clients: Arc<Clients>,
    /// Clients whose commands wait for keys.
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) limits: Limits,
    /// Bytes of all queues between MULTI and EXEC.
    pub(crate) queued_bytes: Arc<AtomicU64>,
    pub(crate) parameters: Parameters,
    /// Locked while parameters are set, so that a CONFIG SET is seen as a whole.
    pub(crate) setting: Mutex<()>,
    /// When the server started, by the clock at the first question; later answers are the same.
    started_s: OnceLock<u64>,
    pub(crate) commandlog: Commandlog,
    /// The known scripts, and the running ones.
    pub(crate) scripts: Scripts,
    /// Libraries of functions.
    pub(crate) libraries: Libraries,
    /// Events that took long, for LATENCY.
    pub(crate) latency: Latency,
    /// How much was done in the last seconds.
    pub(crate) rates: Rates,
    /// The highest use of memory that was seen.
    pub(crate) used_peak: AtomicU64,
    /// The value of `maxmemory`, if it was set below the least possible limit: commands that may need memory are refused then.
    /// Else 0.
    pub(crate) starved_bytes: AtomicU64,
    /// The number by which INFO tells runs of the server apart.
    pub(crate) run_id: u128,
    /// How many keys expire, counted a little at a time while a scraper asks.
    pub(crate) census: Census,
    /// Upkeep's search for keys of databases with few.
    pub(crate) rare: Rare,
    random: AtomicU64,
}

impl Shared {
    /// Makes what is shared at the start. It is given the table of commands, which is defined above this module.
    pub(crate) fn new(
        settings: RedisSettings,
        rows: &'static Rows,
        catalog: &'static Catalog,
        command_name: CommandName,
    ) -> Shared {
        use std::hash::{BuildHasher, Hasher};
        let random = || std::hash::RandomState::new().build_hasher().finish();
        Shared {
            rows,
            catalog,
            protected: AtomicBool::new(settings.protected),
            settings,
            clients: Arc::new(Clients::new(command_name)),
            waiters: Arc::default(),
            limits: Limits::default(),
            parameters: Parameters::default(),
            setting: Mutex::default(),
            started_s: OnceLock::new(),
            commandlog: Commandlog::default(),
            scripts: Scripts::default(),
            libraries: Libraries::default(),
            latency: Latency::default(),
            rates: Rates::default(),
            used_peak: AtomicU64::new(0),
            starved_bytes: AtomicU64::new(0),
            run_id: u128::from(random()) << 64 | u128::from(random()),
            census: Census::default(),
            rare: Rare::default(),
            random: AtomicU64::new(random()),
            queued_bytes: Arc::default(),
        }
    }

    /// The value of `maxmemory`: the memory limit, or what was set below the least.
    pub(crate) fn memory_limit(&self, store: &Store) -> u64 {
        match self.starved_bytes.load(Relaxed) {
            0 => store.memory_bytes(),
            bytes => bytes,
        }
    }

    /// Whether protected mode refuses a client that was asked for no password: one on another machine.
    pub(crate) fn turns_away_unasked(&self, local: bool) -> bool {
        !local && self.protected()
    }

    /// Whether protected mode is on.
    pub(crate) fn protected(&self) -> bool {
        self.protected.load(Relaxed)
    }

    /// Turns protected mode on or off. Connections that are already served stay.
    pub(crate) fn protect(&self, protected: bool) {
        self.protected.store(protected, Relaxed);
    }

    /// When the server started, by a clock that shows `now_s` and has run for `uptime_s`. The first answer is kept, so that all
    /// clients get the same, at whatever part of a second they ask.
    pub(crate) fn started_s(&self, now_s: u64, uptime_s: u64) -> u64 {
        *self.started_s.get_or_init(|| now_s.saturating_sub(uptime_s))
    }

    /// Notes for INFO how much is done and how much memory is used. Called by one worker's upkeep.
    pub(crate) fn look(&self, now: Millis, host: &dyn Host, used_bytes: u64) {
        let mut sums = Sums::default();
        host.counters(&mut |counters| sums.add(counters));
        let commands = sums.of(RedisCounter::Commands);
        self.rates.look(now, [commands, sums.of(Counter::BytesRead), sums.of(Counter::BytesWritten)]);
        self.used_peak.fetch_max(used_bytes, Relaxed);
    }

    /// Notes for LATENCY how long a round of upkeep took, if that was long.
    pub(crate) fn note_upkeep(&self, now: Millis, took_us: u64) {
        self.latency.note(EXPIRE_CYCLE, now / 1000, took_us);
    }

    /// Notes for LATENCY how long a worker was held up, if that was long.
    pub(crate) fn note_stall(&self, now: Millis, took_us: u64) {
        self.latency.note(EVENT_LOOP, now / 1000, took_us);
    }

    /// Makes a random number.
    pub(crate) fn random(&self) -> u64 {
        // splitmix64: good enough to pick a key by.
        let n = self.random.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed);
        let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        n ^ n >> 31
    }
}

/// How many looks at the counters are kept for rates.
const LOOKS: usize = 16;

/// Counts for rates: commands, bytes in, bytes out.
pub(crate) type Counts = [u64; 3];

/// Rates, by the counts of the last looks; upkeep takes some a second.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<VecDeque<(Millis, Counts)>>);

impl Rates {
    /// Adds a look.
    pub fn look(&self, now: Millis, counts: Counts) {
        let mut looks = self.looks();
        // The counters were reset, or the clock was moved.
        if looks.back().is_some_and(|(at, last)| *at > now || last.iter().zip(&counts).any(|(a, b)| a > b)) {
            looks.clear();
        }
        looks.push_back((now, counts));
        if looks.len() > LOOKS {
            looks.pop_front();
        }
    }

    /// The rate of each count in a second.
    pub fn per_second(&self) -> Counts {
        let looks = self.looks();
        let (Some((from, first)), Some((to, last))) = (looks.front(), looks.back()) else { return [0; 3] };
        let ms = to - from;
        std::array::from_fn(|i| ((last[i] - first[i]) * 1000).checked_div(ms).unwrap_or(0))
    }

    fn looks(&self) -> MutexGuard<'_, VecDeque<(Millis, Counts)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_looks_and_begin_anew_with_the_counters() {
        let rates = Rates::default();
        assert_eq!(rates.per_second(), [0; 3]);
        for n in 0..100u64 {
            rates.look(1000 + n * 100, [n * 10, n * 1000, 0]);
        }
        assert_eq!(rates.per_second(), [100, 10_000, 0]);
        rates.look(20_000, [5, 5, 5]);
        assert_eq!(rates.per_second(), [0; 3]);
    }
}
