//! The choice of the keys that a worker samples: it counts keys down, and writes the one at which nothing is left.
//!
//! ```text
//! keys    k k k k k k k k k k k k k k k …
//! left    9 8 7 6 5 4 3 2 1 0 → this one; so many again, drawn at random
//! ```
//!
//! Gaps are geometrically distributed: each key has the same chance, one in 1 << shift, whatever came before it. A
//! worker raises its shift as soon as it writes more than its share of samples, and lowers it when it writes fewer;
//! each sample says how many keys it stands for, so that estimates are right whatever the shift was.
//!
//! While samples are not wanted the countdown does not end. A run of requests finds out before its first key which of its groups
//! has the next sample, and counts its keys down behind the last (`core/stages.rs`): that takes some instructions a run.
//!
//! Some keys are **followed** besides: those with 0 in some bits of their hashes ([`super::spatial`]). Each request for them is
//! recorded. That takes a comparison for each key, and nothing else for a key that is not followed. While none is followed all
//! bits have to be 0.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_store::{Key, Millis, Store};

use super::ring::{Followed, Ring, Sample};
use super::{SHIFT_MAX, Traffic, WATCHES};

/// Samples that all workers together write in a tick of upkeep, about.
const TICK_SAMPLES: u32 = 300;
/// Fewest samples that a worker may write in a tick.
const TICK_SAMPLES_MIN: u32 = 16;
/// Milliseconds of a tick.
const TICK_MS: Millis = 100;
/// Most records of followed keys that a worker writes in a tick; further ones are lost. It is twice what all workers are to
/// record: when they record more than that, fewer keys are followed.
const TICK_FOLLOWED: u32 = 1000;
/// The mask where no key is followed.
const NOBODY: u64 = u64::MAX;
/// For each so many samples beyond twice its share in one tick, a worker takes half as many from there on.
const BEYOND: u32 = 64;

/// A worker's countdown.
#[derive(Debug)]
pub(crate) struct Tap {
    left: Cell<i64>,
    /// A key is followed if these bits of its hash are 0.
    mask: Cell<u64>,
    /// Whether a followed key was met, in a command whose keys are looked at afterwards.
    is_marked: Cell<bool>,
    /// The order to workers, as this worker knows it.
    asked: Cell<u32>,
    at: RefCell<Option<Open>>,
}

/// The state of a worker that writes samples.
#[derive(Debug)]
struct Open {
    ring: Arc<Ring>,
    random: u64,
    shift: u8,
    /// Keys from the last sample to the next.
    ahead: u64,
    /// `shift` when the last sample was chosen.
    sample_shift: u8,
    /// Whether there was no room for a sample.
    was_full: bool,
    /// `shift` when there first was no room since the last tick.
    full_from: Option<u8>,
    /// The smallest shift that is wanted.
    shift_min: u8,
    /// Samples that may be written in a tick.
    share: u32,
    /// Samples that were written since the last tick.
    written: u32,
    /// Keys that have passed since the last tick.
    passed: u64,
    /// Records of followed keys since the last tick.
    told: u32,
    /// The time of the last tick.
    ticked_at: Millis,
}

impl Default for Tap {
    fn default() -> Tap {
        Tap {
            left: Cell::new(i64::MAX),
            mask: Cell::new(NOBODY),
            is_marked: Cell::new(false),
            asked: Cell::new(0),
            at: RefCell::new(None),
        }
    }
}

impl Tap {
    /// Counts down so many keys that were asked for. True if one or more of them are to be sampled ([`Tap::next`]).
    #[inline(always)]
    pub fn pass(&self, keys: usize) -> bool {
        if !WATCHES {
            return false;
        }
        let left = self.left.get() - keys as i64;
        self.left.set(left);
        left <= 0
    }

    /// How many keys there are until the next that is sampled, that one counted; 0 or less: it has passed.
    #[inline(always)]
    pub fn left(&self) -> i64 {
        self.left.get()
    }

    /// Counts on from so many: a run has counted its keys down for itself.
    #[inline(always)]
    pub fn set_left(&self, left: i64) {
        self.left.set(left);
    }

    /// A key is followed if these bits of its hash are 0.
    #[inline(always)]
    pub fn mask(&self) -> u64 {
        self.mask.get()
    }

