//! Memory of the heap that commands take beside the arena: what is counted of it. How a call charges it is in `call/heap.rs`.

use std::sync::Arc;

use larder_store::Store;

use crate::core::context::Room;

/// What a client keeps from one step to the next is not refused up to here.
pub(super) const KEPT_BYTES_FREE: usize = 2 << 10;

/// Memory of the heap that a command takes while it runs: counted as what connections hold, and refused
/// where they hold their share. What is short is not counted.
#[derive(Debug)]
pub(crate) struct Heap {
    store: Arc<Store>,
    bytes: i64,
}

impl Heap {
    /// Memory of nothing yet.
    pub(super) fn empty(store: &Arc<Store>) -> Heap {
        Heap { store: Arc::clone(store), bytes: 0 }
    }

    /// So many bytes, which are counted from now on.
    pub(super) fn counted(store: &Arc<Store>, bytes: usize) -> Heap {
        store.hold(bytes as i64);
        Heap { store: Arc::clone(store), bytes: bytes as i64 }
    }

    /// Counts with it what `more` counts.
    pub(super) fn join(&mut self, mut more: Heap) {
        self.bytes += std::mem::take(&mut more.bytes);
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
