//! Values that are read, changed and written as one step: as a whole, or for a large value only the part that changes.

use std::ops::Range;

use larder_protocol::resp::Args;
use larder_store::{Attributes, Expect, Key, Refusal};

use super::making::{Edit, edited, make};
use crate::core::output::Output;
use crate::core::work::copying_ns;
use crate::redis::call::{Call, kept};
use crate::redis::fail::Fail;
use crate::redis::heap::Heap;
use crate::redis::reply::{copy_value, each_part};

/// Values of up to so many bytes are read and written whole.
const SMALL_BYTES_MAX: usize = 16 << 10;

/// What a change made of a value.
pub(crate) enum Rewrite<T> {
    /// The bytes are the new value.
    Store(T),
    /// The value stays.
    Keep(T),
}

/// Reads a value, lets `change` change it (an absent one is empty), and stores it, as one step: if another client was faster, it
/// begins again. Expiry and flags stay.
pub(crate) fn rewrite<T>(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    mut change: impl FnMut(&mut Vec<u8>, bool) -> Result<Rewrite<T>, Fail>,
) -> Result<T, Fail> {
    let mut bytes = call.cx.room.lend();
    let done = loop {
        bytes.clear();
        let (attributes, expect) = match call.peek(key) {
            Ok(Some(item)) => {
                // What was seen is read first: the bytes may be newer than that, never older.
                let seen = item.seen();
                copy_value(item.value(), &mut bytes);
                (kept(&item), Expect::Unchanged(seen))
            }
            Ok(None) => (Attributes::default(), Expect::Absent),
            Err(fail) => break Err(fail),
        };
        call.spend(copying_ns(bytes.len() as u64));
        let result = match change(&mut bytes, expect != Expect::Absent) {
            Ok(Rewrite::Store(result)) => result,
            Ok(Rewrite::Keep(result)) => break Ok(result),
            Err(fail) => break Err(fail),
        };
        match call.store(key, &bytes, &attributes, expect) {
            Ok(Ok(_)) => break Ok(result),
            Ok(Err(_)) => {}
            Err(fail) => break Err(fail),
        }
    };
    call.cx.room.take_back(bytes);
    done
}

/// Bytes of a value that is large, or becomes so with `room` bytes, and what a write of it expects; `None` for a small one.
///
/// # Errors
/// It is no string.
pub(crate) fn large_with(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    room: usize,
) -> Result<Option<(usize, Expect)>, Fail> {
    // What was seen is read first: the bytes may be newer than that, never older.
    let (there, expect) = match call.peek(key)? {
        Some(item) => (item.value_bytes() as usize, Expect::Unchanged(item.seen())),
        None => (0, Expect::Absent),
    };
    Ok((there.max(room) > SMALL_BYTES_MAX).then_some((there, expect)))
}

/// As [`rewrite`], for values that are large or become so: only the part that changes is read, and is written back in place, or
/// if that cannot be, into a copy in the store. The part may reach beyond the end, where it is zeros; the value gets at least
/// `room` bytes. `reply` replies the result. False for a small value, with nothing done: that is for [`rewrite`]. `name` and
/// `args`: the command's, for a copy in steps.
pub(crate) fn rewrite_part<T>(
    call: &mut Call<'_, '_, '_>,
    (name, args): (&'static str, Args<'_>),
    key: &Key<'_>,
    (part, room): (Range<usize>, usize),
    mut change: impl FnMut(&mut [u8]) -> T,
    reply: impl Fn(&mut Output, bool, T),
) -> Result<bool, Fail> {
    let mut bytes = call.cx.room.lend();
    let done = loop {
        let (there, expect) = match large_with(call, key, room) {
            Ok(Some(large)) => large,
            Ok(None) => break Ok(false),
            Err(fail) => break Err(fail),
        };
        let is_long = there.max(room);
        // The old bytes and the new ones.
        let _held = match Heap::take(call, 2 * part.len()) {
            Ok(held) => held,
            Err(fail) => break Err(fail),
        };
        bytes.clear();
        let found = match call.cx.guard.peek(key).hit() {
            Some(item) => {
                let found = Expect::Unchanged(item.seen());
                // Another value may end in front of the part.
                if found == expect {
                    let inside = part.start.min(there)..part.end.min(there);
                    each_part(item.value(), inside, &mut |piece| bytes.extend_from_slice(piece));
                }
                found
            }
            None => Expect::Absent,
        };
        if found != expect {
            // Others have changed it since, or it was evicted for the charge.
            continue;
        }
        bytes.resize(part.len(), 0);
        bytes.extend_from_within(..);
        let (was, is) = bytes.split_at_mut(part.len());
        let result = change(is);
        if was == is && there >= room && expect != Expect::Absent {
            reply(call.out, call.client.resp3, result);
            break Ok(true);
        }
        let is = &is[..part.end.min(is_long) - part.start];
        let in_place = expect != Expect::Absent && part.end <= there;
        if in_place && let Ok(Some(_)) = call.cx.guard.patch(key, part.start as u64, is, expect) {
            reply(call.out, call.client.resp3, result);
            break Ok(true);
        }
        let mut said = Output::new(u64::MAX);
        reply(&mut said, call.client.resp3, result);
        let (asked, from) = ((name, Some(key.bytes()), args), (call.client.db, key));
        let edit = |old| Edit::over(is, part.start as u64, old);
        match make(call, asked, from, Some(expect), edit, |_, _| edited(said.to_vec())) {
            Ok(false) => {}
            begun => break begun,
        }
        call.spend(copying_ns(is_long as u64));
        match call.cx.guard.overlay(key, part.start as u64, is, expect) {
            Ok(_) => {
                call.out.put(&said.to_vec());
                break Ok(true);
            }
            Err(Refusal::NoMemory) => break Err(Fail::OUT_OF_MEMORY),
            Err(Refusal::Changed | Refusal::Absent | Refusal::Present | Refusal::Type) => {}
        }
    };
    call.cx.room.take_back(bytes);
    done
}
