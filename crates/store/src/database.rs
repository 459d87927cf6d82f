//! Databases: 16 names on one index.
//!
//! ```text
//! SELECT 3 ─▶ name 3 ─▶ word: number and its salt ─▶ hash ^ word ─▶ the one index
//! ```
//!
//! - A **name** is what clients say, a **number** what items carry: in their extension, so that an
//!   item of number 0 carries nothing. Two names swap by swapping words: no item moves.
//! - The number is part of a key's identity (it is compared with the key) and of its hash.
//! - memcached's keyspace is name 0.
//! - Flushes, of one database or all, are stamps: [`Flushes`] remembers for each stamp which
//!   database it concerns, and how many items are gone but not yet taken out.

use crate::counters::WorkerCounters;
use crate::flush::flushes_since;
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::worker::Guard;

/// Names of databases.
pub const DATABASES: u8 = 16;

/// The scope of a flush of everything.
const ALL: u8 = u8::MAX;

/// A database's number, and what it adds to the hash of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    /// The word of a database's number; that of 0 is 0.
    #[inline]
    pub(crate) const fn of(number: u8) -> Word {
        Word((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) << 8 | number as u64)
    }
    #[inline]
    pub(crate) fn number(self) -> u8 {
        self.0 as u8
    }
    /// The hash in this database of a key that hashes to `hash` in number 0.
    #[inline]
    pub(crate) fn salt(self, hash: u64) -> u64 {
        hash ^ self.0
    }
}

/// The database that a name stands for. It stays the same when names are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Database(u8);

impl Database {
    pub(crate) fn number(self) -> u8 {
        self.0
    }
}

/// Which number each name has.
#[derive(Debug)]
pub(crate) struct Names([AtomicU64; DATABASES as usize]);

impl Default for Names {
    fn default() -> Names {
        Names(std::array::from_fn(|name| AtomicU64::new(Word::of(name as u8).0)))
    }
}

impl Names {
    /// The word of a name. It changes only while no other worker is in a batch, so that it holds for a batch.
    #[inline]
    pub(crate) fn word(&self, name: u8) -> Word {
        Word(self.0[usize::from(name)].load(Ordering::Relaxed))
    }

    /// The name of a number.
    pub(crate) fn name(&self, number: u8) -> u8 {
        (0..DATABASES).find(|&name| self.word(name).number() == number).expect("a permutation")
    }

    /// Swaps two names' numbers.
    pub(crate) fn swap(&self, one: u8, other: u8) {
        let (a, b) = (self.word(one), self.word(other));
        self.0[usize::from(one)].store(b.0, Ordering::Relaxed);
        self.0[usize::from(other)].store(a.0, Ordering::Relaxed);
    }
}

/// What the last 256 flushes concerned, and the items that they left to be taken out.
#[derive(Debug)]
pub(crate) struct Flushes {
    scopes: Box<[AtomicU8; 256]>,
    /// The time of each, in seconds of the clock of accesses.
    seconds: Box<[AtomicU64; 256]>,
    /// By number: items that were flushed and are still there.
    garbage: [AtomicU64; DATABASES as usize],
}

impl Default for Flushes {
    fn default() -> Flushes {
        Flushes {
            scopes: Box::new(std::array::from_fn(|_| AtomicU8::new(ALL))),
            seconds: Box::new(std::array::from_fn(|_| AtomicU64::new(0))),
            garbage: Default::default(),
        }
    }
}

impl Flushes {
    /// Notes which database the flush with this stamp concerns (`None`: all), and when it is, before the stamp is raised.
    pub(crate) fn note(&self, stamp: u8, number: Option<u8>, now_s: u64) {
        self.scopes[usize::from(stamp)].store(number.unwrap_or(ALL), Ordering::Relaxed);
        self.seconds[usize::from(stamp)].store(now_s, Ordering::Relaxed);
    }

    /// True if all items of a bucket stamped `was` are gone when the stamp is `now`; none if it
    /// depends on their database.
    pub(crate) fn took_all(&self, was: u8, now: u8) -> Option<bool> {
        if flushes_since(was, now) == 0 {
            return Some(false);
        }
        self.scopes(was, now).any(|scope| scope == ALL).then_some(true)
    }

    /// True if an item of this database in a bucket stamped `was` is gone when the stamp is `now`.
    pub(crate) fn took(&self, was: u8, now: u8, number: u8) -> bool {
        self.taken_at(was, now, number).is_some()
    }

    /// When an item of this database in a bucket stamped `was` went, by the flush that was first; none if none of those
    /// up to the stamp `now` took it.
    pub(crate) fn taken_at(&self, was: u8, now: u8, number: u8) -> Option<u64> {
        let first = self.scopes(was, now).position(|scope| scope == ALL || scope == number)?;
        let stamp = was.wrapping_add(first as u8 + 1);
        Some(self.seconds[usize::from(stamp)].load(Ordering::Relaxed))
    }

    fn scopes(&self, was: u8, now: u8) -> impl Iterator<Item = u8> {
        (1..=flushes_since(was, now))
            .map(move |n| self.scopes[usize::from(was.wrapping_add(n))].load(Ordering::Relaxed))
    }

