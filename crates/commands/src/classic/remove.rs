//! delete and touch.

use larder_store::{Expect, Key};

use crate::context::Context;
use crate::counters::Counter;
use crate::output::Output;
use crate::time::expires_at;

/// delete
pub fn delete(cx: &mut Context<'_, '_>, out: &mut Output, key: &Key<'_>, noreply: bool) {
    let (counter, reply): (_, &[u8]) = match cx.guard.delete(key, Expect::Present) {
        Ok(()) => (Counter::DeleteHits, b"DELETED\r\n"),
        Err(_) => (Counter::DeleteMisses, b"NOT_FOUND\r\n"),
    };
    cx.counters.add(counter, 1);
    cx.shared.prefixes.count(key.bytes(), |count| count.deletes += 1);
    if !noreply {
        out.put(reply);
    }
}

/// touch
pub fn touch(cx: &mut Context<'_, '_>, out: &mut Output, key: &Key<'_>, exptime: i32, noreply: bool) {
    cx.counters.add(Counter::CmdTouch, 1);
    let at = expires_at(exptime, cx.now());
    let (counter, reply): (_, &[u8]) = match cx.guard.touch(key, at) {
        Ok(()) => (Counter::TouchHits, b"TOUCHED\r\n"),
        Err(_) => (Counter::TouchMisses, b"NOT_FOUND\r\n"),
    };
    cx.counters.add(counter, 1);
    if !noreply {
        out.put(reply);
    }
}
