//! The live connections of all workers, for `stats conns`.
//!
//! A worker enters a connection when it takes it over and strikes it out when it ends; on the data
//! path it stores one word, the time of the last receive, in memory that only it writes; of a
//! connection whose replies wait, also since when.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use larder_eventloop::Millis;
use larder_eventloop::socket::Address;

/// What is known of a connection.
#[derive(Debug)]
pub struct ConnectionFacts {
    /// The peer's address.
    pub peer: Address,
    /// Index of the listener it came through.
    pub listener: usize,
    /// Its place in the table: worker and index.
    place: AtomicU64,
    /// When something was last received, on the loop's clock.
    received_at: AtomicU64,
    /// Bytes of memory of a request that has come in part; 0 if none has.
    input_bytes: AtomicU64,
    /// Bytes of memory of a partial record, which its stream keeps.
    stream_bytes: AtomicU64,
    /// Its client has to log in, and did not.
    unauthenticated: AtomicBool,
    /// Since when its replies wait and none of them went out; [`MOVES`] if none wait.
    stands_since: AtomicU64,
    /// Bytes of replies that wait, and what is held for those that are to come.
    waiting_bytes: AtomicU64,
}

/// No replies wait.
const MOVES: Millis = Millis::MAX;

impl ConnectionFacts {
    /// Facts of a new connection.
    pub fn new(peer: Address, listener: usize, now: Millis) -> ConnectionFacts {
        ConnectionFacts {
            peer,
            listener,
            place: AtomicU64::new(0),
            received_at: AtomicU64::new(now),
            input_bytes: AtomicU64::new(0),
            stream_bytes: AtomicU64::new(0),
            unauthenticated: AtomicBool::new(false),
            stands_since: AtomicU64::new(MOVES),
            waiting_bytes: AtomicU64::new(0),
        }
    }

    /// Its place in the table.
    pub fn place(&self) -> u64 {
        self.place.load(Relaxed)
    }

    /// Notes that something was received, and that `input_bytes` of an incomplete request are kept.
    #[inline]
    pub fn received(&self, now: Millis, input_bytes: u64) {
        self.received_at.store(now, Relaxed);
        self.input_bytes.store(input_bytes, Relaxed);
    }

    /// Notes that something has come, of which the stream keeps so many bytes.
    pub fn stream_keeps(&self, now: Millis, bytes: u64) {
        self.received_at.store(now, Relaxed);
        self.stream_bytes.store(bytes, Relaxed);
    }

    /// Bytes of memory of a request that has come in part.
    pub fn input_bytes(&self) -> u64 {
        self.input_bytes.load(Relaxed) + self.stream_bytes.load(Relaxed)
    }

    /// Notes whether its client has to log in, and did not.
    pub fn set_unauthenticated(&self, unauthenticated: bool) {
        self.unauthenticated.store(unauthenticated, Relaxed);
    }

    /// When something was last received.
    pub fn received_at(&self) -> Millis {
        self.received_at.load(Relaxed)
    }

    /// Notes that so many bytes of its replies wait, or are held for those to come. It stands since `now` if some went out just
    /// now, or none waited; else for as long as it did.
    pub fn stands(&self, moved: bool, now: Millis, bytes: u64) {
        self.waiting_bytes.store(bytes, Relaxed);
        if moved || self.stands_since.load(Relaxed) == MOVES {
            self.stands_since.store(now, Relaxed);
        }
    }

    /// Notes that none of its replies wait.
    #[inline]
    pub fn moves(&self) {
        self.stands_since.store(MOVES, Relaxed);
    }

    /// memcached's name of the state.
    pub fn state(&self) -> &'static str {
        if self.input_bytes() > 0 { "conn_nread" } else { "conn_read" }
    }
}

/// Connections that hold much go before the others once their replies have stood for so much longer than they have to:
/// a client on a bad line reads again by then, one that never reads does not.
const LONGER_MS: Millis = 250;

