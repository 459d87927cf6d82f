//! Labels of leaves: the keys of a list's inner nodes, in the order of the leaves' places.
//!
//! ```text
//! first leaf 0 │ … │ middle − stride │ middle │ middle + stride │ … │ last leaf        at the ends: a stride further
//! between two leaves: halfway; where no label is left there: the leaves about it get new ones, evenly
//! ```
//!
//! Elements are found by counts. Labels are for sweeps alone, which come to a node and look for the word that names it
//! (`own.rs`): they ascend, so that a node is found by its own, as one of a hash is.
//!
//! Parts of an element that lies apart (`apart.rs`) have labels behind each other, since nothing comes between them. So
//! it is *runs* that are spread: a leaf that has elements, or the parts of one.
//!
//! A leaf that gets another label is not copied: its new one waits in [`Edit::relabeled`], and is written under the lock under
//! which the new root is published, where sweeps alone look at labels. But the leaf of an element that lies
//! apart says its own label among its bytes, and is copied.
//!
//! How many leaves get new labels at once follows from the room between those beside them: the children of one inner node
//! where that leaves 2^4 between two; those of the node above it where it leaves 2^16; else more. So a place where all
//! elements are put costs some ten leaves a cut, spread over many.

use super::super::change::Declined;
use super::edit::Child;
use super::places::FoundLeaf;
use super::{CHILDREN_MAX, Edit, EditContext, Inner, Path, elements_of, leaf_at, location_of, node_word};
use crate::Store;
use crate::arena::Arena;
use crate::read::prefetch;
use crate::sync::atomic::Ordering;

/// Labels between two leaves at an end, as a power of two. Tests have few, so that they are used up.
const STRIDE_BITS: u32 = if cfg!(any(test, feature = "schedule")) { 12 } else { 24 };
const STRIDE: u64 = 1 << STRIDE_BITS;
/// Labels are below this.
const END: u64 = if cfg!(any(test, feature = "schedule")) { 1 << 24 } else { u64::MAX };
/// Where the second leaf of a tree is.
const MIDDLE: u64 = END / 2 + 1;

/// Labels for some runs of leaves, the first of which has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labels {
    low: u64,
    base: u64,
    step: u64,
}

