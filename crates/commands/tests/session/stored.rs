//! What is made of large collections and stored: it is made in steps, and is as if it had been made at once.

use larder_commands::{Next, Session};

use crate::slices::turns;
use crate::survey::command;
use crate::{Bench, bench};

/// Elements of a source.
const ELEMENTS: usize = 12_000;

/// Sets, sorted sets, places and a list, two that share half of what they have where that matters.
fn sources() -> Bench {
    let mut bench = bench();
    let mut session = Session::new();
    let mut add = |bench: &mut Bench, name: &str, key: &str, each: &dyn Fn(usize) -> Vec<String>| {
        for from in (0..ELEMENTS).step_by(200) {
            let words: Vec<String> = (from..from + 200).flat_map(each).collect();
            let words: Vec<&str> = [name, key].into_iter().chain(words.iter().map(String::as_str)).collect();
            let (reply, _) = bench.turns(&mut session, &command(&words));
            assert!(reply.starts_with(b":"), "{}", String::from_utf8_lossy(&reply));
        }
    };
    let member = |n: usize| format!("member {n:05}");
    for (one, from) in [("1", 0), ("2", ELEMENTS / 2)] {
        add(&mut bench, "SADD", &format!("s{one}"), &|n| vec![member(from + n)]);
        // Many have one score.
        add(&mut bench, "ZADD", &format!("z{one}"), &|n| vec![(n / 100).to_string(), member(from + n)]);
    }
    add(&mut bench, "RPUSH", "l", &|n| vec![(n * 7919 % ELEMENTS).to_string()]);
    add(&mut bench, "GEOADD", "g", &|n| {
        let degrees = |n: usize| format!("{}.{:02}", n / 100, n % 100);
        vec![degrees(n % 1000), degrees(n / 10), member(n)]
    });
    bench
}

/// The strings of a reply, in order.
fn strings(reply: &[u8]) -> Vec<&[u8]> {
    reply.split(|byte| *byte == b'\n').skip(2).step_by(2).collect()
}

/// What is stored, how it is read, and what it is to be; where that has no order it is sorted.
type Case = (&'static [&'static str], &'static [&'static str], &'static [&'static str], bool);

#[test]
fn what_is_stored_of_large_collections_is_made_in_steps() {
    let mut bench = sources();
    let mut session = Session::new();
    let by_score = &["ZRANGE", "d", "0", "-1", "WITHSCORES"][..];
    let cases: &[Case] = &[
        (&["SUNIONSTORE", "d", "s1", "s2"], &["SMEMBERS", "d"], &["SUNION", "s1", "s2"], true),
        (&["SINTERSTORE", "d", "s1", "s2"], &["SMEMBERS", "d"], &["SINTER", "s1", "s2"], true),
        (&["SDIFFSTORE", "s2", "s1", "s2"], &["SMEMBERS", "s2"], &["SDIFF", "s1", "s2"], true),
        (&["ZUNIONSTORE", "d", "2", "z1", "z2"], by_score, &["ZUNION", "2", "z1", "z2", "WITHSCORES"], false),
        (&["ZINTERSTORE", "d", "2", "z1", "z2"], by_score, &["ZINTER", "2", "z1", "z2", "WITHSCORES"], false),
        (&["ZDIFFSTORE", "d", "2", "z1", "z2"], by_score, &["ZDIFF", "2", "z1", "z2", "WITHSCORES"], false),
        (&["ZRANGESTORE", "d", "z1", "9", "-9"], by_score, &["ZRANGE", "z1", "9", "-9", "WITHSCORES"], false),
        (&["SORT", "l", "STORE", "d"], &["LRANGE", "d", "0", "-1"], &["SORT", "l"], false),
        (
            &["SORT", "l", "DESC", "LIMIT", "10", "9000", "STORE", "l"],
            &["LRANGE", "l", "0", "-1"],
            &["SORT", "l", "DESC", "LIMIT", "10", "9000"],
            false,
        ),
        (
            &["SORT", "l", "BY", "nosort", "GET", "#", "GET", "none*", "STORE", "d"],
            &["LRANGE", "d", "0", "-1"],
            &["SORT", "l", "BY", "nosort", "GET", "#", "GET", "none*"],
            false,
        ),
        (
            &["GEOSEARCHSTORE", "d", "g", "FROMLONLAT", "5", "6", "BYRADIUS", "2000", "km"],
            &["ZRANGE", "d", "0", "-1"],
            &["GEOSEARCH", "g", "FROMLONLAT", "5", "6", "BYRADIUS", "2000", "km"],
            true,
        ),
    ];
    for (stores, reads, expects, any_order) in cases {
        let (expected, _) = bench.turns(&mut session, &command(expects));
        let (reply, turns) = turns(&mut bench, &mut session, &command(stores));
        assert!(turns >= 3, "{stores:?}: {turns} turns");
        let (read, _) = bench.turns(&mut session, &command(reads));
        let null_as_nothing =
            String::from_utf8_lossy(&expected).replace("$-1\r\n", "$0\r\n\r\n").into_bytes();
        let (mut read, mut expected) = (strings(&read), strings(&null_as_nothing));
        if *any_order {
            read.sort_unstable();
            expected.sort_unstable();
        }
        // Thousands of lines: what differs is not to be shown.
        assert!(read == expected && read.len() > 3_000, "{stores:?}: {} {}", read.len(), expected.len());
        let entries = if reads.contains(&"WITHSCORES") { read.len() / 2 } else { read.len() };
        assert_eq!(reply, format!(":{entries}\r\n").as_bytes(), "{stores:?}");
        if reads[0] == "ZRANGE" {
            // The other tree has them, too.
            for nth in [0, entries / 2, entries - 1] {
                let rank = nth.to_string();
                let (member, _) = bench.turns(&mut session, &command(&["ZRANGE", "d", &rank, &rank]));
                let member = String::from_utf8(member).unwrap();
                let member = member.split("\r\n").nth(2).unwrap();
                let (found, _) = bench.turns(&mut session, &command(&["ZRANK", "d", member]));
                assert_eq!(found, format!(":{nth}\r\n").as_bytes(), "{stores:?} {member}");
            }
        }
    }
}

