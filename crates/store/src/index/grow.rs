//! Growing: a segment gets one more page, or splits in two.
//!
//! ```text
//! depth d  │ … 13 pages │  →  │ … 14 pages │               depth d
//! depth d  │ … 14 pages │  →  │ 0… 8 pages │ 1… 8 pages │  depth d + 1
//! ```
//!
//! All buckets old and new are locked while slots are dealt out: some 30 to 300 µs.

use super::directory::{Directory, PAGES_MAX, depth_of, doubled, pages_of};
use super::filling::Filling;
use super::locks::Locks;
use super::own::Own;
use super::pages::{Growth, PAGE_BUCKETS, bucket, clear_page};
use super::place::{Extent, Place, home_of, tag_of};
use super::{Full, Index, Items};
use crate::arena::Arena;
use crate::bucket::{Bucket, Control, SLOTS, Slot};
use crate::sync::atomic::Ordering;

/// Pages of each half after a split.
const PAGES_AFTER_SPLIT: usize = 8;
/// Keys that a split loads ahead.
const KEYS_AHEAD: usize = 24;

impl Index {
    /// Gives the segment of `hash` more room, unless another thread has changed it since
    /// `seen_meta`; none if a transaction holds a part of it.
    pub(crate) fn grow(
        &self,
        arena: &Arena,
        hash: u64,
        seen_meta: u64,
        held: Option<&mut Own>,
        items: &mut dyn Items,
    ) -> Option<Result<(), Full>> {
        self.with_growth(|growth| {
            let place = self.place(arena, hash);
            if place.meta != seen_meta {
                return Some(Ok(()));
            }
            self.growing.store(1, Ordering::Relaxed);
            let grown = self.rebuild(arena, growth, &place, hash, held, items);
            self.pages.store(growth.pages_used, Ordering::Relaxed);
            self.growing.store(0, Ordering::Relaxed);
            grown
        })
    }

    pub(super) fn change_directory(&self, growth: &mut Growth, new: Box<Directory>, items: &dyn Items) {
        let old = self.directory.swap(Box::into_raw(new), Ordering::AcqRel);
        // SAFETY: the pointer came from `Box::into_raw`, and only the growth lock's holder swaps.
        growth.retired.push((items.tag(), unsafe { Box::from_raw(old) }));
    }

    fn rebuild(
        &self,
        arena: &Arena,
        growth: &mut Growth,
        place: &Place<'_>,
        hash: u64,
        held: Option<&mut Own>,
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
        let none = Own::default();
        let Some(mut locks) = Locks::take(base, &all, held.as_deref().unwrap_or(&none)) else {
            growth.give_pages(&pages[old.len()..]);
            return None;
        };
        let controls = locks.controls();
        let old_buckets = old.len() * PAGE_BUCKETS;
        // A flush since a transaction began comes after it, and its segments keep their stamp till then.
        let stamp = match held {
            Some(_) => place.home().control().stamp(),
            None => locks.stamp(old_buckets, items),
        };
        debug_assert!(locks.none_is_later(old_buckets, stamp), "what came behind a flush would go with it");

        // 3. Take all slots out. Tokens must not repeat: every bucket goes on from the highest.
        let writes = controls.iter().map(|control| control.writes()).max().unwrap_or(0) + 1;
        let watched: Vec<_> = locks.watched(Extent::new(hash, depth, old_buckets), 0).collect();
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
        let low_buckets = if split { PAGES_AFTER_SPLIT * PAGE_BUCKETS } else { all.len() };
        let (low, high) = all.split_at(low_buckets);
        let (mut low, mut high) = (Filling::new(low), Filling::new(high));
        if split {
            for (i, slot) in slots.iter().enumerate() {
                if let Some(ahead) = slots.get(i + KEYS_AHEAD) {
                    items.prefetch(ahead.location());
                }
                let item_hash = items.hash(slot.location());
                let slot = slot.with_tag(tag_of(item_hash, depth + 1));
                let upper = item_hash << depth >> 63 == 1;
                let half = if upper { &mut high } else { &mut low };
                if let Err(left) = half.place(slot) {
                    items.discard(left.location());
                }
            }
        } else {
            for slot in slots {
                if let Err(left) = low.place(slot) {
                    items.discard(left.location());
                }
            }
        }

        // 5. Say so in the directory, then unlock.
        let version = (place.meta >> 16) + 1;
        let directory = new_directory.as_deref().unwrap_or(place.directory);
        let bit = 1 << (63 - depth);
        if split {
            let (low, high) = pages.split_at(PAGES_AFTER_SPLIT);
            directory.announce(hash & !bit, depth + 1, low, version);
            directory.announce(hash | bit, depth + 1, high, version);
        } else {
            directory.announce(hash, depth, &pages, version);
        }
        if let Some(new) = new_directory {
            self.change_directory(growth, new, items);
        }
        self.gate.raise();
        let control = Control::new(writes, stamp);
        let control = if held.is_some() { control.with_transaction() } else { control };
        for i in 0..all.len() {
            let away = if i < low_buckets { low.away(i) } else { high.away(i - low_buckets) };
            locks.set(i, control.with_away(away));
        }
        if split {
            let [low, high] = [hash & !bit, hash | bit].map(|hash| Extent::new(hash, depth + 1, low_buckets));
            locks.watch(&watched, low, 0, items);
            locks.watch(&watched, high, low_buckets, items);
        } else {
            locks.watch(&watched, Extent::new(hash, depth, all.len()), 0, items);
        }
        drop(locks);
        // A transaction's keys may be at home in any of them now.
        if let Some(held) = held {
            held.replace(&old, &pages);
        }
        Some(Ok(()))
    }
}
