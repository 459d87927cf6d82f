//! An item: one chunk, only what is present.
//!
//! ```text
//! header      8   always
//! expiry      8   absolute milliseconds; present if the item may expire
//! extension  16   explicit CAS token 8, key length 4, database 1, unused 3
//! flags       4   if not 0
//! key         n   above 8 KiB: the address of a copy on the heap
//! value       n   in place up to about 16 KiB; else, 8-byte aligned, the head of a large value
//!                 of a collection, 8-byte aligned, its leaf, or the root of its tree
//! ```
//!
//! Key, value and flags never change after the item was published. The header's marks and version
//! and the expiry are atomic words, changed in place under the home bucket's lock (`FETCHED` by
//! any reader). `header.rs` draws the header, `fill.rs` writes what is behind it, `sizes.rs` says how large a collection is.

mod fill;
mod header;
mod shape;
mod sizes;

pub(crate) use header::{
    DRAFT_LARGE, EXPIRY, EXTENSION, FETCHED, FLAGS, Header, KEY_BINARY, Kind, STALE, TOKEN_SENT,
};
pub(crate) use shape::{Shape, key_heap_bytes};

use crate::Millis;
use crate::collection::{HEAD_BYTES, Leaf, Root, leaf_bytes};
use crate::sync::atomic::{AtomicU64, Ordering};
use header::{KEY_LONG, KEY_SHIFT};
use shape::key_room;
use std::ptr::NonNull;

/// The longest key whose length the header can say.
pub(crate) const KEY_BYTES_SHORT: usize = KEY_LONG - 1;
/// Longer keys lie on the heap, so that the head of an item fits a chunk.
const KEY_INLINE_MAX: usize = 8 << 10;
/// Bits of the key's hash in a CAS token, below the version.
const TOKEN_HASH_BITS: u32 = 18;

/// The earlier of two times, of which 0 is never.
#[inline]
pub(crate) fn earlier(one: Millis, other: Millis) -> Millis {
    if one == 0 || other == 0 { one | other } else { one.min(other) }
}

/// The wire token of the `writes`-th write in the home bucket of a key with this hash.
#[inline]
pub(crate) fn token(writes: u64, hash: u64) -> u64 {
    writes << TOKEN_HASH_BITS | hash & ((1 << TOKEN_HASH_BITS) - 1)
}

/// A chunk seen as an item. Copying it copies the pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawItem(NonNull<u8>);

impl RawItem {
    /// # Safety
    /// `chunk` points to a chunk whose header word is initialised, and which is not used for
    /// anything else while the value is in use: the caller is inside an epoch in which the chunk
    /// was reachable, or owns the chunk.
    #[inline]
    pub(crate) unsafe fn new(chunk: NonNull<u8>) -> RawItem {
        RawItem(chunk)
    }

