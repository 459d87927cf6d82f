//! Slab classes: which chunk size holds a request of n bytes.
//!
//! ```text
//! class   1 …  31   16, 24, 32 … 256 bytes     steps of 8
//! class  32 … 127   272, 288 … 512, 544 …      16 per doubling, up to 16 KiB
//! ```
//!
//! Classes are fixed, so an item's waste is at most 7 bytes up to 256 bytes and 1/16 above.

/// Bytes of a span, the unit in which classes own memory.
pub(crate) const SPAN_BYTES: usize = 64 * 1024;
/// The smallest chunk.
const CHUNK_BYTES_MIN: usize = 16;
/// The largest chunk: four of them fill a span.
pub(crate) const CHUNK_BYTES_MAX: usize = 16 * 1024;
/// Chunks up to this size come in steps of 8 bytes.
const FINE_BYTES_MAX: usize = 256;
/// Classes of fine steps.
const FINE_CLASSES: usize = (FINE_BYTES_MAX - CHUNK_BYTES_MIN) / 8 + 1;
/// Number of classes; ids run from 1 to this.
pub(crate) const CLASSES: usize = FINE_CLASSES + 6 * 16;

/// Class numbers are below this; 0 is no class.
pub const CLASSES_END: usize = CLASSES + 1;

/// Class of an item without flags and expiry whose key and value take so many bytes, at most some
/// 16 KiB together.
#[inline(always)]
pub fn plain_class(bytes: usize) -> u8 {
    ClassId::of(8 + bytes).0
}

/// Numbers and chunk sizes of all classes, ascending: what [`crate::ClassTotals`] speaks of.
pub fn chunk_sizes() -> impl Iterator<Item = (u8, u32)> {
    ClassId::all().map(|class| (class.0, class.chunk_bytes() as u32))
}

/// A slab class: 1 to [`CLASSES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassId(pub(crate) u8);

impl ClassId {
    /// The class of the largest chunks.
    pub(crate) const LONGEST: ClassId = ClassId(CLASSES as u8);

    /// The smallest class whose chunks hold `bytes`, which is at most [`CHUNK_BYTES_MAX`].
    #[inline]
    pub(crate) fn of(bytes: usize) -> ClassId {
        debug_assert!(bytes <= CHUNK_BYTES_MAX);
        if bytes <= FINE_BYTES_MAX {
            return ClassId((bytes.max(CHUNK_BYTES_MIN).div_ceil(8) - 1) as u8);
        }
        // 2^k < bytes <= 2^(k+1), cut in 16 steps of 2^(k-4).
        let k = (bytes - 1).ilog2() as usize;
        let step = (bytes - 1 - (1 << k)) >> (k - 4);
        ClassId((FINE_CLASSES + (k - 8) * 16 + step + 1) as u8)
    }

    /// Bytes of a chunk.
    #[inline]
    pub(crate) fn chunk_bytes(self) -> usize {
        CHUNK_BYTES[self.0 as usize] as usize
    }

    /// Chunks in a span.
    #[inline]
    pub(crate) fn chunks_per_span(self) -> usize {
        SPAN_BYTES / self.chunk_bytes()
    }

    pub(crate) fn all() -> impl Iterator<Item = ClassId> {
        (1..=CLASSES as u8).map(ClassId)
    }
}

/// Chunk bytes by class id; entry 0 is no class.
static CHUNK_BYTES: [u16; CLASSES + 1] = {
    let mut table = [0; CLASSES + 1];
    let mut id = 1;
    while id <= CLASSES {
        table[id] = if id <= FINE_CLASSES {
            ((id + 1) * 8) as u16
        } else {
            let k = (id - FINE_CLASSES - 1) / 16 + 8;
            let step = (id - FINE_CLASSES - 1) % 16;
            ((1usize << k) + ((step + 1) << (k - 4))) as u16
        };
        id += 1;
    }
    table
};

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_chunk_that_holds_it() {
        for bytes in 1..=CHUNK_BYTES_MAX {
            let class = ClassId::of(bytes);
            assert!(class.chunk_bytes() >= bytes);
            if class.0 > 1 {
                assert!(ClassId(class.0 - 1).chunk_bytes() < bytes);
            }
            let waste = class.chunk_bytes() - bytes;
            assert!(waste < 16 || waste * 16 < bytes, "{bytes} wastes {waste}");
        }
        assert_eq!(ClassId::of(CHUNK_BYTES_MAX).0 as usize, CLASSES);
    }
}