    /// Returns whether this key is followed: then each request for it is to be recorded ([`Tap::tell`]).
    #[inline(always)]
    pub fn follows(&self, key: &Key<'_>) -> bool {
        key.hash() & self.mask.get() == 0
    }

    /// Remembers, until [`Tap::take_mark`], whether this key is followed.
    #[inline(always)]
    pub fn mark(&self, key: &Key<'_>) {
        if self.follows(key) {
            self.is_marked.set(true);
        }
    }

    /// Returns whether a followed key was marked since the last call.
    #[inline]
    pub fn take_mark(&self) -> bool {
        self.is_marked.replace(false)
    }

    /// Records a request for a followed key.
    pub fn tell(&self, followed: &Followed) {
        if let Some(open) = self.at.borrow_mut().as_mut() {
            open.ring.follow(followed);
            open.told += 1;
            if open.told >= TICK_FOLLOWED {
                self.mask.set(NOBODY);
            }
        }
    }

    /// The place among the `keys` that have just passed of the next one to be sampled; `None` if it is none of them.
    pub fn next(&self, keys: usize) -> Option<usize> {
        let left = self.left.get();
        if left > 0 {
            return None;
        }
        // Before they passed there were `left + keys` left, one at least.
        let at = (left + keys as i64 - 1).max(0) as usize;
        let gap = self.at.borrow_mut().as_mut().map_or(i64::MAX, Open::sample);
        self.left.set(left.saturating_add(gap));
        Some(at)
    }

    /// Writes a sample of the key that [`Tap::next`] has chosen last.
    pub fn put(&self, sample: Sample<'_>) {
        if let Some(open) = self.at.borrow_mut().as_mut() {
            open.was_full |= !open.ring.put(&Sample { shift: open.sample_shift, ..sample });
        }
    }

    /// Does what workers were ordered to do since. Once a tick it derives how many keys a sample is to stand for.
    pub fn tend(&self, traffic: &Traffic, store: &Store, now: Millis) {
        let asked = traffic.asked.load(Relaxed);
        if asked != self.asked.get() {
            self.turn(traffic, store, now, asked);
        }
        if let Some(open) = self.at.borrow_mut().as_mut() {
            let before = open.shift;
            open.tick(now);
            if open.told < TICK_FOLLOWED {
                self.mask.set(traffic.mask.load(Relaxed));
            }
            if open.shift != before {
                self.left.set(open.gap());
            }
        }
    }

    #[cold]
    fn turn(&self, traffic: &Traffic, store: &Store, now: Millis, asked: u32) {
        self.asked.set(asked);
        let mut at = self.at.borrow_mut();
        let Some((shift_min, workers)) = super::asked(asked) else {
            if let Some(open) = at.take() {
                traffic.close(store, &open.ring);
            }
            self.left.set(i64::MAX);
            self.mask.set(NOBODY);
            return;
        };
        let share = (TICK_SAMPLES / workers).max(TICK_SAMPLES_MIN);
        match at.as_mut() {
            Some(open) => (open.shift_min, open.share) = (shift_min, share),
            None => {
                let ring = traffic.open(store, workers);
                let random = traffic.next_seed();
                *at = Some(Open {
                    ring,
                    random,
                    shift: 0,
                    ahead: 0,
                    sample_shift: 0,
                    was_full: false,
                    full_from: None,
                    shift_min,
                    share,
                    written: 0,
                    passed: 0,
                    told: 0,
                    ticked_at: now,
                });
            }
        }
        if let Some(open) = at.as_mut() {
            open.shift = open.shift.max(shift_min);
            self.left.set(open.gap());
        }
    }
}

impl Open {
    /// Draws how many keys there are until the next sample, that one counted.
    fn gap(&mut self) -> i64 {
        let gap = if self.shift == 0 { 1 } else { self.drawn() };
        self.ahead = gap as u64;
        gap
    }

