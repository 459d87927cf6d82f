//! Traffic: a random sample of the keys of all requests, and the keys and prefixes that come most often.
//!
//! ```text
//! worker ── tap: one key in 1 << shift ──► ring ──┐
//! worker ── tap ─────────────────────────► ring ──┴─► count ──► rounds of 5 s    the page, `stats hotkeys`, `stats prefixes`
//!                                                          └──► session          HOTKEYS
//! ```
//!
//! Beside the sample some keys are followed: all of their requests are recorded, for a forecast of other memory limits
//! ([`spatial`]). And stored items are looked at, some at a time ([`items`]).
//!
//! Workers write samples and do nothing else. The thread that shows figures counts them, some at a time: that of the HTTP port,
//! or, while that is off and HOTKEYS is at work, upkeep of one worker. While no client wants to know, nothing is sampled, and
//! its memory is given back.
//!
//! A key's share is what its table says (Space-Saving, [`top`]) of all that was counted, in the middle between the least
//! and the most that it can be. Its error is half of what lies between these, and the error of sampling: samples that
//! stand for `w` keys each make a share `p` of `n` keys uncertain by `sqrt(p (1 - p) (w - 1) / n)`, of which
//! [`SIGMAS`] are reported. As `w` changes, it is each key's own samples that say this: the sum of `w (w - 1)` over them is the
//! variance of what they stand for. Where each key was counted there is none.

mod hot;
mod items;
mod prefixes;
mod ring;
mod session;
mod spatial;
mod tap;
mod top;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_store::{Guard, Happened, Item, Kept, Key, Millis, Store};

pub use hot::{HotKey, HotKeys, Shares};
pub(crate) use hot::{Parts, parts};
use items::ItemSampler;
pub use items::{AgeShare, Ages};
pub(crate) use prefixes::{Delimiters, TOLD as PREFIXES_TOLD};
pub use prefixes::{PrefixShare, PrefixShares};
pub(crate) use ring::Sample;
use ring::{Followed, Record, Ring, WORDS_MIN};
pub(crate) use session::{Metrics, Session, Start};
use spatial::Spatial;
pub use spatial::{Gain, Outlook};
pub(crate) use tap::Tap;
use top::Top;

/// Whether runs of requests are sampled and followed. False in the build that `cargo xtask bench instructions --watching`
/// compares with the usual one.
pub(crate) const WATCHES: bool = !cfg!(feature = "unwatched");

/// A sample stands for at most two to the power of this many keys.
pub(crate) const SHIFT_MAX: u8 = 20;
/// Words of the rings of all workers together, where that gives each no fewer than the least.
const RINGS_WORDS: usize = 32 << 10;
/// Bytes of the memory limit for each word of a ring.
const MEMORY_OF_A_WORD: u64 = 8 << 10;
/// Most words of a ring.
const RING_WORDS_MAX: usize = 8 << 10;
/// Samples of one ring that are counted at a time: a third of a millisecond.
const COUNTED_AT_ONCE: usize = 1024;
/// Nanoseconds to count one.
pub(crate) const COUNT_NS: u64 = 400;

/// Most hot keys: no more can have more than a hundredth each.
const HOT_MAX: usize = 100;
/// Milliseconds of a round.
const ROUND_MS: Millis = 5_000;
/// Rounds that are kept and shown: the last whole ones, and the one that goes on.
const ROUNDS: usize = 3;
/// Entries of a table: at most so many, at least as many as it takes to list each key of a hundredth, and between these one for
/// so many bytes of the memory limit.
const ENTRIES_MAX: usize = 512;
const ENTRIES_MIN: usize = 128;
const MEMORY_OF_AN_ENTRY: u64 = 256 << 10;
/// Most bytes of a reply that is not large.
const LARGE_BYTES: u32 = 100 << 10;
/// Number of standard errors of sampling that are reported as an error.
const SIGMAS: f64 = 2.5;

/// The kind of a request for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Verb {
    Read,
    Write,
    Delete,
}

impl Verb {
    fn of(number: u8) -> Verb {
        match number {
            0 => Verb::Read,
            1 => Verb::Write,
            _ => Verb::Delete,
        }
    }

