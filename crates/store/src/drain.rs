//! Draining: emptying a span, so that another class can have it.
//!
//! ```text
//! queue of the class ──▶ draining: no chunk of it is handed out ──▶ item by item:
//!    ▲                                       expired, or cold and no room: gone
//!    │                                       else: moved to another chunk of the class
//!    └── an upload or a pin keeps it ◀──┴──▶ its last chunk comes back: the arena's
//! ```
//!
//! What is hot moves; where the class has no free chunk, its own hand makes some, in the span in which it
//! is: that is drained last, so what moves there is not judged again before a whole turn. What is cold
//! moves only if the class has free chunks for all of the span. A worker drains one span at a time, some
//! chunks a step; spans that wait for chunks in other hands are looked at again.

use crate::arena::{Arena, Share, UNIT};
use crate::class::ClassId;
use crate::evict::{BATCH, HAND_WORK_DRAIN, PROMOTE_FREQUENCY, Reason, batch_of};
use crate::index::Found;
use crate::item::RawItem;
use crate::owner::{has, judged_at, owner_at};
use crate::slab::Magazine;
use crate::sync::atomic::Ordering;
use crate::worker::Local;
use crate::{Eviction, Store};

/// Spans that wait for chunks in other hands, at most.
pub(crate) const LINGERING_MAX: usize = 4;
/// Times they are looked at before they are used again.
const LINGER_LOOKS_MAX: u8 = 16;
/// Overdue keys on probation that go at a time for what moves: a class that gives makes no more room than that takes.
const DRAIN_OVERDUE: usize = 4;
/// Chunks looked at under their class's lock at a time.
const LOCKED_CHUNKS: usize = 8 * BATCH;
/// Spans tried when one is wanted at any price: uploads and pins keep some from emptying.
const DRAIN_SPANS_MAX: usize = 4;

/// What a span is drained for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Another class is to have it.
    Class,
    /// No class: the limit was lowered, or more of it is taken beside items; or the span is not needed.
    Release,
}

/// A span being drained by this worker.
#[derive(Debug)]
pub(crate) struct Drain {
    number: u32,
    class: ClassId,
    purpose: Purpose,
    chunk: usize,
    /// Everything in it moves: there is room for it.
    keep: bool,
    /// The hand found nothing in the class that is worth less than what is hot in the span: it is not asked again, and what
    /// is hot goes, too, unless everything is to move.
    vain: bool,
    /// What is in it stays there: other spans give.
    given_up: bool,
    /// Times it was gone through.
    looks: u8,
}

/// What became of what a chunk holds.
enum Drained {
    Gone,
    /// It is worth a chunk, and the class has none free. True: it is on probation, and was not read often.
    NoChunk(bool),
    /// Pinned, not to be evicted, or in a transaction.
    Kept,
    /// A short part of a large value, for which the class has no chunk. A span of such parts has those of a hundred values;
    /// memory comes from the spans where their long parts are, some values at a time.
    Dear,
}

impl Local {
    /// Begins to drain a span of `class`: `number`, or the one that its hand passes next. `keep`: even
    /// cold items move if the class has free chunks.
    pub(crate) fn start_drain(
        &mut self,
        store: &Store,
        class: ClassId,
        number: Option<u32>,
        keep: bool,
        purpose: Purpose,
    ) -> bool {
        debug_assert!(self.drain.is_none());
        self.empty_magazine(store, class);
        let mut slab = store.slabs.class(class);
        let Some(number) = number.or(slab.next_to_drain(&store.arena)) else { return false };
        let span = store.arena.span(number);
        if span.owner.load(Ordering::Relaxed) != class.0 || span.draining.load(Ordering::Relaxed) != 0 {
            return false;
        }
        slab.start_draining(&store.arena, number);
        self.drain =
            Some(Drain { number, class, purpose, chunk: 0, keep, vain: false, given_up: false, looks: 0 });
        true
    }

