//! Patterns from their first request on, memory by memory: what comes of them while the cache is cold.

use super::patterns::{Running, Shape, Verb};
use super::policies::Lru;
use super::race::{Cache, Modelled, Stored};

/// Steps whose writes are made first, and whose reads are made as one, as a client does that asks for many keys at a time.
const MANY_STEPS: usize = 64;
/// Requests for each key that is written, at most.
const COLD_REQUESTS_MAX: u64 = 20;

/// The memories that are judged: the third and the fourth, together.
const JUDGED: std::ops::Range<usize> = 2..4;
/// Rounds of a client that uses the same names in each.
const ROUNDS: usize = 4;

/// Gets and hits of a pattern in a memory that was written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    gets: u64,
    hits: u64,
}

impl Memory {
    pub fn ratio(self) -> f64 {
        self.hits as f64 / self.gets.max(1) as f64
    }
}

/// Keys of the pattern are written and read later, and not for their popularity: what is asked for of it is a share of hits.
pub fn is_read_late(shape: Shape) -> bool {
    matches!(shape, Shape::Later { .. } | Shape::Sessions { .. } | Shape::Return { .. })
}

/// The share of hits in the memories that are judged; none if nothing was asked for in them.
pub fn judged(memories: &[Memory]) -> Option<f64> {
    let sum = memories.get(JUDGED)?.iter().fold(Memory::default(), |sum, memory| Memory {
        gets: sum.gets + memory.gets,
        hits: sum.hits + memory.hits,
    });
    (sum.gets > 0).then(|| sum.ratio())
}

/// Rounds of keys that are never read and of a pattern, as a client makes them whose keys have the same names in each round:
/// the share of hits in the memories of each that are judged.
pub fn rounds(memory_bytes: u64, value_bytes: usize, shape: Shape, keys: u64) -> Vec<f64> {
    let (mut stored, _) = Stored::full(memory_bytes, value_bytes);
    (0..ROUNDS)
        .filter_map(|round| {
            if round > 0 {
                stored.fill();
            }
            judged(&by_memory(&mut stored, shape, keys, JUDGED.end))
        })
        .collect()
}

/// A pattern's share of hits in each of so many memories that are written, from its first request on.
pub fn by_memory(cache: &mut dyn Cache, shape: Shape, fits: u64, memories: usize) -> Vec<Memory> {
    let mut running = Running::new(shape, fits, 0);
    let (mut batch, mut written, mut asked) = (Vec::new(), 0, 0);
    let mut counts = vec![Memory::default(); memories];
    // Of a pattern that is all there nothing is written.
    let most = COLD_REQUESTS_MAX * memories as u64 * fits;
    while asked < most
        && let Some(count) = counts.get_mut((written / fits) as usize)
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
                count.gets += 1;
                count.hits += u64::from(hit);
            }
        }
        cache.rest();
    }
    counts
}

/// What a pattern comes to in an LRU of so many keys, full of others, in each memory that is written.
pub fn lru_by_memory(shape: Shape, fits: u64, memories: usize) -> Vec<Memory> {
    let mut lru = Modelled(Lru::new(fits));
    (0..fits).for_each(|id| {
        lru.request(u64::MAX - id, Verb::Set);
    });
    by_memory(&mut lru, shape, fits, memories)
}
