//! Slab classes at work: spans cut in chunks, and who has which of them free.
//!
//! ```text
//! worker's magazine ⇄ (32 chunks at a time, under the class's lock) ⇄ spans of the class ⇄ arena
//! ```
//!
//! For each class: `spans × chunks_per_span = used + in free lists + never carved + in magazines +
//! waiting for their epoch`. A span whose chunks are all free goes back to the arena, unless it is
//! its class's only one.

use crate::arena::{Arena, NONE, Span, UNIT, poison, unpoison};
use crate::class::{CLASSES, ClassId, SPAN_BYTES};
use crate::item::{Header, RawItem};
use crate::ring::Ring;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

/// Most chunks in a magazine.
const MAGAZINE_CHUNKS_MAX: usize = 32;
/// Most bytes in a magazine, but for one chunk.
const MAGAZINE_BYTES_MAX: usize = 4096;

/// A worker's free chunks of one class, as locations; last in, first out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Magazine {
    count: u8,
    chunks: [u64; MAGAZINE_CHUNKS_MAX],
}

impl Magazine {
    pub(crate) const EMPTY: Magazine = Magazine { count: 0, chunks: [0; MAGAZINE_CHUNKS_MAX] };

    /// Chunks a magazine of this class holds at most.
    #[inline]
    pub(crate) fn capacity(class: ClassId) -> usize {
        (MAGAZINE_BYTES_MAX / class.chunk_bytes()).clamp(1, MAGAZINE_CHUNKS_MAX)
    }
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        Some(self.chunks[self.count as usize])
    }
    #[inline]
    pub(crate) fn push(&mut self, class: ClassId, chunk: u64) -> bool {
        let room = (self.count as usize) < Self::capacity(class);
        if room {
            self.chunks[self.count as usize] = chunk;
            self.count += 1;
        }
        room
    }
    /// The older half, to be given back; the newer half stays.
    pub(crate) fn older_half(&mut self) -> ([u64; MAGAZINE_CHUNKS_MAX], usize) {
        let out = self.chunks;
        let given = usize::from(self.count).div_ceil(2);
        self.chunks.copy_within(given..self.count as usize, 0);
        self.count -= given as u8;
        (out, given)
    }
}

/// Counters of one class, kept by whoever evicts or reclaims, under the class's lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClassCounters {
    pub(crate) evictions: u64,
    pub(crate) evicted_unfetched: u64,
    pub(crate) evicted_nonzero: u64,
    pub(crate) evicted_age_s: u64,
    pub(crate) reclaimed: u64,
    pub(crate) expired_unfetched: u64,
    pub(crate) out_of_memory: u64,
}

/// One class.
#[derive(Debug)]
pub(crate) struct Class {
    id: ClassId,
    /// First span with a free chunk; 0: none.
    partial: u32,
    /// All spans of the class.
    pub(crate) spans: Vec<u32>,
    /// How many of them are being drained.
    draining: usize,
    /// Chunks in free lists and never carved.
    pub(crate) free_chunks: u64,
    /// The eviction hand: place in `spans`, and the next chunk there.
    pub(crate) hand_place: usize,
    pub(crate) hand_chunk: usize,
    /// Hashes of keys on probation, oldest first.
    pub(crate) probation: Ring,
    pub(crate) counters: ClassCounters,
}

/// All classes.
#[derive(Debug)]
pub(crate) struct Slabs {
    classes: Box<[Mutex<Class>]>,
}

impl Slabs {
    pub(crate) fn new() -> Slabs {
        let class = |id| Class {
            id,
            partial: 0,
            spans: Vec::new(),
            draining: 0,
            free_chunks: 0,
            hand_place: 0,
            hand_chunk: 0,
            probation: Ring::default(),
            counters: ClassCounters::default(),
        };
        assert_eq!(ClassId::all().count(), CLASSES);
        Slabs { classes: ClassId::all().map(|id| Mutex::new(class(id))).collect() }
    }

    /// Locks a class. Locks of two classes are never held at once; no bucket is locked under one.
    pub(crate) fn class(&self, id: ClassId) -> MutexGuard<'_, Class> {
        self.classes[id.0 as usize - 1].lock().expect("no panic under the lock")
    }

    /// The class other than `except` that has the most spans still to drain; none if all spans are
    /// being drained. Those do not count: what keeps one from emptying (an upload, a pin) may keep
    /// every span of a small class, and a span of another has to be tried then.
    pub(crate) fn richest(&self, except: Option<ClassId>) -> Option<ClassId> {
        ClassId::all()
            .filter(|&id| Some(id) != except)
            .map(|id| (self.class(id).undrained(), id))
            .max_by_key(|&(spans, _)| spans)
            .filter(|&(spans, _)| spans > 0)
            .map(|(_, id)| id)
    }
}

