//! Memory of the heap that commands take beside the arena.

use std::sync::Arc;

use larder_store::Store;

use super::call::Call;
use super::fail::Fail;
use crate::core::context::Room;
use crate::core::glob;

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
    /// Charges what is not refused, however much connections hold: it goes to many clients, and those that do not read are
    /// closed.
    pub fn charge(call: &mut Call<'_, '_, '_>, bytes: usize) -> Heap {
        let store = Arc::clone(call.cx.guard.store());
        let bytes = if bytes <= Room::BYTES_KEPT { 0 } else { bytes as i64 };
        if bytes > 0 {
            store.hold(bytes);
            call.give_way();
        }
        Heap { store, bytes }
    }

    /// Charges what a pattern takes while texts are asked of it, as [`Heap::charge`] does.
    pub fn of_pattern(call: &mut Call<'_, '_, '_>, pattern: &[u8], any_case: bool) -> Heap {
        if pattern.len() <= PATTERN_BYTES_FREE {
            return Heap::none(call);
        }
        Heap::charge(call, glob::heap_bytes(pattern, any_case))
    }

    /// Memory of nothing yet.
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

    /// As [`Heap::take`], of what may be kept from one step to the next: many clients may have it at once, so that it is counted
    /// however short it is. What is very short is not refused: an administrator that looks for the clients which hold all the
    /// memory, and has them closed, needs some.
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
