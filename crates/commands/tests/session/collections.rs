//! Commands on collections that do much work: other clients have turns meanwhile, a reply shows one moment,
//! and the memory that it holds is bounded.

use crate::slices::turns;
use crate::{Bench, START, bench};
use larder_commands::{Next, Session, Settings};
use larder_protocol::resp::words_read;
use larder_store::{Attributes, Expect, Made, Type};
use larder_testkit::redis::frame::Frame;
use larder_testkit::talk::encode;

/// Sets that together need more work than one turn may do, and the members of each.
const SETS: usize = 120;
const MEMBERS: usize = 250;

impl Bench {
    fn set(&mut self, name: &str, members: impl Iterator<Item = String>) {
        let mut guard = self.worker.enter(START);
        let key = guard.key(name.as_bytes());
        let members: Vec<String> = members.collect();
        let made =
            members.iter().map(|name| Made { name: name.as_bytes(), value: &[], score: 0.0, expires_at: 0 });
        guard.collection_store(&key, Type::Set, made, &Attributes::default(), Expect::Any).unwrap().unwrap();
    }

    /// Creates sets, each of which shares one member with the next. Returns their names, each behind a space.
    fn sets(&mut self) -> String {
        for n in 0..SETS {
            self.set(&format!("s{n}"), (0..=MEMBERS).map(|member| format!("m{}", n * MEMBERS + member)));
        }
        (0..SETS).map(|n| format!(" s{n}")).collect()
    }

    pub fn asked(&self, words: &str) -> Vec<u8> {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        encode(&words)
    }
}

/// The text of a string frame.
fn text(frame: &Frame) -> String {
    String::from_utf8(frame.body.clone().expect("a string")).expect("text")
}

