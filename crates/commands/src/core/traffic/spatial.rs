//! The keys that are followed, and the forecast that is made from them.
//!
//! ```text
//! items ──▶ how many bits of a hash are to be 0: some 400 to 800 keys ───┐
//! events a second, keys ──▶ one bit more where there are too many ───────┴─▶ mask ──▶ workers' taps
//! workers' taps ──▶ rings ──▶ [`larder_store::Forecast`] ──▶ outlook: the page, findings, metrics
//! ```
//!
//! A mask only grows: then some keys are followed no more, and what is known of the others stays. A smaller mask is a new
//! beginning. The bits are some at a place that chance chooses. A bit that is added is one that is set in the hash of the key
//! that is asked for most among the followed ones, so that a key which alone is too much is not followed for long.

use std::fmt::Display;

use larder_store::{Curve, Forecast, Memory, Millis, Store};

use super::ring::Followed;

/// Most keys that are followed and there at a time; fewer where memory is small.
const AIM: usize = 768;
const AIM_MIN: usize = 256;
const MEMORY_OF_ONE: u64 = 128 << 10;
/// Most events a second.
const EVENTS_MAX: u64 = 5_000;
/// Fewest items that tell how long items are. Where there are fewer, items are taken to be so long.
const ITEMS_FEW: u64 = 1_000;
const ITEM_BYTES: u64 = 256;
/// Least time after which fewer bits are tried, and only where there would be so many fewer. The time is shorter while nothing
/// is shown yet, and it is being found out how long items are.
const ANEW_MS: Millis = 10 * 60 * 1000;
const ANEW_BITS: u32 = 2;
const ANEW_EARLY_MS: Millis = 20 * 1000;
/// Fewest keys that are there at a time for something to be shown.
const KEYS_MIN: u64 = 48;
/// Seconds over which reads and misses a second are averaged, about.
const SMOOTH_S: f64 = 30.0;

/// Keys that are followed.
#[derive(Debug)]
pub(super) struct Spatial {
    forecast: Forecast,
    aim: usize,
    /// The place of the first bit.
    first_bit: u32,
    /// A key that may be most of what is followed, and its votes (Boyer and Moore).
    most: (u64, u64),
    /// Number of events at the last step.
    events: u64,
    stepped_at: Millis,
    flushes: u64,
    reads: Option<[u64; 2]>,
    /// Reads found and not found a second.
    paces: [f64; 2],
    /// Fills and herd misses that earlier forecasts counted.
    loads_before: [f64; 2],
}

/// The forecast for other memory limits.
#[derive(Clone, Debug, Default)]
pub struct Outlook {
    /// The curve.
    pub curve: Curve,
    /// The memory limit.
    pub limit_bytes: u64,
    /// Free memory; 0 once memory has been used up.
    pub free_bytes: u64,
    /// Keys that are read a second.
    pub reads_per_second: f64,
    /// Bytes that the forecast takes.
    pub bytes: u64,
    /// Seconds since it began.
    pub seconds: f64,
    /// First misses of keys, since figures are shown.
    pub fills: u64,
    /// Misses of keys that had been missed less than 2 s before and were not stored yet, since figures are shown.
    pub herd_misses: u64,
}

/// The change that another memory limit would bring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// The part of all reads that would be found besides; below 0: fewer would.
    pub found_more: f64,
    /// The error of `found_more`.
    pub error: f64,
    /// Number of misses a second that would be fewer.
    pub missed_less: f64,
}

impl Outlook {
    /// The change by a limit of so many times today's; `None` if that is not known yet.
    pub fn change(&self, factor: f64) -> Option<Gain> {
        let point = self.curve.at(factor)?;
        let found_more = self.curve.counted_miss_ratio - point.miss_ratio;
        Some(Gain { found_more, error: point.error, missed_less: found_more * self.reads_per_second })
    }

