//! The values that readers get: a string in one run of bytes or in pieces, or a collection that is not decoded yet.
//!
//! A large value, and a long element of a collection, is pinned where it lies while it is read: [`Pinned`] holds the pin until it
//! is dropped, and [`Pieces`] goes through the bytes of either in order.

use super::view::Item;
use crate::arena::Arena;
use crate::collection::{Collection, PinnedParts, Type};
use crate::dropped::PIECES_AT_ONCE;
use crate::item::RawItem;
use crate::large::{Large, PIECE_BYTES, PieceCursor, piece_value};
use crate::worker::free_alone;
use crate::{Millis, Store};
use std::sync::Arc;

/// An item's value. The length of a string alone decides whether it is whole or in pieces, but for the few bytes around 16 KiB
/// that fit a chunk with a short key and not with a long one.
#[derive(Debug)]
pub enum Value<'g> {
    /// One run of bytes: values up to about 16 KiB, the empty one among them.
    Whole(&'g [u8]),
    /// Two pieces or more, to be pinned before they are read.
    Pieces(InPieces<'g>),
    /// A hash, set, list, sorted set or stream.
    Collection(InLeaf<'g>),
}

/// A large value that is not pinned: its bytes may be written over ([`crate::Guard::patch`]), its length stays.
/// A version noted before it is pinned ([`Item::seen`]) is at most as new as the bytes.
#[derive(Clone, Copy, Debug)]
pub struct InPieces<'g>(pub(super) Item<'g>);

impl InPieces<'_> {
    /// Bytes of the value.
    pub fn value_bytes(&self) -> u64 {
        // SAFETY: `'g` ends before the guard can leave its epoch, and it is a large item.
        unsafe { Large::of(self.0.raw) }.head().value_bytes
    }

    /// Keeps the value as it is while it is read ([`Item::pin`]).
    pub fn pin(&self) -> Pinned {
        self.0.pin()
    }
}

/// A collection whose leaf or root is not decoded yet.
#[derive(Clone, Copy, Debug)]
pub struct InLeaf<'g>(pub(super) Item<'g>);

impl<'g> InLeaf<'g> {
    /// The type of the collection.
    #[inline]
    pub fn kind(&self) -> Type {
        Type::of_form(self.0.header.form())
    }

    /// A field of it expires.
    pub fn is_timed(&self) -> bool {
        self.0.header.is_timed()
    }

    /// Its elements, expired fields of a hash among them.
    #[inline]
    pub fn elements(&self) -> Collection<'g> {
        self.elements_at(0)
    }

    /// Its elements at this time, that of the batch: an expired field is not found by its name.
    #[inline]
    pub fn elements_at(&self, now: Millis) -> Collection<'g> {
        // SAFETY: a collection that was reachable in this epoch, which `'g` ends before.
        unsafe { Collection::of(self.0.raw, self.0.arc, now) }
    }
}

/// Iterator over the pieces of a large value, or the parts of a long element, in order.
#[derive(Debug)]
pub struct Pieces<'g> {
    arena: &'g Arena,
    upcoming: Upcoming<'g>,
    /// Bytes of the first piece to leave out.
    skip: usize,
}

/// Which piece comes next.
#[derive(Debug)]
enum Upcoming<'g> {
    Piece(PieceCursor),
    Part(&'g PinnedParts, usize),
}

impl<'g> Pieces<'g> {
    /// The pieces from byte `offset` on.
    fn of_large(arena: &'g Arena, large: Large, offset: u64) -> Pieces<'g> {
        let whole = offset / PIECE_BYTES as u64;
        let cursor = PieceCursor::at(large, arena, usize::try_from(whole).unwrap_or(usize::MAX));
        let upcoming = Upcoming::Piece(cursor);
        Pieces { arena, upcoming, skip: (offset % PIECE_BYTES as u64) as usize }
    }

    /// The parts from byte `offset` on.
    fn of_parts(arena: &'g Arena, parts: &'g PinnedParts, offset: u64) -> Pieces<'g> {
        let (first, skip) = parts.place(offset);
        Pieces { arena, upcoming: Upcoming::Part(parts, first), skip }
    }
}

impl<'g> Iterator for Pieces<'g> {
    type Item = &'g [u8];
    fn next(&mut self) -> Option<&'g [u8]> {
        let bytes = match &mut self.upcoming {
            Upcoming::Piece(cursor) => {
                let piece = cursor.next(self.arena)?;
                // SAFETY: the maker of this iterator keeps the value alive for `'g`.
                unsafe { piece_value(self.arena, piece) }
            }
            Upcoming::Part(parts, next) => {
                let part = parts.part(self.arena, *next)?;
                *next += 1;
                part
            }
        };
        Some(&bytes[std::mem::take(&mut self.skip)..])
    }
}

/// A large value, or a long element of a collection, kept in place for as long as this lives, whatever happens to its key.
#[derive(Debug)]
pub struct Pinned {
    store: Arc<Store>,
    what: What,
}

/// What is kept in place.
#[derive(Debug)]
enum What {
    /// The large item at this location.
    Item(u64),
    /// The parts of an element.
    Parts(PinnedParts),
}

impl Pinned {
    /// The large item at a location, which has a pin for this.
    pub(super) fn of_item(store: Arc<Store>, location: u64) -> Pinned {
        Pinned { store, what: What::Item(location) }
    }

    /// An element whose parts have pins for this.
    pub(crate) fn of_parts(store: Arc<Store>, parts: PinnedParts) -> Pinned {
        Pinned { store, what: What::Parts(parts) }
    }

    fn large(&self, location: u64) -> Large {
        // SAFETY: the pin keeps the item where it is.
        unsafe { Large::of(RawItem::new(self.store.arena.at(location))) }
    }

    /// Bytes of the value.
    pub fn value_bytes(&self) -> u64 {
        match &self.what {
            What::Item(location) => self.large(*location).head().value_bytes,
            What::Parts(parts) => parts.bytes(),
        }
    }

    /// Bytes of it that connections do not hold any more when this is dropped, as far as is known: what has another pin stays
    /// held.
    pub(crate) fn own_bytes(&self) -> u64 {
        match &self.what {
            What::Item(location) => {
                let head = self.large(*location).head();
                if head.pins.is_only() { head.value_bytes } else { 0 }
            }
            What::Parts(parts) => parts.own_bytes(&self.store.arena),
        }
    }

    /// Chunks that are looked at, or freed, when this is dropped: of a large value whose key is there, or which is left to
    /// workers, the head alone.
    pub(crate) fn chunks_at_once(&self) -> usize {
        match &self.what {
            What::Item(location) => {
                let head = self.large(*location).head();
                let pieces = head.pieces as usize;
                if head.pins.is_dead() && pieces <= PIECES_AT_ONCE { 1 + pieces } else { 1 }
            }
            What::Parts(parts) => parts.count(),
        }
    }

    /// The store that has the value.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The pieces from byte `offset` on, in order.
    pub fn pieces(&self, offset: u64) -> Pieces<'_> {
        let arena = &self.store.arena;
        match &self.what {
            What::Item(location) => Pieces::of_large(arena, self.large(*location), offset),
            What::Parts(parts) => Pieces::of_parts(arena, parts, offset),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        match &self.what {
            What::Item(location) => {
                let large = self.large(*location);
                let bytes = large.head().value_bytes;
                let (last, dead) = large.head().pins.remove();
                if last {
                    self.store.held.pinned(-(bytes as i64));
                }
                if dead {
                    free_alone(&self.store, *location);
                }
            }
            What::Parts(parts) => parts.unpin(&self.store),
        }
    }
}
