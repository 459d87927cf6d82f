//! Estimates from a sample how many keys expire: for INFO at once, for scrapers in upkeep.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_store::Guard;

/// Items that are looked at in one walk.
pub(crate) const ITEMS_PER_WALK: usize = 64;
/// Items in a sample, about, from which the shares of all are estimated.
const SAMPLE_ITEMS: u64 = 4096;

/// A sample: of the first items of a walk, up to [`SAMPLE_ITEMS`], how many are in each database, how many of these expire, and
/// the sum of the milliseconds that they have left. It is exact for a small keyspace.
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
    /// Looks at some more items; true when the sample is whole.
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

    /// For a database with so many keys: how many of them expire, the mean of the milliseconds that these have left, and how many
    /// are hashes in which a field expires.
    pub fn of(&self, db: u8, keys: u64) -> (u64, u64, u64) {
        let at = usize::from(db);
        let share = |some: u64| keys * some / self.keys[at].max(1);
        let left_ms = self.left_ms[at] / u128::from(self.expiring[at].max(1));
        (share(self.expiring[at]), left_ms as u64, share(self.timed[at]))
    }
}

/// A sample that upkeep takes, and the last one that is whole.
#[derive(Debug, Default)]
pub(crate) struct Census {
    wanted: AtomicBool,
    samples: Mutex<(Sample, Option<Sample>)>,
}

impl Census {
    /// Has upkeep take samples, for a scraper.
    pub fn want(&self) {
        self.wanted.store(true, Relaxed);
    }

    /// Looks at some items, if a scraper has asked. Called by one worker's upkeep.
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

    /// The last whole sample.
    pub fn last(&self) -> Option<Sample> {
        self.samples().1.clone()
    }

    fn samples(&self) -> MutexGuard<'_, (Sample, Option<Sample>)> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
