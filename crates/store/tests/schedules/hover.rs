//! Inserts and deletes around the number of items at which the index needs one page more or less: a
//! rebuilding is planned for fewer items than there are when it begins.

use crate::stage::{Actor, Cast};
use larder_store::{Attributes, Expect};

/// How many items fit a page that a shrinking plans. Between the two next numbers the test goes up and down:
/// with the fewest the index begins to shrink, with the most it gives that up.
const PAGE_ITEMS: u64 = 448 * 87 / 100;
const FEWEST: u64 = PAGE_ITEMS - 60;
const MOST: u64 = PAGE_ITEMS + 80;
/// A database without items.
const EMPTY: u8 = 7;

/// Adds a thread that inserts and deletes `steps` times, and one whose upkeep looks at the segment again and
/// again.
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
        // After a flush upkeep looks at all segments, whichever database was flushed.
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
