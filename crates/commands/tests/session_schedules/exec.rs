//! EXEC of very many commands, which are run in turns, under the scheduler: others see none of it, or all; beside pairs of
//! the same keys, which are written in turns, too.

use crate::{answer_later, are_of_one_moment, rest, with_seeds, workers};
use larder_store::schedule::{Schedule, pass, progress};
use larder_testkit::local::{Local, LocalConnection};
use larder_testkit::talk::encode;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// More than are run, or written, in one step.
const COMMANDS: usize = 2_300;
const ROUNDS: usize = 2;

fn name(n: usize) -> String {
    format!("k{n}")
}

/// Has a client say this, and goes on until it is answered with so many bytes.
fn say(local: &mut Local, connection: &mut LocalConnection, input: &[u8], bytes: usize) -> Vec<u8> {
    local.exchange(connection, input);
    while connection.sent().len() < bytes {
        pass();
        local.go_on(connection);
    }
    let said = connection.sent().to_vec();
    connection.forget();
    rest(local);
    said
}

fn run_all(local: &mut Local, connection: &mut LocalConnection, value: &str) {
    let mut input = encode(&[b"MULTI"]);
    // What is counted is what is counted in no other way.
    input.extend(encode(&[b"INCR", b"runs"]));
    (0..COMMANDS).for_each(|n| input.extend(encode(&[b"SET", name(n).as_bytes(), value.as_bytes()])));
    input.extend(encode(&[b"INCR", b"runs"]));
    input.extend(encode(&[b"EXEC"]));
    let head = format!("+OK\r\n{}*{}\r\n", "+QUEUED\r\n".repeat(COMMANDS + 2), COMMANDS + 2);
    let bytes = head.len() + 2 * ":1\r\n".len() + COMMANDS * "+OK\r\n".len();
    let said = String::from_utf8(say(local, connection, &input, bytes)).expect("text");
    let replies: Vec<&str> = said.strip_prefix(&head).expect("all are queued").split("\r\n").collect();
    let number = |text: &str| text.trim_start_matches(':').parse::<usize>().expect("a number");
    assert_eq!(number(replies[COMMANDS + 1]), number(replies[0]) + 1, "nobody else runs between");
}

fn write_all(local: &mut Local, connection: &mut LocalConnection, value: &str) {
    let names: Vec<String> = (0..COMMANDS).map(name).collect();
    let pairs = names.iter().flat_map(|name| [name.as_bytes(), value.as_bytes()]);
    let words: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
    assert_eq!(say(local, connection, &encode(&words), 5), b"+OK\r\n");
}

/// One client runs transactions, another writes pairs or runs transactions of the same keys, the third looks.
fn in_turns(seed: u64) {
    let (local, [other, mut reader]) = workers();
    let mut schedule = Schedule::new(seed, 6_000_000);
    let at_work = Rc::new(Cell::new(2));
    for (nth, mut writer) in [local, other].into_iter().enumerate() {
        let is_over = Rc::clone(&at_work);
        schedule.thread(format!("writer-{nth}"), move || {
            let mut connection = writer.resp_connection().by_turns();
            for round in 0..ROUNDS {
                let value = ["a", "b", "c", "d"][2 * nth + round];
                if nth == 0 || seed.is_multiple_of(2) {
                    run_all(&mut writer, &mut connection, value);
                } else {
                    write_all(&mut writer, &mut connection, value);
                }
            }
            is_over.set(is_over.get() - 1);
        });
    }
    schedule.thread("reader", move || {
        let mut connection = reader.resp_connection();
        let last = name(COMMANDS - 1);
        while at_work.get() > 0 {
            let words = ["MGET", &last, "k0", "k1000"];
            are_of_one_moment(&answer_later(&mut reader, &mut connection, &words), seed);
            let runs = answer_later(&mut reader, &mut connection, &["GET", "runs"]);
            let runs = runs.split("\r\n").nth(1).and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
            assert!(runs.is_multiple_of(2), "seed {seed}: {runs} of what is counted in twos");
            progress();
            pass();
        }
    });
    schedule.run();
}

#[test]
fn many_commands_that_are_run_in_turns_are_of_one_moment() {
    with_seeds("exec", 10, in_turns);
}

/// One waits for what is pushed among commands that are run in turns, and another worker looks again and again at what is left
/// for behind them: however its looks and their end meet, the waiter is served without a command that comes by later.
fn served_behind(seed: u64) {
    let (mut writer, [mut waiter, mut other]) = workers();
    let mut schedule = Schedule::new(seed, 300_000);
    let (waits, is_over) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let awake = Rc::new(RefCell::new(Vec::new()));
    let (at, over, woken) = (Rc::clone(&waits), Rc::clone(&is_over), Rc::clone(&awake));
    schedule.thread("writer", move || {
        while !at.get() {
            pass();
        }
        let mut connection = writer.resp_connection().by_turns();
        let mut input = [encode(&[b"MULTI"]), encode(&[b"RPUSH", b"list", b"element"])].concat();
        (0..COMMANDS).for_each(|n| input.extend(encode(&[b"SET", name(n).as_bytes(), b"v"])));
        input.extend(encode(&[b"EXEC"]));
        let queued = "+OK\r\n".len() + (COMMANDS + 1) * "+QUEUED\r\n".len();
        let replies = format!("*{}\r\n:1\r\n", COMMANDS + 1).len() + COMMANDS * "+OK\r\n".len();
        say(&mut writer, &mut connection, &input, queued + replies);
        woken.borrow_mut().extend(writer.awake());
        over.set(true);
    });
    let (over, woken) = (Rc::clone(&is_over), Rc::clone(&awake));
    schedule.thread("other", move || {
        while !over.get() {
            let connection = other.resp_connection();
            other.ended(connection);
            woken.borrow_mut().extend(other.awake());
            progress();
            pass();
        }
    });
    schedule.thread("waiter", move || {
        let mut connection = waiter.resp_connection();
        let id = connection.client().expect("a client");
        waiter.exchange(&mut connection, &encode(&[b"BLPOP", b"list", b"0"]));
        waits.set(true);
        while !awake.borrow().contains(&id) {
            pass();
        }
        waiter.go_on(&mut connection);
        assert_eq!(connection.sent(), b"*2\r\n$4\r\nlist\r\n$7\r\nelement\r\n", "seed {seed}");
        progress();
    });
    schedule.run();
}

#[test]
fn who_waits_for_what_many_commands_push_is_served_behind_them() {
    with_seeds("served-behind", 300, served_behind);
}
