//! The index: hash → slot.
//!
//! ```text
//! hash  | directory: depth bits | tag and position: 17 bits | … |
//!
//! directory ─ entry (64 B: page count, depth, 14 page numbers) ─ page (4 KiB: 64 buckets) ─ bucket
//! ```
//!
//! - A **segment** is what one entry names: 1 to 14 pages, on average some 5,000 items. Its keys share
//!   their leading hash bits; the next 17 bits are the tag in the slot.
//! - The **home** bucket is `tag × buckets >> 17`: positions keep the order of the hash, whatever the
//!   number of buckets. The **other** bucket is the same with the tag's bits mixed.
//! - An item sits in its home or its other bucket. Where both are full, one item of theirs moves to
//!   its own other place. Where that fails too, the segment **grows** by a page, and at 14 pages
//!   splits in two of 8: load stays between 0.78 and about 0.9 at every size.
//! - Growing needs no look at items, because the tag is the position; splitting reads their keys.
//!   Both take some 30 to 300 µs for one segment, under the locks of its buckets.
//!
//! Readers take no lock. A hit is a hit: the item was reachable at that moment. A miss holds if
//! the home bucket's control word, the entry and the directory are what they were before.
//!
//! Lock order: growth, then buckets in the order of the hash; a second bucket only by trying.

mod directory;
mod filling;
mod gate;
mod grow;
mod locks;
mod own;
mod pages;
mod place;
mod shrink;
#[cfg(all(test, not(feature = "loom")))]
mod tests;
mod walk;

pub(crate) use gate::{Gate, Layout};
pub(crate) use own::Own;
pub(crate) use pages::PAGE_BYTES;
pub(crate) use place::Place;
pub(crate) use shrink::Sparse;
pub(crate) use walk::Walked;

use crate::arena::Arena;
use crate::bucket::{Bucket, Control, SLOTS, Slot};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use directory::{Directory, Entry, depth_of, meta};
use pages::{Growth, PAGE_BUCKETS, clear_page};
use place::{home_of, other_of, tag_of};
use std::ops::RangeInclusive;

/// Items that [`Index::vacate`] moves for one another, but for the first.
const VACATE_DEPTH: usize = 2;

/// A slot that a search found.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(crate) bucket: &'a Bucket,
    pub(crate) i: usize,
    pub(crate) slot: Slot,
    /// It sits in its other bucket.
    pub(crate) away: bool,
}

/// A home bucket that this thread has locked.
pub(crate) struct Locked<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) home: &'a Bucket,
    pub(crate) control: Control,
}

/// What became of [`Index::hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The bucket is this transaction's.
    Held,
    /// It is another's.
    Busy,
    /// It has to be cleaned first.
    Unclean,
}

/// The index needs a page and there is no memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// What a rebuild asks of the store.
pub(crate) trait Items {
    /// Starts loading the key of the item there.
    fn prefetch(&self, location: u64);
    /// The hash of the key of the item there.
    fn hash(&self, location: u64) -> u64;
    /// The stamp of buckets that are clean now. Asked when all buckets of a segment are locked: none of them
    /// has a later one then, and no thread can write to what this stamp takes.
    fn stamp(&self) -> u8;
    /// The item there, at home in a bucket stamped `was`, is gone now that the stamp is `now`.
    fn flushed(&self, location: u64, was: u8, now: u8) -> bool;
    /// A key with one of these hashes, which are those of a locked bucket, is watched.
    fn watched(&self, hashes: RangeInclusive<u64>) -> bool;
    /// The item there was flushed; its slot is gone.
    fn discard(&mut self, location: u64);
    /// The epoch of what is out of use from now on.
    fn tag(&self) -> u64;
    /// Every batch that was under way in this epoch is over.
    fn batches_over(&self, tag: u64) -> bool;
}

/// The index.
#[derive(Debug)]
pub(crate) struct Index {
    directory: AtomicPtr<Directory>,
    pub(crate) gate: Gate,
    growing: AtomicU32,
    pages: AtomicU64,
    /// Many pages are free, and shrinking may gather them.
    scattered: AtomicBool,
    /// Workers that wait for a segment without transactions: new transactions let them go first.
    pressing: AtomicU32,
    growth: Mutex<Growth>,
}

