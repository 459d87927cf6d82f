//! Limbo: chunks that are unlinked and wait until no worker can see them.
//!
//! ```text
//! oldest | no thread sees them | group (tag 7, 32 chunks) | group (tag 8, 40 chunks) | open, no tag yet | newest
//! ```
//!
//! A tag costs a fence, so chunks get theirs a group at a time: later than the unlinking is safe. What
//! no thread sees any more is taken back, or is the next to be written: a worker that writes over items
//! of one size goes round through its limbo alone.
//!
//! The ring grows while another worker is kept from leaving its epoch, by eight bytes for each chunk that waits, and
//! is bounded: a chunk waits once, chunks are of spans, and spans and what is charged are within the memory limit. What
//! it takes beyond some thousand places is charged as chunks come, for the two rings, too, that there are while it doubles,
//! and given back when they are. Groups are as many as epochs that chunks wait for, three at most.

use crate::class::ClassId;
use crate::epoch::Epochs;
use std::collections::VecDeque;

/// Chunks that make a group worth a fence.
const GROUP_CHUNKS: usize = 32;
/// Bytes of chunks that make a group worth a fence, too.
const GROUP_BYTES: u64 = 64 << 10;
/// What a large item weighs, whose pieces are not counted, and a part that may be pinned: more than may wait at all.
const LARGE_BYTES: u64 = 1 << 40;
/// Room for a steady stream of writes without allocating.
const CHUNKS_SOFT: usize = 1024;
/// Places that are not charged: those of a span that is drained, of the shortest chunks. Charged, each such span would take
/// another one.
const PLACES_FREE: usize = 8192;
/// Groups at most: a tag is safe two epochs later, and each seal is followed by a look.
const GROUPS_MAX: usize = 4;
/// Places of rings that there may be for each chunk that waits: a full one, and one twice as long that is about to take
/// its place.
const PLACES: usize = 3;

/// A chunk on its way out, with what its header says, so that a header that has long left the
/// cache is not read again.
///
/// ```text
/// | 63 large, or may be pinned | 62 … 56 class | 55 … 35 bytes requested | 34 … 0 location |
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
    /// It is one chunk, of this class.
    #[inline(always)]
    fn is_one_of(self, class: ClassId) -> bool {
        self.0 >> 56 == u64::from(class.0)
    }
    /// Its share of [`Limbo::bytes`].
    #[inline]
    fn weight(self) -> u64 {
        if self.large() { LARGE_BYTES } else { self.requested() as u64 }
    }
}

/// The queue of one worker.
#[derive(Debug)]
pub(crate) struct Limbo {
    /// A ring, a power of two long: chunk number `n` is at `n` modulo its length.
    ring: Box<[Outgoing]>,
    /// Numbers of chunks: the oldest, the first that may still be seen, the first without a tag, the next.
    oldest: usize,
    unsafe_from: usize,
    open_from: usize,
    next: usize,
    /// Tags of groups, and how many chunks each has; no two have the same.
    groups: VecDeque<(u64, usize)>,
    /// Bytes of the chunks with a tag, and of those without.
    sealed_bytes: u64,
    open_bytes: u64,
    /// Bytes that are charged to the memory limit: what is beyond [`PLACES_FREE`].
    charged: i64,
}

impl Limbo {
    pub(crate) fn new() -> Limbo {
        Limbo {
            ring: vec![Outgoing(0); CHUNKS_SOFT].into_boxed_slice(),
            oldest: 0,
            unsafe_from: 0,
            open_from: 0,
            next: 0,
            groups: VecDeque::with_capacity(GROUPS_MAX),
            sealed_bytes: 0,
            open_bytes: 0,
            charged: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.next - self.oldest
    }

    /// Bytes that wait; a large item counts for more than may.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.sealed_bytes + self.open_bytes
    }

    #[inline(always)]
    fn place(&self, number: usize) -> usize {
        number & (self.ring.len() - 1)
    }

