//! What commands make of the fields that they name: others of the same hash may be long, or have been.

use crate::Bench;
use crate::apart::{array, bulk, job};
use larder_commands::{Next, Session, Settings};

/// A bench in which long requests may be kept, with a hash of a long value and of short ones.
fn mixed() -> Bench {
    let mut bench = Bench::of(Settings { append_bytes_max: 64 << 20, ..Settings::default() }, 512 << 20);
    let set = format!("HSET h blob {} a 1 b 2 c 3", job(4 << 20));
    assert_eq!(bench.reply(&set), b":4\r\n");
    bench
}

/// The reply of EXEC to these commands.
pub(crate) fn exec(bench: &mut Bench, commands: &[&str]) -> String {
    exec_in_turns(bench, commands).0
}

/// The same, and how many turns it takes from the first command to the last reply.
fn exec_in_turns(bench: &mut Bench, commands: &[&str]) -> (String, usize) {
    let mut sent = bench.asked("MULTI");
    commands.iter().for_each(|command| sent.extend(bench.asked(command)));
    sent.extend(bench.asked("EXEC"));
    let (replies, count) = turns_of(bench, &sent);
    let queued = 5 + 9 * commands.len();
    assert!(replies.len() > queued, "{replies}");
    (replies[queued..].to_owned(), count)
}

/// EXEC is weighed by what the fields have that are named, not by the longest of their hash.
#[test]
fn exec_weighs_the_fields_that_are_named() {
    let mut bench = mixed();
    let one = bulk("1");
    let gets = ["HGET h a"; 50];
    assert_eq!(exec(&mut bench, &gets), format!("*50\r\n{}", one.repeat(50)));
    let many = format!("HMGET h{}", " a b".repeat(50));
    assert_eq!(exec(&mut bench, &[&many]), format!("*1\r\n{}", array(&["1", "2"].repeat(50))));
    assert_eq!(exec(&mut bench, &["HGETEX h EX 10 FIELDS 1 a"]), format!("*1\r\n{}", array(&["1"])));
    assert_eq!(exec(&mut bench, &["HGETEX h PERSIST FIELDS 1 a"]), format!("*1\r\n{}", array(&["1"])));
    assert_eq!(exec(&mut bench, &["HGETDEL h FIELDS 2 b none"]), "*1\r\n*2\r\n$1\r\n2\r\n$-1\r\n");
    // What was written before in the queue is no longer than its words.
    let counted = ["HINCRBY h n 1", "HSET h b 5", "HGET h a", "HGET h a", "HGET h a", "HGET h a", "HGET h b"];
    assert_eq!(exec(&mut bench, &counted), format!("*7\r\n:1\r\n:1\r\n{}{}", one.repeat(4), bulk("5")));
    let refused = "-EXECABORT ";
    for (gets, fits) in [(4, true), (5, false)] {
        let reply = exec(&mut bench, &vec!["HGET h blob"; gets]);
        assert_eq!(reply.len() > gets * (4 << 20), fits, "{gets}");
        assert_eq!(reply.starts_with(refused), !fits, "{gets}");
    }
    let set = format!("HSET h a {}", job(1 << 20));
    for (gets, fits) in [(8, true), (30, false)] {
        let commands = [vec![&*set], vec!["HGET h a"; gets], vec!["HSET h a 1"]].concat();
        assert_eq!(!exec(&mut bench, &commands).starts_with(refused), fits, "{gets}");
    }
    // It was long, and there is more than a leaf of others.
    bench.reply(&format!("HSET h blob x d {}", job(20_000)));
    assert_eq!(exec(&mut bench, &gets), format!("*50\r\n{}", one.repeat(50)));
    let gets = ["HGET h blob"; 50];
    assert_eq!(exec(&mut bench, &gets), format!("*50\r\n{}", bulk("x").repeat(50)));
}

/// Beside a long value some thousands of fields are looked at, and those behind them count as the longest.
#[test]
fn exec_looks_at_some_thousands_of_fields() {
    let mut bench = mixed();
    for (fields, fits) in [(4_095, true), (4_096, true), (4_097, true), (4_102, false)] {
        let reply = exec(&mut bench, &[&format!("HMGET h{}", " a".repeat(fields))]);
        assert_eq!(reply.matches("$1\r\n1\r\n").count(), if fits { fields } else { 0 }, "{fields}");
        assert_eq!(reply.starts_with("-EXECABORT "), !fits, "{fields}");
    }
}

