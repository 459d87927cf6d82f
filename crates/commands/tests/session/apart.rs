//! Elements of lists that are longer than a leaf, by every command that has to do with one.

use crate::bench;
use larder_commands::Session;

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn array(texts: &[&str]) -> String {
    let all: String = texts.iter().map(|text| bulk(text)).collect();
    format!("*{}\r\n{all}", texts.len())
}

/// A text without a part that comes twice at the same distance from an end of it.
fn job(bytes: usize) -> String {
    let mut text: String = (0..).map(|n| format!("{n},")).take(bytes / 2 + 1).collect();
    text.truncate(bytes);
    text
}

#[test]
fn long_elements_are_pushed_read_moved_and_popped() {
    let mut bench = bench();
    // A worker that has run a script holds room for the keys that it names.
    bench.reply("EVAL return{redis.call('exists','l')} 0");
    let held = bench.worker.store().held_bytes();
    for bytes in [16_340, 16_357, 16_358, 16_400, 20_000, 100_000, 400_000, 1 << 20] {
        let (job, other) = (job(bytes), job(bytes - 1) + "!");
        let mut is = |command: &str, expected: &str| {
            let reply = bench.reply(command);
            let (start, wanted) = (&command[..command.len().min(40)], &expected[..expected.len().min(80)]);
            assert!(
                reply == expected.as_bytes(),
                "{bytes}: {start}: {} for {wanted}",
                String::from_utf8_lossy(&reply[..reply.len().min(80)])
            );
        };
        is(&format!("RPUSH l a {job} b"), ":3\r\n");
        is("LRANGE l 0 -1", &array(&["a", &job, "b"]));
        is("LRANGE l 1 1", &array(&[&job]));
        is("LINDEX l 1", &bulk(&job));
        is("LINDEX l -2", &bulk(&job));
        is(&format!("LPOS l {job}"), ":1\r\n");
        is(&format!("LPOS l {other}"), "$-1\r\n");
        is(&format!("LINSERT l BEFORE {job} c"), ":4\r\n");
        is(&format!("LINSERT l AFTER {job} {other}"), ":5\r\n");
        is(&format!("LSET l 0 {job}"), "+OK\r\n");
        is("LRANGE l 0 -1", &array(&[&job, "c", &job, &other, "b"]));
        is("COPY l copied", ":1\r\n");
        is("RENAME copied m", "+OK\r\n");
        is(&format!("LREM m -1 {job}"), ":1\r\n");
        is("LRANGE m 0 -1", &array(&[&job, "c", &other, "b"]));
        is("LMOVE m n LEFT RIGHT", &bulk(&job));
        is("LMOVE m m LEFT RIGHT", &bulk("c"));
        is("RPOPLPUSH n n", &bulk(&job));
        is("BLMOVE n n RIGHT LEFT 0", &bulk(&job));
        is("BLPOP n 0", &array(&["n", &job]));
        is("EXISTS n", ":0\r\n");
        is("LMPOP 1 m LEFT COUNT 2", &format!("*2\r\n{}{}", bulk("m"), array(&[&other, "b"])));
        is("RPOP m", &bulk("c"));
        is("SORT l BY nosort", &array(&[&job, "c", &job, &other, "b"]));
        is("LTRIM l 1 3", "+OK\r\n");
        is("LPOP l 2", &array(&["c", &job]));
        is("LPUSHX l a", ":2\r\n");
        is("OBJECT ENCODING l", &bulk("quicklist"));
        is("COPY l sorted", ":1\r\n");
        is("SORT sorted BY nosort STORE sorted", ":2\r\n");
        is("LRANGE sorted 0 -1", &array(&["a", &other]));
        is(
            "SORT sorted ALPHA DESC",
            &array(&if other.as_str() > "a" { [&other, "a"] } else { ["a", &other] }),
        );
        is("DEL sorted", ":1\r\n");
        is("EVAL return{redis.call('lindex','l',1),redis.call('lrange','l',0,0)} 0", &{
            let mut nested = format!("*2\r\n{}", bulk(&other));
            nested += &array(&["a"]);
            nested
        });
        is("RPOP l", &bulk(&other));
        is("LPOP l", &bulk("a"));
        is("LPOP l", "$-1\r\n");
        is(&format!("RPUSH l {job} {job} {job}"), ":3\r\n");
        let mut session = Session::new();
        for (command, expected) in [
            ("MULTI", "+OK\r\n".to_owned()),
            ("LINDEX l 0", "+QUEUED\r\n".to_owned()),
            ("LPOP l", "+QUEUED\r\n".to_owned()),
            ("LMOVE l l LEFT RIGHT", "+QUEUED\r\n".to_owned()),
            ("LRANGE l 0 -1", "+QUEUED\r\n".to_owned()),
            ("EXEC", format!("*4\r\n{}{}", bulk(&job).repeat(3), array(&[&job, &job]))),
        ] {
            let sent = bench.asked(command);
            let (reply, _) = bench.turns(&mut session, &sent);
            assert!(reply == expected.as_bytes(), "{bytes}: {command}");
        }
        assert_eq!(bench.reply("DEL l"), b":1\r\n");
    }
    assert_eq!(bench.worker.store().held_bytes(), held);
    let store = std::sync::Arc::clone(bench.worker.store());
    drop(bench);
    store.check();
}

