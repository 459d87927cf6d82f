//! What connections hold of the memory: buffers outside the arena, of which the server tells, and
//! values inside it that are pinned while they are sent.
//!
//! Buffers are charged to the memory limit, so that items give way to them. Together both may be one
//! part in [`HELD_SHARE`] of it: beyond that no further value is pinned for a reply, and the server
//! takes its measures. Items that are pinned cannot be evicted, and what peers do not read would
//! otherwise take all the memory.
//!
//! Buffers come and go with every turn of a busy server. What is charged rises with them at once and
//! falls to the most of the last [`PEAK_MS`], by upkeep: spans would be drained and taken again all the
//! time.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::{Millis, Store};

/// Connections may hold one part in this many of the memory limit.
pub const HELD_SHARE: u64 = 4;

/// Requests that are on their way in may hold one part in this many of the memory limit: received bytes that are
/// kept, those that are gathered, and the pieces of values that come straight into their items.
pub const INPUT_SHARE: u64 = 8;

/// After [`return_freed_blocks`], blocks of the heap from this size on are mappings of their own.
pub const FREED_BLOCK_BYTES: usize = 32 << 10;

/// Has the process's allocator give large blocks back to the system as they are freed. It keeps them
/// otherwise: a thousand slow readers left 80 MB of freed buffers in a process of 64 MB. To be called
/// once, at start, by a program whose whole memory is to be bounded.
pub fn return_freed_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets a number of the allocator's, under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, FREED_BLOCK_BYTES as i32);
    }
}

/// Gives the allocator's free pages back to the system, at once.
pub(crate) fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: only touches memory that is free, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What buffers are charged falls this often at most.
pub(crate) const PEAK_MS: Millis = 250;

/// Bytes that connections hold.
#[derive(Debug, Default)]
pub(crate) struct Held {
    buffers: AtomicU64,
    /// The most that buffers were since [`Store::lower_held`] looked.
    peak: AtomicU64,
    /// What buffers are charged: never less than they are.
    charged: AtomicU64,
    /// Bytes of the limit that were set aside for others.
    aside: AtomicU64,
    /// Bytes of values with a pin, each once, however many pins it has.
    pinned: AtomicU64,
    /// Bytes of those whose pins are dropped later.
    leaving: AtomicU64,
    /// Bytes of buffers that are freed later (`blocks.rs`).
    freeing: AtomicU64,
    /// Something was refused for what connections hold, since [`Store::take_refusal`] was last asked.
    refused: AtomicBool,
}

