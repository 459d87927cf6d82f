//! A worker's own part: magazines, and the queue of chunks that wait for their epoch.
//!
//! ```text
//! allocate: magazine → spans of the class → arena → what the epochs set free → evict → drain a span
//! retire:   limbo … once its epoch has passed → magazine → spans
//! ```
//!
//! Nothing here holds a bucket's lock while it allocates or evicts; eviction itself locks one
//! bucket at a time.

use crate::arena::Arena;
use crate::class::{CHUNK_BYTES_MAX, CLASSES, ClassId};
use crate::counters::WorkerCounters;
use crate::drain::Drain;
use crate::event::EventBuffer;
use crate::evict::Fresh;
use crate::index::Locked;
use crate::item::{Header, Kind, RawItem};
use crate::large::Large;
use crate::limbo::{Limbo, Outgoing};
use crate::read::prefetch;
use crate::slab::{Magazine, poison_chunk, unpoison_chunk};
use crate::transaction::Transaction;
use crate::{Eviction, Millis, Store};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Chunks that may wait although their epoch has passed: they are the next to be used again. They have
/// no more bytes than the magazines may.
const LIMBO_CHUNKS_MAX: usize = 256;
/// Chunks taken back at a time.
const RECLAIM_CHUNKS: usize = 32;
/// Rounds of evicting before an allocation fails: about a second, far more than it takes unless all
/// is pinned or a worker is kept from running inside its batch.
const ALLOCATE_ROUNDS_MAX: usize = 8192;
/// Rounds after which a round gives up the core: another worker's batch holds the epoch back.
const ALLOCATE_ROUNDS_BUSY: usize = 4;
/// Rounds after which it sleeps: that worker does not run, and may not for some milliseconds.
const ALLOCATE_ROUNDS_SLEEP: usize = 64;
/// How long it sleeps.
const ALLOCATE_SLEEP: std::time::Duration = std::time::Duration::from_micros(100);
/// Rounds without success in the class itself before a span is taken from another.
const ALLOCATE_ROUNDS_OWN: usize = 3;
/// Rounds in which a class to which another gives evicts of its own only what is overdue.
const ALLOCATE_ROUNDS_GIVEN: usize = 2;
/// Steps of expiring that an allocation takes before it looks what they left in other classes, …
const ALLOCATE_EXPIRE_STEPS: usize = 16;
/// … and before it evicts what lives.
const ALLOCATE_EXPIRE_STEPS_MAX: usize = 1024;
/// Spans that it gathers from what has expired in other classes.
const ALLOCATE_SPARES_MAX: usize = 8;
/// All magazines together hold at most one part in this many of the memory limit.
const MAGAZINE_SHARE: u64 = 64;
/// Chunks drained in a round while the limit is passed.
const SHRINK_CHUNKS: usize = 1024;
/// New keys that wait to be put on probation together.
pub(crate) const FRESH_MAX: usize = 16;

/// What only this worker's thread touches.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) id: usize,
    /// The time of this batch.
    pub(crate) now: Millis,
    magazines: Box<[Magazine]>,
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
    /// The epoch when they were last looked at.
    pub(crate) looked_at: u64,
    /// Allocations since a donor was looked for in vain.
    pub(crate) asks: u32,
    /// The keys that are written at once.
    pub(crate) transaction: Transaction,
    /// The hash of a key that is not evicted for what this worker allocates.
    pub(crate) spared: Option<u64>,
    /// What happened without being asked for.
    pub(crate) events: EventBuffer,
    /// Room for the small value that an append reads while it writes the longer one.
    pub(crate) copy: Vec<u8>,
}

/// The part of one thread: `Send`, not shared.
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
    pub(crate) now: Millis,
    pub(crate) now_s: u64,
    /// Reads leave no trace in what is evicted first.
    pub(crate) traceless: bool,
}

impl Worker {
    pub(crate) fn new(store: Arc<Store>, id: usize) -> Worker {
        let share = store.arena.limit_bytes() / MAGAZINE_SHARE / store.counters.len() as u64;
        let local = Local {
            id,
            now: 0,
            // The first is nobody's: classes count from 1.
            magazines: (0..=CLASSES).map(|class| Magazine::new(ClassId(class.max(1) as u8))).collect(),
            magazine_bytes: 0,
            magazine_bytes_max: share as usize,
            recalled: 0,
            limbo: Limbo::new(),
            fresh: Vec::with_capacity(FRESH_MAX),
            drain: None,
            lingering: Vec::new(),
            looked_at: 0,
            asks: 0,
            transaction: Transaction::default(),
            spared: None,
            events: EventBuffer::default(),
            copy: Vec::new(),
        };
        Worker { store, local }
    }

