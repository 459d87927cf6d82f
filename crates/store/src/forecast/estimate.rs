//! From misses to a curve, with an error.
//!
//! ```text
//! miss(x) = counted × M(x) / M(1)                      while M(1) is worth something
//!         = counted + (M(x) − M(1)) ÷ reads counted    where next to nothing is missed
//! ```
//!
//! where M of little memory is corrected for what spans lose. The error is a jackknife's: keys are in 16 groups, by other
//! bits of their hash, and the estimate is made without each of them in turn. `SE² = 15/16 Σ (r_g − r̄)²`. What is told is
//! 2.5 standard errors up to 2 ×, and 4 beyond: there few keys are left to say anything, and the jackknife is too sure of
//! itself. Beside that stands what the store is known to do otherwise than the simulation (decision 0012). Below today's size
//! that makes the store miss more in each respect: the parts err together, and their sum counts, not the root of their
//! squares.
//!
//! Of today's size it is known what the simulation misses of the followed keys, and what the server did. By how much they
//! differ is added to each error; where they differ by much the simulation is of another cache, and no other size is told.

use super::cache::State;
use super::{FACTORS, NOW, SIZES};

/// Groups of keys.
pub(super) const GROUPS: usize = 16;
/// Misses of the cache of today's size from which on their quotient is worth something.
pub const MISSES_MIN: u64 = 400;
/// Reads without which nothing is told.
pub const READS_MIN: u64 = 4_000;
/// Standard errors that are told, up to 2 × and beyond.
const SIGMAS: f64 = 2.5;
const SIGMAS_FAR: f64 = 4.0;
/// In little memory spans of many classes hold what a single queue would have evicted: the store misses more than the
/// simulation, the more of the limit is lost to spans that are not full. Of what more memory would avoid so many times the
/// square of that part: measured, in 8 to 32 MiB with eighty classes (decision 0012); and that may be off by its half.
const LOSS: f64 = 2.0;
const LOSS_ERROR: f64 = 0.5;
/// The store is no single queue in other respects either: of what another size changes, so much may be off.
const MODEL_ERROR: f64 = 0.4;
/// Free chunks are taken to be as many whatever the limit is. Stores of half the limit had up to a third more (3.3 MiB of 8, 2.5
/// of 16): so much room may be missing there, less at larger sizes and more at smaller ones.
const FREE_MORE: f64 = 0.32;
/// The simulation of today's size agrees with the server if they differ by no more than this part of what is missed, or of reads.
const ASTRAY_OF_MISSES: f64 = 0.125;
const ASTRAY_OF_READS: f64 = 0.01;
/// The least error.
const ERROR_MIN: f64 = 0.0005;

/// Sums by groups.
type Sums = [f64; GROUPS];

/// What was missed.
#[derive(Debug, Default)]
pub(super) struct Misses {
    /// The misses of each cache, since it is warm.
    of: [Sums; SIZES],
    /// The misses of today's size since that time.
    beside: [Sums; SIZES],
    /// Reads since then, of all keys, about.
    reads: [f64; SIZES],
    /// What the server missed of these, since today's size is warm.
    really: Sums,
    /// Misses of today's size, and reads, without weight.
    misses_seen: f64,
    reads_seen: f64,
    /// Caches that count.
    warm: [bool; SIZES],
    /// What the server has counted, since today's size is warm.
    hits: f64,
    misses: f64,
    /// Misses of keys that had not been missed in the 2 s before, and of others, of all keys, about.
    fills: f64,
    herd: f64,
    /// Memory is used up.
    is_full: bool,
    /// The part of each limit that is lost.
    lost: [f64; SIZES],
}

/// A size, and what would be missed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// As a part of the memory limit.
    pub factor: f64,
    /// Misses as a part of all reads.
    pub miss_ratio: f64,
    /// Give or take so much.
    pub error: f64,
    /// The simulated cache has not been full for long, and more may be found than this; or that of
    /// today's size does not miss what the server does.
    pub is_vague: bool,
}

/// What is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// All sizes, ascending; none before it is ready.
    pub points: Option<[Point; SIZES]>,
    /// The ratio that the server has counted meanwhile.
    pub counted_miss_ratio: f64,
    /// What the simulation of today's size misses of what is sampled, and what the server did.
    pub simulated: [f64; 2],
    /// How far it is from being ready, from 0 to 1.
    pub progress: f64,
    /// Memory is used up: what more of it would bring is worth asking.
    pub is_full: bool,
    /// Sampled keys that the cache of today's size has.
    pub keys: u64,
    /// For how many a sampled key stands.
    pub scale: f64,
    /// Events that it stands on.
    pub events: u64,
    /// Misses of keys that had not been missed in the 2 s before, of all keys, about.
    pub fills: f64,
    /// Misses of keys that had been missed less than 2 s before and were not stored yet, of all keys, about.
    pub herd: f64,
}

