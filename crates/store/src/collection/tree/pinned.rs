//! Parts of a string that lies apart, kept in place while they are sent.
//!
//! ```text
//! part   header 8 │ least key 8 │ leaf without entries, up to 16,360 │ pad to 8 │ pins 8
//!                               │ leaf with one row, of a stream
//! ```
//!
//! 1. A reader pins each part of the string by itself, in the epoch in which it has found the tree ([`Pins`]). Leaves, inner
//!    nodes and the root may be replaced then: nothing but the pins is needed to read the parts.
//! 2. A part with pins is not moved. One that has been moved names its copy, and pins go there.
//! 3. A part that its tree does not have any more becomes free when no worker can see it and no pin is left: either the worker
//!    that takes it out of limbo, or takes the tree apart, frees it, or the thread that drops the last pin.
//! 4. A part that waits for its last pin has the header of a node that has moved away: sweeps pass it over, and its tree's number
//!    may be another tree's.
//!
//! Bytes of parts count as what connections hold while they have a pin, each part once. The list of their locations lies on the
//! heap, and is held, too: 8 bytes a part.

use super::apart::PART_BYTES;
use super::strings::parts_of;
use super::{NODE_BYTES, Tree, header_of, leaf_at};
use crate::Store;
use crate::arena::Arena;
use crate::class::CHUNK_BYTES_MAX;
use crate::collection::stream::rows::{Data, PART_BYTES as ROW_PART_BYTES, Rows};
use crate::collection::{Collection, HEAD_BYTES, LongText, Type};
use crate::item::RawItem;
use crate::pin::Pins;
use crate::read::Pinned;
use crate::sync::atomic::Ordering;
use crate::worker::give_alone;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of the pins of a part.
pub(super) const PINS_BYTES: usize = size_of::<Pins>();
const _: () = assert!(PINS_BYTES == 8 && part_node_bytes(HEAD_BYTES + PART_BYTES) <= CHUNK_BYTES_MAX);

/// Bytes of a part whose leaf has so many: its pins are the last of them.
pub(super) const fn part_node_bytes(leaf_bytes: usize) -> usize {
    (NODE_BYTES + leaf_bytes).next_multiple_of(8) + PINS_BYTES
}

/// Has the header of a new node say that it is a part, and gives it no pins.
///
/// # Safety
/// A node of [`part_node_bytes`] is at the location, with its header, and no other thread has it.
pub(super) unsafe fn begin_part(arena: &Arena, location: u64) {
    // SAFETY: the caller's obligation. The pins are aligned: chunks are, to 8, and so is what a part has before them.
    unsafe {
        let node = RawItem::new(arena.at(location));
        let header = node.header().of_part();
        node.header_word().store(header.0, Ordering::Relaxed);
        arena.at(location).add(header.piece_bytes()).cast::<Pins>().write(Pins::new());
    }
}

/// The pins of a part.
///
/// # Safety
/// A part is at the location, which the caller can reach in this epoch, has pinned, or owns.
pub(crate) unsafe fn part_pins<'a>(arena: &Arena, location: u64) -> &'a Pins {
    // SAFETY: the caller's obligation. The header says how many bytes follow it, the last of which are the pins, whatever else it
    // says by now; they are only accessed atomically.
    unsafe {
        let at = header_of(arena, location).piece_bytes();
        arena.at(location).add(at).cast::<Pins>().as_ref()
    }
}

/// Whether a node that no worker can see any more is to be freed now. A part that has pins is not: the last of them frees it.
///
/// # Safety
/// A node is at the location, which this worker alone would free.
pub(crate) unsafe fn is_let_go(store: &Store, location: u64) -> bool {
    // SAFETY: the caller's obligation.
    unsafe {
        let node = RawItem::new(store.arena.at(location));
        let header = node.header();
        if !header.is_part() {
            return true;
        }
        // Before the pins say that it is dead: from then on it is the chunk of the thread that drops the last one.
        node.header_word().store(header.moved_piece().0, Ordering::Release);
        part_pins(&store.arena, location).kill()
    }
}