/// Others write to a source at any step: what is stored is of one moment. They delete it, or swap databases.
#[test]
fn what_is_stored_is_of_one_moment_whatever_others_do_while_it_is_made() {
    for (stores, writes, score) in [
        (&["SUNIONSTORE", "d", "s1", "s2"][..], &["SADD", "s1", "first", "last"][..], None),
        (
            &["ZUNIONSTORE", "d", "2", "z1", "z2"],
            &["ZADD", "z1", "-1", "first", "1e9", "last"],
            Some("ZMSCORE"),
        ),
        (
            &["ZRANGESTORE", "d", "z1", "0", "-1"],
            &["ZADD", "z1", "-1", "first", "1e9", "last"],
            Some("ZMSCORE"),
        ),
    ] {
        let mut bench = sources();
        let (mut session, mut other) = (Session::new(), Session::new());
        let (_, steps) = bench.turns(&mut session, &command(stores));
        let reads = [score.unwrap_or("SMISMEMBER"), "d", "first", "last"];
        for at in (0..steps).step_by(3) {
            bench.turns(&mut other, &command(&["DEL", "d"]));
            bench.turns(
                &mut other,
                &command(&[if score.is_some() { "ZREM" } else { "SREM" }, writes[1], "first", "last"]),
            );
            let (mut next, mut reply) = bench.turn(&mut session, &command(stores));
            for step in 0.. {
                if next == Next::Receive {
                    break;
                }
                if step == at {
                    bench.turns(&mut other, &command(writes));
                }
                let more;
                (next, more) = bench.turn(&mut session, b"");
                reply.extend(more);
            }
            assert!(reply.starts_with(b":"), "{stores:?}");
            let (there, _) = bench.turns(&mut other, &command(&reads));
            let there = String::from_utf8(there).unwrap();
            let there: Vec<&str> = there.split("\r\n").collect();
            match score {
                None => assert!(
                    matches!(there[1..3], [":1", ":1"] | [":0", ":0"]),
                    "{stores:?} at {at}: {there:?}"
                ),
                Some(_) => {
                    let both = there.len() >= 5 && there[2] == "-1" && there[4] == "1000000000";
                    assert!(both || there[1..3] == ["$-1", "$-1"], "{stores:?} at {at}: {there:?}");
                }
            }
        }
        // What was made for nothing is given back.
        let mut used = [0; 2];
        for (times, used) in [5, 20].into_iter().zip(&mut used) {
            for _ in 0..times {
                let mut leaves = Session::new();
                bench.turn(&mut leaves, &command(stores));
                (0..steps * 2 / 3).for_each(|_| drop(bench.turn(&mut leaves, b"")));
            }
            while bench.worker.enter(crate::START).maintain() {}
            *used = bench.worker.store().used_bytes();
        }
        assert!(used[1] <= used[0], "{stores:?}: {used:?}");
    }
}
