//! The owner of a chunk: the item that lies in it, or has it as a piece or a node, as a sweep over a span finds out.
//!
//! ```text
//! item    header says so                                  its own
//! piece   header ─▶ head's header ─▶ its own header again   the head's item, if both say what they said
//! node    header ─▶ number ─▶ index                         the item that has the tree: `collection/tree/own.rs`
//! ```
//!
//! A sweep holds the lock of the chunk's class and is inside an epoch. What it sees as an item stays one for that
//! epoch, since only a retired one is on its way out. But a piece is not marked when its value is retired: a value
//! that went before this epoch began may be freed between two loads, and the place of its head be another item's, or
//! the middle of one of another class. So the piece is read again behind the head; and what follows from it is done
//! under the lock of the item's bucket, and only if the item names the piece ([`has`]), which may have moved meanwhile.

use crate::Store;
use crate::arena::Arena;
use crate::collection::{first_leaf, node_word_of, owner_of_node};
use crate::item::{Header, Kind, RawItem};
use crate::large::Large;
use crate::sync::atomic::AtomicU64;

/// The item that has the chunk at a location, as its own or as a piece; none if there is none, or it is not published
/// yet. An item of this epoch, whether or not it has the chunk by now.
///
/// # Safety
/// The chunk is carved, and the caller holds its class's lock.
pub(crate) unsafe fn owner_at(store: &Store, location: u64) -> Option<u64> {
    let arena = &store.arena;
    // SAFETY: carved chunks have a header word.
    let header = unsafe { RawItem::new(arena.at(location)) }.header();
    if header.is_item() {
        return Some(location);
    }
    if header.is_node() {
        return owner_of_node(store, header.node_number());
    }
    // SAFETY: the caller's obligation; the header was read from there.
    if header.is_piece() { unsafe { owner_of_piece(arena, location, header) } } else { None }
}

/// The item whose piece the chunk at a location is, given what its header said.
///
/// # Safety
/// As for [`owner_at`].
unsafe fn owner_of_piece(arena: &Arena, location: u64, piece: Header) -> Option<u64> {
    let owner = piece.piece_owner();
    // SAFETY: 1. Both are places in the arena, whose memory is there at all times. 2. What the head's place holds is
    // believed only if the piece is one of it still, that is, it had not been freed: both loads acquire, and the thread that
    // frees a value writes to its pieces before its head's place is another's.
    let (header, again) =
        unsafe { (RawItem::new(arena.at(owner)).header(), RawItem::new(arena.at(location)).header()) };
    (again == piece && header.is_item() && header.is_large()).then_some(owner)
}

/// True if the item at `owner` has the chunk at `location`: as its own, or it names it as a piece, a table of pieces, or a node.
///
/// # Safety
/// The item is reachable, and the caller holds the lock of its home bucket.
pub(crate) unsafe fn has(store: &Store, owner: u64, location: u64) -> bool {
    // SAFETY: under the lock it stays reachable, and of its kind.
    let item = unsafe { RawItem::new(store.arena.at(owner)) };
    // SAFETY: the caller's obligation.
    owner == location || unsafe { word_of(store, item, location) }.is_some()
}

/// The word of an item that names a piece, or a node, at a location; none if it has none there.
///
/// # Safety
/// As for [`has`].
pub(crate) unsafe fn word_of(store: &Store, item: RawItem, location: u64) -> Option<&AtomicU64> {
    // SAFETY: the caller's obligation; pieces and nodes move under the lock alone.
    unsafe {
        match item.header().kind() {
            Kind::Large => Large::of(item).word_of(&store.arena, location),
            Kind::Collection if item.header().is_tree() => node_word_of(store, item, location),
            Kind::Free | Kind::Draft | Kind::Whole | Kind::Piece | Kind::Collection => None,
        }
    }
}

