//! Retiring: an unlinked chunk waits in limbo until no worker can see it, then is free again.
//!
//! ```text
//! retire ─▶ limbo … once its epoch has passed ─▶ magazine ─▶ its span
//! ```

use super::{Local, RECLAIM_CHUNKS};
use crate::Store;
use crate::arena::Arena;
use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::collection::is_let_go;
use crate::dropped::PIECES_AT_ONCE;
use crate::item::{DRAFT_LARGE, Header, Kind, RawItem};
use crate::large::Large;
use crate::limbo::Outgoing;
use crate::slab::{Class, poison_chunk};
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;

/// Chunks that may wait although their epoch has passed: they are the next to be used again. They have
/// no more bytes than the magazines may.
const LIMBO_CHUNKS_MAX: usize = 256;

/// Chunks taken back in one step, after another worker was kept in its batch: some 100 µs. (17,000 took 4 ms.) Each piece of a
/// large value is one of them: 1,024 values of 1 MiB are 66,000, by reckoning 7 to 15 ms.
pub(super) const PASS_CHUNKS: usize = 1024;
/// Chunks taken back in a step of upkeep in all, pieces of large values counted: some 50 µs. A value that has more pieces
/// than are left loses its last ones, and waits in front of all others for the next step. (With two or three looks a step it
/// was 3,000 chunks, and of large values as many with all their pieces: one of 512 MiB has 32,800, by reckoning 2 to 3 ms.)
pub(crate) const STEP_CHUNKS: usize = 512;
/// Pieces of large values that one batch takes back in all, beside steps of upkeep: 128 MiB, by reckoning 1 to 2 ms. A
/// value of 1 GiB has 65,570.
pub(super) const BATCH_PIECES: usize = 8 * PASS_CHUNKS;

impl Local {
    /// Gives back a chunk that no other thread ever could see.
    pub(crate) fn free_unseen(&mut self, store: &Store, chunk: u64) {
        // SAFETY: the chunk is this worker's.
        let item = unsafe { RawItem::new(store.arena.at(chunk)) };
        if is_large(item) {
            // SAFETY: a large draft has its head.
            let large = unsafe { Large::of(item) };
            large.chunks(&store.arena, &mut |piece| self.recycle(store, piece));
        }
        let header = item.header();
        if has_key(header) {
            store.free_key(item);
        }
        if header.is_tree() {
            // SAFETY: a root that no worker can see any more.
            let root = unsafe { item.root(header) };
            if !root.has_successor() {
                return self.fell(store, root, chunk);
            }
        }
        self.recycle(store, chunk);
    }

    /// Gives back a draft that did not become an item's value. It may have been published and found no place in
    /// the index: a sweep of another worker may have seen it then, and read its key since. Of a long value the pieces come free
    /// some at a time, as if it had been an item.
    #[cold]
    pub(crate) fn give_back(&mut self, store: &Store, chunk: u64) {
        // SAFETY: the chunk is this worker's: no slot names it.
        let item = unsafe { RawItem::new(store.arena.at(chunk)) };
        if item.header().is_item() {
            return self.retire(store, chunk);
        }
        // SAFETY: a large draft has its head.
        if is_large(item) && unsafe { Large::of(item) }.head().pieces as usize > PIECES_AT_ONCE {
            // It stays a draft, which sweeps pass over.
            let (class, requested) = chunk_facts(&store.arena, chunk);
            self.limbo.push(Outgoing::new(chunk, class, requested, true));
            return;
        }
        self.free_unseen(store, chunk);
    }

    /// Takes an unlinked item's chunk; it is used again once no worker can see it.
    #[inline]
    pub(crate) fn retire(&mut self, store: &Store, chunk: u64) {
        // SAFETY: reachable until a moment ago, in this epoch.
        let item = unsafe { RawItem::new(store.arena.at(chunk)) };
        let header = item.header();
        let (class, requested) = chunk_facts(&store.arena, chunk);
        self.limbo.push(Outgoing::new(chunk, class, requested, self.has_more(item, header, chunk)));
        item.header_word().store(header.retired().0, Ordering::Release);
    }

    /// True if an item that is retired, with this header, has memory beside its chunk that goes with it.
    #[inline]
    fn has_more(&self, item: RawItem, header: Header, chunk: u64) -> bool {
        // Nearly all are plain.
        header.is_not_plain() && (header.is_large() || self.has_more_of_collection(item, header, chunk))
    }

