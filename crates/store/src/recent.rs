//! Keys that were new lately: some hashes for each database.
//!
//! ```text
//! worker ─▶ database ─▶ 64 places, by the low bits of the hash: the last new key of each
//! ```
//!
//! A database of few keys beside millions of others is not found by looking at some of all. What was new in it
//! lately mostly is there still. It says where to look, no more: whether a key is there its bucket says, and keys
//! are forgotten when others come to their places.

use crate::database::{DATABASES, Database};
use crate::item::RawItem;
use crate::read::Item;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::worker::Guard;

/// Places of a database.
const PLACES: usize = 64;

/// What one worker has put there; 0: nothing.
#[derive(Debug)]
pub(crate) struct Recent([[AtomicU64; PLACES]; DATABASES as usize]);

impl Default for Recent {
    fn default() -> Recent {
        Recent(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))
    }
}

impl Recent {
    /// A key is new.
    #[inline(always)]
    pub(crate) fn note(&self, number: u8, hash: u64) {
        self.0[usize::from(number) % usize::from(DATABASES)][hash as usize % PLACES]
            .store(hash, Ordering::Relaxed);
    }

    fn of(&self, number: u8) -> impl Iterator<Item = u64> {
        let places = self.0[usize::from(number)].iter();
        places.map(|place| place.load(Ordering::Relaxed)).filter(|&hash| hash != 0)
    }
}

impl Guard<'_> {
    /// Has [`Guard::visit_recent`] visit this key from now on, as it would if it were new.
    pub fn note_recent(&self, database: Database, key: &[u8]) {
        let number = database.number();
        self.counters.recent.note(number, self.store.hash_of(number, key));
    }

    /// Visits live items of a database whose keys were new lately, 64 for each worker at most; any of them twice
    /// if several workers have stored it. Some 100 ns each.
    pub fn visit_recent(&mut self, database: Database, visit: &mut dyn FnMut(Item<'_>)) {
        let store = self.store;
        for hash in store.counters.iter().flat_map(|counters| counters.recent.of(database.number())) {
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
        guard.visit_recent(guard.database(name), &mut |item| keys.push(item.key().to_vec()));
        keys.sort();
        keys
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
