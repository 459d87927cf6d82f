//! WATCH: clients that want to know whether a key changes; and keys that are awaited, by clients that wait for something to
//! be there.
//!
//! ```text
//! bucket's watched bit ─▶ shard by hash ─▶ database ─▶ hash ─▶ key ─▶ flags of clients that watch
//!                                                                  └▶ awaited: noted by the worker that writes
//! ```
//!
//! A write finds the bit in the control word it holds anyway and raises the flags before it lets the
//! bucket go: a worker that then begins a transaction on the key sees them. The bit is cleared with the last
//! watch of its bucket.
//!
//! Only changes of an item raise flags. That it expired, was evicted or was flushed shows when it is
//! looked at again: a key that was there when it was watched, was not written since, and is not
//! there, went by itself.
//!
//! A write to a key that is awaited is noted ([`Guard::take_called`]): the worker that wrote looks then for waiters.
//! A waiter has the key awaited first and looks at it behind that. So either it sees what was written, or the write finds
//! the bit: both are under the bucket's lock.
//!
//! SWAPDB takes the watches of two databases elsewhere while all others wait, so it is refused where they are too many.

use crate::bucket::Control;
use crate::index::Locked;
use crate::item::RawItem;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::worker::{Guard, Local};
use crate::{DATABASES, Key, Lookup, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// All watches together hold at most one part in this many of the memory limit.
const WATCH_SHARE: u64 = 16;
/// What a watch takes beside three copies of its key (the third when it goes), about: its place in the table, the table's and the
/// client's entry, a flag, and what the allocator adds to each.
const WATCH_BYTES: u64 = 288;
/// Parts of the table, by the first bits of the hash, each under its lock.
const SHARDS: usize = 64;

/// A client's flag: raised when a key it watches changes.
pub type Touched = Arc<AtomicBool>;

/// Watches that go at once: some 100 µs. The others go with the next batches, or with upkeep.
const ENDED_AT_ONCE: usize = 256;
/// Databases that are swapped have no more watches together: some 1.3 µs each, for which all workers wait.
pub const WATCHES_SWAPPED_MAX: u64 = 4096;

/// One watched key.
#[derive(Debug)]
struct Watch {
    /// The database's name when it was watched.
    name: u8,
    key: Box<[u8]>,
    /// Flags of watchers, each with how often it watches.
    flags: Vec<(Touched, usize)>,
    /// How many clients wait for something to be there.
    awaited: usize,
}

/// Database, key and flag of a watch that is to go; none: one that awaits the key.
type Leaving = (u8, Box<[u8]>, Option<Touched>);

/// Keys that were written while they were awaited, in order, each once: of one worker.
#[derive(Debug, Default)]
pub(crate) struct Called {
    keys: BTreeMap<(u8, Box<[u8]>), u64>,
    next: u64,
}

impl Called {
    fn note(&mut self, name: u8, key: &[u8]) {
        let next = self.next;
        self.keys.entry((name, key.into())).or_insert(next);
        self.next += 1;
    }
}

/// By the number of the database, then by the hash.
type Shard = [BTreeMap<u64, Vec<Watch>>; DATABASES as usize];

/// All watches.
#[derive(Debug)]
pub(crate) struct Watches {
    shards: Box<[Mutex<Shard>]>,
    /// By the number of the database: what was added and not taken out, each time that a key is watched or awaited.
    counts: [AtomicU64; DATABASES as usize],
    bytes: AtomicU64,
    /// Those that are to be taken out, by a worker: only in a batch a bucket is sure to be one.
    leaving: Mutex<Vec<Leaving>>,
    leaving_count: AtomicU64,
}

impl Default for Watches {
    fn default() -> Watches {
        Watches {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            bytes: AtomicU64::new(0),
            leaving: Mutex::default(),
            leaving_count: AtomicU64::new(0),
        }
    }
}

impl Watches {
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shards[(hash >> 58) as usize].lock().expect("no panic under the lock")
    }

    fn add(&self, key: &Key<'_>, name: u8, flag: Option<&Touched>) {
        let number = usize::from(key.number);
        let mut shard = self.shard(key.hash);
        self.counts[number].fetch_add(1, Ordering::Relaxed);
        // Hardly ever there is another of the same hash.
        let list = shard[number].entry(key.hash).or_insert_with(|| Vec::with_capacity(1));
        let at = list.iter().position(|watch| watch.is(key)).unwrap_or_else(|| {
            list.push(Watch {
                name,
                key: key.bytes.into(),
                flags: Vec::with_capacity(usize::from(flag.is_some())),
                awaited: 0,
            });
            list.len() - 1
        });
        match flag {
            Some(flag) => match list[at].times(flag) {
                Some((_, times)) => *times += 1,
                None => list[at].flags.push((Arc::clone(flag), 1)),
            },
            None => list[at].awaited += 1,
        }
    }

    /// True if a key with one of these hashes, which are those of a bucket, is watched.
    pub(crate) fn has(&self, hashes: RangeInclusive<u64>) -> bool {
        // Buckets are in the order of the hash, and none is in two shards.
        let shard = self.shard(*hashes.start());
        shard.iter().any(|watches| watches.range(hashes.clone()).next().is_some())
    }

    /// Takes a watch out.
    fn remove(&self, key: &Key<'_>, flag: Option<&Touched>) {
        let number = usize::from(key.number);
        let mut shard = self.shard(key.hash);
        self.counts[number].fetch_sub(1, Ordering::Relaxed);
        let watches = &mut shard[number];
        if let Some(list) = watches.get_mut(&key.hash) {
            if let Some(watch) = list.iter_mut().find(|watch| watch.is(key)) {
                match flag {
                    None => watch.awaited = watch.awaited.saturating_sub(1),
                    Some(flag) => {
                        if let Some((at, times)) = watch.times(flag) {
                            *times -= 1;
                            if *times == 0 {
                                watch.flags.swap_remove(at);
                            }
                        }
                    }
                }
            }
            list.retain(|watch| !watch.flags.is_empty() || watch.awaited > 0);
            if list.is_empty() {
                watches.remove(&key.hash);
            }
        }
    }

    /// How many different buckets have watched keys; `home` says which one a hash's is.
    pub(crate) fn homes<H: Ord>(&self, home: impl Fn(u64) -> H) -> usize {
        let shards = self.shards.iter().map(|shard| shard.lock().expect("no panic under the lock"));
        let homes = |shard: MutexGuard<'_, Shard>| {
            shard.iter().flat_map(BTreeMap::keys).map(|&hash| home(hash)).collect::<BTreeSet<H>>()
        };
        shards.flat_map(homes).count()
    }

    /// Raises the flags of all watchers of a key; returns the name of its database if a client awaits it.
    #[cold]
    fn touch(&self, key: &Key<'_>) -> Option<u8> {
        let shard = self.shard(key.hash);
        let watch = shard[usize::from(key.number)].get(&key.hash)?.iter().find(|watch| watch.is(key))?;
        for (flag, _) in &watch.flags {
            // The bucket's lock orders it for a worker that begins a transaction on the key.
            flag.store(true, Ordering::Relaxed);
        }
        (watch.awaited > 0).then_some(watch.name)
    }
}

