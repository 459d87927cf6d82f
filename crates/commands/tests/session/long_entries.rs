//! Entries of streams that are longer than a leaf, by every command that has to do with one: what they are, and how much of them
//! is one step.

use crate::apart::{self, array, is_dumped_restored_and_told_apart, job};
use crate::named::exec;
use crate::streams::{bulk, frame};
use crate::values::large_bench;
use crate::{Bench, START, bench, slices};
use larder_commands::{Next, Session};
use larder_testkit::redis::forms::{self, Words, sealed};
use larder_testkit::talk::encode;

/// What is replied of an entry.
fn told(id: &str, words: &[&str]) -> String {
    format!("*2\r\n{}{}", apart::bulk(id), array(words))
}

/// What is replied of some entries of a stream with a name of one letter, by commands that read several.
fn read_of(name: &str, entries: &[&str]) -> String {
    format!("*1\r\n*2\r\n{}*{}\r\n{}", apart::bulk(name), entries.len(), entries.concat())
}

#[test]
fn entries_longer_than_a_leaf_are_put_told_delivered_and_taken_out() {
    let mut bench = bench();
    let held = bench.worker.store().held_bytes();
    for bytes in [1_000, 8_050, 16_100, 16_150, 16_200, 16_217, 16_376, 16_384, 32_433, 100_000, 1 << 20] {
        let job = job(bytes);
        let long = told("1-1", &["type", "a", "body", &job, "n", "7"]);
        let twice = told("2-1", &["body", &job, "reply", &job]);
        let short = told("3-1", &["body", "short"]);
        let three = format!("*3\r\n{long}{twice}{short}");
        let mut is = |command: &str, expected: &str| {
            let reply = bench.reply(command);
            let start = &command[..command.len().min(60)];
            let shown = String::from_utf8_lossy(&reply[..reply.len().min(80)]);
            assert!(reply == expected.as_bytes(), "{bytes}: {start}: {shown}");
        };
        is(&format!("XADD s 1-1 type a body {job} n 7"), &apart::bulk("1-1"));
        is(&format!("XADD s 2-1 body {job} reply {job}"), &apart::bulk("2-1"));
        is("XADD s 3-1 body short", &apart::bulk("3-1"));
        is("XRANGE s - +", &three);
        is("XREVRANGE s + -", &format!("*3\r\n{short}{twice}{long}"));
        is("XRANGE s 2 2", &format!("*1\r\n{twice}"));
        is("XREAD STREAMS s 1-1", &read_of("s", &[&twice, &short]));
        is("XGROUP CREATE s g 0", "+OK\r\n");
        is("XREADGROUP GROUP g alice COUNT 2 STREAMS s >", &read_of("s", &[&long, &twice]));
        is("XREADGROUP GROUP g alice STREAMS s 0", &read_of("s", &[&long, &twice]));
        is("XCLAIM s g bob 0 2-1", &format!("*1\r\n{twice}"));
        is("XAUTOCLAIM s g carol 0 0", &format!("*3\r\n{}*2\r\n{long}{twice}*0\r\n", apart::bulk("0-0")));
        is("XACK s g 1-1", ":1\r\n");
        is("COPY s t", ":1\r\n");
        is("XDEL s 2-1", ":1\r\n");
        is("XRANGE s - +", &format!("*2\r\n{long}{short}"));
        is("XRANGE t - +", &three);
        is("XADD s MAXLEN 1 4-1 body x", &apart::bulk("4-1"));
        is("XRANGE s - +", &format!("*1\r\n{}", told("4-1", &["body", "x"])));
        is("XTRIM t MAXLEN 1", ":2\r\n");
        is("XRANGE t - +", &format!("*1\r\n{short}"));
        is(&format!("XADD t MAXLEN 2 9-1 f {job}"), &apart::bulk("9-1"));
        is("XRANGE t 9 9", &format!("*1\r\n{}", told("9-1", &["f", &job])));
        assert!(bench.reply("XINFO STREAM t").ends_with(told("9-1", &["f", &job]).as_bytes()));
        assert_eq!(bench.reply("DEL s t"), b":2\r\n");
    }
    assert_eq!(bench.worker.store().held_bytes(), held);
    let (name, job) = ("n".repeat(16_400), job(2_200_000));
    for words in [format!("XADD s * {name} v"), format!("XADD s * a {job} b {job}")] {
        assert!(bench.reply(&words).starts_with(b"-ERR collection exceeds maximum allowed size"));
        assert_eq!(bench.reply("EXISTS s"), b":0\r\n");
    }
    bench.check();
}

