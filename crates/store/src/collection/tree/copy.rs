//! Nodes that are copied as they are: a leaf that gets another label, a whole tree for another key, at once or some nodes
//! at a time.
//!
//! ```text
//! inner nodes of the lowest level, one by one, with their leaves ─▶ all of them: those above are made anew
//! ```

use super::super::change::Declined;
use super::super::leaf::{HEAD_BYTES, leaf_entries};
use super::super::times::{NEVER, word_of as word_of_time};
use super::apart::say_label;
use super::edit::Child;
use super::pinned::{PINS_BYTES, begin_part};
use super::{
    CHILDREN_MAX, Edit, EditContext, Inner, NODE_BYTES, Path, elements_of, header_of, leaf_at, location_of,
    node_word, word,
};
use crate::Seen;
use crate::item::RawItem;
use crate::sync::atomic::Ordering;

/// How far a copy of a tree has come that is made some nodes at a time.
#[derive(Debug, Default)]
pub(in crate::collection) struct CopyCursor {
    /// The place of the first element that is not copied yet.
    place: usize,
    /// Copies of inner nodes of the lowest level.
    lowest: Vec<Child>,
    /// Height and top of the scores tree that is copied, of a sorted set.
    scores: Option<(usize, u64)>,
}

impl CopyCursor {
    /// Bytes of the heap that it takes.
    pub(in crate::collection) fn heap_bytes(&self) -> usize {
        self.lowest.capacity() * size_of::<Child>()
    }
}

impl Edit {
    /// Begins a tree for a key with this hash, as a copy that is made some nodes at a time.
    pub(in crate::collection) fn begin_copy(&mut self, cx: &mut EditContext<'_>, hash: u64) {
        self.clear();
        self.number = cx.store.trees.take(&cx.store.arena, hash);
        self.numbered = true;
    }

    /// Copies one inner node of the lowest level with its leaves, or, when all of these are copied, makes the nodes above
    /// them; true when all is copied. The tree is that of the context's key, as in [`Edit::plant_copy`], and the same each
    /// time. If it fails nothing was copied this time.
    ///
    /// # Safety
    /// As for [`Edit::plant_copy`].
    pub(in crate::collection) unsafe fn copy_next(
        &mut self,
        cx: &mut EditContext<'_>,
        (item, seen): (RawItem, Seen),
        cursor: &mut CopyCursor,
    ) -> Result<bool, Declined> {
        let (number, bytes, fresh) = (self.number, self.bytes, std::mem::take(&mut self.fresh));
        let nodes = fresh.len();
        // SAFETY: the caller's obligation.
        unsafe { self.load(item, seen) };
        (self.number, self.numbered, self.unmarked) = (number, true, true);
        (self.bytes, self.fresh) = (bytes, fresh);
        let in_members = cursor.scores.is_some();
        if in_members {
            self.turn();
        }
        let done = self.copy_at(cx, cursor);
        if in_members {
            self.turn();
        }
        // The item was only read, and stays.
        self.base = None;
        match done {
            Err(declined) => {
                self.give_newest(cx, nodes, bytes);
                return Err(declined);
            }
            Ok(false) => return Ok(false),
            Ok(true) => {}
        }
        (cursor.place, cursor.lowest) = (0, Vec::new());
        match cursor.scores {
            None if self.beside.0 > 0 => {
                cursor.scores = Some((self.height, self.top));
                return Ok(false);
            }
            None => {}
            // The copy of the members tree is beside.
            Some(scores) => (self.height, self.top) = scores,
        }
        Ok(true)
    }

    /// One step of [`Edit::copy_next`] in one tree; true when all of it is copied, and has a top.
    fn copy_at(&mut self, cx: &mut EditContext<'_>, cursor: &mut CopyCursor) -> Result<bool, Declined> {
        if cursor.place < self.elements as usize {
            let path = self.place_of(cx.store, cursor.place).path;
            let copied = cursor.lowest.len();
            let done = self.copy_lowest(cx, cursor, path);
            if done.is_err() {
                cursor.lowest.truncate(copied);
            }
            cursor.place += done?;
            return Ok(false);
        }
        self.news.extend_from_slice(&cursor.lowest);
        self.write_top(cx, 1)?;
        Ok(true)
    }