    fn has_more_of_collection(&self, item: RawItem, header: Header, chunk: u64) -> bool {
        let beside = item.key_is_beside(header);
        if !header.is_tree() {
            return beside;
        }
        let leaves = self.leaving.contains(&chunk);
        if leaves {
            // SAFETY: reachable until a moment ago, in this epoch, and a tree.
            unsafe { item.root(header) }.leave_nodes();
        }
        beside || !leaves
    }

    /// As [`Local::retire`], with what is known about an item whose value is in place.
    #[inline(always)]
    pub(crate) fn retire_whole(
        &mut self,
        item: RawItem,
        header: Header,
        chunk: u64,
        class: ClassId,
        requested: usize,
    ) {
        debug_assert!(header.is_whole());
        self.limbo.push_whole(Outgoing::new(chunk, class, requested, false));
        // A reader's FETCHED that this overwrites is of no use any more.
        item.header_word().store(header.retired().0, Ordering::Release);
    }

    /// Takes one chunk of an item that has a copy elsewhere; `left` is its header from now on.
    pub(crate) fn retire_alone(
        &mut self,
        item: RawItem,
        left: Header,
        chunk: u64,
        class: ClassId,
        requested: usize,
    ) {
        self.limbo.push(Outgoing::new(chunk, class, requested, false));
        item.header_word().store(left.0, Ordering::Release);
    }

    /// Takes a node that its tree does not have any more. A part may be pinned until its epoch has passed.
    pub(crate) fn retire_node(&mut self, store: &Store, chunk: u64) {
        // SAFETY: reachable until a moment ago, or shown, in this epoch.
        let node = unsafe { RawItem::new(store.arena.at(chunk)) };
        let header = node.header();
        let (class, requested) = chunk_facts(&store.arena, chunk);
        self.limbo.push(Outgoing::new(chunk, class, requested, header.is_part()));
        node.header_word().store(header.moved_piece().0, Ordering::Release);
    }

    /// Called between two requests of a batch: announces the epoch that it is by now, if a group of chunks waits for that.
    /// The caller holds no reference into the arena.
    #[inline]
    pub(crate) fn leave_if_due(&mut self, store: &Store) {
        if self.limbo.group_is_full() {
            self.let_go(store);
        }
    }

    /// Called between two steps of something long: announces the epoch that it is, if it has moved
    /// on. The caller holds no reference into the arena.
    #[inline]
    pub(crate) fn step_out(&mut self, store: &Store) {
        self.leave_if_due(store);
        store.epochs.renew(self.id);
    }

    /// Tags a group of chunks. The epochs are moved on only when those that wait longest would soon be
    /// wanted: each of their steps is a line that goes from core to core.
    fn let_go(&mut self, store: &Store) {
        self.limbo.seal(&store.epochs);
        self.charge_limbo(store);
        store.epochs.renew(self.id);
        let bytes_max = self.magazine_bytes_max as u64;
        if !self.limbo.look(&store.epochs)
            && (self.limbo.len() > LIMBO_CHUNKS_MAX / 2 || self.limbo.bytes() > bytes_max / 2)
            && store.epochs.advance()
        {
            store.epochs.enter(self.id);
            self.limbo.look(&store.epochs);
        }
        if self.limbo.len() > LIMBO_CHUNKS_MAX || self.limbo.bytes() > bytes_max {
            if self.step_chunks.is_some() {
                self.reclaim_in_turn(store, RECLAIM_CHUNKS * 2);
            } else {
                // A worker that writes over long values takes back as many pieces as it uses.
                self.take_back(store, RECLAIM_CHUNKS * 2, true);
            }
        }
    }

    /// Steps out of the epoch and in again, moves the epochs on as far as they go, and takes back what they set free:
    /// all that is usual. The caller holds no reference into the arena.
    pub(crate) fn pass_epochs(&mut self, store: &Store) {
        self.limbo.seal(&store.epochs);
        for _ in 0..2 {
            store.epochs.enter(self.id);
            if !store.epochs.advance() {
                break;
            }
        }
        store.epochs.enter(self.id);
        self.reclaim_in_turn(store, self.step_chunks.unwrap_or(PASS_CHUNKS));
        self.charge_limbo(store);
    }

    /// Takes back up to `count` chunks that the epochs have set free; in a step of upkeep no more than the step still may.
    fn reclaim_in_turn(&mut self, store: &Store, count: usize) {
        let Some(left) = self.step_chunks else { return self.reclaim(store, count) };
        let count = count.min(left);
        let unused = self.take_back(store, count, false);
        self.step_chunks = Some(left - count + unused);
    }

