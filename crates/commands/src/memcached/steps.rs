//! A step of a long reply: how many items it looks at between two looks at the output, and its result.

use crate::core::work::KEY_NS;

/// Items looked at between two looks at the output.
pub(super) const ITEMS_PER_WALK: usize = 64;
/// Nanoseconds to look at an item and to write its line.
pub(super) const ITEM_NS: u64 = 2 * KEY_NS;

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The dump is complete.
    Done,
    /// The output is full.
    Full,
    /// There is more, and it was a turn's work.
    More,
}
