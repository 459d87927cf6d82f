//! Shrinking: a segment with few items gets fewer pages, two halves of one become one again, and what
//! is left moves to low addresses, so that whole spans come free.
//!
//! ```text
//! depth d   │ 0… low, 8 pages │ 1… high, 8 pages │     12 items in 100 places
//! depth d−1 │ …     both, 3 pages                │     80 items in 100 places
//! ```
//!
//! As in growing, all buckets old and new are locked while slots are dealt out, and a merge needs no
//! look at items: the tag of the whole is the half's bit and the tag without its last.
//!
//! Two halves that have more pages together than one segment may have do not become one at once: each gets fewer pages first.
//! So whatever there is to do, one step goes through 14 pages and fills as many at most.
//!
//! Old pages are used again only when every batch that could have seen them is over: the hints of a
//! batch point to buckets for as long as it lasts.

use super::directory::{Directory, Entry, PAGES_MAX, depth_of, pages_of};
use super::filling::Filling;
use super::locks::Locks;
use super::own::Own;
use super::pages::{Growth, PAGE_BUCKETS, SPAN_PAGES, bucket, clear_page};
use super::place::{Extent, Place, home_of};
use super::{Index, Items};
use crate::arena::Arena;
use crate::bucket::{Bucket, Control, SLOTS, Slot, TAG_BITS};
use crate::sync::atomic::Ordering;

/// Slots of a page.
const PAGE_SLOTS: usize = PAGE_BUCKETS * SLOTS;
/// A segment that is filled less than this many percent shrinks.
const SPARSE_PERCENT: usize = 76;
/// It shrinks to so many pages that these are filled by about this many percent at most.
const FILL_PERCENT: usize = 87;
/// Two halves are merged if they fit this many pages.
pub(super) const MERGE_PAGES_MAX: usize = 12;
/// An index of fewer pages may be sparse: a segment has one at least.
const PAGES_LAST: u64 = 16;
/// Most items of a segment that is rebuilt while it is not clean: all of them may have to go then.
const UNCLEAN_ITEMS_MAX: usize = PAGE_SLOTS;
/// Groups of pages out of use that a look frees at most: some microseconds each.
const HARVESTED_AT_ONCE: usize = 4;

/// What a segment becomes.
struct Plan {
    /// The old pages, low half first if there are two.
    old: [Vec<u32>; 2],
    merge: bool,
    /// Pages wanted.
    wanted: usize,
}

fn pages_for(items: usize) -> usize {
    (items * 100).div_ceil(PAGE_SLOTS * FILL_PERCENT).max(1)
}

/// True if so many items in so many pages are sparse.
fn are_sparse(items: usize, pages: usize) -> bool {
    items * 100 < pages * PAGE_SLOTS * SPARSE_PERCENT
}

/// The slots of some buckets that are not empty.
fn filled(buckets: &[&Bucket]) -> impl Iterator<Item = Slot> {
    let slots = buckets.iter().flat_map(|bucket| (0..SLOTS).map(move |i| bucket.slot(i)));
    slots.filter(|slot| !slot.is_empty())
}

/// What is known of a segment that may shrink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sparse {
    /// Its items, if they were counted a moment ago.
    pub(crate) items: Option<usize>,
    /// Nothing that was flushed is in it any more.
    pub(crate) is_clean: bool,
    /// Nor in its other half.
    pub(crate) both_are_clean: bool,
}

impl Index {
    /// True if a segment with so many items in so many buckets may be worth [`Index::shrink`].
    pub(crate) fn is_sparse(&self, items: usize, buckets: usize) -> bool {
        let sparse = items * 100 < buckets * SLOTS * SPARSE_PERCENT;
        sparse || self.scattered.load(Ordering::Relaxed)
    }

    /// True if all segments together are so sparse, with so many items in all, that a pass over them is
    /// worth it now.
    pub(crate) fn is_sparse_in_all(&self, items: u64) -> bool {
        let pages = self.pages.load(Ordering::Relaxed);
        let sparse = items * 100 < pages * (PAGE_SLOTS * SPARSE_PERCENT) as u64;
        pages > PAGES_LAST && sparse || self.scattered.load(Ordering::Relaxed)
    }

    /// Gives back memory of pages that no batch can see any more.
    pub(crate) fn harvest(&self, arena: &Arena, items: &dyn Items) {
        let Ok(mut growth) = self.growth.try_lock() else { return };
        growth.harvest(arena, items);
        self.scattered.store(growth.scattered(), Ordering::Relaxed);
    }

