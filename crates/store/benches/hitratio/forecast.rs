//! What a store's forecast says of other sizes, against stores that have them: by several samples of its keys.
//!
//! All stores get the same stream, and what is counted is its second half.

use crate::streams::Stream;
use crate::{BATCH, START};
use larder_store::{
    Attributes, Config, Expect, FACTORS, Forecast, Happened, Item, Kept, Lookup, NOW, SIZES, Store,
};

/// Samples of keys.
const SAMPLES: u32 = 6;
/// Keys that are followed, of those that are there, at most.
const AIM: usize = 768;
/// How often a forecast is told how much room there is.
const LOOK_MS: u64 = 1000;
/// Sizes that are promised: half to twice the memory.
const PROMISED: std::ops::RangeInclusive<usize> = 1..=5;

/// Is shown the store at a time, with reads found and not found since it was last; and whether the second half begins.
type Look<'l> = dyn FnMut(&Store, u64, [u64; 2], bool) + 'l;

/// What came of all streams.
#[derive(Debug, Default)]
pub struct Judged {
    /// By how many points each forecast is off, by size.
    off: [Vec<f64>; SIZES],
    /// Those within what they gave or took.
    inside: [usize; SIZES],
    silent: usize,
}

fn kept(item: &Item<'_>, now: u64) -> Kept {
    let expires_at = item.expires_at();
    Kept {
        bytes: item.charged_bytes() as u32,
        left_ms: (expires_at != 0).then(|| expires_at.saturating_sub(now)),
    }
}

/// Runs the stream against a store; the share of gets in its second half that missed. What happens to keys that `masks` say
/// is told to `tell`, and once a second of the stream to `look`.
fn run(
    stream: &Stream,
    memory_bytes: u64,
    masks: &[u64],
    tell: &mut dyn FnMut(u64, Happened),
    look: &mut Look<'_>,
) -> f64 {
    let store = Store::new(Config { memory_bytes, workers_max: 1, ..Config::default() }).expect("memory");
    let mut worker = store.worker().expect("a worker");
    let value = vec![7u8; 1 << 20];
    let half = stream.millions * 500_000;
    let (mut reads, mut told, mut done) = ([0u64; 2], [0u64; 2], 0);
    let (mut tick, mut looked) = (START, START);
    let mut requests = stream.requests();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        batch.clear();
        batch.extend(requests.by_ref().take(BATCH));
        let Some(first) = batch.first() else { break };
        let now = first.now;
        let begins = done < half && done + BATCH as u64 >= half;
        if now >= looked + LOOK_MS || begins {
            look(&store, now, told, begins);
            (looked, told) = (now, [0; 2]);
        }
        if begins {
            reads = [0; 2];
        }
        let mut guard = worker.enter(now);
        for request in &batch {
            let bytes = request.key();
            let key = guard.key(&bytes[..stream.key_bytes(request.id)]);
            let follows = masks.iter().any(|mask| key.hash() & mask == 0);
            done += 1;
            if !request.set {
                let hit = match guard.get(&key) {
                    Lookup::Hit(item) => Some(kept(&item, now)),
                    _ => None,
                };
                let nth = usize::from(hit.is_none());
                reads[nth] += 1;
                told[nth] += 1;
                if follows {
                    tell(key.hash(), hit.map_or(Happened::Missed, Happened::Hit));
                }
                if hit.is_some() {
                    continue;
                }
            }
            let attributes = Attributes { expires_at: request.expires_at, ..Attributes::default() };
            guard.store_value(&key, &value[..request.value_bytes], &attributes, Expect::Any).expect("room");
            if follows {
                let item = guard.peek(&key).hit().map(|item| kept(&item, now));
                tell(key.hash(), item.map_or(Happened::Deleted, Happened::Stored));
            }
        }
        if now >= tick {
            // As a server's worker does.
            let more = (0..16).all(|_| guard.maintain());
            tick = now + if more { 2 } else { 100 };
        }
    }
    let [hits, misses] = reads;
    misses as f64 / (hits + misses).max(1) as f64
}

