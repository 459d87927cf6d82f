//! Passes over the index, a segment at a time, in the order of the hash: cleaning after a flush, walking
//! items with a cursor, sweeping buckets.
//!
//! A cursor is a hash. Segments may grow, split and merge between two steps of a pass: what is at a hash
//! stays at it, so none is left out.

use super::directory::depth_of;
use super::locks::Locks;
use super::place::home_of;
use super::{Index, Items};
use crate::arena::Arena;
use crate::bucket::{Bucket, SLOTS, Slot, TAG_BITS};

impl Index {
    /// Takes everything flushed out of the segment of `hash`, and stamps its buckets; none if a transaction
    /// holds a part of it.
    pub(crate) fn clean(&self, arena: &Arena, hash: u64, items: &mut dyn Items) -> Option<()> {
        self.with_growth(|_| self.clean_segment(arena, hash, items))
    }

    fn clean_segment(&self, arena: &Arena, hash: u64, items: &mut dyn Items) -> Option<()> {
        let place = self.place(arena, hash);
        let n = place.buckets();
        let all: Vec<&Bucket> = (0..n).map(|i| place.bucket(i)).collect();
        let mut stamps = Vec::with_capacity(n);
        let mut locks = Locks::take(place.base, &all, &[])?;
        let stamp = locks.stamp(n, items);
        stamps.extend(locks.controls().iter().map(|control| control.stamp()));
        for (home, &was) in stamps.iter().enumerate() {
            if was != stamp {
                // What stays away is counted anew.
                locks.set(home, locks.controls()[home].without_away().with_stamp(stamp).written());
            }
        }
        for (at, bucket) in all.iter().enumerate() {
            for i in 0..SLOTS {
                let slot = bucket.slot(i);
                if slot.is_empty() {
                    continue;
                }
                let home = home_of(slot.tag(), n);
                let was = stamps[home];
                if was == stamp {
                    continue;
                }
                if items.flushed(slot.location(), was, stamp) {
                    bucket.replace(i, Slot::EMPTY);
                    items.discard(slot.location());
                } else if at != home {
                    locks.set(home, locks.controls()[home].away_more());
                }
            }
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
        let mut slots: Vec<Slot> = Vec::with_capacity(all.len() * SLOTS);
        let locks = Locks::take(place.base, &all, &[])?;
        slots.extend(all.iter().flat_map(|b| (0..SLOTS).map(|i| b.slot(i))));
        drop(locks);
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
}
