//! Large values: a head with a table of pieces, each in a chunk of the class that fits.
//!
//! ```text
//! head chunk:  header … key | value bytes 8 | pins 8 | pieces 4, in this table 4 | next table 8 | piece locations 8 × n
//! table chunk: header 8     | next table 8 | piece locations 8 × n
//! piece chunk: header 8     | up to 16,376 bytes of the value
//! ```
//!
//! Nothing needs to be contiguous, and only the last piece wastes anything. Values up to some 32 MB
//! have their whole table in the head; larger ones chain tables.

use crate::arena::Arena;
use crate::class::CHUNK_BYTES_MAX;
use crate::item::{RawItem, Shape};
use crate::pin::Pins;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::ptr::NonNull;

/// Bytes of the value in a full piece.
pub(crate) const PIECE_BYTES: usize = CHUNK_BYTES_MAX - 8;
/// Entries of a table in a chunk of its own.
const TABLE_ENTRIES: usize = (CHUNK_BYTES_MAX - 16) / 8;

/// The fixed part of a head.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Head {
    pub(crate) value_bytes: u64,
    pub(crate) pins: Pins,
    pub(crate) pieces: u32,
    pub(crate) inline: u32,
    next_table: AtomicU64,
}
const HEAD_BYTES: usize = size_of::<Head>();
const _: () = assert!(HEAD_BYTES == 32);

/// Pieces of a value.
fn pieces_of(value_bytes: u64) -> usize {
    value_bytes.div_ceil(PIECE_BYTES as u64) as usize
}

/// Entries of the table in the head.
fn inline_of(shape: &Shape) -> usize {
    pieces_of(shape.value_bytes()).min((CHUNK_BYTES_MAX - shape.head_offset() - HEAD_BYTES) / 8)
}

/// Bytes of the head chunk of a large value.
pub(crate) fn head_chunk_bytes(shape: &Shape) -> usize {
    shape.head_offset() + HEAD_BYTES + inline_of(shape) * 8
}

/// Bytes of the piece that starts at `offset` of the value.
pub(crate) fn piece_bytes(value_bytes: u64, offset: u64) -> usize {
    (value_bytes - offset).min(PIECE_BYTES as u64) as usize
}

/// A large item, seen through its head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Large {
    head: NonNull<Head>,
    head_offset: usize,
}

impl Large {
    /// # Safety
    /// `item` is a large item, or a large draft whose head was initialised, and stays one while the
    /// result is used.
    pub(crate) unsafe fn of(item: RawItem) -> Large {
        Large { head: item.large_head().cast(), head_offset: item.large_head_offset() }
    }

    /// Writes the head of a draft.
    ///
    /// # Safety
    /// `item` is a draft that this thread owns, its header and key are written, and its chunk has
    /// [`head_chunk_bytes`].
    pub(crate) unsafe fn init(item: RawItem, shape: &Shape) -> Large {
        // SAFETY: the chunk is this thread's and long enough; the head is aligned to 8.
        unsafe {
            let large = Large::of(item);
            large.head.write(Head {
                value_bytes: shape.value_bytes(),
                pins: Pins::new(),
                pieces: 0,
                inline: inline_of(shape) as u32,
                next_table: AtomicU64::new(0),
            });
            large
        }
    }

    pub(crate) fn head<'a>(self) -> &'a Head {
        // SAFETY: `of` and `init` say that the head is there; after publication it is only read, but
        // for the pins, which are atomic.
        unsafe { self.head.as_ref() }
    }

    fn entry<'a>(self, i: usize) -> &'a AtomicU64 {
        debug_assert!(i < self.head().inline as usize);
        // SAFETY: the head's table has `inline` entries behind the fixed part, which are only
        // accessed atomically.
        unsafe { self.head.add(1).cast::<AtomicU64>().add(i).as_ref() }
    }

    /// Bytes of the head chunk that are in use.
    pub(crate) fn head_bytes(self) -> usize {
        self.head_offset + HEAD_BYTES + self.head().inline as usize * 8
    }

    /// True if the next [`Large::push`] needs a new table chunk.
    pub(crate) fn needs_table(self) -> bool {
        let (pieces, inline) = (self.head().pieces as usize, self.head().inline as usize);
        pieces >= inline && (pieces - inline).is_multiple_of(TABLE_ENTRIES)
    }

