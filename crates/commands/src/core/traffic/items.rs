//! A sampler of stored items: how long they have left, how long ago they were read, whether they ever were, how large strings
//! are, and which prefixes they have. It looks at some items at a time.
//!
//! ```text
//! upkeep ── some items at a random place of the index ──► round of some thousand items ──► the last one that was whole
//! ```
//!
//! A place is a hash, and items lie evenly over the hashes: each has the same chance. So a part `p` of the bytes is known with
//! a standard error of `sqrt(sum of b² (x - p)²) / sum of b` over items of `b` bytes, where `x` is whether one is of that part;
//! [`SIGMAS`] of them are reported. Where there are few items all of them are looked at, and there is no error. Without a reader
//! nothing is looked at.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_store::{Guard, Item, Millis, Store};

use super::ring::KEY_BYTES_KEPT;
use super::top::{Name, Sums, Top, ranked};
use super::{Delimiters, SIGMAS, Sample, Verb, prefixes};

/// Items of one look.
const AT_ONCE: usize = 128;
/// Milliseconds from one look to the next.
const PAUSE_MS: Millis = 100;
/// Items after which a round ends.
const ROUND_ITEMS: u64 = 8192;
/// Milliseconds after which a round ends in any case.
const ROUND_MS: Millis = 30_000;
const SECOND: Millis = 1000;
const MINUTE: Millis = 60 * SECOND;
const HOUR: Millis = 60 * MINUTE;
const DAY: Millis = 24 * HOUR;

/// Times that items have left until they expire: each step's name and upper bound. Items without an expiry are in the last.
const LEFT: [(&str, Millis); 7] = [
    ("10s", 10 * SECOND),
    ("1m", MINUTE),
    ("10m", 10 * MINUTE),
    ("1h", HOUR),
    ("1d", DAY),
    ("more", Millis::MAX - 1),
    ("never", Millis::MAX),
];

/// Times since items were read or written: each step's name and upper bound. After two minutes the store knows them in steps of
/// half an hour, up to six days.
const IDLE: [(&str, Millis); 6] = [
    ("10s", 10 * SECOND),
    ("1m", MINUTE),
    ("1h", HOUR),
    ("6h", 6 * HOUR),
    ("1d", DAY),
    ("more", Millis::MAX),
];

/// Items of one part.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    items: u64,
    bytes: f64,
    squares: f64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        let bytes = bytes as f64;
        self.items += 1;
        self.bytes += bytes;
        self.squares += bytes * bytes;
    }

    fn merge(&mut self, other: &Sum) {
        self.items += other.items;
        self.bytes += other.bytes;
        self.squares += other.squares;
    }

    /// The error by sampling of a part's share, if the bytes of the part's items have this sum of squares.
    fn sampling(&self, squares: f64, share: f64) -> f64 {
        let variance = squares * (1.0 - 2.0 * share) + share * share * self.squares;
        // One item more is added: that none was seen does not tell how many there might have been.
        let more = self.squares / self.items.max(1) as f64;
        (SIGMAS * (variance.max(0.0) + more).sqrt() / self.bytes.max(1.0)).min(1.0)
    }
}

/// Sums over the items of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    since: Millis,
    all: Sum,
    left: [Sum; LEFT.len()],
    idle: [Sum; IDLE.len()],
    unread: Sum,
    largest_string_bytes: u64,
}

impl Round {
    fn add(&mut self, item: &Item<'_>, now: Millis) {
        let bytes = item.item_bytes();
        let left = match item.expires_at() {
            0 => Millis::MAX,
            at => at.saturating_sub(now).min(Millis::MAX - 1),
        };
        let at = |steps: &[(&str, Millis)], ms| steps.iter().position(|(_, most)| ms <= *most);
        let idle = item.idle_s().saturating_mul(SECOND);
        self.all.add(bytes);
        self.left[at(&LEFT, left).unwrap_or(LEFT.len() - 1)].add(bytes);
        self.idle[at(&IDLE, idle).unwrap_or(IDLE.len() - 1)].add(bytes);
        if !item.fetched() {
            self.unread.add(bytes);
        }
        if !item.is_collection() {
            self.largest_string_bytes = self.largest_string_bytes.max(bytes);
        }
    }

