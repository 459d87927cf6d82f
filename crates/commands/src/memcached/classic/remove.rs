//! delete and touch.

use larder_store::{Expect, Key, Refusal};

use crate::core::context::Context;
use crate::core::counters::{ClassCounter, Counter};
use crate::core::output::Output;
use crate::memcached::text::NO_MEMORY;
use crate::memcached::time::expires_at;

/// delete
pub fn delete(cx: &mut Context<'_, '_>, out: &mut Output, key: &Key<'_>, noreply: bool) {
    let (counter, reply): (_, &[u8]) = match cx.guard.remove(key, Expect::Present) {
        Ok(class) => {
            cx.counters.count_in(class, ClassCounter::DeleteHits);
            (Counter::DeleteHits, b"DELETED\r\n")
        }
        Err(_) => (Counter::DeleteMisses, b"NOT_FOUND\r\n"),
    };
    cx.counters.add(counter, 1);
    cx.shared.prefixes.count(cx.guard.store(), key.bytes(), |count| count.deletes += 1);
    if !noreply {
        out.put(reply);
    }
}

/// Slab class of a key's item, for what is counted by class; 0, which is no class, if there is none.
pub fn class_there(cx: &mut Context<'_, '_>, key: &Key<'_>) -> u8 {
    cx.guard.peek(key).hit().map_or(0, |item| item.class())
}

/// touch
pub fn touch(cx: &mut Context<'_, '_>, out: &mut Output, key: &Key<'_>, exptime: i32, noreply: bool) {
    cx.counters.add(Counter::CmdTouch, 1);
    let at = expires_at(exptime, cx.now());
    // As memcached has it, a touch is a use of the item.
    let class = cx.guard.get(key).hit().map_or(0, |item| item.class());
    let (counter, reply): (_, &[u8]) = match cx.guard.touch(key, at) {
        Ok(()) => {
            cx.counters.count_in(class, ClassCounter::TouchHits);
            (Counter::TouchHits, b"TOUCHED\r\n")
        }
        // It is there: an expiry that it had no room for makes an item longer.
        Err(Refusal::NoMemory) => (Counter::StoreNoMemory, NO_MEMORY),
        Err(Refusal::Absent | Refusal::Present | Refusal::Changed | Refusal::Type) => {
            (Counter::TouchMisses, b"NOT_FOUND\r\n")
        }
    };
    cx.counters.add(counter, 1);
    if !noreply {
        out.put(reply);
    }
}
