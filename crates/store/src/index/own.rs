//! Buckets that a transaction holds: for each page of which it has some, a bit for each.

use super::pages::{PAGE_BUCKETS, bucket_by_number, number_of};
use crate::bucket::Bucket;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Pages for which room is kept from one transaction to the next: more than clients ask for at once.
const PAGES_KEPT: usize = 1024;

const _: () = assert!(PAGE_BUCKETS == u64::BITS as usize, "a bit for each bucket of a page");

/// Buckets of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Own {
    pages: HashMap<u32, u64, BuildHasherDefault<PageHasher>>,
    /// The one that was added last: the next key is often in it.
    last: Option<u64>,
}

/// Hashes page numbers by a multiplication: no client chooses them.
#[derive(Debug, Default)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("pages are numbers");
    }

    fn write_u32(&mut self, page: u32) {
        self.0 = u64::from(page).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        // Tables use the upper bits and the lower.
        self.0 ^ self.0 >> 32
    }
}

fn place_of(number: u64) -> (u32, u64) {
    ((number / PAGE_BUCKETS as u64) as u32, 1 << (number % PAGE_BUCKETS as u64))
}

impl Own {
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// How many there are.
    #[cfg(all(test, not(feature = "loom")))]
    pub(super) fn len(&self) -> usize {
        self.pages.values().map(|buckets| buckets.count_ones() as usize).sum()
    }

    /// The bucket with this number is one of them.
    pub(super) fn has(&self, number: u64) -> bool {
        let (page, bit) = place_of(number);
        self.pages.get(&page).is_some_and(|buckets| buckets & bit != 0)
    }

    /// This bucket, which may be any, is one of them; `base` is the arena's.
    pub(super) fn has_bucket(&self, base: *const u8, bucket: &Bucket) -> bool {
        let offset = std::ptr::from_ref(bucket).addr().wrapping_sub(base.addr());
        !self.is_empty() && self.has((offset / size_of::<Bucket>()) as u64)
    }

    /// It is the one that was added last.
    #[inline]
    pub(super) fn was_last(&self, number: u64) -> bool {
        self.last == Some(number)
    }

    #[inline]
    pub(super) fn add(&mut self, number: u64) {
        let (page, bit) = place_of(number);
        *self.pages.entry(page).or_insert(0) |= bit;
        self.last = Some(number);
    }

    /// Notes that a segment has become another: all buckets of its pages are held.
    pub(super) fn replace(&mut self, old: &[u32], new: &[u32]) {
        for page in old {
            self.pages.remove(page);
        }
        self.pages.extend(new.iter().map(|&page| (page, u64::MAX)));
        self.last = None;
    }

    /// Takes all of them out; `base` is the arena's.
    pub(super) fn take(&mut self, base: *const u8, mut visit: impl FnMut(&Bucket)) {
        self.last = None;
        for (page, mut buckets) in self.pages.drain() {
            while buckets != 0 {
                visit(bucket_by_number(base, number_of(page, buckets.trailing_zeros() as usize)));
                buckets &= buckets - 1;
            }
        }
        if self.pages.capacity() > 2 * PAGES_KEPT {
            self.pages.shrink_to(PAGES_KEPT);
        }
    }
}
