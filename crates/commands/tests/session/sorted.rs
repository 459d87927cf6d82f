//! Commands on large sorted sets, which lie in two trees: all of them, in steps where they ask for much, and as one where
//! they are in a transaction.

use crate::{Bench, bench};
use larder_commands::{Next, Session};
use larder_testkit::redis::frame::Frame;

/// Members of a large one.
const MEMBERS: usize = 30_000;

/// The score of the nth member: some are alike.
fn score(n: usize) -> usize {
    n * 7_919 % 20_011
}

impl Bench {
    /// A large sorted set.
    fn scored(&mut self, name: &str, members: std::ops::Range<usize>) {
        for from in members.clone().step_by(1_000) {
            let pairs: String =
                (from..members.end.min(from + 1_000)).map(|n| format!(" {} m{n:05}", score(n))).collect();
            let reply = self.reply(&format!("ZADD {name}{pairs}"));
            assert!(reply.starts_with(b":"), "{}", String::from_utf8_lossy(&reply));
        }
    }

    fn said(&mut self, words: &str) -> String {
        String::from_utf8_lossy(&self.reply(words)).into_owned()
    }
}

/// Members of the large one in order, with their scores.
fn ranked(members: std::ops::Range<usize>) -> Vec<(usize, String)> {
    let mut all: Vec<_> = members.map(|n| (score(n), format!("m{n:05}"))).collect();
    all.sort();
    all
}

/// The strings of a reply.
fn texts(reply: &[u8]) -> Vec<String> {
    let (frame, bytes) = Frame::read(reply).expect("a reply").expect("all of it");
    assert_eq!(bytes, reply.len());
    let text = |frame: &Frame| String::from_utf8(frame.body.clone().expect("a string")).expect("text");
    frame.inside.iter().map(text).collect()
}

/// As a reply has them, in RESP2.
fn flat(members: &[(usize, String)]) -> Vec<String> {
    members.iter().flat_map(|(score, name)| [name.clone(), score.to_string()]).collect()
}

fn names(members: &[(usize, String)]) -> Vec<String> {
    members.iter().map(|(_, name)| name.clone()).collect()
}

#[test]
fn a_large_sorted_set_is_asked_in_every_way() {
    let mut bench = bench();
    bench.scored("z", 0..MEMBERS);
    let all = ranked(0..MEMBERS);
    assert_eq!(bench.said("ZCARD z"), format!(":{MEMBERS}\r\n"));
    assert_eq!(bench.said("OBJECT ENCODING z"), "$8\r\nskiplist\r\n");
    for (rank, (score, name)) in all.iter().enumerate().step_by(977) {
        assert_eq!(bench.said(&format!("ZRANK z {name}")), format!(":{rank}\r\n"));
        assert_eq!(bench.said(&format!("ZREVRANK z {name}")), format!(":{}\r\n", MEMBERS - 1 - rank));
        let text = score.to_string();
        assert_eq!(bench.said(&format!("ZSCORE z {name}")), format!("${}\r\n{text}\r\n", text.len()));
        let below = all.partition_point(|other| other.0 < *score);
        let upto = all.partition_point(|other| other.0 <= *score);
        assert_eq!(bench.said(&format!("ZCOUNT z -inf ({score}")), format!(":{below}\r\n"));
        assert_eq!(bench.said(&format!("ZCOUNT z {score} {score}")), format!(":{}\r\n", upto - below));
        let some = &all[rank..MEMBERS.min(rank + 10)];
        let reply = bench.reply(&format!("ZRANGE z {rank} {} WITHSCORES", rank + 9));
        assert_eq!(texts(&reply), flat(some));
        let reply = bench.reply(&format!("ZRANGEBYSCORE z {score} +inf LIMIT 0 5"));
        assert_eq!(texts(&reply), names(&all[below..MEMBERS.min(below + 5)]));
        let mut back = names(&all[upto.saturating_sub(5)..upto]);
        back.reverse();
        let reply = bench.reply(&format!("ZREVRANGEBYSCORE z {score} -inf LIMIT 0 5"));
        assert_eq!(texts(&reply), back);
    }
    assert_eq!(bench.said("ZSCORE z nosuch"), "$-1\r\n");
    assert_eq!(bench.said("ZRANK z nosuch"), "$-1\r\n");
    assert_eq!(texts(&bench.reply("ZMSCORE z m00000 m00001")), ["0", "7919"]);
    // All of it, in steps.
    let held = bench.worker.store().held_bytes();
    let (reply, turns) = bench.bounded("ZRANGE z 0 -1");
    assert!(turns > 2 && texts(&reply) == names(&all), "{turns}");
    let (reply, turns) = bench.bounded("ZRANGE z 0 -1 WITHSCORES");
    assert!(turns > 2 && texts(&reply) == flat(&all), "{turns}");
    let mut back: Vec<_> = all.clone();
    back.reverse();
    let (reply, turns) = bench.bounded("ZREVRANGE z 0 -1 WITHSCORES");
    assert!(turns > 2 && texts(&reply) == flat(&back), "{turns}");
    let (reply, turns) = bench.bounded("ZRANGE z (5000 (1000 BYSCORE REV LIMIT 100 9000");
    let some: Vec<_> = back.iter().filter(|(score, _)| 1_000 < *score && *score < 5_000).cloned().collect();
    assert_eq!(texts(&reply), names(&some[100..]));
    assert!(turns > 0);
    assert_eq!(bench.worker.store().held_bytes(), held);
    for count in [100, 5_000] {
        let (reply, _) = bench.bounded(&format!("ZRANDMEMBER z {count}"));
        let mut some = texts(&reply);
        some.sort();
        some.dedup();
        assert_eq!(some.len(), count);
    }
    // In a transaction as one.
    let sent = [bench.asked("MULTI"), bench.asked("ZRANGE z 0 -1"), bench.asked("EXEC")].concat();
    let reply = bench.turns(&mut Session::new(), &sent).0;
    let (_, rest) = reply.split_at(b"+OK\r\n+QUEUED\r\n*1\r\n".len());
    assert!(texts(rest) == names(&all));
}

