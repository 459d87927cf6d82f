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

mod shrink;

use crate::arena::{Arena, OWNER_INDEX};
use crate::bucket::{Bucket, Control, SLOTS, Slot, TAG_BITS};
use crate::class::SPAN_BYTES;
use crate::sync::Backoff;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// Bytes of an index page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Buckets of a page.
const PAGE_BUCKETS: usize = PAGE_BYTES / size_of::<Bucket>();
/// Pages of a span.
const SPAN_PAGES: u32 = (SPAN_BYTES / PAGE_BYTES) as u32;
/// Most pages of a segment: what fits in a directory entry of one cache line.
const PAGES_MAX: usize = 14;
/// Pages of each half after a split.
const PAGES_AFTER_SPLIT: usize = 8;
/// Keys that a split loads ahead.
const KEYS_AHEAD: usize = 24;
/// Moves that a rebuild tries for one item before it gives the segment another page.
const REBUILD_MOVES_MAX: usize = 200;

/// A directory entry. `meta`: version above, local depth, page count (8 bits each) below.
#[derive(Debug)]
#[repr(C, align(64))]
struct Entry {
    meta: AtomicU64,
    pages: [AtomicU32; PAGES_MAX],
}
const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    fn copy(&self) -> Entry {
        Entry {
            meta: AtomicU64::new(self.meta.load(Ordering::Relaxed)),
            pages: std::array::from_fn(|i| AtomicU32::new(self.pages[i].load(Ordering::Relaxed))),
        }
    }
}

#[derive(Debug)]
struct Directory {
    depth: u32,
    entries: Box<[Entry]>,
}

impl Directory {
    #[inline]
    fn entry(&self, hash: u64) -> &Entry {
        // `hash >> 1` first: a shift by 64 is not one.
        let i = (hash >> 1 >> (63 - self.depth)) as usize;
        debug_assert_eq!(self.entries.len(), 1 << self.depth);
        // SAFETY: `i` has `depth` bits, and there are two to the power of `depth` entries.
        unsafe { self.entries.get_unchecked(i) }
    }
}

fn meta(version: u64, depth: u32, pages: usize) -> u64 {
    version << 16 | u64::from(depth) << 8 | pages as u64
}

fn pages_of(meta: u64) -> usize {
    (meta & 0xff) as usize
}

fn depth_of(meta: u64) -> u32 {
    (meta >> 8 & 0xff) as u32
}

#[inline]
fn tag_of(hash: u64, depth: u32) -> u64 {
    hash << depth >> (64 - TAG_BITS)
}

/// The tag's bits mixed, for the position of the other bucket: low bits decide.
#[inline]
fn mixed(tag: u64) -> u64 {
    (tag.wrapping_mul(0x9e3d) ^ tag >> 9).wrapping_mul(0x6a0b) & ((1 << TAG_BITS) - 1)
}

#[inline]
fn home_of(tag: u64, buckets: usize) -> usize {
    ((tag * buckets as u64) >> TAG_BITS) as usize
}

#[inline]
fn other_of(tag: u64, buckets: usize) -> usize {
    let (home, other) = (home_of(tag, buckets), home_of(mixed(tag), buckets));
    if other != home { other } else { (home + 1) % buckets }
}

/// Where the keys of one hash live, as the directory said at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    directory: &'a Directory,
    entry: &'a Entry,
    meta: u64,
    base: *const u8,
    pub(crate) tag: u64,
}

impl<'a> Place<'a> {
    fn buckets(&self) -> usize {
        pages_of(self.meta) * PAGE_BUCKETS
    }

