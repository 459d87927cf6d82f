//! How often a segment became another: who made a hint in its batch asks this one word, not the
//! directory, whether the bucket that it has locked is still its key's home.
//!
//! 1. A segment becomes another under the locks of all its buckets, old and new; the number is raised
//!    after the directory says so, and before the first of the locks is let go.
//! 2. A worker reads the number when its batch begins, then asks the directory, then locks.
//! 3. If the number is what it was, no segment has become another meanwhile: that would have held
//!    the lock, and who takes it afterwards sees the number.

use crate::sync::{AtomicU64, Ordering};

/// The number.
#[derive(Debug, Default)]
pub(crate) struct Changes(AtomicU64);

impl Changes {
    /// The number now.
    #[inline(always)]
    pub(crate) fn seen(&self) -> u64 {
        // Acquire: what the directory says afterwards is at least as new.
        self.0.load(Ordering::Acquire)
    }

    /// A segment is another now.
    pub(crate) fn raise(&self) {
        // Release: whoever sees the number sees the directory.
        self.0.fetch_add(1, Ordering::Release);
    }
}