    /// Makes the directory half as long if no segment needs all of it; true if so.
    pub(crate) fn halve(&self, items: &dyn Items) -> bool {
        let mut growth = self.growth.lock().expect("no panic under the lock");
        let old = self.directory();
        let deep = |entry: &Entry| depth_of(entry.meta.load(Ordering::Relaxed)) == old.depth;
        let halves = old.depth > 0 && !old.entries.iter().any(deep);
        if halves {
            let entries = old.entries.iter().step_by(2).map(Entry::copy).collect();
            let new = Box::new(Directory { depth: old.depth - 1, entries });
            self.change_directory(&mut growth, new, items);
        }
        halves
    }

    /// Pages are out of use, and wait until no batch can see them.
    pub(crate) fn awaits_batches(&self) -> bool {
        self.growth
            .try_lock()
            .is_ok_and(|growth| !growth.pages_retired.is_empty() || !growth.retired.is_empty())
    }

    /// Gives the segment of `hash` fewer pages, or lower ones, if that is worth it; true if so. Some
    /// 100 µs at most, under the locks of its buckets.
    pub(crate) fn shrink(&self, arena: &Arena, hash: u64, sparse: Sparse, items: &mut dyn Items) -> bool {
        let shrunk = self.with_growth(|growth| {
            growth.harvest(arena, items);
            let shrunk = self.shrink_segment(arena, growth, (hash, sparse), items);
            self.pages.store(growth.pages_used, Ordering::Relaxed);
            self.scattered.store(growth.scattered(), Ordering::Relaxed);
            shrunk
        });
        shrunk.unwrap_or(false)
    }

    fn plan(
        &self,
        arena: &Arena,
        growth: &Growth,
        place: &Place<'_>,
        (hash, sparse): (u64, Sparse),
    ) -> Option<Plan> {
        let depth = depth_of(place.meta);
        let pages = place.pages();
        let items = sparse.items.unwrap_or_else(|| place.items());
        if depth > 0 {
            let bit = 1 << (64 - depth);
            let buddy = self.place(arena, hash ^ bit);
            let count = pages.len() + pages_of(buddy.meta);
            if depth_of(buddy.meta) == depth && count <= PAGES_MAX {
                let both = items + buddy.items();
                let wanted = pages_for(both);
                let may = sparse.both_are_clean || both <= UNCLEAN_ITEMS_MAX;
                let is_worth_it = may && (wanted < count || are_sparse(both, count));
                if wanted <= MERGE_PAGES_MAX && is_worth_it {
                    let (low, high) = if hash & bit == 0 { (place, &buddy) } else { (&buddy, place) };
                    return Some(Plan { old: [low.pages(), high.pages()], merge: true, wanted });
                }
            }
        }
        if !sparse.is_clean && items > UNCLEAN_ITEMS_MAX {
            return None;
        }
        let wanted = pages_for(items);
        if wanted < pages.len() && are_sparse(items, pages.len()) {
            return Some(Plan { old: [pages, Vec::new()], merge: false, wanted });
        }
        // The same number of pages, lower ones.
        let lower = growth.pages_free.iter().nth(pages.len() - 1);
        let worth =
            growth.scattered() && growth.pages_free.len() >= pages.len() && lower < pages.iter().max();
        worth.then(|| Plan { wanted: pages.len(), old: [pages, Vec::new()], merge: false })
    }

