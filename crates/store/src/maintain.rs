//! Upkeep in bounded steps, on worker ticks: no thread of its own.
//!
//! A step visits one segment of the index. It ages last-access codes, rebuilds the segment if the step before has found it
//! sparse, or takes out some of what was flushed, and gives spans back after the limit was lowered. Steps are paced so that the
//! whole index is passed within [`access::SWEEP_PERIOD_S`], or as fast as the caller calls while a flush is being cleaned up.
//!
//! What a step does at most; the accesses to shared words that follow from it by reckoning (`tests/schedules/upkeep.rs`
//! counts them; most words are in a cache, and take two to three nanoseconds each on the mean); and the time:
//!
//! ```text
//! ages a segment        14 pages, and writes all its slots       14,000     50 µs
//! rebuilds one          14 pages become 13                       30,000    100
//! cleans a part of one  64 buckets of 896, 400 items             35,000     70
//! expires, moves        128 items                                15,000     50
//! takes out fields      12 leaves, and 256 nodes                 20,000     80
//! takes apart           64 chunks                                 3,000     20
//! drops pins            256 chunks                              12,000     40
//! frees a block's end   1 MiB                                        10     60
//! takes back            512 chunks, beside one of the others     18,000     50
//! ```

use crate::Millis;
use crate::access;
use crate::bucket::SLOTS;
use crate::compact::Compaction;
use crate::drain::LINGERING_MAX;
use crate::held::PEAK_MS;
use crate::index::Sparse;
use crate::sync::atomic::Ordering;
use crate::wait::Wait;
use crate::worker::{Guard, STEP_CHUNKS};
use crate::write::Rebuild;

/// Chunks drained in a step of upkeep after the limit was lowered: most of what is in them is evicted.
const STEP_SHRINK_CHUNKS: usize = 128;
/// The same where items give way to memory that was taken beside them: some 50 µs.
const SHRINK_CHUNKS: usize = 256;
/// When memory was taken beside the items, one call makes at most so many steps in which they give way.
/// After the limit was lowered, all workers' turns and upkeep together reach it, and not the next request alone.
const GIVE_WAY_ROUNDS_MAX: usize = 16;
/// One part in this many of the limit may be passed without waiting for other workers.
const OWED_SHARE: u32 = 64;
/// Beyond that, other workers' batches are waited for: so often by giving up the core, and in all so often, by sleeping.
const GIVE_WAY_WAITS_BUSY: u32 = 8;
const GIVE_WAY_WAITS_MAX: u32 = 24;
/// A clock that moved this far between two steps was set by hand or by the system. That is not counted as time without an access.
const CLOCK_JUMP_S: u64 = 64;

/// Whether the index is sparse is looked at this often: some microseconds.
const LOOK_MS: Millis = 100;
/// And after a pass that made it no smaller.
const LOOK_PAUSE_MS: Millis = 5_000;

/// While requests come, a sparse segment is rebuilt this often at most: the requests of some 100 µs wait for one.
const REBUILD_PAUSE_MS: Millis = 10;

/// A segment that may have too many pages: the next step rebuilds it.
#[derive(Clone, Copy, Debug)]
struct Rebuilding {
    /// Its items, if they were counted.
    items: Option<usize>,
    /// The segment behind it, as a hash.
    next: u64,
}

/// Free spans whose memory a step gives to the system.
const TRIM_SPANS: usize = 4;

/// Where upkeep stands; one worker at a time has it.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    /// The next segment, as a hash.
    cursor: u64,
    /// When this pass over the index began.
    started_s: u64,
    /// The stamp at that time.
    stamp: u64,
    compaction: Compaction,
    /// When the last step was made.
    last_s: u64,
    running: bool,
    /// Slots of the index when this pass began.
    slots: u64,
    /// The next segment has nothing any more that was flushed before this pass.
    is_clean: bool,
    /// The next segment was looked at.
    rebuilding: Option<Rebuilding>,
    /// The index is sparse as a whole: the pass goes as fast as it is called.
    hurried: bool,
    /// When that is looked at again.
    look_at: Millis,
    /// When the next segment may be rebuilt for that beside requests.
    rebuild_at: Millis,
    /// When what buffers are charged may fall again.
    lower_at: Millis,
}