#[test]
fn who_waits_is_given_a_long_entry() {
    let mut bench = bench();
    let job = job(100_000);
    bench.text_of("XGROUP CREATE s g $ MKSTREAM");
    let mut reader = bench.waiter_of("XREAD BLOCK 0 STREAMS s $");
    let mut one = bench.waiter_of("XREADGROUP GROUP g one BLOCK 0 STREAMS s >");
    bench.reply(&format!("XADD s 1-1 f {job}"));
    let expected = read_of("s", &[&told("1-1", &["f", &job])]);
    for waiter in [&mut reader, &mut one] {
        let (_, reply) = bench.looked(waiter);
        assert!(reply == expected, "{}", &reply[..reply.len().min(80)]);
    }
}

/// What is given is copied for each: of ten clients that wait for a mebibyte one is served in the turn in which it comes, and
/// the others in their own.
#[test]
fn those_that_wait_for_a_long_entry_are_served_some_at_a_time() {
    let mut bench = large_bench();
    let job = job(1 << 20);
    let mut waiters: Vec<Session> = (0..10).map(|_| bench.waiter_of("XREAD BLOCK 0 STREAMS s $")).collect();
    let held = bench.worker.store().held_bytes();
    bench.reply(&format!("XADD s 1-1 f {job}"));
    let grown = bench.worker.store().held_bytes().saturating_sub(held);
    assert!(grown < 6 << 20, "{grown}");
    let whole = read_of("s", &[&told("1-1", &["f", &job])]);
    for waiter in &mut waiters {
        let mut reply = Vec::new();
        for _ in 0..1_000 {
            reply.extend(bench.turn(waiter, b"").1);
            assert!(bench.room.work().done_ns() <= 5_000_000);
            if reply.len() >= whole.len() {
                break;
            }
        }
        assert!(reply == whole.as_bytes(), "{}", String::from_utf8_lossy(&reply[..reply.len().min(80)]));
    }
}

#[test]
fn a_transaction_puts_and_reads_long_entries() {
    let mut bench = bench();
    let job = job(100_000);
    let put = format!("XADD s 1-1 f {job}");
    let words = ["MULTI", &put, "XRANGE s - +", "XDEL s 1-1", "XLEN s", "EXEC"];
    let sent = words.map(|words| bench.asked(words)).concat();
    let (reply, _) = bench.turns(&mut Session::new(), &sent);
    let queued = format!("+OK\r\n{}*4\r\n{}", "+QUEUED\r\n".repeat(4), apart::bulk("1-1"));
    let expected = format!("{queued}*1\r\n{}:1\r\n:0\r\n", told("1-1", &["f", &job]));
    assert!(reply == expected.as_bytes(), "{}", String::from_utf8_lossy(&reply[..reply.len().min(200)]));
}

/// What EXEC replies to these commands, and what is spent in it beside the 2 ns for each byte that a request replies, which are
/// spent behind it.
fn exec_and_ns(bench: &mut Bench, commands: &[&str]) -> (String, u64) {
    let sent: Vec<u8> = commands.iter().flat_map(|command| bench.asked(command)).collect();
    let sent = [bench.asked("MULTI"), sent, bench.asked("EXEC")].concat();
    let (replies, ns_max) = dearest_turn(bench, &sent);
    let queued = format!("+OK\r\n{}", "+QUEUED\r\n".repeat(commands.len()));
    let replies = String::from_utf8(replies).expect("text");
    let replies = replies.strip_prefix(&queued).expect("all are queued");
    (replies.to_owned(), ns_max.saturating_sub(2 * replies.len() as u64))
}

