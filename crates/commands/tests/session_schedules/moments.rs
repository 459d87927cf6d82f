//! SADD, ZADD and RPUSH of more elements than are written in one step, under the scheduler: a client of another worker sees
//! none of them or all, by what counts them and by what looks for two of them.

use crate::pairs::answer_later;
use crate::seeds;
use larder_store::schedule::{Schedule, pass, progress};
use larder_testkit::local::Local;
use larder_testkit::talk::encode;
use std::cell::Cell;
use std::rc::Rc;

/// A command with one element, with a `#` where its number comes; how many elements it has, more than are written in one step;
/// what counts them, and what looks for two of them by their numbers.
struct Kind {
    put: &'static str,
    elements: usize,
    count: &'static str,
    both: &'static str,
}

static KINDS: [Kind; 3] = [
    Kind { put: "SADD k m#", elements: 2_100, count: "SCARD k", both: "SMISMEMBER k m# m@" },
    Kind { put: "ZADD k # m#", elements: 1_100, count: "ZCARD k", both: "ZMSCORE k m# m@" },
    Kind { put: "RPUSH k m#", elements: 16_500, count: "LLEN k", both: "LLEN k" },
];
const ROUNDS: usize = 2;

fn in_steps(seed: u64) {
    let kind = &KINDS[seed as usize % KINDS.len()];
    let local = Local::new(&["-m", "16", "-t", "4", "-M"].map(str::to_owned)).expect("a server");
    let siblings = [0; 2].map(|_| local.sibling().expect("another worker"));
    let mut schedule = Schedule::new(seed, 3_000_000);
    let at_work = Rc::new(Cell::new(true));
    let (mut writer, is_over) = (local, Rc::clone(&at_work));
    schedule.thread("writer", move || {
        let mut connection = writer.resp_connection().by_turns();
        for round in 0..ROUNDS {
            let (head, each) = kind.put.split_at(kind.put.find(" k").expect("a key") + 2);
            let numbers = round * kind.elements..(round + 1) * kind.elements;
            let elements = numbers.map(|n| each.replace('#', &n.to_string())).collect::<String>();
            let words: Vec<String> = format!("{head}{elements}").split(' ').map(str::to_owned).collect();
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            writer.exchange(&mut connection, &encode(&words));
            while connection.sent().is_empty() {
                pass();
                writer.go_on(&mut connection);
            }
            assert!(connection.sent().starts_with(b":"), "seed {seed}");
            connection.forget();
            // Others have their turn before the next.
            writer.shift(1000);
            progress();
        }
        is_over.set(false);
    });
    for (nth, mut reader) in siblings.into_iter().enumerate() {
        let (at_work, mut latest) = (Rc::clone(&at_work), 0);
        schedule.thread(format!("reader-{nth}"), move || {
            let mut connection = reader.resp_connection();
            while at_work.get() {
                if nth == 0 {
                    let words: Vec<&str> = kind.count.split(' ').collect();
                    let reply = answer_later(&mut reader, &mut connection, &words);
                    let seen: usize = reply[1..].trim_end().parse().expect("a count");
                    assert!(seen.is_multiple_of(kind.elements), "seed {seed}: {seen} of them");
                    assert!(seen >= latest, "seed {seed}: {seen} behind {latest}");
                    latest = seen;
                } else {
                    // The first and the last.
                    let last = (kind.elements - 1).to_string();
                    let words = kind.both.replace('#', "0").replace('@', &last);
                    let words: Vec<&str> = words.split(' ').collect();
                    let reply = answer_later(&mut reader, &mut connection, &words);
                    let missing = reply.matches("$-1\r\n").count() + reply.matches(":0\r\n").count();
                    assert!(reply.starts_with(':') || missing.is_multiple_of(2), "seed {seed}: {reply:?}");
                }
                progress();
                pass();
            }
        });
    }
    schedule.run();
}

#[test]
fn many_elements_that_are_written_in_steps_are_of_one_moment() {
    for seed in seeds(6) {
        println!("moments: LARDER_SCHEDULE_SEED={seed}");
        in_steps(seed);
    }
}
