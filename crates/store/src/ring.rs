//! A first-in, first-out queue of 64-bit hashes in blocks of 4 KiB: grows without copying, and gives
//! blocks back as it drains (one is kept, so that a steady queue allocates nothing).

use std::collections::VecDeque;

const BLOCK_HASHES: usize = 512;
/// Heap bytes of one block.
pub(crate) const BLOCK_BYTES: i64 = (BLOCK_HASHES * 8) as i64;

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    blocks: VecDeque<Box<[u64; BLOCK_HASHES]>>,
    spare: Option<Box<[u64; BLOCK_HASHES]>>,
    /// Index of the first hash in the first block.
    head: usize,
    len: usize,
}

impl Ring {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a hash; returns how many bytes of heap that took.
    pub(crate) fn push(&mut self, hash: u64) -> i64 {
        let at = self.head + self.len;
        let mut taken = 0;
        if at == self.blocks.len() * BLOCK_HASHES {
            let block = self.spare.take().unwrap_or_else(|| {
                taken = BLOCK_BYTES;
                Box::new([0; BLOCK_HASHES])
            });
            self.blocks.push_back(block);
        }
        self.blocks[at / BLOCK_HASHES][at % BLOCK_HASHES] = hash;
        self.len += 1;
        taken
    }

    /// Bytes of heap.
    pub(crate) fn bytes(&self) -> i64 {
        (self.blocks.len() + usize::from(self.spare.is_some())) as i64 * BLOCK_BYTES
    }

    /// The oldest hash.
    pub(crate) fn front(&self) -> Option<u64> {
        (self.len > 0).then(|| self.blocks[0][self.head])
    }

    /// Takes the oldest hash; the second value is how many bytes of heap that gave back.
    pub(crate) fn pop(&mut self) -> Option<(u64, i64)> {
        if self.len == 0 {
            return None;
        }
        let hash = self.blocks[0][self.head];
        self.head += 1;
        self.len -= 1;
        let mut given = 0;
        if self.head == BLOCK_HASHES {
            self.head = 0;
            let block = self.blocks.pop_front().expect("the ring is not empty");
            if self.spare.replace(block).is_some() {
                given = BLOCK_BYTES;
            }
        }
        Some((hash, given))
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn hashes_leave_in_the_order_they_came_and_bytes_add_up() {
        let mut ring = Ring::default();
        let (mut next, mut oldest, mut bytes) = (0, 0, 0);
        for round in 0..50 {
            for _ in 0..round * 37 {
                bytes += ring.push(next);
                next += 1;
            }
            for _ in 0..round * 30 {
                let (hash, given) = ring.pop().unwrap();
                assert_eq!(hash, oldest);
                bytes -= given;
                oldest += 1;
            }
            assert_eq!(ring.len() as u64, next - oldest);
        }
        assert_eq!(bytes, ring.bytes());
    }
}
