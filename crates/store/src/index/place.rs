//! A place: where the keys of one hash live, as the directory said at one moment.

use super::directory::{Directory, Entry, depth_of, pages_of};
use super::pages::{PAGE_BUCKETS, bucket, number_of};
use crate::bucket::{Bucket, TAG_BITS};
use crate::sync::atomic::Ordering;

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

/// Which is the other.
#[inline]
pub(super) fn other_of(tag: u64, buckets: usize) -> usize {
    let (home, other) = (home_of(tag, buckets), home_of(mixed(tag), buckets));
    if other != home { other } else { (home + 1) % buckets }
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

    /// True if keys of this hash are at home in the same bucket as those of `mine`, whose place it is.
    pub(crate) fn same_home(&self, mine: u64, hash: u64) -> bool {
        let depth = depth_of(self.meta);
        let n = self.buckets();
        let segment = |hash: u64| hash.checked_shr(64 - depth).unwrap_or(0);
        segment(hash) == segment(mine) && home_of(tag_of(hash, depth), n) == home_of(self.tag, n)
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
