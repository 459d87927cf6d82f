//! A part of the table of ghosts: places that are free at first.
//!
//! A long part is a mapping of its own: the system gives it page by page as places are written, and takes it
//! back some at a time. What the heap gives may be cleared at once, which took 49 ms for the table of 30 million
//! items, and goes at once.

use crate::sync::AtomicU16;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::NonNull;

/// Parts of so many bytes or more are mappings: whole pages of every system.
pub(super) const MAPPED_BYTES_MIN: usize = 64 << 10;
/// What is given back in a step: 10 to 40 µs.
pub(super) const STEP_BYTES: usize = 1 << 20;

/// A part, or the front of one whose rest was given back.
#[derive(Debug)]
pub(super) struct Part {
    places: NonNull<AtomicU16>,
    /// How many.
    length: usize,
    mapped: bool,
}

// SAFETY: places are atomics, in memory that is this part's alone.
unsafe impl Send for Part {}

impl Part {
    /// Makes a part of `length` places; `None` if the system has no memory for them.
    pub(super) fn new(length: usize) -> Option<Part> {
        let bytes = length * size_of::<AtomicU16>();
        // The checker's words are not in memory.
        let mapped = bytes >= MAPPED_BYTES_MIN && !cfg!(feature = "loom");
        let places = if mapped {
            let (access, flags) =
                (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
            // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
            let address = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) }.ok()?;
            // A huge page is cleared as one: 300 µs. Where there are none, the system says so, and that is fine.
            // SAFETY: the bytes were just mapped.
            let _ = unsafe { madvise(address, bytes, Advice::LinuxNoHugepage) };
            NonNull::new(address.cast()).expect("mmap does not map page 0")
        } else {
            let places: Box<[AtomicU16]> = (0..length).map(|_| AtomicU16::new(0)).collect();
            NonNull::new(Box::into_raw(places).cast()).expect("a box is somewhere")
        };
        Some(Part { places, length, mapped })
    }

    /// The part that [`Part::into_raw`] made a pointer of, of this length.
    ///
    /// # Safety
    /// It is taken back once.
    pub(super) unsafe fn from_raw(places: NonNull<AtomicU16>, length: usize) -> Part {
        let mapped = length * size_of::<AtomicU16>() >= MAPPED_BYTES_MIN && !cfg!(feature = "loom");
        Part { places, length, mapped }
    }

    pub(super) fn into_raw(self) -> NonNull<AtomicU16> {
        std::mem::ManuallyDrop::new(self).places
    }

    pub(super) fn bytes(&self) -> usize {
        self.length * size_of::<AtomicU16>()
    }

    /// Has the system find the pages of `bytes` from byte `from` on now, rather than when they are written. One that
    /// cannot (before Linux 5.14) finds them then.
    pub(super) fn make_ready(&self, from: usize, bytes: usize) {
        debug_assert!(from + bytes <= self.bytes());
        if !self.mapped {
            return;
        }
        // SAFETY: 1. Inside of the mapping, and whole pages: all lengths are powers of two. 2. Nothing that is there
        // changes.
        let _ = unsafe {
            let start = self.places.as_ptr().cast::<u8>().add(from);
            madvise(start.cast(), bytes, Advice::LinuxPopulateWrite)
        };
    }

    /// Gives back its end, [`STEP_BYTES`] at most; returns how many bytes that was, and the rest, if there is one.
    pub(super) fn shorten(mut self) -> (usize, Option<Part>) {
        let bytes = self.bytes();
        if !self.mapped || bytes <= STEP_BYTES {
            return (bytes, None);
        }
        self.length -= STEP_BYTES / size_of::<AtomicU16>();
        // SAFETY: 1. Behind the places that are left, to the end of the mapping: whole pages, since all lengths
        // are powers of two. 2. No thread refers to them: the part is out of use.
        let given = unsafe { munmap(self.places.as_ptr().add(self.length).cast(), STEP_BYTES) };
        debug_assert!(given.is_ok());
        (STEP_BYTES, Some(self))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: what is left of the mapping that `new` made, to which no thread refers.
            let given = unsafe { munmap(self.places.as_ptr().cast(), self.bytes()) };
            debug_assert!(given.is_ok());
        } else {
            let places = std::ptr::slice_from_raw_parts_mut(self.places.as_ptr(), self.length);
            // SAFETY: it came from a box of this length, and is dropped once.
            drop(unsafe { Box::from_raw(places) });
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    /// Pages of a part that have memory.
    fn resident(part: &Part) -> usize {
        let mut pages = vec![0u8; part.bytes().div_ceil(rustix::param::page_size())];
        // SAFETY: the mapping is the part's, and there is a byte for each of its pages.
        let asked =
            unsafe { libc::mincore(part.places.as_ptr().cast(), part.bytes(), pages.as_mut_ptr().cast()) };
        assert_eq!(asked, 0);
        pages.iter().filter(|&&page| page & 1 != 0).count()
    }

    #[test]
    fn a_long_part_takes_memory_as_it_is_written_and_gives_it_back_in_steps() {
        let length = 4 * STEP_BYTES / size_of::<AtomicU16>();
        let part = Part::new(length).unwrap();
        assert_eq!(resident(&part), 0, "nothing was touched");
        for i in [0, length / 2, length - 1] {
            // SAFETY: below its length.
            let place = unsafe { part.places.add(i).as_ref() };
            assert_eq!(place.swap(7, Ordering::Relaxed), 0);
        }
        assert!(resident(&part) > 0);
        let mut part = Some(part);
        let mut given = Vec::new();
        while let Some(long) = part {
            let step;
            (step, part) = long.shorten();
            given.push(step);
        }
        assert_eq!(given, [STEP_BYTES; 4]);
    }

    #[test]
    fn parts_of_every_length_are_empty_and_go() {
        for shift in 8..22 {
            // SAFETY: just made a pointer of.
            let part = unsafe { Part::from_raw(Part::new(1 << shift).unwrap().into_raw(), 1 << shift) };
            assert_eq!(part.bytes(), 2 << shift);
            for i in 0..1 << shift {
                // SAFETY: below its length.
                assert_eq!(unsafe { part.places.add(i).as_ref() }.load(Ordering::Relaxed), 0);
            }
        }
    }
}
