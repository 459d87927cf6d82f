//! SADD, ZADD and RPUSH of more elements than are written in one step, SPOP, HSETEX and HGETDEL, under the scheduler: a client of
//! another worker sees none of them or all, by what counts them and by what looks for two of them.

use crate::{answer_later, seeds};
use larder_store::Expect;
use larder_store::schedule::{Random, Schedule, pass, progress};
use larder_testkit::local::{Local, LocalConnection, START};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

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
/// So often a command begins with its first element again.
const RESTARTS: usize = 3;

/// Puts so many elements, from the one of a round on: what that is answered.
fn put(kind: &Kind, round: usize, writer: &mut Local, connection: &mut LocalConnection) -> String {
    let (head, each) = kind.put.split_at(kind.put.find(" k").expect("a key") + 2);
    let numbers = round * kind.elements..(round + 1) * kind.elements;
    let elements = numbers.map(|n| each.replace('#', &n.to_string())).collect::<String>();
    let words = format!("{head}{elements}");
    let words: Vec<&str> = words.split(' ').collect();
    answer_later(writer, connection, &words)
}

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
            assert!(put(kind, round, &mut writer, &mut connection).starts_with(':'), "seed {seed}");
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

/// A reply of so many lines, which comes in pieces, of which this is the first.
fn whole(writer: &mut Local, connection: &mut LocalConnection, first: String, lines: usize) -> String {
    let mut reply = first;
    while reply.matches("\r\n").count() < lines {
        pass();
        writer.go_on(connection);
        reply += &String::from_utf8_lossy(connection.sent());
        connection.forget();
    }
    reply
}

/// SPOP of more members than are taken in one step.
fn popped_in_steps(seed: u64) {
    const POPPED: usize = 600;
    let kind = &KINDS[0];
    let local = Local::new(&["-m", "16", "-t", "4", "-M"].map(str::to_owned)).expect("a server");
    let mut reader = local.sibling().expect("another worker");
    let mut schedule = Schedule::new(seed, 3_000_000);
    let at_work = Rc::new(Cell::new(true));
    let (mut writer, is_over) = (local, Rc::clone(&at_work));
    schedule.thread("writer", move || {
        let mut connection = writer.resp_connection().by_turns();
        for _ in 0..ROUNDS {
            put(kind, 0, &mut writer, &mut connection);
            writer.shift(1000);
            progress();
            let popped = answer_later(&mut writer, &mut connection, &["SPOP", "k", &POPPED.to_string()]);
            let popped = whole(&mut writer, &mut connection, popped, 1 + 2 * POPPED);
            assert!(popped.starts_with(&format!("*{POPPED}\r\n")), "seed {seed}: {popped:.20}");
            writer.shift(1000);
            answer_later(&mut writer, &mut connection, &["DEL", "k"]);
            progress();
        }
        is_over.set(false);
    });
    schedule.thread("reader", move || {
        let mut connection = reader.resp_connection();
        let counts = [0, kind.elements, kind.elements - POPPED].map(|count| format!(":{count}\r\n"));
        while at_work.get() {
            let seen = answer_later(&mut reader, &mut connection, &["SCARD", "k"]);
            assert!(counts.contains(&seen), "seed {seed}: {seen}");
            progress();
            pass();
        }
    });
    schedule.run();
}

#[test]
fn many_members_that_are_popped_in_steps_are_of_one_moment() {
    for seed in seeds(6) {
        println!("popped: LARDER_SCHEDULE_SEED={seed}");
        popped_in_steps(seed);
    }
}