/// The parts of one string, each of which has a pin for this.
#[derive(Debug)]
pub(crate) struct PinnedParts {
    /// In the order of the string.
    locations: Box<[u64]>,
    bytes: u64,
    /// What all but the last have of them.
    each_bytes: usize,
}

impl PinnedParts {
    /// Adds a pin to each of the parts of a string of so many bytes, all of which but the last have as many.
    ///
    /// # Safety
    /// The parts were found at these locations in this epoch.
    unsafe fn pin(
        store: &Store,
        mut locations: Vec<u64>,
        (bytes, each_bytes): (usize, usize),
    ) -> PinnedParts {
        let mut first_bytes = 0;
        for (i, location) in locations.iter_mut().enumerate() {
            let only = loop {
                // SAFETY: the caller's obligation, or the copy of such a part, which became the tree's in this epoch: neither is
                // used for anything else before the epoch is over.
                match unsafe { part_pins(&store.arena, *location) }.add() {
                    Ok(only) => break only,
                    Err(moved) => *location = moved,
                }
            };
            if only {
                first_bytes += each_bytes.min(bytes - i * each_bytes);
            }
        }
        let parts = PinnedParts { locations: locations.into_boxed_slice(), bytes: bytes as u64, each_bytes };
        store.held.pinned(first_bytes as i64);
        store.hold(parts.list_bytes());
        parts
    }

    /// Drops the pins. Done once, when the parts are not read any more.
    pub(crate) fn unpin(&self, store: &Store) {
        let (mut last_bytes, mut gone) = (0, Vec::new());
        for (i, &location) in self.locations.iter().enumerate() {
            // SAFETY: the pin has kept the part where it is.
            let (last, dead) = unsafe { part_pins(&store.arena, location) }.remove();
            if last {
                last_bytes += self.part_bytes(i);
            }
            if dead {
                gone.push(location);
            }
        }
        give_alone(store, &gone);
        store.held.pinned(-(last_bytes as i64));
        store.hold(-self.list_bytes());
    }

    /// Bytes of the string.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the parts that have no other pin, as far as is known: those that connections do not hold any more when this one
    /// is dropped.
    pub(crate) fn own_bytes(&self, arena: &Arena) -> u64 {
        let own = |(i, location): (usize, &u64)| {
            // SAFETY: the pin keeps the part where it is.
            let is_only = unsafe { part_pins(arena, *location) }.is_only();
            if is_only { self.part_bytes(i) } else { 0 }
        };
        self.locations.iter().enumerate().map(own).sum::<usize>() as u64
    }

    /// Bytes of the nth part.
    fn part_bytes(&self, n: usize) -> usize {
        self.each_bytes.min(self.bytes as usize - n * self.each_bytes)
    }

    /// How many parts it has.
    pub(crate) fn count(&self) -> usize {
        self.locations.len()
    }

    /// Which part has the byte at an offset, and how many bytes of the part are in front of it.
    pub(crate) fn place(&self, offset: u64) -> (usize, usize) {
        let part = self.each_bytes as u64;
        ((offset / part) as usize, (offset % part) as usize)
    }

    /// The bytes of the nth part, if there is one.
    pub(crate) fn part<'a>(&'a self, arena: &Arena, n: usize) -> Option<&'a [u8]> {
        let location = *self.locations.get(n)?;
        // SAFETY: the pin keeps the part where it is, for as long as this lives, and its leaf never changes.
        let leaf = unsafe { leaf_at(arena, location) };
        if leaf.kind() != Type::Stream {
            return Some(leaf.payload);
        }
        let Data::Part(part) = Rows::of(&leaf).next()?.data else { unreachable!("it is a part") };
        Some(part)
    }

    /// Bytes of the list of locations.
    fn list_bytes(&self) -> i64 {
        size_of_val(&*self.locations) as i64
    }
}

/// A value of an entry of a stream, kept in place while it is sent.
#[derive(Debug)]
pub struct PinnedValue<'g> {
    /// Its parts, but for the last, if that lies beside something else.
    pub parts: Pinned,
    /// What that one has.
    pub rest: &'g [u8],
}

