//! A worker's magazine of one class: where it allocates without a lock.

use crate::class::ClassId;

/// Most chunks in a magazine.
const MAGAZINE_CHUNKS_MAX: usize = 32;
/// Most bytes in a magazine, but for one chunk.
const MAGAZINE_BYTES_MAX: usize = 4096;

/// A worker's free chunks of one class, as locations; last in, first out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Magazine {
    count: u8,
    /// Chunks it holds at most: [`Magazine::capacity`].
    count_max: u8,
    chunks: [u64; MAGAZINE_CHUNKS_MAX],
}

impl Magazine {
    /// Empty.
    pub(crate) fn new(class: ClassId) -> Magazine {
        let count_max = Self::capacity(class) as u8;
        Magazine { count: 0, count_max, chunks: [0; MAGAZINE_CHUNKS_MAX] }
    }

    /// Chunks a magazine of this class holds at most.
    #[inline]
    pub(crate) fn capacity(class: ClassId) -> usize {
        (MAGAZINE_BYTES_MAX / class.chunk_bytes()).clamp(1, MAGAZINE_CHUNKS_MAX)
    }
    pub(crate) fn len(&self) -> usize {
        usize::from(self.count)
    }
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        Some(self.chunks[self.count as usize])
    }
    /// What [`Magazine::pop`] gives next; whatever it gave last, if nothing.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.chunks[usize::from(self.count).saturating_sub(1) % MAGAZINE_CHUNKS_MAX]
    }
    #[inline]
    pub(crate) fn push(&mut self, chunk: u64) -> bool {
        let room = self.count < self.count_max;
        if room {
            self.chunks[self.count as usize] = chunk;
            self.count += 1;
        }
        room
    }
    /// The older half, to be given back; the newer half stays.
    pub(crate) fn older_half(&mut self) -> ([u64; MAGAZINE_CHUNKS_MAX], usize) {
        let out = self.chunks;
        let given = usize::from(self.count).div_ceil(2);
        self.chunks.copy_within(given..self.count as usize, 0);
        self.count -= given as u8;
        (out, given)
    }
}