    /// Adds an unlinked chunk.
    pub(crate) fn push(&mut self, chunk: Outgoing) {
        self.push_of(chunk, chunk.weight());
    }

    /// As [`Limbo::push`], of a chunk that is not the head of a large item.
    #[inline(always)]
    pub(crate) fn push_whole(&mut self, chunk: Outgoing) {
        debug_assert!(!chunk.large());
        self.push_of(chunk, chunk.requested() as u64);
    }

    #[inline(always)]
    fn push_of(&mut self, chunk: Outgoing, weight: u64) {
        if self.len() == self.ring.len() {
            self.enlarge();
        }
        let place = self.place(self.next);
        self.ring[place] = chunk;
        self.next += 1;
        self.open_bytes += weight;
    }

    /// Doubles the ring: another worker is kept from leaving its epoch.
    #[cold]
    #[inline(never)]
    fn enlarge(&mut self) {
        self.resize(self.ring.len() * 2);
    }

    /// Gives back what the ring has beyond its usual size and does not need. Returns how many bytes more, or (negative)
    /// fewer, are to be charged than when this was last called.
    #[inline]
    pub(crate) fn shrink(&mut self) -> i64 {
        if self.ring.len() == CHUNKS_SOFT && self.charged == 0 { 0 } else { self.shrink_large() }
    }

    #[cold]
    fn shrink_large(&mut self) -> i64 {
        if self.len() < self.ring.len() / 4 {
            self.resize((self.len() * 2).next_power_of_two().max(CHUNKS_SOFT));
        }
        let places = if self.ring.len() == CHUNKS_SOFT {
            CHUNKS_SOFT
        } else {
            self.ring.len().max(PLACES * self.len())
        };
        let bytes = (places.saturating_sub(PLACES_FREE) * size_of::<Outgoing>()) as i64;
        bytes - std::mem::replace(&mut self.charged, bytes)
    }

    fn resize(&mut self, chunks: usize) {
        let mut ring = vec![Outgoing(0); chunks].into_boxed_slice();
        let mask = ring.len() - 1;
        for number in self.oldest..self.next {
            ring[number & mask] = self.ring[self.place(number)];
        }
        self.ring = ring;
    }

    /// True when enough chunks have come together to be tagged.
    #[inline]
    pub(crate) fn group_is_full(&self) -> bool {
        self.next - self.open_from >= GROUP_CHUNKS || self.open_bytes >= GROUP_BYTES
    }

    /// Tags what has no tag.
    pub(crate) fn seal(&mut self, epochs: &Epochs) {
        if self.next > self.open_from {
            let (tag, chunks) = (epochs.tag(), self.next - self.open_from);
            match self.groups.back_mut() {
                Some(last) if last.0 == tag => last.1 += chunks,
                _ => self.groups.push_back((tag, chunks)),
            }
            debug_assert!(self.groups.len() <= GROUPS_MAX);
            self.open_from = self.next;
            self.sealed_bytes += std::mem::take(&mut self.open_bytes);
        }
    }

    /// Looks which chunks no thread can see any more; true if there are any.
    pub(crate) fn look(&mut self, epochs: &Epochs) -> bool {
        while let Some(&(tag, chunks)) = self.groups.front()
            && epochs.safe(tag)
        {
            self.unsafe_from += chunks;
            self.groups.pop_front();
        }
        self.oldest < self.unsafe_from
    }

    /// The oldest chunk, if it is of `class`, in one piece, and no thread can see it any more.
    #[inline(always)]
    pub(crate) fn take_of(&mut self, class: ClassId) -> Option<Outgoing> {
        let chunk = self.front();
        if !chunk.is_one_of(class) || self.oldest == self.unsafe_from {
            return None;
        }
        self.oldest += 1;
        self.sealed_bytes -= chunk.requested() as u64;
        Some(chunk)
    }

    /// The oldest chunk; whatever was there last, if there is none.
    #[inline(always)]
    pub(crate) fn front(&self) -> Outgoing {
        self.ring[self.place(self.oldest)]
    }