impl<'g> Tree<'g> {
    /// Keeps the rows at some places in place while they are sent, which are the parts of a value of so many bytes, unless
    /// connections hold their share of the memory. A part that has a leaf for itself is one with pins: all but the last have.
    ///
    /// # Panics
    /// If they are no such rows, or the tree is another store's.
    pub(in crate::collection) fn pin_rows(
        &self,
        store: &Arc<Store>,
        places: Range<usize>,
        bytes: usize,
    ) -> Option<PinnedValue<'g>> {
        assert!(std::ptr::eq(Arc::as_ptr(store), self.store), "a stream of this store");
        let (mut locations, mut more_bytes) = (Vec::with_capacity(places.len()), 0);
        let mut rest: &[u8] = &[];
        for place in places.clone() {
            let (location, before) = self.location_with(place);
            let row = Rows::of(&self.leaf(location)).nth(place - before).expect("a row of this leaf");
            let Data::Part(part) = row.data else { unreachable!("each value has its parts") };
            // SAFETY: a node of this tree, of the epoch that `'g` ends before.
            let is_part = unsafe { header_of(&store.arena, location) }.is_part();
            if !is_part {
                if place + 1 < places.end {
                    return None;
                }
                rest = part;
                break;
            }
            // SAFETY: as above, and a part.
            if !unsafe { part_pins(&store.arena, location) }.any() {
                more_bytes += part.len() as u64;
            }
            locations.push(location);
        }
        // What is being sent to another already takes no more memory for this one.
        if locations.is_empty() || more_bytes > 0 && !store.may_pin(more_bytes) {
            return None;
        }
        // SAFETY: the parts were found in this epoch.
        let parts = unsafe { PinnedParts::pin(store, locations, (bytes - rest.len(), ROW_PART_BYTES)) };
        Some(PinnedValue { parts: Pinned::of_parts(Arc::clone(store), parts), rest })
    }
}