    #[inline]
    pub(crate) fn address(self) -> *mut u8 {
        self.0.as_ptr()
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8));
        // SAFETY: 1. Chunks are 8-byte aligned and at least 16 bytes; callers pass offsets of words
        // that the header says exist. 2. These words are only accessed atomically.
        unsafe { self.0.add(offset).cast::<AtomicU64>().as_ref() }
    }

    /// The header word.
    #[inline]
    pub(crate) fn header_word(&self) -> &AtomicU64 {
        self.word(0)
    }

    #[inline]
    pub(crate) fn header(self) -> Header {
        Header(self.header_word().load(Ordering::Acquire))
    }

    /// Absolute expiry; 0 is never.
    #[inline]
    pub(crate) fn expires_at(self) -> Millis {
        if self.header().has(EXPIRY) { self.word(8).load(Ordering::Relaxed) } else { 0 }
    }

    #[inline]
    pub(crate) fn expired(self, now: Millis) -> bool {
        self.expired_by(self.header(), now)
    }

    /// As [`RawItem::expired`], with the header at hand.
    #[inline]
    pub(crate) fn expired_by(self, header: Header, now: Millis) -> bool {
        if !header.has(EXPIRY) {
            return false;
        }
        let at = self.word(8).load(Ordering::Relaxed);
        at != 0 && at <= now
    }

    /// When the first field of a hash with this header expires.
    ///
    /// # Safety
    /// As for [`RawItem::leaf`]; a field expires.
    pub(crate) unsafe fn soonest(self, header: Header) -> Millis {
        debug_assert!(header.is_timed());
        // SAFETY: the caller's promise.
        unsafe { if header.is_tree() { self.root(header).soonest() } else { self.leaf(header).soonest() } }
    }

    /// True if a field of a hash with this header is to be taken out.
    ///
    /// # Safety
    /// As for [`RawItem::soonest`].
    pub(crate) unsafe fn has_due(self, header: Header, now: Millis) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if header.is_tree() { self.root(header).is_due(now) } else { self.leaf(header).soonest() <= now }
        }
    }

    /// When there is something to do for its time: when it expires, or the first of its fields does; 0 is never.
    ///
    /// # Safety
    /// As for [`RawItem::new`].
    pub(crate) unsafe fn due_at(self) -> Millis {
        let (header, expires_at) = (self.header(), self.expires_at());
        if !header.is_timed() {
            return expires_at;
        }
        // SAFETY: the caller's promise.
        earlier(expires_at, unsafe { self.soonest(header) })
    }

    /// Sets the expiry of an item that has the word.
    pub(crate) fn set_expires_at(self, at: Millis) {
        debug_assert!(self.header().has(EXPIRY));
        self.word(8).store(at, Ordering::Relaxed);
    }

    fn extension_offset(header: Header) -> usize {
        8 + if header.has(EXPIRY) { 8 } else { 0 }
    }

    #[inline]
    pub(crate) fn flags(self, header: Header) -> u32 {
        if !header.has(FLAGS) {
            return 0;
        }
        // SAFETY: the header says that four bytes of flags end where the key starts; they are
        // written before publication and never change.
        unsafe { self.0.add(header.body_offset() - 4).cast::<u32>().read() }
    }

    #[inline]
    fn key_bytes(self, header: Header) -> usize {
        let short = (header.0 >> KEY_SHIFT & 0xff) as usize;
        if short < KEY_LONG {
            return short;
        }
        (self.word(Self::extension_offset(header) + 8).load(Ordering::Relaxed) & 0xffff_ffff) as usize
    }

    /// The key.
    ///
    /// # Safety
    /// As for [`RawItem::new`], for as long as the slice is used.
    #[inline]
    pub(crate) unsafe fn key<'a>(self) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { self.key_by(self.header()) }
    }

    /// As [`RawItem::key`], with the header at hand.
    ///
    /// # Safety
    /// As for [`RawItem::new`], for as long as the slice is used; `header` is this item's.
    #[inline]
    pub(crate) unsafe fn key_by<'a>(self, header: Header) -> &'a [u8] {
        // SAFETY: the header says where the key is; it is inside the chunk and never changes.
        unsafe {
            let at = self.0.as_ptr().add(header.body_offset());
            let short = (header.0 >> KEY_SHIFT & 0xff) as usize;
            if short < KEY_LONG {
                return std::slice::from_raw_parts(at, short);
            }
            std::slice::from_raw_parts(self.long_key(header, at), self.key_bytes(header))
        }
    }

    /// Key and value of an item that [`Header::is_simple`] with a key of `key_bytes`.
    ///
    /// # Safety
    /// As for [`RawItem::new`], for as long as the slices are used; `header` is this item's.
    #[inline(always)]
    pub(crate) unsafe fn plain<'a>(self, header: Header, key_bytes: usize) -> (&'a [u8], &'a [u8]) {
        debug_assert!(header.is_simple(key_bytes));
        // SAFETY: nothing lies between header and key; both are inside the chunk and never change.
        unsafe {
            let key = self.0.as_ptr().add(8);
            (
                std::slice::from_raw_parts(key, key_bytes),
                std::slice::from_raw_parts(key.add(key_bytes), header.value_bytes()),
            )
        }
    }

    /// Where a key of [`KEY_LONG`] bytes or more is.
    ///
    /// # Safety
    /// `at` is the place of this item's key.
    #[cold]
    unsafe fn long_key(self, header: Header, at: *mut u8) -> *mut u8 {
        if self.key_bytes(header) <= KEY_INLINE_MAX {
            return at;
        }
        // SAFETY: the key's place holds an address, written by `write_draft`.
        unsafe { at.cast::<*mut u8>().read_unaligned() }
    }

    /// The key is on the heap.
    pub(crate) fn key_is_beside(self, header: Header) -> bool {
        header.has_long_key() && key_heap_bytes(self.key_bytes(header)) > 0
    }

    /// Frees the key if it is on the heap; returns how many bytes that was.
    ///
    /// # Safety
    /// The caller owns the item, which has its key, and uses it no more.
    pub(crate) unsafe fn free_key(self) -> usize {
        let header = self.header();
        let bytes = key_heap_bytes(self.key_bytes(header));
        if bytes > 0 {
            // SAFETY: 1. The caller's promise. 2. The address came from `Box::into_raw` of a slice of
            // this length.
            unsafe {
                let at = self.long_key(header, self.0.as_ptr().add(header.body_offset()));
                drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(at, bytes)));
            }
        }
        bytes
    }

    /// The value of a [`Kind::Whole`] item with this header.
    ///
    /// # Safety
    /// As for [`RawItem::new`], for as long as the slice is used.
    #[inline]
    pub(crate) unsafe fn whole_value<'a>(self, header: Header) -> &'a [u8] {
        debug_assert_eq!(header.kind(), Kind::Whole);
        let start = header.body_offset() + key_room(self.key_bytes(header));
        let bytes = header.value_bytes();
        // SAFETY: the header says where the value is; it is inside the chunk and never changes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(start), bytes) }
    }

    /// Where the head of a large value starts.
    pub(crate) fn large_head(self) -> NonNull<u8> {
        let header = self.header();
        let offset = (header.body_offset() + key_room(self.key_bytes(header))).next_multiple_of(8);
        // SAFETY: a large item has its head there, inside the chunk.
        unsafe { self.0.add(offset) }
    }

    /// Offset of the head of a large value from the start of the chunk.
    pub(crate) fn large_head_offset(self) -> usize {
        self.large_head().as_ptr() as usize - self.0.as_ptr() as usize
    }

    /// The leaf of a collection with this header.
    ///
    /// # Safety
    /// As for [`RawItem::new`], for as long as the leaf is used; the item is a collection, and no tree.
    #[inline]
    pub(crate) unsafe fn leaf<'a>(self, header: Header) -> Leaf<'a> {
        debug_assert!(header.is_collection() && !header.is_tree());
        // SAFETY: a collection has its leaf there, inside the chunk; its head says how long it is, and it never changes.
        unsafe {
            let at = self.0.add(self.leaf_offset(header));
            let bytes = leaf_bytes(at.cast::<[u8; HEAD_BYTES]>().read());
            Leaf::of(std::slice::from_raw_parts(at.as_ptr(), bytes))
        }
    }

    /// The root of a tree with this header.
    ///
    /// # Safety
    /// As for [`RawItem::new`], for as long as the root is used; the item is a tree.
    pub(crate) unsafe fn root<'a>(self, header: Header) -> &'a Root {
        debug_assert!(header.is_tree());
        // SAFETY: a tree has its root there, inside the chunk and aligned to 8; what changes in it is atomic.
        unsafe { self.0.add(self.leaf_offset(header)).cast::<Root>().as_ref() }
    }

    /// Bytes before the leaf of a collection with this header, or before its root.
    #[inline]
    fn leaf_offset(self, header: Header) -> usize {
        (header.body_offset() + key_room(self.key_bytes(header))).next_multiple_of(8)
    }

    /// Bytes of a whole item, from the header.
    #[inline]
    pub(crate) fn whole_bytes(self) -> usize {
        self.whole_bytes_by(self.header())
    }

    /// As [`RawItem::whole_bytes`], with the header at hand.
    #[inline]
    pub(crate) fn whole_bytes_by(self, header: Header) -> usize {
        header.body_offset() + key_room(self.key_bytes(header)) + header.value_bytes()
    }

    /// The number of the item's database.
    #[inline]
    pub(crate) fn number(self, header: Header) -> u8 {
        if !header.has(EXTENSION) {
            return 0;
        }
        (self.word(Self::extension_offset(header) + 8).load(Ordering::Relaxed) >> 32) as u8
    }

    /// The explicit token, if the item was given one.
    #[inline]
    fn explicit_token(self, header: Header) -> Option<u64> {
        if !header.has(EXTENSION) {
            return None;
        }
        let token = self.word(Self::extension_offset(header)).load(Ordering::Relaxed);
        (token != 0).then_some(token)
    }

    /// The wire token, given the key's hash.
    #[inline]
    pub(crate) fn token(self, hash: u64) -> u64 {
        let header = self.header();
        self.explicit_token(header).unwrap_or_else(|| token(u64::from(header.version()), hash))
    }

    /// Sets the token of a published item, under its home bucket's lock: version `writes`, and
    /// `explicit` on the wire if the item has an extension. Changes `bits` along (mask, value).
    pub(crate) fn set_token(self, writes: u64, explicit: Option<u64>, bits: (u64, u64)) {
        let header = self.header();
        if header.has(EXTENSION) {
            self.word(Self::extension_offset(header)).store(explicit.unwrap_or(0), Ordering::Relaxed);
        }
        // Readers may set FETCHED meanwhile: only that bit can change under us.
        let _ = self.header_word().fetch_update(Ordering::Release, Ordering::Relaxed, |old| {
            Some(Header(old & !bits.0 | bits.1).with_version(writes).0)
        });
    }

    /// The explicit token; 0 if there is none.
    pub(crate) fn explicit(self) -> u64 {
        self.explicit_token(self.header()).unwrap_or(0)
    }

    /// Sets marks of a published item, under its home bucket's lock.
    pub(crate) fn mark(self, marks: u64) {
        self.header_word().fetch_or(marks, Ordering::Release);
    }

    /// True if the item can carry an explicit token.
    pub(crate) fn has_extension(self) -> bool {
        self.header().has(EXTENSION)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn draft_reads_back_in_every_shape() {
        let mut memory = vec![0u64; 512];
        let chunk = NonNull::new(memory.as_mut_ptr().cast::<u8>()).unwrap();
        for (key, flags, expiry, extension) in
            [(&b"k"[..], 0, 0, false), (b"key", 7, 0, true), (&[b'x'; 300], 1, 99, false), (b"", 0, 5, true)]
        {
            let shape = Shape::new(key.len(), 3, flags, expiry != 0, extension);
            // SAFETY: the memory is this test's and large enough.
            unsafe {
                let item = RawItem::new(chunk);
                item.write_draft(&shape, key, u8::from(extension) * 3, KEY_BINARY, flags, expiry);
                item.draft_value(&shape).copy_from(b"abc".as_ptr(), 3);
                item.set_token(9, None, (7, Kind::Whole as u64));
                assert_eq!((item.key(), item.whole_value(item.header())), (key, &b"abc"[..]));
                assert_eq!(
                    (item.flags(item.header()), item.expires_at(), item.token(0)),
                    (flags, expiry, token(9, 0))
                );
                assert_eq!(item.whole_bytes() as u64, shape.whole_bytes());
                assert_eq!(item.number(item.header()), u8::from(extension) * 3);
                assert!(item.header().has(KEY_BINARY) && !item.header().has(STALE));
                if item.has_extension() {
                    item.set_token(10, Some(77), (0, STALE));
                    assert_eq!((item.token(5), item.header().version()), (77, 10));
                    assert!(item.header().has(STALE));
                }
            }
        }
    }
}
