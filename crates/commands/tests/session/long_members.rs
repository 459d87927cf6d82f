//! Members of sets and sorted sets that are longer than a leaf, by every command that has to do with one.

use crate::apart::{array, bulk, is_dumped_restored_and_told_apart, job};
use crate::long_scans::is_replied_at_once;
use crate::named::exec;
use crate::payloads::texts;
use crate::values::{is, large_bench};
use crate::{Bench, bench};
use larder_commands::{Next, Session};

pub(crate) const NONE: &str = "*2\r\n$1\r\n0\r\n*0\r\n";

/// What SSCAN or ZSCAN replies of a set that it has come through.
pub(crate) fn scanned(members: &[&str]) -> String {
    format!("*2\r\n{}{}", bulk("0"), array(members))
}

#[test]
fn long_members_are_put_in_asked_for_moved_and_taken_out() {
    let mut bench = bench();
    // A worker that has run a script holds room for the keys that it names.
    bench.reply("EVAL return{redis.call('exists','s')} 0");
    let held = bench.worker.store().held_bytes();
    for bytes in [16_300, 16_355, 16_356, 16_357, 16_400, 17_000, 20_000, 100_000, 400_000, 1 << 20] {
        // Of one length, and alike but for the last byte.
        let (job, other) = (job(bytes), job(bytes - 1) + "!");
        let bench = &mut bench;
        is(bench, &format!("SADD s {job} {job}"), ":1\r\n");
        is(bench, &format!("SADD s {job}"), ":0\r\n");
        is(bench, &format!("SISMEMBER s {job}"), ":1\r\n");
        is(bench, &format!("SISMEMBER s {other}"), ":0\r\n");
        is(bench, "SMEMBERS s", &array(&[&job]));
        is(bench, "SADD s a 12", ":2\r\n");
        is(bench, &format!("SMISMEMBER s {job} none a {other} 12"), "*5\r\n:1\r\n:0\r\n:1\r\n:0\r\n:1\r\n");
        is(bench, "SCARD s", ":3\r\n");
        is(bench, &format!("SREM s a {other} 12"), ":2\r\n");
        is(bench, "SRANDMEMBER s", &bulk(&job));
        is(bench, "SRANDMEMBER s 5", &array(&[&job]));
        is(bench, "SRANDMEMBER s -2", &array(&[&job, &job]));
        is(bench, "SSCAN s 0", &scanned(&[&job]));
        is(bench, "SSCAN s 0 MATCH 0,1,*", &scanned(&[&job]));
        is(bench, "SSCAN s 0 MATCH *,99,* COUNT 100", &scanned(&[&job]));
        is(bench, "SSCAN s 0 MATCH 1*", NONE);
        is(bench, "SSCAN s 0 MATCH *!", NONE);
        is(bench, "OBJECT ENCODING s", &bulk("hashtable"));
        is(bench, "COPY s copied", ":1\r\n");
        is(bench, "RENAME copied m", "+OK\r\n");
        is(bench, &format!("SMOVE s t {other}"), ":0\r\n");
        is(bench, &format!("SMOVE s t {job}"), ":1\r\n");
        is(bench, &format!("SMOVE s t {job}"), ":0\r\n");
        is(bench, "EXISTS s", ":0\r\n");
        is(bench, &format!("SMOVE m t {job}"), ":1\r\n");
        is(bench, "EXISTS m", ":0\r\n");
        is(bench, "SMEMBERS t", &array(&[&job]));
        is(bench, &format!("SADD t {other}"), ":1\r\n");
        is(bench, &format!("SADD m {job} b"), ":2\r\n");
        is(bench, "SINTER t m", &array(&[&job]));
        is(bench, "SINTER m t", &array(&[&job]));
        is(bench, "SINTERCARD 2 t m", ":1\r\n");
        is(bench, "SDIFF t m", &array(&[&other]));
        is(bench, "SDIFF t m m t", "*0\r\n");
        is(bench, "SINTERSTORE d t m", ":1\r\n");
        is(bench, "SMEMBERS d", &array(&[&job]));
        is(bench, "SDIFFSTORE d t m", ":1\r\n");
        is(bench, "SMEMBERS d", &array(&[&other]));
        is(bench, "SUNIONSTORE d t m", ":3\r\n");
        is(bench, &format!("SMISMEMBER d {job} {other} b c"), "*4\r\n:1\r\n:1\r\n:1\r\n:0\r\n");
        let mut union = texts(&bench.reply("SUNION t m nosuch"));
        let mut members = texts(&bench.reply("SMEMBERS d"));
        union.sort_unstable();
        members.sort_unstable();
        assert!(union == members && union.len() == 3, "{}", union.len());
        is(bench, "ZINTER 2 t m", &array(&[&job]));
        is(bench, "SREM t nosuch", ":0\r\n");
        is(bench, &format!("SREM t {other} nosuch"), ":1\r\n");
        is(bench, "SORT t BY nosort", &array(&[&job]));
        is(bench, "SORT t BY nosort STORE l", ":1\r\n");
        is(bench, "LRANGE l 0 -1", &array(&[&job]));
        is(bench, "EVAL return{redis.call('smembers','t'),redis.call('spop','t')} 0", &{
            format!("*2\r\n{}{}", array(&[&job]), bulk(&job))
        });
        is(bench, "EXISTS t", ":0\r\n");
        is(bench, "SREM d b", ":1\r\n");
        is(bench, &format!("SREM d {other}"), ":1\r\n");
        is(bench, "SPOP d 5", &array(&[&job]));
        is(bench, "EXISTS d", ":0\r\n");
        is(bench, "SREM m b", ":1\r\n");
        is(bench, "SPOP m", &bulk(&job));
        is(bench, "SPOP m", "$-1\r\n");
        bench.reply("FLUSHALL");
    }
    // Room for the replies of what a script calls is kept between runs.
    assert!(bench.worker.store().held_bytes() <= held + (16 << 10));
    bench.check();
}

