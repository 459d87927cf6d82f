//! Labels of leaves whose order is that of their places: what the keys of a list's inner nodes are.
//!
//! ```text
//! first leaf 0 │ … │ middle − stride │ middle │ middle + stride │ … │ last leaf        at the ends: a stride further
//! between two leaves: halfway; where no label is left there: the leaves about it get new ones, evenly
//! ```
//!
//! Elements are found by counts. Labels are for sweeps alone, which come to a node and look for the word that names it
//! (`own.rs`): they ascend, so that a node is found by its own, as one of a hash is.
//!
//! How many leaves get new labels at once follows from the room between those beside them: the children of one inner node
//! where that leaves 2^4 between two; those of the node above it where it leaves 2^16; else more. So a place where all
//! elements are put costs some ten leaves a cut, spread over many.

use super::super::change::Declined;
use super::edit::Child;
use super::places::Place;
use super::{CHILDREN_MAX, Edit, Hand, Inner, Path, location_of};
use crate::Store;

/// Labels between two leaves at an end, as a power of two. Tests have few, so that they are used up.
const STRIDE_BITS: u32 = if cfg!(any(test, feature = "schedule")) { 12 } else { 24 };
const STRIDE: u64 = 1 << STRIDE_BITS;
/// Labels are below this.
const END: u64 = if cfg!(any(test, feature = "schedule")) { 1 << 24 } else { u64::MAX };
/// Where the second leaf of a tree is.
const MIDDLE: u64 = END / 2 + 1;

/// Labels for some leaves, the first of which has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labels {
    low: u64,
    base: u64,
    step: u64,
}

impl Labels {
    /// For `count` leaves from the label `low` up to `high`, or the end, with at least `least` from one to the next.
    pub(super) fn between(low: u64, high: Option<u64>, count: usize, least: u64) -> Option<Labels> {
        let count = count as u64;
        let strides = count.saturating_mul(STRIDE);
        let (base, step) = match (low, high) {
            (0, None) if strides < MIDDLE => (MIDDLE - count.div_ceil(2) * STRIDE, STRIDE),
            (0, Some(high)) if strides < high => (high - strides, STRIDE),
            (low, None) if low > 0 && strides < END - low => (low, STRIDE),
            (low, high) => (low, (high.unwrap_or(END) - low) / count),
        };
        (step >= least).then_some(Labels { low, base, step })
    }

    /// The label of the i-th of them.
    pub(super) fn at(&self, i: usize) -> u64 {
        if i == 0 { self.low } else { self.base + i as u64 * self.step }
    }
}

/// What is left between two labels at least, when the leaves of a subtree of this level get new ones.
fn step_min(level: usize) -> u64 {
    1 << match level {
        1 => STRIDE_BITS / 6,
        2 => STRIDE_BITS / 3 * 2,
        _ => STRIDE_BITS / 6 * 5,
    }
}

impl Edit {
    /// There are `count` labels from that of the leaf at a place on, before that of the next; so the leaves about it may
    /// have got others. The way to it.
    pub(super) fn make_labels(
        &mut self,
        hand: &mut Hand<'_>,
        place: Place,
        count: usize,
    ) -> Result<Path, Declined> {
        let mut path = place.path;
        loop {
            let arena = &hand.store.arena;
            let depth = self.height - 1;
            let low = path.low(arena, depth, path.steps[depth].1);
            if Labels::between(low, path.high(arena, depth), count, 1).is_some() {
                return Ok(path);
            }
            self.relabel(hand, &path, count as u64)?;
            path = self.place_of(hand.store, place.start).path;
        }
    }

    /// Gives the leaves about a path new labels: those of the smallest subtree that has room for them.
    fn relabel(&mut self, hand: &mut Hand<'_>, path: &Path, least: u64) -> Result<(), Declined> {
        for level in 1..=self.height {
            let depth = self.height - level;
            let (arena, top) = (&hand.store.arena, path.steps[depth].0);
            let low = path.low(arena, depth, 0);
            let high = depth.checked_sub(1).and_then(|above| path.high(arena, above));
            // All of a tree have a label in any case.
            let least = if depth == 0 { 1 } else { step_min(level).max(least) };
            let leaves = leaves_below(hand.store, top, level);
            let Some(labels) = Labels::between(low, high, leaves, least) else { continue };
            self.unmarked |= low == 0;
            let (child, _) = self.relabel_below(hand, (top, level), &labels, 0)?;
            if depth == 0 {
                self.top = location_of(child.word);
                return Ok(());
            }
            let i = path.steps[depth - 1].1;
            self.news.push(child);
            return self.climb(hand, path, depth - 1, i..i + 1);
        }
        Err(Declined::TooLarge)
    }

    /// Makes a node anew and all below it, whose first leaf is the nth that gets a label; and which is the next.
    fn relabel_below(
        &mut self,
        hand: &mut Hand<'_>,
        (location, level): (u64, usize),
        labels: &Labels,
        nth: usize,
    ) -> Result<(Child, usize), Declined> {
        if level == 0 {
            let leaf = self.copy_leaf(hand, location, labels.at(nth))?;
            self.drop_node(hand, location);
            return Ok((leaf, nth + 1));
        }
        // SAFETY: an inner node of this edit, or of a tree that is as it was.
        let inner = unsafe { Inner::at(&hand.store.arena, location) };
        let (mut children, mut next) = ([Child::NONE; CHILDREN_MAX], nth);
        for (i, child) in children[..inner.len()].iter_mut().enumerate() {
            (*child, next) = self.relabel_below(hand, (inner.location(i), level - 1), labels, next)?;
        }
        let len = inner.len();
        self.drop_node(hand, location);
        self.write_inner(hand, level, &children[..len])?;
        Ok((self.news.pop().expect("it was just made"), next))
    }
}

/// Leaves below an inner node of a level.
fn leaves_below(store: &Store, location: u64, level: usize) -> usize {
    // SAFETY: an inner node of an edit, or of a tree that is as it was.
    let inner = unsafe { Inner::at(&store.arena, location) };
    if level == 1 {
        return inner.len();
    }
    (0..inner.len()).map(|i| leaves_below(store, inner.location(i), level - 1)).sum()
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn labels_ascend_between_their_ends() {
        let ends = [(0, None), (0, Some(1)), (0, Some(5)), (0, Some(MIDDLE)), (7, Some(8)), (7, Some(30))];
        let more = [
            (MIDDLE, None),
            (END - 3, None),
            (END - 3 * STRIDE, None),
            (3, Some(END - 1)),
            (0, Some(STRIDE)),
        ];
        for (low, high) in ends.into_iter().chain(more) {
            for count in [1, 2, 3, 4, 60, 300] {
                let Some(labels) = Labels::between(low, high, count, 1) else {
                    assert!(high.unwrap_or(END) - low < count as u64, "{low} {high:?} {count}");
                    continue;
                };
                let all: Vec<u64> = (0..count).map(|i| labels.at(i)).collect();
                assert_eq!(all[0], low);
                assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{low} {high:?} {all:?}");
                assert!(all[count - 1] < high.unwrap_or(END).max(low + 1), "{low} {high:?} {all:?}");
            }
        }
    }
}