/// HSETEX of more fields than are set in one step, and HGETDEL of more than are taken in one.
fn fields_in_steps(seed: u64) {
    const SET: usize = 2_100;
    const TAKEN: usize = 2_060;
    let pairs: String = (0..SET).map(|n| format!(" m{n} v")).collect();
    let names: String = (0..TAKEN).map(|n| format!(" m{n}")).collect();
    let set = format!("HSETEX k FNX FIELDS {SET}{pairs}");
    let take = format!("HGETDEL k FIELDS {TAKEN}{names}");
    let local = Local::new(&["-m", "16", "-t", "4", "-M"].map(str::to_owned)).expect("a server");
    let mut reader = local.sibling().expect("another worker");
    let mut schedule = Schedule::new(seed, 3_000_000);
    let at_work = Rc::new(Cell::new(true));
    let (mut writer, is_over) = (local, Rc::clone(&at_work));
    schedule.thread("writer", move || {
        let mut connection = writer.resp_connection().by_turns();
        let [set, take] = [&set, &take].map(|words| words.split(' ').collect::<Vec<&str>>());
        let values = format!("*{TAKEN}\r\n{}", "$1\r\nv\r\n".repeat(TAKEN));
        for _ in 0..ROUNDS {
            assert_eq!(answer_later(&mut writer, &mut connection, &set), ":1\r\n", "seed {seed}");
            writer.shift(1000);
            progress();
            let taken = answer_later(&mut writer, &mut connection, &take);
            let taken = whole(&mut writer, &mut connection, taken, 1 + 2 * TAKEN);
            assert!(taken == values, "seed {seed}: {taken:.20}");
            writer.shift(1000);
            answer_later(&mut writer, &mut connection, &["DEL", "k"]);
            progress();
        }
        is_over.set(false);
    });
    schedule.thread("reader", move || {
        let mut connection = reader.resp_connection();
        let counts = [0, SET, SET - TAKEN].map(|count| format!(":{count}\r\n"));
        while at_work.get() {
            let seen = answer_later(&mut reader, &mut connection, &["HLEN", "k"]);
            assert!(counts.contains(&seen), "seed {seed}: {seen}");
            progress();
            pass();
        }
    });
    schedule.run();
}

#[test]
fn many_fields_that_are_set_and_taken_in_steps_are_of_one_moment() {
    for seed in seeds(6) {
        println!("fields: LARDER_SCHEDULE_SEED={seed}");
        fields_in_steps(seed);
    }
}

/// Another worker takes the key away, as it does with what it evicts, between steps and amid them: as often as the command begins
/// anew. It has all of the elements then, or none if it was taken behind the last.
fn beside_one_that_takes_the_key(seed: u64) {
    let kind = &KINDS[seed as usize % KINDS.len()];
    let local = Local::new(&["-m", "16", "-t", "4", "-M"].map(str::to_owned)).expect("a server");
    let store = Arc::clone(local.store());
    let mut schedule = Schedule::new(seed, 3_000_000);
    let (at_work, times) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(0)));
    let (mut writer, is_over, may_take) = (local, Rc::clone(&at_work), Rc::clone(&times));
    schedule.thread("writer", move || {
        let mut connection = writer.resp_connection().by_turns();
        let whole = format!(":{}\r\n", kind.elements);
        for _ in 0..ROUNDS {
            may_take.set(RESTARTS);
            let reply = put(kind, 0, &mut writer, &mut connection);
            may_take.set(0);
            assert_eq!(reply, whole, "seed {seed}");
            let words: Vec<&str> = kind.count.split(' ').collect();
            let there = answer_later(&mut writer, &mut connection, &words);
            assert!(there == whole || there == ":0\r\n", "seed {seed}: {there:?} of {whole:?}");
            answer_later(&mut writer, &mut connection, &["DEL", "k"]);
            writer.shift(1000);
            progress();
        }
        is_over.set(false);
    });
    let mut random = Random(seed);
    schedule.thread("taker", move || {
        let mut worker = store.worker().expect("a worker");
        while at_work.get() {
            if times.get() > 0 && random.below(40) == 0 {
                let mut guard = worker.enter(START);
                let key = guard.key(b"k");
                if guard.delete(&key, Expect::Present).is_ok() {
                    times.set(times.get().saturating_sub(1));
                }
            }
            progress();
            pass();
        }
    });
    schedule.run();
}

#[test]
fn elements_whose_key_is_taken_amid_it_are_all_there() {
    for seed in seeds(12) {
        println!("taken: LARDER_SCHEDULE_SEED={seed}");
        beside_one_that_takes_the_key(seed);
    }
}
