//! Pages of the index: 64 buckets each, numbered through the arena, and where they come from.
//!
//! A page is in use, free, or retired: out of use, but batches may still look at it. Spans whose pages
//! are all free go back to the arena (`shrink.rs`).

use super::directory::Directory;
use crate::arena::{Arena, OWNER_INDEX, Share, unpoison};
use crate::bucket::{Bucket, Control, SLOTS, Slot};
use crate::class::SPAN_BYTES;
use std::collections::{BTreeSet, VecDeque};

/// Bytes of an index page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Buckets of a page.
pub(super) const PAGE_BUCKETS: usize = PAGE_BYTES / size_of::<Bucket>();
/// Pages of a span.
pub(super) const SPAN_PAGES: u32 = (SPAN_BYTES / PAGE_BYTES) as u32;

/// The pages, behind the growth lock.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// The lowest goes out first, so that high spans come free when the index shrinks.
    pub(super) pages_free: BTreeSet<u32>,
    /// Pages out of use, with the epoch since when.
    pub(super) pages_retired: VecDeque<(u64, Vec<u32>)>,
    pub(super) pages_used: u64,
    /// Directories out of use, with the epoch since when: places of batches refer to them.
    pub(super) retired: Vec<(u64, Box<Directory>)>,
}

impl Growth {
    /// A free page, perhaps of a new span.
    pub(super) fn take_page(&mut self, arena: &Arena) -> Option<u32> {
        if self.pages_free.is_empty() {
            let span = arena.take_span(OWNER_INDEX, Share::Index)?;
            unpoison(arena.at(Arena::location_of(span)).as_ptr(), SPAN_BYTES);
            self.pages_free.extend((0..SPAN_PAGES).map(|i| span * SPAN_PAGES + i));
        }
        self.pages_used += 1;
        self.pages_free.pop_first()
    }

    /// Takes back pages that no thread has seen.
    pub(super) fn give_pages(&mut self, pages: &[u32]) {
        self.pages_used -= pages.len() as u64;
        self.pages_free.extend(pages);
    }
}

/// Bucket `i` of a page; `base` is the arena's.
#[inline]
pub(super) fn bucket<'a>(base: *const u8, page: u32, i: usize) -> &'a Bucket {
    debug_assert!(page != 0 && i < PAGE_BUCKETS);
    // SAFETY: 1. Page numbers in entries name pages of spans that the index owns, inside the arena,
    // for as long as the arena lives. 2. All zero is a valid bucket. 3. Buckets are atomics, only
    // accessed by reference. The arena outlives every `Place`: both belong to the store.
    unsafe { &*base.add(page as usize * PAGE_BYTES).cast::<Bucket>().add(i) }
}

/// A bucket's number, the same for as long as its page is in use.
pub(super) fn number_of(page: u32, i: usize) -> u64 {
    u64::from(page) * PAGE_BUCKETS as u64 + i as u64
}

pub(super) fn bucket_by_number<'a>(base: *const u8, number: u64) -> &'a Bucket {
    bucket(base, (number / PAGE_BUCKETS as u64) as u32, number as usize % PAGE_BUCKETS)
}

/// Makes all buckets of a page empty and unlocked.
pub(super) fn clear_page(arena: &Arena, page: u32) {
    let base = arena.at(0).as_ptr().cast_const();
    for i in 0..PAGE_BUCKETS {
        let bucket = bucket(base, page, i);
        (0..SLOTS).for_each(|i| bucket.replace(i, Slot::EMPTY));
        bucket.unlock(Control::new(0, 0));
    }
}
