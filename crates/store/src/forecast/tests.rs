//! Forecasts against full simulations of the other sizes, by the bench's own model.

#[path = "../../benches/hitratio/policies.rs"]
#[allow(dead_code)]
mod policies;

use super::*;
use policies::{Policy, S3Fifo};

/// A generator that is the same at every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Spread::of(self.0).0
    }
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
struct Stream {
    /// Zipf's exponent, over so many ranks.
    alpha: f64,
    ranks: usize,
    requests: usize,
    /// Share of requests for a key that comes once.
    lone: f64,
    /// Ranks that get another key, for each request.
    drift: f64,
    /// Milliseconds to live; 0: for ever.
    lifetime_ms: u64,
    seed: u64,
}

const ZIPF: Stream = Stream {
    alpha: 0.9,
    ranks: 150_000,
    requests: 1_200_000,
    lone: 0.0,
    drift: 0.0,
    lifetime_ms: 0,
    seed: 1,
};
/// Bytes of the cache of today's size.
const ROOM: u64 = 15_000 * 300;
/// One key in so many is sampled.
const SHIFT: u32 = 5;
/// Requests in a millisecond.
const PACE: u64 = 20;

/// A request: a key's number, its bytes, and when.
struct Request {
    id: u64,
    bytes: u32,
    now: u64,
}

impl Stream {
    fn requests(self) -> impl Iterator<Item = Request> {
        let mut random = Random(self.seed);
        let mut sum = 0.0;
        let shares: Vec<f64> = (1..=self.ranks)
            .map(|rank| {
                sum += (rank as f64).powf(-self.alpha);
                sum
            })
            .collect();
        let mut ids: Vec<u64> = (0..self.ranks as u64).collect();
        let mut fresh = self.ranks as u64;
        (0..self.requests as u64).map(move |nth| {
            let mut anew = |random: &mut Random| {
                fresh += 1;
                random.unit();
                fresh
            };
            if random.unit() < self.drift {
                let at = random.next() as usize % ids.len();
                ids[at] = anew(&mut random);
            }
            let id = if random.unit() < self.lone {
                anew(&mut random)
            } else {
                let at = random.unit() * sum;
                ids[shares.partition_point(|share| *share <= at).min(self.ranks - 1)]
            };
            let bytes = 100 + (Spread::of(id ^ self.seed << 40).0 % 401) as u32;
            Request { id, bytes, now: nth / PACE }
        })
    }

    fn hash(self, id: u64) -> u64 {
        Spread::of(id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.seed).0
    }
}

fn memory(bytes: u64, is_full: bool, evictions: u64) -> Memory {
    Memory {
        bytes: FACTORS.map(|factor| (bytes as f64 * factor) as u64),
        is_full,
        evictions,
        ..Memory::default()
    }
}

/// A cache of all keys, in full, whose client stores what it misses.
struct Full {
    keys: Keys,
    cache: Cache,
}

impl Full {
    fn new(factor: f64) -> Full {
        let mut cache = Cache::new(0);
        cache.set_memory((ROOM as f64 * factor) as u64, Judging::default());
        Full { keys: Keys::new(1 << 20), cache }
    }

    fn get(&mut self, hash: u64, now: Tick) -> bool {
        // As upkeep does, which goes by when time has passed.
        for _ in 0..4 {
            if let Some(at) = self.keys.next_place() {
                self.cache.expire(&mut self.keys, at, now);
            }
        }
        let at = self.keys.find(hash, Spread::of(hash));
        at.is_some_and(|at| self.cache.look(&mut self.keys, at, now) == Looked::Found)
    }

    fn set(&mut self, hash: u64, bytes: u32, until: Tick, now: Tick) {
        let spread = Spread::of(hash);
        let at =
            self.keys.find(hash, spread).or_else(|| self.keys.add(hash, spread, 0, bytes)).expect("room");
        self.keys.spare(at);
        self.cache.put(&mut self.keys, at, spread, until, now);
        self.keys.let_go();
    }
}