impl Guard<'_> {
    /// Does a bounded piece of upkeep, some 50 µs; 150 µs at most, where it rebuilds a segment and takes back chunks. True when
    /// there is more to do now.
    pub fn maintain(&mut self) -> bool {
        self.step(false)
    }

    /// As [`Guard::maintain`] while requests come, one in a hundred of which may meet a rebuilding.
    pub fn maintain_beside_requests(&mut self) -> bool {
        self.step(true)
    }

    fn step(&mut self, beside_requests: bool) -> bool {
        let beside_ns = self.local.beside_ns;
        self.local.step_chunks = Some(STEP_CHUNKS);
        let more = self.step_of_upkeep(beside_requests);
        // The caller that asks for upkeep counts it as that.
        self.local.beside_ns = beside_ns;
        // There may be more to take back than a step may.
        let used_up = self.local.step_chunks.take() == Some(0);
        more || used_up
    }

    fn step_of_upkeep(&mut self, beside_requests: bool) -> bool {
        let store = self.store;
        self.local.queue_fresh(store);
        self.end_watches();
        self.local.leave_if_due(store);
        if self.take_all_due() {
            return true;
        }
        if self.local.expire_in_passing(store, self.now) {
            return true;
        }
        // Blocks do not wait until no collection is left to be taken apart.
        if self.local.free_some(store) || self.local.take_apart(store) {
            return true;
        }
        if store.arena.trim(TRIM_SPANS) {
            return true;
        }
        let Ok(mut upkeep) = store.upkeep.try_lock() else { return false };
        if self.now >= upkeep.lower_at || self.now + PEAK_MS < upkeep.lower_at {
            upkeep.lower_at = self.now + PEAK_MS;
            store.lower_held();
        }
        self.local.let_go_of_leftovers(store);
        let flushing = store.stamp_count() != store.cleaned.load(Ordering::Relaxed);
        let over = store.arena.over_limit();
        // What is kept of keys that are gone must not have the last item give way to it.
        if over > 0 {
            store.free_retired_ghosts();
            if self.local.thin_out_crowded(store) {
                return true;
            }
        }
        // What a flush has left is cleaned beside it: that frees memory where a policy may evict nothing.
        if over > 0 && store.evicts() && self.local.shrink(store, over, STEP_SHRINK_CHUNKS) && !flushing {
            return true;
        }
        let lingers = !self.local.lingering.is_empty();
        if lingers || self.local.limbo_chunks() > 0 {
            self.local.pass_epochs(store);
        }
        // What they wait for comes with the ends of other workers' batches.
        let looks = lingers && store.epochs.safe(self.local.looked_at);
        if looks {
            self.local.looked_at = store.epochs.now();
            self.local.look_at_lingering(store, false);
        }
        if store.arena.give_spare() || self.local.compact(store, &mut upkeep.compaction) {
            return true;
        }
        // A few looks more, and compaction goes on.
        if looks && self.local.lingering.len() >= LINGERING_MAX {
            return true;
        }
        let now_s = self.now / 1000;
        if upkeep.last_s != 0 && now_s.abs_diff(upkeep.last_s) >= CLOCK_JUMP_S {
            store.accesses.note_set(upkeep.last_s, now_s);
            self.now_s = store.accesses.seconds(self.now);
            upkeep.running = false;
        }
        upkeep.last_s = now_s;
        if self.now >= upkeep.look_at || self.now + LOOK_PAUSE_MS < upkeep.look_at {
            upkeep.look_at = self.now + LOOK_MS;
            upkeep.hurried = store.index.is_sparse_in_all(store.items());
            if store.ghosts.is_made() {
                store.fit_ghosts();
            }
        }
        let hurried = upkeep.hurried;
        if !upkeep.running {
            let due = now_s >= upkeep.started_s + access::SWEEP_PERIOD_S || now_s < upkeep.started_s;
            if !due && !flushing && !hurried {
                return false;
            }
            *upkeep = crate::maintain::Upkeep {
                cursor: 0,
                started_s: now_s,
                stamp: store.stamp_count(),
                last_s: now_s,
                slots: store.index.slots(),
                running: true,
                is_clean: false,
                rebuilding: None,
                look_at: upkeep.look_at,
                rebuild_at: upkeep.rebuild_at,
                lower_at: upkeep.lower_at,
                hurried,
                compaction: std::mem::take(&mut upkeep.compaction),
            };
        }
        // In hash order a share of the time is a share of the cursor.
        let passed = (now_s.saturating_sub(upkeep.started_s) + 1).min(access::SWEEP_PERIOD_S);
        let target = u64::MAX / access::SWEEP_PERIOD_S * passed;
        if !flushing && !hurried && upkeep.cursor > target {
            return false;
        }
        if flushing && !upkeep.is_clean {
            // The segment is cleaned of all that was flushed before this pass, whatever is flushed meanwhile. Where others
            // have cleaned up behind later flushes, their stamp is used: no bucket has an earlier one, and a stamp that is
            // too much earlier would be taken for a later one.
            let stamp = upkeep.stamp.max(store.cleaned.load(Ordering::Relaxed));
            upkeep.is_clean = self.clean_some(upkeep.cursor, stamp as u8);
            return true;
        }
        if !flushing
            && beside_requests
            && upkeep.cursor > target
            && self.now < upkeep.rebuild_at
            && self.now + REBUILD_PAUSE_MS >= upkeep.rebuild_at
        {
            return true;
        }
        let next = match upkeep.rebuilding.take() {
            Some(Rebuilding { items, next }) => {
                // What was flushed since the pass began is in it still; its other half, if that
                // comes behind it, also has what was flushed before.
                let is_clean = !flushing || store.stamp_count() == upkeep.stamp;
                let both_are_clean =
                    !flushing || is_clean && store.index.is_second(&store.arena, upkeep.cursor);
                if self.rebuild_segment(upkeep.cursor, Sparse { items, is_clean, both_are_clean }) {
                    upkeep.rebuild_at = self.now + REBUILD_PAUSE_MS;
                    // With fewer pages the segment may be joined with its other half, and the joined one with its own other half.
                    upkeep.rebuilding = Some(Rebuilding { items: None, next });
                    return true;
                }
                next
            }
            None => {
                let (next, sparse) = self.age_segment(upkeep.cursor);
                if sparse.is_some() {
                    upkeep.rebuilding = Some(Rebuilding { items: sparse, next });
                    return true;
                }
                next
            }
        };
        (upkeep.cursor, upkeep.is_clean) = (next, false);
        if upkeep.cursor == 0 {
            upkeep.running = false;
            // A pass that found nothing to do is not made again at once.
            let shrunk = store.index.slots() < upkeep.slots;
            upkeep.hurried &= shrunk;
            upkeep.look_at = if shrunk { 0 } else { self.now + LOOK_PAUSE_MS };
            if store.index.halve(&Rebuild { store, local: self.local }) {
                // Longer directories and rebuildings have left holes in the heap.
                store.trim_heap();
            }
            store.all_clean(upkeep.stamp, self.now);
            return upkeep.hurried || store.stamp_count() != upkeep.stamp;
        }
        flushing || hurried || upkeep.cursor <= target
    }

    /// Has items give way to memory that was taken beside them ([`crate::Store::hold`]): 20 µs for each 64 KiB, or
    /// some 200 if they are small. It is as much as fits into a millisecond, and 0.6 ms more while there are pins to drop; while
    /// other workers' batches hold free memory back, this one waits for two at most.
    pub fn give_way(&mut self) {
        let store = self.store;
        let (mut waits, mut wait) = (0, Wait::for_memory_sleeping_from(GIVE_WAY_WAITS_BUSY));
        // A thread that waits for this worker must not wait for a sleep.
        let waits_max = if self.local.patient { GIVE_WAY_WAITS_MAX } else { GIVE_WAY_WAITS_BUSY };
        for _ in 0..GIVE_WAY_ROUNDS_MAX {
            let over = store.arena.over_limit();
            if over == 0 || !store.may_evict() {
                return;
            }
            if self.local.free_some(store) {
                continue;
            }
            // Pins that are dropped may free nothing, where their keys are there: items give way beside them. Nodes without an
            // owner keep their spans from coming free.
            let unpins = self.local.unpin_some(store);
            if self.local.take_back_some(store) || self.local.shrink(store, over, SHRINK_CHUNKS) || unpins {
                continue;
            }
            if !self.local.patient && self.local.gave_way_epoch == store.epochs.now() {
                return;
            }
            // Between two batches: others wait for pages of the index, too.
            waits += 1;
            self.local.step_aside(store);
            self.local.wait_outside(store, &mut wait);
            self.local.enter_batch_again(store);
            self.forget_hints();
            if waits >= waits_max {
                self.local.gave_way_epoch = store.epochs.now();
                return;
            }
        }
    }

    /// As [`Guard::give_way`], but waits for no other worker while this one has several connections to serve: what others'
    /// batches hold back comes free in the turns to come. A worker that waits gives up the core with each look, which takes
    /// as long as others want it; in a turn there were 200 looks. Where more than a 64th of the limit is owed it waits all
    /// the same: on a busy machine a 12th was owed.
    pub fn give_way_for_now(&mut self) {
        if self.local.patient {
            return self.give_way();
        }
        let store = self.store;
        for _ in 0..GIVE_WAY_ROUNDS_MAX {
            let over = store.arena.over_limit();
            if over == 0 || !store.may_evict() {
                break;
            }
            if self.local.free_some(store) {
                continue;
            }
            let unpins = self.local.unpin_some(store);
            if !self.local.take_back_some(store) && !self.local.shrink(store, over, SHRINK_CHUNKS) && !unpins
            {
                break;
            }
        }
        if store.arena.over_limit() > store.arena.spans_allowed() / OWED_SHARE {
            self.give_way();
        }
    }

    /// Rewrites the access codes of one segment; returns the next one's cursor, and how many items this one has if it is sparse.
    fn age_segment(&mut self, cursor: u64) -> (u64, Option<usize>) {
        let (store, now_s) = (self.store, self.now_s);
        let (mut checked, mut buckets) = (0, 0);
        let next = store.index.sweep(&store.arena, cursor, &mut |bucket| {
            buckets += 1;
            for i in 0..SLOTS {
                let slot = bucket.slot(i);
                if slot.is_empty() {
                    continue;
                }
                checked += 1;
                let aged = access::aged(slot.access(), now_s);
                if aged != slot.access() {
                    bucket.bump(i, slot, slot.with_access(aged));
                }
            }
        });
        self.local.counters(store).maintain_checked.add(checked as i64);
        if store.index.awaits_batches() {
            self.local.pass_epochs(store);
        }
        store.index.harvest(&store.arena, &Rebuild { store, local: self.local });
        (next, store.index.is_sparse(checked, buckets).then_some(checked))
    }

    /// Gives one segment fewer pages, if that is worth it; true if so.
    fn rebuild_segment(&mut self, cursor: u64, sparse: Sparse) -> bool {
        let store = self.store;
        store.index.shrink(&store.arena, cursor, sparse, &mut Rebuild { store, local: self.local })
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::CLOCK_JUMP_S;
    use crate::wait::PAUSES;
    use crate::{Attributes, Config, Expect, Guard, Lookup, Store};

    const NOW: u64 = 1_700_000_000_000;
    /// Items of a segment at most.
    const SEGMENT_ITEMS_MAX: u64 = 14 * 448;

    fn idle_s(guard: &mut Guard<'_>, name: u32) -> u64 {
        let name = name.to_le_bytes();
        let key = guard.key(&name);
        let Lookup::Hit(item) = guard.peek(&key) else { panic!("it was stored") };
        item.idle_s()
    }

    #[test]
    fn a_clock_that_is_set_takes_a_short_step_and_leaves_idle_times_as_they_were() {
        for set_to in [NOW + 3_600_000, NOW - 3_600_000, NOW + 30_000 + 64_000, 0] {
            let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
            let mut worker = store.worker().unwrap();
            let mut guard = worker.enter(NOW);
            for n in 0..40_000u32 {
                let name = n.to_le_bytes();
                let key = guard.key(&name);
                guard.store_value(&key, b"12345678", &Attributes::default(), Expect::Any).unwrap();
            }
            while guard.maintain() {}
            drop(guard);
            let mut guard = worker.enter(NOW + 30_000);
            let key = guard.key(&[7, 0, 0, 0]);
            assert!(guard.get(&key).hit().is_some());
            while guard.maintain() {}
            drop(guard);
            // The clock is set.
            let checked = store.totals().maintain_checked;
            let mut guard = worker.enter(set_to);
            guard.maintain();
            assert!(store.totals().maintain_checked - checked <= SEGMENT_ITEMS_MAX, "a segment a step");
            assert_eq!((idle_s(&mut guard, 7), idle_s(&mut guard, 8)), (0, 30));
            drop(guard);
            let mut guard = worker.enter(set_to + 50_000);
            while guard.maintain() {}
            assert_eq!((idle_s(&mut guard, 7), idle_s(&mut guard, 8)), (50, 80));
            drop(guard);
            // The sweep goes on: what has been idle for longer is dated by the half hour.
            for second in (100..1_000).step_by(50) {
                let mut guard = worker.enter(set_to + second * 1_000);
                while guard.maintain() {}
            }
            let mut guard = worker.enter(set_to + 1_000_000);
            assert!((128..=3 * 2048).contains(&idle_s(&mut guard, 8)), "{}", idle_s(&mut guard, 8));
        }
    }

    /// While another worker's batch holds memory back, a worker with several connections to serve does not wait for
    /// little, and waits for much; when that batch is over, all of it comes.
    #[test]
    fn who_gives_way_for_now_waits_for_no_other_worker() {
        let config = Config { memory_bytes: 64 << 20, workers_max: 2, ..Config::default() };
        let store = Store::new(config).unwrap();
        let (mut worker, mut other) = (store.worker().unwrap(), store.worker().unwrap());
        for n in 0..140_000u32 {
            let mut guard = worker.enter(NOW);
            let name = n.to_le_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, &[1; 500], &Attributes::default(), Expect::Any).unwrap();
        }
        worker.set_patient(false);
        let pauses = || PAUSES.with(std::cell::Cell::take);
        let batch = other.enter(NOW);
        store.hold(1 << 19);
        pauses();
        (0..100).for_each(|_| worker.enter(NOW).give_way_for_now());
        assert_eq!(pauses(), 0);
        assert!(store.is_over_limit());
        // Much is owed.
        store.hold(4 << 20);
        worker.enter(NOW).give_way_for_now();
        assert!(pauses() > 0);
        drop(batch);
        (0..100).for_each(|_| worker.enter(NOW).give_way_for_now());
        assert!(!store.is_over_limit());
        store.hold(-(4 << 20) - (1 << 19));
    }

    /// A minute without upkeep is time like any other, more is a clock that was set, or a process that did not run: no time
    /// in which clients could have asked. What has an expiry goes by the clock in both.
    #[test]
    fn time_that_passed_without_upkeep_is_idle_time_up_to_a_minute() {
        for (gap_s, idle) in [(CLOCK_JUMP_S - 1, CLOCK_JUMP_S - 1), (CLOCK_JUMP_S, 0), (86_400, 0)] {
            let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
            let mut worker = store.worker().unwrap();
            let mut guard = worker.enter(NOW);
            for (name, expires_at) in [([7, 0, 0, 0], 0), ([8, 0, 0, 0], NOW + gap_s * 1_000)] {
                let key = guard.key(&name);
                let attributes = Attributes { expires_at, ..Attributes::default() };
                guard.store_value(&key, b"12345678", &attributes, Expect::Any).unwrap();
            }
            while guard.maintain() {}
            drop(guard);
            let mut guard = worker.enter(NOW + gap_s * 1_000);
            while guard.maintain() {}
            assert_eq!(idle_s(&mut guard, 7), idle, "{gap_s} s");
            let key = guard.key(&[8, 0, 0, 0]);
            assert!(guard.peek(&key).hit().is_none(), "its time has passed");
        }
    }
}