    /// Notes that all items of a database are garbage.
    pub(crate) fn set_garbage(&self, number: u8, items: u64) {
        self.garbage[usize::from(number)].store(items, Ordering::Relaxed);
    }

    /// Notes that one item that was flushed has been taken out, and is no longer counted.
    pub(crate) fn collected(&self, number: u8) {
        let garbage = &self.garbage[usize::from(number)];
        // Writes during the flush make it inexact until everything is clean: never below 0.
        let _ = garbage.fetch_update(Ordering::Release, Ordering::Relaxed, |n| n.checked_sub(1));
    }

    pub(crate) fn garbage(&self, number: u8) -> u64 {
        self.garbage[usize::from(number)].load(Ordering::Acquire)
    }
}

impl crate::Store {
    /// Live items of a database by its name (expired ones count until they are taken out).
    pub fn database_items(&self, name: u8) -> u64 {
        let number = self.names.word(name).number();
        // Garbage first: what is taken out meanwhile is counted as gone before it is as collected.
        let garbage = self.flushes.garbage(number);
        self.items_of(number).saturating_sub(garbage)
    }

    /// Calls `visit` with the number of each database that was flushed since `seen`, none standing for all of them, and
    /// remembers that there: for callers that look now and then.
    pub fn flushed_since(&self, seen: &mut u64, mut visit: impl FnMut(Option<u8>)) {
        let now = self.stamp_count();
        let since = now.saturating_sub(std::mem::replace(seen, now));
        // Older flushes are forgotten.
        if since > u64::from(u8::MAX) / 2 {
            return visit(None);
        }
        for stamp in (now - since + 1)..=now {
            let scope = self.flushes.scopes[usize::from(stamp as u8)].load(Ordering::Relaxed);
            visit((scope != ALL).then_some(scope));
        }
    }

    /// Items of a number, flushed ones included.
    pub(crate) fn items_of(&self, number: u8) -> u64 {
        let counted = |number| self.sum(|c: &WorkerCounters| c.database(number).value());
        match number {
            // Only the others are counted: what is not theirs is number 0's.
            0 => (1..DATABASES).fold(self.items(), |sum, n| sum.saturating_sub(counted(n))),
            number => counted(number),
        }
    }
}

impl Guard<'_> {
    /// What a name, below [`DATABASES`], stands for now.
    pub fn database(&self, name: u8) -> Database {
        Database(self.store.names.word(name).number())
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn names_stay_a_permutation() {
        let names = Names::default();
        names.swap(0, 3);
        names.swap(3, 7);
        names.swap(5, 5);
        let mut numbers: Vec<u8> = (0..DATABASES).map(|name| names.word(name).number()).collect();
        assert_eq!((numbers[0], numbers[3], numbers[7]), (3, 7, 0));
        assert!((0..DATABASES).all(|name| names.name(names.word(name).number()) == name));
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..DATABASES));
    }

    #[test]
    fn number_0_adds_nothing_and_the_others_differ() {
        assert_eq!(Word::of(0), Word(0));
        for number in 1..DATABASES {
            assert_eq!(Word::of(number).number(), number);
            assert!((0..number).all(|other| Word::of(other).0 >> 40 != Word::of(number).0 >> 40));
        }
    }

    #[test]
    fn who_looks_now_and_then_hears_of_each_flush() {
        let store = crate::Store::new(crate::Config::default()).expect("a store");
        let mut worker = store.worker().expect("a worker");
        let (mut seen, mut heard) = (0, Vec::new());
        store.flushed_since(&mut seen, |scope| heard.push(scope));
        assert!(heard.is_empty());
        let mut guard = worker.enter(1);
        let third = guard.database(3);
        guard.flush_database(3);
        guard.flush();
        drop(guard);
        store.flushed_since(&mut seen, |scope| heard.push(scope));
        assert_eq!(heard, [Some(third.number()), None]);
        store.flushed_since(&mut seen, |scope| heard.push(scope));
        assert_eq!(heard.len(), 2);
        for _ in 0..200 {
            worker.enter(1).flush();
        }
        heard.clear();
        store.flushed_since(&mut seen, |scope| heard.push(scope));
        assert!(!heard.is_empty() && heard.iter().all(Option::is_none));
    }

    #[test]
    fn flush_takes_what_its_scope_says() {
        let flushes = Flushes::default();
        for (stamp, scope) in [(254, Some(3)), (255, None), (0, Some(5)), (1, Some(3))] {
            flushes.note(stamp, scope, u64::from(stamp) + 1000);
        }
        assert_eq!(flushes.took_all(253, 1), Some(true));
        assert_eq!(flushes.took_all(255, 1), None);
        assert_eq!(flushes.took_all(1, 1), Some(false));
        let took = |was, number| flushes.took(was, 1, number);
        assert!(took(253, 0) && took(255, 3) && took(255, 5) && took(0, 3));
        assert!(!took(255, 0) && !took(0, 5) && !took(1, 3));
        let taken_at = |was, number| flushes.taken_at(was, 1, number);
        assert_eq!((taken_at(253, 3), taken_at(253, 0)), (Some(1254), Some(1255)), "by the first");
        assert_eq!((taken_at(255, 5), taken_at(255, 3), taken_at(255, 0)), (Some(1000), Some(1001), None));
    }
}
