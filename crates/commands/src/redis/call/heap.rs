//! How a call charges memory of the heap.

use super::Call;
use crate::core::context::Room;
use crate::core::glob;
use crate::redis::fail::Fail;
use crate::redis::heap::{Heap, KEPT_BYTES_FREE};

/// A pattern takes up to 65 times its length. One of at most so many bytes is not charged.
const PATTERN_BYTES_FREE: usize = 512;

impl Heap {
    /// Charges memory without refusing it, however much connections hold: it is for replies to many clients, and those that do
    /// not read are closed.
    pub fn charge(call: &mut Call<'_, '_, '_>, bytes: usize) -> Heap {
        if bytes <= Room::BYTES_KEPT {
            return Heap::none(call);
        }
        let held = Heap::counted(call.cx.guard.store(), bytes);
        call.give_way();
        held
    }

    /// Charges the memory of a parsed pattern, as [`Heap::charge`] does.
    pub fn of_pattern(call: &mut Call<'_, '_, '_>, pattern: &[u8], any_case: bool) -> Heap {
        if pattern.len() <= PATTERN_BYTES_FREE {
            return Heap::none(call);
        }
        Heap::charge(call, glob::heap_bytes(pattern, any_case))
    }

    /// A charge of nothing.
    pub fn none(call: &Call<'_, '_, '_>) -> Heap {
        Heap::empty(call.cx.guard.store())
    }

    /// Charges memory of a command, unless it is short.
    ///
    /// # Errors
    /// Connections hold as much as they may.
    pub fn take(call: &mut Call<'_, '_, '_>, bytes: usize) -> Result<Heap, Fail> {
        if bytes <= Room::BYTES_KEPT { Ok(Heap::none(call)) } else { Heap::take_however_short(call, bytes) }
    }

    /// As [`Heap::take`], for memory that may be kept from one step to the next: many clients may have it at once, so that it is
    /// counted however short it is. A very short one is not refused: an administrator that looks for the clients which hold all
    /// the memory, and has them closed, needs some.
    ///
    /// # Errors
    /// Connections hold as much as they may.
    pub fn keep(call: &mut Call<'_, '_, '_>, bytes: usize) -> Result<Heap, Fail> {
        if bytes > KEPT_BYTES_FREE {
            return Heap::take_however_short(call, bytes);
        }
        Ok(Heap::counted(call.cx.guard.store(), bytes))
    }

    /// As [`Heap::take`], for memory that is counted however short it is.
    ///
    /// # Errors
    /// Connections hold as much as they may.
    pub fn take_however_short(call: &mut Call<'_, '_, '_>, bytes: usize) -> Result<Heap, Fail> {
        let store = call.cx.guard.store();
        if !store.may_hold(bytes as u64) {
            return Err(Fail::HELD);
        }
        let held = Heap::counted(store, bytes);
        if call.give_way() { Ok(held) } else { Err(Fail::HELD) }
    }

    /// Charges so many bytes more.
    ///
    /// # Errors
    /// Connections hold as much as they may.
    pub fn raise(&mut self, call: &mut Call<'_, '_, '_>, bytes: usize) -> Result<(), Fail> {
        self.join(Heap::take_however_short(call, bytes)?);
        Ok(())
    }

    /// Changes the charge to so many bytes in all.
    ///
    /// # Errors
    /// Connections hold as much as they may.
    pub fn set(&mut self, call: &mut Call<'_, '_, '_>, bytes: usize) -> Result<(), Fail> {
        let before = self.bytes() as usize;
        match bytes.checked_sub(before) {
            Some(0) => Ok(()),
            Some(more) => self.raise(call, more),
            None => {
                self.shrink(before - bytes);
                Ok(())
            }
        }
    }
}