    /// Copies the inner node of the lowest level that a path goes through, and those behind it that have nothing but parts of
    /// its last element; returns how many elements they have.
    fn copy_lowest(
        &mut self,
        cx: &mut EditContext<'_>,
        cursor: &mut CopyCursor,
        mut path: Path,
    ) -> Result<usize, Declined> {
        let lowest = self.height - 1;
        let mut elements = 0;
        loop {
            let low = match lowest.checked_sub(1) {
                Some(above) => path.low(&cx.store.arena, above, path.steps[above].1),
                None => 0,
            };
            let copied = self.copy_below(cx, path.steps[lowest].0, 1, low)?;
            elements += elements_of(copied.word);
            cursor.lowest.push(Child { key: low, ..copied });
            let next = lowest.checked_sub(1).and_then(|above| path.go_on(&cx.store.arena, above));
            match next {
                Some(word) if elements_of(word) == 0 => path.steps[lowest] = (location_of(word), 0),
                _ => return Ok(elements),
            }
        }
    }

    /// Begins a tree for a key with this hash: a copy of the tree of the context's key. It replaces no tree when it is published.
    ///
    /// # Safety
    /// A tree is at `item`, reachable in this epoch: the version that `seen` says.
    pub(in crate::collection) unsafe fn plant_copy(
        &mut self,
        cx: &mut EditContext<'_>,
        (item, seen): (RawItem, Seen),
        hash: u64,
    ) -> Result<(), Declined> {
        // SAFETY: the caller's obligation.
        unsafe { self.load(item, seen) };
        let (top, height) = (self.top, self.height);
        self.number = cx.store.trees.take(&cx.store.arena, hash);
        self.numbered = true;
        self.unmarked = true;
        self.bytes = 0;
        let top = self.copy_below(cx, top, height, 0)?;
        self.top = location_of(top.word);
        let (height, top) = self.beside;
        if height > 0 {
            self.in_members = true;
            let top = self.copy_below(cx, top, height, 0)?;
            self.in_members = false;
            self.beside.1 = location_of(top.word);
        }
        // The item was only read, and stays.
        self.base = None;
        Ok(())
    }

    /// Copies a node and all below it; its least key is `low`. It does not read a leaf's own key:
    /// the leaf of a list is given another label where it lies.
    fn copy_below(
        &mut self,
        cx: &mut EditContext<'_>,
        location: u64,
        level: usize,
        low: u64,
    ) -> Result<Child, Declined> {
        if level == 0 {
            return self.copy_leaf(cx, location, low);
        }
        // SAFETY: an inner node of the tree that is copied, which is as it was.
        let inner = unsafe { Inner::at(&cx.store.arena, location) };
        let mut children = [Child::NONE; CHILDREN_MAX];
        for (i, child) in children[..inner.len()].iter_mut().enumerate() {
            // A node does not say the key of its first child.
            let low = if i == 0 { low } else { inner.keys[i] };
            *child = self.copy_below(cx, inner.location(i), level - 1, low)?;
        }
        self.write_inner(cx, level, &children[..inner.len()])?;
        Ok(self.news.pop().expect("it was just made"))
    }

    /// Copies a leaf, with another key.
    pub(super) fn copy_leaf(
        &mut self,
        cx: &mut EditContext<'_>,
        location: u64,
        key: u64,
    ) -> Result<Child, Declined> {
        let arena = &cx.store.arena;
        // SAFETY: a leaf of this edit, or of a tree that is as it was.
        let (header, elements) = unsafe {
            let leaf = arena.at(location).add(NODE_BYTES).cast::<[u8; HEAD_BYTES]>().read();
            (header_of(arena, location), leaf_entries(leaf) as u64)
        };
        let bytes = header.piece_bytes() + 8;
        let chunk = self.allocate(cx, 0, bytes)?;
        // SAFETY: both have so many bytes: the chunk is this worker's, and the other is as above. The pins of a part, which
        // others may change meanwhile, are not copied.
        unsafe {
            let same = if header.is_part() {
                begin_part(arena, chunk);
                bytes - PINS_BYTES
            } else {
                bytes
            };
            node_word(arena, chunk, 8).store(key, Ordering::Relaxed);
            let (from, to) = (arena.at(location).add(NODE_BYTES), arena.at(chunk).add(NODE_BYTES));
            std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), same - NODE_BYTES);
        }
        let soonest = if self.in_members {
            NEVER
        } else {
            // SAFETY: the leaf that was just copied, so below; no other thread has it yet, and the first look is over when it is
            // written to.
            unsafe {
                if elements == 1 && leaf_at(arena, chunk).is_apart() {
                    say_label(arena, chunk, key);
                }
                word_of_time(leaf_at(arena, chunk).soonest())
            }
        };
        Ok(Child { key, word: word(elements, chunk), soonest })
    }
}