    /// Goes on draining, about `chunks_max` chunks; true while there is more to do.
    pub(crate) fn drain_step(&mut self, store: &Store, chunks_max: usize) -> bool {
        let Some(mut drain) = self.drain.take() else { return false };
        if self.drain_chunks(store, &mut drain, chunks_max) {
            self.drain = Some(drain);
            return true;
        }
        if drain.given_up {
            self.stop_drain(store, &drain);
            return false;
        }
        self.pass_epochs(store);
        drain.chunk = 0;
        drain.looks += 1;
        self.lingering.push(drain);
        self.look_at_lingering(store, self.lingering.len() > LINGERING_MAX);
        false
    }

    /// Looks whether spans that were drained have become empty, and goes through those that have not once more; with `all`,
    /// spans that are not empty then are used again.
    pub(crate) fn look_at_lingering(&mut self, store: &Store, all: bool) {
        if self.step_chunks == Some(0) && !all {
            // The step of upkeep has taken back all that it may, and the chunks of these spans may
            // come behind those: this does not count as a look.
            self.count_emptied(store);
            return;
        }
        for mut drain in std::mem::take(&mut self.lingering) {
            if !drain.is_on(store) {
                self.count_moved(store, drain.purpose);
                continue;
            }
            if drain.looks > 1 {
                while self.drain_chunks(store, &mut drain, usize::MAX) {}
                self.pass_epochs(store);
                drain.chunk = 0;
            }
            if drain.looks == 2 {
                self.ask_others(store);
            }
            drain.looks += 1;
            if all || drain.given_up || drain.looks > LINGER_LOOKS_MAX {
                self.stop_drain(store, &drain);
            } else {
                self.lingering.push(drain);
            }
        }
    }

    /// Asks other workers for the free chunks that they have, and, if they wait for this one, for the spans that they drain.
    pub(crate) fn ask_others(&mut self, store: &Store) {
        self.recalled = store.recall.fetch_add(1, Ordering::Relaxed) + 1;
    }

    /// Counts spans that were drained and have become empty.
    #[inline]
    pub(crate) fn count_emptied(&mut self, store: &Store) {
        while let Some(at) = self.lingering.iter().position(|drain| !drain.is_on(store)) {
            let drain = self.lingering.swap_remove(at);
            self.count_moved(store, drain.purpose);
        }
    }

    /// Ends the drains of this worker: their spans are used again.
    pub(crate) fn stop_drains(&mut self, store: &Store) {
        let drains = self.drain.take().into_iter().chain(std::mem::take(&mut self.lingering));
        for drain in drains {
            if drain.is_on(store) {
                self.stop_drain(store, &drain);
            } else {
                self.count_moved(store, drain.purpose);
            }
        }
    }

    /// Counts a span that was drained, is empty, and has no owner.
    fn count_moved(&mut self, store: &Store, purpose: Purpose) {
        self.spans_moved += 1;
        let counters = self.counters(store);
        counters.spans_moved.add(1);
        if purpose == Purpose::Class {
            counters.spans_reassigned.add(1);
        }
    }

    fn stop_drain(&mut self, store: &Store, drain: &Drain) {
        let mut slab = store.slabs.class(drain.class);
        if drain.is_on(store) {
            slab.stop_draining(&store.arena, drain.number, store.moment(self.now));
        }
    }