/// The members of a set that is replied, sorted.
fn members(reply: &[u8]) -> Vec<String> {
    let (frame, bytes) = Frame::read(reply).expect("a reply").expect("all of it");
    assert_eq!(bytes, reply.len());
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
    // The first set has been read by now, the last one has not. The reply has both changes: the first is read
    // again.
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
fn one_long_value_that_is_asked_for_often_is_answered_in_pieces() {
    let mut bench = bench();
    let value = "x".repeat(15_000);
    bench.reply(&format!("HSET h f {value}"));
    let answer = 8 + 15_000 + 2;
    assert_eq!(bench.reply(&format!("HMGET h{}", " f".repeat(10))).len(), 5 + 10 * answer);
    // A reply that is larger than the memory that connections may hold.
    let held = bench.worker.store().held_bytes();
    let (reply, turns) = bench.bounded(&format!("HMGET h{}", " f".repeat(1_200)));
    assert!(reply.len() == 7 + 1_200 * answer && turns > 10, "{turns}");
    assert_eq!(bench.worker.store().held_bytes(), held);
    let reply = exec(&mut bench, &[format!("HMGET h{}", " f".repeat(1_200))]);
    assert_eq!(reply.as_bytes(), [b"*1\r\n", HELD].concat());
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
    assert_eq!(bench.turns(&mut session, &sent).0, b"+OK\r\n");
    let sent = bench.asked("HLEN g");
    assert_eq!(bench.turns(&mut session, &sent).0, format!(":{FIELDS}\r\n").as_bytes());
    // RENAME, MOVE and COPY of a set that is larger than 1 MiB.
    bench.add("large", (0..3_000).map(|n| format!("{n:0500}")));
    for (words, expected) in [
        ("RENAME large g", "+OK\r\n"),
        ("EXISTS large", ":0\r\n"),
        ("SCARD g", ":3000\r\n"),
        ("MOVE g 1", ":1\r\n"),
    ] {
        let sent = bench.asked(words);
        assert_eq!(String::from_utf8_lossy(&bench.turns(&mut session, &sent).0), expected);
    }
    for words in ["SELECT 1", "MOVE g 0", "SELECT 0"] {
        let sent = bench.asked(words);
        bench.turns(&mut session, &sent);
    }
    for words in ["COPY g large", "SREM g none", "SUNIONSTORE g large g", "SCARD large"] {
        let sent = bench.asked(words);
        let expected = match words.as_bytes()[1] {
            b'O' => ":1\r\n",
            b'R' => ":0\r\n",
            _ => ":3000\r\n",
        };
        assert_eq!(String::from_utf8_lossy(&bench.turns(&mut session, &sent).0), expected, "{words}");
    }
}

impl Bench {
    /// Adds members to a set of any size.
    pub fn add(&mut self, name: &str, members: impl Iterator<Item = String>) {
        let mut guard = self.worker.enter(START);
        let key = guard.key(name.as_bytes());
        for member in members {
            guard.set_add(&key, std::iter::once(member.as_bytes())).unwrap();
        }
        guard.take_beside_ns();
    }

    pub fn reply(&mut self, words: &str) -> Vec<u8> {
        let sent = self.asked(words);
        self.turns(&mut Session::new(), &sent).0
    }

    /// A command's reply and the number of its turns, none of which may exceed its budget.
    pub fn bounded(&mut self, words: &str) -> (Vec<u8>, usize) {
        let sent = self.asked(words);
        turns(self, &mut Session::new(), &sent)
    }
}

const HELD: &[u8] = b"-OOM connections hold as much memory as they may\r\n";

#[test]
fn picks_take_room_for_what_they_pick() {
    let mut bench = bench();
    let held = bench.worker.store().held_bytes();
    // A set and a hash; the set's 24 MB are more than connections may hold.
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
    // These replies are 20 MB and more: they exceed what connections may hold.
    for words in ["SRANDMEMBER s -5000", "SRANDMEMBER s 5000", "SMEMBERS s"] {
        assert_eq!(bench.reply(words), HELD, "{words}");
    }
    assert_eq!(bench.worker.store().held_bytes(), held);
    // Little memory is left. These commands must claim it for the elements that they reply, not for the whole
    // list.
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
    // The set changes before each turn, so at last it is copied in one step.
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
    // The set is deleted meanwhile.
    let (next, _) = bench.turn(&mut session, &sent);
    assert_eq!(next, Next::Yield);
    bench.reply("DEL s");
    assert_eq!(bench.turns(&mut session, b"").0, b"*0\r\n");
}

/// EXEC's reply to these commands.
fn exec(bench: &mut Bench, commands: &[String]) -> String {
    let words = ["MULTI".to_owned()].into_iter().chain(commands.iter().cloned()).chain(["EXEC".to_owned()]);
    let input: Vec<u8> = words.flat_map(|words| bench.asked(&words)).collect();
    let reply = bench.turns(&mut Session::new(), &input).0;
    let queued = format!("+OK\r\n{}", "+QUEUED\r\n".repeat(commands.len()));
    String::from_utf8_lossy(&reply).strip_prefix(&*queued).expect("all are queued").to_owned()
}

#[test]
fn what_a_transaction_writes_is_weighed_with_what_it_reads_of_it() {
    let mut bench = bench();
    bench.add("big", (0..60_000).map(|n| format!("m{n}")));
    let of = |words: &str| words.to_owned();
    let many = |words: &str, times: usize| vec![words.to_owned(); times];
    let members = |key: &str, from: usize| -> String {
        let members: String = (from..from + 2_000).map(|n| format!(" m{n}")).collect();
        format!("SADD {key}{members}")
    };
    let fields: String = (0..2_000).map(|n| format!(" f{n} v")).collect();
    let some: String = (0..500).map(|n| format!(" m{n}")).collect();
    let long = "x".repeat(100_000);
    let refused = [
        [vec![members("s", 0)], many("SMEMBERS s", 200)].concat(),
        [(0..20).map(|n| members("s", 2_000 * n)).collect(), many("SINTER s s", 5)].concat(),
        many("SUNION big nosuch", 1),
        many("SDIFF big nosuch", 1),
        [vec![members("s", 0), of("SUNIONSTORE d s big")], many("SMEMBERS d", 200)].concat(),
        [vec![format!("RPUSH l{}", " e".repeat(3_000))], many("LRANGE l 0 -1", 200)].concat(),
        [(0..300).map(|n| format!("ZADD z {n} m{n}")).collect(), many("ZRANGE z 0 -1 WITHSCORES", 500)]
            .concat(),
        [many("SMOVE big s m7", 100), many("SMEMBERS s", 5_000)].concat(),
        vec![of("SPOP big 6000")],
        vec![of("SPOP big 100000")],
        vec![of("SRANDMEMBER big 20000")],
        vec![of("SRANDMEMBER big -1000000000000")],
        many("SMEMBERS big", 4),
        // A database under another number, and values that earlier commands of the queue create.
        [vec![of("SWAPDB 0 3"), of("SELECT 3")], many("SMEMBERS big", 4)].concat(),
        [vec![format!("MSET a {long} b {long}")], many("BITCOUNT b", 200)].concat(),
        [vec![format!("MSETEX 2 a {long} b {long}")], many("BITCOUNT b", 200)].concat(),
    ];
    for commands in &refused {
        let commands = [vec![of("SET mark 1")], commands.clone()].concat();
        let reply = exec(&mut bench, &commands);
        let last = commands.last().expect("one");
        assert!(
            reply.starts_with("-EXECABORT Transaction discarded: "),
            "… {last}: {}",
            &reply[..reply.len().min(80)]
        );
        assert_eq!(bench.reply("EXISTS mark s h l d z"), b":0\r\n", "nothing was run");
    }
    // Commands that do little work are run, however large their keys are.
    let run = [
        many("SISMEMBER big m7", 2_000),
        many("SRANDMEMBER big 9", 500),
        many("SRANDMEMBER big -9", 500),
        many("SPOP big", 2_000),
        many("SPOP big 10", 300),
        many("SMOVE big s m7", 1_000),
        [vec![of("SADD s m7 m8 m9")], many("SINTER big s", 500), many("SDIFF s big", 500)].concat(),
        many("SINTERCARD 2 big nosuch", 1_000),
        (0..1_000).map(|n| format!("HSET h f{n} v g{n} v")).collect(),
        (0..1_000).map(|n| format!("RPUSH l {n}")).collect(),
        many("LRANGE l 0 9", 1_000),
        (0..300).map(|n| format!("ZADD z {n} m{n}")).collect(),
        many("ZRANGE z 0 9", 1_000),
        vec![of("SMEMBERS big"), of("SMEMBERS h"), of("SWAPDB 0 3"), of("SMEMBERS big")],
        (0..100).map(|n| format!("SADD s{n}{some}")).collect(),
        // These have so many words that EXEC works in steps, none of which is longer than others may wait.
        (0..132).map(|n| format!("SADD s{n}{some}")).collect(),
        [vec![format!("HSET h{fields}")], many("HVALS h", 200)].concat(),
    ];
    for commands in &run {
        let reply = exec(&mut bench, commands);
        let last = commands.last().expect("one");
        assert!(reply.starts_with(&format!("*{}\r\n", commands.len())), "… {last}: {reply}");
    }
}

/// A command of `words`, followed by these names.
fn with(words: &str, named: impl Iterator<Item = String>) -> String {
    named.fold(words.to_owned(), |words, name| words + " " + &name)
}

#[test]
fn what_names_many_elements_is_done_in_steps() {
    const ELEMENTS: usize = 3_000;
    let mut bench = bench();
    let held = bench.worker.store().held_bytes();
    let each = |name: fn(usize) -> String| (0..ELEMENTS).map(name);
    let member = |n: usize| format!("m{n}");
    let count = format!(":{ELEMENTS}\r\n");
    let all = |one: &str| format!("*{ELEMENTS}\r\n{}", one.repeat(ELEMENTS));
    let cases = [
        (with("SADD s", each(member)), count.clone(), 6),
        (with("SADD s", each(member)), ":0\r\n".into(), 6),
        (with("SMISMEMBER s", each(member)), all(":1\r\n"), 3),
        (with("SMISMEMBER nosuch", each(member)), all(":0\r\n"), 3),
        (with("HSET h", each(|n| format!("m{n} v"))), count.clone(), 6),
        (with("HMSET h", each(|n| format!("m{n} w"))), "+OK\r\n".into(), 6),
        (with("HMGET h", each(member)), all("$1\r\nw\r\n"), 3),
        (
            with("HGETDEL h FIELDS 2100", (0..2_100).map(member)),
            { format!("*2100\r\n{}", "$1\r\nw\r\n".repeat(2_100)) },
            4,
        ),
        (with("HDEL h", each(member)), ":900\r\n".into(), 6),
        (with("ZADD z", each(|n| format!("7 {}", n % 900))), ":900\r\n".into(), 6),
        (with("ZADD z CH", each(|n| format!("{n} {}", n % 900))), ":2999\r\n".into(), 6),
        (with("ZADD z", each(|n| format!("7 {}", n % 900))), ":0\r\n".into(), 6),
        (with("ZMSCORE z", each(|n| format!("{}", n % 900))), all("$1\r\n7\r\n"), 3),
        (with("ZREM z", each(|n| format!("{n}"))), ":900\r\n".into(), 6),
        (with("SREM s", (1..ELEMENTS).map(member)), format!(":{}\r\n", ELEMENTS - 1), 6),
        ("SMEMBERS s".into(), "*1\r\n$2\r\nm0\r\n".into(), 1),
        ("EXISTS h z".into(), ":0\r\n".into(), 1),
        (
            with("HMGET s", each(member)),
            { "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n".into() },
            1,
        ),
    ];
    for (words, expected, turns_min) in cases {
        let (reply, turns) = bench.bounded(&words);
        let words = &words[..words.len().min(40)];
        assert!(
            String::from_utf8_lossy(&reply) == expected,
            "{words}: {}",
            String::from_utf8_lossy(&reply[..60])
        );
        assert!((turns_min..32).contains(&turns), "{words}: {turns} turns");
    }
    // One field is too long for any hash: nothing is written.
    let long = "x".repeat(16_400);
    {
        let words = with("HSET h", each(|n| format!("m{n} v")).chain([format!("{long} v")]));
        let refused = "-ERR collection exceeds maximum allowed size (16384 bytes of an element with its key, of a list, a set, a value or an entry of a stream 4 MiB, of a sorted set 1 MiB; an element of a list or a value that comes last 64 MiB)\r\n";
        assert_eq!(String::from_utf8_lossy(&bench.bounded(&words).0), refused);
    }
    assert_eq!(bench.reply("EXISTS h"), b":0\r\n");
    // EXEC does all of it in one moment.
    bench.reply(&with("HSET h", (0..500).map(|n| format!("m{n} v"))));
    bench.reply(&with("HSET h", (500..1_500).map(|n| format!("m{n} v"))));
    let fields = with("HGETDEL h FIELDS 3000", each(|n| format!("m{}", n % 1_500)));
    let reply = exec(&mut bench, &[fields, "EXISTS h".into(), with("SADD t", each(member))]);
    let taken = format!("{}{}", "$1\r\nv\r\n".repeat(1_500), "$-1\r\n".repeat(1_500));
    assert!(reply == format!("*3\r\n*3000\r\n{taken}:0\r\n{count}"), "{}", &reply[..80]);
    assert_eq!(bench.worker.store().held_bytes(), held);
}

/// A command's reply, the most words that one of its turns reads, and the words that all turns read.
fn reads(bench: &mut Bench, words: &str) -> (String, u64, u64) {
    let (sent, mut session) = (bench.asked(words), Session::new());
    let (mut said, mut at, mut most, mut all) = (Vec::new(), 0, 0, 0);
    loop {
        let before = words_read();
        let (next, more, consumed) = bench.call(&mut session, &sent[at..]);
        let read = words_read() - before;
        (most, all) = (most.max(read), all + read);
        said.extend(more);
        at += consumed;
        match next {
            Next::Yield | Next::Flush => {}
            // Keys were held shortly before, so the command waits 2 ms.
            Next::Sleep(ms @ 2) | Next::Await(Some(ms @ 2)) => bench.system += ms,
            next => {
                assert_eq!((next, at), (Next::Receive, sent.len()));
                return (String::from_utf8(said).unwrap(), most, all);
            }
        }
    }
}

/// Words that may be refused are checked over several turns before the first is written. There is no check
/// where the longest word shows that none can be refused.
#[test]
fn very_many_words_are_looked_at_in_turns_before_the_first_is_written() {
    const WORDS: usize = 120_000;
    const MOST: u64 = WORDS as u64 / 2;
    let settings = Settings { append_bytes_max: 32 << 20, ..Settings::default() };
    let mut bench = Bench::of(settings, 256 << 20);
    let (value, field) = ("v".repeat(20_000), "f".repeat(20_000));
    let pairs: String = (0..WORDS / 2).map(|n| format!(" {n} m{n}")).collect();
    let places: String = (0..WORDS / 3).map(|n| format!(" 13 38 m{n}")).collect();
    let number = "-ERR value is not a valid float\r\n";
    let place = "-ERR invalid longitude,latitude pair 13.000000,86.000000\r\n";
    let too_large = "-ERR collection exceeds maximum allowed size";
    let (halves, thirds) = (format!(":{}\r\n", WORDS / 2 + 1), format!(":{}\r\n", WORDS / 3 + 1));
    // The command, how its reply begins, and how often all of its words are read at least.
    let cases = [
        (format!("ZADD k{pairs} x last"), number, 1),
        (format!("ZADD k{pairs} 7 last"), &*halves, 3),
        (format!("GEOADD k{places} 13 north last"), number, 1),
        (format!("GEOADD k{places} 13 86 last"), place, 1),
        (format!("GEOADD k{places} 13 38 last"), &*thirds, 3),
        (format!("HSET k{pairs} {field} last"), too_large, 1),
        (format!("HSET k{pairs} last {value}"), &*halves, 3),
        (format!("HSETEX k FIELDS {}{pairs} {field} last", WORDS / 2 + 1), too_large, 1),
        (format!("HSETEX k FNX FIELDS {}{pairs} last {value}", WORDS / 2 + 1), ":1\r\n", 3),
    ];
    for (command, expected, times) in cases {
        let start = &command[..12];
        let (said, most, all) = reads(&mut bench, &command);
        assert!(said.starts_with(expected), "{start}: {said}");
        assert!(most < MOST && all > times * WORDS as u64, "{start}: {most} of {all}");
        let is_there = if said.starts_with('-') { ":0\r\n" } else { ":1\r\n" };
        assert_eq!(bench.reply("DEL k"), is_there.as_bytes(), "{start}");
    }
    // FNX and FXX look at all fields, the last one included.
    for (asks, said) in [("FNX", ":0\r\n"), ("FXX", ":0\r\n")] {
        bench.reply("HSET k last 1");
        let command = format!("HSETEX k {asks} FIELDS {}{pairs} last 2", WORDS / 2 + 1);
        assert_eq!(bench.reply(&command), said.as_bytes(), "{asks}");
        assert_eq!(bench.reply("HVALS k"), b"*1\r\n$1\r\n1\r\n", "{asks}");
    }
    bench.reply("DEL k");
    // Until all words are checked, other clients see no change and do not wait.
    bench.system += 100;
    let (sent, mut session) = (bench.asked(&format!("ZADD k{pairs}")), Session::new());
    let (mut next, mut reply, mut at) = bench.call(&mut session, &sent);
    let mut turns = 0;
    while !session.holds() {
        assert_eq!(bench.reply("EXISTS k"), b":0\r\n");
        assert!(matches!(next, Next::Yield | Next::Flush) && reply.is_empty(), "{next:?}");
        let consumed;
        (next, reply, consumed) = bench.call(&mut session, &sent[at..]);
        at += consumed;
        turns += 1;
    }
    assert!(turns >= WORDS / 10_000, "{turns}");
    let rest = bench.turns(&mut session, &sent[at..]).0;
    assert_eq!(String::from_utf8_lossy(&rest), format!(":{}\r\n", WORDS / 2));
}

#[test]
fn many_members_are_popped_in_steps() {
    // More than the 65,536 members that one SPOP takes out in one moment.
    const MEMBERS: usize = 70_000;
    let mut bench = bench();
    let mut listens = Session::new();
    bench.add("s", (0..MEMBERS).map(|n| format!("m{n}")));
    bench.reply("CONFIG SET notify-keyspace-events Egs");
    let sent = bench.asked("PSUBSCRIBE *");
    bench.turns(&mut listens, &sent);
    let held = bench.worker.store().held_bytes();
    let (reply, turns) = bench.bounded("SPOP s 3000");
    let mut popped = members(&reply);
    popped.dedup();
    assert!(popped.len() == 3_000 && turns > 10, "{turns}");
    assert_eq!(bench.reply("SCARD s"), b":67000\r\n");
    assert_eq!(bench.reply(&with("SMISMEMBER s", popped.iter().take(500).cloned())), {
        format!("*500\r\n{}", ":0\r\n".repeat(500)).into_bytes()
    });
    // SPOP of the rest. Another client adds a member meanwhile.
    let sent = bench.asked("SPOP s 67000");
    let mut session = Session::new();
    let (next, reply) = bench.turn(&mut session, &sent);
    assert_eq!((next, reply.len()), (Next::Yield, 0));
    bench.reply("SADD s new");
    let (reply, _) = bench.turns(&mut session, b"");
    popped.extend(members(&reply));
    assert_eq!(popped.len(), MEMBERS);
    let sent = bench.asked("SPOP s 67000");
    popped.extend(members(&bench.turns(&mut session, &sent).0));
    popped.sort();
    popped.dedup();
    assert_eq!(popped.len(), MEMBERS + 1);
    assert_eq!(bench.reply("EXISTS s"), b":0\r\n");
    // The key is deleted meanwhile, so SPOP replies fewer members than were asked for.
    bench.add("s", (0..MEMBERS).map(|n| format!("m{n}")));
    let sent = bench.asked("SPOP s 69999");
    bench.turn(&mut session, &sent);
    bench.turn(&mut session, b"");
    bench.reply("DEL s");
    let reply = bench.turns(&mut session, b"").0;
    assert!((1..1_000).contains(&members(&reply).len()));
    assert_eq!(bench.worker.store().held_bytes(), held);
    let sent = bench.asked("PING");
    let told = bench.turns(&mut listens, &sent).0;
    let told = String::from_utf8_lossy(&told);
    assert!(told.matches("__keyevent@0__:spop\r\n").count() > 10, "{told}");
    assert_eq!(told.matches("__keyevent@0__:del\r\n").count(), 2);
}

#[test]
fn a_pop_in_steps_tells_once() {
    let mut bench = bench();
    let mut listens = Session::new();
    bench.add("s", (0..2_000).map(|n| format!("m{n}")));
    bench.reply("CONFIG SET notify-keyspace-events Es");
    let sent = bench.asked("PSUBSCRIBE *");
    bench.turns(&mut listens, &sent);
    // One more than the 256 that a step takes out.
    bench.bounded("SPOP s 257");
    let sent = bench.asked("PING");
    let told = [bench.turns(&mut listens, &sent).0, bench.turns(&mut listens, &sent).0].concat();
    let told = String::from_utf8_lossy(&told);
    assert_eq!(told.matches("__keyevent@0__:spop\r\n").count(), 1, "{told}");
}

#[test]
fn a_scan_looks_at_no_more_than_others_wait_for() {
    let mut bench = bench();
    bench.add("s", (0..60_000).map(|n| format!("m{n}")));
    let (mut cursor, mut met, mut calls) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let (reply, turns) = bench.bounded(&format!("SSCAN s {cursor} COUNT 100000000"));
        assert_eq!(turns, 1);
        let (frame, _) = Frame::read(&reply).expect("a reply").expect("all of it");
        cursor = text(&frame.inside[0]);
        met.extend(frame.inside[1].inside.iter().map(text));
        calls += 1;
        if cursor == "0" {
            break;
        }
    }
    met.sort();
    met.dedup();
    assert!(met.len() == 60_000 && calls > 4, "{calls}");
    let pattern = "[0-9]".repeat(800);
    let (_, turns) = bench.bounded(&format!("SSCAN s 0 COUNT 100000000 MATCH *{pattern}*"));
    assert_eq!(turns, 1);
}

