//! A shape: what an item will hold, and so how many bytes it takes.

use super::KEY_INLINE_MAX;
use super::header::{EXPIRY, EXTENSION, FLAGS, Header, KEY_LONG};
use crate::class::CHUNK_BYTES_MAX;

/// Bytes that a key takes inside its item.
#[inline]
pub(super) fn key_room(key_bytes: usize) -> usize {
    if key_bytes > KEY_INLINE_MAX { size_of::<*mut u8>() } else { key_bytes }
}

/// Bytes that a key takes on the heap.
#[inline]
pub(crate) fn key_heap_bytes(key_bytes: usize) -> usize {
    if key_bytes > KEY_INLINE_MAX { key_bytes } else { 0 }
}

/// What an item will hold; says how many bytes it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(super) bits: u64,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: u64,
    pub(super) body_offset: usize,
    /// The value is a leaf, and begins at a multiple of 8.
    pub(super) leaf: bool,
}

impl Shape {
    #[inline]
    pub(crate) fn new(
        key_bytes: usize,
        value_bytes: u64,
        flags: u32,
        expiry: bool,
        extension: bool,
    ) -> Shape {
        let bits = if flags != 0 { FLAGS } else { 0 }
            | if expiry { EXPIRY } else { 0 }
            | if extension || key_bytes >= KEY_LONG { EXTENSION } else { 0 };
        let body_offset = Header(bits).body_offset();
        Shape { bits, key_bytes, value_bytes, body_offset, leaf: false }
    }
    /// The shape of a collection with a leaf of so many bytes.
    pub(crate) fn of_leaf(key_bytes: usize, leaf_bytes: usize, expiry: bool, extension: bool) -> Shape {
        let shape = Shape::new(key_bytes, 0, 0, expiry, extension);
        let end = shape.body_offset + key_room(key_bytes);
        let padding = end.next_multiple_of(8) - end;
        Shape { value_bytes: (padding + leaf_bytes) as u64, leaf: true, ..shape }
    }
    /// The value is in pieces.
    #[inline]
    pub(crate) fn large(&self) -> bool {
        // An item with a long key is a large one whatever its value: those are freed with care.
        !self.leaf && (self.whole_bytes() > CHUNK_BYTES_MAX as u64 || self.key_bytes > KEY_INLINE_MAX)
    }
    /// Bytes of the item with its value in place.
    #[inline]
    pub(crate) fn whole_bytes(&self) -> u64 {
        self.body_offset as u64 + key_room(self.key_bytes) as u64 + self.value_bytes
    }
    /// Bytes before the head of a large value, or before a leaf.
    pub(crate) fn head_offset(&self) -> usize {
        (self.body_offset + key_room(self.key_bytes)).next_multiple_of(8)
    }
    pub(crate) fn value_bytes(&self) -> u64 {
        self.value_bytes
    }
}