    /// Adds a piece; `table` is a fresh chunk if [`Large::needs_table`].
    ///
    /// # Safety
    /// The item is a draft that this thread owns; `piece` and `table` are chunks it owns too.
    pub(crate) unsafe fn push(self, arena: &Arena, piece: u64, table: Option<u64>) {
        let pieces = self.head().pieces as usize;
        let inline = self.head().inline as usize;
        // SAFETY: 1. The draft is this thread's, so no other thread reads head or tables. 2. Table
        // chunks are of the largest class: two words and `TABLE_ENTRIES` entries.
        unsafe {
            if pieces < inline {
                self.entry(pieces).store(piece, Ordering::Relaxed);
            } else {
                let mut link = &self.head().next_table;
                for _ in 0..(pieces - inline) / TABLE_ENTRIES {
                    link = table_word(arena, link.load(Ordering::Relaxed), 1);
                }
                if let Some(table) = table {
                    link.store(table, Ordering::Relaxed);
                    table_word(arena, table, 1).store(0, Ordering::Relaxed);
                }
                let at = (pieces - inline) % TABLE_ENTRIES;
                table_word(arena, link.load(Ordering::Relaxed), 2 + at).store(piece, Ordering::Relaxed);
            }
            (*self.head.as_ptr()).pieces += 1;
        }
    }

    /// Takes the last `count` pieces out of the value, which has so many, and gives their locations to `each`. Its tables stay.
    ///
    /// # Safety
    /// The caller alone has the item: no other thread finds it any more, or has it pinned.
    pub(crate) unsafe fn drop_last(self, arena: &Arena, count: usize, each: &mut dyn FnMut(u64)) {
        let left = self.head().pieces as usize - count;
        let mut cursor = PieceCursor::at(self, arena, left);
        while let Some(piece) = cursor.next(arena) {
            each(piece);
        }
        // SAFETY: the item is the caller's, so no other thread reads its head.
        unsafe { (*self.head.as_ptr()).pieces = left as u32 };
    }

    /// Leaves the pieces of a draft to something else: it has none from now on, and keeps its tables.
    ///
    /// # Safety
    /// The item is a draft that this thread owns.
    pub(crate) unsafe fn leave_pieces(self) {
        // SAFETY: the draft is this thread's, so no other thread reads its head.
        unsafe { (*self.head.as_ptr()).pieces = 0 };
    }

    /// Calls `each` with the locations of all pieces, and then of all tables.
    pub(crate) fn chunks(self, arena: &Arena, each: &mut dyn FnMut(u64)) {
        let mut cursor = PieceCursor::new(self);
        while let Some(piece) = cursor.next(arena) {
            each(piece);
        }
        let mut table = self.head().next_table.load(Ordering::Acquire);
        while table != 0 {
            // SAFETY: a table chunk's second word is the location of the next one.
            let next = unsafe { table_word(arena, table, 1) }.load(Ordering::Acquire);
            each(table);
            table = next;
        }
    }

    /// The word that names the piece or table at `location`; none if it is not this value's.
    pub(crate) fn word_of<'a>(self, arena: &Arena, location: u64) -> Option<&'a AtomicU64> {
        let (pieces, inline) = (self.head().pieces as usize, self.head().inline as usize);
        let named = |word: &AtomicU64| word.load(Ordering::Relaxed) == location;
        if let Some(i) = (0..pieces.min(inline)).find(|&i| named(self.entry(i))) {
            return Some(self.entry(i));
        }
        let mut left = pieces.saturating_sub(inline);
        let mut link = &self.head().next_table;
        while left > 0 {
            if named(link) {
                return Some(link);
            }
            let table = link.load(Ordering::Acquire);
            let here = left.min(TABLE_ENTRIES);
            // SAFETY: so many entries of the table chunk are filled, and its second word is the
            // location of the next one.
            unsafe {
                if let Some(at) = (0..here).find(|at| named(table_word(arena, table, 2 + at))) {
                    return Some(table_word(arena, table, 2 + at));
                }
                link = table_word(arena, table, 1);
            }
            left -= here;
        }
        None
    }

    /// The location of piece `i`; the value has so many.
    pub(crate) fn piece(self, arena: &Arena, i: usize) -> u64 {
        PieceCursor::at(self, arena, i).next(arena).expect("the value has so many pieces")
    }

    /// The value is in one piece at most. No thread writes into such a value once it is published
    /// ([`crate::Guard::patch`]).
    pub(crate) fn has_one_run(self) -> bool {
        self.head().value_bytes <= PIECE_BYTES as u64
    }