#[test]
fn what_sets_have_in_common_is_sieved_from_the_smallest() {
    let mut bench = bench();
    // A set that is larger than connections may hold, and a small one that shares six of its members.
    bench.add("large", (0..6_000).map(|n| format!("{n:04000}")));
    bench.add("some", (0..6_000).step_by(1_000).map(|n| format!("{n:04000}")).chain(["no".to_owned()]));
    bench.add("many", (0..60_000).map(|n| format!("m{n}")));
    bench.add("most", (100..60_100).map(|n| format!("m{n}")));
    let held = bench.worker.store().held_bytes();
    let lengths = |reply: &[u8]| members(reply).iter().map(String::len).sum::<usize>();
    for names in ["large some", "some large", "large some large"] {
        assert_eq!(lengths(&bench.reply(&format!("SINTER {names}"))), 24_000, "{names}");
        let reply = bench.reply(&format!("SINTERCARD {} {names}", names.split(' ').count()));
        assert_eq!(reply, b":6\r\n", "{names}");
    }
    assert_eq!(bench.reply("SDIFF some large"), b"*1\r\n$2\r\nno\r\n");
    assert_eq!(bench.reply("SINTER large nosuch"), b"*0\r\n");
    assert_eq!(bench.reply("SINTERSTORE d large nosuch"), b":0\r\n");
    assert_eq!(bench.reply("SINTERCARD 2 large large"), b":6000\r\n");
    assert_eq!(bench.reply("SUNION large some"), HELD);
    // With LIMIT, the search ends once it has found so many.
    let (reply, turns) = bench.bounded("SINTERCARD 2 many most LIMIT 7");
    assert_eq!((&*reply, turns <= 3), (&b":7\r\n"[..], true), "{turns}");
    let (reply, turns) = bench.bounded("SINTERCARD 2 many most");
    assert!(reply == b":59900\r\n" && turns > 50, "{turns}");
    let (reply, turns) = bench.bounded("SDIFF many most");
    assert!(members(&reply).len() == 100 && turns > 20, "{turns}");
    let (reply, turns) = bench.bounded("SUNION many most");
    assert!(members(&reply).len() == 60_100 && turns > 40, "{turns}");
    // Commands on sorted sets reply by score.
    for (words, count) in
        [("ZUNION 2 many most WITHSCORES", 60_100), ("ZINTER 2 many most WEIGHTS 3 0.5 WITHSCORES", 59_900)]
    {
        let (reply, _) = bench.bounded(words);
        let (frame, _) = Frame::read(&reply).expect("a reply").expect("all of it");
        let texts: Vec<String> = frame.inside.iter().map(text).collect();
        let scored: Vec<(f64, &str)> =
            texts.chunks(2).map(|pair| (pair[1].parse().expect("a score"), &*pair[0])).collect();
        assert_eq!(scored.len(), count);
        assert!(scored.is_sorted_by(|one, other| one < other), "{words}");
    }
    // Names of keys that do not exist: as many as one command may have, and one more.
    let none = |count: usize| with("SUNION", (0..count).map(|n| format!("none{n}")));
    let (reply, turns) = bench.bounded(&none(16_384));
    assert!(reply == b"*0\r\n" && turns > 3, "{turns}");
    assert_eq!(bench.bounded(&none(16_385)).0, b"-ERR too many keys\r\n");
    assert_eq!(bench.worker.store().held_bytes(), held);
}