    fn bucket(&self, i: usize) -> &'a Bucket {
        bucket(self.base, self.entry.pages[i / PAGE_BUCKETS].load(Ordering::Relaxed), i % PAGE_BUCKETS)
    }

    #[inline]
    pub(crate) fn home(&self) -> &'a Bucket {
        self.bucket(home_of(self.tag, self.buckets()))
    }

    /// What this place was found by; changes when the segment does.
    #[inline]
    pub(crate) fn meta(&self) -> u64 {
        self.meta
    }

    /// True if keys of this hash are at home in the same bucket as those of `mine`, whose place it is.
    pub(crate) fn same_home(&self, mine: u64, hash: u64) -> bool {
        let depth = depth_of(self.meta);
        let n = self.buckets();
        let segment = |hash: u64| hash.checked_shr(64 - depth).unwrap_or(0);
        segment(hash) == segment(mine) && home_of(tag_of(hash, depth), n) == home_of(self.tag, n)
    }

    /// The number of the home bucket, for [`Index::release`].
    fn home_number(&self) -> u64 {
        let i = home_of(self.tag, self.buckets());
        let page = self.entry.pages[i / PAGE_BUCKETS].load(Ordering::Relaxed);
        number_of(page, i % PAGE_BUCKETS)
    }

    #[inline]
    pub(crate) fn other(&self) -> &'a Bucket {
        self.bucket(other_of(self.tag, self.buckets()))
    }
}

#[inline]
fn bucket<'a>(base: *const u8, page: u32, i: usize) -> &'a Bucket {
    debug_assert!(page != 0 && i < PAGE_BUCKETS);
    // SAFETY: 1. Page numbers in entries name pages of spans that the index owns, inside the arena,
    // for as long as the arena lives. 2. All zero is a valid bucket. 3. Buckets are atomics, only
    // accessed by reference. The arena outlives every `Place`: both belong to the store.
    unsafe { &*base.add(page as usize * PAGE_BYTES).cast::<Bucket>().add(i) }
}

fn number_of(page: u32, i: usize) -> u64 {
    u64::from(page) * PAGE_BUCKETS as u64 + i as u64
}

fn bucket_by_number<'a>(base: *const u8, number: u64) -> &'a Bucket {
    bucket(base, (number / PAGE_BUCKETS as u64) as u32, number as usize % PAGE_BUCKETS)
}

/// Locks buckets; none if one of them is in a transaction that is not the caller's own, whose buckets'
/// numbers are `own`.
fn lock_all(base: *const u8, all: &[&Bucket], own: &[u64]) -> Option<Vec<Control>> {
    let mut controls = Vec::with_capacity(all.len());
    for (i, bucket) in all.iter().enumerate() {
        let control = bucket.lock_open().or_else(|| {
            let ours = own.iter().any(|&number| std::ptr::eq(bucket_by_number(base, number), *bucket));
            ours.then(|| bucket.control())
        });
        let Some(control) = control else {
            for (bucket, control) in all[..i].iter().zip(controls) {
                bucket.unlock(control);
            }
            return None;
        };
        controls.push(control);
    }
    Some(controls)
}

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

#[derive(Debug, Default)]
struct Growth {
    /// The lowest goes out first, so that high spans come free when the index shrinks.
    pages_free: BTreeSet<u32>,
    /// Pages out of use, with the epoch since when.
    pages_retired: VecDeque<(u64, Vec<u32>)>,
    pages_used: u64,
    /// Directories out of use, with the epoch since when: places of batches refer to them.
    retired: Vec<(u64, Box<Directory>)>,
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
    /// The item there, at home in a bucket stamped `was`, is gone now that the stamp is `now`.
    fn flushed(&self, location: u64, was: u8, now: u8) -> bool;
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
    growing: AtomicU32,
    pages: AtomicU64,
    /// Many pages are free, and shrinking may gather them.
    scattered: AtomicBool,
    /// Who waits for a segment without transactions: new ones let them first.
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
        // index; who is in no batch holds the growth lock.
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

