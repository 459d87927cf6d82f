//! memcached's slab classes, as a view of the store's finer ones.
//!
//! ```text
//! shown    1: 96 bytes                      2: 120              …  by -f, -n or -o slab_sizes
//! store    16, 24, 32 … 88, 96              104, 112, 120       …  in steps of 8, then of 1/16
//! ```
//!
//! A shown class sums the store's classes whose chunks fit its size and no smaller one's. Chunks are
//! counted as they are: chunks of a shown class differ in size, none is larger than it says. Pieces of
//! large values count where their size puts them. A page is 16 spans, rounded up.

use larder_store::{ClassTotals, chunk_sizes};

/// memcached's page of 1 MiB.
pub const PAGE_BYTES: u64 = 1 << 20;
/// Number of spans of 64 KiB in a page.
pub const SPANS_PER_PAGE: u64 = 16;
/// Numbers of classes are below this.
pub const CLASSES_END: u8 = 64;

/// Most sizes that can be given: class numbers 1 to 63, of which the last is for the largest chunk.
pub const SIZES_MAX: usize = CLASSES_END as usize - 2;

/// memcached's header, to which `-n` adds.
const HEADER_BYTES: f64 = 48.0;
/// Chunk sizes are multiples of this.
const ALIGN_BYTES: u32 = 8;

/// The sizes of memcached's classes: from `least` (`-n`) by `factor` (`-f`) up to `largest`.
pub fn slab_sizes(factor: f64, least: u32, largest: u32) -> Vec<u32> {
    let mut sizes = Vec::new();
    let mut size = HEADER_BYTES + f64::from(least);
    // memcached keeps whole bytes at every step; a factor too small for one gives it the same size
    // again, where here the next follows.
    while sizes.len() < SIZES_MAX && size < (f64::from(largest) / factor).floor() {
        let aligned = (size as u32).next_multiple_of(ALIGN_BYTES);
        sizes.push(aligned);
        size = (f64::from(aligned) * factor).floor().max(f64::from(aligned + ALIGN_BYTES));
    }
    sizes.push(largest);
    sizes
}

/// The shown classes, and which of the store's classes each covers.
#[derive(Debug)]
pub struct SlabClasses {
    /// Sizes by the number of the class, from 1.
    sizes: Vec<u32>,
    /// Shown class of each class of the store.
    shown: [u8; 256],
}

impl SlabClasses {
    /// Classes of these sizes, ascending.
    pub fn new(sizes: &[u32]) -> SlabClasses {
        let mut shown = [0; 256];
        for (class, bytes) in chunk_sizes() {
            // Chunks larger than all sizes are shown in the last class.
            let covers = sizes.iter().position(|&size| size >= bytes).unwrap_or(sizes.len() - 1);
            shown[usize::from(class)] = covers as u8 + 1;
        }
        SlabClasses { sizes: sizes.to_vec(), shown }
    }

    /// The number under which a class of the store is shown.
    pub fn of(&self, class: u8) -> u8 {
        self.shown[usize::from(class)]
    }

    /// The largest number of a shown class.
    pub fn last(&self) -> u8 {
        self.sizes.len() as u8
    }

    /// The classes of the store that `id` covers, ascending.
    pub fn members(&self, id: u8) -> impl Iterator<Item = u8> {
        chunk_sizes().map(|(class, _)| class).filter(move |&class| self.of(class) == id)
    }

    /// Sums of the classes that have memory, ascending by number.
    pub fn sum(&self, totals: &[ClassTotals]) -> Vec<Slab> {
        let mut slabs: Vec<Slab> = Vec::new();
        for class in totals {
            let id = self.of(class.id);
            match slabs.last_mut() {
                Some(slab) if slab.totals.id == id => slab.add(class),
                _ => slabs.push(Slab {
                    totals: ClassTotals { id, chunk_bytes: self.sizes[usize::from(id) - 1], ..class.clone() },
                }),
            }
        }
        slabs
    }
}

/// A shown class.
#[derive(Clone, Debug)]
pub struct Slab {
    /// Sums; number and chunk size are the shown ones.
    pub totals: ClassTotals,
}

impl Slab {
    fn add(&mut self, class: &ClassTotals) {
        let sum = &mut self.totals;
        for (sum, more) in [
            (&mut sum.spans, class.spans),
            (&mut sum.used_chunks, class.used_chunks),
            (&mut sum.free_chunks, class.free_chunks),
            (&mut sum.items, class.items),
            (&mut sum.requested_bytes, class.requested_bytes),
            (&mut sum.evictions, class.evictions),
            (&mut sum.evicted_unfetched, class.evicted_unfetched),
            (&mut sum.evicted_nonzero, class.evicted_nonzero),
            (&mut sum.reclaimed, class.reclaimed),
            (&mut sum.expired_unfetched, class.expired_unfetched),
            (&mut sum.out_of_memory, class.out_of_memory),
        ] {
            *sum += more;
        }
        sum.age_ms = sum.age_ms.max(class.age_ms);
        sum.evicted_age_s = sum.evicted_age_s.max(class.evicted_age_s);
    }

    /// Pages of 1 MiB, rounded up.
    pub fn pages(&self) -> u64 {
        self.totals.spans.div_ceil(SPANS_PER_PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_sizes_are_memcacheds() {
        let sizes = slab_sizes(1.25, 48, 512 << 10);
        let memcached = [
            96, 120, 152, 192, 240, 304, 384, 480, 600, 752, 944, 1184, 1480, 1856, 2320, 2904, 3632, 4544,
            5680, 7104, 8880, 11104, 13880, 17352, 21696, 27120, 33904, 42384, 52984, 66232, 82792, 103_496,
            129_376, 161_720, 202_152, 252_696, 315_872, 394_840, 524_288,
        ];
        assert_eq!(sizes, memcached);
    }

    #[test]
    fn small_factors_end_at_the_last_number() {
        let sizes = slab_sizes(1.01, 1, 512 << 10);
        assert_eq!(sizes.len(), usize::from(CLASSES_END) - 1);
        assert!(sizes.is_sorted_by(|a, b| a < b));
        assert_eq!(sizes.last(), Some(&(512 << 10)));
    }

    #[test]
    fn every_class_of_the_store_is_shown_once_and_fits() {
        for sizes in [slab_sizes(1.25, 48, 512 << 10), slab_sizes(2.0, 8, 512 << 10), vec![100, 1000]] {
            let classes = SlabClasses::new(&sizes);
            let mut members = Vec::new();
            for id in 1..=classes.last() {
                for class in classes.members(id) {
                    assert_eq!(classes.of(class), id);
                    members.push(class);
                }
            }
            assert!(members.iter().copied().eq(chunk_sizes().map(|(class, _)| class)));
            for (class, bytes) in chunk_sizes() {
                let id = usize::from(classes.of(class));
                assert!(bytes <= sizes[id - 1] || id == sizes.len());
                assert!(id == 1 || bytes > sizes[id - 2]);
            }
        }
    }
}
