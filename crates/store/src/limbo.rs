//! Limbo: chunks that are unlinked and wait until no worker can see them.
//!
//! ```text
//! oldest | group (tag 7, 32 chunks) | group (tag 8, 40 chunks) | open, no tag yet | newest
//! ```
//!
//! A tag costs a fence, so chunks get theirs a group at a time: later than the unlinking is safe.

use crate::class::ClassId;
use crate::epoch::Epochs;
use std::collections::VecDeque;

/// Chunks that make a group worth a fence, …
const GROUP_CHUNKS: usize = 32;
/// … or their bytes.
const GROUP_BYTES: u64 = 64 << 10;
/// What a large item weighs, whose pieces are not counted: more than may wait at all.
const LARGE_BYTES: u64 = 1 << 40;
/// Room for a steady stream of writes without allocating.
const CHUNKS_SOFT: usize = 1024;

/// A chunk on its way out, with what its header says, so that a header that has long left the
/// cache is not read again.
///
/// ```text
/// | 63 large | 62 … 56 class | 55 … 35 bytes requested | 34 … 0 location |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing(u64);

impl Outgoing {
    #[inline]
    pub(crate) fn new(location: u64, class: ClassId, requested: usize, large: bool) -> Outgoing {
        debug_assert!(requested < 1 << 21);
        Outgoing(u64::from(large) << 63 | u64::from(class.0) << 56 | (requested as u64) << 35 | location)
    }
    #[inline]
    pub(crate) fn location(self) -> u64 {
        self.0 & ((1 << 35) - 1)
    }
    #[inline]
    pub(crate) fn class(self) -> ClassId {
        ClassId((self.0 >> 56 & 0x7f) as u8)
    }
    #[inline]
    pub(crate) fn requested(self) -> usize {
        (self.0 >> 35 & ((1 << 21) - 1)) as usize
    }
    #[inline]
    pub(crate) fn large(self) -> bool {
        self.0 >> 63 != 0
    }
    /// Its share of [`Limbo::bytes`].
    #[inline]
    fn weight(self) -> u64 {
        if self.large() { LARGE_BYTES } else { self.requested() as u64 }
    }
}

/// The queue of one worker.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    chunks: VecDeque<Outgoing>,
    groups: VecDeque<(u64, usize)>,
    /// Chunks without a tag, at the new end, and their bytes.
    open: usize,
    open_bytes: u64,
    bytes: u64,
}

impl Limbo {
    pub(crate) fn new() -> Limbo {
        Limbo {
            chunks: VecDeque::with_capacity(CHUNKS_SOFT),
            groups: VecDeque::with_capacity(CHUNKS_SOFT / GROUP_CHUNKS),
            open: 0,
            open_bytes: 0,
            bytes: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Bytes that wait; a large item counts for more than may.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds an unlinked chunk.
    #[inline]
    pub(crate) fn push(&mut self, chunk: Outgoing) {
        self.chunks.push_back(chunk);
        self.open += 1;
        self.open_bytes += chunk.weight();
        self.bytes += chunk.weight();
    }

    /// True when enough chunks have come together to be tagged.
    #[inline]
    pub(crate) fn group_is_full(&self) -> bool {
        self.open >= GROUP_CHUNKS || self.open_bytes >= GROUP_BYTES
    }

    /// Tags what has no tag.
    pub(crate) fn seal(&mut self, epochs: &Epochs) {
        if self.open > 0 {
            self.groups.push_back((epochs.tag(), self.open));
            (self.open, self.open_bytes) = (0, 0);
        }
    }

    /// True when the chunks that wait longest need wait no longer.
    pub(crate) fn oldest_is_safe(&self, epochs: &Epochs) -> bool {
        self.groups.front().is_some_and(|&(tag, _)| epochs.safe(tag))
    }

    /// Takes out up to `count` of the oldest chunks that nobody can see any more.
    pub(crate) fn take_safe(&mut self, epochs: &Epochs, count: usize, mut each: impl FnMut(Outgoing)) {
        let mut left = count;
        while left > 0
            && let Some((tag, waiting)) = self.groups.front_mut()
            && epochs.safe(*tag)
        {
            let taken = left.min(*waiting);
            *waiting -= taken;
            left -= taken;
            if *waiting == 0 {
                self.groups.pop_front();
            }
            for chunk in self.chunks.drain(..taken) {
                self.bytes -= chunk.weight();
                each(chunk);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn chunk_leaves_two_epochs_after_its_group_was_sealed() {
        let epochs = Epochs::new(1);
        let mut limbo = Limbo::new();
        let chunk = |location| Outgoing::new(location, ClassId(127), 16384, true);
        let (first, second) = (chunk(1), chunk((1 << 35) - 1));
        assert_eq!(
            (second.location(), second.class(), second.requested()),
            ((1 << 35) - 1, ClassId(127), 16384)
        );
        limbo.push(first);
        let take = |limbo: &mut Limbo| {
            let mut taken = Vec::new();
            limbo.take_safe(&epochs, 10, |chunk| taken.push(chunk));
            taken
        };
        assert_eq!(take(&mut limbo), [], "it has no tag yet");
        limbo.seal(&epochs);
        limbo.push(second);
        assert!(epochs.advance());
        assert_eq!(take(&mut limbo), []);
        assert!(epochs.advance());
        assert_eq!((take(&mut limbo), limbo.len()), (vec![first], 1));
    }
}