    /// Makes [`Index::shrink`]'s change. None if a transaction holds a bucket.
    fn shrink_segment(
        &self,
        arena: &Arena,
        growth: &mut Growth,
        (hash, sparse): (u64, Sparse),
        items: &mut dyn Items,
    ) -> Option<bool> {
        let base = arena.at(0).as_ptr().cast_const();
        let place = self.place(arena, hash);
        let depth = depth_of(place.meta);
        let Some(Plan { old, merge, wanted }) = self.plan(arena, growth, &place, (hash, sparse)) else {
            return Some(false);
        };
        // 1. Memory first: nothing is allocated while a bucket is locked.
        let mut pages = Vec::with_capacity(wanted);
        while pages.len() < wanted {
            let Some(page) = growth.take_page(arena) else {
                growth.give_pages(&pages);
                return Some(false);
            };
            clear_page(arena, page);
            pages.push(page);
        }
        let all: Vec<&Bucket> = (old.iter().flatten().chain(&pages))
            .flat_map(|&page| (0..PAGE_BUCKETS).map(move |i| bucket(base, page, i)))
            .collect();
        let (low, rest) = all.split_at(old[0].len() * PAGE_BUCKETS);
        let (high, new) = rest.split_at(old[1].len() * PAGE_BUCKETS);
        let old_buckets = low.len() + high.len();
        let mut slots = Vec::with_capacity(old_buckets * SLOTS);

        // 2. Every bucket that an old or a new view of the entry can name is locked.
        let Some(mut locks) = Locks::take(base, &all, &Own::default()) else {
            growth.give_pages(&pages);
            return None;
        };
        slots.extend(filled(low));
        let in_low = slots.len();
        slots.extend(filled(high));
        // What came since it was planned may need more than was taken.
        if slots.len() * 100 > new.len() * SLOTS * (FILL_PERCENT + 3) {
            drop(locks);
            growth.give_pages(&pages);
            return Some(false);
        }

        // 3. Take all slots out. Tokens must not repeat: every bucket goes on from the highest.
        let stamp = locks.stamp(old_buckets, items);
        let controls = &locks.controls()[..old_buckets];
        let writes = controls.iter().map(|control| control.writes()).max().unwrap_or(0) + 1;
        let half = |upper: bool, buckets: usize| {
            let bit = if merge { 1 << (64 - depth) } else { 0 };
            Extent::new(if upper { hash | bit } else { hash & !bit }, depth, buckets)
        };
        let mut watched: Vec<_> = locks.watched(half(false, low.len()), 0).collect();
        watched.extend(locks.watched(half(true, high.len()), low.len()));
        for bucket in &all[..old_buckets] {
            (0..SLOTS).for_each(|i| bucket.replace(i, Slot::EMPTY));
        }

        // 4. Put them where they belong now, but for what was flushed.
        let (low_controls, high_controls) = controls.split_at(low.len());
        let mut filling = Filling::new(new);
        for (n, slot) in slots.into_iter().enumerate() {
            let (upper, controls) = if n < in_low { (0, low_controls) } else { (1, high_controls) };
            let was = controls[home_of(slot.tag(), controls.len())].stamp();
            if was != stamp && items.flushed(slot.location(), was, stamp) {
                items.discard(slot.location());
                continue;
            }
            let tag = if merge { upper << (TAG_BITS - 1) | slot.tag() >> 1 } else { slot.tag() };
            if let Err(left) = filling.place(slot.with_tag(tag)) {
                items.discard(left.location());
            }
        }

        // 5. Say so in the directory, then unlock.
        let version = match merge {
            true => (place.meta >> 16).max(self.place(arena, hash ^ 1 << (64 - depth)).meta >> 16) + 1,
            false => (place.meta >> 16) + 1,
        };
        place.directory.announce(hash, depth - u32::from(merge), &pages, version);
        self.gate.raise();
        let control = Control::new(writes, stamp);
        for i in 0..old_buckets {
            locks.set(i, locks.controls()[i].without_away().written());
        }
        for i in 0..new.len() {
            locks.set(old_buckets + i, control.with_away(filling.away(i)));
        }
        let whole = Extent::new(hash, depth - u32::from(merge), new.len());
        locks.watch(&watched, whole, old_buckets, items);
        drop(locks);
        growth.retire(items.tag(), old.concat());
        Some(true)
    }
}

impl Place<'_> {
    pub(super) fn pages(&self) -> Vec<u32> {
        self.entry.pages[..pages_of(self.meta)].iter().map(|page| page.load(Ordering::Relaxed)).collect()
    }

    fn items(&self) -> usize {
        (0..self.buckets()).map(|i| self.bucket(i).slots_used()).sum()
    }
}

impl Growth {
    /// Free pages are many, and so perhaps spread over spans that could be free.
    fn scattered(&self) -> bool {
        self.pages_free.len() as u64 > self.pages_used / 32 + 2 * u64::from(SPAN_PAGES)
    }

    /// Notes that these pages are out of use since epoch `tag`.
    fn retire(&mut self, tag: u64, pages: Vec<u32>) {
        self.pages_used -= pages.len() as u64;
        self.pages_retired.push_back((tag, pages));
    }

    /// Frees pages that no batch can see any more, and gives back spans whose pages are all free.
    fn harvest(&mut self, arena: &Arena, items: &dyn Items) {
        self.retired.retain(|(tag, _)| !items.batches_over(*tag));
        for _ in 0..HARVESTED_AT_ONCE {
            let Some((_, pages)) = self.pages_retired.pop_front_if(|(tag, _)| items.batches_over(*tag))
            else {
                break;
            };
            self.pages_free.extend(&pages);
            for span in pages.iter().map(|page| page / SPAN_PAGES) {
                let of_span = span * SPAN_PAGES..(span + 1) * SPAN_PAGES;
                if self.pages_free.range(of_span.clone()).count() == SPAN_PAGES as usize {
                    of_span.for_each(|page| _ = self.pages_free.remove(&page));
                    arena.give_span(span);
                }
            }
        }
    }
}