impl Index {
    /// An index of one page.
    pub(crate) fn new(arena: &Arena) -> Option<Index> {
        let mut growth = Growth::default();
        let page = growth.take_page(arena)?;
        clear_page(arena, page);
        let entry = Entry { meta: AtomicU64::new(meta(0, 0, 1)), pages: Default::default() };
        entry.pages[0].store(page, Ordering::Relaxed);
        let directory = Box::new(Directory { depth: 0, entries: Box::new([entry]) });
        Some(Index {
            directory: AtomicPtr::new(Box::into_raw(directory)),
            gate: Gate::default(),
            growing: AtomicU32::new(0),
            pages: AtomicU64::new(growth.pages_used),
            scattered: AtomicBool::new(false),
            pressing: AtomicU32::new(0),
            growth: Mutex::new(growth),
        })
    }

    #[inline]
    fn directory(&self) -> &Directory {
        // SAFETY: a directory is freed when the batches are over that could have seen it, or with the
        // index; a thread outside of a batch holds the growth lock.
        unsafe { &*self.directory.load(Ordering::Acquire) }
    }

    /// Where keys with this hash live now.
    #[inline]
    pub(crate) fn place<'a>(&'a self, arena: &'a Arena, hash: u64) -> Place<'a> {
        let directory = self.directory();
        let entry = directory.entry(hash);
        let meta = entry.meta.load(Ordering::Acquire);
        Place { directory, entry, meta, base: arena.at(0).as_ptr(), tag: tag_of(hash, depth_of(meta)) }
    }

    /// True if `place` still says where its keys live.
    #[inline]
    pub(crate) fn holds(&self, place: &Place<'_>) -> bool {
        std::ptr::eq(self.directory.load(Ordering::Relaxed), place.directory)
            && place.entry.meta.load(Ordering::Relaxed) == place.meta
    }

