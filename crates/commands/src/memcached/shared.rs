//! State that memcached's conversations of all workers share: slab classes as they are shown, and settings of administrative
//! commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::slabs::{SlabClasses, slab_sizes};
use super::tuning::{Kept, Tuning};
use crate::core::shared::Settings;

/// State that all of memcached's conversations share.
#[derive(Debug)]
pub struct Shared {
    /// The names of all commands, by their numbers.
    pub(crate) names: &'static [&'static str],
    /// Slab classes as they are shown.
    pub(crate) slabs: SlabClasses,
    /// Settings of memcached's tuning commands.
    pub tuning: Tuning,
    /// Whether a page moves by command.
    pub(crate) reassigning: Arc<AtomicBool>,
    /// Whether the crawler is on (`lru_crawler enable|disable`).
    pub(crate) crawler: AtomicBool,
    /// Crawls started.
    pub(crate) crawls: AtomicU64,
    /// The second of memcached's clock from which on items stay after the last `flush_all`; 0 before the first.
    pub oldest_s: Kept,
}

impl Shared {
    /// Returns whether the crawler is on.
    pub fn crawls_on(&self) -> bool {
        self.crawler.load(Relaxed)
    }

    /// Makes the state of the start. `names` are those of all commands, by their numbers.
    pub(crate) fn new(settings: &Settings, names: &'static [&'static str]) -> Shared {
        let slabs = match &settings.slab_sizes[..] {
            [] => SlabClasses::new(&slab_sizes(1.25, 48, 512 << 10)),
            sizes => SlabClasses::new(sizes),
        };
        Shared {
            names,
            slabs,
            tuning: Tuning::default(),
            reassigning: Arc::default(),
            crawler: AtomicBool::new(settings.lru_crawler),
            crawls: AtomicU64::new(u64::from(settings.lru_crawler)),
            oldest_s: Kept::new(0),
        }
    }
}