#[test]
fn long_members_are_put_in_and_taken_out_in_exec() {
    let mut bench = large_bench();
    for bytes in [16_357, 20_000, 400_000, 1 << 20] {
        let (job, other) = (job(bytes), job(bytes - 1) + "!");
        let [add, asks, remove] =
            [format!("SADD s {job} {other}"), format!("SISMEMBER s {job}"), format!("SREM s {other}")];
        let commands = [&*add, &*asks, &*remove, "SRANDMEMBER s", "SMEMBERS s", "SSCAN s 0", "SPOP s 2"];
        let reply = exec(&mut bench, &commands);
        let (one, all, scanned) = (bulk(&job), array(&[&job]), scanned(&[&job]));
        let wanted = format!("*7\r\n:2\r\n:1\r\n:1\r\n{one}{all}{scanned}{all}");
        assert!(reply == wanted, "{bytes}: {}", &reply[..60]);
        is(&mut bench, "EXISTS s", ":0\r\n");
    }
    bench.check();
}

/// EXEC weighs that what is looked for among members of one score is compared with some of them.
#[test]
fn exec_weighs_that_long_members_are_compared() {
    let mut bench = large_bench();
    let job = job(1 << 20);
    is(&mut bench, &format!("ZADD z 1 {job} 1 a"), ":2\r\n");
    let (rank, between) = (format!("ZRANK z {job}"), format!("ZLEXCOUNT z [{job} +"));
    let score = format!("ZSCORE z {job}");
    for (command, times, answer) in
        [(&rank, 3, Some(":0\r\n")), (&rank, 4, None), (&between, 3, Some(":2\r\n")), (&between, 4, None)]
    {
        let reply = exec(&mut bench, &vec![command.as_str(); times]);
        match answer {
            Some(answer) => assert_eq!(reply, format!("*{times}\r\n{}", answer.repeat(times))),
            None => assert!(reply.starts_with("-EXECABORT "), "{} {times}", &command[..6]),
        }
    }
    // It is compared with one that is as long.
    assert_eq!(exec(&mut bench, &[score.as_str(); 4]), format!("*4\r\n{}", bulk("1").repeat(4)));
    bench.check();
}