impl Curve {
    /// The point of a size, if it is worth something.
    pub fn at(&self, factor: f64) -> Option<Point> {
        self.points?.into_iter().find(|point| point.factor == factor && !point.is_vague)
    }
}

impl Misses {
    /// True if misses of today's size are counted.
    pub fn begun(&self) -> bool {
        self.warm[NOW]
    }

    /// Sets whether memory is used up and something is evicted; else there is room for all that is stored.
    pub fn set_full(&mut self, is_full: bool) {
        if is_full && !self.is_full {
            // What was seen while there was room says nothing about now.
            let Misses { fills, herd, lost, .. } = *self;
            *self = Misses { fills, herd, lost, is_full, ..Misses::default() };
        }
        self.is_full = is_full;
    }

    /// Sets the part of each limit that is lost to spans that are not full.
    pub fn set_lost(&mut self, lost: [f64; SIZES]) {
        self.lost = lost;
    }

    /// Forgets what was counted; caches stay as warm as they are.
    pub fn count_anew(&mut self) {
        let Misses { fills, herd, is_full, lost, warm, .. } = *self;
        *self = Misses { fills, herd, is_full, lost, warm, ..Misses::default() };
    }

    /// Notes how far caches have come. One that begins to count begins with nothing.
    pub fn warm(&mut self, caches: [State; SIZES]) {
        for (nth, cache) in caches.into_iter().enumerate() {
            // Where there is room for all, what has evicted nothing has lost nothing; and what is not full when today's size
            // has turned over twice as often as it is larger will not be.
            let has_room = nth > NOW && caches[NOW].turns >= 2.0 * FACTORS[nth];
            let counts = cache.is_warm || has_room || !self.is_full && !cache.has_evicted;
            if counts && !self.warm[nth] {
                (self.of[nth], self.beside[nth], self.reads[nth]) = <_>::default();
            }
            self.warm[nth] = counts || nth == NOW && self.warm[nth];
        }
    }

    /// Counts a read of a key of this group; the bits of `missed` are caches that missed it. `really`: the server did.
    pub fn read(&mut self, group: usize, missed: u32, really: bool, scale: f64) {
        if !self.begun() {
            return;
        }
        let of_now = missed >> NOW & 1;
        self.reads_seen += 1.0;
        self.misses_seen += f64::from(of_now);
        self.really[group] += if really { scale } else { 0.0 };
        for nth in 0..SIZES {
            self.reads[nth] += scale;
            self.of[nth][group] += scale * f64::from(missed >> nth & 1);
            self.beside[nth][group] += scale * f64::from(of_now);
        }
    }

    /// Adds what the server has counted.
    pub fn count(&mut self, hits: u64, misses: u64) {
        self.hits += hits as f64;
        self.misses += misses as f64;
    }

    /// Counts a miss of a key; `is_herd`: it had been missed less than 2 s before and was not stored yet.
    pub fn load(&mut self, is_herd: bool, scale: f64) {
        *if is_herd { &mut self.herd } else { &mut self.fills } += scale;
    }

    /// Halves the weight of all that was counted.
    pub fn halve(&mut self) {
        let sums =
            self.of.iter_mut().chain(&mut self.beside).chain(std::iter::once(&mut self.really)).flatten();
        let single = [&mut self.misses_seen, &mut self.reads_seen, &mut self.hits, &mut self.misses];
        sums.chain(&mut self.reads).chain(single).for_each(|sum| *sum /= 2.0);
    }

