//! What memcached's conversations of all workers share: slab classes as they are shown, and what administrative
//! commands turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::slabs::{SlabClasses, slab_sizes};
use super::tuning::{Kept, Tuning};
use crate::core::shared::Settings;

/// Shared by all of memcached's conversations.
#[derive(Debug)]
pub struct Shared {
    /// The names of all commands, by their numbers.
    pub(crate) names: &'static [&'static str],
    /// Slab classes as they are shown.
    pub(crate) slabs: SlabClasses,
    /// What memcached's tuning commands set.
    pub tuning: Tuning,
    /// A page is on its way by command.
    pub(crate) reassigning: Arc<AtomicBool>,
    /// The crawler is on (`lru_crawler enable|disable`).
    pub(crate) crawler: AtomicBool,
    /// Crawls started.
    pub(crate) crawls: AtomicU64,
    /// What the last `flush_all` leaves is no older, in seconds of memcached's clock; 0 before the first.
    pub oldest_s: Kept,
}

impl Shared {
    /// The crawler is on.
    pub fn crawls_on(&self) -> bool {
        self.crawler.load(Relaxed)
    }

    /// What is shared at the start. `names`: those of all commands, by their numbers.
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
