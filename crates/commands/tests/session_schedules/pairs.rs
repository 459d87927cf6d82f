//! MSET of very many keys, which is written in turns, under the scheduler: others see none of it, or all.

use crate::{answer_later, seeds};
use larder_store::schedule::{Schedule, pass, progress};
use larder_testkit::local::Local;
use std::cell::Cell;
use std::rc::Rc;

/// More than are written in one step.
const PAIRS: usize = 2_100;
const ROUNDS: usize = 2;

/// Keys that are written at the beginning, in the middle and at the end are of one moment, for commands of several keys
/// and for those of one that come one behind the other.
fn in_turns(seed: u64) {
    let local = Local::new(&["-m", "16", "-t", "4", "-M"].map(str::to_owned)).expect("a server");
    let siblings = [0; 2].map(|_| local.sibling().expect("another worker"));
    let mut schedule = Schedule::new(seed, 3_000_000);
    let at_work = Rc::new(Cell::new(true));
    let (mut writer, is_over) = (local, Rc::clone(&at_work));
    schedule.thread("writer", move || {
        let mut connection = writer.resp_connection().by_turns();
        for round in 0..ROUNDS {
            let names: Vec<String> = (0..PAIRS).map(|n| format!("k{n}")).collect();
            let value = round.to_string();
            let pairs = names.iter().flat_map(|name| [name.as_str(), value.as_str()]);
            let words: Vec<&str> = std::iter::once("MSET").chain(pairs).collect();
            assert_eq!(answer_later(&mut writer, &mut connection, &words), "+OK\r\n");
            // Others have their turn before the next.
            writer.shift(1000);
            progress();
        }
        is_over.set(false);
    });
    for (nth, mut reader) in siblings.into_iter().enumerate() {
        let (at_work, mut latest) = (Rc::clone(&at_work), -1);
        schedule.thread(format!("reader-{nth}"), move || {
            let mut connection = reader.resp_connection();
            let value =
                |reply: &str| reply.split("\r\n").nth(1).and_then(|text| text.parse().ok()).unwrap_or(-1);
            while at_work.get() {
                if nth == 0 {
                    for name in ["k0", "k2099", "k1000"] {
                        let seen: i32 = value(&answer_later(&mut reader, &mut connection, &["GET", name]));
                        assert!(seen >= latest, "seed {seed}: {name} is {seen} behind {latest}");
                        latest = seen;
                    }
                } else {
                    let reply = answer_later(&mut reader, &mut connection, &["MGET", "k2099", "k0", "k1000"]);
                    let values: Vec<&str> = reply.split("\r\n").filter(|text| text.len() == 1).collect();
                    assert!(
                        reply == "*3\r\n$-1\r\n$-1\r\n$-1\r\n"
                            || values.len() == 3 && values.iter().all(|value| *value == values[0]),
                        "seed {seed}: {reply:?}"
                    );
                }
                progress();
                pass();
            }
        });
    }
    schedule.run();
}

#[test]
fn many_pairs_that_are_written_in_turns_are_of_one_moment() {
    for seed in seeds(10) {
        println!("pairs: LARDER_SCHEDULE_SEED={seed}");
        in_turns(seed);
    }
}