    /// Charges what the limbo has grown by.
    #[inline]
    fn charge_limbo(&mut self, store: &Store) {
        let bytes = self.limbo.shrink();
        if bytes != 0 {
            store.arena.charge(bytes);
        }
    }

    /// Takes back up to `count` chunks that the epochs have set free.
    pub(super) fn reclaim(&mut self, store: &Store, count: usize) {
        self.take_back(store, count, false);
    }

    /// As [`Local::reclaim`]; returns how many more it might have taken. Pieces of large values count as chunks, unless they
    /// are `beside` those. Outside of a step of upkeep no more pieces go than are left to the batch. A value that has more
    /// than may go loses its last ones, and waits in front of all others.
    fn take_back(&mut self, store: &Store, count: usize, beside: bool) -> usize {
        self.limbo.look(&store.epochs);
        // Chunks of one class in a row, which most are, are counted once.
        let (mut class, mut chunks, mut bytes) = (ClassId(1), 0, 0);
        let mut left = count;
        while left > 0 {
            let Some(chunk) = self.limbo.take() else { break };
            left -= 1;
            if chunk.large() {
                // SAFETY: no worker can see the item or the part any more; its memory is still whole.
                let item = unsafe { RawItem::new(store.arena.at(chunk.location())) };
                let header = item.header();
                if header.is_collection() {
                    self.free_unseen(store, chunk.location());
                    continue;
                }
                if !header.is_part() {
                    // SAFETY: as above, and a large item.
                    let large = unsafe { Large::of(item) };
                    let head = large.head();
                    // What is dead already has lost pieces here. Else a connection is sending it, and frees it when done.
                    if !head.pins.is_dead() && !head.pins.kill() {
                        continue;
                    }
                    let pieces = head.pieces as usize;
                    let most = if beside { usize::MAX } else { left };
                    let room = if self.step_chunks.is_some() { most } else { most.min(self.pieces_left) };
                    if self.step_chunks.is_none() {
                        self.pieces_left -= pieces.min(room);
                    }
                    if pieces > room {
                        // SAFETY: no worker can see the item, and it is dead without pins.
                        unsafe {
                            large.drop_last(&store.arena, room, &mut |piece| self.recycle(store, piece));
                        }
                        self.limbo.put_back(chunk);
                        left = 0;
                        break;
                    }
                    left -= if beside { 0 } else { pieces };
                    self.free_unseen(store, chunk.location());
                    continue;
                }
                // SAFETY: as above: this worker alone would free it.
                if !unsafe { is_let_go(store, chunk.location()) } {
                    continue;
                }
            }
            if chunk.class() != class {
                self.count_free(store, class, chunks, bytes);
                (class, chunks, bytes) = (chunk.class(), 0, 0);
            }
            chunks += 1;
            bytes += chunk.requested();
            if !self.put_away(store, chunk.location(), class) {
                let (more, more_bytes) = self.give_row(store, chunk.location(), class, left);
                left -= more;
                chunks += more as i64;
                bytes += more_bytes;
            }
        }
        self.count_free(store, class, chunks, bytes);
        left
    }

    /// Frees one chunk: into its magazine, or to its span.
    pub(crate) fn recycle(&mut self, store: &Store, chunk: u64) {
        let (class, requested) = chunk_facts(&store.arena, chunk);
        self.count_free(store, class, 1, requested);
        if !self.put_away(store, chunk, class) {
            self.give_row(store, chunk, class, 0);
        }
    }

    /// Counts chunks of a class as free.
    #[inline]
    fn count_free(&self, store: &Store, class: ClassId, chunks: i64, bytes: usize) {
        let count = self.counters(store).class(class);
        count.used_chunks.add(-chunks);
        count.requested_bytes.add(-(bytes as i64));
    }

    /// Puts a chunk into its magazine; false if it is to go back to its span.
    #[inline]
    fn put_away(&mut self, store: &Store, chunk: u64, class: ClassId) -> bool {
        make_free(store, chunk, class);
        if self.goes_back(store, chunk, class) {
            return false;
        }
        if !self.magazines[class.0 as usize].push(chunk) {
            self.put_into_full(store, chunk, class);
        }
        self.magazine_bytes += class.chunk_bytes();
        true
    }

    /// True if no magazine may have the chunk: its span is wanted empty, or magazines have as much as they may.
    #[inline]
    fn goes_back(&self, store: &Store, chunk: u64, class: ClassId) -> bool {
        let draining = store.slabs.view(class).draining.load(Ordering::Relaxed) != 0
            && store.arena.span(Arena::span_of(chunk)).draining.load(Ordering::Relaxed) != 0;
        draining || self.magazine_bytes + class.chunk_bytes() > self.magazine_bytes_max
    }

