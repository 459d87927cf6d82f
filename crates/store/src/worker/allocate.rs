//! Allocating: a chunk from the magazine, or at the price of what is worth less.
//!
//! ```text
//! magazine → spans of the class → arena → what the epochs set free → what expired → evict → drain a span
//!                                                                              └─► where nothing is evicted: what was flushed
//! and for what is left of a collection: spans of leftovers
//! ```

use super::retire::PASS_CHUNKS;
use super::{Local, RECLAIM_CHUNKS};
use crate::arbitrate::Given;
use crate::arena::Share;
use crate::class::ClassId;
use crate::slab::{Magazine, unpoison_chunk};
use crate::sync::atomic::Ordering;
use crate::wait::Wait;
use crate::{Eviction, Millis, Store};

/// Rounds of evicting before an allocation fails: about a second. Far fewer do, unless everything is pinned or a
/// worker is kept from running inside its batch.
const ALLOCATE_ROUNDS_MAX: usize = 8192;
/// The same of a write that cannot be asked again, for a worker that has connections waiting for it: some 10 ms. Outside of
/// transactions it was 1,600, and 400 for what others hold: 200 and 50 ms.
const ALLOCATE_ROUNDS_IMPATIENT: usize = 128;
/// After such a wait in vain, what other workers hold is not waited for again for this time.
const VAIN_MS: Millis = 100;
/// From this round on each round gives up the core: another worker's batch holds the epoch back.
const ALLOCATE_ROUNDS_BUSY: usize = 4;
/// From this round on each round sleeps, and other workers are asked for what they hold.
const ALLOCATE_ROUNDS_SLEEP: usize = 64;
/// After this round a request that can be asked again is refused, to be asked again: other threads have had the core
/// some times by then, on a busy machine for milliseconds each time.
const ALLOCATE_ROUNDS_LATER: usize = 16;
/// An allocation takes back what came free of large values so many times more, 1,024 pieces each, before it goes on: some 100 µs
/// each. Four pieces are a span, but those beside a piece may be another value's.
const ALLOCATE_PASSES_MAX: usize = 8;
/// Rounds without success in the class itself before a span is taken from another.
const ALLOCATE_ROUNDS_OWN: usize = 3;
/// Rounds in which a class to which another gives evicts of its own only what is overdue.
const ALLOCATE_ROUNDS_GIVEN: usize = 2;
/// An allocation takes so many steps of expiring, and then looks for what they left in other classes.
const ALLOCATE_EXPIRE_STEPS: usize = 16;
/// It takes so many before it evicts what is alive.
const ALLOCATE_EXPIRE_STEPS_MAX: usize = 1024;
/// It takes so many steps of taking collections apart before it evicts, and again before each further round.
const ALLOCATE_APART_STEPS: usize = 32;
/// Where nothing may be evicted it takes so many before it is refused: 65,536 chunks, some 10 ms.
const ALLOCATE_APART_STEPS_MAX: usize = 1024;
/// Such a step takes so long, for 64 chunks. One in which pins are dropped counts as several.
const APART_STEP_NS: u64 = 9_600;
/// Where nothing may be evicted it cleans so many segments of the index of what was flushed.
const ALLOCATE_CLEAN_STEPS_MAX: usize = 64;
/// The same of a request that can be asked again: a millisecond at most.
const ALLOCATE_CLEAN_STEPS_LATER: usize = 2;
/// An allocation gathers at most so many spans from what has expired in other classes.
const ALLOCATE_SPARES_MAX: usize = 8;
/// While the limit is passed, a class without a span gets one for so many that were given back.
const SWAP_SPANS: u64 = 2;
/// Chunks drained in a round while the limit is passed: some 100 µs, and four times as many of a class as one
/// refill of a magazine takes. (With 1,024 every refill after the first eviction took 1 to 2 ms.)
const SHRINK_CHUNKS: usize = 128;