    /// Goes through some chunks of a span; true while there are more. The caller holds no reference
    /// into the arena.
    fn drain_chunks(&mut self, store: &Store, drain: &mut Drain, chunks_max: usize) -> bool {
        let (arena, class) = (&store.arena, drain.class);
        let mut looked = 0;
        let mut spare = None;
        let mut more = true;
        // Which keys of the span are overdue is not known. Where new keys weigh, overdue ones elsewhere go; else all that are
        // on probation here do, if one is overdue.
        let keeps_new = store.weighs_new(class);
        while looked < chunks_max && more {
            let mut found = [(0, 0); BATCH];
            let mut count = 0;
            let overdue;
            let first = drain.chunk;
            {
                // Under the lock the span stays with its class, and what is seen as an item is not used
                // again before this worker's epoch has passed.
                let slab = store.slabs.class(class);
                if !drain.is_on(store) {
                    more = false;
                    break;
                }
                overdue = slab.probation.front().is_none_or(|entry| !keeps_new && store.is_overdue(entry));
                let carved = usize::from(arena.span(drain.number).carved.load(Ordering::Relaxed));
                while drain.chunk < carved && count < BATCH && drain.chunk - first < LOCKED_CHUNKS {
                    let location =
                        Arena::location_of(drain.number) + (drain.chunk * class.chunk_bytes() / UNIT) as u64;
                    // SAFETY: a carved chunk has a header word at all times.
                    if let Some(owner) = unsafe { owner_at(store, location) } {
                        found[count] = (location, owner);
                        count += 1;
                    }
                    drain.chunk += 1;
                }
                more = drain.chunk < carved;
            }
            looked += drain.chunk - first;
            let mut hopeless = false;
            let mut hashes = [0; BATCH];
            for (hash, &(_, owner)) in hashes.iter_mut().zip(&found[..count]) {
                *hash = store.hash_at(owner);
                store.prefetch_home(*hash);
            }
            for (&(location, owner), &hash) in found[..count].iter().zip(&hashes) {
                if spare.is_none() && !hopeless {
                    spare = self.free_chunk(store, class, drain.keep);
                }
                match self.drain_item(store, drain, location, owner, hash, overdue, &mut spare) {
                    Drained::Gone | Drained::Kept => {}
                    Drained::Dear => {
                        drain.given_up = true;
                        more = false;
                        break;
                    }
                    // What may go does so without a chunk.
                    Drained::NoChunk(_) if drain.vain && store.evicts() => hopeless = true,
                    Drained::NoChunk(_) if drain.vain => {
                        more = false;
                        break;
                    }
                    Drained::NoChunk(new) => {
                        // Evictions make room, and this batch begins again; what cannot be had now is left for the next look.
                        // The queue of probation makes room anywhere, also in spans that are drained next; for what was read
                        // room is made where the hand is. Where nothing may be evicted it finds nothing: upkeep takes out
                        // what expires.
                        let got = !store.arena.barren.holds(self.now)
                            && (new
                                && store.evicts()
                                && self.evict_overdue(
                                    store,
                                    self.now,
                                    class,
                                    batch_of(class).min(DRAIN_OVERDUE),
                                ) > 0
                                || self.sweep_main(store, self.now, class, overdue, HAND_WORK_DRAIN, false)
                                    > 0);
                        self.pass_epochs(store);
                        self.empty_magazine(store, class);
                        spare = self.free_chunk(store, class, drain.keep);
                        drain.vain = !got;
                        if !got || spare.is_some() {
                            drain.chunk = first;
                            more = true;
                        }
                        break;
                    }
                }
            }
        }
        if let Some(chunk) = spare {
            store.slabs.class(class).give(arena, chunk);
        }
        more
    }

