//! The directory: the leading bits of a hash → an entry, which names the pages of a segment.
//!
//! ```text
//! meta  | 63 … 16 version | 15 … 8 local depth | 7 … 0 page count |
//! ```
//!
//! A segment of a lesser depth than the directory's is named by several entries, all alike. Pages are
//! written before the word that counts them; a new version says that a segment is another now.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most pages of a segment: what fits in a directory entry of one cache line.
pub(super) const PAGES_MAX: usize = 14;

/// A directory entry: the word of its segment, and the numbers of the pages.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Entry {
    pub(super) meta: AtomicU64,
    pub(super) pages: [AtomicU32; PAGES_MAX],
}
const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    pub(super) fn copy(&self) -> Entry {
        Entry {
            meta: AtomicU64::new(self.meta.load(Ordering::Relaxed)),
            pages: std::array::from_fn(|i| AtomicU32::new(self.pages[i].load(Ordering::Relaxed))),
        }
    }
}

/// Entries, two to the power of `depth`.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) depth: u32,
    pub(super) entries: Box<[Entry]>,
}

impl Directory {
    #[inline]
    pub(super) fn entry(&self, hash: u64) -> &Entry {
        // `hash >> 1` first: a shift by 64 is not one.
        let i = (hash >> 1 >> (63 - self.depth)) as usize;
        debug_assert_eq!(self.entries.len(), 1 << self.depth);
        // SAFETY: `i` has `depth` bits, and there are two to the power of `depth` entries.
        unsafe { self.entries.get_unchecked(i) }
    }

    /// Says which pages hold the segment of `hash` at `depth`, in every entry that names it.
    pub(super) fn announce(&self, hash: u64, depth: u32, pages: &[u32], version: u64) {
        let first = (hash >> 1 >> (63 - self.depth)) as usize >> (self.depth - depth) << (self.depth - depth);
        for entry in &self.entries[first..first + (1 << (self.depth - depth))] {
            for (slot, &page) in entry.pages.iter().zip(pages) {
                slot.store(page, Ordering::Relaxed);
            }
            // Release: a thread that sees the new count sees the pages.
            entry.meta.store(meta(version, depth, pages.len()), Ordering::Release);
        }
    }
}

pub(super) fn meta(version: u64, depth: u32, pages: usize) -> u64 {
    version << 16 | u64::from(depth) << 8 | pages as u64
}

pub(super) fn pages_of(meta: u64) -> usize {
    (meta & 0xff) as usize
}

pub(super) fn depth_of(meta: u64) -> u32 {
    (meta >> 8 & 0xff) as u32
}

/// A directory of one bit more, with each entry twice.
pub(super) fn doubled(old: &Directory) -> Box<Directory> {
    let entries = old.entries.iter().flat_map(|entry| [entry.copy(), entry.copy()]).collect();
    Box::new(Directory { depth: old.depth + 1, entries })
}
