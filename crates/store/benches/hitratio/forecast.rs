//! What a store's forecast says of other sizes, against stores that have them: by several samples of its keys.
//!
//! All stores get the same requests, of a stream or of a pattern, and what is counted is their second half.

use crate::patterns::{self, Course, Pattern, Running, Verb};
use crate::race::{Cache, RATE_MS, Stored};
use crate::streams::{Request, Stream};
use crate::{BATCH, START};
use larder_store::{
    Attributes, Config, Expect, FACTORS, Forecast, Happened, Item, Kept, Lookup, Memory, NOW, SIZES, Store,
};

/// Samples of keys.
const SAMPLES: u32 = 6;
/// Keys that are followed, of those that are there, at most.
const AIM: usize = 768;
/// How often a forecast is told how much room there is.
const LOOK_MS: u64 = 1000;
/// Sizes that are promised: half to twice the memory.
const PROMISED: std::ops::RangeInclusive<usize> = 1..=5;
/// Requests of which it is seen how many items there are.
const SEEN_FIRST: u64 = 1_000_000;
/// A pattern is so many times as long as where its hits are counted: a store of twice the memory is to be written anew, too.
const PATTERN_TIMES: u64 = 4;

/// What stores are asked for.
pub struct Source<'s> {
    name: &'s str,
    memory_bytes: u64,
    /// How many requests there are.
    requests: u64,
    kind: Kind<'s>,
}

enum Kind<'s> {
    Stream(&'s Stream),
    Pattern { asked: Vec<patterns::Request>, value_bytes: usize },
}

/// One request.
struct Asked {
    request: Request,
    key_bytes: usize,
    verb: Verb,
}

