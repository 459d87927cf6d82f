//! Patterns from their first request on, memory by memory: what comes of them while the cache is cold.

use super::patterns::{Running, Shape, Verb};
use super::policies::Lru;
use super::race::{Cache, Modelled};

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