    /// Bytes of a request of memcached's text and of its reply, about, from those of key and value.
    pub fn text_bytes(self) -> impl FnOnce(u64, Option<u64>) -> u64 {
        move |key, value| match (self, value) {
            // get k│VALUE k 0 n│…│END
            (Verb::Read, Some(value)) => 28 + 2 * key + value,
            (Verb::Read, None) => 11 + key,
            // set k 0 0 n│…│STORED
            (Verb::Write, value) => 24 + key + value.unwrap_or(0),
            // delete k│DELETED
            (Verb::Delete, _) => 18 + key,
        }
    }
}

/// Bit of [`Traffic::asked`]: samples are wanted.
const WANTED: u32 = 1 << 31;
/// Bit of [`Traffic::asked`]: a client is shown samples, and its thread counts them.
const SHOWN: u32 = 1 << 30;

/// The smallest shift that is wanted, and the number of workers; `None`: no samples are wanted.
fn asked(word: u32) -> Option<(u8, u32)> {
    (word & WANTED != 0).then_some(((word >> 16) as u8 & 0x1f, (word & 0xffff).max(1)))
}

/// A random number.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// A number that looks random, another for each `n`: splitmix64.
fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ n >> 31
}

/// Samples on their way from all workers to the thread that counts them, and the results.
#[derive(Debug)]
pub(crate) struct Traffic {
    /// The order to workers: [`WANTED`], [`SHOWN`], the shift, and the number of workers.
    asked: AtomicU32,
    /// Bits that are 0 in the hashes of keys that are followed.
    mask: AtomicU64,
    /// The seed of the next worker's samples.
    seed: AtomicU64,
    /// Rings of workers that sample.
    rings: Mutex<Vec<Arc<Ring>>>,
    /// Samples that were dropped from rings which are no more.
    dropped_before: AtomicU64,
    /// Samples that were counted.
    counted: AtomicU64,
    /// Counted requests for keys that are followed.
    followed: AtomicU64,
    /// Bytes of tables and rings.
    bytes: AtomicU64,
    tables: Mutex<Tables>,
    /// The hottest key at the end of the last round.
    hottest: Mutex<Hottest>,
    /// The coldest prefix at the end of the last round, if there is one.
    coldest: Mutex<Option<Coldest>>,
    /// Large replies at the end of the last round.
    large: Mutex<Large>,
    /// The forecast of the last step.
    outlook: Mutex<Option<Arc<Outlook>>>,
    /// The sampler of stored items.
    pub items: ItemSampler,
}

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic {
            asked: AtomicU32::new(0),
            mask: AtomicU64::new(u64::MAX),
            seed: AtomicU64::new(seed()),
            rings: Mutex::default(),
            dropped_before: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            followed: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            tables: Mutex::default(),
            hottest: Mutex::default(),
            coldest: Mutex::default(),
            large: Mutex::default(),
            outlook: Mutex::default(),
            items: ItemSampler::default(),
        }
    }
}

/// Figures of traffic.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// Samples that were counted.
    pub samples: u64,
    /// Counted requests for keys that are followed.
    pub followed: u64,
    /// Samples, and requests for keys that are followed, for which there was no room.
    pub dropped: u64,
    /// Bytes of rings and tables.
    pub bytes: u64,
    /// The hottest key.
    pub hottest: Hottest,
    /// The prefix that takes much and is asked for least.
    pub coldest: Option<Coldest>,
    /// Large replies.
    pub large: Large,
    /// The forecast for other memory limits.
    pub outlook: Option<Arc<Outlook>>,
}

/// The hottest key of the last rounds, and the one with most bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hottest {
    /// Its part of all that was asked for.
    pub share: f64,
    /// The error of `share`.
    pub error: f64,
    /// Keys that were asked for a second.
    pub all_per_second: f64,
    /// Keys that have more than one part in a hundred.
    pub hot_keys: u64,
    /// The part of the bytes of all requests and replies that one key has: of the listed keys the one with most.
    pub bytes_share: f64,
    /// The error of `bytes_share`.
    pub bytes_error: f64,
    /// Bytes of all requests and replies a second.
    pub bytes_per_second: f64,
}

/// The prefix that is asked for least, of those of the last rounds that take much memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Coldest {
    /// Its part of the bytes of all items.
    pub memory: f64,
    /// The error of `memory`.
    pub memory_error: f64,
    /// Its part of all keys that were asked for, at most.
    pub share_most: f64,
    /// Keys that were asked for a second.
    pub all_per_second: f64,
}

