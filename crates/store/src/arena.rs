//! The arena: one reservation of address space, handed out in spans of 64 KiB.
//!
//! ```text
//! base  ├ span 0 ┼ span 1 ┼ span 2 ┼ …                  reserved, touched only when handed out
//!         unused   class 7  index    free
//! ```
//!
//! Spans go out in address order, and freed ones first, so that what is resident stays together: huge
//! pages (a third less time for random keys among a million) leave at most one of them part-used.
//! A location is an offset from `base` in units of 8 bytes; span 0 is never used, so that 0 is
//! "nothing". The arena knows nothing of chunks and items.

mod free;
mod memory;
mod poison;
mod ready;
mod span;

pub(crate) use poison::{poison, unpoison};
pub(crate) use span::{NONE, OWNER_FREE, OWNER_INDEX, Span};

use crate::Millis;
use crate::barren::Barren;
use crate::bucket::LOCATION_BITS;
use crate::class::SPAN_BYTES;
use crate::due::Agenda;
use crate::numbers::{GROUP, Numbers};
use crate::sync::Apart;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use free::Free;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::thread::Thread;

/// Most bytes an arena can span: what a slot's location reaches.
pub(crate) const ARENA_BYTES_MAX: u64 = 8 << LOCATION_BITS;
/// Spans that are kept for the index at least, out of reach of items.
const RESERVE_SPANS_MIN: u32 = 2;
/// Most of these that items may hold on to. A class without a span drains as many more for its first.
const LENT_SPANS_MAX: u32 = 2;
/// Spans beyond the limit for what is left of collections of which something is taken out.
const LEFTOVER_SPANS_MAX: u32 = 8;
/// Spans of the reservation that the limit never allows: these, and span 0.
pub(crate) const SPANS_BESIDE: u32 = 1 + LEFTOVER_SPANS_MAX;
/// Bytes of a huge page, which the kernel maps at once where it is advised to.
const HUGE_PAGE_BYTES: usize = 2 << 20;
const _: () = assert!(GROUP as usize * SPAN_BYTES == HUGE_PAGE_BYTES);
/// Bytes in one unit of a location.
pub(crate) const UNIT: usize = 8;

/// The share of the limit that a span is taken from: it says how many spans may be in use then, with this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// What items may have: all but what is kept for the index.
    Items,
    /// As [`Share::Items`], and the index's spans that are lent: for a caller that has just given a span back.
    Lent,
    /// All.
    Index,
    /// All, and a few beyond the limit: for what is left of collections.
    Leftovers,
    /// Whatever the limit is: for a caller that has just given a span back because of it.
    Swapped,
}

/// The reservation, and the owners of its spans.
#[derive(Debug)]
pub(crate) struct Arena {
    mapping: NonNull<u8>,
    /// The first huge page of the mapping.
    base: NonNull<u8>,
    bytes: usize,
    spans: NonNull<Span>,
    spans_max: u32,
    /// Bytes the whole store may use.
    limit_bytes: AtomicU64,
    /// Bytes in use that are not spans: rings, ghosts, directory.
    charged_bytes: Apart<AtomicU64>,
    /// While compaction moves what is in higher spans: free ones below this go out first, though they
    /// have no memory; 0: no compaction does.
    gather_below: AtomicU32,
    /// Copy of `Free::used` for readers without the lock.
    used: AtomicU32,
    /// Spans that have memory, used or not, for readers without the lock.
    resident: AtomicU32,
    free: Mutex<Free>,
    agenda: Agenda,
    /// The thread that maps memory ahead.
    preparer: OnceLock<Thread>,
    /// The preparer is to have the heap's free pages given back, too.
    trims_heap: AtomicBool,
    /// The preparer was woken to map memory, or maps some.
    maps: AtomicBool,
    /// Nothing has an expiry, as far as eviction knows.
    pub(crate) barren: Barren,
}

// SAFETY: 1. `base` and `spans` point to mappings that live as long as the arena. 2. `Span` is made
// of atomics. 3. The arena itself never reads or writes the bytes it hands out.
unsafe impl Send for Arena {}
// SAFETY: as for Send; the remaining state is behind a mutex or atomic.
unsafe impl Sync for Arena {}

/// Returns how many of `allowed` spans only the index may take.
fn kept_for_index(allowed: u32) -> u32 {
    (allowed / 128).max(RESERVE_SPANS_MIN).min(allowed / 4)
}

