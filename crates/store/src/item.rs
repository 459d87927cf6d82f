//! An item: one chunk, only what is present.
//!
//! ```text
//! header      8   always
//! expiry      8   absolute milliseconds; present if the item may expire
//! extension  16   explicit CAS token 8, key length 4, database 2, type 1, spare 1
//! flags       4   if not 0
//! key         n   above 8 KiB: the address of a copy on the heap
//! value       n   in place up to about 16 KiB; else, 8-byte aligned, the head of a large value
//!
//! header  | 63 … 32 version | 31 … 18 value bytes | 17 … 10 key bytes | 9 … 3 bits | 2 … 0 kind |
//! ```
//!
//! Key, value and flags never change after the item was published. The header's marks and version
//! and the expiry are atomic words, changed in place under the home bucket's lock (`FETCHED` by
//! any reader). A piece of a large value and a free chunk have a header of the same shape, so that
//! a sweep over a span can tell what it sees:
//!
//! ```text
//! free    | 31 … 16 next free chunk of the span |                        | kind 0 |
//! retired | as it was                                                    | kind 6, 7 |
//! piece   | 63 … 29 location of the head | 28 … 3 bytes used             | kind 4 |
//! moved   | as it was, of a piece that has a copy elsewhere              | kind 5 |
//! ```

use crate::Millis;
use crate::class::CHUNK_BYTES_MAX;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In a free list or magazine, or waiting for its epoch.
    Free,
    /// Allocated, not yet published.
    Draft,
    /// An item with its value in place.
    Whole,
    /// An item whose value is in pieces.
    Large,
    /// A piece, or a table of pieces, of a large value.
    Piece,
}

const KIND_MASK: u64 = 7;
/// Added to the kind of an item when it is unlinked: a sweep must not look at its key any more.
const RETIRED: u64 = 4;
/// The item has an expiry word.
pub(crate) const EXPIRY: u64 = 1 << 3;
/// The item has flags.
pub(crate) const FLAGS: u64 = 1 << 4;
/// The item has an extension.
pub(crate) const EXTENSION: u64 = 1 << 5;
/// Marked stale.
pub(crate) const STALE: u64 = 1 << 6;
/// A recache token is out.
pub(crate) const TOKEN_SENT: u64 = 1 << 7;
/// The key came base64-encoded.
pub(crate) const KEY_BINARY: u64 = 1 << 8;
/// Read at least once.
pub(crate) const FETCHED: u64 = 1 << 9;
/// In a draft, which nobody reads: the value is in pieces, and the head is there.
pub(crate) const DRAFT_LARGE: u64 = FETCHED;
const KEY_SHIFT: u32 = 10;
/// This key length in the header means that the extension has it.
const KEY_LONG: usize = 255;
/// Longer keys lie on the heap, so that the head of an item fits a chunk.
const KEY_INLINE_MAX: usize = 8 << 10;
const VALUE_SHIFT: u32 = 18;
const VERSION_SHIFT: u32 = 32;
const EXTENSION_BYTES: usize = 16;
/// Bits of the key's hash in a CAS token, below the version.
const TOKEN_HASH_BITS: u32 = 18;

/// The wire token of the `writes`-th write in the home bucket of a key with this hash.
#[inline]
pub(crate) fn token(writes: u64, hash: u64) -> u64 {
    writes << TOKEN_HASH_BITS | hash & ((1 << TOKEN_HASH_BITS) - 1)
}

/// A header's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header(pub(crate) u64);