    /// Judges what is at a chunk of a span being drained, and moves it if it is worth it.
    #[expect(clippy::too_many_arguments, reason = "one item of a batch, with all that the batch knows")]
    fn drain_item(
        &mut self,
        store: &Store,
        drain: &Drain,
        location: u64,
        owner: u64,
        hash: u64,
        overdue: bool,
        spare: &mut Option<u64>,
    ) -> Drained {
        // What is in another's transaction stays: a worker that waited for it here might be waited for.
        let Some(mut locked) = self.lock_open(store, hash) else { return Drained::Kept };
        let found = store.index.scan(&locked.place, locked.control, |slot| slot.location() == owner);
        let drained = match found {
            // SAFETY: reachable, under its home's lock.
            Some(found) if unsafe { has(store, owner, location) } => {
                // SAFETY: reachable in this epoch.
                let item = unsafe { RawItem::new(store.arena.at(owner)) };
                let header = item.header();
                let (slot, expired) = (found.slot, item.expired_by(header, self.now));
                let protected = store.is_protected(item, header) || self.may_be_own(hash);
                // A part of a large value or of a tree is worth what its first is, which is judged where that is.
                // SAFETY: as above.
                let part = header.is_not_plain()
                    && unsafe { judged_at(store, item) }.is_some_and(|first| first != location);
                if !part && !slot.probation() && !drain.keep {
                    store.slabs.view(drain.class).count_judged(slot.frequency() > 0);
                }
                let hot = match slot.probation() {
                    _ if part => true,
                    true => slot.frequency() >= PROMOTE_FREQUENCY || !overdue,
                    false => slot.frequency() > 0,
                };
                // A short part of a large value is dear, unless there is a chunk for it.
                let dear = part && header.is_large() && drain.class != ClassId::LONGEST && drain.vain;
                let stays = dear && spare.is_some()
                    || hot && (drain.keep || !drain.vain)
                    || protected
                    || drain.keep && spare.is_some();
                if !expired && header.is_tree() && self.may_be_own(hash) {
                    // This worker's own write to it has looked at its nodes.
                    Drained::Kept
                } else if dear && !stays && !expired && store.evicts() {
                    Drained::Dear
                } else if expired || !stays {
                    self.take_out(store, hash, &mut locked, &found, item, expired);
                    Drained::Gone
                } else {
                    self.move_out(store, drain, location, &found, item, spare)
                }
            }
            Some(_) | None => Drained::Gone,
        };
        locked.home.unlock(locked.control);
        drained
    }

    fn move_out(
        &mut self,
        store: &Store,
        drain: &Drain,
        location: u64,
        found: &Found<'_>,
        item: RawItem,
        spare: &mut Option<u64>,
    ) -> Drained {
        let slot = found.slot;
        let Some(chunk) = *spare else {
            return Drained::NoChunk(slot.probation() && slot.frequency() < PROMOTE_FREQUENCY);
        };
        // The hand would have passed over it; a large one is passed at its first piece.
        let passed = match (drain.keep, slot.probation()) {
            (true, _) => slot,
            (false, true) if slot.frequency() >= PROMOTE_FREQUENCY => slot.promoted().with_frequency(0),
            (false, true) => slot,
            (false, false) => slot.with_frequency(store.worn(slot.frequency())),
        };
        // SAFETY: reachable, under its home's lock.
        let judged = unsafe { judged_at(store, item) };
        let moved = if location == slot.location() {
            let passed = if judged.is_some() { slot } else { passed };
            self.move_item(store, found, item, passed, chunk)
        } else {
            let first = judged == Some(location);
            let moved = if item.header().is_large() {
                self.move_piece(store, item, location, chunk)
            } else {
                self.move_node(store, item, location, chunk)
            };
            if moved && first {
                found.bucket.replace(found.i, passed);
            }
            moved
        };
        if !moved {
            return Drained::Kept;
        }
        *spare = None;
        Drained::Gone
    }

    /// Takes a free chunk of the class, from a free span if need be and `grow` says so; evicts no item.
    fn free_chunk(&mut self, store: &Store, class: ClassId, grow: bool) -> Option<u64> {
        let mut magazine = Magazine::new(class);
        let grow = grow.then_some(Share::Items);
        let mut slab = store.slabs.class(class);
        slab.fill(&store.arena, &mut magazine, 1, store.moment(self.now), grow);
        magazine.pop()
    }

