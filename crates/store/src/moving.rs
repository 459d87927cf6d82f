//! Moving an item, or a part of one, to another chunk of its class, under its home bucket's lock.
//!
//! ```text
//! item in place   copy, then one store to the slot: readers see the old chunk or the new one
//! large: head     copy, pieces' owner, slot; the old head says where pins go now
//! large: piece    copy, then one store to the word that names it
//! tree: node      the same; of a part: the old one says where pins go now
//! ```
//!
//! Version, token, expiry, marks and access stay. A reader that has found the old chunk in this epoch
//! goes on with it; it is retired like an overwritten one. A value that is being sent does not move: its reply
//! has it pinned, and pins wait while a part of it is on its way.

use crate::Store;
use crate::bucket::Slot;
use crate::class::ClassId;
use crate::collection::part_pins;
use crate::index::Found;
use crate::item::RawItem;
use crate::large::Large;
use crate::owner::word_of;
use crate::slab::unpoison_chunk;
use crate::sync::atomic::Ordering;
use crate::worker::{Local, chunk_facts};

impl Local {
    /// Counts a free chunk as used by `bytes`, and lets it be touched.
    fn occupy(&mut self, store: &Store, class: ClassId, chunk: u64, bytes: usize) {
        let count = self.counters(store).class(class);
        count.used_chunks.add(1);
        count.requested_bytes.add(bytes as i64);
        self.counters(store).chunks_moved.add(1);
        unpoison_chunk(&store.arena, class, chunk);
    }

    /// Copies all of a chunk but its header word.
    fn copy_body(store: &Store, from: u64, to: u64, bytes: usize) {
        let arena = &store.arena;
        // SAFETY: 1. Both chunks are of one class and hold `bytes`. 2. `to` is this worker's. 3. What
        // is in `from` behind the header changes only under the lock that the caller holds, or is
        // never changed. 4. They are different chunks.
        unsafe {
            let (from, to) = (arena.at(from).as_ptr().add(8), arena.at(to).as_ptr().add(8));
            to.copy_from_nonoverlapping(from, bytes - 8);
        }
    }

    /// Moves an item, or the head of a large one, to `chunk`; its slot becomes `slot` with the new
    /// location. False if it is pinned.
    pub(crate) fn move_item(
        &mut self,
        store: &Store,
        found: &Found<'_>,
        item: RawItem,
        slot: Slot,
        chunk: u64,
    ) -> bool {
        let arena = &store.arena;
        let location = found.slot.location();
        let header = item.header();
        let large = header.is_large();
        // SAFETY: a large item that is reachable under this lock.
        if large && !unsafe { Large::of(item) }.head().pins.begin_move() {
            return false;
        }
        let (class, bytes) = chunk_facts(arena, location);
        self.occupy(store, class, chunk, bytes);
        Self::copy_body(store, location, chunk, bytes);
        // SAFETY: the chunk is this worker's and holds the item.
        let copy = unsafe { RawItem::new(arena.at(chunk)) };
        // Release: a sweep that sees an item sees its key.
        copy.header_word().store(header.0, Ordering::Release);
        if large {
            // SAFETY: the copy is a large item, not reachable yet.
            let moved = unsafe { Large::of(copy) };
            moved.head().pins.end_move();
            moved.chunks(arena, &mut |piece| {
                // SAFETY: a piece of this value.
                let piece = unsafe { RawItem::new(arena.at(piece)) };
                let its = piece.header();
                piece.header_word().store(its.with_piece_owner(chunk).0, Ordering::Release);
            });
        }
        found.bucket.replace(found.i, slot.with_location(chunk));
        if large {
            // SAFETY: as above; only the chunk itself is retired, the pieces are the copy's.
            unsafe { Large::of(item) }.head().pins.end_moved(chunk);
        }
        crate::write::note_expiry(store, copy, chunk);
        self.retire_alone(item, header.retired(), location, class, bytes);
        true
    }

    /// Moves a piece or table of the large item to `chunk`. False if the item is pinned or the piece
    /// is not one of its.
    pub(crate) fn move_piece(&mut self, store: &Store, item: RawItem, piece: u64, chunk: u64) -> bool {
        let arena = &store.arena;
        // SAFETY: a large item that is reachable under the lock that the caller holds.
        let large = unsafe { Large::of(item) };
        let pins = &large.head().pins;
        if !pins.begin_move() {
            return false;
        }
        let word = large.word_of(arena, piece);
        if let Some(word) = word {
            let (class, bytes) = chunk_facts(arena, piece);
            self.occupy(store, class, chunk, bytes);
            Self::copy_body(store, piece, chunk, bytes);
            // SAFETY: the piece is the item's, the chunk this worker's.
            let (old, copy) = unsafe { (RawItem::new(arena.at(piece)), RawItem::new(arena.at(chunk))) };
            let header = old.header();
            copy.header_word().store(header.0, Ordering::Release);
            // Release: a thread that finds the new piece finds its bytes.
            word.store(chunk, Ordering::Release);
            self.retire_alone(old, header.moved_piece(), piece, class, bytes);
        }
        pins.end_move();
        word.is_some()
    }

    /// Moves a node of the tree to `chunk`. False if it has no such node, or if that is a part that is pinned.
    pub(crate) fn move_node(&mut self, store: &Store, item: RawItem, node: u64, chunk: u64) -> bool {
        let arena = &store.arena;
        // SAFETY: a tree that is reachable under the lock that the caller holds.
        let Some(word) = (unsafe { word_of(store, item, node) }) else { return false };
        // SAFETY: the node is the tree's, the chunk this worker's.
        let (old, copy) = unsafe { (RawItem::new(arena.at(node)), RawItem::new(arena.at(chunk))) };
        let header = old.header();
        // SAFETY: a part of the tree.
        let pins = header.is_part().then(|| unsafe { part_pins(arena, node) });
        if pins.is_some_and(|pins| !pins.begin_move()) {
            return false;
        }
        let (class, bytes) = chunk_facts(arena, node);
        self.occupy(store, class, chunk, bytes);
        Self::copy_body(store, node, chunk, bytes);
        copy.header_word().store(header.0, Ordering::Release);
        if pins.is_some() {
            // SAFETY: the copy is a part, which no thread finds yet.
            unsafe { part_pins(arena, chunk) }.end_move();
        }
        // Release: a thread that finds the new node finds what is in it. What the word says beside the place stays.
        word.store(word.load(Ordering::Relaxed) - node + chunk, Ordering::Release);
        if let Some(pins) = pins {
            pins.end_moved(chunk);
        }
        // Behind the word: a writer that sees this move counted sees the word, too, and one that has read the word as it was
        // has counted one move less, by which its write is refused. The other way round it could count the move and read the
        // old word.
        // SAFETY: as above.
        unsafe { item.root(item.header()) }.note_move();
        self.retire_alone(old, header.moved_piece(), node, class, bytes);
        true
    }
}
