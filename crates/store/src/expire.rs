//! Expiry: spans whose items have passed their time are visited, some items a step.
//!
//! ```text
//! due ──▶ cleared ──▶ (every worker has left its batch) ──▶ chunk by chunk: expired? gone
//!  ▲                                                                       else: counted by when
//!  └────────── when the next 1/32 of the span's bytes will have expired ◀──────────┘
//! ```
//!
//! A visit reads every item of the span once; that 1/32 of it is worth one bounds both what is held
//! too long and how often it is read. Pieces of a large value lie elsewhere and have no expiry: they
//! count where its head is. A span whose items all have passed is emptied by its visit and goes back to
//! the arena.
//!
//! A hash whose key stays may have fields that are due. Upkeep takes them out ([`crate::Guard::maintain`]), where a worker
//! can build leaves; a worker that needs room leaves them for the next visit. Such a hash has its span visited when its first
//! field is due, but once a second at most.
//!
//! Between clearing the due time and looking at the items, every worker leaves its batch: one that
//! stored an item and found the old time early enough has published the item by then.

use crate::arena::{Arena, OWNER_INDEX, UNIT};
use crate::class::{ClassId, SPAN_BYTES};
use crate::collection::UPKEEP_STEPS;
use crate::evict::Reason;
use crate::item::{RawItem, earlier};
use crate::large::Large;
use crate::sync::atomic::Ordering;
use crate::wait::Wait;
use crate::worker::{DUE_MAX, Local};
use crate::{Millis, Store};

/// Chunks that a step looks at, about.
const STEP_CHUNKS: usize = 1024;
/// Items that a step takes out, about.
const STEP_ITEMS: usize = 128;
/// Items taken out together, their buckets prefetched; chunks looked at under one lock.
const BATCH: usize = 16;
/// A span is due when one part in this many of its bytes has expired.
const DUE_SHARE: u64 = 32;
/// A span is visited no sooner than this after its last visit.
const VISIT_PAUSE_MS: Millis = 100;
/// It is visited for fields no sooner than this.
const FIELDS_PAUSE_MS: Millis = 1000;
/// A worker that needs room and waits for another gives up the core so often, then sleeps once.
const WAITS_BUSY: u32 = 16;

/// The state of expiry; one worker at a time has it.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    visit: Option<Visit>,
    /// Where the next due span is looked for.
    next: u32,
}

/// A span being visited.
#[derive(Debug)]
struct Visit {
    number: u32,
    class: ClassId,
    /// The epoch in which its due time was cleared.
    tag: u64,
    /// The next chunk.
    chunk: usize,
    /// Bytes of large values and trees that stay and whose heads were seen.
    beside: u64,
    /// When the first field expires of the hashes that stay; 0 for never.
    fields_at: Millis,
    /// When those that stay will expire.
    later: Later,
}

/// Bytes of items by the time until they expire, in steps of 1/8.
#[derive(Debug)]
struct Later {
    bytes: [u64; Later::STEPS],
}

/// What a step of expiring found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing is due.
    Nothing,
    /// Another worker takes one.
    Taken,
    /// Another's batch has to end first.
    Wait,
    /// There may be more.
    Done,
}

impl Later {
    const STEPS: usize = 64 * 8;

    fn new() -> Later {
        Later { bytes: [0; Later::STEPS] }
    }

    fn add(&mut self, in_ms: Millis, bytes: u64) {
        let high = in_ms.max(8).ilog2() as usize;
        let step = high * 8 + ((in_ms.max(8) >> (high - 3)) & 7) as usize;
        self.bytes[step] += bytes;
    }

    /// The time after which `share` bytes will have expired, or all if they are fewer; none if there are
    /// none.
    fn until(&self, share: u64) -> Option<Millis> {
        let mut sum = 0;
        let mut last = None;
        for (step, &bytes) in self.bytes.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
            sum += bytes;
            // The end of the step; the last one's is out of reach.
            last = Some((((step % 8) as u64 + 9) << (step / 8).saturating_sub(3)).max(8));
            if sum >= share {
                break;
            }
        }
        last
    }
}

