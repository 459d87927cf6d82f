//! `stats detail`: gets, hits, sets and deletes per key prefix.
//!
//! Off by default; while off it costs one relaxed load per batch. While on, one process-wide lock:
//! as in memcached, it is for looking, not for running.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most prefixes that are told apart; keys of further ones are not counted. memcached's limit.
pub const PREFIXES_MAX: usize = 65_536;

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
    counts: Mutex<BTreeMap<Box<[u8]>, PrefixCount>>,
}

impl Prefixes {
    /// Nothing counted yet.
    pub fn new(delimiter: u8, on: bool) -> Prefixes {
        Prefixes { delimiter, on: AtomicBool::new(on), counts: Mutex::default() }
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

    /// Forgets what was counted.
    pub fn clear(&self) {
        self.counts().clear();
    }

    /// Counts one request of `key`, if counting is on and the key has a prefix.
    #[inline]
    pub fn count(&self, key: &[u8], add: impl FnOnce(&mut PrefixCount)) {
        if self.is_on() {
            self.count_on(key, add);
        }
    }

    #[cold]
    fn count_on(&self, key: &[u8], add: impl FnOnce(&mut PrefixCount)) {
        let Some(bytes) = key.iter().position(|&b| b == self.delimiter) else { return };
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(&key[..bytes]) {
            add(count);
        } else if counts.len() < PREFIXES_MAX {
            add(counts.entry(key[..bytes].into()).or_default());
        }
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
        for (n, (prefix, count)) in counts.range::<[u8], _>((from, Unbounded)).enumerate() {
            if n == max {
                return last;
            }
            visit(prefix, *count);
            last = Some(prefix.clone());
        }
        None
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Box<[u8]>, PrefixCount>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_count_under_their_prefix_while_on() {
        let prefixes = Prefixes::new(b':', false);
        prefixes.count(b"a:1", |c| c.gets += 1);
        prefixes.turn(true);
        prefixes.count(b"a:1", |c| c.gets += 1);
        prefixes.count(b"a:2", |c| c.sets += 1);
        prefixes.count(b"b:2", |c| c.deletes += 1);
        prefixes.count(b"plain", |c| c.gets += 1);
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
        let prefixes = Prefixes::new(b':', true);
        for n in 0..=PREFIXES_MAX {
            prefixes.count(format!("{n}:x").as_bytes(), |c| c.gets += 1);
        }
        assert_eq!(prefixes.counts().len(), PREFIXES_MAX);
    }
}
