//! Flushes: a number goes up, and buckets stamped with a lower one are cleaned before they are used.
//!
//! What a flush took comes free bit by bit: as requests and upkeep pass by its buckets. Which database it
//! concerned, [`crate::database::Flushes`] remembers.
//!
//! ```text
//! flushes   … cleaned ─────────── at most LAG_MAX ──────────▶ now
//!             buckets have stamps from here …           … to here
//! ```
//!
//! A bucket carries the low byte of the number. No stamp in use is further than [`LAG_MAX`] from another, so
//! that the two bytes say which of two is the earlier, and a later one is never taken for one that is 255
//! flushes older. A bucket's stamp only goes on: a worker that sets it has locked the bucket, and reads the store's
//! stamp after that. While a transaction holds some of a segment none of it gets a later stamp.

use crate::database::{DATABASES, Database};
use crate::sync::atomic::Ordering;
use crate::worker::{Guard, Local};
use crate::write::{CLEAN_NS, Rebuild};
use crate::{Millis, Store};

/// Flushes at most that are not cleaned up everywhere: half of what a byte tells apart.
const LAG_MAX: u8 = 127;
/// Flushes that one transaction may make. Outside of transactions the lag ends so much earlier.
pub const FLUSHES_TOGETHER_MAX: usize = 27;
const LAG_MAX_ALONE: u8 = LAG_MAX - FLUSHES_TOGETHER_MAX as u8;

/// How often a worker that cleans for memory looks whether a transaction still holds a segment, before it is passed over.
const CLEANING_ROUNDS_MAX: usize = 8;

/// How many flushes came after the one with stamp `was` up to that with stamp `now`; 0 if `was` is not the
/// earlier.
pub(crate) fn flushes_since(was: u8, now: u8) -> u8 {
    let after = now.wrapping_sub(was);
    if after <= LAG_MAX { after } else { 0 }
}

impl Store {
    /// The stamp that clean buckets carry.
    #[inline]
    pub(crate) fn stamp(&self) -> u8 {
        self.index.gate.stamp()
    }

    /// What the control word of a bucket that may be used has to say.
    #[inline(always)]
    pub(crate) fn gate(&self) -> u64 {
        self.index.gate.now()
    }

    #[inline]
    pub(crate) fn stamp_count(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    /// The number of flushes until now, of which none is half done.
    fn finished_stamp_count(&self) -> u64 {
        loop {
            let count = self.stamp_count();
            // Acquire: a gate that is read behind a transaction's beginning is not older than its buckets.
            if self.stamp() == count as u8 {
                return count;
            }
            // One is between the gate and the count.
            drop(self.flushing.lock());
        }
    }

    /// True if a transaction that begins may flush so many times. False for more than one may ever,
    /// and while too much of earlier flushes is to be cleaned up.
    pub fn may_flush(&self, times: usize) -> bool {
        let lag = self.stamp_count() - self.cleaned.load(Ordering::Relaxed);
        times <= FLUSHES_TOGETHER_MAX && lag + times as u64 <= u64::from(LAG_MAX)
    }

    /// Flushes the database of this number, or all. False, and nothing flushed, if more than `lag_max` flushes
    /// would not be cleaned up.
    fn raise_stamp(&self, number: Option<u8>, lag_max: u8, now_s: u64) -> bool {
        let _one = self.flushing.lock().expect("no panic under the lock");
        let stamp = self.stamp_count() + 1;
        if stamp - self.cleaned.load(Ordering::Relaxed) > u64::from(lag_max) {
            return false;
        }
        self.flushes.note(stamp as u8, number, now_s);
        for gone in 0..DATABASES {
            if number.is_none_or(|number| number == gone) {
                self.flushes.set_garbage(gone, self.items_of(gone));
            }
        }
        // The gate first: a worker that cleans up to this number cleans by its stamp.
        self.index.gate.flush();
        self.stamp.store(stamp, Ordering::Release);
        true
    }

    /// Notes that at `now` all buckets were seen clean of the flushes up to `stamp`.
    pub(crate) fn all_clean(&self, stamp: u64, now: Millis) {
        let _one = self.flushing.lock().expect("no panic under the lock");
        // A pass that found nothing flushed frees nothing: a worker that waited for it would wait as long as it may.
        if self.cleaned.load(Ordering::Relaxed) < stamp {
            self.cleaned_at.store(now, Ordering::Relaxed);
            self.cleaned.store(stamp, Ordering::Relaxed);
        }
        if self.stamp_count() == stamp {
            (0..DATABASES).for_each(|number| self.flushes.set_garbage(number, 0));
        }
    }
}

/// For how long after the last bucket was cleaned what was flushed may be on its way to free memory: it waits for its
/// epoch, and for the worker that has found it.
const COMES_MS: Millis = 100;

impl Store {
    /// True while something that was flushed is still to be found, by upkeep or by a worker that asks for memory.
    pub fn is_cleaning(&self) -> bool {
        self.stamp_count() != self.cleaned.load(Ordering::Relaxed)
    }

