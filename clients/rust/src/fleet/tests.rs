//! Places of lanes without connections: which lane a key has, which caller dials, and what failures are counted. Time is the
//! test's own.

use super::*;
use crate::client::Client;
use larder_protocol::client::Dialect;
use std::cell::Cell;

const MS: Duration = Duration::from_millis(1);

thread_local! {
    /// The time by the clock of the test's thread.
    static NOW: Cell<Instant> = Cell::new(Instant::now());
}

/// A lane without a connection.
#[derive(Debug, Default)]
struct Bare {
    is_over: AtomicBool,
    requests: AtomicU64,
}

impl Line for Bare {
    type Dialed = ();
    type Ticket = ();
    type Alone = ();

    fn is_alive(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn dialect(&self) -> Dialect {
        Dialect::Meta
    }

    fn counters(&self) -> Counters {
        Counters { requests: self.requests.load(Ordering::Relaxed), ..Counters::default() }
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn close(&self, _: Error) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn retire(&self) {}

    fn is_free(_: &()) -> bool {
        true
    }

    fn end(_: &()) {}

    fn tell(_: &()) {}

    fn now() -> Instant {
        NOW.get()
    }
}

/// A server that tests step through, with its fleet.
struct Stage {
    fleet: Fleet<Bare>,
    server: Arc<Server<Bare>>,
}

impl Stage {
    fn with(lanes: usize) -> Stage {
        let client = Client::builder().server("a:1").lanes(lanes).build().expect("a client");
        let fleet = Fleet::new(client.fleet().config.clone()).expect("a server");
        let server = Arc::clone(fleet.list().server(0));
        Stage { fleet, server }
    }

    /// What a caller of this lane has to do.
    fn step(&self, at: usize) -> Result<Step<Bare>, Error> {
        self.fleet.step(&self.server, &mut self.server.lock(), at, NOW.get() + MS)
    }

    /// What callers of all lanes have to do, a letter for each: use, dial, wait, or fail since the server is down.
    fn steps(&self) -> String {
        let letter = |at| match self.step(at) {
            Ok(Step::Use(_)) => 'u',
            Ok(Step::Dial) => 'd',
            Ok(Step::Wait) => 'w',
            Err(Error::Down(..)) => '-',
            Err(error) => panic!("{error}"),
        };
        (0..self.fleet.lanes()).map(letter).collect()
    }

    /// Ends the dial of this lane with success.
    fn made(&self, at: usize) -> Arc<Bare> {
        self.fleet.dialed(&self.server, at, Ok(Arc::default())).expect("it is not closed")
    }

    /// Ends the dial of this lane with a failure.
    fn failed(&self, at: usize) {
        let failed = self.fleet.dialed(&self.server, at, Err(Error::Down("a:1".into(), SLOW)));
        assert!(matches!(failed, Err(Error::Down(..))), "{failed:?}");
    }

    /// Ends the connection of this lane, and has a caller find that out.
    fn lost(&self, lane: &Bare) {
        lane.is_over.store(true, Ordering::Relaxed);
        self.fleet.note(&self.server, &Error::Lost("a:1".into(), SLOW, Outcome::Unknown));
    }
}

/// Moves the clock on.
fn passes(time: Duration) {
    NOW.set(NOW.get() + time);
}

#[test]
fn a_key_has_its_own_lane_and_large_values_have_another() {
    let (below, large) = (vec![0; (64 << 10) - 1], vec![0; 64 << 10]);
    for (lanes, expected) in
        [(1, &[1000][..]), (4, &[250, 250, 250, 250]), (8, &[126, 126, 124, 126, 124, 124, 126, 124])]
    {
        let Stage { fleet, .. } = Stage::with(lanes);
        let mut keys = vec![0; lanes];
        for n in 0..1000 {
            let key = format!("key:{n}");
            let at = fleet.lane_of(key.as_bytes(), None);
            assert_eq!(fleet.lane_of(key.as_bytes(), Some(&below)), at);
            assert_eq!(fleet.lane_of(key.as_bytes(), Some(&large)), lanes);
            keys[at] += 1;
        }
        assert_eq!(keys, expected);
        assert_eq!(fleet.lane_of(b"", None), 0);
        assert_eq!(fleet.lanes(), lanes + 1);
    }
}

#[test]
fn each_lane_is_made_by_its_first_caller() {
    let stage = Stage::with(3);
    assert_eq!(stage.steps(), "dddd");
    assert_eq!(stage.steps(), "wwww");
    stage.made(2);
    assert_eq!(stage.steps(), "wwuw");
    (0..4).filter(|&at| at != 2).for_each(|at| drop(stage.made(at)));
    assert_eq!(stage.steps(), "uuuu");
    assert_eq!(stage.fleet.counters().1, 4, "dials");
}

#[test]
fn dials_of_several_lanes_that_fail_together_are_one_failure() {
    let stage = Stage::with(2);
    for _ in 0..3 {
        assert_eq!(stage.steps(), "ddd");
        (0..3).for_each(|at| stage.failed(at));
    }
    // After three in a row the server is down: for a pause of 25 to 50 ms, as if it had one lane.
    assert_eq!(stage.steps(), "---");
    passes(24 * MS);
    assert_eq!(stage.steps(), "---");
    passes(27 * MS);
    // One caller tries it, whichever lane is wanted.
    assert_eq!(stage.steps(), "dww");
    stage.failed(0);
    passes(49 * MS);
    assert_eq!(stage.steps(), "---");
    passes(52 * MS);
    assert_eq!(stage.steps(), "dww");
    stage.made(0);
    assert_eq!(stage.steps(), "udd");
    assert_eq!(stage.fleet.counters().1, 9 + 1 + 1 + 2, "dials");
}

#[test]
fn a_server_that_ends_loses_all_lanes_and_that_is_one_failure() {
    let stage = Stage::with(8);
    assert_eq!(stage.steps(), "ddddddddd");
    let lanes: Vec<_> = (0..9).map(|at| stage.made(at)).collect();
    lanes.iter().for_each(|lane| stage.lost(lane));
    assert_eq!(stage.steps(), "ddddddddd", "the server may be there again");
    // It is the first of three: two more dials that fail make the server count as down.
    stage.failed(0);
    assert_eq!(stage.steps(), "dwwwwwwww");
    stage.failed(0);
    assert_eq!(stage.steps(), "---------");
}

#[test]
fn a_connection_that_outlives_another_counts_when_it_is_lost() {
    let stage = Stage::with(1);
    assert_eq!(stage.steps(), "dd");
    let (first, large) = (stage.made(0), stage.made(1));
    stage.lost(&large);
    assert_eq!(stage.steps(), "ud");
    stage.made(1);
    // The server has answered since, so this is a failure of its own: two more dials that fail are three in a row.
    stage.lost(&first);
    for _ in 0..2 {
        assert_eq!(stage.steps(), "du");
        stage.failed(0);
    }
    assert_eq!(stage.steps(), "-u");
}

#[test]
fn connections_that_are_lost_again_and_again_are_counted() {
    let stage = Stage::with(2);
    let mut failures = Vec::new();
    for _ in 0..3 {
        assert_eq!(stage.steps(), "ddd");
        let lanes: Vec<_> = (0..3).map(|at| stage.made(at)).collect();
        lanes.iter().for_each(|lane| stage.lost(lane));
        failures.push(stage.server.lock().failures);
    }
    assert_eq!(failures, [1, 2, 3]);
}

#[test]
fn late_requests_are_set_against_those_of_all_lanes() {
    let stage = Stage::with(2);
    assert_eq!(stage.steps(), "ddd");
    let lanes: Vec<_> = (0..3).map(|at| stage.made(at)).collect();
    // However different the lanes' own numbers are.
    lanes[0].requests.store(1000, Ordering::Relaxed);
    let is_down = || matches!(stage.fleet.admit(&stage.server), Err(Error::Down(..)));
    for n in 0..32 {
        assert!(!is_down(), "{n} are late");
        lanes[n % 2].requests.fetch_add(1, Ordering::Relaxed);
        stage.fleet.note(&stage.server, &Error::Timeout("a:1".into(), Outcome::Unknown));
    }
    assert!(is_down(), "32 of 32 are late");

    let stage = Stage::with(2);
    assert_eq!(stage.steps(), "ddd");
    let lanes: Vec<_> = (0..3).map(|at| stage.made(at)).collect();
    let is_down = || matches!(stage.fleet.admit(&stage.server), Err(Error::Down(..)));
    let late = || stage.fleet.note(&stage.server, &Error::Timeout("a:1".into(), Outcome::Unknown));
    late();
    // The first begins the count, so that these are all that were made since.
    for (lane, requests) in lanes.iter().zip([20, 30, 50]) {
        lane.requests.store(requests, Ordering::Relaxed);
    }
    (1..49).for_each(|_| late());
    assert!(!is_down(), "49 of 100 are late");
    late();
    assert!(is_down(), "50 of 100 are late");
}
