//! MSET of very many keys, which is written in turns, under the scheduler: others see none of it, or all.

use crate::{Look, answer_later, are_of_one_moment, rest, with_seeds, write_beside};
use larder_testkit::local::{Local, LocalConnection};

/// More than are written in one step.
const PAIRS: usize = 2_100;
const ROUNDS: usize = 2;

/// Keys that are written at the beginning, in the middle and at the end are of one moment, for commands of several keys
/// and for those of one that come one behind the other.
fn in_turns(seed: u64) {
    let write = |writer: &mut Local, connection: &mut LocalConnection| {
        for round in 0..ROUNDS {
            let names: Vec<String> = (0..PAIRS).map(|n| format!("k{n}")).collect();
            let value = round.to_string();
            let pairs = names.iter().flat_map(|name| [name.as_str(), value.as_str()]);
            let words: Vec<&str> = std::iter::once("MSET").chain(pairs).collect();
            assert_eq!(answer_later(writer, connection, &words), "+OK\r\n");
            rest(writer);
        }
    };
    let mut latest: i32 = -1;
    let one_by_one: Look = Box::new(move |reader, connection| {
        for name in ["k0", "k2099", "k1000"] {
            let reply = answer_later(reader, connection, &["GET", name]);
            let seen = reply.split("\r\n").nth(1).and_then(|text| text.parse().ok()).unwrap_or(-1);
            assert!(seen >= latest, "seed {seed}: {name} is {seen} behind {latest}");
            latest = seen;
        }
    });
    let together: Look = Box::new(move |reader, connection| {
        are_of_one_moment(&answer_later(reader, connection, &["MGET", "k2099", "k0", "k1000"]), seed);
    });
    write_beside(seed, write, [one_by_one, together]);
}

#[test]
fn many_pairs_that_are_written_in_turns_are_of_one_moment() {
    with_seeds("pairs", 10, in_turns);
}