    /// Enters a batch at time `now`. Costs a store and a fence: once a receive, not once a request.
    #[inline]
    pub fn enter(&mut self, now: Millis) -> Guard<'_> {
        self.store.enter_batch(self.local.id);
        let Worker { store, local } = self;
        local.now = now;
        if local.recalled != store.recall.load(Ordering::Relaxed) {
            local.answer_recall(store);
        }
        Guard { store, arc: store, local, now, now_s: now / 1000, traceless: false }
    }

    /// Before a long sleep: gives back all free chunks, so that a worker without work holds none
    /// that another needs.
    pub fn rest(&mut self) {
        let Worker { store, local } = self;
        store.enter_batch(local.id);
        local.queue_fresh(store);
        local.stop_drains(store);
        local.answer_recall(store);
        store.leave_batch(local.id);
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.local.finish(self.store);
        self.store.leave_batch(self.local.id);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let Worker { store, local } = self;
        store.enter_batch(local.id);
        local.queue_fresh(store);
        local.stop_drains(store);
        // Other workers may still be inside a batch that sees these: wait for them, as they do not
        // wait for us.
        while local.limbo.len() > 0 {
            local.pass_epochs(store);
            if local.limbo.len() > 0 {
                std::thread::yield_now();
            }
        }
        store.leave_batch(local.id);
        for class in ClassId::all() {
            local.empty_magazine(store, class);
        }
        store.leave_worker(local.id);
    }
}

