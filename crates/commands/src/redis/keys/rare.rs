//! Databases of few keys beside many of others, in which RANDOMKEY would find none at once: upkeep looks for some.
//!
//! ```text
//! each 100 ms one database: has it keys, few beside all, and is none of those that were new lately there still?
//!      └─ yes ─► some of all keys each 100 ms, until 16 of its are known as if they were new, or all were seen
//! ```
//!
//! A million keys take three to eight minutes. Until then RANDOMKEY looks itself, in steps.

use std::sync::{Mutex, PoisonError};

use larder_store::{DATABASES, Database, Guard, Millis};

use super::survey::{RANDOM_KEY_BYTES, RANDOM_KEYS};

/// Where fewer than one in so many of all keys are the database's, RANDOMKEY may find none at a random place.
const FEW: u64 = 64;
/// There is a round this often at most. One without a search looks at the next database: some 6 µs for each worker.
const LOOK_MS: Millis = 100;
/// Behind a search there is none for so long: what it has not found may be keys whose time has passed.
const REST_MS: Millis = 10_000;
/// Keys that a round looks at: some 80 µs.
const ITEMS: usize = 512;

/// The search that upkeep is at; one worker's.
#[derive(Debug, Default)]
pub(crate) struct Rare(Mutex<Looking>);

#[derive(Debug, Default)]
struct Looking {
    /// The name of the database that is looked at next.
    name: u8,
    /// When the next round is due.
    at: Millis,
    search: Option<Search>,
}

/// Goes through all keys for those of a database.
#[derive(Debug)]
struct Search {
    database: Database,
    cursor: u64,
    found: usize,
}

impl Rare {
    /// A round, at a time of the server's own clock. From one worker's upkeep.
    pub fn step(&self, guard: &mut Guard<'_>, now: Millis) {
        let mut looking = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Looking { name, at, search } = &mut *looking;
        if now < *at {
            return;
        }
        *at = now + LOOK_MS;
        if let Some(under_way) = search {
            if under_way.go_on(guard) {
                *search = None;
                *at = now + REST_MS;
            }
            return;
        }
        if is_unknown(guard, *name) {
            *search = Some(Search { database: guard.database(*name), cursor: 0, found: 0 });
        }
        *name = (*name + 1) % DATABASES;
    }
}

/// The database of this name has keys, of which RANDOMKEY might find none at once.
fn is_unknown(guard: &mut Guard<'_>, name: u8) -> bool {
    let store = guard.store();
    let own = store.database_items(name);
    if own == 0 {
        return false;
    }
    let all: u64 = (0..DATABASES).map(|name| store.database_items(name)).sum();
    if own.saturating_mul(FEW) >= all {
        return false;
    }
    let (database, mut known) = (guard.database(name), false);
    guard.visit_recent(database, &mut |_| known = true);
    !known
}

impl Search {
    /// Looks at some keys more; true if these are the last that it looks at.
    fn go_on(&mut self, guard: &mut Guard<'_>) -> bool {
        let (database, mut some) = (self.database, Vec::new());
        self.cursor = guard.walk(self.cursor, ITEMS, &mut |item| {
            if some.len() < RANDOM_KEYS && item.is_in(database) && item.key().len() <= RANDOM_KEY_BYTES {
                some.push(Box::<[u8]>::from(item.key()));
            }
        });
        some.iter().for_each(|key| guard.note_recent(database, key));
        self.found += some.len();
        self.cursor == 0 || self.found >= RANDOM_KEYS
    }
}
