//! `stats detail`: gets, hits, sets and deletes per key prefix.
//!
//! ```text
//! worker ── its table, its lock ──┐
//! worker ── its table, its lock ──┴─► dump: some rows at a time, the same prefix of all tables together
//! ```
//!
//! Off by default; while off it costs one relaxed load per batch. While on, each worker counts in a table of its own: it waits
//! for its lock only while another thread reads this table or takes it away. Forgotten tables are given up whole, and freed by
//! upkeep, some rows at a time.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::mem::take;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_store::Store;

/// Most prefixes that a worker counts apart; keys of further ones are not counted. memcached's limit.
pub const PREFIXES_MAX: usize = 65_536;
/// All prefixes take at most one part in this many of the memory limit, to which they are charged.
const SHARE: u64 = 32;
/// Bytes of a prefix beside its name, about.
const PREFIX_BYTES: u64 = 128;
/// Prefixes that are freed at a time: a third of a millisecond.
const FREED_AT_ONCE: usize = 2048;

/// Counts of one prefix.
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

impl PrefixCount {
    fn add(&mut self, other: &PrefixCount) {
        self.gets += other.gets;
        self.hits += other.hits;
        self.sets += other.sets;
        self.deletes += other.deletes;
    }
}

type Table = BTreeMap<Box<[u8]>, PrefixCount>;

/// A worker's own counts, made with its first request that is counted.
#[derive(Debug, Default)]
pub struct WorkerPrefixes(OnceCell<Arc<Mutex<Counts>>>);

/// Counts per prefix.
#[derive(Debug)]
pub struct Prefixes {
    delimiter: u8,
    on: AtomicBool,
    /// The tables of all workers.
    tables: Mutex<Vec<Arc<Mutex<Counts>>>>,
    /// Bytes of all tables.
    bytes: AtomicU64,
    /// Tables that were given up, and are to be freed.
    given_up: Mutex<Vec<Table>>,
    /// Number of these tables.
    left: AtomicUsize,
}

#[derive(Debug, Default)]
struct Counts {
    of: Table,
    /// Requests that were not counted, since there was no room for their prefix.
    missed: u64,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn taken(prefix: &[u8]) -> u64 {
    prefix.len() as u64 + PREFIX_BYTES
}

impl Prefixes {
    /// Makes them with no counts.
    pub fn new(delimiter: u8, on: bool) -> Prefixes {
        Prefixes {
            delimiter,
            on: AtomicBool::new(on),
            tables: Mutex::default(),
            bytes: AtomicU64::new(0),
            given_up: Mutex::default(),
            left: AtomicUsize::new(0),
        }
    }

    /// Returns whether counting is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Turns counting on or off.
    pub fn turn(&self, on: bool) {
        self.on.store(on, Relaxed);
    }

    /// Forgets all counts. The memory comes back by [`Prefixes::free_some`].
    pub fn clear(&self) {
        let tables: Vec<Table> = lock(&self.tables)
            .iter()
            .map(|own| {
                let mut counts = lock(own);
                counts.missed = 0;
                take(&mut counts.of)
            })
            .filter(|table| !table.is_empty())
            .collect();
        let mut given_up = lock(&self.given_up);
        given_up.extend(tables);
        self.left.store(given_up.len(), Relaxed);
    }

    /// Frees some of the tables that were given up; true if there is more.
    #[inline]
    pub fn free_some(&self, store: &Store) -> bool {
        self.left.load(Relaxed) > 0 && self.free(store)
    }

    #[cold]
    fn free(&self, store: &Store) -> bool {
        let Some(mut table) = lock(&self.given_up).pop() else { return false };
        let mut bytes = 0;
        for _ in 0..FREED_AT_ONCE {
            let Some((prefix, _)) = table.pop_first() else { break };
            bytes += taken(&prefix);
        }
        self.bytes.fetch_sub(bytes, Relaxed);
        store.set_aside(-(bytes as i64));
        let mut given_up = lock(&self.given_up);
        if !table.is_empty() {
            given_up.push(table);
        }
        self.left.store(given_up.len(), Relaxed);
        !given_up.is_empty()
    }