    /// The oldest chunk is that of a large item or a part, and can be taken, as far as [`Limbo::look`] has seen.
    pub(crate) fn large_is_next(&self) -> bool {
        self.oldest < self.unsafe_from && self.front().large()
    }

    /// The oldest chunk, if [`Limbo::look`] has seen that no other thread sees it any more.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Outgoing> {
        (self.oldest < self.unsafe_from).then(|| {
            let chunk = self.front();
            self.oldest += 1;
            self.sealed_bytes -= chunk.weight();
            chunk
        })
    }

    /// Has a chunk that was taken a moment ago, and nothing since, wait in front of all others again.
    pub(crate) fn put_back(&mut self, chunk: Outgoing) {
        self.oldest -= 1;
        debug_assert_eq!(self.front(), chunk, "something else was taken since");
        self.sealed_bytes += chunk.weight();
    }
}

#[cfg(all(test, not(feature = "loom")))]
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
            limbo.look(&epochs);
            std::iter::from_fn(|| limbo.take()).collect::<Vec<_>>()
        };
        assert_eq!(take(&mut limbo), [], "it has no tag yet");
        limbo.seal(&epochs);
        limbo.push(second);
        assert!(epochs.advance());
        assert_eq!(take(&mut limbo), []);
        assert!(epochs.advance());
        assert_eq!((take(&mut limbo), limbo.len()), (vec![first], 1));
    }
    #[test]
    fn groups_are_as_few_as_epochs_however_often_they_are_sealed() {
        let epochs = Epochs::new(2);
        let mut limbo = Limbo::new();
        epochs.enter(1);
        for location in 1..=5000 {
            limbo.push(Outgoing::new(location, ClassId(3), 20, false));
            limbo.seal(&epochs);
            // Once, then it is kept from going on.
            epochs.advance();
            assert!(!limbo.look(&epochs));
        }
        assert_eq!((limbo.len(), limbo.groups.len()), (5000, 2));
        assert!(limbo.groups.capacity() <= 8);
        epochs.leave(1);
        assert!(epochs.advance() && epochs.advance());
        limbo.look(&epochs);
        assert_eq!(std::iter::from_fn(|| limbo.take()).count(), 5000);
    }
    #[test]
    fn chunk_is_taken_for_its_class_alone_and_in_order() {
        let epochs = Epochs::new(1);
        let mut limbo = Limbo::new();
        let chunk = |location, class, large| Outgoing::new(location, ClassId(class), 20, large);
        for location in 1..=2000 {
            limbo.push(chunk(location, 3, false));
            if location % 40 == 0 {
                limbo.seal(&epochs);
            }
        }
        limbo.push(chunk(2001, 4, false));
        limbo.push(chunk(2002, 4, true));
        limbo.seal(&epochs);
        assert_eq!((limbo.take_of(ClassId(3)), limbo.bytes()), (None, 2001 * 20 + LARGE_BYTES));
        assert!(epochs.advance() && epochs.advance());
        assert!(limbo.look(&epochs));
        assert_eq!(limbo.take_of(ClassId(4)), None);
        for location in 1..=2000 {
            assert_eq!(limbo.take_of(ClassId(3)), Some(chunk(location, 3, false)));
        }
        assert_eq!((limbo.take_of(ClassId(3)), limbo.len()), (None, 2));
        assert_eq!(limbo.take_of(ClassId(4)), Some(chunk(2001, 4, false)));
        assert_eq!(limbo.take_of(ClassId(4)), None, "a large one is more than its chunk");
        let large = chunk(2002, 4, true);
        assert!(limbo.large_is_next());
        for _ in 0..2 {
            assert_eq!((limbo.take(), limbo.bytes(), limbo.len()), (Some(large), 0, 0));
            limbo.put_back(large);
            assert_eq!((limbo.bytes(), limbo.len()), (LARGE_BYTES, 1));
        }
        assert_eq!((limbo.take(), limbo.take()), (Some(large), None));
        assert!(!limbo.large_is_next());
    }
}