type Rows = Vec<Option<Arc<ConnectionFacts>>>;

/// A connection whose replies wait, and have for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its worker.
    pub worker: usize,
    /// Its index in the worker's loop.
    pub index: usize,
    /// When its replies moved last.
    pub since: Millis,
    /// Bytes that it holds for them.
    pub bytes: u64,
}

/// What [`Table::standing`] finds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Stood {
    /// The connections that hold most and have stood for long enough, in the order in which they are to go.
    pub largest: Vec<Standing>,
    /// Bytes that all connections hold that have stood for long enough.
    pub bytes: u64,
    /// How many connections hold enough, however long they have stood.
    pub count: usize,
}

/// A connection whose request has come in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpen {
    /// Its worker.
    pub worker: usize,
    /// Its index in the worker's loop.
    pub index: usize,
    /// When something of it last came.
    pub since: Millis,
    /// Bytes of memory that it holds.
    pub bytes: u64,
}

/// All connections: a list per worker, by the index of the connection in its loop.
#[derive(Debug)]
pub struct Table {
    workers: Box<[Mutex<Rows>]>,
}

impl Table {
    /// An empty table for so many workers.
    pub fn new(workers: usize) -> Table {
        Table { workers: (0..workers).map(|_| Mutex::default()).collect() }
    }

    /// Enters a connection.
    pub fn enter(&self, worker: usize, index: usize, facts: Arc<ConnectionFacts>) {
        let mut rows = self.rows(worker);
        if rows.len() <= index {
            rows.resize(index + 1, None);
        }
        facts.place.store(place(worker, index), Relaxed);
        rows[index] = Some(facts);
    }

    /// Strikes a connection out.
    pub fn strike(&self, worker: usize, index: usize) {
        self.rows(worker)[index] = None;
    }

    /// Since when the replies of a connection have stood; `Millis::MAX` if they do not.
    pub fn stands_since(&self, worker: usize, index: usize) -> Millis {
        let rows = self.rows(worker);
        rows.get(index)
            .and_then(|facts| facts.as_ref())
            .map_or(MOVES, |facts| facts.stands_since.load(Relaxed))
    }

    /// The connections whose replies have not moved since `until`, `most` at most: those that hold `long_bytes` and have not for
    /// [`LONGER_MS`] more come first, then those that hold most, then those that have stood for longer. Connections that hold
    /// less than `bytes_min` are neither listed nor counted, but are part of the sum.
    pub fn standing(&self, until: Millis, bytes_min: u64, long_bytes: u64, most: usize) -> Stood {
        let longer = until.checked_sub(LONGER_MS);
        let mut stood = Stood { largest: Vec::with_capacity(most + 1), ..Stood::default() };
        for worker in 0..self.workers.len() {
            for (index, facts) in self.rows(worker).iter().enumerate() {
                let Some(facts) = facts else { continue };
                let since = facts.stands_since.load(Relaxed);
                if since == MOVES {
                    continue;
                }
                let bytes = facts.waiting_bytes.load(Relaxed);
                let (stands, is_enough) = (since <= until, bytes >= bytes_min);
                stood.count += usize::from(is_enough);
                stood.bytes += if stands { bytes } else { 0 };
                if !stands || !is_enough {
                    continue;
                }
                let largest = &mut stood.largest;
                let is_long = |bytes: u64, since: Millis| {
                    bytes >= long_bytes && longer.is_some_and(|longer| since <= longer)
                };
                let rank = |bytes, since| (is_long(bytes, since), bytes, Reverse(since));
                let at = largest.partition_point(|one| rank(one.bytes, one.since) >= rank(bytes, since));
                if at < most {
                    largest.insert(at, Standing { worker, index, since, bytes });
                    largest.truncate(most);
                }
            }
        }
        stood
    }