    /// True while what was flushed may still come free, whichever worker has found it.
    pub(crate) fn flushed_comes(&self, now: Millis) -> bool {
        self.is_cleaning() || now.saturating_sub(self.cleaned_at.load(Ordering::Relaxed)) < COMES_MS
    }
}

/// A database at a moment, to be found again later though its name may be another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    database: Database,
    flushes: u64,
}

impl Moment {
    /// The database, whatever its name is now.
    pub fn database(&self) -> Database {
        self.database
    }
}

impl Guard<'_> {
    /// The database of a name as it is now.
    pub fn moment(&self, name: u8) -> Moment {
        Moment { database: self.database(name), flushes: self.store.finished_stamp_count() }
    }

    /// The name that a database has now; none if it was flushed since that moment, or may have been: behind more than a
    /// hundred flushes it is not known.
    pub fn name_since(&self, moment: Moment) -> Option<u8> {
        let (now, number) = (self.store.finished_stamp_count(), moment.database.number());
        let known = now - moment.flushes <= u64::from(LAG_MAX);
        let took = || self.store.flushes.took(moment.flushes as u8, now as u8, number);
        (known && !took()).then(|| self.store.names.name(number))
    }

    /// Removes everything stored until now, at once: what it held comes free bit by bit. Behind a hundred flushes of
    /// which nothing was cleaned up yet, all of the index is cleaned first: [`Guard::try_flush`] does that in steps.
    pub fn flush(&mut self) {
        self.flush_scope(None);
    }

    /// As [`Guard::flush`], of the database of this name.
    pub fn flush_database(&mut self, name: u8) {
        self.flush_scope(Some(self.store.names.word(name).number()));
    }

    /// As [`Guard::flush`], or [`Guard::flush_database`] of a name. False, and nothing flushed, if much of earlier flushes is
    /// to be cleaned up: it makes a step of that, some 70 µs, and the caller tries again. Never false in a transaction, whose
    /// caller asked before it began ([`Store::may_flush`]).
    pub fn try_flush(&mut self, name: Option<u8>) -> bool {
        let number = name.map(|name| self.store.names.word(name).number());
        if self.in_transaction() {
            self.flush_scope(number);
            return true;
        }
        let raised = self.store.raise_stamp(number, LAG_MAX_ALONE, self.now_s);
        if !raised {
            self.forget_hints();
            self.maintain();
        }
        raised
    }

    fn flush_scope(&mut self, number: Option<u8>) {
        let store = self.store;
        while !store.raise_stamp(number, LAG_MAX, self.now_s) {
            // What an old flush left is cleaned first.
            let stamp = store.stamp_count();
            let mut cursor = 0;
            loop {
                self.clean(cursor);
                cursor = store.index.sweep(&store.arena, cursor, &mut |_| {});
                if cursor == 0 {
                    break;
                }
            }
            store.all_clean(stamp, self.now);
        }
    }
}

/// A worker's way through the index that it cleans because it has no memory.
#[derive(Debug, Default)]
pub(crate) struct Cleaning {
    /// The stamp that it cleans for.
    stamp: u64,
    /// The next segment, as a hash.
    cursor: u64,
    /// A transaction held a segment, which was passed over.
    passed_over: bool,
}