    /// Returns the curve, as far as it is known.
    pub fn curve(&self, caches: [State; SIZES]) -> Curve {
        let counted_reads = self.hits + self.misses;
        let counted = if counted_reads > 0.0 { self.misses / counted_reads } else { 0.0 };
        let sum = |sums: &Sums| sums.iter().sum::<f64>();
        let part = |seen: f64, wanted: u64| (seen / wanted as f64).min(1.0);
        let seen = part(self.reads_seen, READS_MIN).max(part(self.misses_seen, MISSES_MIN));
        let progress = match self.is_full {
            true if !self.begun() => caches[NOW].passed / 2.0,
            true => 0.5 + part(self.misses_seen, MISSES_MIN).max(part(self.reads_seen, 4 * READS_MIN)) / 2.0,
            false => seen,
        };
        let is_ready = progress >= 1.0 && counted_reads > 0.0 && self.begun();
        let reads = self.reads[NOW].max(1.0);
        let [simulated, really] = [&self.of[NOW], &self.really].map(|sums| sum(sums) / reads);
        // By how much the simulation of today's size is off, of all reads.
        let astray = (simulated - really).abs() * if really > 0.0 { counted / really } else { 1.0 };
        let agrees = astray <= (ASTRAY_OF_MISSES * counted).max(ASTRAY_OF_READS);
        // Next to nothing avoids what four times the memory would miss.
        let far = match sum(&self.beside[SIZES - 1]) {
            beside if beside > 0.0 => sum(&self.of[SIZES - 1]) / beside,
            _ => 1.0,
        };
        let point = |nth: usize| {
            let (of, beside) = (&self.of[nth], &self.beside[nth]);
            let (all_of, all_beside) = (sum(of), sum(beside));
            // Reads of all keys in the time in which this cache counted.
            let reads_counted = (counted_reads * self.reads[nth] / reads).max(1.0);
            let by_quotient = self.misses_seen >= MISSES_MIN as f64;
            let lost = |quotient: f64, nth: usize| {
                let avoidable = (quotient - far).max(0.0);
                quotient + LOSS * self.lost[nth] * self.lost[nth] * avoidable
            };
            let estimate = |of: f64, beside: f64, part: f64| match by_quotient {
                true if beside > 0.0 => counted * lost(of / beside, nth) / lost(1.0, NOW),
                true => counted,
                false => counted + (of - beside) / (reads_counted * part),
            };
            let without = |group: usize| {
                let part = (GROUPS - 1) as f64 / GROUPS as f64;
                estimate(all_of - of[group], all_beside - beside[group], part)
            };
            let each: [f64; GROUPS] = std::array::from_fn(without);
            let mean = each.iter().sum::<f64>() / GROUPS as f64;
            let squares = each.iter().map(|one| (one - mean) * (one - mean)).sum::<f64>();
            let deviation = ((GROUPS - 1) as f64 / GROUPS as f64 * squares).sqrt();
            let sigmas = if FACTORS[nth] > 2.0 { SIGMAS_FAR } else { SIGMAS };
            let miss_ratio = estimate(all_of, all_beside, 1.0).clamp(0.0, 1.0);
            let by_loss = match by_quotient {
                true if all_beside > 0.0 => LOSS_ERROR * (miss_ratio - counted * all_of / all_beside),
                _ => 0.0,
            };
            let by_model = MODEL_ERROR * (miss_ratio - counted);
            let by_store = match nth < NOW {
                true => by_loss.abs() + by_model.abs(),
                false => by_loss.hypot(by_model),
            };
            let error = (sigmas * deviation).hypot(by_store).max(ERROR_MIN) + astray;
            let error = if nth == NOW { 0.0 } else { error };
            let is_vague = !self.warm[nth] || !agrees && nth != NOW;
            Point { factor: FACTORS[nth], miss_ratio, error, is_vague }
        };
        Curve {
            points: is_ready.then(|| unsure_of_room(rising(std::array::from_fn(point)), self.lost[NOW])),
            counted_miss_ratio: counted,
            simulated: [simulated, really],
            progress,
            is_full: self.is_full,
            fills: self.fills,
            herd: self.herd,
            ..Curve::default()
        }
    }
}

/// Adds to the errors of smaller sizes what so much less room would miss more, by the slope to the next larger size: how much
/// room they have is not sure. `lost` is the part of today's limit that is lost to spans that are not full, and to queues.
fn unsure_of_room(mut points: [Point; SIZES], lost: f64) -> [Point; SIZES] {
    for nth in 0..NOW {
        let larger = points[nth + 1];
        let point = &mut points[nth];
        let missing = FREE_MORE * lost * (1.0 / point.factor - 1.0);
        let slope = (point.miss_ratio - larger.miss_ratio).max(0.0) / (larger.factor - point.factor);
        point.error += missing * slope;
    }
    points
}