impl<'s> Source<'s> {
    /// A stream's requests.
    pub fn stream(stream: &'s Stream) -> Source<'s> {
        let (memory_bytes, requests) = (stream.memory_bytes(), stream.millions * 1_000_000);
        Source { name: stream.name, memory_bytes, requests, kind: Kind::Stream(stream) }
    }

    /// A pattern's, behind keys that are never read. Distances are those of a store of `memory_bytes`, and so is what depends on
    /// what was written (popularity that is drawn anew): stores of other sizes are asked for the same.
    pub fn pattern(pattern: &'s Pattern, memory_bytes: u64, value_bytes: usize) -> Source<'s> {
        let (mut stored, fits) = Stored::full(memory_bytes, value_bytes);
        let mut filling = Course::filling(memory_bytes, value_bytes as u64);
        let mut asked: Vec<patterns::Request> = Vec::new();
        while !filling.is_done() {
            let from = asked.len();
            filling.step(&mut asked);
            asked[from..].iter().for_each(|request| filling.note(*request, false, true));
        }
        let (warm, counted) = pattern.shape.lengths(fits);
        let requests = asked.len() as u64 + PATTERN_TIMES * (warm + counted);
        let mut running = Running::new(pattern.shape, fits, 0);
        while (asked.len() as u64) < requests {
            let from = asked.len();
            running.step(&mut asked);
            for request in &asked[from..] {
                let (_, is_new) = stored.request(request.id, request.verb);
                if is_new {
                    running.note_written();
                }
            }
            stored.rest();
        }
        asked.truncate(requests as usize);
        Source { name: pattern.name, memory_bytes, requests, kind: Kind::Pattern { asked, value_bytes } }
    }

    /// The requests, the same at every call.
    fn all(&self) -> Box<dyn Iterator<Item = Asked> + '_> {
        match &self.kind {
            Kind::Stream(stream) => Box::new(stream.requests().map(move |request| Asked {
                request,
                key_bytes: stream.key_bytes(request.id),
                verb: if request.set { Verb::Set } else { Verb::Load },
            })),
            Kind::Pattern { asked, value_bytes } => {
                Box::new(asked.iter().enumerate().map(move |(nth, request)| {
                    let patterns::Request { id, verb, .. } = *request;
                    let now = START + nth as u64 / RATE_MS;
                    let (value_bytes, set) = (*value_bytes, verb == Verb::Set);
                    let request = Request { id, value_bytes, set, now, expires_at: 0 };
                    Asked { request, key_bytes: patterns::KEY_BYTES as usize, verb }
                }))
            }
        }
    }
}

/// Is shown the store at a time, with reads found and not found since it was last; and whether the second half begins.
type Look<'l> = dyn FnMut(&Store, u64, [u64; 2], bool) + 'l;

/// What came of all of a kind.
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

/// Runs the first `most` requests against a store; the share of reads from the second half on that missed. What happens to keys
/// that `masks` say is told to `tell`, and once a second of the requests' time to `look`.
fn run(
    source: &Source<'_>,
    most: u64,
    memory_bytes: u64,
    masks: &[u64],
    tell: &mut dyn FnMut(u64, Happened),
    look: &mut Look<'_>,
) -> f64 {
    let store = Store::new(Config { memory_bytes, workers_max: 1, ..Config::default() }).expect("memory");
    let mut worker = store.worker().expect("a worker");
    let value = vec![7u8; 1 << 20];
    let half = source.requests / 2;
    let (mut reads, mut told, mut done) = ([0u64; 2], [0u64; 2], 0);
    let (mut tick, mut looked) = (START, START);
    let mut requests = source.all().take(most as usize);
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        batch.clear();
        batch.extend(requests.by_ref().take(BATCH));
        let Some(Asked { request: first, .. }) = batch.first() else { break };
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
        for Asked { request, key_bytes, verb } in &batch {
            let bytes = request.key();
            let key = guard.key(&bytes[..*key_bytes]);
            let follows = masks.iter().any(|mask| key.hash() & mask == 0);
            done += 1;
            if *verb != Verb::Set {
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
                if hit.is_some() || *verb == Verb::Get {
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
    /// Nothing was added.
    pub fn is_empty(&self) -> bool {
        self.silent == 0 && self.off.iter().all(Vec::is_empty)
    }

    /// Adds what a stream or a pattern comes to.
    pub fn add(&mut self, source: &Source<'_>) {
        let memory_bytes = source.memory_bytes;
        // Items are some hundred bytes, or more: how many of them there are is seen first.
        let items = {
            let mut seen = 0;
            let mut look = |store: &Store, _: u64, _: [u64; 2], _: bool| seen = store.totals().items;
            run(source, SEEN_FIRST, memory_bytes, &[], &mut |_, _| {}, &mut look);
            seen.max(1)
        };
        let bits = (items / AIM as u64).checked_ilog2().map_or(0, |bits| bits + 1);
        let masks: Vec<u64> = (0..SAMPLES).map(|nth| ((1u64 << bits) - 1) << (16 + 7 * nth)).collect();
        let forecasts: std::cell::RefCell<Vec<Forecast>> = <_>::default();
        let mut ours = Memory::default();
        let counted = run(
            source,
            u64::MAX,
            memory_bytes,
            &masks,
            &mut |hash, happened| {
                forecasts.borrow_mut().iter_mut().for_each(|forecast| forecast.take(hash, 0, happened));
            },
            &mut |store, now, [hits, misses], begins| {
                let memory = store.memory_for_items();
                ours = memory;
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
        // What the simulation of this size misses of what is followed, and what the store did.
        let ours_and_real = forecasts.iter().map(|forecast| {
            let [simulated, really] = forecast.curve().simulated;
            format!(" {:.2}/{:.2}", simulated * 100.0, really * 100.0)
        });
        let simulated: String = ours_and_real.collect();
        let megabytes = memory_bytes as f64 / f64::from(1 << 20);
        println!(
            "{}, {megabytes:.1} MiB: {:.2} % missed (of those followed, simulated and really:{simulated}), {keys:?} keys followed, \
             window {:.3}, lost {:.3}",
            source.name,
            counted * 100.0,
            ours.judging.window,
            ours.lost[NOW]
        );
        for size in PROMISED.filter(|size| *size != NOW) {
            let bytes = (memory_bytes as f64 * FACTORS[size]) as u64;
            let mut theirs = Memory::default();
            let mut look = |store: &Store, _: u64, _: [u64; 2], _: bool| theirs = store.memory_for_items();
            let truth = run(source, u64::MAX, bytes, &[], &mut |_, _| {}, &mut look);
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
            // What the simulation takes a store of this size to be like, and what it is like.
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            println!(
                "  room {:.2} MiB, really {:.2}; window {:.3}, lost {:.3}",
                mib(ours.bytes[size]),
                mib(theirs.bytes[NOW]),
                theirs.judging.window,
                theirs.lost[NOW]
            );
        }
    }

    /// Prints what came of all; true if it is what is promised: of each size nine of ten inside, of which there is one at
    /// least, and off by `mean_max` points in the mean, if that is given.
    pub fn say(&self, what: &str, mean_max: Option<f64>) -> bool {
        let (mut all, mut inside, mut sum, mut kept) = (0, 0, 0.0, true);
        for size in PROMISED.filter(|size| *size != NOW) {
            let off = &self.off[size];
            let of_size = off.iter().map(|off| off.abs()).sum::<f64>();
            kept &= !off.is_empty() && self.inside[size] * 10 >= off.len() * 9;
            println!(
                "{what}, {:4} ×: {} of {} within what they give or take; off by {:.2} points in the mean, {:.2} at most",
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
            "{what}: {inside} of {all} inside (of each size at least 9 of 10), off by {mean:.2} points, {} not said",
            self.silent
        );
        kept && mean_max.is_none_or(|most| mean <= most)
    }
}
