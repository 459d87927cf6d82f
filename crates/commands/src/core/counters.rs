//! Counts of a worker: plain numbers written by their worker alone, summed by the thread that reads.
//!
//! A count takes a load and a store, no locked instruction. The alignment keeps another worker's counters out of the cache
//! lines (two, because processors fetch lines in pairs).
//!
//! ```text
//! counts of a worker   Counter: the server's and memcached's │ a block for each other protocol, whose module names what is in it
//! a block              ProtocolCounter, which figures of all protocols add up │ what is the protocol's alone
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_store::CLASSES_END;

use super::rows::{MEMCACHED_ROWS_MAX, ROWS_MAX, Rows};

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident = $text:literal,)*) => {
        /// A count of a worker: memcached's statistic of the same name unless the text says otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter { $($(#[doc = $help])+ $name,)* }

        impl Counter {
            /// All of them, in order.
            pub const ALL: &'static [Counter] = &[$(Counter::$name,)*];

            /// Its name in a list of all figures.
            pub fn name(self) -> &'static str {
                const NAMES: &[&str] = &[$($text,)*];
                NAMES[self as usize]
            }

            /// What it counts.
            pub fn help(self) -> &'static str {
                const HELP: &[&str] = &[$(concat!($($help),+),)*];
                HELP[self as usize].trim_start()
            }
        }
    };
}

counters! {
    /// Keys asked for by get, gets and mg.
    CmdGet = "cmd_get",
    /// Of these, found (also those found by gat, gats).
    GetHits = "get_hits",
    /// Of these, not found.
    GetMisses = "get_misses",
    /// Of the misses, those whose item's time had passed.
    GetExpired = "get_expired",
    /// Of the misses, those whose item a flush took.
    GetFlushed = "get_flushed",
    /// Keys asked for by these, and by gat and gats, that have a collection: not found either.
    TypeMisses = "type_misses",
    /// Stores that got as far as memory for their item.
    CmdSet = "cmd_set",
    /// flush_all, allowed or not.
    CmdFlush = "cmd_flush",
    /// touch, gat, gats, mg with T.
    CmdTouch = "cmd_touch",
    /// Meta commands.
    CmdMeta = "cmd_meta",
    /// delete, md without an item.
    DeleteMisses = "delete_misses",
    /// delete, md with an item.
    DeleteHits = "delete_hits",
    /// incr without an item.
    IncrMisses = "incr_misses",
    /// incr done.
    IncrHits = "incr_hits",
    /// decr without an item.
    DecrMisses = "decr_misses",
    /// decr done.
    DecrHits = "decr_hits",
    /// Compare-and-swap without an item.
    CasMisses = "cas_misses",
    /// Compare-and-swap done.
    CasHits = "cas_hits",
    /// Compare-and-swap on another version.
    CasBadval = "cas_badval",
    /// Touches of an item.
    TouchHits = "touch_hits",
    /// Touches without an item.
    TouchMisses = "touch_misses",
    /// Values above the limit.
    StoreTooLarge = "store_too_large",
    /// Values there was no memory for.
    StoreNoMemory = "store_no_memory",
    /// Passwords that were said, in any protocol.
    AuthCommands = "auth_commands",
    /// Of these, wrong ones.
    AuthErrors = "auth_errors",
    /// Numbers changed that took no more bytes than before: memcached writes them in place, and does
    /// not count an item.
    NumbersInPlace = "numbers_in_place",
    /// Times a connection gave way to others with requests left.
    ConnYields = "conn_yields",
    /// Bytes received; the server counts.
    BytesRead = "bytes_read",
    /// Bytes sent; the server counts.
    BytesWritten = "bytes_written",
    /// Connections closed because others needed the memory that their replies held; the server counts.
    Shed = "connections_shed",
    /// Connections closed because others needed the memory that their requests held, which had come in part; the
    /// server counts.
    Crowded = "connections_crowded",
    /// Connections closed since they did not go on with a request, or did not log in; the server counts.
    Unfinished = "connections_unfinished",
    /// Connections closed for idleness; the server counts.
    IdleKicks = "connections_idle",
    /// Receives whose time was taken.
    TimedReceives = "timed_receives",
    /// Keys of memcached's commands, and RESP commands, that came with these.
    TimedRequests = "timed_requests",
    /// Times that a worker was held up for 10 ms or longer: its turn took so long, or it was woken so late.
    Stalls = "stalls",
    /// Time of upkeep.
    Upkeep = "upkeep",
}

