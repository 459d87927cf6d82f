//! Commands on collections that ask for much: others have their turn meanwhile, what is told is of one moment, and what
//! is held is bounded.

use crate::slices::turns;
use crate::{Bench, START, bench};
use larder_commands::{Next, Session};
use larder_store::{Attributes, Expect, Made, Type};
use larder_testkit::redis::frame::Frame;
use larder_testkit::talk::encode;

/// Sets that together are more than is done at once, and members of each.
const SETS: usize = 120;
const MEMBERS: usize = 250;

impl Bench {
    fn set(&mut self, name: &str, members: impl Iterator<Item = String>) {
        let mut guard = self.worker.enter(START);
        let key = guard.key(name.as_bytes());
        let members: Vec<String> = members.collect();
        let made = members.iter().map(|name| Made { name: name.as_bytes(), value: &[], score: 0.0 });
        guard.collection_store(&key, Type::Set, made, &Attributes::default(), Expect::Any).unwrap().unwrap();
    }

    /// Sets of which each has a member with the next.
    fn sets(&mut self) -> String {
        for n in 0..SETS {
            self.set(&format!("s{n}"), (0..=MEMBERS).map(|member| format!("m{}", n * MEMBERS + member)));
        }
        (0..SETS).map(|n| format!(" s{n}")).collect()
    }

    fn asked(&self, words: &str) -> Vec<u8> {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        encode(&words)
    }
}

/// What a set has that is replied, in order.
fn members(reply: &[u8]) -> Vec<String> {
    let (frame, bytes) = Frame::read(reply).expect("a reply").expect("all of it");
    assert_eq!(bytes, reply.len());
    let text = |frame: &Frame| String::from_utf8(frame.body.clone().expect("a string")).expect("text");
    let mut members: Vec<String> = frame.inside.iter().map(text).collect();
    members.sort();
    members
}

#[test]
fn many_sets_are_put_together_in_steps() {
    let mut bench = bench();
    let names = bench.sets();
    let sent = bench.asked(&format!("SUNION{names}"));
    let (reply, yields) = bench.turns(&mut Session::new(), &sent);
    assert!(yields > 2, "{yields}");
    let mut expected: Vec<String> = (0..=SETS * MEMBERS).map(|n| format!("m{n}")).collect();
    expected.sort();
    assert_eq!(members(&reply), expected);
    let sent = bench.asked(&format!("SDIFF{names}"));
    let (reply, _) = bench.turns(&mut Session::new(), &sent);
    assert_eq!(members(&reply).len(), MEMBERS);
    let sent = bench.asked(&format!("SINTER{names}"));
    let (reply, _) = bench.turns(&mut Session::new(), &sent);
    assert_eq!(reply, b"*0\r\n");
}

#[test]
fn sets_that_change_while_they_are_read_are_read_anew() {
    let mut bench = bench();
    let names = bench.sets();
    let sent = bench.asked(&format!("SUNION{names}"));
    let mut session = Session::new();
    let (next, reply) = bench.turn(&mut session, &sent);
    assert_eq!((next, reply.len()), (Next::Yield, 0));
    // One that is read by then, and one that is not: what is told has both changes or none of them.
    bench.set("s0", ["first".to_owned()].into_iter());
    bench.set(&format!("s{}", SETS - 1), ["last".to_owned()].into_iter());
    let (reply, _) = bench.turns(&mut session, b"");
    let members = members(&reply);
    assert!(members.contains(&"first".to_owned()) && members.contains(&"last".to_owned()));
    assert!(!members.contains(&"m0".to_owned()) && !members.contains(&format!("m{}", SETS * MEMBERS)));
    assert_eq!(members.len(), (SETS - 2) * MEMBERS + 1 + 2);
}