/// Replies to reads that are large, in the last rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Large {
    /// Their part of the bytes of all replies to reads.
    pub share: f64,
    /// The error of `share`.
    pub error: f64,
    /// Bytes of all replies to reads a second.
    pub bytes_per_second: f64,
}

/// Counts of samples.
#[derive(Debug, Default)]
struct Tables {
    /// Number of workers while figures are shown, else 0.
    shown: u32,
    rounds: Option<Rounds>,
    spatial: Option<Box<Spatial>>,
    session: Option<Session>,
    /// Bytes of these, as they are charged to the store.
    bytes: u64,
}

/// The last rounds.
#[derive(Debug)]
struct Rounds {
    all: [Round; ROUNDS],
    /// The index of the round that goes on.
    at: usize,
    delimiters: Delimiters,
}

/// Bytes of requests and replies of some kind.
#[derive(Clone, Copy, Debug, Default)]
struct Replies {
    bytes: f64,
    /// The sum over the samples of `w (w - 1) b²`, for one of `b` bytes that stands for `w`: the variance of their bytes.
    variance: f64,
}

impl Replies {
    fn add(&mut self, sample: &Sample<'_>) {
        let (keys, bytes) = ((1u64 << sample.shift) as f64, f64::from(sample.net_bytes));
        self.bytes += keys * bytes;
        self.variance += keys * (keys - 1.0) * bytes * bytes;
    }
}

/// The part of large replies, in rounds of so many seconds.
fn large_of(rounds: &[Round], seconds: f64) -> Large {
    let sum = |kind: usize, of: fn(&Replies) -> f64| -> f64 {
        rounds.iter().map(|round| of(&round.replies[kind])).sum()
    };
    let [[small, small_variance], [large, large_variance]] =
        [0, 1].map(|kind| [sum(kind, |replies| replies.bytes), sum(kind, |replies| replies.variance)]);
    let all = small + large;
    if all <= 0.0 {
        return Large::default();
    }
    let share = large / all;
    // The error is that of a ratio: a large reply moves it by the share of the others, another by the share of the large ones.
    let variance = (1.0 - share).powi(2) * large_variance + share * share * small_variance;
    Large { share, error: SIGMAS * variance.sqrt() / all, bytes_per_second: all / seconds }
}

/// Counts of some seconds.
#[derive(Debug)]
struct Round {
    from: Millis,
    to: Millis,
    /// Keys that samples stand for.
    all: u64,
    /// Sum of the squares of what each sample stands for.
    squares: f64,
    /// Number of samples.
    samples: u64,
    /// Replies to reads: those that are not large, and those that are.
    replies: [Replies; 2],
    /// Requests and replies of all kinds.
    net: Replies,
    keys: Top,
    prefixes: Top,
}

impl Round {
    fn new(store: &Store, now: Millis) -> Round {
        let [keys, prefixes] = [entries_of(store), prefixes::entries_of(store)].map(Top::new);
        let (replies, net) = ([Replies::default(); 2], Replies::default());
        Round { from: now, to: now, all: 0, squares: 0.0, samples: 0, replies, net, keys, prefixes }
    }

    fn begin(&mut self, now: Millis) {
        self.keys.clear();
        self.prefixes.clear();
        (self.from, self.to, self.all, self.squares, self.samples) = (now, now, 0, 0.0, 0);
        (self.replies, self.net) = ([Replies::default(); 2], Replies::default());
    }

    fn add(&mut self, sample: &Sample<'_>, of_prefix: &Sample<'_>) {
        let keys = 1u64 << sample.shift;
        self.all += keys;
        self.squares += (keys * keys) as f64;
        self.samples += 1;
        self.net.add(sample);
        if sample.verb == Verb::Read {
            self.replies[usize::from(sample.net_bytes > LARGE_BYTES)].add(sample);
        }
        self.keys.add(sample, keys);
        self.prefixes.add(of_prefix, keys);
    }

    fn bytes(&self) -> u64 {
        self.keys.bytes() + self.prefixes.bytes() + size_of::<Round>() as u64
    }
}

impl Rounds {
    fn new(store: &Store, now: Millis, delimiters: Delimiters) -> Rounds {
        Rounds { all: std::array::from_fn(|_| Round::new(store, now)), at: 0, delimiters }
    }

