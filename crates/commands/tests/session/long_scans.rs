//! SSCAN and ZSCAN with patterns that take long for a long member: it is matched in steps, and what is replied is of one moment.

use crate::Bench;
use crate::apart::job;
use crate::long_members::{NONE, scanned, turns};
use crate::values::{is, large_bench};
use larder_commands::{Next, Session};

const MOST: usize = 4 << 20;
const SCORED_MOST: usize = 1 << 20;
const REFUSED: &str = "-ERR pattern takes too long for a member that is longer than 16384 bytes\r\n";

/// A command replies in the turn in which it comes.
pub(crate) fn is_replied_at_once(bench: &mut Bench, command: &str) -> bool {
    let sent = bench.asked(command);
    let (_, reply, _) = bench.call(&mut Session::new(), &sent);
    !reply.is_empty()
}

/// What is in the midst of a member is found, and what is not there is not; no turn looks at more than others wait for.
#[test]
fn a_long_member_is_matched_in_steps_where_that_takes_long() {
    let mut bench = large_bench();
    let held = bench.worker.store().held_bytes();
    let (job, scored) = (job(MOST), job(SCORED_MOST));
    is(&mut bench, &format!("SADD s {job}"), ":1\r\n");
    is(&mut bench, &format!("ZADD z 14 {scored}"), ":1\r\n");
    let dear = format!("*[0-9]{}*", "?".repeat(2_000));
    let end = format!("*{}{}", "?".repeat(2_000), &job[MOST - 9..]);
    // Commas: every long run of the member has some.
    let none = format!("*{}*", "[0-9]".repeat(800));
    for (command, wanted, turns_min) in [
        ("SSCAN s 0 MATCH *a?b?c?d*", NONE.to_owned(), 20),
        ("SSCAN s 0 MATCH *,4?0?00,*", scanned(&[&job]), 20),
        ("SSCAN s 0 MATCH 0,1,2*,4?0?00,*", scanned(&[&job]), 20),
        ("SSCAN s 0 COUNT 1000 MATCH 1*,4?0?00,*", NONE.to_owned(), 3),
        (&*format!("SSCAN s 0 MATCH {dear}"), scanned(&[&job]), 3),
        (&*format!("SSCAN s 0 MATCH {end}"), scanned(&[&job]), 1),
        (&*format!("SSCAN s 0 MATCH *,4?0?00,{end}"), scanned(&[&job]), 20),
        (&*format!("SSCAN s 0 MATCH {none}"), NONE.to_owned(), 20),
        ("ZSCAN z 0 MATCH *a?b?c?d*", NONE.to_owned(), 10),
        ("ZSCAN z 0 MATCH *,1?0?00,*", scanned(&[&scored, "14"]), 10),
        ("ZSCAN z 0 NOSCORES MATCH *,1?0?00,*", scanned(&[&scored]), 10),
    ] {
        let (reply, turned, ns_max) = turns(&mut bench, command);
        let start = &command[..command.len().min(40)];
        assert!(turned >= turns_min && ns_max < 10_000_000, "{start} {turned} {ns_max}");
        assert!(reply == wanted.as_bytes(), "{start} {}", reply.len());
    }
    assert_eq!(bench.worker.store().held_bytes(), held);
    // Where there are no later turns it is an error.
    for (kind, key) in [("SSCAN", "s"), ("ZSCAN", "z")] {
        let script = format!("EVAL return{{redis.pcall('{kind}','{key}','0','MATCH','*a?b?c?d*')}} 0");
        let reply = String::from_utf8(bench.reply(&script)).unwrap();
        assert!(reply.contains(REFUSED.trim_end()), "{}", &reply[..reply.len().min(200)]);
    }
    bench.check();
}

