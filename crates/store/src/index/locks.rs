//! Locks: buckets that one thread has locked together, to rebuild, clean or walk a segment.
//!
//! They go when this goes, by whatever way the work is left, and each with the control word that was set for
//! it; one for which none was set is left as it was found.

use super::Items;
use super::own::Own;
use super::place::Extent;
use crate::bucket::{Bucket, Control};
use crate::flush::flushes_since;
use std::ops::RangeInclusive;

/// Locked buckets.
pub(super) struct Locks<'b, 'p> {
    buckets: &'b [&'p Bucket],
    /// The control words that the buckets locked so far are unlocked with.
    controls: Vec<Control>,
}

impl<'b, 'p> Locks<'b, 'p> {
    /// Locks buckets, one after another; none if one of them is in a transaction that is not the caller's own,
    /// which has the buckets `own`.
    pub(super) fn take(base: *const u8, buckets: &'b [&'p Bucket], own: &Own) -> Option<Locks<'b, 'p>> {
        let mut locks = Locks { buckets, controls: Vec::with_capacity(buckets.len()) };
        for bucket in buckets {
            let control =
                bucket.lock_open().or_else(|| own.has_bucket(base, bucket).then(|| bucket.lock_beside()))?;
            locks.controls.push(control);
        }
        Some(locks)
    }

    /// The stamp that the buckets get, of which the first `old` were in use. It is read when all of them are locked:
    /// one that was read before may be older than theirs by now, and what was written since would be taken for
    /// flushed.
    pub(super) fn stamp(&self, old: usize, items: &dyn Items) -> u8 {
        let stamp = items.stamp();
        debug_assert!(self.none_is_later(old, stamp));
        stamp
    }

    /// None of the first `old` buckets has a later stamp than this.
    pub(super) fn none_is_later(&self, old: usize, stamp: u8) -> bool {
        self.controls[..old].iter().all(|control| flushes_since(stamp, control.stamp()) == 0)
    }

    /// The control words that the buckets are unlocked with.
    pub(super) fn controls(&self) -> &[Control] {
        &self.controls
    }

    /// The hashes of those that are watched among the buckets of a segment, the first of which is bucket `first`.
    pub(super) fn watched(&self, extent: Extent, first: usize) -> impl Iterator<Item = RangeInclusive<u64>> {
        let watched = move |i: &usize| self.controls[first + i].watched();
        (0..extent.buckets).filter(watched).map(move |i| extent.hashes(i))
    }

    /// Marks buckets of a segment, the first of which is bucket `first`, as watched if a key of theirs is: the watched keys are
    /// among those with the hashes `watched`.
    pub(super) fn watch(
        &mut self,
        watched: &[RangeInclusive<u64>],
        extent: Extent,
        first: usize,
        items: &dyn Items,
    ) {
        for i in watched.iter().flat_map(|hashes| extent.homes(hashes)) {
            if items.watched(extent.hashes(i)) {
                self.set(first + i, self.controls[first + i].with_watched());
            }
        }
    }

    /// Sets the control word that bucket `i` is unlocked with.
    pub(super) fn set(&mut self, i: usize, control: Control) {
        self.controls[i] = control;
    }
}

impl Drop for Locks<'_, '_> {
    fn drop(&mut self) {
        for (bucket, &control) in self.buckets.iter().zip(&self.controls) {
            bucket.unlock(control);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn what_is_locked_is_let_go_with_what_was_set_and_at_once_if_a_transaction_is_in_the_way() {
        let new: [Bucket; 4] = std::array::from_fn(|_| Bucket::new());
        let buckets: Vec<&Bucket> = new.iter().collect();
        let none = std::ptr::null();
        let mut locks = Locks::take(none, &buckets, &Own::default()).expect("all are free");
        assert!(new.iter().all(|bucket| bucket.control().busy()));
        locks.set(2, locks.controls()[2].with_transaction());
        drop(locks);
        assert_eq!([0, 1, 2, 3].map(|i| new[i].control().busy()), [false, false, true, false]);
        assert!(Locks::take(none, &buckets, &Own::default()).is_none());
        assert_eq!([0, 1, 2, 3].map(|i| new[i].control().busy()), [false, false, true, false]);
    }
}