/// The reply of a command, and how many turns it takes until all of it is there.
fn turns(bench: &mut Bench, command: &str) -> (String, usize) {
    let sent = bench.asked(command);
    turns_of(bench, &sent)
}

fn turns_of(bench: &mut Bench, sent: &[u8]) -> (String, usize) {
    let mut session = Session::new();
    let (mut replies, mut at, mut count, mut last) = (Vec::new(), 0, 0, 0);
    loop {
        let (next, more, consumed) = bench.call(&mut session, &sent[at..]);
        count += 1;
        if !more.is_empty() {
            last = count;
        }
        replies.extend(more);
        at += consumed;
        match next {
            Next::Yield | Next::Flush => {}
            Next::Sleep(ms @ 2) | Next::Await(Some(ms @ 2)) => bench.system += ms,
            Next::Receive => return (String::from_utf8(replies).unwrap(), last),
            other => panic!("{other:?}"),
        }
    }
}

/// Short fields are one moment whatever the others of their hash have, and have had.
#[test]
fn short_fields_beside_a_long_one_are_one_moment() {
    let mut bench = mixed();
    let pairs = |n: usize, value: &str| (0..n).map(|i| format!(" f{i} {value}")).collect::<String>();
    let names = |n: usize| (0..n).map(|i| format!(" f{i}")).collect::<String>();
    for round in 0..2 {
        for n in [17, 300, 512] {
            let (one, answers) = (format!(":{n}\r\n"), |text: &str| format!("*{n}\r\n{}", text.repeat(n)));
            let mut is = |command: &str, expected: &str| {
                let (reply, count) = turns(&mut bench, command);
                assert_eq!((reply.as_str(), count), (expected, 1), "{round} {n} {}", &command[..9]);
            };
            is(&format!("HSET h{}", pairs(n, "1")), &one);
            is(&format!("HMSET h{}", pairs(n, "1")), "+OK\r\n");
            is(&format!("HPEXPIRE h 9999 FIELDS {n}{}", names(n)), &answers(":1\r\n"));
            is(&format!("HPERSIST h FIELDS {n}{}", names(n)), &answers(":1\r\n"));
            is(&format!("HGETEX h FIELDS {n}{}", names(n)), &answers("$1\r\n1\r\n"));
            is(&format!("HGETDEL h FIELDS {n}{}", names(n)), &answers("$1\r\n1\r\n"));
            is(&format!("HSETEX h FNX FIELDS {n}{}", pairs(n, "1")), ":1\r\n");
            is(&format!("HPEXPIRE h 0 FIELDS {n}{}", names(n)), &answers(":2\r\n"));
            is(&format!("HSET h{}", pairs(n, "1")), &one);
            is(&format!("HDEL h{}", names(n)), &one);
        }
        // The long one is gone, and it is as if it were there.
        bench.reply(&format!("HSET h blob 1 d {}", job(20_000)));
    }
}

/// What has more bytes than one moment is cut where it has, and not at the longest of all.
#[test]
fn long_fields_are_some_moments_and_short_ones_beside_them_no_more() {
    let mut bench = mixed();
    let long = job(4 << 20);
    let short: String = (0..400).map(|i| format!(" f{i} 1")).collect();
    let (reply, count) = turns(&mut bench, &format!("HSET h{short} x {long} y {long} z {long}"));
    assert_eq!(reply, ":403\r\n");
    assert!((2..=16).contains(&count), "{count}");
    let names: String = (0..400).map(|i| format!(" f{i}")).collect();
    let (reply, count) = turns(&mut bench, &format!("HGETDEL h FIELDS 403{names} x y z"));
    assert!(reply.len() > 12 << 20, "{}", reply.len());
    // It is sent when all are taken, a mebibyte in each turn.
    assert!((14..=24).contains(&count), "{count}");
}

/// A reply spends what it has, not what it might have had.
#[test]
fn short_fields_spend_nothing_for_long_ones() {
    let mut bench = mixed();
    let pairs: String = (0..1_000).map(|i| format!(" f{i} 12345678")).collect();
    bench.reply(&format!("HSET short{pairs}"));
    let names: String = (0..15).map(|i| format!(" f{}", 60 * i)).collect();
    let mut spent = |commands: &str, times: usize| {
        let sent = bench.asked(commands).repeat(times);
        let (next, _, consumed) = bench.call(&mut Session::new(), &sent);
        let whole = next == Next::Receive && consumed == sent.len();
        (whole, bench.room.work().done_ns())
    };
    let (whole, short_ns) = spent(&format!("HMGET short{names}"), 20);
    assert!(whole && short_ns < 250_000, "{whole} {short_ns}");
    let (whole, beside_ns) = spent("HMGET h a b c", 20);
    assert!(whole && beside_ns < 250_000, "{whole} {beside_ns}");
}