/// Miss ratios of full simulations while a forecast of one of them counted, and what it says.
fn run(stream: Stream) -> ([f64; SIZES], Curve, Forecast) {
    let mut full: Vec<_> = FACTORS.iter().map(|factor| Full::new(*factor)).collect();
    let mut forecast = Forecast::new((1 << SHIFT) - 1, 1024, &memory(ROOM, true, 0), 0);
    let (mut missed, mut reads) = ([0u64; SIZES], 0u64);
    let mut counted = [0; 2];
    for (nth, Request { id, bytes, now }) in stream.requests().enumerate() {
        let hash = stream.hash(id);
        let left_ms = (stream.lifetime_ms > 0).then_some(stream.lifetime_ms);
        let kept = Kept { bytes, left_ms };
        forecast.tick(now);
        let until = forecast.until(left_ms);
        let counts = forecast.misses.begun();
        reads += u64::from(counts);
        for (size, cache) in full.iter_mut().enumerate() {
            let hit = cache.get(hash, forecast.now);
            missed[size] += u64::from(counts && !hit);
            if !hit {
                cache.set(hash, bytes, until, forecast.now);
            }
            if size == NOW {
                counted[usize::from(!hit)] += 1;
                // What is left of its time does not matter: how long it was given is known from when it was stored.
                forecast.take(hash, 0, if hit { Happened::Hit(kept) } else { Happened::Missed });
                if !hit {
                    forecast.take(hash, 0, Happened::Stored(kept));
                }
            }
        }
        if nth % 1000 == 0 {
            forecast.set_memory(&memory(ROOM, true, nth as u64), now);
            forecast.count(counted[0], counted[1]);
            counted = [0; 2];
        }
    }
    let curve = forecast.curve();
    (missed.map(|missed| missed as f64 / reads as f64), curve, forecast)
}

/// The mean error in points, and how many of the sizes but today's are within their bands.
fn judge(what: &str, truth: &[f64; SIZES], curve: &Curve) -> (f64, usize) {
    let points = curve.points.expect("it is ready");
    let (mut sum, mut inside) = (0.0, 0);
    for (point, truth) in points.iter().zip(truth) {
        let off = (point.miss_ratio - truth) * 100.0;
        eprintln!(
            "{what}: {:4} × {:6.2} % missed, forecast {:6.2} ± {:.2}: off by {off:+.2}{}",
            point.factor,
            truth * 100.0,
            point.miss_ratio * 100.0,
            point.error * 100.0,
            if point.is_vague { " (vague)" } else { "" }
        );
        if point.factor != 1.0 {
            sum += off.abs();
            inside += usize::from(off.abs() <= point.error * 100.0);
        }
    }
    (sum / 6.0, inside)
}

#[test]
fn what_another_size_would_miss_is_forecast_within_half_a_point() {
    let streams = [
        ("zipf 0.9", ZIPF),
        ("zipf 1.1 and lone keys", Stream { alpha: 1.1, lone: 0.3, seed: 2, ..ZIPF }),
        ("drifting", Stream { alpha: 1.0, drift: 0.01, seed: 3, ..ZIPF }),
    ];
    for (what, stream) in streams {
        let (truth, curve, forecast) = run(stream);
        let (error, _) = judge(what, &truth, &curve);
        assert!(error < 1.0, "{what}: {error}");
        assert!((300..1200).contains(&forecast.keys()), "{}", forecast.keys());
        assert!(forecast.bytes() < 384 << 10, "{what}: {} bytes", forecast.bytes());
    }
}

/// The cache that is simulated is that of the bench, which the store is held against.
#[test]
fn the_simulated_cache_misses_what_the_model_of_the_bench_does() {
    let streams = [
        Stream { requests: 600_000, ..ZIPF },
        Stream { requests: 600_000, alpha: 1.2, drift: 0.02, lone: 0.03, ..ZIPF },
    ];
    for (stream, factor) in
        streams.into_iter().flat_map(|stream| [0.5, 1.0, 2.0].map(|factor| (stream, factor)))
    {
        let (mut full, mut model) = (Full::new(factor), S3Fifo::new((ROOM as f64 * factor) as u64));
        let mut missed = [0; 2];
        for (nth, Request { id, bytes, .. }) in stream.requests().enumerate() {
            let hits = [full.get(stream.hash(id), 1), model.get(id, 1)];
            if !hits[0] {
                full.set(stream.hash(id), bytes, NEVER, 1);
            }
            if !hits[1] {
                model.set(id, u64::from(bytes), 0);
            }
            if nth > 200_000 {
                missed = [0, 1].map(|which| missed[which] + u32::from(!hits[which]));
            }
        }
        let [own, models] = missed.map(f64::from);
        eprintln!("{factor} ×: {own} {models}: {:.3}", own / models);
        assert!((own / models - 1.0).abs() < 0.05, "{missed:?}");
    }
}

