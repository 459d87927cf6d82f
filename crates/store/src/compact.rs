//! Compaction: memory that was not needed for a while goes back to the system.
//!
//! ```text
//! period ──▶ chunks of a class that were free throughout make whole spans ──▶ sparse spans are
//!                            drained, the highest address first; what is in them moves, none is evicted
//! period ──▶ spans that were free throughout ──▶ their memory is the system's, by 2 MiB where it can be
//! far fewer spans than before ──▶ what is in high ones moves to low free ones: spans that are used lie
//!                            together, and what describes the others goes back, too
//! ```
//!
//! What was free throughout a period is more than the workload's ups and downs take: a class that is
//! written and deleted at a steady rate moves nothing. A few per cent stay, so that the cost of a move
//! is spread over what it frees.

use crate::arena::{OWNER_FREE, OWNER_INDEX};
use crate::class::{CLASSES_END, ClassId};
use crate::drain::{LINGERING_MAX, Purpose};
use crate::sync::atomic::Ordering;
use crate::worker::Local;
use crate::{Automove, Millis, Store};

/// How long something has to be free.
const PERIOD_MS: Millis = 2_000;
/// One in this many of a class's chunks may be free, or so many spans' worth.
const FREE_SHARE: u64 = 64;
const FREE_SPANS: u64 = 2;
/// Items moved in a step, about: some 50 µs; and chunks looked at for them at most.
const STEP_ITEMS: u64 = 128;
const STEP_CHUNKS_MAX: u64 = 1024;
/// Spans looked at in a step.
const STEP_SPANS: u32 = 512;

/// Spans are gathered when they were fewer than this share of those that there were before.
const GATHER_EIGHTHS: (u32, u32) = (7, 8);
/// One span for this many of them must be free as well.
const GATHER_ROOM_SHARE: u64 = 16;

/// The state of compaction; one worker at a time has it.
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
    /// Without surplus: what is in spans from this one on moves down; 0: nothing does.
    gather: u32,
    /// Everything was below this number when that was last done; it grows with what is used since.
    gathered: u32,
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
        if compaction.spans == 0 && compaction.gather == 0 || self.drain.is_some() {
            return false;
        }
        if self.lingering.len() >= LINGERING_MAX {
            // They are looked at when other workers' batches are over. Until then there is nothing to do.
            return false;
        }
        for _ in 0..STEP_SPANS {
            let last = compaction.gather.max(1);
            let Some(number) = compaction.cursor.checked_sub(1).filter(|&number| number >= last) else {
                compaction.end(store);
                return false;
            };
            compaction.cursor = number;
            let owner = store.arena.span(number).owner.load(Ordering::Acquire);
            if owner == OWNER_FREE || owner == OWNER_INDEX {
                continue;
            }
            let surplus = &mut compaction.surplus[usize::from(owner)];
            let class = ClassId(owner);
            if compaction.gather > 0 {
                self.start_drain(store, class, Some(number), true, Purpose::Release);
                return true;
            }
            if surplus.spans == 0 || store.slabs.class(class).free_of(&store.arena, number) < surplus.free_min
            {
                continue;
            }
            surplus.spans -= 1;
            compaction.spans -= 1;
            self.start_drain(store, class, Some(number), true, Purpose::Release);
            return true;
        }
        true
    }
}

impl Compaction {
    /// Ends a period: finds out what was free throughout.
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
        let below = store.arena.gathered_below();
        self.gathered = self.gathered.max(below);
        let fewer = below < self.gathered / GATHER_EIGHTHS.1 * GATHER_EIGHTHS.0;
        // Without room, what moves would have others evicted.
        let room = store.arena.spans_free() >= u64::from(below) / GATHER_ROOM_SHARE;
        self.gather = if self.spans == 0 && fewer && room && !off { below } else { 0 };
        store.arena.gather_below(self.gather);
    }

    /// Ends a pass, when everything was looked at.
    fn end(&mut self, store: &Store) {
        if self.gather > 0 {
            (self.gathered, self.gather) = (self.gather, 0);
            store.arena.gather_below(0);
        }
        self.spans = 0;
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::LINGERING_MAX;
    use crate::arena::{OWNER_FREE, OWNER_INDEX};
    use crate::{Attributes, Config, Expect, Store};

    const NOW: u64 = 1_700_000_000_000;
    const ITEMS: u64 = 400_000;
    const LEFT: u64 = 16;

    /// Spans that are drained wait for another worker's batch: upkeep that is asked for until there is no more is done.
    #[test]
    fn while_another_batch_keeps_spans_from_emptying_there_is_nothing_to_do() {
        const STEPS_MAX: usize = 100_000;
        let config = Config { memory_bytes: 64 << 20, workers_max: 2, ..Config::default() };
        let store = Store::new(config).unwrap();
        let (mut worker, mut other) = (store.worker().unwrap(), store.worker().unwrap());
        for n in 0..ITEMS / 4 {
            let mut guard = worker.enter(NOW);
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, &[n as u8; 100], &Attributes::default(), Expect::Any).unwrap();
        }
        for n in (0..ITEMS / 4).filter(|n| n % LEFT != 0) {
            let mut guard = worker.enter(NOW);
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.delete(&key, Expect::Present).unwrap();
        }
        let mut lingered = 0;
        for now in (NOW..NOW + 10_000).step_by(20) {
            let batch = other.enter(now);
            let steps = (0..STEPS_MAX).take_while(|_| worker.enter(now).maintain()).count();
            assert!(steps < STEPS_MAX, "at {} ms", now - NOW);
            lingered = lingered.max(worker.enter(now).local.lingering.len());
            drop(batch);
        }
        assert_eq!(lingered, LINGERING_MAX, "as many as may wait did");
    }

    /// One in sixteen of items that are spread over all memory stays: what holds them comes to lie together.
    #[test]
    fn what_is_left_of_a_cache_moves_together() {
        let config = Config { memory_bytes: 128 << 20, workers_max: 1, ..Config::default() };
        let store = Store::new(config).unwrap();
        let mut worker = store.worker().unwrap();
        for n in 0..ITEMS {
            let mut guard = worker.enter(NOW);
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, &[n as u8; 100], &Attributes::default(), Expect::Any).unwrap();
        }
        for n in (0..ITEMS).filter(|n| n % LEFT != 0) {
            let mut guard = worker.enter(NOW);
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.delete(&key, Expect::Present).unwrap();
        }
        let spans = |store: &Store| {
            let mut owned = Vec::new();
            store.arena.check(|number, owner| {
                if owner != OWNER_FREE && owner != OWNER_INDEX {
                    owned.push(number);
                }
            });
            (owned.len(), owned.last().copied().unwrap_or(0))
        };
        let before = spans(&store);
        for now in (NOW..NOW + 60_000).step_by(20) {
            let _ = (0..6).all(|_| worker.enter(now).maintain());
        }
        let (count, last) = spans(&store);
        assert!(count < before.0 / 8, "{count} of {} spans", before.0);
        assert!(last < before.1 / 4, "the last of {count} is {last}, it was {}", before.1);
        for n in (0..ITEMS).step_by(LEFT as usize) {
            let mut guard = worker.enter(NOW + 60_000);
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            assert!(guard.peek(&key).hit().is_some_and(|item| item.value_bytes() == 100), "{n}");
        }
        store.check_behind(worker);
    }
}