/// EXEC weighs an entry that is read or claimed as one of the longest, in a stream where values lie apart: 4.7 ms, of which it
/// takes 4.2 to copy it, and once more to send it.
#[test]
fn exec_weighs_long_entries() {
    let mut bench = large_bench();
    let entries = long_stream(&mut bench, 20, 4 << 20);
    for (command, of_stream, tail) in [
        ("XRANGE s - + COUNT 1", false, ""),
        ("XREVRANGE s 1-0 - COUNT 1", false, ""),
        ("XREAD COUNT 1 STREAMS s 0", true, ""),
        ("XREADGROUP GROUP g a COUNT 1 STREAMS s >", true, ""),
        ("XREADGROUP GROUP g a COUNT 1 STREAMS s 0", true, ""),
        ("XCLAIM s g b 0 1-0", false, ""),
        ("XAUTOCLAIM s g b 0 1-0 COUNT 1", false, "*0\r\n"),
    ] {
        let refused = exec(&mut bench, &[command; 3]);
        assert!(refused.starts_with("-EXECABORT "), "{command}: {}", &refused[..refused.len().min(80)]);
        let (reply, ns) = exec_and_ns(&mut bench, &[command; 2]);
        let lengths = if of_stream { read_of("s", &[&entries[0]]) } else { format!("*1\r\n{}", entries[0]) };
        let whole = 2 * (lengths.len() + tail.len());
        assert!((whole..whole + 100).contains(&reply.len()), "{command}: {}", &reply[..reply.len().min(80)]);
        assert!((7_000_000..10_000_000).contains(&ns), "{command}: {ns}");
    }
    let ids: String = (1..=20).map(|n| format!(" {n}-0")).collect();
    let (delete, acknowledge) = (format!("XDEL s{ids}"), format!("XACK s g{ids}"));
    // 0.9 ms each, were all of them there.
    assert!(exec(&mut bench, &[&delete[..]; 13]).starts_with("-EXECABORT "));
    let done = exec(&mut bench, &[&acknowledge[..]; 13]);
    assert_eq!(done, format!("*13\r\n:2\r\n{}", ":0\r\n".repeat(12)));
    let done = exec(&mut bench, &[&delete[..]; 9]);
    assert_eq!(done, format!("*9\r\n:20\r\n{}", ":0\r\n".repeat(8)));
}

/// XREADGROUP of several streams copies what it has of all but the first once more: 5.5 ms for 3.5 MiB.
#[test]
fn exec_weighs_entries_of_several_streams_three_times() {
    for (entries, fits) in [(1, true), (2, false)] {
        let mut bench = large_bench();
        let long = long_stream(&mut bench, entries, 7 << 19).concat();
        bench.reply("XADD t 1-0 f v");
        assert_eq!(bench.reply("XGROUP CREATE t g 0"), b"+OK\r\n");
        let (reply, ns) = exec_and_ns(&mut bench, &["XREADGROUP GROUP g a STREAMS t s > >"]);
        assert_eq!(!reply.starts_with("-EXECABORT "), fits, "{}", &reply[..reply.len().min(80)]);
        if fits {
            let first = format!("*2\r\n{}*1\r\n{}", apart::bulk("t"), told("1-0", &["f", "v"]));
            let other = format!("*2\r\n{}*{entries}\r\n{long}", apart::bulk("s"));
            assert!(reply == format!("*1\r\n*2\r\n{first}{other}"), "{}", &reply[..reply.len().min(80)]);
            assert!((4_500_000..10_000_000).contains(&ns), "{ns}");
        }
    }
}

/// A long entry that is the first and the last is replied twice: 6.3 ms for 3 MiB.
#[test]
fn exec_weighs_the_only_entry_of_a_stream_twice() {
    let mut bench = large_bench();
    let entry = long_stream(&mut bench, 1, 3 << 20).concat();
    assert!(exec(&mut bench, &["XINFO STREAM s"; 2]).starts_with("-EXECABORT "));
    let (reply, ns) = exec_and_ns(&mut bench, &["XINFO STREAM s"]);
    assert!(reply.starts_with("*1\r\n"), "{}", &reply[..reply.len().min(80)]);
    let both = format!("first-entry\r\n{entry}$10\r\nlast-entry\r\n{entry}");
    assert_eq!(reply.matches(&both).count(), 1);
    assert!((5_000_000..10_000_000).contains(&ns), "{ns}");
    // What does not reply it does not weigh it.
    assert!(exec(&mut bench, &["XINFO GROUPS s"; 100]).starts_with("*100\r\n"));
}

#[test]
fn many_long_entries_go_at_once() {
    let mut bench = bench();
    let job = job(200_000);
    let ids: String = (1..=100).map(|n| format!(" {n}-0")).collect();
    for (words, reply, left) in [
        ("XTRIM s MAXLEN 0", Some(":100\r\n"), ":0\r\n"),
        ("XADD s MAXLEN 1 * f v", None, ":1\r\n"),
        (&*format!("XDEL s{ids}"), Some(":100\r\n"), ":0\r\n"),
    ] {
        for n in 1..=100 {
            bench.reply(&format!("XADD s {n}-0 f {job}"));
        }
        let (said, _) = bench.bounded(words);
        let is_right = reply.map_or(said.starts_with(b"$"), |reply| said == reply.as_bytes());
        assert!(is_right, "{words}: {}", String::from_utf8_lossy(&said));
        assert_eq!(bench.reply("XLEN s"), left.as_bytes(), "{words}");
        assert_eq!(bench.reply("DEL s"), b":1\r\n");
        while bench.worker.enter(START).maintain() {}
    }
    bench.check();
}

