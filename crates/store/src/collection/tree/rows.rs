//! A stream in a tree: rows in their order.
//!
//! Keys are words of rows' keys ([`RowKey::word`]), and several rows may have the same word. Where several children have the
//! key that is looked for, the first rows below them say which of them goes on.

use super::super::build::Builder;
use super::super::change::Declined;
use super::edit::LEAF_BYTES_JOINED;
use super::places::Growth;
use super::ranked::first_leaf_below;
use super::{ELEMENTS_MAX, Edit, EditContext, HEIGHT_MAX, Inner, LEAF_BYTES, Path, Tree};
use crate::Store;
use crate::arena::Arena;
use crate::collection::Type;
use crate::collection::stream::rows::{Op, Row, RowKey, Rows, first_key, seek};

/// A leaf that rows are put into is cut when it is longer than so many bytes.
const MERGED_BYTES: usize = 16 * LEAF_BYTES;

/// Which child of an inner node of a level has a row, or would have it.
///
/// # Safety
/// The node is one of a stream's tree, of this epoch.
pub(super) unsafe fn child_with_row(
    arena: &Arena,
    inner: &Inner<'_>,
    level: usize,
    row: &RowKey<'_>,
) -> usize {
    let (keys, word) = (&inner.keys[1..], row.word());
    let mut low = keys.partition_point(|key| *key < word);
    let mut high = low + keys[low..].partition_point(|key| *key == word);
    // The child at `low` begins no later, those behind `high` begin later.
    while low < high {
        let middle = (low + high).div_ceil(2);
        // SAFETY: the caller's obligation.
        let leaf = unsafe { first_leaf_below(arena, inner.location(middle), level - 1) };
        if first_key(&leaf) > *row {
            high = middle - 1;
        } else {
            low = middle;
        }
    }
    low
}

impl<'g> Tree<'g> {
    /// How many rows come before one, and that one, if it is there.
    pub(in crate::collection) fn seek_row(&self, key: &RowKey<'_>) -> (usize, Option<Row<'g>>) {
        let (mut location, mut before) = (self.top, 0);
        for level in (1..=self.height).rev() {
            let inner = self.inner(location);
            // SAFETY: a node of this tree, of the epoch that `'g` ends before.
            let i = unsafe { child_with_row(&self.store.arena, &inner, level, key) };
            before += inner.before(i);
            location = inner.location(i);
        }
        let (here, row) = seek(&self.leaf(location), key);
        (before + here, row)
    }
}

impl Edit {
    /// The way to the leaf that has a row, or would have it.
    fn path_to_row(&self, store: &Store, key: &RowKey<'_>) -> Path {
        let mut path = Path { steps: [(0, 0); HEIGHT_MAX], leaf: self.top };
        for depth in 0..self.height {
            // SAFETY: inner nodes of this edit, or of a tree that is as it was; so is what is below them.
            let (inner, i) = unsafe {
                let inner = Inner::at(&store.arena, path.leaf);
                (inner, child_with_row(&store.arena, &inner, self.height - depth, key))
            };
            path.steps[depth] = (path.leaf, i);
            path.leaf = inner.location(i);
        }
        path
    }

    /// Puts and takes out rows, which come in order: those of one leaf at a time.
    pub(in crate::collection) fn merge_rows(
        &mut self,
        cx: &mut EditContext<'_>,
        ops: &[Op<'_>],
    ) -> Result<(), Declined> {
        let mut left = ops;
        while let Some(first) = left.first() {
            let path = self.path_to_row(cx.store, &first.key);
            let high = path.high(&cx.store.arena, self.height - 1);
            let mut builder = std::mem::take(&mut self.builder);
            builder.load(&self.leaf(cx.store, &path));
            builder.make_roomy();
            let before = builder.leaf().len() as u64;
            let mut grows = false;
            let goes_on =
                |op: &Op<'_>, bytes| bytes < MERGED_BYTES && high.is_none_or(|high| op.key.word() < high);
            let merged = builder.merge_rows(left, goes_on, &mut grows);
            self.elements = self.elements - before + builder.leaf().len() as u64;
            self.growth = if grows { Growth::Back } else { Growth::Within };
            let done = match merged {
                Err(full) => Err(full.into()),
                Ok(_) if self.elements >= ELEMENTS_MAX => Err(Declined::TooLarge),
                Ok(done) => self.store_leaf(cx, &path, &mut builder).map(|()| done),
            };
            self.growth = Growth::Within;
            self.builder = builder;
            left = &left[done?..];
        }
        Ok(())
    }

    /// Makes leaves of the rows in `builder`, from `low` on: they are [`Edit::news`] then. Behind the row of the stream itself
    /// another one begins.
    pub(super) fn write_rows(
        &mut self,
        cx: &mut EditContext<'_>,
        builder: &Builder,
        low: u64,
    ) -> Result<(), Declined> {
        let leaf = builder.leaf();
        let bytes = builder.loose_bytes();
        let most = match self.growth {
            Growth::Within => bytes.div_ceil(bytes.div_ceil(LEAF_BYTES_JOINED).max(2)),
            Growth::Front | Growth::Back => LEAF_BYTES,
        };
        let mut part = std::mem::take(&mut self.part);
        let mut rows = Rows::of(&leaf);
        let (mut key, mut done) = (low, Ok(()));
        loop {
            part.start(Type::Stream);
            part.make_roomy();
            let more = part.take_rows(&mut rows, most, true);
            done = done.and_then(|()| self.write_leaf(cx, &part, key));
            match rows.peek() {
                Some(next) if more && done.is_ok() => key = next.word(),
                _ => break,
            }
        }
        self.part = part;
        done
    }
}