#[test]
fn lifetimes_are_kept() {
    let stream = Stream { lifetime_ms: 12_000, alpha: 1.0, seed: 4, ..ZIPF };
    let (truth, curve, _) = run(stream);
    let (error, _) = judge("lifetimes", &truth, &curve);
    assert!(error < 1.0, "{error}");
}

#[test]
#[ignore = "time: twelve streams through seven caches each take a minute and a half"]
fn errors_are_within_their_bands_nine_times_of_ten() {
    let (mut inside, mut all, mut errors) = (0, 0, 0.0);
    for seed in 10..22 {
        let alpha = if seed % 2 == 0 { 0.9 } else { 1.1 };
        let (truth, curve, _) = run(Stream { alpha, seed, requests: 800_000, ..ZIPF });
        let (error, within) = judge("coverage", &truth, &curve);
        (inside, all, errors) = (inside + within, all + 6, errors + error / 12.0);
    }
    assert!(inside * 10 >= all * 9, "{inside} of {all}");
    assert!(errors < 0.6, "{errors}");
}

#[test]
fn nothing_is_told_before_the_cache_was_full_once() {
    let mut forecast = Forecast::new(0, 512, &memory(300 * 512, true, 0), 0);
    let kept = Kept { bytes: 300, left_ms: None };
    let mut told_at = None;
    for n in 0..5_000u64 {
        forecast.tick(n);
        forecast.set_memory(&memory(300 * 512, true, n), n);
        forecast.count(0, 1);
        forecast.take(n << 20, 0, Happened::Missed);
        forecast.take(n << 20, 0, Happened::Stored(kept));
        let curve = forecast.curve();
        assert!((0.0..=1.0).contains(&curve.progress));
        if curve.points.is_some() && told_at.is_none() {
            told_at = Some(n);
        }
    }
    assert!((1024 + 400..1024 + 450).contains(&told_at.expect("it is told")), "{told_at:?}");
    let points = forecast.curve().points.expect("still");
    assert!(points.iter().all(|point| (point.miss_ratio - 1.0).abs() < 1e-9), "{points:?}");
}

#[test]
fn where_all_has_room_half_of_it_may_be_forecast() {
    let mut forecast = Forecast::new(0, 512, &memory(300 * 512, false, 0), 0);
    let kept = Kept { bytes: 300, left_ms: None };
    // 200 keys, read again and again: they fit in half of it, and not in a quarter.
    for n in 0..200_000u64 {
        forecast.tick(n / 100);
        if n % 100 == 0 {
            forecast.set_memory(&memory(300 * 512, false, 0), n / 100);
        }
        forecast.count(1, 0);
        forecast.take((Spread::of(n).0 % 200) << 20, 0, Happened::Hit(kept));
    }
    let curve = forecast.curve();
    let points = curve.points.expect("it is ready");
    assert!(points[1].miss_ratio < 0.001 && points[2].miss_ratio < 0.001, "{points:?}");
    assert!((0.2..0.6).contains(&points[0].miss_ratio), "{points:?}");
    assert!(!curve.is_full);
}

#[test]
fn what_is_flushed_or_deleted_is_gone_everywhere() {
    let mut forecast = Forecast::new(0, 64, &memory(1 << 20, false, 0), 0);
    let kept = Kept { bytes: 100, left_ms: None };
    for n in 0..100u64 {
        forecast.take(n << 30, (n % 2) as u8, Happened::Stored(kept));
    }
    assert_eq!((forecast.keys(), forecast.keys.len()), (100, 100));
    forecast.take(4 << 30, 0, Happened::Deleted);
    forecast.flush(Some(1));
    assert_eq!(forecast.keys(), 49);
    forecast.flush(None);
    assert_eq!((forecast.keys(), forecast.keys.len()), (0, 0));
}

