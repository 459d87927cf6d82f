//! Nodes that are copied as they are: a leaf that gets another label, a whole tree for another key.

use super::super::change::Declined;
use super::super::leaf::{HEAD_BYTES, leaf_entries};
use super::edit::Child;
use super::{CHILDREN_MAX, Edit, Hand, Inner, NODE_BYTES, header_of, location_of, node_word, word};
use crate::Seen;
use crate::item::RawItem;
use crate::sync::atomic::Ordering;

impl Edit {
    /// Begins a tree for a key with this hash: a copy of that of the item that the hand's key has. What it comes to takes
    /// the place of no tree.
    ///
    /// # Safety
    /// A tree, reachable in this epoch: that which `seen` says.
    pub(in crate::collection) unsafe fn plant_copy(
        &mut self,
        hand: &mut Hand<'_>,
        (item, seen): (RawItem, Seen),
        hash: u64,
    ) -> Result<(), Declined> {
        // SAFETY: the caller's obligation.
        unsafe { self.load(item, seen) };
        let (top, height) = (self.top, self.height);
        self.number = hand.store.trees.take(&hand.store.arena, hash);
        self.numbered = true;
        self.unmarked = true;
        self.bytes = 0;
        let top = self.copy_below(hand, top, height)?;
        self.top = location_of(top.word);
        let (height, top) = self.beside;
        if height > 0 {
            self.in_members = true;
            let top = self.copy_below(hand, top, height)?;
            self.in_members = false;
            self.beside.1 = location_of(top.word);
        }
        // It was read, and stays.
        self.base = None;
        Ok(())
    }

    /// A copy of a node and of all below it.
    fn copy_below(&mut self, hand: &mut Hand<'_>, location: u64, level: usize) -> Result<Child, Declined> {
        let arena = &hand.store.arena;
        if level == 0 {
            // SAFETY: a leaf of the tree that is copied, which is as it was.
            let key = unsafe { node_word(arena, location, 8) }.load(Ordering::Relaxed);
            return self.copy_leaf(hand, location, key);
        }
        // SAFETY: as above, an inner node.
        let inner = unsafe { Inner::at(arena, location) };
        let mut children = [Child { key: 0, word: 0 }; CHILDREN_MAX];
        for (i, child) in children[..inner.len()].iter_mut().enumerate() {
            let copied = self.copy_below(hand, inner.location(i), level - 1)?;
            *child = Child { key: inner.keys[i], ..copied };
        }
        self.write_inner(hand, level, &children[..inner.len()])?;
        Ok(self.news.pop().expect("it was just made"))
    }

    /// The same leaf with another key.
    pub(super) fn copy_leaf(
        &mut self,
        hand: &mut Hand<'_>,
        location: u64,
        key: u64,
    ) -> Result<Child, Declined> {
        let arena = &hand.store.arena;
        // SAFETY: a leaf of this edit, or of a tree that is as it was.
        let (bytes, elements) = unsafe {
            let leaf = arena.at(location).add(NODE_BYTES).cast::<[u8; HEAD_BYTES]>().read();
            (header_of(arena, location).piece_bytes() + 8, leaf_entries(leaf) as u64)
        };
        let chunk = self.allocate(hand, 0, bytes)?;
        // SAFETY: both have so many bytes: the chunk is this worker's, and the other is as above.
        unsafe {
            node_word(arena, chunk, 8).store(key, Ordering::Relaxed);
            let (from, to) = (arena.at(location).add(NODE_BYTES), arena.at(chunk).add(NODE_BYTES));
            std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), bytes - NODE_BYTES);
        }
        Ok(Child { key, word: word(elements, chunk) })
    }
}
