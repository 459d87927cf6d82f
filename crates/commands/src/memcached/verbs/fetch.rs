//! get, gets, gat, gats: reads of a key's string.

use std::sync::Arc;

use larder_store::{Hint, Item, Key, Lookup, Millis, Refusal, Store};

use crate::core::context::Context;
use crate::core::counters::{ClassCounter, Counter};
use crate::core::tally::Tally;

/// get, gets: the item, counted as a hit or a miss.
#[inline(always)]
pub fn fetch<'r>(
    cx: &'r mut Context<'_, '_>,
    tally: &mut Tally,
    key: &Key<'_>,
    hint: &Hint<'_>,
) -> Option<Item<'r>> {
    tally.gets += 1;
    let (shared, counters, own) = (cx.shared, cx.counters, cx.room.prefixes());
    // The item borrows the guard.
    let store: Option<Arc<Store>> = shared.prefixes.is_on().then(|| Arc::clone(cx.guard.store()));
    let why = match cx.guard.get_hinted(key, hint) {
        // A client that asks for a string finds none here.
        Lookup::Hit(item) if item.is_collection() => Some(Counter::TypeMisses),
        Lookup::Hit(item) => {
            tally.get_hits += 1;
            counters.count_in(item.class(), ClassCounter::GetHits);
            if let Some(store) = &store {
                shared.prefixes.count(own, store, key.bytes(), |count| {
                    count.gets += 1;
                    count.hits += 1;
                });
            }
            return Some(item);
        }
        Lookup::Miss => None,
        Lookup::Expired => Some(Counter::GetExpired),
        Lookup::Flushed => Some(Counter::GetFlushed),
    };
    counters.add(Counter::GetMisses, 1);
    if let Some(why) = why {
        counters.add(why, 1);
    }
    if let Some(store) = &store {
        shared.prefixes.count(own, store, key.bytes(), |count| count.gets += 1);
    }
    None
}

/// The outcome of a gat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The item was replied and touched.
    Done,
    /// There is no item.
    Absent,
    /// There was no memory to reply it, or to touch it: the caller takes back what was put into the reply.
    NoMemory,
}

/// gat, gats: `tell` writes the item into the reply, and returns false if there is no memory for that. The item then expires at
/// the time that `at` makes of now. Counts as a touch, not as a get.
pub fn fetch_and_touch(
    cx: &mut Context<'_, '_>,
    key: &Key<'_>,
    at: impl FnOnce(Millis) -> Millis,
    tell: impl FnOnce(&Item<'_>) -> bool,
) -> Fetched {
    cx.counters.add(Counter::CmdTouch, 1);
    let now = cx.now();
    let hit = match cx.guard.get(key) {
        Lookup::Hit(item) if item.is_collection() => {
            cx.counters.add(Counter::TypeMisses, 1);
            None
        }
        Lookup::Hit(item) => {
            if !tell(&item) {
                return Fetched::NoMemory;
            }
            Some(item.class())
        }
        Lookup::Miss | Lookup::Expired | Lookup::Flushed => None,
    };
    cx.shared.prefixes.count(cx.room.prefixes(), cx.guard.store(), key.bytes(), |count| {
        count.gets += 1;
        count.hits += u64::from(hit.is_some());
    });
    let Some(class) = hit else {
        cx.counters.add(Counter::TouchMisses, 1);
        return Fetched::Absent;
    };
    // An item that another worker removed since was still read before: the reply stays right.
    if let Err(Refusal::NoMemory) = cx.guard.touch(key, at(now)) {
        cx.counters.add(Counter::StoreNoMemory, 1);
        return Fetched::NoMemory;
    }
    cx.counters.add(Counter::TouchHits, 1);
    cx.counters.count_in(class, ClassCounter::TouchHits);
    Fetched::Done
}
