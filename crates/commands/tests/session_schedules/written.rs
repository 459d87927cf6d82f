//! A large hash that one client writes to all the time, and two read in turns, under the scheduler: each reply is of one moment,
//! and neither of them reads in vain for ever.

use crate::{answer, answer_later, with_seeds, workers};
use larder_store::schedule::{Schedule, pass, progress};
use larder_testkit::talk::encode;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// More than are replied in one step.
const FIELDS: usize = 8_400;
const LAST: &str = "f8399";
const ROUNDS: usize = 2;

/// A number as a value, so that all are of one length.
fn value(n: u64) -> String {
    format!("{n:060}")
}

/// The fields of a reply.
fn fields(reply: &str) -> HashMap<&str, &str> {
    let mut words = reply.split("\r\n").skip(2).step_by(2);
    std::iter::from_fn(|| Some((words.next()?, words.next()?))).collect()
}

fn written_to(seed: u64) {
    let (mut writer, siblings) = workers::<2>();
    let mut connection = writer.resp_connection();
    for some in (0..FIELDS).collect::<Vec<_>>().chunks(400) {
        let words: Vec<String> = some.iter().flat_map(|n| [format!("f{n}"), value(0)]).collect();
        let words: Vec<&str> = ["HSET", "h"].into_iter().chain(words.iter().map(|word| &**word)).collect();
        assert_eq!(answer(&mut writer, &mut connection, &words), format!(":{}\r\n", some.len()));
    }
    let bytes = answer(&mut writer, &mut connection, &["HGETALL", "h"]).len();
    let mut schedule = Schedule::new(seed, 3_000_000);
    let (at_work, written) = (Rc::new(Cell::new(siblings.len())), Rc::new(Cell::new(0)));
    let (reads, count) = (Rc::clone(&at_work), Rc::clone(&written));
    schedule.thread("writer", move || {
        while reads.get() > 0 {
            let text = value(count.get() + 1);
            let words = ["HSET", "h", "f0", &text, LAST, &text];
            assert_eq!(answer_later(&mut writer, &mut connection, &words), ":0\r\n");
            count.set(count.get() + 1);
            // Others have their turn before the next holds the key.
            writer.shift(10);
            progress();
            pass();
        }
    });
    for (nth, mut reader) in siblings.into_iter().enumerate() {
        let (at_work, written) = (Rc::clone(&at_work), Rc::clone(&written));
        schedule.thread(format!("reader-{nth}"), move || {
            let mut connection = reader.resp_connection().by_turns();
            for _ in 0..ROUNDS {
                let before = written.get();
                reader.exchange(&mut connection, &encode(&[&b"HGETALL"[..], b"h"]));
                while connection.sent().len() < bytes {
                    pass();
                    reader.go_on(&mut connection);
                }
                let reply = String::from_utf8_lossy(connection.sent()).into_owned();
                let fields = fields(&reply);
                assert_eq!((reply.len(), fields.len()), (bytes, FIELDS), "seed {seed}");
                assert_eq!(fields["f0"], fields[LAST], "seed {seed}: of two moments");
                let seen: u64 = fields["f0"].parse().expect("a number");
                assert!((before..=written.get() + 1).contains(&seen), "seed {seed}: {seen} behind {before}");
                connection.forget();
                progress();
            }
            at_work.set(at_work.get() - 1);
        });
    }
    schedule.run();
}

#[test]
fn what_is_read_of_a_hash_that_is_always_written_to_is_of_one_moment() {
    with_seeds("written", 10, written_to);
}