/// Lists with long elements are dumped and restored, have one digest, and say what they take.
#[test]
fn lists_of_long_elements_are_dumped_restored_and_told_apart() {
    let mut bench = bench();
    let (long, longer) = (job(20_000), job(300_000));
    bench.reply(&format!("RPUSH l a {long} 7 {longer} {longer} b"));
    let bytes = 20_000 + 2 * 300_000;
    let usage = String::from_utf8(bench.reply("MEMORY USAGE l")).unwrap();
    let usage: usize = usage[1..usage.len() - 2].parse().unwrap();
    assert!((bytes..bytes + bytes / 10).contains(&usage), "{usage}");
    let digest = bench.reply("DEBUG DIGEST-VALUE l");
    let dumped = bench.reply("DUMP l");
    let start = dumped.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let payload = &dumped[start..dumped.len() - 2];
    let restore = |key: &str, payload: &[u8]| {
        let mut request =
            format!("*4\r\n$7\r\nRESTORE\r\n${}\r\n{key}\r\n$1\r\n0\r\n", key.len()).into_bytes();
        request.extend_from_slice(format!("${}\r\n", payload.len()).as_bytes());
        request.extend_from_slice(payload);
        request.extend_from_slice(b"\r\n");
        request
    };
    let (reply, _) = bench.turns(&mut Session::new(), &restore("m", payload));
    assert_eq!(reply, b"+OK\r\n");
    assert_eq!(bench.reply("LRANGE m 0 -1"), array(&["a", &long, "7", &longer, &longer, "b"]).as_bytes());
    assert_eq!(bench.reply("DEBUG DIGEST-VALUE m"), digest);
    bench.reply("LSET m 3 other");
    assert_ne!(bench.reply("DEBUG DIGEST-VALUE m"), digest);
    assert_eq!(bench.reply("RENAME l m"), b"+OK\r\n");
    assert_eq!(bench.reply("DUMP m"), dumped);
    // One that is cut short leaves nothing.
    for bytes in [1, 9, 10, 11, 5_000, 25_000, 299_000, payload.len() - 11] {
        let (reply, _) = bench.turns(&mut Session::new(), &restore("n", &payload[..payload.len() - bytes]));
        assert!(reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
        assert_eq!(bench.reply("EXISTS n"), b":0\r\n");
    }
    let store = std::sync::Arc::clone(bench.worker.store());
    drop(bench);
    store.check();
}

/// EXEC weighs what long elements take: reading a few is done, and many at once is refused before anything is done.
#[test]
fn a_transaction_weighs_long_elements() {
    let mut bench = bench();
    let job = job(1 << 20);
    for _ in 0..8 {
        bench.reply(&format!("RPUSH l {job}"));
    }
    let mut exec = |commands: &[&str]| {
        let mut sent = bench.asked("MULTI");
        commands.iter().for_each(|command| sent.extend(bench.asked(command)));
        sent.extend(bench.asked("EXEC"));
        bench.turns(&mut Session::new(), &sent).0
    };
    let few = exec(&["LLEN l", "LMOVE l l LEFT RIGHT", "LINDEX l 0"]);
    assert!(few.ends_with(&bulk(&job).into_bytes()));
    let moves = vec!["LMOVE l l LEFT RIGHT"; 400];
    let many = exec(&moves);
    assert!(
        many.windows(10).any(|text| text == b"-EXECABORT"),
        "{}",
        String::from_utf8_lossy(&many[many.len() - 200..])
    );
}

/// Many elements that are nearly one are compared in steps.
#[test]
fn long_elements_that_are_nearly_alike_are_looked_through_in_steps() {
    let mut bench = bench();
    let front = job(100_000);
    let elements: Vec<String> = (0..100).map(|n| format!("{front}{:03}", n % 50)).collect();
    for element in &elements {
        bench.reply(&format!("RPUSH l {element}"));
    }
    let text = |n: usize| &elements[n];
    assert_eq!(bench.reply(&format!("LPOS l {}", text(49))), b":49\r\n");
    assert_eq!(bench.reply(&format!("LPOS l {} RANK -1", text(7))), b":57\r\n");
    assert_eq!(bench.reply(&format!("LPOS l {} COUNT 0", text(0))), b"*2\r\n:0\r\n:50\r\n");
    assert_eq!(bench.reply(&format!("LINSERT l AFTER {} x", text(49))), b":101\r\n");
    assert_eq!(bench.reply("LINDEX l 50"), b"$1\r\nx\r\n");
    assert_eq!(bench.reply(&format!("LREM l 0 {}", text(49))), b":2\r\n");
    assert_eq!(bench.reply(&format!("LREM l -1 {}", text(3))), b":1\r\n");
    assert_eq!(bench.reply(&format!("LPOS l {} COUNT 0", text(3))), b"*1\r\n:3\r\n");
    assert_eq!(bench.reply("LTRIM l 90 -1"), b"+OK\r\n");
    assert_eq!(bench.reply("LLEN l"), b":8\r\n");
}

/// What many replies of long elements take is charged, and where that is too much nothing is popped.
#[test]
fn an_element_for_which_there_is_no_room_stays() {
    let mut bench = bench();
    let job = job(1 << 20);
    let count = bench.worker.store().held_bytes_max() >> 20;
    for n in 1..=count + 2 {
        assert_eq!(bench.reply(&format!("RPUSH l {job}")), format!(":{n}\r\n").as_bytes());
    }
    let held = b"-OOM connections hold as much memory as they may\r\n";
    for command in ["LPOP l 1000", "LRANGE l 0 -1", "LMPOP 1 l LEFT COUNT 1000"] {
        assert_eq!(bench.reply(command), held, "{command}");
        assert_eq!(bench.reply("LLEN l"), format!(":{}\r\n", count + 2).as_bytes());
    }
    // Many in one request, none of which is taken before there is room.
    let sent = bench.asked("LPOP l").repeat(count as usize + 2);
    let (replies, _) = bench.turns(&mut Session::new(), &sent);
    let popped = replies.windows(9).filter(|start| start == b"$1048576\r").count();
    let refused = replies.windows(held.len()).filter(|line| line == held).count();
    assert_eq!(popped + refused, count as usize + 2);
    assert_eq!(bench.reply("LLEN l"), format!(":{refused}\r\n").as_bytes());
}