impl Watch {
    /// True if it watches this key, which is of its database.
    fn is(&self, key: &Key<'_>) -> bool {
        *self.key == *key.bytes
    }

    /// Where a flag is, and how often it watches.
    fn times(&mut self, flag: &Touched) -> Option<(usize, &mut usize)> {
        let at = self.flags.iter().position(|(other, _)| Arc::ptr_eq(other, flag))?;
        Some((at, &mut self.flags[at].1))
    }

    fn bytes(key: &[u8]) -> u64 {
        WATCH_BYTES + 3 * key.len() as u64
    }
}

impl Store {
    /// Bytes that watches hold now.
    pub fn watch_bytes(&self) -> u64 {
        self.watches.bytes.load(Ordering::Relaxed)
    }

    /// Watches of the keys of the database with this name, each time that one is watched or awaited.
    pub fn watches_in(&self, name: u8) -> u64 {
        self.watches.counts[usize::from(self.names.word(name).number())].load(Ordering::Relaxed)
    }

    /// Takes back what [`Guard::watch`] did, once: any thread, in a batch or not. It is done by the next
    /// [`Guard::end_watches`], or by upkeep.
    pub fn unwatch(&self, name: u8, key: &[u8], flag: &Touched) {
        self.leaves(name, key, Some(Arc::clone(flag)));
    }

