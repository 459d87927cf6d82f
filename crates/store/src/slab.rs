//! Slab classes at work: spans cut in chunks, and which of them are free, for which worker.
//!
//! ```text
//! worker's magazine ⇄ (32 chunks at a time, under the class's lock) ⇄ spans of the class ⇄ arena
//! ```
//!
//! For each class: `spans × chunks_per_span = used + in free lists + never carved + in magazines +
//! waiting for their epoch`. A span whose chunks are all free goes back to the arena, unless it is
//! its class's only one.

mod magazine;
mod row;

pub(crate) use magazine::Magazine;
pub(crate) use row::Row;

use crate::Millis;
use crate::arena::{Arena, NONE, Share, Span, UNIT, poison, unpoison};
use crate::class::{CLASSES, ClassId, SPAN_BYTES};
use crate::item::{Header, RawItem};
use crate::ring::Ring;
use crate::soonest::Bar;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard};
use crate::view::ClassView;
use std::sync::Arc;

/// Spans looked at for the one with the most room.
const EMPTIEST_SPANS_MAX: usize = 32;

/// Now, in time and by the store's clock of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) at: Millis,
    /// Bytes ever allocated: [`crate::Store::moment`].
    pub(crate) clock: u64,
}

/// One class.
#[derive(Debug)]
pub(crate) struct Class {
    id: ClassId,
    views: Arc<Views>,
    /// First span with a free chunk; 0: none.
    partial: u32,
    /// Spans in the order in which the hand passes them: the front was not passed for longest.
    pub(crate) queue: Row,
    /// Spans that are being emptied.
    pub(crate) draining: Row,
    /// Chunks in free lists and never carved.
    pub(crate) free_chunks: u64,
    /// Those of them that are in spans being drained.
    draining_free: u64,
    /// The eviction hand: the next chunk of the front span.
    hand_chunk: usize,
    /// The bar of what `volatile-ttl` evicts.
    pub(crate) bar: Bar,
    /// Hashes of keys on probation, oldest first.
    pub(crate) probation: Ring,
    /// Bytes of a key put there, on the mean of the last ones.
    pub(crate) probation_mean_bytes: u64,
    pub(crate) out_of_memory: u64,
}

/// Views by the number of their class; the first is no class's.
type Views = [ClassView; CLASSES + 1];

/// All classes.
#[derive(Debug)]
pub(crate) struct Slabs {
    classes: Box<[Mutex<Class>]>,
    views: Arc<Views>,
}

impl Slabs {
    pub(crate) fn new() -> Slabs {
        let views: Arc<Views> = Arc::new(std::array::from_fn(|_| ClassView::default()));
        let class = |id| Class {
            id,
            views: Arc::clone(&views),
            partial: 0,
            queue: Row::default(),
            draining: Row::default(),
            free_chunks: 0,
            draining_free: 0,
            hand_chunk: 0,
            bar: Bar::default(),
            probation: Ring::default(),
            probation_mean_bytes: 0,
            out_of_memory: 0,
        };
        assert_eq!(ClassId::all().count(), CLASSES);
        let classes = ClassId::all().map(|id| Mutex::new(class(id))).collect();
        Slabs { classes, views }
    }

    /// Locks a class. Locks of two classes are never held at once; no bucket is locked under one.
    pub(crate) fn class(&self, id: ClassId) -> MutexGuard<'_, Class> {
        self.classes[id.0 as usize - 1].lock().expect("no panic under the lock")
    }

    /// What is seen of a class without its lock.
    #[inline(always)]
    pub(crate) fn view(&self, id: ClassId) -> &ClassView {
        // The remainder changes nothing, as the number is one of a class: it spares a check.
        &self.views[id.0 as usize % (CLASSES + 1)]
    }

    /// Spans that are being drained, by whichever worker.
    pub(crate) fn draining(&self) -> u32 {
        self.views.iter().map(|view| view.draining.load(Ordering::Relaxed)).sum()
    }

    /// Has ghost hits, and what was judged, until now count half from now on.
    pub(crate) fn forget(&self) {
        self.views[1..].iter().for_each(ClassView::forget);
    }

    /// The class other than `except` that has the most spans still to drain; none if all spans are
    /// being drained. Those do not count: what keeps one from emptying (an upload, a pin) may keep
    /// every span of a small class, and a span of another has to be tried then.
    pub(crate) fn richest(&self, except: Option<ClassId>) -> Option<ClassId> {
        ClassId::all()
            .filter(|&id| Some(id) != except)
            .map(|id| (self.view(id).spans(), id))
            .max_by_key(|&(spans, _)| spans)
            .filter(|&(spans, _)| spans > 0)
            .map(|(_, id)| id)
    }
}