    fn merge(&mut self, other: &Round) {
        self.all.merge(&other.all);
        self.left.iter_mut().zip(&other.left).for_each(|(sum, other)| sum.merge(other));
        self.idle.iter_mut().zip(&other.idle).for_each(|(sum, other)| sum.merge(other));
        self.unread.merge(&other.unread);
        self.largest_string_bytes = self.largest_string_bytes.max(other.largest_string_bytes);
    }
}

/// A part of the stored items.
#[derive(Clone, Copy, Debug)]
pub struct AgeShare {
    /// The part's upper bound; `more` and `never` are beyond all others.
    pub within: &'static str,
    /// Its part of the bytes of all items.
    pub share: f64,
    /// The error of `share`.
    pub error: f64,
    /// Its part of the items.
    pub items: f64,
}

/// Stored items, by time.
#[derive(Clone, Debug)]
pub struct Ages {
    /// Items that were looked at.
    pub items: u64,
    /// Whether these are all that there are.
    pub whole: bool,
    /// Parts by what items have left until they expire.
    pub left: [AgeShare; LEFT.len()],
    /// Parts by how long ago items were read, or written.
    pub idle: [AgeShare; IDLE.len()],
    /// Items that were never read.
    pub unread: AgeShare,
    /// Bytes of the largest string of them; 0 if there is none.
    pub largest_string_bytes: u64,
}

/// Prefixes of items that were looked at, by bytes.
#[derive(Debug)]
struct Prefixes {
    delimiters: Delimiters,
    /// Prefixes of the round that goes on, and of the last.
    tops: [Top; 2],
}

impl Prefixes {
    fn new(store: &Store, delimiters: Delimiters) -> Prefixes {
        let entries = prefixes::entries_of(store);
        Prefixes { delimiters, tops: [entries; 2].map(Top::new) }
    }

    fn add(&mut self, item: &Item<'_>) {
        let (key, bytes) = (item.key(), item.item_bytes());
        let sample = Sample {
            verb: Verb::Read,
            found: true,
            db: item.database(),
            shift: 0,
            hash: 0,
            key: &key[..key.len().min(KEY_BYTES_KEPT)],
            key_bytes: 0,
            value_bytes: 0,
            net_bytes: 0,
            cost_ns: 0,
        };
        let variance = (bytes as f64).powi(2);
        self.tops[0].add_unsure(&self.delimiters.of_prefix(&sample), bytes, variance);
    }

    fn turn(&mut self) {
        self.tops.swap(0, 1);
        self.tops[0].clear();
    }
}

#[derive(Debug, Default)]
struct Looked {
    /// The round that goes on, and the last.
    rounds: [Round; 2],
    prefixes: Option<Prefixes>,
    /// Whether all items were looked at.
    whole: bool,
    due: Millis,
    random: u64,
}

impl Looked {
    fn add(&mut self, item: &Item<'_>, time: Millis) {
        self.rounds[0].add(item, time);
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.add(item);
        }
    }

    /// Begins another round.
    fn turn(&mut self, now: Millis) {
        self.rounds = [Round { since: now, ..Round::default() }, self.rounds[0]];
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.turn();
        }
    }

    fn bytes(&self) -> u64 {
        let tops = self.prefixes.iter().flat_map(|prefixes| &prefixes.tops);
        tops.map(|top| top.bytes() + top.merging_bytes()).sum()
    }
}

/// The sampler of stored items.
#[derive(Debug, Default)]
pub(crate) struct ItemSampler {
    wanted: AtomicBool,
    looked: Mutex<Looked>,
    /// Bytes that it takes, as they are charged to the store.
    bytes: AtomicU64,
}

impl ItemSampler {
    fn looked(&self) -> MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that it takes beside itself.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    fn charge(&self, store: &Store, bytes: u64) {
        let before = self.bytes.swap(bytes, Relaxed);
        if bytes != before {
            store.set_aside(bytes as i64 - before as i64);
        }
    }