    /// Takes back what [`Guard::await_key`] did, once, as [`Store::unwatch`].
    pub fn unawait(&self, name: u8, key: &[u8]) {
        self.leaves(name, key, None);
    }

    fn leaves(&self, name: u8, key: &[u8], flag: Option<Touched>) {
        let mut leaving = self.watches.leaving.lock().expect("no panic under the lock");
        leaving.push((name, key.into(), flag));
        self.watches.leaving_count.store(leaving.len() as u64, Ordering::Relaxed);
    }

    /// Unlocks a bucket whose watches have become fewer; `hash` is one that is at home there. If it has none,
    /// writes need not look for any.
    fn unlock_watched(&self, locked: Locked<'_>, hash: u64) {
        let Locked { place, home, control } = locked;
        let watched = self.watches.has(place.home_hashes(hash));
        home.unlock(if watched { control } else { control.without_watched() });
    }
}

impl Local {
    /// Tells the watchers of a key that it changes, under its home bucket's lock, before the lock is released.
    #[inline]
    pub(crate) fn touched(&mut self, store: &Store, control: Control, key: &Key<'_>) {
        if control.watched() {
            self.touch_watches(store, key);
        }
    }

    /// Tells the watchers of a key that it has changed, under its home bucket's lock, and counts
    /// the write. Returns the control word to unlock with.
    #[inline]
    pub(crate) fn written(&mut self, store: &Store, control: Control, key: &Key<'_>) -> Control {
        self.touched(store, control, key);
        control.written()
    }

    #[cold]
    fn touch_watches(&mut self, store: &Store, key: &Key<'_>) {
        if let Some(name) = store.watches.touch(key) {
            self.called.note(name, key.bytes);
            // A worker that asks for what was done beside the write finds out.
            self.beside_ns += 1;
        }
    }
}