impl Class {
    fn undrained(&self) -> usize {
        self.spans.len() - self.draining
    }

    /// Moves free chunks into an empty magazine until it is half full or has `room` (one at least);
    /// takes a new span from the arena if none of the class's has a chunk. Returns how many.
    pub(crate) fn fill(&mut self, arena: &Arena, magazine: &mut Magazine, room: usize) -> usize {
        let wanted = Magazine::capacity(self.id).div_ceil(2).min(room.max(1));
        while usize::from(magazine.count) < wanted {
            if self.partial == 0 {
                // What is there is enough to go on; a span is taken only for an empty magazine.
                if magazine.count > 0 {
                    break;
                }
                let Some(number) = arena.take_span(self.id.0, false) else { break };
                self.add_span(arena, number);
            }
            let number = self.partial;
            let span = arena.span(number);
            let chunk = self.take_from(arena, span, number);
            let pushed = magazine.push(self.id, chunk);
            debug_assert!(pushed);
            if self.room(span) == 0 {
                self.unlink_partial(arena, number);
            }
        }
        usize::from(magazine.count)
    }

    fn take_from(&mut self, arena: &Arena, span: &Span, number: u32) -> u64 {
        let start = Arena::location_of(number);
        self.free_chunks -= 1;
        let unit = span.free.load(Ordering::Relaxed);
        if unit == NONE {
            let carved = span.carved.load(Ordering::Relaxed);
            span.carved.store(carved + 1, Ordering::Relaxed);
            let location = start + u64::from(carved) * (self.id.chunk_bytes() / UNIT) as u64;
            // What the span held before must not look like an item to a sweep.
            // SAFETY: the chunk is free and under this class's lock.
            let chunk = unsafe { RawItem::new(arena.at(location)) };
            chunk.header_word().store(Header::free(0).0, Ordering::Relaxed);
            poison_chunk(arena, self.id, location);
            return location;
        }
        let location = start + u64::from(unit);
        // SAFETY: the chunk is free and under this class's lock.
        let chunk = unsafe { RawItem::new(arena.at(location)) };
        span.free.store(chunk.header().free_next(), Ordering::Relaxed);
        span.free_count.fetch_sub(1, Ordering::Relaxed);
        location
    }

    /// Free chunks of a span, carved or not; none while it is being drained.
    fn room(&self, span: &Span) -> usize {
        if span.draining.load(Ordering::Relaxed) != 0 {
            return 0;
        }
        self.free_in(span)
    }

    fn free_in(&self, span: &Span) -> usize {
        let carved = usize::from(span.carved.load(Ordering::Relaxed));
        self.id.chunks_per_span() - carved + usize::from(span.free_count.load(Ordering::Relaxed))
    }

    /// Takes a chunk back. Nobody may refer to its bytes any more.
    pub(crate) fn give(&mut self, arena: &Arena, location: u64) {
        let number = Arena::span_of(location);
        let span = arena.span(number);
        debug_assert_eq!(span.owner.load(Ordering::Relaxed), self.id.0);
        let had_room = self.room(span) > 0;
        // SAFETY: the chunk is free and under this class's lock.
        let chunk = unsafe { RawItem::new(arena.at(location)) };
        let header = Header::free(span.free.load(Ordering::Relaxed));
        chunk.header_word().store(header.0, Ordering::Relaxed);
        span.free.store((location - Arena::location_of(number)) as u16, Ordering::Relaxed);
        span.free_count.fetch_add(1, Ordering::Relaxed);
        self.free_chunks += 1;
        let draining = span.draining.load(Ordering::Relaxed) != 0;
        if self.free_in(span) == self.id.chunks_per_span() && (self.spans.len() > 1 || draining) {
            if had_room {
                self.unlink_partial(arena, number);
            }
            self.remove_span(arena, number);
        } else if !had_room && !draining {
            self.link_partial(arena, number);
        }
    }

    fn add_span(&mut self, arena: &Arena, number: u32) {
        arena.span(number).place.store(self.spans.len() as u32, Ordering::Relaxed);
        unpoison(arena.at(Arena::location_of(number)).as_ptr(), SPAN_BYTES);
        self.spans.push(number);
        self.free_chunks += self.id.chunks_per_span() as u64;
        self.link_partial(arena, number);
    }