impl Local {
    /// Upkeep's bounded step of expiring; true if there may be more to do now.
    pub(crate) fn expire_in_passing(&mut self, store: &Store, now: Millis) -> bool {
        matches!(self.expire_step(store, now, true), Step::Wait | Step::Done)
    }

    /// A step for a worker that needs room, and would evict what lives otherwise: while another worker is at it, or
    /// in a batch that holds it back, this one waits a little. True if there may be more to do now.
    pub(crate) fn expire(&mut self, store: &Store, now: Millis) -> bool {
        let mut wait = Wait::for_memory_sleeping_from(WAITS_BUSY);
        for _ in 0..=WAITS_BUSY {
            match self.expire_step(store, now, false) {
                Step::Nothing => return false,
                Step::Done => return true,
                Step::Taken | Step::Wait => {}
            }
            self.wait(store, &mut wait);
        }
        true
    }

    /// Makes a step. `notes`: hashes whose fields are due are noted for upkeep.
    fn expire_step(&mut self, store: &Store, now: Millis, notes: bool) -> Step {
        if !store.arena.agenda().any(now) && !store.expiring.load(Ordering::Relaxed) {
            return Step::Nothing;
        }
        let Ok(mut expiry) = store.expiry.try_lock() else { return Step::Taken };
        let Expiry { visit, next } = &mut *expiry;
        if visit.is_none() {
            // Set before a due span is looked for, which is not in the agenda meanwhile.
            store.expiring.store(true, Ordering::Relaxed);
            *visit = self.next_visit(store, now, *next);
            store.expiring.store(visit.is_some(), Ordering::Relaxed);
        }
        let Some(current) = visit else { return Step::Nothing };
        *next = current.number;
        self.pass_epochs(store);
        if !store.epochs.safe(current.tag) {
            return Step::Wait;
        }
        if self.visit(store, now, current, notes) {
            *visit = None;
            store.expiring.store(false, Ordering::Relaxed);
        }
        self.pass_epochs(store);
        Step::Done
    }

    fn next_visit(&mut self, store: &Store, now: Millis, from: u32) -> Option<Visit> {
        loop {
            let number = store.arena.take_due(from, now)?;
            let owner = store.arena.span(number).owner.load(Ordering::Acquire);
            if owner != crate::arena::OWNER_FREE && owner != OWNER_INDEX {
                let tag = store.epochs.tag();
                return Some(Visit {
                    number,
                    class: ClassId(owner),
                    tag,
                    chunk: 0,
                    beside: 0,
                    fields_at: 0,
                    later: Later::new(),
                });
            }
        }
    }

