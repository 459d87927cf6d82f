//! delete, md, touch.

use larder_store::{Attributes, Expect, Key, Lookup, Millis, Refusal};

use crate::core::context::Context;
use crate::core::counters::{ClassCounter, Counter};
use crate::memcached::time::expires_at;

/// The order to remove an item.
#[derive(Clone, Copy, Debug, Default)]
pub struct Removal {
    /// The token that it must have.
    pub expect_cas: Option<u64>,
    /// The token to give to what stays of it, in place of the next one.
    pub cas: Option<u64>,
    /// The expiry of what stays of it. `None`: a stale item keeps its own, an emptied one never expires.
    pub expires_at: Option<Millis>,
    /// Whether it stays, without value, flags and expiry.
    pub empties: bool,
    /// Whether it stays, and is stale.
    pub stales: bool,
}

/// The outcome of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It is removed.
    Done,
    /// There was none.
    Absent,
    /// It has another token.
    OtherCas,
    /// There is no memory for what is to stay of it.
    NoMemory,
}

/// delete: removes an item.
pub fn delete(cx: &mut Context<'_, '_>, key: &Key<'_>) -> Removed {
    let removed = remove(cx, key, &Removal::default());
    cx.shared.prefixes.count(cx.room.prefixes(), cx.guard.store(), key.bytes(), |count| count.deletes += 1);
    removed
}

/// Removes an item, or marks it stale, or empties it. Counts the hit or miss, but nothing for another token, nor for an item
/// that is marked stale.
pub fn remove(cx: &mut Context<'_, '_>, key: &Key<'_>, how: &Removal) -> Removed {
    let expect = how.expect_cas.map_or(Expect::Present, Expect::Cas);
    let result = if how.empties {
        empty(cx, key, how)
    } else if how.stales {
        cx.guard.invalidate(key, how.cas, how.expires_at, expect).map(|_| 0)
    } else {
        cx.guard.remove(key, expect)
    };
    match result {
        // An item that is marked stale is still there.
        Ok(_) if how.stales => Removed::Done,
        Ok(class) => {
            cx.counters.add(Counter::DeleteHits, 1);
            cx.counters.count_in(class, ClassCounter::DeleteHits);
            Removed::Done
        }
        Err(Refusal::NoMemory) => Removed::NoMemory,
        // The item is there, and stays: neither a hit nor a miss, as memcached counts.
        Err(Refusal::Changed) => Removed::OtherCas,
        Err(refusal) => {
            cx.counters.add(Counter::DeleteMisses, 1);
            if refusal == Refusal::Absent { Removed::Absent } else { Removed::OtherCas }
        }
    }
}

/// Replaces the item by one without value and flags. Returns the slab class of the old one.
fn empty(cx: &mut Context<'_, '_>, key: &Key<'_>, how: &Removal) -> Result<u8, Refusal> {
    loop {
        let Lookup::Hit(item) = cx.guard.peek(key) else { return Err(Refusal::Absent) };
        if how.expect_cas.is_some_and(|cas| cas != item.cas()) {
            return Err(Refusal::Changed);
        }
        let attributes = Attributes {
            flags: 0,
            expires_at: how.expires_at.unwrap_or(0),
            cas: how.cas,
            key_binary: item.key_binary(),
            stale: how.stales,
            token_sent: false,
        };
        let unchanged = Expect::Unchanged(item.seen());
        let class = item.class();
        match cx.guard.asking_once(|guard| guard.store_value(key, b"", &attributes, unchanged)) {
            Ok(_) => return Ok(class),
            Err(Refusal::NoMemory) => return Err(Refusal::NoMemory),
            Err(Refusal::Changed | Refusal::Absent | Refusal::Present | Refusal::Type) => {}
        }
    }
}

/// Slab class of a key's item, for counts by class; 0, which is no class, if there is none.
pub fn class_there(cx: &mut Context<'_, '_>, key: &Key<'_>) -> u8 {
    cx.guard.peek(key).hit().map_or(0, |item| item.class())
}

/// The outcome of a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// The item has the expiry.
    Done,
    /// There is none.
    Absent,
    /// The item stays as it was: it has no room for an expiry, and there is no memory for one that has.
    NoMemory,
}

/// touch: sets an item's expiry.
pub fn touch(cx: &mut Context<'_, '_>, key: &Key<'_>, exptime: i32) -> Touched {
    cx.counters.add(Counter::CmdTouch, 1);
    let at = expires_at(exptime, cx.now());
    // As memcached has it, a touch is a use of the item.
    let class = cx.guard.get(key).hit().map_or(0, |item| item.class());
    let (counter, touched) = match cx.guard.touch(key, at) {
        Ok(()) => {
            cx.counters.count_in(class, ClassCounter::TouchHits);
            (Counter::TouchHits, Touched::Done)
        }
        Err(Refusal::NoMemory) => (Counter::StoreNoMemory, Touched::NoMemory),
        Err(Refusal::Absent | Refusal::Present | Refusal::Changed | Refusal::Type) => {
            (Counter::TouchMisses, Touched::Absent)
        }
    };
    cx.counters.add(counter, 1);
    touched
}