#[test]
fn fewer_keys_are_sampled_when_there_are_too_many() {
    let mut forecast = Forecast::new(0b11, 64, &memory(1 << 30, false, 0), 0);
    let kept = Kept { bytes: 100, left_ms: None };
    for n in 0..4096u64 {
        forecast.take(Spread::of(n).0, 0, Happened::Stored(kept));
    }
    assert!(forecast.is_crowded());
    assert_eq!(forecast.keys(), 64 * KEYS_FOR_EACH);
    forecast.narrow(0b1111);
    assert!((50..150).contains(&forecast.keys()), "{}", forecast.keys());
    assert!(!forecast.is_crowded() && forecast.scale() == 16.0 && forecast.mask() == 0b1111);
    let before = forecast.events();
    forecast.take(0b100, 0, Happened::Missed);
    assert_eq!(forecast.events(), before, "it is not sampled any more");
}

#[test]
fn a_key_that_is_stored_and_deleted_for_ever_takes_no_more_memory() {
    let mut forecast = Forecast::new(0, 64, &memory(1 << 20, false, 0), 0);
    let kept = Kept { bytes: 100, left_ms: None };
    for n in 0..50u64 {
        forecast.take(n << 30, 0, Happened::Stored(kept));
    }
    let before = forecast.bytes();
    for n in 0..100_000u64 {
        forecast.take((n % 50) << 30, 0, Happened::Deleted);
        forecast.take((n % 50) << 30, 0, Happened::Stored(kept));
    }
    assert!(forecast.bytes() < before + 8192, "{before}, {}", forecast.bytes());
}

proptest::proptest! {
    /// Whatever comes, what caches say they hold is what keys say, and no cache holds more than it may.
    #[test]
    fn caches_hold_what_they_say(
        steps in proptest::collection::vec((0u64..60, 0u8..6, 1u32..200, 0u64..80), 1..600),
        limit in 100u64..3000,
    ) {
        let mut forecast = Forecast::new(0, 16, &memory(limit, true, 0), 0);
        for (nth, (key, what, bytes, left)) in steps.into_iter().enumerate() {
            forecast.tick(nth as u64 * 7);
            let kept = Kept { bytes, left_ms: (left < 70).then_some(left * 10) };
            match what {
                0 | 1 => forecast.take(key << 33, (key % 3) as u8, Happened::Hit(kept)),
                2 => forecast.take(key << 33, (key % 3) as u8, Happened::Missed),
                3 => forecast.take(key << 33, (key % 3) as u8, Happened::Stored(kept)),
                4 => forecast.take(key << 33, (key % 3) as u8, Happened::Deleted),
                _ => if key == 0 { forecast.flush(Some(1)) } else if key < 3 { forecast.narrow(1 << (33 + key)) },
            }
            forecast.check();
        }
    }
}

impl Forecast {
    fn check(&self) {
        for (nth, cache) in self.caches.iter().enumerate() {
            let kept = self.keys.places().map(|at| self.keys[at]).filter(|entry| entry.marks[nth].is_in());
            let (mut bytes, mut len) = (0, 0);
            for entry in kept {
                (bytes, len) = (bytes + u64::from(entry.bytes), len + 1);
                let at = self.keys.find(entry.hash, Spread::of(entry.hash)).expect("it is found");
                assert_eq!(self.keys[at].hash, entry.hash);
                assert_eq!(entry.hash & self.mask, 0);
            }
            cache.check(bytes, len);
        }
    }
}

#[test]
fn a_size_in_which_everything_has_room_is_not_vague_for_ever() {
    // 700 keys of which 512 have room: all of them have in half as much again.
    let mut forecast = Forecast::new(0, 1024, &memory(300 * 512, true, 0), 0);
    let mut real = Full::new(1.0);
    real.cache.set_memory(300 * 512, Judging::default());
    let kept = Kept { bytes: 300, left_ms: None };
    let mut random = Random(3);
    for n in 0..20_000u64 {
        forecast.tick(n);
        forecast.set_memory(&memory(300 * 512, true, n), n);
        let hash = (random.next() % 700) << 30;
        let hit = real.get(hash, forecast.now);
        forecast.count(u64::from(hit), u64::from(!hit));
        forecast.take(hash, 0, if hit { Happened::Hit(kept) } else { Happened::Missed });
        if !hit {
            real.set(hash, 300, NEVER, forecast.now);
            forecast.take(hash, 0, Happened::Stored(kept));
        }
    }
    let points = forecast.curve().points.expect("it is ready");
    assert!(points[4..6].iter().all(|point| !point.is_vague && point.miss_ratio < 0.01), "{points:?}");
}
