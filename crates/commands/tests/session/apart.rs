//! Elements of lists that are longer than a leaf, by every command that has to do with one.

use crate::named::exec;
use crate::{Bench, START, bench};
use larder_commands::{Next, Session, Settings};
use larder_testkit::talk::encode;

pub(crate) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

pub(crate) fn array(texts: &[&str]) -> String {
    let all: String = texts.iter().map(|text| bulk(text)).collect();
    format!("*{}\r\n{all}", texts.len())
}

/// A text without a part that comes twice at the same distance from an end of it.
pub(crate) fn job(bytes: usize) -> String {
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
    // Room for the replies of what a script calls is kept between runs.
    assert!(bench.worker.store().held_bytes() <= held + (16 << 10));
    bench.check();
}

/// What `key` has of elements of 20,000 and twice 300,000 bytes is what it takes; `m`, which is restored of its payload, `shows`
/// the same, and has another digest behind `change`; of a payload that is cut short nothing is left.
pub(crate) fn is_dumped_restored_and_told_apart(
    mut bench: Bench,
    key: &str,
    shows: impl FnOnce(&mut Bench),
    change: &str,
) {
    let bytes = 20_000 + 2 * 300_000;
    let usage = String::from_utf8(bench.reply(&format!("MEMORY USAGE {key}"))).unwrap();
    let usage: usize = usage[1..usage.len() - 2].parse().unwrap();
    assert!((bytes..bytes + bytes / 10).contains(&usage), "{usage}");
    let digest = bench.reply(&format!("DEBUG DIGEST-VALUE {key}"));
    let dumped = bench.reply(&format!("DUMP {key}"));
    let start = dumped.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let payload = &dumped[start..dumped.len() - 2];
    let restore = |bench: &mut Bench, key: &[u8], payload: &[u8]| {
        bench.turns(&mut Session::new(), &encode(&[b"RESTORE", key, b"0", payload])).0
    };
    assert_eq!(restore(&mut bench, b"m", payload), b"+OK\r\n");
    shows(&mut bench);
    assert_eq!(bench.reply("DEBUG DIGEST-VALUE m"), digest);
    bench.reply(change);
    assert_ne!(bench.reply("DEBUG DIGEST-VALUE m"), digest);
    assert_eq!(bench.reply(&format!("RENAME {key} m")), b"+OK\r\n");
    assert_eq!(bench.reply("DUMP m"), dumped);
    for bytes in [1, 9, 10, 11, 5_000, 25_000, 299_000, payload.len() - 11] {
        let reply = restore(&mut bench, b"n", &payload[..payload.len() - bytes]);
        assert!(reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
        assert_eq!(bench.reply("EXISTS n"), b":0\r\n");
    }
    bench.check();
}

/// Lists with long elements are dumped and restored, have one digest, and say what they take.
#[test]
fn lists_of_long_elements_are_dumped_restored_and_told_apart() {
    let mut bench = bench();
    let (long, longer) = (job(20_000), job(300_000));
    bench.reply(&format!("RPUSH l a {long} 7 {longer} {longer} b"));
    let elements = array(&["a", &long, "7", &longer, &longer, "b"]);
    let shows = |bench: &mut Bench| assert_eq!(bench.reply("LRANGE m 0 -1"), elements.as_bytes());
    is_dumped_restored_and_told_apart(bench, "l", shows, "LSET m 3 other");
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

/// EXEC weighs the elements that LRANGE names, not the longest of their list, unless its commands may change it.
#[test]
fn exec_weighs_the_elements_at_places() {
    let mut bench = large_bench();
    bench.reply("RPUSH l a b c d e f");
    let long = job(4 << 20);
    (0..6).for_each(|_| drop(bench.reply(&format!("RPUSH l {long}"))));
    let short = array(&["a", "b", "c", "d", "e"]);
    assert_eq!(exec(&mut bench, &["LRANGE l 0 4"]), format!("*1\r\n{short}"));
    assert_eq!(exec(&mut bench, &["LRANGE l 0 4"; 3]), format!("*3\r\n{}", short.repeat(3)));
    for (commands, fits) in [
        (&["LRANGE l 0 8"][..], true),
        (&["LRANGE l -5 -1"][..], false),
        (&["LRANGE l 0 -1"][..], false),
        (&["LPUSH l x", "LRANGE l 0 4"][..], false),
    ] {
        assert_eq!(!exec(&mut bench, commands).starts_with("-EXECABORT "), fits, "{commands:?}");
    }
}

/// EXEC weighs that the parts of what was in a place are given back.
#[test]
fn exec_weighs_what_lset_takes_the_place_of() {
    let mut bench = large_bench();
    assert_eq!(bench.reply(&format!("RPUSH l {}", job(4 << 20))), b":1\r\n");
    assert_eq!(bench.reply("RPUSH l b"), b":2\r\n");
    for (count, fits) in [(100, true), (300, false)] {
        let sets = vec!["LSET l 1 c"; count];
        assert_eq!(!exec(&mut bench, &sets).starts_with("-EXECABORT "), fits, "{count}");
    }
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
    assert_eq!(bench.reply("LRANGE l 0 -1"), held);
    assert_eq!(bench.reply("LLEN l"), format!(":{}\r\n", count + 2).as_bytes());
    // Many in one request, none of which is taken before there is room.
    let sent = bench.asked("LPOP l").repeat(count as usize + 2);
    let (replies, _) = bench.turns(&mut Session::new(), &sent);
    let popped = replies.windows(9).filter(|start| start == b"$1048576\r").count();
    let refused = replies.windows(held.len()).filter(|line| line == held).count();
    assert_eq!(popped + refused, count as usize + 2);
    assert_eq!(bench.reply("LLEN l"), format!(":{refused}\r\n").as_bytes());
}

/// What a request comes to, turn by turn.
#[derive(Debug, Default)]
struct Turns {
    replies: Vec<u8>,
    count: usize,
    /// Work of the turn that did most.
    ns_max: u64,
    /// By so many chunks the memory in use grew in a turn, at most.
    grown_max: u64,
    /// By so many elements the list `l` grew shorter in a turn, at most.
    gone_max: u64,
}

fn turn_by_turn(bench: &mut Bench, words: &str) -> Turns {
    turn_by_turn_in_two(bench, words, usize::MAX)
}

/// The same of a request of which so many bytes come first, and the others when these are taken.
fn turn_by_turn_in_two(bench: &mut Bench, words: &str, first_bytes: usize) -> Turns {
    let len = |bench: &mut Bench| {
        let reply = String::from_utf8(bench.reply("LLEN l")).unwrap();
        reply[1..reply.len() - 2].parse::<u64>().unwrap()
    };
    let chunks = |bench: &Bench| {
        bench.worker.store().classes(START).iter().map(|class| class.used_chunks).sum::<u64>()
    };
    let (sent, mut session, mut at) = (bench.asked(words), Session::new(), 0);
    let mut end = first_bytes.min(sent.len());
    let mut turns = Turns::default();
    loop {
        let (used, there) = (chunks(bench), len(bench));
        let (next, replies, consumed) = bench.call(&mut session, &sent[at..end]);
        turns.ns_max = turns.ns_max.max(bench.room.work().done_ns());
        turns.grown_max = turns.grown_max.max(chunks(bench).saturating_sub(used));
        turns.gone_max = turns.gone_max.max(there.saturating_sub(len(bench)));
        turns.replies.extend(replies);
        turns.count += 1;
        at += consumed;
        match next {
            Next::Yield | Next::Flush => {}
            Next::Receive if end < sent.len() => end = sent.len(),
            Next::Receive => return turns,
            other => panic!("{other:?}"),
        }
    }
}

/// A bench with more memory.
fn large_bench() -> Bench {
    Bench::of(Settings::default(), 512 << 20)
}

/// What is popped, moved or stored in one turn is bounded by bytes, however many elements are asked for.
#[test]
fn no_turn_copies_more_than_some_mebibytes() {
    let mut bench = large_bench();
    let job = job(1 << 20);
    let fill = |bench: &mut Bench| {
        bench.reply("DEL l");
        (0..40).for_each(|_| drop(bench.reply(&format!("RPUSH l {job}"))));
    };
    let all = array(&[&job[..]; 30]);
    let named = format!("*2\r\n{}{all}", bulk("l"));
    for (words, expected) in [
        ("LPOP l 30", &all),
        ("RPOP l 30", &all),
        ("LMPOP 1 l LEFT COUNT 30", &named),
        ("BLMPOP 0 1 l RIGHT COUNT 30", &named),
    ] {
        fill(&mut bench);
        let turns = turn_by_turn(&mut bench, words);
        assert!(turns.replies == expected.as_bytes(), "{words}");
        assert!(
            turns.gone_max <= 4 && turns.ns_max <= 5_000_000,
            "{words}: {} {}",
            turns.gone_max,
            turns.ns_max
        );
        assert!(turns.count >= 8);
    }
    // As few as are one moment are sent from where they lie.
    let expected = format!("*2\r\n{}{}", bulk("l"), array(&[&job[..]; 3]));
    for words in ["LMPOP 1 l LEFT COUNT 3", "BLMPOP 0 1 l RIGHT COUNT 3"] {
        fill(&mut bench);
        let turns = turn_by_turn(&mut bench, words);
        assert!(turns.replies == expected.as_bytes(), "{words}");
        assert!(turns.ns_max <= 1_000_000, "{words}: {}", turns.ns_max);
    }
    fill(&mut bench);
    let turns = turn_by_turn(&mut bench, "SORT l BY nosort STORE m");
    assert_eq!(turns.replies, b":40\r\n");
    // Each has 65.
    assert!(turns.grown_max <= 4 * 66 && turns.ns_max <= 2_000_000, "{} {}", turns.grown_max, turns.ns_max);
    assert_eq!(bench.reply("LLEN m"), b":40\r\n");
    let push = format!("LPUSH l {job}");
    for words in [&format!("LSET l 0 {job}"), &push] {
        let turns = turn_by_turn(&mut bench, words);
        assert!(turns.ns_max >= 500_000 && turns.count <= 2, "{}: {}", &words[..6], turns.ns_max);
    }
    // It is sent from where it lies, and stays there when it is moved, and one that is not whole when it begins is received where
    // it will lie.
    for words in ["LINDEX l 0", "LMOVE l l LEFT RIGHT", "LMOVE l m LEFT RIGHT", "LPOP l", &push] {
        let turns = turn_by_turn_in_two(&mut bench, words, 64 << 10);
        assert!(turns.ns_max <= 250_000 && turns.count <= 2, "{}: {}", &words[..5], turns.ns_max);
    }
    bench.check();
}

/// In a script, which is one moment: at the bytes of one, one below, and one above.
#[test]
fn lmpop_of_a_script_takes_as_many_as_are_one_moment() {
    // Of what lies in the input all words of a push in steps are kept.
    let mut bench = crate::values::large_bench();
    for (bytes, taken) in [((2 << 20) - 1, 2), (2 << 20, 2), ((2 << 20) + 1, 1)] {
        let (one, other) = (job(2 << 20), job(bytes));
        for end in ["LEFT", "RIGHT"] {
            for (n, word) in [&one, &other, &one, &other].into_iter().enumerate() {
                assert_eq!(bench.reply(&format!("RPUSH l {word}")), format!(":{}\r\n", n + 1).as_bytes());
            }
            let words = format!("EVAL return(redis.call('LMPOP',1,'l','{end}','COUNT',100)) 0");
            let popped = bench.reply(&words);
            let expected = format!("*2\r\n$1\r\nl\r\n*{taken}\r\n");
            assert!(popped.starts_with(expected.as_bytes()), "{bytes} {end}");
            assert_eq!(bench.reply("LLEN l"), format!(":{}\r\n", 4 - taken).as_bytes());
            bench.reply("DEL l");
        }
    }
    // One that is alone is taken however long it is, and short ones as ever.
    let longest = job(4 << 20);
    assert_eq!(bench.reply(&format!("RPUSH l {longest} a b")), b":3\r\n");
    let words = "EVAL return(redis.call('LMPOP',1,'l','LEFT','COUNT',3)) 0";
    assert!(bench.reply(words).starts_with(b"*2\r\n$1\r\nl\r\n*1\r\n$4194304\r\n"));
    let short = format!("*2\r\n{}{}", bulk("l"), array(&["a", "b"]));
    assert_eq!(bench.reply(words), short.as_bytes());
    // Outside of it all are taken.
    assert_eq!(bench.reply(&format!("RPUSH l {longest} a b")), b":3\r\n");
    let all = format!("*2\r\n{}{}", bulk("l"), array(&[&longest, "a", "b"]));
    assert!(bench.reply("LMPOP 1 l LEFT COUNT 3") == all.as_bytes());
}

/// A client that waits is given an element of any length, by whichever command it waits.
#[test]
fn a_client_that_waits_is_given_an_element_of_any_length() {
    let mut bench = bench();
    bench.reply("EVAL return{redis.call('exists','l')} 0");
    let held = bench.worker.store().held_bytes();
    for bytes in [200_000, 262_000, 262_144, 300_000, 1 << 20, 4 << 20] {
        let job = job(bytes);
        let some = format!("*2\r\n{}{}", bulk("q"), array(&[&job]));
        for (waits, expected) in [
            ("BLMOVE q w LEFT RIGHT 0", bulk(&job)),
            ("BRPOPLPUSH q w 0", bulk(&job)),
            ("BLPOP q 0", array(&["q", &job])),
            ("BRPOP q 0", array(&["q", &job])),
            ("BLMPOP 0 1 q LEFT COUNT 3", some),
        ] {
            let mut waiter = Session::new();
            let sent = bench.asked(waits);
            assert_eq!(bench.turn(&mut waiter, &sent), (Next::Await(None), Vec::new()));
            assert_eq!(bench.reply(&format!("RPUSH q {job}")), b":1\r\n");
            let (reply, _) = bench.turns(&mut waiter, b"");
            let shown = String::from_utf8_lossy(&reply[..reply.len().min(80)]).into_owned();
            assert!(reply == expected.as_bytes(), "{waits} of {bytes}: {shown}");
            assert_eq!(bench.reply("EXISTS q"), b":0\r\n");
            if waits.contains(" w ") {
                assert!(bench.reply("LPOP w") == bulk(&job).as_bytes(), "{waits} of {bytes}");
            }
            assert_eq!(bench.reply("EXISTS w"), b":0\r\n");
        }
    }
    assert_eq!(bench.worker.store().held_bytes(), held);
    bench.check();
}

/// Clients that wait for long elements are served some at a time, as what they are given is pinned, and each has its own.
#[test]
fn those_that_wait_for_long_elements_are_served_some_at_a_time() {
    let mut bench = large_bench();
    let job = job(1 << 20);
    let mut waiters: Vec<Session> = (0..10)
        .map(|_| {
            let mut waiter = Session::new();
            let sent = bench.asked("BLPOP l 0");
            assert_eq!(bench.turn(&mut waiter, &sent), (Next::Await(None), Vec::new()));
            waiter
        })
        .collect();
    let mut sent = bench.asked("MULTI");
    let push = bench.asked(&format!("RPUSH l {job}"));
    (0..10).for_each(|_| sent.extend(&push));
    sent.extend(bench.asked("EXEC"));
    bench.turns(&mut Session::new(), &sent);
    assert_ne!(bench.reply("LLEN l"), b":0\r\n", "all were served in one turn");
    for waiter in &mut waiters {
        let (mut reply, whole) = (Vec::new(), array(&["l", &job]));
        while reply.len() < whole.len() {
            reply.extend(bench.turn(waiter, b"").1);
            assert!(bench.room.work().done_ns() <= 5_000_000);
        }
        assert!(reply == whole.as_bytes());
    }
    assert_eq!(bench.reply("EXISTS l"), b":0\r\n");
}

/// A push of up to 1 MiB is one moment, with long words among short ones, too.
#[test]
fn a_push_of_a_mebibyte_is_one_moment() {
    let moment = 1 << 20;
    let mut bench = bench();
    for (long, each) in [(30_000, 10), (40_000, 40_000), (17_000, 17_000), (600_000, 100)] {
        for more in [-1_isize, 0, 1] {
            // One long word, and as many others as there is room for, the last of which fills it.
            let mut words = vec![job(long)];
            let (first, other) = (bulk(&words[0]).len(), bulk(&job(each)).len());
            let others = (moment - first - 3 * each.max(100)).div_ceil(other).min(3_999);
            words.resize(1 + others, job(each));
            let left = moment - first - others * other;
            let mut last = left.saturating_add_signed(more) - 6;
            while bulk(&job(last)).len() > left.saturating_add_signed(more) {
                last -= 1;
            }
            words.push(job(last));
            let encoded = words.iter().map(|word| bulk(word).len()).sum::<usize>();
            assert_eq!(encoded, left.saturating_add_signed(more) + moment - left);
            let sent = bench.asked(&format!("RPUSH l {}", words.join(" ")));
            let mut session = Session::new();
            let (_, _, consumed) = bench.call(&mut session, &sent);
            let whole = format!(":{}\r\n", words.len());
            let is_whole = bench.reply("LLEN l") == whole.as_bytes();
            // The longest says how many come at a time.
            assert_eq!(is_whole, more <= 0, "{long} {each} {more}");
            let replies = bench.turns(&mut session, &sent[consumed..]).0;
            assert!(is_whole || replies == whole.as_bytes());
            assert_eq!(bench.reply("DEL l"), b":1\r\n");
        }
    }
}

/// A long element that was popped for a client that has gone is put back.
#[test]
fn a_long_element_goes_back_where_its_client_has_gone() {
    let mut bench = bench();
    let job = job(300_000);
    for waits in ["BLPOP l 0", "BLMPOP 0 1 l LEFT COUNT 2"] {
        let mut waiter = Session::new();
        let sent = bench.asked(waits);
        assert_eq!(bench.turn(&mut waiter, &sent), (Next::Await(None), Vec::new()));
        bench.reply(&format!("RPUSH l {job}"));
        assert_eq!(bench.reply("EXISTS l"), b":0\r\n");
        bench.ended(waiter);
        assert!(bench.reply("LPOP l") == bulk(&job).as_bytes());
    }
    // Among short ones, in their order.
    let (other, elements) = (self::job(20_000), |bench: &mut Bench| bench.reply("LRANGE l 0 -1"));
    let all = array(&["a", &job, "b", &other]);
    for waits in ["BLMPOP 0 1 l LEFT COUNT 3", "BLMPOP 0 1 l RIGHT COUNT 4", "BRPOP l 0"] {
        let mut waiter = Session::new();
        let sent = bench.asked(waits);
        assert_eq!(bench.turn(&mut waiter, &sent), (Next::Await(None), Vec::new()));
        bench.reply(&format!("RPUSH l a {job} b {other}"));
        assert!(elements(&mut bench) != all.as_bytes());
        bench.ended(waiter);
        assert!(elements(&mut bench) == all.as_bytes(), "{waits}");
        assert_eq!(bench.reply("DEL l"), b":1\r\n");
    }
    let members = format!("*4\r\n{}{}{}{}", bulk(&job), bulk("1"), bulk("a"), bulk("2"));
    for waits in ["BZMPOP 0 1 z MIN COUNT 2", "BZPOPMIN z 0"] {
        let mut waiter = Session::new();
        let sent = bench.asked(waits);
        assert_eq!(bench.turn(&mut waiter, &sent), (Next::Await(None), Vec::new()));
        bench.reply(&format!("ZADD z 1 {job} 2 a"));
        bench.ended(waiter);
        assert!(bench.reply("ZRANGE z 0 -1 WITHSCORES") == members.as_bytes(), "{waits}");
        assert_eq!(bench.reply("DEL z"), b":1\r\n");
    }
    assert!(!bench.shared.has_left());
    bench.check();
}