#[test]
fn what_is_stored_in_steps_is_told_once() {
    let mut bench = bench();
    let names = bench.sets();
    let mut session = Session::new();
    for words in ["HELLO 3", "PSUBSCRIBE *", "CONFIG SET notify-keyspace-events Esg"] {
        let sent = bench.asked(words);
        bench.turns(&mut session, &sent);
    }
    let sent = bench.asked(&format!("SDIFFSTORE d{names}"));
    let (mut heard, yields) = bench.turns(&mut session, &sent);
    assert!(yields > 2, "{yields}");
    let sent = bench.asked("SDIFFSTORE d d");
    heard.extend(bench.turns(&mut session, &sent).0);
    let sent = bench.asked("SDIFFSTORE d nosuch");
    heard.extend(bench.turns(&mut session, &sent).0);
    let heard = String::from_utf8_lossy(&heard);
    assert_eq!(heard.matches(&*format!(":{MEMBERS}\r\n")).count(), 2, "{heard}");
    assert_eq!(heard.matches("__keyevent@0__:sdiffstore").count(), 2, "{heard}");
    assert_eq!(heard.matches("__keyevent@0__:del").count(), 1, "{heard}");
}

#[test]
fn picks_beyond_any_bound_are_told_as_they_are_taken() {
    let mut bench = bench();
    bench.set("s", ["one".to_owned(), "two".to_owned()].into_iter());
    let sent = bench.asked("SRANDMEMBER s -1000000");
    let held = bench.worker.store().held_bytes();
    let mut session = Session::new();
    let (next, first, _) = bench.call(&mut session, &sent);
    assert!(matches!(next, Next::Flush | Next::Yield) && first.len() < 4 << 20);
    let (rest, _) = bench.turns(&mut session, b"");
    let reply = [first, rest].concat();
    assert!(reply.starts_with(b"*1000000\r\n$3\r\n"));
    assert_eq!(reply.len(), 10 + 1_000_000 * 9);
    assert_eq!(bench.worker.store().held_bytes(), held);
    let sent = bench.asked("HRANDFIELD nosuch -9223372036854775807");
    assert_eq!(bench.turns(&mut session, &sent).0, b"*0\r\n");
}

#[test]
fn one_long_value_that_is_asked_for_too_often_is_refused() {
    let mut bench = bench();
    let value = "x".repeat(15_000);
    let sent = bench.asked(&format!("HSET h f {value}"));
    assert_eq!(bench.turns(&mut Session::new(), &sent).0, b":1\r\n");
    let sent = bench.asked(&format!("HMGET h{}", " f".repeat(10)));
    assert_eq!(bench.turns(&mut Session::new(), &sent).0.len(), 5 + 10 * (8 + 15_000 + 2));
    let sent = bench.asked(&format!("HMGET h{}", " f".repeat(10_000)));
    let (reply, _) = bench.turns(&mut Session::new(), &sent);
    assert_eq!(String::from_utf8_lossy(&reply), "-OOM connections hold as much memory as they may\r\n");
}