/// What a command of EXEC spends of its reply is not spent again for it: as many are replied as were weighed.
#[test]
fn long_values_in_exec_are_spent_once() {
    let mut bench = mixed();
    let reply = exec(&mut bench, &["HGET h blob"; 4]);
    assert_eq!((reply.matches("$4194304\r\n").count(), reply.contains("-ERR ")), (4, false));
}

/// What is due weighs what it takes to give it back, whatever else is there.
#[test]
fn a_count_of_fields_is_weighed_by_what_is_due() {
    let mut bench = mixed();
    let short: String = (0..300).map(|i| format!(" f{i} 1")).collect();
    let pairs: String = (0..400).map(|i| format!(" f{i} {}", job(10_000))).collect();
    bench.reply(&format!("HSET h{short}"));
    bench.reply(&format!("HSET many a 1{pairs}"));
    for key in ["h", "many"] {
        assert_eq!(bench.reply(&format!("HPEXPIRE {key} 1000 FIELDS 1 a")), b"*1\r\n:1\r\n");
    }
    bench.system += 2_000;
    assert_eq!(exec(&mut bench, &["HLEN h"]), "*1\r\n:303\r\n");
    assert_eq!(exec(&mut bench, &["HLEN many"]), "*1\r\n:400\r\n");
    let names: String = (0..400).map(|i| format!(" f{i}")).collect();
    bench.reply(&format!("HPEXPIRE many 1000 FIELDS 400{names}"));
    bench.system += 2_000;
    assert!(exec(&mut bench, &["HLEN many"]).starts_with("-EXECABORT "));
    assert_eq!(bench.reply("HLEN many"), b":0\r\n");
}

/// Names weigh what they have, whatever their values have.
#[test]
fn exec_weighs_names_without_their_values() {
    let mut bench = mixed();
    let long = job(4 << 20);
    for n in 0..5 {
        bench.reply(&format!("HSET h f{n} {long}"));
    }
    for (command, names) in [("HKEYS h", 9), ("HRANDFIELD h 7", 7), ("HRANDFIELD h -20", 20)] {
        let reply = exec(&mut bench, &[command]);
        assert!(reply.starts_with(&format!("*1\r\n*{names}\r\n")) && reply.len() < 300, "{command}: {reply}");
    }
    for command in ["HVALS h", "HGETALL h", "HRANDFIELD h 7 WITHVALUES", "HRANDFIELD h -20 WITHVALUES"] {
        assert!(exec(&mut bench, &[command]).starts_with("-EXECABORT "), "{command}");
    }
}

/// What EXEC writes into a hash is weighed, and what it takes out.
#[test]
fn exec_weighs_what_is_set_and_what_is_dropped() {
    let mut bench = mixed();
    let long = job(4 << 20);
    for command in [format!("HSET h n {long}"), format!("HSETEX h EX 9 FIELDS 1 n {long}")] {
        let [few, many] = [1, 6].map(|times| {
            let (reply, count) = exec_in_turns(&mut bench, &vec![command.as_str(); times]);
            assert!(reply.starts_with(&format!("*{times}\r\n:")), "{times} {} {reply}", &command[..6]);
            count - times
        });
        assert!(few < many, "{} {few} {many}", &command[..6]);
    }
    for n in 0..50 {
        bench.reply(&format!("HSET h f{n} {long}"));
    }
    let names = |prefix: &str| (0..50).map(|n| format!(" {prefix}{n}")).collect::<String>();
    let gets = ["HGET h blob"; 4];
    for (drops, fits) in [
        (format!("HDEL h{}", names("none")), true),
        (format!("HDEL h{}", names("f")), false),
        (format!("HPEXPIRE h 0 FIELDS 50{}", names("f")), false),
    ] {
        let reply = exec(&mut bench, &[&gets[..], &[drops.as_str()]].concat());
        assert_eq!(!reply.starts_with("-EXECABORT "), fits, "{}", &drops[..9]);
    }
    assert!(exec(&mut bench, &[&format!("HDEL h{}", names("f"))]).ends_with(":50\r\n"));
}

