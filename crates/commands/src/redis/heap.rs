//! Memory on the heap that commands take beside the arena, and how it is counted. `call/heap.rs` charges it for a call.

use std::sync::Arc;

use larder_store::Store;

use crate::core::context::Room;

/// Bytes that a client may keep from one step to the next without being refused.
pub(super) const KEPT_BYTES_FREE: usize = 2 << 10;

/// Memory on the heap that a command takes while it runs. It is counted as what connections hold, and refused when they hold
/// their share. Short memory is not counted.
#[derive(Debug)]
pub(crate) struct Heap {
    store: Arc<Store>,
    bytes: i64,
}

impl Heap {
    /// Counts nothing.
    pub(super) fn empty(store: &Arc<Store>) -> Heap {
        Heap { store: Arc::clone(store), bytes: 0 }
    }

    /// Counts so many bytes.
    pub(super) fn counted(store: &Arc<Store>, bytes: usize) -> Heap {
        store.hold(bytes as i64);
        Heap { store: Arc::clone(store), bytes: bytes as i64 }
    }

    /// Counts the bytes of `more`, too.
    pub(super) fn join(&mut self, mut more: Heap) {
        self.bytes += std::mem::take(&mut more.bytes);
    }
}

/// Memory that grows amid a walk over keys, where no item can be evicted for it.
impl Heap {
    /// The bytes that are counted.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Counts so many bytes more before they are allocated; false if connections hold as much as they may. If it is short in all,
    /// it is the worker's scratch and not refused: ask [`Heap::may_be_kept`] before keeping it for the next step.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let is_short = self.bytes as usize + bytes <= Room::BYTES_KEPT;
        if !is_short && !self.store.may_hold(bytes as u64) {
            return false;
        }
        self.store.hold(bytes as i64);
        self.bytes += bytes as i64;
        true
    }

    /// Counts so many bytes less.
    pub fn shrink(&mut self, bytes: usize) {
        self.store.hold(-(bytes as i64));
        self.bytes -= bytes as i64;
    }

    /// Whether it may be kept from one step to the next: connections hold no more than they may, or it is so short that it is
    /// never refused.
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
