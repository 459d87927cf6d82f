//! A bucket: one cache line of the index.
//!
//! ```text
//! control  | 63 … 20 writes | 19 … 12 flush stamp | 11 … 3 away | 2 watched | 1 transaction | 0 lock |
//! slot ×7  | 63 … 47 tag | 46 … 38 last access | 37 probation | 36 35 frequency | 34 … 0 location |
//! ```
//!
//! - **writes** counts the writes to the keys at home here. It is the version that readers check
//!   after a miss, and the source of CAS tokens: it never goes back.
//! - **away** counts the items at home here that live in their other bucket (stuck at its maximum).
//! - **flush stamp**: a bucket whose stamp is not the store's has to be cleaned before it is used.
//! - **transaction**, **watched**: for commands that write several keys at once, and for WATCH.
//! - **location** is in units of 8 bytes, 0 is an empty slot.
//!
//! Rules: an item's slot is moved, replaced or cleared only by the holder of its *home* bucket's
//! lock; an empty slot anywhere is claimed by compare-and-swap; readers change frequency and last
//! access by compare-and-swap too, so that a slot cleared meanwhile stays clear.

use crate::access;
use crate::sync::{AtomicU64, Backoff, Ordering};

/// Slots of a bucket.
pub(crate) const SLOTS: usize = 7;
/// Bits of the tag, which is also the position inside the segment.
pub(crate) const TAG_BITS: u32 = 17;
/// Bits of the location.
pub(crate) const LOCATION_BITS: u32 = 35;
/// Bits of last access.
pub(crate) const ACCESS_BITS: u32 = 9;
/// The highest frequency.
pub(crate) const FREQUENCY_MAX: u64 = 3;

const FREQUENCY_SHIFT: u32 = LOCATION_BITS;
const PROBATION: u64 = 1 << (LOCATION_BITS + 2);
const ACCESS_SHIFT: u32 = LOCATION_BITS + 3;
const TAG_SHIFT: u32 = ACCESS_SHIFT + ACCESS_BITS;
const _: () = assert!(TAG_SHIFT + TAG_BITS == 64);

/// One slot's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u64);

impl Slot {
    pub(crate) const EMPTY: Slot = Slot(0);

    #[inline]
    pub(crate) fn new(tag: u64, location: u64, access: u64, probation: bool) -> Slot {
        debug_assert!(tag < 1 << TAG_BITS && location < 1 << LOCATION_BITS && access < 1 << ACCESS_BITS);
        Slot(tag << TAG_SHIFT | access << ACCESS_SHIFT | if probation { PROBATION } else { 0 } | location)
    }
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
    #[inline]
    pub(crate) fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }
    #[inline]
    pub(crate) fn location(self) -> u64 {
        self.0 & ((1 << LOCATION_BITS) - 1)
    }
    #[inline]
    pub(crate) fn frequency(self) -> u64 {
        self.0 >> FREQUENCY_SHIFT & 3
    }
    #[inline]
    pub(crate) fn probation(self) -> bool {
        self.0 & PROBATION != 0
    }
    #[inline]
    pub(crate) fn access(self) -> u64 {
        self.0 >> ACCESS_SHIFT & ((1 << ACCESS_BITS) - 1)
    }
    #[inline]
    pub(crate) fn with_tag(self, tag: u64) -> Slot {
        Slot(self.0 & ((1 << TAG_SHIFT) - 1) | tag << TAG_SHIFT)
    }
    #[inline]
    pub(crate) fn with_location(self, location: u64) -> Slot {
        Slot(self.0 & !((1 << LOCATION_BITS) - 1) | location)
    }
    #[inline]
    pub(crate) fn with_frequency(self, frequency: u64) -> Slot {
        debug_assert!(frequency <= FREQUENCY_MAX);
        Slot(self.0 & !(3 << FREQUENCY_SHIFT) | frequency << FREQUENCY_SHIFT)
    }
    #[inline]
    pub(crate) fn with_access(self, access: u64) -> Slot {
        Slot(self.0 & !(((1 << ACCESS_BITS) - 1) << ACCESS_SHIFT) | access << ACCESS_SHIFT)
    }
    /// The slot of a key with a new value, at `location`. The write counts as a read, if there was none yet. (It sets one
    /// bit, so that a frequency of two becomes three.)
    #[inline]
    pub(crate) fn overwritten(self, location: u64) -> Slot {
        Slot(self.0 | 1 << FREQUENCY_SHIFT).with_location(location)
    }
    #[inline]
    pub(crate) fn promoted(self) -> Slot {
        Slot(self.0 & !PROBATION)
    }
    /// Its frequency is full and its last access was written down not long before `now_s`: another
    /// read has nothing to write. Twice in 256 s this says no for some seconds although it is so.
    #[inline(always)]
    pub(crate) fn is_hot(self, now_s: u64) -> bool {
        // Both lie in the upper half, whose masks fit into an instruction.
        const FULL: u32 = (FREQUENCY_MAX << FREQUENCY_SHIFT >> u32::BITS) as u32;
        const COARSE: u32 = (access::COARSE_BIT << ACCESS_SHIFT >> u32::BITS) as u32;
        let upper = (self.0 >> u32::BITS) as u32;
        upper & (FULL | COARSE) == FULL
            && access::surely_fresh(u64::from(upper >> (ACCESS_SHIFT - u32::BITS)), now_s)
    }
}

