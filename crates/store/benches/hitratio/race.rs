//! Patterns run against the store, and against models that may hold as many keys.

use super::START;
use super::patterns::{Course, Shape, Verb};
use super::policies::{Lru, Policy, S3Fifo, Segmented};
use larder_store::{Attributes, Config, Expect, Lookup, Store, Worker};
use std::sync::Arc;

/// Requests in a millisecond of a pattern's time.
pub const RATE_MS: u64 = 50;
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

    /// A store full of keys that are never read, and how many that are.
    pub fn full(memory_bytes: u64, value_bytes: usize) -> (Stored, u64) {
        let mut stored = Stored::new(memory_bytes, value_bytes);
        stored.fill();
        let fits = stored.store.totals().items;
        (stored, fits)
    }

    /// Writes a memory and a half of keys that are never read, the same ones each time.
    pub fn fill(&mut self) {
        let mut course = Course::filling(self.store.memory_bytes(), self.value.len() as u64);
        go(self, &mut course);
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
pub struct Modelled<P>(pub P);

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