/// What a request comes to, and the work of the turn that did most.
fn dearest_turn(bench: &mut Bench, sent: &[u8]) -> (Vec<u8>, u64) {
    let (mut session, mut replies, mut at, mut ns_max) = (Session::new(), Vec::new(), 0, 0);
    loop {
        let (next, more, consumed) = bench.call(&mut session, &sent[at..]);
        ns_max = ns_max.max(bench.room.work().done_ns());
        replies.extend(more);
        at += consumed;
        match next {
            Next::Yield | Next::Flush => {}
            Next::Receive => return (replies, ns_max),
            other => panic!("{other:?}"),
        }
    }
}

/// Entries of so many bytes each, with IDs from 1-0 on, which a group `g` has not read; what is replied of each.
fn long_stream(bench: &mut Bench, entries: usize, bytes: usize) -> Vec<String> {
    let job = job(bytes);
    let added = |n: usize| {
        let id = format!("{n}-0");
        assert_eq!(bench.reply(&format!("XADD s {id} f {job}")), apart::bulk(&id).as_bytes());
        told(&id, &["f", &job])
    };
    let all = (1..=entries).map(added).collect();
    assert_eq!(bench.reply("XGROUP CREATE s g 0"), b"+OK\r\n");
    all
}

/// A turn delivers one that takes all of a slice to copy, however many are asked for.
#[test]
fn long_entries_are_delivered_one_a_turn() {
    const ENTRIES: usize = 20;
    let mut bench = large_bench();
    let entries = long_stream(&mut bench, ENTRIES, 1 << 20);
    let whole = read_of("s", &entries.iter().map(String::as_str).collect::<Vec<_>>());
    for words in ["XREADGROUP GROUP g a COUNT 20 STREAMS s >", "XREADGROUP GROUP g a STREAMS s 0"] {
        let (mut session, sent) = (Session::new(), bench.asked(words));
        let (mut next, mut reply) = bench.turn(&mut session, &sent);
        let mut turns = 1;
        while reply.is_empty() {
            assert_eq!(next, Next::Yield, "{words}");
            let done_ns = bench.room.work().done_ns();
            assert!(done_ns <= 1_000_000, "{words}: {done_ns}");
            let pending = frame(&bench.reply("XPENDING s g")).inside[0].number();
            let delivered = if words.ends_with('>') { turns } else { ENTRIES };
            assert!(pending <= Some(delivered as i64), "{words}: {pending:?} in {turns} turns");
            (next, reply) = bench.turn(&mut session, b"");
            turns += 1;
        }
        assert!(turns >= ENTRIES, "{words}: {turns}");
        reply.extend(bench.turns(&mut session, b"").0);
        assert!(reply == whole.as_bytes(), "{words}");
    }
}

/// What was delivered of another stream than the first is copied once more, some of it in a turn.
#[test]
fn long_entries_of_several_streams_are_put_together_in_steps() {
    const ENTRIES: usize = 10;
    let mut bench = large_bench();
    let entries = long_stream(&mut bench, ENTRIES, 1 << 20).concat();
    for name in ["t", "u"] {
        assert_eq!(bench.reply(&format!("COPY s {name}")), b":1\r\n");
    }
    let read = |name: &str| format!("*2\r\n{}*{ENTRIES}\r\n{entries}", apart::bulk(name));
    let whole = format!("*3\r\n{}{}{}", read("s"), read("t"), read("u"));
    for ids in ["> > >", "0 0 0"] {
        let sent = bench.asked(&format!("XREADGROUP GROUP g a STREAMS s t u {ids}"));
        let (reply, ns_max) = dearest_turn(&mut bench, &sent);
        let shown = String::from_utf8_lossy(&reply[..reply.len().min(80)]);
        assert!(reply == whole.as_bytes(), "{ids}: {shown}");
        // The last of what is copied once more, and an entry of the next stream.
        assert!((524_288..1_200_000).contains(&ns_max), "{ids}: {ns_max}");
    }
}

