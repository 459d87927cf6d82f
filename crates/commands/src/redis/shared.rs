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
    /// All commands.
    pub(crate) rows: &'static Rows,
    /// The same, as rules of users know them.
    pub(crate) catalog: &'static Catalog,
    /// What was set at start.
    pub(crate) settings: RedisSettings,
    /// Protected mode is on: it may be set while the server runs.
    protected: AtomicBool,
    pub(crate) clients: Arc<Clients>,
    /// Clients that wait for keys.
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) limits: Limits,
    /// Bytes that commands take between MULTI and EXEC.
    pub(crate) queued_bytes: Arc<AtomicU64>,
    pub(crate) parameters: Parameters,
    /// Held while parameters are set: all of one CONFIG SET, or what was before it.
    pub(crate) setting: Mutex<()>,
    /// When the server started, in its own time, once a client has asked for it.
    started_s: OnceLock<u64>,
    pub(crate) commandlog: Commandlog,
    /// Scripts that are known, and those at work.
    pub(crate) scripts: Scripts,
    /// Libraries of functions.
    pub(crate) libraries: Libraries,
    /// Events that took long.
    pub(crate) latency: Latency,
    /// How much there was to do in the last seconds.
    pub(crate) rates: Rates,
    /// The most memory that was seen to be used.
    pub(crate) used_peak: AtomicU64,
    /// What `maxmemory` was set to, if that is less than there can be: what may need memory is refused. Else 0.
    pub(crate) starved_bytes: AtomicU64,
    /// The number by which INFO distinguishes one run of the server from another.
    pub(crate) run_id: u128,
    /// How many keys expire, found out a little at a time while a scraper asks.
    pub(crate) census: Census,
    /// Keys of databases of few, which upkeep looks for.
    pub(crate) rare: Rare,
    random: AtomicU64,
}

impl Shared {
    /// What is shared at the start; the table of commands lies above this.
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

    /// `maxmemory`: the memory limit, or what was set below the least.
    pub(crate) fn memory_limit(&self, store: &Store) -> u64 {
        match self.starved_bytes.load(Relaxed) {
            0 => store.memory_bytes(),
            bytes => bytes,
        }
    }

    /// Protected mode refuses a client that was not asked for a password: it is on another machine.
    pub(crate) fn turns_away_unasked(&self, local: bool) -> bool {
        !local && self.protected()
    }

    /// Protected mode is on.
    pub(crate) fn protected(&self) -> bool {
        self.protected.load(Relaxed)
    }

    /// Turns protected mode on or off; connections that were served before are served further.
    pub(crate) fn protect(&self, protected: bool) {
        self.protected.store(protected, Relaxed);
    }

    /// When the server started, by a clock that says `now_s` and has run for `uptime_s`: the same for every client, at whatever
    /// part of a second it asks.
    pub(crate) fn started_s(&self, now_s: u64, uptime_s: u64) -> u64 {
        *self.started_s.get_or_init(|| now_s.saturating_sub(uptime_s))
    }

    /// Notes how much there is to do and how much memory is used, for INFO. From one worker's upkeep.
    pub(crate) fn look(&self, now: Millis, host: &dyn Host, used_bytes: u64) {
        let mut sums = Sums::default();
        host.counters(&mut |counters| sums.add(counters));
        let commands = sums.of(RedisCounter::Commands);
        self.rates.look(now, [commands, sums.of(Counter::BytesRead), sums.of(Counter::BytesWritten)]);
        self.used_peak.fetch_max(used_bytes, Relaxed);
    }

    /// A round of upkeep took this long: LATENCY notes it if it was long.
    pub(crate) fn note_upkeep(&self, now: Millis, took_us: u64) {
        self.latency.note(EXPIRE_CYCLE, now / 1000, took_us);
    }

    /// A worker was held up for this long: LATENCY notes it if it was long.
    pub(crate) fn note_stall(&self, now: Millis, took_us: u64) {
        self.latency.note(EVENT_LOOP, now / 1000, took_us);
    }

    /// A random number.
    pub(crate) fn random(&self) -> u64 {
        // splitmix64: good enough to pick a key by.
        let n = self.random.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed);
        let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        n ^ n >> 31
    }
}

/// Looks at the counters that rates are taken from.
const LOOKS: usize = 16;

/// What is counted for rates: commands, bytes in, bytes out.
pub(crate) type Counts = [u64; 3];

/// How much there is to do: counts of the last looks, of which upkeep takes some a second.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<VecDeque<(Millis, Counts)>>);

impl Rates {
    /// Takes a look.
    pub fn look(&self, now: Millis, counts: Counts) {
        let mut looks = self.looks();
        // Counted anew, or the clock was moved.
        if looks.back().is_some_and(|(at, last)| *at > now || last.iter().zip(&counts).any(|(a, b)| a > b)) {
            looks.clear();
        }
        looks.push_back((now, counts));
        if looks.len() > LOOKS {
            looks.pop_front();
        }
    }

    /// Each of the counts a second.
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
