//! Flushes: a number goes up, and buckets stamped with a lower one are cleaned before they are used.
//!
//! What a flush took comes free bit by bit: as requests and upkeep pass by its buckets. Which database it
//! concerned, [`crate::database::Flushes`] remembers.

use crate::Store;
use crate::bucket::Control;
use crate::database::DATABASES;
use crate::sync::atomic::Ordering;
use crate::worker::Guard;

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

    /// Flushes the database of this number, or all; the caller has seen to it that stamps do not
    /// wrap.
    pub(crate) fn raise_stamp(&self, number: Option<u8>) {
        let _one = self.flushing.lock().expect("no panic under the lock");
        let stamp = self.stamp_count() + 1;
        self.flushes.note(stamp as u8, number);
        for gone in 0..DATABASES {
            if number.is_none_or(|number| number == gone) {
                self.flushes.set_garbage(gone, self.items_of(gone));
            }
        }
        // Release, both: whoever sees the stamp sees its scope.
        self.stamp.store(stamp, Ordering::Release);
        self.gate.store(Control::gate(stamp as u8), Ordering::Release);
    }

    /// All buckets were seen clean of the flushes up to `stamp`.
    pub(crate) fn all_clean(&self, stamp: u64) {
        let _one = self.flushing.lock().expect("no panic under the lock");
        self.cleaned.fetch_max(stamp, Ordering::Relaxed);
        if self.stamp_count() == stamp {
            (0..DATABASES).for_each(|number| self.flushes.set_garbage(number, 0));
        }
    }

    /// So many flushes since all buckets were clean that stamps could soon be mistaken.
    pub(crate) fn flush_lags(&self) -> bool {
        self.stamp_count() - self.cleaned.load(Ordering::Relaxed) >= 128
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
        if self.store.flush_lags() {
            // Stamps are about to wrap: what an old flush left is cleaned first.
            let stamp = self.store.stamp_count();
            let mut cursor = 0;
            loop {
                self.clean(cursor);
                cursor = self.store.index.sweep(&self.store.arena, cursor, &mut |_| {});
                if cursor == 0 {
                    break;
                }
            }
            self.store.all_clean(stamp);
        }
        self.store.raise_stamp(number);
    }
}
