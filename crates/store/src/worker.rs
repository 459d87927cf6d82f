//! A thread's place in the store. [`Worker`] enters batches; [`Guard`] is one, and has all reads and writes; `Local` is what the
//! thread alone touches: magazines, chunks that wait for their epoch, spans that it drains, keys that it is yet to queue.
//!
//! ```text
//! allocate: magazine → spans of the class → arena → what the epochs set free → evict → drain a span
//! retire:   limbo … once its epoch has passed → magazine → spans
//! ```
//!
//! Nothing here holds a bucket's lock while it allocates or evicts; eviction itself locks one
//! bucket at a time.

mod allocate;
mod retire;

pub(crate) use retire::{STEP_CHUNKS, chunk_facts, class_of, free_alone, give_alone};

use crate::class::{CLASSES, ClassId};
use crate::collection::{Builder, Edit, Timed};
use crate::counters::WorkerCounters;
use crate::drain::Drain;
use crate::event::{EventBuffer, Giving};
use crate::evict::Fresh;
use crate::flush::Cleaning;
use crate::index::{Layout, Locked};
use crate::limbo::Limbo;
use crate::read::Mark;
use crate::slab::Magazine;
use crate::sync::atomic::Ordering;
use crate::transaction::Transaction;
use crate::wait::Wait;
use crate::watch::Called;
use crate::{Millis, Store};
use retire::BATCH_PIECES;
use std::sync::Arc;

/// Chunks taken back at a time.
const RECLAIM_CHUNKS: usize = 32;
/// All magazines together hold at most one part in this many of the memory limit.
const MAGAZINE_SHARE: u64 = 64;
/// New keys that wait to be put on probation together.
pub(crate) const FRESH_MAX: usize = 16;

/// Collections with due fields that a visit of expiry leaves to upkeep at a time.
pub(crate) const DUE_MAX: usize = 16;

/// What only this worker's thread touches.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) id: usize,
    /// The time of this batch.
    pub(crate) now: Millis,
    pub(crate) magazines: Box<[Magazine]>,
    /// Bytes in all magazines, and the most they may be.
    magazine_bytes: usize,
    magazine_bytes_max: usize,
    /// The last recall that was answered.
    pub(crate) recalled: u64,
    limbo: Limbo,
    /// Keys stored for the first time, to be queued on probation.
    pub(crate) fresh: Vec<Fresh>,
    /// The span that this worker drains, and those that wait for chunks in other hands.
    pub(crate) drain: Option<Drain>,
    pub(crate) lingering: Vec<Drain>,
    /// Spans that this worker has emptied; no reset of the figures changes it.
    pub(crate) spans_moved: u64,
    /// The epoch in which the lingering spans were last looked at.
    pub(crate) looked_at: u64,
    /// The epoch whose end a write that was refused has waited for in vain.
    pub(crate) vain_epoch: u64,
    /// The epoch whose end [`Guard::give_way`] has waited for in vain.
    pub(crate) gave_way_epoch: u64,
    /// Until this time memory that others hold is not waited for: it did not come before.
    pub(crate) vain_until: Millis,
    /// No thread waits for this worker while it waits for memory.
    pub(crate) patient: bool,
    /// A caller that was refused memory that may still come asks again, so that it is not slept for.
    pub(crate) asked_again: bool,
    /// What is allocated only tells whether there is memory ([`Guard::finds_memory`]).
    pub(crate) looks_ahead: bool,
    /// The last allocation found no memory, and some may come.
    pub(crate) comes: bool,
    /// The epoch whose end a write that is retried has waited for.
    pub(crate) later_epoch: u64,
    /// Allocations since a donor was looked for in vain.
    pub(crate) asks: u32,
    /// A class that others give to, and that found too little of it once.
    pub(crate) fed: Option<ClassId>,
    /// The keys that are written at once.
    pub(crate) transaction: Transaction,
    /// The hash of a key that is not evicted for what this worker allocates.
    pub(crate) spared: Option<u64>,
    /// The mark of the hints that may be used.
    mark: Mark,
    /// How far this worker is in cleaning the index of what was flushed, for memory.
    pub(crate) cleaning: Cleaning,
    /// Chunks that the step of upkeep under way may take back still; none: no step is under way.
    pub(crate) step_chunks: Option<usize>,
    /// Pieces of large values that this batch may take back still, outside of steps of upkeep.
    pieces_left: usize,
    /// What was done beside what was asked for, in nanoseconds that it takes about ([`Guard::take_beside_ns`]).
    pub(crate) beside_ns: u64,
    /// What happened without being asked for.
    pub(crate) events: EventBuffer,
    /// Spans that classes gave to others.
    pub(crate) givings: Vec<Giving>,
    /// Keys that are awaited, and were written.
    pub(crate) called: Called,
    /// Room for the small value that an append reads while it writes the longer one.
    pub(crate) copy: Vec<u8>,
    /// Room for the leaf of a collection that is being changed.
    pub(crate) builder: Builder,
    /// Collections with a field whose time has passed, that a visit has found: the hashes of their
    /// keys, their locations, and how many steps upkeep makes at each.
    pub(crate) due: Vec<(u64, u64, u8)>,
    /// Room for what came of fields that are given times.
    pub(crate) timed: Vec<Timed>,
    /// What is allocated is for what is left of a collection when something is taken out.
    pub(crate) takes_out: bool,
    /// The last change of a collection found one at its key ([`Guard::found_collection`]).
    pub(crate) found_collection: bool,
    /// Room for the nodes of a tree that is being changed.
    pub(crate) edit: Edit,
    /// Leaves of the list that is being published which get another label where they lie: their locations and labels.
    pub(crate) relabeled: Vec<(u64, u64)>,
    /// Locations of roots that leave their nodes to others when they are retired; 0 for none.
    pub(crate) leaving: [u64; 2],
    /// How many more chunks a test lets this worker have.
    #[cfg(test)]
    pub(crate) refuse_after: Option<u32>,
    /// How many are refused then; the next one is not.
    #[cfg(test)]
    pub(crate) refusals: u32,
}