impl Labels {
    /// For `count` runs from the label `low` up to `high`, or the end, with at least `least` from one to the next.
    pub(super) fn between(low: u64, high: Option<u64>, count: usize, least: u64) -> Option<Labels> {
        let (count, stride) = (count as u64, STRIDE.max(least));
        let strides = count.saturating_mul(stride);
        let (base, step) = match (low, high) {
            (0, None) if strides < MIDDLE => (MIDDLE - count.div_ceil(2) * stride, stride),
            (0, Some(high)) if strides < high => (high - strides, stride),
            (low, None) if low > 0 && strides < END - low => (low, stride),
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
    /// Sees to it that there are labels for some runs, `(count, longest)`, from that of a leaf on, before that of the next
    /// one: leaves about it may get other labels for that. Returns the way to the leaf.
    pub(super) fn make_labels(
        &mut self,
        cx: &mut EditContext<'_>,
        leaf: FoundLeaf,
        runs: (usize, usize),
    ) -> Result<Path, Declined> {
        self.make_labels_at(cx, leaf.path, runs, |edit, store| edit.place_of(store, leaf.start).path)
    }

    /// As [`Edit::make_labels`], for the leaf that `find` finds the way to, which is `path` as long
    /// as no leaf gets another label.
    pub(super) fn make_labels_at(
        &mut self,
        cx: &mut EditContext<'_>,
        mut path: Path,
        (count, longest): (usize, usize),
        find: impl Fn(&Edit, &Store) -> Path,
    ) -> Result<Path, Declined> {
        loop {
            let arena = &cx.store.arena;
            let depth = self.height - 1;
            let low = path.low(arena, depth, path.steps[depth].1);
            if Labels::between(low, path.high(arena, depth), count, longest as u64).is_some() {
                return Ok(path);
            }
            self.relabel(cx, &path, (count * longest) as u64)?;
            path = find(self, cx.store);
        }
    }

    /// Gives the leaves about a path new labels, with room for `least` behind each: the leaves of
    /// the smallest subtree that has room for them.
    fn relabel(&mut self, cx: &mut EditContext<'_>, path: &Path, least: u64) -> Result<(), Declined> {
        for level in 1..=self.height {
            let depth = self.height - level;
            let (arena, top) = (&cx.store.arena, path.steps[depth].0);
            let low = path.low(arena, depth, 0);
            let high = depth.checked_sub(1).and_then(|above| path.high(arena, above));
            let mut runs = Runs::default();
            runs.pass(cx.store, top, level);
            let least = least + runs.longest;
            // The leaves of a whole tree get labels in any case.
            let least = if depth == 0 { least } else { step_min(level).max(least) };
            let Some(labels) = Labels::between(low, high, runs.count, least) else { continue };
            self.unmarked |= low == 0;
            let child = self.relabel_below(cx, (top, level), &mut Labeller::new(labels))?;
            if depth == 0 {
                self.top = location_of(child.word);
                return Ok(());
            }
            let i = path.steps[depth - 1].1;
            self.news.push(child);
            return self.climb(cx, path, depth - 1, i..i + 1);
        }
        Err(Declined::TooLarge)
    }

    /// Makes a node anew, and all inner nodes below it, whose leaves get the next labels.
    fn relabel_below(
        &mut self,
        cx: &mut EditContext<'_>,
        (location, level): (u64, usize),
        labeller: &mut Labeller,
    ) -> Result<Child, Declined> {
        // SAFETY: an inner node of this edit, or of a tree that is as it was.
        let inner = unsafe { Inner::at(&cx.store.arena, location) };
        let mut children = [Child::NONE; CHILDREN_MAX];
        for (i, child) in children[..inner.len()].iter_mut().enumerate() {
            let word = inner.word(i);
            *child = if level > 1 {
                self.relabel_below(cx, (location_of(word), level - 1), labeller)?
            } else {
                self.relabel_leaf(cx, word, labeller.next(elements_of(word)))?
            };
        }
        let len = inner.len();
        self.drop_node(cx, location);
        self.write_inner(cx, level, &children[..len])?;
        Ok(self.news.pop().expect("it was just made"))
    }

    /// Gives the leaf that a word names another label.
    pub(super) fn relabel_leaf(
        &mut self,
        cx: &mut EditContext<'_>,
        word: u64,
        label: u64,
    ) -> Result<Child, Declined> {
        let (arena, location) = (&cx.store.arena, location_of(word));
        // SAFETY: a leaf of this edit, or of a tree that is as it was.
        if elements_of(word) == 1 && unsafe { leaf_at(arena, location) }.is_apart() {
            let leaf = self.copy_leaf(cx, location, label)?;
            self.drop_node(cx, location);
            return Ok(leaf);
        }
        if self.is_fresh(cx.store, location) {
            // SAFETY: as above, and no other thread has it yet.
            unsafe { node_word(arena, location, 8) }.store(label, Ordering::Relaxed);
        } else {
            self.relabel_later(cx.store, location, label);
        }
        Ok(Child::without_times(label, word))
    }
}

/// Writes the new labels of a list's leaves where they lie. The caller holds the lock of the list's home, under which the new
/// root is published that names them by these: sweeps, which read labels, see both or none. A leaf that the list does not
/// have any more waits for the end of this epoch, and no sweep looks at its label.
pub(crate) fn relabel(arena: &Arena, leaves: &mut Vec<(u64, u64)>) {
    for (location, label) in leaves.drain(..) {
        // SAFETY: a leaf of the tree that the new root follows, which has not been changed since: reachable in this epoch.
        unsafe { node_word(arena, location, 8) }.store(label, Ordering::Relaxed);
    }
}

/// Starts loading the words where labels will be written, so that less is waited for memory under the lock.
pub(super) fn prefetch_labels(arena: &Arena, leaves: &[(u64, u64)]) {
    leaves.iter().for_each(|(location, _)| prefetch(arena.near(*location)));
}

/// Runs of leaves: see above.
#[derive(Debug, Default)]
struct Runs {
    count: usize,
    longest: u64,
    /// Leaves of the last one that have no elements.
    last: u64,
}

impl Runs {
    /// Adds those below an inner node of a level.
    fn pass(&mut self, store: &Store, location: u64, level: usize) {
        // SAFETY: an inner node of an edit, or of a tree that is as it was.
        let inner = unsafe { Inner::at(&store.arena, location) };
        for i in 0..inner.len() {
            let word = inner.word(i);
            if level > 1 {
                self.pass(store, location_of(word), level - 1);
                continue;
            }
            let part = elements_of(word) == 0;
            self.count += usize::from(!part || self.last == 0);
            self.last = if part { self.last + 1 } else { 0 };
            self.longest = self.longest.max(self.last);
        }
    }
}

/// Labels for leaves, one after the other.
struct Labeller {
    labels: Labels,
    runs: usize,
    /// The label of the last leaf, if that has a part.
    part: Option<u64>,
}

impl Labeller {
    fn new(labels: Labels) -> Labeller {
        Labeller { labels, runs: 0, part: None }
    }

    /// The label of the next leaf, which has so many elements.
    fn next(&mut self, elements: usize) -> u64 {
        let label = match self.part {
            Some(last) if elements == 0 => last + 1,
            _ => {
                self.runs += 1;
                self.labels.at(self.runs - 1)
            }
        };
        self.part = (elements == 0).then_some(label);
        label
    }
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
                for least in [1, 25, STRIDE - 1, STRIDE, STRIDE + 1, 5 * STRIDE] {
                    let end = high.unwrap_or(END);
                    let Some(labels) = Labels::between(low, high, count, least) else {
                        assert!((end - low) / (count as u64) < least, "{low} {high:?} {count} {least}");
                        continue;
                    };
                    let all: Vec<u64> = (0..count).map(|i| labels.at(i)).collect();
                    assert_eq!(all[0], low);
                    let behind = all.iter().skip(1).copied().chain([end]);
                    assert!(
                        all.iter().zip(behind).all(|(at, next)| at + least <= next),
                        "{low} {high:?} {all:?}"
                    );
                }
            }
        }
    }
}