impl Class {
    pub(crate) fn id(&self) -> ClassId {
        self.id
    }

    /// Spans, drained or not.
    pub(crate) fn spans(&self) -> usize {
        self.queue.count + self.draining.count
    }

    /// All spans, drained or not.
    pub(crate) fn all_spans<'a>(&self, arena: &'a Arena) -> impl Iterator<Item = u32> + use<'a> {
        self.queue.iter(arena).chain(self.draining.iter(arena))
    }

    /// Shows what has changed to threads without the lock.
    fn show(&self, arena: &Arena) {
        let moment = |span: u32| arena.span(span).passed();
        self.view().show_spans(self.queue.front().map(moment), self.queue.count, self.draining.count);
        self.show_next(arena);
        self.show_free();
    }

    fn show_next(&self, arena: &Arena) {
        self.view().show_next(self.next_to_drain(arena).map(|span| arena.span(span).passed()));
    }

    fn show_free(&self) {
        self.view().show_free(self.free_chunks - self.draining_free);
    }

    pub(crate) fn view(&self) -> &ClassView {
        &self.views[self.id.0 as usize]
    }

    /// The least of free chunks since this was last asked, and the spans, of those that are not drained.
    pub(crate) fn take_low(&mut self) -> (u64, u64) {
        (self.view().take_low(), self.queue.count as u64)
    }

    /// Free chunks of a span, if it is the class's and not being drained.
    pub(crate) fn free_of(&self, arena: &Arena, number: u32) -> u32 {
        let span = arena.span(number);
        let own = span.owner.load(Ordering::Relaxed) == self.id.0;
        if own { self.room(span) as u32 } else { 0 }
    }

    /// Moves the hand over the next chunks: `each` gets the location of carved ones, and says whether it wants more. It looks
    /// at `chunks_max` at most; a span for which `skips` is true, and the end of a span, count as one each. Returns how many
    /// it looked at.
    pub(crate) fn pass(
        &mut self,
        arena: &Arena,
        now: Moment,
        chunks_max: usize,
        skips: impl Fn(&Span) -> bool,
        mut each: impl FnMut(u64) -> bool,
    ) -> usize {
        let mut looked = 0;
        while looked < chunks_max
            && let Some(number) = self.queue.front()
        {
            let span = arena.span(number);
            let ends = self.hand_chunk >= usize::from(span.carved.load(Ordering::Relaxed));
            if ends || self.hand_chunk == 0 && skips(span) {
                span.note_passed(now);
                self.queue.remove(arena, number);
                self.queue.push_back(arena, number);
                self.hand_chunk = 0;
                self.show(arena);
                looked += 1;
                continue;
            }
            let location =
                Arena::location_of(number) + (self.hand_chunk * self.id.chunk_bytes() / UNIT) as u64;
            self.hand_chunk += 1;
            if self.hand_chunk == 1 {
                self.show_next(arena);
            }
            looked += 1;
            if !each(location) {
                break;
            }
        }
        looked
    }

    /// Counts a span as passed that holds parts of something that was judged elsewhere. It stays where it is in the row.
    pub(crate) fn note_judged(&self, arena: &Arena, number: u32, now: Moment) {
        let span = arena.span(number);
        if span.owner.load(Ordering::Relaxed) == self.id.0 {
            span.note_passed(now);
            if self.queue.front() == Some(number) || self.next_to_drain(arena) == Some(number) {
                self.show(arena);
            }
        }
    }

    /// The span to be drained next: the one that was not passed for longest, but for one in which the hand is.
    pub(crate) fn next_to_drain(&self, arena: &Arena) -> Option<u32> {
        let mut spans = self.queue.iter(arena);
        let front = spans.next()?;
        let begun = self.hand_chunk > 0;
        Some(spans.next().filter(|_| begun).unwrap_or(front))
    }

    /// The span that has most room among the first that have some; none if no span has room.
    pub(crate) fn emptiest(&self, arena: &Arena) -> Option<u32> {
        let next = |number: u32| arena.span(number).next.load(Ordering::Relaxed);
        std::iter::successors((self.partial != 0).then_some(self.partial), |&number| {
            (next(number) != 0).then(|| next(number))
        })
        .take(EMPTIEST_SPANS_MAX)
        .max_by_key(|&number| self.free_in(arena.span(number)))
    }

    /// Takes a span from the arena for this class if it may have one.
    pub(crate) fn grow(&mut self, arena: &Arena, now: Moment, share: Share) -> bool {
        let number = arena.take_span(self.id.0, share);
        number.is_some_and(|number| {
            self.add_span(arena, number, now);
            true
        })
    }

    /// Takes a span for what is left of collections ([`crate::leftover`]), and its first chunk. No other chunk of it is handed
    /// out by [`Class::fill`]: it counts as drained, and goes back when it is empty.
    pub(crate) fn grow_for_leftovers(&mut self, arena: &Arena, now: Moment) -> Option<(u32, u64)> {
        let number = arena.take_span(self.id.0, Share::Leftovers)?;
        self.add_span(arena, number, now);
        let chunk = self.take_from(arena, arena.span(number), number);
        self.start_draining(arena, number);
        Some((number, chunk))
    }

    /// A free chunk of a span that is drained; none if the span has none, or is not.
    pub(crate) fn take_of_drained(&mut self, arena: &Arena, number: u32) -> Option<u64> {
        let span = arena.span(number);
        if !self.drains(arena, number) || self.free_in(span) == 0 {
            return None;
        }
        self.draining_free -= 1;
        let chunk = self.take_from(arena, span, number);
        self.show_free();
        Some(chunk)
    }

    /// True if the span is the class's, and is being drained.
    pub(crate) fn drains(&self, arena: &Arena, number: u32) -> bool {
        let span = arena.span(number);
        span.owner.load(Ordering::Relaxed) == self.id.0 && span.draining.load(Ordering::Relaxed) != 0
    }

    /// Moves free chunks into an empty magazine until it is half full or has `room` (one at least); returns how many. If
    /// none of the class's spans has a chunk it takes a span from the arena, of the share that it may `grow` by, and its
    /// first chunks at once, or a worker that empties spans might have it before.
    pub(crate) fn fill(
        &mut self,
        arena: &Arena,
        magazine: &mut Magazine,
        room: usize,
        now: Moment,
        grow: Option<Share>,
    ) -> usize {
        let wanted = Magazine::capacity(self.id).div_ceil(2).min(room.max(1));
        while magazine.len() < wanted {
            if self.partial == 0 {
                // What is there is enough to go on; a span is taken only for an empty magazine.
                if magazine.len() > 0 || !grow.is_some_and(|share| self.grow(arena, now, share)) {
                    break;
                }
            }
            let number = self.partial;
            let span = arena.span(number);
            let chunk = self.take_from(arena, span, number);
            let pushed = magazine.push(chunk);
            debug_assert!(pushed);
            if self.room(span) == 0 {
                self.unlink_partial(arena, number);
            }
        }
        self.show_free();
        magazine.len()
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

    /// Takes a chunk back. No thread may refer to its bytes any more.
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
        self.draining_free += u64::from(draining);
        self.show_free();
        if self.free_in(span) == self.id.chunks_per_span() && (self.spans() > 1 || draining) {
            if had_room {
                self.unlink_partial(arena, number);
            }
            self.remove_span(arena, number);
        } else if !had_room && !draining {
            self.link_partial(arena, number);
        }
    }

    fn add_span(&mut self, arena: &Arena, number: u32, now: Moment) {
        arena.span(number).note_passed(now);
        self.queue.push_back(arena, number);
        unpoison(arena.at(Arena::location_of(number)).as_ptr(), SPAN_BYTES);
        self.free_chunks += self.id.chunks_per_span() as u64;
        self.link_partial(arena, number);
        self.show(arena);
    }

    fn remove_span(&mut self, arena: &Arena, number: u32) {
        self.free_chunks -= self.id.chunks_per_span() as u64;
        if arena.span(number).draining.load(Ordering::Relaxed) != 0 {
            self.draining.remove(arena, number);
            self.draining_free -= self.id.chunks_per_span() as u64;
        } else {
            self.leave_queue(arena, number);
        }
        self.show(arena);
        arena.give_span(number);
    }

    fn leave_queue(&mut self, arena: &Arena, number: u32) {
        if self.queue.front() == Some(number) {
            self.hand_chunk = 0;
        }
        self.queue.remove(arena, number);
    }

    /// Stops handing out chunks of a span, so that it goes back to the arena once all are free.
    pub(crate) fn start_draining(&mut self, arena: &Arena, number: u32) {
        let span = arena.span(number);
        debug_assert_eq!(span.draining.load(Ordering::Relaxed), 0);
        if self.room(span) > 0 {
            self.unlink_partial(arena, number);
        }
        self.leave_queue(arena, number);
        span.draining.store(1, Ordering::Relaxed);
        self.draining.push_back(arena, number);
        self.draining_free += self.free_in(span) as u64;
        if self.free_in(span) == self.id.chunks_per_span() {
            self.remove_span(arena, number);
        } else {
            self.show(arena);
        }
    }

    /// Uses a span again that could not be emptied; the hand has passed it now.
    pub(crate) fn stop_draining(&mut self, arena: &Arena, number: u32, now: Moment) {
        let span = arena.span(number);
        debug_assert_eq!(span.draining.load(Ordering::Relaxed), 1);
        self.draining.remove(arena, number);
        self.draining_free -= self.free_in(span) as u64;
        span.draining.store(0, Ordering::Relaxed);
        span.note_passed(now);
        self.queue.push_back(arena, number);
        if self.room(span) > 0 {
            self.link_partial(arena, number);
        }
        self.show(arena);
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

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn span_goes_back_when_its_last_chunk_is_free() {
        let arena = Arena::new(1 << 22, 1 << 22).unwrap();
        let slabs = Slabs::new();
        let id = ClassId::of(4096);
        let mut class = slabs.class(id);
        let mut magazine = Magazine::new(id);
        let mut chunks = Vec::new();
        while chunks.len() < 3 * id.chunks_per_span() {
            assert!(class.fill(&arena, &mut magazine, 32, Moment::default(), Some(Share::Items)) > 0);
            chunks.extend(std::iter::from_fn(|| magazine.pop()));
        }
        assert_eq!((class.spans(), class.free_chunks), (3, 0));
        assert_eq!(arena.used_bytes(), 3 * SPAN_BYTES as u64);
        let mut sorted = chunks.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), chunks.len(), "no chunk twice");
        for chunk in chunks {
            class.give(&arena, chunk);
        }
        assert_eq!((class.spans(), class.free_chunks), (1, 16));
        assert_eq!(arena.used_bytes(), SPAN_BYTES as u64);
    }

    #[test]
    fn draining_span_hands_out_nothing_and_leaves() {
        let arena = Arena::new(1 << 22, 1 << 22).unwrap();
        let slabs = Slabs::new();
        let id = ClassId::of(16384);
        let mut class = slabs.class(id);
        let mut magazine = Magazine::new(id);
        assert!(class.fill(&arena, &mut magazine, 32, Moment::default(), Some(Share::Items)) > 0);
        let chunk = magazine.pop().unwrap();
        let span = Arena::span_of(chunk);
        class.start_draining(&arena, span);
        assert!(class.fill(&arena, &mut magazine, 32, Moment::default(), Some(Share::Items)) > 0);
        let other = magazine.pop().unwrap();
        assert_ne!(Arena::span_of(other), span);
        class.give(&arena, chunk);
        assert_eq!(class.spans(), 1);
        class.give(&arena, other);
        assert_eq!(class.spans(), 1, "the only span stays");
    }
}
