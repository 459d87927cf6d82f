//! Requests that are read ahead together: their items are on the way from memory before the first is executed.

use arrayvec::ArrayVec;
use larder_store::{Guard, Hint, Key};

/// Most keys of a batch. Measured, 16 cost 15 % more and 64 gain nothing.
pub(crate) const BATCH_KEYS: usize = 32;

/// Starts to load the items of a batch. A single one is about to be read anyway.
#[inline(always)]
pub(crate) fn prefetch_items<'w, T>(
    guard: &Guard<'w>,
    batch: &mut ArrayVec<T, BATCH_KEYS>,
    ahead: impl Fn(&mut T) -> (&Key<'_>, &mut Hint<'w>),
) {
    if batch.len() == 1 {
        return;
    }
    // A bit for each key whose item is not where most are.
    let mut away = 0u64;
    const { assert!(BATCH_KEYS <= u64::BITS as usize) };
    for (i, staged) in batch.iter_mut().enumerate() {
        let (key, hint) = ahead(staged);
        away |= u64::from(guard.prefetch_item(key, hint)) << i;
    }
    while away != 0 {
        let (key, hint) = ahead(&mut batch[away.trailing_zeros() as usize]);
        guard.prefetch_again(key, hint);
        away &= away - 1;
    }
}
