//! Numbers at the ends of what integer arguments take, and what is no number: answered as the testkit's table says, of which
//! other servers are asked, too.

use crate::bench;
use larder_commands::Session;
use larder_testkit::redis::ends::{Asked, numbers, times};

/// What differs from what is said there.
fn differences(all: impl Iterator<Item = Asked>) -> String {
    let mut bench = bench();
    let (stock, _) = Asked::stock();
    let mut differ = String::new();
    for asked in all {
        bench.run(&mut Session::new(), &stock, usize::MAX);
        let found = bench.run(&mut Session::new(), &asked.request(), usize::MAX).0;
        let found = String::from_utf8(found).unwrap();
        let Asked { words, number, reply } = asked;
        if found != format!("{reply}\r\n") {
            differ += &format!("{words} with {number:?}: {found:?}, not {reply:?}\n");
        }
    }
    differ
}

#[test]
fn numbers_at_the_ends_are_answered_as_the_table_says() {
    let differ = differences(numbers());
    assert!(differ.is_empty(), "{differ}");
}

#[test]
fn times_to_wait_at_the_ends_are_answered_alike_by_all_that_wait() {
    let differ = differences(times());
    assert!(differ.is_empty(), "{differ}");
}