impl Held {
    /// Notes that a value of so many bytes got its first pin, or (negative) lost its last.
    pub(crate) fn pinned(&self, bytes: i64) {
        self.pinned.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes that pins of values of so many bytes are dropped later, or (negative) were dropped.
    pub(crate) fn leave(&self, bytes: i64) {
        self.leaving.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes that so many bytes of buffers are freed later, or (negative) were freed.
    pub(crate) fn free_later(&self, bytes: i64) {
        self.freeing.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes of buffers that are freed later.
    pub(crate) fn freeing_bytes(&self) -> u64 {
        self.freeing.load(Ordering::Relaxed)
    }

    /// What buffers are, those that are freed later among them.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn buffers(&self) -> u64 {
        self.buffers.load(Ordering::Relaxed)
    }

    /// Bytes of buffers, but for those that are freed later.
    fn buffers_bytes(&self) -> u64 {
        self.buffers.load(Ordering::Relaxed).saturating_sub(self.freeing.load(Ordering::Relaxed))
    }

    /// Bytes of values with a pin, but for those that are on their way out.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed).saturating_sub(self.leaving.load(Ordering::Relaxed))
    }

    /// What buffers are charged.
    pub(crate) fn charged_bytes(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Bytes of the limit that were set aside for others.
    pub(crate) fn aside_bytes(&self) -> u64 {
        self.aside.load(Ordering::Relaxed)
    }
}

/// True if a holder of `own` of `all` bytes may take `more`: all have no more than `max` then, or
/// the others no more than half of it.
fn is_within(all: u64, own: u64, more: u64, max: u64) -> bool {
    all + more <= max || 2 * all.saturating_sub(own) <= max
}

/// Scratch of one step is counted with its worker up to here.
const SCRATCH_BYTES_FREE: usize = 64 << 10;

/// The scratch of one step of a worker, held while it lasts. It is never refused: it is bounded, and a step is not begun
/// again.
#[derive(Debug)]
pub(crate) struct Scratch<'s> {
    store: &'s Store,
    bytes: i64,
}

impl<'s> Scratch<'s> {
    /// Scratch memory of nothing yet.
    pub(crate) fn none(store: &'s Store) -> Scratch<'s> {
        Scratch { store, bytes: 0 }
    }

    /// Sets how many bytes it holds in all.
    pub(crate) fn set(&mut self, bytes: usize) {
        self.store.set_scratch(&mut self.bytes, bytes);
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Store {
    /// Sets how many bytes scratch memory has in all; `held` of them are held so far.
    pub(crate) fn set_scratch(&self, held: &mut i64, bytes: usize) {
        let bytes = if bytes <= SCRATCH_BYTES_FREE { 0 } else { bytes as i64 };
        if bytes != *held {
            self.hold(bytes - *held);
            *held = bytes;
        }
    }

    /// Says that connections' buffers take `bytes` more, or (negative) fewer. They count against the
    /// memory limit and the share of it that connections may hold.
    pub fn hold(&self, bytes: i64) {
        let buffers = self.held.buffers.fetch_add(bytes as u64, Ordering::Relaxed).wrapping_add(bytes as u64);
        if bytes > 0 {
            self.held.peak.fetch_max(buffers, Ordering::Relaxed);
            self.charge_held(buffers);
        }
    }

    fn charge_held(&self, buffers: u64) {
        // Release: a thread that lowers the count after this sees these buffers.
        let before = self.held.charged.fetch_max(buffers, Ordering::AcqRel);
        if before < buffers {
            self.arena.charge((buffers - before) as i64);
        }
    }

    /// Lowers what buffers are charged to the most that they were since this was last called.
    pub(crate) fn lower_held(&self) {
        let peak = self.held.peak.swap(self.held.buffers.load(Ordering::Relaxed), Ordering::Relaxed);
        self.lower_charged(self.held.charged.load(Ordering::Relaxed), peak);
    }

    /// Lowers what buffers are charged by so many bytes, or to what they are.
    pub(crate) fn lower_held_by(&self, bytes: u64) {
        let before = self.held.charged.load(Ordering::Relaxed);
        let buffers = self.held.buffers.load(Ordering::Relaxed);
        self.lower_charged(before, buffers.max(before.saturating_sub(bytes)));
    }

    fn lower_charged(&self, before: u64, after: u64) {
        if after < before
            && self.held.charged.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.arena.charge(-((before - after) as i64));
            // What came meanwhile found enough charged.
            self.charge_held(self.held.buffers.load(Ordering::Relaxed));
        }
    }

    /// Says that something else takes `bytes` more of the memory limit, or (negative) fewer.
    pub fn set_aside(&self, bytes: i64) {
        self.held.aside.fetch_add(bytes as u64, Ordering::Relaxed);
        self.arena.charge(bytes);
    }

    /// Bytes of the limit that are on the heap.
    pub fn heap_bytes(&self) -> u64 {
        self.arena.charged_bytes()
    }

    /// Bytes of the memory limit that are used: items, index, and what connections and others were given.
    pub fn used_bytes(&self) -> u64 {
        self.arena.used_bytes()
    }

    /// Bytes that connections hold: buffers and pinned values.
    pub fn held_bytes(&self) -> u64 {
        self.held.buffers_bytes() + self.held.pinned_bytes()
    }

    /// Bytes of the limit that are charged for memory outside the store.
    pub(crate) fn outside_bytes(&self) -> u64 {
        self.held.charged_bytes().wrapping_add(self.held.aside_bytes())
    }

    /// Bytes that connections may hold.
    pub fn held_bytes_max(&self) -> u64 {
        self.arena.limit_bytes() / HELD_SHARE
    }

    /// True if connections may hold `bytes` more. Where they may not, and other connections hold what is missing, those that
    /// do not move are to be closed ([`Store::take_refusal`]).
    pub fn may_hold(&self, bytes: u64) -> bool {
        let max = self.held_bytes_max();
        let may = self.held_bytes().saturating_add(bytes) <= max;
        if !may && bytes <= max {
            self.held.refused.store(true, Ordering::Relaxed);
        }
        may
    }

    /// Says that requests on their way in hold `bytes` more, or (negative) fewer, beside uploads. It is no
    /// charge: that is [`Store::hold`] or [`Store::set_aside`].
    pub fn note_input(&self, bytes: i64) {
        self.input_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that requests on their way in hold.
    pub fn input_bytes(&self) -> u64 {
        self.input_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that they may hold together.
    pub fn input_bytes_max(&self) -> u64 {
        self.arena.limit_bytes() / INPUT_SHARE
    }

    /// A request that holds `own` bytes may take `more`. One may be larger than the share, as long as the others
    /// together hold no more than half of it: items may be up to half of the limit.
    pub fn may_take_input(&self, own: u64, more: u64) -> bool {
        is_within(self.input_bytes(), own, more, self.input_bytes_max())
    }

    /// As [`Store::may_take_input`], of a request that is held ([`Store::hold`]) as long as it is answered: beside
    /// all that connections hold, too. Where they hold too much, those that do not move are to be closed.
    pub fn may_keep_input(&self, own: u64, more: u64) -> bool {
        let held = is_within(self.held_bytes(), own, more, self.held_bytes_max());
        if !held {
            self.held.refused.store(true, Ordering::Relaxed);
        }
        held && self.may_take_input(own, more)
    }

    /// True if something was refused for what connections hold, since this was last asked: those
    /// that do not move are to be closed.
    pub fn take_refusal(&self) -> bool {
        self.held.refused.load(Ordering::Relaxed) && self.held.refused.swap(false, Ordering::Relaxed)
    }

    /// More memory is used than the limit allows, as when connections were given some: upkeep
    /// ([`crate::Guard::maintain`]) makes items give way.
    pub fn is_over_limit(&self) -> bool {
        self.arena.over_limit() > 0
    }

    /// A value of so many bytes may be pinned for a reply. One that is alone may be larger than the
    /// share, so that every value can be read.
    pub fn may_pin(&self, bytes: u64) -> bool {
        let max = self.held_bytes_max();
        let buffers = self.held.buffers_bytes();
        let pinned = self.held.pinned_bytes();
        let may = buffers + pinned + bytes <= max || pinned == 0 && buffers <= max / 2;
        if !may {
            self.held.refused.store(true, Ordering::Relaxed);
        }
        may
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::PEAK_MS;
    use crate::{Attributes, Config, Expect, Guard, Lookup, Pinned, Store};

    const NOW: u64 = 1_700_000_000_000;

    fn set(guard: &mut Guard<'_>, key: &[u8], bytes: usize) {
        let key = guard.key(key);
        guard.store_value(&key, &vec![1; bytes], &Attributes::default(), Expect::Any).unwrap();
    }

    fn pin(guard: &mut Guard<'_>, key: &[u8]) -> Option<Pinned> {
        let key = guard.key(key);
        let Lookup::Hit(item) = guard.get(&key) else { panic!("it is there") };
        item.pin_for_reply()
    }

    #[test]
    fn values_are_pinned_up_to_the_share_and_each_counts_once() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        for key in [b"a", b"b", b"c", b"d", b"e"] {
            set(&mut guard, key, 1 << 20);
        }
        let pins: Vec<_> = [b"a", b"b", b"c", b"d"].map(|key| pin(&mut guard, key).unwrap()).into();
        assert_eq!((store.held_bytes(), store.held_bytes_max()), (4 << 20, 4 << 20));
        assert!(!store.take_refusal());
        assert!(pin(&mut guard, b"e").is_none());
        assert!(store.take_refusal() && !store.take_refusal());
        let again = pin(&mut guard, b"a").expect("it is pinned already");
        assert_eq!(store.held_bytes(), 4 << 20);
        drop(pins);
        assert_eq!(store.held_bytes(), 1 << 20);
        drop(again);
        assert_eq!(store.held_bytes(), 0);
        set(&mut guard, b"f", 5 << 20);
        let alone = pin(&mut guard, b"f").expect("it is alone");
        assert!(pin(&mut guard, b"e").is_none());
        drop(alone);
        store.hold(3 << 20);
        assert!(pin(&mut guard, b"f").is_none(), "buffers hold more than half of the share");
        assert!(pin(&mut guard, b"e").is_some());
    }

    #[test]
    fn who_is_refused_for_what_others_hold_has_those_let_go_who_stand() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
        let max = store.held_bytes_max();
        assert!(store.may_hold(max) && !store.take_refusal());
        assert!(!store.may_hold(max + 1) && !store.take_refusal(), "there is not so much");
        store.hold(1);
        assert!(store.may_hold(max - 1) && !store.take_refusal());
        assert!(!store.may_hold(max) && store.take_refusal());
    }

    #[test]
    fn items_give_way_to_buffers_and_take_their_memory_again() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        for i in 0..40_000u32 {
            set(&mut guard, &i.to_le_bytes(), 500);
        }
        let used = || store.totals().used_bytes;
        assert!(used() > 15 << 20);
        store.hold(4 << 20);
        assert!(store.is_over_limit());
        for _ in 0..1000 {
            guard.maintain();
        }
        assert!(!store.is_over_limit() && used() <= 16 << 20);
        let totals = store.totals();
        assert!(totals.spans_moved > 50 && totals.spans_reassigned == 0, "for no class: {totals:?}");
        for i in 0..40_000u32 {
            set(&mut guard, &i.to_le_bytes(), 500);
        }
        assert!(used() <= 16 << 20);
        store.hold(-(4 << 20));
        let before = used();
        drop(guard);
        for round in 1..=3 {
            worker.enter(NOW + round * PEAK_MS).maintain();
        }
        assert_eq!(used(), before - (4 << 20), "it is no longer charged");
        let mut guard = worker.enter(NOW + 4 * PEAK_MS);
        for i in 0..40_000u32 {
            set(&mut guard, &i.to_le_bytes(), 500);
        }
        assert!(used() > before - (1 << 20));
        drop(guard);
        store.check_behind(worker);
    }
}
