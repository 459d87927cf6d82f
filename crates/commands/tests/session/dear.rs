//! Requests whose replies do not show what they take: each of them spends that, so that none of them, however many come
//! at once, has a turn longer than a slice.

use crate::slices::{STEP_NS, set, turns};
use crate::survey::command;
use crate::{Bench, bench};
use larder_commands::{Next, SLICE_NS, Session};

/// What a request spends, in however many turns.
fn spent(bench: &mut Bench, session: &mut Session, input: &[u8]) -> u64 {
    let (mut at, mut ns) = (0, 0);
    loop {
        let (next, reply, consumed) = bench.call(session, &input[at..]);
        let said = String::from_utf8_lossy(&reply[..reply.len().min(100)]).into_owned();
        let request = String::from_utf8_lossy(&input[..input.len().min(100)]).into_owned();
        assert!(!said.starts_with('-') && !said.contains("ERROR"), "{request}: {said}");
        ns += bench.room.work().done_ns();
        at += consumed;
        match next {
            Next::Yield | Next::Flush => {}
            Next::Receive | Next::Await(_) => {
                assert_eq!(at, input.len());
                return ns;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Lines of memcached's text that are more than a look at a key, and what each takes at least.
#[test]
fn a_line_of_text_spends_what_it_takes() {
    let lines = [
        ("version", 500),
        ("stats", 20_000),
        ("stats settings", 500),
        ("stats items", 10_000),
        ("stats slabs", 10_000),
        ("stats doctor", 30_000),
        ("stats reset", 90_000),
        ("stats conns", 250_000),
        ("stats detail on", 500),
        ("stats detail dump", 1_000),
        ("stats nothing at all", 500),
        ("slabs reassign 1 2", 10_000),
        ("slabs automove 1", 500),
        ("lru tune 10 25 0.1 2.0", 500),
        ("lru_crawler crawl all", 500),
        ("cache_memlimit 64", 500),
        ("cache_memlimit 64 noreply", 500),
        ("verbosity 1", 500),
        ("verbosity 1 noreply", 500),
    ];
    for (line, least_ns) in lines {
        let mut bench = bench();
        set(&mut bench, "k", b"value");
        let input = format!("{line}\r\n");
        let mut session = Session::new();
        let first = bench.call(&mut session, b"version\r\n");
        assert_eq!(first.0, Next::Receive);
        let before = bench.room.work().done_ns();
        assert!(before < 2_000, "{before} ns");
        let mut ns = 0;
        if !line.contains("nothing") && !line.starts_with("slabs reassign") {
            ns = spent(&mut bench, &mut session, input.as_bytes());
            assert!(ns >= least_ns, "{line}: {ns} ns");
        }
        // A pipeline of it ends turns.
        let times = (20 * SLICE_NS / least_ns.max(ns)).max(4) as usize;
        let (_, turns) = turns(&mut bench, &mut session, input.repeat(times).as_bytes());
        let least = times as u64 * least_ns / (SLICE_NS + STEP_NS);
        assert!(turns as u64 >= least, "{line} × {times}: {turns} turns, not {least}");
        // A key is looked at for next to nothing all the same.
        assert_eq!(bench.call(&mut session, b"get nothing\r\n").1, b"END\r\n");
        assert_eq!(bench.room.work().done_ns(), 0, "a get spends nothing");
    }
}

/// A server with something of everything.
fn stocked() -> Bench {
    let mut bench = bench();
    let mut session = Session::new();
    let mut say = |words: &[&str]| {
        let (reply, _) = bench.turns(&mut session, &command(words));
        assert!(!reply.starts_with(b"-"), "{words:?}: {}", String::from_utf8_lossy(&reply));
    };
    say(&[&["RPUSH", "empties"][..], &[""; 4_000]].concat());
    let members: Vec<String> = (0..512).map(|n| format!("{n:0>60}")).collect();
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let pairs: Vec<&str> = members.iter().flat_map(|member| [*member, "value"]).collect();
    say(&[&["HSET", "hash"][..], &pairs].concat());
    let numbers: Vec<String> = (0..512).map(|n| n.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    say(&[&["SADD", "numbers"][..], &numbers].concat());
    for n in 0..20 {
        let some: Vec<String> = (0..512).map(|m| format!("{:0>60}", n * 512 + m)).collect();
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        say(&[&["SADD", "many"][..], &some].concat());
    }
    say(&["ZADD", "sorted", "1", "one", "2", "two"]);
    set(&mut bench, "string", &[b'x'; 12_000]);
    bench
}

/// Commands of RESP, and what each takes at least.
#[test]
fn a_command_spends_what_its_reply_does_not_show() {
    let names: Vec<String> = (0..200).map(|n| format!("none-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let with = |first: &[&'static str], last: &[&'static str]| -> Vec<String> {
        first.iter().chain(&names).chain(last).map(|word| (*word).to_owned()).collect()
    };
    let of = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    let pattern = format!("*{}", "[ab]?".repeat(800));
    let rows: Vec<(Vec<String>, u64)> = vec![
        (of(&["MEMORY", "DOCTOR"]), 30_000),
        (of(&["MEMORY", "STATS"]), 2_500),
        (of(&["LATENCY", "DOCTOR"]), 30_000),
        (of(&["LATENCY", "HISTOGRAM"]), 60_000),
        (with(&["LATENCY", "RESET"], &[]), 8_000),
        (of(&["INFO", "server"]), 50_000),
        (of(&["INFO", "memory"]), 50_000),
        (of(&["INFO", "keyspace"]), 50_000),
        (of(&["INFO", "commandstats"]), 110_000),
        (of(&["INFO", "latencystats"]), 110_000),
        (of(&["ACL", "CAT", "hyperloglog"]), 14_000),
        (of(&["ACL", "LIST"]), 700),
        (of(&["ACL", "USERS"]), 700),
        (of(&["ACL", "GETUSER", "nobody"]), 700),
        (of(&["COMMAND", "LIST"]), 3_000),
        (of(&["COMMAND", "LIST", "FILTERBY", "ACLCAT", "geo"]), 20_000),
        (of(&["COMMAND", "LIST", "FILTERBY", "PATTERN", &pattern]), 30_000),
        (of(&["COMMAND", "DOCS", "get"]), 900),
        (of(&["CONFIG", "GET", "nothing"]), 2_000),
        (of(&["CONFIG", "GET", "maxclients"]), 15_000),
        (of(&["CONFIG", "SET", "maxmemory", "64mb"]), 1_500),
        (of(&["CONFIG", "SET", "hz", "10"]), 1_500),
        (of(&["CONFIG", "RESETSTAT"]), 90_000),
        (of(&["LASTSAVE"]), 13_000),
        (of(&["OBJECT", "ENCODING", "empties"]), 40_000),
        (of(&["OBJECT", "ENCODING", "hash"]), 10_000),
        (of(&["OBJECT", "ENCODING", "numbers"]), 5_000),
        (of(&["DEBUG", "OBJECT", "empties"]), 40_000),
        (of(&["LPOS", "empties", "none"]), 40_000),
        (of(&["LINSERT", "empties", "BEFORE", "none", "x"]), 40_000),
        (of(&["LREM", "empties", "0", "none"]), 40_000),
        (of(&["COPY", "many", "copy", "REPLACE"]), 140_000),
        (of(&["COPY", "string", "copy", "REPLACE"]), 6_000),
        (of(&["RENAME", "hash", "renamed"]), 6_000),
        (with(&["PUBSUB", "NUMSUB"], &[]), 10_000),
        (with(&["LMPOP", "200"], &["LEFT"]), 40_000),
        (with(&["ZMPOP", "200"], &["MIN"]), 40_000),
        (with(&["BLPOP"], &["0.001"]), 40_000),
        (with(&["SINTER"], &[]), 40_000),
        (with(&["SUNIONSTORE", "union"], &[]), 40_000),
        (with(&["SUBSCRIBE"], &[]), 200_000),
        (with(&["PSUBSCRIBE"], &[]), 200_000),
    ];
    for (words, least_ns) in rows {
        let mut bench = stocked();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut session = Session::new();
        bench.turns(&mut session, &command(&["PING"]));
        let ns = spent(&mut bench, &mut session, &command(&words));
        assert!(ns >= least_ns, "{:?}: {ns} ns", &words[..words.len().min(4)]);
    }
    // What was subscribed to goes as it has come.
    let (mut bench, mut session) = (bench(), Session::new());
    bench.turns(&mut session, &command(&[&["SUBSCRIBE"][..], &names].concat()));
    let ns = spent(&mut bench, &mut session, &command(&["UNSUBSCRIBE"]));
    assert!(ns >= 200_000, "{ns} ns");
}

/// What `latency-tracking-info-percentiles` says is told of each command.
#[test]
fn percentiles_are_few() {
    let (mut bench, mut session) = (bench(), Session::new());
    for (numbers, reply) in [
        (15, &b"+OK\r\n"[..]),
        (16, b"+OK\r\n"),
        (
            17,
            b"-ERR CONFIG SET failed (possibly related to argument 'latency-tracking-info-percentiles') - latency-tracking-info-percentiles takes 16 numbers at most\r\n",
        ),
    ] {
        let text = vec!["1"; numbers].join(" ");
        let words = ["CONFIG", "SET", "latency-tracking-info-percentiles", &text];
        assert_eq!(
            String::from_utf8_lossy(&bench.turns(&mut session, &command(&words)).0),
            String::from_utf8_lossy(reply)
        );
    }
}
