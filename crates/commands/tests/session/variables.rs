//! Variables of libraries: whatever else a worker does, what functions keep from one call to the next stays.

use crate::Bench;
use crate::survey::command;
use larder_commands::{Next, Session, Settings};

/// A library that counts its calls.
const COUNTS: &str = "#!lua name=l\nlocal n = 0 \
    redis.register_function('count', function() n = n + 1 return n end)";
const ENDLESS: &str = "while true do end";

/// A state of this bench may take 4 MiB, as one of a server with `-m 64 -t 2`.
fn bench() -> Bench {
    let mut bench = Bench::of(Settings::default(), 32 << 20);
    assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", COUNTS]), "$1\r\nl\r\n");
    bench
}

/// What some words are answered by.
fn said(bench: &mut Bench, words: &[&str]) -> String {
    let (reply, _) = bench.run(&mut Session::new(), &command(words), usize::MAX);
    String::from_utf8(reply).expect("text")
}

/// The library has counted so many calls, with this one.
fn counts(bench: &mut Bench, n: u32) {
    assert_eq!(said(bench, &["FCALL", "count", "0"]), format!(":{n}\r\n"));
}

/// What a client asks goes on in later turns.
fn goes_on(bench: &mut Bench, client: &mut Session, words: &[&str]) {
    assert_eq!(bench.turn(client, &command(words)), (Next::Yield, Vec::new()), "{words:?}");
}

/// A client's next turn ends what it has asked.
fn ends(bench: &mut Bench, client: &mut Session) -> String {
    String::from_utf8(bench.turn(client, b"").1).expect("text")
}

/// XADD keeps room for fields with the worker, too.
#[test]
fn they_stay_beside_what_streams_keep() {
    let mut bench = bench();
    counts(&mut bench, 1);
    assert_eq!(said(&mut bench, &["XADD", "s", "1-1", "f", "v"]), "$3\r\n1-1\r\n");
    counts(&mut bench, 2);
    let adds = "return redis.call('XADD', KEYS[1], '1-2', 'f', 'v')";
    assert_eq!(said(&mut bench, &["EVAL", adds, "1", "s"]), "$3\r\n1-2\r\n");
    counts(&mut bench, 3);
    // Nor is a script forgotten that goes on: what keeps something waits for it.
    let (mut long, mut waits) = (Session::new(), Session::new());
    goes_on(&mut bench, &mut long, &["EVAL", ENDLESS, "0"]);
    assert_eq!(said(&mut bench, &["XADD", "s", "1-3", "f", "v"]), "$3\r\n1-3\r\n");
    goes_on(&mut bench, &mut waits, &["FCALL", "count", "0"]);
    assert_eq!(said(&mut bench, &["SCRIPT", "KILL"]), "+OK\r\n");
    assert!(ends(&mut bench, &mut long).contains("killed by user"));
    assert_eq!(ends(&mut bench, &mut waits), ":4\r\n");
}