#[test]
fn a_large_sorted_set_is_gone_through_by_cursors() {
    for alike in [false, true] {
        let mut bench = bench();
        if alike {
            for from in (0..MEMBERS).step_by(1_000) {
                let pairs: String = (from..from + 1_000).map(|n| format!(" 1 m{n:05}")).collect();
                bench.reply(&format!("ZADD z{pairs}"));
            }
            assert_eq!(bench.said("ZLEXCOUNT z [m10000 (m20000"), ":10000\r\n");
            let reply = bench.reply("ZRANGEBYLEX z (m29995 + LIMIT 1 2");
            assert_eq!(texts(&reply), ["m29997", "m29998"]);
        } else {
            bench.scored("z", 0..MEMBERS);
        }
        let (mut cursor, mut met, mut calls) = ("0".to_owned(), Vec::new(), 0);
        loop {
            let (reply, _) = bench.bounded(&format!("ZSCAN z {cursor} COUNT 200"));
            let (frame, _) = Frame::read(&reply).expect("a reply").expect("all of it");
            cursor = String::from_utf8(frame.inside[0].body.clone().expect("a cursor")).expect("text");
            let pairs = frame.inside[1].inside.chunks(2);
            met.extend(
                pairs.map(|pair| String::from_utf8(pair[0].body.clone().expect("text")).expect("text")),
            );
            calls += 1;
            if cursor == "0" {
                break;
            }
        }
        met.sort();
        assert!(met.into_iter().eq((0..MEMBERS).map(|n| format!("m{n:05}"))));
        assert!(calls > 50, "{calls}");
        let found = bench.said("ZSCAN z 0 MATCH nosuch* COUNT 100000");
        assert!(found.ends_with("*0\r\n"), "{found}");
    }
}

