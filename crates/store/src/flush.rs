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
//! flushes older. A bucket's stamp only goes on: whoever sets it has locked all buckets of its segment, and
//! reads the store's stamp after that.

use crate::Store;
use crate::bucket::Control;
use crate::database::DATABASES;
use crate::sync::atomic::Ordering;
use crate::worker::Guard;

/// Flushes at most that are not cleaned up everywhere: half of what a byte tells apart.
const LAG_MAX: u8 = 127;

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
        self.stamp_count() as u8
    }

    /// What the control word of a bucket that may be used has to say.
    #[inline(always)]
    pub(crate) fn gate(&self) -> u64 {
        self.gate.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn stamp_count(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    /// Flushes the database of this number, or all. False, and nothing flushed, if that would be one flush more
    /// than [`LAG_MAX`] that is not cleaned up.
    fn raise_stamp(&self, number: Option<u8>) -> bool {
        let _one = self.flushing.lock().expect("no panic under the lock");
        let stamp = self.stamp_count() + 1;
        if stamp - self.cleaned.load(Ordering::Relaxed) > u64::from(LAG_MAX) {
            return false;
        }
        self.flushes.note(stamp as u8, number);
        for gone in 0..DATABASES {
            if number.is_none_or(|number| number == gone) {
                self.flushes.set_garbage(gone, self.items_of(gone));
            }
        }
        // Release, both: whoever sees the stamp sees its scope.
        self.stamp.store(stamp, Ordering::Release);
        self.gate.store(Control::gate(stamp as u8), Ordering::Release);
        true
    }

    /// All buckets were seen clean of the flushes up to `stamp`.
    pub(crate) fn all_clean(&self, stamp: u64) {
        let _one = self.flushing.lock().expect("no panic under the lock");
        self.cleaned.fetch_max(stamp, Ordering::Relaxed);
        if self.stamp_count() == stamp {
            (0..DATABASES).for_each(|number| self.flushes.set_garbage(number, 0));
        }
    }
}

impl Guard<'_> {
    /// Removes everything stored until now, at once: what it held comes free bit by bit.
    pub fn flush(&mut self) {
        self.flush_scope(None);
    }

    /// As [`Guard::flush`], of the database of this name.
    pub fn flush_database(&mut self, name: u8) {
        self.flush_scope(Some(self.store.names.word(name).number()));
    }

    fn flush_scope(&mut self, number: Option<u8>) {
        let store = self.store;
        while !store.raise_stamp(number) {
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
            store.all_clean(stamp);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
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

    #[test]
    fn a_flush_too_many_is_refused_until_what_the_others_left_is_cleaned() {
        let store = Store::new(Config { memory_bytes: 4 << 20, ..Config::default() }).unwrap();
        for _ in 0..LAG_MAX {
            assert!(store.raise_stamp(None));
        }
        assert!(!store.raise_stamp(None));
        assert_eq!(store.stamp_count(), u64::from(LAG_MAX));
        store.all_clean(1);
        assert!(store.raise_stamp(Some(3)) && !store.raise_stamp(Some(3)));
        // Whoever flushes cleans first.
        store.worker().unwrap().enter(1_700_000_000_000).flush();
        assert_eq!(store.stamp_count(), u64::from(LAG_MAX) + 2);
    }
}