/// More memory is no worse, as far as errors leave that open: from today's size outwards each point is at least as good,
/// or as bad, as the one before it.
fn rising(mut points: [Point; SIZES]) -> [Point; SIZES] {
    for nth in (0..NOW).rev() {
        let (inner, outer) = (points[nth + 1], &mut points[nth]);
        if outer.miss_ratio < inner.miss_ratio
            && outer.miss_ratio + outer.error >= inner.miss_ratio - inner.error
        {
            outer.miss_ratio = inner.miss_ratio;
        }
    }
    for nth in NOW + 1..SIZES {
        let (inner, outer) = (points[nth - 1], &mut points[nth]);
        if outer.miss_ratio > inner.miss_ratio
            && outer.miss_ratio - outer.error <= inner.miss_ratio + inner.error
        {
            outer.miss_ratio = inner.miss_ratio;
        }
    }
    points
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    /// What comes of caches that miss so many hundredths of reads, where the server misses `really`.
    fn misses(missed: impl Fn(usize) -> u64, really: u64, lost: f64) -> Curve {
        let mut misses = Misses::default();
        misses.set_full(true);
        misses.set_lost(FACTORS.map(|factor| lost / factor));
        misses.warm([State { is_warm: true, ..State::default() }; SIZES]);
        for nth in 0..160_000u64 {
            // As often in each group.
            let caches = (0..SIZES).filter(|size| nth / 16 % 100 < missed(*size));
            let bits = caches.fold(0, |bits, size| bits | 1 << size);
            let is_missed = nth / 16 % 100 < really;
            misses.read((nth % 16) as usize, bits, is_missed, 1.0);
            misses.count(u64::from(!is_missed), u64::from(is_missed));
        }
        misses.curve([State::default(); SIZES])
    }

    /// In hundredths of reads: what caches of ¼ … 4 × the memory miss.
    const MISSED: [u64; SIZES] = [40, 30, 24, 20, 16, 14, 10];

    #[test]
    fn without_loss_an_error_is_two_fifths_of_what_a_size_changes() {
        let points = misses(|size| MISSED[size], 20, 0.0).points.expect("it is ready");
        for (size, point) in points.iter().enumerate() {
            let missed = MISSED[size] as f64 / 100.0;
            assert!((point.miss_ratio - missed).abs() < 1e-9, "{point:?}");
            let error = if size == NOW { 0.0 } else { 0.4 * (missed - 0.2).abs() };
            assert!((point.error - error).abs() < 1e-9, "{point:?}");
        }
    }

    #[test]
    fn errors_of_what_is_lost_to_spans_add_up() {
        let points = misses(|size| MISSED[size], 20, 0.1).points.expect("it is ready");
        // Quotients: 1.5 and 1.0 of misses, 0.5 of them not avoidable. Half of the memory loses 0.2, all of it 0.1.
        let half = 0.2 * (1.5 + 2.0 * 0.04) / (1.0 + 2.0 * 0.01 * 0.5);
        let three_quarters = 0.2 * (1.2 + 2.0 * (0.1f64 / 0.75).powi(2) * 0.7) / (1.0 + 2.0 * 0.01 * 0.5);
        assert!((points[1].miss_ratio - half).abs() < 1e-9, "{:?}", points[1]);
        assert!((points[2].miss_ratio - three_quarters).abs() < 1e-9, "{:?}", points[2]);
        let by_loss = 0.5 * (half - 0.2 * 1.5);
        let by_room = 0.32 * 0.1 * (half - three_quarters) / 0.25;
        let error = by_loss + 0.4 * (half - 0.2) + by_room;
        assert!((points[1].error - error).abs() < 1e-9, "{:?}, {error}", points[1]);
    }

    #[test]
    fn a_simulation_that_misses_other_than_the_server_is_believed_the_less_and_beyond_an_eighth_not_at_all() {
        let astray = |really: u64| misses(|size| MISSED[size], really, 0.0).points.expect("it is ready");
        // 20 of 100 are missed by the simulation, 18 and 16 by the server.
        for (really, error) in [(18, 0.02), (22, 0.02)] {
            let points = astray(really);
            assert!(points.iter().all(|point| !point.is_vague), "{points:?}");
            let counted = really as f64 / 100.0;
            // Half of the memory: one and a half as many.
            assert!((points[1].miss_ratio - 1.5 * counted).abs() < 1e-9, "{:?}", points[1]);
            assert!((points[1].error - 0.4 * 0.5 * counted - error).abs() < 1e-9, "{:?}", points[1]);
            assert!((points[NOW].error, points[NOW].miss_ratio) == (0.0, counted), "{:?}", points[NOW]);
        }
        for really in [16, 24] {
            let points = astray(really);
            let vague: Vec<usize> = (0..SIZES).filter(|size| points[*size].is_vague).collect();
            assert_eq!(vague, [0, 1, 2, 4, 5, 6], "{points:?}");
        }
        // Of few misses a hundredth of reads may be otherwise.
        let few = |simulated: u64| misses(|_| simulated, 1, 0.0).points.expect("it is ready");
        assert!(few(2).iter().all(|point| !point.is_vague));
        assert!(few(3)[1].is_vague);
    }
}