    fn add(&mut self, sample: &Sample<'_>) {
        self.all[self.at].add(sample, &self.delimiters.of_prefix(sample));
    }

    /// Bytes of a search for the keys, or prefixes, that weigh most.
    fn merging_bytes(&self) -> u64 {
        let keys: u64 = self.all.iter().map(|round| round.keys.merging_bytes()).sum();
        let prefixes: u64 = self.all.iter().map(|round| round.prefixes.merging_bytes()).sum();
        keys.max(prefixes)
    }

    /// Goes on to the next round, if it is time for that. Returns whether it did.
    fn turn(&mut self, now: Millis) -> bool {
        let from = self.all[self.at].from;
        if now < from + ROUND_MS && now >= from {
            return false;
        }
        self.all[self.at].to = now;
        // Nothing was counted for longer than all of them, or the clock was set back.
        if now < from || now - from > ROUND_MS * ROUNDS as Millis {
            self.all.iter_mut().for_each(|round| round.begin(now));
        }
        self.at = (self.at + 1) % ROUNDS;
        self.all[self.at].begin(now);
        true
    }
}

/// Number of entries of a table of keys.
fn entries_of(store: &Store) -> usize {
    ((store.memory_bytes() / MEMORY_OF_AN_ENTRY) as usize).clamp(ENTRIES_MIN, ENTRIES_MAX)
}

impl Tables {
    /// Charges to the store the bytes of tables, and of looks through them, since these are made again and again.
    fn charge(&mut self, store: &Store, all: &AtomicU64) {
        let rounds = self.rounds.iter().flat_map(|rounds| &rounds.all);
        let bytes = rounds.map(Round::bytes).sum::<u64>()
            + self.rounds.as_ref().map_or(0, Rounds::merging_bytes)
            + self.session.as_ref().map_or(0, Session::bytes)
            + self.spatial.as_ref().map_or(0, |spatial| spatial.bytes() + size_of::<Spatial>() as u64);
        let more = bytes as i64 - self.bytes as i64;
        if more != 0 {
            store.set_aside(more);
            all.fetch_add(more as u64, Relaxed);
            self.bytes = bytes;
        }
    }

    /// The order to workers.
    fn asked(&self) -> u32 {
        let of_session = self.session.as_ref().filter(|session| session.is_active());
        match (self.shown, of_session) {
            (0, None) => 0,
            (0, Some(session)) => WANTED | u32::from(session.shift()) << 16 | session.workers().min(0xffff),
            (workers, _) => WANTED | SHOWN | workers.min(0xffff),
        }
    }
}

impl Traffic {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rings(&self) -> MutexGuard<'_, Vec<Arc<Ring>>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is wanted, and tells workers.
    fn change<R>(&self, store: &Store, change: impl FnOnce(&mut Tables) -> R) -> R {
        let mut tables = self.tables();
        let done = change(&mut tables);
        self.ask(store, &mut tables);
        done
    }

    /// Tells workers what is wanted now.
    fn ask(&self, store: &Store, tables: &mut Tables) {
        tables.charge(store, &self.bytes);
        self.mask.store(tables.spatial.as_ref().map_or(u64::MAX, |spatial| spatial.mask()), Relaxed);
        self.asked.store(tables.asked(), Relaxed);
    }

    /// Begins to show figures of so many workers, and of prefixes that end as `delimiters` say.
    pub fn show(&self, store: &Store, workers: u32, now: Millis, delimiters: Delimiters) {
        self.items.begin(store, delimiters.clone());
        self.change(store, |tables| {
            tables.shown = workers.max(1);
            tables.rounds = Some(Rounds::new(store, now, delimiters));
            tables.spatial = Some(Box::new(Spatial::new(store, now, seed())));
        });
    }

    /// Has workers that begin to sample from here on draw by this seed: the same requests in each run. Which keys are followed
    /// stays chance.
    pub fn draw_by(&self, seed: u64) {
        self.seed.store(seed, Relaxed);
    }

    /// The seed of one more worker's samples.
    fn next_seed(&self) -> u64 {
        mixed(self.seed.fetch_add(1, Relaxed))
    }

