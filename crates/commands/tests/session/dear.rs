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
        ("stats memory", 10_000),
        ("stats types", 10_000),
        ("stats doctor", 30_000),
        ("stats latency", 20_000),
        ("stats commands", 6_000),
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

/// INFO shows what `latency-tracking-info-percentiles` says for each command.
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

/// Members of a sorted set that takes many steps to copy.
const MEMBERS: usize = 20_000;

fn sorted(bench: &mut Bench, key: &str, members: usize, name_bytes: usize) {
    let mut session = Session::new();
    let names: Vec<String> = (0..members).map(|n| format!("{n:0>name_bytes$}")).collect();
    let scores: Vec<String> = (0..members).map(|n| (n / 3).to_string()).collect();
    for from in (0..members).step_by(250) {
        let mut words = vec!["ZADD", key];
        (from..members.min(from + 250)).for_each(|n| words.extend([scores[n].as_str(), &names[n]]));
        bench.turns(&mut session, &command(&words));
    }
}

#[test]
fn a_part_of_a_sorted_set_is_copied_in_turns_and_charged() {
    let mut bench = bench();
    sorted(&mut bench, "z", MEMBERS, 20);
    let held = |bench: &Bench| bench.worker.store().held_bytes();
    let before = held(&bench);
    let (mut session, input) = (Session::new(), command(&["ZRANGESTORE", "d", "z", "0", "-1"]));
    let (mut at, mut turns, mut most) = (0, 0, 0);
    let reply = loop {
        let (next, reply, consumed) = bench.call(&mut session, &input[at..]);
        at += consumed;
        if next == Next::Receive || !reply.is_empty() {
            break reply;
        }
        let ns = bench.room.work().done_ns();
        assert!(ns <= SLICE_NS + STEP_NS, "{ns} ns in a turn");
        (turns, most) = (turns + 1, most.max(held(&bench) - before));
    };
    assert_eq!(reply, format!(":{MEMBERS}\r\n").as_bytes());
    bench.turns(&mut session, b"");
    assert!(turns >= 6, "{turns} turns");
    assert!(most >= 2 * 20 * MEMBERS as u64 && most <= 4 * 40 * MEMBERS as u64, "{most} bytes are held");
    assert_eq!(held(&bench), before, "what was held is given back");
    for words in [
        &["d", "z", "0", "-1"][..],
        &["d", "z", "100", "-101"],
        &["d", "z", "0", "-1", "REV"],
        &["d", "z", "5", "5000", "BYSCORE", "LIMIT", "10", "14000"],
        &["d", "z", "5000", "5", "BYSCORE", "REV", "LIMIT", "10", "-1"],
        &["d", "z", "(100", "+inf", "BYSCORE"],
        &["z", "z", "1", "-1"],
    ] {
        let request = [&["ZRANGE"][..], &words[1..], &["WITHSCORES"]].concat();
        let expected = bench.turns(&mut session, &command(&request)).0;
        let (_, yields) = bench.turns(&mut session, &command(&[&["ZRANGESTORE"][..], words].concat()));
        assert!(yields >= 5, "{words:?}: {yields} turns");
        let back = if words.contains(&"REV") { &["REV"][..] } else { &[] };
        let all = [&["ZRANGE", words[0], "0", "-1"][..], back, &["WITHSCORES"]].concat();
        let stored = bench.turns(&mut session, &command(&all)).0;
        // Thousands of lines: what differs is not to be shown.
        assert!(stored == expected, "{words:?}");
    }
}

#[test]
fn a_part_of_a_sorted_set_is_stored_as_it_was_at_one_moment() {
    let mut bench = bench();
    sorted(&mut bench, "z", MEMBERS, 20);
    let (mut session, mut other) = (Session::new(), Session::new());
    let request = command(&["ZRANGESTORE", "d", "z", "0", "-1"]);
    for (times, most) in [(1, 1), (1_000, 40)] {
        let (mut next, mut reply) = bench.turn(&mut session, &request);
        let mut writes = 0;
        while next != Next::Receive {
            if writes < times {
                // Both or none are in what is stored.
                let score = (writes + 1).to_string();
                let words = ["ZADD", "z", &score, "first", &score, "last"];
                let (_, said, _) = bench.call(&mut other, &command(&words));
                // It waits while the key is held.
                writes += usize::from(!said.is_empty());
            }
            let more;
            (next, more) = bench.turn(&mut session, b"");
            reply.extend(more);
        }
        assert_eq!(reply, format!(":{}\r\n", MEMBERS + 2).as_bytes());
        // A few times it is begun anew; then it goes on with its keys held.
        assert!(writes <= most, "{times}: {writes}");
        let (scores, _) = bench.turns(&mut session, &command(&["ZMSCORE", "d", "first", "last"]));
        let scores = String::from_utf8(scores).unwrap();
        let lines: Vec<&str> = scores.split("\r\n").collect();
        assert_eq!(lines[2], lines[4], "{scores}");
    }
    // The source goes, or becomes something else.
    assert_eq!(bench.turn(&mut session, &request).0, Next::Yield);
    bench.turn(&mut other, &command(&["DEL", "z"]));
    assert_eq!(bench.turns(&mut session, b"").0, b":0\r\n");
    assert_eq!(bench.turns(&mut session, &command(&["EXISTS", "d"])).0, b":0\r\n");
    sorted(&mut bench, "z", MEMBERS, 20);
    assert_eq!(bench.turn(&mut session, &request).0, Next::Yield);
    set(&mut bench, "z", b"string");
    assert!(bench.turns(&mut session, b"").0.starts_with(b"-WRONGTYPE "));
    // Its database is another.
    bench.turn(&mut other, &command(&["DEL", "z"]));
    sorted(&mut bench, "z", MEMBERS, 20);
    assert_eq!(bench.turn(&mut session, &request).0, Next::Yield);
    bench.turn(&mut other, &command(&["SWAPDB", "0", "1"]));
    assert_eq!(bench.turns(&mut session, b"").0, b":0\r\n");
    assert_eq!(bench.turns(&mut other, &command(&["DBSIZE"])).0, b":0\r\n");
}

