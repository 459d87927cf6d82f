//! Passes over the index in the order of the hash: cleaning after a flush, walking
//! items with a cursor, sweeping buckets.
//!
//! A cursor is a hash. Segments may grow, split and merge between two steps of a pass: what is at a hash
//! stays at it, so none is left out.

use super::directory::depth_of;
use super::locks::Locks;
use super::place::{Place, first_tag_of, home_of};
use super::{Index, Items, Locked, Own};
use crate::arena::Arena;
use crate::bucket::{Bucket, Control, SLOTS, Slot, TAG_BITS};
use crate::flush::flushes_since;
use crate::sync::atomic::{Ordering, fence};
use std::ops::Range;

/// Where a step finds less than half of what it may, it looks at so many times the buckets.
const SPARSE_FACTOR: usize = 4;
/// Items that are taken out one after another once the headers of all of them are being loaded.
const AHEAD: usize = 16;

/// Where a step of a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walked {
    /// The next step begins here; 0: there is none.
    To(u64),
    /// A transaction holds the bucket of the cursor: nothing was collected.
    Busy,
    /// The segment has to be cleaned first: nothing was collected.
    Unclean,
}

impl<'a> Place<'a> {
    /// The segment's buckets.
    fn all(self) -> impl Iterator<Item = &'a Bucket> {
        (0..self.buckets()).map(move |i| self.bucket(i))
    }

    /// Adds the segment's slots whose tags are in a range.
    fn collect(&self, tags: Range<u64>, slots: &mut Vec<Slot>) {
        for i in 0..self.buckets() {
            let bucket = self.bucket(i);
            slots.extend(
                (0..SLOTS)
                    .map(|i| bucket.slot(i))
                    .filter(|slot| !slot.is_empty() && tags.contains(&slot.tag())),
            );
        }
    }

    /// Keeps the first `items_max` of the slots that were collected from `cursor` up to `end_tag`; returns where the next
    /// step begins. Items of one tag stay together, since a cursor cannot point between them.
    fn cut(&self, cursor: u64, end_tag: u64, items_max: usize, slots: &mut Vec<Slot>) -> Walked {
        let items_max = items_max.max(1);
        let mut end_tag = end_tag;
        if slots.len() > items_max {
            let least = slots.iter().map(|slot| slot.tag()).min().unwrap_or(end_tag);
            let (_, &mut cut, _) = slots.select_nth_unstable_by_key(items_max, |slot| slot.tag());
            end_tag = cut.tag().max(least + 1);
            slots.retain(|slot| slot.tag() < end_tag);
        }
        let depth = depth_of(self.meta);
        let segment = if depth == 0 { 0 } else { cursor >> (64 - depth) << (64 - depth) };
        Walked::To(match (end_tag >> TAG_BITS, depth) {
            (0, _) => segment | end_tag << (64 - TAG_BITS) >> depth,
            (_, 0) => 0,
            (_, _) => segment.wrapping_add(1 << (64 - depth)),
        })
    }
}

/// Takes everything flushed out of some of a segment's buckets `all`, and stamps these. It looks for what is at home in them in
/// the whole segment: only the holder of their locks moves it. None if a transaction holds any of the segment: one that began
/// before the flush gives all of it the stamp of its own buckets if it grows, which must not be an earlier one than some have.
fn clean_homes(place: &Place<'_>, all: &[&Bucket], homes: Range<usize>, items: &mut dyn Items) -> Option<()> {
    let (n, first) = (all.len(), homes.start);
    let mut stamps = Vec::with_capacity(homes.len());
    let mut locks = Locks::take(place.base, &all[homes.clone()], &Own::default())?;
    let stamp = locks.stamp(homes.len(), items);
    // Pairs with the fence of a transaction behind its last bit: either the bit is seen here, or the transaction sees the flush
    // that this stamp is of, and begins anew.
    fence(Ordering::SeqCst);
    if homes.len() < n && all.iter().any(|bucket| bucket.control().in_transaction()) {
        return None;
    }
    stamps.extend(locks.controls().iter().map(|control| control.stamp()));
    for (i, &was) in stamps.iter().enumerate() {
        if was != stamp {
            // What stays away is counted anew.
            locks.set(i, locks.controls()[i].without_away().with_stamp(stamp).written());
        }
    }
    let mut take_out = |found: &[(usize, usize, Slot)]| {
        found.iter().for_each(|(_, _, slot)| items.prefetch(slot.location()));
        for &(at, i, slot) in found {
            let home = home_of(slot.tag(), n);
            if items.flushed(slot.location(), stamps[home - first], stamp) {
                all[at].replace(i, Slot::EMPTY);
                items.discard(slot.location());
            } else if at != home {
                locks.set(home - first, locks.controls()[home - first].away_more());
            }
        }
    };
    let mut found = [(0, 0, Slot::EMPTY); AHEAD];
    let mut count = 0;
    for (at, bucket) in all.iter().enumerate() {
        for i in 0..SLOTS {
            let slot = bucket.slot(i);
            let home = home_of(slot.tag(), n);
            if slot.is_empty() || !homes.contains(&home) || stamps[home - first] == stamp {
                continue;
            }
            found[count] = (at, i, slot);
            count += 1;
            if count == AHEAD {
                take_out(&found);
                count = 0;
            }
        }
    }
    take_out(&found[..count]);
    Some(())
}