    /// Locks the home bucket of a hash.
    #[inline]
    pub(crate) fn lock<'a>(&'a self, arena: &'a Arena, hash: u64) -> Locked<'a> {
        loop {
            let place = self.place(arena, hash);
            let home = place.home();
            let control = home.lock();
            if self.holds(&place) {
                return Locked { place, home, control };
            }
            home.unlock(control);
        }
    }

    /// As [`Index::lock`], but gives up if the lock is taken.
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

    /// As [`Index::lock`], but gives up if the bucket is in a transaction.
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

    /// The home bucket of a hash that this thread's transaction holds: nobody else locks it.
    pub(crate) fn lock_held<'a>(&'a self, arena: &'a Arena, hash: u64) -> Locked<'a> {
        let place = self.place(arena, hash);
        let home = place.home();
        let control = home.control();
        debug_assert!(control.held(), "a transaction touches the keys that it began with");
        // One that does not waits like anybody.
        if control.held() { Locked { place, home, control } } else { self.lock(arena, hash) }
    }

    /// The home bucket of a hash if it is one of those that this thread's transaction holds.
    #[cold]
    pub(crate) fn lock_if_held<'a>(
        &'a self,
        arena: &'a Arena,
        hash: u64,
        held: &[u64],
    ) -> Option<Locked<'a>> {
        let place = self.place(arena, hash);
        let home = place.home();
        held.contains(&place.home_number()).then(|| Locked { place, home, control: home.control() })
    }

    /// Sets the transaction bit of a hash's home bucket and notes its number; hashes come in order.
    pub(crate) fn hold(&self, arena: &Arena, hash: u64, gate: u64, held: &mut Vec<u64>) -> Hold {
        loop {
            let place = self.place(arena, hash);
            let number = place.home_number();
            // Its segment does not change while one of its buckets is held.
            if held.last() == Some(&number) && self.holds(&place) {
                return Hold::Held;
            }
            let home = place.home();
            let Some(control) = home.lock_open() else { return Hold::Busy };
            let clean = control.passes(gate);
            if clean && self.holds(&place) {
                home.unlock(control.with_held());
                held.push(number);
                return Hold::Held;
            }
            home.unlock(control);
            if !clean {
                return Hold::Unclean;
            }
        }
    }

    /// Clears the transaction bits that [`Index::hold`] set.
    pub(crate) fn release(&self, arena: &Arena, held: &mut Vec<u64>) {
        let base = arena.at(0).as_ptr().cast_const();
        for number in held.drain(..) {
            let bucket = bucket_by_number(base, number);
            bucket.unlock(bucket.control().without_held());
        }
    }

    /// Before a transaction: lets those first who wait for a segment without one.
    #[inline]
    pub(crate) fn give_way(&self) {
        let mut backoff = Backoff::default();
        while self.pressing.load(Ordering::Relaxed) > 0 {
            backoff.wait();
        }
    }

    /// Somebody waits for a segment without transactions, or (negative) no longer: new ones let him first.
    pub(crate) fn press(&self, waiting: i32) {
        self.pressing.fetch_add(waiting as u32, Ordering::Relaxed);
    }

    /// Runs `f` with the growth lock. It says none if a transaction is in its way: nobody waits for one
    /// with the growth lock, since transactions wait for that.
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
        let place = locked.place;
        let buckets = place.buckets();
        for i in 0..SLOTS {
            let moved = full.slot(i);
            if moved.is_empty() {
                // Emptied meanwhile, if another has not taken it.
                if full.bump(i, moved, slot) {
                    return true;
                }
                continue;
            }
            let home = place.bucket(home_of(moved.tag(), buckets));
            let other = place.bucket(other_of(moved.tag(), buckets));
            let at_home = std::ptr::eq(home, full);
            let target = if at_home { other } else { home };
            // 1. Only the holder of the item's home lock may move it.
            let ours = std::ptr::eq(home, locked.home);
            let control = if ours {
                locked.control
            } else {
                let Some(control) = home.try_lock() else { continue };
                control
            };
            // 2. Under it, the slot changes only in frequency and access.
            let moved = full.slot(i);
            let still = !moved.is_empty()
                && std::ptr::eq(place.bucket(home_of(moved.tag(), buckets)), home)
                && std::ptr::eq(
                    place.bucket(other_of(moved.tag(), buckets)),
                    if at_home { target } else { full },
                );
            // 3. It is in its new place before it leaves the old one; a reader that looked at the
            // new place first and at the old one last misses it, and sees the version moved.
            let done = still && target.claim(moved);
            if done {
                full.replace(i, slot);
            }
            let control = match (done, at_home) {
                (false, _) => control,
                (true, true) => control.away_more().written(),
                (true, false) => control.away_less().written(),
            };
            if ours {
                locked.control = control;
            } else {
                home.unlock(control);
            }
            if done {
                return true;
            }
        }
        false
    }

    /// Clears a found slot under its home's lock.
    pub(crate) fn remove(&self, locked: &mut Locked<'_>, found: &Found<'_>) {
        found.bucket.replace(found.i, Slot::EMPTY);
        if found.away {
            locked.control = locked.control.away_less();
        }
    }

    /// Gives the segment of `seen` more room, unless somebody just did; none if a transaction holds a part of it.
    pub(crate) fn grow(
        &self,
        arena: &Arena,
        hash: u64,
        seen_meta: u64,
        stamp: u8,
        held: Option<&mut Vec<u64>>,
        items: &mut dyn Items,
    ) -> Option<Result<(), Full>> {
        self.with_growth(|growth| {
            let place = self.place(arena, hash);
            if place.meta != seen_meta {
                return Some(Ok(()));
            }
            self.growing.store(1, Ordering::Relaxed);
            let grown = self.rebuild(arena, growth, &place, hash, stamp, held, items);
            self.pages.store(growth.pages_used, Ordering::Relaxed);
            self.growing.store(0, Ordering::Relaxed);
            grown
        })
    }

    fn change_directory(&self, growth: &mut Growth, new: Box<Directory>, items: &dyn Items) {
        let old = self.directory.swap(Box::into_raw(new), Ordering::AcqRel);
        // SAFETY: the pointer came from `Box::into_raw`, and only the growth lock's holder swaps.
        growth.retired.push((items.tag(), unsafe { Box::from_raw(old) }));
    }

    /// The version of the entry that `locked` was found through, for [`Index::grow`].
    pub(crate) fn meta(locked: &Locked<'_>) -> u64 {
        locked.place.meta
    }

    #[expect(clippy::too_many_arguments, reason = "one step of growing, with all that it is told")]
    fn rebuild(
        &self,
        arena: &Arena,
        growth: &mut Growth,
        place: &Place<'_>,
        hash: u64,
        stamp: u8,
        held: Option<&mut Vec<u64>>,
        items: &mut dyn Items,
    ) -> Option<Result<(), Full>> {
        let base = arena.at(0).as_ptr().cast_const();
        let depth = depth_of(place.meta);
        let old: Vec<u32> =
            place.entry.pages[..pages_of(place.meta)].iter().map(|p| p.load(Ordering::Relaxed)).collect();
        let split = old.len() == PAGES_MAX;
        // 1. Memory first: nothing is allocated while a bucket is locked.
        let wanted = if split { 2 * PAGES_AFTER_SPLIT } else { old.len() + 1 };
        let mut pages = old.clone();
        while pages.len() < wanted {
            match growth.take_page(arena) {
                Some(page) => {
                    clear_page(arena, page);
                    pages.push(page);
                }
                None => {
                    growth.give_pages(&pages[old.len()..]);
                    return Some(Err(Full));
                }
            }
        }
        let new_directory = (split && depth == place.directory.depth).then(|| doubled(place.directory));
        let mut slots = Vec::with_capacity(old.len() * PAGE_BUCKETS * SLOTS);

        // 2. Every bucket that an old or a new view of the entry can name is locked.
        let all: Vec<&Bucket> =
            pages.iter().flat_map(|&page| (0..PAGE_BUCKETS).map(move |i| bucket(base, page, i))).collect();
        let own = held.as_deref().map_or(&[][..], |held| held);
        let Some(controls) = lock_all(base, &all, own) else {
            growth.give_pages(&pages[old.len()..]);
            return None;
        };
        let old_buckets = old.len() * PAGE_BUCKETS;

        // 3. Take all slots out. Tokens must not repeat: every bucket goes on from the highest.
        let writes = controls.iter().map(|control| control.writes()).max().unwrap_or(0) + 1;
        let watched = controls.iter().any(|control| control.watched());
        for bucket in &all[..old_buckets] {
            for i in 0..SLOTS {
                let slot = bucket.slot(i);
                bucket.replace(i, Slot::EMPTY);
                if slot.is_empty() {
                    continue;
                }
                let was = controls[home_of(slot.tag(), old_buckets)].stamp();
                if was != stamp && items.flushed(slot.location(), was, stamp) {
                    items.discard(slot.location());
                } else {
                    slots.push(slot);
                }
            }
        }

        // 4. Put them where they belong now.
        let mut away = vec![0u32; all.len()];
        if split {
            let (low, high) = all.split_at(PAGES_AFTER_SPLIT * PAGE_BUCKETS);
            let (away_low, away_high) = away.split_at_mut(low.len());
            for (i, slot) in slots.iter().enumerate() {
                if let Some(ahead) = slots.get(i + KEYS_AHEAD) {
                    items.prefetch(ahead.location());
                }
                let item_hash = items.hash(slot.location());
                let slot = slot.with_tag(tag_of(item_hash, depth + 1));
                let upper = item_hash << depth >> 63 == 1;
                let (buckets, away) = if upper { (high, &mut *away_high) } else { (low, &mut *away_low) };
                if let Err(left) = settle(buckets, away, slot) {
                    items.discard(left.location());
                }
            }
        } else {
            for slot in slots {
                if let Err(left) = settle(&all, &mut away, slot) {
                    items.discard(left.location());
                }
            }
        }

        // 5. Say so in the directory, then let go.
        let version = (place.meta >> 16) + 1;
        let directory = new_directory.as_deref().unwrap_or(place.directory);
        if split {
            let (low, high) = pages.split_at(PAGES_AFTER_SPLIT);
            let bit = 1 << (63 - depth);
            directory.announce(hash & !bit, depth + 1, low, version);
            directory.announce(hash | bit, depth + 1, high, version);
        } else {
            directory.announce(hash, depth, &pages, version);
        }
        if let Some(new) = new_directory {
            self.change_directory(growth, new, items);
        }
        for (bucket, away) in all.iter().zip(away) {
            let mut control = Control::new(writes, stamp);
            for _ in 0..away {
                control = control.away_more();
            }
            let control = if watched { control.with_watched() } else { control };
            bucket.unlock(if held.is_some() { control.with_held() } else { control });
        }
        // A transaction's keys may be at home in any of them now.
        if let Some(held) = held {
            held.retain(|&number| !old.contains(&((number / PAGE_BUCKETS as u64) as u32)));
            held.extend(pages.iter().flat_map(|&page| (0..PAGE_BUCKETS).map(move |i| number_of(page, i))));
        }
        Some(Ok(()))
    }

    /// Takes everything flushed out of the segment of `hash`, and stamps its buckets; none if a transaction
    /// holds a part of it.
    pub(crate) fn clean(&self, arena: &Arena, hash: u64, stamp: u8, items: &mut dyn Items) -> Option<()> {
        self.with_growth(|_| self.clean_segment(arena, hash, stamp, items))
    }

    fn clean_segment(&self, arena: &Arena, hash: u64, stamp: u8, items: &mut dyn Items) -> Option<()> {
        let place = self.place(arena, hash);
        let n = place.buckets();
        let all: Vec<&Bucket> = (0..n).map(|i| place.bucket(i)).collect();
        let controls = lock_all(place.base, &all, &[])?;
        let mut cleaned: Vec<Control> = controls
            .iter()
            .map(|control| match control.stamp() == stamp {
                true => *control,
                // What stays away is counted anew.
                false => control.without_away().with_stamp(stamp).written(),
            })
            .collect();
        for (at, bucket) in all.iter().enumerate() {
            for i in 0..SLOTS {
                let slot = bucket.slot(i);
                if slot.is_empty() {
                    continue;
                }
                let home = home_of(slot.tag(), n);
                let was = controls[home].stamp();
                if was == stamp {
                    continue;
                }
                if items.flushed(slot.location(), was, stamp) {
                    bucket.replace(i, Slot::EMPTY);
                    items.discard(slot.location());
                } else if at != home {
                    cleaned[home] = cleaned[home].away_more();
                }
            }
        }
        for (bucket, control) in all.iter().zip(cleaned) {
            bucket.unlock(control);
        }
        Some(())
    }

    /// Every slot whose position is in `[from, to)` of the segment that `cursor` falls in, with all
    /// of the segment's buckets locked for a moment, so that none moves meanwhile. Returns where
    /// the next call goes on, 0 at the end; none if a transaction holds a part of the segment.
    pub(crate) fn walk(
        &self,
        arena: &Arena,
        cursor: u64,
        items_max: usize,
        visit: &mut dyn FnMut(Slot),
    ) -> Option<u64> {
        self.with_growth(|_| self.walk_segment(arena, cursor, items_max, visit))
    }

    fn walk_segment(
        &self,
        arena: &Arena,
        cursor: u64,
        items_max: usize,
        visit: &mut dyn FnMut(Slot),
    ) -> Option<u64> {
        let place = self.place(arena, cursor);
        let depth = depth_of(place.meta);
        let all: Vec<&Bucket> = (0..place.buckets()).map(|i| place.bucket(i)).collect();
        let controls = lock_all(place.base, &all, &[])?;
        let mut slots: Vec<Slot> = all.iter().flat_map(|b| (0..SLOTS).map(|i| b.slot(i))).collect();
        for (bucket, control) in all.iter().zip(controls) {
            bucket.unlock(control);
        }
        slots.retain(|slot| !slot.is_empty() && slot.tag() >= place.tag);
        slots.sort_unstable_by_key(|slot| slot.tag());
        // Items of one tag are visited together: the cursor cannot point between them.
        let mut end = slots.len().min(items_max.max(1));
        while end > 0 && end < slots.len() && slots[end].tag() == slots[end - 1].tag() {
            end += 1;
        }
        slots[..end].iter().for_each(|&slot| visit(slot));
        let segment = if depth == 0 { 0 } else { cursor >> (64 - depth) << (64 - depth) };
        Some(if end < slots.len() {
            segment | slots[end].tag() << (64 - TAG_BITS) >> depth
        } else if depth == 0 {
            0
        } else {
            segment.wrapping_add(1 << (64 - depth))
        })
    }

    /// Runs `f` over every bucket of the segment that `cursor` falls in, without locks; returns the
    /// next segment's cursor, 0 at the end.
    pub(crate) fn sweep(&self, arena: &Arena, cursor: u64, f: &mut dyn FnMut(&Bucket)) -> u64 {
        let place = self.place(arena, cursor);
        for i in 0..place.buckets() {
            f(place.bucket(i));
        }
        match depth_of(place.meta) {
            0 => 0,
            depth => (cursor >> (64 - depth) << (64 - depth)).wrapping_add(1 << (64 - depth)),
        }
    }

    /// The lowest hash of the segment that `cursor` falls in.
    pub(crate) fn start_of(&self, arena: &Arena, cursor: u64) -> u64 {
        match depth_of(self.place(arena, cursor).meta) {
            0 => 0,
            depth => cursor >> (64 - depth) << (64 - depth),
        }
    }

    /// Bytes of pages and directory.
    pub(crate) fn bytes(&self) -> u64 {
        let growth = self.growth.lock().expect("no panic under the lock");
        let entries = self.directory().entries.len()
            + growth.retired.iter().map(|(_, directory)| directory.entries.len()).sum::<usize>();
        growth.pages_used * PAGE_BYTES as u64 + (entries * size_of::<Entry>()) as u64
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
        // SAFETY: the pointer came from `Box::into_raw` and nobody uses the index any more.
        drop(unsafe { Box::from_raw(self.directory.load(Ordering::Relaxed)) });
    }
}

