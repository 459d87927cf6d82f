//! Upkeep's search for keys of a database that has few beside many of others, where RANDOMKEY would not find any at once.
//!
//! ```text
//! each 100 ms one database: has it keys, few beside all, and are all that were found in it gone?
//!      └─ yes ─► some of all keys each 100 ms, until 16 of its keys are found, or all were seen
//! ```
//!
//! A database is searched *ahead*, once an hour at most, while keys that were new in it recently are still there: so keys that
//! stay are known when the new ones have gone. If those have gone, too, it is searched before others.
//!
//! A search takes three to eight minutes for a million keys, half a day for a hundred million, and one database is searched at a
//! time. Until then RANDOMKEY looks itself, in steps. A database in which a search found no key is searched ever more rarely,
//! once an hour in the end.

use std::sync::{Mutex, TryLockError};

use larder_store::{DATABASES, Database, Guard, Millis};

/// Keys that a search looks for, so that RANDOMKEY has several.
pub(crate) const RANDOM_KEYS: usize = 16;
/// Bytes of a key that is noted, at most.
pub(crate) const RANDOM_KEY_BYTES: usize = 4 << 10;
/// RANDOMKEY may find no key at a random place if fewer than one in so many of all keys are the database's.
const FEW: u64 = 64;
/// Time between two rounds, at least. A round without a search, or with one ahead, looks at the next database: some 8 µs for each
/// worker.
const LOOK_MS: Millis = 100;
/// Rest of a database behind a search that found some keys.
const REST_MS: Millis = 10_000;
/// Behind a search that found no key the rest is doubled, up to this: the keys are too long to be noted, or have expired, and
/// each search reads the header of each item of the store. It is also the rest between two searches ahead.
const REST_MS_MAX: Millis = 3_600_000;
/// Keys that a round looks at: some 80 µs. If a transaction holds a part of the index, the round waits for it.
const ITEMS: usize = 512;

/// The search of upkeep. While one worker's upkeep is at it, another's does nothing.
#[derive(Debug, Default)]
pub(crate) struct Rare(Mutex<Looking>);

#[derive(Debug, Default)]
struct Looking {
    /// The name of the database to look at next.
    name: u8,
    /// When the next round is due.
    at: Millis,
    search: Option<Search>,
    /// How long databases rest, by the names that they had when their search began.
    rests: [Rest; DATABASES as usize],
}

/// How long a database is not searched.
#[derive(Debug, Default)]
struct Rest {
    ms: Millis,
    until: Millis,
    /// Until when it is not searched ahead.
    until_ahead: Millis,
}

impl Rest {
    /// Begins the rest behind a search.
    fn begin(&mut self, now: Millis, has_found: bool) {
        self.ms = if has_found { REST_MS } else { (2 * self.ms).clamp(REST_MS, REST_MS_MAX) };
        self.until = now + self.ms;
        self.until_ahead = now + REST_MS_MAX;
    }
}

/// What RANDOMKEY would not find in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    /// Nothing: it finds a key, now and later.
    Nothing,
    /// Old keys: some new ones are still there.
    Old,
    /// Any key.
    All,
}

/// A search through all keys for those of a database.
#[derive(Debug)]
struct Search {
    /// The database's name when the search began.
    name: u8,
    database: Database,
    cursor: u64,
    found: usize,
    /// It is ahead: new keys are still known.
    is_ahead: bool,
}