    /// Empties a span of the class that has the most at any price, for `class` to take.
    pub(crate) fn drain_for(&mut self, store: &Store, class: ClassId) {
        for _ in 0..DRAIN_SPANS_MAX {
            let used = store.arena.used_bytes();
            let victim = store.slabs.richest(Some(class)).or_else(|| store.slabs.richest(None));
            match victim {
                Some(victim) => self.clear_span(store, victim),
                None => self.clear_all(store),
            }
            self.pass_epochs(store);
            self.pass_epochs(store);
            if store.arena.used_bytes() < used {
                self.count_moved(store, Purpose::Class);
                return;
            }
            self.ask_others(store);
            // Another worker's batch holds back what went already, and would hold back more. And nothing has come into spans
            // that were gone through a moment ago: going through them again keeps workers, which have what is missing, from
            // the locks that they need to give it back.
            if victim.is_none() || self.limbo_chunks() > 0 {
                return;
            }
        }
    }

    /// Evicts everything in the span under a class's hand.
    fn clear_span(&mut self, store: &Store, class: ClassId) {
        let arena = &store.arena;
        self.empty_magazine(store, class);
        let number = {
            let mut slab = store.slabs.class(class);
            let Some(number) = slab.queue.front() else { return };
            slab.start_draining(arena, number);
            number
        };
        self.evict_span(store, class, number);
        let drain = Drain {
            number,
            class,
            purpose: Purpose::Class,
            chunk: 0,
            keep: false,
            vain: false,
            given_up: false,
            looks: 1,
        };
        if self.lingering.len() < LINGERING_MAX {
            self.lingering.push(drain);
        } else if store.eviction() != Eviction::All {
            // What is protected would keep it from emptying for ever, and its free chunks from being used.
            self.stop_drain(store, &drain);
        }
    }

    /// Evicts what came into spans since their drains began, such as uploads that were under way. All spans are being drained.
    fn clear_all(&mut self, store: &Store) {
        for class in ClassId::all() {
            self.empty_magazine(store, class);
            let spans: Vec<u32> = store.slabs.class(class).all_spans(&store.arena).collect();
            for number in spans {
                self.evict_span(store, class, number);
            }
        }
    }

    /// Evicts every item of a span of `class`, and those that have a piece there.
    fn evict_span(&mut self, store: &Store, class: ClassId, number: u32) {
        let arena = &store.arena;
        if store.all_stays(class, arena.span(number)) {
            return;
        }
        let mut chunk = 0;
        let mut more = true;
        while more {
            let first = chunk;
            let mut victims = [(0, 0); BATCH];
            let mut count = 0;
            {
                // As in `drain_chunks`.
                let _class = store.slabs.class(class);
                if arena.span(number).owner.load(Ordering::Relaxed) != class.0 {
                    return;
                }
                let carved = usize::from(arena.span(number).carved.load(Ordering::Relaxed));
                while chunk < carved && count < BATCH && chunk - first < LOCKED_CHUNKS {
                    let location = Arena::location_of(number) + (chunk * class.chunk_bytes() / UNIT) as u64;
                    chunk += 1;
                    // SAFETY: a carved chunk has a header word at all times.
                    if let Some(owner) = unsafe { owner_at(store, location) } {
                        victims[count] = (location, owner);
                        count += 1;
                    }
                }
                more = chunk < carved;
            }
            for &(location, owner) in &victims[..count] {
                // Several pieces of one value: it is an item only before the first.
                // SAFETY: it was an item in this epoch.
                if unsafe { RawItem::new(arena.at(owner)) }.header().is_item() {
                    self.evict_at(store, owner, location);
                }
            }
        }
    }