/// Returns how many of those are lent, for rings and buffers, which take memory and give it back by turns.
fn lent_of_index(allowed: u32) -> u32 {
    (kept_for_index(allowed) / 2).min(LENT_SPANS_MAX)
}

/// Bytes to map for an arena of `bytes`: whole huge pages, wherever the mapping begins.
fn mapped_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(HUGE_PAGE_BYTES) + HUGE_PAGE_BYTES
}

fn map(bytes: usize) -> std::io::Result<NonNull<u8>> {
    // SAFETY: a new anonymous mapping at an address the kernel chooses overlaps nothing.
    let address = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }?;
    Ok(NonNull::new(address.cast()).expect("mmap does not map page 0"))
}

impl Arena {
    /// Reserves room for `bytes_max`, of which `limit_bytes` may be used.
    pub(crate) fn new(limit_bytes: u64, bytes_max: u64) -> std::io::Result<Arena> {
        let spans_max = bytes_max.div_ceil(SPAN_BYTES as u64) as u32 + SPANS_BESIDE;
        let bytes = spans_max as usize * SPAN_BYTES;
        let mapping = map(mapped_bytes(bytes))?;
        let skip = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: less than a huge page, by which the mapping is longer.
        let base = unsafe { mapping.add(skip) };
        #[cfg(feature = "schedule")]
        crate::schedule::arena_at(base.as_ptr());
        // What is cached is in no core dump. Linux can do it since 3.4.
        // SAFETY: the bytes were just mapped, and nothing but dumps of the process asks for this advice.
        let _ = unsafe { madvise(mapping.as_ptr().cast(), mapped_bytes(bytes), Advice::LinuxDontDump) };
        // SAFETY: the bytes were just mapped. A system without huge pages refuses, and that is fine.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        let spans = map(spans_max as usize * size_of::<Span>())?.cast();
        Ok(Arena {
            mapping,
            base,
            bytes,
            spans,
            spans_max,
            limit_bytes: AtomicU64::new(limit_bytes),
            charged_bytes: Apart(AtomicU64::new(0)),
            gather_below: AtomicU32::new(0),
            used: AtomicU32::new(0),
            resident: AtomicU32::new(0),
            free: Mutex::new(Free {
                next: 1,
                ever: 1,
                tail: 0,
                back: Numbers::new(spans_max),
                gone: Numbers::new(spans_max),
                used: 0,
                back_low: 0,
                spare: 0,
            }),
            agenda: Agenda::new(spans_max),
            preparer: OnceLock::new(),
            trims_heap: AtomicBool::new(false),
            maps: AtomicBool::new(false),
            barren: Barren::default(),
        })
    }

    /// Has core dumps of the process contain what is cached, from now on.
    pub(crate) fn show_in_core_dumps(&self) {
        let bytes = mapped_bytes(self.bytes);
        // SAFETY: the mapping was made by `map` with this length, and nothing but dumps asks for this advice.
        let _ = unsafe { madvise(self.mapping.as_ptr().cast(), bytes, Advice::LinuxDoDump) };
    }

    /// The address of a location.
    #[inline]
    pub(crate) fn at(&self, location: u64) -> NonNull<u8> {
        debug_assert!((location as usize) < self.bytes / UNIT);
        // SAFETY: locations come from `take_span` and are inside the mapping.
        unsafe { self.base.add(location as usize * UNIT) }
    }

    /// The address of a location, or of none, for a prefetch only.
    #[inline]
    pub(crate) fn near(&self, location: u64) -> *const u8 {
        self.base.as_ptr().wrapping_add(location as usize * UNIT)
    }

    /// The number of the span that holds a location.
    #[inline]
    pub(crate) fn span_of(location: u64) -> u32 {
        (location / (SPAN_BYTES / UNIT) as u64) as u32
    }

    /// The location of a span's first byte.
    #[inline]
    pub(crate) fn location_of(span: u32) -> u64 {
        u64::from(span) * (SPAN_BYTES / UNIT) as u64
    }

    /// What is known about span `number`.
    #[inline]
    pub(crate) fn span(&self, number: u32) -> &Span {
        debug_assert!(number < self.spans_max);
        // SAFETY: 1. `number` is below `spans_max`, the length of the mapping. 2. All zero, as the
        // kernel gives it, is a valid `Span`. 3. It is only ever accessed as `&Span`.
        unsafe { self.spans.add(number as usize).as_ref() }
    }