/// The place of an item's memory by which it is judged, if that is not its own chunk: the first piece of a large value,
/// the first leaf of a tree.
///
/// # Safety
/// The item is reachable in this epoch.
pub(crate) unsafe fn judged_at(store: &Store, item: RawItem) -> Option<u64> {
    // SAFETY: the caller's obligation.
    unsafe {
        match item.header().kind() {
            Kind::Large => Large::of(item).first_piece(),
            Kind::Collection if item.header().is_tree() => Some(first_leaf(store, item)),
            Kind::Free | Kind::Draft | Kind::Whole | Kind::Piece | Kind::Collection => None,
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::class::{CHUNK_BYTES_MAX, ClassId};
    use crate::drain::Purpose;
    use crate::worker::{Guard, Worker, chunk_facts};
    use crate::{Attributes, Config, Expect, Store};
    use std::sync::Arc;

    const NOW: u64 = 1_700_000_000_000;
    /// A piece and a short one.
    const LARGE_BYTES: usize = 16_376 + 4_000;

    fn store() -> (Arc<Store>, Worker) {
        let config = Config { memory_bytes: 8 << 20, workers_max: 1, ..Config::default() };
        let store = Store::new(config).unwrap();
        let worker = store.worker().unwrap();
        (store, worker)
    }

    /// Stores a value; where its item is.
    fn set(guard: &mut Guard<'_>, name: &str, value: &[u8]) -> u64 {
        let key = guard.key(name.as_bytes());
        guard.store_value(&key, value, &Attributes::default(), Expect::Any).unwrap();
        location(guard, name).expect("it was just stored")
    }

    fn location(guard: &mut Guard<'_>, name: &str) -> Option<u64> {
        let key = guard.key(name.as_bytes());
        guard.peek(&key).hit().map(|item| item.slot.location())
    }

    /// The first piece of the large value at a location.
    fn first_piece(store: &Store, location: u64) -> u64 {
        // SAFETY: the tests have large values there.
        unsafe { Large::of(RawItem::new(store.arena.at(location))) }.first_piece().unwrap()
    }

    #[test]
    fn a_piece_whose_value_was_freed_behind_the_first_look_is_nobodys() {
        let (store, mut worker) = store();
        let mut guard = worker.enter(NOW);
        let owner = set(&mut guard, "large", &[1; LARGE_BYTES]);
        let piece = first_piece(&store, owner);
        // SAFETY: a piece of a value, as all below.
        let seen = unsafe { RawItem::new(store.arena.at(piece)) }.header();
        let owner_now = || {
            let _class = store.slabs.class(ClassId::of(CHUNK_BYTES_MAX));
            // SAFETY: the chunk is carved, and its class is locked.
            unsafe { owner_of_piece(&store.arena, piece, seen) }
        };
        assert_eq!(owner_now(), Some(owner));

        // 1. Deleted, it is on its way out, and its head says so.
        let key = guard.key(b"large");
        guard.delete(&key, Expect::Present).unwrap();
        assert_eq!(owner_now(), None);

        // 2. Freed; its piece is another's, and its head's place that of a small item, then of a large one.
        guard.local.pass_epochs(&store);
        let class = ClassId::of(CHUNK_BYTES_MAX);
        let mut taken = std::iter::from_fn(|| guard.local.allocate(&store, class, CHUNK_BYTES_MAX));
        assert!(taken.by_ref().take(100).any(|chunk| chunk == piece), "the piece is used again");
        let bytes = chunk_facts(&store.arena, owner).0.chunk_bytes() - 16;
        let small = (0..1_000)
            .map(|n| format!("{n:08}"))
            .find(|name| set(&mut guard, name, &vec![2; bytes]) == owner);
        assert_eq!(owner_now(), None);
        let key = small.expect("the place of the head is used again");
        let key = guard.key(key.as_bytes());
        guard.delete(&key, Expect::Present).unwrap();
        guard.local.pass_epochs(&store);
        assert_eq!(set(&mut guard, "other", &[4; LARGE_BYTES]), owner);
        assert_eq!(owner_now(), None);
    }

    /// Drains the span of a chunk whose header says that it is a piece of an item, which `set` stores and which does
    /// not name it.
    fn drain_beside(chunk_bytes: usize, keep: bool, set: impl Fn(&mut Guard<'_>, u64) -> u64) {
        let (store, mut worker) = store();
        let class = ClassId::of(chunk_bytes);
        let mut guard = worker.enter(NOW);
        let chunk = guard.local.allocate(&store, class, chunk_bytes).unwrap();
        let owner = set(&mut guard, chunk);
        guard.write_piece_header(chunk, owner, chunk_bytes - 8);
        let number = Some(Arena::span_of(chunk));
        assert!(guard.local.start_drain(&store, class, number, keep, Purpose::Class));
        while guard.local.drain_step(&store, usize::MAX) {}
        guard.local.stop_drains(&store);
        // SAFETY: the chunk is the test's.
        let header = unsafe { RawItem::new(store.arena.at(chunk)) }.header();
        assert_eq!((header.is_piece(), header.piece_owner()), (true, owner), "nobody's piece stays");
        assert_eq!(location(&mut guard, "the name"), Some(owner), "and the item that it is not of");
        guard.local.free_unseen(&store, chunk);
        drop(guard);
        store.check_behind(worker);
    }

    #[test]
    fn a_drain_takes_no_part_of_a_small_value_for_the_table_of_a_large_one() {
        drain_beside(CHUNK_BYTES_MAX, true, |guard, chunk| {
            // Bytes of the value, pins; one piece and one in this table; no other table; the piece.
            let value = [16_376, 0, 1 | 1 << 32, 0, chunk].map(u64::to_le_bytes).concat();
            set(guard, "the name", &value)
        });
    }

    #[test]
    fn a_drain_evicts_nothing_for_a_piece_that_is_not_its() {
        // Its own pieces are elsewhere.
        drain_beside(1024, false, |guard, _| set(guard, "the name", &[3; LARGE_BYTES]));
    }

    #[test]
    fn a_span_that_is_cleared_at_any_price_loses_what_is_in_it_alone() {
        let (store, mut worker) = store();
        let mut guard = worker.enter(NOW);
        let class = ClassId::of(CHUNK_BYTES_MAX);
        let chunk = guard.local.allocate(&store, class, CHUNK_BYTES_MAX).unwrap();
        let owner = set(&mut guard, "the name", &[3; 100]);
        guard.write_piece_header(chunk, owner, CHUNK_BYTES_MAX - 8);
        assert!(!guard.local.evict_at(&store, owner, chunk), "it has no piece there");
        assert!(guard.local.evict_at(&store, owner, owner));
        let owner = set(&mut guard, "the name", &[3; LARGE_BYTES]);
        assert!(!guard.local.evict_at(&store, owner, chunk), "nor has this one");
        let piece = first_piece(&store, owner);
        assert!(guard.local.evict_at(&store, owner, piece));
        guard.local.free_unseen(&store, chunk);
        drop(guard);
        store.check_behind(worker);
    }
}