impl Judged {
    /// Adds a stream.
    pub fn add(&mut self, stream: &Stream) {
        let memory_bytes = stream.memory_bytes();
        // Items are some hundred bytes, or more: how many of them there are is seen first.
        let items = {
            let mut seen = 0;
            run(
                &Stream { millions: 1, ..stream.copied() },
                memory_bytes,
                &[],
                &mut |_, _| {},
                &mut |store, _, _, _| {
                    seen = store.totals().items;
                },
            );
            seen.max(1)
        };
        let bits = (items / AIM as u64).checked_ilog2().map_or(0, |bits| bits + 1);
        let masks: Vec<u64> = (0..SAMPLES).map(|nth| ((1u64 << bits) - 1) << (16 + 7 * nth)).collect();
        let forecasts: std::cell::RefCell<Vec<Forecast>> = <_>::default();
        let counted = run(
            stream,
            memory_bytes,
            &masks,
            &mut |hash, happened| {
                forecasts.borrow_mut().iter_mut().for_each(|forecast| forecast.take(hash, 0, happened));
            },
            &mut |store, now, [hits, misses], begins| {
                let memory = store.memory_for_items();
                let mut forecasts = forecasts.borrow_mut();
                if forecasts.is_empty() {
                    forecasts.extend(masks.iter().map(|mask| Forecast::new(*mask, AIM, &memory, now)));
                }
                for forecast in forecasts.iter_mut() {
                    forecast.tick(now);
                    forecast.set_memory(&memory, now);
                    forecast.count(hits, misses);
                    if begins {
                        forecast.count_anew();
                    }
                    if forecast.keys() > AIM || forecast.is_crowded() {
                        // As a server does.
                        forecast.narrow(forecast.mask() << 1);
                        forecast.set_memory(&memory, now);
                    }
                }
            },
        );
        let forecasts = forecasts.into_inner();
        let keys: Vec<usize> = forecasts.iter().map(Forecast::keys).collect();
        let megabytes = memory_bytes as f64 / f64::from(1 << 20);
        println!(
            "{}, {megabytes:.1} MiB: {:.2} % missed, {keys:?} keys followed",
            stream.name,
            counted * 100.0
        );
        for size in PROMISED.filter(|size| *size != NOW) {
            let bytes = (memory_bytes as f64 * FACTORS[size]) as u64;
            let truth = run(stream, bytes, &[], &mut |_, _| {}, &mut |_, _, _, _| {});
            print!("  {:4} × {:6.2} %:", FACTORS[size], truth * 100.0);
            for forecast in &forecasts {
                let Some(point) = forecast.curve().at(FACTORS[size]) else {
                    self.silent += 1;
                    print!("  not said");
                    continue;
                };
                let off = (point.miss_ratio - truth) * 100.0;
                let inside = off.abs() <= point.error * 100.0;
                print!("  {off:+.2} ± {:.2}{}", point.error * 100.0, if inside { "" } else { "!" });
                self.off[size].push(off);
                self.inside[size] += usize::from(inside);
            }
            println!();
        }
    }

    /// Prints what came of all; true if it is what is promised.
    pub fn say(&self) -> bool {
        let (mut all, mut inside, mut sum) = (0, 0, 0.0);
        for size in PROMISED.filter(|size| *size != NOW) {
            let off = &self.off[size];
            let of_size = off.iter().map(|off| off.abs()).sum::<f64>();
            println!(
                "{:4} ×: {} of {} within what they give or take; off by {:.2} points in the mean, {:.2} at most",
                FACTORS[size],
                self.inside[size],
                off.len(),
                of_size / off.len().max(1) as f64,
                off.iter().fold(0.0, |most: f64, off| most.max(off.abs()))
            );
            (all, inside, sum) = (all + off.len(), inside + self.inside[size], sum + of_size);
        }
        let mean = sum / all.max(1) as f64;
        println!(
            "all: {inside} of {all} inside (at least 9 of 10), off by {mean:.2} points (at most 0.5), {} not said",
            self.silent
        );
        inside * 10 >= all * 9 && mean <= 0.5
    }
}