impl Local {
    #[inline]
    pub(crate) fn counters<'s>(&self, store: &'s Store) -> &'s WorkerCounters {
        &store.counters[self.id]
    }

    /// Locks the home bucket of a hash; in a transaction, which has it to itself, without a lock. The
    /// caller holds no reference into the arena.
    #[inline]
    pub(crate) fn lock<'s>(&mut self, store: &'s Store, hash: u64) -> Locked<'s> {
        if self.transaction.open {
            return store.index.lock_held(&store.arena, hash);
        }
        match store.index.lock_open(&store.arena, hash) {
            Some(locked) => locked,
            None => self.lock_later(store, hash),
        }
    }

    /// A chunk of `class` for `requested` bytes; `None` when memory is out.
    #[inline]
    pub(crate) fn allocate(&mut self, store: &Store, class: ClassId, requested: usize) -> Option<u64> {
        let magazine = &mut self.magazines[class.0 as usize];
        let Some(chunk) = magazine.pop() else {
            return self.allocate_slow(store, class, requested);
        };
        // A lock is a barrier: what is written before it had better be written by then.
        let next = store.arena.at(magazine.next()).as_ptr().cast_const();
        prefetch(next);
        prefetch(next.wrapping_add(64));
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
        // What came with it is allocated before this is called again.
        let chunks = 1 + self.magazines[class.0 as usize].len();
        store.clock_bytes.fetch_add((chunks * class.chunk_bytes()) as u64, Ordering::Relaxed);
        self.count_used(store, class, requested);
        unpoison_chunk(&store.arena, class, chunk);
        Some(chunk)
    }

    /// A free chunk, at the price of what is worth less.
    fn make_chunk(&mut self, store: &Store, class: ClassId) -> Option<u64> {
        let (mut expiring, mut spared, mut evicted) = (0, 0, 0);
        // Rounds, and those of them in which it looked for more than what was on its way.
        let (mut round, mut tries) = (0, 0);
        let spares = matches!(store.eviction(), Eviction::Volatile | Eviction::VolatileTtl);
        while round < ALLOCATE_ROUNDS_MAX {
            // What the epochs have set free since comes first: it is in this core's cache.
            self.reclaim(store, RECLAIM_CHUNKS);
            if let Some(chunk) = self.take_free(store, class) {
                return Some(chunk);
            }
            if self.limbo.len() > 0 {
                self.pass_epochs(store);
                if let Some(chunk) = self.take_free(store, class) {
                    return Some(chunk);
                }
            }
            if self.recalled != store.recall.load(Ordering::Relaxed) {
                self.answer_recall(store);
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
            if !store.evicts() {
                break;
            }
            // After the limit was lowered there is a span to give back in every round.
            let over = store.arena.over_items_limit();
            let shrinking = over > 0;
            if spares && !shrinking {
                // What is on its way comes while others get on; what must stay does not come by waiting.
                let all_stays = round == ALLOCATE_ROUNDS_SLEEP && evicted == 0 && self.limbo.len() == 0;
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
            if round >= ALLOCATE_ROUNDS_BUSY && (!shrinking || waits) {
                // Outside meanwhile, so as not to hold back another that waits like this.
                store.epochs.leave(self.id);
                if round >= ALLOCATE_ROUNDS_SLEEP {
                    std::thread::sleep(ALLOCATE_SLEEP);
                } else {
                    std::thread::yield_now();
                }
                store.epochs.enter(self.id);
            }
            round += 1;
            // Another's batch holds back what went already: more would wait for it, too. A batch that was
            // interrupted would cost the whole cache.
            if tries > 0 && self.limbo.len() > 0 {
                continue;
            }
            // A younger class takes from the oldest, in steps; meanwhile it evicts its own.
            let given = !shrinking && self.arbitrate(store, class, tries);
            let own = if tries >= ALLOCATE_ROUNDS_OWN {
                0
            } else if given && tries < ALLOCATE_ROUNDS_GIVEN {
                self.evict_overdue(store, self.now, class, Magazine::capacity(class).div_ceil(2))
            } else {
                self.evict(store, self.now, class)
            };
            evicted += own;
            // Then at any price, and ever more rarely: what uploads and pins keep comes by waiting, and
            // draining on meanwhile would empty the cache.
            let patient = tries >= ALLOCATE_ROUNDS_OWN && !shrinking && tries < 2 * ALLOCATE_ROUNDS_BUSY;
            if own == 0 && (patient || tries.is_power_of_two() && tries > 1) {
                self.drain_for(store, class);
            }
            tries += 1;
        }
        if spares {
            // What comes free in the spans that were tried is to be had.
            self.stop_drains(store);
        }
        store.slabs.class(class).out_of_memory += 1;
        self.counters(store).out_of_memory.add(1);
        None
    }

    /// A free chunk from the magazine, the class's spans, or a free span.
    fn take_free(&mut self, store: &Store, class: ClassId) -> Option<u64> {
        let magazine = &mut self.magazines[class.0 as usize];
        if let Some(chunk) = magazine.pop() {
            self.magazine_bytes -= class.chunk_bytes();
            return Some(chunk);
        }
        let room = self.magazine_bytes_max.saturating_sub(self.magazine_bytes) / class.chunk_bytes();
        let taken = store.slabs.class(class).fill(&store.arena, magazine, room, store.moment(self.now), true);
        self.magazine_bytes += taken * class.chunk_bytes();
        let chunk = self.magazines[class.0 as usize].pop()?;
        self.magazine_bytes -= class.chunk_bytes();
        Some(chunk)
    }

    /// Gives back a chunk that nobody else ever could see.
    pub(crate) fn free_unseen(&mut self, store: &Store, chunk: u64) {
        // SAFETY: the chunk is this worker's.
        let item = unsafe { RawItem::new(store.arena.at(chunk)) };
        if is_large(item) {
            // SAFETY: a large draft has its head.
            let large = unsafe { Large::of(item) };
            large.chunks(&store.arena, &mut |piece| self.recycle(store, piece));
            store.free_key(item);
        }
        self.recycle(store, chunk);
    }

    /// Takes an unlinked item's chunk; it is used again once no worker can see it.
    #[inline]
    pub(crate) fn retire(&mut self, store: &Store, chunk: u64) {
        // SAFETY: reachable until a moment ago, in this epoch.
        let item = unsafe { RawItem::new(store.arena.at(chunk)) };
        let header = item.header();
        let (class, requested) = chunk_facts(&store.arena, chunk);
        self.retire_known(item, header, chunk, class, requested);
    }

    /// As [`Local::retire`], with what is known about the item.
    #[inline(always)]
    pub(crate) fn retire_known(
        &mut self,
        item: RawItem,
        header: Header,
        chunk: u64,
        class: ClassId,
        requested: usize,
    ) {
        self.limbo.push(Outgoing::new(chunk, class, requested, header.kind() == Kind::Large));
        // A reader's FETCHED that this overwrites is of no use any more.
        item.header_word().store(header.retired().0, Ordering::Release);
    }

    /// Takes one chunk of an item that has a copy elsewhere; `left` is its header from now on.
    pub(crate) fn retire_alone(
        &mut self,
        item: RawItem,
        left: Header,
        chunk: u64,
        class: ClassId,
        requested: usize,
    ) {
        self.limbo.push(Outgoing::new(chunk, class, requested, false));
        item.header_word().store(left.0, Ordering::Release);
    }

    /// Between two requests of a batch: lets go of the epoch now and then, if chunks wait for it.
    /// The caller holds no reference into the arena.
    #[inline]
    pub(crate) fn breathe(&mut self, store: &Store) {
        if self.limbo.group_is_full() {
            self.let_go(store);
        }
    }

    /// Tags a group of chunks. The epochs are moved on only when those that wait longest would soon be
    /// wanted: each of their steps is a line that goes from core to core.
    fn let_go(&mut self, store: &Store) {
        self.limbo.seal(&store.epochs);
        store.epochs.renew(self.id);
        let bytes_max = self.magazine_bytes_max as u64;
        if (self.limbo.len() > LIMBO_CHUNKS_MAX / 2 || self.limbo.bytes() > bytes_max / 2)
            && !self.limbo.oldest_is_safe(&store.epochs)
            && store.epochs.advance()
        {
            store.epochs.enter(self.id);
        }
        if self.limbo.len() > LIMBO_CHUNKS_MAX || self.limbo.bytes() > bytes_max {
            self.reclaim(store, RECLAIM_CHUNKS * 2);
        }
    }

    /// Steps out of the epoch and in again, moves the epochs on as far as they go, and takes back
    /// all that they set free. The caller holds no reference into the arena.
    pub(crate) fn pass_epochs(&mut self, store: &Store) {
        self.limbo.seal(&store.epochs);
        for _ in 0..2 {
            store.epochs.enter(self.id);
            if !store.epochs.advance() {
                break;
            }
        }
        store.epochs.enter(self.id);
        self.reclaim(store, usize::MAX);
    }

    /// Takes back up to `count` chunks that the epochs have set free.
    fn reclaim(&mut self, store: &Store, count: usize) {
        // Out of `self` meanwhile: what is taken back goes to the magazines next to it.
        let mut limbo = std::mem::take(&mut self.limbo);
        // Chunks of one class in a row, which most are, are counted once.
        let (mut class, mut chunks, mut bytes) = (ClassId(1), 0, 0);
        limbo.take_safe(&store.epochs, count, |chunk| {
            if chunk.large() {
                // SAFETY: no worker can see the item any more; its memory is still whole.
                let large = unsafe { Large::of(RawItem::new(store.arena.at(chunk.location()))) };
                if large.head().pins.kill() {
                    self.free_unseen(store, chunk.location());
                }
                // Else somebody is sending it, and frees it when done.
            } else {
                if chunk.class() != class {
                    self.count_free(store, class, chunks, bytes);
                    (class, chunks, bytes) = (chunk.class(), 0, 0);
                }
                chunks += 1;
                bytes += chunk.requested();
                self.put_away(store, chunk.location(), class);
            }
        });
        self.count_free(store, class, chunks, bytes);
        self.limbo = limbo;
    }

    /// Puts one chunk into its magazine.
    fn recycle(&mut self, store: &Store, chunk: u64) {
        let (class, requested) = chunk_facts(&store.arena, chunk);
        self.count_free(store, class, 1, requested);
        self.put_away(store, chunk, class);
    }

    /// Counts chunks of a class as free.
    #[inline]
    fn count_free(&self, store: &Store, class: ClassId, chunks: i64, bytes: usize) {
        let count = self.counters(store).class(class);
        count.used_chunks.add(-chunks);
        count.requested_bytes.add(-(bytes as i64));
    }

    #[inline]
    fn put_away(&mut self, store: &Store, chunk: u64, class: ClassId) {
        // SAFETY: the chunk is free.
        let header = unsafe { RawItem::new(store.arena.at(chunk)) };
        header.header_word().store(Header::free(0).0, Ordering::Relaxed);
        poison_chunk(&store.arena, class, chunk);
        let draining = store.slabs.view(class).draining.load(Ordering::Relaxed) != 0
            && store.arena.span(Arena::span_of(chunk)).draining.load(Ordering::Relaxed) != 0;
        if draining
            || self.magazine_bytes + class.chunk_bytes() > self.magazine_bytes_max
            || !self.magazines[class.0 as usize].push(chunk)
        {
            return self.put_back(store, chunk, class, draining);
        }
        self.magazine_bytes += class.chunk_bytes();
    }

    /// The magazine has no place for the chunk, or it must not get it.
    #[cold]
    #[inline(never)]
    fn put_back(&mut self, store: &Store, chunk: u64, class: ClassId, draining: bool) {
        if draining || self.magazine_bytes + class.chunk_bytes() > self.magazine_bytes_max {
            store.slabs.class(class).give(&store.arena, chunk);
            return;
        }
        self.give_older_half(store, class);
        let pushed = self.magazines[class.0 as usize].push(chunk);
        debug_assert!(pushed);
        self.magazine_bytes += class.chunk_bytes();
    }

    fn give_older_half(&mut self, store: &Store, class: ClassId) {
        let (chunks, count) = self.magazines[class.0 as usize].older_half();
        self.magazine_bytes -= count * class.chunk_bytes();
        let mut slab = store.slabs.class(class);
        for &chunk in &chunks[..count] {
            slab.give(&store.arena, chunk);
        }
    }

    /// Gives all free chunks of a class back to their spans.
    pub(crate) fn empty_magazine(&mut self, store: &Store, class: ClassId) {
        let mut slab = None;
        while let Some(chunk) = self.magazines[class.0 as usize].pop() {
            self.magazine_bytes -= class.chunk_bytes();
            slab.get_or_insert_with(|| store.slabs.class(class)).give(&store.arena, chunk);
        }
    }

    /// Gives back all free chunks it can: another worker drains spans, and this one may hold some of
    /// theirs. The caller holds no reference into the arena.
    #[cold]
    pub(crate) fn answer_recall(&mut self, store: &Store) {
        self.recalled = store.recall.load(Ordering::Relaxed);
        self.pass_epochs(store);
        for class in ClassId::all() {
            self.empty_magazine(store, class);
        }
    }

    /// Chunks waiting for their epoch.
    pub(crate) fn limbo_chunks(&self) -> usize {
        self.limbo.len()
    }
}

fn is_large(item: RawItem) -> bool {
    let header = item.header();
    // A draft of a large value says so by its kind in the mark that `large` drafts carry.
    header.kind() == Kind::Large || header.kind() == Kind::Draft && header.has(crate::item::DRAFT_LARGE)
}

/// The class that an item counts in, given its header and its chunk: its chunk's, or that of its pieces,
/// which have its memory.
#[inline]
pub(crate) fn class_of(arena: &Arena, header: Header, chunk: u64) -> ClassId {
    if header.kind() == Kind::Large {
        return ClassId::of(CHUNK_BYTES_MAX);
    }
    ClassId(arena.span(Arena::span_of(chunk)).owner.load(Ordering::Relaxed))
}

/// Class of a chunk and bytes in use in it, by its header.
pub(crate) fn chunk_facts(arena: &Arena, chunk: u64) -> (ClassId, usize) {
    let class = ClassId(arena.span(Arena::span_of(chunk)).owner.load(Ordering::Relaxed));
    // SAFETY: the caller owns the chunk.
    let item = unsafe { RawItem::new(arena.at(chunk)) };
    let header = item.header();
    let requested = match header.kind() {
        Kind::Piece => header.piece_bytes() + 8,
        // SAFETY: a large item or draft has its head.
        _ if is_large(item) => unsafe { Large::of(item) }.head_bytes(),
        Kind::Free | Kind::Draft | Kind::Whole | Kind::Large => item.whole_bytes(),
    };
    (class, requested)
}

impl Store {
    /// Frees the key of a large item that nobody can see any more, if it is on the heap. Its length
    /// stays in the item.
    fn free_key(&self, item: RawItem) {
        // SAFETY: the caller owns the item and is about to free it.
        let bytes = unsafe { item.free_key() };
        if bytes > 0 {
            self.key_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
            self.arena.charge(-(bytes as i64));
        }
    }
}

/// Frees a chunk without a worker, after its last pin or with an abandoned upload: straight to its
/// span, under the class's lock.
pub(crate) fn free_alone(store: &Store, chunk: u64) {
    // SAFETY: nobody else can see the chunk.
    let item = unsafe { RawItem::new(store.arena.at(chunk)) };
    let mut chunks = vec![chunk];
    if is_large(item) {
        // SAFETY: a large item or draft has its head.
        unsafe { Large::of(item) }.chunks(&store.arena, &mut |piece| chunks.push(piece));
        store.free_key(item);
    }
    // The head last: it says where the pieces are.
    for chunk in chunks.into_iter().rev() {
        let (class, requested) = chunk_facts(&store.arena, chunk);
        let count = store.loose.class(class);
        count.used_chunks.add_shared(-1);
        count.requested_bytes.add_shared(-(requested as i64));
        poison_chunk(&store.arena, class, chunk);
        store.slabs.class(class).give(&store.arena, chunk);
    }
}