const LOCK: u64 = 1;
const TRANSACTION: u64 = 1 << 1;
const WATCHED: u64 = 1 << 2;
const AWAY_SHIFT: u32 = 3;
const AWAY_MAX: u64 = 511;
const STAMP_SHIFT: u32 = 12;
const WRITES_SHIFT: u32 = 20;

/// A control word's bits. The holder of the lock keeps it by value and gives it back to unlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control(pub(crate) u64);

impl Control {
    pub(crate) fn new(writes: u64, stamp: u8) -> Control {
        Control(writes << WRITES_SHIFT | u64::from(stamp) << STAMP_SHIFT)
    }
    /// Locked or in a transaction: whatever a reader did not find may still be on its way.
    #[inline]
    pub(crate) fn busy(self) -> bool {
        self.0 & (LOCK | TRANSACTION) != 0
    }
    #[inline]
    pub(crate) fn watched(self) -> bool {
        self.0 & WATCHED != 0
    }
    #[inline]
    pub(crate) fn with_watched(self) -> Control {
        Control(self.0 | WATCHED)
    }
    #[inline]
    pub(crate) fn writes(self) -> u64 {
        self.0 >> WRITES_SHIFT
    }
    #[inline]
    pub(crate) fn written(self) -> Control {
        Control(self.0 + (1 << WRITES_SHIFT))
    }
    #[inline]
    pub(crate) fn stamp(self) -> u8 {
        (self.0 >> STAMP_SHIFT) as u8
    }
    /// What a control word must say for its bucket to be used while the store's stamp is `stamp`.
    #[inline]
    pub(crate) fn gate(stamp: u8) -> u64 {
        u64::from(stamp) << STAMP_SHIFT
    }
    /// True if nothing here was flushed, and no transaction is under way, for a gate from [`Control::gate`].
    #[inline(always)]
    pub(crate) fn passes(self, gate: u64) -> bool {
        self.0 & (0xff << STAMP_SHIFT | TRANSACTION) == gate
    }
    /// As [`Control::passes`], and the number of the next write fits a header.
    #[inline(always)]
    pub(crate) fn passes_once_more(self, gate: u64) -> bool {
        const LONG: u64 = !0 << (WRITES_SHIFT + u32::BITS);
        self.written().0 & (LONG | 0xff << STAMP_SHIFT | TRANSACTION) == gate
    }
    #[inline]
    pub(crate) fn with_stamp(self, stamp: u8) -> Control {
        Control(self.0 & !(0xff << STAMP_SHIFT) | u64::from(stamp) << STAMP_SHIFT)
    }
    #[inline]
    pub(crate) fn without_watched(self) -> Control {
        Control(self.0 & !WATCHED)
    }
    /// In a transaction.
    #[inline]
    pub(crate) fn in_transaction(self) -> bool {
        self.0 & TRANSACTION != 0
    }
    #[inline]
    pub(crate) fn with_transaction(self) -> Control {
        Control(self.0 | TRANSACTION)
    }
    #[inline]
    pub(crate) fn without_transaction(self) -> Control {
        Control(self.0 & !TRANSACTION)
    }
    /// The control word with no items at home here that live elsewhere.
    pub(crate) fn without_away(self) -> Control {
        Control(self.0 & !(AWAY_MAX << AWAY_SHIFT))
    }
    #[inline]
    pub(crate) fn away(self) -> u64 {
        self.0 >> AWAY_SHIFT & AWAY_MAX
    }
    /// The control word with so many items at home here that live elsewhere.
    pub(crate) fn with_away(self, items: u64) -> Control {
        Control(self.without_away().0 | items.min(AWAY_MAX) << AWAY_SHIFT)
    }
    #[inline]
    pub(crate) fn away_more(self) -> Control {
        if self.away() == AWAY_MAX { self } else { Control(self.0 + (1 << AWAY_SHIFT)) }
    }
    #[inline]
    pub(crate) fn away_less(self) -> Control {
        // Once stuck at the maximum the count is unknown; the next rebuild counts anew.
        if self.away() == AWAY_MAX { self } else { Control(self.0 - (1 << AWAY_SHIFT)) }
    }
}