    /// Ends showing figures.
    pub fn hide(&self, store: &Store) {
        self.items.end(store);
        self.change(store, |tables| (tables.shown, tables.rounds, tables.spatial) = (0, None, None));
        *self.outlook() = None;
        *self.coldest() = None;
        *self.large() = Large::default();
    }

    /// Returns whether samples are wanted.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.asked.load(Relaxed) != 0
    }

    /// Returns whether a client is shown samples.
    #[inline]
    pub fn is_shown(&self) -> bool {
        self.asked.load(Relaxed) & SHOWN != 0
    }

    /// Returns whether samples are wanted, but shown to no client: then upkeep counts them.
    pub fn is_left_to_upkeep(&self) -> bool {
        self.asked.load(Relaxed) & (WANTED | SHOWN) == WANTED
    }

    /// Works with the session of HOTKEYS, if there is one.
    pub fn with_session<R>(&self, store: &Store, work: impl FnOnce(&mut Option<Session>) -> R) -> R {
        self.change(store, |tables| work(&mut tables.session))
    }

    /// Opens a ring for a worker, which is one of so many.
    fn open(&self, store: &Store, workers: u32) -> Arc<Ring> {
        let words =
            (RINGS_WORDS / workers.max(1) as usize).min((store.memory_bytes() / MEMORY_OF_A_WORD) as usize);
        let words = words.next_power_of_two().clamp(WORDS_MIN, RING_WORDS_MAX);
        let ring = Arc::new(Ring::new(words));
        store.set_aside(ring.bytes() as i64);
        self.bytes.fetch_add(ring.bytes(), Relaxed);
        self.rings().push(Arc::clone(&ring));
        ring
    }

    /// Closes the ring of a worker that samples no more.
    fn close(&self, store: &Store, ring: &Arc<Ring>) {
        self.rings().retain(|other| !Arc::ptr_eq(other, ring));
        self.dropped_before.fetch_add(ring.dropped(), Relaxed);
        store.set_aside(-(ring.bytes() as i64));
        self.bytes.fetch_sub(ring.bytes(), Relaxed);
    }

    /// Calls `visit` with each ring. Workers that open or close theirs wait no longer than for a list to be copied.
    fn each_ring(&self, visit: impl FnMut(&Arc<Ring>)) {
        let rings = self.rings().clone();
        rings.iter().for_each(visit);
    }

    /// Counts samples that wait and requests for followed keys, some of each worker. `now` is of the server's own clock.
    /// Returns how many it counted of both. One thread counts at a time: another waits.
    pub fn count(&self, store: &Store, now: Millis) -> usize {
        let mut tables = self.tables();
        let Tables { rounds, session, spatial, .. } = &mut *tables;
        let turned = rounds.as_mut().is_some_and(|rounds| rounds.turn(now));
        if let Some(session) = session {
            session.end_in_time(now);
        }
        if let Some(spatial) = spatial {
            spatial.tick(store, now);
        }
        let (mut counted, mut samples) = (0, 0);
        self.each_ring(|ring| {
            counted += ring.take(COUNTED_AT_ONCE, |record| match record {
                Record::Sample(sample) => {
                    samples += 1;
                    if let Some(rounds) = rounds {
                        rounds.add(sample);
                    }
                    if let Some(session) = session {
                        session.add(sample);
                    }
                }
                Record::Followed(followed) => {
                    if let Some(spatial) = spatial {
                        spatial.take(followed);
                    }
                }
            });
        });
        if let Some(rounds) = rounds {
            rounds.all[rounds.at].to = now;
        }
        self.ask(store, &mut tables);
        drop(tables);
        self.counted.fetch_add(samples, Relaxed);
        self.followed.fetch_add(counted as u64 - samples, Relaxed);
        if turned {
            *self.hottest() = self.hottest_keys().unwrap_or_default();
            *self.coldest() = self.coldest_prefix();
            *self.large() = self.large_replies();
        }
        counted
    }

    /// Makes the forecast for other memory limits, once a second. `reads` are the keys that the server has read and found, and
    /// read and not found, since it was started.
    pub fn look_ahead(&self, store: &Store, now: Millis, reads: [u64; 2]) {
        let mut tables = self.tables();
        let Some(spatial) = &mut tables.spatial else { return };
        spatial.step(store, now, reads);
        let outlook = spatial.outlook(store, now);
        self.ask(store, &mut tables);
        drop(tables);
        *self.outlook() = Some(Arc::new(outlook));
    }

    fn outlook(&self) -> MutexGuard<'_, Option<Arc<Outlook>>> {
        self.outlook.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hottest(&self) -> MutexGuard<'_, Hottest> {
        self.hottest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Large replies of the last rounds.
    fn large_replies(&self) -> Large {
        let tables = self.tables();
        let Some(rounds) = &tables.rounds else { return Large::default() };
        let ms = rounds.all.iter().map(|round| round.to.saturating_sub(round.from)).sum::<Millis>();
        // After a pause of the process a round has samples, but no time yet.
        if ms >= 1000 { large_of(&rounds.all, ms as f64 / 1000.0) } else { Large::default() }
    }

    fn large(&self) -> MutexGuard<'_, Large> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn coldest(&self) -> MutexGuard<'_, Option<Coldest>> {
        self.coldest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Figures of all that was counted so far.
    pub fn told(&self) -> Summary {
        let mut dropped = self.dropped_before.load(Relaxed);
        self.each_ring(|ring| dropped += ring.dropped());
        let (samples, bytes) = (self.counted.load(Relaxed), self.bytes.load(Relaxed) + self.items.bytes());
        let (hottest, coldest, large) = (*self.hottest(), *self.coldest(), *self.large());
        let followed = self.followed.load(Relaxed);
        let outlook = self.outlook().clone();
        Summary { samples, followed, dropped, bytes, hottest, coldest, large, outlook }
    }
}