    /// Calls `visit` with each figure that is shown, by its name.
    pub fn each(&self, visit: &mut dyn FnMut(&str, &dyn Display)) {
        let curve = &self.curve;
        visit("ready", &u8::from(curve.points.is_some()));
        visit("progress", &format_args!("{:.2}", curve.progress));
        visit("memory_full", &u8::from(curve.is_full));
        visit("keys", &curve.keys);
        visit("keys_for_each", &curve.scale);
        visit("events", &curve.events);
        visit("seconds", &format_args!("{:.0}", self.seconds));
        visit("hit_ratio", &format_args!("{:.4}", 1.0 - curve.counted_miss_ratio));
        visit("reads_per_second", &format_args!("{:.0}", self.reads_per_second));
        visit("fills", &self.fills);
        visit("herd_misses", &self.herd_misses);
        for point in curve.points.iter().flatten() {
            let factor = point.factor;
            visit(&format!("{factor}_limit_megabytes"), &self.megabytes(factor));
            visit(&format!("{factor}_hit_ratio"), &format_args!("{:.4}", 1.0 - point.miss_ratio));
            visit(&format!("{factor}_error"), &format_args!("{:.4}", point.error));
            visit(&format!("{factor}_vague"), &u8::from(point.is_vague));
        }
    }

    /// A limit of so many times today's, in megabytes as in `-m`.
    pub fn megabytes(&self, factor: f64) -> u64 {
        (self.limit_bytes as f64 * factor / f64::from(1 << 20)).round() as u64
    }
}

impl Spatial {
    pub fn new(store: &Store, now: Millis, seed: u64) -> Spatial {
        let aim = ((store.memory_bytes() / MEMORY_OF_ONE) as usize).clamp(AIM_MIN, AIM);
        // Away from the ends, which say where in the index a key is.
        let first_bit = 16 + (seed % 24) as u32;
        let room = store.memory_for_items();
        let mask = mask_of(first_bit, bits_wanted(&room, aim));
        let mut flushes = 0;
        store.flushed_since(&mut flushes, |_| {});
        Spatial {
            forecast: Forecast::new(mask, aim, &room, now),
            aim,
            first_bit,
            most: (0, 0),
            events: 0,
            stepped_at: now,
            flushes,
            reads: None,
            paces: [0.0; 2],
            loads_before: [0.0; 2],
        }
    }

    pub fn mask(&self) -> u64 {
        self.forecast.mask()
    }

    pub fn bytes(&self) -> u64 {
        self.forecast.bytes()
    }

    /// Takes in a request for a followed key.
    pub fn take(&mut self, followed: &Followed) {
        let Followed { hash, db, happened } = *followed;
        match &mut self.most {
            (most, votes) if *most == hash => *votes += 1,
            (most, votes @ 0) => (*most, *votes) = (hash, 1),
            (_, votes) => *votes -= 1,
        }
        self.forecast.take(hash, db, happened);
    }

    /// Sets the time, and takes in which databases were flushed. Called before records are taken in.
    pub fn tick(&mut self, store: &Store, now: Millis) {
        self.forecast.tick(now);
        let forecast = &mut self.forecast;
        store.flushed_since(&mut self.flushes, |db| forecast.flush(db));
        if self.forecast.is_crowded() {
            self.narrow(&store.memory_for_items(), now);
        }
    }

    /// Makes a step, about once a second. `reads` are the keys that the server has read and found, and read and not found,
    /// since it was started.
    pub fn step(&mut self, store: &Store, now: Millis, reads: [u64; 2]) {
        let ms = now.saturating_sub(self.stepped_at);
        if ms == 0 {
            return;
        }
        self.stepped_at = now;
        let room = store.memory_for_items();
        self.forecast.set_memory(&room, now);
        let before = self.reads.replace(reads).unwrap_or(reads);
        let [hits, misses] = [0, 1].map(|nth| reads[nth].saturating_sub(before[nth]));
        self.forecast.count(hits, misses);
        let seconds = ms as f64 / 1000.0;
        let weight = 1.0 - (-seconds / SMOOTH_S).exp();
        for (pace, count) in self.paces.iter_mut().zip([hits, misses]) {
            *pace += weight * (count as f64 / seconds - *pace);
        }
        let events = self.forecast.events() - std::mem::replace(&mut self.events, self.forecast.events());
        let too_many = events * 1000 > EVENTS_MAX * ms;
        if too_many || self.forecast.keys() > self.aim {
            self.narrow(&room, now);
        }
        self.most = (0, 0);
        self.begin_anew_if_fewer(&room, now, events * 1000 / ms);
    }

