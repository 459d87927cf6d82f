//! How many keys expire, found out from a sample: for INFO at once, for scrapers by upkeep.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_store::Guard;

/// Keys looked at between two looks at what was found.
pub(crate) const ITEMS_PER_WALK: usize = 64;
/// Items looked at to say how many of all expire.
const SAMPLE_ITEMS: u64 = 4096;

/// How many of the first items of a walk, up to [`SAMPLE_ITEMS`], are in each database; how many of
/// them expire, and the sum of their milliseconds. Exact for a small keyspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    keys: [u64; larder_store::DATABASES as usize],
    expiring: [u64; larder_store::DATABASES as usize],
    left_ms: [u128; larder_store::DATABASES as usize],
    /// Hashes in which a field expires.
    timed: [u64; larder_store::DATABASES as usize],
    /// Where the walk goes on.
    cursor: u64,
}

impl Sample {
    /// Looks at some items more; true if these are all that it looks at.
    pub fn step(&mut self, guard: &mut Guard<'_>) -> bool {
        let now = guard.now();
        self.cursor = guard.walk(self.cursor, ITEMS_PER_WALK, &mut |item| {
            let db = usize::from(item.database());
            self.keys[db] += 1;
            if item.expires_at() != 0 {
                self.expiring[db] += 1;
                self.left_ms[db] += u128::from(item.expires_at().saturating_sub(now));
            }
            self.timed[db] += u64::from(item.is_timed());
        });
        self.cursor == 0 || self.keys.iter().sum::<u64>() >= SAMPLE_ITEMS
    }

    /// How many of a database's keys expire, the mean of the milliseconds that they have left, and how many of its keys are
    /// hashes in which a field expires.
    pub fn of(&self, db: u8, keys: u64) -> (u64, u64, u64) {
        let at = usize::from(db);
        let share = |some: u64| keys * some / self.keys[at].max(1);
        let left_ms = self.left_ms[at] / u128::from(self.expiring[at].max(1));
        (share(self.expiring[at]), left_ms as u64, share(self.timed[at]))
    }
}

/// A sample of items that upkeep takes, and the last one that is whole.
#[derive(Debug, Default)]
pub(crate) struct Census {
    wanted: AtomicBool,
    samples: Mutex<(Sample, Option<Sample>)>,
}

impl Census {
    /// A scraper wants to know.
    pub fn want(&self) {
        self.wanted.store(true, Relaxed);
    }

    /// Looks at some items, if a scraper wants to know. From one worker's upkeep.
    pub fn step(&self, guard: &mut Guard<'_>) {
        if !self.wanted.load(Relaxed) {
            return;
        }
        let mut samples = self.samples();
        let (under_way, whole) = &mut *samples;
        if under_way.step(guard) {
            *whole = Some(std::mem::take(under_way));
        }
    }

    /// The last sample that is whole.
    pub fn last(&self) -> Option<Sample> {
        self.samples().1.clone()
    }

    fn samples(&self) -> MutexGuard<'_, (Sample, Option<Sample>)> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