    fn remove_span(&mut self, arena: &Arena, number: u32) {
        let place = arena.span(number).place.load(Ordering::Relaxed) as usize;
        debug_assert_eq!(self.spans[place], number);
        self.spans.swap_remove(place);
        if let Some(&moved) = self.spans.get(place) {
            arena.span(moved).place.store(place as u32, Ordering::Relaxed);
        }
        self.free_chunks -= self.id.chunks_per_span() as u64;
        self.draining -= usize::from(arena.span(number).draining.load(Ordering::Relaxed) != 0);
        arena.give_span(number);
    }

    /// Stops handing out chunks of a span, so that it goes back to the arena once all are free.
    pub(crate) fn start_draining(&mut self, arena: &Arena, number: u32) {
        let span = arena.span(number);
        if self.room(span) > 0 {
            self.unlink_partial(arena, number);
        }
        span.draining.store(1, Ordering::Relaxed);
        self.draining += 1;
        if self.free_in(span) == self.id.chunks_per_span() {
            self.remove_span(arena, number);
        }
    }

    fn link_partial(&mut self, arena: &Arena, number: u32) {
        let span = arena.span(number);
        span.next.store(self.partial, Ordering::Relaxed);
        span.previous.store(0, Ordering::Relaxed);
        if self.partial != 0 {
            arena.span(self.partial).previous.store(number, Ordering::Relaxed);
        }
        self.partial = number;
    }

    fn unlink_partial(&mut self, arena: &Arena, number: u32) {
        let span = arena.span(number);
        let (previous, next) = (span.previous.load(Ordering::Relaxed), span.next.load(Ordering::Relaxed));
        if previous == 0 {
            self.partial = next;
        } else {
            arena.span(previous).next.store(next, Ordering::Relaxed);
        }
        if next != 0 {
            arena.span(next).previous.store(previous, Ordering::Relaxed);
        }
    }
}

/// Marks all of a free chunk but its header word as not to be touched.
pub(crate) fn poison_chunk(arena: &Arena, class: ClassId, location: u64) {
    // SAFETY: the chunk is at least 16 bytes long.
    poison(unsafe { arena.at(location).as_ptr().add(8) }, class.chunk_bytes() - 8);
}

/// Marks a chunk as usable.
pub(crate) fn unpoison_chunk(arena: &Arena, class: ClassId, location: u64) {
    unpoison(arena.at(location).as_ptr(), class.chunk_bytes());
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn span_goes_back_when_its_last_chunk_is_free() {
        let arena = Arena::new(1 << 22, 1 << 22).unwrap();
        let slabs = Slabs::new();
        let id = ClassId::of(4096);
        let mut class = slabs.class(id);
        let mut magazine = Magazine::EMPTY;
        let mut chunks = Vec::new();
        while chunks.len() < 3 * id.chunks_per_span() {
            assert!(class.fill(&arena, &mut magazine, 32) > 0);
            chunks.extend(std::iter::from_fn(|| magazine.pop()));
        }
        assert_eq!((class.spans.len(), class.free_chunks), (3, 0));
        assert_eq!(arena.used_bytes(), 3 * SPAN_BYTES as u64);
        let mut sorted = chunks.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), chunks.len(), "no chunk twice");
        for chunk in chunks {
            class.give(&arena, chunk);
        }
        assert_eq!((class.spans.len(), class.free_chunks), (1, 16));
        assert_eq!(arena.used_bytes(), SPAN_BYTES as u64);
    }

    #[test]
    fn draining_span_hands_out_nothing_and_leaves() {
        let arena = Arena::new(1 << 22, 1 << 22).unwrap();
        let slabs = Slabs::new();
        let mut class = slabs.class(ClassId::of(16384));
        let mut magazine = Magazine::EMPTY;
        assert!(class.fill(&arena, &mut magazine, 32) > 0);
        let chunk = magazine.pop().unwrap();
        let span = Arena::span_of(chunk);
        class.start_draining(&arena, span);
        assert!(class.fill(&arena, &mut magazine, 32) > 0);
        let other = magazine.pop().unwrap();
        assert_ne!(Arena::span_of(other), span);
        class.give(&arena, chunk);
        assert_eq!(class.spans.len(), 1);
        class.give(&arena, other);
        assert_eq!(class.spans.len(), 1, "the only span stays");
    }
}
