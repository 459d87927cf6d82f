//! Memory that the thread holds for its connections and for the answer that it gathers, as counted against the memory limit.
//!
//! ```text
//! used      ▁▇▁▁▇▁▁▇▁▁▁▁▁▁▁▁▁▁▁▁▁▁     an answer is gathered, or waits until it is sent
//! counted   ▁▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▁▁▁▁▁▁     never less than is used
//!          |        |       |       |  rounds
//! ```
//!
//! Items give way to what is counted. A page asks each second, and an answer is there for some milliseconds: counted as long
//! as it is there, each answer would have items of some blocks of 64 KiB evicted or moved, and others would take the blocks
//! until the next. So the count rises as soon as more is used, and falls at the end of a round, to the most that was used in
//! that round. Items give way once to what comes again and again.
//!
//! It bounds nothing: what may be used is asked where it is taken. Time comes as an argument, and no timer is needed: the
//! thread looks at figures each second.

use std::cell::Cell;
use std::sync::Arc;

use larder_eventloop::Millis;
use larder_store::Store;

/// A round. It is longer than a minute, so that an answer of each minute, as many scrapers ask for it, is in each round.
pub const ROUND_MS: Millis = 75_000;

/// Memory of the thread's.
#[derive(Debug)]
pub struct Reserve {
    store: Arc<Store>,
    used: Cell<u64>,
    /// What the store was told.
    counted: Cell<u64>,
    /// The most that was used in this round.
    most: Cell<u64>,
    round_ends: Cell<Millis>,
}

impl Reserve {
    /// A reserve of which nothing is used. The first round ends at the first look.
    pub fn new(store: &Arc<Store>) -> Reserve {
        Reserve {
            store: Arc::clone(store),
            used: Cell::new(0),
            counted: Cell::new(0),
            most: Cell::new(0),
            round_ends: Cell::new(0),
        }
    }

    /// Bytes that are used.
    pub fn used(&self) -> u64 {
        self.used.get()
    }

    /// Whether so many bytes more are counted already, or connections may hold what is missing.
    pub fn has_room(&self, bytes: u64) -> bool {
        let missing = self.used.get().saturating_add(bytes).saturating_sub(self.counted.get());
        missing == 0 || self.store.held_bytes().saturating_add(missing) <= self.store.held_bytes_max()
    }

    /// Notes that something that used `before` bytes uses `bytes` from here on.
    pub fn change(&self, before: u64, bytes: u64) {
        debug_assert!(before <= self.used.get(), "{before} of {}", self.used.get());
        let used = self.used.get() - before + bytes;
        self.used.set(used);
        self.most.set(self.most.get().max(used));
        if used > self.counted.get() {
            self.count(used);
        }
    }

    /// At the end of a round, lowers what is counted to the most that was used in it.
    pub fn lower(&self, now: Millis) {
        if now >= self.round_ends.get() {
            self.round_ends.set(now + ROUND_MS);
            self.count(self.most.replace(self.used.get()));
        }
    }

    /// Lowers what is counted to what is used, at once.
    pub fn give_back(&self) {
        self.most.set(self.used.get());
        self.count(self.used.get());
    }

    fn count(&self, bytes: u64) {
        let before = self.counted.replace(bytes);
        if bytes != before {
            self.store.hold(bytes as i64 - before as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_store::Config;

    use super::*;

    fn told(reserve: &Reserve) -> (u64, u64) {
        (reserve.used(), reserve.store.held_bytes())
    }

    #[test]
    fn what_is_counted_rises_at_once_and_falls_to_the_most_of_a_round() {
        let store = Store::new(Config::default()).expect("a store");
        let reserve = Reserve::new(&store);
        reserve.lower(5);
        reserve.change(0, 300);
        assert_eq!(told(&reserve), (300, 300));
        reserve.change(300, 0);
        reserve.change(0, 200);
        reserve.change(200, 100);
        assert_eq!(told(&reserve), (100, 300));
        let end = 5 + ROUND_MS;
        reserve.lower(end - 1);
        reserve.lower(end);
        assert_eq!(told(&reserve), (100, 300), "so much was used in that round");
        reserve.change(100, 250);
        reserve.change(250, 0);
        reserve.lower(end + ROUND_MS - 1);
        assert_eq!(told(&reserve), (0, 300));
        reserve.lower(end + ROUND_MS);
        assert_eq!(told(&reserve), (0, 250));
        // However late: nothing was used since.
        reserve.lower(end + 5 * ROUND_MS);
        assert_eq!(told(&reserve), (0, 0));
        reserve.change(0, 70);
        reserve.change(70, 20);
        reserve.give_back();
        assert_eq!(told(&reserve), (20, 20), "at once");
        reserve.change(20, 0);
        reserve.give_back();
        assert_eq!(told(&reserve), (0, 0));
    }

    #[test]
    fn there_is_room_for_what_is_counted_and_for_what_connections_may_hold() {
        let store = Store::new(Config::default()).expect("a store");
        let (reserve, max) = (Reserve::new(&store), store.held_bytes_max());
        reserve.change(0, 1000);
        reserve.change(1000, 400);
        assert!(reserve.has_room(max - 400) && !reserve.has_room(max - 399), "600 of these are counted");
        store.hold((max - 1000) as i64);
        assert!(reserve.has_room(600) && !reserve.has_room(601));
        store.hold(1);
        assert!(reserve.has_room(600), "nothing more is counted for it");
        reserve.give_back();
        assert!(reserve.has_room(599) && !reserve.has_room(600));
    }
}