impl Header {
    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self.0 & KIND_MASK {
            0 => Kind::Free,
            1 => Kind::Draft,
            2 | 6 => Kind::Whole,
            3 | 7 => Kind::Large,
            _ => Kind::Piece,
        }
    }
    /// [`Kind::Whole`], retired or not.
    #[inline(always)]
    pub(crate) fn is_whole(self) -> bool {
        self.0 & (KIND_MASK & !RETIRED) == Kind::Whole as u64
    }
    #[inline]
    pub(crate) fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }
    #[inline]
    pub(crate) fn with_kind(self, kind: Kind) -> Header {
        Header(self.0 & !KIND_MASK | kind as u64)
    }
    #[inline]
    pub(crate) fn version(self) -> u32 {
        (self.0 >> VERSION_SHIFT) as u32
    }
    #[inline]
    pub(crate) fn with_version(self, writes: u64) -> Header {
        Header(self.0 & 0xffff_ffff | writes << VERSION_SHIFT)
    }
    /// A live item, as a sweep sees it: published, and not retired.
    #[inline]
    pub(crate) fn is_item(self) -> bool {
        matches!(self.0 & KIND_MASK, 2 | 3)
    }
    /// The item has its value in place, nothing between header and key, was read before, and has a
    /// key of `key_bytes`: one comparison for what nearly every hit on a hot item is.
    #[inline(always)]
    pub(crate) fn is_plain(self, key_bytes: usize) -> bool {
        const BITS: u64 = KIND_MASK & !RETIRED | EXPIRY | FLAGS | EXTENSION | FETCHED | 0xff << KEY_SHIFT;
        self.0 & BITS == (key_bytes as u64) << KEY_SHIFT | FETCHED | Kind::Whole as u64
    }
    /// As [`Header::is_plain`], read before or not.
    #[inline(always)]
    pub(crate) fn is_simple(self, key_bytes: usize) -> bool {
        Header(self.0 | FETCHED).is_plain(key_bytes)
    }
    /// Bytes of a value in place.
    #[inline(always)]
    pub(crate) fn value_bytes(self) -> usize {
        (self.0 >> VALUE_SHIFT & ((1 << 14) - 1)) as usize
    }
    /// The same item, unlinked and waiting for its epoch.
    #[inline]
    pub(crate) fn retired(self) -> Header {
        Header(self.0 | RETIRED)
    }
    /// The header of a free chunk; `next` in units from the span's start.
    #[inline]
    pub(crate) fn free(next: u16) -> Header {
        Header(u64::from(next) << 16)
    }
    #[inline]
    pub(crate) fn free_next(self) -> u16 {
        (self.0 >> 16) as u16
    }
    /// The header of a piece with `bytes` used, of the value whose head is at `owner`.
    #[inline]
    pub(crate) fn piece(owner: u64, bytes: usize) -> Header {
        Header(owner << 29 | (bytes as u64) << 3 | Kind::Piece as u64)
    }
    /// The same piece of a value whose head has moved.
    pub(crate) fn with_piece_owner(self, owner: u64) -> Header {
        Header(self.0 & ((1 << 29) - 1) | owner << 29)
    }
    /// A piece, as a sweep sees it: not moved away.
    #[inline]
    pub(crate) fn is_piece(self) -> bool {
        self.0 & KIND_MASK == Kind::Piece as u64
    }
    /// The same piece, left behind by a copy and waiting for its epoch.
    pub(crate) fn moved_piece(self) -> Header {
        Header(self.0 | 1)
    }
    #[inline]
    pub(crate) fn piece_owner(self) -> u64 {
        self.0 >> 29
    }
    #[inline]
    pub(crate) fn piece_bytes(self) -> usize {
        (self.0 >> 3 & ((1 << 26) - 1)) as usize
    }
    /// The header of an item with its value in place and no extension; no version yet. Lengths as the
    /// header can say them.
    #[inline(always)]
    pub(crate) fn whole(
        marks: u64,
        flags: u32,
        expires_at: Millis,
        key_bytes: usize,
        value_bytes: usize,
    ) -> Header {
        Header(
            marks
                | if flags != 0 { FLAGS } else { 0 }
                | if expires_at != 0 { EXPIRY } else { 0 }
                | (key_bytes as u64) << KEY_SHIFT
                | (value_bytes as u64) << VALUE_SHIFT
                | Kind::Whole as u64,
        )
    }
    /// Bytes before the key.
    #[inline]
    pub(crate) fn body_offset(self) -> usize {
        // Nearly every item has none of the three.
        if self.0 & (EXPIRY | EXTENSION | FLAGS) == 0 {
            return 8;
        }
        8 + if self.has(EXPIRY) { 8 } else { 0 }
            + if self.has(EXTENSION) { EXTENSION_BYTES } else { 0 }
            + if self.has(FLAGS) { 4 } else { 0 }
    }
}

/// Bytes that a key takes inside its item.
#[inline]
fn key_room(key_bytes: usize) -> usize {
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
    bits: u64,
    key_bytes: usize,
    value_bytes: u64,
    body_offset: usize,
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
        Shape { bits, key_bytes, value_bytes, body_offset }
    }
    /// The value is in pieces.
    #[inline]
    pub(crate) fn large(&self) -> bool {
        // An item with a long key is a large one whatever its value: those are freed with care.
        self.whole_bytes() > CHUNK_BYTES_MAX as u64 || self.key_bytes > KEY_INLINE_MAX
    }
    /// Bytes of the item with its value in place.
    #[inline]
    pub(crate) fn whole_bytes(&self) -> u64 {
        self.body_offset as u64 + key_room(self.key_bytes) as u64 + self.value_bytes
    }
    /// Bytes before the head of a large value.
    pub(crate) fn head_offset(&self) -> usize {
        (self.body_offset + key_room(self.key_bytes)).next_multiple_of(8)
    }
    pub(crate) fn value_bytes(&self) -> u64 {
        self.value_bytes
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

/// The longest key whose length the header can say.
pub(crate) const KEY_BYTES_SHORT: usize = KEY_LONG - 1;

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

    /// Frees the key if it is on the heap; how many bytes that was.
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

    /// The place of the value while the item is a draft that this thread owns.
    pub(crate) fn draft_value(self, shape: &Shape) -> *mut u8 {
        // SAFETY: inside the chunk, which holds the whole shape.
        unsafe { self.0.as_ptr().add(shape.body_offset + key_room(shape.key_bytes)) }
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

    /// Writes everything but the header of an item with its value in place: the chunk stays a free
    /// one to any sweep until [`RawItem::publish_header`].
    ///
    /// # Safety
    /// This thread owns the chunk, which has [`Header::body_offset`] and the lengths of key and value,
    /// both of which lie elsewhere.
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
}

#[cfg(all(test, not(loom)))]
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