impl Index {
    /// Takes everything flushed out of the segment of `hash`, and stamps its buckets; none if a transaction
    /// holds a part of it.
    pub(crate) fn clean(&self, arena: &Arena, hash: u64, items: &mut dyn Items) -> Option<()> {
        self.with_growth(|_| {
            let place = self.place(arena, hash);
            let all: Vec<&Bucket> = place.all().collect();
            clean_homes(&place, &all, 0..all.len(), items)
        })
    }

    /// As [`Index::clean`], of so many buckets at most, from the first on that has an earlier stamp than `stamp`; true if no
    /// other has one then. Only these are locked; others keep the stamp that they have. None if a transaction holds a part of
    /// the segment.
    pub(crate) fn clean_some(
        &self,
        arena: &Arena,
        hash: u64,
        (stamp, homes_max): (u8, usize),
        items: &mut dyn Items,
    ) -> Option<bool> {
        self.with_growth(|_| {
            let place = self.place(arena, hash);
            let all: Vec<&Bucket> = place.all().collect();
            let is_unclean = |bucket: &&Bucket| flushes_since(bucket.control().stamp(), stamp) > 0;
            let Some(first) = all.iter().position(is_unclean) else { return Some(true) };
            let end = all.len().min(first + homes_max);
            clean_homes(&place, &all, first..end, items)?;
            Some(!all[end..].iter().any(is_unclean))
        })
    }

    /// A step of a walk: collects the slots of the keys at home in the bucket of `cursor`, from `cursor` on, and in those
    /// behind it, in one segment, about `items_max` in all. It takes no lock, so that no thread waits for a walk: what was
    /// collected of a bucket counts if its control word is afterwards what it was before; else this step ends there, and the
    /// next one locks its first bucket.
    pub(crate) fn walk(
        &self,
        arena: &Arena,
        cursor: u64,
        items_max: usize,
        gate: u64,
        slots: &mut Vec<Slot>,
    ) -> Walked {
        let place = self.place(arena, cursor);
        let n = place.buckets();
        let first = home_of(place.tag, n);
        let mut controls = Vec::new();
        let mut end = n.min(first + 1 + items_max / SLOTS);
        loop {
            // 1. What the buckets are like.
            controls.clear();
            controls.extend((first..end).map(|i| place.bucket(i).control()));
            // A thread that waits for a transaction that holds the first asks again and again, and there is nothing to collect.
            if controls[0].busy() {
                return self.walk_locked(arena, cursor, items_max, gate, slots);
            }
            // 2. What is at home there. It may be anywhere in the segment.
            slots.clear();
            place.collect(place.tag..first_tag_of(end, n), slots);
            // Where they are few, more buckets are looked at.
            if end == n || slots.len() >= items_max.div_ceil(2) {
                break;
            }
            end = n.min(first + (end - first) * SPARSE_FACTOR);
        }
        // 3. Whether they are still like that: the slots were read before the words are read again.
        fence(Ordering::Acquire);
        let holds =
            |i: usize, was: Control| was.passes(gate) && !was.busy() && place.bucket(i).control() == was;
        let end = match self.holds(&place) {
            true => (first..end).zip(controls).find(|&(i, was)| !holds(i, was)).map_or(end, |(i, _)| i),
            false => first,
        };
        if end == first {
            return self.walk_locked(arena, cursor, items_max, gate, slots);
        }
        let end_tag = first_tag_of(end, n);
        slots.retain(|slot| slot.tag() < end_tag);
        place.cut(cursor, end_tag, items_max, slots)
    }

    /// As [`Index::walk`], of one bucket, under its lock: only its holder moves what is at home there.
    #[cold]
    fn walk_locked(
        &self,
        arena: &Arena,
        cursor: u64,
        items_max: usize,
        gate: u64,
        slots: &mut Vec<Slot>,
    ) -> Walked {
        slots.clear();
        let Some(Locked { place, home, control }) = self.lock_open(arena, cursor) else {
            return Walked::Busy;
        };
        let clean = control.passes(gate);
        let n = place.buckets();
        let end_tag = first_tag_of(home_of(place.tag, n) + 1, n);
        if clean {
            place.collect(place.tag..end_tag, slots);
        }
        home.unlock(control);
        if clean { place.cut(cursor, end_tag, items_max, slots) } else { Walked::Unclean }
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

    /// The segment of `cursor` is the second of the two that may become one, or there is no other.
    pub(crate) fn is_second(&self, arena: &Arena, cursor: u64) -> bool {
        let depth = depth_of(self.place(arena, cursor).meta);
        depth == 0 || cursor >> (64 - depth) & 1 == 1
    }
}