impl Collection<'_> {
    /// Keeps an element of this collection that lies apart in place while it is sent, unless connections hold their share of the
    /// memory. `store` is that of the collection.
    ///
    /// # Panics
    /// If the element is another collection's, or the collection is another store's.
    pub fn pin_for_reply(&self, store: &Arc<Store>, apart: &LongText<'_>) -> Option<Pinned> {
        let arena = &self.store.arena;
        let mut more_bytes = 0;
        let mut parts = self.parts(apart);
        while let Some((location, part)) = parts.step() {
            // SAFETY: a node of this tree, of the epoch that the collection ends before.
            let header = unsafe { header_of(arena, location) };
            assert!(header.is_part(), "an element of this collection");
            // SAFETY: as above, and a part.
            if !unsafe { part_pins(arena, location) }.any() {
                more_bytes += part.len() as u64;
            }
        }
        // What is being sent to another already takes no more memory for this one.
        (more_bytes == 0 || store.may_pin(more_bytes)).then(|| self.pin(store, apart))
    }

    /// The same whatever connections hold: for what [`Store::may_pin`] was asked about before.
    ///
    /// # Panics
    /// As there.
    pub fn pin(&self, store: &Arc<Store>, apart: &LongText<'_>) -> Pinned {
        assert!(std::ptr::eq(Arc::as_ptr(store), self.store), "a collection of this store");
        let mut locations = Vec::with_capacity(parts_of(apart.len()));
        let mut parts = self.parts(apart);
        while let Some((location, _)) = parts.step() {
            // SAFETY: a node of this tree, of the epoch that the collection ends before.
            let header = unsafe { header_of(&store.arena, location) };
            assert!(header.is_part(), "an element of this collection");
            locations.push(location);
        }
        assert_eq!(locations.len(), parts_of(apart.len()), "parts of one element");
        // SAFETY: the parts were found in this epoch, which the collection ends before.
        let parts = unsafe { PinnedParts::pin(store, locations, (apart.len(), PART_BYTES)) };
        Pinned::of_parts(Arc::clone(store), parts)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::super::tests::{NOW, move_all, store};
    use super::*;
    use crate::collection::ScoreRule;
    use crate::worker::Guard;
    use crate::{Attributes, End, Expect, Key, Worker};

    const BYTES: usize = 20_000;
    /// What a pin of one element of so many bytes has on the heap.
    const LIST_BYTES: u64 = (BYTES.div_ceil(PART_BYTES) * 8) as u64;

    /// A string of so many bytes, no part of which is like another.
    fn text_of(bytes: usize) -> Vec<u8> {
        (0..bytes as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    fn bytes_of(pinned: &Pinned, offset: u64) -> Vec<u8> {
        pinned.pieces(offset).flatten().copied().collect()
    }

    /// What lies apart of the first entry of a collection.
    fn first_apart<'g>(there: &Collection<'g>) -> LongText<'g> {
        there.entry(0).apart().expect("it is long")
    }

    fn pin(store: &Arc<Store>, guard: &mut Guard<'_>, key: &Key<'_>, kind: Type) -> Option<Pinned> {
        let there = guard.collection(key, kind).unwrap().unwrap();
        there.pin_for_reply(store, &first_apart(&there))
    }

    fn push(guard: &mut Guard<'_>, key: &Key<'_>, element: &[u8]) {
        guard.list_push(key, End::Back, [element].into_iter(), false).unwrap();
    }

    /// Has everything that may be freed be freed.
    fn reclaim_all(worker: &mut Worker) {
        for _ in 0..4 {
            worker.rest();
            for _ in 0..32 {
                worker.enter(NOW).maintain();
            }
        }
    }

    /// Where the parts of the first element lie.
    fn locations_of(there: &Collection<'_>) -> Vec<u64> {
        let mut parts = there.parts(&first_apart(there));
        std::iter::from_fn(|| parts.step().map(|(location, _)| location)).collect()
    }

    #[test]
    fn parts_stay_until_the_last_pin_is_dropped_whatever_becomes_of_their_key() {
        for end in 0..4 {
            let (store, mut worker) = store(16);
            let text = text_of(BYTES);
            let mut guard = worker.enter(NOW);
            let (key, other) = (guard.key(b"key"), guard.key(b"other"));
            push(&mut guard, &key, &text);
            // What is left when it is popped is a tree.
            (0..10).for_each(|_| push(&mut guard, &key, &[b'x'; 300]));
            let pins = [(); 2].map(|()| pin(&store, &mut guard, &key, Type::List).unwrap());
            assert_eq!(store.held_bytes(), BYTES as u64 + 2 * LIST_BYTES, "each part counts once");
            match end {
                0 => guard.delete(&key, Expect::Present).unwrap(),
                1 => _ = guard.store_value(&key, b"a string", &Attributes::default(), Expect::Any).unwrap(),
                2 => assert!(guard.list_pop(&key, End::Front, 1).unwrap().is_some()),
                // The copy has pins of its own: none.
                _ => assert!(guard.collection_copy(&key, &other, Expect::Any).unwrap().is_ok()),
            }
            drop(guard);
            reclaim_all(&mut worker);
            // What was freed is written over.
            let mut guard = worker.enter(NOW);
            for n in 0..100_u8 {
                let name = [n];
                let key = guard.key(&name);
                guard.store_value(&key, &[n; 700], &Attributes::default(), Expect::Any).unwrap();
            }
            drop(guard);
            let [one, two] = pins;
            for offset in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, BYTES - 1, BYTES] {
                assert_eq!(bytes_of(&one, offset as u64), text[offset..], "{end}: {offset}");
            }
            assert_eq!(one.value_bytes(), BYTES as u64);
            drop(one);
            assert_eq!(store.held_bytes(), BYTES as u64 + LIST_BYTES);
            assert_eq!(bytes_of(&two, 0), text);
            drop(two);
            assert_eq!(store.held_bytes(), 0);
            let mut guard = worker.enter(NOW);
            for key in [key, other] {
                // It may be gone already.
                _ = guard.delete(&key, Expect::Present);
            }
            drop(guard);
            reclaim_all(&mut worker);
            assert_eq!(store.trees.count(), 0);
            drop(worker);
            // No chunk is lost, and none is freed twice.
            store.check();
        }
    }

    #[test]
    fn pins_go_to_where_a_part_was_moved_and_a_part_with_pins_stays() {
        let (store, mut mover) = store(16);
        let mut reader = store.worker().unwrap();
        let text = text_of(BYTES);
        let mut guard = mover.enter(NOW);
        let key = guard.key(b"key");
        push(&mut guard, &key, &text);
        drop(guard);
        let mut guard = reader.enter(NOW);
        let key = guard.key(b"key");
        let there = guard.collection(&key, Type::List).unwrap().unwrap();
        let before = locations_of(&there);
        // Where the tree has them now, the nodes above which were moved, too.
        let moved = |mover: &mut Worker| {
            let mut guard = mover.enter(NOW);
            move_all(&store, &mut guard);
            let key = guard.key(b"key");
            locations_of(&guard.collection(&key, Type::List).unwrap().unwrap())
        };
        let after = moved(&mut mover);
        assert!(before.iter().zip(&after).all(|(before, after)| before != after), "all were moved");
        // SAFETY: they were found in this epoch.
        let parts = unsafe { PinnedParts::pin(&store, before, (BYTES, PART_BYTES)) };
        assert_eq!(*parts.locations, *after);
        let pinned = Pinned::of_parts(Arc::clone(&store), parts);
        assert_eq!(moved(&mut mover), after);
        assert_eq!(bytes_of(&pinned, 0), text);
        drop(pinned);
        assert_eq!(store.held_bytes(), 0);
        let last = moved(&mut mover);
        assert!(after.iter().zip(&last).all(|(before, after)| before != after), "all were moved again");
        drop(guard);
        drop((mover, reader));
        store.check();
    }

    #[test]
    fn parts_are_pinned_up_to_the_share_of_connections() {
        let (store, mut worker) = store(16);
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        push(&mut guard, &key, &text_of(BYTES));
        let free = |bytes: u64| (store.held_bytes_max() - store.held_bytes() - bytes) as i64;
        for (left, may) in [(BYTES as u64 + 1, true), (BYTES as u64, true), (BYTES as u64 - 1, false)] {
            let bytes = free(left);
            store.hold(bytes);
            let held = store.held_bytes();
            let pinned = pin(&store, &mut guard, &key, Type::List);
            assert_eq!((pinned.is_some(), store.take_refusal()), (may, !may), "{left}");
            if pinned.is_none() {
                assert_eq!(store.held_bytes(), held, "nothing is held");
            }
            // What is sent to another already takes no more.
            assert_eq!(pin(&store, &mut guard, &key, Type::List).is_some(), may);
            drop(pinned);
            assert_eq!(store.held_bytes(), held);
            store.hold(-bytes);
            store.take_refusal();
        }
    }

    #[test]
    fn values_and_members_are_pinned_as_elements_are() {
        let (store, mut worker) = store(16);
        let text = text_of(BYTES);
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        for kind in [Type::Hash, Type::Set, Type::SortedSet] {
            match kind {
                Type::Hash => _ = guard.hash_set(&key, [(&b"field"[..], &text[..])].into_iter()).unwrap(),
                Type::Set => _ = guard.set_add(&key, [&text[..]].into_iter()).unwrap(),
                Type::SortedSet | Type::List | Type::Stream => {
                    let pair = [(1.0, &text[..])].into_iter();
                    assert_eq!(guard.sorted_add(&key, ScoreRule::default(), pair).unwrap().new, 1);
                }
            }
            let pinned = pin(&store, &mut guard, &key, kind).unwrap();
            move_all(&store, &mut guard);
            guard.delete(&key, Expect::Present).unwrap();
            assert_eq!(bytes_of(&pinned, 0), text, "{kind:?}");
            drop(pinned);
            assert_eq!(store.held_bytes(), 0);
        }
        drop(guard);
        store.check_behind(worker);
    }
}