/// The counters whose sum is the number of keys that memcached's commands ask for.
const KEYS: [Counter; 9] = [
    Counter::CmdGet,
    Counter::CmdSet,
    Counter::CmdTouch,
    Counter::DeleteHits,
    Counter::DeleteMisses,
    Counter::IncrHits,
    Counter::IncrMisses,
    Counter::DecrHits,
    Counter::DecrMisses,
];

/// A name of one of a worker's counts: a [`Counter`], or a name that a protocol has in its block.
pub trait Counted: Copy {
    /// The index of the count among a worker's.
    fn index(self) -> usize;
}

impl Counted for Counter {
    #[inline]
    fn index(self) -> usize {
        self as usize
    }
}

/// Counts at the beginning of the block of each protocol but memcached's. memcached's counters of the same things are of
/// several commands each, as its statistics have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum ProtocolCounter {
    /// Commands.
    Commands,
    /// Keys that commands read and found.
    Hits,
    /// Keys that commands read and did not find.
    Misses,
    /// Misses whose item's time had passed.
    Expired,
}

/// Protocols that have a block: all but memcached's. A new protocol takes the next.
const BLOCKS: usize = 1;
/// Most counts of a block.
const BLOCK_COUNTS: usize = 8;
/// Counts of a worker that are of no class, and of no command.
const COUNTS: usize = Counter::ALL.len() + BLOCKS * BLOCK_COUNTS;

/// The index, among a worker's counts, of count `at` of a block.
#[inline]
pub(crate) const fn in_block(block: usize, at: usize) -> usize {
    assert!(block < BLOCKS && at < BLOCK_COUNTS, "a block of its own, and no more counts than it has");
    Counter::ALL.len() + block * BLOCK_COUNTS + at
}

/// Sums a counter over all blocks.
fn in_blocks(counter: ProtocolCounter, count: impl Fn(usize) -> u64) -> u64 {
    (0..BLOCKS).map(|block| count(in_block(block, counter as usize))).sum()
}

/// Counts by slab class: memcached's statistics of the same name, in its order. The sum over all classes is the [`Counter`] of
/// that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ClassCounter {
    /// Class of the item found.
    GetHits,
    /// Class of the new item, stored or refused.
    CmdSet,
    /// Class of the item deleted.
    DeleteHits,
    /// Class of the number before.
    IncrHits,
    /// Class of the number before.
    DecrHits,
    /// Class of the item compared with.
    CasHits,
    /// Class of the item compared with.
    CasBadval,
    /// Class of the item touched.
    TouchHits,
}

impl ClassCounter {
    /// All of them, in order, with their names in `stats slabs`.
    pub const ALL: [(ClassCounter, &'static str); 8] = [
        (ClassCounter::GetHits, "get_hits"),
        (ClassCounter::CmdSet, "cmd_set"),
        (ClassCounter::DeleteHits, "delete_hits"),
        (ClassCounter::IncrHits, "incr_hits"),
        (ClassCounter::DecrHits, "decr_hits"),
        (ClassCounter::CasHits, "cas_hits"),
        (ClassCounter::CasBadval, "cas_badval"),
        (ClassCounter::TouchHits, "touch_hits"),
    ];
}

/// A cache line of counters for each of the store's slab classes.
type Classes<T> = [[T; ClassCounter::ALL.len()]; CLASSES_END];

/// The counters of one worker.
#[derive(Debug)]
#[repr(align(128))]
pub struct Counters {
    classes: Classes<AtomicU64>,
    values: [AtomicU64; COUNTS],
    /// Counts of each RESP command.
    pub(crate) rows: Rows,
    /// Counts of each of memcached's commands.
    pub(crate) memcached: Rows,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            classes: [const { [const { AtomicU64::new(0) }; _] }; _],
            values: [const { AtomicU64::new(0) }; COUNTS],
            rows: Rows::new(ROWS_MAX),
            memcached: Rows::new(MEMCACHED_ROWS_MAX),
        }
    }
}