/// Up to the limit a member is taken, at once and in steps, and above it refused before anything is done.
#[test]
fn a_member_has_four_mebibytes_and_no_byte_more() {
    let mut bench = large_bench();
    let too_large = "-ERR collection exceeds maximum allowed size (16384 bytes of an element with its key, of a list, a set, a value or an entry of a stream 4 MiB, of a sorted set 1 MiB; an element of a list or a value that comes last 64 MiB)\r\n";
    let most = 4 << 20;
    for (bytes, fits) in [(most - 1, true), (most, true), (most + 1, false)] {
        let job = job(bytes);
        let answer = |fits: bool| if fits { ":1\r\n" } else { ":0\r\n" };
        is(&mut bench, &format!("SADD s {job}"), if fits { ":1\r\n" } else { too_large });
        is(&mut bench, "EXISTS s", answer(fits));
        is(&mut bench, &format!("SISMEMBER s {job}"), answer(fits));
        is(&mut bench, &format!("SREM s nosuch {job}"), answer(fits));
        let short: String = (0..700).map(|n| format!(" m{n}")).collect();
        is(&mut bench, &format!("SADD s{short} {job}"), if fits { ":701\r\n" } else { too_large });
        is(&mut bench, "SCARD s", if fits { ":701\r\n" } else { ":0\r\n" });
        is(&mut bench, "DEL s", answer(fits));
    }
    // A sorted set has none that is so long, whichever command would put it there.
    let long = job((1 << 20) + 1);
    is(&mut bench, &format!("SADD s {long} a"), ":2\r\n");
    is(&mut bench, "ZUNIONSTORE z 1 s", too_large);
    is(&mut bench, &format!("ZADD z 1 {long}"), too_large);
    is(&mut bench, "EXISTS z", ":0\r\n");
    is(&mut bench, "ZUNION 1 s", &array(&[&long, "a"]));
    bench.check();
}

/// Sets with long members are dumped and restored, have one digest, and say what they take.
#[test]
fn sets_of_long_members_are_dumped_restored_and_told_apart() {
    let mut bench = bench();
    let (long, longer, other) = (job(20_000), job(300_000), job(299_999) + "!");
    bench.reply(&format!("SADD s a {long} 7 {longer} {other}"));
    let shows = |bench: &mut Bench| {
        let ones = ":1\r\n".repeat(5);
        is(bench, &format!("SMISMEMBER m {long} {other} {longer} a 7 b"), &format!("*6\r\n{ones}:0\r\n"));
        is(bench, "SCARD m", ":5\r\n");
    };
    is_dumped_restored_and_told_apart(bench, "s", shows, &format!("SREM m {other}"));
}

