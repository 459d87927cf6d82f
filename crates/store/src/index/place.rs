//! A place: where the keys of one hash live, as the directory said at one moment.

use super::directory::{Directory, Entry, depth_of, pages_of};
use super::pages::{PAGE_BUCKETS, bucket, number_of};
use crate::bucket::{Bucket, TAG_BITS};
use crate::sync::atomic::Ordering;
use std::ops::{Range, RangeInclusive};

/// The bits of a hash below the `depth` that its segment has: tag and position.
#[inline]
pub(super) fn tag_of(hash: u64, depth: u32) -> u64 {
    hash << depth >> (64 - TAG_BITS)
}

/// The tag's bits mixed, for the position of the other bucket: low bits decide.
#[inline]
fn mixed(tag: u64) -> u64 {
    (tag.wrapping_mul(0x9e3d) ^ tag >> 9).wrapping_mul(0x6a0b) & ((1 << TAG_BITS) - 1)
}

/// Which of so many buckets is home.
#[inline]
pub(super) fn home_of(tag: u64, buckets: usize) -> usize {
    ((tag * buckets as u64) >> TAG_BITS) as usize
}

/// The lowest tag that is at home in bucket `i`; `i` may be the number of buckets.
#[inline]
pub(super) fn first_tag_of(i: usize, buckets: usize) -> u64 {
    ((i as u64) << TAG_BITS).div_ceil(buckets as u64)
}

/// Which of so many buckets is the other.
#[inline]
pub(super) fn other_of(tag: u64, buckets: usize) -> usize {
    let (home, other) = (home_of(tag, buckets), home_of(mixed(tag), buckets));
    if other != home { other } else { (home + 1) % buckets }
}

/// The hashes of a segment, dealt out to so many buckets in their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The lowest.
    first: u64,
    depth: u32,
    pub(super) buckets: usize,
}

impl Extent {
    /// The segment of this depth that `hash` is in.
    pub(super) fn new(hash: u64, depth: u32, buckets: usize) -> Extent {
        let below = u64::MAX.checked_shr(depth).unwrap_or(0);
        Extent { first: hash & !below, depth, buckets }
    }

    /// The hashes whose keys are at home in bucket `i`.
    pub(super) fn hashes(self, i: usize) -> RangeInclusive<u64> {
        let first_tag = |i: usize| ((i as u64) << TAG_BITS).div_ceil(self.buckets as u64);
        let lowest = |tag: u64| self.first | tag << (64 - TAG_BITS) >> self.depth;
        lowest(first_tag(i))..=lowest(first_tag(i + 1) - 1) | u64::MAX >> (TAG_BITS + self.depth)
    }

    /// The buckets in which keys of some of these hashes are at home.
    pub(super) fn homes(self, hashes: &RangeInclusive<u64>) -> Range<usize> {
        let last = self.first | u64::MAX.checked_shr(self.depth).unwrap_or(0);
        let (from, to) = (self.first.max(*hashes.start()), last.min(*hashes.end()));
        let home = |hash: u64| home_of(tag_of(hash, self.depth), self.buckets);
        if from > to { 0..0 } else { home(from)..home(to) + 1 }
    }
}

/// Where the keys of one hash live, as the directory said at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(super) directory: &'a Directory,
    pub(super) entry: &'a Entry,
    pub(super) meta: u64,
    pub(super) base: *const u8,
    pub(crate) tag: u64,
}

impl<'a> Place<'a> {
    pub(super) fn buckets(&self) -> usize {
        pages_of(self.meta) * PAGE_BUCKETS
    }

    pub(super) fn bucket(&self, i: usize) -> &'a Bucket {
        bucket(self.base, self.entry.pages[i / PAGE_BUCKETS].load(Ordering::Relaxed), i % PAGE_BUCKETS)
    }

    #[inline]
    pub(crate) fn home(&self) -> &'a Bucket {
        self.bucket(home_of(self.tag, self.buckets()))
    }

    /// What this place was found by; changes when the segment does.
    #[inline]
    pub(crate) fn meta(&self) -> u64 {
        self.meta
    }

    /// The hashes whose keys are at home in the home bucket; `hash` is the one whose place this is.
    pub(crate) fn home_hashes(&self, hash: u64) -> RangeInclusive<u64> {
        let extent = Extent::new(hash, depth_of(self.meta), self.buckets());
        extent.hashes(home_of(self.tag, self.buckets()))
    }

    /// The number of the home bucket, for [`super::Index::release`].
    pub(super) fn home_number(&self) -> u64 {
        let i = home_of(self.tag, self.buckets());
        let page = self.entry.pages[i / PAGE_BUCKETS].load(Ordering::Relaxed);
        number_of(page, i % PAGE_BUCKETS)
    }

    #[inline]
    pub(crate) fn other(&self) -> &'a Bucket {
        self.bucket(other_of(self.tag, self.buckets()))
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn buckets_share_the_hashes_of_their_segment_without_a_gap() {
        for depth in [0, 1, 6, 20] {
            for pages in [1, 3, 8, 13, 14] {
                let (hash, buckets) = (0x9e37_79b9_7f4a_7c15, pages * PAGE_BUCKETS);
                let extent = Extent::new(hash, depth, buckets);
                let mut next = extent.first;
                for i in 0..buckets {
                    let hashes = extent.hashes(i);
                    assert_eq!((*hashes.start(), extent.homes(&hashes)), (next, i..i + 1));
                    assert_eq!(hashes.start() >> 58, hashes.end() >> 58, "none is in two shards of a table");
                    next = hashes.end().wrapping_add(1);
                }
                let last = extent.first | u64::MAX >> depth;
                assert_eq!(next, last.wrapping_add(1));
                assert_eq!(extent.homes(&(0..=u64::MAX)), 0..buckets);
                assert!(extent.first == 0 || extent.homes(&(0..=extent.first - 1)).is_empty());
                assert!(last == u64::MAX || extent.homes(&(last + 1..=u64::MAX)).is_empty());
            }
        }
    }
}
