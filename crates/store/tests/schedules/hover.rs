//! Items that come and go about the number at which the index wants a page more or less: rebuildings that are planned for fewer
//! items than there are when they begin.

use crate::stage::{Actor, Cast};
use larder_store::{Attributes, Expect};

/// How many items fit the page for which a shrinking plans; the next two are fewer, and more than a shrinking goes on with.
const PAGE_ITEMS: u64 = 448 * 87 / 100;
const FEWEST: u64 = PAGE_ITEMS - 60;
const MOST: u64 = PAGE_ITEMS + 80;
/// A database without items.
const EMPTY: u8 = 7;

/// Adds a thread that inserts and deletes so many times, and one that has upkeep look at the segment again and again.
pub fn join(cast: &mut Cast, steps: u64) {
    cast.main("hoverer", move |actor| {
        let mut there = 0;
        for _ in 0..steps {
            while there < MOST {
                insert(actor, &mut there);
            }
            let stay = FEWEST + actor.random.below(PAGE_ITEMS - FEWEST);
            while there > stay {
                delete(actor, &mut there);
            }
        }
    });
    cast.aside("upkeep", |actor| {
        // Upkeep passes over everything after a flush, whatever was flushed.
        actor.batch(|guard, _, _| guard.flush_database(EMPTY));
        while actor.batch(|guard, _, _| guard.maintain()) {}
    });
}

fn insert(actor: &mut Actor, there: &mut u64) {
    actor.batch(|guard, _, random| {
        for _ in 0..1 + random.below(30) {
            let name = there.to_le_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, b"12345678", &Attributes::default(), Expect::Absent).expect("it is new");
            *there += 1;
        }
    });
}

fn delete(actor: &mut Actor, there: &mut u64) {
    actor.batch(|guard, _, _| {
        *there -= 1;
        let name = there.to_le_bytes();
        let key = guard.key(&name);
        guard.delete(&key, Expect::Present).expect("it was stored, and nothing is evicted");
    });
}