    /// Begins, since a reader wants to know.
    pub(super) fn begin(&self, store: &Store, delimiters: Delimiters) {
        let mut looked = self.looked();
        *looked = Looked {
            random: super::seed(),
            prefixes: Some(Prefixes::new(store, delimiters)),
            ..Looked::default()
        };
        self.charge(store, looked.bytes());
        self.wanted.store(true, Relaxed);
    }

    /// Ends, since the last reader has gone.
    pub(super) fn end(&self, store: &Store) {
        let mut looked = self.looked();
        self.wanted.store(false, Relaxed);
        *looked = Looked::default();
        self.charge(store, 0);
    }

    /// Looks at some items, if it is time for that. `now` is of the server's own clock. Called from one worker's upkeep.
    #[inline]
    pub fn step(&self, guard: &mut Guard<'_>, now: Millis) {
        if self.wanted.load(Relaxed) {
            self.look(guard, now);
        }
    }

    #[cold]
    fn look(&self, guard: &mut Guard<'_>, now: Millis) {
        // A worker does not wait for a reader of this: it looks the next time.
        let Ok(mut looked) = self.looked.try_lock() else { return };
        let is_early = now < looked.due && looked.due - now <= PAUSE_MS;
        if is_early || !self.wanted.load(Relaxed) {
            return;
        }
        looked.due = now + PAUSE_MS;
        let (items, time) = (guard.store().totals().items, guard.now());
        let whole = items <= AT_ONCE as u64;
        if whole || looked.whole {
            // Earlier rounds are forgotten: their items are looked at again, or were too few to stand for many.
            (0..2).for_each(|_| looked.turn(now));
        }
        looked.whole = whole;
        let since = looked.rounds[0].since;
        if looked.rounds[0].all.items >= ROUND_ITEMS || now >= since + ROUND_MS || now < since {
            looked.turn(now);
        }
        looked.random = looked.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let cursor = if whole { 0 } else { super::mixed(looked.random) };
        let mut seen = 0;
        let next = guard.walk(cursor, AT_ONCE, &mut |item| {
            seen += 1;
            looked.add(&item, time);
        });
        // Behind the end the look goes on at the beginning.
        if next == 0 && !whole && seen < AT_ONCE {
            guard.walk(0, AT_ONCE - seen, &mut |item| looked.add(&item, time));
        }
        self.charge(guard.store(), looked.bytes());
    }

    /// The prefixes that take most of the bytes of items, those with the largest parts first; each with its part and the error
    /// of that.
    pub(super) fn prefixes(&self, most: usize) -> Vec<(Name, (f64, f64))> {
        let looked = self.looked();
        let Some(prefixes) = &looked.prefixes else { return Vec::new() };
        let mut round = looked.rounds[0];
        round.merge(&looked.rounds[1]);
        let all = round.all;
        let share = |sums: &Sums| {
            let share = sums.weight() as f64 / all.bytes.max(1.0);
            let sampling = if looked.whole { 0.0 } else { all.sampling(sums.variance, share) };
            (share, sums.error as f64 / 2.0 / all.bytes.max(1.0) + sampling)
        };
        ranked(prefixes.tops.iter(), most, share, |name, sums| (name.clone(), share(sums)))
    }

    /// Ages of stored items; `None` if there is no reader, or nothing was seen.
    pub fn ages(&self) -> Option<Ages> {
        if !self.wanted.load(Relaxed) {
            return None;
        }
        let looked = self.looked();
        let [mut round, last] = looked.rounds;
        let whole = looked.whole;
        drop(looked);
        round.merge(&last);
        let all = round.all;
        if all.items == 0 {
            return None;
        }
        let part = |within, sum: &Sum| {
            let share = sum.bytes / all.bytes.max(1.0);
            let error = if whole { 0.0 } else { all.sampling(sum.squares, share) };
            AgeShare { within, share, error, items: sum.items as f64 / all.items as f64 }
        };
        Some(Ages {
            largest_string_bytes: round.largest_string_bytes,
            items: all.items,
            whole,
            left: std::array::from_fn(|at| part(LEFT[at].0, &round.left[at])),
            idle: std::array::from_fn(|at| part(IDLE[at].0, &round.idle[at])),
            unread: part("unread", &round.unread),
        })
    }
}