impl Local {
    /// A chunk of `class` for `requested` bytes; `None` when memory is out.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, store: &Store, class: ClassId, requested: usize) -> Option<u64> {
        #[cfg(test)]
        match &mut self.refuse_after {
            Some(0) if self.refusals == 0 => {}
            Some(0) => {
                self.refusals -= 1;
                return None;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.take_over(store, class, requested).or_else(|| self.allocate_new(store, class, requested))
    }

    /// Takes the chunk that waits longest in limbo, if it need wait no longer and is of this class, as that of an overwritten
    /// item mostly is. It counts as used before and after.
    #[inline(always)]
    fn take_over(&mut self, store: &Store, class: ClassId, requested: usize) -> Option<u64> {
        if store.slabs.view(class).draining.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let chunk = self.limbo.take_of(class)?;
        // A lock is a barrier: what is written before it had better be written by then.
        store.prefetch_chunk(self.limbo.front().location());
        if chunk.requested() != requested {
            let more = requested as i64 - chunk.requested() as i64;
            self.counters(store).class(class).requested_bytes.add(more);
        }
        Some(chunk.location())
    }

    /// Takes a chunk that was free.
    #[inline(never)]
    fn allocate_new(&mut self, store: &Store, class: ClassId, requested: usize) -> Option<u64> {
        let magazine = &mut self.magazines[class.0 as usize];
        let Some(chunk) = magazine.pop() else {
            return self.allocate_slow(store, class, requested);
        };
        // The one that is used after this.
        store.prefetch_chunk(magazine.next());
        self.magazine_bytes -= class.chunk_bytes();
        self.count_used(store, class, requested);
        unpoison_chunk(&store.arena, class, chunk);
        Some(chunk)
    }

    /// Counts a chunk of a class as used.
    #[inline]
    fn count_used(&self, store: &Store, class: ClassId, requested: usize) {
        let count = self.counters(store).class(class);
        count.used_chunks.add(1);
        count.requested_bytes.add(requested as i64);
    }

    #[cold]
    #[inline(never)]
    fn allocate_slow(&mut self, store: &Store, class: ClassId, requested: usize) -> Option<u64> {
        let chunk = self.make_chunk(store, class)?;
        // What is left of a collection may have one of a longer class.
        let class = if self.takes_out { store.class_of_chunk(chunk) } else { class };
        // What came with it is allocated before this is called again.
        let chunks = 1 + self.magazines[class.0 as usize].len();
        store.clock_bytes.fetch_add((chunks * class.chunk_bytes()) as u64, Ordering::Relaxed);
        self.count_used(store, class, requested);
        unpoison_chunk(&store.arena, class, chunk);
        Some(chunk)
    }

    /// A free chunk, at the price of what is worth less.
    fn make_chunk(&mut self, store: &Store, class: ClassId) -> Option<u64> {
        let (mut expiring, mut spared, mut evicted, mut cleaned, mut apart) = (0, 0, 0, 0, 0);
        // Rounds, and those of them in which it looked for more than what was on its way.
        let (mut round, mut tries, mut passes) = (0, 0, 0);
        let mut wants = None;
        let moved = self.spans_moved;
        let mut wait = Wait::for_memory();
        let spares = matches!(store.eviction(), Eviction::Volatile | Eviction::VolatileTtl);
        if store.may_evict() && !(spares && store.arena.barren.holds(self.now)) {
            self.drain_ahead(store, class);
        }
        // A worker whose caller asks again tells it so, where another worker would sleep.
        let together = self.transaction.open || self.transaction.whole;
        let later = self.asked_again && !self.patient && (!together || self.looks_ahead);
        self.comes = false;
        let rounds_max = if self.patient { ALLOCATE_ROUNDS_MAX } else { ALLOCATE_ROUNDS_IMPATIENT };
        while round < rounds_max {
            // What the epochs have set free since comes first: it is in this core's cache. Some pieces are taken back however
            // many the batch has taken: else what is alive would be evicted for them.
            self.may_take_pieces(RECLAIM_CHUNKS);
            self.reclaim(store, RECLAIM_CHUNKS);
            if let Some(chunk) = self.take_free(store, class, Share::Items) {
                return Some(chunk);
            }
            if self.limbo.len() > 0 {
                self.pass_epochs(store);
                if let Some(chunk) = self.take_free(store, class, Share::Items) {
                    return Some(chunk);
                }
                if passes < ALLOCATE_PASSES_MAX && self.limbo.large_is_next() {
                    passes += 1;
                    continue;
                }
            }
            // The first span that was drained for a class is its, though what is lent of the index's would have none of it:
            // as much is used as before. More would be drained until all that is lent is back. A class whose spans are all
            // being drained for others has had its first: in a small store two would take the same span from each other.
            self.count_emptied(store);
            let view = store.slabs.view(class);
            if self.spans_moved > moved
                && view.spans() == 0
                && view.draining.load(Ordering::Relaxed) == 0
                && let Some(chunk) = self.take_free(store, class, Share::Lent)
            {
                return Some(chunk);
            }
            if self.recalled != store.recall.load(Ordering::Relaxed) {
                self.answer_recall(store);
            }
            // What is left of collections that are gone comes before anything that is there, some at a time.
            let goes = store.may_evict();
            let apart_max = match (goes, later) {
                (true, _) => ALLOCATE_APART_STEPS * (1 + round),
                (false, true) => ALLOCATE_APART_STEPS,
                (false, false) => ALLOCATE_APART_STEPS_MAX,
            };
            let before_ns = self.beside_ns;
            if apart < apart_max && self.take_apart(store) {
                apart += ((self.beside_ns - before_ns) / APART_STEP_NS).max(1) as usize;
                continue;
            }
            if later && !goes && apart >= apart_max {
                self.comes_later(store);
                break;
            }
            // What is on its way is waited for already, by another request of this worker.
            if later && self.limbo.len() > 0 && self.later_epoch == store.epochs.now() {
                self.comes = !self.waits_in_vain(store);
                break;
            }
            // What has expired goes before anything that lives.
            let expires = expiring < ALLOCATE_EXPIRE_STEPS_MAX && self.expire(store, self.now);
            if expires {
                expiring += 1;
                if !expiring.is_multiple_of(ALLOCATE_EXPIRE_STEPS) {
                    continue;
                }
            }
            // What expired in another class left room there: a span of it is gathered.
            if expiring > 0 && spared < ALLOCATE_SPARES_MAX && self.gather_spare(store, class) {
                spared += 1;
                continue;
            }
            if expires {
                continue;
            }
            if !store.may_evict() {
                // What a flush has taken is room as soon as it is found.
                let cleaned_max = if later { ALLOCATE_CLEAN_STEPS_LATER } else { ALLOCATE_CLEAN_STEPS_MAX };
                if cleaned < cleaned_max && self.clean_ahead(store) {
                    cleaned += 1;
                    continue;
                }
                // What was deleted in another class left room there: also of what was flushed, of which little is found yet.
                if spared < ALLOCATE_SPARES_MAX && self.gather_spare(store, class) {
                    spared += 1;
                    continue;
                }
                if later && store.is_cleaning() {
                    self.comes_later(store);
                    break;
                }
                // Two things come: what this worker has retired, when other workers have left their batches, and what they
                // have found that was flushed. A worker that has other clients to serve does not sleep for the second. A
                // worker that did not leave its batch for so long is not waited for again before it has.
                let others = || (self.patient || later) && store.flushed_comes(self.now + wait.slept_ms());
                if self.limbo.len() == 0 && !others() || self.waits_in_vain(store) {
                    break;
                }
                if round + 1 == rounds_max {
                    self.note_vain(store);
                    break;
                }
                if later && round == ALLOCATE_ROUNDS_LATER {
                    self.comes_later(store);
                    break;
                }
                if round == ALLOCATE_ROUNDS_SLEEP {
                    // Another may drain the class's last span, and wait for this worker's transaction.
                    self.ask_others(store);
                }
                self.wait(store, &mut wait);
                self.may_take_pieces(PASS_CHUNKS);
                round += 1;
                continue;
            }
            // After the limit was lowered there is a span to give back in every round.
            let over = store.arena.over_items_limit();
            let shrinking = over > 0;
            if spares {
                // What is on its way comes while others get on; what must stay does not come by waiting.
                let all_stays = round >= ALLOCATE_ROUNDS_SLEEP && evicted == 0 && self.limbo.len() == 0;
                if all_stays {
                    store.arena.barren.set(self.now);
                }
                if all_stays || store.arena.barren.holds(self.now) {
                    break;
                }
            }
            // Spans that are being drained may be held by this very upload: others give when waiting for
            // them did not help.
            let wanted = if round < ALLOCATE_ROUNDS_SLEEP { over } else { u32::MAX };
            let waits = shrinking && !self.shrink(store, wanted, SHRINK_CHUNKS);
            // Of two spans that it has given back a class that has none gets one. It would wait for the whole way to
            // a limit that was lowered: 190 ms for 24 MB of small items.
            if shrinking
                && self.spans_moved >= moved + SWAP_SPANS
                && store.slabs.view(class).spans() == 0
                && let Some(chunk) = self.take_free(store, class, Share::Swapped)
            {
                return Some(chunk);
            }
            if round >= ALLOCATE_ROUNDS_BUSY && (!shrinking || waits) {
                if round >= ALLOCATE_ROUNDS_SLEEP {
                    wants.get_or_insert_with(|| store.wanting.one());
                }
                if !self.patient {
                    if self.waits_in_vain(store) {
                        break;
                    }
                    if later && round >= ALLOCATE_ROUNDS_LATER {
                        self.comes_later(store);
                        break;
                    }
                    if round + 1 == rounds_max {
                        self.note_vain(store);
                        break;
                    }
                }
                self.wait(store, &mut wait);
                self.may_take_pieces(PASS_CHUNKS);
            }
            round += 1;
            // Another's batch holds back what went already: more would wait for it, too. A batch that was
            // interrupted would cost the whole cache.
            if tries > 0 && self.limbo.len() > 0 {
                continue;
            }
            // A younger class takes from the oldest, in steps; meanwhile it evicts its own.
            let given = if shrinking { None } else { self.arbitrate(store, class, tries) };
            let own = match given {
                _ if tries >= ALLOCATE_ROUNDS_OWN => 0,
                // Items that are never read give: whatever it is that is new is worth more.
                Some(Given::Unread) if tries == 0 || store.arena.has_span() => 0,
                Some(_) if tries < ALLOCATE_ROUNDS_GIVEN => {
                    self.evict_overdue(store, self.now, class, Magazine::capacity(class).div_ceil(2))
                }
                Some(_) | None => self.evict(store, self.now, class),
            };
            evicted += own;
            // Then at any price, and ever more rarely: what uploads and pins keep comes by waiting, and
            // draining on meanwhile would empty the cache.
            let patient = tries >= ALLOCATE_ROUNDS_OWN && !shrinking && tries < 2 * ALLOCATE_ROUNDS_BUSY;
            // The span that was drained is free, or what was in it is on its way.
            let is_there = self.drain.is_none() && (store.arena.has_span() || self.limbo.len() > 0);
            if own == 0 && !is_there && (patient || tries.is_power_of_two() && tries > 1) {
                // A class that is new, or of parts of large values, has nothing that it could judge: what is oldest gives a
                // span, and one that is being drained is emptied before another is. Where another's batch holds back what
                // was in it, it is waited for.
                let oldest = !shrinking && (tries <= ALLOCATE_ROUNDS_GIVEN || self.drain.is_some());
                let comes = oldest && (self.drain_oldest(store, class) || self.limbo.len() > 0);
                if !comes {
                    self.drain_for(store, class);
                }
            }
            tries += 1;
        }
        self.fed = None;
        if spares {
            // What comes free in the spans that were tried is to be had.
            self.stop_drains(store);
        }
        if self.takes_out
            && !self.comes
            && let Some(chunk) = self.chunk_for_leftover(store, class)
        {
            return Some(chunk);
        }
        if !self.comes && !self.looks_ahead {
            store.slabs.class(class).out_of_memory += 1;
            self.counters(store).out_of_memory.add(1);
        }
        None
    }

    /// True if what is waited for was waited for already, and did not come.
    fn waits_in_vain(&self, store: &Store) -> bool {
        self.vain_epoch == store.epochs.now() || self.limbo.len() == 0 && self.now < self.vain_until
    }

    /// Notes that the caller is to ask for this memory again.
    fn comes_later(&mut self, store: &Store) {
        self.comes = true;
        self.later_epoch = store.epochs.now();
    }

    /// Notes that memory did not come: this worker's own is not waited for before others have left
    /// their batches, and what others hold not for a while.
    pub(crate) fn note_vain(&mut self, store: &Store) {
        if self.limbo.len() > 0 {
            self.vain_epoch = store.epochs.now();
        } else {
            self.vain_until = self.now + VAIN_MS;
        }
    }

    /// A free chunk from the magazine, the class's spans, or a free span of this share.
    fn take_free(&mut self, store: &Store, class: ClassId, share: Share) -> Option<u64> {
        if let Some(chunk) = self.pop_of_magazine(class) {
            return Some(chunk);
        }
        let magazine = &mut self.magazines[class.0 as usize];
        let room = self.magazine_bytes_max.saturating_sub(self.magazine_bytes) / class.chunk_bytes();
        let taken =
            store.slabs.class(class).fill(&store.arena, magazine, room, store.moment(self.now), Some(share));
        self.magazine_bytes += taken * class.chunk_bytes();
        self.pop_of_magazine(class)
    }

    /// A chunk of the magazine.
    pub(crate) fn pop_of_magazine(&mut self, class: ClassId) -> Option<u64> {
        let chunk = self.magazines[class.0 as usize].pop()?;
        self.magazine_bytes -= class.chunk_bytes();
        Some(chunk)
    }
}