/// DUMP makes a node of it, which is copied: both are charged before there is any of them.
#[test]
fn a_long_entry_is_dumped_where_there_is_room_for_it_twice() {
    let mut bench = large_bench();
    long_stream(&mut bench, 1, 4 << 20);
    let store = std::sync::Arc::clone(bench.worker.store());
    for (free, fits) in [(6 << 20, false), (12 << 20, true)] {
        let taken = (store.held_bytes_max() - store.held_bytes()) as i64 - free;
        store.hold(taken);
        let reply = bench.reply("DUMP s");
        store.hold(-taken);
        let is_refused = reply == b"-OOM connections hold as much memory as they may\r\n";
        assert_eq!((is_refused, reply.len() > 4 << 20), (!fits, fits), "{free}: {}", reply.len());
    }
}

/// What is copied, and what goes, is spent however few entries it has.
#[test]
fn a_few_long_entries_are_work() {
    let mut bench = large_bench();
    let entries = long_stream(&mut bench, 2, 4 << 20);
    let sent = bench.asked("XINFO STREAM s");
    let (reply, ns_max) = dearest_turn(&mut bench, &sent);
    let [first, last] = &entries[..] else { unreachable!() };
    assert!(reply.ends_with(format!("first-entry\r\n{first}$10\r\nlast-entry\r\n{last}").as_bytes()));
    assert!((2 * (2 << 20)..6_000_000).contains(&ns_max), "{ns_max}");
    // 259 parts of a leaf of their own, and 0.17 µs for each.
    let sent = bench.asked("XADD s MAXLEN 2 3-0 f v");
    let (reply, ns_max) = dearest_turn(&mut bench, &sent);
    assert_eq!(reply, apart::bulk("3-0").as_bytes());
    assert!((40_000..200_000).contains(&ns_max), "{ns_max}");
}

/// None of it was copied into leaves, which would be 4.7 ms for those 3 MiB that would fit.
#[test]
fn an_entry_that_is_too_long_spends_nothing_for_its_values() {
    let mut bench = large_bench();
    let sent = bench.asked(&format!("XADD s * a {} b {}", job(3 << 20), job(2 << 20)));
    let (reply, ns_max) = dearest_turn(&mut bench, &sent);
    assert!(reply.starts_with(b"-ERR collection exceeds maximum allowed size"));
    assert!(ns_max < 80_000, "{ns_max}");
}

/// Names and short values of an entry have 16,216 bytes as they lie in a leaf: whatever is put comes back from its payload.
#[test]
fn an_entry_that_is_put_is_restored_up_to_the_longest() {
    let mut bench = bench();
    // Beside a name there are six bytes: how many fields there are, codes, a length and a value.
    for (bytes, fits) in [(16_200, true), (16_209, true), (16_210, true), (16_211, false), (16_330, false)] {
        let name = "n".repeat(bytes);
        let reply = bench.reply(&format!("XADD s 1-0 {name} v"));
        let told_by = if fits { "$3\r\n1-0\r\n" } else { "-ERR collection exceeds maximum allowed size" };
        assert!(reply.starts_with(told_by.as_bytes()), "{bytes}: {}", String::from_utf8_lossy(&reply));
        if fits {
            let payload = bulk(&bench.reply("DUMP s"));
            let sent = encode(&[b"RESTORE", b"t", b"0", &payload]);
            assert_eq!(bench.turns(&mut Session::new(), &sent).0, b"+OK\r\n", "{bytes}");
            assert_eq!(bench.reply("XRANGE t - +"), bench.reply("XRANGE s - +"), "{bytes}");
        }
        bench.reply("DEL s t");
    }
}

/// The dearest step that there is: what has 4 MiB is copied once, and three times on the way into its leaves.
#[test]
fn one_of_the_longest_entries_is_restored_within_ten_milliseconds() {
    let mut bench = large_bench();
    let job = job(4 << 20);
    bench.reply("XADD s 1-0 x y");
    // It has not the names of the first of its node.
    bench.reply(&format!("XADD s 2-0 a 1 f {job}"));
    let entries = bench.reply("XRANGE s - +");
    let expected = format!("*2\r\n{}{}", told("1-0", &["x", "y"]), told("2-0", &["a", "1", "f", &job]));
    assert!(entries == expected.as_bytes());
    let payload = bulk(&bench.reply("DUMP s"));
    let (reply, ns_max) = dearest_turn(&mut bench, &encode(&[b"RESTORE", b"t", b"0", &payload]));
    assert_eq!(reply, b"+OK\r\n");
    assert!((4 * (2 << 20)..10_000_000).contains(&ns_max), "{ns_max}");
    assert!(bench.reply("XRANGE t - +") == entries);
}

