//! Sizes of a collection: what its header says with the head of its leaf, or with its root.

use super::RawItem;
use super::header::Header;
use super::shape::key_heap_bytes;
use crate::collection::{HEAD_BYTES, ROOT_BYTES, Root, leaf_bytes, leaf_entries};

impl RawItem {
    /// Bytes of the leaf, or of the root, of a collection with this header.
    ///
    /// # Safety
    /// As for [`RawItem::leaf`].
    pub(crate) unsafe fn leaf_bytes(self, header: Header) -> usize {
        debug_assert!(header.is_collection());
        if header.is_tree() {
            return ROOT_BYTES;
        }
        // SAFETY: as for `leaf`.
        leaf_bytes(unsafe { self.head_at(self.leaf_offset(header)) })
    }

    /// Bytes of a collection with this header, all of its chunk.
    ///
    /// # Safety
    /// As for [`RawItem::leaf`].
    pub(crate) unsafe fn collection_bytes(self, header: Header) -> usize {
        // SAFETY: the caller's promise.
        self.leaf_offset(header) + unsafe { self.leaf_bytes(header) }
    }

    /// Elements of a collection with this header, and bytes of all that it has, its key with them.
    ///
    /// # Safety
    /// As for [`RawItem::leaf`], or for [`RawItem::root`].
    #[inline]
    pub(crate) unsafe fn collection_sizes(self, header: Header) -> (u64, u64) {
        let at = self.leaf_offset(header);
        // SAFETY: the caller's promise.
        unsafe { self.sizes_at(header, at, self.beside_bytes(header)) }
    }

    /// As [`RawItem::collection_sizes`], for `was` and for this collection with this header, which took its place. None if
    /// the heads of two leaves are the same: then the sizes are, too.
    ///
    /// # Safety
    /// As for [`RawItem::collection_sizes`], of both. They have one key, and headers that are [`Header::is_laid_out_as`].
    #[inline]
    pub(crate) unsafe fn changed_sizes(self, was: RawItem, header: Header) -> Option<[(u64, u64); 2]> {
        let at = self.leaf_offset(header);
        // SAFETY: what is laid out alike behind one key begins at the same place.
        unsafe {
            if !header.is_tree() && was.head_at(at) == self.head_at(at) {
                return None;
            }
            let beside = self.beside_bytes(header);
            Some([was.sizes_at(header, at, beside), self.sizes_at(header, at, beside)])
        }
    }

    /// Bytes of its key on the heap.
    #[inline]
    fn beside_bytes(self, header: Header) -> usize {
        key_heap_bytes(self.key_bytes(header))
    }

    /// Elements and bytes of a collection with this header, whose leaf or root begins at byte `at`; `beside`: bytes of its
    /// key on the heap.
    ///
    /// # Safety
    /// As for [`RawItem::collection_sizes`].
    #[inline(always)]
    unsafe fn sizes_at(self, header: Header, at: usize, beside: usize) -> (u64, u64) {
        let own = (at + beside) as u64;
        if header.is_tree() {
            // SAFETY: a tree has its root there, inside the chunk and aligned to 8.
            let root = unsafe { self.0.add(at).cast::<Root>().as_ref() };
            return (root.elements, own + ROOT_BYTES as u64 + root.bytes);
        }
        // SAFETY: the caller's promise.
        let head = unsafe { self.head_at(at) };
        (leaf_entries(head) as u64, own + leaf_bytes(head) as u64)
    }

    /// The head of the leaf that begins at this byte.
    ///
    /// # Safety
    /// As for [`RawItem::leaf`].
    #[inline(always)]
    unsafe fn head_at(self, at: usize) -> [u8; HEAD_BYTES] {
        // SAFETY: a leaf is there, and begins with a head: the caller's promise.
        unsafe { self.0.add(at).cast::<[u8; HEAD_BYTES]>().read() }
    }
}