    /// Puts the chunk into a magazine that has no place for it: its older half goes back to the spans.
    #[cold]
    #[inline(never)]
    fn put_into_full(&mut self, store: &Store, chunk: u64, class: ClassId) {
        self.give_older_half(store, class);
        let pushed = self.magazines[class.0 as usize].push(chunk);
        debug_assert!(pushed);
    }

    /// Gives a free chunk back to its span, and up to `more` of those that wait behind it if they go back, too; returns how
    /// many these were, and their bytes. The class is locked once for some of them: where many workers want its lock, the one
    /// that has the chunks which all others wait for would have to get it for every chunk.
    #[cold]
    #[inline(never)]
    fn give_row(&mut self, store: &Store, chunk: u64, class: ClassId, more: usize) -> (usize, usize) {
        let mut slab = store.slabs.class(class);
        slab.give(&store.arena, chunk);
        let (mut given, mut bytes) = (0, 0);
        while given < more.min(RECLAIM_CHUNKS) && self.goes_back(store, self.limbo.front().location(), class)
        {
            let Some(next) = self.limbo.take_of(class) else { break };
            make_free(store, next.location(), class);
            slab.give(&store.arena, next.location());
            given += 1;
            bytes += next.requested();
        }
        (given, bytes)
    }

    fn give_older_half(&mut self, store: &Store, class: ClassId) {
        let (chunks, count) = self.magazines[class.0 as usize].older_half();
        self.magazine_bytes -= count * class.chunk_bytes();
        let mut slab = store.slabs.class(class);
        for &chunk in &chunks[..count] {
            slab.give(&store.arena, chunk);
        }
    }

    /// Gives all free chunks of a class back to their spans.
    pub(crate) fn empty_magazine(&mut self, store: &Store, class: ClassId) {
        let mut slab = None;
        while let Some(chunk) = self.magazines[class.0 as usize].pop() {
            self.magazine_bytes -= class.chunk_bytes();
            slab.get_or_insert_with(|| store.slabs.class(class)).give(&store.arena, chunk);
        }
    }

    /// Gives back all free chunks it can: another worker drains spans, and this one may hold some of
    /// theirs. The caller holds no reference into the arena.
    #[cold]
    pub(crate) fn answer_recall(&mut self, store: &Store) {
        let recall = store.recall.load(Ordering::Relaxed);
        // Another worker waits for this memory, and a step of upkeep may wait for what that one holds: then no bound of the step
        // keeps memory from it. Nor does that of the batch, which may wait for that worker.
        let step_chunks = self.step_chunks.take();
        self.may_take_pieces(PASS_CHUNKS);
        self.pass_epochs(store);
        self.step_chunks = step_chunks;
        // What else no thread sees any more is given back at the next batch.
        self.recalled = if self.limbo.look(&store.epochs) { recall.wrapping_sub(1) } else { recall };
        for class in ClassId::all() {
            self.empty_magazine(store, class);
        }
    }

    /// Chunks waiting for their epoch.
    pub(crate) fn limbo_chunks(&self) -> usize {
        self.limbo.len()
    }

    /// Lets this batch take back so many pieces of large values at least: it needs memory, or has waited for other workers.
    pub(super) fn may_take_pieces(&mut self, pieces: usize) {
        self.pieces_left = self.pieces_left.max(pieces);
    }
}

/// Makes a chunk a free one, without an owner.
#[inline]
fn make_free(store: &Store, chunk: u64, class: ClassId) {
    // SAFETY: the chunk is free.
    let header = unsafe { RawItem::new(store.arena.at(chunk)) };
    header.header_word().store(Header::free(0).0, Ordering::Relaxed);
    poison_chunk(&store.arena, class, chunk);
}

fn is_large(item: RawItem) -> bool {
    let header = item.header();
    // A draft of a large value says so by a mark.
    header.is_large() || header.kind() == Kind::Draft && header.has(DRAFT_LARGE)
}

/// True if what has this header, and is to be freed, may have a key on the heap.
fn has_key(header: Header) -> bool {
    match header.kind() {
        Kind::Draft | Kind::Large | Kind::Collection => header.has_long_key(),
        Kind::Free | Kind::Whole | Kind::Piece => false,
    }
}

