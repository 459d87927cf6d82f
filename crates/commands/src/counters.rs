//! What a worker counts: plain numbers written by their worker alone, summed by whoever reads.
//!
//! A load and a store, no locked instruction; the alignment keeps another worker's counters out of
//! the cache lines (two, because processors fetch lines in pairs).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What is counted; memcached's statistics of the same name unless the text says otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter { $($(#[$doc])* $name,)* }

        impl Counter {
            /// All of them, in order.
            pub const ALL: &'static [Counter] = &[$(Counter::$name,)*];
        }
    };
}

counters! {
    /// Keys asked for by get, gets, mg and binary gets.
    CmdGet,
    /// Of these, found (also those found by gat, gats).
    GetHits,
    /// Of these, not found.
    GetMisses,
    /// Of the misses, those whose item's time had passed.
    GetExpired,
    /// Of the misses, those whose item a flush took.
    GetFlushed,
    /// Stores that got as far as memory for their item.
    CmdSet,
    /// flush_all, allowed or not.
    CmdFlush,
    /// touch, gat, gats, mg with T.
    CmdTouch,
    /// Meta commands.
    CmdMeta,
    /// delete, md without an item.
    DeleteMisses,
    /// delete, md with an item.
    DeleteHits,
    /// incr without an item.
    IncrMisses,
    /// incr done.
    IncrHits,
    /// decr without an item.
    DecrMisses,
    /// decr done.
    DecrHits,
    /// Compare-and-swap without an item.
    CasMisses,
    /// Compare-and-swap done.
    CasHits,
    /// Compare-and-swap on another version.
    CasBadval,
    /// Touches of an item.
    TouchHits,
    /// Touches without an item.
    TouchMisses,
    /// Values above the limit.
    StoreTooLarge,
    /// Values there was no memory for.
    StoreNoMemory,
    /// Numbers changed that took no more bytes than before: memcached writes them in place, and does
    /// not count an item.
    NumbersInPlace,
    /// Times a connection gave way to others with requests left.
    ConnYields,
    /// Bytes received; the server counts.
    BytesRead,
    /// Bytes sent; the server counts.
    BytesWritten,
    /// Connections closed because others needed the memory that their replies held; the server counts.
    Shed,
    /// Connections closed for idleness; the server counts.
    IdleKicks,
    /// RESP commands.
    RedisCommands,
    /// RESP commands that were answered with an error.
    RedisErrors,
}

/// The counters of one worker.
#[derive(Debug)]
#[repr(align(128))]
pub struct Counters {
    values: [AtomicU64; Counter::ALL.len()],
    /// Of each RESP command.
    pub(crate) rows: crate::redis::Rows,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            values: [const { AtomicU64::new(0) }; Counter::ALL.len()],
            rows: crate::redis::Rows::default(),
        }
    }
}

impl Counters {
    /// Adds `n`. Only the worker that owns the counters may call it.
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        let value = &self.values[counter as usize];
        value.store(value.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The value; any thread.
    pub fn value(&self, counter: Counter) -> u64 {
        self.values[counter as usize].load(Relaxed)
    }
}

/// Sums over workers, less what they were at the last `stats reset`.
#[derive(Clone, Copy, Debug)]
pub struct Sums {
    values: [u64; Counter::ALL.len()],
}

impl Default for Sums {
    fn default() -> Sums {
        Sums { values: [0; Counter::ALL.len()] }
    }
}

impl Sums {
    /// Adds one worker's counters.
    pub fn add(&mut self, counters: &Counters) {
        for (sum, value) in self.values.iter_mut().zip(&counters.values) {
            *sum = sum.wrapping_add(value.load(Relaxed));
        }
    }

    /// Takes away what was counted before.
    pub fn since(&mut self, before: &Sums) {
        for (sum, before) in self.values.iter_mut().zip(&before.values) {
            *sum = sum.saturating_sub(*before);
        }
    }

    /// The sum.
    pub fn of(&self, counter: Counter) -> u64 {
        self.values[counter as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_over_workers_and_since_a_reset() {
        let (one, two) = (Counters::default(), Counters::default());
        one.add(Counter::CmdGet, 3);
        two.add(Counter::CmdGet, 4);
        let mut before = Sums::default();
        before.add(&one);
        before.add(&two);
        assert_eq!(before.of(Counter::CmdGet), 7);
        one.add(Counter::CmdGet, 5);
        let mut now = Sums::default();
        now.add(&one);
        now.add(&two);
        now.since(&before);
        assert_eq!(now.of(Counter::CmdGet), 5);
        assert_eq!(now.of(Counter::CmdSet), 0);
    }

    #[test]
    fn workers_share_no_cache_line() {
        assert_eq!(std::mem::align_of::<Counters>(), 128);
        assert_eq!(std::mem::size_of::<Counters>() % 128, 0);
    }
}