#[test]
fn a_part_of_a_sorted_set_that_is_too_large_to_copy_is_refused() {
    let mut bench = bench();
    sorted(&mut bench, "z", 60_000, 150);
    let before = bench.worker.store().held_bytes();
    let mut session = Session::new();
    let store = command(&["ZRANGESTORE", "d", "z", "0", "-1"]);
    let exec = [command(&["MULTI"]), store.clone(), command(&["EXEC"])].concat();
    for input in [store, exec] {
        let (reply, _) = bench.turns(&mut session, &input);
        let reply = String::from_utf8(reply).unwrap();
        assert!(reply.contains("-OOM ") || reply.contains("-EXECABORT "), "{reply}");
        assert_eq!(bench.turns(&mut session, &command(&["EXISTS", "d"])).0, b":0\r\n");
        assert_eq!(bench.worker.store().held_bytes(), before);
    }
}

#[test]
fn databases_with_very_many_watched_keys_are_not_swapped_and_what_fewer_take_is_spent() {
    const MOST: usize = 4096;
    const REFUSED: &str = "-ERR too many keys of these databases are watched or waited for\r\n";
    const DISCARDED: &str = "+OK\r\n+QUEUED\r\n+QUEUED\r\n-EXECABORT Transaction discarded: ";
    let mut bench = bench();
    let says = |bench: &mut Bench, session: &mut Session, commands: &[&[&str]]| {
        let input: Vec<u8> = commands.iter().flat_map(|words| command(words)).collect();
        String::from_utf8(bench.turns(session, &input).0).unwrap()
    };
    let names: Vec<String> = (0..MOST).map(|n| format!("w{n}")).collect();
    let watch: Vec<&str> = std::iter::once("WATCH").chain(names.iter().map(String::as_str)).collect();
    let (mut watches, mut one_more, mut swaps) = (Session::new(), Session::new(), Session::new());
    assert_eq!(says(&mut bench, &mut watches, &[&watch]), "+OK\r\n");
    let swap = ["SWAPDB", "0", "1"];
    let ns = spent(&mut bench, &mut swaps, &command(&swap));
    assert!((5_000_000..6_000_000).contains(&ns), "{ns}");
    // Two in one EXEC are more than one may take.
    let said = says(&mut bench, &mut swaps, &[&["MULTI"], &swap, &swap, &["EXEC"]]);
    assert!(said.starts_with(DISCARDED), "{said}");
    let said = says(&mut bench, &mut swaps, &[&["MULTI"], &["SET", "k", "v"], &swap, &["EXEC"]]);
    assert_eq!(said, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n");
    assert_eq!(says(&mut bench, &mut swaps, &[&["SELECT", "1"], &["DEL", "k"]]), "+OK\r\n:1\r\n");
    // One more, in the other database, is one too many.
    assert_eq!(says(&mut bench, &mut one_more, &[&["SELECT", "1"], &["WATCH", "w0"]]), "+OK\r\n+OK\r\n");
    assert_eq!(says(&mut bench, &mut swaps, &[&swap]), REFUSED);
    let said = says(&mut bench, &mut swaps, &[&["MULTI"], &["SET", "k", "v"], &swap, &["EXEC"]]);
    assert!(said.starts_with(DISCARDED), "{said}");
    assert_eq!(says(&mut bench, &mut swaps, &[&["EXISTS", "k"]]), ":0\r\n");
    let others: [&[&str]; 3] = [&["SWAPDB", "2", "3"], &["SWAPDB", "1", "2"], &["SWAPDB", "0", "0"]];
    assert_eq!(says(&mut bench, &mut swaps, &others), "+OK\r\n+OK\r\n+OK\r\n");
    assert_eq!(says(&mut bench, &mut one_more, &[&["UNWATCH"]]), "+OK\r\n");
    assert_eq!(says(&mut bench, &mut swaps, &[&swap]), "+OK\r\n");
}