/// A payload of one node, which `put` puts: entries that were deleted, each with a value, and behind them one with the ID 2-0.
fn payload_of(deleted: &[Vec<u8>], value: &[u8], put: impl Fn(&mut Vec<u8>, &[u8])) -> Vec<u8> {
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Words>();
    let mut node = words(&["1", &deleted.len().to_string(), "1", "f", "0"]);
    for value in deleted {
        node.extend(words(&["3", "0", "0"]));
        node.push(value.clone());
        node.extend(words(&["4"]));
    }
    node.extend(words(&["2", "1", "0"]));
    node.push(value.to_vec());
    node.extend(words(&["4"]));
    payload_of_node(&node, [1, 2, 2, 1, deleted.len() + 1], put)
}

/// A payload of one node, which `put` puts, with the ID 1-0, and of no groups. In numbers: entries; the milliseconds of the last
/// ID, of the first one and of the greatest that was deleted; and entries that were added.
fn payload_of_node(node: &[Vec<u8>], numbers: [usize; 5], put: impl Fn(&mut Vec<u8>, &[u8])) -> Vec<u8> {
    let [entries, last, first, deleted, added] = numbers;
    let mut body = vec![19, 1];
    forms::string(&mut body, &[1_u64.to_be_bytes(), [0; 8]].concat());
    put(&mut body, &forms::listpack(node));
    for number in [entries, last, 0, first, 0, deleted, 0, added, 0] {
        forms::length(&mut body, number);
    }
    sealed(&body, 10)
}

/// What it takes to read a string and to pack it is spent however short it is: 20 ns each are 30 ms, in slices of half a
/// millisecond, in which no more is read beyond them than one entry, of 60 µs.
#[test]
fn entries_of_many_empty_values_are_restored_in_steps() {
    const ENTRIES: usize = 500;
    const FIELDS: usize = 3_000;
    let mut bench = large_bench();
    let numbers = |numbers: &[usize]| numbers.iter().map(|n| n.to_string().into_bytes()).collect::<Words>();
    let empty = vec![Vec::new(); FIELDS];
    let mut node = [numbers(&[ENTRIES, 0, FIELDS]), empty.clone(), numbers(&[0])].concat();
    for n in 0..ENTRIES {
        node.extend(numbers(&[2, n, 0]));
        node.extend_from_slice(&empty);
        node.extend(numbers(&[FIELDS + 3]));
    }
    let payload = payload_of_node(&node, [ENTRIES, ENTRIES, 1, 0, ENTRIES], forms::string);
    let sent = encode(&[b"RESTORE", b"t", b"0", &payload]);
    let (reply, turns) = slices::turns(&mut bench, &mut Session::new(), &sent);
    assert_eq!(reply, b"+OK\r\n");
    assert!(turns > 40, "{turns}");
    assert_eq!(bench.reply("XLEN t"), format!(":{ENTRIES}\r\n").as_bytes());
    let entry = told("500-0", &vec![""; 2 * FIELDS]);
    assert!(bench.reply("XREVRANGE t + - COUNT 1") == format!("*1\r\n{entry}").as_bytes());
}

/// 0.11 µs each are 8.8 ms, in slices of half a millisecond.
#[test]
fn deleted_entries_of_a_payload_are_passed_over_in_steps() {
    let mut bench = large_bench();
    let payload = payload_of(&vec![b"x".to_vec(); 80_000], b"v", forms::string);
    let sent = encode(&[b"RESTORE", b"t", b"0", &payload]);
    let (reply, turns) = slices::turns(&mut bench, &mut Session::new(), &sent);
    assert_eq!(reply, b"+OK\r\n");
    assert!(turns > 15, "{turns}");
    assert_eq!(bench.reply("XRANGE t - +"), format!("*1\r\n{}", told("2-0", &["f", "v"])).as_bytes());
}

/// One may be longer than any entry: the payload is gone through in slices of half a millisecond, and no more is done with it.
#[test]
fn deleted_entries_of_a_payload_are_not_copied() {
    let mut bench = large_bench();
    let payload = payload_of(&[vec![b'x'; 5 << 20]], b"v", forms::string);
    let (reply, ns_max) = dearest_turn(&mut bench, &encode(&[b"RESTORE", b"t", b"0", &payload]));
    assert_eq!(reply, b"+OK\r\n");
    assert!(ns_max < 600_000, "{ns_max}");
    assert_eq!(bench.reply("XRANGE t - +"), format!("*1\r\n{}", told("2-0", &["f", "v"])).as_bytes());
}