    /// The connections whose incomplete requests have stood still for longest, `most` at most, longest first, and the bytes of
    /// the one that holds most. Those that hold less than `bytes_min` are passed over. `unauthenticated`: unauthenticated clients
    /// alone; `worker`: that worker's alone.
    pub fn half_open(
        &self,
        unauthenticated: bool,
        worker: Option<usize>,
        bytes_min: u64,
        most: usize,
    ) -> (Vec<HalfOpen>, u64) {
        let (mut longest, mut largest) = (Vec::with_capacity(most + 1), 0);
        let workers = worker.map_or(0..self.workers.len(), |worker| worker..worker + 1);
        for worker in workers {
            for (index, facts) in self.rows(worker).iter().enumerate() {
                let Some(facts) = facts else { continue };
                let bytes = facts.input_bytes();
                if bytes < bytes_min.max(1) || unauthenticated && !facts.unauthenticated.load(Relaxed) {
                    continue;
                }
                largest = bytes.max(largest);
                let since = facts.received_at();
                let full = longest.len() == most;
                if full && longest.last().is_some_and(|last: &HalfOpen| last.since <= since) {
                    continue;
                }
                let at = longest.partition_point(|one: &HalfOpen| one.since <= since);
                longest.insert(at, HalfOpen { worker, index, since, bytes });
                longest.truncate(most);
            }
        }
        (longest, largest)
    }

    /// Bytes that incomplete requests hold together of which each holds less than `bytes_max`.
    pub fn half_open_bytes(&self, bytes_max: u64) -> u64 {
        let mut all = 0;
        for worker in 0..self.workers.len() {
            let rows = self.rows(worker);
            let each = rows.iter().flatten().map(|facts| facts.input_bytes());
            all += each.filter(|&bytes| bytes < bytes_max).sum::<u64>();
        }
        all
    }

    /// Since when a connection's incomplete request has stood still; `None` if it has none.
    pub fn half_open_since(&self, worker: usize, index: usize) -> Option<Millis> {
        let rows = self.rows(worker);
        let facts = rows.get(index)?.as_ref()?;
        (facts.input_bytes() > 0).then(|| facts.received_at())
    }

    /// Visits up to `max` connections from place `from` on; returns the place to go on from, `None` at the end.
    pub fn visit(&self, from: u64, max: usize, visit: &mut dyn FnMut(u64, &ConnectionFacts)) -> Option<u64> {
        let mut visited = 0;
        let (first, mut start) = ((from >> 32) as usize, (from & u64::from(u32::MAX)) as usize);
        for worker in first..self.workers.len() {
            let rows = self.rows(worker);
            for index in start..rows.len() {
                let place = place(worker, index);
                if visited == max {
                    return Some(place);
                }
                if let Some(facts) = &rows[index] {
                    visit(place, facts);
                    visited += 1;
                }
            }
            start = 0;
        }
        None
    }

    fn rows(&self, worker: usize) -> std::sync::MutexGuard<'_, Rows> {
        self.workers[worker].lock().expect("no holder panics")
    }
}

