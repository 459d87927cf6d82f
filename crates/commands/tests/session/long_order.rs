//! Long members that are brought into their order: no turn compares more of them than others wait for.

use crate::apart::{array, job};
use crate::long_members::{turns, turns_of};
use crate::long_scans::is_replied_at_once;
use crate::named::exec;
use crate::values::{is, large_bench};

const MEBIBYTE: usize = 1 << 20;
const COUNT: usize = 16;

/// Members of a mebibyte, which are alike but for their ends, in their order.
fn members() -> Vec<String> {
    let job = job(MEBIBYTE - 2);
    (0..COUNT).map(|n| format!("{job}{}", n + 10)).collect()
}

/// Members of one score are sorted by their bytes: of the longest one at a time, and merged one at a time.
#[test]
fn no_turn_sorts_or_merges_more_than_a_mebibyte_of_members() {
    let mut bench = large_bench();
    let members = members();
    let texts: Vec<&str> = members.iter().map(String::as_str).collect();
    let (all, count) = (array(&texts), format!(":{COUNT}\r\n"));
    for key in ["s", "t"] {
        is(&mut bench, &format!("SADD {key} {}", members.join(" ")), &count);
    }
    for (command, wanted, turns_min) in [
        // Each is read, sorted, and merged and replied in turns of its own; or read, sorted, and put in.
        ("ZUNION 1 s", &all, 3 * COUNT),
        ("ZINTER 2 s t", &all, 4 * COUNT),
        ("ZUNIONSTORE d 1 s", &count, 5 * COUNT / 2),
    ] {
        let (reply, turned, ns_max) = turns(&mut bench, command);
        assert!(turned >= turns_min && ns_max < 10_000_000, "{command} {turned} {ns_max}");
        assert!(reply == wanted.as_bytes(), "{command} {}", reply.len());
    }
    is(&mut bench, "ZRANGE d 0 -1", &all);
    bench.check();
}

/// Members of one place are found, sorted by their bytes and put in as few at a time, though they are not many.
#[test]
fn no_turn_of_a_search_copies_or_sorts_more_than_a_mebibyte_of_members() {
    let mut bench = large_bench();
    let members = members();
    let texts: Vec<&str> = members.iter().map(String::as_str).collect();
    let (all, count) = (array(&texts), format!(":{COUNT}\r\n"));
    let places: String = members.iter().map(|member| format!(" 13 38 {member}")).collect();
    is(&mut bench, &format!("GEOADD g{places}"), &count);
    for (command, wanted, turns_min) in [
        ("GEOSEARCH g FROMLONLAT 13 38 BYRADIUS 1 km", &all, 3 * COUNT / 2),
        ("GEOSEARCHSTORE d g FROMLONLAT 13 38 BYRADIUS 1 km", &count, 5 * COUNT / 2),
        ("GEOSEARCHSTORE d g FROMLONLAT 13 38 BYRADIUS 1 km ASC STOREDIST", &count, 5 * COUNT / 2),
        ("GEORADIUS g 13 38 1 km STORE d", &count, 5 * COUNT / 2),
    ] {
        let (reply, turned, ns_max) = turns(&mut bench, command);
        assert!(turned >= turns_min && ns_max < 10_000_000, "{command} {turned} {ns_max}");
        assert!(reply == wanted.as_bytes(), "{command} {}", reply.len());
        if turns_min > 2 * COUNT {
            is(&mut bench, "ZRANGE d 0 -1", &all);
        }
    }
    bench.check();
}