/// One thread's place in the store. It may be sent to another thread.
#[derive(Debug)]
pub struct Worker {
    pub(crate) store: Arc<Store>,
    pub(crate) local: Local,
}

/// A worker inside a batch: nothing that it can reach is used again before it is dropped.
#[derive(Debug)]
pub struct Guard<'w> {
    pub(crate) store: &'w Store,
    pub(crate) arc: &'w Arc<Store>,
    pub(crate) local: &'w mut Local,
    /// This worker's.
    pub(crate) counters: &'w WorkerCounters,
    pub(crate) now: Millis,
    /// Seconds, by the clock that accesses are dated by: [`crate::access::Clock`].
    pub(crate) now_s: u64,
    /// The store has no other worker, ever.
    pub(crate) alone: bool,
    /// What the index was like when the batch began.
    pub(crate) layout: Layout,
    /// Reads leave no trace in what is evicted first.
    pub(crate) traceless: bool,
    /// What this batch's hints carry.
    pub(crate) mark: Mark,
}

impl Worker {
    pub(crate) fn new(store: Arc<Store>, id: usize) -> Worker {
        let share = store.arena.limit_bytes() / MAGAZINE_SHARE / store.counters.len() as u64;
        let local = Local {
            id,
            now: 0,
            // The first has no class: classes count from 1.
            magazines: (0..=CLASSES).map(|class| Magazine::new(ClassId(class.max(1) as u8))).collect(),
            magazine_bytes: 0,
            magazine_bytes_max: share as usize,
            recalled: 0,
            limbo: Limbo::new(),
            fresh: Vec::with_capacity(FRESH_MAX),
            drain: None,
            lingering: Vec::new(),
            spans_moved: 0,
            looked_at: 0,
            vain_epoch: 0,
            gave_way_epoch: 0,
            vain_until: 0,
            patient: true,
            asked_again: false,
            looks_ahead: false,
            comes: false,
            later_epoch: 0,
            asks: 0,
            fed: None,
            transaction: Transaction::default(),
            spared: None,
            mark: Mark::new(),
            cleaning: Cleaning::default(),
            step_chunks: None,
            pieces_left: BATCH_PIECES,
            beside_ns: 0,
            events: EventBuffer::default(),
            givings: Vec::new(),
            called: Called::default(),
            copy: Vec::new(),
            builder: Builder::default(),
            due: Vec::with_capacity(DUE_MAX),
            timed: Vec::new(),
            takes_out: false,
            found_collection: false,
            edit: Edit::default(),
            relabeled: Vec::new(),
            leaving: [0; 2],
            #[cfg(test)]
            refuse_after: None,
            #[cfg(test)]
            refusals: u32::MAX,
        };
        Worker { store, local }
    }