    /// Says that something at `location` expires at `at`.
    #[inline]
    pub(crate) fn note_expiry(&self, location: u64, at: Millis) {
        self.note_span_expiry(Self::span_of(location), at);
        self.barren.clear();
    }

    /// Says that a span is due at `at`.
    #[inline]
    pub(crate) fn note_span_expiry(&self, number: u32, at: Millis) {
        if self.span(number).due.lower(at) {
            self.agenda.note(number, at);
        }
    }

    /// Which spans are due when.
    #[inline]
    pub(crate) fn agenda(&self) -> &Agenda {
        &self.agenda
    }

    /// Takes a span that is due, looked for from span `from` on.
    pub(crate) fn take_due(&self, from: u32, now: Millis) -> Option<u32> {
        let spans = self.free.lock().expect("no panic under the lock").next;
        self.agenda.take(from.min(spans - 1), spans, now, |number| &self.span(number).due)
    }

    /// Hands out a span; `None` when as many are in use as this share of the limit allows.
    pub(crate) fn take_span(&self, owner: u8, share: Share) -> Option<u32> {
        let allowed = self.spans_allowed();
        let for_items = allowed.saturating_sub(kept_for_index(allowed));
        let used_max = match share {
            Share::Items => for_items,
            Share::Lent => for_items + lent_of_index(allowed),
            Share::Index => allowed,
            Share::Leftovers => allowed + LEFTOVER_SPANS_MAX,
            Share::Swapped => u32::MAX,
        };
        let mut free = self.free.lock().expect("no panic under the lock");
        if free.used >= used_max {
            return None;
        }
        let below = self.gather_below.load(Ordering::Relaxed);
        let low = if below > 0 { free.pop_below(below) } else { None };
        let number = match low.or_else(|| free.back.pop_first()).or_else(|| free.gone.pop_first()) {
            Some(number) => number,
            None if free.next < self.spans_max => {
                free.next += 1;
                free.next - 1
            }
            None => return None,
        };
        free.used += 1;
        free.ever = free.ever.max(number + 1);
        self.publish(&mut free);
        // Free spans that keep their memory count, too.
        let over = self.resident.load(Ordering::Relaxed) > allowed;
        let ready = free.back.len() as u32;
        drop(free);
        self.call_preparer(ready);
        if over {
            self.trim(1);
        }
        let span = self.span(number);
        span.free.store(NONE, Ordering::Relaxed);
        for counter in [&span.free_count, &span.carved] {
            counter.store(0, Ordering::Relaxed);
        }
        span.draining.store(0, Ordering::Relaxed);
        span.due.clear();
        span.owner.store(owner, Ordering::Release);
        Some(number)
    }

    /// Takes a span back. No thread may refer to its bytes any more.
    pub(crate) fn give_span(&self, number: u32) {
        self.span(number).owner.store(OWNER_FREE, Ordering::Release);
        let mut free = self.free.lock().expect("no panic under the lock");
        free.back.insert(number);
        free.used -= 1;
        self.publish(&mut free);
        drop(free);
        if self.over_resident() {
            self.trim(1);
        }
    }

    /// Tells the owner of every span that was ever handed out, and checks the free ones.
    ///
    /// # Panics
    /// If they do not add up.
    pub(crate) fn check(&self, mut each: impl FnMut(u32, u8)) {
        let free = self.free.lock().expect("no panic under the lock");
        let mut used = 0;
        for number in 1..free.next {
            let owner = self.span(number).owner.load(Ordering::Relaxed);
            used += u32::from(owner != OWNER_FREE);
            each(number, owner);
        }
        let given_back = (free.back.len() + free.gone.len()) as u32;
        assert_eq!((used, given_back), (free.used, free.next - 1 - used), "spans are lost, or owned twice");
    }

    fn publish(&self, free: &mut Free) {
        free.back_low = free.back_low.min(free.back.len());
        self.used.store(free.used, Ordering::Relaxed);
        self.resident.store(free.used + free.back.len() as u32, Ordering::Relaxed);
    }

    /// All spans in use fit below this number, if they are moved together.
    pub(crate) fn gathered_below(&self) -> u32 {
        let used = self.used.load(Ordering::Relaxed);
        used + used / 8 + GROUP
    }

    /// Has spans below this go out first; 0: those that have memory.
    pub(crate) fn gather_below(&self, number: u32) {
        self.gather_below.store(number, Ordering::Relaxed);
    }