#[test]
fn what_is_larger_than_a_leaf_is_read_scanned_and_taken_apart() {
    const FIELDS: usize = 5_000;
    let mut bench = bench();
    let mut session = Session::new();
    for from in (0..FIELDS).step_by(500) {
        let pairs: String = (from..from + 500).map(|n| format!(" field{n} value{n}")).collect();
        let sent = bench.asked(&format!("HSET h{pairs}"));
        assert_eq!(bench.turns(&mut session, &sent).0, b":500\r\n");
    }
    let fields = |mut all: Vec<String>| {
        all.retain(|text| text.starts_with("field"));
        all.sort();
        all.dedup();
        all.len()
    };
    let sent = bench.asked("HGETALL h");
    assert_eq!(fields(members(&bench.turns(&mut session, &sent).0)), FIELDS);
    let (mut cursor, mut met, mut calls) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let sent = bench.asked(&format!("HSCAN h {cursor} COUNT 100"));
        let reply = bench.turns(&mut session, &sent).0;
        let (frame, _) = Frame::read(&reply).expect("a reply").expect("all of it");
        cursor = String::from_utf8(frame.inside[0].body.clone().expect("a cursor")).expect("text");
        met.extend(
            frame.inside[1]
                .inside
                .iter()
                .map(|one| String::from_utf8(one.body.clone().expect("a string")).expect("text")),
        );
        calls += 1;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(fields(met), FIELDS);
    assert!(calls > 10, "{calls}");
    let sent = bench.asked("HRANDFIELD h 100");
    assert_eq!(fields(members(&bench.turns(&mut session, &sent).0)), 100);
    let sent = bench.asked("HRANDFIELD h 4000");
    assert_eq!(fields(members(&bench.turns(&mut session, &sent).0)), 4_000);
    let sent = bench.asked("HRANDFIELD h -100");
    assert_eq!(members(&bench.turns(&mut session, &sent).0).len(), 100);
    let names: String = (0..FIELDS).map(|n| format!(" member{n}")).collect();
    let sent = bench.asked(&format!("SADD s{names}"));
    assert_eq!(bench.turns(&mut session, &sent).0, format!(":{FIELDS}\r\n").as_bytes());
    let sent = bench.asked("SPOP s 2000");
    assert_eq!(members(&bench.turns(&mut session, &sent).0).len(), 2_000);
    let sent = bench.asked("SUNION s s");
    assert_eq!(members(&bench.turns(&mut session, &sent).0).len(), FIELDS - 2_000);
    let sent = bench.asked("SPOP s 3000");
    assert_eq!(members(&bench.turns(&mut session, &sent).0).len(), 3_000);
    let sent = bench.asked("EXISTS s");
    assert_eq!(bench.turns(&mut session, &sent).0, b":0\r\n");
    let sent = bench.asked("RENAME h g");
    let refused = "-ERR collection exceeds maximum allowed size (16384 bytes with its key)\r\n";
    assert_eq!(String::from_utf8_lossy(&bench.turns(&mut session, &sent).0), refused);
}

impl Bench {
    /// Puts members into a set of any size.
    fn add(&mut self, name: &str, members: impl Iterator<Item = String>) {
        let mut guard = self.worker.enter(START);
        let key = guard.key(name.as_bytes());
        for member in members {
            guard.set_add(&key, std::iter::once(member.as_bytes())).unwrap();
        }
        guard.take_beside_ns();
    }

    fn reply(&mut self, words: &str) -> Vec<u8> {
        let sent = self.asked(words);
        self.turns(&mut Session::new(), &sent).0
    }

    /// What a command comes to whose turns are no longer than they may be; how many they are.
    fn bounded(&mut self, words: &str) -> (Vec<u8>, usize) {
        let sent = self.asked(words);
        turns(self, &mut Session::new(), &sent)
    }
}

const HELD: &[u8] = b"-OOM connections hold as much memory as they may\r\n";