impl Rare {
    /// Does a round, in one worker's upkeep. `now` is of the server's own clock.
    pub fn step(&self, guard: &mut Guard<'_>, now: Millis) {
        let mut looking = match self.0.try_lock() {
            Ok(looking) => looking,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let Looking { name, at, search, rests } = &mut *looking;
        if now < *at {
            return;
        }
        *at = now + LOOK_MS;
        // A walk would clean up what was flushed, which takes several times as long.
        if guard.store().is_cleaning() {
            return;
        }
        if search.as_ref().is_none_or(|under_way| under_way.is_ahead) {
            let looked_at = std::mem::replace(name, (*name + 1) % DATABASES);
            let (rest, lacking) = (&rests[usize::from(looked_at)], lacks(guard, looked_at));
            let begins = match lacking {
                Lacks::Nothing => false,
                Lacks::Old => search.is_none() && now >= rest.until_ahead,
                Lacks::All => now >= rest.until,
            };
            if begins {
                return Search::begin(search, guard, looked_at, lacking == Lacks::Old);
            }
        }
        if let Some(under_way) = search {
            // Commands may have found some keys: then the search ends, unless it has found some itself.
            let by_others = under_way.found == 0 && has_found(guard, under_way.database);
            if by_others || under_way.go_on(guard) {
                rests[usize::from(under_way.name)].begin(now, by_others || under_way.found > 0);
                *search = None;
            }
        }
    }
}

/// What RANDOMKEY would not find in the database of this name; nothing if that has many keys beside all.
fn lacks(guard: &mut Guard<'_>, name: u8) -> Lacks {
    let store = guard.store();
    let own = store.database_items(name);
    if own == 0 {
        return Lacks::Nothing;
    }
    let all: u64 = (0..DATABASES).map(|name| store.database_items(name)).sum();
    if own.saturating_mul(FEW) >= all {
        return Lacks::Nothing;
    }
    let database = guard.database(name);
    if has_found(guard, database) {
        return Lacks::Nothing;
    }
    let mut has_new = false;
    guard.visit_new(database, &mut |_| has_new = true);
    if has_new { Lacks::Old } else { Lacks::All }
}

/// Whether a key that was found in this database is still there.
fn has_found(guard: &mut Guard<'_>, database: Database) -> bool {
    let mut known = false;
    guard.visit_found(database, &mut |_| known = true);
    known
}

impl Search {
    /// Begins a search of the database of this name. A search of the same database goes on.
    fn begin(search: &mut Option<Search>, guard: &Guard<'_>, name: u8, is_ahead: bool) {
        let database = guard.database(name);
        match search {
            Some(under_way) if under_way.database == database => under_way.is_ahead = is_ahead,
            _ => *search = Some(Search { name, database, cursor: 0, found: 0, is_ahead }),
        }
    }