    pub(crate) fn spans_allowed(&self) -> u32 {
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        let spans = limit.saturating_sub(self.charged_bytes.load(Ordering::Relaxed)) / SPAN_BYTES as u64;
        spans.min(u64::from(self.spans_max - SPANS_BESIDE)) as u32
    }

    /// True when items use so much of the limit that eviction is near.
    #[inline]
    pub(crate) fn nearly_full(&self) -> bool {
        let allowed = u64::from(self.spans_allowed());
        u64::from(self.used.load(Ordering::Relaxed)) * 8 >= allowed * 7
    }

    /// Spans that are used beyond what the limit allows (after it was lowered).
    #[inline]
    pub(crate) fn over_limit(&self) -> u32 {
        self.used.load(Ordering::Relaxed).saturating_sub(self.spans_allowed())
    }

    /// Spans that items are to give back. A few of the spans kept for the index may be lent: otherwise a span would move each
    /// time that rings and buffers take memory or give it back.
    pub(crate) fn over_items_limit(&self) -> u32 {
        let allowed = self.spans_allowed();
        let (kept, lent) = (kept_for_index(allowed), lent_of_index(allowed));
        (self.used.load(Ordering::Relaxed) + kept - lent).saturating_sub(allowed)
    }

    /// True if [`Arena::take_span`] has a span for items.
    #[inline]
    pub(crate) fn has_span(&self) -> bool {
        let allowed = self.spans_allowed();
        self.used.load(Ordering::Relaxed) + kept_for_index(allowed) < allowed
    }

    /// Counts bytes outside the spans as used (or, negative, as free again).
    pub(crate) fn charge(&self, bytes: i64) {
        self.charged_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if bytes > 0 && self.over_resident() {
            self.trim(bytes as usize / SPAN_BYTES + 1);
        }
    }

