//! Filling a chunk: a draft or a body that no thread sees, and the store to the header that makes it an item.
//!
//! ```text
//! body  ─▶ publish_header     the usual set: a free chunk to any sweep until it is an item
//! draft ─▶ publish            everything else: value filled in later, explicit token, long key
//!       ─▶ publish_collection a collection
//! ```

use super::header::{DRAFT_LARGE, EXPIRY, EXTENSION, FLAGS, Header, KEY_LONG, KEY_SHIFT, Kind, VALUE_SHIFT};
use super::shape::{Shape, key_room};
use super::{KEY_INLINE_MAX, RawItem};
use crate::Millis;
use crate::sync::atomic::Ordering;

impl RawItem {
    /// Writes everything but the header of an item with its value in place: the chunk stays a free
    /// one to any sweep until [`RawItem::publish_header`].
    ///
    /// # Safety
    /// This thread owns the chunk, which has room for [`Header::body_offset`] and the lengths of
    /// key and value, both of which lie elsewhere.
    #[inline(always)]
    pub(crate) unsafe fn write_body(
        self,
        header: Header,
        key: &[u8],
        value: &[u8],
        flags: u32,
        expires_at: Millis,
    ) {
        debug_assert!(key.len() < KEY_LONG && !header.has(EXTENSION));
        let body = header.body_offset();
        if header.has(EXPIRY) {
            self.word(8).store(expires_at, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise; flags, key and value lie in this order inside the chunk.
        unsafe {
            if header.has(FLAGS) {
                self.0.add(body - 4).cast::<u32>().write(flags);
            }
            let to = self.0.as_ptr().add(body);
            copy(key, to);
            copy(value, to.add(key.len()));
        }
    }

    /// Makes what [`RawItem::write_body`] wrote an item of version `writes`.
    #[inline(always)]
    pub(crate) fn publish_header(self, header: Header, writes: u64) {
        // Release: a sweep that sees an item sees its key.
        self.header_word().store(header.with_version(writes).0, Ordering::Release);
    }

    /// Makes a draft an item: version `writes`, and `explicit` on the wire.
    #[inline]
    pub(crate) fn publish(self, writes: u64, explicit: Option<u64>, kind: Kind) {
        let header = self.header();
        if header.has(EXTENSION) {
            self.word(Self::extension_offset(header)).store(explicit.unwrap_or(0), Ordering::Relaxed);
        }
        let bits = Header(header.0 & !DRAFT_LARGE).with_kind(kind).with_version(writes);
        // Release: a sweep that sees an item sees its key.
        self.header_word().store(bits.0, Ordering::Release);
    }

    /// Writes everything but the value: a draft, not reachable yet.
    ///
    /// # Safety
    /// This thread owns the chunk, and it holds `shape` (for a large value: its head).
    #[inline]
    pub(crate) unsafe fn write_draft(
        self,
        shape: &Shape,
        key: &[u8],
        number: u8,
        marks: u64,
        flags: u32,
        expires_at: Millis,
    ) {
        debug_assert_eq!(key.len(), shape.key_bytes);
        debug_assert!(number == 0 || shape.bits & EXTENSION != 0);
        let value = if shape.large() { 0 } else { shape.value_bytes };
        let bits = shape.bits
            | marks
            | (key.len().min(KEY_LONG) as u64) << KEY_SHIFT
            | value << VALUE_SHIFT
            | Kind::Draft as u64;
        if shape.bits & EXPIRY != 0 {
            self.word(8).store(expires_at, Ordering::Relaxed);
        }
        if shape.bits & EXTENSION != 0 {
            let at = Self::extension_offset(Header(bits));
            self.word(at).store(0, Ordering::Relaxed);
            self.word(at + 8).store(u64::from(number) << 32 | key.len() as u64, Ordering::Relaxed);
        }
        // SAFETY: 1. The caller says that the chunk is this thread's and holds the shape. 2. Flags
        // and key lie between header and value. 3. `key` is not in this chunk.
        unsafe {
            if shape.bits & FLAGS != 0 {
                self.0.add(shape.body_offset - 4).cast::<u32>().write(flags);
            }
            let at = self.0.as_ptr().add(shape.body_offset);
            if key.len() > KEY_INLINE_MAX {
                let copy = Box::into_raw(Box::<[u8]>::from(key)).cast::<u8>();
                at.cast::<*mut u8>().write_unaligned(copy);
            } else {
                std::ptr::copy_nonoverlapping(key.as_ptr(), at, key.len());
            }
        }
        // Release: a sweep that sees the draft's header sees no older word behind it.
        self.header_word().store(bits, Ordering::Release);
    }
    /// Makes a draft a collection of this form; else as [`RawItem::publish`].
    pub(crate) fn publish_collection(self, writes: u64, explicit: Option<u64>, form: u16) {
        let header = self.header();
        if header.has(EXTENSION) {
            self.word(Self::extension_offset(header)).store(explicit.unwrap_or(0), Ordering::Relaxed);
        }
        // Release: a sweep that sees an item sees its key.
        self.header_word().store(header.with_form(form).with_version(writes).0, Ordering::Release);
    }
    /// The place of the leaf while the item is a draft that this thread owns.
    pub(crate) fn draft_leaf(self, shape: &Shape) -> *mut u8 {
        debug_assert!(shape.leaf);
        // SAFETY: inside the chunk, which holds the whole shape.
        unsafe { self.0.as_ptr().add(shape.head_offset()) }
    }
    /// The place of the value while the item is a draft that this thread owns.
    pub(crate) fn draft_value(self, shape: &Shape) -> *mut u8 {
        // SAFETY: inside the chunk, which holds the whole shape.
        unsafe { self.0.as_ptr().add(shape.body_offset + key_room(shape.key_bytes)) }
    }
}

/// Copies `bytes` to `to`: short ones as two overlapping blocks, without a call.
///
/// # Safety
/// `to` has room for `bytes`, which lie elsewhere.
#[inline(always)]
unsafe fn copy(bytes: &[u8], to: *mut u8) {
    let (from, n) = (bytes.as_ptr(), bytes.len());
    // SAFETY: both blocks are inside both ranges, which the caller says do not overlap.
    unsafe {
        if !(8..=64).contains(&n) {
            to.copy_from_nonoverlapping(from, n);
        } else if n > 32 {
            ends::<[u8; 32]>(from, to, n - 32);
        } else if n > 16 {
            ends::<u128>(from, to, n - 16);
        } else {
            ends::<u64>(from, to, n - 8);
        }
    }
}

/// Copies the first block and the one that starts at `last`.
///
/// # Safety
/// Both blocks are inside both ranges.
#[inline(always)]
unsafe fn ends<B>(from: *const u8, to: *mut u8, last: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let (head, tail) = (from.cast::<B>().read_unaligned(), from.add(last).cast::<B>().read_unaligned());
        to.cast::<B>().write_unaligned(head);
        to.add(last).cast::<B>().write_unaligned(tail);
    }
}