/// One that was deleted may have more fields than any entry, with names of its own or with those of its node: both are passed
/// over, 10 ns a string, in slices of half a millisecond. Of an entry that is there they are too many.
#[test]
fn deleted_entries_of_very_many_fields_are_passed_over_in_steps() {
    const FIELDS_MAX: usize = 16 << 10;
    let mut bench = large_bench();
    let numbers = |numbers: &[usize]| numbers.iter().map(|n| n.to_string().into_bytes()).collect::<Words>();
    let other = [numbers(&[0, 1, 0, 1]), vec![b"f".to_vec(), b"v".to_vec()], numbers(&[6])].concat();
    // The first of two entries has so many fields: it was deleted, or not.
    let restore = |is_deleted: bool, fields: usize, is_same: bool| {
        let (deleted, strings) = (usize::from(is_deleted), vec![Vec::new(); fields]);
        let names = if is_same { strings.clone() } else { vec![b"f".to_vec()] };
        let head = [numbers(&[2 - deleted, deleted, names.len()]), names, numbers(&[0])].concat();
        let first = if is_same {
            [numbers(&[2 + deleted, 0, 0]), strings, numbers(&[fields + 3])].concat()
        } else {
            let both = [strings.clone(), strings].concat();
            [numbers(&[deleted, 0, 0, fields]), both, numbers(&[2 * fields + 4])].concat()
        };
        let node = [head, first, other.clone()].concat();
        let payload = payload_of_node(&node, [2 - deleted, 2, 1 + deleted, deleted, 2], forms::string);
        encode(&[b"RESTORE", b"t", b"0", &payload])
    };
    let entries = format!("*1\r\n{}", told("2-0", &["f", "v"]));
    for is_same in [false, true] {
        for fields in [FIELDS_MAX, FIELDS_MAX + 1] {
            let reply = bench.turns(&mut Session::new(), &restore(true, fields, is_same)).0;
            assert_eq!(String::from_utf8_lossy(&reply), "+OK\r\n", "{fields} {is_same}");
            assert_eq!(String::from_utf8_lossy(&bench.reply("XRANGE t - +")), entries);
            bench.reply("DEL t");
        }
        let sent = restore(true, 300_000, is_same);
        let (reply, turns) = slices::turns(&mut bench, &mut Session::new(), &sent);
        assert_eq!(String::from_utf8_lossy(&reply), "+OK\r\n", "{is_same}");
        assert!(turns > 8, "{turns}");
        assert_eq!(String::from_utf8_lossy(&bench.reply("XRANGE t - +")), entries);
        bench.reply("DEL t");
    }
    for is_same in [false, true] {
        let reply = bench.turns(&mut Session::new(), &restore(false, FIELDS_MAX + 1, is_same)).0;
        assert!(reply.starts_with(b"-ERR collection exceeds "), "{}", String::from_utf8_lossy(&reply));
        assert_eq!(bench.reply("EXISTS t"), b":0\r\n");
    }
}

/// Puts a string with a long run of `x` in LZF: of the run 264 bytes each are a reference of three.
fn put_run(body: &mut Vec<u8>, bytes: &[u8]) {
    let plain = |packed: &mut Vec<u8>, bytes: &[u8]| {
        for piece in bytes.chunks(32) {
            packed.push(piece.len() as u8 - 1);
            packed.extend(piece);
        }
    };
    let start = bytes.windows(9).position(|nine| *nine == [b'x'; 9]).unwrap() + 1;
    let references = bytes[start..].iter().take_while(|byte| **byte == b'x').count() / 264;
    let mut packed = Vec::new();
    plain(&mut packed, &bytes[..start]);
    packed.extend([0xe0_u8, 255, 0].repeat(references));
    plain(&mut packed, &bytes[start + 264 * references..]);
    body.push(0xc3);
    forms::length(body, packed.len());
    forms::length(body, bytes.len());
    body.extend(packed);
}