#[test]
fn long_members_of_sorted_sets_have_scores_ranks_and_places() {
    let mut bench = bench();
    for bytes in [16_300, 16_341, 16_342, 17_000, 20_000, 100_000, 1 << 20] {
        // Of one length, and alike but for the last byte: the other one is before it.
        let (job, other) = (job(bytes), job(bytes - 1) + "!");
        let bench = &mut bench;
        is(bench, &format!("ZADD z 1 {job}"), ":1\r\n");
        is(bench, &format!("ZADD z 1 {job}"), ":0\r\n");
        is(bench, &format!("ZADD z CH 2 {job}"), ":1\r\n");
        is(bench, &format!("ZSCORE z {job}"), &bulk("2"));
        is(bench, &format!("ZSCORE z {other}"), "$-1\r\n");
        is(bench, &format!("ZADD z 2 a 3 b 2 {other}"), ":3\r\n");
        is(bench, "ZRANGE z 0 -1", &array(&[&other, &job, "a", "b"]));
        is(bench, "ZREVRANGE z 1 2", &array(&["a", &job]));
        is(bench, &format!("ZRANK z {job}"), ":1\r\n");
        is(bench, &format!("ZREVRANK z {job}"), ":2\r\n");
        let scores = format!("*3\r\n{}$-1\r\n{}", bulk("2"), bulk("3"));
        is(bench, &format!("ZMSCORE z {other} none b"), &scores);
        is(bench, &format!("ZREMRANGEBYLEX z [{job} [{job}"), ":1\r\n");
        is(bench, &format!("ZADD z 2 {job}"), ":1\r\n");
        is(bench, "ZRANGE z 0 -1", &array(&[&other, &job, "a", "b"]));
        is(bench, &format!("ZINCRBY z 5 {job}"), &bulk("7"));
        is(bench, "ZRANGE z -1 -1 WITHSCORES", &array(&[&job, "7"]));
        is(bench, "ZRANGEBYSCORE z (3 +inf", &array(&[&job]));
        is(bench, "ZRANGESTORE d z 0 -1", ":4\r\n");
        is(bench, "ZRANGE d 0 -1", &array(&[&other, "a", "b", &job]));
        is(bench, "ZUNIONSTORE u 2 z d", ":4\r\n");
        is(bench, "ZINTERCARD 2 z u", ":4\r\n");
        is(bench, "ZDIFF 2 z d", "*0\r\n");
        is(bench, &format!("ZREM d nosuch {other}"), ":1\r\n");
        is(bench, "ZREMRANGEBYRANK d 2 2", ":1\r\n");
        is(bench, "ZRANGE d 0 -1", &array(&["a", "b"]));
        is(bench, "ZINTER 2 z u", &array(&[&other, "a", "b", &job]));
        is(bench, "ZPOPMAX z", &array(&[&job, "7"]));
        is(bench, "ZPOPMIN z 1", &array(&[&other, "2"]));
        is(bench, "ZREM z a b", ":2\r\n");
        is(bench, "COPY u c", ":1\r\n");
        is(bench, "RENAME c z", "+OK\r\n");
        is(bench, "ZREMRANGEBYSCORE z 0 6", ":3\r\n");
        is(bench, &format!("ZSCORE z {job}"), &bulk("14"));
        is(bench, "ZRANDMEMBER z", &bulk(&job));
        is(bench, "ZSCAN z 0", &scanned(&[&job, "14"]));
        is(bench, "ZSCAN z 0 MATCH 0,*", &scanned(&[&job, "14"]));
        is(bench, "ZSCAN z 0 MATCH *!", NONE);
        is(bench, "SORT z BY nosort", &array(&[&job]));
        is(bench, "BZPOPMIN z 0", &array(&["z", &job, "14"]));
        is(bench, "EXISTS z", ":0\r\n");
        is(bench, &format!("GEOADD g 13 38 {job} 20 20 b"), ":2\r\n");
        is(bench, &format!("GEOSEARCH g FROMMEMBER {job} BYRADIUS 1 km"), &array(&[&job]));
        is(bench, "GEOSEARCHSTORE g g FROMLONLAT 13 38 BYRADIUS 1 km", ":1\r\n");
        is(bench, &format!("ZREM g {job}"), ":1\r\n");
        is(bench, "EXISTS g", ":0\r\n");
        bench.reply("FLUSHALL");
    }
    bench.check();
}

/// Sorted sets with long members are dumped and restored, have one digest, and say what they take.
#[test]
fn sorted_sets_of_long_members_are_dumped_restored_and_told_apart() {
    let mut bench = bench();
    let (long, longer, other) = (job(20_000), job(300_000), job(299_999) + "!");
    bench.reply(&format!("ZADD z 1 a 2 {long} 3 7 3 {longer} 3 {other}"));
    let shows = |bench: &mut Bench| is(bench, "ZRANGE m 0 -1", &array(&["a", &long, &other, &longer, "7"]));
    is_dumped_restored_and_told_apart(bench, "z", shows, &format!("ZADD m 4 {other}"));
}

/// The reply, how many turns it takes, and how long the longest is reckoned to be.
pub(crate) fn turns(bench: &mut Bench, words: &str) -> (Vec<u8>, usize, u64) {
    let sent = bench.asked(words);
    turns_of(bench, &sent)
}

/// The same of several commands.
pub(crate) fn turns_of(bench: &mut Bench, sent: &[u8]) -> (Vec<u8>, usize, u64) {
    let (mut session, mut at) = (Session::new(), 0);
    let (mut replies, mut count, mut ns_max) = (Vec::new(), 0, 0);
    loop {
        let (next, more, consumed) = bench.call(&mut session, &sent[at..]);
        ns_max = ns_max.max(bench.room.work().done_ns());
        replies.extend(more);
        count += 1;
        at += consumed;
        match next {
            Next::Yield | Next::Flush => {}
            Next::Sleep(ms @ 2) | Next::Await(Some(ms @ 2)) => bench.system += ms,
            Next::Receive => return (replies, count, ns_max),
            other => panic!("{other:?}"),
        }
    }
}