#[test]
fn picks_take_room_for_what_they_pick() {
    let mut bench = bench();
    let held = bench.worker.store().held_bytes();
    // More than connections may hold.
    bench.add("s", (0..6_000).map(|n| format!("{n:04000}")));
    for n in 0..6_000 {
        bench.reply(&format!("HSET h {n} {n:0500}"));
    }
    let lengths = |reply: &[u8]| members(reply).iter().map(String::len).sum::<usize>();
    assert_eq!(lengths(&bench.reply("SRANDMEMBER s 2")), 8_000);
    assert_eq!(lengths(&bench.reply("SRANDMEMBER s 1100")), 4_400_000);
    assert_eq!(lengths(&bench.reply("SRANDMEMBER s -2")), 8_000);
    assert_eq!(lengths(&bench.reply("SRANDMEMBER s -1100")), 4_400_000);
    assert_eq!(lengths(&bench.reply("SPOP s 100")), 400_000);
    assert_eq!(lengths(&bench.reply("HRANDFIELD h 20 WITHVALUES")) / 500, 20);
    assert_eq!(members(&bench.reply("HRANDFIELD h -1100 WITHVALUES")).len(), 2_200);
    // What is picked of all of them, or is all of them, finds no room.
    for words in ["SRANDMEMBER s -5000", "SRANDMEMBER s 5000", "SMEMBERS s"] {
        assert_eq!(bench.reply(words), HELD, "{words}");
    }
    assert_eq!(bench.worker.store().held_bytes(), held);
    // A list of which all would not find room.
    let elements = " 1".repeat(8_000);
    assert_eq!(bench.reply(&format!("RPUSH l{elements}")), b":8000\r\n");
    let store = bench.worker.store();
    let taken = (store.held_bytes_max() - store.held_bytes() - (64 << 10)) as i64;
    store.hold(taken);
    for words in ["LRANGE l 0 0", "LPOP l 1", "LPOP l 20", "LMPOP 1 l RIGHT COUNT 20", "LPOS l 1 COUNT 20"] {
        assert!(bench.reply(words).starts_with(b"*"), "{words}");
    }
    bench.worker.store().hold(-taken);
}

#[test]
fn all_of_a_large_collection_is_told_in_steps() {
    const MEMBERS: usize = 60_000;
    let mut bench = bench();
    let held = bench.worker.store().held_bytes();
    bench.add("s", (0..MEMBERS).map(|n| format!("m{n}")));
    let all: Vec<String> = {
        let mut all: Vec<String> = (0..MEMBERS).map(|n| format!("m{n}")).collect();
        all.sort();
        all
    };
    let (reply, turns) = bench.bounded("SMEMBERS s");
    assert!(turns > 3, "{turns}");
    assert!(members(&reply) == all);
    let (reply, turns) = bench.bounded("SRANDMEMBER s 60001");
    assert!(turns > 3 && members(&reply) == all);
    for drawn in [1_025, 5_000, 30_000] {
        let (reply, turns) = bench.bounded(&format!("SRANDMEMBER s {drawn}"));
        let mut some = members(&reply);
        some.dedup();
        assert!(turns > 1 && some.len() == drawn, "{turns}");
        assert!(some.iter().all(|one| all.binary_search(one).is_ok()));
    }
    for picked in [1_025, 30_000] {
        let (reply, turns) = bench.bounded(&format!("SRANDMEMBER s -{picked}"));
        assert!(turns > 1 && members(&reply).len() == picked, "{turns}");
    }
    assert_eq!(bench.worker.store().held_bytes(), held);
}

#[test]
fn what_is_written_while_all_is_copied_is_told_all_or_not_at_all() {
    let mut bench = bench();
    bench.add("s", (0..60_000).map(|n| format!("m{n}")));
    let mut session = Session::new();
    let sent = bench.asked("SMEMBERS s");
    let (next, reply) = bench.turn(&mut session, &sent);
    assert_eq!((next, reply.len()), (Next::Yield, 0));
    bench.add("s", ["new".to_owned()].into_iter());
    let (reply, _) = bench.turns(&mut session, b"");
    assert_eq!(members(&reply).len(), 60_001);
    // At every turn another: in the end it is one step.
    let mut next = bench.turn(&mut session, &sent).0;
    let (mut replies, mut turns) = (Vec::new(), 0);
    while next != Next::Receive {
        turns += 1;
        if replies.is_empty() {
            bench.add("s", std::iter::once(format!("new{turns}")));
        }
        let more;
        (next, more) = bench.turn(&mut session, b"");
        replies.extend(more);
    }
    let all = members(&replies);
    assert!((60_003..60_020).contains(&all.len()), "{}", all.len());
    // Gone meanwhile.
    let (next, _) = bench.turn(&mut session, &sent);
    assert_eq!(next, Next::Yield);
    bench.reply("DEL s");
    assert_eq!(bench.turns(&mut session, b"").0, b"*0\r\n");
}
