//! What more or less memory would bring: the misses of caches of other sizes, simulated in miniature.
//!
//! ```text
//! all requests of some keys ─┬─▶ cache of ¼ ×  ─▶ misses ┐
//!   (one in 1 << k)          ├─▶ …                       ├─▶ miss ratio counted × misses / those at 1 ×
//!                            └─▶ cache of 4 ×  ─▶ misses ┘      ± by leaving out a group of keys at a time
//! ```
//!
//! Events go in, a curve comes out; nothing here knows a store, a clock or a thread. Which keys are sampled their hashes
//! say: those of which certain bits are 0. So all requests of a key are seen or none, and reuse is what it is for all
//! keys (SHARDS, FAST '15). S3-FIFO has no inclusion, so that no stack distance says what another size would do: each
//! size is simulated (miniature simulations, ATC '17), with the store's own rules for what stays: [`cache`].
//!
//! **What a cache of another size would see.** A key that was found and is not in a smaller cache would have been loaded
//! there: it is stored at once, with the lifetime that it was given last. A key that was not found is stored when its
//! client does; a larger cache that has it still would have answered, and its copy keeps its time.
//!
//! **From misses to a ratio.** Whether one of the hottest keys is sampled is chance, and ruins hits counted for requests.
//! Hot keys hardly miss: misses are sound. So the ratio that the server has counted is multiplied by the quotient of
//! simulated misses, and what the simulation does not do as the store does divides out. Where hardly anything is missed
//! the quotient says nothing, and the difference of misses is added instead.
//!
//! A cache counts from when it has evicted what it holds once, and so does what it is compared with. One that has never
//! evicted has room for all that it was asked for.

mod cache;
mod estimate;
mod herd;
mod keys;
mod memory;
#[cfg(all(test, not(feature = "loom")))]
mod tests;

pub use estimate::{Curve, Point};
pub(crate) use memory::SLOT_BYTES;
pub use memory::{Judging, Memory};

use crate::Millis;
use cache::{Cache, Looked};
use estimate::Misses;
use herd::Loads;
use keys::Keys;

/// Sizes that are simulated.
pub const SIZES: usize = 7;
/// As parts of the memory limit.
pub const FACTORS: [f64; SIZES] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0];
/// The place of today's size in [`FACTORS`].
pub const NOW: usize = 3;
/// Time is counted in so many milliseconds.
const TICK_MS: Millis = 10;
/// What was counted weighs half after so long.
const HALF_LIFE_MS: Millis = 10 * 60 * 1000;
/// Memory is short if something was evicted in the last so many milliseconds.
const SHORT_MS: Millis = 60 * 1000;
/// Keys that are looked at with each event, whether their time has passed.
const SWEPT: usize = 4;
/// Keys that there may be for each that today's size may have: four times the memory, which has shorter items, and what
/// smaller sizes have beside. (With four large sizes had no room for what was new, and all were said to miss the same.)
const KEYS_FOR_EACH: usize = 6;

/// What happened to a key that is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It was read and found.
    Hit(Kept),
    /// It was read and not found.
    Missed,
    /// It was stored, or changed.
    Stored(Kept),
    /// It was taken out.
    Deleted,
}

/// An item as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What it takes: its chunk and its slot ([`crate::Item::charged_bytes`]).
    pub bytes: u32,
    /// Milliseconds until its time has passed; none: never.
    pub left_ms: Option<Millis>,
}

/// A moment of a forecast; [`NEVER`] does not come.
type Tick = u32;
const NEVER: Tick = Tick::MAX;

/// A key's hash, spread: hashes of sampled keys have bits in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spread(u64);

impl Spread {
    fn of(hash: u64) -> Spread {
        let mixed = (hash ^ hash >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
        Spread(mixed ^ mixed >> 32)
    }
}

/// A simulation of seven sizes.
#[derive(Debug)]
pub struct Forecast {
    /// A key is sampled if these bits of its hash are 0.
    mask: u64,
    keys: Keys,
    caches: [Cache; SIZES],
    misses: Misses,
    loads: Loads,
    began: Millis,
    now: Tick,
    halved_at: Millis,
    /// What the server had evicted when it was asked last, and when that last changed.
    evictions: u64,
    evicted_at: Option<Millis>,
    events: u64,
}

impl Forecast {
    /// A forecast that has seen nothing yet. It samples keys whose hash has 0 in the bits of `mask`, of which no more than
    /// `aim` are to be in memory; caches have room for their part of `memory`.
    pub fn new(mask: u64, aim: usize, memory: &Memory, now: Millis) -> Forecast {
        let mut forecast = Forecast {
            mask,
            keys: Keys::new(aim * KEYS_FOR_EACH),
            caches: std::array::from_fn(Cache::new),
            misses: Misses::default(),
            loads: Loads::default(),
            began: now,
            now: 0,
            halved_at: now,
            evictions: memory.evictions,
            evicted_at: None,
            events: 0,
        };
        forecast.set_memory(memory, now);
        forecast
    }