fn place(worker: usize, index: usize) -> u64 {
    (worker as u64) << 32 | index as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_hold_most_are_found_wherever_they_are_once_they_have_stood() {
        let table = Table::new(2);
        let standing = |until, bytes_min| {
            let Stood { largest, bytes, count } = table.standing(until, bytes_min, 0, 2);
            let places: Vec<_> = largest.iter().map(|one| (one.worker, one.index, one.bytes)).collect();
            (places, bytes, count)
        };
        assert_eq!(standing(9, 0), (vec![], 0, 0));
        let since = [(0, 0, Some(7), 100), (0, 1, None, 0), (1, 0, Some(5), 99), (1, 3, Some(9), 200)];
        for (worker, index, since, bytes) in since {
            let facts = Arc::new(ConnectionFacts::new(Address::Unix("/x".into()), 0, 5));
            if let Some(since) = since {
                facts.stands(false, since, bytes);
            }
            table.enter(worker, index, facts);
        }
        assert_eq!(standing(9, 99), (vec![(1, 3, 200), (0, 0, 100)], 399, 3));
        assert_eq!(standing(9, 100), (vec![(1, 3, 200), (0, 0, 100)], 399, 2));
        assert_eq!(standing(9, 201), (vec![], 399, 0));
        assert_eq!(standing(8, 0), (vec![(0, 0, 100), (1, 0, 99)], 199, 3), "one moves, and counts");
        assert_eq!(standing(7, 0), (vec![(0, 0, 100), (1, 0, 99)], 199, 3));
        assert_eq!(standing(6, 0), (vec![(1, 0, 99)], 99, 3));
        assert_eq!(standing(4, 0), (vec![], 0, 3));
        table.strike(1, 3);
        assert_eq!(standing(9, 100), (vec![(0, 0, 100)], 199, 1), "one that moves does not count");
    }

    #[test]
    fn of_those_that_hold_as_much_the_one_that_has_stood_for_longest_is_first() {
        let table = Table::new(1);
        for (index, since) in [6, 4, 5].into_iter().enumerate() {
            let facts = Arc::new(ConnectionFacts::new(Address::Unix("/x".into()), 0, 0));
            facts.stands(false, since, 10);
            table.enter(0, index, facts);
        }
        let largest = table.standing(9, 0, 0, 2).largest;
        assert_eq!(largest.iter().map(|one| one.since).collect::<Vec<_>>(), [4, 5]);
    }

    #[test]
    fn those_that_hold_much_and_have_stood_for_much_longer_are_before_those_that_hold_more() {
        let table = Table::new(1);
        let standing = [(400, 900), (100, 10), (150, 20), (151, 800)];
        for (index, (since, bytes)) in standing.into_iter().enumerate() {
            let facts = Arc::new(ConnectionFacts::new(Address::Unix("/x".into()), 0, 0));
            facts.stands(false, since, bytes);
            table.enter(0, index, facts);
        }
        let bytes = |until, long_bytes| {
            let Stood { largest, .. } = table.standing(until, 0, long_bytes, 3);
            largest.iter().map(|one| one.bytes).collect::<Vec<_>>()
        };
        assert_eq!(bytes(400, 0), [20, 10, 900]);
        assert_eq!(bytes(401, 0), [800, 20, 10]);
        assert_eq!(bytes(350, 0), [10, 800, 20]);
        assert_eq!(bytes(200, 0), [800, 20, 10], "nobody has stood for that long");
        // Those that hold little are where they would be.
        assert_eq!(bytes(400, 20), [20, 900, 800]);
        assert_eq!(bytes(400, 21), [900, 800, 20]);
    }

    #[test]
    fn short_requests_are_added_up_and_longer_ones_are_not() {
        let table = Table::new(2);
        for (worker, index, kept, below) in [(0, 0, 60, 30), (0, 2, 100, 0), (1, 0, 99, 0), (1, 1, 0, 0)] {
            let facts = Arc::new(ConnectionFacts::new(Address::Unix("/x".into()), 0, 0));
            facts.received(1, kept);
            facts.stream_keeps(1, below);
            table.enter(worker, index, facts);
        }
        assert_eq!([90, 91, 100, 101].map(|max| table.half_open_bytes(max)), [0, 90, 189, 289]);
    }

    #[test]
    fn a_visit_in_pieces_sees_every_connection_once() {
        let table = Table::new(3);
        let facts = || Arc::new(ConnectionFacts::new(Address::Unix("/x".into()), 0, 5));
        for (worker, index) in [(0, 0), (0, 1), (2, 0), (2, 5)] {
            table.enter(worker, index, facts());
        }
        table.strike(0, 1);
        let mut seen = Vec::new();
        let mut from = 0;
        while let Some(next) = table.visit(from, 1, &mut |place, _| seen.push(place)) {
            from = next;
        }
        assert_eq!(seen, [0, 2 << 32, 2 << 32 | 5]);
    }
}