/// Long values that are due go with what is written beside them: that is weighed, and cut.
#[test]
fn long_values_that_are_due_go_some_at_a_time() {
    let mut bench = mixed();
    let long = job(4 << 20);
    let each = |more: &str| (0..50).map(|n| format!(" f{n}{more}")).collect::<String>();
    let short = (0..50).map(|n| format!(" g{n}")).collect::<String>();
    for (command, reply) in [
        (format!("HSET h{}", each(" 1")), ":50\r\n".to_owned()),
        (format!("HPERSIST h FIELDS 50{short}"), format!("*50\r\n{}", ":-1\r\n".repeat(50))),
        (format!("HGETEX h EX 100 FIELDS 50{short}"), format!("*50\r\n{}", bulk("1").repeat(50))),
        (format!("HEXPIRE h 100 FIELDS 50{short}"), format!("*50\r\n{}", ":1\r\n".repeat(50))),
        (format!("HGETDEL h FIELDS 50{short}"), format!("*50\r\n{}", bulk("1").repeat(50))),
    ] {
        let name = &command[..8];
        for n in 0..50 {
            bench.reply(&format!("HSET h f{n} {long} g{n} 1"));
        }
        bench.reply(&format!("HPEXPIRE h 1000 FIELDS 50{}", each("")));
        bench.system += 2_000;
        let gets = ["HGET h blob"; 4];
        let said = exec(&mut bench, &[&gets[..], &[command.as_str()]].concat());
        assert!(said.starts_with("-EXECABORT "), "{name}");
        let (said, count) = turns(&mut bench, &command);
        assert_eq!(said, reply, "{name}");
        assert!(count > 1, "{name} {count}");
    }
}

/// Where names are replied there is room for them though there is none for copies of the values.
#[test]
fn names_are_replied_where_there_is_no_room_for_values() {
    let mut bench = Bench::of(Settings::default(), 16 << 20);
    let long = job(4 << 20);
    assert_eq!(bench.reply(&format!("HSET h blob {long}")), b":1\r\n");
    // One alone is sent from where it lies, by what lists the hash, too.
    assert!(bench.reply("HGET h blob") == bulk(&long).as_bytes());
    assert!(bench.reply("HGETALL h") == array(&["blob", &long]).as_bytes());
    assert!(bench.reply("HVALS h") == array(&[&long]).as_bytes());
    let names = array(&["blob"]);
    let scanned = format!("*2\r\n{}{names}", bulk("0"));
    for (command, expected) in [
        ("HKEYS h", names.as_str()),
        ("HRANDFIELD h 1", names.as_str()),
        ("HRANDFIELD h -1", names.as_str()),
        ("HSCAN h 0 NOVALUES", scanned.as_str()),
        ("HSCAN h 0 NOVALUES COUNT 1000 MATCH b*", scanned.as_str()),
        ("HSCAN h 0 MATCH x*", "*2\r\n$1\r\n0\r\n*0\r\n"),
    ] {
        assert_eq!(String::from_utf8(bench.reply(command)).unwrap(), expected, "{command}");
    }
    assert!(bench.reply("HSCAN h 0 MATCH b*").starts_with(b"-OOM "));
    assert_eq!(exec(&mut bench, &["HKEYS h"]), format!("*1\r\n{names}"));
}

/// A value that finds room alone is replied where that and the next find none.
#[test]
fn one_field_is_replied_where_there_is_no_room_for_two() {
    let mut bench = Bench::of(Settings { append_bytes_max: 64 << 20, ..Settings::default() }, 16 << 20);
    let bytes = 500_000;
    bench.reply(&format!("HSET h a {} b {0}", job(bytes)));
    let mut cut = 0;
    for held in (2_000_000..4_100_000).step_by(50_000) {
        // Others hold that much.
        bench.worker.store().hold(held);
        let one = bench.reply("HGET h a");
        let (both, count) = turns(&mut bench, "HMGET h a b");
        bench.worker.store().hold(-held);
        let first = both.strip_prefix("*2\r\n").expect("what finds no room is refused by itself");
        assert_eq!(first.starts_with("-OOM "), one.starts_with(b"-OOM "), "{held}");
        cut += usize::from(count > 1 && !first.starts_with("-OOM "));
    }
    assert!(cut > 0);
}
