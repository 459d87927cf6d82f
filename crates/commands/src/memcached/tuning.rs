//! Settings of memcached's tuning commands: kept, shown by `stats settings`, and without effect here.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A number that commands change and all workers read.
#[derive(Debug)]
pub struct Kept(AtomicU64);

impl Kept {
    /// Holds `value`.
    pub fn new(value: u64) -> Kept {
        Kept(AtomicU64::new(value))
    }
    /// Holds a ratio.
    pub fn ratio(value: f64) -> Kept {
        Kept::new(value.to_bits())
    }
    /// The value that it holds.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
    /// The ratio that it holds.
    pub fn get_ratio(&self) -> f64 {
        f64::from_bits(self.get())
    }
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
    pub(crate) fn set_ratio(&self, value: f64) {
        self.set(value.to_bits());
    }
}

/// memcached's LRU, crawler and slab mover as commands have set them.
#[derive(Debug)]
pub struct Tuning {
    /// `slabs automove ratio`: ages that differ by more move memory.
    pub automove_ratio: Kept,
    /// `slabs automove freeratio`: share of memory that is kept free.
    pub automove_free_ratio: Kept,
    /// `slabs automove window`: seconds of history that decide.
    pub automove_window_s: Kept,
    /// `lru mode`: 1 is segmented, 0 flat.
    pub lru_segmented: Kept,
    /// `lru tune`: per cent of a class that is hot.
    pub hot_lru_pct: Kept,
    /// `lru tune`: per cent of a class that is warm.
    pub warm_lru_pct: Kept,
    /// `lru tune`: age of hot items against cold ones.
    pub hot_max_factor: Kept,
    /// `lru tune`: age of warm items against cold ones.
    pub warm_max_factor: Kept,
    /// `lru temp_ttl`: 1, items of a short life have a queue of their own.
    pub temp_lru: Kept,
    /// `lru temp_ttl`: the longest of these lives, in seconds.
    pub temporary_ttl_s: Kept,
    /// `lru_crawler sleep`: microseconds between two items.
    pub crawler_sleep_us: Kept,
    /// `lru_crawler tocrawl`: items of a crawl, 0 for all.
    pub crawler_items: Kept,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            automove_ratio: Kept::ratio(0.8),
            automove_free_ratio: Kept::ratio(0.01),
            automove_window_s: Kept::new(10),
            lru_segmented: Kept::new(1),
            hot_lru_pct: Kept::new(20),
            warm_lru_pct: Kept::new(40),
            hot_max_factor: Kept::ratio(0.2),
            warm_max_factor: Kept::ratio(2.0),
            temp_lru: Kept::new(0),
            temporary_ttl_s: Kept::new(61),
            crawler_sleep_us: Kept::new(100),
            crawler_items: Kept::new(0),
        }
    }
}