    /// Looks at some more keys; true if it needs no more.
    fn go_on(&mut self, guard: &mut Guard<'_>) -> bool {
        let (database, mut some) = (self.database, Vec::new());
        self.cursor = guard.walk(self.cursor, ITEMS, &mut |item| {
            if some.len() < RANDOM_KEYS && item.is_in(database) && item.key().len() <= RANDOM_KEY_BYTES {
                some.push(Box::<[u8]>::from(item.key()));
            }
        });
        some.iter().for_each(|key| guard.note_found(database, key));
        self.found += some.len();
        self.cursor == 0 || self.found >= RANDOM_KEYS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_store::{Attributes, Config, Expect, Store};

    const START: Millis = 1_700_000_000_000;

    /// Keys of database 0 in which database 5 has a single one, of so many bytes, that is not known: some that were newer are
    /// gone.
    fn fill(guard: &mut Guard<'_>, key_bytes: usize) {
        let mut store = |name: u8, key: &[u8]| {
            let key = guard.key_in(name, key);
            guard.store_value(&key, b"value", &Attributes::default(), Expect::Any).expect("there is room");
        };
        store(5, &vec![b'k'; key_bytes]);
        (0..1000u32).for_each(|n| store(5, &n.to_be_bytes()));
        (0..20_000u32).for_each(|n| store(0, &n.to_be_bytes()));
        for n in 0..1000u32 {
            let name = n.to_be_bytes();
            let key = guard.key_in(5, &name);
            guard.delete(&key, Expect::Present).expect("it is there");
        }
    }

    /// Where the search is, if there is one.
    fn cursor(rare: &Rare) -> Option<u64> {
        rare.0.lock().expect("no holder panics").search.as_ref().map(|search| search.cursor)
    }

    /// Goes on until there is a search, or is none: when that is.
    fn until(rare: &Rare, guard: &mut Guard<'_>, now: &mut Millis, searches: bool) -> Millis {
        for _ in 0..100_000 {
            rare.step(guard, *now);
            if cursor(rare).is_some() == searches {
                return *now;
            }
            *now += LOOK_MS;
        }
        panic!("searches: {}", !searches);
    }

    #[test]
    fn a_database_of_which_no_key_can_be_known_is_searched_ever_more_rarely() {
        let store = Store::new(Config::default()).expect("a store");
        let mut worker = store.worker().expect("a worker");
        let mut guard = worker.enter(START);
        fill(&mut guard, RANDOM_KEY_BYTES + 1);
        let (rare, mut now) = (Rare::default(), 0);
        until(&rare, &mut guard, &mut now, true);
        for rest_ms in [REST_MS, 2 * REST_MS, 4 * REST_MS, 8 * REST_MS] {
            let ended = until(&rare, &mut guard, &mut now, false);
            let waited_ms = until(&rare, &mut guard, &mut now, true) - ended;
            // Each database has its turn.
            let turns_ms = LOOK_MS * u64::from(DATABASES);
            assert!((rest_ms..=rest_ms + turns_ms).contains(&waited_ms), "{waited_ms}, not {rest_ms}");
        }
        let mut rest = Rest::default();
        (0..9).for_each(|_| rest.begin(0, false));
        assert_eq!(rest.ms, 256 * REST_MS);
        (0..9).for_each(|_| rest.begin(0, false));
        assert_eq!((rest.ms, rest.until), (REST_MS_MAX, REST_MS_MAX));
        rest.begin(7, true);
        assert_eq!((rest.ms, rest.until), (REST_MS, REST_MS + 7));
    }

    #[test]
    fn what_a_search_has_found_is_known_by_the_name_that_its_database_has_then() {
        let store = Store::new(Config::default()).expect("a store");
        let mut worker = store.worker().expect("a worker");
        let mut guard = worker.enter(START);
        fill(&mut guard, RANDOM_KEY_BYTES);
        let (rare, mut now) = (Rare::default(), 0);
        until(&rare, &mut guard, &mut now, true);
        guard.swap_databases(5, 6);
        until(&rare, &mut guard, &mut now, false);
        for (name, keys) in [(5, 0), (6, 1)] {
            let (database, mut known) = (guard.database(name), 0);
            guard.visit_found(database, &mut |item| {
                known += usize::from(item.key().len() == RANDOM_KEY_BYTES);
            });
            assert_eq!(known, keys, "database {name}");
        }
        // It is known, and not looked for again.
        for _ in 0..2 * REST_MS / LOOK_MS {
            now += LOOK_MS;
            rare.step(&mut guard, now);
            assert_eq!(cursor(&rare), None);
        }
    }

    /// Gives a database keys that are new.
    fn put(guard: &mut Guard<'_>, name: u8, keys: std::ops::Range<u32>) {
        for n in keys {
            let bytes = n.to_be_bytes();
            let key = guard.key_in(name, &bytes);
            guard.store_value(&key, b"value", &Attributes::default(), Expect::Any).expect("there is room");
        }
    }

    fn take(guard: &mut Guard<'_>, name: u8, bytes: &[u8]) {
        let key = guard.key_in(name, bytes);
        guard.delete(&key, Expect::Present).expect("it is there");
    }

    /// The keys of a database that are known as new, or as found.
    fn known(guard: &mut Guard<'_>, name: u8, new: bool) -> Vec<Vec<u8>> {
        let (database, mut keys) = (guard.database(name), Vec::new());
        if new {
            guard.visit_new(database, &mut |item| keys.push(item.key().to_vec()));
        } else {
            guard.visit_found(database, &mut |item| keys.push(item.key().to_vec()));
        }
        keys
    }

    /// The database that is searched, and whether it is searched ahead.
    fn searched(rare: &Rare) -> Option<(u8, bool)> {
        let looking = rare.0.lock().expect("no holder panics");
        looking.search.as_ref().map(|search| (search.name, search.is_ahead))
    }

    #[test]
    fn old_keys_are_found_while_new_ones_are_there_once_an_hour() {
        let store = Store::new(Config::default()).expect("a store");
        let mut worker = store.worker().expect("a worker");
        let mut guard = worker.enter(START);
        put(&mut guard, 0, 0..20_000);
        put(&mut guard, 5, 0..200);
        let (rare, mut now) = (Rare::default(), 0);
        until(&rare, &mut guard, &mut now, true);
        assert_eq!(searched(&rare), Some((5, true)));
        let ended = until(&rare, &mut guard, &mut now, false);
        // Whatever happens to the others, these stay known.
        let found = known(&mut guard, 5, false);
        assert_eq!(found.len(), RANDOM_KEYS);
        for n in 0..200u32 {
            let bytes = n.to_be_bytes();
            if !found.iter().any(|key| **key == bytes) {
                take(&mut guard, 5, &bytes);
            }
        }
        assert_eq!(known(&mut guard, 5, false), found);
        // When they have gone, and there are new ones, others are looked for later.
        found.iter().for_each(|key| take(&mut guard, 5, key));
        put(&mut guard, 5, 1_000..1_200);
        let waited_ms = until(&rare, &mut guard, &mut now, true) - ended;
        let turns_ms = LOOK_MS * u64::from(DATABASES);
        assert!((REST_MS_MAX..=REST_MS_MAX + turns_ms).contains(&waited_ms), "{waited_ms}");
    }

    #[test]
    fn a_database_of_which_nothing_is_known_is_searched_first() {
        let store = Store::new(Config::default()).expect("a store");
        let mut worker = store.worker().expect("a worker");
        let mut guard = worker.enter(START);
        fill(&mut guard, 3);
        put(&mut guard, 3, 0..100);
        let (rare, mut now) = (Rare::default(), 0);
        let mut seen = Vec::new();
        for _ in 0..6 {
            rare.step(&mut guard, now);
            now += LOOK_MS;
            seen.push(searched(&rare));
        }
        assert_eq!(seen, [None, None, None, Some((3, true)), Some((3, true)), Some((5, false))]);
    }

    #[test]
    fn a_search_ahead_goes_on_as_any_other_when_the_new_keys_have_gone() {
        let store = Store::new(Config::default()).expect("a store");
        let mut worker = store.worker().expect("a worker");
        let mut guard = worker.enter(START);
        put(&mut guard, 0, 0..20_000);
        put(&mut guard, 5, 0..40);
        let (rare, mut now) = (Rare::default(), 0);
        until(&rare, &mut guard, &mut now, true);
        rare.step(&mut guard, now + LOOK_MS);
        let at = cursor(&rare);
        assert!(at > Some(0));
        // What it has found goes, too; some ten are left.
        for new in [true, false] {
            for key in known(&mut guard, 5, new) {
                take(&mut guard, 5, &key);
            }
        }
        rare.0.lock().expect("no holder panics").name = 5;
        rare.step(&mut guard, now + 2 * LOOK_MS);
        assert_eq!((searched(&rare), cursor(&rare)), (Some((5, false)), at), "it is not begun anew");
    }

    #[test]
    fn nothing_is_looked_at_while_what_was_flushed_is_cleaned_up() {
        let store = Store::new(Config::default()).expect("a store");
        let mut worker = store.worker().expect("a worker");
        let mut guard = worker.enter(START);
        fill(&mut guard, 3);
        let (rare, mut now) = (Rare::default(), 0);
        until(&rare, &mut guard, &mut now, true);
        let mut goes_on = |guard: &mut Guard<'_>| {
            let before = cursor(&rare);
            now += LOOK_MS;
            rare.step(guard, now);
            cursor(&rare) != before
        };
        assert!(goes_on(&mut guard) && goes_on(&mut guard));
        guard.flush_database(5);
        assert!(guard.store().is_cleaning() && !goes_on(&mut guard));
    }
}