    /// Looks in home and other bucket for a slot that `is` accepts; no lock, no check of versions.
    #[inline]
    pub(crate) fn scan<'a>(
        &self,
        place: &Place<'a>,
        control: Control,
        mut is: impl FnMut(Slot) -> bool,
    ) -> Option<Found<'a>> {
        let home = place.home();
        let mut matches = home.matches(place.tag);
        while matches != 0 {
            let i = matches.trailing_zeros() as usize;
            matches &= matches - 1;
            let slot = home.slot(i);
            if slot.tag() == place.tag && !slot.is_empty() && is(slot) {
                return Some(Found { bucket: home, i, slot, away: false });
            }
        }
        if control.away() == 0 {
            return None;
        }
        let other = place.other();
        let mut matches = other.matches(place.tag);
        while matches != 0 {
            let i = matches.trailing_zeros() as usize;
            matches &= matches - 1;
            let slot = other.slot(i);
            if slot.tag() == place.tag && !slot.is_empty() && is(slot) {
                return Some(Found { bucket: other, i, slot, away: true });
            }
        }
        None
    }

    /// True if a miss that began with `place` and `control` is one.
    #[inline]
    pub(crate) fn miss_holds(&self, place: &Place<'_>, control: Control) -> bool {
        // The slots were read before the words are read again.
        fence(Ordering::Acquire);
        let again = place.home().control();
        !control.busy() && again == control && self.holds(place)
    }

    /// Locks the home bucket of a hash if the lock is free.
    pub(crate) fn try_lock<'a>(&'a self, arena: &'a Arena, hash: u64) -> Option<Locked<'a>> {
        let place = self.place(arena, hash);
        let home = place.home();
        let control = home.try_lock()?;
        if self.holds(&place) {
            return Some(Locked { place, home, control });
        }
        home.unlock(control);
        None
    }

    /// Locks the home bucket of a hash; none if it is in a transaction, which is not waited for here.
    pub(crate) fn lock_open<'a>(&'a self, arena: &'a Arena, hash: u64) -> Option<Locked<'a>> {
        loop {
            let place = self.place(arena, hash);
            let home = place.home();
            let control = home.lock_open()?;
            if self.holds(&place) {
                return Some(Locked { place, home, control });
            }
            home.unlock(control);
        }
    }

    /// Locks the home bucket of a hash, whether a transaction has it or not: for one that this thread's transaction
    /// began with, whose segment no other thread changes, or one that is in no transaction.
    pub(crate) fn lock_beside<'a>(&'a self, arena: &'a Arena, hash: u64) -> Locked<'a> {
        loop {
            let place = self.place(arena, hash);
            let home = place.home();
            let control = home.lock_beside();
            if self.holds(&place) {
                return Locked { place, home, control };
            }
            home.unlock(control);
        }
    }

    /// Locks the home bucket of a hash if it is one of those that this thread's transaction holds, and waits for the
    /// worker that has its lock.
    #[cold]
    pub(crate) fn lock_if_held<'a>(&'a self, arena: &'a Arena, hash: u64, held: &Own) -> Option<Locked<'a>> {
        let place = self.place(arena, hash);
        let home = place.home();
        held.has(place.home_number()).then(|| Locked { place, home, control: home.lock_beside() })
    }

    /// As [`Index::lock_if_held`], if the lock is free, too.
    #[cold]
    pub(crate) fn try_lock_if_held<'a>(
        &'a self,
        arena: &'a Arena,
        hash: u64,
        held: &Own,
    ) -> Option<Locked<'a>> {
        let place = self.place(arena, hash);
        let home = place.home();
        let control = held.has(place.home_number()).then(|| home.try_lock_beside())??;
        Some(Locked { place, home, control })
    }

    /// Sets the transaction bit of a hash's home bucket and notes its number; hashes come in order.
    pub(crate) fn hold(&self, arena: &Arena, hash: u64, gate: u64, held: &mut Own) -> Hold {
        loop {
            let place = self.place(arena, hash);
            let number = place.home_number();
            // Its segment does not change while one of its buckets is held.
            if held.was_last(number) && self.holds(&place) {
                return Hold::Held;
            }
            let home = place.home();
            let Some(control) = home.lock_open() else { return Hold::Busy };
            let clean = control.passes(gate);
            if clean && self.holds(&place) {
                home.unlock(control.with_transaction());
                held.add(number);
                return Hold::Held;
            }
            home.unlock(control);
            if !clean {
                return Hold::Unclean;
            }
        }
    }

    /// Clears the transaction bits that [`Index::hold`] set.
    pub(crate) fn release(&self, arena: &Arena, held: &mut Own) {
        held.take(arena.at(0).as_ptr().cast_const(), |bucket| {
            // Others may be at keys that are not the transaction's.
            bucket.unlock(bucket.lock_beside().without_transaction());
        });
    }

    /// True if a thread waits for a segment without transactions: new ones let it go first.
    #[inline]
    pub(crate) fn is_pressed(&self) -> bool {
        self.pressing.load(Ordering::Relaxed) > 0
    }

    /// Counts a thread that waits for a segment without transactions, or (negative) does so no longer.
    pub(crate) fn press(&self, waiting: i32) {
        self.pressing.fetch_add(waiting as u32, Ordering::Relaxed);
    }

    /// Runs `f` with the growth lock. `f` returns `None` if a transaction is in its way: no thread waits for one with the
    /// growth lock, since transactions wait for that.
    fn with_growth<R>(&self, f: impl FnOnce(&mut Growth) -> Option<R>) -> Option<R> {
        f(&mut self.growth.lock().expect("no panic under the lock"))
    }

    /// Puts a new slot where the locked home's keys may be; false if there is no room.
    pub(crate) fn insert(&self, locked: &mut Locked<'_>, slot: Slot) -> bool {
        if locked.home.claim(slot) {
            return true;
        }
        let other = locked.place.other();
        if other.claim(slot) || self.displace(locked, other, slot) {
            locked.control = locked.control.away_more();
            return true;
        }
        self.displace(locked, locked.home, slot)
    }

    /// Moves one item out of `full` to its own other place and puts `slot` there instead.
    fn displace(&self, locked: &mut Locked<'_>, full: &Bucket, slot: Slot) -> bool {
        let (place, home) = (locked.place, locked.home);
        let mut own = (home, &mut locked.control);
        (0..SLOTS).any(|i| {
            let moved = full.slot(i);
            if moved.is_empty() {
                // It was emptied meanwhile; another thread may have taken it since.
                return full.bump(i, moved, slot);
            }
            self.move_on(&place, full, i, slot, Some(&mut own))
        })
    }

    /// Moves the item in slot `i` of `full` to its own other place and puts `instead` there. `own` is the bucket that
    /// this thread has locked, if it has one.
    fn move_on(
        &self,
        place: &Place<'_>,
        full: &Bucket,
        i: usize,
        instead: Slot,
        own: Option<&mut (&Bucket, &mut Control)>,
    ) -> bool {
        let moved = full.slot(i);
        let home = place.bucket(home_of(moved.tag(), place.buckets()));
        let other = place.bucket(other_of(moved.tag(), place.buckets()));
        let at_home = std::ptr::eq(home, full);
        let target = if at_home { other } else { home };
        // 1. Only the holder of the item's home lock may move it.
        let own = own.filter(|(bucket, _)| std::ptr::eq(home, *bucket));
        let control = match &own {
            Some((_, control)) => **control,
            None => match home.try_lock() {
                Some(control) => control,
                None => return false,
            },
        };
        // 2. Under it, the slot changes only in frequency and access, and the segment stays what it is.
        let moved = full.slot(i);
        let still = !moved.is_empty()
            && self.holds(place)
            && std::ptr::eq(place.bucket(home_of(moved.tag(), place.buckets())), home)
            && std::ptr::eq(
                place.bucket(other_of(moved.tag(), place.buckets())),
                if at_home { target } else { full },
            );
        // 3. It is in its new place before it leaves the old one; a reader that looked at the
        // new place first and at the old one last misses it, and sees the version moved.
        let done = still && target.claim(moved);
        if done {
            full.replace(i, instead);
        }
        let control = match (done, at_home) {
            (false, _) => control,
            (true, true) => control.away_more().written(),
            (true, false) => control.away_less().written(),
        };
        match own {
            Some((_, own)) => **own = control,
            None => home.unlock(control),
        }
        done
    }

    /// Empties a slot in a bucket of the key with this hash, by moving items on to their other places; for a segment
    /// that may not grow now. Some 50 µs at most. False if there is no place near, or others hold what is in the way.
    #[cold]
    pub(crate) fn vacate(&self, arena: &Arena, hash: u64) -> bool {
        let place = self.place(arena, hash);
        [place.home(), place.other()].into_iter().any(|bucket| self.vacate_in(&place, bucket, VACATE_DEPTH))
    }

    fn vacate_in(&self, place: &Place<'_>, bucket: &Bucket, depth: usize) -> bool {
        let move_on = |i| bucket.slot(i).is_empty() || self.move_on(place, bucket, i, Slot::EMPTY, None);
        if (0..SLOTS).any(move_on) {
            return true;
        }
        depth > 0
            && (0..SLOTS).any(|i| {
                let tag = bucket.slot(i).tag();
                let home = place.bucket(home_of(tag, place.buckets()));
                let other = place.bucket(other_of(tag, place.buckets()));
                let next = if std::ptr::eq(home, bucket) { other } else { home };
                self.vacate_in(place, next, depth - 1) && move_on(i)
            })
    }

    /// Clears a found slot under its home's lock.
    pub(crate) fn remove(&self, locked: &mut Locked<'_>, found: &Found<'_>) {
        found.bucket.replace(found.i, Slot::EMPTY);
        if found.away {
            locked.control = locked.control.away_less();
        }
    }

    /// The version of the entry that `locked` was found through, for [`Index::grow`].
    pub(crate) fn meta(locked: &Locked<'_>) -> u64 {
        locked.place.meta
    }

    /// Bytes of pages and directory.
    pub(crate) fn bytes(&self) -> u64 {
        let growth = self.growth.lock().expect("no panic under the lock");
        let entries = self.directory().entries.len()
            + growth.retired.iter().map(|(_, directory)| directory.entries.len()).sum::<usize>();
        growth.pages_used * PAGE_BYTES as u64 + (entries * size_of::<Entry>()) as u64
    }

    /// Bytes of pages in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.growth.lock().expect("no panic under the lock").pages_used * PAGE_BYTES as u64
    }

    /// Pages of its spans: used, free, and out of use until batches are over.
    pub(crate) fn pages_of_spans(&self) -> u64 {
        let growth = self.growth.lock().expect("no panic under the lock");
        let retired = growth.pages_retired.iter().map(|(_, pages)| pages.len() as u64).sum::<u64>();
        growth.pages_used + growth.pages_free.len() as u64 + retired
    }

    pub(crate) fn slots(&self) -> u64 {
        self.pages.load(Ordering::Relaxed) * (PAGE_BUCKETS * SLOTS) as u64
    }

    pub(crate) fn growing(&self) -> bool {
        self.growing.load(Ordering::Relaxed) != 0
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw` and no thread uses the index any more.
        drop(unsafe { Box::from_raw(self.directory.load(Ordering::Relaxed)) });
    }
}