    /// Demands that one bit more is 0, so that fewer keys are followed.
    fn narrow(&mut self, room: &Memory, now: Millis) {
        let (mask, (most, votes)) = (self.mask(), self.most);
        let free = (0..u64::BITS)
            .map(|nth| 1u64 << ((self.first_bit + nth) % u64::BITS))
            .filter(|bit| mask & bit == 0);
        let bit = free.clone().find(|bit| votes > 0 && most & bit != 0).or_else(|| free.clone().next());
        if let Some(bit) = bit {
            self.forecast.narrow(bit);
            self.forecast.set_memory(room, now);
        }
    }

    /// Begins anew where far more keys may be followed than are.
    fn begin_anew_if_fewer(&mut self, room: &Memory, now: Millis, pace: u64) {
        let (bits, wanted) = (self.mask().count_ones(), bits_wanted(room, self.aim));
        let age_ms = now.saturating_sub(self.forecast.began());
        if wanted >= bits || age_ms < ANEW_EARLY_MS || room.items < ITEMS_FEW {
            return;
        }
        let curve = self.forecast.curve();
        let told = curve.points.is_some() && curve.keys >= KEYS_MIN;
        let due = if told {
            wanted + ANEW_BITS <= bits && age_ms >= ANEW_MS && self.forecast.keys() * 4 < self.aim
        } else {
            true
        };
        // Each bit fewer makes twice the keys, and twice the events.
        if due && pace << (bits - wanted) < EVENTS_MAX {
            self.loads_before[0] += curve.fills;
            self.loads_before[1] += curve.herd;
            self.forecast = Forecast::new(mask_of(self.first_bit, wanted), self.aim, room, now);
            self.events = 0;
        }
    }

    pub fn outlook(&self, store: &Store, now: Millis) -> Outlook {
        let mut curve = self.forecast.curve();
        if curve.keys < KEYS_MIN {
            curve.points = None;
        }
        let (limit, used) = (store.memory_bytes(), store.used_bytes());
        let [fills, herd_misses] =
            [curve.fills + self.loads_before[0], curve.herd + self.loads_before[1]].map(|count| count as u64);
        Outlook {
            limit_bytes: limit,
            free_bytes: if curve.is_full { 0 } else { limit.saturating_sub(used) },
            reads_per_second: self.paces.iter().sum(),
            bytes: self.bytes(),
            seconds: now.saturating_sub(self.forecast.began()) as f64 / 1000.0,
            fills,
            herd_misses,
            curve,
        }
    }
}

/// A mask of so many bits from one on.
fn mask_of(first: u32, bits: u32) -> u64 {
    (1u64 << bits).wrapping_sub(1).rotate_left(first)
}