#[test]
fn members_of_a_large_sorted_set_are_taken_out_in_steps() {
    let mut bench = bench();
    bench.scored("z", 0..MEMBERS);
    let mut all = ranked(0..MEMBERS);
    let (reply, turns) = bench.bounded("ZPOPMIN z 3000");
    assert_eq!(texts(&reply), flat(&all[..3_000]));
    assert!(turns > 2, "{turns}");
    all.drain(..3_000);
    let (reply, _) = bench.bounded("ZPOPMAX z 1000");
    let mut back = all.split_off(all.len() - 1_000);
    back.reverse();
    assert_eq!(texts(&reply), flat(&back));
    let (reply, turns) = bench.bounded("ZREMRANGEBYRANK z 10 2009");
    assert_eq!((reply, turns > 2), (b":2000\r\n".to_vec(), true));
    all.drain(10..2_010);
    let (reply, turns) = bench.bounded("ZREMRANGEBYSCORE z (9000 12000");
    let before = all.len();
    all.retain(|(score, _)| *score <= 9_000 || *score > 12_000);
    assert_eq!((reply, turns > 2), (format!(":{}\r\n", before - all.len()).into_bytes(), true));
    assert_eq!(texts(&bench.reply("ZRANGE z 0 -1")), names(&all));
    // By name, many at once; and by rank from the end.
    let gone: String = all.iter().step_by(3).map(|(_, name)| format!(" {name}")).collect();
    let (reply, turns) = bench.bounded(&format!("ZREM z{gone}"));
    assert_eq!((reply, turns > 2), (format!(":{}\r\n", all.len().div_ceil(3)).into_bytes(), true));
    let mut n = 0;
    all.retain(|_| {
        n += 1;
        (n - 1) % 3 != 0
    });
    assert_eq!(bench.said("ZREMRANGEBYRANK z -300 -1"), ":300\r\n");
    all.truncate(all.len() - 300);
    assert_eq!(texts(&bench.reply("ZRANGE z 0 -1 WITHSCORES")), flat(&all));
    // ZMPOP goes in steps as well, and in a transaction all are one step.
    let reply = bench.reply("ZMPOP 1 z MIN COUNT 400");
    assert!(String::from_utf8_lossy(&reply).contains(&all[399].1));
    all.drain(..400);
    let sent =
        ["MULTI", "ZREMRANGEBYSCORE z -inf 5000", "ZPOPMAX z 500", "EXEC"].map(|words| bench.asked(words));
    let reply = bench.turns(&mut Session::new(), &sent.concat()).0;
    assert!(reply.starts_with(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n"));
    let before = all.len();
    all.retain(|(score, _)| *score > 5_000);
    assert!(before > all.len() + 500);
    all.truncate(all.len() - 500);
    assert_eq!(texts(&bench.reply("ZRANGE z 0 -1 WITHSCORES")), flat(&all));
    // All of it goes with its root.
    let (reply, turns) = bench.bounded("ZREMRANGEBYSCORE z -inf +inf");
    assert_eq!((reply, turns), (format!(":{}\r\n", all.len()).into_bytes(), 1));
    assert_eq!(bench.said("EXISTS z"), ":0\r\n");
}

#[test]
fn what_others_put_in_the_range_meanwhile_does_not_keep_a_removal_going() {
    let mut bench = bench();
    bench.scored("z", 0..MEMBERS);
    let mut session = Session::new();
    let sent = bench.asked("ZREMRANGEBYSCORE z 5 +inf");
    let mut next = bench.turn(&mut session, &sent).0;
    let mut turns = 0;
    let mut reply = Vec::new();
    while next != Next::Receive {
        turns += 1;
        let pairs: String = (0..400).map(|n| format!(" 7 new{turns}-{n}")).collect();
        bench.reply(&format!("ZADD z{pairs}"));
        (next, reply) = bench.turn(&mut session, b"");
    }
    let gone = ranked(0..MEMBERS).iter().filter(|(score, _)| *score >= 5).count();
    assert!(turns > 20, "{turns}");
    assert_eq!(String::from_utf8_lossy(&reply), format!(":{gone}\r\n"));
}

#[test]
fn large_sorted_sets_are_put_together_stored_copied_and_renamed() {
    let mut bench = bench();
    bench.scored("a", 0..20_000);
    bench.scored("b", 10_000..MEMBERS);
    let sums = |members: std::ops::Range<usize>| {
        let both = 10_000..20_000;
        let mut all: Vec<_> =
            members.map(|n| (score(n) * if both.contains(&n) { 2 } else { 1 }, format!("m{n:05}"))).collect();
        all.sort();
        all
    };
    let (reply, _) = bench.bounded("ZUNION 2 a b WITHSCORES");
    assert_eq!(texts(&reply), flat(&sums(0..MEMBERS)));
    let (reply, _) = bench.bounded("ZINTER 2 a b WITHSCORES");
    assert_eq!(texts(&reply), flat(&sums(10_000..20_000)));
    let (reply, _) = bench.bounded("ZDIFF 2 a b WITHSCORES");
    assert_eq!(texts(&reply), flat(&ranked(0..10_000)));
    for (words, expected) in [
        ("ZUNIONSTORE u 2 a b", sums(0..MEMBERS)),
        ("ZINTERSTORE u 2 a b", sums(10_000..20_000)),
        ("ZDIFFSTORE u 2 a b", ranked(0..10_000)),
        ("ZRANGESTORE u a 100 -1", ranked(0..20_000)[100..].to_vec()),
        ("ZRANGESTORE u a 5000 7000 BYSCORE", {
            let within = |(score, _): &(usize, String)| 5_000 <= *score && *score <= 7_000;
            ranked(0..20_000).into_iter().filter(within).collect()
        }),
    ] {
        assert_eq!(bench.said(words), format!(":{}\r\n", expected.len()), "{words}");
        assert_eq!(texts(&bench.reply("ZRANGE u 0 -1 WITHSCORES")), flat(&expected), "{words}");
        let (score, name) = &expected[expected.len() / 2];
        let score = score.to_string();
        assert_eq!(bench.said(&format!("ZSCORE u {name}")), format!("${}\r\n{score}\r\n", score.len()));
    }
    // Sets of the same kind.
    bench.add("s", (0..20_000).map(|n| format!("m{n:05}")));
    bench.add("t", (10_000..MEMBERS).map(|n| format!("m{n:05}")));
    for (words, members) in [
        ("SUNIONSTORE v s t", 0..MEMBERS),
        ("SINTERSTORE v s t", 10_000..20_000),
        ("SDIFFSTORE v s t", 0..10_000),
    ] {
        assert_eq!(bench.said(words), format!(":{}\r\n", members.len()), "{words}");
        let mut all = texts(&bench.reply("SMEMBERS v"));
        all.sort();
        assert!(all.into_iter().eq(members.map(|n| format!("m{n:05}"))), "{words}");
    }
    let all = ranked(0..20_000);
    for (words, expected) in [
        ("COPY a c", ":1\r\n"),
        ("ZCARD c", ":20000\r\n"),
        ("RENAME a d", "+OK\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("ZRANK d m00005", ""),
        ("ZADD c XX CH 1 m00000", ":1\r\n"),
        ("ZCARD d", ":20000\r\n"),
    ] {
        let said = bench.said(words);
        assert!(said == expected || expected.is_empty(), "{words}: {said}");
    }
    assert_eq!(texts(&bench.reply("ZRANGE d 0 -1")), names(&all));
    assert_eq!(bench.said("ZSCORE d m00000"), "$1\r\n0\r\n");
}

#[test]
fn a_member_is_as_long_as_a_chunk_lets_it() {
    let mut bench = bench();
    let long = "x".repeat(16_300);
    assert_eq!(bench.said(&format!("ZADD z 1 {long} 2 short")), ":2\r\n");
    assert_eq!(bench.said(&format!("ZRANK z {long}")), ":0\r\n");
    assert_eq!(bench.said(&format!("ZINCRBY z 5 {long}")), "$1\r\n6\r\n");
    assert_eq!(bench.said(&format!("ZRANK z {long}")), ":1\r\n");
    let longer = "y".repeat((1 << 20) + 1);
    let refused = bench.said(&format!("ZADD z 1 {longer}"));
    assert!(refused.starts_with("-ERR collection exceeds"), "{refused}");
    let pairs: String = (0..600).map(|n| format!(" 1 m{n}")).collect();
    let refused = bench.said(&format!("ZADD z{pairs} 1 {longer}"));
    assert!(refused.starts_with("-ERR collection exceeds"), "{refused}");
    assert_eq!(bench.said("ZCARD z"), ":2\r\n");
}

/// Also where all of it is done in the first of its steps.
#[test]
fn what_is_stored_of_a_sorted_set_is_told_once() {
    let mut bench = bench();
    bench.scored("z", 0..6_000);
    bench.reply("CONFIG SET notify-keyspace-events EA");
    let mut listens = Session::new();
    let sent = [bench.asked("HELLO 3"), bench.asked("SUBSCRIBE __keyevent@0__:zrangestore")].concat();
    bench.turns(&mut listens, &sent);
    let ping = bench.asked("PING");
    for members in (1_800..2_600).step_by(100).chain([6_000]) {
        let sent = bench.asked(&format!("ZRANGESTORE d z 0 {}", members - 1));
        assert_eq!(bench.turns(&mut Session::new(), &sent).0, format!(":{members}\r\n").as_bytes());
        let told = [bench.turns(&mut listens, &ping).0, bench.turns(&mut listens, &ping).0].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        assert_eq!(told.matches("__keyevent@0__:zrangestore\r\n").count(), 1, "{members}: {told}");
    }
}