    /// Goes on with a visit for one step; true if it is done.
    fn visit(&mut self, store: &Store, now: Millis, visit: &mut Visit, notes: bool) -> bool {
        let (arena, class) = (&store.arena, visit.class);
        let span = arena.span(visit.number);
        let first = visit.chunk;
        let mut items = 0;
        while visit.chunk - first < STEP_CHUNKS && items < STEP_ITEMS && !(notes && self.due.len() == DUE_MAX)
        {
            let mut expired = [0; BATCH];
            let (mut due, room) = ([0; DUE_MAX], DUE_MAX - self.due.len());
            let (mut count, mut dues) = (0, 0);
            let end;
            {
                // Under the lock the span stays with its class, and what is seen as an item is not
                // used again before this worker's epoch has passed.
                let _slab = store.slabs.class(class);
                if span.owner.load(Ordering::Relaxed) != class.0 {
                    return true;
                }
                let carved = usize::from(span.carved.load(Ordering::Relaxed));
                let stop = carved.min(visit.chunk + 4 * BATCH);
                while visit.chunk < stop && count < BATCH && !(notes && dues == room) {
                    let location =
                        Arena::location_of(visit.number) + (visit.chunk * class.chunk_bytes() / UNIT) as u64;
                    visit.chunk += 1;
                    // SAFETY: a carved chunk has a header word at all times.
                    let item = unsafe { RawItem::new(arena.at(location)) };
                    let header = item.header();
                    if !header.is_item() {
                        continue;
                    }
                    if item.expired_by(header, now) {
                        expired[count] = location;
                        count += 1;
                        continue;
                    }
                    if header.is_timed() {
                        // SAFETY: a published item, which stays whole for this worker's epoch.
                        let soonest = unsafe { item.soonest(header) };
                        visit.fields_at = earlier(visit.fields_at, soonest);
                        // SAFETY: as above.
                        if notes && unsafe { item.has_due(header, now) } {
                            due[dues] = location;
                            dues += 1;
                        }
                    }
                    let mut bytes = class.chunk_bytes() as u64;
                    if header.is_large() {
                        // SAFETY: a published item, which stays whole for this worker's epoch.
                        let value_bytes = unsafe { Large::of(item) }.head().value_bytes;
                        visit.beside += value_bytes;
                        bytes += value_bytes;
                    }
                    if header.is_tree() {
                        // SAFETY: as above.
                        let nodes_bytes = unsafe { item.root(header) }.bytes;
                        visit.beside += nodes_bytes;
                        bytes += nodes_bytes;
                    }
                    match item.expires_at() {
                        0 => {}
                        at => visit.later.add(at.saturating_sub(now), bytes),
                    }
                }
                end = visit.chunk >= carved;
            }
            let mut hashes = [0; BATCH];
            for (hash, &location) in hashes.iter_mut().zip(&expired[..count]) {
                *hash = store.hash_at(location);
                store.prefetch_home(*hash);
            }
            for (&location, &hash) in expired[..count].iter().zip(&hashes) {
                self.expire_at(store, now, hash, location);
            }
            items += count;
            for &location in &due[..dues] {
                self.due.push((store.hash_at(location), location, UPKEEP_STEPS));
            }
            if end {
                let share = (SPAN_BYTES as u64 + visit.beside) / DUE_SHARE;
                if let Some(in_ms) = visit.later.until(share) {
                    arena.note_span_expiry(visit.number, now + in_ms.max(VISIT_PAUSE_MS));
                }
                if visit.fields_at != 0 {
                    arena.note_span_expiry(visit.number, visit.fields_at.max(now + FIELDS_PAUSE_MS));
                }
                return true;
            }
        }
        self.counters(store).maintain_checked.add((visit.chunk - first) as i64);
        false
    }

    /// Takes out the item at a location, if it is still reachable there and its time has passed.
    fn expire_at(&mut self, store: &Store, now: Millis, hash: u64, location: u64) {
        let Some(mut locked) = store.index.lock_open(&store.arena, hash) else { return };
        let found = store.index.scan(&locked.place, locked.control, |slot| slot.location() == location);
        if let Some(found) = found {
            // SAFETY: reachable in this epoch.
            let item = unsafe { RawItem::new(store.arena.at(location)) };
            if item.expired(now) {
                self.count_reason(store, item, found.slot, store.accesses.seconds(now), Reason::Expired);
                self.unlink(store, &mut locked, &found);
            }
        }
        locked.home.unlock(locked.control);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::{Attributes, Config, Expect};

    #[test]
    fn a_share_of_the_bytes_says_when_a_span_is_due() {
        let mut later = Later::new();
        assert_eq!(later.until(1), None);
        for in_ms in 1..=1000 {
            later.add(in_ms, 100);
        }
        later.add(1 << 50, 1);
        for share in [10, 31, 100, 500, 1000] {
            let until = later.until(100 * share).unwrap();
            assert!(until >= share && until <= share + share / 8 + 8, "{share} at {until}");
        }
        let last = later.until(500_000).unwrap();
        assert!(last > 1 << 50 && last <= (1 << 50) + (1 << 47));
    }

    /// Between the look at a chunk and the lock of its bucket the item may be given more time.
    #[test]
    fn what_was_given_more_time_meanwhile_stays() {
        const NOW: Millis = 1_700_000_000_000;
        let store = Store::new(Config { memory_bytes: 4 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        let attributes = Attributes { expires_at: NOW + 10, ..Attributes::default() };
        guard.store_value(&key, b"value", &attributes, Expect::Absent).unwrap();
        let location = guard.peek(&key).hit().unwrap().slot.location();
        guard.touch(&key, NOW + 1000).unwrap();
        guard.local.expire_at(&store, NOW + 11, key.hash, location);
        assert!(guard.peek(&key).hit().is_some());
        guard.local.expire_at(&store, NOW + 1001, key.hash, location);
        assert!(guard.peek(&key).hit().is_none());
    }
}