/// EXEC weighs that members which no word names are compared, too: where they are sorted, looked for, put in or scanned.
#[test]
fn exec_weighs_that_members_are_sorted_and_looked_for() {
    let mut bench = large_bench();
    // A megabyte in all, which is copied in 0.5 ms: each time that it is compared is 2 ms.
    let long = job(50_000 - 2);
    let members: Vec<String> = (10..30).map(|n| format!("{long}{n}")).collect();
    let texts: Vec<&str> = members.iter().map(String::as_str).collect();
    let all = array(&texts);
    let pairs: String = members.iter().map(|member| format!(" 1 {member}")).collect();
    for key in ["y", "z"] {
        is(&mut bench, &format!("ZADD {key}{pairs}"), ":20\r\n");
    }
    is(&mut bench, &format!("ZADD w 1 {}", job(MEBIBYTE / 2)), ":1\r\n");
    for (command, answer, passes, fails) in [
        ("ZUNION 1 z", Some(&*all), 3, 5),
        ("ZUNIONSTORE d 1 z", Some(":20\r\n"), 1, 2),
        ("ZINTER 2 z y", Some(&*all), 1, 3),
        ("ZINTERCARD 2 z y", Some(":20\r\n"), 3, 5),
        ("ZDIFF 2 z y", Some("*0\r\n"), 2, 4),
        ("ZRANGESTORE d z 0 -1", Some(":20\r\n"), 3, 5),
        ("GEOSEARCHSTORE d z FROMLONLAT 13 38 BYRADIUS 1 km", Some(":0\r\n"), 1, 3),
        ("GEORADIUS z 13 38 1 km STORE d", Some(":0\r\n"), 1, 3),
        ("ZSCAN w 0", None, 3, 5),
    ] {
        let reply = exec(&mut bench, &vec![command; passes]);
        assert!(reply.starts_with(&format!("*{passes}\r\n")), "{command} {}", &reply[..reply.len().min(60)]);
        if let Some(answer) = answer {
            assert!(reply == format!("*{passes}\r\n{}", answer.repeat(passes)), "{command}");
        }
        let reply = exec(&mut bench, &vec![command; fails]);
        assert!(reply.starts_with("-EXECABORT "), "{command} {}", &reply[..reply.len().min(60)]);
        bench.reply("DEL d");
    }
    // What is not sorted by its names is not compared, and sets have no order.
    let near = "GEORADIUS_RO z 13 38 1 km";
    assert_eq!(exec(&mut bench, &[near; 10]), format!("*10\r\n{}", "*0\r\n".repeat(10)));
    bench.check();
}

/// A bound that is long is compared with members, by every command that takes one: that is spent, and looked for once.
#[test]
fn what_long_bounds_are_compared_with_is_spent() {
    let mut bench = large_bench();
    let members = members();
    let (first, last) = (&members[0], &members[1]);
    is(&mut bench, &format!("ZADD z 1 {first} 1 {last} 1 short"), ":3\r\n");
    let one = array(&[last]);
    // A bound of a mebibyte counts four times, of which two bytes take a nanosecond.
    for (command, wanted, ns_min) in [
        (format!("ZLEXCOUNT z [{last} ({last}"), ":0\r\n", 4 << 20),
        (format!("ZLEXCOUNT z [{last} [{last}"), ":1\r\n", 4 << 20),
        (format!("ZRANGEBYLEX z [{last} (short"), &*one, 2 << 20),
        (format!("ZREVRANGEBYLEX z (short ({first}"), &*one, 2 << 20),
        (format!("ZRANGE z ({first} [{last} BYLEX"), &*one, 4 << 20),
        (format!("ZRANGESTORE d z ({first} [{last} BYLEX"), ":1\r\n", 4 << 20),
        (format!("ZREMRANGEBYLEX z ({last} ({last}"), ":0\r\n", 4 << 20),
        (format!("ZREMRANGEBYLEX z ({first} [{last}"), ":1\r\n", 4 << 20),
        (format!("ZREMRANGEBYLEX z - ({last}"), ":1\r\n", 2 << 20),
    ] {
        let (reply, _, ns) = turns(&mut bench, &command);
        let start = &command[..command.len().min(20)];
        let shown = String::from_utf8_lossy(&reply[..reply.len().min(60)]);
        assert!(reply == wanted.as_bytes(), "{start} {shown}");
        assert!((ns_min..10_000_000).contains(&ns), "{start} {ns}");
    }
    is(&mut bench, "ZRANGE d 0 -1", &one);
    is(&mut bench, "ZRANGE z 0 -1", &array(&["short"]));
    bench.check();
}

