//! SADD, ZADD and RPUSH of more elements than are written in one step, SPOP, HSETEX and HGETDEL, under the scheduler: a client of
//! another worker sees none of them or all, by what counts them and by what looks for two of them.

use crate::{Look, answer_later, rest, with_seeds, workers, write_beside};
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
    say(writer, connection, &format!("{head}{elements}"))
}

/// What a client is answered that says these words.
fn say(local: &mut Local, connection: &mut LocalConnection, words: &str) -> String {
    answer_later(local, connection, &words.split(' ').collect::<Vec<_>>())
}

fn in_steps(seed: u64) {
    let kind = &KINDS[seed as usize % KINDS.len()];
    let write = move |writer: &mut Local, connection: &mut LocalConnection| {
        for round in 0..ROUNDS {
            assert!(put(kind, round, writer, connection).starts_with(':'), "seed {seed}");
            rest(writer);
        }
    };
    let mut latest = 0;
    let count: Look = Box::new(move |reader, connection| {
        let reply = say(reader, connection, kind.count);
        let seen: usize = reply[1..].trim_end().parse().expect("a count");
        assert!(seen.is_multiple_of(kind.elements), "seed {seed}: {seen} of them");
        assert!(seen >= latest, "seed {seed}: {seen} behind {latest}");
        latest = seen;
    });
    // The first and the last.
    let words = kind.both.replace('#', "0").replace('@', &(kind.elements - 1).to_string());
    let both: Look = Box::new(move |reader, connection| {
        let reply = say(reader, connection, &words);
        let missing = reply.matches("$-1\r\n").count() + reply.matches(":0\r\n").count();
        assert!(reply.starts_with(':') || missing.is_multiple_of(2), "seed {seed}: {reply:?}");
    });
    write_beside(seed, write, [count, both]);
}

#[test]
fn many_elements_that_are_written_in_steps_are_of_one_moment() {
    with_seeds("moments", 6, in_steps);
}

/// Elements of a key are taken in steps, round by round, beside a client that counts them: as many as `counts` says.
fn taken_beside(
    seed: u64,
    fill: impl Fn(&mut Local, &mut LocalConnection) + 'static,
    (take, lines): (String, usize),
    is_right: impl Fn(&str) -> bool + 'static,
    (count, counts): (&'static str, [usize; 3]),
) {
    let write = move |writer: &mut Local, connection: &mut LocalConnection| {
        for _ in 0..ROUNDS {
            fill(writer, connection);
            rest(writer);
            let mut reply = say(writer, connection, &take);
            // It comes in pieces.
            while reply.matches("\r\n").count() < lines {
                pass();
                writer.go_on(connection);
                reply += &String::from_utf8_lossy(connection.sent());
                connection.forget();
            }
            assert!(is_right(&reply), "seed {seed}: {reply:.20}");
            writer.shift(1000);
            say(writer, connection, "DEL k");
            progress();
        }
    };
    let counts = counts.map(|count| format!(":{count}\r\n"));
    let look: Look = Box::new(move |reader, connection| {
        let seen = say(reader, connection, count);
        assert!(counts.contains(&seen), "seed {seed}: {seen}");
    });
    write_beside(seed, write, [look]);
}

/// SPOP of more members than are taken in one step.
fn popped_in_steps(seed: u64) {
    const POPPED: usize = 600;
    let kind = &KINDS[0];
    let fill = move |writer: &mut Local, connection: &mut LocalConnection| {
        put(kind, 0, writer, connection);
    };
    let head = format!("*{POPPED}\r\n");
    let is_right = move |reply: &str| reply.starts_with(&head);
    let pop = (format!("SPOP k {POPPED}"), 1 + 2 * POPPED);
    let counts = [0, kind.elements, kind.elements - POPPED];
    taken_beside(seed, fill, pop, is_right, (kind.count, counts));
}

#[test]
fn many_members_that_are_popped_in_steps_are_of_one_moment() {
    with_seeds("popped", 6, popped_in_steps);
}

/// HSETEX of more fields than are set in one step, and HGETDEL of more than are taken in one.
fn fields_in_steps(seed: u64) {
    const SET: usize = 2_100;
    const TAKEN: usize = 2_060;
    let pairs: String = (0..SET).map(|n| format!(" m{n} v")).collect();
    let names: String = (0..TAKEN).map(|n| format!(" m{n}")).collect();
    let set = format!("HSETEX k FNX FIELDS {SET}{pairs}");
    let fill = move |writer: &mut Local, connection: &mut LocalConnection| {
        assert_eq!(say(writer, connection, &set), ":1\r\n", "seed {seed}");
    };
    let values = format!("*{TAKEN}\r\n{}", "$1\r\nv\r\n".repeat(TAKEN));
    let is_right = move |reply: &str| reply == values;
    let take = (format!("HGETDEL k FIELDS {TAKEN}{names}"), 1 + 2 * TAKEN);
    taken_beside(seed, fill, take, is_right, ("HLEN k", [0, SET, SET - TAKEN]));
}

#[test]
fn many_fields_that_are_set_and_taken_in_steps_are_of_one_moment() {
    with_seeds("fields", 6, fields_in_steps);
}

/// Another worker takes the key away, as it does with what it evicts, between steps and amid them: as often as the command begins
/// anew. It has all of the elements then, or none if it was taken behind the last.
fn beside_one_that_takes_the_key(seed: u64) {
    let kind = &KINDS[seed as usize % KINDS.len()];
    let (mut writer, []) = workers();
    let store = Arc::clone(writer.store());
    let mut schedule = Schedule::new(seed, 3_000_000);
    let (at_work, times) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(0)));
    let (is_over, may_take) = (Rc::clone(&at_work), Rc::clone(&times));
    schedule.thread("writer", move || {
        let mut connection = writer.resp_connection().by_turns();
        let whole = format!(":{}\r\n", kind.elements);
        for _ in 0..ROUNDS {
            may_take.set(RESTARTS);
            let reply = put(kind, 0, &mut writer, &mut connection);
            may_take.set(0);
            assert_eq!(reply, whole, "seed {seed}");
            let there = say(&mut writer, &mut connection, kind.count);
            assert!(there == whole || there == ":0\r\n", "seed {seed}: {there:?} of {whole:?}");
            say(&mut writer, &mut connection, "DEL k");
            rest(&mut writer);
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
    with_seeds("taken", 12, beside_one_that_takes_the_key);
}