    fn drawn(&mut self) -> i64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let n = super::mixed(self.random);
        // In (0, 1].
        let uniform = ((n >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let stays = 1.0 - 1.0 / f64::from(1u32 << self.shift);
        1 + (uniform.ln() / stays.ln()) as i64
    }

    /// Chooses a key. Returns how many keys there are until the next.
    fn sample(&mut self) -> i64 {
        self.sample_shift = self.shift;
        self.written += 1;
        self.passed += self.ahead;
        let beyond = self.written.saturating_sub(2 * self.share);
        let full = std::mem::take(&mut self.was_full);
        if full {
            self.full_from.get_or_insert(self.shift);
        }
        if full || beyond > 0 && beyond.is_multiple_of(BEYOND) {
            self.shift = (self.shift + 1).min(SHIFT_MAX);
        }
        self.gap()
    }

    fn tick(&mut self, now: Millis) {
        let ms = now.saturating_sub(self.ticked_at);
        if ms < TICK_MS && now >= self.ticked_at {
            return;
        }
        let may = u64::from(self.share) * ms / TICK_MS;
        let written = u64::from(self.written);
        if let Some(from) = self.full_from.take() {
            // The shift rose with each sample for which there was no room. A sample that stood for so much would make all
            // figures unsure for as long as it is counted. The smaller shift is enough for as many keys as have passed.
            let fits = |shift: &u8| self.passed >> shift <= may;
            self.shift = (from + 1..self.shift).find(fits).unwrap_or(self.shift);
        } else if written > may {
            self.shift = (self.shift + 1).min(SHIFT_MAX);
        } else if written * 2 < may {
            // The shift falls by one a tick, and at once if there was nothing for long.
            let halves = (ms / TICK_MS).clamp(1, u64::from(SHIFT_MAX)) as u8;
            self.shift = self.shift.saturating_sub(halves).max(self.shift_min);
        }
        (self.written, self.passed, self.told, self.ticked_at) = (0, 0, 0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::traffic::ring::Record;
    use crate::core::traffic::{Delimiters, Verb};
    use larder_store::Happened;

    fn sample(hash: u64) -> Sample<'static> {
        Sample {
            verb: Verb::Read,
            found: true,
            db: 0,
            shift: 0,
            hash,
            key: b"key",
            key_bytes: 3,
            value_bytes: 1,
            net_bytes: 2,
            cost_ns: 3,
        }
    }

    fn sample_in<'k>(record: &Record<'k>) -> Sample<'k> {
        match record {
            Record::Sample(sample) => *sample,
            Record::Followed(_) => panic!("nobody is followed"),
        }
    }

    fn passes(tap: &Tap, group: usize, first: u64) {
        if tap.pass(group) {
            while let Some(at) = tap.next(group) {
                assert!(at < group, "{at}");
                tap.put(sample(first + at as u64));
            }
        }
    }

    #[test]
    fn without_anybody_who_wants_it_nothing_is_sampled() {
        let tap = Tap::default();
        assert!((0..1_000_000).all(|_| !tap.pass(32)));
    }

    #[test]
    fn each_key_stands_for_itself_where_there_are_few() {
        let (store, traffic, tap) =
            (Store::new(<_>::default()).expect("a store"), Traffic::default(), Tap::default());
        traffic.show(&store, 1, 0, Delimiters::default());
        tap.tend(&traffic, &store, 0);
        for group in 0..20 {
            passes(&tap, 8, group * 8);
        }
        let mut hashes = Vec::new();
        traffic.each_ring(|ring| {
            ring.take(usize::MAX, |record| {
                let sample = sample_in(record);
                hashes.push((sample.hash, sample.shift));
            });
        });
        assert_eq!(hashes, (0..160).map(|n| (n, 0)).collect::<Vec<_>>());
    }

    #[test]
    fn many_keys_are_counted_without_bias_and_within_the_share() {
        let (store, traffic, tap) =
            (Store::new(<_>::default()).expect("a store"), Traffic::default(), Tap::default());
        traffic.show(&store, 1, 0, Delimiters::default());
        // A million keys a second, five seconds long.
        let (mut estimate, mut samples, mut last) = (0u64, 0u64, 0);
        for tick in 0..50u64 {
            tap.tend(&traffic, &store, tick * TICK_MS);
            for group in 0..12_500 {
                passes(&tap, 8, group);
            }
            last = 0;
            traffic.each_ring(|ring| {
                last += ring.take(usize::MAX, |record| estimate += 1 << sample_in(record).shift) as u64;
            });
            samples += last;
        }
        // 195 are expected, with a deviation of 14.
        assert!((100..=600).contains(&last), "{last} in the last tick");
        assert!(samples < 50 * 600 + 2000, "{samples}");
        let off = (estimate as f64 / 5e6 - 1.0).abs();
        assert!(off < 0.1, "{estimate} of 5,000,000 keys by {samples} samples");
        // Nothing for a while: each key is looked at again.
        tap.tend(&traffic, &store, 1_000_000);
        passes(&tap, 8, 0);
        let mut shifts = Vec::new();
        traffic.each_ring(|ring| {
            ring.take(usize::MAX, |record| shifts.push(sample_in(record).shift));
        });
        assert_eq!(shifts, [0; 8]);
    }