    /// Enters a batch at time `now`. Costs a store and a fence: once a receive, not once a request.
    #[inline]
    pub fn enter(&mut self, now: Millis) -> Guard<'_> {
        let Worker { store, local } = self;
        local.enter_batch(store);
        local.now = now;
        local.pieces_left = BATCH_PIECES;
        if local.recalled != store.recall.load(Ordering::Relaxed) {
            local.answer_recall(store);
        }
        Guard {
            store,
            arc: store,
            counters: local.counters(store),
            mark: local.mark,
            local,
            now,
            now_s: store.accesses.seconds(now),
            alone: store.counters.len() == 1,
            layout: store.index.gate.layout(),
            traceless: false,
        }
    }

    /// Sets whether an allocation may wait for memory for as long as it may come: a second. Otherwise it waits some
    /// milliseconds, and not again for what did not come then: for where a thread waits for this worker meanwhile.
    pub fn set_patient(&mut self, patient: bool) {
        self.local.patient = patient;
    }

    /// Sets whether the caller retries a request that is refused memory which may still come ([`Guard::memory_comes`]), where
    /// others wait for this worker: then it does not sleep for it. Not in transactions, which wait some 10 ms, nor where an
    /// item gets another shape.
    pub fn set_asked_again(&mut self, asked_again: bool) {
        self.local.asked_again = asked_again;
    }

    /// Before a long sleep: gives back all free chunks, so that a worker without work holds none
    /// that another needs.
    pub fn rest(&mut self) {
        let Worker { store, local } = self;
        local.enter_batch(store);
        local.queue_fresh(store);
        local.stop_drains(store);
        local.answer_recall(store);
        // All of it: no thread waits for a worker that is about to sleep.
        while local.recalled != store.recall.load(Ordering::Relaxed) {
            local.answer_recall(store);
        }
        local.leave_batch(store);
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

impl Guard<'_> {
    /// True if the last write that found no memory had better be retried in some milliseconds.
    pub fn memory_comes(&self) -> bool {
        self.local.comes
    }

    /// Says that a request was retried for long enough: what others hold is not waited for again for a while.
    pub fn memory_did_not_come(&mut self) {
        self.local.comes = false;
        self.local.note_vain(self.store);
    }

    /// As [`Guard::memory_did_not_come`], for a request that is refused without another look:
    /// counted as one for which memory ran out, of no class.
    pub fn memory_ran_out(&mut self) {
        self.memory_did_not_come();
        self.counters.out_of_memory.add(1);
    }

    /// Runs `f`, whose requests are not retried: it sleeps for memory, some milliseconds if others wait for this worker.
    pub fn asking_once<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let asked_again = std::mem::replace(&mut self.local.asked_again, false);
        let done = f(self);
        self.local.asked_again = asked_again;
        done
    }

    /// Sets whether a refused request may be retried, as [`Worker::set_asked_again`]; returns the setting before.
    pub fn ask_again(&mut self, again: bool) -> bool {
        std::mem::replace(&mut self.local.asked_again, again)
    }

    /// What this worker did beside what it was asked for, since this was last called, in nanoseconds that it takes about:
    /// counted, and not measured. That is cleaning segments of the index after a flush, rebuilding them to grow, and taking
    /// back what is freed some at a time: collections, large values and blocks, pins.
    #[inline(always)]
    pub fn take_beside_ns(&mut self) -> u64 {
        let ns = self.local.beside_ns;
        if ns > 0 {
            self.local.beside_ns = 0;
        }
        ns
    }

    /// Has hints that were made before say nothing: the batch was left and entered again.
    #[cold]
    pub(crate) fn forget_hints(&mut self) {
        self.local.mark = Mark::new();
        self.mark = self.local.mark;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.local.finish(self.store);
        self.local.leave_batch(self.store);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let Worker { store, local } = self;
        local.enter_batch(store);
        local.queue_fresh(store);
        local.stop_drains(store);
        // Other workers may still be inside a batch that sees these: wait for them, as they do not
        // wait for us.
        let mut wait = Wait::for_memory();
        local.pieces_left = usize::MAX;
        local.pass_epochs(store);
        while local.limbo.len() > 0 {
            // A pass takes back so many chunks, and there may be more.
            if !local.limbo.look(&store.epochs) {
                local.wait(store, &mut wait);
            }
            local.pass_epochs(store);
        }
        local.leave_batch(store);
        for class in ClassId::all() {
            local.empty_magazine(store, class);
        }
        if store.leave_worker(local.id) {
            store.unpin_rest();
            store.free_rest();
        }
    }
}

impl Local {
    #[inline]
    pub(crate) fn counters<'s>(&self, store: &'s Store) -> &'s WorkerCounters {
        &store.counters[self.id]
    }

    /// Locks the home bucket of a hash, also where this worker's transaction has it; waits for
    /// other transactions. The caller holds no reference into the arena.
    #[inline]
    pub(crate) fn lock<'s>(&mut self, store: &'s Store, hash: u64) -> Locked<'s> {
        // A key that the transaction did not begin with is locked like any other, unless it is at home beside one: that its
        // bucket is in a transaction does not say in whose.
        let own = if self.transaction.open { self.lock_of_transaction(store, hash) } else { None };
        if let Some(locked) = own {
            return locked;
        }
        match store.index.lock_open(&store.arena, hash) {
            Some(locked) => locked,
            None => self.lock_later(store, hash),
        }
    }
}