/// In EXEC, which weighs that once, members are looked for once, too, where they are stored.
#[test]
fn what_is_stored_in_one_step_is_looked_for_once() {
    let mut bench = large_bench();
    let long = members().swap_remove(0);
    is(&mut bench, "ZADD z 1 0 1 short 1 u", ":3\r\n");
    let store = format!("ZRANGESTORE d z ({long} [t{long} BYLEX");
    let sent = [bench.asked("MULTI"), bench.asked(&store), bench.asked("EXEC")].concat();
    let (replies, _, ns) = turns_of(&mut bench, &sent);
    assert_eq!(String::from_utf8_lossy(&replies), "+OK\r\n+QUEUED\r\n*1\r\n:1\r\n");
    // Two bounds of a mebibyte count four times, of which two bytes take a nanosecond.
    assert!((4 << 20..8 << 20).contains(&ns), "{ns}");
    is(&mut bench, "ZRANGE d 0 -1", &array(&["short"]));
    bench.check();
}

/// EXEC looks for a long bound while it weighs and makes room, too, which counts, but where all of the set is taken out as soon.
#[test]
fn exec_weighs_that_it_looks_for_long_bounds() {
    let mut bench = large_bench();
    let long = members().swap_remove(0);
    let short: String = (0..5_000).map(|n| format!(" 1 m{n:05}")).collect();
    is(&mut bench, &format!("ZADD many{short}"), ":5000\r\n");
    is(&mut bench, "ZADD few 1 0 1 m", ":2\r\n");
    // To look for a bound of a mebibyte is 2 ms, and to copy it 0.5.
    for (key, passes, fails, looks) in [("many", 1, 2, 3), ("few", 3, 4, 3)] {
        let remove = format!("ZREMRANGEBYLEX {key} [{long} (l");
        let reply = exec(&mut bench, &vec![remove.as_str(); fails]);
        assert!(reply.starts_with("-EXECABORT "), "{key} {reply}");
        let mut sent = bench.asked("MULTI");
        (0..passes).for_each(|_| sent.extend(bench.asked(&remove)));
        sent.extend(bench.asked("EXEC"));
        let (replies, _, ns) = turns_of(&mut bench, &sent);
        let (queued, answers) = ("+QUEUED\r\n".repeat(passes), ":0\r\n".repeat(passes));
        let wanted = format!("+OK\r\n{queued}*{passes}\r\n{answers}");
        assert_eq!(String::from_utf8_lossy(&replies), wanted, "{key}");
        assert!((looks << 21..10_000_000).contains(&ns), "{key} {ns}");
    }
    bench.check();
}

/// Of a range of many some are taken out at a time, from the bound on: as many as ever, since each time the bound is looked for.
#[test]
fn a_range_of_many_behind_a_long_bound_is_taken_out_in_steps() {
    let mut bench = large_bench();
    let long = members().swap_remove(0);
    let short: String = (0..5_000).map(|n| format!(" 1 m{n:05}")).collect();
    is(&mut bench, &format!("ZADD z{short}"), ":5000\r\n");
    is(&mut bench, &format!("ZADD z 1 {long} 1 0"), ":2\r\n");
    let (reply, count, ns) = turns(&mut bench, &format!("ZREMRANGEBYLEX z [{long} +"));
    assert_eq!(String::from_utf8_lossy(&reply), ":5001\r\n");
    // 256 in each of them.
    assert!((20..26).contains(&count) && ns < 10_000_000, "{count} {ns}");
    is(&mut bench, "ZRANGE z 0 -1", &array(&["0"]));
    bench.check();
}

/// What is put into a sorted set, or looked for in one, is compared with others of its score, whichever command asks for it.
#[test]
fn what_long_members_are_compared_with_is_reckoned() {
    let mut bench = large_bench();
    let pairs: String = members().iter().map(|member| format!(" 1 {member}")).collect();
    let count = format!(":{COUNT}\r\n");
    is(&mut bench, &format!("ZADD z{pairs}"), &count);
    for command in ["ZRANGESTORE d z 0 -1", "ZINTERCARD 2 z d"] {
        let (reply, turned, ns) = turns(&mut bench, command);
        assert_eq!(String::from_utf8_lossy(&reply), count, "{command}");
        assert!(turned > COUNT && (2 << 20..10_000_000).contains(&ns), "{command} {turned} {ns}");
    }
    bench.check();
}

