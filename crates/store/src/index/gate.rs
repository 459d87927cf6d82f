//! The gate: the one word that a bucket's control word is compared with before what is in the bucket is believed.
//!
//! ```text
//! gate     | 63 … 20 rebuildings | 19 … 12 flush stamp | 11 … 0 zero |
//! control  | 63 … 20 writes      | 19 … 12 flush stamp | …           |
//! ```
//!
//! - **flush stamp**: a bucket with another has to be cleaned first.
//! - **rebuildings**: how often a segment became another. A hint holds what was its key's home bucket when the
//!   hint was made; this number says whether it still is, and the directory need not be asked.
//!
//! 1. A segment becomes another under the locks of all its buckets, old and new. The number is raised after the
//!    directory says so, and before the first of the locks is released.
//! 2. A batch reads the number when it begins ([`Layout`]); its hints are made later, from the directory.
//! 3. A reader or writer with a hint takes the two numbers' difference into the comparison: it fails as soon as any
//!    segment has become another. If it holds for a writer, the bucket that is locked is its key's home. If it
//!    holds for a reader that has seen something that was written after a rebuilding, there was none since its
//!    batch began: the bucket whose transaction bit it looks at is its key's home.

use crate::bucket::Control;
use crate::sync::{AtomicU64, Ordering};

/// One flush. Every 256th carries over and counts as a rebuilding too, which costs the hints of that moment.
const FLUSH: u64 = 1 << 12;
/// One rebuilding.
const REBUILDING: u64 = 1 << 20;

/// The word.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicU64);

/// The rebuildings when a batch began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout(u64);

impl Gate {
    /// The stamp that clean buckets carry.
    #[inline]
    pub(crate) fn stamp(&self) -> u8 {
        // Acquire: what the stamp's flush concerns is seen with it.
        Control(self.0.load(Ordering::Acquire)).stamp()
    }

    /// What a control word that was found by the directory has to say: for [`Control::passes`].
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        Control::gate(self.stamp())
    }

    /// What a control word has to say that was found by a hint of a batch that began with `layout`; no control
    /// word does if a segment became another since.
    #[inline(always)]
    pub(crate) fn since(&self, layout: Layout) -> u64 {
        self.0.load(Ordering::Acquire) ^ layout.0
    }

    /// The rebuildings until now.
    #[inline(always)]
    pub(crate) fn layout(&self) -> Layout {
        // Acquire: what the directory says afterwards is at least as new.
        Layout(self.0.load(Ordering::Acquire) & !(REBUILDING - 1))
    }

    /// Notes that a segment is another now.
    pub(crate) fn raise(&self) {
        // Release: a thread that sees the number sees the directory.
        self.0.fetch_add(REBUILDING, Ordering::Release);
    }

    /// Raises the stamp for a flush, whose scope was noted before. Flushes come one after another.
    pub(crate) fn flush(&self) {
        // Release: a thread that sees the stamp sees its scope.
        self.0.fetch_add(FLUSH, Ordering::Release);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn no_control_word_passes_for_a_hint_from_before_a_rebuilding() {
        let gate = Gate::default();
        let words = |stamp: u8| [0, 1, 2, 1 << 20, 1 << 31].map(|writes| Control::new(writes, stamp));
        for flushes in 0..600u64 {
            let layout = gate.layout();
            for control in words(flushes as u8) {
                assert!(control.passes(gate.now()) && control.passes(gate.since(layout)));
            }
            gate.raise();
            for control in words(flushes as u8) {
                assert!(control.passes(gate.now()) && !control.passes(gate.since(layout)));
                assert!(!control.passes_once_more(gate.since(layout)));
            }
            let layout = gate.layout();
            gate.flush();
            for control in words(flushes as u8) {
                assert!(!control.passes(gate.now()) && !control.passes(gate.since(layout)));
            }
            assert_eq!(gate.stamp(), (flushes + 1) as u8);
        }
    }
}