    /// The value, if it is in one piece at most: readable without a pin.
    ///
    /// # Safety
    /// The item is a large one that was reachable in this epoch, and `'a` ends before the epoch does.
    pub(crate) unsafe fn in_one_run<'a>(self, arena: &Arena) -> Option<&'a [u8]> {
        if !self.has_one_run() {
            return None;
        }
        let Some(piece) = self.first_piece() else { return Some(&[]) };
        // SAFETY: 1. A piece that the head named in this epoch is used for nothing else before the epoch is
        // over: what frees or moves it retires it. 2. It holds all of the value, behind its header word. 3. It
        // does not change: `patch` leaves values of one piece alone.
        Some(unsafe {
            let bytes = self.head().value_bytes as usize;
            std::slice::from_raw_parts(arena.at(piece).as_ptr().add(8), bytes)
        })
    }

    /// The location of the first piece, if there is one.
    pub(crate) fn first_piece(self) -> Option<u64> {
        let head = self.head();
        (head.pieces > 0 && head.inline > 0).then(|| self.entry(0).load(Ordering::Acquire))
    }
}

/// A word of a table chunk.
///
/// # Safety
/// `table` is a table chunk of a value that the caller can reach, has pinned, or owns.
unsafe fn table_word<'a>(arena: &Arena, table: u64, i: usize) -> &'a AtomicU64 {
    debug_assert!(i < TABLE_ENTRIES + 2);
    // SAFETY: table chunks are of the largest class; behind the header they are only accessed as
    // atomic words.
    unsafe { arena.at(table).cast::<AtomicU64>().add(i).as_ref() }
}

/// Walks a large value's pieces in order. Of a draft, it goes on with pieces added after its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceCursor {
    large: Large,
    next: usize,
    /// The table chunk of the last piece; 0 while the head's table is walked.
    table: u64,
}

impl PieceCursor {
    pub(crate) fn new(large: Large) -> PieceCursor {
        PieceCursor { large, next: 0, table: 0 }
    }

    /// A cursor whose next piece is number `i`, if there are so many.
    pub(crate) fn at(large: Large, arena: &Arena, i: usize) -> PieceCursor {
        let inline = large.head().inline as usize;
        let mut cursor = PieceCursor { large, next: i, table: 0 };
        // The table of the piece before it: entering the next one is for `next`.
        if i > inline && i <= large.head().pieces as usize {
            cursor.table = large.head().next_table.load(Ordering::Acquire);
            for _ in 0..(i - inline - 1) / TABLE_ENTRIES {
                // SAFETY: a value of so many pieces has so many tables, each naming the next.
                cursor.table = unsafe { table_word(arena, cursor.table, 1) }.load(Ordering::Acquire);
            }
        }
        cursor
    }

    /// The location of the next piece.
    pub(crate) fn next(&mut self, arena: &Arena) -> Option<u64> {
        let head = self.large.head();
        let i = self.next;
        if i >= head.pieces as usize {
            return None;
        }
        self.next += 1;
        if i < head.inline as usize {
            // Acquire: a piece that was moved is whole.
            return Some(self.large.entry(i).load(Ordering::Acquire));
        }
        let at = (i - head.inline as usize) % TABLE_ENTRIES;
        // SAFETY: the link to a table and its entry `at` were written before `pieces` counted the
        // piece.
        unsafe {
            if at == 0 {
                self.table = match self.table {
                    0 => head.next_table.load(Ordering::Acquire),
                    table => table_word(arena, table, 1).load(Ordering::Acquire),
                };
            }
            Some(table_word(arena, self.table, 2 + at).load(Ordering::Acquire))
        }
    }
}

/// Where the value's bytes in the piece at `location` begin, and how many they are.
///
/// # Safety
/// The piece belongs to a value that the caller can reach, has pinned, or owns.
pub(crate) unsafe fn piece_space(arena: &Arena, location: u64) -> (*mut u8, usize) {
    // SAFETY: the caller keeps the piece alive; its bytes begin behind its header word, which says
    // how many are used.
    unsafe {
        let chunk = RawItem::new(arena.at(location));
        let bytes = crate::item::Header(chunk.header_word().load(Ordering::Acquire)).piece_bytes();
        (chunk.address().add(8), bytes)
    }
}

/// The bytes of the value in the piece at `location`.
///
/// # Safety
/// The piece belongs to a value that the caller has pinned or owns.
pub(crate) unsafe fn piece_value<'a>(arena: &Arena, location: u64) -> &'a [u8] {
    // SAFETY: the caller keeps the piece alive, and no thread writes to what is pinned or owned.
    unsafe {
        let (at, bytes) = piece_space(arena, location);
        std::slice::from_raw_parts(at, bytes)
    }
}