/// EXEC weighs that the parts of long members are given back where a range is taken out.
#[test]
fn exec_weighs_the_parts_of_a_range_that_is_taken_out() {
    let mut bench = large_bench();
    let long = job(MEBIBYTE - 3);
    for n in 100..200 {
        is(&mut bench, &format!("ZADD z 1 {n}{long}"), ":1\r\n");
    }
    // 0.3 ms for 99 members, and 1 ms for their parts.
    let remove = "ZREMRANGEBYRANK z 0 98";
    assert!(exec(&mut bench, &[remove; 9]).starts_with("-EXECABORT "));
    assert_eq!(exec(&mut bench, &[remove; 6]), format!("*6\r\n:99\r\n:1\r\n{}", ":0\r\n".repeat(4)));
    bench.check();
}

/// ZSCAN looks for each long member among others of its score: one is looked for in a turn, where room is made and where it is
/// replied, and that is spent.
#[test]
fn no_turn_of_a_scan_looks_for_more_than_some_mebibytes_of_members() {
    let mut bench = large_bench();
    let pairs: String = members().iter().map(|member| format!(" 1 {member}")).collect();
    is(&mut bench, &format!("ZADD z{pairs}"), &format!(":{COUNT}\r\n"));
    for options in ["", " MATCH 0*", " COUNT 1000"] {
        let (mut cursor, mut bytes, mut longest_ns) = ("0".to_owned(), 0, 0);
        loop {
            let (reply, _, ns) = turns(&mut bench, &format!("ZSCAN z {cursor}{options}"));
            (bytes, longest_ns) = (bytes + reply.len(), longest_ns.max(ns));
            let start = String::from_utf8_lossy(&reply[..reply.len().min(80)]);
            cursor = start.split("\r\n").nth(2).expect("a cursor").to_owned();
            if cursor == "0" {
                break;
            }
        }
        // Twice four times.
        assert!((4 << 20..10_000_000).contains(&longest_ns), "{options} {longest_ns}");
        // Each once.
        assert!((COUNT * MEBIBYTE..(COUNT + 1) * MEBIBYTE).contains(&bytes), "{options} {bytes}");
    }
    bench.check();
}

/// A member of a sorted set is matched in one step for half as long as one of a set, since it is looked for, too. That is spent
/// where it goes on in steps as where it does not.
#[test]
fn a_long_member_of_a_sorted_set_is_matched_for_half_as_long() {
    let mut bench = large_bench();
    let none = "*2\r\n$1\r\n0\r\n*0\r\n";
    // Four nanoseconds a byte, and 170.
    for (bytes, fits) in [(749_956, true), (749_957, true), (749_958, false)] {
        let member = job(bytes);
        is(&mut bench, &format!("SADD s {member}"), ":1\r\n");
        is(&mut bench, &format!("ZADD z 1 {member}"), ":1\r\n");
        is(&mut bench, "SSCAN s 0 MATCH *a?b*", none);
        assert_eq!(is_replied_at_once(&mut bench, "ZSCAN z 0 MATCH *a?b*"), fits, "{bytes}");
        let (reply, _, ns) = turns(&mut bench, "ZSCAN z 0 MATCH *a?b*");
        assert_eq!(String::from_utf8_lossy(&reply), none, "{bytes}");
        // Where it is known whether it matches it is looked for once more, to know that it is the one.
        let looks = if fits { 2 } else { 3 };
        let looks_ns = looks * 4 * (bytes as u64 / 2);
        let matched_ns = if fits { 3_000_000 } else { 0 };
        assert!((looks_ns..looks_ns + 1_000_000).contains(&(ns - matched_ns)), "{bytes} {ns}");
        is(&mut bench, "DEL s z", ":2\r\n");
    }
    bench.check();
}
