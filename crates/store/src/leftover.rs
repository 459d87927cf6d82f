//! Room for what is left of a collection when something is taken out of it and no memory can be had.
//!
//! ```text
//! removal ─▶ a copy without it needs a chunk ─▶ none, and nothing may be evicted
//!         ─▶ a free one of twice the length │ one of a span of leftovers │ a new span of them │ any free one that is longer
//! ```
//!
//! A leaf is never changed in place, so that even a removal needs memory before it frees some. Where a store that evicts
//! nothing is full, what is left goes into spans of which no other write is given a chunk: others would take what is freed
//! for it. Their chunks are as long as a power of two, and one may hold what would fit a shorter one, so that few spans
//! serve all sizes. They are those that are kept for the index, and at most 512 KiB beyond the limit. A span goes back
//! when it is empty; as soon as there is memory, it is its class's like any other.

use crate::Store;
use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::slab::Magazine;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::worker::Local;

/// The spans that leftovers go into.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    spans: Mutex<Vec<(ClassId, u32)>>,
    any: AtomicBool,
}

impl Leftovers {
    /// There may be some.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Panics where spans are kept apart, and no write would look for them any more.
    pub(crate) fn check(&self) {
        let spans = self.spans.lock().expect("no panic under the lock");
        assert!(self.any() || spans.is_empty(), "spans of leftovers stay apart: {spans:?}");
    }
}

impl Local {
    /// A chunk for what is left of a collection, of this class or a longer one.
    #[cold]
    pub(crate) fn chunk_for_leftover(&mut self, store: &Store, class: ClassId) -> Option<u64> {
        let arena = &store.arena;
        // What the removal before this one gave back, most often.
        let twice = ClassId::of((2 * class.chunk_bytes()).min(CHUNK_BYTES_MAX));
        if let Some(chunk) = self.chunk_of_longer(store, class, twice) {
            return Some(chunk);
        }
        {
            let mut spans = store.leftovers.spans.lock().expect("no panic under the lock");
            spans.retain(|&(of, number)| store.slabs.class(of).drains(arena, number));
            // The shortest that fit first.
            spans.sort_unstable();
            for &(of, number) in spans.iter().filter(|(of, _)| *of >= class) {
                if let Some(chunk) = store.slabs.class(of).take_of_drained(arena, number) {
                    return Some(chunk);
                }
            }
            let of = ClassId::of(class.chunk_bytes().next_power_of_two().min(CHUNK_BYTES_MAX));
            let grown = store.slabs.class(of).grow_for_leftovers(arena, store.moment(self.now));
            if let Some((number, chunk)) = grown {
                spans.push((of, number));
                store.leftovers.any.store(true, Ordering::Relaxed);
                return Some(chunk);
            }
        }
        self.chunk_of_longer(store, class, ClassId::LONGEST)
    }

    /// A free chunk of a longer class, up to the longest that may be.
    fn chunk_of_longer(&mut self, store: &Store, class: ClassId, longest: ClassId) -> Option<u64> {
        let longer = ClassId::all().filter(|id| *id > class && *id <= longest);
        longer.into_iter().find_map(|id| self.take_if_free(store, id))
    }

    /// A chunk of a class that has one free.
    fn take_if_free(&mut self, store: &Store, class: ClassId) -> Option<u64> {
        if let Some(chunk) = self.pop_of_magazine(class) {
            return Some(chunk);
        }
        if store.slabs.view(class).free_chunks() == 0 {
            return None;
        }
        let mut one = Magazine::new(class);
        store.slabs.class(class).fill(&store.arena, &mut one, 1, store.moment(self.now), None);
        one.pop()
    }

    /// Makes spans of leftovers spans like others, if there is memory, or what is there may be evicted.
    pub(crate) fn let_go_of_leftovers(&mut self, store: &Store) {
        if !store.leftovers.any() || !store.evicts() && !store.arena.has_span() {
            return;
        }
        let mut spans = store.leftovers.spans.lock().expect("no panic under the lock");
        for (class, number) in spans.drain(..) {
            let mut slab = store.slabs.class(class);
            if slab.drains(&store.arena, number) {
                slab.stop_draining(&store.arena, number, store.moment(self.now));
            }
        }
        store.leftovers.any.store(false, Ordering::Relaxed);
    }
}
