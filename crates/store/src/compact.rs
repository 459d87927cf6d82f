//! Compaction: memory that nobody needed for a while goes back to the system.
//!
//! ```text
//! period ──▶ chunks of a class that were free throughout make whole spans ──▶ sparse spans are
//!                            drained, the highest address first; what is in them moves, none is evicted
//! period ──▶ spans that were free throughout ──▶ their memory is the system's, by 2 MiB where it can be
//! ```
//!
//! What was free throughout a period is more than the workload's ups and downs take: a class that is
//! written and deleted at a steady rate moves nothing. A few per cent stay, so that the cost of a move
//! is spread over what it frees.

use crate::arena::{OWNER_FREE, OWNER_INDEX};
use crate::class::{CLASSES_END, ClassId};
use crate::drain::LINGERING_MAX;
use crate::worker::Local;
use crate::{Automove, Millis, Store};
use std::sync::atomic::Ordering;

/// How long something has to be free.
const PERIOD_MS: Millis = 2_000;
/// Of a class's chunks one in this many may be free, or so many spans' worth.
const FREE_SHARE: u64 = 64;
const FREE_SPANS: u64 = 2;
/// Items moved in a step, about: some 50 µs; and chunks looked at for them at most.
const STEP_ITEMS: u64 = 128;
const STEP_CHUNKS_MAX: u64 = 1024;
/// Spans looked at in a step.
const STEP_SPANS: u32 = 512;

/// What compaction is at; one worker at a time has it.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    /// When this period ends.
    ends_at: Millis,
    /// By class: spans to drain, and how many chunks of one have to be free.
    surplus: Vec<Surplus>,
    /// The sum of the spans.
    spans: u32,
    /// Spans below this number were not looked at yet.
    cursor: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Surplus {
    spans: u32,
    free_min: u32,
    /// Chunks of a step.
    step_chunks: u16,
}

impl Local {
    /// Takes a bounded step; true if there is more to do now.
    pub(crate) fn compact(&mut self, store: &Store, compaction: &mut Compaction) -> bool {
        let now = self.now;
        if now >= compaction.ends_at || now + PERIOD_MS < compaction.ends_at {
            compaction.ends_at = now + PERIOD_MS;
            compaction.look(store);
        }
        if self.drain.as_ref().is_some_and(|drain| drain.keeps()) {
            let class = self.draining_class().map_or(0, |class| usize::from(class.0));
            let chunks = compaction.surplus.get(class).map_or(0, |surplus| surplus.step_chunks);
            self.drain_step(store, usize::from(chunks).max(STEP_ITEMS as usize));
            return true;
        }
        if compaction.spans == 0 || self.drain.is_some() {
            return false;
        }
        if self.lingering.len() >= LINGERING_MAX {
            return true;
        }
        for _ in 0..STEP_SPANS {
            let Some(number) = compaction.cursor.checked_sub(1).filter(|&number| number > 0) else {
                compaction.spans = 0;
                return false;
            };
            compaction.cursor = number;
            let owner = store.arena.span(number).owner.load(Ordering::Acquire);
            if owner == OWNER_FREE || owner == OWNER_INDEX {
                continue;
            }
            let surplus = &mut compaction.surplus[usize::from(owner)];
            let class = ClassId(owner);
            if surplus.spans == 0 || store.slabs.class(class).free_of(&store.arena, number) < surplus.free_min
            {
                continue;
            }
            surplus.spans -= 1;
            compaction.spans -= 1;
            self.start_drain(store, class, Some(number), true);
            return true;
        }
        true
    }
}

impl Compaction {
    /// A period is over: sees what was free throughout.
    fn look(&mut self, store: &Store) {
        self.spans = 0;
        self.cursor = store.arena.note_spare();
        self.surplus.clear();
        self.surplus.resize(CLASSES_END, Surplus::default());
        let off = store.automove() == Automove::Off;
        for id in ClassId::all().filter(|&id| store.slabs.view(id).spans() > 0) {
            let (free, spans) = store.slabs.class(id).take_low();
            let each = id.chunks_per_span() as u64;
            let kept = (spans * each / FREE_SHARE).max(FREE_SPANS * each);
            let surplus = (free.saturating_sub(kept) / each) as u32;
            // Half of what they have free on the mean: those that have less are not worth a move.
            let free_min = (free / spans.max(1) / 2).max(1) as u32;
            let used = (spans * each).saturating_sub(free).max(1);
            let step_chunks = (STEP_ITEMS * spans * each / used).clamp(STEP_ITEMS, STEP_CHUNKS_MAX) as u16;
            let spans = if off { 0 } else { surplus };
            self.surplus[usize::from(id.0)] = Surplus { spans, free_min, step_chunks };
            self.spans += self.surplus[usize::from(id.0)].spans;
        }
    }
}