/// Facts about a request that is sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub verb: Verb,
    pub db: u8,
    pub cost_ns: u64,
}

/// Writes a sample of a key that was answered just now, whose request and reply have so many bytes with a key and a
/// value of these lengths.
#[cold]
pub(crate) fn sample(
    tap: &Tap,
    guard: &mut Guard<'_>,
    key: &Key<'_>,
    seen: Seen,
    net_bytes: impl FnOnce(u64, Option<u64>) -> u64,
) {
    let value_bytes = guard.peek(key).hit().map(|item| item.value_bytes());
    sample_of(tap, key, seen, value_bytes, net_bytes(key.bytes().len() as u64, value_bytes));
}

/// Writes a sample of a key whose value has so many bytes.
pub(crate) fn sample_of(tap: &Tap, key: &Key<'_>, seen: Seen, value_bytes: Option<u64>, net_bytes: u64) {
    let short = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    tap.put(Sample {
        verb: seen.verb,
        found: value_bytes.is_some(),
        db: seen.db,
        shift: 0,
        hash: key.hash(),
        key: key.bytes(),
        key_bytes: short(key.bytes().len() as u64),
        value_bytes: short(value_bytes.unwrap_or(0)),
        net_bytes: short(net_bytes),
        cost_ns: short(seen.cost_ns),
    });
}

/// Records what a request has done to a key that is followed. It is called after the request: the item that is there now tells
/// it.
#[cold]
#[inline(never)]
pub(crate) fn follow(tap: &Tap, guard: &mut Guard<'_>, key: &Key<'_>, verb: Verb) {
    let now = guard.now();
    // The empty item of a lease, at which other clients wait, does not count as there yet.
    let is_there = |item: &Item<'_>| verb != Verb::Read || !item.token_sent() || item.value_bytes() > 0;
    let kept = guard.peek(key).hit().filter(is_there).map(|item| {
        let expires_at = item.expires_at();
        Kept {
            bytes: u32::try_from(item.charged_bytes()).unwrap_or(u32::MAX),
            left_ms: (expires_at != 0).then(|| expires_at.saturating_sub(now)),
        }
    });
    let happened = match (verb, kept) {
        (Verb::Read, Some(kept)) => Happened::Hit(kept),
        (Verb::Read, None) => Happened::Missed,
        // A part of it may have been taken out.
        (Verb::Write | Verb::Delete, Some(kept)) => Happened::Stored(kept),
        (Verb::Write | Verb::Delete, None) => Happened::Deleted,
    };
    tap.tell(&Followed { hash: key.hash(), db: key.number(), happened });
}

/// Nanoseconds of a usual read that comes with others, and of such a write: measured.
pub(crate) const READ_NS: u64 = 60;
pub(crate) const WRITE_NS: u64 = 80;
