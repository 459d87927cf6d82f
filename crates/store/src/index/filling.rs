//! Filling: the slots of a segment are dealt out anew to buckets that no other thread can touch.

use super::place::{home_of, other_of};
use crate::bucket::{Bucket, SLOTS, Slot};

/// Moves that are tried for one slot before it is left out.
const MOVES_MAX: usize = 200;

/// Buckets on their way from empty to full. All that could put something there are locked, so what each holds is
/// known without a look at it.
pub(super) struct Filling<'b, 'p> {
    buckets: &'b [&'p Bucket],
    counts: Vec<Count>,
}

#[derive(Clone, Copy, Default)]
struct Count {
    /// Slots filled.
    used: u8,
    /// Items at home here that live in their other bucket.
    away: u16,
}

impl<'b, 'p> Filling<'b, 'p> {
    /// Empty buckets, in the order of positions.
    pub(super) fn new(buckets: &'b [&'p Bucket]) -> Filling<'b, 'p> {
        Filling { buckets, counts: vec![Count::default(); buckets.len()] }
    }

    /// Puts a slot where it belongs, moving others as far as it takes; the error is the slot that
    /// is left over, if there is no place.
    #[inline]
    pub(super) fn place(&mut self, slot: Slot) -> Result<(), Slot> {
        let n = self.buckets.len();
        let home = home_of(slot.tag(), n);
        if self.put(home, slot) {
            return Ok(());
        }
        let other = other_of(slot.tag(), n);
        if self.put(other, slot) {
            self.counts[home].away += 1;
            return Ok(());
        }
        self.displace(other, slot)
    }

    /// How many of the items at home in bucket `i` live elsewhere.
    pub(super) fn away(&self, i: usize) -> u64 {
        self.counts[i].away.into()
    }

    #[inline]
    fn put(&mut self, at: usize, slot: Slot) -> bool {
        let used = &mut self.counts[at].used;
        let i = usize::from(*used);
        if i == SLOTS {
            return false;
        }
        *used += 1;
        self.buckets[at].replace(i, slot);
        true
    }

    /// Home and other bucket of a slot are full: it takes the place of one in `bucket`, which goes to its own
    /// other place, and so on.
    #[cold]
    fn displace(&mut self, mut bucket: usize, slot: Slot) -> Result<(), Slot> {
        let n = self.buckets.len();
        let mut homeless = slot;
        for turn in 0..MOVES_MAX {
            let victim = (homeless.0 as usize).wrapping_add(turn) % SLOTS;
            let next = self.buckets[bucket].slot(victim);
            self.buckets[bucket].replace(victim, homeless);
            let home = home_of(homeless.tag(), n);
            self.counts[home].away += u16::from(bucket != home);
            homeless = next;
            let (home, other) = (home_of(homeless.tag(), n), other_of(homeless.tag(), n));
            self.counts[home].away -= u16::from(bucket != home);
            // To the one that it did not come from.
            bucket = if bucket == home { other } else { home };
            if self.put(bucket, homeless) {
                self.counts[home].away += u16::from(bucket != home);
                return Ok(());
            }
        }
        Err(homeless)
    }
}