impl Guard<'_> {
    /// Raises `flag` from now on whenever the key is written. `name` is the database the key was made
    /// in. Says whether the key has a live item; none if watches hold their share of the memory.
    pub fn watch(&mut self, name: u8, key: &Key<'_>, flag: &Touched) -> Option<bool> {
        let store = self.store;
        if !self.has_room_to_watch(key) {
            return None;
        }
        // What has expired goes first, so that its going is no change.
        let _ = self.peek(key);
        let mut locked = self.lock_clean(key.hash);
        store.watches.add(key, name, Some(flag));
        let found = store.index.scan(&locked.place, locked.control, |slot| store.is_at(slot, key));
        let live = found.is_some_and(|found| {
            // SAFETY: reachable in this epoch.
            !unsafe { RawItem::new(store.arena.at(found.slot.location())) }.expired(self.now)
        });
        locked.control = locked.control.with_watched();
        locked.home.unlock(locked.control);
        Some(live)
    }

    /// Has each write to a key noted from now on, by the worker that writes ([`Guard::take_called`]). `name` is the
    /// database the key was made in. False if watches hold their share of the memory. Not in a transaction.
    ///
    /// A client that looks at the key behind this, and finds nothing, is not missed: what is written from then on is noted.
    pub fn await_key(&mut self, name: u8, key: &Key<'_>) -> bool {
        if !self.has_room_to_watch(key) {
            return false;
        }
        let mut locked = self.lock_clean(key.hash);
        self.store.watches.add(key, name, None);
        locked.control = locked.control.with_watched();
        locked.home.unlock(locked.control);
        true
    }

    /// Charges another watch of a key, if there is room for it.
    fn has_room_to_watch(&mut self, key: &Key<'_>) -> bool {
        let store = self.store;
        self.end_watches();
        let bytes = Watch::bytes(key.bytes);
        if store.watches.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
            > store.arena.limit_bytes() / WATCH_SHARE
        {
            store.watches.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        store.arena.charge(bytes as i64);
        true
    }

    /// True if this worker has written to keys that are awaited.
    #[inline]
    pub fn has_called(&self) -> bool {
        self.local.called.next > 0
    }

    /// Takes the keys that are awaited and this worker has written to, in the order in which they
    /// were first written, each with the name of its database.
    pub fn take_called(&mut self) -> Vec<(u8, Box<[u8]>)> {
        let Called { keys, .. } = std::mem::take(&mut self.local.called);
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort_unstable_by_key(|&(_, nth)| nth);
        keys.into_iter().map(|(key, _)| key).collect()
    }

    /// Takes out the watches that [`Store::unwatch`] and [`Store::unawait`] were told of, some of
    /// them where they are many. Not in a transaction of keys.
    #[inline]
    pub fn end_watches(&mut self) {
        if self.store.watches.leaving_count.load(Ordering::Relaxed) > 0 && !self.local.transaction.open {
            self.end_watches_now();
        }
    }

    #[cold]
    fn end_watches_now(&mut self) {
        let store = self.store;
        let leaving = {
            let mut leaving = store.watches.leaving.lock().expect("no panic under the lock");
            let left = leaving.len().saturating_sub(ENDED_AT_ONCE);
            store.watches.leaving_count.store(left as u64, Ordering::Relaxed);
            leaving.split_off(left)
        };
        for (name, key, flag) in leaving {
            let key = self.key_in(name, &key);
            let locked = self.lock_clean(key.hash);
            store.watches.remove(&key, flag.as_ref());
            store.unlock_watched(locked, key.hash);
            let bytes = Watch::bytes(key.bytes);
            store.watches.bytes.fetch_sub(bytes, Ordering::Relaxed);
            store.arena.charge(-(bytes as i64));
        }
    }

    /// Moves the watches of two databases that are about to be swapped, while no other thread is in the store: a watched key
    /// that is in either changes, and all are watched where they will be.
    pub(crate) fn swap_watches(&mut self, one: u8, other: u8) {
        let store = self.store;
        if one == other || store.watch_bytes() == 0 {
            return;
        }
        let numbers = [one, other].map(|name| usize::from(store.names.word(name).number()));
        let mut moved = Vec::new();
        for shard in &store.watches.shards {
            let mut shard = shard.lock().expect("no panic under the lock");
            for number in numbers {
                let watches = std::mem::take(&mut shard[number]);
                let each = |(hash, list): (u64, Vec<Watch>)| list.into_iter().map(move |watch| (hash, watch));
                moved.extend(watches.into_iter().flat_map(each));
            }
        }
        let counts = numbers.map(|number| &store.watches.counts[number]);
        let [left, came] = counts.map(|count| count.load(Ordering::Relaxed));
        counts[0].store(came, Ordering::Relaxed);
        counts[1].store(left, Ordering::Relaxed);
        for (left, watch) in moved {
            let locked = self.lock_clean(left);
            store.unlock_watched(locked, left);
            let there = [one, other].map(|name| {
                let key = self.key_in(name, &watch.key);
                matches!(self.peek(&key), Lookup::Hit(_))
            });
            if there.contains(&true) {
                watch.flags.iter().for_each(|(flag, _)| flag.store(true, Ordering::Relaxed));
                if watch.awaited > 0 {
                    self.local.called.note(watch.name, &watch.key);
                }
            }
            let to = if watch.name == one { other } else { one };
            let key = self.key_in(to, &watch.key);
            let (hash, number) = (key.hash, usize::from(key.number));
            let mut locked = self.lock_clean(hash);
            locked.control = locked.control.with_watched();
            locked.home.unlock(locked.control);
            store.watches.shard(hash)[number].entry(hash).or_default().push(watch);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::{Touched, WATCHES_SWAPPED_MAX};
    use crate::{Attributes, Config, Expect, Guard, Store};
    use std::sync::atomic::Ordering;

    const NOW: u64 = 1_700_000_000_000;

    fn set(guard: &mut Guard<'_>, name: &[u8]) {
        let key = guard.key(name);
        guard.store_value(&key, b"12345678", &Attributes::default(), Expect::Any).unwrap();
    }

    #[test]
    fn who_watches_a_key_again_is_noted_once_and_watches_until_it_is_done_with_each() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let flag = Touched::default();
        let key = guard.key(b"k");
        (0..100).for_each(|_| assert_eq!(guard.watch(0, &key, &flag), Some(false)));
        let noted = || {
            let shard = store.watches.shard(key.hash);
            shard[0].values().flatten().map(|watch| watch.flags.len()).sum::<usize>()
        };
        assert_eq!(noted(), 1);
        (0..99).for_each(|_| store.unwatch(0, b"k", &flag));
        guard.end_watches();
        assert_eq!(noted(), 1);
        set(&mut guard, b"k");
        assert!(flag.load(Ordering::Relaxed));
        store.unwatch(0, b"k", &flag);
        guard.end_watches();
        assert_eq!((noted(), store.watch_bytes()), (0, 0));
    }

    /// Buckets with the bit, and all buckets.
    fn watched(store: &Store) -> (usize, usize) {
        let (mut watched, mut all, mut cursor) = (0, 0, 0);
        loop {
            cursor = store.index.sweep(&store.arena, cursor, &mut |bucket| {
                all += 1;
                watched += usize::from(bucket.control().watched());
            });
            if cursor == 0 {
                return (watched, all);
            }
        }
    }

    #[test]
    fn a_watch_follows_its_key_while_the_index_grows_and_shrinks_and_ends_with_its_bit() {
        const KEYS: u32 = 40_000;
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let flag = Touched::default();
        let key = guard.key(b"watched");
        guard.watch(0, &key, &flag).unwrap();
        let seen = |guard: &mut Guard<'_>, when: &str| {
            assert_eq!(watched(&store).0, 1, "{when}");
            assert!(!flag.load(Ordering::Relaxed), "{when}");
            set(guard, b"watched");
            assert!(flag.swap(false, Ordering::Relaxed), "{when}");
        };
        for n in 0..KEYS {
            set(&mut guard, &n.to_le_bytes());
            if n % 2_000 == 0 {
                seen(&mut guard, "growing");
            }
        }
        let (_, grown) = watched(&store);
        for n in 0..KEYS {
            let name = n.to_le_bytes();
            let key = guard.key(&name);
            guard.delete(&key, Expect::Present).unwrap();
        }
        for second in 1..1_000 {
            drop(guard);
            guard = worker.enter(NOW + second * 1_000);
            guard.maintain();
            if second % 50 == 0 {
                seen(&mut guard, "shrinking");
            }
        }
        assert!(grown > 6_000 && watched(&store).1 < grown / 8, "{grown}");
        store.unwatch(0, b"watched", &flag);
        guard.end_watches();
        assert_eq!(watched(&store).0, 0);
        drop(guard);
        store.check_behind(worker);
    }

    #[test]
    fn writes_to_keys_that_are_awaited_are_noted_in_order_each_once_by_who_writes() {
        let config = Config { memory_bytes: 4 << 20, workers_max: 2, ..Config::default() };
        let store = Store::new(config).unwrap();
        let (mut one, mut other) = (store.worker().unwrap(), store.worker().unwrap());
        let mut guard = one.enter(NOW);
        for name in [&b"a"[..], b"b", b"b"] {
            let key = guard.key(name);
            assert!(guard.await_key(0, &key));
        }
        assert!(!guard.has_called() && store.watch_bytes() > 0);
        for name in [&b"b"[..], b"other", b"a", b"b"] {
            set(&mut guard, name);
        }
        assert!(guard.has_called() && guard.take_beside_ns() > 0);
        let names = |names: &[&[u8]]| names.iter().map(|&name| (0, name.into())).collect::<Vec<_>>();
        assert_eq!(guard.take_called(), names(&[b"b", b"a"]));
        assert!(!guard.has_called() && guard.take_called().is_empty());
        drop(guard);
        let mut guard = other.enter(NOW);
        let key = guard.key(b"a");
        guard.delete(&key, Expect::Present).unwrap();
        assert_eq!(guard.take_called(), names(&[b"a"]));
        // Waiters leave, one by one.
        for (leaves, called) in [(&b"a"[..], &[&b"b"[..]][..]), (b"b", &[b"b"]), (b"b", &[])] {
            store.unawait(0, leaves);
            guard.end_watches();
            set(&mut guard, b"a");
            set(&mut guard, b"b");
            assert_eq!(guard.take_called(), names(called));
        }
        assert_eq!((watched(&store).0, store.watch_bytes()), (0, 0));
    }

    #[test]
    fn a_key_that_comes_by_a_swap_of_databases_is_noted() {
        let store = Store::new(Config { memory_bytes: 4 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let key = guard.key_in(1, b"awaited");
        assert!(guard.await_key(1, &key));
        guard.swap_databases(1, 2);
        assert!(!guard.has_called(), "there is nothing");
        let key = guard.key_in(2, b"awaited");
        guard.store_value(&key, b"x", &Attributes::default(), Expect::Any).unwrap();
        assert!(!guard.has_called(), "that is another database's");
        guard.swap_databases(1, 2);
        assert_eq!(guard.take_called(), [(1, b"awaited"[..].into())]);
        let key = guard.key_in(1, b"awaited");
        guard.delete(&key, Expect::Present).unwrap();
        assert!(guard.has_called());
    }

    #[test]
    fn databases_are_swapped_while_no_more_of_their_keys_are_watched_than_are_moved_at_once() {
        const EACH: u64 = WATCHES_SWAPPED_MAX / 2;
        let store = Store::new(Config { memory_bytes: 64 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let flag = Touched::default();
        // The keys of one database are awaited, those of two others watched.
        for n in 0..EACH {
            let name = n.to_le_bytes();
            for db in [2, 3] {
                let key = guard.key_in(db, &name);
                guard.watch(db, &key, &flag).unwrap();
            }
            let key = guard.key_in(1, &name);
            assert!(guard.await_key(1, &key));
        }
        let counts = || [1, 2, 3].map(|db| store.watches_in(db));
        assert_eq!(counts(), [EACH; 3]);
        assert!(guard.swap_databases(1, 2));
        assert_eq!(counts(), [EACH; 3], "watches are of names");
        let key = guard.key_in(1, b"one more");
        assert!(guard.await_key(1, &key));
        assert!(!guard.swap_databases(1, 2) && !guard.swap_databases(2, 1));
        assert!(guard.swap_databases(1, 1) && guard.swap_databases(2, 3) && guard.swap_databases(1, 4));
        assert_eq!(counts(), [EACH + 1, EACH, EACH]);
        // Each is where its name is.
        let first = 0u64.to_le_bytes();
        let key = guard.key_in(1, &first);
        guard.store_value(&key, b"x", &Attributes::default(), Expect::Any).unwrap();
        assert_eq!(guard.take_called(), [(1, first[..].into())]);
        assert!(!flag.load(Ordering::Relaxed));
        let key = guard.key_in(3, &first);
        guard.store_value(&key, b"x", &Attributes::default(), Expect::Any).unwrap();
        assert!(flag.load(Ordering::Relaxed));
        // What ends is counted no more.
        store.unawait(1, b"one more");
        guard.end_watches();
        assert_eq!(counts(), [EACH; 3]);
        assert!(guard.swap_databases(1, 2));
    }

    #[test]
    fn databases_that_are_swapped_leave_no_bits_behind() {
        let store = Store::new(Config { memory_bytes: 4 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        let flag = Touched::default();
        for name in [1, 2] {
            let key = guard.key_in(name, b"watched");
            guard.watch(name, &key, &flag).unwrap();
        }
        guard.swap_databases(1, 2);
        guard.swap_databases(1, 3);
        assert_eq!(watched(&store).0, 2);
        for name in [1, 2] {
            store.unwatch(name, b"watched", &flag);
        }
        guard.end_watches();
        assert_eq!(watched(&store).0, 0);
    }
}
