//! How much memory items have, and would have with another limit; and how new keys are judged now, of which the forecast's models
//! need to know.
//!
//! ```text
//! limit │ items: chunks and slots │ ends of spans, ghosts │ fixed: threads, buffers, free chunks, queues of classes │
//!         └───── a share of what is not fixed ─────┘
//! ```
//!
//! Chunks are free where a span of a class is not full, in workers' hands, and until no thread sees them any more: about as
//! many whatever the limit is, as long as it is used up, and so are blocks of queues. (2.5 MiB of 16 and 2.4 of 32 with
//! eighty classes in use, and of 8 as much as 3.3.)

use std::sync::atomic::Ordering::Relaxed;

use super::{FACTORS, SIZES};
use crate::Store;
use crate::class::ClassId;

/// Bytes of the index for an item: a slot, and what is free beside it.
pub(crate) const SLOT_BYTES: u64 = 10;
/// More is not counted as lost.
const LOST_MAX: f64 = 0.5;
/// Until a good part of the memory is used, items are taken to have this share of it.
const SHARE_AT_FIRST: f64 = 0.9;

/// Memory for items.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// Bytes with each of the limits of [`FACTORS`].
    pub bytes: [u64; SIZES],
    /// Items now.
    pub items: u64,
    /// What they take.
    pub taken_bytes: u64,
    /// Memory is used up, as good as.
    pub is_full: bool,
    /// Items that were ever evicted.
    pub evictions: u64,
    /// How new keys are judged.
    pub judging: Judging,
    /// The part of each limit that is lost to spans which are not full, and to queues.
    pub lost: [f64; SIZES],
}

/// How new keys are judged now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judging {
    /// The part of memory that new keys write before one is judged.
    pub window: f64,
    /// The hand takes all frequency at once.
    pub has_turned: bool,
    /// A key that was evicted from main is on probation once more.
    pub main_loops: bool,
}

impl Default for Judging {
    fn default() -> Judging {
        Judging { window: 0.1, has_turned: false, main_loops: false }
    }
}

impl Store {
    fn chunk_bytes_used(&self) -> u64 {
        let of_class = |id: ClassId| self.sum(|c| c.class(id).used_chunks.value()) * id.chunk_bytes() as u64;
        ClassId::all().map(of_class).sum()
    }

    /// Memory for items, of the limit as it is and of others.
    pub fn memory_for_items(&self) -> Memory {
        let (limit, ledger) = (self.arena.limit_bytes(), self.ledger());
        let is_full = self.arena.nearly_full();
        let free = if is_full { ledger.chunks_free + ledger.index_free + ledger.probation } else { 0 };
        let fixed = (ledger.buffers + ledger.aside + ledger.watches + free).min(limit);
        let items = self.items();
        let taken = self.chunk_bytes_used() + items * SLOT_BYTES + self.key_bytes.load(Relaxed);
        let beside_fixed = self.arena.used_bytes().saturating_sub(fixed);
        let is_large_part = beside_fixed * 2 > limit - fixed;
        let share = match taken as f64 / beside_fixed.max(1) as f64 {
            share if is_large_part => share.clamp(0.25, 1.0),
            _ => SHARE_AT_FIRST,
        };
        let of = |factor: f64| ((limit as f64 * factor - fixed as f64).max(0.0) * share) as u64;
        let evictions = ClassId::all().map(|id| self.sum(|c| c.class(id).evictions.value())).sum();
        let judging = Judging {
            window: self.window.bytes(limit) as f64 / limit as f64,
            has_turned: self.window.has_turned(limit),
            main_loops: self.window.main_loops(limit),
        };
        let lost = FACTORS.map(|factor| (free as f64 / (limit as f64 * factor)).min(LOST_MAX));
        Memory { bytes: FACTORS.map(of), items, taken_bytes: taken, is_full, evictions, judging, lost }
    }
}