/// Number of bits that are to be 0, so that no more keys are followed than are aimed at when memory is full.
fn bits_wanted(room: &Memory, aim: usize) -> u32 {
    let item_bytes = if room.items < ITEMS_FEW { ITEM_BYTES } else { (room.taken_bytes / room.items).max(1) };
    let items = (room.bytes[larder_store::NOW] / item_bytes).max(room.items);
    (items / aim as u64).checked_ilog2().map_or(0, |bits| bits + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_store::{Config, Happened, Kept};

    const KEPT: Kept = Kept { bytes: 200, left_ms: None };

    fn store() -> std::sync::Arc<Store> {
        Store::new(Config { memory_bytes: 64 << 20, ..Config::default() }).expect("a store")
    }

    fn hash(n: u64) -> u64 {
        let n = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n ^ n >> 31
    }

    #[test]
    fn an_empty_store_begins_with_the_keys_that_a_full_one_is_taken_to_have() {
        let store = store();
        let spatial = Spatial::new(&store, 0, 99);
        // 64 MiB of 256 bytes: some 240,000 items, of which 512 at most are followed.
        assert_eq!(spatial.mask().count_ones(), 9);
        assert!(spatial.outlook(&store, 1000).curve.points.is_none());
    }

    #[test]
    fn a_key_that_is_asked_for_too_often_is_followed_no_more() {
        let store = store();
        let mut spatial = Spatial::new(&store, 0, 5);
        let mut followed = (0u64..).map(hash).filter(|hash| hash & mask_of(21, 9) == 0);
        assert_eq!(spatial.mask(), mask_of(21, 9));
        let hot = followed.next().expect("there is one");
        let others: Vec<u64> = followed.take(100).collect();
        for second in 1..=4 {
            spatial.tick(&store, second * 1000);
            for n in 0..20_000 {
                let hash = if n % 10 == 0 { others[n / 10 % 100] } else { hot };
                spatial.take(&Followed { hash, db: 0, happened: Happened::Hit(KEPT) });
            }
            spatial.step(&store, second * 1000, [second * 20_000, 0]);
        }
        assert_ne!(hot & spatial.mask(), 0);
        let left = others.iter().filter(|hash| *hash & spatial.mask() == 0).count();
        assert!((25..75).contains(&left), "{left} of the others are left");
        assert_eq!(spatial.mask().count_ones(), 10, "one bit was enough");
    }

    #[test]
    fn reads_and_misses_are_counted_from_the_first_look_on() {
        let store = store();
        let mut spatial = Spatial::new(&store, 0, 1);
        spatial.step(&store, 1000, [1_000_000, 500_000]);
        assert_eq!(spatial.outlook(&store, 1000).reads_per_second, 0.0);
        for second in 2..300 {
            spatial.step(&store, second * 1000, [1_000_000 + second * 900, 500_000 + second * 100]);
        }
        let pace = spatial.outlook(&store, 300_000).reads_per_second;
        assert!((950.0..1050.0).contains(&pace), "{pace}");
    }

    #[test]
    fn where_items_are_long_more_of_them_are_followed_as_soon_as_that_is_known() {
        let store = store();
        let mut spatial = Spatial::new(&store, 0, 7);
        let mut worker = store.worker().expect("a worker");
        let mut guard = worker.enter(1);
        for n in 0..2000u32 {
            let name = n.to_le_bytes();
            let key = guard.key(&name);
            let stored = guard.store_value(&key, &[7; 8000], &<_>::default(), larder_store::Expect::Any);
            stored.expect("room");
        }
        spatial.step(&store, 10_000, [0, 0]);
        assert_eq!(spatial.mask().count_ones(), 9);
        spatial.step(&store, 20_000, [0, 0]);
        // Some 7,500 items of 8,200 bytes.
        assert_eq!(spatial.mask().count_ones(), 4);
    }

    #[test]
    fn what_is_flushed_is_known_without_being_told() {
        let store = store();
        let mut worker = store.worker().expect("a worker");
        let mut spatial = Spatial::new(&store, 0, 1);
        for n in (0..200_000).map(hash).filter(|hash| hash & spatial.mask() == 0).collect::<Vec<_>>() {
            spatial.take(&Followed { hash: n, db: 0, happened: Happened::Stored(KEPT) });
        }
        assert!(spatial.forecast.keys() > 300);
        worker.enter(1).flush();
        spatial.tick(&store, 1000);
        assert_eq!(spatial.forecast.keys(), 0);
    }
}