    /// Requests that were not counted, since there was no room for their prefix.
    pub fn missed(&self) -> u64 {
        lock(&self.tables).iter().map(|own| lock(own).missed).sum()
    }

    /// Counts one request of `key` in the worker's own table, if counting is on and the key has a prefix. A new prefix is
    /// charged to `store`.
    #[inline]
    pub fn count(&self, own: &WorkerPrefixes, store: &Store, key: &[u8], add: impl FnOnce(&mut PrefixCount)) {
        if self.is_on() {
            self.count_on(own, store, key, add);
        }
    }

    #[cold]
    fn count_on(&self, own: &WorkerPrefixes, store: &Store, key: &[u8], add: impl FnOnce(&mut PrefixCount)) {
        let Some(bytes) = key.iter().position(|&b| b == self.delimiter) else { return };
        let mut counts = lock(own.0.get_or_init(|| self.open()));
        if let Some(count) = counts.of.get_mut(&key[..bytes]) {
            return add(count);
        }
        if counts.of.len() == PREFIXES_MAX || !self.take(store, taken(&key[..bytes])) {
            counts.missed += 1;
            return;
        }
        add(counts.of.entry(key[..bytes].into()).or_default());
    }

    fn open(&self) -> Arc<Mutex<Counts>> {
        let own = Arc::default();
        lock(&self.tables).push(Arc::clone(&own));
        own
    }

    /// Charges so many bytes more; false if all prefixes would then take more than they may.
    fn take(&self, store: &Store, bytes: u64) -> bool {
        let most = store.memory_bytes() / SHARE;
        let fits = |now: u64| now.checked_add(bytes).filter(|sum| *sum <= most);
        let fits = self.bytes.fetch_update(Relaxed, Relaxed, fits).is_ok();
        if fits {
            store.set_aside(bytes as i64);
        }
        fits
    }

    /// Tables that are looked through for a row: one for each worker that has counted.
    pub fn tables(&self) -> usize {
        lock(&self.tables).len()
    }

