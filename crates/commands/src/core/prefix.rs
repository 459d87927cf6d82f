//! `stats detail`: gets, hits, sets and deletes per key prefix.
//!
//! Off by default; while off it costs one relaxed load per batch. While on, one process-wide lock:
//! as in memcached, it is for looking, not for running.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_store::Store;

/// Most prefixes that are told apart; keys of further ones are not counted. memcached's limit.
pub const PREFIXES_MAX: usize = 65_536;
/// What they take is at most one part in this many of the memory limit, to which it is charged.
const SHARE: u64 = 32;
/// What a prefix takes beside its bytes, about.
const PREFIX_BYTES: u64 = 128;

/// What was counted for one prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCount {
    /// Gets.
    pub gets: u64,
    /// Of these, hits.
    pub hits: u64,
    /// Sets, stored or not.
    pub sets: u64,
    /// Deletes, found or not.
    pub deletes: u64,
}

/// Counts per prefix.
#[derive(Debug)]
pub struct Prefixes {
    delimiter: u8,
    on: AtomicBool,
    counts: Mutex<Counts>,
    /// Requests that were not counted, since there was no room for their prefix.
    missed: AtomicU64,
}

#[derive(Debug, Default)]
struct Counts {
    of: BTreeMap<Box<[u8]>, PrefixCount>,
    /// What they take.
    bytes: u64,
}

impl Prefixes {
    /// Nothing counted yet.
    pub fn new(delimiter: u8, on: bool) -> Prefixes {
        Prefixes { delimiter, on: AtomicBool::new(on), counts: Mutex::default(), missed: AtomicU64::new(0) }
    }

    /// Counting is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Turns counting on or off.
    pub fn turn(&self, on: bool) {
        self.on.store(on, Relaxed);
    }

    /// Forgets what was counted; of how many prefixes that was.
    pub fn clear(&self, store: &Store) -> usize {
        let mut counts = self.counts();
        let prefixes = counts.of.len();
        counts.of.clear();
        store.set_aside(-(std::mem::take(&mut counts.bytes) as i64));
        self.missed.store(0, Relaxed);
        prefixes
    }

    /// Requests that were not counted, since there was no room for their prefix.
    pub fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }

    /// Counts one request of `key`, if counting is on and the key has a prefix; in `store` is the room for it.
    #[inline]
    pub fn count(&self, store: &Store, key: &[u8], add: impl FnOnce(&mut PrefixCount)) {
        if self.is_on() {
            self.count_on(store, key, add);
        }
    }

    #[cold]
    fn count_on(&self, store: &Store, key: &[u8], add: impl FnOnce(&mut PrefixCount)) {
        let Some(bytes) = key.iter().position(|&b| b == self.delimiter) else { return };
        let mut counts = self.counts();
        if let Some(count) = counts.of.get_mut(&key[..bytes]) {
            return add(count);
        }
        let takes = bytes as u64 + PREFIX_BYTES;
        if counts.of.len() == PREFIXES_MAX || counts.bytes + takes > store.memory_bytes() / SHARE {
            self.missed.fetch_add(1, Relaxed);
            return;
        }
        counts.bytes += takes;
        store.set_aside(takes as i64);
        add(counts.of.entry(key[..bytes].into()).or_default());
    }

    /// Calls `visit` with up to `max` prefixes after `after`, in order; returns the last one, none at
    /// the end.
    pub fn walk(
        &self,
        after: Option<&[u8]>,
        max: usize,
        mut visit: impl FnMut(&[u8], PrefixCount),
    ) -> Option<Box<[u8]>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let counts = self.counts();
        let from = after.map_or(Unbounded, Excluded);
        let mut last = None;
        for (n, (prefix, count)) in counts.of.range::<[u8], _>((from, Unbounded)).enumerate() {
            if n == max {
                return last;
            }
            visit(prefix, *count);
            last = Some(prefix.clone());
        }
        None
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn store(memory_bytes: u64) -> Arc<Store> {
        Store::new(larder_store::Config { memory_bytes, ..Default::default() }).expect("a store")
    }

    #[test]
    fn keys_count_under_their_prefix_while_on() {
        let store = store(1 << 30);
        let prefixes = Prefixes::new(b':', false);
        prefixes.count(&store, b"a:1", |c| c.gets += 1);
        prefixes.turn(true);
        prefixes.count(&store, b"a:1", |c| c.gets += 1);
        prefixes.count(&store, b"a:2", |c| c.sets += 1);
        prefixes.count(&store, b"b:2", |c| c.deletes += 1);
        prefixes.count(&store, b"plain", |c| c.gets += 1);
        let mut seen = Vec::new();
        assert_eq!(prefixes.walk(None, 10, |p, c| seen.push((p.to_vec(), c))), None);
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].1, PrefixCount { gets: 1, sets: 1, ..Default::default() });
        let last = prefixes.walk(None, 1, |_, _| ());
        assert_eq!(last.as_deref(), Some(&b"a"[..]));
        assert_eq!(prefixes.walk(last.as_deref(), 1, |p, _| assert_eq!(p, b"b")), None);
    }

    #[test]
    fn prefixes_above_the_limit_are_not_counted() {
        for (memory_bytes, most) in
            [(1 << 30, PREFIXES_MAX), (16 << 20, (1 << 19) / (PREFIX_BYTES as usize + 5))]
        {
            let store = store(memory_bytes);
            let before = store.heap_bytes();
            let prefixes = Prefixes::new(b':', true);
            for n in 10_000..10_000 + most + 1 {
                assert_eq!(prefixes.missed(), 0);
                prefixes.count(&store, format!("{n:05}:x").as_bytes()[..6].into(), |c| c.gets += 1);
            }
            assert_eq!((prefixes.counts().of.len(), prefixes.missed()), (most, 1));
            assert!(store.heap_bytes() - before >= most as u64 * (PREFIX_BYTES + 5));
            prefixes.clear(&store);
            assert_eq!((store.heap_bytes(), prefixes.missed()), (before, 0));
        }
    }
}
