//! Keys that were new recently, and keys that were found among all: some hashes for each database.
//!
//! ```text
//! worker ─▶ database ─▶ 64 places, by the low bits of the hash: the last new key of each
//!                   └─▶ 16 places: the last that were found, however old they are
//! ```
//!
//! A database of few keys beside millions of others is not found by looking at some keys of all. What was new in it recently is
//! mostly there still. Where new keys come and go beside old ones that stay, those that were found stay known. This says
//! where to look, no more: the bucket says whether a key is there, and keys are forgotten when others come to their places.

use crate::database::{DATABASES, Database};
use crate::item::RawItem;
use crate::read::Item;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::worker::Guard;

/// Places of a database for keys that are new.
const PLACES: usize = 64;
/// Places of a database for keys that were found.
const FOUND_PLACES: usize = 16;

/// What one worker has put there; 0: nothing.
#[derive(Debug)]
pub(crate) struct Recent {
    new: [[AtomicU64; PLACES]; DATABASES as usize],
    /// The last first; no key is there twice.
    found: [[AtomicU64; FOUND_PLACES]; DATABASES as usize],
}

impl Default for Recent {
    fn default() -> Recent {
        Recent {
            new: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            found: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

impl Recent {
    /// Notes that a key is new.
    #[inline(always)]
    pub(crate) fn note(&self, number: u8, hash: u64) {
        self.new[usize::from(number) % usize::from(DATABASES)][hash as usize % PLACES]
            .store(hash, Ordering::Relaxed);
    }

    /// Notes that a key was found. Called by its worker alone.
    fn note_found(&self, number: u8, hash: u64) {
        let mut comes = hash;
        for place in &self.found[usize::from(number)] {
            let was = place.load(Ordering::Relaxed);
            place.store(comes, Ordering::Relaxed);
            if was == hash || was == 0 {
                return;
            }
            comes = was;
        }
    }

    fn new_of(&self, number: u8) -> impl Iterator<Item = u64> {
        filled(&self.new[usize::from(number)])
    }

    fn found_of(&self, number: u8) -> impl Iterator<Item = u64> {
        filled(&self.found[usize::from(number)])
    }
}

/// What is in the places that have something.
fn filled(places: &[AtomicU64]) -> impl Iterator<Item = u64> {
    places.iter().map(|place| place.load(Ordering::Relaxed)).filter(|&hash| hash != 0)
}

impl Guard<'_> {
    /// Has [`Guard::visit_found`] visit this key from now on, until this worker has found 16 others of its database.
    pub fn note_found(&self, database: Database, key: &[u8]) {
        let number = database.number();
        self.counters.recent.note_found(number, self.store.hash_of(number, key));
    }

    /// Visits live items of a database whose keys were new recently, 64 for each worker at most; any of them twice
    /// if several workers have stored it. Some 100 ns each.
    pub fn visit_new(&mut self, database: Database, visit: &mut dyn FnMut(Item<'_>)) {
        let (store, number) = (self.store, database.number());
        let hashes = store.counters.iter().flat_map(|counters| counters.recent.new_of(number));
        self.visit_hashes(database, hashes, visit);
    }

    /// Visits live items of a database whose keys were found among all ([`Guard::note_found`]), 16 for each worker at most; any
    /// of them twice if several workers have found it. Some 100 ns each.
    pub fn visit_found(&mut self, database: Database, visit: &mut dyn FnMut(Item<'_>)) {
        let (store, number) = (self.store, database.number());
        let hashes = store.counters.iter().flat_map(|counters| counters.recent.found_of(number));
        self.visit_hashes(database, hashes, visit);
    }

    /// Visits live items of a database whose keys have these hashes.
    fn visit_hashes(
        &mut self,
        database: Database,
        hashes: impl Iterator<Item = u64>,
        visit: &mut dyn FnMut(Item<'_>),
    ) {
        let store = self.store;
        for hash in hashes {
            let place = store.index.place(&store.arena, hash);
            let control = place.home().control();
            if !control.passes(store.gate()) {
                continue;
            }
            let found = store.index.scan(&place, control, |slot| store.hash_at(slot.location()) == hash);
            let Some(found) = found else { continue };
            // SAFETY: reachable in this epoch.
            let raw = unsafe { RawItem::new(store.arena.at(found.slot.location())) };
            let item = self.item_at_slot(raw, found.slot, hash);
            if !raw.expired(self.now) && item.is_in(database) {
                visit(item);
            }
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use crate::{Attributes, Config, Expect, Guard, Store};

    const NOW: u64 = 1_700_000_000_000;

    fn set(guard: &mut Guard<'_>, name: u8, key: &[u8]) {
        let key = guard.key_in(name, key);
        guard.store_value(&key, b"value", &Attributes::default(), Expect::Any).unwrap();
    }

    fn recent(guard: &mut Guard<'_>, name: u8) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        guard.visit_new(guard.database(name), &mut |item| keys.push(item.key().to_vec()));
        keys.sort();
        keys
    }

    /// The last that was found first.
    fn found(guard: &mut Guard<'_>, name: u8) -> Vec<u32> {
        let mut keys = Vec::new();
        guard.visit_found(guard.database(name), &mut |item| {
            keys.push(u32::from_be_bytes(item.key().try_into().unwrap()));
        });
        keys
    }

    #[test]
    fn keys_that_were_found_are_known_until_as_many_others_are_whatever_is_new() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        for n in 0..1_000u32 {
            set(&mut guard, 5, &n.to_be_bytes());
        }
        let database = guard.database(5);
        let note = |guard: &Guard<'_>, n: u32| guard.note_found(database, &n.to_be_bytes());
        assert!(found(&mut guard, 5).is_empty());
        (0..15).for_each(|n| note(&guard, n));
        assert_eq!(found(&mut guard, 5), (0..15).rev().collect::<Vec<_>>());
        // One that is there already has no second place, and is the last then.
        note(&guard, 3);
        assert_eq!(found(&mut guard, 5)[..3], [3, 14, 13]);
        assert_eq!(found(&mut guard, 5).len(), 15);
        note(&guard, 15);
        assert_eq!(found(&mut guard, 5).len(), 16);
        note(&guard, 16);
        let mut keys = found(&mut guard, 5);
        keys.sort_unstable();
        assert_eq!(keys, (1..17).collect::<Vec<_>>(), "the first of them is forgotten");
        // New ones take no place of theirs.
        for n in 1_000..2_000u32 {
            set(&mut guard, 5, &n.to_be_bytes());
        }
        assert_eq!(found(&mut guard, 5).len(), 16);
        let name = 16u32.to_be_bytes();
        let key = guard.key_in(5, &name);
        guard.delete(&key, Expect::Present).unwrap();
        assert_eq!((found(&mut guard, 5).len(), found(&mut guard, 5)[0]), (15, 15), "it is not there");
        guard.swap_databases(5, 7);
        assert_eq!((found(&mut guard, 5).len(), found(&mut guard, 7).len()), (0, 15));
    }

    #[test]
    fn few_keys_of_a_database_are_found_beside_many_of_another() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        set(&mut guard, 5, b"one");
        for n in 0..50_000u32 {
            set(&mut guard, 0, &n.to_be_bytes());
        }
        assert_eq!(recent(&mut guard, 5), [b"one".to_vec()]);
        assert_eq!(recent(&mut guard, 0).len(), 64, "the last of each place");
        guard.swap_databases(5, 7);
        assert_eq!((recent(&mut guard, 5).len(), recent(&mut guard, 7).len()), (0, 1));
        let key = guard.key_in(7, b"one");
        guard.delete(&key, Expect::Present).unwrap();
        assert_eq!(recent(&mut guard, 7).len(), 0, "it is not there");
        set(&mut guard, 7, b"two");
        guard.flush_database(7);
        assert_eq!(recent(&mut guard, 7).len(), 0, "it was flushed");
        set(&mut guard, 7, b"three");
        assert_eq!(recent(&mut guard, 7), [b"three".to_vec()]);
    }
}