/// No turn puts in, compares, replies or takes out more than some mebibytes, however many members are named.
#[test]
fn no_turn_copies_more_than_some_mebibytes_of_members() {
    const MEBIBYTE: usize = 1 << 20;
    let mut bench = large_bench();
    let members: Vec<String> = (10..50).map(|n| format!("{n}{}", job(MEBIBYTE - 2))).collect();
    let all = members.join(" ");
    let mut is_done = |command: &str, turns_min: usize| {
        let (reply, count, ns_max) = turns(&mut bench, command);
        let start = &command[..command.len().min(20)];
        assert!(count >= turns_min && ns_max < 10_000_000, "{start} {count} {ns_max}");
        reply
    };
    let ones = |count: usize| format!("*{count}\r\n{}", ":1\r\n".repeat(count)).into_bytes();
    assert_eq!(is_done(&format!("SADD s {all}"), 5), b":40\r\n");
    // Behind keys that were held a request is not read ahead: what its words take is spent once all the same.
    assert_eq!(is_done(&format!("SADD s {all}"), 5), b":0\r\n");
    assert_eq!(is_done(&format!("SADD t {all} more"), 5), b":41\r\n");
    assert_eq!(is_done(&format!("SMISMEMBER s {all}"), 3), ones(40));
    let sorted = |reply: &[u8]| {
        let mut texts = texts(reply);
        texts.sort_unstable();
        texts
    };
    let wanted: Vec<Vec<u8>> = members.iter().map(|member| member.clone().into_bytes()).collect();
    for command in ["SMEMBERS s", "SINTER s t", "SUNION s s", "SDIFF s nosuch", "SRANDMEMBER s 50"] {
        assert!(sorted(&is_done(command, 5)) == wanted, "{command}");
    }
    assert_eq!(texts(&is_done("SRANDMEMBER s -60", 5)).len(), 60);
    assert_eq!(is_done("SINTERCARD 2 s t", 3), b":40\r\n");
    assert_eq!(is_done("SUNIONSTORE d s t", 5), b":41\r\n");
    assert_eq!(is_done("SDIFFSTORE d t s", 3), b":1\r\n");
    assert_eq!(is_done("SINTERSTORE d t s", 5), b":40\r\n");
    for command in ["SSCAN s 0 COUNT 1000", "SSCAN s 0 COUNT 1000 MATCH 1*"] {
        let reply = is_done(command, 1);
        assert!(reply.len() < 8 * MEBIBYTE, "{command} {}", reply.len());
    }
    let popped = is_done("SPOP s 30", 5);
    assert_eq!(is_done("SCARD s", 1), b":10\r\n");
    let mut both = [texts(&popped), texts(&is_done("SPOP s 10", 2))].concat();
    both.sort_unstable();
    assert!(both == wanted, "each is popped once");
    assert_eq!(is_done("EXISTS s", 1), b":0\r\n");
    assert_eq!(is_done(&format!("SREM t {all}"), 5), b":40\r\n");
    assert_eq!(is_done("SMEMBERS t", 1), array(&["more"]).as_bytes());
    bench.check();
}