    /// Evicts the item at `owner`, if it is still reachable there and has the chunk at `location`; true if it went.
    pub(crate) fn evict_at(&mut self, store: &Store, owner: u64, location: u64) -> bool {
        let hash = store.hash_at(owner);
        let Some(mut locked) = self.lock_open(store, hash) else { return false };
        let found = store.index.scan(&locked.place, locked.control, |slot| slot.location() == owner);
        let gone = found.is_some_and(|found| {
            // SAFETY: reachable in this epoch.
            let item = unsafe { RawItem::new(store.arena.at(owner)) };
            // SAFETY: as above, under its home's lock.
            let goes = unsafe { has(store, owner, location) }
                && !store.is_protected(item, item.header())
                && !self.may_be_own(hash);
            if goes {
                self.count_reason(store, item, found.slot, store.accesses.seconds(self.now), Reason::Evicted);
                self.unlink(store, &mut locked, &found);
            }
            goes
        });
        locked.home.unlock(locked.control);
        gone
    }
}

impl Local {
    /// The class whose span this worker drains.
    pub(crate) fn draining_class(&self) -> Option<ClassId> {
        self.drain.as_ref().map(|drain| drain.class)
    }
}

impl Drain {
    /// Everything in the span moves.
    pub(crate) fn keeps(&self) -> bool {
        self.keep
    }

    /// The span is still being drained.
    fn is_on(&self, store: &Store) -> bool {
        let span = store.arena.span(self.number);
        span.owner.load(Ordering::Relaxed) == self.class.0 && span.draining.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::Purpose;
    use crate::arena::Arena;
    use crate::class::ClassId;
    use crate::sync::atomic::Ordering;
    use crate::{Attributes, Config, Expect, Store};

    const NOW: u64 = 1_700_000_000_000;

    /// What a long batch of another worker has held back is taken back some chunks a step: a span
    /// whose chunks come last is emptied all the same.
    #[test]
    fn a_span_whose_chunks_wait_behind_many_others_is_emptied() {
        let config = Config { memory_bytes: 64 << 20, workers_max: 2, ..Config::default() };
        let store = Store::new(config).unwrap();
        let (mut worker, mut other) = (store.worker().unwrap(), store.worker().unwrap());
        let mut guard = worker.enter(NOW);
        let names: Vec<[u8; 4]> = (0..40_000_u32).map(u32::to_be_bytes).collect();
        for name in &names {
            let key = guard.key(name);
            guard.store_value(&key, &[1; 100], &Attributes::default(), Expect::Any).unwrap();
        }
        let stuck = other.enter(NOW);
        let (gone, left) = names.split_at(30_000);
        for name in gone {
            let key = guard.key(name);
            guard.delete(&key, Expect::Present).unwrap();
        }
        let key = guard.key(&left[5_000]);
        let location = guard.peek(&key).hit().unwrap().slot.location();
        let (number, class) = (Arena::span_of(location), store.class_of_chunk(location));
        assert!(guard.local.start_drain(&store, class, Some(number), true, Purpose::Class));
        while guard.local.drain_step(&store, usize::MAX) {}
        assert!(guard.local.limbo_chunks() > gone.len(), "what was in the span waits behind them");
        drop(stuck);
        let moved = guard.local.spans_moved;
        while guard.maintain() {}
        guard.local.count_emptied(&store);
        assert_eq!((guard.local.spans_moved - moved, guard.local.lingering.len()), (1, 0));
        drop(guard);
        drop((worker, other));
        store.check();
    }

    /// Where all spans are being drained, what came into them is looked for once: a worker that gives back what is missing
    /// has to get at the locks.
    #[test]
    fn spans_that_are_all_being_drained_are_gone_through_once() {
        let store = Store::new(Config { memory_bytes: 4 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"upload");
        let mut upload = guard.upload(&key, 40_000, &Attributes::default()).unwrap();
        guard.upload_fill(&mut upload, &[1; 40_000]).unwrap();
        for class in ClassId::all() {
            let mut slab = store.slabs.class(class);
            while let Some(number) = slab.queue.front() {
                slab.start_draining(&store.arena, number);
            }
        }
        let recalls = || store.recall.load(Ordering::Relaxed);
        let before = recalls();
        guard.local.drain_for(&store, ClassId::of(1000));
        assert_eq!(recalls() - before, 1, "it asked others for what they hold, and left it at that");
    }
}