impl Local {
    /// Takes what was flushed out of one more segment of the index; false if there is nothing to look for.
    #[cold]
    pub(crate) fn clean_ahead(&mut self, store: &Store) -> bool {
        let stamp = store.stamp_count();
        if stamp == store.cleaned.load(Ordering::Relaxed) {
            return false;
        }
        if self.cleaning.stamp != stamp {
            self.cleaning = Cleaning { stamp, ..Cleaning::default() };
        }
        let cursor = self.cleaning.cursor;
        // This worker's own transaction may be the one in the way.
        let rounds = if self.transaction.open { 1 } else { CLEANING_ROUNDS_MAX };
        self.beside_ns += CLEAN_NS;
        let cleaned = self.between_transactions(store, rounds, |local| {
            store.index.clean(&store.arena, cursor, &mut Rebuild { store, local })
        });
        let next = store.index.sweep(&store.arena, cursor, &mut |_| {});
        let Cleaning { cursor, passed_over, .. } = &mut self.cleaning;
        *cursor = next;
        *passed_over |= cleaned.is_none();
        if next > 0 {
            return true;
        }
        if !std::mem::take(passed_over) {
            store.all_clean(stamp, self.now);
            return true;
        }
        // Upkeep, or the next worker that finds no memory, cleans what was passed over.
        false
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::wait::PAUSES;
    use crate::{Config, Store};

    #[test]
    fn of_two_stamps_in_use_the_later_takes_nothing_from_the_earlier() {
        for now in 0..=255u8 {
            for back in 0..=LAG_MAX {
                let was = now.wrapping_sub(back);
                assert_eq!(flushes_since(was, now), back);
                assert_eq!(flushes_since(now, was), 0, "a stamp that was read too early");
            }
        }
    }

    /// Upkeep passes over the index all the time: only behind a flush is there memory to be waited for.
    #[test]
    fn behind_a_pass_without_a_flush_a_refusal_waits_for_nothing() {
        let store = Store::new(Config { memory_bytes: 2 << 20, evict: false, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let now = 1_700_000_000_000;
        let set = |guard: &mut Guard<'_>, n: u32| {
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, &[1; 1_000], &crate::Attributes::default(), crate::Expect::Any)
        };
        let refused = (0..).find(|&n| set(&mut worker.enter(now), n).is_err()).unwrap();
        for ms in (0..60_000).step_by(20) {
            worker.enter(now + ms).maintain();
            PAUSES.take();
            assert_eq!(set(&mut worker.enter(now + ms), refused), Err(crate::Refusal::NoMemory));
            assert_eq!(PAUSES.take(), 0, "{ms} ms, and nothing was flushed");
        }
    }

    /// What a flush has left in a segment is taken out in parts, and all of it goes.
    #[test]
    fn a_step_of_upkeep_takes_out_a_part_of_what_was_flushed() {
        let store = Store::new(Config { memory_bytes: 8 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let now = 1_700_000_000_000;
        let mut guard = worker.enter(now);
        let set = |guard: &mut Guard<'_>, n: u32| {
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, b"v", &crate::Attributes::default(), crate::Expect::Any).unwrap();
        };
        (0..30_000).for_each(|n| set(&mut guard, n));
        guard.flush();
        // All of its segment is cleaned, for one that stays.
        set(&mut guard, 7);
        let before = store.items();
        assert!(before > 20_000, "{before}");
        let (mut left, mut parts) = (before, 0);
        loop {
            let more = guard.maintain();
            let now = store.items();
            // Those of 64 buckets: some 400, and never many more.
            assert!(left - now <= 512, "{} in a step", left - now);
            parts += u64::from(now < left);
            left = now;
            if !more {
                break;
            }
        }
        assert!(parts >= before / 512 && left == 1, "{parts} parts, {left} are left");
        let key = guard.key(&[0, 0, 0, 7]);
        assert!(guard.get(&key).hit().is_some());
        drop(guard);
        store.check_behind(worker);
    }

    /// What is flushed meanwhile is left to the next pass: a part that is clean of what was flushed before is not cleaned again.
    #[test]
    fn upkeep_gets_on_with_a_segment_whatever_is_flushed_meanwhile() {
        let store = Store::new(Config { memory_bytes: 8 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(1_700_000_000_000);
        for n in 0..10_000_u32 {
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, b"v", &crate::Attributes::default(), crate::Expect::Any).unwrap();
        }
        guard.flush();
        let before = store.items();
        assert!(before > 9_000, "{before}");
        for _ in 0..90 {
            guard.flush_database(5);
            guard.maintain();
        }
        assert!(store.items() < before / 2, "{} of {before} are left", store.items());
        drop(guard);
        store.check_behind(worker);
    }

    /// A pass of upkeep goes on, however many flushes came since it began of which others have cleaned up meanwhile.
    #[test]
    fn upkeep_gets_on_with_its_pass_where_others_have_cleaned_behind_later_flushes() {
        let store = Store::new(Config { memory_bytes: 8 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(1_700_000_000_000);
        let fill = |guard: &mut Guard<'_>| {
            for n in 0..10_000_u32 {
                let name = n.to_be_bytes();
                let key = guard.key(&name);
                guard.store_value(&key, b"v", &crate::Attributes::default(), crate::Expect::Any).unwrap();
            }
        };
        fill(&mut guard);
        guard.flush();
        assert!(guard.maintain() && store.items() > 9_000, "a pass has begun");
        // Two of these find too much to be cleaned up, and do it.
        (0..2 * u32::from(LAG_MAX)).for_each(|_| guard.flush());
        assert_eq!((store.items(), store.stamp_count()), (0, 2 * u64::from(LAG_MAX) + 1));
        fill(&mut guard);
        guard.flush();
        let mut steps = 0;
        while store.is_cleaning() {
            guard.maintain();
            steps += 1;
            assert!(steps < 1_000, "{} items stay after a flush", store.items());
        }
        assert_eq!(store.items(), 0);
        drop(guard);
        store.check_behind(worker);
    }

    #[test]
    fn a_flush_too_many_is_refused_until_what_the_others_left_is_cleaned() {
        let store = Store::new(Config { memory_bytes: 4 << 20, ..Config::default() }).unwrap();
        for _ in 0..LAG_MAX {
            assert!(store.raise_stamp(None, LAG_MAX, 0));
        }
        assert!(!store.raise_stamp(None, LAG_MAX, 0));
        assert_eq!(store.stamp_count(), u64::from(LAG_MAX));
        store.all_clean(1, 0);
        assert!(store.raise_stamp(Some(3), LAG_MAX, 0) && !store.raise_stamp(Some(3), LAG_MAX, 0));
        // The worker that flushes cleans first.
        store.worker().unwrap().enter(1_700_000_000_000).flush();
        assert_eq!(store.stamp_count(), u64::from(LAG_MAX) + 2);
    }

    #[test]
    fn a_flush_too_many_waits_for_steps_of_cleaning_and_leaves_room_for_a_transaction() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let set = |guard: &mut Guard<'_>, n: u32| {
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, b"v", &crate::Attributes::default(), crate::Expect::Any).unwrap();
        };
        let mut guard = worker.enter(1_700_000_000_000);
        (0..100_000).for_each(|n| set(&mut guard, n));
        assert!((0..LAG_MAX_ALONE).all(|n| guard.try_flush((n % 2 == 0).then_some(0))));
        set(&mut guard, 1);
        assert!(!guard.try_flush(None), "nothing is cleaned yet");
        assert_eq!(store.database_items(0), 1, "it was not flushed");
        assert!(store.may_flush(FLUSHES_TOGETHER_MAX) && !store.may_flush(FLUSHES_TOGETHER_MAX + 1));
        let steps = (0..100_000).take_while(|_| !guard.try_flush(None)).count();
        assert!(steps > 10, "{steps} steps");
        drop(guard);
        drop(worker);
        assert_eq!(store.database_items(0), 0);
        store.check();
    }
}
