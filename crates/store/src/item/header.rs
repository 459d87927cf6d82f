//! The header: the first word of every chunk.
//!
//! ```text
//! item    | 63 … 32 version | 31 … 18 value bytes | 17 … 10 key bytes | 9 … 3 bits | kind 1, 2, 3 |
//!                             of kind 3: its form, 0 for a large value, else what collection it is
//! retired | as it was                                                             | kind 6, 7    |
//! free    | 31 … 16 next free chunk of the span                                   | kind 0       |
//! piece   | 63 … 29 location of the head    | 16 … 3 bytes used                   | kind 4       |
//! node    | 63 … 29 number of its tree  | 28 set | 27 of members | 26 part | 25 … 22 level | 21 first | 16 … 3 bytes used | kind 4 |
//! moved   | as it was, of a piece or node that has a copy elsewhere, or that is not shown yet | kind 5 |
//! ```
//!
//! All have the same shape, so that a sweep over a span can tell what it sees.

use crate::Millis;

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
    /// A piece, or a table of pieces, of a large value; or a node of a tree.
    Piece,
    /// An item with a collection: in the header a [`Kind::Large`] with a form.
    Collection,
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
/// In a draft, which no thread reads: the value is in pieces, and the head is there.
pub(crate) const DRAFT_LARGE: u64 = FETCHED;
pub(super) const KEY_SHIFT: u32 = 10;
/// This key length in the header means that the extension has it.
pub(super) const KEY_LONG: usize = 255;
pub(super) const VALUE_SHIFT: u32 = 18;
/// The bits of a value's length, which items of kind 3 have for their form.
const FORM_MASK: u64 = 0x3fff << VALUE_SHIFT;
/// A bit of the form: the collection is a tree.
const FORM_TREE: u16 = 1 << 4;
/// A bit of the form: a field of the hash expires.
const FORM_TIMED: u16 = 1 << 5;
const VERSION_SHIFT: u32 = 32;
/// A piece that is a node of a tree.
const NODE: u64 = 1 << 28;
/// A node of the members tree of a sorted set.
const MEMBERS: u64 = 1 << 27;
/// A leaf of a tree that is a part of a string, and has pins.
const PART: u64 = 1 << 26;
const LEVEL_SHIFT: u32 = 22;
const EXTENSION_BYTES: usize = 16;
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
            3 | 7 if self.form() == 0 => Kind::Large,
            3 | 7 => Kind::Collection,
            _ => Kind::Piece,
        }
    }
    /// [`Kind::Whole`], retired or not.
    #[inline(always)]
    pub(crate) fn is_whole(self) -> bool {
        self.0 & (KIND_MASK & !RETIRED) == Kind::Whole as u64
    }
    /// [`Kind::Large`], retired or not.
    #[inline(always)]
    pub(crate) fn is_large(self) -> bool {
        self.0 & (KIND_MASK & !RETIRED | FORM_MASK) == Kind::Large as u64
    }
    /// [`Kind::Collection`], retired or not.
    #[inline(always)]
    pub(crate) fn is_collection(self) -> bool {
        self.is_not_plain() && self.form() != 0
    }
    /// [`Kind::Collection`] in a tree, retired or not.
    #[inline]
    pub(crate) fn is_tree(self) -> bool {
        self.is_collection() && self.form() & FORM_TREE != 0
    }
    /// [`Kind::Collection`], retired or not, a field of which expires.
    #[inline]
    pub(crate) fn is_timed(self) -> bool {
        self.is_collection() && self.form() & FORM_TIMED != 0
    }
    /// True if two collections of one key with these headers are of one form, and their leaves or roots begin at the same place.
    #[inline(always)]
    pub(crate) fn is_laid_out_as(self, other: Header) -> bool {
        debug_assert!(self.is_collection() && other.is_collection());
        (self.0 ^ other.0) & (EXPIRY | FLAGS | EXTENSION | FORM_MASK) == 0
    }
    /// The form of a hash of this form in which a field expires.
    pub(crate) fn form_timed(form: u16) -> u16 {
        form | FORM_TIMED
    }
    /// The form of a collection of this type in a tree.
    pub(crate) fn form_of_tree(form: u16) -> u16 {
        form | FORM_TREE
    }
    /// [`Kind::Large`] or [`Kind::Collection`], retired or not.
    #[inline(always)]
    pub(crate) fn is_not_plain(self) -> bool {
        self.0 & (KIND_MASK & !RETIRED) == Kind::Large as u64
    }
    /// The form of an item that is not plain: what collection it is, or 0.
    #[inline]
    pub(crate) fn form(self) -> u16 {
        ((self.0 & FORM_MASK) >> VALUE_SHIFT) as u16
    }
    /// The key's length is in the extension: it may lie on the heap.
    #[inline]
    pub(crate) fn has_long_key(self) -> bool {
        (self.0 >> KEY_SHIFT & 0xff) as usize == KEY_LONG
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
    /// A collection of this form.
    #[inline]
    pub(crate) fn with_form(self, form: u16) -> Header {
        Header(self.0 & !(KIND_MASK | FORM_MASK) | u64::from(form) << VALUE_SHIFT | Kind::Large as u64)
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
    /// The item has its value in place, nothing between header and key, no mark that a reply tells,
    /// was read before, and has a key of `key_bytes`: one comparison for what nearly every hit on a
    /// hot item is.
    #[inline(always)]
    pub(crate) fn is_plain(self, key_bytes: usize) -> bool {
        const TOLD: u64 = EXPIRY | FLAGS | STALE | TOKEN_SENT;
        const BITS: u64 = KIND_MASK & !RETIRED | TOLD | EXTENSION | FETCHED | 0xff << KEY_SHIFT;
        self.0 & BITS == (key_bytes as u64) << KEY_SHIFT | FETCHED | Kind::Whole as u64
    }
    /// As [`Header::is_plain`], read before or not.
    #[inline(always)]
    pub(crate) fn is_simple(self, key_bytes: usize) -> bool {
        Header(self.0 | FETCHED).is_plain(key_bytes)
    }
    /// True if both are of one item, read meanwhile or not: keys of one home never have two writes of one number.
    #[inline(always)]
    pub(crate) fn is_same_write(self, other: Header) -> bool {
        // Nearly always no thread has read it meanwhile.
        self == other || (self.0 ^ other.0) & !FETCHED == 0
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
    /// A piece or a node, as a sweep sees it: not moved away.
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
        (self.0 >> 3 & ((1 << 14) - 1)) as usize
    }
    /// The header of a node of a tree, with `bytes` used behind it.
    pub(crate) fn node(number: u64, level: usize, bytes: usize) -> Header {
        debug_assert!(level < 16 && bytes < 1 << 14);
        let bits = NODE | (level as u64) << LEVEL_SHIFT | (bytes as u64) << 3 | Kind::Piece as u64;
        Header(number << 29 | bits)
    }
    /// A node of a tree, as a sweep sees it: shown, and not moved away or replaced.
    #[inline]
    pub(crate) fn is_node(self) -> bool {
        self.0 & (KIND_MASK | NODE) == Kind::Piece as u64 | NODE
    }
    /// The same node, which sweeps may look at.
    pub(crate) fn shown_node(self) -> Header {
        Header(self.0 & !1)
    }
    pub(crate) fn node_number(self) -> u64 {
        self.0 >> 29
    }
    /// The node's level; 0 of a leaf.
    pub(crate) fn node_level(self) -> usize {
        (self.0 >> LEVEL_SHIFT & 0xf) as usize
    }
    /// The same node, of the members tree of a sorted set.
    pub(crate) fn of_members(self) -> Header {
        Header(self.0 | MEMBERS)
    }
    pub(crate) fn is_of_members(self) -> bool {
        self.has(MEMBERS)
    }
    /// The same node, a part of a string that lies apart.
    pub(crate) fn of_part(self) -> Header {
        Header(self.0 | PART)
    }
    /// A node of a tree that is a part of a string, whether sweeps see it or not.
    #[inline]
    pub(crate) fn is_part(self) -> bool {
        self.0 & (KIND_MASK & !1 | NODE | PART) == Kind::Piece as u64 | NODE | PART
    }
    /// It was the first leaf of its tree once.
    pub(crate) const FIRST_LEAF: u64 = 1 << 21;
    pub(crate) fn is_first_leaf(self) -> bool {
        self.has(Header::FIRST_LEAF)
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