/// Members of sorted sets are compared with others of their score: two of the longest are taken out in one moment, and one gets a
/// score, which may be another than it has.
#[test]
fn no_turn_compares_more_than_two_of_the_longest_members() {
    const COUNT: usize = 16;
    let mut bench = large_bench();
    // They are alike but for their ends.
    let job = job((1 << 20) - 2);
    let members: Vec<String> = (0..COUNT).map(|n| format!("{job}{}", n + 10)).collect();
    let with = |score: &str| members.iter().map(|member| format!(" {score} {member}")).collect::<String>();
    let remove = format!("ZREM z {}", members.join(" "));
    for put in [format!("ZADD z{}", with("1")), format!("GEOADD z{}", with("13 38"))] {
        for (command, turns_min) in [(&put, COUNT), (&put, COUNT), (&remove, COUNT / 2)] {
            let (reply, count, ns_max) = turns(&mut bench, command);
            let start = &command[..command.len().min(20)];
            assert!(count >= turns_min && ns_max < 10_000_000, "{start} {count} {ns_max}");
            assert!(reply.starts_with(b":"), "{start} {}", String::from_utf8_lossy(&reply));
        }
        is(&mut bench, "EXISTS z", ":0\r\n");
    }
    // What is asked of them all goes by their bytes, too.
    let all = members.join(" ");
    for command in ["GEOPOS", "GEOHASH", "ZMSCORE"] {
        let (reply, count, ns_max) = turns(&mut bench, &format!("{command} z {all} {all}"));
        assert!(count >= 2 * COUNT / 8 && ns_max < 10_000_000, "{command} {count} {ns_max}");
        assert!(reply.starts_with(format!("*{}\r\n", 2 * COUNT).as_bytes()), "{command}");
    }
    // What looks for one spends what it takes, and what gives it a score that twice.
    let two = format!("ZADD z 1 {} 1 {}", members[0], members[1]);
    let (reply, _, _) = turns(&mut bench, &two);
    assert_eq!(reply, b":2\r\n");
    let of = |command: &str| format!("{command} {}", members[1]);
    for (command, wanted, ns_min) in [
        (of("ZRANK z"), ":1\r\n".to_owned(), 2 << 20),
        (of("ZSCORE z"), bulk("1"), 1 << 19),
        (of("ZADD z 2"), ":0\r\n".to_owned(), 4 << 20),
        (of("ZINCRBY z 1"), bulk("3"), 4 << 20),
    ] {
        let (reply, _, ns) = turns(&mut bench, &command);
        assert!(reply == wanted.as_bytes() && ns >= ns_min, "{} {ns}", &command[..6]);
    }
    // So two of these are one EXEC, and three are not.
    let add = of("ZADD z 1");
    assert_eq!(exec(&mut bench, &[&*add; 2]), "*2\r\n:0\r\n:0\r\n");
    assert!(exec(&mut bench, &[&*add; 3]).starts_with("-EXECABORT "));
    bench.check();
}

/// Short members are picked and popped beside long ones, each as often as it is there.
#[test]
fn members_are_popped_beside_long_ones_each_once() {
    let mut bench = large_bench();
    let long: Vec<String> = (1..4).map(|n| format!("{n}{}", job((4 << 20) - 1))).collect();
    let short: String = (0..1_000).map(|n| format!(" m{n}")).collect();
    for long in &long {
        is(&mut bench, &format!("SADD s {long}"), ":1\r\n");
    }
    is(&mut bench, &format!("SADD s{short}"), ":1000\r\n");
    let (mut popped, mut left) = (Vec::new(), 1_003);
    for count in [1, 200, 256, 300, 246] {
        let (reply, _, ns_max) = turns(&mut bench, &format!("SPOP s {count}"));
        assert!(ns_max < 10_000_000, "{count} {ns_max}");
        let some = texts(&reply);
        assert_eq!(some.len(), count);
        popped.extend(some);
        left -= count;
        is(&mut bench, "SCARD s", &format!(":{left}\r\n"));
    }
    assert_eq!(left, 0);
    popped.sort_unstable();
    popped.dedup();
    assert_eq!(popped.len(), 1_003);
    assert!(long.iter().all(|long| popped.binary_search(&long.clone().into_bytes()).is_ok()));
    bench.check();
}

/// A long member is matched in one step with a pattern that begins otherwise or is of letters.
#[test]
fn a_long_member_is_matched_at_once_if_that_takes_no_longer_than_others_wait() {
    let mut bench = large_bench();
    let job = job(4 << 20);
    is(&mut bench, &format!("SADD s {job}"), ":1\r\n");
    is(&mut bench, "SSCAN s 0 MATCH 0,1,*", &scanned(&[&job]));
    is(&mut bench, "SSCAN s 0 MATCH *,1000,*", &scanned(&[&job]));
    is(&mut bench, "SREM s nosuch", ":0\r\n");
    let (reply, _, ns_max) = turns(&mut bench, "SSCAN s 0 MATCH *nosuch*");
    assert_eq!(String::from_utf8_lossy(&reply), NONE);
    assert!(ns_max < 10_000_000 && is_replied_at_once(&mut bench, "SSCAN s 0 MATCH *nosuch*"), "{ns_max}");
    is(&mut bench, &format!("SREM s {job}"), ":1\r\n");
    is(&mut bench, "SADD s abbbcbd", ":1\r\n");
    is(&mut bench, "SSCAN s 0 MATCH *a?b?c?d*", &scanned(&["abbbcbd"]));
    bench.check();
}