    /// Bytes outside the spans that count as used.
    pub(crate) fn charged_bytes(&self) -> u64 {
        self.charged_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// The most that the limit can be.
    pub(crate) fn bytes_max(&self) -> u64 {
        u64::from(self.spans_max - SPANS_BESIDE) * SPAN_BYTES as u64
    }

    /// Sets the limit; false when above the reservation.
    pub(crate) fn set_limit_bytes(&self, bytes: u64) -> bool {
        let fits = bytes <= self.bytes_max();
        if fits {
            self.limit_bytes.store(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Spans in use.
    pub(crate) fn spans_used(&self) -> u64 {
        u64::from(self.used.load(Ordering::Relaxed))
    }

    /// Numbers of spans that were ever handed out are below this.
    pub(crate) fn spans_ever(&self) -> u32 {
        self.free.lock().expect("no panic under the lock").ever
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.spans_used() * SPAN_BYTES as u64 + self.charged_bytes.load(Ordering::Relaxed)
    }

    /// Spans that had an owner and have none now.
    pub(crate) fn spans_given_back(&self) -> u64 {
        let free = self.free.lock().expect("no panic under the lock");
        u64::from(free.ever - 1 - free.used)
    }

    pub(crate) fn spans_free(&self) -> u64 {
        u64::from(self.spans_allowed().saturating_sub(self.used.load(Ordering::Relaxed)))
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Spans never handed out are not poisoned: to unpoison 256 GiB would take 32 GiB of the sanitizer's.
        let used = self.free.lock().map_or(0, |free| free.next as usize * SPAN_BYTES);
        unpoison(self.base.as_ptr(), used.min(self.bytes));
        // SAFETY: both mappings were made by `map` with these lengths and no thread refers to them.
        unsafe {
            let _ = munmap(self.mapping.as_ptr().cast(), mapped_bytes(self.bytes));
            let _ = munmap(self.spans.as_ptr().cast(), self.spans_max as usize * size_of::<Span>());
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn spans_go_out_in_address_order_and_freed_ones_first() {
        let arena = Arena::new(1 << 20, 1 << 20).unwrap();
        let spans: Vec<u32> = (0..4).map(|_| arena.take_span(1, Share::Index).unwrap()).collect();
        assert_eq!(spans, [1, 2, 3, 4]);
        arena.give_span(3);
        arena.give_span(2);
        assert_eq!(arena.take_span(1, Share::Index), Some(2));
    }

    /// Whether the system's list of mappings says of each one within this range that dumps leave it out.
    #[cfg(not(miri))]
    fn left_out_of_dumps(from: usize, bytes: usize) -> Vec<bool> {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut within, mut found) = (false, Vec::new());
        for line in text.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let ends = range.and_then(|(from, to)| {
                Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
            });
            if let Some((begins, ends)) = ends {
                within = begins < from + bytes && from < ends;
            } else if let (true, Some(flags)) = (within, line.strip_prefix("VmFlags:")) {
                found.push(flags.split(' ').any(|flag| flag == "dd"));
            }
        }
        found
    }

    #[test]
    #[cfg(not(miri))]
    fn core_dumps_leave_out_what_is_cached_unless_they_are_to_have_it() {
        let arena = Arena::new(16 << 20, 64 << 20).unwrap();
        let all = || left_out_of_dumps(arena.base.as_ptr() as usize, arena.bytes);
        let is_left_out = |found: Vec<bool>| !found.is_empty() && found.iter().all(|&left_out| left_out);
        assert!(is_left_out(all()));
        // Nor does what happens to memory change that.
        let spans: Vec<u32> = (0..100).map(|_| arena.take_span(1, Share::Index).unwrap()).collect();
        spans.into_iter().for_each(|number| arena.give_span(number));
        assert!(arena.set_limit_bytes(1 << 20));
        while arena.trim(1) {}
        assert!(is_left_out(all()));
        arena.show_in_core_dumps();
        let found = all();
        assert!(!found.is_empty() && !found.contains(&true), "{found:?}");
    }

    #[test]
    fn free_spans_give_their_memory_when_the_limit_falls_or_others_need_it() {
        let span = SPAN_BYTES as u64;
        let arena = Arena::new(16 * span, 64 * span).unwrap();
        let spans: Vec<u32> = (0..16).map(|_| arena.take_span(1, Share::Index).unwrap()).collect();
        for &number in &spans[4..] {
            arena.give_span(number);
        }
        let resident = || arena.resident.load(Ordering::Relaxed);
        assert_eq!(resident(), 16, "below the limit memory is kept");
        assert!(arena.set_limit_bytes(10 * span));
        assert!(arena.trim(2));
        assert_eq!(resident(), 14);
        assert!(!arena.trim(100));
        assert_eq!(resident(), 10);
        arena.charge(3 * span as i64);
        assert_eq!(resident(), 7);
        arena.charge(-3 * (span as i64));
        // What has memory goes out first, the lowest address before others.
        assert_eq!(arena.take_span(1, Share::Index), Some(spans[4]));
        let more: Vec<u32> = (0..5).map(|_| arena.take_span(1, Share::Index).unwrap()).collect();
        assert_eq!(more, spans[5..10]);
        assert_eq!(arena.take_span(1, Share::Index), None);
        assert_eq!(resident(), 10);
    }

    #[test]
    fn memory_is_made_ready_for_the_next_spans_within_the_limit() {
        let allowed = 3 * GROUP;
        let arena = Arena::new(u64::from(allowed) * SPAN_BYTES as u64, 64 << 20).unwrap();
        arena.is_made_ready_by(std::thread::current());
        let resident = || arena.resident.load(Ordering::Relaxed);
        let take = || arena.take_span(1, Share::Index).unwrap();
        assert_eq!(take(), 1);
        assert!(arena.make_ready());
        assert_eq!(resident(), GROUP - 1, "to the end of a huge page");
        assert!(arena.make_ready());
        assert_eq!(resident(), 2 * GROUP - 1);
        assert!(!arena.make_ready(), "enough is ready");
        let mut taken: Vec<u32> = (0..allowed - GROUP).map(|_| take()).collect();
        assert_eq!(taken, (2..=allowed - GROUP + 1).collect::<Vec<u32>>(), "in the order of addresses");
        assert!(arena.make_ready());
        assert_eq!(resident(), allowed - 1, "to the end of a huge page");
        assert!(!arena.make_ready(), "the limit allows no whole huge page more");
        // What has lost its memory has it again first, as much as the limit allows.
        assert!(arena.set_limit_bytes(GROUP as u64 * SPAN_BYTES as u64));
        taken.drain(..).for_each(|number| arena.give_span(number));
        while arena.trim(1) {}
        assert_eq!(resident(), GROUP);
        assert!(!arena.make_ready(), "the limit allows no more");
        assert!(arena.set_limit_bytes(u64::from(2 * GROUP) * SPAN_BYTES as u64));
        (1..GROUP).for_each(|_| _ = take());
        while arena.make_ready() {}
        assert_eq!((resident(), arena.spans_used()), (2 * GROUP, u64::from(GROUP)));
        arena.check(|_, _| {});
    }

    #[test]
    fn what_wants_much_memory_waits_while_the_thread_maps_some() {
        let arena = Arena::new(16 << 20, 64 << 20).unwrap();
        let take = || arena.take_span(1, Share::Index).unwrap();
        take();
        assert!(!arena.awaits_memory(), "there is no such thread");
        arena.is_made_ready_by(std::thread::current());
        take();
        assert!(arena.awaits_memory(), "it was woken");
        while arena.make_ready() {}
        assert!(!arena.awaits_memory());
        while !arena.awaits_memory() {
            take();
        }
        let ready = arena.resident.load(Ordering::Relaxed) - arena.used.load(Ordering::Relaxed);
        assert!(ready >= GROUP / 2, "{ready} are left to others");
        // Where the limit allows no more, nothing is mapped, and nothing waits for it.
        while arena.make_ready() {}
        assert!(arena.set_limit_bytes(u64::from(arena.resident.load(Ordering::Relaxed)) * SPAN_BYTES as u64));
        take();
        assert!(!arena.make_ready() && !arena.awaits_memory());
        while arena.take_span(1, Share::Index).is_some() {
            assert!(!arena.awaits_memory());
        }
    }

    #[test]
    fn the_heap_is_trimmed_by_the_thread_that_makes_memory_ready() {
        let arena = Arena::new(16 << 20, 64 << 20).unwrap();
        let waits = || arena.trims_heap.load(Ordering::Relaxed);
        assert!(!arena.hand_over_trim() && !waits(), "there is no such thread");
        arena.is_made_ready_by(std::thread::current());
        assert!(arena.hand_over_trim() && waits());
        assert!(arena.make_ready() && waits(), "memory that workers will want comes first");
        while arena.make_ready() {}
        assert!(!waits());
        // Also where enough is ready.
        assert!(arena.hand_over_trim());
        assert!(!arena.make_ready() && !waits());
    }

    #[test]
    fn what_is_ready_stays_so_where_somebody_sees_to_it() {
        for is_seen_to in [false, true] {
            let arena = Arena::new(16 << 20, 64 << 20).unwrap();
            if is_seen_to {
                arena.is_made_ready_by(std::thread::current());
            }
            let spans: Vec<u32> = (0..GROUP + 3).map(|_| arena.take_span(1, Share::Index).unwrap()).collect();
            spans.into_iter().for_each(|number| arena.give_span(number));
            // A period in which they were free throughout.
            arena.note_spare();
            arena.note_spare();
            let given = std::iter::from_fn(|| arena.give_spare().then_some(())).count();
            assert_eq!(given, if is_seen_to { 3 } else { GROUP as usize + 3 });
        }
    }

    #[test]
    fn what_is_left_of_collections_has_the_reserve_and_a_few_spans_more() {
        let arena = Arena::new(16 * SPAN_BYTES as u64, 16 * SPAN_BYTES as u64).unwrap();
        let taken = |take: &dyn Fn() -> Option<u32>| std::iter::from_fn(take).count();
        assert_eq!(taken(&|| arena.take_span(1, Share::Items)), 14);
        assert_eq!(taken(&|| arena.take_span(1, Share::Leftovers)), 2 + LEFTOVER_SPANS_MAX as usize);
        assert_eq!(arena.take_span(OWNER_INDEX, Share::Index), None);
        assert_eq!((arena.bytes_max(), arena.over_limit()), (16 * SPAN_BYTES as u64, LEFTOVER_SPANS_MAX));
    }

    #[test]
    fn limit_holds_and_the_reserve_is_the_indexs() {
        let arena = Arena::new(16 * SPAN_BYTES as u64, 64 * SPAN_BYTES as u64).unwrap();
        let mut taken = 0;
        while arena.take_span(1, Share::Items).is_some() {
            taken += 1;
        }
        assert_eq!(taken, 14);
        assert!(arena.take_span(OWNER_INDEX, Share::Index).is_some());
        assert!(arena.take_span(OWNER_INDEX, Share::Index).is_some());
        assert!(arena.take_span(OWNER_INDEX, Share::Index).is_none());
        assert!(arena.set_limit_bytes(17 * SPAN_BYTES as u64));
        assert!(arena.take_span(OWNER_INDEX, Share::Index).is_some());
        assert!(!arena.set_limit_bytes(65 * SPAN_BYTES as u64));
    }
}