/// The class that an item counts in, given its header and its chunk: its chunk's, or that of its pieces,
/// which have its memory.
#[inline]
pub(crate) fn class_of(arena: &Arena, header: Header, chunk: u64) -> ClassId {
    if header.is_large() {
        return ClassId::of(CHUNK_BYTES_MAX);
    }
    ClassId(arena.span(Arena::span_of(chunk)).owner.load(Ordering::Relaxed))
}

impl Store {
    /// The class whose chunk it is.
    pub(crate) fn class_of_chunk(&self, chunk: u64) -> ClassId {
        ClassId(self.arena.span(Arena::span_of(chunk)).owner.load(Ordering::Relaxed))
    }
}

/// Class of a chunk and bytes in use in it, by its header.
pub(crate) fn chunk_facts(arena: &Arena, chunk: u64) -> (ClassId, usize) {
    let class = ClassId(arena.span(Arena::span_of(chunk)).owner.load(Ordering::Relaxed));
    // SAFETY: the caller owns the chunk.
    let item = unsafe { RawItem::new(arena.at(chunk)) };
    let header = item.header();
    let requested = match header.kind() {
        Kind::Piece => header.piece_bytes() + 8,
        // SAFETY: a collection has its leaf.
        Kind::Collection => unsafe { item.collection_bytes(header) },
        // SAFETY: a large item or draft has its head.
        _ if is_large(item) => unsafe { Large::of(item) }.head_bytes(),
        Kind::Free | Kind::Draft | Kind::Whole | Kind::Large => item.whole_bytes(),
    };
    (class, requested)
}

impl Store {
    /// Frees the key of an item that no thread can see any more, if it is on the heap. Its length
    /// stays in the item.
    fn free_key(&self, item: RawItem) {
        // SAFETY: the caller owns the item and is about to free it.
        let bytes = unsafe { item.free_key() };
        if bytes > 0 {
            self.key_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
            self.arena.charge(-(bytes as i64));
        }
    }
}

/// Frees an item or a draft without a worker, after its last pin or with an abandoned upload: straight to its spans, under locks
/// of classes. A long one is left to workers, which take back its pieces some at a time.
pub(crate) fn free_alone(store: &Store, chunk: u64) {
    // SAFETY: no other thread can see the chunk.
    let item = unsafe { RawItem::new(store.arena.at(chunk)) };
    if has_key(item.header()) {
        store.free_key(item);
    }
    // The head last: it says where the pieces are.
    let mut chunks = Vec::new();
    if is_large(item) {
        // SAFETY: a large item or draft has its head.
        let large = unsafe { Large::of(item) };
        if large.head().pieces as usize > PIECES_AT_ONCE {
            // SAFETY: a large item or draft that is the caller's alone; its key was freed above.
            return unsafe { store.dropped.put(&store.arena, chunk) };
        }
        large.chunks(&store.arena, &mut |piece| chunks.push(piece));
    }
    chunks.push(chunk);
    give_alone(store, &chunks);
}