/// Makes sets `s` and `z` of 4,000 short members, which have had a long one.
fn make_without_long_ones(bench: &mut Bench) {
    let (long, longer) = (job(2 << 20), job((1 << 20) - 1) + "!");
    let short: String = (1_000..5_000).map(|n| format!(" m{n:0300}")).collect();
    is(bench, &format!("SADD s{short} {long}"), ":4001\r\n");
    let pairs: String = (1_000..5_000).map(|n| format!(" {n} m{n:0300}")).collect();
    is(bench, &format!("ZADD z{pairs} 1 {longer}"), ":4001\r\n");
    is(bench, &format!("SREM s {long}"), ":1\r\n");
    is(bench, &format!("ZREM z {longer}"), ":1\r\n");
}

/// Of short members as many go in one moment as of sets that never had a long one.
#[test]
fn short_members_are_popped_at_once_where_a_long_one_has_gone() {
    let mut bench = large_bench();
    make_without_long_ones(&mut bench);
    for (command, strings) in [("SPOP s 256", 256), ("ZPOPMIN z 256", 512), ("ZPOPMAX z 256", 512)] {
        let sent = bench.asked(command);
        // All is replied in the first turn.
        let (_, reply, _) = bench.call(&mut Session::new(), &sent);
        assert_eq!(texts(&reply).len(), strings, "{command}");
    }
    is(&mut bench, "SCARD s", ":3744\r\n");
    is(&mut bench, "ZCARD z", ":3488\r\n");
    bench.check();
}

/// For a long member that is matched there has to be room; that there was one asks for none.
#[test]
fn a_long_member_that_has_gone_takes_no_room() {
    let mut bench = large_bench();
    make_without_long_ones(&mut bench);
    is(&mut bench, &format!("SADD t {}", job(2 << 20)), ":1\r\n");
    is(&mut bench, &format!("ZADD u 1 {}", job(1 << 20)), ":1\r\n");
    let store = bench.worker.store();
    let taken = (store.held_bytes_max() - store.held_bytes() - (256 << 10)) as i64;
    store.hold(taken);
    for command in ["SSCAN s 0 MATCH m*", "ZSCAN z 0 MATCH m*"] {
        let reply = bench.reply(command);
        assert!(reply.starts_with(b"*2\r\n"), "{}", String::from_utf8_lossy(&reply[..reply.len().min(60)]));
    }
    let held = "-OOM connections hold as much memory as they may\r\n";
    is(&mut bench, "SSCAN t 0 MATCH m*", held);
    // How long it is was looked for, four times a mebibyte.
    let (reply, _, ns) = turns(&mut bench, "ZSCAN u 0 MATCH m*");
    assert_eq!(String::from_utf8_lossy(&reply), held);
    assert!((2 << 20..10_000_000).contains(&ns), "{ns}");
    bench.worker.store().hold(-taken);
    for command in ["SSCAN t 0 MATCH m*", "ZSCAN u 0 MATCH m*"] {
        is(&mut bench, command, NONE);
    }
    bench.check();
}

/// What replies of long members take is charged, and where that is too much an error stands in their place and all stays.
#[test]
fn members_for_which_there_is_no_room_stay() {
    let mut bench = bench();
    let count = (bench.worker.store().held_bytes_max() >> 20) as usize;
    for n in 10..12 + count {
        is(&mut bench, &format!("SADD s {n}{}", job((1 << 20) - 2)), ":1\r\n");
    }
    let held = "-OOM connections hold as much memory as they may\r\n";
    let before = bench.worker.store().held_bytes();
    for command in ["SMEMBERS s", "SUNION s", "SPOP s 1000", "SRANDMEMBER s 1000", "DUMP s"] {
        is(&mut bench, command, held);
        is(&mut bench, "SCARD s", &format!(":{}\r\n", count + 2));
        // What was copied until then is given back.
        assert!(bench.worker.store().held_bytes() <= before + (16 << 10), "{command}");
    }
    is(&mut bench, "SINTERCARD 2 s s", &format!(":{}\r\n", count + 2));
    let one = bench.reply("SPOP s");
    assert!(one.starts_with(b"$1048576\r\n"), "{}", one.len());
    is(&mut bench, "SCARD s", &format!(":{}\r\n", count + 1));
    bench.check();
}