#[test]
fn a_difference_takes_the_cheaper_way_and_both_come_to_the_same() {
    let mut bench = bench();
    bench.add("first", (0..3_000).map(|n| format!("m{n}")));
    for other in 0..40 {
        bench.add(&format!("o{other}"), (0..20).map(|n| format!("m{}", 70 * other + n)));
    }
    let names = with("", (0..40).map(|n| format!("o{n}")));
    let expected: Vec<String> = {
        let mut left: Vec<String> =
            (0..3_000).filter(|n| n % 70 >= 20 || *n >= 2_800).map(|n| format!("m{n}")).collect();
        left.sort();
        left
    };
    // Both ways would do. Gathering is taken: it costs less than 3,000 lookups in each other set.
    assert!(members(&bench.bounded(&format!("SDIFF first{names}")).0) == expected);
    let whole = exec(&mut bench, &[format!("SDIFF first{names}")]);
    assert!(members(whole.as_bytes().strip_prefix(b"*1\r\n").expect("one reply")) == expected);
    bench.add("all", (0..40).flat_map(|other| (0..20).map(move |n| format!("m{}", 70 * other + n))));
    assert!(members(&bench.bounded("SDIFF first all").0) == expected);
    assert!(members(&bench.bounded("SDIFF first all nosuch all").0) == expected);
    assert_eq!(bench.reply("SDIFF first all first"), b"*0\r\n");
    assert_eq!(bench.reply("SDIFFSTORE first first all"), format!(":{}\r\n", expected.len()).as_bytes());
}

#[test]
fn what_is_sieved_of_sets_that_change_is_sieved_anew() {
    let mut bench = bench();
    bench.add("many", (0..30_000).map(|n| format!("m{n}")));
    bench.add("most", (0..30_000).map(|n| format!("m{n}")));
    let mut session = Session::new();
    let sent = bench.asked("SINTER many most");
    for key in ["many", "most"] {
        assert_eq!(bench.turn(&mut session, &sent), (Next::Yield, Vec::new()));
        (0..3).for_each(|_| assert_eq!(bench.turn(&mut session, b"").0, Next::Yield));
        bench.reply(&format!("SREM {key} m7"));
        bench.reply(&format!("SADD {key} m100000"));
        let reply = members(&bench.turns(&mut session, b"").0);
        let both = usize::from(key == "most");
        assert_eq!(reply.len(), 29_999 + both);
        assert!(!reply.contains(&"m7".to_owned()));
    }
}