    /// Bits that are 0 in the hashes of sampled keys.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// The number of keys that a sampled key stands for.
    pub fn scale(&self) -> f64 {
        (self.mask.count_ones() as f64).exp2()
    }

    /// When it began.
    pub fn began(&self) -> Millis {
        self.began
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The keys that the cache of today's size has.
    pub fn keys(&self) -> usize {
        self.caches[NOW].len()
    }

    /// True if there is no room for more keys: fewer are to be sampled.
    pub fn is_crowded(&self) -> bool {
        self.keys.is_full()
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        let caches = self.caches.iter().map(Cache::bytes_taken).sum::<usize>();
        (size_of::<Forecast>() + self.keys.bytes_taken() + caches) as u64
    }

    /// Sets the memory for items, as it is `now`.
    pub fn set_memory(&mut self, memory: &Memory, now: Millis) {
        let scale = self.scale();
        for (cache, bytes) in self.caches.iter_mut().zip(memory.bytes) {
            cache.set_memory((bytes as f64 / scale) as u64, memory.judging);
        }
        if std::mem::replace(&mut self.evictions, memory.evictions) != memory.evictions {
            self.evicted_at = Some(now);
        }
        let evicts = self.evicted_at.is_some_and(|at| now.saturating_sub(at) < SHORT_MS);
        self.misses.set_full(memory.is_full && evicts);
        self.misses.set_lost(memory.lost);
    }

    /// Samples fewer keys from now on: those whose hash has 0 in these bits, too. The memory of
    /// caches stays as it was: [`Forecast::set_memory`] is to follow.
    pub fn narrow(&mut self, mask: u64) {
        self.mask |= mask;
        for at in self.keys.places() {
            if self.keys[at].hash & self.mask != 0 {
                self.remove(at);
            }
        }
    }

    /// Counts how many reads of the server found their key, and how many did not, since this was last called.
    pub fn count(&mut self, hits: u64, misses: u64) {
        if self.misses.begun() {
            self.misses.count(hits, misses);
        }
    }

    /// Forgets what was counted, and keeps the keys: for a caller that asks about a certain time.
    pub fn count_anew(&mut self) {
        self.misses.count_anew();
    }

    /// Sets the time. What was counted long ago weighs less.
    pub fn tick(&mut self, now: Millis) {
        let ticks = now.saturating_sub(self.began) / TICK_MS;
        self.now = self.now.max(Tick::try_from(ticks).unwrap_or(NEVER - 1).max(1));
        if now.saturating_sub(self.halved_at) >= HALF_LIFE_MS {
            self.halved_at = now;
            self.misses.halve();
        }
    }

    /// Takes in what happened to a key of the database with this number; a key that is not sampled is passed over.
    pub fn take(&mut self, hash: u64, db: u8, happened: Happened) {
        if hash & self.mask != 0 {
            return;
        }
        self.events += 1;
        let spread = Spread::of(hash);
        match happened {
            Happened::Hit(kept) => self.hit(hash, spread, db, kept),
            Happened::Missed => self.missed(hash, spread),
            Happened::Stored(kept) => self.stored(hash, spread, db, kept),
            Happened::Deleted => {
                self.loads.forget(spread);
                if let Some(at) = self.keys.find(hash, spread) {
                    self.remove(at);
                }
            }
        }
        self.sweep();
    }

    /// Takes out all keys of a database, or of all.
    pub fn flush(&mut self, db: Option<u8>) {
        for at in self.keys.places() {
            if db.is_none_or(|db| self.keys[at].db == db) {
                self.remove(at);
            }
        }
    }

    /// Returns what is known now.
    pub fn curve(&self) -> Curve {
        let caches = self.caches.each_ref().map(Cache::state);
        let mut curve = self.misses.curve(caches);
        curve.keys = self.keys() as u64;
        curve.events = self.events;
        curve.scale = self.scale();
        curve
    }

    fn until(&self, left_ms: Option<Millis>) -> Tick {
        let ticks = left_ms.map(|ms| ms.div_ceil(TICK_MS));
        let at = ticks.and_then(|ticks| u64::from(self.now).checked_add(ticks));
        at.and_then(|at| Tick::try_from(at).ok()).unwrap_or(NEVER)
    }

    /// The key's place, a new one if it has none, and whether it had one; none if there is no room.
    fn place(&mut self, hash: u64, spread: Spread, db: u8, bytes: u32) -> Option<(usize, bool)> {
        if let Some(at) = self.keys.find(hash, spread) {
            self.resize(at, bytes);
            return Some((at, true));
        }
        Some((self.keys.add(hash, spread, db, bytes)?, false))
    }

    /// Notes that the item takes so many bytes now, in all caches that have it.
    fn resize(&mut self, at: usize, bytes: u32) {
        let was = std::mem::replace(&mut self.keys[at].bytes, bytes);
        if was != bytes {
            self.caches.iter_mut().for_each(|cache| cache.resized(&self.keys, at, was));
        }
    }

    fn hit(&mut self, hash: u64, spread: Spread, db: u8, kept: Kept) {
        let until = self.until(kept.left_ms);
        let Some((at, known)) = self.place(hash, spread, db, kept.bytes) else { return };
        self.keys.spare(at);
        let lifetime = self.keys[at].lifetime;
        let loaded_until = match lifetime {
            // It is not known what a client would give it: as long as this one has.
            0 => until,
            NEVER => NEVER,
            ticks => self.now.saturating_add(ticks),
        };
        let mut missed = 0;
        for (nth, cache) in self.caches.iter_mut().enumerate() {
            match cache.look(&mut self.keys, at, self.now) {
                Looked::Found => {}
                // The server has it from before: so would a larger one have, and any that has lost nothing yet.
                Looked::Absent if !known && (nth > NOW && !cache.is_warm() || !cache.has_evicted()) => {
                    cache.put(&mut self.keys, at, spread, until, self.now);
                }
                Looked::Absent => {
                    missed |= 1 << nth;
                    cache.put(&mut self.keys, at, spread, loaded_until, self.now);
                }
            }
        }
        self.count_read(spread, missed, false);
        self.keys.let_go();
    }

    fn missed(&mut self, hash: u64, spread: Spread) {
        let at = self.keys.find(hash, spread);
        let mut missed = 0;
        for (nth, cache) in self.caches.iter_mut().enumerate() {
            let found = at.is_some_and(|at| cache.look(&mut self.keys, at, self.now) == Looked::Found);
            missed |= u32::from(!found) << nth;
        }
        if let Some(at) = at {
            self.keys.drop_unused(at);
        }
        self.count_read(spread, missed, true);
        let is_herd = self.loads.missed(spread, self.now);
        self.misses.load(is_herd, self.scale());
    }

    fn stored(&mut self, hash: u64, spread: Spread, db: u8, kept: Kept) {
        let until = self.until(kept.left_ms);
        let is_fill = self.loads.stored(spread);
        let Some((at, _)) = self.place(hash, spread, db, kept.bytes) else { return };
        self.keys.spare(at);
        self.keys[at].lifetime = kept.left_ms.map_or(NEVER, |_| (until - self.now).max(1));
        for cache in &mut self.caches {
            if cache.has(&self.keys, at, self.now) {
                // This cache would have answered, and its client would have stored nothing.
                if !is_fill {
                    cache.overwrite(&mut self.keys, at, until);
                }
            } else {
                cache.put(&mut self.keys, at, spread, until, self.now);
            }
        }
        self.keys.let_go();
    }

    fn count_read(&mut self, spread: Spread, missed: u32, really: bool) {
        let scale = self.scale();
        self.misses.warm(self.caches.each_ref().map(Cache::state));
        self.misses.read((spread.0 >> 60) as usize, missed, really, scale);
    }

    /// Takes a key out of all caches.
    fn remove(&mut self, at: usize) {
        self.keys.spare(at);
        self.caches.iter_mut().for_each(|cache| cache.remove(&mut self.keys, at));
        self.keys.let_go();
    }

    /// Takes out what has expired, as upkeep does: a few keys at a time.
    fn sweep(&mut self) {
        for _ in 0..SWEPT {
            let Some(at) = self.keys.next_place() else { return };
            self.keys.spare(at);
            for cache in &mut self.caches {
                cache.expire(&mut self.keys, at, self.now);
            }
            self.keys.let_go();
        }
    }
}