/// Gives chunks that no other thread can see to their spans, some of one class under one lock.
pub(crate) fn give_alone(store: &Store, chunks: &[u64]) {
    for row in chunks.chunks(RECLAIM_CHUNKS) {
        let mut locked: Option<(ClassId, MutexGuard<'_, Class>)> = None;
        for &chunk in row {
            let (class, requested) = chunk_facts(&store.arena, chunk);
            let count = store.loose.class(class);
            count.used_chunks.add_shared(-1);
            count.requested_bytes.add_shared(-(requested as i64));
            poison_chunk(&store.arena, class, chunk);
            let mut slab = match locked.take() {
                Some((of, slab)) if of == class => slab,
                // The lock of the other class is let go of first.
                other => {
                    drop(other);
                    store.slabs.class(class)
                }
            };
            slab.give(&store.arena, chunk);
            locked = Some((class, slab));
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::{BATCH_PIECES, PASS_CHUNKS, PIECES_AT_ONCE, RECLAIM_CHUNKS, STEP_CHUNKS, make_free};
    use crate::arena::Arena;
    use crate::class::ClassId;
    use crate::drain::Purpose;
    use crate::large::PIECE_BYTES;
    use crate::{Attributes, Config, Expect, Guard, Refusal, Store};
    use std::sync::Arc;

    const NOW: u64 = 1_700_000_000_000;
    /// Pieces that do not fit the table in the head.
    const PIECES: usize = 2_500;

    /// What one worker deletes while another is kept in its epoch waits, and what names it is charged.
    #[test]
    fn limbo_that_grows_is_charged_and_gives_it_back() {
        const KEYS: u64 = 50_000;
        let store = Store::new(Config { memory_bytes: 64 << 20, ..Config::default() }).unwrap();
        let (mut worker, mut stuck) = (store.worker().unwrap(), store.worker().unwrap());
        for n in 0..KEYS {
            let mut guard = worker.enter(NOW);
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, b"value", &Attributes::default(), Expect::Any).unwrap();
        }
        let before = store.heap_bytes();
        let kept = stuck.enter(NOW);
        for n in 0..KEYS {
            let mut guard = worker.enter(NOW);
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.delete(&key, Expect::Present).unwrap();
        }
        assert!(worker.local.limbo_chunks() as u64 > KEYS - 1000);
        let charged = store.heap_bytes() - before;
        assert!((KEYS * 16..=KEYS * 24).contains(&charged), "{charged}");
        drop(kept);
        worker.rest();
        assert_eq!((worker.local.limbo_chunks(), store.heap_bytes()), (0, before));
        drop((worker, stuck));
        store.check();
    }

    /// What another worker's batch has held back comes free some chunks a step of upkeep; all pieces of a large value count.
    #[test]
    fn a_step_of_upkeep_takes_back_so_many_chunks() {
        // A value of eight pieces is nine chunks with its head, and 57 of them are 513: the last waits for the next step.
        let large = 8 * PIECE_BYTES;
        for (keys, value_bytes, taken) in [(5_000_u64, 5, [STEP_CHUNKS; 2]), (200, large, [56, 57])] {
            let config = Config { memory_bytes: 64 << 20, workers_max: 2, ..Config::default() };
            let store = Store::new(config).unwrap();
            let (mut worker, mut stuck) = (store.worker().unwrap(), store.worker().unwrap());
            let mut guard = worker.enter(NOW);
            let value = vec![1; value_bytes];
            let names: Vec<[u8; 8]> = (0..keys).map(u64::to_be_bytes).collect();
            for name in &names {
                let key = guard.key(name);
                guard.store_value(&key, &value, &Attributes::default(), Expect::Any).unwrap();
            }
            let kept = stuck.enter(NOW);
            for name in &names {
                let key = guard.key(name);
                guard.delete(&key, Expect::Present).unwrap();
            }
            drop(kept);
            let mut left = guard.local.limbo_chunks();
            assert!(left > taken[0] + taken[1], "{left}");
            for taken in taken {
                guard.local.step_chunks = Some(STEP_CHUNKS);
                for taken in [taken, 0] {
                    guard.local.pass_epochs(&store);
                    assert_eq!(left - guard.local.limbo_chunks(), taken);
                    assert_eq!(guard.local.step_chunks, Some(0));
                    left = guard.local.limbo_chunks();
                }
            }
            // Upkeep says so until nothing is left.
            while guard.maintain() {}
            assert_eq!(guard.local.limbo_chunks(), 0);
            drop(guard);
            drop((worker, stuck));
            store.check();
        }
    }

    /// A value of more pieces than a step may take back loses some of them at each, the last first. A worker that ends takes back
    /// all that is left.
    #[test]
    fn a_large_value_comes_free_in_steps_of_upkeep() {
        for way in ["steps", "end"] {
            let config = Config { memory_bytes: 128 << 20, workers_max: 2, ..Config::default() };
            let store = Store::new(config).unwrap();
            let (mut worker, mut stuck) = (store.worker().unwrap(), store.worker().unwrap());
            let mut guard = worker.enter(NOW);
            let used_of = |class| store.sum(|c| c.class(class).used_chunks.value());
            let used = || ClassId::all().map(used_of).sum::<u64>();
            let key = guard.key(b"key");
            let value = vec![1; PIECES * PIECE_BYTES];
            guard.store_value(&key, &value, &Attributes::default(), Expect::Any).unwrap();
            // With the head and a table.
            assert_eq!(used(), PIECES as u64 + 2);
            let kept = stuck.enter(NOW);
            guard.delete(&key, Expect::Present).unwrap();
            drop(kept);
            let mut step = || {
                let before = used();
                guard.local.step_chunks = Some(STEP_CHUNKS);
                guard.local.pass_epochs(&store);
                let left = guard.local.step_chunks.take();
                (before - used(), left, guard.local.limbo_chunks())
            };
            // One of the 512 is the head, each time that it is looked at.
            assert_eq!([step(), step()], [(511, Some(0), 1); 2]);
            if way == "steps" {
                assert_eq!([step(), step()], [(511, Some(0), 1); 2]);
                let rest = PIECES - 4 * 511;
                assert_eq!(step(), (rest as u64 + 2, Some(511 - rest), 0));
            }
            drop(guard);
            drop((worker, stuck));
            assert_eq!(used(), 0, "{way}");
            store.check();
        }
    }

    /// Chunks of all classes that are in use.
    fn used(store: &Store) -> usize {
        let used_of = |class| store.sum(|c| c.class(class).used_chunks.value());
        ClassId::all().map(used_of).sum::<u64>() as usize
    }

    /// Stores values of so many pieces, and deletes them; no worker can see them any more.
    fn delete_large(store: &Store, guard: &mut Guard<'_>, values: usize, pieces: usize) {
        let value = vec![1; pieces * PIECE_BYTES];
        let names: Vec<[u8; 8]> = (0..values as u64).map(u64::to_be_bytes).collect();
        for name in &names {
            let key = guard.key(name);
            guard.store_value(&key, &value, &Attributes::default(), Expect::Any).unwrap();
        }
        // Nothing is taken back while they are deleted.
        guard.local.pieces_left = 0;
        for name in &names {
            let key = guard.key(name);
            guard.delete(&key, Expect::Present).unwrap();
        }
        let local = &mut *guard.local;
        local.limbo.seal(&store.epochs);
        for _ in 0..2 {
            store.epochs.enter(local.id);
            assert!(store.epochs.advance());
        }
        store.epochs.enter(local.id);
        assert!(local.limbo.look(&store.epochs));
        assert_eq!(local.limbo_chunks(), values);
    }

    fn store_of_one() -> Arc<Store> {
        Store::new(Config { memory_bytes: 128 << 20, workers_max: 1, ..Config::default() }).unwrap()
    }

    /// Between two requests of a batch pieces come free as far as those of the batch are not spent, however long the value is;
    /// the next batch goes on.
    #[test]
    fn a_batch_takes_back_so_many_pieces_between_its_requests() {
        let store = store_of_one();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        assert_eq!(guard.local.pieces_left, BATCH_PIECES);
        delete_large(&store, &mut guard, 1, PIECES);
        // With the head and a table.
        assert_eq!(used(&store), PIECES + 2);
        guard.local.pieces_left = 1_000;
        for taken in [1_000, 1_000] {
            guard.local.let_go(&store);
            assert_eq!((used(&store), guard.local.limbo_chunks()), (PIECES + 2 - taken, 1));
            assert_eq!(guard.local.pieces_left, 0);
        }
        // Nor does anything else take more of them.
        guard.local.reclaim(&store, RECLAIM_CHUNKS);
        guard.local.pass_epochs(&store);
        assert_eq!((used(&store), guard.local.limbo_chunks()), (PIECES + 2 - 1_000, 1));
        // One that has waited may.
        guard.local.may_take_pieces(PASS_CHUNKS);
        guard.local.let_go(&store);
        assert_eq!(used(&store), PIECES + 2 - 1_000 - PASS_CHUNKS);
        drop(guard);
        let guard = worker.enter(NOW);
        assert_eq!(guard.local.pieces_left, BATCH_PIECES);
        guard.local.let_go(&store);
        assert_eq!((used(&store), guard.local.limbo_chunks()), (0, 0));
        assert_eq!(guard.local.pieces_left, BATCH_PIECES - (PIECES - 1_000 - PASS_CHUNKS));
        drop(guard);
        store.check_behind(worker);
    }

    /// What is taken back behind another worker's batch is so many chunks, of which pieces of large values are some.
    #[test]
    fn a_pass_takes_back_so_many_chunks_pieces_of_large_values_among_them() {
        let store = store_of_one();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        delete_large(&store, &mut guard, 3, 400);
        assert_eq!(used(&store), 3 * 401);
        guard.local.pieces_left = BATCH_PIECES;
        guard.local.pass_epochs(&store);
        // Two values, and of the third the head is looked at.
        let left = 401 - (PASS_CHUNKS - 2 * 401 - 1);
        assert_eq!((used(&store), guard.local.limbo_chunks()), (left, 1));
        assert_eq!(guard.local.pieces_left, BATCH_PIECES - (PASS_CHUNKS - 3));
        guard.local.pass_epochs(&store);
        assert_eq!((used(&store), guard.local.limbo_chunks()), (0, 0));
        drop(guard);
        store.check_behind(worker);
    }

    /// An allocation takes back so many chunks as it takes to find one, whether in a step of upkeep or not, and whether that
    /// step, or the batch, may take back any more.
    #[test]
    fn an_allocation_takes_back_some_pieces_of_a_large_value() {
        for step_chunks in [None, Some(0), Some(STEP_CHUNKS)] {
            let store = store_of_one();
            let mut worker = store.worker().unwrap();
            let mut guard = worker.enter(NOW);
            delete_large(&store, &mut guard, 1, PIECES);
            assert_eq!(guard.local.pieces_left, 0);
            guard.local.step_chunks = step_chunks;
            let chunk = guard.local.allocate(&store, ClassId::of(700), 700).expect("there is memory");
            assert_eq!(guard.local.step_chunks.take(), step_chunks);
            // The head is looked at.
            let taken = RECLAIM_CHUNKS - 1;
            assert_eq!((used(&store), guard.local.limbo_chunks()), (PIECES + 2 - taken + 1, 1));
            guard.write_piece_header(chunk, chunk, 700 - 8);
            guard.local.free_unseen(&store, chunk);
            assert_eq!(used(&store), PIECES + 2 - taken);
            drop(guard);
            drop(worker);
            assert_eq!(used(&store), 0);
            store.check();
        }
    }

    /// A long value that is not stored after all comes free as one that was; a shorter one goes at once.
    #[test]
    fn a_long_draft_that_is_given_back_comes_free_some_pieces_at_a_time() {
        for (pieces, waits) in [(PIECES_AT_ONCE - 1, 0), (PIECES_AT_ONCE, 0), (PIECES_AT_ONCE + 1, 1)] {
            let store = store_of_one();
            let mut worker = store.worker().unwrap();
            let mut guard = worker.enter(NOW);
            let key = guard.key(b"key");
            guard.store_value(&key, b"short", &Attributes::default(), Expect::Any).unwrap();
            let value = vec![1; pieces * PIECE_BYTES];
            let mut upload = guard.compose(&key, value.len() as u64, &Attributes::default()).unwrap();
            guard.upload_fill(&mut upload, &value).unwrap();
            assert_eq!(guard.publish(upload, Expect::Absent), Err(Refusal::Present));
            let left = if waits == 0 { 0 } else { pieces + 1 };
            assert_eq!((used(&store), guard.local.limbo_chunks()), (1 + left, waits));
            while guard.maintain() {}
            assert_eq!((used(&store), guard.local.limbo_chunks()), (1, 0));
            drop(guard);
            store.check_behind(worker);
        }
    }

    /// Chunks of spans that are wanted empty go back many under one lock, as far as they are of one class.
    #[test]
    fn what_waits_behind_a_chunk_goes_back_with_it() {
        const KEYS: usize = 2 * RECLAIM_CHUNKS;
        let store =
            Store::new(Config { memory_bytes: 64 << 20, workers_max: 1, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let names: Vec<[u8; 8]> = (0..=KEYS as u64).map(u64::to_be_bytes).collect();
        for (n, name) in names.iter().enumerate() {
            let value = vec![1; if n < KEYS { 100 } else { 300 }];
            let key = guard.key(name);
            guard.store_value(&key, &value, &Attributes::default(), Expect::Any).unwrap();
        }
        let key = guard.key(&names[0]);
        let location = guard.peek(&key).hit().unwrap().slot.location();
        let class = store.class_of_chunk(location);
        let number = Some(Arena::span_of(location));
        assert!(guard.local.start_drain(&store, class, number, false, Purpose::Class));
        for name in &names {
            let key = guard.key(name);
            guard.delete(&key, Expect::Present).unwrap();
        }
        let local = &mut *guard.local;
        local.limbo.seal(&store.epochs);
        for _ in 0..2 {
            store.epochs.enter(local.id);
            assert!(store.epochs.advance());
        }
        assert!(local.limbo.look(&store.epochs));
        let mut give = |more| {
            let chunk = local.limbo.take().expect("there are more");
            make_free(&store, chunk.location(), class);
            let (given, bytes) = local.give_row(&store, chunk.location(), class, more);
            assert_eq!(bytes, given * chunk.requested());
            (given, local.limbo.len())
        };
        assert_eq!(give(0), (0, KEYS));
        assert_eq!(give(3), (3, KEYS - 4));
        assert_eq!(give(KEYS), (RECLAIM_CHUNKS, KEYS - RECLAIM_CHUNKS - 5));
        assert_eq!(give(KEYS), (KEYS - RECLAIM_CHUNKS - 7, 1), "the last is of another class");
    }
}