    /// Calls `visit` with up to `max` prefixes after `after`, in order. Returns the last one, `None` at the end. Each worker
    /// waits no longer than for `max` rows of its table.
    pub fn walk(
        &self,
        after: Option<&[u8]>,
        max: usize,
        mut visit: impl FnMut(&[u8], PrefixCount),
    ) -> Option<Box<[u8]>> {
        let tables = lock(&self.tables).clone();
        let from = after.map_or(Unbounded, Excluded);
        // The first rows of all tables, and one more, which shows that there are further ones.
        let mut rows = Table::new();
        for own in &tables {
            for (prefix, count) in lock(own).of.range::<[u8], _>((from, Unbounded)).take(max + 1) {
                if let Some(known) = rows.get_mut(prefix) {
                    known.add(count);
                } else if rows.len() <= max || rows.last_key_value().is_some_and(|(last, _)| prefix < last) {
                    rows.insert(prefix.clone(), *count);
                } else {
                    break;
                }
                if rows.len() > max + 1 {
                    rows.pop_last();
                }
            }
        }
        let more = rows.len() > max;
        if more {
            rows.pop_last();
        }
        rows.iter().for_each(|(prefix, count)| visit(prefix, *count));
        if more { rows.pop_last().map(|(last, _)| last) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(memory_bytes: u64) -> Arc<Store> {
        Store::new(larder_store::Config { memory_bytes, ..Default::default() }).expect("a store")
    }

    fn all(prefixes: &Prefixes, at_once: usize) -> Vec<(Vec<u8>, PrefixCount)> {
        let (mut rows, mut after) = (Vec::new(), None);
        loop {
            let before = rows.len();
            after =
                prefixes.walk(after.as_deref(), at_once, |prefix, count| rows.push((prefix.to_vec(), count)));
            assert!(rows.len() - before <= at_once);
            if after.is_none() {
                return rows;
            }
        }
    }

    #[test]
    fn keys_count_under_their_prefix_while_on() {
        let (store, own) = (store(1 << 30), WorkerPrefixes::default());
        let prefixes = Prefixes::new(b':', false);
        prefixes.count(&own, &store, b"a:1", |c| c.gets += 1);
        prefixes.turn(true);
        prefixes.count(&own, &store, b"a:1", |c| c.gets += 1);
        prefixes.count(&own, &store, b"a:2", |c| c.sets += 1);
        prefixes.count(&own, &store, b"b:2", |c| c.deletes += 1);
        prefixes.count(&own, &store, b"plain", |c| c.gets += 1);
        let expected = [
            (b"a".to_vec(), PrefixCount { gets: 1, sets: 1, ..Default::default() }),
            (b"b".to_vec(), PrefixCount { deletes: 1, ..Default::default() }),
        ];
        for at_once in 1..4 {
            assert_eq!(all(&prefixes, at_once), expected, "{at_once} at once");
        }
    }

    #[test]
    fn the_same_prefix_of_several_workers_is_one_row_however_many_are_told_at_once() {
        let (store, prefixes) = (store(1 << 30), Prefixes::new(b':', true));
        let tables: [WorkerPrefixes; 3] = Default::default();
        let mut expected = BTreeMap::new();
        for (worker, own) in tables.iter().enumerate() {
            for n in (0..300).filter(|n| n % 3 == worker || n % 5 == 0) {
                prefixes.count(own, &store, format!("{n:03}:k").as_bytes(), |c| c.gets += n as u64);
                *expected.entry(format!("{n:03}").into_bytes()).or_insert(0) += n as u64;
            }
        }
        for at_once in [1, 2, 7, 128, 299, 300, 301] {
            let told: BTreeMap<_, _> =
                all(&prefixes, at_once).into_iter().map(|(prefix, count)| (prefix, count.gets)).collect();
            assert_eq!(told, expected, "{at_once} at once");
        }
    }

    #[test]
    fn prefixes_above_the_limit_are_not_counted_and_what_is_forgotten_is_freed_in_steps() {
        for (memory_bytes, most) in
            [(1 << 30, PREFIXES_MAX), (16 << 20, (1 << 19) / (PREFIX_BYTES as usize + 5))]
        {
            let (store, own) = (store(memory_bytes), WorkerPrefixes::default());
            let before = store.heap_bytes();
            let prefixes = Prefixes::new(b':', true);
            for n in 10_000..10_000 + most + 1 {
                assert_eq!(prefixes.missed(), 0);
                prefixes.count(&own, &store, format!("{n:05}:x").as_bytes()[..6].into(), |c| c.gets += 1);
            }
            assert_eq!((all(&prefixes, 128).len(), prefixes.missed()), (most, 1));
            assert!(store.heap_bytes() - before >= most as u64 * (PREFIX_BYTES + 5));
            prefixes.clear();
            assert_eq!((all(&prefixes, 128).len(), prefixes.missed()), (0, 0));
            let mut steps = 1;
            while prefixes.free_some(&store) {
                steps += 1;
            }
            assert_eq!(steps, most.div_ceil(FREED_AT_ONCE));
            assert_eq!((store.heap_bytes(), prefixes.bytes.load(Relaxed)), (before, 0));
            prefixes.count(&own, &store, b"again:1", |c| c.gets += 1);
            assert_eq!(all(&prefixes, 128).len(), 1);
        }
    }

    #[test]
    fn workers_count_beside_each_other_and_beside_who_looks() {
        let (store, prefixes) = (store(1 << 30), Prefixes::new(b':', true));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let own = WorkerPrefixes::default();
                    for n in 0..5_000 {
                        let key = format!("{}:x", n % 50);
                        prefixes.count(&own, &store, key.as_bytes(), |c| c.gets += 1);
                    }
                });
            }
            for _ in 0..20 {
                assert!(all(&prefixes, 7).len() <= 50);
            }
        });
        let rows = all(&prefixes, 128);
        assert_eq!((rows.len(), rows.iter().map(|(_, count)| count.gets).sum::<u64>()), (50, 15_000));
    }
}