/// 75 ns for each byte that is unpacked, of which one in 60 to 88 comes.
#[test]
fn exec_weighs_a_payload_of_a_stream_as_it_is_unpacked() {
    let mut bench = large_bench();
    let multi = [bench.asked("MULTI"), bench.asked("EXEC")];
    for (bytes, fits) in [(100_000, true), (140_000, false), (4 << 20, false)] {
        let value = "x".repeat(bytes);
        let payload = payload_of(&[], value.as_bytes(), put_run);
        assert!(payload.len() < bytes / 60, "{}", payload.len());
        let restore = encode(&[b"RESTORE", b"t", b"0", &payload]);
        let sent = [&multi[0][..], &restore, &multi[1]].concat();
        let reply = bench.turns(&mut Session::new(), &sent).0;
        let done = if fits { "*1\r\n+OK\r\n" } else { "-EXECABORT " };
        let wanted = format!("+OK\r\n+QUEUED\r\n{done}");
        assert!(reply.starts_with(wanted.as_bytes()), "{bytes}: {}", String::from_utf8_lossy(&reply));
        if !fits {
            assert_eq!(bench.turns(&mut Session::new(), &restore).0, b"+OK\r\n");
        }
        let read = bench.reply("XRANGE t - +");
        assert!(read == format!("*1\r\n{}", told("2-0", &["f", &value])).as_bytes(), "{bytes}");
        bench.reply("DEL t");
    }
}

/// Each moment of XDEL is published as one change: one takes as many out as begin within 8 MiB.
#[test]
fn long_entries_are_deleted_some_at_a_time() {
    let mut bench = large_bench();
    let mut session = Session::new();
    for words in ["HELLO 3", "PSUBSCRIBE *", "CONFIG SET notify-keyspace-events Et"] {
        let sent = bench.asked(words);
        bench.turns(&mut session, &sent);
    }
    for (bytes, moments) in [(4 << 20, 10), (2 << 20, 5), ((2 << 20) - 100, 4), (1 << 10, 1)] {
        long_stream(&mut bench, 20, bytes);
        let ids: String = (1..=20).map(|n| format!(" {n}-0")).collect();
        let sent = bench.asked(&format!("XDEL s{ids}"));
        let heard = [bench.turns(&mut session, &sent).0, bench.turns(&mut session, b"").0].concat();
        let heard = String::from_utf8_lossy(&heard);
        assert!(heard.contains(":20\r\n"), "{bytes}: {heard}");
        assert_eq!(heard.matches("@0__:xdel\r\n").count(), moments, "{bytes}: {heard}");
        assert_eq!(bench.reply("XLEN s"), b":0\r\n");
        bench.reply("DEL s");
        while bench.worker.enter(START).maintain() {}
    }
}

/// Room is made for those that are claimed, not for all that are looked at: here these are more than connections may hold.
#[test]
fn a_long_entry_among_others_that_are_pending_is_claimed_where_there_is_room_for_one() {
    const ENTRIES: usize = 10;
    let mut bench = bench();
    assert!(bench.worker.store().held_bytes_max() < (ENTRIES as u64) << 21);
    let entries = long_stream(&mut bench, ENTRIES, 2 << 20);
    for entry in &entries {
        let reply = bench.reply("XREADGROUP GROUP g alice COUNT 1 STREAMS s >");
        assert!(reply == read_of("s", &[entry]).as_bytes());
    }
    for (n, entry) in (1..).zip(&entries) {
        let next = if n < ENTRIES { format!("{}-0", n + 1) } else { "0-0".to_owned() };
        let sent = bench.asked(&format!("XAUTOCLAIM s g bob 0 {n}-0 COUNT 1"));
        let (reply, ns_max) = dearest_turn(&mut bench, &sent);
        let expected = format!("*3\r\n{}*1\r\n{entry}*0\r\n", apart::bulk(&next));
        let shown = String::from_utf8_lossy(&reply[..reply.len().min(80)]);
        assert!(reply == expected.as_bytes(), "{n}: {shown}");
        // It is copied in one turn, in which some of it is replied.
        assert!((1_048_576..2_000_000).contains(&ns_max), "{ns_max}");
    }
    assert_eq!(bench.reply("XPENDING s g - + 10 alice"), b"*0\r\n");
}

#[test]
fn streams_of_long_entries_are_dumped_restored_and_told_apart() {
    let mut bench = bench();
    let (long, longer) = (job(20_000), job(300_000));
    bench.reply(&format!("XADD s 1-1 a {long} n 7"));
    bench.reply("XADD s 1-2 a b n 8");
    bench.reply(&format!("XADD s 2-0 a {longer} b {longer}"));
    let entries = [
        told("1-1", &["a", &long, "n", "7"]),
        told("1-2", &["a", "b", "n", "8"]),
        told("2-0", &["a", &longer, "b", &longer]),
    ];
    let all = format!("*3\r\n{}", entries.concat());
    let shows = |bench: &mut Bench| assert!(bench.reply("XRANGE m - +") == all.as_bytes());
    is_dumped_restored_and_told_apart(bench, "s", shows, "XDEL m 1-1");
}