    #[test]
    fn keys_are_followed_by_their_hashes_and_no_more_is_told_in_a_tick_than_may_be() {
        let (store, traffic, tap) =
            (Store::new(<_>::default()).expect("a store"), Traffic::default(), Tap::default());
        let names: Vec<String> = (0..10_000).map(|n| format!("key{n:05}")).collect();
        let followed = |tap: &Tap| -> Vec<u64> {
            let keys = names.iter().map(|name| store.key(name.as_bytes()));
            keys.filter(|key| tap.follows(key)).map(|key| key.hash()).collect()
        };
        tap.tend(&traffic, &store, 0);
        assert!(followed(&tap).is_empty(), "nobody wants that");
        traffic.show(&store, 1, 0, Delimiters::default());
        traffic.mask.store(0b111 << 20, Relaxed);
        tap.tend(&traffic, &store, 0);
        let hashes = followed(&tap);
        assert!((1000..1500).contains(&hashes.len()), "{}", hashes.len());
        let mut told = 0;
        for _ in 0..3 {
            for &hash in &hashes {
                if hash & tap.mask() == 0 {
                    tap.tell(&Followed { hash, db: 0, happened: Happened::Missed });
                    told += 1;
                }
            }
            tap.tend(&traffic, &store, 50);
        }
        assert_eq!((told, followed(&tap).len()), (TICK_FOLLOWED, 0));
        tap.tend(&traffic, &store, 100);
        assert_eq!(followed(&tap), hashes);
        traffic.hide(&store);
        tap.tend(&traffic, &store, 101);
        assert!(followed(&tap).is_empty());
    }

    #[test]
    fn nobody_reads_and_the_worker_writes_ever_less() {
        let (store, traffic, tap) =
            (Store::new(<_>::default()).expect("a store"), Traffic::default(), Tap::default());
        traffic.show(&store, 1, 0, Delimiters::default());
        tap.tend(&traffic, &store, 0);
        for group in 0..1_000_000 {
            passes(&tap, 8, group);
        }
        let mut dropped = 0;
        traffic.each_ring(|ring| dropped += ring.dropped());
        assert!((1..60).contains(&dropped), "{dropped}");
    }

    #[test]
    fn what_a_worker_spared_itself_while_there_was_no_room_is_over_with_the_tick() {
        let (store, traffic, tap) =
            (Store::new(<_>::default()).expect("a store"), Traffic::default(), Tap::default());
        traffic.show(&store, 1, 0, Delimiters::default());
        let key = [b'k'; 128];
        for tick in 0..30 {
            tap.tend(&traffic, &store, tick * TICK_MS);
            // Seven keys for each sample that may be; at first there is room for a fifth of them.
            for group in 0..2000 {
                if tap.pass(1) && tap.next(1).is_some() {
                    tap.put(Sample { key: &key, key_bytes: 128, ..sample(group) });
                }
            }
            let mut shifts = Vec::new();
            traffic.each_ring(|ring| {
                ring.take(usize::MAX, |record| shifts.push(sample_in(record).shift));
                assert!(ring.dropped() > 0, "there was room for all");
            });
            let most = shifts.into_iter().max();
            assert!(most.is_some_and(|most| most <= 5), "{most:?} in tick {tick}");
        }
    }

    #[test]
    fn who_wants_no_more_gets_no_more_and_the_memory_is_back() {
        let (store, traffic, tap) =
            (Store::new(<_>::default()).expect("a store"), Traffic::default(), Tap::default());
        let before = store.used_bytes();
        traffic.show(&store, 3, 0, Delimiters::default());
        tap.tend(&traffic, &store, 0);
        assert!(store.used_bytes() > before + (8 << 10));
        traffic.hide(&store);
        tap.tend(&traffic, &store, 1);
        assert!(!tap.pass(1 << 20));
        assert_eq!(store.used_bytes(), before);
    }
}