impl Counters {
    /// Adds `n`. Only the worker that owns the counters may call it.
    #[inline]
    pub fn add(&self, counter: impl Counted, n: u64) {
        let value = &self.values[counter.index()];
        value.store(value.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds one in a slab class of the store. Only the worker that owns the counters may call it.
    #[inline]
    pub fn count_in(&self, class: u8, counter: ClassCounter) {
        self.add_in(class, counter, 1);
    }

    /// Adds `n` in a slab class of the store. Only the worker that owns the counters may call it.
    #[inline]
    pub fn add_in(&self, class: u8, counter: ClassCounter, n: u64) {
        const { assert!(CLASSES_END.is_power_of_two()) };
        let value = &self.classes[usize::from(class) % CLASSES_END][counter as usize];
        value.store(value.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Takes back one count of [`Counters::count_in`].
    pub fn uncount_in(&self, class: u8, counter: ClassCounter) {
        let value = &self.classes[usize::from(class) % CLASSES_END][counter as usize];
        value.store(value.load(Relaxed).wrapping_sub(1), Relaxed);
    }

    /// The value; any thread may read it.
    pub fn value(&self, counter: impl Counted) -> u64 {
        self.values[counter.index()].load(Relaxed)
    }

    /// Keys of memcached's commands, and commands of other protocols; any thread may read it.
    pub fn requests(&self) -> u64 {
        let keys: u64 = KEYS.iter().map(|counter| self.value(*counter)).sum();
        keys + in_blocks(ProtocolCounter::Commands, |at| self.values[at].load(Relaxed))
    }
}

/// Sums over workers, less what they were at the last `stats reset`.
#[derive(Clone, Debug)]
pub struct Sums {
    values: [u64; COUNTS],
    classes: Box<Classes<u64>>,
}

impl Default for Sums {
    fn default() -> Sums {
        Sums { values: [0; COUNTS], classes: Box::new([[0; _]; _]) }
    }
}

impl Sums {
    /// Adds one worker's counters.
    pub fn add(&mut self, counters: &Counters) {
        for (sum, value) in self.values.iter_mut().zip(&counters.values) {
            *sum = sum.wrapping_add(value.load(Relaxed));
        }
        let classes = counters.classes.as_flattened();
        for (sum, value) in self.classes.as_flattened_mut().iter_mut().zip(classes) {
            *sum = sum.wrapping_add(value.load(Relaxed));
        }
    }

    /// Subtracts earlier sums.
    pub fn since(&mut self, before: &Sums) {
        for (sum, before) in self.values.iter_mut().zip(&before.values) {
            *sum = sum.saturating_sub(*before);
        }
        let before = before.classes.as_flattened();
        for (sum, before) in self.classes.as_flattened_mut().iter_mut().zip(before) {
            *sum = sum.saturating_sub(*before);
        }
    }

    /// The sum in one of the store's slab classes.
    pub fn in_class(&self, class: u8, counter: ClassCounter) -> u64 {
        self.classes[usize::from(class)][counter as usize]
    }

    /// The sum of a count.
    pub fn of(&self, counter: impl Counted) -> u64 {
        self.values[counter.index()]
    }

    /// Keys of memcached's commands, and commands of other protocols.
    pub fn requests(&self) -> u64 {
        let keys: u64 = KEYS.iter().map(|counter| self.of(*counter)).sum();
        keys + self.in_blocks(ProtocolCounter::Commands)
    }

    /// Keys that were read and found, by any protocol.
    pub fn hits(&self) -> u64 {
        self.of(Counter::GetHits) + self.in_blocks(ProtocolCounter::Hits)
    }

    /// Keys that were read and not found, by any protocol.
    pub fn misses(&self) -> u64 {
        self.of(Counter::GetMisses) + self.in_blocks(ProtocolCounter::Misses)
    }

    /// Misses of any protocol whose item's time had passed.
    pub fn misses_expired(&self) -> u64 {
        self.of(Counter::GetExpired) + self.in_blocks(ProtocolCounter::Expired)
    }

    fn in_blocks(&self, counter: ProtocolCounter) -> u64 {
        in_blocks(counter, |at| self.values[at])
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
        one.count_in(1, ClassCounter::GetHits);
        let mut before = Sums::default();
        before.add(&one);
        before.add(&two);
        assert_eq!(before.of(Counter::CmdGet), 7);
        one.add(Counter::CmdGet, 5);
        one.count_in(1, ClassCounter::GetHits);
        two.count_in(1, ClassCounter::GetHits);
        two.count_in(127, ClassCounter::TouchHits);
        let mut now = Sums::default();
        now.add(&one);
        now.add(&two);
        now.since(&before);
        assert_eq!(now.of(Counter::CmdGet), 5);
        assert_eq!(now.of(Counter::CmdSet), 0);
        assert_eq!(now.in_class(1, ClassCounter::GetHits), 2);
        assert_eq!(now.in_class(127, ClassCounter::TouchHits), 1);
        assert_eq!(now.in_class(2, ClassCounter::GetHits), 0);
    }

    /// A count of the last block.
    #[derive(Clone, Copy)]
    struct InBlock(usize);

    impl Counted for InBlock {
        fn index(self) -> usize {
            in_block(BLOCKS - 1, self.0)
        }
    }

    #[test]
    fn figures_of_all_protocols_add_up_their_blocks() {
        let counters = Counters::default();
        for (counter, n) in [
            (Counter::CmdGet, 1),
            (Counter::DecrMisses, 2),
            (Counter::GetHits, 10),
            (Counter::GetMisses, 20),
            (Counter::GetExpired, 30),
        ] {
            counters.add(counter, n);
        }
        for (counter, n) in [
            (ProtocolCounter::Commands, 100),
            (ProtocolCounter::Hits, 200),
            (ProtocolCounter::Misses, 300),
            (ProtocolCounter::Expired, 400),
        ] {
            counters.add(InBlock(counter as usize), n);
        }
        let mut sums = Sums::default();
        sums.add(&counters);
        assert_eq!((counters.requests(), sums.requests()), (103, 103));
        assert_eq!((sums.hits(), sums.misses(), sums.misses_expired()), (210, 320, 430));
    }

    #[test]
    fn a_block_has_as_many_counts_as_it_may() {
        let counters = Counters::default();
        for (n, at) in (1..).zip(0..BLOCK_COUNTS) {
            counters.add(InBlock(at), n);
        }
        let values: Vec<u64> = counters.values.iter().map(|value| value.load(Relaxed)).collect();
        let (first, block) = values.split_at(COUNTS - BLOCK_COUNTS);
        assert!(first.iter().all(|value| *value == 0));
        assert_eq!(block, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    #[should_panic(expected = "no more counts than it has")]
    fn a_block_has_no_count_more() {
        in_block(0, BLOCK_COUNTS);
    }

    #[test]
    fn workers_share_no_cache_line() {
        assert_eq!(std::mem::align_of::<Counters>(), 128);
        assert_eq!(std::mem::size_of::<Counters>() % 128, 0);
    }
}
