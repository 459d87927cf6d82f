//! Patterns run against the store, and against models that may hold as many keys.

use super::START;
use super::patterns::{Course, Running, Shape, Verb};
use super::policies::{Lru, Policy, S3Fifo, Segmented};
use larder_store::{Attributes, Config, Expect, Lookup, Store, Worker};
use std::sync::Arc;

/// Requests in a millisecond of a pattern's time.
const RATE_MS: u64 = 50;
/// Steps that share a batch.
const BATCH_STEPS: u64 = 16;

/// What is measured: a store, or a model.
pub trait Cache {
    /// Does what a request says; true if it was a hit, and whether it wrote a key that was not there.
    fn request(&mut self, id: u64, verb: Verb) -> (bool, bool);
    /// Some requests were made: what is between batches.
    fn rest(&mut self) {}
}

/// A store with values of one size.
pub struct Stored {
    worker: Worker,
    store: Arc<Store>,
    value: Vec<u8>,
    now: u64,
    requests: u64,
    tick: u64,
}

impl Stored {
    pub fn new(memory_bytes: u64, value_bytes: usize) -> Stored {
        let store = Store::new(Config { memory_bytes, workers_max: 1, ..Config::default() }).expect("memory");
        let worker = store.worker().expect("a worker");
        Stored { worker, store, value: vec![7; value_bytes], now: START, requests: 0, tick: START }
    }

    /// A store full of keys that nobody reads, and how many that are.
    pub fn full(memory_bytes: u64, value_bytes: usize) -> (Stored, u64) {
        let mut stored = Stored::new(memory_bytes, value_bytes);
        go(&mut stored, &mut Course::filling(memory_bytes, value_bytes as u64));
        let fits = stored.store.totals().items;
        (stored, fits)
    }
}

impl Cache for Stored {
    fn request(&mut self, id: u64, verb: Verb) -> (bool, bool) {
        self.requests += 1;
        let bytes = format!("{id:016x}");
        let mut guard = self.worker.enter(self.now);
        let key = guard.key(bytes.as_bytes());
        let hit = verb != Verb::Set && matches!(guard.get(&key), Lookup::Hit(_));
        if verb == Verb::Get || verb == Verb::Load && hit {
            return (hit, false);
        }
        let stored = guard.store_value(&key, &self.value, &Attributes::default(), Expect::Any).expect("room");
        (hit, !stored.replaced)
    }

    fn rest(&mut self) {
        self.now = START + self.requests / RATE_MS;
        if self.now >= self.tick {
            // As a server's worker does.
            let mut guard = self.worker.enter(self.now);
            let more = (0..16).all(|_| guard.maintain());
            self.tick = self.now + if more { 2 } else { 100 };
        }
    }
}

/// A model, all keys of one size.
struct Modelled<P>(P);

impl<P: Policy> Cache for Modelled<P> {
    fn request(&mut self, id: u64, verb: Verb) -> (bool, bool) {
        let hit = self.0.get(id, START);
        if verb == Verb::Get || verb == Verb::Load && hit {
            return (hit, false);
        }
        self.0.set(id, 1, 0);
        (hit && verb != Verb::Set, !hit)
    }
}

/// Takes a pattern to its end.
fn go(cache: &mut dyn Cache, course: &mut Course) {
    let mut batch = Vec::new();
    while !course.is_done() {
        for _ in 0..BATCH_STEPS {
            course.step(&mut batch);
        }
        for request in batch.drain(..) {
            let (hit, new) = cache.request(request.id, request.verb);
            course.note(request, hit, new);
        }
        cache.rest();
    }
}

/// A pattern's share of hits, after it was warmed; `turned`: after another, two memories were written at most.
pub fn run(cache: &mut dyn Cache, shape: Shape, fits: u64, part: u64, turned: bool) -> f64 {
    let mut course = Course::new(shape, fits, part, turned);
    go(cache, &mut course);
    course.hit_ratio()
}

/// Steps whose writes are made first, and whose reads are made as one, as a client does that asks for many keys at a time.
const MANY_STEPS: usize = 64;
/// Requests for each key that is written, at most.
const COLD_REQUESTS_MAX: u64 = 20;

/// A pattern's share of hits in each of so many memories that are written, from its first request on.
pub fn by_memory(cache: &mut dyn Cache, shape: Shape, fits: u64, memories: usize) -> Vec<f64> {
    let mut running = Running::new(shape, fits, 0);
    let (mut batch, mut written, mut asked) = (Vec::new(), 0, 0);
    let mut counts = vec![(0u64, 0u64); memories];
    // Of a pattern that is all there nothing is written.
    let most = COLD_REQUESTS_MAX * memories as u64 * fits;
    while asked < most
        && let Some((gets, hits)) = counts.get_mut((written / fits) as usize)
    {
        (0..MANY_STEPS).for_each(|_| running.step(&mut batch));
        batch.sort_by_key(|request| request.verb == Verb::Get);
        asked += batch.len() as u64;
        for request in batch.drain(..) {
            let (hit, new) = cache.request(request.id, request.verb);
            if new {
                running.note_written();
            }
            written += u64::from(new || request.verb == Verb::Set);
            if request.counts {
                (*gets, *hits) = (*gets + 1, *hits + u64::from(hit));
            }
        }
        cache.rest();
    }
    counts.into_iter().map(|(gets, hits)| hits as f64 / gets.max(1) as f64).collect()
}

/// What a pattern comes to in an LRU of so many keys, full of others, in each memory that is written.
pub fn lru_by_memory(shape: Shape, fits: u64, memories: usize) -> Vec<f64> {
    let mut lru = Modelled(Lru::new(fits));
    (0..fits).for_each(|id| {
        lru.request(u64::MAX - id, Verb::Set);
    });
    by_memory(&mut lru, shape, fits, memories)
}

/// What a pattern comes to in models of so many keys: LRU, the segmented one, S3-FIFO.
pub fn models(shape: Shape, fits: u64) -> [f64; 3] {
    let fill = |policy: &mut dyn Cache| {
        (0..fits).for_each(|id| {
            policy.request(u64::MAX - id, Verb::Set);
        });
    };
    let (mut lru, mut segmented, mut ideal) =
        (Modelled(Lru::new(fits)), Modelled(Segmented::new(fits)), Modelled(S3Fifo::new(fits)));
    fill(&mut lru);
    fill(&mut segmented);
    fill(&mut ideal);
    [
        run(&mut lru, shape, fits, 0, false),
        run(&mut segmented, shape, fits, 0, false),
        run(&mut ideal, shape, fits, 0, false),
    ]
}