impl Directory {
    /// Says which pages hold the segment of `hash` at `depth`, in every entry that names it.
    fn announce(&self, hash: u64, depth: u32, pages: &[u32], version: u64) {
        let first = (hash >> 1 >> (63 - self.depth)) as usize >> (self.depth - depth) << (self.depth - depth);
        for entry in &self.entries[first..first + (1 << (self.depth - depth))] {
            for (slot, &page) in entry.pages.iter().zip(pages) {
                slot.store(page, Ordering::Relaxed);
            }
            // Release: whoever sees the new count sees the pages.
            entry.meta.store(meta(version, depth, pages.len()), Ordering::Release);
        }
    }
}

fn doubled(old: &Directory) -> Box<Directory> {
    let entries = old.entries.iter().flat_map(|entry| [entry.copy(), entry.copy()]).collect();
    Box::new(Directory { depth: old.depth + 1, entries })
}

/// Puts a slot into buckets that nobody else can touch, moving others as far as it takes.
fn settle(buckets: &[&Bucket], away: &mut [u32], slot: Slot) -> Result<(), Slot> {
    let n = buckets.len();
    let mut homeless = slot;
    let mut bucket = home_of(slot.tag(), n);
    for turn in 0..REBUILD_MOVES_MAX {
        let (home, other) = (home_of(homeless.tag(), n), other_of(homeless.tag(), n));
        for target in [home, other] {
            if buckets[target].claim(homeless) {
                away[home] += u32::from(target != home);
                return Ok(());
            }
        }
        // Both are full: it takes the place of one in the bucket it did not come from.
        bucket = if bucket == home { other } else { home };
        let victim = (homeless.0 as usize).wrapping_add(turn) % SLOTS;
        let next = buckets[bucket].slot(victim);
        buckets[bucket].replace(victim, homeless);
        away[home] += u32::from(bucket != home);
        let next_home = home_of(next.tag(), n);
        away[next_home] -= u32::from(bucket != next_home);
        homeless = next;
    }
    Err(homeless)
}

impl Growth {
    fn take_page(&mut self, arena: &Arena) -> Option<u32> {
        if self.pages_free.is_empty() {
            let span = arena.take_span(OWNER_INDEX, true)?;
            crate::arena::unpoison(arena.at(Arena::location_of(span)).as_ptr(), SPAN_BYTES);
            self.pages_free.extend((0..SPAN_PAGES).map(|i| span * SPAN_PAGES + i));
        }
        self.pages_used += 1;
        self.pages_free.pop_first()
    }

    fn give_pages(&mut self, pages: &[u32]) {
        self.pages_used -= pages.len() as u64;
        self.pages_free.extend(pages);
    }
}

fn clear_page(arena: &Arena, page: u32) {
    let base = arena.at(0).as_ptr().cast_const();
    for i in 0..PAGE_BUCKETS {
        let bucket = bucket(base, page, i);
        (0..SLOTS).for_each(|i| bucket.replace(i, Slot::EMPTY));
        bucket.unlock(Control::new(0, 0));
    }
}
