//! Values that are read, changed and written as one step: whole, or, of a large value, only the part
//! that changes.

use std::ops::Range;

use larder_store::{Attributes, Expect, Key, Value};

use super::call::{Call, kept};
use super::fail::Fail;
use super::reply::{copy_value, each_part};

/// Parts of large values above this are not changed in place: the store would copy them anyway.
const PART_BYTES_MAX: usize = 64 << 10;

/// What a rewrite comes to.
pub(crate) enum Rewrite<T> {
    /// The bytes are the new value.
    Store(T),
    /// The value stays.
    Keep(T),
}

/// Reads a value, lets `change` change it (none is no bytes), and stores it, as one step: if another
/// client was faster, all over again. Expiry and flags stay.
pub(crate) fn rewrite<T>(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    mut change: impl FnMut(&mut Vec<u8>, bool) -> Result<Rewrite<T>, Fail>,
) -> Result<T, Fail> {
    let mut bytes = std::mem::take(call.scratch);
    let done = loop {
        bytes.clear();
        let (attributes, expect) = match call.cx.guard.peek(key).hit() {
            Some(item) => {
                // First what was seen: the bytes may be newer than that, never older.
                let seen = item.seen();
                copy_value(item.value(), &mut bytes);
                (kept(&item), Expect::Unchanged(seen))
            }
            None => (Attributes::default(), Expect::Absent),
        };
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
    *call.scratch = bytes;
    done
}

/// Lets `change` change a part of a large value, and writes the part back where it lies, as one step.
/// None, and nothing done, if it is no large value, or the part is not in it, or is long, or somebody
/// reads the value just now: for [`rewrite`].
pub(crate) fn rewrite_part<T>(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    part: Range<usize>,
    mut change: impl FnMut(&mut [u8]) -> T,
) -> Option<T> {
    if part.len() > PART_BYTES_MAX {
        return None;
    }
    let mut bytes = std::mem::take(call.scratch);
    let done = loop {
        let Some(item) = call.cx.guard.peek(key).hit() else { break None };
        let Value::Pieces(value) = item.value() else { break None };
        if part.end as u64 > value.value_bytes() {
            break None;
        }
        // First what was seen: the bytes may be newer than that, never older.
        let unchanged = Expect::Unchanged(item.seen());
        bytes.clear();
        each_part(item.value(), part.clone(), &mut |piece| bytes.extend_from_slice(piece));
        let before = bytes.len();
        bytes.extend_from_within(..);
        let (was, is) = bytes.split_at_mut(before);
        let result = change(is);
        if was == is {
            break Some(result);
        }
        match call.cx.guard.patch(key, part.start as u64, is, unchanged) {
            Ok(Some(_)) => {
                break Some(result);
            }
            Ok(None) => break None,
            Err(_) => {}
        }
    };
    *call.scratch = bytes;
    done
}