/// Others may write while a member is matched.
#[test]
fn what_a_scan_replies_is_there_when_it_replies() {
    let mut bench = large_bench();
    let held = bench.worker.store().held_bytes();
    let job = job(MOST);
    // As long, and alike but for its end.
    let other = format!("{}xzy", &job[..MOST - 3]);
    let sent = bench.asked("SSCAN s 0 MATCH *x?y*");
    let mut session = Session::new();
    for (others, wanted) in [
        ("xay".to_owned(), scanned(&["xay"])),
        ("short".to_owned(), NONE.to_owned()),
        (other.clone(), scanned(&[&other])),
        (job[1..].to_owned(), NONE.to_owned()),
    ] {
        is(&mut bench, &format!("SADD s {job}"), ":1\r\n");
        assert_eq!(bench.turn(&mut session, &sent), (Next::Yield, Vec::new()));
        is(&mut bench, &format!("SREM s {job}"), ":1\r\n");
        is(&mut bench, &format!("SADD s {others}"), ":1\r\n");
        let (reply, turned) = bench.turns(&mut session, b"");
        assert!(reply == wanted.as_bytes() && turned > 10, "{} {turned}", reply.len());
        is(&mut bench, "DEL s", ":1\r\n");
    }
    // What has gone is not replied, nor is what is of another type.
    is(&mut bench, &format!("SADD s {job}"), ":1\r\n");
    assert_eq!(bench.turn(&mut session, &sent).0, Next::Yield);
    is(&mut bench, "SET s x", "+OK\r\n");
    let (reply, _) = bench.turns(&mut session, b"");
    assert!(reply.starts_with(b"-WRONGTYPE"), "{}", reply.len());
    drop(session);
    assert_eq!(bench.worker.store().held_bytes(), held);
    bench.check();
}

/// Of many that each take long one is matched for each cursor, and none is replied twice or left out.
#[test]
fn a_scan_comes_through_many_long_members() {
    let mut bench = large_bench();
    let held = bench.worker.store().held_bytes();
    let members: Vec<String> = (0..12).map(|n| format!("{}<{n:02}>", job(100_000))).collect();
    is(&mut bench, &format!("SADD s {} a b c", members.join(" ")), ":15\r\n");
    let pairs: String = members.iter().map(|member| format!(" 1 {member}")).collect();
    is(&mut bench, &format!("ZADD z 1 a 1 b{pairs}"), ":14\r\n");
    let (all, odd) = ("[0-9,]".repeat(600), "[0-9,]".repeat(600) + "<[01][13579]>");
    for (scan, pattern, count) in [
        ("SSCAN s", format!("*{all}*"), 12),
        ("SSCAN s", format!("*{odd}*"), 6),
        ("ZSCAN z", format!("*{all}*"), 12),
        ("ZSCAN z", format!("*{odd}*"), 6),
    ] {
        let (mut cursor, mut bytes) = ("0".to_owned(), 0);
        loop {
            let (reply, _, ns_max) = turns(&mut bench, &format!("{scan} {cursor} COUNT 100 MATCH {pattern}"));
            let start = String::from_utf8_lossy(&reply[..reply.len().min(80)]).into_owned();
            assert!(start.starts_with("*2\r\n") && ns_max < 10_000_000, "{start} {ns_max}");
            cursor = start.split("\r\n").nth(2).expect("a cursor").to_owned();
            bytes += reply.len();
            if cursor == "0" {
                break;
            }
        }
        // Beside them there are cursors and scores.
        assert_eq!(bytes / members[0].len(), count, "{scan} {bytes}");
    }
    assert_eq!(bench.worker.store().held_bytes(), held);
    bench.check();
}

/// One byte less than is matched in one step, as many, and one more.
#[test]
fn a_member_is_matched_in_one_step_up_to_six_milliseconds() {
    let mut bench = large_bench();
    // Four nanoseconds a byte, and 170.
    for (bytes, fits) in [(1_499_956, true), (1_499_957, true), (1_499_958, false)] {
        is(&mut bench, &format!("SADD s {}", job(bytes)), ":1\r\n");
        assert_eq!(is_replied_at_once(&mut bench, "SSCAN s 0 MATCH *a?b*"), fits, "{bytes}");
        let (reply, _, ns_max) = turns(&mut bench, "SSCAN s 0 MATCH *a?b*");
        assert_eq!(String::from_utf8_lossy(&reply), NONE, "{bytes}");
        assert!(ns_max < 10_000_000, "{bytes} {ns_max}");
        is(&mut bench, "DEL s", ":1\r\n");
    }
    bench.check();
}