/// One bucket. All zero is an empty bucket that was never written.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    control: AtomicU64,
    slots: [Cell; SLOTS],
}

/// A slot's word in its bucket.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Cell(AtomicU64);

impl Cell {
    /// The slot.
    #[inline(always)]
    pub(crate) fn slot(&self) -> Slot {
        // Acquire pairs with the Release of the thread that wrote it: the item is complete.
        Slot(self.0.load(Ordering::Acquire))
    }

    /// Replaces the slot, whatever readers have done to its frequency. The caller holds the lock of
    /// the home of the item that is there.
    #[inline(always)]
    pub(crate) fn replace(&self, new: Slot) {
        #[cfg(not(feature = "loom"))]
        self.0.store(new.0, Ordering::Release);
        // The checker does not know that a store cannot come before a compare-and-swap that read
        // what was there earlier; a swap says it.
        #[cfg(feature = "loom")]
        self.0.swap(new.0, Ordering::AcqRel);
    }

    /// Makes a reader's change of frequency or last access; false, and nothing done, if the slot changed meanwhile.
    #[inline]
    pub(crate) fn bump(&self, old: Slot, new: Slot) -> bool {
        self.0.compare_exchange(old.0, new.0, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}
#[cfg(not(feature = "loom"))]
const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    #[cfg(any(test, feature = "loom"))]
    pub(crate) fn new() -> Bucket {
        Bucket { control: AtomicU64::new(0), slots: std::array::from_fn(|_| Cell(AtomicU64::new(0))) }
    }

    /// The control word, as readers see it.
    #[inline]
    pub(crate) fn control(&self) -> Control {
        // Acquire pairs with `unlock`: slots read later are at least as new as this word.
        Control(self.control.load(Ordering::Acquire))
    }

    /// Takes the lock; waits for its holder, and for a transaction, as only tests and models may.
    #[cfg(any(test, feature = "loom"))]
    pub(crate) fn lock(&self) -> Control {
        let mut backoff = Backoff::default();
        loop {
            if let Some(control) = self.try_lock() {
                return control;
            }
            backoff.wait();
        }
    }

    /// Takes the lock; waits for its holder, but for no transaction.
    #[inline]
    pub(crate) fn lock_open(&self) -> Option<Control> {
        let mut backoff = Backoff::default();
        loop {
            if let Some(control) = self.try_lock() {
                return Some(control);
            }
            if self.control().in_transaction() {
                return None;
            }
            backoff.wait();
        }
    }

    /// Takes the lock whether a transaction has the bucket or not: for the transaction itself, and for a key that is
    /// not one of its keys. Waits for the lock's holder.
    pub(crate) fn lock_beside(&self) -> Control {
        let mut backoff = Backoff::default();
        loop {
            if let Some(control) = self.try_lock_beside() {
                return control;
            }
            backoff.wait();
        }
    }

    /// As [`Bucket::lock_beside`], if the lock is free.
    pub(crate) fn try_lock_beside(&self) -> Option<Control> {
        let control = Control(self.control.load(Ordering::Relaxed));
        // Acquire pairs with `unlock`, as in `try_lock`.
        (control.0 & LOCK == 0
            && self
                .control
                .compare_exchange(control.0, control.0 | LOCK, Ordering::Acquire, Ordering::Relaxed)
                .is_ok())
        .then_some(control)
    }

    /// The control word, if neither a lock nor a transaction is on it. A store with a single worker uses this instead of
    /// the lock, which no other thread of it ever takes.
    #[inline(always)]
    pub(crate) fn lock_alone(&self) -> Option<Control> {
        let control = Control(self.control.load(Ordering::Relaxed));
        (!control.busy()).then_some(control)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Control> {
        let control = self.control.load(Ordering::Relaxed);
        if Control(control).busy() {
            return None;
        }
        // Acquire pairs with `unlock`: the new holder sees what the last one wrote.
        self.control
            .compare_exchange(control, control | LOCK, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then_some(Control(control))
    }

    /// Gives the lock back with the control word as it now is.
    #[inline]
    pub(crate) fn unlock(&self, control: Control) {
        debug_assert!(control.0 & LOCK == 0);
        self.control.store(control.0, Ordering::Release);
    }

    /// Slot `i`.
    #[inline]
    pub(crate) fn slot(&self, i: usize) -> Slot {
        self.slots[i].slot()
    }

    /// The word of slot `i`.
    #[inline(always)]
    pub(crate) fn cell(&self, i: usize) -> &Cell {
        &self.slots[i]
    }

    /// A bit per slot that carries `tag`.
    #[cfg(all(target_arch = "x86_64", not(any(feature = "loom", feature = "schedule"))))]
    #[inline(always)]
    pub(crate) fn matches(&self, tag: u64) -> u32 {
        use std::arch::x86_64::{
            _mm_castps_si128, _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_load_si128, _mm_movemask_epi8,
            _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32, _mm_shuffle_ps, _mm_srli_epi32,
        };
        const TAG: i32 = TAG_SHIFT as i32 - 32;
        // SAFETY: 1. The bucket is 64 bytes, aligned to 64. 2. x86-64 loads each aligned word of a
        // vector whole, in order, as it does single words. 3. What is found is a guess: callers
        // load the slot itself, and a miss is checked against the control word.
        let equal = unsafe {
            let words = std::ptr::from_ref(self).cast::<std::arch::x86_64::__m128i>();
            let pair = |i| _mm_castsi128_ps(_mm_load_si128(words.add(i)));
            // The tags in the high halves of four words, a vector of four.
            let four = |i| _mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(pair(i), pair(i + 1)));
            let wanted = _mm_set1_epi32(tag as i32);
            let equal = |i| _mm_cmpeq_epi32(_mm_srli_epi32::<TAG>(four(i)), wanted);
            let both = _mm_packs_epi32(equal(0), equal(2));
            _mm_movemask_epi8(_mm_packs_epi16(both, both)) as u32 & 0xff
        };
        // The first word is the control word.
        equal >> 1
    }

    /// A bit per slot that carries `tag`.
    #[cfg(not(all(target_arch = "x86_64", not(any(feature = "loom", feature = "schedule")))))]
    pub(crate) fn matches(&self, tag: u64) -> u32 {
        // A slot with the tag, its tag bits flipped by the tag, is below the lowest other tag:
        // compare and add with carry, without a branch.
        let flip = tag << TAG_SHIFT;
        let mut mask = 0;
        for slot in self.slots.iter().rev() {
            mask = mask * 2 + u32::from(slot.0.load(Ordering::Acquire) ^ flip < 1 << TAG_SHIFT);
        }
        mask
    }

    /// Slots that are not empty.
    pub(crate) fn slots_used(&self) -> usize {
        (0..SLOTS).filter(|&i| !self.slot(i).is_empty()).count()
    }

    /// Fills an empty slot; false if there is none. The caller holds the item's home lock.
    #[inline]
    pub(crate) fn claim(&self, new: Slot) -> bool {
        self.slots.iter().any(|slot| {
            slot.0.load(Ordering::Relaxed) == 0
                && slot.0.compare_exchange(0, new.0, Ordering::Release, Ordering::Relaxed).is_ok()
        })
    }

    /// [`Cell::replace`] of slot `i`.
    #[inline]
    pub(crate) fn replace(&self, i: usize, new: Slot) {
        self.slots[i].replace(new);
    }

    /// [`Cell::bump`] of slot `i`.
    #[inline]
    pub(crate) fn bump(&self, i: usize, old: Slot, new: Slot) -> bool {
        self.slots[i].bump(old, new)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_slot_do_not_touch_each_other() {
        let slot = Slot::new((1 << TAG_BITS) - 1, (1 << LOCATION_BITS) - 1, 5, true).with_frequency(3);
        assert_eq!(slot.tag(), (1 << TAG_BITS) - 1);
        assert_eq!(slot.location(), (1 << LOCATION_BITS) - 1);
        assert_eq!((slot.access(), slot.frequency(), slot.probation()), (5, 3, true));
        let slot = slot.promoted().with_access(511).with_frequency(0).with_location(1).with_tag(2);
        assert_eq!((slot.tag(), slot.location(), slot.access()), (2, 1, 511));
        assert_eq!((slot.frequency(), slot.probation()), (0, false));
        let again = |frequency| slot.with_frequency(frequency).overwritten(9);
        assert_eq!([0, 1, 2, 3].map(|frequency| again(frequency).frequency()), [1, 1, 3, 3]);
        assert_eq!((again(0).location(), again(0).access(), again(0).probation()), (9, 511, false));
    }

    #[test]
    fn a_hot_slot_needs_no_write() {
        for now in 1_000..1_600 {
            for code in 0..1 << ACCESS_BITS {
                for frequency in 0..=FREQUENCY_MAX {
                    let slot = Slot::new(0x1_5555, 7, code, true).with_frequency(frequency);
                    let needs = frequency < FREQUENCY_MAX || access::stale(code, now);
                    assert!(!(slot.is_hot(now) && needs), "{code} {frequency} at {now}");
                }
            }
        }
        assert!(Slot::new(1, 7, access::encode(1_003), false).with_frequency(3).is_hot(1_005));
    }

    #[test]
    fn fields_of_a_control_word_do_not_touch_each_other() {
        let mut control = Control::new((1 << 44) - 2, 255).written();
        for _ in 0..600 {
            control = control.away_more();
        }
        assert_eq!((control.writes(), control.stamp(), control.away()), ((1 << 44) - 1, 255, AWAY_MAX));
        assert_eq!(control.away_less().away(), AWAY_MAX, "a stuck count stays stuck");
        assert!(!control.busy() && control.with_watched().watched());
        assert_eq!(control.with_stamp(3).stamp(), 3);
    }

    #[test]
    fn matches_are_the_slots_with_the_tag() {
        for pattern in 0..128u32 {
            let bucket = Bucket::new();
            for i in 0..SLOTS {
                let tag = if pattern >> i & 1 == 1 { 0x1_5555 } else { 0x0_5555 + i as u64 };
                bucket.replace(i, Slot::new(tag, 1 + i as u64, 3, true));
            }
            bucket.unlock(Control::new(0x1_5555 << 27, 7));
            assert_eq!(bucket.matches(0x1_5555), pattern);
            assert_eq!(bucket.matches(0x1_5554), 0);
        }
    }

    #[test]
    fn bump_does_not_revive_a_cleared_slot() {
        let bucket = Bucket::new();
        let slot = Slot::new(1, 1, 0, false);
        assert!(bucket.claim(slot));
        let control = bucket.lock();
        bucket.replace(0, Slot::EMPTY);
        bucket.unlock(control.written());
        assert!(!bucket.bump(0, slot, slot.with_frequency(1)));
        assert!(bucket.slot(0).is_empty());
    }
}
