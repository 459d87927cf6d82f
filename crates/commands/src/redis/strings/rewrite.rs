//! Values that are read, changed and written as one step: whole, or, of a large value, only the part
//! that changes.

use std::ops::Range;
use std::sync::Arc;

use larder_protocol::resp::Args;
use larder_store::{Attributes, Expect, Key, Refusal, Store};

use super::making::{Edit, edited, make};
use crate::core::context::Room;
use crate::core::glob;
use crate::core::output::Output;
use crate::core::work::copying_ns;
use crate::redis::call::{Call, kept};
use crate::redis::fail::Fail;
use crate::redis::reply::{copy_value, each_part};

/// Values up to this are read and written whole.
const SMALL_BYTES_MAX: usize = 16 << 10;

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
    let mut bytes = call.cx.room.lend();
    let done = loop {
        bytes.clear();
        let (attributes, expect) = match call.peek(key) {
            Ok(Some(item)) => {
                // First what was seen: the bytes may be newer than that, never older.
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

/// The bytes of a value that is large or becomes so with `room` bytes, and what it is known by; none
/// of a small one.
///
/// # Errors
/// It is no string.
pub(crate) fn large_with(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    room: usize,
) -> Result<Option<(usize, Expect)>, Fail> {
    // First what was seen: the bytes may be newer than that, never older.
    let (there, expect) = match call.peek(key)? {
        Some(item) => (item.value_bytes() as usize, Expect::Unchanged(item.seen())),
        None => (0, Expect::Absent),
    };
    Ok((there.max(room) > SMALL_BYTES_MAX).then_some((there, expect)))
}

/// As [`rewrite`] for values that are large, or become so: only the part that changes is looked at, and written
/// back where it lies, or, where that cannot be, into a copy beside it in the store. The part may reach
/// beyond the end, zeros there; the value is given at least `room` bytes. What the change came to is
/// replied as `reply` says. False, and nothing done, of small values: for [`rewrite`]. `name` and `args`: the
/// command's, for a copy that is made in steps.
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
        // What was and what is to be.
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
            // Others have changed it since, or it gave way to the room that was taken.
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

/// What a client keeps from one step to the next is not refused up to here.
const KEPT_BYTES_FREE: usize = 2 << 10;

/// A pattern takes up to 65 times its length: one of so many bytes takes less than is counted.
const PATTERN_BYTES_FREE: usize = 512;

/// Memory of the heap that a command takes while it runs: counted as what connections hold, and refused
/// where they hold their share. What is short is not counted.
#[derive(Debug)]
pub(crate) struct Heap {
    store: Arc<Store>,
    bytes: i64,
}

impl Heap {
    /// Of what is not refused, whoever holds how much: it is told to many, and those who do not read are closed.
    pub fn charge(call: &mut Call<'_, '_, '_>, bytes: usize) -> Heap {
        let store = Arc::clone(call.cx.guard.store());
        let bytes = if bytes <= Room::BYTES_KEPT { 0 } else { bytes as i64 };
        if bytes > 0 {
            store.hold(bytes);
            call.give_way();
        }
        Heap { store, bytes }
    }

    /// Of what a pattern takes while texts are asked of it, as [`Heap::charge`] says.
    pub fn of_pattern(call: &mut Call<'_, '_, '_>, pattern: &[u8], any_case: bool) -> Heap {
        if pattern.len() <= PATTERN_BYTES_FREE {
            return Heap::none(call);
        }
        Heap::charge(call, glob::heap_bytes(pattern, any_case))
    }

    /// Of nothing yet.
    pub fn none(call: &Call<'_, '_, '_>) -> Heap {
        Heap { store: Arc::clone(call.cx.guard.store()), bytes: 0 }
    }

    /// # Errors
    /// Connections hold as much as they may.
    pub fn take(call: &mut Call<'_, '_, '_>, bytes: usize) -> Result<Heap, Fail> {
        if bytes <= Room::BYTES_KEPT {
            return Ok(Heap { store: Arc::clone(call.cx.guard.store()), bytes: 0 });
        }
        Heap::take_however_short(call, bytes)
    }

    /// As [`Heap::take`], of what may be kept from one step to the next: many clients may have it at once, so that it is
    /// counted however short it is. What is very short is not refused: who looks for those that hold all the memory, and
    /// has them closed, needs some.
    ///
    /// # Errors
    /// Connections hold as much as they may.
    pub fn keep(call: &mut Call<'_, '_, '_>, bytes: usize) -> Result<Heap, Fail> {
        if bytes > KEPT_BYTES_FREE {
            return Heap::take_however_short(call, bytes);
        }
        let mut held = Heap::none(call);
        held.store.hold(bytes as i64);
        held.bytes = bytes as i64;
        Ok(held)
    }

    /// As [`Heap::take`], of what is counted however short it is.
    ///
    /// # Errors
    /// Connections hold as much as they may.
    pub fn take_however_short(call: &mut Call<'_, '_, '_>, bytes: usize) -> Result<Heap, Fail> {
        let store = Arc::clone(call.cx.guard.store());
        if !store.may_hold(bytes as u64) {
            return Err(Fail::HELD);
        }
        store.hold(bytes as i64);
        let held = Heap { store, bytes: bytes as i64 };
        if call.give_way() { Ok(held) } else { Err(Fail::HELD) }
    }
}

impl Heap {
    /// Takes so many bytes more.
    ///
    /// # Errors
    /// Connections hold as much as they may.
    pub fn raise(&mut self, call: &mut Call<'_, '_, '_>, bytes: usize) -> Result<(), Fail> {
        let mut more = Heap::take_however_short(call, bytes)?;
        self.bytes += std::mem::take(&mut more.bytes);
        Ok(())
    }
}

impl Heap {
    /// Takes so many bytes in all.
    ///
    /// # Errors
    /// Connections hold as much as they may.
    pub fn set(&mut self, call: &mut Call<'_, '_, '_>, bytes: usize) -> Result<(), Fail> {
        match bytes.checked_sub(self.bytes as usize) {
            Some(0) => Ok(()),
            Some(more) => self.raise(call, more),
            None => {
                self.store.hold(bytes as i64 - self.bytes);
                self.bytes = bytes as i64;
                Ok(())
            }
        }
    }
}

/// What grows in the midst of a walk over keys, where no item gives way to it.
impl Heap {
    /// Bytes that are counted.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Takes so many bytes more before they are allocated; false if connections hold as much as they may. What is short
    /// in all is scratch of its worker's and not refused: before it is kept for the next step, [`Heap::may_be_kept`] is
    /// asked.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let is_short = self.bytes as usize + bytes <= Room::BYTES_KEPT;
        if !is_short && !self.store.may_hold(bytes as u64) {
            return false;
        }
        self.store.hold(bytes as i64);
        self.bytes += bytes as i64;
        true
    }

    /// Gives some of it back.
    pub fn shrink(&mut self, bytes: usize) {
        self.store.hold(-(bytes as i64));
        self.bytes -= bytes as i64;
    }

    /// It may stay from one step to the next: connections hold no more than they may, or it is as short as what is never
    /// refused.
    pub fn may_be_kept(&self) -> bool {
        self.bytes as usize <= KEPT_BYTES_FREE || self.store.may_hold(0)
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.store.hold(-self.bytes);
        }
    }
}
